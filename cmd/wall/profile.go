package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

func newProfile(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile COMMAND",
		Short: "Show, check, compare and write profiles",
		Long: `Show, check, compare and write profiles, the files that say what a box allows
("wall help profiles"). Nothing is run, and nothing is changed but the files that
init and import are told to write. The exit status is 2 when a profile cannot be
read or the command line not be understood.`,
		Example: `  wall profile list
  wall profile explain -p gate filesystem.home
  wall profile init
  wall profile diff main.toml branch.toml --fail-on wider`,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		hint := `"wall help profile" lists them`
		if len(args) == 0 {
			return &usageError{msg: "profile needs a command", hint: hint}
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf("did you mean %q?", "wall profile "+near[0])
		}
		return &usageError{msg: "unknown command " + quoteOdd("profile "+args[0]), hint: hint}
	}
	for _, f := range profileCommands {
		c := f(s)
		c.RunE = readOnly(s, c.RunE)
		cmd.AddCommand(c)
	}
	return cmd
}

// profileCommands make the commands below "wall profile", in alphabetical order.
var profileCommands = []func(streams) *cobra.Command{
	newProfileCheck, newProfileDiff, newProfileExplain, newProfileImport, newProfileInit, newProfileList, newProfileSchema, newProfileShow,
}

// readOnly gives commands that run nothing the exit status 2 for every failure:
// 125 says that a command did not run, and 1 is an answer of check and diff.
func readOnly(s streams, run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		var usage *usageError
		var status exitStatus
		if err == nil || errors.As(err, &usage) || errors.As(err, &status) {
			return err
		}
		printError(s.err, err)
		return exitStatus(exitUsage)
	}
}

// oneArg wants exactly one argument.
func oneArg(what, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 1:
			return nil
		case 0:
			return &usageError{msg: cmd.Name() + " needs " + what, hint: "for example: " + example}
		}
		return &usageError{msg: cmd.Name() + " takes " + what + ", got " + quoteOdd(args[1]) + " as well", hint: "for example: " + example}
	}
}

// isProfileFile reports whether the argument names a file, as -p takes it.
func isProfileFile(s string) bool { return strings.Contains(s, "/") || strings.HasSuffix(s, ".toml") }

// completeProfiles completes the names of profiles, and files.
func completeProfiles(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return profile.Builtins(), cobra.ShellCompDirectiveDefault
}

// loadStack reads a profile with its layers, the project layer included.
func loadStack(name string) (profile.Host, *profile.Stack, error) {
	h, err := host.Gather()
	if err != nil {
		return h, nil, err
	}
	o := profile.Options{Profile: name, Default: "agent"}
	st, err := profile.Load(h, o)
	return h, st, advise(err, o)
}

// tellUnusable says on w what keeps a profile from being run, as a warning: the
// commands that show it still do. What the caller's settings do not do is told too.
func tellUnusable(w io.Writer, st *profile.Stack) error {
	if err := printPlanNotes(w, plan.Plan{Notices: st.Notices()}); err != nil {
		return err
	}
	err := st.Err()
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(explain(err), "wall: error: ", "wall: warning: ")
	_, err = io.WriteString(w, text)
	return err
}

// errNotText says that a file is not one that holds text.
var errNotText = errors.New("not a regular file")

// readText reads a file of the command line: "-" is standard input, and a path
// below /dev/fd or /proc/self/fd, which is how shells hand over the output of a
// command, may be a pipe. Everything else is a regular file; opening it does not
// wait for anybody.
func readText(s streams, name string, most int64) ([]byte, error) {
	in := s.in
	if name != "-" {
		f, err := hostFS{os.DirFS("/").(fs.ReadLinkFS)}.Open(strings.TrimPrefix(absolute(name), "/"))
		if err != nil {
			return nil, pathCause(err)
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return nil, pathCause(err)
		}
		pipe := st.Mode()&fs.ModeNamedPipe != 0 && (strings.HasPrefix(name, "/dev/fd/") || strings.HasPrefix(name, "/proc/self/fd/"))
		switch {
		case st.IsDir():
			return nil, errors.New("is a directory")
		case pipe:
			g, err := os.Open(name) // blocks until the writer is done, which is what it is for
			if err != nil {
				return nil, pathCause(err)
			}
			defer g.Close()
			in = g
		case !st.Mode().IsRegular():
			return nil, errNotText
		default:
			return readAtMost(f, most)
		}
	}
	return readAtMost(in, most)
}

func readAtMost(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	switch {
	case err != nil:
		return nil, pathCause(err)
	case int64(len(data)) > most:
		return nil, fmt.Errorf("it is larger than %d bytes", most)
	}
	return data, nil
}

// absolute gives a cleaned path; the working directory is the kernel's, not $PWD.
func absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Clean(host.WorkingDir() + "/" + name)
}

// writeJSON prints v indented. No foreign text in it is read as a command by the
// CI system that records the output: see [plan.PrintableJSON].
func writeJSON(w io.Writer, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		_, err = w.Write(append(plan.PrintableJSON(data), '\n'))
	}
	return err
}

// A jsonOrigin is plan.Origin in JSON.
type jsonOrigin struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Text   string `json:"text"`
}

func originJSON(o plan.Origin) jsonOrigin { return jsonOrigin{o.File, o.Line, o.Column, o.Text} }

// writeProfileText prints text that somebody else wrote. On a terminal control
// characters become question marks.
func writeProfileText(w *os.File, text string) error {
	if isTerminal(w) {
		var b strings.Builder
		for line := range strings.Lines(text) {
			body, nl := strings.CutSuffix(line, "\n")
			for i, part := range strings.Split(body, "\t") {
				if i > 0 {
					b.WriteByte('\t')
				}
				b.WriteString(oneLine(part))
			}
			if nl {
				b.WriteByte('\n')
			}
		}
		text = b.String()
	}
	_, err := io.WriteString(w, text)
	return err
}
