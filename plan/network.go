package plan

import (
	"cmp"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Network is what the command reaches beyond the loopback interface of its own
// network namespace, and which of its ports can be reached from the host. All of
// it goes through stage 1: inside there is no other interface. The zero Network is
// nothing, and the only one without a network namespace.
type Network struct {
	Method      NetMethod   // how connections get to stage 1; NetNone: there is no way to other hosts
	Allow       []HostRule  // the hosts that may be reached; everything else is refused
	Deny        []HostRule  // hosts that may not, although Allow names them
	Loopback    []PortGrant // TCP ports of the host's loopback interface, reachable inside on 127.0.0.1 and ::1
	Publish     []PortGrant // TCP ports of the command, reachable on the host's 127.0.0.1 and ::1
	HTTP        int         // port on 127.0.0.1 inside for HTTP CONNECT and absolute-form requests; not with NetNone
	SOCKS       int         // port on 127.0.0.1 inside for SOCKS 5; not with NetNone
	CheckSNI    bool        // a TLS ClientHello must name the host that the connection is for
	Upstream    Upstream    // a proxy that the connections to other hosts go through
	Connections uint64      // at most so many at one time
	Idle        uint64      // nanoseconds after which a connection without a byte is ended; 0 = never
	Origin      Origin
}

// NetMethod says how the connections of the command get to stage 1.
type NetMethod string

// The network methods.
const (
	NetNone NetMethod = ""
	// NetRedirect: every TCP connection to an address that is not the box's own
	// loopback, and every DNS query, is redirected to sockets that stage 1 holds,
	// by a local default route and nftables. All other packets are refused.
	NetRedirect NetMethod = "redirect"
	// NetProxy: only what speaks to the proxy ports gets out.
	NetProxy NetMethod = "proxy"
)

// A HostRule names hosts and ports. Exactly one of Name and Prefix is set.
type HostRule struct {
	Name   string // lower case, without a final dot: RFC 1123 labels, for example "example.org"
	Suffix bool   // every name below Name, and not Name itself
	Prefix string // a network or one address in canonical CIDR form, for example "192.0.2.0/24"
	Ports  []PortRange
	Origin Origin
}

// A PortRange is the ports from First to Last, both included and at least 1.
type PortRange struct{ First, Last int }

// A PortGrant is one TCP port, at least 1.
type PortGrant struct {
	Port   int
	Origin Origin
}

// Upstream is an HTTP proxy of the operator's. The zero Upstream is none.
type Upstream struct {
	URL    string // "http://HOST:PORT", nothing else
	Origin Origin
}

// Synthetic gives the networks whose addresses stage 1's DNS hands out for names.
// No host has such an address: 198.18.0.0/15 is for benchmarks (RFC 2544), the
// other one a unique local network (RFC 4193).
func Synthetic() (v4, v6 netip.Prefix) {
	return netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("fd77:616c:6c00::/48")
}

// String gives the rule as profiles have it, with every range of ports.
func (r HostRule) String() string {
	s := r.Name + r.Prefix // one of them is empty
	if r.Suffix {
		s = "*." + s
	}
	var ports []string
	for _, p := range r.Ports {
		switch {
		case p == PortRange{1, 65535}:
			ports = append(ports, "*")
		case p.First == p.Last:
			ports = append(ports, strconv.Itoa(p.First))
		default:
			ports = append(ports, strconv.Itoa(p.First)+"-"+strconv.Itoa(p.Last))
		}
	}
	return s + " ports " + strings.Join(ports, ",")
}

func (n Network) isZero() bool {
	return n.Method == NetNone && len(n.Allow)+len(n.Deny)+len(n.Loopback)+len(n.Publish) == 0 && n.HTTP == 0 && n.SOCKS == 0 &&
		!n.CheckSNI && n.Upstream == (Upstream{}) && n.Connections == 0 && n.Idle == 0
}

func (n Network) print(line func(Origin, string, ...any)) {
	if n.isZero() {
		return
	}
	line(n.Origin, "network %s connections %d idle %d check-sni=%t", cmp.Or(n.Method, "none"), n.Connections, n.Idle, n.CheckSNI)
	for _, r := range n.Allow {
		line(r.Origin, "  allow %s", r)
	}
	for _, r := range n.Deny {
		line(r.Origin, "  deny %s", r)
	}
	for _, p := range n.Loopback {
		line(p.Origin, "  loopback %d", p.Port)
	}
	for _, p := range n.Publish {
		line(p.Origin, "  publish %d", p.Port)
	}
	if n.HTTP != 0 || n.SOCKS != 0 {
		line(Origin{}, "  proxy http %d socks5 %d", n.HTTP, n.SOCKS)
	}
	if n.Upstream.URL != "" {
		line(n.Upstream.Origin, "  upstream %s", word(n.Upstream.URL))
	}
}

func (n Network) validate(bad func(string, ...any), ownSpace bool) {
	if n.isZero() {
		return
	}
	if !ownSpace {
		bad("a network without a network namespace")
	}
	switch n.Method {
	case NetNone:
		if len(n.Allow)+len(n.Deny) > 0 || n.HTTP != 0 || n.SOCKS != 0 || n.CheckSNI || n.Upstream != (Upstream{}) {
			bad("rules for hosts without a way to them")
		}
	case NetRedirect, NetProxy:
		if n.HTTP < 1 || n.HTTP > 65535 || n.SOCKS < 1 || n.SOCKS > 65535 || n.HTTP == n.SOCKS {
			bad("proxy ports %d and %d", n.HTTP, n.SOCKS)
		}
	default:
		bad("network method %q", n.Method)
	}
	if n.Connections == 0 {
		bad("a network for no connections")
	}
	if n.Idle > 1<<63-1 {
		bad("network idle time of %d", n.Idle)
	}
	for _, r := range slices.Concat(n.Allow, n.Deny) {
		r.validate(bad)
	}
	taken := map[int]bool{n.HTTP: true, n.SOCKS: true}
	for _, list := range [][]PortGrant{n.Loopback, n.Publish} {
		for i, p := range list {
			if p.Port < 1 || p.Port > 65535 || i > 0 && list[i-1].Port >= p.Port {
				bad("ports are not ascending from 1")
				break
			}
		}
	}
	for _, p := range n.Loopback {
		if taken[p.Port] {
			bad("loopback port %d is a proxy port", p.Port)
		}
	}
	for _, p := range n.Publish {
		if taken[p.Port] || slices.ContainsFunc(n.Loopback, func(q PortGrant) bool { return q.Port == p.Port }) {
			bad("published port %d is one of wall's own", p.Port)
		}
	}
	if u := n.Upstream.URL; u != "" {
		p, err := url.Parse(u)
		if err != nil || p.Scheme != "http" || p.Hostname() == "" || p.Port() == "" || p.String() != "http://"+p.Host {
			bad("the upstream proxy is no http://HOST:PORT")
		}
	}
}

func (r HostRule) validate(bad func(string, ...any)) {
	switch {
	case (r.Name == "") == (r.Prefix == ""):
		bad("a host rule with the name %q and the network %q", r.Name, r.Prefix)
	case r.Name != "":
		if r.Name != strings.ToLower(r.Name) || strings.ContainsAny(r.Name, "*/:@ \x00") || strings.HasPrefix(r.Name, ".") || strings.HasSuffix(r.Name, ".") || len(r.Name) > 253 {
			bad("the host name %q", r.Name)
		}
	default:
		p, err := netip.ParsePrefix(r.Prefix)
		if err != nil || p.Masked().String() != r.Prefix || p.Addr().Is4In6() || r.Suffix {
			bad("the network %q", r.Prefix)
		}
	}
	if len(r.Ports) == 0 {
		bad("the host rule %s has no ports", r)
	}
	for _, p := range r.Ports {
		if p.First < 1 || p.Last < p.First || p.Last > 65535 {
			bad("the ports %d to %d", p.First, p.Last)
		}
	}
}
