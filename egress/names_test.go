package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	label := strings.Repeat("a", 63)
	long := strings.Join([]string{label, label, label, strings.Repeat("b", 61)}, ".") // 253
	for in, want := range map[string]string{
		"example.org":           "example.org",
		"AZ-az.ZA.":             "az-az.za",
		"EXAMPLE.Org.":          "example.org",
		"a":                     "a",
		"_dmarc.example.org":    "_dmarc.example.org",
		"xn--bcher-kva.example": "xn--bcher-kva.example",
		"r3---sn-4g5e.example":  "r3---sn-4g5e.example",
		"3com.example":          "3com.example",
		"1.2.3.example":         "1.2.3.example",
		"0x7f.example":          "0x7f.example",
		"1.0x":                  "",
		"0xg":                   "0xg",
		"face.0xyz":             "face.0xyz",
		label + ".example":      label + ".example",
		long:                    long,
		long + ".":              long,
	} {
		got, err := ParseName(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q is the name %q (%v), want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", ".", "..", "example.org..", ".example.org", "a..b",
		"-a.example", "a-.example", "a.-", "--",
		"example.org\x00", "exa\x00mple.org", "example.org\x00.allowed.example", "\x00",
		"exa mple.org", "example.org ", " example.org", "example.org\n", "example.org\r\n", "example\t.org",
		"ex@mple.org", "user@example.org", "example.org:443", "example.org/", "example.org/path", "http://example.org", "*.example.org", "*", "a\\b", "a%2eb", "%65xample.org", "a,b", "(a)", "'a'",
		"bücher.example", "example。org", "example．org", "example｡org", "ＥＸＡＭＰＬＥ.org", "exam\u00adple.org", "\u212aexample.org", "exa\u200bmple.org", "\xff\xfe", "a\x80b.org", "\u0131.example",
		label + "a.example", long + "c", long + ".c",
		// What inet_aton(3), browsers or resolvers take for addresses.
		"127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "0x7F.0.0.0x1", "0177.0.0.1", "017700000001", "0", "0.", "0x", "1.2.3.4.5", "256.256.256.256", "999999999999",
		"10.0.0.08", "1.2.3.4a.5", "example.1", "example.0x1f", "00000000000000000000000177.0.0.1",
		"::1", "[::1]", "::ffff:127.0.0.1", "fe80::1%lo", "fe80::1%eth0", "[::1]:80",
	} {
		if got, err := ParseName(in); err == nil {
			t.Errorf("%q is the name %q, want an error", in, got)
		} else if in != "" && len(in) > 4 && strings.Contains(err.Error(), in) {
			t.Errorf("the error about %q repeats it: %v", in, err)
		}
	}
}

func FuzzParseName(f *testing.F) {
	for _, s := range []string{"example.org", "EXAMPLE.org.", "127.1", "0x7f.1", "a\x00b", "xn--a", "_a.b", "\u212a", "::1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := ParseName(s)
		if err != nil {
			return
		}
		if again, err := ParseName(name); err != nil || again != name {
			t.Errorf("%q became %q, which becomes %q (%v)", s, name, again, err)
		}
		if !strings.EqualFold(strings.TrimSuffix(s, "."), name) || len(name) > 253 {
			t.Errorf("%q became another name: %q", s, name)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Errorf("%q became %q", s, name)
		}
		if _, err := netip.ParseAddr(name); err == nil {
			t.Errorf("%q is an address", name)
		}
		if v, ok := inetAton(name); ok {
			t.Errorf("inet_aton(3) takes %q for %v", name, v)
		}
	})
}

// inetAton is a naive inet_aton(3): one to four parts, decimal, octal or hexadecimal,
// of which the last fills what is left.
func inetAton(s string) (uint32, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return 0, false
	}
	var v uint64
	for i, p := range parts {
		base, digits := uint64(10), p
		if rest, ok := strings.CutPrefix(strings.ToLower(p), "0x"); ok {
			base, digits = 16, rest
		} else if strings.HasPrefix(p, "0") {
			base = 8
		}
		var n uint64
		for _, c := range digits {
			d := uint64(strings.IndexRune("0123456789abcdef", c))
			if d >= base || n > 1<<32 {
				return 0, false
			}
			n = n*base + d
		}
		limit := uint64(1) << 8
		if i == len(parts)-1 {
			limit = 1 << (8 * (5 - len(parts)))
		}
		if p == "" || n >= limit {
			return 0, false
		}
		if i == len(parts)-1 {
			v = v<<(8*(5-len(parts))) | n
		} else {
			v = v<<8 | n
		}
	}
	return uint32(v), true
}

func TestInetAton(t *testing.T) {
	for s, want := range map[string]uint32{"127.1": 0x7f000001, "0x7f.0.1": 0x7f000001, "017700000001": 0x7f000001, "1.2.3.4": 0x01020304, "0": 0} {
		if got, ok := inetAton(s); !ok || got != want {
			t.Errorf("%q: %x %t, want %x", s, got, ok, want)
		}
	}
	if _, ok := inetAton("a.1"); ok {
		t.Error("a.1 is an address")
	}
}
