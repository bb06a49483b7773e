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
	probs []problem
	// secret holds the byte ranges [from, to) of "set" tables: values of
	// environment variables, which no message and no origin may quote.
	secret [][2]int
}

type problem struct {
	off int
	err error
}

// origin gives the place of a byte offset: line and column count from 1, the
// column in characters.
func (d *document) origin(off int) plan.Origin {
	off = min(max(off, 0), len(d.text))
	line := sort.Search(len(d.lines), func(i int) bool { return d.lines[i] > off }) - 1
	start := d.lines[line]
	rest := d.text[start:]
	if i := strings.IndexByte(rest, '\n'); i >= 0 {
		rest = rest[:i]
	}
	for _, r := range d.secret {
		if r[0] < start+len(rest) && start < r[1] {
			name, _, _ := strings.Cut(rest, "=")
			rest = strings.TrimRight(name, " ") + " = ..."
			break
		}
	}
	return plan.Origin{
		File:   d.name,
		Line:   line + 1,
		Column: utf8.RuneCountInString(d.text[start:off]) + 1,
		Text:   shorten(strings.TrimSpace(rest)),
	}
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
	d.probs = append(d.probs, problem{off, &plan.Error{
		Op: fmt.Sprintf(format, args...), Origin: d.origin(off), Hint: hint,
	}})
}

// hideValue cuts the quoted line of a problem behind its first "=".
func (d *document) hideValue(i int) {
	e := d.probs[i].err.(*plan.Error)
	if name, _, ok := strings.Cut(e.Origin.Text, "="); ok {
		e.Origin.Text = name + "= ..."
	}
}

// err joins the problems in file order.
func (d *document) err() error {
	slices.SortStableFunc(d.probs, func(a, b problem) int { return a.off - b.off })
	errs := make([]error, len(d.probs))
	for i, p := range d.probs {
		errs[i] = p.err
	}
	return errors.Join(errs...)
}

// readTOML parses data into a tree. Syntax errors and duplicate keys are put
// into d.probs; the tree then holds what could be read. go-toml's AST parser
// does not look for duplicates, so that is done here, by the rules of TOML 1.0.
func readTOML(name string, data []byte) (*document, *value) {
	d := &document{name: name, text: string(data), lines: []int{0}}
	root := &value{kind: tomlTable}
	if len(data) > MaxFileSize {
		d.text = d.text[:0]
		d.fail(0, "", "the profile is larger than %d bytes", MaxFileSize)
		return d, root
	}
	for i := 0; ; {
		j := strings.IndexByte(d.text[i:], '\n')
		if j < 0 {
			break
		}
		i += j + 1
		d.lines = append(d.lines, i)
	}
	if !utf8.Valid(data) {
		off := 0
		for off < len(data) {
			r, n := utf8.DecodeRune(data[off:])
			if r == utf8.RuneError && n <= 1 {
				break
			}
			off += n
		}
		d.fail(off, "save the file as UTF-8", "the profile is not valid UTF-8")
		return d, root
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		d.fail(0, "save the file as UTF-8 without a byte order mark", "the profile starts with a byte order mark")
		return d, root
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		d.fail(i, "", "the profile contains a NUL byte")
		return d, root
	}

	var p unstable.Parser
	p.Reset(data)
	table := root
	for p.NextExpression() {
		e := p.Expression()
		if n := len(d.secret); n > 0 && d.secret[n-1][1] > len(data) && e.Kind != unstable.KeyValue {
			d.secret[n-1][1] = int(e.Child().Raw.Offset) // the next header ends a [...set] table
		}
		switch e.Kind {
		case unstable.Table:
			table = d.header(root, e, false)
		case unstable.ArrayTable:
			table = d.header(root, e, true)
		case unstable.KeyValue:
			d.keyValue(&p, table, e, 0)
		}
	}
	if err := p.Error(); err != nil {
		off := 0
		var pe *unstable.ParserError
		if errors.As(err, &pe) && pe.Highlight != nil {
			off = int(p.Range(pe.Highlight).Offset)
		}
		d.fail(off, "", "not valid TOML: %s", strings.TrimPrefix(err.Error(), "toml: "))
		// The line may be half of an environment value, which no message shows.
		if table == root.get("environment") || strings.Contains(d.origin(off).Text, "set") {
			d.hideValue(len(d.probs) - 1)
		}
	}
	return d, root
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
		if last && name == "set" {
			d.secret = append(d.secret, [2]int{off + len(name), len(d.text) + 1})
		}
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
		if name == "set" {
			d.secret = append(d.secret, [2]int{int(e.Raw.Offset), int(e.Raw.Offset + e.Raw.Length)})
		}
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
				v.items = append(v.items, d.value(p, it.Node(), keyOff, depth+1))
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
