package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
)

func TestExitOf(t *testing.T) {
	ran := func(code int, sig syscall.Signal) nsexec.Result {
		return nsexec.Result{Started: true, ExitCode: code, Signal: sig}
	}
	notFound := &plan.Error{Op: "x", Exit: plan.ExitNotFound}
	for _, tt := range []struct {
		name string
		o    outcome
		err  error
		want int
	}{
		{"own status", outcome{result: ran(3, 0)}, nil, 3},
		{"success", outcome{result: ran(0, 0)}, nil, 0},
		{"killed", outcome{result: ran(-1, unix.SIGKILL)}, nil, 137},
		{"success after SIGTERM", outcome{result: ran(0, 0), terminated: true}, nil, 143},
		{"own status after SIGTERM", outcome{result: ran(3, 0), terminated: true}, nil, 3},
		{"signal after SIGTERM", outcome{result: ran(-1, unix.SIGTERM), terminated: true}, nil, 143},
		{"not run", outcome{}, errors.New("x"), 125},
		{"not found", outcome{}, notFound, 127},
		{"ran, but the report failed", outcome{result: ran(0, 0)}, errors.New("x"), 125},
		{"denied", outcome{result: ran(0, 0), denied: true}, &plan.Error{Op: "x", Exit: plan.ExitDenied}, 122},
		{"given up", outcome{gaveUp: unix.SIGTERM}, &plan.Error{Op: "x", Exit: 143}, 143},
	} {
		if got := exitOf(tt.o, tt.err); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestResultForm fixes the form of --json: programs read it.
func TestResultForm(t *testing.T) {
	version = "1.2.3"
	defer func() { version = "" }()
	p := plan.Plan{
		Profile:  "gate",
		Enforce:  plan.EnforceFSNet,
		Degraded: []plan.Degraded{{Wall: plan.WallLandlock, Lost: "rules are said once", Cause: "no Landlock"}},
		Notices:  []plan.Notice{{Text: "hard links"}},
		Network:  plan.Network{Method: plan.NetRedirect},
	}
	o := outcome{result: nsexec.Result{
		Started: true, ExitCode: -1, Signal: unix.SIGTERM, Wall: 1500 * time.Microsecond, UserTime: time.Millisecond, SysTime: time.Millisecond, MaxRSS: 4096,
		Network: egress.Summary{Opened: 2, Denied: 3, Failed: 1, Dropped: 4, BytesIn: 10, BytesOut: 20, Denials: []egress.Denial{{Count: 3, Event: egress.Event{
			Kind: egress.KindDeny, Via: egress.ViaRedirect, Name: "a.example", Port: 443, Reason: "no rule allows it", Rule: plan.Origin{File: "p.toml", Line: 4, Text: `mode = "allow"`}}}}},
	}, cleanup: errors.New("left"), kept: "/tmp/wall-0/wall-a", warnings: []string{"look"}}
	got, err := newResult(p, []string{"sleep", "1"}, o, nil).encode()
	if err != nil {
		t.Fatal(err)
	}
	want := `{
  "version": 1,
  "wall": "1.2.3",
  "profile": "gate",
  "enforce": "fs+net",
  "command": [
    "sleep",
    "1"
  ],
  "status": "signalled",
  "exit": 143,
  "signal": "SIGTERM",
  "error": null,
  "duration_ms": 1.5,
  "cpu_ms": 2,
  "max_rss_bytes": 4096,
  "peak_memory_bytes": null,
  "limit": null,
  "degraded": [
    "landlock: rules are said once (no Landlock)"
  ],
  "notices": [
    "hard links"
  ],
  "warnings": [
    "look"
  ],
  "denials": {
    "reported_by": [
      "network"
    ],
    "count": 3,
    "items": [
      {
        "wall": "network",
        "name": "a.example",
        "address": "",
        "port": 443,
        "via": "redirect",
        "reason": "no rule allows it",
        "rule": "p.toml:4: mode = \"allow\"",
        "count": 3
      }
    ]
  },
  "network": {
    "method": "redirect",
    "opened": 2,
    "failed": 1,
    "received_bytes": 10,
    "sent_bytes": 20,
    "events_dropped": 4
  },
  "cleanup": "left",
  "kept": "/tmp/wall-0/wall-a"
}
`
	if string(got) != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	failed := &plan.Error{Op: "cannot do it", Origin: plan.Origin{File: "f", Line: 3, Text: "x = 1"}, Hint: "do that", Err: fs.ErrPermission}
	r := newResult(plan.Plan{}, nil, outcome{}, errors.Join(failed, errors.New("second")))
	got, err = json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	want = `{"version":1,"wall":"1.2.3","profile":"","enforce":"","command":[],"status":"not-run","exit":125,"signal":null,` +
		`"error":{"op":"cannot do it","cause":"permission denied","origin":"f:3: x = 1","hint":"do that"},"duration_ms":0,"cpu_ms":0,"max_rss_bytes":0,"peak_memory_bytes":null,"limit":null,"degraded":[],"notices":[],"warnings":[],"denials":{"reported_by":[],"count":0,"items":[]},"network":null,"cleanup":null,"kept":null}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestResultFieldsArePublished compares the fields with the page of help.
func TestResultFieldsArePublished(t *testing.T) {
	b, err := json.Marshal(newResult(plan.Plan{}, nil, outcome{}, errors.New("x")))
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	for name := range fields {
		if !strings.Contains(topicJSON, "\n  "+name+" ") {
			t.Errorf("wall help json does not tell of %q", name)
		}
	}
}

func TestSignalName(t *testing.T) {
	for s, want := range map[syscall.Signal]string{unix.SIGTERM: "SIGTERM", 34: "SIG34", 64: "SIG64"} {
		if got := signalName(s); got != want {
			t.Errorf("signalName(%d) = %s, want %s", int(s), got, want)
		}
	}
}

func TestStatusFD(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	// As if the caller had opened it: without close-on-exec.
	fd, err := unix.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	s, err := openStatus(fd)
	if err != nil {
		t.Fatal(err)
	}
	if inherited(fd) {
		t.Error("the status descriptor would pass to programs")
	}
	out := newResult(plan.Plan{}, nil, outcome{result: nsexec.Result{Started: true}}, nil)
	if err := errors.Join(s.send(event{Event: "started"}), s.send(out.ended())); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	buf := make([]byte, 1024)
	n, _ := r.Read(buf)
	if want := "{\"event\":\"started\"}\n{\"event\":\"ended\",\"status\":\"exited\",\"exit\":0}\n"; string(buf[:n]) != want {
		t.Errorf("got %q, want %q", buf[:n], want)
	}
	if err := s.send(event{Event: "started"}); err == nil {
		t.Error("no error on a closed descriptor")
	}
	if err := noStatus.send(event{}); err != nil {
		t.Error(err)
	}

	rfd, err := unix.Dup(int(r.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(rfd)
	for fd, want := range map[int]string{
		rfd:           "it is not open for writing",
		int(r.Fd()):   "it is not open", // close-on-exec: not the caller's
		1_000_000_000: "it is not open",
	} {
		if _, err := openStatus(fd); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("descriptor %d: error %v, want %q", fd, err, want)
		}
	}
}

// jsonField gives a field of a JSON object as %v prints it; "error.op" goes down.
func jsonField(text, key string) (string, error) {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return "", err
	}
	for _, k := range strings.Split(key, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return "", fmt.Errorf("no object around %q in %s", k, text)
		}
		if v, ok = m[k]; !ok {
			return "", fmt.Errorf("no field %q in %s", k, text)
		}
	}
	return fmt.Sprint(v), nil
}
