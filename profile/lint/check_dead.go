package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// privateTrees are what wall makes anew for each run: nothing of the host is in
// them, unless it is granted.
var privateTrees = []string{"/proc", "/sys", "/dev", "/run", "/var/run", "/tmp", "/var/tmp"}

// kernelTrees are those of them in which nothing can be granted either.
var kernelTrees = privateTrees[:3]

func inAny(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return within(p, d) })
}

// deadRules finds lines without effect because of another line.
func deadRules(x *check) {
	x.shadowedList("filesystem.hide", "hidden")
	x.shadowedList("filesystem.protect", "protected")
	x.deadGrants()
	x.deadVariables()
	x.coveredHosts(false)
}

// shadowedList finds paths of the checked file that another path of the list
// covers. The other one has to be there without this one: of two that are the
// same, the later is reported.
func (x *check) shadowedList(key, what string) {
	all := x.spots(key)
	for i := range all {
		if all[i].layer != x.m.top || all[i].origin.Line == 0 {
			continue
		}
		e, glob := all[i], isGlob(all[i].val)
		for j := range all {
			if i == j || !globCovers(all[j].val, e.val) || glob && all[j].val != e.val {
				continue
			}
			o := all[j]
			same := o.val == e.val
			if same && j > i || o.layer < x.m.top && same || o.origin == e.origin { // the same as inherited is another rule's
				continue
			}
			// A grant in between makes the narrower line necessary.
			if slices.ContainsFunc(x.grants(), func(g entry) bool { return within(e.val, g.val) && depth(g.val) > depth(o.val) }) {
				continue
			}
			x.on(x.written(e), fmt.Sprintf("%s is %s by %q already%s", e.val, what, o.val, x.where(o)))
			break
		}
	}
}

// written gives the entry with its text as it was written.
func (x *check) written(e entry) entry {
	for _, o := range x.m.own {
		if o.key == e.key && o.origin == e.origin {
			return o
		}
	}
	return e
}

func (x *check) deadGrants() {
	all := x.grants()
	seen := map[string]entry{}
	for _, g := range x.ownGrants() {
		if first, twice := seen[g.val]; twice {
			x.onGrant(g, fmt.Sprintf("%s is granted in line %d already", grantText(g), first.origin.Line))
			continue
		}
		seen[g.val] = g
		write := g.grant.Access == plan.AccessWrite
		h, hidden := x.hiddenBy(g.val)
		if hidden && depth(h.val) >= depth(g.val) {
			x.onGrant(g, fmt.Sprintf("%s stays hidden by %q%s, which wins at the same path", grantText(g), h.val, x.where(h)))
			continue
		}
		if hidden {
			continue // grant-cancels-hide says it
		}
		// What would the path be without this line?
		level, access, by := -1, "", ""
		switch {
		case within(g.val, "$workspace") && !climbs(g.val):
			level, access, by = 0, "write", "the workspace is writable"
			if x.m.is("filesystem.workspace", "read-only") {
				access, by = "read", "the workspace is readable"
			}
			if slices.ContainsFunc(x.spots("filesystem.protect"), func(e entry) bool { return globCovers(e.val, g.val) }) ||
				slices.ContainsFunc(projectStartup, func(p place) bool { return within(g.val, p.path) }) {
				access = "" // the grant lifts a protection
			}
		case within(g.val, "~"):
			if x.m.is("filesystem.home", "read-only") {
				level, access, by = 0, "read", "the home directory is readable"
			}
		case !inAny(g.val, privateTrees) && x.m.is("filesystem.view", "host"):
			level, access, by = 0, "read", "the whole host is readable"
		}
		for _, o := range all {
			if d := depth(o.val) + 1; o.origin != g.origin && o.layer <= g.layer && below(g.val, o.val) && d > level {
				level, access, by = d, string(o.grant.Access), fmt.Sprintf("%q is granted%s", o.grant.Path, x.where(o))
			}
		}
		if access == "write" && write || access == "read" && !write {
			x.onGrant(g, fmt.Sprintf("the grant of %s changes nothing: %s", grantText(g), by))
		}
	}
}

func (x *check) deadVariables() {
	denies := x.m.all("environment.deny")
	for _, e := range x.m.ownOf("environment.allow", "environment.pass") {
		for _, d := range denies {
			if !e.empty && (pattern(d.val).Match(e.val, true) && !strings.Contains(e.val, "*") || strings.EqualFold(d.val, e.val)) {
				x.on(e, fmt.Sprintf("%q is denied by %q%s, which wins", e.val, d.val, x.where(d)))
				break
			}
		}
	}
	sets := x.m.all("environment.set")
	for _, e := range x.m.mine("environment.pass") {
		for _, s := range sets {
			if !e.empty && s.val == e.val {
				x.on(e, fmt.Sprintf("%q is set%s, which replaces what is passed", e.val, x.where(s)))
				break
			}
		}
	}
}

// coveredHosts finds hosts that another pattern of the list covers: of the same
// file, or of what is inherited. Of two that cover each other the later is reported.
func (x *check) coveredHosts(inherited bool) {
	for _, key := range []string{"network.allow", "network.deny"} {
		deny, word := false, "allowed"
		if key == "network.deny" {
			deny, word = true, "denied"
		}
		all := patterns(x.m.all(key))
		for _, e := range patterns(x.m.mine(key)) {
			for _, o := range all {
				if o.origin == e.origin || (o.layer < x.m.top) != inherited || o.val == e.val || !o.host.Covers(deny, e.host, deny) {
					continue
				}
				if e.host.Covers(deny, o.host, deny) && o.layer == e.layer && later(o.origin, e.origin) {
					continue
				}
				x.on(e.entry, fmt.Sprintf("%q is %s by %q already%s", e.val, word, o.val, x.where(o.entry)))
				break
			}
		}
	}
}

// A hostEntry is one host of a list.
type hostEntry struct {
	entry
	host profile.HostPattern
}

// patterns reads the hosts of a list, each once.
func patterns(list []entry) []hostEntry {
	var out []hostEntry
	for _, e := range list {
		if p, err := profile.ParseHost(e.val); err == nil && !e.empty {
			out = append(out, hostEntry{e, p})
		}
	}
	return out
}

// later reports whether a stands behind b in one file.
func later(a, b plan.Origin) bool {
	return a.Line > b.Line || a.Line == b.Line && a.Column > b.Column
}

// neverMatches finds lines that nothing can match.
func neverMatches(x *check) {
	if x.m.is("enforce", "off") {
		for _, e := range x.m.mine("require") {
			if !e.empty {
				x.on(e, fmt.Sprintf("the wall %q is required, but enforce = \"off\" puts up none", e.val))
			}
		}
		return
	}
	grants := x.grants()
	covered := func(p string, access plan.Access) bool {
		return slices.ContainsFunc(grants, func(g entry) bool {
			return (within(p, g.val) || below(g.val, p)) && (access == "" || g.grant.Access == access)
		})
	}
	for _, e := range x.m.mine("filesystem.hide") {
		if p := x.spot(e.val); !e.empty && inAny(p, privateTrees) && !covered(p, "") {
			x.on(e, fmt.Sprintf("%q is not in the box: wall makes that tree anew", e.val))
		}
	}
	for _, e := range x.m.mine("filesystem.protect") {
		if e.empty || strings.HasPrefix(e.val, "@") {
			continue
		}
		p := x.spot(e.val)
		switch {
		case covered(p, plan.AccessWrite):
		case within(p, "$workspace") && !climbs(p) && x.m.is("filesystem.workspace", "read-only"):
			x.on(e, fmt.Sprintf("%q is not writable anyway: the workspace is read-only", e.val))
		case p[0] == '/' && !inAny(p, privateTrees):
			x.on(e, fmt.Sprintf("%q is not writable anyway: no grant makes it so", e.val))
		}
	}
	for _, g := range x.ownGrants() {
		if inAny(g.val, kernelTrees) {
			x.onGrant(g, grantText(g)+" cannot be granted: wall makes that tree anew; see devices for /dev")
		}
	}
	if x.m.is("environment.scrub", "off") {
		for _, e := range x.m.ownOf("environment.allow", "environment.deny") {
			if !e.empty {
				x.on(e, fmt.Sprintf("%q has no effect: scrub = \"off\" lets every variable cross", e.val))
			}
		}
	}
	for _, e := range x.m.ownOf("environment.allow", "environment.deny") {
		if s := strings.TrimSuffix(strings.TrimPrefix(e.val, "*"), "*"); !e.empty && (strings.Contains(s, "*") || len(e.val) > 1 && e.val[0] == '*' && strings.HasSuffix(e.val, "*")) {
			x.on(e, fmt.Sprintf("%q matches no variable: a star stands for anything only at one end", e.val))
		}
	}
	mode := x.m.get("network.mode").val
	for _, key := range []string{"network.allow", "network.deny", "network.loopback", "network.publish"} {
		own := x.m.mine(key)
		port := key == "network.loopback" || key == "network.publish"
		if len(own) > 0 && !own[0].empty && (mode == "host" && key != "network.deny" && !(key == "network.publish" && x.m.get("network.ports").layer >= 0) || mode == "none" && !port) {
			text := fmt.Sprintf("%s has no effect with network mode %q", lastKey(key), mode)
			if mode == "none" && key == "network.allow" {
				text += "; mode = \"allow\" is what has hosts reached"
			}
			x.on(own[0], text)
		}
	}
	for _, key := range []string{"network.proxy-variables", "network.check-sni", "network.upstream-proxy"} {
		if own := x.m.mine(key); len(own) > 0 && own[0].val != "false" && mode != "allow" && !(mode == "host" && key == "network.check-sni") {
			x.on(own[0], fmt.Sprintf("%s has no effect with network mode %q", lastKey(key), mode))
		}
	}
	if own := x.m.mine("network.ports"); len(own) > 0 && mode != "host" {
		x.on(own[0], fmt.Sprintf("ports has no effect with network mode %q", mode))
	}
	if own := x.m.mine("network.mode"); len(own) > 0 && mode == "allow" && !slices.ContainsFunc(x.m.all("network.allow"), func(e entry) bool { return !e.empty }) {
		x.on(own[0], "no host is allowed, so that the command reaches none")
	}
	for _, key := range []string{"network.allow", "network.deny"} {
		for _, e := range x.m.mine(key) {
			if p, err := profile.ParseHost(e.val); err == nil && !e.empty && p.Synthetic().IsValid() && !wide(e.val) {
				x.on(e, fmt.Sprintf("%q does not speak of %s, which wall hands out for names", e.val, p.Synthetic()))
			}
		}
	}
}

// redundant finds values that are the same without the line.
func redundant(x *check) {
	if x.src.Path == "" && strings.HasPrefix(x.src.Name, "built-in:") {
		return // a built-in profile says what matters in it, to be read
	}
	x.coveredHosts(true)
	for _, e := range x.m.own {
		switch {
		case e.empty, e.key == "name", e.key == "description", e.key == "extends", e.key == "filesystem.grant", e.key == "environment.set":
		case !e.list:
			if in := x.m.inherited(e.key); in.layer >= 0 && in.val == e.val {
				x.on(e, fmt.Sprintf("%s is %q already%s", lastKey(e.key), e.val, x.where(in)))
			}
		default:
			norm := func(s string) string {
				if e.key == "filesystem.hide" || e.key == "filesystem.protect" {
					return x.spot(s)
				}
				return s
			}
			for _, in := range x.m.below(e.key) {
				if norm(in.val) == norm(e.val) && !slices.ContainsFunc(x.m.mine(e.key), func(o entry) bool { return o.empty }) {
					x.on(e, fmt.Sprintf("%q is in %s already%s", e.val, lastKey(e.key), x.where(in)))
					break
				}
			}
		}
	}
}
