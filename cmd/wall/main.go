// Command wall starts one command inside a box it can prove.
//
// It turns flags, a profile and facts about the host into a [plan.Plan], prints
// that plan when asked, and has package nsexec carry it out. The command line is
// all that lives here: every decision is made in package profile, everything the
// kernel is asked for in packages nsexec, landlock and seccomp. Only this
// package prints.
//
// The same binary is also pid 1 of the box: started with the name "wall-init" it
// never reaches the command line.
package main

import (
	"fmt"
	"os"

	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
)

func main() {
	// First, because stage 2 must not run anything that the launcher needs. It
	// does not come back from there.
	nsexec.Main()
	if err := keepUndumped(); err != nil {
		fmt.Fprint(os.Stderr, plan.Explain(err))
		os.Exit(plan.ExitStatus(err))
	}
	os.Exit(launch(hideValues(os.Args[1:]), streams{os.Stdin, os.Stdout, os.Stderr}))
}
