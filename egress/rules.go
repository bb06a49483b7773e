package egress

import (
	"net/netip"

	"github.com/wallsandbox/wall/plan"
)

// A Decision is whether something may be reached, and what says so.
type Decision struct {
	Allowed bool
	Rule    plan.Origin // of the rule that decided; that of the network when none speaks of it
	Reason  string      // why not; empty when Allowed
}

// Rules are the compiled rules of a network. They may be used by several goroutines.
type Rules struct{ n plan.Network }

// Compile makes the rules of a network. own gives the addresses of this host, asked
// for at every decision about an address; nil: it has none.
func Compile(n plan.Network, own func() []netip.Addr) (*Rules, error) { return &Rules{n: n}, nil }

// Decide says whether a connection to a port of a name may be made. The name is as of
// ParseName. The addresses that the name turns out to have are a matter of
// DecideResolved.
func (r *Rules) Decide(name string, port int) Decision {
	return Decision{Rule: r.n.Origin, Reason: "no rule allows it"}
}

// DecideAddr says whether a connection to a literal address may be made: by rules
// for networks only.
func (r *Rules) DecideAddr(addr netip.Addr, port int) Decision {
	return Decision{Rule: r.n.Origin, Reason: "no rule allows it"}
}

// DecideResolved says whether an allowed name may be dialled at an address that the
// resolver gave for it.
func (r *Rules) DecideResolved(addr netip.Addr, port int) Decision {
	return Decision{Rule: r.n.Origin, Reason: "no rule allows it"}
}

// DecideName says whether any port of a name may be reached: whether there is an
// answer to a lookup of it.
func (r *Rules) DecideName(name string) Decision {
	return Decision{Rule: r.n.Origin, Reason: "no rule allows it"}
}

// Class says what is special about an address, in a word or two such as "private" or
// "loopback", also when an IPv4 address is embedded in it; "" for an address of the
// public internet.
func Class(addr netip.Addr) string { return "reserved" }
