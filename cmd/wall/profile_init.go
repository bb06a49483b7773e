package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// starterName is the profile that init writes when none is named. It is not the
// name of a built-in profile, so that the file is a profile of its own.
const starterName = "project"

func newProfileInit(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init [--force] [-o FILE] [NAME]",
		Short: "Write a profile to start from",
		Long: `Write a commented profile to start from, after a look at the names of the files in
the working directory: Go, Rust, Node, Python, JVM, Make. Nothing is run and no file
is read. The profile is .wall/NAME.toml; NAME is "project" when it is not given.

With the name of a built-in profile the file is its project layer: wall lays it over
that profile in this workspace, and it may only tighten. Any other name makes a
profile of its own, for "-p .wall/NAME.toml". A file that exists is kept unless
--force is given.`,
		Example: `  wall profile init
  wall profile init agent
  wall profile init -o - ci`,
		DisableFlagsInUseLine: true,
	}
	var force bool
	var out string
	addSwitch(cmd.Flags(), &force, "force", "replace the file when it exists")
	addOnce(cmd.Flags(), &out, "output", "o", "FILE", "write to FILE, - for standard output")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return &usageError{msg: "init takes one name, got " + quoteOdd(args[1]), hint: "name the profile, for example: wall profile init project"}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := starterName
		if len(args) == 1 {
			name = args[0]
		}
		if !goodStarterName(name) {
			return &usageError{msg: quoteOdd(name) + " is not a name for a profile", hint: "letters, digits, hyphens and underscores"}
		}
		names, err := listNames(".")
		if err != nil {
			return &plan.Error{Op: "cannot look at the working directory", Err: err}
		}
		text := starter(name, detect(names), secretNames(names))
		if out == "-" {
			_, err := io.WriteString(s.out, text)
			return err
		}
		shown := out
		if out == "" {
			shown = profile.ProjectDir + "/" + name + ".toml"
			err = writeInWorkspace(profile.ProjectDir, name+".toml", text, force)
		} else {
			err = writeNew(out, text, force)
		}
		if err != nil {
			return cannotWrite(shown, err)
		}
		use := "wall run -p " + quoteOdd(shown) + " -- COMMAND"
		if isBuiltin(name) && out == "" {
			use = "wall run -p " + name + " -- COMMAND"
		}
		_, err = fmt.Fprintf(s.err, "wall: wrote %s; check it with \"wall profile check %s\", use it with %q\n", quoteOdd(shown), quoteOdd(shown), use)
		return err
	}
	return cmd
}

// cannotWrite tells that a profile was not written.
func cannotWrite(name string, err error) error {
	e := &plan.Error{Op: "cannot write " + quoteOdd(name), Err: pathCause(err)}
	if errors.Is(err, fs.ErrExist) {
		e.Err, e.Hint = errors.New("it exists"), "look at it; --force replaces it"
	}
	return e
}

func isBuiltin(name string) bool { return slices.Contains(profile.Builtins(), name) }

func goodStarterName(s string) bool {
	return s != "" && len(s) <= 64 && s[0] != '-' &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// listNames gives the names in a directory, at most so many that a directory of
// a million files is no problem.
func listNames(dir string) ([]string, error) {
	const most = 10000
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(most)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return names, nil
}

// writeInWorkspace writes DIR/NAME below the working directory, and makes DIR.
func writeInWorkspace(dir, name, text string, force bool) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return writeNew(path.Join(dir, name), text, force)
}

// writeNew writes the file called name. A link of a workspace on the way to it is
// refused: something may have planted it to have another file replaced. The root
// keeps one that is put there meanwhile from leading out.
func writeNew(name, text string, force bool) error {
	if strings.HasSuffix(name, "/") {
		return errors.New("it is a directory")
	}
	w, abs := callerPaths(), absolute(name)
	if link := w.link(path.Dir(abs), false); link != "" {
		return errors.New(quoteOdd(w.shown(link)) + " is a symbolic link")
	}
	top := path.Dir(abs)
	if w.shown(abs) != abs {
		top = w.cwd
	}
	root, err := os.OpenRoot(top)
	if err != nil {
		return err
	}
	defer root.Close()
	return createIn(root, strings.TrimPrefix(strings.TrimPrefix(abs, top), "/"), text, force)
}

// createIn makes a file with the text, whole or not at all. With force it takes
// the place of one that exists, and of a link, which is not followed.
func createIn(root *os.Root, name, text string, force bool) error {
	if force {
		st, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case st.IsDir():
			return errors.New("it is a directory")
		default:
			if err := root.Remove(name); err != nil {
				return err
			}
		}
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Close())
	if err != nil {
		err = errors.Join(err, root.Remove(name))
	}
	return err
}

// A language is a kind of project that init knows.
type language struct {
	name    string
	files   []string // any of them in the working directory tells
	command string   // an example
	grants  []string // lines of grant
	set     []string // lines of [environment.set]
	hints   []string // comments about what is off
}

var languages = []language{
	{name: "Go", files: []string{"go.mod", "go.work"}, command: "go test ./...",
		set: []string{
			`GOPROXY = "off"         # no network: a missing module fails at once; fetch with: wall run --net allow --allow-host proxy.golang.org -- go mod download`,
			`GOTOOLCHAIN = "local"`,
		}},
	{name: "Rust", files: []string{"Cargo.toml"}, command: "cargo test",
		grants: []string{
			`{ path = "~/.cargo/registry", access = "read", why = "crates already downloaded", optional = true },`,
			`{ path = "~/.cargo/git", access = "read", why = "git dependencies already downloaded", optional = true },`,
		},
		set: []string{`CARGO_NET_OFFLINE = "true" # no network: a missing crate fails at once`}},
	{name: "Node", files: []string{"package.json"}, command: "npm test",
		set: []string{
			`npm_config_offline = "true" # no network: install outside, or with --net allow --allow-host registry.npmjs.org`,
			`npm_config_update_notifier = "false"`,
		}},
	{name: "Python", files: []string{"pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile", "tox.ini"}, command: "python3 -m pytest",
		set: []string{`PIP_NO_INDEX = "1"       # no network: a missing package fails at once`}},
	{name: "JVM", files: []string{"pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"}, command: "mvn -o test",
		grants: []string{
			`{ path = "~/.m2/repository", access = "read", why = "artifacts already downloaded", optional = true },`,
		}},
	{name: "Make", files: []string{"Makefile", "GNUmakefile", "makefile", "CMakeLists.txt", "meson.build", "configure.ac", "configure"}, command: "make",
		hints: []string{
			`{ path = "~/.cache/ccache", access = "write", why = "compiler cache", optional = true },`,
		}},
}

// detect finds out from file names what kind of project it is.
func detect(names []string) []language {
	var found []language
	for _, l := range languages {
		if slices.ContainsFunc(l.files, func(f string) bool { return slices.Contains(names, f) }) {
			found = append(found, l)
		}
	}
	return found
}

// secretNames picks the names that look like a secret of the project, sorted.
// The usual .env files are hidden by base.
func secretNames(names []string) []string {
	var found []string
	for _, n := range names {
		low := strings.ToLower(n)
		ext := path.Ext(low)
		switch {
		case quoteOdd(n) != n || strings.ContainsAny(n, "*?@$~"):
			// It would need quoting in ways that a starter should not show.
		case slices.Contains([]string{"secrets", ".secrets", "credentials", "credentials.json", "kubeconfig", "id_rsa", "id_ed25519", "id_ecdsa"}, low),
			slices.Contains([]string{".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".tfstate", ".tfvars", ".kdbx"}, ext),
			strings.HasPrefix(low, "service-account") && ext == ".json":
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found
}

// starter gives the text of a profile to start from.
func starter(name string, found []language, secrets []string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	// list writes a list, or an example of one as a comment: an explicitly empty
	// list would drop what is inherited.
	list := func(key, example string, lines, comments []string) {
		if len(lines) == 0 {
			line("# %s = [", key)
		} else {
			line("%s = [", key)
		}
		for _, l := range lines {
			line("  %s", l)
		}
		for _, l := range append(comments, example) {
			line("  # %s", l)
		}
		if len(lines) == 0 {
			line("# ]")
		} else {
			line("]")
		}
	}
	var kinds, grants, hints, set, hide []string
	command := "make test"
	for i, l := range found {
		kinds = append(kinds, l.name)
		grants, hints, set = append(grants, l.grants...), append(hints, l.hints...), append(set, l.set...)
		if i == 0 {
			command = l.command
		}
	}
	for _, n := range secrets {
		hide = append(hide, fmt.Sprintf("%q, # looks like a secret", n))
	}
	seen := "Nothing in the workspace told what kind of project it is."
	if len(kinds) > 0 {
		seen = "Seen in the workspace: " + strings.Join(kinds, ", ") + "."
	}
	seen += "\n#"
	hideHelp := func() {
		line("# Files of this project that no command needs to read; they look empty inside. The")
		line("# usual places of credentials (@credentials) are hidden anyway.")
		list("hide", `"deploy/keys",`, hide, nil)
	}
	protectHelp := func() {
		line("# Paths that stay read-only although the workspace is writable, on top of what runs on")
		line("# the host later (@persistence: git hooks, CI, settings of editors and agents...).")
		list("protect", `"migrations",`, nil, nil)
	}
	if isBuiltin(name) {
		line("# The project layer of the built-in profile %q: wall lays it over that profile in", name)
		line("# this workspace. It may only tighten; a line that would widen is an error, unless")
		line("# the operator accepts exactly this file with: wall trust .wall/%s.toml", name)
		line("#")
		line("# %s", seen)
		line("# \"wall profile explain -p %s\" shows what all layers come to, \"wall profile", name)
		line("# check\" reviews them.")
		line("version = 1")
		line("description = \"What this project tightens\"")
		line("")
		line("[filesystem]")
		hideHelp()
		protectHelp()
		line("")
		line("[limits]")
		line("# open-files = 4096")
		line("# file-size = \"2GiB\"")
		return b.String()
	}
	line("# A profile for this project. Use it with:")
	line("#")
	line("#   wall run -p .wall/%s.toml -- %s", name, command)
	line("#")
	line("# %s", seen)
	line("# \"wall plan\" with the same flags shows what it comes to, \"wall profile check\"")
	line("# reviews it.")
	line("version = 1")
	line("name = %q", name)
	line("description = \"Builds and tests of this project: scratch home, no network\"")
	line("")
	line("# agent: the operating system, the toolchains in HOME and the workspace are visible,")
	line("# HOME is empty and gone after the run, there is no network, credentials stay out.")
	line("# \"wall profile show agent\" prints it. gate shows the whole host, read-only, instead.")
	line("extends = \"agent\"")
	line("")
	line("[filesystem]")
	line("# More to see or to write, each with the reason that review reads. A path that does")
	line("# not exist is an error unless the line is optional.")
	list("grant", `{ path = "../shared", access = "read", why = "code that is built with this" },`, grants, hints)
	hideHelp()
	protectHelp()
	line("")
	line("[network]")
	line("# Hosts that every program may reach, and no others (\"wall help network\"); \"host\"")
	line("# instead shares the network of the host, with all that listens on it.")
	line("# mode = \"allow\"")
	line("# allow = [\"proxy.golang.org\", \"*.example.org:443\"]")
	line("")
	line("[environment]")
	line("# Variables of the caller that cross besides PATH, TERM, LANG and the like.")
	line("# allow = [\"MAKEFLAGS\"]")
	if len(set) > 0 {
		line("")
		line("[environment.set]")
		for _, x := range set {
			line("%s", x)
		}
	}
	return b.String()
}
