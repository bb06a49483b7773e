package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// maxOpen bounds the descriptors that removing a tree holds at a time.
	maxOpen = 48
	// maxPasses bounds how often a directory is read again because entries
	// keep appearing; a survivor that writes faster than we remove is an error.
	// Reading the top again for what was moved up into it does not count: each
	// such pass takes maxOpen levels off the tree, however deep it is.
	maxPasses = 1000
	// maxReported bounds the errors that are told one by one.
	maxReported = 5
)

// emptyDir removes everything in the directory top except the names in leave;
// path is for messages. What cannot be removed is reported, and the rest is
// removed all the same.
//
// Directories are entered by descriptor one level at a time, with
// RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and RESOLVE_NO_XDEV: a link swapped in is
// unlinked instead, a mount point is reported and left. The descriptors of
// one branch stay open, at most maxOpen; a directory that lies deeper is moved
// up into top first and emptied from there, so depth costs neither
// descriptors nor stack nor path length. Entries are streamed.
func emptyDir(top int, path string, leave map[string]bool) error {
	r := remover{top: top}
	buf := make([]byte, 32<<10)
	for idle := 0; idle < maxPasses; idle++ {
		moved := r.moved
		progress, left := r.pass(top, path, buf, 0, leave)
		if left == 0 || !progress {
			return r.err()
		}
		if r.moved > moved {
			idle = 0
		}
		r.errs, r.failed = nil, 0 // what still fails is met again
	}
	r.fail(path, errors.New("entries keep appearing"))
	return r.err()
}

type remover struct {
	top    int
	moved  int // names given out for directories moved up
	errs   []error
	failed int
}

func (r *remover) fail(path string, err error) {
	r.failed++
	if len(r.errs) < maxReported {
		r.errs = append(r.errs, &fs.PathError{Op: "remove", Path: path, Err: err})
	}
}

func (r *remover) err() error {
	if more := r.failed - len(r.errs); more > 0 {
		return errors.Join(append(r.errs, fmt.Errorf("and %d more could not be removed", more))...)
	}
	return errors.Join(r.errs...)
}

// pass tries to remove each entry of fd once. It reports whether anything was
// removed or moved up, and how many entries it met.
func (r *remover) pass(fd int, path string, buf []byte, depth int, leave map[string]bool) (progress bool, met int) {
	err := eachEntry(fd, buf, func(e dirent) {
		if depth == 0 && leave[e.name] {
			return
		}
		met++
		if r.entry(fd, path, e, depth) {
			progress = true
		}
	})
	if err != nil {
		r.fail(path, err)
	}
	return progress, met
}

// entry removes one entry of fd, or moves it up; false when it is still there.
func (r *remover) entry(fd int, path string, e dirent, depth int) bool {
	path += "/" + e.name
	if e.typ != unix.DT_DIR && e.typ != unix.DT_UNKNOWN {
		err := unlink(fd, e.name, 0)
		if err == nil {
			return true
		}
		if err != unix.EISDIR && err != unix.EPERM {
			r.fail(path, err)
			return false
		}
		// EISDIR: it became a directory. EPERM is POSIX for the same, or an
		// immutable file; opening it tells.
		if !isDirectory(fd, e.name) {
			r.fail(path, err)
			return false
		}
	}

	if e.typ == unix.DT_DIR && unlink(fd, e.name, unix.AT_REMOVEDIR) == nil {
		return true // it was empty, as most sub-directories of a short run are
	}
	child, err := openDirAt(fd, e.name)
	switch err {
	case nil:
	case unix.ENOENT:
		return true
	case unix.ENOTDIR, unix.ELOOP: // of unknown type, or swapped
		if err := unlink(fd, e.name, 0); err != nil {
			r.fail(path, err)
			return false
		}
		return true
	case unix.EXDEV:
		r.fail(path, errors.New("it is a mount point"))
		return false
	default:
		r.fail(path, err)
		return false
	}
	defer unix.Close(child)

	// Unlinking in a directory, and giving it another parent, need write
	// permission on it. Module caches are 0555.
	var st unix.Stat_t
	if err := unix.Fstat(child, &st); err == nil && st.Mode&0o700 != 0o700 {
		_ = unix.Fchmod(child, 0o700) // not ours: then the removal fails and is reported
	}

	if depth+1 >= maxOpen {
		if err := r.moveUp(fd, e.name); err != nil {
			r.fail(path, err)
			return false
		}
		return true
	}

	buf := make([]byte, 8<<10)
	for range maxPasses {
		failed := r.failed
		progress, _ := r.pass(child, path, buf, depth+1, nil)
		err := unlink(fd, e.name, unix.AT_REMOVEDIR)
		switch {
		case err == nil:
			return true
		case err == unix.ENOTEMPTY || err == unix.EEXIST:
			if progress && r.failed == failed {
				continue // something appeared meanwhile, or was not shown
			}
			if r.failed == failed {
				r.fail(path, err)
			}
			return progress
		default:
			r.fail(path, err)
			return progress
		}
	}
	r.fail(path, errors.New("entries keep appearing"))
	return false
}

// moveUp gives the directory name in fd a new name in the top directory, where
// the next pass finds it.
func (r *remover) moveUp(fd int, name string) error {
	for {
		r.moved++
		to := ".deep-" + strconv.Itoa(r.moved)
		err := retry(func() error { return unix.Renameat2(fd, name, r.top, to, unix.RENAME_NOREPLACE) })
		if err == unix.EINVAL || err == unix.ENOSYS {
			// The file system cannot promise not to replace; for a directory,
			// rename(2) replaces nothing but an empty directory.
			err = retry(func() error { return unix.Renameat(fd, name, r.top, to) })
		}
		switch err {
		case nil, unix.ENOENT:
			return nil
		case unix.EEXIST, unix.ENOTEMPTY, unix.ENOTDIR:
			continue
		}
		return err
	}
}

// unlink removes one name; one that is gone already is fine.
func unlink(dir int, name string, flags int) error {
	err := retry(func() error { return unix.Unlinkat(dir, name, flags) })
	if err == unix.ENOENT {
		return nil
	}
	return err
}

func isDirectory(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
