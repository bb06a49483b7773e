package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

func newProfileExplain(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [-p PROFILE] [--json] [KEY|TABLE]",
		Short: "Explain where the value of a key comes from",
		Long: `Explain the value of a key of a profile: the line that decided, and what it replaced.
KEY is "filesystem.home" or a whole table such as "network"; without one all keys are
told. The layers are those of a run in the working directory: built-in, machine, user
or file, and the project layer. The default profile is "agent".`,
		Example: `  wall profile explain filesystem.home
  wall profile explain -p gate environment
  wall profile explain --json -p ./ci.toml`,
		DisableFlagsInUseLine: true,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return &usageError{msg: "explain takes one key, got " + quoteOdd(args[1]) + " as well", hint: "for example: wall profile explain filesystem.home"}
		}
		return nil
	}
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		names := profile.Tables()
		for _, k := range settingKeys() {
			names = append(names, k.Name+"\t"+k.Doc)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	var name string
	var asJSON bool
	addOnce(cmd.Flags(), &name, "profile", "p", "NAME|FILE", "profile, built-in or a file")
	addSwitch(cmd.Flags(), &asJSON, "json", "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want := ""
		if len(args) == 1 {
			want = args[0]
			if err := knownKey(want); err != nil {
				return err
			}
		}
		_, st, err := loadStack(name)
		if err != nil {
			return err
		}
		if err := tellUnusable(s.err, st); err != nil {
			return err
		}
		values := slices.DeleteFunc(st.Values(), func(v profile.Setting) bool {
			return want != "" && v.Key.Name != want && v.Key.Table() != want && !strings.HasPrefix(v.Key.Name, want+".")
		})
		if asJSON {
			return writeJSON(s.out, newResolvedProfile(st, values))
		}
		var b strings.Builder
		for _, v := range values {
			explainSetting(&b, v, want == v.Key.Name)
		}
		return writeProfileText(s.out, b.String())
	}
	return cmd
}

// settingKeys are the keys that have a value in every profile.
func settingKeys() []profile.Key {
	return slices.DeleteFunc(profile.Keys(), func(k profile.Key) bool {
		return slices.Contains([]string{"version", "name", "description", "extends"}, k.Name)
	})
}

// knownKey refuses what is no key, with the suggestion of the language itself.
func knownKey(name string) error {
	if slices.Contains(profile.Tables(), name) || slices.ContainsFunc(settingKeys(), func(k profile.Key) bool { return k.Name == name || strings.HasPrefix(k.Name, name+".") }) {
		return nil
	}
	if name == "gate" || name == "gate.phase" || strings.HasPrefix(name, "gate.phase.") {
		return &usageError{msg: "phases are not explained: each says its own settings, over the profile", hint: "wall profile show prints the file; wall help gates tells what a phase can set"}
	}
	if v, ok := strings.CutPrefix(name, "environment.set."); ok {
		return &usageError{msg: "the variable " + quoteOdd(v) + " is no key of its own", hint: `"wall profile explain environment.set" tells all of them`}
	}
	if _, ok := profile.LookupKey(name); ok {
		return &usageError{msg: quoteOdd(name) + " is not inherited, so that there is nothing to explain", hint: "wall profile show prints the file"}
	}
	if near := nearKeys(name); len(near) > 0 {
		return &usageError{msg: "there is no key " + quoteOdd(name), hint: "did you mean " + listed(near) + "?"}
	}
	// The parser has further suggestions: let it read a profile with that key.
	text := tomlKey(name) + " = 0\n"
	if table, key, dotted := strings.Cut(name, "."); dotted && slices.Contains(profile.Tables(), table) {
		text = "[" + table + "]\n" + tomlKey(key) + " = 0\n"
	} else if dotted {
		return &usageError{msg: "there is no table " + quoteOdd(table), hint: "tables: " + strings.Join(profile.Tables(), ", ")}
	}
	hint := `"wall profile explain" tells all keys`
	_, err := profile.Parse("key", []byte("version = 1\n"+text))
	var e *plan.Error
	if errors.As(err, &e) && e.Hint != "" {
		hint = e.Hint
	}
	return &usageError{msg: "there is no key " + quoteOdd(name), hint: hint}
}

// nearKeys gives the full names of the keys that were probably meant: "home" and
// "filesystem.hom" are both "filesystem.home".
func nearKeys(name string) []string {
	last := name[strings.LastIndexByte(name, '.')+1:]
	names, lasts := profile.Tables(), []string{}
	for _, k := range settingKeys() {
		names, lasts = append(names, k.Name), append(lasts, k.Last())
	}
	if !slices.Contains(lasts, last) {
		if near := profile.Nearest(name, names); near != "" {
			return []string{near}
		}
		last = profile.Nearest(last, lasts)
	}
	var out []string
	for _, k := range settingKeys() {
		if k.Last() == last {
			out = append(out, k.Name)
		}
	}
	return out
}

// tomlKey quotes a key, whatever it holds.
func tomlKey(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r == '"' || r == '\\' || r < 0x20 || r == 0x7f {
			fmt.Fprintf(&b, `\u%04X`, r)
			continue
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
	return b.String()
}

// explainSetting tells one key; at length also what it is for.
func explainSetting(b *strings.Builder, v profile.Setting, long bool) {
	line := func(format string, args ...any) { b.WriteString(oneLine(fmt.Sprintf(format, args...)) + "\n") }
	switch {
	case v.Text == "":
		line("%s is not set", v.Key.Name)
	case len(v.Items) > 0:
		line("%s: %d", v.Key.Name, len(v.Items))
	default:
		line("%s = %s", v.Key.Name, v.Text)
	}
	if long {
		line("  %s", v.Key.Doc)
		if len(v.Key.Values) > 0 && v.Key.Type == profile.TypeEnum {
			line("  one of: %s", strings.Join(v.Key.Values, ", "))
		}
	}
	if len(v.Items) > 0 {
		for _, x := range v.Items {
			line("  %s", x.Text)
			line("    at %s", where(x.Origin))
			if path, ok := x.Value.(string); ok && long {
				if paths, ok := profile.GroupPaths(path); ok {
					line("    which is %s", strings.Join(paths, ", "))
				}
			}
		}
	} else {
		line("  at %s", v.Origin.String())
	}
	above := v.Text
	for _, r := range v.Replaced {
		same := r.Text == above
		above = r.Text
		if r.Default || same {
			continue // everything replaces the default, and to say it again replaces nothing
		}
		text := r.Text
		if text == "" {
			text = "nothing"
		}
		line("  replaced %s", text)
		line("    at %s", r.Origin.String())
	}
}
