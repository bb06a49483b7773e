package cgroup

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// TestScope asks a real user manager for a scope, enters the group below it, and
// sees both go away with the process.
func TestScope(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	h := parseHierarchies(string(mounts), string(own))
	c, err := h.findScope(Need{true, true}, fmt.Sprintf("%016x", time.Now().UnixNano()), Manager)
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), "systemd-user") {
			t.Fatal(err)
		}
		t.Skipf("needs a systemd of the user: %v", err)
	}
	cmd := sleeper(t)
	holder := sleeper(t)
	g, err := Enter(c, Limits{Memory: 64 << 20, Pids: 8}, cmd.Process.Pid, holder.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	place, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/cgroup")
	if err != nil || !strings.HasSuffix(string(place), strings.TrimPrefix(g.dirs()[0], h.unified.root)+"/box\n") {
		t.Errorf("the process is in %q, %v", place, err)
	}
	for name, want := range map[string]string{"memory.max": "67108864", "pids.max": "8"} {
		if text, err := os.ReadFile(g.dirs()[0] + "/" + name); err != nil || strings.TrimSpace(string(text)) != want {
			t.Errorf("%s is %q, %v, want %s", name, text, err, want)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// What the kernel has counted is there as long as the holder is.
	time.Sleep(100 * time.Millisecond)
	if _, err := os.ReadFile(g.dirs()[0] + "/memory.events"); err != nil {
		t.Error(err)
	}
	scope := path.Dir(g.dirs()[0])
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	_ = holder.Process.Kill()
	_ = holder.Wait()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(scope); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("%s is left", scope)
		}
	}
}

// TestNoManager gives Find nobody to ask: each error comes at once or within the bound, and tells why.
func TestNoManager(t *testing.T) {
	old := managerSocket
	defer func() { managerSocket = old }()
	dir := t.TempDir()
	file := dir + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("unix", dir+"/silent")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, want := range map[string]string{
		dir + "/none":   "the user's systemd: lstat " + dir + "/none: no such file or directory",
		file:            "the user's systemd: " + file + " is no socket of yours",
		dir + "/silent": "the user's systemd: it does not answer in time",
	} {
		managerSocket = func() string { return name }
		h := hierarchies{unified: hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup"}}
		c, err := h.findScope(Need{Memory: true}, "ab", Manager)
		if err == nil || err.Error() != want || c != (plan.Cgroup{}) {
			t.Errorf("%+v, %v, want %s", c, err, want)
		}
		_, err = Enter(plan.Cgroup{Version: 2, ID: "ab", Memory: "/sys/fs/cgroup/wall-ab-1.scope", Scope: "wall-ab-1.scope"}, Limits{Memory: 1}, os.Getpid(), 0)
		if _, ok := errors.AsType[*ScopeError](err); !ok {
			t.Errorf("%v, want a ScopeError", err)
		}
	}
}

// TestScopesOfOneRun: each start has another, and the plans are the same.
func TestScopesOfOneRun(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(root+"/cgroup.controllers", []byte("memory pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := hierarchies{unified: hierarchy{root, root}}
	want := plan.Cgroup{Version: 2, ID: "ab", Memory: root + "/app.slice/wall-ab.scope", Scope: "wall-ab.scope"}
	seen := map[string]bool{}
	for range 3 {
		c, err := h.findScope(Need{Memory: true}, "ab", func() (string, error) { return "/", nil })
		if err != nil || c != want {
			t.Fatalf("%+v, %v, want %+v", c, err, want)
		}
		c = another(c)
		if seen[c.Scope] || c.Memory != root+"/app.slice/"+c.Scope || c.Pids != "" {
			t.Errorf("%+v", c)
		}
		seen[c.Scope] = true
	}
}

// TestMain is also a manager in a process of its own, which never answers.
func TestMain(m *testing.M) {
	if name := os.Getenv("WALL_TEST_MANAGER"); name != "" {
		l, err := net.Listen("unix", name)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		defer l.Close()
		fmt.Println("listens")
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// TestManagerElsewhere: to a manager in another PID namespace numbers of processes mean others.
func TestManagerElsewhere(t *testing.T) {
	old := managerSocket
	defer func() { managerSocket = old }()
	for _, flags := range []uintptr{0, unix.CLONE_NEWUSER | unix.CLONE_NEWPID} {
		name := t.TempDir() + "/s"
		managerSocket = func() string { return name }
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "WALL_TEST_MANAGER="+name)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if flags != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			_, err = io.ReadFull(out, make([]byte, len("listens\n")))
		}
		if err != nil {
			t.Fatal(err)
		}
		want := "the user's systemd: it does not answer in time"
		if flags != 0 {
			want = "the user's systemd: it is in another PID namespace"
		}
		if group, err := Manager(); err == nil || err.Error() != want {
			t.Errorf("%q, %v, want %s", group, err, want)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for status, want := range map[string]bool{
		"Name:\tx\nNSpid:\t7\nState:\tS\n": true, "NSpid:\t7\t1\n": false, "NSpid:\t1\n": false, "NSpid:\n": false, "Pid:\t7\n": false, "": false,
	} {
		if got := here(status, 7); got != want {
			t.Errorf("%q: %t", status, got)
		}
	}
}
