package main

import (
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/gate"
	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

func newReproduce(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reproduce [FLAG...] RECORD",
		Short: "Run a recorded gate or run again",
		Long: `Run the gate or run of a record (--record) again, in this directory: the same
command in the same box, made from the profile that the record holds. First every
difference that matters is told: another commit, kernel, tool or profile, variables
that are missing. wall ends as the gate or run does. A run has the streams that
wall has here.

A record decides what its command may do here. Where it would allow more than your
own profile of that name, wall tells what, and runs only with --accept-profile. When
the record's profile was a file, or a built-in one, your profile "gate" is the measure;
-p names another. A record that was changed is refused; only --record-key shows by
whom it was written.`,
		Example: `  wall reproduce gate.record
  wall reproduce -p ./ci.toml gate.record
  wall reproduce --shell gate.record
  wall reproduce --workspace ~/clone --phase test gate.record`,
		DisableFlagsInUseLine: true,
	}
	f := addGateFlags(cmd)
	cmd.Flags().Lookup("profile").Usage = "your own profile that the record is measured by"
	var shell, accept bool
	var phase string
	addSwitch(cmd.Flags(), &shell, "shell", "open a shell in that box instead")
	addSwitch(cmd.Flags(), &accept, "accept-profile", "run although the record allows more than your own profile")
	addOnce(cmd.Flags(), &phase, "phase", "", "NAME", "run this phase only, or open the shell in its box")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return &usageError{msg: fmt.Sprintf("wall reproduce takes one record, got %d arguments", len(args)), hint: "for example: wall reproduce gate.record"}
		}
		f.reads = true
		key, err := f.recordKey()
		if err != nil {
			return err
		}
		rec, err := readRecord(args[0], key)
		if err != nil {
			return err
		}
		f.failOnDenial = f.failOnDenial || rec.Result.FailOnDenial && !shell
		x := &reproduction{s: s, f: f, rec: rec, key: key, accept: accept, phase: phase}
		switch {
		case shell:
			return x.shell()
		case rec.Kind == recordedRun:
			return x.run()
		}
		return x.gate()
	}
	return cmd
}

// A reproduction is one "wall reproduce".
type reproduction struct {
	s      streams
	f      *gateFlags
	rec    record
	key    []byte // of --record-key
	accept bool
	phase  string

	options profile.Options // what the record alone asks for
	inShell bool            // the command is another one

	ownStreams bool // the streams of wall here, which are others
	cwd        string
	from, to   []spot // of the record and of here, in pairs
}

// gate runs the gate again.
func (x *reproduction) gate() error {
	g := &gateRun{s: x.s, f: x.f, command: x.rec.Command}
	g.adjust = func(j *job) error {
		if err := x.adjust(j); err != nil {
			return err
		}
		if g.command != nil {
			g.command = x.mapAll(g.command)
		}
		if x.phase != "" {
			ph, err := x.onePhase(j)
			if err != nil {
				return err
			}
			g.command, g.phase = ph.Command, ph
		}
		g.j.command = g.command
		return nil
	}
	g.resolve = profile.ResolveStack
	g.before = func() error { return x.tell(g.plans, g.stack) }
	g.after = func(r gate.Result) { x.tellDenials(denialsOf(r)) }
	return g.run()
}

// run runs what was run again, with the streams of here.
func (x *reproduction) run() error {
	if err := x.ofGates("the record is one of wall run"); err != nil {
		return err
	}
	if x.phase != "" {
		return &usageError{msg: "--phase " + quoteOdd(x.phase) + ": the record is one of wall run, which has no phases", hint: "leave it out"}
	}
	x.ownStreams = true
	b := x.boxRun()
	b.adjust = func(j *job) error {
		if err := x.adjust(j); err != nil {
			return err
		}
		b.command = x.mapAll(x.rec.Command)
		j.command, j.options.Command = b.command, b.command
		return nil
	}
	b.resolve = profile.ResolveStack
	b.after = func(p plan.Plan, r nsexec.Result) { x.tellDenials(denialsIn("", p, r.Network)) }
	return b.run()
}

// shell opens a shell in the box of the gate or run, or of one phase.
func (x *reproduction) shell() error {
	if err := x.ofGates("--shell opens a shell"); err != nil {
		return err
	}
	if x.f.record != "" {
		return &usageError{msg: "--shell opens a shell, which is not recorded with what it was opened for", hint: "leave out --record"}
	}
	x.inShell, x.ownStreams = true, true
	b := x.boxRun()
	b.adjust = func(j *job) error {
		if err := x.adjust(j); err != nil {
			return err
		}
		if len(x.rec.Command) == 0 || x.phase != "" {
			ph, err := x.onePhase(j)
			if err != nil {
				return err
			}
			j.options.Phase, x.phase = ph, ph.Name
		}
		return nil
	}
	b.resolve = resolveShell
	return b.run()
}

// boxRun is what is common to both.
func (x *reproduction) boxRun() *boxRun {
	return &boxRun{s: x.s, f: x.f.runFlags, before: func(p plan.Plan, st *profile.Stack) error {
		return x.tell([]phasePlan{{x.phase, p}}, st)
	}}
}

// ofGates refuses the flags that only a gate has.
func (x *reproduction) ofGates(why string) error {
	f := x.f
	for _, flag := range []struct {
		name  string
		given bool
	}{{"stream", f.stream}, {"log", f.log != ""}, {"log-size", f.logSize != ""}, {"log-files", f.logFiles != ""}, {"junit", f.junit != ""}} {
		if flag.given {
			return &usageError{msg: "--" + flag.name + " is for gates: " + why, hint: "leave it out; the streams are those of wall"}
		}
	}
	return nil
}

// onePhase finds the phase of --phase, or the one that decided.
func (x *reproduction) onePhase(j *job) (*profile.Phase, error) {
	st, err := profile.Load(j.host, j.options)
	if err != nil {
		return nil, err
	}
	name := x.phase
	if name == "" {
		name = x.rec.Result.Phase
	}
	var names []string
	for _, ph := range st.Phases() {
		if ph.Name == name {
			return &ph, nil
		}
		names = append(names, ph.Name)
	}
	return nil, &plan.Error{Op: "the record has no phase called " + quoteOdd(name), Origin: flagOrigin("--phase " + quoteOdd(name)), Hint: "its phases: " + strings.Join(names, ", ")}
}

// adjust puts the record in place of what is installed here, and maps its places.
func (x *reproduction) adjust(j *job) error {
	ws := j.host.Cwd
	flags := slices.Clone(j.options.Flags)
	for i, f := range flags {
		if f.Name == "workspace" {
			ws = f.Value
			if !path.IsAbs(ws) {
				ws = path.Join(j.host.Cwd, ws)
			}
			flags = slices.Delete(flags, i, i+1)
			break
		}
	}
	real, err := realPath(ws)
	if err != nil {
		return &plan.Error{Op: "cannot use " + quoteOdd(ws) + " as the workspace", Err: bareError(err)}
	}
	ws = real
	here := recordUser{j.host.User, j.host.UID, j.host.GID, realHome(j.host)}
	// The scratch root is made below the temporary directory of here; nothing of the record names it.
	x.from = []spot{{x.rec.Workspace.Path, "$workspace"}, {x.rec.User.Home, "~"}}
	x.to = []spot{{ws, "$workspace"}, {here.Home, "~"}}

	o := &j.options
	o.Profile, o.RecordedTrust, o.NoSettings = x.mapPath(x.rec.Profile), x.rec.Trusted, true
	o.Recorded = []profile.LayerText{}
	for _, l := range x.rec.Layers {
		o.Recorded = append(o.Recorded, profile.LayerText{Kind: l.Kind, Name: l.Name, File: l.File, Path: x.mapPath(l.Path), Text: l.Text})
	}
	o.Flags = []profile.Flag{{Name: "workspace", Value: ws, Text: "--workspace " + quoteOdd(ws)}}
	for _, f := range x.rec.Flags {
		switch f.Name {
		case "workspace", "allow-home-workspace": // here it is another one
			continue
		case "env": // the value is not in the record
			continue
		}
		if !slices.ContainsFunc(policyFlags, func(p policyFlag) bool { return p.name == f.Name }) {
			return &plan.Error{Op: "the record has a flag that this wall does not know: --" + quoteOdd(f.Name), Hint: "reproduce it with the version of wall that wrote it, " + quoteOdd(x.rec.Wall)}
		}
		if slices.ContainsFunc(flags, func(own profile.Flag) bool { return own.Name == f.Name && single(f.Name) }) {
			continue // the command line of this run says otherwise
		}
		o.Flags = append(o.Flags, profile.Flag{Name: f.Name, Value: x.mapPath(f.Value), Text: f.Text})
	}
	x.options = *o
	x.options.Flags = slices.Clone(o.Flags) // without those of this command line, which nobody has to accept
	o.Flags = append(o.Flags, flags...)
	cwd := x.rec.Workspace.Cwd
	if !path.IsAbs(cwd) {
		cwd = path.Join(ws, cwd)
	} else {
		cwd = x.mapPath(cwd)
	}
	if x.cwd = cwd; cwd != j.host.Cwd {
		j.host.Cwd, j.host.Pwd = cwd, ""
	}
	return nil
}

// single reports whether a flag may be given once.
func single(name string) bool {
	i := slices.IndexFunc(policyFlags, func(f policyFlag) bool { return f.name == name })
	return i < 0 || !policyFlags[i].many
}

// mapPath puts the places of here in place of those of the record.
func (x *reproduction) mapPath(s string) string {
	best := -1
	for i, p := range x.from {
		if p.path == "" || p.path == "/" || s != p.path && !strings.HasPrefix(s, p.path+"/") {
			continue
		}
		if best < 0 || len(p.path) > len(x.from[best].path) {
			best = i
		}
	}
	if best < 0 || x.to[best].path == "" {
		return s
	}
	return x.to[best].path + strings.TrimPrefix(s, x.from[best].path)
}

func (x *reproduction) mapAll(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = x.mapPath(w)
	}
	return out
}

// tell prints what is different here, and refuses what the record allows beyond the
// profile of here.
func (x *reproduction) tell(plans []phasePlan, st *profile.Stack) error {
	h, err := host.Gather()
	if err != nil {
		return err
	}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	x.tellHost(h, add)
	x.tellWorkspace(add)
	wider, err := x.tellProfile(h, st, add)
	if err != nil {
		return err
	}
	if err := x.tellPlans(h, plans, add); err != nil {
		return err
	}
	var b strings.Builder
	what, word := "gate", "verdict"
	if x.rec.Kind == recordedRun {
		what, word = "run", "status"
	}
	fmt.Fprintf(&b, "wall: reproducing a %s of %s, with the %s %s and exit status %d\n", what, oneLine(x.rec.Started), word, oneLine(x.rec.Result.Status), x.rec.Result.Exit)
	for _, l := range lines {
		b.WriteString("wall: differs: " + oneLine(l) + "\n")
	}
	if len(lines) == 0 {
		b.WriteString("wall: no difference that matters was found\n")
	}
	if _, err := io.WriteString(x.s.err, b.String()); err != nil {
		return &plan.Error{Op: "cannot write to standard error", Err: err}
	}
	if len(wider) > 0 && !x.accept {
		measure := "-p measures it by another profile of yours"
		if x.f.profile == "" {
			measure = "-p " + quoteOdd(x.mapPath(x.rec.Profile)) + " measures it by the profile of that name here"
		}
		return &plan.Error{Op: "the record allows more than your own profile: " + strings.Join(wider[:min(5, len(wider))], "; "),
			Err: errNotAccepted, Hint: "read the record first; --accept-profile runs it all the same, and " + measure}
	}
	return nil
}

var errNotAccepted = errors.New("it was not accepted")

func (x *reproduction) tellHost(h profile.Host, add func(string, ...any)) {
	r := x.rec
	if v := wallVersion(); v != r.Wall {
		add("wall is %s, and was %s", v, r.Wall)
	}
	if k := kernelRelease(); k != r.Host.Kernel {
		add("the kernel is %s, and was %s", k, r.Host.Kernel)
	}
	if runtime.GOARCH != r.Host.Arch {
		add("the machine is %s, and was %s", runtime.GOARCH, r.Host.Arch)
	}
	if h.LandlockABI != r.Host.Landlock {
		add("Landlock has ABI %d, and had %d", h.LandlockABI, r.Host.Landlock)
	}
	if ok := h.SeccompErr == nil; ok != r.Host.Seccomp {
		add("system call filters are available: %t, and were: %t", ok, r.Host.Seccomp)
	}
	for _, was := range r.Tools {
		// The file at the same path; a program of another path is in the plan.
		p := x.mapPath(was.Path)
		switch is, _, err := describeTool(p); {
		case err != nil:
			add("%s is not there, or cannot be read", quoteOdd(p))
		case is.SHA256 != was.SHA256:
			add("%s is another file: %d bytes, and had %d", quoteOdd(p), is.Size, was.Size)
		}
	}
}

func (x *reproduction) tellWorkspace(add func(string, ...any)) {
	was, is := x.rec.Workspace.Git, readGit(x.to[0].path)
	switch {
	case was == nil && is == nil:
		add("the workspace is no git repository, so that nobody knows whether its files are the same")
		return
	case was == nil:
		add("the workspace is a git repository, and was none")
		return
	case is == nil:
		add("the workspace is no git repository, and was one at commit %s", was.Head)
		return
	}
	if is.Head != was.Head {
		add("the commit is %s, and was %s", shortID(is.Head), shortID(was.Head))
	} else if is.Index != was.Index {
		add("other changes are staged")
	}
	for _, s := range []struct {
		g    *gitState
		verb string
	}{{was, "had"}, {is, "has"}} {
		switch s.g.Files {
		case "changed":
			add("the workspace %s changed files that are not committed or staged: %d", s.verb, s.g.Changed)
		case "unknown":
			add("nobody knows whether the workspace %s changed files: %s", s.verb, s.g.Why)
		}
	}
}

func shortID(id string) string {
	if id == "" {
		return "not known"
	}
	return id
}

// gateProfile is the profile that a record is measured by when it names none that the
// user made.
const gateProfile = "gate"

// ownProfile gives the profile of here that a record is measured by: that of -p, or one
// of the record's name that the user or the administrator installed, or "gate". A name
// that leads to a file does not count, because whoever wrote the record may have sent
// the file, too; and built-in profiles for the user's own sessions let more cross than
// a stranger's command may have.
func (x *reproduction) ownProfile(h profile.Host, recorded *profile.Stack, add func(string, ...any)) (*profile.Stack, error) {
	load := func(name string) (*profile.Stack, error) {
		return profile.Load(h, profile.Options{Profile: name, NoSettings: true, Flags: []profile.Flag{{Name: "workspace", Value: x.to[0].path}}})
	}
	told := func(st *profile.Stack, name string) {
		if st.Digest() != recorded.Digest() {
			add("the profile %s here has another text", quoteOdd(name))
		}
	}
	if x.f.profile != "" {
		st, err := load(x.f.profile)
		if err == nil {
			told(st, x.f.profile)
		}
		return st, err
	}
	name := x.mapPath(x.rec.Profile)
	st, err := load(name)
	if err != nil {
		add("there is no usable profile %s here: %s", quoteOdd(name), firstLine(err))
		return load(gateProfile)
	}
	told(st, name)
	for _, l := range slices.Backward(st.Layers()) {
		switch l.Kind {
		case profile.LayerUser, profile.LayerSystem:
			return st, nil
		case profile.LayerProject, profile.LayerSettings, profile.LayerFlags:
			continue
		}
		break
	}
	return load(gateProfile)
}

// tellProfile compares what the record asks for with the user's own profile, and gives
// what it allows beyond that.
func (x *reproduction) tellProfile(h profile.Host, recorded *profile.Stack, add func(string, ...any)) (wider []string, err error) {
	local, err := x.ownProfile(h, recorded, add)
	if err != nil {
		return nil, err
	}
	at := h
	at.Cwd = x.cwd
	alone, err := profile.Load(at, x.options)
	if err != nil {
		return nil, err
	}
	for _, c := range profile.Compare(local, alone) {
		text := c.String()
		if c.Kind == profile.Narrower {
			add("the record allows less: %s", text)
			continue
		}
		add("the record allows more, or something else: %s", text)
		wider = append(wider, text)
	}
	return wider, nil
}

// tellDenials compares what the network wall refused then and now.
func (x *reproduction) tellDenials(is []recordDenial) {
	var lines []string
	tell := func(in, not []recordDenial, text string) {
		for _, d := range in {
			if x.phase != "" && d.Phase != x.phase || slices.ContainsFunc(not, func(o recordDenial) bool { return sameDenial(d, o) }) {
				continue
			}
			lines = append(lines, fmt.Sprintf(text, d.Target()))
		}
	}
	tell(x.rec.Result.Denials, is, "%s was refused, and is not now")
	tell(is, x.rec.Result.Denials, "%s is refused, and was not")
	const most = 20
	var b strings.Builder
	for _, l := range lines[:min(most, len(lines))] {
		b.WriteString("wall: differs: " + oneLine(l) + "\n")
	}
	if n := len(lines) - most; n > 0 {
		fmt.Fprintf(&b, "wall: differs: and %d more\n", n)
	}
	_, _ = io.WriteString(x.s.err, b.String()) // there is nobody left to tell
}

// sameDenial compares what was refused, not how often and by which line.
func sameDenial(a, b recordDenial) bool {
	return a.Phase == b.Phase && a.Name == b.Name && a.Port == b.Port && (a.Name != "" || a.Addr == b.Addr)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// tellPlans compares plans, tools among them, and environments.
func (x *reproduction) tellPlans(h profile.Host, plans []phasePlan, add func(string, ...any)) error {
	here := placesOf(x.to[0].path, recordUser{Home: x.to[1].path}, h)
	for _, p := range plans {
		i := slices.IndexFunc(x.rec.Plans, func(r recordPlan) bool { return r.Phase == p.name || x.phase != "" && r.Phase == x.phase })
		if i < 0 {
			add("there was no plan of phase %s", quoteOdd(p.name))
			continue
		}
		lines, _, err := planLines(p.plan, here)
		if err != nil {
			return err
		}
		was := x.rec.Plans[i].Lines
		other := func(l string) bool {
			return x.inShell && (strings.HasPrefix(l, "command ") || strings.HasPrefix(l, "  argv ")) ||
				x.ownStreams && strings.HasPrefix(l, "descriptor ")
		}
		was, lines = slices.DeleteFunc(slices.Clone(was), other), slices.DeleteFunc(lines, other)
		tellLines(was, lines, add)
	}
	if len(plans) == 0 {
		return nil
	}
	key, err := hexKey(x.rec.Environment.Key)
	if err != nil {
		return err
	}
	vars, err := hashVars(plans[0].plan, hashKey(key, x.key), here)
	if err != nil {
		return err
	}
	find := func(list []recordVar, name string) *recordVar {
		if i := slices.IndexFunc(list, func(v recordVar) bool { return v.Name == name }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	for _, was := range x.rec.Environment.Names {
		switch is := find(vars, was.Name); {
		case is == nil && strings.HasPrefix(was.Reason, "flag"):
			add("the variable %s is missing; its value is not in the record: --env %s=VALUE", was.Name, was.Name)
		case is == nil:
			add("the variable %s is missing (%s)", was.Name, was.Reason)
		case is.Hash != "" && was.Hash != "" && is.Hash != was.Hash:
			add("the variable %s has another value", was.Name)
		}
	}
	for _, is := range vars {
		if find(x.rec.Environment.Names, is.Name) == nil {
			add("the variable %s was not there (%s)", is.Name, is.Reason)
		}
	}
	return nil
}

// tellLines tells the lines of two plans that are in one of them only. Those of
// variables are left to the comparison of the environment.
func tellLines(was, is []string, add func(string, ...any)) {
	const most = 20
	count := map[string]int{}
	for _, l := range was {
		count[l]--
	}
	for _, l := range is {
		count[l]++
	}
	n := 0
	tell := func(lines []string, sign int, word string) {
		for _, l := range lines {
			if count[l]*sign <= 0 {
				continue
			}
			count[l] -= sign
			if isEnvLine(l) || isEcho(l) {
				continue
			}
			if n++; n <= most {
				add("the plan %s: %s", word, strings.TrimSpace(l))
			}
		}
	}
	tell(was, -1, "had")
	tell(is, 1, "has")
	if n > most {
		add("and %d more lines of the plan", n-most)
	}
}

// isEcho reports whether a line of a plan says again, in a rule or a self-test, what
// another line says.
func isEcho(l string) bool {
	word, _, _ := strings.Cut(strings.TrimSpace(l), " ")
	return slices.Contains([]string{"except", "unreadable", "unwritable", "guard"}, word)
}

// isEnvLine reports whether a line of a plan speaks of variables: what of them
// crossed or did not depends on who runs wall.
func isEnvLine(l string) bool {
	if strings.HasPrefix(l, "environment ") || strings.HasPrefix(l, "dropped ") || strings.HasPrefix(l, "mounts ") || strings.HasPrefix(l, "self-test ") {
		return true
	}
	name, rest, ok := strings.Cut(strings.TrimSpace(l), "=")
	if ok && strings.HasPrefix(rest, plan.Redacted) && !strings.Contains(name, " ") {
		return true
	}
	name, _, ok = strings.Cut(strings.TrimSpace(l), " (")
	return ok && strings.HasPrefix(l, "  ") && !strings.ContainsAny(name, " /") // a dropped variable
}
