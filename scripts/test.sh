#!/bin/sh
# Runs the tests of the packages named (default: all) against the binary that `make build` made.
#
#   scripts/test.sh [PACKAGE...]
#
# An ordinary user runs them once. Root runs them twice: as root, and as the ordinary user wall-test, which is made for that
# (useradd, with a home directory; it stays, everything else is removed). Every failure of either half fails the whole.
#
# What the tests find in their environment:
#   WALL_BIN           the wall binary
#   WALL_PROBE         a static program that reports its own posture, built from integration/probe
#   WALL_TEST_REQUIRE  words for need(): what must not be skipped. Where the caller sets it, this script adds the word for
#                      the half that runs, "root" or "unprivileged".
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/go/bin:/usr/sbin:/sbin
export PATH
export GOFLAGS="${GOFLAGS:-} -buildvcs=false" # the copy below has another owner, which git refuses to look at
[ $# -gt 0 ] || set -- ./...

tmp=$(mktemp -d "${TMPDIR:-/tmp}/wall-test.XXXXXX")
base='' # the ordinary user's files
cleanup() {
	rc=$?
	trap - EXIT INT TERM HUP
	# Only a failed test leaves processes of this user behind; they must not outlive the run.
	[ -z "$base" ] || ps -o pid= -u "$user" | xargs -r kill -KILL 2>/dev/null || :
	rm -rf "$tmp" ${base:+"$base" "$home/.config" "$home/.cache"} # the go command keeps its telemetry counters in .config
	exit "$rc"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# For both halves. Not cached: a result depends on the binary, which go test's cache does not know.
flags='-count=1 -timeout=15m'
require() { printf %s "${WALL_TEST_REQUIRE:+$WALL_TEST_REQUIRE,$1}"; }

CGO_ENABLED=0 go build -trimpath -o "$tmp/probe" ./integration/probe

if [ "$(id -u)" -ne 0 ]; then
	echo "test: as $(id -un) only; run it as root to have the root half, too"
	env WALL_BIN="$PWD/bin/wall" WALL_PROBE="$tmp/probe" WALL_TEST_REQUIRE="$(require unprivileged)" go test $flags "$@"
	exit
fi

failed=0
echo "test: as root"
env WALL_BIN="$PWD/bin/wall" WALL_PROBE="$tmp/probe" WALL_TEST_REQUIRE="$(require root)" go test $flags "$@" || failed=1

# The ordinary user. Everything it needs lies in its home, as with a person: a copy of this tree, and a module cache with
# just this module's dependencies, taken from root's (which it cannot read) and therefore without network.
user=wall-test
id -u "$user" >/dev/null 2>&1 || useradd --create-home --user-group --shell /bin/sh "$user"
home=$(getent passwd "$user" | cut -d: -f6)
exec 9<"$home"
flock 9 # one run at a time owns this user's processes and files
base=$(mktemp -d "$home/test.XXXXXX")
chmod 755 "$base"
mkdir "$base/wall" "$base/bin" "$base/cache"
tar -cf - . | tar -xf - -C "$base/wall"
cp "$tmp/probe" "$base/bin/probe"
go mod download
GOPROXY=file://$(go env GOMODCACHE)/cache/download GOSUMDB=off GOFLAGS=-modcacherw GOMODCACHE=$base/go/pkg/mod go mod download
goroot=$(go env GOROOT)
if ! setpriv --reuid="$user" --regid="$user" --clear-groups test -x "$goroot/bin/go"; then # a toolchain that go fetched lies in root's home
	cp -R "$goroot" "$base/goroot"
	goroot=$base/goroot
fi
chown -R "$user:" "$base"

# go test compiles and reports as root, in that copy, and starts each test binary through this script: the binary lies in a
# directory that only root can enter, so the user gets a copy. The environment is made from nothing.
cat >"$tmp/as-user" <<END
#!/bin/sh
set -eu
program=$base/bin/\$\$-\$(basename "\$1")
cp "\$1" "\$program"
chmod 755 "\$program"
shift
exec setpriv --reuid=$user --regid=$user --init-groups --inh-caps=-all env -i \\
	HOME=$home USER=$user LOGNAME=$user SHELL=/bin/sh LANG=C.UTF-8 PATH="$goroot/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" \\
	GOPATH=$base/go GOCACHE=$base/cache GOFLAGS=-buildvcs=false GOPROXY=off GOTOOLCHAIN=local CI="${CI:-}" \\
	WALL_BIN=$base/wall/bin/wall WALL_PROBE=$base/bin/probe WALL_TEST_REQUIRE=$(require unprivileged) WALL_TEST_KERNELS=skip \\
	"\$program" "\$@"
END
chmod 755 "$tmp/as-user"

echo "test: as $user ($(id "$user"))"
cd "$base/wall"
go test $flags -exec "$tmp/as-user" "$@" 9>&- || failed=1

left=$(ps -o pid=,args= -u "$user" || :)
[ -z "$left" ] || { printf 'test: processes of %s outlived the tests:\n%s\n' "$user" "$left"; failed=1; }
exit "$failed"
