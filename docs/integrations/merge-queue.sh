#!/bin/sh
# Tries a branch on top of its target, and merges it only when the gate passed.
#
#   merge-queue.sh REPOSITORY TARGET BRANCH
#
# REPOSITORY is a bare repository on this machine. The profile is ci.toml of the target branch. Results are kept in REPOSITORY/gates.
# Ends with 0 when the branch was merged, with the gate's status when it did not pass, and with 1 when it could not be tried.
set -eu
[ $# -eq 3 ] || { echo 'usage: merge-queue.sh REPOSITORY TARGET BRANCH' >&2; exit 1; }
repository=$(cd "$1" && pwd -P)
target=$2
branch=$3

# What the tree under test holds must not run here: no hooks, no file system monitor, no settings of the user.
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0
git() { command git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c user.name='merge queue' -c user.email=queue@localhost "$@"; }

# One at a time: each candidate is tried on top of the last one that was merged.
exec 9>"$repository/gate.lock"
flock 9

work=$(mktemp -d "${TMPDIR:-/tmp}/merge-queue.XXXXXX")
# Tests may leave directories that are closed to their owner, too. They are no reason for another status.
clean() { chmod -R u+rwx "$work" 2>/dev/null || :; rm -rf "$work" || :; }
trap clean EXIT
trap 'exit 1' INT TERM HUP
before=$(git -C "$repository" rev-parse --verify "refs/heads/$target")
git clone --quiet --no-hardlinks --branch "$target" -- "$repository" "$work/tree" || exit 1
git -C "$work/tree" merge --quiet --no-ff -m "Merge $branch into $target" "origin/$branch" || { echo "merge-queue: $branch does not merge into $target" >&2; exit 1; }
merged=$(git -C "$work/tree" rev-parse HEAD)
git -C "$repository" show "$before:ci.toml" >"$work/ci.toml" || exit 1
# What is judged is what will be merged: it is taken into the repository now, and nothing of the tree is read after the gate.
git -C "$repository" fetch --quiet "$work/tree" "+HEAD:refs/gate/$target" || exit 1

results=$repository/gates/$merged
mkdir -p "$results"
status=0
wallbox gate --die-with-caller -p "$work/ci.toml" --workspace "$work/tree" --cwd "$work/tree" \
	--json "$results/result.json" --junit "$results/junit.xml" --log "$results/gate.log" --record "$results/gate.record" || status=$?
if [ "$status" -ne 0 ]; then
	echo "merge-queue: $branch did not pass: see $results" >&2
	exit "$status"
fi
git -C "$repository" update-ref "refs/heads/$target" "$merged" "$before"
echo "merge-queue: merged $branch into $target"
