package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

// hostRule reads a rule of a test: "NAME", "*.NAME" or "NETWORK", and ports such as
// "443", "8000-8080" and "*" after a space. The text is its origin.
func hostRule(text string) plan.HostRule {
	host, ports, _ := strings.Cut(text, " ")
	r := plan.HostRule{Origin: plan.Origin{Text: text}}
	if strings.Contains(host, "/") {
		r.Prefix = host
	} else {
		r.Name, r.Suffix = strings.CutPrefix(host, "*.")
	}
	for p := range strings.SplitSeq(ports, ",") {
		first, last, ok := strings.Cut(p, "-")
		switch {
		case p == "*":
			first, last = "1", "65535"
		case !ok:
			last = first
		}
		a, err := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil {
			panic("the ports of " + text)
		}
		r.Ports = append(r.Ports, plan.PortRange{First: a, Last: b})
	}
	return r
}

var network = plan.Origin{Text: "network"}

func testNetwork(allow, deny []string) plan.Network {
	n := plan.Network{Method: plan.NetRedirect, HTTP: 1, SOCKS: 2, Connections: 1, Origin: network}
	for _, r := range allow {
		n.Allow = append(n.Allow, hostRule(r))
	}
	for _, r := range deny {
		n.Deny = append(n.Deny, hostRule(r))
	}
	return n
}

func compile(t testing.TB, allow, deny []string, own ...string) *Rules {
	t.Helper()
	r, err := Compile(testNetwork(allow, deny), func() []netip.Addr {
		var list []netip.Addr
		for _, a := range own {
			list = append(list, netip.MustParseAddr(a))
		}
		return list
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// expect compares a decision: rule is the text of the rule that decides.
func expect(t *testing.T, what string, got Decision, rule, reason string) {
	t.Helper()
	want := Decision{Allowed: reason == "", Rule: plan.Origin{Text: rule}, Reason: reason}
	if got != want {
		t.Errorf("%s: allowed %t by %q, reason %q; want %t by %q, reason %q", what, got.Allowed, got.Rule.Text, got.Reason, want.Allowed, want.Rule.Text, want.Reason)
	}
}

func TestDecide(t *testing.T) {
	r := compile(t, []string{
		"example.org 80,443", "*.example.org 443", "api.example.org 8000-8080", "git.test 22", "*.deep.under.test *", "all.test *", "some.test 1-1000", "none.test 1-10,20",
		"localhost *", "10.0.0.0/8 *",
	}, []string{
		"bad.example.org *", "*.bad.example.org *", "all.test 25,465", "*.some.test *", "some.test 1-79,81-1000", "none.test 1-65535", "denied.test 443", "*.x.deep.under.test 22",
	})
	for _, c := range []struct {
		name         string
		port         int
		rule, reason string
	}{
		{"example.org", 443, "example.org 80,443", ""},
		{"example.org", 80, "example.org 80,443", ""},
		{"example.org", 81, "example.org 80,443", reasonPort},
		{"example.org", 0, "example.org 80,443", reasonPort},
		{"www.example.org", 443, "*.example.org 443", ""},
		{"a.b.c.example.org", 443, "*.example.org 443", ""},
		{"_x.example.org", 443, "*.example.org 443", ""},
		{"www.example.org", 80, "*.example.org 443", reasonPort},
		{"api.example.org", 8000, "api.example.org 8000-8080", ""},
		{"api.example.org", 8080, "api.example.org 8000-8080", ""},
		{"api.example.org", 443, "*.example.org 443", ""}, // both speak of it
		{"api.example.org", 7999, "api.example.org 8000-8080", reasonPort},
		{"api.example.org", 8081, "api.example.org 8000-8080", reasonPort},
		{"x.api.example.org", 8000, "*.example.org 443", reasonPort},
		{"wwwexample.org", 443, "network", reasonNone},
		{"example.org.evil.test", 443, "network", reasonNone},
		{"org", 443, "network", reasonNone},
		{"xexample.org", 443, "network", reasonNone},
		{"git.test", 22, "git.test 22", ""},
		{"x.git.test", 22, "network", reasonNone},
		{"deep.under.test", 1, "network", reasonNone}, // not the name itself
		{"a.deep.under.test", 65535, "*.deep.under.test *", ""},
		{"x.deep.under.test", 22, "*.deep.under.test *", ""},
		{"y.x.deep.under.test", 22, "*.x.deep.under.test 22", reasonDenied},
		{"y.x.deep.under.test", 23, "*.deep.under.test *", ""},
		{"bad.example.org", 443, "bad.example.org *", reasonDenied},
		{"a.bad.example.org", 443, "*.bad.example.org *", reasonDenied},
		{"notbad.example.org", 443, "*.example.org 443", ""},
		{"all.test", 25, "all.test 25,465", reasonDenied},
		{"all.test", 26, "all.test *", ""},
		{"some.test", 80, "some.test 1-1000", ""},
		{"some.test", 79, "some.test 1-79,81-1000", reasonDenied},
		{"denied.test", 443, "denied.test 443", reasonDenied},
		{"denied.test", 80, "network", reasonNone},
		{"localhost", 80, "network", reasonLocalhost},
		{"a.localhost", 80, "network", reasonLocalhost},
		{"notlocalhost", 80, "network", reasonNone},
		{"", 443, "network", reasonNone},
	} {
		expect(t, fmt.Sprint(c.name, " ", c.port), r.Decide(c.name, c.port), c.rule, c.reason)
	}
	for _, c := range []struct{ name, rule, reason string }{
		{"example.org", "example.org 80,443", ""},
		{"www.example.org", "*.example.org 443", ""},
		{"bad.example.org", "bad.example.org *", reasonDenied},
		{"all.test", "all.test *", ""},
		{"some.test", "some.test 1-1000", ""}, // port 80 is left
		{"x.some.test", "*.some.test *", reasonDenied},
		{"none.test", "none.test 1-65535", reasonDenied},
		{"denied.test", "denied.test 443", reasonDenied},
		{"git.test", "git.test 22", ""},
		{"other.test", "network", reasonNone},
		{"localhost", "network", ""},
		{"a.b.localhost", "network", ""},
	} {
		expect(t, c.name, r.DecideName(c.name), c.rule, c.reason)
	}
}

// TestDecideNameIsAnyPort: a name has an answer when, and only when, one of its ports
// may be reached, whatever rules contradict each other.
func TestDecideNameIsAnyPort(t *testing.T) {
	ports := []string{"*", "443", "1", "65535", "1-442", "443-65535", "444-65535", "80,443", "1-65534", "2-65535"}
	for _, a := range append(ports, "") {
		for _, b := range append(ports, "") {
			for _, d := range append(ports, "") {
				for _, e := range append(ports, "") {
					var allow, deny []string
					for _, rule := range []struct {
						list  *[]string
						host  string
						ports string
					}{{&allow, "a.test", a}, {&allow, "*.test", b}, {&deny, "a.test", d}, {&deny, "*.test", e}} {
						if rule.ports != "" {
							*rule.list = append(*rule.list, rule.host+" "+rule.ports)
						}
					}
					r := compile(t, allow, deny)
					want := slices.ContainsFunc([]int{1, 2, 80, 81, 442, 443, 444, 65534, 65535}, func(port int) bool { return r.Decide("a.test", port).Allowed })
					got := r.DecideName("a.test")
					if got.Allowed != want || got.Allowed != (got.Reason == "") || got.Rule.IsZero() {
						t.Fatalf("allow %q deny %q: %+v, want %t", allow, deny, got, want)
					}
				}
			}
		}
	}
}

func TestDecideAddr(t *testing.T) {
	r := compile(t, []string{
		"example.org *", "*.org *", "1.2.3.0/24 443", "5.6.7.8/32 1-100", "10.1.0.0/16 5432", "10.1.2.3/32 22", "169.254.0.0/16 80", "169.254.170.2/32 80", "2a00:1::/32 443", "fc00::/7 443",
		"198.51.100.0/24 *", "127.0.0.1/32 3000", "64:ff9b::/96 443", "64:ff9b::a01:0/112 443",
	}, []string{"1.2.3.128/25 *", "10.1.9.0/24 5432", "2a00:1:bad::/48 *"}, "10.1.2.3", "10.1.4.4", "5.6.7.8", "fd00::7%eth0", "2a00:1::77", "127.0.0.1")
	for _, c := range []struct {
		addr         string
		port         int
		rule, reason string
	}{
		{"1.2.3.4", 443, "1.2.3.0/24 443", ""},
		{"::ffff:1.2.3.4", 443, "1.2.3.0/24 443", ""},
		{"1.2.3.4", 80, "1.2.3.0/24 443", reasonPort},
		{"1.2.4.4", 443, "network", reasonAddress},
		{"1.2.3.200", 443, "1.2.3.128/25 *", reasonDenied},
		{"::ffff:1.2.3.200", 443, "1.2.3.128/25 *", reasonDenied},
		{"64:ff9b::1.2.3.200", 443, "1.2.3.128/25 *", reasonDenied}, // what is denied is so behind NAT64, too
		{"2002:102:3c8::1", 443, "1.2.3.128/25 *", reasonDenied},
		{"64:ff9b::1.2.3.4", 443, "64:ff9b::/96 443", ""},
		{"64:ff9b::10.2.0.1", 443, "network", "no rule allows this address, which is private, embedded in IPv6"},
		{"64:ff9b::10.1.0.1", 443, "64:ff9b::a01:0/112 443", ""}, // written for it
		{"64:ff9b::127.0.0.1", 443, "network", "no rule allows this address, which is loopback, embedded in IPv6"},
		{"64:ff9b::0.0.0.0", 443, "network", "no rule allows this address, which is unspecified, embedded in IPv6"},
		{"10.1.5.5", 5432, "10.1.0.0/16 5432", ""},
		{"10.1.5.5", 5433, "10.1.0.0/16 5432", reasonPort},
		{"10.1.9.5", 5432, "10.1.9.0/24 5432", reasonDenied},
		{"10.2.5.5", 5432, "network", reasonAddress},
		{"10.1.2.3", 22, "10.1.2.3/32 22", ""}, // the host's own, and written for it
		{"10.1.2.3", 5432, "network", "no rule allows this address, which is the host's own"},
		{"10.1.4.4", 5432, "network", "no rule allows this address, which is the host's own"},
		{"5.6.7.8", 80, "5.6.7.8/32 1-100", ""},
		{"2a00:1::77", 443, "network", "no rule allows this address, which is the host's own"},
		{"fd00::7", 443, "network", "no rule allows this address, which is the host's own"},
		{"fd00::8", 443, "fc00::/7 443", ""},
		{"2a00:1::78", 443, "2a00:1::/32 443", ""},
		{"2a00:1:bad::1", 443, "2a00:1:bad::/48 *", reasonDenied},
		{"2a00:1::5efe:10.1.9.9", 443, "network", "no rule allows this address, which is private, embedded in IPv6"},
		{"169.254.1.1", 80, "169.254.0.0/16 80", ""},
		{"169.254.169.254", 80, "network", "no rule allows this address, which is a metadata service"},
		{"169.254.170.2", 80, "169.254.170.2/32 80", ""},
		{"198.51.100.7", 1, "198.51.100.0/24 *", ""},
		{"127.0.0.1", 3000, "127.0.0.1/32 3000", ""},
		{"127.0.0.1", 3001, "127.0.0.1/32 3000", reasonPort},
		{"127.0.0.2", 3000, "network", reasonAddress},
		{"198.18.0.1", 443, "network", reasonUnknown},
		{"fd77:616c:6c00::1", 443, "network", reasonUnknown},
		{"fe80::1%eth0", 443, "network", reasonAddress},
	} {
		expect(t, fmt.Sprint(c.addr, " ", c.port), r.DecideAddr(netip.MustParseAddr(c.addr), c.port), c.rule, c.reason)
	}
	if d := r.DecideAddr(netip.Addr{}, 443); d.Allowed {
		t.Error("no address is allowed")
	}
}

// TestDecideEverything: a rule for all addresses is one for the public internet.
func TestDecideEverything(t *testing.T) {
	r := compile(t, []string{"0.0.0.0/0 *", "::/0 *"}, nil, "9.9.9.9", "2620:fe::9")
	for _, a := range []string{"8.8.8.8", "2a00::1", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8"} {
		if d := r.DecideAddr(netip.MustParseAddr(a), 443); !d.Allowed {
			t.Errorf("%s: %s", a, d.Reason)
		}
	}
	for _, a := range []string{"0.0.0.0", "::", "127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "fe80::1", "fd00::1", "fd00:ec2::254", "224.0.0.1", "ff02::1",
		"255.255.255.255", "240.0.0.1", "192.0.2.1", "64:ff9b::a00:1", "64:ff9b:1::1", "2002:a00:1::", "2001::1", "::10.0.0.1", "198.18.0.1", "fd77:616c:6c00::1", "9.9.9.9", "2620:fe::9", "::ffff:9.9.9.9", "64:ff9b::9.9.9.9", "5f00::1"} {
		if d := r.DecideAddr(netip.MustParseAddr(a), 443); d.Allowed {
			t.Errorf("%s is allowed by %s", a, d.Rule)
		}
		if d := r.DecideResolved(netip.MustParseAddr(a), 443); d.Allowed {
			t.Errorf("a name may be at %s by %s", a, d.Rule)
		}
	}
	never := compile(t, []string{"0.0.0.0/32 *", "::/128 *", "224.0.0.1/32 *", "255.255.255.255/32 *", "ff02::1/128 *", "198.18.0.1/32 *", "fd77:616c:6c00::1/128 *"}, nil)
	for _, p := range never.allow.prefixes {
		a := p.prefix.Addr()
		if d := never.DecideAddr(a, 443); d.Allowed {
			t.Errorf("%s is allowed", a)
		}
		if d := never.DecideResolved(a, 443); d.Allowed && !Synthetic(a) {
			t.Errorf("a name may be at %s", a)
		}
	}
}

// TestDecideResolved: a name that turns out to be where no name should be (DNS
// rebinding, or a CNAME to an internal host) is refused, unless a rule for networks
// says otherwise.
func TestDecideResolved(t *testing.T) {
	r := compile(t, []string{"example.org 443", "10.1.0.0/16 443"}, []string{"8.8.4.0/24 443", "10.1.9.0/24 *"}, "7.7.7.7")
	for _, c := range []struct {
		addr         string
		port         int
		rule, reason string
	}{
		{"8.8.8.8", 443, "", ""},
		{"2a00::1", 443, "", ""},
		{"8.8.4.4", 443, "8.8.4.0/24 443", reasonDenied},
		{"64:ff9b::8.8.4.4", 443, "8.8.4.0/24 443", reasonDenied},
		{"8.8.4.4", 80, "", ""},
		{"10.1.2.3", 443, "10.1.0.0/16 443", ""},
		{"::ffff:10.1.2.3", 443, "10.1.0.0/16 443", ""},
		{"10.1.2.3", 80, "network", "no rule allows this address, which is private"},
		{"10.1.9.3", 443, "10.1.9.0/24 *", reasonDenied},
		{"10.2.2.3", 443, "network", "no rule allows this address, which is private"},
		{"127.0.0.1", 443, "network", "no rule allows this address, which is loopback"},
		{"::1", 443, "network", "no rule allows this address, which is loopback"},
		{"::ffff:127.0.0.1", 443, "network", "no rule allows this address, which is loopback"},
		{"0.0.0.0", 443, "network", "no rule allows this address, which is unspecified"},
		{"169.254.169.254", 443, "network", "no rule allows this address, which is a metadata service"},
		{"fe80::1%eth0", 443, "network", "no rule allows this address, which is link-local"},
		{"198.18.0.1", 443, "network", "no rule allows this address, which is for benchmarks"},
		{"fd77:616c:6c00::1", 443, "network", "no rule allows this address, which is private"},
		{"7.7.7.7", 443, "network", "no rule allows this address, which is the host's own"},
		{"::ffff:7.7.7.7", 443, "network", "no rule allows this address, which is the host's own"},
	} {
		expect(t, fmt.Sprint(c.addr, " ", c.port), r.DecideResolved(netip.MustParseAddr(c.addr), c.port), c.rule, c.reason)
	}
}

// TestDenyWins: whatever the order and however much more exact the rule that allows.
func TestDenyWins(t *testing.T) {
	for _, c := range []struct{ allow, deny []string }{
		{[]string{"a.b.test 443"}, []string{"*.test 443"}},
		{[]string{"a.b.test 443"}, []string{"*.b.test 1-65535"}},
		{[]string{"a.b.test 443"}, []string{"a.b.test 443"}},
		{[]string{"a.b.test 443", "*.b.test 443"}, []string{"a.b.test 440-450"}},
		{[]string{"*.b.test *"}, []string{"other.test 443", "a.b.test 443"}},
	} {
		for range 2 {
			r := compile(t, c.allow, c.deny)
			if d := r.Decide("a.b.test", 443); d.Allowed || d.Reason != reasonDenied || !slices.Contains(c.deny, d.Rule.Text) {
				t.Errorf("allow %q, deny %q: %+v", c.allow, c.deny, d)
			}
			slices.Reverse(c.allow)
			slices.Reverse(c.deny)
		}
	}
	for _, c := range []struct{ allow, deny string }{
		{"1.2.3.4/32 443", "1.2.0.0/16 443"}, {"1.2.0.0/16 443", "1.2.3.4/32 443"}, {"1.2.3.4/32 443", "0.0.0.0/0 *"}, {"1.2.3.4/32 443", "1.2.3.4/32 443"},
	} {
		r := compile(t, []string{c.allow}, []string{c.deny})
		expect(t, c.allow, r.DecideAddr(netip.MustParseAddr("1.2.3.4"), 443), c.deny, reasonDenied)
		expect(t, c.allow, r.DecideResolved(netip.MustParseAddr("1.2.3.4"), 443), c.deny, reasonDenied)
	}
}

// TestThousandNames: every rule decides its own names and no others.
func TestThousandNames(t *testing.T) {
	var allow, deny []string
	for i := range 1000 {
		allow = append(allow, fmt.Sprintf("h%d.example.org %d", i, 1000+i))
		if i%10 == 0 {
			allow = append(allow, fmt.Sprintf("*.s%d.example.net 443", i))
			deny = append(deny, fmt.Sprintf("*.x.s%d.example.net *", i))
		}
	}
	r := compile(t, allow, deny)
	var table Table
	res := &Resolver{Rules: r, Table: &table}
	for i := range 1000 {
		name := fmt.Sprintf("h%d.example.org", i)
		rule := fmt.Sprintf("%s %d", name, 1000+i)
		expect(t, name, r.Decide(name, 1000+i), rule, "")
		expect(t, name, r.Decide(name, 1001+i), rule, reasonPort)
		expect(t, "x."+name, r.Decide("x."+name, 1000+i), "network", reasonNone)
		sub := fmt.Sprintf("a.s%d.example.net", i)
		if i%10 == 0 {
			expect(t, sub, r.Decide(sub, 443), fmt.Sprintf("*.s%d.example.net 443", i), "")
			expect(t, sub, r.Decide(fmt.Sprintf("a.x.s%d.example.net", i), 443), fmt.Sprintf("*.x.s%d.example.net *", i), reasonDenied)
		} else {
			expect(t, sub, r.Decide(sub, 443), "network", reasonNone)
		}
		a := lookup(t, res, name, "A")
		if len(a) != 1 {
			t.Fatalf("%s has the addresses %v", name, a)
		}
		if got, ok := table.Name(netip.MustParseAddr(a[0])); !ok || got != name {
			t.Fatalf("%s of %s stands for %q", a[0], name, got)
		}
	}
}

// FuzzDecide compares with the rules read one by one.
func FuzzDecide(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03\x81\x02\x05\x06"), uint8(3), uint8(4))
	f.Add([]byte("\x07\x01\xff\x13\x91\x22\x85\x06\x41\x00\xff\xff"), uint8(0), uint8(200))
	names := []string{"a", "b", "a.a", "b.a", "a.b", "a.b.a", "b.b.a", "a.a.b.a", "aa.a", "x"}
	f.Fuzz(func(t *testing.T, data []byte, which, port uint8) {
		var n plan.Network
		for ; len(data) >= 4; data = data[4:] { // kind and name, first port, how many more, second range
			h := plan.HostRule{Name: names[int(data[0]&0x1f)%len(names)], Suffix: data[0]&0x40 != 0, Origin: plan.Origin{Line: len(data)}}
			first := 1 + int(data[1])
			h.Ports = []plan.PortRange{{First: first, Last: first + int(data[2])}, {First: 1 + int(data[3]), Last: 1 + int(data[3])}}
			if data[0]&0x80 != 0 {
				n.Deny = append(n.Deny, h)
			} else {
				n.Allow = append(n.Allow, h)
			}
		}
		r, err := Compile(n, nil)
		if err != nil {
			t.Fatal(err)
		}
		name := names[int(which)%len(names)]
		naive := func(port int) bool {
			matches := func(h plan.HostRule) bool {
				if h.Suffix && !strings.HasSuffix(name, "."+h.Name) || !h.Suffix && name != h.Name {
					return false
				}
				return h.Ports[0].First <= port && port <= h.Ports[0].Last || port == h.Ports[1].First
			}
			return slices.ContainsFunc(n.Allow, matches) && !slices.ContainsFunc(n.Deny, matches)
		}
		p := 1 + int(port)
		if d := r.Decide(name, p); d.Allowed != naive(p) || d.Allowed != (d.Reason == "") {
			t.Errorf("%s %d by %+v: %+v", name, p, n, d)
		}
		any := false
		for p := 1; p <= 600 && !any; p++ {
			any = naive(p)
		}
		if d := r.DecideName(name); d.Allowed != any {
			t.Errorf("%s by %+v: %+v, want %t", name, n, d, any)
		}
	})
}

func TestCompileErrors(t *testing.T) {
	port := []plan.PortRange{{First: 443, Last: 443}}
	for _, h := range []plan.HostRule{
		{Name: "Example.org"}, {Name: "example.org."}, {Name: "127.1"}, {Name: "a b"}, {Name: "*.example.org"}, {Name: "a\x00"}, {},
		{Prefix: "10.0.0.1/8"}, {Prefix: "10.0.0.1"}, {Prefix: "::ffff:10.0.0.0/104"}, {Prefix: "x"}, {Prefix: "10.0.0.0/8", Name: "example.org"}, {Prefix: "10.0.0.0/8", Suffix: true},
	} {
		h.Ports, h.Origin = port, plan.Origin{Text: "the line"}
		for _, n := range []plan.Network{{Allow: []plan.HostRule{h}}, {Deny: []plan.HostRule{h}}} {
			_, err := Compile(n, nil)
			var e *plan.Error
			if !errors.As(err, &e) || e.Origin != h.Origin {
				t.Errorf("%+v: %v, want an error at the line", h, err)
			}
		}
	}
	if r, err := Compile(plan.Network{}, nil); err != nil {
		t.Error(err)
	} else if d := r.Decide("example.org", 443); d.Allowed {
		t.Error("no rules allow example.org")
	} else if d := r.DecideAddr(netip.MustParseAddr("8.8.8.8"), 443); d.Allowed {
		t.Error("no rules allow 8.8.8.8")
	} else if d := r.DecideResolved(netip.MustParseAddr("8.8.8.8"), 443); !d.Allowed {
		t.Error("no name may be at 8.8.8.8")
	}
}

func BenchmarkDecide(b *testing.B) {
	var allow []string
	for i := range 1000 {
		allow = append(allow, fmt.Sprintf("h%d.example.org 443", i), fmt.Sprintf("*.h%d.example.org 443", i))
	}
	r := compile(b, allow, nil)
	for b.Loop() {
		if !r.Decide("a.b.h999.example.org", 443).Allowed {
			b.Fatal("refused")
		}
	}
}
