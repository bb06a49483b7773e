// Package scratch makes and removes the private directory of a run,
// <root>/wall-<id>, as [plan.Scratch] says, and what a run has to leave on the
// host for its duration: empty mount points for protected names that do not
// exist (placeholders).
//
// The root is a directory of mode 0700 that belongs to the caller. In it:
//
//	wall-<id>/               0700, locked with flock(2) while in use
//	wall-<id>/<dir>          what the box sees, with the modes of the plan
//	wall-<id>/.placeholders  what was made elsewhere on the host (see record.go);
//	                         .placeholders-<id>: what another run left to this one
//	wall-<id>/.keep          the directory outlives its run (Scratch.Keep)
//
// The box sees the sub-directories only, so nothing inside can read or change
// the rest. Whatever ends a run, also SIGKILL, releases the lock; [Collect]
// then removes what was left. Everything is done by descriptor: no link is
// followed, no mount point crossed, whatever a hostile command left behind.
//
// A record is not simply believed, because it names things outside of the root: what
// is removed on its account is an empty directory, or a file with a content
// that wall writes, belongs to the caller, has the inode and time of creation that
// were noted, and is not older than the record itself. A forged record
// cannot name what was there before it. Where a file system does not tell when
// something was made, its last change counts instead, and where the scratch
// root's does not, the age is not checked.
//
// The package does not protect from other processes of the same user outside
// of boxes: they own the directory. It needs Linux 5.6 (openat2(2)) and a file
// system with flock on directories, which NFS is not.
package scratch
