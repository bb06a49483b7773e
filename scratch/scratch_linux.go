package scratch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

// maxSeed bounds a seeded file: they are credentials and settings.
const maxSeed = 16 << 20

// A Dir is the scratch directory of a run, locked for as long as the
// descriptor behind it is open in any process. Its methods are for one
// goroutine at a time.
type Dir struct {
	root  *rootDir
	name  string // wall-<id>
	fd    int
	kept  *int // what outlives the run, locked; nil when there is none
	keep  bool
	seeds []error
	made  []entry // placeholders, by this process
}

// Prepare makes the scratch directory of a plan with everything in it, and the
// placeholders. On error nothing is left behind, and the error is a
// [plan.Error] when a person can do something about it. s.Root must not be
// empty.
//
// The modes are exact whatever the umask is. A seed whose source is missing is
// skipped; one that cannot be copied for another reason leaves no file, and
// [Dir.SeedErrors] tells: a login that fails is the lesser evil, and the real
// home is never an alternative. So it is with a directory that cannot be copied
// whole: it is empty then. A kept directory that another run uses is an error
// matching [ErrKeptBusy]. A placeholder that exists already is an error
// matching fs.ErrExist, unless another live run of the same root made it.
func Prepare(s plan.Scratch) (*Dir, error) {
	if err := checkScratch(s); err != nil {
		return nil, err
	}
	d, err := create(s)
	if err != nil {
		return nil, scratchError(s.Path(), err)
	}
	if err := d.fill(s, false); err != nil {
		d.keep = false
		return nil, errors.Join(scratchError(s.Path(), err), d.Remove())
	}
	return d, nil
}

// scratchError puts an error that is not told for people yet in a person's words.
func scratchError(path string, err error) error {
	var pe *plan.Error
	if errors.As(err, &pe) {
		return err
	}
	hint := ""
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		hint = "free some space, or give --scratch-root a directory on another file system"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS), errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOLCK):
		hint = "give --scratch-root a directory on a local file system in which you can write"
	}
	return &plan.Error{Op: "cannot make the scratch directory " + path, Err: err, Hint: hint}
}

// create makes and locks the directory. Between the two steps a Collect of
// another process may take it for a leftover: then the lock is busy for a
// moment, and afterwards the name is gone, and we make it again.
func create(s plan.Scratch) (*Dir, error) {
	const attempts = 100
	name := dirPrefix + s.ID
	for range attempts {
		root, err := openRoot(s.Root, true)
		if errors.Is(err, fs.ErrNotExist) {
			if _, ok := errors.AsType[*plan.Error](err); !ok {
				continue // removed by the last run that ended, just now
			}
		}
		if err != nil {
			return nil, err
		}
		fd, again, err := createIn(root, name)
		if err == nil && !again {
			return &Dir{root: root, name: name, fd: fd, keep: s.Keep}, nil
		}
		root.close()
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("other wall processes keep removing it")
}

func createIn(root *rootDir, name string) (fd int, again bool, err error) {
	err = retry(func() error { return unix.Mkdirat(root.fd, name, 0o700) })
	if err == unix.ENOENT {
		return -1, true, nil // the root was removed
	}
	if err != nil {
		return -1, false, os.NewSyscallError("mkdirat", err)
	}
	testOnlyAfterMkdir()
	fd, err = openDirAt(root.fd, name)
	if err == unix.ENOENT {
		return -1, true, nil
	}
	if err != nil {
		_ = unlink(root.fd, name, unix.AT_REMOVEDIR)
		return -1, false, os.NewSyscallError("openat2", err)
	}
	if err := lock(fd); err != nil {
		unix.Close(fd)
		_ = unlink(root.fd, name, unix.AT_REMOVEDIR)
		return -1, false, err
	}
	linked, err := isLinked(root.fd, name, fd)
	if err != nil || !linked {
		unix.Close(fd)
		return -1, err == nil, err
	}
	return fd, false, nil
}

// testOnlyAfterMkdir runs between making and locking a directory.
var testOnlyAfterMkdir = func() {}

// fill makes everything in the directory; again says that it was filled before.
func (d *Dir) fill(s plan.Scratch, again bool) error {
	if err := unix.Fchmod(d.fd, 0o700); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	guards := s.Guards
	for _, p := range s.Placeholders {
		if !slices.Contains(guards, p.Path) { // a placeholder is there to be mounted on
			guards = append(slices.Clip(guards), p.Path)
		}
	}
	if err := d.writeGuards(guards); err != nil {
		return err
	}
	// Every run has a record, also when it makes no placeholder: others may
	// hand it theirs. It comes after the guards, because it makes the run live.
	files := []string{recordName}
	if s.Keep && !again {
		files = append(files, keepName)
	}
	for _, name := range files {
		fd, err := d.createFile(d.fd, name)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	if s.Kept.Path != "" && !again {
		fd, err := openKept(s.Kept)
		if err != nil {
			return err
		}
		d.kept = &fd
	}
	for _, sub := range s.Dirs {
		if err := makeDir(d.fd, sub.Name, sub.Mode); err != nil && !(again && errors.Is(err, fs.ErrExist)) {
			return fmt.Errorf("%s: %w", sub.Name, err)
		}
	}
	for _, seed := range s.Seeds {
		if err := d.seed(seed); err != nil {
			d.seeds = append(d.seeds, &plan.Error{
				Op:     "ignoring " + seed.Source + ", which should be copied into the scratch home",
				Origin: seed.Origin,
				Err:    err,
			})
		}
	}
	for _, c := range s.Copies {
		if err := d.copyTree(c); err != nil {
			d.seeds = append(d.seeds, &plan.Error{Op: "ignoring the cache " + c.Source + ", which should be copied: it is empty inside", Origin: c.Origin, Err: err})
		}
	}
	return d.makePlaceholders(s.Placeholders)
}

// writeGuards notes the paths on which this run mounts.
func (d *Dir) writeGuards(paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	fd, err := d.createFile(d.fd, guardsName)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return writeAll(fd, []byte(strings.Join(paths, "\x00")+"\x00"))
}

// createFile makes an empty file of mode 0600 exactly.
func (d *Dir) createFile(dir int, name string) (int, error) {
	fd, err := openat2(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return -1, os.NewSyscallError("openat2", err)
	}
	if err := unix.Fchmod(fd, 0o600); err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("fchmod", err)
	}
	return fd, nil
}

// makeDir makes a directory of exactly this mode.
func makeDir(dir int, name string, mode uint32) error {
	if err := retry(func() error { return unix.Mkdirat(dir, name, 0o700) }); err != nil {
		return os.NewSyscallError("mkdirat", err)
	}
	fd, err := openDirAt(dir, name)
	if err != nil {
		return os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, mode))
}

// seed copies one file.
func (d *Dir) seed(s plan.Seed) error {
	// O_NONBLOCK: opening a FIFO must not wait for its writer.
	from, err := openat2(unix.AT_FDCWD, s.Source, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, unix.RESOLVE_NO_SYMLINKS)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		// Programs expect at least the directory of their settings.
		if dir, _, err := d.seedDir(s.Target); err == nil {
			unix.Close(dir)
		}
		return nil
	}
	if err == unix.ELOOP {
		return errors.New("it is, or lies behind, a symbolic link")
	}
	if err != nil {
		return err
	}
	defer unix.Close(from)
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("it is not a regular file")
	}
	data, err := readAll(from, maxSeed)
	if err != nil {
		return err
	}

	dir, base, err := d.seedDir(s.Target)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	to, err := d.createFile(dir, base)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	if err := writeAll(to, data); err != nil {
		return errors.Join(err, unlink(dir, base, 0))
	}
	return nil
}

// seedDir opens the directory of a seed's target, making what is missing with
// mode 0700.
func (d *Dir) seedDir(target string) (dir int, base string, err error) {
	elements := strings.Split(target, "/")
	dir, err = openDirAt(d.fd, elements[0])
	if err != nil {
		return -1, "", err
	}
	for _, e := range elements[1 : len(elements)-1] {
		if err := makeDir(dir, e, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			unix.Close(dir)
			return -1, "", err
		}
		next, err := openDirAt(dir, e)
		unix.Close(dir)
		if err != nil {
			return -1, "", err
		}
		dir = next
	}
	return dir, elements[len(elements)-1], nil
}

// Renew makes the directory fit for the next command of the same run, when the box
// of the one before has ended: its placeholders go, as with [Dir.Remove], those of s
// are made, and sub-directories that are missing. What is in the others stays, and
// nothing is seeded or copied again; but the sub-directories named in clear are
// emptied: an overlay that is mounted "volatile" leaves a mark in its work directory,
// with which it cannot be mounted again. s must name this directory.
func (d *Dir) Renew(s plan.Scratch, clear []string) error {
	if err := checkScratch(s); err != nil {
		return err
	}
	if d.fd < 0 || s.Path() != d.Path() {
		return fmt.Errorf("scratch: %s is not the directory %s", s.Path(), d.name)
	}
	if done, err := d.releasePlaceholders(); err != nil || !done {
		return scratchError(d.Path(), errors.Join(errors.New("placeholders of the last command are left"), err))
	}
	d.made = nil
	if err := unlink(d.fd, guardsName, 0); err != nil && err != unix.ENOENT {
		return scratchError(d.Path(), os.NewSyscallError("unlinkat", err))
	}
	for _, name := range clear {
		sub, err := openDirAt(d.fd, name)
		if err == unix.ENOENT {
			continue
		}
		if err == nil {
			err = emptyDir(sub, d.Path()+"/"+name, nil)
			unix.Close(sub)
		}
		if err != nil {
			return scratchError(d.Path(), fmt.Errorf("empty %s: %w", name, err))
		}
	}
	s.Seeds, s.Copies = nil, nil
	if err := d.fill(s, true); err != nil {
		return scratchError(d.Path(), err)
	}
	return nil
}

// FD is a descriptor of the directory, opened for reading, close-on-exec, valid
// until [Dir.Remove]. A process that inherits it keeps the directory locked:
// give it to pid 1 of the box, so that nobody collects the directory before
// the box has ended.
func (d *Dir) FD() int { return d.fd }

// KeptFD is a descriptor of the kept directory, close-on-exec, valid until
// [Dir.Remove], -1 when there is none. A process that inherits it keeps the
// directory locked.
func (d *Dir) KeptFD() int {
	if d.kept == nil {
		return -1
	}
	return *d.kept
}

// Path is the path of the directory on the host.
func (d *Dir) Path() string { return d.root.path + "/" + d.name }

// SeedErrors tells which seeds and directories were not copied, as [plan.Error]
// values that begin with "ignoring", in plan order. A missing source is not among them.
func (d *Dir) SeedErrors() []error { return d.seeds }

// Remove ends the use of the directory; call it when the box has ended.
// Placeholders go first (or to another live run), then the tree, unless the
// plan said to keep it. A placeholder that somebody put something in, or
// replaced, stays. What could not be removed is reported, at most a few by
// name, and is left to a later [Collect]. The lock is released in any case; a
// second Remove does nothing.
func (d *Dir) Remove() error {
	if d.fd < 0 {
		return nil
	}
	err := d.finish(d.keep)
	if err != nil {
		err = &plan.Error{Op: "cannot remove all of " + d.Path(), Err: err, Hint: "the next run tries again; otherwise remove it by hand"}
	}
	d.root.removeIfDefault()
	d.root.close()
	return err
}

// finish removes placeholders and, unless keep is set, the tree; it unlocks.
func (d *Dir) finish(keep bool) error {
	defer func() {
		unix.Close(d.fd)
		d.fd = -1
		if d.kept != nil {
			unix.Close(*d.kept)
			d.kept = nil
		}
	}()
	_ = unix.Fchmod(d.fd, 0o700) // somebody may have taken our own right to write
	done, err := d.releasePlaceholders()
	if keep {
		return err
	}
	leave := map[string]bool{}
	if !done {
		records, nerr := recordNames(d.fd)
		err = errors.Join(err, nerr)
		for _, name := range records {
			leave[name] = true
		}
	}
	err = errors.Join(err, emptyDir(d.fd, d.Path(), leave))
	if err != nil || !done {
		return err
	}
	// Only if it is still ours; whatever is under the name then is removed
	// only when it is empty.
	linked, err := isLinked(d.root.fd, d.name, d.fd)
	if err != nil || !linked {
		return err
	}
	return os.NewSyscallError("rmdir", unlink(d.root.fd, d.name, unix.AT_REMOVEDIR))
}
