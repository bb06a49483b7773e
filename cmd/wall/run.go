package main

import (
	"context"
	"errors"
	"os"
	"reflect"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/cgroup"
	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/envscrub/source"
	"github.com/wallsandbox/wall/gate"
	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/scratch"
)

// runFlags are the flags of the commands that run something.
type runFlags struct {
	*shared
	json    string
	status  string
	record  string
	key     string // file of --record-key
	reads   bool   // the key is that of a record that is read, too
	explain bool
	die     bool

	netLog       string
	failOnDenial bool
}

func addRunFlags(cmd *cobra.Command) *runFlags {
	f := &runFlags{shared: addShared(cmd)}
	fs := cmd.Flags()
	addOnce(fs, &f.json, "json", "", "FILE", "write the result to FILE when the box has ended")
	addOnce(fs, &f.status, "status-fd", "", "N", "report the start and the end on descriptor N, as lines of JSON")
	addOnce(fs, &f.netLog, "net-log", "", "FILE", "write what happens on the network to FILE, live, as lines of JSON; - is standard error")
	addSwitch(fs, &f.failOnDenial, "fail-on-denial", "end with 122 when the network wall refused something")
	addOnce(fs, &f.record, "record", "", "FILE", "write to FILE what is needed to run the same box again, see wall reproduce")
	addOnce(fs, &f.key, "record-key", "", "FILE", "protect the record by a secret key, the content of FILE")
	addSwitch(fs, &f.explain, "explain", "print the plan on standard error before the start")
	addSwitch(fs, &f.die, "die-with-caller", "end the box when the process that started wall dies")
	cmd.Annotations = map[string]string{annotationRuns: "yes"}
	return f
}

func newRun(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [-p PROFILE] [FLAG...] [--] COMMAND [ARG...]",
		Short: "Run one command in a box",
		Long: `Run one command in a box that a profile describes. The default profile is "agent".

Flags of wall end at "--" or at the first word that is not a flag; everything
after that is the command. It runs with exactly these arguments: no shell reads
them. The exit status is the command's own, 128+N when signal N ended it, and
125, 126 or 127 when it did not run ("wall help exit-codes").`,
		Example: `  wall run -- make test
  wall run --net allow --allow-host proxy.golang.org -- go mod download
  wall run --ro ~/.cargo --hide secrets -- cargo build
  wall run --json result.json -- sh -c 'exit 3'`,
		DisableFlagsInUseLine: true,
	}
	f := addRunFlags(cmd)
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &usageError{
				msg:  "no command to run",
				hint: `write it after "--", for example: wall run -- make test`,
			}
		}
		b := &boxRun{s: s, f: f, command: args}
		b.resolve = func(h profile.Host, o profile.Options) (plan.Plan, *profile.Stack, error) {
			o.Default, o.Command = runProfile, args
			return profile.ResolveStack(h, o)
		}
		return b.run()
	}
	return cmd
}

// A resolver decides what runs and makes the plan for it.
type resolver func(profile.Host, profile.Options) (plan.Plan, *profile.Stack, error)

// runProfile is the profile of a run that names none.
const runProfile = "agent"

// A boxRun is one "wall run", or what runs like one.
type boxRun struct {
	s       streams
	f       *runFlags
	command []string // nil: resolve chooses it
	resolve resolver

	adjust func(*job) error                      // changes what was gathered
	before func(plan.Plan, *profile.Stack) error // is called when the plan is made, before anything runs
	after  func(plan.Plan, nsexec.Result)        // is called when a command has ended

	recording *recording // nil when there is to be no record
}

// run does the whole of "wall run": gather, resolve, tell, run, report. The
// error is an exitStatus or a signalDeath when all went well.
func (b *boxRun) run() error {
	s, f, command := b.s, b.f, b.command
	if f.json == "-" {
		return &usageError{
			msg:  "flag --json -: want the name of a file",
			hint: "standard output belongs to the command; --status-fd N reports on a descriptor, and a file of that name is ./-",
		}
	}
	status, err := f.openStatus()
	if err != nil {
		return err
	}
	key, err := f.recordKey()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if f.die {
		c, err := openCaller()
		if err != nil {
			return err
		}
		c.onDeath(cancel)
	}
	began := time.Now()
	j, err := gather(f.shared, int(status), b.resolve)
	j.command = command
	if err == nil && b.adjust != nil {
		err = b.adjust(&j)
		command = b.command
	}
	var collectErr error
	var p plan.Plan
	if err == nil {
		// What killed runs left, before anybody looks: their placeholders are no
		// files of the workspace. Runs that are going on are left alone.
		_, collectErr = scratch.Collect(scratch.DefaultRoot(j.host.TempDir, j.host.UID))
		p, err = j.plan()
	}
	if err == nil {
		err = f.reportable(p)
	}
	if err == nil {
		err = b.prepare(&j, p)
	}
	var outs outputs
	openErr := outs.openOfRun(s, f, j.host, p, err == nil) // before the command can send them elsewhere
	defer outs.close()
	err = errors.Join(err, openErr, outs.distinct())
	log := outs.net
	var o outcome
	if err == nil {
		p, o, err = startSteadily(ctx, s, f, j, p, status, log)
	}
	w, logErr := f.closeNetLog(s, log, o.result.Network.Dropped)
	err = errors.Join(err, logErr)
	o.warnings = append(o.warnings, w...)
	if d := gate.NewDenials(p, o.result.Network); f.failOnDenial && d.Count > 0 && err == nil && !o.terminated && o.result.Signal != unix.SIGINT {
		o.denied, err = true, d.DeniedError()
	}
	if err == nil || o.result.Started {
		// Once more: a run that was killed just before this one began may have
		// been in its death throes then.
		_, againErr := scratch.Collect(scratch.DefaultRoot(j.host.TempDir, j.host.UID))
		collectErr = errors.Join(collectErr, againErr)
	}
	if p.Command.Argv != nil {
		command = p.Command.Argv
	}
	o.kept = keptScratch(p)
	if b.after != nil && o.result.Started {
		b.after(p, o.result)
	}
	if collectErr != nil && o.result.Started && p.Enforce != plan.EnforceOff {
		// Had it been in the way of this run, the run would have failed.
		printWarning(s.err, "ignoring what earlier runs left: "+inOne(collectErr))
	}
	for _, w := range o.warnings {
		printWarning(s.err, w)
	}
	if o.cleanup != nil {
		// The command can bring this about, so that it must not change the status.
		printWarning(s.err, "something of this run is left: "+inOne(o.cleanup))
	}
	say(s.err, denialText(p, o.result.Network))
	if o.kept != "" {
		say(s.err, "wall: kept: "+oneLine(o.kept)+"\n")
	}

	out := newResult(p, command, o, err)
	if outs.json != nil {
		data, jsonErr := out.encode()
		if jsonErr == nil {
			jsonErr = outs.json.write(data)
		}
		err = errors.Join(err, jsonErr)
	}
	if outs.record != nil && b.recording != nil {
		r := recordResult{Status: out.Status, Exit: out.Exit, FailOnDenial: f.failOnDenial, Denials: denialsIn("", p, o.result.Network)}
		boxed := o.result.Started && p.Enforce != plan.EnforceOff
		err = errors.Join(err, b.recording.write(outs.record, began, []phasePlan{{"", p}}, r, boxed, key))
	}
	if statusErr := status.send(out.ended()); statusErr != nil {
		err = errors.Join(err, statusError(statusErr))
	}
	switch {
	case o.gaveUp == unix.SIGINT:
		return signalDeath(unix.SIGINT) // whoever pressed Ctrl-C needs no message
	case err != nil:
		return err
	case o.result.Signal == unix.SIGINT:
		return signalDeath(unix.SIGINT)
	}
	return exitStatus(out.Exit)
}

// prepare does what is to be done between the plan and the start.
func (b *boxRun) prepare(j *job, p plan.Plan) error {
	if b.f.record != "" {
		x := &recording{kind: recordedRun, flag: b.f.record, host: j.host, options: j.options, profile: runProfile, stack: j.stack, command: b.command}
		if x.command == nil {
			x.command = p.Command.Argv
		}
		if err := x.prepare([]phasePlan{{"", p}}); err != nil {
			return err
		}
		b.recording = x
	}
	if b.before != nil {
		return b.before(p, j.stack)
	}
	return nil
}

// A job is everything that a plan is made from.
type job struct {
	host    profile.Host
	options profile.Options
	resolve resolver
	command []string       // as typed; nil when wall chooses it
	stack   *profile.Stack // of the last plan
}

// plan makes the plan, and adds what only the command line knows of: hints, and
// what there is to say about walls that are down.
func (j *job) plan() (plan.Plan, error) {
	p, st, err := j.resolve(j.host, j.options)
	if st != nil {
		j.stack = st
	}
	switch {
	case err != nil && (errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM)), err == nil && p.Enforce != plan.EnforceOff:
		if refused := confined(); refused != nil {
			return plan.Plan{}, refused
		}
	}
	if err != nil {
		o := j.options
		o.Command = j.command
		return p, advise(err, o)
	}
	p.Notices = append(p.Notices, cautions(p, j.host)...)
	return p, nil
}

// gather collects the facts and options. status is the descriptor of --status-fd
// or negative.
func gather(f *shared, status int, resolve resolver) (j job, err error) {
	j.resolve = resolve
	if j.host, err = host.Gather(); err != nil {
		return j, err
	}
	if f.scratch != "" {
		if err := setScratchRoot(&j.host, f.scratch); err != nil {
			return j, err
		}
	}
	j.options = f.options()
	j.options.KeepFDs, err = keptFDs(f.fds, status)
	return j, err
}

// learn takes from a failed start what only trying could tell: what caches can be,
// whether connections can be redirected, and whether systemd makes a scope.
func (j *job) learn(err error) {
	if e, ok := errors.AsType[*nsexec.OverlayError](err); ok {
		j.host.NoOverlay = e.Err
	}
	if e, ok := errors.AsType[*nsexec.NftablesError](err); ok {
		j.host.NoRedirect = e.Err
	}
	if e, ok := errors.AsType[*cgroup.ScopeError](err); ok {
		j.host.NoScope = e.Err
	}
	if errors.Is(err, scratch.ErrKeptBusy) {
		j.host.CachesBusy = true
	}
}

// maxStarts bounds how often startSteadily tries another plan.
const maxStarts = 5

// startSteadily starts p, and looks again when the start fails because the host
// changed since the plan was made: other runs in the same workspace put
// placeholders on absent names and take them away. Likewise when caches cannot be
// made, or connections redirected, as planned. Nothing has run by then, so
// that nothing runs twice. An error that looking again does not change is final.
func startSteadily(ctx context.Context, s streams, f *runFlags, j job, p plan.Plan, status statusFD, log *netLog) (plan.Plan, outcome, error) {
	var told told
	if err := told.announce(s, f, p); err != nil {
		return p, outcome{}, err
	}
	values := source.Filler{Environ: j.host.Environ}
	if j.stack != nil {
		values.Untrusted = []string{j.stack.Workspace()}
	}
	for tries := 1; ; tries++ {
		o, err := start(ctx, s, p, &values, status, log)
		if err == nil || o.result.Started || o.gaveUp != 0 || ctx.Err() != nil {
			return p, o, err
		}
		j.learn(err)
		next, resolveErr := j.plan()
		_, noRedirect := errors.AsType[*nsexec.NftablesError](err)
		_, noScope := errors.AsType[*cgroup.ScopeError](err)
		if (noRedirect || noScope) && resolveErr != nil {
			return p, o, resolveErr // it says what may be done about that
		}
		if resolveErr != nil || !nsexec.Again(err, tries) && (tries >= maxStarts || reflect.DeepEqual(next, p)) {
			return p, o, err
		}
		if err := told.announce(s, f, next); err != nil {
			return p, o, err
		}
		p = next
	}
}

// keptScratch is the scratch directory that --keep left behind, "" when there is none.
func keptScratch(p plan.Plan) string {
	if !p.Scratch.Keep || p.Scratch.Path() == "" {
		return ""
	}
	if _, err := os.Lstat(p.Scratch.Path()); err != nil {
		return "" // the start failed before it was made
	}
	return p.Scratch.Path()
}

// told is what the operator has been told so far, each thing once: a run starts with
// another plan when the first cannot be, and a gate with one for each phase.
type told struct{ text map[string]bool }

// once reports whether this is the first time for a text.
func (t *told) once(text string) bool {
	if t.text == nil {
		t.text = map[string]bool{}
	}
	first := !t.text[text]
	t.text[text] = true
	return first
}

// announce tells the operator what there is to know before the start, and has not been told. With
// every wall down it is silent unless asked or seen by a person: then the streams
// are the command's, byte by byte, and may be read by a program.
func (t *told) announce(s streams, f *runFlags, p plan.Plan) error {
	var err error
	if p.Enforce != plan.EnforceOff || f.explain || isTerminal(s.err) {
		var news plan.Plan
		for _, d := range p.Degraded {
			if t.once(degradedLine(d)) {
				news.Degraded = append(news.Degraded, d)
			}
		}
		for _, n := range p.Notices {
			if t.once(n.Origin.String() + "\x00" + n.Text) {
				news.Notices = append(news.Notices, n)
			}
		}
		err = printPlanNotes(s.err, news)
	}
	if f.explain && err == nil {
		if p.Enforce != plan.EnforceOff {
			noteHardLinks(&p)
		}
		err = p.Print(s.err)
	}
	if err != nil {
		return &plan.Error{Op: "cannot write to standard error", Err: err}
	}
	return nil
}

// An outcome is how a run went.
type outcome struct {
	result     nsexec.Result
	terminated bool           // wall got a SIGTERM while the command ran
	gaveUp     syscall.Signal // what made wall give up before it knew the command to run, or 0
	denied     bool           // it was refused something, and --fail-on-denial fails it for that
	cleanup    error          // what of the run could not be removed; the status stays the command's
	kept       string         // the scratch directory that was left behind as asked, "" when there is none
	warnings   []string       // about what the command left, for the operator
}

// start runs the plan to its end; when ctx is done, the box is killed. The values that p names by their place are
// fetched right before, and known to nobody but nsexec. The error is what kept the command from
// running or, when the result says that it ran, what went wrong around it.
func start(ctx context.Context, s streams, p plan.Plan, values *source.Filler, status statusFD, log *netLog) (o outcome, err error) {
	if err := status.check(p, s); err != nil {
		return o, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	signals := newRelay(useOf(p, s), cancel, endsRun)
	filled, err := values.Fill(ctx, p)
	if err != nil {
		err = o.stopped(signals, err)
		return o, err
	}
	cmd := nsexec.CommandContext(ctx, filled)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.err
	cmd.Suspend = signals.suspend
	if log != nil {
		cmd.NetEvents = func(e egress.Event) { log.event("", e) }
	}
	signals.watch(cmd)
	if signals.use == usePrivate {
		log.raw()
		<-signals.listening // a signal must not end wall when it has the terminal
	}
	gitBefore := viewGit(p)
	terminals := saveTerminals(s)
	defer restoreTerminals(terminals)
	log.start("", p)
	if err := cmd.Start(); err != nil {
		err = o.stopped(signals, err)
		return o, err
	}
	signals.start(cmd, graceOf(p))
	end := "\n"
	if signals.use == usePrivate {
		end = "\r\n"                  // the terminal is raw
		_ = cmd.Signal(unix.SIGWINCH) // its size may have changed before wall heard of it
	}
	for _, e := range cmd.SeedErrors() {
		// The command runs without the file, so that a login in it fails.
		say(s.err, warning(s.err, plan.Printable(e.Error()))+end)
	}
	statusErr := status.send(event{Event: "started"})
	err = cmd.Wait()
	told, gaveUp := signals.stop()
	o.terminated, o.gaveUp = told != 0, gaveUp
	o.result = cmd.Result()
	log.finish("", p, o.result.Network)
	o.cleanup = cmd.CleanupError()
	o.warnings = gitWarnings(gitBefore, viewGit(p))
	if text := signals.overdue(); text != "" {
		o.warnings = append(o.warnings, text)
	}
	if doubt := o.result.Doubts(p); doubt != "" {
		o.warnings = append(o.warnings, doubt)
	}
	if o.gaveUp != 0 {
		// The signal came when the command ran and before wall knew, and has
		// killed the box: tell what was asked for, not how it was done.
		o.result.Signal = o.gaveUp
	}
	var exit *nsexec.ExitError
	if errors.As(err, &exit) {
		err = nil // that is in the result
	}
	if limit := o.result.Exceeded(p); limit != nil {
		err = errors.Join(limit, err)
	}
	if statusErr != nil {
		err = errors.Join(err, statusError(statusErr))
	}
	return o, err
}

// stopped is the error of a start that failed with err: a signal, when that was
// the reason.
func (o *outcome) stopped(signals *relay, err error) error {
	_, o.gaveUp = signals.stop()
	if o.gaveUp == 0 {
		return err
	}
	return &plan.Error{
		Op:   "stopped by " + signalName(o.gaveUp) + " before the command ran",
		Exit: 128 + int(o.gaveUp),
	}
}

// useOf says how the command of p is connected to a terminal among the streams.
func useOf(p plan.Plan, s streams) terminalUse {
	switch {
	case p.Enforce == plan.EnforceOff && slices.ContainsFunc([]*os.File{s.in, s.out, s.err}, isTerminal):
		return useShared
	case p.Enforce != plan.EnforceOff && p.TTY == plan.TTYPrivate:
		return usePrivate
	}
	return useNone
}

// recordKey reads the key of --record-key.
func (f *runFlags) recordKey() ([]byte, error) {
	if f.key != "" && f.record == "" && !f.reads {
		return nil, &usageError{msg: "--record-key protects a record, and there is no --record", hint: "add --record FILE"}
	}
	return readRecordKey(f.key)
}

// statusError tells that --status-fd did not work.
func statusError(err error) error {
	return &plan.Error{Op: "cannot report on the status descriptor", Err: err}
}

// openStatus opens the descriptor of --status-fd.
func (f *runFlags) openStatus() (statusFD, error) {
	if f.status == "" {
		return noStatus, nil
	}
	fd, ok := parseFD(f.status)
	if !ok || fd < 3 {
		return noStatus, &usageError{
			msg:  "flag --status-fd " + quoteOdd(f.status) + ": want a descriptor number from 3 on",
			hint: "0, 1 and 2 belong to the command, which could forge the report; use for example --status-fd 3 3>../status.jsonl",
		}
	}
	return openStatus(fd)
}
