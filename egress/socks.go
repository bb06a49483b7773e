package egress

import (
	"errors"
	"io"
)

// Replies of a SOCKS 5 server, RFC 1928 6.
const (
	SOCKSDone        = 0x00
	SOCKSFailure     = 0x01
	SOCKSRefused     = 0x02 // by the rules
	SOCKSUnreachable = 0x04 // the host
	SOCKSConnRefused = 0x05
	SOCKSTimeout     = 0x06
	SOCKSCommand     = 0x07
	SOCKSAddress     = 0x08
)

// ReadSOCKS reads the greeting and the request of a SOCKS 5 client (RFC 1928) and not
// one byte more. It answers the greeting, and a request that it cannot give a Target
// for; the answer to a Target is SOCKSReply, by the caller. Errors of the reader come
// as they are, others wrap ErrProtocol.
func ReadSOCKS(rw io.ReadWriter) (Target, error) { return Target{}, ErrProtocol }

// SOCKSReply gives the answer to a request.
func SOCKSReply(code byte) []byte {
	return []byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0}
}

// ErrProtocol is in the errors about what a client sent.
var ErrProtocol = errors.New("not what the protocol allows")
