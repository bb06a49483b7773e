package landlock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"

	golandlock "github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"github.com/wallsandbox/wall/plan"
	"golang.org/x/sys/unix"
)

// ABI asks the kernel once for its Landlock ABI, which may be newer than
// [NewestABI], and costs one system call the first time. Without Landlock it
// gives 0 and a [plan.UnsupportedError] that says whether the kernel was built
// without it or started without it. Any other error, such as EPERM from a
// container's system call filter, means that nobody knows.
func ABI() (int, error) { return askABI() }

var askABI = sync.OnceValues(func() (int, error) {
	return interpretABI(ll.LandlockGetABIVersion())
})

func interpretABI(version int, err error) (int, error) {
	switch {
	case err == nil && version > 0:
		return version, nil
	case err == nil:
		return 0, fmt.Errorf("landlock_create_ruleset: the kernel says ABI %d", version)
	case errors.Is(err, unix.ENOSYS):
		return 0, &plan.UnsupportedError{Feature: "Landlock", Need: "a kernel built with CONFIG_SECURITY_LANDLOCK (Linux 5.13)", Have: "none"}
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, &plan.UnsupportedError{Feature: "Landlock", Need: "the kernel started with landlock in lsm=", Have: "it built in but not started"}
	}
	return 0, os.NewSyscallError("landlock_create_ruleset", err)
}

// Open makes the kernel ruleset and returns its descriptor, which is
// close-on-exec. Nothing is restricted yet. Paths are looked up in the current
// root without following any link: rules bind to inodes, and a link planted on
// the way must not choose which. Call it inside the box, when all mounts are in
// place.
//
// An Optional rule is skipped when its path is missing, unreachable or a link;
// otherwise that is a [plan.Error] with the rule's origin. A standard stream
// that is not a regular file any more is an error. On error no descriptor stays
// open.
func (r Ruleset) Open() (fd int, err error) {
	if r.HandledFS == 0 && r.HandledNet == 0 && r.Scoped == 0 {
		return -1, errors.New("wall bug: a Landlock ruleset that restricts nothing")
	}
	fd, err = ll.LandlockCreateRuleset(&ll.RulesetAttr{
		HandledAccessFS:  uint64(r.HandledFS),
		HandledAccessNet: uint64(r.HandledNet),
		Scoped:           uint64(r.Scoped),
	}, 0)
	if err != nil {
		return -1, fmt.Errorf("make the Landlock ruleset for ABI %d: %w", r.ABI, os.NewSyscallError("landlock_create_ruleset", err))
	}
	if err := r.fill(fd); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (r Ruleset) fill(ruleset int) error {
	var dir directory
	defer dir.close()
	for i := range r.Rules {
		rule := &r.Rules[i]
		// Rules for the entries of one directory follow each other: open it once.
		shared := i+1 < len(r.Rules) && parent(r.Rules[i+1].Path) == parent(rule.Path)
		err := addPath(ruleset, &dir, shared, rule)
		if err == nil || rule.Optional && isMissing(err) {
			continue
		}
		hint := ""
		switch {
		case errors.Is(err, unix.ELOOP):
			hint = "a symbolic link appeared after wall looked; run again"
		case isMissing(err):
			hint = "create it, or mark the line optional to skip it when missing"
		}
		return ruleError("cannot allow "+rule.Path+" by Landlock", rule.Origin, hint, err)
	}
	for _, s := range r.Stdio {
		if err := addStdio(ruleset, s); err != nil {
			return fmt.Errorf("cannot allow standard stream %d by Landlock: %w", s.FD, err)
		}
	}
	for _, p := range r.Ports {
		attr := ll.NetPortAttr{AllowedAccess: uint64(p.Access), Port: uint64(p.Port)}
		if err := ll.LandlockAddNetPortRule(ruleset, &attr, 0); err != nil {
			return ruleError(fmt.Sprintf("cannot allow port %d by Landlock", p.Port), p.Origin, "", os.NewSyscallError("landlock_add_rule", err))
		}
	}
	return nil
}

// A directory is the one that the last rule was in, when the next is in it too.
type directory struct {
	path string // "" none
	fd   int
}

func (d *directory) close() {
	if d.path != "" {
		unix.Close(d.fd)
		d.path = ""
	}
}

// open opens a path as openPath does with O_PATH; shared says that the next
// one will be in the same directory.
func (d *directory) open(path string, shared bool) (int, error) {
	dir := parent(path)
	if d.path != dir {
		d.close()
		if !shared || path == "/" {
			return openPath(path, unix.O_PATH)
		}
		fd, err := openPath(dir, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return -1, err
		}
		d.path, d.fd = dir, fd
	}
	name := strings.TrimPrefix(path[len(dir):], "/")
	if name == "" { // the root: its own parent
		name = "."
	}
	for {
		fd, err := unix.Openat(d.fd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.EINTR {
			continue
		}
		return fd, os.NewSyscallError("openat", err)
	}
}

// isMissing reports whether a path is not there for the command either: stage 2
// has given up its capabilities by now, so what it cannot reach the command
// cannot.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, fs.ErrPermission)
}

func addPath(ruleset int, dir *directory, shared bool, rule *Rule) error {
	fd, err := dir.open(rule.Path, shared)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The kernel itself says EINVAL when a right for directories is in a rule
	// on something else; most rules are on directories, and asking first would
	// cost a call for each.
	if rule.Access&^accessFile != 0 {
		if err := addBeneath(ruleset, fd, rule.Access); !errors.Is(err, unix.EINVAL) {
			return err
		}
	}
	mode, err := fileType(fd)
	if err != nil {
		return err
	}
	access := rule.Access
	switch mode {
	case unix.S_IFLNK:
		return unix.ELOOP
	case unix.S_IFDIR:
	default:
		access &= accessFile
	}
	return addBeneath(ruleset, fd, access)
}

func addStdio(ruleset int, s StdioRule) error {
	mode, err := fileType(s.FD)
	if err != nil {
		return err
	}
	if mode != unix.S_IFREG {
		return errors.New("it is not a regular file any more")
	}
	err = addBeneath(ruleset, s.FD, s.Access)
	if errors.Is(err, unix.EBADFD) {
		// A file without a place in any tree, such as a memfd: Landlock does
		// not restrict opening it again, so it takes no rule.
		return nil
	}
	return err
}

// addBeneath adds a rule; no rights at all are no rule (the kernel says ENOMSG).
func addBeneath(ruleset, fd int, access golandlock.AccessFSSet) error {
	if access == 0 {
		return nil
	}
	attr := ll.PathBeneathAttr{AllowedAccess: uint64(access), ParentFd: fd}
	return os.NewSyscallError("landlock_add_rule", ll.LandlockAddPathBeneathRule(ruleset, &attr, 0))
}

// RestrictThread enforces the ruleset on the calling thread, for good, and on
// whatever it forks from now on; fd stays open.
//
// The caller has locked its goroutine to the thread with runtime.LockOSThread
// and never unlocks it: a thread that went back to the Go scheduler would run
// other goroutines restricted. no_new_privs must be set on the thread already;
// that is checked, because a thread with CAP_SYS_ADMIN could do without.
//
// One thread and not all: only the thread that forks the command needs the
// domain. The other threads of pid 1 stay outside, so that the signal scope
// (ABI 6) keeps the command from signalling pid 1: the kernel looks at the
// domain of the thread group's leader, so the calling thread must not be that
// one. The log flags of ABI 7 stay at the kernel's default: what the
// command is refused after its execve does not fill the host's audit log.
func RestrictThread(fd int) error {
	nnp, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if nnp != 1 {
		return errors.New("wall bug: Landlock before no_new_privs")
	}
	return os.NewSyscallError("landlock_restrict_self", ll.LandlockRestrictSelf(fd, 0))
}

// openPath opens an absolute path without following any link, in the last
// element neither: with O_PATH, a link there is opened itself.
func openPath(path string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_NO_SYMLINKS,
	}
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, path, &how)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return -1, os.NewSyscallError("openat2", err)
		}
		return fd, nil
	}
}

// fileType gives the S_IFMT bits of what fd refers to.
func fileType(fd int) (uint32, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, os.NewSyscallError("fstat", err)
	}
	return st.Mode & unix.S_IFMT, nil
}

// ReadDir lists a directory of the current root for [Expand], without following
// any link on the way to it. The order is the file system's.
func ReadDir(dir string) ([]Entry, error) {
	fd, err := openPath(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), dir)
	defer f.Close()
	list, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(list))
	for _, e := range list {
		t := plan.TypeFile
		switch {
		case e.Type().IsDir():
			t = plan.TypeDir
		case e.Type()&fs.ModeSymlink != 0:
			t = plan.TypeSymlink
		}
		entries = append(entries, Entry{e.Name(), t})
	}
	return entries, nil
}
