package landlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

// need skips the test when the kernel lacks a feature, or fails it when
// WALL_TEST_REQUIRE lists the feature.
func need(t testing.TB, feature string) {
	t.Helper()
	have := true
	switch name, level, _ := strings.Cut(feature, ":"); name {
	case "landlock":
		abi, err := ABI()
		have = err == nil
		if level != "" {
			var want int
			fmt.Sscan(level, &want)
			have = abi >= want
		}
	case "root":
		have = os.Geteuid() == 0
	default:
		t.Fatalf("unknown feature %q", feature)
	}
	if have {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), feature) {
		t.Fatalf("%s is required by WALL_TEST_REQUIRE and missing", feature)
	}
	t.Skipf("needs %s", feature)
}

// A job is what the restricted subprocess does: enforce the ruleset on one
// thread (unless Off), say so, wait for a byte, try the Ops on that
// thread, and answer one errno name each.
type job struct {
	Landlock      plan.Landlock
	Stdio         []plan.Stdio
	ListAncestors bool
	Off           bool
	Ops           []op
}

type op struct {
	Do   string
	A, B string
	N    int
}

const jobEnv = "WALL_TEST_LANDLOCK_JOB"

func TestMain(m *testing.M) {
	if s := os.Getenv(jobEnv); s != "" {
		done := make(chan struct{})
		// Not on the leader of the thread group, as in pid 1 of a box.
		var start func()
		start = func() {
			runtime.LockOSThread()
			if unix.Gettid() == unix.Getpid() {
				go start()
				select {}
			}
			runJob(s)
			close(done)
			select {}
		}
		go start()
		<-done
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func runJob(s string) {
	out, in := os.NewFile(4, "results"), os.NewFile(3, "go")
	die := func(err error) {
		json.NewEncoder(out).Encode([]string{"error: " + err.Error()})
		os.Exit(1)
	}
	var j job
	if err := json.Unmarshal([]byte(s), &j); err != nil {
		die(err)
	}
	if !j.Off {
		r, err := Compile(j.Landlock, Options{Stdio: j.Stdio, ListAncestors: j.ListAncestors, ReadDir: ReadDir})
		if err != nil {
			die(err)
		}
		fd, err := r.Open()
		if err != nil {
			die(err)
		}
		if err := RestrictThread(fd); err == nil {
			die(errors.New("enforced without no_new_privs"))
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			die(err)
		}
		if err := RestrictThread(fd); err != nil {
			die(err)
		}
	}
	out.WriteString("\n")
	in.Read(make([]byte, 1))
	var results []string
	for _, o := range j.Ops {
		results = append(results, errnoName(o.try()))
	}
	json.NewEncoder(out).Encode(results)
}

func errnoName(err error) string {
	if err == nil {
		return "ok"
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

func (o op) try() error {
	open := func(path string, flags int) error {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	switch o.Do {
	case "read":
		return open(o.A, unix.O_RDONLY)
	case "list":
		return open(o.A, unix.O_RDONLY|unix.O_DIRECTORY)
	case "write":
		return open(o.A, unix.O_WRONLY)
	case "create":
		return open(o.A, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	case "truncate":
		return unix.Truncate(o.A, 1)
	case "rename":
		return unix.Rename(o.A, o.B)
	case "exchange":
		return unix.Renameat2(unix.AT_FDCWD, o.A, unix.AT_FDCWD, o.B, unix.RENAME_EXCHANGE)
	case "link":
		return unix.Link(o.A, o.B)
	case "symlink":
		return unix.Symlink(o.A, o.B)
	case "mkdir":
		return unix.Mkdir(o.A, 0o700)
	case "rmdir":
		return unix.Rmdir(o.A)
	case "unlink":
		return unix.Unlink(o.A)
	case "fifo":
		return unix.Mkfifo(o.A, 0o600)
	case "mknod": // the null device
		return unix.Mknod(o.A, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3)))
	case "socket": // bind a pathname socket
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Bind(fd, &unix.SockaddrUnix{Name: o.A})
	case "connect": // to a Unix socket
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrUnix{Name: o.A})
	case "tcp":
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrInet4{Port: o.N, Addr: [4]byte{127, 0, 0, 1}})
	case "tcp-bind":
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		return unix.Bind(fd, &unix.SockaddrInet4{Port: o.N, Addr: [4]byte{127, 0, 0, 1}})
	case "ioctl": // the number of a new pseudo-terminal
		fd, err := unix.Open(o.A, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		_, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	case "signal":
		return unix.Kill(o.N, 0)
	case "exec", "signal-parent":
		// A child of this thread inherits the domain.
		cmd := exec.Command(o.A)
		if o.Do == "signal-parent" {
			cmd = exec.Command("/bin/sh", "-c", fmt.Sprintf("kill -0 %d", os.Getpid()))
		}
		cmd.Env = []string{}
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdin
		cmd.Stderr = os.Stdin
		err := cmd.Run()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return fmt.Errorf("exit %d", exit.ExitCode())
		}
		return err
	}
	return fmt.Errorf("no operation %q", o.Do)
}

// A fixture is a directory of its own user's and a way to run jobs as that user.
type fixture struct {
	*testing.T
	dir string
	uid int
}

// asUsers runs f as the caller and, for root, also as an unprivileged user.
func asUsers(t *testing.T, f func(*fixture)) {
	uids := []int{os.Geteuid()}
	if uids[0] == 0 {
		uids = append(uids, 54321)
	}
	for _, uid := range uids {
		t.Run(fmt.Sprintf("uid=%d", uid), func(t *testing.T) {
			dir, err := os.MkdirTemp("/tmp", "wall-landlock-test-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			if dir, err = filepath.EvalSymlinks(dir); err != nil {
				t.Fatal(err)
			}
			x := &fixture{t, dir, uid}
			x.own(dir)
			f(x)
		})
	}
}

func (x *fixture) own(path string) {
	x.Helper()
	if err := os.Lchown(path, x.uid, x.uid); err != nil {
		x.Fatal(err)
	}
}

func (x *fixture) p(name string) string { return filepath.Join(x.dir, name) }

func (x *fixture) mkdir(names ...string) {
	x.Helper()
	for _, n := range names {
		if err := os.Mkdir(x.p(n), 0o755); err != nil {
			x.Fatal(err)
		}
		x.own(x.p(n))
	}
}

func (x *fixture) file(names ...string) {
	x.Helper()
	for _, n := range names {
		if err := os.WriteFile(x.p(n), []byte("content"), 0o644); err != nil {
			x.Fatal(err)
		}
		x.own(x.p(n))
	}
}

func (x *fixture) attr() *syscall.SysProcAttr {
	if x.uid == os.Geteuid() {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(x.uid), Gid: uint32(x.uid)}}
}

// run carries out a job; between is called when the restriction is in force.
// A nil stdin is /dev/null.
func (x *fixture) run(j job, stdin *os.File, between func()) []string {
	x.Helper()
	spec, err := json.Marshal(j)
	if err != nil {
		x.Fatal(err)
	}
	goR, goW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	defer outR.Close()
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Env = []string{jobEnv + "=" + string(spec)}
	cmd.ExtraFiles = []*os.File{goR, outW}
	if stdin != nil {
		cmd.Stdin = stdin
	}
	cmd.Dir = "/"
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = x.attr()
	if err := cmd.Start(); err != nil {
		x.Fatal(err)
	}
	goR.Close()
	outW.Close()
	dec := json.NewDecoder(outR)
	first := make([]byte, 1)
	if _, err := outR.Read(first); err != nil {
		x.Fatal(err)
	}
	if first[0] == '\n' {
		if between != nil {
			between()
		}
	} else {
		dec = json.NewDecoder(ioConcat(first, outR))
	}
	goW.Write([]byte{1})
	goW.Close()
	var results []string
	if err := dec.Decode(&results); err != nil {
		x.Fatal(err)
	}
	cmd.Wait()
	return results
}

func ioConcat(b []byte, f *os.File) *concat { return &concat{b, f} }

type concat struct {
	b []byte
	f *os.File
}

func (c *concat) Read(p []byte) (int, error) {
	if len(c.b) > 0 {
		n := copy(p, c.b)
		c.b = c.b[n:]
		return n, nil
	}
	return c.f.Read(p)
}

// expect runs the operations and compares; want alternates operation and result.
func (x *fixture) expect(j job, stdin *os.File, between func(), ops []op, want ...string) {
	x.Helper()
	j.Ops = ops
	got := x.run(j, stdin, between)
	if len(got) != len(ops) || len(want) != len(ops) {
		x.Fatalf("%d operations, %d expectations, results %q", len(ops), len(want), got)
	}
	for i, o := range ops {
		if got[i] != want[i] {
			x.Errorf("off=%v: %+v: %s, want %s", j.Off, o, got[i], want[i])
		}
	}
}

func kernelABI(t testing.TB) int {
	abi, err := ABI()
	if err != nil {
		t.Fatal(err)
	}
	return abi
}

func (x *fixture) rules(rules ...plan.PathRule) job {
	return job{Landlock: plan.Landlock{ABI: kernelABI(x), Rules: rules}}
}

func TestKernelWriteTree(t *testing.T) {
	need(t, "landlock")
	asUsers(t, func(x *fixture) {
		prepare := func() {
			x.mkdir("w", "w/a", "w/b", "w/a/old", "r", "n")
			x.file("w/a/1", "w/a/2", "w/a/3", "w/a/4", "w/b/x", "r/1", "n/1")
		}
		j := x.rules(
			plan.PathRule{Path: x.p("w"), Access: plan.AccessWrite},
			plan.PathRule{Path: x.p("r"), Access: plan.AccessRead},
		)
		ops := []op{
			{Do: "read", A: x.p("w/a/1")},
			{Do: "write", A: x.p("w/a/1")},
			{Do: "truncate", A: x.p("w/a/1")},
			{Do: "create", A: x.p("w/a/new")},
			{Do: "mkdir", A: x.p("w/a/newdir")},
			{Do: "symlink", A: "/", B: x.p("w/a/newlink")},
			{Do: "fifo", A: x.p("w/a/newfifo")},
			{Do: "socket", A: x.p("w/a/newsock")},
			{Do: "rename", A: x.p("w/a/2"), B: x.p("w/b/2")}, // EXDEV without REFER
			{Do: "link", A: x.p("w/a/3"), B: x.p("w/b/3")},
			{Do: "exchange", A: x.p("w/a/4"), B: x.p("w/b/x")},
			{Do: "rename", A: x.p("w/a/old"), B: x.p("w/b/old")},
			{Do: "unlink", A: x.p("w/a/3")},
			{Do: "rmdir", A: x.p("w/b/old")},
			{Do: "read", A: x.p("r/1")},
			{Do: "list", A: x.p("r")},
			{Do: "write", A: x.p("r/1")},
			{Do: "truncate", A: x.p("r/1")},
			{Do: "create", A: x.p("r/new")},
			{Do: "mkdir", A: x.p("r/newdir")},
			{Do: "link", A: x.p("r/1"), B: x.p("w/a/stolen")}, // a second name would be writable
			{Do: "rename", A: x.p("w/b/2"), B: x.p("r/2")},
			{Do: "read", A: x.p("n/1")},
			{Do: "list", A: x.p("n")},
			{Do: "list", A: x.p("")},
			{Do: "create", A: x.p("new")},
			{Do: "unlink", A: x.p("r/1")},
		}
		prepare()
		x.expect(j, nil, nil, ops,
			"ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok",
			"ok", "ok", "EACCES", "EACCES", "EACCES", "EACCES", "EXDEV", "EACCES",
			"EACCES", "EACCES", "EACCES", "EACCES", "EACCES")

		// The same without the wall: every refusal above was its doing.
		os.RemoveAll(x.p("w"))
		os.RemoveAll(x.p("r"))
		os.RemoveAll(x.p("n"))
		prepare()
		j.Off = true
		want := slices.Repeat([]string{"ok"}, len(ops))
		x.expect(j, nil, nil, ops, want...)
	})
}

func TestKernelDeviceNodesCannotBeMade(t *testing.T) {
	need(t, "landlock")
	need(t, "root")
	asUsers(t, func(x *fixture) {
		if x.uid != 0 {
			return // mknod fails anyway
		}
		j := x.rules(plan.PathRule{Path: x.dir, Access: plan.AccessWrite})
		x.expect(j, nil, nil, []op{{Do: "mknod", A: x.p("null")}}, "EACCES")
		j.Off = true
		x.expect(j, nil, nil, []op{{Do: "mknod", A: x.p("null")}}, "ok")
	})
}

// At every ABI the kernel knows the ruleset can be opened, and the row says
// from which on truncation and renaming behave.
func TestKernelEveryABI(t *testing.T) {
	need(t, "landlock")
	asUsers(t, func(x *fixture) {
		for abi := 1; abi <= min(kernelABI(x), NewestABI); abi++ {
			a, b := fmt.Sprintf("a%d", abi), fmt.Sprintf("b%d", abi)
			x.mkdir(a, b)
			x.file(a+"/1", b+"/ro")
			j := job{Landlock: plan.Landlock{
				ABI: abi, Network: abi >= abiNetTCP, Signals: abi >= abiScoped, Abstract: abi >= abiScoped,
				Rules: []plan.PathRule{
					{Path: x.p(a), Access: plan.AccessWrite},
					{Path: x.p(b), Access: plan.AccessRead},
					{Path: "/dev/null", Access: plan.AccessDevice},
				},
			}}
			truncate, rename := "ok", "ok"
			if abi >= 3 {
				truncate = "EACCES"
			}
			if abi < 2 {
				rename = "EXDEV"
			}
			x.mkdir(a+"/c", a+"/d")
			x.file(a + "/c/f")
			x.expect(j, nil, nil, []op{
				{Do: "create", A: x.p(a + "/new")},
				{Do: "write", A: x.p(b + "/ro")},
				{Do: "truncate", A: x.p(b + "/ro")},
				{Do: "rename", A: x.p(a + "/c/f"), B: x.p(a + "/d/f")},
				{Do: "write", A: "/dev/null"},
			}, "ok", "EACCES", truncate, rename, "ok")
		}
	})
}

func TestKernelHiddenPaths(t *testing.T) {
	need(t, "landlock")
	asUsers(t, func(x *fixture) {
		x.mkdir("home", "home/.ssh", "home/src", "home/.config", "home/.config/gh", "home/.config/git")
		x.file("home/.ssh/id", "home/src/main.go", "home/.config/gh/token", "home/.config/git/config", "home/.profile")
		if err := os.Symlink(x.p("home/.ssh/id"), x.p("home/src/link")); err != nil {
			t.Fatal(err)
		}
		j := x.rules(plan.PathRule{
			Path: x.p("home"), Access: plan.AccessRead,
			Except: []string{x.p("home/.aws"), x.p("home/.config/gh"), x.p("home/.ssh")},
		})
		ops := []op{
			{Do: "read", A: x.p("home/.profile")},
			{Do: "read", A: x.p("home/src/main.go")},
			{Do: "read", A: x.p("home/.config/git/config")},
			{Do: "read", A: x.p("home/.ssh/id")},
			{Do: "read", A: x.p("home/src/link")},
			{Do: "list", A: x.p("home/.ssh")},
			{Do: "read", A: x.p("home/.config/gh/token")},
			{Do: "list", A: x.p("home/.config/gh")},
			// All made after the start:
			{Do: "read", A: x.p("home/.aws/credentials")},
			{Do: "read", A: x.p("home/.ssh/later")},
			{Do: "read", A: x.p("home/.config/gh/later")},
			{Do: "read", A: x.p("home/.netrc")},
			{Do: "read", A: x.p("home/src/later")},
			// Ancestors:
			{Do: "list", A: x.p("home")},
			{Do: "list", A: x.p("home/.config")},
		}
		after := func() {
			x.mkdir("home/.aws")
			x.file("home/.aws/credentials", "home/.ssh/later", "home/.config/gh/later", "home/.netrc", "home/src/later")
		}
		const ok, no = "ok", "EACCES"
		x.expect(j, nil, after, ops, ok, ok, ok, no, no, no, no, no, no, no, no, no, ok, no, no)

		// With namespaces that cover what is hidden, names may be listed, no more.
		j.ListAncestors = true
		x.expect(j, nil, nil, ops, ok, ok, ok, no, no, ok, no, ok, no, no, no, ok, ok, ok, ok)

		j.Off = true
		x.expect(j, nil, nil, ops, slices.Repeat([]string{ok}, len(ops))...)
	})
}

func TestKernelDeviceIoctl(t *testing.T) {
	need(t, "landlock:5")
	asUsers(t, func(x *fixture) {
		// The node is granted both ways; only "device" includes ioctl.
		ptmx := "/dev/ptmx"
		if real, err := filepath.EvalSymlinks(ptmx); err == nil {
			ptmx = real
		}
		ops := []op{{Do: "ioctl", A: ptmx}}
		x.expect(x.rules(plan.PathRule{Path: ptmx, Access: plan.AccessDevice}), nil, nil, ops, "ok")
		x.expect(x.rules(plan.PathRule{Path: ptmx, Access: plan.AccessInOut}), nil, nil, ops, "EACCES")
		x.expect(x.rules(plan.PathRule{Path: ptmx, Access: plan.AccessWrite}), nil, nil, ops, "EACCES")
		x.expect(x.rules(), nil, nil, ops, "EACCES")
	})
}

func TestKernelAbstractSockets(t *testing.T) {
	need(t, "landlock:6")
	name := fmt.Sprintf("@wall-landlock-test-%d", os.Getpid())
	l, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	asUsers(t, func(x *fixture) {
		j := x.rules()
		ops := []op{{Do: "connect", A: name}}
		x.expect(j, nil, nil, ops, "ok")
		j.Landlock.Abstract = true
		x.expect(j, nil, nil, ops, "EPERM")
	})
}

func TestKernelSignals(t *testing.T) {
	need(t, "landlock:6")
	asUsers(t, func(x *fixture) {
		victim := exec.Command("/bin/sleep", "600")
		victim.SysProcAttr = x.attr()
		if err := victim.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			victim.Process.Kill()
			victim.Wait()
		}()
		j := x.rules(plan.PathRule{Path: "/", Access: plan.AccessRead})
		ops := []op{{Do: "signal", N: victim.Process.Pid}, {Do: "signal-parent"}}
		x.expect(j, nil, nil, ops, "ok", "ok")
		j.Landlock.Signals = true
		// The job's process plays pid 1: only one of its threads is in the
		// domain, so what that thread starts cannot signal the process.
		x.expect(j, nil, nil, ops, "EPERM", "exit 1")
	})
}

func TestKernelTCP(t *testing.T) {
	need(t, "landlock:4")
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port, free := l.Addr().(*net.TCPAddr).Port, 0
	for free == 0 {
		// Below net.ipv4.ip_local_port_range, so that no connection is given it meanwhile.
		if other, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			free = other.Addr().(*net.TCPAddr).Port
			other.Close()
		}
	}
	asUsers(t, func(x *fixture) {
		j := x.rules()
		ops := []op{{Do: "tcp", N: port}, {Do: "tcp-bind", N: free}}
		x.expect(j, nil, nil, ops, "ok", "ok")
		j.Landlock.Network = true
		x.expect(j, nil, nil, ops, "EACCES", "EACCES")
		j.Landlock.Ports = []plan.PortRule{{Op: plan.PortConnectTCP, Port: port}}
		x.expect(j, nil, nil, ops, "ok", "EACCES")
		j.Landlock.Ports = []plan.PortRule{{Op: plan.PortBindTCP, Port: free}}
		x.expect(j, nil, nil, ops, "EACCES", "ok")
	})
}

// A file on stdin can be opened again through /proc/self/fd as far as its
// descriptor goes and no further, though no rule names its tree.
func TestKernelStdio(t *testing.T) {
	need(t, "landlock:3")
	asUsers(t, func(x *fixture) {
		x.file("input", "sibling")
		proc := plan.PathRule{Path: "/proc", Access: plan.AccessInOut}
		ops := []op{
			{Do: "read", A: "/proc/self/fd/0"},
			{Do: "write", A: "/proc/self/fd/0"},
			{Do: "truncate", A: "/proc/self/fd/0"},
			{Do: "read", A: x.p("sibling")},
		}
		for _, tt := range []struct {
			flags int
			stdio plan.Stdio
			on    bool
			want  []string
		}{
			{os.O_RDONLY, plan.Stdio{Kind: plan.StdioFile, Read: true}, true, []string{"ok", "EACCES", "EACCES", "EACCES"}},
			{os.O_WRONLY, plan.Stdio{Kind: plan.StdioFile, Write: true}, true, []string{"EACCES", "ok", "ok", "EACCES"}},
			{os.O_RDWR, plan.Stdio{Kind: plan.StdioFile, Read: true, Write: true}, true, []string{"ok", "ok", "ok", "EACCES"}},
			{os.O_RDWR, plan.Stdio{Kind: plan.StdioFile, Read: true, Write: true}, false, []string{"EACCES", "EACCES", "EACCES", "EACCES"}},
		} {
			f, err := os.OpenFile(x.p("input"), tt.flags, 0)
			if err != nil {
				t.Fatal(err)
			}
			j := x.rules(proc)
			j.Landlock.Stdio = tt.on
			j.Stdio = []plan.Stdio{tt.stdio}
			x.expect(j, f, nil, ops, tt.want...)
			f.Close()
		}

		// Deleted, and without a place in any tree.
		f, err := os.OpenFile(x.p("input"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		os.Remove(x.p("input"))
		j := x.rules(proc)
		j.Landlock.Stdio = true
		j.Stdio = []plan.Stdio{{Kind: plan.StdioFile, Read: true}}
		x.expect(j, f, nil, ops[:2], "ok", "EACCES")
		mem, err := unix.MemfdCreate("wall", unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		m := os.NewFile(uintptr(mem), "memfd")
		defer m.Close()
		m.Chmod(0o666)
		x.expect(j, m, nil, ops[:1], "ok")

		// Not a file any more.
		r, w, _ := os.Pipe()
		defer r.Close()
		defer w.Close()
		if got := x.run(j, r, nil); len(got) != 1 || !strings.Contains(got[0], "standard stream 0 by Landlock: it is not a regular file any more") {
			t.Errorf("a pipe as a file: %q", got)
		}
	})
}

func TestKernelExecute(t *testing.T) {
	need(t, "landlock")
	asUsers(t, func(x *fixture) {
		x.mkdir("bin")
		data, err := os.ReadFile("/bin/true")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(x.p("bin/true"), data, 0o755); err != nil {
			t.Fatal(err)
		}
		libs := plan.PathRule{Path: "/usr", Access: plan.AccessRead}
		etc := plan.PathRule{Path: "/etc", Access: plan.AccessRead}
		ops := []op{{Do: "exec", A: x.p("bin/true")}}
		x.expect(x.rules(libs, etc, plan.PathRule{Path: x.p("bin"), Access: plan.AccessRead}), nil, nil, ops, "ok")
		x.expect(x.rules(libs, etc, plan.PathRule{Path: x.p("bin"), Access: plan.AccessInOut}), nil, nil, ops, "EACCES")
	})
}

func TestKernelFileRightsAreMasked(t *testing.T) {
	need(t, "landlock")
	asUsers(t, func(x *fixture) {
		x.file("f", "g")
		if err := unix.Mkfifo(x.p("fifo"), 0o666); err != nil {
			t.Fatal(err)
		}
		x.own(x.p("fifo"))
		j := x.rules(
			plan.PathRule{Path: x.p("f"), Access: plan.AccessWrite}, // EINVAL if not masked
			plan.PathRule{Path: x.p("fifo"), Access: plan.AccessWrite},
			plan.PathRule{Path: x.p("g"), Access: plan.AccessList}, // nothing is left of it
		)
		x.expect(j, nil, nil, []op{{Do: "write", A: x.p("f")}, {Do: "read", A: x.p("g")}, {Do: "unlink", A: x.p("f")}}, "ok", "EACCES", "EACCES")
	})
}

func openRules(t *testing.T, rules ...Rule) error {
	t.Helper()
	r := Ruleset{ABI: 1, HandledFS: fs1, Rules: rules}
	fd, err := r.Open()
	if err == nil {
		flags, ferr := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if ferr != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("the descriptor survives execve: %v", ferr)
		}
		unix.Close(fd)
	}
	return err
}

func TestKernelOpenErrors(t *testing.T) {
	need(t, "landlock")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(dir+"/file", nil, 0o600)
	os.Mkdir(dir+"/dir", 0o700)
	os.Symlink("dir", dir+"/link")
	os.Symlink("/proc/self", dir+"/magic")
	origin := plan.Origin{Text: "--ro x"}
	before := openFDs(t)
	for path, want := range map[string]error{
		dir + "/missing":       fs.ErrNotExist,
		dir + "/file/x":        unix.ENOTDIR,
		dir + "/link":          unix.ELOOP,
		dir + "/link/x":        unix.ELOOP,
		dir + "/magic/root":    unix.ELOOP,
		"/proc/self/root/proc": unix.ELOOP,
	} {
		rule := Rule{Path: path, Access: rightsRead & fs1, Origin: origin}
		err := openRules(t, rule)
		var pe *plan.Error
		if !errors.Is(err, want) || !errors.As(err, &pe) || pe.Origin != origin || pe.Hint == "" || !strings.Contains(pe.Op, path) {
			t.Errorf("%s: error %#v, want %v, located", path, err, want)
		}
		rule.Optional = true
		if err := openRules(t, rule); err != nil {
			t.Errorf("optional %s: %v", path, err)
		}
	}
	if err := openRules(t, Rule{Path: dir, Access: rightsRead & fs1}, Rule{Path: dir + "/file", Access: fs1}); err != nil {
		t.Errorf("valid rules: %v", err)
	}
	// A right that the ruleset does not handle is the kernel's EINVAL, not silence.
	if err := openRules(t, Rule{Path: dir, Access: fs2, Optional: true}); !errors.Is(err, unix.EINVAL) {
		t.Errorf("unhandled right: error %v", err)
	}
	if _, err := (Ruleset{}).Open(); err == nil {
		t.Error("an empty ruleset was opened")
	}
	if after := openFDs(t); after > before { // what an earlier test left may be closed meanwhile
		t.Errorf("%d descriptors open before, %d after", before, after)
	}
}

func openFDs(t *testing.T) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestKernelReadDir(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(dir+"/file\nname", nil, 0o600)
	os.Mkdir(dir+"/dir", 0o700)
	os.Symlink("dir", dir+"/link")
	unix.Mkfifo(dir+"/fifo", 0o600)
	got, err := ReadDir(dir)
	slices.SortFunc(got, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	want := []Entry{{"dir", plan.TypeDir}, {"fifo", plan.TypeFile}, {"file\nname", plan.TypeFile}, {"link", plan.TypeSymlink}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for path, want := range map[string]error{
		dir + "/missing": fs.ErrNotExist, dir + "/fifo": unix.ENOTDIR, dir + "/link": unix.ENOTDIR, dir + "/link/x": unix.ELOOP,
	} {
		if _, err := ReadDir(path); !errors.Is(err, want) && !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: error %v, want %v", path, err, want)
		}
	}
}

func TestInterpretABI(t *testing.T) {
	for _, tt := range []struct {
		version int
		err     error
		want    int
		text    string
	}{
		{7, nil, 7, ""},
		{99, nil, 99, ""},
		{-1, unix.ENOSYS, 0, "Landlock is not available: needs a kernel built with"},
		{-1, unix.EOPNOTSUPP, 0, "Landlock is not available: needs the kernel started with landlock in lsm="},
		{-1, unix.EPERM, 0, "landlock_create_ruleset: operation not permitted"},
		{0, nil, 0, "the kernel says ABI 0"},
	} {
		got, err := interpretABI(tt.version, tt.err)
		if got != tt.want || (err == nil) != (tt.text == "") || err != nil && !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%d, %v: %d, %v", tt.version, tt.err, got, err)
		}
		if unsupported := errors.Is(err, errors.ErrUnsupported); unsupported != (tt.err == unix.ENOSYS || tt.err == unix.EOPNOTSUPP) {
			t.Errorf("%v counts as unsupported: %v", tt.err, unsupported)
		}
	}
}

// BenchmarkOpen is the cost on the path of every run: some 300 rules.
func BenchmarkOpen(b *testing.B) {
	need(b, "landlock")
	dir, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	l := plan.Landlock{ABI: kernelABI(b), Rules: []plan.PathRule{{Path: dir, Access: plan.AccessRead, Except: []string{dir + "/0"}}}}
	for i := range 301 {
		os.Mkdir(fmt.Sprintf("%s/%d", dir, i), 0o700)
	}
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			if _, err := Compile(l, Options{ReadDir: ReadDir}); err != nil {
				b.Fatal(err)
			}
		}
	})
	r, err := Compile(l, Options{ReadDir: ReadDir})
	if err != nil || len(r.Rules) != 300 {
		b.Fatal(len(r.Rules), err)
	}
	b.Run("open", func(b *testing.B) {
		// Wall time says little on a machine that others use.
		before := cpuTime()
		defer func() { b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op") }()
		for b.Loop() {
			fd, err := r.Open()
			if err != nil {
				b.Fatal(err)
			}
			unix.Close(fd)
		}
	})
}

func cpuTime() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
