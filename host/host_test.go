package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// realTemp is a temporary directory free of links.
func realTemp(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdir(t *testing.T, dirs ...string) {
	t.Helper()
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func symlink(t *testing.T, text, at string) {
	t.Helper()
	if err := os.Symlink(text, at); err != nil {
		t.Fatal(err)
	}
}

func TestGather(t *testing.T) {
	h, err := Gather()
	if err != nil {
		t.Fatal(err)
	}
	h2, err := Gather()
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
	h, err := Gather()
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
	if got := WorkingDir(); got != d+"/real" {
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
	if got := WorkingDir(); got != "" {
		t.Errorf("a deleted directory is %q", got)
	}
	if got := logicalCwd(d + "/link"); got != "" {
		t.Errorf("a deleted directory is %q", got)
	}
}
