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

// TestDenialLines: what would allow the address of an allowed name is told apart, for a
// lying resolver may have chosen it, and for addresses of inner networks alone.
func TestDenialLines(t *testing.T) {
	const why = "no rule allows this address, which is "
	s := egress.Summary{Denied: 6, Denials: []egress.Denial{
		{Count: 1, Event: egress.Event{Name: "a.example", Reason: "no rule allows it"}},
		{Count: 2, Event: egress.Event{Name: "in.example", Addr: "10.0.0.5", Port: 443, Reason: why + "private"}},
		{Count: 1, Event: egress.Event{Name: "doc.example", Addr: "2001:db8::1", Port: 80, Reason: why + "for documentation"}},
		{Count: 1, Event: egress.Event{Name: "meta.example", Addr: "169.254.169.254", Port: 80, Reason: why + "a metadata service"}},
		{Count: 1, Event: egress.Event{Name: "lo.example", Addr: "127.0.0.1", Port: 80, Reason: why + "loopback"}},
	}}
	const in = "in the table [network] of the profile (here gate, or one that extends it)"
	want := []string{
		"refused the name a.example: no rule allows it",
		"refused in.example:443 with the address 10.0.0.5 (2 times): " + why + "private",
		"refused doc.example:80 with the address 2001:db8::1: " + why + "for documentation",
		"refused meta.example:80 with the address 169.254.169.254: " + why + "a metadata service",
		"refused lo.example:80 with the address 127.0.0.1: " + why + "loopback",
		`if the command is right to reach it: --allow-host a.example, or allow = ["a.example"] ` + in,
		`if these addresses of an inner network are right, allow them as well: --allow-host 10.0.0.5:443 --allow-host [2001:db8::1]:80, or allow = ["10.0.0.5:443", "[2001:db8::1]:80"] ` + in,
	}
	if got := NewDenials(plan.Plan{Network: plan.Network{Method: plan.NetRedirect}}, s).Lines("gate"); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
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
