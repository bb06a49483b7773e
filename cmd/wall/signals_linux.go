package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// secondInterrupt is how soon a second Ctrl-C must follow the first to kill.
const secondInterrupt = 2 * time.Second

// giveUpAfter is how long a signal that asks to end waits for the command to run.
// It takes milliseconds, unless a file system on the way hangs. Giving up at once
// would be wrong: the command may run already, and what it has done is known to
// whoever sent the signal, while the message that it runs is still under way.
const giveUpAfter = time.Second

// forwarded are the signals that wall passes on. SIGTSTP comes from Ctrl-Z:
// the command stops, then wall does, so that the shell gets its terminal back.
var forwarded = []os.Signal{
	unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT,
	unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP,
}

// fromTerminal are the signals that a terminal sends to its whole foreground
// process group.
var fromTerminal = []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGTSTP, unix.SIGCONT, unix.SIGWINCH}

// endsRun and endsGate are the signals that tell a command to end, so that one which
// does not is killed. SIGINT and SIGHUP mean other things, too, to what wall run and
// wall shell are used for: interpreters and servers go on.
var (
	endsRun  = []os.Signal{unix.SIGTERM}
	endsGate = []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP}
)

// defaultGrace is how long a command has to end when it was told to, where the plan
// does not say. It is that of limits.grace.
const defaultGrace = 5 * time.Second

// graceOf is how long the command of p has to end when it was told to.
func graceOf(p plan.Plan) time.Duration {
	if p.Bounds.Grace == (plan.Bound{}) {
		return defaultGrace
	}
	return time.Duration(p.Bounds.Grace.Value)
}

// deadly are the further signals that end a program written in Go. They are not
// passed on; while the terminal is wall's, they must not end it as it is.
var deadly = []os.Signal{
	unix.SIGABRT, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGSEGV, unix.SIGSTKFLT, unix.SIGSYS, unix.SIGTRAP,
}

// A target takes signals for the command: *nsexec.Cmd.
type target interface {
	Signal(os.Signal) error
	Kill() error
	RestoreTerminal()
}

// A terminalUse says how the command is connected to the terminal.
type terminalUse int

const (
	useNone    terminalUse = iota // through pipes, or by descriptors in a session of its own
	useShared                     // it is in wall's process group
	usePrivate                    // it has one of its own, which wall connects to
)

// A relay passes the signals sent to wall on to the command.
type relay struct {
	signals   chan os.Signal
	listening chan struct{} // closed when all signals are asked for
	done      chan struct{}
	continued chan struct{}      // a SIGCONT came, and what came before it was passed on
	cancel    context.CancelFunc // gives up a box that is being built
	use       terminalUse
	ends      []os.Signal // those that tell the command to end

	private   atomic.Pointer[target] // whose terminal is to be restored
	mu        sync.Mutex
	to        target           // nil until the command runs
	timer     *time.Timer      // gives up
	waiting   []syscall.Signal // for the command, from before it ran
	grace     time.Duration    // how long the command has to end
	ending    *time.Timer      // kills it then; nil until it was told to end
	killed    time.Duration    // after which grace it was killed
	gaveUp    syscall.Signal   // the signal that made wall give up before the command ran, 0 for none
	told      syscall.Signal   // the first of ends that wall got, 0 for none
	interrupt time.Time        // of the last SIGINT
}

// newRelay starts to take signals; they wait for [relay.start]. When that is long
// in coming, those that ask to end call cancel. A signal that wall's caller ignores
// stays ignored: asking for it would undo nohup(1) for the command too.
//
// Each signal costs the Go runtime some 40 microseconds, so that they are asked
// for while the box is being built. One that comes before that ends wall as it
// would end any program, and the box with it.
//
// Without a box (useShared) the command stays in wall's process group. Then it gets
// what the terminal sends without wall's help, and would get it twice: wall only
// outlives it, and stops and continues as any program.
//
// A command that does not end within its grace after one of ends is killed.
func newRelay(use terminalUse, cancel context.CancelFunc, ends []os.Signal) *relay {
	r := &relay{
		signals:   make(chan os.Signal, 64),
		listening: make(chan struct{}),
		done:      make(chan struct{}),
		continued: make(chan struct{}, 1),
		cancel:    cancel,
		use:       use,
		ends:      ends,
	}
	asked := forwarded
	if use == usePrivate {
		asked = slices.Concat(forwarded, deadly)
	}
	go func() {
		defer r.guard()
		for _, s := range asked {
			outlives := s == unix.SIGINT || s == unix.SIGQUIT
			if r.use == useShared && slices.Contains(fromTerminal, s) && !outlives {
				continue
			}
			// Whoever ignores SIGCONT is continued by it all the same.
			if !signal.Ignored(s) || use == usePrivate && s == unix.SIGCONT {
				signal.Notify(r.signals, s)
			}
		}
		close(r.listening)
		for s := range r.signals {
			if s == unix.SIGCONT {
				r.takeEarlier()
				continue
			}
			r.take(s.(syscall.Signal))
		}
		close(r.done)
	}()
	return r
}

// guard gives the terminal back before a panic ends wall.
func (r *relay) guard() {
	if p := recover(); p != nil {
		r.restore()
		panic(p)
	}
}

// restore gives the terminal back, if the command runs.
func (r *relay) restore() {
	if to := r.private.Load(); to != nil {
		(*to).RestoreTerminal()
	}
}

// take does what one signal asks for.
func (r *relay) take(s syscall.Signal) {
	if slices.Contains(deadly, os.Signal(s)) {
		r.restore()
		dieOf(s)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.told == 0 && slices.Contains(r.ends, os.Signal(s)) {
		r.told = s
	}
	if r.to != nil {
		r.pass(s)
		return
	}
	r.waiting = append(r.waiting, s)
	switch s {
	case unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT:
		if r.timer == nil {
			r.timer = time.AfterFunc(giveUpAfter, func() { r.giveUp(s) })
		}
	}
}

// settles is how long after SIGCONT the signals that were sent before it may be heard of.
const settles = 20 * time.Millisecond

// takeEarlier takes a SIGCONT, and before it what was sent before it. A shell that ends a
// stopped job sends SIGTERM and then SIGCONT. Both are pending when the kernel continues
// this process, and two threads may report them in either order; a command that is
// continued first reads from its terminal, and stops again.
func (r *relay) takeEarlier() {
	settled := time.After(settles)
	for {
		var s os.Signal // nil: there is none
		select {
		case s = <-r.signals:
		default:
			select {
			case s = <-r.signals:
			case <-settled:
			}
		}
		switch s {
		case unix.SIGCONT: // one counts for both
		case nil, unix.SIGTSTP:
			r.take(unix.SIGCONT)
			if s != nil { // it came later, or the kernel would have taken it back
				r.take(unix.SIGTSTP)
			}
			return
		default:
			r.take(s.(syscall.Signal))
		}
	}
}

// giveUp ends a start that takes too long.
func (r *relay) giveUp(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == nil {
		r.gaveUp = s
		r.cancel()
	}
}

// pass sends one signal to the command, which may have ended: that is the only
// reason for which sending fails, and then nobody is left to get it.
func (r *relay) pass(s syscall.Signal) {
	if r.use == useShared && slices.Contains(fromTerminal, os.Signal(s)) {
		return
	}
	switch s {
	case unix.SIGINT:
		now := time.Now()
		if !r.interrupt.IsZero() && now.Sub(r.interrupt) <= secondInterrupt {
			_ = r.to.Kill()
			return
		}
		r.interrupt = now
	case unix.SIGTSTP:
		// The command leads a session of its own, where the kernel discards
		// SIGTSTP unless it is handled (POSIX: orphaned process groups), so that
		// only SIGSTOP is sure to stop it.
		_ = r.to.Signal(unix.SIGSTOP)
		if r.use == usePrivate {
			return // wall stops when the command has, see suspend
		}
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		return
	case unix.SIGCONT:
		select {
		case r.continued <- struct{}{}:
		default:
		}
	}
	_ = r.to.Signal(s)
	if slices.Contains(r.ends, os.Signal(s)) && r.ending == nil {
		to, grace := r.to, r.grace
		r.ending = time.AfterFunc(grace, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.to == to && to.Kill() == nil {
				r.killed = max(grace, 1) // 0 is for none
			}
		})
	}
}

// watch says whose terminal to restore, from before the command runs.
func (r *relay) watch(t target) { r.private.Store(&t) }

// start says that the command runs, which has so long to end when it is told to, and
// passes on what has waited.
func (r *relay) start(t target, grace time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to, r.grace = t, grace
	if r.timer != nil {
		r.timer.Stop()
	}
	for _, s := range r.waiting {
		r.pass(s)
	}
	r.waiting = nil
}

// stop ends the relay. told is the signal that told the command to end, gaveUp the one
// that ended the run before the command ran; or 0.
func (r *relay) stop() (told, gaveUp syscall.Signal) {
	<-r.listening
	signal.Stop(r.signals) // nothing is sent to the channel any more
	close(r.signals)
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range []*time.Timer{r.timer, r.ending} {
		if t != nil {
			t.Stop()
		}
	}
	r.to = nil
	return r.told, r.gaveUp
}

// overdue says that the command was killed because it did not end when it was told
// to; "" when it was not. Call it after stop.
func (r *relay) overdue() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed == 0 {
		return ""
	}
	return "the command did not end within " + r.killed.Round(time.Millisecond).String() + " of " + signalName(r.told) + ", and was killed"
}

// dieOf ends wall by a signal. It returns when the signal is ignored.
func dieOf(s syscall.Signal) {
	if !signal.Ignored(s) {
		// signal.Reset leaves the runtime's handler for some of them.
		_ = setDefault(s, nil)
	}
	// A core dump of wall would tell nothing about the command.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if unix.Kill(os.Getpid(), s) == nil && !signal.Ignored(s) {
		// The signal is delivered to whichever thread comes first.
		time.Sleep(time.Second)
	}
}

// rest says that the command has ended and another may follow: signals wait again.
func (r *relay) rest() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending != nil {
		r.ending.Stop()
	}
	r.to, r.timer, r.ending, r.interrupt = nil, nil, nil, time.Time{}
}

// asked gives the signal so far that told the command to end, or 0.
func (r *relay) asked() syscall.Signal {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told
}
