package scratch

import (
	"errors"
	"fmt"
	"os"

	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

const (
	// maxCopyDepth bounds the descriptors and the stack that copying takes.
	maxCopyDepth = 64
	// maxCopyEntries bounds the time that many small files take.
	maxCopyEntries = 1 << 20
)

var (
	errTooBig  = errors.New("it grew over the size up to which caches are copied")
	errTooDeep = fmt.Errorf("it is deeper than %d directories, or has more than %d files", maxCopyDepth, maxCopyEntries)
)

// copyTree copies the content of a directory of the host into the sub-directory
// of a plan. On error the sub-directory is empty.
func (d *Dir) copyTree(c plan.TreeCopy) error {
	from, err := openat2(unix.AT_FDCWD, c.Source, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_NO_SYMLINKS)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	to, err := openDirAt(d.fd, c.Target)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	x := copier{left: c.Max, entries: maxCopyEntries, clone: true}
	if err := x.dir(from, to, 0); err != nil {
		return errors.Join(err, emptyDir(to, d.Path()+"/"+c.Target, nil))
	}
	return nil
}

// A copier copies one tree.
type copier struct {
	left    uint64 // bytes
	entries int
	clone   bool // sharing blocks is worth trying
	buf     []byte
}

func (x *copier) dir(from, to, depth int) error {
	if depth == maxCopyDepth {
		return errTooDeep
	}
	var names []dirent
	if err := eachEntry(from, make([]byte, 32<<10), func(e dirent) { names = append(names, e) }); err != nil {
		return err
	}
	for _, e := range names {
		if x.entries--; x.entries < 0 {
			return errTooDeep
		}
		if err := x.entry(from, to, e.name, depth); err != nil {
			if depth == 0 || !errors.As(err, new(*os.PathError)) {
				err = &os.PathError{Op: "copy", Path: e.name, Err: err}
			}
			return err
		}
	}
	return nil
}

// entry copies one name. What vanished meanwhile is left out, as is what is
// neither a file nor a directory nor a link.
func (x *copier) entry(from, to int, name string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if err == unix.ENOENT {
			return nil
		}
		return os.NewSyscallError("fstatat", err)
	}
	const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(from, name, buf)
		if err != nil {
			return os.NewSyscallError("readlinkat", err)
		}
		return os.NewSyscallError("symlinkat", unix.Symlinkat(string(buf[:n]), to, name))
	case unix.S_IFDIR:
		src, err := openat2(from, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, resolve)
		if err != nil {
			return os.NewSyscallError("openat2", err)
		}
		defer unix.Close(src)
		if err := makeDir(to, name, 0o700); err != nil {
			return err
		}
		dst, err := openDirAt(to, name)
		if err != nil {
			return os.NewSyscallError("openat2", err)
		}
		defer unix.Close(dst)
		if err := x.dir(src, dst, depth+1); err != nil {
			return err
		}
		return x.finish(dst, st)
	case unix.S_IFREG:
		// Not O_NONBLOCK alone: should it be a FIFO by now, the copy of a stream is refused below.
		src, err := openat2(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, resolve)
		if err != nil {
			return os.NewSyscallError("openat2", err)
		}
		defer unix.Close(src)
		if err := unix.Fstat(src, &st); err != nil {
			return os.NewSyscallError("fstat", err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return nil
		}
		dst, err := openat2(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, resolve)
		if err != nil {
			return os.NewSyscallError("openat2", err)
		}
		defer unix.Close(dst)
		if err := x.file(src, dst, st.Size); err != nil {
			return err
		}
		return x.finish(dst, st)
	}
	return nil
}

// finish gives a copy the mode and the times of the original: build tools
// compare them. Set-id bits stay behind.
func (x *copier) finish(fd int, st unix.Stat_t) error {
	if err := unix.Fchmod(fd, st.Mode&0o777); err != nil {
		return os.NewSyscallError("fchmod", err)
	}
	return os.NewSyscallError("utimensat", unix.UtimesNanoAt(fd, "", []unix.Timespec{st.Atim, st.Mtim}, unix.AT_EMPTY_PATH))
}

// file copies the content: by sharing blocks where the file system can, else
// byte by byte.
func (x *copier) file(src, dst int, size int64) error {
	if uint64(size) > x.left {
		return errTooBig
	}
	if x.clone {
		if err := retry(func() error { return unix.IoctlFileClone(dst, src) }); err == nil {
			x.left -= uint64(size)
			return nil
		}
		x.clone = false // EOPNOTSUPP, EXDEV...: the same for all files of this tree, usually
	}
	if x.buf == nil {
		x.buf = make([]byte, 256<<10)
	}
	for {
		var n int
		err := retry(func() (err error) { n, err = unix.Read(src, x.buf); return err })
		if err != nil {
			return os.NewSyscallError("read", err)
		}
		if n == 0 {
			return nil
		}
		if uint64(n) > x.left {
			return errTooBig
		}
		x.left -= uint64(n)
		if err := writeAll(dst, x.buf[:n]); err != nil {
			return os.NewSyscallError("write", err)
		}
	}
}
