package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// A TrustEntry says that the operator accepted one content of one project layer.
type TrustEntry struct {
	Digest string // SHA-256 of the content in lower-case hex
	Path   string // absolute, free of links
}

// maxTrust bounds the trust store, in bytes.
const maxTrust = 1 << 20

// ParseTrust reads a trust store: one entry per line, the digest, a space and
// the path in double quotes as strconv.Quote writes it. A line that is anything
// else is an error that names it.
func ParseTrust(data []byte) ([]TrustEntry, error) {
	var out []TrustEntry
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSuffix(line, "\n")
		digest, quoted, _ := strings.Cut(line, " ")
		p, err := strconv.Unquote(quoted)
		if len(digest) != 2*sha256.Size || strings.Trim(digest, "0123456789abcdef") != "" || err != nil || !strings.HasPrefix(p, "/") {
			return nil, fmt.Errorf("line %d is not a digest and a path", n)
		}
		out = append(out, TrustEntry{digest, p})
	}
	return out, nil
}

// FormatTrust writes a trust store, sorted by path; equal entries are written once.
func FormatTrust(entries []TrustEntry) []byte {
	lines := make([]string, 0, len(entries))
	for _, e := range entries {
		lines = append(lines, strconv.Quote(e.Path)+"\x00"+e.Digest)
	}
	slices.Sort(lines)
	var b strings.Builder
	for _, l := range slices.Compact(lines) {
		p, d, _ := strings.Cut(l, "\x00")
		b.WriteString(d + " " + p + "\n")
	}
	return []byte(b.String())
}

// Digest is how the trust store names a content.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// TrustFile is where the trust store of the caller is when workspace is the
// workspace: $XDG_STATE_HOME/wall/trust when that is absolute and not inside
// the workspace, else ~/.local/state/wall/trust in the home directory of the
// account record; "" when there is no such place, or when it leads into the
// workspace. The directory is free of links.
func TrustFile(h Host, workspace string) string {
	s := newStack(h)
	s.at.workspace = workspace
	at, err := s.trustFile()
	if err != nil {
		return ""
	}
	return at
}

func (s *Stack) trustFile() (string, error) {
	d, err := s.ownDir("XDG_STATE_HOME", ".local/state")
	if d == "" || err != nil {
		return "", err
	}
	return join(d, "trust"), nil
}

// isTrusted looks the project layer up in the trust store. Only a store that
// nobody else can write counts.
func (s *Stack) isTrusted(project Layer) (ok bool, at string, err error) {
	at, err = s.trustFile()
	if at == "" || err != nil {
		return false, at, err
	}
	l := s.t.walkParent(at)
	if l.missing != "" {
		return false, at, nil
	}
	if l.err != nil {
		return false, at, l.err
	}
	ld := s.loader()
	for _, p := range []string{path.Dir(l.path), l.path} {
		if err := ld.safe(p); err != nil {
			return false, at, fmt.Errorf("%s %w", quote(p), err)
		}
	}
	data, _, err := s.t.readFile(l.path, maxTrust)
	if err != nil {
		return false, at, err
	}
	entries, err := ParseTrust(data)
	if err != nil {
		return false, at, err
	}
	return slices.Contains(entries, TrustEntry{Digest(project.data), project.Path}), at, nil
}

// checkProject refuses what no project layer may say, trusted or not.
func checkProject(l Layer) error {
	var errs []error
	fail := func(o plan.Origin, hint, format string, args ...any) {
		errs = append(errs, &plan.Error{Op: fmt.Sprintf(format, args...), Origin: o, Hint: hint})
	}
	if e := l.File.Extends; e.Set && e.V != l.Name {
		fail(e.Origin, "remove the line; it lies over the profile of the same name", "a project layer cannot extend %s", quote(e.V))
	}
	if n := l.File.Name; n.Set && n.V != l.Name {
		fail(n.Origin, "remove the line, or write name = "+strconv.Quote(l.Name), "a project layer cannot change the name of the profile")
	}
	if v := l.File.Seccomp; v.Set && isFilterFile(v.V) {
		fail(v.Origin, "write \"strict\" or \"default\", or name the file in a profile of your own", "a project layer cannot bring a system call filter of its own")
	}
	if v := l.File.UpstreamProxy; v.Set {
		fail(v.Origin, "name it in a profile of your own, for example in ~/.config/wall", "a project layer cannot name an upstream proxy, which would see every connection")
	}
	if err := checkPhases(l); err != nil {
		errs = append(errs, err)
	}
	for _, it := range l.File.EnvSet.Items {
		if it.V.Source != nil {
			fail(it.Origin, "name it in a profile of your own, for example in ~/.config/wall", "a project layer cannot say where the value of %s comes from", quote(it.V.Name))
		}
	}
	for _, list := range []*List[string]{&l.File.Hide, &l.File.Protect} {
		for _, it := range list.Items {
			if climbs(it.V) {
				fail(it.Origin, "name a path in the workspace, or an absolute path", "%s climbs out of the workspace", quote(it.V))
			}
		}
	}
	for _, it := range l.File.Grant.Items {
		if climbs(it.V.Path) {
			fail(it.Origin, "name a path in the workspace, or an absolute path", "%s climbs out of the workspace", quote(it.V.Path))
		}
	}
	return errors.Join(errs...)
}

// climbs reports whether a path that starts from the workspace leaves it by "..".
func climbs(s string) bool {
	rest, ok := strings.CutPrefix(s, "$workspace")
	if !ok && (strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~") || strings.HasPrefix(s, "$")) {
		return false
	}
	depth := 0
	for _, e := range strings.Split(rest, "/") {
		switch e {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}

// projectError names every line of an untrusted project layer that widens. A
// line that takes back many things is told once.
func (s *Stack) projectError() error {
	if len(s.widened) == 0 || s.trusted {
		return nil
	}
	var errs []*plan.Error
	more := map[*plan.Error]int{}
	for i, c := range s.widened {
		if i > 0 {
			last := s.widened[i-1]
			if c.Key == last.Key && c.Origin == last.Origin && c.To == "" && last.To == "" && c.Item != "" {
				more[errs[len(errs)-1]]++
				continue
			}
		}
		errs = append(errs, &plan.Error{Op: "the project layer may only tighten: " + c.String(), Origin: c.Origin})
	}
	out := make([]error, len(errs))
	for i, e := range errs {
		if n := more[e]; n > 0 {
			e.Op += fmt.Sprintf("; and %d more", n)
		}
		out[i] = e
	}
	last := errs[len(errs)-1]
	last.Hint = "remove what widens, or accept exactly this content with: wall trust " + quote(s.project.Path)
	if s.trust != nil {
		at := ""
		if s.trustAt != "" {
			at = " " + quote(s.trustAt)
		}
		last.Hint += "; the trust store" + at + " does not count: " + s.trust.Error()
	}
	return errors.Join(out...)
}
