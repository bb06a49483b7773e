package main

import (
	_ "embed"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// A topic is a page of help that belongs to no single command.
type topic struct {
	name  string
	short string
	text  string
}

// The pages, each a file, so that they can be read and reviewed as text.
var (
	//go:embed topics/profiles.txt
	topicProfiles string
	//go:embed topics/gates.txt
	topicGate string
	//go:embed topics/records.txt
	topicRecords string
	//go:embed topics/exit-codes.txt
	topicExitCodes string
	//go:embed topics/json.txt
	topicJSON string
	//go:embed topics/environment.txt
	topicEnvironment string
	//go:embed topics/filesystem.txt
	topicFilesystem string
	//go:embed topics/seccomp.txt
	topicSeccomp string
	//go:embed topics/network.txt
	topicNetwork string
	//go:embed topics/limits.txt
	topicLimits string
	//go:embed topics/caches.txt
	topicCaches string
)

var topics = []topic{
	{"profiles", "what a profile is and where it comes from", topicProfiles},
	{"filesystem", "what the command sees and where it may write", topicFilesystem},
	{"network", "which hosts and ports the command reaches", topicNetwork},
	{"environment", "which variables the command gets", topicEnvironment},
	{"caches", "private, warm caches of tools", topicCaches},
	{"limits", "time, memory, processes and disk", topicLimits},
	{"seccomp", "which system calls are refused", topicSeccomp},
	{"gates", "commands with a verdict: results, logs, phases", topicGate},
	{"records", "the box of a gate again, somewhere else", topicRecords},
	{"exit-codes", "what the exit status of wall means", topicExitCodes},
	{"json", "the forms of --json and --status-fd", topicJSON},
}

func newHelp(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "help [COMMAND...|TOPIC]",
		Short: "Show help for a command or a topic",
		Long:  `Show help for a command or a topic, or the list of both.`,
		Example: `  wall help run
  wall help exit-codes`,
		DisableFlagsInUseLine: true,
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if len(args) == 0 {
			for _, c := range cmd.Root().Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name()+"\t"+c.Short)
				}
			}
			for _, t := range topics {
				names = append(names, t.name+"\t"+t.short)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			_, err := io.WriteString(s.out, helpText(cmd.Root()))
			return err
		case 1:
			for _, t := range topics {
				if t.name == args[0] {
					_, err := io.WriteString(s.out, t.text)
					return err
				}
			}
		}
		if c, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 && c.HasParent() && !c.Hidden {
			_, err := io.WriteString(s.out, helpText(c))
			return err
		}
		var names []string
		for _, t := range topics {
			names = append(names, t.name)
		}
		for i, a := range args {
			args[i] = withoutValue(a)
		}
		return &usageError{
			msg:  "no help on " + quoteOdd(strings.Join(args, " ")),
			hint: `topics: ` + strings.Join(names, ", ") + `; "wall help" lists the commands`,
		}
	}
	return cmd
}
