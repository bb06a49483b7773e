package inject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// lockWait is how long an edit waits for another one.
const lockWait = 10 * time.Second

// A Store is the file of the stored variables. Two values with one Path are the same
// store; all methods can be called from many goroutines and processes at once.
type Store struct {
	Path string // absolute; the last directory is made, mode 0700, by the first edit
}

// The files beside the store.
func (s Store) last() string { return s.Path + ".last" }
func (s Store) lock() string { return s.Path + ".lock" }

// Load gives the stored variables, sorted by name; not nil without an error. A
// store that does not exist holds none. The error is a *plan.Error that names the
// file and what to do.
func (s Store) Load() ([]Var, error) {
	dir, err := s.openDir(false)
	if errors.Is(err, fs.ErrNotExist) {
		return []Var{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.close()
	return s.load(dir)
}

func (s Store) load(dir directory) ([]Var, error) {
	vars, err := dir.vars(filepath.Base(s.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return []Var{}, nil
	}
	if err != nil {
		return nil, s.fail("use the stored variables in", s.Path, err, dir.hint(err, filepath.Base(s.Path)))
	}
	return vars, nil
}

// Set stores vars, replacing those of the same names, and gives all that is
// stored then. Every one is checked before anything is written ([Check]).
func (s Store) Set(ctx context.Context, vars []Var) ([]Var, error) {
	var errs []error
	for _, v := range vars {
		errs = append(errs, Check(v))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.Edit(ctx, func(old []Var) ([]Var, error) {
		for _, v := range vars { // of one name twice, the last counts
			if i := slices.IndexFunc(old, func(o Var) bool { return o.Name == v.Name }); i >= 0 {
				old[i] = v
			} else {
				old = append(old, v)
			}
		}
		return old, nil
	})
}

// Unset removes the variables of these names, and gives all that is stored then. A name that is
// not stored is ignored; one that is not valid is an error, and then nothing is removed.
func (s Store) Unset(ctx context.Context, names []string) ([]Var, error) {
	var errs []error
	for _, n := range names {
		if !envscrub.ValidName(n) {
			errs = append(errs, &plan.Error{Op: "cannot remove " + quoteName(n) + " from the stored variables", Err: errName})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return s.Edit(ctx, func(old []Var) ([]Var, error) {
		return slices.DeleteFunc(old, func(v Var) bool { return slices.Contains(names, v.Name) }), nil
	})
}

// Edit replaces the stored variables by what f makes of them, and gives them as
// they are then, sorted. f gets a copy, and is called once, with the store locked. When f
// fails, or makes something that cannot be stored, or when the store cannot be read
// or written, nothing is changed. While another edit goes on it waits until ctx is
// done, at most 10 seconds.
func (s Store) Edit(ctx context.Context, f func([]Var) ([]Var, error)) ([]Var, error) {
	dir, err := s.openDir(true)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	unlock, err := s.acquire(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	old, err := s.load(dir)
	if err != nil {
		return nil, err
	}
	vars, err := f(slices.Clone(old))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, v := range vars {
		errs = append(errs, v.valid())
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if vars, err = ordered(vars); err != nil {
		return nil, err
	}
	if slices.Equal(vars, old) {
		return vars, nil
	}
	data := encode(vars)
	if len(data) > MaxFile {
		return nil, s.fail("write the stored variables to", s.Path, fmt.Errorf("they would take %d bytes, more than %d", len(data), MaxFile), "remove some, or name large values by their file in a profile")
	}
	if err := s.prepare(dir, data); err != nil {
		return nil, err
	}
	if err := s.commit(dir); err != nil {
		return nil, err
	}
	return vars, nil
}

// newSuffix marks a file that is being written. One that is found was left by an
// edit that was killed.
const newSuffix = ".new"

// prepare writes data for the store and for the last good state, under other
// names: both are complete and on the disk before either gets its own.
func (s Store) prepare(dir directory, data []byte) error {
	names := []string{filepath.Base(s.Path), filepath.Base(s.last())}
	// No file takes the name of a directory, and the store gets its name first.
	if dir.isDir(names[1]) {
		return s.fail("write", s.last(), unix.EISDIR, "nothing was changed; it is not what wall wrote: move it away")
	}
	for _, n := range names {
		if err := dir.write(n+newSuffix, data); err != nil {
			for _, n := range names {
				_ = dir.remove(n + newSuffix) // the next edit removes it, too
			}
			return s.fail("write the stored variables to", s.Path, err, "nothing was changed")
		}
	}
	return nil
}

// commit gives what prepare wrote its names, the store first: one rename changes it.
func (s Store) commit(dir directory) error {
	for _, path := range []string{s.Path, s.last()} {
		n := filepath.Base(path)
		if err := dir.rename(n+newSuffix, n); err != nil {
			return s.fail("write", path, err, "")
		}
	}
	if err := dir.sync(); err != nil {
		return s.fail("write the stored variables to", s.Path, err, "they were changed, but may be the old ones again after a crash of the machine")
	}
	return nil
}

// Restore puts the last good state back after the store was damaged or removed,
// and gives what is stored then. kept is the path to which the damaged file was
// moved, "" when there was none. It is an error when the store can be read, because
// then there is nothing to restore, and when there is no good state to put back; nothing
// is changed then.
func (s Store) Restore(ctx context.Context) (vars []Var, kept string, err error) {
	dir, err := s.openDir(true)
	if err != nil {
		return nil, "", err
	}
	defer dir.close()
	unlock, err := s.acquire(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	base := filepath.Base(s.Path)
	_, damage := dir.vars(base)
	if damage == nil {
		return nil, "", s.fail("restore the stored variables in", s.Path, errors.New("they can be read, so that there is nothing to restore"), "")
	}
	vars, err = dir.vars(filepath.Base(s.last()))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("no earlier state was kept")
		}
		hint := "move " + strconv.Quote(s.Path) + " away to begin without stored variables"
		if errors.Is(damage, fs.ErrNotExist) {
			hint = "there is no file " + strconv.Quote(s.Path) + " either: no variable is stored, and runs start without any"
		}
		return nil, "", s.fail("restore the stored variables from", s.last(), err, hint)
	}
	if err := s.prepare(dir, encode(vars)); err != nil {
		return nil, "", err
	}
	if !errors.Is(damage, fs.ErrNotExist) {
		if kept, err = dir.keep(base); err != nil {
			return nil, "", s.fail("keep the damaged file", s.Path, err, "nothing was changed")
		}
		kept = filepath.Join(filepath.Dir(s.Path), kept)
	}
	if err := s.commit(dir); err != nil {
		return nil, kept, err
	}
	return vars, kept, nil
}

func (s Store) fail(op, path string, err error, hint string) error {
	return &plan.Error{Op: "cannot " + op + " " + shown(path), Err: err, Hint: hint}
}

// shown is a path as it may stand in a message.
func shown(path string) string {
	if q := strconv.Quote(path); strings.Contains(path, " ") || q != `"`+path+`"` {
		return q
	}
	return path
}

// acquire takes the lock. The function it returns gives it back.
func (s Store) acquire(ctx context.Context, dir directory) (func(), error) {
	fail := func(err error, hint string) (func(), error) {
		return nil, s.fail("change the stored variables in", s.Path, err, hint)
	}
	base := filepath.Base(s.lock())
	f, err := dir.open(base, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		hint := dir.hint(err, base)
		if errors.Is(err, errNotRegular) || errors.Is(err, errForeign) {
			hint = "it is not what wall wrote, and holds nothing that wall needs: move it away" // restoring needs the lock, too
		}
		return nil, s.fail("use the lock file", s.lock(), err, hint)
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch err {
		case nil:
			return func() { _ = f.Close() }, nil // closing gives the lock back
		case unix.EINTR:
			continue
		case unix.EWOULDBLOCK:
		default:
			_ = f.Close() // nothing was written
			return fail(os.NewSyscallError("flock", err), "")
		}
		select {
		case <-ctx.Done():
			holder := describeHolder(f)
			_ = f.Close() // nothing was written
			if errors.Is(ctx.Err(), context.Canceled) {
				return fail(ctx.Err(), "")
			}
			return fail(errors.New("they are locked by "+holder), "nothing was changed; try again when that has ended")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// describeHolder tells who holds the lock.
func describeHolder(f *os.File) string {
	const unknown = "another process"
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return unknown
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return unknown
	}
	pid := lockHolder(string(locks), st.Ino)
	if pid == 0 {
		return unknown
	}
	s := "process " + strconv.Itoa(pid)
	if comm, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm"); err == nil {
		s += " (" + plan.Printable(strings.TrimSuffix(string(comm), "\n")) + ")"
	}
	return s
}

// A directory is the one that the store is in, open.
type directory struct{ f *os.File }

// openDir opens the directory of the store. With create it makes it when missing.
func (s Store) openDir(create bool) (directory, error) {
	fail := func(err error, hint string) (directory, error) {
		return directory{}, s.fail("use the directory of the stored variables,", filepath.Dir(s.Path), err, hint)
	}
	if !filepath.IsAbs(s.Path) {
		return fail(errors.New("its path is not absolute"), "")
	}
	name := filepath.Dir(s.Path)
	if create {
		if err := os.MkdirAll(name, 0o700); err != nil {
			return fail(bare(err), "")
		}
	}
	f, err := os.OpenFile(name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fail(bare(err), "")
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		_ = f.Close() // opened for reading
		return fail(os.NewSyscallError("fstat", err), "")
	}
	hint := ""
	switch {
	case int(st.Uid) != os.Geteuid():
		err, hint = errForeign, "set XDG_CONFIG_HOME to a directory of your own, or unset it"
	case st.Mode&0o022 != 0:
		err, hint = errDirWritable, "nobody else may be able to change it: chmod go-w "+strconv.Quote(name)
	}
	if err != nil {
		_ = f.Close() // opened for reading
		return fail(err, hint)
	}
	return directory{f}, nil
}

func (d directory) close() { _ = d.f.Close() } // opened for reading

func (d directory) fd() int { return int(d.f.Fd()) }

var (
	errForeign     = errors.New("it belongs to another user")
	errDirWritable = errors.New("others can write it")
	errExposed     = errors.New("others can read or write it")
	errNotRegular  = errors.New("it is not a regular file")
)

// open opens a regular file of the caller's alone. It follows no link and neither
// waits for the other side of a FIFO nor opens a device.
func (d directory) open(name string, flags int) (*os.File, error) {
	const safe = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	var st unix.Stat_t
	err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, errNotRegular
	case err != nil && !(err == unix.ENOENT && flags&unix.O_CREAT != 0):
		return nil, err
	}
	fd, err := retry(func() (int, error) { return unix.Openat(d.fd(), name, flags|safe, 0o600) })
	if err == unix.ELOOP {
		err = errNotRegular // O_NOFOLLOW met a link, open(2)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	err = unix.Fstat(fd, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		err = errNotRegular
	case int(st.Uid) != os.Geteuid():
		err = errForeign
	case st.Mode&0o077 != 0:
		err = errExposed
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, err
	}
	return f, nil
}

// vars reads a file in the format of the store.
func (d directory) vars(name string) ([]Var, error) {
	f, err := d.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, bare(err)
	}
	vars, err := decode(data)
	if err != nil {
		return nil, &damagedError{err}
	}
	return vars, nil
}

// A damagedError says that a file is not in the format of the store.
type damagedError struct{ err error }

func (e *damagedError) Error() string { return "it is damaged: " + e.err.Error() }
func (e *damagedError) Unwrap() error { return e.err }

// hint says what to do about err, which came from the file name.
func (d directory) hint(err error, name string) string {
	path := shown(filepath.Join(d.f.Name(), name))
	var damaged *damagedError
	switch {
	case errors.As(err, &damaged):
		return `"wall env restore" puts the last good state back and keeps the damaged file beside it`
	case errors.Is(err, errExposed):
		return "look at what it holds, then: chmod 600 " + path
	case errors.Is(err, errNotRegular), errors.Is(err, errForeign):
		return `it is not what wall wrote; "wall env restore" moves it away and puts the last good state back`
	}
	return ""
}

// write makes a file with data, on the disk when it returns.
func (d directory) write(name string, data []byte) error {
	if err := d.remove(name); err != nil {
		return err
	}
	fd, err := retry(func() (int, error) {
		return unix.Openat(d.fd(), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	err = f.Chmod(0o600) // whatever the umask is
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	return bare(errors.Join(err, f.Close()))
}

func (d directory) remove(name string) error {
	if err := unix.Unlinkat(d.fd(), name, 0); err != nil && err != unix.ENOENT {
		return err
	}
	return nil
}

func (d directory) isDir(name string) bool {
	var st unix.Stat_t
	err := unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

func (d directory) rename(from, to string) error {
	return unix.Renameat(d.fd(), from, d.fd(), to)
}

func (d directory) sync() error { return bare(d.f.Sync()) }

// keep gives the file a name that nothing has: a second one, so that there is a
// store at every moment, or another one where that cannot be (a directory, a file of
// another user).
func (d directory) keep(name string) (string, error) {
	for i := 1; i <= 1000; i++ {
		to := name + ".damaged"
		if i > 1 {
			to += "." + strconv.Itoa(i)
		}
		err := unix.Linkat(d.fd(), name, d.fd(), to, 0)
		if err != nil && err != unix.EEXIST {
			err = unix.Renameat2(d.fd(), name, d.fd(), to, unix.RENAME_NOREPLACE)
		}
		if err != unix.EEXIST {
			return to, err
		}
	}
	return "", errors.New("a thousand damaged files are kept already")
}

// retry calls f until no signal interrupts it.
func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// bare takes the path off an error whose message names it already.
func bare(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// A Reader reads a store again and again for a program that runs long. The zero
// Reader with a Store is ready; it can be used from many goroutines.
type Reader struct {
	Store Store

	mu   sync.Mutex
	good []Var // nil before the first success
}

// Read gives what is stored now. When it cannot be read, err says why and vars are
// those of the last time it could, nil when there was none: a program that goes on
// with them says so, and one that has none must not take that for an empty store.
func (r *Reader) Read() (vars []Var, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	vars, err = r.Store.Load()
	if err == nil {
		r.good = vars
	}
	return slices.Clone(r.good), err
}
