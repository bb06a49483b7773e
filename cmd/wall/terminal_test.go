package main

import (
	"os"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

func TestIsTerminal(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer slave.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if !isTerminal(slave) || isTerminal(r) {
		t.Errorf("terminal %v, pipe %v", isTerminal(slave), isTerminal(r))
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if !colours(slave) || colours(r) {
		t.Errorf("colours: terminal %v, pipe %v", colours(slave), colours(r))
	}
	t.Setenv("TERM", "dumb")
	if colours(slave) {
		t.Error("colours on a dumb terminal")
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	if colours(slave) {
		t.Error("colours in spite of NO_COLOR")
	}
}

// TestFlagsOfStreamsStay: O_NONBLOCK belongs to the open file, which the caller
// shares; wall must neither set nor clear it.
func TestFlagsOfStreamsStay(t *testing.T) {
	need(t, "userns", "landlock:1", "seccomp")
	t.Chdir(realTemp(t))
	for _, nonblock := range []bool{false, true} {
		var fds [2]int
		if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		if err := unix.SetNonblock(fds[0], nonblock); err != nil {
			t.Fatal(err)
		}
		// As os.Stdin is made.
		in := os.NewFile(uintptr(fds[0]), "in")
		out := os.NewFile(uintptr(fds[1]), "out")
		if status := launch([]string{"run", "--scratch-root", realTemp(t), "--", "true"}, streams{in, out, out}); status != 0 {
			t.Errorf("status %d", status)
		}
		flags, err := unix.FcntlInt(uintptr(fds[0]), unix.F_GETFL, 0)
		if err != nil || (flags&unix.O_NONBLOCK != 0) != nonblock {
			t.Errorf("flags %#x, %v; O_NONBLOCK was %v", flags, err, nonblock)
		}
		in.Close()
		out.Close()
	}
}
