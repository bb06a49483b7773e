// Package seccomp builds, checks and installs wall's system call filters.
//
// A filter is a classic BPF program ([Program]) that the kernel runs before
// every system call of the thread it was installed on and of everything that
// thread starts. The built-in filters are generated ahead from data/*.json by
// go generate and embedded, because compiling one takes libseccomp longer than
// the whole launch of a box; [Builtin] only copies bytes. Custom filters in the
// OCI runtime-spec format go through [Parse] and [Compile].
//
// # What a filter decides
//
// The rules of a file are read in file order: the first rule that names the
// call and whose argument conditions all hold decides; when none does, the
// default action does. Rules after an unconditional one can never apply and are
// an error. (libseccomp itself leaves the order open and lets an unconditional
// rule win; compiled filters are compared with the order above, see Compile.)
//
// On top of that, in every filter, without a way to switch it off:
//
//   - a call made through another system call table than the machine's own
//     (int 0x80, x32, 32-bit ARM) kills the process: the numbers mean other
//     calls there, so no rule about numbers would hold;
//   - what data/always.json refuses stays refused, whatever a custom filter
//     says: key rings, io_uring, bpf, userfaultfd, perf events, mounts, new
//     namespaces, terminal input injection, socket families other than Unix,
//     IPv4, IPv6 and route netlink, protocols beside TCP, UDP and ping,
//     TCP fast open, set-id modes.
//
// Refusals are errors (EPERM; ENOSYS for unknown calls and for clone3 and
// openat2, so that callers fall back), never kills, except for foreign system
// call tables.
//
// # Set-id files
//
// A file that the command makes set-user-ID in the workspace would give whoever
// executes it outside the box the rights of the box's user: for a box of root, root.
// So no filter lets a call give a mode with the set-user-ID or set-group-ID bit:
// EPERM for chmod, fchmod, fchmodat, fchmodat2, creat, mknod, mknodat, and for open
// and openat that may make a file. A filter cannot tell a directory from a file,
// so this refuses the set-group-ID bit of directories too; data/README.md says which
// programs notice. openat2 has its mode in memory, and is therefore absent.
//
// # What it does not do
//
// A filter sees numbers, not what pointers point to: it cannot tell one path
// from another, and it does not bind calls that were made before it was
// installed or descriptors that are already open. Set-id files that were there
// before stay what they are. It is the second line behind
// namespaces and Landlock, and cuts the kernel surface that an exploit can reach.
//
// Needs Linux 4.14 (SECCOMP_RET_KILL_PROCESS). See
// https://docs.kernel.org/userspace-api/seccomp_filter.html and seccomp(2).
package seccomp

//go:generate go run ./gen
