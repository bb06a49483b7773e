package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/profile/lint"
)

func newProfileShow(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [--resolved] [--json] NAME|FILE",
		Short: "Print a profile",
		Long: `Print the text of a profile as it stands in its file. With --resolved print instead
what the profile, everything it is laid over and the project layer of the working
directory come to: every key with its value and the line that decided. Values of
environment variables are left out then.`,
		Example: `  wall profile show gate
  wall profile show --resolved agent
  wall profile show --resolved --json ./ci.toml`,
		Args:                  oneArg("one profile", "wall profile show agent"),
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeProfiles,
	}
	var resolved, asJSON bool
	addSwitch(cmd.Flags(), &resolved, "resolved", "print what all layers come to")
	addSwitch(cmd.Flags(), &asJSON, "json", "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		h, st, err := loadStack(args[0])
		if err != nil {
			return err
		}
		if resolved {
			if err := tellUnusable(s.err, st); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(s.out, newResolvedProfile(st, st.Values()))
			}
			return writeProfileText(s.out, resolvedText(st))
		}
		top := topLayer(st)
		text, err := layerText(h, top)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(s.out, struct {
				Version int       `json:"version"`
				Layer   jsonLayer `json:"layer"`
				Text    string    `json:"text"`
			}{resultVersion, layerJSON(top), text})
		}
		return writeProfileText(s.out, text)
	}
	return cmd
}

// topLayer is the profile that was named, without project layer and flags.
func topLayer(st *profile.Stack) profile.Layer {
	var top profile.Layer
	for _, l := range st.Layers() {
		if l.Kind != profile.LayerProject && l.Kind != profile.LayerFlags {
			top = l
		}
	}
	return top
}

// layerText gives the text of a layer, which has to be the one that was loaded.
func layerText(h profile.Host, l profile.Layer) (string, error) {
	if l.Kind == profile.LayerBuiltin {
		data, err := profile.Builtin(l.Name)
		if err != nil {
			return "", bug(err)
		}
		return string(data), nil
	}
	data, err := lint.ReadFile(h.FS, l.Path)
	if err != nil {
		return "", &plan.Error{Op: "cannot read " + quoteOdd(l.Path), Err: pathCause(err)}
	}
	return string(data), nil
}

// A jsonLayer is one layer of a profile in JSON.
type jsonLayer struct {
	Kind   profile.LayerKind `json:"kind"`
	Name   string            `json:"name"`
	File   string            `json:"file"`
	SHA256 string            `json:"sha256"`
}

func layerJSON(l profile.Layer) jsonLayer { return jsonLayer{l.Kind, l.Name, l.Path, l.Digest} }

// A jsonSetting is one key with its value and where that comes from.
type jsonSetting struct {
	Key      string        `json:"key"`
	Value    any           `json:"value"` // null: nothing is set, which is no limit or none
	Text     string        `json:"text"`  // as a profile writes it
	Default  bool          `json:"default"`
	Origin   jsonOrigin    `json:"origin"`
	Layer    int           `json:"layer"` // index into layers, -1 for a default
	Items    []jsonSetting `json:"items,omitempty"`
	Replaced []jsonSetting `json:"replaced,omitempty"` // highest first
}

// A resolvedProfile is what --json prints of show --resolved and explain.
type resolvedProfile struct {
	Version  int           `json:"version"`
	Profile  string        `json:"profile"`
	Usable   bool          `json:"usable"` // false: a run would be refused, for reasons that stand on standard error
	Layers   []jsonLayer   `json:"layers"` // lowest first
	Settings []jsonSetting `json:"settings"`
}

func newResolvedProfile(st *profile.Stack, values []profile.Setting) resolvedProfile {
	r := resolvedProfile{Version: resultVersion, Profile: st.Name(), Usable: st.Err() == nil, Settings: []jsonSetting{}}
	for _, l := range st.Layers() {
		if l.Kind != profile.LayerFlags {
			r.Layers = append(r.Layers, layerJSON(l))
		}
	}
	for _, v := range values {
		r.Settings = append(r.Settings, settingJSON(v))
	}
	return r
}

func settingJSON(v profile.Setting) jsonSetting {
	j := jsonSetting{Key: v.Key.Name, Value: valueJSON(v.Value), Text: v.Text, Default: v.Default, Origin: originJSON(v.Origin), Layer: v.Layer}
	if v.Text == "" {
		j.Value = nil
	}
	for _, x := range v.Items {
		j.Items = append(j.Items, settingJSON(x))
	}
	for _, x := range v.Replaced {
		j.Replaced = append(j.Replaced, settingJSON(x))
	}
	return j
}

// valueJSON gives a value of profile.Setting as a profile in JSON would have it.
func valueJSON(v any) any {
	type grant struct {
		Path     string `json:"path"`
		Access   string `json:"access"`
		Why      string `json:"why,omitempty"`
		Optional bool   `json:"optional,omitempty"`
	}
	type seed struct {
		Path string `json:"path"`
		To   string `json:"to"`
		Why  string `json:"why,omitempty"`
	}
	switch v := v.(type) {
	case profile.Amount:
		return v.String()
	case profile.HostPattern:
		return v.String()
	case profile.Grant:
		return grant{v.Path, string(v.Access), v.Why, v.Optional}
	case profile.Seed:
		return seed{v.Path, v.Target(), v.Why}
	case profile.Var:
		return v.Name
	case []profile.HostPattern:
		return each(v)
	case []profile.Grant:
		return each(v)
	case []profile.Seed:
		return each(v)
	}
	return v
}

func each[T any](list []T) []any {
	out := make([]any, len(list))
	for i, x := range list {
		out[i] = valueJSON(x)
	}
	return out
}

// resolvedText writes every key of a profile as TOML, each with its origin as a
// comment. It is a profile that says the same, but for the values of variables.
func resolvedText(st *profile.Stack) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, from the lowest layer to the highest:\n", oneLine(st.Name()))
	for _, l := range st.Layers() {
		switch {
		case l.Kind == profile.LayerFlags:
		case l.Path == "":
			fmt.Fprintf(&b, "#   %s %s\n", l.Kind, l.Name)
		default:
			fmt.Fprintf(&b, "#   %s %s\n", l.Kind, oneLine(l.Path))
		}
	}
	fmt.Fprintf(&b, "version = 1\n")
	table := ""
	for _, v := range st.Values() {
		if t := v.Key.Table(); t != table {
			table = t
			fmt.Fprintf(&b, "\n[%s]\n", t)
		}
		name := v.Key.Last()
		switch {
		case v.Text == "":
			fmt.Fprintf(&b, "# %s is not set\n", name)
		case v.Key.Type == profile.TypeVars:
			for _, x := range v.Items {
				mark := "# " // the value is not shown, and a relative path would start from elsewhere
				if src := x.Value.(profile.Var).Source; src != nil && !relativeSource(*src) {
					mark = ""
				}
				fmt.Fprintf(&b, "%s%s.%s  # %s\n", mark, name, oneLine(x.Text), where(x.Origin))
			}
		case len(v.Items) > 0:
			fmt.Fprintf(&b, "%s = [\n", name)
			for _, x := range v.Items {
				fmt.Fprintf(&b, "  %s,  # %s\n", x.Text, where(x.Origin))
			}
			b.WriteString("]\n")
		default:
			fmt.Fprintf(&b, "%s = %s  # %s\n", name, v.Text, where(v.Origin))
		}
	}
	return b.String()
}

// relativeSource reports whether a source names a file by a path that starts
// from the directory of its profile.
func relativeSource(s plan.ValueSource) bool {
	p := s.Name
	switch {
	case s.Kind == plan.SourceCommand:
		if p = s.Argv[0]; !strings.Contains(p, "/") {
			return false
		}
	case s.Kind != plan.SourceFile:
		return false
	}
	return strings.Trim(p[:1], "/~$") != ""
}

// where gives an origin without its text, for lines that show the value anyway.
func where(o plan.Origin) string {
	if o.File != "" {
		o.Text = ""
	}
	return oneLine(o.String())
}
