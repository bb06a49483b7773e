package nsexec

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/plan"
)

// inNewNet runs the rest of the test again in a network namespace of its own, as
// its root, with the loopback interface up. True: this is that process.
func inNewNet(t *testing.T) bool {
	t.Helper()
	const mark = "WALL_TEST_IN_NEW_NET"
	if os.Getenv(mark) == t.Name() {
		if err := loopbackUp(); err != nil {
			t.Fatal(err)
		}
		return true
	}
	need(t, "userns")
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), mark+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Fatalf("it did not run:\n%s", out)
	}
	return false
}

// redirected sets everything up as stage 2 does and gives the sockets by purpose.
func redirected(t *testing.T) (capture map[string]int, packets map[string]int) {
	t.Helper()
	n := plan.Network{Method: plan.NetRedirect, HTTP: 3128, SOCKS: 1080}
	list := listeners(&n, true)
	capture, packets = map[string]int{}, map[string]int{}
	var fds []int
	for _, l := range list {
		fd, err := l.open()
		if err != nil {
			t.Fatal(l, err)
		}
		fds = append(fds, fd)
		switch name := map[bool]string{true: "4", false: "6"}[l.addr.Addr().Is4()]; {
		case l.to == toCapture:
			capture[name] = fd
		case l.to == toDNS && l.packet:
			packets[name] = fd
		}
	}
	if err := redirectAll(families(true), capturePort(&n), list, fds); err != nil {
		t.Fatal(err)
	}
	return capture, packets
}

const wantRuleset = `table ip wall {
	chain capture {
		type nat hook output priority -100; policy accept;
		tcp dport 53 redirect to :53
		udp dport 53 redirect to :53
		ip daddr 127.0.0.0/8 accept
		meta l4proto tcp redirect to :1023
	}

	chain others {
		type filter hook output priority filter; policy accept;
		ip daddr 127.0.0.0/8 accept
		tcp flags syn / syn,ack reject with tcp reset
		meta l4proto tcp accept
		udp sport 53 accept
		reject
	}
}
table ip6 wall {
	chain capture {
		type nat hook output priority -100; policy accept;
		tcp dport 53 redirect to :53
		udp dport 53 redirect to :53
		ip6 daddr ::1 accept
		ip6 daddr fd77:616c:6c00:ffff::1 accept
		meta l4proto tcp redirect to :1023
	}

	chain others {
		type filter hook output priority filter; policy accept;
		ip6 daddr ::1 accept
		ip6 daddr fd77:616c:6c00:ffff::1 accept
		tcp flags syn / syn,ack reject with tcp reset
		meta l4proto tcp accept
		udp sport 53 accept
		reject
	}
}
`

// nft(8) is a second opinion about what the messages say.
func TestRuleset(t *testing.T) {
	need(t, "nft", "ip")
	if !inNewNet(t) {
		return
	}
	redirected(t)
	for command, want := range map[string]string{
		"/usr/sbin/nft list ruleset":                             wantRuleset,
		"/usr/sbin/ip route show table local type local default": "local default dev lo scope host src 127.0.0.1 \n",
		"/usr/sbin/ip -o addr show dev lo | grep -o 'inet.* scope [a-z]*'": "inet 127.0.0.1/8 scope host\ninet 127.0.0.2/8 scope host\n" +
			"inet6 fd77:616c:6c00:ffff::1/128 scope global\ninet6 ::1/128 scope host\n",
		"/usr/sbin/ip -6 route show table local type local default": "local default dev lo src ::1 metric 1024 pref medium\n",
	} {
		out, err := exec.Command("sh", "-c", command).CombinedOutput()
		if err != nil || string(out) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", command, err, out, want)
		}
	}
}

// Every connection arrives at the capturing socket and tells where it wanted to go,
// whatever address the client has bound; connections within the box do not.
func TestRedirectConnections(t *testing.T) {
	if !inNewNet(t) {
		return
	}
	capture, _ := redirected(t)
	own, err := net.ListenTCP("tcp4", &net.TCPAddr{}) // 0.0.0.0
	if err != nil {
		t.Fatal(err)
	}
	closed := own.Addr().(*net.TCPAddr).Port
	own.Close()
	if own, err = net.ListenTCP("tcp4", &net.TCPAddr{}); err != nil {
		t.Fatal(err)
	}
	open := own.Addr().(*net.TCPAddr).Port
	dial := func(from, to string) (*net.TCPConn, error) {
		d := net.Dialer{Timeout: time.Minute}
		d.SetMultipathTCP(false)
		if from != "" {
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
		}
		c, err := d.Dial("tcp", to)
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
	for _, c := range []struct{ from, to, source string }{
		{"", "192.0.2.7:443", "127.0.0.1"},
		{"", "198.18.0.1:1", "127.0.0.1"},
		{"", "10.0.0.1:65535", "127.0.0.1"},
		{"", "240.0.0.1:22", "127.0.0.1"},
		{"", "[::ffff:192.0.2.7]:443", "127.0.0.1"},
		{"127.0.0.1:0", "192.0.2.7:80", "127.0.0.1"},
		{"198.18.0.9:0", "198.18.0.1:443", "198.18.0.9"},
		{"10.9.8.7:0", "192.0.2.7:443", "10.9.8.7"},
		{fmt.Sprintf("192.0.2.7:%d", closed), "192.0.2.7:443", "192.0.2.7"}, // from the address it goes to
		{"", fmt.Sprintf("192.0.2.7:%d", open), "127.0.0.1"},                // not to the socket on 0.0.0.0
		{"", "127.0.0.1:1023", "127.0.0.1"},                                 // straight to the socket
		{"", "[2001:db8::7]:443", "::1"},
		{"", "[fd77:616c:6c00::1]:80", "::1"},
		{"", "[fe80::1%lo]:80", "::1"},
		{"::1", "", ""},
		{"", "[::1]:1023", "::1"},
	} {
		if c.to == "" {
			continue
		}
		conn, err := dial(c.from, c.to)
		if err != nil {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
			continue
		}
		to := netip.MustParseAddrPort(c.to)
		to = netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port())
		fd := capture["4"]
		if to.Addr().Is6() {
			fd = capture["6"]
		}
		a, _, err := unix.Accept(fd)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := egress.OriginalDestination(a, to.Addr().Is6()); err != nil || got != to {
			t.Errorf("%s to %s arrives as %s (%v)", c.from, c.to, got, err)
		}
		if got := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap().String(); got != c.source {
			t.Errorf("%s to %s has the source address %s", c.from, c.to, got)
		}
		// Both directions, and the end.
		if _, err := unix.Write(a, []byte("out")); err != nil {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
		unix.Shutdown(a, unix.SHUT_WR)
		conn.SetDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 10)
		if n, err := conn.Read(buf); string(buf[:n]) != "out" {
			t.Errorf("%s to %s: read %q, %v", c.from, c.to, buf[:n], err)
		}
		conn.Close()
		if n, err := unix.Read(a, buf); n != 0 || err != nil {
			t.Errorf("%s to %s: at the end %d, %v", c.from, c.to, n, err)
		}
		unix.Close(a)
	}
	// Within the box nothing is redirected, not even from an odd address, nor to the
	// other addresses of the interface.
	all, err := net.ListenTCP("tcp", &net.TCPAddr{})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families(true) {
		to := netip.AddrPortFrom(f.second.Addr(), uint16(all.Addr().(*net.TCPAddr).Port)).String()
		if c, err := dial("", to); err != nil {
			t.Errorf("to %s within the box: %v", to, err)
		} else {
			c.Close()
			if a, err := all.Accept(); err != nil || a.LocalAddr().String() != to {
				t.Errorf("to %s within the box: %v", to, err)
			}
		}
	}
	for _, from := range []string{"", "127.0.0.1:0", "10.9.8.7:0"} {
		c, err := dial(from, fmt.Sprintf("127.0.0.1:%d", open))
		if err != nil {
			t.Errorf("%s within the box: %v", from, err)
			continue
		}
		a, err := own.Accept()
		if err != nil {
			t.Fatal(err)
		}
		a.Close()
		c.Close()
		if _, err := dial(from, fmt.Sprintf("127.0.0.1:%d", closed)); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s to a closed port of the box: %v", from, err)
		}
	}
}

// Packets to other hosts are refused when they are sent. Queries to any address are for
// wall, and an answer comes from where the query went.
func TestRedirectPackets(t *testing.T) {
	if !inNewNet(t) {
		return
	}
	_, packets := redirected(t)
	own, err := net.ListenUDP("udp", nil) // all addresses
	if err != nil {
		t.Fatal(err)
	}
	port := own.LocalAddr().(*net.UDPAddr).Port
	for _, to := range []string{
		"192.0.2.7:443", "198.18.0.1:123", "10.0.0.1:54", "224.0.0.251:5353", "239.1.2.3:1900", "255.255.255.255:67",
		fmt.Sprintf("192.0.2.7:%d", port),
		"[2001:db8::7]:443", "[fd77:616c:6c00::1]:123", "[ff02::fb%lo]:5353", "[fe80::1%lo]:547", fmt.Sprintf("[2001:db8::7]:%d", port),
	} {
		a := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))
		network := "udp4"
		if a.IP.To4() == nil {
			network = "udp6"
		}
		u, err := net.ListenUDP(network, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.WriteTo([]byte("x"), a); !errors.Is(err, unix.EPERM) {
			t.Errorf("to %s: %v", to, err)
		}
		u.Close()
	}
	for _, c := range []struct{ from, to string }{
		{"", "192.0.2.7:53"}, {"", "127.0.0.53:53"}, {"", "127.0.0.1:53"}, {"", "10.0.0.2:53"}, {"127.0.0.1:0", "198.18.0.1:53"}, {"10.9.8.7:0", "192.0.2.7:53"},
		{"", "[2001:db8::7]:53"}, {"", "[::1]:53"}, {"", "[fe80::1%lo]:53"},
	} {
		d := net.Dialer{}
		if c.from != "" {
			d.LocalAddr = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
		}
		u, err := d.Dial("udp", c.to) // takes answers only from there
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Write([]byte("query")); err != nil {
			t.Errorf("query to %s: %v", c.to, err)
			continue
		}
		fd := packets["4"]
		if strings.HasPrefix(c.to, "[") {
			fd = packets["6"]
		}
		buf := make([]byte, 10)
		if err := awaitInput(fd, time.Minute); err != nil {
			t.Fatalf("query to %s: %v", c.to, err)
		}
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil || string(buf[:n]) != "query" {
			t.Errorf("query to %s arrives as %q, %v", c.to, buf[:n], err)
		}
		if err := unix.Sendto(fd, []byte("answer"), 0, from); err != nil {
			t.Errorf("answer from %s: %v", c.to, err)
		}
		u.SetDeadline(time.Now().Add(time.Minute))
		if n, err := u.Read(buf); string(buf[:n]) != "answer" {
			t.Errorf("answer from %s: %q, %v", c.to, buf[:n], err)
		}
		u.Close()
	}
	for _, f := range families(true) {
		u, err := net.Dial("udp", netip.AddrPortFrom(f.second.Addr(), uint16(port)).String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Write([]byte("own")); err != nil {
			t.Errorf("to %s within the box: %v", f.second, err)
		}
		own.SetDeadline(time.Now().Add(time.Minute))
		buf := make([]byte, 10)
		if n, err := own.Read(buf); string(buf[:n]) != "own" {
			t.Errorf("to %s within the box: %q, %v", f.second, buf[:n], err)
		}
	}
	// A closed port of the box answers, and no other protocol gets out.
	u, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	u.SetDeadline(time.Now().Add(time.Minute))
	u.Write([]byte("x"))
	if _, err := u.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a closed port of the box: %v", err)
	}
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		t.Fatal(err)
	}
	echo := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}
	if err := unix.Sendto(raw, echo, 0, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 7}}); err != unix.EPERM {
		t.Errorf("ICMP echo: %v", err)
	}
}

// The self-test must notice a way out, and rules that can be changed.
func TestCheckNoRoute(t *testing.T) {
	if !inNewNet(t) {
		return
	}
	want := func(p *plan.Plan, text string) {
		t.Helper()
		if err := checkNoRoute(p); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want %q", err, text)
		}
	}
	none := &plan.Plan{}
	redirect := &plan.Plan{Network: plan.Network{Method: plan.NetRedirect}}
	want(none, `adding a route answers "<nil>"`) // which adds it
	want(none, "a packet could be sent to 192.0.2.1:9")
	if err := netlink(unix.NETLINK_ROUTE, remove(localRoutes(ipv4, 1))); err != nil {
		t.Fatal(err)
	}
	redirected(t)
	want(none, "a connection to 192.0.2.1:9 is not refused")
	want(redirect, "adding a route answers")
	if err := dropPrivileges(); err != nil {
		t.Fatal(err)
	}
	if err := checkNoRoute(redirect); err != nil {
		t.Errorf("without privileges: %v", err)
	}
	want(none, "a connection to 192.0.2.1:9 is not refused")
}

// remove makes requests for new routes such that take them away.
func remove(messages []netlinkMessage) []netlinkMessage {
	for i := range messages {
		messages[i].kind, messages[i].flags = unix.RTM_DELROUTE, unix.NLM_F_ACK
	}
	return messages
}
