package profile

import (
	"path"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// A shownTree tells what one set of settings shows at a path, as far as that
// can be said without a host: by view, home and workspace, and by grants, hides
// and protections, the most specific of which wins. Links, git's own files and
// sockets are not known to it.
type shownTree struct {
	base    map[string]plan.Access
	grants  map[string]grantAt
	hides   map[string]int // path to the highest layer that hides it
	globs   []shownGlob
	protect map[string]bool
	ws      string
}

type shownGlob struct {
	elems []string
	layer int
}

// shown makes the tree of one side. grants are those of grantMap.
func (c *comparer) shown(s *settings, grants map[string]grantAt) *shownTree {
	t := &shownTree{base: map[string]plan.Access{}, grants: grants, hides: map[string]int{}, protect: map[string]bool{}, ws: c.path(source{}, "$workspace")}
	if s.View.V == "host" {
		t.base["/"] = plan.AccessRead
	} else {
		for _, p := range runtimeTrees {
			t.base[p] = plan.AccessRead
		}
		for _, n := range etcNames {
			t.base["/etc/"+n] = plan.AccessRead
		}
	}
	for _, p := range append([]string{"/run", "/tmp", "/var/tmp", "/var/run", "/var/lock"}, ours...) {
		t.base[p] = plan.AccessNone // of the box's own
	}
	t.base[c.path(source{}, "~")] = plan.AccessNone
	if s.Home.V == "read-only" {
		t.base[c.path(source{}, "~")] = plan.AccessRead
	}
	t.base[t.ws] = plan.AccessRead
	if s.Workspace.V == "read-write" {
		t.base[t.ws] = plan.AccessWrite
	}
	for _, it := range expandGroups(s.Hide.Items) {
		p := path.Clean(c.path(it.source, it.V))
		if isGlob(it.V) {
			t.globs = append(t.globs, shownGlob{strings.Split(p, "/"), it.layer})
			continue
		}
		if old, ok := t.hides[p]; !ok || it.layer > old {
			t.hides[p] = it.layer
		}
	}
	for _, it := range expandGroups(s.Protect.Items) {
		if it.V != gitGroup {
			t.protect[path.Clean(c.path(it.source, it.V))] = true
		}
	}
	return t
}

// hidden reports whether something hides exactly p, and whether a grant of p
// from a higher layer shows it all the same.
func (t *shownTree) hidden(p string) (hidden, beaten bool) {
	layer, hidden := t.hides[p]
	elems := strings.Split(p, "/")
	for _, g := range t.globs {
		if matchPath(g.elems, elems) && (!hidden || g.layer > layer) {
			layer, hidden = g.layer, true
		}
	}
	g, granted := t.grants[p]
	return hidden, hidden && granted && g.layer > layer
}

// at gives what the command can do with p.
func (t *shownTree) at(p string) plan.Access {
	access := plan.AccessNone
	for _, d := range ancestors(path.Clean(p)) {
		if a, ok := t.base[d]; ok {
			access = a
		}
		if g, ok := t.grants[d]; ok && d != t.ws {
			access = g.access
		}
		if t.protect[d] && access == plan.AccessWrite {
			access = plan.AccessRead
		}
		if hidden, beaten := t.hidden(d); hidden && !beaten {
			access = plan.AccessNone
		}
	}
	return access
}

// ancestors gives p and what it lies in, outermost first; "~" and "$workspace"
// are outermost, and so is "/".
func ancestors(p string) []string {
	var out []string
	for {
		out = append(out, p)
		i := strings.LastIndexByte(p, '/')
		if i < 0 || p == "/" {
			break
		}
		if p = p[:i]; p == "" {
			p = "/"
		}
	}
	slices.Reverse(out)
	return out
}

// matchPath reports whether a pattern, in elements, matches a path; "**" stands
// for any number of elements.
func matchPath(pattern, elems []string) bool {
	i := slices.Index(pattern, "**")
	if i < 0 {
		return slices.EqualFunc(pattern, elems, match)
	}
	if len(elems) < i || !slices.EqualFunc(pattern[:i], elems[:i], match) {
		return false
	}
	// Only one "**" is possible, see hides.
	return matchTail(pattern[i+1:], elems[i:])
}
