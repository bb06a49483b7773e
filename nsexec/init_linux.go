package nsexec

import (
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/landlock"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/seccomp"
)

// initName is argv[0] of stage 2.
const initName = "wall-init"

// Main must be the first statement of main in a program that uses this
// package. In stage 2 it builds the box and never returns; likewise in the process that
// restores the caller's terminal. Otherwise it makes
// the process ignore the signals that its caller had it ignore (a build without cgo: SIGHUP
// and SIGINT only), so that commands inherit them, and returns.
func Main() {
	if len(os.Args) == 1 && os.Args[0] == guardianName {
		guardianMain()
	}
	inheritIgnored()
	if len(os.Args) == 0 || os.Args[0] != initName {
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "probe" {
		probeMain(os.Args[2])
	}
	s := &stage2{base: firstFD, allowed: make(chan struct{})}
	if len(os.Args) == 2 {
		if n, err := strconv.Atoi(os.Args[1]); err == nil && n >= firstFD {
			s.base = n
		}
	}
	s.run()
}

// firstFD is the first descriptor behind the standard streams. Stage 2 has its
// three pipes at base, base+1 and base+2, where base is firstFD unless the plan
// keeps descriptors; then it is argv[1]. With a private terminal a socket to hand it over
// comes next, then, if stage 1 serves a network, a socket to hand its sockets over. Behind that it holds the scratch directory, whose lock says that the box lives,
// and the directory of kept caches, if there is one, which is locked likewise.
const firstFD = 3

// testOnlyStepHook makes a step fail; only the tests of this package set it.
var testOnlyStepHook func(step string, p *plan.Plan) error

// stage2 is pid 1 of the box.
type stage2 struct {
	base     int
	p        plan.Plan
	launcher []uint64 // inode numbers of the launcher's namespaces

	ruleset int             // Landlock ruleset, -1 for none
	filter  seccomp.Program // nil for none
	mounts  *mountWatch
	lowers  []lowerLayer  // until the self-test
	command atomic.Int64  // pid of the command once it runs
	forker  int           // thread that forks the command
	allowed chan struct{} // closed when the command may be executed
	losing  atomic.Bool   // mounts are gone and the box is being ended

	tty   int  // the private terminal, -1 for none
	front bool // the command starts in its foreground

	job     sync.Mutex
	stopped bool // the command has stopped, stage 1 knows, and it has not been continued
	orders  byte // to go on so far, in the arithmetic of a byte
}

func (s *stage2) orderFD() int   { return s.base }
func (s *stage2) statusFD() int  { return s.base + 1 }
func (s *stage2) controlFD() int { return s.base + 2 }
func (s *stage2) ttyFD() int     { return s.base + 3 } // only with a private terminal

// netFD is there only with a network that stage 1 serves.
func (s *stage2) netFD() int {
	if s.p.TTY == plan.TTYPrivate {
		return s.base + 4
	}
	return s.base + 3
}

// scratchFD is there only with a scratch directory.
func (s *stage2) scratchFD() int {
	if hasNetwork(&s.p) {
		return s.netFD() + 1
	}
	return s.netFD()
}

// run is the checklist of stage 2. It never returns.
func (s *stage2) run() {
	// The main goroutine stays on its thread, so that the thread that is
	// restricted and forks the command is another one.
	runtime.LockOSThread()

	// First of all: nothing may look into this process, neither through
	// ptrace(2) nor /proc/1/{mem,environ,exe,fd} nor pidfd_getfd(2). execve
	// gives the command its own dumpable attribute again.
	if err := prctl(unix.PR_SET_DUMPABLE, 0, 0); err != nil {
		s.fail("dumpable", err)
	}
	// Executed through a link, the process would be called "exe" in ps(1).
	if err := prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(initName+"\x00"))), 0); err != nil {
		s.fail("name", err)
	}
	// Inherited descriptors are not close-on-exec. Marked, not closed: some
	// belong to the Go runtime.
	if err := unix.CloseRange(firstFD, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		s.fail("descriptors", &plan.Error{Op: "cannot close inherited descriptors", Err: os.NewSyscallError("close_range", err), Hint: "wall needs Linux 5.11 or newer"})
	}
	// The life-line: when the launcher dies, at any moment from here on, the
	// read ends and so does the box.
	go s.control()

	s.step("order", s.readOrder)
	// Needs CAP_SYS_ADMIN over the mount namespace.
	s.step("mounts", func() (err error) { s.lowers, err = buildRoot(&s.p, s.scratchFD()); return err })
	// Needs CAP_NET_ADMIN over the network namespace.
	s.step("loopback", s.loopback)
	// Likewise. After the interface is up, which routes and addresses need.
	s.step("network", s.network)
	s.step("limits", s.limits)
	// After the mounts, so that it lies in the new tree.
	s.step("directory", func() error { return enterDir(&s.p) })
	// Opens the paths of the rules in the new tree; applied below.
	// In the new tree, and before the descriptors that the command is to have are
	// decided.
	s.step("terminal", s.terminal)
	s.step("ruleset", s.openRuleset)
	s.step("filter", s.loadFilter)
	// Before the command exists, so that no change goes unseen.
	s.step("watch", func() (err error) { s.mounts, err = openMountWatch(&s.p); return err })
	s.step("memory", func() error { return openIPC(&s.p) })
	// Late, so that stage 1 makes ready meanwhile.
	s.step("served", s.served)

	pid := make(chan int, 1)
	go s.launch(pid)
	s.reap(<-pid)
}

// launch restricts its own thread and forks the command from it. What is set
// here is inherited by the command; pid 1's other threads, the leader among
// them, stay outside the Landlock domain, because the domain's signal scope
// then keeps the box from signalling pid 1. They have no capability either.
func (s *stage2) launch(pid chan<- int) {
	runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
	if unix.Gettid() == unix.Getpid() {
		go s.launch(pid)
		select {} // keep the leader busy, so that the other goroutine gets another thread
	}
	s.forker = unix.Gettid()
	// The last privileged act. After the mounts and the loopback interface.
	s.step("privileges", dropPrivileges)
	// After the mounts, because Landlock forbids changing them.
	s.step("landlock", s.applyLandlock)
	// After everything that may take another thread.
	s.step("processes", s.awaitLimit)
	// Last, so that the filter need not allow any of the above.
	s.step("seccomp", s.applyFilter)
	s.step("self-test", func() error {
		err := selfTest(&s.p, s.launcher, s.lowers)
		for _, l := range s.lowers {
			unix.Close(l.fd)
		}
		return err
	})
	s.step("signals", ignoreSignals)
	s.step("execve", func() error {
		n, err := s.execute()
		if err == nil {
			pid <- n
		}
		return err
	})
}

// step runs one step; a failure is reported to stage 1 and ends the box.
func (s *stage2) step(name string, f func() error) {
	if testOnlyStepHook != nil {
		if err := testOnlyStepHook(name, &s.p); err != nil {
			s.fail(name, err)
		}
	}
	if err := f(); err != nil {
		s.fail(name, err)
	}
}

func (s *stage2) fail(step string, err error) {
	// When even this fails, stage 1 sees the end of the pipe, which it
	// reports as a box that was killed before the command ran.
	_ = writeAll(s.statusFD(), newFailure(step, err).message())
	leave(plan.ExitFailed)
}

func (s *stage2) readOrder() error {
	b, err := readAll(s.orderFD(), plan.MaxWire+1024)
	if err != nil {
		return err
	}
	unix.Close(s.orderFD())
	if s.launcher, s.p, err = decodeOrder(b); err != nil {
		return err
	}
	if err := s.p.Validate(); err != nil {
		return &plan.Error{Op: "wall bug: the plan is not valid", Err: err, Hint: "please report this"}
	}
	return refuseUnfilled(s.p) // stage 1 did, and the command must not start without them
}

func (s *stage2) loopback() error {
	for _, sp := range s.p.Spaces {
		if sp.Kind == plan.SpaceNet {
			if err := loopbackUp(); err != nil {
				return &plan.Error{Op: "cannot bring up the loopback interface", Origin: sp.Origin, Err: err, Hint: hintPrivileged(err)}
			}
		}
	}
	return nil
}

var limitResource = map[plan.LimitName]int{
	plan.LimitCore:   unix.RLIMIT_CORE,
	plan.LimitNoFile: unix.RLIMIT_NOFILE,
	plan.LimitFSize:  unix.RLIMIT_FSIZE,
	plan.LimitNProc:  unix.RLIMIT_NPROC,
}

func (s *stage2) limits() error {
	if s.p.Bounds.Processes.Value > 0 {
		spareThreads()
	}
	for _, l := range s.p.Limits {
		var old syscall.Rlimit
		resource := limitResource[l.Name]
		if err := syscall.Getrlimit(resource, &old); err != nil {
			return &plan.Error{Op: "cannot read limit " + string(l.Name), Origin: l.Origin, Err: err}
		}
		// Only lowered: raising a hard limit needs a capability over the host.
		v := min(l.Value, old.Max)
		// syscall.Setrlimit and not x/sys/unix: it keeps os/exec from
		// restoring the number of open files that the Go runtime found.
		if err := syscall.Setrlimit(resource, &syscall.Rlimit{Cur: v, Max: v}); err != nil {
			return &plan.Error{Op: "cannot set limit " + string(l.Name), Origin: l.Origin, Err: err}
		}
	}
	return nil
}

// awaitLimit waits until stage 1 has counted the threads of this process and set the
// limit of processes.
func (s *stage2) awaitLimit() error {
	if b := s.p.Bounds.Processes; b.By != plan.ByCgroup && b.By != plan.ByRlimit {
		return nil
	}
	if err := writeAll(s.statusFD(), message(msgReady, nil)); err != nil {
		return err
	}
	<-s.allowed
	return nil
}

// awaitForker waits until the thread that has forked the command is gone, and so its
// place among the processes.
func (s *stage2) awaitForker() {
	for unix.Tgkill(unix.Getpid(), s.forker, 0) != unix.ESRCH {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: 20_000}, nil)
	}
}

// spareThreads makes threads for the Go runtime ahead: when the command has used up the
// number of processes, pid 1 gets none, and the runtime ends a program that
// cannot have a thread. It keeps those that are idle.
func spareThreads() {
	runtime.GOMAXPROCS(2) // the number is not to grow with the processors
	const spare = 6
	var ready, done sync.WaitGroup
	release := make(chan struct{})
	ready.Add(spare)
	for range spare {
		done.Go(func() {
			runtime.LockOSThread() // each on a thread of its own
			ready.Done()
			<-release
			runtime.UnlockOSThread()
		})
	}
	ready.Wait()
	close(release)
	done.Wait()
}

func (s *stage2) openRuleset() error {
	s.ruleset = -1
	if s.p.Landlock.ABI == 0 {
		return nil
	}
	rs, err := landlock.Compile(s.p.Landlock, landlock.Options{Stdio: s.p.Stdio, ReadDir: landlock.ReadDir, ListAncestors: true})
	if err != nil {
		return err
	}
	s.ruleset, err = rs.Open()
	return err
}

func (s *stage2) loadFilter() (err error) {
	switch {
	case len(s.p.Seccomp.Program) > 0:
		s.filter, err = seccomp.FromBytes(s.p.Seccomp.Program)
	case s.p.Seccomp.Profile != "":
		s.filter, err = seccomp.Builtin(s.p.Seccomp.Profile, runtime.GOARCH)
	}
	if err != nil {
		return &plan.Error{Op: "cannot load the system call filter " + s.p.Seccomp.Profile, Origin: s.p.Seccomp.Origin, Err: err}
	}
	return nil
}

// ignoreSignals keeps signals sent from inside from ending pid 1: the Go
// runtime installs handlers that would, which lifts the kernel's protection of
// pid 1 (kill(2), NOTES; pid_namespaces(7)). Where Landlock scopes signals they
// cannot be sent in the first place.
//
// It comes before the command exists, and the command does not inherit it: the
// runtime's fork resets every signal that it believes to handle to the default.
// What has no handler is left as it is, because the kernel protects pid 1
// there, and what the caller ignores the command ignores, too. By bare system
// calls, because os/signal costs several milliseconds for all of them.
func ignoreSignals() error {
	const sigIgn = 1 // SIG_IGN of asm-generic/signal-defs.h
	type sigaction struct {
		handler  uintptr
		flags    uint64
		restorer uintptr
		mask     uint64
	}
	for n := uintptr(1); n <= 64; n++ {
		switch syscall.Signal(n) {
		case syscall.SIGKILL, syscall.SIGSTOP, // cannot be ignored
			syscall.SIGCHLD, // ignored, it would keep wait4 from seeing children
			syscall.SIGURG,  // the Go scheduler's own
			32, 33:          // the C library's own; no handler of the Go runtime's
			continue
		}
		var act sigaction
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, n, 0, uintptr(unsafe.Pointer(&act)), unsafe.Sizeof(act.mask), 0, 0); errno != 0 {
			return os.NewSyscallError("rt_sigaction", errno)
		}
		if act.handler <= sigIgn {
			continue
		}
		act = sigaction{handler: sigIgn}
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, n, uintptr(unsafe.Pointer(&act)), 0, unsafe.Sizeof(act.mask), 0, 0); errno != 0 {
			return os.NewSyscallError("rt_sigaction", errno)
		}
	}
	return nil
}

func (s *stage2) applyLandlock() error {
	if s.ruleset < 0 {
		return nil
	}
	defer unix.Close(s.ruleset)
	if err := landlock.RestrictThread(s.ruleset); err != nil {
		return &plan.Error{Op: "cannot apply Landlock", Err: err}
	}
	return nil
}

func (s *stage2) applyFilter() error {
	if s.filter == nil {
		return nil
	}
	if err := seccomp.Install(s.filter); err != nil {
		return &plan.Error{Op: "cannot install the system call filter " + s.p.Seccomp.Profile, Origin: s.p.Seccomp.Origin, Err: err}
	}
	return nil
}

// execute starts the command in a process group of its own, in a session of its own
// or, on a private terminal, in that of pid 1: kill(0)
// and PRIO_PGRP would reach group members outside the pid namespace otherwise.
// The environment is handed over here and nowhere earlier.
func (s *stage2) execute() (int, error) {
	files := []uintptr{0, 1, 2}
	for _, fd := range s.p.KeepFDs {
		for len(files) < fd {
			files = append(files, ^uintptr(0))
		}
		files = append(files, uintptr(fd))
	}
	env := make([]string, len(s.p.Env))
	for i, v := range s.p.Env {
		env[i] = v.Name + "=" + v.Value
	}
	attr := &syscall.ProcAttr{Env: env, Files: files, Sys: &syscall.SysProcAttr{Setsid: true}}
	if s.tty >= 0 {
		s.onTTY(attr)
	}
	pid, err := syscall.ForkExec(s.p.Command.Path, s.p.Command.Argv, attr)
	if err == nil {
		return pid, nil
	}
	return 0, execError(s.p.Command.Path, err)
}

// execError tells why execve(2) or the fork before it was refused.
func execError(name string, err error) error {
	e := &plan.Error{Op: "cannot execute " + name, Err: err, Exit: plan.ExitNotExecutable}
	switch {
	case errors.Is(err, unix.ENOENT):
		e.Exit = plan.ExitNotFound
		e.Hint = "it exists outside but not inside the box: make it visible with --ro, or choose --view host"
		var st unix.Stat_t
		if unix.Stat(name, &st) == nil {
			e.Exit = plan.ExitNotExecutable
			e.Hint = "the interpreter or dynamic loader it names is not there inside the box"
		}
	case errors.Is(err, unix.EACCES):
		e.Hint = "it has no permission to be executed, or lies on a file system mounted noexec"
	case errors.Is(err, unix.ENOEXEC):
		e.Hint = "it is no program for this machine; a script needs a first line such as #!/bin/sh"
	case errors.Is(err, unix.E2BIG):
		e.Hint = "arguments and environment are larger than the kernel takes (one argument: 128 KiB; all: a quarter of the stack limit)"
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOMEM):
		e.Exit = plan.ExitFailed
		e.Hint = "the process or memory limit is reached"
	}
	return e
}

// leave ends stage 2, at once: what the runtime does at the end of a program (the
// race detector waits for a second) is nothing to a pid 1 whose box is over.
func leave(status int) {
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0)
	}
}

// groupFlag in a byte of the life-line says that the signal is for the process
// group of the command.
const groupFlag = 0x80

// control is the life-line and the way signals come in: one byte each, the
// signal's number, with groupFlag or without, or an order about the terminal. The end of
// the pipe ends the box.
func (s *stage2) control() {
	buf := make([]byte, 64)
	for {
		var n int
		err := retry(func() (err error) { n, err = unix.Read(s.controlFD(), buf); return err })
		if err != nil || n == 0 {
			leave(plan.ExitFailed)
		}
		for _, b := range buf[:n] {
			switch b {
			case orderExecute:
				close(s.allowed)
			case orderForeground, orderBackground:
				s.goOn(b == orderForeground)
			default:
				s.deliver(syscall.Signal(b&^groupFlag), b&groupFlag != 0)
			}
		}
	}
}

// deliver sends a signal to the command. Those that a terminal sends to the
// whole foreground process group go to the command's group, as do all for which
// group is set.
func (s *stage2) deliver(sig syscall.Signal, group bool) {
	pid := int(s.command.Load())
	if pid == 0 {
		return
	}
	if sig == syscall.SIGHUP {
		s.hangUp(pid)
	}
	if group && unix.Kill(-pid, sig) == nil {
		return
	}
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTSTP, syscall.SIGSTOP, syscall.SIGCONT, syscall.SIGWINCH:
		if unix.Kill(-pid, sig) == nil {
			return
		}
	}
	_ = unix.Kill(pid, sig) // it may have ended already
}

// reap waits for the command and for every orphan that becomes a child of pid
// 1, reports the command's end, and exits, at which the kernel kills what is left
// (pid_namespaces(7)).
func (s *stage2) reap(pid int) {
	s.command.Store(int64(pid))
	if s.p.Bounds.Processes.By == plan.ByCgroup {
		s.awaitForker()
	}
	// pid 1 lets go of the caller's streams, so that only the command holds them.
	if null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		for fd := range 3 {
			_ = unix.Dup3(null, fd, 0)
		}
	}
	for _, fd := range s.p.KeepFDs {
		unix.Close(fd)
	}
	if err := writeAll(s.statusFD(), message(msgStarted, nil)); err != nil {
		leave(plan.ExitFailed) // the launcher is gone
	}
	go s.watchMounts()
	counted := s.p.Bounds.Processes.By == plan.ByRlimit || s.p.Bounds.Processes.By == plan.ByWatch
	var tasks uint64
	for {
		if counted && s.awaitChild(pid) {
			tasks = max(tasks, countTasks())
		}
		var ws unix.WaitStatus
		n, err := s.awaitJob(pid, &ws)
		switch {
		case err == unix.EINTR || (err == nil && (n != pid || ws.Stopped())):
			continue
		case err != nil:
			leave(plan.ExitFailed)
		}
		if s.losing.Load() {
			select {} // watchMounts killed it and tells why
		}
		var ru unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) // zero where the kernel refuses
		e := ended{
			Status: int64(ws),
			UserUS: ru.Utime.Nano() / 1000,
			SysUS:  ru.Stime.Nano() / 1000,
			MaxRSS: ru.Maxrss * 1024,
			Tasks:  int64(tasks),
		}
		_ = writeAll(s.statusFD(), message(msgEnded, e.append(nil)))
		leave(0)
	}
}

// awaitChild waits until there is something to wait for, without taking it, and
// reports whether the command has ended: as a zombie it still holds its place among
// the processes.
func (s *stage2) awaitChild(pid int) bool {
	var info unix.Siginfo
	_ = retry(func() error { return unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|s.stops(), nil) })
	info = unix.Siginfo{}
	err := retry(func() error { return unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil) })
	return err == nil && info.Signo != 0
}

// watchMounts ends the box when it loses a mount. The message goes out after the
// box is dead as far as the command is concerned: everything but pid 1 is
// killed first, so that the time without protection is as short as it can be.
func (s *stage2) watchMounts() {
	points, err := s.mounts.lost()
	s.losing.Store(true)
	_ = unix.Kill(-1, unix.SIGKILL)
	if err != nil {
		points = []string{"a path that cannot be told (" + err.Error() + ")"}
	}
	body := strings.Join(points, "\x00")
	if len(body) > maxMessage {
		body = body[:maxMessage]
	}
	_ = writeAll(s.statusFD(), message(msgLost, []byte(body)))
	leave(plan.ExitFailed)
}

// probeMain is stage 2 of [Probe]: it tries one facility in the namespaces it
// was started in and tells the errno by its exit status.
func probeMain(what string) {
	err := func() error {
		switch what {
		case "none":
			return nil
		case "hold": // nothing of the caller's stays open for it
			if err := ignoreSignals(); err != nil {
				return err
			}
			if err := closeInherited(); err != nil {
				return err
			}
			return retry(func() error { _, err := unix.Read(0, make([]byte, 1)); return err })
		case "wait": // until it is killed, or the one that started it is gone
			_, err := unix.Read(0, make([]byte, 1))
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		switch what {
		case "mounts":
			root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			tree, err := cloneTree(root)
			if err != nil {
				return err
			}
			if err := setAttr(tree, true, attrsRead); err != nil {
				return err
			}
			at, err := unix.Open(attachPoint, unix.O_PATH|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return attach(tree, at)
		case "loopback":
			return loopbackUp()
		case "redirect":
			return probeRedirect()
		case "overlay":
			return probeOverlay()
		case "tmpfs", "proc", "sysfs", "devpts", "mqueue":
			_, err := newFS(what, attrsRead)
			return err
		}
		return fmt.Errorf("unknown probe %q", path.Base(what))
	}()
	if err == nil {
		leave(0)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && errno > 0 && errno < 126 {
		leave(int(errno))
	}
	leave(126)
}
