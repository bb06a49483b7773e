package envpage

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// As much of HTTP/1.1 (RFC 9112) as a browser needs from a page on the same
// machine: one request for each connection, no chunks, no continuation, no proxy.
// Package net/http would do as well, but what it initialises would cost every start
// of wall 0.3 ms, twice for every run. What this file takes is a part of what
// net/http takes, with the same meaning; a fuzz test compares the two.

// A request is the head of one request. The names of fields are in lower case.
type request struct {
	method, path, query string
	host                string
	fields              map[string][]string
	length              int64 // of the body
	body                io.Reader
}

// field gives the only field of a name; ok is false when there is none, or more
// than one.
func (r *request) field(name string) (value string, ok bool) {
	all := r.fields[name]
	if len(all) != 1 {
		return "", false
	}
	return all[0], true
}

// A response is what is answered.
type response struct {
	status int
	fields [][2]string
	body   []byte
}

func (r *response) set(name, value string) {
	r.fields = append(r.fields, [2]string{name, value})
}

// Statuses that are answered, with their names.
const (
	statusOK            = 200
	statusBadRequest    = 400
	statusUnauthorized  = 401
	statusForbidden     = 403
	statusNotFound      = 404
	statusMethod        = 405
	statusConflict      = 409
	statusTooLarge      = 413
	statusMediaType     = 415
	statusExpectation   = 417
	statusMisdirected   = 421
	statusUnprocessable = 422
	statusFieldsLarge   = 431
	statusInternal      = 500
	statusUnimplemented = 501
	statusVersion       = 505
)

var statusNames = map[int]string{
	statusOK: "OK", statusBadRequest: "Bad Request", statusUnauthorized: "Unauthorized", statusForbidden: "Forbidden", statusNotFound: "Not Found",
	statusMethod: "Method Not Allowed", statusConflict: "Conflict", statusTooLarge: "Content Too Large", statusMediaType: "Unsupported Media Type",
	statusExpectation: "Expectation Failed", statusMisdirected: "Misdirected Request", statusUnprocessable: "Unprocessable Content",
	statusFieldsLarge: "Request Header Fields Too Large", statusInternal: "Internal Server Error", statusUnimplemented: "Not Implemented",
	statusVersion: "HTTP Version Not Supported",
}

// maxHead bounds the lines in front of a body, in bytes, and maxFields their number.
const (
	maxHead   = 16 << 10
	maxFields = 64
)

// errSilent says that there is nobody to answer.
var errSilent = errors.New("the connection ended without a request")

// readRequest reads the head of a request. The error is a *refusal to be answered,
// or errSilent.
func readRequest(from *bufio.Reader) (*request, error) {
	head := &headReader{r: from, left: maxHead}
	line, err := head.line()
	if err != nil {
		return nil, err
	}
	bad := func(text string) (*request, error) { return nil, &refusal{statusBadRequest, text} }
	parts := strings.Split(line, " ")
	if len(parts) != 3 {
		return bad("the request line is not of three words")
	}
	r := &request{method: parts[0], fields: map[string][]string{}, body: from}
	switch {
	case !isToken(r.method):
		return bad("the method is not a token")
	case !strings.HasPrefix(parts[1], "/") || strings.ContainsFunc(parts[1], func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '#' }):
		return bad("the target is not a path")
	case parts[2] != "HTTP/1.1":
		return nil, &refusal{statusVersion, "the version must be HTTP/1.1"}
	}
	if _, err := url.ParseRequestURI(parts[1]); err != nil {
		return bad("the target is not a path")
	}
	r.path, r.query, _ = strings.Cut(parts[1], "?")
	for n := 0; ; n++ {
		line, err := head.line()
		if err != nil {
			return nil, err
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		switch {
		case n == maxFields:
			return nil, &refusal{statusFieldsLarge, "there are too many fields"}
		case !ok || !isToken(name): // also a line that continues another one
			return bad("a field has no name")
		case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
			return bad("a field holds a control character")
		}
		name = strings.ToLower(name)
		r.fields[name] = append(r.fields[name], value)
	}
	var ok bool
	if r.host, ok = r.field("host"); !ok {
		return bad("there must be one Host")
	}
	if r.fields["transfer-encoding"] != nil {
		return nil, &refusal{statusUnimplemented, "a body must have its length in front"}
	}
	if r.fields["expect"] != nil {
		return nil, &refusal{statusExpectation, "a body must come without being asked for"}
	}
	if r.fields["content-length"] != nil {
		text, _ := r.field("content-length")
		if text == "" || len(text) > 12 || strings.Trim(text, "0123456789") != "" {
			return bad("the length of the body is not a number")
		}
		if r.length, err = strconv.ParseInt(text, 10, 64); err != nil {
			return bad("the length of the body is not a number")
		}
	}
	return r, nil
}

// readBody reads the body, of at most most bytes.
func (r *request) readBody(most int64) ([]byte, error) {
	if r.length > most {
		return nil, &refusal{statusTooLarge, fmt.Sprintf("the request has more than %d bytes", most)}
	}
	data := make([]byte, r.length)
	if _, err := io.ReadFull(r.body, data); err != nil {
		return nil, &refusal{statusBadRequest, "the request ended early"}
	}
	return data, nil
}

// A headReader reads lines that end in CR LF, of a bounded length together.
type headReader struct {
	r    *bufio.Reader
	left int
}

func (h *headReader) line() (string, error) {
	var line []byte
	for {
		c, err := h.r.ReadByte()
		if err != nil {
			if h.left == maxHead {
				return "", errSilent
			}
			return "", &refusal{statusBadRequest, "the request ended early"}
		}
		if h.left--; h.left < 0 {
			return "", &refusal{statusFieldsLarge, "the head of the request is too large"}
		}
		if c == '\n' {
			break
		}
		line = append(line, c)
	}
	text, ok := bytes.CutSuffix(line, []byte("\r"))
	if !ok || bytes.ContainsAny(text, "\r\x00") {
		return "", &refusal{statusBadRequest, "a line does not end as it should"}
	}
	return string(text), nil
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// cookies gives the values of the cookies of a name.
func (r *request) cookies(name string) []string {
	var out []string
	for _, line := range r.fields["cookie"] {
		for part := range strings.SplitSeq(line, ";") {
			if n, v, ok := strings.Cut(strings.Trim(part, " \t"), "="); ok && n == name {
				out = append(out, v)
			}
		}
	}
	return out
}

// write sends the answer, the last one on its connection.
func (r *response) write(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", r.status, statusNames[r.status])
	for _, f := range r.fields {
		fmt.Fprintf(&b, "%s: %s\r\n", f[0], f[1])
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\nConnection: close\r\n\r\n", len(r.body))
	b.Write(r.body)
	_, err := w.Write(b.Bytes())
	return err
}

// converse answers the one request of a connection, and closes it.
func (s *Server) converse(c net.Conn) {
	defer c.Close()
	if c.SetDeadline(time.Now().Add(headTimeout)) != nil {
		return
	}
	in := bufio.NewReader(c)
	r, err := readRequest(in)
	if errors.Is(err, errSilent) {
		return
	}
	if c.SetDeadline(time.Now().Add(requestTimeout)) != nil {
		return
	}
	answer := s.answer(r, err)
	if answer.write(c) != nil {
		return // the browser went away
	}
	// What was sent and not read would reset the connection and take the answer
	// from a browser that is still sending.
	if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, in, maxDrain)
	}
}

// serve accepts connections until the listener is closed, a bounded number at a
// time.
func (s *Server) serve(l net.Listener) error {
	for {
		s.slots <- struct{}{}
		c, err := l.Accept()
		if err != nil {
			<-s.slots
			return err
		}
		s.connections.add(c)
		go func() {
			defer func() { <-s.slots }()
			defer s.connections.remove(c)
			s.converse(c)
		}()
	}
}

// shutDown closes the listeners and gives the connections that are left a moment
// to end.
func (s *Server) shutDown() {
	for _, l := range s.listen {
		_ = l.Close() // closed already by a listener that failed
	}
	for range 100 {
		if s.connections.busy() == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.connections.closeAll()
}

// add, remove, busy and closeAll keep count of the connections that are open.
func (o *openConnections) add(c net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, c)
}

func (o *openConnections) remove(c net.Conn) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = slices.DeleteFunc(o.all, func(x net.Conn) bool { return x == c })
}

func (o *openConnections) busy() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

func (o *openConnections) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.all {
		_ = c.Close()
	}
}
