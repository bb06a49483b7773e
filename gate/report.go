package gate

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/plan"
)

// Version is the version of the JSON form. It goes up when a field changes its
// meaning or goes away, not when one is added.
const Version = 1

//go:embed result.schema.json
var schema string

// Schema is the JSON Schema (draft 2020-12) of [Result.JSON].
func Schema() string { return schema }

// Facts are what a result says besides how the commands went.
type Facts struct {
	Wall          string // version of wall, or of the program that uses this package
	Profile       string // name
	ProfileDigest string // SHA-256 over the texts of its layers, see profile.Digest; "" unknown
	Kernel        string // release of the running kernel
	Command       []string
	Log           *LogFacts // nil: no log was asked for
}

// LogFacts are where the whole output is.
type LogFacts struct {
	File  string `json:"file"`
	Files int    `json:"files"`      // that there are, FILE.1 and so on among them
	Bytes int64  `json:"bytes"`      // written in all
	Lost  int64  `json:"lost_bytes"` // of the beginning, dropped by rotation
	Error string `json:"error,omitempty"`
}

type jsonResult struct {
	Version int         `json:"version"`
	Wall    string      `json:"wall"`
	Started string      `json:"started"`
	Profile jsonProfile `json:"profile"`
	Kernel  string      `json:"kernel"`
	jsonOutcome
	Changes *jsonChanges `json:"changes"`
	Log     *LogFacts    `json:"log"`
	Kept    *string      `json:"kept"`
	Cleanup *string      `json:"cleanup"`
	Phases  []jsonPhase  `json:"phases"`
}

type jsonProfile struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
}

type jsonPhase struct {
	Name    string `json:"name"`
	Skipped bool   `json:"skipped"`
	jsonOutcome
}

type jsonOutcome struct {
	Status     Status       `json:"status"`
	Exit       int          `json:"exit"`
	Code       *int         `json:"code"`
	Signal     *string      `json:"signal"`
	Limit      *string      `json:"limit"`
	Error      *jsonError   `json:"error"`
	Command    []string     `json:"command"`
	Enforce    plan.Enforce `json:"enforce"`
	PlanDigest string       `json:"plan_digest"`
	Walls      []WallState  `json:"walls"`
	Degraded   []string     `json:"degraded"`
	Notices    []string     `json:"notices"`
	Warnings   []string     `json:"warnings"`
	Denials    Denials      `json:"denials"`
	Network    *Network     `json:"network"`
	Duration   float64      `json:"duration_ms"`
	UserTime   float64      `json:"user_ms"`
	SysTime    float64      `json:"system_ms"`
	MaxRSS     int64        `json:"max_rss_bytes"`
	PeakMemory *int64       `json:"peak_memory_bytes"`
	Scratch    *int64       `json:"scratch_bytes"`
	Output     jsonOutput   `json:"output"`
}

type jsonError struct {
	Op     string `json:"op"`
	Cause  string `json:"cause"`
	Origin string `json:"origin"`
	Hint   string `json:"hint"`
}

type jsonOutput struct {
	Text        string `json:"text"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
	Cut         int64  `json:"cut_bytes"`
}

type jsonChanges struct {
	Created  int  `json:"created"`
	Modified int  `json:"modified"`
	Deleted  int  `json:"deleted"`
	Partial  bool `json:"partial"`
}

// SignalName is "SIGTERM" and the like; "SIG34" for a signal without a name.
func SignalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "SIG" + strconv.Itoa(int(s))
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

func pointer[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func (o Outcome) json(command []string) (jsonOutcome, error) {
	j := jsonOutcome{
		Status: o.Status, Exit: o.Exit,
		Limit: pointer(o.Limit), Command: command, Enforce: o.Plan.Enforce,
		Walls: []WallState{}, Degraded: []string{}, Notices: []string{}, Warnings: append([]string{}, o.Warnings...),
		Denials:  NewDenials(plan.Plan{}, egress.Summary{}),
		Duration: milliseconds(o.Wall), UserTime: milliseconds(o.UserTime), SysTime: milliseconds(o.SysTime), MaxRSS: o.MaxRSS,
		PeakMemory: pointer(o.PeakMemory),
		Output:     jsonOutput{o.Output.Text, o.Output.StdoutBytes, o.Output.StderrBytes, o.Output.Cut},
	}
	if len(o.Plan.Command.Argv) > 0 {
		j.Command = o.Plan.Command.Argv
	}
	if j.Command == nil {
		j.Command = []string{}
	}
	if o.Code >= 0 {
		j.Code = &o.Code
	}
	if o.Signal != 0 {
		j.Signal = pointer(SignalName(o.Signal))
	}
	if o.Err != nil {
		j.Error = errorJSON(o.Err)
	}
	if o.Scratch >= 0 {
		j.Scratch = &o.Scratch
	}
	for _, d := range o.Plan.Degraded {
		text := string(d.Wall) + ": " + d.Lost
		if d.Cause != "" {
			text += " (" + d.Cause + ")"
		}
		j.Degraded = append(j.Degraded, text)
	}
	for _, n := range o.Plan.Notices {
		j.Notices = append(j.Notices, n.Text)
	}
	if o.Plan.Version != 0 {
		var err error
		if j.PlanDigest, err = Digest(o.Plan); err != nil {
			return j, err
		}
	}
	if o.Status != NotRun {
		j.Walls = Walls(o.Plan)
		j.Denials, j.Network = NewDenials(o.Plan, o.Network), NewNetwork(o.Plan, o.Network)
	}
	return j, nil
}

// errorJSON gives the parts of the first located error in err.
func errorJSON(err error) *jsonError {
	var e *plan.Error
	if !errors.As(err, &e) {
		return &jsonError{Op: "run the command", Cause: err.Error()}
	}
	out := &jsonError{Op: e.Op, Origin: e.Origin.String(), Hint: e.Hint}
	if e.Err != nil {
		out.Cause = e.Err.Error()
	}
	return out
}

// JSON gives the result as [Schema] describes it, indented, with a final line
// break. It holds no value of an environment variable. The output of the command
// is in it as the command wrote it, escaped as JSON does, and so that a CI system
// which reads orders in what it records finds none.
func (r Result) JSON(f Facts) ([]byte, error) {
	top, err := r.json(f.Command)
	if err != nil {
		return nil, err
	}
	j := jsonResult{
		Version: Version, Wall: f.Wall, Started: r.Started.UTC().Format(time.RFC3339Nano),
		Profile: jsonProfile{f.Profile, f.ProfileDigest}, Kernel: f.Kernel,
		jsonOutcome: top, Log: f.Log, Kept: pointer(r.Kept), Phases: []jsonPhase{},
	}
	if c := r.Changes; c != nil {
		j.Changes = &jsonChanges{c.Created, c.Modified, c.Deleted, c.Partial}
	}
	if r.Cleanup != nil {
		j.Cleanup = pointer(r.Cleanup.Error())
	}
	for _, ph := range r.Phases {
		if ph.Name == "" {
			continue // the only one
		}
		o, err := ph.json(nil)
		if err != nil {
			return nil, err
		}
		j.Phases = append(j.Phases, jsonPhase{ph.Name, ph.Skipped, o})
	}
	data, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(plan.PrintableJSON(data), '\n'), nil
}

// Verdict is the result in one line, without the command's words.
func (o Outcome) Verdict() string {
	took := o.Wall.Round(time.Millisecond).String()
	switch o.Status {
	case Passed:
		return "passed in " + took
	case TimedOut:
		return "timed out after " + took + ", and was ended"
	case Limit:
		return "ended after " + took + ": it reached the limit of " + o.Limit
	case NotRun:
		if o.Err == nil {
			return "not run"
		}
		return "not run: wall failed, and the command did not run"
	case Denied:
		return "failed: it was refused what the profile does not allow"
	}
	switch {
	case o.Signal != 0:
		return "failed in " + took + ": ended by " + SignalName(o.Signal)
	case o.Code > 0:
		return fmt.Sprintf("failed in %s with exit status %d", took, o.Code)
	}
	return fmt.Sprintf("failed in %s", took)
}

// Text gives the result for a person: the verdict, what there is to know, and the
// end of the output, each line of it behind "  | ", without anything that could
// steer a terminal or pass for a line of wall's. Why a command did not run is left
// to whoever prints errors.
func (r Result) Text(f Facts) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString("wall: gate: " + plan.Printable(fmt.Sprintf(format, args...)) + "\n")
	}
	for _, ph := range r.Phases {
		switch {
		case ph.Name == "":
		case ph.Skipped:
			line("phase %s skipped", ph.Name)
		default:
			line("phase %s %s", ph.Name, ph.Verdict())
		}
	}
	line("%s", r.Verdict())
	if r.Status != NotRun {
		var up []string
		for _, w := range Walls(r.Plan) {
			if w.Up {
				up = append(up, string(w.Wall))
			}
		}
		line("profile %s, enforce %s, walls: %s", f.Profile, r.Plan.Enforce, strings.Join(up, " "))
		text := fmt.Sprintf("processor time %v, largest process %s, output %s", (r.UserTime + r.SysTime).Round(time.Millisecond), size(r.MaxRSS), size(r.Output.StdoutBytes+r.Output.StderrBytes))
		if r.PeakMemory > 0 {
			text += ", memory " + size(r.PeakMemory)
		}
		if r.Scratch >= 0 {
			text += ", scratch " + size(r.Scratch)
		}
		if c := r.Changes; c != nil {
			more := ""
			if c.Partial {
				more = " or more"
			}
			text += fmt.Sprintf(", files%s: %d created, %d modified, %d deleted", more, c.Created, c.Modified, c.Deleted)
		}
		line("%s", text)
	}
	for _, ph := range r.Phases {
		if ph.Skipped || ph.Status == NotRun {
			continue
		}
		what := "network"
		if ph.Name != "" {
			what += " of phase " + ph.Name
		}
		for _, l := range NewDenials(ph.Plan, ph.Network).Lines(f.Profile) {
			line("%s: %s", what, l)
		}
		for _, l := range Failures(ph.Network) {
			line("%s: %s", what, l)
		}
	}
	if l := f.Log; l != nil {
		switch {
		case l.Error != "":
			line("some of the output is in %s", l.File)
		case l.Lost > 0:
			line("the output is in %s, without its first %s", l.File, size(l.Lost))
		default:
			line("the whole output is in %s", l.File)
		}
	}
	if r.Output.Text != "" {
		if r.Output.Cut > 0 {
			line("end of the output; %s before it", size(r.Output.Cut))
		} else {
			line("output")
		}
		b.WriteString(Quoted(r.Output.Text))
	}
	return b.String()
}

// Quoted gives foreign lines for a person, each behind "  | ".
func Quoted(text string) string {
	var b strings.Builder
	for l := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		b.WriteString("  | " + plan.Printable(strings.TrimSuffix(l, "\r")) + "\n")
	}
	return b.String()
}

// size writes bytes for a person.
func size(n int64) string {
	for _, u := range []struct {
		name string
		n    int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.n {
			return strconv.FormatFloat(float64(n)/float64(u.n), 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// JUnit writes the result as JUnit XML: one test suite with a test case for each
// phase. A command that did not run is an error, one that failed a failure.
// Characters that XML cannot hold are replaced by U+FFFD.
func (r Result) JUnit(w io.Writer, f Facts) error {
	seconds := func(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
	suite := xmlText("wall gate " + f.Profile)
	var cases strings.Builder
	failures, errs, skipped := 0, 0, 0
	for _, ph := range r.Phases {
		name := ph.Name
		if name == "" {
			name = "gate"
		}
		fmt.Fprintf(&cases, "  <testcase name=\"%s\" classname=\"%s\" time=\"%s\">\n", xmlText(name), suite, seconds(ph.Wall))
		element := ""
		switch {
		case ph.Skipped:
			cases.WriteString("    <skipped message=\"an earlier phase did not pass\"></skipped>\n")
			skipped++
		case ph.Status == NotRun:
			element = "error"
			errs++
		case ph.Status != Passed:
			element = "failure"
			failures++
		}
		if element != "" {
			text := ""
			if ph.Err != nil {
				text = plan.Explain(ph.Err)
			}
			fmt.Fprintf(&cases, "    <%s message=\"%s\" type=\"%s\">%s</%s>\n", element, xmlText(ph.Verdict()), ph.Status, xmlText(text), element)
		}
		if ph.Output.Text != "" {
			fmt.Fprintf(&cases, "    <system-out>%s</system-out>\n", xmlText(ph.Output.Text))
		}
		cases.WriteString("  </testcase>\n")
	}
	_, err := fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"%s\" tests=\"%d\" failures=\"%d\" errors=\"%d\" skipped=\"%d\" time=\"%s\" timestamp=\"%s\">\n%s</testsuite>\n",
		suite, len(r.Phases), failures, errs, skipped, seconds(r.Wall), r.Started.UTC().Format("2006-01-02T15:04:05"), cases.String())
	return err
}

// xmlText writes a text for an element or an attribute: what is no character of XML
// 1.0 (https://www.w3.org/TR/xml/#charsets) replaced, what has a meaning escaped.
func xmlText(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '&':
			b.WriteString("&amp;")
		case r == '<':
			b.WriteString("&lt;")
		case r == '>':
			b.WriteString("&gt;")
		case r == '"':
			b.WriteString("&#34;")
		case r == '\r':
			b.WriteString("&#13;")
		case r == '\t' || r == '\n' || r >= 0x20 && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000:
			b.WriteRune(r)
		default:
			b.WriteRune(utf8.RuneError)
		}
	}
	return b.String()
}
