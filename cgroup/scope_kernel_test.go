package cgroup

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
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
	c, err := h.findScope(Need{true, true}, fmt.Sprintf("%016x", time.Now().UnixNano()))
	if err != nil {
		if slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), "systemd-user") {
			t.Fatal(err)
		}
		t.Skipf("needs a systemd of the user: %v", err)
	}
	cmd := sleeper(t)
	g, err := Enter(c, Limits{Memory: 64 << 20, Pids: 8}, cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	place, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/cgroup")
	if err != nil || !strings.HasSuffix(string(place), "/app.slice/wall-"+c.ID+".scope/wall-"+c.ID+"/box\n") {
		t.Errorf("the process is in %q, %v", place, err)
	}
	for name, want := range map[string]string{"memory.max": "67108864", "pids.max": "8"} {
		if text, err := os.ReadFile(c.Dirs()[0] + "/" + name); err != nil || strings.TrimSpace(string(text)) != want {
			t.Errorf("%s is %q, %v, want %s", name, text, err, want)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(c.Memory); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("%s is left", c.Memory)
		}
	}
}

func TestManagerOfNobody(t *testing.T) {
	old := managerSocket
	defer func() { managerSocket = old }()
	managerSocket = func() string { return "/nonexistent/private" }
	h := hierarchies{unified: hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup"}}
	if _, err := h.findScope(Need{Memory: true}, "ab"); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "the user's systemd: ") {
		t.Errorf("%v", err)
	}
}
