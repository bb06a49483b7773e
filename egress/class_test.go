package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func TestClass(t *testing.T) {
	for addr, want := range map[string]string{
		"1.1.1.1": "", "8.8.8.8": "", "9.255.255.255": "", "11.0.0.0": "", "172.15.255.255": "", "172.32.0.0": "", "100.63.255.255": "", "100.128.0.0": "",
		"126.255.255.255": "", "128.0.0.0": "", "169.253.255.255": "", "169.255.0.0": "", "192.167.255.255": "", "192.169.0.0": "", "198.17.255.255": "", "198.20.0.0": "",
		"223.255.255.255": "", "1.0.0.0": "", "168.63.129.15": "", "168.63.129.17": "",
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "0.255.255.255": "unspecified",
		"10.0.0.0": "private", "10.255.255.255": "private", "172.16.0.0": "private", "172.31.255.255": "private", "192.168.0.0": "private", "192.168.255.255": "private",
		"100.64.0.0": "shared by a provider's customers", "100.127.255.255": "shared by a provider's customers",
		"127.0.0.0": "loopback", "127.0.0.1": "loopback", "127.255.255.255": "loopback",
		"169.254.0.1": "link-local", "169.254.169.253": "link-local",
		"169.254.169.254": "a metadata service", "100.100.100.200": "a metadata service", "169.254.170.2": "a metadata service", "168.63.129.16": "a metadata service", "192.0.0.192": "a metadata service",
		"192.0.0.1": "reserved", "192.88.99.1": "reserved", "240.0.0.1": "reserved", "255.255.255.254": "reserved", "255.255.255.255": "broadcast",
		"192.0.2.1": "for documentation", "198.51.100.1": "for documentation", "203.0.113.1": "for documentation",
		"198.18.0.1": "for benchmarks", "198.19.255.255": "for benchmarks", "224.0.0.1": "multicast", "239.255.255.255": "multicast",

		"2606:4700:4700::1111": "", "2a00::1": "", "2001:4860:4860::8888": "", "2001:200::1": "", "3ffe::1": "", "2003::1": "",
		"::": "unspecified", "::1": "loopback", "::2": "unspecified, embedded in IPv6", "::127.0.0.1": "loopback, embedded in IPv6", "::8.8.8.8": "reserved", "::1.0.0.1": "reserved",
		"fc00::1": "private", "fdff::1": "private", "fec0::1": "private", "fe80::1": "link-local", "febf::1": "link-local", "fe80::1%lo": "link-local", "2606::1%eth0": "link-local",
		"fd00:ec2::254": "a metadata service", "fd20:ce::254": "a metadata service",
		"ff02::1": "multicast", "2001:db8::1": "for documentation", "3fff::1": "for documentation", "2001:2::1": "for benchmarks",
		"2001:1::1": "reserved", "100::1": "reserved", "5f00::1": "reserved", "4000::1": "reserved", "1fff:ffff::": "reserved", "fe00::1": "reserved",

		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:8.8.8.8": "", "::ffff:169.254.169.254": "a metadata service", "::ffff:0.0.0.0": "unspecified",
		"::ffff:0:127.0.0.1": "reserved", // SIIT
		"64:ff9b::8.8.8.8":   "", "64:ff9b::10.0.0.1": "private, embedded in IPv6", "64:ff9b::127.0.0.1": "loopback, embedded in IPv6",
		"64:ff9b::169.254.169.254": "a metadata service, embedded in IPv6", "64:ff9b::": "unspecified, embedded in IPv6", "64:ff9b::224.0.0.1": "multicast, embedded in IPv6",
		"64:ff9b:1::8.8.8.8": "local NAT64", "64:ff9b:1:a00:1::": "local NAT64", "64:ff9b:0:1::1": "reserved", "64:ff9b:2::1": "reserved",
		"2002:a00:1::1": "private, embedded in IPv6", "2002:7f00:1::": "loopback, embedded in IPv6", "2002:a9fe:a9fe::1": "a metadata service, embedded in IPv6", "2002:808:808::1": "6to4",
		"2001:0:808:808:0:0:f5ff:fffe": "private, embedded in IPv6", // client 10.0.0.1
		"2001:0:a00:1:0:0:f7f7:f7f7":   "private, embedded in IPv6", // server 10.0.0.1
		"2001:0:808:808:0:0:f7f7:f7f7": "Teredo",
		"2a00::5efe:10.0.0.1":          "private, embedded in IPv6", "2a00::200:5efe:127.0.0.1": "loopback, embedded in IPv6", "2a00::5efe:8.8.8.8": "", "2a00::300:5efe:192.168.0.1": "private, embedded in IPv6",
		"2a00::5eff:10.0.0.1": "", "2a00::5ffe:10.0.0.1": "", "2a00::1:5efe:10.0.0.1": "", "2a00::400:5efe:10.0.0.1": "", // not the form of an interface of ISATAP
	} {
		if got := Class(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s is %q, want %q", addr, got, want)
		}
	}
	if Class(netip.Addr{}) == "" {
		t.Error("no address is one of the public internet")
	}
}

// TestClassStandard compares with what package netip knows.
func TestClassStandard(t *testing.T) {
	check := func(a netip.Addr) {
		t.Helper()
		if Class(a) == "" && (!a.IsGlobalUnicast() || a.IsPrivate()) {
			t.Errorf("%s is of the public internet, and netip says otherwise", a)
		}
	}
	for i := 0; i < 1<<16; i += 13 {
		for _, last := range []byte{0, 1, 254, 255} {
			check(netip.AddrFrom4([4]byte{byte(i >> 8), byte(i), last, last}))
			check(netip.AddrFrom16([16]byte{byte(i >> 8), byte(i), 15: last}))
		}
	}
}

func FuzzClass(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte("\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x01"))
	f.Add([]byte("\x20\x02\x0a\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		class := Class(a)
		if class == "" && (a.Unmap().IsPrivate() || a.Unmap().IsLoopback() || !a.Unmap().IsGlobalUnicast()) {
			t.Errorf("%s is of the public internet", a)
		}
		if a.Is4() {
			if mapped := Class(netip.AddrFrom16(a.As16())); mapped != class {
				t.Errorf("%s is %q, and %q when mapped", a, class, mapped)
			}
			nat := nat64.Addr().As16()
			copy(nat[12:], b)
			if got := Class(netip.AddrFrom16(nat)); (got == "") != (class == "") || !strings.HasPrefix(got, class) {
				t.Errorf("%s is %q, and %q behind NAT64", a, class, got)
			}
		}
	})
}
