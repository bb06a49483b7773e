package host

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// strictFS is the host's tree as plans are made from it, read-only. It opens
// regular files and directories, by paths without symbolic links, and nothing else:
// package profile follows links itself, so that a link which turns up on opening
// was put there in between, by a command that still runs in another box, say.
// A device is not even opened, which could have an effect; a FIFO would block.
type strictFS struct{ fs.ReadLinkFS }

// FS gives the host's tree for profile.Host, see [Gather].
func FS() fs.ReadLinkFS { return strictFS{os.DirFS("/").(fs.ReadLinkFS)} }

var errNotFileOrDir = errors.New("not a regular file or a directory")

// Open implements fs.FS.
func (strictFS) Open(name string) (fs.File, error) {
	f, err := openStrictly(name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

func openStrictly(name string) (*os.File, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrInvalid
	}
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	handle, err := ignoringEINTR(func() (int, error) { return unix.Openat2(unix.AT_FDCWD, "/"+name, &how) })
	if err != nil {
		return nil, err
	}
	defer unix.Close(handle)
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return nil, err
	}
	const flags = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC
	fd := -1
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		fd, err = ignoringEINTR(func() (int, error) { return unix.Openat(handle, ".", flags|unix.O_DIRECTORY, 0) })
	case unix.S_IFREG:
		// The kernel's own link to what was looked at.
		fd, err = ignoringEINTR(func() (int, error) { return unix.Open("/proc/self/fd/"+strconv.Itoa(handle), flags, 0) })
	case unix.S_IFLNK:
		err = unix.ELOOP // what O_NOFOLLOW says without O_PATH
	default:
		err = errNotFileOrDir
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "/"+name), nil
}

// ReadDir implements fs.ReadDirFS.
func (strictFS) ReadDir(name string) ([]fs.DirEntry, error) {
	f, err := openStrictly(name)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

// Stat implements fs.StatFS; it follows links.
func (s strictFS) Stat(name string) (fs.FileInfo, error) { return fs.Stat(s.ReadLinkFS, name) }
