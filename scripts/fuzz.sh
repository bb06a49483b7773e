#!/bin/sh
# Runs every fuzz target of the module for a short time each, to see that it still works; a long search is
#   go test -run '^$' -fuzz '^FuzzName$' ./package
#
#   scripts/fuzz.sh [TIME]     per target, default 5s
set -eu
cd "$(dirname "$0")/.."
list=$(go test -list '^Fuzz' ./...) # the names of a package, then its "ok" line
printf '%s\n' "$list" | awk '/^Fuzz/ { name[n++] = $1 } $1 == "ok" { for (i = 0; i < n; i++) print $2, name[i]; n = 0 }' |
	while read -r package target; do
		echo "fuzz: $package $target"
		# The engine's own limit is the time; an error in the target ends it early and writes the input to testdata/fuzz.
		go test -run '^$' -fuzz "^$target\$" -fuzztime "${1:-5s}" "$package" </dev/null
	done
