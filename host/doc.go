// Package host gathers the facts about this machine and process that package
// profile makes plans from. Package profile never asks the machine itself, so that
// the same facts always give the same plan.
//
//	h, err := host.Gather()
//	p, err := profile.Resolve(h, profile.Options{Default: "gate", Command: []string{"make"}})
//
// It starts no program, asks no directory service, and believes no variable but
// PWD, which it checks.
package host
