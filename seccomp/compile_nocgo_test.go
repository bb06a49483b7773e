//go:build linux && !cgo

package seccomp

import (
	"errors"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/wallsandbox/wall/plan"
)

func TestCompileWithoutCgo(t *testing.T) {
	p, err := Compile(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow}, "amd64")
	if p != nil || !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("%d instructions, error %v", len(p), err)
	}
	var ue *plan.UnsupportedError
	if !errors.As(err, &ue) || !strings.Contains(plan.Explain(err), "built with cgo") {
		t.Errorf("the error does not say what to do: %s", plan.Explain(err))
	}
	if _, err := Generate(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Generate: %v", err)
	}
}
