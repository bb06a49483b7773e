package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Redacted stands for the value of an environment variable in every form for people.
const Redacted = "<redacted>"

// Redact gives a copy of p without the values of environment variables. The
// other fields are shared with p.
func (p Plan) Redact() Plan {
	env := make([]EnvVar, len(p.Env))
	for i, v := range p.Env {
		v.Value = Redacted
		env[i] = v
	}
	p.Env = env
	return p
}

// Print writes the stable text form of p for people: one line for every entry,
// with its origin behind " # ". It is the golden format, and never holds the
// value of an environment variable. Strings that are not plain words are quoted
// as in Go, so that no path can break a line or reach a terminal as an escape.
func (p Plan) Print(w io.Writer) error {
	var b bytes.Buffer
	line := func(o Origin, format string, args ...any) {
		s := strings.TrimRight(fmt.Sprintf(format, args...), " ")
		if !o.IsZero() {
			s += "  # " + o.String()
		}
		b.WriteString(oneLine(s))
		b.WriteByte('\n')
	}
	none := Origin{}
	line(none, "plan version %d", p.Version)
	line(none, "profile %s", word(p.Profile))
	line(none, "enforce %s", p.Enforce)
	line(none, "command %s in %s", word(p.Command.Path), word(p.Command.Dir))
	line(none, "  argv %s", words(p.Command.Argv))
	line(none, "identity uid %d gid %d", p.Identity.UID, p.Identity.GID)
	if p.Scratch.Root != "" {
		keep := ""
		if p.Scratch.Keep {
			keep = " keep"
		}
		line(none, "scratch %s (root %s id %s)%s", word(p.Scratch.Path()), word(p.Scratch.Root), p.Scratch.ID, keep)
		for _, d := range p.Scratch.Dirs {
			line(none, "  dir %s %04o", word(d.Name), d.Mode)
		}
		for _, h := range p.Scratch.Placeholders {
			s := ""
			if h.Type == TypeFile {
				s = " content " + strconv.Quote(h.Content)
			}
			line(h.Origin, "  placeholder %s %s%s", h.Type, word(h.Path), s)
		}
		for _, g := range p.Scratch.Guards {
			line(none, "  guard %s", word(g))
		}
		for _, s := range p.Scratch.Seeds {
			line(s.Origin, "  seed %s -> %s", word(s.Source), word(s.Target))
		}
		for _, c := range p.Scratch.Copies {
			line(c.Origin, "  copy %s -> %s max %d", word(c.Source), word(c.Target), c.Max)
		}
		if k := p.Scratch.Kept; k.Path != "" || len(k.Dirs) > 0 {
			line(none, "  kept %s: %s", word(k.Path), words(k.Dirs))
		}
	}
	line(none, "namespaces %d", len(p.Spaces))
	for _, s := range p.Spaces {
		line(s.Origin, "  %s", s.Kind)
	}
	line(none, "mounts %d", len(p.Mounts))
	for _, m := range p.Mounts {
		line(m.Origin, "  %s", m)
	}
	line(none, "limits %d", len(p.Limits))
	for _, l := range p.Limits {
		line(l.Origin, "  %s %d", l.Name, l.Value)
	}
	p.Bounds.print(line)
	p.Network.print(line)
	ll := p.Landlock
	if ll.ABI == 0 {
		line(none, "landlock none")
	} else {
		line(none, "landlock abi %d scopes signals=%t abstract-sockets=%t network=%t stdio=%t", ll.ABI, ll.Signals, ll.Abstract, ll.Network, ll.Stdio)
		for _, r := range ll.Rules {
			opt := ""
			if r.Optional {
				opt = " optional"
			}
			line(r.Origin, "  %s %s%s", r.Access, word(r.Path), opt)
			for _, e := range r.Except {
				line(none, "    except %s", word(e))
			}
		}
		for _, r := range ll.Ports {
			line(r.Origin, "  %s %d", r.Op, r.Port)
		}
	}
	switch {
	case p.Seccomp.Profile == "":
		line(none, "seccomp none")
	case len(p.Seccomp.Program) > 0:
		line(p.Seccomp.Origin, "seccomp custom %s (%d instructions)", word(p.Seccomp.Profile), len(p.Seccomp.Program)/8)
	default:
		line(p.Seccomp.Origin, "seccomp %s", p.Seccomp.Profile)
	}
	for _, s := range p.Stdio {
		line(none, "descriptor %d %s read=%t write=%t", s.FD, s.Kind, s.Read, s.Write)
	}
	line(none, "terminal %s", cmp.Or(p.TTY, TTYNone))
	for _, fd := range p.KeepFDs {
		line(none, "descriptor %d kept", fd)
	}
	line(none, "self-test %d", len(p.Checks))
	for _, c := range p.Checks {
		line(c.Origin, "  %s %s", c.Op, word(c.Path))
	}
	line(none, "environment %d", len(p.Env))
	for _, v := range p.Env {
		value := Redacted
		if !v.Source.IsZero() {
			value += " from " + v.Source.String()
		}
		line(v.Origin, "  %s=%s (%s)", word(v.Name), value, v.Reason)
	}
	line(none, "dropped %d", len(p.Dropped))
	for _, d := range p.Dropped {
		line(none, "  %s (%s)", word(d.Name), d.Reason)
	}
	for _, d := range p.Degraded {
		line(d.Origin, "degraded %s: %s: %s", d.Wall, d.Lost, d.Cause)
	}
	for _, n := range p.Notices {
		line(n.Origin, "notice %s", n.Text)
		if n.Hint != "" {
			line(none, "  hint: %s", n.Hint)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// String gives one line that shows every field but Origin.
func (m Mount) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", m.Op, word(m.Target))
	if m.Source != "" {
		fmt.Fprintf(&b, " from %s", word(m.Source))
	}
	if m.Upper != "" {
		fmt.Fprintf(&b, " upper=%s", word(m.Upper))
	}
	if m.Work != "" {
		fmt.Fprintf(&b, " work=%s", word(m.Work))
	}
	if m.Access != AccessNone {
		fmt.Fprintf(&b, " %s", m.Access)
	}
	if m.Type != "" {
		fmt.Fprintf(&b, " type=%s", m.Type)
	}
	if m.Mode != 0 {
		fmt.Fprintf(&b, " mode=%04o", m.Mode)
	}
	if m.Size != 0 {
		fmt.Fprintf(&b, " size=%d", m.Size)
	}
	if m.MakeAs != "" {
		fmt.Fprintf(&b, " make=%s", m.MakeAs)
	}
	if m.Optional {
		b.WriteString(" optional")
	}
	return b.String()
}

// JSON gives the form of p for programs that read it on behalf of people: all
// fields under their Go names in lower camel case, values of variables
// redacted, bytes that are not UTF-8 as \xNN. It ends with a newline, and is as of
// [PrintableJSON].
func (p Plan) JSON() ([]byte, error) {
	b, err := json.MarshalIndent(toJSON(reflect.ValueOf(p.Redact())), "", "  ")
	if err != nil {
		return nil, err
	}
	return append(PrintableJSON(b), '\n'), nil
}

// toJSON turns structs into ordered objects with lower camel case names, and
// nil slices into empty arrays, so that a reader never meets null.
func toJSON(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Struct:
		var o orderedObject
		for i := range v.NumField() {
			o = append(o, member{lowerCamel(v.Type().Field(i).Name), toJSON(v.Field(i))})
		}
		return o
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Bytes()
		}
		a := make([]any, v.Len())
		for i := range a {
			a[i] = toJSON(v.Index(i))
		}
		return a
	case reflect.String:
		return EscapeBytes(v.String())
	default:
		return v.Interface()
	}
}

type member struct {
	name  string
	value any
}

type orderedObject []member

// MarshalJSON keeps the order of the members.
func (o orderedObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(m.name))
		b.WriteByte(':')
		v, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// lowerCamel turns UID into uid, ABI into abi, FD into fd, KeepFDs into keepFDs.
func lowerCamel(s string) string {
	n := 0
	for n < len(s) && s[n] >= 'A' && s[n] <= 'Z' {
		n++
	}
	if n > 1 && n < len(s) {
		n--
	}
	return strings.ToLower(s[:n]) + s[n:]
}

// EscapeBytes writes bytes that are not UTF-8 as \xNN, which is how plans show them in JSON.
func EscapeBytes(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// word quotes s unless it is a plain word.
func word(s string) string {
	if s == "" {
		return ""
	}
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c == '"' || c == '\\' || c == '#' || c >= 0x7f {
			return strconv.Quote(s)
		}
	}
	return s
}

func words(ss []string) string {
	out := make([]string, len(ss))
	for i, s := range ss {
		if s == "" {
			out[i] = `""`
			continue
		}
		out[i] = word(s)
	}
	return strings.Join(out, " ")
}
