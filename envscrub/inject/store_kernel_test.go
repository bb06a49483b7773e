package inject

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A process of the tests is the test binary with this variable: what it shall do,
// then the path of the store, then arguments, separated by NUL-free spaces.
const helperVariable = "WALL_TEST_INJECT_HELPER"

func TestMain(m *testing.M) {
	if job := os.Getenv(helperVariable); job != "" {
		if err := helper(strings.Split(job, " ")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(job []string) error {
	store := Store{job[1]}
	switch job[0] {
	case "count": // adds N variables of its own, one by one
		n, err := strconv.Atoi(job[3])
		for i := 0; i < n && err == nil; i++ {
			_, err = store.Set(context.Background(), []Var{{job[2] + "_" + strconv.Itoa(i), "v"}})
		}
		return err
	case "toggle": // edits until it is killed
		for i := 0; ; i++ {
			if _, err := store.Set(context.Background(), []Var{{"A", strings.Repeat("x", i%5000)}}); err != nil {
				return err
			}
		}
	case "hold": // keeps the lock until its standard input ends
		_, err := store.Edit(context.Background(), func(v []Var) ([]Var, error) {
			fmt.Println("locked")
			_, err := os.Stdin.Read(make([]byte, 1))
			return v, ignoreEOF(err)
		})
		return err
	case "full": // in a mount namespace of its own
		return fillDisk(store)
	case "small": // with a limit on the size of files
		signal.Ignore(unix.SIGXFSZ) // write(2) then fails with EFBIG
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: 4096}); err != nil {
			return err
		}
		return unchangedBy(store, 8192, unix.EFBIG)
	}
	return errors.New("unknown job " + job[0])
}

func ignoreEOF(err error) error {
	if err != nil && err.Error() == "EOF" {
		return nil
	}
	return err
}

// command is a process of the tests.
func command(t *testing.T, job ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperVariable+"="+strings.Join(job, " "))
	cmd.Stderr = os.Stderr
	return cmd
}

// need skips the test when the host lacks what it needs, or fails it when
// WALL_TEST_REQUIRE names that.
func need(t *testing.T, word string) {
	t.Helper()
	if word != "userns" {
		t.Fatalf("unknown need %q", word)
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.SysProcAttr = userNamespace()
	err := cmd.Run()
	switch {
	case err == nil:
	case slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), word):
		t.Fatalf("this host lacks %s: %v", word, err)
	default:
		t.Skipf("this host lacks %s: %v", word, err)
	}
}

// userNamespace makes the process root of a user and a mount namespace.
func userNamespace() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
}

func newStore(t *testing.T) Store {
	t.Helper()
	return Store{filepath.Join(t.TempDir(), "config", "wall", "injected.json")}
}

func set(t *testing.T, s Store, vars ...Var) {
	t.Helper()
	if _, err := s.Set(t.Context(), vars); err != nil {
		t.Fatal(err)
	}
}

// want fails unless the store holds exactly vars.
func want(t *testing.T, s Store, vars ...Var) {
	t.Helper()
	got, err := s.Load()
	if err != nil {
		t.Error(err)
		return
	}
	if got == nil || !slices.Equal(got, vars) {
		t.Errorf("the store holds %v, want %v, or has other values", got, vars)
	}
}

// only fails unless the directory of the store holds exactly these files.
func only(t *testing.T, s Store, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(s.Path))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, names) {
		t.Errorf("the directory holds %q, want %q", got, names)
	}
}

// wantError fails unless err is a *plan.Error for people that holds all of parts, with
// exit status 125, and no value.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	var pe *plan.Error
	if !errors.As(err, &pe) || plan.ExitStatus(err) != plan.ExitFailed {
		t.Errorf("%T %v is not a *plan.Error with exit status 125", err, err)
	}
	text := plan.Explain(err)
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("the error does not hold %q:\n%s", p, text)
		}
	}
	if strings.Contains(text, sentinel) {
		t.Errorf("the error shows a value:\n%s", text)
	}
}

func TestStoreEdits(t *testing.T) {
	s := newStore(t)
	want(t, s)
	if _, err := os.Lstat(filepath.Dir(s.Path)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("reading made the directory")
	}
	all := make([]byte, 0, 255)
	for c := 1; c < 256; c++ {
		all = append(all, byte(c))
	}
	set(t, s, Var{"B", "1"}, Var{"A", string(all)}, Var{"B", "2"})
	want(t, s, Var{"A", string(all)}, Var{"B", "2"})
	set(t, s, Var{"C", ""}, Var{"A", "a"})
	want(t, s, Var{"A", "a"}, Var{"B", "2"}, Var{"C", ""})
	got, err := s.Unset(t.Context(), []string{"A", "MISSING"})
	if err != nil || !slices.Equal(got, []Var{{"B", "2"}, {"C", ""}}) {
		t.Errorf("Unset gave %v %v", got, err)
	}
	want(t, s, Var{"B", "2"}, Var{"C", ""})
	only(t, s, "injected.json", "injected.json.last", "injected.json.lock")
	for name, mode := range map[string]fs.FileMode{"": fs.ModeDir | 0o700, "injected.json": 0o600, "injected.json.last": 0o600, "injected.json.lock": 0o600} {
		if st, err := os.Lstat(filepath.Join(filepath.Dir(s.Path), name)); err != nil || st.Mode() != mode {
			t.Errorf("%q has mode %v %v, want %v", name, st.Mode(), err, mode)
		}
	}
}

// Nothing is written unless everything can be.
func TestStoreRefusesBeforeItWrites(t *testing.T) {
	s := newStore(t)
	set(t, s, Var{"A", "a"})
	before, err := os.ReadFile(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	good := Var{"GOOD", sentinel}
	_, err = s.Set(ctx, []Var{good, {"B C", sentinel}, {"", sentinel}, {"D", sentinel + "\x00"}, {"HOME", sentinel}})
	wantError(t, err, `"B C"`, "the name is empty", "cannot store D: the value holds a NUL", "cannot store HOME")
	_, err = s.Set(ctx, []Var{good, {"BIG", strings.Repeat(sentinel, 1<<20/len(sentinel))}})
	wantError(t, err, "cannot store BIG", "131070 bytes")
	_, err = s.Unset(ctx, []string{"A", "B=C"})
	wantError(t, err, `cannot remove "B=C"`)
	_, err = s.Edit(ctx, func(v []Var) ([]Var, error) { return append(v, good, good), nil })
	wantError(t, err, "cannot store GOOD: it is there twice")
	_, err = s.Edit(ctx, func(v []Var) ([]Var, error) { return append(v, Var{"A-B", sentinel}), nil })
	wantError(t, err, `"A-B"`)
	mine := errors.New("mine")
	if _, err = s.Edit(ctx, func(v []Var) ([]Var, error) { v[0].Value = "changed"; return v, mine }); err != mine {
		t.Errorf("%v", err)
	}
	_, err = s.Edit(ctx, func(v []Var) ([]Var, error) {
		for i := range 10 {
			v = append(v, Var{"V" + strconv.Itoa(i), strings.Repeat("v", MaxString-4)})
		}
		return v, nil
	})
	wantError(t, err, "more than 1048576", "remove some")
	_, err = Store{"injected.json"}.Set(ctx, []Var{good})
	wantError(t, err, "not absolute")
	want(t, s, Var{"A", "a"})
	after, err := os.ReadFile(s.Path)
	if err != nil || string(after) != string(before) {
		t.Errorf("the file changed: %v", err)
	}
	only(t, s, "injected.json", "injected.json.last", "injected.json.lock")
}

func TestStoreConcurrentEdits(t *testing.T) {
	s := newStore(t)
	var wg sync.WaitGroup
	for i := range 25 {
		cmd := command(t, "count", s.Path, fmt.Sprintf("P%d", i), "2")
		wg.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for j := range 2 {
				own := Store{s.Path}
				if _, err := own.Set(context.Background(), []Var{{fmt.Sprintf("G%d_%d", i, j), "v"}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	readers.Go(func() { // sees a whole store at every moment
		for n := 0; ; {
			vars, err := s.Load()
			if err != nil || len(vars) < n {
				t.Errorf("%d variables after %d: %v", len(vars), n, err)
				return
			}
			n = len(vars)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	wg.Wait()
	close(stop)
	readers.Wait()
	vars, err := s.Load()
	if err != nil || len(vars) != 100 {
		t.Errorf("%d variables, want 100: %v", len(vars), err)
	}
}

// A kill at any moment leaves the old state or the new one.
func TestStoreKilledEdits(t *testing.T) {
	s := newStore(t)
	set(t, s, Var{"KEPT", "1"})
	for range 30 {
		cmd := command(t, "toggle", s.Path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.Int64N(int64(40 * time.Millisecond))))
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // was killed
		for _, path := range []string{s.Path, s.last()} {
			vars, err := Store{path}.Load()
			if err != nil || len(vars) == 0 || vars[len(vars)-1] != (Var{"KEPT", "1"}) {
				t.Fatalf("%s holds %v %v", path, vars, err)
			}
		}
	}
	set(t, s, Var{"B", "2"})
	only(t, s, "injected.json", "injected.json.last", "injected.json.lock")
}

func TestStoreLocked(t *testing.T) {
	s := newStore(t)
	set(t, s, Var{"A", "a"})
	cmd := command(t, "hold", s.Path)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Set(ctx, []Var{{"A", sentinel}})
	wantError(t, err, "they are locked by process "+strconv.Itoa(cmd.Process.Pid)+" (", "nothing was changed")
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = s.Set(ctx, []Var{{"A", sentinel}})
	wantError(t, err, "context canceled")
	want(t, s, Var{"A", "a"}) // a run does not wait

	done := make(chan error)
	go func() {
		_, err := s.Set(context.Background(), []Var{{"A", "b"}})
		done <- err
	}()
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	want(t, s, Var{"A", "b"})
}

// The lock is not waited for without end.
func TestStoreLockedForLong(t *testing.T) {
	s := newStore(t)
	set(t, s, Var{"A", "a"})
	lock, err := os.Open(s.lock())
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, err = s.Set(context.Background(), []Var{{"A", sentinel}})
	wantError(t, err, "they are locked by process "+strconv.Itoa(os.Getpid()))
	if d := time.Since(begin); d < lockWait {
		t.Errorf("it waited for %v, want %v", d, lockWait)
	}
	want(t, s, Var{"A", "a"})
}

// unchangedBy tries an edit that needs size bytes and must fail with want.
func unchangedBy(s Store, size int, want error) error {
	before, err := os.ReadFile(s.Path)
	if err != nil {
		return err
	}
	_, err = s.Set(context.Background(), []Var{{"BIG", strings.Repeat("v", size)}})
	if !errors.Is(err, want) {
		return fmt.Errorf("the edit gave %v, want %v", err, want)
	}
	if text := plan.Explain(err); !strings.Contains(text, s.Path) || !strings.Contains(text, "nothing was changed") {
		return fmt.Errorf("the error is %q", text)
	}
	for _, path := range []string{s.Path, s.last()} {
		after, err := os.ReadFile(path)
		if err != nil || string(after) != string(before) {
			return fmt.Errorf("%s changed: %v", path, err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(s.Path))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), newSuffix) {
			return fmt.Errorf("%s is left behind", e.Name())
		}
	}
	return nil
}

// fillDisk edits a store on a file system of 32 KiB.
func fillDisk(s Store) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return os.NewSyscallError("mount private", err)
	}
	if err := unix.Mount("tmpfs", filepath.Dir(s.Path), "tmpfs", 0, "size=32k,mode=0700"); err != nil {
		return os.NewSyscallError("mount tmpfs", err)
	}
	ctx := context.Background()
	if _, err := s.Set(ctx, []Var{{"A", "a"}}); err != nil {
		return err
	}
	// Not even the first copy fits; then the first fits and the second does not.
	for _, size := range []int{100 << 10, 14 << 10} {
		if err := unchangedBy(s, size, unix.ENOSPC); err != nil {
			return err
		}
	}
	// A store that was damaged is put back on a disk that is full to the last byte as soon as there is room.
	if err := os.WriteFile(s.Path, []byte("{"), 0o600); err != nil {
		return err
	}
	ballast := filepath.Dir(s.Path) + "/ballast"
	if err := os.WriteFile(ballast, make([]byte, 64<<10), 0o600); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("the disk is not full: %v", err)
	}
	if _, _, err := s.Restore(ctx); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("restoring gave %v", err)
	}
	if _, err := s.Load(); err == nil || !strings.Contains(err.Error(), "damaged") {
		return fmt.Errorf("the damage does not show any more: %v", err)
	}
	if err := os.Remove(ballast); err != nil {
		return err
	}
	vars, _, err := s.Restore(ctx)
	if err != nil || !slices.Equal(vars, []Var{{"A", "a"}}) {
		return fmt.Errorf("restoring gave %v %v", vars, err)
	}
	return nil
}

func TestStoreFullDisk(t *testing.T) {
	need(t, "userns")
	s := newStore(t)
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "full", s.Path)
	cmd.SysProcAttr = userNamespace()
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

func TestStoreFileSizeLimit(t *testing.T) {
	s := newStore(t)
	set(t, s, Var{"A", "a"})
	if err := command(t, "small", s.Path).Run(); err != nil {
		t.Error(err)
	}
	want(t, s, Var{"A", "a"})
}

// Where the store should be is something else: a run and an edit refuse it at once.
func TestStoreRefusesOtherFiles(t *testing.T) {
	place := map[string]func(t *testing.T, path string){
		"link": func(t *testing.T, path string) {
			target := filepath.Join(t.TempDir(), "target")
			writeFile(t, target, encode([]Var{{"A", sentinel}}), 0o600)
			check(t, os.Symlink(target, path))
		},
		"dangling link": func(t *testing.T, path string) { check(t, os.Symlink("/nonexistent/x", path)) },
		"FIFO":          func(t *testing.T, path string) { check(t, unix.Mkfifo(path, 0o600)) },
		"socket": func(t *testing.T, path string) {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			check(t, err)
			t.Cleanup(func() { unix.Close(fd) })
			// The path of a socket is short; that of the store may not be.
			wd, err := os.Getwd()
			check(t, err)
			defer func() { check(t, os.Chdir(wd)) }()
			check(t, os.Chdir(filepath.Dir(path)))
			check(t, unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Base(path)}))
		},
		"directory": func(t *testing.T, path string) { check(t, os.Mkdir(path, 0o700)) },
	}
	for name, make := range place {
		for _, which := range []string{"", ".lock"} {
			t.Run(name+which, func(t *testing.T) {
				s := newStore(t)
				set(t, s, Var{"A", "a"})
				path := s.Path + which
				check(t, os.Remove(path))
				make(t, path)
				if which == "" {
					_, err := s.Load()
					wantError(t, err, path, "it is not a regular file", "wall env restore")
				}
				_, err := s.Set(t.Context(), []Var{{"B", "b"}})
				wantError(t, err, path, "it is not a regular file")
				if which != "" {
					wantError(t, err, "move it away") // restoring is no way out: it takes the lock
					if strings.Contains(plan.Explain(err), "env restore") {
						t.Errorf("the hint leads nowhere: %s", plan.Explain(err))
					}
					return
				}
				_, kept, err := s.Restore(t.Context())
				if err != nil || kept != path+".damaged" {
					t.Errorf("restoring gave %q %v", kept, err)
				}
				if _, err := os.Lstat(kept); err != nil {
					t.Error(err)
				}
				want(t, s, Var{"A", "a"})
			})
		}
	}
}

// What stands in the way of the last good state is found before the store changes.
func TestStoreLastIsDirectory(t *testing.T) {
	s := newStore(t)
	set(t, s, Var{"A", "a"})
	check(t, os.Remove(s.last()))
	check(t, os.Mkdir(s.last(), 0o700))
	_, err := s.Set(t.Context(), []Var{{"B", sentinel}})
	wantError(t, err, s.last(), "is a directory", "nothing was changed")
	want(t, s, Var{"A", "a"})
	check(t, os.Remove(s.last()))
	set(t, s, Var{"B", "b"})
	only(t, s, "injected.json", "injected.json.last", "injected.json.lock")
}

func TestStoreRefusesForeignHands(t *testing.T) {
	for _, mode := range []fs.FileMode{0o640, 0o620, 0o604, 0o602, 0o666} {
		s := newStore(t)
		set(t, s, Var{"A", "a"})
		check(t, os.Chmod(s.Path, mode))
		_, err := s.Load()
		wantError(t, err, s.Path, "others can read or write it", "chmod 600 "+s.Path)
		_, err = s.Set(t.Context(), []Var{{"B", "b"}})
		wantError(t, err, "others can read or write it")
		check(t, os.Chmod(s.Path, 0o600))
		want(t, s, Var{"A", "a"})
	}
	for _, mode := range []fs.FileMode{0o720, 0o702, 0o777 | fs.ModeSticky} {
		s := newStore(t)
		set(t, s, Var{"A", "a"})
		check(t, os.Chmod(filepath.Dir(s.Path), mode))
		_, err := s.Load()
		wantError(t, err, filepath.Dir(s.Path), "others can write it", "chmod go-w")
		_, err = s.Set(t.Context(), []Var{{"B", "b"}})
		wantError(t, err, "others can write it")
	}
	// A reader without permission for the file.
	if os.Geteuid() != 0 {
		s := newStore(t)
		set(t, s, Var{"A", "a"})
		check(t, os.Chmod(s.Path, 0))
		_, err := s.Load()
		wantError(t, err, s.Path, "permission denied")
		_, err = s.Set(t.Context(), []Var{{"B", "b"}})
		wantError(t, err, "permission denied")
		// What root wrote is not this user's: neither a directory...
		_, err = Store{"/etc/injected.json"}.Load()
		wantError(t, err, "it belongs to another user", "set XDG_CONFIG_HOME")
		return
	}
	for _, path := range []func(Store) string{
		func(s Store) string { return s.Path },
		func(s Store) string { return s.lock() },
		func(s Store) string { return filepath.Dir(s.Path) },
	} {
		s := newStore(t)
		set(t, s, Var{"A", "a"})
		check(t, os.Chown(path(s), 12345, 12345))
		_, err := s.Set(t.Context(), []Var{{"B", "b"}})
		wantError(t, err, "it belongs to another user")
		if path(s) != s.lock() {
			_, err = s.Load()
			wantError(t, err, "it belongs to another user")
		}
		if path(s) == filepath.Dir(s.Path) {
			wantError(t, err, "set XDG_CONFIG_HOME") // chmod helps nobody who does not own it
		}
	}
}

func TestStoreDamaged(t *testing.T) {
	for _, damage := range []string{"", "{", `{"version":1,"variables":[{"name":"A","value":"` + sentinel, "\x00\x00\x00\x00", `{"version":2,"variables":[]}`} {
		s := newStore(t)
		set(t, s, Var{"A", "a"})
		set(t, s, Var{"B", "b"})
		writeFile(t, s.Path, []byte(damage), 0o600)
		vars, err := s.Load()
		wantError(t, err, "cannot use the stored variables in "+s.Path, "it is damaged", "wall env restore")
		if vars != nil {
			t.Error("a damaged store gave variables")
		}
		_, err = s.Set(t.Context(), []Var{{"C", "c"}})
		wantError(t, err, s.Path, "it is damaged", "wall env restore")
		if data, err := os.ReadFile(s.Path); err != nil || string(data) != damage {
			t.Errorf("an edit changed the damaged file: %v", err)
		}
		vars, kept, err := s.Restore(t.Context())
		if err != nil || !slices.Equal(vars, []Var{{"A", "a"}, {"B", "b"}}) {
			t.Errorf("restoring gave %v %v", vars, err)
		}
		want(t, s, Var{"A", "a"}, Var{"B", "b"})
		if data, err := os.ReadFile(kept); err != nil || string(data) != damage || filepath.Dir(kept) != filepath.Dir(s.Path) {
			t.Errorf("the damaged file is not in %s: %v", kept, err)
		}
		// Once more: the first damaged file is not overwritten.
		writeFile(t, s.Path, []byte("x"), 0o600)
		if _, again, err := s.Restore(t.Context()); err != nil || again != kept+".2" {
			t.Errorf("restoring again kept %q %v", again, err)
		}
		set(t, s, Var{"C", "c"})
		want(t, s, Var{"A", "a"}, Var{"B", "b"}, Var{"C", "c"})
	}
}

func TestStoreRestoreRefuses(t *testing.T) {
	s := newStore(t)
	_, _, err := s.Restore(t.Context())
	wantError(t, err, s.last(), "no earlier state was kept")
	set(t, s, Var{"A", "a"})
	_, _, err = s.Restore(t.Context())
	wantError(t, err, s.Path, "nothing to restore")
	want(t, s, Var{"A", "a"})

	check(t, os.Remove(s.Path))
	vars, kept, err := s.Restore(t.Context())
	if err != nil || kept != "" || !slices.Equal(vars, []Var{{"A", "a"}}) {
		t.Errorf("a removed store: %v %q %v", vars, kept, err)
	}

	writeFile(t, s.Path, []byte("x"), 0o600)
	writeFile(t, s.last(), []byte("y"), 0o600)
	_, _, err = s.Restore(t.Context())
	wantError(t, err, s.last(), "it is damaged", "move", s.Path)
	for path, text := range map[string]string{s.Path: "x", s.last(): "y"} {
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("%s changed: %v", path, err)
		}
	}
}

func TestReader(t *testing.T) {
	s := newStore(t)
	r := &Reader{Store: s}
	if vars, err := r.Read(); err != nil || vars == nil || len(vars) > 0 {
		t.Errorf("without a store: %v %v", vars, err)
	}
	set(t, s, Var{"A", "a"})
	if vars, err := r.Read(); err != nil || !slices.Equal(vars, []Var{{"A", "a"}}) {
		t.Errorf("after an edit: %v %v", vars, err)
	}
	writeFile(t, s.Path, []byte(sentinel), 0o600)
	for range 2 {
		vars, err := r.Read()
		wantError(t, err, s.Path, "it is damaged")
		if !slices.Equal(vars, []Var{{"A", "a"}}) {
			t.Errorf("damaged: %v, want the last good state", vars)
		}
		vars[0] = Var{"CHANGED", ""} // the caller's copy
	}
	fresh := &Reader{Store: s}
	if vars, err := fresh.Read(); err == nil || vars != nil {
		t.Errorf("damaged from the start: %v %v", vars, err)
	}
	if _, _, err := s.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	set(t, s, Var{"A", "b"})
	if vars, err := r.Read(); err != nil || !slices.Equal(vars, []Var{{"A", "b"}}) {
		t.Errorf("after the repair: %v %v", vars, err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path string, data []byte, mode fs.FileMode) {
	t.Helper()
	check(t, os.WriteFile(path, data, mode))
	check(t, os.Chmod(path, mode))
}
