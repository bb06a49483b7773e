package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
)

func TestExplain(t *testing.T) {
	err := errors.Join(
		&plan.Error{Op: "cannot make /srv/data writable inside", Origin: plan.Origin{File: "b.toml", Line: 14, Text: "x = 1"}, Hint: "make it", Err: errors.New("no such file or directory")},
		&plan.Error{Op: "second\x1b[31m\nwall: error: forged"},
	)
	want := "wall: error: cannot make /srv/data writable inside: no such file or directory\n  at b.toml:14: x = 1\n  hint: make it\n" +
		"wall: error: second?[31m?wall: error: forged\n"
	if got := explain(err); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	want = "wall: \x1b[31merror:\x1b[0m cannot make /srv/data writable inside: no such file or directory\n  at b.toml:14: x = 1\n  \x1b[36mhint:\x1b[0m make it\n" +
		"wall: \x1b[31merror:\x1b[0m second?[31m?wall: error: forged\n"
	if got := colour(explain(err)); got != want {
		t.Errorf("got\n%qwant\n%q", got, want)
	}
}

func TestPrintPlanNotes(t *testing.T) {
	var b bytes.Buffer
	p := plan.Plan{
		Degraded: []plan.Degraded{{Wall: plan.WallNetwork, Lost: "the network is shared", Cause: "a\nb"}},
		Notices:  []plan.Notice{{Text: "two hard links", Hint: "copy them", Origin: plan.Origin{Text: "default"}}},
	}
	if err := printPlanNotes(&b, p); err != nil {
		t.Fatal(err)
	}
	want := "wall: degraded: network: the network is shared (a?b)\nwall: notice: two hard links\n  at default\n  hint: copy them\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestCompileFilter(t *testing.T) {
	for data, want := range map[string]string{
		"{\n  \"frobnicate\": 1\n}": "wall: error: line 2, column 3: .*frobnicate",
		"{":                         "wall: error: line 1, column .*",
		`{"defaultAction": "SCMP_ACT_NOTIFY", "flags": ["x"]}`: "wall: error: line 1, column .*; line 1, column .*",
	} {
		_, err := compileFilter("f.json", []byte(data))
		if err == nil || !regexp.MustCompile(want).MatchString(explain(err)) {
			t.Errorf("%s: got %v, want %s", data, err, want)
		}
	}
	program, err := compileFilter("f.json", []byte(`{"defaultAction": "SCMP_ACT_ALLOW"}`))
	if canCompile && (err != nil || len(program) == 0) || !canCompile && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%d bytes, %v", len(program), err)
	}
}

func TestLandlockFinding(t *testing.T) {
	for _, tt := range []struct {
		abi    int
		err    error
		ok     bool
		detail string
	}{
		{7, nil, true, "ABI 7"},
		{3, nil, true, "ABI 3; signals and abstract sockets"},
		{0, errors.New("not started"), false, "not started"},
		{0, nil, false, "the kernel has no Landlock"},
	} {
		f := landlockFinding(tt.abi, tt.err)
		if f.OK != tt.ok || !strings.HasPrefix(f.Detail, tt.detail) || !f.Required {
			t.Errorf("%d, %v: %+v", tt.abi, tt.err, f)
		}
	}
}

// TestDiagnosis checks what counts: required things alone decide, and what is
// well has no remedy.
func TestDiagnosis(t *testing.T) {
	d := diagnosis{Version: 1, Wall: "x", OK: true}
	d.add(finding{Name: "good", OK: true, Required: true, Detail: "works", Remedy: "unused"})
	d.add(customFilterFinding(false))
	if !d.OK {
		t.Error("something optional decides")
	}
	d.add(seccompFinding(false, nil))
	if d.OK {
		t.Error("something required does not decide")
	}
	var b bytes.Buffer
	if err := d.writeText(&b); err != nil {
		t.Fatal(err)
	}
	want := `good                    ok         works
custom seccomp filters  absent     this wall was built without cgo
                        remedy: build wall with cgo and libseccomp; the built-in filters work without
seccomp                 missing    the kernel refuses filters
                        remedy: use a kernel with CONFIG_SECCOMP_FILTER; in a container, allow seccomp(2) in its own filter

Some walls cannot be built here: profiles that ask for them refuse to run.
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	if err := writeJSON(&b, d); err != nil {
		t.Fatal(err)
	}
	var back diagnosis
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || len(back.Findings) != 3 || back.OK || back.Findings[0].Remedy != "" {
		t.Errorf("%+v, %v", back, err)
	}
}

// TestOneCause checks that what user namespaces take away is told once.
func TestOneCause(t *testing.T) {
	features := []nsexec.Feature{
		{Name: "user namespaces", Detail: "refused", Remedy: "allow them; see `wall doctor`"},
		{Name: "mount namespaces", Detail: "refused", Remedy: "allow them; see `wall doctor`"},
		{Name: "tmpfs", Detail: "refused", Remedy: "another"},
	}
	for inBox, remedy := range map[bool]string{false: "allow them", true: "this already runs in a wall box, which refuses new namespaces; run wall doctor outside of it"} {
		d := diagnosis{OK: true}
		for _, f := range kernelFindings(features, inBox) {
			d.add(f)
		}
		var b bytes.Buffer
		if err := d.writeText(&b); err != nil {
			t.Fatal(err)
		}
		want := "user namespaces   missing    refused\n                  remedy: " + remedy + "\n" +
			"mount namespaces  not tried  needs user namespaces\n" +
			"tmpfs             not tried  needs user namespaces\n" +
			"\nSome walls cannot be built here: profiles that ask for them refuse to run.\n"
		if b.String() != want || d.OK {
			t.Errorf("got\n%swant\n%s", b.String(), want)
		}
	}
	// Something else that is missing is a cause of its own.
	features[0] = nsexec.Feature{Name: "user namespaces", OK: true, Detail: "works"}
	got := kernelFindings(features, false)
	if got[1].skipped || got[1].Detail != "refused" || got[1].Remedy != "allow them" || got[2].Remedy != "another" {
		t.Errorf("%+v", got)
	}
}

func TestDiagnoseFindsEverything(t *testing.T) {
	d, err := diagnose(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range d.Findings {
		seen[f.Name] = true
		if f.Detail == "" || f.OK != (f.Remedy == "") {
			t.Errorf("%+v: want a detail, and a remedy exactly when it is not well", f)
		}
	}
	for _, name := range []string{"user namespaces", "landlock", "seccomp", "custom seccomp filters"} {
		if !seen[name] {
			t.Errorf("%s is not tried", name)
		}
	}
}

// TestWriteJSONGivesNoOrders: what is foreign in JSON is no command to a CI system,
// and comes back the same.
func TestWriteJSONGivesNoOrders(t *testing.T) {
	const evil = "##[error]x\n::error::y ##vso[z] ###[w]"
	var b bytes.Buffer
	if err := writeJSON(&b, map[string]string{evil: evil}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "##") || strings.Contains(b.String(), "\n::") {
		t.Errorf("%s", b.String())
	}
	var back map[string]string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back[evil] != evil {
		t.Errorf("%q, %v", back, err)
	}
}

// TestToldOnce: what holds for several plans of a run is told with the first.
func TestToldOnce(t *testing.T) {
	name := filepath.Join(t.TempDir(), "err")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lost := plan.Degraded{Wall: plan.WallLimits, Lost: "the limit of memory is kept by a watch"}
	var told told
	for _, p := range []plan.Plan{
		{Enforce: plan.EnforceFSNet, Degraded: []plan.Degraded{lost}},
		{Enforce: plan.EnforceFSNet, Degraded: []plan.Degraded{lost}, Notices: []plan.Notice{{Text: "new"}}},
		{Enforce: plan.EnforceFSNet, Notices: []plan.Notice{{Text: "new"}, {Text: "new", Origin: plan.Origin{File: "f", Line: 2}}}},
	} {
		if err := told.announce(streams{err: f}, &runFlags{}, p); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if want := "wall: degraded: limits: the limit of memory is kept by a watch\nwall: notice: new\nwall: notice: new\n  at f:2\n"; err != nil || string(got) != want {
		t.Errorf("%v:\n%swant\n%s", err, got, want)
	}
}

func TestInOne(t *testing.T) {
	err := errors.Join(errors.New("a: lost\nand 2 more"), errors.New("b"))
	if got, want := inOne(err, nil, err), "a: lost; and 2 more; b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
