package scratch

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

// need skips the test when the host lacks a feature, or fails it when
// WALL_TEST_REQUIRE lists the feature.
func need(t testing.TB, feature string, have bool) {
	t.Helper()
	if have {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), feature) {
		t.Fatalf("%s is required by WALL_TEST_REQUIRE and missing", feature)
	}
	t.Skipf("needs %s", feature)
}

const (
	childEnv        = "WALL_TEST_SCRATCH_CHILD" // a job for a subprocess
	unprivilegedEnv = "WALL_TEST_SCRATCH_UNPRIVILEGED"
)

// A job is what a subprocess does: prepare and wait to be killed, or hammer a root.
type job struct {
	Scratch plan.Scratch
	Hammer  int
}

func TestMain(m *testing.M) {
	if s := os.Getenv(childEnv); s != "" {
		var j job
		err := json.Unmarshal([]byte(s), &j)
		if err == nil && j.Hammer > 0 {
			err = hammer(j.Scratch.Root, j.Hammer)
		} else if err == nil {
			_, err = Prepare(j.Scratch)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		if j.Hammer == 0 {
			time.Sleep(time.Hour) // to be killed
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// All tests of this file also run as an unprivileged user when started by root.
func TestUnprivileged(t *testing.T) {
	if os.Getenv(unprivilegedEnv) != "" {
		t.Skip("is unprivileged")
	}
	need(t, "root", os.Geteuid() == 0)
	const uid = 54321
	dir, err := os.MkdirTemp("/tmp", "wall-scratch-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chown(dir, uid, uid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestKernel", "-test.v")
	// What needs root was run by our own process.
	require := slices.DeleteFunc(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), func(s string) bool { return s == "root" })
	cmd.Env = []string{"TMPDIR=" + dir, unprivilegedEnv + "=1", "WALL_TEST_REQUIRE=" + strings.Join(require, ",")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestKernelRemoveDeepTree") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// tempDir is t.TempDir without links.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// memoryDir is a temporary directory in memory where there is one: big trees on
// a busy disk take minutes.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "wall-scratch-test-")
	if err != nil {
		return tempDir(t)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

var lastID = rand.Uint64() >> 1

func newID() string {
	lastID++
	return fmt.Sprintf("%016x", lastID)
}

// sample is a usual scratch below dir, under a root that Remove leaves.
func sample(dir string) plan.Scratch {
	return plan.Scratch{
		Root: dir + "/root", ID: newID(),
		Dirs: []plan.ScratchDir{{Name: "home", Mode: 0o700}, {Name: "tmp", Mode: 0o1777}, {Name: "odd", Mode: 0o2751}},
	}
}

func prepare(t testing.TB, s plan.Scratch) *Dir {
	t.Helper()
	d, err := Prepare(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Remove() })
	return d
}

func remove(t testing.TB, d *Dir) {
	t.Helper()
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(); err != nil {
		t.Errorf("second Remove: %v", err)
	}
}

func mode(t testing.TB, path string) uint32 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return st.Mode
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func openFDs(t testing.TB) int { return len(names(t, "/proc/self/fd")) }

func TestKernelPrepareModesWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o077, 0o277, 0o777} {
		t.Run(fmt.Sprintf("%03o", umask), func(t *testing.T) {
			dir := tempDir(t)
			defer unix.Umask(unix.Umask(umask))
			s := sample(dir)
			write(t, dir+"/auth", "token")
			os.Chmod(dir+"/auth", 0o644)
			s.Seeds = []plan.Seed{{Source: dir + "/auth", Target: "home/.agent/x/auth"}}
			d := prepare(t, s)
			if d.Path() != s.Path() {
				t.Errorf("path %s, the plan says %s", d.Path(), s.Path())
			}
			for path, want := range map[string]uint32{
				s.Root: unix.S_IFDIR | 0o700, d.Path(): unix.S_IFDIR | 0o700,
				d.Path() + "/home": unix.S_IFDIR | 0o700, d.Path() + "/tmp": unix.S_IFDIR | 0o1777, d.Path() + "/odd": unix.S_IFDIR | 0o2751,
				d.Path() + "/home/.agent":        unix.S_IFDIR | 0o700,
				d.Path() + "/home/.agent/x":      unix.S_IFDIR | 0o700,
				d.Path() + "/home/.agent/x/auth": unix.S_IFREG | 0o600,
			} {
				if got := mode(t, path); got != want {
					t.Errorf("%s: mode %#o, want %#o", path, got, want)
				}
			}
			if errs := d.SeedErrors(); errs != nil {
				t.Error(errs)
			}
			if data, err := os.ReadFile(d.Path() + "/home/.agent/x/auth"); string(data) != "token" {
				t.Errorf("%q, %v", data, err)
			}
			remove(t, d)
			if got := names(t, s.Root); got != nil {
				t.Errorf("left %q", got)
			}
		})
	}
}

func TestKernelDescriptors(t *testing.T) {
	dir := tempDir(t)
	before := openFDs(t)
	d := prepare(t, sample(dir))
	flags, err := unix.FcntlInt(uintptr(d.FD()), unix.F_GETFD, 0)
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor survives execve: %v", err)
	}
	if linked, err := isLinked(unix.AT_FDCWD, d.Path(), d.FD()); !linked {
		t.Errorf("FD is not the directory: %v", err)
	}
	remove(t, d)
	if after := openFDs(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	s := sample(dir)
	s.Placeholders = []plan.Placeholder{{Path: dir + "/missing/p", Type: plan.TypeDir}}
	if _, err := Prepare(s); err == nil {
		t.Fatal("prepared")
	}
	if after := openFDs(t); after > before {
		t.Errorf("%d descriptors before, %d after a failure", before, after)
	}
}

// With the default name nothing at all is left; any other root stays.
func TestKernelRootOfTheDefaultNameGoes(t *testing.T) {
	dir := tempDir(t)
	s := sample(dir)
	s.Root = DefaultRoot(dir, os.Geteuid())
	a := prepare(t, s)
	s.ID = newID()
	b := prepare(t, s)
	remove(t, a)
	if !isThere(b.Path()) {
		t.Fatal("another run's directory was removed")
	}
	remove(t, b)
	if got := names(t, dir); got != nil {
		t.Errorf("left %q", got)
	}
}

func TestKernelKeep(t *testing.T) {
	dir := tempDir(t)
	s := sample(dir)
	s.Keep = true
	s.Placeholders = []plan.Placeholder{{Path: dir + "/p", Type: plan.TypeDir}}
	d := prepare(t, s)
	write(t, d.Path()+"/home/result", "x")
	remove(t, d)
	if isThere(dir + "/p") {
		t.Error("a kept scratch keeps its placeholder")
	}
	removed, err := Collect(s.Root)
	if err != nil || removed != nil || !isThere(d.Path()+"/home/result") {
		t.Errorf("collected %q, %v", removed, err)
	}
	infos, err := List(s.Root)
	if err != nil || len(infos) != 1 || !infos[0].Kept || infos[0].InUse {
		t.Errorf("%+v, %v", infos, err)
	}
	if err := Discard(s.Root, s.ID); err != nil || isThere(d.Path()) {
		t.Errorf("discarded: %v", err)
	}
	if err := Discard(s.Root, s.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("discarded twice: %v", err)
	}
}

func TestKernelHostileRoots(t *testing.T) {
	root := os.Geteuid() == 0
	for _, tt := range []struct {
		name string
		make func(dir string) error // root is dir+"/p/root"
		want string
		skip bool
	}{
		{"link to a directory", func(d string) error {
			return errors.Join(os.Mkdir(d+"/elsewhere", 0o700), os.Symlink(d+"/elsewhere", d+"/p/root"))
		}, "not a directory but a link", false},
		{"dangling link", func(d string) error { return os.Symlink("nowhere", d+"/p/root") }, "not a directory but a link", false},
		{"file", func(d string) error { return os.WriteFile(d+"/p/root", nil, 0o600) }, "not a directory but a link or a file", false},
		{"mode 0777", func(d string) error {
			return errors.Join(os.Mkdir(d+"/p/root", 0o777), os.Chmod(d+"/p/root", 0o777))
		}, "others can enter it (mode 0777)", false},
		{"mode 0750", func(d string) error { return os.Mkdir(d+"/p/root", 0o750) }, "others can enter it", false},
		{"mode 0500", func(d string) error { return os.Mkdir(d+"/p/root", 0o500) }, "permission denied", root},
		{"another owner", func(d string) error {
			return errors.Join(os.Mkdir(d+"/p/root", 0o700), os.Chown(d+"/p/root", 4242, 4242))
		}, "it belongs to uid 4242, not to you", !root},
		{"another's own world-writable", func(d string) error {
			return errors.Join(os.Mkdir(d+"/p/root", 0o700), os.Chmod(d+"/p", 0o777))
		}, "anybody can replace what is in", false},
		{"no parent", func(d string) error { return os.Remove(d + "/p") }, "no such file or directory", false},
		{"parent a file", func(d string) error {
			return errors.Join(os.Remove(d+"/p"), os.WriteFile(d+"/p", nil, 0o600))
		}, "not a directory", false},
		{"parent a link", func(d string) error {
			return errors.Join(os.Rename(d+"/p", d+"/real"), os.Symlink("real", d+"/p"))
		}, "too many levels of symbolic links", false},
		{"read-only parent", func(d string) error { return os.Chmod(d+"/p", 0o555) }, "permission denied", root},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.skip {
				t.Skip("depends on the user")
			}
			dir := tempDir(t)
			if err := errors.Join(os.Mkdir(dir+"/p", 0o700), tt.make(dir)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.Chmod(dir+"/p", 0o700) })
			s := sample(dir)
			s.Root = dir + "/p/root"
			before := tree(t, dir)
			_, err := Prepare(s)
			var pe *plan.Error
			if !errors.As(err, &pe) || pe.Hint == "" || strings.Contains(pe.Hint, "TMPDIR") || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), s.Root) {
				t.Errorf("Prepare: %#v", err)
			}
			if removed, err := Collect(s.Root); removed != nil || err == nil && !slices.Contains([]string{"no parent", "read-only parent", "mode 0500"}, tt.name) {
				t.Errorf("Collect: %q, %v", removed, err)
			}
			if after := tree(t, dir); after != before {
				t.Errorf("changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// tree describes everything below a directory.
func tree(t testing.TB, dir string) string {
	var b strings.Builder
	filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		info, err := e.Info()
		if err == nil {
			fmt.Fprintf(&b, "%s %v\n", strings.TrimPrefix(p, dir), info.Mode())
		}
		return nil
	})
	return b.String()
}

func TestKernelPrepareTwice(t *testing.T) {
	s := sample(tempDir(t))
	d := prepare(t, s)
	write(t, d.Path()+"/home/x", "")
	if _, err := Prepare(s); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the same ID twice: %v", err)
	}
	if !isThere(d.Path() + "/home/x") {
		t.Error("the failed Prepare damaged the first one's directory")
	}
}

func TestKernelSeeds(t *testing.T) {
	dir := tempDir(t)
	write(t, dir+"/file", "secret")
	os.Mkdir(dir+"/dir", 0o700)
	write(t, dir+"/dir/file", "deep")
	os.Symlink("file", dir+"/link")
	os.Symlink("dir", dir+"/dirlink")
	unix.Mkfifo(dir+"/fifo", 0o600)
	write(t, dir+"/big", strings.Repeat("x", maxSeed+1))
	write(t, dir+"/limit", strings.Repeat("x", maxSeed))
	write(t, dir+"/closed", "")
	os.Chmod(dir+"/closed", 0)
	s := sample(dir)
	for _, n := range []string{"file", "dir/file", "missing", "file/missing", "limit"} {
		s.Seeds = append(s.Seeds, plan.Seed{Source: dir + "/" + n, Target: "home/ok/" + n})
	}
	bad := []string{"link", "dirlink/file", "fifo", "dir", "big"}
	if os.Geteuid() != 0 {
		bad = append(bad, "closed")
	}
	for _, n := range bad {
		s.Seeds = append(s.Seeds, plan.Seed{Source: dir + "/" + n, Target: "home/bad/" + n, Origin: plan.Origin{Text: n}})
	}
	s.Seeds = append(s.Seeds, plan.Seed{Source: dir + "/dir/file", Target: "home/ok/file", Origin: plan.Origin{Text: "again"}},
		plan.Seed{Source: dir + "/missing", Target: "home/never/logged/in"})
	d := prepare(t, s)
	for n, want := range map[string]string{"file": "secret", "limit": strings.Repeat("x", maxSeed)} {
		if data, err := os.ReadFile(d.Path() + "/home/ok/" + n); string(data) != want {
			t.Errorf("%s: %d bytes, %v", n, len(data), err)
		}
	}
	// "file" is a file by then, so nothing can go below it.
	if got := names(t, d.Path()+"/home/ok"); !slices.Equal(got, []string{"dir", "file", "limit"}) {
		t.Errorf("seeded %q", got)
	}
	if got := names(t, d.Path()+"/home/never/logged"); len(got) != 0 {
		t.Errorf("seeded %q", got)
	}
	var told []string
	for _, err := range d.SeedErrors() {
		var pe *plan.Error
		if !errors.As(err, &pe) || !strings.HasPrefix(pe.Op, "ignoring ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%#v", err)
			continue
		}
		told = append(told, pe.Origin.Text)
	}
	if want := append(bad, "again"); !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if isThere(d.Path() + "/home/bad/big") {
		t.Error("part of a seed was left")
	}
}

func TestKernelPlaceholders(t *testing.T) {
	dir := tempDir(t)
	os.Mkdir(dir+"/w", 0o755)
	s := sample(dir)
	dirs := []string{"empty", "used", "replaced", "file", "link", "gone"}
	files := []string{"same", "changed", "longer", "newfile", "removed"}
	for _, n := range dirs {
		s.Placeholders = append(s.Placeholders, plan.Placeholder{Path: dir + "/w/" + n, Type: plan.TypeDir})
	}
	for _, n := range files {
		s.Placeholders = append(s.Placeholders, plan.Placeholder{Path: dir + "/w/" + n, Type: plan.TypeFile, Content: ".\n"})
	}
	d := prepare(t, s)
	for _, n := range dirs {
		if mode(t, dir+"/w/"+n)&unix.S_IFMT != unix.S_IFDIR {
			t.Errorf("%s is no directory", n)
		}
	}
	for _, n := range files {
		if data, err := os.ReadFile(dir + "/w/" + n); string(data) != ".\n" {
			t.Errorf("%s: %q, %v", n, data, err)
		}
	}
	write(t, dir+"/w/used/data", "x")
	os.Rename(dir+"/w/replaced", dir+"/w/moved") // keeps the inode number taken
	os.Mkdir(dir+"/w/replaced", 0o755)
	os.Remove(dir + "/w/file")
	write(t, dir+"/w/file", "data")
	os.Rename(dir+"/w/link", dir+"/w/away")
	os.Symlink("away", dir+"/w/link")
	os.Remove(dir + "/w/gone")
	write(t, dir+"/w/changed", "/\n")
	write(t, dir+"/w/longer", ".\nmore")
	os.Rename(dir+"/w/newfile", dir+"/w/oldfile")
	write(t, dir+"/w/newfile", ".\n")
	os.Remove(dir + "/w/removed")
	remove(t, d)
	want := []string{"away", "changed", "file", "link", "longer", "moved", "newfile", "oldfile", "replaced", "used"}
	if got := names(t, dir+"/w"); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	if isThere(d.Path()) {
		t.Error("the scratch directory was left")
	}
}

func TestKernelPlaceholderFailures(t *testing.T) {
	origin := plan.Origin{Text: "protect"}
	for _, tt := range []struct {
		name string
		make func(w string) error
		path string
		want error
		hint string
		skip bool
	}{
		{"exists, a directory", func(w string) error { return os.Mkdir(w+"/p", 0o755) }, "/p", fs.ErrExist, "run again", false},
		{"exists, a file", func(w string) error { return os.WriteFile(w+"/p", []byte("x"), 0o600) }, "/p", fs.ErrExist, "run again", false},
		{"exists, a dangling link", func(w string) error { return os.Symlink("x", w+"/p") }, "/p", fs.ErrExist, "run again", false},
		{"no parent", func(w string) error { return nil }, "/a/p", fs.ErrNotExist, "run again", false},
		{"parent a link", func(w string) error {
			return errors.Join(os.Mkdir(w+"/real", 0o755), os.Symlink("real", w+"/a"))
		}, "/a/p", unix.ELOOP, "run again", false},
		{"parent read-only", func(w string) error { return os.Mkdir(w+"/a", 0o555) }, "/a/p", fs.ErrPermission, "writable", os.Geteuid() == 0},
	} {
		for _, typ := range []plan.FileType{plan.TypeDir, plan.TypeFile} {
			t.Run(tt.name+" "+string(typ), func(t *testing.T) {
				if tt.skip {
					t.Skip("root may")
				}
				dir := tempDir(t)
				if err := errors.Join(os.Mkdir(dir+"/w", 0o755), os.Mkdir(dir+"/root", 0o700), tt.make(dir+"/w")); err != nil {
					t.Fatal(err)
				}
				before := tree(t, dir)
				s := sample(dir)
				s.Placeholders = []plan.Placeholder{
					{Path: dir + "/w/first", Type: plan.TypeDir},
					{Path: dir + "/w" + tt.path, Type: typ, Origin: origin},
				}
				_, err := Prepare(s)
				var pe *plan.Error
				if !errors.Is(err, tt.want) || !errors.As(err, &pe) || pe.Origin != origin || !strings.Contains(pe.Hint, tt.hint) {
					t.Errorf("error %#v", err)
				}
				if after := tree(t, dir); after != before {
					t.Errorf("a failed Prepare changed\n%s\nto\n%s", before, after)
				}
			})
		}
	}
}

// A run that ends must not take away the mount point of one that lives: the
// kernel would detach that mount in the other's namespace.
func TestKernelPlaceholdersOutliveTheirMaker(t *testing.T) {
	dir := tempDir(t)
	place := []plan.Placeholder{{Path: dir + "/d", Type: plan.TypeDir}, {Path: dir + "/f", Type: plan.TypeFile, Content: ".\n"}}
	start := func(with []plan.Placeholder) *Dir {
		s := sample(dir)
		s.Placeholders = with
		s.Guards = []string{dir + "/d", dir + "/f"}
		return prepare(t, s)
	}
	there := func(when string, want bool) {
		t.Helper()
		if d, f := isThere(dir+"/d"), isThere(dir+"/f"); d != want || f != want {
			t.Fatalf("%s: directory %v, file %v, want %v", when, d, f, want)
		}
	}
	a := start(place)
	b := start(nil)   // found them there
	c := start(place) // did not, when it looked
	remove(t, a)
	there("after their maker", true)
	remove(t, c)
	there("after the second", true)
	d := start(nil)
	remove(t, b)
	there("after the third", true)
	remove(t, d)
	there("after the last", false)

	// A run in another workspace has no use for them.
	a = start(place)
	other := prepare(t, sample(dir))
	remove(t, a)
	there("while a stranger lives", false)
	remove(t, other)

	// Nor does it get one of two when it mounts on the other only.
	a = start(place)
	half := sample(dir)
	half.Guards = []string{dir + "/f"}
	b = prepare(t, half)
	remove(t, a)
	if isThere(dir+"/d") || !isThere(dir+"/f") {
		t.Fatalf("directory %v, file %v, want only the file", isThere(dir+"/d"), isThere(dir+"/f"))
	}
	remove(t, b)
	there("after the one that mounts on the file", false)

	// Also when the maker was killed and somebody collects.
	s := sample(dir)
	s.Placeholders = place
	kill(t, startChild(t, job{Scratch: s}))
	e := start(nil)
	if removed, err := Collect(s.Root); err != nil || len(removed) != 1 {
		t.Fatalf("%q, %v", removed, err)
	}
	there("collected while another lives", true)
	remove(t, e)
	there("after that one", false)
}

func startChild(t testing.TB, j job) *exec.Cmd {
	t.Helper()
	spec, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = []string{childEnv + "=" + string(spec)}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatalf("child: %s", line)
	}
	return cmd
}

func kill(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
}

func TestKernelCollectAfterSIGKILL(t *testing.T) {
	for _, keep := range []bool{false, true} {
		dir := tempDir(t)
		s := sample(dir)
		s.Root = DefaultRoot(dir, os.Geteuid())
		s.Keep = keep
		s.Placeholders = []plan.Placeholder{{Path: dir + "/d", Type: plan.TypeDir}, {Path: dir + "/f", Type: plan.TypeFile, Content: ".\n"}}
		cmd := startChild(t, job{Scratch: s})
		if removed, err := Collect(s.Root); err != nil || removed != nil || !isThere(s.Path()+"/home") || !isThere(dir+"/d") {
			t.Errorf("collected a live one: %q, %v", removed, err)
		}
		infos, err := List(s.Root)
		if err != nil || len(infos) != 1 || infos[0].Path != s.Path() || infos[0].ID != s.ID || !infos[0].InUse || infos[0].Kept != keep {
			t.Errorf("%+v, %v", infos, err)
		} else if age := time.Since(infos[0].Created); age < -time.Second || age > time.Minute {
			t.Errorf("made %v ago", age)
		}
		if err := Discard(s.Root, s.ID); err == nil || !strings.Contains(err.Error(), "a run is using it") {
			t.Errorf("discarded a live one: %v", err)
		}
		kill(t, cmd)
		if infos, err := List(s.Root); err != nil || len(infos) != 1 || infos[0].InUse {
			t.Errorf("%+v, %v", infos, err)
		}
		removed, err := Collect(s.Root)
		if keep {
			if err != nil || removed != nil || !slices.Equal(names(t, dir), []string{filepath.Base(s.Root)}) || !isThere(s.Path()+"/home") {
				t.Errorf("keep: removed %q, %v, left %q", removed, err, names(t, dir))
			}
			continue
		}
		if err != nil || !slices.Equal(removed, []string{s.Path()}) || names(t, dir) != nil {
			t.Errorf("removed %q, %v, left %q", removed, err, names(t, dir))
		}
		if removed, err := Collect(s.Root); removed != nil || err != nil {
			t.Errorf("nothing to do: %q, %v", removed, err)
		}
	}
}

// Killed between the announcement and the note of the inode.
func TestKernelCollectHalfMadePlaceholders(t *testing.T) {
	dir := tempDir(t)
	s := sample(dir)
	kill(t, startChild(t, job{Scratch: s}))
	var record []byte
	for _, n := range []string{"notmade", "empty", "used"} {
		record = append(record, entry{Path: []byte(dir + "/" + n), Type: plan.TypeDir}.encode()...)
	}
	for _, n := range []string{"unwritten", "half", "whole", "other", "linked"} {
		record = append(record, entry{Path: []byte(dir + "/" + n), Type: plan.TypeFile, Content: []byte(".\n")}.encode()...)
	}
	write(t, s.Path()+"/"+recordName, string(record)+`{"path":"`)
	os.Mkdir(dir+"/empty", 0o755)
	os.Mkdir(dir+"/used", 0o755)
	write(t, dir+"/used/x", "")
	write(t, dir+"/unwritten", "")
	write(t, dir+"/half", ".")
	write(t, dir+"/whole", ".\n")
	write(t, dir+"/other", ".x")
	write(t, dir+"/linked", ".\n")
	os.Link(dir+"/linked", dir+"/second")
	if removed, err := Collect(s.Root); err != nil || len(removed) != 1 {
		t.Fatalf("%q, %v", removed, err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"linked", "other", "root", "second", "used"}) {
		t.Errorf("left %q", got)
	}
}

// Whoever can write to a scratch root can put a record there: it must not make
// the next run remove what it did not make.
func TestKernelCollectForgedRecord(t *testing.T) {
	dir := tempDir(t)
	w := dir + "/w"
	os.Mkdir(w, 0o755)
	os.Mkdir(w+"/olddir", 0o755)
	os.Mkdir(w+"/oldhalf", 0o755)
	write(t, w+"/old", "")
	write(t, w+"/oldhalffile", ".\n")
	os.Mkdir(dir+"/root", 0o700)
	time.Sleep(20 * time.Millisecond) // more than a tick of the file system's clock
	forged := dir + "/root/wall-f0"
	os.Mkdir(forged, 0o700)
	write(t, forged+"/"+recordName, "") // made now; what is named below exists already or is data
	time.Sleep(20 * time.Millisecond)
	for _, n := range []string{"newdir", "again"} {
		os.Mkdir(w+"/"+n, 0o755)
	}
	write(t, w+"/data", "data")
	write(t, w+"/new", ".\n")
	var record []byte
	claim := func(name, content string, half bool, change func(*entry)) {
		t.Helper()
		fd, err := unix.Open(w, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		f, err := look(fd, name)
		if err != nil {
			t.Fatal(err)
		}
		e := entry{Path: []byte(w + "/" + name), Type: plan.TypeFile, Content: []byte(content)}
		if f.mode&unix.S_IFMT == unix.S_IFDIR {
			e.Type = plan.TypeDir
		}
		if !half {
			e.Dev, e.Ino, e.Born = f.dev, f.ino, f.born
		}
		if change != nil {
			change(&e)
		}
		record = append(record, e.encode()...)
	}
	claim("olddir", "", false, nil)
	claim("old", "", false, nil)
	claim("oldhalf", "", true, nil)
	claim("oldhalffile", ".\n", true, nil)
	claim("data", "data", false, nil)
	// The same number, but not the same directory.
	claim("again", "", false, func(e *entry) { e.Born.Nsec ^= 1 })
	// What a run would have made since goes.
	claim("newdir", "", false, nil)
	claim("new", ".\n", false, nil)
	write(t, forged+"/"+recordName, string(record))
	if removed, err := Collect(dir + "/root"); err != nil || len(removed) != 1 {
		t.Errorf("%q, %v", removed, err)
	}
	if got := names(t, w); !slices.Equal(got, []string{"again", "data", "old", "olddir", "oldhalf", "oldhalffile"}) {
		t.Errorf("left %q", got)
	}

	// Handed over or not.
	os.Mkdir(forged, 0o700)
	write(t, forged+"/"+recordName+"-f1", "")
	record = nil
	claim("olddir", "", false, nil)
	write(t, forged+"/"+recordName+"-f1", string(record))
	if removed, err := Collect(dir + "/root"); err != nil || len(removed) != 1 || !isThere(w+"/olddir") {
		t.Errorf("%q, %v, left %q", removed, err, names(t, w))
	}

	// Somebody else's is left, also when it is in a directory of ours.
	if os.Geteuid() == 0 {
		os.Mkdir(forged, 0o700)
		write(t, forged+"/"+recordName, "")
		os.Mkdir(w+"/theirs", 0o755)
		os.Chown(w+"/theirs", 54321, 54321)
		record = nil
		claim("theirs", "", false, nil)
		write(t, forged+"/"+recordName, string(record))
		if removed, err := Collect(dir + "/root"); err != nil || len(removed) != 1 || !isThere(w+"/theirs") {
			t.Errorf("%q, %v, left %q", removed, err, names(t, w))
		}
	}
}

// Three runs share two placeholders, each a different pair of paths: every one goes
// with the last run that mounts on it, whichever that is.
func TestKernelPlaceholdersHandedToSeveral(t *testing.T) {
	dir := tempDir(t)
	start := func(guards string, place ...plan.Placeholder) *Dir {
		s := sample(dir)
		s.Placeholders = place
		for g := range strings.SplitSeq(guards, "") {
			s.Guards = append(s.Guards, dir+"/"+g)
		}
		return prepare(t, s)
	}
	left := func(want ...string) {
		t.Helper()
		if got := names(t, dir); !slices.Equal(got, append([]string{"root"}, want...)) {
			t.Fatalf("left %q, want %q", got, want)
		}
	}
	a := start("xyz", plan.Placeholder{Path: dir + "/x", Type: plan.TypeDir}, plan.Placeholder{Path: dir + "/y", Type: plan.TypeDir},
		plan.Placeholder{Path: dir + "/z", Type: plan.TypeFile, Content: ".\n"})
	b := start("x")
	c := start("xy")
	remove(t, a)
	left("x", "y")
	d := start("y")
	remove(t, c)
	left("x", "y")
	// Made anew by somebody else in the meantime, it is not ours any more.
	remove(t, d)
	left("x")
	os.Mkdir(dir+"/y", 0o755)
	remove(t, b)
	left("y")
	if left := names(t, dir+"/root"); len(left) != 0 {
		t.Errorf("left in the root: %q", left)
	}
}

// What cannot be removed now is not forgotten.
func TestKernelCollectTriesAgain(t *testing.T) {
	need(t, "root", os.Geteuid() == 0)
	dir := tempDir(t)
	os.Mkdir(dir+"/w", 0o755)
	s := sample(dir)
	s.Placeholders = []plan.Placeholder{{Path: dir + "/w/p", Type: plan.TypeDir}}
	d := prepare(t, s)
	if err := setImmutable(dir+"/w", 1); err != nil {
		t.Log(err)
		need(t, "immutable", false)
	}
	t.Cleanup(func() { setImmutable(dir+"/w", 0) })
	if err := d.Remove(); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), dir+"/w/p") {
		t.Errorf("error %v", err)
	}
	if got := names(t, s.Path()); !slices.Equal(got, []string{recordName}) {
		t.Errorf("left %q", got)
	}
	setImmutable(dir+"/w", 0)
	if removed, err := Collect(s.Root); err != nil || len(removed) != 1 || isThere(dir+"/w/p") {
		t.Errorf("%q, %v", removed, err)
	}
}

// A command takes the rights of the directories around a placeholder away: it
// goes all the same, and the directories keep the modes that the command chose.
func TestKernelPlaceholdersInClosedDirectories(t *testing.T) {
	for _, modes := range [][3]uint32{
		{0o755, 0o755, 0o555}, {0o755, 0o755, 0}, {0o755, 0, 0o755}, {0, 0, 0}, {0o2055, 0o1700, 0o077}, {0o600, 0o600, 0o600}, {0o300, 0o300, 0o500},
	} {
		dir := tempDir(t)
		dirs := []string{dir + "/a", dir + "/a/b", dir + "/a/b/c"}
		os.MkdirAll(dirs[2], 0o755)
		s := sample(dir)
		s.Placeholders = []plan.Placeholder{{Path: dirs[2] + "/d", Type: plan.TypeDir}, {Path: dirs[2] + "/f", Type: plan.TypeFile, Content: ".\n"}}
		d := prepare(t, s)
		for i, name := range slices.Backward(dirs) {
			if err := unix.Chmod(name, modes[i]); err != nil {
				t.Fatal(err)
			}
		}
		fds := openFDs(t)
		if err := d.Remove(); err != nil {
			t.Errorf("%#o: %v", modes, err)
		}
		if left := fds - openFDs(t); left < 1 {
			t.Errorf("%#o: descriptors are left", modes)
		}
		for i, name := range dirs {
			if got := mode(t, name) & 0o7777; got != modes[i] {
				t.Errorf("%#o: %s has mode %#o now", modes, name, got)
			}
			os.Chmod(name, 0o700)
		}
		if got := names(t, dirs[2]); len(got) != 0 {
			t.Errorf("%#o: left %q", modes, got)
		}
	}
}

func TestKernelCollectLeavesStrangersAlone(t *testing.T) {
	dir := tempDir(t)
	root := dir + "/root"
	os.MkdirAll(root+"/wall-xyz", 0o700)
	os.MkdirAll(root+"/wall-", 0o700)
	os.MkdirAll(root+"/other", 0o700)
	os.MkdirAll(dir+"/victim/sub", 0o700)
	write(t, dir+"/victim/file", "")
	os.Symlink(dir+"/victim", root+"/wall-abc")
	write(t, root+"/wall-def", "")
	os.MkdirAll(root+"/wall-1234", 0o700)
	before := tree(t, dir)
	removed, err := Collect(root)
	if err != nil || !slices.Equal(removed, []string{root + "/wall-1234"}) {
		t.Errorf("%q, %v", removed, err)
	}
	os.MkdirAll(root+"/wall-1234", 0o700)
	if after := tree(t, dir); after != before {
		t.Errorf("changed\n%s\nto\n%s", before, after)
	}
	if err := Discard(root, "abc"); err == nil || !isThere(dir+"/victim/file") {
		t.Errorf("discarded through a link: %v", err)
	}
	if err := Discard(root, "../victim"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("discarded by a path: %v", err)
	}
	if removed, err := Collect(dir + "/missing"); removed != nil || err != nil {
		t.Errorf("missing root: %q, %v", removed, err)
	}
	if infos, err := List(dir + "/missing/deeper"); infos != nil || err != nil {
		t.Errorf("missing root: %v, %v", infos, err)
	}
}

// A Collect that comes between mkdir and flock takes the new directory for a
// leftover. Prepare has to notice.
func TestKernelCollectBetweenMkdirAndLock(t *testing.T) {
	defer func() { testOnlyAfterMkdir = func() {} }()
	dir := tempDir(t)
	s := sample(dir)
	s.Root = DefaultRoot(dir, os.Geteuid())
	left := 3
	testOnlyAfterMkdir = func() {
		if left == 0 {
			return
		}
		left--
		if removed, err := Collect(s.Root); err != nil || len(removed) != 1 {
			t.Errorf("%q, %v", removed, err)
		}
	}
	d := prepare(t, s)
	if left != 0 || !isThere(d.Path()+"/home") {
		t.Errorf("%d collections to go", left)
	}
	remove(t, d)

	// A collector that holds the lock for a while.
	var fd int
	testOnlyAfterMkdir = func() {
		testOnlyAfterMkdir = func() {}
		var err error
		if fd, err = unix.Open(s.Path(), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			t.Error(err)
		}
		if ok, err := tryLock(fd, unix.LOCK_EX); !ok {
			t.Error(err)
		}
		go func() {
			time.Sleep(20 * time.Millisecond)
			os.Remove(s.Path())
			unix.Close(fd)
		}()
	}
	d = prepare(t, s)
	if !isThere(d.Path() + "/home") {
		t.Error("prepared a removed directory")
	}
}

// hammer prepares, collects, lists and removes in one root, where the last one
// out removes the root.
func hammer(root string, n int) error {
	base := rand.Uint64()
	for i := range n {
		s := plan.Scratch{Root: root, ID: fmt.Sprintf("%016x%08x", base, i), Dirs: []plan.ScratchDir{{Name: "home", Mode: 0o700}}}
		d, err := Prepare(s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(d.Path()+"/home/x", nil, 0o600); err != nil {
			return err
		}
		// This may well remove what others made and have not locked yet.
		if removed, err := Collect(root); err != nil || slices.Contains(removed, d.Path()) {
			return fmt.Errorf("collected %q, %v", removed, err)
		}
		if i%4 == 0 {
			if _, err := List(root); err != nil {
				return err
			}
		}
		if !isThere(d.Path() + "/home/x") {
			return errors.New("somebody removed a live directory")
		}
		if err := d.Remove(); err != nil {
			return err
		}
	}
	return nil
}

func TestKernelConcurrency(t *testing.T) {
	dir := tempDir(t)
	root := DefaultRoot(dir, os.Geteuid())
	before := openFDs(t)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if err := startChild(t, job{Scratch: plan.Scratch{Root: root}, Hammer: 100}).Wait(); err != nil {
				t.Error(err)
			}
		})
	}
	for range 6 {
		wg.Go(func() {
			if err := hammer(root, 60); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := names(t, dir); got != nil {
		t.Errorf("left %q", got)
	}
	if after := openFDs(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// A run that starts a second time has its old name, and hands over a second record.
func TestKernelSecondStart(t *testing.T) {
	dir := tempDir(t)
	other := sample(dir)
	other.Guards = []string{dir + "/p", dir + "/q"}
	live := prepare(t, other)
	s := sample(dir)
	for _, name := range []string{"/p", "/q"} {
		s.Placeholders = []plan.Placeholder{{Path: dir + name, Type: plan.TypeDir}}
		remove(t, prepare(t, s))
		if !isThere(dir + name) {
			t.Errorf("%s vanished under a live run", name)
		}
	}
	remove(t, live)
	if got := names(t, dir); !slices.Equal(got, []string{"root"}) {
		t.Errorf("left %q", got)
	}
}

// Runs in one workspace start and end in any order; while any lives the
// placeholder is there, and after the last it is gone.
func TestKernelConcurrentPlaceholders(t *testing.T) {
	dir := tempDir(t)
	place := []plan.Placeholder{{Path: dir + "/p", Type: plan.TypeDir}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 6 {
		wg.Go(func() {
			for range 25 {
				mu.Lock()
				s := sample(dir)
				mu.Unlock()
				s.Placeholders = place
				d, err := Prepare(s)
				if err != nil {
					t.Error(err)
					return
				}
				if !isThere(dir + "/p") {
					t.Error("the placeholder vanished under a live run")
				}
				if err := d.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := names(t, dir); !slices.Equal(got, []string{"root"}) {
		t.Errorf("left %q", got)
	}
}

// limitFDs lowers the limit on descriptors for the rest of the test.
func limitFDs(t *testing.T, n uint64) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
}

// deep makes a chain of directories and returns its bottom's descriptor.
func deep(t *testing.T, dir string, levels int, mode uint32) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range levels {
		name := fmt.Sprintf("level\n%d", i%7)
		if err := unix.Mkdirat(fd, name, 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			f, err := unix.Openat(next, "file", unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(f)
		}
		if err := unix.Fchmod(fd, mode); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
		fd = next
	}
	unix.Fchmod(fd, mode)
	unix.Close(fd)
}

func TestKernelRemoveDeepTree(t *testing.T) {
	for _, tt := range []struct {
		dir    string
		levels int
		mode   uint32
	}{
		{memoryDir(t), 10_000, 0o555},
		{memoryDir(t), 1_000, 0},
		{tempDir(t), 5 * maxOpen, 0o700},
	} {
		d := prepare(t, sample(tt.dir))
		deep(t, d.Path()+"/tmp", tt.levels, tt.mode)
		deep(t, d.Path()+"/home", 3*maxOpen, tt.mode)
		limitFDs(t, uint64(openFDs(t)+maxOpen+8))
		remove(t, d)
		if isThere(d.Path()) {
			t.Errorf("%+v: left", tt)
		}
	}
}

// A tree deeper than anybody can make it by descending: chains of directories,
// each moved to the end of the next. A first version gave up on it.
func TestKernelRemoveDeepTreeOfRenames(t *testing.T) {
	const chains, levels = 210, 300
	d := prepare(t, sample(memoryDir(t)))
	top := d.Path() + "/tmp"
	for i := range chains {
		chain := fmt.Sprintf("%s/%d", top, i)
		bottom := chain + strings.Repeat("/d", levels)
		if err := os.MkdirAll(bottom, 0o700); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if err := os.Rename(fmt.Sprintf("%s/%d", top, i-1), bottom+"/d"); err != nil {
				t.Fatal(err)
			}
		}
	}
	limitFDs(t, uint64(openFDs(t)+maxOpen+8))
	begin := time.Now()
	remove(t, d)
	if isThere(d.Path()) {
		t.Error("left")
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}

func TestKernelRemoveWideTree(t *testing.T) {
	d := prepare(t, sample(memoryDir(t)))
	fd, err := unix.Open(d.Path()+"/tmp", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 50_000
	for i := range n {
		if err := unix.Mknodat(fd, fmt.Sprintf("%060d", i), unix.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			if err := unix.Mkdirat(fd, fmt.Sprintf("d%d", i), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	unix.Close(fd)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	remove(t, d)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if isThere(d.Path()) {
		t.Error("left")
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 16<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
}

func TestKernelRemoveHostileTree(t *testing.T) {
	dir := tempDir(t)
	os.MkdirAll(dir+"/victim/sub", 0o755)
	write(t, dir+"/victim/file", "data")
	os.Chmod(dir+"/victim", 0o555)
	defer os.Chmod(dir+"/victim", 0o755)
	before := tree(t, dir+"/victim")
	d := prepare(t, sample(dir))
	tmp := d.Path() + "/tmp"
	os.MkdirAll(tmp+"/gomod/cache@v1", 0o755)
	write(t, tmp+"/gomod/cache@v1/x.go", "")
	os.Chmod(tmp+"/gomod/cache@v1/x.go", 0o444)
	os.Chmod(tmp+"/gomod/cache@v1", 0o555)
	os.Chmod(tmp+"/gomod", 0o555)
	os.MkdirAll(tmp+"/closed/deeper", 0o755)
	os.Chmod(tmp+"/closed", 0)
	os.Symlink(dir+"/victim", tmp+"/link")
	os.Symlink(dir+"/victim/file", tmp+"/flink")
	os.Symlink("/", tmp+"/-rf")
	os.Link(dir+"/victim/file", tmp+"/hard") // fails under 0555 for some; either is fine
	unix.Mkfifo(tmp+"/fifo", 0)
	for _, n := range []string{"new\nline", " ", "*", "\\", "\x01\x1b[2J", "\xff\xfe", strings.Repeat("n", 255), ".deep-1", ".deep-2"} {
		os.Mkdir(tmp+"/"+n, 0o700)
		write(t, tmp+"/"+n+"/"+n, "")
	}
	os.Mkdir(d.Path()+"/.deep-1", 0o700)
	write(t, d.Path()+"/.deep-1/x", "")
	os.Chmod(d.Path(), 0o500)
	// The same below the depth from which directories are moved up.
	deep(t, d.Path()+"/home", maxOpen-3, 0o700)
	remove(t, d)
	if isThere(d.Path()) {
		t.Error("left")
	}
	if after := tree(t, dir+"/victim"); after != before {
		t.Errorf("changed what links led to:\n%s\n%s", before, after)
	}
}

// A process that swaps directories for links while the tree is removed.
func TestKernelRemoveUnderSwaps(t *testing.T) {
	dir := memoryDir(t)
	os.Mkdir(dir+"/victim", 0o755)
	for i := range 50 {
		write(t, fmt.Sprintf("%s/victim/%d", dir, i), "data")
	}
	for range 30 {
		d := prepare(t, sample(dir))
		tmp := d.Path() + "/tmp"
		for i := range 20 {
			os.MkdirAll(fmt.Sprintf("%s/%d/sub", tmp, i), 0o700)
			os.Symlink(dir+"/victim", fmt.Sprintf("%s/%d-link", tmp, i))
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ; i = (i + 1) % 20 {
				select {
				case <-stop:
					return
				default:
					unix.Renameat2(unix.AT_FDCWD, fmt.Sprintf("%s/%d", tmp, i), unix.AT_FDCWD, fmt.Sprintf("%s/%d-link", tmp, i), unix.RENAME_EXCHANGE)
				}
			}
		})
		err := d.Remove()
		close(stop)
		wg.Wait()
		if err != nil {
			t.Error(err)
		}
		if n := len(names(t, dir+"/victim")); n != 50 {
			t.Fatalf("%d of 50 files behind the link are left", n)
		}
	}
}

func TestKernelRemoveStopsAtMountPoints(t *testing.T) {
	need(t, "root", os.Geteuid() == 0)
	dir := tempDir(t)
	os.Mkdir(dir+"/victim", 0o755)
	write(t, dir+"/victim/file", "data")
	s := sample(dir)
	errs := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with its namespace
		if err := errors.Join(
			unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		); err != nil {
			errs <- fmt.Errorf("set-up: %w", err)
			return
		}
		d, err := Prepare(s) // here: a descriptor belongs to the namespace it was opened in
		if err != nil {
			errs <- err
			return
		}
		if err := errors.Join(
			os.MkdirAll(d.Path()+"/tmp/m/mnt", 0o755),
			os.WriteFile(d.Path()+"/tmp/m/file", nil, 0o600),
			os.WriteFile(d.Path()+"/tmp/gone", nil, 0o600),
			unix.Mount(dir+"/victim", d.Path()+"/tmp/m/mnt", "", unix.MS_BIND, ""), // the same device
			unix.Mount(dir+"/victim/file", d.Path()+"/tmp/m/file", "", unix.MS_BIND, ""),
		); err != nil {
			errs <- fmt.Errorf("set-up: %w", err)
			return
		}
		errs <- d.Remove()
	}()
	err := <-errs
	if err == nil || !strings.Contains(err.Error(), "tmp/m/mnt: it is a mount point") || !strings.Contains(err.Error(), "tmp/m/file: device or resource busy") {
		t.Errorf("error %v", err)
	}
	if !isThere(dir + "/victim/file") {
		t.Error("removed through a mount point")
	}
	if isThere(s.Path() + "/tmp/gone") {
		t.Error("the rest was not removed")
	}
	if removed, err := Collect(dir + "/root"); err != nil || len(removed) != 1 {
		t.Errorf("once unmounted: %q, %v", removed, err)
	}
}

// setImmutable sets or clears the flag that keeps even root from changing a file.
func setImmutable(path string, on int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const immutable = 0x10 // FS_IMMUTABLE_FL
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, on*immutable)
}

func TestKernelRemoveReportsTheImmutable(t *testing.T) {
	need(t, "root", os.Geteuid() == 0)
	dir := tempDir(t)
	d := prepare(t, sample(dir))
	os.Mkdir(d.Path()+"/home/dir", 0o700)
	var fixed []string
	for i := range maxReported + 2 {
		fixed = append(fixed, fmt.Sprintf("%s/home/dir/%d", d.Path(), i))
	}
	for _, f := range fixed {
		write(t, f, "")
		if err := setImmutable(f, 1); err != nil {
			t.Log(err)
			need(t, "immutable", false)
		}
	}
	t.Cleanup(func() {
		for _, f := range fixed {
			setImmutable(f, 0)
		}
	})
	write(t, d.Path()+"/tmp/gone", "")
	err := d.Remove()
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "home/dir/") || !strings.Contains(err.Error(), "and 2 more could not be removed") {
		t.Errorf("error %v", err)
	}
	if isThere(d.Path() + "/tmp/gone") {
		t.Error("the rest was not removed")
	}
	for _, f := range fixed {
		setImmutable(f, 0)
	}
	if removed, err := Collect(dir + "/root"); err != nil || len(removed) != 1 {
		t.Errorf("once mutable: %q, %v", removed, err)
	}
}

func BenchmarkPrepareRemove(b *testing.B) {
	dir := tempDir(b)
	for b.Loop() {
		s := sample(dir)
		s.Root = DefaultRoot(dir, os.Geteuid())
		d, err := Prepare(s)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Remove(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCollectNothing(b *testing.B) {
	d := prepare(b, sample(tempDir(b)))
	root := filepath.Dir(d.Path())
	for b.Loop() {
		if _, err := Collect(root); err != nil {
			b.Fatal(err)
		}
	}
}

// TestRenew: the directory of a run serves its next command: what is in it stays,
// placeholders are those of the new plan, and it is removed as ever.
func TestRenew(t *testing.T) {
	ws, root := tempDir(t), tempDir(t)
	s := plan.Scratch{
		Root: root + "/r", ID: "0a",
		Dirs:         []plan.ScratchDir{{Name: "home", Mode: 0o700}, {Name: "x.work", Mode: 0o700}},
		Placeholders: []plan.Placeholder{{Path: ws + "/one", Type: plan.TypeDir}},
	}
	d, err := Prepare(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"home/mark", "x.work/mark"} {
		if err := os.WriteFile(filepath.Join(d.Path(), name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.Dirs = append(s.Dirs, plan.ScratchDir{Name: "tmp", Mode: 0o700})
	s.Placeholders = []plan.Placeholder{{Path: ws + "/two", Type: plan.TypeDir}}
	if err := d.Renew(s, []string{"x.work", "never-made"}); err != nil {
		t.Fatal(err)
	}
	is := func(name string, want bool) {
		t.Helper()
		if _, err := os.Lstat(name); (err == nil) != want {
			t.Errorf("%s: %v, want there: %v", name, err, want)
		}
	}
	is(ws+"/one", false)
	is(ws+"/two", true)
	is(d.Path()+"/home/mark", true)
	is(d.Path()+"/x.work", true)
	is(d.Path()+"/x.work/mark", false)
	is(d.Path()+"/tmp", true)
	other := s
	other.ID = "0b"
	if err := d.Renew(other, nil); err == nil {
		t.Error("renewed for another directory")
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	is(ws+"/two", false)
	is(d.Path(), false)
}

// TestKernelStrangeEntry: what has the name of a scratch directory and cannot be
// looked at is told, and keeps nothing from what is done with the others.
func TestKernelStrangeEntry(t *testing.T) {
	need(t, "root", os.Geteuid() == 0)
	root := tempDir(t) + "/root"
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"wall-a", "wall-b", "wall-c"} {
		if err := os.Mkdir(root+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	errs := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with its namespace
		if err := errors.Join(
			unix.Unshare(unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("none", root+"/wall-b", "tmpfs", 0, ""),
		); err != nil {
			errs <- fmt.Errorf("set-up: %w", err)
			return
		}
		check := func(what string, got []string, err error) error {
			want := root + "/wall-b: it is a mount point"
			if !slices.Equal(got, []string{"a", "c"}) || err == nil || !strings.Contains(err.Error(), want) {
				return fmt.Errorf("%s: %q, %v", what, got, err)
			}
			return nil
		}
		infos, err := List(root)
		var ids []string
		for _, i := range infos {
			ids = append(ids, i.ID)
		}
		bad := check("list", ids, err)
		err = Discard(root, "b")
		bad = errors.Join(bad, check("discard", []string{"a", "c"}, err))
		removed, err := Collect(root)
		for i, p := range removed {
			removed[i] = strings.TrimPrefix(p, root+"/wall-")
		}
		errs <- errors.Join(bad, check("collect", removed, err))
	}()
	if err := <-errs; err != nil {
		t.Error(err)
	}
}

// TestPlaceholderHints: whatever keeps a placeholder from being made, there is something to do about it.
func TestPlaceholderHints(t *testing.T) {
	for _, err := range []error{unix.EEXIST, unix.ENOENT, unix.ELOOP, unix.EACCES, unix.EROFS, unix.ENOSPC, unix.EDQUOT} {
		if placeholderHint(fmt.Errorf("write: %w", err)) == "" {
			t.Errorf("no hint for %v", err)
		}
	}
}
