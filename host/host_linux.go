package host

import (
	"encoding/hex"
	"errors"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/cgroup"
	"github.com/wallsandbox/wall/envscrub/inject"
	"github.com/wallsandbox/wall/landlock"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/seccomp"
)

// TempDir is where the scratch root is made. $TMPDIR is not used: it may lie in
// the workspace, where the command of an earlier run could prepare it.
const TempDir = "/tmp"

// Gather collects every fact that Resolve may use. It starts no program,
// asks no directory service, and reads no variable except PWD.
func Gather() (profile.Host, error) {
	h := profile.Host{
		OS:      runtime.GOOS,
		Arch:    runtime.GOARCH,
		UID:     os.Getuid(),
		GID:     os.Getgid(),
		Environ: os.Environ(),
		FS:      FS(),
		TempDir: TempDir, DefaultTemp: TempDir,
		Injected: injectedVars,
	}
	if os.Geteuid() != h.UID || os.Getegid() != h.GID {
		return h, &plan.Error{
			Op:   "wall does not run set-user-id or set-group-id",
			Hint: "remove the set-id bits from the wall binary; it needs no privilege",
		}
	}

	a, err := AccountOf(h.UID)
	if err != nil {
		return h, err
	}
	h.User, h.AccountHome, h.AccountSh = a.Name, a.Home, a.Shell

	h.Cwd = WorkingDir()
	h.Pwd = logicalCwd(os.Getenv("PWD"))
	h.Executable = executable()

	var id [8]byte
	if err := randomBytes(id[:]); err != nil {
		return h, &plan.Error{Op: "cannot name the run", Err: err}
	}
	h.RunID = hex.EncodeToString(id[:])
	manager := sync.OnceValues(cgroup.Manager) // a systemd that does not answer is waited for once
	h.Cgroup = func(memory, processes bool) (plan.Cgroup, error) {
		ask := manager
		if !memory {
			ask = nil // RLIMIT_NPROC keeps the limit of processes of whoever could have a scope
		}
		return cgroup.Find(cgroup.Need{Memory: memory, Pids: processes}, h.RunID, ask)
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

// WorkingDir is the working directory as the kernel names it, "" when it was
// deleted or lies outside of this process's root.
func WorkingDir() string {
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
