package profile

import (
	"fmt"
	"math"
	"path"
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
	source // where merged lists come from
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

// A Seed is one file that is copied into the scratch home.
type Seed struct {
	Path string // the file on the host
	To   string // where it stands inside: "~/..."; "" = the same place as Path, which then starts with "~/"
	Why  string // the reason that review reads; may be empty
}

// Target is To, or the same place as Path: always "~/...".
func (s Seed) Target() string {
	switch {
	case s.To != "":
		return s.To
	case strings.HasPrefix(s.Path, "$home/"):
		return "~/" + strings.TrimPrefix(s.Path, "$home/")
	}
	return s.Path
}

// A Var is one variable of the environment's set table.
type Var struct {
	Name  string
	Value string

	// Source says where the value is fetched at every start; nil when Value is
	// the value. A path in it is as written.
	Source *plan.ValueSource
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
	Seed      List[Seed]
	Hide      List[string] // paths, patterns and "@group" names
	Protect   List[string] // paths and "@group" names
	Devices   List[string]

	Network        Value[string] // network.mode
	NetAllow       List[HostPattern]
	NetDeny        List[HostPattern]
	Loopback       List[uint16]
	Publish        List[uint16]
	Ports          List[uint16] // network.ports; not set: all
	ProxyVariables Value[bool]
	CheckSNI       Value[bool]
	UpstreamProxy  Value[string]

	EnvBase  Value[string]
	EnvScrub Value[string]
	EnvAllow List[string]
	EnvDeny  List[string]
	EnvSet   List[Var]
	EnvPass  List[string]
	EnvAuth  Value[string]
	Inject   Value[bool]
	Caches   List[string] // environment.caches.tools, or environment.caches as a list

	CachesKeep   Value[bool]
	CachesMethod Value[string]

	TTY     Value[string]
	Seccomp Value[string]
	Nested  Value[bool]

	Time        Value[uint64] // nanoseconds, as in time.Duration; 0 = no limit
	Grace       Value[uint64] // nanoseconds
	Memory      Value[uint64] // bytes; 0 = no limit
	Processes   Value[uint64] // 0 = no limit
	OpenFiles   Value[uint64]
	FileSize    Value[uint64] // bytes
	ScratchSize Value[uint64] // limits.scratch, bytes; 0 = no limit
	TotalOutput Value[uint64] // limits.total-output, bytes; 0 = no limit
	Output      Value[Amount]
	Core        Value[uint64]

	Phases List[Phase] // gate.phase
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
	if !d.broken { // else nobody knows what its keys are
		decodeFile(d, root, f)
	}
	if len(d.probs) > 0 {
		return nil, d.err()
	}
	return f, nil
}

// decodeFile decodes the keys of a whole file.
func decodeFile(d *document, root *value, f *File) {
	for _, k := range root.keys {
		switch {
		case k.name == "gate":
			decodeGate(d, k, f)
		case !slices.Contains(tables, k.name):
			decodeKey(d, "", k, f)
		case k.val.kind != tomlTable:
			d.fail(k.val.off, "", "%q must be a table, not %s", k.name, k.val.kind)
		default:
			for _, x := range k.val.keys {
				decodeKey(d, k.name, x, f)
			}
		}
	}
	if root.get("version") == nil && !slices.ContainsFunc(d.probs, func(p problem) bool { return p.off == 0 }) {
		d.fail(0, "write version = 1 in the first line", "the profile does not say its version")
	}
}

// decodeKey decodes one key of a table, "" for the top level.
func decodeKey(d *document, table string, k keyed, f *File) {
	full := k.name
	if table != "" {
		full = table + "." + k.name
	}
	if full == cachesKey {
		decodeCaches(d, k, f)
		return
	}
	i := slices.IndexFunc(keyTable, func(x Key) bool { return x.Name == full })
	if i < 0 || strings.Contains(k.name, ".") { // a quoted "filesystem.view"
		hint := ""
		if !d.enough() {
			hint = suggest(k.name, table)
		}
		d.failAs(keyText(k.name), k.off, hint, "unknown key %q", shownKey(full))
		return
	}
	decodeValue(d, &keyTable[i], k, f)
}

// cachesKey is the one key that is a list or a table.
const cachesKey = "environment.caches"

// decodeCaches decodes caches = ["go"] and caches = { tools = ["go"], ... }.
func decodeCaches(d *document, k keyed, f *File) {
	switch k.val.kind {
	case tomlArray:
		key, _ := LookupKey(cachesKey + ".tools")
		key.Name = cachesKey // as it is written
		decodeValue(d, &key, k, f)
	case tomlTable:
		for _, x := range k.val.keys {
			key, ok := LookupKey(cachesKey + "." + x.name)
			if !ok {
				hint := ""
				if !d.enough() {
					hint = suggestion(x.name, "", []string{"tools", "keep", "method"})
				}
				d.failAs(keyText(x.name), x.off, hint, "unknown key %q", shownKey(cachesKey+"."+x.name))
				continue
			}
			decodeValue(d, &key, x, f)
		}
	default:
		d.fail(k.val.off, `write caches = ["go"], or caches = { tools = ["go"], keep = true }`, "\"caches\" must be an array or a table, not %s", k.val.kind)
	}
}

// decodeValue decodes the value of a known key.
func decodeValue(d *document, key *Key, k keyed, f *File) {
	if key.Type == TypeVersion {
		decodeVersion(d, k)
		return
	}
	name := key.Last()
	switch to := key.field(f).(type) {
	case *Value[string]:
		if s, ok := str(d, k.val, name); ok && checkText(d, key, k.val, s) {
			*to = Value[string]{true, s, d.origin(k.off)}
		}
	case *Value[bool]:
		if b, ok := boolean(d, k); ok {
			*to = Value[bool]{true, b, d.origin(k.off)}
		}
	case *Value[uint64]:
		decodeNumber(d, key, k, to)
	case *Value[Amount]:
		if k.val.kind != tomlString {
			d.fail(k.val.off, "", "%q must be an amount such as \"1500 chars\" or \"64KiB\", not %s", name, k.val.kind)
		} else if a, msg := parseOutput(k.val.text); msg != "" {
			d.fail(k.val.off, "", "%q %s", name, msg)
		} else {
			*to = Value[Amount]{true, a, d.origin(k.off)}
		}
	case *List[string]:
		decodeList(d, k, name, to, func(v *value) (string, bool) {
			s, ok := str(d, v, "an element of "+name)
			return s, ok && checkElement(d, key, v, s)
		}, func(s string) string { return s })
	case *List[HostPattern]:
		decodeList(d, k, name, to, func(v *value) (HostPattern, bool) {
			s, ok := str(d, v, "an element of "+name)
			if !ok {
				return HostPattern{}, false
			}
			h, msg := parseHost(s)
			if msg != "" {
				d.fail(v.off, "", "%q is not a host: %s", shorten(s), msg)
			}
			return h, msg == ""
		}, HostPattern.String)
	case *List[uint16]:
		decodeList(d, k, name, to, func(v *value) (uint16, bool) {
			if v.kind != tomlInteger {
				d.fail(v.off, "", "an element of %s must be a port number, not %s", name, v.kind)
				return 0, false
			}
			n, msg := parseCount(strings.ReplaceAll(v.text, "_", ""))
			if msg != "" || n < 1 || n > math.MaxUint16 {
				d.fail(v.off, "", "%q is not a port: ports are from 1 to 65535", v.text)
				return 0, false
			}
			return uint16(n), true
		}, func(n uint16) string { return strconv.Itoa(int(n)) })
	case *List[Grant]:
		decodeGrants(d, k, to)
	case *List[Seed]:
		decodeSeeds(d, k, to)
	case *List[Var]:
		decodeSet(d, k, to)
	}
}

func decodeVersion(d *document, k keyed) {
	if k.val.kind != tomlInteger {
		d.fail(k.val.off, "", "\"version\" must be an integer, not %s", k.val.kind)
	} else if n, err := strconv.ParseInt(k.val.text, 0, 64); err != nil || n != 1 {
		d.fail(k.val.off, "write version = 1", "profile version %s is not known", k.val.text)
	}
}

// checkText checks a single string by the type of its key.
func checkText(d *document, key *Key, v *value, s string) bool {
	before := len(d.probs)
	switch key.Type {
	case TypeEnum:
		oneOf(d, v, key.Last(), s, key.Values...)
	case TypeName:
		checkName(d, v, s)
	case TypeProfile:
		if msg := badProfileName(s); msg != "" {
			d.fail(v.off, "name a profile, or a file as \"./name.toml\"", "%q %s", key.Last(), msg)
		}
	case TypeProxy:
		if msg := badProxy(s); msg != "" {
			if strings.Contains(s, "@") {
				d.conceal(v) // there is a password in front of it
			}
			d.fail(v.off, "write http://HOST:PORT", "%q %s", key.Last(), msg)
		}
	case TypeFilter:
		if s != "default" && s != "strict" && !isFilterFile(s) {
			d.fail(v.off, `write a file as "./name.json"`, "\"seccomp\" must be \"default\", \"strict\" or a file, not %q", s)
		}
	}
	return len(d.probs) == before
}

// checkElement checks one string of a list by the type of its key.
func checkElement(d *document, key *Key, v *value, s string) bool {
	before := len(d.probs)
	switch key.Type {
	case TypeEnums:
		oneOf(d, v, key.Last(), s, key.Values...)
	case TypePaths:
		if strings.HasPrefix(s, "@") {
			checkGroup(d, key, v, s)
		} else {
			checkPath(d, v, s)
		}
	case TypeDevices:
		checkPath(d, v, s)
	case TypePatterns:
		checkWord(d, v, s)
	case TypeNames:
		checkName(d, v, s)
	}
	return len(d.probs) == before
}

func checkGroup(d *document, key *Key, v *value, s string) {
	if msg, hint := badGroup(s, key.Name); msg != "" {
		d.fail(v.off, hint, "%s", msg)
	}
}

// decodeList decodes an array; two elements with the same text are an error.
func decodeList[T any](d *document, k keyed, name string, to *List[T], one func(*value) (T, bool), text func(T) string) {
	if k.val.kind != tomlArray {
		d.fail(k.val.off, fmt.Sprintf("write %s = [...]", name), "%q must be an array, not %s", name, k.val.kind)
		return
	}
	*to = List[T]{Set: true, Origin: d.origin(k.off)}
	seen := make(map[string]bool, min(len(k.val.items), maxElements))
	for i, v := range k.val.items {
		if d.tooLong(i, v.off, name) {
			break
		}
		x, ok := one(v)
		if !ok {
			continue
		}
		s := text(x)
		if seen[s] {
			d.fail(v.off, "remove one of them", "%q is twice in %q", s, name)
			continue
		}
		seen[s] = true
		to.Items = append(to.Items, Item[T]{V: x, Origin: d.origin(v.off)})
	}
}

// decodeNumber decodes a count, size or duration.
func decodeNumber(d *document, key *Key, k keyed, to *Value[uint64]) {
	var n uint64
	var msg string
	switch integer, text := k.val.kind == tomlInteger, k.val.kind == tomlString; {
	case key.Type == TypeDuration && integer:
		if n, msg = parseCount(k.val.text); msg != "" || n != 0 {
			msg = "needs a unit, as in \"10m\" or \"90s\"; only 0 has none"
		}
	case key.Type == TypeDuration && text:
		n, msg = parseDuration(k.val.text)
	case key.Type == TypeDuration:
		msg = "must be a duration such as \"10m\", not " + k.val.kind.String()
	case integer:
		n, msg = parseCount(strings.ReplaceAll(k.val.text, "_", ""))
	case key.Type == TypeSize && text:
		n, msg = parseSize(k.val.text)
	case key.Type == TypeSize:
		msg = "must be a size such as \"2GiB\", not " + k.val.kind.String()
	default:
		msg = "must be an integer, not " + k.val.kind.String()
	}
	if msg != "" {
		d.fail(k.val.off, "", "%q %s", key.Last(), msg)
		return
	}
	if msg, hint := badLimit(key.Last(), n); msg != "" {
		d.fail(k.val.off, hint, "%s", msg)
		return
	}
	*to = Value[uint64]{true, n, d.origin(k.off)}
}

// badLimit says what is wrong with the value of a limit.
func badLimit(name string, n uint64) (msg, hint string) {
	switch {
	case name == "core" && n != 0:
		return "core dumps cannot be turned on: they would hold the environment", "write core = 0 or remove the line"
	case name == "open-files" && n < minOpenFiles:
		return fmt.Sprintf("%q must be at least %d", name, minOpenFiles), ""
	}
	return "", ""
}

func suggest(name, table string) string {
	var names []string
	elsewhere := ""
	for _, k := range keyTable {
		switch {
		case k.Table() == table:
			if last, _, _ := strings.Cut(k.Last(), "."); !slices.Contains(names, last) {
				names = append(names, last)
			}
		case k.Last() == name:
			elsewhere = fmt.Sprintf("%q belongs into the table [%s]", name, k.Table())
			if k.Table() == "" {
				elsewhere = fmt.Sprintf("%q belongs above the first table", name)
			}
		}
	}
	if table == "" {
		names = append(names, tables...)
	}
	return suggestion(name, elsewhere, names)
}

func suggestion(name, elsewhere string, names []string) string {
	if s := Nearest(name, names); s != "" {
		return fmt.Sprintf("did you mean %q?", s)
	}
	if elsewhere != "" {
		return elsewhere
	}
	return "known here: " + strings.Join(names, ", ")
}

// Nearest gives the candidate within an edit distance of two (one for words
// of up to four letters), or "".
func Nearest(word string, candidates []string) string {
	if len(word) > 64 {
		return ""
	}
	fold := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "-")) }
	best, bestAt := "", 3
	if len(word) <= 4 {
		bestAt = 2
	}
	for _, c := range candidates {
		if n := EditDistance(fold(word), fold(c)); n < bestAt {
			best, bestAt = c, n
		}
	}
	return best
}

// EditDistance counts the insertions, deletions, replacements and swaps of
// neighbouring bytes that make b of a (optimal string alignment).
func EditDistance(a, b string) int {
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

// minOpenFiles leaves room for the standard streams, the loader and a shell.
const minOpenFiles = 16

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
	if n := Nearest(s, allowed); n != "" {
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
			if n := Nearest(name, []string{"workspace", "home", "cwd"}); n != "" {
				hint = fmt.Sprintf("did you mean $%s?", n)
			}
			return fmt.Sprintf("unknown variable %q in a path", "$"+name), hint
		}
	}
	return "", ""
}

func checkWord(d *document, v *value, s string) {
	if s == "" || strings.ContainsAny(s, "= \t\r\n\x00") {
		d.failName(v, s, notName(s)+" or pattern")
	}
}

func checkName(d *document, v *value, s string) {
	if msg := badName(s); msg != "" {
		d.failName(v, s, msg)
	}
}

// failName refuses a name. What stands behind "=" in it is a value in the wrong place.
func (d *document) failName(v *value, s, msg string) {
	hint := ""
	if strings.Contains(s, "=") {
		d.conceal(v)
		hint = "values belong in environment.set"
	}
	d.fail(v.off, hint, "%s", msg)
}

// conceal keeps a part of the file from being quoted.
func (d *document) conceal(v *value) {
	if x := d.spanAt(v.off); x != nil && v.end > 0 {
		x.odd = append(x.odd, [2]int{v.off, v.end})
	} else if x != nil {
		x.quote = false
	}
}

func badName(s string) string {
	if s == "" || strings.ContainsAny(s, "= \t\r\n\x00*?") {
		return notName(s)
	}
	return ""
}

// notName says that s is no name, without what may be a value.
func notName(s string) string {
	if name, _, ok := strings.Cut(s, "="); ok {
		return fmt.Sprintf("%q with a value is not a variable name", shorten(name))
	}
	return fmt.Sprintf("%q is not a variable name", s)
}

// decodeFields decodes one table of a list; what it gives has only fields of the right type.
func decodeFields(d *document, v *value, what, example string, fields []Key) (map[string]string, bool) {
	if v.kind != tomlTable {
		d.fail(v.off, "write "+example, "an element of %s must be a table, not %s", what, v.kind)
		return nil, false
	}
	before := len(d.probs)
	out := map[string]string{}
	for _, k := range v.keys {
		i := slices.IndexFunc(fields, func(x Key) bool { return x.Name == k.name })
		if i < 0 {
			hint := ""
			if !d.enough() {
				names := make([]string, len(fields))
				for i := range fields {
					names[i] = fields[i].Name
				}
				hint = suggestion(k.name, "", names)
			}
			d.failAs(keyText(k.name), k.off, hint, "unknown key %q", shownKey(what+"."+k.name))
			d.conceal(v) // its value may stand in the same line as others
			continue
		}
		switch key := &fields[i]; key.Type {
		case TypeBool:
			if b, ok := boolean(d, k); ok {
				out[k.name] = strconv.FormatBool(b)
			}
		default:
			s, ok := str(d, k.val, k.name)
			if !ok {
				continue
			}
			out[k.name] = s
			switch key.Type {
			case TypePath:
				checkPath(d, k.val, s)
			case TypeEnum:
				oneOf(d, k.val, k.name, s, key.Values...)
			}
		}
	}
	for _, key := range fields {
		if key.Required() && len(d.probs) == before && v.get(key.Name) == nil {
			hint := ""
			if key.Type == TypeEnum {
				hint = `write access = "read" or access = "write"`
			}
			d.fail(v.off, hint, "the %s has no %q", what, key.Name)
		}
	}
	return out, len(d.probs) == before
}

// shownKey is a key that a profile does not have, as a message shows it.
func shownKey(name string) string {
	name, _, _ = strings.Cut(name, "=")
	return shorten(name)
}

// tooLong refuses element i of a list, which starts at off.
func (d *document) tooLong(i, off int, name string) bool {
	if i < maxElements {
		return false
	}
	d.fail(off, "name a directory or use a pattern in place of many elements", "%q has more than %d elements", name, maxElements)
	return true
}

// fieldsOf gives the fields of a key whose elements are tables.
func fieldsOf(name string) []Key {
	k, _ := LookupKey(name)
	return k.Fields
}

func decodeGrants(d *document, k keyed, to *List[Grant]) {
	const example = `{ path = "...", access = "read", why = "..." }`
	if k.val.kind != tomlArray {
		d.fail(k.val.off, "write grant = ["+example+"]", "\"grant\" must be an array of tables, not %s", k.val.kind)
		return
	}
	*to = List[Grant]{Set: true, Origin: d.origin(k.off)}
	fields := fieldsOf("filesystem.grant")
	for i, v := range k.val.items {
		if d.tooLong(i, v.off, "grant") {
			break
		}
		if x, ok := decodeFields(d, v, "grant", example, fields); ok {
			to.Items = append(to.Items, Item[Grant]{V: Grant{x["path"], plan.Access(x["access"]), x["why"], x["optional"] == "true"}, Origin: d.origin(v.off)})
		}
	}
}

func decodeSeeds(d *document, k keyed, to *List[Seed]) {
	const example = `{ path = "~/...", why = "..." }`
	if k.val.kind != tomlArray {
		d.fail(k.val.off, "write seed = ["+example+"]", "\"seed\" must be an array of tables, not %s", k.val.kind)
		return
	}
	*to = List[Seed]{Set: true, Origin: d.origin(k.off)}
	fields := fieldsOf("filesystem.seed")
	targets := map[string]bool{}
	for i, v := range k.val.items {
		if d.tooLong(i, v.off, "seed") {
			break
		}
		x, ok := decodeFields(d, v, "seed", example, fields)
		if !ok {
			continue
		}
		s := Seed{x["path"], x["to"], x["why"]}
		target := s.Target()
		switch rest, inHome := strings.CutPrefix(target, "~/"); {
		case !inHome && s.To == "":
			d.fail(v.off, `write to = "~/..."`, "the seed does not say where the file stands in the scratch home")
		case !inHome || !cleanBelow(rest):
			d.fail(v.off, `write to = "~/..." without ".."`, "%q is not a place in the scratch home", target)
		case isGlob(s.Path):
			d.fail(v.off, "name the file", "%q: patterns are not possible in a seed", s.Path)
		case targets[target]:
			d.fail(v.off, "remove one of them", "two seeds for %q", target)
		default:
			targets[target] = true
			to.Items = append(to.Items, Item[Seed]{V: s, Origin: d.origin(v.off)})
		}
	}
}

// cleanBelow reports whether s names something below a directory, in its
// shortest spelling.
func cleanBelow(s string) bool {
	return s != "" && path.Clean("/"+s) == "/"+s
}

// decodeSet decodes the table of fixed variables. Neither origins nor messages
// hold the line, because it holds the value.
func decodeSet(d *document, k keyed, to *List[Var]) {
	if k.val.kind != tomlTable {
		d.failAs("set = ...", k.val.off, `write set = { NAME = "value" }`, "\"set\" must be a table, not %s", k.val.kind)
		return
	}
	quiet := func(off int) plan.Origin {
		o := d.origin(off)
		o.Text = "set"
		return o
	}
	*to = List[Var]{Set: true, Origin: quiet(k.off)}
	for i, v := range k.val.keys {
		if d.tooLong(i, v.off, "set") {
			break
		}
		o := quiet(v.off)
		shown, _, _ := strings.Cut(v.name, "=") // someone may have quoted NAME=value
		o.Text = "set " + shown
		x := Var{Name: v.name, Value: v.val.text}
		msg, hint := "", ""
		if badName(v.name) != "" {
			msg = badName(shown + "=")
		}
		switch {
		case msg != "":
		case v.val.kind == tomlTable:
			x.Source, msg, hint = decodeSource(v.name, v.val)
		case v.val.kind != tomlString:
			msg = fmt.Sprintf("the value of %q must be a string or a table that says where it comes from, not %s", v.name, v.val.kind)
		case strings.IndexByte(v.val.text, 0) >= 0:
			msg = fmt.Sprintf("the value of %q contains a NUL byte", v.name)
		}
		if msg != "" {
			d.failAs(o.Text, v.off, hint, "%s", msg)
			continue
		}
		to.Items = append(to.Items, Item[Var]{V: x, Origin: o})
	}
}

// isFilterFile reports whether a seccomp value names a file.
func isFilterFile(s string) bool {
	return strings.Contains(s, "/") && badPathMessage(s) == ""
}

func badPathMessage(s string) string {
	msg, _ := badPath(s)
	return msg
}
