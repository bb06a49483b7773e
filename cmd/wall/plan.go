package main

import (
	"io"

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
nothing: first the most important in a few lines, then the plan itself, with the
line of the profile that asked for each step. Values of environment variables are
left out. The name of the scratch directory is not random here, so that two plans
can be compared.`,
		Example: `  wall plan --summary -- make test
  wall plan -- make test
  wall plan -p gate --json -- go test ./...`,
		DisableFlagsInUseLine: true,
	}
	f := addShared(cmd)
	var asJSON, short bool
	addSwitch(cmd.Flags(), &short, "summary", "print the few lines alone")
	addSwitch(cmd.Flags(), &asJSON, "json", "print the plan as JSON, without the few lines")
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &usageError{
				msg:  "no command to plan for",
				hint: `write it after "--", for example: wall plan -- make test`,
			}
		}
		if short && asJSON {
			return &usageError{msg: "--summary and --json contradict each other", hint: "give one of them"}
		}
		j, err := gather(f, -1, func(h profile.Host, o profile.Options) (plan.Plan, *profile.Stack, error) {
			h.RunID = planRunID
			o.Default, o.Command = "agent", args
			return profile.ResolveStack(h, o)
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
			j.options.Default = "agent"
			st, err := profile.Load(j.host, j.options)
			if err != nil {
				return err
			}
			if _, err := io.WriteString(s.out, summarize(p, st.Workspace(), realHome(j.host))); err != nil || short {
				return err
			}
			if _, err := io.WriteString(s.out, "\n"); err != nil {
				return err
			}
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
