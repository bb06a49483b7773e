package nsexec

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/psx"
)

// buildCaps are the capabilities stage 2 holds over its own namespaces until
// dropPrivileges: mounts, the loopback interface, and emptying the bounding
// set. They are raised as ambient so that they survive execve for a user who is
// not mapped to root (capabilities(7)).
var buildCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP}

// overlayCaps are those that stage 2 holds besides to mount an overlay. overlayfs works
// in its layers with the rights of who mounted it, also after these are
// dropped: it makes a work directory of mode 000, and makes files in copies of
// read-only directories. The command gains nothing by it, because every access
// is checked against the command's own rights first (overlayfs.rst,
// "Permission model").
var overlayCaps = []uintptr{unix.CAP_DAC_OVERRIDE}

// networkCaps are those that stage 2 holds besides to listen on ports below 1024 of
// the box's own namespace.
var networkCaps = []uintptr{unix.CAP_NET_BIND_SERVICE}

type capHeader struct {
	version uint32
	pid     int32
}

type capData struct {
	effective   uint32
	permitted   uint32
	inheritable uint32
}

// dropPrivileges empties every capability set for good and sets
// no_new_privs. The last privileged act of the box.
//
// Bounding set and no_new_privs are set for the calling thread, which the command is
// forked from; it must be locked. The effective, permitted and inheritable sets
// are emptied on all threads of pid 1 (the ambient set follows), since the
// others go on running for as long as the box.
func dropPrivileges() error {
	for c := uintptr(0); ; c++ {
		err := prctl(unix.PR_CAPBSET_DROP, c, 0)
		if err == nil {
			continue
		}
		if c > unix.CAP_LAST_CAP || c > 40 {
			break // EINVAL: beyond the last capability this kernel has
		}
		return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
	}
	if err := prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return fmt.Errorf("clear the ambient set: %w", err)
	}
	if err := prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	h := capHeader{version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]capData
	if _, _, errno := psx.Syscall3(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&none[0])), 0); errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}

// regainCaps tries to raise CAP_SYS_ADMIN again; it must fail.
func regainCaps() error {
	h := capHeader{version: unix.LINUX_CAPABILITY_VERSION_3}
	d := [2]capData{{effective: 1 << unix.CAP_SYS_ADMIN, permitted: 1 << unix.CAP_SYS_ADMIN}}
	_, _, errno := unix.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&h)), uintptr(unsafe.Pointer(&d[0])), 0)
	if errno != 0 {
		return os.NewSyscallError("capset", errno)
	}
	return nil
}
