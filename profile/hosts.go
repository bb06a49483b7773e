package profile

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// A HostPattern is one element of network.allow or network.deny: names or
// addresses, and ports.
type HostPattern struct {
	Name   string       // in lower case, without "*."; "" for addresses
	Suffix bool         // every name below Name, not Name itself
	Prefix netip.Prefix // a network or one address; the zero value for names
	Lo, Hi uint16       // the ports, both included; 0 and 0 when none was written
}

// AnyPort reports whether the pattern covers all ports.
func (p HostPattern) AnyPort() bool { return p.Lo == 1 && p.Hi == 65535 }

// String gives the pattern as a profile writes it.
func (p HostPattern) String() string {
	s := p.Name
	switch {
	case p.Suffix:
		s = "*." + s
	case s != "":
	default:
		s = p.Prefix.String()
		if p.Prefix.IsSingleIP() {
			s = p.Prefix.Addr().String()
		}
		if p.Prefix.Addr().Is6() && p.Hi != 0 {
			s = "[" + s + "]"
		}
	}
	switch {
	case p.Hi == 0:
	case p.AnyPort():
		s += ":*"
	case p.Lo == p.Hi:
		s += ":" + strconv.Itoa(int(p.Lo))
	default:
		s += ":" + strconv.Itoa(int(p.Lo)) + "-" + strconv.Itoa(int(p.Hi))
	}
	return s
}

// HostPorts are the ports that a pattern of allow or deny covers: those that are
// written, or else the usual two of the web in allow, and all in deny.
func (p HostPattern) HostPorts(deny bool) []plan.PortRange {
	switch {
	case p.Hi != 0:
		return []plan.PortRange{{First: int(p.Lo), Last: int(p.Hi)}}
	case deny:
		return []plan.PortRange{{First: 1, Last: 65535}}
	}
	return []plan.PortRange{{First: 80, Last: 80}, {First: 443, Last: 443}}
}

// Covers reports whether p, a pattern of allow or of deny, covers everything that q
// does, which is one of allow or of deny.
func (p HostPattern) Covers(deny bool, q HostPattern, qDeny bool) bool {
	if !p.coversHosts(q) { // first, because it is cheap and mostly decides
		return false
	}
	for _, r := range q.HostPorts(qDeny) {
		if !slices.ContainsFunc(p.HostPorts(deny), func(x plan.PortRange) bool { return x.First <= r.First && r.Last <= x.Last }) {
			return false
		}
	}
	return true
}

func (p HostPattern) coversHosts(q HostPattern) bool {
	switch {
	case p.Name == "" || q.Name == "":
		return p.Name == q.Name && p.Prefix.Addr().BitLen() == q.Prefix.Addr().BitLen() &&
			p.Prefix.Bits() <= q.Prefix.Bits() && p.Prefix.Contains(q.Prefix.Addr())
	case p.Suffix:
		return strings.HasSuffix(q.Name, p.Name) && (q.Suffix && len(q.Name) == len(p.Name) ||
			len(q.Name) > len(p.Name) && q.Name[len(q.Name)-len(p.Name)-1] == '.')
	}
	return !q.Suffix && p.Name == q.Name
}

// ParseHost reads one host pattern:
//
//	example.org            a name: letters, digits and hyphens, RFC 1123
//	*.example.org          every name below it, but not the name itself
//	192.0.2.1, 2001:db8::1 an address
//	10.0.0.0/8             a network, without bits behind the prefix
//
// followed by a port (":443"), ports (":8000-8080") or all ports (":*"). An
// IPv6 address or network stands in brackets when a port follows. Schemes,
// paths, user names, a bare "*" and other forms of IPv4 addresses ("127.1",
// "0x7f000001") are errors; the message does not repeat s.
func ParseHost(s string) (HostPattern, error) {
	p, msg := parseHost(s)
	if msg != "" {
		return HostPattern{}, hostError(msg)
	}
	return p, nil
}

// hostError is the reason why a text is no host pattern.
type hostError string

func (e hostError) Error() string { return string(e) }

func parseHost(s string) (HostPattern, string) {
	switch {
	case s == "":
		return HostPattern{}, "the host is empty"
	case strings.Contains(s, "://"):
		return HostPattern{}, "a host has no scheme: write the name alone"
	case strings.ContainsAny(s, "@?#"):
		return HostPattern{}, "a host has no user, query or fragment: write the name alone"
	}
	var p HostPattern
	host, port, hasPort := s, "", false
	switch {
	case strings.HasPrefix(s, "["):
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return p, "the bracket is not closed"
		}
		host, port = s[1:end], s[end+1:]
		if !strings.Contains(host, ":") {
			return p, "only an IPv6 address stands in brackets"
		}
		if port, hasPort = strings.CutPrefix(port, ":"); !hasPort && port != "" {
			return p, "behind the bracket only a port can follow"
		}
	case strings.Count(s, ":") == 1:
		host, port, hasPort = strings.Cut(s, ":")
	}
	if hasPort {
		var msg string
		if p.Lo, p.Hi, msg = parsePorts(port); msg != "" {
			return p, msg
		}
	}
	addr, bits, isNet := strings.Cut(host, "/")
	if a, err := netip.ParseAddr(addr); err == nil {
		switch {
		case a.Zone() != "":
			return p, "an address has no zone here"
		case a.Is4In6():
			return p, "write an IPv4 address as it is, not inside IPv6"
		}
		n := netip.PrefixFrom(a, a.BitLen())
		if isNet {
			if n, err = netip.ParsePrefix(host); err != nil {
				return p, "the length of the network " + strconv.Quote(bits) + " is not a number that fits the address"
			}
			if n != n.Masked() {
				return p, "the network has bits behind its length: write " + n.Masked().String()
			}
		}
		if own, inside := synthetic(n); inside {
			return p, "no host has such an address: wall hands out those of " + own.String() + " for names"
		}
		p.Prefix = n
		return p, ""
	}
	switch {
	case isNet:
		return p, "a host has no path: write the name alone"
	case strings.Contains(host, ":"):
		return p, "it is neither a name with one port nor an IPv6 address"
	}
	p.Name, p.Suffix = strings.CutPrefix(host, "*.")
	// Of ASCII alone: strings.ToLower turns U+212A, the Kelvin sign, into a k.
	p.Name = strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, p.Name)
	if msg := badHostName(p.Name); msg != "" {
		return p, msg
	}
	return p, ""
}

// synthetic gives the network of wall's own addresses that a network overlaps, the
// zero Prefix for none, and whether it lies in there.
func synthetic(n netip.Prefix) (own netip.Prefix, inside bool) {
	v4, v6 := plan.Synthetic()
	for _, s := range []netip.Prefix{v4, v6} {
		if s.Overlaps(n) {
			return s, s.Bits() <= n.Bits()
		}
	}
	return netip.Prefix{}, false
}

// Synthetic gives the network of addresses that wall hands out for names which the
// pattern overlaps; the zero Prefix for none. No host has an address in there.
func (p HostPattern) Synthetic() netip.Prefix {
	if p.Name != "" {
		return netip.Prefix{}
	}
	own, _ := synthetic(p.Prefix)
	return own
}

// parsePorts reads "443", "8000-8080" or "*".
func parsePorts(s string) (lo, hi uint16, msg string) {
	if s == "*" {
		return 1, 65535, ""
	}
	one := func(t string) (uint16, bool) {
		n, err := strconv.ParseUint(t, 10, 16)
		return uint16(n), err == nil && n > 0 && t[0] != '0' && t[0] != '+'
	}
	a, b, isRange := strings.Cut(s, "-")
	lo, ok := one(a)
	hi = lo
	if ok && isRange {
		hi, ok = one(b)
	}
	switch {
	case !ok:
		return 0, 0, "a port is a number from 1 to 65535, a range such as 8000-8080, or *"
	case hi < lo:
		return 0, 0, "the last port of the range is lower than the first"
	}
	return lo, hi, ""
}

// badHostName checks a name by RFC 952 and RFC 1123: labels of letters, digits
// and hyphens. A last label of digits is refused, because some resolvers take
// such a name for an IPv4 address (inet_aton(3)).
func badHostName(s string) string {
	switch {
	case s == "" || s == "*":
		return "\"*\" alone would be every host: use mode = \"host\" for that"
	case len(s) > 253:
		return "the name is longer than 253 characters"
	case strings.HasSuffix(s, "."):
		return "write the name without a dot at the end"
	}
	labels := strings.Split(s, ".")
	for _, l := range labels {
		switch {
		case l == "":
			return "the name has an empty label"
		case len(l) > 63:
			return "a label of the name is longer than 63 characters"
		case l[0] == '-' || l[len(l)-1] == '-':
			return "a label of the name starts or ends with a hyphen"
		case strings.Contains(l, "*"):
			return "\"*\" is only possible as the whole first label, as in *.example.org"
		}
		for _, r := range l {
			if !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-') {
				if r > 0x7f {
					return "write an international name in its ASCII form (xn--...)"
				}
				return "a name has only letters, digits, hyphens and dots"
			}
		}
	}
	last := labels[len(labels)-1]
	if strings.Trim(last, "0123456789") == "" || strings.HasPrefix(last, "0x") && strings.Trim(last[2:], "0123456789abcdef") == "" {
		return "it is neither a name nor a complete address"
	}
	return ""
}
