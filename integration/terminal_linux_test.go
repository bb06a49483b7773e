package integration_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for text on a terminal before it fails. It is
// no measure of anything: a busy machine may take its time.
const patience = 2 * time.Minute

// A screen is a terminal, held by a test as a person holds one.
type screen struct {
	t   *testing.T
	pty *os.File // the master
	cmd *exec.Cmd

	mu   sync.Mutex
	text []byte // all that came
	seen int    // how much of it was looked at
	gone bool   // nothing comes any more
	more chan struct{}
}

// onScreen starts a command in a session of its own on a new terminal.
func onScreen(t *testing.T, cmd *exec.Cmd) *screen {
	t.Helper()
	return onScreenWith(t, cmd, func(*os.File) {})
}

// onScreenWith has a look at the terminal, to change it, before the command is there.
func onScreenWith(t *testing.T, cmd *exec.Cmd, prepare func(slave *os.File)) *screen {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: 33, Cols: 77}); err != nil {
		t.Fatal(err)
	}
	prepare(slave)
	// With a master that blocks, Close would wait for a Read that goes on.
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	master.Close()
	master = os.NewFile(uintptr(fd), "ptmx")
	if cmd.Stdin == nil {
		cmd.Stdin = slave
	}
	if cmd.Stdout == nil {
		cmd.Stdout = slave
	}
	if cmd.Stderr == nil {
		cmd.Stderr = slave
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 2}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	s := &screen{t: t, pty: master, cmd: cmd, more: make(chan struct{}, 1)}
	go s.read()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has mostly ended
		master.Close()
	})
	return s
}

func (s *screen) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.pty.Read(buf)
		s.mu.Lock()
		s.text = append(s.text, buf[:n]...)
		s.gone = err != nil
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// expect waits until the pattern comes, behind what was expected before, and
// gives what it and its groups matched.
func (s *screen) expect(pattern string) []string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		rest, gone := s.text[s.seen:], s.gone
		if at := re.FindSubmatchIndex(rest); at != nil {
			var groups []string
			for i := 0; i < len(at); i += 2 {
				groups = append(groups, string(rest[max(at[i], 0):max(at[i+1], 0)]))
			}
			s.seen += at[1]
			s.mu.Unlock()
			return groups
		}
		s.mu.Unlock()
		if gone {
			s.t.Fatalf("no %q before the end of\n%q", pattern, rest)
		}
		select {
		case <-s.more:
		case <-deadline:
			s.t.Fatalf("no %q in\n%q", pattern, rest)
		}
	}
}

func (s *screen) typeIn(text string) {
	s.t.Helper()
	if _, err := io.WriteString(s.pty, text); err != nil {
		s.t.Fatal(err)
	}
}

// end waits for the command and gives its exit status as a shell would.
func (s *screen) end() int {
	s.t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case err := <-done:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			s.t.Fatal(err)
		}
	case <-time.After(patience):
		s.mu.Lock()
		defer s.mu.Unlock()
		s.t.Fatalf("no end; the terminal shows\n%q", s.text)
	}
	return shellStatus(s.cmd.ProcessState)
}

// all gives everything that was shown, once nothing can come any more.
func (s *screen) all() string {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		text, gone := string(s.text), s.gone
		s.mu.Unlock()
		if gone {
			return text
		}
		select {
		case <-s.more:
		case <-deadline:
			s.t.Fatal("the terminal is still held")
		}
	}
}

// modes gives the modes of the terminal.
func (s *screen) modes() unix.Termios {
	s.t.Helper()
	conn, err := s.pty.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	var m *unix.Termios
	if e := conn.Control(func(fd uintptr) { m, err = unix.IoctlGetTermios(int(fd), unix.TCGETS) }); e != nil || err != nil {
		s.t.Fatal(e, err)
	}
	return *m
}

// until waits for something to be so.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > patience {
			t.Fatalf("never %s", what)
		}
	}
}

// jobShell is a shell with job control on a terminal, as a person has it, in
// which $WALL runs a command in the box.
func jobShell(t *testing.T, b *box) *screen {
	t.Helper()
	need(t, "bash")
	cmd := exec.Command("bash", "--norc", "--noprofile", "-i")
	cmd.Dir = b.ws
	argv := b.argv()
	cmd.Env = append(os.Environ(), "PS1=outer> ", "TERM=dumb", "HISTFILE=", "WALL="+strings.Join(argv[:len(argv)-1], " "))
	s := onScreen(t, cmd)
	s.expect("outer> ")
	return s
}

// TestTTYLooks: the terminal inside is one of the box's own, with a name, modes
// and size that are the caller's.
func TestTTYLooks(t *testing.T) {
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		const script = `tty; stty size; stty -g; for i in 0 1 2; do test -t $i && echo "fd $i"; done; : </dev/tty && echo ctty; ps -o tty= -p $$`
		look := func(b *box) string {
			s := onScreenWith(t, b.cmd("/bin/sh", "-c", script), func(slave *os.File) {
				host := exec.Command("stty", "-echoe", "erase", "^H", "intr", "^P", "iutf8")
				host.Stdin = slave
				if out, err := host.CombinedOutput(); err != nil {
					t.Fatalf("stty: %v %s", err, out)
				}
			})
			if code := s.end(); code != 0 {
				t.Errorf("exit status %d", code)
			}
			return s.all()
		}
		inside, bare := look(b), look(b.control())
		if !strings.HasPrefix(inside, "/dev/pts/0\r\n33 77\r\n") || !strings.Contains(inside, "\r\nfd 0\r\nfd 1\r\nfd 2\r\nctty\r\npts/0") {
			t.Errorf("inside: %q", inside)
		}
		cut := func(s string) string { _, s, _ = strings.Cut(s, "\r\n"); s, _, _ = strings.Cut(s, "ctty"); return s }
		if cut(inside) != cut(bare) {
			t.Errorf("inside %q, bare %q", inside, bare)
		}
	})
}

// TestTTYResize: the command hears of a new size, and has it.
func TestTTYResize(t *testing.T) {
	need(t, "python3")
	b := newBox(t, "gate")
	s := onScreen(t, b.cmd("python3", "-c", `
import os, select, signal
# A handler alone would be late when the signal comes right before a read.
r, w = os.pipe()
os.set_blocking(w, False)
signal.set_wakeup_fd(w)
signal.signal(signal.SIGWINCH, lambda *_: None)
ready = [r]
while 0 not in ready:
    os.write(1, b"size %d %d\n" % os.get_terminal_size())
    ready = select.select([0, r], [], [])[0]
    if r in ready: os.read(r, 100)`))
	s.expect("size 77 33\r\n")
	for _, size := range []pty.Winsize{{Rows: 50, Cols: 132}, {Rows: 2, Cols: 3}, {Rows: 33, Cols: 77}} {
		if err := pty.Setsize(s.pty, &size); err != nil {
			t.Fatal(err)
		}
		s.expect(fmt.Sprintf("size %d %d\r\n", size.Cols, size.Rows))
	}
	s.typeIn("\n")
	if code := s.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestTTYKeys: the keys that make signals and end the input do so inside, and
// wall ends as the command does. The modes are as they were.
func TestTTYKeys(t *testing.T) {
	for _, tt := range []struct {
		name, script, keys string
		code               int
	}{
		{"interrupt", `echo ready; exec cat`, "\x03", 130},
		{"quit", `echo ready; exec cat`, "\x1c", 131},
		{"end of file", `echo ready; cat; exit 7`, "\x04", 7},
		{"handled", `trap 'echo caught; exit 4' INT; echo ready; while :; do read x; done`, "\x03", 4},
		{"ignored", `trap '' INT; echo ready; read x; exit 5`, "\x03\x03\x03\n", 5},
		{"flow control", `echo ready; read x; echo "<$x>"; exit 6`, "\x13abc\x11\n", 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBox(t, "gate")
			var before unix.Termios
			s := onScreenWith(t, b.cmd("/bin/sh", "-c", tt.script), func(slave *os.File) {
				m, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
				if err != nil {
					t.Fatal(err)
				}
				before = *m
			})
			s.expect("ready")
			if s.modes() == before {
				t.Error("the terminal is not raw while the command runs")
			}
			s.typeIn(tt.keys)
			if code := s.end(); code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			if after := s.modes(); after != before {
				t.Errorf("modes %+v, were %+v", after, before)
			}
		})
	}
}

// TestTTYStop: Ctrl-Z stops the command and gives the terminal to the shell, as
// it was; fg and bg continue it; a command that stops itself is the same.
func TestTTYStop(t *testing.T) {
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		s := jobShell(t, b)
		s.typeIn("$WALL -- sh -c 'echo be''gun; while read x; do echo \"<$x>\"; done'\n")
		s.expect("begun\r\n")
		s.typeIn("one\n")
		s.expect("one\r\n<one>\r\n")
		for _, stop := range []string{"\x1a", "\x1a"} { // twice in one life
			s.typeIn(stop)
			s.expect("Stopped")
			s.expect("outer> ")
			s.typeIn("stty -a | tr ' ;' '\\n\\n' | grep -x icanon; echo ok=$((40+2))\n")
			s.expect("icanon\r\nok=42\r\n")
			s.expect("outer> ")
			s.typeIn("fg\n")
			s.typeIn("two\n")
			s.expect("<two>\r\n")
		}
		s.typeIn("\x04")
		s.expect("outer> ")

		// In the background it goes on writing, and stops when it wants to read.
		s.typeIn("$WALL -- sh -c 'echo be''gun; until [ -e go ]; do :; done; echo went on; read x; echo read=$x'\n")
		s.expect("begun\r\n")
		s.typeIn("\x1a")
		s.expect("Stopped")
		s.expect("outer> ")
		s.typeIn("bg; touch go\n")
		s.expect("went on")
		s.typeIn("wait %1; jobs\n")
		s.expect(`Stopped(\(SIGTTIN\)| \(tty input\))?`)
		s.typeIn("fg\nhello\n")
		s.expect("read=hello")
		s.expect("outer> ")

		// As editors do it.
		s.typeIn("$WALL -- sh -c 'echo before; kill -TSTP 0; echo after; exit 9'; echo status=$?\n")
		s.expect("before")
		s.expect("outer> ")
		s.typeIn("fg; echo status=$?\n")
		s.expect("after\r\n")
		s.expect("status=9\r\n")
		s.typeIn("exit\n")
		s.end()
	})
}

// TestTTYKillStopped: a shell that kills a stopped job sends the signal and then
// continues it. The command gets them in that order, and has no time to read.
func TestTTYKillStopped(t *testing.T) {
	b := newBox(t, "gate")
	s := jobShell(t, b)
	for range 5 {
		s.typeIn("$WALL -- sh -c 'echo be''gun; while read x; do :; done'\n")
		s.expect("begun\r\n")
		s.typeIn("\x1a")
		s.expect("Stopped")
		s.expect("outer> ")
		// 148 is what the shell knows from before.
		s.typeIn("kill %%; while wait %%; st=$?; [ $st = 148 ]; do :; done 2>/dev/null; echo status=$st\n")
		if got := s.expect(`status=(\d+)`)[1]; got != "143" {
			t.Fatalf("status %s, want 143", got)
		}
		s.expect("outer> ")
	}
}

// TestTTYBackground: started in the background, it leaves the terminal alone.
func TestTTYBackground(t *testing.T) {
	b := newBox(t, "gate")
	s := jobShell(t, b)
	s.typeIn("$WALL -- sh -c 'echo begun >f; read x; echo read=$x' &\n")
	s.expect("outer> ")
	until(t, "begun", func() bool { _, err := os.Stat(b.ws + "/f"); return err == nil })
	// Every key is the shell's.
	s.typeIn("echo $((2000+22))\n")
	s.expect("2022\r\n")
	s.typeIn("wait %1; jobs\n")
	s.expect(`Stopped(\(SIGTTIN\)| \(tty input\))?`)
	s.typeIn("fg\nvalue\n")
	s.expect("read=value")
	s.expect("outer> ")
}

// TestTTYPipeline: in a pipeline the keys are for whoever reads the terminal.
func TestTTYPipeline(t *testing.T) {
	b := newBox(t, "gate")
	s := jobShell(t, b)
	s.typeIn(`$WALL -- sh -c 'test -t 1 || echo no terminal; test -t 2 && echo err >&2; echo done' | sh -c 'cat; echo ask; read x </dev/tty; echo "got=$x"'` + "\n")
	s.expect("err")
	s.expect("ask\r\n")
	s.typeIn("abc\n")
	s.expect("got=abc\r\n")
	s.expect("outer> ")
	// A command in it that does read gets them.
	s.typeIn(`$WALL -- sh -c 'echo ask >&2; read x; echo "got=$x"' | tr a-z A-Z` + "\n")
	s.expect("ask\r")
	s.typeIn("abc\n")
	s.expect("GOT=ABC\r\n")
	s.expect("outer> ")
	// Ctrl-C ends all of it.
	s.typeIn("$WALL -- sh -c 'echo begun >&2; exec sleep 1000' | cat\n")
	s.expect("begun\r")
	s.typeIn("\x03")
	s.expect("outer> ")
	s.typeIn("echo status=${PIPESTATUS[0]}\n")
	s.expect("status=130\r\n")
}

// TestTTYShell: a shell in the box has job control.
func TestTTYShell(t *testing.T) {
	need(t, "bash")
	b := newBox(t, "gate")
	b.flags = []string{"--env", "PS1=inner> ", "--env", "TERM=dumb"}
	s := onScreen(t, b.cmd("bash", "--norc", "--noprofile", "-i"))
	s.expect("inner> ")
	s.typeIn("sh -c 'while read x; do echo \"<$x>\"; done' &\n")
	s.expect("inner> ")
	s.typeIn("jobs\n") // in the background it may not read
	s.expect("while read")
	for range 2 {
		s.typeIn("fg\nhello\n")
		s.expect("<hello>\r\n")
		s.typeIn("\x1a")
		s.expect(`Stopped +sh -c`)
		s.expect("inner> ")
	}
	s.typeIn("sleep 1000 & jobs\n")
	s.expect(`Running +sleep 1000`)
	s.typeIn("kill %1 %2; kill -CONT %1; wait; echo kil''led\n")
	s.expect("killed\r\n")
	s.typeIn("echo be''gun; cat | sed -u 's/.*/<&>/'\n")
	s.expect("begun\r\n")
	s.typeIn("line\n")
	s.expect("<line>\r\n")
	s.typeIn("\x03")
	s.expect("inner> ")
	s.typeIn("exit 3\n")
	if code := s.end(); code != 3 {
		t.Errorf("exit status %d", code)
	}
	if text := s.all(); strings.Contains(text, "job control") {
		t.Errorf("%q", text)
	}
}

// TestTTYPaste: ten megabytes in both directions at once, without loss, also of
// the brackets that a terminal puts round a paste.
func TestTTYPaste(t *testing.T) {
	need(t, "python3")
	b := newBox(t, "gate")
	const size = 10 << 20
	s := onScreen(t, b.cmd("python3", "-c", `
import hashlib, os, sys, threading, tty
tty.setraw(0)
sys.stdout.write("ready\n"); sys.stdout.flush()
size = int(sys.argv[1])
def flood():
    line = b"x" * 63 + b"\n"
    for _ in range(size // 4096):
        os.write(1, line * 64)
writer = threading.Thread(target=flood)
writer.start()
h, left = hashlib.sha256(), size
while left:
    data = os.read(0, min(left, 65536))
    h.update(data); left -= len(data)
writer.join()
os.write(1, b"hash=" + h.hexdigest().encode() + b";")`, strconv.Itoa(size)))
	s.expect("ready\n")
	paste := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(paste)
	copy(paste, "\x1b[200~")
	copy(paste[size-6:], "\x1b[201~")
	if _, err := s.pty.Write(paste); err != nil {
		t.Fatal(err)
	}
	got := s.expect("hash=([0-9a-f]+);")
	if want := fmt.Sprintf("%x", sha256.Sum256(paste)); got[1] != want {
		t.Errorf("hash %s, want %s", got[1], want)
	}
	if code := s.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if n := strings.Count(s.all(), "x"); n != size/4096*64*63 {
		t.Errorf("%d bytes came, want %d", n, size/4096*64*63)
	}
}

// TestTTYUnreadInput: a paste that the command does not read holds nothing up.
func TestTTYUnreadInput(t *testing.T) {
	need(t, "python3")
	b := newBox(t, "gate")
	s := onScreen(t, b.cmd("python3", "-c", `
import os, time, tty
tty.setraw(0)
os.write(1, b"ready\n")
while not os.path.exists("go"): time.sleep(0.01)
os.write(1, b"z" * 1000000 + b"end\n")`))
	s.expect("ready\n")
	go func() { _, _ = s.pty.Write(make([]byte, 1<<20)) }() // blocks until the terminal is gone
	write(t, b.ws+"/go", "")
	s.expect("zend")
	if code := s.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// TestTTYOutput: everything that the command has written comes, in order, also
// what it wrote last; and at what speed, next to a terminal without wall.
func TestTTYOutput(t *testing.T) {
	const size = 64 << 20
	script := fmt.Sprintf("yes 0123456789abcdef0123456789abcdef0123456789abcdef | head -c %d; printf last", size)
	b := newBox(t, "gate")
	took := map[bool]time.Duration{}
	for _, bare := range []bool{true, false} {
		c := *b
		c.bare = bare
		start := time.Now()
		s := onScreen(t, c.cmd("/bin/sh", "-c", script))
		if code := s.end(); code != 0 {
			t.Fatalf("exit status %d", code)
		}
		text := s.all()
		took[bare] = time.Since(start)
		if n := len(strings.ReplaceAll(text, "\r\n", "\n")); n != size+4 || !strings.HasSuffix(text, "last") {
			t.Errorf("bare %v: %d bytes, want %d; the end is %q", bare, n, size+4, text[max(0, len(text)-20):])
		}
	}
	t.Logf("%d MiB in %v bare, %v through wall: %.2f of the speed", size>>20, took[true], took[false], float64(took[true])/float64(took[false]))
}

// TestTTYHangup: when the terminal goes away the command is told, and its own
// terminal has gone as well.
func TestTTYHangup(t *testing.T) {
	b := newBox(t, "gate")
	s := onScreen(t, b.cmd("/bin/sh", "-c", `trap 'echo hup >>hup' HUP; echo ready; while read x; do :; done
		until test -s hup; do sleep 0.01; done; while echo x; do sleep 0.01; done; echo eio >>hup; exit 0`))
	s.expect("ready")
	s.pty.Close()
	s.end()
	if got := read(t, b.ws+"/hup"); !strings.Contains(got, "hup\n") || !strings.Contains(got, "eio\n") {
		t.Errorf("%q", got)
	}
}

// TestTTYHangupStops: a hang-up ends whatever was stopped on the terminal, as the
// kernel does it, and a command that stops again afterwards ends all the same.
func TestTTYHangupStops(t *testing.T) {
	t.Run("below the command", func(t *testing.T) {
		b := newBox(t, "gate")
		s := onScreen(t, b.cmd("/bin/sh", "-c", `trap : HUP; sh -c 'echo ready; kill -STOP $$; echo went on >>hup'; echo child=$? >>hup; exit 0`))
		s.expect("ready")
		until(t, "stopped", func() bool {
			out, err := exec.Command("ps", "-e", "-o", "stat=,args=").Output()
			return err == nil && regexp.MustCompile(`(?m)^T\S*\s+sh -c echo ready; kill -STOP \$\$; echo went on`).Match(out)
		})
		s.pty.Close()
		s.end()
		if got := read(t, b.ws+"/hup"); got != "child=129\n" {
			t.Errorf("%q", got)
		}
	})
	t.Run("the command", func(t *testing.T) {
		b := newBox(t, "gate")
		s := onScreen(t, b.cmd("/bin/sh", "-c", `trap 'echo hup >>hup' HUP; echo ready; until test -s hup; do sleep 0.01; done
			for i in 1 2 3; do kill -STOP $$; echo $i >>hup; done`))
		s.expect("ready")
		s.pty.Close()
		s.end()
		if got := read(t, b.ws+"/hup"); !strings.HasSuffix(got, "1\n2\n3\n") {
			t.Errorf("%q", got)
		}
	})
}

// TestTTYRestored: however wall ends, unless it is killed, the terminal is as it was.
func TestTTYRestored(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGABRT, unix.SIGSEGV, unix.SIGSYS, unix.SIGTRAP, unix.SIGBUS, unix.SIGILL, unix.SIGFPE} {
		t.Run(sig.String(), func(t *testing.T) {
			b := newBox(t, "gate")
			var before unix.Termios
			s := onScreenWith(t, b.cmd("/bin/sh", "-c", `echo ready; exec cat`), func(slave *os.File) {
				m, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
				if err != nil {
					t.Fatal(err)
				}
				before = *m
			})
			s.expect("ready")
			if s.modes() == before {
				t.Fatal("not raw")
			}
			if err := s.cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if code := s.end(); code != 128+int(sig) {
				t.Errorf("exit status %d", code)
			}
			if after := s.modes(); after != before {
				t.Errorf("modes %+v, were %+v", after, before)
			}
		})
	}
}

// TestTTYModes: what each mode makes of the caller's terminal.
func TestTTYModes(t *testing.T) {
	const script = `for i in 0 1 2; do test -t $i && echo "terminal $i"; done; readlink /proc/self/fd/0; echo out; echo err >&2`
	for _, tt := range []struct{ mode, want string }{
		{"auto", "terminal 0\r\nterminal 1\r\nterminal 2\r\n/dev/pts/0\r\nout\r\nerr\r\n"},
		{"pty", "terminal 0\r\nterminal 1\r\nterminal 2\r\n/dev/pts/0\r\nout\r\nerr\r\n"},
		{"none", "/dev/null\r\nout\r\nerr\r\n"},
		{"inherit", "terminal 0\r\nterminal 1\r\nterminal 2\r\n/dev/pts/[0-9]+\r\nout\r\nerr\r\n"},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			b := newBox(t, "gate")
			b.flags = []string{"--tty", tt.mode}
			s := onScreen(t, b.cmd("/bin/sh", "-c", script))
			if code := s.end(); code != 0 {
				t.Errorf("exit status %d", code)
			}
			if got := s.all(); !regexp.MustCompile("^" + tt.want + "$").MatchString(got) {
				t.Errorf("got %q", got)
			}
		})
	}
	t.Run("pty without a terminal", func(t *testing.T) {
		b := newBox(t, "gate")
		b.flags = []string{"--tty", "pty"}
		if r := b.run("true"); r.code != 125 || !strings.Contains(r.err, "standard input is no terminal") || !strings.Contains(r.err, "--tty pty") {
			t.Errorf("%d %q", r.code, r.err)
		}
	})
}

// TestTTYSomeStreams: only what is the terminal is replaced by the private one,
// and what is typed is still echoed.
func TestTTYSomeStreams(t *testing.T) {
	b := newBox(t, "gate")
	cmd := b.cmd("/bin/sh", "-c", `for i in 0 1 2; do test -t $i && echo "terminal $i" >&2; done; read x; echo "out=$x"`)
	var out bytes.Buffer
	cmd.Stdout = &out
	s := onScreen(t, cmd)
	s.expect("terminal 0\r.*terminal 2\r|(?s)terminal 0\r\r?\nterminal 2\r")
	s.typeIn("typed\n")
	if code := s.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if out.String() != "out=typed\n" || !strings.Contains(s.all(), "typed\r") {
		t.Errorf("out %q, terminal %q", out.String(), s.all())
	}
}

// TestTTYOtherTerminal: another terminal of the caller's on standard output is
// written to, and not in the box.
func TestTTYOtherTerminal(t *testing.T) {
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	b := newBox(t, "gate")
	cmd := b.cmd("/bin/sh", "-c", `test -t 1 || echo no terminal; readlink /proc/self/fd/1`)
	cmd.Stdout = slave
	s := onScreen(t, cmd)
	if code := s.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	slave.Close()
	text, _ := io.ReadAll(master) // ends with EIO
	if got := string(text); !strings.HasPrefix(got, "no terminal\r\npipe:") {
		t.Errorf("%q", got)
	}
}

// TestTTYLeftover: a daemon that holds the terminal does not hold wall, and all
// that the command wrote comes.
func TestTTYLeftover(t *testing.T) {
	b := newBox(t, "gate")
	s := onScreen(t, b.cmd("/bin/sh", "-c", `setsid sh -c 'trap "" HUP; exec sleep 100000' & seq 100000; printf end; exit 4`))
	if code := s.end(); code != 4 {
		t.Errorf("exit status %d", code)
	}
	if text := s.all(); !strings.HasSuffix(text, "\r\n100000\r\nend") || strings.Count(text, "\n") != 100000 {
		t.Errorf("%d lines, end %q", strings.Count(text, "\n"), text[max(0, len(text)-30):])
	}
}

// TestTTYHostile: the caller's terminal is nowhere inside; only bytes come out.
func TestTTYHostile(t *testing.T) {
	need(t, "python3")
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		write(t, b.ws+"/attack.py", `
import ctypes, errno, fcntl, glob, os, struct, sys, termios
outer = sys.argv[1]
def attempt(name, f):
    try: r = f()
    except OSError as e: r = errno.errorcode.get(e.errno, e.errno)
    print(name, r, flush=True)
def sti(fd, request=termios.TIOCSTI):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ioctl(fd, ctypes.c_ulong(request), b"Q"): raise OSError(ctypes.get_errno(), "")
    return "typed"
own = os.stat(0)
attempt("sti", lambda: sti(0))
attempt("sti-high", lambda: sti(0, 0xdead00000000 | termios.TIOCSTI))
attempt("linux", lambda: sti(0, 0x541C))
tty = os.open("/dev/tty", os.O_RDWR)
attempt("sti-tty", lambda: sti(tty))
attempt("devtty", lambda: os.ttyname(tty))
if outer != "/dev/pts/0":
    attempt("outer", lambda: os.open(outer, os.O_RDWR | os.O_NOCTTY))
# Every terminal in sight is the one of this box or made here.
attempt("pts", lambda: sorted(os.listdir("/dev/pts")))
masters = []
for link in glob.glob("/proc/[0-9]*/fd/*"):
    try: target = os.readlink(link)
    except OSError: continue
    if "ptmx" in target: masters.append(link)
print("masters", masters)
attempt("pid1", lambda: [os.readlink("/proc/1/fd/%d" % n) for n in range(3, 20)])
attempt("reopen", lambda: [os.open("/proc/1/fd/%d" % n, os.O_RDWR) for n in range(20)])
def steal():
    fd = ctypes.CDLL(None, use_errno=True).syscall(438, ctypes.CDLL(None).syscall(434, 1, 0), 3, 0)
    if fd < 0: raise OSError(ctypes.get_errno(), "")
    return fd
attempt("getfd", steal)
attempt("exclusive", lambda: fcntl.ioctl(0, termios.TIOCEXCL))
attempt("peer", lambda: fcntl.ioctl(0, 0x5441, os.O_RDWR))
attempt("front", lambda: os.tcsetpgrp(0, 1))
attempt("back", lambda: os.tcsetpgrp(0, os.getpgrp()))
attempt("hangup", lambda: ctypes.CDLL(None, use_errno=True).vhangup() and "refused")
attempt("sctty", lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 1))
attrs = termios.tcgetattr(0)
attrs[0] = attrs[1] = attrs[3] = 0
attempt("modes", lambda: termios.tcsetattr(0, termios.TCSANOW, attrs))
fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 7, 9, 0, 0))
attempt("discipline", lambda: fcntl.ioctl(0, termios.TIOCSETD, struct.pack("i", 0)))
attempt("console", lambda: fcntl.ioctl(0, 0x541D))
print("\x1b]0;title\x07\x1b[6n", end="")
sys.exit(11)
`)
		var before unix.Termios
		outer := ""
		cmd := b.cmd("python3", "attack.py", "")
		s := onScreenWith(t, cmd, func(slave *os.File) {
			outer = slave.Name()
			cmd.Args[len(cmd.Args)-1] = outer
			m, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			before = *m
		})
		if code := s.end(); code != 11 {
			t.Errorf("exit status %d", code)
		}
		text := s.all()
		for _, want := range []string{
			"sti EPERM", "sti-high EPERM", "linux EPERM", "sti-tty EPERM", "devtty /dev/pts/0|/dev/tty", "pts ['0', 'ptmx']", "masters []",
			"pid1 EACCES|EPERM", "reopen EACCES|EPERM", "sctty EPERM", "hangup refused", "getfd EPERM", "console ENOTTY|EPERM", "\x1b]0;title\x07\x1b[6n",
		} {
			ok := false
			key, values, _ := strings.Cut(want, " ")
			for v := range strings.SplitSeq(values, "|") {
				ok = ok || strings.Contains(text, strings.TrimSpace(key+" "+v))
			}
			if !ok {
				t.Errorf("no %q in %q", want, text)
			}
		}
		if outer != "/dev/pts/0" && !strings.Contains(text, "outer ENOENT") {
			t.Errorf("the caller's terminal: %q", text)
		}
		if after := s.modes(); after != before {
			t.Errorf("modes %+v, were %+v", after, before)
		}
		if size, err := pty.GetsizeFull(s.pty); err == nil && (size.Rows != 33 || size.Cols != 77) {
			t.Errorf("size %+v", size)
		}
	})
}

// TestTTYRelaySleeps: with nothing to carry wall uses no time.
func TestTTYRelaySleeps(t *testing.T) {
	b := newBox(t, "gate")
	s := onScreen(t, b.cmd("/bin/sh", "-c", `exec <&- >&- 2>&-; exec sleep 3`))
	until(t, "raw", func() bool { return s.modes().Lflag&unix.ICANON == 0 })
	if code := s.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	if used := s.cmd.ProcessState.SystemTime() + s.cmd.ProcessState.UserTime(); used > time.Second {
		t.Errorf("%v of CPU time", used)
	}
}

// A tmuxServer is one of the test's own.
type tmuxServer struct {
	t      *testing.T
	socket string
}

func newTmux(t *testing.T, b *box, cmd ...string) tmuxServer {
	t.Helper()
	need(t, "tmux")
	m := tmuxServer{t, filepath.Join(tempDir(t), "s")}
	c := exec.Command("tmux", append([]string{"-S", m.socket, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24"}, cmd...)...)
	c.Dir = b.ws
	c.Env = append(os.Environ(), "TERM=xterm", "LC_ALL=C.UTF-8")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", m.socket, "kill-server").Run() })
	return m
}

func (m tmuxServer) do(args ...string) string {
	m.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", m.socket}, args...)...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %q: %v %s", args, err, out)
	}
	return string(out)
}

// shows waits until the screen matches.
func (m tmuxServer) shows(pattern string) {
	m.t.Helper()
	re := regexp.MustCompile(pattern)
	text := ""
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if text = m.do("capture-pane", "-p"); re.MatchString(text) {
			return
		}
		if time.Since(start) > patience {
			m.t.Fatalf("no %q on the screen:\n%s", pattern, strings.TrimRight(text, "\n"))
		}
	}
}

func (m tmuxServer) keys(keys ...string) {
	m.t.Helper()
	m.do(append([]string{"send-keys"}, keys...)...)
}

// TestTmux: real terminal programs in a real terminal.
func TestTmux(t *testing.T) {
	need(t, "tmux", "bash", "less", "vi", "python3")
	b := newBox(t, "gate")
	var lines strings.Builder
	for i := range 200 {
		fmt.Fprintf(&lines, "line %d of the file\n", i+1)
	}
	write(t, b.ws+"/text", lines.String())
	b.flags = []string{"--env", "PS1=inner> ", "--env", "TERM=screen", "--env", "LESS=-M", "--env", "HISTFILE="}
	m := newTmux(t, b, b.argv("bash", "--norc", "--noprofile", "-i")...)
	m.shows(`inner>`)
	m.keys("stty size", "Enter")
	m.shows(`24 80`)

	m.keys("less text", "Enter")
	m.shows(`text lines 1-23/200`)
	m.keys("Space")
	m.shows(`text lines 24-46/200`)
	m.do("resize-window", "-x", "100", "-y", "40")
	m.shows(`text lines 24-62/200`)
	m.keys("C-z")
	m.shows(`Stopped +less text`)
	m.keys("jobs; fg", "Enter")
	m.shows(`text lines 24-62/200`)
	m.keys("q")
	m.shows(`inner>`)
	m.keys("clear; stty size", "Enter")
	m.shows(`40 100`)

	m.keys("python3 -q", "Enter")
	m.shows(`(?m)^>>>`)
	m.keys("6*7", "Enter")
	m.shows(`(?m)^42`)
	// At its prompt Python may miss a signal until the next key, with or without wall.
	m.keys("import time; print('a'+'sleep'); time.sleep(10000)", "Enter")
	m.shows(`(?m)^asleep`)
	m.keys("C-c")
	m.shows(`KeyboardInterrupt`)
	m.keys("C-d")
	m.keys("clear", "Enter")
	m.shows(`^inner>\n`)

	m.keys("vi -u NONE -N text", "Enter")
	m.shows(`line 1 of the file\nline 2`)
	m.keys("/line 150", "Enter")
	m.shows(`line 150 of`)
	m.do("resize-window", "-x", "60", "-y", "20")
	until(t, "resized", func() bool {
		m.keys("Escape", "Escape", ":set lines? columns?", "Enter")
		m.shows(`lines=`)
		resized := strings.Contains(m.do("capture-pane", "-p"), "lines=20")
		m.keys("Enter")
		return resized
	})
	m.keys("C-z")
	m.shows(`Stopped +vi`)
	m.keys("fg", "Enter")
	m.shows(`line 150 of`)
	m.keys("dd:wq", "Enter")
	until(t, "saved", func() bool { return !strings.Contains(read(t, b.ws+"/text"), "line 150 ") })
	m.shows(`inner>`)
	m.keys("exit", "Enter")
	until(t, "over", func() bool { return exec.Command("tmux", "-S", m.socket, "has-session").Run() != nil })
}

// TestScreen: and in another one.
func TestScreen(t *testing.T) {
	need(t, "screen")
	b := newBox(t, "gate")
	b.flags = []string{"--env", "PS1=inner> "}
	cmd := exec.Command("screen", append([]string{"-c", "/dev/null", "-S", nonce()}, b.argv("sh")...)...)
	cmd.Dir = b.ws
	cmd.Env = append(os.Environ(), "TERM=xterm", "SCREENDIR="+tempDir(t))
	if err := os.Chmod(strings.TrimPrefix(cmd.Env[len(cmd.Env)-1], "SCREENDIR="), 0o700); err != nil {
		t.Fatal(err)
	}
	s := onScreen(t, cmd)
	s.expect("inner> ")
	s.typeIn("stty size; echo $((40+2))\n")
	s.expect("33 77")
	s.expect("42")
	s.typeIn("cat\nline\n")
	s.expect("line\r\nline\r\n|line\r\n.*line\r\n")
	s.typeIn("\x03")
	s.expect("inner> ")
	s.typeIn("exit\n")
	s.end()
}

// TestTTYForeground: a command without walls that took the foreground of the
// terminal and died there leaves it to whoever started wall.
func TestTTYForeground(t *testing.T) {
	need(t, "python3")
	b := newBox(t, "gate")
	b.flags = []string{"--enforce", "off"}
	took := b.argv("python3", "-c", `
import os, signal
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    os.kill(os.getpid(), 9)
os.waitpid(pid, 0)`)
	// The end of the session's leader throws away what the reader of the terminal has not
	// been given yet (tty_vhangup_session in the kernel), so it waits once more.
	cmd := exec.Command("sh", "-c", shellQuote(took)+`; echo "over $?"; read x; echo "got=$x"; read y`)
	cmd.Dir = b.ws
	s := onScreen(t, cmd)
	s.expect("over 0\r\n")
	s.typeIn("line\n")
	s.expect("got=line\r\n")
	s.typeIn("\n")
	if code := s.end(); code != 0 {
		t.Errorf("exit status %d", code)
	}
}

// The process that restores the terminal when wall cannot.
const guardian = "terminal-guard"

// nameOf is the name of a process that is not a zombie, or "".
func nameOf(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), "(")
	name, rest, ok := strings.Cut(rest, ") ")
	if !ok || strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X") {
		return ""
	}
	return name
}

// childNamed waits for a child of a process.
func childNamed(t *testing.T, parent int, name string) (pid int) {
	t.Helper()
	until(t, "a child named "+name, func() bool {
		for _, pid = range childrenOf(parent) {
			if nameOf(pid) == name {
				return true
			}
		}
		return false
	})
	return pid
}

// setModes changes the modes of the terminal, as some other program would.
func (s *screen) setModes(m unix.Termios) {
	s.t.Helper()
	conn, err := s.pty.SyscallConn()
	if err != nil {
		s.t.Fatal(err)
	}
	if e := conn.Control(func(fd uintptr) { err = unix.IoctlSetTermios(int(fd), unix.TCSETS, &m) }); e != nil || err != nil {
		s.t.Fatal(e, err)
	}
}

// stopAll stops a process and waits until it is.
func stopAll(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	until(t, "stopped", func() bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return strings.Contains(string(text), ") T ")
	})
}

// TestTTYGuardian: the terminal is restored, too, when wall is given no chance to. The
// leader of the session is a shell, since the kernel itself resets the terminal at its end.
func TestTTYGuardian(t *testing.T) {
	for _, tt := range []struct {
		sig     syscall.Signal
		stopped bool // somebody has stopped the guardian
	}{{unix.SIGKILL, false}, {unix.SIGKILL, true}, {unix.SIGABRT, false}, {34, false}, {unix.SIGTERM, false}} {
		t.Run(fmt.Sprintf("%v, stopped=%t", tt.sig, tt.stopped), func(t *testing.T) {
			sig := tt.sig
			b := newBox(t, "gate")
			cmd := exec.Command("/bin/sh", append([]string{"-c", `sh -c 'echo "pid=$$."; exec "$@"' x "$@"; echo "over $?"; until [ -e go ]; do sleep 0.05; done`, "x"},
				b.argv("/bin/sh", "-c", "echo ready; exec cat")...)...)
			cmd.Dir = b.ws
			// A descriptor of the caller's, which the guardian has no business with.
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			cmd.ExtraFiles = []*os.File{w}
			var before unix.Termios
			s := onScreenWith(t, cmd, func(slave *os.File) {
				m, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
				if err != nil {
					t.Fatal(err)
				}
				m.Cc[unix.VINTR] = 24 // so that no default is taken for what was restored
				if err := unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, m); err != nil {
					t.Fatal(err)
				}
				before = *m
			})
			w.Close()
			pid, err := strconv.Atoi(s.expect(`pid=(\d+)\.`)[1])
			if err != nil {
				t.Fatal(err)
			}
			s.expect("ready")
			until(t, "raw", func() bool { return s.modes() != before })
			guard := childNamed(t, pid, guardian)
			// What is sent to the job is not for it: kill -9 %1, Ctrl-Z.
			if group, err := unix.Getpgid(guard); err != nil || group != guard {
				t.Errorf("process group %d, %v", group, err)
			}
			// To others than root the kernel shows neither.
			if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", guard)); err == nil && len(env) > 0 {
				t.Errorf("environment of %d bytes", len(env))
			}
			links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", guard))
			for _, l := range links {
				to, err := os.Readlink(l)
				switch {
				case err != nil:
				case filepath.Base(l) == "0" && strings.HasPrefix(to, "/dev/pts/"), filepath.Base(l) <= "2" && strings.HasPrefix(to, "pipe:"):
				case strings.HasPrefix(to, "/sys/fs/cgroup/"), strings.HasPrefix(to, "/proc/"), strings.HasPrefix(to, "anon_inode:"): // the Go runtime's
				default:
					t.Errorf("descriptor %s is %s", filepath.Base(l), to)
				}
			}
			for _, s := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT} {
				if err := unix.Kill(guard, s); err != nil {
					t.Fatal(err)
				}
			}
			if tt.stopped {
				stopAll(t, guard)
			}
			if err := unix.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
			s.expect(`over ` + strconv.Itoa(128+int(sig)) + "\r?\n")
			until(t, "without guardian", func() bool { return nameOf(guard) != guardian })
			if after := s.modes(); after != before {
				t.Errorf("modes %+v, were %+v", after, before)
			}
			write(t, b.ws+"/go", "")
			s.end()
		})
	}
}

// TestTTYGuardianLeaves: modes that are somebody else's stay when wall is killed: those
// of another job, which may be the same.
func TestTTYGuardianLeaves(t *testing.T) {
	for _, stop := range []string{"Ctrl-Z", "SIGSTOP"} {
		t.Run(stop, func(t *testing.T) {
			b := newBox(t, "gate")
			s := jobShell(t, b)
			before := s.modes()
			s.typeIn("$WALL -- sh -c 'echo be''gun; exec cat'\n")
			s.expect("begun\r\n")
			until(t, "raw", func() bool { return s.modes().Oflag&unix.OPOST == 0 })
			raw := s.modes()
			if raw == before {
				t.Fatal("not raw")
			}
			wall := childNamed(t, s.cmd.Process.Pid, filepath.Base(wallBin))
			guard := childNamed(t, wall, guardian)
			if stop == "SIGSTOP" { // wall cannot give the terminal back
				if err := unix.Kill(wall, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			} else {
				s.typeIn("\x1a")
			}
			s.expect("Stopped")
			s.expect("outer> ")
			s.typeIn("sh -c 'echo other; exec sleep 1000'\n") // no reader: in these modes a read returns at once
			s.expect("other\r\n")
			s.setModes(raw)
			if err := unix.Kill(wall, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			until(t, "without guardian", func() bool { return nameOf(guard) != guardian })
			if after := s.modes(); after != raw {
				t.Errorf("modes %+v, those of the other job were %+v", after, raw)
			}
			s.setModes(before)
			s.typeIn("\x03")
			s.expect("outer> ")
			s.typeIn("exit\nexit\n")
			s.end()
		})
	}
}

// TestTTYGuardianEnds: nothing is left of it after any other end.
func TestTTYGuardianEnds(t *testing.T) {
	b := newBox(t, "gate")
	s := onScreen(t, b.cmd("/bin/sh", "-c", "echo ready; read x; exit 7"))
	s.expect("ready")
	guard := childNamed(t, s.cmd.Process.Pid, guardian)
	stopAll(t, guard) // also when somebody has stopped it
	s.typeIn("\n")
	if code := s.end(); code != 7 {
		t.Errorf("exit status %d", code)
	}
	if name := nameOf(guard); name == guardian {
		t.Error("the guardian outlives wall")
	}

	// Without a terminal that is taken there is none.
	cmd := b.cmd("/bin/sh", "-c", "echo ready; exec sleep 1000")
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if _, err := in.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	for _, pid := range childrenOf(cmd.Process.Pid) {
		if name := nameOf(pid); name == guardian {
			t.Error("a guardian without a terminal")
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestTTYGuardianAtAnyMoment: whenever wall is killed, from its first moment on, the
// terminal is as it was, and no guardian is left.
func TestTTYGuardianAtAnyMoment(t *testing.T) {
	b := newBox(t, "gate")
	// Each line that it reads starts wall once.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `while read x; do sh -c 'echo "pid=$$."; exec "$@"' x "$@"; echo "over $?"; until [ -e go ]; do sleep 0.01; done; rm go; done`, "x"},
		b.argv("/bin/sh", "-c", "exec cat")...)...)
	cmd.Dir = b.ws
	s := onScreen(t, cmd)
	before := s.modes()
	raw := 0
	for round := range 20 {
		s.typeIn("\n")
		pid, err := strconv.Atoi(s.expect(`pid=(\d+)\.`)[1])
		if err != nil {
			t.Fatal(err)
		}
		// From the exec of wall to some time after it has taken the terminal, however
		// long either takes on this machine: half of the rounds wait for that.
		if round%2 == 1 {
			until(t, "raw", func() bool { return s.modes() != before })
		}
		time.Sleep(time.Duration(round) * time.Millisecond / 2)
		if s.modes() != before {
			raw++
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.expect("over 137\r?\n")
		until(t, "without guardian", func() bool { return !inSession(s.cmd.Process.Pid, guardian) })
		if after := s.modes(); after != before {
			t.Fatalf("round %d: modes %+v, were %+v", round, after, before)
		}
		write(t, b.ws+"/go", "")
	}
	if raw < 10 {
		t.Errorf("killed %d times with the terminal taken", raw)
	}
	s.typeIn("\x04")
	s.end()
}

// inSession reports whether there is a process of that name in a session. One that has not
// got its name yet counts, too.
func inSession(leader int, name string) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		text, _ := os.ReadFile(file)
		_, rest, _ := strings.Cut(string(text), "(")
		is, rest, ok := strings.Cut(rest, ") ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 4 || fields[0] == "Z" || fields[0] == "X" || fields[3] != strconv.Itoa(leader) {
			continue
		}
		if is == name || is == "exe" || is == filepath.Base(wallBin) {
			return true
		}
	}
	return false
}

// TestTmuxKilled: the shell of a tmux window is usable after wall was killed.
func TestTmuxKilled(t *testing.T) {
	need(t, "tmux")
	b := newBox(t, "gate")
	// No shell that sets modes of its own at its prompt.
	m := newTmux(t, b, append([]string{"sh", "-c", `sh -c 'echo "pid=$$."; exec "$@"' x "$@"; echo "over $?"; until [ -e go ]; do sleep 0.05; done; read x; echo "<$x>"; read x`, "x"}, b.argv("sh", "-c", "echo ready; exec cat")...)...)
	m.shows(`ready`)
	text := regexp.MustCompile(`pid=(\d+)\.`).FindStringSubmatch(m.do("capture-pane", "-p"))
	if text == nil {
		t.Fatal("no pid")
	}
	pid, err := strconv.Atoi(text[1])
	if err != nil {
		t.Fatal(err)
	}
	guard := childNamed(t, pid, guardian)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	m.shows(`over 137`)
	until(t, "without guardian", func() bool { return nameOf(guard) != guardian })
	write(t, b.ws+"/go", "") // a read before would have been in the modes of wall
	m.keys("line", "Enter")
	m.shows(`line\n<line>`)
}
