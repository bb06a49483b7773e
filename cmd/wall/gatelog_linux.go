package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/gate"
	"github.com/wallsandbox/wall/plan"
)

// A logFile is a log that is written while a command runs, rotated: when FILE is full it becomes FILE.1, that
// one FILE.2, and so on; the last one goes. All of it is done in one directory that
// is held open and that no command can write to, because the log is written while
// the command runs.
type logFile struct {
	name string // as the user wrote it
	base string
	dir  int
	o    logOptions

	mu    sync.Mutex
	file  *os.File
	sizes []int64 // of the files that there are, FILE first
	total int64
	err   error
}

// openLog makes the log of a flag, in place of one of an earlier run. untrusted are the
// directories that a boxed command could write to.
func openLog(flag, name string, o logOptions, cwd string, untrusted []string, p plan.Plan) (*logFile, error) {
	origin := flagOrigin("--" + flag + " " + quoteOdd(name))
	fail := func(err error, hint string) (*logFile, error) {
		return nil, &plan.Error{Op: "cannot write the log to " + quoteOdd(name), Origin: origin, Hint: hint, Err: err}
	}
	abs := name
	if !path.IsAbs(abs) {
		if cwd == "" {
			return fail(errors.New("the working directory was deleted"), "give an absolute path")
		}
		abs = cwd + "/" + name
	}
	dirName, base := path.Split(abs)
	if base == "" || base == "." || base == ".." {
		return fail(errors.New("it names a directory"), "give the name of a file")
	}
	dir, err := openTrusted(dirName, untrusted)
	if err != nil {
		return fail(err, "the directory must exist, and lie where no command could have made a link")
	}
	l := &logFile{name: name, base: base, dir: dir, o: o}
	if p.Enforce != plan.EnforceOff {
		if err := reachable(dir, p); err != nil {
			l.close()
			return fail(err, "put the log where the command cannot reach it, for example below /var/log or next to the workspace")
		}
	}
	for i := range o.files {
		if err := l.removeOld(l.numbered(i)); err != nil {
			l.close()
			return fail(err, "name a regular file, or one that does not exist")
		}
	}
	if err := l.create(); err != nil {
		l.close()
		return fail(err, "the directory must be writable")
	}
	return l, nil
}

// reachable says why the command of p could get at what is in a directory.
func reachable(dir int, p plan.Plan) error {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(dir))
	if err != nil {
		return err
	}
	if !path.IsAbs(name) {
		return errors.New("wall cannot tell where it is")
	}
	roots := p.WritableRoots()
	if p.Scratch.Root != "" {
		roots = append(roots, p.Scratch.Root)
	}
	ids := make(map[fileID]string, len(roots))
	for _, root := range roots {
		var st unix.Stat_t
		if unix.Stat(root, &st) == nil { // else it is optional, and not there
			ids[fileID{uint64(st.Dev), st.Ino}] = root
		}
	}
	// The same directory may be mounted in several places, so inodes count.
	for at := name; ; at = path.Dir(at) {
		var st unix.Stat_t
		if err := unix.Lstat(at, &st); err != nil {
			return err
		}
		if root, ok := ids[fileID{uint64(st.Dev), st.Ino}]; ok {
			return fmt.Errorf("the command can write to %s", quoteOdd(root))
		}
		if at == "/" {
			return nil
		}
	}
}

// numbered is the name of the file that was rotated i times.
func (l *logFile) numbered(i int) string {
	if i == 0 {
		return l.base
	}
	return l.base + "." + strconv.Itoa(i)
}

func (l *logFile) removeOld(base string) error {
	return (&resultFile{dir: l.dir, base: base}).removeOld()
}

// create makes a new FILE.
func (l *logFile) create() error {
	fd, err := unix.Openat(l.dir, l.base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	l.file = os.NewFile(uintptr(fd), l.base)
	l.sizes = append([]int64{0}, l.sizes...)
	return nil
}

// rotate gives every file the next number.
func (l *logFile) rotate() error {
	if err := l.file.Close(); err != nil {
		return err
	}
	l.file = nil
	if len(l.sizes) == l.o.files {
		l.sizes = l.sizes[:len(l.sizes)-1]
		if err := unix.Unlinkat(l.dir, l.numbered(len(l.sizes)), 0); err != nil {
			return err
		}
	}
	for i := len(l.sizes) - 1; i >= 0; i-- {
		if err := unix.Renameat(l.dir, l.numbered(i), l.dir, l.numbered(i+1)); err != nil {
			return err
		}
	}
	return l.create()
}

// Write fails for good when the log cannot be written.
func (l *logFile) Write(b []byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(b) > 0 && l.err == nil {
		if l.sizes[0] >= l.o.size {
			if l.err = l.rotate(); l.err != nil {
				break
			}
		}
		part := b[:min(int64(len(b)), l.o.size-l.sizes[0])]
		var m int
		m, l.err = l.file.Write(part)
		l.sizes[0] += int64(m)
		l.total += int64(m)
		n += m
		b = b[m:]
	}
	return n, l.err
}

// finish ends the log.
func (l *logFile) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.err = errors.Join(l.err, l.file.Close())
		l.file = nil
	}
}

func (l *logFile) close() {
	l.finish()
	_ = unix.Close(l.dir) // nothing is written through it
}

// facts are what the result says of the log.
func (l *logFile) facts() *gate.LogFacts {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &gate.LogFacts{File: l.name, Files: len(l.sizes), Bytes: l.total, Lost: l.total}
	for _, n := range l.sizes {
		f.Lost -= n
	}
	if l.err != nil {
		f.Error = l.err.Error()
	}
	return f
}
