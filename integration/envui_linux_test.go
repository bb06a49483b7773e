package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A settingsPage is a running "wall env ui".
type settingsPage struct {
	t     *testing.T
	url   string // as printed, with the token
	base  string // without: "http://127.0.0.1:PORT"
	cmd   *exec.Cmd
	ended chan error
	ws    string // where it was started
	env   []string
	errs  *lockedBuffer
}

// lockedBuffer collects what a running process says.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startPage starts "wall env ui" with these variables on top of a small environment,
// and a store of its own.
func startPage(t *testing.T, vars ...string) *settingsPage {
	t.Helper()
	need(t, "userns", "landlock", "seccomp")
	dir := tempDir(t)
	p := &settingsPage{t: t, ws: filepath.Join(dir, "ws"), ended: make(chan error, 1), errs: new(lockedBuffer)}
	for _, d := range []string{p.ws, filepath.Join(dir, "config")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.env = append([]string{"PATH=/usr/bin:/bin", "LANG=C", "XDG_CONFIG_HOME=" + filepath.Join(dir, "config")}, vars...)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	p.cmd = exec.CommandContext(ctx, wallBin, "env", "ui")
	p.cmd.Dir, p.cmd.Env, p.cmd.Stderr = p.ws, p.env, p.errs
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v\n%s", err, p.errs)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	p.url = strings.TrimSuffix(line, "\n")
	base, token, ok := strings.Cut(p.url, "/#")
	if !ok || len(token) < 40 || !strings.HasPrefix(base, "http://127.0.0.1:") {
		t.Fatalf("address %q", p.url)
	}
	p.base = base
	return p
}

// wall runs wall beside the page: same workspace, same environment.
func (p *settingsPage) wall(args ...string) result {
	p.t.Helper()
	cmd := exec.Command(wallBin, args...)
	cmd.Dir, cmd.Env = p.ws, p.env
	return finish(p.t, cmd)
}

// end waits for the end of the page.
func (p *settingsPage) end() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err
		return err
	case <-time.After(browserPatience):
		p.t.Fatal("the page does not end")
		return nil
	}
}

// TestPage: a person sees the preview of every surface and edits the stored
// variables in a browser, and the next run sees it.
func TestPage(t *testing.T) {
	const secret = "sentinel-value-of-the-caller"
	p := startPage(t, "EDITOR="+secret, "API_TOKEN="+secret, "TERM=dumb")
	tab := startChromium(t).open(p.url)
	tab.wait(`!document.getElementById('app').hidden && document.querySelectorAll('.group').length > 0`)

	// The token is not left in the address, and what is printed elsewhere of it.
	if got := tab.eval(`location.href`); got != p.base+"/" {
		t.Errorf("the address is %s", got)
	}
	// What the page says is what the command line says.
	tabs := tab.eval(`[...document.querySelectorAll('[role=tab]')].map(t => t.textContent).join()`)
	if tabs != "session,contract,gate,shell,terminal" {
		t.Errorf("tabs %s", tabs)
	}
	for _, surface := range strings.Split(tabs, ",") {
		tab.eval(`document.getElementById('tab-` + surface + `').click()`)
		var want struct {
			Profile   string
			Caller    struct{ Total, Passes int }
			Variables []struct{ Name string }
			Dropped   []struct{ Name string }
		}
		if err := json.Unmarshal([]byte(p.wall("env", "--surface", surface, "--json").ok(t)), &want); err != nil {
			t.Fatal(err)
		}
		tab.wait(`document.getElementById('summary').textContent.startsWith('Profile ` + want.Profile + `, ')`)
		if got, want := tab.eval(`document.getElementById('summary').textContent`), fmt.Sprintf("%d of %d variables of the caller pass", want.Caller.Passes, want.Caller.Total); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", surface, got, want)
		}
		shown := strings.Fields(tab.eval(`[...document.querySelectorAll('.group tbody th')].map(t => t.textContent).join(' ')`))
		if len(shown) != len(want.Variables)+len(want.Dropped) {
			t.Errorf("%s: %d names shown, want %d and %d", surface, len(shown), len(want.Variables), len(want.Dropped))
		}
	}
	if body := tab.eval(`document.documentElement.outerHTML`); strings.Contains(body, secret) || strings.Contains(body, p.ws+"/#") {
		t.Error("the page holds a value of the caller's environment")
	}

	// Add a variable by keyboard alone, and see it in the next run.
	tab.eval(`document.getElementById('edit-name').focus()`)
	tab.text("PAGE_NAME")
	tab.key("Tab", 9)
	if got := tab.eval(`document.activeElement.id`); got != "edit-value" {
		t.Errorf("Tab leads from the name to %q", got)
	}
	tab.text("one two\nthree")
	tab.key("Tab", 9)
	tab.enter()
	tab.wait(`document.querySelector('#stored-rows th')?.textContent === 'PAGE_NAME'`)
	if got := p.wall("run", "--", "/bin/sh", "-c", `echo "$PAGE_NAME"`).ok(t); got != "one two\nthree\n" {
		t.Errorf("the run sees %q", got)
	}
	tab.eval(`document.getElementById('tab-session').click()`)
	tab.wait(`[...document.querySelectorAll('.group')].some(g => g.textContent.startsWith('Injected') && g.textContent.includes('PAGE_NAME'))`)
	tab.picture("light", false)

	// The value is shown when asked for, and only then.
	if body := tab.eval(`document.documentElement.outerHTML`); strings.Contains(body, "one two") {
		t.Error("the value is shown unasked")
	}
	tab.eval(`document.querySelector('[aria-label="Show the value of PAGE_NAME"]').click()`)
	tab.wait(`document.querySelector('#stored-rows .value').textContent === 'one two\nthree'`)
	tab.picture("dark", true)
	tab.eval(`document.querySelector('[aria-label="Hide the value of PAGE_NAME"]').click()`)
	if got := tab.eval(`document.querySelector('#stored-rows .value').textContent`); strings.Contains(got, "one") {
		t.Errorf("hidden, it is still %q", got)
	}

	// A name that is stored already is not overwritten unasked; Change does it.
	tab.eval(`document.getElementById('edit-name').focus()`)
	tab.text("PAGE_NAME")
	tab.eval(`document.getElementById('edit-save').click()`)
	tab.wait(`document.getElementById('edit-error').textContent.includes('is stored already')`)
	tab.eval(`document.querySelector('[aria-label="Change PAGE_NAME"]').click()`)
	tab.wait(`document.activeElement.id === 'edit-value'`)
	tab.text("four")
	tab.eval(`document.getElementById('edit-save').click()`)
	tab.wait(`document.getElementById('edit-title').textContent === 'Add a variable'`)
	if got := p.wall("run", "--", "/bin/sh", "-c", `echo "$PAGE_NAME"`).ok(t); got != "four\n" {
		t.Errorf("after the change the run sees %q", got)
	}

	// What cannot be stored is told.
	for _, name := range []string{"A B", "1A", "HOME"} {
		tab.eval(`document.getElementById('edit-name').value = ''; document.getElementById('edit-name').focus()`)
		tab.text(name)
		tab.eval(`document.getElementById('edit-save').click()`)
		tab.wait(`document.getElementById('edit-error').textContent.startsWith('cannot store') && document.getElementById('edit-error').textContent.includes(` + strconv.Quote(name) + `)`)
	}

	// A reload keeps the session; a variable that another wall stored is there.
	p.wall("env", "set", "OTHER=1").ok(t)
	tab.visit(p.base + "/")
	tab.wait(`document.querySelectorAll('#stored-rows tr').length === 2`)

	// Removed, it is gone.
	tab.eval(`document.querySelector('[aria-label="Remove PAGE_NAME"]').click()`)
	tab.wait(`document.querySelectorAll('#stored-rows tr').length === 1`)
	if got := p.wall("run", "--", "/bin/sh", "-c", `echo "${PAGE_NAME-gone}"`).ok(t); got != "gone\n" {
		t.Errorf("after the removal the run sees %q", got)
	}

	// A store that is damaged is told, and not taken for an empty one.
	file := strings.TrimPrefix(p.env[2], "XDG_CONFIG_HOME=") + "/wall/injected.json"
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	tab.visit(p.base + "/")
	tab.wait(`document.getElementById('stored-error').textContent.includes('wall env restore') && document.getElementById('stored-empty').hidden`)
	tab.wait(`document.getElementById('preview-error').textContent.includes('cannot use the stored variables')`)
	p.wall("env", "restore").ok(t)

	// The button ends it.
	tab.eval(`document.getElementById('end').click()`)
	tab.wait(`document.getElementById('closed').textContent.includes('has ended')`)
	if err := p.end(); err != nil || !strings.Contains(p.errs.String(), "it was ended in the browser") {
		t.Errorf("the end: %v\n%s", err, p.errs)
	}
	for _, s := range tab.said() {
		// Answers that say no are logged by the browser.
		if !strings.Contains(s, "Failed to load resource: the server responded with a status of 4") {
			t.Errorf("the page said %s", s)
		}
	}
}

// TestPageHostileText: names and values are text, whatever they say.
func TestPageHostileText(t *testing.T) {
	const evil = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`
	const name = "<script>window.pwned()</script>" // a name has no "="
	p := startPage(t, evil+"=1", name+"=1", "\u202eGNP=1", "${alert(1)}=1")
	p.wall("env", "set", "EVIL="+evil).ok(t)
	tab := startChromium(t).open(p.url)
	tab.wait(`document.querySelectorAll('#stored-rows tr').length === 1 && document.querySelectorAll('.group').length > 0`)
	tab.eval(`document.getElementById('tab-terminal').click()`)
	tab.wait(`[...document.querySelectorAll('.group th')].some(e => e.textContent === ` + strconv.Quote(name) + `)`)
	if got := tab.eval(`document.body.textContent.includes('\u202e')`); got != "false" {
		t.Error("a name turns the writing direction")
	}
	tab.eval(`document.querySelector('[aria-label="Show the value of EVIL"]').click()`)
	tab.wait(`document.querySelector('#stored-rows .value').textContent === ` + strconv.Quote(evil))
	tab.eval(`document.getElementById('filter').focus()`)
	tab.text(`<`)
	tab.picture("hostile", false)
	// Nothing of it ran, and what could run is the page's own.
	if got := tab.eval(`String(window.pwned) + document.querySelectorAll('img').length + document.querySelectorAll('script').length`); got != "undefined01" {
		t.Errorf("window.pwned, images, scripts: %s", got)
	}
	// Had it got in as markup, the policy would have stopped it.
	got := tab.eval(`(() => { try { document.body.innerHTML += '<b>x</b>'; return 'set' } catch (e) { return e.name } })()`)
	if got != "TypeError" {
		t.Errorf("markup from text: %s", got)
	}
	got = tab.eval(`new Promise(done => {
		document.addEventListener('securitypolicyviolation', e => done(e.effectiveDirective), {once: true});
		const s = document.createElement('style'); s.textContent = 'body { color: red }'; document.head.append(s);
	})`)
	if got != "style-src-elem" {
		t.Errorf("an inline style: %q", got)
	}
}

// TestPageStrangers: whoever lacks the token gets nowhere: a guess, a second use of
// the address, other web pages in the same browser, a name that leads here, other
// programs of the machine.
func TestPageStrangers(t *testing.T) {
	p := startPage(t)
	p.wall("env", "set", "KEPT=before").ok(t)
	port := p.base[strings.LastIndex(p.base, ":")+1:]
	browser := startChromium(t, "--host-resolver-rules=MAP rebound.test 127.0.0.1")

	guess := browser.open(p.base + "/#" + strings.Repeat("A", 43))
	guess.wait(`document.getElementById('closed').textContent.includes('is not the one')`)
	bare := browser.open(p.base + "/")
	bare.wait(`document.getElementById('closed').textContent.includes('opens nothing')`)
	if got := bare.eval(`document.getElementById('app').hidden`); got != "true" {
		t.Error("the page is there without a session")
	}

	own := browser.open(p.url)
	own.wait(`document.querySelectorAll('#stored-rows tr').length === 1`)
	again := browser.open(p.url)
	again.wait(`document.getElementById('closed').textContent.includes('was used already')`)

	// A name that an attacker lets lead to this machine.
	rebound := browser.open("http://rebound.test:" + port + "/")
	rebound.wait(`document.body.textContent.includes('there is no such host here')`)
	if got := rebound.eval(`fetch('/api/state').then(r => r.status)`); got != "421" {
		t.Errorf("from a name that leads here: status %s", got)
	}

	// Another server of the machine, which the operator visits: it is sent the cookie,
	// because cookies do not know ports, and cannot do anything with it.
	var mu sync.Mutex
	var stolen []*http.Cookie
	attacker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		stolen = append(stolen, r.Cookies()...)
		_, _ = io.WriteString(w, "<!doctype html><title>attacker</title><body>")
	}))
	defer attacker.Close()
	evil := browser.open(attacker.URL)
	evil.wait(`document.title === 'attacker'`)
	for name, script := range map[string]string{
		"read":          `fetch(TARGET + '/api/variables', {credentials: 'include'}).then(() => 'read', () => 'refused')`,
		"read the page": `fetch(TARGET + '/', {credentials: 'include'}).then(() => 'read', () => 'refused')`,
		"unread":        `fetch(TARGET + '/api/variables', {mode: 'no-cors', credentials: 'include'}).then(() => 'read', () => 'refused')`,
		"post":          `fetch(TARGET + '/api/unset', {method: 'POST', credentials: 'include', headers: {'Content-Type': 'application/json', 'X-Wall-Session': 'x'}, body: '{"name":"KEPT"}'}).then(() => 'read', () => 'refused')`,
		"simple post":   `fetch(TARGET + '/api/unset', {method: 'POST', mode: 'no-cors', credentials: 'include', body: '{"name":"KEPT"}'}).then(() => 'read', () => 'refused')`,
		"script":        `new Promise(done => { const s = document.createElement('script'); s.src = TARGET + '/page.js'; s.onload = () => done('read'); s.onerror = () => done('refused'); document.head.append(s) })`,
		"image":         `new Promise(done => { const s = new Image(); s.onload = () => done('read'); s.onerror = () => done('refused'); s.src = TARGET + '/icon.svg' })`,
		"form in a frame": `new Promise(done => {
			const frame = document.createElement('iframe'), form = document.createElement('form'), field = document.createElement('input');
			frame.name = 'target';
			document.body.append(frame, form);
			Object.assign(form, {method: 'post', enctype: 'text/plain', target: 'target', action: TARGET + '/api/unset'});
			Object.assign(field, {name: '{"name":"KEPT","x":"', value: '"}'});
			form.append(field);
			frame.onload = () => done(frame.contentDocument ? 'read' : 'refused');
			form.submit();
		})`,
		"frame": `new Promise(done => { const f = document.createElement('iframe'); f.onload = () => done(f.contentDocument ? 'read' : 'refused'); f.src = TARGET + '/'; document.body.append(f) })`,
	} {
		if got := evil.eval(strings.ReplaceAll(script, "TARGET", strconv.Quote(p.base))); got != "refused" {
			t.Errorf("another page, %s: %s", name, got)
		}
	}
	mu.Lock()
	cookies := stolen
	mu.Unlock()
	t.Logf("the other server was sent %d cookies", len(cookies))
	for _, path := range []string{"/api/state", "/api/variables", "/api/preview?surface=shell"} {
		req, err := http.NewRequest(http.MethodGet, p.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cookies {
			req.AddCookie(c)
		}
		if status := statusOf(t, req); status != http.StatusUnauthorized {
			t.Errorf("%s with the cookie alone: status %d", path, status)
		}
	}

	// The token is nowhere where others can look.
	token := p.url[strings.Index(p.url, "#")+1:]
	for _, f := range []string{"cmdline", "environ"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, f))
		if err != nil && !errors.Is(err, os.ErrPermission) { // only root can read the environment of wall
			t.Fatal(err)
		}
		if strings.Contains(string(data), token) {
			t.Errorf("the token is in /proc/PID/%s", f)
		}
	}

	// Only loopback: no other address of this machine answers.
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip, _, err := net.ParseCIDR(a.String())
		if err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		c, err := net.DialTimeout("tcp", net.JoinHostPort(ip.String(), port), 5*time.Second)
		if err == nil {
			c.Close()
			t.Errorf("%s answers", ip)
		}
	}

	if got := p.wall("env", "list", "--show-values").ok(t); got != "KEPT=before\n" {
		t.Errorf("the store is now %q", got)
	}
	// The operator's own page still works.
	own.eval(`document.querySelector('[aria-label="Remove KEPT"]').click()`)
	own.wait(`!document.getElementById('stored-empty').hidden`)

	// Ctrl-C ends it, as a normal end.
	if err := p.cmd.Process.Signal(unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := p.end(); err != nil {
		t.Errorf("after SIGINT: %v", err)
	}
	if got := own.eval(`fetch('/').then(() => 'there', () => 'gone')`); got != "gone" {
		t.Errorf("after the end the page is %s", got)
	}
}

func statusOf(t *testing.T, req *http.Request) int {
	t.Helper()
	resp, err := (&http.Transport{}).RoundTrip(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
