package lint

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

var update = flag.Bool("update", false, "rewrite the expected findings in testdata/lint")

// dir holds one archive for each rule, and some for what is not a rule.
const dir = "../../testdata/lint"

// bounds are the rules about very large profiles, see TestBounds.
var bounds = []string{"W054", "W055"}

// example makes a whole profile of the lines of a rule.
func example(lines string) string {
	if strings.HasPrefix(lines, "version") {
		return lines + "\n"
	}
	return "version = 1\nname = \"example\"\ndescription = \"An example\"\n" + lines + "\n"
}

func source(r Rule, name, text string) Source {
	s := Source{Name: name, Path: "/home/alice/profiles/" + name, Data: []byte(text)}
	if r.Project {
		s.Name = strings.TrimSuffix(name, ".toml") + "/.wall/agent.toml"
		s.Path = "/src/" + s.Name
	}
	return s
}

func options(t testing.TB, target string) Options {
	t.Helper()
	o := Options{Host: profile.Host{AccountHome: "/home/alice", Cwd: "/src", FS: fstest.MapFS{"src": {Mode: fs.ModeDir | 0o755}}}}
	if target != "" {
		var err error
		if o.Target, err = ParseTarget(target); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func codes(fs []Finding) []string {
	var out []string
	for _, f := range fs {
		if !f.Suppressed {
			out = append(out, f.Code)
		}
	}
	return out
}

func TestRulesTable(t *testing.T) {
	if len(table) < 25 {
		t.Errorf("%d rules, want at least 25", len(table))
	}
	name := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	code := regexp.MustCompile(`^W0\d\d$`)
	seen := map[string]bool{}
	before := ""
	for _, r := range Rules() {
		if !code.MatchString(r.Code) || r.Code <= before || !name.MatchString(r.Name) || seen[r.Name] {
			t.Errorf("%s %s: the codes are not in order, or a name is odd or twice there", r.Code, r.Name)
		}
		before, seen[r.Name] = r.Code, true
		if r.Severity.String() == "invalid" || !strings.HasSuffix(r.Doc, ".") || r.Why == "" || r.Fix == "" || strings.HasSuffix(r.Why, ".") || strings.HasSuffix(r.Fix, ".") {
			t.Errorf("%s: severity, doc, why or fix are missing or not in the usual form", r.Code)
		}
		if ruleOf(r.Code) == nil {
			t.Errorf("%s is not found", r.Code)
		}
		if (r.Bad == "") != (r.Code == "W006" || slices.Contains(bounds, r.Code)) || (r.Bad == "") != (r.Good == "") {
			t.Errorf("%s: an example is missing", r.Code)
		}
	}
	before = ""
	for _, c := range checks {
		if ruleOf(c.code) == nil || c.code <= before {
			t.Errorf("the check of %s has no rule or is not in order", c.code)
		}
		before = c.code
	}
	for _, bad := range []string{"", "W", "W000", "W0010", "w001", "W999"} {
		if ruleOf(bad) != nil {
			t.Errorf("there is a rule called %q", bad)
		}
	}
	Rules()[0].Code = "changed"
	if table[0].Code != "W001" {
		t.Error("Rules gives the table itself away")
	}
}

func TestExamples(t *testing.T) {
	for _, r := range table {
		if r.Bad == "" {
			continue
		}
		c := New(options(t, r.For))
		if got := codes(c.Check(source(r, "bad.toml", example(r.Bad)))); !slices.Contains(got, r.Code) {
			t.Errorf("%s %s: the bad example has only %q", r.Code, r.Name, got)
		}
		if got := codes(c.Check(source(r, "good.toml", example(r.Good)))); slices.Contains(got, r.Code) {
			t.Errorf("%s %s: the good example is reported", r.Code, r.Name)
		}
		for _, f := range c.Check(source(r, "good.toml", example(r.Good))) {
			if f.Severity > Note && !f.Suppressed {
				t.Errorf("%s %s: the good example has %s: %s", r.Code, r.Name, f.Code, f.Message)
			}
		}
	}
}

// TestGolden compares every finding of testdata/lint with what is expected. In
// the comment of an archive, "for: FACTS" gives a target. Files with absolute
// names are on the host; all others are checked, in order, and one with
// "unreadable: CAUSE" could not be read.
func TestGolden(t *testing.T) {
	if *update {
		writeExamples(t)
	}
	files, err := filepath.Glob(dir + "/*.txtar")
	if err != nil || len(files) < len(table)-len(bounds) {
		t.Fatalf("%d archives, want one for each of %d rules: %v", len(files), len(table)-len(bounds), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a := readArchive(t, file)
			o := options(t, a.comment("for"))
			tree := fstest.MapFS{"src": {Mode: fs.ModeDir | 0o755}}
			o.Host.FS = tree
			for _, s := range a.sections {
				if path.IsAbs(s.name) {
					tree[s.name[1:]] = &fstest.MapFile{Data: s.data, Mode: 0o644}
				}
			}
			c := New(o)
			rep := Report{FailOn: Error}
			want := -1
			for i, s := range a.sections {
				switch {
				case s.name == "want":
					want = i
				case path.IsAbs(s.name):
				default:
					rep.Files = append(rep.Files, s.name)
					abs := path.Join("/src", s.name)
					if !strings.Contains(s.name, "/") {
						abs = "/home/alice/profiles/" + s.name
					}
					src := Source{Name: s.name, Path: abs, Data: s.data}
					if why, ok := strings.CutPrefix(string(s.data), "unreadable: "); ok {
						src.Data, src.Err = nil, errors.New(strings.TrimSpace(why))
					}
					rep.Findings = append(rep.Findings, c.Check(src)...)
				}
			}
			var got bytes.Buffer
			if err := rep.Text(&got, false); err != nil {
				t.Fatal(err)
			}
			for _, f := range rep.Findings {
				if f.Suppressed {
					fmt.Fprintf(&got, "suppressed: %s:%d: %s: %s\n", f.File, f.Line, f.Code, f.Reason)
				}
			}
			if *update {
				if want < 0 {
					a.sections, want = append(a.sections, section{name: "want"}), len(a.sections)
				}
				a.sections[want].data = got.Bytes()
				a.write(t, file)
				return
			}
			if want < 0 || got.String() != string(a.sections[want].data) {
				t.Errorf("got:\n%s", got.String())
			}
			code := filepath.Base(file)[:4]
			if r := ruleOf(code); r != nil {
				if !slices.Contains(codes(rep.Findings), code) {
					t.Errorf("nothing in it triggers %s", code)
				}
				if r.Bad != "" && (string(a.sections[0].data) != example(r.Bad) || string(a.sections[1].data) != example(r.Good)) {
					t.Errorf("the first two files are not the examples of the rule; -update writes them")
				}
			}
		})
	}
}

// writeExamples puts the examples of the table into the archives, as their first
// two files.
func writeExamples(t *testing.T) {
	for _, r := range table {
		if r.Bad == "" {
			continue
		}
		file := filepath.Join(dir, r.Code+"-"+r.Name+".txtar")
		a := &archive{head: []byte(r.Doc + "\n")}
		if r.For != "" {
			a.head = append(a.head, "for: "+r.For+"\n"...)
		}
		if _, err := os.Stat(file); err == nil {
			a = readArchive(t, file)
		}
		for i, text := range []string{example(r.Bad), example(r.Good)} {
			if len(a.sections) <= i || a.sections[i].name == "want" {
				a.sections = slices.Insert(a.sections, i, section{})
			}
			a.sections[i] = section{name: source(r, []string{"bad.toml", "good.toml"}[i], "").Name, data: []byte(text)}
		}
		a.write(t, file)
	}
}

// A txtar archive, see golang.org/x/tools/txtar.
type archive struct {
	head     []byte
	sections []section
}

type section struct {
	name string
	data []byte
}

func readArchive(t *testing.T, file string) *archive {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	a := &archive{}
	for line := range bytes.Lines(data) {
		s := strings.TrimSuffix(string(line), "\n")
		if name, ok := strings.CutPrefix(s, "-- "); ok && strings.HasSuffix(name, " --") {
			a.sections = append(a.sections, section{name: strings.TrimSuffix(name, " --")})
		} else if n := len(a.sections); n > 0 {
			a.sections[n-1].data = append(a.sections[n-1].data, line...)
		} else {
			a.head = append(a.head, line...)
		}
	}
	return a
}

// comment gives the value of a line "key: value" of the comment.
func (a *archive) comment(key string) string {
	for line := range strings.Lines(string(a.head)) {
		if v, ok := strings.CutPrefix(line, key+": "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (a *archive) write(t *testing.T, file string) {
	t.Helper()
	var b bytes.Buffer
	b.Write(a.head)
	for _, s := range a.sections {
		fmt.Fprintf(&b, "-- %s --\n%s", s.name, s.data)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBuiltins: every built-in profile passes with --fail-on warning.
func TestBuiltins(t *testing.T) {
	c := New(options(t, ""))
	for _, name := range profile.Builtins() {
		data, err := profile.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range c.Check(Source{Name: "built-in:" + name, Data: data}) {
			if !f.Suppressed && f.Severity >= Warning {
				t.Errorf("%s:%d: %s %s: %s", name, f.Line, f.Code, f.Name, f.Message)
			}
		}
	}
}

// TestManagedNames compares the list with what envscrub refuses to pass.
func TestManagedNames(t *testing.T) {
	for _, name := range append(slices.Clone(managedNames), "WALL_X", "EDITOR", "DATABASE_URL", "CARGO_TARGET_DIR") {
		in := envscrub.Input{Home: "/h", TmpDir: "/t", Ambient: []string{name + "=ambient"}}
		r, err := envscrub.Build(in, envscrub.Policy{Base: envscrub.BaseGate, Mode: envscrub.ModeStrict, Pass: []envscrub.Name{{Name: name}}})
		if err != nil {
			t.Fatal(err)
		}
		passed := slices.ContainsFunc(r.Env, func(v plan.EnvVar) bool { return v.Name == name && v.Reason == "pass" })
		managed := slices.Contains(managedNames, name) || strings.HasPrefix(name, "WALL_")
		if passed == managed {
			t.Errorf("%s: passed %v, managed %v", name, passed, managed)
		}
	}
}
