package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// A Decision is whether something may be reached, and what says so.
type Decision struct {
	Allowed bool
	Rule    plan.Origin // of the rule that decided; that of the network when none speaks of it
	Reason  string      // why not; empty when Allowed
}

// The reasons that rules give. They are few and hold nothing of the command's, so
// that equal denials can be counted.
const (
	reasonNone      = "no rule allows it"
	reasonPort      = "no rule allows this port of it"
	reasonDenied    = "a rule denies it"
	reasonLocalhost = "localhost is the box itself"
	reasonAddress   = "no rule allows this address: rules for names do not"
	reasonUnknown   = "the address stands for no name"
	reasonClass     = "no rule allows this address, which is " // and a class
)

// Rules are the compiled rules of a network: which names, addresses and ports may be
// reached. What no rule allows is refused, and a rule that denies wins over every one
// that allows, whichever is the more specific. They may be used by several goroutines.
type Rules struct {
	origin plan.Origin // of the network
	allow  ruleSet
	deny   ruleSet
	own    func() []netip.Addr
	local  func(netip.Addr) (bool, error) // whether the host answers for an address that no interface has; nil: never
}

// A ruleSet is the rules of one kind, in the order of the plan.
type ruleSet struct {
	exact    map[string][]plan.HostRule // by name
	suffix   map[string][]plan.HostRule // by the name that the hosts are below
	prefixes []prefixRule
}

type prefixRule struct {
	prefix netip.Prefix
	plan.HostRule
}

// Compile makes the rules of a network. own gives the addresses of this host and is
// called for every decision about an address; nil: it has none. The error is a
// *plan.Error at the rule that cannot be right.
func Compile(n plan.Network, own func() []netip.Addr) (*Rules, error) {
	if own == nil {
		own = func() []netip.Addr { return nil }
	}
	r := &Rules{origin: n.Origin, own: own}
	for _, s := range []struct {
		set   *ruleSet
		rules []plan.HostRule
	}{{&r.allow, n.Allow}, {&r.deny, n.Deny}} {
		s.set.exact, s.set.suffix = make(map[string][]plan.HostRule), make(map[string][]plan.HostRule)
		for _, h := range s.rules {
			if err := s.set.add(h); err != nil {
				return nil, &plan.Error{Op: fmt.Sprintf("cannot use the host rule %q", h), Origin: h.Origin, Err: err}
			}
		}
	}
	return r, nil
}

func (s *ruleSet) add(h plan.HostRule) error {
	if h.Prefix != "" {
		p, err := netip.ParsePrefix(h.Prefix)
		if err != nil {
			return err
		}
		if h.Name != "" || h.Suffix || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Errorf("not a network in canonical form")
		}
		s.prefixes = append(s.prefixes, prefixRule{p, h})
		return nil
	}
	name, err := ParseName(h.Name)
	if err != nil {
		return err
	}
	if name != h.Name {
		return fmt.Errorf("not a host name in canonical form")
	}
	if h.Suffix {
		s.suffix[name] = append(s.suffix[name], h)
	} else {
		s.exact[name] = append(s.exact[name], h)
	}
	return nil
}

// named gives the rules that speak of a name: for the name itself first, then for
// what is above it.
func (s *ruleSet) named(name string) []plan.HostRule {
	found := s.exact[name]
	for rest := name; ; {
		_, above, ok := strings.Cut(rest, ".")
		if !ok {
			return found
		}
		if rules := s.suffix[above]; len(rules) > 0 {
			found = slices.Concat(found, rules)
		}
		rest = above
	}
}

func hasPort(h plan.HostRule, port int) bool {
	return slices.ContainsFunc(h.Ports, func(p plan.PortRange) bool { return p.First <= port && port <= p.Last })
}

// Decide says whether a connection to a port of a name may be made. The name is as of
// [ParseName]. The addresses that the name turns out to have are a matter of
// [Rules.DecideResolved].
func (r *Rules) Decide(name string, port int) Decision {
	if isLocalhost(name) {
		return Decision{Rule: r.origin, Reason: reasonLocalhost}
	}
	return r.decide(r.allow.named(name), r.deny.named(name), port)
}

// decide is the decision by the rules that speak of a host.
func (r *Rules) decide(allow, deny []plan.HostRule, port int) Decision {
	for _, h := range deny {
		if hasPort(h, port) {
			return Decision{Rule: h.Origin, Reason: reasonDenied}
		}
	}
	for _, h := range allow {
		if hasPort(h, port) {
			return Decision{Allowed: true, Rule: h.Origin}
		}
	}
	if len(allow) > 0 {
		return Decision{Rule: allow[0].Origin, Reason: reasonPort}
	}
	return Decision{Rule: r.origin, Reason: reasonNone}
}

// DecideName says whether any port of a name may be reached: whether a lookup of it
// has an answer.
func (r *Rules) DecideName(name string) Decision {
	if isLocalhost(name) {
		return Decision{Allowed: true, Rule: r.origin}
	}
	allow, deny := r.allow.named(name), r.deny.named(name)
	first := Decision{Rule: r.origin, Reason: reasonNone}
	// The lowest port that is allowed is the first one of an allowed range, or the
	// one after a denied range.
	for _, h := range allow {
		for _, p := range h.Ports {
			d := r.decide(allow, deny, p.First)
			if d.Allowed {
				return d
			}
			first = d
		}
	}
	for _, h := range deny {
		for _, p := range h.Ports {
			if d := r.decide(allow, deny, p.Last+1); d.Allowed {
				return d
			}
			if len(allow) == 0 {
				first = Decision{Rule: h.Origin, Reason: reasonDenied}
			}
		}
	}
	return first
}

// DecideAddr says whether a connection to a literal address may be made, which only
// rules for networks can allow. A rule allows addresses that are not of the public
// internet (see [Class]) when it is written for them, which is to say that its whole
// network is of that kind: 10.1.0.0/16 allows private addresses, 0.0.0.0/0 does not.
// An address of the host itself, or of a metadata service, needs a rule for this one
// address. Unspecified, multicast, broadcast and synthetic addresses are never allowed.
func (r *Rules) DecideAddr(addr netip.Addr, port int) Decision {
	addr = addr.Unmap()
	if Synthetic(addr) {
		return Decision{Rule: r.origin, Reason: reasonUnknown}
	}
	var allow, deny []plan.HostRule
	for _, p := range r.allow.prefixes {
		if p.prefix.Contains(addr) {
			allow = append(allow, p.HostRule)
		}
	}
	for _, form := range forms(addr) {
		for _, p := range r.deny.prefixes {
			if p.prefix.Contains(form) {
				deny = append(deny, p.HostRule)
			}
		}
	}
	d := r.decide(allow, deny, port)
	if d.Reason == reasonNone {
		d.Reason = reasonAddress
	}
	if !d.Allowed {
		return d
	}
	return r.DecideResolved(addr, port)
}

// DecideResolved says whether an allowed name may be dialled at an address that the
// resolver gave for it: at those of the public internet, unless a rule denies them,
// and at others when a rule for networks allows them, see [Rules.DecideAddr].
// The Rule is zero when the address needs none.
func (r *Rules) DecideResolved(addr netip.Addr, port int) Decision {
	addr = addr.Unmap()
	all := forms(addr)
	for _, p := range r.deny.prefixes {
		if hasPort(p.HostRule, port) && slices.ContainsFunc(all, p.prefix.Contains) {
			return Decision{Rule: p.Origin, Reason: reasonDenied}
		}
	}
	class, network := classify(addr)
	if (class == "" || network.IsValid()) && !strings.HasPrefix(class, "loopback") && r.isOwn(all) {
		class, network = "the host's own", netip.PrefixFrom(addr, addr.BitLen())
	}
	if class == "" {
		if i := slices.IndexFunc(r.allow.prefixes, func(p prefixRule) bool { return hasPort(p.HostRule, port) && p.prefix.Contains(addr) }); i >= 0 {
			return Decision{Allowed: true, Rule: r.allow.prefixes[i].Origin}
		}
		return Decision{Allowed: true}
	}
	if network.IsValid() {
		for _, p := range r.allow.prefixes {
			if hasPort(p.HostRule, port) && p.prefix.Contains(addr) && p.prefix.Bits() >= network.Bits() {
				return Decision{Allowed: true, Rule: p.Origin}
			}
		}
	}
	return Decision{Rule: r.origin, Reason: reasonClass + class}
}

func (r *Rules) isOwn(forms []netip.Addr) bool {
	for _, a := range r.own() {
		if slices.Contains(forms, a.Unmap().WithZone("")) {
			return true
		}
	}
	for _, a := range forms {
		if r.local == nil {
			break
		}
		if is, err := r.local(a); is || err != nil { // what cannot be told may be
			return true
		}
	}
	return false
}
