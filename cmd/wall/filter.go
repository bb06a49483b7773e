package main

import (
	"errors"
	"runtime"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/seccomp"
)

// compileFilter makes a program of an OCI seccomp file. Its errors name the file.
func compileFilter(path string, data []byte) ([]byte, error) {
	spec, err := seccomp.Parse(data)
	if err != nil {
		return nil, inFile(path, err)
	}
	program, err := seccomp.Compile(spec, runtime.GOARCH)
	if err != nil {
		return nil, inFile(path, err)
	}
	return program.Bytes(), nil
}

// inFile adds the file to the located errors of err that have none.
func inFile(path string, err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, inFile(path, e))
		}
		return errors.Join(all...)
	}
	var e *plan.Error
	if !errors.As(err, &e) || e.Origin.File != "" {
		return err
	}
	located := *e
	located.Origin.File = path
	return &located
}
