package profile

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

// A policyCase names a profile by a path, with something of the host on the way.
type policyCase struct {
	tree, profile string
	flags         []Flag
	texts         map[string]string // files that are not plain gate profiles
	want          string            // part of the error; "" = the profile is used
}

// Whatever a profile file is reached through must be as fixed as the file: what
// the command could replace on the way decides about the next run.
func TestPolicyReachedThroughLinks(t *testing.T) {
	rw := []Flag{{Name: "rw", Value: "/srv", Text: "--rw /srv"}}
	extends := func(s string) string { return "version = 1\nextends = \"" + s + "\"\n" }
	cases := map[string]policyCase{
		"directory":  {"l /home/u/proj/prof prof1", "prof/p.toml", nil, nil, "/home/u/proj/prof,"},
		"file":       {"l /home/u/proj/p.toml prof1/p.toml", "./p.toml", nil, nil, "/home/u/proj/p.toml,"},
		"outside":    {"l /home/u/proj/p.toml /srv/p.toml", "./p.toml", nil, nil, "/home/u/proj/p.toml,"},
		"second":     {"l /srv/way ../home/u/proj/in\nl /home/u/proj/in prof1", "/srv/way/p.toml", nil, nil, "/home/u/proj/in,"},
		"grant":      {"l /srv/link prof", "/srv/link/p.toml", rw, nil, "/srv/link,"},
		"extends":    {"l /home/u/proj/conf prof1", "./q.toml", nil, map[string]string{"/home/u/proj/q.toml": extends("./conf/p.toml")}, "/home/u/proj/conf,"},
		"far":        {"l /home/u/proj/conf prof1", "/srv/q.toml", nil, map[string]string{"/srv/q.toml": extends("../home/u/proj/conf/p.toml")}, "/home/u/proj/conf,"},
		"parent":     {"d /home/u/proj/sub", "sub/../prof1/p.toml", nil, nil, "/home/u/proj/sub/..,"},
		"read-only":  {"l /home/u/proj/prof prof1", "prof/p.toml", []Flag{{Name: "workspace-access", Value: "read"}}, nil, ""},
		"elsewhere":  {"l /srv/link prof", "/srv/link/p.toml", nil, nil, ""},
		"no link":    {"", "prof1/p.toml", nil, nil, ""},
		"own parent": {"", "prof1/q.toml", nil, map[string]string{"/home/u/proj/prof1/q.toml": extends("../prof1/p.toml")}, ""},
		"enforce":    {"l /home/u/proj/prof prof1", "prof/p.toml", []Flag{{Name: "enforce", Value: "off"}}, nil, ""},
	}
	for name, c := range cases {
		m := parseTree(t, c.tree)
		for _, p := range []string{"/home/u/proj/prof1/p.toml", "/srv/prof/p.toml", "/srv/p.toml"} {
			putFile(m, p, "version = 1\nextends = \"gate\"\n")
		}
		for p, text := range c.texts {
			putFile(m, p, text)
		}
		p, err := Resolve(goldenHost{}.host(m), Options{Profile: c.profile, Flags: c.flags, Command: []string{"true"}})
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %s", name, plan.Explain(err))
			} else if !slices.ContainsFunc(p.Mounts, func(m plan.Mount) bool { return m.Op == plan.OpProtect && strings.HasSuffix(m.Target, "p.toml") }) &&
				len(c.flags) == 0 && strings.HasPrefix(c.profile, "prof1") {
				t.Errorf("%s: the file is not protected", name)
			}
			continue
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if text := plan.Explain(err); !strings.Contains(text, c.want) || !strings.Contains(text, "  at ") || !strings.Contains(text, "hint: name the file itself: /") {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// The same for a filter file, which is policy as well.
func TestFilterReachedThroughLinks(t *testing.T) {
	for name, c := range map[string]policyCase{
		"link":      {"f /srv/f.json {}\nl /home/u/proj/f.json /srv/f.json", "./f.json", nil, nil, "/home/u/proj/f.json,"},
		"parent":    {"f /srv/f.json {}\nd /home/u/proj/sub", "./sub/../../../../srv/f.json", nil, nil, "/home/u/proj/sub/..,"},
		"workspace": {"f /home/u/proj/f.json {}", "./f.json", nil, nil, "lies in the workspace"},
		"grant":     {"f /srv/f.json {}", "/srv/f.json", []Flag{{Name: "rw", Value: "/srv"}}, nil, "the command can write it"},
		"fixed":     {"f /srv/f.json {}\nl /srv/g.json f.json", "/srv/g.json", nil, nil, ""},
	} {
		o := Options{Default: "gate", Flags: append(c.flags, Flag{Name: "seccomp", Value: c.profile, Text: "--seccomp " + c.profile}), Command: []string{"true"}}
		o.CustomFilter = func(string, []byte) ([]byte, error) { return make([]byte, 16), nil }
		_, err := Resolve(goldenHost{}.host(parseTree(t, c.tree)), o)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %s", name, plan.Explain(err))
		case c.want != "" && (err == nil || !strings.Contains(plan.Explain(err), c.want) || !strings.Contains(plan.Explain(err), "at --seccomp")):
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// A swappedFS opens another file than the one that was looked at.
type swappedFS struct {
	fstest.MapFS
	path, by string
}

func (s swappedFS) Open(name string) (fs.File, error) {
	if name == s.path {
		name = s.by
	}
	return s.MapFS.Open(name)
}

// What is opened counts, not what stood there when it was looked at.
func TestProfileSwappedBeforeOpen(t *testing.T) {
	for _, at := range []string{"/srv/p.toml", "/etc/wall/p.toml", "/home/u/.config/wall/p.toml", "/home/u/proj/.wall/gate.toml"} {
		for kind, want := range map[string]string{"d": "not a regular file", "p": "not a regular file", "s": "not a regular file", "c": "not a regular file", "f": "too large"} {
			m := parseTree(t, kind+" /srv/other")
			putFile(m, at, "version = 1\n")
			if kind == "f" {
				m["srv/other"].Data = make([]byte, MaxFileSize+1)
			}
			o := Options{Profile: "p", Command: []string{"true"}}
			switch {
			case strings.HasPrefix(at, "/srv"):
				o.Profile = at
			case strings.Contains(at, ".wall"):
				o.Profile = "gate"
			}
			_, err := Resolve(goldenHost{}.host(swappedFS{m, at[1:], "srv/other"}), o)
			if err == nil || !strings.Contains(plan.Explain(err), want) {
				t.Errorf("%s as %s: %v", at, kind, err)
			}
		}
	}
}
