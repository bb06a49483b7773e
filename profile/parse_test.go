package profile

import (
	"errors"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/wallsandbox/wall/plan"
)

func TestParse(t *testing.T) {
	f, err := Parse("p.toml", []byte(`version = 1
name = "n"
enforce = "fs"
require = []
filesystem.view = "host"
[[filesystem.grant]]
path = "~/a"
access = "read"
why = "w"
[environment]
allow = ["LC_*"]
set.A = "1"
set.B = "2"
`))
	if err != nil {
		t.Fatal(plan.Explain(err))
	}
	if !f.Require.Set || len(f.Require.Items) != 0 || f.Hide.Set || !f.EnvAllow.Set || f.View.V != "host" {
		t.Errorf("%+v", f)
	}
	g := f.Grant.Items[0]
	if g.V != (Grant{"~/a", plan.AccessRead, "w", false}) || g.Origin.Line != 6 {
		t.Errorf("grant %+v", g)
	}
	if o := f.Enforce.Origin; o != (plan.Origin{File: "p.toml", Line: 3, Column: 1, Text: `enforce = "fs"`}) {
		t.Errorf("origin %+v", o)
	}
	if len(f.EnvSet.Items) != 2 || f.EnvSet.Items[1].V != (Var{Name: "B", Value: "2"}) {
		t.Errorf("set %+v", f.EnvSet)
	}
}

// Each key is absent, empty and explicit in turn, and wrong in two ways.
func TestKeys(t *testing.T) {
	for _, test := range []struct {
		table, key, explicit string
		empty                string // "" when an empty value is an error
		wrong                string
	}{
		{"", "name", `"x"`, `""`, `1`},
		{"", "description", `"x"`, `""`, `[]`},
		{"", "extends", `"gate"`, ``, `true`},
		{"", "enforce", `"off"`, ``, `"on"`},
		{"", "if-unavailable", `"degrade"`, ``, `"skip"`},
		{"", "require", `["landlock"]`, `[]`, `["landlok"]`},
		{"filesystem", "view", `"system"`, ``, `"all"`},
		{"filesystem", "home", `"hidden"`, ``, `"none"`},
		{"filesystem", "workspace", `"read-only"`, ``, `"ro"`},
		{"filesystem", "tmp", `"memory"`, ``, `"disk"`},
		{"filesystem", "grant", `[{ path = "/x", access = "write" }]`, `[]`, `{}`},
		{"filesystem", "hide", `["~/x"]`, `[]`, `"~/x"`},
		{"filesystem", "protect", `["x"]`, `[]`, `[1]`},
		{"filesystem", "devices", `["kvm"]`, `[]`, `[[]]`},
		{"network", "mode", `"host"`, ``, `"open"`},
		{"environment", "base", `"gate"`, ``, `"all"`},
		{"environment", "scrub", `"off"`, ``, `"none"`},
		{"environment", "allow", `["A*"]`, `[]`, `["A=1"]`},
		{"environment", "deny", `["A"]`, `[]`, `""`},
		{"environment", "set", `{ A = "" }`, `{}`, `{ A = 1 }`},
		{"environment", "pass", `["A"]`, `[]`, `["A*"]`},
		{"environment", "auth", `"A"`, ``, `"A B"`},
		{"process", "tty", `"none"`, ``, `"raw"`},
		{"process", "seccomp", `"strict"`, ``, `"off"`},
		{"process", "nested-sandboxes", `true`, ``, `"yes"`},
		{"limits", "core", `0`, ``, `1`},
		{"limits", "open-files", `64`, ``, `3`},
		{"limits", "file-size", `"1GiB"`, ``, `"1 gig"`},
	} {
		parse := func(v string) error {
			text := "version = 1\n"
			if test.table != "" {
				text += "[" + test.table + "]\n"
			}
			if v != "" {
				text += test.key + " = " + v + "\n"
			}
			_, err := Parse("p.toml", []byte(text))
			return err
		}
		if err := parse(""); err != nil {
			t.Errorf("%s absent: %v", test.key, err)
		}
		if err := parse(test.explicit); err != nil {
			t.Errorf("%s = %s: %v", test.key, test.explicit, err)
		}
		if test.empty != "" {
			if err := parse(test.empty); err != nil {
				t.Errorf("%s = %s: %v", test.key, test.empty, err)
			}
		} else if err := parse(`""`); err == nil {
			t.Errorf("%s accepts an empty string", test.key)
		}
		for _, w := range []string{test.wrong, "1.5", "1979-05-27"} {
			var e *plan.Error
			if err := parse(w); !errors.As(err, &e) || e.Origin.Line == 0 || e.Origin.Column == 0 {
				t.Errorf("%s = %s: %v", test.key, w, err)
			}
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "does not say its version"},
		{"version = 1\r\nname = \"x\"\r\nenforce = \"x\"\r\n", "p.toml:3:11: enforce = \"x\""},
		{"\xef\xbb\xbfversion = 1\n", "byte order mark"},
		{"version = 1\nname = \"\x00\"", "NUL"},
		{"version = 1\nname = \"\\u0000\"", "NUL"},
		{"version = 1\nname = \"\xff\"", "not valid UTF-8"},
		{"version = 1\n[a]\n[a]\n", "defined twice"},
		{"version = 1\nfilesystem = { view = \"host\" }\n[filesystem]\n", "defined twice"},
		{"version = 1\nfilesystem.view = \"host\"\n[filesystem]\nhome = \"scratch\"", "defined twice"},
		{"version = 1\n[filesystem]\ngrant = []\n[[filesystem.grant]]\n", "already defined"},
		{"version = 1\nversion = 1\n", "defined twice"},
		{"version = 0x2\n", "version 0x2 is not known"},
		{"version = \"1\"\n", "must be an integer"},
		{"version = 1\nx = " + strings.Repeat("[", 200) + strings.Repeat("]", 200), "nested more than"},
		{"version = 1\nview = \"host\"", "belongs into the table [filesystem]"},
		{"version = 1\n[filesystem]\nhide = [\"a\", \"a\"]", "is twice in"},
		{"version = 1\n[[gate.phase]]\nname = \"fetch\"", "phase \"fetch\" has no command"},
		{strings.Repeat("#", MaxFileSize+1), "larger than"},
		{"version = 1\nname = \"" + strings.Repeat("x", 1<<20-100) + "\"\nenforce = 1", "must be a string"},
		{"version = 1\n" + strings.Repeat("x", 1<<20-100), "not valid TOML"},
		{"version = 1\n[process]\nseccomp = \"f.json\"", `write a file as "./name.json"`},
	} {
		f, err := Parse("p.toml", []byte(test.text))
		if err == nil || f != nil {
			t.Errorf("%.60q is accepted", test.text)
			continue
		}
		if text := plan.Explain(err); !strings.Contains(text, test.want) || len(text) > 4096 {
			t.Errorf("%.60q: %.300q, want %q", test.text, text, test.want)
		}
	}
}

// No message and no origin quotes the value of a variable.
func TestParseHidesValues(t *testing.T) {
	for _, text := range []string{
		"set = { A = \"s3cret\", A = \"s3cret\" }",
		"set.A = \"s3cret\"\nset.A = \"s3cret\"",
		"[environment.set]\nA = \"s3cret\"\nA = \"s3cret\"",
		"[environment.set]\nA = [ \"s3cret\" ]\n[environment.set]\nB = 5",
		"set = { A = \"s3cret }\n",
		"[environment.set]\nA = 's3cret\n",
		"set = \"s3cret\"",
		"set = [ \"A=s3cret\" ]",
		"set = { A = { B = \"s3cret\" } }",
		"set = { \"A=s3cret\" = \"\" }",
	} {
		if !strings.HasPrefix(text, "[") {
			text = "[environment]\n" + text
		}
		_, err := Parse("p.toml", []byte("version = 1\n"+text))
		if err == nil {
			t.Errorf("%q is accepted", text)
		} else if strings.Contains(plan.Explain(err), "s3cret") {
			t.Errorf("%q: the message quotes the value:\n%s", text, plan.Explain(err))
		}
	}
	f, err := Parse("p.toml", []byte("version = 1\n[environment]\nset = { A = \"s3cret\" }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if o := f.EnvSet.Items[0].Origin; strings.Contains(o.Text, "s3cret") {
		t.Errorf("origin %v", o)
	}
}

// The problems of a file come in file order.
func TestParseOrder(t *testing.T) {
	_, err := Parse("p", []byte("version = 1\nzzz = 1\n[filesystem]\nview = 1\nview = 2\n[aaa]\n"))
	last := 0
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		l := e.(*plan.Error).Origin.Line
		if l < last {
			t.Errorf("line %d after %d", l, last)
		}
		last = l
	}
	if last != 6 {
		t.Errorf("the last problem is on line %d", last)
	}
}

func TestBuiltins(t *testing.T) {
	for _, n := range Builtins() {
		data, err := Builtin(n)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse("built-in:"+n, data)
		if err != nil {
			t.Fatalf("%s: %s", n, plan.Explain(err))
		}
		if f.Name.V != n || !f.Description.Set {
			t.Errorf("%s: name %q", n, f.Name.V)
		}
		for _, g := range f.Grant.Items {
			if g.V.Why == "" || !g.V.Optional {
				t.Errorf("%s: grant %s says no reason or is not optional", n, g.V.Path)
			}
		}
	}
}

// FuzzParse: no panic, errors are located, and what Parse accepts go-toml
// accepts as well (so duplicates and redefinitions are found as TOML says).
func FuzzParse(f *testing.F) {
	for _, n := range Builtins() {
		data, _ := Builtin(n)
		f.Add(string(data))
	}
	f.Add("version = 1\n[environment]\nset.a.b = 1\n[[filesystem.grant]]\npath='x'\n[filesystem.grant.y]\n")
	f.Add("version=1\n[environment.set]\nA={file='x'}\nB={command=['a','b']}\n[environment.set.C.secret-service]\na='b'\n[environment.set.D]\nenv='X=y'\n")
	f.Add("version=1\na.b=1\n[a]\nc=1\n[a.b]\n[[a.d]]\n[a.d.e]\n[[a.d]]\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, _ := readTOML("p", []byte(text))
		var m map[string]any
		if err := toml.Unmarshal([]byte(text), &m); err != nil && len(d.probs) == 0 && !strings.Contains(err.Error(), "time") && !strings.Contains(err.Error(), "date") &&
			!strings.Contains(err.Error(), "integer") && !strings.Contains(err.Error(), "float") && !strings.Contains(err.Error(), "strconv") {
			t.Errorf("go-toml says %v", err)
		}
		file, err := Parse("p", []byte(text))
		if (file == nil) == (err == nil) {
			t.Fatal("neither or both of file and error")
		}
		if err == nil {
			return
		}
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			if pe, ok := e.(*plan.Error); !ok || pe.Origin.Line == 0 || pe.Origin.File != "p" {
				t.Errorf("not located: %v", e)
			}
		}
		if plan.Explain(err) == "" {
			t.Error("no text")
		}
	})
}
