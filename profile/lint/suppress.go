package lint

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wallsandbox/wall/plan"
)

// marker starts a comment that accepts findings: "# wall:allow W012 reason".
const marker = "wall:allow"

// A suppression is one such comment.
type suppression struct {
	line, column int // of the marker
	alone        bool
	codes        []string
	reason       string
	used         bool
}

// suppress marks the findings that comments of the file accept, and reports
// comments that are not in order. A comment accepts findings on its own line
// or, when it stands alone on a line, on the line below it.
func (x *check) suppress() {
	if !strings.Contains(x.text, marker) || x.src.Err != nil {
		return
	}
	var all []*suppression
	for _, cm := range comments(x.text) {
		if s := x.suppression(cm); s != nil {
			all = append(all, s)
		}
	}
	byLine := make(map[int][]*suppression) // at most two for each line
	for _, s := range all {
		byLine[s.line] = append(byLine[s.line], s)
		if s.alone {
			byLine[s.line+1] = append(byLine[s.line+1], s)
		}
	}
	for i := range x.found {
		f := &x.found[i]
		if ruleOf(f.Code).Final {
			continue
		}
		for _, s := range byLine[f.Line] {
			if slices.Contains(s.codes, f.Code) {
				s.used = true
				if !x.o.NoSuppressions {
					f.Suppressed, f.Reason = true, s.reason
				}
			}
		}
	}
	if !x.parsed {
		return // most rules have not looked
	}
	for _, s := range all {
		if !s.used {
			x.comment("W009", s.line, s.column, fmt.Sprintf("the comment accepts %s, which is not found here", strings.Join(s.codes, ", ")))
		}
	}
}

// suppression reads one comment. It is nil for an ordinary one, and for one
// that is not in order, which is reported.
func (x *check) suppression(cm comment) *suppression {
	rest, ok := strings.CutPrefix(strings.TrimLeft(cm.text, "# \t"), marker)
	if !ok {
		return nil
	}
	s := &suppression{line: cm.line, column: cm.column, alone: cm.alone}
	codes, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
	s.reason = clean(strings.TrimSpace(reason))
	if codes == "" || rest[0] != ' ' && rest[0] != '\t' {
		x.comment("W008", s.line, s.column, "the comment names no finding")
		return nil
	}
	for code := range strings.SplitSeq(codes, ",") {
		r := ruleOf(code)
		switch {
		case r == nil:
			x.comment("W008", s.line, s.column, fmt.Sprintf("the comment accepts %q, which is not the code of a rule", clean(code)))
			return nil
		case r.Final:
			x.comment("W008", s.line, s.column, fmt.Sprintf("%s (%s) cannot be accepted by a comment", code, r.Name))
			return nil
		}
		s.codes = append(s.codes, code)
	}
	if s.reason == "" {
		x.comment("W008", s.line, s.column, fmt.Sprintf("the comment accepts %s without a reason", codes))
		return nil
	}
	return s
}

func (x *check) comment(code string, line, column int, msg string) {
	f := x.add(ruleOf(code), plan.Origin{File: x.src.Name, Line: line, Column: column}, marker, msg, "")
	f.EndColumn = column + len(marker)
}

// A comment is one comment of a TOML file.
type comment struct {
	line, column int    // of the "#"
	text         string // from the "#" on
	alone        bool   // nothing stands in front of it
}

// comments finds the comments of a TOML document: every "#" that is not in a
// string. In a document with broken syntax the answer may be too small.
func comments(s string) []comment {
	var out []comment
	line, start := 1, 0
	for i := 0; i < len(s); {
		switch c := s[i]; c {
		case '\n':
			line++
			i++
			start = i
		case '"', '\'':
			q := string(c)
			if strings.HasPrefix(s[i:], q+q+q) {
				j := i + 3
				for j < len(s) && !strings.HasPrefix(s[j:], q+q+q) {
					switch {
					case c == '"' && s[j] == '\\' && j+1 < len(s) && s[j+1] != '\n':
						j++
					case s[j] == '\n':
						line++
						start = j + 1
					}
					j++
				}
				// Up to two quotes may stand in front of the closing three.
				for j = min(j+3, len(s)); j < len(s) && s[j] == c; j++ {
				}
				i = j
				continue
			}
			for i++; i < len(s) && s[i] != c && s[i] != '\n'; i++ {
				if c == '"' && s[i] == '\\' && i+1 < len(s) && s[i+1] != '\n' {
					i++
				}
			}
			if i < len(s) && s[i] == c {
				i++
			}
		case '#':
			end := strings.IndexByte(s[i:], '\n')
			if end < 0 {
				end = len(s) - i
			}
			out = append(out, comment{
				line: line, column: utf8.RuneCountInString(s[start:i]) + 1,
				text:  strings.TrimRight(s[i:i+end], "\r \t"),
				alone: strings.TrimSpace(s[start:i]) == "",
			})
			i += end
		default:
			i++
		}
	}
	return out
}
