package main

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// maxLinks bounds the symbolic links followed on the way to a result file; the
// kernel's own bound is 40 (path_resolution(7)).
const maxLinks = 40

// A resultFile is the place of --json FILE and the like. Its directory is opened before the
// command runs, so that the command cannot send the result elsewhere.
type resultFile struct {
	dir  int    // descriptor of the directory
	base string // name of the file in it
	flag string // without dashes
	name string // as the user wrote it
}

// openResultFile finds the directory of name and removes a file that an earlier
// run left there: a result that is there at the end is the result of this run.
//
// untrusted are directories that a boxed command could write to, now or in an
// earlier run; links in them are not followed.
func openResultFile(flag, name, cwd string, untrusted []string) (*resultFile, error) {
	origin := flagOrigin("--" + flag + " " + quoteOdd(name))
	fail := func(err error, hint string) error {
		return &plan.Error{Op: "cannot write the result to " + quoteOdd(name), Origin: origin, Hint: hint, Err: err}
	}
	abs := name
	if !path.IsAbs(abs) {
		if cwd == "" {
			return nil, fail(errors.New("the working directory was deleted"), "give an absolute path")
		}
		abs = cwd + "/" + name
	}
	dirName, base := path.Split(abs)
	if base == "" || base == "." || base == ".." {
		return nil, fail(errors.New("it names a directory"), "give the name of a file")
	}
	dir, err := openTrusted(dirName, untrusted)
	if err != nil {
		var link *plantedLinkError
		if errors.As(err, &link) {
			return nil, fail(err, "the command could have made that link; give a path without it")
		}
		return nil, fail(err, "the directory must exist")
	}
	f := &resultFile{dir: dir, base: base, flag: flag, name: name}
	if err := f.removeOld(); err != nil {
		f.close()
		return nil, fail(err, "name a regular file, or one that does not exist")
	}
	// Found out now rather than after the command has run.
	if err := f.tryWrite(); err != nil {
		f.close()
		return nil, fail(err, "the directory must be writable")
	}
	return f, nil
}

// removeOld removes a regular file, and refuses anything else: "--json
// /dev/stdout" must not remove a device's name.
func (f *resultFile) removeOld() error {
	var st unix.Stat_t
	err := unix.Fstatat(f.dir, f.base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("it exists and is not a regular file")
	}
	return unix.Unlinkat(f.dir, f.base, 0)
}

// tryWrite makes a file in the directory and removes it again.
func (f *resultFile) tryWrite() error {
	fd, tmp, err := f.create()
	if err != nil {
		return err
	}
	return errors.Join(unix.Close(fd), unix.Unlinkat(f.dir, tmp, 0))
}

// create makes the unfinished file. Its name is chosen now, at random, and is
// not the run's: that one can be read inside the box (in mountinfo, for one), and
// a command that knew the name could put something there first.
func (f *resultFile) create() (fd int, tmp string, err error) {
	for range 10 {
		var b [8]byte
		if err := randomBytes(b[:]); err != nil {
			return -1, "", err
		}
		tmp = ".wall-" + hex.EncodeToString(b[:]) + ".tmp"
		fd, err = unix.Openat(f.dir, tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o666)
		if err != unix.EEXIST && err != unix.EINTR {
			break
		}
	}
	return fd, tmp, err
}

// write puts data in place in one step: a reader sees nothing or all of it.
// Call it after the box has ended.
func (f *resultFile) write(data []byte) error {
	fail := func(err error) error {
		return &plan.Error{Op: "cannot write the result to " + quoteOdd(f.name), Origin: flagOrigin("--" + f.flag + " " + quoteOdd(f.name)), Err: err}
	}
	fd, tmp, err := f.create()
	if err == unix.EACCES {
		restore := f.makeWritable()
		defer restore()
		fd, tmp, err = f.create()
	}
	if err != nil {
		return fail(err)
	}
	out := os.NewFile(uintptr(fd), tmp)
	_, err = out.Write(data)
	err = errors.Join(err, out.Close())
	if err == nil {
		err = unix.Renameat(f.dir, tmp, f.dir, f.base)
	}
	if err != nil {
		return fail(errors.Join(err, ignoreMissing(unix.Unlinkat(f.dir, tmp, 0))))
	}
	return nil
}

// makeWritable gives wall the right to write in the directory back, which the
// command may have taken; it works when the directory is the caller's. The function it returns
// restores the command's choice.
func (f *resultFile) makeWritable() (restore func()) {
	const wx = 0o300
	var st unix.Stat_t
	if unix.Fstat(f.dir, &st) != nil || unix.Fchmod(f.dir, st.Mode&0o7777|wx) != nil {
		return func() {} // making the file tells what is wrong
	}
	return func() { _ = unix.Fchmod(f.dir, st.Mode&0o7777) } // worked the other way just now
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f *resultFile) close() { _ = unix.Close(f.dir) } // nothing was written through it

// A plantedLinkError is a symbolic link where a boxed command could have made it.
type plantedLinkError struct {
	path string
}

func (e *plantedLinkError) Error() string {
	return quoteOdd(e.path) + " is a symbolic link in a directory that is writable inside the box"
}

// A namedFile is a file that a flag named, in a directory that is open.
type namedFile struct {
	dir        int
	base, flag string
}

// distinctFiles refuses two flags that name one file, whatever it is called by each.
func distinctFiles(files []namedFile) error {
	type place struct {
		dir  fileID
		base string
	}
	met := map[place]string{}
	for _, f := range files {
		var st unix.Stat_t
		if err := unix.Fstat(f.dir, &st); err != nil {
			return &plan.Error{Op: "cannot look at the directory of --" + f.flag, Err: err}
		}
		at := place{fileID{uint64(st.Dev), st.Ino}, f.base}
		if other := met[at]; other != "" {
			return &plan.Error{Op: "--" + min(other, f.flag) + " and --" + max(other, f.flag) + " name the same file, " + quoteOdd(f.base),
				Hint: "give each a name of its own; a log that is rotated has further ones, with a number"}
		}
		met[at] = f.flag
	}
	return nil
}

// openTrusted opens the directory named by the absolute path name, one element
// at a time, following links except those that lie in or below one of the
// directories untrusted (absolute, free of links). Every element is opened
// without following, so that no swap between look and use matters.
func openTrusted(name string, untrusted []string) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fds := make([]int, 1, 16) // one per element of at, the root first
	var err error
	if fds[0], err = unix.Open("/", flags|unix.O_DIRECTORY, 0); err != nil {
		return -1, err
	}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd) // opened for the path only
		}
	}()
	var at []string // elements walked so far, free of links
	todo := strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		elem := todo[0]
		todo = todo[1:]
		switch elem {
		case "", ".":
			continue
		case "..":
			if len(at) > 0 {
				_ = unix.Close(fds[len(fds)-1])
				at, fds = at[:len(at)-1], fds[:len(fds)-1]
			}
			continue
		}
		parent := fds[len(fds)-1]
		fd, err := unix.Openat(parent, elem, flags, 0)
		if err != nil {
			return -1, err
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			_ = unix.Close(fd)
			return -1, err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			at, fds = append(at, elem), append(fds, fd)
			continue
		}
		text, err := readlinkat(fd)
		_ = unix.Close(fd)
		if err != nil {
			return -1, err
		}
		here := "/" + strings.Join(at, "/")
		if beneathAny(here, untrusted) {
			return -1, &plantedLinkError{path: path.Join(here, elem)}
		}
		if links++; links > maxLinks {
			return -1, unix.ELOOP
		}
		if path.IsAbs(text) {
			for _, fd := range fds[1:] {
				_ = unix.Close(fd)
			}
			at, fds = at[:0], fds[:1]
		}
		todo = append(strings.Split(text, "/"), todo...)
	}
	last := fds[len(fds)-1]
	// O_PATH is not enough for fsync and the like, and this fails when the
	// last element is not a directory.
	return unix.Openat(last, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// readlinkat reads the link that fd, opened with O_PATH|O_NOFOLLOW, stands for.
func readlinkat(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// beneathAny reports whether p is one of dirs or lies below one.
func beneathAny(p string, dirs []string) bool {
	for _, d := range dirs {
		if p == d || d == "/" || strings.HasPrefix(p, d+"/") {
			return true
		}
	}
	return false
}
