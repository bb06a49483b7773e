package egress

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
)

// ErrProtocol is in the errors about what a client of the proxies sent, which hold
// nothing of it.
var ErrProtocol = errors.New("not what the protocol allows")

// Replies of a SOCKS 5 server, RFC 1928 6.
const (
	SOCKSDone        = 0
	SOCKSFailure     = 1 // of any other kind
	SOCKSRefused     = 2 // by the rules
	SOCKSUnreachable = 4 // the host
	SOCKSConnRefused = 5 // by the host
	SOCKSTimeout     = 6
	SOCKSCommand     = 7 // not CONNECT
	SOCKSAddress     = 8 // of an unknown type
)

// ReadSOCKS reads the greeting and the request of a SOCKS 5 client (RFC 1928) and not
// one byte more. It answers the greeting, and a request that is not a right one to
// connect; to a Target the caller answers, with [SOCKSReply]. Errors of rw come as
// they are, others wrap [ErrProtocol].
func ReadSOCKS(rw io.ReadWriter) (Target, error) {
	refuse := func(answer []byte, why string) (Target, error) {
		if _, err := rw.Write(answer); err != nil {
			return Target{}, err
		}
		return Target{}, fmt.Errorf("%s: %w", why, ErrProtocol)
	}
	var buf [256]byte
	read := func(n int) ([]byte, error) {
		_, err := io.ReadFull(rw, buf[:n])
		return buf[:n], err
	}

	b, err := read(2) // version, number of methods
	if err != nil {
		return Target{}, err
	}
	switch {
	case b[0] == 4:
		return refuse([]byte{0, 91, 0, 0, 0, 0, 0, 0}, "SOCKS 4") // "request rejected or failed"
	case b[0] != 5:
		return Target{}, fmt.Errorf("not SOCKS 5: %w", ErrProtocol)
	}
	methods, err := read(int(b[1]))
	if err != nil {
		return Target{}, err
	}
	none := false
	for _, m := range methods {
		none = none || m == 0
	}
	if !none {
		return refuse([]byte{5, 0xff}, "SOCKS with authentication")
	}
	if _, err := rw.Write([]byte{5, 0}); err != nil {
		return Target{}, err
	}

	b, err = read(4) // version, command, reserved, type of address
	if err != nil {
		return Target{}, err
	}
	version, command, reserved, kind := b[0], b[1], b[2], b[3]
	if version != 5 || reserved != 0 {
		return refuse(SOCKSReply(SOCKSFailure), "not SOCKS 5")
	}
	size := 0
	switch kind {
	case 1:
		size = 4
	case 3:
		if b, err = read(1); err != nil {
			return Target{}, err
		}
		size = int(b[0])
	case 4:
		size = 16
	default:
		return refuse(SOCKSReply(SOCKSAddress), "a SOCKS address of an unknown type")
	}
	host, err := read(size)
	if err != nil {
		return Target{}, err
	}
	var t Target
	var wrong error
	if kind == 3 {
		t.Name, wrong = ParseName(string(host))
	} else {
		t.Addr, _ = netip.AddrFromSlice(host)
		t.Addr = t.Addr.Unmap()
	}
	if b, err = read(2); err != nil {
		return Target{}, err
	}
	t.Port = int(b[0])<<8 | int(b[1])
	switch {
	case command != 1: // CONNECT; 2 is BIND, 3 UDP ASSOCIATE
		return refuse(SOCKSReply(SOCKSCommand), "a SOCKS command other than CONNECT")
	case wrong != nil:
		return refuse(SOCKSReply(SOCKSRefused), wrong.Error())
	case t.Port == 0:
		return refuse(SOCKSReply(SOCKSRefused), "port 0")
	}
	return t, nil
}

// SOCKSReply gives the answer to a request. It has no address, for the connection
// that was made is none of the box's.
func SOCKSReply(code byte) []byte { return []byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0} }
