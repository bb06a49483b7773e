// Package nsexec carries a plan out: stage 1 starts stage 2 in new namespaces,
// stage 2 (pid 1 of the box) builds the file tree, drops every privilege, applies
// Landlock and seccomp, tests itself, and starts the command with the plan's
// environment. [Cmd] behaves like os/exec.Cmd.
//
// A program that uses the package must call [Main] as the first statement of
// its main function: stage 2 is the same binary, started through
// /proc/self/exe with the single argument "wall-init" and an empty environment.
//
// What the package does not promise: that a kernel bug cannot be used to
// escape (the kernel is shared), and any confinement that is not in the plan.
// It needs Linux 5.13: user namespaces (user_namespaces(7)), the mount API of
// 5.12 (mount_setattr(2), open_tree(2), move_mount(2)), openat2(2), pidfd, and
// Landlock when the plan has it
// (https://docs.kernel.org/userspace-api/landlock.html).
package nsexec
