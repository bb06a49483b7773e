package seccomp

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// Install puts the filter p on the calling thread, for good: it cannot be
// removed, and everything the thread forks or executes has it too. Other
// threads of the process do not get it (no SECCOMP_FILTER_FLAG_TSYNC): pid 1 of
// a box keeps running without, and only the command is filtered.
//
// The goroutine must be locked to its thread and that thread never given back.
// no_new_privs must be set: the kernel asks for it (or for CAP_SYS_ADMIN, which
// is not accepted here), because a set-user-ID program under a filter could be
// made to misbehave. The error then is a plan.Error matching unix.EACCES; one
// of the system call is an *os.SyscallError.
func Install(p Program) error {
	if err := p.Validate(); err != nil {
		return err
	}
	nnp, err := prctlGet(unix.PR_GET_NO_NEW_PRIVS)
	if err != nil {
		return err
	}
	if nnp != 1 {
		return &plan.Error{
			Op:  "cannot install the system call filter: no_new_privs is not set on this thread",
			Err: unix.EACCES,
		}
	}
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	return setModeFilter(&prog)
}

// Mode reads back the seccomp mode of the calling thread:
// unix.SECCOMP_MODE_DISABLED (0) or unix.SECCOMP_MODE_FILTER (2). In strict mode (1)
// the kernel kills the caller instead of answering (PR_GET_SECCOMP(2const)).
func Mode() (int, error) {
	return prctlGet(unix.PR_GET_SECCOMP)
}

// Probe reports whether this kernel can install a filter and can kill a whole
// process from one (Linux 4.14). It asks by trying with a null program, which
// the kernel refuses only after everything else was found to be in order, and
// changes nothing. An answer that is neither yes nor no, such as EPERM under
// another sandbox's filter, is an error.
func Probe() (bool, error) {
	err := setModeFilter(nil)
	switch {
	case errors.Is(err, unix.EFAULT):
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL):
		return false, nil
	case err == nil:
		return false, fmt.Errorf("wall bug: the kernel took a null system call filter")
	default:
		return false, err
	}
	err = actionAvail(unix.SECCOMP_RET_KILL_PROCESS)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
		return false, nil
	}
	return false, err
}

// setModeFilter is seccomp(SECCOMP_SET_MODE_FILTER) without flags. Without
// SECCOMP_FILTER_FLAG_SPEC_ALLOW kernels before 5.16 also turn on the
// speculative store bypass mitigation, which is wanted here.
func setModeFilter(prog *unix.SockFprog) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(prog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}

// actionAvail is seccomp(SECCOMP_GET_ACTION_AVAIL).
func actionAvail(action uint32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	runtime.KeepAlive(&action)
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}

// prctlGet is a prctl(2) option without arguments that returns a number.
func prctlGet(option int) (int, error) {
	v, err := unix.PrctlRetInt(option, 0, 0, 0, 0)
	if err != nil {
		return 0, os.NewSyscallError("prctl", err)
	}
	return v, nil
}
