package egress

import (
	"context"
	"net"
	"net/netip"
	"os"

	"github.com/wallsandbox/wall/plan"
)

// Options are what a Server uses of the world. The zero Options are for runs; tests
// give their own resolver and dialer.
type Options struct {
	// Observe is called with every event, by one goroutine, in order. Events wait in
	// a bounded queue; when it is full they are counted and dropped.
	Observe func(Event)
	// Resolve gives the addresses of a name that has no final dot; nil: the resolver
	// of the host.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to an address and port; nil: net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Own gives the addresses of the host's interfaces, which are refused as targets
	// unless a rule for networks grants them; nil: those of the host.
	Own func() []netip.Addr
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

// A Server is the network of one box, seen from outside.
type Server struct {
	network plan.Network
	options Options
	files   []*os.File
}

// New compiles the rules of a network. It opens nothing.
func New(n plan.Network, o Options) (*Server, error) {
	return &Server{network: n, options: o}, nil
}

// Publish listens on the host's 127.0.0.1 and ::1 for every published port, before
// the box is started: a port that is taken is a *plan.Error at the line that asks
// for it. Nothing is accepted before Start.
func (s *Server) Publish() error { return nil }

// Start serves the sockets until Close. It is called at most once.
func (s *Server) Start(k Sockets) error {
	for _, list := range [][]*os.File{k.Capture, k.DNSPackets, k.DNSStreams, k.HTTP, k.SOCKS} {
		s.files = append(s.files, list...)
	}
	for _, list := range k.Loopback {
		s.files = append(s.files, list...)
	}
	return nil
}

// Close ends every connection and lookup at once, closes every socket, waits until
// nothing of the Server runs any more, and gives the summary. It may be called at
// any time after New, and more than once; the last event has been observed when it
// returns.
func (s *Server) Close() Summary {
	for _, f := range s.files {
		f.Close()
	}
	s.files = nil
	return Summary{}
}
