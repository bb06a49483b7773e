// Package envpage serves the settings page of "wall env ui" to one person on this
// machine: the preview of the environment for each surface, and the stored
// variables, which it changes.
//
// The page is static (directory page, embedded) and holds nothing worth reading;
// what is worth reading goes through a JSON API that only the page can use.
//
//   - It listens on loopback addresses only. Other users of the machine can connect
//     all the same, and so can web pages in the operator's browser; neither gets
//     further than the static page.
//   - A random token, in the fragment of the address that wall prints, opens one
//     session and is void then. Browsers do not send fragments, so that it is in no
//     request line, no Referer and no log; it is in no argument list either.
//   - A session is a cookie (HttpOnly, SameSite=Strict) together with a second
//     secret that the page keeps for its origin and sends in a header. Cookies do not
//     know ports: another user's server on another port of the same address is sent
//     the cookie when the operator goes there, but never the header.
//   - The Host header must be exactly the address that is listened on, so that a name
//     that an attacker points at this machine (DNS rebinding) is refused. Origin and
//     Sec-Fetch-Site must be the page's own. Only POST changes anything, and only
//     with a body of type application/json, which no form of another site can send.
//   - No markup is made of data: the page sets text only, and its content security
//     policy forbids everything that it does not use.
//
// Values of the caller's environment are never sent. Stored values are sent when
// the operator asks for one.
//
// What it does not promise: whoever can read the memory of wall or of the browser
// (the same user, root) has everything anyway; and another user who connects again
// and again can keep the page from being answered.
package envpage

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/wallsandbox/wall/envscrub/inject"
	"github.com/wallsandbox/wall/plan"
)

// Config is what a server shows and changes.
type Config struct {
	Directory string    // in which the preview is made, for people
	Surfaces  []Surface // in the order of the tabs; at least one
	// Preview gives what is shown for a surface, to be written as JSON. It is
	// called once for each look, from several goroutines at a time.
	Preview func(surface string) (any, error)
	Store   inject.Store
	Idle    time.Duration // after that long without a request of the session the server ends
}

// A Surface is one tab.
type Surface struct {
	Name    string `json:"name"` // letters only
	Profile string `json:"profile"`
}

// Limits of one connection. Everything is on this machine and small.
const (
	maxBody        = 2 << 20 // JSON writes a byte as six at most, and a value has at most 128 KiB
	maxDrain       = 8 << 20
	maxConnections = 64
	headTimeout    = 10 * time.Second
	requestTimeout = 30 * time.Second // also longer than an edit waits for another one
)

// sessionField is the field of a request that carries the second secret of a
// session, X-Wall-Session.
const sessionField = "x-wall-session"

// A Server is one page, from Listen until it ends.
type Server struct {
	config Config
	port   int
	hosts  []string // values of the Host header that are the page's
	listen []net.Listener
	end    chan string // why the server ends
	idle   *time.Timer
	slots  chan struct{} // taken by the connections

	connections openConnections

	mu     sync.Mutex
	token  []byte // nil when it was used
	cookie []byte // nil before the session
	header []byte
}

// openConnections are those that are answered now.
type openConnections struct {
	mu  sync.Mutex
	all []net.Conn
}

// Listen takes a port on the loopback addresses, a free one when port is 0. From
// then on the address is valid; Serve answers.
func Listen(ctx context.Context, config Config, port int) (*Server, error) {
	s := &Server{config: config, end: make(chan string, 1), slots: make(chan struct{}, maxConnections), token: []byte(secret())}
	var err error
	for range 20 {
		if err = s.bind(ctx, port); err == nil || port != 0 {
			break
		}
	}
	return s, err
}

// bind listens on 127.0.0.1 and, where there is IPv6, on the same port of ::1, so
// that nobody else answers to whoever types "localhost".
func (s *Server) bind(ctx context.Context, port int) error {
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	four, err := config.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	s.port = four.Addr().(*net.TCPAddr).Port
	s.listen = []net.Listener{four}
	s.hosts = []string{hostField("127.0.0.1", s.port)}
	six, err := config.Listen(ctx, "tcp6", net.JoinHostPort("::1", strconv.Itoa(s.port)))
	switch {
	case err == nil:
		s.listen = append(s.listen, six)
		s.hosts = append(s.hosts, hostField("::1", s.port))
	case errors.Is(err, syscall.EADDRINUSE):
		return errors.Join(err, four.Close())
	}
	return nil // without IPv6 nobody can answer there either
}

// hostField is what a browser sends as Host: it leaves out the port of the scheme.
func hostField(address string, port int) string {
	if port == 80 {
		return strings.TrimSuffix(net.JoinHostPort(address, ""), ":")
	}
	return net.JoinHostPort(address, strconv.Itoa(port))
}

// URL is the address that opens the page, once.
func (s *Server) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "http://" + s.hosts[0] + "/#" + string(s.token)
}

// Serve answers until ctx is done, the operator ends the page, or nothing was asked
// for longer than Config.Idle. It tells why it ended: "" for ctx.
func (s *Server) Serve(ctx context.Context) (why string, err error) {
	s.mu.Lock()
	s.idle = time.AfterFunc(s.config.Idle, func() { s.stop("nobody used it for " + strings.TrimSuffix(s.config.Idle.String(), "0s")) })
	s.mu.Unlock()
	defer s.idle.Stop()
	failed := make(chan error, len(s.listen))
	for _, l := range s.listen {
		go func() { failed <- s.serve(l) }()
	}
	select {
	case <-ctx.Done():
	case why = <-s.end:
	case err = <-failed:
	}
	s.shutDown()
	return why, err
}

func (s *Server) stop(why string) {
	select {
	case s.end <- why:
	default: // it ends already
	}
}

//go:embed page
var page embed.FS

// files are the static parts: path to file and type.
var files = map[string][2]string{
	"/":         {"page/index.html", "text/html; charset=utf-8"},
	"/page.css": {"page/page.css", "text/css; charset=utf-8"},
	"/page.js":  {"page/page.js", "text/javascript; charset=utf-8"},
	"/icon.svg": {"page/icon.svg", "image/svg+xml"},
}

// An endpoint is one call of the API. Its function gets the body of the request,
// and gives what is answered as JSON.
type endpoint struct {
	method string
	open   bool // needs no session
	call   func(s *Server, r *request, body []byte, w *response) (any, error)
}

var endpoints = map[string]endpoint{
	"/api/session":   {"POST", true, (*Server).openSession},
	"/api/state":     {"GET", false, (*Server).state},
	"/api/preview":   {"GET", false, (*Server).preview},
	"/api/variables": {"GET", false, (*Server).variables},
	"/api/value":     {"POST", false, (*Server).value},
	"/api/set":       {"POST", false, (*Server).set},
	"/api/unset":     {"POST", false, (*Server).unset},
	"/api/end":       {"POST", false, (*Server).finish},
}

// policy forbids the page everything but its own script, style and icon and calls
// to its own origin; and to be shown inside of another.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// A refusal is an answer with a status other than 200.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// headers are part of every answer.
var headers = [][2]string{
	{"Content-Security-Policy", policy},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
	{"Referrer-Policy", "no-referrer"},
	{"Cache-Control", "no-store"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"},
}

// answer gives the answer to a request, or to what was none, of which r is nil and
// err says why.
func (s *Server) answer(r *request, err error) *response {
	w := &response{status: statusOK, fields: slices.Clone(headers)}
	if err == nil {
		err = s.dispatch(r, w)
	}
	if err == nil {
		return w
	}
	status, text := statusUnprocessable, "" // the request is good, and cannot be done
	var no *refusal
	if errors.As(err, &no) {
		status, text = no.status, no.text
	} else {
		text = message(err)
	}
	w.json(status, map[string]string{"error": text})
	return w
}

func (s *Server) dispatch(r *request, w *response) error {
	if !slices.Contains(s.hosts, r.host) {
		return &refusal{statusMisdirected, "there is no such host here"}
	}
	if f, ok := files[r.path]; ok {
		if err := static(r, w); err != nil {
			return err
		}
		data, err := page.ReadFile(f[0])
		if err != nil {
			return err
		}
		w.set("Content-Type", f[1])
		w.body = data
		return nil
	}
	e, ok := endpoints[r.path]
	if !ok {
		return &refusal{statusNotFound, "there is no such page"}
	}
	if r.method != e.method {
		w.set("Allow", e.method)
		return &refusal{statusMethod, "the method must be " + e.method}
	}
	if err := ownPage(r); err != nil {
		return err
	}
	if !e.open {
		if err := s.inSession(r); err != nil {
			return err
		}
	}
	most := int64(maxBody)
	if r.method == "GET" {
		most = 0
	} else if kind, _ := r.field("content-type"); !isJSON(kind) {
		return &refusal{statusMediaType, "the type must be application/json"}
	}
	body, err := r.readBody(most)
	if err != nil {
		return err
	}
	answer, err := e.call(s, r, body, w)
	if err != nil {
		return err
	}
	w.json(statusOK, answer)
	return nil
}

// isJSON reports whether a media type is JSON's, with parameters or without.
func isJSON(kind string) bool {
	kind, _, _ = strings.Cut(kind, ";")
	return strings.EqualFold(strings.Trim(kind, " \t"), "application/json")
}

// static lets the static files be fetched by their own page, and the page be
// opened in a window, from anywhere.
func static(r *request, w *response) error {
	if r.method != "GET" {
		w.set("Allow", "GET")
		return &refusal{statusMethod, "the method must be GET"}
	}
	refused := &refusal{statusForbidden, "another page asks"}
	for _, dest := range r.fields["sec-fetch-dest"] {
		if r.path == "/" && dest != "document" {
			return refused
		}
	}
	for _, site := range r.fields["sec-fetch-site"] {
		if r.path != "/" && site != "same-origin" && site != "none" {
			return refused
		}
	}
	if r.length != 0 {
		return &refusal{statusTooLarge, "the request has a body"}
	}
	return nil
}

// ownPage refuses what another page asked for. Every browser sends Origin with a
// POST, and those of the last years Sec-Fetch-Site with everything.
func ownPage(r *request) error {
	refused := &refusal{statusForbidden, "another page asks"}
	origin := r.fields["origin"]
	if len(origin) > 1 || len(origin) == 1 && origin[0] != "http://"+r.host || len(origin) == 0 && r.method != "GET" {
		return refused
	}
	for _, site := range r.fields["sec-fetch-site"] {
		if site != "same-origin" {
			return refused
		}
	}
	return nil
}

// cookieName has the port in it: two servers of one address share their cookies.
func (s *Server) cookieName() string { return "wall-env-" + strconv.Itoa(s.port) }

// inSession checks both secrets of the session, in constant time.
func (s *Server) inSession(r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cookies := r.cookies(s.cookieName())
	header, one := r.field(sessionField)
	if s.cookie == nil || len(cookies) != 1 || !one ||
		subtle.ConstantTimeCompare([]byte(cookies[0]), s.cookie)&subtle.ConstantTimeCompare([]byte(header), s.header) != 1 {
		return &refusal{statusUnauthorized, "This page has no session any more. Start \"wall env ui\" again."}
	}
	if s.idle != nil {
		s.idle.Reset(s.config.Idle)
	}
	return nil
}

// decode reads one JSON object into v, strictly. The error holds nothing of it.
func decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one value")
		}
	}
	if err != nil || !utf8.Valid(body) {
		return &refusal{statusBadRequest, "the request is not as the page sends it"}
	}
	// Browsers escape nothing else that way. It would become another text in silence.
	if inject.HasSurrogate(body) {
		return &refusal{statusUnprocessable, "The text holds half of a character (a lone surrogate), which cannot be stored."}
	}
	return nil
}

// openSession takes the token for a session. There is one session: whoever has
// the token first has it.
func (s *Server) openSession(_ *request, body []byte, w *response) (any, error) {
	var in struct {
		Token string `json:"token"`
	}
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == nil {
		return nil, &refusal{statusUnauthorized, "This address was used already; it works once. Start \"wall env ui\" again."}
	}
	if subtle.ConstantTimeCompare([]byte(in.Token), s.token) != 1 {
		return nil, &refusal{statusUnauthorized, "This address is not the one that \"wall env ui\" printed."}
	}
	s.token, s.cookie, s.header = nil, []byte(secret()), []byte(secret())
	if s.idle != nil {
		s.idle.Reset(s.config.Idle)
	}
	w.set("Set-Cookie", s.cookieName()+"="+string(s.cookie)+"; Path=/; HttpOnly; SameSite=Strict")
	return map[string]string{"session": string(s.header)}, nil
}

func (s *Server) state(*request, []byte, *response) (any, error) {
	return struct {
		Directory string    `json:"directory"`
		File      string    `json:"file"`
		Surfaces  []Surface `json:"surfaces"`
	}{plan.Printable(s.config.Directory), plan.Printable(s.config.Store.Path), s.config.Surfaces}, nil
}

func (s *Server) preview(r *request, _ []byte, _ *response) (any, error) {
	name, _ := strings.CutPrefix(r.query, "surface=") // names of surfaces are letters
	if !slices.ContainsFunc(s.config.Surfaces, func(x Surface) bool { return x.Name == name }) {
		return nil, &refusal{statusBadRequest, "there is no such surface"}
	}
	return s.config.Preview(name)
}

func (s *Server) variables(*request, []byte, *response) (any, error) {
	vars, err := s.config.Store.Load()
	if err != nil {
		return nil, err
	}
	return namesOf(vars), nil
}

func namesOf(vars []inject.Var) map[string][]string {
	names := []string{}
	for _, v := range vars {
		names = append(names, v.Name)
	}
	return map[string][]string{"names": names}
}

// A named request is about one variable.
type named struct {
	Name string `json:"name"`
}

// value gives one stored value: "text", or for one that is not UTF-8 the number of
// its "bytes".
func (s *Server) value(_ *request, body []byte, _ *response) (any, error) {
	var in named
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	vars, err := s.config.Store.Load()
	if err != nil {
		return nil, err
	}
	for _, v := range vars {
		switch {
		case v.Name != in.Name:
		case utf8.ValidString(v.Value):
			return map[string]string{"text": v.Value}, nil
		default:
			return map[string]int{"bytes": len(v.Value)}, nil
		}
	}
	return nil, &refusal{statusNotFound, "This variable is not stored any more."}
}

func (s *Server) set(_ *request, body []byte, _ *response) (any, error) {
	var in struct {
		Name    string `json:"name"`
		Value   string `json:"value"`
		Replace bool   `json:"replace"` // else a variable of that name must not be stored yet
	}
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	v := inject.Var{Name: in.Name, Value: in.Value}
	if err := inject.Check(v); err != nil {
		return nil, err
	}
	_, err := s.config.Store.Edit(context.Background(), func(vars []inject.Var) ([]inject.Var, error) {
		i := slices.IndexFunc(vars, func(x inject.Var) bool { return x.Name == v.Name })
		switch {
		case i < 0:
			return append(vars, v), nil
		case !in.Replace:
			return nil, &refusal{statusConflict, v.Name + " is stored already: change it in the list above."}
		}
		vars[i] = v
		return vars, nil
	})
	if err != nil {
		return nil, err
	}
	return map[string]string{"caution": inject.Caution(v.Name)}, nil
}

func (s *Server) unset(_ *request, body []byte, _ *response) (any, error) {
	var in named
	if err := decode(body, &in); err != nil {
		return nil, err
	}
	vars, err := s.config.Store.Unset(context.Background(), []string{in.Name})
	if err != nil {
		return nil, err
	}
	return namesOf(vars), nil
}

func (s *Server) finish(_ *request, body []byte, _ *response) (any, error) {
	if err := decode(body, &struct{}{}); err != nil {
		return nil, err
	}
	s.stop("it was ended in the browser")
	return struct{}{}, nil
}

// message is an error for a person, with its places and hints, in lines.
func message(err error) string {
	var b strings.Builder
	for line := range strings.Lines(plan.Explain(err)) {
		b.WriteString(strings.TrimPrefix(line, "error: "))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// json answers with v.
func (r *response) json(status int, v any) {
	data, err := json.Marshal(v)
	if err != nil { // nothing that is answered can do that
		status, data = statusInternal, []byte(`{"error":"wall bug: the answer is no JSON"}`)
	}
	r.set("Content-Type", "application/json")
	r.status, r.body = status, data
}

// secret gives 256 random bits as text.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}
