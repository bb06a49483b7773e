package profile

import (
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

const phased = `version = 1
extends = "gate"
[environment]
set = { V = "1" }
[[gate.phase]]
name = "fetch"
command = ["go", "mod", "download"]
network.mode = "host"
limits = { open-files = 100 }
environment.set.TOKEN = "s3cret"
[[gate.phase]]
name = "test"
command = "go test ./... && echo done"
`

func TestPhases(t *testing.T) {
	m := parseTree(t, "")
	putFile(m, "/home/u/ci.toml", phased)
	h := goldenHost{}.host(m)
	st, err := Load(h, Options{Profile: "~/ci.toml"})
	if err != nil {
		t.Fatal(err)
	}
	phases := st.Phases()
	if len(phases) != 2 || phases[0].Name != "fetch" || !slices.Equal(phases[0].Command, []string{"go", "mod", "download"}) ||
		phases[0].Origin.Line != 5 || !slices.Equal(phases[1].Command, []string{"/bin/sh", "-c", "go test ./... && echo done"}) {
		t.Fatalf("%+v", phases)
	}
	mode := func(o Options) (net string, files string, name string) {
		t.Helper()
		o.Profile = "~/ci.toml"
		st, err := Load(h, o)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := st.Value("network.mode")
		f, _ := st.Value("limits.open-files")
		return n.Text, f.Text, st.Name()
	}
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, `"none"  ci`},
		{Options{Phase: &phases[0]}, `"host" 100 ci`},
		{Options{Phase: &phases[1]}, `"none"  ci`},
		{Options{Phase: &phases[0], Flags: []Flag{{Name: "net", Value: "none"}}}, `"none" 100 ci`},
	} {
		n, f, name := mode(c.o)
		if got := n + " " + f + " " + name; got != strings.Replace(c.want, " ci", " "+name, 1) || name == "fetch" {
			t.Errorf("phase %v: %s, want %s", c.o.Phase, got, c.want)
		}
	}
	// The digest is that of the texts: a phase does not change it.
	with, err := Load(h, Options{Profile: "~/ci.toml", Phase: &phases[0], Flags: []Flag{{Name: "net", Value: "none"}}})
	if err != nil {
		t.Fatal(err)
	}
	if with.Digest() != st.Digest() {
		t.Error("a phase and a flag change the digest of the profile")
	}
	putFile(m, "/home/u/ci.toml", phased+"# x\n")
	if again, err := Load(goldenHost{}.host(m), Options{Profile: "~/ci.toml"}); err != nil || again.Digest() == st.Digest() {
		t.Errorf("another text has the same digest, %v", err)
	}
}

// TestPhaseUnderProject: a project layer still tightens what a phase widens, and
// brings no phases of its own.
func TestPhaseUnderProject(t *testing.T) {
	m := parseTree(t, "")
	putFile(m, "/home/u/.config/wall/gate.toml", strings.Replace(phased, "extends = \"gate\"\n", "", 1))
	putFile(m, "/home/u/proj/.wall/gate.toml", "version = 1\n[network]\nmode = \"none\"\n")
	h := goldenHost{}.host(m)
	st, err := Load(h, Options{Profile: "gate"})
	if err != nil {
		t.Fatal(err)
	}
	fetch := st.Phases()[0]
	st, err = Load(h, Options{Profile: "gate", Phase: &fetch})
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := st.Value("network.mode"); v.Text != `"none"` || len(st.Widened()) > 0 {
		t.Errorf("network.mode = %s, widened %v", v.Text, st.Widened())
	}
	putFile(m, "/home/u/proj/.wall/gate.toml", "version = 1\n[network]\nmode = \"host\"\n")
	if st, err = Load(goldenHost{}.host(m), Options{Profile: "gate", Phase: &fetch}); err != nil || len(st.Widened()) > 0 {
		// The phase has the network already.
		t.Errorf("%v, widened %v", err, st.Widened())
	}
	if st, err = Load(goldenHost{}.host(m), Options{Profile: "gate", Phase: &Phase{Name: "test", File: new(File)}}); err != nil || len(st.Widened()) != 1 {
		t.Errorf("%v, widened %v", err, st.Widened())
	}
	const project = "version = 1\n[[gate.phase]]\nname = \"x\"\ncommand = \"true\"\n"
	putFile(m, "/home/u/proj/.wall/gate.toml", project)
	if _, err := Load(goldenHost{}.host(m), Options{Profile: "gate"}); err == nil || !strings.Contains(err.Error(), "a project layer cannot change the phases of a gate") {
		t.Errorf("phases of a project layer: %v", err)
	}
	if _, err := LoadProject("gate.toml", []byte(project), "gate", Host{}); err == nil {
		t.Error("phases of a project layer are not refused when it is checked")
	}
}

func TestPhaseErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"gate = 1", `"gate" must be a table, not an integer`},
		{"[gate]\nphase = 1", `"gate.phase" must be an array of tables, not an integer`},
		{"[gate]\nphase = [1]", "a phase must be a table, not an integer"},
		{"[gate]\nphases = []", `unknown key "gate.phases"`},
		{"[[gate.phase]]\ncommand = \"x\"", "a phase has no name"},
		{"[[gate.phase]]\nname = \"a b\"\ncommand = \"x\"", "the name of a phase has"},
		{"[[gate.phase]]\nname = \"a\"\ncommand = []", "the command is empty"},
		{"[[gate.phase]]\nname = \"a\"\ncommand = \" \"", "the command is empty"},
		{"[[gate.phase]]\nname = \"a\"\ncommand = 1", `"command" must be an array of words or a line`},
		{"[[gate.phase]]\nname = \"a\"\ncommand = [1]", "must be a string, not an integer"},
		{"[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\nnetwork = 1", `"network" must be a table`},
		{"[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\nnetwork.mode = \"all\"", `"mode" must be`},
		{"[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\nnetwork.mod = \"none\"", `unknown key "network.mod"`},
		{"[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\nenvironment.inject = true", `a phase cannot set "environment.inject"`},
		{"[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\nlimits.core = 0", `a phase cannot set "limits.core"`},
		{"[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\nfilesystem.view = \"host\"", `a phase cannot have the key "filesystem"`},
		{"[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\ngate.phase = []", `a phase cannot have the key "gate"`},
		{strings.Repeat("[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\n", 2), `there are two phases called "a"`},
		{strings.Repeat("[[gate.phase]]\nname = \"a\"\ncommand = \"x\"\n", maxPhases+1), "more than 100 phases"},
	} {
		_, err := Parse("p.toml", []byte("version = 1\n"+c.text))
		if err == nil || !strings.Contains(plan.Explain(err), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	// Values of variables are in no message.
	_, err := Parse("p.toml", []byte("version = 1\n[[gate.phase]]\nname = \"a\"\nenvironment = { set = { A = \"s3cret\" }, x = \"s3cret\" }\nenvironment.set.B = \"s3cret\"\nenvironment.set.C = 7\n"))
	if err == nil || strings.Contains(plan.Explain(err), "s3cret") {
		t.Errorf("%s", plan.Explain(err))
	}
}

// TestComparePhases: a change of a phase is seen, and its values of variables are not.
func TestComparePhases(t *testing.T) {
	load := func(text string) *Stack {
		t.Helper()
		st, err := LoadFile("p.toml", []byte(text), Host{})
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	a := load(phased)
	if ch := Compare(a, load(phased)); len(ch) > 0 {
		t.Errorf("the same: %v", ch)
	}
	for _, edit := range []string{`"download"->"verify"`, `mode = "host"->mode = "none"`, `name = "test"->name = "check"`, `open-files = 100->open-files = 101`} {
		from, to, _ := strings.Cut(edit, "->")
		ch := Compare(a, load(strings.Replace(phased, from, to, 1)))
		if len(ch) == 0 || ch[0].Key != "gate.phase" || ch[0].Kind != Other || ch[0].Origin.Line == 0 {
			t.Errorf("%s: %v", edit, ch)
		}
		for _, c := range ch {
			if strings.Contains(c.String(), "s3cret") {
				t.Error(c.String())
			}
		}
	}
}
