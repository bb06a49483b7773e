package envpage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wallsandbox/wall/envscrub/inject"
	"github.com/wallsandbox/wall/plan"
)

// patience is for a busy machine; nothing here takes that long.
const patience = 2 * time.Minute

func newServer(t *testing.T) *Server {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "wall")
	s, err := Listen(context.Background(), Config{
		Directory: "/srv/\u202eproject", Store: inject.Store{Path: filepath.Join(dir, "injected.json")}, Idle: patience,
		Surfaces: []Surface{{"session", "agent"}, {"gate", "gate"}},
		Preview: func(surface string) (any, error) {
			if surface == "gate" {
				return nil, &plan.Error{Op: "cannot preview", Err: errors.New("a cause"), Hint: "do this"}
			}
			return map[string]string{"surface": surface}, nil
		},
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, l := range s.listen {
			l.Close()
		}
	})
	return s
}

// An ask is one request, as the page would make it unless it says otherwise.
type ask struct {
	method, path, body string
	header             map[string]string // "" removes one
	cookie             string            // "none" leaves it out
}

// A reply is an answer, as a browser reads it.
type reply struct {
	Code   int
	Header http.Header
	Body   string
}

func (s *Server) ask(a ask) reply {
	all := map[string]string{"Host": s.hosts[0], "Sec-Fetch-Site": "same-origin"}
	if a.method == http.MethodPost {
		all["Origin"], all["Content-Type"] = "http://"+s.hosts[0], "application/json"
	}
	if s.header != nil {
		all["X-Wall-Session"] = string(s.header)
	}
	switch {
	case a.cookie == "none" || s.cookie == nil && a.cookie == "":
	case a.cookie != "":
		all["Cookie"] = a.cookie
	default:
		all["Cookie"] = "other=1; " + s.cookieName() + "=" + string(s.cookie)
	}
	if a.body != "" {
		all["Content-Length"] = strconv.Itoa(len(a.body))
	}
	maps.Copy(all, a.header)
	var text strings.Builder
	text.WriteString(a.method + " " + a.path + " HTTP/1.1\r\n")
	for k, v := range all {
		if v != "" {
			text.WriteString(k + ": " + v + "\r\n")
		}
	}
	return s.raw(text.String() + "\r\n" + a.body)
}

// raw answers the text of a request.
func (s *Server) raw(text string) reply {
	r, err := readRequest(bufio.NewReader(strings.NewReader(text)))
	var b bytes.Buffer
	if err := s.answer(r, err).write(&b); err != nil {
		panic(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(&b), nil)
	if err != nil {
		panic(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	return reply{resp.StatusCode, resp.Header, string(body)}
}

func (s *Server) open(t *testing.T) {
	t.Helper()
	if w := s.ask(ask{method: "POST", path: "/api/session", body: `{"token":"` + string(s.token) + `"}`}); w.Code != 200 {
		t.Fatalf("session: %d %s", w.Code, w.Body)
	}
}

func (s *Server) values(t *testing.T) string {
	t.Helper()
	vars, err := s.config.Store.Load()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range vars {
		out = append(out, v.Name+"="+v.Value)
	}
	return strings.Join(out, " ")
}

func TestSession(t *testing.T) {
	s := newServer(t)
	token := string(s.token)
	if !strings.HasSuffix(s.URL(), "/#"+token) || len(token) != 43 {
		t.Errorf("address %s", s.URL())
	}
	for _, wrong := range []string{"", "x", token[1:], token + "x", strings.ToLower(token) + "A"} {
		if w := s.ask(ask{method: "POST", path: "/api/session", body: `{"token":"` + wrong + `"}`}); w.Code != 401 || w.Header.Get("Set-Cookie") != "" {
			t.Errorf("token %q: %d, %v", wrong, w.Code, w.Header)
		}
	}
	// From another page the right token opens nothing, and is not used up.
	if w := s.ask(ask{method: "POST", path: "/api/session", body: `{"token":"` + token + `"}`, header: map[string]string{"Origin": "http://127.0.0.1:1"}}); w.Code != 403 {
		t.Errorf("from another origin: %d", w.Code)
	}
	w := s.ask(ask{method: "POST", path: "/api/session", body: `{"token":"` + token + `"}`})
	var got struct{ Session string }
	if err := json.Unmarshal([]byte(w.Body), &got); w.Code != 200 || err != nil || got.Session != string(s.header) || len(got.Session) != 43 {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	cookie := w.Header.Get("Set-Cookie")
	if want := s.cookieName() + "=" + string(s.cookie) + "; Path=/; HttpOnly; SameSite=Strict"; cookie != want {
		t.Errorf("cookie %q, want %q", cookie, want)
	}
	if strings.Contains(cookie, got.Session) || strings.Contains(w.Body, string(s.cookie)) {
		t.Error("one secret of the session is sent with the other")
	}
	if w := s.ask(ask{method: "POST", path: "/api/session", body: `{"token":"` + token + `"}`}); w.Code != 401 || !strings.Contains(w.Body, "used already") {
		t.Errorf("the token again: %d %s", w.Code, w.Body)
	}
	if w := s.ask(ask{method: "GET", path: "/api/state"}); w.Code != 200 || strings.Contains(w.Body, "\u202e") {
		t.Errorf("state: %d %s", w.Code, w.Body)
	}
}

// TestRefusals: every request that is not the page's own is refused, and changes
// nothing.
func TestRefusals(t *testing.T) {
	s := newServer(t)
	s.open(t)
	if w := s.ask(ask{method: "POST", path: "/api/set", body: `{"name":"KEPT","value":"1","replace":false}`}); w.Code != 200 {
		t.Fatalf("set: %d %s", w.Code, w.Body)
	}
	const unset = `{"name":"KEPT"}`
	port := s.hosts[0][strings.LastIndex(s.hosts[0], ":"):]
	two := s.cookieName() + "=" + string(s.cookie)
	h := func(k, v string) map[string]string { return map[string]string{k: v} }
	for name, c := range map[string]struct {
		a    ask
		want int
	}{
		"no cookie":             {ask{"POST", "/api/unset", unset, nil, "none"}, 401},
		"wrong cookie":          {ask{"POST", "/api/unset", unset, nil, s.cookieName() + "=x"}, 401},
		"two cookies":           {ask{"POST", "/api/unset", unset, nil, two + "; " + two}, 401},
		"other cookie name":     {ask{"POST", "/api/unset", unset, nil, "wall-env-1=" + string(s.cookie)}, 401},
		"no header":             {ask{"POST", "/api/unset", unset, h("X-Wall-Session", ""), ""}, 401},
		"wrong header":          {ask{"POST", "/api/unset", unset, h("X-Wall-Session", string(s.cookie)), ""}, 401},
		"read without header":   {ask{"GET", "/api/variables", "", h("X-Wall-Session", ""), ""}, 401},
		"preview, no cookie":    {ask{"GET", "/api/preview?surface=session", "", nil, "none"}, 401},
		"rebinding":             {ask{"POST", "/api/unset", unset, h("Host", "evil.test"+port), ""}, 421},
		"rebinding, page":       {ask{"GET", "/", "", h("Host", "evil.test"+port), ""}, 421},
		"host without port":     {ask{"GET", "/", "", h("Host", "127.0.0.1"), ""}, 421},
		"localhost":             {ask{"GET", "/", "", h("Host", "localhost"+port), ""}, 421},
		"host with a dot":       {ask{"GET", "/", "", h("Host", "127.0.0.1."+port), ""}, 421},
		"other origin":          {ask{"POST", "/api/unset", unset, h("Origin", "http://127.0.0.1:1"), ""}, 403},
		"origin by name":        {ask{"POST", "/api/unset", unset, h("Origin", "http://localhost"+port), ""}, 403},
		"null origin":           {ask{"POST", "/api/unset", unset, h("Origin", "null"), ""}, 403},
		"no origin":             {ask{"POST", "/api/unset", unset, h("Origin", ""), ""}, 403},
		"other scheme":          {ask{"POST", "/api/unset", unset, h("Origin", "https://"+s.hosts[0]), ""}, 403},
		"read by other origin":  {ask{"GET", "/api/variables", "", h("Origin", "http://127.0.0.1:1"), ""}, 403},
		"cross-site":            {ask{"POST", "/api/unset", unset, h("Sec-Fetch-Site", "cross-site"), ""}, 403},
		"same-site":             {ask{"POST", "/api/unset", unset, h("Sec-Fetch-Site", "same-site"), ""}, 403},
		"read same-site":        {ask{"GET", "/api/variables", "", h("Sec-Fetch-Site", "same-site"), ""}, 403},
		"typed address":         {ask{"GET", "/api/variables", "", h("Sec-Fetch-Site", "none"), ""}, 403},
		"script of another":     {ask{"GET", "/page.js", "", h("Sec-Fetch-Site", "cross-site"), ""}, 403},
		"frame":                 {ask{"GET", "/", "", h("Sec-Fetch-Dest", "iframe"), ""}, 403},
		"GET for a change":      {ask{"GET", "/api/unset", "", nil, ""}, 405},
		"GET for a change, q":   {ask{"GET", "/api/unset?name=KEPT", "", nil, ""}, 405},
		"GET for a value":       {ask{"GET", "/api/value?name=KEPT", "", nil, ""}, 405},
		"GET for a session":     {ask{"GET", "/api/session", "", nil, ""}, 405},
		"PUT":                   {ask{"PUT", "/api/unset", unset, nil, ""}, 405},
		"DELETE":                {ask{"DELETE", "/api/variables", "", nil, ""}, 405},
		"OPTIONS":               {ask{"OPTIONS", "/api/unset", "", nil, ""}, 405},
		"HEAD":                  {ask{"HEAD", "/", "", nil, ""}, 405},
		"POST to the page":      {ask{"POST", "/", "", nil, ""}, 405},
		"POST to a read":        {ask{"POST", "/api/state", "{}", nil, ""}, 405},
		"form type":             {ask{"POST", "/api/unset", unset, h("Content-Type", "text/plain"), ""}, 415},
		"form type with json":   {ask{"POST", "/api/unset", unset, h("Content-Type", "text/plain; application/json"), ""}, 415},
		"no type":               {ask{"POST", "/api/unset", unset, h("Content-Type", ""), ""}, 415},
		"body of a GET":         {ask{"GET", "/api/state", "x", nil, ""}, 413},
		"large body":            {ask{"POST", "/api/set", `{"name":"A","value":"` + strings.Repeat("x", maxBody) + `"}`, nil, ""}, 413},
		"no JSON":               {ask{"POST", "/api/unset", `name=KEPT`, nil, ""}, 400},
		"head too large":        {ask{"GET", "/", "", h("X", strings.Repeat("x", maxHead)), ""}, 431},
		"two values":            {ask{"POST", "/api/unset", unset + unset, nil, ""}, 400},
		"unknown member":        {ask{"POST", "/api/unset", `{"name":"KEPT","x":1}`, nil, ""}, 400},
		"not UTF-8":             {ask{"POST", "/api/set", "{\"name\":\"A\",\"value\":\"\xff\"}", nil, ""}, 400},
		"half a character":      {ask{"POST", "/api/set", `{"name":"A","value":"a\ud800b"}`, nil, ""}, 422},
		"no such surface":       {ask{"GET", "/api/preview?surface=x", "", nil, ""}, 400},
		"no surface":            {ask{"GET", "/api/preview", "", nil, ""}, 400},
		"no such page":          {ask{"GET", "/index.html", "", nil, ""}, 404},
		"no such call":          {ask{"POST", "/api/none", "{}", nil, ""}, 404},
		"dots":                  {ask{"GET", "/../page/page.js", "", nil, ""}, 404},
		"double slash":          {ask{"GET", "//page.js", "", nil, ""}, 404},
		"value of no variable":  {ask{"POST", "/api/value", `{"name":"NONE"}`, nil, ""}, 404},
		"add what is there":     {ask{"POST", "/api/set", `{"name":"KEPT","value":"2","replace":false}`, nil, ""}, 409},
		"name with a space":     {ask{"POST", "/api/set", `{"name":"A B","value":"2","replace":true}`, nil, ""}, 422},
		"empty name":            {ask{"POST", "/api/set", `{"name":"","value":"2","replace":true}`, nil, ""}, 422},
		"NUL in a name":         {ask{"POST", "/api/set", `{"name":"A\u0000","value":"2","replace":true}`, nil, ""}, 422},
		"NUL in a value":        {ask{"POST", "/api/set", `{"name":"A","value":"a\u0000b","replace":true}`, nil, ""}, 422},
		"a value of 1 MB":       {ask{"POST", "/api/set", `{"name":"A","value":"` + strings.Repeat("x", 1<<20) + `"}`, nil, ""}, 422},
		"HOME":                  {ask{"POST", "/api/set", `{"name":"HOME","value":"2","replace":true}`, nil, ""}, 422},
		"unset of no name":      {ask{"POST", "/api/unset", `{"name":"A B"}`, nil, ""}, 422},
		"preview that fails":    {ask{"GET", "/api/preview?surface=gate", "", nil, ""}, 422},
		"end from elsewhere":    {ask{"POST", "/api/end", "{}", h("Origin", "http://127.0.0.1:1"), ""}, 403},
		"end without a session": {ask{"POST", "/api/end", "{}", nil, "none"}, 401},
	} {
		w := s.ask(c.a)
		if w.Code != c.want {
			t.Errorf("%s: status %d, want %d: %.200s", name, w.Code, c.want, w.Body)
		}
		checkHeaders(t, name, w)
		if w.Code == 405 && w.Header.Get("Allow") == "" {
			t.Errorf("%s: no Allow", name)
		}
		var e struct{ Error string }
		if err := json.Unmarshal([]byte(w.Body), &e); err != nil || e.Error == "" || w.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v, %.200s", name, err, w.Body)
		}
	}
	if got := s.values(t); got != "KEPT=1" {
		t.Errorf("stored: %s", got)
	}
	select {
	case why := <-s.end:
		t.Errorf("it ended: %s", why)
	default:
	}
	if w := s.ask(ask{method: "GET", path: "/api/preview?surface=gate"}); !strings.Contains(w.Body, `"cannot preview: a cause\n  hint: do this"`) {
		t.Errorf("%s", w.Body)
	}
}

// checkHeaders: every answer has them.
func checkHeaders(t *testing.T, name string, w reply) {
	t.Helper()
	for k, want := range map[string]string{
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := w.Header.Get(k); got != want {
			t.Errorf("%s: %s is %q", name, k, got)
		}
	}
	csp := w.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'", "require-trusted-types-for 'script'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("%s: the policy lacks %s", name, want)
		}
	}
	for _, bad := range []string{"unsafe", "*", "http:", "data:"} {
		if strings.Contains(csp, bad) {
			t.Errorf("%s: the policy has %s", name, bad)
		}
	}
	for k := range w.Header {
		if strings.HasPrefix(k, "Access-Control-") {
			t.Errorf("%s: %s", name, k)
		}
	}
}

func TestStatic(t *testing.T) {
	s := newServer(t)
	for path, f := range files {
		for _, site := range []string{"", "same-origin", "none"} {
			w := s.ask(ask{method: "GET", path: path, header: map[string]string{"Sec-Fetch-Site": site}})
			if w.Code != 200 || w.Header.Get("Content-Type") != f[1] || w.Body == "" {
				t.Errorf("%s: %d, %v", path, w.Code, w.Header)
			}
			checkHeaders(t, path, w)
		}
	}
	// A link to the page may stand anywhere.
	if w := s.ask(ask{method: "GET", path: "/", header: map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}}); w.Code != 200 {
		t.Errorf("a link: %d", w.Code)
	}
	// Nothing that the policy would not let run, and nothing from elsewhere.
	for _, f := range files {
		data, err := page.ReadFile(f[0])
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", "")
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", "onclick", "onerror", "http://", "https://", "<style", "javascript:"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s", f[0], bad)
			}
		}
	}
}

func TestEdit(t *testing.T) {
	s := newServer(t)
	s.open(t)
	do := func(method, path, body, want string) {
		t.Helper()
		w := s.ask(ask{method: method, path: path, body: body})
		if w.Code != 200 || w.Body != want {
			t.Errorf("%s %s: %d %s, want %s", path, body, w.Code, w.Body, want)
		}
		checkHeaders(t, path, w)
	}
	do("GET", "/api/variables", "", `{"names":[]}`)
	do("POST", "/api/set", `{"name":"B","value":"<b>\n","replace":false}`, `{"caution":""}`)
	do("POST", "/api/set", `{"name":"A","value":"","replace":false}`, `{"caution":""}`)
	do("GET", "/api/variables", "", `{"names":["A","B"]}`)
	do("POST", "/api/value", `{"name":"B"}`, `{"text":"\u003cb\u003e\n"}`)
	do("POST", "/api/set", `{"name":"B","value":"2","replace":true}`, `{"caution":""}`)
	if got := s.values(t); got != "A= B=2" {
		t.Errorf("stored: %s", got)
	}
	do("POST", "/api/unset", `{"name":"A"}`, `{"names":["B"]}`)
	do("POST", "/api/unset", `{"name":"A"}`, `{"names":["B"]}`)
	do("GET", "/api/preview?surface=session", "", `{"surface":"session"}`)
	if w := s.ask(ask{method: "POST", path: "/api/set", body: `{"name":"LD_PRELOAD","value":"x","replace":false}`}); w.Code != 200 || !strings.Contains(w.Body, "LD_PRELOAD makes programs load") {
		t.Errorf("%s", w.Body)
	}
	if _, err := s.config.Store.Set(context.Background(), []inject.Var{{Name: "RAW", Value: "\xff\x00"[:1]}}); err != nil {
		t.Fatal(err)
	}
	do("POST", "/api/value", `{"name":"RAW"}`, `{"bytes":1}`)

	// A damaged store is an error everywhere, never an empty list, and is left as it is.
	const broken = "{ secret-in-a-broken-file"
	if err := os.WriteFile(s.config.Store.Path, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{"/api/variables": "", "/api/value": `{"name":"B"}`, "/api/set": `{"name":"C","value":"1"}`, "/api/unset": `{"name":"B"}`} {
		method := "POST"
		if body == "" {
			method = "GET"
		}
		w := s.ask(ask{method: method, path: path, body: body})
		if w.Code != 422 || !strings.Contains(w.Body, "wall env restore") || strings.Contains(w.Body, "secret") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if data, err := os.ReadFile(s.config.Store.Path); err != nil || string(data) != broken {
		t.Errorf("%q, %v", data, err)
	}
}

// TestServe talks to the real server.
func TestServe(t *testing.T) {
	s := newServer(t)
	ended := make(chan string, 1)
	go func() {
		why, err := s.Serve(context.Background())
		if err != nil {
			why = err.Error()
		}
		ended <- why
	}()
	base, token, _ := strings.Cut(s.URL(), "/#")
	for _, host := range s.hosts {
		resp, err := http.Get("http://" + host + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), "<!doctype html>") {
			t.Errorf("%s: %d, %v", host, resp.StatusCode, err)
		}
	}
	post := func(path, body, session string, cookies []*http.Cookie) *http.Response {
		t.Helper()
		r, err := http.NewRequest("POST", base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", base)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Wall-Session", session)
		for _, c := range cookies {
			r.AddCookie(c)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	resp := post("/api/session", `{"token":"`+token+`"}`, "", nil)
	var got struct{ Session string }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if resp := post("/api/end", "{}", got.Session, resp.Cookies()); resp.StatusCode != 200 {
		t.Errorf("end: %d", resp.StatusCode)
	}
	select {
	case why := <-ended:
		if why != "it was ended in the browser" {
			t.Errorf("ended: %s", why)
		}
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if _, err := http.Get(base + "/"); err == nil {
		t.Error("it still answers")
	}
}

// TestServeEnds: by time and by its context.
func TestServeEnds(t *testing.T) {
	s := newServer(t)
	s.config.Idle = 10 * time.Millisecond
	if why, err := s.Serve(context.Background()); err != nil || why != "nobody used it for 10ms" {
		t.Errorf("idle: %q, %v", why, err)
	}
	s = newServer(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if why, err := s.Serve(ctx); err != nil || why != "" {
		t.Errorf("done: %q, %v", why, err)
	}
}

// TestIdleIsTheOperators: requests of strangers do not keep the page alive.
func TestIdleIsTheOperators(t *testing.T) {
	s := newServer(t)
	s.config.Idle = 500 * time.Millisecond
	ended := make(chan string, 1)
	go func() {
		why, err := s.Serve(context.Background())
		if err != nil {
			why = err.Error()
		}
		ended <- why
	}()
	deadline := time.After(patience)
	for {
		select {
		case why := <-ended:
			if why != "nobody used it for 500ms" {
				t.Errorf("ended: %s", why)
			}
			return
		case <-deadline:
			t.Fatal("requests of strangers keep it alive")
		case <-time.After(20 * time.Millisecond):
			if resp, err := http.Get("http://" + s.hosts[0] + "/api/state"); err == nil {
				resp.Body.Close()
			}
		}
	}
}

func TestListen(t *testing.T) {
	s := newServer(t)
	if _, err := Listen(context.Background(), Config{}, s.port); err == nil {
		t.Error("a port that is taken is taken again")
	}
	for _, l := range s.listen {
		if !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
			t.Errorf("it listens on %s", l.Addr())
		}
	}
	if a, b := newServer(t), newServer(t); string(a.token) == string(b.token) || a.URL() == b.URL() {
		t.Error("two servers have one token")
	}
}

// TestLimited: so many connections at a time and no more.
func TestLimited(t *testing.T) {
	s := newServer(t)
	s.slots = make(chan struct{}, 2)
	go func() { _ = s.serve(s.listen[0]) }() // until the end of the test
	dial := func(text string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp4", s.hosts[0])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := io.WriteString(c, text); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := dial("GET / HT")
	dial("")
	for s.connections.busy() < 2 {
		time.Sleep(time.Millisecond)
	}
	third := dial("GET / HTTP/1.1\r\nHost: " + s.hosts[0] + "\r\n\r\n")
	if err := third.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := third.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a third connection is answered: %v", err)
	}
	first.Close()
	if err := third.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(third); err != nil || !strings.HasPrefix(string(data), "HTTP/1.1 200 OK\r\n") {
		t.Errorf("%.100q, %v", data, err)
	}
}

// TestUnreadBody: a browser that sends much gets the answer, and no reset.
func TestUnreadBody(t *testing.T) {
	s := newServer(t)
	go func() { _ = s.serve(s.listen[0]) }() // until the end of the test
	r, err := http.NewRequest("POST", "http://"+s.hosts[0]+"/api/set", strings.NewReader(strings.Repeat("x", 3<<20)))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 403 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// Browsers leave out port 80, in Host and in Origin, and it is not in the address then.
func TestHostField(t *testing.T) {
	for _, port := range []int{1, 80, 8080} {
		for _, address := range []string{"127.0.0.1", "::1"} {
			r, err := http.NewRequest("GET", "http://"+net.JoinHostPort(address, strconv.Itoa(port))+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			want := r.URL.Host
			if port == 80 {
				want = strings.TrimSuffix(want, ":80")
			}
			if got := hostField(address, port); got != want {
				t.Errorf("port %d: %q, want %q", port, got, want)
			}
		}
	}
}
