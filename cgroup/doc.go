// Package cgroup keeps the memory and the number of processes of a box within
// bounds, and counts them, with control groups of the kernel
// (https://docs.kernel.org/admin-guide/cgroup-v2.html, cgroup-v1/).
//
// A run gets a directory wall-<id> that has the limits, and in it another one,
// "box", that has the processes:
//
//	<parent>/wall-<id>/       memory.max, memory.swap.max, memory.oom.group, pids.max
//	<parent>/wall-<id>/box/   cgroup.procs
//
// Whatever the command may do to the cgroup it is in (with nested sandboxes it
// could mount a cgroup file system whose root that is, and it owns the files),
// the limits are one level above. Processes enter before they know what they
// are to do, and the kernel keeps their children inside.
//
// Where a parent is found, in this order:
//
//   - Version 2: the nearest of the caller's own cgroup and those above it in
//     which the caller may make directories and move processes, and whose children
//     have the controllers. One that belongs to the caller, has the controllers
//     and no processes of its own gets them switched on for its children. For root
//     outside of a container that is nearly always one; for others, whatever
//     systemd or a container manager delegated to them.
//   - Version 1, as root: the caller's own cgroup in the hierarchies of the memory
//     and pids controllers.
//   - The user's systemd, for others than root (version 2): a transient scope that
//     is delegated to the caller, asked for through systemd's own socket in
//     /run/user/UID, below which wall does as above.
//
// Nothing is concluded from a version or a setting: [Find] makes such a group and
// removes it again; of systemd it asks where scopes are, because a scope without a
// process cannot be. That it makes none is seen by [Enter], which then gives a [ScopeError].
//
// Directories of runs that were killed stay, empty, since the kernel removes none;
// [Collect] removes those. A run locks its directories (flock(2)) until it has read the
// counters; one that is just being made may be removed, and [Enter] makes it again.
package cgroup
