package gate

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/plan"
)

// Denials are what is known of what was refused. The kernel refuses most things with
// an error to the command and tells nobody else; only the network wall reports.
type Denials struct {
	ReportedBy []plan.Wall `json:"reported_by"` // walls that can tell what they refused
	Count      int64       `json:"count"`       // of what these told
	Items      []Denial    `json:"items"`       // the first of each kind; at most 100
}

// A Denial is one thing that was refused, however often.
type Denial struct {
	Wall   plan.Wall `json:"wall"`
	Name   string    `json:"name"` // "" for a literal address
	Addr   string    `json:"address"`
	Port   int       `json:"port"` // 0 for a name lookup
	Via    string    `json:"via"`
	Reason string    `json:"reason"`
	Rule   string    `json:"rule"`
	Count  int64     `json:"count"`

	missing bool // a rule for it would allow it
	inner   bool // a rule for its address would allow it
}

func newDenial(x egress.Denial) Denial {
	return Denial{plan.WallNetwork, x.Name, x.Addr, x.Port, x.Via, x.Reason, x.Rule.String(), x.Count, x.Missing(), x.Inner()}
}

// Network is what a command did on its network, in numbers.
type Network struct {
	Method   string `json:"method"` // "redirect", "proxy", or "ports" for single ports alone
	Opened   int64  `json:"opened"`
	Failed   int64  `json:"failed"` // connections that the rules allow and that could not be made
	Received int64  `json:"received_bytes"`
	Sent     int64  `json:"sent_bytes"`
	Dropped  int64  `json:"events_dropped"` // not in the log of events
}

// Reports reports whether a wall tells what it refuses the command of p.
func Reports(p plan.Plan) bool { return p.Network.Method != plan.NetNone }

// NewDenials says what is known of what was refused to the command of p, which ran.
func NewDenials(p plan.Plan, s egress.Summary) Denials {
	d := Denials{ReportedBy: []plan.Wall{}, Items: []Denial{}}
	if !Reports(p) {
		return d
	}
	d.ReportedBy, d.Count = append(d.ReportedBy, plan.WallNetwork), s.Denied
	for _, x := range s.Denials {
		d.Items = append(d.Items, newDenial(x))
	}
	return d
}

// NewNetwork gives the numbers of the network of p, nil where wall had none to count.
func NewNetwork(p plan.Plan, s egress.Summary) *Network {
	n := &Network{string(p.Network.Method), s.Opened, s.Failed, s.BytesIn, s.BytesOut, s.Dropped}
	switch {
	case p.Network.Method != plan.NetNone:
	case len(p.Network.Loopback)+len(p.Network.Publish) > 0:
		n.Method = "ports"
	default:
		return nil
	}
	return n
}

// Target is what was refused, as a profile names it. It comes from the command.
func (d Denial) Target() string {
	host := d.Name
	if host == "" {
		host = d.Addr
	}
	if d.Port == 0 {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(d.Port))
}

// mostLines bounds the lines about denials.
const mostLines = 5

// Lines tells a person what was refused, each thing in one line, and in the last what
// to do. What is shown comes from the command, and has to be made printable.
func (d Denials) Lines(profileName string) []string {
	var lines, add, inner []string
	for i, x := range d.Items {
		if i == mostLines {
			lines = append(lines, fmt.Sprintf("and %d more; --net-log and --json tell all", len(d.Items)-i))
			break
		}
		text := "refused " + x.Target()
		switch {
		case x.Target() == "": // not even a name could be read
			text = "refused what came by " + x.Via
		case x.Port == 0:
			text = "refused the name " + x.Target()
		case x.Name != "" && x.Addr != "":
			text += " with the address " + x.Addr
		}
		lines = append(lines, text+x.rest())
		if t := x.Target(); x.missing && plainHost(t) && !slices.Contains(add, t) && len(add) < 3 {
			add = append(add, t)
		}
		if t := net.JoinHostPort(x.Addr, strconv.Itoa(x.Port)); x.inner && plainHost(t) && !slices.Contains(inner, t) && len(inner) < 3 {
			inner = append(inner, t)
		}
	}
	if len(add) > 0 {
		lines = append(lines, "if the command is right to reach it: "+allowing(add, profileName))
	}
	if len(inner) > 0 {
		lines = append(lines, "if these addresses of an inner network are right, allow them as well: "+allowing(inner, profileName))
	}
	return lines
}

// allowing says what would allow hosts: a flag, or a line of a profile.
func allowing(hosts []string, profileName string) string {
	quoted := make([]string, len(hosts))
	for i, h := range hosts {
		quoted[i] = strconv.Quote(h)
	}
	return fmt.Sprintf("--allow-host %s, or allow = [%s] in the table [network] of the profile (here %s, or one that extends it)",
		strings.Join(hosts, " --allow-host "), strings.Join(quoted, ", "), profileName)
}

// rest is the end of a line: how often, why, and by which rule.
func (d Denial) rest() string {
	text := ": " + d.Reason
	if d.Count > 1 {
		text = fmt.Sprintf(" (%d times)", d.Count) + text
	}
	if d.Rule != "" {
		text += ", at " + d.Rule
	}
	return text
}

// Failures tells a person which connections that the rules allow could not be made, each
// in one line, as [Denials.Lines] does.
func Failures(s egress.Summary) []string {
	var lines []string
	for i, f := range s.Failures {
		if i == mostLines {
			lines = append(lines, fmt.Sprintf("and %d more that could not be made; --net-log tells all", len(s.Failures)-i))
			break
		}
		d := newDenial(f)
		text := "allowed, but could not be made: a connection to "
		switch d.Via {
		case egress.ViaLoopback:
			text += "port " + strconv.Itoa(d.Port) + " of the host"
		case egress.ViaPublish:
			text += "the published port " + strconv.Itoa(d.Port) + " of the command"
		default:
			text += d.Target()
		}
		lines = append(lines, text+d.rest())
	}
	return lines
}

// plainHost reports whether a host can be written in a profile as it is.
func plainHost(s string) bool {
	return s != "" && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789.:-[]") == ""
}

// DeniedError says that what was refused fails the run, as was asked for.
func (d Denials) DeniedError() *plan.Error {
	e := &plan.Error{Op: fmt.Sprintf("the command was refused %d connections or names, and --fail-on-denial fails it for that", d.Count), Exit: plan.ExitDenied,
		Hint: "allow what it needs, or keep it from trying"}
	if d.Count == 1 {
		e.Op = "the command was refused a connection or name, and --fail-on-denial fails it for that"
	}
	return e
}
