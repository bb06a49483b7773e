package nsexec

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// An OverlayError says that the kernel, or the file system below, cannot make an
// overlay that the plan has. The command did not run; a plan without overlays
// may work.
type OverlayError struct{ Err error }

func (e *OverlayError) Error() string {
	return "no overlay can be made here: " + e.Err.Error()
}

// Unwrap gives the cause, a syscall.Errno.
func (e *OverlayError) Unwrap() error { return e.Err }

// A lowerLayer is the lower layer of an overlay at target, kept open for the
// self-test.
type lowerLayer struct {
	target string
	fd     int
}

func hasOverlay(p *plan.Plan) bool {
	return slices.ContainsFunc(p.Mounts, func(m plan.Mount) bool { return m.Op == plan.OpOverlay })
}

// overlay mounts a writable overlay over a directory of the host. The three
// directories are opened without following links, and what was opened and
// checked is what is mounted: overlayfs takes names, and the names that it gets
// are those of the open descriptors (/proc/self/fd/N, relative to a descriptor
// of that directory, because the new root hangs on /proc by now). From Linux 6.13
// on it would take the descriptors themselves; the names work everywhere.
//
// "userxattr" is what a user namespace may use (Linux 5.11); with it overlayfs
// follows no redirections that files could carry. "volatile" spares the syncing
// of what is thrown away anyway (overlayfs.rst).
func (b *builder) overlay(m plan.Mount) error {
	lower, err := b.openDir(m.Source)
	if err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			unix.Close(lower)
		}
	}()
	options := []fsOption{{"lowerdir", strconv.Itoa(lower)}}
	for _, d := range []fsOption{{"upperdir", m.Upper}, {"workdir", m.Work}} {
		at := b.p.Scratch.LayerPath(d.value)
		fd, err := b.openDir(at)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		options = append(options, fsOption{d.key, strconv.Itoa(fd)})
	}
	options = append(options, fsOption{"userxattr", ""})
	if !path.IsAbs(m.Upper) {
		options = append(options, fsOption{"volatile", ""})
	}
	if b.fds < 0 {
		return &OverlayError{&os.PathError{Op: "open", Path: "/proc/self/fd", Err: unix.ENOENT}}
	}
	if err := unix.Fchdir(b.fds); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	tree, err := newFS("overlay", attrsWrite, options...)
	if err == nil {
		if err = userAttributes(options[1].value); err != nil {
			unix.Close(tree)
		}
	}
	if back := unix.Fchdir(b.host); back != nil && err == nil {
		unix.Close(tree)
		return os.NewSyscallError("fchdir", back)
	}
	if err != nil {
		return &plan.Error{Op: "cannot " + describe(m), Origin: m.Origin, Err: &OverlayError{err},
			Hint: "caches.method = \"copy\" in the table [environment] does without overlays"}
	}
	defer unix.Close(tree)
	if err := b.attachTarget(m, tree); err != nil {
		return err
	}
	b.lowers = append(b.lowers, lowerLayer{m.Target, lower})
	keep = true
	return nil
}

// userAttributes passes when the file system of the upper layer has extended
// attributes for users, which tmpfs has since Linux 6.6. overlayfs mounts without
// them, and then cannot remove directories of the lower layer. name is relative to
// /proc/self/fd, the working directory.
func userAttributes(name string) error {
	_, err := unix.Getxattr(name, "user.overlay.opaque", nil)
	if errors.Is(err, unix.ENODATA) {
		err = nil
	}
	return os.NewSyscallError("getxattr of the upper layer", err)
}

// openDir opens a directory of the host.
func (b *builder) openDir(name string) (int, error) {
	fd, err := b.open(name)
	if err != nil {
		return -1, err
	}
	st, err := fstat(fd)
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = fmt.Errorf("%s %w", name, errTypeChanged)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// checkLayer passes when a directory that is made in the overlay at target does
// not appear in its lower layer.
func checkLayer(target, id string, lowers []lowerLayer) error {
	for _, l := range lowers {
		if l.target != target {
			continue
		}
		name := ".wall-self-test-" + id
		var st unix.Stat_t
		if err := unix.Fstatat(l.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s is in the lower layer already (%v)", name, err)
		}
		made := path.Join(target, name)
		if err := unix.Mkdir(made, 0o700); err != nil {
			return fmt.Errorf("nothing can be made in it: %w", err)
		}
		err := unix.Fstatat(l.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if rm := unix.Rmdir(made); rm != nil {
			return pathError("rmdir", made, rm)
		}
		if !errors.Is(err, unix.ENOENT) {
			return errors.New("what is made in it is made in the host's directory")
		}
		return nil
	}
	return errors.New("it was not mounted")
}

// probeOverlay tries an overlay as boxes use it, over the host's /usr and with
// its other layers on a new tmpfs.
func probeOverlay() error {
	fds, err := unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	lower, err := unix.Open("/usr", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	tree, err := newFS("tmpfs", attrsWrite)
	if err != nil {
		return err
	}
	at, err := unix.Open(attachPoint, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := attach(tree, at); err != nil {
		return err
	}
	options := []fsOption{{"lowerdir", strconv.Itoa(lower)}, {"userxattr", ""}, {"volatile", ""}}
	for _, d := range []string{"upperdir", "workdir"} {
		if err := unix.Mkdirat(tree, d, 0o700); err != nil {
			return err
		}
		fd, err := openAt(tree, d, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		options = append(options, fsOption{d, strconv.Itoa(fd)})
	}
	if err := unix.Fchdir(fds); err != nil {
		return err
	}
	_, err = newFS("overlay", attrsWrite, options...)
	return err
}
