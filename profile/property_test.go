package profile

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

// propertyTree has directories three deep in four places, and no links, so that
// an oracle can be simple. probes are the paths that are asked about.
func propertyTree(t testing.TB) (fstest.MapFS, []string) {
	var b strings.Builder
	var probes []string
	for _, top := range []string{"/srv", "/home/u", "/home/u/proj", "/var/lib"} {
		for _, p := range []string{"a", "a/b", "a/b/c", "d", "d/e"} {
			fmt.Fprintf(&b, "d %s/%s\n", top, p)
			probes = append(probes, top+"/"+p, top+"/"+p+"/f")
			fmt.Fprintf(&b, "f %s/%s/f\n", top, p)
		}
	}
	return parseTree(t, b.String()), append(probes, "/home/u/.ssh/id_ed25519", "/usr/bin/sh", "/etc/passwd", "/etc/shadow", "/srv", "/home/u/proj", "/tmp", "/run/user/1000")
}

var propertyPaths = []string{
	"/srv/a", "/srv/a/b", "/srv/a/b/c", "/srv/d", "/srv", "~/a", "~/a/b", "~/d", "$workspace/a", "$workspace/a/b", "$workspace/d/e",
	"/var/lib/a", "/var/lib", "~/.ssh/id_ed25519", "/home/u/none", "$workspace/none/x",
}

// A line is one thing that a random profile or command line asks for.
type line struct {
	kind  string // read, write, hide, protect
	path  string
	layer int
}

// effective walks the mounts of a plan and gives what they show of the host at p.
func effective(p plan.Plan, at string) plan.Access {
	acc := plan.AccessNone
	for _, m := range p.Mounts {
		if !within(at, m.Target) {
			continue
		}
		switch m.Op {
		case plan.OpHostRoot:
			acc = plan.AccessRead
		case plan.OpBind:
			acc = m.Access
			if m.Source != m.Target {
				acc = "elsewhere"
			}
		case plan.OpProtect:
			if acc == plan.AccessWrite {
				acc = plan.AccessRead
			}
		case plan.OpPin, plan.OpSeal, plan.OpDir, plan.OpSymlink, plan.OpFile:
		default:
			acc = plan.AccessNone // a tree of wall's own, or a cover
		}
	}
	return acc
}

// asked is the oracle: what the lines, the view and the home mode ask for at p,
// by "most specific path wins; hide > protect > write > read", where a grant of
// a higher layer beats a hide of the same path.
func asked(lines []line, view, home, ws string, at string) plan.Access {
	type rule struct {
		path  string
		kind  string
		layer int
	}
	rules := []rule{{"/home/u/proj", map[string]string{"read-write": "write", "read-only": "read"}[ws], 0}}
	if view == "host" {
		rules = append(rules, rule{"/", "read", 0})
	} else {
		for _, d := range []string{"/usr", "/etc/passwd"} {
			rules = append(rules, rule{d, "read", 0})
		}
	}
	for _, d := range []string{"/tmp", "/run", "/var/tmp", "/dev", "/proc", "/sys"} {
		rules = append(rules, rule{d, "private", 0})
	}
	if home == "read-only" {
		rules = append(rules, rule{"/home/u", "read", 0})
	} else {
		rules = append(rules, rule{"/home/u", "private", 0})
	}
	best := map[string]int{}
	for _, l := range lines {
		p := l.path
		switch {
		case strings.HasPrefix(p, "~"):
			p = "/home/u" + p[1:]
		case strings.HasPrefix(p, "$workspace"):
			p = "/home/u/proj" + strings.TrimPrefix(p, "$workspace")
		}
		if l.kind == "read" || l.kind == "write" {
			if prev, ok := best[p]; ok && prev > l.layer {
				continue
			} else if ok && prev < l.layer {
				rules = slices.DeleteFunc(rules, func(r rule) bool { return r.path == p && (r.kind == "read" || r.kind == "write") })
			}
			best[p] = l.layer
		}
		rules = append(rules, rule{p, l.kind, l.layer})
	}
	// A grant of a higher layer beats a hide of the same path.
	rules = slices.DeleteFunc(rules, func(r rule) bool {
		layer, granted := best[r.path]
		return r.kind == "hide" && granted && layer > r.layer
	})
	rank := map[string]int{"private": 0, "read": 1, "write": 2, "protect": 3, "hide": 4}
	slices.SortStableFunc(rules, func(x, y rule) int {
		return cmp.Or(len(x.path)-len(y.path), strings.Compare(x.path, y.path), rank[x.kind]-rank[y.kind])
	})
	acc := plan.AccessNone
	for _, r := range rules {
		if !within(at, r.path) {
			continue
		}
		switch r.kind {
		case "read":
			acc = plan.AccessRead
		case "write":
			acc = plan.AccessWrite
		case "protect":
			if acc == plan.AccessWrite {
				acc = plan.AccessRead
			}
		default:
			acc = plan.AccessNone
		}
	}
	return acc
}

// checkRandom makes one random profile and command line from a seed and
// compares the plan with the oracle at every probe.
func checkRandom(t *testing.T, seed uint64) (resolved bool) {
	r := rand.New(rand.NewPCG(seed, 7))
	fsys, probes := propertyTree(t)
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	view, home, ws := pick("host", "system"), pick("read-only", "scratch", "hidden"), pick("read-write", "read-only")
	var lines []line
	var text strings.Builder
	fmt.Fprintf(&text, "version = 1\n[filesystem]\nview = %q\nhome = %q\nworkspace = %q\n", view, home, ws)
	lists := map[string][]string{}
	for range r.IntN(4) {
		l := line{kind: pick("read", "write", "hide", "protect"), path: pick(propertyPaths...)}
		switch l.kind {
		case "hide", "protect":
			if e := fmt.Sprintf("%q", l.path); !slices.Contains(lists[l.kind], e) {
				lists[l.kind] = append(lists[l.kind], e)
				lines = append(lines, l)
			}
		default:
			lists["grant"] = append(lists["grant"], fmt.Sprintf("{ path = %q, access = %q, optional = true }", l.path, l.kind))
			lines = append(lines, l)
		}
	}
	for _, k := range []string{"grant", "hide", "protect"} {
		if len(lists[k]) > 0 {
			fmt.Fprintf(&text, "%s = [%s]\n", k, strings.Join(lists[k], ", "))
		}
	}
	var o Options
	for range r.IntN(3) {
		l := line{kind: pick("read", "write", "hide", "protect"), path: pick(propertyPaths...), layer: 1}
		lines = append(lines, l)
		o.Flags = append(o.Flags, Flag{Name: map[string]string{"read": "ro-try", "write": "rw-try"}[l.kind] + map[string]string{"hide": "hide", "protect": "protect"}[l.kind], Value: l.path})
	}
	fsys["srv/p.toml"] = &fstest.MapFile{Data: []byte(text.String()), Mode: 0o644}
	o.Profile, o.Command = "/srv/p.toml", []string{"/usr/bin/sh"}
	h := goldenHost{}.host(fsys)
	p, err := Resolve(h, o)
	if err != nil {
		if strings.Contains(err.Error(), "wall bug") {
			t.Fatalf("seed %d: %s%s%v", seed, plan.Explain(err), text.String(), o.Flags)
		}
		return false
	}
	again, err := Resolve(h, o)
	if err != nil || printed(t, again) != printed(t, p) {
		t.Fatalf("seed %d: not deterministic", seed)
	}
	for _, at := range probes {
		got, want := effective(p, at), asked(lines, view, home, ws, at)
		// A protected absent name is a directory of wall's inside; nothing to compare.
		if got != want && !strings.Contains(at, ".git") {
			t.Fatalf("seed %d: %s is %q inside, the lines ask for %q\n%s%v\n%s", seed, at, got, want, text.String(), o.Flags, printed(t, p))
		}
		if l := landlockAllows(p, at); got != plan.AccessNone && l == plan.AccessNone {
			t.Fatalf("seed %d: %s is %q inside, but Landlock refuses it\n%s%v\n%s", seed, at, got, text.String(), o.Flags, printed(t, p))
		} else if got == plan.AccessNone && l == plan.AccessRead {
			// Below a writable rule Landlock cannot take anything away.
			t.Fatalf("seed %d: %s is hidden, but Landlock allows %q\n%s", seed, at, l, printed(t, p))
		}
	}
	for _, rule := range p.Landlock.Rules {
		if rule.Access == plan.AccessWrite && effective(p, rule.Path) == plan.AccessRead {
			t.Fatalf("seed %d: Landlock lets write %s, the mounts do not", seed, rule.Path)
		}
	}
	return true
}

// landlockAllows gives the strongest rule that covers a path; AccessList does
// not count.
func landlockAllows(p plan.Plan, at string) plan.Access {
	acc := plan.AccessNone
	for _, r := range p.Landlock.Rules {
		if !within(at, r.Path) || r.Access == plan.AccessList || slices.ContainsFunc(r.Except, func(e string) bool { return within(at, e) }) {
			continue
		}
		if acc == plan.AccessNone || r.Access == plan.AccessWrite {
			acc = r.Access
		}
	}
	return acc
}

func printed(t testing.TB, p plan.Plan) string {
	var b bytes.Buffer
	if err := p.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A plan grants exactly what lines ask for, whatever they are.
func TestResolveProperty(t *testing.T) {
	resolved := 0
	for seed := range uint64(600) {
		if checkRandom(t, seed) {
			resolved++
		}
	}
	if resolved < 200 {
		t.Errorf("only %d of the random profiles resolve", resolved)
	}
}

func FuzzResolve(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkRandom(t, seed) })
}

// FuzzFlags: no flag value and no written path makes Resolve panic, take a
// user's mistake for a bug, or give two answers.
func FuzzFlags(f *testing.F) {
	f.Add("ro", "../x", "sh")
	f.Add("hide", "**/*.pem", "./x")
	f.Add("rw", "$workspace/../a", "a/../b")
	f.Add("limit", "file-size=1GiB", "sh")
	f.Add("protect", "a/b/../../c", "sh")
	f.Add("workspace", "~", "sh")
	f.Add("cwd", "\x00", "\xff")
	fsys, _ := propertyTree(f)
	f.Fuzz(func(t *testing.T, name, value, command string) {
		known := []string{"workspace", "workspace-access", "cwd", "ro", "rw", "ro-try", "rw-try", "hide", "protect", "view", "home", "env", "pass",
			"scrub", "net", "enforce", "if-unavailable", "seccomp", "tty", "limit", "timeout", "allow-home-workspace"}
		if !slices.Contains(known, name) {
			name = known[len(name)%len(known)]
		}
		for _, def := range []string{"gate", "agent"} {
			h := goldenHost{}.host(fsys)
			o := Options{Default: def, Flags: []Flag{{Name: name, Value: value}}, Command: []string{command}}
			p, err := Resolve(h, o)
			if err != nil {
				if strings.Contains(err.Error(), "wall bug") {
					t.Fatal(plan.Explain(err))
				}
				if s := plan.ExitStatus(err); s < 125 || s > 127 {
					t.Fatalf("exit status %d", s)
				}
				continue
			}
			for _, m := range p.Mounts {
				if m.Op == plan.OpBind && m.Access == plan.AccessWrite && m.Target != "/home/u/proj" && name != "rw" && name != "rw-try" && name != "workspace" {
					t.Fatalf("--%s %q makes %s writable", name, value, m.Target)
				}
			}
			if again, err := Resolve(h, o); err != nil || printed(t, again) != printed(t, p) {
				t.Fatal("not deterministic")
			}
		}
	})
}
