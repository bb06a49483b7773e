package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/landlock"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/seccomp"
)

// tempDir is where the scratch root is made. $TMPDIR is not used: it may lie in
// the workspace, where the command of an earlier run could prepare it.
const tempDir = "/tmp"

// gatherHost collects every fact that Resolve may use. It starts no program,
// asks no directory service, and reads no variable except PWD.
func gatherHost() (profile.Host, error) {
	h := profile.Host{
		OS:      runtime.GOOS,
		Arch:    runtime.GOARCH,
		UID:     os.Getuid(),
		GID:     os.Getgid(),
		Environ: os.Environ(),
		FS:      os.DirFS("/"),
		TempDir: tempDir,
	}
	if os.Geteuid() != h.UID || os.Getegid() != h.GID {
		return h, &plan.Error{
			Op:   "wall does not run set-user-id or set-group-id",
			Hint: "remove the set-id bits from the wall binary; it needs no privilege",
		}
	}

	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return h, &plan.Error{Op: "cannot read the account record", Err: err}
	}
	a, _ := findAccount(string(passwd), h.UID)
	h.User, h.AccountHome, h.AccountSh = a.name, a.home, a.shell

	h.Cwd = physicalCwd()
	h.Pwd = logicalCwd(os.Getenv("PWD"))
	h.Executable = executable()

	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return h, &plan.Error{Op: "cannot name the run", Err: err}
	}
	h.RunID = hex.EncodeToString(id[:])

	// Without this list the sockets in readable trees could not be covered, so
	// that a failure is not passed over.
	unixTable, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return h, &plan.Error{
			Op:   "cannot list the Unix sockets of this host",
			Hint: "wall needs a mounted /proc",
			Err:  err,
		}
	}
	h.Sockets = boundSockets(string(unixTable))

	h.LandlockABI, h.LandlockErr = landlock.ABI()
	if h.LandlockErr != nil {
		h.LandlockABI = 0
	}
	ok, err := seccomp.Probe()
	switch {
	case err != nil:
		h.SeccompErr = err
	case !ok:
		h.SeccompErr = &plan.UnsupportedError{Feature: "seccomp filtering", Need: "CONFIG_SECCOMP_FILTER"}
	}

	h.Stdio, err = classifyStdio()
	return h, err
}

// physicalCwd is the working directory as the kernel names it, "" when it was
// deleted or lies outside of this process's root.
func physicalCwd() string {
	// Not os.Getwd: it believes $PWD.
	buf := make([]byte, unix.PathMax)
	for {
		n, err := unix.Getcwd(buf)
		if err == unix.ERANGE && len(buf) < 1<<20 {
			buf = make([]byte, 2*len(buf))
			continue
		}
		// The count includes the final NUL. A directory that cannot be reached
		// from the root is reported as "(unreachable)/...".
		if err != nil || n < 2 || buf[0] != '/' {
			return ""
		}
		return string(buf[:n-1])
	}
}

// logicalCwd is pwd when that names the working directory in another spelling.
func logicalCwd(pwd string) string {
	if !path.IsAbs(pwd) || path.Clean(pwd) != pwd || strings.ContainsRune(pwd, 0) {
		return ""
	}
	var a, b unix.Stat_t
	if unix.Stat(pwd, &a) != nil || unix.Stat(".", &b) != nil || a.Dev != b.Dev || a.Ino != b.Ino {
		return ""
	}
	return pwd
}

// executable is the path of the running binary, "" when it has none any more.
func executable() string {
	p, err := os.Readlink("/proc/self/exe")
	if err != nil || !path.IsAbs(p) || strings.HasSuffix(p, " (deleted)") {
		return ""
	}
	return p
}

// classifyStdio looks at descriptors 0, 1 and 2.
func classifyStdio() ([]plan.Stdio, error) {
	var all []plan.Stdio
	var errs []error
	for fd, name := range []string{"standard input", "standard output", "standard error"} {
		s, err := classify(fd)
		if err != nil {
			errs = append(errs, &plan.Error{Op: "cannot pass " + name + " to the command", Hint: "redirect it from or to a file, a pipe or /dev/null", Err: err})
		}
		all = append(all, s)
	}
	return all, errors.Join(errs...)
}

// Errors of classify: what is refused because it leads out of the box.
var (
	errDirectory = errors.New("it is a directory, through which every file below can be opened")
	errPathOnly  = errors.New("it is a path descriptor (O_PATH), through which a file can be opened anew")
	errBlock     = errors.New("it is a block device")
	errCharacter = errors.New("it is a device other than a terminal, /dev/null, zero, full, random or urandom")
	errNotOpen   = errors.New("it is not open")
)

// classify says what a descriptor refers to, or why it cannot be given to a
// boxed command.
func classify(fd int) (plan.Stdio, error) {
	s := plan.Stdio{FD: fd}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == unix.EBADF {
		// The Go runtime has opened /dev/null for a closed 0, 1 or 2 by now
		// (runtime.checkfds), so that this is for other descriptors.
		s.Kind = plan.StdioClosed
		return s, nil
	}
	if err != nil {
		return s, os.NewSyscallError("fcntl", err)
	}
	if flags&unix.O_PATH != 0 {
		return s, errPathOnly
	}
	switch flags & unix.O_ACCMODE {
	case unix.O_RDONLY:
		s.Read = true
	case unix.O_WRONLY:
		s.Write = true
	default:
		s.Read, s.Write = true, true
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return s, os.NewSyscallError("fstat", err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		s.Kind = plan.StdioPipe
	case unix.S_IFSOCK:
		s.Kind = plan.StdioSocket
	case unix.S_IFREG:
		s.Kind = plan.StdioFile
		// A memfd has no place in a file tree that a Landlock rule could name.
		// Only shmem knows seals; a file on a mounted tmpfs still has a link.
		if st.Nlink == 0 {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil {
				s.Kind = plan.StdioOther
			}
		}
	case unix.S_IFCHR:
		switch major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev); {
		case major == 1 && slices.Contains([]uint32{3, 5, 7, 8, 9}, minor):
			s.Kind = plan.StdioNull // numbers: Linux Documentation/admin-guide/devices.txt
		case major == 5 && minor == 2:
			return s, errCharacter // a pty master: who holds it types into the terminal
		case isTerminal(fd):
			s.Kind = plan.StdioTTY
		default:
			return s, errCharacter
		}
	case unix.S_IFDIR:
		return s, errDirectory
	case unix.S_IFBLK:
		return s, errBlock
	default:
		s.Kind = plan.StdioOther // anonymous inodes have no type: eventfd, epoll, ...
	}
	return s, nil
}

// keptFDs checks the descriptors asked for with --fd, and finds them for
// "--fd all": ascending, each once, without those of wall itself, which are all
// close-on-exec. reserved is the descriptor of --status-fd, or -1: the command
// could forge wall's report with it.
func keptFDs(l fdList, reserved int) ([]int, error) {
	fds := slices.Clone(l.fds)
	if l.all {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return nil, &plan.Error{Op: "cannot list the open descriptors", Origin: flagOrigin("--fd all"), Err: err}
		}
		for _, e := range entries {
			n, ok := parseFD(e.Name())
			if ok && n > 2 && n != reserved && inherited(n) {
				fds = append(fds, n)
			}
		}
	}
	slices.Sort(fds)
	fds = slices.Compact(fds)
	for _, fd := range fds {
		origin := flagOrigin("--fd " + fdName(fd, l))
		op := "cannot pass descriptor " + fdName(fd, fdList{}) + " to the command"
		if fd == reserved {
			return nil, &plan.Error{Op: op, Origin: origin, Err: errors.New("it carries the report of --status-fd"), Hint: "give the command another descriptor"}
		}
		if !inherited(fd) {
			return nil, &plan.Error{Op: op, Origin: origin, Err: errNotOpen, Hint: "open it in the shell, for example 3<file"}
		}
		if _, err := classify(fd); err != nil {
			return nil, &plan.Error{Op: op, Origin: origin, Err: err, Hint: "close it, or pass a pipe, a socket or a regular file"}
		}
	}
	return fds, nil
}

// inherited reports whether fd was open when wall started: whatever wall or the
// Go runtime opens is close-on-exec, and what came through execve is not.
func inherited(fd int) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil && flags&unix.FD_CLOEXEC == 0
}
