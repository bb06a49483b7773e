package nsexec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// overlayPlan lays a private layer over a directory with some files at target,
// which is in the private /tmp unless it is the directory itself.
func overlayPlan(t *testing.T, script string) (p plan.Plan, lower string) {
	t.Helper()
	p = testPlan(t, sh(script)...)
	lower, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"file": "old\n", "gone": "gone\n", "dir/sub/deep": "deep\n", "odd,name:x": "odd\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(lower, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(lower, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { os.Chmod(filepath.Join(lower, "dir", "sub"), 0o755) })
	if err := os.Chmod(filepath.Join(lower, "dir", "sub"), 0o555); err != nil { // as Go's module cache
		t.Fatal(err)
	}
	p.Scratch.Dirs = append(p.Scratch.Dirs, plan.ScratchDir{Name: "up", Mode: 0o700}, plan.ScratchDir{Name: "work", Mode: 0o700})
	p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpOverlay, Target: "/tmp/cache", Source: lower, Upper: "up", Work: "work", MakeAs: plan.TypeDir})
	p.Landlock.Rules = append(p.Landlock.Rules, plan.PathRule{Path: "/tmp/cache", Access: plan.AccessWrite})
	p.Checks = append(p.Checks, plan.Check{Op: plan.CheckLayer, Path: "/tmp/cache"})
	return p, lower
}

// tree gives every file below dir with its mode, times and content.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		b.WriteString(p + " " + st.Mode().String() + " " + st.ModTime().String())
		if d.Type().IsRegular() {
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			b.WriteString(" " + string(data))
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// What is written, changed, renamed and removed in the overlay never reaches
// the directory below; nothing of the layers is left, although overlayfs makes
// a directory of mode 000 and module caches are read-only.
func TestOverlayKeepsTheLowerLayer(t *testing.T) {
	p, lower := overlayPlan(t, `set -e; cd /tmp/cache
cat file "odd,name:x" dir/sub/deep
echo new >file; echo more >>dir/sub/../other; rm gone; mkdir made; mv made moved; touch -d 2001-01-01 "odd,name:x"
chmod 755 dir/sub; rm dir/sub/deep; rmdir dir/sub; mkdir -p ro/ro; touch ro/ro/f; chmod 555 ro/ro ro
ls; cat file; stat -f -c %T .; grep ' /tmp/cache ' /proc/self/mountinfo`)
	before := tree(t, lower)
	out, err := run(t, p) // also looks for what is left of the scratch directory
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"old\nodd\ndeep\n", "moved\n", "new\n", "overlayfs\n", "nosuid,nodev"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	for _, never := range []string{lower, p.Scratch.Path()} {
		if strings.Contains(out, never) {
			t.Errorf("the mount table inside names %s:\n%s", never, out)
		}
	}
	if after := tree(t, lower); after != before {
		t.Errorf("the lower layer was\n%sand is\n%s", before, after)
	}
}

// A layer of a kept directory is there again in the next run, and syncing is on.
func TestOverlayOnKeptLayers(t *testing.T) {
	kept, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", "first\n"} {
		p, _ := overlayPlan(t, "cat /tmp/cache/added 2>/dev/null; echo first >/tmp/cache/added; cat /proc/self/mountinfo >&2")
		p.Scratch.Kept = plan.KeptDir{Path: filepath.Join(kept, "k"), Dirs: []string{"up", "work"}}
		m := &p.Mounts[len(p.Mounts)-1]
		m.Upper, m.Work = p.Scratch.Kept.Path+"/up", p.Scratch.Kept.Path+"/work"
		out, err := run(t, p)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if i == 1 && !strings.HasPrefix(out, want) || i == 0 && strings.HasPrefix(out, "first") {
			t.Errorf("run %d says %q", i, out)
		}
		if strings.Contains(out, "volatile") {
			t.Errorf("a kept layer is volatile:\n%s", out)
		}
	}
}

// What cannot be an overlay is a typed error, so that another plan can be made.
func TestOverlayImpossible(t *testing.T) {
	p, _ := overlayPlan(t, "echo ran")
	// overlayfs refuses a work directory that a volatile mount left (overlayfs.rst).
	p.Scratch.Kept = plan.KeptDir{Path: filepath.Join(scratchRoot(t), "k"), Dirs: []string{"up", "work"}}
	if err := os.MkdirAll(filepath.Join(p.Scratch.Kept.Path, "work", "work", "incompat", "volatile"), 0o700); err != nil {
		t.Fatal(err)
	}
	m := &p.Mounts[len(p.Mounts)-1]
	m.Upper, m.Work = p.Scratch.Kept.Path+"/up", p.Scratch.Kept.Path+"/work"
	out, err := run(t, p)
	var oe *OverlayError
	if out != "" || !errors.As(err, &oe) {
		t.Fatalf("got %v, output %q", err, out)
	}
	if text := plan.Explain(err); !strings.Contains(text, "hint: caches.method") {
		t.Errorf("the message is\n%s", text)
	}
}

func TestOverlayErrorTravels(t *testing.T) {
	f := newFailure("mounts", &plan.Error{Op: "cannot lay", Hint: "copy", Err: &OverlayError{os.NewSyscallError("fsconfig overlay", unix.EINVAL)}})
	kind, body, err := readMessage(strings.NewReader(string(f.message())))
	if err != nil || kind != msgFailed {
		t.Fatal(kind, err)
	}
	err = parseFailure(body)
	var oe *OverlayError
	var se *StepError
	if !errors.As(err, &oe) || !errors.As(err, &se) || !errors.Is(err, unix.EINVAL) || se.Step != "mounts" {
		t.Errorf("got %v", err)
	}
	if want := "cannot lay: no overlay can be made here: fsconfig overlay: invalid argument"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if err := parseFailure(newFailure("mounts", os.NewSyscallError("open", unix.EINVAL)).message()[5:]); errors.As(err, &oe) {
		t.Errorf("%v is an OverlayError", err)
	}
}

// A lower directory that is a link or a file by now is not followed.
func TestOverlayOfAChangedLower(t *testing.T) {
	for name, change := range map[string]func(lower string) error{
		"gone": func(string) error { return nil },
		"link": func(l string) error { return os.Symlink("/etc", l) },
		"file": func(l string) error { return os.WriteFile(l, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			p, lower := overlayPlan(t, "echo ran")
			if err := os.Rename(lower, lower+"-old"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Chmod(lower+"-old/dir/sub", 0o755); os.RemoveAll(lower + "-old") })
			if err := change(lower); err != nil {
				t.Fatal(err)
			}
			out, err := run(t, p)
			var oe *OverlayError
			if err == nil || out != "" || errors.As(err, &oe) || !strings.Contains(err.Error(), "cannot lay a private layer over "+lower) {
				t.Errorf("got %v, output %q", err, out)
			}
		})
	}
}

// The self-test must notice a layer that is no layer.
func TestCheckLayer(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	open := func(name string) int {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	if err := checkLayer(dir, "1", []lowerLayer{{"/x", open(dir)}, {dir, open(other)}}); err != nil {
		t.Errorf("two directories: %v", err)
	}
	if err := checkLayer(dir, "1", []lowerLayer{{dir, open(dir)}}); err == nil {
		t.Error("a directory that is its own lower layer passes")
	}
	if err := checkLayer(dir, "1", nil); err == nil {
		t.Error("an overlay that was not mounted passes")
	}
	if err := os.Mkdir(filepath.Join(other, ".wall-self-test-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := checkLayer(dir, "1", []lowerLayer{{dir, open(other)}}); err == nil {
		t.Error("a lower layer that has the name already passes")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
