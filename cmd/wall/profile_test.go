package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/profile/lint"
)

// TestStarters checks that what init writes has no finding at all and can be
// run, whatever was seen in the workspace.
func TestStarters(t *testing.T) {
	var names []string
	for _, l := range languages {
		names = append(names, l.files[0])
	}
	h, err := host.Gather()
	if err != nil {
		t.Fatal(err)
	}
	h.Cwd = t.TempDir()
	h.Pwd = h.Cwd
	check := func(t *testing.T, name, text string, secrets []string) {
		f, err := profile.Parse(name, []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if len(f.Hide.Items) != len(secrets) {
			t.Errorf("hides %d names, want %q", len(f.Hide.Items), secrets)
		}
		file := filepath.Join(h.Cwd, profile.ProjectDir, name+".toml")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, x := range lint.New(lint.Options{Host: h}).Check(lint.Source{Name: file, Path: file, Data: []byte(text)}) {
			if x.Code != "W031" || name != "gate" { // the limits of a gate are for its owner to choose
				t.Errorf("%s: %s\n%s", x.Code, x.Message, text)
			}
		}
		o := profile.Options{Profile: file, Command: []string{"/bin/sh"}}
		if isBuiltin(name) {
			o.Profile = name
		}
		if _, err := profile.Resolve(h, o); err != nil {
			t.Errorf("%s\n%s", plan.Explain(err), text)
		}
	}
	for n := range 1 << len(names) {
		if n&(n-1) != 0 && n != 1<<len(names)-1 && n%7 != 0 {
			continue // each alone, all, none, and some mixtures
		}
		var seen []string
		for i, name := range names {
			if n&(1<<i) != 0 {
				seen = append(seen, name)
			}
		}
		found := detect(seen)
		if len(found) != len(seen) {
			t.Errorf("%q: found %d kinds", seen, len(found))
		}
		for _, name := range []string{"project", "agent", "gate"} {
			check(t, name, starter(name, found, nil), nil)
		}
	}
	secrets := secretNames([]string{"main.go", "server.key", "a b.pem", "Secrets", ".env", "~x.pem", "terraform.tfstate", "service-account-1.json", "*.pem"})
	if want := []string{"Secrets", "server.key", "service-account-1.json", "terraform.tfstate"}; !slices.Equal(secrets, want) {
		t.Errorf("secrets %q, want %q", secrets, want)
	}
	check(t, "project", starter("project", nil, secrets), secrets)
	check(t, "agent", starter("agent", nil, secrets), secrets)
}

// TestResolvedTextIsAProfile checks that show --resolved prints a profile that
// says the same as the one it resolved, but for the values of variables.
func TestResolvedTextIsAProfile(t *testing.T) {
	for _, name := range profile.Builtins() {
		data, err := profile.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		a, err := profile.LoadFile("built-in:"+name, data, profile.Host{})
		if err != nil {
			t.Fatal(err)
		}
		text := resolvedText(a)
		b, err := profile.LoadFile("resolved.toml", []byte(text), profile.Host{})
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
			continue
		}
		for _, c := range profile.Compare(a, b) {
			if c.Key != "environment.set" {
				t.Errorf("%s: %s", name, c)
			}
		}
	}
}

func stackOf(t *testing.T, text string) *profile.Stack {
	t.Helper()
	st, err := profile.LoadFile("x.toml", []byte("version = 1\n"+text), profile.Host{})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestDifference(t *testing.T) {
	for _, tt := range []struct {
		name, a, b string
		verdict    string
		lines      []string // without the places
	}{
		{"nothing", "", "", "unchanged", nil},
		{"format", "[filesystem]\nhide = [\"a\", \"b\"]\n", "# comment\nname = \"z\"\ndescription = \"d\"\nfilesystem.hide = [\n \"b\",\n './a' ]", "unchanged", nil},
		{"reasons", "[filesystem]\ngrant = [{ path = \"/a\", access = \"read\" }]", "[filesystem]\ngrant = [{ path = \"/a\", access = \"read\", why = \"x\" }]", "unchanged", nil},
		{"network", "", "[network]\nmode = \"host\"", "wider",
			[]string{"wider     network.mode: the whole network of the host can be reached; before, there is no network"}},
		{"home", "[filesystem]\nhome = \"read-only\"", "[filesystem]\nhome = \"hidden\"", "narrower",
			[]string{"narrower  filesystem.home: the home looks empty; before, the real home is readable"}},
		{"grants", "[filesystem]\ngrant = [{ path = \"/a\", access = \"read\" }, { path = \"/b\", access = \"read\" }]",
			"[filesystem]\ngrant = [{ path = \"/c\", access = \"read\" }, { path = \"/a\", access = \"write\" }]", "wider",
			[]string{"wider     filesystem.grant: /c is readable, was not granted", "wider     filesystem.grant: /a is writable, was readable",
				"narrower  filesystem.grant: /b is not granted, was readable"}},
		{"hide", "[filesystem]\nhide = [\"~/a\"]", "[filesystem]\nhide = [\"~/b\"]", "wider",
			[]string{"wider     filesystem.hide: ~/a is not hidden", "narrower  filesystem.hide: ~/b is hidden"}},
		{"hosts", "[network]\nmode = \"allow\"\nallow = [\"*.example.org\"]", "[network]\nmode = \"allow\"\nallow = [\"a.example.org\"]", "narrower",
			[]string{"narrower  network.allow: *.example.org cannot be reached"}},
		{"limit", "[limits]\nopen-files = 100", "", "wider", []string{"wider     limits.open-files: no limit; before, 100"}},
		{"base", "[environment]\nscrub = \"strict\"", "[environment]\nscrub = \"strict\"\nbase = \"shell\"", "changed",
			[]string{`changed   environment.base: "shell"; before, "session"`}},
		{"value", "[environment]\nset = { A = \"hunter2\" }", "[environment]\nset = { A = \"hunter3\" }", "wider",
			[]string{"wider     environment.set: the variable A has another fixed value"}},
		{"phases", "[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\n[[gate.phase]]\nname = \"b\"\ncommand = [\"y\"]",
			"[[gate.phase]]\nname = \"c\"\ncommand = [\"z\"]\n[[gate.phase]]\nname = \"b\"\ncommand = [\"y\"]\nnetwork.mode = \"host\"\nenvironment.set.T = \"hunter2\"", "changed",
			[]string{`changed   gate.phase: there is a phase c: 1 "c" ["z"]`,
				`changed   gate.phase: the phase b is 2 "b" ["y"], network.mode = "host", environment.set = { T = ... }; before, 2 "b" ["y"]`,
				`changed   gate.phase: there is no phase a; before, 1 "a" ["/bin/sh", "-c", "x"]`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDifference("a", "b", profile.Compare(stackOf(t, tt.a), stackOf(t, tt.b)))
			if d.Verdict != tt.verdict {
				t.Errorf("verdict %q, want %q", d.Verdict, tt.verdict)
			}
			text := d.text()
			if strings.Contains(text, "hunter") {
				t.Errorf("a value is printed:\n%s", text)
			}
			var lines []string
			for line := range strings.Lines(text) {
				if line[0] >= 'a' && !strings.HasPrefix(line, "unchanged") {
					lines = append(lines, strings.TrimSuffix(line, "\n"))
				}
			}
			if tt.lines != nil && !reflect.DeepEqual(lines, tt.lines) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(lines, "\n"), strings.Join(tt.lines, "\n"))
			}
			if _, err := json.Marshal(d); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWordsForEveryKey finds a key or value of the language that diff has no
// words for.
func TestWordsForEveryKey(t *testing.T) {
	own := []string{"filesystem.tmp", "filesystem.grant", "environment.base", "environment.caches.method", "process.seccomp"}
	for _, k := range settingKeys() {
		words, single := valueWords()[k.Name]
		items, list := itemWords()[k.Name]
		switch k.Type {
		case profile.TypeEnum, profile.TypeBool:
			if !single && !slices.Contains(own, k.Name) {
				t.Errorf("no words for %s", k.Name)
			}
			for _, v := range k.Values {
				if single && words[`"`+v+`"`] == "" {
					t.Errorf("no words for %s = %q", k.Name, v)
				}
			}
		case profile.TypeCount, profile.TypeSize, profile.TypeDuration, profile.TypeOutput, profile.TypeFilter, profile.TypeName, profile.TypeProxy:
		default:
			if !list && !slices.Contains(own, k.Name) {
				t.Errorf("no words for the elements of %s", k.Name)
			}
			if list && (strings.Count(items[0], "%s") != 1 || strings.Count(items[1], "%s") != 1) {
				t.Errorf("the words for the elements of %s do not have one place for the element", k.Name)
			}
		}
	}
}

// TestExplainSkipsEqualValues checks that a value which is said again does not
// count as replaced, and that one in between does.
func TestExplainSkipsEqualValues(t *testing.T) {
	at := func(file string) plan.Origin { return plan.Origin{File: file, Line: 1, Text: "x"} }
	key, _ := profile.LookupKey("filesystem.home")
	v := profile.Setting{Key: key, Text: `"scratch"`, Origin: at("d"), Replaced: []profile.Setting{
		{Text: `"scratch"`, Origin: at("c")}, {Text: `"hidden"`, Origin: at("b")}, {Text: `"scratch"`, Origin: at("a")}, {Text: `"scratch"`, Default: true},
	}}
	var b strings.Builder
	explainSetting(&b, v, false)
	want := "filesystem.home = \"scratch\"\n  at d:1: x\n  replaced \"hidden\"\n    at b:1: x\n  replaced \"scratch\"\n    at a:1: x\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
