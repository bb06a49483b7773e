package main

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
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

// errNotOpen says that the caller did not open a descriptor that a flag names.
var errNotOpen = errors.New("it is not open")

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
