//go:build linux

package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
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
	"unsafe"

	"golang.org/x/sys/unix"
)

// The tests here install filters, for good, so each does it in a subprocess: the
// test binary again, with childEnv saying which filter to install and what to do
// under it. The first process installs and executes itself once more, as pid 1 of
// a box does with the command, so that every thread of what is tested is filtered.
const childEnv = "WALL_SECCOMP_TEST_CHILD"

// A child is the instruction to a subprocess.
type child struct {
	Filter string // name of a built-in filter, "" = none
	UID    int    // become this user first; 0 = stay
	Task   string // see tasks
	Argv   []string
}

func TestMain(m *testing.M) {
	text := os.Getenv(childEnv)
	if text == "" {
		os.Exit(m.Run())
	}
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fail(err)
	}
	if c.Filter != "" || c.UID != 0 {
		restrictAndExec(c)
	}
	task, ok := tasks[c.Task]
	if !ok {
		fail(fmt.Errorf("no task %q", c.Task))
	}
	if err := task(c); err != nil {
		fail(err)
	}
	os.Exit(0)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "child:", err)
	os.Exit(99)
}

// restrictAndExec drops root if asked to, installs the filter on this thread and
// executes this binary again from it.
func restrictAndExec(c child) {
	runtime.LockOSThread()
	if c.UID != 0 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(c.UID), syscall.Setuid(c.UID)); err != nil {
			fail(err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fail(err)
	}
	if c.Filter != "" {
		p, err := Builtin(c.Filter, runtime.GOARCH)
		if err != nil {
			fail(err)
		}
		if err := Install(p); err != nil {
			fail(err)
		}
		if m, err := Mode(); m != unix.SECCOMP_MODE_FILTER || err != nil {
			fail(fmt.Errorf("mode %d, %v", m, err))
		}
	}
	c.Filter, c.UID = "", 0
	b, _ := json.Marshal(c)
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, childEnv+"=") })
	argv, path := os.Args, "/proc/self/exe"
	if c.Task == "exec" {
		argv, path = c.Argv, c.Argv[0]
	} else {
		env = append(env, childEnv+"="+string(b))
	}
	fail(unix.Exec(path, argv, env))
}

// run starts c and returns what it printed and how it ended.
func run(t *testing.T, c child) (stdout, stderr string, err error) {
	t.Helper()
	b, _ := json.Marshal(c)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	cmd.WaitDelay = 5 * time.Second
	err = cmd.Run()
	return o.String(), e.String(), err
}

func mustRun(t *testing.T, c child) string {
	t.Helper()
	o, e, err := run(t, c)
	if err != nil {
		t.Fatalf("%+v: %v\n%s", c, err, e)
	}
	return o
}

// need skips the test when this machine lacks what word names, or fails it when
// WALL_TEST_REQUIRE lists the word.
func need(t *testing.T, word string) {
	t.Helper()
	var missing string
	switch word {
	case "seccomp":
		if ok, err := Probe(); !ok {
			missing = fmt.Sprintf("no seccomp filters: %v", err)
		}
	case "userns":
		if _, e, err := run(t, child{Task: "userns"}); err != nil {
			missing = "no user namespaces: " + e
		}
	case "python3":
		if out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output(); err != nil || len(out) == 0 {
			missing = fmt.Sprintf("no python3: %v", err)
		}
	case "tar":
		if _, err := exec.LookPath("tar"); err != nil {
			missing = err.Error()
		}
	case "ia32":
		// The machine runs int 0x80 when, without a filter, the program ends well.
		if runtime.GOARCH != "amd64" || exec.Command(int80Program(t)).Run() != nil {
			missing = "no 32-bit system calls"
		}
	case "root":
		if os.Geteuid() != 0 {
			missing = "not root"
		}
	default:
		t.Fatalf("need: unknown word %q", word)
	}
	if missing == "" {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), word) {
		t.Fatalf("%s is required: %s", word, missing)
	}
	t.Skip(missing)
}

// users are the users that the tests run as: this one, and nobody when this is root.
func users(t *testing.T) []int {
	t.Helper()
	if os.Geteuid() == 0 {
		return []int{0, 65534}
	}
	return []int{0}
}

var tasks = map[string]func(child) error{
	"calls":   printCalls,
	"threads": manyThreads,
	"listen":  listen,
	"userns":  makeUserNS,
	"x32":     func(child) error { return x32Call() },
	"traceme": traceOwnChild,
	"no-nnp":  installWithoutNNP,
	"modes":   otherThreads,
	"modeset": giveModes,
}

// An attempt is one real system call with harmless arguments.
type attempt struct {
	name string
	args [6]uintptr
	want [2]unix.Errno // under default, under strict; 0 success or any other errno than EPERM
	same bool          // the kernel may refuse alike without a filter: no control
}

// attempts pick arguments for which the kernel itself answers something else, so
// that the answer shows who gave it.
var attempts = []attempt{
	{"keyctl", [6]uintptr{9999}, both(unix.EPERM), false},
	{"add_key", [6]uintptr{}, both(unix.EPERM), false},
	{"request_key", [6]uintptr{}, both(unix.EPERM), false},
	{"io_uring_setup", [6]uintptr{}, both(unix.EPERM), true}, // sysctl io_uring_disabled
	{"io_uring_enter", [6]uintptr{bad}, both(unix.EPERM), false},
	{"io_uring_register", [6]uintptr{bad}, both(unix.EPERM), false},
	{"bpf", [6]uintptr{9999}, both(unix.EPERM), true}, // sysctl unprivileged_bpf_disabled
	{"userfaultfd", [6]uintptr{0x40000000}, both(unix.EPERM), true},
	{"perf_event_open", [6]uintptr{}, both(unix.EPERM), false},
	{"mount", [6]uintptr{}, both(unix.EPERM), false},
	{"umount2", [6]uintptr{}, both(unix.EPERM), true},
	{"pivot_root", [6]uintptr{}, both(unix.EPERM), true},
	{"open_tree", [6]uintptr{bad}, both(unix.EPERM), false},
	{"move_mount", [6]uintptr{bad}, both(unix.EPERM), true},
	{"mount_setattr", [6]uintptr{bad}, both(unix.EPERM), false},
	{"fsopen", [6]uintptr{}, both(unix.EPERM), true},
	{"setns", [6]uintptr{bad}, both(unix.EPERM), false},
	{"unshare", [6]uintptr{unix.CLONE_NEWUSER}, both(unix.EPERM), false}, // EINVAL otherwise: there are other threads
	{"unshare", [6]uintptr{unix.CLONE_NEWTIME | unix.CLONE_NEWUSER}, both(unix.EPERM), false},
	{"unshare", [6]uintptr{1 << 40}, both(unix.EPERM), false},
	{"unshare", [6]uintptr{0}, both(0), false},
	{"clone", [6]uintptr{unix.CLONE_NEWUSER | unix.CLONE_FS}, both(unix.EPERM), false},
	{"clone3", [6]uintptr{}, both(unix.ENOSYS), false},
	{"open_by_handle_at", [6]uintptr{bad}, both(unix.EPERM), true},
	{"kexec_load", [6]uintptr{}, both(unix.EPERM), true},
	{"finit_module", [6]uintptr{bad}, both(unix.EPERM), true},
	{"syslog", [6]uintptr{9999}, both(unix.EPERM), true},
	{"ioctl", [6]uintptr{bad, unix.TIOCSTI}, both(unix.EPERM), false},
	{"ioctl", [6]uintptr{bad, 1<<32 | unix.TIOCSTI}, both(unix.EPERM), false},
	{"ioctl", [6]uintptr{bad, 0x541c}, both(unix.EPERM), false},
	{"ioctl", [6]uintptr{bad, 0xabcd<<32 | 0x541c}, both(unix.EPERM), false},
	{"ioctl", [6]uintptr{bad, unix.TIOCGWINSZ}, both(unix.EBADF), false},
	{"socket", [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, both(unix.EAFNOSUPPORT), true},
	{"socket", [6]uintptr{unix.AF_PACKET, unix.SOCK_DGRAM}, both(unix.EAFNOSUPPORT), true},
	{"socket", [6]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}, both(unix.EAFNOSUPPORT), true},
	{"socket", [6]uintptr{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, both(unix.EPROTONOSUPPORT), true},
	{"socket", [6]uintptr{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, both(unix.EPERM), true},
	{"socket", [6]uintptr{unix.AF_INET, unix.SOCK_PACKET, 0x300}, both(unix.EPROTONOSUPPORT), true},
	{"socket", [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, both(unix.EPROTONOSUPPORT), true},
	{"socket", [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, both(0), false},
	{"socket", [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM}, both(0), false},
	{"socket", [6]uintptr{unix.AF_INET, unix.SOCK_DGRAM}, both(0), false},
	{"sendto", [6]uintptr{bad, 0, 0, unix.MSG_FASTOPEN}, both(unix.EOPNOTSUPP), false},
	{"sendto", [6]uintptr{bad}, both(unix.EBADF), false},
	{"personality", [6]uintptr{0xffffffff}, both(0), false},
	{"personality", [6]uintptr{0x0400000}, both(unix.EPERM), false},
	{"personality", [6]uintptr{0x0040000}, [2]unix.Errno{0, unix.EPERM}, false},
	{"process_vm_readv", [6]uintptr{0, 0, 0, 0, 0, 1}, [2]unix.Errno{unix.EINVAL, unix.EPERM}, false},
	{"pidfd_getfd", [6]uintptr{bad}, [2]unix.Errno{unix.EBADF, unix.EPERM}, false},
	{"io_setup", [6]uintptr{}, [2]unix.Errno{unix.EFAULT, unix.EPERM}, false},
	{"landlock_create_ruleset", [6]uintptr{0, 0, 9999}, [2]unix.Errno{unix.EINVAL, unix.EINVAL}, false},
	{"close_range", [6]uintptr{5, 4}, both(unix.EINVAL), false},
	{"openat2", [6]uintptr{bad}, both(unix.ENOSYS), false},
	{"shmget", [6]uintptr{0, 0, 0}, both(unix.EINVAL), false},
	{"memfd_create", [6]uintptr{0, 0x40000000}, both(unix.EINVAL), false},
}

// bad is a descriptor that is not open, in the form of an int in a register.
const bad = 0xffffffff

func both(e unix.Errno) [2]unix.Errno { return [2]unix.Errno{e, e} }

// printCalls makes all attempts and prints their error numbers, one a line.
// Each runs on a thread of its own that ends with it.
func printCalls(child) error {
	for _, a := range attempts {
		nr, ok, _ := number(a.name, runtime.GOARCH)
		if !ok {
			return fmt.Errorf("no call %s here", a.name)
		}
		done := make(chan unix.Errno)
		go func() {
			runtime.LockOSThread()
			_, _, e := unix.RawSyscall6(uintptr(nr), a.args[0], a.args[1], a.args[2], a.args[3], a.args[4], a.args[5])
			done <- e
		}()
		fmt.Println(int(<-done))
	}
	return nil
}

// parseCalls reads what printCalls printed.
func parseCalls(t *testing.T, out string) []unix.Errno {
	t.Helper()
	lines := strings.Fields(out)
	if len(lines) != len(attempts) {
		t.Fatalf("%d results for %d attempts: %s", len(lines), len(attempts), out)
	}
	var es []unix.Errno
	for _, l := range lines {
		var n int
		if _, err := fmt.Sscan(l, &n); err != nil {
			t.Fatal(err)
		}
		es = append(es, unix.Errno(n))
	}
	return es
}

func TestKernelCalls(t *testing.T) {
	need(t, "seccomp")
	for _, uid := range users(t) {
		free := parseCalls(t, mustRun(t, child{UID: uid, Task: "calls"}))
		for i, filter := range []string{"default", "strict"} {
			got := parseCalls(t, mustRun(t, child{Filter: filter, UID: uid, Task: "calls"}))
			for j, a := range attempts {
				if got[j] != a.want[i] {
					t.Errorf("uid %d, %s: %s %#x gives %v (%d), want %v", uid, filter, a.name, a.args, got[j], got[j], a.want[i])
				}
				// Without the filter it is another answer, so the filter gave it.
				refusal := a.want[i] == unix.EPERM || a.want[i] == unix.ENOSYS || a.want[i] == unix.EOPNOTSUPP
				if refusal && !a.same && free[j] == a.want[i] {
					t.Errorf("uid %d: %s %#x gives %v without any filter: the attempt shows nothing", uid, a.name, a.args, free[j])
				}
			}
		}
	}
}

// manyThreads starts real threads that all make calls, and children.
func manyThreads(child) error {
	var wg sync.WaitGroup
	tids := make(chan int, 32)
	var gate sync.WaitGroup
	gate.Add(16)
	for range 16 {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			gate.Done()
			gate.Wait()
			if m, err := Mode(); m != 2 || err != nil {
				return
			}
			tids <- unix.Gettid()
		})
	}
	wg.Wait()
	close(tids)
	seen := make(map[int]bool)
	for tid := range tids {
		seen[tid] = true
	}
	if len(seen) != 16 {
		return fmt.Errorf("%d filtered threads, want 16", len(seen))
	}
	out, err := exec.Command("/bin/sh", "-c", "(echo a & echo b) | cat | wc -l; wait").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "2" {
		return fmt.Errorf("sh: %v: %s", err, out)
	}
	return nil
}

func TestKernelThreads(t *testing.T) {
	need(t, "seccomp")
	for _, uid := range users(t) {
		for _, b := range builtins {
			mustRun(t, child{Filter: b.name, UID: uid, Task: "threads"})
		}
	}
}

// TestKernelPython runs C library threads (clone3 falls back to clone),
// processes, name look-ups and System V and POSIX shared memory.
func TestKernelPython(t *testing.T) {
	need(t, "seccomp")
	need(t, "python3")
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	const script = `
import threading, socket, subprocess, multiprocessing, concurrent.futures, mmap, os
n = []
ts = [threading.Thread(target=lambda: n.append(threading.get_native_id())) for _ in range(8)]
[x.start() for x in ts]; [x.join() for x in ts]
assert len(n) == 8
assert socket.getaddrinfo("localhost", 80)
a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
assert subprocess.run(["/bin/sh", "-c", "exit 3"]).returncode == 3
with concurrent.futures.ThreadPoolExecutor(4) as e:
    assert sum(e.map(abs, range(-5, 0))) == 15
if __name__ == "__main__":
    c = multiprocessing.get_context("fork")
    q = c.SimpleQueue()
    p = c.Process(target=lambda: q.put(os.getpid())); p.start(); assert q.get() == p.pid; p.join()
    m = mmap.mmap(-1, 4096); m[0] = 1
print("ok")
`
	for _, filter := range []string{"default", "strict"} {
		got := mustRun(t, child{Filter: filter, Task: "exec", Argv: []string{strings.TrimSpace(string(out)), "-c", script}})
		if got != "ok\n" {
			t.Errorf("%s: %q", filter, got)
		}
	}
}

// listen serves and dials TCP as Go programs do. Go asks for MPTCP when listening,
// and must fall back.
func listen(child) error {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			if strings.HasPrefix(addr, "[") && errors.Is(err, unix.EADDRNOTAVAIL) {
				continue // no IPv6 here
			}
			return err
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				c.Write([]byte("hello"))
				c.Close()
			}
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		if multi, err := c.(*net.TCPConn).MultipathTCP(); multi || err != nil {
			return fmt.Errorf("multipath %t, %v", multi, err)
		}
		raw, err := l.(*net.TCPListener).SyscallConn()
		if err != nil {
			return err
		}
		proto := 0
		raw.Control(func(fd uintptr) { proto, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL) })
		if proto != unix.IPPROTO_TCP {
			return fmt.Errorf("the listener has protocol %d, %v", proto, err)
		}
		var b [8]byte
		if n, _ := c.Read(b[:]); string(b[:n]) != "hello" {
			return fmt.Errorf("read %q", b[:n])
		}
		c.Close()
	}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return u.Close()
}

func TestKernelGoListen(t *testing.T) {
	need(t, "seccomp")
	for _, filter := range []string{"default", "strict"} {
		mustRun(t, child{Filter: filter, Task: "listen"})
	}
}

// makeUserNS starts a program in a new user and mount namespace.
func makeUserNS(child) error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
	}
	return cmd.Run()
}

func TestKernelNestedNamespaces(t *testing.T) {
	need(t, "seccomp")
	need(t, "userns")
	for _, b := range builtins {
		_, stderr, err := run(t, child{Filter: b.name, Task: "userns"})
		if nested := b.files[0] == "nested"; nested != (err == nil) {
			t.Errorf("%s: new user namespace: %v %s", b.name, err, stderr)
		} else if !nested && !strings.Contains(stderr, "operation not permitted") {
			t.Errorf("%s: refused with %s", b.name, stderr)
		}
	}
}

// traceOwnChild does what a debugger does first.
func traceOwnChild(child) error {
	runtime.LockOSThread()
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	var ws unix.WaitStatus
	if _, err := unix.Wait4(cmd.Process.Pid, &ws, 0, nil); err != nil || !ws.Stopped() {
		return fmt.Errorf("not stopped: %v %#x", err, ws)
	}
	if err := unix.PtraceDetach(cmd.Process.Pid); err != nil {
		return err
	}
	if _, err := unix.Wait4(cmd.Process.Pid, &ws, 0, nil); err != nil || ws.ExitStatus() != 0 {
		return fmt.Errorf("did not end well: %v %#x", err, ws)
	}
	return nil
}

func TestKernelPtrace(t *testing.T) {
	need(t, "seccomp")
	mustRun(t, child{Filter: "default", Task: "traceme"})
	if _, stderr, err := run(t, child{Filter: "strict", Task: "traceme"}); err == nil || !strings.Contains(stderr, "operation not permitted") {
		t.Errorf("strict: %v %s", err, stderr)
	}
}

// wantKilled checks that a process died of SIGSYS.
func wantKilled(t *testing.T, err error) {
	t.Helper()
	var ee *exec.ExitError
	if !errors.As(err, &ee) {
		t.Fatalf("ended with %v, want SIGSYS", err)
	}
	if ws := ee.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != syscall.SIGSYS {
		t.Errorf("ended with %v, want SIGSYS", err)
	}
}

// x32Call makes getpid through the x32 table.
func x32Call() error {
	unix.RawSyscall(x32Bit|39, 0, 0, 0)
	return nil
}

func TestKernelX32Kills(t *testing.T) {
	need(t, "seccomp")
	if runtime.GOARCH != "amd64" {
		t.Skip("x32 is a table of amd64")
	}
	mustRun(t, child{Task: "x32"}) // without a filter the process lives
	for _, b := range builtins {
		_, _, err := run(t, child{Filter: b.name, Task: "x32"})
		wantKilled(t, err)
	}
}

// int80Program writes a minimal 64-bit program that makes the 32-bit getpid by
// int 0x80 and then ends with status 0, or 1 when the answer was an error.
func int80Program(t *testing.T) string {
	t.Helper()
	code := []byte{
		0xb8, 20, 0, 0, 0, // mov eax, 20 (getpid of i386)
		0xcd, 0x80, //        int 0x80
		0x31, 0xff, //        xor edi, edi
		0x85, 0xc0, //        test eax, eax
		0x79, 0x02, //        jns +2
		0xff, 0xc7, //        inc edi
		0xb8, 60, 0, 0, 0, // mov eax, 60 (exit of x86_64)
		0x0f, 0x05, //        syscall
	}
	const base, head = 0x400000, 64 + 56
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01")
	b.Write(make([]byte, 9))
	put := func(size int, v uint64) {
		for i := range size {
			b.WriteByte(byte(v >> (8 * i)))
		}
	}
	put(2, 2)         // ET_EXEC
	put(2, 62)        // EM_X86_64
	put(4, 1)         // version
	put(8, base+head) // entry
	put(8, 64)        // program headers
	put(8, 0)         // section headers
	put(4, 0)         // flags
	put(2, 64)        // header size
	put(2, 56)        // program header size
	put(2, 1)         // program headers
	put(2, 64)
	put(2, 0)
	put(2, 0)
	put(4, 1) // PT_LOAD
	put(4, 5) // read, execute
	put(8, 0) // offset
	put(8, base)
	put(8, base)
	put(8, uint64(head+len(code)))
	put(8, uint64(head+len(code)))
	put(8, 0x1000)
	b.Write(code)
	path := filepath.Join(t.TempDir(), "int80")
	if err := os.WriteFile(path, b.Bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKernelInt80Kills(t *testing.T) {
	need(t, "seccomp")
	need(t, "ia32")
	program := int80Program(t)
	for _, b := range builtins {
		_, _, err := run(t, child{Filter: b.name, Task: "exec", Argv: []string{program}})
		wantKilled(t, err)
	}
}

// installWithoutNNP must fail, for root too, and leave the thread without a filter.
func installWithoutNNP(child) error {
	runtime.LockOSThread()
	p, err := Builtin("default", runtime.GOARCH)
	if err != nil {
		return err
	}
	err = Install(p)
	if !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "no_new_privs") {
		return fmt.Errorf("install without no_new_privs: %v", err)
	}
	if m, err := Mode(); m != unix.SECCOMP_MODE_DISABLED || err != nil {
		return fmt.Errorf("mode %d, %v", m, err)
	}
	if err := Install(Program{{Code: opLoad}}); err == nil {
		return errors.New("an invalid program was installed")
	}
	return nil
}

func TestKernelInstallNeedsNoNewPrivs(t *testing.T) {
	need(t, "seccomp")
	for _, uid := range users(t) {
		// UID would set no_new_privs on the way; run as this user only.
		if uid == 0 {
			mustRun(t, child{Task: "no-nnp"})
		}
	}
}

// otherThreads installs on one thread and looks at another.
func otherThreads(child) error {
	errs := make(chan error)
	ready, done := make(chan bool), make(chan bool)
	go func() { // the other thread, older than the filter
		runtime.LockOSThread()
		ready <- true
		<-done
		m, err := Mode()
		if m != unix.SECCOMP_MODE_DISABLED || err != nil {
			err = fmt.Errorf("other thread: mode %d, %v", m, err)
		}
		errs <- err
	}()
	<-ready
	go func() {
		runtime.LockOSThread()
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			var p Program
			if p, err = Builtin("strict", runtime.GOARCH); err == nil {
				err = Install(p)
			}
		}
		if m, merr := Mode(); err == nil && (m != unix.SECCOMP_MODE_FILTER || merr != nil) {
			err = fmt.Errorf("this thread: mode %d, %v", m, merr)
		}
		errs <- err
	}()
	err := <-errs
	done <- true
	return errors.Join(err, <-errs)
}

func TestKernelOneThreadOnly(t *testing.T) {
	need(t, "seccomp")
	mustRun(t, child{Task: "modes"})
}

func TestKernelProbe(t *testing.T) {
	need(t, "seccomp")
	if m, err := Mode(); m != unix.SECCOMP_MODE_DISABLED || err != nil {
		t.Skipf("already filtered: mode %d, %v", m, err)
	}
	ok, err := Probe()
	if !ok || err != nil {
		t.Errorf("Probe says %t, %v after filters were installed", ok, err)
	}
	if m, _ := Mode(); m != unix.SECCOMP_MODE_DISABLED {
		t.Errorf("Probe changed the mode to %d", m)
	}
}

// TestKernelTakesEveryProgram: the kernel's own check accepts the programs of both
// machines (it does not look at what the numbers mean).
func TestKernelTakesEveryProgram(t *testing.T) {
	need(t, "seccomp")
	for _, b := range builtins {
		for _, goarch := range arches {
			p := mustBuiltin(t, b.name, goarch)
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			// A socket filter goes through the same bpf_check_classic.
			prog := unix.SockFprog{Len: uint16(len(p)), Filter: (*unix.SockFilter)(unsafe.Pointer(&p[0]))}
			if err := unix.SetsockoptSockFprog(fds[0], unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &prog); err != nil {
				t.Errorf("%s %s: %v", b.name, goarch, err)
			}
			unix.Close(fds[0])
			unix.Close(fds[1])
		}
	}
}

func BenchmarkInstall(b *testing.B) {
	for _, bi := range builtins[:2] {
		p := mustBuiltin(b, bi.name, runtime.GOARCH)
		b.Run(bi.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				done := make(chan error)
				go func() { // on a thread that ends with the filter on it
					runtime.LockOSThread()
					err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
					if err == nil {
						start := time.Now()
						err = Install(p)
						took = append(took, time.Since(start))
					}
					done <- err
				}()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[0].Nanoseconds())/1e3, "µs-least")
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "µs-median")
			b.ReportMetric(float64(len(p)), "instructions")
		})
	}
}

// BenchmarkCall measures what the filter adds to one call: getppid is allowed
// whatever its arguments, so the kernel skips the filter; ioctl is looked at.
func BenchmarkCall(b *testing.B) {
	for _, filter := range []string{"", "default"} {
		for _, name := range []string{"getppid", "ioctl", "socket"} {
			b.Run(name+"/"+filter, func(b *testing.B) {
				done := make(chan error)
				nr, _, _ := number(name, runtime.GOARCH)
				go func() {
					runtime.LockOSThread()
					var err error
					if filter != "" {
						err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
						if err == nil {
							err = Install(mustBuiltin(b, filter, runtime.GOARCH))
						}
					}
					for b.Loop() {
						unix.RawSyscall(uintptr(nr), bad, unix.TIOCGWINSZ, 0)
					}
					done <- err
				}()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
