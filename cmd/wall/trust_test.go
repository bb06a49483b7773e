package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// TestTrustAsks has a person at a terminal answer.
func TestTrustAsks(t *testing.T) {
	for _, tt := range []struct {
		args    []string
		answer  string
		status  int
		trusted bool
		asked   bool
	}{
		{nil, "y\n", 0, true, true},
		{nil, "YES\n", 0, true, true},
		{nil, "n\n", 1, false, true},
		{nil, "\n", 1, false, true},
		{nil, "yesterday\n", 1, false, true},
		{nil, "\x04", 1, false, true}, // the end of the input
		{[]string{"--json"}, "y\n", 0, true, true},
		{[]string{"--yes"}, "", 0, true, false},
		{[]string{"--show"}, "", 0, false, false},
	} {
		ws := realTemp(t)
		file := ws + "/.wall/gate.toml"
		if err := os.Mkdir(ws+"/.wall", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("version = 1\n[network]\nmode = \"host\"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		state := t.TempDir()
		t.Setenv("XDG_STATE_HOME", state)
		master, slave, err := pty.Open()
		if err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := master.WriteString(tt.answer); err != nil {
			t.Fatal(err)
		}
		status := launch(append([]string{"trust", file}, tt.args...), streams{slave, out, slave})
		slave.Close()
		seen, _ := io.ReadAll(master) // ends with EIO: nobody has the other side any more
		asked := strings.Contains(string(seen), "trust exactly this content, which widens profile gate? [y/N]")
		store, _ := os.ReadFile(state + "/wall/trust")
		stdout, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		if status != tt.status || strings.Contains(string(store), file) != tt.trusted || asked != tt.asked {
			t.Errorf("%q, answer %q: status %d, trust store %q, asked %v; terminal %q", tt.args, tt.answer, status, store, asked, seen)
		}
		if all := string(stdout) + string(seen); !strings.Contains(all, `network.mode = `) {
			t.Errorf("%q: the change was not shown: %q", tt.args, all)
		}
		if tt.args != nil && tt.args[0] == "--json" && !strings.HasPrefix(string(stdout), "{") {
			t.Errorf("standard output is not JSON: %q", stdout)
		}
		master.Close()
		out.Close()
	}
}
