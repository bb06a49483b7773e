package gate

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/wallsandbox/wall/plan"
)

// separator stands between the two streams in the text of an output.
const separator = "--- stderr ---\n"

// Amounts of output that are kept.
const (
	DefaultOutput = 1500     // characters, when the plan has no bound
	MaxOutput     = 16 << 20 // the largest bound, characters or bytes: the memory of a gate is bounded, too
)

// An amount is how much of an output is kept.
type amount struct {
	n    int
	unit string // plan.UnitChars or plan.UnitBytes
}

// outputOf reads the bound of a plan.
func outputOf(b plan.Bounds) amount {
	if b.OutputUnit == "" {
		return amount{DefaultOutput, plan.UnitChars}
	}
	return amount{int(min(b.Output.Value, MaxOutput)), b.OutputUnit}
}

// bytes is what n characters or bytes take at most, with room to find the start of
// the first character.
func (a amount) bytes() int {
	if a.unit == plan.UnitChars {
		return a.n * utf8.UTFMax
	}
	return a.n + utf8.UTFMax
}

// last gives the end of b, at most a, from the start of a character on. A byte
// that belongs to no character counts as one. The start of b itself is taken for
// the start of a character unless cut says that there was something before it.
func (a amount) last(b []byte, cut bool) []byte {
	if a.unit == plan.UnitChars {
		at := len(b)
		for n := 0; n < a.n && at > 0; n++ {
			_, size := utf8.DecodeLastRune(b[:at])
			at -= size
		}
		return b[at:] // of n characters at most 4n bytes, which are kept
	}
	if len(b) > a.n {
		b, cut = b[len(b)-a.n:], true
	}
	if cut {
		return trimStart(b)
	}
	return b
}

// trimStart drops what can only be the rest of a character, at most three bytes.
func trimStart(b []byte) []byte {
	for i := 0; i < len(b) && i < utf8.UTFMax; i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b // no text
}

// count is the size of b in the unit of a.
func (a amount) count(b []byte) int {
	if a.unit == plan.UnitChars {
		return utf8.RuneCount(b)
	}
	return len(b)
}

// A tail keeps the end of what is written to it.
type tail struct {
	amount
	buf   []byte // its end counts; at most twice as long as what is kept
	total int64  // bytes written in all
}

func newTail(a amount) *tail { return &tail{amount: a} }

// Write never fails. Its memory grows with what is written, up to a bound.
func (t *tail) Write(p []byte) (int, error) {
	n, keep := len(p), t.bytes()
	t.total += int64(n)
	if len(p) >= keep {
		t.buf = append(t.buf[:0], p[len(p)-keep:]...)
		return n, nil
	}
	if len(t.buf)+len(p) > 2*keep {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-keep:]...)
	}
	t.buf = append(t.buf, p...)
	return n, nil
}

// end is what is kept.
func (t *tail) end() []byte {
	return t.last(t.buf, t.total > int64(len(t.buf)))
}

// An Output is what is left of what the command wrote.
type Output struct {
	// Text is both streams: standard output, then, unless it is blank, a line
	// "--- stderr ---" and standard error, with white space at the end taken off.
	// It is at most as long as the bound of the plan says. When both do not fit,
	// each of them is sure of half the room, so that a flood on one does not push
	// out the other. Bytes that are not UTF-8 are replaced by U+FFFD here, and
	// only here.
	Text string

	// Stdout and Stderr are the ends of the two streams, byte by byte, each at
	// most as long as the bound, and cut where a character starts.
	Stdout, Stderr []byte

	StdoutBytes, StderrBytes int64 // written in all

	// Cut is how many bytes of the two are not in Text.
	Cut int64
}

// combine makes the output of two tails with one bound.
func combine(stdout, stderr *tail) Output {
	a := stdout.amount
	o := Output{
		Stdout: stdout.end(), Stderr: stderr.end(),
		StdoutBytes: stdout.total, StderrBytes: stderr.total,
	}
	out, errs := o.Stdout, bytes.TrimRight(o.Stderr, " \t\r\n\v\f")
	var text []byte
	room := a.n - len(separator) - 1
	switch {
	case len(errs) == 0:
		text = out
	case room < 2:
		text, out = errs, nil // there is no room for both
	default:
		errRoom := max(room-a.count(out), (room+1)/2)
		errs = amount{errRoom, a.unit}.last(errs, false)
		out = amount{room - min(a.count(errs), room), a.unit}.last(out, false)
		text = append(text, out...)
		if len(out) > 0 && out[len(out)-1] != '\n' {
			text = append(text, '\n')
		}
		text = append(append(text, separator...), errs...)
	}
	trimmed := bytes.TrimRight(o.Stderr, " \t\r\n\v\f")
	o.Cut = stdout.total - int64(len(out)) + stderr.total - int64(len(errs)+len(o.Stderr)-len(trimmed))
	o.Text = lossy(bytes.TrimRight(text, " \t\r\n\v\f"))
	return o
}

// lossy replaces every byte that belongs to no character.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	s.Grow(len(b) + 2*utf8.UTFMax)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		s.WriteRune(r)
		b = b[size:]
	}
	return s.String()
}
