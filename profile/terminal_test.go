package profile

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

// TestTerminal: what becomes of a terminal, for every mode and place of it.
func TestTerminal(t *testing.T) {
	const refused = plan.TTY("refused")
	fsys := fstest.MapFS{"home/u/proj/x": {}, "bin/sh": {Mode: 0o755}, "dev/null": {}, "dev/pts/0": {}}
	for _, tt := range []struct {
		terminals string // of the descriptors 0 to 2
		mode      string
		off       bool
		want      plan.TTY
	}{
		{"", "auto", false, plan.TTYNone},
		{"0", "auto", false, plan.TTYPrivate},
		{"012", "auto", false, plan.TTYPrivate},
		{"12", "auto", false, plan.TTYInherit},
		{"2", "auto", false, plan.TTYInherit},
		{"", "pty", false, refused},
		{"12", "pty", false, refused},
		{"0", "pty", false, plan.TTYPrivate},
		{"", "inherit", false, plan.TTYInherit},
		{"012", "inherit", false, plan.TTYInherit},
		{"012", "none", false, plan.TTYNone},
		{"12", "none", false, plan.TTYNone},
		{"012", "auto", true, plan.TTYInherit},
		{"012", "none", true, plan.TTYInherit},
		{"", "pty", true, plan.TTYInherit},
	} {
		h := goldenHost{}.host(fsys)
		for i := range h.Stdio {
			if strings.ContainsRune(tt.terminals, rune('0'+i)) {
				h.Stdio[i] = plan.Stdio{FD: i, Kind: plan.StdioTTY, Read: true, Write: true}
			}
		}
		o := Options{Default: "gate", Command: []string{"/bin/sh"}, Flags: []Flag{{Name: "tty", Value: tt.mode, Text: "--tty " + tt.mode}}}
		if tt.off {
			o.Flags = append(o.Flags, Flag{Name: "enforce", Value: "off", Text: "--enforce off"})
		}
		p, err := Resolve(h, o)
		got := p.TTY
		if err != nil {
			if got = refused; !strings.Contains(plan.Explain(err), "at --tty pty") {
				t.Errorf("%+v: %v", tt, err)
			}
		}
		if got != tt.want {
			t.Errorf("%+v: %q, %v", tt, got, err)
		}
	}
}
