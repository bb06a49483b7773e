package scratch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

// sampleCopy is a plan that copies source, with the limit max.
func sampleCopy(dir, source string, max uint64) plan.Scratch {
	s := plan.Scratch{Root: filepath.Join(dir, "root"), ID: newID(), Dirs: []plan.ScratchDir{{Name: "cache", Mode: 0o700}}}
	s.Copies = []plan.TreeCopy{{Source: source, Target: "cache", Max: max, Origin: plan.Origin{Text: "a test"}}}
	return s
}

// sourceDir makes dir/src with the directory a in it.
func sourceDir(t *testing.T, dir string) string {
	t.Helper()
	src := filepath.Join(dir, "src")
	if err := os.MkdirAll(filepath.Join(src, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	return src
}

// Copies are real: they have the content, modes and times of the originals, share
// nothing with them, and hold links as links and no special files.
func TestKernelCopyTree(t *testing.T) {
	dir := tempDir(t)
	src := sourceDir(t, dir)
	write(t, filepath.Join(src, "a", "file"), "text")
	write(t, filepath.Join(src, "tool"), "#!")
	stamp := time.Date(2020, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, err := range []error{
		os.Chmod(filepath.Join(src, "tool"), 0o755|os.ModeSetuid),
		os.Symlink("/etc/passwd", filepath.Join(src, "link")),
		unix.Mkfifo(filepath.Join(src, "fifo"), 0o600),
		os.Chtimes(filepath.Join(src, "a", "file"), stamp, stamp),
		os.Chmod(filepath.Join(src, "a"), 0o555),
		os.Chtimes(filepath.Join(src, "a"), stamp, stamp),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(src, "a"), 0o755) })

	d := prepare(t, sampleCopy(dir, src, 6)) // exactly as much as there is
	if len(d.SeedErrors()) > 0 {
		t.Fatal(d.SeedErrors())
	}
	to := filepath.Join(d.Path(), "cache")
	if got, want := strings.Join(names(t, to), " "), "a link tool"; got != want {
		t.Errorf("copied %q, want %q", got, want)
	}
	if got, _ := os.Readlink(filepath.Join(to, "link")); got != "/etc/passwd" {
		t.Errorf("the link reads %q", got)
	}
	for name, want := range map[string]uint32{"a": 0o555, "tool": 0o755} {
		if got := mode(t, filepath.Join(to, name)) & 0o7777; got != want {
			t.Errorf("%s has mode %04o, want %04o", name, got, want)
		}
	}
	for _, name := range []string{"a", "a/file"} {
		if st, err := os.Stat(filepath.Join(to, name)); err != nil || !st.ModTime().Equal(stamp) {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if err := os.WriteFile(filepath.Join(to, "tool"), []byte("changed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(filepath.Join(src, "tool")); string(got) != "#!" {
		t.Errorf("the original reads %q", got)
	}
	remove(t, d)
}

// A copy that fails leaves nothing of it, and says so; the run goes on.
func TestKernelCopyFailsToEmpty(t *testing.T) {
	tests := map[string]struct {
		max  uint64
		make func(src string) error
		want string
	}{
		"one byte over": {5, func(src string) error { return nil }, "it grew over the size"},
		"unreadable": {1 << 20, func(src string) error {
			write(t, filepath.Join(src, "z"), "z")
			return os.Chmod(filepath.Join(src, "z"), 0)
		}, "permission denied"},
		"gone": {1 << 20, func(src string) error { return os.RemoveAll(src) }, "no such file"},
		"link": {1 << 20, func(src string) error { return errors.Join(os.Rename(src, src+"2"), os.Symlink(src+"2", src)) }, "not a directory"},
		"deep": {1 << 20, func(src string) error {
			return os.MkdirAll(filepath.Join(src, strings.Repeat("d/", maxCopyDepth+1)), 0o700)
		}, "deeper than"},
	}
	for name, tt := range tests {
		if name == "unreadable" && os.Geteuid() == 0 {
			continue // root reads everything; TestUnprivileged has this
		}
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			src := sourceDir(t, dir)
			write(t, filepath.Join(src, "a", "file"), "text")
			write(t, filepath.Join(src, "b"), "12")
			if err := tt.make(src); err != nil {
				t.Fatal(err)
			}
			d := prepare(t, sampleCopy(dir, src, tt.max))
			if errs := d.SeedErrors(); len(errs) != 1 || !strings.Contains(errs[0].Error(), "ignoring the cache "+src) || !strings.Contains(errs[0].Error(), tt.want) {
				t.Errorf("errors %v, want one with %q", errs, tt.want)
			}
			if left := names(t, filepath.Join(d.Path(), "cache")); len(left) > 0 {
				t.Errorf("left %q", left)
			}
			remove(t, d)
		})
	}
}

// What is kept is made with mode 0700, stays, is locked while it is used, and is
// refused where somebody else could write or a link leads elsewhere.
func TestKernelKept(t *testing.T) {
	dir := tempDir(t)
	kept := filepath.Join(dir, "cache", "wall", "caches", "0a")
	plain := func() plan.Scratch {
		s := sample(dir)
		s.Kept = plan.KeptDir{Path: kept, Dirs: []string{"go.upper", "go.work"}}
		return s
	}
	old := unix.Umask(0o777)
	d := prepare(t, plain())
	unix.Umask(old)
	for _, p := range []string{filepath.Join(dir, "cache"), kept, filepath.Join(kept, "go.upper")} {
		if m := mode(t, p); m&0o7777 != 0o700 {
			t.Errorf("%s has mode %04o", p, m)
		}
	}
	if d.KeptFD() < 0 {
		t.Error("there is no descriptor")
	}
	second := plain()
	if _, err := Prepare(second); !errors.Is(err, ErrKeptBusy) {
		t.Errorf("a second run gets %v", err)
	}
	if isThere(second.Path()) {
		t.Error("the second run left its directory")
	}
	remove(t, d)
	if !isThere(filepath.Join(kept, "go.upper")) {
		t.Error("nothing was kept")
	}
	remove(t, prepare(t, plain())) // unlocked again

	refuse := func(what string, break_, mend func() error) {
		t.Helper()
		if err := break_(); err != nil {
			t.Fatal(err)
		}
		if d, err := Prepare(plain()); err == nil {
			t.Errorf("%s: accepted", what)
			remove(t, d)
		} else if text := plan.Explain(err); !strings.Contains(text, "cannot use "+kept+" for kept caches") || !strings.Contains(text, "chmod -R u+rwX") || !strings.Contains(text, "caches.keep = false") {
			t.Errorf("%s: %s", what, text)
		}
		if err := mend(); err != nil {
			t.Fatal(err)
		}
	}
	refuse("writable by others", func() error { return os.Chmod(kept, 0o777) }, func() error { return os.Chmod(kept, 0o700) })
	refuse("a link", func() error { return errors.Join(os.Rename(kept, kept+"1"), os.Symlink(kept+"1", kept)) },
		func() error { return errors.Join(os.Remove(kept), os.Rename(kept+"1", kept)) })
	up := filepath.Join(kept, "go.upper")
	refuse("a layer that others could write", func() error { return errors.Join(os.Chmod(kept, 0o755), os.Chmod(up, 0o777)) }, func() error { return os.Chmod(kept, 0o700) })
	// The command has changed the mode of its cache.
	for _, m := range []os.FileMode{0o777, 0o720, 0, 0o302} {
		if err := os.Chmod(up, m); err != nil {
			t.Fatal(err)
		}
		remove(t, prepare(t, plain()))
		if m := mode(t, up); m&0o022 != 0 || m&0o700 != 0o700 {
			t.Errorf("the layer has mode %04o", m)
		}
	}
	refuse("a layer that is a link", func() error { return errors.Join(os.Remove(up), os.Symlink("/etc", up)) }, func() error { return os.Remove(up) })
	refuse("a layer that is a file", func() error { return os.WriteFile(up, nil, 0o600) }, func() error { return os.Remove(up) })
	remove(t, prepare(t, plain()))
}

// overlayfs leaves a directory of mode 000 in its work directory.
func TestKernelRemoveOverlayWork(t *testing.T) {
	dir := tempDir(t)
	s := sample(dir)
	d := prepare(t, s)
	work := filepath.Join(d.Path(), "home", "work")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(work, "incompat", "volatile"), 0o700),
		os.Mkdir(filepath.Join(d.Path(), "home", "mod"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(d.Path(), "home", "mod", "f"), "x")
	for _, err := range []error{os.Chmod(filepath.Join(work, "incompat", "volatile"), 0), os.Chmod(work, 0), os.Chmod(filepath.Join(d.Path(), "home", "mod"), 0o555)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	remove(t, d)
	if isThere(s.Path()) {
		t.Error("it is left")
	}
}
