package source

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// file reads the value from a file.
func (f fetcher) file(name string) (string, error) {
	real, err := f.trusted(name)
	if err != nil {
		return "", err
	}
	// The path is free of links, and only the caller and root could change that.
	fd, err := retry(func() (int, error) {
		return unix.Open(real, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return "", err
	}
	in := os.NewFile(uintptr(fd), real)
	defer in.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", os.NewSyscallError("fstat", err)
	}
	if err := trustedFile(real, &st); err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(in, plan.MaxVariable+1))
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the message names the file already
		}
		return "", err
	}
	if len(data) > plan.MaxVariable {
		return "", errLong
	}
	return trim(data), nil
}

// maxLinks bounds the symbolic links on the way to a file, as the kernel does (path_resolution(7)).
const maxLinks = 40

// trusted follows name, an absolute path, to a regular file, and gives its path without
// links. Everything on the way must be such that only the caller and root could have
// chosen the file; see the package comment.
func (f fetcher) trusted(name string) (string, error) {
	at := "/"
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		return "", err
	}
	if err := trustedDir(at, &st); err != nil {
		return "", err
	}
	todo := strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		elem := todo[0]
		todo = todo[1:]
		if elem == "" || elem == "." {
			continue
		}
		// At this point at is a directory without links, so that ".." is its parent.
		next := path.Join(at, elem)
		if err := f.outside(next); err != nil {
			return "", err
		}
		if err := unix.Lstat(next, &st); err != nil {
			return "", err
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFLNK:
			if err := owned(next, &st); err != nil {
				return "", err
			}
			if links++; links > maxLinks {
				return "", unix.ELOOP
			}
			text, err := os.Readlink(next)
			if err != nil {
				return "", errors.Unwrap(err)
			}
			if path.IsAbs(text) {
				at = "/"
			}
			todo = append(strings.Split(text, "/"), todo...)
			continue
		case unix.S_IFDIR:
			if err := trustedDir(next, &st); err != nil {
				return "", err
			}
		default:
			if len(todo) > 0 {
				return "", unix.ENOTDIR
			}
			return next, trustedFile(next, &st)
		}
		at = next
	}
	return "", errors.New("it is a directory")
}

// outside refuses what the box can write.
func (f fetcher) outside(p string) error {
	for _, d := range f.untrusted {
		if d == "/" || p == d || strings.HasPrefix(p, d+"/") {
			return &hinted{errors.New(quoteOdd(p) + " is where the box can write"), "the command of an earlier run could have put it there; keep it outside of the workspace"}
		}
	}
	return nil
}

// owned refuses what belongs to neither the caller nor root.
func owned(p string, st *unix.Stat_t) error {
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return errors.New(quoteOdd(p) + " belongs to another user")
	}
	return nil
}

// trustedDir refuses a directory in which others can put something in place of what is there.
func trustedDir(p string, st *unix.Stat_t) error {
	if err := owned(p, st); err != nil {
		return err
	}
	writers := uint32(0o022)
	if st.Uid == 0 {
		writers = 0o002 // a group of root's choice
	}
	if st.Mode&writers != 0 && st.Mode&unix.S_ISVTX == 0 {
		return &hinted{errors.New("others can write the directory " + quoteOdd(p)), "chmod go-w " + quoteOdd(p)}
	}
	return nil
}

// trustedFile refuses a file that others can change, and what is not a file.
func trustedFile(p string, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errors.New("it is not a regular file")
	}
	if err := owned(p, st); err != nil {
		return err
	}
	if st.Mode&0o022 != 0 {
		return &hinted{errors.New("others can write " + quoteOdd(p)), "chmod go-w " + quoteOdd(p)}
	}
	return nil
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
