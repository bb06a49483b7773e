package seccomp

import (
	"embed"
	"fmt"

	"github.com/wallsandbox/wall/plan"
)

// The generated programs, and the rule files they come from.
//
//go:embed data/*.json data/*.bpf
var files embed.FS

// A builtin is one embedded filter and the rule files it is made of, whose
// rules are read one after the other.
type builtin struct {
	name  string
	files []string
}

// builtins lists the embedded filters. "default" lets ordinary programs,
// compilers, debuggers and servers work. "strict" refuses more (data/strict.json).
// The nested forms also let the command make user namespaces and mount inside
// them (data/nested.json), for browsers and sandboxes inside the box.
var builtins = []builtin{
	{"default", []string{"default"}},
	{"strict", []string{"strict", "default"}},
	{"default-nested", []string{"nested", "default"}},
	{"strict-nested", []string{"nested", "strict", "default"}},
}

// Builtin returns the embedded filter called name ("default", "strict",
// "default-nested", "strict-nested") for goarch ("amd64", "arm64"). It only
// copies and validates bytes. An unknown name is a plan.Error; an architecture
// without filters matches errors.ErrUnsupported.
func Builtin(name, goarch string) (Program, error) {
	known := false
	for _, b := range builtins {
		known = known || b.name == name
	}
	if !known {
		return nil, &plan.Error{
			Op:   fmt.Sprintf("no built-in system call filter is called %q", name),
			Hint: "use default or strict, or a path to an OCI seccomp file",
		}
	}
	if _, ok := AuditArch(goarch); !ok {
		return nil, unsupportedArch(goarch)
	}
	b, err := files.ReadFile("data/" + name + "." + goarch + ".bpf")
	if err != nil {
		return nil, fmt.Errorf("wall bug: %w", err)
	}
	p, err := FromBytes(b)
	if err != nil {
		return nil, fmt.Errorf("wall bug: embedded filter %s.%s: %w", name, goarch, err)
	}
	return p, nil
}

func unsupportedArch(goarch string) error {
	return &plan.UnsupportedError{
		Feature: "the system call filter",
		Need:    "amd64 or arm64",
		Have:    goarch,
	}
}
