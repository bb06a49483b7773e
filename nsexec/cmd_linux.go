package nsexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/cgroup"
	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/scratch"
)

// A Cmd is one command in one box. Its fields and methods follow os/exec.Cmd;
// it cannot be used again after Start.
type Cmd struct {
	// Plan is what to do. Plan.Stdio is filled in by Start from the streams below.
	Plan plan.Plan

	// Stdin, Stdout and Stderr are the command's standard streams. Nil is
	// /dev/null. An *os.File is passed as it is, its flags untouched; anything
	// else goes through a pipe that Start's goroutines copy.
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	// Scratch is a scratch directory that the caller prepared from Plan.Scratch,
	// and removes after Wait. Nil: Start prepares one, and Wait removes it.
	Scratch *scratch.Dir
	// OwnGroup has a command without a box (enforce off) lead a process group of its
	// own. Signals then reach the whole group, and it is killed as a whole, also when
	// the command has ended. A plan with a limit of time has it lead one anyway, unless
	// a standard stream is a terminal: that one is killed when the time is over.
	OwnGroup bool
	// Metered says that the caller gives descriptors on which it reads all of the
	// output itself, and tells [Cmd.Wrote], for the limit of the whole output.
	Metered bool
	// Suspend is called with Plan.TTY "pty", when the command has stopped (by
	// Ctrl-Z, for example) and the caller's terminal is as it was before Start. It
	// stops this process, as a shell expects of a job, and returns true when it
	// has been continued; false means that it cannot be stopped. Nil is false
	// always. The command then goes on.
	Suspend func(syscall.Signal) bool
	// NetEvents is called with every event of the box's network, by one goroutine, in
	// order, and with the last one before Wait returns. It must not block for long: events
	// that find no room meanwhile are counted in Result.Network and lost, and a call that takes
	// two seconds at the end is not waited for. It must not call methods of the Cmd.
	NetEvents func(egress.Event)

	ctx     context.Context
	mu      sync.Mutex
	started bool
	waited  bool
	pid     int // stage 2, or the command itself with enforce off; a child of this process
	pidfd   int
	control int                      // write end of the life-line, -1 with enforce off
	status  int                      // read end of the status pipe, -1 with enforce off
	tty     int                      // by which the private terminal comes
	term    *terminal                // nil without a private terminal
	taken   atomic.Pointer[terminal] // the same, without mu
	network *network                 // nil when stage 1 serves none
	abort   chan struct{}
	aborted sync.Once
	scratch *scratch.Dir
	copies  []*outCopy
	result  Result
	cleanup error
	seeds   []error
	begin   time.Time
	done    chan struct{}
	grouped bool           // enforce off: pid leads a process group of its own
	over    bool           // the command has ended; what it is waited for is known
	asked   bool           // it got a signal that asks to end
	group   *cgroup.Group  // nil for none
	keepers sync.WaitGroup // goroutines that keep the bounds
	written atomic.Uint64  // bytes of output

	holder int // process that keeps the scope of systemd, 0 for none
	hold   int // ends it when it is closed

	pids       uint64 // what the cgroup is to allow when the command runs
	early      bool   // it had more already
	forks      uint64 // lastPID before there was a command
	forksKnown bool
}

// A Result is how the command ended.
type Result struct {
	Started    bool           // the command was executed
	ExitCode   int            // 0-255; -1 when it was ended by a signal
	Signal     syscall.Signal // 0 unless it was ended by a signal
	CoreDumped bool
	Killed     bool          // the box was killed as a whole, by Kill, the context, a limit, or from outside
	TimedOut   bool          // the limit of time ended it
	Doubt      bool          // the command has failed, and the limit of processes may have been in its way: nobody could see it
	Limit      string        // the other limit that ended it: plan.BoundMemory and so on; "" for none
	UserTime   time.Duration // of the box's processes that were waited for
	SysTime    time.Duration
	MaxRSS     int64          // bytes, of the largest process
	PeakMemory int64          // bytes, of the whole box at its largest; 0 when nobody counted (there was no cgroup)
	Wall       time.Duration  // from Start to the end of the box
	Network    egress.Summary // of the connections that the command made, or was refused
}

// Status is the exit status by the shell's convention: the command's own, or
// 128+n for signal n; plan.ExitTimeout or plan.ExitLimit when a limit ended it.
func (r Result) Status() int {
	switch {
	case r.TimedOut:
		return plan.ExitTimeout
	case r.Limit != "":
		return plan.ExitLimit
	}
	if r.Signal != 0 {
		return 128 + int(r.Signal)
	}
	return r.ExitCode
}

// Exceeded tells, after Wait, which limit of p ended the run and which line asked
// for it; nil when none did. It is a *plan.Error with the exit status.
func (r Result) Exceeded(p plan.Plan) error {
	name := r.Limit
	if r.TimedOut {
		name = plan.BoundTime
	}
	if name == "" {
		return nil
	}
	if e := p.Bounds.Exceeded(name); e != nil {
		return e
	}
	return nil
}

// Doubts says, after Wait, that a limit of p may be why the command has failed, when nobody
// could see whether it is; "" when there is nothing to say.
func (r Result) Doubts(p plan.Plan) string {
	if !r.Doubt {
		return ""
	}
	return "the command failed, perhaps because of its limit of " + strconv.FormatUint(p.Bounds.Processes.Value, 10) +
		" processes and threads: without a cgroup nobody sees whether the kernel has refused one"
}

// An ExitError reports that the command ran and did not exit with status 0, or
// that a limit ended it.
type ExitError struct{ Result }

func (e *ExitError) Error() string {
	switch {
	case e.TimedOut:
		return "ended by the limit of time"
	case e.Limit != "":
		return "ended by the limit of " + e.Limit
	}
	if e.Signal != 0 {
		return fmt.Sprintf("ended by signal %d (%s)", int(e.Signal), e.Signal)
	}
	return "exit status " + strconv.Itoa(e.ExitCode)
}

// Command gives a Cmd for p. The plan must be valid, and the value of every
// variable in it: Start refuses one with sources that are still to be fetched.
func Command(p plan.Plan) *Cmd { return CommandContext(context.Background(), p) }

// CommandContext is like Command; when ctx is done, the box is killed.
func CommandContext(ctx context.Context, p plan.Plan) *Cmd {
	return &Cmd{Plan: p, ctx: ctx, pidfd: -1, control: -1, status: -1, abort: make(chan struct{})}
}

// Run starts the command and waits for it. See Start and Wait for errors.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Start builds the box and starts the command in it. When it returns nil the command
// was executed. Otherwise the command did not run and nothing is left behind;
// the error is a *plan.Error whose chain holds a *StepError when stage 2
// refused, and plan.ExitStatus gives its exit status.
func (c *Cmd) Start() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return errors.New("nsexec: already started")
	}
	c.started = true
	c.begin = time.Now()
	if err := c.ctx.Err(); err != nil {
		return &plan.Error{Op: "cannot start the command", Err: err}
	}

	var streams stdio
	defer func() {
		streams.closeChild()
		if err != nil {
			streams.closeParent()
			err = errors.Join(err, c.release())
		}
	}()
	err = streams.open(c)
	c.term = streams.term
	c.taken.Store(c.term)
	if err != nil {
		return err
	}
	if err := checkKept(&c.Plan); err != nil {
		return err
	}
	if err := checkSockets(&c.Plan); err != nil {
		return err
	}
	if err := refuseUnfilled(c.Plan); err != nil {
		return err
	}
	c.Plan.Stdio = streams.described
	if err := c.Plan.Validate(); err != nil {
		return &plan.Error{Op: "wall bug: the plan is not valid", Err: err, Hint: "please report this"}
	}
	if c.Scratch != nil {
		c.scratch, c.seeds = c.Scratch, c.Scratch.SeedErrors()
	} else if c.Plan.Scratch.Root != "" {
		if c.scratch, err = scratch.Prepare(c.Plan.Scratch); err != nil {
			return err
		}
		c.seeds = c.scratch.SeedErrors()
	}
	if c.Plan.Enforce == plan.EnforceOff {
		err = c.startPlain(&streams)
	} else {
		err = c.startBox(&streams)
	}
	if err != nil {
		return err
	}
	c.result.Started = true
	c.copies = streams.copy()
	c.done = make(chan struct{})
	c.keep()
	if c.ctx.Done() != nil {
		go func() {
			select {
			case <-c.ctx.Done():
				_ = c.Kill() // nothing to do when it has ended already
			case <-c.done:
			}
		}()
	}
	return nil
}

// refuseUnfilled refuses a plan in which the values of variables are still to be
// fetched: the command would start with a wrong environment.
func refuseUnfilled(p plan.Plan) error {
	if names := p.Unfilled(); len(names) > 0 {
		return &plan.Error{Op: "wall bug: the plan lacks the values of variables", Err: errors.New(strings.Join(names, ", ")), Hint: "please report this"}
	}
	return nil
}

// startPlain runs the command without any wall, with the plan's environment.
func (c *Cmd) startPlain(streams *stdio) error {
	env := make([]string, len(c.Plan.Env))
	for i, v := range c.Plan.Env {
		env[i] = v.Name + "=" + v.Value
	}
	// A process group other than the terminal's foreground one could not read from
	// the terminal.
	onTerminal := slices.ContainsFunc(c.Plan.Stdio, func(s plan.Stdio) bool { return s.Kind == plan.StdioTTY })
	c.grouped = c.OwnGroup || c.Plan.Bounds.Time.Value > 0 && !onTerminal
	pid, err := syscall.ForkExec(c.Plan.Command.Path, c.Plan.Command.Argv, &syscall.ProcAttr{
		Dir:   c.Plan.Command.Dir,
		Env:   env,
		Files: c.files(streams),
		Sys:   &syscall.SysProcAttr{PidFD: &c.pidfd, Setpgid: c.grouped},
	})
	if err != nil {
		return execError(c.Plan.Command.Path, err)
	}
	c.pid = pid
	return nil
}

// files is the descriptor table of the child: the standard streams, and the kept ones at their
// own numbers.
func (c *Cmd) files(streams *stdio) []uintptr {
	files := []uintptr{uintptr(streams.child[0]), uintptr(streams.child[1]), uintptr(streams.child[2])}
	for _, fd := range c.Plan.KeepFDs {
		for len(files) < fd {
			files = append(files, ^uintptr(0))
		}
		files = append(files, uintptr(fd))
	}
	return files
}

var cloneFlags = map[plan.SpaceKind]uintptr{
	plan.SpaceUser:   unix.CLONE_NEWUSER,
	plan.SpaceMount:  unix.CLONE_NEWNS,
	plan.SpacePID:    unix.CLONE_NEWPID,
	plan.SpaceNet:    unix.CLONE_NEWNET,
	plan.SpaceIPC:    unix.CLONE_NEWIPC,
	plan.SpaceUTS:    unix.CLONE_NEWUTS,
	plan.SpaceCgroup: unix.CLONE_NEWCGROUP,
}

// startBox starts stage 2, sends it the plan, and waits until the command was
// executed or a step failed.
func (c *Cmd) startBox(streams *stdio) error {
	failed := func(err error) error { return &plan.Error{Op: "cannot start the box", Err: err} }
	inodes, err := spaceInodes()
	if err != nil {
		return failed(err)
	}
	body, err := plan.Encode(c.Plan)
	if err != nil {
		return failed(err)
	}
	if hasNetwork(&c.Plan) {
		if c.network, err = openNetwork(&c.Plan.Network, c.NetEvents); err != nil {
			return err
		}
	}
	ends, err := c.clone(streams)
	if err != nil {
		return err
	}
	c.status, c.control, c.tty = ends.status, ends.control, ends.tty
	if err := c.enterCgroup(); err != nil {
		unix.Close(ends.order)
		return err
	}
	// The plan is written only now, so a plan that is cut short tells stage 2
	// that its launcher died. A broken pipe tells us that stage 2 is gone; the
	// status then says why.
	err = writeAll(ends.order, encodeOrder(inodes, body))
	unix.Close(ends.order)
	if err != nil && !errors.Is(err, unix.EPIPE) {
		return failed(err)
	}
	if err := c.awaitStart(); err != nil {
		return c.startedWithin(err)
	}
	return nil
}

// boxEnds are stage 1's ends of the three pipes to stage 2, and of the socket by
// which a private terminal comes, -1 without one. That by which the sockets of a
// network come is in c.network.
type boxEnds struct{ order, status, control, tty int }

// clone starts stage 2. Its argument vector and environment say nothing,
// because /proc shows both.
func (c *Cmd) clone(streams *stdio) (boxEnds, error) {
	// The order's read end, the status' write end and the life-line's read
	// end go to stage 2; all six are close-on-exec.
	var fds []int
	closeAll := func(fds ...int) {
		for _, fd := range fds {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
	for range 3 {
		r, w, err := pipe()
		if err != nil {
			closeAll(fds...)
			return boxEnds{}, &plan.Error{Op: "cannot start the box", Err: err}
		}
		fds = append(fds, r, w)
	}
	orderR, orderW, statusR, statusW, controlR, controlW := fds[0], fds[1], fds[2], fds[3], fds[4], fds[5]
	var flags uintptr
	origin := plan.Origin{}
	for _, s := range c.Plan.Spaces {
		flags |= cloneFlags[s.Kind]
		origin = s.Origin
	}
	caps := slices.Clone(buildCaps)
	if hasOverlay(&c.Plan) {
		caps = append(caps, overlayCaps...)
	}
	if hasNetwork(&c.Plan) {
		caps = append(caps, networkCaps...)
	}
	files := c.files(streams)
	argv := []string{initName}
	if len(files) > firstFD {
		argv = append(argv, strconv.Itoa(len(files)))
	}
	files = append(files, uintptr(orderR), uintptr(statusW), uintptr(controlR))
	tty := [2]int{-1, -1}
	if c.term != nil {
		var err error
		if tty, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
			closeAll(fds...)
			return boxEnds{}, &plan.Error{Op: "cannot start the box", Err: os.NewSyscallError("socketpair", err)}
		}
		files = append(files, uintptr(tty[1]))
	}
	net := [2]int{-1, -1}
	if c.network != nil {
		var err error
		if net, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
			closeAll(append(fds, tty[:]...)...)
			return boxEnds{}, &plan.Error{Op: "cannot start the box", Err: os.NewSyscallError("socketpair", err)}
		}
		c.network.sock = net[0]
		files = append(files, uintptr(net[1]))
	}
	if c.scratch != nil {
		// The lock of the scratch directory lives as long as the box, also when
		// this process is killed: what protects absent names is not
		// collected by another run as long as something runs behind it.
		files = append(files, uintptr(c.scratch.FD()))
		if fd := c.scratch.KeptFD(); fd >= 0 {
			files = append(files, uintptr(fd)) // likewise: no other run may use its layers
		}
	}
	pid, err := forkBox(argv, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: files,
		Sys:   boxAttr(flags, c.Plan.Identity, caps, &c.pidfd),
	})
	closeAll(orderR, statusW, controlR, tty[1], net[1])
	if err != nil {
		closeAll(orderW, statusR, controlW, tty[0])
		return boxEnds{}, &plan.Error{Op: "cannot make new namespaces", Origin: origin, Err: os.NewSyscallError("clone", err), Hint: hintClone(err)}
	}
	c.pid = pid
	return boxEnds{order: orderW, status: statusR, control: controlW, tty: tty[0]}, nil
}

// boxAttr is how stage 2 is cloned.
func boxAttr(flags uintptr, id plan.Identity, caps []uintptr, pidfd *int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: flags,
		// One id each, to itself: inside you are the same user.
		UidMappings: []syscall.SysProcIDMap{{ContainerID: id.UID, HostID: id.UID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: id.GID, HostID: id.GID, Size: 1}},
		AmbientCaps: caps,
		Setsid:      true, // a SIGKILL to the caller's process group is not for pid 1
		PidFD:       pidfd,
	}
}

var forking sync.Mutex

// forkBox starts this program again. The id maps of the new process are written
// through /proc, where the files of a process that is not dumpable belong to root
// (proc(5)); it shares the attribute of this one until it executes. A launcher
// that keeps itself from being dumped does not for that moment.
func forkBox(argv []string, attr *syscall.ProcAttr) (int, error) {
	forking.Lock() // the attribute is the whole process's
	defer forking.Unlock()
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		return 0, os.NewSyscallError("prctl", err)
	}
	if dumpable != 0 {
		return syscall.ForkExec("/proc/self/exe", argv, attr)
	}
	if err := prctl(unix.PR_SET_DUMPABLE, 1, 0); err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec("/proc/self/exe", argv, attr)
	if e := prctl(unix.PR_SET_DUMPABLE, 0, 0); e != nil && err == nil {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return 0, e
	}
	return pid, err
}

// awaitStart reads the first status message.
func (c *Cmd) awaitStart() error {
	killed := make(chan struct{})
	stop := context.AfterFunc(c.ctx, func() {
		defer close(killed)
		_ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0)
	})
	defer func() {
		if !stop() {
			<-killed // the pidfd is closed next, and its number may be given to another box
		}
	}()
	if c.network != nil {
		if err := c.network.connect(); err != nil {
			if c.term != nil {
				unix.Close(c.tty)
			}
			return err
		}
	}
	if c.term != nil {
		if err := c.term.connect(c.tty, c.control); err != nil {
			return err
		}
	}
	kind, body, err := readMessage(fdReader(c.status))
	if err == nil && kind == msgReady {
		if err := c.boundProcesses(); err != nil {
			return err
		}
		kind, body, err = readMessage(fdReader(c.status))
	}
	switch {
	case err == nil && kind == msgStarted:
		return c.boundExactly()
	case err == nil && kind == msgFailed:
		return parseFailure(body)
	case c.ctx.Err() != nil:
		return &plan.Error{Op: "cannot start the command", Err: c.ctx.Err()}
	case err == io.EOF, errors.Is(err, io.ErrUnexpectedEOF):
		return &plan.Error{Op: "cannot start the box", Err: errors.New("stage 2 was killed before the command ran"), Hint: "the host may be out of memory; see the kernel log"}
	case err == nil:
		err = fmt.Errorf("unexpected status message %q", kind)
	}
	return &plan.Error{Op: "cannot start the box", Err: err}
}

// Signal sends sig to the command. SIGKILL ends the whole box. It is an error
// (os.ErrProcessDone) when the command has ended.
func (c *Cmd) Signal(sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok || s <= 0 || s > 64 {
		return fmt.Errorf("nsexec: signal %v cannot be sent", sig)
	}
	switch {
	case s == syscall.SIGKILL:
		return c.Kill()
	case s == syscall.SIGWINCH && c.terminal() != nil:
		c.term.resized()
		return nil
	case s == syscall.SIGCONT && c.terminal() != nil:
		// It continues the command where that has stopped. Another SIGCONT,
		// later, could undo the next stop.
		c.term.continued()
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.result.Started:
		return errors.New("nsexec: not started")
	case c.waited:
		if asksToEnd(s) {
			c.stopWriting()
		}
		return os.ErrProcessDone
	case c.control < 0:
		return c.signalPlain(s)
	}
	c.asked = c.asked || asksToEnd(s)
	return doneError(writeAll(c.control, []byte{byte(s)}))
}

// asksToEnd reports whether a program that does nothing about the signal is ended by
// it, and is meant to be.
func asksToEnd(s syscall.Signal) bool {
	switch s {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP:
		return true
	}
	return false
}

// Kill ends the box at once: pid 1 is killed, and with it everything inside.
func (c *Cmd) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.result.Started:
		return errors.New("nsexec: not started")
	case c.waited:
		c.stopWriting()
		return os.ErrProcessDone
	}
	if c.grouped {
		return doneError(unix.Kill(-c.pid, unix.SIGKILL))
	}
	return doneError(unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0))
}

// signalPlain signals the child itself, or its group. The number of the group is
// its own until the child is waited for, which c.waited says under the lock.
func (c *Cmd) signalPlain(s syscall.Signal) error {
	if c.OwnGroup && c.grouped {
		return doneError(unix.Kill(-c.pid, s))
	}
	return doneError(unix.PidfdSendSignal(c.pidfd, s, nil, 0))
}

// stopWriting ends a Wait that waits only for a terminal that takes no output.
func (c *Cmd) stopWriting() { c.aborted.Do(func() { close(c.abort) }) }

// terminal is the connection to the private terminal while the command runs.
func (c *Cmd) terminal() *terminal {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.result.Started {
		return nil
	}
	return c.term
}

// RestoreTerminal gives a terminal that a private one is connected to back as it
// was before Start, at once. Wait does so too; this is for a program that is about to end
// before that, by a signal or a panic. It may be called at any time and from any goroutine.
func (c *Cmd) RestoreTerminal() {
	if t := c.taken.Load(); t != nil {
		t.leave()
	}
}

func doneError(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EPIPE) {
		return os.ErrProcessDone
	}
	return err
}

// Pid is the process id of stage 2 on the host, 0 before Start.
func (c *Cmd) Pid() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid
}

// Wait waits until the box has ended and everything inside is gone, removes the scratch
// directory, and reports the result: nil for exit status 0, *ExitError
// otherwise, another error when output could not be copied or the box was
// ended because it lost a protection. What the command leaves behind cannot
// change the result: see CleanupError. Result is valid afterwards.
func (c *Cmd) Wait() error {
	c.mu.Lock()
	if !c.result.Started || c.done == nil {
		c.mu.Unlock()
		return errors.New("nsexec: not started")
	}
	if c.waited {
		c.mu.Unlock()
		return errors.New("nsexec: Wait was already called")
	}
	c.mu.Unlock()

	var err error
	if c.status >= 0 {
		err = c.waitBox()
	} else {
		err = c.waitPlain()
	}
	if c.term != nil {
		c.term.end(c.abort, c.ctx.Done(), !c.urged())
	}
	var connections egress.Summary
	if c.network != nil {
		connections = c.network.close() // without mu: observers are called
	}
	close(c.done)
	c.keepers.Wait()
	c.lastLook()
	for _, x := range c.copies {
		if cerr := x.finish(c.status >= 0, !c.urged(), c.abort); cerr != nil && err == nil {
			err = &plan.Error{Op: "cannot copy a standard stream", Err: cerr}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.Wall = time.Since(c.begin)
	c.result.Network = connections
	c.cleanup = c.release()
	if err != nil {
		return err
	}
	if r := c.current(); r.Status() != 0 {
		return &ExitError{r}
	}
	return nil
}

// waitBox reads pid 1's account of how the command ended. Without one, pid 1
// was killed, and the command with it.
func (c *Cmd) waitBox() error {
	kind, body, err := readMessage(fdReader(c.status))
	for err == nil && kind == msgStopped {
		if c.term == nil || len(body) != 2 {
			return errors.New("wall bug: stage 2 reports a stop without a terminal")
		}
		c.term.stopped(syscall.Signal(body[0]), body[1])
		kind, body, err = readMessage(fdReader(c.status))
	}
	c.end()
	if err == nil && kind == msgEnded {
		e, perr := parseEnded(body)
		if perr != nil {
			return perr
		}
		c.setStatus(unix.WaitStatus(e.Status))
		if b := c.Plan.Bounds.Processes; b.Value > 0 && e.Tasks > int64(b.Value) {
			c.tooMany()
		}
		c.result.UserTime = time.Duration(e.UserUS) * time.Microsecond
		c.result.SysTime = time.Duration(e.SysUS) * time.Microsecond
		c.result.MaxRSS = e.MaxRSS
		_, werr := c.wait4()
		return werr
	}
	lost := err == nil && kind == msgLost
	ws, werr := c.wait4()
	c.result.Killed = true
	c.result.ExitCode, c.result.Signal = -1, syscall.SIGKILL
	if werr == nil && ws.Signaled() {
		c.result.Signal = ws.Signal()
	}
	if lost {
		return errors.Join(lostError(strings.Split(string(body), "\x00")), werr)
	}
	return werr
}

// tooMany notes that there were too many processes when the command ended.
func (c *Cmd) tooMany() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.result.Limit == "" && !c.result.TimedOut {
		c.result.Limit = plan.BoundProcesses
	}
}

// end says that the command has ended: no limit ends it any more.
func (c *Cmd) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
}

// urged reports whether somebody or something wanted the command to end, rather than
// itself: then nobody waits for a terminal that takes no output.
func (c *Cmd) urged() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked || c.result.Killed || c.result.TimedOut || c.result.Limit != ""
}

func (c *Cmd) waitPlain() error {
	ws, err := c.wait4()
	if err != nil {
		return err
	}
	c.setStatus(ws)
	return nil
}

// wait4 reaps the child. From then on its pid is not used any more.
func (c *Cmd) wait4() (unix.WaitStatus, error) {
	// Wait without reaping first, so that Signal and Kill, which need the mutex,
	// work meanwhile.
	var info unix.Siginfo
	if err := retry(func() error { return unix.Waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WNOWAIT, nil) }); err != nil {
		return 0, os.NewSyscallError("waitid", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.grouped && (c.OwnGroup || c.result.TimedOut) {
		_ = unix.Kill(-c.pid, unix.SIGKILL) // the child is a zombie that keeps the number
	}
	var ws unix.WaitStatus
	var ru unix.Rusage
	if err := retry(func() error { _, err := unix.Wait4(c.pid, &ws, 0, &ru); return err }); err != nil {
		return 0, os.NewSyscallError("wait4", err)
	}
	c.waited = true
	if c.result.MaxRSS == 0 {
		// Without a box, or when pid 1 was killed: then with what the kernel
		// reaped in its place.
		c.result.UserTime = time.Duration(ru.Utime.Nano())
		c.result.SysTime = time.Duration(ru.Stime.Nano())
		c.result.MaxRSS = ru.Maxrss * 1024
	}
	return ws, nil
}

func (c *Cmd) setStatus(ws unix.WaitStatus) {
	if ws.Signaled() {
		c.result.ExitCode, c.result.Signal, c.result.CoreDumped = -1, ws.Signal(), ws.CoreDump()
		return
	}
	c.result.ExitCode = ws.ExitStatus()
}

// Result is how the command ended; valid after Wait, or Started=false after a
// failed Start.
func (c *Cmd) Result() Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current()
}

// CleanupError tells, after Wait, what of the run could not be removed; a later
// run or scratch.Collect tries again. It is not part of Wait's error, because
// the command could choose its own result with it.
func (c *Cmd) CleanupError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cleanup
}

// SeedErrors tells, after Start, which files were not copied into the scratch
// directory; the command runs without them.
func (c *Cmd) SeedErrors() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seeds
}

// release frees everything that belongs to the run. A box that is still there (a
// failed Start) is killed first.
func (c *Cmd) release() error {
	if c.pid != 0 && !c.waited {
		_ = unix.PidfdSendSignal(c.pidfd, unix.SIGKILL, nil, 0)
		var ws unix.WaitStatus
		_ = retry(func() error { _, err := unix.Wait4(c.pid, &ws, 0, nil); return err })
		c.waited = true
	}
	if c.term != nil {
		c.term.end(c.abort, c.ctx.Done(), false)
	}
	if c.network != nil && !c.result.Started {
		c.network.close()
	}
	for _, fd := range []*int{&c.control, &c.status, &c.pidfd} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
	err := c.leaveCgroup()
	if c.scratch == nil {
		return err
	}
	d := c.scratch
	c.scratch = nil
	if c.Scratch != nil {
		return err // the caller's
	}
	return errors.Join(err, d.Remove())
}
