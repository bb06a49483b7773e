package egress

import "encoding/binary"

const (
	// maxHello bounds the TLS records that a ClientHello comes in.
	maxHello = 64 << 10
	// maxRecords bounds their number: one would do, but some clients cut a
	// ClientHello into several.
	maxRecords = 128
)

// A HelloState is what the first bytes of a connection are.
type HelloState int

// What the first bytes of a connection are.
const (
	HelloMore HelloState = iota // no byte yet, or the beginning of a ClientHello: read on
	HelloName                   // a ClientHello that names a host
	HelloBare                   // a ClientHello that names none
	HelloNone                   // not TLS
	HelloBad                    // meant as TLS, and not right
)

// ClientHello reads the server name in the TLS ClientHello that data begins with
// (RFC 8446 4.1.2, RFC 6066 3). The name is as of [ParseName]. It is strict, for what
// this reads and what a server reads must be the same: a name that comes twice, a
// length that does not fit, or a record of another kind before the end of the
// ClientHello is HelloBad. More than maxHello bytes are never asked for.
//
// The name in an encrypted ClientHello is not seen; its outer name is.
func ClientHello(data []byte) (name string, state HelloState) {
	var hello []byte // the handshake message, from all records
	need := 4        // bytes of it: type and length, then as many as these say
	for records := 0; len(hello) < need; records++ {
		if state := isRecord(data); state != HelloName {
			return "", state
		}
		if len(data) < 5 {
			return "", HelloMore
		}
		size := int(binary.BigEndian.Uint16(data[3:]))
		if size == 0 || size > 1<<14 || records == maxRecords { // RFC 8446 5.1
			return "", HelloBad
		}
		part := data[5:]
		if len(part) > size {
			part = part[:size]
		}
		hello = append(hello, part...)
		if len(hello) > 0 && hello[0] != 1 { // client_hello
			return "", HelloBad
		}
		if len(hello) >= 4 {
			need = 4 + int(hello[1])<<16 + int(hello[2])<<8 + int(hello[3])
			if need > maxHello-5*maxRecords {
				return "", HelloBad
			}
		}
		if len(data) < 5+size { // the record goes on, and so must the message
			if len(hello) >= need {
				return "", HelloBad
			}
			return "", HelloMore
		}
		data = data[5+size:]
	}
	if len(hello) != need {
		return "", HelloBad
	}
	return serverName(hello[4:])
}

// isRecord reports whether data begins as a handshake record of TLS does, as far as
// it goes: HelloName for yes. A server may read over an alert or a change of cipher
// before the ClientHello, and may take one in the form of SSL 2.0, which has no name.
func isRecord(data []byte) HelloState {
	switch {
	case len(data) == 0:
		return HelloMore
	case data[0] == 22: // handshake
		if len(data) > 1 && data[1] != 3 {
			return HelloBad
		}
		return HelloName
	case data[0] >= 20 && data[0] <= 24: // the other types of records
		if len(data) == 1 {
			return HelloMore
		}
		if data[1] == 3 {
			return HelloBad
		}
	case data[0]&0x80 != 0: // RFC 5246 E.2: length, 1, version
		switch {
		case len(data) > 2 && data[2] != 1 || len(data) > 3 && data[3] != 3:
			return HelloNone
		case len(data) < 4:
			return HelloMore
		}
		return HelloBare
	}
	return HelloNone
}

// serverName reads the body of a ClientHello.
func serverName(body []byte) (string, HelloState) {
	b := reader{rest: body}
	b.take(2 + 32) // version, random
	b.vector(1)    // session
	b.vector(2)    // cipher suites
	b.vector(1)    // compression methods
	if !b.bad && len(b.rest) == 0 {
		return "", HelloBare // before TLS 1.2 there need not be extensions
	}
	extensions := reader{rest: b.vector(2)}
	if b.bad || len(b.rest) != 0 {
		return "", HelloBad
	}
	name, found := "", false
	for len(extensions.rest) > 0 && !extensions.bad {
		typ := extensions.number(2)
		ext := reader{rest: extensions.vector(2)}
		if extensions.bad || typ != 0 { // server_name
			continue
		}
		list := reader{rest: ext.vector(2)}
		kind, host := list.number(1), list.vector(2)
		if found || ext.bad || len(ext.rest) != 0 || list.bad || len(list.rest) != 0 || kind != 0 {
			return "", HelloBad
		}
		var err error
		if name, err = ParseName(string(host)); err != nil {
			return "", HelloBad
		}
		found = true
	}
	switch {
	case extensions.bad:
		return "", HelloBad
	case found:
		return name, HelloName
	}
	return "", HelloBare
}

// A reader takes vectors of TLS from the front of bytes. What does not fit makes it
// bad, and everything after that empty.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) number(size int) int {
	n := 0
	for _, c := range r.take(size) {
		n = n<<8 | int(c)
	}
	return n
}

func (r *reader) vector(size int) []byte { return r.take(r.number(size)) }
