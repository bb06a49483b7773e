package egress

// maxHead bounds the head of an HTTP request.
const maxHead = 64 << 10

// A Head is the head of a request to the HTTP proxy.
type Head struct {
	Target  Target
	Connect bool   // CONNECT: after the answer, bytes are carried both ways
	Request []byte // the head to send to the target; nil for CONNECT
	Size    int    // how many bytes the head took; what follows goes to the target
}

// ParseHead reads the head of a request to an HTTP/1.1 proxy, which data begins
// with: CONNECT, or an absolute-form http URL, which becomes a request of which
// the connection ends after the answer. With more = true the head is not complete.
// Errors wrap ErrProtocol; the answer is HTTPReply with the status.
func ParseHead(data []byte) (h Head, more bool, status int, err error) {
	return Head{}, false, 400, ErrProtocol
}

// HTTPReply gives the answer of the proxy itself: for 200, what ends a CONNECT,
// otherwise a refusal with a line of text, after which the connection is closed.
func HTTPReply(status int, text string) []byte { return nil }
