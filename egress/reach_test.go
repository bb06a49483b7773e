package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

func echo(c *net.TCPConn) {
	// As a plain reader and writer: package net keeps pipes of its own, which the tests
	// would count.
	io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
	c.Close()
}

func wantEcho(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(text))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != text {
		t.Fatalf("got %q, %v", b, err)
	}
}

// TestRefused: what no rule allows is reset at once and told, whatever entrance it
// takes, and nobody is asked or dialled for it.
func TestRefused(t *testing.T) {
	rules := []string{"example.org 443,8000-8010", "*.example.net 443", "!bad.example.net 443", "198.51.100.0/24 22", "0.0.0.0/0 9"}
	for _, c := range []struct {
		to     string // name or address
		port   int
		reason string
		line   int // of the rule; 0: none
	}{
		{"other.example", 443, "no rule allows it", 0},
		{"example.org", 80, "no rule allows this port of it", 1},
		{"example.org", 8011, "no rule allows this port of it", 1},
		{"www.example.org", 443, "no rule allows it", 0},
		{"example.net", 443, "no rule allows it", 0},
		{"bad.example.net", 443, "a rule denies it", 3},
		{"93.184.215.14", 443, "no rule allows this port of it", 5},
		{"2606:2800::1", 443, "no rule allows this address: rules for names do not", 0},
		{"198.51.100.7", 23, "no rule allows this port of it", 4},
		{"127.0.0.1", 9, "no rule allows this address, which is loopback", 0},
		{"10.0.0.1", 9, "no rule allows this address, which is private", 0},
		{"169.254.169.254", 9, "no rule allows this address, which is a metadata service", 0},
		{"203.0.113.77", 9, "no rule allows this address, which is the host's own", 0},
		{"198.18.200.200", 443, "the address stands for no name", 0},
	} {
		for _, via := range []string{ViaRedirect, ViaHTTP, ViaSOCKS} {
			t.Run(fmt.Sprintf("%s %d %s", c.to, c.port, via), func(t *testing.T) {
				w := newWorld(t, ruled(t, rules...))
				addr, err := netip.ParseAddr(c.to)
				name := ""
				if err != nil {
					name = c.to
				}
				switch via {
				case ViaRedirect:
					if name != "" {
						addr = w.synthetic(name)
					}
					wantReset(t, w.redirect(addr, c.port))
				case ViaHTTP:
					status, _, _ := w.proxyHTTP("CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", net.JoinHostPort(c.to, fmt.Sprint(c.port)))
					if status != 403 {
						t.Errorf("status %d", status)
					}
				case ViaSOCKS:
					if code, _ := w.proxySOCKS(name, addr, c.port); code != SOCKSRefused {
						t.Errorf("code %d", code)
					}
				}
				e := w.find(KindDeny)
				if e.Via != via || e.Reason != c.reason || e.Rule.Line != c.line || e.Port != c.port || e.Name != name || name == "" && e.Addr != c.to {
					t.Errorf("%+v", e)
				}
				if asked, dialed := w.calls(); len(asked)+len(dialed) > 0 {
					t.Errorf("asked for %v, dialled %v", asked, dialed)
				}
				sum := w.Close()
				if sum.Denied != 1 || len(sum.Denials) != 1 || sum.Denials[0].Event != e || sum.Opened+sum.Failed != 0 {
					t.Errorf("%+v", sum)
				}
			})
		}
	}
}

// proxyHTTP sends a head to the HTTP proxy, and gives the answer and what follows it.
func (w *world) proxyHTTP(format string, args ...any) (status int, c net.Conn, r *bufio.Reader) {
	w.Helper()
	c, err := net.Dial("tcp4", w.http)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, format, args...)
	r = bufio.NewReader(c)
	response, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
	if err != nil {
		w.Fatal(err)
	}
	return response.StatusCode, c, r
}

// proxySOCKS asks the SOCKS proxy for a name, or for an address where the name is empty.
func (w *world) proxySOCKS(name string, addr netip.Addr, port int) (code byte, c net.Conn) {
	w.Helper()
	c, err := net.Dial("tcp4", w.socks)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	request := []byte{5, 1, 0, 5, 1, 0}
	switch {
	case name != "":
		request = append(append(request, 3, byte(len(name))), name...)
	case addr.Is4():
		request = append(append(request, 1), addr.AsSlice()...)
	default:
		request = append(append(request, 4), addr.AsSlice()...)
	}
	c.Write(append(request, byte(port>>8), byte(port)))
	var answer [12]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		w.Fatal(err)
	}
	return answer[3], c
}

// TestEntrances: what is allowed is reached by every entrance.
func TestEntrances(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 80,443", "198.51.100.0/24 22"))
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", echo)
	w.host("198.51.100.7:22", echo)
	w.host("93.184.215.14:80", func(c *net.TCPConn) {
		b, _ := io.ReadAll(c)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s", b)
		c.Close()
	})

	wantEcho(t, w.to("example.org", 443), "by name")
	wantEcho(t, w.redirect(netip.MustParseAddr("198.51.100.7"), 22), "by address")

	status, c, r := w.proxyHTTP("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\nearly ")
	early := make([]byte, 6)
	if _, err := io.ReadFull(r, early); status != 200 || string(early) != "early " || err != nil {
		t.Errorf("status %d, %q, %v", status, early, err)
	}
	wantEcho(t, c, "by HTTP")
	status, c, _ = w.proxyHTTP("CONNECT 198.51.100.7:22 HTTP/1.1\r\nHost: 198.51.100.7:22\r\n\r\n")
	if status != 200 {
		t.Errorf("status %d", status)
	}
	wantEcho(t, c, "by HTTP")

	c, err := net.Dial("tcp4", w.http)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "POST http://Example.org/path HTTP/1.1\r\nHost: example.org\r\nContent-Length: 4\r\nProxy-Connection: keep-alive\r\n\r\nbody")
	c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(c); !strings.HasSuffix(string(b), "\r\n\r\nPOST /path HTTP/1.1\r\nHost: example.org\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody") || err != nil {
		t.Errorf("%q %v", b, err)
	}
	c.Close()

	for _, to := range []struct {
		name string
		addr netip.Addr
		port int
	}{{name: "example.org", port: 443}, {addr: netip.MustParseAddr("198.51.100.7"), port: 22}, {addr: w.synthetic("example.org"), port: 443}} {
		code, c := w.proxySOCKS(to.name, to.addr, to.port)
		if code != SOCKSDone {
			t.Fatalf("%v: code %d", to, code)
		}
		wantEcho(t, c, "by SOCKS")
	}
	w.until("8 connections open", func() bool { return countKind(w.events(), KindOpen) == 8 })
	for _, e := range w.events() {
		if e.Kind == KindDeny || e.Kind == KindFail || e.Name == "example.org" && (e.Addr != "93.184.215.14" || e.Rule.Line != 1) || e.Name == "" && e.Rule.Line != 2 {
			t.Errorf("%+v", e)
		}
	}
}

func countKind(events []Event, kind string) (n int) {
	for _, e := range events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// TestStraight: a connection to the socket for redirected connections itself is for
// nothing. This one asks the kernel, which knows of no redirect.
func TestStraight(t *testing.T) {
	w := newWorld(t, ruled(t, "0.0.0.0/0 *", "127.0.0.0/8 *"), tuned(func(s *Server) { s.testOnlyOriginal = nil }))
	wantResetAt(t, w.capture)
	if e := w.find(KindDeny); e.Via != ViaRedirect || !strings.Contains(e.Reason, "redirected") {
		t.Errorf("%+v", e)
	}

	w = newWorld(t, ruled(t, "0.0.0.0/0 *", "127.0.0.0/8 *"))
	self := netip.MustParseAddrPort(w.capture)
	wantReset(t, w.redirect(self.Addr(), int(self.Port())))
	if e := w.find(KindDeny); !strings.Contains(e.Reason, "itself") {
		t.Errorf("%+v", e)
	}
	if _, dialed := w.calls(); len(dialed) > 0 {
		t.Errorf("dialled %v", dialed)
	}
}

// TestResolvedAddresses: no answer of a resolver leads inside, whatever else it holds.
func TestResolvedAddresses(t *testing.T) {
	for _, addrs := range [][]string{
		{"10.1.2.3"}, {"127.0.0.1"}, {"::1"}, {"0.0.0.0"}, {"::"}, {"169.254.169.254"}, {"fd00:ec2::254"}, {"100.64.0.1"}, {"224.0.0.1"}, {"255.255.255.255"},
		{"fe80::1%lo"}, {"::ffff:10.1.2.3"}, {"64:ff9b::a01:203"}, {"198.18.0.1"}, {"fd77:616c:6c00::1"}, {"203.0.113.77"}, {"::ffff:203.0.113.77"},
		{"93.184.215.14", "10.1.2.3"}, {"10.1.2.3", "93.184.215.14"}, {"93.184.215.14", "2606:2800::1", "fd12::1"},
	} {
		t.Run(strings.Join(addrs, " "), func(t *testing.T) {
			w := newWorld(t, ruled(t, "example.org 443", "*.example.org 443"))
			w.name("example.org", addrs...)
			wantReset(t, w.to("example.org", 443))
			e := w.find(KindDeny)
			if !strings.HasPrefix(e.Reason, "no rule allows this address, which is ") || e.Name != "example.org" || e.Addr == "" {
				t.Errorf("%+v", e)
			}
			if _, dialed := w.calls(); len(dialed) > 0 {
				t.Errorf("dialled %v", dialed)
			}
		})
	}
	// A rule for the network grants it; one for a network around it does not.
	w := newWorld(t, ruled(t, "example.org 443", "10.0.0.0/8 443"))
	w.name("example.org", "10.1.2.3", "93.184.215.14")
	w.host("10.1.2.3:443", echo)
	wantEcho(t, w.to("example.org", 443), "granted")
	w = newWorld(t, ruled(t, "example.org 443", "0.0.0.0/0 443"))
	w.name("example.org", "10.1.2.3")
	w.host("10.1.2.3:443", echo)
	wantReset(t, w.to("example.org", 443))
}

// TestMappedAddresses: an IPv4 address in the clothes of IPv6, or one with a zone, is
// checked, told and dialled as what it is, and once.
func TestMappedAddresses(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443", "192.168.0.0/16 443", "fe80::/10 443"))
	w.name("example.org", "::ffff:93.184.215.14", "93.184.215.14", "::ffff:192.168.7.7", "192.168.7.7", "fe80::1%lo", "fe80::1")
	wantReset(t, w.to("example.org", 443))
	if e := w.find(KindFail); e.Addr != "93.184.215.14" {
		t.Errorf("%+v", e)
	}
	_, dialed := w.calls()
	slices.Sort(dialed)
	if want := []string{"192.168.7.7:443", "93.184.215.14:443", "[fe80::1]:443"}; !slices.Equal(dialed, want) {
		t.Errorf("dialled %v, want %v", dialed, want)
	}
}

// TestOwnUnknown: when the addresses of the host cannot be told, nothing is dialled.
func TestOwnUnknown(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"), func(w *world, o *Options, k *Sockets) {
		o.Own = func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }
	})
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", echo)
	wantReset(t, w.to("example.org", 443))
	if e := w.find(KindFail); !strings.Contains(e.Reason, "no netlink") {
		t.Errorf("%+v", e)
	}
	if _, dialed := w.calls(); len(dialed) > 0 {
		t.Errorf("dialled %v", dialed)
	}
	own, err := ownOfHost()
	if err != nil || !slices.Contains(own, netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("%v %v", own, err)
	}
}

// TestRebinding: a name is resolved once for a connection, and what was checked is
// what is dialled.
func TestRebinding(t *testing.T) {
	answers := [][]string{{"10.1.2.3"}, {"93.184.215.14"}, {"10.1.2.3"}, {"93.184.215.14"}}
	var asked atomic.Int64
	w := newWorld(t, ruled(t, "example.org 443"), func(w *world, o *Options, k *Sockets) {
		o.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			var list []netip.Addr
			for _, a := range answers[asked.Add(1)-1] {
				list = append(list, netip.MustParseAddr(a))
			}
			return list, nil
		}
	})
	w.host("93.184.215.14:443", echo)
	w.host("10.1.2.3:443", echo)
	for i, a := range answers {
		c := w.to("example.org", 443)
		if a[0] == "10.1.2.3" {
			wantReset(t, c)
		} else {
			wantEcho(t, c, "allowed")
		}
		if n := asked.Load(); n != int64(i)+1 {
			t.Errorf("connection %d: asked %d times", i+1, n)
		}
	}
	_, dialed := w.calls()
	for _, d := range dialed {
		if d != "93.184.215.14:443" {
			t.Errorf("dialled %s", d)
		}
	}
}

// TestManyAddresses: the first address that answers is taken, without waiting for
// those before it to fail, in turns of the families, and no attempt is left over.
func TestManyAddresses(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"))
	w.name("example.org", "2606:2800::1", "2606:2800::2", "2606:2800::3", "93.184.215.13", "93.184.215.14")
	w.hang("[2606:2800::1]:443", "[2606:2800::2]:443")
	w.host("93.184.215.14:443", echo) // 93.184.215.13 and 2606:2800::3 refuse
	wantEcho(t, w.to("example.org", 443), "found")
	_, dialed := w.calls()
	// Where the last one takes long to answer, another one is tried.
	if want := []string{"[2606:2800::1]:443", "93.184.215.13:443", "[2606:2800::2]:443", "93.184.215.14:443"}; !slices.Equal(dialed[:min(len(want), len(dialed))], want) {
		t.Errorf("dialled %v, want %v", dialed, want)
	}
	if e := w.find(KindOpen); e.Addr != "93.184.215.14" {
		t.Errorf("%+v", e)
	}

	// What fails is not waited for, and neither is what hangs when another one answered.
	w = newWorld(t, ruled(t, "example.org 443"))
	list := []string{"2606:2800::1"}
	w.hang("[2606:2800::1]:443")
	for i := range 14 {
		list = append(list, fmt.Sprintf("93.184.215.%d", 100+i)) // all refuse
	}
	w.name("example.org", append(list, "93.184.215.14")...)
	w.host("93.184.215.14:443", echo)
	for try := 1; ; try++ {
		start := time.Now()
		wantEcho(t, w.to("example.org", 443), "found")
		d := time.Since(start)
		if d <= 2500*time.Millisecond { // with a pause before each it is 3.5 s, with the time limit 10 s
			break
		}
		if try == 5 { // the machine may be busy
			t.Fatalf("took %s", d)
		}
	}

	// Two answer at the same time: one is taken, the other one closed.
	w = newWorld(t, ruled(t, "example.org 443"), func(w *world, o *Options, k *Sockets) {
		both := make(chan bool)
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			select {
			case both <- true:
			case <-both:
			}
			return w.dial(context.Background(), network, addr)
		}
	})
	closed := make(chan bool, 2)
	serve := func(c *net.TCPConn) { echo(c); closed <- true }
	w.name("example.org", "93.184.215.13", "93.184.215.14")
	w.host("93.184.215.13:443", serve)
	w.host("93.184.215.14:443", serve)
	wantEcho(t, w.to("example.org", 443), "found")
	<-closed
}

// TestUnreachable: a connection that is allowed and cannot be made is reset, and no denial.
func TestUnreachable(t *testing.T) {
	for _, c := range []struct {
		name   string
		addrs  []string
		reason string
		code   byte
		status int
	}{
		{"none.example", nil, "the name does not exist, or has no address", SOCKSUnreachable, 502},
		{"empty.example", []string{}, "the name has no address", SOCKSFailure, 502},
		{"closed.example", []string{"93.184.215.20"}, "connection refused", SOCKSConnRefused, 502},
		{"closed2.example", []string{"93.184.215.20", "93.184.215.21"}, "connection refused", SOCKSConnRefused, 502},
		{"slow.example", []string{"93.184.215.22"}, "no answer in 10s", SOCKSTimeout, 504},
		{"slow2.example", []string{"93.184.215.22", "93.184.215.23", "2606:2800::1"}, "no answer in 10s", SOCKSTimeout, 504},
	} {
		t.Run(c.name, func(t *testing.T) {
			within := patience
			if c.code == SOCKSTimeout {
				within = 2 * time.Second // for a head, too
				t.Parallel()
			}
			w := newWorld(t, ruled(t, c.name+" 443"), inTime(within))
			if c.addrs != nil {
				w.name(c.name, c.addrs...)
			}
			w.hang("93.184.215.22:443", "93.184.215.23:443", "[2606:2800::1]:443")
			wantReset(t, w.to(c.name, 443))
			if e := w.find(KindFail); e.Reason != c.reason || e.Rule.Line != 1 || e.Name != c.name {
				t.Errorf("%+v", e)
			}
			if code, _ := w.proxySOCKS(c.name, netip.Addr{}, 443); code != c.code {
				t.Errorf("code %d", code)
			}
			if status, _, _ := w.proxyHTTP("CONNECT %[1]s:443 HTTP/1.1\r\nHost: %[1]s:443\r\n\r\n", c.name); status != c.status {
				t.Errorf("status %d", status)
			}
			if sum := w.Close(); sum.Failed != 3 || len(sum.Failures) == 0 || sum.Failures[0].Name != c.name || sum.Denied != 0 || len(sum.Denials) != 0 {
				t.Errorf("%+v", sum)
			}
		})
	}
}

// TestSlowHeadAndHost: the time for a head and the time for a host add up.
func TestSlowHeadAndHost(t *testing.T) {
	const half = 2 * time.Second
	w := newWorld(t, ruled(t, "example.org 443"), func(w *world, o *Options, k *Sockets) {
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			time.Sleep(half * 3 / 2)
			return w.dial(ctx, network, addr)
		}
		w.tune = func(s *Server) { s.testOnlyTime = 2 * half }
	})
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", echo)
	c, err := net.Dial("tcp4", w.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, "CONNECT example.org:443 HTTP/1.1\r\n")
	time.Sleep(half)
	io.WriteString(c, "Host: example.org:443\r\n\r\n")
	answer := make([]byte, len(HTTPReply(200, "")))
	if _, err := io.ReadFull(c, answer); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Fatalf("%q %v", answer, err)
	}
	wantEcho(t, c, "after all")
}

// TestUpstream: with a proxy of the operator's, names are sent to it and nobody
// resolves them here; rules hold all the same.
func TestUpstream(t *testing.T) {
	n := ruled(t, "example.org 443", "198.51.100.0/24 22", "2606:2800::/32 22")
	n.Upstream = plan.Upstream{URL: "http://proxy.corp.example:3128"}
	w := newWorld(t, n, inTime(5*time.Second))
	heads := make(chan string, 10)
	answers := make(chan string, 1)
	w.host("proxy.corp.example:3128", func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		var head strings.Builder
		for !strings.HasSuffix(head.String(), "\r\n\r\n") {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
		}
		heads <- head.String()
		answer := <-answers
		if answer == "" {
			io.Copy(io.Discard, r)
			return
		}
		io.WriteString(c, answer)
		io.Copy(c, r)
		c.Close()
	})
	for _, to := range []struct {
		addr netip.Addr
		port int
		want string
	}{
		{w.synthetic("example.org"), 443, "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n"},
		{netip.MustParseAddr("198.51.100.7"), 22, "CONNECT 198.51.100.7:22 HTTP/1.1\r\nHost: 198.51.100.7:22\r\n\r\n"},
		{netip.MustParseAddr("2606:2800::1"), 22, "CONNECT [2606:2800::1]:22 HTTP/1.1\r\nHost: [2606:2800::1]:22\r\n\r\n"},
	} {
		answers <- "HTTP/1.1 200 Connection established\r\nX: y\r\n\r\nhello from far away"
		c := w.redirect(to.addr, to.port)
		late := make([]byte, len("hello from far away"))
		if _, err := io.ReadFull(c, late); err != nil || string(late) != "hello from far away" {
			t.Errorf("%q %v", late, err)
		}
		wantEcho(t, c, "through two proxies")
		if head := <-heads; head != to.want {
			t.Errorf("the proxy got %q", head)
		}
	}
	wantReset(t, w.to("other.example", 443))
	if asked, _ := w.calls(); len(heads)+len(asked) > 0 {
		t.Error("a refused name left the host")
	}

	for _, c := range []struct{ answer, reason string }{
		{"HTTP/1.1 403 Forbidden\r\n\r\n", "the upstream proxy answered 403"},
		{"SSH-2.0-x\r\n\r\n", "the upstream proxy: not the answer of an HTTP proxy"},
		{"HTTP/1.1 2000 OK\r\n\r\n", "the upstream proxy: not the answer of an HTTP proxy"},
		{"HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 4000), "the upstream proxy: an answer without end"},
		{"", "the upstream proxy: no answer in 10s"},
	} {
		answers <- c.answer
		before := countKind(w.events(), KindFail)
		wantReset(t, w.to("example.org", 443))
		w.until("failure", func() bool { return countKind(w.events(), KindFail) > before })
		events := w.events()
		if e := events[len(events)-1]; e.Reason != c.reason {
			t.Errorf("%q: %+v", c.answer, e)
		}
	}
	for err, want := range map[error]string{
		syscall.ECONNREFUSED:     "the upstream proxy: connection refused",
		io.EOF:                   "the upstream proxy: EOF",
		context.DeadlineExceeded: "the upstream proxy: no answer in 10s",
		context.Canceled:         boxEnded,
	} {
		if got := cause(proxyError{err}); got != want {
			t.Errorf("%v: %q", err, got)
		}
	}
	if u, err := parseUpstream(plan.Upstream{URL: "http://[2001:db8::1]:80"}); u != "[2001:db8::1]:80" || err != nil {
		t.Errorf("%q %v", u, err)
	}
}

// TestHostNet: the resolver and the dialer that runs have.
func TestHostNet(t *testing.T) {
	l := listenTCP(t)
	c, err := dialFromHost(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if addrs, err := resolveOnHost(context.Background(), "localhost"); err != nil || !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Unmap().IsLoopback() }) {
		t.Errorf("%v %v", addrs, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := resolveOnHost(ctx, "name.invalid"); err == nil {
		t.Error("an answer after the end")
	}
}

// TestLoopback: a granted port of the host's loopback interface, and only with its
// listener there.
func TestLoopback(t *testing.T) {
	var inside string
	n := ruled(t)
	n.Loopback = []plan.PortGrant{{Port: 5432, Origin: plan.Origin{Text: "loopback"}}}
	w := newWorld(t, n, func(w *world, o *Options, k *Sockets) {
		l := listenTCP(t)
		inside = l.Addr().String()
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		k.Loopback = map[int][]*os.File{5432: {f}}
	})
	dial := func() *net.TCPConn {
		c, err := net.Dial("tcp4", inside)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.TCPConn)
	}
	wantResetAt(t, inside)
	if e := w.find(KindFail); e.Via != ViaLoopback || e.Port != 5432 || e.Rule.Text != "loopback" || e.Reason != "connection refused" {
		t.Errorf("%+v", e)
	}
	w.host("[::1]:5432", echo)
	wantEcho(t, dial(), "over IPv6")
	w.host("127.0.0.1:5432", echo)
	wantEcho(t, dial(), "over IPv4")
	_, dialed := w.calls()
	if want := []string{"127.0.0.1:5432", "[::1]:5432", "127.0.0.1:5432", "[::1]:5432", "127.0.0.1:5432"}; !slices.Equal(dialed, want) {
		t.Errorf("dialled %v", dialed)
	}
}

// freePort gives a port that nothing listens on, on any address of the loopback interface.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		// Below net.ipv4.ip_local_port_range, so that no connection is given it meanwhile.
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{Port: 20000 + rand.IntN(12000)})
		if err == nil {
			l.Close()
			return l.Addr().(*net.TCPAddr).Port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// TestPublish: a port of the box on the host's loopback. The box is at 127.0.0.2 here.
func TestPublish(t *testing.T) {
	port := freePort(t)
	n := plan.Network{Connections: 10, Publish: []plan.PortGrant{{Port: port, Origin: plan.Origin{File: "p.toml", Line: 9}}}}
	w := newWorld(t, n, func(w *world, o *Options, k *Sockets) {
		k.Dialer = func(ctx context.Context, network string) (*os.File, error) {
			if network != "tcp4" {
				return nil, fmt.Errorf("asked for %s", network)
			}
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			return os.NewFile(uintptr(fd), "socket"), err
		}
		w.tune = func(s *Server) { s.testOnlyInside = []netip.Addr{netip.MustParseAddr("127.0.0.2")} }
	})
	dial := func() *net.TCPConn {
		c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c.(*net.TCPConn)
	}
	wantResetAt(t, fmt.Sprintf("127.0.0.1:%d", port))
	if e := w.find(KindFail); e.Via != ViaPublish || e.Port != port || e.Rule.Line != 9 || e.Reason != "connection refused" {
		t.Errorf("%+v", e)
	}
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go func() { io.WriteString(c, "hi"); echo(c) }()
		}
	}()
	c := dial()
	hi := make([]byte, 2)
	if _, err := io.ReadFull(c, hi); err != nil || string(hi) != "hi" {
		t.Fatal(hi, err)
	}
	wantEcho(t, c, "into the box")
	reset(c)
	if e := w.find(KindClose); e.Addr != "127.0.0.2" || e.In != 12 || e.Out != 14 || e.Reason != "reset by the client" {
		t.Errorf("%+v", e)
	}

	// The port is taken now.
	other, err := New(n, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var e *plan.Error
	if err := other.Publish(); !errors.As(err, &e) || e.Origin.Line != 9 || !errors.Is(err, syscall.EADDRINUSE) || plan.ExitStatus(err) != plan.ExitFailed {
		t.Errorf("%v", err)
	}
	w.Close()
	if _, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", port)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the port is still there: %v", err)
	}
	if err := other.Publish(); err != nil {
		t.Error(err)
	}
	if err := other.Start(Sockets{}); err == nil {
		t.Error("published ports without a way into the box")
	}
}

// TestPublishLeavesRoom: whoever is on the host can connect to a published port. However
// many do, and whether they get anywhere, the command keeps its connections; and
// nothing of it is a refusal of something that the command has tried.
func TestPublishLeavesRoom(t *testing.T) {
	port := freePort(t)
	n := ruled(t, "example.org 443")
	n.Connections = 300
	n.Publish = []plan.PortGrant{{Port: port, Origin: plan.Origin{File: "p.toml", Line: 9}}}
	w := newWorld(t, n, func(w *world, o *Options, k *Sockets) {
		k.Dialer = func(ctx context.Context, network string) (*os.File, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		w.tune = func(s *Server) {
			s.most = 160               // whatever the limit of open files
			s.testOnlyTime = time.Hour // the published port hangs for all of the test
		}
	})
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", echo)
	published := fmt.Sprintf("127.0.0.1:%d", port)
	for range 80 { // more than there are set-ups at one time
		c, err := net.Dial("tcp4", published)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	w.until("80 connections", func() bool { return w.open.Load() == 80 })
	wantResetAt(t, published)
	if e := w.find(KindFail); e.Via != ViaPublish || e.Port != port || e.Rule.Line != 9 || e.Reason != "more than 80 connections to published ports at one time" {
		t.Errorf("%+v", e)
	}
	for range 80 {
		wantEcho(t, w.to("example.org", 443), "out of the box")
	}
	if sum := w.Close(); sum.Denied != 0 || sum.Opened != 80 {
		t.Errorf("%+v", sum)
	}
}

// fullListener gives a listening socket and its address. Its queue is full: the kernel
// answers no attempt to connect until take has accepted what is in it.
func fullListener(t *testing.T) (to netip.AddrPort, take func() int) {
	t.Helper()
	full, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(full) })
	if err := syscall.Bind(full, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 2}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(full, 0); err != nil { // a queue of one
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(full)
	if err != nil {
		t.Fatal(err)
	}
	to = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), uint16(sa.(*syscall.SockaddrInet4).Port))
	c, err := net.Dial("tcp4", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return to, func() int {
		t.Helper()
		fd, _, err := syscall.Accept4(full, syscall.SOCK_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Close(fd) })
		return fd
	}
}

// freshSocket is a TCP socket as the box gives it.
func freshSocket(t *testing.T) *os.File {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "socket")
	t.Cleanup(func() { f.Close() })
	return f
}

// connecting waits until the kernel has begun to connect a socket, and not finished.
func connecting(t *testing.T, f *os.File) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		info, err := unix.GetsockoptTCPInfo(int(f.Fd()), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			t.Fatal(err)
		}
		if info.State == unix.BPF_TCP_SYN_SENT {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a socket in state %d, want one that connects", info.State)
		}
	}
}

// TestPublishWaits: a connection into the box is one only when the other side has
// answered, however late; when there is no time left for that, it is given up.
func TestPublishWaits(t *testing.T) {
	type result struct {
		c   net.Conn
		err error
	}
	connect := func(ctx context.Context, f *os.File, to netip.AddrPort) chan result {
		done := make(chan result, 1)
		go func() {
			c, err := connectFile(ctx, f, to)
			done <- result{c, err}
		}()
		return done
	}

	to, take := fullListener(t)
	before := openFiles(t)
	f := freshSocket(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := connect(ctx, f, to)
	connecting(t, f)
	cancel()
	r := <-done
	if r.err == nil {
		r.c.Close()
		t.Error("a connection that nobody has answered")
	} else if !errors.Is(r.err, os.ErrDeadlineExceeded) && !errors.Is(r.err, context.Canceled) {
		t.Error(r.err)
	}
	f.Close()
	if n := openFiles(t); n > before {
		t.Errorf("%d descriptors, want %d", n, before)
	}

	f = freshSocket(t)
	done = connect(context.Background(), f, to)
	connecting(t, f)
	take()
	if r = <-done; r.err != nil {
		t.Fatal(r.err)
	}
	defer r.c.Close()
	io.WriteString(r.c, "hello")
	b := make([]byte, 5)
	if n, err := syscall.Read(take(), b); string(b[:n]) != "hello" || err != nil {
		t.Errorf("got %q, %v", b[:n], err)
	}
}

// TestPublishSelf: when nothing listens on a published port, the kernel may give the
// socket that looks for it that port as its own. It is then connected to itself: the
// client would get an echo, and the command could not listen.
func TestPublishSelf(t *testing.T) {
	f := freshSocket(t)
	if err := syscall.Bind(int(f.Fd()), &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 2}}); err != nil {
		t.Fatal(err)
	}
	sa, err := syscall.Getsockname(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	to := sa.(*syscall.SockaddrInet4)
	c, err := connectFile(context.Background(), f, netip.AddrPortFrom(netip.AddrFrom4(to.Addr), uint16(to.Port)))
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connected to itself: %v", err)
	}
	f.Close()
	if err := syscall.Bind(int(freshSocket(t).Fd()), to); err != nil { // without SO_REUSEADDR
		t.Errorf("the port is taken: %v", err)
	}
}
