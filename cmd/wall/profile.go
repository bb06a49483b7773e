package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newProfile(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile COMMAND",
		Short: "Show, check, compare and write profiles",
		Long: `Show, check, compare and write profiles, the files that say what a box allows
("wall help profiles"). Nothing is run, and nothing is changed but the files that
init and import are told to write.`,
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
		cmd.AddCommand(f(s))
	}
	return cmd
}

// profileCommands make the commands below "wall profile", in alphabetical order.
var profileCommands = []func(streams) *cobra.Command{
	newProfileCheck, newProfileList,
}
