#!/bin/sh
# Boxes a real command of this repository, then tries what a box should and should not allow. `make demo` builds first.
# Ends with 0 only when every outcome is the expected one.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/go/bin
wall=$PWD/bin/wall
home=$(getent passwd "$(id -u)" | cut -d: -f6)
[ -O . ] || { echo "demo: this directory belongs to another user; run the demo as its owner" >&2; exit 1; }

# Where AppArmor keeps user namespaces from ordinary users, this binary needs a profile; nothing happens elsewhere.
[ "$(id -u)" -eq 0 ] || "$wall" doctor >/dev/null 2>&1 || sh scripts/setup.sh apparmor "$wall" || :

tmp=$(mktemp -d)
listener='' sleeper=''
cleanup() { kill $listener $sleeper 2>/dev/null || :; rm -rf "$tmp"; }
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

cat <<END
== 1. A real command: this repository is compiled and tested in the box of a merge gate, without network.
   (Nothing of your Go build cache can be written there, so the standard library is compiled, too: about a minute.)

\$ wall run -p gate -- sh -c 'go build ./... && go test ./plan/...'
END
go mod download # the box has no network; what it reads must be there
"$wall" run -p gate --env GOMODCACHE="$(go env GOMODCACHE)" --env GOFLAGS=-buildvcs=false -- sh -c 'go build ./... && go test ./plan/...'

# What the box must not reach: a secret in the environment, a process, a server on the loopback interface.
export DEMO_TOKEN="canary-$$"
sleep 4711 &
sleeper=$!
python3 -c '
import http.server, sys
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()' >"$tmp/port" 2>/dev/null &
listener=$!
tries=0
until [ -s "$tmp/port" ] || [ $((tries += 1)) -gt 100 ]; do sleep 0.1; done
port=$(cat "$tmp/port")

# Outside, all of it can be reached; otherwise the refusals below would say nothing.
curl -sS --max-time 5 -o "$tmp/page" "http://127.0.0.1:$port/"
ps -e -o args= | grep -q '[s]leep 4711'

# Runs in the box. $1 is the home directory, $2 the port of the server outside.
cat >"$tmp/inside" <<'END'
home=$1 port=$2 bad=0
tell() { printf '  %-9s %s\n' "$1" "$2"; }
last() { printf %s "$1" | tail -n 1; }
could() { # WHAT COMMAND...: must succeed
	what=$1; shift
	if out=$("$@" 2>&1); then tell could "$what${out:+: $(last "$out")}"; else tell "FAILED" "$what: $(last "$out")"; bad=1; fi
}
could_not() { # WHAT COMMAND...: must fail
	what=$1; shift
	if out=$("$@" 2>&1); then tell "HOLE" "$what: $(last "$out")"; bad=1; else tell "could not" "$what${out:+: $(last "$out")}"; fi
}
could "be you" id
could "see its own processes" sh -c 'ps -e -o comm= | tr "\n" " "'
could_not "see a process of yours" sh -c 'ps -e -o args= | grep "[s]leep 4711"'
[ "$3" -lt 1000 ] || could_not "signal a process of yours" kill -0 "$3" # a small number may be one of the box's own
could "know these variables" sh -c 'env | cut -d= -f1 | sort | tr "\n" " "'
could_not "find your token, here or in /proc" sh -c 'cat /proc/*/environ 2>/dev/null | tr "\0" "\n" | grep "canary-[0-9]"'
could "write in the workspace" sh -c 'echo ok >bin/demo.tmp && cat bin/demo.tmp && rm bin/demo.tmp'
could "write to TMPDIR" sh -c 'f=$(mktemp "$TMPDIR/demo.XXXXXX") && echo ok >"$f" && cat "$f"'
could_not "write to HOME" touch "$home/wall-demo"
could_not "list ~/.ssh" sh -c 'ls -A "$0" 2>&1 | grep -v "ermission denied\|No such file"' "$home/.ssh"
could_not "write to /etc" touch /etc/wall-demo
[ ! -d .git ] || could_not "plant a git hook" touch .git/hooks/wall-demo
could "talk to itself on 127.0.0.1 and ::1" python3 -c '
import socket
for family, address in (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"):
    server = socket.socket(family); server.bind((address, 0)); server.listen()
    socket.create_connection(server.getsockname()[:2], 5).close()'
could_not "reach a server of yours on 127.0.0.1" curl -sS --max-time 5 "http://127.0.0.1:$port/"
could_not "reach the network" curl -sS --max-time 5 http://1.1.1.1/
could_not "have a capability" sh -c 'grep "^Cap" /proc/self/status | grep -v "0000000000000000$"'
could_not "make a new user namespace" unshare -U true
could_not "mount anything" python3 -c '
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None): raise SystemExit(os.strerror(ctypes.get_errno()))'
exit $bad
END

printf '\n== 2. What a command in that box could and could not do.\n\n$ wall run -p gate -- sh ...\n'
status=0
"$wall" run -p gate -- sh -c "$(cat "$tmp/inside")" sh "$home" "$port" "$sleeper" </dev/null || status=$?

printf '\n== 3. Afterwards.\n\n'
for left in "$home/wall-demo" /etc/wall-demo .git/hooks/wall-demo bin/demo.tmp; do
	[ ! -e "$left" ] || { echo "  LEFT BEHIND $left"; status=1; }
done
code=0
"$wall" run -p gate -- sh -c 'exit 41' || code=$?
[ "$code" -eq 41 ] && echo "  the exit status is the command's own: 41" || { echo "  the exit status is $code instead of 41"; status=1; }
code=0
"$wall" run -p gate -- sh -c 'sleep 4712 & exit 0' || code=$?
if [ "$code" -eq 0 ] && ! ps -e -o args= | grep -q '[s]leep 4712'; then
	echo "  what the command left running has ended with it"
else
	echo "  a background process outlived the box (status $code)"
	status=1
fi

if [ "$status" -eq 0 ]; then
	printf '\nEvery outcome is the expected one. bin/wall plan -p gate -- make prints why.\n'
else
	printf '\nNot every outcome is the expected one.\n'
fi
exit "$status"
