package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

const (
	prefix = "wall-" // of the names of all directories made here
	inner  = "box"   // the directory with the processes
)

// Limits are what a group is given; 0 is no limit.
type Limits struct {
	Memory uint64 // bytes, swap included
	Pids   uint64 // processes and threads
}

// A Group is the cgroups of one run. Its methods are for one goroutine at a time,
// except Look.
type Group struct {
	version int
	memory  string // wall-<id> with the memory controller; "" = none
	pids    string // and with the pids controller

	locks map[string]int // a descriptor of each directory, which says that the run lives
}

// Enter makes the group of c, sets the limits, and moves the process pid with all
// its threads into it. Also after an error the group is to be removed, when the
// process has ended.
//
// holder is another process, of the caller's, for a scope: systemd removes one with
// all counters as soon as no process is left, so that somebody has to stay until they were
// read. 0 is none; other groups have no use for it. Where a scope is planned and
// cannot be had, the error is a [*ScopeError].
func Enter(c plan.Cgroup, l Limits, pid, holder int) (*Group, error) {
	g := &Group{version: c.Version}
	if c.Scope != "" {
		c = another(c)
		if err := startScope(c, Need{c.Memory != "", c.Pids != ""}.controllers(), pid, holder); err != nil {
			return g, &ScopeError{err}
		}
	}
	err := again(func() error {
		if err := g.make(c, l); err != nil {
			return err
		}
		return g.move(pid)
	})
	if err != nil && c.Scope != "" {
		err = &ScopeError{err}
	}
	return g, err
}

// again tries what another run may be in the way of: Collect removes directories
// that nobody has entered yet.
func again(f func() error) error {
	const attempts = 100
	for n := 1; ; n++ {
		err := f()
		if n == attempts || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
}

// make makes the directories and sets the limits. What it made before and is
// still there stays.
func (g *Group) make(c plan.Cgroup, l Limits) error {
	mkdir := func(dir string, mine bool) error {
		err := os.Mkdir(dir, 0o700) // closed to other users: they could hold the lock
		if mine && errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	for _, dir := range c.Dirs() {
		if err := mkdir(dir, slices.Contains(g.dirs(), dir)); err != nil {
			return err
		}
		if err := g.lock(dir); err != nil {
			return err
		}
		// From here on Remove knows of it.
		if path.Dir(dir) == c.Memory {
			g.memory = dir
		}
		if path.Dir(dir) == c.Pids {
			g.pids = dir
		}
	}
	if g.memory != "" {
		if err := g.limitMemory(l.Memory); err != nil {
			return err
		}
	}
	if g.pids != "" {
		if err := write(g.pids+"/pids.max", max(l.Pids, 1)); err != nil {
			return err
		}
	}
	for _, dir := range g.dirs() {
		if err := mkdir(dir+"/"+inner, true); err != nil {
			return err
		}
		if g.version == 2 {
			// A command that gets at its own group makes no others in it.
			if err := optional(write(dir+"/cgroup.max.descendants", 1)); err != nil {
				return err
			}
		}
	}
	return nil
}

// lock says that a directory belongs to a live run, until Remove, or until this process
// ends. The processes in it say so, too, but the counters are read when they have ended.
func (g *Group) lock(dir string) error {
	g.unlock(dir)
	fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	// Whoever has it otherwise is about to remove the directory.
	var held, there unix.Stat_t
	err = retry(func() error { return unix.Flock(fd, unix.LOCK_SH) })
	if err == nil {
		err = unix.Fstat(fd, &held)
	}
	if err == nil {
		err = unix.Stat(dir, &there)
	}
	if err == nil && held.Ino != there.Ino {
		err = unix.ENOENT
	}
	if err != nil {
		unix.Close(fd)
		return &fs.PathError{Op: "lock", Path: dir, Err: err}
	}
	if g.locks == nil {
		g.locks = map[string]int{}
	}
	g.locks[dir] = fd
	return nil
}

func (g *Group) unlock(dir string) {
	if fd, ok := g.locks[dir]; ok {
		unix.Close(fd)
		delete(g.locks, dir)
	}
}

// optional passes over a control file that this kernel does not have.
func optional(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// limitMemory sets the limit of memory and swap together. Where the kernel does
// not count swap, there is no file for it.
func (g *Group) limitMemory(n uint64) error {
	if g.version == 1 {
		if err := write(g.memory+"/memory.limit_in_bytes", n); err != nil {
			return err
		}
		return optional(write(g.memory+"/memory.memsw.limit_in_bytes", n))
	}
	if err := write(g.memory+"/memory.max", n); err != nil {
		return err
	}
	if err := optional(write(g.memory+"/memory.swap.max", 0)); err != nil {
		return err
	}
	// The kernel ends all processes of the box together, not the one that it
	// thinks best (since Linux 4.19).
	return optional(write(g.memory+"/memory.oom.group", 1))
}

// LimitPids sets the number of processes and threads anew.
func (g *Group) LimitPids(n uint64) error {
	if g.pids == "" {
		return errors.New("the group does not count processes")
	}
	return write(g.pids+"/pids.max", max(n, 1))
}

// Pids gives the number of processes and threads.
func (g *Group) Pids() (uint64, error) { return number(g.pids + "/pids.current") }

// move moves a process.
func (g *Group) move(pid int) error {
	for _, dir := range g.dirs() {
		if err := write(dir+"/"+inner+"/cgroup.procs", uint64(pid)); err != nil {
			return err
		}
	}
	return nil
}

// dirs gives the directories wall-<id>, each once.
func (g *Group) dirs() []string {
	var dirs []string
	for _, dir := range []string{g.memory, g.pids} {
		if dir != "" && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Reached tells how often the kernel has enforced the limits.
type Reached struct {
	Memory uint64 // processes killed for want of memory
	Pids   uint64 // processes that could not be made
}

// Look tells it. It costs some ten microseconds.
func (g *Group) Look() Reached {
	var r Reached
	// Which of the two levels counts an event differs by kernel and version.
	for _, dir := range []string{g.memory, g.memory + "/" + inner} {
		if g.memory == "" {
			break
		}
		if g.version == 1 {
			r.Memory += field(dir+"/memory.oom_control", "oom_kill")
		} else {
			r.Memory += field(dir+"/memory.events", "oom_kill")
		}
	}
	for _, dir := range []string{g.pids, g.pids + "/" + inner} {
		if g.pids != "" {
			r.Pids += field(dir+"/pids.events", "max")
		}
	}
	return r
}

// Usage is what the box has used, as the kernel counted it; 0 where it does not.
type Usage struct {
	PeakMemory uint64 // bytes
	User, Sys  time.Duration
}

// Usage is to be asked for when all processes have ended, before Remove.
func (g *Group) Usage() Usage {
	var u Usage
	if g.memory != "" {
		for _, name := range []string{"memory.peak", "memory.max_usage_in_bytes"} { // version 2 from Linux 5.19 on, version 1
			if n, err := number(g.memory + "/" + name); err == nil {
				u.PeakMemory = n
			}
		}
	}
	if g.version == 2 {
		stat := g.dirs()[0] + "/cpu.stat"
		u.User = time.Duration(field(stat, "user_usec")) * time.Microsecond
		u.Sys = time.Duration(field(stat, "system_usec")) * time.Microsecond
	}
	return u
}

// Remove removes the directories. The processes must have ended; the kernel may
// take a moment longer to see it.
func (g *Group) Remove() error {
	var errs []error
	for _, dir := range g.dirs() {
		errs = append(errs, remove(dir, removeTimeout))
	}
	for dir := range g.locks {
		g.unlock(dir)
	}
	g.memory, g.pids = "", ""
	return errors.Join(errs...)
}

// removeTimeout bounds the wait for processes that have been killed.
const removeTimeout = 10 * time.Second

// remove removes wall-<id> and what is in it. A group with processes is busy:
// it is tried again until the time is over.
func remove(dir string, wait time.Duration) error {
	begin := time.Now()
	pause := time.Millisecond
	for {
		err := removeTree(dir, 0)
		if err == nil || err != unix.EBUSY || time.Since(begin) >= wait {
			if err != nil {
				return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
			}
			return nil
		}
		time.Sleep(pause)
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// maxDepth bounds how deep a command can have made groups in its own.
const maxDepth = 100

// removeTree removes a group and those in it. A cgroup file system has no links.
func removeTree(dir string, depth int) error {
	err := rmdir(dir)
	if err != unix.EBUSY || depth == maxDepth {
		return err
	}
	entries, rerr := os.ReadDir(dir)
	if rerr != nil {
		return err // what is in the way tells more
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(dir+"/"+e.Name(), depth+1); err != nil {
				return err
			}
		}
	}
	return rmdir(dir)
}

func rmdir(dir string) error {
	err := retry(func() error { return unix.Rmdir(dir) })
	if err == unix.ENOENT || err == unix.ENODEV {
		return nil
	}
	return err
}

// Collect removes the empty groups that killed runs left next to those of c, and
// gives their paths. What is in use cannot be removed and is no error.
func Collect(c plan.Cgroup) (removed []string) {
	for _, parent := range slices.Compact([]string{c.Memory, c.Pids}) {
		if parent == "" {
			continue
		}
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue // the run itself tells what is wrong there
		}
		for _, e := range entries {
			id, ok := strings.CutPrefix(e.Name(), prefix)
			if !ok || !e.IsDir() || !isID(id) {
				continue
			}
			// What a live command made in its own group is its own.
			if b, _ := os.ReadFile(parent + "/" + e.Name() + "/" + inner + "/cgroup.procs"); len(b) > 0 {
				continue
			}
			if dir := parent + "/" + e.Name(); removeAbandoned(dir) {
				removed = append(removed, dir)
			}
		}
	}
	return removed
}

// removeAbandoned removes the group of a run that is no more.
func removeAbandoned(dir string) bool {
	fd, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return retry(func() error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) }) == nil && remove(dir, 0) == nil
}

// isID reports whether s can be the id of a run.
func isID(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "0123456789abcdef") == ""
}

func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// write writes a number to a control file. It never creates a file: on a cgroup
// file system nobody can.
func write(name string, n uint64) error { return writeText(name, strconv.FormatUint(n, 10)) }

func writeText(name, text string) error {
	fd, err := open(name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := retry(func() error { _, err := unix.Write(fd, []byte(text)); return err }); err != nil {
		return &fs.PathError{Op: "write " + text + " to", Path: name, Err: err}
	}
	return nil
}

func open(name string, flags int) (fd int, err error) {
	err = retry(func() (err error) { fd, err = unix.Open(name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0); return err })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// number reads a control file with one number.
func number(name string) (uint64, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
}

// field reads one line "key number" of a control file; 0 where there is none.
func field(name, key string) uint64 {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	for line := range bytes.Lines(b) {
		k, v, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if n, err := strconv.ParseUint(v, 10, 64); k == key && err == nil {
			return n
		}
	}
	return 0
}

var errNone = errors.New("no cgroup file system with the memory and pids controllers is mounted")

// unusable says why a directory is no parent.
func unusable(dir string, err error) error { return fmt.Errorf("%s: %w", dir, err) }
