package envpage

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestReadRequest(t *testing.T) {
	const host = "Host: h\r\n"
	for _, c := range []struct {
		text string
		want int // status; 0: it is taken
	}{
		{"GET / HTTP/1.1\r\n" + host + "\r\n", 0},
		{"GET /a?b=c HTTP/1.1\r\nhOsT:\t h \r\nA:\r\n\r\n", 0},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabc", 0},
		{"GET / HTTP/1.1\n" + host + "\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: h\n\r\n", 400},
		{"GET / HTTP/1.1\r\r\n" + host + "\r\n", 400},
		{"GET  / HTTP/1.1\r\n" + host + "\r\n", 400},
		{"GET / HTTP/1.1 \r\n" + host + "\r\n", 400},
		{"GET / HTTP/1.0\r\n" + host + "\r\n", 505},
		{"GET / HTTP/2\r\n" + host + "\r\n", 505},
		{"GET /\r\n" + host + "\r\n", 400},
		{"G(T / HTTP/1.1\r\n" + host + "\r\n", 400},
		{"GET http://h/ HTTP/1.1\r\n" + host + "\r\n", 400},
		{"CONNECT h:1 HTTP/1.1\r\n" + host + "\r\n", 400},
		{"OPTIONS * HTTP/1.1\r\n" + host + "\r\n", 400},
		{"GET /#x HTTP/1.1\r\n" + host + "\r\n", 400},
		{"GET /%zz HTTP/1.1\r\n" + host + "\r\n", 400},
		{"GET /\x80 HTTP/1.1\r\n" + host + "\r\n", 400},
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
		{"GET / HTTP/1.1\r\n" + host + " continued\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n" + host + "A : b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n" + host + ": b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n" + host + "A\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n" + host + "A: b\x00\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n" + host + "A: b\x1b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n" + host + "A: b\rc\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n" + host, 400},
		{"GET / HT", 400},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc", 400},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: -3\r\n\r\nabc", 400},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 3, 3\r\n\r\nabc", 400},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\nabc", 400},
		{"POST / HTTP/1.1\r\n" + host + "Content-Length: 9999999999999\r\n\r\nabc", 400},
		{"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
		{"POST / HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", 417},
		{"GET / HTTP/1.1\r\n" + host + strings.Repeat("A: b\r\n", maxFields) + "\r\n", 431},
		{"GET / HTTP/1.1\r\n" + strings.Repeat("x", maxHead), 431},
		{"", -1},
	} {
		r, err := readRequest(bufio.NewReader(strings.NewReader(c.text)))
		got := 0
		var no *refusal
		switch {
		case errors.As(err, &no):
			got = no.status
		case errors.Is(err, errSilent):
			got = -1
		case err != nil:
			t.Fatal(err)
		case r.host != "h":
			t.Errorf("%q: host %q", c.text, r.host)
		}
		if got != c.want {
			t.Errorf("%.80q: %d, want %d", c.text, got, c.want)
		}
		if got != 0 && got != -1 && statusNames[got] == "" {
			t.Errorf("status %d has no name", got)
		}
	}
}

func TestReadBody(t *testing.T) {
	head := "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n"
	for _, c := range []struct {
		body string
		most int64
		want string
	}{{"abcd", 3, "abc"}, {"abc", 2, "413"}, {"ab", 3, "400"}} {
		r, err := readRequest(bufio.NewReader(strings.NewReader(head + c.body)))
		if err != nil {
			t.Fatal(err)
		}
		data, err := r.readBody(c.most)
		got := string(data)
		var no *refusal
		if errors.As(err, &no) {
			got = map[int]string{statusTooLarge: "413", statusBadRequest: "400"}[no.status]
		}
		if got != c.want {
			t.Errorf("%q, at most %d: %q, %v", c.body, c.most, got, err)
		}
	}
}

// FuzzReadRequest: what is taken, net/http takes too, and understands the same.
func FuzzReadRequest(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n",
		"POST /api/set?a=b HTTP/1.1\r\nHost: h\r\nCookie: a=b; c=d\r\nContent-Length: 3\r\n\r\nabc",
		"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\nA:\t d \r\n\r\n",
		"GET //h/%41 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: h\r\ncontent-length: 0\r\nCONTENT-LENGTH: 0\r\n\r\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := readRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			return
		}
		want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			t.Fatalf("%q is taken, but not by net/http: %v", text, err)
		}
		target := r.path
		if strings.Contains(text[:strings.Index(text, "\r\n")], "?") {
			target += "?" + r.query
		}
		if r.method != want.Method || target != want.RequestURI || r.host != want.Host || r.length != want.ContentLength {
			t.Errorf("%q: %+v, net/http has %s %s %s %d", text, r, want.Method, want.RequestURI, want.Host, want.ContentLength)
		}
		fields := map[string][]string{}
		for name, values := range want.Header {
			fields[strings.ToLower(name)] = values
		}
		for name, values := range r.fields {
			if name != "host" && !slices.Equal(fields[name], values) && name != "content-length" {
				t.Errorf("%q: %s is %q, net/http has %q", text, name, values, fields[name])
			}
		}
		// Of cookies as browsers send them; net/http is generous with others.
		if browsers := regexp.MustCompile(`^(\w+=\w+(; |$))*$`); len(r.fields["cookie"]) == 1 && browsers.MatchString(r.fields["cookie"][0]) {
			for _, c := range want.Cookies() {
				if !slices.Contains(r.cookies(c.Name), c.Value) || len(r.cookies(c.Name)) != len(want.CookiesNamed(c.Name)) {
					t.Errorf("%q: cookies %s are %q", text, c.Name, r.cookies(c.Name))
				}
			}
		}
		body, err := io.ReadAll(want.Body)
		ours, ourErr := r.readBody(1 << 10)
		if r.length <= 1<<10 && (string(body) != string(ours) && ourErr == nil || (err == nil) != (ourErr == nil)) {
			t.Errorf("%q: body %q %v, net/http has %q %v", text, ours, ourErr, body, err)
		}
	})
}
