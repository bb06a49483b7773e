package lint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// A Severity says how bad a finding is. The zero value is not one.
type Severity int

// The severities, in ascending order.
const (
	Note    Severity = iota + 1 // worth knowing
	Warning                     // probably not what was meant, or a weakness
	Error                       // the profile does not work, or a promise is lost
)

func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Error:
		return "error"
	}
	return "invalid"
}

// ParseSeverity reads "note", "warning" or "error".
func ParseSeverity(s string) (Severity, bool) {
	for _, v := range []Severity{Note, Warning, Error} {
		if v.String() == s {
			return v, true
		}
	}
	return 0, false
}

// A Finding is one thing that a rule has to say about one place.
type Finding struct {
	Code     string // "W017"; stable, never used again for something else
	Name     string // "socket-granted"; the rule in words
	Severity Severity

	File      string // as the caller named it
	Line      int    // 1-based
	Column    int    // 1-based, in characters
	EndColumn int    // 1-based, behind the last character of the offending text
	Text      string // the offending text: a path, a host, a name; never a value of environment.set
	Source    string // the line as far as it may be shown; "" when nothing of it may

	Message string // what was found here
	Why     string // why it matters
	Fix     string // what to do

	Suppressed bool   // a comment on the line accepts it
	Reason     string // why, from the comment

	exact bool // Source is the line from its first character on, so that a caret can be put below it
	lead  int  // characters of white space in front of Source that were cut off
}

// Options are the facts that some rules look at. The zero value leaves out all
// of them: nothing is read, and rules that would look at files use the name.
type Options struct {
	// Host may lack any fact. FS is what profiles that are extended are read
	// from; opening must not block on a FIFO. Cwd is the workspace of profiles
	// that are not project layers.
	Host   profile.Host
	Config string   // directory of the user's profiles; "" when there is none
	Path   []string // absolute directories of PATH, besides the usual ones
	Target Target   // what the host lacks that the profile is checked for

	NoSuppressions bool // comments accept nothing
}

// A Source is one profile to check.
type Source struct {
	Name string // in findings: the path as the user wrote it, or "built-in:NAME"
	Path string // absolute path; "" for a built-in
	Data []byte
	Err  error // why Data could not be read; nil when it was

	// Root is the directory in which every file must lie that the profile
	// extends, absolute and free of links; "" when any may be opened.
	Root string
	// Target is where the file is, free of links, when Path leads through one in
	// a workspace. Then nothing of it is told unless it is a profile. "" otherwise.
	Target string
}

// A Checker checks profiles.
type Checker struct{ o Options }

// New makes a Checker.
func New(o Options) *Checker { return &Checker{o: o} }

// Check gives everything that there is to say about one profile, by line. What
// a comment of the file accepts is marked as suppressed and not left out. Of
// more than [MaxFindings] the worst are given, and how many more there are.
func (c *Checker) Check(s Source) []Finding {
	x := &check{o: c.o, src: s, text: string(s.Data)}
	if base, workspace, ok := c.projectLayer(s.Path); ok {
		x.project, x.base, x.o.Host.Cwd = true, base, workspace
	}
	x.home, x.workspace = x.o.Host.AccountHome, x.o.Host.Cwd
	x.run()
	x.suppress()
	slices.SortStableFunc(x.found, byPlace)
	x.found = slices.CompactFunc(x.found, func(a, b Finding) bool {
		return a.Code == b.Code && a.Line == b.Line && a.Column == b.Column && a.Message == b.Message
	})
	x.atMost(MaxFindings)
	return x.found
}

// MaxFindings is the number of findings that are told about one profile.
const MaxFindings = 1000

// atMost keeps the n worst findings, and adds one that says how many more there
// are and is as bad as the worst of them.
func (x *check) atMost(n int) {
	if len(x.found) <= n && x.more == 0 {
		return
	}
	badness := func(f Finding) int {
		if f.Suppressed {
			return 0
		}
		return int(f.Severity)
	}
	order := slices.Clone(x.found)
	slices.SortStableFunc(order, func(a, b Finding) int { return cmp.Compare(badness(b), badness(a)) })
	worst := Note
	more := x.more
	if more > 0 {
		worst = Error // what is not even looked at keeps the profile from being used
	}
	if len(order) > n {
		more += len(order) - n
		worst = max(worst, Severity(badness(order[n])))
		order = order[:n]
		slices.SortStableFunc(order, byPlace)
	}
	x.found = order
	x.add(ruleOf("W055"), plan.Origin{File: x.src.Name, Line: 1, Column: 1}, "", fmt.Sprintf("and %d more findings", more), "").Severity = worst
}

func byPlace(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Message, b.Message))
}

// A check is the work on one profile.
type check struct {
	o     Options
	src   Source
	text  string
	lines []string // of text, without line ends; made when first needed

	home, workspace string // "" when not known

	project bool   // the file is a project layer
	base    string // of the profile of this name
	widened []profile.Change
	trusted bool
	stack   *profile.Stack // nil when it could not be read
	refused []*plan.Error  // what wall refuses to run

	parsed  bool
	spotted map[string][]entry // see spots
	hiders  map[string]int     // what hiddenBy found, an index into hides
	m       model
	rule    *Rule // that is being asked
	found   []Finding
	more    int // problems that are only counted
}

func (x *check) run() {
	if x.src.Err != nil {
		hint := ""
		if errors.Is(x.src.Err, ErrLink) {
			hint = "put the file itself there"
		}
		x.problem("W006", plan.Origin{File: x.src.Name, Line: 1, Column: 1}, "cannot read the profile: "+reasonOf(x.src.Err), hint)
		return
	}
	if x.project && x.o.Host.FS != nil {
		// As when it is used: a link would let a workspace show parts of other files.
		if st, err := fs.Lstat(x.o.Host.FS, fsName(x.src.Path)); err == nil && st.Mode()&fs.ModeSymlink != 0 {
			x.problem("W006", plan.Origin{File: x.src.Name, Line: 1, Column: 1}, "cannot read the project layer: it is a symbolic link", "put the file itself there")
			return
		}
	}
	f, err := profile.Parse(x.src.Name, x.src.Data)
	switch {
	case err != nil && x.src.Target != "":
		x.linkedProblem()
		return
	case err != nil:
		x.parseProblems(err)
		return
	}
	x.parsed = true
	x.m = x.model(f)
	if key, n := x.longest(); n > maxElements {
		x.problem("W054", plan.Origin{File: x.src.Name, Line: 1, Column: 1}, fmt.Sprintf("%s has %d elements; at most %d are compared", key, n, maxElements), "")
		return
	}
	for _, c := range checks {
		x.rule = ruleOf(c.code)
		c.check(x)
	}
	x.phases(f)
}

// phases looks at the network of each phase, which lies over that of the profile.
func (x *check) phases(f *profile.File) {
	file := x.m
	for _, it := range f.Phases.Items {
		m := model{top: file.top + 1}
		for _, e := range entriesOf(it.V.File, m.top) {
			if strings.HasPrefix(e.key, "network.") {
				m.own = append(m.own, e)
			}
		}
		if len(m.own) == 0 {
			continue
		}
		m.entries = append(slices.Clip(file.entries), m.own...)
		x.m = m
		if key, n := x.longest(); n > maxElements {
			x.problem("W054", it.Origin, fmt.Sprintf("%s has %d elements; at most %d are compared", key, n, maxElements), "")
			continue
		}
		x.refused = nil
		if x.stack != nil {
			x.refusals(x.stack.PhaseErr(it.V))
		}
		for _, c := range phaseChecks {
			x.rule = ruleOf(c.code)
			c.check(x)
		}
	}
	x.m = file
}

// at reports what the current rule found at an origin. text is what offends.
func (x *check) at(o plan.Origin, text, message string) *Finding {
	return x.add(x.rule, o, text, message, "")
}

// on reports what the current rule found at an entry of the file.
func (x *check) on(e entry, message string) *Finding {
	return x.at(e.origin, e.text(), message)
}

// problem reports something that keeps the profile from being used.
func (x *check) problem(code string, o plan.Origin, message, hint string) {
	x.add(ruleOf(code), o, "", message, hint)
}

func (x *check) add(r *Rule, o plan.Origin, text, message, fix string) *Finding {
	if fix == "" {
		fix = r.Fix
	}
	f := Finding{
		Code: r.Code, Name: r.Name, Severity: r.Severity,
		File: x.src.Name, Line: max(o.Line, 1), Column: max(o.Column, 1),
		Text: clean(text), Message: clean(message), Why: r.Why, Fix: clean(fix),
	}
	x.locate(&f, o)
	x.found = append(x.found, f)
	return &x.found[len(x.found)-1]
}

// lineText gives a line, without its end.
func (x *check) lineText(n int) string {
	if x.lines == nil {
		x.lines = strings.Split(x.text, "\n")
	}
	if n < 1 || n > len(x.lines) {
		return ""
	}
	return strings.TrimSuffix(x.lines[n-1], "\r")
}

// locate fills in what may be shown of the line, and where the offending text
// ends. What may be shown is what package profile put into the origin: it knows
// which lines hold values of variables.
func (x *check) locate(f *Finding, o plan.Origin) {
	f.EndColumn = f.Column + 1
	line := x.lineText(o.Line)
	trimmed := strings.TrimSpace(line)
	if o.Text == "" || trimmed != o.Text && strings.HasSuffix(o.Text, " = ...") {
		return // it holds a value, or the rest of one
	}
	f.Source = clean(o.Text)
	if trimmed != o.Text { // cut, or the name of a variable alone
		return
	}
	f.exact = true
	f.lead = len([]rune(line)) - len([]rune(strings.TrimLeft(line, " \t\r\n\v\f\u0085\u00a0")))
	r := []rune(line)
	if f.Column <= len(r) {
		f.EndColumn = f.Column + max(span(string(r[f.Column-1:])), 1)
		if f.Text == "" {
			f.Text = clean(string(r[f.Column-1 : f.EndColumn-1]))
		}
	}
}

// span gives the length in characters of the token, or of the "key = token",
// that a text starts with. It stays on the line.
func span(s string) int {
	n := token(s)
	if n == 0 || s[0] == '"' || s[0] == '\'' || s[0] == '[' || s[0] == '{' {
		return runes(s[:n])
	}
	rest := strings.TrimLeft(s[n:], " \t")
	if !strings.HasPrefix(rest, "=") {
		return runes(s[:n])
	}
	rest = strings.TrimLeft(rest[1:], " \t")
	at := len(s) - len(rest)
	if k := token(rest); k > 0 {
		return runes(s[:at+k])
	}
	return runes(s[:n])
}

func runes(s string) int { return len([]rune(s)) }

// token gives the length in bytes of the TOML token that s starts with: a
// string, a bracketed value as far as it is on the line, or a bare word.
func token(s string) int {
	depth := 0
	for i := 0; i < len(s); {
		switch c := s[i]; c {
		case '"', '\'':
			j := i + 1
			for j < len(s) && s[j] != c {
				if c == '"' && s[j] == '\\' {
					j++
				}
				j++
			}
			i = min(j+1, len(s))
			if depth == 0 {
				return i
			}
			continue
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth <= 0 {
				if depth < 0 {
					return i
				}
				return i + 1
			}
		case ' ', '\t', ',', '#', '=':
			if depth == 0 {
				return i
			}
			if c == '#' {
				return len(strings.TrimRight(s[:i], " \t"))
			}
		}
		i++
	}
	return len(s)
}

// clean is what is shown of foreign text: see [plan.Printable]; what is too long
// to read is cut.
func clean(s string) string {
	const most = 400
	if len(s) > most {
		cut := most
		for cut > 0 && s[cut]&0xc0 == 0x80 {
			cut--
		}
		s = s[:cut] + "..."
	}
	return plan.Printable(s)
}
