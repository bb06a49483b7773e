package egress

import (
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// FuzzAgree: what a profile takes for a host is a rule here, and a name that comes from
// the box can be written in a profile: both sides have the same idea of a name.
func FuzzAgree(f *testing.F) {
	for _, s := range []string{"example.org", "*.Example.org:443", "10.0.0.0/8:*", "[2001:db8::]/32", "2001:db8::1", "127.1", "0x7f.1", "a_b.test", "1.2.3.4.5", "x.0xg", "example.org.", "\u212a.test", "a-.b", "xn--a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := profile.ParseHost(s)
		if err == nil {
			r := plan.HostRule{Name: p.Name, Suffix: p.Suffix, Ports: p.HostPorts(false)}
			if p.Name == "" {
				r.Prefix = p.Prefix.String()
			}
			if _, err := Compile(plan.Network{Allow: []plan.HostRule{r}}, nil); err != nil {
				t.Fatalf("a profile takes %q, and egress does not: %v", s, err)
			}
		}
		name, err2 := ParseName(s)
		if err2 != nil || strings.Contains(name, "_") {
			return
		}
		if p, err := profile.ParseHost(name); err != nil || p.Name != name || p.Suffix {
			t.Fatalf("the name %q is none in a profile: %+v, %v", name, p, err)
		}
	})
}
