package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/wallsandbox/wall/plan"
)

// A world is a Server, a box and an internet, all on this machine's loopback
// interface: what a connection was meant for is noted when it is made, names are in
// a map, and so are the listeners that addresses stand for.
type world struct {
	testing.TB
	*Server
	events func() []Event
	tune   func(*Server) // right before the start

	capture, http, socks, dns string
	packets                   string

	mu     sync.Mutex
	wake   *sync.Cond
	target map[string]netip.AddrPort // by address of the client
	names  map[string][]netip.Addr
	hosts  map[string]string // "192.0.2.1:443" to the address of a listener; "hang": never an answer
	asked  []string          // names that were resolved
	dialed []string
}

// ruled makes a network that allows the rules, each of the form "name ports",
// "*.name ports" or "prefix ports", with "!" in front to deny.
func ruled(t testing.TB, rules ...string) plan.Network {
	t.Helper()
	n := plan.Network{Method: plan.NetRedirect, HTTP: 3128, SOCKS: 1080, Connections: 100, Origin: plan.Origin{Text: "network"}}
	for i, r := range rules {
		host, ports, _ := strings.Cut(strings.TrimPrefix(r, "!"), " ")
		rule := plan.HostRule{Origin: plan.Origin{File: "p.toml", Line: i + 1}}
		for p := range strings.SplitSeq(ports, ",") {
			var first, last int
			if p == "*" {
				first, last = 1, 65535
			} else if _, err := fmt.Sscanf(p, "%d-%d", &first, &last); err != nil {
				if _, err := fmt.Sscanf(p, "%d", &first); err != nil {
					t.Fatal(err)
				}
				last = first
			}
			rule.Ports = append(rule.Ports, plan.PortRange{First: first, Last: last})
		}
		if strings.Contains(host, "/") {
			rule.Prefix = host
		} else {
			rule.Name, rule.Suffix = strings.CutPrefix(host, "*.")
		}
		if strings.HasPrefix(r, "!") {
			n.Deny = append(n.Deny, rule)
		} else {
			n.Allow = append(n.Allow, rule)
		}
	}
	return n
}

const patience = time.Minute // where an answer is a matter of milliseconds

var worlds atomic.Int64 // that are open

func newWorld(t testing.TB, n plan.Network, change ...func(*world, *Options, *Sockets)) *world {
	t.Helper()
	w := &world{TB: t, target: make(map[string]netip.AddrPort), names: make(map[string][]netip.Addr), hosts: make(map[string]string)}
	w.wake = sync.NewCond(&w.mu)
	var mu sync.Mutex
	var seen []Event
	w.events = func() []Event { mu.Lock(); defer mu.Unlock(); return slices.Clone(seen) }
	o := Options{
		Observe: func(e Event) { mu.Lock(); seen = append(seen, e); mu.Unlock() },
		Resolve: w.resolve, Dial: w.dial,
		Own: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("203.0.113.77")}, nil },
	}
	var k Sockets
	file := func(l *net.TCPListener, addr *string) []*os.File {
		*addr = l.Addr().String()
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		return []*os.File{f}
	}
	k.Capture = file(listenTCP(t), &w.capture)
	k.HTTP = file(listenTCP(t), &w.http)
	k.SOCKS = file(listenTCP(t), &w.socks)
	k.DNSStreams = file(listenTCP(t), &w.dns)
	u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	w.packets = u.LocalAddr().String()
	f, err := u.File()
	if err != nil {
		t.Fatal(err)
	}
	u.Close()
	k.DNSPackets = []*os.File{f}
	for _, c := range change {
		c(w, &o, &k)
	}
	if w.Server, err = New(n, o); err != nil {
		t.Fatal(err)
	}
	w.testOnlyOriginal = w.original
	if w.tune != nil {
		w.tune(w.Server)
	}
	worlds.Add(1)
	t.Cleanup(func() {
		w.Close()
		if worlds.Add(-1) > 0 {
			return // the test has others, whose goroutines look the same
		}
		// Nothing of them runs any more, apart from last steps.
		buf := make([]byte, 1<<20)
		w.until("end of the Server's goroutines", func() bool {
			stacks := string(buf[:runtime.Stack(buf, true)])
			return !strings.Contains(stacks, "egress.(*Server)") && !strings.Contains(stacks, "egress.(*flow)") && !strings.Contains(stacks, "egress.newJournal")
		})
	})
	if err := w.Publish(); err != nil {
		t.Fatal(err)
	}
	if err := w.Start(k); err != nil {
		t.Fatal(err)
	}
	return w
}

func listenTCP(t testing.TB) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (w *world) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, name)
	addrs, ok := w.names[name]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return addrs, nil
}

func (w *world) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, addr)
	to, ok := w.hosts[addr]
	w.mu.Unlock()
	switch {
	case to == "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	case !ok:
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

// original waits until a connection's target has been noted.
func (w *world) original(c *net.TCPConn) (netip.AddrPort, error) {
	from := c.RemoteAddr().String()
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if to, ok := w.target[from]; ok {
			delete(w.target, from)
			return to, nil
		}
		w.wake.Wait()
	}
}

// name has a resolver know a name.
func (w *world) name(name string, addrs ...string) {
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = list
}

// host puts a server at an address of the internet.
func (w *world) host(addr string, serve func(*net.TCPConn)) {
	w.Helper()
	l := listenTCP(w)
	w.mu.Lock()
	w.hosts[addr] = l.Addr().String()
	w.mu.Unlock()
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
}

// calls gives the names that were resolved and the addresses that were dialled.
func (w *world) calls() (asked, dialed []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked), slices.Clone(w.dialed)
}

// hang has connections to addresses never come to be.
func (w *world) hang(addrs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range addrs {
		w.hosts[a] = "hang"
	}
}

// tuned has f change the Server right before it is started.
func tuned(f func(*Server)) func(*world, *Options, *Sockets) {
	return func(w *world, o *Options, k *Sockets) { w.tune = f }
}

// inTime has the Server wait no longer for names, hosts and heads.
func inTime(limit time.Duration) func(*world, *Options, *Sockets) {
	return tuned(func(s *Server) { s.testOnlyTime = limit })
}

// synthetic gives the address that the box has for a name.
func (w *world) synthetic(name string) netip.Addr {
	w.Helper()
	v4, _, ok := w.table.Add(name)
	if !ok {
		w.Fatalf("no address for %s", name)
	}
	return v4
}

// redirect makes a connection that was meant for an address.
func (w *world) redirect(addr netip.Addr, port int) *net.TCPConn {
	w.Helper()
	c, err := net.Dial("tcp4", w.capture)
	if err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	w.target[c.LocalAddr().String()] = netip.AddrPortFrom(addr, uint16(port))
	w.wake.Broadcast()
	w.mu.Unlock()
	w.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

// to makes a connection for a name.
func (w *world) to(name string, port int) *net.TCPConn {
	w.Helper()
	return w.redirect(w.synthetic(name), port)
}

// find waits for an event of a kind.
func (w *world) find(kind string) Event {
	w.Helper()
	var found Event
	w.until("an event "+kind, func() bool {
		for _, e := range w.events() {
			if e.Kind == kind {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("no %s; the events are %+v", what, w.events())
		}
	}
}

// wantReset reads until the connection ends, and fails when that is no reset.
func wantReset(t testing.TB, c net.Conn) {
	t.Helper()
	if b, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("got %q and the end %v, want a reset", b, err)
	}
}

// wantResetAt connects to an address and wants a reset, which may be so quick that it
// is the end of the attempt to connect.
func wantResetAt(t testing.TB, addr string) {
	t.Helper()
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	wantReset(t, c)
}

// openFiles counts the descriptors of the process.
func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestObserverStuck: an observer that never returns does not keep the box from ending,
// and what it missed is counted.
func TestObserverStuck(t *testing.T) {
	var calls atomic.Int64
	stuck, free := make(chan struct{}), make(chan struct{})
	j := newJournal(func(Event) {
		if calls.Add(1) == 3 {
			close(stuck)
			<-free
		}
	})
	for range 10 {
		j.add(Event{Kind: KindDeny})
	}
	<-stuck
	closed := make(chan Summary, 1)
	go func() { closed <- j.close() }()
	select {
	case s := <-closed:
		if s.Denied != 10 || s.Dropped != 8 {
			t.Errorf("%+v", s)
		}
	case <-time.After(time.Minute):
		t.Fatal("waits for ever")
	}
	close(free)
	<-j.done
	if n := calls.Load(); n != 3 {
		t.Errorf("%d calls", n)
	}
	if s := j.close(); s.Dropped != 8 {
		t.Errorf("%+v", s)
	}
}
