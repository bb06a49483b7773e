package egress

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

const (
	mostLookups  = 32   // connections of DNS clients at one time
	longestQuery = 4096 // bytes of a DNS query
)

// looked tells of a lookup.
func (s *Server) looked(l Lookup) {
	e := Event{Kind: KindDNS, Via: ViaDNS, Name: l.Name, Rule: l.Rule}
	if !l.Allowed {
		e.Reason = l.Reason
		if !l.Aside {
			e.Kind = KindDeny
		}
	}
	s.journal.add(e)
}

// answerPackets answers the DNS queries that come as packets, until the Server ends.
// An answer needs nobody else, so that one goroutine does for a socket.
func (s *Server) answerPackets(c *net.UDPConn) {
	query := make([]byte, longestQuery+1)
	for {
		n, from, err := c.ReadFromUDPAddrPort(query)
		if errors.Is(err, net.ErrClosed) || s.ctx.Err() != nil {
			return
		}
		if err != nil {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		if n > longestQuery {
			continue
		}
		if answer := s.resolver.Answer(query[:n]); answer != nil {
			c.WriteToUDPAddrPort(answer, from) // who does not take it asks again
		}
	}
}

// answerStream answers the DNS queries of a connection, RFC 1035 4.2.2.
func (s *Server) answerStream(f *flow) {
	var length [2]byte
	for {
		f.from.SetDeadline(time.Now().Add(s.within(headTime)))
		if _, err := io.ReadFull(f.from, length[:]); err != nil {
			break
		}
		n := binary.BigEndian.Uint16(length[:])
		if n > longestQuery {
			break
		}
		query := make([]byte, n)
		if _, err := io.ReadFull(f.from, query); err != nil {
			break
		}
		answer := s.resolver.Answer(query)
		if answer == nil {
			break
		}
		if _, err := f.from.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			break
		}
	}
	f.mu.Lock()
	f.passed[hostEnd] = true // a plain close: what has been answered arrives
	f.mu.Unlock()
}
