package egress

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

var testTypes = map[string]dnsmessage.Type{
	"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "PTR": dnsmessage.TypePTR, "HTTPS": 65, "SVCB": 64, "ANY": dnsmessage.TypeALL, "SOA": dnsmessage.TypeSOA, "NS": dnsmessage.TypeNS,
	"MX": dnsmessage.TypeMX, "TXT": dnsmessage.TypeTXT, "SRV": dnsmessage.TypeSRV, "CNAME": dnsmessage.TypeCNAME, "CAA": 257, "DNSKEY": 48, "DS": 43, "AXFR": 252, "IXFR": 251, "TSIG": 250, "OPT": 41, "URI": 256, "NULL": 10, "ZERO": 0,
}

// newQuery packs a query with dnsmessage.
func newQuery(t testing.TB, name string, typ dnsmessage.Type, change ...func(*dnsmessage.Message)) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 0xbeef, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(strings.TrimSuffix(name, ".") + "."), Type: typ, Class: dnsmessage.ClassINET}},
	}
	for _, f := range change {
		f(&m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ask(t testing.TB, r *Resolver, query []byte) dnsmessage.Message {
	t.Helper()
	b := r.Answer(query)
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatalf("the answer %x to %x: %v", b, query, err)
	}
	return m
}

// lookup gives the data of the answers about a name.
func lookup(t testing.TB, r *Resolver, name, typ string) []string {
	t.Helper()
	var list []string
	for _, a := range ask(t, r, newQuery(t, name, testTypes[typ])).Answers {
		switch b := a.Body.(type) {
		case *dnsmessage.AResource:
			list = append(list, netip.AddrFrom4(b.A).String())
		case *dnsmessage.AAAAResource:
			list = append(list, netip.AddrFrom16(b.AAAA).String())
		case *dnsmessage.PTRResource:
			list = append(list, b.PTR.String())
		default:
			t.Errorf("%s %s has an answer of type %s", name, typ, a.Header.Type)
		}
	}
	return list
}

func testResolver(t testing.TB) *Resolver {
	return &Resolver{
		Rules: compile(t, []string{"example.org 443", "*.sub.test 443", "zero.test 443", "10.0.0.0/8 *", "in-addr.arpa 443", "*.ip6.arpa 443"}, []string{"zero.test *", "bad.sub.test *"}),
		Table: new(Table),
	}
}

func TestAnswer(t *testing.T) {
	r := testResolver(t)
	ok, no, refused := dnsmessage.RCodeSuccess, dnsmessage.RCodeNameError, dnsmessage.RCodeRefused
	v4, v6 := "198.18.0.1", "fd77:616c:6c00::1"
	for _, c := range []struct {
		name, typ string
		rcode     dnsmessage.RCode
		want      []string
	}{
		{"example.org", "A", ok, []string{v4}},
		{"eXaMPLE.oRG", "AAAA", ok, []string{v6}},
		{"example.org", "ANY", ok, []string{v4, v6}},
		{"example.org", "HTTPS", ok, nil}, {"example.org", "SVCB", ok, nil}, {"example.org", "SOA", ok, nil}, {"example.org", "NS", ok, nil}, {"example.org", "MX", ok, nil}, {"example.org", "TXT", ok, nil},
		{"example.org", "SRV", ok, nil}, {"example.org", "CNAME", ok, nil}, {"example.org", "CAA", ok, nil}, {"example.org", "PTR", ok, nil}, {"example.org", "DNSKEY", ok, nil}, {"example.org", "URI", ok, nil}, {"example.org", "NULL", ok, nil}, {"example.org", "ZERO", ok, nil},
		{"example.org", "AXFR", refused, nil}, {"example.org", "IXFR", refused, nil}, {"example.org", "TSIG", refused, nil}, {"example.org", "OPT", refused, nil},
		{"www.example.org", "A", no, nil}, {"org", "A", no, nil}, {"org", "NS", no, nil}, {".", "NS", no, nil}, {"other.test", "A", no, nil}, {"other.test", "TXT", no, nil}, {"other.test", "AXFR", refused, nil},
		{"example.org.corp.test", "A", no, nil}, // with a search domain
		{"_443._tcp.example.org", "TXT", no, nil},
		{"use-application-dns.net", "A", no, nil},
		{"sub.test", "A", no, nil}, {"x.sub.test", "A", ok, []string{"198.18.0.2"}}, {"a.b.c.sub.test", "A", ok, []string{"198.18.0.3"}}, {"_srv._tcp.sub.test", "SRV", ok, nil},
		{"bad.sub.test", "A", no, nil}, {"zero.test", "A", no, nil},
		{"localhost", "A", ok, []string{"127.0.0.1"}}, {"LOCALHOST", "AAAA", ok, []string{"::1"}}, {"x.localhost", "A", ok, []string{"127.0.0.1"}}, {"localhost", "TXT", ok, nil}, {"localhost", "ANY", ok, []string{"127.0.0.1", "::1"}},
		{"127.0.0.1", "A", refused, nil}, {"127.1", "A", refused, nil}, {"0x7f000001", "A", refused, nil}, {"a\x00b.org", "A", refused, nil}, {"example.org\x00", "A", refused, nil}, {"ex ample.org", "A", refused, nil}, {"-a.org", "A", refused, nil}, {"*.sub.test", "A", refused, nil},
		{"b\xfccher.sub.test", "A", refused, nil},
		{"1.0.18.198.in-addr.arpa", "PTR", ok, []string{"example.org."}}, {"1.0.18.198.IN-addr.ARPA", "ANY", ok, []string{"example.org."}}, {"1.0.18.198.in-addr.arpa", "A", ok, nil},
		{"2.0.18.198.in-addr.arpa", "PTR", ok, []string{"x.sub.test."}}, {"200.0.18.198.in-addr.arpa", "PTR", no, nil}, {"0.18.198.in-addr.arpa", "PTR", no, nil}, {"1.0.0.10.in-addr.arpa", "PTR", no, nil},
		{"1.0.0.127.in-addr.arpa", "PTR", ok, []string{"localhost."}}, {"x.in-addr.arpa", "A", no, nil}, {"in-addr.arpa", "PTR", ok, nil}, {"01.0.18.198.in-addr.arpa", "PTR", no, nil}, {"1.0.0.18.198.in-addr.arpa", "PTR", no, nil},
		{"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.c.6.c.6.1.6.7.7.d.f.ip6.arpa", "PTR", ok, []string{"example.org."}},
		{"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.C.6.c.6.1.6.7.7.D.f.ip6.arpa", "PTR", ok, []string{"example.org."}},
		{"9.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.c.6.c.6.1.6.7.7.d.f.ip6.arpa", "PTR", no, nil},
		{"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa", "PTR", ok, []string{"localhost."}},
		{"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.ip6.arpa", "PTR", no, nil},
		{"10.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.00.ip6.arpa", "PTR", no, nil},
		{"x.ip6.arpa", "A", no, nil}, // nothing to reach there, whatever the rules say
	} {
		query := newQuery(t, c.name, testTypes[c.typ])
		m := ask(t, r, query)
		if m.RCode != c.rcode {
			t.Errorf("%q %s: %s, want %s", c.name, c.typ, m.RCode, c.rcode)
		}
		if got := lookup(t, r, c.name, c.typ); !slices.Equal(got, c.want) {
			t.Errorf("%q %s: %q, want %q", c.name, c.typ, got, c.want)
		}
		checkAnswer(t, query, r.Answer(query))
		negative := len(c.want) == 0 && c.rcode != refused
		if negative != (len(m.Authorities) == 1) {
			t.Errorf("%q %s: authorities %v", c.name, c.typ, m.Authorities)
		}
		for _, a := range m.Authorities {
			if soa := a.Body.(*dnsmessage.SOAResource); soa.MinTTL != ttl || a.Header.TTL != ttl || a.Header.Name.String() != "." {
				t.Errorf("%q %s: remembered by %v", c.name, c.typ, a)
			}
		}
	}
}

// undotted replaces the dots in the labels of the question, at which dnsmessage fails.
func undotted(msg []byte) []byte {
	msg = bytes.Clone(msg)
	if len(msg) <= 12 || msg[4]|msg[5] == 0 {
		return msg
	}
	labels, _ := readName(msg[12:])
	i := 12
	for _, l := range labels {
		copy(msg[i+1:], strings.ReplaceAll(l, ".", "!"))
		i += 1 + len(l)
	}
	return msg
}

// checkAnswer has what holds for every answer to every query.
func checkAnswer(t testing.TB, query, answer []byte) {
	t.Helper()
	if len(query) < 12 || query[2]&0x80 != 0 {
		if answer != nil {
			t.Errorf("an answer to %x, which is no query", query)
		}
		return
	}
	if len(answer) > 512 || len(answer) > len(query)+75+255 {
		t.Errorf("an answer of %d bytes to a query of %d", len(answer), len(query))
	}
	var m dnsmessage.Message
	if err := m.Unpack(undotted(answer)); err != nil {
		t.Fatalf("%x: %v", answer, err)
	}
	h := m.Header
	if !bytes.Equal(answer[:2], query[:2]) || !h.Response || h.OpCode != dnsmessage.OpCode(query[2]>>3&0xf) || h.RecursionDesired != (query[2]&1 != 0) || !h.RecursionAvailable ||
		h.Truncated || h.Authoritative || h.AuthenticData || h.CheckingDisabled != (query[3]&0x10 != 0) || answer[3]&0x40 != 0 {
		t.Errorf("the header %x for %x", answer[:12], query[:12])
	}
	switch len(m.Questions) {
	case 0:
		if m.RCode != dnsmessage.RCodeFormatError && m.RCode != dnsmessage.RCodeNotImplemented {
			t.Errorf("%s without a question", m.RCode)
		}
	case 1:
		_, n := readName(query[12:])
		if n == 0 || !bytes.Equal(answer[12:12+n+4], query[12:12+n+4]) {
			t.Errorf("another question: %x for %x", answer, query)
		}
	default:
		t.Errorf("%d questions", len(m.Questions))
	}
	if len(m.Answers) > 2 || len(m.Answers) > 0 && m.RCode != 0 || len(m.Authorities) > 1 || len(m.Additionals) > 1 {
		t.Errorf("too many records: %v", m)
	}
	for _, a := range m.Answers {
		if a.Header.Name != m.Questions[0].Name || a.Header.Class != dnsmessage.ClassINET || a.Header.TTL < 1 || a.Header.TTL > 5 {
			t.Errorf("a record that does not answer the question: %v", a)
		}
		addr := netip.IPv6Loopback()
		switch b := a.Body.(type) {
		case *dnsmessage.AResource:
			addr = netip.AddrFrom4(b.A)
		case *dnsmessage.AAAAResource:
			addr = netip.AddrFrom16(b.AAAA)
		case *dnsmessage.PTRResource:
		default:
			t.Errorf("a record of type %s", a.Header.Type)
		}
		if !Synthetic(addr) && !addr.IsLoopback() {
			t.Errorf("a real address: %s", addr)
		}
	}
}

func TestAnswerHeaders(t *testing.T) {
	r := testResolver(t)
	good := newQuery(t, "example.org", dnsmessage.TypeA)
	raw := func(change func(b []byte) []byte) []byte { return change(bytes.Clone(good)) }
	opt := func(version byte, do bool, options ...byte) []byte {
		b := append(bytes.Clone(good), 0, 0, 41, 0x10, 0, 0, version, 0, 0)
		if do {
			b[len(b)-2] = 0x80
		}
		b[11] = 1
		return append(binary.BigEndian.AppendUint16(b, uint16(len(options))), options...)
	}
	for _, c := range []struct {
		what  string
		query []byte
		rcode int // -1: no answer
	}{
		{"a query", good, 0},
		{"nothing", nil, -1},
		{"half a header", good[:11], -1},
		{"an answer", raw(func(b []byte) []byte { b[2] |= 0x80; return b }), -1},
		{"a header alone", good[:12], 1},
		{"a cut name", good[:20], 1},
		{"a name without type and class", good[:len(good)-4], 1},
		{"a cut class", good[:len(good)-1], 1},
		{"no question", raw(func(b []byte) []byte { b[5] = 0; return b[:12] }), 1},
		{"two questions", raw(func(b []byte) []byte { b[5] = 2; return append(b, b[12:]...) }), 1},
		{"65535 questions", raw(func(b []byte) []byte { b[4], b[5] = 255, 255; return b }), 1},
		{"an answer section", raw(func(b []byte) []byte { b[7] = 1; return append(b, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0) }), 1},
		{"an authority section", raw(func(b []byte) []byte { b[9] = 1; return append(b, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0) }), 1},
		{"an answer section that is not there", raw(func(b []byte) []byte { b[7] = 1; return b }), 1},
		{"an authority section that is not there", raw(func(b []byte) []byte { b[8] = 1; return b }), 1},
		{"bytes behind the end", raw(func(b []byte) []byte { return append(b, 0) }), 1},
		{"a missing record", raw(func(b []byte) []byte { b[11] = 1; return b }), 1},
		{"a status query", raw(func(b []byte) []byte { b[2] |= 2 << 3; return b }), 4},
		{"a notify", raw(func(b []byte) []byte { b[2] |= 4 << 3; return b }), 4},
		{"an update", raw(func(b []byte) []byte { b[2] |= 5 << 3; return b }), 4},
		{"class CHAOS", newQuery(t, "version.bind", dnsmessage.TypeTXT, func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }), 5},
		{"class ANY", newQuery(t, "example.org", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassANY }), 5},
		{"class 0", newQuery(t, "example.org", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions[0].Class = 0 }), 5},
		{"a pointer to itself", append(bytes.Clone(good[:12]), 0xc0, 12, 0, 1, 0, 1), 1},
		{"a pointer to the header", append(bytes.Clone(good[:12]), 0xc0, 0, 0, 1, 0, 1), 1},
		{"a label of an unknown kind", append(bytes.Clone(good[:12]), 0x41, 1, 0, 0, 1, 0, 1), 1},
		{"a label of 64 bytes", append(append(bytes.Clone(good[:12]), 64), make([]byte, 70)...), 1},
		{"a name of 256 bytes", append(append(bytes.Clone(good[:12]), append(bytes.Repeat([]byte{3, 'a', 'a', 'a'}, 63), 2, 'b', 'b')...), 0, 0, 1, 0, 1), 1},
		{"a name of 257 bytes", append(append(bytes.Clone(good[:12]), bytes.Repeat([]byte{3, 'a', 'a', 'a'}, 64)...), 0, 0, 1, 0, 1), 1},
		{"a label of 63 bytes", append(append(append(bytes.Clone(good[:12]), 63), bytes.Repeat([]byte{'a'}, 63)...), 0, 0, 1, 0, 1), 3},
		{"a name of 255 bytes", append(append(bytes.Clone(good[:12]), append(bytes.Repeat([]byte{3, 'a', 'a', 'a'}, 63), 1, 'b')...), 0, 0, 1, 0, 1), 3},
		{"a dot in a label", append(append(bytes.Clone(good[:12]), "\x0bexample.org"...), 0, 0, 1, 0, 1), 5},
		{"another additional record", raw(func(b []byte) []byte { b[11] = 1; return append(b, 0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 2, 1, 2) }), 0},
		{"an additional record with a pointer", raw(func(b []byte) []byte { b[11] = 1; return append(b, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0) }), 1},
		{"a cut additional record", raw(func(b []byte) []byte { b[11] = 1; return slices.Clip(append(b, 0, 0, 250)) }), 1},
		{"EDNS", opt(0, false), 0},
		{"EDNS with DO", opt(0, true), 0},
		{"EDNS with options", opt(0, false, 0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8), 0},
		{"EDNS of version 1", opt(1, false), 16},
		{"EDNS twice", func() []byte { b := opt(0, false); b[11] = 2; return append(b, b[len(b)-11:]...) }(), 1},
		{"EDNS with a name", func() []byte {
			b := opt(0, false)
			return slices.Insert(b, len(b)-11, 1, 'a')
		}(), 1},
		{"EDNS cut", opt(0, false)[:len(good)+10], 1},
		{"EDNS with cut options", func() []byte { b := opt(0, false); b[len(b)-1] = 1; return b }(), 1},
	} {
		answer := r.Answer(slices.Clip(c.query)) // so that nothing can be read behind it
		checkAnswer(t, c.query, answer)
		if c.rcode < 0 {
			if answer != nil {
				t.Errorf("%s: answer %x", c.what, answer)
			}
			continue
		}
		var m dnsmessage.Message
		if err := m.Unpack(undotted(answer)); err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		rcode := int(m.RCode)
		for _, a := range m.Additionals {
			rcode = int(a.Header.ExtendedRCode(m.RCode))
		}
		if rcode != c.rcode {
			t.Errorf("%s: rcode %d, want %d", c.what, rcode, c.rcode)
		}
		edns := c.rcode != 1 && strings.HasPrefix(c.what, "EDNS")
		if edns != (len(m.Additionals) == 1) && c.rcode != 1 {
			t.Errorf("%s: additionals %v", c.what, m.Additionals)
		}
		if edns {
			if h := m.Additionals[0].Header; h.DNSSECAllowed() != (c.what == "EDNS with DO") || h.Class != payload || h.TTL>>16&0xff != 0 {
				t.Errorf("%s: %v", c.what, h)
			}
		}
	}
	for _, flag := range []func(*dnsmessage.Message){
		func(m *dnsmessage.Message) { m.RecursionDesired = false },
		func(m *dnsmessage.Message) { m.CheckingDisabled = true },
		func(m *dnsmessage.Message) { m.AuthenticData = true },
		func(m *dnsmessage.Message) { m.Truncated, m.Authoritative, m.RecursionAvailable = true, true, true },
	} {
		q := newQuery(t, "example.org", dnsmessage.TypeA, flag)
		checkAnswer(t, q, r.Answer(q))
	}
}

func TestAnswerFull(t *testing.T) {
	r := testResolver(t)
	for i := range tableSize {
		if got := lookup(t, r, fmt.Sprintf("n%d.sub.test", i), "A"); len(got) != 1 {
			t.Fatalf("name %d has the addresses %v", i, got)
		}
	}
	if m := ask(t, r, newQuery(t, "more.sub.test", dnsmessage.TypeA)); m.RCode != dnsmessage.RCodeServerFailure {
		t.Errorf("with a full table: %s", m.RCode)
	}
	if got := lookup(t, r, "n7.sub.test", "A"); len(got) != 1 {
		t.Errorf("with a full table, a known name has the addresses %v", got)
	}
	if got := lookup(t, r, "localhost", "A"); len(got) != 1 {
		t.Errorf("with a full table, localhost has the addresses %v", got)
	}
	// Names that are refused take no place.
	if _, ok := r.Table.Name(netip.MustParseAddr("198.18.0.1")); !ok {
		t.Error("the first name is gone")
	}
}

// TestAnswerRefusedNamesTakeNoPlace: the table is for allowed names.
func TestAnswerRefusedNamesTakeNoPlace(t *testing.T) {
	r := testResolver(t)
	for i := range 100 {
		lookup(t, r, fmt.Sprintf("n%d.other.test", i), "A")
		lookup(t, r, "localhost", "A")
		lookup(t, r, "example.org", "AAAA")
	}
	if len(r.Table.names) != 1 {
		t.Errorf("the table has %d names", len(r.Table.names))
	}
}

func TestAnswerSeen(t *testing.T) {
	r := testResolver(t)
	var seen []string
	r.Seen = func(l Lookup) {
		seen = append(seen, fmt.Sprintf("%s %s %t %s %s", l.Name, l.Type, l.Allowed, l.Rule.Text, l.Reason))
	}
	for _, c := range []struct{ name, typ, want string }{
		{"EXAMPLE.org", "A", "example.org A true example.org 443 "},
		{"example.org", "HTTPS", "example.org HTTPS true example.org 443 "},
		{"example.org", "URI", "example.org TYPE256 true example.org 443 "},
		{"example.org", "AXFR", "example.org TYPE252 false network " + reasonQuery},
		{"bad.sub.test", "A", "bad.sub.test A false bad.sub.test * " + reasonDenied},
		{"zero.test", "AAAA", "zero.test AAAA false zero.test * " + reasonDenied},
		{"other.test", "TXT", "other.test TXT false network " + reasonNone},
		{"a\x00\\\xff b.org", "A", `a\000\\\255\032b.org A false network ` + reasonNotName},
		{".", "NS", ". NS false network " + reasonNone},
		{"1.0.18.198.in-addr.arpa", "PTR", "1.0.18.198.in-addr.arpa PTR true network "},
		{"localhost", "A", "localhost A true network "},
	} {
		seen = nil
		r.Answer(newQuery(t, c.name, testTypes[c.typ]))
		if !slices.Equal(seen, []string{c.want}) {
			t.Errorf("%q %s: seen %q, want %q", c.name, c.typ, seen, c.want)
		}
	}
	seen = nil
	r.Answer(append(append(newQuery(t, "x.org", dnsmessage.TypeA)[:12:12], "\x0bexample.org"...), 0, 0, 1, 0, 1))
	if want := `example\.org A false network ` + reasonNotName; !slices.Equal(seen, []string{want}) {
		t.Errorf("a dot in a label: seen %q, want %q", seen, want)
	}
}

// TestAnswerAside: what resolvers try on their own is told apart from what was wanted.
func TestAnswerAside(t *testing.T) {
	r := testResolver(t)
	var seen Lookup
	r.Seen = func(l Lookup) { seen = l }
	r.Search, r.Hostname = []string{"corp.test", "sub.corp.test"}, "this.host"
	for _, c := range []struct {
		name, typ      string
		allowed, aside bool
	}{
		{"example.org", "A", true, false},
		{"example.org.corp.test", "A", false, true},
		{"EXAMPLE.org.CORP.test", "AAAA", false, true},
		{"example.org.sub.corp.test", "A", false, true},
		{"x.sub.test.corp.test", "A", false, true},
		{"localhost.corp.test", "A", false, true},
		{"example.org.other.test", "A", false, false}, // no search domain
		{"www.example.org.corp.test", "A", false, false},
		{"bad.sub.test.corp.test", "A", false, false},
		{"db.corp.test", "A", false, false},
		{"corp.test", "A", false, false},
		{"this.host", "A", false, true},
		{"This.Host.corp.test", "AAAA", false, true},
		{"this.host.other.test", "A", false, false},
		{"that.host", "A", false, false},
		{"x.this.host", "A", false, false},
		{"other.test", "A", false, false},
		{"1.0.0.10.in-addr.arpa", "PTR", false, true},
		{"1.0.0.10.in-addr.arpa", "TXT", false, false},
		{"secret.1.0.0.10.in-addr.arpa", "PTR", false, false},
		{"secret.in-addr.arpa", "PTR", false, false},
		{"9.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.c.6.c.6.1.6.7.7.d.f.ip6.arpa", "PTR", false, true},
	} {
		r.Answer(newQuery(t, c.name, testTypes[c.typ]))
		if seen.Allowed != c.allowed || seen.Aside != c.aside {
			t.Errorf("%s %s: allowed %t, aside %t, want %t and %t", c.name, c.typ, seen.Allowed, seen.Aside, c.allowed, c.aside)
		}
	}
}

func TestSearchDomains(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil,
		"nameserver 10.0.0.1\nsearch Corp.test. sub.corp.test\noptions ndots:5\n": {"corp.test", "sub.corp.test"},
		"domain corp.test":                         {"corp.test"},
		"search a.test\n search\tb.test . c_.test": {"b.test", "c_.test"},
		"search a.test\nsearch\n":                  nil,
		"#search a.test\nsearching b.test\n":       nil,
	} {
		if got := searchDomains(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	for name, typ := range map[string]string{"example.org": "A", "x.sub.test": "AAAA", "1.0.18.198.in-addr.arpa": "PTR", "localhost": "ANY", "other.test": "HTTPS", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.c.6.c.6.1.6.7.7.d.f.ip6.arpa": "PTR"} {
		q := newQuery(f, name, testTypes[typ])
		f.Add(q)
		q = append(bytes.Clone(q), 0, 0, 41, 0x10, 0, 0, 0, 0x80, 0, 0, 0)
		q[11] = 1
		f.Add(q)
	}
	f.Add(newQuery(f, "a\x00.test", dnsmessage.TypeA))
	r := testResolver(f)
	r.Table.Add("example.org")
	f.Fuzz(func(t *testing.T, query []byte) {
		answer := r.Answer(query)
		checkAnswer(t, query, answer)
		if answer == nil {
			return
		}
		// A second opinion about the query: what we understand, dnsmessage understands, and as the same.
		var p dnsmessage.Parser
		rcode := answer[3] & 0xf
		if _, err := p.Start(undotted(query)); err != nil || rcode == rcodeFormat || rcode == rcodeNotImpl {
			return
		}
		q, err := p.Question()
		if err != nil {
			t.Fatalf("%x is a query to us, and to dnsmessage: %v", query, err)
		}
		if rcode == 0 && len(answer) > 0 && answer[7] > 0 {
			name, err := ParseName(q.Name.String())
			if err != nil {
				t.Fatalf("an answer about %q", q.Name)
			}
			if d := r.Rules.DecideName(name); !d.Allowed && !strings.HasSuffix(name, ".arpa") {
				t.Fatalf("an answer about %q", name)
			}
		}
	})
}

func BenchmarkAnswer(b *testing.B) {
	r := testResolver(b)
	q := newQuery(b, "www.sub.test", dnsmessage.TypeA)
	for b.Loop() {
		r.Answer(q)
	}
}
