package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A statusFD is the descriptor of --status-fd: one JSON object per line. The
// zero value is not usable; use noStatus when the flag was not given.
type statusFD int

// noStatus writes nothing.
const noStatus statusFD = -1

// openStatus checks that fd, from --status-fd, can be written to, and makes sure
// that no program wall starts gets it.
func openStatus(fd int) (statusFD, error) {
	fail := func(err error) error {
		return &plan.Error{
			Op:     "cannot report on descriptor " + strconv.Itoa(fd),
			Origin: flagOrigin("--status-fd " + strconv.Itoa(fd)),
			Hint:   "open it for writing in the shell, for example 3>../status.jsonl",
			Err:    err,
		}
	}
	if !inherited(fd) {
		return noStatus, fail(errNotOpen)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return noStatus, fail(err)
	}
	if flags&unix.O_PATH != 0 || flags&unix.O_ACCMODE == unix.O_RDONLY {
		return noStatus, fail(errors.New("it is not open for writing"))
	}
	unix.CloseOnExec(fd)
	return statusFD(fd), nil
}

// check refuses a descriptor that the command of p could write to as well: then
// a line in it would prove nothing. streams are what the command gets as 0, 1
// and 2. Nothing is known about a command without walls, which can write
// wherever wall can; the descriptors are compared all the same.
func (s statusFD) check(p plan.Plan, streams streams) error {
	if s == noStatus {
		return nil
	}
	var st unix.Stat_t
	err := unix.Fstat(int(s), &st)
	hint := "give the report a file outside of what the command can write to, for example 3>../status.jsonl, or a pipe of its own"
	if err == nil && !harmlessDevice(&st) {
		if err = s.checkDuplicates(&st, p.KeepFDs, streams); err == nil && p.Enforce != plan.EnforceOff {
			hint = "put the file outside of what the command can write to, or use a pipe"
			err = s.checkPath(&st, p)
		}
	}
	if err == nil {
		return nil
	}
	return &plan.Error{
		Op:     "cannot report on descriptor " + strconv.Itoa(int(s)),
		Origin: flagOrigin("--status-fd " + strconv.Itoa(int(s))),
		Hint:   hint,
		Err:    err,
	}
}

// checkDuplicates compares the descriptor with those that the command gets. Two
// that lead to one file, pipe or socket are as good as one: whatever the access
// of the command's own is, it can be opened again through /proc/self/fd.
func (s statusFD) checkDuplicates(st *unix.Stat_t, kept []int, streams streams) error {
	same := func(name string, fd int) error {
		var other unix.Stat_t
		if err := unix.Fstat(fd, &other); err != nil {
			return os.NewSyscallError("fstat", err)
		}
		if other.Dev == st.Dev && other.Ino == st.Ino {
			return fmt.Errorf("it leads to the same place as descriptor %s, which the command gets", name)
		}
		// A terminal has several names: /dev/tty, and one in /dev/pts.
		if isTerminalFD(int(s)) && isTerminalFD(fd) {
			return fmt.Errorf("it is a terminal, and so is descriptor %s, which the command gets", name)
		}
		return nil
	}
	for i, f := range []*os.File{streams.in, streams.out, streams.err} {
		if f == nil {
			continue // the command does not get wall's own
		}
		var err error
		if cerr := onDescriptor(f, func(fd int) { err = same(strconv.Itoa(i), fd) }); cerr != nil || err != nil {
			return errors.Join(cerr, err)
		}
	}
	for _, fd := range kept {
		if err := same(strconv.Itoa(fd), fd); err != nil {
			return err
		}
	}
	return nil
}

// checkPath refuses a file or FIFO that the command can open by a name.
func (s statusFD) checkPath(st *unix.Stat_t, p plan.Plan) error {
	typ := st.Mode & unix.S_IFMT
	if typ != unix.S_IFREG && typ != unix.S_IFIFO {
		return nil
	}
	// The kernel's own name of what is open, whatever links led there.
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(s)))
	if err != nil {
		return err
	}
	if st.Nlink == 0 || typ == unix.S_IFIFO && strings.HasPrefix(name, "pipe:") {
		return nil // it has no name
	}
	if !path.IsAbs(name) {
		return errors.New("wall cannot tell where it is")
	}
	if typ == unix.S_IFIFO && p.Landlock.ABI == 0 {
		// A read-only mount does not keep a FIFO from being written.
		return errors.New("it is a FIFO with a name, and without Landlock the command could write to it")
	}
	if st.Nlink > 1 {
		return errors.New("the file has several names (hard links), and the command may be able to write to one")
	}
	roots := p.WritableRoots()
	if beneathAny(name, roots) {
		return fmt.Errorf("the command can write to %s", quoteOdd(name))
	}
	// The same directory may be mounted in several places.
	ids := make(map[fileID]bool, len(roots))
	for _, root := range roots {
		var rst unix.Stat_t
		if unix.Stat(root, &rst) == nil { // else it is optional, and not there
			ids[fileID{uint64(rst.Dev), rst.Ino}] = true
		}
	}
	for at := name; at != "/"; at = path.Dir(at) {
		var ast unix.Stat_t
		if unix.Lstat(at, &ast) == nil && ids[fileID{uint64(ast.Dev), ast.Ino}] {
			return fmt.Errorf("the command can write to %s, which has another name, too", quoteOdd(at))
		}
	}
	return nil
}

// A fileID tells files of one host apart.
type fileID struct{ dev, ino uint64 }

// harmlessDevice reports whether st is /dev/null or one of its kin (major 1,
// Documentation/admin-guide/devices.txt), which nobody reads a report from.
func harmlessDevice(st *unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(uint64(st.Rdev)) == 1
}

// send writes one line. Lines are shorter than PIPE_BUF, except for long errors.
func (s statusFD) send(e event) error {
	if s == noStatus {
		return nil
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(plan.PrintableJSON(line), '\n')
	for len(line) > 0 {
		n, err := unix.Write(int(s), line)
		switch err {
		case nil:
			line = line[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			// The caller made it non-blocking, and the flag is shared with the
			// caller, so it stays.
			fds := []unix.PollFd{{Fd: int32(s), Events: unix.POLLOUT}}
			if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
				return os.NewSyscallError("poll", err)
			}
		default:
			return os.NewSyscallError("write", err)
		}
	}
	return nil
}
