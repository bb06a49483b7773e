package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/envscrub/inject"
	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// injectStore is the store of the caller. Where it is does not depend on the
// working directory: a run in a workspace that holds it tells that it does not
// count there.
func injectStore() (inject.Store, error) {
	h, err := host.Gather()
	if err != nil {
		return inject.Store{}, err
	}
	file, err := profile.InjectedFile(h, "")
	if err == nil && file == "" {
		err = &plan.Error{Op: "there is no place for stored variables", Err: errors.New("the account has no home directory"), Hint: "set XDG_CONFIG_HOME to a directory"}
	}
	return inject.Store{Path: file}, err
}

func newEnvSet(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME=VALUE... | set --stdin NAME",
		Short: "Store variables for the commands of later runs",
		Long: `Store variables, for every later run whose profile has inject = true, and print the
names of all that are stored then. A variable that is stored already gets the new
value. Nothing is stored when one of the arguments is wrong.

What stands on a command line can be read by every user of the machine until wall
has started, and stays in the history of the shell. --stdin reads the value of one
variable from standard input instead, up to its end, and takes one line break at
the end off.

The file is $XDG_CONFIG_HOME/wall/injected.json, or ~/.config/wall/injected.json.
Only its owner can read it; the values in it are not encrypted.`,
		Example: `  wall env set EDITOR=vi PAGER=cat
  wall env set --stdin API_TOKEN < token.txt`,
		DisableFlagsInUseLine: true,
	}
	var stdin bool
	addSwitch(cmd.Flags(), &stdin, "stdin", "read the value of the one variable from standard input")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var vars []inject.Var
		var err error
		if stdin {
			vars, err = variableFrom(s.in, args)
		} else {
			vars, err = assignments(args)
		}
		if err != nil {
			return err
		}
		st, err := injectStore()
		if err != nil {
			return err
		}
		all, err := st.Set(context.Background(), vars)
		if err != nil {
			return err
		}
		for _, v := range vars {
			if c := inject.Caution(v.Name); c != "" {
				printWarning(s.err, c)
			}
			if stdin && v.Value == "" {
				printWarning(s.err, v.Name+" is stored with an empty value: standard input had none")
			}
		}
		if err := printNames(s.out, all); err != nil {
			return err
		}
		return tellWhoInjects(s)
	}
	return cmd
}

// assignments reads the arguments of set, all of them before anything is done.
// What is wrong is told by its number: it may be a value that lost its name.
func assignments(args []string) ([]inject.Var, error) {
	if len(args) == 0 {
		return nil, &usageError{msg: "set needs a variable", hint: "for example: wall env set EDITOR=vi"}
	}
	var vars []inject.Var
	for i, a := range args {
		bad := func(why, hint string) ([]inject.Var, error) {
			return nil, &usageError{msg: fmt.Sprintf("argument %d: %s; nothing was stored", i+1, why), hint: hint}
		}
		name, _, ok := strings.Cut(a, "=")
		switch {
		case !ok:
			return bad("want NAME=VALUE", "to read the value from standard input: wall env set --stdin NAME")
		case name == "":
			return bad("the name in front of \"=\" is empty", "for example: wall env set EDITOR=vi")
		case !envscrub.ValidName(name):
			return bad("the name in front of \"=\" is not valid", nameRule)
		}
		v, err := inject.ParseAssignment(a)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(vars, func(x inject.Var) bool { return x.Name == v.Name }) {
			return bad(v.Name+" is given twice", "give it once")
		}
		vars = append(vars, v)
	}
	return vars, nil
}

// nameRule is what the name of a stored variable must be.
const nameRule = "a name has ASCII letters, digits and underscores only, and does not begin with a digit"

// variableFrom reads the value of one variable.
func variableFrom(r io.Reader, args []string) ([]inject.Var, error) {
	const example = "for example: wall env set --stdin API_TOKEN < token.txt"
	switch {
	case len(args) != 1:
		return nil, &usageError{msg: "set --stdin needs the name of one variable", hint: example}
	case strings.Contains(args[0], "="):
		return nil, &usageError{msg: "set --stdin takes a name without a value", hint: example}
	case !envscrub.ValidName(args[0]):
		return nil, &usageError{msg: "the name is not valid", hint: nameRule}
	}
	data, err := readAtMost(r, inject.MaxString)
	if err != nil {
		return nil, &plan.Error{Op: "cannot read the value of " + args[0] + " from standard input", Err: err}
	}
	v := inject.Var{Name: args[0], Value: string(bytes.TrimSuffix(data, []byte("\n")))}
	return []inject.Var{v}, inject.Check(v)
}

func newEnvUnset(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "unset NAME...",
		Short: "Remove stored variables",
		Long: `Remove stored variables, and print the names of those that are left. A name that is
not stored is no error, and told.`,
		Example:               `  wall env unset EDITOR PAGER`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if st, err := injectStore(); err == nil {
				vars, _ := st.Load() // there is nobody to tell
				for _, v := range vars {
					if !slices.Contains(args, v.Name) {
						names = append(names, v.Name)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &usageError{msg: "unset needs the name of a variable", hint: "for example: wall env unset EDITOR"}
			}
			for i, a := range args {
				if !envscrub.ValidName(a) {
					return &usageError{msg: fmt.Sprintf("argument %d is not the name of a variable; nothing was removed", i+1), hint: nameRule}
				}
			}
			st, err := injectStore()
			if err != nil {
				return err
			}
			before, _ := st.Load() // what is wrong with it, Unset says
			all, err := st.Unset(context.Background(), args)
			if err != nil {
				return err
			}
			for _, a := range args {
				if !slices.ContainsFunc(before, func(v inject.Var) bool { return v.Name == a }) {
					if _, err := io.WriteString(s.err, "wall: "+a+" was not stored\n"); err != nil {
						return err
					}
				}
			}
			return printNames(s.out, all)
		},
	}
}

// An envList is what "wall env list --json" prints.
type envList struct {
	Version   int         `json:"version"`
	File      string      `json:"file"`
	Variables []storedVar `json:"variables"` // sorted by name
}

// A storedVar has a value, or the bytes of one that is not UTF-8, with
// --show-values only.
type storedVar struct {
	Name   string  `json:"name"`
	Value  *string `json:"value,omitempty"`
	Base64 []byte  `json:"base64,omitempty"`
}

func newEnvList(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [--show-values] [--json]",
		Short: "List the stored variables",
		Long: `List the names of the stored variables. --show-values prints the values, too: for
people, those with special characters in double quotes.`,
		Example: `  wall env list
  wall env list --show-values --json`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
	}
	var show, asJSON bool
	addSwitch(cmd.Flags(), &show, "show-values", "print the values, too")
	addSwitch(cmd.Flags(), &asJSON, "json", "print JSON")
	cmd.RunE = func(*cobra.Command, []string) error {
		st, err := injectStore()
		if err != nil {
			return err
		}
		vars, err := st.Load()
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(s.out, listJSON(st.Path, vars, show))
		}
		if len(vars) == 0 {
			_, err := io.WriteString(s.err, "wall: no variable is stored\n")
			return err
		}
		if !show {
			return printNames(s.out, vars)
		}
		var b strings.Builder
		for _, v := range vars {
			b.WriteString(v.Name + "=" + shownValue(v.Value) + "\n")
		}
		_, err = io.WriteString(s.out, b.String())
		return err
	}
	return cmd
}

func listJSON(file string, vars []inject.Var, show bool) envList {
	l := envList{Version: 1, File: file, Variables: []storedVar{}}
	for _, v := range vars {
		x := storedVar{Name: v.Name}
		switch {
		case !show:
		case utf8.ValidString(v.Value):
			x.Value = &v.Value
		default:
			x.Base64 = []byte(v.Value)
		}
		l.Variables = append(l.Variables, x)
	}
	return l
}

// shownValue is a value on one line of a terminal.
func shownValue(v string) string {
	if v == "" || strings.HasPrefix(v, " ") || strings.HasSuffix(v, " ") || strings.ContainsAny(v, `"\`) || oneLine(v) != v {
		return strconv.QuoteToASCII(v)
	}
	return v
}

func newEnvRestore(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "restore",
		Short: "Restore the last good state of the stored variables",
		Long: `Put the last good state of the stored variables back when their file is damaged or
was removed, and print the names. The damaged file is kept under another name. It
is an error when there is nothing to restore.`,
		Example:               `  wall env restore`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE: func(*cobra.Command, []string) error {
			st, err := injectStore()
			if err != nil {
				return err
			}
			vars, kept, err := st.Restore(context.Background())
			if err != nil {
				return err
			}
			if kept != "" {
				if _, err := io.WriteString(s.err, "wall: the damaged file is kept as "+quoteOdd(kept)+"\n"); err != nil {
					return err
				}
			}
			return printNames(s.out, vars)
		},
	}
}

// printNames prints a name per line.
func printNames(w io.Writer, vars []inject.Var) error {
	var b strings.Builder
	for _, v := range vars {
		b.WriteString(v.Name + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tellWhoInjects says which built-in profiles use stored variables.
func tellWhoInjects(s streams) error {
	var with []string
	for _, name := range profile.Builtins() {
		data, err := profile.Builtin(name)
		if err != nil {
			return bug(err)
		}
		st, err := profile.LoadFile("built-in:"+name, data, profile.Host{})
		if err != nil {
			return bug(err)
		}
		if st.Effective().Inject {
			with = append(with, name)
		}
	}
	_, err := io.WriteString(s.err, "wall: stored variables are used by the built-in profiles "+strings.Join(with, ", ")+
		", and by others with inject = true\n")
	return err
}
