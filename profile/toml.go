package profile

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2/unstable"
	"github.com/wallsandbox/wall/plan"
)

// MaxFileSize is the largest profile that Parse reads, in bytes. It keeps a
// wrong path (a log, a disk image) from being parsed for minutes.
const MaxFileSize = 1 << 20

// maxDepth bounds nested values; the language needs three levels.
const maxDepth = 32

type tomlKind int

const (
	tomlTable tomlKind = iota
	tomlArray
	tomlString
	tomlBool
	tomlInteger
	tomlOther // float, date, time: no key takes one
)

func (k tomlKind) String() string {
	return [...]string{"a table", "an array", "a string", "a boolean", "an integer", "a number or date"}[k]
}

// A value is one TOML value with the place where it was written.
type value struct {
	kind tomlKind
	text string // tomlString: the string; tomlBool, tomlInteger, tomlOther: as written
	off  int    // byte offset of the value, or of its key where the parser gives no range
	end  int    // byte offset behind it, brackets left out; 0 where the parser gives no range
	// tomlTable
	keys   []keyed
	index  map[string]int // of keys, once there are many
	closed bool           // an inline table, or an array item: nothing may be added later
	header bool           // defined by its own [header]
	dotted bool           // made by a dotted key: a [header] may not reopen it
	// tomlArray
	items      []*value
	fromHeader bool // [[array of tables]]
}

type keyed struct {
	name string
	off  int
	val  *value
}

// add puts a key that is not there yet into a table.
func (v *value) add(name string, off int, val *value) {
	v.keys = append(v.keys, keyed{name, off, val})
	// A linear search is faster for real profiles; the index keeps a hostile
	// file of a megabyte of keys from taking quadratic time.
	const many = 64
	if len(v.keys) == many {
		v.index = make(map[string]int, 2*many)
		for i, k := range v.keys {
			v.index[k.name] = i
		}
	} else if v.index != nil {
		v.index[name] = len(v.keys) - 1
	}
}

func (v *value) get(name string) *value {
	if v.index != nil {
		if i, ok := v.index[name]; ok {
			return v.keys[i].val
		}
		return nil
	}
	for i := range v.keys {
		if v.keys[i].name == name {
			return v.keys[i].val
		}
	}
	return nil
}

// A document is a parsed TOML file and the problems found in it so far.
type document struct {
	name  string
	text  string
	lines []int // byte offset of the start of each line
	runes []int // characters before each block of runeBlock bytes
	probs []problem

	// broken says that the text is not TOML: nobody knows what a line of it is,
	// so that none is quoted.
	broken bool
	spans  []span // in file order

	lastLine int    // of the last origin
	lastText string // of that line
}

// runeBlock is how often characters are counted ahead, in bytes.
const runeBlock = 1024

// A span is one expression of the file, a key with its value or a header. No two
// share a line.
type span struct {
	from, to int      // bytes
	quote    bool     // may be quoted: a key that profiles have, and not the values of variables
	key      string   // shown in its place; "" when profiles have no such key
	odd      [][2]int // parts that may not be quoted, in file order
}

type problem struct {
	off  int
	text string // in place of the line; "" = the line, where it may be quoted
	err  *plan.Error
}

// maxProblems is the number of problems of one file that are told.
const maxProblems = 50

// maxElements bounds one list of a file.
const maxElements = 2000

// setText makes a text the one that origins are places in.
func (d *document) setText(text string) {
	d.text, d.lines, d.lastLine = text, []int{0}, -1
	d.runes = append(make([]int, 0, len(text)/runeBlock+1), 0)
	n := 0
	for i := range len(text) {
		if i > 0 && i%runeBlock == 0 {
			d.runes = append(d.runes, n)
		}
		if utf8.RuneStart(text[i]) {
			n++
		}
		if text[i] == '\n' {
			d.lines = append(d.lines, i+1)
		}
	}
}

// before gives the number of characters in front of a byte offset.
func (d *document) before(off int) int {
	block := min(off/runeBlock, len(d.runes)-1)
	n := d.runes[block]
	for i := block * runeBlock; i < off; i++ {
		if utf8.RuneStart(d.text[i]) {
			n++
		}
	}
	return n
}

// spanAt gives the expression at a byte offset, nil when there is none.
func (d *document) spanAt(off int) *span {
	i := sort.Search(len(d.spans), func(i int) bool { return d.spans[i].from > off }) - 1
	if i < 0 || off >= d.spans[i].to {
		return nil
	}
	return &d.spans[i]
}

// origin gives the place of a byte offset: line and column count from 1, the
// column in characters. The text is that of the line, where it may be quoted.
func (d *document) origin(off int) plan.Origin {
	off = min(max(off, 0), len(d.text))
	line := sort.Search(len(d.lines), func(i int) bool { return d.lines[i] > off }) - 1
	start := d.lines[line]
	o := plan.Origin{File: d.name, Line: line + 1, Column: d.before(off) - d.before(start) + 1}
	x := d.spanAt(off)
	if d.broken || x == nil || x.key == "" {
		return o
	}
	end := len(d.text)
	if line+1 < len(d.lines) {
		end = d.lines[line+1]
	}
	// The last part that starts before the line ends is the one that reaches furthest.
	if i := sort.Search(len(x.odd), func(i int) bool { return x.odd[i][0] >= end }) - 1; !x.quote || i >= 0 && x.odd[i][1] > start {
		o.Text = x.key + " = ..."
		return o
	}
	if line != d.lastLine {
		const most = 4096 // spaces in front of the text cost as well
		d.lastLine, d.lastText = line, shorten(strings.TrimSpace(d.text[start:min(end, start+most)]))
	}
	o.Text = d.lastText
	return o
}

// shorten keeps a line of source printable: at most 200 bytes, valid UTF-8.
func shorten(s string) string {
	const most = 200
	if len(s) > most {
		cut := most
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

func (d *document) fail(off int, hint, format string, args ...any) {
	d.failAs("", off, hint, format, args...)
}

// failAs is fail with a text in place of the line.
func (d *document) failAs(text string, off int, hint, format string, args ...any) {
	d.probs = append(d.probs, problem{off, text, &plan.Error{Op: fmt.Sprintf(format, args...), Hint: hint}})
}

// enough reports that more problems are known than will be told, so that hints
// are not worth their time. Those of a key come in file order.
func (d *document) enough() bool { return len(d.probs) > 10*maxProblems }

// keyText shows a key without its value. What stands behind "=" in a quoted key
// may be one as well.
func keyText(name string) string { return shownKey(name) + " = ..." }

// err joins the problems in file order.
func (d *document) err() error {
	slices.SortStableFunc(d.probs, func(a, b problem) int { return a.off - b.off })
	var errs []error
	for i, p := range d.probs {
		if i == maxProblems {
			errs = append(errs, &plan.Error{Op: fmt.Sprintf("and %d more problems of the profile", len(d.probs)-i), Origin: plan.Origin{File: d.name}})
			break
		}
		p.err.Origin = d.origin(p.off)
		if p.text != "" && !d.broken {
			p.err.Origin.Text = p.text
		}
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}

// breaks is fail for a text that is not TOML.
func (d *document) breaks(off int, hint, format string, args ...any) {
	d.broken = true
	d.fail(off, hint, format, args...)
}

// readTOML parses data into a tree. Syntax errors and duplicate keys are put
// into d.probs; the tree then holds what could be read. go-toml's AST parser
// does not look for duplicates, so that is done here, by the rules of TOML 1.0.
func readTOML(name string, data []byte) (*document, *value) {
	d := &document{name: name}
	root := &value{kind: tomlTable}
	if len(data) > MaxFileSize {
		d.setText("")
		d.breaks(0, "", "the profile is larger than %d bytes", MaxFileSize)
		return d, root
	}
	d.setText(string(data))
	if !utf8.Valid(data) {
		off := 0
		for off < len(data) {
			r, n := utf8.DecodeRune(data[off:])
			if r == utf8.RuneError && n <= 1 {
				break
			}
			off += n
		}
		d.breaks(off, "save the file as UTF-8", "the profile is not valid UTF-8")
		return d, root
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		d.breaks(0, "save the file as UTF-8 without a byte order mark", "the profile starts with a byte order mark")
		return d, root
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		d.breaks(i, "", "the profile contains a NUL byte")
		return d, root
	}

	var p unstable.Parser
	p.Reset(data)
	table := root
	var at []string // names of the last header
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			at = keyNames(nil, e)
			from := int(e.Child().Raw.Offset)
			to := from
			for it := e.Key(); it.Next(); {
				to = int(it.Node().Raw.Offset + it.Node().Raw.Length)
			}
			d.span(d.lineStart(from), to, at, true)
			table = d.header(root, e, e.Kind == unstable.ArrayTable)
		case unstable.KeyValue:
			from := int(e.Raw.Offset)
			d.span(from, from+int(e.Raw.Length), keyNames(at, e), false)
			if x := &d.spans[len(d.spans)-1]; x.quote && tablesIn(e.Value(), 0) > maxTables(at, e) {
				x.quote = false // there are names in it that profiles do not have
			}
			d.keyValue(&p, table, e, 0)
		}
	}
	if err := p.Error(); err != nil {
		off := 0
		var pe *unstable.ParserError
		if errors.As(err, &pe) && pe.Highlight != nil {
			off = int(p.Range(pe.Highlight).Offset)
		}
		d.breaks(off, "", "not valid TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
	}
	return d, root
}

func (d *document) lineStart(off int) int {
	return d.lines[sort.Search(len(d.lines), func(i int) bool { return d.lines[i] > off })-1]
}

// keyNames gives the names of a key behind those of its table. A name that
// could be taken for several becomes one that no key has.
func keyNames(at []string, e *unstable.Node) []string {
	out := slices.Clone(at)
	for it := e.Key(); it.Next(); {
		name := string(it.Node().Data)
		if strings.Contains(name, ".") {
			name = ""
		}
		out = append(out, name)
	}
	return out
}

// tablesIn gives how deep tables are nested in a value.
func tablesIn(n *unstable.Node, depth int) int {
	if n == nil || depth > maxDepth {
		return depth
	}
	deepest := 0
	switch n.Kind {
	case unstable.KeyValue:
		return tablesIn(n.Value(), depth)
	case unstable.Array, unstable.InlineTable:
		for it := n.Children(); it.Next(); {
			deepest = max(deepest, tablesIn(it.Node(), depth+1))
		}
		if n.Kind == unstable.InlineTable {
			deepest++
		}
	}
	return deepest
}

// maxTables gives how deep a key takes tables.
func maxTables(at []string, e *unstable.Node) int {
	if k, ok := LookupKey(strings.Join(keyNames(at, e), ".")); ok && len(k.Fields) > 0 {
		return 1
	}
	return 0
}

// span adds an expression with this key.
func (d *document) span(from, to int, names []string, header bool) {
	x := span{from: from, to: to}
	if known, quote := quotable(names, header); known {
		x.key, x.quote = names[len(names)-1], quote
	}
	d.spans = append(d.spans, x)
}

// quotable reports whether profiles have the key of an expression, and whether
// it may be quoted: values of variables may not.
func quotable(names []string, header bool) (known, quote bool) {
	if len(names) > 0 && names[0] == "gate" {
		return quotablePhase(names[1:], header)
	}
	if len(names) == 0 || len(names) > 3 {
		return false, false
	}
	full := strings.Join(names, ".")
	if header && len(names) == 1 && slices.Contains(tables, full) {
		return true, true
	}
	for i := range keyTable {
		k := &keyTable[i]
		switch rest, below := strings.CutPrefix(full, k.Name+"."); {
		case full == k.Name:
			return true, k.Type != TypeVars
		case below && !header:
			if slices.ContainsFunc(k.Fields, func(f Key) bool { return f.Name == rest }) {
				return true, true
			}
		}
	}
	return false, false
}

// header finds or makes the table that a [header] or [[header]] names. A
// refused header gets a table that is thrown away, so that the keys below it
// give no second complaint.
func (d *document) header(root *value, e *unstable.Node, array bool) *value {
	t := root
	it := e.Key()
	for it.Next() {
		k := it.Node()
		name, off := string(k.Data), int(k.Raw.Offset)
		last := it.IsLast()
		v := t.get(name)
		if !last {
			if v == nil {
				v = &value{kind: tomlTable, off: off}
				t.add(name, off, v)
			}
			if v.kind == tomlArray && v.fromHeader {
				v = v.items[len(v.items)-1]
			}
			if v.kind != tomlTable || v.closed && !v.header {
				d.fail(off, "", "%q is already defined and is not a table that can be extended", name)
				return &value{kind: tomlTable}
			}
			t = v
			continue
		}
		if array {
			if v == nil {
				v = &value{kind: tomlArray, off: off, fromHeader: true}
				t.add(name, off, v)
			}
			if v.kind != tomlArray || !v.fromHeader {
				d.fail(off, "", "%q is already defined", name)
				return &value{kind: tomlTable}
			}
			item := &value{kind: tomlTable, off: off, header: true}
			v.items = append(v.items, item)
			return item
		}
		if v == nil {
			v = &value{kind: tomlTable, off: off, header: true}
			t.add(name, off, v)
			return v
		}
		if v.kind != tomlTable || v.closed || v.header || v.dotted {
			d.fail(off, "merge the two", "%q is defined twice", name)
			return &value{kind: tomlTable}
		}
		v.header, v.off = true, off
		return v
	}
	return t
}

func (d *document) keyValue(p *unstable.Parser, t *value, e *unstable.Node, depth int) {
	it := e.Key()
	for it.Next() {
		k := it.Node()
		name, off := string(k.Data), int(k.Raw.Offset)
		old := t.get(name)
		if it.IsLast() {
			if old != nil {
				d.fail(off, "remove one of them", "key %q is defined twice", name)
				return
			}
			t.add(name, off, d.value(p, e.Value(), off, depth))
			return
		}
		if old == nil {
			old = &value{kind: tomlTable, off: off, dotted: true}
			t.add(name, off, old)
		}
		if old.kind != tomlTable || old.closed || !old.dotted {
			d.fail(off, "", "%q is already defined and cannot be extended by a dotted key", name)
			return
		}
		t = old
	}
}

func (d *document) value(p *unstable.Parser, n *unstable.Node, keyOff, depth int) *value {
	v := &value{off: keyOff}
	if n.Raw.Length > 0 {
		v.off = int(n.Raw.Offset)
		v.end = v.off + int(n.Raw.Length)
	}
	if depth > maxDepth {
		d.fail(v.off, "", "values are nested more than %d deep", maxDepth)
		v.kind = tomlOther
		return v
	}
	switch n.Kind {
	case unstable.String:
		v.kind, v.text = tomlString, string(n.Data)
	case unstable.Bool:
		v.kind, v.text = tomlBool, string(n.Data)
	case unstable.Integer:
		v.kind, v.text = tomlInteger, string(n.Data)
	case unstable.Array:
		v.kind = tomlArray
		it := n.Children()
		for it.Next() {
			if it.Node().Kind != unstable.Comment {
				x := d.value(p, it.Node(), keyOff, depth+1)
				v.items, v.end = append(v.items, x), max(v.end, x.end)
			}
		}
	case unstable.InlineTable:
		v.kind = tomlTable
		it := n.Children()
		for it.Next() {
			if it.Node().Kind == unstable.KeyValue {
				d.keyValue(p, v, it.Node(), depth+1)
			}
		}
		seal(v)
		for _, k := range v.keys {
			v.end = max(v.end, k.off+len(k.name), k.val.end)
		}
	default:
		v.kind, v.text = tomlOther, string(n.Data)
	}
	return v
}

// seal closes an inline table and the tables that dotted keys made in it.
func seal(v *value) {
	if v.kind != tomlTable || v.closed {
		return
	}
	v.closed = true
	for _, k := range v.keys {
		seal(k.val)
	}
}
