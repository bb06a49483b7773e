package lint

import (
	"errors"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// ErrLink is why a file below a checked directory is not opened.
var ErrLink = errors.New("it is a symbolic link")

// maxChain is how many files are looked at that extend one another; package
// profile takes fewer.
const maxChain = 16

// confined reports whether all files that the profile is laid over lie in the
// root of the source and are reached through no link. It is asked before any
// of them is opened, and looks at nothing outside: not even whether there is
// something. A profile that is extended by name is the user's, the machine's
// or wall's own, and what that extends in turn is theirs to say.
func (x *check) confined(f *profile.File) bool {
	if x.src.Root == "" {
		return true
	}
	file := x.src.Path
	if x.src.Target != "" {
		file = x.src.Target
	}
	if e := confine(x.o.Host.FS, x.src.Root, file, f); e != nil {
		x.problem("W005", e.Origin, e.Op, e.Hint)
		return false
	}
	return true
}

// Confined tells whether every file that the text of a profile at the path file
// extends lies in the directory root and is reached through no link; all paths
// are absolute and free of links. It looks at nothing outside of root, not even
// whether there is something, so that it can be asked about a text that nobody
// has reviewed before [profile.LoadFile] is. A text that is no profile extends
// nothing.
func Confined(fsys fs.FS, root, file string, data []byte) error {
	f, err := profile.Parse(file, data)
	if err != nil {
		return nil // whoever loads it tells it
	}
	if e := confine(fsys, root, file, f); e != nil {
		return e
	}
	return nil
}

// confine gives what a file extends and may not, at the line of f that leads to it.
func confine(fsys fs.FS, root, file string, f *profile.File) *plan.Error {
	first := f.Extends.Origin
	for range maxChain {
		ext := f.Extends
		if !ext.Set || !strings.HasPrefix(ext.V, "./") && !strings.HasPrefix(ext.V, "../") {
			return nil // a name, or refused by package profile
		}
		why := ""
		next := path.Join(path.Dir(file), ext.V)
		if !inside(next, root) {
			why = "it is outside of the repository"
		} else if link := linkBelow(fsys, root, next); link != "" {
			why = link + " is a symbolic link"
		}
		if why != "" {
			msg := "cannot extend " + strconv.Quote(ext.V) + ": " + why
			if ext.Origin != first {
				msg += " (" + relative(root, file) + ":" + strconv.Itoa(ext.Origin.Line) + ")"
			}
			return &plan.Error{Op: msg, Origin: first, Hint: "extend a built-in profile, or a file of the repository itself"}
		}
		data, err := ReadFile(fsys, next)
		if err != nil {
			return nil // package profile tells it
		}
		if f, err = profile.Parse(next, data); err != nil {
			return nil
		}
		file = next
	}
	return nil
}

// inside reports whether the clean absolute path p is dir or lies below it.
func inside(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// relative shortens a path below root.
func relative(root, p string) string { return strings.TrimPrefix(strings.TrimPrefix(p, root), "/") }

// linkBelow gives the first element of p below root that is a symbolic link,
// relative to root; "" when there is none.
func linkBelow(fsys fs.FS, root, p string) string {
	at := root
	for elem := range strings.SplitSeq(relative(root, p), "/") {
		at = path.Join(at, elem)
		if st, err := fs.Lstat(fsys, fsName(at)); err != nil {
			return ""
		} else if st.Mode()&fs.ModeSymlink != 0 {
			return relative(root, at)
		}
	}
	return ""
}

// linkedProblem reports a file that is reached through a link and is no profile.
// Its place is given, and nothing that is in it: the link may have been put into
// a workspace to show it.
func (x *check) linkedProblem() {
	x.problem("W006", plan.Origin{File: x.src.Name, Line: 1, Column: 1}, "cannot read the profile: it is reached through a symbolic link and is no profile", "name the file itself to see what is wrong with it")
}
