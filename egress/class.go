package egress

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"github.com/wallsandbox/wall/plan"
)

// A special network is one whose addresses are not those of the public internet.
type special struct {
	class   string
	network netip.Prefix
	never   bool // no rule allows it: a TCP connection to it cannot be meant
}

// The classes of addresses that are given to people's own machines.
const (
	classPrivate       = "private"
	classShared        = "shared by a provider's customers"
	classDocumentation = "for documentation" // companies use them all the same
)

// specials gives the special networks, the first that an address is in decides. They
// are those of the IANA registries of special-purpose addresses (RFC 6890) and those
// where clouds have services that hand out credentials. They are made when first
// needed, for stage 2 never does.
var specials = sync.OnceValue(func() []special {
	var list []special
	add := func(class string, never bool, networks ...string) {
		for _, n := range networks {
			list = append(list, special{class, netip.MustParsePrefix(n), never})
		}
	}
	add("a metadata service", false,
		"169.254.169.254/32", "fd00:ec2::254/128", // most clouds; Amazon
		"169.254.170.2/32", "169.254.170.23/32", "fd00:ec2::23/128", // Amazon's, for containers
		"fd20:ce::254/128",                    // Google
		"100.100.100.200/32",                  // Alibaba
		"168.63.129.16/32",                    // Azure
		"192.0.0.192/32",                      // Oracle
		"169.254.42.42/32", "fd00:42::42/128") // Scaleway
	add("unspecified", true, "0.0.0.0/8", "::/128") // Linux connects to 127.0.0.1 and ::1
	add("loopback", false, "127.0.0.0/8", "::1/128")
	add(classPrivate, false, "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10")
	add(classShared, false, "100.64.0.0/10")
	add("link-local", false, "169.254.0.0/16", "fe80::/10")
	add(classDocumentation, false, "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20")
	add("for benchmarks", false, "198.18.0.0/15", "2001:2::/48")
	add("multicast", true, "224.0.0.0/4", "ff00::/8")
	add("broadcast", true, "255.255.255.255/32")
	add("reserved", false, "192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4")
	add("Teredo", false, "2001::/32")
	add("reserved", false, "2001::/23")
	add("6to4", false, "2002::/16")
	add("local NAT64", false, "64:ff9b:1::/48") // RFC 8215: where in it an IPv4 address stands is up to the network
	return list
})

var (
	nat64  = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
	sixTo4 = netip.MustParsePrefix("2002::/16")    // RFC 3056
	teredo = netip.MustParsePrefix("2001::/32")    // RFC 4380
	global = netip.MustParsePrefix("2000::/3")     // what IANA gives out of IPv6
)

// Class says what is special about an address, in a few words such as "private" or
// "loopback", also when that is so for an IPv4 address embedded in it; "" for an
// address of the public internet.
func Class(addr netip.Addr) string {
	class, _ := classify(addr.Unmap())
	return class
}

// classify gives the class of an address that is not IPv4-mapped, and the network
// that a rule must lie in to allow it; the zero Prefix when none can.
func classify(addr netip.Addr) (string, netip.Prefix) {
	single := netip.PrefixFrom(addr.WithZone(""), addr.BitLen())
	switch {
	case !addr.IsValid():
		return "unspecified", netip.Prefix{}
	case addr.Zone() != "": // of one interface
		return "link-local", netip.Prefix{}
	}
	// What an address leads to comes before what it is.
	for _, e := range embedded(addr) {
		if class, network := classify(e.addr); class != "" {
			class += ", embedded in IPv6"
			switch {
			case !network.IsValid():
				return class, network
			case e.at < 0:
				return class, single
			}
			p, _ := addr.Prefix(e.at + network.Bits())
			return class, p
		}
	}
	for _, s := range specials() {
		if s.network.Contains(addr) {
			if s.never {
				return s.class, netip.Prefix{}
			}
			return s.class, s.network
		}
	}
	if addr.Is6() && !global.Contains(addr) && !nat64.Contains(addr) {
		return "reserved", single
	}
	return "", netip.Prefix{}
}

// An embedding is an IPv4 address in one of IPv6, to which packets for the latter may
// go.
type embedding struct {
	addr netip.Addr
	at   int // the bit that it begins at; -1 when it is not there as it is, or anything may stand before it
}

func embedded(addr netip.Addr) []embedding {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	v4 := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(b[at : at+4])) }
	var list []embedding
	switch {
	case nat64.Contains(addr):
		list = append(list, embedding{v4(12), 96})
	case sixTo4.Contains(addr):
		list = append(list, embedding{v4(2), 16})
	case teredo.Contains(addr): // the server, and the client with its bits inverted
		client := binary.BigEndian.AppendUint32(nil, ^binary.BigEndian.Uint32(b[12:]))
		list = append(list, embedding{v4(4), -1}, embedding{netip.AddrFrom4([4]byte(client)), -1})
	case b[8]&^3 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe: // ISATAP, RFC 5214 6.1
		list = append(list, embedding{v4(12), -1})
	case netip.PrefixFrom(addr, 96).Masked().Addr().IsUnspecified() && addr != netip.IPv6Loopback() && !addr.IsUnspecified(): // IPv4-compatible, RFC 4291 2.5.5.1
		list = append(list, embedding{v4(12), -1})
	}
	return list
}

// forms gives an address and the IPv4 addresses embedded in it: a rule that denies
// one of them denies it. The address is not IPv4-mapped.
func forms(addr netip.Addr) []netip.Addr {
	list := []netip.Addr{addr.WithZone("")}
	for _, e := range embedded(addr) {
		list = append(list, e.addr)
	}
	return list
}

var synthetic4, synthetic6 = plan.Synthetic()

// Synthetic reports whether an address is in the networks of synthetic addresses,
// whether or not it stands for a name.
func Synthetic(addr netip.Addr) bool {
	addr = addr.Unmap()
	return synthetic4.Contains(addr) || synthetic6.Contains(addr.WithZone(""))
}
