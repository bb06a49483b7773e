//go:build !cgo

package seccomp

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/wallsandbox/wall/plan"
)

// Compile needs libseccomp, which this build was made without: it always fails,
// with an error that matches errors.ErrUnsupported. The built-in filters work.
func Compile(s *specs.LinuxSeccomp, goarch string) (Program, error) {
	return nil, noCompiler()
}

// Generate fails like [Compile].
func Generate() (map[string][]byte, error) {
	return nil, noCompiler()
}

func noCompiler() error {
	return &plan.Error{
		Op:   "cannot compile a custom system call filter",
		Hint: "use the built-in filters default or strict, or a wall built with cgo and libseccomp",
		Err: &plan.UnsupportedError{
			Feature: "libseccomp",
			Need:    "a wall built with cgo",
			Have:    "one built with CGO_ENABLED=0",
		},
	}
}
