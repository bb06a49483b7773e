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

// No way to name the directories of wall's own files makes one in the workspace
// count: it is refused or ignored, never read.
func TestPolicyPlacesInWorkspace(t *testing.T) {
	const off, store = "version = 1\nenforce = \"off\"\n", "version = 1\n[network]\nmode = \"host\"\n"
	for name, c := range map[string]struct {
		tree, env string
		noAccount bool
		flags     []Flag
		want      string // part of the error or the notice
	}{
		"plain":          {"", "XDG_CONFIG_HOME=/home/u/proj/cfg XDG_STATE_HOME=/home/u/proj/cfg", false, nil, "ignoring /home/u/proj/cfg/wall"},
		"dot dot":        {"d /srv/x\nl /home/u/proj/link ../../../srv/x", "XDG_CONFIG_HOME=/home/u/proj/link/../cfg XDG_STATE_HOME=/home/u/proj/link/../cfg", false, nil, "XDG_CONFIG_HOME: it contains \"..\""},
		"missing":        {"", "XDG_CONFIG_HOME=/nonexistent/../home/u/proj/cfg XDG_STATE_HOME=/nonexistent/../home/u/proj/cfg", false, nil, "it contains \"..\""},
		"last dot dot":   {"d /home/u/proj/cfg/x", "XDG_CONFIG_HOME=/home/u/proj/cfg/x/.. XDG_STATE_HOME=/home/u/proj/cfg/x/..", false, nil, "it contains \"..\""},
		"link to it":     {"l /srv/c ../home/u/proj/cfg", "XDG_CONFIG_HOME=/srv/c XDG_STATE_HOME=/srv/c", false, nil, "ignoring /srv/c/wall"},
		"proc":           {"l /proc/self 7\nl /proc/7/cwd /home/u/proj", "XDG_CONFIG_HOME=/proc/self/cwd/cfg XDG_STATE_HOME=/proc/self/cwd/cfg", false, nil, "ignoring /proc/self/cwd/cfg/wall"},
		"wall is a link": {"l /srv/c/wall /home/u/proj/cfg/wall", "XDG_CONFIG_HOME=/srv/c XDG_STATE_HOME=/srv/c", false, nil, "/srv/c/wall: it leads into the workspace"},
		"default":        {"l /home/u/.config/wall ../proj/cfg/wall\nl /home/u/.local/state/wall ../../proj/cfg/wall", "", false, nil, "/home/u/.config/wall: it leads into the workspace"},
		"default parent": {"l /home/u/.config proj/cfg\nl /home/u/.local/state ../proj/cfg", "", false, nil, "/home/u/.config/wall: it leads into the workspace"},
		"through":        {"l /home/u/.config proj/out\nl /home/u/proj/out /srv/c\nl /home/u/.local/state ../proj/out", "", false, nil, "/home/u/.config/wall: it leads into the workspace"},
		"chain":          {"l /home/u/.config /srv/a\nl /srv/a /srv/b\nl /srv/b /home/u/proj/cfg\nl /home/u/.local/state /srv/a", "", false, nil, "/home/u/.config/wall: it leads into the workspace"},
		"named default":  {"l /home/u/.config proj/cfg\nl /home/u/.local/state ../proj/cfg", "XDG_CONFIG_HOME=/home/u/.config XDG_STATE_HOME=/home/u/.local/state", false, nil, "/home/u/.config/wall: it leads into the workspace"},
		"home":           {"", "HOME=/home/u/proj/home", true, []Flag{{Name: "allow-home-workspace"}}, "ignoring /home/u/proj/home/.config/wall"},
		"home link":      {"l /srv/h /home/u/proj/home", "HOME=/srv/h", true, []Flag{{Name: "allow-home-workspace"}}, "ignoring /srv/h/.config/wall"},
		"home is it":     {"d /home/u/proj/.config\nl /home/u/proj/.config/wall ../cfg/wall", "HOME=/home/u/proj", true, []Flag{{Name: "allow-home-workspace"}}, "ignoring /home/u/proj/.config/wall"},
	} {
		for _, what := range []string{"config", "state"} {
			m := parseTree(t, c.tree)
			if what == "config" {
				for _, p := range []string{"proj/cfg/wall", "proj/home/.config/wall"} {
					putFile(m, "/home/u/"+p+"/gate.toml", off)
				}
				putFile(m, "/srv/c/wall/gate.toml", off)
				if strings.HasPrefix(name, "wall is") {
					m = parseTree(t, c.tree)
					putFile(m, "/home/u/proj/cfg/wall/gate.toml", off)
				}
			} else {
				putFile(m, "/home/u/proj/.wall/gate.toml", store)
				trusted := string(FormatTrust([]TrustEntry{{Digest([]byte(store)), "/home/u/proj/.wall/gate.toml"}}))
				for _, p := range []string{"proj/cfg/wall/trust", "proj/home/.local/state/wall/trust", "proj/.local/state/wall/trust"} {
					putFile(m, "/home/u/"+p, trusted)
				}
				if !strings.HasPrefix(name, "wall is") {
					putFile(m, "/srv/c/wall/trust", trusted)
				}
			}
			h := goldenHost{}.host(m)
			h.Environ = append([]string{"PATH=/usr/bin"}, strings.Fields(c.env)...)
			if what == "state" { // the other variable alone is at fault
				h.Environ = slices.DeleteFunc(h.Environ, func(v string) bool { return strings.HasPrefix(v, "XDG_CONFIG_HOME=") })
				delete(m, "home/u/.config")
				delete(m, "home/u/.config/wall")
			}
			if c.noAccount {
				h.AccountHome = ""
			}
			p, err := Resolve(h, Options{Default: "gate", Flags: c.flags, Command: []string{"true"}})
			switch {
			case err == nil && (what == "state" || p.Enforce != plan.EnforceFSNet):
				t.Errorf("%s, %s: it counts", name, what)
			case what == "state":
				if text := plan.Explain(err); !strings.Contains(text, "may only tighten") {
					t.Errorf("%s, %s: %s", name, what, text)
				}
			case err != nil:
				if text := plan.Explain(err); !strings.Contains(text, c.want) || !strings.Contains(text, "  at ") || !strings.Contains(text, "hint: ") {
					t.Errorf("%s, %s: %s, want %s", name, what, text, c.want)
				}
			default:
				if !slices.ContainsFunc(p.Notices, func(n plan.Notice) bool { return strings.Contains(n.Text, c.want) }) {
					t.Errorf("%s, %s: notices %v, want %s", name, what, p.Notices, c.want)
				}
			}
		}
	}
}

// Places of the user that links lead to count, and the links stay as they are
// also where the command can write; so do the places of a home that is the workspace.
func TestPolicyPlacesReached(t *testing.T) {
	off := "version = 1\n[filesystem]\nhide = [\"/srv/hidden\"]\n"
	for name, c := range map[string]struct {
		tree, at, cwd string
		flags         []Flag
	}{
		"link":     {"l /home/u/.config dot/config", "/home/u/dot/config/wall/gate.toml", "/home/u/proj", nil},
		"writable": {"l /home/u/.config dot/config", "/home/u/dot/config/wall/gate.toml", "/home/u/proj", []Flag{{Name: "allow-home-workspace"}, {Name: "workspace", Value: "/home/u"}}},
		"home":     {"", "/home/u/.config/wall/gate.toml", "/home/u", []Flag{{Name: "allow-home-workspace"}}},
	} {
		m := parseTree(t, c.tree+"\nf /srv/hidden")
		putFile(m, c.at, off)
		h := goldenHost{Cwd: &c.cwd}.host(m)
		p, err := Resolve(h, Options{Default: "gate", Flags: c.flags, Command: []string{"true"}})
		if err != nil {
			t.Errorf("%s: %s", name, plan.Explain(err))
			continue
		}
		if effective(p, "/srv/hidden") != plan.AccessNone {
			t.Errorf("%s: the profile of the user does not count", name)
		}
		if effective(p, c.at) != plan.AccessNone {
			t.Errorf("%s: the profile is %s inside", name, effective(p, c.at))
		}
		if name == "writable" && !slices.ContainsFunc(p.Mounts, func(m plan.Mount) bool { return m.Op == plan.OpProtect && m.Target == "/home/u/.config" }) {
			t.Errorf("%s: the link can be replaced", name)
		}
	}
}

// Where wall's own directories are reached by links that the command could
// replace, the links are protected.
func TestLinksToOwnDirectories(t *testing.T) {
	m := parseTree(t, "d /srv/dot/state/wall\nd /home/u/w\nl /home/u/w/state /srv/dot/state")
	h := goldenHost{}.host(m)
	h.Environ = append(h.Environ, "XDG_STATE_HOME=/home/u/w/state")
	p, err := Resolve(h, Options{Default: "gate", Flags: []Flag{{Name: "rw", Value: "/home/u/w"}}, Command: []string{"true"}})
	if err != nil {
		t.Fatal(plan.Explain(err))
	}
	if !slices.ContainsFunc(p.Mounts, func(m plan.Mount) bool {
		return m.Op == plan.OpProtect && m.Target == "/home/u/w/state" && m.Type == plan.TypeSymlink
	}) {
		t.Error(printed(t, p))
	}
}

// A home directory as the workspace is refused also when the profile there says
// that there are no walls; only the command line can say so.
func TestNoWallsOnlyByFlag(t *testing.T) {
	home := "/home/u"
	m := parseTree(t, "")
	putFile(m, "/home/u/.config/wall/gate.toml", "version = 1\nenforce = \"off\"\n")
	h := goldenHost{Cwd: &home}.host(m)
	o := Options{Default: "gate", Command: []string{"true"}}
	if _, err := Resolve(h, o); err == nil || !strings.Contains(err.Error(), "it is the home directory") {
		t.Errorf("%v", err)
	}
	o.Flags = []Flag{{Name: "enforce", Value: "off"}}
	if _, err := Resolve(h, o); err != nil {
		t.Error(plan.Explain(err))
	}
}

// A project layer brings no filter file, whatever it is called and also when it
// is trusted.
func TestProjectFilter(t *testing.T) {
	for _, v := range []string{"./filter.json", "/home/u/.config/wall/filter.json", "$workspace/filter.json", "~/.config/wall/filter.json"} {
		m := parseTree(t, "l /home/u/proj/.wall/filter.json /srv/lax.json\nf /srv/lax.json {}\nf /home/u/.config/wall/filter.json {}\nf /home/u/proj/filter.json {}")
		putFile(m, "/home/u/.config/wall/mygate.toml", "version = 1\nextends = \"gate\"\n[process]\nseccomp = \"./filter.json\"\n")
		o := Options{Profile: "mygate", Command: []string{"true"}, CustomFilter: func(string, []byte) ([]byte, error) { return make([]byte, 16), nil }}
		h := goldenHost{}.host(m)
		if _, err := Resolve(h, o); v == "./filter.json" && err != nil {
			t.Fatal(plan.Explain(err))
		}
		text := "version = 1\n[process]\nseccomp = \"" + v + "\"\n"
		putFile(m, "/home/u/proj/.wall/mygate.toml", text)
		putFile(m, "/home/u/.local/state/wall/trust", string(FormatTrust([]TrustEntry{{Digest([]byte(text)), "/home/u/proj/.wall/mygate.toml"}})))
		if _, err := Resolve(h, o); err == nil || !strings.Contains(plan.Explain(err), "at /home/u/proj/.wall/mygate.toml:3:1") || !strings.Contains(err.Error(), "filter of its own") {
			t.Errorf("%s: %v", v, err)
		}
		putFile(m, "/home/u/proj/.wall/mygate.toml", "version = 1\n[process]\nseccomp = \"default\"\n")
		if _, err := Resolve(h, o); err == nil || !strings.Contains(err.Error(), "may only tighten") {
			t.Errorf("default in place of a file: %v", err)
		}
	}
}

// Filter files are compared by what they say, not by what they are called.
func TestCompareFilterFiles(t *testing.T) {
	m := parseTree(t, "f /srv/a/f.json 1\nf /srv/b/f.json 2\nf /srv/c/f.json 1\nl /srv/b/a.json ../a/f.json")
	side := func(h Host, name, filter string) *Stack {
		st, err := LoadFile(name, []byte("version = 1\n[process]\nseccomp = \""+filter+"\"\n"), h)
		if err != nil {
			t.Fatal(plan.Explain(err))
		}
		return st
	}
	host := Host{FS: m, Cwd: "/srv", AccountHome: "/home/u"}
	for _, c := range []struct {
		h                  Host
		a, fa, b, fb, want string
	}{
		{host, "/srv/a/p.toml", "./f.json", "/srv/b/p.toml", "./f.json", "other /srv/a/f.json /srv/b/f.json"},
		{host, "/srv/a/p.toml", "./f.json", "/srv/c/p.toml", "./f.json", ""},
		{host, "/srv/a/p.toml", "./f.json", "/srv/b/p.toml", "./a.json", ""},
		{host, "/srv/a/p.toml", "./f.json", "/srv/b/p.toml", "../a/f.json", ""},
		{host, "/srv/a/p.toml", "./f.json", "/srv/a/p.toml", "./f.json", ""},
		{host, "a/p.toml", "./none.json", "b/p.toml", "./none.json", "other /srv/a/none.json /srv/b/none.json"},
		{host, "/dev/fd/62", "./f.json", "/dev/fd/63", "./f.json", "other /dev/fd/f.json /dev/fd/f.json"},
		{Host{}, "a/p.toml", "./f.json", "b/p.toml", "./f.json", "other ./f.json ./f.json"},
		{Host{}, "a/p.toml", "./f.json", "a/p.toml", "./f.json", ""},
		{host, "/srv/a/p.toml", "./f.json", "/srv/a/p.toml", "strict", "other \"./f.json\" \"strict\""},
	} {
		got := ""
		for _, x := range Compare(side(c.h, c.a, c.fa), side(c.h, c.b, c.fb)) {
			got += string(x.Kind) + " " + strings.ReplaceAll(x.From+" "+x.To, "\"/", "/")
		}
		if strings.ReplaceAll(got, "\"", "") != strings.ReplaceAll(c.want, "\"", "") {
			t.Errorf("%s %s, %s %s: %q, want %q", c.a, c.fa, c.b, c.fb, got, c.want)
		}
	}
}

// A project layer that says a grant of the profile again puts it above a hide of
// the same path: that uncovers it.
func TestProjectRaisesGrant(t *testing.T) {
	for _, hide := range []string{"/srv/x", "/srv/*"} {
		m := parseTree(t, "f /srv/x")
		const grant = "version = 1\n[filesystem]\ngrant = [{ path = \"/srv/x\", access = \"read\" }]\n"
		putFile(m, "/etc/wall/gate.toml", grant)
		putFile(m, "/home/u/.config/wall/gate.toml", "version = 1\n[filesystem]\nhide = [\""+hide+"\"]\n")
		putFile(m, "/home/u/proj/.wall/gate.toml", grant)
		_, err := Resolve(goldenHost{}.host(m), Options{Default: "gate", Command: []string{"true"}})
		if err == nil || !strings.Contains(err.Error(), "may only tighten: filesystem.grant gains /srv/x") {
			t.Errorf("%s: %v", hide, err)
		}
	}
}
