package main

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// without executes a command behind a filter that answers as a kernel does
// that lacks a facility. The filter is inherited and cannot be taken off; it
// needs no_new_privs, which hinders nothing that wall does.
func without(args []string) {
	type call struct {
		nr    int
		arg   int    // -1: whatever the arguments
		mask  uint32 // of the low half of the argument
		value uint32 // what the masked bits must be
		errno syscall.Errno
	}
	const always = -1
	calls := map[string][]call{
		"userns": {
			{unix.SYS_CLONE, 0, unix.CLONE_NEWUSER, unix.CLONE_NEWUSER, unix.EPERM},
			{unix.SYS_UNSHARE, 0, unix.CLONE_NEWUSER, unix.CLONE_NEWUSER, unix.EPERM},
			{unix.SYS_CLONE3, always, 0, 0, unix.ENOSYS},
		},
		"mountapi": {
			{unix.SYS_OPEN_TREE, always, 0, 0, unix.ENOSYS},
			{unix.SYS_MOVE_MOUNT, always, 0, 0, unix.ENOSYS},
			{unix.SYS_MOUNT_SETATTR, always, 0, 0, unix.ENOSYS},
		},
		"landlock": {
			{unix.SYS_LANDLOCK_CREATE_RULESET, always, 0, 0, unix.ENOSYS},
			{unix.SYS_LANDLOCK_ADD_RULE, always, 0, 0, unix.ENOSYS},
			{unix.SYS_LANDLOCK_RESTRICT_SELF, always, 0, 0, unix.ENOSYS},
		},
		"nftables": {
			{unix.SYS_SOCKET, 2, ^uint32(0), unix.NETLINK_NETFILTER, unix.EPROTONOSUPPORT}, // no other family has this protocol
		},
		"seccomp": {
			{unix.SYS_SECCOMP, always, 0, 0, unix.ENOSYS},
			{unix.SYS_PRCTL, 0, ^uint32(0), unix.PR_SET_SECCOMP, unix.EINVAL},
		},
	}[args[0]]
	if calls == nil {
		fatal("without: unknown facility %q", args[0])
	}
	// struct seccomp_data: nr at 0, arguments of 8 bytes from 16, see seccomp(2).
	var program []bpf.Instruction
	for _, c := range calls {
		refuse := bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(c.errno)}
		program = append(program, bpf.LoadAbsolute{Off: 0, Size: 4})
		if c.arg == always {
			program = append(program, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(c.nr), SkipTrue: 1}, refuse)
			continue
		}
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(c.nr), SkipTrue: 4},
			bpf.LoadAbsolute{Off: uint32(16 + 8*c.arg), Size: 4}, // little-endian: the low half comes first
			bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask},
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: c.value, SkipTrue: 1},
			refuse)
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		fatal("%v", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // the filter is this thread's, and so is the exec
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fatal("%v", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		fatal("%v", err)
	}
	fatal("%s: %v", args[1], syscall.Exec(args[1], args[1:], os.Environ()))
}
