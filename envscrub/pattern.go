package envscrub

import (
	"errors"
	"strings"
	"unicode"

	"github.com/wallsandbox/wall/plan"
)

// A Pattern matches names of variables. The zero Pattern matches nothing.
//
//	NAME    exactly NAME
//	PRE*    names that begin with PRE
//	*SUF    names that end in SUF
//	*       every name
//
// There is nothing else: no "?", no classes, no escapes. A star in the middle
// is an ordinary character. A pattern with a star at both ends is a suffix
// pattern whose suffix ends in an ordinary star: "*MID*" matches only names that
// end in the text "MID*", and "**" only those that end in "*".
type Pattern struct{ text string }

// ErrPattern is the cause of the errors of ParsePattern and ParseList.
var ErrPattern = errors.New("not a pattern that can match a name")

// ParsePattern reads one pattern. It refuses, with an error that is ErrPattern,
// the empty string and text with "=" or a NUL byte, which no name can hold: such
// a pattern in a deny list would protect nothing.
func ParsePattern(s string) (Pattern, error) {
	if s == "" || strings.ContainsAny(s, "=\x00") {
		return Pattern{}, &plan.Error{
			Op:   "cannot read the pattern " + quoteName(s),
			Hint: "write a name, or a name with one leading or trailing \"*\"",
			Err:  ErrPattern,
		}
	}
	return Pattern{s}, nil
}

// ParseList reads patterns separated by commas, semicolons or white space (any
// that Unicode has), in order; blank entries are skipped. It returns the
// readable patterns, never nil, together with one joined error for the others.
func ParseList(s string) ([]Pattern, error) {
	list := []Pattern{}
	var errs []error
	for _, f := range strings.FieldsFunc(s, isSeparator) {
		p, err := ParsePattern(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, p)
	}
	return list, errors.Join(errs...)
}

func isSeparator(r rune) bool { return r == ',' || r == ';' || unicode.IsSpace(r) }

// String gives the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Exact reports whether the pattern is one name.
func (p Pattern) Exact() bool {
	s := p.text
	return s != "" && s[0] != '*' && s[len(s)-1] != '*'
}

// Match reports whether the pattern matches name; with fold, ASCII letters
// match in either case.
func (p Pattern) Match(name string, fold bool) bool {
	s := p.text
	switch {
	case s == "":
		return false
	case s == "*":
		return true
	case s[0] == '*':
		s = s[1:]
		return len(name) >= len(s) && equal(name[len(name)-len(s):], s, fold)
	case s[len(s)-1] == '*':
		s = s[:len(s)-1]
		return len(name) >= len(s) && equal(name[:len(s)], s, fold)
	default:
		return equal(name, s, fold)
	}
}

func equal(a, b string, fold bool) bool {
	if !fold || len(a) != len(b) {
		return a == b
	}
	for i := 0; i < len(a); i++ {
		if upper(a[i]) != upper(b[i]) {
			return false
		}
	}
	return true
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - ('a' - 'A')
	}
	return c
}

// ValidName reports whether wall sets a variable of this name: ASCII letters,
// digits and underscores, not beginning with a digit (the "name" of POSIX.1-2024
// XBD 3.216). Ambient names that pass need not be valid.
func ValidName(name string) bool {
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return name != ""
}
