package egress

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// A Resolver answers the queries of the box by the rules, and asks nobody: there is no
// answer that depends on another host, and no lookup that leaves this one.
type Resolver struct {
	Rules *Rules
	Table *Table
	// Search is the search domains of the host, and Hostname its name, as of ParseName.
	// They have no part in any answer.
	Search   []string
	Hostname string
	Seen     func(Lookup) // called for every question, before its answer is given; may be nil
}

// A Lookup is a question about a name, and the decision.
type Lookup struct {
	Name string // as of ParseName; as in a zone file, with escapes, when it is not a host name
	Type string // "A", "HTTPS", "TYPE64"
	// Aside is set for refused names that programs look up without wanting to reach
	// anything else: an allowed name with a search domain behind it, which resolvers try
	// on their own, the name of this machine, and the name of an address.
	Aside bool
	Decision
}

// The reasons of refused lookups, besides those of the rules.
const (
	reasonNotName   = "not a host name"
	reasonTableFull = "the box has asked for too many names"
	reasonQuery     = "not a query for names of the internet"
)

// Numbers of DNS: RFC 1035 4.1, RFC 3596, RFC 6891, RFC 9460.
const (
	typeA     = 1
	typeSOA   = 6
	typePTR   = 12
	typeAAAA  = 28
	typeOPT   = 41
	typeANY   = 255
	classINET = 1

	rcodeFormat   = 1
	rcodeServer   = 2
	rcodeName     = 3
	rcodeNotImpl  = 4
	rcodeRefused  = 5
	rcodeVersion  = 16 // the upper eight bits go into the OPT record
	flagResponse  = 1 << 15
	flagRecursion = 1 << 8 // desired
	flagAvailable = 1 << 7 // recursion
	flagChecking  = 1 << 4 // disabled
	opcodeBits    = 0xf << 11
	headerSize    = 12
)

const (
	// ttl is in seconds. Addresses stay with their names, so that it could be longer;
	// but a program may take its cache to a place where they mean nothing.
	ttl = 5
	// payload is the size of UDP messages that the OPT record offers (RFC 9715).
	payload = 1232
)

// typeName gives the name of a record type.
func typeName(typ uint16) string {
	switch typ {
	case typeA:
		return "A"
	case 2:
		return "NS"
	case 5:
		return "CNAME"
	case typeSOA:
		return "SOA"
	case typePTR:
		return "PTR"
	case 15:
		return "MX"
	case 16:
		return "TXT"
	case typeAAAA:
		return "AAAA"
	case 33:
		return "SRV"
	case 64:
		return "SVCB"
	case 65:
		return "HTTPS"
	case typeANY:
		return "ANY"
	}
	return "TYPE" + strconv.Itoa(int(typ)) // RFC 3597
}

// A question is the only one of a query. Its name is kept as it came: programs may
// compare the answer's byte for byte, with upper and lower case mixed at random.
type question struct {
	raw    []byte // name, type and class, as sent
	labels []string
	typ    uint16
	class  uint16
}

// A query is what is needed of a message.
type query struct {
	id, flags uint16
	question  question
	edns      bool
	version   byte
	do        bool
}

// Answer gives the answer to a query, over UDP as over TCP (there without the length
// before it), or nil when there is to be none: for what is too short to be a query,
// or itself an answer. No answer is longer than 512 bytes, the least that every
// client takes (RFC 1035 4.2.1), so that none has to be truncated.
func (r *Resolver) Answer(msg []byte) []byte {
	if len(msg) < headerSize || msg[2]&0x80 != 0 {
		return nil
	}
	q, rcode := parseQuery(msg)
	if rcode != 0 {
		return q.reply(rcode, nil)
	}
	if q.version > 0 {
		return q.reply(rcodeVersion, nil)
	}
	rcode, answers := r.look(q.question)
	return q.reply(rcode, answers)
}

// parseQuery reads a message that is at least a header. On an error the question is
// set only when it could be read.
func parseQuery(msg []byte) (query, int) {
	be := binary.BigEndian
	q := query{id: be.Uint16(msg), flags: be.Uint16(msg[2:])}
	if q.flags&opcodeBits != 0 {
		return q, rcodeNotImpl
	}
	if be.Uint16(msg[4:]) != 1 || be.Uint16(msg[6:]) != 0 || be.Uint16(msg[8:]) != 0 {
		return q, rcodeFormat
	}
	labels, n := readName(msg[headerSize:])
	end := headerSize + n + 4
	if n == 0 || len(msg) < end {
		return q, rcodeFormat
	}
	q.question = question{msg[headerSize:end:end], labels, be.Uint16(msg[end-4:]), be.Uint16(msg[end-2:])}
	rest := msg[end:]
	for range be.Uint16(msg[10:]) {
		name, n := readName(rest)
		if n == 0 || len(rest) < n+10 {
			return q, rcodeFormat
		}
		fixed := rest[n : n+10]
		size := n + 10 + int(be.Uint16(fixed[8:]))
		if len(rest) < size {
			return q, rcodeFormat
		}
		if be.Uint16(fixed) == typeOPT {
			if q.edns || len(name) != 0 { // RFC 6891 6.1.1
				return q, rcodeFormat
			}
			q.edns, q.version, q.do = true, fixed[5], fixed[6]&0x80 != 0
		}
		rest = rest[size:]
	}
	if len(rest) != 0 {
		return q, rcodeFormat
	}
	return q, 0
}

// readName reads a name in wire form that is not compressed: in a query there is
// nothing that it could point to. It gives the labels and the size, which is 0 for
// what is no name.
func readName(b []byte) (labels []string, size int) {
	for size < len(b) && size < 255 {
		n := int(b[size])
		size++
		if n == 0 {
			return labels, size
		}
		if n > 63 || len(b) < size+n {
			return nil, 0
		}
		labels = append(labels, string(b[size:size+n]))
		size += n
	}
	return nil, 0
}

// escape writes labels as in a zone file (RFC 1035 5.1).
func escape(labels []string) string {
	var b strings.Builder
	for i, l := range labels {
		if i > 0 {
			b.WriteByte('.')
		}
		for _, c := range []byte(l) {
			switch {
			case c == '.' || c == '\\':
				b.WriteByte('\\')
				b.WriteByte(c)
			case c <= ' ' || c > '~':
				fmt.Fprintf(&b, `\%03d`, c)
			default:
				b.WriteByte(c)
			}
		}
	}
	return b.String()
}

// A record is the type and the data of an answer to the question.
type record struct {
	typ  uint16
	data []byte
}

// look decides a question and gives its answer.
func (r *Resolver) look(q question) (rcode int, answers []record) {
	l := Lookup{Type: typeName(q.typ)}
	var name string
	err := errNameByte
	if !strings.Contains(strings.Join(q.labels, ""), ".") {
		name, err = ParseName(strings.Join(q.labels, "."))
	}
	switch {
	case q.class != classINET, q.typ > 127 && q.typ < typeANY, q.typ == typeOPT: // zone transfers and other questions that are not about data, RFC 6895 3.1
		rcode, l.Decision = rcodeRefused, Decision{Rule: r.Rules.origin, Reason: reasonQuery}
		if l.Name = name; err != nil {
			l.Name = escape(q.labels)
		}
	case len(q.labels) == 0: // the root: there is nothing there to be reached, and no harm in asking
		rcode, l.Name, l.Decision = rcodeName, ".", Decision{Rule: r.Rules.origin, Reason: reasonNone}
	case err != nil:
		rcode, l.Name, l.Decision = rcodeRefused, escape(q.labels), Decision{Rule: r.Rules.origin, Reason: reasonNotName}
	case isReverse(name):
		l.Name = name
		rcode, answers, l.Decision = r.reverse(name, q.typ)
		_, isAddr := reverseAddr(name)
		l.Aside = isAddr && q.typ == typePTR
	default:
		l.Name, l.Decision = name, r.Rules.DecideName(name)
		if !l.Allowed {
			rcode, l.Aside = rcodeName, r.aside(name)
			break
		}
		v4, v6, ok := netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback(), true
		if !isLocalhost(name) {
			v4, v6, ok = r.Table.Add(name)
		}
		if !ok {
			rcode, l.Decision = rcodeServer, Decision{Rule: r.Rules.origin, Reason: reasonTableFull}
			break
		}
		if q.typ == typeA || q.typ == typeANY {
			answers = append(answers, record{typeA, v4.AsSlice()})
		}
		if q.typ == typeAAAA || q.typ == typeANY {
			answers = append(answers, record{typeAAAA, v6.AsSlice()})
		}
	}
	if r.Seen != nil {
		r.Seen(l)
	}
	return rcode, answers
}

// aside reports whether a refused name is that of this machine, or an allowed one, with
// a search domain behind it.
func (r *Resolver) aside(name string) bool {
	if name == r.Hostname {
		return true
	}
	for _, domain := range r.Search {
		if wanted, ok := strings.CutSuffix(name, "."+domain); ok && (wanted == r.Hostname || r.Rules.DecideName(wanted).Allowed) {
			return true
		}
	}
	return false
}

// searchDomains gives the search domains in the text of resolv.conf(5), of which the
// last line with some counts.
func searchDomains(text string) []string {
	var domains []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "search" && words[0] != "domain" {
			continue
		}
		domains = nil
		for _, w := range words[1:] {
			if name, err := ParseName(w); err == nil {
				domains = append(domains, name)
			}
		}
	}
	return domains
}

// reverse gives the name of a synthetic address, or localhost for the box itself.
// Nothing else has a name; a name below these domains is never an allowed one.
func (r *Resolver) reverse(name string, typ uint16) (int, []record, Decision) {
	refused := Decision{Rule: r.Rules.origin, Reason: reasonNone}
	addr, ok := reverseAddr(name)
	if !ok {
		return rcodeName, nil, refused
	}
	target, ok := r.Table.Name(addr)
	if addr.IsLoopback() {
		target, ok = "localhost", true
	}
	if !ok {
		return rcodeName, nil, refused
	}
	d := Decision{Allowed: true, Rule: r.Rules.origin}
	if typ != typePTR && typ != typeANY {
		return 0, nil, d
	}
	var data []byte
	for label := range strings.SplitSeq(target, ".") {
		data = append(data, byte(len(label)))
		data = append(data, label...)
	}
	return 0, []record{{typePTR, append(data, 0)}}, d
}

// isReverse reports whether a parsed name is where the names of addresses are looked up.
func isReverse(name string) bool {
	return strings.HasSuffix(name, ".in-addr.arpa") || strings.HasSuffix(name, ".ip6.arpa")
}

// reverseAddr gives the address that a parsed name below in-addr.arpa (RFC 1035 3.5)
// or ip6.arpa (RFC 3596 2.5) stands for.
func reverseAddr(name string) (netip.Addr, bool) {
	var text strings.Builder
	if rest, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		labels := strings.Split(rest, ".")
		for i := len(labels) - 1; i >= 0; i-- {
			text.WriteString(labels[i])
			if i > 0 {
				text.WriteByte('.')
			}
		}
	} else {
		rest := strings.TrimSuffix(name, ".ip6.arpa")
		if len(rest) != 63 {
			return netip.Addr{}, false
		}
		for i := 62; i >= 0; i -= 2 {
			if i < 62 && rest[i+1] != '.' {
				return netip.Addr{}, false
			}
			text.WriteByte(rest[i])
			if n := 32 - i/2; n%4 == 0 && n < 32 {
				text.WriteByte(':')
			}
		}
	}
	addr, err := netip.ParseAddr(text.String())
	return addr, err == nil
}

// reply makes the answer: header, the question when it could be read, the records,
// for an answer without records the SOA record that says how long to remember it
// (RFC 2308), and an OPT record when the query has one.
func (q *query) reply(rcode int, answers []record) []byte {
	be := binary.BigEndian
	b := make([]byte, headerSize, 512)
	be.PutUint16(b, q.id)
	be.PutUint16(b[2:], flagResponse|flagAvailable|q.flags&(opcodeBits|flagRecursion|flagChecking)|uint16(rcode&0xf))
	if q.question.raw != nil {
		be.PutUint16(b[4:], 1)
		b = append(b, q.question.raw...)
	}
	for _, a := range answers {
		b = append(b, 0xc0, headerSize) // a pointer to the name of the question
		b = appendRecord(b, a.typ, a.data)
	}
	be.PutUint16(b[6:], uint16(len(answers)))
	if len(answers) == 0 && (rcode == 0 || rcode == rcodeName) {
		// Of the root, with serial number 1 and times that nobody uses but the last one.
		soa := make([]byte, 2+5*4)
		be.PutUint32(soa[2:], 1)
		for i, t := range []uint32{3600, 600, 86400, ttl} {
			be.PutUint32(soa[6+4*i:], t)
		}
		b = appendRecord(append(b, 0), typeSOA, soa)
		be.PutUint16(b[8:], 1)
	}
	if q.edns {
		var do byte
		if q.do {
			do = 0x80
		}
		b = append(b, 0, 0, typeOPT)
		b = be.AppendUint16(b, payload)
		b = append(b, byte(rcode>>4), 0, do, 0, 0, 0)
		be.PutUint16(b[10:], 1)
	}
	return b
}

func appendRecord(b []byte, typ uint16, data []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, typ)
	b = be.AppendUint16(b, classINET)
	b = be.AppendUint32(b, ttl)
	b = be.AppendUint16(b, uint16(len(data)))
	return append(b, data...)
}
