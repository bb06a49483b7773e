package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/envscrub/source"
	"github.com/wallsandbox/wall/gate"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/scratch"
)

// gateFlags are the flags of the commands that run a gate.
type gateFlags struct {
	*runFlags
	line     string
	stream   bool
	log      string
	logSize  string
	logFiles string
	junit    string
}

func addGateFlags(cmd *cobra.Command) *gateFlags {
	f := &gateFlags{runFlags: addRunFlags(cmd)}
	fs := cmd.Flags()
	fs.Lookup("json").Usage = "write the result to FILE, or with - to standard output"
	addSwitch(fs, &f.stream, "stream", "copy the output of the command to standard output and error as it comes")
	addOnce(fs, &f.log, "log", "", "FILE", "write the whole output to FILE, where the command cannot reach it")
	addOnce(fs, &f.logSize, "log-size", "", "SIZE", "rotate the log when it has SIZE (default: 64MiB)")
	addOnce(fs, &f.logFiles, "log-files", "", "N", "keep at most N log files, FILE.1 being the one before FILE (default: 2)")
	addOnce(fs, &f.junit, "junit", "", "FILE", "write the result to FILE as JUnit XML")
	return f
}

func newGate(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gate [-p PROFILE] [FLAG...] [--] [COMMAND [ARG...]]",
		Short: "Run a command to a verdict, as a merge gate does",
		Long: `Run a command in a box to a verdict that a merge queue can trust. The default
profile is "gate".

The command reads nothing: its standard input is /dev/null. Its output is drained
as it comes, and the end of it is kept (limits.output of the profile). When it has
ended, or reached a limit, everything that it started is ended, too. The verdict is
"passed" only when the command ran and ended with status 0; when it did not run, the
text says so. Without a command the phases of the profile run ([[gate.phase]]).
"wall help gates" has the rest.`,
		Example: `  wall gate -- make test
  wall gate -p ./ci.toml --json result.json --junit junit.xml
  wall gate -c 'make lint && make test' --limit time=10m --log /var/log/gate.log`,
		DisableFlagsInUseLine: true,
	}
	f := addGateFlags(cmd)
	addOnce(cmd.Flags(), &f.line, "command", "c", "LINE", "run LINE by /bin/sh -c")
	var schema bool
	addSwitch(cmd.Flags(), &schema, "schema", "print the JSON Schema of the result, and run nothing")
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if schema {
			if len(args) > 0 || f.line != "" {
				return &usageError{msg: "--schema runs nothing, and a command is given", hint: "give one of them"}
			}
			_, err := io.WriteString(s.out, gate.Schema())
			return err
		}
		if f.line != "" {
			if len(args) > 0 {
				return &usageError{msg: "both -c and a command are given", hint: "flags end at the first word that is no flag; give one of the two"}
			}
			args = []string{fallbackShell, "-c", f.line}
		}
		g := &gateRun{s: s, f: f, command: args}
		g.resolve = func(h profile.Host, o profile.Options) (plan.Plan, *profile.Stack, error) {
			o.Default = gateProfile
			return profile.ResolveStack(h, o)
		}
		return g.run()
	}
	return cmd
}

// A gateRun is one "wall gate", or what runs like one.
type gateRun struct {
	s       streams
	f       *gateFlags
	command []string // nil: the phases of the profile
	resolve func(profile.Host, profile.Options) (plan.Plan, *profile.Stack, error)

	adjust func(*job) error  // changes what was gathered
	before func() error      // is called when the plans are made, before anything runs
	after  func(gate.Result) // is called when everything has ended, before the report

	j         job
	stack     *profile.Stack // of the last plan
	first     plan.Plan      // of the first phase, before anything ran
	plans     []phasePlan    // of all phases, before anything ran
	recording *recording     // nil when there is to be no record
	phase     *profile.Phase // the only one to run, of those that the profile has
}

// A phasePlan is the plan of one phase.
type phasePlan struct {
	name string
	plan plan.Plan
}

// run is the whole of "wall gate": gather, resolve, run, report.
func (g *gateRun) run() error {
	if g.f.stream && g.f.json == "-" {
		return &usageError{msg: "--stream and --json - both want standard output", hint: "write the result to a file: --json result.json"}
	}
	status, err := g.f.openStatus()
	if err != nil {
		return err
	}
	log, err := g.f.logOptions()
	if err != nil {
		return err
	}
	key, err := g.f.recordKey()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if g.f.die {
		c, err := openCaller()
		if err != nil {
			return err
		}
		c.onDeath(cancel)
	}

	var phases []gate.Phase
	var outs outputs
	var collectErr error
	err = g.gather(status)
	if err == nil {
		// What killed runs left, before anybody looks.
		_, collectErr = scratch.Collect(scratch.DefaultRoot(g.j.host.TempDir, g.j.host.UID))
		phases, err = g.phases()
	}
	if err == nil {
		all := make([]plan.Plan, len(g.plans))
		for i, p := range g.plans {
			all[i] = p.plan
		}
		err = g.f.reportable(all...)
	}
	if err == nil && g.f.record != "" {
		x := &recording{kind: recordedGate, flag: g.f.record, host: g.j.host, options: g.j.options, profile: gateProfile, stack: g.stack, command: g.command}
		if err = x.prepare(g.plans); err == nil {
			g.recording = x
		}
	}
	if err == nil && g.before != nil {
		err = g.before()
	}
	if openErr := outs.open(g, log, err == nil); openErr != nil {
		err = errors.Join(err, openErr)
	}
	defer outs.close()

	var r gate.Result
	var signals *relay
	if err != nil {
		r = gate.Refused(err)
	} else {
		// A reader of the output that goes away gets no more of it; wall stays, which has a
		// command to end and a verdict to give. Handled, it is as ever for the command.
		pipe := make(chan os.Signal, 1)
		signal.Notify(pipe, unix.SIGPIPE)
		defer signal.Stop(pipe)
		signals = newRelay(useNone, cancel, endsGate)
		r = gate.RunPhases(ctx, phases, g.options(signals, status, &outs))
		_, again := scratch.Collect(scratch.DefaultRoot(g.j.host.TempDir, g.j.host.UID))
		collectErr = errors.Join(collectErr, again)
	}
	g.settle(&r, signals)
	if collectErr != nil && r.Status != gate.NotRun && g.first.Enforce != plan.EnforceOff {
		r.Warnings = append(r.Warnings, "ignoring what earlier runs left: "+inOne(collectErr))
	}
	if g.after != nil && r.Status != gate.NotRun {
		g.after(r)
	}
	return g.report(r, &outs, key, status)
}

// settle puts into the result what signals to wall mean for it.
func (g *gateRun) settle(r *gate.Result, signals *relay) {
	if signals == nil {
		return
	}
	told, gaveUp := signals.stop()
	if text := signals.overdue(); text != "" {
		r.Warnings = append(r.Warnings, text)
	}
	last := -1
	for i, ph := range r.Phases {
		if !ph.Skipped {
			last = i
		}
	}
	change := func(f func(*gate.Outcome)) {
		f(&r.Outcome)
		if last >= 0 {
			f(&r.Phases[last].Outcome)
		}
	}
	switch {
	case gaveUp != 0 && r.Status == gate.NotRun:
		err := &plan.Error{Op: "stopped by " + signalName(gaveUp) + " before the command ran", Exit: 128 + int(gaveUp)}
		change(func(o *gate.Outcome) { o.Err, o.Exit = err, plan.ExitStatus(err) })
	case gaveUp != 0:
		change(func(o *gate.Outcome) { o.Status, o.Signal, o.Code, o.Exit = gate.Failed, gaveUp, -1, 128+int(gaveUp) })
	case told != 0 && r.Status == gate.Passed:
		// Whoever tells wall to end must not read success: the work was cut short.
		err := &plan.Error{Op: "wall got a " + signalName(told) + " while the command ran", Exit: 128 + int(told)}
		change(func(o *gate.Outcome) { o.Status, o.Err, o.Exit = gate.Failed, err, plan.ExitStatus(err) })
	}
}

// gather collects the facts.
func (g *gateRun) gather(status statusFD) (err error) {
	g.j, err = gather(g.f.shared, int(status), nil)
	g.j.command = g.command
	g.j.host.Stdio = gate.Streams()
	if err == nil && g.adjust != nil {
		err = g.adjust(&g.j)
	}
	return err
}

// phases makes the plan of every phase once, so that a mistake in the last one
// is told before the first one runs.
func (g *gateRun) phases() ([]gate.Phase, error) {
	planner := func(ph *profile.Phase) func() (plan.Plan, error) {
		return func() (plan.Plan, error) {
			j := g.j
			j.options.Command, j.options.Phase = g.command, ph
			if ph != nil {
				j.options.Command, j.command = ph.Command, ph.Command
			}
			j.resolve = g.resolve
			p, err := j.plan()
			if j.stack != nil {
				g.stack = j.stack
			}
			return p, err
		}
	}
	if len(g.command) > 0 {
		p := gate.Phase{Plan: planner(g.phase)}
		if g.phase != nil {
			p.Name = g.phase.Name
		}
		var err error
		g.first, err = p.Plan()
		g.plans = []phasePlan{{p.Name, g.first}}
		return []gate.Phase{p}, err
	}
	o := g.j.options
	o.NoCommand = true
	_, st, err := g.resolve(g.j.host, o)
	if err != nil {
		return nil, err
	}
	if len(st.Phases()) == 0 {
		return nil, &plan.Error{Op: "there is no command to run, and profile " + quoteOdd(st.Name()) + " has no phases",
			Hint: "write the command behind --, for example: wall gate -- make test"}
	}
	var phases []gate.Phase
	var errs []error
	for i := range st.Phases() {
		ph := &st.Phases()[i]
		x := gate.Phase{Name: ph.Name, Plan: planner(ph)}
		p, err := x.Plan()
		errs = append(errs, err)
		if i == 0 {
			g.first = p
		}
		g.plans = append(g.plans, phasePlan{ph.Name, p})
		phases = append(phases, x)
	}
	return phases, errors.Join(errs...)
}

// options ties the gate to the terminal, the signals and the descriptors.
func (g *gateRun) options(signals *relay, status statusFD, outs *outputs) gate.Options {
	values := &source.Filler{Environ: g.j.host.Environ, Untrusted: []string{g.stack.Workspace()}}
	var told told
	var current plan.Plan
	var git []gitView
	o := gate.Options{
		Workspace: g.workspace(),
		Adopt:     true,
		Fill:      values.Fill,

		FailOnDenial: g.f.failOnDenial,
		Starting: func(phase string, p plan.Plan) error {
			<-signals.listening // a signal that ends wall would leave a command without a box behind
			if s := signals.asked(); s != 0 {
				return &plan.Error{Op: "stopped by " + signalName(s) + " before the command ran", Exit: 128 + int(s)}
			}
			if err := status.check(p, streams{}); err != nil {
				return err
			}
			if err := told.announce(g.s, g.f.runFlags, p); err != nil {
				return err
			}
			current, git = p, viewGit(p)
			outs.net.start(phase, p)
			return nil
		},
		Failed: func(_ string, err error) { g.j.learn(err) },
		Started: func(_ string, c *nsexec.Cmd) {
			signals.start(c, graceOf(current))
			outs.statusErr = errors.Join(outs.statusErr, status.send(event{Event: "started"}))
		},
		Ended: func(phase string, r nsexec.Result) {
			signals.rest()
			outs.net.finish(phase, current, r.Network)
			outs.warnings = append(outs.warnings, gitWarnings(git, viewGit(current))...)
		},
	}
	if g.f.stream {
		o.Stdout, o.Stderr = g.s.out, g.s.err
	}
	if outs.log != nil {
		o.Log = outs.log
	}
	if outs.net != nil {
		o.NetEvents = outs.net.event
	}
	return o
}

// workspace is the directory whose changes are counted: the workspace, where the
// command can write to it.
func (g *gateRun) workspace() string {
	ws := g.stack.Workspace()
	if g.first.Enforce == plan.EnforceOff || ws != "" && writableAt(g.first.Mounts, ws) {
		return ws
	}
	return ""
}

// facts are what the result says besides.
func (g *gateRun) facts(outs *outputs) gate.Facts {
	f := gate.Facts{Wall: wallVersion(), Profile: g.first.Profile, Kernel: kernelRelease(), Command: g.command}
	if g.stack != nil {
		f.Profile, f.ProfileDigest = g.stack.Name(), g.stack.Digest()
	}
	if outs.log != nil {
		f.Log = outs.log.facts()
	}
	return f
}

// outputs are the files that a gate writes.
type outputs struct {
	json, junit *resultFile
	record      *resultFile
	log         *logFile
	net         *netLog
	statusErr   error
	warnings    []string
}

// open opens them before the command runs, so that it cannot send them elsewhere.
// runs says that there is something to run.
func (o *outputs) open(g *gateRun, log logOptions, runs bool) error {
	cwd, untrusted := g.j.host.Cwd, untrustedDirs(g.j.host, g.first)
	errs := []error{o.file(&o.junit, "junit", g.f.junit, cwd, untrusted)}
	if g.f.log != "" {
		l, err := openLog("log", g.f.log, log, cwd, untrusted, g.first)
		o.log = l
		errs = append(errs, err)
	}
	errs = append(errs, o.openOfRun(g.s, g.f.runFlags, g.j.host, g.first, runs))
	return errors.Join(append(errs, o.distinct())...)
}

// openOfRun opens those that every run can have.
func (o *outputs) openOfRun(s streams, f *runFlags, host profile.Host, p plan.Plan, runs bool) error {
	untrusted := untrustedDirs(host, p)
	var errs []error
	if f.json != "-" {
		errs = append(errs, o.file(&o.json, "json", f.json, host.Cwd, untrusted))
	}
	errs = append(errs, o.file(&o.record, "record", f.record, host.Cwd, untrusted))
	if runs {
		l, err := f.openNetLog(s, host, p)
		o.net = l
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// file opens the place of one, unless its flag was not given.
func (o *outputs) file(to **resultFile, flag, name, cwd string, untrusted []string) (err error) {
	if name != "" {
		*to, err = openResultFile(flag, name, cwd, untrusted)
	}
	return err
}

// untrustedDirs are the directories where the command of a plan can put links: those
// that it can write to, or the usual workspace where there is no plan.
func untrustedDirs(host profile.Host, p plan.Plan) []string {
	dirs := p.WritableRoots()
	if len(dirs) == 0 && host.Cwd != "" {
		dirs = []string{host.Cwd}
	}
	return dirs
}

// distinct refuses two files that are one, of which the last to be written would be
// left, and would pass for the other.
func (o *outputs) distinct() error {
	var all []namedFile
	for _, f := range []*resultFile{o.json, o.junit, o.record} {
		if f != nil {
			all = append(all, namedFile{f.dir, f.base, f.flag})
		}
	}
	logs := map[string]*logFile{"log": o.log}
	if o.net != nil {
		logs["net-log"] = o.net.log
	}
	for flag, l := range logs {
		if l != nil {
			for i := range l.o.files {
				all = append(all, namedFile{l.dir, l.numbered(i), flag})
			}
		}
	}
	return distinctFiles(all)
}

func (o *outputs) close() {
	for _, f := range []*resultFile{o.json, o.junit, o.record} {
		if f != nil {
			f.close()
		}
	}
	if o.log != nil {
		o.log.close()
	}
	_ = o.net.close() // told by report
}

// report tells the result in every form that was asked for, and gives the error
// that ends wall.
func (g *gateRun) report(r gate.Result, outs *outputs, key []byte, status statusFD) error {
	r.Warnings = append(r.Warnings, outs.warnings...)
	var errs []error
	if outs.statusErr != nil {
		errs = append(errs, statusError(outs.statusErr))
	}
	if outs.log != nil {
		outs.log.finish()
	}
	lost := int64(0)
	for _, ph := range r.Phases {
		lost += ph.Network.Dropped
	}
	w, err := g.f.closeNetLog(g.s, outs.net, lost)
	errs = append(errs, err)
	r.Warnings = append(r.Warnings, w...)
	f := g.facts(outs)
	for _, w := range r.Warnings {
		printWarning(g.s.err, w)
	}
	if r.Cleanup != nil {
		printWarning(g.s.err, "something of this run is left: "+inOne(r.Cleanup))
	}
	to := g.s.out
	if g.f.json == "-" || g.f.stream {
		text := r
		text.Output.Text = "" // in the JSON, or shown already
		errs = append(errs, tell(g.s.err, text.Text(f)))
	} else if _, err := io.WriteString(to, r.Text(f)); err != nil {
		errs = append(errs, &plan.Error{Op: "cannot write the result to standard output", Err: err})
	}
	if r.Kept != "" {
		say(g.s.err, "wall: kept: "+oneLine(r.Kept)+"\n")
	}
	data, err := r.JSON(f)
	switch {
	case err != nil:
		errs = append(errs, err)
	case g.f.json == "-":
		if _, err := g.s.out.Write(data); err != nil {
			errs = append(errs, &plan.Error{Op: "cannot write the result to standard output", Err: err})
		}
	case outs.json != nil:
		errs = append(errs, outs.json.write(data))
	}
	if outs.junit != nil {
		var b bytes.Buffer
		if err := r.JUnit(&b, f); err != nil {
			errs = append(errs, err)
		} else {
			errs = append(errs, outs.junit.write(b.Bytes()))
		}
	}
	if outs.record != nil && g.recording != nil {
		boxed := r.Status != gate.NotRun && r.Plan.Enforce != plan.EnforceOff
		errs = append(errs, g.recording.write(outs.record, r.Started, g.plans, recordedResult(r, g.f.failOnDenial), boxed, key))
	}
	ended := event{Event: "ended", Status: string(r.Status), Exit: &r.Exit}
	if r.Signal != 0 {
		name := signalName(r.Signal)
		ended.Signal = &name
	}
	if r.Err != nil {
		ended.Error = newResultError(r.Err)
	}
	if err := status.send(ended); err != nil {
		errs = append(errs, statusError(err))
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(r.Err, err)
	}
	switch {
	case r.Signal == unix.SIGINT && r.Status == gate.Failed:
		return signalDeath(unix.SIGINT)
	case r.Err != nil:
		printError(g.s.err, r.Err)
	}
	return exitStatus(r.Exit)
}

// logOptions are how the log is rotated.
type logOptions struct {
	size  int64
	files int
}

func (f *gateFlags) logOptions() (logOptions, error) {
	o := logOptions{size: 64 << 20, files: 2}
	if f.log == "" && (f.logSize != "" || f.logFiles != "") {
		return o, &usageError{msg: "--log-size and --log-files say how --log is rotated, and there is no --log", hint: "add --log FILE"}
	}
	if f.logSize != "" {
		n, err := profile.ParseSize(f.logSize)
		if err != nil || n < 4096 {
			return o, &usageError{msg: "flag --log-size " + quoteOdd(f.logSize) + ": want a size of at least 4096 bytes", hint: "for example --log-size 10MiB"}
		}
		o.size = int64(n)
	}
	if f.logFiles != "" {
		n, err := strconv.Atoi(f.logFiles)
		if err != nil || n < 1 || n > 100 {
			return o, &usageError{msg: "flag --log-files " + quoteOdd(f.logFiles) + ": want a number from 1 to 100", hint: "for example --log-files 5"}
		}
		o.files = n
	}
	return o, nil
}
