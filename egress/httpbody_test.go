package egress

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http/httputil"
	"strings"
	"testing"
	"time"
)

func TestBody(t *testing.T) {
	chunks := Body{state: chunkDigit}
	for _, c := range []struct {
		body Body
		in   string
		rest string
	}{
		{Body{}, "", ""},
		{Body{}, "GET", "GET"},
		{Body{left: 5}, "12345GET", "GET"},
		{Body{left: 5}, "12345", ""},
		{chunks, "0\r\n\r\nGET", "GET"},
		{chunks, "5\r\n12345\r\n0\r\n\r\nGET", "GET"},
		{chunks, "00A;x=\"y\"\r\n1234567890\r\n1 \t\r\n\n\r\n0000;z\r\n\r\nGET", "GET"},
		{chunks, "A\r\n1234567890\r\na\r\n1234567890\r\nF\r\n123456789012345\r\nf\r\n123456789012345\r\n9\r\n123456789\r\n0\r\n\r\nGET", "GET"},
		{chunks, "1\tx\r\na\r\n1 x\r\na\r\n0\t\r\n\r\n", ""},
		{chunks, "0\r\nA: b\r\n\tC\r\nD:\r\n\r\nGET", "GET"},
		{chunks, "5\r\n0\r\n\r\n\r\n0\r\n\r\n0\r\n\r\n", "0\r\n\r\n"}, // data that looks like an end
		{chunks, "0\r\n" + strings.Repeat("a", maxChunkLine-10) + "\r\n\r\n", ""},
	} {
		for _, size := range []int{1, 2, 3, 7, 10000} { // of the pieces
			b := c.body
			taken := 0
			for taken < len(c.in) && !b.Done() {
				piece := c.in[taken:min(taken+size, len(c.in))]
				n, err := b.Take([]byte(piece))
				if err != nil {
					t.Fatalf("%q in pieces of %d: %v", c.in, size, err)
				}
				if n < len(piece) && !b.Done() {
					t.Fatalf("%q in pieces of %d: %d bytes of %q, and no end", c.in, size, n, piece)
				}
				taken += n
			}
			if !b.Done() || c.in[taken:] != c.rest {
				t.Errorf("%.60q in pieces of %d: done %t, %q is left, want %q", c.in, size, b.Done(), c.in[taken:], c.rest)
			}
			if n, err := b.Take([]byte("x")); n != 0 || err != nil {
				t.Errorf("%.60q: takes %d bytes behind its end, %v", c.in, n, err)
			}
		}
		for i := range min(len(c.in)-len(c.rest), 100) {
			b := c.body
			if n, err := b.Take([]byte(c.in[:i])); n != i || err != nil || b.Done() {
				t.Errorf("%.60q, %d bytes: takes %d, done %t, %v", c.in, i, n, b.Done(), err)
			}
		}
	}
	for _, in := range []string{
		"\r\n", "g\r\n", "x5\r\n", " 5\r\n", "-5\r\n", "+5\r\n", "0x5\r\n", ";\r\n", "5\n", "5\r5", "5;\n", "5;\x00\r\n", "5;\x7f\r\n", "5,\r\n", "5\r\n12345\n", "5\r\n12345 \r\n", "5\r\n123456\r\n", "5\r\n12345\r5", "5\r\n1234\r\n0\r\n",
		"0\n", "0\r\n\n", "0\r\n\rx", "0\r\nA\n", "0\r\nA\rB", "0\r\n\x00", "0\r\nA: \x01\r\n", "5\r\n12345\r\n\r\n", "8000000000000000\r\n", "ffffffffffffffffff\r\n", "10000000000000000\r\n",
		"0" + strings.Repeat("0", maxChunkLine), "5;" + strings.Repeat("a", maxChunkLine), "0\r\n" + strings.Repeat("a: b\r\n", maxChunkLine/6+1),
	} {
		b := chunks
		if n, err := b.Take([]byte(in)); !errors.Is(err, ErrProtocol) || n != 0 {
			t.Errorf("%.60q: %d bytes, %v", in, n, err)
		}
	}
}

func FuzzBody(f *testing.F) {
	f.Add([]byte("5\r\n12345\r\n0\r\n\r\nGET"), uint8(3))
	f.Add([]byte("a;x=y\r\n1234567890\r\n0\r\nA: b\r\n\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		b := Body{state: chunkDigit}
		taken, failed := 0, false
		for taken < len(in) && !b.Done() {
			n, err := b.Take(in[taken:min(taken+1+int(size), len(in))])
			if failed = err != nil; failed {
				break
			}
			taken += n
		}
		whole := Body{state: chunkDigit}
		if n, err := whole.Take(in); (err != nil) != failed || err == nil && (n != taken || whole != b) {
			t.Fatalf("%d bytes at once (%v), %d in pieces of %d", n, err, taken, 1+int(size))
		}
		if failed || !b.Done() {
			return
		}
		// A second opinion: what net/http takes for the body and its trailer has the same end. It
		// does not read the trailer, which is lines until an empty one.
		r := bufio.NewReaderSize(bytes.NewReader(in), 16)
		if _, err := io.Copy(io.Discard, httputil.NewChunkedReader(r)); err != nil {
			return // it is stricter about extensions
		}
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				t.Fatalf("net/http finds no end in %q", in[:taken])
			}
			if line == "\r\n" {
				break
			}
		}
		rest, _ := io.ReadAll(r)
		if len(rest) != len(in)-taken {
			t.Fatalf("net/http leaves %q, we %q", rest, in[taken:])
		}
	})
}

// requestTo sends bytes to the HTTP proxy and gives what the host got when the box has
// ended its side, and what the box got.
func (w *world) requestTo(sent string, answer string) (host, box string) {
	w.Helper()
	got := make(chan string, 1)
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:80", func(c *net.TCPConn) {
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		if answer != "" { // as soon as there is a request
			head := make([]byte, 1)
			io.ReadFull(c, head)
			io.WriteString(c, answer)
			c.CloseWrite()
			rest, _ := io.ReadAll(c)
			got <- string(head) + string(rest)
			return
		}
		all, _ := io.ReadAll(c)
		got <- string(all)
	})
	c, err := net.Dial("tcp4", w.http)
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, sent)
	if answer == "" {
		c.(*net.TCPConn).CloseWrite()
	}
	b, _ := io.ReadAll(c)
	c.Close()
	select {
	case host = <-got:
	case <-time.After(patience):
		w.Fatalf("the host got nothing; the events are %+v", w.events())
	}
	return host, string(b)
}

// TestOneRequest: an absolute-form request and its body go to the host, and nothing
// that comes after it on the same connection.
func TestOneRequest(t *testing.T) {
	second := crlf("GET http://other.test/ HTTP/1.1", "Host: other.test", "Cookie: secret")
	for _, sni := range []bool{false, true} {
		for _, c := range []struct{ in, want string }{
			{crlf("GET http://example.org/a HTTP/1.1", "Host: example.org"), crlf("GET /a HTTP/1.1", "Host: example.org", "Connection: close")},
			{crlf("POST http://example.org/ HTTP/1.1", "Host: example.org", "Content-Length: 5") + "12345", crlf("POST / HTTP/1.1", "Host: example.org", "Content-Length: 5", "Connection: close") + "12345"},
			{crlf("POST http://example.org/ HTTP/1.1", "Host: example.org", "Transfer-Encoding: chunked") + "5\r\n\x16\x03\x01..\r\n0\r\nA: b\r\n\r\n",
				crlf("POST / HTTP/1.1", "Host: example.org", "Transfer-Encoding: chunked", "Connection: close") + "5\r\n\x16\x03\x01..\r\n0\r\nA: b\r\n\r\n"},
		} {
			for _, more := range []string{"", second, "\x16\x03\x01"} {
				n := ruled(t, "example.org 80")
				n.CheckSNI = sni
				w := newWorld(t, n)
				if host, _ := w.requestTo(c.in+more, ""); host != c.want {
					t.Errorf("%q: the host got %q, want %q", c.in+more, host, c.want)
				}
				w = newWorld(t, n)
				answer := "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 100000)
				host, box := w.requestTo(c.in+more, answer)
				if host != c.want || box != answer {
					t.Errorf("%q: the host got %q and the box %d bytes, want %q and %d", c.in+more, host, len(box), c.want, len(answer))
				}
			}
		}
	}
	w := newWorld(t, ruled(t, "example.org 80"))
	host, _ := w.requestTo(crlf("POST http://example.org/ HTTP/1.1", "Host: example.org", "Transfer-Encoding: chunked")+"5\n12345\r\n0\r\n\r\n", "")
	if want := crlf("POST / HTTP/1.1", "Host: example.org", "Transfer-Encoding: chunked", "Connection: close"); host != want && host != "" {
		t.Errorf("a wrong chunk: the host got %q, want %q or nothing", host, want)
	}
	if e := w.find(KindClose); !strings.Contains(e.Reason, "chunk") {
		t.Errorf("a wrong chunk: %+v", e)
	}
}

// TestOneRequestKeptOpen: where a host does not end the connection after its answer, a
// client that sends another request on it gets the answer, and then a reset.
func TestOneRequestKeptOpen(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	w := newWorld(t, ruled(t, "example.org 80"))
	w.name("example.org", "93.184.215.14")
	got := make(chan string, 1)
	w.host("93.184.215.14:80", func(c *net.TCPConn) {
		defer c.Close()
		r := bufio.NewReader(c)
		for { // the head
			line, err := r.ReadString('\n')
			if err != nil || line == "\r\n" {
				break
			}
		}
		io.WriteString(c, answer)
		rest, _ := io.ReadAll(r)
		got <- string(rest)
	})
	c, err := net.Dial("tcp4", w.http)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, crlf("GET http://example.org/ HTTP/1.1", "Host: example.org"))
	b := make([]byte, len(answer))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != answer {
		t.Fatalf("the answer %q, %v", b, err)
	}
	io.WriteString(c, crlf("GET http://other.test/ HTTP/1.1", "Host: other.test"))
	wantReset(t, c)
	if rest := <-got; rest != "" {
		t.Errorf("the host got another request: %q", rest)
	}
	if e := w.find(KindClose); !strings.HasPrefix(e.Reason, "another request") {
		t.Errorf("%+v", e)
	}
}
