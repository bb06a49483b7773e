package egress

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The two ends of a flow.
const (
	boxEnd  = 0 // the command's
	hostEnd = 1 // the other one: a host, or a port of this host
)

// A flow is one connection of the box: the accepted one, and the one that was made
// for it. It lives from accept until both are closed.
type flow struct {
	s    *Server
	at   entrance
	from *net.TCPConn // the accepted one

	mu     sync.Mutex
	ends   [2]*net.TCPConn
	passed [2]bool // what this end sent is at its end, and the other end knows
	over   bool
	reason string // why it ended, unless it did so by itself

	request *Head           // the only one that goes to the host; nil: everything does
	event   Event           // what is known of it, for the events to come
	moved   [2]atomic.Int64 // bytes that came from an end
	last    atomic.Int64    // time of the last byte, in terms of Server.now
	idle    *time.Timer
}

// attach makes a connection an end of the flow. With ok = false the flow is over,
// and the connection closed.
func (f *flow) attach(end int, c *net.TCPConn) (ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		reset(c)
		return false
	}
	f.ends[end] = c
	return true
}

// end closes both ends at once; with a reason before they are done. Then they get a
// reset, so that none takes what it has for everything. Only what is on the way to an
// end that has been told that it is the last still gets there: a reset would overtake it.
// After the end of a box, that is nothing unusual.
func (f *flow) end(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return
	}
	f.over = true
	f.reason = reason
	for i, c := range f.ends {
		switch {
		case c == nil:
		case f.passed[1-i] && (reason == "" || reason == boxEnded || unsent(c)):
			c.Close()
		default:
			reset(c)
		}
	}
}

// draining reports whether something that the box has sent has not been passed on yet.
// It is for boxes that have ended.
func (f *flow) draining() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.ends[boxEnd]
	return !f.over && !f.passed[boxEnd] && c != nil && bringing(c)
}

// tell adds an event about the flow.
func (f *flow) tell(kind, reason string) {
	e := f.event
	e.Kind, e.Reason = kind, reason
	f.s.journal.add(e)
}

// relay carries bytes between the ends until both have ended, one of them fails, or
// nothing has moved for the time that the plan allows. early is what the accepted
// end has sent already, late what the dialled one has.
func (f *flow) relay(early, late []byte) {
	start := f.s.now()
	f.last.Store(int64(start))
	if limit := f.s.network.Idle; limit > 0 {
		f.mu.Lock() // the timer may fire before it is stored
		f.idle = time.AfterFunc(time.Duration(limit), f.checkIdle)
		f.mu.Unlock()
	}
	for _, c := range f.ends {
		boundNear(c)
	}
	pending := [2][]byte{early, late}
	if f.from == f.ends[hostEnd] {
		pending = [2][]byte{late, early}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.half(hostEnd, pending[hostEnd])
	}()
	f.half(boxEnd, pending[boxEnd])
	<-done
	if f.idle != nil {
		f.idle.Stop()
	}
	f.mu.Lock()
	reason := f.reason
	f.mu.Unlock()
	f.event.In, f.event.Out = f.moved[hostEnd].Load(), f.moved[boxEnd].Load()
	f.event.Duration = f.s.now() - start
	f.tell(KindClose, reason)
}

// checkIdle ends the flow when it has been idle too long, and comes back otherwise.
func (f *flow) checkIdle() {
	limit := time.Duration(f.s.network.Idle)
	left := time.Duration(f.last.Load()) + limit - f.s.now()
	if left <= 0 {
		f.end(fmt.Sprintf("idle for %s", limit))
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.idle.Reset(left)
	}
}

// half carries what one end sends to the other one, first what it has sent already.
// It returns when the flow is over.
func (f *flow) half(end int, pending []byte) {
	src, dst := f.ends[end], f.ends[1-end]
	in, out, err := raw(src, dst)
	if err != nil {
		f.end(err.Error())
		return
	}
	if end == boxEnd && f.s.network.CheckSNI && f.event.Name != "" && f.request == nil {
		if pending, err = f.readHello(src, pending); err != nil {
			if reason, ok := err.(refusal); ok {
				f.tell(KindDeny, string(reason))
			}
			f.end(err.Error())
			return
		}
	}
	moved := func(n int) {
		f.moved[end].Add(int64(n))
		f.last.Store(int64(f.s.now()))
	}
	var dstErr error
	if end == boxEnd && f.request != nil {
		err, dstErr = f.oneRequest(src, pending, func(b []byte) error { return writeAll(out, b, moved) })
	} else if dstErr = writeAll(out, pending, moved); dstErr == nil {
		err, dstErr = f.s.pipes.carry(out, in, moved)
	}
	switch {
	case dstErr != nil:
		f.end(f.broken(1-end, dstErr))
		return
	case err != nil:
		f.end(f.broken(end, err))
		return
	}

	// The end of what came from src. Where the error of a reset has been told to the
	// other direction already, a reset looks the same.
	f.mu.Lock()
	if f.over {
		f.mu.Unlock()
		return
	}
	if !f.passed[1-end] && gone(in) {
		f.mu.Unlock()
		f.end(f.broken(end, syscall.ECONNRESET))
		return
	}
	dst.CloseWrite()
	f.passed[end] = true
	both := f.passed[1-end]
	f.mu.Unlock()
	if both {
		f.end("")
		return
	}
	// A reset can still come from src, while the other direction goes on.
	if waitGone(in) {
		f.mu.Lock()
		both = f.passed[1-end]
		f.mu.Unlock()
		if !both {
			f.end(f.broken(end, syscall.ECONNRESET))
		}
	}
}

// oneRequest carries the request whose head has been read, and no other: the next one
// could be for another host. A client that sends more, because it does not wait for the
// answer or because the host does not end the connection after it, is not listened to
// until the answer has ended.
func (f *flow) oneRequest(src *net.TCPConn, data []byte, pass func([]byte) error) (srcErr, dstErr error) {
	if err := pass(f.request.Request); err != nil {
		return nil, err
	}
	buf := make([]byte, bufferSize)
	for {
		n, err := f.request.Body.Take(data)
		if err != nil {
			return refusal(err.Error()), nil
		}
		if err := pass(data[:n]); err != nil {
			return nil, err
		}
		if n < len(data) {
			break
		}
		n, err = src.Read(buf)
		data = buf[:n]
		switch {
		case n > 0:
		case err == io.EOF:
			return nil, nil
		default:
			return err, nil
		}
	}
	defer src.SetReadDeadline(time.Time{})
	for {
		src.SetReadDeadline(time.Now().Add(answerTime))
		_, err := src.Read(buf)
		f.mu.Lock()
		ended := f.passed[hostEnd]
		f.mu.Unlock()
		quiet := f.s.now() - time.Duration(f.last.Load())
		switch {
		case err == io.EOF, ended:
			return nil, nil
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return err, nil
		case f.moved[hostEnd].Load() > 0 && quiet >= answerTime:
			return refusal("another request on the connection, which the host has not ended after its answer"), nil
		}
	}
}

// broken says how a direction ended.
func (f *flow) broken(end int, err error) string {
	who := [2]string{"the box", "the host"}
	if f.at.via == ViaPublish {
		who[hostEnd] = "the client"
	}
	var no refusal
	switch {
	case errors.As(err, &no):
		return err.Error()
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ENOTCONN):
		return "reset by " + who[end]
	default:
		return "broken: " + cause(err)
	}
}

// A refusal is why something is refused.
type refusal string

func (r refusal) Error() string { return string(r) }

// answerTime is how long a host may pause in its answer to a request while the client
// has sent another one.
const answerTime = time.Second

// mostReads bounds the pieces that a ClientHello comes in: each is looked at together
// with all before it.
const mostReads = 1000

// readHello reads what the command sends first, as long as it can be a TLS
// ClientHello, and gives it when it is none, or names the host of the flow. The time
// limit begins with the first byte: with many protocols the server speaks first.
func (f *flow) readHello(src *net.TCPConn, data []byte) ([]byte, error) {
	buf := make([]byte, 4096)
	for reads := 0; ; reads++ {
		name, state := ClientHello(data)
		switch state {
		case HelloNone:
			return data, src.SetReadDeadline(time.Time{})
		case HelloName:
			if name != f.event.Name {
				return nil, refusal("check-sni: the TLS handshake is for another host, " + name)
			}
			return data, src.SetReadDeadline(time.Time{})
		case HelloBare:
			return nil, refusal("check-sni: the TLS handshake names no host")
		case HelloBad:
			return nil, refusal("check-sni: the TLS handshake is malformed")
		}
		if len(data) > maxHello || reads == mostReads {
			return nil, refusal("the TLS handshake is too long, or comes in too many pieces")
		}
		if reads == 0 && len(data) > 0 || reads == 1 {
			src.SetReadDeadline(time.Now().Add(f.s.within(headTime)))
		}
		n, err := src.Read(buf)
		data = append(data, buf[:n]...)
		if n > 0 {
			f.last.Store(int64(f.s.now()))
		}
		switch {
		case n > 0:
		case err == io.EOF && len(data) == 0:
			return nil, nil
		case err == io.EOF, errors.Is(err, os.ErrDeadlineExceeded):
			return nil, refusal("the TLS handshake is not complete")
		default:
			return nil, errors.New(f.broken(boxEnd, err))
		}
	}
}
