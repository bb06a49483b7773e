package main

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/cgroup"
	"github.com/wallsandbox/wall/envscrub/inject"
	"github.com/wallsandbox/wall/landlock"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/seccomp"
)

// setScratchRoot puts the scratch root below dir, from --scratch-root, instead of
// below the default.
func setScratchRoot(h *profile.Host, dir string) error {
	fail := func(err error, hint string) error {
		return &plan.Error{Op: "cannot use " + quoteOdd(dir) + " for scratch directories", Origin: flagOrigin("--scratch-root " + quoteOdd(dir)), Hint: hint, Err: err}
	}
	if !path.IsAbs(dir) && h.Cwd == "" {
		return fail(errors.New("the working directory was deleted"), "give an absolute path")
	}
	abs := dir
	if !path.IsAbs(dir) {
		abs = h.Cwd + "/" + dir
	}
	var st unix.Stat_t
	if err := unix.Stat(abs, &st); err != nil {
		return fail(err, "the directory must exist")
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return fail(unix.ENOTDIR, "")
	}
	// Plans have paths without links. Whoever can change this directory owns it
	// anyway: wall makes a root of mode 0700 in it and insists on owning that.
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return fail(err, "")
	}
	h.TempDir = real
	return nil
}

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
		FS:      strictFS{os.DirFS("/").(fs.ReadLinkFS)},
		TempDir: tempDir, DefaultTemp: tempDir,
		Injected: injectedVars,
	}
	if os.Geteuid() != h.UID || os.Getegid() != h.GID {
		return h, &plan.Error{
			Op:   "wall does not run set-user-id or set-group-id",
			Hint: "remove the set-id bits from the wall binary; it needs no privilege",
		}
	}

	passwd, err := readFact("/etc/passwd")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return h, &plan.Error{Op: "cannot read the account record", Err: err}
	}
	a, _ := findAccount(string(passwd), h.UID)
	h.User, h.AccountHome, h.AccountSh = a.name, a.home, a.shell

	h.Cwd = physicalCwd()
	h.Pwd = logicalCwd(os.Getenv("PWD"))
	h.Executable = executable()

	var id [8]byte
	if err := randomBytes(id[:]); err != nil {
		return h, &plan.Error{Op: "cannot name the run", Err: err}
	}
	h.RunID = hex.EncodeToString(id[:])
	h.Cgroup = func(memory, processes bool) (plan.Cgroup, error) {
		return cgroup.Find(cgroup.Need{Memory: memory, Pids: processes}, h.RunID)
	}

	// Without this list the sockets in readable trees could not be covered, so
	// that a failure is not passed over.
	unixTable, err := readFact("/proc/net/unix")
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

	h.Stdio, err = describeStdio()
	return h, err
}

// injectedVars reads the variables that "wall env set" stored, for the runs that
// want them.
func injectedVars(file string) ([]profile.InjectedVar, error) {
	vars, err := inject.Store{Path: file}.Load()
	if err != nil {
		return nil, err
	}
	out := make([]profile.InjectedVar, 0, len(vars))
	for _, v := range vars {
		out = append(out, profile.InjectedVar{Name: v.Name, Value: v.Value})
	}
	return out, nil
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

// errNotOpen says that the caller did not open a descriptor that a flag names.
var errNotOpen = errors.New("it is not open")

// describeStdio looks at descriptors 0, 1 and 2. The Go runtime has opened
// /dev/null for those that were closed (runtime.checkfds).
func describeStdio() ([]plan.Stdio, error) {
	var all []plan.Stdio
	var errs []error
	for fd := range 3 {
		d, err := nsexec.Describe(fd)
		if err != nil {
			errs = append(errs, err)
		}
		all = append(all, d)
	}
	return all, errors.Join(errs...)
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
		if _, err := nsexec.Describe(fd); err != nil {
			return nil, &plan.Error{Origin: origin, Err: err}
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
