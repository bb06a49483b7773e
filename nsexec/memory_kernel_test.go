package nsexec

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// eater is what the test binary does inside of a box: it takes memory in one way.
func eater(how string) {
	const size = 200 << 20
	die := func(err error) {
		fmt.Println(how, err)
		os.Exit(9)
	}
	call := func(nr uintptr, args ...uintptr) uintptr {
		args = append(args, 0, 0, 0, 0)
		r, _, errno := unix.Syscall6(nr, args[0], args[1], args[2], args[3], 0, 0)
		if errno != 0 {
			die(errno)
		}
		return r
	}
	touch := func(b []byte) {
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
	fill := func(fd int) {
		for range size >> 20 {
			if _, err := unix.Write(fd, make([]byte, 1<<20)); err != nil {
				die(err)
			}
		}
	}
	switch how {
	case "memfd":
		fd, err := unix.MemfdCreate("x", 0)
		if err != nil {
			die(err)
		}
		fill(fd)
	case "thread":
		// All but the thread that takes the memory has ended, the first one as well.
		go func() {
			b := make([]byte, size)
			for {
				touch(b)
				time.Sleep(10 * time.Millisecond)
			}
		}()
		runtime.LockOSThread() // the first thread, which runs main and init functions
		time.Sleep(50 * time.Millisecond)
		if unix.Gettid() == unix.Getpid() {
			_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // Raw, it would take a processor of Go with it
		}
		die(fmt.Errorf("not on the first thread"))
	case "file of a thread":
		// A thread with descriptors of its own has an unlinked file open. Go's poller is in
		// both tables: its runtime takes the number for the same file on every thread.
		if _, _, err := os.Pipe(); err != nil {
			die(err)
		}
		go func() {
			runtime.LockOSThread()
			if err := unix.Unshare(unix.CLONE_FILES); err != nil {
				die(err)
			}
			fd, err := unix.Open("/tmp", unix.O_TMPFILE|unix.O_RDWR, 0o600)
			if err != nil {
				die(err)
			}
			fill(fd)
			time.Sleep(time.Hour)
		}()
	case "shm": // taken, and not mapped any more
		for range size >> 23 {
			id := call(unix.SYS_SHMGET, 0, 8<<20, 0o1600)
			at := call(unix.SYS_SHMAT, id, 0, 0)
			touch(unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), 8<<20))
			call(unix.SYS_SHMDT, at)
		}
	case "sem":
		for range size / 64 / 30000 {
			call(unix.SYS_SEMGET, 0, 30000, 0o1600)
		}
	case "msg":
		const queue = 16384 // kernel.msgmnb
		type message struct {
			kind int64
			text [8000]byte
		}
		m := message{kind: 1}
		for range size / queue {
			id := call(unix.SYS_MSGGET, 0, 0o1600)
			for range queue / len(m.text) {
				call(unix.SYS_MSGSND, id, uintptr(unsafe.Pointer(&m)), uintptr(len(m.text)), 0o4000)
			}
		}
	case "vfork":
		// It has most of what is allowed, and starts programs all the time.
		// Mapped, because the race detector needs as much again for what Go allocates.
		b, err := unix.Mmap(-1, 0, 80<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			die(err)
		}
		touch(b)
		for begin := time.Now(); time.Since(begin) < 4*time.Second; {
			pid, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{})
			if err != nil {
				die(err)
			}
			var ws unix.WaitStatus
			if _, err := unix.Wait4(pid, &ws, 0, nil); err != nil {
				die(err)
			}
		}
		fmt.Println("fine", b[0])
		return
	}
	time.Sleep(time.Hour)
}

// eaterPlan is a box in which eater runs.
func eaterPlan(t *testing.T, how string) plan.Plan {
	t.Helper()
	p := testPlan(t, "eater", "eater", how)
	p.Command.Path = "/tmp/eater"
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpBind, Target: p.Command.Path, Source: self, Access: plan.AccessRead, Type: plan.TypeFile, MakeAs: plan.TypeFile})
	return p
}

// TestWatchedMemoryUnmapped: memory that no mapping of the first thread shows counts, too.
func TestWatchedMemoryUnmapped(t *testing.T) {
	for _, how := range []string{"memfd", "thread", "shm", "sem", "msg"} {
		t.Run(how, func(t *testing.T) {
			p := eaterPlan(t, how)
			p.Bounds.Memory = bound(120<<20, plan.ByWatch)
			out, _ := wantLimit(t, p, plan.BoundMemory)
			if out != "" {
				t.Errorf("%q", out)
			}
		})
	}
}

// TestWatchedScratchOfThreads: descriptors that one thread has for itself count.
func TestWatchedScratchOfThreads(t *testing.T) {
	p := eaterPlan(t, "file of a thread")
	p.Bounds.Scratch = bound(50<<20, plan.ByWatch)
	if out, _ := wantLimit(t, p, plan.BoundScratch); out != "" {
		t.Errorf("%q", out)
	}
}

// TestWatchedMemoryVfork: the memory of a program that starts others is its own once,
// also while a child of vfork(2) is on it.
func TestWatchedMemoryVfork(t *testing.T) {
	p := eaterPlan(t, "vfork")
	p.Bounds.Memory = bound(120<<20, plan.ByWatch)
	if out, res, err := measure(t, p); err != nil || !strings.HasPrefix(out, "fine") {
		t.Errorf("output %q, %+v, %v", out, res, err)
	}
}

// TestNotBorrowed: which processes count as being on the memory of their parent.
func TestNotBorrowed(t *testing.T) {
	const forked, now = 0x40, 10_000
	parent := process{pid: "7", parent: "1", address: 1, stack: 2, size: 3, start: 100}
	child := process{pid: "8", parent: "7", address: 1, stack: 2, size: 3, start: now - 10, flags: forked}
	with := func(change func(*process)) process { c := child; change(&c); return c }
	for _, tt := range []struct {
		name string
		all  []process
		want string
	}{
		{"vfork", []process{parent, child}, "7"},
		{"listed first", []process{child, parent}, "7"},
		{"old", []process{parent, with(func(p *process) { p.start = now - 200 })}, "7 8"},
		{"executed", []process{parent, with(func(p *process) { p.flags = 0 })}, "7 8"},
		{"grown", []process{parent, with(func(p *process) { p.size++ })}, "7 8"},
		{"of nobody here", []process{child}, "8"},
		{"two", []process{parent, child, with(func(p *process) { p.pid = "9" })}, "7 9"},
		{"a chain", []process{parent, child, with(func(p *process) { p.pid, p.parent = "9", "8" })}, "7 9"},
		{"a chain backwards", []process{with(func(p *process) { p.pid, p.parent = "9", "8" }), child, parent}, "8 7"},
	} {
		var got []string
		for _, p := range notBorrowed(tt.all, now) {
			got = append(got, p.pid)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
