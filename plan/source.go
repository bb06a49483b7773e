package plan

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// SourceKind names where a value comes from.
type SourceKind string

// The kinds of value source. The zero value means that EnvVar.Value is the value.
const (
	SourceNone          SourceKind = ""
	SourceFile          SourceKind = "file"           // Name is an absolute path
	SourceEnv           SourceKind = "env"            // Name is a variable of the caller's environment
	SourceCommand       SourceKind = "command"        // Argv is run outside the box; Name is empty
	SourceKeyring       SourceKind = "keyring"        // Name is the description of a key of type "user"
	SourceSecretService SourceKind = "secret-service" // Name is the attributes, see EncodeAttributes
)

// A ValueSource says where stage 1 fetches the value of a variable, right
// before the start (package envscrub/source). It names the place and never holds
// the value, so that a plan can be shown and compared without fetching anything.
type ValueSource struct {
	Kind SourceKind
	Name string   // see the kind
	Argv []string // SourceCommand only: Argv[0] is an absolute path, or a bare name that is looked up in fixed directories
}

// IsZero reports whether the value is at hand: there is nothing to fetch.
func (s ValueSource) IsZero() bool { return s.Kind == "" && s.Name == "" && len(s.Argv) == 0 }

// String gives the source in one line: the kind, and what it names.
func (s ValueSource) String() string {
	parts := make([]string, 0, 3)
	for _, p := range []string{string(s.Kind), word(s.Name), words(s.Argv)} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, " ")
}

// validate gives what makes s impossible, nil for nothing.
func (s ValueSource) validate() error {
	if strings.IndexByte(s.Name, 0) >= 0 {
		return errors.New("its name holds a NUL byte")
	}
	if s.Kind != SourceCommand && len(s.Argv) > 0 {
		return fmt.Errorf("kind %q has an argument vector", s.Kind)
	}
	switch s.Kind {
	case SourceNone:
		if s.Name != "" {
			return errors.New("it has a name but no kind")
		}
	case SourceFile:
		if !strings.HasPrefix(s.Name, "/") || path.Clean(s.Name) != s.Name {
			return fmt.Errorf("file %q is not an absolute clean path", s.Name)
		}
	case SourceEnv:
		if s.Name == "" || strings.Contains(s.Name, "=") {
			return fmt.Errorf("variable name %q", s.Name)
		}
	case SourceCommand:
		if s.Name != "" {
			return errors.New("a command has a name")
		}
		if len(s.Argv) == 0 || s.Argv[0] == "" {
			return errors.New("the command is empty")
		}
		if p := s.Argv[0]; strings.Contains(p, "/") && (!strings.HasPrefix(p, "/") || path.Clean(p) != p) {
			return fmt.Errorf("program %q is neither an absolute clean path nor a bare name", p)
		}
		for _, a := range s.Argv {
			if strings.IndexByte(a, 0) >= 0 {
				return errors.New("an argument of the command holds a NUL byte")
			}
		}
	case SourceKeyring:
		if s.Name == "" {
			return errors.New("the description of the key is empty")
		}
	case SourceSecretService:
		if _, err := ParseAttributes(s.Name); err != nil {
			return err
		}
	default:
		return fmt.Errorf("kind %q", s.Kind)
	}
	return nil
}

// An Attribute is one name and value by which the Secret Service finds a secret.
type Attribute struct{ Name, Value string }

// EncodeAttributes gives the canonical text of attributes, for the Name of a
// SourceSecretService: sorted by name, "name=value" with "&" between, escaped as
// in the query of a URL. Of one name twice, the last counts.
func EncodeAttributes(attrs []Attribute) string {
	v := url.Values{}
	for _, a := range attrs {
		v.Set(a.Name, a.Value)
	}
	return v.Encode()
}

// ParseAttributes reads what [EncodeAttributes] wrote, and refuses any other
// spelling, so that two sources are equal when their names are.
func ParseAttributes(s string) ([]Attribute, error) {
	v, err := url.ParseQuery(s)
	if err != nil {
		return nil, fmt.Errorf("attributes %q are not in their canonical form", s)
	}
	var attrs []Attribute
	for name, values := range v {
		if name == "" {
			return nil, errors.New("an attribute has no name")
		}
		attrs = append(attrs, Attribute{name, values[len(values)-1]})
	}
	if len(attrs) == 0 {
		return nil, errors.New("no attributes")
	}
	slices.SortFunc(attrs, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
	if EncodeAttributes(attrs) != s {
		return nil, fmt.Errorf("attributes %q are not in their canonical form", s)
	}
	return attrs, nil
}
