package profile

import (
	"path"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

// FuzzExpand: no written path and no pattern makes Resolve panic or wait, a
// pattern hides only what its text matches, and two answers are the same.
func FuzzExpand(f *testing.F) {
	for _, s := range []string{"~/a", "$workspace/../x", "**/f", "a/*/f", "~/*", "/srv/a/?/c", "**/a/**", "$home/a/../b", "./@x", "@keys", "~user", "$x/y", "a//b/./c", "[a-z]*", "\\*", "..", "*/../*"} {
		f.Add(s)
	}
	fsys, _ := propertyTree(f)
	f.Fuzz(func(t *testing.T, s string) {
		h := goldenHost{}.host(fsys)
		st, err := LoadFile("/srv/p.toml", []byte("version = 1\nextends = \"gate\"\n[filesystem]\nhide = ["+tomlQuote(s)+"]\n"), h)
		if err != nil {
			if strings.Contains(err.Error(), "wall bug") {
				t.Fatal(plan.Explain(err))
			}
			return
		}
		if st.Effective().Hidden == nil {
			t.Fatal("nothing is hidden")
		}
		putFile(fsys, "/srv/p.toml", "version = 1\nextends = \"gate\"\n[filesystem]\nhide = ["+tomlQuote(s)+"]\n")
		o := Options{Profile: "/srv/p.toml", Command: []string{"/usr/bin/sh"}}
		p, err := Resolve(h, o)
		if err != nil {
			if strings.Contains(err.Error(), "wall bug") {
				t.Fatal(plan.Explain(err))
			}
			return
		}
		again, err := Resolve(h, o)
		if err != nil || printed(t, again) != printed(t, p) {
			t.Fatal("two answers")
		}
		for _, m := range p.Mounts {
			if m.Op != plan.OpCover || m.Origin.File != "/srv/p.toml" || strings.HasPrefix(s, "@") {
				continue
			}
			if last := path.Base(path.Clean("/" + s)); isGlob(last) && !match(last, path.Base(m.Target)) {
				t.Fatalf("%q hides %s", s, m.Target)
			}
		}
	})
}

// climbs is the lexical truth about "..": what it lets pass stays below the
// workspace however it is cleaned.
func FuzzClimbs(f *testing.F) {
	for _, s := range []string{"a/../b", "../x", "$workspace/..", "a/../../b", "./..", "..a", "/..", "~/.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if msg, _ := badPath(s); msg != "" || climbs(s) {
			return
		}
		p, err := places{home: "/home/u", workspace: "/w/s", cwd: "/w/s"}.expand(s, "/w/s")
		if err != nil || strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~") || strings.HasPrefix(s, "$home") || strings.HasPrefix(s, "$cwd") {
			return
		}
		if c := path.Clean(p); !within(c, "/w/s") {
			t.Fatalf("%q is %s", s, c)
		}
	})
}
