package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// TestNetLog fixes the form of --net-log: programs read it, line by line.
func TestNetLog(t *testing.T) {
	var b bytes.Buffer
	l := &netLog{w: &b, end: "\n"}
	p := plan.Plan{Network: plan.Network{Method: plan.NetRedirect}}
	l.start("first", plan.Plan{}) // failed: leaves no line
	l.start("test", p)
	at := time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC)
	l.event("test", egress.Event{Time: at, Kind: egress.KindDeny, Via: egress.ViaSOCKS, Name: "a\x1b[2J\u202e##[error]\x00.example", Port: 443, Reason: "no rule allows it",
		Rule: plan.Origin{File: "p.toml", Line: 3, Column: 1, Text: `mode = "allow"`}})
	l.event("test", egress.Event{Time: at, Kind: egress.KindClose, Via: egress.ViaRedirect, Name: "b.example", Addr: "192.0.2.1:443", Port: 443, In: 5, Out: 6, Duration: 1500 * time.Microsecond})
	l.event("test", egress.Event{Time: at, Kind: egress.KindFail, Via: egress.ViaHTTP, Name: "b.example", Port: 80, Reason: "refused"})
	l.finish("test", p, egress.Summary{Opened: 1, Denied: 1, Failed: 1, Dropped: 2, BytesIn: 5, BytesOut: 6})
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	want := []string{
		`","event":"start","version":1,"phase":"test","network":"redirect","reports":true}`,
		`{"time":"2030-01-02T03:04:05.000006Z","event":"deny","verdict":"denied","phase":"test","via":"socks5","name":"a\u001b[2J\u202e#\u0023[error]\u0000.example","address":"","port":443,` +
			`"rule":"p.toml:3:1: mode = \"allow\"","reason":"no rule allows it","received_bytes":0,"sent_bytes":0,"duration_ms":0}`,
		`{"time":"2030-01-02T03:04:05.000006Z","event":"close","verdict":"allowed","phase":"test","via":"redirect","name":"b.example","address":"192.0.2.1:443","port":443,` +
			`"rule":"","reason":"","received_bytes":5,"sent_bytes":6,"duration_ms":1.5}`,
		`{"time":"2030-01-02T03:04:05.000006Z","event":"fail","verdict":"failed","phase":"test","via":"http","name":"b.example","address":"","port":80,` +
			`"rule":"","reason":"refused","received_bytes":0,"sent_bytes":0,"duration_ms":0}`,
		`","event":"end","phase":"test","method":"redirect","opened":1,"failed":1,"received_bytes":5,"sent_bytes":6,"events_dropped":2,"denied":1}`,
		"",
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), b.String())
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, want[i]) {
			t.Errorf("line %d is\n%s\nwant\n%s", i, line, want[i])
		}
		var back map[string]any
		if line != "" && json.Unmarshal([]byte(line), &back) != nil {
			t.Errorf("line %d is no JSON", i)
		}
		if i == 1 && back["name"] != "a\x1b[2J\u202e##[error]\x00.example" {
			t.Errorf("the name reads back as %q", back["name"])
		}
	}
}

// failing is a writer that fails at its second write.
type failing struct{ n int }

func (f *failing) Write(b []byte) (int, error) {
	if f.n++; f.n > 1 {
		return 0, errors.New("full")
	}
	return len(b), nil
}

func TestNetLogTellsThatItIsNotComplete(t *testing.T) {
	f := &failing{}
	l := &netLog{w: f, end: "\n"}
	for range 5 {
		l.event("", egress.Event{Kind: egress.KindDNS})
	}
	if err := l.close(); err == nil || err.Error() != "full" || f.n != 2 {
		t.Errorf("%v after %d writes", err, f.n)
	}
	var none *netLog
	none.start("", plan.Plan{})
	none.event("", egress.Event{})
	none.finish("", plan.Plan{}, egress.Summary{})
	if err := none.close(); err != nil {
		t.Error(err)
	}
}

// fillPipe leaves no room for one byte.
func fillPipe(t *testing.T, w *os.File) {
	t.Helper()
	if err := onDescriptor(w, func(fd int) {
		for _, size := range []int{4096, 1} {
			for {
				if _, err := unix.Write(fd, make([]byte, size)); err != nil {
					break // EAGAIN: os.Pipe made it so
				}
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
}

// unreadLog is a log on standard error, which is a pipe that is closed with the test.
func unreadLog(t *testing.T) (l *netLog, r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	l, err = (&runFlags{netLog: "-"}).openNetLog(streams{err: w}, profile.Host{}, plan.Plan{})
	if err != nil {
		t.Fatal(err)
	}
	return l, r, w
}

// ends waits for what does not wait for ever.
func ends[T any](t *testing.T, f func() T) T {
	t.Helper()
	done := make(chan T, 1)
	go func() { done <- f() }()
	select {
	case v := <-done:
		return v
	case <-time.After(time.Minute):
		t.Fatal("waits for ever")
		panic("not reached")
	}
}

// TestNetLogUnread: a log on a stream waits for its reader as long as the box lives, and
// not for ever from then on.
func TestNetLogUnread(t *testing.T) {
	l, r, w := unreadLog(t)
	const lines = 1000 // more than a pipe holds
	written := make(chan struct{})
	l.start("", plan.Plan{})
	go func() {
		defer close(written)
		for range lines {
			l.event("", egress.Event{Kind: egress.KindDeny})
		}
	}()
	in := bufio.NewScanner(r)
	for n := range lines + 1 { // the first says what begins
		if !in.Scan() {
			t.Fatalf("%d lines, %v", n, in.Err())
		}
	}
	<-written

	fillPipe(t, w) // nobody reads any more
	full := make(chan struct{})
	go func() {
		defer close(full)
		for range 3 {
			l.event("", egress.Event{Kind: egress.KindDeny})
		}
	}()
	if err := ends(t, func() error {
		l.finish("", plan.Plan{}, egress.Summary{})
		return l.close()
	}); !errors.Is(err, errUnread) {
		t.Error(err)
	}
	<-full

	// What wall says then goes where there is room for it, and waits for none.
	noteUnread(w, errUnread)
	defer unread.Store(nil)
	ends(t, func() any { printWarning(w, "nobody hears it"); return nil })
	text, err := netLogError("-", errUnread, 3)
	if text != "the network log lacks 3 events and its end: nobody reads standard error" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

// TestNetLogUnreadStart: neither does one whose command could not be started.
func TestNetLogUnreadStart(t *testing.T) {
	l, _, w := unreadLog(t)
	fillPipe(t, w)
	l.start("", plan.Plan{})
	full := make(chan struct{})
	go func() {
		defer close(full)
		l.event("", egress.Event{Kind: egress.KindDeny})
	}()
	for start := time.Now(); l.mu.TryLock(); time.Sleep(time.Millisecond) { // until it is being written
		l.mu.Unlock()
		if time.Since(start) > time.Minute {
			t.Fatal("nothing is written")
		}
	}
	if err := ends(t, l.close); !errors.Is(err, errUnread) {
		t.Error(err)
	}
	<-full
}

// TestNetLogFile: the file must lie where the command cannot reach it, because it
// is written while the command runs.
func TestNetLogFile(t *testing.T) {
	dir := t.TempDir()
	ws := filepath.Join(dir, "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	p := plan.Plan{Enforce: plan.EnforceFSNet, Mounts: []plan.Mount{{Op: plan.OpBind, Source: ws, Target: ws, Access: plan.AccessWrite}}}
	h := profile.Host{Cwd: ws}
	for _, bad := range []string{"net.log", ws + "/x/../net.log", "./-"} {
		f := &runFlags{netLog: bad}
		if l, err := f.openNetLog(streams{}, h, p); err == nil {
			l.close()
			t.Errorf("%s is accepted", bad)
		}
	}
	name := filepath.Join(dir, "net.log")
	if err := os.WriteFile(name, []byte("old\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := &runFlags{netLog: "../net.log"}
	l, err := f.openNetLog(streams{}, h, p)
	if err != nil {
		t.Fatal(err)
	}
	l.event("", egress.Event{Kind: egress.KindOpen, Name: "a.example"})
	data, err := os.ReadFile(name)
	if err != nil || !strings.HasSuffix(string(data), "}\n") || strings.Contains(string(data), "old") {
		t.Errorf("before the end the file is %q, %v", data, err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	if l, err := (&runFlags{}).openNetLog(streams{}, h, p); l != nil || err != nil {
		t.Errorf("without the flag: %v, %v", l, err)
	}
}

func TestReportable(t *testing.T) {
	allow, none := plan.Plan{Network: plan.Network{Method: plan.NetProxy}}, plan.Plan{}
	for _, tt := range []struct {
		on    bool
		plans []plan.Plan
		ok    bool
	}{
		{false, []plan.Plan{none}, true}, {true, []plan.Plan{none}, false}, {true, []plan.Plan{allow}, true}, {true, []plan.Plan{none, allow}, true}, {true, nil, false},
	} {
		err := (&runFlags{failOnDenial: tt.on}).reportable(tt.plans...)
		if (err == nil) != tt.ok || err != nil && plan.ExitStatus(err) != plan.ExitFailed {
			t.Errorf("%v: %v", tt, err)
		}
	}
}

func TestDenialText(t *testing.T) {
	p := plan.Plan{Profile: "gate", Network: plan.Network{Method: plan.NetRedirect}}
	s := egress.Summary{Denied: 9, Denials: []egress.Denial{
		{Count: 3, Event: egress.Event{Name: "a.example", Port: 443, Reason: "no rule allows it"}},
		{Count: 1, Event: egress.Event{Name: "c.example", Port: 443, Addr: "10.0.0.1", Reason: "no rule allows this address, which is private"}}, // another rule for the name would not help
		{Count: 1, Event: egress.Event{Name: "b.example\nwall: error: forged\x1b[2J", Reason: "not a host name"}},
	}}
	want := []string{
		"wall: network: refused a.example:443 (3 times): no rule allows it",
		"wall: network: refused c.example:443 with the address 10.0.0.1: no rule allows this address, which is private",
		"wall: network: refused the name b.example?wall: error: forged?[2J: not a host name",
		`wall: network: if the command is right to reach it: --allow-host a.example:443, or allow = ["a.example:443"] in the table [network] of the profile (here gate, or one that extends it)`,
		`wall: network: if these addresses of an inner network are right, allow them as well: --allow-host 10.0.0.1:443, or allow = ["10.0.0.1:443"] in the table [network] of the profile (here gate, or one that extends it)`,
		"",
	}
	if got := strings.Split(denialText(p, s), "\n"); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	failed := denialText(p, egress.Summary{Failed: 5, Failures: []egress.Denial{
		{Count: 3, Event: egress.Event{Via: egress.ViaRedirect, Name: "a.example\x1b", Port: 443, Addr: "192.0.2.1", Reason: "connection refused"}},
		{Count: 1, Event: egress.Event{Via: egress.ViaPublish, Port: 8081, Reason: "connection refused", Rule: plan.Origin{Text: "flag --publish"}}},
		{Count: 1, Event: egress.Event{Via: egress.ViaLoopback, Port: 5432, Reason: "connection refused"}},
	}})
	if got, want := failed, "wall: network: allowed, but could not be made: a connection to a.example?:443 (3 times): connection refused\n"+
		"wall: network: allowed, but could not be made: a connection to the published port 8081 of the command: connection refused, at flag --publish\n"+
		"wall: network: allowed, but could not be made: a connection to port 5432 of the host: connection refused\n"; got != want {
		t.Errorf("got %q", got)
	}
	if text := denialText(p, egress.Summary{}); text != "" {
		t.Errorf("nothing was refused, and told is %q", text)
	}
}
