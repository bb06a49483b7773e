package nsexec

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// terminal makes the private terminal of the box, in its own devpts, so that its
// name leads to it inside. The master goes to stage 1 and is closed here before
// the command exists: nothing inside can get hold of it.
//
// pid 1 leads the session, as a shell would: the command, a child in the same
// session, is then no orphaned process group, in which the kernel discards the
// signals that stop (setpgid(2), POSIX), so that Ctrl-Z works.
func (s *stage2) terminal() error {
	s.tty = -1
	if s.p.TTY != plan.TTYPrivate {
		return nil
	}
	fail := func(call string, err error) error {
		return &plan.Error{Op: "cannot make a terminal for the box", Err: os.NewSyscallError(call, err), Hint: "run it without one: --tty none"}
	}
	const name = "/dev/pts/ptmx"
	master, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("open "+name, err)
	}
	defer unix.Close(master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return fail("ioctl TIOCSPTLCK", err)
	}
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return fail("ioctl TIOCGPTPEER", errno)
	}
	s.tty = int(slave)
	if err := unix.IoctlSetInt(s.tty, unix.TIOCSCTTY, 0); err != nil {
		return fail("ioctl TIOCSCTTY", err)
	}
	defer unix.Close(s.ttyFD())
	if err := sendMessage(s.ttyFD(), 0, []int{master}); err != nil {
		return fail("sendmsg", err)
	}
	// Stage 1 sets modes and size before it answers, so that they are right from
	// the command's first look.
	answer := make([]byte, 1)
	var n int
	err = retry(func() (err error) { n, err = unix.Read(s.ttyFD(), answer); return err })
	switch {
	case err != nil:
		return fail("read", err)
	case n == 0:
		return &plan.Error{Op: "cannot make a terminal for the box", Err: errors.New("the launcher did not take it")}
	}
	s.front = answer[0] == orderForeground
	return nil
}

// onTTY makes attr start the command on the private terminal, in a process group
// of its own.
func (s *stage2) onTTY(attr *syscall.ProcAttr) {
	for i, d := range s.p.Stdio {
		if d.Kind == plan.StdioTTY {
			attr.Files[i] = uintptr(s.tty)
		}
	}
	attr.Sys = &syscall.SysProcAttr{Setpgid: true, Foreground: s.front, Ctty: s.tty}
}

// stops has the wait calls see stops too, where the command has a private terminal.
func (s *stage2) stops() int {
	if s.tty >= 0 {
		return unix.WSTOPPED
	}
	return 0
}

// awaitJob is wait4(2). With a private terminal, a stop of the command is told in one with
// learning of it, so that no order to go on comes between.
func (s *stage2) awaitJob(pid int, ws *unix.WaitStatus) (n int, err error) {
	if s.tty < 0 {
		return unix.Wait4(-1, ws, 0, nil)
	}
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		return 0, err
	}
	s.job.Lock()
	defer s.job.Unlock()
	// It may have been continued since.
	n, err = unix.Wait4(-1, ws, unix.WUNTRACED|unix.WNOHANG, nil)
	if err == nil && n == pid && ws.Stopped() {
		s.stop(ws.StopSignal())
	}
	return n, err
}

// stop tells stage 1 that the command has stopped, and not again before stage 1
// has had it go on; job is held.
func (s *stage2) stop(sig syscall.Signal) {
	if s.stopped {
		return
	}
	s.stopped = true
	if writeAll(s.statusFD(), message(msgStopped, []byte{byte(sig), s.orders})) != nil {
		leave(plan.ExitFailed) // the launcher is gone
	}
}

// goOn has the command continue, in the foreground of its terminal or not. A job
// that the command itself has put there stays.
func (s *stage2) goOn(front bool) {
	s.job.Lock()
	defer s.job.Unlock()
	s.orders++
	pid := int(s.command.Load())
	if pid == 0 || s.tty < 0 {
		return
	}
	own := unix.Getpgrp()
	group, err := unix.IoctlGetInt(s.tty, unix.TIOCGPGRP)
	switch {
	case err != nil:
	case front && (group <= own || unix.Kill(-group, 0) == unix.ESRCH):
		s.setFront(pid)
	case !front && group == pid:
		s.setFront(own)
	}
	s.stopped = false
	if unix.Kill(-pid, unix.SIGCONT) != nil {
		_ = unix.Kill(pid, unix.SIGCONT) // it may have ended already
	}
}

// setFront makes a process group the foreground one. It fails when the group is
// gone, or the terminal: then nobody is left whom it would matter to.
func (s *stage2) setFront(group int) {
	_ = withoutTTOU(func() error { return unix.IoctlSetPointerInt(s.tty, unix.TIOCSPGRP, group) })
}

// hangUp sends SIGHUP to the foreground of the private terminal, where that is
// not the command itself. The kernel sends it to the leader of the session only,
// which is pid 1.
func (s *stage2) hangUp(pid int) {
	if s.tty < 0 {
		return
	}
	group, err := unix.IoctlGetInt(s.tty, unix.TIOCGPGRP)
	if err == nil && group > unix.Getpgrp() && group != pid {
		_ = unix.Kill(-group, unix.SIGHUP)
		_ = unix.Kill(-group, unix.SIGCONT)
	}
}
