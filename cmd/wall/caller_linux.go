package main

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A caller is the process that started wall, held by a descriptor so that
// another process with its number is never taken for it.
type caller struct{ pidfd int }

// openCaller takes hold of the parent process. It fails when that has died
// already: then wall has been adopted by another process.
func openCaller() (*caller, error) {
	fail := func(err error) error {
		return &plan.Error{Op: "cannot watch the process that started wall", Origin: flagOrigin("--die-with-caller"), Err: err}
	}
	pid := os.Getppid()
	if pid == 0 {
		return nil, fail(unix.ESRCH) // it is outside of our pid namespace
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fail(os.NewSyscallError("pidfd_open", err))
	}
	if os.Getppid() != pid {
		unix.Close(fd)
		return nil, fail(unix.ESRCH)
	}
	return &caller{fd}, nil
}

// onDeath calls f when the process has died. It is not the thread that
// started wall whose death counts, as with PR_SET_PDEATHSIG, but the process.
func (c *caller) onDeath(f func()) {
	go func() {
		fds := []unix.PollFd{{Fd: int32(c.pidfd), Events: unix.POLLIN}}
		for {
			switch _, err := unix.Poll(fds, -1); err {
			case unix.EINTR:
			default:
				f() // also when it cannot be watched any more
				return
			}
		}
	}()
}
