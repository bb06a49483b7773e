package main

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Windows with at least and at most this many rows and columns may be real.
const (
	minWindow = 4
	maxWindow = 1000
)

// A terminalState is how one terminal was before the command ran. The command
// has the descriptor and can change all of it, whatever session it is in.
type terminalState struct {
	fd         int
	discipline int
	termios    unix.Termios
	size       unix.Winsize
	exclusive  bool
	foreground bool // wall's process group is its foreground
}

// saveTerminals notes the state of the terminals among the standard streams, each
// once. What is not a terminal, or cannot be asked, is left out.
func saveTerminals(s streams) []terminalState {
	var states []terminalState
	var seen []uint64
	for _, f := range []*os.File{s.in, s.out, s.err} {
		_ = onDescriptor(f, func(fd int) { // a closed stream is no terminal
			var st unix.Stat_t
			if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || slices.Contains(seen, uint64(st.Rdev)) {
				return
			}
			if t, ok := readTerminal(fd); ok {
				seen = append(seen, uint64(st.Rdev))
				states = append(states, t)
			}
		})
	}
	return states
}

func readTerminal(fd int) (t terminalState, ok bool) {
	termios, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return t, false
	}
	t = terminalState{fd: fd, termios: *termios}
	if size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
		t.size = *size
	}
	t.discipline, _ = unix.IoctlGetInt(fd, unix.TIOCGETD) // N_TTY is 0
	exclusive, err := unix.IoctlGetInt(fd, unix.TIOCGEXCL)
	t.exclusive = err == nil && exclusive != 0
	t.foreground = inForeground(fd)
	return t, true
}

// restoreTerminals puts back what differs. The descriptors are still open: they
// are wall's own streams.
//
// It goes on in the background, too, where a change of the terminal stops a process
// by SIGTTOU unless that is blocked (termios(3)).
func restoreTerminals(states []terminalState) {
	if len(states) == 0 {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var block, old unix.Sigset_t
	block.Val[0] = 1 << (unix.SIGTTOU - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &block, &old) == nil {
		defer unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
	}
	for _, was := range states {
		was.restore()
	}
}

// restore puts one terminal back. A failure is nothing that wall could act on: the
// terminal has been hung up.
func (was terminalState) restore() {
	is, ok := readTerminal(was.fd)
	if !ok {
		return
	}
	if is.discipline != was.discipline {
		_ = unix.IoctlSetPointerInt(was.fd, unix.TIOCSETD, was.discipline)
		if is, ok = readTerminal(was.fd); !ok {
			return
		}
	}
	if is.exclusive != was.exclusive {
		request := uint(unix.TIOCNXCL)
		if was.exclusive {
			request = unix.TIOCEXCL
		}
		_ = unix.IoctlSetInt(was.fd, request, 0)
	}
	if is.termios != was.termios {
		_ = unix.IoctlSetTermios(was.fd, unix.TCSETS, &was.termios)
	}
	if is.size != was.size && !(inForeground(was.fd) && plausible(is.size)) {
		_ = unix.IoctlSetWinsize(was.fd, unix.TIOCSWINSZ, &was.size)
	}
	if was.foreground && !is.foreground {
		was.giveFront()
	}
	// tcflow(3): there is no asking whether output is held, and none of ours
	// would come through. This has no effect when it is not.
	_ = unix.IoctlSetInt(was.fd, unix.TCXONC, unix.TCOON)
}

// giveFront makes wall's process group the foreground again where a group of the
// command was left there, as by a shell that was killed. A group that still has
// processes is left: it is the shell's that put wall into the background.
func (was terminalState) giveFront() {
	group, err := unix.IoctlGetInt(was.fd, unix.TIOCGPGRP)
	if err == nil && group > 0 && unix.Kill(-group, 0) == unix.ESRCH {
		_ = unix.IoctlSetPointerInt(was.fd, unix.TIOCSPGRP, unix.Getpgrp())
	}
}

// plausible reports whether somebody may have resized a window to this size. The
// kernel does not tell a resize by the terminal from one by the command. Where
// somebody works at the terminal, taking their new size away would be worse
// than leaving one that the next resize corrects.
func plausible(size unix.Winsize) bool {
	return min(size.Row, size.Col) >= minWindow && max(size.Row, size.Col) <= maxWindow
}

// inForeground reports whether wall is what runs in the foreground of a terminal.
func inForeground(fd int) bool {
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// suspend stops this process, and the others of its process group, as Ctrl-Z
// would have: the terminal was in raw mode, so that nobody has sent them the
// signal. False means that wall cannot be stopped, because its caller ignores
// the signal or nobody would continue it.
func (r *relay) suspend(s syscall.Signal) bool {
	if s == unix.SIGSTOP {
		s = unix.SIGTSTP
	}
	if signal.Ignored(s) || orphaned() {
		return false
	}
	select {
	case <-r.continued: // from before
	default:
	}
	var old sigaction
	if setDefault(s, &old) != nil {
		return false
	}
	defer func() { _ = setAction(s, &old, nil) }()
	// One signal for the whole group, so that whoever continues it finds it either
	// stopped or about to be, and the kernel takes back what has not stopped yet. A
	// shell may do that as soon as it sees one process of the job stop. It stops this
	// process at some time after the call, so that the end is what SIGCONT tells.
	if unix.Kill(0, s) != nil {
		return false
	}
	// A signal that is blocked stops nobody. The clock goes on while this process is
	// stopped, and may be heard of before SIGCONT is, once.
	for range 2 {
		select {
		case <-r.continued:
			return true
		case <-time.After(stopsWithin):
		}
	}
	return false
}

// stopsWithin is how long a signal may take to stop a process.
const stopsWithin = 3 * time.Second

// A sigaction is the kernel's struct sigaction (asm-generic/signal-defs.h; the
// same on amd64).
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// setAction changes what a signal does, behind the back of package os/signal,
// which cannot bring back the default of a signal that it has handled.
func setAction(s syscall.Signal, act, old *sigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(act.mask), 0, 0)
	if errno != 0 {
		return os.NewSyscallError("rt_sigaction", errno)
	}
	return nil
}

func setDefault(s syscall.Signal, old *sigaction) error { return setAction(s, &sigaction{}, old) }

// orphaned reports whether nobody watches over wall's process group: no parent of
// its processes is another job's in the same session, as a shell is (setpgid(2)).
// The kernel discards the signals of a terminal that would stop such a group. Only the parents
// from wall on are looked at; where /proc does not show them, nobody watches.
func orphaned() bool {
	own, ok := readStat(os.Getpid())
	for p := own; ok && p.parent > 0; {
		if p, ok = readStat(p.parent); ok && p.group != own.group {
			return p.session != own.session
		}
	}
	return true
}

// A procStat is what proc_pid_stat(5) tells of a process's place.
type procStat struct{ parent, group, session int }

func readStat(pid int) (s procStat, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return s, false
	}
	return parseStat(string(text))
}

// parseStat reads the fields behind the name, which may hold anything.
func parseStat(text string) (s procStat, ok bool) {
	i := strings.LastIndexByte(text, ')')
	if i < 0 {
		return s, false
	}
	f := strings.Fields(text[i+1:])
	if len(f) < 4 {
		return s, false
	}
	var errs [3]error
	s.parent, errs[0] = strconv.Atoi(f[1])
	s.group, errs[1] = strconv.Atoi(f[2])
	s.session, errs[2] = strconv.Atoi(f[3])
	return s, errors.Join(errs[:]...) == nil
}
