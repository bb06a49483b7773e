package gate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
)

// off is a plan without walls. What boxes do is tested from outside, in
// directory integration.
func off(t testing.TB, argv ...string) plan.Plan {
	t.Helper()
	p := plan.Plan{
		Version: plan.Version, Profile: "test", Enforce: plan.EnforceOff,
		Command:  plan.Command{Path: argv[0], Argv: argv, Dir: t.TempDir()},
		Identity: plan.Identity{UID: os.Getuid(), GID: os.Getgid()},
		Env:      []plan.EnvVar{{Name: "PATH", Value: "/usr/bin:/bin", Reason: "set"}},
	}
	return p
}

func sh(t testing.TB, line string) plan.Plan { return off(t, "/bin/sh", "-c", line) }

func TestVerdicts(t *testing.T) {
	for _, tt := range []struct {
		name   string
		p      plan.Plan
		status Status
		exit   int
		code   int
		signal syscall.Signal
		text   string
	}{
		{"passing", sh(t, "echo yes"), Passed, 0, 0, 0, "yes"},
		{"silent", sh(t, ":"), Passed, 0, 0, 0, ""},
		{"failing", sh(t, "echo no; echo why >&2; exit 7"), Failed, 7, 7, 0, "no\n--- stderr ---\nwhy"},
		{"signalled", sh(t, "echo x; kill -KILL $$"), Failed, 137, -1, unix.SIGKILL, "x"},
		{"status of wall's own", sh(t, "exit 124"), Failed, 124, 124, 0, ""},
		{"reads nothing", sh(t, "cat; echo end"), Passed, 0, 0, 0, "end"},
		{"no such program", off(t, "/nonexistent"), NotRun, 127, -1, 0, ""},
		{"stopping itself and continued", sh(t, "(while kill -CONT $$; do sleep 0.2; done) 2>/dev/null & kill -STOP $$; echo on"), Passed, 0, 0, 0, "on"},
	} {
		r := Run(context.Background(), tt.p, Options{})
		if r.Status != tt.status || r.Exit != tt.exit || r.Code != tt.code || r.Signal != tt.signal || r.Output.Text != tt.text {
			t.Errorf("%s: %s, exit %d, code %d, signal %v, output %q, error %v; want %+v", tt.name, r.Status, r.Exit, r.Code, r.Signal, r.Output.Text, r.Err, tt)
		}
		if (r.Err != nil) != (tt.status == NotRun) {
			t.Errorf("%s: error %v", tt.name, r.Err)
		}
	}
}

// TestOffIsThePlainRunner compares ten commands, byte by byte, with the same
// commands run by os/exec.
func TestOffIsThePlainRunner(t *testing.T) {
	for _, line := range []string{
		"echo hello",
		"printf 'no line break'",
		"printf '\\377\\376\\000\\001binary'",
		"echo out; echo err >&2; exit 3",
		"cat",
		"head -c 300000 /dev/zero",
		"head -c 300000 /dev/zero >&2; exit 255",
		"env | sort; pwd; umask; ulimit -n",
		"printf 'red \\033[31m text\\r\\n'; kill -TERM $$",
		"echo a; (sleep 0.1; echo b) ; ls -la /proc/self/fd | wc -l; exec 1>&-; echo c >&2",
	} {
		p := sh(t, line)
		plain := exec.Command(p.Command.Path, p.Command.Argv[1:]...)
		plain.Dir, plain.Env = p.Command.Dir, []string{"PATH=/usr/bin:/bin"}
		var want, wantErr, got, gotErr bytes.Buffer
		plain.Stdout, plain.Stderr = &want, &wantErr
		err := plain.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		code := plain.ProcessState.ExitCode()
		if ws := plain.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
			code = 128 + int(ws.Signal())
		}
		r := Run(context.Background(), p, Options{Stdout: &got, Stderr: &gotErr})
		if !bytes.Equal(got.Bytes(), want.Bytes()) || !bytes.Equal(gotErr.Bytes(), wantErr.Bytes()) {
			t.Errorf("%s:\n%q %q, want\n%q %q", line, got.Bytes(), gotErr.Bytes(), want.Bytes(), wantErr.Bytes())
		}
		if r.Exit != code || len(r.Warnings) > 0 {
			t.Errorf("%s: exit status %d, want %d; %v", line, r.Exit, code, r.Warnings)
		}
	}
}

// TestOrphans: what is in the process group of the command ends with it, on
// every path.
func TestOrphans(t *testing.T) {
	for _, line := range []string{
		"sleep 1000 & echo $!",
		"sleep 1000 & echo $!; exit 1",
		"sleep 1000 >/dev/null 2>&1 & echo $!; kill -KILL $$",
		"(trap '' TERM HUP INT; sleep 1000) & echo $!",
	} {
		start := time.Now()
		r := Run(context.Background(), sh(t, line), Options{})
		pid, err := strconv.Atoi(strings.TrimSpace(r.Output.Text))
		if err != nil {
			t.Fatalf("%s: %q", line, r.Output.Text)
		}
		if alive(pid) {
			t.Errorf("%s: process %d is left", line, pid)
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if d := time.Since(start); d > 500*time.Second {
			t.Errorf("%s: it took %v", line, d)
		}
	}
}

// alive reports whether the process is there in a while: an orphan that was killed
// waits for init to notice.
func alive(pid int) bool {
	for range 6000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
	return true
}

// TestHeldOutput: a daemon that left the process group and holds the output does
// not keep the gate from its verdict, and is told about.
func TestHeldOutput(t *testing.T) {
	r := Run(context.Background(), sh(t, "setsid sh -c 'echo $$; : >held; exec sleep 1000' & while [ ! -e held ]; do sleep 0.01; done; echo done"), Options{})
	if r.Status != Passed || !strings.Contains(r.Output.Text, "done") {
		t.Errorf("%s, %q", r.Status, r.Output.Text)
	}
	if len(r.Warnings) == 0 || !strings.Contains(r.Warnings[0], "still holds its descriptor 1") {
		t.Errorf("warnings %q", r.Warnings)
	}
	pid, _, _ := strings.Cut(r.Output.Text, "\n")
	if n, err := strconv.Atoi(pid); err == nil {
		_ = unix.Kill(n, unix.SIGKILL)
	} else {
		t.Error(err)
	}
}

// TestSlowCopy: whoever reads the copy may take longer than wall is patient, and gets
// all of it; that is nobody who holds the output.
func TestSlowCopy(t *testing.T) {
	p := sh(t, "echo first; while [ ! -e go ]; do sleep 0.01; done; head -c 50000 /dev/zero")
	ended := make(chan struct{})
	var got bytes.Buffer
	r := Run(context.Background(), p, Options{
		Ended: func(string, nsexec.Result) { close(ended) },
		Stdout: writerFunc(func(b []byte) {
			if got.Len() == 0 {
				if err := os.WriteFile(p.Command.Dir+"/go", nil, 0o600); err != nil {
					t.Error(err)
				}
				<-ended
				time.Sleep(patience + 200*time.Millisecond)
			}
			got.Write(b)
		}),
	})
	if r.Status != Passed || len(r.Warnings) > 0 {
		t.Errorf("%s, warnings %q", r.Status, r.Warnings)
	}
	if want := int64(50006); r.Output.StdoutBytes != want || int64(got.Len()) != want {
		t.Errorf("%d bytes, copied %d, want %d", r.Output.StdoutBytes, got.Len(), want)
	}
}

// TestDrainEnds: a process that got the descriptor of the command, wherever it is,
// keeps no drain from its end, by silence or by a flood; what the command wrote is there.
func TestDrainEnds(t *testing.T) {
	for _, flood := range []bool{false, true} {
		d, err := openDrain()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Dup(int(d.write.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		stranger := os.NewFile(uintptr(fd), "stranger")
		if _, err := stranger.WriteString("of the command"); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		d.start(&got)
		over := make(chan struct{})
		if flood {
			go func() {
				defer close(over)
				for b := make([]byte, 4096); ; {
					if _, err := stranger.Write(b); err != nil {
						return // nobody reads any more
					}
				}
			}()
		} else {
			close(over)
		}
		held, err := d.finish(10 * time.Millisecond)
		if !held || err != nil || !strings.HasPrefix(got.String(), "of the command") {
			t.Errorf("flood %t: held %t, %v, %.20q", flood, held, err, got.String())
		}
		<-over
		stranger.Close()
	}
}

// TestFlood: a gibibyte of output takes no more memory than a line.
func TestFlood(t *testing.T) {
	const n = 1 << 30
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := Run(context.Background(), sh(t, "head -c 536870912 /dev/zero; head -c 536870912 /dev/zero >&2; echo end"), Options{})
	runtime.ReadMemStats(&after)
	if r.Status != Passed || r.Output.StdoutBytes+r.Output.StderrBytes != n+4 {
		t.Errorf("%s, %d and %d bytes", r.Status, r.Output.StdoutBytes, r.Output.StderrBytes)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
	if !strings.Contains(r.Output.Text, "end\n--- stderr ---") {
		t.Errorf("the end of standard output was pushed out: %q", r.Output.Text[:40])
	}
	if want := int64(n + 4 - 1500 + len("\n"+separator)); r.Output.Cut < want-2 || r.Output.Cut > want+2 {
		t.Errorf("%d bytes cut, want about %d", r.Output.Cut, want)
	}
}

// TestCancel: the context ends the command and all of its group.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r := Run(ctx, sh(t, "trap '' TERM; echo begun; sleep 1000 & wait; sleep 1000"), Options{
		Stdout: writerFunc(func([]byte) { cancel() }),
	})
	if r.Status != Failed || r.Exit == 0 || !errors.Is(r.Err, context.Canceled) || r.Output.Text != "begun" {
		t.Errorf("%s, exit %d, %v, %q", r.Status, r.Exit, r.Err, r.Output.Text)
	}
	if r := Run(ctx, sh(t, "echo run"), Options{}); r.Status != NotRun || r.Exit != plan.ExitFailed {
		t.Errorf("after the end of the context: %s, exit %d", r.Status, r.Exit)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(p []byte) (int, error) { f(p); return len(p), nil }

// TestCopies: a copy of the output that cannot be written costs neither the
// command nor the verdict.
func TestCopies(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var both, log bytes.Buffer
	r := Run(context.Background(), sh(t, "echo out; echo err >&2"), Options{Stdout: &both, Stderr: &both, Log: &log})
	if got := both.String(); r.Status != Passed || got != "out\nerr\n" && got != "err\nout\n" || log.Len() != 8 {
		t.Errorf("%s, %q, %q", r.Status, got, log.String())
	}
	r = Run(context.Background(), sh(t, "head -c 1000000 /dev/zero; echo end"), Options{Stdout: full, Log: io.Discard})
	if r.Status != Passed || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "standard output is not complete") {
		t.Errorf("%s, warnings %q", r.Status, r.Warnings)
	}
}

// TestPhases: phases run in order, until one does not pass.
func TestPhases(t *testing.T) {
	var order []string
	phase := func(name, line string) Phase {
		return Phase{Name: name, Plan: func() (plan.Plan, error) { return sh(t, line), nil }}
	}
	o := Options{
		Started: func(name string, c *nsexec.Cmd) { order = append(order, "+"+name) },
		Ended:   func(name string, _ nsexec.Result) { order = append(order, "-"+name) },
	}
	r := RunPhases(context.Background(), []Phase{phase("one", "echo 1"), phase("two", "echo 2; exit 5"), phase("three", "echo 3")}, o)
	if r.Status != Failed || r.Exit != 5 || r.Output.Text != "2" {
		t.Errorf("%s, exit %d, %q", r.Status, r.Exit, r.Output.Text)
	}
	if got := strings.Join(order, " "); got != "+one -one +two -two" {
		t.Errorf("order %s", got)
	}
	if len(r.Phases) != 3 || r.Phases[0].Status != Passed || r.Phases[1].Status != Failed || !r.Phases[2].Skipped || r.Phases[2].Status != NotRun {
		t.Errorf("phases %+v", r.Phases)
	}
	if r.Wall < r.Phases[0].Wall+r.Phases[1].Wall {
		t.Errorf("%v is not the time of all phases", r.Wall)
	}
	bad := &plan.Error{Op: "no plan", Exit: 126}
	r = RunPhases(context.Background(), []Phase{phase("one", "echo 1"), {Name: "two", Plan: func() (plan.Plan, error) { return plan.Plan{}, bad }}}, Options{})
	if r.Status != NotRun || r.Exit != 126 || r.Err != bad {
		t.Errorf("%s, exit %d, %v", r.Status, r.Exit, r.Err)
	}
	if r := RunPhases(context.Background(), nil, Options{}); r.Status != NotRun || r.Exit != plan.ExitFailed {
		t.Errorf("without a phase: %s, exit %d", r.Status, r.Exit)
	}
}

// TestStartingRefuses: the hook keeps the command from running.
func TestStartingRefuses(t *testing.T) {
	p := sh(t, "touch ran")
	no := errors.New("no")
	r := Run(context.Background(), p, Options{Starting: func(string, plan.Plan) error { return no }})
	if r.Status != NotRun || r.Exit != plan.ExitFailed || r.Err != no {
		t.Errorf("%s, exit %d, %v", r.Status, r.Exit, r.Err)
	}
	if _, err := os.Stat(p.Command.Dir + "/ran"); err == nil {
		t.Error("the command ran")
	}
}

// TestJudge: what is not certainly a success is none.
func TestJudge(t *testing.T) {
	p := plan.Plan{Bounds: plan.Bounds{Memory: plan.Bound{Value: 1 << 20, By: plan.ByWatch, Origin: plan.Origin{Text: "--limit memory=1MiB"}}}}
	lost := errors.New("the box lost a mount")
	for _, tt := range []struct {
		name      string
		r         nsexec.Result
		err, done error
		status    Status
		exit      int
	}{
		{"success", nsexec.Result{Started: true}, nil, nil, Passed, 0},
		{"never started", nsexec.Result{}, nil, nil, Failed, 125},
		{"killed, and no status", nsexec.Result{Started: true, Killed: true}, nil, nil, Failed, 125},
		{"lost", nsexec.Result{Started: true}, lost, nil, Failed, 125},
		{"own status", nsexec.Result{Started: true, ExitCode: 3}, &nsexec.ExitError{}, nil, Failed, 3},
		{"signal", nsexec.Result{Started: true, ExitCode: -1, Signal: unix.SIGABRT}, nil, nil, Failed, 134},
		{"time", nsexec.Result{Started: true, TimedOut: true}, nil, nil, TimedOut, 124},
		{"time, with a status of success", nsexec.Result{Started: true, TimedOut: true, ExitCode: 0}, nil, nil, TimedOut, 124},
		{"memory", nsexec.Result{Started: true, Limit: plan.BoundMemory}, nil, nil, Limit, 123},
		{"ended with the context", nsexec.Result{Started: true, Killed: true, Signal: unix.SIGKILL}, nil, context.Canceled, Failed, 137},
		{"ended before the context", nsexec.Result{Started: true}, nil, context.Canceled, Passed, 0},
	} {
		var o Outcome
		o.judge(tt.r, p, tt.err, tt.done)
		if o.Status != tt.status || o.Exit != tt.exit {
			t.Errorf("%s: %s, exit %d, want %s, %d", tt.name, o.Status, o.Exit, tt.status, tt.exit)
		}
		if o.Status == Limit && (o.Err == nil || !strings.Contains(plan.Explain(o.Err), "--limit memory=1MiB")) {
			t.Errorf("%s: %v does not say who asked for it", tt.name, o.Err)
		}
	}
}
