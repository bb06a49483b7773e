package main

import (
	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// planRunID stands for the random name of a run in a plan that is only printed,
// so that two prints can be compared.
const planRunID = "0000000000000000"

func newPlan(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan [-p PROFILE] [FLAG...] [--] COMMAND [ARG...]",
		Short: "Print what run would do",
		Long: `Print everything that "wall run" would do with the same flags, and change
nothing. Values of environment variables are left out. The name of the scratch
directory is not random here, so that two plans can be compared.`,
		Example: `  wall plan -- make test
  wall plan -p gate --json -- go test ./...`,
		DisableFlagsInUseLine: true,
	}
	f := addShared(cmd)
	var asJSON bool
	addSwitch(cmd.Flags(), &asJSON, "json", "print the plan as JSON")
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &usageError{
				msg:  "no command to plan for",
				hint: `write it after "--", for example: wall plan -- make test`,
			}
		}
		j, err := gather(f, -1, func(h profile.Host, o profile.Options) (plan.Plan, error) {
			h.RunID = planRunID
			o.Default, o.Command = "agent", args
			return profile.Resolve(h, o)
		})
		if err != nil {
			return err
		}
		j.command = args
		p, err := j.plan()
		if err != nil {
			return err
		}
		noteHardLinks(&p)
		if !asJSON {
			return p.Print(s.out)
		}
		data, err := p.JSON()
		if err != nil {
			return err
		}
		_, err = s.out.Write(data)
		return err
	}
	return cmd
}
