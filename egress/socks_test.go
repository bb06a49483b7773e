package egress

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
)

// A script is what a client sends, and what it gets.
type script struct {
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error) { return s.out.Write(b) }

const greeting = "\x05\x01\x00"

func request(command, kind byte, host, port string) string {
	if kind == 3 {
		host = string([]byte{byte(len(host))}) + host
	}
	return string([]byte{5, command, 0, kind}) + host + port
}

func TestReadSOCKS(t *testing.T) {
	chosen := "\x05\x00"
	answer := func(code byte) string { return chosen + string(SOCKSReply(code)) }
	for _, c := range []struct {
		what, in string
		want     Target // the zero one: an error
		out      string
	}{
		{"a name", greeting + request(1, 3, "Example.ORG.", "\x01\xbb"), Target{Name: "example.org", Port: 443}, chosen},
		{"several methods", "\x05\x03\x02\x01\x00" + request(1, 3, "example.org", "\x00\x50"), Target{Name: "example.org", Port: 80}, chosen},
		{"IPv4", greeting + request(1, 1, "\x01\x02\x03\x04", "\xff\xff"), Target{Addr: netip.MustParseAddr("1.2.3.4"), Port: 65535}, chosen},
		{"IPv6", greeting + request(1, 4, "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x01"), Target{Addr: netip.MustParseAddr("2001:db8::1"), Port: 1}, chosen},
		{"mapped IPv4", greeting + request(1, 4, "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01", "\x00\x01"), Target{Addr: netip.MustParseAddr("127.0.0.1"), Port: 1}, chosen},

		{"no method", "\x05\x00", Target{}, "\x05\xff"},
		{"a password", "\x05\x01\x02", Target{}, "\x05\xff"},
		{"GSSAPI and a password", "\x05\x02\x01\x02", Target{}, "\x05\xff"},
		{"SOCKS 4", "\x04\x01\x00\x50\x01\x02\x03\x04\x00", Target{}, "\x00\x5b\x00\x00\x00\x00\x00\x00"},
		{"SOCKS 4a", "\x04\x01\x00\x50\x00\x00\x00\x01\x00example.org\x00", Target{}, "\x00\x5b\x00\x00\x00\x00\x00\x00"},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", Target{}, ""},
		{"another version in the request", greeting + "\x04\x01\x00\x01\x01\x02\x03\x04\x00\x50", Target{}, answer(SOCKSFailure)},
		{"a reserved byte", greeting + "\x05\x01\x01\x01\x01\x02\x03\x04\x00\x50", Target{}, answer(SOCKSFailure)},
		{"BIND", greeting + request(2, 3, "example.org", "\x01\xbb"), Target{}, answer(SOCKSCommand)},
		{"UDP ASSOCIATE", greeting + request(3, 1, "\x00\x00\x00\x00", "\x00\x00"), Target{}, answer(SOCKSCommand)},
		{"Tor's RESOLVE", greeting + request(0xf0, 3, "example.org", "\x00\x00"), Target{}, answer(SOCKSCommand)},
		{"command 0", greeting + request(0, 3, "example.org", "\x01\xbb"), Target{}, answer(SOCKSCommand)},
		{"address type 0", greeting + request(1, 0, "", ""), Target{}, answer(SOCKSAddress)},
		{"address type 2", greeting + request(1, 2, "abcd", "\x01\xbb"), Target{}, answer(SOCKSAddress)},
		{"an empty name", greeting + request(1, 3, "", "\x01\xbb"), Target{}, answer(SOCKSRefused)},
		{"NUL", greeting + request(1, 3, "evil.test\x00.example.org", "\x01\xbb"), Target{}, answer(SOCKSRefused)},
		{"a dotted quad as a name", greeting + request(1, 3, "127.0.0.1", "\x01\xbb"), Target{}, answer(SOCKSRefused)},
		{"IPv6 as a name", greeting + request(1, 3, "::1", "\x01\xbb"), Target{}, answer(SOCKSRefused)},
		{"a number as a name", greeting + request(1, 3, "0x7f.1", "\x01\xbb"), Target{}, answer(SOCKSRefused)},
		{"a name with a port", greeting + request(1, 3, "example.org:22", "\x01\xbb"), Target{}, answer(SOCKSRefused)},
		{"a long name", greeting + request(1, 3, strings.Repeat("a.", 127)+"a", "\x01\xbb"), Target{}, answer(SOCKSRefused)},
		{"port 0", greeting + request(1, 3, "example.org", "\x00\x00"), Target{}, answer(SOCKSRefused)},
	} {
		s := &script{in: strings.NewReader(c.in + "rest")}
		got, err := ReadSOCKS(s)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
		if c.want == (Target{}) && !errors.Is(err, ErrProtocol) || c.want != (Target{}) && err != nil {
			t.Errorf("%s: error %v", c.what, err)
		}
		if s.out.String() != c.out {
			t.Errorf("%s: answer %q, want %q", c.what, s.out.String(), c.out)
		}
		if rest, _ := io.ReadAll(s.in); c.want != (Target{}) && string(rest) != "rest" {
			t.Errorf("%s: %q is left, want what comes after the request", c.what, rest)
		}
		if c.want == (Target{}) {
			continue
		}
		for i := range len(c.in) { // every beginning is an error of the reader
			if got, err := ReadSOCKS(&script{in: strings.NewReader(c.in[:i])}); got != (Target{}) || err != io.EOF && err != io.ErrUnexpectedEOF {
				t.Errorf("%s, %d bytes: %+v, %v", c.what, i, got, err)
			}
		}
	}
}

type closed struct{ io.Reader }

var errClosed = errors.New("closed")

func (closed) Write([]byte) (int, error) { return 0, errClosed }

func TestReadSOCKSClosed(t *testing.T) {
	for _, in := range []string{greeting, "\x05\x00", "\x04\x01"} {
		if _, err := ReadSOCKS(closed{strings.NewReader(in)}); err != errClosed {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzReadSOCKS(f *testing.F) {
	f.Add([]byte(greeting + request(1, 3, "Example.org", "\x01\xbb")))
	f.Add([]byte(greeting + request(1, 1, "\x01\x02\x03\x04", "\x01\xbb")))
	f.Add([]byte(greeting + request(1, 4, "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01", "\x00\x01")))
	f.Add([]byte(greeting + request(3, 3, "a\x00b", "\x01\xbb")))
	f.Add([]byte("\x04\x01\x00\x50\x01\x02\x03\x04\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		s := &script{in: r}
		got, err := ReadSOCKS(s)
		if (err == nil) != (got != Target{}) {
			t.Fatalf("%+v with the error %v", got, err)
		}
		if s.out.Len() > 12 {
			t.Errorf("the answer %q", s.out.Bytes())
		}
		if err != nil {
			return
		}
		checkTarget(t, got)
		used := in[:len(in)-r.Len()]
		if port := int(used[len(used)-2])<<8 | int(used[len(used)-1]); got.Port != port {
			t.Errorf("port %d, want %d", got.Port, port)
		}
		if got.Name != "" && !bytes.Contains(bytes.ToLower(used), []byte(got.Name)) {
			t.Errorf("the name %q is not in %q", got.Name, used)
		}
		if s.out.String() != "\x05\x00" {
			t.Errorf("the answer %q before the connection", s.out.Bytes())
		}
	})
}

// checkTarget has what holds for every target.
func checkTarget(t testing.TB, got Target) {
	t.Helper()
	if got.Port < 1 || got.Port > 65535 || (got.Name != "") == got.Addr.IsValid() || got.Addr.Is4In6() || got.Addr.Zone() != "" {
		t.Errorf("the target %+v", got)
	}
	if got.Name != "" {
		if name, err := ParseName(got.Name); err != nil || name != got.Name {
			t.Errorf("the name %q", got.Name)
		}
	}
	if again, err := parseAuthority(got.authority(0), 0); err != nil || again != got {
		t.Errorf("%+v is %q, which is %+v (%v)", got, got.authority(0), again, err)
	}
}
