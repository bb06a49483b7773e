package main

import (
	"os"
	"runtime"
	"slices"

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
	// tcflow(3): there is no asking whether output is held, and none of ours
	// would come through. This has no effect when it is not.
	_ = unix.IoctlSetInt(was.fd, unix.TCXONC, unix.TCOON)
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
