package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

// explainResolve gives what a person sees when Resolve fails.
func explainResolve(t *testing.T, h Host, o Options) string {
	t.Helper()
	_, err := Resolve(h, o)
	if err == nil {
		t.Fatal("no error")
	}
	text := plan.Explain(err)
	if strings.Contains(text, "wall bug") {
		t.Errorf("a user's mistake is called a bug: %s", text)
	}
	return text
}

func TestGlobBound(t *testing.T) {
	m := parseTree(t, "")
	for i := range maxGlob + 1 {
		m[fmt.Sprintf("home/u/proj/many/%d", i)] = &fstest.MapFile{}
	}
	o := Options{Default: "gate", Command: []string{"true"}, Flags: []Flag{{Name: "hide", Value: "**/*.pem", Text: "--hide **/*.pem"}}}
	text := explainResolve(t, goldenHost{}.host(m), o)
	if !strings.Contains(text, fmt.Sprintf("more than %d files", maxGlob)) || !strings.Contains(text, "at --hide **/*.pem") || !strings.Contains(text, "hint: name the paths") {
		t.Error(text)
	}
	o.Flags[0].Value = "many/*.pem"
	if text := explainResolve(t, goldenHost{}.host(m), o); !strings.Contains(text, "more than") {
		t.Error(text)
	}
	delete(m, "home/u/proj/many/0")
	delete(m, "home/u/proj/many/1")
	delete(m, "home/u/proj/many/2")
	delete(m, "home/u/proj/many/3")
	o.Flags = nil
	if _, err := Resolve(goldenHost{}.host(m), o); err != nil {
		t.Errorf("without a deep pattern the workspace is not walked: %v", err)
	}
}

func TestModulesBound(t *testing.T) {
	m := parseTree(t, "f /home/u/proj/.git/HEAD\nd /home/u/proj/.git/objects\nd /home/u/proj/.git/refs\nf /home/u/proj/.git/config\n")
	for i := range maxModules + 1 {
		m[fmt.Sprintf("home/u/proj/.git/modules/%d/x", i)] = &fstest.MapFile{}
	}
	text := explainResolve(t, goldenHost{}.host(m), Options{Default: "gate", Command: []string{"true"}})
	if !strings.Contains(text, "more than 1000 entries") || strings.Count(text, "error:") != 1 {
		t.Error(text)
	}
}

func TestExtendsDepth(t *testing.T) {
	m := parseTree(t, "")
	chain := func(n int) {
		for i := range n {
			text := fmt.Sprintf("version = 1\nextends = \"./%d.toml\"\n", i+1)
			if i == n-1 {
				text = "version = 1\n"
			}
			m[fmt.Sprintf("srv/%d.toml", i)] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		}
	}
	o := Options{Profile: "/srv/0.toml", Command: []string{"true"}}
	chain(maxExtends + 1)
	if _, err := Resolve(goldenHost{}.host(m), o); err != nil {
		t.Errorf("%d levels: %v", maxExtends, err)
	}
	chain(maxExtends + 2)
	if text := explainResolve(t, goldenHost{}.host(m), o); !strings.Contains(text, "more than 8 profiles extend") {
		t.Error(text)
	}
}

// A denyFS refuses to look at what lies below the paths in it.
type denyFS struct {
	fstest.MapFS
	denied []string
}

func (d denyFS) deny(op, name string) error {
	for _, p := range d.denied {
		if below("/"+name, p) {
			return &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission}
		}
	}
	return nil
}

func (d denyFS) Lstat(name string) (fs.FileInfo, error) {
	if err := d.deny("lstat", name); err != nil {
		return nil, err
	}
	return d.MapFS.Lstat(name)
}

func (d denyFS) ReadDir(name string) ([]fs.DirEntry, error) {
	for _, p := range d.denied {
		if within("/"+name, p) {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
		}
	}
	return d.MapFS.ReadDir(name)
}

// What the caller cannot look at is an error where it is asked for, and
// nothing to hide where it is hidden.
func TestUnreadable(t *testing.T) {
	m := parseTree(t, "d /srv/closed/x\nd /home/u/proj/closed/y")
	h := goldenHost{}.host(denyFS{m, []string{"/srv/closed", "/home/u/.ssh", "/home/u/proj/closed"}})
	o := Options{Default: "gate", Command: []string{"true"}}
	for _, f := range []Flag{{Name: "hide", Value: "/srv/closed/x"}, {Name: "hide", Value: "/srv/closed/*"}, {Name: "hide", Value: "**/y"}, {Name: "ro-try", Value: "/srv/closed/x"}} {
		o.Flags = []Flag{f}
		if _, err := Resolve(h, o); err != nil {
			t.Errorf("%v: %v", f, err)
		}
	}
	for _, f := range []Flag{{Name: "ro", Value: "/srv/closed/x"}, {Name: "protect", Value: "closed/y"}, {Name: "workspace", Value: "/srv/closed/x"}, {Name: "cwd", Value: "/srv/closed/x"}} {
		o.Flags = []Flag{f}
		if _, err := Resolve(h, o); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%v: %v", f, err)
		}
	}
}

// Paths that are not UTF-8 cannot be looked up through fs.FS; the message says so.
func TestNotUTF8(t *testing.T) {
	cwd := "/home/u/\xff"
	text := explainResolve(t, goldenHost{Cwd: &cwd}.host(parseTree(t, "")), Options{Default: "gate", Command: []string{"true"}})
	if !strings.Contains(text, "not valid UTF-8") {
		t.Error(text)
	}
}

func TestNULInArgument(t *testing.T) {
	text := explainResolve(t, goldenHost{}.host(parseTree(t, "")), Options{Default: "gate", Command: []string{"true", "a\x00b"}})
	if !strings.Contains(text, "argument 1 of the command contains a NUL byte") {
		t.Error(text)
	}
}

// A long argument and an unusual one pass exactly.
func TestArgvExact(t *testing.T) {
	argv := []string{"true", strings.Repeat("x", 2<<20), "", "-- \n\xff"}
	p, err := Resolve(goldenHost{}.host(parseTree(t, "")), Options{Default: "gate", Command: argv})
	if err != nil {
		t.Fatal(err)
	}
	for i := range argv {
		if p.Command.Argv[i] != argv[i] {
			t.Errorf("argument %d differs", i)
		}
	}
}
