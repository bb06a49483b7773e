package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

func newEnv(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env [COMMAND] [FLAG...]",
		Short: "Show which variables a command would get, and store variables",
		Long: `Show which variables a command would get, and keep variables that wall lays over the
environment of every command whose profile has inject = true.

Without a command it is "wall env preview". Values are never printed, except by
"wall env list --show-values". The exit status is 2 when something fails.`,
		Example: `  wall env
  wall env --surface gate
  wall env set EDITOR=vi
  wall env ui`,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
	}
	preview := addPreview(cmd, s)
	cmd.RunE = readOnly(s, func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return preview()
		}
		hint := `"wall help env" lists them`
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf("did you mean %q?", "wall env "+near[0])
		}
		if strings.Contains(args[0], "=") { // it holds a value
			return &usageError{msg: "env takes no variables", hint: "to store one: wall env set NAME=VALUE"}
		}
		if cmd.Flags().Changed("json") { // as with wall run
			hint = "--json takes no file here: the JSON goes to standard output"
		}
		return &usageError{msg: "unknown command " + quoteOdd("env "+args[0]), hint: hint}
	})
	for _, f := range []func(streams) *cobra.Command{newEnvList, newEnvPreview, newEnvRestore, newEnvSet, newEnvUI, newEnvUnset} {
		c := f(s)
		c.RunE = readOnly(s, c.RunE)
		cmd.AddCommand(c)
	}
	return cmd
}

func newEnvPreview(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preview [--surface SURFACE] [-p PROFILE] [FLAG...]",
		Short: "Show which variables a command would get, by name",
		Long: `Show which variables a command would get: which of the caller's pass, and by which
rule; which wall or the profile sets; which were stored with "wall env set"; which
come from a file, a command or a keyring; and which of the caller's stay outside.
There are names and rules only, and nothing is fetched. It is what "wall run" with
the same flags decides, by the same code.

A surface is a kind of command: session (profile agent), contract, gate, shell or
terminal (the profiles of these names). --surface alone chooses the profile; with
-p it is an error unless the profile is of that surface.

From a directory that cannot be a workspace, such as the home directory, the
preview is that of an empty workspace.`,
		Example: `  wall env preview
  wall env preview --surface terminal
  wall env preview -p gate --pass CI --json`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
	}
	preview := addPreview(cmd, s)
	cmd.RunE = func(*cobra.Command, []string) error { return preview() }
	return cmd
}

// surfaces are the kinds of command, as environment.base names them, each with
// its built-in profile.
var surfaces = []struct{ name, profile string }{
	{"session", "agent"}, {"contract", "contract"}, {"gate", "gate"}, {"shell", "shell"}, {"terminal", "terminal"},
}

func surfaceNames() []string {
	var names []string
	for _, x := range surfaces {
		names = append(names, x.name)
	}
	return names
}

// addPreview declares the flags of the preview on cmd, and gives what prints it.
func addPreview(cmd *cobra.Command, s streams) func() error {
	f := addShared(cmd)
	var surface string
	var terminal, asJSON bool
	fs := cmd.Flags()
	addOnce(fs, &surface, "surface", "", "SURFACE", "kind of command: "+strings.Join(surfaceNames(), ", "))
	addSwitch(fs, &terminal, "terminal", "the same as --surface terminal")
	addSwitch(fs, &asJSON, "json", "print the preview as JSON")
	// The error is for a name that is not a flag or is registered twice.
	if err := cmd.RegisterFlagCompletionFunc("surface", cobra.FixedCompletions(surfaceNames(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(bug(err))
	}
	return func() error {
		if surface != "" && !slices.Contains(surfaceNames(), surface) {
			hint := "the surfaces are " + strings.Join(surfaceNames(), ", ")
			if near := nearWord(surface, surfaceNames()); near != "" {
				hint = "did you mean --surface " + near + "?"
			}
			return &usageError{msg: "there is no surface called " + quoteOdd(withoutValue(surface)), hint: hint}
		}
		if terminal {
			if surface != "" && surface != "terminal" {
				return &usageError{msg: "--terminal and --surface " + surface + " contradict each other", hint: "give one of them"}
			}
			surface = "terminal"
		}
		r, err := previewEnv(f, surface)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(s.out, r)
		}
		_, err = io.WriteString(s.out, r.text())
		return err
	}
}

// previewVersion is the version of the JSON of the preview.
const previewVersion = 1

// An envName is the name of a variable, which need not be UTF-8.
type envName string

// MarshalText is for JSON, which shows a name as the plan does.
func (n envName) MarshalText() ([]byte, error) { return []byte(plan.EscapeBytes(string(n))), nil }

// An envPreview is what "wall env preview --json" prints. It has no values.
type envPreview struct {
	Version   int          `json:"version"`
	Surface   string       `json:"surface"` // of the profile
	Profile   string       `json:"profile"`
	Scrub     string       `json:"scrub"`  // the mode in force
	Inject    bool         `json:"inject"` // stored variables are laid over
	Caller    callerCount  `json:"caller"`
	Variables []previewVar `json:"variables"` // sorted by name
	Dropped   []envDropped `json:"dropped"`   // sorted by name
	Notices   []envNotice  `json:"notices"`
}

// A callerCount counts the variables of the caller: each is one of the three.
type callerCount struct {
	Total    int `json:"total"`
	Passes   int `json:"passes"`   // with the caller's value
	Replaced int `json:"replaced"` // the command has a variable of that name, from elsewhere
	Dropped  int `json:"dropped"`
}

// The places that the value of a variable comes from.
const (
	fromCaller   = "caller"
	fromSet      = "set"      // by wall, the profile or a flag
	fromInjected = "injected" // stored with "wall env set"
	fromSource   = "source"   // fetched at the start of a run
)

// A previewVar is one variable that the command gets.
type previewVar struct {
	Name     envName    `json:"name"`
	From     string     `json:"from"`
	Reason   string     `json:"reason"` // the rule
	Origin   jsonOrigin `json:"origin"`
	Source   *envSource `json:"source"`   // not nil exactly when From is "source"
	Replaces bool       `json:"replaces"` // the caller has one of that name, whose value does not count
}

// An envSource names the place of a value, see plan.ValueSource.
type envSource struct {
	Kind string   `json:"kind"`
	Name string   `json:"name"`
	Argv []string `json:"argv"` // of a command, else empty
	line string   // all of it
}

// An envDropped is a variable of the caller that stays outside.
type envDropped struct {
	Name   envName `json:"name"`
	Reason string  `json:"reason"`
}

// An envNotice is something else that the operator should know.
type envNotice struct {
	Text   string     `json:"text"`
	Hint   string     `json:"hint"`
	Origin jsonOrigin `json:"origin"`
}

// previewEnv decides the environment as a run with these flags would. surface is
// "" for the default profile.
func previewEnv(f *shared, surface string) (envPreview, error) {
	j, err := gather(f, -1, profile.ResolveStack)
	if err != nil {
		return envPreview{}, err
	}
	j.options.Default, j.options.NoCommand = "agent", true
	for _, x := range surfaces {
		if x.name == surface {
			j.options.Default = x.profile
		}
	}
	p, err := profile.Resolve(j.host, j.options)
	chosen := slices.ContainsFunc(j.options.Flags, func(x profile.Flag) bool { return x.Name == "workspace" || x.Name == "cwd" })
	if errors.Is(err, profile.ErrWorkspace) && !chosen {
		dir, tempErr := os.MkdirTemp(host.TempDir, "wall-preview-")
		if tempErr != nil {
			return envPreview{}, &plan.Error{Op: "cannot make an empty workspace for the preview", Err: tempErr, Hint: "change to a project, or name one with --workspace"}
		}
		defer os.Remove(dir) // empty
		j.options.Flags = append(slices.Clip(j.options.Flags), profile.Flag{Name: "workspace", Value: dir, Text: "an empty workspace"})
		p, err = profile.Resolve(j.host, j.options)
	}
	if err != nil {
		return envPreview{}, advise(err, j.options)
	}
	st, err := profile.Load(j.host, j.options)
	if err != nil {
		return envPreview{}, err
	}
	e := st.Effective()
	if surface != "" && e.EnvBase != surface {
		return envPreview{}, &usageError{
			msg:  fmt.Sprintf("profile %s is of the surface %s, not %s", quoteOdd(p.Profile), e.EnvBase, surface),
			hint: "leave out --surface, or choose another profile",
		}
	}
	r := describeEnv(p, j.host.Environ)
	r.Surface, r.Scrub, r.Inject = e.EnvBase, e.EnvScrub, e.Inject
	return r, nil
}

// describeEnv tells where the variables of a plan come from.
func describeEnv(p plan.Plan, environ []string) envPreview {
	r := envPreview{Version: previewVersion, Profile: p.Profile, Variables: []previewVar{}, Dropped: []envDropped{}, Notices: []envNotice{}}
	ambient := make(map[string]bool)
	for _, v := range environ {
		if name, _, ok := strings.Cut(v, "="); ok && name != "" && !strings.Contains(v, "\x00") {
			ambient[name] = true
		}
	}
	r.Caller.Total = len(ambient)
	for _, v := range p.Env {
		x := previewVar{Name: envName(v.Name), From: fromWhere(v), Reason: v.Reason, Origin: originJSON(v.Origin)}
		switch {
		case x.From == fromCaller:
			r.Caller.Passes++
		case ambient[v.Name]:
			x.Replaces = true
			r.Caller.Replaced++
		}
		if x.From == fromSource {
			x.Source = &envSource{string(v.Source.Kind), v.Source.Name, append([]string{}, v.Source.Argv...), v.Source.String()}
		}
		r.Variables = append(r.Variables, x)
	}
	for _, d := range p.Dropped {
		r.Dropped = append(r.Dropped, envDropped{envName(d.Name), d.Reason})
	}
	r.Caller.Dropped = len(r.Dropped)
	for _, n := range p.Notices {
		r.Notices = append(r.Notices, envNotice{n.Text, n.Hint, originJSON(n.Origin)})
	}
	return r
}

// fromWhere tells where the value of a variable comes from; see envscrub, which
// gives the reasons.
func fromWhere(v plan.EnvVar) string {
	if !v.Source.IsZero() {
		return fromSource
	}
	if v.Reason == "injected" {
		return fromInjected
	}
	for _, made := range []string{"fixed", "set", "flag", "base: default search path", "base: ~/"} {
		if strings.HasPrefix(v.Reason, made) {
			return fromSet
		}
	}
	return fromCaller
}

// text is the preview for people.
func (r envPreview) text() string {
	var b strings.Builder
	counts := map[string]int{}
	for _, v := range r.Variables {
		counts[v.From]++
	}
	inject := "stored variables are laid over"
	if !r.Inject {
		inject = "stored variables are left out"
	}
	fmt.Fprintf(&b, "surface %s, profile %s, scrub %s; %s\n", r.Surface, quoteOdd(r.Profile), r.Scrub, inject)
	fmt.Fprintf(&b, "%d of %s of the caller pass, %d replaced, %d left outside; %d set, %d injected, %d from a source\n",
		r.Caller.Passes, number(r.Caller.Total, "variable"), r.Caller.Replaced, r.Caller.Dropped, counts[fromSet], counts[fromInjected], counts[fromSource])
	var rows [][3]string
	flush := func(title string) {
		if len(rows) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n%s\n", title)
		var width [2]int
		for _, row := range rows {
			width[0], width[1] = max(width[0], len(row[0])), max(width[1], len(row[1]))
		}
		for _, row := range rows {
			line := fmt.Sprintf("  %-*s  %-*s  %s", min(width[0], 32), row[0], min(width[1], 48), row[1], row[2])
			b.WriteString(oneLine(strings.TrimRight(line, " ")) + "\n")
		}
		rows = nil
	}
	for _, section := range []struct{ from, title string }{
		{fromCaller, "passes"}, {fromSet, "set"}, {fromInjected, "injected"}, {fromSource, "from a source"},
	} {
		for _, v := range r.Variables {
			if v.From != section.from {
				continue
			}
			reason := v.Reason
			if v.Source != nil {
				reason += ": " + v.Source.line
			}
			if v.Replaces {
				reason += ", instead of the caller's"
			}
			rows = append(rows, [3]string{quoteOdd(string(v.Name)), reason, place(v.Origin)})
		}
		flush(section.title)
	}
	for _, d := range r.Dropped {
		rows = append(rows, [3]string{quoteOdd(string(d.Name)), d.Reason})
	}
	flush("stay outside")
	for i, n := range r.Notices {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString("notice: " + oneLine(n.Text) + "\n")
		if at := place(n.Origin); at != "" {
			b.WriteString("  at " + oneLine(at) + "\n")
		}
		if n.Hint != "" {
			b.WriteString("  hint: " + oneLine(n.Hint) + "\n")
		}
	}
	return b.String()
}

// place is an origin without the text of the line, where there is a line.
func place(o jsonOrigin) string {
	switch {
	case o.File != "" && o.Line > 0:
		return fmt.Sprintf("%s:%d", o.File, o.Line)
	case o.File != "":
		return o.File
	}
	return o.Text
}

// number gives a count with its noun.
func number(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
