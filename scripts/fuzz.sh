#!/bin/sh
# Runs every fuzz target of the module for a short time each, to see that it still works; a long search is
#   go test -run '^$' -fuzz '^FuzzName$' ./package
#
#   scripts/fuzz.sh [TIME]     per target, default 5s
set -eu
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# once runs one target. The engine's own limit is the time; an error in the target ends it early and writes the input to
# testdata/fuzz.
once() {
	go test -run '^$' -fuzz "^$2\$" -fuzztime "$3" "$1" </dev/null >"$log" 2>&1
}

# raced tells whether all that the log complains of is the engine's own limit. Before Go 1.27 the engine takes it for a failure
# when a worker sees it first (go.dev/issue/75804). A target that fails names its input, its line or its panic.
raced() {
	[ "$(grep -A1 '^--- FAIL' "$log" | tail -n 1)" = '    context deadline exceeded' ] &&
		! grep -q -e 'Failing input' -e 'panic' -e '\.go:[0-9]' "$log"
}

list=$(go test -list '^Fuzz' ./...) # the names of a package, then its "ok" line
printf '%s\n' "$list" | awk '/^Fuzz/ { name[n++] = $1 } $1 == "ok" { for (i = 0; i < n; i++) print $2, name[i]; n = 0 }' |
	while read -r package target; do
		echo "fuzz: $package $target"
		for try in 1 2 3; do
			status=0
			once "$package" "$target" "${1:-5s}" || status=$?
			cat "$log"
			if [ "$status" = 0 ] || ! raced; then
				break
			fi
			echo "fuzz: the engine took its own limit for a failure, for the $try. time"
		done
		[ "$status" = 0 ] || exit "$status"
	done
