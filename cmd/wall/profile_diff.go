package main

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/profile/lint"
)

func newProfileDiff(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff [--fail-on wider|any] [--over NAME] [--json] A B",
		Short: "Compare what two profiles allow",
		Long: `Compare what two profiles allow, all layers merged and groups of paths written out:
wider, narrower, or changed where that cannot be ordered. Order, formatting, comments,
reasons and "extends" do not count by themselves. A and B are names or files, "-" for
standard input; a pipe of the shell may stand for a file. A name includes its project
layer. With --over both files are project layers of that profile.

Every change is judged by itself: a path that is no longer hidden is wider, also where
nothing else would show it. The exit status is 1 with --fail-on wider when something
is wider or cannot be ordered, with --fail-on any when anything differs, else 0.`,
		Example: `  wall profile diff agent gate
  wall profile diff --fail-on wider <(git show main:ci/wall.toml) ci/wall.toml
  wall profile diff --over agent <(git show main:.wall/agent.toml) .wall/agent.toml`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeProfiles,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) != 2 {
			return &usageError{msg: fmt.Sprintf("diff needs two profiles, got %d", len(args)), hint: "for example: wall profile diff agent ./mine.toml"}
		}
		if args[0] == "-" && args[1] == "-" {
			return &usageError{msg: "only one of the two can be standard input", hint: "name a file for the other"}
		}
		return nil
	}
	var failOn, over string
	var asJSON bool
	fl := cmd.Flags()
	addOnce(fl, &failOn, "fail-on", "", "WHAT", "exit with 1 when B is wider, or for any change: wider, any")
	addOnce(fl, &over, "over", "", "NAME", "both are project layers of that profile")
	addSwitch(fl, &asJSON, "json", "print the changes as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if failOn != "" && failOn != "wider" && failOn != "any" {
			return &usageError{msg: "--fail-on must be wider or any, not " + quoteOdd(failOn)}
		}
		h, err := host.Gather()
		if err != nil {
			return err
		}
		var sides [2]*profile.Stack
		for i, name := range args {
			if sides[i], err = loadSide(s, h, name, over); err != nil {
				return err
			}
		}
		d := newDifference(args[0], args[1], profile.Compare(sides[0], sides[1]))
		if asJSON {
			err = writeJSON(s.out, d)
		} else {
			err = writeProfileText(s.out, d.text())
		}
		if err == nil && (failOn == "wider" && d.Wider+d.Changed > 0 || failOn == "any" && len(d.Changes) > 0) {
			err = exitStatus(1)
		}
		return err
	}
	return cmd
}

// loadSide reads one of the profiles that are compared.
func loadSide(s streams, h profile.Host, name, over string) (*profile.Stack, error) {
	if name != "-" && !isProfileFile(name) && over == "" {
		return profile.Load(h, profile.Options{Profile: name, NoSettings: true})
	}
	shown := name
	if name == "-" {
		shown = "standard input"
	}
	data, err := readText(s, name, profile.MaxFileSize)
	if err != nil {
		return nil, &plan.Error{Op: "cannot read the profile " + quoteOdd(shown), Err: err}
	}
	if over != "" {
		return profile.LoadProject(shown, data, over, h)
	}
	// A pull request may have written it: it makes wall read nothing of the host
	// but files of the repository, and profiles by name.
	file := absolute(shown)
	if at, err := filepath.EvalSymlinks(file); err == nil {
		file = at
	}
	if err := lint.Confined(h.FS, callerPaths().root(file, ""), file, data); err != nil {
		return nil, relocated(err, shown)
	}
	return profile.LoadFile(shown, data, h)
}

// relocated gives the place of an error with the name that the user wrote.
func relocated(err error, name string) error {
	var e *plan.Error
	if !errors.As(err, &e) {
		return err
	}
	moved := *e
	moved.Origin.File = name
	return &moved
}

// A difference is what "wall profile diff" found.
type difference struct {
	Version  int          `json:"version"`
	A        string       `json:"a"`
	B        string       `json:"b"`
	Verdict  string       `json:"verdict"` // unchanged, narrower, changed or wider: the worst of the changes
	Wider    int          `json:"wider"`
	Narrower int          `json:"narrower"`
	Changed  int          `json:"changed"` // cannot be ordered; counts as wider
	Changes  []jsonChange `json:"changes"`
}

type jsonChange struct {
	Kind   string     `json:"kind"` // wider, narrower or changed
	Key    string     `json:"key"`
	Item   string     `json:"item,omitempty"`
	From   string     `json:"from,omitempty"`
	To     string     `json:"to,omitempty"`
	Text   string     `json:"text"` // in words
	Origin jsonOrigin `json:"origin"`
	origin plan.Origin
}

func newDifference(a, b string, changes []profile.Change) difference {
	d := difference{Version: resultVersion, A: a, B: b, Verdict: "unchanged", Changes: []jsonChange{}}
	const vars = "environment.set"
	gained := func(name string) func(profile.Change) bool {
		return func(c profile.Change) bool { return c.Key == vars && c.Item == name && c.To != "" }
	}
	for _, c := range changes {
		was := slices.IndexFunc(changes, func(x profile.Change) bool {
			return c.Key == vars && c.To != "" && x.Key == vars && x.Item == c.Item && x.To == ""
		})
		if c.Key == vars && c.To == "" && slices.ContainsFunc(changes, gained(c.Item)) {
			continue // told together
		}
		j := jsonChange{Key: c.Key, Item: c.Item, From: c.From, To: c.To, Text: changeWords(c), Origin: originJSON(c.Origin), origin: c.Origin}
		if was >= 0 {
			j.From = changes[was].From
			j.Text = otherValue(c.Item, j.From, j.To)
		}
		switch c.Kind {
		case profile.Wider:
			j.Kind = "wider"
			d.Wider++
		case profile.Narrower:
			j.Kind = "narrower"
			d.Narrower++
		default:
			j.Kind = "changed"
			d.Changed++
		}
		d.Changes = append(d.Changes, j)
	}
	switch {
	case d.Wider > 0:
		d.Verdict = "wider"
	case d.Changed > 0:
		d.Verdict = "changed"
	case d.Narrower > 0:
		d.Verdict = "narrower"
	}
	return d
}

// otherValue tells that a variable of environment.set has another value, or
// another source, which begins with a brace.
func otherValue(name, from, to string) string {
	source := func(s string) bool { return strings.HasPrefix(s, "{") }
	text := "environment.set: the variable " + quoteOdd(name)
	switch {
	case source(to) && source(from):
		return text + " comes from " + to + ", was " + from
	case source(to):
		return text + " comes from " + to + ", was a fixed value"
	case source(from):
		return text + " has a fixed value, was " + from
	}
	return text + " has another fixed value"
}

func (d difference) text() string {
	var b strings.Builder
	for _, kind := range []string{"wider", "changed", "narrower"} {
		for _, c := range d.Changes {
			if c.Kind != kind {
				continue
			}
			fmt.Fprintf(&b, "%-8s  %s\n", c.Kind, oneLine(c.Text))
			if !c.origin.IsZero() {
				fmt.Fprintf(&b, "          at %s\n", oneLine(c.origin.String()))
			}
		}
	}
	switch {
	case len(d.Changes) == 0:
		b.WriteString("unchanged: both allow the same\n")
	default:
		fmt.Fprintf(&b, "%d wider, %d changed, %d narrower\n", d.Wider, d.Changed, d.Narrower)
	}
	return b.String()
}

// Both tables below are made when they are needed: a map of a package is made at
// every start of wall.

// valueWords says what a value of a key means. What is not here is told by the
// value itself.
func valueWords() map[string]map[string]string {
	return map[string]map[string]string{
		"enforce": {`"fs+net"`: "all walls are up", `"fs"`: "all walls but that of the network are up", `"off"`: "no wall is up"},
		"if-unavailable": {`"fail"`: "a wall that the host cannot build stops the run",
			`"degrade"`: "the command runs without a wall that the host cannot build"},
		"filesystem.view":         {`"system"`: "only the operating system is readable to begin with", `"host"`: "the whole host is readable to begin with"},
		"filesystem.home":         {`"hidden"`: "the home looks empty", `"scratch"`: "the home is a private, empty directory", `"read-only"`: "the real home is readable"},
		"filesystem.workspace":    {`"read-only"`: "the workspace cannot be changed", `"read-write"`: "the workspace can be changed"},
		"network.mode":            {`"none"`: "there is no network", `"allow"`: "the allowed hosts can be reached", `"host"`: "the whole network of the host can be reached"},
		"network.proxy-variables": {"true": "proxy variables are set", "false": "no proxy variables are set"},
		"network.check-sni":       {"true": "TLS connections must name the host that they are for", "false": "what TLS connections name is not looked at"},
		"environment.scrub": {`"strict"`: "only variables of the base and allowed ones cross", `"deny-secrets"`: "all variables but secrets cross",
			`"off"`: "every variable of the caller crosses"},
		"environment.inject":       {"true": "stored variables are laid over the environment", "false": "stored variables are left out"},
		"environment.caches.keep":  {"true": "later runs in this workspace see what is written to the caches", "false": "what is written to the caches is thrown away"},
		"process.nested-sandboxes": {"true": "the command can make user namespaces", "false": "the command cannot make user namespaces"},
		"process.tty": {`"none"`: "there is no terminal", `"pty"`: "the terminal is a private one", `"auto"`: "a terminal is relayed where there is one",
			`"inherit"`: "the command has the caller's terminal"},
	}
}

// itemWords say that an element is in a list, and that it is not.
func itemWords() map[string][2]string {
	return map[string][2]string{
		"require":                  {"%s must be up even when degrading", "%s may be missing when degrading"},
		"filesystem.seed":          {"%s is copied into the home", "%s is not copied into the home"},
		"filesystem.hide":          {"%s is hidden", "%s is not hidden"},
		"filesystem.protect":       {"%s is protected", "%s is not protected"},
		"filesystem.devices":       {"the device %s can be used", "the device %s cannot be used"},
		"network.allow":            {"%s can be reached", "%s cannot be reached"},
		"network.deny":             {"%s is denied", "%s is not denied"},
		"network.loopback":         {"the host's loopback port %s can be reached", "the host's loopback port %s cannot be reached"},
		"network.ports":            {"port %s of other hosts can be reached", "port %s of other hosts cannot be reached"},
		"network.publish":          {"the host can reach port %s of the command", "the host cannot reach port %s of the command"},
		"environment.allow":        {"variables that match %s cross", "variables that match %s do not cross for that"},
		"environment.deny":         {"variables that match %s are denied", "variables that match %s are not denied"},
		"environment.set":          {"the variable %s has a fixed value", "the variable %s has not that fixed value"},
		"environment.pass":         {"the variable %s crosses", "the variable %s does not cross for that"},
		"environment.caches.tools": {"there is a private cache of %s", "there is no private cache of %s"},
	}
}

// changeWords tells a change in plain words: what holds now, and what held.
func changeWords(c profile.Change) string {
	if c.Item != "" {
		item, absent := strings.CutSuffix(c.Item, " while absent")
		if words, ok := itemWords()[c.Key]; ok {
			text := words[0]
			switch {
			case c.To == "":
				text = words[1]
			case strings.HasPrefix(c.To, "{"):
				return fmt.Sprintf("%s: the variable %s comes from %s", c.Key, quoteOdd(item), c.To)
			}
			text = fmt.Sprintf(text, quoteOdd(item))
			if absent {
				text += " while it does not exist"
			}
			return c.Key + ": " + text
		}
		if c.Key == "gate.phase" {
			switch {
			case c.From == "":
				return c.Key + ": there is a phase " + quoteOdd(item) + ": " + c.To
			case c.To == "":
				return c.Key + ": there is no phase " + quoteOdd(item) + "; before, " + c.From
			}
			return c.Key + ": the phase " + quoteOdd(item) + " is " + c.To + "; before, " + c.From
		}
		granted := func(access string) string {
			switch access {
			case `"read"`:
				return "readable"
			case `"write"`:
				return "writable"
			}
			return "not granted"
		}
		return fmt.Sprintf("%s: %s is %s, was %s", c.Key, quoteOdd(path.Clean(c.Item)), granted(c.To), granted(c.From))
	}
	words := func(v string) string {
		if text, ok := valueWords()[c.Key][v]; ok {
			return text
		}
		switch {
		case v == "" && strings.HasPrefix(c.Key, "limits."):
			return "no limit"
		case v == "" && c.Key == "network.ports":
			return "every port"
		}
		if v == "" {
			return "nothing"
		}
		return v
	}
	return fmt.Sprintf("%s: %s; before, %s", c.Key, words(c.To), words(c.From))
}
