// Command gate-go gates a command from a Go program: package gate does what "wall
// gate" does, without the command line.
//
//	gate-go PROFILE COMMAND [ARG...]
//
// It prints the result as JSON and ends as the gate does.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/wallsandbox/wall/gate"
	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/profile"
)

func main() {
	nsexec.Main() // first of all: pid 1 of the box is this program, started again
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: gate-go PROFILE COMMAND [ARG...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	os.Exit(run(ctx, os.Args[1], os.Args[2:]))
}

func run(ctx context.Context, name string, command []string) int {
	result, facts := judge(ctx, name, command)
	data, err := result.JSON(facts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 125
	}
	if _, err := os.Stdout.Write(data); err != nil {
		return 125
	}
	if result.Err != nil {
		fmt.Fprintln(os.Stderr, result.Err)
	}
	return result.Exit
}

// judge makes the plan and runs it. Whatever fails before the command runs is a
// result, too: it never is "passed".
func judge(ctx context.Context, name string, command []string) (gate.Result, gate.Facts) {
	facts := gate.Facts{Wall: "gate-go", Profile: name, Command: command}
	h, err := host.Gather()
	if err != nil {
		return gate.Refused(err), facts
	}
	h.Stdio = gate.Streams()
	p, stack, err := profile.ResolveStack(h, profile.Options{Profile: name, Command: command})
	if err != nil {
		return gate.Refused(err), facts
	}
	facts.ProfileDigest = stack.Digest()
	return gate.Run(ctx, p, gate.Options{Workspace: stack.Workspace()}), facts
}
