package profile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// Every way to write a table in TOML gives the same source.
func TestSourceSpellings(t *testing.T) {
	want := Var{Name: "A", Source: &plan.ValueSource{Kind: plan.SourceSecretService, Name: "service=db&user=me"}}
	for _, text := range []string{
		"[environment]\nset = { A = { secret-service = { user = \"me\", service = \"db\" } } }\n",
		"[environment.set]\nA = { secret-service = { service = \"db\", user = \"me\" } }\n",
		"[environment.set.A]\nsecret-service = { service = \"db\", user = \"me\" }\n",
		"[environment.set.A.secret-service]\nservice = \"db\"\nuser = \"me\"\n",
		"environment.set.A.secret-service.service = \"db\"\nenvironment.set.A.secret-service.user = \"me\"\n",
	} {
		f, err := Parse("p.toml", []byte("version = 1\n"+text))
		if err != nil {
			t.Errorf("%q: %s", text, plan.Explain(err))
			continue
		}
		if got := f.EnvSet.Items; len(got) != 1 || !reflect.DeepEqual(got[0].V, want) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// What toml writes is read as the same source.
func TestSourceText(t *testing.T) {
	for _, s := range []plan.ValueSource{
		{Kind: plan.SourceFile, Name: "~/a \"b\"\\\n\u00e9"},
		{Kind: plan.SourceEnv, Name: "a.b"},
		{Kind: plan.SourceCommand, Argv: []string{"pass", "", "a \"b\"", "\x01\t"}},
		{Kind: plan.SourceKeyring, Name: "a:b c"},
		{Kind: plan.SourceSecretService, Name: plan.EncodeAttributes([]plan.Attribute{{Name: "x y", Value: ""}, {Name: "a.b", Value: "&=%\""}})},
	} {
		for _, name := range []string{"A", "odd.name", "é\"x"} {
			text := Var{Name: name, Source: &s}.toml()
			f, err := Parse("p.toml", []byte("version = 1\n[environment.set]\n"+text+"\n"))
			if err != nil {
				t.Errorf("%s: %s", text, plan.Explain(err))
			} else if got := f.EnvSet.Items[0].V; got.Name != name || !reflect.DeepEqual(*got.Source, s) {
				t.Errorf("%s: %+v", text, got)
			}
		}
	}
}

func TestSourceKeys(t *testing.T) {
	for _, k := range SourceKeys() {
		if k.Doc == "" || k.Since == "" {
			t.Errorf("%s is not described", k.Name)
		}
	}
	SourceKeys()[0].Name = "changed"
	if SourceKeys()[0].Name != "file" {
		t.Error("the table can be changed from outside")
	}
}

// A change of a source is told without looking at what it names, and a value
// that becomes a source of the same text is a change.
func TestSourceCompare(t *testing.T) {
	stack := func(set string) *Stack {
		t.Helper()
		st, err := LoadFile("p.toml", []byte("version = 1\n[environment.set]\n"+set+"\n"), Host{})
		if err != nil {
			t.Fatal(plan.Explain(err))
		}
		return st
	}
	for _, x := range []struct{ a, b, want string }{
		{`A = { file = "x" }`, `A = { file = "x" }`, ""},
		{`A = { secret-service = { a = "1", b = "2" } }`, `A = { secret-service = { b = "2", a = "1" } }`, ""},
		{`A = "x"`, `A = { env = "x" }`, "A yes->, A ->{ env = \"x\" }"},
		{`A = { file = "x" }`, `A = { env = "x" }`, "A { file = \"x\" }->, A ->{ env = \"x\" }"},
		{`A = "{ env = \"x\" }"`, `A = { env = "x" }`, "A yes->, A ->{ env = \"x\" }"},
		{`A = { command = ["a b"] }`, `A = { command = ["a", "b"] }`, "A { command = [\"a b\"] }->, A ->{ command = [\"a\", \"b\"] }"},
	} {
		var got []string
		for _, c := range Compare(stack(x.a), stack(x.b)) {
			got = append(got, fmt.Sprintf("%s %s->%s", c.Item, c.From, c.To))
			if c.Kind == Narrower {
				t.Errorf("%s to %s: %v", x.a, x.b, c)
			}
		}
		slices.Sort(got)
		slices.Reverse(got)
		if s := strings.Join(got, ", "); s != x.want {
			t.Errorf("%s to %s: %s", x.a, x.b, s)
		}
	}
	if e := stack(`A = { env = "x" }` + "\nB = \"s3cret\"").Effective(); !slices.Equal(e.EnvSet, []string{`A = { env = "x" }`, "B"}) {
		t.Errorf("%q", e.EnvSet)
	}
}

// The store is read only where a profile wants it, and once.
func TestInjectedIsReadOnDemand(t *testing.T) {
	reads := 0
	h := goldenHost{}.host(parseTree(t, ""))
	h.Injected = func(file string) ([]InjectedVar, error) {
		reads++
		if want, err := InjectedFile(h, h.Cwd); file != want || err != nil {
			t.Errorf("read %s, want %s, %v", file, want, err)
		}
		return nil, nil
	}
	for profile, want := range map[string]int{"gate": 0, "base": 0, "contract": 0, "offline-build": 0, "agent": 1, "shell": 1, "terminal": 1, "agent-claude": 1} {
		reads = 0
		o := Options{Profile: profile, Command: []string{"true"}, Flags: []Flag{{Name: "net", Value: "none"}}}
		if _, err := Resolve(h, o); err != nil {
			t.Fatalf("%s: %s", profile, plan.Explain(err))
		}
		if reads != want {
			t.Errorf("%s reads the store %d times", profile, reads)
		}
	}
	h.Injected = func(string) ([]InjectedVar, error) { return nil, errors.New("broken") }
	if _, err := Resolve(h, Options{Profile: "agent", Command: []string{"true"}}); err == nil || plan.ExitStatus(err) != 125 {
		t.Errorf("a broken store: %v", err)
	}
}

// TestSourceCompareDirs: the same relative words in two directories are two files, or
// two programs that run outside of the box.
func TestSourceCompareDirs(t *testing.T) {
	host := Host{FS: parseTree(t, "d /srv/a\nd /srv/b"), Cwd: "/srv", AccountHome: "/home/u"}
	side := func(name, value string) *Stack {
		t.Helper()
		st, err := LoadFile(name, []byte("version = 1\n[environment]\nset = { V = "+value+" }\n"), host)
		if err != nil {
			t.Fatal(plan.Explain(err))
		}
		return st
	}
	for value, differs := range map[string]bool{
		`{ file = "./tok" }`: true, `{ file = "tok" }`: true, `{ file = "../tok" }`: true,
		`{ file = "/srv/tok" }`: false, `{ file = "~/tok" }`: false,
		`{ command = ["./get"] }`: true, `{ command = ["sub/get", "x"] }`: true,
		`{ command = ["/bin/get"] }`: false, `{ command = ["get", "./x"] }`: false,
		`{ env = "A" }`: false, `"./plain"`: false,
	} {
		if got := Compare(side("/srv/a/p.toml", value), side("/srv/b/p.toml", value)); (len(got) > 0) != differs {
			t.Errorf("%s: %v", value, got)
		}
		if got := Compare(side("/srv/a/p.toml", value), side("/srv/a/p.toml", value)); len(got) > 0 {
			t.Errorf("%s in one place: %v", value, got)
		}
	}
}

// A random table of variables, in two layers with stored variables and flags
// above: each variable has the value or the source of the highest that has it,
// every file of a source is hidden, and no value is in the printed plan.
func TestSourcesProperty(t *testing.T) {
	resolved := 0
	for seed := range uint64(400) {
		if checkRandomSources(t, seed) {
			resolved++
		}
	}
	if resolved < 150 {
		t.Errorf("only %d of the random tables resolve", resolved)
	}
}

func FuzzSources(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkRandomSources(t, seed) })
}

func checkRandomSources(t *testing.T, seed uint64) bool {
	r := rand.New(rand.NewPCG(seed, 11))
	fsys, _ := propertyTree(t)
	names := []string{"A", "B", "C", "HOME", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY"}
	files := []string{"/srv/a/f", "/srv/a/b/f", "/home/u/a/f", "/home/u/d/e/f", "/var/lib/a/f", "/home/u/proj/a/f", "/srv/none"}
	pick := func(s []string) string { return s[r.IntN(len(s))] }
	want := map[string]string{} // "value" or the source
	hidden := map[string]string{}
	table := func(head string) string {
		var b strings.Builder
		b.WriteString(head + "[environment.set]\n")
		for _, n := range names {
			switch r.IntN(6) {
			case 0:
				fmt.Fprintf(&b, "%s = \"s3cret\"\n", n)
				want[n], hidden[n] = "value", ""
			case 1:
				p := pick(files)
				fmt.Fprintf(&b, "%s = { file = %q }\n", n, p)
				want[n], hidden[n] = "file "+p, p
			case 2:
				fmt.Fprintf(&b, "%s = { env = \"TERM\" }\n", n)
				want[n], hidden[n] = "env TERM", ""
			case 3:
				fmt.Fprintf(&b, "%s = { keyring = \"k\" }\n", n)
				want[n], hidden[n] = "keyring k", ""
			}
		}
		return b.String()
	}
	view, home := pick([]string{"host", "system"}), pick([]string{"read-only", "scratch"})
	putFile(fsys, "/etc/wall/p.toml", table(fmt.Sprintf("version = 1\n[filesystem]\nview = %q\nhome = %q\n[environment]\ninject = true\n", view, home)))
	putFile(fsys, "/home/u/.config/wall/p.toml", table("version = 1\n"))
	h := goldenHost{}.host(fsys)
	stored := map[string]bool{}
	h.Injected = func(string) ([]InjectedVar, error) {
		var out []InjectedVar
		for n := range stored {
			out = append(out, InjectedVar{n, "s3cret"})
		}
		return out, nil
	}
	o := Options{Profile: "p", Command: []string{"/usr/bin/sh"}}
	for _, n := range names {
		switch r.IntN(12) {
		case 0:
			stored[n] = true
			want[n], hidden[n] = "value", ""
		case 1:
			o.Flags = append(o.Flags, Flag{Name: "env", Value: n + "=s3cret"})
			want[n], hidden[n] = "value", ""
		}
	}
	p, err := Resolve(h, o)
	refused := false
	for _, file := range hidden {
		refused = refused || file == "/srv/none" || within(file, "/home/u/proj")
	}
	if err != nil {
		text := plan.Explain(err)
		if !refused || strings.Contains(text, "wall bug") || strings.Contains(text, "s3cret") {
			t.Fatalf("seed %d: %s", seed, text)
		}
		return false
	}
	if refused {
		t.Fatalf("seed %d: a file that is missing or in the workspace is accepted: %v", seed, hidden)
	}
	for _, v := range p.Env {
		w, ok := want[v.Name]
		if v.Name == "HOME" {
			ok = false // wall's own, or --env
			if !v.Source.IsZero() {
				t.Fatalf("seed %d: HOME comes from %s", seed, v.Source)
			}
		}
		if !ok {
			continue
		}
		got := "value"
		if !v.Source.IsZero() {
			got = v.Source.String()
			if v.Value != "" {
				t.Fatalf("seed %d: %s has a value as well", seed, v.Name)
			}
		}
		if got != w {
			t.Fatalf("seed %d: %s comes from %s, want %s", seed, v.Name, got, w)
		}
		delete(want, v.Name)
	}
	delete(want, "HOME")
	if len(want) > 0 {
		t.Fatalf("seed %d: missing %v", seed, want)
	}
	for n, file := range hidden {
		if file != "" && effective(p, file) != plan.AccessNone {
			t.Fatalf("seed %d: %s, of which the value of %s is, is visible", seed, file, n)
		}
	}
	if s := printed(t, p); strings.Contains(s, "s3cret") {
		t.Fatalf("seed %d: a value is printed", seed)
	}
	return true
}

// The settings of the caller's environment are a layer of their own.
func TestSettingsLayer(t *testing.T) {
	h := goldenHost{Environ: []string{"PATH=/usr/bin", "SANDBOX_SHELL_SCRUB=strict", "SANDBOX_TERMINAL_SCRUB=bad", "SANDBOX_ENV_DENY=A,B"}}.host(parseTree(t, ""))
	st, err := Load(h, Options{Profile: "shell"})
	if err != nil {
		t.Fatal(err)
	}
	v, _ := st.Value("environment.scrub")
	layers := st.Layers()
	if l := layers[v.Layer]; l.Kind != LayerSettings || v.Text != `"strict"` || v.Origin.Text != envscrub.ShellScrubSetting || l.Digest != "" || l.Path != "" || st.Name() != "shell" {
		t.Errorf("%+v from %+v, profile %s", v, l, st.Name())
	}
	if v, _ := st.Value("environment.deny"); len(v.Items) != 2 || v.Items[0].Origin.Text != envscrub.EnvDenySetting {
		t.Errorf("%+v", v)
	}
	if n := st.Notices(); len(n) != 0 {
		t.Errorf("notices of the other surface: %v", n)
	}
	for _, o := range []Options{{Profile: "shell", NoSettings: true}, {Profile: "gate"}} {
		st, err := Load(h, o)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(st.Layers(), func(l Layer) bool { return l.Kind == LayerSettings }) {
			t.Errorf("%+v: there is a layer of settings", o)
		}
	}
	data, err := Builtin("shell")
	if err != nil {
		t.Fatal(err)
	}
	a, err := LoadFile("built-in:shell", data, h)
	if err != nil {
		t.Fatal(err)
	}
	b, err := LoadFile("built-in:shell", data, Host{})
	if err != nil {
		t.Fatal(err)
	}
	if c := Compare(a, b); len(c) != 0 {
		t.Errorf("a check depends on the caller's environment: %v", c)
	}
}
