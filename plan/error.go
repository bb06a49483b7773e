package plan

import (
	"errors"
	"fmt"
	"strings"
)

// An Error is a failure told to a person: what was attempted, where that was
// asked for, the cause, and what to do.
type Error struct {
	Op     string // what wall was trying to do, in the user's words: "cannot make /srv/data writable inside"
	Origin Origin // what asked for it; the zero Origin prints nothing
	Hint   string // what to do; may be empty
	Exit   int    // exit status when this ends wall; 0 means 125
	Err    error  // the cause; may be nil
}

// Error gives "op: cause" on one line; [Explain] gives the whole text.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Op
	}
	if e.Op == "" {
		return e.Err.Error()
	}
	return e.Op + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// An UnsupportedError says that the kernel or host lacks something. It matches
// errors.ErrUnsupported.
type UnsupportedError struct {
	Feature string // "Landlock"
	Need    string // "ABI 2 (Linux 5.19)"
	Have    string // "ABI 1"
}

func (e *UnsupportedError) Error() string {
	s := e.Feature + " is not available"
	if e.Need != "" {
		s += ": needs " + e.Need
	}
	if e.Have != "" {
		s += ", this host has " + e.Have
	}
	return s
}

// Is reports that an UnsupportedError is errors.ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }

// IsZero reports whether the origin says nothing.
func (o Origin) IsZero() bool { return o == Origin{} }

// String gives "file:line: text", "text" for a flag or a default, "" when zero.
func (o Origin) String() string {
	var b strings.Builder
	if o.File != "" {
		b.WriteString(o.File)
		if o.Line > 0 {
			fmt.Fprintf(&b, ":%d", o.Line)
			if o.Column > 0 {
				fmt.Fprintf(&b, ":%d", o.Column)
			}
		}
	}
	if o.Text != "" {
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(strings.TrimSpace(o.Text))
	}
	return b.String()
}

// Exit statuses that wall uses for its own verdicts.
const (
	ExitDenied        = 122 // denied access, with --fail-on-denial
	ExitLimit         = 123 // a limit other than time
	ExitTimeout       = 124 // the time limit
	ExitFailed        = 125 // wall failed; the command did not run
	ExitNotExecutable = 126 // the command was found but cannot be executed
	ExitNotFound      = 127 // the command was not found
)

// ExitStatus gives the exit status for an error that kept the command from
// running: the Exit of the first Error in the chain that has one, else 125.
func ExitStatus(err error) int {
	for {
		var e *Error
		if !errors.As(err, &e) {
			return ExitFailed
		}
		if e.Exit != 0 {
			return e.Exit
		}
		err = e.Err
		if err == nil {
			return ExitFailed
		}
	}
}

// Explain gives the text a person sees, without a program name: for every
// located error "error: op: cause", the origin and the hint, in order. Joined
// errors are told one after the other.
func Explain(err error) string {
	var b strings.Builder
	explain(&b, err)
	return b.String()
}

func explain(b *strings.Builder, err error) {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range j.Unwrap() {
			explain(b, e)
		}
		return
	}
	fmt.Fprintf(b, "error: %s\n", oneLine(err.Error()))
	var origin Origin
	var hints []string
	for e := err; e != nil; e = errors.Unwrap(e) {
		pe, ok := e.(*Error)
		if !ok {
			continue
		}
		if origin.IsZero() {
			origin = pe.Origin
		}
		if pe.Hint != "" {
			hints = append(hints, pe.Hint)
		}
	}
	if !origin.IsZero() {
		fmt.Fprintf(b, "  at %s\n", oneLine(origin.String()))
	}
	for _, h := range hints {
		fmt.Fprintf(b, "  hint: %s\n", oneLine(h))
	}
}

// oneLine keeps control characters, which a hostile file name may hold, from
// reaching a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return '?'
		}
		return r
	}, s)
}
