package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// keepUndumped keeps the kernel from writing the memory of this process to a file
// and other processes of the user from reading it: the caller's variables and
// the values that were fetched for the command are in it, and a core dump would
// go to the working directory, which the command can often read. While a box is
// cloned package nsexec has to allow it.
func keepUndumped() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &plan.Error{Op: "cannot keep wall's memory from being dumped", Err: os.NewSyscallError("prctl", err)}
	}
	return nil
}

// randomBytes fills b from the kernel. crypto/rand asks the same source, but the
// packages it brings along are initialised at every start of both stages.
func randomBytes(b []byte) error {
	for len(b) > 0 {
		n, err := ignoringEINTR(func() (int, error) { return unix.Getrandom(b, 0) })
		if err != nil {
			return os.NewSyscallError("getrandom", err)
		}
		b = b[n:]
	}
	return nil
}

// ignoringEINTR repeats a system call that a signal interrupted.
func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// onDescriptor calls f with the descriptor of file. It does not use File.Fd,
// which takes O_NONBLOCK away from a descriptor that is the caller's as well.
func onDescriptor(file *os.File, f func(fd int)) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	return conn.Control(func(fd uintptr) { f(int(fd)) })
}

// writable reports whether f takes something now.
func writable(f *os.File) bool {
	ready := false
	_ = onDescriptor(f, func(fd int) { // a closed one takes nothing
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := ignoringEINTR(func() (int, error) { return unix.Poll(fds, 0) })
		ready = err == nil && n == 1 && fds[0].Revents&unix.POLLOUT != 0
	})
	return ready
}

// isTerminal reports whether f is a terminal; see [onDescriptor].
func isTerminal(f *os.File) bool {
	is := false
	err := onDescriptor(f, func(fd int) { is = isTerminalFD(fd) })
	return is && err == nil
}

func isTerminalFD(fd int) bool {
	_, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	return err == nil
}

// kernelRelease is the release of the running kernel, "" when nobody says.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
