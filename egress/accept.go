package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/wallsandbox/wall/plan"
)

// An entrance is what is done with the connections of a listening socket.
type entrance struct {
	via    string
	port   int         // of ViaLoopback and ViaPublish
	origin plan.Origin // what grants that port; of the network otherwise
	serve  func(*flow)
	rooms  []room // a connection has a place in each
}

// A room is how many connections there may be at one time.
type room struct {
	count *atomic.Int64
	most  int64
	full  string // the reason to refuse one more
}

// enter takes a place in every room, or gives the reason why there is none.
func enter(rooms []room) (full string) {
	for i, r := range rooms {
		if r.count.Add(1) > r.most {
			leave(rooms[:i+1])
			return r.full
		}
	}
	return ""
}

func leave(rooms []room) {
	for _, r := range rooms {
		r.count.Add(-1)
	}
}

// rooms gives those of an entrance. Published ports, where every user of the host can
// connect, fill half of what there is at most: the rest is the command's.
func (s *Server) rooms(via string) []room {
	all := room{&s.open, s.most, s.tooMany}
	switch via {
	case ViaDNS:
		return []room{{&s.lookups, mostLookups, fmt.Sprintf("more than %d DNS connections at one time", mostLookups)}}
	case ViaPublish:
		most := max(s.most/2, 1)
		return []room{{&s.visits, most, fmt.Sprintf("more than %d connections to published ports at one time", most)}, all}
	}
	return []room{all}
}

// accept takes connections until the Server ends. When Close stops it, what it has
// taken is a flow.
func (s *Server) accept(l *net.TCPListener, a entrance) {
	defer s.accepting.Done()
	var pause time.Duration
	for !s.ending.Load() {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
			if err == nil {
				reset(c)
			}
			return
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue // Close set it
		}
		if err != nil {
			// No descriptor, or no memory: connections wait in the kernel until there is.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-s.ended:
			}
			continue
		}
		pause = 0
		s.admit(c, a)
	}
}

// takeRest admits what the kernel has ready at an entrance from which accept has
// returned.
func (s *Server) takeRest(l *net.TCPListener, a entrance) {
	for waiting(l) && l.SetDeadline(time.Now().Add(time.Second)) == nil {
		c, err := l.AcceptTCP()
		if err != nil {
			return
		}
		s.admit(c, a)
	}
}

// admit serves a connection in a goroutine of its own, unless there are too many.
func (s *Server) admit(c *net.TCPConn, a entrance) {
	if full := enter(a.rooms); full != "" {
		e := Event{Kind: KindDeny, Via: a.via, Port: a.port, Rule: a.origin, Reason: full}
		switch a.via {
		case ViaRedirect:
			t, _ := s.originalTarget(c)
			e.Name, e.Addr, e.Port = t.Name, addrText(t.Addr), t.Port
		case ViaPublish:
			e.Kind = KindFail // it is not the command that is refused something
		}
		reset(c)
		s.journal.add(e)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		leave(a.rooms)
		reset(c)
		return
	}
	f := &flow{s: s, at: a, from: c, event: Event{Via: a.via, Port: a.port, Rule: a.origin}}
	end := boxEnd
	if a.via == ViaPublish {
		end = hostEnd
	}
	f.ends[end] = c
	s.flows[f] = struct{}{}
	s.run(func() {
		a.serve(f)
		f.end("") // where it is not over yet it was refused: a reset
		s.mu.Lock()
		delete(s.flows, f)
		s.mu.Unlock()
		leave(a.rooms)
	})
}

// originalTarget gives what a redirected connection is for.
func (s *Server) originalTarget(c *net.TCPConn) (Target, error) {
	get := original
	if s.testOnlyOriginal != nil {
		get = s.testOnlyOriginal
	}
	to, err := get(c)
	if err != nil {
		return Target{}, refusal("it was not redirected, and is for nothing")
	}
	local, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok || to == netip.AddrPortFrom(local.AddrPort().Addr().Unmap().WithZone(""), uint16(local.Port)) {
		return Target{}, refusal("it was made to the socket for redirected connections itself")
	}
	if to.Port() == 0 {
		return Target{Addr: to.Addr()}, refusal("it is for port 0")
	}
	t := Target{Addr: to.Addr(), Port: int(to.Port())}
	if Synthetic(t.Addr) {
		return s.named(t)
	}
	return t, nil
}

// named gives the name that a synthetic address stands for.
func (s *Server) named(t Target) (Target, error) {
	name, ok := s.table.Name(t.Addr)
	if !ok {
		return t, refusal(reasonUnknown)
	}
	return Target{Name: name, Port: t.Port}, nil
}

// about notes what the flow is for.
func (f *flow) about(t Target) {
	f.event.Name, f.event.Addr, f.event.Port = t.Name, addrText(t.Addr), t.Port
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// redirected serves a connection that was meant for somewhere else.
func (s *Server) redirected(f *flow) {
	t, err := s.originalTarget(f.from)
	if err != nil {
		f.about(t)
		f.tell(KindDeny, err.Error())
		return
	}
	if late, err := s.connect(f, t); err == nil {
		f.relay(nil, late)
	}
}

// requestSOCKS serves a client of the SOCKS proxy.
func (s *Server) requestSOCKS(f *flow) {
	f.from.SetDeadline(time.Now().Add(s.within(headTime)))
	t, err := ReadSOCKS(f.from)
	if err != nil {
		f.badHead(err)
		f.linger()
		return
	}
	late, err := s.connect(f, t)
	if err != nil {
		f.answer(SOCKSReply(socksCode(err)))
		return
	}
	f.answered(SOCKSReply(SOCKSDone))
	f.relay(nil, late)
}

// requestHTTP serves a client of the HTTP proxy.
func (s *Server) requestHTTP(f *flow) {
	f.from.SetDeadline(time.Now().Add(s.within(headTime)))
	var data []byte
	var h Head
	buf := make([]byte, 4096)
	for reads := 0; ; reads++ {
		head, more, status, err := ParseHead(data)
		if err == nil && more && reads == mostReads {
			status, err = 431, fmt.Errorf("%w: the head of a request comes in too many pieces", ErrProtocol)
		}
		if err != nil {
			f.badHead(err)
			f.answer(HTTPReply(status, err.Error()))
			return
		}
		if !more {
			h = head
			break
		}
		n, err := f.from.Read(buf)
		data = append(data, buf[:n]...)
		if n == 0 && err != nil {
			if len(data) > 0 || !errors.Is(err, io.EOF) {
				f.badHead(err)
			}
			return
		}
	}
	late, err := s.connect(f, h.Target)
	if err != nil {
		f.answer(HTTPReply(httpStatus(err), cause(err)))
		return
	}
	if h.Connect {
		f.answered(HTTPReply(200, ""))
	} else {
		f.answered(nil)
		f.request = &h
	}
	f.relay(data[h.Size:], late)
}

// badHead tells of a request that is none.
func (f *flow) badHead(err error) {
	switch {
	case errors.Is(err, ErrProtocol):
		f.tell(KindDeny, err.Error())
	case errors.Is(err, os.ErrDeadlineExceeded):
		f.tell(KindDeny, fmt.Sprintf("no whole request in %s", headTime))
	}
	// Otherwise the client went away.
}

// answered sends the answer after which the bytes of the connection follow. An error
// of the client shows when they do.
func (f *flow) answered(b []byte) {
	f.from.SetDeadline(time.Time{}) // the one for the head may have passed meanwhile
	if len(b) > 0 {
		f.from.Write(b) // fits into the buffer of the socket
	}
}

// answer sends a refusal in the words of the protocol.
func (f *flow) answer(b []byte) {
	f.from.SetDeadline(time.Now().Add(time.Second))
	f.from.Write(b)
	f.linger()
}

// linger lets the client read the answer: a close with something unread is a reset,
// which could overtake it.
func (f *flow) linger() {
	f.from.SetDeadline(time.Now().Add(time.Second))
	f.from.CloseWrite()
	io.CopyN(io.Discard, f.from, 256<<10)
	f.mu.Lock()
	f.passed[hostEnd] = true
	f.mu.Unlock()
}

// toLoopback serves a connection to a granted port of the host's loopback interface.
func (s *Server) toLoopback(f *flow) {
	err := s.setUp(f, hostEnd, func(ctx context.Context) (c net.Conn, err error) {
		for _, a := range []string{"127.0.0.1", "::1"} {
			var again error
			if c, again = s.options.Dial(ctx, "tcp", net.JoinHostPort(a, strconv.Itoa(f.at.port))); again == nil {
				f.event.Addr = a
				return c, nil
			}
			err = cmp.Or(err, again)
		}
		return nil, err
	})
	if err == nil {
		f.relay(nil, nil)
	}
}

// toBox serves a connection of the host to a published port.
func (s *Server) toBox(f *flow) {
	err := s.setUp(f, boxEnd, func(ctx context.Context) (c net.Conn, err error) {
		inside := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
		if s.testOnlyInside != nil {
			inside = s.testOnlyInside
		}
		for _, a := range inside {
			var again error
			if c, again = s.dialInside(ctx, netip.AddrPortFrom(a, uint16(f.at.port))); again == nil {
				f.event.Addr = a.String()
				return c, nil
			}
			err = cmp.Or(err, again)
		}
		return nil, err
	})
	if err == nil {
		f.relay(nil, nil)
	}
}

// dialInside connects a fresh socket of the box.
func (s *Server) dialInside(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	network := "tcp4"
	if to.Addr().Is6() {
		network = "tcp6"
	}
	file, err := s.dialer(ctx, network)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return connectFile(ctx, file, to)
}
