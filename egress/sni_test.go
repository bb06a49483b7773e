package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// hello gives the ClientHello that crypto/tls sends.
func hello(t testing.TB, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	go func() {
		tls.Client(client, c).Handshake() // fails: there is no server
		client.Close()
	}()
	defer server.Close()
	header := make([]byte, 5)
	if _, err := io.ReadFull(server, header); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(header[3:]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	return append(header, body...)
}

// cut gives the same message in records of at most n bytes.
func cut(record []byte, n int) []byte {
	var b []byte
	for rest := record[5:]; len(rest) > 0; {
		part := rest[:min(n, len(rest))]
		rest = rest[len(part):]
		b = append(b, record[:3]...)
		b = binary.BigEndian.AppendUint16(b, uint16(len(part)))
		b = append(b, part...)
	}
	return b
}

// handshake makes a ClientHello by hand, from the bytes of its extensions.
func handshake(extensions []byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	body = binary.BigEndian.AppendUint16(body, uint16(len(extensions)))
	return message(append(body, extensions...))
}

func message(body []byte) []byte {
	n := len(body)
	b := append([]byte{22, 3, 1, byte((n + 4) >> 8), byte(n + 4), 1, byte(n >> 16), byte(n >> 8), byte(n)}, body...)
	return b
}

// sni makes a server_name extension of one entry for each name.
func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, 0)
		list = binary.BigEndian.AppendUint16(list, uint16(len(n)))
		list = append(list, n...)
	}
	return extension(0, append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...))
}

func extension(typ byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{0, typ}, uint16(len(data))), data...)
}

func TestClientHello(t *testing.T) {
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + ".example"
	for name, want := range map[string]string{"example.org": "example.org", "WWW.Example.ORG": "www.example.org", "example.org.": "example.org", "a_b.test": "a_b.test", long: long} {
		for _, c := range []*tls.Config{{ServerName: name}, {ServerName: name, MaxVersion: tls.VersionTLS12}, {ServerName: name, NextProtos: []string{"h2", strings.Repeat("x", 255)}}} {
			h := hello(t, c)
			for _, b := range [][]byte{h, append(bytes.Clone(h), 0x17, 3, 3, 0), cut(h, 20), cut(h, 100), cut(h, len(h)-6)} {
				if got, state := ClientHello(b); got != want || state != HelloName {
					t.Errorf("the ClientHello for %s: %q, state %d", name, got, state)
				}
			}
		}
		if got, state := ClientHello(handshake(sni(name))); got != want || state != HelloName {
			t.Errorf("the ClientHello by hand for %s: %q, state %d", name, got, state)
		}
	}
}

// TestClientHelloParts: every beginning asks for more, and none gives an answer.
func TestClientHelloParts(t *testing.T) {
	h := hello(t, &tls.Config{ServerName: "example.org"})
	for _, b := range [][]byte{h, cut(h, 20), cut(h, 700)} {
		for i := range b {
			if name, state := ClientHello(b[:i]); state != HelloMore || name != "" {
				t.Fatalf("after %d of %d bytes: %q, state %d", i, len(b), name, state)
			}
		}
	}
	if _, state := ClientHello(cut(h, 1)); state != HelloBad {
		t.Errorf("a ClientHello in %d records: state %d", len(h)-5, state)
	}
}

func TestClientHelloOthers(t *testing.T) {
	good := handshake(sni("example.org"))
	change := func(at int, to byte) []byte {
		b := bytes.Clone(good)
		b[at] = to
		return b
	}
	alert := []byte{21, 3, 1, 0, 2, 1, 0}
	big := handshake(append(sni("example.org"), extension(99, make([]byte, 16000))...))
	long := func(size int) []byte { // of the message
		e := sni("example.org")
		for left := size - len(handshake(e)) + 5; left > 0; left -= 60000 {
			e = append(e, extension(99, make([]byte, min(left, 60000)-4))...)
		}
		return cut(handshake(e), 1<<14)
	}
	for _, c := range []struct {
		what  string
		data  []byte
		state HelloState
	}{
		{"nothing", nil, HelloMore},
		{"SSH", []byte("SSH-2.0-OpenSSH\r\n"), HelloNone},
		{"HTTP", []byte("GET / HTTP/1.1\r\n"), HelloNone},
		{"one letter", []byte("G"), HelloNone},
		{"zeros", make([]byte, 100), HelloNone},
		{"a control byte", []byte{20, 1}, HelloNone},
		{"the control byte alone", []byte{20}, HelloMore},
		{"a low byte", []byte{5}, HelloNone},
		{"low bytes", []byte{5, 3, 1, 0, 0}, HelloNone},
		{"a byte above the types", []byte{25, 3, 1, 0, 0}, HelloNone},
		{"two high bytes", []byte{0x80, 0x41}, HelloMore},
		{"high bytes", []byte{0x80, 0x41, 2, 3}, HelloNone},
		{"high bytes of another version", []byte{0x80, 0x41, 1, 2}, HelloNone},
		{"high bytes, the beginning", []byte{0x80, 0x41, 1}, HelloMore},
		{"SSL 2.0 form", []byte{0x80, 0x41, 1, 3, 3, 0, 0x18}, HelloBare},
		{"SSL 2.0 form, long", []byte{0xff, 0xff, 1, 3}, HelloBare},
		{"no name", handshake(extension(10, nil)), HelloBare},
		{"no extension", handshake(nil), HelloBare},
		{"no list of extensions", message(append(append([]byte{3, 1}, make([]byte, 32)...), 0, 0, 2, 0x13, 1, 1, 0)), HelloBare},
		{"an address", handshake(sni("127.0.0.1")), HelloBad},
		{"a number", handshake(sni("2130706433")), HelloBad},
		{"an empty name", handshake(sni("")), HelloBad},
		{"no entry", handshake(sni()), HelloBad},
		{"an empty extension", handshake(extension(0, nil)), HelloBad},
		{"NUL in the name", handshake(sni("example.org\x00.test")), HelloBad},
		{"a space in the name", handshake(sni("example.org ")), HelloBad},
		{"two names in one list", handshake(sni("example.org", "other.test")), HelloBad},
		{"the name twice in one list", handshake(sni("example.org", "example.org")), HelloBad},
		{"two extensions", handshake(append(sni("example.org"), sni("other.test")...)), HelloBad},
		{"two extensions, the last one empty", handshake(append(sni("example.org"), extension(0, nil)...)), HelloBad},
		{"another kind of name", handshake(extension(0, append([]byte{0, 14, 1, 0, 11}, "example.org"...))), HelloBad},
		{"a list that is too long", handshake(extension(0, append([]byte{0, 15, 0, 0, 11}, "example.org"...))), HelloBad},
		{"a list that is too short", handshake(extension(0, append([]byte{0, 13, 0, 0, 11}, "example.org"...))), HelloBad},
		{"a name that is too long", handshake(extension(0, append([]byte{0, 14, 0, 0, 12}, "example.org"...))), HelloBad},
		{"a name that is too short", handshake(extension(0, append([]byte{0, 14, 0, 0, 10}, "example.org"...))), HelloBad},
		{"bytes behind the list", handshake(extension(0, append([]byte{0, 14, 0, 0, 11}, "example.org\x00"...))), HelloBad},
		{"bytes behind the extensions", message(append(handshake(sni("example.org"))[9:], 0)), HelloBad},
		{"a cut extension", handshake(sni("example.org")[:10]), HelloBad},
		{"half an extension's header", handshake([]byte{0, 0, 0}), HelloBad},
		{"an empty body", message(nil), HelloBad},
		{"a short body", message(make([]byte, 34)), HelloBad},
		{"version 2", change(1, 2), HelloBad},
		{"a ServerHello", change(5, 2), HelloBad},
		{"an alert first", append(bytes.Clone(alert), good...), HelloBad},
		{"a change of cipher first", append([]byte{20, 3, 3, 0, 1, 1}, good...), HelloBad},
		{"application data first", append([]byte{23, 3, 3, 0, 1, 1}, good...), HelloBad},
		{"a heartbeat first", append([]byte{24, 3, 3, 0, 1, 1}, good...), HelloBad},
		{"an empty record first", append([]byte{22, 3, 1, 0, 0}, good...), HelloBad},
		{"an alert in between", append(append(cut(good, 30)[:35:35], alert...), cut(good, 30)[35:]...), HelloBad},
		{"an empty record in between", append(append(cut(good, 30)[:35:35], 22, 3, 1, 0, 0), cut(good, 30)[35:]...), HelloBad},
		{"a record that is too long", change(3, 0x41), HelloBad},
		{"a message of 16 MB", change(6, 0xff), HelloBad},
		{"a message of 64 KiB", change(6, 1), HelloBad},
		{"a second message in the record", func() []byte {
			b := append(bytes.Clone(good), 1, 0, 0, 0)
			b[4] += 4
			return b
		}(), HelloBad},
		{"a second message in a record that goes on", func() []byte {
			b := append(bytes.Clone(good), 1, 0)
			b[4] += 4
			return b
		}(), HelloBad},
		{"a message that ends before its record", func() []byte {
			b := bytes.Clone(good)
			b[4]++
			return b
		}(), HelloBad},
		{"a record of length 0", []byte{22, 3, 1, 0, 0}, HelloBad},
		{"a record of 16385 bytes", []byte{22, 3, 1, 0x40, 1}, HelloBad},
		{"a record of 16384 bytes", handshake(append(sni("example.org"), extension(99, make([]byte, 1<<14-len(handshake(append(sni("example.org"), extension(99, nil)...)))+5))...)), HelloName},
		{"a cut behind the length", append(append(cut(good, 4)[:9:9], 22, 3, 1, 0, good[4]-4), good[9:]...), HelloName},
		{"the longest", long(maxHello - 5*maxRecords), HelloName},
		{"one byte longer", long(maxHello - 5*maxRecords + 1), HelloBad},
		{"a big one", big, HelloName},
		{"a big one, cut", cut(big, 150), HelloName},
	} {
		name, state := ClientHello(c.data)
		if state != c.state {
			t.Errorf("%s: state %d with %q, want %d", c.what, state, name, c.state)
		}
		if (name != "") != (state == HelloName) {
			t.Errorf("%s: state %d with the name %q", c.what, state, name)
		}
	}
}

// serverSees gives the name that crypto/tls as a server reads.
func serverSees(data []byte) (name string, ok bool) {
	errStop := io.ErrNoProgress
	c := tls.Server(&playback{bytes.NewReader(data)}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = h.ServerName, true
		return nil, errStop
	}})
	c.Handshake()
	return name, ok
}

// playback is a connection that others have sent already.
type playback struct{ r io.Reader }

func (p *playback) Read(b []byte) (int, error) { return p.r.Read(b) }

func FuzzClientHello(f *testing.F) {
	// Small ones: the search is quicker.
	good := hello(f, &tls.Config{ServerName: "example.org", CurvePreferences: []tls.CurveID{tls.X25519}, MinVersion: tls.VersionTLS13})
	f.Add(good)
	f.Add(cut(good, 50))
	f.Add(handshake(sni("example.org", "a.test")))
	f.Add(handshake(append(sni("example.org"), sni("a.test")...)))
	f.Add(handshake(nil))
	f.Add([]byte{0x80, 0x41, 1, 3, 3, 0, 0x18})
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		name, state := ClientHello(data)
		if (name != "") != (state == HelloName) || state < HelloMore || state > HelloBad {
			t.Fatalf("state %d with the name %q", state, name)
		}
		if state == HelloMore && len(data) >= maxHello {
			t.Errorf("more than %d bytes are asked for", maxHello)
		}
		if parsed, err := ParseName(name); state == HelloName && (err != nil || parsed != name) {
			t.Errorf("the name %q", name)
		}
		for _, n := range []int{1, 5, len(data) / 2, len(data) - 1} { // what is settled stays so
			if n < 0 || n > len(data) {
				continue
			}
			if before, s := ClientHello(data[:n]); s != HelloMore && (s != state || before != name) {
				t.Errorf("%q (%d) after %d bytes, then %q (%d)", before, s, n, name, state)
			}
		}
		// A server that takes it sees the same name, and none when we saw none.
		if server, ok := serverSees(data); ok {
			want := server
			if server != "" {
				want, _ = ParseName(server)
			}
			if state != HelloBad && state != HelloName && server != "" || state == HelloName && name != want || state == HelloNone {
				t.Errorf("a server reads %q, we read %q (%d)", server, name, state)
			}
		}
	})
}

func (p *playback) Write(b []byte) (int, error)      { return len(b), nil }
func (p *playback) Close() error                     { return nil }
func (p *playback) LocalAddr() net.Addr              { return nil }
func (p *playback) RemoteAddr() net.Addr             { return nil }
func (p *playback) SetDeadline(time.Time) error      { return nil }
func (p *playback) SetReadDeadline(time.Time) error  { return nil }
func (p *playback) SetWriteDeadline(time.Time) error { return nil }
