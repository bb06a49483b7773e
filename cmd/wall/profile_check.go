package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/profile/lint"
)

func newProfileCheck(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FLAG...] [FILE|DIR|NAME]...",
		Short: "Check profiles for errors and weaknesses",
		Long: `Check profiles without running anything: that they parse and resolve, that a
project layer only tightens, and that no line is dangerous, without effect or
bound to one machine. Every finding has a code, a place, the reason and the fix.

A word with a slash or ending in .toml is a FILE or a DIR, any other the NAME of a
profile of the user, the machine or wall itself (each layer of that name), or of a
directory. Of a DIR that holds a directory .wall every *.toml file below that is
checked, of any other every *.toml file below it, by name. Without an argument
that is the working directory's .wall: profiles of the user are not looked at, so
that the answer is the same on every machine.

Symbolic links below a DIR are findings and not followed. A FILE may be a link;
nothing of what it leads to is shown unless that is a profile. What a profile of a
repository extends must lie in the repository, or be named.

A comment "# wall:allow CODE REASON" on the line of a finding, or alone on the line
above it, accepts it; with --no-suppressions none does. Use that where changes are
checked that nobody has reviewed: the comment is part of the change.

The exit status is 0 when there is nothing at or above --fail-on, 1 when there is,
and 2 when the command line names nothing that can be checked.`,
		Example: `  wall profile check
  wall profile check --fail-on warning --no-suppressions --github .wall gate
  wall profile check --for kernel=5.15,no-userns ci.toml`,
		DisableFlagsInUseLine: true,
	}
	var failOn, target string
	var strict, asJSON, asSARIF, asGitHub bool
	fl := cmd.Flags()
	fl.SortFlags = false
	addOnce(fl, &failOn, "fail-on", "", "SEVERITY", "lowest severity that fails: note, warning, error (default: error)")
	addOnce(fl, &target, "for", "", "FACTS", "report what such a host cannot enforce, too: kernel=X.Y, abi=N, no-userns, no-seccomp and more")
	addSwitch(fl, &strict, "no-suppressions", "let no comment of a profile accept a finding, for changes that nobody has reviewed")
	addSwitch(fl, &asJSON, "json", "print the findings as JSON")
	addSwitch(fl, &asSARIF, "sarif", "print the findings as SARIF 2.1.0")
	addSwitch(fl, &asGitHub, "github", "print the findings as annotations for GitHub Actions")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r := lint.Report{FailOn: lint.Error, Version: wallVersion()}
		if failOn != "" {
			var ok bool
			if r.FailOn, ok = lint.ParseSeverity(failOn); !ok {
				return &usageError{msg: "--fail-on must be note, warning or error, not " + quoteOdd(failOn)}
			}
		}
		write := func() error { return r.Text(s.out, colours(s.out)) }
		formats := 0
		for _, f := range []struct {
			on    bool
			write func() error
		}{
			{asJSON, func() error { return r.JSON(s.out) }},
			{asSARIF, func() error { return r.SARIF(s.out) }},
			{asGitHub, func() error { return r.GitHub(s.out) }},
		} {
			if f.on {
				formats++
				write = f.write
			}
		}
		if formats > 1 {
			return &usageError{msg: "only one of --json, --sarif and --github can be given"}
		}
		c, err := newProfileChecker(target)
		if err != nil {
			return err
		}
		c.options.NoSuppressions = strict
		if err := c.gather(args); err != nil {
			return err
		}
		checker := lint.New(c.options)
		for _, src := range c.sources {
			r.Files = append(r.Files, src.Name)
			r.Findings = append(r.Findings, checker.Check(src)...)
		}
		if err := write(); err != nil {
			return err
		}
		if r.Failed() {
			return exitStatus(1)
		}
		return nil
	}
	return cmd
}

// maxCheckEntries bounds what is looked at below one directory, so that a wrong
// argument ends at once and not after a walk over the disk.
const maxCheckEntries = 20000

// A profileChecker finds the profiles that a command line names.
type profileChecker struct {
	options lint.Options
	sources []lint.Source
	seen    map[string]bool // absolute paths, and names of built-in profiles
	paths   workspacePaths
}

// newProfileChecker gathers the facts that the rules look at. Nothing is tried
// on this host: a check says the same wherever it runs, as far as files go.
func newProfileChecker(target string) (*profileChecker, error) {
	h := profile.Host{Cwd: host.WorkingDir(), Environ: os.Environ(), FS: host.FS(), UID: os.Getuid(), GID: os.Getgid()}
	a, err := host.AccountOf(h.UID)
	if err != nil {
		return nil, err
	}
	h.User, h.AccountHome, h.AccountSh = a.Name, a.Home, a.Shell
	c := &profileChecker{options: lint.Options{Host: h, Path: filepath.SplitList(os.Getenv("PATH"))}, seen: make(map[string]bool)}
	c.paths = workspacePaths{cwd: h.Cwd, home: h.AccountHome}
	if c.options.Config, err = profile.UserDir(h, h.Cwd); err != nil {
		return nil, err
	}
	if target != "" {
		if c.options.Target, err = lint.ParseTarget(target); err != nil {
			return nil, &usageError{msg: "--for: " + oneLine(err.Error()), hint: "the facts are kernel=X.Y, abi=N, no-userns, no-landlock, no-seccomp, no-nftables, no-cgroups"}
		}
	}
	return c, nil
}

// gather finds the profiles of all arguments, in order and each once. What is
// named and cannot be read becomes a finding; what does not exist is a misused
// command line.
func (c *profileChecker) gather(args []string) error {
	if len(args) == 0 {
		st, err := os.Lstat(profile.ProjectDir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return &usageError{msg: "there is no directory .wall here", hint: "name a file, a directory or a profile"}
		case err != nil:
			return &usageError{msg: "cannot look at .wall: " + pathCause(err).Error()}
		case !st.IsDir():
			return &usageError{msg: ".wall is not a directory", hint: "wall does not follow a link there; name a file, a directory or a profile"}
		}
		args = []string{profile.ProjectDir + "/"}
	}
	for _, arg := range args {
		if err := c.argument(arg); err != nil {
			return err
		}
	}
	return nil
}

func (c *profileChecker) argument(arg string) error {
	if arg == "" {
		return &usageError{msg: "an argument is empty", hint: "name a file, a directory or a profile"}
	}
	if !strings.Contains(arg, "/") && !strings.HasSuffix(arg, ".toml") && arg != "." && arg != ".." && c.named(arg) {
		return nil
	}
	st, err := os.Stat(arg)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !strings.Contains(arg, "/") && !strings.HasSuffix(arg, ".toml"):
		return &usageError{msg: "there is no profile called " + quoteOdd(arg), hint: "built-in profiles: " + strings.Join(profile.Builtins(), ", ") + "; name a file as \"./name.toml\""}
	case errors.Is(err, fs.ErrNotExist):
		return &usageError{msg: "cannot check " + quoteOdd(arg) + ": " + pathCause(err).Error()}
	case err == nil && st.IsDir() && !strings.HasSuffix(arg, ".toml"):
		return c.directory(arg)
	}
	abs := absolute(arg)
	if dir, err := filepath.EvalSymlinks(path.Dir(abs)); err == nil {
		abs = path.Join(dir, path.Base(abs))
	}
	link := c.paths.link(absolute(arg), true) != ""
	c.file(arg, abs, c.paths.root(abs, ""), link)
	return nil
}

// named adds every layer that has the name, highest first.
func (c *profileChecker) named(name string) bool {
	found := false
	for _, dir := range []string{c.options.Config, profile.SystemDir} {
		if dir == "" {
			continue
		}
		p := path.Join(dir, name+".toml")
		if _, err := os.Lstat(p); err == nil {
			c.file(p, p, "", false)
			found = true
		}
	}
	if data, err := profile.Builtin(name); err == nil {
		id := "built-in:" + name
		if !c.seen[id] {
			c.seen[id] = true
			c.sources = append(c.sources, lint.Source{Name: id, Data: data})
		}
		found = true
	}
	return found
}

// file adds the file at abs, which is free of links but for the last element:
// a project layer is what lies in .wall. root is where the files lie that it may
// extend; "" for any. linked says that a link in a workspace leads to it.
func (c *profileChecker) file(name, abs, root string, linked bool) {
	if c.seen[abs] {
		return
	}
	c.seen[abs] = true
	src := lint.Source{Name: name, Path: abs, Root: root}
	at, err := filepath.EvalSymlinks(abs)
	if err != nil {
		at = abs // the reason is found again
	}
	if linked || at != abs && root != "" {
		src.Target = at
	}
	src.Data, src.Err = lint.ReadFile(c.options.Host.FS, at)
	c.sources = append(c.sources, src)
}

// directory adds the profiles below a directory, or below the .wall in it. No
// link on the way to them is followed.
func (c *profileChecker) directory(dir string) error {
	top := dir
	if st, err := os.Lstat(path.Join(dir, profile.ProjectDir)); err == nil && st.IsDir() {
		top = path.Join(dir, profile.ProjectDir)
	}
	fail := func(err error) error {
		return &usageError{msg: "cannot check " + quoteOdd(dir) + ": " + oneLine(err.Error())}
	}
	if link := c.paths.link(absolute(top), false); link != "" {
		return fail(errors.New(quoteOdd(c.paths.shown(link)) + " is a symbolic link"))
	}
	at, err := filepath.EvalSymlinks(top)
	if err != nil {
		return fail(pathCause(err))
	}
	at = absolute(at)
	type candidate struct {
		name string // relative to top
		link bool
	}
	var found []candidate
	entries := 0
	err = filepath.WalkDir(at, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entries++; entries > maxCheckEntries {
			return fmt.Errorf("more than %d files to look at", maxCheckEntries)
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(p, at), "/")
		link := d.Type()&fs.ModeSymlink != 0
		isTOML := strings.HasSuffix(d.Name(), ".toml") && rel != ""
		switch {
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		// Behind a link in .wall, or in place of it, could be profiles as well.
		case isTOML, link && (d.Name() == profile.ProjectDir || slices.Contains(strings.Split(path.Dir(p), "/"), profile.ProjectDir)):
			found = append(found, candidate{rel, link})
			if d.IsDir() {
				return fs.SkipDir // a finding of its own
			}
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	if len(found) == 0 {
		return &usageError{msg: "there is no profile below " + quoteOdd(top), hint: "profiles end in .toml"}
	}
	slices.SortFunc(found, func(a, b candidate) int { return strings.Compare(a.name, b.name) })
	for _, f := range found {
		name, abs := path.Join(top, f.name), path.Join(at, f.name)
		switch {
		case !f.link:
			c.file(name, abs, c.paths.root(abs, at), false)
		case !c.seen[abs]:
			c.seen[abs] = true
			c.sources = append(c.sources, lint.Source{Name: name, Path: abs, Err: lint.ErrLink})
		}
	}
	return nil
}

// pathCause takes the path and operation off an error, which the message has
// already.
func pathCause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
