package integration_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A verdict is what tests read of the result of a gate.
type verdict struct {
	Status  string
	Exit    int
	Signal  *string
	Enforce string
	Limit   *string
	Output  struct {
		Text        string
		StdoutBytes int64 `json:"stdout_bytes"`
	}
	Warnings []string
	Scratch  *int64 `json:"scratch_bytes"`
	Cleanup  *string
}

// gateCmd is the command line of a gate in the box b; flags "off" takes the walls down.
func gateCmd(b *box, out string, flags []string, argv ...string) *exec.Cmd {
	cmd := b.cmd(argv...)
	for i, a := range cmd.Args {
		if a == "run" {
			cmd.Args[i] = "gate"
			break
		}
	}
	at := len(cmd.Args) - len(argv) - 1 // in front of "--"
	rest := append([]string{"--json", out}, flags...)
	cmd.Args = append(append(append([]string{}, cmd.Args[:at]...), rest...), cmd.Args[at:]...)
	return cmd
}

// gated runs a gate to its end and checks that the three forms of its verdict agree.
func gated(t *testing.T, b *box, flags []string, argv ...string) (verdict, result) {
	t.Helper()
	out := filepath.Join(tempDir(t), "result.json")
	r := finish(t, gateCmd(b, out, flags, argv...))
	var v verdict
	if err := json.Unmarshal([]byte(read(t, out)), &v); err != nil {
		t.Fatalf("%v\n%s", err, r.err)
	}
	if v.Exit != r.code {
		t.Errorf("%q: the result says %d, and wall ended with %d", argv, v.Exit, r.code)
	}
	if (v.Status == "passed") != (r.code == 0) || (v.Status == "passed") != strings.HasPrefix(r.out, "wall: gate: passed in ") {
		t.Errorf("%q: status %s, exit status %d, text %q", argv, v.Status, r.code, r.out)
	}
	return v, r
}

// bothLevels runs f with the walls up and down.
func bothLevels(t *testing.T, f func(t *testing.T, flags []string)) {
	t.Run("gate", func(t *testing.T) { f(t, nil) })
	t.Run("off", func(t *testing.T) { f(t, []string{"--enforce", "off"}) })
}

// TestGateVerdicts: commands of every kind get the right verdict and leave nothing
// behind. Promises 18, 19.
func TestGateVerdicts(t *testing.T) {
	bothLevels(t, func(t *testing.T, flags []string) {
		mark := nonce()
		t.Cleanup(func() { killMarked(mark) })
		for _, tt := range []struct {
			name, script, status string
			exit                 int
			text                 string
		}{
			{"passing", "echo fine", "passed", 0, "fine"},
			{"silent", ":", "passed", 0, ""},
			{"failing", "echo no; exit 3", "failed", 3, "no"},
			{"failing like wall", "exit 125", "failed", 125, ""},
			{"signalled", "echo x; kill -SEGV $$", "failed", 139, "x"},
			{"killed", "kill -KILL $$", "failed", 137, ""},
			{"orphan-leaving", leftovers + "echo left; exit 0", "passed", 0, "left"},
			{"orphan-leaving and failing", leftovers + "exit 6", "failed", 6, ""},
			{"daemon that holds the output", `setsid "$1" idle "$2" & echo held`, "passed", 0, "held"},
			{"stopping itself", `(while kill -CONT $$; do sleep 0.3; done) 2>/dev/null & kill -STOP $$; echo on`, "passed", 0, "on"},
			{"closing its output", "exec >&- 2>&-; exit 2", "failed", 2, ""},
			{"stopping itself for ever", `echo stopped; kill -STOP $$`, "timed-out", 124, "stopped"},
			{"timing out", "echo partial; " + leftovers + "sleep 1000", "timed-out", 124, "partial"},
			{"timing out, deaf to signals", `echo deaf; trap '' TERM; "$1" idle -ignore "$2" & while :; do sleep 1; done`, "timed-out", 124, "deaf"},
			{"flooding", "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end", "passed", 0, ""},
		} {
			b := newBox(t, "gate")
			if tt.status == "timed-out" {
				b.flags = []string{"--limit", "time=2s", "--limit", "grace=300ms"}
			}
			v, r := gated(t, b, flags, "/bin/sh", "-c", tt.script, "sh", probeBin, mark)
			if v.Status != tt.status || v.Exit != tt.exit {
				t.Errorf("%s: %s, exit %d\n%s", tt.name, v.Status, v.Exit, r.err)
			}
			if tt.text != "" && v.Output.Text != tt.text || tt.name == "flooding" && !strings.HasSuffix(v.Output.Text, "xxx\nend") {
				t.Errorf("%s: output %q", tt.name, v.Output.Text)
			}
			if !within(time.Minute, func() bool { return len(withArg(mark)) == 0 }) {
				t.Errorf("%s: %d processes outlived the gate", tt.name, len(withArg(mark)))
				killMarked(mark)
			}
			if names := entries(t, b.scratch); len(names) > 0 || v.Cleanup != nil {
				t.Errorf("%s: left in the scratch root: %q", tt.name, names)
			}
		}
	})
}

// TestGateFlood: a gibibyte on both streams takes no more memory than a line.
// Promise 23.
func TestGateFlood(t *testing.T) {
	bothLevels(t, func(t *testing.T, flags []string) {
		b := newBox(t, "gate")
		out := filepath.Join(tempDir(t), "result.json")
		cmd := gateCmd(b, out, flags, "/bin/sh", "-c", "head -c 536870912 /dev/zero & head -c 536870912 /dev/zero >&2; wait; echo end")
		var errs strings.Builder
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// What wall has had resident at most, until it has ended. The usage that Wait gives
		// begins with what this process had when it started wall.
		peak := 0
		status := fmt.Sprintf("/proc/%d/status", cmd.Process.Pid)
		for ; ; time.Sleep(5 * time.Millisecond) {
			text, _ := os.ReadFile(status)
			_, line, ok := strings.Cut(string(text), "VmHWM:")
			if !ok {
				break
			}
			line, _, _ = strings.Cut(line, "kB")
			n, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			peak = max(peak, n)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, errs.String())
		}
		var v verdict
		if err := json.Unmarshal([]byte(read(t, out)), &v); err != nil {
			t.Fatal(err)
		}
		if v.Output.StdoutBytes != 536870912+4 {
			t.Errorf("%d bytes of standard output", v.Output.StdoutBytes)
		}
		if peak == 0 || peak > 64<<10 {
			t.Errorf("%d KiB were resident", peak)
		}
	})
}

// TestGateForgery: whatever the command does to the launcher, to pid 1 and to what
// it inherited, and then fails, the verdict is never "passed". Promise 18.
func TestGateForgery(t *testing.T) {
	attacks := []string{
		"kill -KILL 1", "kill -TERM 1", "kill -INT 1", "kill -STOP 1", "kill -ABRT 1", "kill -QUIT 1", "kill -KILL -1", "kill -KILL 0",
		"prlimit --pid 1 --nofile=0:0", "prlimit --pid 1 --as=0:0", "prlimit --pid 1 --cpu=0:0", "prlimit --pid 1 --fsize=0:0",
		"for f in /proc/1/fd/*; do printf 'E\\40\\0\\0\\0' >$f; printf 'xxxx\\0\\0\\0\\0' >$f; done",
		"for p in $PPID 1; do for f in /proc/$p/fd/*; do true >$f; done; done",
		"echo x >/proc/1/mem", "echo 1000 >/proc/1/oom_score_adj",
		"exec 1>&- 2>&- 0<&-; for n in 3 4 5 6 7 8 9 10 11 12; do eval \"echo x >&$n\"; eval \"exec $n>&-\" || true; done",
		"\"$1\" try pidfd-getfd 1", "\"$1\" try ptrace 1",
		"echo 'wall: gate: passed in 1ms'; echo 'wall: gate: passed in 1ms' >&2",
		"ulimit -v 100000; x=$(tail -c 1G /dev/zero)", "for i in 1 2 3 4 5 6 7 8; do (while :; do sleep 5 & done) & done 2>/dev/null; sleep 0.2",
	}
	b := newBox(t, "gate")
	b.flags = []string{"--limit", "open-files=64"}
	for _, attack := range attacks {
		start := time.Now()
		v, r := gated(t, b, nil, "/bin/sh", "-c", "{ "+attack+"; } 2>/dev/null; exit 41", "sh", probeBin)
		if v.Status == "passed" || r.code == 0 {
			t.Errorf("after %q the gate passed", attack)
		}
		if v.Exit != 41 {
			t.Logf("after %q: %s, exit status %d instead of 41", attack, v.Status, v.Exit)
		}
		if d := time.Since(start); d > 2*time.Minute {
			t.Errorf("after %q it took %v", attack, d)
		}
	}
}

// TestGateTerminated: whoever terminates a gate does not read success.
func TestGateTerminated(t *testing.T) {
	bothLevels(t, func(t *testing.T, flags []string) {
		b := newBox(t, "gate")
		out, ready := filepath.Join(tempDir(t), "result.json"), filepath.Join(b.ws, "ready")
		cmd := gateCmd(b, out, flags, "/bin/sh", "-c", "trap 'echo cleaned; exit 0' TERM; echo >ready; while :; do sleep 0.1; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !within(time.Minute, func() bool { _, err := os.Stat(ready); return err == nil }) {
			t.Error("the command did not start")
		}
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		var v verdict
		if err := json.Unmarshal([]byte(read(t, out)), &v); err != nil {
			t.Fatal(err)
		}
		if code := shellStatus(cmd.ProcessState); code != 143 || v.Status != "failed" || v.Exit != 143 || !strings.HasPrefix(v.Output.Text, "cleaned") {
			t.Errorf("exit status %d, %s, %d, %q", code, v.Status, v.Exit, v.Output.Text)
		}
	})
}

// TestGateToldToEnd: a command that makes nothing of being told to end is ended after
// its grace, with all that it started, and the gate has not passed; neither has one that
// ends with 0 then.
func TestGateToldToEnd(t *testing.T) {
	bothLevels(t, func(t *testing.T, flags []string) {
		for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
			for _, deaf := range []bool{true, false} {
				b := newBox(t, "gate")
				out, ready := filepath.Join(tempDir(t), "result.json"), filepath.Join(b.ws, "ready")
				line := "trap 'exit 0' TERM INT HUP; echo >ready; while :; do sleep 0.01; done"
				if deaf { // others have the time that they need
					b.flags = append(b.flags, "--limit", "grace=100ms")
					line = "trap '' TERM INT HUP; sleep 1000 & setsid sleep 1000 & echo begun; echo >ready; while :; do sleep 0.01; done"
				}
				cmd := gateCmd(b, out, flags, "/bin/sh", "-c", line)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if !within(time.Minute, func() bool { _, err := os.Stat(ready); return err == nil }) {
					t.Error("the command did not start")
				}
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- cmd.Wait() }()
				select {
				case <-done:
				case <-time.After(2 * time.Minute):
					_ = cmd.Process.Kill()
					t.Fatalf("%v, deaf %t: it did not end", s, deaf)
				}
				var v verdict
				if err := json.Unmarshal([]byte(read(t, out)), &v); err != nil {
					t.Fatal(err)
				}
				want, text := 128+int(s), ""
				if deaf {
					want, text = 137, "begun"
				}
				if code := shellStatus(cmd.ProcessState); code != want || v.Status != "failed" || v.Exit != want || !strings.Contains(v.Output.Text, text) {
					t.Errorf("%v, deaf %t: exit status %d, want %d; %s, %d, %q", s, deaf, code, want, v.Status, v.Exit, v.Output.Text)
				}
			}
		}
	})
}

// TestGateReaderGone: whoever reads the copy of the output may go away; the gate gives
// its verdict all the same, and leaves nothing behind.
func TestGateReaderGone(t *testing.T) {
	bothLevels(t, func(t *testing.T, flags []string) {
		b := newBox(t, "gate")
		out, pid := filepath.Join(tempDir(t), "result.json"), filepath.Join(b.ws, "pid")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := gateCmd(b, out, append([]string{"--stream"}, flags...), "/bin/sh", "-c", "sleep 1000 & echo $! >pid; echo x; while [ ! -e go ]; do sleep 0.01; done; echo y; echo z; exit 5")
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if _, err := r.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
		r.Close()
		write(t, b.ws+"/go", "")
		_ = cmd.Wait()
		var v verdict
		if err := json.Unmarshal([]byte(read(t, out)), &v); err != nil {
			t.Fatal(err)
		}
		if code := shellStatus(cmd.ProcessState); code != 5 || v.Status != "failed" || !strings.HasSuffix(v.Output.Text, "z") || !strings.Contains(fmt.Sprint(v.Warnings), "standard output is not complete") {
			t.Errorf("exit status %d, %s, %q, %q", code, v.Status, v.Output.Text, v.Warnings)
		}
		if len(flags) > 0 { // its number is the host's
			if n, err := strconv.Atoi(strings.TrimSpace(read(t, pid))); err != nil || unix.Kill(n, 0) == nil {
				t.Errorf("%v: process %d is left", err, n)
			}
		}
	})
}

// TestGateMany: 200 gates at once, in one workspace and of one scratch root, all have
// the right verdict and leave nothing behind.
func TestGateMany(t *testing.T) {
	const n = 200
	b := newBox(t, "gate")
	b.flags = []string{"--protect", "absent/name"}
	write(t, b.ws+"/.git/HEAD", "ref: refs/heads/main\n")
	before, mounts := snapshot(t, b.ws), read(t, "/proc/self/mountinfo")
	mark := nonce()
	t.Cleanup(func() { killMarked(mark) })
	dir := tempDir(t)
	var wg sync.WaitGroup
	for i := range n {
		want := i % 7 // 0 passes
		cmd := gateCmd(b, filepath.Join(dir, fmt.Sprint(i)), nil, "/bin/sh", "-c", `"$1" idle "$2" & echo run `+fmt.Sprint(i)+fmt.Sprintf("; exit %d", want), "sh", probeBin, mark)
		wg.Go(func() {
			var errs strings.Builder
			cmd.Stderr = &errs
			_ = cmd.Run()
			var v verdict
			data, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)))
			if err == nil {
				err = json.Unmarshal(data, &v)
			}
			status := map[bool]string{true: "passed", false: "failed"}[want == 0]
			if err != nil || v.Status != status || v.Exit != want || shellStatus(cmd.ProcessState) != want || v.Output.Text != fmt.Sprint("run ", i) {
				t.Errorf("gate %d: %v, %+v, exit status %d, want %d\n%s", i, err, v, shellStatus(cmd.ProcessState), want, errs.String())
			}
		})
	}
	wg.Wait()
	if !within(30*time.Second, func() bool { return len(withArg(mark)) == 0 && len(children()) == 0 }) {
		t.Errorf("%d processes and %q are left", len(withArg(mark)), children())
	}
	sameTree(t, before, snapshot(t, b.ws))
	if names := entries(t, b.scratch); len(names) > 0 {
		t.Errorf("left in the scratch root: %q", names)
	}
	if now := read(t, "/proc/self/mountinfo"); now != mounts {
		t.Errorf("the mount table changed:\n%s\nwas:\n%s", now, mounts)
	}
}

// TestGateKilled: whenever the launcher of a gate is killed, nothing survives, no
// verdict is there, and the next run collects the scratch. Promises 11, 20.
func TestGateKilled(t *testing.T) {
	b := newBox(t, "gate")
	b.flags = []string{"--protect", "absent/name"}
	before := snapshot(t, b.ws)
	mark := nonce()
	t.Cleanup(func() { killMarked(mark) })
	out := filepath.Join(tempDir(t), "result.json")
	ran := 0
	for i := range 50 {
		wait := time.Duration(rand.IntN(40_000)) * time.Microsecond
		cmd := gateCmd(b, out, nil, "/bin/sh", "-c", leftovers+"sleep 100", "sh", probeBin, mark)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The launcher's own argv holds the mark, too.
		if i%3 == 0 && !within(time.Minute, func() bool { return len(withArg(mark)) > 1 }) {
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
		if _, err := os.Stat(out); err == nil {
			t.Fatalf("killed after %v, there is a verdict: %s", wait, read(t, out))
		}
	}
	if ran == 0 {
		t.Error("no command had started in any of the runs: the test proves nothing")
	}
	if v, _ := gated(t, b, nil, "true"); v.Status != "passed" {
		t.Errorf("afterwards: %s", v.Status)
	}
	sameTree(t, before, snapshot(t, b.ws))
	if names := entries(t, b.scratch); len(names) > 0 {
		t.Errorf("left in the scratch root: %q", names)
	}
}

// TestGateLogUnreachable: the command can do nothing to a log next to its
// workspace, although it is written while the command runs.
func TestGateLogUnreachable(t *testing.T) {
	b := newBox(t, "gate")
	dir := tempDir(t)
	log := filepath.Join(dir, "gate.log")
	v, _ := gated(t, b, []string{"--log", log}, "/bin/sh", "-c", `echo first; true >"$1"; rm "$1"; mv "$1" x; ln -sf /etc/passwd "$1"; echo last`, "sh", log)
	if v.Status == "not-run" {
		t.Fatalf("%+v", v)
	}
	if text := read(t, log); !strings.Contains(text, "first\n") || !strings.Contains(text, "last\n") {
		t.Errorf("the log holds %q", text)
	}
	// The workspace under another name is the workspace.
	other := filepath.Join(tempDir(t), "link")
	if err := os.Symlink(b.ws, other); err != nil {
		t.Fatal(err)
	}
	if v, r := gated(t, b, []string{"--log", filepath.Join(other, "x.log")}, "true"); v.Status != "not-run" || r.code != 125 {
		t.Errorf("a log in the workspace: %+v", v)
	}
}

// TestReproduceElsewhere: a record made by one user reproduces in a fresh clone by
// another one, with the same verdict. As an ordinary user only the place is another.
func TestReproduceElsewhere(t *testing.T) {
	need(t, "git")
	b := newBox(t, "gate")
	b.scratch = "" // of each user's own
	write(t, b.ws+"/Makefile", "all:\n\t@cat input; pwd; exit 3\n")
	write(t, b.ws+"/input", "from the tree\n")
	git := func(dir string, args ...string) {
		t.Helper()
		host(t, dir, append([]string{"git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"}, args...)...)
	}
	git(b.ws, "init", "-q")
	git(b.ws, "add", "-A")
	git(b.ws, "commit", "-qm", "one")
	shared, err := os.MkdirTemp("", "wall-it-shared-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(shared) })
	record, clone := filepath.Join(shared, "gate.record"), filepath.Join(shared, "clone")
	git(b.ws, "clone", "-q", ".", clone)
	v, r := gated(t, b, []string{"--record", record}, "/bin/sh", "-c", "make; exit $?")
	if v.Status != "failed" || r.code != 2 {
		t.Fatalf("%+v\n%s%s", v, r.out, r.err)
	}
	out := filepath.Join(shared, "out.json")
	cmd := exec.Command(wallBin, "reproduce", "--accept-profile", "--json", out, record) // the test grants the probe
	cmd.Dir = clone
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	if os.Getuid() == 0 {
		const nobody = 65534
		for _, name := range []string{shared, record, clone} {
			if err := os.Chmod(name, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		err := filepath.WalkDir(shared, func(name string, _ os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Lchown(name, nobody, nobody)
		})
		if err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	again := finish(t, cmd)
	var w verdict
	if err := json.Unmarshal([]byte(read(t, out)), &w); err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(v.Output.Text, b.ws, clone)
	if again.code != r.code || w.Status != v.Status || w.Exit != v.Exit || w.Output.Text != want {
		t.Errorf("exit status %d, %+v, want %+v\n%s", again.code, w, v, again.err)
	}
	if !strings.Contains(again.err, "with the verdict failed and exit status 2") || strings.Contains(again.err, "commit") {
		t.Errorf("%s", again.err)
	}
	if err := os.WriteFile(record, []byte(strings.Replace(read(t, record), "exit $?", "exit 0; ", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(wallBin, "reproduce", record)
	cmd.Dir = clone
	if r := finish(t, cmd); r.code != 125 || !strings.Contains(r.err, "it was changed after wall wrote it") {
		t.Errorf("a tampered record: exit status %d\n%s", r.code, r.err)
	}
}

// TestGateMemory: a command that exhausts its memory is ended, and the verdict says
// by what, whatever it then ends with.
func TestGateMemory(t *testing.T) {
	b := newBox(t, "gate")
	b.flags = []string{"--limit", "memory=64MiB", "--if-unavailable", "degrade"} // by a cgroup, or else a watch
	v, r := gated(t, b, nil, "/bin/sh", "-c", "echo begun; x=$(head -c 500000000 /dev/zero | tr '\\0' x); exit 0")
	if v.Status != "limit" || r.code != 123 || v.Limit == nil || *v.Limit != "memory" || v.Output.Text != "begun" {
		t.Errorf("%+v, exit status %d\n%s", v, r.code, r.err)
	}
	if !strings.Contains(r.err, "--limit memory=64MiB") {
		t.Errorf("the message does not say who asked for it: %s", r.err)
	}
}
