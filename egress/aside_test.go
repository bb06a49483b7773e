package egress

import (
	"io"
	"net"
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
	c.SetDeadline(time.Now().Add(20 * time.Second))
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
		c.SetDeadline(time.Now().Add(20 * time.Second))
		io.WriteString(c, crlf("CONNECT "+name+":443 HTTP/1.1"))
		b, err := io.ReadAll(c)
		if !strings.HasPrefix(string(b), "HTTP/1.1 502 ") || strings.Contains(string(b), "93.184") || strings.Contains(string(b), "lookup") || strings.Contains(string(b), "dial") {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}
