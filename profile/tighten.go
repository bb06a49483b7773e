package profile

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// A ChangeKind says what a change does to the privileges of the command.
type ChangeKind string

// The kinds of changes. Other is a change without a known direction; wherever
// it matters it counts as wider.
const (
	Wider    ChangeKind = "wider"
	Narrower ChangeKind = "narrower"
	Other    ChangeKind = "other"
)

// A Change is one difference between two profiles.
type Change struct {
	Key    string // full name
	Kind   ChangeKind
	Item   string      // of a list: the element, as it is compared; "" for a single value
	From   string      // single value, access of a grant, or source of a variable, before: as a profile writes it, "" = none, no limit, or absent
	To     string      // after
	Origin plan.Origin // the line that makes the change; of an element that is gone, what took it away
}

// String tells the change in one sentence without a full stop.
func (c Change) String() string {
	what := map[ChangeKind]string{Wider: "widens", Narrower: "narrows", Other: "changes"}[c.Kind]
	if c.Item == "" {
		from, to := c.From, c.To
		if from == "" {
			from = "no value"
		}
		if to == "" {
			to = "no value"
		}
		return fmt.Sprintf("%s = %s %s %s", c.Key, to, what, from)
	}
	switch {
	case c.From == "" && c.To != "":
		return fmt.Sprintf("%s gains %s, which %s it", c.Key, quote(c.Item), what)
	case c.To == "":
		return fmt.Sprintf("%s loses %s, which %s it", c.Key, quote(c.Item), what)
	}
	return fmt.Sprintf("%s of %s becomes %s instead of %s, which %s it", c.Key, quote(c.Item), c.To, c.From, what)
}

// Compare tells what changes from a to b, key by key in the order of Keys. It
// compares what the profiles say, merged and with groups expanded; each change
// is judged by itself. Paths compare as "~/x", "$workspace/x" and absolute ones.
func Compare(a, b *Stack) []Change {
	sa, sb := a.s, b.s
	c := comparer{a: &sa, b: &sb, path: canonical, filterA: a.filterFile(&sa), filterB: b.filterFile(&sb)}
	return append(c.compare(), comparePhases(a, b)...)
}

// widens adds what b, which has the project layer, takes back of a to found.
// What only a flag and the project layer do together is blamed on the latter.
func (s *Stack) widens(a, b *settings, found []Change) []Change {
	c := comparer{a: a, b: b, path: s.real, strict: true, filterA: s.filterFile(a), filterB: s.filterFile(b)}
	for _, x := range c.compare() {
		if x.Kind == Narrower {
			continue
		}
		if x.Origin.File != s.project.File.Source {
			k, _ := LookupKey(x.Key)
			f := k.field(s.project.File)
			if set, _ := isSet(f); set {
				x.Origin = originOf(f)
			} else {
				x.Origin = plan.Origin{File: s.project.File.Source}
			}
		}
		if !slices.Contains(found, x) {
			found = append(found, x)
		}
	}
	return found
}

// real gives the path that an element means on this host, so that two spellings
// of one path are the same; without a host it is the canonical spelling.
func (s *Stack) real(it source, p string) string {
	if s.t == nil {
		return canonical(it, p)
	}
	base := s.at.workspace
	if it.flag {
		base = s.h.Cwd
	}
	abs, err := s.at.expand(p, base)
	if err != nil {
		return canonical(it, p)
	}
	if !isGlob(p) {
		return s.t.walk(abs).path
	}
	return abs
}

// canonical spells a path without asking a host.
func canonical(it source, p string) string {
	switch head, rest, _ := strings.Cut(p, "/"); head {
	case "", "~", "$workspace", "$cwd":
		return p
	case "$home":
		return strings.TrimSuffix("~/"+rest, "/")
	}
	p = strings.TrimPrefix(p, "./")
	if it.flag {
		return "$cwd/" + p
	}
	return "$workspace/" + p
}

type comparer struct {
	a, b   *settings
	path   func(source, string) string
	strict bool // for a project layer: an added grant is wider whatever it grants
	out    []Change

	filterA, filterB filterFile
}

// A filterFile tells one system call filter that is a file from another: the
// same words in two files may name two filters. The zero value is no file.
type filterFile struct {
	path string // as far as it is known
	id   string // equal only for what is certainly the same
}

// maxFilterFile bounds a filter file, in bytes.
const maxFilterFile = 4 << 20

func (s *Stack) filterFile(x *settings) filterFile {
	v := x.Seccomp.V
	if !isFilterFile(v) {
		return filterFile{}
	}
	dir := x.seccompDir
	if dir == "" {
		dir = s.h.Cwd
	}
	f := filterFile{path: v}
	if p, err := s.at.expand(v, dir); err == nil {
		f.path = path.Clean(p)
		if s.t != nil {
			if data, l, err := s.t.readFile(p, maxFilterFile); err == nil {
				return filterFile{l.path, "content " + Digest(data)}
			}
		}
	}
	f.id = "file " + f.path + " of " + x.Seccomp.Origin.File
	return f
}

func (c *comparer) compare() []Change {
	for i := range keyTable {
		k := &keyTable[i]
		if k.field == nil || k.Tighten == Harmless || k.Name == "name" || k.Name == "extends" {
			continue
		}
		switch a, b := k.field(&c.a.File), k.field(&c.b.File); a := a.(type) {
		case *Value[string]:
			c.text(k, a, b.(*Value[string]))
		case *Value[bool]:
			b := b.(*Value[bool])
			if a.V != b.V {
				kind := Wider
				if b.V == (k.Tighten == TrueTighter) {
					kind = Narrower
				}
				c.add(k, kind, "", fmt.Sprint(a.V), fmt.Sprint(b.V), b.Origin)
			}
		case *Value[uint64]:
			b := b.(*Value[uint64])
			c.number(k, a.Set || k.Default != "", a.V, b.Set || k.Default != "", b.V, b.Origin)
		case *Value[Amount]:
			switch b := b.(*Value[Amount]); {
			case a.V == b.V:
			case a.V.Unit != b.V.Unit:
				c.add(k, Other, "", tomlQuote(a.V.String()), tomlQuote(b.V.String()), b.Origin)
			case b.V.N < a.V.N:
				c.add(k, Narrower, "", tomlQuote(a.V.String()), tomlQuote(b.V.String()), b.Origin)
			default:
				c.add(k, Wider, "", tomlQuote(a.V.String()), tomlQuote(b.V.String()), b.Origin)
			}
		case *List[string]:
			b := b.(*List[string])
			switch k.Name {
			case inHide, inProtect:
				c.lists(k, c.places(k, a.Items), c.places(k, b.Items), b.Origin)
			default:
				c.lists(k, facts(a.Items, plainText), facts(b.Items, plainText), b.Origin)
			}
		case *List[HostPattern]:
			c.hosts(k, a.Items, b.(*List[HostPattern]))
		case *List[uint16]:
			b := b.(*List[uint16])
			if k.Default == "" && !(a.Set && b.Set) {
				c.anyPorts(k, a, b)
				continue
			}
			port := func(n uint16) string { return fmt.Sprint(n) }
			c.lists(k, facts(a.Items, port), facts(b.Items, port), b.Origin)
		case *List[Grant]:
			c.grants(k, a.Items, b.(*List[Grant]))
		case *List[Seed]:
			b := b.(*List[Seed])
			seed := func(items []Item[Seed]) []fact {
				var out []fact
				for _, it := range items {
					out = append(out, fact{item: c.path(it.source, it.V.Path) + " to " + it.V.Target(), origin: it.Origin})
				}
				return out
			}
			c.lists(k, seed(a.Items), seed(b.Items), b.Origin)
		case *List[Var]:
			b := b.(*List[Var])
			c.vars(k, a.Items, b)
		}
	}
	return c.out
}

// anyPorts compares lists of ports of which at most one is there: without it all are
// allowed.
func (c *comparer) anyPorts(k *Key, a, b *List[uint16]) {
	_, from, _ := show(*k, a, 0)
	_, to, _ := show(*k, b, 0)
	switch {
	case b.Set:
		c.add(k, Narrower, "", from, to, b.Origin)
	case a.Set:
		c.add(k, Wider, "", from, to, a.Origin)
	}
}

func (c *comparer) add(k *Key, kind ChangeKind, item, from, to string, o plan.Origin) {
	if k.Tighten == NoDirection {
		kind = Other
	}
	c.out = append(c.out, Change{k.Name, kind, item, from, to, o})
}

func (c *comparer) text(k *Key, a, b *Value[string]) {
	from, to := a.V, b.V
	o := b.Origin
	if k.Name == "environment.scrub" {
		if from == "" {
			from = string(envscrub.Base(c.a.EnvBase.V).DefaultMode())
		}
		if to == "" {
			to = string(envscrub.Base(c.b.EnvBase.V).DefaultMode())
			o = c.b.EnvBase.Origin
		}
	}
	if k.Type == TypeFilter && c.filterA != (filterFile{}) && c.filterB != (filterFile{}) {
		if c.filterA.id == c.filterB.id {
			return
		}
		if from == to {
			from, to = c.filterA.path, c.filterB.path
		}
	} else if from == to {
		return
	}
	kind := Other
	if i, j := slices.Index(k.Values, from), slices.Index(k.Values, to); k.Tighten == EarlierTighter && i >= 0 && j >= 0 {
		kind = Narrower
		if j > i {
			kind = Wider
		}
	}
	if k.Name == "environment.scrub" && from == string(envscrub.ModeDenySecrets) && to == string(envscrub.ModeStrict) && len(c.b.EnvAllow.Items) > 0 {
		kind = Other // only "strict" heeds allow, which may name a secret
	}
	q := func(s string) string {
		if s == "" {
			return ""
		}
		return tomlQuote(s)
	}
	c.add(k, kind, "", q(from), q(to), o)
}

func (c *comparer) number(k *Key, aSet bool, a uint64, bSet bool, b uint64, o plan.Origin) {
	size := func(set bool, n uint64) (uint64, string) {
		if !set || n == 0 && k.zeroIsNoLimit() {
			return math.MaxUint64, ""
		}
		return n, formatNumber(*k, n)
	}
	x, from := size(aSet, a)
	y, to := size(bSet, b)
	switch {
	case y < x:
		c.add(k, Narrower, "", from, to, o)
	case y > x:
		c.add(k, Wider, "", from, to, o)
	}
}

// A fact is one element of a list as it is compared.
type fact struct {
	item   string
	secret string // part of the identity, never shown
	shown  string // of the element, in place of "yes"
	origin plan.Origin
}

func (f fact) yes() string {
	if f.shown != "" {
		return f.shown
	}
	return "yes"
}

func plainText(s string) string { return s }

func facts[T any](items []Item[T], text func(T) string) []fact {
	out := make([]fact, 0, len(items))
	for _, it := range items {
		out = append(out, fact{item: text(it.V), origin: it.Origin})
	}
	return out
}

// places gives the elements of hide and protect. What is protected also while
// it is absent counts as two things, so that a group, which protects most names
// only where they exist, is the weaker one.
func (c *comparer) places(k *Key, items []Item[string]) []fact {
	var out []fact
	for _, it := range expandGroups(items) {
		if it.V == gitGroup {
			out = append(out, fact{item: gitGroup, origin: it.Origin})
			continue
		}
		p := c.path(it.source, it.V)
		out = append(out, fact{item: p, origin: it.Origin})
		if k.Name == inProtect && !it.existing {
			out = append(out, fact{item: p + " while absent", origin: it.Origin})
		}
	}
	return out
}

// lists compares two lists as sets. at is what took away elements that are gone.
func (c *comparer) lists(k *Key, a, b []fact, at plan.Origin) {
	gained, lost := Wider, Narrower
	if k.Tighten == MoreTighter {
		gained, lost = Narrower, Wider
	}
	has := func(list []fact) map[[2]string]bool {
		m := make(map[[2]string]bool, len(list))
		for _, f := range list {
			m[[2]string{f.item, f.secret}] = true
		}
		return m
	}
	inA, inB := has(a), has(b)
	for _, f := range b {
		if id := [2]string{f.item, f.secret}; !inA[id] {
			inA[id] = true
			c.add(k, gained, f.item, "", f.yes(), f.origin)
		}
	}
	for _, f := range a {
		if id := [2]string{f.item, f.secret}; !inB[id] {
			inB[id] = true
			c.add(k, lost, f.item, f.yes(), "", at)
		}
	}
}

// vars compares the tables of fixed variables; values count and are not shown.
func (c *comparer) vars(k *Key, a []Item[Var], b *List[Var]) {
	last := func(items []Item[Var]) []fact {
		var out []fact
		for _, it := range lastVars(items) {
			f := fact{item: it.V.Name, secret: "value " + it.V.Value, origin: it.Origin}
			if it.V.Source != nil {
				f.shown = sourceText(*it.V.Source)
				f.secret = "source " + f.shown
				if startsAtProfile(*it.V.Source) {
					f.secret += " from " + it.dir // the same words, another file or program
				}
			}
			out = append(out, f)
		}
		return out
	}
	n := len(c.out)
	c.lists(k, last(a), last(b.Items), b.Origin)
	for i := range c.out[n:] {
		if x := &c.out[n+i]; x.To == "" {
			x.Kind = Other // the caller's own may cross where the fixed one was
		}
	}
}

// lastVars gives of each variable the element that counts.
func lastVars(items []Item[Var]) []Item[Var] {
	last := make(map[string]int, len(items))
	for i, it := range items {
		last[it.V.Name] = i
	}
	var out []Item[Var]
	for i, it := range items {
		if last[it.V.Name] == i {
			out = append(out, it)
		}
	}
	return out
}

// hosts compares lists of host patterns by what they cover.
func (c *comparer) hosts(k *Key, a []Item[HostPattern], b *List[HostPattern]) {
	gained, lost := Wider, Narrower
	if k.Name == "network.deny" {
		gained, lost = Narrower, Wider
	}
	covered := func(h HostPattern, by []Item[HostPattern]) bool {
		return slices.ContainsFunc(by, func(x Item[HostPattern]) bool {
			deny := k.Name == "network.deny"
			return x.V.Covers(deny, h, deny)
		})
	}
	// From the whole network to a list of hosts nothing is gained.
	fromHost := k.Name == "network.allow" && c.a.Network.V == "host" && c.b.Network.V == "allow"
	for _, it := range b.Items {
		if !covered(it.V, a) && !fromHost {
			c.add(k, gained, it.V.String(), "", "yes", it.Origin)
		}
	}
	for _, it := range a {
		if !covered(it.V, b.Items) {
			c.add(k, lost, it.V.String(), "yes", "", b.Origin)
		}
	}
}

// A grantAt is the grant that counts at one path.
type grantAt struct {
	access plan.Access
	layer  int
	origin plan.Origin
}

// grantMap gives the grant that counts at each path, as the builder picks it.
func (c *comparer) grantMap(items []Item[Grant]) (map[string]grantAt, []string) {
	m := map[string]grantAt{}
	var order []string
	for _, it := range items {
		p := c.path(it.source, it.V.Path)
		old, ok := m[p]
		if !ok {
			order = append(order, p)
		}
		if !ok || it.layer > old.layer || it.layer == old.layer && it.V.Access == plan.AccessWrite {
			m[p] = grantAt{it.V.Access, it.layer, it.Origin}
		}
	}
	return m, order
}

// rank orders accesses.
func rank(a plan.Access) int {
	return slices.Index([]plan.Access{plan.AccessNone, plan.AccessRead, plan.AccessWrite}, a)
}

// grants compares what is granted, by what that does: a grant can also take
// away, as one for reading inside a writable tree does, and it can uncover what
// is hidden around it. So what stands at the path on both sides decides. A grant
// for writing, below which git's files are protected, may not leave a path that
// stays writable. One that is gone without effect is no change; one that comes
// without effect has no known direction, because it may name a socket.
func (c *comparer) grants(k *Key, a []Item[Grant], b *List[Grant]) {
	ma, orderA := c.grantMap(a)
	mb, orderB := c.grantMap(b.Items)
	before, after := c.shown(c.a, ma), c.shown(c.b, mb)
	for _, p := range orderB {
		old, ok := ma[p]
		now := mb[p]
		switch {
		case !ok:
			kind := Wider
			if !c.strict { // else it does not matter, and an unreviewed file may have many
				if was, is := rank(before.at(p)), rank(after.at(p)); is < was {
					kind = Narrower
				} else if is == was && is > 0 {
					kind = Other
				}
			}
			c.add(k, kind, p, "", tomlQuote(string(now.access)), now.origin)
		case rank(now.access) > rank(old.access):
			c.add(k, Wider, p, tomlQuote(string(old.access)), tomlQuote(string(now.access)), now.origin)
		case rank(now.access) < rank(old.access):
			c.add(k, Narrower, p, tomlQuote(string(old.access)), tomlQuote(string(now.access)), now.origin)
		case now.layer != old.layer:
			_, was := before.hidden(path.Clean(p))
			if hidden, is := after.hidden(path.Clean(p)); hidden && is && !was { // it comes from a higher layer now
				c.add(k, Wider, p, "", tomlQuote(string(now.access)), now.origin)
			}
		}
	}
	for _, p := range orderA {
		if _, ok := mb[p]; ok {
			continue
		}
		was, is := before.at(p), after.at(p)
		kind := Narrower
		switch {
		case rank(is) > rank(was) || is == plan.AccessWrite:
			kind = Wider
		case is == was && !c.strict:
			continue
		}
		c.add(k, kind, p, tomlQuote(string(ma[p].access)), "", b.Origin)
	}
}

// An Effective is a flat description of what a profile allows, without asking
// the host what exists. All lists are sorted and without duplicates; paths are
// spelled "~/x", "$workspace/x", "$cwd/x" or absolute, groups are expanded.
type Effective struct {
	Enforce       string
	IfUnavailable string
	Require       []string
	Walls         []string // the walls that are up

	View, Home, Workspace, Tmp string
	Readable                   []string // grants
	Writable                   []string // grants
	Hidden                     []string // paths and patterns
	Protected                  []string // paths; "@git" for git's files
	Devices                    []string
	Seeds                      []string // "~/path to ~/path"

	Network        string // "none", "allow" or "host"; with enforce "fs" always "host"
	Hosts          []string
	HostsDenied    []string
	Loopback       []uint16
	Publish        []uint16
	Ports          []uint16 // with the network of the host; nil: all
	ProxyVariables bool
	CheckSNI       bool
	UpstreamProxy  string

	EnvBase  string
	EnvScrub string // the mode in force, also when it is the default of the base
	EnvAllow []string
	EnvDeny  []string
	EnvSet   []string // names; of those with a source also that, as a profile writes it
	EnvPass  []string
	EnvAuth  string
	Inject   bool
	Caches   []string // tools

	CachesKeep   bool
	CachesMethod string

	TTY     string
	Seccomp string
	Nested  bool

	Limits []EffectiveLimit // in the order of Keys; those without a limit are left out
}

// An EffectiveLimit is one limit in force.
type EffectiveLimit struct {
	Name string // without "limits."
	Text string // as a profile writes it
}

// Effective describes what the profile allows, before any look at the host.
func (s *Stack) Effective() Effective {
	x := s.s
	c := comparer{a: &x, b: &x, path: canonical}
	e := Effective{
		Enforce: x.Enforce.V, IfUnavailable: x.IfUnavailable.V, Require: texts(x.Require.Items, plainText),
		View: x.View.V, Home: x.Home.V, Workspace: x.Workspace.V, Tmp: x.Tmp.V,
		Devices: texts(x.Devices.Items, plainText),
		Network: x.Network.V, Hosts: texts(x.NetAllow.Items, HostPattern.String), HostsDenied: texts(x.NetDeny.Items, HostPattern.String),
		ProxyVariables: x.ProxyVariables.V, CheckSNI: x.CheckSNI.V, UpstreamProxy: x.UpstreamProxy.V,
		EnvBase: x.EnvBase.V, EnvScrub: x.EnvScrub.V, EnvAllow: texts(x.EnvAllow.Items, plainText), EnvDeny: texts(x.EnvDeny.Items, plainText),
		EnvSet: texts(lastVars(x.EnvSet.Items), Var.effective), EnvPass: texts(x.EnvPass.Items, plainText), EnvAuth: x.EnvAuth.V,
		Inject: x.Inject.V, Caches: texts(x.Caches.Items, plainText), CachesKeep: x.CachesKeep.V, CachesMethod: x.CachesMethod.V,
		TTY: x.TTY.V, Seccomp: x.Seccomp.V, Nested: x.Nested.V,
	}
	if e.EnvScrub == "" {
		e.EnvScrub = string(envscrub.Base(x.EnvBase.V).DefaultMode())
	}
	switch x.Enforce.V {
	case "fs+net":
		e.Walls = []string{"environment", "filesystem", "landlock", "limits", "network", "process", "syscalls"}
		if x.Network.V == "host" {
			e.Walls = slices.Delete(e.Walls, 4, 5)
		}
	case "fs":
		e.Walls = []string{"environment", "filesystem", "landlock", "limits", "process", "syscalls"}
	default:
		e.Walls = []string{"environment"}
	}
	grants, order := c.grantMap(x.Grant.Items)
	for _, p := range order {
		if grants[p].access == plan.AccessWrite {
			e.Writable = append(e.Writable, p)
		} else {
			e.Readable = append(e.Readable, p)
		}
	}
	slices.Sort(e.Readable)
	slices.Sort(e.Writable)
	spelled := func(items []Item[string]) (out []string) {
		for _, it := range expandGroups(items) {
			if it.V == gitGroup {
				out = append(out, gitGroup)
			} else {
				out = append(out, canonical(it.source, it.V))
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	e.Hidden, e.Protected = spelled(x.Hide.Items), spelled(x.Protect.Items)
	for _, it := range x.Seed.Items {
		e.Seeds = append(e.Seeds, canonical(it.source, it.V.Path)+" to "+it.V.Target())
	}
	slices.Sort(e.Seeds)
	e.Seeds = slices.Compact(e.Seeds)
	ports := func(items []Item[uint16]) (out []uint16) {
		for _, it := range items {
			out = append(out, it.V)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	e.Loopback, e.Publish = ports(x.Loopback.Items), ports(x.Publish.Items)
	if x.Ports.Set {
		e.Ports = append([]uint16{}, ports(x.Ports.Items)...)
	}
	for i := range keyTable {
		k := &keyTable[i]
		if k.Table() != "limits" {
			continue
		}
		switch v := k.field(&x.File).(type) {
		case *Value[uint64]:
			if (v.Set || k.Default != "") && !(v.V == 0 && k.zeroIsNoLimit()) {
				e.Limits = append(e.Limits, EffectiveLimit{k.Last(), formatNumber(*k, v.V)})
			}
		case *Value[Amount]:
			e.Limits = append(e.Limits, EffectiveLimit{k.Last(), tomlQuote(v.V.String())})
		}
	}
	return e
}

func texts[T any](items []Item[T], text func(T) string) []string {
	var out []string
	for _, it := range items {
		out = append(out, text(it.V))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
