package convert

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/wallsandbox/wall/plan"
)

type kind int

const (
	object kind = iota
	array
	text
	number
	boolean
	null
	other // a date
)

func (k kind) String() string {
	return [...]string{"an object", "an array", "a string", "a number", "a boolean", "null", "a date or time"}[k]
}

// A node is one value of the settings.
type node struct {
	kind   kind
	key    string // the whole path: "filesystem.denyRead[2]"
	name   string // the last part of it, in an object
	line   int    // 1-based
	text   string // of a string; the literal of a number or boolean
	fields []*node
	items  []*node
	seen   bool // somebody took it into account
}

// get gives a field and marks it as seen; nil when it is absent. A null counts
// as absent, which is what the tools make of it.
func (n *node) get(name string) *node {
	for _, f := range n.fields {
		if f.name == name {
			f.seen = true
			if f.kind == null {
				return nil
			}
			return f
		}
	}
	return nil
}

// seeAll marks n and everything in it.
func (n *node) seeAll() {
	n.seen = true
	for _, f := range n.fields {
		f.seeAll()
	}
	for _, f := range n.items {
		f.seeAll()
	}
}

func child(parent, name string) string {
	plain := name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-$") == ""
	if !plain {
		name = strconv.Quote(name)
	}
	if parent == "" {
		return name
	}
	return parent + "." + name
}

// maxDepth bounds nested values; the formats need six levels.
const maxDepth = 64

var errDeep = fmt.Errorf("values are nested more than %d deep", maxDepth)

func lineAt(data []byte, off int) int {
	return 1 + bytes.Count(data[:min(max(off, 0), len(data))], []byte("\n"))
}

func malformed(source string, line int, format string, err error) error {
	return &plan.Error{Op: "not valid " + format, Origin: plan.Origin{File: source, Line: line}, Err: err}
}

var errUTF8 = errors.New("the text is not UTF-8")

// readJSON reads RFC 8259 JSON. encoding/json lets the last of two equal names
// win in silence, which here is an error: which of the two denies was meant?
func readJSON(source string, data []byte) (*node, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(data) {
		return nil, malformed(source, 0, "JSON", errUTF8)
	}
	r := &jsonReader{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	r.dec.UseNumber()
	n, err := r.value("", "", 0)
	if err == nil {
		if _, more := r.dec.Token(); more != io.EOF {
			err = errors.New("something follows the first value")
		}
	}
	if err != nil {
		off := int(r.dec.InputOffset())
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			off = int(syntax.Offset)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the text ends too early")
		}
		return nil, malformed(source, lineAt(data, off), "JSON", err)
	}
	return n, nil
}

type jsonReader struct {
	data []byte
	dec  *json.Decoder
	line int
	at   int // offset that line belongs to
}

// here is the line of the token that was read last. Offsets only grow.
func (r *jsonReader) here() int {
	off := int(r.dec.InputOffset())
	r.line += bytes.Count(r.data[r.at:off], []byte("\n"))
	r.at = off
	return 1 + r.line
}

func (r *jsonReader) value(key, name string, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	t, err := r.dec.Token()
	if err != nil {
		return nil, err
	}
	n := &node{key: key, name: name, line: r.here()}
	switch t := t.(type) {
	case string:
		n.kind, n.text = text, t
	case json.Number:
		n.kind, n.text = number, t.String()
	case bool:
		n.kind, n.text = boolean, strconv.FormatBool(t)
	case nil:
		n.kind = null
	case json.Delim:
		if t == '[' {
			n.kind = array
			for r.dec.More() {
				v, err := r.value(fmt.Sprintf("%s[%d]", key, len(n.items)), "", depth+1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, v)
			}
		} else {
			names := make(map[string]bool)
			for r.dec.More() {
				t, err := r.dec.Token()
				if err != nil {
					return nil, err
				}
				k, ok := t.(string)
				if !ok {
					return nil, errors.New("the name of a field is not a string")
				}
				if names[k] {
					return nil, fmt.Errorf("%s is there twice", child(key, k))
				}
				names[k] = true
				v, err := r.value(child(key, k), k, depth+1)
				if err != nil {
					return nil, err
				}
				n.fields = append(n.fields, v)
			}
		}
		if _, err := r.dec.Token(); err != nil { // the closing one
			return nil, err
		}
	}
	return n, nil
}

// readJSONC reads JSON with // and /* */ comments and with commas before a
// closing bracket.
func readJSONC(source string, data []byte) (*node, error) {
	return readJSON(source, plainJSON(data))
}

// plainJSON puts blanks in place of comments and trailing commas, so that every
// other byte keeps its line.
func plainJSON(data []byte) []byte {
	out := slices.Clone(data)
	comma := -1 // a comma after which only blanks came
	blank := func(i, j int) {
		for ; i < j; i++ {
			if out[i] != '\n' {
				out[i] = ' '
			}
		}
	}
	for i := 0; i < len(out); i++ {
		switch c := out[i]; {
		case c == '"':
			comma = -1
			for i++; i < len(out) && out[i] != '"'; i++ {
				if out[i] == '\\' {
					i++
				}
			}
		case c == '/' && i+1 < len(out) && out[i+1] == '/':
			j := i
			for j < len(out) && out[j] != '\n' {
				j++
			}
			blank(i, j)
			i = j
		case c == '/' && i+1 < len(out) && out[i+1] == '*':
			end := bytes.Index(out[i+2:], []byte("*/"))
			if end < 0 {
				return out // the comment stays, and is an error
			}
			blank(i, i+2+end+2)
			i += 2 + end + 1
		case c == ',':
			comma = i
		case c == ']' || c == '}':
			if comma >= 0 {
				out[comma] = ' '
			}
			comma = -1
		case c != ' ' && c != '\t' && c != '\r' && c != '\n':
			comma = -1
		}
	}
	return out
}

// readTOML reads TOML 1.0. Fields come in the order of their names.
func readTOML(source string, data []byte) (*node, error) {
	if !utf8.Valid(data) {
		return nil, malformed(source, 0, "TOML", errUTF8)
	}
	// The parser calls itself for every bracket.
	depth := 0
	for i, c := range data {
		switch c {
		case '[', '{':
			if depth++; depth > 16*maxDepth { // brackets in strings and comments count too
				return nil, malformed(source, lineAt(data, i), "TOML", errDeep)
			}
		case ']', '}', '\n':
			depth = max(0, depth-1)
		}
	}
	var m map[string]any
	if err := toml.Unmarshal(data, &m); err != nil {
		line := 0
		var de *toml.DecodeError
		if errors.As(err, &de) {
			line, _ = de.Position()
		}
		// The cause names keys and tokens, no values.
		return nil, malformed(source, line, "TOML", errors.New(strings.TrimPrefix(err.Error(), "toml: ")))
	}
	lines := tomlLines(data)
	n, err := tomlNode(m, "", "", lines, 1, 0)
	if err != nil {
		return nil, malformed(source, 0, "TOML", err)
	}
	return n, nil
}

// tomlLines gives the line of every key and table that is written out.
func tomlLines(data []byte) map[string]int {
	lines := make(map[string]int)
	var p unstable.Parser
	p.Reset(data)
	prefix, counts := "", make(map[string]int)
	line, at := 1, 0
	for p.NextExpression() {
		e := p.Expression()
		base := prefix
		if e.Kind != unstable.KeyValue {
			base = ""
		}
		key := base
		it := e.Key()
		for it.Next() {
			k := it.Node()
			if off := int(k.Raw.Offset); off >= at && off <= len(data) {
				line += bytes.Count(data[at:off], []byte("\n"))
				at = off
			}
			key = child(key, string(k.Data))
			if it.IsLast() && e.Kind == unstable.ArrayTable {
				key = fmt.Sprintf("%s[%d]", key, counts[key])
			}
			if _, ok := lines[key]; !ok {
				lines[key] = line
			}
		}
		switch e.Kind {
		case unstable.ArrayTable:
			prefix = key
			counts[key[:strings.LastIndexByte(key, '[')]]++
		case unstable.Table:
			prefix = key
		}
	}
	return lines
}

func tomlNode(v any, key, name string, lines map[string]int, line, depth int) (*node, error) {
	if depth > maxDepth {
		return nil, errDeep
	}
	if l, ok := lines[key]; ok {
		line = l
	}
	n := &node{key: key, name: name, line: line}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			f, err := tomlNode(v[k], child(key, k), k, lines, line, depth+1)
			if err != nil {
				return nil, err
			}
			n.fields = append(n.fields, f)
		}
	case []any:
		n.kind = array
		for i, x := range v {
			f, err := tomlNode(x, fmt.Sprintf("%s[%d]", key, i), "", lines, line, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, f)
		}
	case string:
		n.kind, n.text = text, v
	case bool:
		n.kind, n.text = boolean, strconv.FormatBool(v)
	case int64:
		n.kind, n.text = number, strconv.FormatInt(v, 10)
	case float64:
		n.kind, n.text = number, strconv.FormatFloat(v, 'g', -1, 64)
	default:
		n.kind = other
	}
	return n, nil
}
