package egress

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// maxHead bounds the head of an HTTP request.
const maxHead = 64 << 10

// A Head is the head of a request to the HTTP proxy.
type Head struct {
	Target  Target
	Connect bool   // CONNECT: after the answer, bytes are carried both ways
	Request []byte // the head to send to the target; nil for CONNECT
	Body    Body   // what of the bytes after the head goes with it; not with CONNECT, where all do
	Size    int    // how many bytes the head took
}

// ParseHead reads the head of a request to an HTTP/1.1 proxy, which data begins with:
// CONNECT (RFC 9110 9.3.6), or an http URL in absolute form (RFC 9112 3.2.2), which
// becomes a request in origin form after which the connection is to be closed: there
// is one request to a connection. With more = true the head is not complete.
//
// It is strict, so that no two programs can read a head differently: lines end with CRLF
// and do not go on in the next one, the length of the body is given in one way, and the
// Host field agrees with the target. Errors wrap [ErrProtocol]; [HTTPReply] with the
// status is the answer.
func ParseHead(data []byte) (h Head, more bool, status int, err error) {
	refuse := func(status int, why string) (Head, bool, int, error) {
		return Head{}, false, status, fmt.Errorf("%s: %w", why, ErrProtocol)
	}
	text := data[:min(len(data), maxHead)]
	end := bytes.Index(text, []byte("\r\n\r\n"))
	if end >= 0 {
		text = text[:end+4]
	}
	if !headBytes(text) {
		return refuse(400, "an HTTP head with control characters")
	}
	if end < 0 {
		if len(data) >= maxHead {
			return refuse(431, "an HTTP head of more than 64 KiB")
		}
		return Head{}, true, 0, nil
	}
	h.Size = len(text)

	lines := strings.Split(string(text[:end]), "\r\n")
	line := strings.Split(lines[0], " ")
	if len(line) != 3 || !isToken(line[0]) || strings.Trim(line[1], visible) != "" || line[1] == "" {
		return refuse(400, "not the first line of an HTTP request")
	}
	method, target, version := line[0], line[1], line[2]
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return refuse(505, "a version of HTTP that is not 1.1 or 1.0")
	}
	fields, err := parseFields(lines[1:])
	if err != nil {
		return refuse(400, err.Error())
	}
	if err := fields.checkBody(method, version); err != nil {
		return refuse(400, err.Error())
	}
	drop, err := fields.hopByHop()
	if err != nil {
		return refuse(400, err.Error())
	}

	path := ""
	if h.Connect = method == "CONNECT"; h.Connect {
		h.Target, err = parseAuthority(target, 0)
	} else {
		if len(target) < 7 || lower(target[:7]) != "http://" {
			return refuse(400, "an HTTP request that is neither CONNECT nor for an http URL")
		}
		authority := target[7:]
		if i := strings.IndexAny(authority, "/?"); i >= 0 {
			authority, path = authority[:i], authority[i:]
		}
		if path == "" && method == "OPTIONS" {
			path = "*" // RFC 9112 3.2.4
		} else if !strings.HasPrefix(path, "/") {
			path = "/" + path
		}
		if strings.Contains(path, "#") {
			return refuse(400, "an HTTP target with a fragment")
		}
		h.Target, err = parseAuthority(authority, 80)
	}
	if err != nil {
		return refuse(400, err.Error())
	}
	hosts := fields.values("host")
	if len(hosts) > 1 || len(hosts) == 0 && version == "HTTP/1.1" && !h.Connect {
		return refuse(400, "an HTTP request without one Host field")
	}
	for _, host := range hosts {
		port := 80
		if h.Connect { // some leave it out there
			port = h.Target.Port
		}
		if t, err := parseAuthority(host, port); err != nil || t != h.Target {
			return refuse(400, "an HTTP request with a Host field for another host")
		}
	}
	if h.Connect {
		return h, false, 0, nil
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s %s\r\nHost: %s\r\n", method, path, version, h.Target.authority(80))
	for _, f := range fields {
		if name := lower(f.name); name != "host" && !drop[name] {
			fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
		}
	}
	b.WriteString("Connection: close\r\n\r\n")
	h.Request, h.Body = b.Bytes(), fields.body()
	return h, false, 0, nil
}

// visible is the characters that can be in the target of a request.
const visible = "!\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"

// headBytes reports whether a head, or its beginning, has no control characters but
// tabs, and CR and LF only together.
func headBytes(b []byte) bool {
	for i, c := range b {
		switch {
		case c == '\n' && (i == 0 || b[i-1] != '\r'),
			c != '\n' && i > 0 && b[i-1] == '\r',
			c != '\r' && c != '\n' && !isText(c):
			return false
		}
	}
	return true
}

// isToken reports whether s is a token, RFC 9110 5.6.2.
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

type field struct{ name, value string }

type fields []field

func parseFields(lines []string) (fields, error) {
	var list fields
	for _, l := range lines {
		name, value, ok := strings.Cut(l, ":")
		if !ok || !isToken(name) { // also a line that goes on from the one before it, RFC 9112 5.2
			return nil, errors.New("an HTTP head with a line that is no field")
		}
		list = append(list, field{name, strings.Trim(value, " \t")})
	}
	return list, nil
}

// values gives the values of all fields of a name, which is in lower case.
func (list fields) values(name string) []string {
	var values []string
	for _, f := range list {
		if lower(f.name) == name {
			values = append(values, f.value)
		}
	}
	return values
}

// checkBody refuses what leaves a doubt where the body ends, RFC 9112 6.3.
func (list fields) checkBody(method, version string) error {
	coding, length := list.values("transfer-encoding"), list.values("content-length")
	switch {
	case len(coding)+len(length) > 1:
		return errors.New("an HTTP request with more than one length")
	case len(coding) == 1 && (lower(coding[0]) != "chunked" || version != "HTTP/1.1" || method == "CONNECT"):
		return errors.New("an HTTP request with a transfer coding that is not chunked")
	case len(length) == 1 && (length[0] == "" || len(length[0]) > 18 || strings.Trim(length[0], "0123456789") != ""):
		return errors.New("an HTTP request with a length that is no number")
	case len(length) == 1 && method == "CONNECT" && strings.Trim(length[0], "0") != "":
		return errors.New("a CONNECT request with a body")
	}
	return nil
}

// body gives the body that checked fields announce.
func (list fields) body() Body {
	if len(list.values("transfer-encoding")) > 0 {
		return Body{state: chunkDigit}
	}
	for _, length := range list.values("content-length") {
		n, _ := strconv.ParseUint(length, 10, 64)
		return Body{left: n}
	}
	return Body{}
}

// hopByHop gives the names of the fields that are for the proxy alone: those of
// RFC 9110 7.6.1 and what Connection names.
func (list fields) hopByHop() (map[string]bool, error) {
	drop := map[string]bool{
		"connection": true, "keep-alive": true, "proxy-connection": true, "te": true, "upgrade": true,
		"proxy-authorization": true, "proxy-authenticate": true, "proxy-authentication-info": true,
	}
	for _, value := range list.values("connection") {
		for name := range strings.SplitSeq(value, ",") {
			switch name = lower(strings.Trim(name, " \t")); {
			case name == "host", name == "content-length", name == "transfer-encoding":
				return nil, errors.New("an HTTP request whose Connection field names one that the target needs")
			case name != "" && !isToken(name):
				return nil, errors.New("an HTTP request with a wrong Connection field")
			}
			drop[name] = true
		}
	}
	return drop, nil
}

// parseAuthority reads HOST or HOST:PORT, with an IPv6 address in brackets. The port
// may be missing when there is one to take instead.
func parseAuthority(s string, port int) (Target, error) {
	host, digits := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, digits = s[:i], s[i+1:]
		n, err := strconv.ParseUint(digits, 10, 16)
		if err != nil || digits[0] == '0' || digits[0] == '+' {
			return Target{}, errors.New("a wrong port")
		}
		port = int(n)
	}
	if port == 0 {
		return Target{}, errors.New("a host without a port")
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !ok || err != nil || !addr.Is6() || addr.Zone() != "" {
			return Target{}, errors.New("a wrong IPv6 address")
		}
		return Target{Addr: addr.Unmap(), Port: port}, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		return Target{Addr: addr, Port: port}, nil
	}
	name, err := ParseName(host)
	if err != nil {
		return Target{}, err
	}
	return Target{Name: name, Port: port}, nil
}

// authority is the inverse of parseAuthority, without a port that is the usual one.
func (t Target) authority(usual int) string {
	s := t.Name
	switch {
	case t.Addr.Is6():
		s = "[" + t.Addr.String() + "]"
	case t.Addr.Is4():
		s = t.Addr.String()
	}
	if t.Port != usual {
		s += ":" + strconv.Itoa(t.Port)
	}
	return s
}

// HTTPReply gives the answer of the proxy itself: with 200 the end of a CONNECT,
// otherwise a refusal with a line of text, after which the connection is closed.
func HTTPReply(status int, text string) []byte {
	if status == 200 {
		return []byte("HTTP/1.1 200 Connection established\r\n\r\n")
	}
	phrase := ""
	switch status {
	case 400:
		phrase = "Bad Request"
	case 403:
		phrase = "Forbidden"
	case 408:
		phrase = "Request Timeout"
	case 431:
		phrase = "Request Header Fields Too Large"
	case 502:
		phrase = "Bad Gateway"
	case 503:
		phrase = "Service Unavailable"
	case 504:
		phrase = "Gateway Timeout"
	case 505:
		phrase = "HTTP Version Not Supported"
	}
	text = "wall: " + text + "\n"
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, phrase, len(text), text)
}
