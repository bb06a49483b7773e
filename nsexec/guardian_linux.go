package nsexec

import (
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// guardianName is argv[0] of the process that restores the caller's terminal, and its
// name in ps(1). Not one with the program's name in it: pkill(1) of that would end both.
const guardianName = "terminal-guard"

// A guardian is a process that restores the caller's terminal when this one dies
// while it has taken it: by SIGKILL, say, or a panic of any goroutine. It is this program
// again, outside of the box, with the terminal and the read end of a pipe and nothing
// else, and ends when the pipe does.
//
// It has a process group of its own, so that neither the terminal nor the caller's
// shell signals it with this process: what kills or stops the job leaves it alone, and
// the shell does not see it. Should somebody stop it, the kernel continues it when this
// process dies: its group is an orphaned one then, see setpgid(2). It stays in the session, since the kernel tells the
// foreground of a terminal there only.
type guardian struct {
	pid, pidfd int

	mu sync.Mutex
	w  int // the pipe; -1 after
}

// What a guardian is told, one byte each: the terminal is to be restored when this
// process dies from here on, or not to be.
const (
	guardTaken byte = 1
	guardLeft  byte = 0
)

// A guardOrder is what a guardian is told first. Both sides are the same binary.
type guardOrder struct {
	saved, raw unix.Termios
	groups     [3]int32 // that may be in the foreground when it acts
}

func (o *guardOrder) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(o)), unsafe.Sizeof(*o))
}

// startGuardian starts one for the terminal fd.
func startGuardian(fd int, order guardOrder) (*guardian, error) {
	failed := func(err error) error {
		return &plan.Error{Op: "cannot start the process that restores the terminal should this one be killed", Err: err}
	}
	r, w, err := pipe()
	if err != nil {
		return nil, failed(err)
	}
	defer unix.Close(r)
	if err := unix.SetNonblock(w, true); err != nil { // whoever stops it must not stop us
		unix.Close(w)
		return nil, failed(os.NewSyscallError("fcntl", err))
	}
	// This process, whoever started it, and the shell of the session: see mayRestore.
	for i, pid := range []int{0, os.Getppid()} {
		if group, err := unix.Getpgid(pid); err == nil && (i == 0 || pid > 0) {
			order.groups[i] = int32(group)
		}
	}
	if session, err := unix.Getsid(0); err == nil {
		order.groups[2] = int32(session)
	}
	g := &guardian{pidfd: -1, w: w}
	g.pid, err = syscall.ForkExec("/proc/self/exe", []string{guardianName}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []uintptr{uintptr(fd), uintptr(r), uintptr(r)}, // the Go runtime wants three, and /dev/null for one that lacks
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &g.pidfd},
	})
	if err == nil {
		if err = writeAll(w, order.bytes()); err != nil {
			g.dismiss()
		}
	} else {
		unix.Close(w)
	}
	if err != nil {
		return nil, failed(err)
	}
	return g, nil
}

// tell changes what the guardian is to do. It fails when somebody has killed the
// guardian, and then there is nothing to be done about that.
func (g *guardian) tell(what byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.w >= 0 {
		_ = writeAll(g.w, []byte{what})
	}
}

// dismiss ends the guardian; the terminal has been restored. A signal ends it also when
// somebody has stopped it.
func (g *guardian) dismiss() {
	if g.pidfd >= 0 {
		_ = unix.PidfdSendSignal(g.pidfd, unix.SIGKILL, nil, 0)
		unix.Close(g.pidfd)
	}
	g.mu.Lock()
	unix.Close(g.w)
	g.w = -1
	g.mu.Unlock()
	var ws unix.WaitStatus
	_ = retry(func() error { _, err := unix.Wait4(g.pid, &ws, 0, nil); return err })
}

// guardianMain is the guardian: the terminal is its standard input, the pipe its
// standard output.
func guardianMain() {
	if guardTerminal() != nil {
		leave(plan.ExitFailed)
	}
	leave(0)
}

func guardTerminal() error {
	// First, while the main goroutine is certain to be on the thread that has the
	// name of the process.
	if err := prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(guardianName+"\x00"))), 0); err != nil {
		return err
	}
	if err := prctl(unix.PR_SET_DUMPABLE, 0, 0); err != nil {
		return err
	}
	if err := closeInherited(); err != nil {
		return err
	}
	if err := ignoreSignals(); err != nil { // it ends when the pipe does
		return err
	}
	// All that takes time is done before it waits: the caller's shell hears of the death
	// right after, and may look at the terminal.
	return withoutTTOU(func() error {
		var order guardOrder
		launcher := fdReader(1)
		if _, err := io.ReadFull(launcher, order.bytes()); err != nil {
			return nil // it died before it took anything
		}
		state := guardLeft
		for buf := make([]byte, 64); ; {
			n, err := launcher.Read(buf)
			if err != nil {
				break
			}
			state = buf[n-1]
		}
		// The modes last, right before they are set: the kernel has nothing that
		// compares and sets in one.
		if state != guardTaken || !order.mayRestore() || !order.unchanged() {
			return nil
		}
		return retry(func() error { return unix.IoctlSetTermios(0, unix.TCSETS, &order.saved) })
	})
}

// unchanged reports whether the terminal is as the launcher left it. Whoever has
// changed it since knows what modes it is to have.
func (o *guardOrder) unchanged() bool {
	is, err := unix.IoctlGetTermios(0, unix.TCGETS)
	return err == nil && is.Iflag == o.raw.Iflag && is.Oflag == o.raw.Oflag && is.Lflag == o.raw.Lflag && is.Cc == o.raw.Cc // speeds and the like are the driver's to round
}

// mayRestore reports whether nobody else has the terminal in the foreground now, who
// knows what modes it is to have: another job, or another launcher, whose modes are
// the same.
func (o *guardOrder) mayRestore() bool {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	if err != nil || group <= 0 {
		return true // nobody's controlling terminal, or not this session's
	}
	return slices.Contains(o.groups[:], int32(group)) || unix.Kill(-group, 0) == unix.ESRCH
}

// closeInherited closes what the launcher's caller had open, without O_CLOEXEC: a
// reader would wait for this process to end. The descriptors of the Go runtime have it.
func closeInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < firstFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
	return nil
}
