package integration_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// The internet of a test is a network namespace that has every address there
// is: whatever the launcher, which lives in a namespace next to it, sends
// anywhere gets there, is written down, and is answered by a server. So nothing
// that a box sends can be lost without the test knowing it, also not what goes
// to a private or the metadata address.
type internet struct {
	t       *testing.T
	mu      sync.Mutex
	control *os.File
	in      *bufio.Reader
}

// Addresses of the launcher. They look like anybody's: what wall refuses as its
// own it must know from the interfaces.
const (
	ownV4, gatewayV4 = "81.2.69.2", "81.2.69.1"
	ownV6, gatewayV6 = "2a02:2e0:3fe::2", "2a02:2e0:3fe::1"
	resolverV4       = "193.0.14.129"
)

// The server that most names have, and another one.
const (
	webV4, webV6     = "93.184.216.34", "2606:2800:220:1::34"
	otherV4, otherV6 = "93.184.216.99", "2606:2800:220:1::99"
)

const srv = "/srv/internet" // what the internet shows the test, below a directory that is its own

// zone is what the resolver of the launcher says about names, which end in a
// dot. A name that is not here does not exist; a star stands for one label.
var zone = map[string][]string{
	"web.test.":           {webV4, webV6},
	"www.web.test.":       {webV4, webV6},
	"*.sub.test.":         {webV4, webV6},
	"a.b.sub.test.":       {webV4},
	"x.bad.sub.test.":     {webV4},
	"sub.test.":           {webV4},
	"v4.test.":            {webV4},
	"v6.test.":            {webV6},
	"xn--bcher-kva.test.": {webV4},
	"other.test.":         {otherV4, otherV6},
	"alias.test.":         {"web.test."},
	"*.many.test.":        {webV4},

	"cname-private.test.": {"ten.test."},
	"cname-loop.test.":    {"cname-loop.test."},
	"ten.test.":           {"10.0.0.5"},
	"rfc1918.test.":       {"192.168.1.1"},
	"seventeen.test.":     {"172.16.0.9"},
	"cgnat.test.":         {"100.64.0.1"},
	"loop.test.":          {"127.0.0.1", "::1"},
	"loop2.test.":         {"127.8.8.8"},
	"meta.test.":          {"169.254.169.254"},
	"meta6.test.":         {"fd00:ec2::254"},
	"linklocal.test.":     {"169.254.7.7", "fe80::1"},
	"ula.test.":           {"fd12:3456::1"},
	"zero.test.":          {"0.0.0.0", "::"},
	"multicast.test.":     {"224.0.0.1", "ff02::1"},
	"broadcast.test.":     {"255.255.255.255"},
	"reserved.test.":      {"240.0.0.1"},
	"bench.test.":         {"198.18.0.7", "fd77:616c:6c00::7"},
	"doc.test.":           {"203.0.113.1", "2001:db8::1"},
	"mapped.test.":        {"::ffff:10.0.0.5"},
	"nat64.test.":         {"64:ff9b::a00:5"},
	"sixtofour.test.":     {"2002:a00:5::1"},
	"teredo.test.":        {"2001:0:a00:5::1"},
	"own.test.":           {ownV4, ownV6},
	"granted.test.":       {"10.7.7.7"},
	"taken.test.":         {"10.7.8.9"},
	"denied.test.":        {"93.184.217.5"},
	"mixed.test.":         {webV4, "10.0.0.5"},
	"proxy.test.":         {"93.184.216.128"},

	"rebind.test.":           {webV4, "127.0.0.1"}, // one after the other, see answer
	"gone.test.search.test.": {otherV4},            // "gone.test" itself does not exist

	"slow.test.": nil, // never an answer
	"fail.test.": nil, // SERVFAIL
}

// inInternet gives the internet of the calling test, which runs again in a
// process that has one; nil in the process that starts that.
func inInternet(t *testing.T) *internet {
	t.Helper()
	if os.Getenv(envStage) != "home" {
		need(t, "userns", "home", "internet")
		again(t, newUser(unix.CLONE_NEWNET), envWorld+"=make")
		return nil
	}
	fd, err := strconv.Atoi(os.Getenv(envWorld))
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fd)
	control := os.NewFile(uintptr(fd), "control")
	t.Cleanup(func() { control.Close() })
	return &internet{t: t, control: control, in: bufio.NewReader(control)}
}

// makeInternet runs in the namespace that the launcher will live in, and gives
// the socket to speak with the internet, which ends with it.
func makeInternet() (control int, err error) {
	if err := os.MkdirAll(srv, 0o755); err != nil {
		return 0, err
	}
	// The name servers of the launcher. The file may be a link into /run, which
	// is empty here.
	conf := srv + "/resolv.conf"
	if err := os.WriteFile(conf, []byte("nameserver "+resolverV4+"\noptions timeout:5 attempts:2\n"), 0o644); err != nil {
		return 0, err
	}
	if target, err := os.Readlink("/etc/resolv.conf"); err == nil {
		target = filepath.Join("/etc", target)
		if filepath.IsAbs(target) && !strings.HasPrefix(target, "/etc/") {
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return 0, err
			}
			if f, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
				f.Close()
			}
		}
	}
	if err := unix.Mount(conf, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		return 0, fmt.Errorf("mount on /etc/resolv.conf: %w", err)
	}
	hosts := srv + "/hosts"
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n::1 localhost\n"+webV4+" hosts.test\n10.1.1.1 hosts-private.test\n"), 0o644); err != nil {
		return 0, err
	}
	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return 0, fmt.Errorf("mount on /etc/hosts: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envStage+"=internet")
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE}
	}
	err = cmd.Start()
	theirs.Close() // its end must be seen
	if err != nil {
		return 0, err
	}
	if err := ip(fmt.Sprintf(`link set lo up
link add wan type veth peer name net netns %d
link set wan addrgenmode none
link set wan up
addr add %s/24 dev wan
addr add %s/64 dev wan nodad
route add default via %s
route add default via %s
`, cmd.Process.Pid, ownV4, ownV6, gatewayV4, gatewayV6)); err != nil {
		return 0, err
	}
	// Tests listen where they like, as an ordinary user, too.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil && os.Getuid() != 0 {
		return 0, err
	}
	// "go", and it says "ready" when it serves.
	if _, err := unix.Write(pair[0], []byte("go\n")); err != nil {
		return 0, err
	}
	buf := make([]byte, 6)
	for got := 0; got < len(buf); {
		n, err := unix.Read(pair[0], buf[got:])
		if err != nil || n == 0 {
			return 0, fmt.Errorf("it ended before it served: %v", err)
		}
		got += n
	}
	_, err = unix.FcntlInt(uintptr(pair[0]), unix.F_SETFD, 0) // passes the exec to the test
	return pair[0], err
}

// ip runs lines of ip(8) in the network namespace of this process.
func ip(lines string) error {
	path := os.Getenv("PATH")
	defer os.Setenv("PATH", path)
	os.Setenv("PATH", path+":/usr/sbin:/sbin")
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(lines)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip: %w: %s", err, out)
	}
	return nil
}

// A report is what the internet has seen since it was last asked.
type report struct {
	Packets []string // "tcp 1.2.3.4:443", "udp [::1]:53", "icmp 1.2.3.4": each destination once
	Queries []string // "A web.test.", each once
	Ends    []string // how connections to the port portEnds ended: "eof 5" (bytes), "reset 5"
	Asked   []string // "CONNECT web.test:443", what the proxy was asked for
}

// seen gives everything since the last call.
func (w *internet) seen() report {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := io.WriteString(w.control, "report\n"); err != nil {
		w.t.Fatal(err)
	}
	line, err := w.in.ReadBytes('\n')
	if err != nil {
		w.t.Fatalf("the internet of the test is gone: %v", err)
	}
	var r report
	if err := json.Unmarshal(line, &r); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// only fails the test when a packet went to somewhere else than the
// destinations, the resolver apart.
func (w *internet) only(r report, destinations ...string) {
	w.t.Helper()
	for _, p := range r.Packets {
		if p != "udp "+resolverV4+":53" && p != "tcp "+resolverV4+":53" && !slices.Contains(destinations, p) {
			w.t.Errorf("a packet left for %s", p)
		}
	}
}

// Ports of the servers, which have every address.
const (
	portEcho   = 7    // TCP and UDP: what comes goes back; after the end of file, the end
	portHTTP   = 80   // and 8080, 8000-8003
	portHTTPS  = 443  // and 8443
	portGit    = 9418 // git daemon
	portSSH    = 22
	portBulk   = 5001 // as many bytes as the line says that comes
	portCount  = 5002 // counts bytes until the end of file, then answers with a line
	portReset  = 5003 // resets the connection when a byte has come
	portEnds   = 5004 // reads, and reports how the connection ended
	portSilent = 5005 // accepts and says nothing
	portProxy  = 3128 // CONNECT for every host, which is this one
)

// world is the state of the process that is the internet.
type world struct {
	mu      sync.Mutex
	report  report
	rebinds int
	tls     *tls.Config
	git     string // directory of git's own programs
}

func (w *world) note(list *[]string, s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(*list, s) {
		*list = append(*list, s)
	}
}

// serveInternet is the life of that process. It ends when the test does.
func serveInternet() error {
	control := os.NewFile(3, "control")
	unix.CloseOnExec(3)
	in := bufio.NewReader(control)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	// The route makes every address this host's own.
	if err := ip(fmt.Sprintf(`link set lo up
link set net addrgenmode none
link set net up
addr add %s/24 dev net
addr add %s/64 dev net nodad
route add local 0.0.0.0/0 dev lo table main
route add local ::/0 dev lo table main
`, gatewayV4, gatewayV6)); err != nil {
		return err
	}
	w := &world{}
	for _, start := range []func() error{w.capture, w.resolver, w.secrets, w.servers, w.programs} {
		if err := start(); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(control, "ready\n"); err != nil {
		return err
	}
	for {
		if _, err := in.ReadString('\n'); err != nil {
			return nil
		}
		w.mu.Lock()
		line, err := json.Marshal(w.report)
		w.report = report{}
		w.mu.Unlock()
		if err != nil {
			return err
		}
		if _, err := control.Write(append(line, '\n')); err != nil {
			return nil
		}
	}
}

// capture writes down where the packets of the launcher go.
func (w *world) capture() error {
	const all = unix.ETH_P_ALL
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, all))))
	if err != nil {
		return err
	}
	dev, err := net.InterfaceByName("net")
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8&0xff00 | all>>8, Ifindex: dev.Index}); err != nil {
		return err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, "capture:", err)
				os.Exit(2) // a test that sees nothing must not succeed
			}
			if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			if s := destination(buf[:n]); s != "" {
				w.note(&w.report.Packets, s)
			}
		}
	}()
	return nil
}

// destination tells where an IP packet goes; "" for what the kernels do among
// themselves and for all but the first of a TCP connection.
func destination(p []byte) string {
	if len(p) < 20 {
		return ""
	}
	var to netip.Addr
	var proto byte
	var rest []byte
	switch p[0] >> 4 {
	case 4:
		head := int(p[0]&15) * 4
		if len(p) < head {
			return ""
		}
		to, proto, rest = netip.AddrFrom4([4]byte(p[16:20])), p[9], p[head:]
	case 6:
		if len(p) < 40 {
			return ""
		}
		to, proto, rest = netip.AddrFrom16([16]byte(p[24:40])), p[6], p[40:]
	default:
		return "" // ARP
	}
	port := func() string {
		if len(rest) < 4 {
			return netip.AddrPortFrom(to, 0).String()
		}
		return netip.AddrPortFrom(to, binary.BigEndian.Uint16(rest[2:4])).String()
	}
	const syn, ack = 2, 16
	switch proto {
	case unix.IPPROTO_TCP:
		if len(rest) > 13 && rest[13]&(syn|ack) == syn {
			return "tcp " + port()
		}
		return ""
	case unix.IPPROTO_UDP:
		return "udp " + port()
	case unix.IPPROTO_ICMPV6:
		if len(rest) > 0 && rest[0] >= 130 { // neighbours and groups
			return ""
		}
		return "icmp " + to.String()
	case unix.IPPROTO_ICMP:
		return "icmp " + to.String()
	case 0: // hop-by-hop options: reports of multicast groups
		return ""
	}
	return fmt.Sprintf("protocol %d %s", proto, to)
}

// resolver is the name server of the launcher, over UDP and TCP.
func (w *world) resolver() error {
	for _, network := range []string{"udp4", "udp6"} {
		conn, err := listenUDP(network, 53)
		if err != nil {
			return err
		}
		go serveUDP(conn, w.answer)
	}
	return w.listen(53, func(c net.Conn) {
		for {
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err != nil {
				return
			}
			query := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(c, query); err != nil {
				return
			}
			if a := w.answer(query); a != nil {
				_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(a))), a...))
			}
		}
	})
}

// answer gives the response to a DNS query; nil for none.
func (w *world) answer(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	name := strings.ToLower(q.Name.String())
	w.note(&w.report.Queries, strings.TrimPrefix(q.Type.String(), "Type")+" "+q.Name.String())
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: h.RecursionDesired, RecursionAvailable: true},
		Questions: []dnsmessage.Question{q},
	}
	switch name {
	case "slow.test.":
		return nil
	case "fail.test.":
		m.RCode = dnsmessage.RCodeServerFailure
	}
	known := false
	for hop := 0; hop < 8 && m.RCode == dnsmessage.RCodeSuccess; hop++ {
		values, ok := zone[name]
		if _, parent, cut := strings.Cut(name, "."); !ok && cut {
			values, ok = zone["*."+parent]
		}
		known = known || ok
		if name == "rebind.test." && q.Type == dnsmessage.TypeA {
			w.mu.Lock()
			values = values[min(w.rebinds, 1):][:1] // public once, then this machine
			w.rebinds++
			w.mu.Unlock()
		}
		rr := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(name), Class: dnsmessage.ClassINET, TTL: 0}
		next := ""
		for _, v := range values {
			a, err := netip.ParseAddr(v)
			switch {
			case err != nil:
				next = v
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: rr, Body: &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(v)}})
			case a.Is4() && q.Type == dnsmessage.TypeA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: rr, Body: &dnsmessage.AResource{A: a.As4()}})
			case a.Is6() && q.Type == dnsmessage.TypeAAAA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: rr, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	if !known && m.RCode == dnsmessage.RCodeSuccess {
		m.RCode = dnsmessage.RCodeNameError
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

// listenUDP opens a port on every address.
func listenUDP(network string, port int) (*net.UDPConn, error) {
	conn, err := net.ListenUDP(network, &net.UDPAddr{Port: port})
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	// The address that a datagram came to is the one that its answer comes from.
	err = raw.Control(func(fd uintptr) {
		if network == "udp4" {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		} else {
			err = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1), unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1))
		}
	})
	return conn, err
}

func serveUDP(conn *net.UDPConn, f func([]byte) []byte) {
	buf, oob := make([]byte, 1<<16), make([]byte, 256)
	for {
		n, m, _, from, err := conn.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			return
		}
		a := f(buf[:n])
		if a == nil {
			continue
		}
		back := oob[:m]
		if cs, err := unix.ParseSocketControlMessage(oob[:m]); err == nil && len(cs) == 1 && cs[0].Header.Level == unix.IPPROTO_IP {
			// struct in_pktinfo: the index, the local address, the destination of the packet.
			to := [4]byte(cs[0].Data[8:12])
			back = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: to})
		}
		_, _, _ = conn.WriteMsgUDPAddrPort(a, back, from)
	}
}

// listen serves TCP connections to a port of every address.
func (w *world) listen(port int, f func(net.Conn)) error {
	l, err := tcpListener(port)
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return nil
}

func tcpListener(port int) (*net.TCPListener, error) {
	return net.ListenTCP("tcp", &net.TCPAddr{Port: port})
}

// secrets makes the keys of the internet, and what clients have to know of them.
func (w *world) secrets() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		return err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "web.test"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.ParseIP(webV4), net.ParseIP(webV6), net.ParseIP(otherV4), net.ParseIP(otherV6)},
	}
	for name := range zone {
		leaf.DNSNames = append(leaf.DNSNames, strings.TrimSuffix(name, "."))
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &leafKey.PublicKey, key)
	if err != nil {
		return err
	}
	w.tls = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{leafDER}, PrivateKey: leafKey}}}
	return os.WriteFile(srv+"/ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// servers are those that need no program.
func (w *world) servers() error {
	handler := http.NewServeMux()
	handler.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		to := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		fmt.Fprintf(rw, "reached %s as %s\n", to, r.Host)
	})
	exe, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return fmt.Errorf("git --exec-path: %w", err)
	}
	w.git = strings.TrimSpace(string(exe))
	handler.Handle("/git/", &cgi.Handler{
		Path: w.git + "/git-http-backend", Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + srv + "/git", "GIT_HTTP_EXPORT_ALL=1", "HOME=" + accountHome()},
	})
	for _, port := range []int{portHTTP, 8080, 8000, 8001, 8002, 8003, portHTTPS, 8443} {
		l, err := tcpListener(port)
		if err != nil {
			return err
		}
		var from net.Listener = l
		if port == portHTTPS || port == 8443 {
			config := w.tls.Clone()
			config.NextProtos = []string{"http/1.1"}
			from = tls.NewListener(l, config)
		}
		go func() {
			s := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
			_ = s.Serve(from)
		}()
	}
	for _, network := range []string{"udp4", "udp6"} {
		for _, port := range []int{portEcho, 443, 9999} {
			conn, err := listenUDP(network, port)
			if err != nil {
				return err
			}
			go serveUDP(conn, func(b []byte) []byte { return b })
		}
	}
	for port, f := range map[int]func(net.Conn){
		portEcho: func(c net.Conn) { _, _ = io.Copy(c, c) },
		portBulk: bulkServer,
		portCount: func(c net.Conn) {
			n, err := io.Copy(io.Discard, c)
			fmt.Fprintf(c, "%d bytes %v\n", n, err)
		},
		portReset: func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			_ = c.(*net.TCPConn).SetLinger(0)
		},
		portEnds: func(c net.Conn) {
			n, err := io.Copy(io.Discard, c)
			how := "eof"
			if errors.Is(err, unix.ECONNRESET) {
				how = "reset"
			}
			w.note(&w.report.Ends, fmt.Sprintf("%s %d", how, n))
		},
		portSilent: func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		portProxy: func(c net.Conn) {
			in := bufio.NewReader(c)
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			w.note(&w.report.Asked, r.Method+" "+r.RequestURI)
			_, port, _ := net.SplitHostPort(r.RequestURI)
			to, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
			if err != nil {
				fmt.Fprint(c, "HTTP/1.1 502 no\r\n\r\n")
				return
			}
			defer to.Close()
			fmt.Fprint(c, "HTTP/1.1 200 yes\r\n\r\n")
			go func() {
				_, _ = io.Copy(to, in)
				_ = to.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(c, to)
		},
	} {
		if err := w.listen(port, f); err != nil {
			return err
		}
	}
	return nil
}

func bulkServer(c net.Conn) {
	var n int
	if _, err := fmt.Fscanln(c, &n); err != nil {
		return
	}
	buf := make([]byte, 256<<10)
	for n > 0 {
		m, err := c.Write(buf[:min(n, len(buf))])
		if err != nil {
			return
		}
		n -= m
	}
}

// programs starts real servers: git daemon, and dropbear where it is installed.
// They serve the repository srv/git/repo.
func (w *world) programs() error {
	me, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		return err
	}
	env := []string{"HOME=" + me.HomeDir, "PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "LANG=C.UTF-8", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@test"}
	repo := srv + "/git/repo"
	script := `set -e
git init -q --bare -b main ` + repo + `
tree=$(git -C ` + repo + ` hash-object -t tree -w --stdin </dev/null)
git -C ` + repo + ` update-ref refs/heads/main "$(git -C ` + repo + ` commit-tree -m first "$tree")"
`
	if _, err := exec.LookPath("ssh-keygen"); err == nil {
		script += `ssh-keygen -q -t ed25519 -N '' -f ` + srv + `/id
mkdir -m 700 "$HOME/.ssh"
cp ` + srv + `/id.pub "$HOME/.ssh/authorized_keys"
chmod 600 "$HOME/.ssh/authorized_keys"
`
	}
	dropbear := lookSbin("dropbear")
	if dropbear != "" {
		script += `dropbearkey -t ed25519 -f ` + srv + `/hostkey | sed -n 's/^\(ssh-ed25519 [^ ]*\).*/* \1/p' >` + srv + `/known_hosts
`
	}
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	start := func(argv ...string) error {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = env
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if os.Getuid() != 0 {
			cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_BIND_SERVICE}
		}
		log, err := os.Create(srv + "/" + filepath.Base(argv[0]) + ".log")
		if err != nil {
			return err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
		return cmd.Start()
	}
	lockForever() // the servers end with the thread that started them
	if err := start(w.git+"/git-daemon", "--export-all", "--base-path="+srv, "--port="+strconv.Itoa(portGit), "--reuseaddr"); err != nil {
		return err
	}
	wait := []int{portGit}
	if dropbear != "" {
		if err := start(dropbear, "-F", "-E", "-s", "-r", srv+"/hostkey", "-p", strconv.Itoa(portSSH), "-P", srv+"/dropbear.pid"); err != nil {
			return err
		}
		wait = append(wait, portSSH)
	}
	for _, port := range wait {
		if !within(time.Minute, func() bool {
			c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
			if err == nil {
				c.Close()
			}
			return err == nil
		}) {
			return fmt.Errorf("nothing listens on port %d", port)
		}
	}
	return nil
}

// lookSbin finds a program of the administrator's; "" without.
func lookSbin(name string) string {
	for _, dir := range []string{"/usr/local/sbin/", "/usr/sbin/", "/sbin/", "/usr/local/bin/", "/usr/bin/"} {
		if _, err := os.Stat(dir + name); err == nil {
			return dir + name
		}
	}
	return ""
}
