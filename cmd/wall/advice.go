package main

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// advise gives hints to errors of package profile that can only be given by
// whoever knows the whole command line and may look at the host.
func advise(err error, o profile.Options) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			_ = advise(e, o) // in place
		}
		return err
	}
	var e *plan.Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Exit == plan.ExitNotFound && len(o.Command) > 0:
		if hint := shellHint(o.Command); hint != "" {
			e.Hint = hint
		}
	case e.Hint != "":
	case o.Profile != "" && e.Origin.Text == "--profile "+o.Profile:
		e.Hint = profileHint(o.Profile, err)
	case strings.HasPrefix(e.Origin.Text, "--cwd ") && (errors.Is(err, fs.ErrNotExist) || isFile(e.Origin.Text[len("--cwd "):])):
		e.Hint = "name an existing directory of the host with --cwd"
	}
	return err
}

// profileHint is what to do about a profile that cannot be read.
func profileHint(name string, err error) string {
	if st, statErr := os.Stat(absolute(name)); statErr == nil && st.IsDir() {
		return quoteOdd(name) + " is a directory; name a file in it, for example " + quoteOdd(strings.TrimSuffix(name, "/")+"/mine.toml")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "the file does not exist; \"wall profile list\" lists what -p finds by name"
	}
	return ""
}

func isFile(name string) bool {
	st, err := os.Stat(absolute(name))
	return err == nil && !st.IsDir()
}

// shellBuiltins are commands of the shell that are no programs, or that would do
// nothing as one: sh(1) of POSIX.
var shellBuiltins = []string{
	".", ":", "alias", "bg", "break", "cd", "command", "continue", "eval", "exec", "exit", "export", "fc", "fg", "for", "getopts",
	"hash", "if", "jobs", "read", "readonly", "return", "set", "shift", "times", "trap", "type", "ulimit", "umask", "unalias", "unset", "wait", "while",
}

// bashBuiltins are those of bash(1) that sh(1) need not have.
var bashBuiltins = []string{"builtin", "declare", "dirs", "function", "history", "let", "local", "popd", "pushd", "shopt", "source", "typeset"}

// usualAliases are names that distributions define for ls(1).
var usualAliases = []string{"l", "la", "ll"}

// shellHint tells what to do when the command was not found because it was meant
// for a shell, else "".
func shellHint(argv []string) string {
	const why = "no shell reads the command; "
	word := argv[0]
	name, _, assigns := strings.Cut(word, "=")
	switch {
	case assigns && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "":
		// The value stays out of the message.
		return why + "set the variable with --env " + name + "=..."
	case len(argv) == 1 && strings.ContainsAny(word, " \t\n|&;<>()$`*?[]{}'\""):
		return why + "to have one read it: wall run -- sh -c " + shellWord(word)
	case slices.Contains(shellBuiltins, word):
		return why + quoteOdd(word) + " is a command of the shell itself: wall run -- sh -c " + shellWord(shellWords(argv))
	case slices.Contains(bashBuiltins, word):
		return why + quoteOdd(word) + " is a command of bash itself: wall run -- bash -c " + shellWord(shellWords(argv))
	case slices.Contains(usualAliases, path.Base(word)):
		return "aliases of your shell are not known inside; write out what " + quoteOdd(word) + " stands for"
	case strings.ContainsAny(word, " \t\n|&;<>()$`"):
		return why + "to have one read it: wall run -- sh -c " + shellWord(strings.Join(argv, " "))
	}
	return ""
}
