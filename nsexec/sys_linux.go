package nsexec

import (
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// One thin wrapper per system call: EINTR retried, O_CLOEXEC always, the error
// an *os.SyscallError or *fs.PathError. Nothing else belongs here.

func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// noLinks refuses symbolic links and magic links in every component, so that a
// path that Resolve saw cannot be redirected afterwards (openat2(2)).
const noLinks = unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openAt opens the absolute path below the directory dir without following
// any link. With O_PATH|O_NOFOLLOW a link in the last place is opened itself.
func openAt(dir int, path string, flags uint64) (int, error) {
	rel := strings.TrimPrefix(path, "/")
	if rel == "" {
		rel = "."
	}
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: noLinks | unix.RESOLVE_BENEATH}
	var fd int
	err := retry(func() (err error) { fd, err = unix.Openat2(dir, rel, &how); return err })
	return fd, pathError("open", path, err)
}

// cloneTree makes a detached copy of the mount tree at fd (open_tree(2)).
func cloneTree(fd int) (int, error) {
	t, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
	return t, os.NewSyscallError("open_tree", err)
}

// setAttr adds mount attributes (mount_setattr(2)).
func setAttr(fd int, recursive bool, set uint64) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return os.NewSyscallError("mount_setattr", unix.MountSetattr(fd, "", flags, &unix.MountAttr{Attr_set: set}))
}

// attach mounts the tree on the file or directory that at refers to (move_mount(2)).
func attach(tree, at int) error {
	return os.NewSyscallError("move_mount", unix.MoveMount(tree, "", at, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// A fsOption is one fsconfig(2) setting; an empty value is a flag.
type fsOption struct{ key, value string }

// newFS makes a new, detached mount of a file system.
func newFS(name string, attrs int, options ...fsOption) (int, error) {
	fd, err := unix.Fsopen(name, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen "+name, err)
	}
	defer unix.Close(fd)
	for _, o := range options {
		if o.value == "" {
			err = unix.FsconfigSetFlag(fd, o.key)
		} else {
			err = unix.FsconfigSetString(fd, o.key, o.value)
		}
		if err != nil {
			return -1, os.NewSyscallError("fsconfig "+name+" "+o.key, err)
		}
	}
	if err := unix.FsconfigCreate(fd); err != nil {
		return -1, os.NewSyscallError("fsconfig "+name, err)
	}
	m, err := unix.Fsmount(fd, unix.FSMOUNT_CLOEXEC, attrs)
	return m, os.NewSyscallError("fsmount "+name, err)
}

func fstat(fd int) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstat(fd, &st) })
	return st, os.NewSyscallError("fstat", err)
}

func prctl(option int, arg2, arg3 uintptr) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, uintptr(option), arg2, arg3, 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("prctl", errno)
	}
	return nil
}

// readAll reads fd to its end, at most limit bytes.
func readAll(fd, limit int) ([]byte, error) {
	buf := make([]byte, 0, 64<<10)
	for {
		if len(buf) > limit {
			return nil, os.NewSyscallError("read", unix.EFBIG)
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		var n int
		err := retry(func() (err error) { n, err = unix.Read(fd, buf[len(buf):cap(buf)]); return err })
		if err != nil {
			return nil, os.NewSyscallError("read", err)
		}
		if n == 0 {
			return buf, nil
		}
		buf = buf[:len(buf)+n]
	}
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		var n int
		err := retry(func() (err error) { n, err = unix.Write(fd, b); return err })
		if err != nil {
			return os.NewSyscallError("write", err)
		}
		b = b[n:]
	}
	return nil
}

func pipe() (r, w int, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, -1, os.NewSyscallError("pipe2", err)
	}
	return p[0], p[1], nil
}

// fdReader reads from a descriptor without the runtime's poller.
type fdReader int

func (r fdReader) Read(b []byte) (n int, err error) {
	err = retry(func() (err error) { n, err = unix.Read(int(r), b); return err })
	if err != nil {
		return 0, os.NewSyscallError("read", err)
	}
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}
