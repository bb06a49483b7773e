package scratch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

// Placeholders are shared by all runs of a root, and that matters for safety:
// when a name that is a mount point in some other mount namespace is removed,
// the kernel detaches that mount. If run A made .git/hooks, and run B started
// meanwhile and protects the directory it found there, A must not remove it
// before B has ended. So a run that ends hands its record to the live runs
// that mount on a path in it, if there are any; the last one removes what is
// in it.
//
// Live is who holds the lock of its directory and still has a record. Making,
// handing over and removing happen under a lock on the root, held for
// moments.

// makePlaceholders makes what the plan lists, recording each before and after.
func (d *Dir) makePlaceholders(list []plan.Placeholder) error {
	if len(list) == 0 {
		return nil
	}
	if err := lock(d.root.fd); err != nil {
		return &plan.Error{Op: "cannot prepare protected names", Err: fmt.Errorf("%s: %w", d.root.path, err), Hint: "another wall process is stuck; end it and run again"}
	}
	defer unix.Flock(d.root.fd, unix.LOCK_UN)
	record, err := openat2(d.fd, recordName, unix.O_WRONLY|unix.O_APPEND|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH)
	if err != nil {
		return fmt.Errorf("open the record of placeholders: %w", err)
	}
	defer unix.Close(record)
	for _, p := range list {
		if err := d.makePlaceholder(record, p); err != nil {
			return &plan.Error{Op: "cannot protect " + p.Path + ", which does not exist yet", Origin: p.Origin, Err: err, Hint: placeholderHint(err)}
		}
	}
	return nil
}

func placeholderHint(err error) string {
	switch {
	case errors.Is(err, fs.ErrExist):
		return "it appeared after wall looked; run again"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP):
		return "the directory that it is in changed after wall looked; run again"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return "make its parent directory writable for you, or create it"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "free some space there and in the scratch directory, which notes what has to be removed again; --scratch-root gives another one"
	}
	return ""
}

func (d *Dir) makePlaceholder(record int, p plan.Placeholder) error {
	parent, err := openat2(unix.AT_FDCWD, path.Dir(p.Path), unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return fmt.Errorf("open %s: %w", path.Dir(p.Path), err)
	}
	defer unix.Close(parent)
	base := path.Base(p.Path)

	e := entry{Path: []byte(p.Path), Type: p.Type, Content: []byte(p.Content)}
	f, err := look(parent, base)
	if err == nil {
		return d.shared(e, f)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeAll(record, e.encode()); err != nil {
		return err
	}
	if p.Type == plan.TypeDir {
		f, err = makeEmptyDir(parent, base)
	} else {
		f, err = makeFile(parent, base, p.Content)
	}
	if err != nil {
		if errors.Is(err, fs.ErrExist) {
			e.Void = true // what is there now is not ours
			return errors.Join(err, writeAll(record, e.encode()))
		}
		return err
	}
	e.Dev, e.Ino, e.Born = f.dev, f.ino, f.born
	d.made = append(d.made, e)
	return writeAll(record, e.encode())
}

// shared accepts something that exists already when it is the placeholder of a
// run that still lives, which will hand it over, or was handed to this run
// already; else it is an error.
func (d *Dir) shared(want entry, f file) error {
	found := false
	ask := func(fd int) bool {
		names, err := recordNames(fd)
		if err != nil {
			return true // ended just now, or not readable: then not shared
		}
		for _, name := range names {
			r, err := readRecord(fd, name)
			found = found || err == nil && slices.ContainsFunc(r.entries, func(e entry) bool {
				return bytes.Equal(e.Path, want.Path) && e.Type == want.Type && bytes.Equal(e.Content, want.Content) &&
					e.Ino == f.ino && e.Dev == f.dev
			})
		}
		return !found
	}
	if ask(d.fd) {
		if err := d.eachLive(ask); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("changed since wall looked: %w", unix.EEXIST)
	}
	return nil
}

func makeEmptyDir(parent int, base string) (file, error) {
	if err := retry(func() error { return unix.Mkdirat(parent, base, 0o755) }); err != nil {
		return file{}, os.NewSyscallError("mkdirat", err)
	}
	return look(parent, base)
}

func makeFile(parent int, base, content string) (file, error) {
	fd, err := openat2(parent, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return file{}, os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	f, err := look(fd, "")
	if err != nil {
		return file{}, err
	}
	// Readable for all: with a .git/commondir that it cannot read, another
	// user's git would stop working in this repository meanwhile.
	if err := unix.Fchmod(fd, 0o644); err != nil {
		return file{}, os.NewSyscallError("fchmod", err)
	}
	return f, writeAll(fd, []byte(content))
}

// releasePlaceholders removes the placeholders in the records of d, or leaves
// them to a run that lives, and removes the records, the own one last: from then
// on nobody hands any to d. A record with entries that could not be removed
// stays, for a later Collect; then done is false.
func (d *Dir) releasePlaceholders() (done bool, err error) {
	if err := lock(d.root.fd); err != nil {
		return false, &plan.Error{Op: "cannot remove what protected absent names", Err: fmt.Errorf("%s: %w", d.root.path, err), Hint: "the next run tries again"}
	}
	defer unix.Flock(d.root.fd, unix.LOCK_UN)
	names, err := recordNames(d.fd)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, name := range names {
		if name == recordName && len(errs) > 0 {
			break
		}
		if err := d.releaseRecord(name); err != nil {
			errs = append(errs, err)
		}
	}
	return len(errs) == 0, errors.Join(errs...)
}

func (d *Dir) releaseRecord(name string) error {
	r, err := readRecord(d.fd, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(r.entries) > 0 {
		left, err := d.handOver(name, r.entries)
		if err != nil {
			return err
		}
		if err := d.removePlaceholders(left, r.since); err != nil {
			return err
		}
	}
	return os.NewSyscallError("unlinkat", unlink(d.fd, name, 0))
}

// handOver gives the record name to each live run that mounts on a path in it, and
// returns the entries that nobody needs any more. The record is given as a
// hard link: it stays the file that it is, made before its placeholders were,
// and that is the proof that they may be removed.
func (d *Dir) handOver(name string, entries []entry) (left []entry, err error) {
	left = entries
	to := name
	if to == recordName {
		// Named for the file and not for the run: one that starts a second time has
		// the same directory again, with another record. No other record has this
		// inode number as long as there is a link to it.
		f, err := look(d.fd, name)
		if err != nil {
			return entries, err
		}
		to += fmt.Sprintf("-%016x", f.ino)
	}
	var werr error
	err = d.eachLive(func(fd int) bool {
		paths, err := guarded(fd)
		if err != nil {
			werr = err // better left behind than taken from under a run
			return false
		}
		var others []entry
		for _, e := range left {
			if !paths[string(e.Path)] {
				others = append(others, e)
			}
		}
		if len(others) == len(left) {
			return true
		}
		err = retry(func() error { return unix.Linkat(d.fd, name, fd, to, 0) })
		if err != nil && err != unix.EEXIST {
			werr = os.NewSyscallError("linkat", err)
			return false
		}
		left = others
		return len(left) > 0
	})
	return left, errors.Join(err, werr)
}

// eachLive calls f with every other directory of the root that someone holds
// locked and that has a record, until f gives false.
func (d *Dir) eachLive(f func(fd int) bool) error {
	names, err := d.root.dirs()
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if name == d.name {
			continue
		}
		fd, err := openDirAt(d.root.fd, name)
		if err != nil {
			continue // removed meanwhile, or no directory of ours
		}
		free, err := tryLock(fd, unix.LOCK_SH)
		more := true
		if err == nil && !free {
			var st unix.Stat_t
			if unix.Fstatat(fd, recordName, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				more = f(fd)
			}
		}
		unix.Close(fd)
		if err != nil {
			return err
		}
		if !more {
			return nil
		}
	}
	return nil
}

// recordNames gives the names of the records in the scratch directory dir: those
// that other runs handed over, and the own one last.
func recordNames(dir int) ([]string, error) {
	var names []string
	own := false
	err := eachEntry(dir, make([]byte, 4<<10), func(e dirent) {
		if e.name == recordName {
			own = true
		} else if isRecord(e.name) {
			names = append(names, e.name)
		}
	})
	slices.Sort(names)
	if own {
		names = append(names, recordName)
	}
	return names, err
}

// A recordFile is one record of placeholders as it lies on disk.
type recordFile struct {
	entries []entry
	since   stamp // when the file was made, zero where the file system does not say
}

// readRecord reads one record of the scratch directory dir.
func readRecord(dir int, name string) (recordFile, error) {
	fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, unix.RESOLVE_BENEATH)
	if err != nil {
		return recordFile{}, os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	f, err := look(fd, "")
	if err != nil {
		return recordFile{}, err
	}
	data, err := readAll(fd, maxRecord)
	if err != nil {
		return recordFile{}, fmt.Errorf("record of placeholders: %w", err)
	}
	entries, err := decodeRecord(data)
	return recordFile{entries, f.born}, err
}

// guarded gives the paths that the run with the scratch directory dir mounts on.
func guarded(dir int) (map[string]bool, error) {
	paths := map[string]bool{}
	fd, err := openat2(dir, guardsName, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, unix.RESOLVE_BENEATH)
	if err == unix.ENOENT {
		return paths, nil
	}
	if err != nil {
		return nil, os.NewSyscallError("openat2", err)
	}
	defer unix.Close(fd)
	data, err := readAll(fd, maxRecord)
	if err != nil {
		return nil, fmt.Errorf("list of guarded paths: %w", err)
	}
	for p := range bytes.SplitSeq(data, []byte{0}) {
		paths[string(p)] = true
	}
	return paths, nil
}

// removePlaceholders removes what is untouched, deepest first, and leaves the
// rest: data is never lost. since is when their record was made.
func (d *Dir) removePlaceholders(entries []entry, since stamp) error {
	slices.SortFunc(entries, func(a, b entry) int { return bytes.Compare(b.Path, a.Path) })
	var errs []error
	for _, e := range entries {
		if err := removePlaceholder(claim{e, since, d.remembers(e)}); err != nil {
			errs = append(errs, &fs.PathError{Op: "remove placeholder", Path: string(e.Path), Err: err})
		}
	}
	return errors.Join(errs...)
}

// remembers reports whether this very process made e.
func (d *Dir) remembers(e entry) bool {
	return slices.ContainsFunc(d.made, func(m entry) bool {
		return bytes.Equal(m.Path, e.Path) && m.Type == e.Type && m.Dev == e.Dev && m.Ino == e.Ino
	})
}

// A claim is what a record says was made, and how far that is to be believed.
// Whoever can write to a scratch root could put a record there and have somebody
// else's next run remove what it names. So a record is believed only about what
// wall makes (an empty directory, or a file with one of a few contents), what
// belongs to us, and what did not exist yet when the record was made: the time at
// which a file was made cannot be set. What this process made itself it knows
// without, whatever clock the file system goes by.
type claim struct {
	entry
	since stamp
	made  bool // by this process
}

// removePlaceholder removes one; nil also when it is gone or no longer what was
// made, which is then the user's own.
func removePlaceholder(e claim) error {
	p := string(e.Path)
	parent, restore, err := openParent(path.Dir(p))
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return nil
	}
	if err != nil {
		return err
	}
	defer restore()
	base := path.Base(p)
	err = removeFrom(parent, base, e)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		// The command may have taken the right to change this directory.
		var opened opener
		defer opened.restore()
		if opened.allow(parent, 0o300) {
			err = removeFrom(parent, base, e)
		}
	}
	return err
}

// removeFrom removes one placeholder from its directory.
func removeFrom(parent int, base string, e claim) error {
	f, err := look(parent, base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !e.is(f) {
		return nil
	}
	if e.Type == plan.TypeDir {
		// rmdir(2) is the test for being empty, without a race.
		err := unlink(parent, base, unix.AT_REMOVEDIR)
		if err == unix.ENOTEMPTY || err == unix.EEXIST || err == unix.ENOTDIR {
			return nil
		}
		return err
	}
	fd, err := openat2(parent, base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
	if err == unix.ENOENT || err == unix.ELOOP {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if f, err = look(fd, ""); err != nil {
		return err
	}
	if !e.is(f) {
		return nil
	}
	content, err := readAll(fd, len(e.Content))
	if err == unix.EFBIG {
		return nil
	}
	if err != nil {
		return err
	}
	// A maker that was killed may not have written all of it.
	if !bytes.Equal(content, e.Content) && (e.Ino != 0 || !bytes.HasPrefix(e.Content, content)) {
		return nil
	}
	return unlink(parent, base, 0)
}

// openParent opens the directory dir, through no link, for changing names in it.
// A command may have taken the right to search one of the directories on the
// way; where that is the caller's own, it is given back until restore is
// called, which also closes the directory.
func openParent(dir string) (fd int, restore func(), err error) {
	var opened opener
	fd, err = openat2(unix.AT_FDCWD, dir, unix.O_PATH|unix.O_DIRECTORY, unix.RESOLVE_NO_SYMLINKS)
	if err == unix.EACCES {
		fd, err = opened.walk(dir)
	}
	if err != nil {
		opened.restore()
		return -1, nil, err
	}
	return fd, func() {
		unix.Close(fd)
		opened.restore()
	}, nil
}

// An opener gives rights back and takes them again.
type opener struct {
	changed []changedMode
}

type changedMode struct {
	fd   int // O_PATH
	mode uint32
}

// walk is openat2 one element at a time.
func (o *opener) walk(dir string) (int, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW
	at, err := openat2(unix.AT_FDCWD, "/", flags, 0)
	if err != nil {
		return -1, err
	}
	for name := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		next, err := openat2(at, name, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
		if err == unix.EACCES && o.allow(at, 0o100) {
			next, err = openat2(at, name, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
		}
		unix.Close(at)
		if err != nil {
			return -1, err
		}
		at = next
	}
	return at, nil
}

// allow adds the bits to the mode of a directory of our own; false when nothing
// was changed.
func (o *opener) allow(fd int, bits uint32) bool {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Uid != uint32(unix.Geteuid()) || st.Mode&bits == bits {
		return false
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return false
	}
	mode := st.Mode & 0o7777
	if chmodHandle(dup, mode|bits) != nil {
		unix.Close(dup)
		return false
	}
	o.changed = append(o.changed, changedMode{dup, mode})
	return true
}

// restore puts the modes back, the last one first: each was reached through
// those before it.
func (o *opener) restore() {
	for _, c := range slices.Backward(o.changed) {
		_ = chmodHandle(c.fd, c.mode) // it could be changed just now
		unix.Close(c.fd)
	}
	o.changed = nil
}

// is reports whether f can be what the claim says was made. When its maker
// was killed before it could note the inode, type, owner and age have to do: then
// an empty directory goes, or a file that holds nothing but what wall writes.
func (e claim) is(f file) bool {
	want := uint32(unix.S_IFREG)
	if e.Type == plan.TypeDir {
		want = unix.S_IFDIR
	}
	if f.mode&unix.S_IFMT != want || !isContent(string(e.Content)) {
		return false
	}
	if e.made {
		return e.Ino == f.ino && e.Dev == f.dev
	}
	if f.uid != uint32(unix.Geteuid()) || f.before(e.since) {
		return false
	}
	if e.Ino != 0 {
		return e.Ino == f.ino && e.Dev == f.dev && (e.Born == stamp{} || e.Born == f.born)
	}
	return e.Type == plan.TypeDir || f.nlink == 1
}
