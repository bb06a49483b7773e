package main

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/seccomp"
)

// compileFilter makes a program of an OCI seccomp file. Package profile, which
// calls it, tells the name of the file and where that was asked for.
func compileFilter(_ string, data []byte) ([]byte, error) {
	spec, err := seccomp.Parse(data)
	if err != nil {
		return nil, placed(err)
	}
	program, err := seccomp.Compile(spec, runtime.GOARCH)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil, err // about this wall, not about the file
	}
	if err != nil {
		return nil, placed(err)
	}
	return program.Bytes(), nil
}

// placed puts the places of located errors into their text, and all errors in
// one: the place to which the whole belongs is another, the flag or the line of
// the profile that names the file.
func placed(err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	var parts, hints []string
	for _, err := range all {
		text := err.Error()
		var e *plan.Error
		if errors.As(err, &e) {
			if e.Origin.Line > 0 {
				text = fmt.Sprintf("line %d, column %d: %s", e.Origin.Line, e.Origin.Column, text)
			}
			if e.Hint != "" {
				hints = append(hints, e.Hint)
			}
		}
		parts = append(parts, text)
	}
	return &plan.Error{Op: strings.Join(parts, "; "), Hint: strings.Join(hints, "; ")}
}
