package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// need skips the test when a condition of the scripts does not hold, or fails it
// when WALL_TEST_REQUIRE names it.
func need(t *testing.T, conditions ...string) {
	t.Helper()
	for _, c := range conditions {
		ok, err := scriptCondition(c)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			t.Skipf("needs %s", c)
		}
	}
}

// nullStreams are three times /dev/null.
func nullStreams(t *testing.T) streams {
	t.Helper()
	f, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return streams{f, f, f}
}

// TestStartSteadily has the host change between the plan and the start: a mount
// of the plan leads to a directory that is gone, for the first n plans.
func TestStartSteadily(t *testing.T) {
	need(t, "userns", "landlock:1", "seccomp")
	ws := realTemp(t)
	t.Chdir(ws)
	for _, tt := range []struct {
		name  string
		stale int  // plans with a missing source
		same  bool // each looks for the same missing source
		plans int
		ran   bool
	}{
		{"nothing changes", 0, false, 1, true},
		{"one change", 1, false, 2, true},
		{"it changes all the time", 100, false, nsexec.StartTries + 1, false},
		{"looking again does not help", 100, true, nsexec.StartTries + 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			plans := 0
			resolve := func(h profile.Host, o profile.Options) (plan.Plan, *profile.Stack, error) {
				o.Default, o.Command = "agent", []string{"sh", "-c", "echo x >>ran"}
				p, st, err := profile.ResolveStack(h, o)
				if err == nil && plans < tt.stale {
					missing := ws + "/gone"
					if !tt.same {
						missing += strings.Repeat("x", plans)
					}
					i := slices.IndexFunc(p.Mounts, func(m plan.Mount) bool { return m.Op == plan.OpBind })
					m := p.Mounts[i]
					m.Source, m.Optional = missing, false
					p.Mounts = slices.Insert(slices.Clone(p.Mounts), i, m)
				}
				plans++
				return p, st, err
			}
			j, err := gather(&shared{scratch: realTemp(t)}, -1, resolve)
			if err != nil {
				t.Fatal(err)
			}
			p, err := j.plan()
			if err != nil {
				t.Fatal(err)
			}
			_, o, err := startSteadily(t.Context(), nullStreams(t), &runFlags{shared: new(shared)}, j, p, noStatus, nil)
			if o.result.Started != tt.ran || (err == nil) != tt.ran {
				t.Errorf("ran %v, error %v; want %v", o.result.Started, err, tt.ran)
			}
			if !tt.ran && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("error %v", err)
			}
			if plans != tt.plans {
				t.Errorf("%d plans, want %d", plans, tt.plans)
			}
			out, _ := os.ReadFile("ran")
			os.Remove("ran")
			want := ""
			if tt.ran {
				want = "x\n"
			}
			if string(out) != want {
				t.Errorf("the command wrote %q, want %q", out, want)
			}
		})
	}
}

// TestLongArguments passes 1.2 MB of arguments, as much as a bare command takes
// with the usual stack limit.
func TestLongArguments(t *testing.T) {
	need(t, "userns", "landlock:1", "seccomp")
	t.Chdir(realTemp(t))
	args := []string{"run", "--scratch-root", realTemp(t), "--", "sh", "-c", `[ $# -eq 12 ] && [ ${#12} -eq 100000 ]`, "sh"}
	for range 12 {
		args = append(args, strings.Repeat("x", 100_000))
	}
	if status, stdout, stderr := runCLI(t, args...); status != 0 {
		t.Errorf("status %d\n%s%.2000s", status, stdout, stderr)
	}
	// More than the kernel takes in one argument (MAX_ARG_STRLEN).
	status, _, stderr := runCLI(t, "run", "--scratch-root", realTemp(t), "--", "true", strings.Repeat("x", 2_000_000))
	if !strings.Contains(stderr, "argument list too long") || status < 125 || len(stderr) > 2000 {
		t.Errorf("2 MB argument: status %d, %.2000s", status, stderr)
	}
	status, _, stderr = runCLI(t, "run", "--scratch-root", realTemp(t), "--", "true", "a\x00b")
	if !strings.Contains(stderr, "NUL") || status != 125 {
		t.Errorf("NUL in an argument: status %d, %s", status, stderr)
	}
}

// TestCleanupKeepsTheStatus has something in the scratch home resist removal: the
// status is the command's all the same, and the failure is told.
func TestCleanupKeepsTheStatus(t *testing.T) {
	need(t, "userns", "landlock:1", "seccomp", "root")
	root, ws := realTemp(t), realTemp(t)
	t.Chdir(ws)
	immutable := func(name string, on int) error {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		const flag = 0x10 // FS_IMMUTABLE_FL
		return unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, on*flag)
	}
	for _, want := range []int{0, 7} {
		failed := make(chan error, 1)
		var file string
		go func() {
			failed <- func() error {
				for range 6000 {
					if found, _ := filepath.Glob(root + "/wall-*/wall-*/home/f"); len(found) == 1 {
						file = found[0]
						return errors.Join(immutable(file, 1), os.WriteFile(ws+"/go", nil, 0o600))
					}
					time.Sleep(10 * time.Millisecond)
				}
				return errors.New("no scratch home")
			}()
		}()
		status, _, stderr := runCLI(t, "run", "--scratch-root", root, "--json", "out.json", "--", "sh", "-c",
			": >$HOME/f; while [ ! -e go ]; do sleep .01; done; rm go; exit "+strconv.Itoa(want))
		if err := <-failed; err != nil {
			t.Skip(err) // not on every file system
		}
		if err := errors.Join(immutable(file, 0), os.RemoveAll(filepath.Dir(filepath.Dir(file)))); err != nil {
			t.Error(err)
		}
		if status != want || !strings.Contains(stderr, "wall: warning: something of this run is left: ") {
			t.Errorf("status %d, want %d\n%s", status, want, stderr)
		}
		out, err := os.ReadFile("out.json")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := jsonField(string(out), "cleanup"); err != nil || !strings.Contains(got, "home/f") {
			t.Errorf("cleanup %q, %v", got, err)
		}
		if got, err := jsonField(string(out), "exit"); err != nil || got != strconv.Itoa(want) {
			t.Errorf("exit %q, %v", got, err)
		}
	}
}
