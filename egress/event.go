package egress

import (
	"net/netip"
	"time"

	"github.com/wallsandbox/wall/plan"
)

// The kinds of events.
const (
	KindDNS   = "dns"   // a name was asked for that is allowed, or that resolvers try on their own: then Reason says why there is none
	KindOpen  = "open"  // a connection is established
	KindClose = "close" // it has ended: In, Out and Duration are set
	KindDeny  = "deny"  // a connection or a name was refused: Reason says why
	KindFail  = "fail"  // a connection that the rules allow could not be made: Reason says why
)

// The ways by which connections come.
const (
	ViaRedirect = "redirect"
	ViaHTTP     = "http"
	ViaSOCKS    = "socks5"
	ViaDNS      = "dns"
	ViaLoopback = "loopback"
	ViaPublish  = "publish"
)

// An Event is one thing that happened on the network of a box. It holds no content
// of a connection. Names come from the command: they may hold anything, and whoever
// shows one escapes it.
type Event struct {
	Time     time.Time
	Kind     string      // KindDNS and so on
	Via      string      // ViaRedirect and so on
	Name     string      // the host name that the connection is for; "" for a literal address
	Addr     string      // the address that was dialled, or the literal one that was asked for; may be empty
	Port     int         // 0 for a name lookup
	Rule     plan.Origin // the rule that decided; zero when no rule speaks of it
	Reason   string      // why it was refused, could not be made, or ended early; empty otherwise
	In       int64       // bytes that the box received
	Out      int64       // bytes that the box sent
	Duration time.Duration
}

// Missing reports whether something was refused only because no rule speaks of it: a
// name, or an address of the public internet. A rule for what the event names would
// allow it.
func (e Event) Missing() bool {
	switch e.Reason {
	case reasonNone:
		// No rule names the root, and none has a name of an address answered.
		return e.Name != "." && !(e.Via == ViaDNS && isReverse(e.Name))
	case reasonPort, reasonAddress:
		addr, err := netip.ParseAddr(e.Addr)
		return e.Addr == "" || err == nil && Class(addr) == ""
	}
	return false
}

// Inner reports whether something was refused only because its address is of an inner
// network, such as a company's, and no rule speaks of it. A rule for the address would
// allow it. Those of the host itself and of metadata services are not among them.
func (e Event) Inner() bool {
	switch e.Reason {
	case reasonClass + classPrivate, reasonClass + classShared, reasonClass + classDocumentation:
		return e.Addr != ""
	}
	return false
}

// A Summary is what a box did on its network, in numbers.
type Summary struct {
	Opened   int64    // connections that were established
	Denied   int64    // refused connections and names
	Failed   int64    // connections that the rules allow and that could not be made
	Dropped  int64    // events that Observe was not called for, or did not return from, because it was too slow
	BytesIn  int64    // bytes that the box received
	BytesOut int64    // bytes that the box sent
	Denials  []Denial // in order of time; at most 100
	Failures []Denial // what of Failed differs, likewise
}

// A Denial is the first refusal, or failure, of one name, port and reason.
type Denial struct {
	Event
	Count int64 // how many there were
}
