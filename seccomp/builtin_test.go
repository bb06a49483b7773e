//go:build linux

package seccomp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

var arches = []string{"amd64", "arm64"}

// newVM loads p into the BPF machine of x/net, which is not ours.
func newVM(t testing.TB, p Program) *bpf.VM {
	t.Helper()
	var raw []bpf.RawInstruction
	for _, in := range p {
		raw = append(raw, bpf.RawInstruction{Op: in.Code, Jt: in.Jt, Jf: in.Jf, K: in.K})
	}
	ins, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("x/net/bpf does not know some instruction")
	}
	vm, err := bpf.NewVM(ins)
	if err != nil {
		t.Fatal(err)
	}
	return vm
}

// runVM runs one call. The machine loads words big-endian, so each 32-bit word
// is stored that way, at the place a little-endian kernel has it.
func runVM(t testing.TB, vm *bpf.VM, nr, arch uint32, args [6]uint64) uint32 {
	t.Helper()
	var data [dataSize]byte
	binary.BigEndian.PutUint32(data[offNr:], nr)
	binary.BigEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offArgs+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[offArgs+8*i+4:], uint32(a>>32))
	}
	got, err := vm.Run(data[:])
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}

func mustBuiltin(t testing.TB, name, goarch string) Program {
	t.Helper()
	p, err := Builtin(name, goarch)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustAudit(t testing.TB, goarch string) uint32 {
	t.Helper()
	a, ok := AuditArch(goarch)
	if !ok {
		t.Fatal("no audit architecture for " + goarch)
	}
	return a
}

// mustRules reads one rule file.
func mustRules(t testing.TB, name string) *specs.LinuxSeccomp {
	t.Helper()
	b, err := files.ReadFile("data/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// naive reads rule files directly, by name: what they mean for one call. It
// shares nothing with the compiler.
func naive(files []*specs.LinuxSeccomp, name string, args [6]uint64) uint32 {
	for _, f := range files {
	rules:
		for _, r := range f.Syscalls {
			named := false
			for _, n := range r.Names {
				named = named || n == name
			}
			if !named {
				continue
			}
			for _, a := range r.Args {
				v, ok := args[a.Index], false
				switch a.Op {
				case "SCMP_CMP_EQ":
					ok = v == a.Value
				case "SCMP_CMP_NE":
					ok = v != a.Value
				case "SCMP_CMP_LT":
					ok = v < a.Value
				case "SCMP_CMP_LE":
					ok = v <= a.Value
				case "SCMP_CMP_GT":
					ok = v > a.Value
				case "SCMP_CMP_GE":
					ok = v >= a.Value
				case "SCMP_CMP_MASKED_EQ":
					ok = v&a.Value == a.ValueTwo
				}
				if !ok {
					continue rules
				}
			}
			return naiveAction(r.Action, r.ErrnoRet)
		}
	}
	last := files[len(files)-1]
	return naiveAction(last.DefaultAction, last.DefaultErrnoRet)
}

func naiveAction(a specs.LinuxSeccompAction, errno *uint) uint32 {
	switch a {
	case "SCMP_ACT_ALLOW":
		return unix.SECCOMP_RET_ALLOW
	case "SCMP_ACT_LOG":
		return unix.SECCOMP_RET_LOG
	case "SCMP_ACT_TRAP":
		return unix.SECCOMP_RET_TRAP
	case "SCMP_ACT_KILL", "SCMP_ACT_KILL_THREAD":
		return unix.SECCOMP_RET_KILL_THREAD
	case "SCMP_ACT_KILL_PROCESS":
		return unix.SECCOMP_RET_KILL_PROCESS
	}
	if errno == nil {
		return unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	}
	return unix.SECCOMP_RET_ERRNO | uint32(*errno)
}

const (
	allow        = uint32(unix.SECCOMP_RET_ALLOW)
	kill         = uint32(unix.SECCOMP_RET_KILL_PROCESS)
	eperm        = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
	enosys       = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
	noProtocol   = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPROTONOSUPPORT)
	noFamily     = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EAFNOSUPPORT)
	noOperation  = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EOPNOTSUPP)
	garbage      = uint64(0xdeadbeef) << 32 // what may stand in the half of a register that the kernel ignores
	highBits     = garbage | 0xbeef0000     // the same for a mode, of 16 bits
	atCWD        = uint64(0xffffff9c)       // AT_FDCWD as an int in a register
	oCreating    = 0o100 | 0o20000000       // O_CREAT, __O_TMPFILE: there is a mode
	minusOneInt  = uint64(0xffffffff)
	minusOneLong = ^uint64(0)
)

// cells is what the filters promise, written down by hand: one call, and the
// answer of the filters default, strict, default-nested and strict-nested.
var cells = []struct {
	name string
	args [6]uint64
	want [4]uint32
}{
	// Function: what programs need.
	{"read", [6]uint64{}, all(allow)},
	{"execve", [6]uint64{}, all(allow)},
	{"memfd_create", [6]uint64{}, all(allow)},
	{"membarrier", [6]uint64{}, all(allow)},
	{"rseq", [6]uint64{}, all(allow)},
	{"landlock_create_ruleset", [6]uint64{}, all(allow)},
	{"landlock_add_rule", [6]uint64{}, all(allow)},
	{"landlock_restrict_self", [6]uint64{}, all(allow)},
	{"seccomp", [6]uint64{1}, all(allow)},
	{"prctl", [6]uint64{22}, all(allow)},
	{"sched_setaffinity", [6]uint64{}, all(allow)},
	{"statx", [6]uint64{}, all(allow)},
	{"close_range", [6]uint64{}, all(allow)},
	{"faccessat2", [6]uint64{}, all(allow)},
	{"epoll_pwait2", [6]uint64{}, all(allow)},
	{"futex_waitv", [6]uint64{}, all(allow)},
	{"futex_wait", [6]uint64{}, all(allow)},
	{"map_shadow_stack", [6]uint64{}, all(allow)},
	{"mseal", [6]uint64{}, all(allow)},
	{"cachestat", [6]uint64{}, all(allow)},
	{"fchmodat2", [6]uint64{}, all(allow)},
	{"setxattrat", [6]uint64{}, all(allow)},
	{"shmget", [6]uint64{}, all(allow)},
	{"semget", [6]uint64{}, all(allow)},
	{"msgget", [6]uint64{}, all(allow)},
	{"mknodat", [6]uint64{}, all(allow)}, // mkfifo
	{"mknodat", [6]uint64{atCWD, 0, unix.S_IFIFO | 0o666}, all(allow)},
	{"mkdir", [6]uint64{0, 0o6755}, all(allow)}, // the kernel takes no set-id bits here
	{"mkdirat", [6]uint64{atCWD, 0, 0o6755}, all(allow)},
	{"pidfd_open", [6]uint64{}, all(allow)},
	{"arch_prctl", [6]uint64{}, all(allow)},
	// Looking into other processes: default only.
	{"ptrace", [6]uint64{}, strictOnly(eperm)},
	{"process_vm_readv", [6]uint64{}, strictOnly(eperm)},
	{"process_vm_writev", [6]uint64{}, strictOnly(eperm)},
	{"kcmp", [6]uint64{}, strictOnly(eperm)},
	{"pidfd_getfd", [6]uint64{}, strictOnly(eperm)},
	{"modify_ldt", [6]uint64{}, strictOnly(eperm)},
	{"io_setup", [6]uint64{}, strictOnly(eperm)},
	{"name_to_handle_at", [6]uint64{}, strictOnly(eperm)},
	// Kernel surface.
	{"keyctl", [6]uint64{}, all(eperm)},
	{"add_key", [6]uint64{}, all(eperm)},
	{"request_key", [6]uint64{}, all(eperm)},
	{"io_uring_setup", [6]uint64{}, all(eperm)},
	{"io_uring_enter", [6]uint64{}, all(eperm)},
	{"io_uring_register", [6]uint64{}, all(eperm)},
	{"bpf", [6]uint64{}, all(eperm)},
	{"userfaultfd", [6]uint64{}, all(eperm)},
	{"perf_event_open", [6]uint64{}, all(eperm)},
	{"open_by_handle_at", [6]uint64{}, all(eperm)},
	{"kexec_load", [6]uint64{}, all(eperm)},
	{"kexec_file_load", [6]uint64{}, all(eperm)},
	{"init_module", [6]uint64{}, all(eperm)},
	{"finit_module", [6]uint64{}, all(eperm)},
	{"delete_module", [6]uint64{}, all(eperm)},
	{"reboot", [6]uint64{}, all(eperm)},
	{"swapon", [6]uint64{}, all(eperm)},
	{"swapoff", [6]uint64{}, all(eperm)},
	{"acct", [6]uint64{}, all(eperm)},
	{"quotactl", [6]uint64{}, all(eperm)},
	{"quotactl_fd", [6]uint64{}, all(eperm)},
	{"iopl", [6]uint64{}, all(eperm)},
	{"ioperm", [6]uint64{}, all(eperm)},
	{"syslog", [6]uint64{}, all(eperm)},
	{"fanotify_init", [6]uint64{}, all(eperm)},
	{"lsm_set_self_attr", [6]uint64{}, all(eperm)},
	{"clone3", [6]uint64{}, all(enosys)},
	{"listns", [6]uint64{}, all(enosys)},
	// Mounts and namespaces: the nested filters only.
	{"mount", [6]uint64{}, nestedOnly(eperm)},
	{"umount2", [6]uint64{}, nestedOnly(eperm)},
	{"pivot_root", [6]uint64{}, nestedOnly(eperm)},
	{"open_tree", [6]uint64{}, nestedOnly(eperm)},
	{"open_tree_attr", [6]uint64{}, nestedOnly(eperm)},
	{"move_mount", [6]uint64{}, nestedOnly(eperm)},
	{"fsopen", [6]uint64{}, nestedOnly(eperm)},
	{"fsconfig", [6]uint64{}, nestedOnly(eperm)},
	{"fsmount", [6]uint64{}, nestedOnly(eperm)},
	{"fspick", [6]uint64{}, nestedOnly(eperm)},
	{"mount_setattr", [6]uint64{}, nestedOnly(eperm)},
	{"setns", [6]uint64{}, nestedOnly(eperm)},
	{"chroot", [6]uint64{}, nestedOnly(eperm)},
	{"sethostname", [6]uint64{}, nestedOnly(eperm)},
	{"setdomainname", [6]uint64{}, all(eperm)},
	{"clone", [6]uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SYSVSEM | unix.CLONE_SETTLS | unix.CLONE_PARENT_SETTID | unix.CLONE_CHILD_CLEARTID}, all(allow)},
	{"clone", [6]uint64{unix.CLONE_VFORK | unix.CLONE_VM | unix.CLONE_PIDFD | 17}, all(allow)},
	{"clone", [6]uint64{garbage | 17}, all(allow)}, // the kernel ignores the upper half too
	{"clone", [6]uint64{unix.CLONE_NEWUSER | 17}, nestedOnly(eperm)},
	{"clone", [6]uint64{unix.CLONE_NEWNS | 17}, nestedOnly(eperm)},
	{"clone", [6]uint64{unix.CLONE_NEWPID | 17}, nestedOnly(eperm)},
	{"clone", [6]uint64{unix.CLONE_NEWNET | 17}, nestedOnly(eperm)},
	{"clone", [6]uint64{unix.CLONE_NEWIPC | 17}, nestedOnly(eperm)},
	{"clone", [6]uint64{unix.CLONE_NEWUTS | 17}, nestedOnly(eperm)},
	{"clone", [6]uint64{unix.CLONE_NEWCGROUP | 17}, nestedOnly(eperm)},
	{"clone", [6]uint64{garbage | unix.CLONE_NEWUSER | 17}, nestedOnly(eperm)},
	{"unshare", [6]uint64{0}, all(allow)},
	{"unshare", [6]uint64{unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SYSVSEM}, all(allow)},
	{"unshare", [6]uint64{unix.CLONE_NEWUSER}, nestedOnly(eperm)},
	{"unshare", [6]uint64{unix.CLONE_NEWNS | unix.CLONE_FS}, nestedOnly(eperm)},
	{"unshare", [6]uint64{unix.CLONE_NEWTIME}, nestedOnly(eperm)},
	{"unshare", [6]uint64{0x00100000}, nestedOnly(eperm)}, // UNSHARE_EMPTY_MNTNS of newer kernels
	{"unshare", [6]uint64{1 << 40}, nestedOnly(eperm)},
	// Terminal: the kernel reads 32 bits of the request (CVE-2019-10063).
	{"ioctl", [6]uint64{0, unix.TIOCGWINSZ}, all(allow)},
	{"ioctl", [6]uint64{0, unix.TIOCSTI}, all(eperm)},
	{"ioctl", [6]uint64{0, garbage | unix.TIOCSTI}, all(eperm)},
	{"ioctl", [6]uint64{0, 1<<32 | unix.TIOCSTI}, all(eperm)},
	{"ioctl", [6]uint64{0, 0x541c}, all(eperm)}, // TIOCLINUX
	{"ioctl", [6]uint64{0, garbage | 0x541c}, all(eperm)},
	{"ioctl", [6]uint64{0, 0x5413}, all(allow)},
	{"ioctl", [6]uint64{0, 0x5411}, all(allow)},
	{"ioctl", [6]uint64{0, 0x541b}, all(allow)},
	{"ioctl", [6]uint64{0, 0x541d}, all(allow)},
	{"ioctl", [6]uint64{0, 0x15412}, all(allow)},
	{"ioctl", [6]uint64{0, 0x5423}, strictOnly(eperm)}, // TIOCSETD
	{"ioctl", [6]uint64{0, garbage | 0x5423}, strictOnly(eperm)},
	// Sockets.
	{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, all(allow)},
	{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC}, all(allow)},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC}, all(allow)},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_TCP}, all(allow)},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}, all(allow)},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, all(allow)},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, strictOnly(noProtocol)},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6}, strictOnly(noProtocol)},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE}, all(allow)},
	{"socket", [6]uint64{garbage | unix.AF_INET, garbage | unix.SOCK_STREAM, garbage}, all(allow)},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, all(noProtocol)},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_STREAM, unix.IPPROTO_MPTCP}, all(noProtocol)},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, garbage | unix.IPPROTO_MPTCP}, all(noProtocol)},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, all(noProtocol)},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM, 256}, all(noProtocol)}, // IPPROTO_SMC
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE}, all(noProtocol)},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_SEQPACKET}, all(noProtocol)},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_PACKET, 0x300}, all(noProtocol)}, // becomes AF_PACKET in the kernel
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, all(eperm)},
	{"socket", [6]uint64{unix.AF_INET6, unix.SOCK_RAW | unix.SOCK_CLOEXEC, unix.IPPROTO_RAW}, all(eperm)},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, all(noProtocol)},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, all(noProtocol)},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, all(noProtocol)},
	{"socket", [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, all(noFamily)},
	{"socket", [6]uint64{garbage | unix.AF_VSOCK, unix.SOCK_STREAM}, all(noFamily)},
	{"socket", [6]uint64{unix.AF_PACKET, unix.SOCK_RAW}, all(noFamily)},
	{"socket", [6]uint64{unix.AF_ALG, unix.SOCK_SEQPACKET}, all(noFamily)},
	{"socket", [6]uint64{unix.AF_BLUETOOTH, unix.SOCK_RAW}, all(noFamily)},
	{"socket", [6]uint64{unix.AF_TIPC, unix.SOCK_STREAM}, all(noFamily)},
	{"socket", [6]uint64{unix.AF_XDP, unix.SOCK_RAW}, all(noFamily)},
	{"socket", [6]uint64{unix.AF_UNSPEC}, all(noFamily)},
	{"socket", [6]uint64{1000}, all(noFamily)},
	{"socket", [6]uint64{minusOneLong, minusOneLong, minusOneLong}, all(noFamily)},
	{"socketpair", [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, all(allow)},
	{"socketpair", [6]uint64{unix.AF_TIPC, unix.SOCK_STREAM}, all(noFamily)},
	{"sendto", [6]uint64{3, 0, 0, unix.MSG_NOSIGNAL}, all(allow)},
	{"sendto", [6]uint64{3, 0, 0, unix.MSG_FASTOPEN | unix.MSG_NOSIGNAL}, all(noOperation)},
	{"sendmsg", [6]uint64{3, 0, unix.MSG_NOSIGNAL}, all(allow)},
	{"sendmsg", [6]uint64{3, 0, garbage | unix.MSG_FASTOPEN}, all(noOperation)},
	{"sendmmsg", [6]uint64{3, 0, unix.MSG_FASTOPEN, 0}, all(allow)}, // a count, not flags
	{"sendmmsg", [6]uint64{3, 0, 1, unix.MSG_FASTOPEN}, all(noOperation)},
	// Set-user-ID and set-group-ID files. The kernel reads 16 bits of a mode, 32 of
	// the flags, and no mode without O_CREAT or O_TMPFILE.
	{"chmod", [6]uint64{0, 0o755}, all(allow)},
	{"chmod", [6]uint64{0, 0o1777}, all(allow)}, // sticky
	{"chmod", [6]uint64{0, unix.S_IFREG | 0o644}, all(allow)},
	{"chmod", [6]uint64{0, highBits | 0o755}, all(allow)},
	{"chmod", [6]uint64{0, 0o4755}, all(eperm)},
	{"chmod", [6]uint64{0, 0o2755}, all(eperm)},
	{"chmod", [6]uint64{0, 0o6755}, all(eperm)},
	{"chmod", [6]uint64{0, 0o4000}, all(eperm)},
	{"chmod", [6]uint64{0, 0o2000}, all(eperm)},
	{"chmod", [6]uint64{0, unix.S_IFREG | 0o4755}, all(eperm)},
	{"chmod", [6]uint64{0, highBits | 0o4755}, all(eperm)},
	{"chmod", [6]uint64{minusOneLong, minusOneLong}, all(eperm)},
	{"chmod", [6]uint64{0o6000, 0o755, 0o6000}, all(allow)}, // only the mode counts
	{"fchmod", [6]uint64{3, 0o755}, all(allow)},
	{"fchmod", [6]uint64{3, highBits | 0o777}, all(allow)},
	{"fchmod", [6]uint64{3, 0o4755}, all(eperm)},
	{"fchmod", [6]uint64{3, garbage | 0o2755}, all(eperm)},
	{"fchmodat", [6]uint64{atCWD, 0, 0o755}, all(allow)},
	{"fchmodat", [6]uint64{atCWD, 0o6000, highBits | 0o755, 0o6000}, all(allow)},
	{"fchmodat", [6]uint64{atCWD, 0, 0o4755}, all(eperm)},
	{"fchmodat", [6]uint64{atCWD, 0, highBits | 0o2755}, all(eperm)},
	{"fchmodat2", [6]uint64{atCWD, 0, 0o755, unix.AT_SYMLINK_NOFOLLOW}, all(allow)},
	{"fchmodat2", [6]uint64{atCWD, 0, 0o4755, unix.AT_SYMLINK_NOFOLLOW}, all(eperm)},
	{"fchmodat2", [6]uint64{atCWD, 0, highBits | 0o2755}, all(eperm)},
	{"creat", [6]uint64{0, 0o644}, all(allow)},
	{"creat", [6]uint64{0, 0o4755}, all(eperm)},
	{"creat", [6]uint64{0, garbage | 0o2755}, all(eperm)},
	{"mknod", [6]uint64{0, unix.S_IFIFO | 0o600}, all(allow)},
	{"mknod", [6]uint64{0, unix.S_IFREG | 0o4755}, all(eperm)},
	{"mknod", [6]uint64{0, highBits | 0o2755}, all(eperm)},
	{"mknodat", [6]uint64{atCWD, 0, unix.S_IFREG | 0o4755}, all(eperm)},
	{"mknodat", [6]uint64{atCWD, 0, garbage | 0o2755}, all(eperm)},
	{"open", [6]uint64{0, unix.O_RDONLY, minusOneLong}, all(allow)},
	{"open", [6]uint64{0, garbage | unix.O_WRONLY | unix.O_TRUNC, 0o4755}, all(allow)},
	{"open", [6]uint64{0, unix.O_WRONLY | unix.O_CREAT, 0o644}, all(allow)},
	{"open", [6]uint64{0, unix.O_WRONLY | unix.O_CREAT, highBits | 0o755}, all(allow)},
	{"open", [6]uint64{0, unix.O_WRONLY | unix.O_CREAT, 0o4755}, all(eperm)},
	{"open", [6]uint64{0, unix.O_WRONLY | unix.O_CREAT, 0o2755}, all(eperm)},
	{"open", [6]uint64{0, garbage | unix.O_CREAT, garbage | 0o4755}, all(eperm)},
	{"open", [6]uint64{0, unix.O_RDWR | unix.O_TMPFILE, 0o600}, all(allow)},
	{"open", [6]uint64{0, unix.O_RDWR | unix.O_TMPFILE, 0o4755}, all(eperm)},
	{"openat", [6]uint64{atCWD, 0, unix.O_RDONLY | unix.O_CLOEXEC, minusOneLong}, all(allow)},
	{"openat", [6]uint64{atCWD, 0, unix.O_RDONLY | unix.O_DIRECTORY, 0o6755}, all(allow)},
	{"openat", [6]uint64{atCWD, unix.O_CREAT, garbage | unix.O_WRONLY, 0o4755}, all(allow)},
	{"openat", [6]uint64{atCWD, 0, ^uint64(oCreating), minusOneLong}, all(allow)},
	{"openat", [6]uint64{atCWD, 0o6000, unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL, 0o666}, all(allow)},
	{"openat", [6]uint64{atCWD, 0, unix.O_WRONLY | unix.O_CREAT, highBits | 0o755}, all(allow)},
	{"openat", [6]uint64{atCWD, 0, unix.O_WRONLY | unix.O_CREAT, 0o4755}, all(eperm)},
	{"openat", [6]uint64{atCWD, 0, unix.O_WRONLY | unix.O_CREAT, 0o2755}, all(eperm)},
	{"openat", [6]uint64{atCWD, 0, garbage | unix.O_CREAT, highBits | 0o4000}, all(eperm)},
	{"openat", [6]uint64{atCWD, 0, unix.O_RDWR | unix.O_TMPFILE, 0o644}, all(allow)},
	{"openat", [6]uint64{atCWD, 0, unix.O_RDWR | unix.O_TMPFILE, 0o4755}, all(eperm)},
	{"openat", [6]uint64{atCWD, 0, garbage | 0o20000000, garbage | 0o2755}, all(eperm)}, // __O_TMPFILE alone
	{"openat2", [6]uint64{}, all(enosys)},
	{"openat2", [6]uint64{atCWD, minusOneLong, minusOneLong, 24}, all(enosys)},
	// Personalities.
	{"personality", [6]uint64{0}, all(allow)},
	{"personality", [6]uint64{minusOneInt}, all(allow)},
	{"personality", [6]uint64{minusOneLong}, all(allow)},
	{"personality", [6]uint64{0x0040000}, strictOnly(eperm)}, // ADDR_NO_RANDOMIZE
	{"personality", [6]uint64{0x0020008}, strictOnly(eperm)},
	{"personality", [6]uint64{0x0400000}, all(eperm)}, // READ_IMPLIES_EXEC
	{"personality", [6]uint64{0x0440000}, all(eperm)},
	{"personality", [6]uint64{0x0100000}, all(eperm)}, // MMAP_PAGE_ZERO
}

func all(a uint32) [4]uint32        { return [4]uint32{a, a, a, a} }
func strictOnly(a uint32) [4]uint32 { return [4]uint32{allow, a, allow, a} }
func nestedOnly(a uint32) [4]uint32 { return [4]uint32{a, a, allow, allow} }

func TestBuiltinCells(t *testing.T) {
	for i, b := range builtins {
		for _, goarch := range arches {
			p := mustBuiltin(t, b.name, goarch)
			vm := newVM(t, p)
			arch := mustAudit(t, goarch)
			for _, c := range cells {
				nr, ok, known := number(c.name, goarch)
				if !known {
					t.Fatalf("unknown call %s", c.name)
				}
				if !ok {
					continue
				}
				if got := runVM(t, vm, nr, arch, c.args); got != c.want[i] {
					t.Errorf("%s %s: %s %#x gives %s, want %s", b.name, goarch, c.name, c.args, actionName(got), actionName(c.want[i]))
				}
			}
		}
	}
}

// TestBuiltinEveryCall compares every number, on argument values around all that
// the rules compare, with the rule files read by name.
func TestBuiltinEveryCall(t *testing.T) {
	for _, b := range builtins {
		for _, goarch := range arches {
			t.Run(b.name+"/"+goarch, func(t *testing.T) {
				p := mustBuiltin(t, b.name, goarch)
				vm := newVM(t, p)
				arch := mustAudit(t, goarch)
				var rules []*specs.LinuxSeccomp
				for _, f := range b.files {
					rules = append(rules, mustRules(t, f))
				}
				tab := newTable(func(n string) (uint32, bool) { nr, ok, _ := number(n, goarch); return nr, ok }, rules...)
				for nr := range uint32(1100) {
					name := SyscallName(nr, goarch)
					for _, args := range probes(tab.calls[nr], 5000) {
						want := enosys
						if name != "" {
							want = naive(rules, name, args)
						}
						got, err := Eval(p, nr, arch, args)
						if err != nil {
							t.Fatal(err)
						}
						if got != want {
							t.Fatalf("%s (%d) %#x gives %s, want %s", name, nr, args, actionName(got), actionName(want))
						}
						if v := runVM(t, vm, nr, arch, args); v != got {
							t.Fatalf("%s (%d) %#x: Eval %s, x/net/bpf %s", name, nr, args, actionName(got), actionName(v))
						}
					}
				}
				for _, nr := range []uint32{1 << 20, x32Bit - 1, ^uint32(0)} {
					if got := runVM(t, vm, nr, arch, [6]uint64{}); got != enosys {
						t.Errorf("number %#x gives %s, want ENOSYS", nr, actionName(got))
					}
				}
			})
		}
	}
}

func TestBuiltinForeignTables(t *testing.T) {
	all := map[string]uint32{
		"x86_64": unix.AUDIT_ARCH_X86_64, "i386": unix.AUDIT_ARCH_I386, "aarch64": unix.AUDIT_ARCH_AARCH64,
		"arm": unix.AUDIT_ARCH_ARM, "s390x": unix.AUDIT_ARCH_S390X, "zero": 0, "ones": ^uint32(0),
	}
	for _, b := range builtins {
		for _, goarch := range arches {
			vm := newVM(t, mustBuiltin(t, b.name, goarch))
			own := mustAudit(t, goarch)
			for name, arch := range all {
				if arch == own {
					continue
				}
				for nr := range uint32(600) {
					if got := runVM(t, vm, nr, arch, [6]uint64{}); got != kill {
						t.Fatalf("%s %s: call %d of %s gives %s, want a kill", b.name, goarch, nr, name, actionName(got))
					}
				}
			}
			for nr := range uint32(1100) {
				want := kill
				if goarch == "arm64" {
					want = enosys // arm64 has no x32
				}
				if got := runVM(t, vm, x32Bit|nr, own, [6]uint64{}); got != want {
					t.Fatalf("%s %s: x32 call %d gives %s, want %s", b.name, goarch, nr, actionName(got), actionName(want))
				}
			}
		}
	}
}

// TestDefaultNamesEveryCall makes a new call in x/sys a decision to take, not an
// accident: every call that either machine has is named in default.json.
func TestDefaultNamesEveryCall(t *testing.T) {
	named := make(map[string]bool)
	for _, r := range mustRules(t, "default").Syscalls {
		for _, n := range r.Names {
			named[n] = true
			if _, _, known := number(n, "amd64"); !known {
				t.Errorf("default.json names %q, which no machine has", n)
			}
		}
	}
	for _, c := range syscallNumbers {
		if !named[c.name] {
			t.Errorf("%s (amd64 %d, arm64 %d) is not in default.json", c.name, c.amd64, c.arm64)
		}
	}
}

// TestBuiltinKeepAlways: what always.json refuses, the filters without nesting
// refuse too; those with nesting except for what nested.json names.
func TestBuiltinKeepAlways(t *testing.T) {
	always := []*specs.LinuxSeccomp{mustRules(t, "always")}
	nested := make(map[string]bool)
	for _, r := range mustRules(t, "nested").Syscalls {
		for _, n := range r.Names {
			nested[n] = true
		}
	}
	tab := newTable(func(n string) (uint32, bool) { nr, ok, _ := number(n, "amd64"); return nr, ok }, always...)
	refused := 0
	for _, b := range builtins {
		p := mustBuiltin(t, b.name, "amd64")
		for nr := range tab.calls {
			name := SyscallName(nr, "amd64")
			if b.files[0] == "nested" && nested[name] {
				continue
			}
			for _, args := range probes(tab.calls[nr], 5000) {
				if naive(always, name, args) == allow {
					continue
				}
				refused++
				if got := eval(p, nr, unix.AUDIT_ARCH_X86_64, &args); got == allow {
					t.Fatalf("%s allows %s %#x, which is always refused", b.name, name, args)
				}
			}
		}
	}
	if refused < 1000 {
		t.Errorf("only %d refusals were compared", refused)
	}
}

// TestNumbers compares the table with x/sys's source for both machines, and so
// with a newer x/sys when that is taken.
func TestNumbers(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, goarch := range arches {
		file := filepath.Join(strings.TrimSpace(string(out)), "unix", "zsysnum_linux_"+goarch+".go")
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		ast.Inspect(f, func(node ast.Node) bool {
			v, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}
			name := strings.ToLower(strings.TrimPrefix(v.Names[0].Name, "SYS_"))
			if name == "arch_specific_syscall" {
				return true
			}
			want, err := strconv.ParseUint(v.Values[0].(*ast.BasicLit).Value, 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok, _ := number(name, goarch); !ok || got != uint32(want) {
				t.Errorf("%s on %s is %d (%t), want %d; run go generate ./seccomp", name, goarch, got, ok, want)
			}
			n++
			return true
		})
		have := 0
		for _, c := range syscallNumbers {
			if c.on(goarch) >= 0 {
				have++
			}
		}
		if n != have {
			t.Errorf("%s: x/sys has %d calls, the table %d", goarch, n, have)
		}
	}
	// Newer calls have one number everywhere; older and removed ones are sampled
	// from the constants of this machine.
	for _, c := range syscallNumbers {
		if (c.amd64 >= 424 || c.arm64 >= 424) && c.amd64 != c.arm64 {
			t.Errorf("%s is %d and %d", c.name, c.amd64, c.arm64)
		}
	}
	for name, want := range map[string]uint32{
		"mseal": unix.SYS_MSEAL, "open_tree_attr": unix.SYS_OPEN_TREE_ATTR, "clone3": unix.SYS_CLONE3,
		"io_uring_setup": unix.SYS_IO_URING_SETUP, "landlock_create_ruleset": unix.SYS_LANDLOCK_CREATE_RULESET,
	} {
		for _, goarch := range arches {
			if got, ok, _ := number(name, goarch); !ok || got != want {
				t.Errorf("%s on %s is %d, want %d", name, goarch, got, want)
			}
		}
	}
}

func TestBuiltinErrors(t *testing.T) {
	if _, err := Builtin("../default", "amd64"); err == nil || !strings.Contains(err.Error(), `"../default"`) {
		t.Errorf("unknown name: %v", err)
	}
	if _, err := Builtin("default", "riscv64"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("unknown architecture: %v", err)
	}
}

// TestRuleFilesAreTight finds leftovers: overlays share the default action, and
// every file says the same architectures.
func TestRuleFilesAreTight(t *testing.T) {
	for _, name := range []string{"default", "strict", "nested"} {
		s := mustRules(t, name)
		if naiveAction(s.DefaultAction, s.DefaultErrnoRet) != enosys {
			t.Errorf("%s.json: the default action is not ENOSYS", name)
		}
	}
	for _, name := range []string{"always", "default", "strict", "nested"} {
		s := mustRules(t, name)
		if fmt.Sprint(s.Architectures) != "[SCMP_ARCH_X86_64 SCMP_ARCH_AARCH64]" {
			t.Errorf("%s.json: architectures %v", name, s.Architectures)
		}
	}
	if mustRules(t, "always").DefaultAction != specs.ActAllow {
		t.Error("always.json must pass on what it does not refuse")
	}
}

func FuzzBuiltin(f *testing.F) {
	f.Add(uint8(0), uint32(16), uint64(0), uint64(1<<32|unix.TIOCSTI), uint64(0), uint64(0))
	f.Add(uint8(1), uint32(41), uint64(2), uint64(1), uint64(262), uint64(0))
	f.Add(uint8(2), uint32(56), uint64(unix.CLONE_NEWUSER), uint64(0), uint64(0), uint64(0))
	f.Add(uint8(7), uint32(0x40000010), uint64(0), uint64(unix.TIOCSTI), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, which uint8, nr uint32, a, b, c, d uint64) {
		bi := builtins[which%4]
		goarch := arches[which/4%2]
		var rules []*specs.LinuxSeccomp
		for _, f := range bi.files {
			rules = append(rules, mustRules(t, f))
		}
		args := [6]uint64{a, b, c, d}
		want := enosys
		if name := SyscallName(nr, goarch); name != "" {
			want = naive(rules, name, args)
		}
		if goarch == "amd64" && nr >= x32Bit && nr != ^uint32(0) {
			want = kill
		}
		p := mustBuiltin(t, bi.name, goarch)
		got, err := Eval(p, nr, mustAudit(t, goarch), args)
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Fatalf("%s %s: %d %#x gives %s, want %s", bi.name, goarch, nr, args, actionName(got), actionName(want))
		}
		if vm := runVM(t, newVM(t, p), nr, mustAudit(t, goarch), args); vm != got {
			t.Fatalf("Eval %s, x/net/bpf %s", actionName(got), actionName(vm))
		}
	})
}

func BenchmarkBuiltin(b *testing.B) {
	for b.Loop() {
		if _, err := Builtin("default", "amd64"); err != nil {
			b.Fatal(err)
		}
	}
}
