package scratch

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// minEntry is what each file counts at least, in bytes: its inode is somewhere,
// also where the file system does not count it.
const minEntry = 512

// maxLinked bounds the memory for files with several names, of which each counts
// once. Beyond that they count once for each name.
const maxLinked = 1 << 16

// Usage gives the bytes that the directory's files and directories take on the
// file system, each with minEntry at least. It stops when there are more than
// enough; 0 is no bound. An error means that a part cannot be looked at, and then
// the number is what the rest takes.
//
// What is open and has no name any more is not in it.
func (d *Dir) Usage(enough uint64) (uint64, error) { return usage(d.fd, enough) }

// usage walks the tree without following links or crossing mount points. Every
// directory is opened by its path from the top, so that the number of
// descriptors does not grow with the depth; what vanishes meanwhile is left out.
func usage(top int, enough uint64) (uint64, error) {
	var sum uint64
	var firstErr error
	linked := make(map[uint64]bool)
	stack := []string{""}
	buf := make([]byte, 32<<10)
	over := func() bool { return enough > 0 && sum > enough }
	for len(stack) > 0 && !over() {
		at := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		fd, err := openForLook(top, at)
		if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP || err == unix.EXDEV {
			continue
		}
		if err == nil {
			err = eachEntry(fd, buf, func(e dirent) {
				if over() {
					return
				}
				var st unix.Stat_t
				if retry(func() error { return unix.Fstatat(fd, e.name, &st, unix.AT_SYMLINK_NOFOLLOW) }) != nil {
					return // gone; nothing else can happen in a directory that is open
				}
				if st.Mode&unix.S_IFMT == unix.S_IFDIR {
					stack = append(stack, join(at, e.name))
				} else if st.Nlink > 1 {
					if linked[st.Ino] {
						return
					}
					if len(linked) < maxLinked {
						linked[st.Ino] = true
					}
				}
				sum += max(uint64(st.Blocks)*512, minEntry)
			})
			unix.Close(fd)
		}
		if err != nil && firstErr == nil {
			firstErr = fmt.Errorf("%.200s: %w", at, err)
		}
	}
	return sum, firstErr
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// openForLook opens a directory for reading. One that its owner cannot read
// is made readable for that moment.
func openForLook(top int, at string) (int, error) {
	if at == "" {
		at = "."
	}
	const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
	fd, err := openat2(top, at, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, resolve)
	if err != unix.EACCES {
		return fd, err
	}
	handle, err := openat2(top, at, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, resolve)
	if err != nil {
		return -1, err
	}
	defer unix.Close(handle)
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		return -1, os.NewSyscallError("fstat", err)
	}
	if err := chmodHandle(handle, st.Mode&0o7777|0o500); err != nil {
		return -1, err
	}
	fd, err = openat2(handle, ".", unix.O_RDONLY|unix.O_DIRECTORY, resolve)
	if cerr := chmodHandle(handle, st.Mode&0o7777); err == nil && cerr != nil {
		unix.Close(fd)
		return -1, cerr
	}
	return fd, err
}
