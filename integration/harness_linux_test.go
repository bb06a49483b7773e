package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The binaries under test, both readable by everybody.
var wallBin, probeBin string

// Environment by which this test binary talks to a copy of itself.
const (
	envBinDir = "WALL_TEST_BIN_DIR" // where the binaries lie already
	envStage  = "WALL_TEST_STAGE"   // "mount": make the private home; "home": it is made; "internet", "client": see internet
	envWorld  = "WALL_TEST_WORLD"   // the private home has a network of its own, too; "home": descriptor of its control socket
)

func TestMain(m *testing.M) {
	switch os.Getenv(envStage) {
	case "mount":
		err := mountHome()
		fmt.Fprintln(os.Stderr, "cannot make a private home:", err)
		os.Exit(2)
	case "internet":
		if err := serveInternet(); err != nil {
			fmt.Fprintln(os.Stderr, "the internet of the test:", err)
			os.Exit(2)
		}
		os.Exit(0)
	case "client":
		os.Exit(goClient(os.Args[1:]))
	}
	dir := os.Getenv(envBinDir)
	if dir == "" {
		var err error
		if dir, err = makeBinaries(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Setenv(envBinDir, dir)
		defer os.RemoveAll(dir)
	}
	wallBin, probeBin = filepath.Join(dir, "wall"), filepath.Join(dir, "bin", "probe")
	if bin := os.Getenv("WALL_BIN"); bin != "" && os.Getenv(envStage) == "" {
		// In place, where the host can: AppArmor may allow user namespaces to this path only.
		wallBin = bin
	}

	// Orphans of a killed launcher come to this process, so that survivors of
	// this test are told from the boxes of anybody else on the machine.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	code := m.Run()
	children() // reaps orphans of orphans, such as the go command's
	if os.Getenv(envStage) == "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// makeBinaries puts copies of the binaries where a private home cannot hide
// them: DIR/wall, and DIR/bin/probe, which is what boxes get to see.
func makeBinaries() (string, error) {
	dir, err := os.MkdirTemp("", "wall-it-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		return "", err
	}
	static := []string{"build", "-trimpath", "-buildvcs=false", "-tags", "netgo,osusergo", "-ldflags", `-s -w -linkmode external -extldflags "-static"`}
	for _, b := range []struct {
		env, pkg, out string
		cgo           string
		args          []string
	}{
		{"WALL_BIN", "github.com/wallsandbox/wall/cmd/wall", "wall", "1", static},
		{"WALL_PROBE", "github.com/wallsandbox/wall/integration/probe", "bin/probe", "0", []string{"build", "-trimpath", "-buildvcs=false"}},
	} {
		out := filepath.Join(dir, b.out)
		if from := os.Getenv(b.env); from != "" {
			data, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(out, data, 0o755)
			}
			if err != nil {
				return "", fmt.Errorf("%s: %w", b.env, err)
			}
			continue
		}
		cmd := exec.Command("go", append(b.args, "-o", out, b.pkg)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+b.cgo)
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("go build %s: %w\n%s", b.pkg, err, text)
		}
	}
	return dir, nil
}

// need skips the test when the host lacks something, or fails it when
// WALL_TEST_REQUIRE names that. A word that is no kernel feature is a program.
func need(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		why := lacks(word)
		if why == nil {
			continue
		}
		required := strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ",")
		_, isProgram := features[word]
		if slices.Contains(required, word) || !isProgram && slices.Contains(required, "tools") {
			t.Fatalf("%s is required and not there: %v", word, why)
		}
		t.Skipf("needs %s: %v", word, why)
	}
}

var features = map[string]func() error{
	"cgroup": func() error {
		dir, err := os.MkdirTemp("", "wall-it-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		cmd := exec.Command(wallBin, "plan", "--workspace", dir, "--limit", "memory=1GiB", "--limit", "processes=100", "--", "true")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	},
	"userns": func() error {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.Env = append(os.Environ(), envStage+"=home")
		cmd.SysProcAttr = newUser(0)
		return cmd.Run()
	},
	"internet": func() error {
		cmd := exec.Command("/proc/self/exe", "-test.run=^$")
		cmd.Env = append(os.Environ(), envStage+"=mount", envWorld+"=make")
		cmd.SysProcAttr = newUser(unix.CLONE_NEWNET)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	},
	"landlock": func() error {
		if _, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1); e != 0 {
			return e
		}
		return nil
	},
	"seccomp": func() error {
		_, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
		return err
	},
	"npm-registry": func() error {
		_, err := fetchAgents()
		return err
	},
	"home": func() error {
		_, err := os.Stat(accountHome())
		return err
	},
}

func lacks(word string) error {
	if f, ok := features[word]; ok {
		return f()
	}
	_, err := exec.LookPath(word)
	return err
}

// accountHome is the home directory of the account record, not $HOME.
func accountHome() string {
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return "/nonexistent"
	}
	return u.HomeDir
}

// newUser asks for a mount namespace, and for an ordinary user also for a user
// namespace with the same ids, where it may mount.
func newUser(extra uintptr) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | extra}
	if os.Getuid() != 0 {
		a.Cloneflags |= unix.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		a.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	if extra&unix.CLONE_NEWNET != 0 && os.Getuid() != 0 {
		a.AmbientCaps = append(a.AmbientCaps, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE)
	}
	return a
}

// inOwnHome reports whether this process runs with a private, empty home
// directory, /run and /srv. If not, it runs the calling test again in a process
// that does, and takes over the result: the account's real home is never
// written, and its content does not matter.
func inOwnHome(t *testing.T) bool {
	t.Helper()
	if os.Getenv(envStage) == "home" {
		return true
	}
	need(t, "userns", "home")
	return again(t, newUser(0))
}

// again runs the calling test in a process with attr, and returns false.
func again(t *testing.T, attr *syscall.SysProcAttr, env ...string) bool {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(append(os.Environ(), env...), envStage+"=mount")
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("with a private home: %v\n%s", err, out)
	} else {
		if !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("with a private home the test did not run:\n%s", out)
		}
		t.Logf("%s", out)
	}
	return false
}

// mountHome is the first stage of inOwnHome. It returns only an error.
func mountHome() error {
	runtime.LockOSThread()
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := os.Chdir("/"); err != nil { // the old directory may be below the home
		return err
	}
	opts := fmt.Sprintf("mode=0755,uid=%d,gid=%d", os.Getuid(), os.Getgid())
	for _, dir := range []string{accountHome(), "/run", "/srv"} {
		if err := unix.Mount("own", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
			return fmt.Errorf("mount a tmpfs on %s: %w", dir, err)
		}
	}
	nested := filepath.Join(accountHome(), "nested")
	if err := os.Mkdir(nested, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("own", nested, "tmpfs", 0, opts); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", nested, err)
	}
	env := slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, envStage+"=") || strings.HasPrefix(e, envWorld+"=")
	})
	if os.Getenv(envWorld) != "" {
		fd, err := makeInternet()
		if err != nil {
			return err
		}
		env = append(env, fmt.Sprintf("%s=%d", envWorld, fd))
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, append(env, envStage+"=home"))
}

// A box is how a test runs commands: in a box of wall, or bare.
type box struct {
	t       *testing.T
	profile string
	bare    bool     // no box: the control
	ws      string   // workspace
	cwd     string   // "" = ws
	scratch string   // --scratch-root; "" = wall's own
	flags   []string // of wall run
	env     []string // instead of the environment of the test
	stdin   io.Reader
	files   []*os.File // descriptors 3 and up
	without string     // a facility of the kernel that is made to be missing, see probe
}

// newBox gives a box with a new, empty workspace, and a scratch root of its
// own, so that other boxes on the machine do not matter.
func newBox(t *testing.T, profile string) *box {
	t.Helper()
	need(t, "userns", "landlock", "seccomp")
	ws, scratch := filepath.Join(tempDir(t), "ws"), filepath.Join(tempDir(t), "scratch")
	for _, dir := range []string{ws, scratch} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return &box{t: t, profile: profile, ws: ws, scratch: scratch}
}

// tempDir is t.TempDir without links in its path.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// control gives the same box without its walls.
func (b *box) control() *box {
	c := *b
	c.bare = true
	return &c
}

func (b *box) argv(argv ...string) []string {
	if b.bare {
		return argv
	}
	all := []string{wallBin, "run", "-p", b.profile, "--workspace", b.ws, "--ro", filepath.Dir(probeBin)}
	if b.scratch != "" {
		all = append(all, "--scratch-root", b.scratch)
	}
	if b.without != "" {
		all = append([]string{probeBin, "without", b.without}, all...)
	}
	all = append(append(all, b.flags...), "--")
	return append(all, argv...)
}

// cmd gives the command that runs argv, with a time limit.
func (b *box) cmd(argv ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	b.t.Cleanup(cancel)
	all := b.argv(argv...)
	cmd := exec.CommandContext(ctx, all[0], all[1:]...)
	cmd.Dir = b.cwd
	if cmd.Dir == "" {
		cmd.Dir = b.ws
	}
	cmd.Env = b.env
	cmd.Stdin = b.stdin
	cmd.ExtraFiles = b.files
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

type result struct {
	out, err string
	code     int // as a shell gives it
}

func (b *box) run(argv ...string) result {
	b.t.Helper()
	return finish(b.t, b.cmd(argv...))
}

func (b *box) sh(script string, args ...string) result {
	b.t.Helper()
	return b.run(append([]string{"/bin/sh", "-c", script, "sh"}, args...)...)
}

// finish runs a command to its end.
func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v\n%s", cmd.Args, err, errs.String())
	}
	return result{out.String(), errs.String(), shellStatus(cmd.ProcessState)}
}

func shellStatus(s *os.ProcessState) int {
	if ws := s.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}

// ok fails the test unless the command ended with 0, and gives its output.
func (r result) ok(t *testing.T) string {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit status %d\nstdout:\n%s\nstderr:\n%s", r.code, r.out, r.err)
	}
	return r.out
}

// batch tries operations, each a line of words, in one box.
func (b *box) batch(ops []string) []string {
	b.t.Helper()
	return batchOf(b.t, b.cmd(probeBin, "batch"), ops)
}

func (b *box) try(op string) string {
	b.t.Helper()
	return b.batch([]string{op})[0]
}

// anyOf reports whether got is one of the alternatives in want, "A|B".
func anyOf(got, want string) bool {
	return slices.Contains(strings.Split(want, "|"), got)
}

// nonce gives a word that occurs nowhere else.
func nonce() string { return fmt.Sprintf("walltest%016x", rand.Uint64()) }

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// host runs a command outside of any box, which must succeed.
func host(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

// snapshot describes a file tree: type, mode, size, time and content of
// everything below the roots, sockets and directories' times left out.
func snapshot(t *testing.T, roots ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			switch {
			case info.Mode().IsRegular():
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				all[path] = fmt.Sprintf("%v %d %d %q", info.Mode(), info.ModTime().UnixNano(), info.Sys().(*syscall.Stat_t).Nlink, data)
			case info.Mode()&fs.ModeSymlink != 0:
				target, _ := os.Readlink(path)
				all[path] = "-> " + target
			default:
				all[path] = info.Mode().String()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// sameTree fails the test for every difference between two snapshots.
func sameTree(t *testing.T, before, after map[string]string) {
	t.Helper()
	for path, was := range before {
		if is, ok := after[path]; !ok {
			t.Errorf("%s is gone", path)
		} else if is != was {
			t.Errorf("%s changed\n was %s\n is  %s", path, was, is)
		}
	}
	for path, is := range after {
		if _, ok := before[path]; !ok {
			t.Errorf("%s was left behind: %s", path, is)
		}
	}
}

// withArg gives the ids of the processes of this machine whose argv holds word,
// this one excepted.
func withArg(word string) []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		data, err := os.ReadFile(dir + "/cmdline")
		if err != nil || !bytes.Contains(data, []byte(word)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// children gives the living children of this process, "PID COMM", and reaps the
// dead ones that nobody waits for. It must not run next to an exec.Cmd.
func children() []string {
	var alive []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		data, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		// "PID (COMM) STATE PPID": COMM may hold anything.
		end := bytes.LastIndexByte(data, ')')
		f := strings.Fields(string(data[end+1:]))
		if f[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if f[0] == "Z" {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
			continue
		}
		alive = append(alive, string(data[:end+1]))
	}
	return alive
}

// within polls until f is satisfied, and reports whether it ever was.
func within(d time.Duration, f func() bool) bool {
	for end := time.Now().Add(d); ; time.Sleep(5 * time.Millisecond) {
		if f() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// batchOf runs a prepared "probe batch".
func batchOf(t *testing.T, cmd *exec.Cmd, ops []string) []string {
	t.Helper()
	var words [][]string
	for _, op := range ops {
		words = append(words, strings.Fields(op))
	}
	in, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = bytes.NewReader(in)
	r := finish(t, cmd)
	var results []string
	if err := json.Unmarshal([]byte(r.ok(t)), &results); err != nil {
		t.Fatalf("%v in %q", err, r.out)
	}
	if len(results) != len(ops) {
		t.Fatalf("%d results for %d operations", len(results), len(ops))
	}
	return results
}

// lockForever makes the thread end together with the calling goroutine.
func lockForever() { runtime.LockOSThread() }
