package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/plan"
)

// exitUsage is the exit status for a command line that cannot be understood,
// except for commands that would have run something: there 125 says "the command
// did not run", and 2 would be taken for the command's own status.
const exitUsage = 2

// streams are the standard streams of wall itself.
type streams struct {
	in, out, err *os.File
}

// An exitStatus ends wall with that status and without a message: whatever there
// was to say has been said.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// A signalDeath ends wall by that signal, so that a shell which runs wall in a
// loop sees the Ctrl-C.
type signalDeath syscall.Signal

func (e signalDeath) Error() string { return "ended by " + signalName(syscall.Signal(e)) }

// A usageError is a command line that cannot be understood.
type usageError struct {
	msg  string // one sentence, lower case, no full stop
	hint string
}

func (e *usageError) Error() string { return e.msg }

// launch runs one command line, prints what went wrong, and gives the exit
// status.
func launch(args []string, s streams) int {
	root := newRoot(s)
	root.SetArgs(append([]string{}, args...)) // nil would stand for os.Args
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	var status exitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	var death signalDeath
	if errors.As(err, &death) {
		dieOf(syscall.Signal(death))
		return 128 + int(death) // the signal is ignored
	}
	var usage *usageError
	if errors.As(err, &usage) {
		printError(s.err, &plan.Error{Op: usage.msg, Hint: usage.hint})
		return usageStatus(cmd)
	}
	printError(s.err, err)
	return plan.ExitStatus(err)
}

// usageStatus is the exit status for a misused command.
func usageStatus(cmd *cobra.Command) int {
	if cmd != nil && cmd.Annotations[annotationRuns] != "" {
		return plan.ExitFailed
	}
	return exitUsage
}

// annotationRuns marks the commands that run something in a box.
const annotationRuns = "wall-runs-a-command"
