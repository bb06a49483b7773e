package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// TestSayToAStuckTerminal: a terminal that takes nothing does not keep wall from ending.
func TestSayToAStuckTerminal(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	// Not closed at the end: that would wait for the write that goes on.
	t.Cleanup(func() { master.Close() })
	said := make(chan struct{})
	go func() {
		defer close(said)
		printWarning(slave, strings.Repeat("x", 1<<20))
		printWarning(slave, "and more")
	}()
	select {
	case <-said:
	case <-time.After(time.Minute):
		t.Error("wall waits for a terminal that takes nothing")
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

// TestTerminalIsRestored has the command leave its terminal in disorder.
func TestTerminalIsRestored(t *testing.T) {
	need(t, "userns", "landlock:1", "seccomp", "tool:python3")
	const mess = `import fcntl, os, struct, sys, termios, tty
tty.setraw(0)
fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 7, 90, 1, 2))
fcntl.ioctl(0, termios.TIOCEXCL)
os.write(1, b"ready")
termios.tcflow(1, termios.TCOOFF)
`
	for _, tt := range []struct {
		name   string
		script string
		flags  []string
		term   bool
		status int
	}{
		{"exit", "", nil, false, 0},
		{"nothing changed", "import os; os.write(1, b'ready')", nil, false, 0},
		{"failure", "sys.exit(3)", nil, false, 3},
		{"killed", "os.kill(os.getpid(), 9)", nil, false, 137},
		{"no result", "os.makedirs('out.json/full')", []string{"--json", "out.json"}, false, 125},
		{"SIGTERM to wall", "import time; time.sleep(600)", nil, true, 143},
		{"without walls", "", []string{"--enforce", "off"}, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(realTemp(t))
			master, slave, err := pty.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			defer slave.Close()
			fd := 0
			if err := onDescriptor(slave, func(n int) { fd = n }); err != nil {
				t.Fatal(err)
			}
			if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77, Xpixel: 5, Ypixel: 6}); err != nil {
				t.Fatal(err)
			}
			before, ok := readTerminal(fd)
			if !ok {
				t.Fatal("no terminal")
			}
			script := mess + tt.script
			if tt.name == "nothing changed" {
				script = tt.script
			}
			if tt.term {
				go func() {
					buf := make([]byte, 100)
					if n, err := master.Read(buf); err == nil && strings.Contains(string(buf[:n]), "ready") {
						time.Sleep(100 * time.Millisecond)
						_ = unix.Kill(os.Getpid(), unix.SIGTERM)
					}
				}()
			}
			args := append([]string{"run", "--scratch-root", realTemp(t), "--tty", "inherit"}, tt.flags...)
			var errs *os.File
			if errs, err = os.Create(filepath.Join(realTemp(t), "err")); err != nil {
				t.Fatal(err)
			}
			defer errs.Close()
			status := launch(append(args, "--", "python3", "-c", script), streams{slave, slave, errs})
			if status != tt.status {
				text, _ := os.ReadFile(errs.Name())
				t.Errorf("status %d, want %d\n%s", status, tt.status, text)
			}
			if after, _ := readTerminal(fd); after != before {
				t.Errorf("the terminal was\n%+v\nand is\n%+v", before, after)
			}
			written := make(chan error, 1)
			go func() {
				_, err := slave.WriteString("done")
				written <- err
			}()
			select {
			case err := <-written:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("output is held back")
			}
		})
	}
}

func TestPlausibleWindow(t *testing.T) {
	for size, want := range map[unix.Winsize]bool{
		{Row: 24, Col: 80}: true, {Row: 80, Col: 24}: true, {Row: 1, Col: 80}: false, {}: false, {Row: 24, Col: 60000}: false,
	} {
		if plausible(size) != want {
			t.Errorf("%+v: %v", size, !want)
		}
	}
}
