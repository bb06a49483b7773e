package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// A policyFlag is a flag that says the same as a profile key. All of them end in
// one list, in the order they were typed, because "--ro a --rw a/b" and
// "--rw a/b --ro a" need not mean the same.
type policyFlag struct {
	name   string
	short  string
	arg    string // what the value is, in help
	usage  string
	many   bool     // may be repeated
	choice []string // the whole set of values, nil when open
	known  []string // further values of the language: the other spellings of a profile
}

var policyFlags = []policyFlag{
	{name: "workspace", arg: "DIR", usage: "directory the command works on (default: the working directory)"},
	{name: "workspace-access", arg: "ACCESS", usage: "what the command may do in the workspace", choice: []string{"read", "write"}, known: []string{"read-only", "read-write"}},
	{name: "cwd", arg: "DIR", usage: "working directory of the command"},
	{name: "ro", arg: "PATH", usage: "make PATH readable", many: true},
	{name: "rw", arg: "PATH", usage: "make PATH writable", many: true},
	{name: "ro-try", arg: "PATH", usage: "make PATH readable when it exists", many: true},
	{name: "rw-try", arg: "PATH", usage: "make PATH writable when it exists", many: true},
	{name: "hide", arg: "PATH", usage: "make PATH look empty", many: true},
	{name: "protect", arg: "PATH", usage: "keep PATH read-only inside a writable tree, also when it is absent", many: true},
	{name: "view", arg: "VIEW", usage: "what is visible to begin with", choice: []string{"host", "system"}},
	{name: "home", arg: "HOME", usage: "what stands at the home directory", choice: []string{"scratch", "read-only", "hidden"}},
	{name: "env", arg: "NAME=VALUE", usage: "set a variable", many: true},
	{name: "pass", arg: "NAME", usage: "let a variable of the caller cross", many: true},
	{name: "scrub", arg: "MODE", usage: "which of the caller's variables cross", choice: []string{"off", "deny-secrets", "strict"}},
	{name: "net", arg: "MODE", usage: "network of the command", choice: []string{"none", "allow", "host"}},
	{name: "allow-host", arg: "HOST[:PORT]", usage: "let HOST be reached with --net allow; *.HOST is every name below it", many: true},
	{name: "loopback", arg: "PORT", usage: "make PORT of the host's loopback interface reachable", many: true},
	{name: "publish", arg: "PORT", usage: "make PORT of the command reachable on the host's loopback interface", many: true},
	{name: "enforce", arg: "LEVEL", usage: "which walls are up", choice: []string{"off", "fs", "fs+net"}},
	{name: "if-unavailable", arg: "ACTION", usage: "when this host cannot build a wall", choice: []string{"fail", "degrade"}},
	{name: "seccomp", arg: "FILTER", usage: "system call filter: default, strict, or an OCI seccomp file"},
	{name: "tty", arg: "MODE", usage: "what happens to a terminal on descriptors 0-2", choice: []string{"auto", "pty", "inherit", "none"}},
	{name: "timeout", arg: "DURATION", usage: "end the command after that time, such as 90s or 10m; 0 is no limit"},
	{name: "limit", arg: "NAME=VALUE", usage: "limit memory, processes, scratch, time, grace, open-files, file-size, output, core", many: true},
}

// shared holds what the flags that run, shell and plan have in common said.
type shared struct {
	profile   string
	policy    []profile.Flag
	keep      bool
	fds       fdList
	scratch   string
	allowHome bool
}

// addShared declares the shared flags on cmd.
func addShared(cmd *cobra.Command) *shared {
	s := new(shared)
	fs := cmd.Flags()
	fs.SortFlags = false
	addOnce(fs, &s.profile, "profile", "p", "NAME|FILE", "profile, built-in or a file")
	for _, f := range policyFlags {
		v := &policyValue{flag: f, list: &s.policy}
		usage := f.usage
		if len(f.choice) > 0 {
			usage += ": " + strings.Join(f.choice, ", ")
			// The error is for a name that is not a flag or is registered twice.
			if err := addChoice(cmd, fs, v, f, usage); err != nil {
				panic(bug(err))
			}
			continue
		}
		fs.VarP(v, f.name, f.short, usage)
	}
	fs.Var(&s.fds, "fd", "further descriptor that passes to the command, or all; may be repeated")
	addSwitch(fs, &s.keep, "keep", "leave the scratch directory behind; its path is told, and \"kept\" in the result")
	addOnce(fs, &s.scratch, "scratch-root", "", "DIR", "make the scratch directory below DIR")
	addSwitch(fs, &s.allowHome, "allow-home-workspace", "accept the home directory, or a parent of it, as workspace")
	return s
}

// addChoice declares a flag with a closed set of values, and completes it.
func addChoice(cmd *cobra.Command, fs *pflag.FlagSet, v pflag.Value, f policyFlag, usage string) error {
	fs.VarP(v, f.name, f.short, usage)
	return cmd.RegisterFlagCompletionFunc(f.name, cobra.FixedCompletions(f.choice, cobra.ShellCompDirectiveNoFileComp))
}

// options gives the part of profile.Options that comes from the flags.
func (s *shared) options() profile.Options {
	o := profile.Options{
		Profile:      s.profile,
		Flags:        s.policy,
		Keep:         s.keep,
		CustomFilter: compileFilter,
	}
	if s.allowHome {
		o.Flags = append(o.Flags, profile.Flag{Name: "allow-home-workspace", Value: "true", Text: "--allow-home-workspace"})
	}
	return o
}

// A policyValue appends to the list that all policy flags share.
type policyValue struct {
	flag policyFlag
	list *[]profile.Flag
	seen bool
}

func (v *policyValue) String() string { return "" }
func (v *policyValue) Type() string   { return v.flag.arg }

func (v *policyValue) Set(value string) error {
	if v.seen && !v.flag.many {
		return errRepeated
	}
	v.seen = true
	if value == "" {
		return errors.New("the value is empty")
	}
	text := "--" + v.flag.name + " " + quoteOdd(value)
	switch {
	case v.flag.name == "env":
		// The text goes into errors and plans, where no value may appear.
		name, _, ok := strings.Cut(value, "=")
		if !ok || name == "" {
			return badEnv(value)
		}
		text = "--env " + quoteOdd(name)
	case v.flag.name == "limit":
		if err := checkLimit(value); err != nil {
			return err
		}
	case v.flag.choice != nil && !slices.Contains(v.flag.choice, value) && !slices.Contains(v.flag.known, value):
		e := &valueError{msg: "want " + listed(v.flag.choice)}
		if near := nearWord(value, v.flag.choice); near != "" {
			e.hint = "did you mean --" + v.flag.name + " " + near + "?"
		}
		return e
	}
	*v.list = append(*v.list, profile.Flag{Name: v.flag.name, Value: value, Text: text})
	return nil
}

// A valueError says what is wrong with the value of a flag.
type valueError struct {
	msg  string
	hint string // instead of the usual one; "" = the usual one
}

func (e *valueError) Error() string { return e.msg }

// badEnv is the error for --env without a value. What was typed may be a value
// that lost its name, and is repeated only when the caller has a variable of that
// name.
func badEnv(typed string) error {
	name := "NAME"
	if _, ok := os.LookupEnv(typed); ok {
		name = quoteOdd(typed)
	}
	return &valueError{msg: "want NAME=VALUE", hint: "to let the variable of the caller cross: --pass " + name}
}

// checkLimit refuses a limit that the language does not have, and names those
// that this version enforces.
func checkLimit(value string) error {
	name, _, ok := strings.Cut(value, "=")
	var enforced []string
	for _, k := range profile.Keys() {
		if k.Table() == "limits" {
			enforced = append(enforced, k.Last())
		}
	}
	hint := "the limits are " + strings.Join(enforced, ", ")
	if !ok {
		return &valueError{msg: "want NAME=VALUE", hint: hint}
	}
	if _, known := profile.LookupKey("limits." + name); known {
		return nil // Resolve says what is wrong with the rest
	}
	// As setrlimit(2) and the shell call them.
	other := map[string]string{"nofile": "open-files", "n": "open-files", "fsize": "file-size", "f": "file-size", "c": "core",
		"nproc": "processes", "u": "processes", "pids": "processes", "as": "memory", "v": "memory", "rss": "memory", "timeout": "time", "disk": "scratch"}
	near := other[name]
	if near == "" {
		near = nearWord(name, enforced)
	}
	if near != "" {
		hint = "did you mean --limit " + near + "=...? " + hint
	}
	return &valueError{msg: "there is no limit called " + quoteOdd(name), hint: hint}
}

var errRepeated = errors.New("the flag is given twice")

// A onceValue is a single value; a second one is an error, because it cannot be
// known which of the two was meant.
type onceValue struct {
	p    *string
	arg  string
	seen bool
}

func addOnce(fs *pflag.FlagSet, p *string, name, short, arg, usage string) {
	fs.VarP(&onceValue{p: p, arg: arg}, name, short, usage)
}

func (v *onceValue) String() string { return "" }
func (v *onceValue) Type() string   { return v.arg }

func (v *onceValue) Set(value string) error {
	if v.seen {
		return errRepeated
	}
	v.seen = true
	if value == "" {
		return errors.New("the value is empty")
	}
	*v.p = value
	return nil
}

// A switchValue is a flag without a value.
type switchValue struct {
	p    *bool
	seen bool
	json bool // --json of a command whose standard output is its own
}

func addSwitch(fs *pflag.FlagSet, p *bool, name, usage string) {
	fs.Var(&switchValue{p: p, json: name == "json"}, name, usage)
	fs.Lookup(name).NoOptDefVal = "true"
}

func (v *switchValue) String() string   { return "false" }
func (v *switchValue) Type() string     { return "bool" }
func (v *switchValue) IsBoolFlag() bool { return true }

func (v *switchValue) Set(value string) error {
	if v.seen {
		return errRepeated
	}
	if value != "true" {
		if v.json {
			return errors.New("the flag takes no value: the JSON goes to standard output")
		}
		return errors.New("the flag takes no value")
	}
	v.seen, *v.p = true, true
	return nil
}

// An fdList is the value of --fd: numbers from 3 on, or "all".
type fdList struct {
	fds []int
	all bool
}

func (l *fdList) String() string { return "" }
func (l *fdList) Type() string   { return "N|all" }

func (l *fdList) Set(value string) error {
	if value == "all" {
		l.all = true
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || strconv.Itoa(n) != value {
		return errors.New("want a descriptor number or all")
	}
	if n < 3 {
		return errors.New("descriptors 0, 1 and 2 pass anyway")
	}
	l.fds = append(l.fds, n)
	return nil
}

// flagError turns an error of the flag parser into one sentence and one hint.
func flagError(cmd *cobra.Command, err error) error {
	hint := fmt.Sprintf("%q lists the flags", cmd.CommandPath()+" --help")
	if cmd.Annotations[annotationRuns] != "" {
		hint += `; flags of the command itself go after "--" or after its name`
	}
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		if near := nearFlag(cmd, name); near != "" {
			hint = "did you mean " + near + "?"
		}
		return &usageError{msg: "unknown flag " + quoteOdd(name), hint: hint}
	case errors.As(err, &missing):
		return &usageError{msg: "flag --" + missing.GetFlag().Name + " needs a value", hint: hint}
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		msg := "flag --" + f.Name
		switch v := f.Value.(type) {
		case *switchValue:
		case *policyValue:
			if v.flag.name != "env" { // its value is not for printing
				msg += " " + quoteOdd(invalid.GetValue())
			}
		default:
			msg += " " + quoteOdd(invalid.GetValue())
		}
		if errors.Is(err, errRepeated) {
			return &usageError{msg: "flag --" + f.Name + " is given twice", hint: "give it once"}
		}
		var bad *valueError
		if errors.As(err, &bad) && bad.hint != "" {
			hint = bad.hint
		}
		return &usageError{msg: msg + ": " + invalid.Unwrap().Error(), hint: hint}
	}
	return &usageError{msg: oneLine(err.Error()), hint: hint}
}

// nearFlag gives the flag of cmd that was probably meant by an unknown one, "" when
// there is none. One letter behind one hyphen is never near to anything.
func nearFlag(cmd *cobra.Command, typed string) string {
	word, long := strings.CutPrefix(typed, "--")
	if !long {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	if near := nearWord(word, names); near != "" {
		return "--" + near
	}
	return ""
}

// quoteOdd quotes a user's string when it could be misread or would upset a
// terminal.
func quoteOdd(s string) string {
	if s == "" {
		return `""`
	}
	for _, r := range s {
		if r <= ' ' || r == '"' || r == '\'' || r == '\\' || r == '`' || r == 0x7f || !strconv.IsPrint(r) || r == '\uFFFD' {
			return strconv.Quote(s)
		}
	}
	return s
}

// bug marks what cannot happen.
func bug(err error) error {
	return &plan.Error{Op: "wall bug", Hint: "please report this", Err: err}
}

// flagOrigin is the origin of what a flag asked for.
func flagOrigin(text string) plan.Origin { return plan.Origin{Text: text} }

// parseFD reads a descriptor number in its one canonical spelling.
func parseFD(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || strconv.Itoa(n) != s {
		return 0, false
	}
	return n, true
}

// fdName is how l asked for fd.
func fdName(fd int, l fdList) string {
	if l.all {
		return "all"
	}
	return strconv.Itoa(fd)
}
