package nsexec

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// hintNftables names what the kernel needs; where these are modules, it loads them
// by itself if it finds them.
const hintNftables = "the kernel needs nftables with NAT: as root, load its modules with `modprobe -a nf_tables nft_chain_nat nft_redir nft_reject_ipv4 nft_reject_ipv6`, or use a kernel with CONFIG_NF_TABLES_IPV4, CONFIG_NF_TABLES_IPV6, CONFIG_NFT_NAT, CONFIG_NFT_REDIR and CONFIG_NFT_REJECT; or reach hosts with programs that use a proxy alone, by --if-unavailable degrade; see `wall doctor`"

// A family is what differs between the rules for IPv4 and for IPv6.
type family struct {
	name        string // as in rules
	long        string
	number      uint8
	loopback    netip.Prefix
	offset      uint32 // of the destination address in the header
	unreachable uint8  // code of the ICMP message "port unreachable"
	reject      string // the module of that expression
	nowhere     netip.AddrPort
	second      netip.Prefix // another address of the loopback interface
}

// The documentation networks 192.0.2.0/24 (RFC 5737) and 2001:db8::/32 (RFC 3849)
// have no hosts; port 9 is "discard".
var (
	ipv4 = family{"ip", "IPv4", unix.AF_INET, netip.MustParsePrefix("127.0.0.0/8"), 16, 3, "nft_reject_ipv4", netip.MustParseAddrPort("192.0.2.1:9"), netip.MustParsePrefix("127.0.0.2/8")}
	ipv6 = family{"ip6", "IPv6", unix.AF_INET6, netip.MustParsePrefix("::1/128"), 24, 4, "nft_reject_ipv6", netip.MustParseAddrPort("[2001:db8::1]:9"), netip.MustParsePrefix("fd77:616c:6c00:ffff::1/128")}
)

func families(v6 bool) []family {
	if v6 {
		return []family{ipv4, ipv6}
	}
	return []family{ipv4}
}

// own is the address that the listening sockets have, and the command's source address.
func (f family) own() netip.Addr {
	if f.number == unix.AF_INET {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

const (
	dnsPort  = 53
	nfAccept = 1 // NF_ACCEPT of linux/netfilter.h
	tcp      = unix.IPPROTO_TCP
	udp      = unix.IPPROTO_UDP
)

// ruleset gives the netfilter batch that sends every connection and every DNS
// query to wall's sockets and refuses all other packets. In the words of nft(8),
// for IPv4; the table for IPv6 is the same, with two addresses in place of the
// loopback network:
//
//	table ip wall {
//		chain capture {
//			type nat hook output priority -100; policy accept;
//			tcp dport 53 redirect to :53
//			udp dport 53 redirect to :53
//			ip daddr 127.0.0.0/8 accept
//			meta l4proto tcp redirect to :PORT
//		}
//		chain others {
//			type filter hook output priority 0; policy accept;
//			ip daddr 127.0.0.0/8 accept
//			tcp flags syn / syn,ack reject with tcp reset
//			meta l4proto tcp accept
//			udp sport 53 accept
//			reject
//		}
//	}
//
// No rule keeps anything from getting out: there is no interface that would lead
// there. They are there so that nothing hangs, and so that no packet for another host
// ends at a socket of the box's own. In "others" the addresses are those after the
// redirection. The two rules without an address there are for the answers to a client that has
// bound its socket to some other address, which the local default route allows.
// Two tables, because one for both ("inet") needs more of the kernel.
func ruleset(fs []family, capture uint16) []netlinkMessage {
	const control = uint16(unix.NFNL_SUBSYS_NFTABLES) << 8
	// The batch is for one subsystem; its number stands in network byte order.
	mark := append([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0}, be16(unix.NFNL_SUBSYS_NFTABLES)...)
	m := []netlinkMessage{{kind: unix.NFNL_MSG_BATCH_BEGIN, body: mark, what: "nftables (module nf_tables)"}}
	for _, f := range fs {
		add := func(kind uint16, flags uint16, what string, attributes []byte) {
			m = append(m, netlinkMessage{
				kind: control | kind, flags: unix.NLM_F_CREATE | unix.NLM_F_ACK | flags,
				body: append([]byte{f.number, unix.NFNETLINK_V0, 0, 0}, attributes...),
				what: what,
			})
		}
		chain := func(name, kind string, priority int32, module string) {
			var hook, a []byte
			hook = attr(hook, unix.NFTA_HOOK_HOOKNUM, be32(unix.NF_INET_LOCAL_OUT))
			hook = attr(hook, unix.NFTA_HOOK_PRIORITY, be32(uint32(priority)))
			a = attr(a, unix.NFTA_CHAIN_TABLE, cstring(tableName))
			a = attr(a, unix.NFTA_CHAIN_NAME, cstring(name))
			a = nest(a, unix.NFTA_CHAIN_HOOK, hook)
			a = attr(a, unix.NFTA_CHAIN_POLICY, be32(nfAccept))
			a = attr(a, unix.NFTA_CHAIN_TYPE, cstring(kind))
			add(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_EXCL, "an nftables chain of type "+kind+" for "+f.name+" (module "+module+")", a)
		}
		rule := func(chain, what string, expressions ...[]byte) {
			var a []byte
			a = attr(a, unix.NFTA_RULE_TABLE, cstring(tableName))
			a = attr(a, unix.NFTA_RULE_CHAIN, cstring(chain))
			a = nest(a, unix.NFTA_RULE_EXPRESSIONS, expressions...)
			add(unix.NFT_MSG_NEWRULE, unix.NLM_F_APPEND, "an nftables rule for "+f.name+" with "+what, a)
		}
		const redirecting, matching = "redirect (module nft_redir)", "payload and meta"
		rejecting := "reject (module " + f.reject + ")"

		add(unix.NFT_MSG_NEWTABLE, unix.NLM_F_EXCL, "an nftables table for "+f.name+" (module nf_tables)", attr(nil, unix.NFTA_TABLE_NAME, cstring(tableName)))
		chain("capture", "nat", -100, "nft_chain_nat") // NF_IP_PRI_NAT_DST
		rule("capture", redirecting, protocol(tcp), port(toPort, dnsPort), redirect(dnsPort))
		rule("capture", redirecting, protocol(udp), port(toPort, dnsPort), redirect(dnsPort))
		for _, own := range f.addresses() {
			rule("capture", matching, f.destination(own), accept())
		}
		rule("capture", redirecting, protocol(tcp), redirect(capture))
		chain("others", "filter", 0, "nf_tables") // NF_IP_PRI_FILTER
		for _, own := range f.addresses() {
			rule("others", matching, f.destination(own), accept())
		}
		rule("others", rejecting, protocol(tcp), firstOfConnection(), reject(unix.NFT_REJECT_TCP_RST, 0))
		rule("others", matching, protocol(tcp), accept())
		rule("others", matching, protocol(udp), port(fromPort, dnsPort), accept())
		rule("others", rejecting, reject(unix.NFT_REJECT_ICMP_UNREACH, f.unreachable))
	}
	return append(m, netlinkMessage{kind: unix.NFNL_MSG_BATCH_END, body: mark, what: "nftables (module nf_tables)"})
}

const tableName = "wall"

// removeRuleset gives the batch that takes the tables away.
func removeRuleset(fs []family) []netlinkMessage {
	m := ruleset(fs, 1)
	const newTable, deleteTable = uint16(unix.NFNL_SUBSYS_NFTABLES)<<8 | unix.NFT_MSG_NEWTABLE, uint16(unix.NFNL_SUBSYS_NFTABLES)<<8 | unix.NFT_MSG_DELTABLE
	out := []netlinkMessage{m[0]}
	for _, t := range m {
		if t.kind == newTable {
			t.kind, t.flags = deleteTable, unix.NLM_F_ACK
			out = append(out, t)
		}
	}
	return append(out, m[len(m)-1])
}

// Offsets in the headers of both TCP and UDP.
const (
	fromPort = 0
	toPort   = 2
)

// expression gives one expression of a rule.
func expression(name string, attributes []byte) []byte {
	var e []byte
	e = attr(e, unix.NFTA_EXPR_NAME, cstring(name))
	e = nest(e, unix.NFTA_EXPR_DATA, attributes)
	return nest(nil, unix.NFTA_LIST_ELEM, e)
}

// load puts size bytes of a packet, at offset in the header base, into the register.
func load(base, offset, size uint32) []byte {
	var a []byte
	a = attr(a, unix.NFTA_PAYLOAD_DREG, be32(unix.NFT_REG_1))
	a = attr(a, unix.NFTA_PAYLOAD_BASE, be32(base))
	a = attr(a, unix.NFTA_PAYLOAD_OFFSET, be32(offset))
	a = attr(a, unix.NFTA_PAYLOAD_LEN, be32(size))
	return expression("payload", a)
}

// equal goes on with the rule when the register holds v.
func equal(v []byte) []byte {
	var a []byte
	a = attr(a, unix.NFTA_CMP_SREG, be32(unix.NFT_REG_1))
	a = attr(a, unix.NFTA_CMP_OP, be32(unix.NFT_CMP_EQ))
	a = nest(a, unix.NFTA_CMP_DATA, attr(nil, unix.NFTA_DATA_VALUE, v))
	return expression("cmp", a)
}

func protocol(number uint8) []byte {
	var a []byte
	a = attr(a, unix.NFTA_META_DREG, be32(unix.NFT_REG_1))
	a = attr(a, unix.NFTA_META_KEY, be32(unix.NFT_META_L4PROTO))
	return append(expression("meta", a), equal([]byte{number})...)
}

func port(offset uint32, number uint16) []byte {
	return append(load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, offset, 2), equal(be16(number))...)
}

// addresses are those of the loopback interface: connections to them stay in the box.
func (f family) addresses() []netip.Prefix {
	if f.loopback.Contains(f.second.Addr()) {
		return []netip.Prefix{f.loopback}
	}
	return []netip.Prefix{f.loopback, f.second}
}

// destination matches destinations in a network whose length is a whole number
// of bytes.
func (f family) destination(p netip.Prefix) []byte {
	n := p.Bits() / 8
	return append(load(unix.NFT_PAYLOAD_NETWORK_HEADER, f.offset, uint32(n)), equal(p.Addr().AsSlice()[:n])...)
}

// firstOfConnection matches TCP segments with SYN and without ACK.
func firstOfConnection() []byte {
	const flags, syn, ack = 13, 0x02, 0x10 // RFC 9293, 3.1
	var a []byte
	a = attr(a, unix.NFTA_BITWISE_SREG, be32(unix.NFT_REG_1))
	a = attr(a, unix.NFTA_BITWISE_DREG, be32(unix.NFT_REG_1))
	a = attr(a, unix.NFTA_BITWISE_LEN, be32(1))
	a = nest(a, unix.NFTA_BITWISE_MASK, attr(nil, unix.NFTA_DATA_VALUE, []byte{syn | ack}))
	a = nest(a, unix.NFTA_BITWISE_XOR, attr(nil, unix.NFTA_DATA_VALUE, []byte{0}))
	e := append(load(unix.NFT_PAYLOAD_TRANSPORT_HEADER, flags, 1), expression("bitwise", a)...)
	return append(e, equal([]byte{syn})...)
}

func immediate(register uint32, data []byte) []byte {
	var a []byte
	a = attr(a, unix.NFTA_IMMEDIATE_DREG, be32(register))
	a = nest(a, unix.NFTA_IMMEDIATE_DATA, data)
	return expression("immediate", a)
}

func accept() []byte {
	verdict := attr(nil, unix.NFTA_VERDICT_CODE, be32(nfAccept))
	return immediate(unix.NFT_REG_VERDICT, nest(nil, unix.NFTA_DATA_VERDICT, verdict))
}

// redirect sends the packet to a port of the loopback address.
func redirect(to uint16) []byte {
	e := immediate(unix.NFT_REG_1, attr(nil, unix.NFTA_DATA_VALUE, be16(to)))
	return append(e, expression("redir", attr(nil, unix.NFTA_REDIR_REG_PROTO_MIN, be32(unix.NFT_REG_1)))...)
}

func reject(kind uint32, code uint8) []byte {
	a := attr(nil, unix.NFTA_REJECT_TYPE, be32(kind))
	a = attr(a, unix.NFTA_REJECT_ICMP_CODE, []byte{code})
	return expression("reject", a)
}

// localRoutes gives the messages that make every address one of the box's own, on
// its loopback interface (ip route add local default dev lo src ...). A connection to
// any address then stays inside, and its source address is the loopback one.
func localRoutes(f family, lo uint32) []netlinkMessage {
	scope := uint8(unix.RT_SCOPE_UNIVERSE)
	if f.number == unix.AF_INET {
		scope = unix.RT_SCOPE_HOST
	}
	// struct rtmsg of linux/rtnetlink.h
	b := []byte{f.number, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_BOOT, scope, unix.RTN_LOCAL, 0, 0, 0, 0}
	b = attr(b, unix.RTA_OIF, native32(lo))
	b = attr(b, unix.RTA_PREFSRC, f.own().AsSlice())
	what := "a local default route for " + f.long
	return []netlinkMessage{{kind: unix.RTM_NEWROUTE, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_ACK, body: b, what: what}}
}

// secondAddress gives the message that adds another address to the loopback interface
// (ip addr add ... dev lo). With 127.0.0.1 and ::1 alone glibc takes the box for one
// without a network: getaddrinfo(3) with AI_ADDRCONFIG then has no answer for a program
// that asks for one family, be it about a literal address.
func secondAddress(f family, lo uint32) netlinkMessage {
	scope := uint8(unix.RT_SCOPE_UNIVERSE)
	if f.number == unix.AF_INET {
		scope = unix.RT_SCOPE_HOST
	}
	// struct ifaddrmsg of linux/if_addr.h
	b := append([]byte{f.number, uint8(f.second.Bits()), unix.IFA_F_NODAD, scope}, native32(lo)...)
	b = attr(b, unix.IFA_LOCAL, f.second.Addr().AsSlice())
	b = attr(b, unix.IFA_ADDRESS, f.second.Addr().AsSlice())
	return netlinkMessage{kind: unix.RTM_NEWADDR, flags: unix.NLM_F_CREATE | unix.NLM_F_EXCL | unix.NLM_F_ACK, body: b, what: "a second loopback address of " + f.long}
}
