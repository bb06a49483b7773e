package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// maxGlob bounds the directory entries that all globs of one run look at. A
// walk of that many takes about 20 ms on a local disk.
const maxGlob = 20000

var errTooMany = fmt.Errorf("more than %d files to look at", maxGlob)

// A glob is one hide pattern: "*" matches any text and "?" any one character
// of one path element, dots at its start included. "**" as the first element
// below the workspace matches any number of directories.
func isGlob(s string) bool { return strings.ContainsAny(s, "*?") }

// A deepGlob is a pattern that started with "**/".
type deepGlob struct {
	layer  int
	elems  []string
	origin plan.Origin
}

// hidePath asks for an absolute path, without globs, to be hidden.
func (b *builder) hidePath(p string, o plan.Origin) {
	l := b.t.walk(p)
	switch {
	case l.err != nil && (errors.Is(l.err, fs.ErrPermission) || errors.Is(l.err, errNotDir)):
		// The command has the same rights, so it cannot get there either.
	case l.err != nil:
		b.fail(&plan.Error{Op: "cannot hide " + quote(p), Origin: o, Err: l.err})
	case l.missing != "":
		b.add(request{path: l.path, kind: reqHide, absent: true, layer: b.hideLayer, origin: o})
	default:
		b.add(request{path: l.path, kind: reqHide, typ: fileType(l.mode), layer: b.hideLayer, origin: o})
	}
}

// globBelow expands a pattern against the directory top, which is free of
// links. budget counts the entries that may still be looked at.
func (b *builder) globBelow(top, pattern string, o plan.Origin, budget *int) error {
	dirs := []string{top}
	elems := strings.FieldsFunc(pattern, func(r rune) bool { return r == '/' })
	for i, e := range elems {
		last := i == len(elems)-1
		var next []string
		for _, d := range dirs {
			if !isGlob(e) {
				p := join(d, e)
				if last {
					b.hidePath(p, o)
				} else if l := b.t.walk(p); l.exists() && l.mode.IsDir() {
					next = append(next, l.path)
				}
				continue
			}
			es, err := b.t.readDir(d)
			if err != nil {
				if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
					continue
				}
				return cause(err)
			}
			if *budget -= len(es); *budget < 0 {
				return errTooMany
			}
			for _, x := range es {
				if !match(e, x.Name()) {
					continue
				}
				p := join(d, x.Name())
				if last {
					b.hideEntry(p, x, o)
				} else if l := b.t.walk(p); l.exists() && l.mode.IsDir() {
					next = append(next, l.path)
				}
			}
		}
		dirs = next
	}
	return nil
}

// hideEntry hides what a directory listing shows; a name that is not UTF-8
// cannot be looked up through fs.FS, but its type is known already.
func (b *builder) hideEntry(p string, e fs.DirEntry, o plan.Origin) {
	if e.Type()&fs.ModeSymlink != 0 {
		b.hidePath(p, o)
		return
	}
	b.add(request{path: p, kind: reqHide, typ: fileType(e.Type()), layer: b.hideLayer, origin: o})
}

// hideDeep walks the workspace once for all "**/" patterns. It follows no
// links and does not enter .git, whose contents are not named by patterns.
func (b *builder) hideDeep(top string, globs []deepGlob, budget *int) error {
	var walk func(dir string, elems []string) error
	walk = func(dir string, elems []string) error {
		es, err := b.t.readDir(dir)
		if err != nil {
			if errors.Is(err, fs.ErrPermission) {
				return nil // the command cannot list it either
			}
			return &fs.PathError{Op: "list", Path: dir, Err: cause(err)}
		}
		if *budget -= len(es); *budget < 0 {
			return errTooMany
		}
		for _, e := range es {
			here := append(elems, e.Name())
			hit := false
			for _, g := range globs {
				if matchTail(g.elems, here) {
					b.hideLayer = g.layer
					b.hideEntry(join(dir, e.Name()), e, g.origin)
					hit = true
					break
				}
			}
			if !hit && e.IsDir() && e.Name() != ".git" {
				if err := walk(join(dir, e.Name()), here); err != nil {
					return err
				}
			}
		}
		return nil
	}
	return walk(top, nil)
}

func matchTail(pattern, elems []string) bool {
	if len(elems) < len(pattern) {
		return false
	}
	return slices.EqualFunc(pattern, elems[len(elems)-len(pattern):], match)
}

// match compares one element with one pattern. path.Match is not used because
// brackets and backslashes are plain characters here.
func match(pattern, s string) bool {
	// Iterative, so that many stars take quadratic and not exponential time.
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == '?':
			p++
			for i++; i < len(s) && s[i]&0xc0 == 0x80; i++ {
			}
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// hides asks for everything that the hide lists name.
func (b *builder) hides(items []Item[string], at places, base func(Item[string]) string) {
	defer func(n int) { b.hideLayer = n }(b.hideLayer)
	budget := maxGlob
	var deep []deepGlob
	for _, it := range items {
		b.hideLayer = it.layer
		s := it.V
		if tail, ok := strings.CutPrefix(s, "$workspace/**/"); ok {
			s = "**/" + tail
		}
		if tail, ok := strings.CutPrefix(s, "**/"); ok {
			tail = path.Clean("/" + tail)[1:]
			if tail == "" || slices.Contains(strings.Split(tail, "/"), "**") {
				b.badGlob(it)
				continue
			}
			deep = append(deep, deepGlob{layer: it.layer, elems: strings.Split(tail, "/"), origin: it.Origin})
			continue
		}
		if strings.Contains(s, "**") {
			b.badGlob(it)
			continue
		}
		p, err := at.expand(s, base(it))
		if err != nil {
			b.fail(&plan.Error{Op: "cannot hide " + quote(s), Origin: it.Origin, Err: err})
			continue
		}
		if !isGlob(s) {
			b.hidePath(p, it.Origin)
			continue
		}
		if slices.Contains(strings.Split(s, "/"), "..") {
			b.fail(&plan.Error{Op: "cannot hide " + quote(s) + ": a pattern cannot contain \"..\"", Origin: it.Origin})
			continue
		}
		// The directory in front of a pattern may itself hold pattern
		// characters; only what was written is one.
		if err := b.globFrom(p, s, it.Origin, &budget); err != nil {
			b.globError(s, it.Origin, err)
		}
	}
	if len(deep) > 0 {
		if err := b.hideDeep(b.workspace, deep, &budget); err != nil {
			b.globError("**/"+strings.Join(deep[0].elems, "/"), deep[0].origin, err)
		}
	}
}

// globFrom expands the pattern in p, whose last elements are as written in s.
func (b *builder) globFrom(p, s string, o plan.Origin, budget *int) error {
	written := strings.Split(s, "/")
	first := slices.IndexFunc(written, isGlob)
	tail := strings.Join(written[first:], "/")
	l := b.t.walk(strings.TrimSuffix(p, tail))
	if !l.exists() || !l.mode.IsDir() {
		return nil
	}
	return b.globBelow(l.path, tail, o, budget)
}

func (b *builder) badGlob(it Item[string]) {
	b.fail(&plan.Error{Op: "cannot hide " + quote(it.V) + ": \"**\" is only possible as the first element below the workspace", Origin: it.Origin,
		Hint: "write **/NAME, or name the directories"})
}

func (b *builder) globError(s string, o plan.Origin, err error) {
	e := &plan.Error{Op: "cannot hide " + quote(s), Origin: o, Err: err}
	if errors.Is(err, errTooMany) {
		e.Hint = "name the paths instead of a pattern, or choose a smaller workspace"
	}
	b.fail(e)
}
