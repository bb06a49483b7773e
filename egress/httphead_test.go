package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func crlf(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }

func TestParseHead(t *testing.T) {
	name := func(n string, port int) Target { return Target{Name: n, Port: port} }
	addr := func(a string, port int) Target { return Target{Addr: netip.MustParseAddr(a), Port: port} }
	for _, c := range []struct {
		in     string
		target Target
		out    string // "" for CONNECT
	}{
		{crlf("CONNECT example.org:443 HTTP/1.1", "Host: example.org:443"), name("example.org", 443), ""},
		{crlf("CONNECT Example.ORG.:443 HTTP/1.1", "host:example.org", "Proxy-Connection: Keep-Alive", "User-Agent: x"), name("example.org", 443), ""},
		{crlf("CONNECT example.org:22 HTTP/1.0"), name("example.org", 22), ""},
		{crlf("CONNECT example.org:22 HTTP/1.1", "Content-Length: 0"), name("example.org", 22), ""},
		{crlf("CONNECT 1.2.3.4:22 HTTP/1.1", "Host: 1.2.3.4:22"), addr("1.2.3.4", 22), ""},
		{crlf("CONNECT [2001:DB8::1]:22 HTTP/1.1", "Host: [2001:db8:0::1]:22"), addr("2001:db8::1", 22), ""},
		{crlf("CONNECT [::ffff:1.2.3.4]:22 HTTP/1.1", "Host: [::ffff:1.2.3.4]:22"), addr("1.2.3.4", 22), ""},
		{crlf("GET http://example.org/a?b=c HTTP/1.1", "Host: example.org"), name("example.org", 80), crlf("GET /a?b=c HTTP/1.1", "Host: example.org", "Connection: close")},
		{crlf("GET HTTP://EXAMPLE.org HTTP/1.1", "Host: Example.org:80", "Accept: */*"), name("example.org", 80), crlf("GET / HTTP/1.1", "Host: example.org", "Accept: */*", "Connection: close")},
		{crlf("GET http://example.org?q HTTP/1.1", "Host: example.org"), name("example.org", 80), crlf("GET /?q HTTP/1.1", "Host: example.org", "Connection: close")},
		{crlf("GET http://example.org/?a=http://other.test/ HTTP/1.1", "Host: example.org"), name("example.org", 80), crlf("GET /?a=http://other.test/ HTTP/1.1", "Host: example.org", "Connection: close")},
		{crlf("GET http://example.org//x/../y HTTP/1.1", "Host: example.org"), name("example.org", 80), crlf("GET //x/../y HTTP/1.1", "Host: example.org", "Connection: close")},
		{crlf("OPTIONS http://example.org:8080 HTTP/1.1", "Host: example.org:8080"), name("example.org", 8080), crlf("OPTIONS * HTTP/1.1", "Host: example.org:8080", "Connection: close")},
		{crlf("OPTIONS http://example.org/ HTTP/1.1", "Host: example.org"), name("example.org", 80), crlf("OPTIONS / HTTP/1.1", "Host: example.org", "Connection: close")},
		{crlf("GET http://example.org/ HTTP/1.0"), name("example.org", 80), crlf("GET / HTTP/1.0", "Host: example.org", "Connection: close")},
		{crlf("POST http://[2001:db8::1]:81/ HTTP/1.1", "Host: [2001:db8::1]:81", "Content-Length: 5", "X-A:  b\t", "x-a: \xe9"), addr("2001:db8::1", 81),
			crlf("POST / HTTP/1.1", "Host: [2001:db8::1]:81", "Content-Length: 5", "X-A: b", "x-a: \xe9", "Connection: close")},
		{crlf("PUT http://1.2.3.4/ HTTP/1.1", "Transfer-Encoding: Chunked", "Host: 1.2.3.4", "Expect: 100-continue", "Trailer: X"), addr("1.2.3.4", 80),
			crlf("PUT / HTTP/1.1", "Host: 1.2.3.4", "Transfer-Encoding: Chunked", "Expect: 100-continue", "Trailer: X", "Connection: close")},
		{crlf("GET http://example.org/ HTTP/1.1", "Host: example.org", "Connection: keep-alive, X-Secret", "Connection: Upgrade,", "X-Secret: 1", "Keep-Alive: 5", "Proxy-Connection: x", "Proxy-Authorization: Basic eDp5", "TE: trailers", "Upgrade: h2c", "Cookie: a=b", "Empty:"), name("example.org", 80),
			crlf("GET / HTTP/1.1", "Host: example.org", "Cookie: a=b", "Empty: ", "Connection: close")},
	} {
		for _, rest := range []string{"", "body", "GET / HTTP/1.1\n\x00"} {
			h, more, status, err := ParseHead([]byte(c.in + rest))
			if err != nil || more || status != 0 {
				t.Errorf("%q: more %t, status %d, %v", c.in, more, status, err)
				continue
			}
			if h.Target != c.target || string(h.Request) != c.out || h.Connect != (c.out == "") || h.Size != len(c.in) {
				t.Errorf("%q: %+v with the request %q, want %+v with %q", c.in, h, h.Request, c.target, c.out)
			}
		}
		for i := range len(c.in) {
			if _, more, _, err := ParseHead([]byte(c.in[:i])); !more || err != nil {
				t.Fatalf("%q, %d bytes: more %t, %v", c.in, i, more, err)
			}
		}
	}
}

func TestParseHeadRefuses(t *testing.T) {
	get := func(fields ...string) string {
		return crlf(append([]string{"GET http://example.org/ HTTP/1.1", "Host: example.org"}, fields...)...)
	}
	host := func(h string) string { return crlf("GET http://example.org/ HTTP/1.1", "Host: "+h) }
	connect := func(target string) string { return crlf("CONNECT " + target + " HTTP/1.1") }
	url := func(u string) string { return crlf("GET "+u+" HTTP/1.1", "Host: example.org") }
	for _, in := range []string{
		// First line.
		"\r\n\r\n", crlf(""), crlf("GET"), crlf("GET http://example.org/"), crlf("GET  http://example.org/ HTTP/1.1", "Host: example.org"), crlf("GET http://example.org/  HTTP/1.1", "Host: example.org"), crlf("GET http://example.org/ HTTP/1.1 ", "Host: example.org"),
		crlf(" GET http://example.org/ HTTP/1.1", "Host: example.org"), crlf("GET\thttp://example.org/ HTTP/1.1", "Host: example.org"), "\r\n" + get(), crlf("G(T http://example.org/ HTTP/1.1", "Host: example.org"), crlf("GET http://example.org/ http/1.1", "Host: example.org"),
		url("http://example.org/\x80"), url("http://example.org/a b"), url("http://example.org/#x"), url("http://exa\xc3\xbcmple.org/"),
		// Target.
		url("/"), url("*"), url("https://example.org/"), url("ftp://example.org/"), url("//example.org/"), url("example.org"), url("http:/example.org/"), url("http:example.org"), url("http://"), url("http:///"), url("http://user@example.org/"), url("http://user:pw@example.org/"),
		url("http://example.org\\@other.test/"), url("http://example.org:/"), url("http://example.org:0/"), url("http://example.org:080/"), url("http://example.org:65536/"), url("http://example.org:+80/"), url("http://example.org:80:80/"), url("http://example.org:80a/"), url("http://example.org%00.test/"), url("http://example.org%2f@x/"),
		url("http://127.1/"), url("http://2130706433/"), url("http://0x7f.0.0.1/"), url("http://0177.0.0.1/"), url("http://127.0.0.01/"), url("http://::1/"), url("http://[::1/"), url("http://::1]/"), url("http://[127.0.0.1]/"), url("http://[fe80::1%25lo]/"), url("http://[fe80::1%lo]/"), url("http://[]/"), url("http://[::1]x/"), url("http://[::1]:/"), url("http://[example.org]/"),
		crlf("OPTIONS * HTTP/1.1", "Host: example.org"), crlf("PRI * HTTP/2.0"),
		connect("example.org"), connect("example.org:"), connect("example.org:0"), connect("example.org:65536"), connect("http://example.org:443"), connect("example.org:443/"), connect("user@example.org:443"), connect(":443"), connect("[::1]"), connect("::1:443"), connect("127.1:443"), connect("2130706433:443"), connect("example.org:https"), connect("*:443"), connect("/"), connect("example.org:443?x"),
		crlf("CONNECT example.org:443 HTTP/1.1", "A : b"), crlf("CONNECT example.org:443 HTTP/1.1", "A"), crlf("CONNECT example.org:443 HTTP/1.1", "Connection: host"),
		crlf("GET http:// HTTP/1.0"), crlf("GET http:/ HTTP/1.0"), crlf("GET  HTTP/1.0"),
		crlf("connect example.org:443 HTTP/1.1"), // methods have no other case
		// Host.
		crlf("GET http://example.org/ HTTP/1.1"), host("other.test"), host("example.org:81"), host(""), host("example.org, other.test"), host("http://example.org"), host("example.org/"), host("user@example.org"), get("Host: example.org"), get("host: other.test"),
		crlf("GET http://example.org:8080/ HTTP/1.1", "Host: example.org"), crlf("CONNECT example.org:443 HTTP/1.1", "Host: other.test:443"), crlf("CONNECT example.org:443 HTTP/1.1", "Host: example.org:80"), crlf("CONNECT example.org:443 HTTP/1.1", "Host: example.org", "Host: example.org"),
		crlf("GET http://example.org/ HTTP/1.0", "Host: other.test"), crlf("GET http://example.org/ HTTP/1.0", "Host: example.org", "Host: example.org"),
		// Length of the body.
		get("Content-Length: 5", "Transfer-Encoding: chunked"), get("Content-Length: 5", "Content-Length: 5"), get("Content-Length: 5", "content-length: 6"), get("Content-Length: 5, 5"), get("Content-Length: +5"), get("Content-Length: -1"), get("Content-Length: 0x5"), get("Content-Length:"), get("Content-Length: 5 5"), get("Content-Length: 9999999999999999999"),
		get("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), get("Transfer-Encoding: gzip, chunked"), get("Transfer-Encoding: identity"), get("Transfer-Encoding: chunked\x0b"), get("Transfer-Encoding:"), get("Transfer-Encoding: xchunked"), crlf("GET http://example.org/ HTTP/1.0", "Transfer-Encoding: chunked"),
		crlf("CONNECT example.org:443 HTTP/1.1", "Content-Length: 1"), crlf("CONNECT example.org:443 HTTP/1.1", "Transfer-Encoding: chunked"),
		// Fields.
		get("A : b"), get("A\t: b"), get(": b"), get("A"), get(" A: b"), get("A: b", " c"), get("A: b", "\tc"), get("A b: c"), get("A\x80: b"), get("A: b\x00"), get("A: \x7f"), get("A: \x1b[31m"), get("A: b\rc"), get("A: b\nC: d"), get("A: b\r"), get("(A): b"), get("A@: b"),
		get("Connection: Host"), get("Connection: x, Content-Length"), get("Connection: transfer-encoding"), get("Connection: a b"), get("Connection: \"x\""),
		strings.ReplaceAll(get(), "\r\n", "\n"), strings.Replace(get(), "\r\n", "\n", 1), strings.ReplaceAll(get(), "\r\n", "\r"), get()[:len(get())-2] + "\n",
		// Something else.
		"\x05\x01\x00", "\x04\x01", "\x16\x03\x01\x02\x00\x01", "\x00", "\n", "GET / HTTP/1.1\n", "\rG",
	} {
		h, more, status, err := ParseHead([]byte(in))
		if !errors.Is(err, ErrProtocol) || more || status != 400 && status != 505 || h.Target != (Target{}) || h.Request != nil {
			t.Errorf("%q: %+v, more %t, status %d, %v", in, h, more, status, err)
		}
		if err != nil && strings.ContainsAny(err.Error(), "\r\n\x00") {
			t.Errorf("%q: the error %q", in, err)
		}
	}
	for in, want := range map[string]int{
		crlf("GET http://example.org/ HTTP/2.0"): 505, crlf("GET http://example.org/ HTTP/0.9"): 505, crlf("GET http://example.org/ HTTP/1.2"): 505, crlf("GET http://example.org/ HTTP/1.1x"): 505,
		get("A: " + strings.Repeat("b", maxHead)): 431, strings.Repeat("G", maxHead): 431, strings.Repeat("G", maxHead+1): 431,
	} {
		if _, more, status, err := ParseHead([]byte(in)); status != want || more || !errors.Is(err, ErrProtocol) {
			t.Errorf("%.60q: more %t, status %d, %v, want %d", in, more, status, err, want)
		}
	}
	full := get("A: " + strings.Repeat("b", maxHead-len(get("A: "))))
	if _, more, _, err := ParseHead([]byte(full)); err != nil || more {
		t.Errorf("a head of %d bytes: more %t, %v", len(full), more, err)
	}
	if _, more, _, err := ParseHead([]byte(full[:maxHead-1])); err != nil || !more {
		t.Errorf("%d bytes of a head: more %t, %v", maxHead-1, more, err)
	}
}

func TestParseAuthority(t *testing.T) {
	for in, want := range map[string]string{
		"example.org": "example.org:80", "example.org:1": "example.org:1", "example.org:65535": "example.org:65535", "A.B:443": "a.b:443",
		"1.2.3.4": "1.2.3.4:80", "1.2.3.4:90": "1.2.3.4:90", "[::1]": "[::1]:80", "[2001:DB8::0:1]:443": "[2001:db8::1]:443", "[::ffff:1.2.3.4]:1": "1.2.3.4:1",
		"": "", ":": "", ":80": "", "a:": "", "a:0": "", "a:00": "", "a:01": "", "a:65536": "", "a:+1": "", "a:-1": "", "a: 1": "", "a:1 ": "", "a:1:2": "", "a:http": "", "a]": "", "a]:1": "",
		"[": "", "]": "", "[]": "", "[]:1": "", "[::1": "", "[::1:80": "", "::1]": "", "::1": "", "[::1]]": "", "[[::1]]": "", "[::1]x": "", "[::1]x:80": "", "[::1]:": "", "[::1]80": "", "[::1]:0": "",
		"[fe80::1%lo]": "", "[fe80::1%25lo]:80": "", "[1.2.3.4]": "", "[1.2.3.4]:80": "", "[example.org]:80": "", "[::g]:80": "",
		"1.2.3": "", "1.2.3.4.5": "", "01.2.3.4": "", "0x1.2.3.4": "", "16909060": "", "user@a": "", "a/b": "", "a?b": "", "a\\b": "", "a%2eb": "", "a b": "",
	} {
		got, err := parseAuthority(in, 80)
		if (err == nil) != (want != "") || err == nil && got.authority(0) != want {
			t.Errorf("%q: %+v, %v, want %q", in, got, err, want)
		}
	}
	if got, err := parseAuthority("example.org", 0); err == nil {
		t.Errorf("without a port: %+v", got)
	}
}

func TestIsToken(t *testing.T) {
	for c := range 256 {
		want := strings.Contains("!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", string([]byte{byte(c)}))
		if got := isToken(string([]byte{'a', byte(c)})); got != want {
			t.Errorf("%q in a token: %t", byte(c), got)
		}
	}
	if isToken("") {
		t.Error("nothing is a token")
	}
}

func TestHeadBody(t *testing.T) {
	for field, want := range map[string]Body{
		"Content-Length: 5":                  {left: 5},
		"content-length: 0":                  {},
		"Content-Length: 999999999999999999": {left: 999999999999999999},
		"Transfer-Encoding: chunked":         {state: chunkDigit},
		"X: y":                               {},
	} {
		h, _, _, err := ParseHead([]byte(crlf("POST http://example.org/ HTTP/1.1", "Host: example.org", field)))
		if err != nil || h.Body != want {
			t.Errorf("%s: %+v, %v, want %+v", field, h.Body, err, want)
		}
	}
}

func TestHTTPReply(t *testing.T) {
	for _, status := range []int{400, 403, 408, 431, 502, 503, 504, 505} {
		r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(HTTPReply(status, "no rule allows it"))), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != "wall: no rule allows it\n" || r.StatusCode != status || !r.Close || r.Status != http.StatusText(status) && !strings.HasSuffix(r.Status, " "+http.StatusText(status)) {
			t.Errorf("%d: %s %q close %t, %v", status, r.Status, body, r.Close, err)
		}
	}
	r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(HTTPReply(200, ""))), &http.Request{Method: "CONNECT"})
	if err != nil || r.StatusCode != 200 || len(r.Header) != 0 {
		t.Errorf("the answer to CONNECT: %v, %v", r, err)
	}
}

func FuzzParseHead(f *testing.F) {
	for _, s := range []string{
		crlf("CONNECT example.org:443 HTTP/1.1", "Host: example.org:443"),
		crlf("GET http://example.org/a?b HTTP/1.1", "Host: example.org", "Connection: x, y", "X: 1"),
		crlf("POST http://[::1]:81/ HTTP/1.1", "Host: [::1]:81", "Content-Length: 5") + "abcde",
		crlf("POST http://example.org HTTP/1.1", "Host: example.org", "Transfer-Encoding: chunked") + "0\r\n\r\n",
		crlf("OPTIONS http://1.2.3.4 HTTP/1.0", "Proxy-Authorization: x"),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h, more, status, err := ParseHead(data)
		switch {
		case err != nil:
			if more || status < 400 || h.Target != (Target{}) || h.Size != 0 {
				t.Fatalf("%+v, more %t, status %d, %v", h, more, status, err)
			}
			return
		case more:
			if len(data) >= maxHead || bytes.Contains(data, []byte("\r\n\r\n")) || h.Target != (Target{}) {
				t.Fatalf("more after %d bytes", len(data))
			}
			return
		}
		checkTarget(t, h.Target)
		if h.Size < 18 || h.Size > len(data) || !bytes.HasSuffix(data[:h.Size], []byte("\r\n\r\n")) {
			t.Fatalf("a head of %d bytes", h.Size)
		}
		// A second opinion. net/http has its own about some methods and bodies; where it
		// takes the head, the host is the same.
		in, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data[:h.Size])))
		if err == nil {
			usual := 80
			if h.Connect {
				usual = 0
			}
			if got, err := parseAuthority(in.URL.Host, usual); err != nil || got != h.Target {
				t.Errorf("net/http reads the host %q, we %+v", in.URL.Host, h.Target)
			}
		}
		if h.Connect {
			if h.Request != nil {
				t.Errorf("CONNECT with the request %q", h.Request)
			}
			return
		}
		if bytes.Count(h.Request, []byte("\r\n\r\n")) != 1 || !bytes.HasSuffix(h.Request, []byte("\r\nConnection: close\r\n\r\n")) || !headBytes(h.Request) {
			t.Fatalf("the request %q", h.Request)
		}
		out, err2 := http.ReadRequest(bufio.NewReader(bytes.NewReader(h.Request)))
		if err != nil {
			return
		}
		if err2 != nil {
			t.Fatalf("net/http takes %q but not %q: %v", data[:h.Size], h.Request, err2)
		}
		if out.Method != in.Method || out.ContentLength != in.ContentLength || len(out.TransferEncoding) != len(in.TransferEncoding) || !out.Close {
			t.Errorf("%q became %q", data[:h.Size], h.Request)
		}
		if got, err := parseAuthority(out.Host, 80); err != nil || got != h.Target {
			t.Errorf("the request is for %q, not for %+v", out.Host, h.Target)
		}
		for _, name := range []string{"Proxy-Authorization", "Proxy-Connection", "Keep-Alive", "Te", "Upgrade"} {
			if out.Header.Get(name) != "" {
				t.Errorf("%s is in %q", name, h.Request)
			}
		}
		if in.URL.RequestURI() != out.RequestURI && out.RequestURI != "*" {
			t.Errorf("the target %q of %q", out.RequestURI, in.RequestURI)
		}
	})
}
