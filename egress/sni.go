package egress

// maxHello bounds the TLS records that a ClientHello comes in.
const maxHello = 64 << 10

// A HelloState is what the first bytes of a connection are.
type HelloState int

// What the first bytes of a connection are.
const (
	HelloMore HelloState = iota // the beginning of a ClientHello, or no byte yet: read on
	HelloName                   // a ClientHello that names a host
	HelloBare                   // a ClientHello without a name
	HelloNone                   // not TLS
	HelloBad                    // meant as TLS, and wrong
)

// ClientHello reads the server name of the TLS ClientHello that data begins with
// (RFC 8446 4.1.2, RFC 6066 3). The name is as of ParseName. More than maxHello
// bytes are never needed.
func ClientHello(data []byte) (name string, state HelloState) { return "", HelloBad }
