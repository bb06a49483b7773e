package nsexec

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// stdio is the three standard streams of one run.
type stdio struct {
	described []plan.Stdio
	child     [3]int // descriptors that the child gets
	owned     []int  // ours, to be closed once the child has them
	jobs      []copyJob
	term      *terminal // for a private terminal, or nil
	piped     int       // the terminal on descriptor 1 that the child gets a pipe to, or -1
}

// A copyJob carries bytes between the caller and a pipe.
type copyJob struct {
	reader io.Reader // the caller's, for stdin
	writer io.Writer // the caller's, for stdout and stderr
	pipe   int       // our end; of output it does not block

	wake     event         // for output
	terminal bool          // writer is one, which may take nothing for as long as it likes
	wrote    func(int) int // see [Cmd.Wrote]
}

// open prepares the streams of c. Where the plan has no Landlock, and where a
// file lies in a part of a writable tree that is protected or hidden by mounts
// alone, a regular file is copied through a pipe instead of being passed: the
// command could reopen it through /proc/self/fd with more access than the
// descriptor has. A TCP connection is copied where the network of the box is limited,
// see passSocket.
func (s *stdio) open(c *Cmd) error {
	s.described, s.piped = nil, -1
	if c.Plan.TTY == plan.TTYPrivate && c.Plan.Enforce != plan.EnforceOff {
		if err := s.openTerminal(c); err != nil {
			return err
		}
	}
	for i, stream := range []any{c.Stdin, c.Stdout, c.Stderr} {
		if i == 2 && stream != nil && sameStream(c.Stdout, c.Stderr) {
			// The same on both, as with 2>&1: one descriptor, so that the
			// order is kept and a writer is never called from two goroutines.
			s.child[2] = s.child[1]
			d := s.described[1]
			d.FD = 2
			s.described = append(s.described, d)
			continue
		}
		if stream == nil {
			if err := s.null(i); err != nil {
				return err
			}
			continue
		}
		if f, ok := stream.(*os.File); ok {
			d, fd, err := s.file(i, f)
			if err != nil {
				return err
			}
			replace := d.Kind == plan.StdioTTY && c.Plan.Enforce != plan.EnforceOff && c.Plan.TTY != plan.TTYInherit
			if replace {
				done, err := s.replaceTerminal(i, d, fd)
				if err != nil {
					return err
				}
				if done {
					continue
				}
			}
			direct := d.Kind != plan.StdioFile && !replace || c.Plan.Enforce == plan.EnforceOff
			if d.Kind == plan.StdioSocket {
				how, err := passSocket(&c.Plan, fd)
				if err == nil && how == passRefused {
					err = errSocket
				}
				if err != nil {
					return &plan.Error{Op: "cannot pass descriptor " + strconv.Itoa(i) + " into the box", Err: err, Hint: hintSocket}
				}
				direct = how == passDirect
			}
			if d.Kind == plan.StdioFile && !direct && c.Plan.Landlock.ABI > 0 {
				// Landlock's rules for a writable tree reach a protected file
				// in it, too, when it is reopened through /proc/self/fd.
				carved, err := carvedOut(&c.Plan, fd)
				if err != nil {
					return &plan.Error{Op: "cannot tell where descriptor " + strconv.Itoa(i) + " leads", Err: err}
				}
				direct = !carved || d.Write
			}
			if i > 0 && d.Kind != plan.StdioNull && relayed(c) {
				direct = false
			}
			if direct {
				s.child[i] = fd
				s.described = append(s.described, d)
				continue
			}
		}
		r, w, err := pipe()
		if err != nil {
			return &plan.Error{Op: "cannot make a pipe for descriptor " + strconv.Itoa(i), Err: err}
		}
		d := plan.Stdio{FD: i, Kind: plan.StdioPipe, Read: i == 0, Write: i != 0}
		s.described = append(s.described, d)
		if i == 0 {
			s.child[0] = r
			s.owned = append(s.owned, r)
			s.jobs = append(s.jobs, copyJob{reader: c.Stdin, pipe: w})
			continue
		}
		s.child[i] = w
		s.owned = append(s.owned, w)
		wake, err := newEvent()
		if err == nil {
			s.jobs = append(s.jobs, copyJob{writer: stream.(io.Writer), pipe: r, wake: wake, terminal: isTerminal(stream), wrote: c.Wrote})
			err = os.NewSyscallError("fcntl", unix.SetNonblock(r, true))
		} else {
			unix.Close(r)
		}
		if err != nil {
			return &plan.Error{Op: "cannot make a pipe for descriptor " + strconv.Itoa(i), Err: err}
		}
	}
	return nil
}

// relayed reports whether all output has to come through this process, to be counted.
func relayed(c *Cmd) bool { return c.Plan.Bounds.Total.Value > 0 && !c.Metered }

// null gives the child /dev/null.
func (s *stdio) null(i int) error {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &plan.Error{Op: "cannot open /dev/null", Err: err}
	}
	s.child[i] = fd
	s.owned = append(s.owned, fd)
	s.described = append(s.described, plan.Stdio{FD: i, Kind: plan.StdioNull, Read: true, Write: true})
	return nil
}

// openTerminal makes ready for a private terminal: standard input must be one.
func (s *stdio) openTerminal(c *Cmd) error {
	refuse := func(err error) error { return &plan.Error{Op: "cannot give the command a private terminal", Err: err} }
	fds := [3]int{-1, -1, -1}
	for i, stream := range []any{c.Stdin, c.Stdout, c.Stderr} {
		f, ok := stream.(*os.File)
		if !ok || f == nil {
			continue
		}
		d, fd, err := s.file(i, f)
		if err != nil {
			return err
		}
		if d.Kind == plan.StdioTTY && (i == 0 || fds[0] >= 0 && sameTerminal(fds[0], fd)) {
			fds[i] = fd
		}
	}
	if fds[0] < 0 {
		return refuse(errors.New("standard input is no terminal"))
	}
	var out []int
	for _, fd := range fds[1:] {
		if fd >= 0 {
			out = append(out, fd)
		}
	}
	t, err := newTerminal(fds[0], out, fds[1] >= 0)
	if err != nil {
		return err
	}
	t.suspend, t.wrote = c.Suspend, c.Wrote
	t.hup = func() { _ = c.signalGroup(unix.SIGHUP) } // the box may have ended
	s.term = t
	return nil
}

// replaceTerminal gives the child something else in place of the caller's
// terminal: the private one, which stage 2 puts where the description says
// terminal, or /dev/null for standard input. False: a pipe is to be used.
func (s *stdio) replaceTerminal(i int, d plan.Stdio, fd int) (bool, error) {
	switch {
	case s.term != nil && (i == 0 || sameTerminal(s.term.in, fd)):
		if err := s.null(i); err != nil {
			return false, err
		}
		s.described[i] = d
		return true, nil
	case i == 0:
		return true, s.null(i)
	case i == 1:
		s.piped = fd
	case s.piped >= 0 && sameTerminal(s.piped, fd):
		// One pipe for both, so that the order is kept.
		s.child[2] = s.child[1]
		d = s.described[1]
		d.FD = 2
		s.described = append(s.described, d)
		return true, nil
	}
	return false, nil
}

// sameStream compares two writers; those whose types cannot be compared differ.
func sameStream(a, b io.Writer) bool {
	defer func() { _ = recover() }()
	return a == b
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	is := false
	rc, err := f.SyscallConn()
	if err == nil {
		err = rc.Control(func(fd uintptr) {
			_, e := unix.IoctlGetTermios(int(fd), unix.TCGETS)
			is = e == nil
		})
	}
	return err == nil && is
}

// carvedOut reports whether the regular file behind fd may be one that the plan
// takes out of a writable tree, or hides there. Landlock's rules for the tree hang on
// inodes, so the file's path here is not what counts: it may have been opened
// through another mount of the same tree. Whatever is not proven to lie outside of every
// writable tree, or plainly inside of one, counts as carved out.
func carvedOut(p *plan.Plan, fd int) (bool, error) {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return false, err
	}
	st, err := fstat(fd)
	if err != nil {
		return false, err
	}
	inner, writable := 0, false // of the innermost mount around the path
	elsewhere := true           // no writable tree of the plan is on the file's device
	for _, m := range p.Mounts {
		protects := m.Op == plan.OpProtect || m.Op == plan.OpCover || m.Op == plan.OpBind && m.Access != plan.AccessWrite
		writes := m.Op == plan.OpBind && m.Access == plan.AccessWrite
		if !protects && !writes {
			continue
		}
		if writes {
			var root unix.Stat_t
			if err := unix.Stat(m.Source, &root); err != nil || root.Dev == st.Dev {
				elsewhere = false
			}
		}
		if protects && m.Type == plan.TypeFile {
			var other unix.Stat_t
			if unix.Lstat(m.Target, &other) == nil && other.Ino == st.Ino && other.Dev == st.Dev {
				return true, nil
			}
		}
		if len(m.Target) >= inner && (name == m.Target || strings.HasPrefix(name, strings.TrimSuffix(m.Target, "/")+"/")) {
			inner, writable = len(m.Target), writes
		}
	}
	switch {
	case elsewhere:
		return false, nil
	case inner > 0 && writable:
		return false, nil // what the command can write by its path anyway
	}
	// On the device of a writable tree, but not in one by its path. The file
	// lies outside when the directories above it, by their inodes, are none of
	// the trees' roots.
	outside, err := outsideTrees(p, name, st)
	return !outside, err
}

// outsideTrees follows the directories above the file, as this process sees
// them, and reports whether the file is there under its name and none of them is the root of a
// writable tree.
func outsideTrees(p *plan.Plan, name string, file unix.Stat_t) (bool, error) {
	type inode struct{ dev, ino uint64 }
	roots := map[inode]bool{}
	for _, m := range p.Mounts {
		var st unix.Stat_t
		if m.Op == plan.OpBind && m.Access == plan.AccessWrite && unix.Stat(m.Source, &st) == nil {
			roots[inode{st.Dev, st.Ino}] = true
		}
	}
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil || st.Dev != file.Dev || st.Ino != file.Ino {
		return false, nil // deleted or renamed: nobody knows where it lies
	}
	for d := path.Dir(name); ; d = path.Dir(d) {
		if err := unix.Stat(d, &st); err != nil {
			return false, pathError("stat", d, err)
		}
		if roots[inode{st.Dev, st.Ino}] {
			return false, nil
		}
		if d == "/" {
			break
		}
	}
	// A mount of a directory below such a root has its own root as the last
	// one that can be seen: the top of the mount must be the top of its file
	// system, or nothing is known about what is above.
	return mountTop(name)
}

// mountTop reports whether the mount that the file lies in shows its file
// system from the top, by the text of mountinfo: field 4 is the root of the mount.
func mountTop(name string) (bool, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return false, err
	}
	best, root := -1, ""
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(line, " ", 6)
		if len(f) < 6 {
			continue
		}
		point := unescapeMount(f[4])
		if (name == point || strings.HasPrefix(name, strings.TrimSuffix(point, "/")+"/")) && len(point) >= best {
			best, root = len(point), f[3] // of mounts at one place the last counts
		}
	}
	return root == "/", nil
}

// checkKept refuses to keep a descriptor that would give more than it has: a
// file open for reading that the plan protects.
func checkKept(p *plan.Plan) error {
	if p.Enforce == plan.EnforceOff {
		return nil
	}
	for _, fd := range p.KeepFDs {
		st, err := fstat(fd)
		if err != nil {
			return &plan.Error{Op: fmt.Sprintf("cannot keep descriptor %d", fd), Err: err}
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err != nil {
			return &plan.Error{Op: fmt.Sprintf("cannot keep descriptor %d", fd), Err: os.NewSyscallError("fcntl", err)}
		}
		if st.Mode&unix.S_IFMT != unix.S_IFREG || flags&unix.O_ACCMODE != unix.O_RDONLY {
			continue
		}
		carved := p.Landlock.ABI == 0
		if !carved {
			carved, err = carvedOut(p, fd)
		}
		if err == nil && carved {
			err = errors.New("it is a file that the plan protects, or nothing shows that it is not, and the command could reopen it for writing")
		}
		if err != nil {
			return &plan.Error{Op: fmt.Sprintf("cannot keep descriptor %d", fd), Err: err, Hint: "pass it through a pipe: cat FILE | wall run ..."}
		}
	}
	return nil
}

// file gives the descriptor behind f without changing its flags, as
// (*os.File).Fd would, and describes it.
func (s *stdio) file(i int, f *os.File) (plan.Stdio, int, error) {
	fd := -1
	rc, err := f.SyscallConn()
	if err == nil {
		err = rc.Control(func(n uintptr) { fd = int(n) })
	}
	if err != nil {
		return plan.Stdio{}, -1, &plan.Error{Op: "cannot use descriptor " + strconv.Itoa(i), Err: err}
	}
	d, err := Describe(fd)
	d.FD = i
	return d, fd, err
}

// Describe says what the open descriptor fd refers to, and refuses what must
// not enter a box: directories, block devices, O_PATH descriptors, and
// character devices other than terminals and the harmless ones of mem(4). A descriptor that is not open
// is StdioClosed.
func Describe(fd int) (plan.Stdio, error) {
	d := plan.Stdio{FD: fd}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == unix.EBADF {
		d.Kind = plan.StdioClosed
		return d, nil
	}
	refuse := func(what string) (plan.Stdio, error) {
		return d, &plan.Error{
			Op:   fmt.Sprintf("cannot pass descriptor %d into the box", fd),
			Err:  fmt.Errorf("it is %s", what),
			Hint: "redirect it to a file, a pipe or /dev/null",
		}
	}
	if err != nil {
		return refuse("unreadable: " + err.Error())
	}
	if flags&unix.O_PATH != 0 {
		return refuse("an O_PATH descriptor, which opens what lies behind it")
	}
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		d.Read = true
	case unix.O_WRONLY:
		d.Write = true
	default:
		d.Read, d.Write = true, true
	}
	st, err := fstat(fd)
	if err != nil {
		return refuse("unreadable: " + err.Error())
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		d.Kind = plan.StdioPipe
	case unix.S_IFSOCK:
		d.Kind = plan.StdioSocket
	case unix.S_IFREG:
		d.Kind = plan.StdioFile
	case unix.S_IFDIR:
		return refuse("a directory, which opens what lies below it")
	case unix.S_IFBLK:
		return refuse("a block device")
	case unix.S_IFCHR:
		const memMajor = 1 // null 3, zero 5, full 7, random 8, urandom 9 (mem(4))
		minor := unix.Minor(st.Rdev)
		switch {
		case unix.Major(st.Rdev) == memMajor && (minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9):
			d.Kind = plan.StdioNull
		default:
			if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
				return refuse("a device")
			}
			if _, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN); err == nil {
				return refuse("the master of a terminal, which types into it")
			}
			d.Kind = plan.StdioTTY
		}
	default:
		d.Kind = plan.StdioOther
	}
	return d, nil
}

// closeChild closes our copies of what the child has.
func (s *stdio) closeChild() {
	for _, fd := range s.owned {
		unix.Close(fd)
	}
	s.owned = nil
}

// closeParent closes our ends of pipes that will not be used.
func (s *stdio) closeParent() {
	for _, j := range s.jobs {
		unix.Close(j.pipe)
		if j.writer != nil {
			j.wake.close()
		}
	}
	s.jobs = nil
}

// copy starts the copying. The copy of input may outlive the command, blocked in a
// read of the caller's; nobody waits for it.
func (s *stdio) copy() []*outCopy {
	var copies []*outCopy
	for _, j := range s.jobs {
		if j.reader != nil {
			f := os.NewFile(uintptr(j.pipe), "pipe")
			go func() {
				_, _ = io.Copy(f, j.reader) // the command need not read its input
				f.Close()
			}()
			continue
		}
		x := &outCopy{copyJob: j, done: make(chan struct{})}
		copies = append(copies, x)
		go x.run()
	}
	s.jobs = nil
	return copies
}

// An outCopy carries what the command writes to the caller.
type outCopy struct {
	copyJob
	ended atomic.Bool   // the box has ended
	taken atomic.Uint64 // bytes that the caller's end has taken
	done  chan struct{}
	err   error // valid when done is closed
}

func (x *outCopy) run() {
	defer close(x.done)
	defer unix.Close(x.pipe)
	buf := make([]byte, 32<<10)
	left := -1 // bytes until the end, once that is known
	for left != 0 && x.err == nil {
		if left < 0 && x.ended.Load() {
			// Whatever the box wrote is in the pipe. It may have handed the
			// other end to somebody who writes on, or never closes it.
			if left, x.err = unix.FcntlInt(uintptr(x.pipe), unix.F_GETPIPE_SZ, 0); x.err != nil {
				return
			}
		}
		b := buf
		if left > 0 {
			b = buf[:min(left, len(buf))]
		}
		n, err := unix.Read(x.pipe, b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN && left >= 0, err == nil && n == 0:
			return
		case err == unix.EAGAIN:
			x.err = poll([]unix.PollFd{{Fd: int32(x.pipe), Events: unix.POLLIN}, {Fd: int32(x.wake), Events: unix.POLLIN}}, -1)
		case err != nil:
			x.err = os.NewSyscallError("read", err)
		default:
			x.err = x.write(b[:x.wrote(n)])
			if left > 0 {
				left -= n
			}
		}
	}
}

func (x *outCopy) write(b []byte) error {
	for len(b) > 0 {
		chunk := b
		if x.terminal {
			chunk = b[:min(len(b), showChunk)]
		}
		n, err := x.writer.Write(chunk)
		if err == nil && n != len(chunk) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return err
		}
		b = b[n:]
		x.taken.Add(uint64(n))
	}
	return nil
}

// finish waits until everything was copied: the command has ended, and the box with
// it. What a terminal has not taken is dropped when abort is closed, or without
// patience when it takes nothing.
func (x *outCopy) finish(boxed, patience bool, abort <-chan struct{}) error {
	if boxed {
		x.ended.Store(true)
		x.wake.set()
	}
	switch {
	case !x.terminal:
		<-x.done
	case patience:
		select {
		case <-x.done:
		case <-abort:
		}
	default:
		awaitWriter(&x.taken, x.done, abort)
	}
	select {
	case <-x.done:
		x.wake.close()
		return x.err
	default:
		return nil
	}
}
