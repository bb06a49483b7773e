package nsexec

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/cgroup"
	"github.com/wallsandbox/wall/plan"
)

var boundOrigin = plan.Origin{File: "gate.toml", Line: 7, Text: "the limit"}

func bound(n uint64, by plan.BoundBy) plan.Bound {
	return plan.Bound{Value: n, By: by, Origin: boundOrigin}
}

// measure is run with the result.
func measure(t *testing.T, p plan.Plan) (string, Result, error) {
	t.Helper()
	var out bytes.Buffer
	c := Command(p)
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if err := c.CleanupError(); err != nil {
		t.Error(err)
	}
	return out.String(), c.Result(), err
}

// timed gives p a limit of time.
func timed(p plan.Plan, limit, grace time.Duration) plan.Plan {
	p.Bounds.Time = bound(uint64(limit), plan.ByTimer)
	p.Bounds.Grace = bound(uint64(grace), plan.ByTimer)
	return p
}

// grouped gives p limits that a cgroup keeps, or skips where there is none.
func grouped(t *testing.T, p plan.Plan, memory, processes uint64) plan.Plan {
	t.Helper()
	if os.Getuid() == 0 {
		need(t, "cgroup")
	} else {
		need(t, "delegated-cgroup")
	}
	c, err := cgroup.Find(cgroup.Need{Memory: memory > 0, Pids: processes > 0}, p.Scratch.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Bounds.Cgroup = c
	if memory > 0 {
		p.Bounds.Memory = bound(memory, plan.ByCgroup)
	}
	if processes > 0 {
		p.Bounds.Processes = bound(processes, plan.ByCgroup)
	}
	return p
}

// started runs p, which begins when it gets a line after Start has returned, and has to be
// ended by the limit of that name.
func started(t *testing.T, p plan.Plan, name string) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Fd() // makes it blocking, as the shell expects
	var out bytes.Buffer
	cmd := Command(p)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = r, &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = w.WriteString("go\n")
	w.Close()
	_ = cmd.Wait()
	if res := cmd.Result(); res.Limit != name || res.Status() != plan.ExitLimit || res.Doubt {
		t.Errorf("%+v, want the limit of %s; output %q", res, name, out.String())
	}
	return out.String()
}

// wantLimit runs p, which has to be ended by the limit of that name, and gives the output.
func wantLimit(t *testing.T, p plan.Plan, name string) (string, Result) {
	t.Helper()
	out, res, err := measure(t, p)
	var exit *ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("%v, want an ExitError; output %q", err, out)
	}
	want := plan.ExitLimit
	if name == plan.BoundTime {
		want = plan.ExitTimeout
	}
	if res.Status() != want || res.TimedOut != (name == plan.BoundTime) || name != plan.BoundTime && res.Limit != name {
		t.Errorf("%+v, want the limit of %s; output %q", res, name, out)
	}
	over := res.Exceeded(p)
	var pe *plan.Error
	if !errors.As(over, &pe) || pe.Origin != boundOrigin || plan.ExitStatus(over) != want {
		t.Errorf("Exceeded gives %#v", over)
	}
	for _, dir := range p.Bounds.Cgroup.Dirs() {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup %s is left: %v", dir, err)
		}
	}
	if _, err := os.Stat(p.Scratch.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the scratch directory is left: %v", err)
	}
	return out, res
}

// TestTimeLimitTerminates: SIGTERM reaches every process of the group, and a
// command that obeys is not killed. The limit is its end all the same.
func TestTimeLimitTerminates(t *testing.T) {
	p := testPlan(t, "sh", "-c", `
		sh -c 'trap "echo child; exit 0" TERM; echo ready; while :; do sleep 0.05; done' &
		trap 'wait; echo parent; exit 0' TERM
		while :; do sleep 0.05; done`)
	out, res := wantLimit(t, timed(p, 3*time.Second, time.Minute), plan.BoundTime)
	if !strings.HasPrefix(out, "ready\n") || !strings.Contains(out, "child\n") || !strings.Contains(out, "parent\n") {
		t.Errorf("output %q, want both processes to have had SIGTERM", out)
	}
	if res.Killed || res.ExitCode != 0 {
		t.Errorf("%+v, want it to have ended by itself", res)
	}
	if res.Wall < 3*time.Second || res.Wall > time.Minute {
		t.Errorf("it took %v", res.Wall)
	}
}

// TestTimeLimitKills: what ignores SIGTERM is killed after the grace, and so is
// all that it has started; the output so far is kept.
func TestTimeLimitKills(t *testing.T) {
	p := testPlan(t, "sh", "-c", `trap "" TERM; echo partial; setsid sleep 600 & while :; do sleep 0.05; done`)
	out, res := wantLimit(t, timed(p, 3*time.Second, time.Second), plan.BoundTime)
	if out != "partial\n" || !res.Killed || res.Wall < 4*time.Second {
		t.Errorf("output %q, %+v", out, res)
	}
	p = testPlan(t, "sh", "-c", `trap "echo term" TERM; echo partial; while :; do sleep 0.05; done`)
	if out, res := wantLimit(t, timed(p, 3*time.Second, 0), plan.BoundTime); out != "partial\n" || !res.Killed {
		t.Errorf("without a grace: output %q, %+v", out, res)
	}
}

// TestTimeLimitWakes: a command that has stopped itself is woken up to handle SIGTERM.
func TestTimeLimitWakes(t *testing.T) {
	p := testPlan(t, "sh", "-c", `trap "echo bye; exit 3" TERM; kill -STOP $$; while :; do sleep 0.05; done`)
	if out, res := wantLimit(t, timed(p, 3*time.Second, time.Minute), plan.BoundTime); out != "bye\n" || res.ExitCode != 3 {
		t.Errorf("output %q, %+v", out, res)
	}
}

func TestTimeLimitNotReached(t *testing.T) {
	p := testPlan(t, "sh", "-c", `exit 5`)
	_, res, err := measure(t, timed(p, time.Hour, time.Hour))
	if res.Status() != 5 || res.TimedOut || res.Exceeded(p) != nil {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestTimeLimitWithoutABox: then the process group is what is ended.
func TestTimeLimitWithoutABox(t *testing.T) {
	p := testPlan(t, "sh", "-c", `trap "" TERM; sleep 600 & echo $!; while :; do sleep 0.05; done`)
	p = timed(p, 3*time.Second, time.Second)
	p.Enforce, p.Spaces, p.Mounts, p.Landlock, p.Checks = plan.EnforceOff, nil, nil, plan.Landlock{}, nil
	out, res := wantLimit(t, p, plan.BoundTime)
	if res.Signal != unix.SIGKILL {
		t.Errorf("%+v", res)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(out) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("process %q of the group is still there", out)
		}
	}
}

// TestOwnGroupEndsWithTheCommand: as gates need it without a box.
func TestOwnGroupEndsWithTheCommand(t *testing.T) {
	p := testPlan(t, "sh", "-c", `sleep 600 >/dev/null 2>&1 & echo $!`)
	p.Enforce, p.Spaces, p.Mounts, p.Landlock, p.Checks = plan.EnforceOff, nil, nil, plan.Landlock{}, nil
	cmd := Command(p)
	cmd.OwnGroup = true
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(out.String()) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("a process of the group outlives the command")
		}
	}
}

// tmpInMemory makes the /tmp of p a tmpfs.
func tmpInMemory(p plan.Plan) {
	for i, m := range p.Mounts {
		if m.Target == "/tmp" {
			p.Mounts[i] = plan.Mount{Op: plan.OpTmpfs, Target: "/tmp", Mode: 0o1777, Size: 1 << 30}
		}
	}
}

const (
	eatMemory = `x=$(head -c 200000000 /dev/zero | tr '\0' x); sleep 600`
	// The shell ends when fork(2) fails; what it has made stays.
	forkBomb = `(i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i+1)); done) 2>/dev/null; exec sleep 600`
)

func TestMemoryLimit(t *testing.T) {
	p := grouped(t, testPlan(t, "sh", "-c", eatMemory), 64<<20, 0)
	_, res := wantLimit(t, p, plan.BoundMemory)
	if res.PeakMemory < 32<<20 || res.PeakMemory > 65<<20 || res.UserTime+res.SysTime == 0 {
		t.Errorf("%+v, want a peak of 64 MiB and some time", res)
	}
	// A child that is killed for want of memory ends the box, too.
	p = grouped(t, testPlan(t, "sh", "-c", `(`+eatMemory+`); echo goes on; sleep 600`), 64<<20, 0)
	wantLimit(t, p, plan.BoundMemory)
	// So does memory in files.
	p = grouped(t, testPlan(t, "sh", "-c", `head -c 200000000 /dev/zero >/tmp/x; sleep 600`), 64<<20, 0)
	tmpInMemory(p)
	wantLimit(t, p, plan.BoundMemory)
}

// TestMemoryLimitToStartIn: a limit in which the box cannot be built is told.
func TestMemoryLimitToStartIn(t *testing.T) {
	p := grouped(t, testPlan(t, "sh", "-c", "echo ran"), 256<<10, 0)
	out, _, err := measure(t, p)
	if err == nil || out != "" || plan.ExitStatus(err) != plan.ExitFailed || !strings.Contains(err.Error(), "within its limit of memory") {
		t.Errorf("output %q, error %v", out, err)
	}
	for _, dir := range p.Bounds.Cgroup.Dirs() {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the cgroup %s is left: %v", dir, err)
		}
	}
}

func TestProcessLimit(t *testing.T) {
	wantLimit(t, grouped(t, testPlan(t, "sh", "-c", forkBomb), 0, 40), plan.BoundProcesses)
	// Up to the limit all is well.
	p := grouped(t, testPlan(t, "sh", "-c", `for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3 & done; wait; echo fine`), 1<<30, 10)
	out, res, err := measure(t, p)
	if err != nil || out != "fine\n" || res.PeakMemory == 0 {
		t.Errorf("output %q, %+v, %v", out, res, err)
	}
}

// TestProcessLimitOfTheUser: RLIMIT_NPROC counts the processes of the box alone
// and does not bind root.
func TestProcessLimitOfTheUser(t *testing.T) {
	// What lasts is seen, and ends the box.
	p := testPlan(t, "sh", "-c", forkBomb)
	p.Bounds.Processes = bound(40, plan.ByRlimit)
	wantLimit(t, p, plan.BoundProcesses)
	p = testPlan(t, "sh", "-c", `for i in 1 2 3 4 5 6 7 8 9; do sleep 0.3 & done; wait; echo fine`)
	p.Bounds.Processes = bound(10, plan.ByRlimit)
	if out, _, err := measure(t, p); err != nil || out != "fine\n" {
		t.Errorf("output %q, %v", out, err)
	}
}

// TestProcessLimitIsExact: as many processes can be made as the limit says, the
// command itself among them. Where RLIMIT_NPROC keeps it, some more have to be there
// to be seen. The shell gives up at the first fork that fails, long before a watch looks
// again, and the limit is why the box ended all the same.
func TestProcessLimitIsExact(t *testing.T) {
	const script = `read go || exit; echo 0; i=0; while [ $i -lt 200 ]; do sleep 20 & i=$((i+1)); echo $i; done`
	made := func(t *testing.T, p plan.Plan) int {
		t.Helper()
		out := started(t, p, plan.BoundProcesses)
		var numbers []string
		for line := range strings.Lines(out) {
			if strings.Trim(line, "0123456789\n") == "" {
				numbers = append(numbers, line)
			}
		}
		return len(numbers)
	}
	for _, limit := range []uint64{1, 2, 3, 10, 40} {
		t.Run("cgroup", func(t *testing.T) {
			if n := made(t, grouped(t, testPlan(t, "sh", "-c", script), 0, limit)); n != int(limit) {
				t.Errorf("%d processes with a limit of %d", n, limit)
			}
		})
		if os.Getuid() == 0 {
			continue // RLIMIT_NPROC does not bind root
		}
		t.Run("rlimit", func(t *testing.T) {
			p := testPlan(t, "sh", "-c", script)
			p.Bounds.Processes = bound(limit, plan.ByRlimit)
			if n := made(t, p); n > int(limit)+moreTasks {
				t.Errorf("%d processes with a limit of %d", n, limit)
			}
		})
	}
}

// TestProcessLimitUnseen: a command that fails and leaves nothing behind that could be
// counted was perhaps at its limit, and the result says so. One that cannot have been
// gives no doubt.
func TestProcessLimitUnseen(t *testing.T) {
	p := testPlan(t, "sh", "-c", `trap 'kill $p; exit 3' EXIT; i=0; while [ $i -lt 60 ]; do sleep 20 & p="$p $!"; i=$((i+1)); done`)
	p.Bounds.Processes = bound(40, plan.ByRlimit)
	for range 10 {
		_, res, _ := measure(t, p)
		p.Scratch.ID += "a"
		switch {
		case res.Limit == plan.BoundProcesses && res.Doubts(p) == "":
		case res.Limit == "" && res.Doubt && res.Status() != 0 && strings.Contains(res.Doubts(p), "limit of 40 processes"):
		default:
			t.Errorf("%+v, want the limit or a doubt", res)
		}
	}
	p = testPlan(t, "sh", "-c", `i=0; while [ $i -lt 60 ]; do sleep 0 & i=$((i+1)); wait; done; exit 3`)
	p.Bounds.Processes = bound(100_000, plan.ByRlimit)
	if _, res, _ := measure(t, p); res.Limit != "" || res.Doubts(p) != "" || res.Status() != 3 {
		t.Errorf("%+v of a command far from its limit", res)
	}
}

func TestSuspect(t *testing.T) {
	for _, tt := range []struct {
		tasks, forks, now uint64
		known, want       bool
	}{
		{0, 100, 110, true, false},
		{0, 100, 111, true, true},
		{10, 100, 100, true, false},
		{9, 100, 101, true, false},
		{9, 100, 102, true, true},
		{0, 100, 99, true, true}, // the numbers have begun anew
		{0, 100, 500, false, false},
	} {
		w := &watch{c: &Cmd{forksKnown: true}, tasks: tt.tasks, forks: tt.forks}
		w.c.Plan.Bounds.Processes = bound(10, plan.ByRlimit)
		if w.suspect(tt.now, tt.known); w.doubt != tt.want {
			t.Errorf("%+v: %v", tt, w.doubt)
		}
	}
}

// TestOwnThreadsStay: pid 1 makes no threads after its threads were counted, whatever it
// has to do, so that the command gets all of its limit.
func TestOwnThreadsStay(t *testing.T) {
	for range 5 {
		p := testPlan(t, "sh", "-c", `trap : USR1 WINCH; echo >ready; i=0; while [ $i -lt 300 ]; do (sleep 0 &) ; i=$((i+1)); done; echo done; while [ ! -e stop ]; do sleep 0.01; done`)
		p.Bounds.Processes = bound(100, plan.ByWatch)
		cmd := Command(p)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(p.Command.Dir + "/ready"); err == nil {
				break
			}
			if time.Since(begin) > time.Minute {
				t.Fatal("the command does not run")
			}
		}
		first, err := threads(cmd.Pid())
		if err != nil {
			t.Error(err)
		}
		for range 200 {
			_ = cmd.Signal(unix.SIGUSR1)
			_ = cmd.Signal(unix.SIGWINCH)
			time.Sleep(time.Millisecond)
			if n, err := threads(cmd.Pid()); err != nil || n > first {
				t.Errorf("pid 1 has %d threads and had %d, %v", n, first, err)
				break
			}
		}
		if err := os.WriteFile(p.Command.Dir+"/stop", nil, 0o666); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, out.String())
		}
	}
}

func TestWatchedMemory(t *testing.T) {
	p := testPlan(t, "sh", "-c", eatMemory)
	p.Bounds.Memory = bound(64<<20, plan.ByWatch)
	wantLimit(t, p, plan.BoundMemory)

	p = testPlan(t, "sh", "-c", `head -c 200000000 /dev/zero >/tmp/x; sleep 600`)
	tmpInMemory(p)
	p.Bounds.Memory = bound(64<<20, plan.ByWatch)
	wantLimit(t, p, plan.BoundMemory)

	// Pages that processes share count once: twelve times 32 MB are one.
	p = testPlan(t, "sh", "-c", `x=$(head -c 32000000 /dev/zero | tr '\0' x); for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (sleep 1; :) & done; wait; echo fine`)
	p.Bounds.Memory = bound(128<<20, plan.ByWatch)
	if out, res, err := measure(t, p); err != nil || out != "fine\n" {
		t.Errorf("output %q, %+v, %v", out, res, err)
	}
}

func TestWatchedProcesses(t *testing.T) {
	p := testPlan(t, "sh", "-c", forkBomb)
	p.Bounds.Processes = bound(40, plan.ByWatch)
	wantLimit(t, p, plan.BoundProcesses)
}

func TestScratchLimit(t *testing.T) {
	const fill = `head -c 60000000 /dev/zero`
	for name, script := range map[string]string{
		"a file":                 fill + ` >/tmp/f; sleep 600`,
		"many files":             `i=0; while :; do i=$((i+1)); head -c 1000000 /dev/zero >/tmp/$i; done`,
		"a file without a name":  `exec 3>/tmp/f; rm /tmp/f; ` + fill + ` >&3; sleep 600`,
		"a file nobody can list": `mkdir /tmp/d; cd /tmp/d; chmod 300 .; ` + fill + ` >f; sleep 600`,
		"a file deep below":      `i=0; cd /tmp; while [ $i -lt 100 ]; do mkdir d; cd d; i=$((i+1)); done; ` + fill + ` >f; sleep 600`,
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlan(t, "sh", "-c", script)
			p.Bounds.Scratch = bound(20<<20, plan.ByWatch)
			wantLimit(t, p, plan.BoundScratch)
		})
	}
	t.Run("memory in its place", func(t *testing.T) {
		p := testPlan(t, "sh", "-c", fill+` >/tmp/f; sleep 600`)
		tmpInMemory(p)
		p.Bounds.Scratch = bound(20<<20, plan.ByWatch)
		wantLimit(t, p, plan.BoundScratch)
	})
	t.Run("within", func(t *testing.T) {
		p := testPlan(t, "sh", "-c", `head -c 10000000 /dev/zero >/tmp/f; ln /tmp/f /tmp/g; ln /tmp/f /tmp/h; mkdir /tmp/d; chmod 300 /tmp/d; sleep 1; stat -c %a /tmp/d; `+fill+` >f; rm f; echo fine`)
		p.Bounds.Scratch = bound(20<<20, plan.ByWatch)
		if out, res, err := measure(t, p); err != nil || out != "300\nfine\n" {
			t.Errorf("output %q, %+v, %v", out, res, err)
		}
	})
}

// TestKillLeavesTheCgroupToCollect: a later run removes what a killed one left.
func TestKillLeavesTheCgroupToCollect(t *testing.T) {
	p := grouped(t, testPlan(t, "sh", "-c", "true"), 1<<30, 100)
	var left []string
	for _, dir := range p.Bounds.Cgroup.Dirs() {
		other := filepath.Dir(dir) + "/wall-feed" + p.Scratch.ID
		// The test of another package, which collects all the time, may come in between.
		err := os.ErrNotExist
		for try := 0; try < 100 && errors.Is(err, os.ErrNotExist); try++ {
			if err = os.Mkdir(other, 0o755); err == nil {
				err = os.Mkdir(other+"/box", 0o755)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, other)
	}
	if _, _, err := measure(t, p); err != nil {
		t.Fatal(err)
	}
	for _, dir := range left {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
}

func TestParseStat(t *testing.T) {
	const rest = " S 1 7 7 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 5 0 100 1000000 321 18446744073709551615 11 12 13 14"
	want := process{state: 'S', parent: "1", flags: 4194304, threads: 5, start: 100, size: 1000000, pages: 321, address: 11, stack: 13}
	for _, name := range []string{"sh", "a b", ") S 1 (", ")", ""} {
		if got := parseStat([]byte("7 (" + name + ")" + rest)); got != want {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
	}
	for _, text := range []string{"", "7", "7 (sh)", "7 (sh) S 1"} {
		if got := parseStat([]byte(text)); got != (process{}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// A command that floods its output is ended, whatever the streams are, and so is one
// that has ended before all of it was read.
func TestTotalOutput(t *testing.T) {
	bound := func(p plan.Plan, n uint64) plan.Plan {
		p.Bounds.Total = plan.Bound{Value: n, By: plan.ByRelay, Origin: boundOrigin}
		return p
	}
	const limit = 1 << 20
	out, res := wantLimit(t, bound(testPlan(t, sh("yes; sleep 600")...), limit), plan.BoundTotal)
	if len(out) != limit {
		t.Errorf("%d bytes of output, want %d", len(out), limit)
	}
	if res.Wall > time.Minute {
		t.Errorf("it took %s", res.Wall)
	}
	if out, _ := wantLimit(t, bound(testPlan(t, sh("printf 12345; printf 67890 >&2")...), 9), plan.BoundTotal); len(out) != 9 {
		t.Errorf("output beyond the limit: %q", out)
	}
	if out, res, err := measure(t, bound(testPlan(t, sh("printf 12345; printf 67890 >&2")...), 10)); err != nil || res.Limit != "" || len(out) != 10 {
		t.Errorf("output at the limit: %q, %+v, %v", out, res, err)
	}

	// Files that would go to the command as they are.
	for _, name := range []string{"file", "pipe"} {
		f, err := os.Create(t.TempDir() + "/out")
		if err != nil {
			t.Fatal(err)
		}
		w, copied := f, make(chan struct{})
		if name == "file" {
			close(copied)
		} else {
			r, pw, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			w = pw
			go func() {
				defer close(copied)
				defer r.Close()
				_, _ = io.Copy(f, r)
			}()
		}
		c := Command(bound(testPlan(t, sh("yes >&2; sleep 600")...), limit))
		c.Stdout, c.Stderr = w, w
		err = c.Run()
		var exit *ExitError
		if !errors.As(err, &exit) || exit.Limit != plan.BoundTotal {
			t.Errorf("%s: %v, want the limit of output", name, err)
		}
		st, err := os.Stat(f.Name())
		if name == "pipe" {
			w.Close()
			<-copied
			st, err = os.Stat(f.Name())
		}
		if err != nil || st.Size() != limit {
			t.Errorf("%s: %+v, %v", name, st, err)
		}
		f.Close()
	}
}

func TestTotalOutputMetered(t *testing.T) {
	p := testPlan(t, sh("echo ready; sleep 600")...)
	p.Bounds.Total = plan.Bound{Value: 100, By: plan.ByRelay, Origin: boundOrigin}
	c := Command(p)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.Stdout, c.Metered = w, true
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 6)); err != nil {
		t.Error(err)
	}
	for _, w := range [][2]int{{90, 90}, {30, 10}, {50, 0}} {
		if got := c.Wrote(w[0]); got != w[1] {
			t.Errorf("%d bytes: %d may pass, want %d", w[0], got, w[1])
		}
	}
	_ = c.Wait()
	if res := c.Result(); res.Limit != plan.BoundTotal || res.Status() != plan.ExitLimit {
		t.Errorf("result %+v", res)
	}
}
