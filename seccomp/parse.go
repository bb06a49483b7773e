package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/wallsandbox/wall/plan"
)

// Parse reads a filter in the OCI runtime-spec format: one JSON object, the
// LinuxSeccomp of
// https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#seccomp.
//
// It is strict: names are case-sensitive; an unknown or repeated field, a wrong
// type, anything after the object, and everything that wall could not honour
// (listeners, flags, actions that need a tracer, foreign architectures, rules
// that can never apply) is an error. All problems with the content are returned
// at once, joined, in file order; each is a *plan.Error whose Origin has Line
// (1-based), Column (1-based, bytes) and the text of the line, and no File, which
// the caller knows.
//
// Whether the system call names exist is found by [Compile].
func Parse(data []byte) (*specs.LinuxSeccomp, error) {
	if len(data) > maxFileSize {
		return nil, &plan.Error{Op: fmt.Sprintf("the system call filter has %d bytes, at most %d", len(data), maxFileSize)}
	}
	loc := locator{data: data, at: make(map[string]int64)}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, loc.syntax(err)
	}
	if err := loc.walk(); err != nil {
		return nil, err
	}
	var s specs.LinuxSeccomp
	if err := json.Unmarshal(data, &s); err != nil {
		var te *json.UnmarshalTypeError
		if errors.As(err, &te) {
			return nil, loc.errorAt(te.Offset-1, "", "%s: %s is not a %s", te.Field, te.Value, kind(te.Type.String()))
		}
		return nil, loc.errorAt(0, "", "%v", err)
	}
	var errs []error
	for _, p := range check(&s) {
		errs = append(errs, loc.errorAt(loc.offset(p.at), p.hint, "%s", p.text))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &s, nil
}

// kind puts a Go type in words.
func kind(t string) string {
	switch {
	case strings.HasPrefix(t, "[]"):
		return "list"
	case strings.Contains(t, "uint"):
		return "whole number from 0 (in range)"
	case strings.HasPrefix(t, "specs.LinuxSeccompArg"), strings.HasPrefix(t, "specs.LinuxSyscall"), t == "specs.LinuxSeccomp":
		return "object"
	}
	return "string"
}

// fields lists the fields of each object of the format, by the path of the
// object with indexes removed.
var fields = map[string][]string{
	"":                  {"defaultAction", "defaultErrnoRet", "architectures", "flags", "listenerPath", "listenerMetadata", "syscalls"},
	"syscalls[]":        {"names", "action", "errnoRet", "args"},
	"syscalls[].args[]": {"index", "value", "valueTwo", "op"},
}

// A locator remembers where each value of a JSON text begins.
type locator struct {
	data []byte
	at   map[string]int64 // path to byte offset
}

// walk reads the text, of which the syntax is known to be good, token by token: it
// checks the field names and that no field is repeated, which package json does
// not, and fills l.at.
func (l *locator) walk() error {
	dec := json.NewDecoder(bytes.NewReader(l.data))
	dec.UseNumber()
	return l.value(dec, "", "", 0)
}

// value reads one value. path is its path, shape the same with the indexes left out.
func (l *locator) value(dec *json.Decoder, path, shape string, depth int) error {
	start := l.next(dec.InputOffset())
	tok, err := dec.Token()
	if err != nil {
		return l.syntax(err)
	}
	l.at[path] = start
	if depth > 8 {
		return l.errorAt(start, "", "nested too deeply")
	}
	switch tok {
	case json.Delim('{'):
		allowed, known := fields[shape]
		if !known {
			return l.errorAt(start, "", "%s cannot be an object", shape)
		}
		for dec.More() {
			at := l.next(dec.InputOffset())
			tok, err := dec.Token()
			if err != nil {
				return l.syntax(err)
			}
			name, _ := tok.(string)
			if !slices.Contains(allowed, name) {
				return l.errorAt(at, fieldHint(name), "unknown field %q", name)
			}
			p := join(path, name)
			if _, dup := l.at[p]; dup {
				return l.errorAt(at, "", "field %q is repeated", name)
			}
			if err := l.value(dec, p, join(shape, name), depth+1); err != nil {
				return err
			}
		}
	case json.Delim('['):
		if path == "" {
			return l.errorAt(start, "", "the filter must be an object")
		}
		for i := 0; dec.More(); i++ {
			if err := l.value(dec, fmt.Sprintf("%s[%d]", path, i), shape+"[]", depth+1); err != nil {
				return err
			}
		}
	default:
		if path == "" {
			return l.errorAt(start, "", "the filter must be an object")
		}
		if tok == nil {
			// null is how json writes an absent value; it would quietly
			// mean an empty list or a zero.
			return l.errorAt(start, "leave the field out", "%s is null", shape)
		}
		return nil
	}
	if _, err := dec.Token(); err != nil { // the closing delimiter
		return l.syntax(err)
	}
	return nil
}

func fieldHint(name string) string {
	switch name {
	case "archMap", "includes", "excludes", "comment", "name", "minKernel":
		return "this is a container engine's profile template; wall reads the OCI runtime-spec form that the engine makes of it"
	}
	return ""
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// syntax places a syntax error.
func (l *locator) syntax(err error) error {
	off := int64(len(l.data))
	var se *json.SyntaxError
	if errors.As(err, &se) && se.Offset < off+1 {
		off = se.Offset - 1
	}
	if strings.Contains(err.Error(), "unexpected end") {
		return l.errorAt(int64(len(l.data)), "", "the text ends too early")
	}
	return l.errorAt(off, "", "%s", strings.TrimPrefix(err.Error(), "json: "))
}

// next skips what may stand before a value: white space, comma and colon.
func (l *locator) next(off int64) int64 {
	for off < int64(len(l.data)) && strings.IndexByte(" \t\r\n,:", l.data[off]) >= 0 {
		off++
	}
	return off
}

// offset gives the place of path, or of the nearest value around it.
func (l *locator) offset(path string) int64 {
	for {
		if off, ok := l.at[path]; ok || path == "" {
			return off
		}
		path = path[:max(strings.LastIndexByte(path, '.'), strings.LastIndexByte(path, '['), 0)]
	}
}

// errorAt makes an error about the text at a byte offset.
func (l *locator) errorAt(off int64, hint, format string, a ...any) error {
	off = max(0, min(off, int64(len(l.data))))
	before := l.data[:off]
	start := bytes.LastIndexByte(before, '\n') + 1
	text := l.data[start:]
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		text = text[:i]
	}
	const longest = 120
	if len(text) > longest {
		text = text[:longest]
	}
	return &plan.Error{
		Op:   "system call filter: " + fmt.Sprintf(format, a...),
		Hint: hint,
		Origin: plan.Origin{
			Line:   bytes.Count(before, []byte("\n")) + 1,
			Column: int(off) - start + 1,
			Text:   strings.ToValidUTF8(string(text), "?"),
		},
	}
}
