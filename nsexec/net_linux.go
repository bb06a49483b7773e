package nsexec

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/plan"
)

// loopbackUp brings up the interface "lo" of the new network namespace; the
// kernel gives it 127.0.0.1/8 and ::1/128 by itself. Needs CAP_NET_ADMIN there
// (netdevice(7)).
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return os.NewSyscallError("ioctl SIOCGIFFLAGS", err)
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return os.NewSyscallError("ioctl SIOCSIFFLAGS", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
}

// hasNetwork reports whether stage 1 has sockets of the box's network namespace.
func hasNetwork(p *plan.Plan) bool {
	n := &p.Network
	return n.Method != plan.NetNone || len(n.Loopback)+len(n.Publish) > 0
}

// A listener is a socket that stage 2 makes for stage 1. Both get the same list of them
// from the plan.
type listener struct {
	to     purpose
	packet bool // UDP
	addr   netip.AddrPort
	origin plan.Origin
}

type purpose int

const (
	toCapture purpose = iota
	toDNS
	toHTTP
	toSOCKS
	toLoopback
)

// listeners gives the sockets of a plan, those for ::1 only with v6.
//
// What is redirected goes to ports below 1024, which the command cannot take
// (ip(7), ip_unprivileged_port_start, which is 1024 in every new namespace): one
// that needs a certain port finds it free.
func listeners(n *plan.Network, v6 bool) []listener {
	var out []listener
	add := func(to purpose, packet bool, port int, origin plan.Origin) {
		for _, f := range families(v6) {
			out = append(out, listener{to, packet, netip.AddrPortFrom(f.own(), uint16(port)), origin})
			if to == toHTTP || to == toSOCKS {
				return // these have one address
			}
		}
	}
	if n.Method == plan.NetRedirect {
		add(toCapture, false, int(capturePort(n)), n.Origin)
		add(toDNS, true, dnsPort, n.Origin)
		add(toDNS, false, dnsPort, n.Origin)
	}
	if n.Method != plan.NetNone {
		add(toHTTP, false, n.HTTP, n.Origin)
		add(toSOCKS, false, n.SOCKS, n.Origin)
	}
	for _, p := range n.Loopback {
		add(toLoopback, false, p.Port, p.Origin)
	}
	return out
}

// capturePort is the highest port below 1024 that the plan has no use for.
func capturePort(n *plan.Network) uint16 {
	taken := map[int]bool{n.HTTP: true, n.SOCKS: true}
	for _, p := range n.Loopback {
		taken[p.Port] = true
	}
	port := 1023
	for taken[port] {
		port--
	}
	return uint16(max(port, 1))
}

// network makes what the plan has beyond an idle loopback interface: the routes
// and rules that redirect connections, and the sockets that stage 1 serves from
// outside. The sockets go to stage 1 and are closed here before the command
// exists: nothing inside can get hold of them.
func (s *stage2) network() error {
	if !hasNetwork(&s.p) {
		return nil
	}
	n := &s.p.Network
	v6, err := hasIPv6()
	if err != nil {
		return &plan.Error{Op: "cannot look for IPv6 in the box", Origin: n.Origin, Err: err}
	}
	list := listeners(n, v6)
	fds := make([]int, 0, len(list))
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for _, l := range list {
		fd, err := l.open()
		if err != nil {
			e := &plan.Error{Op: fmt.Sprintf("cannot listen on %s in the box", l.addr), Origin: l.origin, Err: err}
			if errors.Is(err, unix.EADDRINUSE) && l.addr.Port() == dnsPort {
				e.Hint = "with network mode \"allow\", port 53 is where wall answers DNS queries"
			}
			return e
		}
		fds = append(fds, fd)
	}
	if n.Method == plan.NetRedirect {
		if err := redirectAll(families(v6), capturePort(n), list, fds); err != nil {
			return &plan.Error{Op: "cannot redirect the connections of the command", Origin: n.Origin, Err: &NftablesError{err},
				Hint: hintNftables + "; or let programs use a proxy instead, with --if-unavailable degrade"}
		}
	}
	if err := sendFiles(s.netFD(), v6, fds); err != nil {
		return &plan.Error{Op: "cannot hand over the sockets of the box", Origin: n.Origin, Err: err}
	}
	return nil
}

// hasIPv6 reports whether the loopback interface has ::1.
func hasIPv6() (bool, error) {
	fd, err := listener{packet: true, addr: netip.AddrPortFrom(netip.IPv6Loopback(), 0)}.open()
	switch {
	case errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.EADDRNOTAVAIL):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, unix.Close(fd)
}

// backlog is how many connections the kernel may have ready; it takes no more than its own
// limit, net.core.somaxconn.
const backlog = 4096

// open makes the socket. Without SO_REUSEADDR and SO_REUSEPORT, so that nothing else
// can have the same port.
func (l listener) open() (int, error) {
	domain, kind, proto := unix.AF_INET, unix.SOCK_STREAM, tcp
	if l.addr.Addr().Is6() {
		domain = unix.AF_INET6
	}
	if l.packet {
		kind, proto = unix.SOCK_DGRAM, udp
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = os.NewSyscallError("bind", unix.Bind(fd, sockaddr(l.addr))); err == nil && !l.packet {
		err = os.NewSyscallError("listen", unix.Listen(fd, backlog))
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}

// redirectAll sets routes, addresses and rules, and tries them.
func redirectAll(fs []family, capture uint16, list []listener, fds []int) error {
	lo, err := loopbackIndex()
	if err != nil {
		return err
	}
	for _, f := range fs {
		if err := netlink(unix.NETLINK_ROUTE, append(localRoutes(f, lo), secondAddress(f, lo))); err != nil {
			return err
		}
	}
	if err := netlink(unix.NETLINK_NETFILTER, ruleset(fs, capture)); err != nil {
		return err
	}
	for _, f := range fs {
		for i, l := range list {
			if l.addr.Addr() != f.own() || l.to != toCapture && l.to != toDNS {
				continue
			}
			if err := tryRedirect(f, l, fds[i]); err != nil {
				return fmt.Errorf("trying it with %s: %w", f.long, err)
			}
		}
	}
	return nil
}

func loopbackIndex() (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return 0, err
	}
	err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
	return ifr.Uint32(), os.NewSyscallError("ioctl SIOCGIFINDEX", err)
}

// tryWait bounds each try of a redirection. The kernel carries a packet over the
// loopback interface at once, but for a busy machine.
const tryWait = 10 * time.Second

// tryRedirect makes sure that what is sent to an address that no host has arrives at
// the listening socket fd, and that a connection still tells where it wanted to go. It is
// tried here, because once stage 1 serves the socket it would be an event.
func tryRedirect(f family, l listener, fd int) error {
	to := f.nowhere
	if l.to == toDNS {
		to = netip.AddrPortFrom(to.Addr(), dnsPort)
	}
	kind, proto := unix.SOCK_STREAM, tcp
	if l.packet {
		kind, proto = unix.SOCK_DGRAM, udp
	}
	c, err := unix.Socket(int(f.number), kind|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(c)
	limit := unix.NsecToTimeval(int64(tryWait))
	if err := unix.SetsockoptTimeval(c, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return os.NewSyscallError("setsockopt SO_SNDTIMEO", err)
	}
	if !l.packet {
		// It ends by a reset, which leaves nothing waiting.
		if err := unix.SetsockoptLinger(c, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return os.NewSyscallError("setsockopt SO_LINGER", err)
		}
	}
	if err := unix.Connect(c, sockaddr(to)); err != nil {
		return os.NewSyscallError("connect", err)
	}
	if l.packet {
		if _, err := unix.Write(c, []byte{0}); err != nil {
			return os.NewSyscallError("send", err)
		}
	}
	if err := awaitInput(fd, tryWait); err != nil {
		return err
	}
	if l.packet {
		_, _, err := unix.Recvfrom(fd, make([]byte, 1), unix.MSG_DONTWAIT)
		return os.NewSyscallError("recvfrom", err)
	}
	a, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("accept", err)
	}
	defer unix.Close(a)
	wanted, err := egress.OriginalDestination(a, f.number == unix.AF_INET6)
	if err != nil {
		return err
	}
	if wanted != to {
		return fmt.Errorf("a connection to %s arrives as one to %s", to, wanted)
	}
	return nil
}

func awaitInput(fd int, limit time.Duration) error {
	end := time.Now().Add(limit)
	for {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(max(0, time.Until(end)).Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("poll", err)
		case n == 0:
			return unix.ETIMEDOUT
		default:
			return nil
		}
	}
}

// chunk is how many descriptors go in one message; the kernel takes 253
// (SCM_MAX_FD, unix(7)).
const chunk = 64

// sendFiles hands descriptors over. Every message has one byte, which says
// whether there is IPv6; the first one comes even if there is no descriptor.
func sendFiles(sock int, v6 bool, fds []int) error {
	body := byte('4')
	if v6 {
		body = '6'
	}
	for first := true; first || len(fds) > 0; first = false {
		n := min(len(fds), chunk)
		if err := sendMessage(sock, body, fds[:n]); err != nil {
			return os.NewSyscallError("sendmsg", err)
		}
		fds = fds[n:]
	}
	return nil
}

// sendMessage sends body, and descriptors with it if there are any.
func sendMessage(sock int, body byte, fds []int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	return retry(func() error { return unix.Sendmsg(sock, []byte{body}, rights, nil, 0) })
}

// receiveFiles takes one message with descriptors; io.EOF means that the
// other side is gone. flags are those of recvmsg(2).
func receiveFiles(sock, flags int) (body byte, fds []int, err error) {
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*chunk))
	var n, oobn int
	err = retry(func() (err error) {
		n, oobn, _, _, err = unix.Recvmsg(sock, buf, oob, unix.MSG_CMSG_CLOEXEC|flags)
		return err
	})
	if err != nil {
		return 0, nil, os.NewSyscallError("recvmsg", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return 0, nil, err
	}
	for _, m := range messages {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return 0, nil, err
		}
		fds = append(fds, more...)
	}
	if n == 0 {
		return 0, nil, io.EOF
	}
	return buf[0], fds, nil
}

// served waits until stage 1 serves the sockets, or has given up: then the
// command must not run.
func (s *stage2) served() error {
	if !hasNetwork(&s.p) {
		return nil
	}
	answer := make([]byte, 1)
	var n int
	err := retry(func() (err error) { n, err = unix.Read(s.netFD(), answer); return err })
	if err == nil && n == 0 {
		err = errors.New("the launcher does not serve it")
	}
	if err != nil {
		return &plan.Error{Op: "cannot connect the network of the box", Origin: s.p.Network.Origin, Err: err}
	}
	if len(s.p.Network.Publish) == 0 {
		unix.Close(s.netFD())
		return nil
	}
	go s.giveSockets() // now, so that its thread is there when they are counted
	return nil
}

// giveSockets answers stage 1's requests for sockets of the box's network
// namespace, with which it connects to published ports: '4' or '6' for the address family,
// answered by a byte of 0 with the socket, or by an errno. Nothing inside can
// get at this descriptor.
func (s *stage2) giveSockets() {
	request := make([]byte, 1)
	for {
		var n int
		err := retry(func() (err error) { n, err = unix.Read(s.netFD(), request); return err })
		if err != nil || n == 0 {
			return // the launcher serves no more; the life-line tells when it is gone
		}
		domain := unix.AF_INET
		if request[0] == '6' {
			domain = unix.AF_INET6
		}
		fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, tcp)
		if err != nil {
			var errno unix.Errno
			errors.As(err, &errno)
			err = sendMessage(s.netFD(), byte(errno), nil)
		} else {
			err = sendMessage(s.netFD(), 0, []int{fd})
			unix.Close(fd)
		}
		if err != nil {
			return
		}
	}
}

// A network is stage 1's side of a box's network.
type network struct {
	server *egress.Server
	plan   *plan.Network
	sock   int           // to stage 2 while the box is built; -1 before and after
	file   *os.File      // the same once the box runs, with a published port; nil without
	turn   chan struct{} // holds one token: for whoever asks for a socket
	owed   int           // answers that nobody waits for any more; for the holder of the token
}

// openNetwork compiles the rules and takes the published ports, before anything is
// started.
func openNetwork(n *plan.Network, observe func(egress.Event)) (*network, error) {
	server, err := egress.New(*n, egress.Options{Observe: observe})
	if err != nil {
		return nil, err
	}
	if err := server.Publish(); err != nil {
		server.Close()
		return nil, err
	}
	return &network{server: server, plan: n, sock: -1, turn: make(chan struct{}, 1)}, nil
}

// connect takes the sockets of the box, serves them, and tells stage 2 to go on. It
// does nothing when stage 2 has given up, which the status pipe tells about.
func (n *network) connect() error {
	failed := func(err error) error {
		return &plan.Error{Op: "cannot serve the network of the box", Origin: n.plan.Origin, Err: err}
	}
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var list []listener
	for first := true; first || len(files) < len(list); first = false {
		body, fds, err := receiveFiles(n.sock, 0)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "socket of the box"))
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return failed(err)
		case first:
			list = listeners(n.plan, body == '6')
		}
	}
	if len(files) != len(list) {
		return failed(fmt.Errorf("stage 2 sent %d sockets, want %d", len(files), len(list)))
	}
	k := egress.Sockets{Loopback: map[int][]*os.File{}}
	for i, l := range list {
		switch {
		case l.to == toCapture:
			k.Capture = append(k.Capture, files[i])
		case l.to == toDNS && l.packet:
			k.DNSPackets = append(k.DNSPackets, files[i])
		case l.to == toDNS:
			k.DNSStreams = append(k.DNSStreams, files[i])
		case l.to == toHTTP:
			k.HTTP = append(k.HTTP, files[i])
		case l.to == toSOCKS:
			k.SOCKS = append(k.SOCKS, files[i])
		default:
			port := int(l.addr.Port())
			k.Loopback[port] = append(k.Loopback[port], files[i])
		}
	}
	sock := n.sock
	n.sock = -1
	if len(n.plan.Publish) > 0 {
		// For the poller, so that waiting can be ended.
		if err := unix.SetNonblock(sock, true); err != nil {
			unix.Close(sock)
			return failed(err)
		}
		n.file = os.NewFile(uintptr(sock), "socket to stage 2")
		k.Dialer = n.dial
	} else {
		defer unix.Close(sock)
	}
	files = nil // the server's
	if err := n.server.Start(k); err != nil {
		return failed(err)
	}
	// A broken pipe tells us that stage 2 is gone; the status says why.
	if err := writeAll(sock, []byte{0}); err != nil && !errors.Is(err, unix.EPIPE) {
		return failed(err)
	}
	return nil
}

// dial asks pid 1 of the box for a TCP socket. It answers at once, unless something
// outside has stopped it.
func (n *network) dial(ctx context.Context, name string) (*os.File, error) {
	select {
	case n.turn <- struct{}{}:
		defer func() { <-n.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := n.file.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = n.file.SetDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-interrupted // the next one sets another deadline
		}
	}()
	f, err := n.ask(name)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("no socket of the box is to be had: %w", err)
	}
	return f, nil
}

// ask sends a request and takes its answer, after those to requests that were
// given up.
func (n *network) ask(name string) (*os.File, error) {
	request := []byte{'4'}
	if name == "tcp6" {
		request[0] = '6'
	}
	if _, err := n.file.Write(request); err != nil {
		return nil, err
	}
	n.owed++
	for {
		f, errno, err := n.answer()
		if err != nil {
			return nil, err
		}
		n.owed--
		switch {
		case n.owed > 0 && f != nil:
			f.Close()
		case n.owed > 0:
		case f == nil:
			return nil, errno
		default:
			return f, nil
		}
	}
}

// answer takes one answer of pid 1's: a socket, or why there is none.
func (n *network) answer() (*os.File, unix.Errno, error) {
	rc, err := n.file.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	var body byte
	var fds []int
	var rerr error
	err = rc.Read(func(fd uintptr) bool {
		body, fds, rerr = receiveFiles(int(fd), unix.MSG_DONTWAIT)
		return !errors.Is(rerr, unix.EAGAIN)
	})
	if err == nil {
		err = rerr
	}
	if err != nil {
		return nil, 0, err
	}
	if len(fds) != 1 {
		return nil, unix.Errno(body), nil
	}
	return os.NewFile(uintptr(fds[0]), "socket of the box"), 0, nil
}

// close ends every connection of the box.
func (n *network) close() egress.Summary {
	if n.sock >= 0 {
		unix.Close(n.sock)
		n.sock = -1
	}
	s := n.server.Close()
	if n.file != nil {
		n.file.Close()
	}
	return s
}

// probeRedirect tries the redirection in a network namespace of its own.
func probeRedirect() error {
	if err := loopbackUp(); err != nil {
		return err
	}
	v6, err := hasIPv6()
	if err != nil {
		return err
	}
	n := plan.Network{Method: plan.NetRedirect}
	var list []listener
	var fds []int
	for _, l := range listeners(&n, v6) {
		if l.to != toCapture && l.to != toDNS {
			continue
		}
		fd, err := l.open()
		if err != nil {
			return err
		}
		list, fds = append(list, l), append(fds, fd)
	}
	return redirectAll(families(v6), capturePort(&n), list, fds)
}
