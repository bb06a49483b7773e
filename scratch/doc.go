// Package scratch makes and removes the private directory of a run,
// <root>/wall-<id>, as [plan.Scratch] says, and what a run has to leave on the
// host for its duration: empty mount points for protected names that do not
// exist (placeholders).
//
// The root is a directory of mode 0700 that belongs to the caller. In it:
//
//	wall-<id>/               0700, locked with flock(2) while in use
//	wall-<id>/<dir>          what the box sees, with the modes of the plan
//	wall-<id>/.placeholders  what was made elsewhere on the host (see record.go)
//	wall-<id>/.keep          the directory outlives its run (Scratch.Keep)
//
// The box sees the sub-directories only, so nothing inside can read or change
// the rest. Whatever ends a run, also SIGKILL, releases the lock; [Collect]
// then removes what was left. Everything is done by descriptor: no link is
// followed, no mount point crossed, whatever a hostile command left behind.
//
// The package does not protect from other processes of the same user outside
// of boxes: they own the directory. It needs Linux 5.6 (openat2(2)) and a file
// system with flock on directories, which NFS is not.
package scratch
