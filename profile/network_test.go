package profile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

// reaches says by a plan alone whether a host and port may be reached.
func reaches(n plan.Network, name string, addr netip.Addr, port int) bool {
	covered := func(list []plan.HostRule) bool {
		return slices.ContainsFunc(list, func(r plan.HostRule) bool {
			switch {
			case r.Prefix != "":
				if !addr.IsValid() || !netip.MustParsePrefix(r.Prefix).Contains(addr) {
					return false
				}
			case r.Suffix:
				if !strings.HasSuffix(name, "."+r.Name) {
					return false
				}
			case r.Name != name || name == "":
				return false
			}
			return slices.ContainsFunc(r.Ports, func(p plan.PortRange) bool { return p.First <= port && port <= p.Last })
		})
	}
	return covered(n.Allow) && !covered(n.Deny)
}

// TestNetworkGrantsWhatIsWritten makes profiles of random hosts, in layers, and
// compares what the plan lets be reached with the lines one by one.
func TestNetworkGrantsWhatIsWritten(t *testing.T) {
	hosts := []string{"a.example", "*.a.example", "b.a.example", "*.b.a.example", "example", "192.0.2.1", "192.0.2.0/24", "[2001:db8::1]", "[2001:db8::/32]"}
	ports := []string{"", ":443", ":80", ":1-100", ":*", ":8080"}
	r := rand.New(rand.NewPCG(1, 2))
	pattern := func() string { return hosts[r.IntN(len(hosts))] + ports[r.IntN(len(ports))] }
	reached := 0
	for range 300 {
		var allow, deny [2][]string
		for layer := range 2 {
			for range r.IntN(4) {
				allow[layer] = append(allow[layer], pattern())
			}
			for range r.IntN(3) {
				deny[layer] = append(deny[layer], pattern())
			}
		}
		list := func(items []string) string {
			slices.Sort(items)
			q := make([]string, 0, len(items))
			for _, s := range slices.Compact(items) {
				h, err := ParseHost(s)
				if err != nil {
					t.Fatal(err)
				}
				if text := fmt.Sprintf("%q", h); !slices.Contains(q, text) {
					q = append(q, text)
				}
			}
			return "[" + strings.Join(q, ", ") + "]"
		}
		text := func(layer int, top string) string {
			s := "version = 1\n" + top + "[network]\nmode = \"allow\"\n"
			if allow[layer] != nil {
				s += "allow = " + list(allow[layer]) + "\n"
			}
			if deny[layer] != nil {
				s += "deny = " + list(deny[layer]) + "\n"
			}
			return s
		}
		m := parseTree(t, "")
		putFile(m, "/home/u/low.toml", text(0, ""))
		putFile(m, "/home/u/high.toml", text(1, "extends = \"./low.toml\"\n"))
		p, err := Resolve(goldenHost{}.host(m), Options{Profile: "~/high.toml", Command: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		if p.Network.Method != plan.NetRedirect {
			t.Fatalf("%+v", p.Network)
		}
		written := func(lists [2][]string, isDeny bool, q string) bool {
			one, err := ParseHost(q)
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(slices.Concat(lists[0], lists[1]), func(s string) bool {
				h, _ := ParseHost(s)
				return h.Covers(isDeny, one, isDeny)
			})
		}
		for _, q := range []string{"a.example:443", "b.a.example:80", "c.b.a.example:8080", "a.example:22", "other.example:443", "192.0.2.1:443", "192.0.2.2:80", "[2001:db8::1]:443", "[2001:db8::2]:7", "198.51.100.1:443"} {
			h, err := ParseHost(q)
			if err != nil {
				t.Fatal(err)
			}
			want := written(allow, false, q) && !written(deny, true, q)
			got := reaches(p.Network, h.Name, h.Prefix.Addr(), int(h.Lo))
			if got != want {
				t.Fatalf("%s is reached: %t, by the lines %t\n%s%s", q, got, want, text(0, ""), text(1, ""))
			}
			if got {
				reached++
			}
		}
	}
	if reached < 100 {
		t.Errorf("%d hosts were reached", reached)
	}
}

func TestFreePort(t *testing.T) {
	grants := func(ports ...int) (out []plan.PortGrant) {
		for _, p := range ports {
			out = append(out, plan.PortGrant{Port: p})
		}
		return out
	}
	for _, tt := range []struct {
		p, other int
		n        plan.Network
		want     int
	}{
		{3128, 0, plan.Network{}, 3128},
		{3128, 0, plan.Network{Loopback: grants(3128), Publish: grants(3129)}, 3130},
		{1080, 1080, plan.Network{}, 1081},
		{65535, 0, plan.Network{Loopback: grants(1024, 65535)}, 1025},
	} {
		if got := freePort(tt.p, tt.n, tt.other); got != tt.want {
			t.Errorf("from %d on: %d, want %d", tt.p, got, tt.want)
		}
	}
}

func TestBadProxy(t *testing.T) {
	for _, s := range []string{"http://proxy.example:3128", "http://192.0.2.1:80", "http://[2001:db8::1]:8080"} {
		if msg := badProxy(s); msg != "" {
			t.Errorf("%s: %s", s, msg)
		}
	}
	for _, s := range []string{"", "proxy.example:3128", "https://proxy.example:3128", "socks5://proxy.example:1", "http://proxy.example", "http://proxy.example:", "http://proxy.example:0",
		"http://proxy.example:1-2", "http://proxy.example:*", "http://*.example:1", "http://10.0.0.0/8:1", "http://u:s3cret@proxy.example:1", "http://proxy.example:1/", "http://proxy.example:1?x",
		"http://Proxy.example:1", "http://127.1:1", "http://proxy.example.:1", "http://a b:1", "http://[fe80::1%eth0]:1", "http://198.18.0.1:1", "HTTP://proxy.example:1"} {
		if msg := badProxy(s); msg == "" {
			t.Errorf("%q is accepted", s)
		} else if strings.Contains(msg, "s3cret") {
			t.Errorf("%q: %s", s, msg)
		}
	}
}

// TestProxyVariablesOfTheCaller: where programs are led to wall's proxies, the caller's
// own do not stay, whatever rule lets them cross.
func TestProxyVariablesOfTheCaller(t *testing.T) {
	m := parseTree(t, "")
	putFile(m, "/home/u/p.toml", "version = 1\nextends = \"agent\"\n[network]\nmode = \"allow\"\nproxy-variables = true\n[environment]\nallow = [\"HTTPS_PROXY\"]\npass = [\"http_proxy\"]\n")
	h := goldenHost{}.host(m)
	h.Environ = append(h.Environ, "HTTPS_PROXY=http://corp.example:1", "http_proxy=http://corp.example:1", "FTP_PROXY=http://corp.example:1")
	p, err := Resolve(h, Options{Profile: "~/p.toml", Command: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, v := range p.Env {
		if strings.Contains(v.Value, "corp.example") {
			t.Errorf("%s leads to the caller's proxy", v.Name)
		}
		if v.Value == "http://127.0.0.1:3128" {
			seen++
		}
	}
	// The pass-through that has no effect is told, and nothing else.
	if seen != 6 || len(p.Notices) != 1 || !strings.Contains(p.Notices[0].Text, "http_proxy") {
		t.Errorf("%d variables, notices %v", seen, p.Notices)
	}
}

// TestPortsCompare: without a list every port is allowed, so that a list narrows,
// whatever is in it, and its absence widens.
func TestPortsCompare(t *testing.T) {
	const none, some, more, nothing = "", "ports = [443]\n", "ports = [443, 80]\n", "ports = []\n"
	for _, tt := range []struct {
		a, b string
		want []ChangeKind
	}{
		{none, none, nil}, {some, some, nil}, {nothing, nothing, nil},
		{none, some, []ChangeKind{Narrower}}, {none, nothing, []ChangeKind{Narrower}}, {some, nothing, []ChangeKind{Narrower}}, {more, some, []ChangeKind{Narrower}},
		{some, none, []ChangeKind{Wider}}, {nothing, none, []ChangeKind{Wider}}, {nothing, some, []ChangeKind{Wider}}, {some, more, []ChangeKind{Wider}},
		{some, "ports = [80]\n", []ChangeKind{Wider, Narrower}},
	} {
		load := func(lines string) *Stack {
			st, err := LoadFile("p.toml", []byte("version = 1\nextends = \"agent\"\n[network]\nmode = \"host\"\n"+lines), Host{})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
		a, b := load(tt.a), load(tt.b)
		var got []ChangeKind
		for _, c := range Compare(a, b) {
			if c.Key != "network.ports" || c.Origin.IsZero() {
				t.Errorf("%q to %q: %+v", tt.a, tt.b, c)
			}
			got = append(got, c.Kind)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q to %q: %v, want %v", tt.a, tt.b, got, tt.want)
		}
		if limited := a.Effective().Ports != nil; limited != (tt.a != none) {
			t.Errorf("%q: limited %t", tt.a, limited)
		}
	}
}
