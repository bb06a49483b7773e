package envscrub_test

import (
	"fmt"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// The environment of a merge gate, with one pattern and one fixed value of its
// own.
func ExampleBuild() {
	goVars, err := envscrub.ParsePattern("GO*")
	if err != nil {
		panic(err)
	}
	r, err := envscrub.Build(envscrub.Input{
		Ambient: []string{"PATH=/usr/bin:/bin", "TERM=xterm", "GOFLAGS=-mod=vendor", "GOOGLE_API_KEY=abc", "EDITOR=vi"},
		Home:    "/home/u",
		TmpDir:  "/tmp",
	}, envscrub.Policy{
		Base:  envscrub.BaseGate,
		Mode:  envscrub.ModeStrict,
		Allow: []envscrub.Rule{{Pattern: goVars, Origin: plan.Origin{File: "gate.toml", Line: 4}}},
		Fixed: []envscrub.Assign{{Name: envscrub.BaseSHAName, Value: "94d2836"}},
	})
	if err != nil {
		panic(err)
	}
	for _, v := range r.Env {
		fmt.Printf("%s: %s\n", v.Name, v.Reason)
	}
	for _, d := range r.Dropped {
		fmt.Printf("not %s: %s\n", d.Name, d.Reason)
	}
	// Output:
	// GOFLAGS: allow: GO*
	// HOME: fixed: home
	// KRANZ_BASE_SHA: fixed
	// PATH: base: always
	// TEMP: fixed: temporary directory
	// TERM: base: gate table
	// TMP: fixed: temporary directory
	// TMPDIR: fixed: temporary directory
	// not EDITOR: strict: not in the gate table and not allowed
	// not GOOGLE_API_KEY: strict: has the name of a credential and is not allowed by name
}
