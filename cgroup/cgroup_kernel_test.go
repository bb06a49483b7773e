package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// need skips the test when nothing here lets the caller make cgroups, or fails it when
// WALL_TEST_REQUIRE has the word "cgroup" (root) or "delegated-cgroup".
func need(t *testing.T, n Need) plan.Cgroup {
	t.Helper()
	c, err := Find(n, fmt.Sprintf("%016x", time.Now().UnixNano()), nil)
	if err == nil {
		return c
	}
	word := "cgroup"
	if os.Getuid() != 0 {
		word = "delegated-cgroup"
	}
	if slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), word) {
		t.Fatalf("cgroups are required and not there: %v", err)
	}
	t.Skipf("needs cgroups: %v", err)
	return c
}

// sleeper starts a process that waits to be killed.
func sleeper(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	if argv == nil {
		argv = []string{"sleep", "600"}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func TestFindLeavesNothing(t *testing.T) {
	c := need(t, Need{true, true})
	for _, dir := range c.Dirs() {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it to be gone", dir, err)
		}
	}
}

func TestEnter(t *testing.T) {
	c := need(t, Need{true, true})
	cmd := sleeper(t)
	g, err := Enter(c, Limits{Memory: 64 << 20, Pids: 8}, cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	want := 2
	if c.Version == 2 {
		want = 1
	}
	if n := strings.Count(string(own), "/wall-"+c.ID+"/box\n"); n != want {
		t.Errorf("the process is in\n%swant %d hierarchies of the run", own, want)
	}
	if r := g.Look(); r != (Reached{}) {
		t.Errorf("before anything: %+v", r)
	}
	// A group with a process in it is nobody's to collect.
	if removed := Collect(c); slices.ContainsFunc(removed, func(s string) bool { return strings.HasSuffix(s, c.ID) }) {
		t.Errorf("Collect removed %q, which is in use", removed)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	for _, dir := range c.Dirs() {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it to be gone", dir, err)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	c := need(t, Need{Memory: true})
	// Waits for its standard input, so that it is inside before it eats.
	cmd := exec.Command("sh", "-c", `read go; x=$(head -c 200000000 /dev/zero | tr '\0' x); echo ${#x}`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g, err := Enter(c, Limits{Memory: 32 << 20}, cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write([]byte("go\n"))
	err = cmd.Wait()
	if err == nil {
		t.Error("the command got 200 MB with a limit of 32 MiB")
	}
	if r := g.Look(); r.Memory == 0 {
		t.Errorf("%+v, want the kernel to have killed for want of memory (%v)", r, err)
	}
	if u := g.Usage(); u.PeakMemory < 16<<20 || u.PeakMemory > 33<<20 {
		t.Errorf("%+v, want a peak of about 32 MiB", u)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

func TestPidsLimit(t *testing.T) {
	c := need(t, Need{Pids: true})
	cmd := exec.Command("sh", "-c", `read go; for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g, err := Enter(c, Limits{Pids: 4}, cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = in.Write([]byte("go\n"))
	for begin := time.Now(); g.Look().Pids == 0; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("eight processes were made with a limit of four")
		}
	}
	dir := g.dirs()[0]
	for {
		b, _ := os.ReadFile(dir + "/" + inner + "/cgroup.procs")
		pids := strings.Fields(string(b))
		if len(pids) == 0 {
			break
		}
		for _, p := range pids {
			n, _ := strconv.Atoi(p)
			_ = unix.Kill(n, unix.SIGKILL)
		}
		_ = cmd.Wait()
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

// TestRemoveWhatTheCommandMade: groups below the one of the processes, where the
// command got at it.
func TestRemoveWhatTheCommandMade(t *testing.T) {
	c := need(t, Need{true, true})
	g := &Group{version: c.Version}
	if err := again(func() error { return g.make(c, Limits{1 << 30, 10}) }); err != nil {
		t.Fatal(err)
	}
	for _, dir := range g.dirs() {
		err := os.MkdirAll(dir+"/box/a/b/c", 0o755)
		if c.Version == 1 && err != nil || c.Version == 2 && err == nil {
			t.Errorf("version %d: a group in the group: %v", c.Version, err)
		}
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	for _, dir := range c.Dirs() {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want it to be gone", dir, err)
		}
	}
}

// TestCollect: what a killed run left is removed, what belongs to others is not.
func TestCollect(t *testing.T) {
	c := need(t, Need{true, true})
	other := c
	other.ID = "feedfeedfeedfeed"
	foreign := c.Memory + "/wall-of-another-program"
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(foreign)
	for try := 1; ; try++ {
		g := &Group{version: c.Version}
		if err := again(func() error { return g.make(other, Limits{1 << 30, 10}) }); err != nil {
			t.Fatal(err)
		}
		for _, dir := range other.Dirs() {
			g.unlock(dir) // as if it had been killed
		}
		removed := Collect(c)
		told := true
		for _, dir := range other.Dirs() {
			told = told && slices.Contains(removed, dir)
			for begin := time.Now(); ; time.Sleep(time.Millisecond) {
				if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
					break
				} else if time.Since(begin) > 30*time.Second {
					t.Fatalf("%s: %v, want it to be gone", dir, err)
				}
			}
		}
		if told {
			break
		}
		if try == 5 { // runs of other tests collect, too
			t.Fatalf("Collect gives %q, want %q among them", removed, other.Dirs())
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("what is not wall's was removed: %v", err)
	}
}

// TestCollectLeavesWhatIsToBeRead: the group of a run whose processes have ended still
// has the counters that tell why.
func TestCollectLeavesWhatIsToBeRead(t *testing.T) {
	c := need(t, Need{true, true})
	cmd := sleeper(t)
	g, err := Enter(c, Limits{1 << 30, 100}, cmd.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for range 3 {
		Collect(c)
	}
	for _, dir := range c.Dirs() {
		if _, err := os.Stat(dir + "/" + inner); err != nil {
			t.Errorf("the group was collected: %v", err)
		}
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

// TestCollectDuringEnter: a run whose group is collected before it is entered
// makes it again.
func TestCollectDuringEnter(t *testing.T) {
	c := need(t, Need{true, true})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				Collect(c)
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	for range 30 {
		cmd := sleeper(t)
		g, err := Enter(c, Limits{1 << 30, 100}, cmd.Process.Pid, 0)
		if err != nil {
			t.Fatal(err)
		}
		own, _ := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/cgroup")
		if !strings.Contains(string(own), c.ID+"/box\n") {
			t.Fatalf("the process is in\n%s", own)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
	}
}
