package gate_test

import (
	"context"
	"fmt"
	"os"

	"github.com/wallsandbox/wall/gate"
	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// A program that does this calls nsexec.Main first of all in main. The whole of such a
// program, which the tests compile and run, is in docs/integrations/gate-go.
func ExampleRun() {
	h, err := host.Gather()
	if err != nil {
		fmt.Println("not run:", err)
		return
	}
	h.Stdio = gate.Streams()
	p, err := profile.Resolve(h, profile.Options{Profile: "gate", Command: []string{"make", "test"}})
	if err != nil {
		fmt.Println("not run:", err)
		return
	}
	result := gate.Run(context.Background(), p, gate.Options{Log: os.Stderr})
	if result.Status != gate.Passed {
		fmt.Println(result.Verdict(), result.Output.Text)
	}
}

// Several commands that share a scratch directory, each with the plan of its own.
func ExampleRunPhases() {
	h, err := host.Gather()
	if err != nil {
		fmt.Println("not run:", err)
		return
	}
	h.Stdio = gate.Streams()
	phase := func(name, network string, command ...string) gate.Phase {
		return gate.Phase{Name: name, Plan: func() (plan.Plan, error) {
			return profile.Resolve(h, profile.Options{
				Profile: "contract", Command: command,
				Flags: []profile.Flag{{Name: "net", Value: network}},
			})
		}}
	}
	result := gate.RunPhases(context.Background(), []gate.Phase{
		phase("fetch", "host", "go", "mod", "download"),
		phase("test", "none", "go", "test", "./..."),
	}, gate.Options{})
	fmt.Print(result.Text(gate.Facts{Profile: "contract"}))
}
