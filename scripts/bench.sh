#!/bin/sh
# Compares the cost of a launch with bubblewrap making the same namespaces and mounts, in turns (A B A B ...), so that a
# change of the machine's load meets both. Prints the medians of the rounds, and fails when the ratio is over the bound.
#
#   scripts/bench.sh
#   ROUNDS=20 RUNS=50 MAX=1.5    how many rounds, launches in each, and the bound
set -eu
cd "$(dirname "$0")/.."
rounds=${ROUNDS:-20} runs=${RUNS:-50} max=${MAX:-1.5}
mkdir -p bin
tmp=$(mktemp -d "$PWD/bin/bench.XXXXXX") # not below /tmp, which is private in the box
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM HUP
mkdir "$tmp/workspace" "$tmp/scratch"
wall=$PWD/bin/wall
cd "$tmp/workspace"

bare() { /bin/true; }
wall() { "$wall" run -p gate -- /bin/true; }
# What `wall plan -p gate` lists, as far as bubblewrap has it: no Landlock, no filter, no self-test.
bubblewrap() {
	bwrap --unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup --unshare-net --die-with-parent --new-session --clearenv \
		--setenv PATH /usr/bin:/bin --setenv HOME "$HOME" --setenv TMPDIR /tmp --cap-drop ALL \
		--ro-bind / / --bind "$tmp/scratch" /tmp --bind "$tmp/scratch" /var/tmp --tmpfs /run --dev /dev --proc /proc \
		--bind "$tmp/workspace" "$tmp/workspace" --chdir "$tmp/workspace" /bin/true
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

for what in bare bubblewrap wall; do "$what" && "$what"; done # must work, and warms the caches
n=0
while [ "$n" -lt "$rounds" ]; do
	for what in bare bubblewrap wall; do round "$what" >>"$tmp/$what"; done
	n=$((n + 1))
done
for what in bare bubblewrap wall; do
	printf '%-11s %7.2f ms   (best round %.2f)\n' "$what" "$(median "$tmp/$what")" "$(sort -n "$tmp/$what" | head -n 1)"
done
awk -v a="$(median "$tmp/wall")" -v b="$(median "$tmp/bubblewrap")" -v max="$max" 'BEGIN {
	printf "wall / bubblewrap = %.2f (bound %s)\n", a / b, max
	exit a / b > max
}'
