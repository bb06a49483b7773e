package profile

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// A Value is a single value of a profile; Set tells an absent key from a
// zero value.
type Value[T any] struct {
	Set    bool
	V      T
	Origin plan.Origin
}

// An Item is one element of a list with the place where it was written.
type Item[T any] struct {
	V      T
	Origin plan.Origin
}

// A List is a list of a profile. Set with no Items is an explicitly empty
// list, which drops what lower layers said; not Set changes nothing.
type List[T any] struct {
	Set    bool
	Items  []Item[T]
	Origin plan.Origin
}

// A Grant is a carve-out: a path that is visible although the view or the home
// mode would not show it.
type Grant struct {
	Path     string
	Access   plan.Access // plan.AccessRead or plan.AccessWrite
	Why      string      // the reason that review reads; may be empty
	Optional bool        // skip silently when the path does not exist
}

// A Var is one variable of the environment's set table.
type Var struct {
	Name  string
	Value string
}

// A File is one parsed profile file: what it says and where, without defaults
// and without the profiles it extends.
type File struct {
	Source string // the name given to Parse

	Name          Value[string]
	Description   Value[string]
	Extends       Value[string]
	Enforce       Value[string]
	IfUnavailable Value[string]
	Require       List[string]

	View      Value[string]
	Home      Value[string]
	Workspace Value[string]
	Tmp       Value[string]
	Grant     List[Grant]
	Hide      List[string]
	Protect   List[string]
	Devices   List[string]

	Network Value[string]

	EnvBase  Value[string]
	EnvScrub Value[string]
	EnvAllow List[string]
	EnvDeny  List[string]
	EnvSet   List[Var]
	EnvPass  List[string]
	EnvAuth  Value[string]

	TTY     Value[string]
	Seccomp Value[string]
	Nested  Value[bool]

	Core      Value[uint64]
	OpenFiles Value[uint64]
	FileSize  Value[uint64]
}

// Parse reads one profile file. The name is used in origins: the path as the
// user wrote it, or "built-in:NAME". On failure the error joins one
// *plan.Error for every problem of the file, in file order, each with the
// line and column and the text of the line; the File is then nil.
//
// Parse does not read the file that it extends and does not look at paths.
func Parse(name string, data []byte) (*File, error) {
	d, root := readTOML(name, data)
	f := &File{Source: name}
	if len(d.probs) == 0 || len(root.keys) > 0 {
		decodeFile(d, root, f)
	}
	if len(d.probs) > 0 {
		return nil, d.err()
	}
	return f, nil
}

// A key says how one key of a table is decoded. Keys of the language that this
// version does not carry out have a nil decode: they are refused, never ignored.
type key struct {
	name   string
	decode func(d *document, k keyed)
}

// decodeTable decodes the keys of t, which is the table named where ("" = top level).
func decodeTable(d *document, t *value, where string, keys []key) {
	for _, k := range t.keys {
		i := slices.IndexFunc(keys, func(x key) bool { return x.name == k.name })
		full := k.name
		if where != "" {
			full = where + "." + k.name
		}
		switch {
		case i < 0:
			d.fail(k.off, suggest(k.name, keys, where), "unknown key %q", full)
		case keys[i].decode == nil:
			d.fail(k.off, "remove the line", "%q is not available in this version", full)
		default:
			keys[i].decode(d, k)
		}
	}
}

// allKeys names the table of each key, for suggestions across tables.
var allKeys = map[string]string{
	"view": "filesystem", "home": "filesystem", "workspace": "filesystem", "tmp": "filesystem", "grant": "filesystem",
	"hide": "filesystem", "protect": "filesystem", "devices": "filesystem", "mode": "network",
	"base": "environment", "scrub": "environment", "deny": "environment", "set": "environment",
	"pass": "environment", "auth": "environment", "tty": "process", "seccomp": "process", "nested-sandboxes": "process",
	"open-files": "limits", "file-size": "limits", "core": "limits",
	"enforce": "", "if-unavailable": "", "require": "", "extends": "",
}

func suggest(name string, keys []key, where string) string {
	var names []string
	for _, k := range keys {
		if k.decode != nil {
			names = append(names, k.name)
		}
	}
	if s := nearest(name, names); s != "" {
		return fmt.Sprintf("did you mean %q?", s)
	}
	if table, ok := allKeys[name]; ok && table != where {
		if table == "" {
			return fmt.Sprintf("%q belongs above the first table", name)
		}
		return fmt.Sprintf("%q belongs into the table [%s]", name, table)
	}
	return "known here: " + strings.Join(names, ", ")
}

// nearest gives the candidate within an edit distance of two (one for words
// of up to four letters), or "".
func nearest(word string, candidates []string) string {
	if len(word) > 64 {
		return ""
	}
	fold := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "-")) }
	best, bestAt := "", 3
	if len(word) <= 4 {
		bestAt = 2
	}
	for _, c := range candidates {
		if n := distance(fold(word), fold(c)); n < bestAt {
			best, bestAt = c, n
		}
	}
	return best
}

// distance is the Levenshtein distance with transpositions of neighbours.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

func decodeFile(d *document, root *value, f *File) {
	table := func(name string, keys []key) key {
		return key{name, func(d *document, k keyed) {
			if k.val.kind != tomlTable {
				d.fail(k.val.off, "", "%q must be a table, not %s", name, k.val.kind)
				return
			}
			decodeTable(d, k.val, name, keys)
		}}
	}
	decodeTable(d, root, "", []key{
		{"version", func(d *document, k keyed) {
			if k.val.kind != tomlInteger {
				d.fail(k.val.off, "", "\"version\" must be an integer, not %s", k.val.kind)
			} else if n, err := strconv.ParseInt(k.val.text, 0, 64); err != nil || n != 1 {
				d.fail(k.val.off, "write version = 1", "profile version %s is not known", k.val.text)
			}
		}},
		text("name", &f.Name), text("description", &f.Description), text("extends", &f.Extends),
		enum("enforce", &f.Enforce, "off", "fs", "fs+net"),
		enum("if-unavailable", &f.IfUnavailable, "fail", "degrade"),
		list("require", &f.Require, func(d *document, v *value, s string) {
			oneOf(d, v, "require", s, "filesystem", "network", "process", "syscalls", "landlock", "environment", "limits")
		}),
		table("filesystem", []key{
			enum("view", &f.View, "host", "system"),
			enum("home", &f.Home, "read-only", "scratch", "hidden"),
			enum("workspace", &f.Workspace, "read-write", "read-only"),
			enum("tmp", &f.Tmp, "scratch", "memory"),
			{"grant", func(d *document, k keyed) { decodeGrants(d, k, &f.Grant) }},
			list("hide", &f.Hide, checkPath), list("protect", &f.Protect, checkPath), list("devices", &f.Devices, checkPath),
		}),
		table("network", []key{
			{"mode", func(d *document, k keyed) {
				if k.val.kind == tomlString && k.val.text == "allow" {
					d.fail(k.val.off, `use mode = "none" or "host"`, "network mode allow is not available in this version")
					return
				}
				enum("mode", &f.Network, "none", "host").decode(d, k)
			}},
			{"allow", nil}, {"loopback", nil}, {"publish", nil},
		}),
		table("environment", []key{
			enum("base", &f.EnvBase, envBases...),
			enum("scrub", &f.EnvScrub, envScrubs...),
			list("allow", &f.EnvAllow, checkWord), list("deny", &f.EnvDeny, checkWord),
			{"set", func(d *document, k keyed) { decodeSet(d, k, &f.EnvSet) }},
			list("pass", &f.EnvPass, checkName),
			{"auth", func(d *document, k keyed) {
				text("auth", &f.EnvAuth).decode(d, k)
				if f.EnvAuth.Set {
					checkName(d, k.val, f.EnvAuth.V)
				}
			}},
			{"inject", nil}, {"caches", nil},
		}),
		table("process", []key{
			{"tty", func(d *document, k keyed) {
				if k.val.kind == tomlString && k.val.text == "pty" {
					d.fail(k.val.off, `use tty = "auto", "inherit" or "none"`, "tty pty is not available in this version")
					return
				}
				enum("tty", &f.TTY, "auto", "inherit", "none").decode(d, k)
			}},
			{"seccomp", func(d *document, k keyed) {
				text("seccomp", &f.Seccomp).decode(d, k)
				if s := f.Seccomp.V; f.Seccomp.Set && s != "default" && s != "strict" && !isFilterFile(s) {
					d.fail(k.val.off, `write a file as "./name.json"`, "\"seccomp\" must be \"default\", \"strict\" or a file, not %q", s)
				}
			}},
			{"nested-sandboxes", func(d *document, k keyed) {
				if b, ok := boolean(d, k); ok {
					f.Nested = Value[bool]{true, b, d.origin(k.off)}
				}
			}},
		}),
		table("limits", []key{
			{"core", func(d *document, k keyed) {
				if limit(d, k, "core", false, &f.Core); f.Core.Set && f.Core.V != 0 {
					d.fail(k.val.off, "write core = 0 or remove the line", "core dumps cannot be turned on: they would hold the environment")
				}
			}},
			{"open-files", func(d *document, k keyed) {
				if limit(d, k, "open-files", false, &f.OpenFiles); f.OpenFiles.Set && f.OpenFiles.V < minOpenFiles {
					d.fail(k.val.off, "", "\"open-files\" must be at least %d", minOpenFiles)
				}
			}},
			{"file-size", func(d *document, k keyed) { limit(d, k, "file-size", true, &f.FileSize) }},
			{"time", nil}, {"grace", nil}, {"memory", nil}, {"processes", nil}, {"scratch", nil}, {"output", nil},
		}),
	})
	if root.get("version") == nil && !slices.ContainsFunc(d.probs, func(p problem) bool { return p.off == 0 }) {
		d.fail(0, "write version = 1 in the first line", "the profile does not say its version")
	}
}

// minOpenFiles leaves room for the standard streams, the loader and a shell.
const minOpenFiles = 16

func text(name string, to *Value[string]) key {
	return key{name, func(d *document, k keyed) {
		if s, ok := str(d, k.val, name); ok {
			*to = Value[string]{true, s, d.origin(k.off)}
		}
	}}
}

func enum(name string, to *Value[string], allowed ...string) key {
	return key{name, func(d *document, k keyed) {
		if s, ok := str(d, k.val, name); ok && oneOf(d, k.val, name, s, allowed...) {
			*to = Value[string]{true, s, d.origin(k.off)}
		}
	}}
}

func list(name string, to *List[string], check func(*document, *value, string)) key {
	return key{name, func(d *document, k keyed) {
		if k.val.kind != tomlArray {
			d.fail(k.val.off, fmt.Sprintf("write %s = [...]", name), "%q must be an array of strings, not %s", name, k.val.kind)
			return
		}
		*to = List[string]{Set: true, Origin: d.origin(k.off)}
		for _, v := range k.val.items {
			s, ok := str(d, v, "an element of "+name)
			if !ok {
				continue
			}
			n := len(d.probs)
			check(d, v, s)
			if slices.ContainsFunc(to.Items, func(i Item[string]) bool { return i.V == s }) {
				d.fail(v.off, "remove one of them", "%q is twice in %q", s, name)
			}
			if n == len(d.probs) {
				to.Items = append(to.Items, Item[string]{s, d.origin(v.off)})
			}
		}
	}}
}

func str(d *document, v *value, name string) (string, bool) {
	if v.kind != tomlString {
		d.fail(v.off, "", "%s must be a string, not %s", quoteKey(name), v.kind)
		return "", false
	}
	if strings.IndexByte(v.text, 0) >= 0 {
		d.fail(v.off, "", "%s contains a NUL byte", quoteKey(name))
		return "", false
	}
	return v.text, true
}

func quoteKey(name string) string {
	if strings.Contains(name, " ") {
		return name
	}
	return strconv.Quote(name)
}

func boolean(d *document, k keyed) (bool, bool) {
	if k.val.kind != tomlBool {
		d.fail(k.val.off, "write true or false", "%q must be a boolean, not %s", k.name, k.val.kind)
		return false, false
	}
	return k.val.text == "true", true
}

func oneOf(d *document, v *value, name, s string, allowed ...string) bool {
	if slices.Contains(allowed, s) {
		return true
	}
	hint := ""
	if n := nearest(s, allowed); n != "" {
		hint = fmt.Sprintf("did you mean %q?", n)
	}
	d.fail(v.off, hint, "%q must be %s, not %q", name, orList(allowed), s)
	return false
}

func orList(words []string) string {
	var b strings.Builder
	for i, w := range words {
		switch {
		case i == 0:
		case i == len(words)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(w))
	}
	return b.String()
}

func checkPath(d *document, v *value, s string) {
	if msg, hint := badPath(s); msg != "" {
		d.fail(v.off, hint, "%s", msg)
	}
}

// badPath reports what is wrong with a path as written, before any look at the host.
func badPath(s string) (msg, hint string) {
	switch {
	case s == "":
		return "the path is empty", ""
	case len(s) > 4096:
		return "the path is longer than 4096 bytes", ""
	case strings.IndexByte(s, 0) >= 0:
		return "the path contains a NUL byte", ""
	case strings.HasPrefix(s, "~") && s != "~" && !strings.HasPrefix(s, "~/"):
		return fmt.Sprintf("%q: the home of another user cannot be named by ~", s), "write the absolute path, or ./ in front of a file name that starts with ~"
	}
	if strings.HasPrefix(s, "$") {
		name, _, _ := strings.Cut(s[1:], "/")
		switch name {
		case "workspace", "home", "cwd":
		case "scratch":
			return "$scratch cannot be named here: it is made for each run, private and writable", "use /tmp, which is in the scratch directory"
		default:
			hint := "only ~, $home, $workspace and $cwd expand"
			if n := nearest(name, []string{"workspace", "home", "cwd"}); n != "" {
				hint = fmt.Sprintf("did you mean $%s?", n)
			}
			return fmt.Sprintf("unknown variable %q in a path", "$"+name), hint
		}
	}
	return "", ""
}

func checkWord(d *document, v *value, s string) {
	if s == "" || strings.ContainsAny(s, "= \t\r\n\x00") {
		d.fail(v.off, "", "%q is not a variable name or pattern", s)
	}
}

func checkName(d *document, v *value, s string) {
	if msg := badName(s); msg != "" {
		d.fail(v.off, "", "%s", msg)
	}
}

func badName(s string) string {
	if s == "" || strings.ContainsAny(s, "= \t\r\n\x00*?") {
		return fmt.Sprintf("%q is not a variable name", s)
	}
	return ""
}

func decodeGrants(d *document, k keyed, to *List[Grant]) {
	if k.val.kind != tomlArray {
		d.fail(k.val.off, `write grant = [{ path = "...", access = "read", why = "..." }]`, "\"grant\" must be an array of tables, not %s", k.val.kind)
		return
	}
	*to = List[Grant]{Set: true, Origin: d.origin(k.off)}
	for _, v := range k.val.items {
		if v.kind != tomlTable {
			d.fail(v.off, `write { path = "...", access = "read", why = "..." }`, "an element of grant must be a table, not %s", v.kind)
			continue
		}
		n := len(d.probs)
		var path, access, why Value[string]
		var optional bool
		decodeTable(d, v, "grant", []key{
			{"path", func(d *document, k keyed) {
				if text("path", &path).decode(d, k); path.Set {
					checkPath(d, k.val, path.V)
				}
			}},
			enum("access", &access, "read", "write"), text("why", &why),
			{"optional", func(d *document, k keyed) { optional, _ = boolean(d, k) }},
		})
		if n == len(d.probs) && v.get("path") == nil {
			d.fail(v.off, "", "the grant has no \"path\"")
		}
		if n == len(d.probs) && v.get("access") == nil {
			d.fail(v.off, `write access = "read" or access = "write"`, "the grant has no \"access\"")
		}
		if n == len(d.probs) {
			to.Items = append(to.Items, Item[Grant]{Grant{path.V, plan.Access(access.V), why.V, optional}, d.origin(v.off)})
		}
	}
}

// decodeSet decodes the table of fixed variables. Neither origins nor messages
// hold the line, because it holds the value.
func decodeSet(d *document, k keyed, to *List[Var]) {
	if k.val.kind != tomlTable {
		d.fail(k.val.off, `write set = { NAME = "value" }`, "\"set\" must be a table, not %s", k.val.kind)
		d.hideValue(len(d.probs) - 1)
		return
	}
	quiet := func(off int) plan.Origin {
		o := d.origin(off)
		o.Text = "set"
		return o
	}
	*to = List[Var]{Set: true, Origin: quiet(k.off)}
	for _, v := range k.val.keys {
		o := quiet(v.off)
		shown, _, _ := strings.Cut(v.name, "=") // someone may have quoted NAME=value
		o.Text = "set " + shown
		msg := ""
		if badName(v.name) != "" {
			msg = badName(shown + "=")
		}
		switch {
		case msg != "":
		case v.val.kind != tomlString:
			msg = fmt.Sprintf("the value of %q must be a string, not %s", v.name, v.val.kind)
		case strings.IndexByte(v.val.text, 0) >= 0:
			msg = fmt.Sprintf("the value of %q contains a NUL byte", v.name)
		}
		if msg != "" {
			d.probs = append(d.probs, problem{v.off, &plan.Error{Op: msg, Origin: o}})
			continue
		}
		to.Items = append(to.Items, Item[Var]{Var{v.name, v.val.text}, o})
	}
}

func limit(d *document, k keyed, name string, size bool, to *Value[uint64]) {
	var n uint64
	var msg string
	switch {
	case k.val.kind == tomlInteger:
		n, msg = parseCount(strings.ReplaceAll(k.val.text, "_", ""))
	case size && k.val.kind == tomlString:
		n, msg = parseSize(k.val.text)
	case size:
		msg = "must be a size such as \"2GiB\", not " + k.val.kind.String()
	default:
		msg = "must be an integer, not " + k.val.kind.String()
	}
	if msg != "" {
		d.fail(k.val.off, "", "%q %s", name, msg)
		return
	}
	*to = Value[uint64]{true, n, d.origin(k.off)}
}

func parseCount(s string) (uint64, string) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 0, 64)
	if err != nil || n > math.MaxInt64 {
		return 0, "must be a whole number from 0 to 9223372036854775807"
	}
	return n, ""
}

// parseSize reads a number of bytes with an optional unit: B, KiB, MiB, GiB,
// TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000).
func parseSize(s string) (uint64, string) {
	digits := strings.TrimRight(s, "BKMGTi")
	unit, ok := map[string]uint64{
		"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
		"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	}[s[len(digits):]]
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 64)
	if !ok || err != nil || n > math.MaxInt64/unit {
		return 0, "must be a size such as \"512MiB\" or \"2GiB\""
	}
	return n * unit, ""
}

// isFilterFile reports whether a seccomp value names a file.
func isFilterFile(s string) bool {
	return strings.Contains(s, "/") && badPathMessage(s) == ""
}

func badPathMessage(s string) string {
	msg, _ := badPath(s)
	return msg
}
