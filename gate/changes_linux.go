package gate

import (
	"hash/maphash"

	"golang.org/x/sys/unix"
)

// MaxEntries bounds how many entries of a workspace are looked at for [Changes].
// Each costs about two microseconds and 150 bytes, before the command and again
// after it, however long its path is.
const MaxEntries = 200_000

// maxDepth bounds how deep: every level holds a descriptor meanwhile.
const maxDepth = 200

// Changes counts the files of a directory that are different after the command:
// whatever is no directory, links among them, by name. A file counts as modified
// when its content, its mode or its owner may have changed: its change time, which
// a command cannot set back, its inode or its size is another. Directories are not
// counted, and mounts below the directory are not entered.
type Changes struct {
	Created, Modified, Deleted int
	Partial                    bool // there was more than could be looked at: the numbers are at least these
}

// A stamp tells one state of a file from another.
type stamp struct {
	ino, dev, size uint64
	sec, nsec      int64 // change time
	mode           uint32
}

// A place stands for the path of a file: a keyed hash over its elements. The path
// itself may have 50 kilobytes (maxDepth names of 255 bytes), and a command can make
// as many of them as are looked at.
type place uint64

// placeSeed keys the hashes, so that no command can make two paths meet.
var placeSeed = maphash.MakeSeed()

// in is the place of an entry of the directory at p.
func (p place) in(name string) place {
	return place(maphash.Comparable(placeSeed, struct {
		dir  place
		name string
	}{p, name}))
}

// A census is the files below a directory at one time.
type census struct {
	files   map[place]stamp
	left    int
	partial bool
	device  uint64
}

// take walks the tree at root and follows no link.
func take(root string, most int) census {
	c := census{files: map[place]stamp{}, left: most}
	fd, err := open(unix.AT_FDCWD, root)
	if err != nil {
		c.partial = true
		return c
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		unix.Close(fd)
		c.partial = true
		return c
	}
	c.device = st.Dev
	c.walk(fd, 0, maxDepth)
	return c
}

func open(dir int, name string) (int, error) {
	for {
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// walk takes one directory and closes it.
func (c *census) walk(fd int, at place, depth int) {
	defer unix.Close(fd)
	if depth == 0 {
		c.partial = true
		return
	}
	buf := make([]byte, 16<<10)
	var names []string
	for {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			c.partial = true
			return
		}
		if n <= 0 {
			return
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			if c.left--; c.left < 0 {
				c.partial = true
				return
			}
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue // gone meanwhile
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR {
				c.files[at.in(name)] = stamp{st.Ino, st.Dev, uint64(st.Size), int64(st.Ctim.Sec), int64(st.Ctim.Nsec), st.Mode}
				continue
			}
			if st.Dev != c.device {
				continue
			}
			sub, err := open(fd, name)
			if err != nil {
				c.partial = true // not ours to read: what is in it is not known
				continue
			}
			c.walk(sub, at.in(name), depth-1)
			if c.left < 0 {
				return
			}
		}
	}
}

// since compares two states of one directory.
func (c census) since(before census) Changes {
	ch := Changes{Partial: c.partial || before.partial}
	for at, now := range c.files {
		was, ok := before.files[at]
		switch {
		case !ok:
			if !before.partial { // else it may only not have been looked at
				ch.Created++
			}
		case was != now:
			ch.Modified++
		}
	}
	if !c.partial {
		for at := range before.files {
			if _, ok := c.files[at]; !ok {
				ch.Deleted++
			}
		}
	}
	return ch
}
