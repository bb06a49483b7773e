package profile

import (
	"errors"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// networkWall says that package nsexec carries out plan.Network.
const networkWall = false

// unavailable refuses what the profile asks for and this version cannot carry
// out. A key that changes nothing as things stand (allow without mode "allow")
// is not refused.
func (s *settings) unavailable() error {
	if networkWall || s.Enforce.V == string(plan.EnforceOff) {
		return nil
	}
	var errs []error
	refuse := func(key, needs, hint string, o plan.Origin) {
		errs = append(errs, unavailableError(key, needs, hint, o))
	}
	const ports = "remove the line, or share the host's network with --net host"
	switch s.Network.V {
	case "allow":
		refuse(`network.mode = "allow"`, needsNetwork, "run it with --net none (no network) or --net host (the whole network of the host)", s.Network.Origin)
	case "host":
		for _, h := range s.NetDeny.Items {
			refuse("network.deny", needsNetwork, "remove the line, or use --net none", h.Origin)
		}
	}
	if s.Network.V != "host" {
		for _, p := range s.Loopback.Items {
			refuse("network.loopback", needsPorts, ports, p.Origin)
		}
		for _, p := range s.Publish.Items {
			refuse("network.publish", needsPorts, ports, p.Origin)
		}
	}
	return errors.Join(errs...)
}

func unavailableError(key, needs, hint string, o plan.Origin) error {
	if o.File == "" && strings.HasPrefix(o.Text, "--") { // a flag has no line
		hint = strings.Replace(hint, "remove the line", "leave out "+o.Text, 1)
	}
	return &plan.Error{Op: "this version of wall cannot enforce " + key, Origin: o, Hint: hint, Err: &plan.UnsupportedError{Feature: needs}}
}
