package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newRoot makes the tree of commands.
func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "wall",
		Short: "Run one command in a box it can prove",
		Long: `Run one command in a box: it sees the files a profile shows it, writes only where
it may, has no network, no other process and no variable it was not given, and
the kernel refuses the rest. No daemon, no root, no helper program.`,
		Example: `  wall run -- make test
  wall plan -p gate -- make test
  wall doctor`,
		Args:                       cobra.ArbitraryArgs,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		DisableFlagsInUseLine:      true,
		CompletionOptions:          cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	var showVersion bool
	root.Flags().VarP(&switchValue{p: &showVersion}, "version", "V", "print the version of wall")
	root.Flags().Lookup("version").NoOptDefVal = "true"
	root.Flags().SetInterspersed(false) // "wall make -j2": the hint repeats the whole line
	root.RunE = func(cmd *cobra.Command, args []string) error {
		hint := `"wall help" lists the commands`
		dash := cmd.ArgsLenAtDash() == 0
		switch {
		case showVersion && len(args) == 0:
			_, err := io.WriteString(s.out, versionText())
			return err
		case showVersion:
			return &usageError{msg: "--version stands alone, got " + quoteOdd(args[0]) + " as well", hint: "for example: wall --version"}
		case len(args) == 0:
			return &usageError{msg: "no command given", hint: hint}
		}
		line := "wall run -- " + shellWords(args)
		if dash {
			return &usageError{msg: `"--" stands behind a command of wall`, hint: "to run a program: " + line}
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 && args[0] != "make" { // a program, not a slip for "gate"
			hint = fmt.Sprintf("did you mean %q?", "wall "+near[0])
		} else {
			hint += `; to run a program: ` + line
		}
		return &usageError{msg: "unknown command " + quoteOdd(args[0]), hint: hint}
	}
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetIn(s.in)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_, _ = io.WriteString(cmd.OutOrStdout(), helpText(cmd)) // like printf(1), without a reader there is nobody to tell
	})
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		_, err := io.WriteString(cmd.OutOrStderr(), helpText(cmd))
		return err
	})
	root.AddCommand(
		newRun(s), newGate(s), newReproduce(s), newShell(s), newPlan(s), newEnv(s), newProfile(s), newTrust(s), newUntrust(s), newScratch(s), newDoctor(s),
		newVersion(s), newCompletion(s),
	)
	root.SetHelpCommand(newHelp(s))
	return root
}

// noArgs refuses any argument.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return &usageError{
		msg:  fmt.Sprintf("%s takes no argument, got %s", cmd.CommandPath(), quoteOdd(withoutValue(args[0]))),
		hint: fmt.Sprintf("%q shows the usage", cmd.CommandPath()+" --help"),
	}
}

// withoutValue is an argument as a message repeats it: what stands behind a name may
// be the value of a variable that somebody meant for another command.
func withoutValue(arg string) string {
	if name, _, ok := strings.Cut(arg, "="); ok {
		return name + "=..."
	}
	return arg
}

// helpText is the help of one command.
func helpText(cmd *cobra.Command) string {
	var b strings.Builder
	b.WriteString(cmd.Long + "\n\nUsage:\n  " + useLine(cmd) + "\n")
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() || c.Name() == "help" {
				fmt.Fprintf(&b, "  %-12s %s\n", c.Name(), c.Short)
			}
		}
	}
	if cmd.HasExample() {
		b.WriteString("\nExamples:\n" + cmd.Example + "\n")
	}
	if flags := flagTable(cmd); len(flags) > 0 {
		b.WriteString("\nFlags:\n")
		width := 0
		for _, f := range flags {
			width = max(width, len(f.spelling))
		}
		for _, f := range flags {
			fmt.Fprintf(&b, "  %-*s  %s\n", width, f.spelling, f.usage)
		}
	}
	if !cmd.HasParent() {
		b.WriteString("\nTopics, for \"wall help TOPIC\":\n")
		for _, t := range topics {
			fmt.Fprintf(&b, "  %-12s %s\n", t.name, t.short)
		}
	}
	return b.String()
}

// useLine is the usage with the full path of the command.
func useLine(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return cmd.Name() + " COMMAND [ARG...]"
	}
	return cmd.Parent().CommandPath() + " " + cmd.Use
}

// A flagRow is one flag in help and in the manual.
type flagRow struct {
	spelling string // "-p, --profile NAME|FILE"
	usage    string
}

func flagTable(cmd *cobra.Command) []flagRow {
	var rows []flagRow
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		s := "    --" + f.Name
		if f.Shorthand != "" {
			s = "-" + f.Shorthand + ", --" + f.Name
		}
		if t := f.Value.Type(); t != "bool" {
			s += " " + t
		}
		rows = append(rows, flagRow{s, f.Usage})
	})
	return append(rows, flagRow{"-h, --help", "show this help"})
}
