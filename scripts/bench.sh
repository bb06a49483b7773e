#!/bin/sh
# Compares the cost of a launch with bubblewrap making the same namespaces and mounts, with wall serving a network of allowed
# hosts, and with wall laying private layers over caches, one of them of 1 GiB in 20,000 files. In turns (A B A B ...), so that a
# change of the machine's load meets all. Prints the medians of the rounds, and fails when a ratio is over its bound. At the end a
# stream through the network wall is compared with one over the loopback interface: NET is the least part of its speed. Stage 1 is
# a third busy process next to the two ends: one processor for all is asked for less.
#
#   scripts/bench.sh
#   ROUNDS=20 RUNS=50 MAX=1.5 MAX_NET=1.5 MAX_GO=2 MAX_ALL=5 NET=0.7    how many rounds, launches in each, and the bounds
set -eu
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-20} runs=${RUNS:-50} max=${MAX:-1.5} max_net=${MAX_NET:-1.5} max_go=${MAX_GO:-2} max_all=${MAX_ALL:-5}
[ "$(nproc)" -ge 2 ] && net=${NET:-0.7} || net=${NET:-0.35}
root=$PWD
mkdir -p bin
tmp=$(mktemp -d "$PWD/bin/bench.XXXXXX") # not below /tmp, which is private in the box
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$tmp/workspace" "$tmp/scratch" "$tmp/empty"
: >"$tmp/empty-file"
wall=$PWD/bin/wall
cd "$tmp/workspace"
git init -q

# The plan of that run, as far as bubblewrap has counterparts: every namespace and every mount, no Landlock, no filter, no
# self-test. Written to a file of NUL-terminated arguments, which bubblewrap reads by itself.
"$wall" plan -p gate --json -- /bin/true | python3 -c '
import json, os, sys
tmp, args = sys.argv[1], []
for m in json.load(sys.stdin)["mounts"]:
    op, at, src = m["op"], m["target"], m["source"]
    if m["optional"] and not os.path.lexists(at):
        continue
    if at.startswith("/dev/") and op not in ("mqueue", "tmpfs"):
        continue  # --dev makes the nodes, links and devpts
    empty = tmp + ("/empty" if m["type"] == "dir" else "/empty-file")
    args += {
        "host-root": ["--ro-bind", "/", "/"], "empty-root": [], "seal": [], "devpts": [],
        "tmpfs": ["--dev", at] if at == "/dev" else ["--tmpfs", at],
        "proc": ["--proc", at], "sysfs": ["--ro-bind", "/sys", at], "mqueue": ["--mqueue", at],
        "bind": ["--bind" if m["access"] == "write" else "--ro-bind", src, at],
        "scratch": ["--bind", tmp + "/scratch", at], "device": ["--dev-bind", src, at],
        "cover": ["--ro-bind", empty, at], "pin": ["--bind", at, at],
        "protect": ["--ro-bind", at if os.path.lexists(at) else empty, at],
        "dir": ["--dir", at], "file": ["--ro-bind", tmp + "/empty-file", at], "symlink": ["--symlink", src, at],
    }[op]
sys.stdout.write("".join(a + "\0" for a in args))' "$tmp" >"$tmp/mounts"
echo "mounts: $(tr '\0' '\n' <"$tmp/mounts" | grep -c '^--')"

# The caches: Go's modules, and one small one of every other tool.
export GOMODCACHE="$tmp/modules" CARGO_HOME="$tmp/cargo" GOCACHE="$tmp/build" GRADLE_USER_HOME="$tmp/gradle" npm_config_cache="$tmp/npm" PIP_CACHE_DIR="$tmp/pip" UV_CACHE_DIR="$tmp/uv"
mkdir -p "$tmp/cargo/registry/index" "$tmp/cargo/registry/cache" "$tmp/cargo/registry/src" "$tmp/build" "$tmp/gradle/caches" "$tmp/npm/_cacache" "$tmp/pip/http-v2" "$tmp/uv/archive-v0" "$tmp/uv/wheels-v5"
python3 -c '
import os, sys
data = os.urandom((1 << 30) // 20000)
for i in range(200):
    d = "%s/m%03d" % (sys.argv[1], i)
    os.makedirs(d)
    for j in range(100):
        with open("%s/f%02d" % (d, j), "wb") as f:
            f.write(data)' "$GOMODCACHE"
printf 'version = 1\nextends = "gate"\n[environment]\ncaches = ["go"]\n' >"$tmp/go.toml"
printf 'version = 1\nextends = "gate"\n[environment]\ncaches = ["cargo", "go", "gradle", "npm", "pip", "uv"]\n' >"$tmp/all.toml"

bare() { /bin/true; }
wall() { "$wall" run -p gate -- /bin/true; }
allow_net() { "$wall" run -p gate --net allow --allow-host example.org -- /bin/true; }
go_caches() { "$wall" run -p "$tmp/go.toml" -- /bin/true; }
all_caches() { "$wall" run -p "$tmp/all.toml" -- /bin/true; }
bubblewrap() {
	bwrap --unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup --unshare-net --die-with-parent --new-session --cap-drop ALL \
		--clearenv --setenv PATH /usr/bin:/bin --setenv HOME "${HOME:-/}" --setenv TMPDIR /tmp --args 9 --chdir "$PWD" /bin/true 9<"$tmp/mounts"
}

# Milliseconds for one launch, the mean of a round.
round() {
	i=0
	begin=$(date +%s%N)
	while [ "$i" -lt "$runs" ]; do
		"$1"
		i=$((i + 1))
	done
	end=$(date +%s%N)
	awk -v ns=$((end - begin)) -v n="$runs" 'BEGIN { printf "%.3f\n", ns / n / 1e6 }'
}
median() { sort -n "$1" | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

for what in bare bubblewrap wall allow_net go_caches all_caches; do "$what" && "$what"; done # must work, and warms the caches
n=0
while [ "$n" -lt "$rounds" ]; do
	for what in bare bubblewrap wall allow_net go_caches all_caches; do round "$what" >>"$tmp/$what"; done
	n=$((n + 1))
done
for what in bare bubblewrap wall allow_net go_caches all_caches; do
	printf '%-11s %7.2f ms   (best round %.2f)\n' "$what" "$(median "$tmp/$what")" "$(sort -n "$tmp/$what" | head -n 1)"
done
awk -v a="$(median "$tmp/wall")" -v b="$(median "$tmp/bubblewrap")" -v max="$max" 'BEGIN {
	printf "wall / bubblewrap = %.2f (bound %s)\n", a / b, max
	exit a / b > max
}' || failed=1
# ratio NAME BOUND WHAT: what the caches or the network add.
ratio() {
	awk -v a="$(median "$tmp/$1")" -v b="$(median "$tmp/wall")" -v max="$2" -v what="$1" -v whatfor="$3" 'BEGIN {
		printf "%s / wall = %.2f (bound %s), %.2f ms more for %s\n", what, a / b, max, a - b, whatfor
		exit a / b > max
	}'
}
ratio allow_net "$max_net" "a network of allowed hosts" || failed=1
ratio go_caches "$max_go" "2 layers" || failed=1
ratio all_caches "$max_all" "10 layers" || failed=1
begin=$(date +%s%N)
cp -R "$GOMODCACHE" "$tmp/copy"
awk -v ns=$(($(date +%s%N) - begin)) 'BEGIN { printf "a copy of the 1 GiB, for comparison: %.0f ms\n", ns / 1e6 }'
cd "$root"
WALL_BIN=$wall WALL_TEST_SPEED=$net go test ./integration -count=1 -run '^TestNetwork(Speed|Load)$' -v >"$tmp/network" 2>&1 || failed=1
grep -E 'of loopback|of the speed|short connections|KiB|^ *--- FAIL|linux_test.go.*(want|before)' "$tmp/network" | sed 's/^ *[a-z_]*.go:[0-9]*: //'
exit "${failed:-0}"
