package egress

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wallsandbox/wall/plan"
)

const (
	mostAddresses = 16                     // of a name that are tried
	mostAttempts  = 4                      // to connect, at one time
	attemptPause  = 250 * time.Millisecond // before the next attempt joins in, RFC 8305 5
	mostReply     = 16 << 10               // bytes of the head of an upstream proxy's answer
)

// connect decides whether the target of a flow may be reached, and makes it the
// flow's other end. It tells what came of it. late is what that end has sent already.
func (s *Server) connect(f *flow, t Target) (late []byte, err error) {
	if t.Addr.IsValid() && Synthetic(t.Addr) {
		t, err = s.named(t)
	}
	f.about(t)
	if err != nil {
		f.tell(KindDeny, err.Error())
		return nil, err
	}
	if err := s.refreshOwn(); err != nil {
		f.tell(KindFail, err.Error())
		return nil, err
	}
	var d Decision
	if t.Name != "" {
		d = s.rules.Decide(t.Name, t.Port)
	} else {
		d = s.rules.DecideAddr(t.Addr, t.Port)
	}
	f.event.Rule = d.Rule
	if !d.Allowed {
		f.tell(KindDeny, d.Reason)
		return nil, refusal(d.Reason)
	}
	err = s.setUp(f, hostEnd, func(ctx context.Context) (net.Conn, error) {
		if s.upstream != "" {
			var c net.Conn
			c, late, err = s.dialUpstream(ctx, t)
			return c, err
		}
		addrs := []netip.Addr{t.Addr}
		if t.Name != "" {
			if addrs, err = s.resolve(ctx, f, t); err != nil {
				return nil, err
			}
		}
		c, addr, err := s.dialFirst(ctx, addrs, t.Port)
		f.event.Addr = addrText(addr)
		return c, err
	})
	return late, err
}

// setUp makes the other end of a flow within the time limit, and tells what came of
// it. An error is a refusal, or says why there is no connection.
func (s *Server) setUp(f *flow, end int, dial func(context.Context) (net.Conn, error)) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.within(setupTime))
	defer cancel()
	turns := []chan struct{}{s.setups}
	if f.at.via == ViaPublish {
		turns = []chan struct{}{s.inward, s.setups} // so that half of them remain
	}
	c, err := inTurns(ctx, turns, dial)
	var no refusal
	switch tcp, ok := c.(*net.TCPConn); {
	case errors.As(err, &no):
		f.tell(KindDeny, err.Error())
	case err != nil:
		f.tell(KindFail, cause(err))
	case !ok:
		c.Close()
		err = fmt.Errorf("a connection of the type %T", c)
		f.tell(KindFail, err.Error())
	case !f.attach(end, tcp):
		err = net.ErrClosed
	default:
		f.tell(KindOpen, "")
	}
	return err
}

// inTurns calls dial when every one of turns has room.
func inTurns(ctx context.Context, turns []chan struct{}, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	for _, t := range turns {
		select {
		case t <- struct{}{}:
			defer func() { <-t }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return dial(ctx)
}

// resolve gives the addresses of an allowed name, of which none may be forbidden: an
// answer that mixes in an address of the inside is not one to choose from.
func (s *Server) resolve(ctx context.Context, f *flow, t Target) ([]netip.Addr, error) {
	answer, err := s.options.Resolve(ctx, t.Name)
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, a := range answer {
		a = a.Unmap().WithZone("")
		if d := s.rules.DecideResolved(a, t.Port); !d.Allowed {
			f.event.Addr = addrText(a)
			if !d.Rule.IsZero() {
				f.event.Rule = d.Rule
			}
			return nil, refusal(d.Reason)
		}
		if len(addrs) < mostAddresses && !slices.Contains(addrs, a) {
			addrs = append(addrs, a)
		}
	}
	if len(addrs) == 0 {
		return nil, errors.New("the name has no address")
	}
	return addrs, nil
}

// dialFirst connects to the first of the addresses that answers. Attempts begin one
// after the other, families in turn, without waiting long for those before (RFC
// 8305). All have ended when it returns.
func (s *Server) dialFirst(ctx context.Context, addrs []netip.Addr, port int) (net.Conn, netip.Addr, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type attempt struct {
		c    net.Conn
		addr netip.Addr
		err  error
	}
	dial := func(a netip.Addr) attempt {
		c, err := s.options.Dial(ctx, "tcp", netip.AddrPortFrom(a, uint16(port)).String())
		return attempt{c, a, err}
	}
	if len(addrs) == 1 {
		got := dial(addrs[0])
		return got.c, got.addr, got.err
	}
	addrs = inTurn(addrs)
	ended := make(chan attempt, len(addrs))
	var won, lost attempt
	pause := time.NewTimer(0)
	defer pause.Stop()
	for next, running := 0, 0; ; {
		more := pause.C
		if next == len(addrs) || running == mostAttempts || won.c != nil {
			more = nil
		}
		if more == nil && running == 0 {
			break
		}
		select {
		case <-more:
			go func(a netip.Addr) { ended <- dial(a) }(addrs[next])
			next++
			running++
			pause.Reset(attemptPause)
		case got := <-ended:
			running--
			switch {
			case got.err != nil:
				if lost.err == nil {
					lost = got
				}
				pause.Reset(0)
			case won.c == nil:
				won = got
				cancel()
			default:
				got.c.Close()
			}
		}
		if ctx.Err() != nil && won.c == nil {
			next = len(addrs) // no time for another one
			lost.err = cmp.Or(lost.err, ctx.Err())
		}
	}
	if won.c != nil {
		return won.c, won.addr, nil
	}
	return nil, lost.addr, lost.err
}

// inTurn orders addresses so that the families take turns, and keeps their order otherwise.
func inTurn(addrs []netip.Addr) []netip.Addr {
	var lists [2][]netip.Addr // of the family of the first address, and of the other one
	for _, a := range addrs {
		i := 0
		if a.Is4() != addrs[0].Is4() {
			i = 1
		}
		lists[i] = append(lists[i], a)
	}
	var out []netip.Addr
	for i := range max(len(lists[0]), len(lists[1])) {
		for _, list := range lists {
			if i < len(list) {
				out = append(out, list[i])
			}
		}
	}
	return out
}

// resolveOnHost asks the resolver of the host: /etc/hosts and DNS. The final dot keeps
// it from trying search domains, and from finding a name of one label in /etc/hosts,
// where that is looked for first.
func resolveOnHost(ctx context.Context, name string) ([]netip.Addr, error) {
	if !strings.Contains(name, ".") {
		files := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.ErrUnsupported // no DNS
		}}
		if addrs, err := files.LookupNetIP(ctx, "ip", name); err == nil {
			return addrs, nil
		}
	}
	r := net.Resolver{PreferGo: true}
	return r.LookupNetIP(ctx, "ip", name+".")
}

func dialFromHost(ctx context.Context, network, addr string) (net.Conn, error) {
	d := net.Dialer{Resolver: &net.Resolver{PreferGo: true}}
	d.SetMultipathTCP(false)
	return d.DialContext(ctx, network, addr)
}

// parseUpstream gives the address of an upstream proxy in the form that Dial takes.
func parseUpstream(u plan.Upstream) (string, error) {
	if u.URL == "" {
		return "", nil
	}
	p, err := url.Parse(u.URL)
	if err != nil || p.Scheme != "http" || p.Hostname() == "" || p.Port() == "" {
		return "", &plan.Error{Op: "cannot use the upstream proxy", Origin: u.Origin, Err: errors.New("not of the form http://HOST:PORT")}
	}
	return net.JoinHostPort(p.Hostname(), p.Port()), nil
}

// dialUpstream asks the upstream proxy for a connection to the target. What the proxy
// has sent after its answer belongs to the connection.
func (s *Server) dialUpstream(ctx context.Context, t Target) (c net.Conn, late []byte, err error) {
	c, err = s.options.Dial(ctx, "tcp", s.upstream)
	if err != nil {
		return nil, nil, proxyError{err}
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) }) // long ago
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			c.Close()
			c = nil
		}
	}()
	host := net.JoinHostPort(t.Name+addrText(t.Addr), strconv.Itoa(t.Port)) // one of them is empty
	if _, err = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", host, host); err != nil {
		return c, nil, proxyError{err}
	}
	var data []byte
	buf := make([]byte, 4096)
	for {
		head, rest, whole := bytes.Cut(data, []byte("\r\n\r\n"))
		if whole {
			return c, rest, connected(head)
		}
		if len(data) > mostReply {
			return c, nil, errors.New("the upstream proxy: an answer without end")
		}
		n, err := c.Read(buf)
		data = append(data, buf[:n]...)
		if n == 0 && err != nil {
			return c, nil, proxyError{err}
		}
	}
}

// connected reads the head of an answer to CONNECT. Any status of 2xx is a yes (RFC
// 9110 9.3.6).
func connected(head []byte) error {
	line, _, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' || len(line) > 12 && line[12] != ' ' {
		return errors.New("the upstream proxy: not the answer of an HTTP proxy")
	}
	status, err := strconv.ParseUint(string(line[9:12]), 10, 16)
	if err != nil {
		return errors.New("the upstream proxy: not the answer of an HTTP proxy")
	}
	if status/100 != 2 {
		return fmt.Errorf("the upstream proxy answered %d", status)
	}
	return nil
}

// A proxyError is what stands between wall and its upstream proxy.
type proxyError struct{ err error }

func (e proxyError) Error() string { return "the upstream proxy: " + e.err.Error() }
func (e proxyError) Unwrap() error { return e.err }

// cause says why a connection could not be made, without what is in the event anyway.
func cause(err error) string {
	var dns *net.DNSError
	var errno syscall.Errno
	var timeout interface{ Timeout() bool }
	var proxy proxyError
	switch {
	case errors.As(err, &proxy):
		if text := cause(proxy.err); text != boxEnded {
			return "the upstream proxy: " + text
		}
		return boxEnded
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the name does not exist, or has no address"
	case errors.As(err, &dns) && dns.IsTimeout:
		return "the resolver of the host does not answer"
	case errors.As(err, &dns):
		return "the name cannot be resolved"
	case errors.Is(err, context.Canceled), errors.Is(err, net.ErrClosed):
		return boxEnded
	case errors.As(err, &errno):
		return errno.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer in %s", setupTime)
	}
	return err.Error()
}

// socksCode gives the reply to a SOCKS request that an error of connect calls for.
func socksCode(err error) byte {
	var no refusal
	var dns *net.DNSError
	switch {
	case errors.As(err, &no):
		return SOCKSRefused
	case errors.Is(err, syscall.ECONNREFUSED):
		return SOCKSConnRefused
	case errors.As(err, &dns), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return SOCKSUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return SOCKSTimeout
	}
	return SOCKSFailure
}

// httpStatus gives the status for an HTTP request that an error of connect calls for.
func httpStatus(err error) int {
	switch socksCode(err) {
	case SOCKSRefused:
		return 403
	case SOCKSTimeout:
		return 504
	}
	return 502
}
