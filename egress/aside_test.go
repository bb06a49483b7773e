package egress

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// TestLookupsTold: a refused name is a denial, and the name of an address is none.
func TestLookupsTold(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"))
	c, err := net.Dial("udp4", w.packets)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	for name, typ := range map[string]dnsmessage.Type{"example.org": dnsmessage.TypeA, "other.test": dnsmessage.TypeA, "1.0.0.10.in-addr.arpa": dnsmessage.TypePTR} {
		c.Write(newQuery(t, name, typ))
		if _, err := c.Read(make([]byte, 512)); err != nil {
			t.Fatal(err)
		}
	}
	sum := w.Close()
	if sum.Denied != 1 || len(sum.Denials) != 1 || sum.Denials[0].Name != "other.test" {
		t.Errorf("denied: %+v", sum)
	}
	told := make(map[string]string)
	for _, e := range w.events() {
		told[e.Name] = e.Kind + " " + e.Reason
	}
	if told["example.org"] != "dns " || told["other.test"] != "deny "+reasonNone || told["1.0.0.10.in-addr.arpa"] != "dns "+reasonNone {
		t.Errorf("told: %q", told)
	}
}

// TestProxyTellsNoAddress: the box is not told where on the host's network a name is.
func TestProxyTellsNoAddress(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443", "gone.test 443"))
	w.name("example.org", "93.184.215.14")
	for _, name := range []string{"example.org", "gone.test"} {
		c, err := net.Dial("tcp4", w.http)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		io.WriteString(c, crlf("CONNECT "+name+":443 HTTP/1.1"))
		b, err := io.ReadAll(c)
		if !strings.HasPrefix(string(b), "HTTP/1.1 502 ") || strings.Contains(string(b), "93.184") || strings.Contains(string(b), "lookup") || strings.Contains(string(b), "dial") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestMissing(t *testing.T) {
	r := compile(t, []string{"example.org 443", "8.8.8.8/32 443"}, []string{"*.bad.test *"})
	event := func(name string, d Decision) Event { return Event{Name: name, Reason: d.Reason} }
	literal := func(addr string, port int) Event {
		return Event{Addr: addr, Reason: r.DecideAddr(netip.MustParseAddr(addr), port).Reason}
	}
	for _, c := range []struct {
		e    Event
		want bool
	}{
		{event("other.test", r.Decide("other.test", 443)), true},
		{event("other.test", r.DecideName("other.test")), true},
		{event("example.org", r.Decide("example.org", 80)), true},
		{event("example.org", r.Decide("example.org", 443)), false},
		{event("x.bad.test", r.Decide("x.bad.test", 443)), false},
		{event("x.bad.test", r.DecideName("x.bad.test")), false},
		{event("localhost", r.Decide("localhost", 443)), false},
		{event("example.org", r.DecideResolved(netip.MustParseAddr("10.0.0.1"), 443)), false},
		{literal("9.9.9.9", 443), true},
		{literal("8.8.8.8", 80), true},
		{literal("10.0.0.1", 80), false},
		{literal("169.254.169.254", 80), false},
		{literal("127.0.0.1", 80), false},
		{literal("64:ff9b::7f00:1", 80), false},
		{literal("198.18.0.9", 80), false},
		{event(".", Decision{Reason: reasonNone}), false},
		{Event{Via: ViaDNS, Name: "x.in-addr.arpa", Reason: reasonNone}, false},
		{Event{Via: ViaDNS, Name: "x.ip6.arpa", Reason: reasonNone}, false},
		{Event{Via: ViaHTTP, Name: "x.ip6.arpa", Reason: reasonNone}, true},
		{Event{Reason: reasonNotName}, false},
		{Event{}, false},
	} {
		if got := c.e.Missing(); got != c.want {
			t.Errorf("%+v: %t, want %t", c.e, got, c.want)
		}
	}
}
