package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// secondInterrupt is how soon a second Ctrl-C must follow the first to kill.
const secondInterrupt = 2 * time.Second

// forwarded are the signals that wall passes on. SIGTSTP comes from Ctrl-Z:
// the command stops, then wall does, so that the shell gets its terminal back.
var forwarded = []os.Signal{
	unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT,
	unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGTSTP,
}

// A target takes signals for the command: *nsexec.Cmd.
type target interface {
	Signal(os.Signal) error
	Kill() error
}

// A relay passes the signals sent to wall on to the command.
type relay struct {
	signals    chan os.Signal
	done       chan struct{}
	terminated atomic.Bool // wall got a SIGTERM
}

// newRelay starts to collect signals; they wait for [relay.to]. A signal that
// wall's caller ignores stays ignored: asking for it would undo nohup(1) for the
// command too.
func newRelay() *relay {
	r := &relay{signals: make(chan os.Signal, 64), done: make(chan struct{})}
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(r.signals, s)
		}
	}
	return r
}

// to passes signals to the command until stop is called.
func (r *relay) to(t target) {
	go func() {
		defer close(r.done)
		var lastInterrupt time.Time
		for s := range r.signals {
			switch s {
			case unix.SIGTERM:
				r.terminated.Store(true)
			case unix.SIGINT:
				now := time.Now()
				if !lastInterrupt.IsZero() && now.Sub(lastInterrupt) <= secondInterrupt {
					_ = t.Kill() // it fails only when the command has ended
					continue
				}
				lastInterrupt = now
			case unix.SIGTSTP:
				// The command leads a session of its own, where the kernel
				// discards SIGTSTP unless it is handled (POSIX: orphaned
				// process groups), so that only SIGSTOP is sure to stop it.
				_ = t.Signal(unix.SIGSTOP)
				_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
				continue
			}
			_ = t.Signal(s) // it fails only when the command has ended
		}
	}()
}

// stop ends the relay and reports whether wall was asked to terminate.
func (r *relay) stop() (terminated bool) {
	signal.Stop(r.signals)
	close(r.signals)
	<-r.done
	return r.terminated.Load()
}

// drop ends a relay that never got a target.
func (r *relay) drop() {
	signal.Stop(r.signals)
}

// dieOf ends wall by the signal that ended the command, so that a shell which
// runs wall in a loop sees the Ctrl-C. It returns when the signal is ignored.
func dieOf(s syscall.Signal) {
	signal.Reset(s)
	// A core dump of wall would tell nothing about the command.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	if unix.Kill(os.Getpid(), s) == nil && !signal.Ignored(s) {
		// The signal is delivered to whichever thread comes first.
		time.Sleep(time.Second)
	}
}
