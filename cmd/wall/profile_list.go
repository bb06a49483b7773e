package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/profile/lint"
)

// A listedProfile is one line of "wall profile list".
type listedProfile struct {
	Name        string            `json:"name"`
	Kind        profile.LayerKind `json:"kind"`
	File        string            `json:"file"` // "" for a built-in
	Description string            `json:"description"`
	Error       string            `json:"error,omitempty"` // why it cannot be used
	Refused     *string           `json:"refused"`         // why a run with -p NAME alone is refused on any host; nil when it is not
}

func newProfileList(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [--json]",
		Short: "List the profiles that -p finds by name",
		Long: `List the profiles that -p finds by name, and where each is: built into wall, of the
machine in /etc/wall, of the user in $XDG_CONFIG_HOME/wall. A project layer in .wall of
the working directory is laid over the profile of its name and may only tighten it; a
file there with another name is a profile of its own, for "-p .wall/NAME.toml".

Of a profile that wall refuses to run the reason is told in parentheses. The exit
status is 1 when a file cannot be used.`,
		Example: `  wall profile list
  wall profile list --json`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
	}
	var asJSON bool
	addSwitch(cmd.Flags(), &asJSON, "json", "print the list as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		list, err := listProfiles()
		if err != nil {
			return err
		}
		if asJSON {
			err = writeJSON(s.out, struct {
				Version  int             `json:"version"`
				Profiles []listedProfile `json:"profiles"`
			}{resultVersion, list})
		} else {
			err = printProfiles(s, list)
		}
		if err == nil && slices.ContainsFunc(list, func(p listedProfile) bool { return p.Error != "" }) {
			err = exitStatus(1)
		}
		return err
	}
	return cmd
}

func printProfiles(s streams, list []listedProfile) error {
	name, where := 0, 0
	place := func(p listedProfile) string {
		if p.File == "" {
			return string(p.Kind)
		}
		return string(p.Kind) + " " + quoteOdd(p.File)
	}
	for _, p := range list {
		name, where = max(name, len(p.Name)), max(where, len(place(p)))
	}
	for _, p := range list {
		text := p.Description
		if p.Error != "" {
			text = "cannot be used: " + p.Error
		}
		if p.Refused != nil {
			text = strings.TrimSpace(text + " (" + *p.Refused + ")")
		}
		line := fmt.Sprintf("%-*s  %-*s  %s", name, p.Name, where, place(p), oneLine(text))
		if _, err := fmt.Fprintln(s.out, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// listProfiles finds every profile, sorted by name and within one name from the
// lowest layer to the highest.
func listProfiles() ([]listedProfile, error) {
	h, err := host.Gather()
	if err != nil {
		return nil, err
	}
	user, err := profile.UserDir(h, h.Cwd)
	if err != nil {
		return nil, err
	}
	var list []listedProfile
	for _, n := range profile.Builtins() {
		data, err := profile.Builtin(n)
		if err != nil {
			return nil, bug(err)
		}
		f, err := profile.Parse("built-in:"+n, data)
		if err != nil {
			return nil, bug(err)
		}
		list = append(list, listedProfile{Name: n, Kind: profile.LayerBuiltin, Description: f.Description.V, Refused: refusal(h, n)})
	}
	places := []struct {
		kind  profile.LayerKind
		dir   string
		shown string
	}{
		{profile.LayerSystem, profile.SystemDir, profile.SystemDir},
		{profile.LayerUser, user, ""},
		{profile.LayerProject, path.Join(h.Cwd, profile.ProjectDir), profile.ProjectDir},
	}
	for _, p := range places {
		if p.dir == "" || p.kind == profile.LayerProject && h.Cwd == "" {
			continue
		}
		if p.shown == "" {
			p.shown = p.dir
		}
		found, err := listDirectory(h, user, p.kind, p.dir, p.shown)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	slices.SortStableFunc(list, func(a, b listedProfile) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// listDirectory finds the profiles of one directory. What -p would refuse has an
// Error. user is the directory of the user's own profiles, "" when there is none.
func listDirectory(h profile.Host, user string, kind profile.LayerKind, dir, shown string) ([]listedProfile, error) {
	entries, err := fs.ReadDir(h.FS, strings.TrimPrefix(dir, "/"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, &plan.Error{Op: "cannot list the profiles in " + quoteOdd(shown), Err: pathCause(err)}
	}
	var list []listedProfile
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".toml")
		if !ok {
			continue
		}
		use := name // what -p takes
		p := listedProfile{Name: oneLine(name), Kind: kind, File: oneLine(path.Join(shown, e.Name()))}
		if kind == profile.LayerProject && !isInstalled(h, user, name) {
			p.Kind = profile.LayerFile
			use = path.Join(dir, e.Name())
		}
		var f *profile.File
		data, err := lint.ReadFile(h.FS, path.Join(dir, e.Name()))
		if err == nil {
			f, err = profile.Parse(p.File, data)
		}
		if err == nil {
			p.Description = oneLine(f.Description.V)
			if p.Kind != profile.LayerFile {
				// By name, as a run would: owner, mode, what it extends, what it widens.
				var st *profile.Stack
				if st, err = profile.Load(h, profile.Options{Profile: name}); err == nil && kind == profile.LayerProject && len(st.Widened()) > 0 && !st.Trusted() {
					err = errors.New("it widens the profile and is not trusted (wall profile check tells where)")
				}
			}
		}
		if err != nil {
			p.Error, _, _ = strings.Cut(pathCause(err).Error(), "\n")
			p.Error = oneLine(p.Error)
		} else {
			p.Refused = refusal(h, use)
		}
		list = append(list, p)
	}
	return list, nil
}

// refusal tells why wall refuses to run a profile, as -p takes it, on any host; nil
// when it does not, or when it cannot be read anyway.
func refusal(h profile.Host, name string) *string {
	st, err := profile.Load(h, profile.Options{Profile: name})
	if err != nil || len(st.Widened()) > 0 && !st.Trusted() { // the project layer is not the profile's fault
		return nil
	}
	var e *plan.Error
	if !errors.As(st.Err(), &e) {
		return nil
	}
	text := oneLine(e.Error())
	return &text
}

// isInstalled reports whether there is a profile of that name below the project
// layer.
func isInstalled(h profile.Host, user, name string) bool {
	if isBuiltin(name) {
		return true
	}
	for _, dir := range []string{profile.SystemDir, user} {
		if dir == "" {
			continue
		}
		if _, err := fs.Lstat(h.FS, strings.TrimPrefix(path.Join(dir, name+".toml"), "/")); err == nil {
			return true
		}
	}
	return false
}
