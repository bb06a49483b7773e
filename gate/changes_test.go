package gate

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestChanges(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, text string) {
		t.Helper()
		must(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for _, name := range []string{"same", "a/edited", "a/gone", "renamed", "mode", "old", "d/replaced"} {
		file(name, name)
	}
	before := take(dir, MaxEntries)
	if ch := take(dir, MaxEntries).since(before); ch != (Changes{}) {
		t.Errorf("nothing changed: %+v", ch)
	}
	// Change times have the granularity of a clock tick.
	time.Sleep(20 * time.Millisecond)
	file("a/edited", "EDITED")
	must(os.Remove(filepath.Join(dir, "a/gone")))
	must(os.Rename(filepath.Join(dir, "renamed"), filepath.Join(dir, "a/moved")))
	must(os.Chmod(filepath.Join(dir, "mode"), 0o600))
	// A command can set the modification time back, and not the change time.
	st, err := os.Stat(filepath.Join(dir, "old"))
	must(err)
	file("old", "OLD")
	must(os.Chtimes(filepath.Join(dir, "old"), st.ModTime(), st.ModTime()))
	must(os.Remove(filepath.Join(dir, "d/replaced")))
	must(os.Symlink("/", filepath.Join(dir, "d/replaced")))
	must(os.Mkdir(filepath.Join(dir, "empty"), 0o755)) // not counted
	file("new/deep/x", "")
	want := Changes{Created: 2, Modified: 4, Deleted: 2}
	if ch := take(dir, MaxEntries).since(before); ch != want {
		t.Errorf("got %+v, want %+v", ch, want)
	}
	// The numbers are a lower bound when not everything was looked at.
	if ch := take(dir, 3).since(before); !ch.Partial || ch.Created > 2 || ch.Deleted > 2 {
		t.Errorf("with a bound: %+v", ch)
	}
	if ch := take(dir, MaxEntries).since(take(filepath.Join(dir, "none"), MaxEntries)); !ch.Partial || ch.Created != 0 {
		t.Errorf("without a state before: %+v", ch)
	}
}

// TestChangesDeep: a command can make a tree that is deeper than a process has
// descriptors.
func TestChangesDeep(t *testing.T) {
	dir := t.TempDir()
	at := dir
	for i := range maxDepth + 50 {
		at = filepath.Join(at, "d")
		if len(at) > 3900 {
			break
		}
		if err := os.Mkdir(at, 0o755); err != nil {
			t.Fatal(i, err)
		}
	}
	if c := take(dir, MaxEntries); !c.partial {
		t.Error("all of it was looked at")
	}
}

// TestChangesLongPaths: a command can make paths of 50 kilobytes, and as many of them
// as are looked at. They must not cost what they are long.
func TestChangesLongPaths(t *testing.T) {
	const levels, files = maxDepth - 1, 500
	dir := t.TempDir()
	name := strings.Repeat("d", unix.NAME_MAX)
	at, err := open(unix.AT_FDCWD, dir)
	if err != nil {
		t.Fatal(err)
	}
	for range levels {
		if err := unix.Mkdirat(at, name, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := open(at, name)
		unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	defer unix.Close(at)
	touch := func(name string) {
		t.Helper()
		fd, err := unix.Openat(at, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	for i := range files {
		touch(fmt.Sprint(i))
	}
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	before := take(dir, MaxEntries)
	runtime.ReadMemStats(&end)
	// The buffers of the levels are most of it.
	if n := end.TotalAlloc - start.TotalAlloc; len(before.files) != files || before.partial || n > 8<<20 {
		t.Errorf("%d files, partial %t, %d bytes", len(before.files), before.partial, n)
	}
	touch("new")
	if err := unix.Unlinkat(at, "0", 0); err != nil {
		t.Fatal(err)
	}
	if ch := take(dir, MaxEntries).since(before); ch != (Changes{Created: 1, Deleted: 1}) {
		t.Errorf("got %+v", ch)
	}
}

// BenchmarkChanges measures one look at a tree of 50,000 files.
func BenchmarkChanges(b *testing.B) {
	dir := b.TempDir()
	for d := range 500 {
		sub := filepath.Join(dir, fmt.Sprint(d))
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		for i := range 100 {
			if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file-%d.go", i)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if c := take(dir, MaxEntries); len(c.files) != 50_000 {
			b.Fatal(len(c.files))
		}
	}
}
