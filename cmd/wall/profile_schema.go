package main

import (
	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/profile/schema"
)

func newProfileSchema(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of profiles",
		Long: `Print the JSON Schema (draft 2020-12) of profiles, with which an editor completes and
checks them. For taplo and editors that use it, write as the first line of a profile:
#:schema ./wall.schema.json.`,
		Example:               `  wall profile schema > wall.schema.json`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
		RunE: func(*cobra.Command, []string) error {
			data, err := schema.JSON()
			if err != nil {
				return bug(err)
			}
			_, err = s.out.Write(data)
			return err
		},
	}
}
