package main

import (
	"github.com/spf13/cobra"
)

func newCompletion(s streams) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a completion script for a shell",
		Long: `Print a script with which a shell completes the commands and flags of wall.

Put it where the shell looks: for bash in
~/.local/share/bash-completion/completions/wall, for zsh in a file _wall in a
directory of $fpath, for fish in ~/.config/fish/completions/wall.fish.`,
		Example: `  wall completion bash > ~/.local/share/bash-completion/completions/wall
  source <(wall completion zsh)
  wall completion fish | source`,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return &usageError{msg: "completion needs the name of one shell", hint: "bash, zsh or fish"}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(s.out, true)
			case "zsh":
				return root.GenZshCompletion(s.out)
			case "fish":
				return root.GenFishCompletion(s.out, true)
			}
			return &usageError{msg: "no completion for shell " + quoteOdd(args[0]), hint: "bash, zsh or fish"}
		},
	}
}
