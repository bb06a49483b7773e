package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wallsandbox/wall/plan"
)

// Options are what a Server uses of the world. The zero Options are for runs; tests
// give their own resolver and dialer.
type Options struct {
	// Observe is called with every event, by one goroutine, in order. Events wait in
	// a bounded queue; when it is full they are counted and dropped. Close waits for
	// the last call to return, unless one takes longer than two seconds then; what waits
	// behind that is dropped as well.
	Observe func(Event)
	// Resolve gives the addresses of a name that has no final dot; nil: the resolver
	// of the host.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to an address and port, and gives a *net.TCPConn; nil: net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Own gives the addresses of the host's interfaces, which are refused as targets
	// unless a rule for networks grants them; nil: those of the host. When they cannot
	// be told, nothing is dialled.
	Own func() ([]netip.Addr, error)
}

// Sockets are the sockets of the box's network namespace, made inside and handed
// over before the command exists. The Server owns the files from the call of Start
// on, and closes them also when Start fails.
type Sockets struct {
	Capture    []*os.File         // listening TCP sockets that every connection is redirected to; NetRedirect only
	DNSPackets []*os.File         // UDP sockets that queries are redirected to
	DNSStreams []*os.File         // listening TCP sockets that queries are redirected to
	HTTP       []*os.File         // listening on the port plan.Network.HTTP
	SOCKS      []*os.File         // listening on the port plan.Network.SOCKS
	Loopback   map[int][]*os.File // by port: listening on 127.0.0.1 and, where there is IPv6, ::1
	// Dialer gives a fresh, unconnected TCP socket of the box's namespace, for one
	// connection to a published port. The network is "tcp4" or "tcp6". It is called
	// by several goroutines, and must end when ctx does.
	Dialer func(ctx context.Context, network string) (*os.File, error)
}

// Time limits.
const (
	setupTime = 10 * time.Second // to resolve a name and connect to it
	headTime  = 10 * time.Second // to send the head of a request, or a ClientHello
	drainTime = time.Second      // for what a box that has ended sent last
)

const boxEnded = "the box has ended"

// A Server is the network of one box, seen from outside.
type Server struct {
	network  plan.Network
	options  Options
	rules    *Rules
	table    *Table
	resolver *Resolver
	upstream string // "host:port"; empty: none
	journal  *journal
	pipes    *pipes
	most     int64         // connections at one time
	tooMany  string        // the reason to refuse one more
	setups   chan struct{} // holds one element for each connection that is being set up
	inward   chan struct{} // the same, of those to published ports
	open     atomic.Int64  // connections
	visits   atomic.Int64  // of them, those to published ports
	lookups  atomic.Int64  // connections of DNS clients
	began    time.Time
	dialer   func(ctx context.Context, network string) (*os.File, error)

	// For tests, which have no second network namespace.
	testOnlyOriginal func(*net.TCPConn) (netip.AddrPort, error) // instead of original
	testOnlyInside   []netip.Addr                               // instead of 127.0.0.1 and ::1 of the box
	testOnlyTime     time.Duration                              // instead of setupTime and headTime

	ctx       context.Context // ends with the Server
	cancel    context.CancelFunc
	wg        sync.WaitGroup // every goroutine of the Server but the observer
	ended     chan struct{}  // closed by Close
	ending    atomic.Bool    // the same
	accepting sync.WaitGroup // goroutines in accept
	once      sync.Once
	sum       Summary

	mu        sync.Mutex
	closed    bool
	published []published
	sockets   []interface{ Close() error } // listeners and UDP sockets
	flows     map[*flow]struct{}
	doors     []door

	ownMu   sync.Mutex
	own     []netip.Addr
	ownTime time.Time
}

// A door is a listening socket that is served.
type door struct {
	l *net.TCPListener
	a entrance
}

// published is a port of the box and the sockets on the host that lead to it.
type published struct {
	grant     plan.PortGrant
	listeners []*net.TCPListener
}

// New compiles the rules of a network. It opens no socket.
func New(n plan.Network, o Options) (*Server, error) {
	s := &Server{network: n, options: o, table: &Table{}, began: time.Now(), flows: make(map[*flow]struct{}), ended: make(chan struct{})}
	rules, err := Compile(n, s.ownAddrs)
	if err != nil {
		return nil, err
	}
	s.rules = rules
	s.resolver = &Resolver{Rules: rules, Table: s.table, Seen: s.looked}
	if n.Method == plan.NetRedirect {
		// Without these, more lookups are told as refused.
		text, _ := os.ReadFile("/etc/resolv.conf")
		s.resolver.Search = searchDomains(string(text))
		name, _ := os.Hostname()
		s.resolver.Hostname, _ = ParseName(name)
	}
	if s.upstream, err = parseUpstream(n.Upstream); err != nil {
		return nil, err
	}
	if o.Resolve == nil {
		s.options.Resolve = resolveOnHost
	}
	if o.Dial == nil {
		s.options.Dial = dialFromHost
	}
	if o.Own == nil {
		s.options.Own = ownOfHost
		s.rules.local = routeIsLocal
	}
	b := budgetFor(openFileLimit(), n.Connections)
	s.most = int64(b.connections)
	s.tooMany = fmt.Sprintf("more than %d connections at one time", b.connections)
	if uint64(b.connections) < n.Connections {
		s.tooMany += ", which is what wall's limit of open files leaves"
	}
	s.setups = make(chan struct{}, b.setups)
	s.inward = make(chan struct{}, max(b.setups/2, 1))
	s.pipes = newPipes(b.pipes)
	s.journal = newJournal(o.Observe)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Publish listens on the host's 127.0.0.1 and ::1 for every published port, before
// the box is started: a port that is taken is a *plan.Error at the line that asks
// for it. Nothing is accepted before Start; connections wait.
func (s *Server) Publish() error {
	for _, grant := range s.network.Publish {
		listeners, err := listenOnLoopback(s.ctx, grant.Port)
		if err != nil {
			return &plan.Error{
				Op:     fmt.Sprintf("cannot publish port %d", grant.Port),
				Origin: grant.Origin,
				Err:    err,
				Hint:   "end what listens on this port of the host, or publish another port",
			}
		}
		s.mu.Lock()
		s.published = append(s.published, published{grant, listeners})
		for _, l := range listeners {
			s.hold(l)
		}
		s.mu.Unlock()
	}
	return nil
}

// hold keeps a socket for Close. The caller has locked mu.
func (s *Server) hold(c interface{ Close() error }) {
	if s.closed {
		c.Close()
	}
	s.sockets = append(s.sockets, c)
}

// run starts a goroutine that Close waits for. The caller has locked mu, and the
// Server is not closed.
func (s *Server) run(f func()) {
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		f()
	}()
}

// Start serves the sockets until Close. It is called at most once.
func (s *Server) Start(k Sockets) (err error) {
	var all []*os.File
	for _, list := range [][]*os.File{k.Capture, k.DNSPackets, k.DNSStreams, k.HTTP, k.SOCKS} {
		all = append(all, list...)
	}
	for _, list := range k.Loopback {
		all = append(all, list...)
	}
	defer func() {
		for _, f := range all { // what is served is a duplicate
			f.Close()
		}
	}()

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ending.Load() {
		return net.ErrClosed
	}
	if len(s.published) > 0 && k.Dialer == nil {
		return errors.New("published ports, and no way into the box")
	}
	s.dialer = k.Dialer
	var start []func() // when every socket is there
	var doors []door
	open := func(l *net.TCPListener, a entrance) {
		a.rooms = s.rooms(a.via)
		doors = append(doors, door{l, a})
	}
	streams := func(files []*os.File, a entrance) error {
		for _, f := range files {
			l, err := listener(f)
			if err != nil {
				return fmt.Errorf("cannot serve a %s socket of the box: %w", a.via, err)
			}
			s.hold(l)
			open(l, a)
		}
		return nil
	}
	err = cmp.Or( // they all fail for the same reason
		streams(k.Capture, entrance{via: ViaRedirect, origin: s.network.Origin, serve: s.redirected}),
		streams(k.HTTP, entrance{via: ViaHTTP, origin: s.network.Origin, serve: s.requestHTTP}),
		streams(k.SOCKS, entrance{via: ViaSOCKS, origin: s.network.Origin, serve: s.requestSOCKS}),
		streams(k.DNSStreams, entrance{via: ViaDNS, origin: s.network.Origin, serve: s.answerStream}),
	)
	for port, files := range k.Loopback {
		err = cmp.Or(err, streams(files, entrance{via: ViaLoopback, port: port, origin: s.loopbackOrigin(port), serve: s.toLoopback}))
	}
	for _, f := range k.DNSPackets {
		c, e := packets(f)
		if e != nil {
			err = cmp.Or(err, fmt.Errorf("cannot serve a dns socket of the box: %w", e))
			continue
		}
		s.hold(c)
		start = append(start, func() { s.answerPackets(c) })
	}
	for _, p := range s.published {
		for _, l := range p.listeners {
			open(l, entrance{via: ViaPublish, port: p.grant.Port, origin: p.grant.Origin, serve: s.toBox})
		}
	}
	if err != nil {
		return err // Close closes what was opened
	}
	s.doors = doors
	for _, d := range doors {
		s.accepting.Add(1)
		start = append(start, func() { s.accept(d.l, d.a) })
	}
	for _, f := range start {
		s.run(f)
	}
	return nil
}

func (s *Server) loopbackOrigin(port int) plan.Origin {
	for _, g := range s.network.Loopback {
		if g.Port == port {
			return g.Origin
		}
	}
	return s.network.Origin
}

// Close ends every connection and lookup at once, closes every socket, waits until
// nothing of the Server runs any more, and gives the summary. It may be called at
// any time after New, and more than once; the last event has been observed when it
// returns.
//
// Only where the command has sent something and closed its end, and that is still on
// its way, does Close wait for it, for a second at most: without the wall the kernel
// would deliver it after the end of the command.
func (s *Server) Close() Summary {
	s.once.Do(func() {
		s.drain()
		s.mu.Lock()
		s.closed = true
		s.cancel()
		for _, c := range s.sockets {
			c.Close()
		}
		flows := make([]*flow, 0, len(s.flows))
		for f := range s.flows {
			flows = append(flows, f)
		}
		s.mu.Unlock()
		for _, f := range flows {
			f.end(boxEnded)
		}
		s.wg.Wait()
		s.pipes.close()
		s.sum = s.journal.close()
	})
	return s.sum
}

// drain waits for what is on its way. A connection that has not even been accepted may
// have brought everything, too. To miss none between the kernel and the flows, the
// goroutines that accept are stopped first.
func (s *Server) drain() {
	s.ending.Store(true)
	close(s.ended)
	s.mu.Lock()
	doors := s.doors
	s.doors = nil
	s.mu.Unlock()
	for _, d := range doors {
		_ = d.l.SetDeadline(time.Unix(1, 0)) // long ago
	}
	s.accepting.Wait()
	for end := time.Now().Add(drainTime); ; time.Sleep(2 * time.Millisecond) {
		for _, d := range doors {
			if d.a.via != ViaPublish { // there it is the host that sends, to nobody
				s.takeRest(d.l, d.a)
			}
		}
		if !s.draining() || !time.Now().Before(end) {
			return
		}
	}
}

// draining reports whether a connection still brings what its closed end has sent.
func (s *Server) draining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.flows {
		if f.draining() {
			return true
		}
	}
	return false
}

// within gives a time limit.
func (s *Server) within(limit time.Duration) time.Duration {
	if s.testOnlyTime > 0 {
		return s.testOnlyTime
	}
	return limit
}

// now is the time since the Server was made. It follows the monotonic clock.
func (s *Server) now() time.Duration { return time.Since(s.began) }

// ownAddrs gives the addresses of the host as of the last refreshOwn.
func (s *Server) ownAddrs() []netip.Addr {
	s.ownMu.Lock()
	defer s.ownMu.Unlock()
	return s.own
}

// refreshOwn reads the addresses of the host again when that is long ago. Without
// them there is no decision about an address.
func (s *Server) refreshOwn() error {
	s.ownMu.Lock()
	defer s.ownMu.Unlock()
	if !s.ownTime.IsZero() && time.Since(s.ownTime) < time.Second {
		return nil
	}
	own, err := s.options.Own()
	if err != nil {
		return fmt.Errorf("the addresses of this host cannot be told: %w", err)
	}
	s.own, s.ownTime = own, time.Now()
	return nil
}

func ownOfHost() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, err
		}
		own = append(own, p.Addr().Unmap().WithZone(""))
	}
	return own, nil
}
