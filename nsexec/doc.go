// Package nsexec carries a plan out: stage 1 starts stage 2 in new namespaces,
// stage 2 (pid 1 of the box) builds the file tree, drops every privilege, applies
// Landlock and seccomp, tests itself, and starts the command with the plan's
// environment. [Cmd] behaves like os/exec.Cmd.
//
// A program that uses the package must call [Main] as the first statement of
// its main function: stage 2 is the same binary, started through
// /proc/self/exe with the single argument "wall-init" and an empty environment.
//
// # Terminals
//
// With Plan.TTY "pty", which Resolve chooses where the process has a terminal
// on standard input, Cmd.Stdin must be that terminal (an *os.File). Start connects it with the
// private terminal of the box, in raw mode while this process is in its
// foreground, and Wait gives it back. The program passes on the signals that
// concern the terminal, since the package takes none:
//
//   - SIGWINCH and SIGCONT, and those that are for the command (SIGINT, SIGTERM,
//     SIGHUP, ...), to [Cmd.Signal];
//   - SIGTSTP as SIGSTOP, after which [Cmd.Suspend] is called.
//
// It sets Cmd.Suspend to stop itself when the command stops, and calls
// [Cmd.RestoreTerminal] before it ends by a signal or a panic. It calls Wait at once
// after Start: stops are noticed there. A child of it, "terminal-guard", is the same binary
// again; it restores the terminal should the program die without, and ends in Wait. A program that has no use for a terminal sets Plan.TTY
// to "none" and passes no terminal.
//
// # Networks
//
// A plan with hosts, loopback ports or published ports has its connections carried by
// this process, from Start to Wait: it is the only way out of the box, and when it
// dies, so does the box. [Cmd].NetEvents sees each connection, [Result].Network sums
// them up. Where the kernel cannot redirect connections, Start fails with
// an [NftablesError] below the plan.Error, before the command runs; a plan with
// plan.NetProxy does without.
//
// Likewise with a cgroup.ScopeError where the plan has a scope of the user's systemd that cannot
// be had.
//
// What the package does not promise: that a kernel bug cannot be used to
// escape (the kernel is shared), and any confinement that is not in the plan.
// It needs Linux 5.13: user namespaces (user_namespaces(7)), the mount API of
// 5.12 (mount_setattr(2), open_tree(2), move_mount(2)), openat2(2), pidfd, and
// Landlock when the plan has it
// (https://docs.kernel.org/userspace-api/landlock.html).
package nsexec
