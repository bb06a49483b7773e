package scratch

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

// ErrKeptBusy says that another run uses the kept directory.
var ErrKeptBusy = errors.New("another run uses it")

// openKept opens and locks the directory that outlives the run, making what is
// missing. No link is followed on the way, and what decides about later runs
// must belong to the caller alone.
func openKept(k plan.KeptDir) (fd int, err error) {
	fail := func(err error) (int, error) {
		return -1, &plan.Error{Op: "cannot use " + k.Path + " for kept caches", Err: err, Hint: "remove it (chmod -R u+rwX DIRECTORY && rm -rf DIRECTORY: parts of it are closed to their owner), or set caches.keep = false in the table [environment]"}
	}
	dir, err := openat2(unix.AT_FDCWD, "/", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return fail(err)
	}
	defer func() { unix.Close(dir) }()
	elements := strings.Split(strings.TrimPrefix(k.Path, "/"), "/")
	for i, e := range elements {
		// O_PATH on the way: a directory above may be searchable and no more.
		flags := uint64(unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW)
		if i == len(elements)-1 {
			flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
		}
		next, err := openat2(dir, e, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
		if err == unix.ENOENT {
			if err = makeDir(dir, e, 0o700); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = openat2(dir, e, flags, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS)
			}
		}
		if err != nil {
			return fail(fmt.Errorf("/%s: %w", strings.Join(elements[:i+1], "/"), err))
		}
		unix.Close(dir)
		dir = next
	}
	if err := own(dir); err != nil {
		return fail(err)
	}
	ok, err := tryLock(dir, unix.LOCK_EX)
	if err == nil && !ok {
		err = ErrKeptBusy
	}
	if err != nil {
		return fail(err)
	}
	for _, sub := range k.Dirs {
		if err := makeDir(dir, sub, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
			return fail(fmt.Errorf("%s: %w", sub, err))
		}
		at, err := openDirAt(dir, sub)
		if err == nil {
			err = ownLayer(dir, at)
			unix.Close(at)
		}
		if err != nil {
			return fail(fmt.Errorf("%s: %w", sub, err))
		}
	}
	fd, dir = dir, -1
	return fd, nil
}

// ownLayer is own for a layer at in the kept directory dir. Its mode is what the command has
// given the cache, and is mended: where nobody else can enter the directory above,
// nobody else has written.
func ownLayer(dir, at int) error {
	var st, above unix.Stat_t
	if err := errors.Join(unix.Fstat(at, &st), unix.Fstat(dir, &above)); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if m := st.Mode&0o7777&^0o022 | 0o700; m != st.Mode&0o7777 && int(st.Uid) == os.Geteuid() && above.Mode&0o077 == 0 {
		if err := unix.Fchmod(at, m); err != nil {
			return os.NewSyscallError("fchmod", err)
		}
	}
	return own(at)
}

// own refuses a directory of somebody else, and one that others can write.
func own(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("it belongs to uid %d", st.Uid)
	}
	if st.Mode&0o022 != 0 {
		return fmt.Errorf("others can write it (mode %04o)", st.Mode&0o7777)
	}
	return nil
}
