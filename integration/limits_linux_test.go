package integration_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// limited gives b every limit that the caller can have here. Root has a cgroup;
// others may have none, and then RLIMIT_NPROC.
func (b *box) limited(t *testing.T) *box {
	t.Helper()
	b.flags = append(b.flags, "--limit", "processes=200", "--limit", "scratch=1GiB", "--timeout", "10m", "--if-unavailable", "degrade", "--limit", "memory=2GiB")
	if os.Getuid() == 0 {
		need(t, "cgroup")
	}
	return b
}

// groupsOf gives the cgroups of runs next to those that b would have; all are
// this test's or of other runs on the machine.
func (b *box) groupsOf(t *testing.T) []string {
	t.Helper()
	argv := b.argv("true")
	cmd := exec.Command(argv[0], append([]string{"plan", "--json"}, argv[2:]...)...)
	cmd.Dir = b.ws
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Bounds struct{ Cgroup struct{ Memory, Pids string } }
	}
	if err := json.Unmarshal(out, &p); err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, dir := range []string{p.Bounds.Cgroup.Memory, p.Bounds.Cgroup.Pids} {
		if dir != "" {
			names, _ := filepath.Glob(dir + "/wall-*")
			all = append(all, names...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lacksGroups waits until none of the groups that were not there before is left. The
// kernel may take a moment to let go of a process that was killed, so that the
// run after the next removes its group.
func (b *box) lacksGroups(t *testing.T, before []string) {
	t.Helper()
	var left []string
	if !within(30*time.Second, func() bool {
		left = slices.DeleteFunc(b.groupsOf(t), func(s string) bool { return slices.Contains(before, s) })
		if len(left) > 0 {
			b.run("true").ok(t)
		}
		return len(left) == 0
	}) {
		t.Errorf("cgroups are left: %q", left)
	}
}

// TestLimitsKill: with every limit on, a SIGKILL of the launcher at any moment
// leaves no process, and the next run removes the cgroup and the scratch directory.
func TestLimitsKill(t *testing.T) {
	b := newBox(t, "gate").limited(t)
	before := b.groupsOf(t)
	mark := nonce()
	t.Cleanup(func() { killMarked(mark) })
	ran := 0
	for i := range 50 {
		wait := time.Duration(rand.IntN(30_000)) * time.Microsecond
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
	if names := entries(t, b.scratch); len(names) > 0 {
		t.Errorf("left in the scratch root: %q", names)
	}
	b.lacksGroups(t, before)
}

// TestLimitsConcurrent: many runs at a time make, enter and collect groups next to each
// other, and every one ends as its command does.
func TestLimitsConcurrent(t *testing.T) {
	b := newBox(t, "gate").limited(t)
	before := b.groupsOf(t)
	const runs = 200
	bad := make([]string, runs)
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			if r := b.sh(fmt.Sprintf("sleep 1; exit %d", i%100)); r.code != i%100 {
				bad[i] = fmt.Sprintf("run %d: exit status %d: %s", i, r.code, r.err)
			}
		})
	}
	wg.Wait()
	if bad = slices.DeleteFunc(bad, func(s string) bool { return s == "" }); len(bad) > 0 {
		t.Errorf("%d runs failed, the first:\n%s", len(bad), bad[0])
	}
	if names := entries(t, b.scratch); len(names) > 0 {
		t.Errorf("left in the scratch root: %q", names)
	}
	b.lacksGroups(t, before)
}

// TestLimitsStopped: the clock of a limit goes on while wall itself is stopped.
func TestLimitsStopped(t *testing.T) {
	b := newBox(t, "gate")
	b.flags = []string{"--timeout", "2s"}
	cmd := b.cmd("/bin/sh", "-c", "echo >ready; sleep 600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if !within(time.Minute, func() bool { _, err := os.Stat(b.ws + "/ready"); return err == nil }) {
		t.Fatal("the command does not run")
	}
	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second)
	if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 124 {
		t.Errorf("%v, want exit status 124", err)
	}
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("it ended %v after it was continued", d)
	}
}

// TestLimitsOutOfReach: nothing inside reaches what keeps the limits.
func TestLimitsOutOfReach(t *testing.T) {
	profile := filepath.Join(tempDir(t), "nested.toml")
	if err := os.WriteFile(profile, []byte("version = 1\nextends = \"gate\"\n[process]\nnested-sandboxes = true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"gate", profile} {
		b := newBox(t, p).limited(t)
		// A new user namespace gives every capability over what is made in it.
		r := b.sh(`ls -A /sys/fs/cgroup 2>/dev/null
			ulimit -p unlimited 2>/dev/null && echo raised
			for t in "cgroup -o memory" "cgroup -o pids" cgroup2; do
				unshare -UmC --propagation unchanged sh -c "mount -t $t none /tmp && echo mounted $t" 2>/dev/null
			done
			for f in /proc/self/root/sys/fs/cgroup/*; do [ -w "$f" ] && echo "$f"; done
			echo end`)
		if out := strings.TrimSpace(r.ok(t)); out != "end" {
			t.Errorf("profile %s: %q", p, out)
		}
	}
}

// TestLimitsTold: the sentence, the line that asked, and the result.
func TestLimitsTold(t *testing.T) {
	if os.Getuid() == 0 {
		need(t, "cgroup")
	}
	file := filepath.Join(tempDir(t), "limits.toml")
	if err := os.WriteFile(file, []byte("version = 1\nextends = \"gate\"\n[limits]\nprocesses = 30\nscratch = \"10MiB\"\ntime = \"1m\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		script, name, line, told string
		flags                    []string
		status                   string
		code                     int
	}{
		{`(while :; do sleep 600 & done) 2>/dev/null; exec sleep 600`, "processes", file + ":4:1: processes = 30", "the box was ended because it was to have more than 30 processes and threads", nil, "limit", 123},
		{`head -c 50000000 /dev/zero >/tmp/x; sleep 600`, "scratch", file + ":5:1: scratch = \"10MiB\"", "the box was ended because its scratch directory became larger than 10MiB", nil, "limit", 123},
		{`sleep 600`, "time", "--timeout 1s", "the command ran longer than 1s and was ended", []string{"--timeout", "1s"}, "timed-out", 124},
	} {
		b := newBox(t, file)
		out := filepath.Join(tempDir(t), "result.json")
		b.flags = append(tt.flags, "--json", out)
		r := b.sh(tt.script)
		if r.code != tt.code || !strings.HasPrefix(r.err, "wall: error: "+tt.told+"\n  at "+tt.line+"\n  hint: ") || strings.Count(r.err, "error:") != 1 {
			t.Errorf("%s: exit status %d, standard error:\n%s", tt.name, r.code, r.err)
		}
		var got struct {
			Status, Limit string
			Exit          int
			Error         struct{ Op string }
		}
		if err := json.Unmarshal([]byte(read(t, out)), &got); err != nil || got.Status != tt.status || got.Limit != tt.name || got.Exit != tt.code || got.Error.Op != tt.told {
			t.Errorf("%s: the result is %+v, %v", tt.name, got, err)
		}
	}
}
