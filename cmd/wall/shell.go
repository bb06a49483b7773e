package main

import (
	"path"
	"slices"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// fallbackShell is there on every POSIX system.
const fallbackShell = "/bin/sh"

func newShell(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shell [-p PROFILE] [FLAG...]",
		Short: "Start a shell in a box",
		Long: `Start the shell of the account record in a box, or /bin/sh when that shell is
not visible inside. The default profile is "agent".

The shell has a terminal of the box's own, connected to yours, with job control:
Ctrl-Z stops what runs in the shell, and "suspend" stops the shell and wall.`,
		Example: `  wall shell
  wall shell -p gate --home scratch`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
	}
	f := addRunFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b := &boxRun{s: s, f: f}
		b.resolve = func(h profile.Host, o profile.Options) (plan.Plan, *profile.Stack, error) {
			o.Default = runProfile
			return resolveShell(h, o)
		}
		return b.run()
	}
	return cmd
}

// resolveShell makes the plan for the shell of the account record, or for the other one.
func resolveShell(h profile.Host, o profile.Options) (plan.Plan, *profile.Stack, error) {
	o.Command = []string{shellOf(h.AccountSh)}
	p, st, err := profile.ResolveStack(h, o)
	missing := err != nil && slices.Contains([]int{plan.ExitNotFound, plan.ExitNotExecutable}, plan.ExitStatus(err))
	if missing && o.Command[0] != fallbackShell {
		o.Command = []string{fallbackShell}
		return profile.ResolveStack(h, o)
	}
	return p, st, err
}

// shellOf is the shell to try first. An account may have a program as shell that
// is there to keep people out; inside a box it keeps nobody out.
func shellOf(sh string) string {
	if sh == "" || slices.Contains([]string{"nologin", "false", "true"}, path.Base(sh)) {
		return fallbackShell
	}
	return sh
}
