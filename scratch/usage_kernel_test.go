package scratch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// filled makes a scratch directory with one sub-directory, and gives its path.
func filled(t *testing.T, id string) (*Dir, string) {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := Prepare(plan.Scratch{Root: root, ID: id, Dirs: []plan.ScratchDir{{Name: "tmp", Mode: 0o1777}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
	})
	return d, d.Path() + "/tmp"
}

func writeFile(t *testing.T, name string, size int) {
	t.Helper()
	if err := os.WriteFile(name, []byte(strings.Repeat("x", size)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantUsage(t *testing.T, d *Dir, least, most uint64) {
	t.Helper()
	n, err := d.Usage(0)
	if err != nil || n < least || n > most {
		t.Errorf("Usage gives %d, %v, want %d to %d", n, err, least, most)
	}
}

func TestUsage(t *testing.T) {
	d, tmp := filled(t, "ab01")
	wantUsage(t, d, 1, 64<<10)

	// What links and mount points lead to does not belong to it.
	outside := t.TempDir()
	writeFile(t, outside+"/large", 8<<20)
	for name, target := range map[string]string{"dir": outside, "file": outside + "/large", "up": "..", "self": "."} {
		if err := os.Symlink(target, tmp+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	wantUsage(t, d, 1, 64<<10)

	// A file with several names counts once, and a hole not at all.
	writeFile(t, tmp+"/one", 2<<20)
	for _, name := range []string{"two", "three"} {
		if err := os.Link(tmp+"/one", tmp+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(tmp+"/hole", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(tmp+"/hole", 1<<30); err != nil {
		t.Fatal(err)
	}
	wantUsage(t, d, 2<<20, 3<<20)

	// What the owner cannot list counts, and its mode stays.
	if err := os.Mkdir(tmp+"/locked", 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, tmp+"/locked/f", 2<<20)
	if err := os.Chmod(tmp+"/locked", 0o100); err != nil {
		t.Fatal(err)
	}
	wantUsage(t, d, 4<<20, 5<<20)
	if info, err := os.Stat(tmp + "/locked"); err != nil || info.Mode().Perm() != 0o100 {
		t.Errorf("the mode is now %v, %v", info.Mode(), err)
	}

	// It stops when there is enough.
	if n, err := d.Usage(1 << 20); err != nil || n <= 1<<20 {
		t.Errorf("Usage gives %d, %v, want more than 1 MiB", n, err)
	}
	// Empty files are something.
	before, _ := d.Usage(0)
	for i := range 100 {
		writeFile(t, filepath.Join(tmp, "empty"+strings.Repeat("x", i)), 0)
	}
	if after, err := d.Usage(0); err != nil || after < before+100*minEntry {
		t.Errorf("100 empty files make %d of %d, %v", after, before, err)
	}
}

// TestUsageDeep: a tree in which no path is short enough to be opened is told.
func TestUsageDeep(t *testing.T) {
	d, tmp := filled(t, "ab02")
	at, err := unix.Open(tmp, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 200)
	for range 30 {
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	unix.Close(at)
	if _, err := d.Usage(0); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("error %v, want ENAMETOOLONG", err)
	}
}

func TestSize(t *testing.T) {
	d, tmp := filled(t, "ab03")
	writeFile(t, tmp+"/f", 1<<20)
	root := filepath.Dir(d.Path())
	if n, err := Size(root, "ab03"); err != nil || n < 1<<20 {
		t.Errorf("Size gives %d, %v", n, err)
	}
	for _, id := range []string{"ab04", "../ab03", "", "AB03"} {
		if n, err := Size(root, id); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Size of %q gives %d, %v", id, n, err)
		}
	}
	if err := os.Symlink(d.Path(), root+"/wall-ab05"); err != nil {
		t.Fatal(err)
	}
	if n, err := Size(root, "ab05"); err == nil {
		t.Errorf("Size follows a link: %d", n)
	}
	if err := Discard(root, "ab03"); !errors.Is(err, ErrInUse) {
		t.Errorf("Discard of one in use: %v", err)
	}
	if err := os.Remove(root + "/wall-ab05"); err != nil {
		t.Fatal(err)
	}
}
