package convert

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// A draft is a profile in the making.
type draft struct {
	tool, source, name string

	view, home, workspace string
	readOnly              bool // something denies writing to the workspace
	grants                []grant
	hide, protect         []string
	hard                  []string // of hide: what nothing reads back
	devices               []string
	network               string
	allow, deny           []string
	denyAll               bool // a deny of every host
	loopback              []string
	scrub                 string
	envAllow, envDeny     []string
	set                   []variable

	notes []Note
	errs  []located
}

type grant struct {
	path  string
	write bool
	back  bool // reads what lies below something denied, as allowRead of srt does
	why   string
	from  *node
}

type variable struct{ name, value string }

type located struct {
	line int
	err  error
}

func (d *draft) fail(n *node, format string, args ...any) {
	d.errs = append(d.errs, located{n.line, &plan.Error{
		Op:     fmt.Sprintf(format, args...),
		Origin: plan.Origin{File: d.source, Line: n.line, Text: plan.Printable(n.key)},
	}})
}

func (d *draft) note(k Kind, n *node, format string, args ...any) {
	d.notes = append(d.notes, Note{Kind: k, Key: plan.Printable(n.key), Line: n.line, Text: plan.Printable(fmt.Sprintf(format, args...))})
}

// leftovers notes whatever nobody looked at.
func (d *draft) leftovers(n *node) {
	for _, f := range n.fields {
		if !f.seen {
			f.seeAll()
			d.note(NotUnderstood, f, "this importer does not know the key; see what it means, and write the profile accordingly")
			continue
		}
		d.leftovers(f)
	}
	for _, f := range n.items {
		if f.seen {
			d.leftovers(f)
		}
	}
}

// unrelated marks keys that say nothing about a box.
func (d *draft) unrelated(n *node, names ...string) {
	for _, name := range names {
		if f := n.get(name); f != nil {
			f.seeAll()
			d.note(Unrelated, f, "does not concern the box")
		}
	}
}

// none marks one key without an equivalent.
func (d *draft) none(n *node, name, why string) {
	if f := n.get(name); f != nil {
		f.seeAll()
		d.note(NoEquivalent, f, "%s", why)
	}
}

// table gives the object called name; nil when it is absent or no object.
func (d *draft) table(n *node, name string) *node {
	f := n.get(name)
	if f == nil {
		return nil
	}
	if f.kind != object {
		f.seeAll()
		d.fail(f, "%s must be %s, not %s", f.key, object, f.kind)
		return nil
	}
	return f
}

// maxItems bounds a list; more is not what a person wrote.
const maxItems = 1000

// strings gives the items of a list of strings.
func (d *draft) strings(n *node, name string) []*node {
	f := n.get(name)
	if f == nil {
		return nil
	}
	f.seeAll()
	if f.kind != array {
		d.fail(f, "%s must be an array of strings, not %s", f.key, f.kind)
		return nil
	}
	if len(f.items) > maxItems {
		d.fail(f, "%s has more than %d entries", f.key, maxItems)
		return nil
	}
	var out []*node
	for _, x := range f.items {
		if x.kind != text {
			d.fail(x, "%s must be a string, not %s", x.key, x.kind)
			continue
		}
		out = append(out, x)
	}
	return out
}

// str gives a string; ok only when it is there.
func (d *draft) str(n *node, name string) (*node, bool) {
	f := n.get(name)
	if f == nil {
		return nil, false
	}
	if f.kind != text {
		f.seeAll()
		d.fail(f, "%s must be a string, not %s", f.key, f.kind)
		return nil, false
	}
	return f, true
}

// boolean gives a boolean; the node is nil when it is absent.
func (d *draft) boolean(n *node, name string) (f *node, value bool) {
	f = n.get(name)
	if f == nil {
		return nil, false
	}
	if f.kind != boolean {
		f.seeAll()
		d.fail(f, "%s must be a boolean, not %s", f.key, f.kind)
		return nil, false
	}
	return f, f.text == "true"
}

// oneOf gives a string out of a closed set.
func (d *draft) oneOf(n *node, name string, known ...string) (*node, bool) {
	f, ok := d.str(n, name)
	if ok && !slices.Contains(known, f.text) {
		d.fail(f, "%s must be one of %s", f.key, strings.Join(known, ", "))
		return nil, false
	}
	return f, ok
}

// accepts asks the language itself whether a piece of a profile is right.
func accepts(table, line string) error {
	_, err := profile.Parse("import", []byte("version = 1\n["+table+"]\n"+line+"\n"))
	return err
}

// reason is the first problem of err, without its place.
func reason(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// What a path is for, which decides what can be said about it.
type use int

const (
	forRead use = iota
	forWrite
	forHide
	forProtect
)

// own are trees that wall makes anew in every box.
var own = []string{"/proc", "/sys", "/dev"}

// path adds one path, in the spelling of wall, to the profile.
func (d *draft) path(n *node, p string, u use) {
	p = clean(p)
	glob := strings.ContainsAny(p, "*?[{")
	switch {
	case u == forProtect && glob:
		d.note(Lost, n, "%s: \"protect\" takes no patterns; name the files and directories", quote(p))
		return
	case u != forHide && glob:
		d.note(NoEquivalent, n, "%s: only \"hide\" takes patterns; name the directories", quote(p))
		return
	case u == forHide && glob && strings.Contains(strings.TrimPrefix(p, "**/"), "**"):
		d.note(Lost, n, "%s: what it matches stays readable, because \"hide\" takes \"**/\" in front only; hide the directory, or its files one by one", quote(p))
		return
	case strings.ContainsAny(p, "[{"):
		wide := widen(p)
		d.note(Different, n, "%s is hidden as %s, which matches more", quote(p), quote(wide))
		p = wide
	}
	if err := accepts("filesystem", "hide = ["+quote(p)+"]"); err != nil {
		k := NotUnderstood
		if u == forHide || u == forProtect {
			k = Lost
		}
		d.note(k, n, "%s: %s", quote(p), reason(err))
		return
	}
	for _, o := range own {
		if p == o || strings.HasPrefix(p, o+"/") {
			d.note(Different, n, "%s: wall makes its own %s", quote(p), o)
			return
		}
	}
	switch u {
	case forRead, forWrite:
		switch {
		case p == "/" && u == forRead && d.view == "host":
			return // that is what view = "host" means
		case p == "/":
			d.note(NoEquivalent, n, "the whole file system is not granted; name the directories that the command needs")
			return
		case u == forWrite && (p == "~" || p == "$home"):
			d.note(NoEquivalent, n, "the whole home is not made writable: what starts with the next login lies there; name the directories that the command needs")
			return
		case p == "." || p == "$workspace":
			if u == forWrite {
				d.workspace = "read-write"
			}
			return
		case p == "/tmp" || p == "/var/tmp" || p == "/private/tmp":
			d.note(Different, n, "%s: the box has a private one, writable, gone after the run", quote(p))
			return
		}
		for i, g := range d.grants {
			if g.path == p {
				d.grants[i].write = g.write || u == forWrite
				return
			}
		}
		d.grants = append(d.grants, grant{path: p, write: u == forWrite, why: d.tool + ": " + plan.Printable(n.key), from: n})
	case forHide:
		if p == "." || p == "$workspace" || p == "/" || p == "**" {
			d.note(NoEquivalent, n, "%s: a box without its workspace is none; use view = \"system\", or name what to hide", quote(p))
			return
		}
		add(&d.hide, p)
	case forProtect:
		if p == "." || p == "$workspace" || p == "/" {
			d.readOnly = true
			return
		}
		add(&d.protect, p)
	}
}

// denyWins removes what is granted although something denies it. In the other
// tools a deny holds for all that lies below it, in a profile the most specific
// path wins. Paths are compared as they are written.
func (d *draft) denyWins() {
	if d.readOnly {
		d.workspace = "read-only"
	}
	kept := d.grants[:0]
	for _, g := range d.grants {
		denied := ""
		for _, h := range d.hide {
			if covers(h, g.path) && !(g.back && !g.write && !slices.Contains(d.hard, h)) {
				denied = h
			}
		}
		if g.write {
			for _, h := range d.protect {
				if covers(h, g.path) {
					denied = h
				}
			}
			if d.readOnly && inWorkspace(g.path) {
				denied = "."
			}
		}
		if denied != "" {
			d.note(Different, g.from, "%s: not granted, because %s is denied", quote(g.path), quote(denied))
			continue
		}
		if inWorkspace(g.path) && !g.back && (d.workspace == "read-write" || !g.write) {
			continue // the workspace is like that already
		}
		kept = append(kept, g)
	}
	d.grants = kept
}

// inWorkspace reports whether a path lies in the workspace, as far as its text
// tells.
func inWorkspace(p string) bool {
	return !path.IsAbs(p) && !strings.HasPrefix(p, "~") && !strings.HasPrefix(p, "$") && p != ".." && !strings.HasPrefix(p, "../")
}

// covers reports whether the path or pattern h holds p or a directory above it.
func covers(h, p string) bool {
	rest, deep := strings.CutPrefix(h, "**/")
	for a := p; ; {
		at := a
		if deep {
			parts := strings.Split(a, "/")
			at = strings.Join(parts[max(0, len(parts)-1-strings.Count(rest, "/")):], "/")
		}
		if ok, err := path.Match(rest, at); ok && err == nil || rest == at {
			return true
		}
		up := path.Dir(a)
		if up == a || up == "." {
			return false
		}
		a = up
	}
}

// clean gives a path without a final slash or a final "/**", which say the same,
// and without "." elements.
func clean(p string) string {
	if p == "" {
		return p
	}
	for strings.HasSuffix(p, "/**") {
		p = strings.TrimSuffix(p, "/**")
		if p == "" {
			return "/"
		}
	}
	if p == "**" {
		return "."
	}
	if p = path.Clean(p); strings.HasPrefix(p, "@") {
		p = "./" + p // alone it would be the name of a group
	}
	return p
}

// widen gives a pattern without "[...]" and "{...}" that matches all that p does.
func widen(p string) string {
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		end := -1
		switch p[i] {
		case '[':
			end = strings.IndexByte(p[i:], ']')
		case '{':
			end = strings.IndexByte(p[i:], '}')
		default:
			b.WriteByte(p[i])
			continue
		}
		// A class is one character. An alternative may be long, or hold a slash,
		// which a star does not match: then the whole rest goes.
		if p[i] == '[' && end > 0 && !strings.Contains(p[i:i+end], "/") {
			b.WriteByte('?')
		} else {
			b.WriteByte('*')
		}
		if end < 0 || strings.Contains(p[i:i+end], "/") {
			break
		}
		i += end
	}
	return b.String()
}

func add(list *[]string, s string) {
	if !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

// host adds one host to the allow or the deny list of the network.
func (d *draft) host(n *node, list *[]string, name, host string) {
	if name == "deny" && host == "*" {
		d.denyAll = true
		return
	}
	h, err := profile.ParseHost(host)
	if err != nil {
		if name == "deny" {
			d.note(Lost, n, "%s: %s; see that network.allow does not match it", quote(host), err)
		} else {
			d.note(NoEquivalent, n, "%s: %s; nothing is allowed in its place", quote(host), err)
		}
		return
	}
	add(list, h.String()) // two spellings of one host would be an error
}

// finishNetwork chooses the mode. Ports alone need none.
func (d *draft) finishNetwork(n *node) {
	if len(d.allow) == 0 {
		return
	}
	d.network = "allow"
	d.notes = append(d.notes, Note{Different, plan.Printable(n.key), n.line,
		`network mode "allow": every program reaches these hosts and no others, without a proxy of its own; an allowed host without a port means ports 443 and 80`})
}

// envPattern adds a pattern of names.
func (d *draft) envPattern(n *node, list *[]string, name, pattern string) bool {
	middle := strings.TrimSuffix(strings.TrimPrefix(pattern, "*"), "*")
	both := strings.HasPrefix(pattern, "*") && strings.HasSuffix(pattern, "*") && pattern != "*"
	if strings.ContainsAny(middle, "*?[]") || strings.Contains(pattern, "?") || both || accepts("environment", name+" = ["+quote(pattern)+"]") != nil {
		d.note(NoEquivalent, n, "%s: a pattern of wall is a name with one star at its start or its end", quote(pattern))
		return false
	}
	add(list, pattern)
	return true
}

// variables copies a table of variables.
func (d *draft) variables(n *node) {
	n.seeAll()
	for _, f := range n.fields {
		v := f.text
		switch f.kind {
		case text, number, boolean:
		default:
			d.fail(f, "%s must be a string, not %s", f.key, f.kind)
			continue
		}
		if err := accepts("environment", "set = { "+quote(f.name)+" = "+quote(v)+" }"); err != nil {
			d.note(NoEquivalent, f, "wall does not take this name or value of a variable")
			continue
		}
		d.set = append(d.set, variable{f.name, v})
	}
}

// quote writes a TOML basic string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069':
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// write gives the text of the profile.
func (d *draft) write() []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# Imported from the settings of %s in %s. Read it before use: what wall cannot", d.tool, plan.Printable(d.source))
	line("# say in the same way stands below as a comment.")
	for _, k := range []struct {
		kind  Kind
		title string
	}{
		{Lost, "RESTRICTIONS THAT THIS PROFILE DOES NOT HAVE:"},
		{NotUnderstood, "Not understood:"},
		{NoEquivalent, "Without an equivalent here:"},
		{Different, "Said in another way, never a wider one:"},
		{Unrelated, "Not about the box:"},
	} {
		first := true
		for _, n := range d.notes {
			if n.Kind != k.kind {
				continue
			}
			if first {
				line("#\n# %s", k.title)
				first = false
			}
			if k.kind == Unrelated {
				line("#   line %d: %s", n.Line, n.Key)
			} else {
				line("#   line %d: %s: %s", n.Line, n.Key, n.Text)
			}
		}
	}
	line("version = 1")
	line("name = %s", quote(d.name))
	line("description = %s", quote("Imported from "+d.tool))
	line("# base hides the usual places of credentials, which %s may leave readable.", d.tool)
	line("extends = \"base\"")

	line("\n[filesystem]")
	line("view = %s", quote(d.view))
	line("home = %s", quote(d.home))
	line("workspace = %s", quote(d.workspace))
	if len(d.grants) > 0 {
		line("grant = [")
		for _, g := range d.grants {
			access := "read"
			if g.write {
				access = "write"
			}
			line("  { path = %s, access = %s, why = %s, optional = true },", quote(g.path), quote(access), quote(g.why))
		}
		line("]")
	}
	list := func(name string, items []string) {
		switch {
		case len(items) == 0:
		case len(items) == 1:
			line("%s = [%s]", name, quote(items[0]))
		default:
			line("%s = [", name)
			for _, s := range items {
				line("  %s,", quote(s))
			}
			line("]")
		}
	}
	list("hide", d.hide)
	list("protect", d.protect)
	list("devices", d.devices)

	line("\n[network]")
	line("mode = %s", quote(d.network))
	if d.network == "allow" {
		list("allow", d.allow)
		if len(d.loopback) > 0 {
			line("loopback = [%s]", strings.Join(d.loopback, ", "))
		}
		list("deny", d.deny) // without a network everything is denied
	}

	if d.scrub != "" || len(d.envAllow)+len(d.envDeny)+len(d.set) > 0 {
		if d.scrub != "" || len(d.envAllow)+len(d.envDeny) > 0 {
			line("\n[environment]")
		}
		if d.scrub != "" {
			line("scrub = %s", quote(d.scrub))
		}
		list("allow", d.envAllow)
		list("deny", d.envDeny)
		if len(d.set) > 0 {
			line("\n[environment.set]")
			values := make(map[string]string)
			for _, v := range d.set {
				values[v.name] = v.value
			}
			for _, n := range slices.Sorted(maps.Keys(values)) {
				line("%s = %s", quote(n), quote(values[n]))
			}
		}
	}
	return []byte(b.String())
}
