package main

import (
	"encoding/json"
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A statusFD is the descriptor of --status-fd: one JSON object per line. The
// zero value is not usable; use noStatus when the flag was not given.
type statusFD int

// noStatus writes nothing.
const noStatus statusFD = -1

// openStatus checks that fd, from --status-fd, can be written to, and makes sure
// that no program wall starts gets it.
func openStatus(fd int) (statusFD, error) {
	fail := func(err error) error {
		return &plan.Error{
			Op:     "cannot report on descriptor " + strconv.Itoa(fd),
			Origin: flagOrigin("--status-fd " + strconv.Itoa(fd)),
			Hint:   "open it for writing in the shell, for example 3>status.jsonl",
			Err:    err,
		}
	}
	if !inherited(fd) {
		return noStatus, fail(errNotOpen)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return noStatus, fail(err)
	}
	if flags&unix.O_PATH != 0 || flags&unix.O_ACCMODE == unix.O_RDONLY {
		return noStatus, fail(errors.New("it is not open for writing"))
	}
	unix.CloseOnExec(fd)
	return statusFD(fd), nil
}

// send writes one line. Lines are shorter than PIPE_BUF, except for long errors.
func (s statusFD) send(e event) error {
	if s == noStatus {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	for len(line) > 0 {
		n, err := unix.Write(int(s), line)
		switch err {
		case nil:
			line = line[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			// The caller made it non-blocking, and the flag is shared with the
			// caller, so it stays.
			fds := []unix.PollFd{{Fd: int32(s), Events: unix.POLLOUT}}
			if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
				return os.NewSyscallError("poll", err)
			}
		default:
			return os.NewSyscallError("write", err)
		}
	}
	return nil
}
