package nsexec

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// selfTest tries the forbidden things that the plan lists, on the thread the
// command is about to be forked from, under every wall. A success is an error:
// a box that does not hold is not used.
func selfTest(p *plan.Plan, launcher []uint64, lowers []lowerLayer) error {
	for _, c := range p.Checks {
		if err := check(p, c, launcher, lowers); err != nil {
			return &plan.Error{
				Op:     fmt.Sprintf("self-test %s %s", c.Op, c.Path),
				Origin: c.Origin,
				Err:    err,
				Hint:   "the box does not hold on this host, so the command was not started; please report this with the output of `wall doctor`",
			}
		}
	}
	return nil
}

func check(p *plan.Plan, c plan.Check, launcher []uint64, lowers []lowerLayer) error {
	switch c.Op {
	case plan.CheckUnreadable:
		return checkUnreadable(c.Path)
	case plan.CheckUnwritable:
		return checkUnwritable(c.Path, p.Scratch.ID)
	case plan.CheckLayer:
		return checkLayer(c.Path, p.Scratch.ID, lowers)
	case plan.CheckNoCaps:
		return checkNoCaps()
	case plan.CheckNoNewPrivs:
		if v, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || v != 1 {
			return fmt.Errorf("no_new_privs reads %d (%v)", v, err)
		}
		return nil
	case plan.CheckSeccomp:
		return checkSeccomp(strings.HasSuffix(p.Seccomp.Profile, "-nested"))
	case plan.CheckSpace:
		return checkSpace(plan.SpaceKind(strings.TrimPrefix(c.Path, "/")), launcher)
	case plan.CheckNoRoute:
		return checkNoRoute(p)
	case plan.CheckNoSignal:
		return checkAlone()
	case plan.CheckNoMount:
		return checkNoMount()
	}
	return fmt.Errorf("unknown self-test %q", c.Op)
}

// checkUnreadable passes when the path cannot be opened, or is an empty directory.
func checkUnreadable(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errors.New("it can be opened for reading")
	}
	buf := make([]byte, 4096)
	n, err := unix.ReadDirent(fd, buf)
	if err != nil {
		return nil
	}
	if _, count, _ := unix.ParseDirent(buf[:n], 1, nil); count > 0 {
		return errors.New("it can be listed")
	}
	return nil
}

// checkUnwritable passes when the file cannot be opened for writing, nothing can be made
// in the directory, and an absent name cannot be made.
func checkUnwritable(name, id string) error {
	var st unix.Stat_t
	err := unix.Lstat(name, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil
		}
		unix.Close(fd)
		unix.Unlink(name)
		return errors.New("it can be created")
	case err != nil:
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		probe := path.Join(name, ".wall-self-test-"+id)
		if err := unix.Mkdir(probe, 0o700); err != nil {
			return nil
		}
		unix.Rmdir(probe)
		return errors.New("a directory can be made in it")
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG {
		fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil
		}
		unix.Close(fd)
		return errors.New("it can be opened for writing")
	}
	// A symbolic link or special file: it must not be removable. Renaming it
	// onto itself changes nothing where it succeeds (rename(2)), so the
	// read-only mount is what is asked for.
	var fs unix.Statfs_t
	if err := unix.Statfs(name, &fs); err == nil && st.Mode&unix.S_IFMT != unix.S_IFLNK && fs.Flags&unix.ST_RDONLY == 0 {
		return errors.New("it lies on a writable mount")
	}
	return nil
}

// checkNoCaps reads the sets back: all five of this thread, and the
// effective, permitted and inheritable ones of every other thread of pid 1
// (the ambient set is a subset of these). Then it tries to get one back.
func checkNoCaps() error {
	for c := uintptr(0); ; c++ {
		v, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && c > 0 {
			break // beyond the last capability of this kernel
		}
		if err != nil || v != 0 {
			return fmt.Errorf("capability %d is in the bounding set (%v)", c, err)
		}
		if v, err := unix.PrctlRetInt(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_IS_SET, c, 0, 0); err != nil || v != 0 {
			return fmt.Errorf("capability %d is in the ambient set (%v)", c, err)
		}
	}
	dir, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return pathError("open", "/proc/self/task", err)
	}
	defer unix.Close(dir)
	tids, err := listNumbers(dir)
	if err != nil {
		return err
	}
	if len(tids) == 0 {
		return errors.New("no thread is visible in /proc/self/task")
	}
	for _, tid := range tids {
		h := capHeader{version: unix.LINUX_CAPABILITY_VERSION_3, pid: int32(tid)}
		var d [2]capData
		_, _, errno := unix.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&d[0])), 0)
		if errno == unix.ESRCH {
			continue // the thread has ended
		}
		if errno != 0 {
			return os.NewSyscallError("capget", errno)
		}
		if d != [2]capData{} {
			return fmt.Errorf("a thread of pid 1 holds capabilities: %+v", d)
		}
	}
	if regainCaps() == nil {
		return errors.New("a capability could be regained")
	}
	return nil
}

// listNumbers gives the numeric names in an open directory of procfs.
func listNumbers(dir int) ([]int, error) {
	var out []int
	buf := make([]byte, 8<<10)
	for {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil {
			return nil, os.NewSyscallError("getdents64", err)
		}
		if n == 0 {
			return out, nil
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if v, err := strconv.Atoi(name); err == nil {
				out = append(out, v)
			}
		}
	}
}

func checkSeccomp(nested bool) error {
	if v, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || v != 2 {
		return fmt.Errorf("the mode reads %d (%v)", v, err)
	}
	if !nested {
		// The filter answers EPERM; without it a process with several
		// threads would get EINVAL, so any other answer is a hole.
		if _, _, errno := unix.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0); errno != unix.EPERM {
			return fmt.Errorf("unshare(CLONE_NEWUSER) answers %q", errno)
		}
	}
	const keyctlGetKeyringID = 0 // KEYCTL_GET_KEYRING_ID of linux/keyctl.h
	if _, _, errno := unix.RawSyscall(unix.SYS_KEYCTL, keyctlGetKeyringID, ^uintptr(2), 0); errno != unix.EPERM {
		return fmt.Errorf("keyctl answers %q", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_BPF, 0, 0, 0); errno != unix.EPERM {
		return fmt.Errorf("bpf answers %q", errno)
	}
	return nil
}

// nsFile is the name of a namespace in /proc/PID/ns (namespaces(7)).
func nsFile(k plan.SpaceKind) string {
	if k == plan.SpaceMount {
		return "mnt"
	}
	return string(k)
}

// spaceInode identifies a namespace of the calling process.
func spaceInode(k plan.SpaceKind) (uint64, error) {
	var st unix.Stat_t
	name := "/proc/self/ns/" + nsFile(k)
	if err := unix.Stat(name, &st); err != nil {
		return 0, pathError("stat", name, err)
	}
	return st.Ino, nil
}

func spaceInodes() ([]uint64, error) {
	inodes := make([]uint64, len(spaceKinds))
	for i, k := range spaceKinds {
		n, err := spaceInode(k)
		if errors.Is(err, unix.ENOENT) {
			continue // this kernel has no such namespace
		}
		if err != nil {
			return nil, err
		}
		inodes[i] = n
	}
	return inodes, nil
}

func checkSpace(k plan.SpaceKind, launcher []uint64) error {
	for i, s := range spaceKinds {
		if s != k {
			continue
		}
		n, err := spaceInode(k)
		if err != nil {
			return err
		}
		if launcher[i] == 0 || n == launcher[i] {
			return fmt.Errorf("the %s namespace is the launcher's", k)
		}
		return nil
	}
	return fmt.Errorf("unknown namespace %q", k)
}

// checkNoRoute passes when the only network interface is lo, nothing that is sent
// to another host gets anywhere, and nothing of that can be changed.
func checkNoRoute(p *plan.Plan) error {
	text, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return err
	}
	names := interfaces(text)
	if len(names) != 1 || names[0] != "lo" {
		return fmt.Errorf("network interfaces %q, want only lo", names)
	}
	for _, f := range []family{ipv4, ipv6} {
		if err := checkNoPacket(f); err != nil {
			return err
		}
		// With a redirection a connection is made, and stage 1 refuses it; that it arrives
		// there, and nowhere else, was tried before stage 1 served it.
		if p.Network.Method != plan.NetRedirect {
			if err := checkNoConnection(f); err != nil {
				return err
			}
		}
		if err := netlink(unix.NETLINK_ROUTE, localRoutes(f, 1)); !refused(err) {
			return fmt.Errorf("adding a route answers %q", fmt.Sprint(err))
		}
	}
	// What the kernel says first, whether there are such rules or not.
	if err := netlink(unix.NETLINK_NETFILTER, removeRuleset(families(false))); !refused(err) {
		return fmt.Errorf("removing the rules of nftables answers %q", fmt.Sprint(err))
	}
	return nil
}

// refused reports whether a request was, rather than being without effect.
func refused(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) ||
		errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) // no such socket, by the kernel or a filter
}

// checkNoPacket passes when a packet to another host is refused when it is sent.
func checkNoPacket(f family) error {
	fd, err := unix.Socket(int(f.number), unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, udp)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	if unix.Sendto(fd, []byte{0}, unix.MSG_DONTWAIT, sockaddr(f.nowhere)) == nil {
		return fmt.Errorf("a packet could be sent to %s", f.nowhere)
	}
	return nil
}

// checkNoConnection passes when a connection to another host fails at once.
func checkNoConnection(f family) error {
	fd, err := unix.Socket(int(f.number), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, tcp)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sockaddr(f.nowhere)); err == nil || errors.Is(err, unix.EINPROGRESS) {
		return fmt.Errorf("a connection to %s is not refused", f.nowhere)
	}
	return nil
}

// interfaces gives the names in the text of /proc/net/dev (proc_pid_net(5)).
func interfaces(text []byte) []string {
	var names []string
	for line := range bytes.Lines(text) {
		if name, _, ok := bytes.Cut(line, []byte(":")); ok {
			names = append(names, string(bytes.TrimSpace(name)))
		}
	}
	return names
}

// checkAlone passes when /proc shows no process but pid 1.
func checkAlone() error {
	dir, err := unix.Open("/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return pathError("open", "/proc", err)
	}
	defer unix.Close(dir)
	pids, err := listNumbers(dir)
	if err != nil {
		return err
	}
	if len(pids) != 1 || pids[0] != 1 {
		return fmt.Errorf("processes %v are visible, want only 1", pids)
	}
	return nil
}

// checkNoMount passes when the mount table can neither be changed nor undone.
func checkNoMount() error {
	if err := unix.Mount("", "/proc", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err == nil {
		return errors.New("a mount can be changed")
	}
	if err := unix.Unmount("/proc", unix.MNT_DETACH); err == nil {
		return errors.New("a mount can be undone")
	}
	return nil
}
