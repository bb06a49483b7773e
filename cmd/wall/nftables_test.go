package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutNftables runs a command for which the kernel has no nftables: a filter has
// socket(2) fail for that netlink protocol, as in a kernel without it.
func withoutNftables() {
	runtime.LockOSThread()
	if err := execWithoutNftables(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func execWithoutNftables(argv []string) error {
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	const load, equal, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	arg := func(i uint32) uint32 { return 16 + 8*i } // struct seccomp_data; the low half, little endian
	filter := []unix.SockFilter{
		{Code: load, K: 0},
		{Code: equal, K: unix.SYS_SOCKET, Jf: 5},
		{Code: load, K: arg(0)},
		{Code: equal, K: unix.AF_NETLINK, Jf: 3},
		{Code: load, K: arg(2)},
		{Code: equal, K: unix.NETLINK_NETFILTER, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)},
		{Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return err
	}
	return unix.Exec(path, argv, os.Environ())
}
