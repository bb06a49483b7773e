package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

// Info describes one scratch directory.
type Info struct {
	Path    string    // on the host
	ID      string    // as in plan.Scratch
	Created time.Time // when the directory was made; its last change where the file system does not say
	InUse   bool      // a run holds it
	Kept    bool      // it was, or is, to be kept at the end of its run
}

// Collect removes what killed runs left in a root: their placeholders, and
// their directories unless they were to be kept. It gives the paths of the
// directories it removed. Directories in use are left alone, as is everything
// that does not look like a scratch directory. A missing root is fine; when
// there is nothing to do, it costs one reading of the root.
func Collect(root string) (removed []string, err error) {
	r, err := openRoot(root, false)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.close()
	names, err := r.dirs()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	slices.Sort(names)
	var errs []error
	for _, name := range names {
		gone, err := r.collect(name, false)
		if err == errBusy {
			continue
		}
		if err != nil {
			errs = append(errs, &plan.Error{Op: "cannot remove all of " + root + "/" + name, Err: strange(err), Hint: "remove it by hand"})
		}
		if gone {
			removed = append(removed, root+"/"+name)
		}
	}
	if len(removed) > 0 {
		r.removeIfDefault()
	}
	return removed, errors.Join(errs...)
}

// ErrInUse says that a run is using a scratch directory.
var ErrInUse = errors.New("a run is using it")

// Discard removes one scratch directory that is not in use, also a kept one. It
// matches fs.ErrNotExist when there is none with this ID, and ErrInUse.
func Discard(root, id string) error {
	path := root + "/" + dirPrefix + id
	fail := func(err error, hint string) error {
		return &plan.Error{Op: "cannot remove " + path, Err: err, Hint: hint}
	}
	if !isID(id) {
		return fail(fs.ErrNotExist, "")
	}
	r, err := openRoot(root, false)
	if missing(err) {
		return fail(fs.ErrNotExist, "")
	}
	if err != nil {
		return err
	}
	defer r.close()
	gone, err := r.collect(dirPrefix+id, true)
	switch {
	case err == errBusy:
		return fail(ErrInUse, "wait for the run to end, or end it")
	case err != nil:
		return fail(strange(err), "")
	case !gone:
		return fail(fs.ErrNotExist, "")
	}
	r.removeIfDefault()
	return nil
}

// collect removes one directory if nobody uses it, else gives errBusy. Kept
// ones only lose their placeholders unless force is set.
func (r *rootDir) collect(name string, force bool) (gone bool, err error) {
	fd, err := openDirAt(r.fd, name)
	if err == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	d := &Dir{root: r, name: name, fd: fd}
	free, err := tryLock(fd, unix.LOCK_EX)
	if err == nil && !free {
		err = errBusy
	}
	linked := false
	if err == nil {
		// Whoever held the lock before may have removed it: then the name
		// is gone, or somebody else's by now.
		linked, err = isLinked(r.fd, name, fd)
	}
	if err != nil || !linked {
		unix.Close(fd)
		return false, err
	}
	keep := !force && exists(fd, keepName)
	if keep && !exists(fd, recordName) {
		unix.Close(fd)
		return false, nil
	}
	if err := d.finish(keep); err != nil {
		return false, err
	}
	return !keep, nil
}

// List gives all scratch directories of a root, sorted by path; none when the
// root is missing. Directories that vanish meanwhile are left out. Those that cannot be
// looked at are told as errors, together with all others.
func List(root string) ([]Info, error) {
	r, err := openRoot(root, false)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer r.close()
	names, err := r.dirs()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", root, err)
	}
	slices.Sort(names)
	var infos []Info
	var errs []error
	for _, name := range names {
		info, err := r.info(name)
		switch {
		case err == nil:
			infos = append(infos, info)
		case err != unix.ENOENT:
			errs = append(errs, &plan.Error{Op: "cannot look at " + root + "/" + name, Err: strange(err)})
		}
	}
	return infos, errors.Join(errs...)
}

// strange says what is wrong with something that has the name of a scratch directory.
func strange(err error) error {
	switch err {
	case unix.EXDEV:
		return errors.New("it is a mount point")
	case unix.ENOTDIR, unix.ELOOP:
		return errors.New("it is not a directory")
	}
	return err
}

func (r *rootDir) info(name string) (Info, error) {
	fd, err := openDirAt(r.fd, name)
	if err != nil {
		return Info{}, err
	}
	defer unix.Close(fd)
	var stx unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME|unix.STATX_MTIME, &stx); err != nil {
		return Info{}, err
	}
	created := stx.Mtime
	if stx.Mask&unix.STATX_BTIME != 0 {
		created = stx.Btime
	}
	// A shared lock for a moment; whoever wants the exclusive one meanwhile
	// tries again or takes the directory for one in use.
	free, err := tryLock(fd, unix.LOCK_SH)
	if err != nil {
		return Info{}, err
	}
	id, _ := dirID(name)
	return Info{
		Path:    r.path + "/" + name,
		ID:      id,
		Created: time.Unix(created.Sec, int64(created.Nsec)),
		InUse:   !free,
		Kept:    exists(fd, keepName),
	}, nil
}

// Size gives the bytes that one scratch directory of a root takes, see [Dir.Usage].
// It matches fs.ErrNotExist when there is none with this ID.
func Size(root, id string) (uint64, error) {
	if !isID(id) {
		return 0, fs.ErrNotExist
	}
	r, err := openRoot(root, false)
	if missing(err) {
		return 0, fs.ErrNotExist
	}
	if err != nil {
		return 0, err
	}
	defer r.close()
	fd, err := openDirAt(r.fd, dirPrefix+id)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return usage(fd, 0)
}

// missing reports whether openRoot found no root, as opposed to an unusable one.
func missing(err error) bool {
	_, told := errors.AsType[*plan.Error](err)
	return errors.Is(err, fs.ErrNotExist) && !told
}

func exists(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}
