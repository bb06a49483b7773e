package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// realTemp is a temporary directory by its name without links.
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

// TestOpenTrusted walks names with links inside and outside of a workspace, and
// compares where it ends with the directory that must be there.
func TestOpenTrusted(t *testing.T) {
	d := realTemp(t)
	mkdir(t, d+"/ws/sub/deep", d+"/home/.ssh", d+"/elsewhere")
	symlink(t, "ws", d+"/tows")
	symlink(t, d+"/ws/sub", d+"/tosub")
	symlink(t, d+"/home/.ssh", d+"/ws/evil")
	symlink(t, "sub", d+"/ws/inner")
	symlink(t, "../../elsewhere", d+"/ws/sub/up")
	symlink(t, "loop", d+"/loop")
	if err := os.WriteFile(d+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ws := []string{d + "/ws"}
	var planted *plantedLinkError
	for _, tt := range []struct {
		name string
		want string // directory it ends at, "" for an error
		err  error  // nil: any plantedLinkError
	}{
		{"/ws", "/ws", nil},
		{"/ws/sub/deep", "/ws/sub/deep", nil},
		{"/ws//sub/./deep/../deep/", "/ws/sub/deep", nil},
		{"/ws/../elsewhere", "/elsewhere", nil},
		{"/tows/sub", "/ws/sub", nil},
		{"/tosub/deep", "/ws/sub/deep", nil},
		{"/ws/evil", "", nil},
		{"/tows/evil", "", nil},
		{"/ws/inner", "", nil},
		{"/ws/sub/up", "", nil},
		{"/tosub/up", "", nil},
		{"/nosuch", "", unix.ENOENT},
		{"/file", "", unix.ENOTDIR},
		{"/file/x", "", unix.ENOTDIR},
		{"/loop", "", unix.ELOOP},
	} {
		fd, err := openTrusted(d+tt.name, ws)
		if tt.want == "" {
			if err == nil {
				unix.Close(fd)
			}
			if tt.err == nil && !errors.As(err, &planted) || tt.err != nil && !errors.Is(err, tt.err) {
				t.Errorf("%s: error %v, want %v", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var got, want unix.Stat_t
		if err := errors.Join(unix.Fstat(fd, &got), unix.Stat(d+tt.want, &want)); err != nil {
			t.Fatal(err)
		}
		if got.Ino != want.Ino || got.Dev != want.Dev {
			t.Errorf("%s does not end at %s", tt.name, tt.want)
		}
		unix.Close(fd)
	}
	if fd, err := openTrusted(d+"/ws/evil", nil); err != nil {
		t.Errorf("a link in a trusted directory: %v", err)
	} else {
		unix.Close(fd)
	}
}

// TestOpenTrustedClosesItsDescriptors counts descriptors before and after.
func TestOpenTrustedClosesItsDescriptors(t *testing.T) {
	d := realTemp(t)
	mkdir(t, d+"/a/b")
	symlink(t, d+"/a", d+"/abs")
	count := func() int {
		e, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(e)
	}
	before := count()
	for _, name := range []string{"/a/b", "/abs/b", "/abs/../abs/b/..", "/nosuch/x", "/a/nosuch", "/abs/b/x"} {
		if fd, err := openTrusted(d+name, nil); err == nil {
			unix.Close(fd)
		}
		if fd, err := openTrusted(d+name, []string{d}); err == nil {
			unix.Close(fd)
		}
	}
	if after := count(); after > before { // what an earlier test left may be closed meanwhile
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestResultFile(t *testing.T) {
	d := realTemp(t)
	name := d + "/out.json"
	if err := os.WriteFile(name, []byte("of an earlier run"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := openResultFile("json", "out.json", d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if _, err := os.Lstat(name); !os.IsNotExist(err) {
		t.Errorf("the file of an earlier run is still there: %v", err)
	}
	// The command puts a link where the result goes: it is replaced, not followed.
	target := d + "/target"
	symlink(t, target, name)
	if err := f.write([]byte("new")); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != "new" {
		t.Errorf("result %q, %v", got, err)
	}
	if _, err := os.Lstat(target); !os.IsNotExist(err) {
		t.Errorf("the result went through the link: %v", err)
	}
	// The command moves the directory away and puts another there.
	mkdir(t, d+"/dir", d+"/other")
	f2, err := openResultFile("json", d+"/dir/out.json", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f2.close()
	if err := errors.Join(os.Rename(d+"/dir", d+"/moved"), os.Symlink(d+"/other", d+"/dir")); err != nil {
		t.Fatal(err)
	}
	if err := f2.write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(d + "/other"); len(left) != 0 {
		t.Errorf("the result went to the directory that was put in place: %v", left)
	}
	for _, dir := range []string{d, d + "/moved"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".wall-") {
				t.Errorf("%s is left in %s", e.Name(), dir)
			}
		}
	}
}

// TestResultFileRefuses checks what --json must not touch.
func TestResultFileRefuses(t *testing.T) {
	d := realTemp(t)
	mkdir(t, d+"/dir", d+"/ws")
	symlink(t, d+"/nowhere", d+"/link")
	symlink(t, d+"/dir", d+"/ws/link")
	if err := unix.Mkfifo(d+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"dir":          "it exists and is not a regular file",
		"link":         "it exists and is not a regular file",
		"fifo":         "it exists and is not a regular file",
		"/dev/null":    "it exists and is not a regular file",
		"/dev/stdout":  "it exists and is not a regular file",
		"dir/":         "it names a directory",
		".":            "it names a directory",
		"nosuch/x":     "no such file or directory",
		"ws/link/x":    `is a symbolic link in a directory that is writable inside the box`,
		"/proc/self/x": "", // the kernel's own words differ
	} {
		f, err := openResultFile("json", name, d, []string{d + "/ws"})
		if err == nil {
			f.close()
			t.Errorf("%s is accepted", name)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %q, want %q", name, err, want)
		}
	}
	for _, name := range []string{d + "/dir", d + "/link", d + "/fifo", "/dev/null", "/dev/stdout"} {
		if _, err := os.Lstat(name); err != nil {
			t.Errorf("%s is gone: %v", name, err)
		}
	}
	if _, err := openResultFile("json", "x", "", nil); err == nil {
		t.Error("a relative name in a deleted directory is accepted")
	}
}

// TestResultFileTakenByDirectory: the command makes a directory of that name.
func TestResultFileTakenByDirectory(t *testing.T) {
	d := realTemp(t)
	f, err := openResultFile("json", "out", d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	mkdir(t, d+"/out/full")
	if err := f.write([]byte("x")); err == nil {
		t.Error("no error")
	}
	if entries, _ := os.ReadDir(d); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

// TestResultFileInClosedDirectory: the command takes the right to write away.
func TestResultFileInClosedDirectory(t *testing.T) {
	d := realTemp(t)
	asUser(t, d, func() {
		f, err := openResultFile("json", "out", d, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.close()
		if err := errors.Join(os.Chmod(d, 0o055), f.write([]byte("x"))); err != nil {
			t.Error(err)
		}
		if st, err := os.Stat(d); err != nil || st.Mode().Perm() != 0o055 {
			t.Errorf("mode %v, %v", st, err)
		}
	})
	if got, err := os.ReadFile(d + "/out"); err != nil || string(got) != "x" {
		t.Errorf("result %q, %v", got, err)
	}
}

// asUser runs f on a thread that is no superuser and owns dir, which file
// permissions bind.
func asUser(t *testing.T, dir string, f func()) {
	t.Helper()
	const uid = 54321
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	if os.Geteuid() != 0 {
		f()
		os.Chmod(dir, 0o700)
		return
	}
	if err := errors.Join(os.Chown(dir, uid, uid), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	// setfsuid(2) changes one thread, and takes what overrides permissions.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unix.SetfsuidRetUid(uid)
	defer unix.SetfsuidRetUid(0)
	f()
}
