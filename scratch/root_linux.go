package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"

	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

// A rootDir is an open scratch root that has been found safe to use.
type rootDir struct {
	path   string
	parent int // O_PATH
	fd     int
	uid    uint32
}

func (r *rootDir) close() {
	unix.Close(r.fd)
	unix.Close(r.parent)
}

// openRoot opens the scratch root, making it when create is set; without, a
// missing one matches fs.ErrNotExist. The parent may be a world-writable sticky
// directory in which somebody planted the name, so what is found there has to
// be a real directory of ours that nobody else can enter. No link is followed
// on the way.
func openRoot(root string, create bool) (*rootDir, error) {
	if err := checkRoot(root); err != nil {
		return nil, err
	}
	fail := func(err error, hint string) (*rootDir, error) {
		return nil, &plan.Error{Op: "cannot use the scratch root " + root, Err: err, Hint: hint}
	}
	dir, base := path.Dir(root), path.Base(root)
	parent, err := openat2(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
	switch {
	case err == unix.ENOENT && !create:
		return nil, fs.ErrNotExist
	case err == unix.ENOENT:
		return fail(fmt.Errorf("%s: %w", dir, err), "create it, or give --scratch-root another directory")
	case err == unix.ELOOP:
		return fail(fmt.Errorf("%s: %w", dir, err), "give --scratch-root the path that the symbolic link leads to")
	case err != nil:
		return fail(fmt.Errorf("%s: %w", dir, err), "give --scratch-root another directory")
	}
	r := &rootDir{path: root, parent: parent, fd: -1, uid: uint32(unix.Geteuid())}
	ok := false
	defer func() {
		if !ok {
			if r.fd >= 0 {
				unix.Close(r.fd)
			}
			unix.Close(parent)
		}
	}()

	var st unix.Stat_t
	if err := unix.Fstat(parent, &st); err != nil {
		return fail(err, "")
	}
	if st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return fail(fmt.Errorf("anybody can replace what is in %s", dir), "chmod +t "+strconv.Quote(dir)+", or give --scratch-root another directory")
	}

	made := false
	if create {
		err := retry(func() error { return unix.Mkdirat(parent, base, 0o700) })
		if err != nil && err != unix.EEXIST {
			return fail(fmt.Errorf("mkdir: %w", err), "give --scratch-root a directory in which you can write")
		}
		made = err == nil
	}
	r.fd, err = openat2(parent, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err == unix.EACCES && made {
		r.fd, err = openDirAt(parent, base) // the umask took our own bits
	}
	switch err {
	case nil:
	case unix.ENOENT:
		return nil, fs.ErrNotExist // also when it was removed again just now
	case unix.ELOOP, unix.ENOTDIR:
		return fail(errors.New("it is not a directory but a link or a file"), "remove it, or give --scratch-root another directory")
	default:
		return fail(err, "make it a directory of your own with mode 0700, or give --scratch-root another one")
	}
	if err := unix.Fstat(r.fd, &st); err != nil {
		return fail(err, "")
	}
	if st.Uid != r.uid {
		return fail(fmt.Errorf("it belongs to uid %d, not to you (uid %d)", st.Uid, r.uid), "somebody else made it first: remove it as its owner, or give --scratch-root another directory")
	}
	if made {
		// Not for an existing one: somebody chose its mode.
		if err := unix.Fchmod(r.fd, 0o700); err != nil {
			return fail(fmt.Errorf("fchmod: %w", err), "")
		}
	} else if st.Mode&0o077 != 0 {
		return fail(fmt.Errorf("others can enter it (mode %#o)", st.Mode&0o7777), "chmod 700 "+strconv.Quote(root))
	}
	ok = true
	return r, nil
}

// removeIfDefault removes a root of the default name when nothing is in it:
// a run leaves nothing on the host. Prepare copes with a root that vanishes.
func (r *rootDir) removeIfDefault() {
	base := path.Base(r.path)
	if base != path.Base(DefaultRoot("/", int(r.uid))) {
		return
	}
	if linked, err := isLinked(r.parent, base, r.fd); err == nil && linked {
		_ = unlink(r.parent, base, unix.AT_REMOVEDIR) // in use by others, usually
	}
}

// dirs gives the names of all scratch directories in the root.
func (r *rootDir) dirs() ([]string, error) {
	var names []string
	err := eachEntry(r.fd, make([]byte, 8<<10), func(e dirent) {
		if _, ok := dirID(e.name); ok && (e.typ == unix.DT_DIR || e.typ == unix.DT_UNKNOWN) {
			names = append(names, e.name)
		}
	})
	return names, err
}
