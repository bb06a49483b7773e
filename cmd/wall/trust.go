package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// trustVersion is the version of the JSON that trust prints.
const trustVersion = 1

// A trustReport is what "wall trust FILE --json" prints.
type trustReport struct {
	Version int         `json:"version"`
	Path    string      `json:"path"` // free of links
	Digest  string      `json:"digest"`
	Profile string      `json:"profile"` // that it lies over
	Widens  []trustLine `json:"widens"`  // empty: it only tightens, which needs no trust
	Trusted bool        `json:"trusted"` // now
}

// A trustLine is one thing that a project layer widens.
type trustLine struct {
	Key    string `json:"key"`
	Change string `json:"change"` // in one sentence
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Text   string `json:"text"`
}

// A trustList is what "wall trust --list --json" prints.
type trustList struct {
	Version int         `json:"version"`
	Store   string      `json:"store"`
	Entries []trustItem `json:"entries"`
}

// A trustItem is one entry of the trust store and what has become of the file.
type trustItem struct {
	Path   string `json:"path"`
	Digest string `json:"digest"`
	State  string `json:"state"` // "current", "changed", "missing" or "unreadable"
}

func newTrust(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust [--show|--yes] FILE | --list [--json]",
		Short: "Show what a project layer widens, and accept exactly that content",
		Long: `Show what a project layer (WORKSPACE/.wall/NAME.toml) takes back of the protection
of the profile NAME, and accept exactly that content at exactly that place. Any
edit voids it. A project layer that only tightens needs no trust.

On a terminal wall asks before it accepts; the exit status is 1 when the answer is
not yes. Without a terminal naming the file is the answer.`,
		Example: `  wall trust .wall/gate.toml
  wall trust --show .wall/gate.toml
  wall trust --list --json`,
		DisableFlagsInUseLine: true,
	}
	var list, asJSON, show, yes bool
	addSwitch(cmd.Flags(), &list, "list", "list what is trusted, and whether the files are still the same")
	addSwitch(cmd.Flags(), &show, "show", "show what the file widens and whether it is trusted, and change nothing")
	addSwitch(cmd.Flags(), &yes, "yes", "accept without asking")
	addSwitch(cmd.Flags(), &asJSON, "json", "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if list {
			if err := noArgs(cmd, args); err != nil {
				return err
			}
			if show || yes {
				return &usageError{msg: "--list stands without --show and --yes", hint: "for example: wall trust --list"}
			}
			return listTrust(s, asJSON)
		}
		if show && yes {
			return &usageError{msg: "--show and --yes contradict each other", hint: "--show changes nothing, --yes accepts"}
		}
		if err := oneFile(cmd, args); err != nil {
			return err
		}
		r, store, err := inspectProject(args[0])
		if err != nil {
			return err
		}
		switch {
		case show:
		case r.Trusted || yes || !isTerminal(s.in) || !isTerminal(s.err):
			err = r.accept(store)
			r.Trusted = err == nil
		default:
			return r.ask(s, store, asJSON)
		}
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(s.out, r)
		}
		_, err = io.WriteString(s.out, r.change()+r.state())
		return err
	}
	return cmd
}

func newUntrust(s streams) *cobra.Command {
	return &cobra.Command{
		Use:     "untrust FILE",
		Short:   "Turn off the trust in a project layer",
		Long:    `Remove every trusted content of a project layer. The file need not exist any more.`,
		Example: `  wall untrust .wall/gate.toml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneFile(cmd, args); err != nil {
				return err
			}
			return untrustProject(s.out, args[0])
		},
		DisableFlagsInUseLine: true,
	}
}

func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && args[0] != "" {
		return nil
	}
	return &usageError{msg: fmt.Sprintf("%s needs one file", cmd.CommandPath()), hint: fmt.Sprintf("%q shows the usage", cmd.CommandPath()+" --help")}
}

// A projectFile is a project layer by its place.
type projectFile struct {
	path      string // free of links
	workspace string
	profile   string
}

// findProject tells which workspace and profile a project layer belongs to.
func findProject(h profile.Host, file string) (projectFile, error) {
	fail := func(err error, hint string) (projectFile, error) {
		return projectFile{}, &plan.Error{Op: "cannot use " + quoteOdd(file) + " as a project layer", Err: err, Hint: hint}
	}
	abs := file
	if !path.IsAbs(abs) {
		if h.Cwd == "" {
			return fail(errors.New("the working directory was deleted"), "give an absolute path")
		}
		abs = h.Cwd + "/" + file
	}
	dir, base := filepath.Split(filepath.Clean(abs))
	// A directory that is gone keeps its name, so that it can still be untrusted.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fail(err, "")
	}
	dir = filepath.Clean(dir)
	name, ok := strings.CutSuffix(base, ".toml")
	if !ok || path.Base(dir) != profile.ProjectDir {
		return fail(errors.New("it is not WORKSPACE/"+profile.ProjectDir+"/NAME.toml"), "only project layers need trust")
	}
	return projectFile{path: path.Join(dir, base), workspace: path.Dir(dir), profile: name}, nil
}

// inspectProject tells what the content of a project layer widens, and whether it is
// trusted. It reads the file once, so that what is accepted is what was shown.
func inspectProject(file string) (r trustReport, store string, err error) {
	h, err := host.Gather()
	if err != nil {
		return r, "", err
	}
	if _, err := os.Lstat(absolute(file)); errors.Is(err, fs.ErrNotExist) {
		return r, "", &plan.Error{Op: "cannot trust " + quoteOdd(file) + ": it does not exist", Hint: "project layers are WORKSPACE/" + profile.ProjectDir + "/NAME.toml"}
	}
	p, err := findProject(h, file)
	if err != nil {
		return r, "", err
	}
	data, err := readProject(p.path)
	if err != nil {
		return r, "", &plan.Error{Op: "cannot read the project layer " + quoteOdd(file), Err: err}
	}
	h.Cwd, h.Pwd = p.workspace, ""
	st, err := profile.LoadProject(p.path, data, p.profile, h)
	if err != nil {
		return r, "", err
	}
	r = trustReport{Version: trustVersion, Path: p.path, Digest: profile.Digest(data), Profile: p.profile, Widens: []trustLine{}}
	for _, c := range st.Widened() {
		r.Widens = append(r.Widens, trustLine{c.Key, c.String(), c.Origin.Line, c.Origin.Column, c.Origin.Text})
	}
	store = profile.TrustFile(h, p.workspace)
	all, err := readTrust(store)
	r.Trusted = slices.Contains(all, profile.TrustEntry{Digest: r.Digest, Path: r.Path})
	return r, store, err
}

// accept puts the content into the trust store. Also when nothing widens: together
// with flags it may.
func (r trustReport) accept(store string) error {
	return editTrust(store, func(all []profile.TrustEntry) ([]profile.TrustEntry, error) {
		return append(all, profile.TrustEntry{Digest: r.Digest, Path: r.Path}), nil
	})
}

// ask shows what the file widens, and accepts it when the person at the terminal
// says so.
func (r trustReport) ask(s streams, store string, asJSON bool) error {
	shown := s.out
	if asJSON {
		shown = s.err // the answer alone goes to standard output
	}
	what := "widens"
	if len(r.Widens) == 0 {
		what = "only tightens"
	}
	question := fmt.Sprintf("wall: trust exactly this content, which %s profile %s? [y/N] ", what, r.Profile)
	if _, err := io.WriteString(shown, r.change()); err != nil {
		return err
	}
	if _, err := io.WriteString(s.err, question); err != nil {
		return err
	}
	answer, err := readLine(s.in)
	if err != nil {
		return &plan.Error{Op: "cannot read the answer", Err: err}
	}
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		_, _ = io.WriteString(s.err, "wall: nothing was changed\n") // as in printError
		return exitStatus(1)
	}
	if err := r.accept(store); err != nil {
		return err
	}
	r.Trusted = true
	if asJSON {
		return writeJSON(s.out, r)
	}
	_, err = io.WriteString(s.out, r.state())
	return err
}

// maxAnswer bounds a line that readLine reads, in bytes.
const maxAnswer = 256

// readLine reads up to the end of a line or of the input, and nothing behind it.
func readLine(r io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxAnswer; {
		n, err := r.Read(one)
		switch {
		case n == 1 && one[0] == '\n', errors.Is(err, io.EOF):
			return string(line), nil
		case err != nil:
			return "", err
		}
		line = append(line, one[:n]...)
	}
	return "", errors.New("the line is too long")
}

// change tells what the file widens, a line for each.
func (r trustReport) change() string {
	var b strings.Builder
	for _, l := range r.Widens {
		fmt.Fprintf(&b, "%s:%d:%d: %s\n", quoteOdd(r.Path), l.Line, l.Column, oneLine(l.Change))
	}
	if len(r.Widens) == 0 {
		fmt.Fprintf(&b, "%s only tightens profile %s, which needs no trust\n", quoteOdd(r.Path), r.Profile)
	}
	return b.String()
}

// state is the last line: whether the content is trusted.
func (r trustReport) state() string {
	word := "trusted"
	if !r.Trusted {
		word = "not trusted"
	}
	return fmt.Sprintf("%s with profile %s: %s (SHA-256 %s)\n", word, r.Profile, quoteOdd(r.Path), r.Digest)
}

// untrustProject removes every trusted content of one project layer.
func untrustProject(w io.Writer, file string) error {
	h, err := host.Gather()
	if err != nil {
		return err
	}
	p, err := findProject(h, file)
	if err != nil {
		return err
	}
	err = editTrust(profile.TrustFile(h, p.workspace), func(all []profile.TrustEntry) ([]profile.TrustEntry, error) {
		kept := slices.DeleteFunc(slices.Clone(all), func(e profile.TrustEntry) bool { return e.Path == p.path })
		if len(kept) == len(all) {
			return nil, &plan.Error{Op: quoteOdd(p.path) + " is not trusted", Hint: "\"wall trust --list\" lists what is"}
		}
		return kept, nil
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "no longer trusted: %s\n", quoteOdd(p.path))
	return err
}

// listTrust prints the trust store.
func listTrust(s streams, asJSON bool) error {
	h, err := host.Gather()
	if err != nil {
		return err
	}
	l := trustList{Version: trustVersion, Store: profile.TrustFile(h, ""), Entries: []trustItem{}}
	all, err := readTrust(l.Store)
	if err != nil {
		return err
	}
	for _, e := range all {
		item := trustItem{Path: e.Path, Digest: e.Digest, State: "current"}
		switch data, err := readProject(e.Path); {
		case errors.Is(err, fs.ErrNotExist):
			item.State = "missing"
		case err != nil:
			item.State = "unreadable"
		case profile.Digest(data) != e.Digest:
			item.State = "changed"
		}
		l.Entries = append(l.Entries, item)
	}
	if asJSON {
		return writeJSON(s.out, l)
	}
	if len(l.Entries) == 0 {
		_, err := io.WriteString(s.err, "wall: nothing is trusted\n")
		return err
	}
	var b strings.Builder
	for _, e := range l.Entries {
		fmt.Fprintf(&b, "%s  %-10s  %s\n", e.Digest, e.State, quoteOdd(e.Path))
	}
	_, err = io.WriteString(s.out, b.String())
	return err
}
