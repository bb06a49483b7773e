package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// operations are the attacks, by name. Each gives a detail to show after "ok",
// or the error of the one system call that matters.
var operations map[string]func(args []string) (string, error)

// init only fills the table: operations refer to each other.
func init() {
	operations = map[string]func(args []string) (string, error){
		// Files.
		"open-read":  func(a []string) (string, error) { return "", openRead(a[0]) },
		"cat":        cat,
		"list":       listNames,
		"open-write": func(a []string) (string, error) { return "", openFlags(a[0], unix.O_WRONLY|unix.O_NONBLOCK, 0) },
		"open-rdwr":  func(a []string) (string, error) { return "", openFlags(a[0], unix.O_RDWR|unix.O_NONBLOCK, 0) },
		"open-path":  func(a []string) (string, error) { return "", openFlags(a[0], unix.O_PATH, 0) },
		"write":      func(a []string) (string, error) { return "", writeText(a[0], a[1], unix.O_WRONLY) },
		"append":     func(a []string) (string, error) { return "", writeText(a[0], a[1], unix.O_WRONLY|unix.O_APPEND) },
		"create": func(a []string) (string, error) {
			return "", openFlags(a[0], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		},
		"create-with": createWith,
		"tmpfile":     func(a []string) (string, error) { return "", openFlags(a[0], unix.O_WRONLY|unix.O_TMPFILE, 0o600) },
		"mkdir":       func(a []string) (string, error) { return "", unix.Mkdir(a[0], 0o700) },
		"rmdir":       func(a []string) (string, error) { return "", unix.Rmdir(a[0]) },
		"unlink":      func(a []string) (string, error) { return "", unix.Unlink(a[0]) },
		"rename":      func(a []string) (string, error) { return "", unix.Rename(a[0], a[1]) },
		"exchange": func(a []string) (string, error) {
			return "", unix.Renameat2(unix.AT_FDCWD, a[0], unix.AT_FDCWD, a[1], unix.RENAME_EXCHANGE)
		},
		"link":    func(a []string) (string, error) { return "", unix.Link(a[0], a[1]) },
		"link-fd": linkFD,
		"symlink": func(a []string) (string, error) { return "", unix.Symlink(a[0], a[1]) },
		"chmod": func(a []string) (string, error) {
			return "", unix.Chmod(a[0], 0o755)
		},
		"fchmod": func(a []string) (string, error) {
			return "", onFD(a[0], unix.O_RDONLY, func(fd int) error { return unix.Fchmod(fd, 0o755) })
		},
		"chmod-fd": func(a []string) (string, error) {
			return "", onFD(a[0], unix.O_PATH, func(fd int) error { return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o755) })
		},
		"chown": func(a []string) (string, error) { return "", unix.Lchown(a[0], os.Getuid(), os.Getgid()) },
		"utime": func(a []string) (string, error) {
			return "", unix.UtimesNanoAt(unix.AT_FDCWD, a[0], []unix.Timespec{{Sec: 1}, {Sec: 1}}, unix.AT_SYMLINK_NOFOLLOW)
		},
		"setxattr": func(a []string) (string, error) { return "", unix.Lsetxattr(a[0], "user.wall", []byte("x"), 0) },
		"truncate": func(a []string) (string, error) { return "", unix.Truncate(a[0], 0) },
		"mkfifo":   func(a []string) (string, error) { return "", unix.Mkfifo(a[0], 0o600) },
		"mknod-null": func(a []string) (string, error) {
			return "", unix.Mknod(a[0], unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
		},
		"mknod-disk": func(a []string) (string, error) {
			return "", unix.Mknod(a[0], unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0)))
		},
		"setflags":  setFlags,
		"bind-unix": bindUnix,
		"stat":      func(a []string) (string, error) { var st unix.Stat_t; return "", unix.Lstat(a[0], &st) },
		"readlink":  func(a []string) (string, error) { return os.Readlink(a[0]) },
		"chdir":     func(a []string) (string, error) { return "", unix.Chdir(a[0]) },
		"handle":    openByHandle,
		"reopen":    reopen,
		"fd-openat": fdOpenat,
		"fd-send": func(a []string) (string, error) {
			n := number(a[0])
			return "", unix.Sendto(n, []byte("x"), unix.MSG_NOSIGNAL, nil)
		},
		"fd-chmod": func(a []string) (string, error) { return "", unix.Fchmod(number(a[0]), 0o777) },
		"fd-utime": func(a []string) (string, error) { return "", futimens(number(a[0])) },
		"fd-chown": func(a []string) (string, error) { return "", unix.Fchown(number(a[0]), os.Getuid(), os.Getgid()) },
		"fd-xattr": func(a []string) (string, error) { return "", unix.Fsetxattr(number(a[0]), "user.wall", []byte("x"), 0) },
		"fd-link": func(a []string) (string, error) {
			return "", unix.Linkat(number(a[0]), "", unix.AT_FDCWD, a[1], unix.AT_EMPTY_PATH)
		},
		"exec":       execIt,
		"race-write": raceWrite,

		// Mounts.
		"mount-tmpfs": func(a []string) (string, error) { return "", unix.Mount("none", a[0], "tmpfs", 0, "") },
		"mount-bind":  func(a []string) (string, error) { return "", unix.Mount(a[0], a[1], "", unix.MS_BIND, "") },
		"remount-rw": func(a []string) (string, error) {
			return "", unix.Mount("none", a[0], "", unix.MS_REMOUNT|unix.MS_BIND, "")
		},
		"umount": func(a []string) (string, error) { return "", unix.Unmount(a[0], unix.MNT_DETACH) },
		"open-tree": func(a []string) (string, error) {
			_, err := unix.OpenTree(unix.AT_FDCWD, a[0], unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE)
			return "", err
		},
		"mount-setattr": func(a []string) (string, error) {
			return "", unix.MountSetattr(unix.AT_FDCWD, a[0], 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		},
		"move-mount": func(a []string) (string, error) {
			return "", unix.MoveMount(unix.AT_FDCWD, a[0], unix.AT_FDCWD, a[1], 0)
		},
		"fsopen":     func(a []string) (string, error) { _, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC); return "", err },
		"pivot-root": func(a []string) (string, error) { return "", unix.PivotRoot(a[0], a[0]) },
		"chroot":     func(a []string) (string, error) { return "", unix.Chroot(a[0]) },

		// Sockets and the network.
		"connect-unix":     func(a []string) (string, error) { return connectUnix(a[0], unix.SOCK_STREAM) },
		"connect-dgram":    func(a []string) (string, error) { return connectUnix(a[0], unix.SOCK_DGRAM) },
		"connect-abstract": func(a []string) (string, error) { return connectUnix("@"+a[0], unix.SOCK_STREAM) },
		"connect-tcp":      func(a []string) (string, error) { return dialTCP(a[0], a[1], 0) },
		"connect-mptcp":    func(a []string) (string, error) { return dialTCP(a[0], a[1], unix.IPPROTO_MPTCP) },
		"fastopen":         fastOpen,
		"ask-udp":          askUDP,
		"bind-tcp":         bindTCP,
		"get":              get,
		"reach":            reach,
		"talk":             talk,
		"say":              say,
		"send-udp":         sendUDP,
		"dns":              askDNS,
		"tls":              talkTLS,
		"halves":           halves,
		"flood":            flood,
		"short":            short,
		"loris":            loris,
		"names":            names,
		"bulk":             bulk,
		"socket": func(a []string) (string, error) {
			fd, err := unix.Socket(number(a[0]), number(a[1])|unix.SOCK_CLOEXEC, number(a[2]))
			if err == nil {
				unix.Close(fd)
			}
			return "", err
		},

		// Processes. PID is a number or "child": a process this one has started.
		"kill":         func(a []string) (string, error) { return "", unix.Kill(pid(a[0]), syscall.Signal(number(a[1]))) },
		"kill-group":   killGroup,
		"setpriority":  func(a []string) (string, error) { return "", unix.Setpriority(unix.PRIO_PROCESS, pid(a[0]), 19) },
		"renice-group": func(a []string) (string, error) { return "", unix.Setpriority(unix.PRIO_PGRP, 0, 19) },
		"tgkill":       func(a []string) (string, error) { n := pid(a[0]); return "", unix.Tgkill(n, n, 0) },
		"ptrace":       func(a []string) (string, error) { return "", unix.PtraceSeize(pid(a[0])) },
		"vm-readv":     func(a []string) (string, error) { return vmReadv(pid(a[0])) },
		"pidfd-getfd":  func(a []string) (string, error) { return pidfdGetfd(pid(a[0])) },
		"pidfd-signal": pidfdSignal,
		"prlimit": func(a []string) (string, error) {
			var l unix.Rlimit
			return "", unix.Prlimit(pid(a[0]), unix.RLIMIT_NOFILE, nil, &l)
		},
		"proc-open": func(a []string) (string, error) { return "", openRead(fmt.Sprintf("/proc/%d/%s", pid(a[0]), a[1])) },
		"proc-write": func(a []string) (string, error) {
			return "", openFlags(fmt.Sprintf("/proc/%d/%s", pid(a[0]), a[1]), unix.O_WRONLY, 0)
		},
		"proc-link": func(a []string) (string, error) {
			_, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", pid(a[0]), a[1]))
			return "", err
		},
		"proc-enter": func(a []string) (string, error) { return "", unix.Chdir(fmt.Sprintf("/proc/%d/%s", pid(a[0]), a[1])) },
		"find":       findProcess,
		"sched": func(a []string) (string, error) {
			var s unix.CPUSet
			s.Set(0)
			return "", unix.SchedSetaffinity(pid(a[0]), &s)
		},
		"setns": setns,

		// Namespaces and capabilities.
		"unshare": func(a []string) (string, error) {
			return "", forkSys(unix.SYS_UNSHARE, uintptr(number(a[0])), 0, 0, 0, 0, 0)
		},
		"clone": func(a []string) (string, error) { return "", forkClone(uintptr(number(a[0]))) },
		"clone-high": func(a []string) (string, error) {
			return "", forkClone(uintptr(number(a[0])) | 1<<40)
		},
		"clone3": func(a []string) (string, error) {
			args := &[11]uint64{0: uint64(number(a[0])), 4: uint64(unix.SIGCHLD)}
			return "", forkClone3(args, uintptr(unsafe.Pointer(args)))
		},
		"capset": capset,
		"cap-amb": func(a []string) (string, error) {
			return "", unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
		},
		"setuid": func(a []string) (string, error) {
			n := uintptr(number(a[0]))
			return "", forkSys(unix.SYS_SETUID, n, 0, 0, 0, 0, 0)
		},
		"setgid": func(a []string) (string, error) {
			n := uintptr(number(a[0]))
			return "", forkSys(unix.SYS_SETGID, n, 0, 0, 0, 0, 0)
		},
		"setgroups": func(a []string) (string, error) { return "", forkSys(unix.SYS_SETGROUPS, 0, 0, 0, 0, 0, 0) },
		"suid-run":  suidRun,
		"oom-score": func(a []string) (string, error) {
			return "", writeText("/proc/self/oom_score_adj", a[0], unix.O_WRONLY)
		},

		// Kernel surface. The arguments are chosen so that a call that gets past
		// the gate still changes nothing.
		"keyctl": func(a []string) (string, error) {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
			return "", err
		},
		"keyctl-read": func(a []string) (string, error) {
			buf := make([]byte, 64)
			n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, number(a[0]), buf, 0)
			if err != nil {
				return "", err
			}
			return string(buf[:min(n, len(buf))]), nil
		},
		"add-key": func(a []string) (string, error) {
			_, err := unix.AddKey("user", "wall-test", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
			return "", err
		},
		"request-key": func(a []string) (string, error) {
			_, err := unix.RequestKey("user", "wall-test-absent", "", 0)
			return "", err
		},
		"io-uring": func(a []string) (string, error) {
			params := make([]byte, 120)
			fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])), 0)
			if e != 0 {
				return "", e
			}
			unix.Close(int(fd))
			return "", nil
		},
		"bpf": func(a []string) (string, error) {
			// BPF_MAP_CREATE of an array of one element.
			attr := [16]uint32{2, 4, 4, 1}
			_, _, e := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
			return "", errnoOr(e)
		},
		"userfaultfd": func(a []string) (string, error) {
			_, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1 /* UFFD_USER_MODE_ONLY */, 0, 0)
			return "", errnoOr(e)
		},
		"perf": func(a []string) (string, error) {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
			attr.Size = uint32(unsafe.Sizeof(attr))
			_, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
			return "", err
		},
		"tiocsti":      func(a []string) (string, error) { return onTTY("inner-ioctl", fmt.Sprint(unix.TIOCSTI)) },
		"tiocsti-high": func(a []string) (string, error) { return onTTY("inner-ioctl", fmt.Sprint(uint64(unix.TIOCSTI)|1<<33)) },
		"tioclinux":    func(a []string) (string, error) { return onTTY("inner-ioctl", fmt.Sprint(unix.TIOCLINUX)) },
		"tioclinux-hi": func(a []string) (string, error) {
			return onTTY("inner-ioctl", fmt.Sprint(uint64(unix.TIOCLINUX)|1<<33))
		},
		"tiocgwinsz":   func(a []string) (string, error) { return onTTY("inner-ioctl", fmt.Sprint(unix.TIOCGWINSZ)) },
		"inner-ioctl":  innerIoctl,
		"personality":  func(a []string) (string, error) { return "", sys(unix.SYS_PERSONALITY, uintptr(number(a[0]))) },
		"int80":        tryInt80,
		"x32":          func(a []string) (string, error) { return "", sys(0x40000000 | 39 /* getpid */) },
		"init-module":  func(a []string) (string, error) { return "", sys(unix.SYS_INIT_MODULE, 0, 0, 0) },
		"finit-module": func(a []string) (string, error) { return "", sys(unix.SYS_FINIT_MODULE, ^uintptr(0), 0, 0) },
		"reboot":       func(a []string) (string, error) { return "", sys(unix.SYS_REBOOT, 1, 2, 3) },
		"kexec":        func(a []string) (string, error) { return "", sys(unix.SYS_KEXEC_LOAD, 0, 1<<20, 0, 0) },
		"swapon":       func(a []string) (string, error) { return "", sys(unix.SYS_SWAPON, 0, 0) },
		"acct":         func(a []string) (string, error) { return "", sysPath(unix.SYS_ACCT, "/nonexistent/acct") },
		"settimeofday": func(a []string) (string, error) { return "", sys(unix.SYS_SETTIMEOFDAY, 0, 0) },
		"sethostname":  setHostname,
		"quotactl":     func(a []string) (string, error) { return "", sys(unix.SYS_QUOTACTL, ^uintptr(0), 0, 0, 0) },
		"fanotify":     func(a []string) (string, error) { return "", sys(unix.SYS_FANOTIFY_INIT, unix.FAN_CLASS_CONTENT, 0) },
		"syslog":       func(a []string) (string, error) { return "", sys(unix.SYS_SYSLOG, 3, 0, 0) },
		"vhangup":      func(a []string) (string, error) { return "", sys(unix.SYS_VHANGUP) },
		"modify-ldt":   modifyLDT,
		"iopl":         ioPL,
		"memfd":        func(a []string) (string, error) { _, err := unix.MemfdCreate("x", 0); return "", err },
		"membarrier":   func(a []string) (string, error) { return "", sys(unix.SYS_MEMBARRIER, 0, 0) },
		"socketpair": func(a []string) (string, error) {
			_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			return "", err
		},
		"seccomp-undo":  func(a []string) (string, error) { return "", unix.Prctl(unix.PR_SET_SECCOMP, 0, 0, 0, 0) },
		"inotify":       func(a []string) (string, error) { _, err := unix.InotifyInit1(0); return "", err },
		"set-dumpable1": func(a []string) (string, error) { return "", unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) },

		// System V and POSIX IPC, by key and name.
		"shm-get": func(a []string) (string, error) { return "", sys(unix.SYS_SHMGET, uintptr(number(a[0])), 4096, 0) },
		"msg-get": func(a []string) (string, error) { return "", sys(unix.SYS_MSGGET, uintptr(number(a[0])), 0) },
		"sem-get": func(a []string) (string, error) { return "", sys(unix.SYS_SEMGET, uintptr(number(a[0])), 1, 0) },
		"mq-open": func(a []string) (string, error) { return "", mqOpen(a[0], unix.O_RDONLY) },
		"shm-make": func(a []string) (string, error) {
			return "", sys(unix.SYS_SHMGET, uintptr(number(a[0])), 4096, 0o1000|0o666)
		},
	}
}

func number(s string) int {
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		fatal("%v", err)
	}
	return int(n)
}

func errnoOr(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func sys(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, e := syscall.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	return errnoOr(e)
}

func sysPath(nr uintptr, path string) error {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	return sys(nr, uintptr(unsafe.Pointer(p)))
}

func openFlags(path string, flags int, mode uint32) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, mode)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// openRead opens path and, where that is possible without waiting, reads.
func openRead(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err = unix.Read(fd, make([]byte, 1)); err == unix.EISDIR {
		_, err = unix.ReadDirent(fd, make([]byte, 4096))
	}
	if err == unix.EAGAIN || err == unix.EIO { // a terminal; address 0 of a mem file
		err = nil
	}
	return err
}

func cat(a []string) (string, error) {
	data, err := os.ReadFile(a[0])
	return strings.TrimSpace(string(data)), err
}

func listNames(a []string) (string, error) {
	entries, err := os.ReadDir(a[0])
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	return strings.Join(names, ","), nil
}

func writeText(path, text string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}

func createWith(a []string) (string, error) {
	fd, err := unix.Open(a[0], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o700)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(a[1]))
	return "", err
}

func onFD(path string, flags int, f func(fd int) error) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return f(fd)
}

// linkFD gives an open file a new name through /proc/self/fd.
func linkFD(a []string) (string, error) {
	return "", onFD(a[0], unix.O_RDONLY, func(fd int) error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, a[1], unix.AT_SYMLINK_FOLLOW)
	})
}

// setFlags sets the nodump flag by ioctl on a descriptor open for reading only.
func setFlags(a []string) (string, error) {
	return "", onFD(a[0], unix.O_RDONLY, func(fd int) error {
		flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, int(flags|0x40 /* FS_NODUMP_FL */))
	})
}

func bindUnix(a []string) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return "", unix.Bind(fd, &unix.SockaddrUnix{Name: a[0]})
}

// openByHandle is the "shocker" attack: a file by its handle, without its name.
func openByHandle(a []string) (string, error) {
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, a[0], 0)
	if err != nil {
		return "", err
	}
	root, err := unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(root)
	if len(a) > 1 {
		if root, err = unix.Open(a[1], unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			return "", err
		}
	}
	_, err = unix.OpenByHandleAt(root, h, unix.O_RDONLY)
	return "", err
}

// reopen opens a descriptor of this process anew, with other access.
func reopen(a []string) (string, error) {
	flags := map[string]int{"r": unix.O_RDONLY, "w": unix.O_WRONLY, "rw": unix.O_RDWR, "a": unix.O_WRONLY | unix.O_APPEND, "t": unix.O_WRONLY | unix.O_TRUNC}[a[1]]
	return "", openFlags("/proc/self/fd/"+a[0], flags|unix.O_NONBLOCK, 0)
}

// fdOpenat opens a name relative to an inherited descriptor.
func fdOpenat(a []string) (string, error) {
	fd, err := unix.Openat(number(a[0]), a[1], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return "", err
}

func futimens(fd int) error {
	ts := [2]unix.Timespec{{Sec: 1}, {Sec: 1}}
	return sys(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&ts)), 0)
}

func execIt(a []string) (string, error) {
	out, err := exec.Command(a[0], a[1:]...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// raceWrite swaps a directory for a symbolic link, over and over, while it
// writes through that path: a write that lands behind the link is the escape.
func raceWrite(a []string) (string, error) {
	dir, target, name := a[0], a[1], a[2]
	stop := make(chan bool)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(dir, dir+".real")
			_ = os.Symlink(target, dir)
			_ = os.Remove(dir)
			_ = os.Rename(dir+".real", dir)
		}
	}()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if fd, err := unix.Open(dir+"/"+name, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600); err == nil {
			_, _ = unix.Write(fd, []byte("raced\n"))
			unix.Close(fd)
		}
	}
	close(stop)
	return "", nil
}

func connectUnix(name string, kind int) (string, error) {
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return "", unix.Connect(fd, &unix.SockaddrUnix{Name: name})
}

func sockaddr(ip, port string) (int, unix.Sockaddr) {
	if strings.Contains(ip, ":") {
		a := netip.MustParseAddr(ip)
		sa := &unix.SockaddrInet6{Port: number(port), Addr: a.As16()}
		if dev, err := net.InterfaceByName(a.Zone()); err == nil {
			sa.ZoneId = uint32(dev.Index)
		}
		return unix.AF_INET6, sa
	}
	sa := &unix.SockaddrInet4{Port: number(port)}
	for i, part := range strings.Split(ip, ".") {
		sa.Addr[i] = byte(number(part))
	}
	return unix.AF_INET, sa
}

// dialTCP connects within a second.
func dialTCP(ip, port string, proto int) (string, error) {
	family, sa := sockaddr(ip, port)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, sa)
	if err == unix.EINPROGRESS {
		return "", finishConnect(fd)
	}
	return "", err
}

func finishConnect(fd int) error {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(poll, 1000)
	if err != nil {
		return err
	}
	if n == 0 {
		return unix.ETIMEDOUT
	}
	e, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	return errnoOr(syscall.Errno(e))
}

// fastOpen connects by sendto, which connect(2) rules do not see.
func fastOpen(a []string) (string, error) {
	family, sa := sockaddr(a[0], a[1])
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	err = unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL, sa)
	if err == unix.EINPROGRESS {
		err = finishConnect(fd)
	}
	return "", err
}

// askUDP sends a datagram and waits for the echo.
func askUDP(a []string) (string, error) {
	family, sa := sockaddr(a[0], a[1])
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, sa); err != nil {
		return "", err
	}
	if _, err := unix.Write(fd, []byte("wall?")); err != nil {
		return "", err
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
	if err == nil && n == 0 {
		return "", unix.ETIMEDOUT
	}
	if err != nil {
		return "", err
	}
	_, err = unix.Read(fd, make([]byte, 16))
	return "", err
}

func bindTCP(a []string) (string, error) {
	family, sa := sockaddr(a[0], a[1])
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, sa); err != nil {
		return "", err
	}
	return "", unix.Listen(fd, 1)
}

// pid reads a process number; "child" starts a process to stand for one.
func pid(s string) int {
	if s != "child" {
		return number(s)
	}
	cmd := exec.Command("/proc/self/exe", "idle", "child")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		fatal("%v", err)
	}
	time.Sleep(20 * time.Millisecond)
	return cmd.Process.Pid
}

// killGroup sends a signal to every member of its own process group but itself.
func killGroup(a []string) (string, error) {
	sig := syscall.Signal(number(a[0]))
	signal.Ignore(sig)
	return "", unix.Kill(0, sig)
}

func vmReadv(pid int) (string, error) {
	buf := make([]byte, 8)
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	// Any mapped address will do: this program is at the same place in its child.
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&operations)), Len: 8}}
	_, err := unix.ProcessVMReadv(pid, local, remote, 0)
	return "", err
}

func pidfdGetfd(pid int) (string, error) {
	p, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(p)
	for n := 0; n < 32; n++ {
		var fd int
		if fd, err = unix.PidfdGetfd(p, n, 0); err == nil {
			unix.Close(fd)
			return "", nil
		}
		if err != unix.EBADF {
			return "", err
		}
	}
	return "", err
}

func pidfdSignal(a []string) (string, error) {
	p, err := unix.PidfdOpen(pid(a[0]), 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(p)
	return "", unix.PidfdSendSignal(p, 0, nil, 0)
}

// findProcess looks for a text in the argv of every process.
func findProcess(a []string) (string, error) {
	for _, dir := range list("/proc") {
		if _, err := strconv.Atoi(dir); err != nil || dir == strconv.Itoa(os.Getpid()) || dir == strconv.Itoa(os.Getppid()) {
			continue
		}
		if strings.Contains(slurp("/proc/"+dir+"/cmdline"), a[0]) {
			return "", nil
		}
	}
	return "", unix.ESRCH
}

// setns enters the namespace of a path such as /proc/1/ns/mnt, or of a pidfd.
func setns(a []string) (string, error) {
	if a[0] == "pidfd" {
		p, err := unix.PidfdOpen(pid(a[1]), 0)
		if err != nil {
			return "", err
		}
		defer unix.Close(p)
		return "", forkSys(unix.SYS_SETNS, uintptr(p), uintptr(number(a[2])), 0, 0, 0, 0)
	}
	fd, err := unix.Open(a[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	return "", forkSys(unix.SYS_SETNS, uintptr(fd), 0, 0, 0, 0, 0)
}

// capset asks for every capability.
func capset(a []string) (string, error) {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
	return "", unix.Capset(&hdr, &data[0])
}

// suidRun starts a set-user-id program that waits for input, and tells the
// effective uid it got when that is not this process's.
func suidRun(a []string) (string, error) {
	cmd := exec.Command(a[0], a[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	defer func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	me := strconv.Itoa(os.Geteuid())
	for i := 0; i < 300; i++ {
		uid := strings.Fields(statusOf(strconv.Itoa(cmd.Process.Pid))["Uid"])
		if len(uid) == 4 && uid[1] != me {
			return "", nil
		}
		time.Sleep(time.Millisecond)
	}
	return "", unix.EPERM
}

// onTTY runs an operation in a new session whose controlling terminal is a new
// pseudo-terminal on descriptor 0.
func onTTY(op ...string) (string, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return "", err
	}
	n, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		return "", err
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return "", err
	}
	defer slave.Close()
	cmd := exec.Command("/proc/self/exe", append([]string{"try"}, op...)...)
	cmd.Stdin = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	s := strings.TrimSpace(string(out))
	if s == "ok" {
		return "", nil
	}
	return "", errName(s)
}

// errName gives the errno of a name that an inner probe printed.
func errName(s string) error {
	for n := syscall.Errno(1); n < 200; n++ {
		if unix.ErrnoName(n) == s {
			return n
		}
	}
	return errText(s)
}

// innerIoctl makes an ioctl with the whole 64 bits of the request.
func innerIoctl(a []string) (string, error) {
	req, err := strconv.ParseUint(a[0], 10, 64)
	if err != nil {
		return "", err
	}
	buf := [64]byte{0: 'x'}
	_, _, e := unix.Syscall(unix.SYS_IOCTL, 0, uintptr(req), uintptr(unsafe.Pointer(&buf[0])))
	return "", errnoOr(e)
}

// tryInt80 asks for getpid by the 32-bit entry.
func tryInt80(a []string) (string, error) {
	if !haveInt80 {
		return "", unix.ENOSYS
	}
	const getpid32 = 20
	if r := int(int80(getpid32, 0)); r < 0 && r > -4096 {
		return "", syscall.Errno(-r)
	} else if r != os.Getpid() {
		return "", errText("int 0x80 gave something else")
	}
	return "", nil
}

func setHostname(a []string) (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return "", unix.Sethostname([]byte(name))
}

func mqOpen(name string, flags int) error {
	p, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	_, _, e := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(p)), uintptr(flags), 0o600, 0, 0, 0)
	return errnoOr(e)
}
