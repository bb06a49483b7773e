package plan

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
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

// oneLine is what this package shows of foreign text.
func oneLine(s string) string { return Printable(s) }

// Printable gives foreign text (a file name, a line of a profile, a cause) as
// it may be shown in a line of output: without anything that could forge a
// line, steer a terminal, hide or reorder what a person reads, or give an order
// to the CI system that records the output.
//
//   - A tab becomes a space. Control characters, line separators, characters
//     that are invisible or set the writing direction (the Unicode categories
//     Cc, Cf, Zl and Zp) and bytes that are not UTF-8 become "?".
//   - "##[" and "##NAME[", which GitHub Actions, Azure Pipelines and TeamCity
//     obey anywhere in a line, get a space behind the first "#".
//   - "::NAME" at the start, which GitHub Actions obeys where a line begins,
//     gets a space behind the first ":".
//
// What is printable already stays the same.
func Printable(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	start := strings.TrimLeft(s, " \t")
	command := len(start) > 2 && start[:2] == "::" && unicode.IsLetter(rune(start[2]))
	for i, r := range s {
		switch {
		case r == '\t':
			r = ' '
		case r < 0x20, r >= 0x7f && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			r = '?'
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				r = '?'
			}
		case r == '#' && i > 0 && s[i-1] == '#' && opensCommand(s[i+1:]), command && i == len(s)-len(start)+1:
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// PrintableJSON escapes in a JSON text what [Printable] takes out of others, as far as
// encoding/json lets it stand: it means the same to whoever reads JSON, and cannot
// steer a terminal, turn a text around, or give an order to a CI system that records it.
// Of two "#" the second is escaped. All of this is in strings only.
func PrintableJSON(data []byte) []byte {
	steers := func(r rune) bool { return r >= 0x7f && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }
	if bytes.IndexFunc(data, steers) < 0 && !bytes.Contains(data, []byte("##")) {
		return data
	}
	var out bytes.Buffer
	out.Grow(len(data) + 64)
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case steers(r):
			for _, u := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&out, `\u%04x`, u)
			}
		case r == '#' && bytes.HasSuffix(out.Bytes(), []byte("#")):
			out.WriteString(`\u0023`)
		default:
			out.Write(data[:n])
		}
		data = data[n:]
	}
	return out.Bytes()
}

// opensCommand reports whether s begins with "[" or with letters and "[".
func opensCommand(s string) bool {
	s = strings.TrimLeft(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	return strings.HasPrefix(s, "[")
}
