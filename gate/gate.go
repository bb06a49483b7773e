package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"reflect"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/scratch"
)

// A Status is the verdict of a gate.
type Status string

// The verdicts.
const (
	Passed   Status = "passed"    // the command ran and ended with status 0
	Failed   Status = "failed"    // it ran and ended otherwise, or nobody knows how
	TimedOut Status = "timed-out" // it ran longer than its time limit
	Limit    Status = "limit"     // it reached another limit, see Outcome.Limit
	Denied   Status = "denied"    // it was refused something, and Options.FailOnDenial fails it for that
	NotRun   Status = "not-run"   // it did not run
)

// Options says what a gate does besides running commands. The zero value is fine.
type Options struct {
	// Stdout and Stderr get the output of the command as it comes. An error of
	// theirs ends the copying and is told in Outcome.Warnings; it does not end the command.
	Stdout, Stderr io.Writer
	// Log gets both streams, in the order in which they are read. As above.
	Log io.Writer
	// Workspace is the directory whose changed files are counted; "" = none is.
	Workspace string
	// Adopt ends also those descendants of a command without a box (enforce "off")
	// that left its process group: they become children of this process, and every
	// child of this process is killed when the command has ended. Only for a program
	// that has no other children, such as wall itself.
	Adopt bool
	// FailOnDenial makes the verdict Denied when a wall reports that it refused
	// something to a command that ended by itself. What walls do not report, see
	// [Denials], has no part in it.
	FailOnDenial bool
	// NetEvents is called with what a command does on its network, see
	// nsexec.Cmd.NetEvents; nil when nobody wants to know.
	NetEvents func(phase string, e egress.Event)
	// Starting is called with every plan before the start that tries it; its error is
	// why the command does not run.
	Starting func(phase string, p plan.Plan) error
	// Fill fetches the values of variables right before the start (package
	// envscrub/source); nil when the plans have all of them.
	Fill func(ctx context.Context, p plan.Plan) (plan.Plan, error)
	// Failed is called when a start failed, before another plan is asked for.
	Failed func(phase string, err error)
	// Started is called when a command runs: it may send signals. Ended is called when
	// everything of it has ended, with what is known of that.
	Started func(phase string, c *nsexec.Cmd)
	Ended   func(phase string, r nsexec.Result)
}

// A Phase is one command of a gate.
type Phase struct {
	Name string // "" when there is only one
	// Plan gives the plan right before the start. It is called again when the start
	// fails, because the host may have changed meanwhile; a second plan that is the
	// same makes the failure final. The plans of all phases must name one scratch
	// directory.
	Plan func() (plan.Plan, error)
}

// An Outcome is how a command went.
type Outcome struct {
	Status Status
	Exit   int            // exit status by wall's table: the command's own, 128+n, or 122 to 127
	Code   int            // exit status of the command; -1 when it did not run or a signal ended it
	Signal syscall.Signal // that ended the command, or 0
	Limit  string         // "time", "memory", "processes", "scratch", "total-output"; "" for none
	Err    error          // why it did not run, or what went wrong around it; nil for nothing

	Plan   plan.Plan // as it was carried out, or the last that was tried; values of variables are left out
	Output Output

	Wall     time.Duration // from the start of making the box to its end
	UserTime time.Duration // processor time, of the processes that were waited for
	SysTime  time.Duration
	MaxRSS   int64 // bytes, of the largest process
	// PeakMemory is that of everything at its largest, in bytes; 0 when nobody counted,
	// because there was no cgroup for the command.
	PeakMemory int64
	Scratch    int64 // bytes in the scratch directory at the end; -1 when there is none
	Network    egress.Summary

	Warnings []string // what the operator should know; none changes the verdict
}

// A PhaseOutcome is the outcome of one phase.
type PhaseOutcome struct {
	Name    string
	Skipped bool // an earlier phase did not pass
	Outcome
}

// A Result is how a gate went. Its Outcome is that of the phase that decided: the
// first that did not pass, or else the last, with the times of all phases added up.
type Result struct {
	Outcome
	Phases  []PhaseOutcome // in order
	Changes *Changes       // of the workspace; nil when they were not counted
	Kept    string         // the scratch directory, when the plan says to keep it
	Cleanup error          // what could not be removed
	Started time.Time
}

// maxStarts bounds how often another plan is tried.
const maxStarts = 5

// patience is how long the output of a command may be held open when everything that
// wall can end has ended.
const patience = time.Second

// Streams is what the command of a gate finds on descriptors 0 to 2, for
// profile.Host.Stdio: /dev/null and two pipes, whatever the program itself has there.
func Streams() []plan.Stdio {
	return []plan.Stdio{
		{FD: 0, Kind: plan.StdioNull, Read: true, Write: true},
		{FD: 1, Kind: plan.StdioPipe, Write: true},
		{FD: 2, Kind: plan.StdioPipe, Write: true},
	}
}

// Run runs the command of one plan. The plan must be valid, with the value of
// every variable. When ctx is done the command is killed, and the verdict is
// Failed. Run returns when everything the command started has ended, but for the
// exception in [Options].
func Run(ctx context.Context, p plan.Plan, o Options) Result {
	return RunPhases(ctx, []Phase{{Plan: func() (plan.Plan, error) { return p, nil }}}, o)
}

// RunPhases runs commands one after the other, until one does not pass. They share
// the scratch directory, so that what one leaves at HOME the next one finds.
func RunPhases(ctx context.Context, phases []Phase, o Options) Result {
	g := runner{o: o}
	r := Result{Started: time.Now()}
	var before census
	if o.Workspace != "" {
		before = take(o.Workspace, MaxEntries)
	}
	ok := len(phases) > 0
	for _, ph := range phases {
		if !ok {
			r.Phases = append(r.Phases, PhaseOutcome{Name: ph.Name, Skipped: true, Outcome: notRun(nil)})
			continue
		}
		out := g.phase(ctx, ph)
		r.Phases = append(r.Phases, PhaseOutcome{Name: ph.Name, Outcome: out})
		ok = out.Status == Passed
		r.sum(out)
	}
	if len(phases) == 0 {
		r.Outcome = notRun(errors.New("gate: no command"))
	}
	if g.dir != nil {
		if g.keep {
			r.Kept = g.dir.Path()
		}
		r.Cleanup = g.dir.Remove()
	}
	if o.Workspace != "" {
		ch := take(o.Workspace, MaxEntries).since(before)
		r.Changes = &ch
	}
	return r
}

// sum takes over the outcome of the latest phase.
func (r *Result) sum(out Outcome) {
	was := r.Outcome
	r.Outcome = out
	r.Wall += was.Wall
	r.UserTime += was.UserTime
	r.SysTime += was.SysTime
	r.MaxRSS = max(r.MaxRSS, was.MaxRSS)
	r.PeakMemory = max(r.PeakMemory, was.PeakMemory)
	r.Scratch = max(r.Scratch, was.Scratch)
	r.Warnings = append(slices.Clip(was.Warnings), out.Warnings...)
}

// Refused is the result of a gate that came to no start.
func Refused(err error) Result {
	return Result{Outcome: notRun(err), Started: time.Now(), Phases: []PhaseOutcome{{Outcome: notRun(err)}}}
}

func notRun(err error) Outcome {
	return Outcome{Status: NotRun, Exit: plan.ExitStatus(err), Code: -1, Err: err, Scratch: -1}
}

// A runner runs the phases of one gate.
type runner struct {
	o    Options
	dir  *scratch.Dir // of all phases; nil before the first
	ran  bool         // a command has used it
	keep bool
}

// phase runs one command.
func (g *runner) phase(ctx context.Context, ph Phase) Outcome {
	var last plan.Plan
	for tries := 1; ; tries++ {
		p, err := ph.Plan()
		if err != nil {
			return notRun(err)
		}
		out := g.try(ctx, ph.Name, p)
		if out.Status != NotRun || ctx.Err() != nil || !nsexec.Again(out.Err, tries) && (tries >= maxStarts || tries > 1 && reflect.DeepEqual(p, last)) {
			out.Plan = p.Redact()
			return out
		}
		if g.o.Failed != nil {
			g.o.Failed(ph.Name, out.Err)
		}
		last = p
	}
}

// try runs the command of one plan.
func (g *runner) try(ctx context.Context, name string, p plan.Plan) Outcome {
	if p.Bounds.Output.Value > MaxOutput {
		return notRun(&plan.Error{Op: fmt.Sprintf("a gate keeps at most %d characters or bytes of the output", MaxOutput), Origin: p.Bounds.Output.Origin, Hint: "use --log for all of it"})
	}
	if g.o.Starting != nil {
		if err := g.o.Starting(name, p); err != nil {
			return notRun(err)
		}
	}
	if err := g.prepare(p); err != nil {
		return notRun(err)
	}
	filled := p
	if g.o.Fill != nil {
		var err error
		if filled, err = g.o.Fill(ctx, p); err != nil {
			return notRun(err)
		}
	}
	cmd := nsexec.CommandContext(ctx, filled)
	cmd.Scratch, cmd.OwnGroup = g.dir, true
	if g.o.NetEvents != nil {
		cmd.NetEvents = func(e egress.Event) { g.o.NetEvents(name, e) }
	}
	var drains [2]*drain
	for i := range drains {
		d, err := openDrain()
		if err != nil {
			if i > 0 {
				drains[0].close()
			}
			return notRun(&plan.Error{Op: "cannot make a pipe for the output", Err: err})
		}
		drains[i] = d
	}
	cmd.Stdout, cmd.Stderr, cmd.Metered = drains[0].write, drains[1].write, true
	if p.Enforce == plan.EnforceOff && g.o.Adopt {
		if err := adopt(); err != nil {
			drains[0].close()
			drains[1].close()
			return notRun(&plan.Error{Op: "cannot become the parent of orphans", Err: err})
		}
	}
	if err := cmd.Start(); err != nil {
		drains[0].close()
		drains[1].close()
		return notRun(err)
	}
	g.ran = true
	sinks := newSinks(outputOf(p.Bounds), g.o)
	sinks.stdout.wrote, sinks.stderr.wrote = cmd.Wrote, cmd.Wrote
	drains[0].start(&sinks.stdout)
	drains[1].start(&sinks.stderr)
	if g.o.Started != nil {
		g.o.Started(name, cmd)
	}
	err := cmd.Wait()
	if g.o.Ended != nil {
		g.o.Ended(name, cmd.Result())
	}

	out := Outcome{}
	for _, e := range cmd.SeedErrors() {
		out.Warnings = append(out.Warnings, e.Error())
	}
	boxed := p.Enforce != plan.EnforceOff
	if !boxed && g.o.Adopt {
		if n, aerr := endOrphans(); aerr != nil {
			out.Warnings = append(out.Warnings, "something that the command started may still run: "+aerr.Error())
		} else if n > 0 {
			out.Warnings = append(out.Warnings, fmt.Sprintf("%d processes that the command had left running were killed", n))
		}
	}
	for i, d := range drains {
		held, derr := d.finish(patience)
		switch {
		case held && boxed:
			out.Warnings = append(out.Warnings, fmt.Sprintf("the command gave its descriptor %d to a process outside of the box, which still holds it", i+1))
		case held:
			out.Warnings = append(out.Warnings, fmt.Sprintf("something that the command started still holds its descriptor %d, and may still run", i+1))
		}
		if derr != nil {
			out.Warnings = append(out.Warnings, fmt.Sprintf("descriptor %d of the command was not read to its end: %v", i+1, derr))
		}
	}
	out.Output = combine(sinks.stdout.tail, sinks.stderr.tail)
	out.Warnings = append(out.Warnings, sinks.problems()...)
	out.judge(cmd.Result(), p, err, ctx.Err())
	if g.o.FailOnDenial {
		out.failOnDenial(p)
	}
	if doubt := cmd.Result().Doubts(p); doubt != "" {
		out.Warnings = append(out.Warnings, doubt)
	}
	out.Scratch = -1
	if g.dir != nil {
		out.Scratch = treeSize(g.dir.FD())
	}
	return out
}

// prepare makes the scratch directory, or makes that of the phase before fit for p.
func (g *runner) prepare(p plan.Plan) error {
	s := p.Scratch
	if g.dir != nil && !g.ran {
		// Of a start that failed: another plan may have something else in it.
		d := g.dir
		g.dir = nil
		if err := d.Remove(); err != nil {
			return err
		}
	}
	switch {
	case g.dir == nil && s.Root == "":
		return nil
	case g.dir == nil:
		d, err := scratch.Prepare(s)
		g.dir, g.keep = d, s.Keep
		return err
	case s.Path() != g.dir.Path():
		return &plan.Error{Op: "wall bug: the phases of a gate have different scratch directories", Hint: "please report this"}
	}
	var works []string
	for _, m := range p.Mounts {
		if m.Op == plan.OpOverlay && !path.IsAbs(m.Work) {
			works = append(works, m.Work)
		}
	}
	return g.dir.Renew(s, works)
}

// judge gives the verdict. Everything that is not certainly a success is none.
func (o *Outcome) judge(r nsexec.Result, p plan.Plan, err, done error) {
	o.Code, o.Signal, o.Limit = r.ExitCode, r.Signal, r.Limit
	o.Wall, o.UserTime, o.SysTime, o.MaxRSS, o.PeakMemory = r.Wall, r.UserTime, r.SysTime, r.MaxRSS, r.PeakMemory
	o.Network = r.Network
	if o.Signal != 0 {
		o.Code = -1
	}
	var exit *nsexec.ExitError
	if errors.As(err, &exit) {
		err = nil // that is in the result
	}
	o.Err = errors.Join(r.Exceeded(p), err)
	if err == nil {
		o.Err = r.Exceeded(p)
	}
	switch {
	case r.TimedOut:
		o.Status, o.Exit, o.Limit = TimedOut, plan.ExitTimeout, plan.BoundTime
	case r.Limit != "":
		o.Status, o.Exit = Limit, plan.ExitLimit
	case err != nil:
		o.Status, o.Exit = Failed, plan.ExitStatus(err)
	case done != nil && (r.Killed || r.Signal == syscall.SIGKILL):
		o.Status, o.Exit, o.Err = Failed, r.Status(), done
	case r.Status() != 0:
		o.Status, o.Exit = Failed, r.Status()
	case r.Started && !r.Killed:
		o.Status, o.Exit = Passed, 0
	default:
		o.Status, o.Exit = Failed, plan.ExitFailed
	}
}

// failOnDenial turns the verdict on a command that ended by itself.
func (o *Outcome) failOnDenial(p plan.Plan) {
	d := NewDenials(p, o.Network)
	if d.Count == 0 || o.Err != nil || o.Status != Passed && o.Status != Failed {
		return
	}
	o.Status, o.Exit, o.Err = Denied, plan.ExitDenied, d.DeniedError()
}

// sinks are where the output of a command goes.
type sinks struct {
	stdout, stderr sink
}

// A sink gets one stream.
type sink struct {
	tail  *tail
	to    []*outlet
	wrote func(int) int // see [nsexec.Cmd.Wrote]; nil in tests
}

// An outlet is a writer that may fail, or be shared by both streams.
type outlet struct {
	what string
	mu   *sync.Mutex
	w    io.Writer
	err  *error
}

func newSinks(a amount, o Options) *sinks {
	s := &sinks{stdout: sink{tail: newTail(a)}, stderr: sink{tail: newTail(a)}}
	add := func(to *sink, what string, w io.Writer, mu *sync.Mutex, err *error) {
		if w != nil {
			to.to = append(to.to, &outlet{what, mu, w, err})
		}
	}
	mu := new(sync.Mutex)
	other := mu
	if !sameWriter(o.Stdout, o.Stderr) {
		other = new(sync.Mutex)
	}
	add(&s.stdout, "standard output", o.Stdout, mu, new(error))
	add(&s.stderr, "standard error", o.Stderr, other, new(error))
	logMu, logErr := new(sync.Mutex), new(error)
	add(&s.stdout, "the log", o.Log, logMu, logErr)
	add(&s.stderr, "the log", o.Log, logMu, logErr)
	return s
}

// sameWriter compares two writers; those whose types cannot be compared differ.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() { _ = recover() }()
	return a == b
}

// Write never fails: whatever becomes of the copies, the command goes on.
func (s *sink) Write(p []byte) (int, error) {
	n := len(p)
	if s.wrote != nil {
		p = p[:s.wrote(n)]
	}
	_, _ = s.tail.Write(p)
	for _, t := range s.to {
		t.mu.Lock()
		if *t.err == nil {
			_, *t.err = t.w.Write(p)
		}
		t.mu.Unlock()
	}
	return n, nil
}

// problems tells which copies are not complete.
func (s *sinks) problems() []string {
	var out []string
	for _, t := range append(slices.Clip(s.stdout.to), s.stderr.to...) {
		t.mu.Lock()
		if err := *t.err; err != nil {
			text := "the copy of the output to " + t.what + " is not complete: " + err.Error()
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
		t.mu.Unlock()
	}
	return out
}
