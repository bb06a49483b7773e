package main

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile/convert"
)

func newProfileImport(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import --from TOOL [-o FILE] [--force] [--name NAME] [--json] FILE",
		Short: "Turn the settings of another sandbox into a profile",
		Long: `Turn the settings of another sandbox into a profile: those of srt (sandbox-runtime),
codex (config.toml), fence (fence.json) or claude (settings.json). The profile goes to
standard output or into the file of -o. What has no equivalent, what is said in a
stricter way and what this version does not know is listed on standard error and as
comments in the profile; restrictions that the profile does not have come first. No key
is passed over in silence. "-" reads standard input.

Only that one file is read: settings that it extends or that are merged with it have
to be imported on their own. Look at the profile before using it.`,
		Example: `  wall profile import --from srt ~/.srt-settings.json
  wall profile import --from claude -o .wall/claude.toml .claude/settings.json`,
		Args:                  oneArg("one settings file", "wall profile import --from srt ~/.srt-settings.json"),
		DisableFlagsInUseLine: true,
	}
	var from, out, name string
	var force, asJSON bool
	fl := cmd.Flags()
	addOnce(fl, &from, "from", "", "TOOL", "whose settings: "+strings.Join(convert.Tools(), ", "))
	addOnce(fl, &out, "output", "o", "FILE", "write the profile to FILE")
	addSwitch(fl, &force, "force", "replace FILE when it exists")
	addOnce(fl, &name, "name", "", "NAME", "name of the profile (default: that of FILE, or of the tool)")
	addSwitch(fl, &asJSON, "json", "print the profile and the notes as JSON")
	if err := cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(convert.Tools(), cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(bug(err))
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case from == "":
			return &usageError{msg: "import needs --from", hint: "one of " + strings.Join(convert.Tools(), ", ")}
		case !slices.Contains(convert.Tools(), from):
			return &usageError{msg: "there is no importer for " + quoteOdd(from), hint: "one of " + strings.Join(convert.Tools(), ", ")}
		case asJSON && out != "":
			return &usageError{msg: "--json and --output do not go together", hint: "the profile is in the JSON"}
		case force && out == "":
			return &usageError{msg: "--force needs --output"}
		}
		if name == "" {
			name = from
			if base := strings.TrimSuffix(path.Base(out), ".toml"); goodStarterName(base) {
				name = base
			}
		}
		source := args[0]
		if source == "-" {
			source = "standard input"
		}
		data, err := readText(s, args[0], convert.MaxSize)
		if err != nil {
			return &plan.Error{Op: "cannot read the settings " + quoteOdd(source), Err: err}
		}
		r, err := convert.Convert(from, source, name, data)
		if err != nil {
			return err
		}
		if asJSON {
			if r.Notes == nil {
				r.Notes = []convert.Note{}
			}
			return writeJSON(s.out, struct {
				Version int            `json:"version"`
				From    string         `json:"from"`
				Source  string         `json:"source"`
				Profile string         `json:"profile"`
				Notes   []convert.Note `json:"notes"`
			}{resultVersion, from, source, string(r.Profile), r.Notes})
		}
		if out == "" || out == "-" {
			err = writeProfileText(s.out, string(r.Profile))
		} else if err = writeNew(out, string(r.Profile), force); err != nil {
			err = cannotWrite(out, err)
		}
		if err != nil {
			return err
		}
		_, err = s.err.WriteString(noteText(source, r.Notes))
		return err
	}
	return cmd
}

// noteText tells the notes of an import, what matters most first.
func noteText(source string, notes []convert.Note) string {
	var b strings.Builder
	titles := []struct {
		kind  convert.Kind
		title string
	}{
		{convert.Lost, "warning: a restriction that the profile does not have"},
		{convert.NotUnderstood, "warning: not understood"},
		{convert.NoEquivalent, "no equivalent"},
		{convert.Different, "said in another way"},
	}
	for _, t := range titles {
		for _, n := range notes {
			if n.Kind == t.kind {
				fmt.Fprintf(&b, "wall: %s: %s: %s\n  at %s:%d\n", t.title, oneLine(n.Key), oneLine(n.Text), oneLine(source), n.Line)
			}
		}
	}
	var unrelated []string
	for _, n := range notes {
		if n.Kind == convert.Unrelated {
			unrelated = append(unrelated, oneLine(n.Key))
		}
	}
	if len(unrelated) > 0 {
		fmt.Fprintf(&b, "wall: not about the box: %s\n", strings.Join(unrelated, ", "))
	}
	return b.String()
}
