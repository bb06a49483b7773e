package main

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/gate"
	"github.com/wallsandbox/wall/plan"
)

// resultVersion is the version of the form of --json. It goes up when a field
// changes its meaning or goes away, not when one is added.
const resultVersion = 1

// How a run ended.
const (
	statusExited    = "exited"    // the command ran and ended by itself
	statusSignalled = "signalled" // the command ran and a signal ended it
	statusTimedOut  = "timed-out" // the limit of time ended it
	statusLimit     = "limit"     // another limit ended it
	statusDenied    = "denied"    // it was refused something, with --fail-on-denial
	statusNotRun    = "not-run"   // the command did not run
)

// A result is what --json FILE writes. "wall help json" publishes it.
type result struct {
	Version  int           `json:"version"`
	Wall     string        `json:"wall"`
	Profile  string        `json:"profile"`
	Enforce  plan.Enforce  `json:"enforce"`
	Command  []string      `json:"command"`
	Status   string        `json:"status"`
	Exit     int           `json:"exit"`
	Signal   *string       `json:"signal"`
	Error    *resultError  `json:"error"`
	Duration float64       `json:"duration_ms"`
	CPU      float64       `json:"cpu_ms"`
	MaxRSS   int64         `json:"max_rss_bytes"`
	Peak     *int64        `json:"peak_memory_bytes"` // of the whole box; null when there was no cgroup
	Limit    *string       `json:"limit"`             // the limit that ended the run: "time", "memory", "processes", "scratch", "total-output"
	Degraded []string      `json:"degraded"`
	Notices  []string      `json:"notices"`
	Warnings []string      `json:"warnings"`
	Denials  gate.Denials  `json:"denials"`
	Network  *gate.Network `json:"network"` // null when wall had nothing to count
	Cleanup  *string       `json:"cleanup"`
	Kept     *string       `json:"kept"` // the scratch directory, with --keep
}

// A resultError is why the command did not run, or which limit ended it.
type resultError struct {
	Op     string `json:"op"`
	Cause  string `json:"cause"`
	Origin string `json:"origin"`
	Hint   string `json:"hint"`
}

// newResult tells how a run went. p may be the zero Plan, when there was none;
// err is what kept the command from running, or what went wrong around it.
func newResult(p plan.Plan, command []string, o outcome, err error) result {
	r := o.result
	out := result{
		Version:  resultVersion,
		Wall:     wallVersion(),
		Profile:  p.Profile,
		Enforce:  p.Enforce,
		Command:  command,
		Status:   statusNotRun,
		Exit:     exitOf(o, err),
		Degraded: []string{},
		Notices:  []string{},
		Warnings: append([]string{}, o.warnings...),
		Denials:  gate.NewDenials(plan.Plan{}, egress.Summary{}),
	}
	if out.Command == nil {
		out.Command = []string{}
	}
	for _, d := range p.Degraded {
		out.Degraded = append(out.Degraded, strings.TrimPrefix(degradedLine(d), "degraded: "))
	}
	for _, n := range p.Notices {
		out.Notices = append(out.Notices, n.Text)
	}
	if o.kept != "" {
		out.Kept = &o.kept
	}
	if err != nil {
		out.Error = newResultError(err)
	}
	if !r.Started {
		return out
	}
	if o.cleanup != nil {
		text := o.cleanup.Error()
		out.Cleanup = &text
	}
	out.Status = statusExited
	if r.Signal != 0 {
		out.Status = statusSignalled
		name := signalName(r.Signal)
		out.Signal = &name
	}
	switch {
	case r.TimedOut:
		out.Status, out.Limit = statusTimedOut, new(plan.BoundTime)
	case r.Limit != "":
		out.Status, out.Limit = statusLimit, &r.Limit
	case o.denied:
		out.Status = statusDenied
	}
	out.Denials, out.Network = gate.NewDenials(p, r.Network), gate.NewNetwork(p, r.Network)
	if r.PeakMemory > 0 {
		out.Peak = &r.PeakMemory
	}
	out.Duration = milliseconds(r.Wall)
	out.CPU = milliseconds(r.UserTime + r.SysTime)
	out.MaxRSS = r.MaxRSS
	return out
}

// newResultError gives the parts of the first located error in err.
func newResultError(err error) *resultError {
	var e *plan.Error
	if !errors.As(err, &e) {
		return &resultError{Op: "run the command", Cause: err.Error()}
	}
	out := &resultError{Op: e.Op, Origin: e.Origin.String(), Hint: e.Hint}
	if e.Err != nil {
		out.Cause = e.Err.Error()
	}
	return out
}

// exitOf is the exit status of wall for a run.
func exitOf(o outcome, err error) int {
	status := o.result.ExitCode
	if o.result.Signal != 0 {
		status = 128 + int(o.result.Signal)
	}
	switch {
	case err != nil:
		return plan.ExitStatus(err)
	case o.terminated && status == 0:
		// Whoever terminates wall must not read success: the work was cut short.
		return 128 + int(unix.SIGTERM)
	}
	return status
}

// signalName is "SIGTERM" and the like; "SIG34" for a signal without a name.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(s))
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// encode is the text of the file: indented JSON and a final newline.
func (r result) encode() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(plan.PrintableJSON(b), '\n'), nil
}

// An event is one line of --status-fd.
type event struct {
	Event  string       `json:"event"` // "started" or "ended"
	Status string       `json:"status,omitempty"`
	Exit   *int         `json:"exit,omitempty"`
	Signal *string      `json:"signal,omitempty"`
	Limit  *string      `json:"limit,omitempty"`
	Error  *resultError `json:"error,omitempty"`
}

// ended is the last line of --status-fd.
func (r result) ended() event {
	return event{Event: "ended", Status: r.Status, Exit: &r.Exit, Signal: r.Signal, Limit: r.Limit, Error: r.Error}
}
