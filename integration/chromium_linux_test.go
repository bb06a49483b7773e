package integration_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A chromium is a headless browser, driven through the DevTools protocol
// (https://chromedevtools.github.io/devtools-protocol/) over two pipes, so that no
// port is open and no library is needed.
type chromium struct {
	t   *testing.T
	out *os.File // to descriptor 3 of the browser

	mu      sync.Mutex
	last    int
	waiting map[int]chan devtoolsMessage
	said    map[string][]string // by session: exceptions and entries of the log
	gone    chan struct{}
}

type devtoolsMessage struct {
	ID        int             `json:"id"`
	SessionID string          `json:"sessionId"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// browserPatience is how long a browser may take for anything: on a busy machine its
// start alone takes many seconds.
const browserPatience = 3 * time.Minute

// startChromium starts a browser with a profile of its own. It ends with the test.
func startChromium(t *testing.T, flags ...string) *chromium {
	t.Helper()
	need(t, "chromium")
	dir := tempDir(t)
	toBrowser, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	in, fromBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("chromium", append([]string{
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + filepath.Join(dir, "profile"),
		"--no-sandbox", // root has none, and a container may not allow any
		"--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--disable-breakpad", "--disable-crash-reporter",
		"--no-first-run", "--no-default-browser-check", "--no-proxy-server", "--password-store=basic",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
		"--window-size=1100,1400",
	}, append(flags, "about:blank")...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "XDG_RUNTIME_DIR=" + dir, "LANG=C.UTF-8"}
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser}
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	toBrowser.Close()
	fromBrowser.Close()
	c := &chromium{t: t, out: out, waiting: map[int]chan devtoolsMessage{}, said: map[string][]string{}, gone: make(chan struct{})}
	go c.read(in)
	t.Cleanup(func() {
		out.Close() // the browser ends when nobody drives it
		select {
		case <-c.gone:
		case <-time.After(20 * time.Second):
		}
		// What is left of it, such as renderers that hang; the group is the browser's.
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait()
		in.Close()
		if t.Failed() {
			t.Logf("chromium said:\n%s", log.String())
		}
	})
	return c
}

// read takes the messages of the browser, which end in NUL.
func (c *chromium) read(in *os.File) {
	defer close(c.gone)
	r := bufio.NewReader(in)
	for {
		data, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		var m devtoolsMessage
		if json.Unmarshal(data[:len(data)-1], &m) != nil {
			return
		}
		c.mu.Lock()
		switch {
		case m.ID != 0:
			if w := c.waiting[m.ID]; w != nil {
				w <- m // there is room for the one answer
				delete(c.waiting, m.ID)
			}
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded", m.Method == "Runtime.consoleAPICalled":
			c.said[m.SessionID] = append(c.said[m.SessionID], m.Method+" "+string(m.Params))
		}
		c.mu.Unlock()
	}
}

// call calls a method of the protocol; session is "" for the browser itself.
func (c *chromium) call(session, method string, params any, result any) error {
	c.mu.Lock()
	c.last++
	id, answer := c.last, make(chan devtoolsMessage, 1)
	c.waiting[id] = answer
	c.mu.Unlock()
	if params == nil {
		params = struct{}{}
	}
	data, err := json.Marshal(struct {
		ID        int    `json:"id"`
		SessionID string `json:"sessionId,omitempty"`
		Method    string `json:"method"`
		Params    any    `json:"params"`
	}{id, session, method, params})
	if err != nil {
		return err
	}
	if _, err := c.out.Write(append(data, 0)); err != nil {
		return err
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(m.Result, result)
	case <-c.gone:
		return errors.New("the browser has ended")
	case <-time.After(browserPatience):
		return fmt.Errorf("%s: no answer", method)
	}
}

// A tab is one page of a browser.
type tab struct {
	t       *testing.T
	c       *chromium
	session string
}

// open opens an address in a new tab.
func (c *chromium) open(url string) *tab {
	c.t.Helper()
	var target struct{ TargetID string }
	var session struct{ SessionID string }
	err := c.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	if err == nil {
		err = c.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	}
	p := &tab{c.t, c, session.SessionID}
	for _, domain := range []string{"Runtime", "Log", "Page", "DOM"} {
		if err == nil {
			err = c.call(p.session, domain+".enable", nil, nil)
		}
	}
	if err != nil {
		c.t.Fatal(err)
	}
	p.visit(url)
	return p
}

// visit goes to an address, as if it was typed.
func (p *tab) visit(url string) {
	p.t.Helper()
	var r struct{ ErrorText string }
	if err := p.c.call(p.session, "Page.navigate", map[string]any{"url": url}, &r); err != nil {
		p.t.Fatal(err)
	}
	if r.ErrorText != "" && r.ErrorText != "net::ERR_ABORTED" {
		p.t.Fatalf("cannot open the page: %s", r.ErrorText)
	}
}

// try evaluates JavaScript in the page, and waits when it gives a promise.
func (p *tab) try(script string) (string, error) {
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	err := p.c.call(p.session, "Runtime.evaluate", map[string]any{
		"expression": script, "awaitPromise": true, "returnByValue": true, "userGesture": true,
	}, &r)
	switch {
	case err != nil:
		return "", err
	case r.ExceptionDetails != nil:
		return "", errors.New(r.ExceptionDetails.Text + " " + r.ExceptionDetails.Exception.Description)
	case r.Result.Value == nil:
		return "", nil
	}
	return fmt.Sprint(r.Result.Value), nil
}

func (p *tab) eval(script string) string {
	p.t.Helper()
	got, err := p.try(script)
	if err != nil {
		p.t.Fatalf("%s\n%v", script, err)
	}
	return got
}

// wait waits until JavaScript gives true.
func (p *tab) wait(condition string) {
	p.t.Helper()
	deadline := time.Now().Add(browserPatience)
	var last string
	var err error
	for time.Now().Before(deadline) {
		// Between two pages there is nothing to ask.
		if last, err = p.try("!!(" + condition + ")"); err == nil && last == "true" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	text, _ := p.try("document.body.innerText")
	p.t.Fatalf("never true: %s (%s, %v)\n%s\n%q", condition, last, err, text, p.said())
}

// said gives what the page threw and logged.
func (p *tab) said() []string {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return append([]string(nil), p.c.said[p.session]...)
}

// key presses and releases a key that types nothing, such as Tab.
func (p *tab) key(name string, code int) {
	p.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		if err := p.c.call(p.session, "Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code}, nil); err != nil {
			p.t.Fatal(err)
		}
	}
}

// enter presses the Enter key on what has the focus.
func (p *tab) enter() {
	p.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
		if kind == "keyDown" {
			params["text"] = "\r"
		}
		if err := p.c.call(p.session, "Input.dispatchKeyEvent", params, nil); err != nil {
			p.t.Fatal(err)
		}
	}
}

// text types into what has the focus.
func (p *tab) text(s string) {
	p.t.Helper()
	if err := p.c.call(p.session, "Input.insertText", map[string]any{"text": s}, nil); err != nil {
		p.t.Fatal(err)
	}
}

// picture writes what the page looks like to a file of the directory that
// WALL_TEST_PICTURES names, for a person; without it, it does nothing.
func (p *tab) picture(name string, dark bool) {
	dir := os.Getenv("WALL_TEST_PICTURES")
	if dir == "" {
		return
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	var r struct{ Data string }
	err := p.c.call(p.session, "Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	if err == nil {
		err = p.c.call(p.session, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &r)
	}
	data, decodeErr := base64.StdEncoding.DecodeString(r.Data)
	if err = errors.Join(err, decodeErr); err == nil {
		err = os.WriteFile(filepath.Join(dir, name+".png"), data, 0o644)
	}
	if err != nil {
		p.t.Error(err)
	}
}
