package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// listener gives the listening TCP socket of a file. The file stays the caller's.
func listener(f *os.File) (*net.TCPListener, error) {
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("a socket of the type %T", l)
	}
	return tcp, nil
}

// packets gives the UDP socket of a file. The file stays the caller's.
func packets(f *os.File) (*net.UDPConn, error) {
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	udp, ok := c.(*net.UDPConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("a socket of the type %T", c)
	}
	return udp, nil
}

// original gives where a connection was going before it was redirected.
func original(c *net.TCPConn) (to netip.AddrPort, err error) {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return to, net.ErrClosed
	}
	rc, err := c.SyscallConn()
	if err != nil {
		return to, err
	}
	e := rc.Control(func(fd uintptr) { to, err = OriginalDestination(int(fd), local.IP.To4() == nil) })
	return to, errors.Join(e, err)
}

// OriginalDestination gives where an accepted connection was going before it was
// redirected (SO_ORIGINAL_DST of linux/netfilter_ipv4.h, IP6T_SO_ORIGINAL_DST of
// linux/netfilter_ipv6/ip6_tables.h, which has the same number). The kernel answers from
// the conntrack table of the socket's own network namespace.
func OriginalDestination(fd int, ipv6 bool) (netip.AddrPort, error) {
	if !ipv6 {
		// The structure is a sockaddr_in, of 16 bytes; ipv6_mreq is the one of
		// x/sys/unix that is long enough.
		sa, err := unix.GetsockoptIPv6Mreq(fd, unix.SOL_IP, unix.SO_ORIGINAL_DST)
		if err != nil {
			return netip.AddrPort{}, os.NewSyscallError("getsockopt SO_ORIGINAL_DST", err)
		}
		b := sa.Multiaddr
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), uint16(b[2])<<8|uint16(b[3])), nil
	}
	// A sockaddr_in6, at the head of ip6_mtuinfo.
	sa, err := unix.GetsockoptIPv6MTUInfo(fd, unix.SOL_IPV6, unix.SO_ORIGINAL_DST)
	if err != nil {
		return netip.AddrPort{}, os.NewSyscallError("getsockopt IP6T_SO_ORIGINAL_DST", err)
	}
	port := (*[2]byte)(unsafe.Pointer(&sa.Addr.Port)) // in network byte order
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr.Addr).Unmap(), uint16(port[0])<<8|uint16(port[1])), nil
}

// reset closes a connection with a reset, and forgets what is on the way.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// boundNear bounds what waits to be sent to a near peer.
func boundNear(c *net.TCPConn) {
	rc, err := c.SyscallConn()
	if err != nil {
		return
	}
	rc.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.Rtt < uint32(nearTime.Microseconds()) { // of the handshake
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, nearBuffer)
		}
	})
}

// bringing reports whether there is more to come from the other end of a connection
// that has gone: bytes that have not been read, behind which others may wait over there,
// or the end of the stream.
func bringing(c *net.TCPConn) bool {
	rc, err := c.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = rc.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		n, _ := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		is = n > 0 || err == nil && info.State == unix.BPF_TCP_CLOSE_WAIT
	})
	return err == nil && is
}

// waiting reports whether connections are there to be accepted: of a listening socket,
// that is what the kernel tells in place of unacknowledged segments.
func waiting(l *net.TCPListener) bool {
	rc, err := l.SyscallConn()
	if err != nil {
		return false
	}
	is := false
	err = rc.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		is = err == nil && info.Unacked > 0
	})
	return err == nil && is
}

// unsent reports whether bytes are on the way to the other end of a connection, which
// has been sent the end of the stream: that counts as one, and may be acknowledged late.
func unsent(c *net.TCPConn) bool {
	rc, err := c.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	err = rc.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return err == nil && n > 1
}

// raw gives both connections for system calls.
func raw(a, b *net.TCPConn) (syscall.RawConn, syscall.RawConn, error) {
	x, err := a.SyscallConn()
	if err != nil {
		return nil, nil, err
	}
	y, err := b.SyscallConn()
	return x, y, err
}

// gone reports whether the kernel has given up a connection: it was reset or timed
// out, or both ends have closed it. It uses up no error of the socket.
func gone(c syscall.RawConn) bool {
	var is bool
	err := c.Control(func(fd uintptr) { is = isGone(fd) })
	return err != nil || is
}

// waitGone waits until gone, and reports false when this side closes the connection.
func waitGone(c syscall.RawConn) bool {
	return c.Read(isGone) == nil
}

func isGone(fd uintptr) bool {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	return err != nil || info.State == unix.BPF_TCP_CLOSE
}

// openFileLimit gives how many descriptors this process may have.
func openFileLimit() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 256 // a small number is safe
	}
	return limit.Cur
}

// listenOnLoopback listens on a port of the host's 127.0.0.1, and of ::1 unless there
// is no IPv6.
func listenOnLoopback(ctx context.Context, port int) ([]*net.TCPListener, error) {
	var c net.ListenConfig
	c.SetMultipathTCP(false)
	var all []*net.TCPListener
	for _, a := range [][2]string{{"tcp4", "127.0.0.1"}, {"tcp6", "::1"}} {
		l, err := c.Listen(ctx, a[0], net.JoinHostPort(a[1], strconv.Itoa(port)))
		if a[0] == "tcp6" && (errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL)) {
			continue
		}
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, err
		}
		all = append(all, l.(*net.TCPListener))
	}
	return all, nil
}

// connectFile connects the socket of a file, and gives it as a connection. The file
// stays the caller's.
func connectFile(ctx context.Context, f *os.File, to netip.AddrPort) (net.Conn, error) {
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("a socket of the type %T", c)
	}
	if err := finishConnect(ctx, tcp, to); err != nil {
		reset(tcp)
		return nil, err
	}
	return tcp, nil
}

// notItself refuses a socket that is connected to itself: nothing listens on the port,
// and the kernel has chosen it for the socket's own end.
func notItself(fd int) error {
	here, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	there, err := unix.Getpeername(fd)
	if err == nil && addrPort(here) == addrPort(there) {
		return unix.ECONNREFUSED
	}
	return nil // a connection that is gone already is told of like any other
}

func addrPort(sa unix.Sockaddr) netip.AddrPort {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

func finishConnect(ctx context.Context, tcp *net.TCPConn, to netip.AddrPort) error {
	rc, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var sa unix.Sockaddr = &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
	if to.Addr().Is4() {
		sa = &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
	}
	stop := context.AfterFunc(ctx, func() { tcp.SetDeadline(time.Unix(1, 0)) }) // long ago
	defer stop()
	begun := false
	waited := rc.Write(func(fd uintptr) bool {
		if !begun {
			begun = true
			err = unix.Connect(int(fd), sa)
			return err != unix.EINPROGRESS && err != unix.EINTR
		}
		var n int
		if n, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
			return true
		}
		if n != 0 {
			err = unix.Errno(n)
			return true
		}
		_, err = unix.Getpeername(int(fd))
		return err != unix.ENOTCONN
	})
	if waited == nil && err == nil {
		waited = rc.Control(func(fd uintptr) { err = notItself(int(fd)) })
	}
	if waited != nil {
		return waited
	}
	if err != nil {
		return os.NewSyscallError("connect", err)
	}
	if !stop() {
		return ctx.Err()
	}
	return nil
}
