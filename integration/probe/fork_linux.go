package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// forkSys makes one system call in a forked child with a single thread and
// gives its errno: unshare(2) and setns(2) refuse a process with several
// threads, which every Go program is. Nothing but bare system calls may happen
// between the fork and the exit.
//
//go:norace
//go:nosplit
func forkSys(nr, a1, a2, a3, a4, a5, a6 uintptr) error {
	pid, _, e := syscall.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return e
	}
	if pid == 0 {
		_, _, e = syscall.RawSyscall6(nr, a1, a2, a3, a4, a5, a6)
		for {
			syscall.RawSyscall6(unix.SYS_EXIT_GROUP, uintptr(e), 0, 0, 0, 0, 0)
		}
	}
	return waitErrno(int(pid))
}

// forkClone clones with the given flags; the child exits at once.
//
//go:norace
//go:nosplit
func forkClone(flags uintptr) error {
	pid, _, e := syscall.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if e != 0 {
		return e
	}
	if pid == 0 {
		for {
			syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
		}
	}
	return waitErrno(int(pid))
}

// forkClone3 is forkClone by the newer call, whose flags lie in memory where no
// filter sees them.
//
//go:norace
//go:nosplit
func forkClone3(args *[11]uint64, ptr uintptr) error {
	pid, _, e := syscall.RawSyscall6(unix.SYS_CLONE3, ptr, 88, 0, 0, 0, 0)
	if e != 0 {
		return e
	}
	if pid == 0 {
		for {
			syscall.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
		}
	}
	return waitErrno(int(pid))
}

// waitErrno reaps a child that exits with an errno; a child ended by a signal is
// an error that names the signal.
func waitErrno(pid int) error {
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err == unix.EINTR {
			continue
		} else if err != nil {
			return err
		}
		break
	}
	if ws.Signaled() {
		return errText("child ended by " + unix.SignalName(ws.Signal()))
	}
	if n := ws.ExitStatus(); n != 0 {
		return syscall.Errno(n)
	}
	return nil
}

type errText string

func (e errText) Error() string { return string(e) }
