package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

// A stackMaker writes random profiles. Every key has several values, so that a
// random project layer tightens and widens in all directions.
type stackMaker struct{ *rand.Rand }

func (m stackMaker) pick(s ...string) string { return s[m.IntN(len(s))] }

func (m stackMaker) some(s ...string) []string {
	var out []string
	for _, i := range m.Perm(len(s))[:m.IntN(min(len(s), 3)+1)] {
		out = append(out, s[i])
	}
	return out
}

// text writes a profile in which each key stands with probability 1/n.
func (m stackMaker) text(n int) string {
	var b strings.Builder
	b.WriteString("version = 1\n")
	line := func(key string, values ...string) {
		if m.IntN(n) == 0 {
			fmt.Fprintf(&b, "%s = %s\n", key, m.pick(values...))
		}
	}
	list := func(key string, values ...string) {
		if m.IntN(n) == 0 {
			fmt.Fprintf(&b, "%s = [%s]\n", key, strings.Join(m.some(values...), ", "))
		}
	}
	line("enforce", `"off"`, `"fs"`, `"fs+net"`, `"fs+net"`)
	line("if-unavailable", `"fail"`, `"degrade"`)
	list("require", `"landlock"`, `"network"`)
	b.WriteString("[filesystem]\n")
	line("view", `"host"`, `"system"`)
	line("home", `"read-only"`, `"scratch"`, `"hidden"`)
	line("workspace", `"read-only"`, `"read-write"`)
	line("tmp", `"scratch"`, `"memory"`)
	var grants []string
	for range m.IntN(4) {
		grants = append(grants, fmt.Sprintf("{ path = %q, access = %q, optional = true }", m.pick(propertyPaths...), m.pick("read", "write")))
	}
	if m.IntN(n) == 0 {
		fmt.Fprintf(&b, "grant = [%s]\n", strings.Join(grants, ", "))
	}
	var paths []string
	for _, p := range propertyPaths {
		paths = append(paths, fmt.Sprintf("%q", p))
	}
	// Some of the names that are protected, most of them absent.
	names := []string{`".git"`, `".git/hooks"`, `".git/commondir"`, `".git/info/attributes"`, `".git/h*"`, `".vscode"`, `".claude"`, `".wall"`, `".envrc"`, `"**/hooks"`}
	list("hide", append(append([]string{`"@credentials"`, `"**/f"`, `"~/a/*"`}, paths...), m.some(names...)...)...)
	list("protect", append([]string{`"@git"`, `"@persistence"`}, paths...)...)
	list("seed", `{ path = "~/.ssh/id_ed25519" }`, `{ path = "~/a/f" }`)
	b.WriteString("[network]\n")
	line("mode", `"none"`, `"host"`)
	list("allow", `"a.org"`, `"*.org"`, `"b.org:*"`)
	b.WriteString("[environment]\n")
	line("base", `"session"`, `"gate"`, `"shell"`, `"terminal"`, `"contract"`)
	line("scrub", `"off"`, `"deny-secrets"`, `"strict"`)
	list("allow", `"AWS_*"`, `"T*"`, `"B_TOKEN"`)
	list("deny", `"TERM"`, `"A*"`, `"LANG"`)
	list("pass", `"AWS_KEY"`, `"B_TOKEN"`)
	line("set", `{ X = "1" }`, `{ X = "2", AWS_KEY = "" }`, `{}`)
	line("auth", `"B_TOKEN"`, `"AWS_KEY"`)
	b.WriteString("[process]\n")
	line("tty", `"none"`, `"auto"`, `"inherit"`)
	line("seccomp", `"default"`, `"strict"`)
	line("nested-sandboxes", "true", "false")
	b.WriteString("[limits]\n")
	line("open-files", "16", "100", "1000")
	line("file-size", "0", "1000", `"1GiB"`)
	return b.String()
}

// subset reports the first privilege that b has and a has not.
func subset(a, b plan.Plan, probes []string) error {
	if a.Enforce == plan.EnforceOff {
		if b.Enforce != plan.EnforceOff {
			a.Env, b.Env = nil, nil // no box before: every box is less
		}
	} else {
		if b.Enforce == plan.EnforceOff {
			return errors.New("no walls")
		}
		if a.Enforce == plan.EnforceFSNet && b.Enforce == plan.EnforceFS {
			return errors.New("fewer walls")
		}
		// Between the targets of mounts nothing changes, so that these are all places there are.
		at := slices.Clone(probes)
		for _, p := range []plan.Plan{a, b} {
			for _, m := range p.Mounts {
				at = append(at, m.Target)
			}
		}
		for _, p := range at {
			if x, y := effective(a, p), effective(b, p); rank(y) > rank(x) && !placeholderAt(a, p) {
				return fmt.Errorf("%s is %q, was %q", p, y, x)
			}
		}
		for _, s := range a.Spaces {
			if !slices.ContainsFunc(b.Spaces, func(x plan.Space) bool { return x.Kind == s.Kind }) {
				return fmt.Errorf("no %s namespace", s.Kind)
			}
		}
		for _, l := range a.Limits {
			i := slices.IndexFunc(b.Limits, func(x plan.Limit) bool { return x.Name == l.Name })
			if i < 0 || b.Limits[i].Value > l.Value {
				return fmt.Errorf("limit %s", l.Name)
			}
		}
		if order := []string{"strict", "strict-nested", "default", "default-nested"}; a.Seccomp.Profile != b.Seccomp.Profile {
			nested := strings.HasSuffix(b.Seccomp.Profile, "-nested") && !strings.HasSuffix(a.Seccomp.Profile, "-nested")
			if nested || slices.Index(order, b.Seccomp.Profile) > slices.Index(order, a.Seccomp.Profile) {
				return fmt.Errorf("filter %s, was %s", b.Seccomp.Profile, a.Seccomp.Profile)
			}
		}
		for _, s := range b.Scratch.Seeds {
			if !slices.ContainsFunc(a.Scratch.Seeds, func(x plan.Seed) bool { return x.Source == s.Source && x.Target == s.Target }) {
				return fmt.Errorf("seed %s", s.Source)
			}
		}
		for _, m := range b.Mounts {
			if m.Op == plan.OpDevice && !slices.ContainsFunc(a.Mounts, func(x plan.Mount) bool { return x.Op == m.Op && x.Target == m.Target }) {
				return fmt.Errorf("device %s", m.Target)
			}
		}
		for _, d := range b.Degraded {
			if !slices.ContainsFunc(a.Degraded, func(x plan.Degraded) bool { return x.Wall == d.Wall }) {
				return fmt.Errorf("degraded %s", d.Wall)
			}
		}
	}
	for _, v := range b.Env {
		if strings.HasPrefix(v.Reason, "fixed") || v.Reason == "set" && !strings.Contains(v.Origin.File, "/.wall/") {
			continue // a value that the operator wrote, which the caller's own was laid over before
		}
		i := slices.IndexFunc(a.Env, func(x plan.EnvVar) bool { return x.Name == v.Name })
		if (i < 0 || a.Env[i].Value != v.Value) && v.Reason != "base: default search path, the ambient one is denied" {
			return fmt.Errorf("variable %s (%s)", v.Name, v.Reason)
		}
	}
	return nil
}

// placeholderAt reports whether a protected name stands at p that is absent on
// the host: nothing of the host is there in either plan.
func placeholderAt(p plan.Plan, at string) bool {
	return slices.ContainsFunc(p.Scratch.Placeholders, func(h plan.Placeholder) bool { return within(at, h.Path) })
}

// kept reports the first path that is protected in a and that the command could
// make, change or move away in b.
func kept(a, b plan.Plan) error {
	if a.Enforce == plan.EnforceOff {
		return nil
	}
	mounted := func(at string) bool {
		return slices.ContainsFunc(b.Mounts, func(m plan.Mount) bool { return m.Target == at })
	}
	for _, m := range a.Mounts {
		switch {
		case m.Op == plan.OpProtect && effective(b, m.Target) == plan.AccessWrite:
			return fmt.Errorf("%s is no longer protected (%v)", m.Target, m.Origin)
		case m.Op == plan.OpPin && effective(b, path.Dir(m.Target)) == plan.AccessWrite && !mounted(m.Target):
			return fmt.Errorf("%s can be moved away (%v)", m.Target, m.Origin)
		}
	}
	return nil
}

// putFile makes a file and the directories on the way to it.
func putFile(m fstest.MapFS, p, text string) {
	m[p[1:]] = ownedFile(p, 0o644, []byte(text))
	for d := path.Dir(p[1:]); d != "."; d = path.Dir(d) {
		if m[d] == nil {
			m[d] = ownedFile("/"+d, fs.ModeDir|0o755, nil)
		}
	}
}

// checkStack makes a random stack with a project layer from a seed, and
// compares the resolved privileges with and without that layer.
func checkStack(t *testing.T, seed uint64) (accepted, refused bool) {
	m := stackMaker{rand.New(rand.NewPCG(seed, 11))}
	fsys, probes := propertyTree(t)
	put := func(p, text string) { putFile(fsys, p, text) }
	for _, p := range []string{".git/HEAD", ".git/config", ".git/objects/x", ".git/refs/x", ".vscode/tasks.json", ".envrc"} {
		if seed%3 == 0 {
			break // a directory without any of them
		}
		put("/home/u/proj/"+p, "")
		probes = append(probes, "/home/u/proj/"+p)
	}
	base := m.pick("gate", "agent", "base", "shell", "terminal", "contract")
	user := strings.Replace(m.text(2), "version = 1\n", "version = 1\nextends = \""+base+"\"\n", 1)
	put("/home/u/.config/wall/p.toml", user)
	if m.IntN(3) == 0 {
		put("/etc/wall/"+base+".toml", m.text(6))
	}
	h := goldenHost{}.host(fsys)
	h.Environ = append(h.Environ, "AWS_KEY=k", "B_TOKEN=b", "LANG=C", "T_X=1")
	o := Options{Profile: "p", Command: []string{"/usr/bin/sh"}}
	for range m.IntN(3) {
		l := m.pick("ro-try", "rw-try", "hide", "protect")
		o.Flags = append(o.Flags, Flag{Name: l, Value: m.pick(propertyPaths...)})
	}
	if m.IntN(4) == 0 {
		o.Flags = append(o.Flags, Flag{Name: "enforce", Value: m.pick("fs", "fs+net")})
	}
	without, err := Resolve(h, o)
	if err != nil {
		return false, false
	}
	// Few lines, so that some layers tighten only.
	project := m.text(1 + m.IntN(16))
	put("/home/u/proj/.wall/p.toml", project)
	with, err := Resolve(h, o)
	if err != nil {
		if strings.Contains(err.Error(), "wall bug") {
			t.Fatalf("seed %d: %s", seed, plan.Explain(err))
		}
		return false, strings.Contains(err.Error(), "may only tighten")
	}
	if err := kept(without, with); err != nil {
		t.Fatalf("seed %d: with the project layer %v\n%s\n--- project ---\n%s\n%v\n%s\n%s", seed, err, user, project, o.Flags, printed(t, without), printed(t, with))
	}
	// The file of the layer itself is protected and was not there before.
	if err := subset(without, with, probes); err != nil {
		t.Fatalf("seed %d: the project layer gives %v\n%s\n--- project ---\n%s\n%v\n%s\n%s", seed, err, user, project, o.Flags, printed(t, without), printed(t, with))
	}
	return true, false
}

// With a project layer the resolved privileges are a subset of those without
// it, whatever the layers say.
func TestProjectProperty(t *testing.T) {
	accepted, refused := 0, 0
	for seed := range uint64(1500) {
		a, r := checkStack(t, seed)
		if a {
			accepted++
		}
		if r {
			refused++
		}
	}
	t.Logf("%d accepted, %d refused", accepted, refused)
	if accepted < 150 || refused < 400 {
		t.Errorf("%d accepted and %d refused layers say little", accepted, refused)
	}
}

func FuzzProject(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed * 1000003)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { checkStack(t, seed) })
}
