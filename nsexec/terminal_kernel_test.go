package nsexec

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// ttyPlan is testPlan with a private terminal.
func ttyPlan(t *testing.T, argv ...string) plan.Plan {
	p := testPlan(t, argv...)
	at := slices.IndexFunc(p.Mounts, func(m plan.Mount) bool { return m.Op == plan.OpSymlink })
	p.Mounts = slices.Insert(p.Mounts, at, plan.Mount{Op: plan.OpDevpts, Target: "/dev/pts", MakeAs: plan.TypeDir})
	p.TTY = plan.TTYPrivate
	return p
}

// openTTY gives a terminal, and a function for its modes. The terminal is nobody's controlling one.
func openTTY(t *testing.T) (master, slave *os.File, modes func() unix.Termios) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	if err := pty.Setsize(slave, &pty.Winsize{Rows: 21, Cols: 43}); err != nil {
		t.Fatal(err)
	}
	fd := int(slave.Fd())
	return master, slave, func() unix.Termios {
		m, err := unix.IoctlGetTermios(fd, unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *m
	}
}

// readUntil reads from a terminal until the text comes.
func readUntil(t *testing.T, master *os.File, text string) string {
	t.Helper()
	var all []byte
	buf := make([]byte, 4096)
	for !bytes.Contains(all, []byte(text)) {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatalf("%v; no %q in %q", err, text, all)
		}
		all = append(all, buf[:n]...)
	}
	return string(all)
}

// TestTTYOfAProgram: what a program that uses the package gets.
func TestTTYOfAProgram(t *testing.T) {
	master, slave, modes := openTTY(t)
	before := modes()
	c := Command(ttyPlan(t, sh(`stty size; read x; echo "<$x>"; kill -STOP $$; echo "again"; stty size; exit 3`)...))
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	var stopped []syscall.Signal
	c.Suspend = func(s syscall.Signal) bool {
		stopped = append(stopped, s)
		if modes() != before {
			t.Error("the terminal is not as it was while the command is stopped")
		}
		if err := pty.Setsize(slave, &pty.Winsize{Rows: 7, Cols: 9}); err != nil {
			t.Error(err)
		}
		return true
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if modes() == before {
		t.Error("not raw")
	}
	guard := c.term.guardian.Load().pid
	if _, err := io.WriteString(master, "typed\n"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	got := readUntil(t, master, "7 9\r\n")
	if got != "21 43\r\ntyped\r\n<typed>\r\nagain\r\n7 9\r\n" && got != "typed\r\n21 43\r\n<typed>\r\nagain\r\n7 9\r\n" {
		t.Errorf("%q", got)
	}
	if err := <-done; err == nil || c.Result().ExitCode != 3 {
		t.Errorf("%v, %+v", err, c.Result())
	}
	if !slices.Equal(stopped, []syscall.Signal{unix.SIGSTOP}) {
		t.Errorf("suspended by %v", stopped)
	}
	if modes() != before {
		t.Error("the terminal is not as it was")
	}
	if err := unix.Kill(guard, 0); err != unix.ESRCH {
		t.Errorf("the guardian is still there, or a zombie: %v", err)
	}
	c.RestoreTerminal() // has nothing to do, and must not mind
	_ = c.Signal(unix.SIGWINCH)
}

// TestTTYStopWithoutSuspend: where nobody can stop the program the command goes on.
func TestTTYStopWithoutSuspend(t *testing.T) {
	master, slave, _ := openTTY(t)
	c := Command(ttyPlan(t, sh(`for i in 1 2 3; do kill -TSTP $$; done; echo over`)...))
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	readUntil(t, master, "over")
}

// TestTTYRefused: a private terminal needs one to connect with, and what fails
// after it was taken gives it back.
func TestTTYRefused(t *testing.T) {
	c := Command(ttyPlan(t, sh("exit 0")...))
	if err := c.Run(); err == nil || !strings.Contains(err.Error(), "standard input is no terminal") {
		t.Errorf("%v", err)
	}
	_, slave, modes := openTTY(t)
	before := modes()
	p := ttyPlan(t, sh("exit 0")...)
	p.Profile = "fail:execve"
	c = Command(p)
	c.Stdin, c.Stdout = slave, slave
	if err := c.Run(); err == nil || !strings.Contains(err.Error(), "step execve") {
		t.Errorf("%v", err)
	}
	if modes() != before {
		t.Error("the terminal is not as it was")
	}
}

// TestTTYOutputStuck: a terminal that takes no output holds Wait up, until a
// signal asks to end.
func TestTTYOutputStuck(t *testing.T) {
	_, slave, _ := openTTY(t)
	c := Command(ttyPlan(t, sh("yes | head -c 100000")...))
	c.Stdin, c.Stdout = slave, slave
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case <-done:
			return
		default:
		}
		_ = c.Signal(unix.SIGTERM)
	}
}

// TestTTYPanic: a mistake of wall's own leaves the terminal as it was, too.
func TestTTYPanic(t *testing.T) {
	const helper = "WALL_TEST_TTY_PANIC"
	if os.Getenv(helper) != "" {
		testOnlyRelayHook = func(b []byte) {
			switch {
			case bytes.Contains(b, []byte("!")):
				panic("by the test")
			case bytes.Contains(b, []byte("?")): // where nothing gives the terminal back
				go panic("by the test")
				select {}
			}
		}
		c := Command(ttyPlan(t, sh("echo ready; exec sleep 1000")...))
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stdout
		_ = c.Run() // does not come back
		return
	}
	need(t, "userns", "landlock")
	for _, tt := range []struct{ name, key, traceback string }{
		{"of a copier", "!", "single"},
		{"of another goroutine", "?", "single"},
		{"that ends by SIGABRT", "?", "crash"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			master, slave, modes := openTTY(t)
			before := modes()
			var errs bytes.Buffer
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestTTYPanic$")
			cmd.Dir = t.TempDir() // for a core dump
			cmd.Env = append(os.Environ(), helper+"=1", "TMPDIR="+t.TempDir(), "GOTRACEBACK="+tt.traceback)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			readUntil(t, master, "ready")
			if modes() == before {
				t.Error("not raw")
			}
			if _, err := io.WriteString(master, tt.key); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err == nil || !strings.Contains(errs.String(), "panic: by the test") {
				t.Errorf("%v\n%s", err, errs.String())
			}
			// The guardian hears of the death when we do.
			for start := time.Now(); modes() != before; time.Sleep(5 * time.Millisecond) {
				if time.Since(start) > time.Minute {
					t.Fatal("the terminal is not as it was")
				}
			}
		})
	}
}

// TestTTYGuardianLeaves: what somebody else made of the terminal stays when the launcher
// is killed. The terminal is nobody's controlling one, so that no foreground tells.
func TestTTYGuardianLeaves(t *testing.T) {
	const helper = "WALL_TEST_TTY_LEAVES"
	if what := os.Getenv(helper); what != "" {
		c := Command(ttyPlan(t, sh("echo ready; read x; kill -STOP $$; exec sleep 1000")...))
		c.Stdin, c.Stdout = os.Stdin, os.Stdout
		die := func(change func(*unix.Termios)) {
			m := c.term.rawModes()
			change(&m)
			if err := unix.IoctlSetTermios(0, unix.TCSETS, &m); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stderr.WriteString(strconv.Itoa(c.term.guardian.Load().pid)); err != nil {
				t.Fatal(err)
			}
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
		c.Suspend = func(syscall.Signal) bool {
			die(func(*unix.Termios) {})
			return true
		}
		if what == "other modes" {
			testOnlyRelayHook = func([]byte) { die(func(m *unix.Termios) { m.Lflag |= unix.ECHO }) }
		}
		_ = c.Run() // does not come back
		return
	}
	need(t, "userns", "landlock")
	for _, tt := range []struct {
		name string
		echo bool
	}{
		{"other modes", true},
		{"the same modes in a stop", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			master, slave, modes := openTTY(t)
			before := modes()
			var errs bytes.Buffer
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestTTYGuardianLeaves$")
			cmd.Env = append(os.Environ(), helper+"="+tt.name, "TMPDIR="+t.TempDir())
			cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			readUntil(t, master, "ready")
			if _, err := io.WriteString(master, "x\r"); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // it was killed
			guard, err := strconv.Atoi(errs.String())
			if err != nil {
				t.Fatal(err)
			}
			for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
				text, err := os.ReadFile("/proc/" + strconv.Itoa(guard) + "/stat")
				if err != nil || !strings.Contains(string(text), "("+guardianName+") S") && !strings.Contains(string(text), "("+guardianName+") R") {
					break
				}
				if time.Since(start) > time.Minute {
					t.Fatal("the guardian is still there")
				}
			}
			after := modes()
			if after.Lflag&unix.ICANON != 0 || (after.Lflag&unix.ECHO != 0) != tt.echo {
				t.Errorf("modes %+v, were %+v before", after, before)
			}
		})
	}
}

// TestTTYStuck: a terminal that takes nothing keeps no limit, signal or stop from what
// it does, by whichever way the output comes to it.
func TestTTYStuck(t *testing.T) {
	for _, tty := range []plan.TTY{plan.TTYPrivate, plan.TTYNone} {
		for _, tt := range []struct {
			name string
			do   func(*testing.T, *Cmd)
			is   func(Result) bool
		}{
			{"time", nil, func(r Result) bool { return r.TimedOut }},
			{"signal", func(t *testing.T, c *Cmd) {
				if err := c.Signal(unix.SIGTERM); err != nil {
					t.Error(err)
				}
			}, func(r Result) bool { return r.Signal == unix.SIGTERM }},
			{"kill", func(t *testing.T, c *Cmd) {
				if err := c.Kill(); err != nil {
					t.Error(err)
				}
			}, func(r Result) bool { return r.Killed }},
		} {
			t.Run(string(tty)+" "+tt.name, func(t *testing.T) {
				_, slave, _ := openTTY(t)
				p := ttyPlan(t, sh("exec yes")...)
				p.TTY = tty
				if tt.do == nil {
					p = timed(p, 300*time.Millisecond, 0)
				}
				c := Command(p)
				c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				if tt.do != nil {
					tt.do(t, c)
				}
				_ = c.Wait()
				if r := c.Result(); !tt.is(r) {
					t.Errorf("%+v", r)
				}
			})
		}
	}
}

// TestTTYStuckStop: a command that stops while its output is stuck gives the caller's
// terminal back, and goes on as often as it likes.
func TestTTYStuckStop(t *testing.T) {
	_, slave, modes := openTTY(t)
	before := modes()
	c := Command(ttyPlan(t, sh(`yes & for i in 1 2 3; do kill -STOP $$; done; kill $!; exit 5`)...))
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	stops := 0
	c.Suspend = func(syscall.Signal) bool {
		stops++
		if modes() != before {
			t.Error("the terminal is not as it was")
		}
		return true
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	for {
		select {
		case <-done:
			if r := c.Result(); r.ExitCode != 5 || stops != 3 {
				t.Errorf("%d stops, %+v", stops, r)
			}
			return
		default:
		}
		_ = c.Signal(unix.SIGWINCH)                     // one more that must not be held up
		if c.Signal(unix.SIGURG) == os.ErrProcessDone { // which the command ignores
			_ = c.Signal(unix.SIGTERM) // nobody will ever read
		}
		time.Sleep(time.Millisecond)
	}
}

// TestCopyEnds: whoever outside was given the command's end of a pipe keeps no Wait
// from its end, by silence or by a flood; what the command wrote is there.
func TestCopyEnds(t *testing.T) {
	for _, flood := range []bool{false, true} {
		r, w, err := pipe()
		if err != nil {
			t.Fatal(err)
		}
		stranger := os.NewFile(uintptr(w), "stranger")
		defer stranger.Close()
		if err := unix.SetNonblock(r, true); err != nil {
			t.Fatal(err)
		}
		wake, err := newEvent()
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		x := &outCopy{copyJob: copyJob{writer: &got, pipe: r, wake: wake, wrote: func(n int) int { return n }}, done: make(chan struct{})}
		if _, err := stranger.WriteString("of the command"); err != nil {
			t.Fatal(err)
		}
		go x.run()
		over := make(chan struct{})
		go func() {
			defer close(over)
			for flood {
				if _, err := stranger.Write(make([]byte, 4096)); err != nil {
					return // nobody reads any more
				}
			}
		}()
		if err := x.finish(true, true, nil); err != nil {
			t.Error(err)
		}
		<-over
		if !strings.HasPrefix(got.String(), "of the command") {
			t.Errorf("flood %t: %.30q", flood, got.String())
		}
	}
}

// TestTTYStopIsOver: a stop that was reported before an order to go on reached the command
// is over, and does not stop this process, which was brought to the front meanwhile.
func TestTTYStopIsOver(t *testing.T) {
	_, slave, _ := openTTY(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	term, err := newTerminal(int(slave.Fd()), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	go func() { // there is no output
		for done := range term.flushes {
			close(done)
		}
	}()
	defer close(term.flushes)
	term.control = int(w.Fd())
	suspended := 0
	term.suspend = func(syscall.Signal) bool { suspended++; return true }
	term.mu.Lock()
	ok := term.resume() // as after fg
	term.mu.Unlock()
	if !ok || !term.raw.Load() {
		t.Fatal("the terminal was not taken")
	}
	for _, sig := range []syscall.Signal{unix.SIGTTIN, unix.SIGTSTP} {
		if term.stopped(sig, 0); suspended != 0 || term.orders != 1 || !term.raw.Load() {
			t.Errorf("%v from before: suspended %d times, %d orders", sig, suspended, term.orders)
		}
	}
	if term.stopped(unix.SIGTSTP, 1); suspended != 1 || term.orders != 2 {
		t.Errorf("a stop after the order: suspended %d times, %d orders", suspended, term.orders)
	}
	term.leave()
}

// TestTTYStopsAgain: every stop is told once, also when the program is told to go on
// at any moment.
func TestTTYStopsAgain(t *testing.T) {
	_, slave, _ := openTTY(t)
	const stops = 150
	c := Command(ttyPlan(t, sh(`i=0; while [ $i -lt 150 ]; do kill -TSTP $$; i=$((i+1)); done; exit 4`)...))
	c.Stdin = slave
	suspended := 0
	c.Suspend = func(syscall.Signal) bool { suspended++; return true }
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				_ = c.Signal(unix.SIGCONT)
			}
		}
	}()
	_ = c.Wait()
	close(stop)
	<-done
	if res := c.Result(); res.ExitCode != 4 || suspended > stops {
		t.Errorf("%+v, suspended %d times by %d stops", res, suspended, stops)
	}
}
