package main

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A recorder is a target that writes down what it gets.
type recorder struct {
	mu  sync.Mutex
	got []string
}

func (r *recorder) Signal(s os.Signal) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, fmt.Sprint(s))
	return nil
}

func (r *recorder) RestoreTerminal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, "restore")
}

func (r *recorder) Kill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, "kill")
	return nil
}

// wait waits until n things were recorded.
func (r *recorder) wait(t *testing.T, n int) string {
	t.Helper()
	for range 6000 {
		r.mu.Lock()
		done := len(r.got) >= n
		s := strings.Join(r.got, ",")
		r.mu.Unlock()
		if done {
			return s
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("only %v", r.got)
	return ""
}

func raise(t *testing.T, s unix.Signal) {
	t.Helper()
	if err := unix.Kill(os.Getpid(), s); err != nil {
		t.Fatal(err)
	}
}

func TestRelayPassesSignals(t *testing.T) {
	r := newRelay(useNone, func() { t.Error("the box is given up") }, endsRun)
	<-r.listening
	raise(t, unix.SIGUSR1) // waits for the command
	time.Sleep(50 * time.Millisecond)
	var rec recorder
	r.start(&rec, time.Minute)
	if got := rec.wait(t, 1); got != "user defined signal 1" {
		t.Errorf("got %s", got)
	}
	for i, s := range []unix.Signal{unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT, unix.SIGTERM} {
		raise(t, s)
		rec.wait(t, i+2)
	}
	told, gaveUp := r.stop()
	if told != unix.SIGTERM || gaveUp != 0 {
		t.Errorf("told %v, gave up %v", told, gaveUp)
	}
	want := "user defined signal 1,hangup,quit,user defined signal 2,window changed,continued,terminated"
	if got := rec.wait(t, 7); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRelayKillsOnSecondInterrupt(t *testing.T) {
	r := newRelay(useNone, func() {}, endsRun)
	<-r.listening
	var rec recorder
	r.start(&rec, time.Minute)
	raise(t, unix.SIGINT)
	rec.wait(t, 1)
	raise(t, unix.SIGINT)
	if got := rec.wait(t, 2); got != "interrupt,kill" {
		t.Errorf("got %s", got)
	}
	// A late one is a first one again.
	r.mu.Lock()
	r.interrupt = time.Now().Add(-secondInterrupt - time.Second)
	r.mu.Unlock()
	raise(t, unix.SIGINT)
	if got := rec.wait(t, 3); got != "interrupt,kill,interrupt" {
		t.Errorf("got %s", got)
	}
	if told, _ := r.stop(); told != 0 {
		t.Error("SIGINT is taken for SIGTERM")
	}
}

// TestRelayGrace: a command that is told to end and does not is killed, once, after its
// grace; one that ends is left alone, and so is the next one.
func TestRelayGrace(t *testing.T) {
	r := newRelay(useNone, func() {}, endsGate)
	<-r.listening
	var first, second recorder
	r.start(&first, time.Hour)
	raise(t, unix.SIGHUP)
	first.wait(t, 1)
	r.rest()
	r.start(&second, 20*time.Millisecond)
	raise(t, unix.SIGTERM)
	second.wait(t, 1)
	raise(t, unix.SIGINT)
	if got := second.wait(t, 3); got != "terminated,interrupt,kill" && got != "terminated,kill,interrupt" {
		t.Errorf("got %s", got)
	}
	if told, _ := r.stop(); told != unix.SIGHUP {
		t.Errorf("told %v", told)
	}
	if got := r.overdue(); got != "the command did not end within 20ms of SIGHUP, and was killed" {
		t.Error(got)
	}
	if got := first.wait(t, 1); got != "hangup" {
		t.Errorf("the one that ended got %s", got)
	}
	r = newRelay(useNone, func() {}, endsRun)
	<-r.listening
	var session recorder
	r.start(&session, 0)
	raise(t, unix.SIGHUP)
	raise(t, unix.SIGINT)
	session.wait(t, 2)
	raise(t, unix.SIGTERM)
	if got := session.wait(t, 4); !strings.HasSuffix(got, "terminated,kill") {
		t.Errorf("a session got %s", got)
	}
	if told, _ := r.stop(); told != unix.SIGTERM {
		t.Errorf("told %v", told)
	}
}

func TestGraceOf(t *testing.T) {
	var p plan.Plan
	if got := graceOf(p); got != defaultGrace {
		t.Errorf("got %v", got)
	}
	// "0" is a grace, too.
	p.Bounds.Grace = plan.Bound{By: plan.ByTimer}
	if got := graceOf(p); got != 0 {
		t.Errorf("got %v", got)
	}
}

func TestRelayGivesUpBeforeTheStart(t *testing.T) {
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		cancelled := make(chan struct{})
		r := newRelay(useNone, func() { close(cancelled) }, endsRun)
		<-r.listening
		raise(t, s)
		select {
		case <-cancelled:
		case <-time.After(time.Minute):
			t.Fatalf("%v does not end the start", s)
		}
		if _, gaveUp := r.stop(); gaveUp != s {
			t.Errorf("gave up for %v, want %v", gaveUp, s)
		}
	}
}

// TestRelayWaitsForTheStart: the command runs a little before wall knows; a
// signal sent in between is the command's.
func TestRelayWaitsForTheStart(t *testing.T) {
	var r *relay
	var rec recorder
	for try := 1; ; try++ {
		var late atomic.Bool
		r = newRelay(useNone, func() { late.Store(true) }, endsRun)
		<-r.listening
		begin := time.Now()
		raise(t, unix.SIGTERM)
		time.Sleep(giveUpAfter / 10)
		r.start(&rec, time.Minute)
		took := time.Since(begin)
		if !late.Load() {
			break
		}
		if r.stop(); took < giveUpAfter || try == 5 { // else it was this test that took too long
			t.Fatalf("the box is given up after %s", took)
		}
		rec = recorder{}
	}
	if got := rec.wait(t, 1); got != "terminated" {
		t.Errorf("got %s", got)
	}
	time.Sleep(giveUpAfter + giveUpAfter/10)
	if told, gaveUp := r.stop(); told != unix.SIGTERM || gaveUp != 0 {
		t.Errorf("told %v, gave up %v", told, gaveUp)
	}
}

// TestRelaySharesTheTerminal: the terminal has sent it to the command already.
func TestRelaySharesTheTerminal(t *testing.T) {
	r := newRelay(useShared, func() {}, endsRun)
	<-r.listening
	var rec recorder
	r.start(&rec, time.Minute)
	for _, s := range []unix.Signal{unix.SIGINT, unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH, unix.SIGUSR1} {
		raise(t, s)
	}
	rec.wait(t, 1)
	r.stop()
	if got := rec.wait(t, 1); got != "user defined signal 1" {
		t.Errorf("got %s", got)
	}
}

// TestRelayOrder: what was sent before SIGCONT goes before it, in whatever order it was
// heard of, but for a stop: that was sent later.
func TestRelayOrder(t *testing.T) {
	r := newRelay(usePrivate, func() {}, endsRun)
	<-r.listening
	var rec recorder
	r.start(&rec, time.Minute)
	// The first one holds the relay until the others have come.
	r.mu.Lock()
	for _, s := range []unix.Signal{unix.SIGWINCH, unix.SIGCONT, unix.SIGTERM, unix.SIGCONT, unix.SIGUSR1, unix.SIGTSTP, unix.SIGUSR2, unix.SIGCONT} {
		r.signals <- s
	}
	r.mu.Unlock()
	r.stop() // while it waits for more
	if got, want := rec.wait(t, 7), "window changed,terminated,user defined signal 1,continued,stopped (signal),user defined signal 2,continued"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
