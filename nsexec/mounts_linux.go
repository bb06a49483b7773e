package nsexec

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A builder walks Plan.Mounts. Everything is opened by descriptor below one of
// two directories, without following links: the host's root for sources, the
// new root for targets.
type builder struct {
	p     *plan.Plan
	host  int // the old root
	root  int // the new root, once made; -1 before
	cover int // a read-only tmpfs with an empty directory "d" and an empty file "f", both of mode 000, and texts
	fds   int // /proc/self/fd of the old tree, for overlays; -1 when there is none

	scratch int // the scratch directory in the old root; -1 when there is none

	lowers []lowerLayer // of the overlays
}

// attachPoint is where the new root hangs until pivot_root(2): a directory of
// the old tree that nothing needs by path afterwards and that certainly exists,
// since stage 2 was executed through it.
const attachPoint = "/proc"

const (
	attrsRead  = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	attrsWrite = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
)

// buildRoot makes the tree of the box and pivots into it. Precondition: new
// mount namespace with CAP_SYS_ADMIN over it. Nothing reaches the host's mount
// table, because propagation is made private first. It gives the lower layers
// of the overlays, which belong to the caller.
func buildRoot(p *plan.Plan, scratch int) ([]lowerLayer, error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, &plan.Error{Op: "cannot make mounts private", Err: os.NewSyscallError("mount", err), Hint: hintPrivileged(err)}
	}
	host, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &plan.Error{Op: "cannot open the host's root", Err: pathError("open", "/", err)}
	}
	b := &builder{p: p, host: host, root: -1, cover: -1, fds: -1, scratch: -1}
	if hasOverlay(p) {
		// Before the new root hides it. Where it is missing, the overlay fails.
		b.fds, _ = unix.Open("/proc/self/fd", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	}
	defer func() {
		for _, fd := range []int{b.host, b.root, b.cover, b.fds, b.scratch} {
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}()
	if p.Scratch.Root != "" {
		if err := b.openScratch(scratch); err != nil {
			return nil, &plan.Error{Op: "cannot mount the scratch directory " + p.Scratch.Path(), Err: err, Hint: "give --scratch-root a directory that nobody else can change"}
		}
	}
	for i, m := range p.Mounts {
		if err := b.mount(i, m); err != nil {
			if m.Optional && isAbsent(err) {
				continue
			}
			var pe *plan.Error
			if errors.As(err, &pe) {
				return nil, err
			}
			return nil, &plan.Error{Op: "cannot " + describe(m), Origin: m.Origin, Err: err, Hint: mountHint(m, err)}
		}
	}
	if err := b.pivot(); err != nil {
		return nil, &plan.Error{Op: "cannot enter the new root", Err: err}
	}
	return b.lowers, nil
}

// isAbsent reports whether a path is not there for the command either: what stage 2
// cannot reach, although it has more rights, the command cannot.
func isAbsent(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENOTDIR)
}

// describe says what a mount is for, in the user's words.
func describe(m plan.Mount) string {
	switch m.Op {
	case plan.OpHostRoot:
		return "show the host's tree read-only"
	case plan.OpEmptyRoot:
		return "make an empty root"
	case plan.OpBind:
		if m.Access == plan.AccessWrite {
			return fmt.Sprintf("make %s writable inside", m.Target)
		}
		return fmt.Sprintf("show %s inside", m.Target)
	case plan.OpCover:
		return "hide " + m.Target
	case plan.OpText:
		return fmt.Sprintf("put a file of wall's in the place of %s", m.Target)
	case plan.OpProtect:
		return "protect " + m.Target
	case plan.OpPin:
		return fmt.Sprintf("pin %s, which leads to a protected path", m.Target)
	case plan.OpScratch:
		return "mount the scratch directory at " + m.Target
	case plan.OpOverlay:
		return fmt.Sprintf("lay a private layer over %s at %s", m.Source, m.Target)
	case plan.OpSeal:
		return "make " + m.Target + " read-only"
	case plan.OpDir, plan.OpFile, plan.OpSymlink:
		return fmt.Sprintf("make the %s %s inside", m.Op, m.Target)
	}
	return fmt.Sprintf("mount %s at %s", m.Op, m.Target)
}

func mountHint(m plan.Mount, err error) string {
	switch {
	case errors.Is(err, errTypeChanged), errors.Is(err, unix.ELOOP):
		return "the file changed since wall looked at it; run again"
	case (m.Op == plan.OpProc || m.Op == plan.OpSysfs) && errors.Is(err, unix.EPERM):
		return "the kernel refuses a new " + string(m.Op) + " here because the present one has parts covered, as in a container; start the container with an unmasked /proc and /sys (docker: --security-opt systempaths=unconfined)"
	case errors.Is(err, unix.ENOENT):
		return "create it, or mark the line optional to skip it when missing"
	case errors.Is(err, unix.EINVAL) && m.Op == plan.OpBind:
		return "the directory may have mounts below it that cannot be copied"
	case errors.Is(err, unix.ENOSYS):
		return "wall needs Linux 5.12 or newer for its mounts"
	case errors.Is(err, unix.ENOSPC):
		return "raise fs.mount-max (sysctl) or reduce the number of hidden and protected paths"
	}
	return hintPrivileged(err)
}

var errTypeChanged = errors.New("is of another type than when wall looked")

// makeCover makes the source of every OpCover and OpText. It is mounted in the old tree
// only, because before Linux 6.15 a mount must be attached to be cloned from;
// the new root is then mounted on top of it.
func (b *builder) makeCover() error {
	texts := 0
	for _, m := range b.p.Mounts {
		if m.Op == plan.OpText {
			texts++
		}
	}
	fd, err := newFS("tmpfs", attrsWrite|unix.MOUNT_ATTR_NOEXEC,
		fsOption{"size", strconv.Itoa(4+texts*plan.MaxText>>10) + "k"}, fsOption{"nr_inodes", strconv.Itoa(8 + texts)}, fsOption{"mode", "0700"})
	if err != nil {
		return err
	}
	if err := unix.Mkdirat(fd, "d", 0); err != nil {
		return pathError("mkdir", "cover", err)
	}
	f, err := unix.Openat(fd, "f", unix.O_CREAT|unix.O_EXCL|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return pathError("create", "cover", err)
	}
	unix.Close(f)
	for i, m := range b.p.Mounts {
		if m.Op != plan.OpText {
			continue
		}
		if err := writeText(fd, textName(i), m.Source); err != nil {
			return err
		}
	}
	if err := setAttr(fd, false, unix.MOUNT_ATTR_RDONLY); err != nil {
		return err
	}
	at, err := openAt(b.host, attachPoint, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := attach(fd, at); err != nil {
		return err
	}
	b.cover = fd
	return nil
}

// textName is the file of an OpText among the covers; i is its place in Plan.Mounts.
func textName(i int) string { return "t" + strconv.Itoa(i) }

// writeText makes a file with mode 0444, whatever the umask.
func writeText(dir int, name, text string) error {
	fd, err := unix.Openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o400)
	if err != nil {
		return pathError("create", "text", err)
	}
	defer unix.Close(fd)
	if err := unix.Fchmod(fd, 0o444); err != nil {
		return pathError("chmod", "text", err)
	}
	return writeAll(fd, []byte(text))
}

func (b *builder) mount(i int, m plan.Mount) error {
	switch m.Op {
	case plan.OpHostRoot:
		tree, err := cloneTree(b.host)
		if err != nil {
			return err
		}
		if err := setAttr(tree, true, attrsRead); err != nil {
			return err
		}
		return b.attachRoot(tree)
	case plan.OpEmptyRoot:
		tree, err := newFS("tmpfs", attrsWrite, fsOption{"size", "16m"}, fsOption{"mode", "0755"})
		if err != nil {
			return err
		}
		return b.attachRoot(tree)
	case plan.OpBind, plan.OpDevice:
		return b.bind(m, m.Source)
	case plan.OpScratch:
		return b.bind(m, path.Join(b.p.Scratch.Path(), m.Source))
	case plan.OpOverlay:
		return b.overlay(m)
	case plan.OpTmpfs:
		options := []fsOption{{"mode", "0" + strconv.FormatUint(uint64(m.Mode), 8)}}
		if m.Size > 0 {
			options = append(options, fsOption{"size", strconv.FormatUint(m.Size, 10)})
		}
		return b.mountNew(m, "tmpfs", attrsWrite, options...)
	case plan.OpProc:
		return b.mountNew(m, "proc", attrsWrite|unix.MOUNT_ATTR_NOEXEC)
	case plan.OpSysfs:
		return b.mountNew(m, "sysfs", attrsRead|unix.MOUNT_ATTR_NOEXEC)
	case plan.OpDevpts:
		// The instance is private; its nodes are devices, so no nodev here.
		return b.mountNew(m, "devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
			fsOption{"newinstance", ""}, fsOption{"ptmxmode", "0666"}, fsOption{"mode", "0620"})
	case plan.OpMqueue:
		return b.mountNew(m, "mqueue", attrsWrite|unix.MOUNT_ATTR_NOEXEC)
	case plan.OpDir:
		fd, err := b.makeDirs(m.Target, m.Mode)
		if err == nil {
			unix.Close(fd)
		}
		return err
	case plan.OpFile, plan.OpSymlink:
		return b.makeNode(m)
	case plan.OpCover:
		name := "f"
		if m.Type == plan.TypeDir {
			name = "d"
		}
		return b.replace(m, name)
	case plan.OpText:
		return b.replace(m, textName(i))
	case plan.OpPin, plan.OpProtect:
		return b.pin(m)
	case plan.OpSeal:
		fd, err := openAt(b.root, m.Target, unix.O_PATH)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return setAttr(fd, false, unix.MOUNT_ATTR_RDONLY)
	}
	return fmt.Errorf("unknown mount operation %q", m.Op)
}

// attachRoot hangs the new root into the old tree, on top of the covers, which
// must not be part of a clone of the host's tree.
func (b *builder) attachRoot(tree int) error {
	if err := b.makeCover(); err != nil {
		return &plan.Error{Op: "cannot make the cover for hidden files", Err: err, Hint: hintPrivileged(err)}
	}
	at, err := openAt(b.host, attachPoint, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := attach(tree, at); err != nil {
		return err
	}
	b.root = tree
	return nil
}

// openScratch opens the scratch directory in this mount namespace: stage 1 has it
// open in another, from where nothing can be mounted. It has to be the same directory; who
// can rename its root could have put another there.
func (b *builder) openScratch(made int) error {
	want, err := fstat(made)
	if err != nil {
		return err
	}
	if b.scratch, err = openAt(b.host, b.p.Scratch.Path(), unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW); err != nil {
		return err
	}
	got, err := fstat(b.scratch)
	if err == nil && (got.Dev != want.Dev || got.Ino != want.Ino) {
		err = errors.New("another directory is there than wall has made")
	}
	return err
}

// open opens a path of the host.
func (b *builder) open(name string) (int, error) {
	if below, ok := strings.CutPrefix(name, b.p.Scratch.Path()+"/"); ok && b.scratch >= 0 {
		return openAt(b.scratch, below, unix.O_PATH|unix.O_NOFOLLOW)
	}
	return openAt(b.host, name, unix.O_PATH|unix.O_NOFOLLOW)
}

// bind mounts a host path. The source is opened without following links and
// cloned from that very descriptor, so what was checked is what is mounted.
func (b *builder) bind(m plan.Mount, source string) error {
	src, err := b.open(source)
	if err != nil {
		return err
	}
	defer unix.Close(src)
	st, err := fstat(src)
	if err != nil {
		return err
	}
	dir := m.Op == plan.OpScratch || m.Type == plan.TypeDir
	switch mode := st.Mode & unix.S_IFMT; {
	case m.Op == plan.OpDevice && mode != unix.S_IFCHR,
		mode == unix.S_IFLNK,
		dir != (mode == unix.S_IFDIR):
		return fmt.Errorf("%s %w", source, errTypeChanged)
	}
	tree, err := cloneTree(src)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	attrs := uint64(attrsWrite)
	switch {
	case m.Op == plan.OpDevice:
		attrs = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	case m.Op == plan.OpBind && m.Access != plan.AccessWrite:
		attrs = attrsRead
	}
	if err := setAttr(tree, true, attrs); err != nil {
		return err
	}
	return b.attachTarget(m, tree)
}

func (b *builder) mountNew(m plan.Mount, fs string, attrs int, options ...fsOption) error {
	tree, err := newFS(fs, attrs, options...)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	return b.attachTarget(m, tree)
}

// attachTarget mounts tree at m.Target, making the mount point first when the
// plan says that it lies in a tree wall made.
func (b *builder) attachTarget(m plan.Mount, tree int) error {
	var at int
	var err error
	switch m.MakeAs {
	case plan.TypeDir:
		at, err = b.makeDirs(m.Target, 0o755)
	case plan.TypeFile:
		if err = b.makeNode(plan.Mount{Op: plan.OpFile, Target: m.Target}); err == nil {
			at, err = openAt(b.root, m.Target, unix.O_PATH|unix.O_NOFOLLOW)
		}
	default:
		at, err = openAt(b.root, m.Target, unix.O_PATH|unix.O_NOFOLLOW)
	}
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return attach(tree, at)
}

// openTarget opens what is at target inside, without following a link in the
// last place, and tells what it is.
func (b *builder) openTarget(target string) (int, unix.Stat_t, error) {
	at, err := openAt(b.root, target, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return -1, unix.Stat_t{}, err
	}
	st, err := fstat(at)
	if err != nil {
		unix.Close(at)
		return -1, unix.Stat_t{}, err
	}
	return at, st, nil
}

// replace mounts the entry name of the covers at the target, which must be of its type.
func (b *builder) replace(m plan.Mount, name string) error {
	at, st, err := b.openTarget(m.Target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if mode := st.Mode & unix.S_IFMT; (mode == unix.S_IFDIR) != (name == "d") || m.Op == plan.OpText && mode != unix.S_IFREG {
		return fmt.Errorf("%s %w", m.Target, errTypeChanged)
	}
	tree, err := unix.OpenTree(b.cover, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return os.NewSyscallError("open_tree", err)
	}
	defer unix.Close(tree)
	return attach(tree, at)
}

// pin mounts the target on itself: a mount point cannot be renamed, replaced or
// removed (EBUSY), whether it is a directory, a file or a symbolic link.
func (b *builder) pin(m plan.Mount) error {
	at, st, err := b.openTarget(m.Target)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	is := plan.TypeFile
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		is = plan.TypeDir
	case unix.S_IFLNK:
		is = plan.TypeSymlink
	}
	if is != m.Type {
		return fmt.Errorf("%s %w", m.Target, errTypeChanged)
	}
	tree, err := cloneTree(at)
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	if m.Op == plan.OpProtect {
		if err := setAttr(tree, true, unix.MOUNT_ATTR_RDONLY); err != nil {
			return err
		}
	}
	return attach(tree, at)
}

// makeDirs makes the directory target and its missing parents below the new
// root and gives a descriptor of it. The last one gets mode exactly.
func (b *builder) makeDirs(target string, mode uint32) (int, error) {
	if fd, err := openAt(b.root, target, unix.O_PATH|unix.O_DIRECTORY); !errors.Is(err, unix.ENOENT) {
		return fd, err // it exists already, or cannot be reached
	}
	parent, err := b.makeDirs(path.Dir(target), 0o755)
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	name := path.Base(target)
	if err := unix.Mkdirat(parent, name, 0o700); err != nil {
		return -1, pathError("mkdir", target, err)
	}
	// fchmodat, because mkdir is subject to the umask, which belongs to the command.
	if err := unix.Fchmodat(parent, name, mode, 0); err != nil {
		return -1, pathError("chmod", target, err)
	}
	return openAt(parent, name, unix.O_PATH|unix.O_DIRECTORY)
}

// makeNode makes an empty file or a symbolic link; one that exists already is
// left alone when it is the same.
func (b *builder) makeNode(m plan.Mount) error {
	parent, err := b.makeDirs(path.Dir(m.Target), 0o755)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	name := path.Base(m.Target)
	if m.Op == plan.OpFile {
		fd, err := unix.Openat(parent, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o644)
		if err == unix.EEXIST {
			return nil
		}
		if err != nil {
			return pathError("create", m.Target, err)
		}
		return os.NewSyscallError("close", unix.Close(fd))
	}
	err = unix.Symlinkat(m.Source, parent, name)
	if err == unix.EEXIST {
		var buf [unix.PathMax]byte
		n, rerr := unix.Readlinkat(parent, name, buf[:])
		if rerr == nil && string(buf[:n]) == m.Source {
			return nil
		}
	}
	return pathError("symlink", m.Target, err)
}

// pivot makes the new root the root, and detaches the old tree for good.
// pivot_root(".", ".") stacks the old root on the new one without a directory
// for it (pivot_root(2), NOTES); it never falls back to chroot(2).
func (b *builder) pivot() error {
	if b.root < 0 {
		return errors.New("the plan has no root")
	}
	if err := unix.Fchdir(b.root); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return os.NewSyscallError("pivot_root", err)
	}
	if err := unix.Fchdir(b.host); err != nil {
		return os.NewSyscallError("fchdir", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return os.NewSyscallError("umount2", err)
	}
	return os.NewSyscallError("chdir", unix.Chdir("/"))
}

// enterDir makes dir the working directory and checks that the kernel agrees:
// a directory outside the new root would show as "(unreachable)"
// (getcwd(2); runc CVE-2024-21626 kept such a one).
func enterDir(p *plan.Plan) error {
	op := "cannot enter the working directory " + p.Command.Dir
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &plan.Error{Op: op, Err: pathError("open", "/", err)}
	}
	defer unix.Close(fd)
	dir, err := openAt(fd, p.Command.Dir, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return &plan.Error{Op: op, Err: err, Hint: "make it visible inside with --ro or --rw, or choose another with --cwd"}
	}
	defer unix.Close(dir)
	if err := unix.Fchdir(dir); err != nil {
		return &plan.Error{Op: op, Err: os.NewSyscallError("fchdir", err)}
	}
	var buf [unix.PathMax]byte
	n, err := unix.Getcwd(buf[:])
	if err != nil {
		return &plan.Error{Op: op, Err: os.NewSyscallError("getcwd", err)}
	}
	if got := strings.TrimRight(string(buf[:n]), "\x00"); got != p.Command.Dir {
		return &plan.Error{Op: op, Err: fmt.Errorf("the kernel says it is %q", got)}
	}
	return nil
}
