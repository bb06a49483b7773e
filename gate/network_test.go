package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/plan"
)

func TestDenials(t *testing.T) {
	allow := plan.Plan{Network: plan.Network{Method: plan.NetRedirect}}
	s := egress.Summary{Opened: 1, Denied: 5}
	for i := range 8 {
		s.Denials = append(s.Denials, egress.Denial{Count: 1, Event: egress.Event{Name: fmt.Sprintf("h%d.example", i), Port: 443, Reason: "no rule allows it"}})
	}
	if d := NewDenials(plan.Plan{}, s); len(d.ReportedBy) != 0 || d.Count != 0 || len(d.Items) != 0 {
		t.Errorf("without a network: %+v", d)
	}
	ports := plan.Plan{Network: plan.Network{Loopback: []plan.PortGrant{{Port: 5432}}}}
	if d, n := NewDenials(ports, s), NewNetwork(ports, s); len(d.ReportedBy) != 0 || n == nil || n.Method != "ports" || n.Opened != 1 {
		t.Errorf("with ports alone: %+v, %+v", d, n)
	}
	if n := NewNetwork(plan.Plan{}, s); n != nil {
		t.Errorf("%+v", n)
	}
	d := NewDenials(allow, s)
	if !slices.Equal(d.ReportedBy, []plan.Wall{plan.WallNetwork}) || d.Count != 5 || len(d.Items) != 8 {
		t.Errorf("%+v", d)
	}
	lines := d.Lines("p")
	if len(lines) != mostLines+2 || lines[mostLines] != "and 3 more; --net-log and --json tell all" || strings.Count(lines[mostLines+1], "--allow-host") != 3 {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
	odd := Denials{Items: []Denial{{Addr: "2001:db8::1", Port: 22, Reason: "r", Rule: "f:1", missing: true}, {Name: "-x", Port: 1, Reason: "r", missing: true}, {Name: "a b", Reason: "r", missing: true}, {Name: "c", Reason: "a rule denies it"}, {Via: "socks5", Reason: "not SOCKS 5", Count: 2}}}
	if got, want := odd.Lines("p"), []string{
		"refused [2001:db8::1]:22: r, at f:1", "refused -x:1: r", "refused the name a b: r", "refused the name c: a rule denies it", "refused what came by socks5 (2 times): not SOCKS 5",
		`if the command is right to reach it: --allow-host [2001:db8::1]:22, or allow = ["[2001:db8::1]:22"] in the table [network] of the profile (here p, or one that extends it)`,
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestFailOnDenial: only the verdict on a command that ended by itself turns.
func TestFailOnDenial(t *testing.T) {
	p := plan.Plan{Network: plan.Network{Method: plan.NetRedirect}}
	for _, tt := range []struct {
		o    Outcome
		want Status
		exit int
	}{
		{Outcome{Status: Passed, Network: egress.Summary{Denied: 1}}, Denied, 122},
		{Outcome{Status: Failed, Exit: 3, Code: 3, Network: egress.Summary{Denied: 2}}, Denied, 122},
		{Outcome{Status: Passed}, Passed, 0},
		{Outcome{Status: Failed, Exit: 3}, Failed, 3},
		{Outcome{Status: TimedOut, Exit: 124, Network: egress.Summary{Denied: 1}}, TimedOut, 124},
		{Outcome{Status: Limit, Exit: 123, Network: egress.Summary{Denied: 1}}, Limit, 123},
		{Outcome{Status: Failed, Exit: 125, Err: &plan.Error{Op: "x"}, Network: egress.Summary{Denied: 1}}, Failed, 125},
	} {
		o := tt.o
		if o.failOnDenial(p); o.Status != tt.want || o.Exit != tt.exit {
			t.Errorf("%s %d becomes %s %d, want %s %d", tt.o.Status, tt.o.Exit, o.Status, o.Exit, tt.want, tt.exit)
		}
		if o.Status == Denied && plan.ExitStatus(o.Err) != plan.ExitDenied {
			t.Errorf("%v", o.Err)
		}
	}
}
