package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/gate"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// A netLog is where --net-log writes: every event of a network as one line of JSON,
// as soon as it happens. The nil netLog writes nothing.
type netLog struct {
	mu    sync.Mutex
	w     io.Writer
	end   string   // of a line
	first any      // the line in front of the next one; nil for none
	log   *logFile // w, or nil for standard error
	err   error    // the first one; nothing is written after it

	patient *patientWriter // w, or nil for a file
}

// errUnread is the error of a log that nobody has read to its end. What was there to
// be read is what its reader made of it, so that the status stays the command's.
var errUnread = errors.New("nobody reads standard error")

// A patientWriter waits for a reader as long as the box lives, however long that is,
// and stuckAfter from then on.
type patientWriter struct {
	w io.Writer

	mu   sync.Mutex
	over chan struct{} // closed when the box has ended
	done bool          // it is
}

func newPatientWriter(w io.Writer) *patientWriter {
	return &patientWriter{w: w, over: make(chan struct{})}
}

// begin says that there is a box again, end that it has ended.
func (p *patientWriter) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		p.over, p.done = make(chan struct{}), false
	}
}

func (p *patientWriter) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		close(p.over)
		p.done = true
	}
}

// Write may still use b when it fails with errUnread.
func (p *patientWriter) Write(b []byte) (int, error) {
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	type result struct {
		n   int
		err error
	}
	begun, written := time.Now(), make(chan result, 1)
	go func() {
		n, err := p.w.Write(b)
		written <- result{n, err}
	}()
	select {
	case r := <-written:
		return r.n, r.err
	case <-over:
	}
	select {
	case r := <-written:
		return r.n, r.err
	case <-time.After(stuckAfter - time.Since(begun)):
		return 0, errUnread
	}
}

// A netEvent is one line. "wall help network" publishes it.
type netEvent struct {
	Time     string  `json:"time"`
	Event    string  `json:"event"`   // start, dns, open, close, deny, fail or end
	Verdict  string  `json:"verdict"` // allowed, denied or failed
	Phase    string  `json:"phase,omitempty"`
	Via      string  `json:"via"`
	Name     string  `json:"name"`
	Addr     string  `json:"address"`
	Port     int     `json:"port"`
	Rule     string  `json:"rule"`
	Reason   string  `json:"reason"`
	Received int64   `json:"received_bytes"`
	Sent     int64   `json:"sent_bytes"`
	Duration float64 `json:"duration_ms"`
}

// A netStart is the line in front of those of a command, a netEnd the one behind them.
type netStart struct {
	Time    string `json:"time"`
	Event   string `json:"event"`
	Version int    `json:"version"`
	Phase   string `json:"phase,omitempty"`
	Network string `json:"network"` // redirect, proxy, ports, none or host
	Reports bool   `json:"reports"` // what is refused is told
}

type netEnd struct {
	Time  string `json:"time"`
	Event string `json:"event"`
	Phase string `json:"phase,omitempty"`
	gate.Network
	Denied int64 `json:"denied"`
}

// openNetLog opens the place of --net-log; nil when the flag was not given. A file
// is written while the command runs, so that it has to lie where the command cannot
// reach it. "-" is standard error.
func (f *runFlags) openNetLog(s streams, host profile.Host, p plan.Plan) (*netLog, error) {
	switch f.netLog {
	case "":
		return nil, nil
	case "-":
		w := newPatientWriter(s.err)
		return &netLog{w: w, end: "\n", patient: w}, nil
	}
	l, err := openLog("net-log", f.netLog, logOptions{size: 64 << 20, files: 2}, host.Cwd, untrustedDirs(host, p), p)
	if err != nil {
		return nil, err
	}
	return &netLog{w: l, end: "\n", log: l}, nil
}

// raw has lines on a terminal end as one needs that a private terminal has made raw.
func (l *netLog) raw() {
	if l != nil && l.log == nil {
		l.mu.Lock()
		l.end = "\r\n"
		l.mu.Unlock()
	}
}

// start says which command the next lines are of. The line for it is written with
// the first of them, so that a start which fails leaves none.
func (l *netLog) start(phase string, p plan.Plan) {
	if l == nil {
		return
	}
	network := "none"
	if n := gate.NewNetwork(p, egress.Summary{}); n != nil {
		network = n.Method
	} else if !slices.ContainsFunc(p.Spaces, func(s plan.Space) bool { return s.Kind == plan.SpaceNet }) {
		network = "host"
	}
	if l.patient != nil {
		l.patient.begin()
	}
	l.mu.Lock()
	l.first = netStart{now(), "start", resultVersion, phase, network, gate.Reports(p)}
	l.mu.Unlock()
}

// event writes one event.
func (l *netLog) event(phase string, e egress.Event) {
	if l == nil {
		return
	}
	x := netEvent{Time: timeText(e.Time), Event: e.Kind, Verdict: "allowed", Phase: phase, Via: e.Via, Name: e.Name, Addr: e.Addr, Port: e.Port,
		Rule: e.Rule.String(), Reason: e.Reason, Received: e.In, Sent: e.Out, Duration: milliseconds(e.Duration)}
	switch {
	case e.Kind == egress.KindFail:
		x.Verdict = "failed"
	case e.Kind == egress.KindDeny, e.Kind == egress.KindDNS && e.Reason != "":
		x.Verdict = "denied"
	}
	l.line(x)
}

// finish ends the lines of one command.
func (l *netLog) finish(phase string, p plan.Plan, s egress.Summary) {
	if l == nil {
		return
	}
	if l.patient != nil {
		l.patient.end() // before the lock, which a line that is being written has
	}
	x := netEnd{Time: now(), Event: "end", Phase: phase, Denied: s.Denied}
	if n := gate.NewNetwork(p, s); n != nil {
		x.Network = *n
	}
	l.line(x)
}

// close ends the log and tells why it is not complete; nil when it is.
func (l *netLog) close() error {
	if l == nil {
		return nil
	}
	if l.patient != nil {
		l.patient.end() // a start that failed has had no finish
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.log != nil {
		l.log.close()
		if l.err == nil {
			l.err = l.log.err
		}
	}
	return l.err
}

func (l *netLog) line(v any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.first
	l.first = nil
	for _, x := range []any{first, v} {
		if x == nil || l.err != nil {
			continue
		}
		var data []byte
		if data, l.err = json.Marshal(x); l.err == nil {
			_, l.err = l.w.Write(append(plan.PrintableJSON(data), l.end...))
		}
	}
}

func now() string { return timeText(time.Now()) }

func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// closeNetLog ends the log of a run with so many events dropped, and tells why it is not complete.
func (f *runFlags) closeNetLog(s streams, l *netLog, dropped int64) (warnings []string, err error) {
	if err = l.close(); err == nil {
		return nil, nil
	}
	noteUnread(s.err, err)
	w, err := netLogError(f.netLog, err, dropped)
	if w != "" {
		warnings = []string{w}
	}
	return warnings, err
}

// netLogError tells that the log is not complete: by an error, or by a warning where
// nobody read it.
func netLogError(name string, err error, dropped int64) (warning string, _ error) {
	if errors.Is(err, errUnread) {
		lost := "its end"
		switch {
		case dropped == 1:
			lost = "1 event and its end"
		case dropped > 1:
			lost = fmt.Sprintf("%d events and its end", dropped)
		}
		return "the network log lacks " + lost + ": " + err.Error(), nil
	}
	return "", &plan.Error{Op: "cannot write all of the network log", Origin: flagOrigin("--net-log " + quoteOdd(name)), Err: err}
}

// reportable refuses --fail-on-denial where no wall would report a denial.
func (f *runFlags) reportable(plans ...plan.Plan) error {
	if !f.failOnDenial || slices.ContainsFunc(plans, gate.Reports) {
		return nil
	}
	return &plan.Error{Op: "cannot fail the command for what it is refused", Origin: flagOrigin("--fail-on-denial"),
		Err:  &plan.UnsupportedError{Feature: "a report of what is refused", Need: `network mode "allow"`},
		Hint: "what the other walls refuse, the kernel tells the command alone; add --net allow, or leave out --fail-on-denial"}
}

// denialText tells the operator what the network wall refused, and what failed.
func denialText(p plan.Plan, s egress.Summary) string {
	var b strings.Builder
	for _, l := range slices.Concat(gate.NewDenials(p, s).Lines(p.Profile), gate.Failures(s)) {
		b.WriteString("wall: network: " + oneLine(l) + "\n")
	}
	return b.String()
}
