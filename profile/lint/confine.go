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
	first := f.Extends.Origin
	for range maxChain {
		ext := f.Extends
		if !ext.Set || !strings.HasPrefix(ext.V, "./") && !strings.HasPrefix(ext.V, "../") {
			return true // a name, or refused by package profile
		}
		why := ""
		next := path.Join(path.Dir(file), ext.V)
		if !inside(next, x.src.Root) {
			why = "it is outside of the repository"
		} else if link := x.linkBelow(x.src.Root, next); link != "" {
			why = link + " is a symbolic link"
		}
		if why != "" {
			msg := "cannot extend " + strconv.Quote(ext.V) + ": " + why
			if ext.Origin != first {
				msg += " (" + relative(x.src.Root, file) + ":" + strconv.Itoa(ext.Origin.Line) + ")"
			}
			x.problem("W005", first, msg, "extend a built-in profile, or a file of the repository itself")
			return false
		}
		data, err := ReadFile(x.o.Host.FS, next)
		if err != nil {
			return true // package profile tells it
		}
		if f, err = profile.Parse(next, data); err != nil {
			return true
		}
		file = next
	}
	return true
}

// inside reports whether the clean absolute path p is dir or lies below it.
func inside(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// relative shortens a path below root.
func relative(root, p string) string { return strings.TrimPrefix(strings.TrimPrefix(p, root), "/") }

// linkBelow gives the first element of p below root that is a symbolic link,
// relative to root; "" when there is none.
func (x *check) linkBelow(root, p string) string {
	at := root
	for elem := range strings.SplitSeq(relative(root, p), "/") {
		at = path.Join(at, elem)
		if st, err := fs.Lstat(x.o.Host.FS, fsName(at)); err != nil {
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
