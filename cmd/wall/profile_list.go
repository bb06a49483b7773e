package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/profile"
)

func newProfileList(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the profiles that -p finds by name",
		Long:    `List the profiles that -p finds by name.`,
		Example: `  wall profile list`,
		Args:    noArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, n := range profile.Builtins() {
			if _, err := io.WriteString(s.out, n+"\n"); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}
