package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// maxLinks is the number of symbolic links followed in one path, as in
// path_resolution(7).
const maxLinks = 40

var (
	errLoop    = errors.New("too many levels of symbolic links")
	errNotDir  = errors.New("not a directory")
	errMissing = error(missing{})
)

// missing is fs.ErrNotExist in the words of the kernel.
type missing struct{}

func (missing) Error() string        { return "no such file or directory" }
func (missing) Is(target error) bool { return target == fs.ErrNotExist }

// A link is one symbolic link met on the way: where it is (a path without
// links) and its text.
type link struct {
	at   string
	text string
}

// A located path is the result of walking a path over the host's tree.
type located struct {
	path    string      // free of links; for a missing path the part that exists plus the rest as written
	mode    fs.FileMode // of the final file, see tree.lstat; 0 when missing
	links   []link      // in the order they were followed
	left    []string    // directories that ".." left again, free of links
	missing string      // the first component that does not exist; "" when all do
	err     error       // why the walk stopped, other than a missing file
}

func (l located) exists() bool { return l.err == nil && l.missing == "" }

// fileType gives the type that mounts know.
func fileType(m fs.FileMode) plan.FileType {
	switch {
	case m.IsDir():
		return plan.TypeDir
	case m&fs.ModeSymlink != 0:
		return plan.TypeSymlink
	}
	return plan.TypeFile
}

// A tree answers questions about the host's files. It remembers every answer,
// so that one Resolve sees one state and asks for no path twice.
type tree struct {
	fsys   fs.FS
	seen   map[string]entryInfo
	listed map[string]listing
}

type entryInfo struct {
	mode fs.FileMode
	text string // of a symbolic link
	err  error
}

// A listing is a directory that was read once.
type listing struct {
	entries []fs.DirEntry // sorted by name
	types   map[string]fs.FileMode
	err     error
}

func newTree(fsys fs.FS) *tree {
	return &tree{fsys: fsys, seen: make(map[string]entryInfo, 256), listed: map[string]listing{}}
}

// name turns an absolute path into a name for fs.FS.
func name(p string) string {
	if p == "/" {
		return "."
	}
	return p[1:]
}

// lstat looks at one path whose parent is free of links. The mode may lack
// permission bits, because a listing does not have them; see perm.
func (t *tree) lstat(p string) entryInfo {
	if e, ok := t.seen[p]; ok {
		return e
	}
	var e entryInfo
	typ, inList := fs.ModeSymlink, false
	dir, base := path.Split(p)
	if l, ok := t.listed[strings.TrimSuffix(dir, "/")]; ok && l.err == nil {
		if typ, inList = l.types[base]; !inList {
			t.seen[p] = entryInfo{err: fs.ErrNotExist}
			return t.seen[p]
		}
	}
	if inList && typ&fs.ModeSymlink == 0 {
		e.mode = typ
	} else if !fs.ValidPath(name(p)) {
		e.err = &fs.PathError{Op: "lstat", Path: p, Err: errors.New("the name is not valid UTF-8")}
	} else if st, err := fs.Lstat(t.fsys, name(p)); err != nil {
		e.err = err
	} else {
		e.mode = st.Mode()
		if e.mode&fs.ModeSymlink != 0 {
			e.text, e.err = fs.ReadLink(t.fsys, name(p))
		}
	}
	t.seen[p] = e
	return e
}

// perm gives the mode of a file, permission bits included, whose path is free of links.
func (t *tree) perm(p string) fs.FileMode {
	st, err := fs.Lstat(t.fsys, name(p))
	if err != nil {
		return 0
	}
	return st.Mode()
}

// exists reports whether something is at p, whose parent is free of links.
func (t *tree) exists(p string) bool { return t.lstat(p).err == nil }

// readDir lists a directory whose path is free of links, sorted by name. The
// listing also answers later questions about names in it.
func (t *tree) readDir(p string) ([]fs.DirEntry, error) {
	if l, ok := t.listed[p]; ok {
		return l.entries, l.err
	}
	var l listing
	if l.entries, l.err = fs.ReadDir(t.fsys, name(p)); l.err == nil {
		l.types = make(map[string]fs.FileMode, len(l.entries))
		for _, e := range l.entries {
			l.types[e.Name()] = e.Type()
		}
	}
	t.listed[p] = l
	return l.entries, l.err
}

// list prepares for many questions about one directory, most of which are
// about names that do not exist.
func (t *tree) list(dir string) {
	if e := t.lstat(dir); e.err == nil && e.mode.IsDir() {
		t.readDir(dir) // without an answer every question is asked by itself
	}
}

// walk follows an absolute path to the file it names. ".." goes to the real
// parent, as in the kernel. It never follows the links of /proc that lead
// outside the tree, because it only ever reads their text.
func (t *tree) walk(p string) located { return t.follow(p, true) }

// walkParent is walk without following a link in the last component.
func (t *tree) walkParent(p string) located { return t.follow(p, false) }

func (t *tree) follow(p string, last bool) located {
	var l located
	cur := "/"
	mode := fs.ModeDir
	rest := p
	for rest != "" {
		var c string
		c, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		rest = strings.TrimLeft(rest, "/")
		switch c {
		case "", ".":
			continue
		case "..":
			l.left = append(l.left, cur)
			cur = path.Dir(cur)
			mode = fs.ModeDir
			continue
		}
		at := join(cur, c)
		if !mode.IsDir() {
			l.path, l.missing, l.err = join(at, rest), "", errNotDir
			return l
		}
		e := t.lstat(at)
		if e.err != nil {
			l.path = path.Clean(join(at, rest))
			if errors.Is(e.err, fs.ErrNotExist) {
				l.missing = at
				if strings.Contains("/"+rest+"/", "/../") {
					l.path = at
				}
				return l
			}
			l.err = cause(e.err)
			return l
		}
		if e.mode&fs.ModeSymlink != 0 && (last || rest != "") {
			if len(l.links) == maxLinks {
				l.path, l.err = at, errLoop
				return l
			}
			l.links = append(l.links, link{at, e.text})
			if strings.HasPrefix(e.text, "/") {
				cur = "/"
			}
			mode = fs.ModeDir
			rest = e.text + "/" + rest
			continue
		}
		cur, mode = at, e.mode
	}
	l.path, l.mode = cur, mode
	return l
}

// cause takes the path and operation off an error, which the message has already.
func cause(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

func join(dir, rest string) string {
	if rest == "" {
		return dir
	}
	if dir == "/" {
		return "/" + rest
	}
	return dir + "/" + rest
}

// within reports whether p is dir or lies below it.
func within(p, dir string) bool {
	return p == dir || below(p, dir)
}

// below reports whether p lies below dir and is not dir.
func below(p, dir string) bool {
	if dir == "/" {
		return p != "/"
	}
	return len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// places are the directories that a written path can start from.
type places struct {
	home      string // of the account record, as written there; "" when unknown
	workspace string // free of links
	cwd       string // free of links
}

var errNoHome = errors.New("the account has no home directory")

// expand makes a written path absolute. base is what a relative path starts
// from. The path must have passed badPath.
func (p places) expand(s, base string) (string, error) {
	head, rest, _ := strings.Cut(s, "/")
	switch head {
	case "":
		return s, nil
	case "~", "$home":
		if p.home == "" {
			return "", errNoHome
		}
		return join(p.home, rest), nil
	case "$workspace":
		return join(p.workspace, rest), nil
	case "$cwd":
		return join(p.cwd, rest), nil
	}
	if base == "" {
		return "", fmt.Errorf("%q has no directory to start from", s)
	}
	return join(base, s), nil
}
