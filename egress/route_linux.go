package egress

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// routeIsLocal reports whether packets for an address end at this host. That is so for
// those of its interfaces, and for what a route of the type "local" leads to, as for
// the addresses of load balancers: no interface has these, and the host answers. See
// rtnetlink(7).
func routeIsLocal(addr netip.Addr) (bool, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	family := byte(unix.AF_INET)
	if addr.Is6() {
		family = unix.AF_INET6
	}
	to := addr.AsSlice()
	ne := binary.NativeEndian
	msg := ne.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+unix.SizeofRtMsg+unix.SizeofRtAttr+len(to)))
	msg = ne.AppendUint16(msg, unix.RTM_GETROUTE)
	msg = ne.AppendUint16(msg, unix.NLM_F_REQUEST)
	msg = append(msg, make([]byte, 8)...) // sequence, port
	msg = append(msg, family, byte(addr.BitLen()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	msg = ne.AppendUint16(msg, uint16(unix.SizeofRtAttr+len(to)))
	msg = ne.AppendUint16(msg, unix.RTA_DST)
	msg = append(msg, to...)
	for {
		if err = unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return false, os.NewSyscallError("send to netlink", err)
	}
	// The kernel has answered while the request was sent.
	buf := make([]byte, 4096)
	var n int
	for {
		if n, _, err = unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return false, os.NewSyscallError("receive from netlink", err)
	}
	return readRoute(buf[:n])
}

var errRoute = errors.New("the kernel's answer about a route makes no sense")

// readRoute reads the answer to a request for one route.
func readRoute(b []byte) (local bool, err error) {
	const header = unix.SizeofNlMsghdr
	if len(b) < header+4 {
		return false, errRoute
	}
	switch binary.NativeEndian.Uint16(b[4:]) {
	case unix.NLMSG_ERROR:
		switch errno := unix.Errno(-int32(binary.NativeEndian.Uint32(b[header:]))); errno {
		case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL, unix.EAFNOSUPPORT, unix.EOPNOTSUPP:
			return false, nil // there is no way to it, of which the attempt to connect tells
		case 0:
			return false, errRoute
		default:
			return false, errno
		}
	case unix.RTM_NEWROUTE:
		if len(b) < header+unix.SizeofRtMsg {
			return false, errRoute
		}
		kind := b[header+7]
		return kind == unix.RTN_LOCAL || kind == unix.RTN_ANYCAST, nil
	}
	return false, errRoute
}
