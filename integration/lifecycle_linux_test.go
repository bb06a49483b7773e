package integration_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// leftovers is a script whose processes try to outlive it in every known way;
// $1 is the probe, $2 the mark in their argv.
const leftovers = `
"$1" idle "$2" &                                   # an orphan
"$1" idle -ignore "$2" &                           # deaf to signals
"$1" idle -stop "$2" &                             # stopped
"$1" idle -daemon "$2"                             # double fork, own session
(setsid "$1" idle -ignore "$2" </dev/null >/dev/null 2>&1 &)
n=0; while [ $n -lt 200 ]; do n=$((n+1)); [ "$(echo /proc/[0-9]* | wc -w)" -ge 6 ] && break; sleep 0.01; done
`

// killMarked ends what a control left running; the mark is this test's own.
func killMarked(mark string) {
	for _, pid := range withArg(mark) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// TestLifeLeftovers: when the command ends everything ends, and the output
// closes at once although leftovers hold it. Promise 19.
func TestLifeLeftovers(t *testing.T) {
	for _, profile := range []string{"control", "gate", "agent"} {
		t.Run(profile, func(t *testing.T) {
			b := newBox(t, profile)
			b.bare = profile == "control"
			mark := nonce()
			t.Cleanup(func() { killMarked(mark) })
			cmd := b.cmd("/bin/sh", "-c", leftovers+"exit 7", "sh", probeBin, mark)
			if cmd.WaitDelay = time.Minute; b.bare {
				cmd.WaitDelay = 3 * time.Second
			}
			cmd.Stdout = new(strings.Builder) // a pipe, whose end Wait waits for
			var errs strings.Builder
			cmd.Stderr = &errs
			err := cmd.Run()
			left := withArg(mark)
			if b.bare {
				if !errors.Is(err, exec.ErrWaitDelay) && len(left) < 5 {
					t.Errorf("%v, %d leftovers: the script proves nothing", err, len(left))
				}
				return
			}
			if errors.Is(err, exec.ErrWaitDelay) {
				t.Error("the output stayed open after the end")
			}
			if code := shellStatus(cmd.ProcessState); code != 7 {
				t.Errorf("exit status %d, want 7\n%s", code, errs.String())
			}
			if len(left) > 0 {
				t.Errorf("%d processes outlived the command", len(left))
			}
		})
	}
}

// TestLifeKill: whenever the launcher is killed, nothing survives; the next run
// collects the scratch and the placeholders. Promises 11, 20.
func TestLifeKill(t *testing.T) {
	b := newBox(t, "gate")
	write(t, b.ws+"/.git/HEAD", "ref: refs/heads/main\n")
	if err := os.MkdirAll(b.ws+"/.git/objects", 0o755); err != nil {
		t.Fatal(err)
	}
	b.flags = []string{"--protect", "absent/name", "--protect", "nothere"}
	before, mounts := snapshot(t, b.ws), read(t, "/proc/self/mountinfo")
	mark := nonce()
	t.Cleanup(func() { killMarked(mark) })
	ran := 0
	for i := range 40 {
		// Mostly early: that is where a launcher loses its box.
		wait := time.Duration(rand.IntN(25_000)) * time.Microsecond
		cmd := b.cmd("/bin/sh", "-c", leftovers+"sleep 100", "sh", probeBin, mark)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The launcher's own argv holds the mark, too.
		if i%4 == 3 && !within(time.Minute, func() bool { return len(withArg(mark)) > 1 }) {
			t.Fatal("the command does not start")
		}
		time.Sleep(wait)
		if len(withArg(mark)) > 1 {
			ran++
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if !within(30*time.Second, func() bool { return len(withArg(mark)) == 0 && len(children()) == 0 }) {
			t.Fatalf("killed after %v: %d processes of the command and %q survive", wait, len(withArg(mark)), children())
		}
	}
	if ran == 0 {
		t.Error("no command had started in any of the runs: the test proves nothing")
	}
	b.run("true").ok(t)
	sameTree(t, before, snapshot(t, b.ws))
	if names := entries(t, b.scratch); len(names) > 0 {
		t.Errorf("left in the scratch root: %q", names)
	}
	if now := read(t, "/proc/self/mountinfo"); now != mounts {
		t.Errorf("the mount table changed:\n%s\nwas:\n%s", now, mounts)
	}
}

// TestLifeTogether: runs that begin and end at all times in one workspace, each
// with placeholders for the same absent names, all run. Promise 11.
func TestLifeTogether(t *testing.T) {
	b := newBox(t, "gate")
	if err := os.MkdirAll(b.ws+"/.git/objects", 0o755); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, b.ws)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 60 {
				if out, err := b.cmd("true").CombinedOutput(); err != nil || len(out) > 0 {
					t.Errorf("%v\n%s", err, out)
				}
			}
		})
	}
	wg.Wait()
	b.run("true").ok(t)
	sameTree(t, before, snapshot(t, b.ws))
}

// entries gives the scratch directories below a scratch root.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	// DIR/wall-UID/wall-ID
	names, err := filepath.Glob(dir + "/*/wall-*")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	return names
}

// TestLifeInitKilled: when pid 1 of the box is killed from outside, the run
// failed. Promise 18.
func TestLifeInitKilled(t *testing.T) {
	b := newBox(t, "gate")
	mark := nonce()
	cmd := b.cmd("/bin/sh", "-c", `echo up; "$1" idle "$2"; exit 0`, "sh", probeBin, mark)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	inits := childrenOf(cmd.Process.Pid)
	if len(inits) != 1 {
		t.Fatalf("the launcher has the children %v, want one", inits)
	}
	if err := unix.Kill(inits[0], unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := shellStatus(cmd.ProcessState); code == 0 {
		t.Error("exit status 0 although the box was killed")
	}
	if !within(30*time.Second, func() bool { return len(withArg(mark)) == 0 }) {
		t.Error("the command survived its pid 1")
	}
}

func childrenOf(pid int) []int {
	var pids []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		data, _ := os.ReadFile(task)
		for _, f := range strings.Fields(string(data)) {
			var n int
			if _, err := fmt.Sscan(f, &n); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// TestLifeNoTrace: after any end, nothing is left on the host. Promise 11.
func TestLifeNoTrace(t *testing.T) {
	need(t, "git")
	for _, profile := range []string{"gate", "agent"} {
		for _, end := range []struct {
			name string
			argv []string
			code int
		}{
			{"success", []string{"/bin/sh", "-c", "echo x >/tmp/x; echo x >/var/tmp/x; echo x >${TMPDIR:-/tmp}/y; mkdir -m 0 /tmp/closed"}, 0},
			{"failure", []string{"/bin/sh", "-c", "exit 3"}, 3},
			{"signal", []string{"/bin/sh", "-c", "kill -KILL $$"}, 137},
			{"not found", []string{"no-such-command-" + nonce()}, 127},
			{"not executable", []string{"$W/file"}, 126},
			{"a directory", []string{"$W"}, 126},
		} {
			t.Run(profile+"/"+end.name, func(t *testing.T) {
				b := newBox(t, profile)
				argv := append([]string(nil), end.argv...)
				argv[0] = strings.ReplaceAll(argv[0], "$W", b.ws)
				host(t, b.ws, "git", "init", "-q", "--template=", ".")
				write(t, b.ws+"/file", "x\n")
				host(t, b.ws, "git", "add", ".")
				b.flags = []string{"--protect", "absent", "--protect", "far/away"}
				before, mounts := snapshot(t, b.ws), read(t, "/proc/self/mountinfo")
				r := b.run(argv...)
				if r.code != end.code {
					t.Errorf("exit status %d, want %d\n%s", r.code, end.code, r.err)
				}
				sameTree(t, before, snapshot(t, b.ws))
				if out := host(t, b.ws, "git", "status", "--porcelain", "--ignored"); out != "A  file\n" {
					t.Errorf("git status: %q", out)
				}
				if names := entries(t, b.scratch); len(names) > 0 {
					t.Errorf("left in the scratch root: %q", names)
				}
				if now := read(t, "/proc/self/mountinfo"); now != mounts {
					t.Errorf("the mount table changed:\n%s\nwas:\n%s", now, mounts)
				}
			})
		}
	}
}

// TestLifeExit: the status is the command's own, and wall's verdicts are told
// from it. Promise 18.
func TestLifeExit(t *testing.T) {
	script := filepath.Join(tempDir(t), "script")
	write(t, script, "#!/no/such/interpreter\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		flags  []string
		argv   []string
		code   int
		status string // in --json
		text   string // on stderr
	}{
		{"zero", nil, []string{"true"}, 0, "exited", ""},
		{"one", nil, []string{"false"}, 1, "exited", ""},
		{"forty-two", nil, []string{"sh", "-c", "exit 42"}, 42, "exited", ""},
		{"125 of its own", nil, []string{"sh", "-c", "exit 125"}, 125, "exited", ""},
		{"255", nil, []string{"sh", "-c", "exit 255"}, 255, "exited", ""},
		{"TERM", nil, []string{"sh", "-c", "kill -TERM $$"}, 143, "signalled", ""},
		{"KILL", nil, []string{"sh", "-c", "kill -KILL $$"}, 137, "signalled", ""},
		{"SEGV", nil, []string{"sh", "-c", "kill -SEGV $$"}, 139, "signalled", ""},
		{"INT", nil, []string{"sh", "-c", "kill -INT $$"}, 130, "signalled", ""},
		{"PIPE", nil, []string{"sh", "-c", "kill -PIPE $$"}, 141, "signalled", ""},
		{"a name not found", nil, []string{"no-such-command"}, 127, "not-run", "no-such-command"},
		{"a path not found", nil, []string{"/no/such/command"}, 127, "not-run", "/no/such/command"},
		{"a directory", nil, []string{"/etc"}, 126, "not-run", "/etc"},
		{"not executable", nil, []string{"/etc/passwd"}, 126, "not-run", "/etc/passwd"},
		{"no interpreter", []string{"--ro", script}, []string{script}, 126, "not-run", "script"},
		{"missing grant", []string{"--ro", "/no/such/grant"}, []string{"true"}, 125, "not-run", "/no/such/grant"},
		{"workspace is root", []string{"--cwd", "/", "--rw", "/no/such"}, []string{"true"}, 125, "not-run", "/no/such"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t, "gate")
			jsonFile := filepath.Join(tempDir(t), "result.json")
			b.flags = append([]string{"--json", jsonFile}, c.flags...)
			r := b.run(c.argv...)
			if r.code != c.code {
				t.Errorf("exit status %d, want %d\n%s", r.code, c.code, r.err)
			}
			if c.text == "" && r.err != "" || !strings.Contains(r.err, c.text) {
				t.Errorf("stderr %q, want %q", r.err, c.text)
			}
			if c.status == "not-run" && !strings.HasPrefix(r.err, "wall: error: ") {
				t.Errorf("stderr %q has no error line", r.err)
			}
			var res struct {
				Status string
				Exit   int
			}
			if err := json.Unmarshal([]byte(read(t, jsonFile)), &res); err != nil || res.Status != c.status || res.Exit != c.code {
				t.Errorf("--json says %+v (%v), want %s %d", res, err, c.status, c.code)
			}
		})
	}
}

// TestLifeSignals: signals to the launcher reach the command, and a launcher
// that was terminated never reports success. Promises 18, 21.
func TestLifeSignals(t *testing.T) {
	b := newBox(t, "gate")
	cmd := b.cmd(probeBin, "signals")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	next := func() string {
		s, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(s)
	}
	if s := next(); s != "ready" {
		t.Fatalf("%q", s)
	}
	for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTERM} {
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if got := next(); got != unix.SignalName(sig) {
			t.Errorf("sent %s, the command got %s", unix.SignalName(sig), got)
		}
	}
	_ = cmd.Wait()
	if code := shellStatus(cmd.ProcessState); code != 42 {
		t.Errorf("exit status %d, want the handler's 42", code)
	}

	cmd = b.cmd("/bin/sh", "-c", `trap "exit 0" TERM; echo ready; while :; do sleep 0.02; done`)
	if out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Signal(unix.SIGTERM)
	_ = cmd.Wait()
	if code := shellStatus(cmd.ProcessState); code == 0 {
		t.Error("exit status 0 for a launcher that was terminated")
	}
}

// TestLifeThread: the thread that started the launcher may end; the box goes
// on. Promise 20.
func TestLifeThread(t *testing.T) {
	b := newBox(t, "gate")
	cmd := b.cmd("/bin/sh", "-c", "sleep 0.3; exit 5")
	started := make(chan error)
	go func() {
		lockForever() // this goroutine's thread ends with it
		started <- cmd.Start()
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := shellStatus(cmd.ProcessState); code != 5 {
		t.Errorf("exit status %d, want 5", code)
	}
}
