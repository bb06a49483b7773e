package lint

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// located takes a joined error apart into the errors that have a place; nil has
// none.
func located(err error) []*plan.Error {
	var all []*plan.Error
	var walk func(error)
	walk = func(err error) {
		if j, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range j.Unwrap() {
				walk(e)
			}
			return
		}
		var pe *plan.Error
		if !errors.As(err, &pe) {
			pe = &plan.Error{Op: err.Error()}
		}
		all = append(all, pe)
	}
	if err != nil {
		walk(err)
	}
	return all
}

// parseProblems turns what Parse said into findings.
func (x *check) parseProblems(err error) {
	all := located(err)
	// Where the syntax is broken nobody knows what is a value of a variable, and
	// whether it is a profile at all.
	broken := slices.ContainsFunc(all, func(e *plan.Error) bool { return classify(e.Error()) == "W001" })
	if len(all) > MaxFindings {
		x.more = len(all) - MaxFindings
		all = all[:MaxFindings]
	}
	for _, e := range all {
		o, msg := e.Origin, e.Error()
		code := classify(msg)
		if broken || mayHoldValue(x.lineText(o.Line)) {
			o.Text = ""
		}
		x.problem(code, o, msg, e.Hint)
	}
}

// mayHoldValue reports whether a line could hold a value of environment.set, as
// far as one line tells: it has the key set, or a key with escapes.
func mayHoldValue(line string) bool {
	for rest := line; ; {
		_, after, ok := strings.Cut(rest, "set")
		if !ok {
			return strings.Contains(line, `\u`) || strings.Contains(line, `\U`) || strings.Contains(line, `\x`)
		}
		if next := strings.TrimLeft(after, "\"' \t"); next != "" && strings.ContainsRune(".=]", rune(next[0])) {
			return true
		}
		rest = after
	}
}

// classify gives the code of a message of Parse. The messages are the ones that
// users see when they run the profile; each kind has its test.
func classify(msg string) string {
	switch {
	case strings.HasPrefix(msg, "not valid TOML"), strings.HasPrefix(msg, "the profile is not valid UTF-8"),
		strings.HasPrefix(msg, "the profile starts with a byte order mark"), strings.HasPrefix(msg, "the profile contains a NUL byte"),
		strings.HasPrefix(msg, "the profile is larger than"), strings.HasPrefix(msg, "values are nested more than"):
		return "W001"
	case strings.HasPrefix(msg, "unknown key"):
		return "W002"
	case strings.Contains(msg, "defined twice"), strings.Contains(msg, "already defined"), strings.Contains(msg, " is twice in "):
		return "W004"
	}
	return "W003"
}

// reasonOf is the cause of an error without the path, which the finding has.
func reasonOf(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
