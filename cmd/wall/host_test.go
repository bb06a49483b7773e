package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGatherHost(t *testing.T) {
	h, err := gatherHost()
	if err != nil {
		t.Fatal(err)
	}
	h2, err := gatherHost()
	if err != nil {
		t.Fatal(err)
	}
	if len(h.RunID) != 16 || strings.Trim(h.RunID, "0123456789abcdef") != "" || h.RunID == h2.RunID {
		t.Errorf("run ids %q and %q", h.RunID, h2.RunID)
	}
	if h.TempDir != "/tmp" || h.UID != os.Getuid() || h.GID != os.Getgid() || h.OS != "linux" {
		t.Errorf("%+v", h)
	}
	if len(h.Stdio) != 3 || h.Stdio[0].FD != 0 || h.Stdio[2].FD != 2 {
		t.Errorf("stdio %+v", h.Stdio)
	}
	exe, err := os.Executable()
	if err != nil || h.Executable != exe {
		t.Errorf("executable %q, want %q (%v)", h.Executable, exe, err)
	}
}

// TestTempDirIsNotAsked: TMPDIR may lie where an earlier command could write.
func TestTempDirIsNotAsked(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("HOME", "/nowhere")
	h, err := gatherHost()
	if err != nil {
		t.Fatal(err)
	}
	if h.TempDir != "/tmp" || h.AccountHome == "/nowhere" {
		t.Errorf("temp %q, home %q", h.TempDir, h.AccountHome)
	}
}

func TestWorkingDirectory(t *testing.T) {
	d := realTemp(t)
	mkdir(t, d+"/real", d+"/other")
	symlink(t, "real", d+"/link")
	t.Chdir(d + "/real")
	if got := physicalCwd(); got != d+"/real" {
		t.Errorf("physical %q", got)
	}
	for pwd, want := range map[string]string{
		d + "/real":          d + "/real",
		d + "/link":          d + "/link",
		d + "/other":         "",
		d + "/nosuch":        "",
		d + "/link/":         "",
		d + "/other/../link": "",
		"real":               "",
		".":                  "",
		"":                   "",
	} {
		if got := logicalCwd(pwd); got != want {
			t.Errorf("logicalCwd(%q) = %q, want %q", pwd, got, want)
		}
	}
	if err := os.Remove(d + "/real"); err != nil {
		t.Fatal(err)
	}
	if got := physicalCwd(); got != "" {
		t.Errorf("a deleted directory is %q", got)
	}
	if got := logicalCwd(d + "/link"); got != "" {
		t.Errorf("a deleted directory is %q", got)
	}
}

func TestKeptFDs(t *testing.T) {
	dir := t.TempDir()
	// The tests' own descriptors are close-on-exec, a duplicate is not.
	dup := func(name string, flags int) int {
		t.Helper()
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		d, err := unix.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(d) })
		return d
	}
	file := dup(filepath.Join(dir, "file"), unix.O_CREAT|unix.O_RDWR)
	null := dup("/dev/null", unix.O_RDWR)

	got, err := keptFDs(fdList{fds: []int{null, file, null}}, -1)
	want := []int{file, null}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	got, err = keptFDs(fdList{all: true}, null)
	if err != nil || !slices.Contains(got, file) || slices.Contains(got, null) {
		t.Errorf("all but %d: got %v, %v", null, got, err)
	}
	for _, fd := range got {
		if !inherited(fd) {
			t.Errorf("all: %d is close-on-exec", fd)
		}
	}

	directory := dup(dir, unix.O_RDONLY)
	pathOnly := dup(filepath.Join(dir, "file"), unix.O_PATH)
	for _, tt := range []struct {
		l        fdList
		reserved int
		want     string
	}{
		{fdList{fds: []int{1_000_000_000}}, -1, "cannot pass descriptor 1000000000 to the command: it is not open"},
		{fdList{fds: []int{file}}, file, "it carries the report of --status-fd"},
		{fdList{fds: []int{directory}}, -1, "it is a directory"},
		{fdList{fds: []int{pathOnly}}, -1, "O_PATH"},
		{fdList{all: true}, -1, "it is a directory"},
	} {
		if _, err := keptFDs(tt.l, tt.reserved); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %q", tt.l, err, tt.want)
		}
	}
}
