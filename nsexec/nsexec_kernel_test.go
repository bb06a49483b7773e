package nsexec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/cgroup"
	"github.com/wallsandbox/wall/landlock"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/scratch"
)

// TestMain lets the test binary be stage 2, like every program that uses the package.
// A plan whose profile is named "fail:STEP" makes that step fail; "swap" puts another
// scratch directory in the place of the one that was made.
func TestMain(m *testing.M) {
	testOnlyStepHook = func(step string, p *plan.Plan) error {
		if p.Profile == "swap" && step == "mounts" {
			dir := p.Scratch.Path()
			return errors.Join(os.Rename(dir, dir+"-away"), os.MkdirAll(dir+"/tmp", 0o700))
		}
		if p.Profile == "fail:"+step {
			return &plan.Error{Op: "step " + step, Origin: plan.Origin{Text: "the test"}, Hint: "none", Err: unix.EIO}
		}
		return nil
	}
	Main()
	if len(os.Args) > 1 && os.Args[1] == "netclient" {
		netClient(os.Args[2:])
	}
	if len(os.Args) > 2 && os.Args[1] == "eater" {
		eater(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// need skips when the host lacks a facility, and fails when CI says that it must be there.
func need(t testing.TB, words ...string) {
	t.Helper()
	required := strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ",")
	for _, w := range words {
		var err error
		switch w {
		case "userns":
			_, err = tryIn("proc", []plan.SpaceKind{plan.SpaceMount, plan.SpacePID})
		case "landlock":
			_, err = landlock.ABI()
		case "root":
			if os.Getuid() != 0 {
				err = unix.EPERM
			}
		case "cgroup", "delegated-cgroup":
			_, err = cgroup.Find(cgroup.Need{Memory: true, Pids: true}, fmt.Sprintf("%x", time.Now().UnixNano()), nil)
		case "nft", "ip":
			_, err = exec.LookPath("/usr/sbin/" + w) // which is not in the PATH of ordinary users
		default:
			t.Fatalf("unknown need %q", w)
		}
		switch {
		case err == nil:
		case slices.Contains(required, w):
			t.Fatalf("this host lacks %s: %v", w, err)
		default:
			t.Skipf("this host lacks %s: %v", w, err)
		}
	}
}

// testPlan is a small box over the host's tree, with the test's directory
// writable and a private scratch.
func testPlan(t testing.TB, argv ...string) plan.Plan {
	t.Helper()
	need(t, "userns", "landlock")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	abi, err := landlock.ABI()
	if err != nil {
		t.Fatal(err)
	}
	o := plan.Origin{Text: "test"}
	p := plan.Plan{
		Version: plan.Version, Profile: "test", Enforce: plan.EnforceFSNet,
		Command:  plan.Command{Path: "/bin/sh", Argv: argv, Dir: dir},
		Identity: plan.Identity{UID: os.Getuid(), GID: os.Getgid()},
		Scratch: plan.Scratch{
			Root: scratchRoot(t), ID: fmt.Sprintf("%x", time.Now().UnixNano()),
			Dirs: []plan.ScratchDir{{Name: "tmp", Mode: 0o1777}},
		},
		Landlock: plan.Landlock{
			ABI: min(abi, landlock.NewestABI), Stdio: true, Signals: abi >= 6, Abstract: abi >= 6,
			Rules: []plan.PathRule{
				{Path: "/", Access: plan.AccessRead, Except: []string{"/dev", "/proc", "/sys", "/tmp"}, Origin: o},
				{Path: "/dev", Access: plan.AccessDevice, Origin: o},
				{Path: "/proc", Access: plan.AccessInOut, Origin: o},
				{Path: "/tmp", Access: plan.AccessWrite, Origin: o},
				{Path: dir, Access: plan.AccessWrite, Origin: o},
			},
		},
		Seccomp: plan.Seccomp{Profile: "default", Origin: o},
		Stdio:   []plan.Stdio{{FD: 0, Kind: plan.StdioNull}, {FD: 1, Kind: plan.StdioNull}, {FD: 2, Kind: plan.StdioNull}},
		Env:     []plan.EnvVar{{Name: "PATH", Value: os.Getenv("PATH"), Reason: "test"}},
		Limits:  []plan.Limit{{Name: plan.LimitCore, Origin: o}},
		Checks: []plan.Check{
			{Op: plan.CheckNoCaps}, {Op: plan.CheckNoNewPrivs}, {Op: plan.CheckSeccomp}, {Op: plan.CheckNoRoute},
			{Op: plan.CheckNoSignal}, {Op: plan.CheckNoMount}, {Op: plan.CheckUnwritable, Path: "/usr"},
		},
	}
	for _, k := range spaceKinds {
		p.Spaces = append(p.Spaces, plan.Space{Kind: k, Origin: o})
		p.Checks = append(p.Checks, plan.Check{Op: plan.CheckSpace, Path: string(k)})
	}
	p.Mounts = []plan.Mount{
		{Op: plan.OpHostRoot, Target: "/"},
		{Op: plan.OpProc, Target: "/proc"},
		{Op: plan.OpTmpfs, Target: "/dev", Mode: 0o755, Size: 64 << 10},
	}
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpDevice, Target: "/dev/" + d, Source: "/dev/" + d, Type: plan.TypeFile, MakeAs: plan.TypeFile})
	}
	p.Mounts = append(p.Mounts,
		plan.Mount{Op: plan.OpSymlink, Target: "/dev/fd", Source: "/proc/self/fd"},
		plan.Mount{Op: plan.OpScratch, Target: "/tmp", Source: "tmp"},
		plan.Mount{Op: plan.OpBind, Target: dir, Source: dir, Access: plan.AccessWrite, Type: plan.TypeDir, MakeAs: plan.TypeDir, Origin: o},
	)
	return p
}

func scratchRoot(t testing.TB) string {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	return root
}

// run runs the plan and gives the command's combined output.
func run(t *testing.T, p plan.Plan) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := Command(p)
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if left, _ := os.ReadDir(p.Scratch.Root); len(left) != 0 {
		t.Errorf("the scratch root still holds %v", left)
	}
	return out.String(), err
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func TestBoxRunsACommand(t *testing.T) {
	out, err := run(t, testPlan(t, sh("echo $$ $(id -u); pwd; ls /proc | grep -c '^[0-9]'; touch here /tmp/there && echo ok")...))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if f := strings.Fields(out); len(f) != 5 || f[1] != fmt.Sprint(os.Getuid()) || f[4] != "ok" {
		t.Errorf("output %q", out)
	}
}

// TestScratchReplaced: what is mounted is the scratch directory that wall has made, and
// not what has its name.
func TestScratchReplaced(t *testing.T) {
	p := testPlan(t, sh("touch ran")...)
	p.Profile = "swap"
	err := Command(p).Run()
	if plan.ExitStatus(err) != plan.ExitFailed || err == nil || !strings.Contains(plan.Explain(err), "another directory is there than wall has made") {
		t.Error(err)
	}
	if _, err := os.Stat(p.Command.Dir + "/ran"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
}

// Each step of stage 2 that fails must keep the command from running, say so
// with its origin, and leave nothing behind.
func TestEachStepFailsOnce(t *testing.T) {
	steps := []string{"order", "mounts", "loopback", "network", "limits", "directory", "terminal", "ruleset", "filter", "watch", "memory", "served", "privileges", "landlock", "processes", "seccomp", "self-test", "signals", "execve"}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			p := testPlan(t, sh("touch ran")...)
			p.Profile = "fail:" + step
			if step == "order" {
				p.Version = 99 // no plan is there yet to name the step
				c := Command(p)
				c.started = true
				if err := c.Plan.Validate(); err == nil {
					t.Fatal("a plan of version 99 is valid")
				}
				var s stdio
				if err := s.open(c); err != nil {
					t.Fatal(err)
				}
				err := c.startBox(&s)
				s.closeChild()
				defer c.release()
				checkStepError(t, err, step)
				return
			}
			out, err := run(t, p)
			checkStepError(t, err, step)
			if out != "" {
				t.Errorf("output %q", out)
			}
			if !errors.Is(err, unix.EIO) {
				t.Errorf("the errno is lost: %v", err)
			}
			if got, want := plan.Explain(err), "  at the test\n  hint: none\n"; !strings.Contains(got, want) {
				t.Errorf("%q does not contain %q", got, want)
			}
			if _, err := os.Stat(p.Command.Dir + "/ran"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the command ran: %v", err)
			}
		})
	}
}

func checkStepError(t *testing.T, err error, step string) {
	t.Helper()
	var se *StepError
	if !errors.As(err, &se) || se.Step != step {
		t.Fatalf("error %v is not from step %s", err, step)
	}
	if got := plan.ExitStatus(err); got != plan.ExitFailed {
		t.Errorf("exit status %d", got)
	}
}

// Real conditions, not hooks: the messages name what was asked for.
func TestStepsFailForReal(t *testing.T) {
	tests := []struct {
		name string
		edit func(t *testing.T, p *plan.Plan)
		step string
		want string
		exit int
	}{
		{"bind source missing", func(t *testing.T, p *plan.Plan) {
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpBind, Target: "/usr", Source: "/no/such", Access: plan.AccessRead, Type: plan.TypeDir, Origin: plan.Origin{File: "x.toml", Line: 7, Text: "grant"}})
		}, "mounts", "error: cannot show /usr inside: open /no/such: no such file or directory\n  at x.toml:7: grant\n  hint: create it", 125},
		{"bind source became a link", func(t *testing.T, p *plan.Plan) {
			link := p.Command.Dir + "/link"
			if err := os.Symlink("/etc", link); err != nil {
				t.Fatal(err)
			}
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpBind, Target: "/usr", Source: link, Access: plan.AccessWrite, Type: plan.TypeDir})
		}, "mounts", "is of another type than when wall looked", 125},
		{"a component became a link", func(t *testing.T, p *plan.Plan) {
			if err := os.Symlink("/etc", p.Command.Dir+"/link"); err != nil {
				t.Fatal(err)
			}
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpBind, Target: "/usr", Source: p.Command.Dir + "/link/ssl", Access: plan.AccessWrite, Type: plan.TypeDir})
		}, "mounts", "too many levels of symbolic links", 125},
		{"a file became a directory", func(t *testing.T, p *plan.Plan) {
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpCover, Target: "/usr", Type: plan.TypeFile})
		}, "mounts", "cannot hide /usr: /usr is of another type", 125},
		{"working directory not visible", func(t *testing.T, p *plan.Plan) {
			p.Command.Dir = "/tmp/not-there"
		}, "directory", "cannot enter the working directory /tmp/not-there", 125},
		{"landlock path missing", func(t *testing.T, p *plan.Plan) {
			p.Landlock.Rules = append(p.Landlock.Rules, plan.PathRule{Path: "/no/such", Access: plan.AccessRead, Origin: plan.Origin{Text: "--ro /no/such"}})
		}, "ruleset", "at --ro /no/such", 125},
		{"unknown filter", func(t *testing.T, p *plan.Plan) { p.Seccomp.Profile = "none-such" }, "filter", "cannot load the system call filter none-such", 125},
		{"self-test: readable", func(t *testing.T, p *plan.Plan) {
			p.Checks = append(p.Checks, plan.Check{Op: plan.CheckUnreadable, Path: "/etc/passwd", Origin: plan.Origin{Text: "hide"}})
		}, "self-test", "self-test unreadable /etc/passwd: it can be opened for reading", 125},
		{"self-test: listable", func(t *testing.T, p *plan.Plan) {
			p.Checks = append(p.Checks, plan.Check{Op: plan.CheckUnreadable, Path: "/usr"})
		}, "self-test", "it can be listed", 125},
		{"self-test: writable file", func(t *testing.T, p *plan.Plan) {
			if err := os.WriteFile(p.Command.Dir+"/f", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.Checks = append(p.Checks, plan.Check{Op: plan.CheckUnwritable, Path: p.Command.Dir + "/f"})
		}, "self-test", "it can be opened for writing", 125},
		{"self-test: writable directory", func(t *testing.T, p *plan.Plan) {
			p.Checks = append(p.Checks, plan.Check{Op: plan.CheckUnwritable, Path: p.Command.Dir})
		}, "self-test", "a directory can be made in it", 125},
		{"self-test: creatable", func(t *testing.T, p *plan.Plan) {
			p.Checks = append(p.Checks, plan.Check{Op: plan.CheckUnwritable, Path: p.Command.Dir + "/new"})
		}, "self-test", "it can be created", 125},
		{"self-test: no filter", func(t *testing.T, p *plan.Plan) { p.Seccomp.Profile = "" }, "self-test", "the mode reads 0", 125},
		{"self-test: host network", func(t *testing.T, p *plan.Plan) {
			p.Spaces = slices.DeleteFunc(p.Spaces, func(s plan.Space) bool { return s.Kind == plan.SpaceNet })
		}, "self-test", "net", 125},
		{"command missing", func(t *testing.T, p *plan.Plan) { p.Command.Path = "/no/such" }, "execve", "it exists outside but not inside", 127},
		{"command not executable", func(t *testing.T, p *plan.Plan) { p.Command.Path = "/etc/passwd" }, "execve", "no permission to be executed", 126},
		{"command a directory", func(t *testing.T, p *plan.Plan) { p.Command.Path = "/usr" }, "execve", "permission denied", 126},
		{"argument too long", func(t *testing.T, p *plan.Plan) {
			p.Command.Argv = []string{"sh", "-c", "exit 0", strings.Repeat("x", 2<<20)}
		}, "execve", "argument list too long", 126},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := testPlan(t, sh("touch ran")...)
			tt.edit(t, &p)
			out, err := run(t, p)
			var se *StepError
			if !errors.As(err, &se) || se.Step != tt.step {
				t.Fatalf("error %v (output %q) is not from step %s", err, out, tt.step)
			}
			if got := plan.Explain(err); !strings.Contains(got, tt.want) {
				t.Errorf("%q does not contain %q", got, tt.want)
			}
			if got := plan.ExitStatus(err); got != tt.exit {
				t.Errorf("exit status %d, want %d", got, tt.exit)
			}
			for _, name := range []string{"ran", "new"} {
				if _, err := os.Stat(filepath.Join(p.Command.Dir, name)); err == nil {
					t.Errorf("%s was left behind", name)
				}
			}
		})
	}
}

func TestExitStatuses(t *testing.T) {
	tests := []struct {
		script string
		want   Result
	}{
		{"exit 0", Result{ExitCode: 0}},
		{"exit 41", Result{ExitCode: 41}},
		{"exit 255", Result{ExitCode: 255}},
		{"kill -TERM $$", Result{ExitCode: -1, Signal: syscall.SIGTERM}},
		{"kill -KILL $$", Result{ExitCode: -1, Signal: syscall.SIGKILL}},
		{"kill -SEGV $$", Result{ExitCode: -1, Signal: syscall.SIGSEGV}},
		// pid 1 does not end by a signal from inside, and orphans do not keep the box.
		{"kill -TERM 1; kill -SEGV 1; kill -KILL 1; (setsid sleep 1000 &) ; sleep 1000 & exit 3", Result{ExitCode: 3}},
	}
	for _, tt := range tests {
		t.Run(tt.script, func(t *testing.T) {
			c := Command(testPlan(t, sh(tt.script)...))
			err := c.Run()
			r := c.Result()
			if !r.Started || r.ExitCode != tt.want.ExitCode || r.Signal != tt.want.Signal || r.CoreDumped || r.Killed {
				t.Errorf("result %+v, want %+v (error %v)", r, tt.want, err)
			}
			var ee *ExitError
			if (err == nil) != (tt.want.ExitCode == 0) || (err != nil && !errors.As(err, &ee)) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2} {
		t.Run(sig.String(), func(t *testing.T) {
			c := Command(testPlan(t, sh(fmt.Sprintf("trap 'exit 9' %d; echo ready; while :; do sleep 0.01; done", int(sig)))...))
			r, w := io.Pipe()
			c.Stdout = w
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(r, make([]byte, len("ready\n"))); err != nil {
				t.Fatal(err)
			}
			go io.Copy(io.Discard, r)
			if err := c.Signal(sig); err != nil {
				t.Fatal(err)
			}
			c.Wait()
			if got := c.Result(); got.ExitCode != 9 {
				t.Errorf("result %+v", got)
			}
			if err := c.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("Signal after the end: %v", err)
			}
		})
	}
}

// What the caller ignores the command ignores, except SIGPIPE and SIGCHLD.
func TestIgnoredSignalsAreInherited(t *testing.T) {
	if os.Getenv("WALL_TEST_IGNORED") == "" {
		need(t, "userns", "landlock")
		cmd := exec.Command("/bin/sh", "-c", "trap '' HUP QUIT TERM USR1 PIPE CHLD; exec \"$0\" -test.run='^TestIgnoredSignalsAreInherited$' -test.v", "/proc/self/exe")
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Args[3] = exe
		cmd.Env = append(os.Environ(), "WALL_TEST_IGNORED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	out, err := run(t, testPlan(t, sh("grep SigIgn /proc/self/status")...))
	if err != nil {
		t.Fatal(err, out)
	}
	var mask uint64
	if _, err := fmt.Sscanf(out, "SigIgn: %x", &mask); err != nil {
		t.Fatal(err, out)
	}
	want := map[syscall.Signal]bool{syscall.SIGHUP: true, syscall.SIGQUIT: true, syscall.SIGTERM: true, syscall.SIGUSR1: true}
	if inheritedIgnored() == 0 { // a build without cgo
		want = map[syscall.Signal]bool{syscall.SIGHUP: true}
	}
	for s := syscall.Signal(1); s < 32; s++ {
		if got := mask&(1<<(s-1)) != 0; got != want[s] {
			t.Errorf("%v ignored: %v, want %v", s, got, want[s])
		}
	}
}

// Without Landlock's scope the command can send signals to pid 1; as its first
// act, it is as fast as it can be.
func TestPid1OutlivesSignals(t *testing.T) {
	for sig := 1; sig <= 64; sig++ {
		if sig == 32 || sig == 33 { // the C library's own; it does not let them be sent
			continue
		}
		p := testPlan(t, sh(fmt.Sprintf("kill -%d 1; exit 5", sig))...)
		p.Landlock = plan.Landlock{}
		c := Command(p)
		if err := c.Run(); c.Result().ExitCode != 5 {
			t.Errorf("signal %d: %+v, error %v", sig, c.Result(), err)
		}
	}
}

func TestContextKillsTheBox(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := testPlan(t, sh("trap '' TERM INT; (setsid sleep 1000) & echo ready; sleep 1000")...)
	c := CommandContext(ctx, p)
	r, w := io.Pipe()
	c.Stdout = w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	cancel()
	err := c.Wait()
	if r := c.Result(); !r.Killed || r.Signal != syscall.SIGKILL || err == nil {
		t.Errorf("result %+v, error %v", r, err)
	}
	if left, _ := os.ReadDir(p.Scratch.Root); len(left) != 0 {
		t.Errorf("the scratch root still holds %v", left)
	}
	c = CommandContext(ctx, p)
	if err := c.Start(); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with a context that is done: %v", err)
	}
}

// A deadline that passes at whatever moment of the start leaves nothing behind.
func TestContextEndsTheStart(t *testing.T) {
	p := testPlan(t, sh("trap '' TERM INT; (setsid sleep 1000) & sleep 1000")...)
	for d := time.Microsecond; d < 200*time.Millisecond; d *= 2 {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		c := CommandContext(ctx, p)
		err := c.Run()
		cancel()
		if r := c.Result(); err == nil || r.Started && !r.Killed || !r.Started && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: result %+v, error %v", d, r, err)
		}
		if left, _ := os.ReadDir(p.Scratch.Root); len(left) != 0 {
			t.Errorf("%v: the scratch root still holds %v", d, left)
		}
	}
}

func TestStreams(t *testing.T) {
	p := testPlan(t, sh("cat; echo err >&2")...)
	c := Command(p)
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(strings.Repeat("x", 1<<20)), &out, &errs
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if out.Len() != 1<<20 || errs.String() != "err\n" {
		t.Errorf("stdout %d bytes, stderr %q", out.Len(), errs.String())
	}
}

// A file descriptor that is open for reading must not become writable through
// /proc/self/fd, and one for writing not readable, whichever way it is passed.
func TestStreamFilesKeepTheirAccess(t *testing.T) {
	for _, abi := range []int{0, -1} {
		t.Run(fmt.Sprintf("landlock %d", abi), func(t *testing.T) {
			p := testPlan(t, sh("cat /dev/stdin; if test -f /dev/stdin; then echo x >/proc/self/fd/0; cat /proc/self/fd/1; fi 2>&1; true")...)
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpSymlink, Target: "/dev/stdin", Source: "/proc/self/fd/0"})
			if abi == 0 {
				p.Landlock = plan.Landlock{}
			}
			dir := scratchRoot(t)
			in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
			if err := os.WriteFile(in, []byte("input\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			fin, err := os.Open(in)
			if err != nil {
				t.Fatal(err)
			}
			defer fin.Close()
			fout, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			defer fout.Close()
			c := Command(p)
			c.Stdin, c.Stdout = fin, fout
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
			if b, _ := os.ReadFile(in); string(b) != "input\n" {
				t.Errorf("the input file holds %q", b)
			}
			b, _ := os.ReadFile(out)
			if !strings.HasPrefix(string(b), "input\n") || strings.Count(string(b), "input") != 1 {
				t.Errorf("the output file holds %q", b)
			}
		})
	}
}

// A protected file in a writable tree stays what it is when it is a standard
// stream or a kept descriptor, under its own name or another one.
func TestProtectedFileAsStream(t *testing.T) {
	for _, name := range []string{"config", "alias"} {
		t.Run(name, func(t *testing.T) {
			p := testPlan(t, sh("cat; echo evil >/proc/self/fd/0; true")...)
			dir := p.Command.Dir
			if err := os.WriteFile(dir+"/config", []byte("old\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+"/free", []byte("free\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if name == "alias" {
				if err := os.Link(dir+"/config", dir+"/alias"); err != nil {
					t.Fatal(err)
				}
			}
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpProtect, Target: dir + "/config", Type: plan.TypeFile})
			f, err := os.Open(dir + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			var out bytes.Buffer
			c := Command(p)
			c.Stdin, c.Stdout, c.Stderr = f, &out, &out
			if err := c.Run(); err != nil {
				t.Fatal(err, out.String())
			}
			if b, _ := os.ReadFile(dir + "/config"); string(b) != "old\n" || !strings.HasPrefix(out.String(), "old\n") {
				t.Errorf("the file holds %q, the command read %q", b, out.String())
			}

			p.KeepFDs = []int{int(f.Fd())}
			p.Scratch.ID += "1"
			if _, err := run(t, p); err == nil || !strings.Contains(err.Error(), "the plan protects") {
				t.Errorf("a kept descriptor: %v", err)
			}

			// What the command can write anyway is passed as it is.
			free, err := os.Open(dir + "/free")
			if err != nil {
				t.Fatal(err)
			}
			defer free.Close()
			p.KeepFDs = nil
			p.Scratch.ID += "2"
			c = Command(p)
			c.Stdin = free
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
			if b, _ := os.ReadFile(dir + "/free"); string(b) != "evil\n" {
				t.Errorf("a free file holds %q", b)
			}
		})
	}
}

// The same tree mounted twice: the path of the descriptor says nothing then.
func TestProtectedFileThroughAnotherMount(t *testing.T) {
	need(t, "root")
	runtime.LockOSThread() // never unlocked: the thread has its own mount namespace
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	base := scratchRoot(t)
	ws, alias, sub := base+"/ws", base+"/alias", base+"/sub"
	for _, d := range []string{ws + "/hooks", alias, sub, base + "/out"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{ws + "/config", ws + "/hooks/h", ws + "/free", base + "/out/f"} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range [][2]string{{ws, alias}, {ws + "/hooks", sub}} {
		if err := unix.Mount(m[0], m[1], "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		defer unix.Unmount(m[1], unix.MNT_DETACH)
	}
	p := plan.Plan{Mounts: []plan.Mount{
		{Op: plan.OpBind, Target: ws, Source: ws, Access: plan.AccessWrite, Type: plan.TypeDir},
		{Op: plan.OpProtect, Target: ws + "/config", Type: plan.TypeFile},
		{Op: plan.OpProtect, Target: ws + "/hooks", Type: plan.TypeDir},
	}}
	for name, want := range map[string]bool{
		ws + "/config": true, ws + "/hooks/h": true, ws + "/free": false,
		alias + "/config": true, alias + "/hooks/h": true, sub + "/h": true,
		base + "/out/f": false, "/proc/version": false,
	} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := carvedOut(&p, int(f.Fd()))
		f.Close()
		if err != nil || got != want {
			t.Errorf("%s: carved out %v (%v), want %v", name, got, err, want)
		}
	}
}

func TestDescribeRefuses(t *testing.T) {
	tests := []struct {
		name, path string
		flags      int
		want       string
	}{
		{"directory", "/", unix.O_RDONLY, "a directory"},
		{"O_PATH", "/etc/passwd", unix.O_PATH, "an O_PATH descriptor"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fd, err := unix.Open(tt.path, tt.flags|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if _, err := Describe(fd); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	if d, err := Describe(1 << 20); err != nil || d.Kind != plan.StdioClosed {
		t.Errorf("a closed descriptor: %+v, %v", d, err)
	}
}

func TestKeptDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	fd, err := unix.FcntlInt(w.Fd(), unix.F_DUPFD, 9)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	p := testPlan(t, sh(fmt.Sprintf("echo kept >/proc/self/fd/%d; ls /proc/self/fd | sort -n | tr '\\n' ' '", fd))...)
	p.KeepFDs = []int{fd}
	out, err := run(t, p)
	unix.Close(fd)
	if err != nil {
		t.Fatal(err, out)
	}
	if b, _ := io.ReadAll(r); string(b) != "kept\n" {
		t.Errorf("read %q", b)
	}
	if want := fmt.Sprintf("0 1 2 3 %d ", fd); out != want { // 3 is ls's own
		t.Errorf("descriptors %q, want %q", out, want)
	}
}

func TestEnforceOffRunsPlainly(t *testing.T) {
	p := testPlan(t, sh("echo out; echo err >&2; readlink /proc/self/ns/pid; exit 5")...)
	p.Enforce, p.Spaces, p.Mounts, p.Landlock, p.Seccomp, p.Checks = plan.EnforceOff, nil, nil, plan.Landlock{}, plan.Seccomp{}, nil
	out, err := run(t, p)
	var ee *ExitError
	if !errors.As(err, &ee) || ee.ExitCode != 5 {
		t.Fatalf("error %v", err)
	}
	ns, _ := os.Readlink("/proc/self/ns/pid")
	if want := "out\nerr\n" + ns + "\n"; out != want {
		t.Errorf("output %q, want %q", out, want)
	}
	p.Command.Path = "/no/such"
	if _, err := run(t, p); plan.ExitStatus(err) != plan.ExitNotFound {
		t.Errorf("a missing command: %v", err)
	}
}

func TestPlaceholdersAreRemoved(t *testing.T) {
	p := testPlan(t, sh("mkdir .git/x; mv .git y; rmdir .git; ls -d .git y 2>&1")...)
	dir := p.Command.Dir
	p.Scratch.Placeholders = []plan.Placeholder{{Path: dir + "/.git", Type: plan.TypeDir}}
	p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpProtect, Target: dir + "/.git", Type: plan.TypeDir})
	out, _ := run(t, p)
	if !strings.Contains(out, "\n.git\n") || strings.Contains(out, "\ny\n") {
		t.Errorf("output %q", out)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestProtectedLink(t *testing.T) {
	p := testPlan(t, sh("cat link/f; rm link; mv link l; ln -sfn /etc link; readlink link")...)
	dir := p.Command.Dir
	if err := os.Mkdir(dir+"/real", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/real/f", []byte("content\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpProtect, Target: dir + "/link", Type: plan.TypeSymlink})
	out, err := run(t, p)
	if err != nil || !strings.HasPrefix(out, "content\n") || !strings.HasSuffix(out, "\nreal\n") {
		t.Errorf("output %q, error %v", out, err)
	}
}

// When the host replaces a protected file, the kernel detaches the protection;
// the box must not outlive it.
func TestLostMountEndsTheBox(t *testing.T) {
	p := testPlan(t, sh("trap '' TERM; echo ready; (setsid sleep 1000) & while :; do echo evil 2>/dev/null >>'a b/config'; done")...)
	dir := p.Command.Dir
	if err := os.Mkdir(dir+"/a b", 0o700); err != nil {
		t.Fatal(err)
	}
	config := dir + "/a b/config"
	if err := os.WriteFile(config, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Mounts = append(p.Mounts,
		plan.Mount{Op: plan.OpPin, Target: dir + "/a b", Type: plan.TypeDir},
		plan.Mount{Op: plan.OpProtect, Target: config, Type: plan.TypeFile})
	c := Command(p)
	r, w := io.Pipe()
	c.Stdout = w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	go io.Copy(io.Discard, r)
	// An unrelated change on the host is none of the box's business.
	if err := os.WriteFile(dir+"/other", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if b, _ := os.ReadFile(config); string(b) != "old\n" {
		t.Errorf("the protected file holds %q", b)
	}
	if err := os.WriteFile(config+".new", []byte("new\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(config+".new", config); err != nil {
		t.Fatal(err)
	}
	err := c.Wait()
	if got, want := plan.Explain(err), "the box was ended: what was mounted on "+config+" is gone"; !strings.Contains(got, want) {
		t.Errorf("%q does not contain %q", got, want)
	}
	if r := c.Result(); !r.Killed || plan.ExitStatus(err) != 137 {
		t.Errorf("result %+v, exit status %d", r, plan.ExitStatus(err))
	}
}

// A hidden file that the host replaces stays hidden by Landlock; the box goes on.
// A value that is still to be fetched keeps the command from running, whether
// there are walls or not, and also when only stage 2 notices.
func TestUnfilledSourcesAreRefused(t *testing.T) {
	unfilled := plan.EnvVar{Name: "DB", Reason: "set", Source: plan.ValueSource{Kind: plan.SourceEnv, Name: "HOME"}}
	boxed := testPlan(t, sh("touch ran")...)
	off := boxed
	off.Enforce, off.Spaces, off.Mounts = plan.EnforceOff, nil, nil
	for _, p := range []plan.Plan{boxed, off} {
		p.Env = append([]plan.EnvVar{unfilled}, p.Env...)
		_, err := run(t, p)
		if err == nil || !strings.Contains(err.Error(), "lacks the values of variables: DB") || plan.ExitStatus(err) != plan.ExitFailed {
			t.Errorf("enforce %s: %v", p.Enforce, err)
		}
		if _, err := os.Lstat(p.Command.Dir + "/ran"); err == nil {
			t.Errorf("enforce %s: the command ran", p.Enforce)
		}
	}
	c := Command(boxed)
	c.Plan.Env = append([]plan.EnvVar{unfilled}, c.Plan.Env...)
	c.started = true
	var s stdio
	if err := s.open(c); err != nil {
		t.Fatal(err)
	}
	c.Plan.Stdio = s.described
	err := c.startBox(&s)
	s.closeChild()
	defer c.release()
	checkStepError(t, err, "order")
	if !strings.Contains(err.Error(), "lacks the values of variables: DB") {
		t.Errorf("stage 2: %v", err)
	}
}

func TestLostCoverIsSpared(t *testing.T) {
	p := testPlan(t, sh("read x; cat $HIDDEN && exit 1; exit 7")...)
	dir := scratchRoot(t)
	hidden := dir + "/hidden"
	if err := os.WriteFile(hidden, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Mounts = append(p.Mounts,
		plan.Mount{Op: plan.OpBind, Target: dir, Source: dir, Access: plan.AccessRead, Type: plan.TypeDir, MakeAs: plan.TypeDir},
		plan.Mount{Op: plan.OpCover, Target: hidden, Type: plan.TypeFile})
	p.Landlock.Rules = []plan.PathRule{
		{Path: "/", Access: plan.AccessRead, Except: []string{"/dev", "/proc", "/sys", hidden}},
		{Path: "/dev", Access: plan.AccessDevice}, {Path: "/proc", Access: plan.AccessInOut},
	}
	p.Env = append([]plan.EnvVar{{Name: "HIDDEN", Value: hidden}}, p.Env...)
	c := Command(p)
	r, w := io.Pipe()
	c.Stdin = r
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hidden+".new", []byte("secret2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(hidden+".new", hidden); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	w.Write([]byte("\n"))
	w.Close()
	err := c.Wait()
	if r := c.Result(); r.ExitCode != 7 {
		t.Errorf("result %+v, error %v", r, err)
	}
}

// A file of wall's own stands in the place of another, cannot be written, and may be
// lost: it protects nothing.
func TestText(t *testing.T) {
	p := testPlan(t, sh(`cat "$FILE"; stat -c %a "$FILE"; echo x 2>/dev/null >>"$FILE" && exit 1; rm -f "$FILE" 2>/dev/null && exit 2; echo ready; read x; cat "$FILE"; exit 7`)...)
	dir := scratchRoot(t)
	file := dir + "/file"
	if err := os.WriteFile(file, []byte("the host's\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	const text = "# wall's\n\xff\n"
	p.Mounts = append(p.Mounts,
		plan.Mount{Op: plan.OpBind, Target: dir, Source: dir, Access: plan.AccessWrite, Type: plan.TypeDir, MakeAs: plan.TypeDir},
		plan.Mount{Op: plan.OpText, Target: file, Source: text},
		plan.Mount{Op: plan.OpText, Target: dir + "/missing", Source: text, Optional: true})
	p.Env = append([]plan.EnvVar{{Name: "FILE", Value: file}}, p.Env...)
	c := Command(p)
	r, w := io.Pipe()
	c.Stdin = r
	outR, outW := io.Pipe()
	c.Stdout = outW
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	const want = text + "444\nready\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(outR, got); err != nil || string(got) != want {
		t.Errorf("output %q, %v, want %q", got, err, want)
	}
	go io.Copy(io.Discard, outR)
	if err := os.WriteFile(file+".new", []byte("new\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("\n"))
	w.Close()
	err := c.Wait()
	if r := c.Result(); r.ExitCode != 7 {
		t.Errorf("result %+v, error %v", r, err)
	}
}

func TestTextOfAnotherType(t *testing.T) {
	p := testPlan(t, sh("true")...)
	p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpText, Target: "/usr", Source: "x"})
	_, err := run(t, p)
	checkStepError(t, err, "mounts")
}

// The mount table of the host is the same during and after a run.
func TestHostMountsUnchanged(t *testing.T) {
	for try := 1; ; try++ {
		before, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		c := Command(testPlan(t, sh("read x")...))
		r, w := io.Pipe()
		c.Stdin = r
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		during, _ := os.ReadFile("/proc/self/mountinfo")
		w.Write([]byte("\n"))
		w.Close()
		c.Wait()
		after, _ := os.ReadFile("/proc/self/mountinfo")
		if bytes.Equal(before, during) && bytes.Equal(before, after) {
			break
		}
		if try == 5 { // others on the host mount, too, and not each time
			t.Fatal("the mount table changed")
		}
	}
}

func TestPrepareFailureIsLocated(t *testing.T) {
	p := testPlan(t, sh("true")...)
	p.Scratch.Root = "/proc/no-such-place"
	_, err := run(t, p)
	if err == nil || plan.ExitStatus(err) != plan.ExitFailed {
		t.Errorf("error %v", err)
	}
	if _, err := scratch.Prepare(p.Scratch); err == nil {
		t.Error("Prepare accepts /proc")
	}
}

func TestProbe(t *testing.T) {
	need(t, "userns")
	fs, err := Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(fs) != len(probes) {
		t.Errorf("%d features, want %d", len(fs), len(probes))
	}
	for _, f := range fs {
		if !f.OK {
			t.Errorf("%s: %s (%s)", f.Name, f.Detail, f.Remedy)
		}
	}
}
