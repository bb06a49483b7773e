package main

import (
	"os"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// TestPreviewCounts: every variable of the caller is counted once, and what is said
// to be the caller's has the caller's value.
func TestPreviewCounts(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "/nonexistent/config")
	t.Setenv("API_TOKEN", "a")
	t.Setenv("EDITOR", "b")
	t.Setenv("LC_ODD NAME", "c")
	t.Setenv("TMP", "/elsewhere")
	t.Setenv("RUSTUP_HOME", "")
	t.Setenv("GOFLAGS", "-v")
	t.Setenv("MAKEFLAGS", "-j --jobserver-auth=3,4")
	for _, name := range profile.Builtins() {
		for _, flags := range [][]profile.Flag{
			nil,
			{{Name: "pass", Value: "EDITOR", Text: "--pass EDITOR"}, {Name: "env", Value: "API_TOKEN=x", Text: "--env API_TOKEN"}},
			{{Name: "scrub", Value: "off", Text: "--scrub off"}},
			{{Name: "scrub", Value: "deny-secrets", Text: "--scrub deny-secrets"}},
		} {
			f := &shared{profile: name, policy: append([]profile.Flag{{Name: "net", Value: "none", Text: "--net none"}}, flags...)}
			r, err := previewEnv(f, "")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			c := r.Caller
			if c.Total == 0 || c.Passes+c.Replaced+c.Dropped != c.Total {
				t.Errorf("%s %v: %+v does not add up", name, flags, c)
			}
			h, err := host.Gather()
			if err != nil {
				t.Fatal(err)
			}
			o := f.options()
			o.NoCommand = true
			p, err := profile.Resolve(h, o)
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range p.Env {
				value, there := os.LookupEnv(v.Name)
				switch got := r.Variables[i]; {
				case string(got.Name) != v.Name:
					t.Fatalf("%s: %s is shown as %s", name, v.Name, got.Name)
				case got.From == fromCaller && !there:
					t.Errorf("%s: %s is not the caller's (%s)", name, v.Name, v.Reason)
				case got.From == fromCaller && v.Value != value && v.Name != "PATH" && v.Name != "MAKEFLAGS":
					t.Errorf("%s: %s has not the caller's value (%s)", name, v.Name, v.Reason)
				case got.Replaces && !there:
					t.Errorf("%s: %s replaces nothing", name, v.Name)
				}
			}
		}
	}
}

// TestDescribeEnv: what has a source is told by its place, odd names by their bytes, and no
// value is told at all.
func TestDescribeEnv(t *testing.T) {
	const value = "sentinel"
	p := plan.Plan{
		Profile: "p",
		Env: []plan.EnvVar{
			{Name: "A", Value: value, Reason: "base: always"},
			{Name: "B\x1b[31m", Value: value, Reason: "off: everything crosses"},
			{Name: "C", Value: value, Reason: "injected", Origin: plan.Origin{File: "/f", Text: "C"}},
			{Name: "D", Reason: "set", Source: plan.ValueSource{Kind: plan.SourceCommand, Argv: []string{"pass", "d b"}}, Origin: plan.Origin{File: "p.toml", Line: 3, Text: "D"}},
			{Name: "E", Value: value, Reason: "flag --env", Origin: plan.Origin{Text: "--env E"}},
		},
		Dropped: []plan.EnvDrop{{Name: "F\nG", Reason: "deny: F*"}},
		Notices: []plan.Notice{{Text: "a\nb", Hint: "c", Origin: plan.Origin{File: "p.toml", Line: 4}}},
	}
	r := describeEnv(p, []string{"A=1", "A=2", "B\x1b[31m=1", "E=1", "F\nG=1", "=x", "noequals", "N=a\x00b"})
	if r.Caller != (callerCount{Total: 4, Passes: 2, Replaced: 1, Dropped: 1}) {
		t.Errorf("%+v", r.Caller)
	}
	want := `
2 of 4 variables of the caller pass, 1 replaced, 1 left outside; 1 set, 1 injected, 1 from a source

passes
  A            base: always
  "B\x1b[31m"  off: everything crosses

set
  E  flag --env, instead of the caller's  --env E

injected
  C  injected  /f

from a source
  D  set: command pass "d b"  p.toml:3

stay outside
  "F\nG"  deny: F*

notice: a?b
  at p.toml:4
  hint: c
`
	if _, got, _ := strings.Cut(r.text(), "\n"); "\n"+got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var b strings.Builder
	if err := writeJSON(&b, r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String()+r.text(), value) {
		t.Error("a value is told")
	}
	if !strings.Contains(b.String(), `"argv": [`+"\n          \"pass\",\n          \"d b\"") {
		t.Errorf("%s", b.String())
	}
}
