package egress

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// certificate makes a certificate that nobody trusts.
func certificate(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestCheckSNI: a TLS handshake must be for the host of the connection, however it
// comes and by whatever entrance; what is not TLS passes, and a server may speak first.
func TestCheckSNI(t *testing.T) {
	n := ruled(t, "example.org 443", "93.184.215.0/24 443")
	n.CheckSNI = true
	w := newWorld(t, n, inTime(patience))
	w.name("example.org", "93.184.215.14")
	config := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	secure := func(c *net.TCPConn) {
		s := tls.Server(c, config)
		io.Copy(s, s)
		s.Close()
	}
	w.host("93.184.215.14:443", secure)
	handshake := func(c net.Conn, name string) error {
		s := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err := s.Handshake(); err != nil {
			return err
		}
		wantEcho(t, s, "through TLS")
		return nil
	}
	refused := func(c net.Conn, name, reason string) {
		t.Helper()
		before := countKind(w.events(), KindDeny)
		if err := handshake(c, name); err == nil {
			t.Errorf("a handshake for %q succeeds", name)
		}
		w.until("denial", func() bool { return countKind(w.events(), KindDeny) > before })
		for _, e := range w.events() {
			if e.Kind == KindDeny {
				before--
				if before < 0 && (e.Reason != reason || e.Name != "example.org" || e.Rule.Line != 1) {
					t.Errorf("%+v", e)
				}
			}
		}
	}
	entrances := map[string]func() net.Conn{
		"redirect": func() net.Conn { return w.to("example.org", 443) },
		"HTTP": func() net.Conn {
			_, c, _ := w.proxyHTTP("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n")
			return c
		},
		"SOCKS": func() net.Conn { _, c := w.proxySOCKS("example.org", netip.Addr{}, 443); return c },
	}
	for name, enter := range entrances {
		if err := handshake(enter(), "example.org"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := handshake(slowly{enter()}, "example.org"); err != nil {
			t.Errorf("%s, slowly: %v", name, err)
		}
		refused(enter(), "other.example", "check-sni: the TLS handshake is for another host, other.example")
		refused(slowly{enter()}, "other.example", "check-sni: the TLS handshake is for another host, other.example")
		refused(enter(), "sub.example.org", "check-sni: the TLS handshake is for another host, sub.example.org")
		refused(enter(), "", "check-sni: the TLS handshake names no host")
	}
	// No rule is about the name of a literal address.
	if err := handshake(w.redirect(netip.MustParseAddr("93.184.215.14"), 443), ""); err != nil {
		t.Error(err)
	}

	// A handshake that does not come to an end.
	w = newWorld(t, n, inTime(2*time.Second))
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", secure)
	for _, first := range []string{"\x16", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"} {
		c := w.to("example.org", 443)
		io.WriteString(c, first)
		wantReset(t, c)
		c = w.to("example.org", 443)
		io.WriteString(c, first)
		c.CloseWrite()
		wantReset(t, c)
	}
	c := w.to("example.org", 443)
	c.SetNoDelay(true)
	var err error
	for range 40 { // a byte now and then does not buy time
		if _, err = io.WriteString(c, "\x16"[:1]); err != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err == nil {
		t.Error("a slow handshake goes on")
	}

	// Other protocols: the server speaks first, and the command takes its time.
	w.host("93.184.215.14:443", func(c *net.TCPConn) {
		io.WriteString(c, "220 ready\r\n")
		echo(c)
	})
	c = w.to("example.org", 443)
	line := make([]byte, 11)
	if _, err := io.ReadFull(c, line); err != nil || string(line) != "220 ready\r\n" {
		t.Fatalf("%q %v", line, err)
	}
	time.Sleep(2500 * time.Millisecond)
	wantEcho(t, c, "EHLO me\r\n")
	c = w.to("example.org", 443)
	c.CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "220 ready\r\n" || err != nil {
		t.Errorf("%q %v", b, err)
	}
}

// slowly writes every byte on its own.
type slowly struct{ net.Conn }

func (c slowly) Write(b []byte) (int, error) {
	for i := range b {
		if _, err := c.Conn.Write(b[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// TestSlowHeads: who does not send what an entrance waits for is cut off.
func TestSlowHeads(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"), inTime(500*time.Millisecond))
	for _, c := range []struct {
		addr, say string
		denied    bool
	}{
		{w.http, "", true},
		{w.http, "GET http://example.org/ HTTP/1.1\r\nX: ", true},
		{w.socks, "", true},
		{w.socks, "\x05", true},
		{w.socks, "\x05\x01\x00\x05\x01\x00\x03\xff", true},
		{w.dns, "", false},
		{w.dns, "\x00\x20abc", false},
	} {
		before := countKind(w.events(), KindDeny)
		start := time.Now()
		conn, err := net.Dial("tcp4", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(start.Add(patience))
		io.WriteString(conn, c.say)
		io.ReadAll(conn)
		if d := time.Since(start); d < 400*time.Millisecond || d > 15*time.Second {
			t.Errorf("%q: cut off after %s", c.say, d)
		}
		conn.Close()
		if c.denied {
			w.until("denial", func() bool { return countKind(w.events(), KindDeny) > before })
		}
	}
}

// TestBadHeads: what is no request is refused in the words of the protocol, and told
// once; who goes away without a word is not told of.
func TestBadHeads(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"))
	for _, c := range []struct{ head, status string }{
		{"nonsense\r\n\r\n", "400"},
		{"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "400"},
		{"CONNECT exam\x00ple.org:443 HTTP/1.1\r\n\r\n", "400"},
		{"CONNECT 0x7f.1:443 HTTP/1.1\r\nHost: 0x7f.1:443\r\n\r\n", "400"},
		{"GET http://example.org/ HTTP/1.1\r\nX: " + strings.Repeat("y", 70000) + "\r\n\r\n", "431"},
	} {
		conn, err := net.Dial("tcp4", w.http)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		before := countKind(w.events(), KindDeny)
		io.WriteString(conn, c.head)
		b, err := io.ReadAll(conn)
		if !strings.HasPrefix(string(b), "HTTP/1.1 "+c.status) || err != nil {
			t.Errorf("%.30q: got %q, %v", c.head, b, err)
		}
		conn.Close()
		w.until("denial", func() bool { return countKind(w.events(), KindDeny) > before })
	}
	// A byte at a time: every piece is looked at together with all before it.
	conn, err := net.Dial("tcp4", w.http)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.(*net.TCPConn).SetNoDelay(true)
	conn.SetDeadline(time.Now().Add(patience))
	go func() {
		io.WriteString(conn, "GET http://example.org/ HTTP/1.1\r\nX: ")
		for range 70000 {
			if _, err := io.WriteString(conn, "y"); err != nil {
				return
			}
			runtime.Gosched()
		}
	}()
	if b, _ := io.ReadAll(conn); !strings.HasPrefix(string(b), "HTTP/1.1 431") {
		t.Errorf("%q", b)
	}

	other, err := net.Dial("tcp4", w.socks) // the goroutine above has conn
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	io.WriteString(other, "\x05\x01\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50")
	if b, err := io.ReadAll(other); len(b) != 12 || b[3] != SOCKSCommand || err != nil {
		t.Errorf("%q %v", b, err)
	}

	// Events are observed later than they are summed up.
	denials := func() int64 {
		w.journal.mu.Lock()
		defer w.journal.mu.Unlock()
		return w.journal.sum.Denied
	}
	denied := denials()
	for _, addr := range []string{w.http, w.socks} {
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	w.until("end", func() bool { return w.open.Load() == 0 })
	if n := denials(); n != denied {
		t.Errorf("%d denials of who said nothing", n-denied)
	}
}

// TestRefusedReadsAnswer: who is refused gets the whole answer and the end of the
// stream, and no reset behind it, also when it has sent more than was read: a reset
// could overtake the answer.
func TestRefusedReadsAnswer(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"))
	more := strings.Repeat("x", 32<<10)
	for _, c := range []struct{ addr, say, answer string }{
		{w.http, "CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n", "HTTP/1.1 403"},
		{w.http, "nonsense\r\n\r\n", "HTTP/1.1 400"},
		{w.socks, "\x05\x01\x00\x05\x01\x00\x03\x0dother.example\x01\xbb", "\x05\x00\x05\x02"},
		{w.socks, "\x05\x01\x00\x05\x02\x00\x01\x01\x02\x03\x04\x00\x50", "\x05\x00\x05\x07"},
	} {
		conn, err := net.Dial("tcp4", c.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		if _, err := io.WriteString(conn, c.say+more); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(conn); !strings.HasPrefix(string(b), c.answer) || err != nil {
			t.Errorf("%q: got %q, %v", c.say, b, err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Errorf("%q: %v", c.say, err)
		}
		rc, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		w.until("end of the connection", func() bool { return gone(rc) })
		rc.Control(func(fd uintptr) {
			if n, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); n != 0 || err != nil {
				t.Errorf("%q: after the answer: %v, %v", c.say, unix.Errno(n), err)
			}
		})
	}
}

// packQuery makes a DNS query.
func packQuery(t testing.TB, name string, kind dnsmessage.Type) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 77, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// longQuery makes a query of size bytes: an EDNS option fills it up.
func longQuery(t testing.TB, name string, size int) []byte {
	t.Helper()
	b := packQuery(t, name, dnsmessage.TypeA)
	b[11] = 1 // additional record
	const fixed = 11 + 4
	fill := size - len(b) - fixed
	b = append(b, 0, 0, typeOPT, 4, 208, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(4+fill))
	b = binary.BigEndian.AppendUint16(b, 12) // padding, RFC 7830
	b = binary.BigEndian.AppendUint16(b, uint16(fill))
	return append(b, make([]byte, fill)...)
}

// TestLookups: the same answers by packets and by connections, and an event for each.
func TestLookups(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"))
	check := func(how string, answer []byte, code dnsmessage.RCode, answers int) {
		t.Helper()
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || m.ID != 77 || m.RCode != code || len(m.Answers) != answers {
			t.Errorf("%s: %v %v", how, m, err)
		}
	}
	u, err := net.Dial("udp4", w.packets)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	u.SetDeadline(time.Now().Add(patience))
	c, err := net.Dial("tcp4", w.dns)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	u.Write([]byte("junk"))
	u.Write(make([]byte, 5000))
	for _, q := range []struct {
		name    string
		code    dnsmessage.RCode
		answers int
	}{{"example.org", dnsmessage.RCodeSuccess, 1}, {"other.example", dnsmessage.RCodeNameError, 0}, {"Example.ORG", dnsmessage.RCodeSuccess, 1}} {
		message := packQuery(t, q.name, dnsmessage.TypeA)
		u.Write(message)
		buf := make([]byte, 4096)
		n, err := u.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		check("UDP", buf[:n], q.code, q.answers)

		c.Write(binary.BigEndian.AppendUint16(nil, uint16(len(message))))
		c.Write(message)
		if _, err := io.ReadFull(c, buf[:2]); err != nil {
			t.Fatal(err)
		}
		n = int(binary.BigEndian.Uint16(buf))
		if _, err := io.ReadFull(c, buf[:n]); err != nil {
			t.Fatal(err)
		}
		check("TCP", buf[:n], q.code, q.answers)
	}
	w.until("6 lookups", func() bool { e := w.events(); return countKind(e, KindDNS) == 4 && countKind(e, KindDeny) == 2 })
	if d := w.find(KindDeny); d.Name != "other.example" || d.Via != ViaDNS || d.Port != 0 || d.Reason == "" {
		t.Errorf("%+v", d)
	}
	// The longest query there may be, and one that is a byte longer.
	for _, size := range []int{longestQuery, longestQuery + 1} {
		message := longQuery(t, "example.org", size)
		if r := w.resolver.Answer(message); r == nil || r[3]&0xf != 0 {
			t.Fatalf("%d bytes are no query: %x", size, r)
		}
		c.Write(binary.BigEndian.AppendUint16(nil, uint16(size)))
		c.Write(message)
		answer, err := []byte(nil), error(nil)
		if size <= longestQuery {
			answer = make([]byte, 2)
			_, err = io.ReadFull(c, answer)
			if n := int(binary.BigEndian.Uint16(answer)); err == nil && n > 0 {
				_, err = io.ReadFull(c, make([]byte, n))
			}
		} else {
			answer, _ = io.ReadAll(c) // a reset where the query is not read
		}
		if (len(answer) > 0) != (size <= longestQuery) || err != nil {
			t.Errorf("a query of %d bytes has the answer %x, %v", size, answer, err)
		}
	}
	if asked, _ := w.calls(); len(asked) > 0 {
		t.Errorf("asked the host for %v", asked)
	}
	if sum := w.Close(); sum.Denied != 2 || len(sum.Denials) != 1 || sum.Denials[0].Count != 2 {
		t.Errorf("%+v", sum)
	}
}

// TestConnectionLimit: one connection too many is reset and told; when one ends, there
// is room again. Connections of DNS clients have a limit of their own.
func TestConnectionLimit(t *testing.T) {
	n := ruled(t, "example.org 443")
	n.Connections = 5
	w := newWorld(t, n)
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", echo)
	var open []*net.TCPConn
	for range 5 {
		c := w.to("example.org", 443)
		wantEcho(t, c, "hello")
		open = append(open, c)
	}
	wantReset(t, w.to("example.org", 443))
	wantResetAt(t, w.http)
	w.until("2 denials", func() bool { return countKind(w.events(), KindDeny) == 2 })
	if e := w.find(KindDeny); e.Reason != "more than 5 connections at one time" || e.Name != "example.org" || e.Port != 443 {
		t.Errorf("%+v", e)
	}
	open[0].Close()
	w.until("room", func() bool { return w.open.Load() < 5 })
	wantEcho(t, w.to("example.org", 443), "hello again")

	for range mostLookups {
		c, err := net.Dial("tcp4", w.dns)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	w.until("DNS connections", func() bool { return w.lookups.Load() == mostLookups })
	wantResetAt(t, w.dns)
}

// TestFlood: very many connections at once, most of them above the limit, end no
// other connection and leave nothing.
func TestFlood(t *testing.T) {
	n := ruled(t, "example.org 443")
	n.Connections = 20
	w := newWorld(t, n)
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", echo)
	held := w.to("example.org", 443)
	wantEcho(t, held, "before")
	var wg sync.WaitGroup
	var served, refused atomic.Int64
	for range 50 {
		wg.Go(func() {
			for range 40 {
				c, err := net.Dial("tcp4", w.capture)
				if err != nil {
					refused.Add(1)
					continue
				}
				w.mu.Lock()
				w.target[c.LocalAddr().String()] = netip.AddrPortFrom(w.synthetic("example.org"), 443)
				w.wake.Broadcast()
				w.mu.Unlock()
				c.SetDeadline(time.Now().Add(patience))
				io.WriteString(c, "x")
				if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
					served.Add(1)
				} else {
					refused.Add(1)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	wantEcho(t, held, "after")
	held.Close()
	w.until("end", func() bool { return w.open.Load() == 0 })
	if served.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d served, %d refused", served.Load(), refused.Load())
	}
	if sum := w.Close(); sum.Opened != served.Load()+1 || len(sum.Denials) == 0 || len(sum.Denials) > mostDenials {
		t.Errorf("%d served, %d refused: %+v", served.Load(), refused.Load(), sum)
	}
}

// TestShortConnections: ten thousand of them, by all entrances, and nothing grows.
func TestShortConnections(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"), func(w *world, o *Options, k *Sockets) { o.Observe = nil })
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", echo)
	synthetic := w.synthetic("example.org")
	dial := func(addr string) *net.TCPConn {
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(patience))
		return c.(*net.TCPConn)
	}
	one := func(i int) {
		var c *net.TCPConn
		switch i % 4 {
		default:
			c = dial(w.capture)
			w.mu.Lock()
			w.target[c.LocalAddr().String()] = netip.AddrPortFrom(synthetic, uint16(443+i%4)) // every second is refused
			w.wake.Broadcast()
			w.mu.Unlock()
		case 2:
			c = dial(w.http)
			io.WriteString(c, "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n")
			io.ReadFull(c, make([]byte, len(HTTPReply(200, ""))))
		case 3:
			c = dial(w.socks)
			io.WriteString(c, "\x05\x01\x00\x05\x01\x00\x03\x0bexample.org\x01\xbb")
			io.ReadFull(c, make([]byte, 12))
		}
		io.WriteString(c, "x")
		c.CloseWrite()
		io.ReadAll(c)
		c.Close()
	}
	settle := func() (goroutines, files int, heap uint64) {
		w.until("end", func() bool { return w.open.Load() == 0 })
		w.mu.Lock()
		w.asked, w.dialed = nil, nil
		w.mu.Unlock()
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.pipes.mu.Lock()
		defer w.pipes.mu.Unlock()
		return runtime.NumGoroutine(), openFiles(t) - 2*len(w.pipes.free), m.HeapAlloc
	}
	run := func(n int) {
		var wg sync.WaitGroup
		var next atomic.Int64
		for range 8 {
			wg.Go(func() {
				for i := next.Add(1); i <= int64(n); i = next.Add(1) {
					one(int(i))
				}
			})
		}
		wg.Wait()
	}
	run(1000)
	g1, f1, h1 := settle()
	run(10000)
	g2, f2, h2 := settle()
	grown := func() bool { return g2 > g1+4 || f2 > f1+4 || h2 > h1+1<<20 }
	// What was on the other side of the last ones ends on its own.
	for end := time.Now().Add(patience / 2); grown() && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		g2, f2, h2 = settle()
	}
	if grown() {
		t.Errorf("goroutines %d to %d, descriptors %d to %d, heap %d to %d", g1, g2, f1, f2, h1, h2)
	}
	if sum := w.Close(); sum.Opened < 8000 || sum.Denied < 2500 || len(sum.Denials) != 1 {
		t.Errorf("%+v", sum)
	}
}

// TestBudget: whatever the limits, half of the descriptors remain.
func TestBudget(t *testing.T) {
	for _, files := range []uint64{0, 20, 64, 256, 1024, 4096, 20000, 1 << 20, 1<<64 - 1} {
		for _, connections := range []uint64{1, 256, 1 << 40} {
			b := budgetFor(files, connections)
			if b.connections < 1 || b.setups < 1 || b.pipes < 1 || uint64(b.connections) > connections {
				t.Errorf("%d files: %+v", files, b)
			}
			if n := b.connections*2 + b.setups*mostAttempts + b.pipes*2; files >= 64 && uint64(n) > files/2 {
				t.Errorf("%d files: %+v are %d descriptors", files, b, n)
			}
		}
	}
	if b := budgetFor(1024, 256); b.connections < 128 {
		t.Errorf("%+v", b)
	}
}

// TestNoDescriptors: when stage 1 has no descriptor left, connections wait without
// its processor time, and are served when there is one.
func TestNoDescriptors(t *testing.T) {
	line := newPeer(t, "full").line(t)
	if line != "ok" {
		t.Error(line)
	}
}

// noDescriptors is what TestNoDescriptors runs in a process of its own.
func noDescriptors() string {
	limit := unix.Rlimit{Cur: 256, Max: 256}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err.Error()
	}
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err.Error()
	}
	f, err := l.File()
	if err != nil {
		return err.Error()
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	s, err := New(ruled(&testing.T{}), Options{})
	if err != nil {
		return err.Error()
	}
	if err := s.Start(Sockets{HTTP: []*os.File{f}}); err != nil {
		return err.Error()
	}
	client, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err.Error()
	}
	var full []int
	for {
		fd, err := syscall.Open("/dev/null", syscall.O_RDONLY, 0)
		if err != nil {
			break
		}
		full = append(full, fd)
	}
	if err := syscall.Connect(client, &syscall.SockaddrInet4{Addr: [4]byte(addr.IP.To4()), Port: addr.Port}); err != nil {
		return err.Error()
	}
	syscall.Write(client, []byte("CONNECT a.example:1 HTTP/1.1\r\nHost: a.example:1\r\n\r\n"))
	used := func() time.Duration {
		var u syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	time.Sleep(time.Second)
	if n := used() - before; n > 300*time.Millisecond {
		return fmt.Sprintf("waiting a second took %s of processor time", n)
	}
	if s.open.Load() != 0 {
		return "a connection without a descriptor"
	}
	for _, fd := range full {
		syscall.Close(fd)
	}
	buf := make([]byte, 100)
	n, err := syscall.Read(client, buf)
	if !bytes.HasPrefix(buf[:max(n, 0)], []byte("HTTP/1.1 403")) {
		return fmt.Sprintf("got %q, %v", buf[:max(n, 0)], err)
	}
	s.Close()
	return "ok"
}

// TestSlowObserver: an observer that does not return holds up nothing but Close; what
// does not fit into the queue is counted.
func TestSlowObserver(t *testing.T) {
	let := make(chan bool)
	var seen atomic.Int64
	w := newWorld(t, ruled(t, "example.org 443"), func(w *world, o *Options, k *Sockets) {
		o.Observe = func(Event) { seen.Add(1); <-let }
	})
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", echo)
	u, err := net.Dial("udp4", w.packets)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	u.SetDeadline(time.Now().Add(patience))
	const lookups = queueLength + 500
	message := packQuery(t, "example.org", dnsmessage.TypeA)
	for range lookups {
		u.Write(message)
		if _, err := u.Read(make([]byte, 512)); err != nil {
			t.Fatal(err)
		}
	}
	wantEcho(t, w.to("example.org", 443), "not held up")
	close(let)
	sum := w.Close()
	if sum.Dropped < 499 || seen.Load()+sum.Dropped != lookups+2 || sum.Opened != 1 {
		t.Errorf("%d seen: %+v", seen.Load(), sum)
	}
}

// TestDenials: a summary holds a bounded number of different denials, with counts.
func TestDenials(t *testing.T) {
	j := newJournal(nil)
	for i := range 3 * mostDenials {
		for range 2 {
			j.add(Event{Kind: KindDeny, Name: fmt.Sprintf("n%d.example", i), Port: 443, Reason: "x"})
		}
	}
	j.add(Event{Kind: KindDeny, Name: "n0.example", Port: 444, Reason: "x"})
	sum := j.close()
	if sum.Denied != 6*mostDenials+1 || len(sum.Denials) != mostDenials || sum.Denials[0].Count != 2 || sum.Denials[0].Name != "n0.example" || sum.Denials[0].Time.IsZero() {
		t.Errorf("%d, %d: %+v", sum.Denied, len(sum.Denials), sum.Denials[0])
	}
	j.add(Event{Kind: KindDeny})
	if again := j.close(); again.Denied != sum.Denied {
		t.Error("an event after the end")
	}
}

// TestLastWords: what the command has sent before it ended arrives after Close, as it
// would without the wall.
func TestLastWords(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"))
	box, host := w.pair()
	data := make([]byte, 8<<20)
	got := make(chan int, 1)
	go func() {
		time.Sleep(50 * time.Millisecond) // so that much of it waits
		b, err := io.ReadAll(host)
		if err != nil {
			t.Error(err)
		}
		got <- len(b)
	}()
	box.Write(data)
	box.Close()
	w.Close()
	if n := <-got; n != len(data) {
		t.Errorf("%d bytes of %d arrived", n, len(data))
	}
}
