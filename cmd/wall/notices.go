package main

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// cautions are notices about a plan that leaves little of a wall standing. They
// come at every run: whoever reads a log a year later must see it there.
func cautions(p plan.Plan, h profile.Host) []plan.Notice {
	if p.Enforce == plan.EnforceOff {
		return []plan.Notice{{Text: `no wall is up: the command can do everything that you can (enforce = "off")`}}
	}
	var out []plan.Notice
	switch {
	case p.Enforce == plan.EnforceFS:
		out = append(out, plan.Notice{Text: `the wall of the network is down: the command reaches all that this host reaches, and the services on its loopback (enforce = "fs")`})
	case !slices.ContainsFunc(p.Spaces, func(s plan.Space) bool { return s.Kind == plan.SpaceNet }):
		if p.Landlock.Network {
			out = append(out, plan.Notice{Text: `the network is the host's: the command reaches every host that this one reaches, and its loopback, on the TCP ports of the profile (network = "host")`})
			break
		}
		out = append(out, plan.Notice{Text: `the network is the host's: the command reaches all that this host reaches, and the services on its loopback (network = "host")`})
	}
	if home := realHome(h); home != "" && writableAt(p.Mounts, home) {
		out = append(out, plan.Notice{Text: "the whole home directory is writable: the command can leave there what runs later, outside of the box (" + home + ")"})
	}
	return out
}

// realHome is the home directory of the account, free of links; "" when there is none.
func realHome(h profile.Host) string {
	home := h.AccountHome
	if home == "" {
		for _, v := range h.Environ {
			if value, ok := strings.CutPrefix(v, "HOME="); ok {
				home = value
			}
		}
	}
	if !path.IsAbs(home) {
		return ""
	}
	real, err := filepath.EvalSymlinks(home)
	if err != nil {
		return ""
	}
	return real
}

// writableAt reports whether the host's own file or directory p can be written
// inside: what is mounted last on it or on a parent decides.
func writableAt(mounts []plan.Mount, p string) bool {
	writable := false
	for _, m := range mounts {
		if !beneathAny(p, []string{m.Target}) {
			continue
		}
		switch m.Op {
		case plan.OpBind:
			writable = m.Access == plan.AccessWrite
		case plan.OpPin, plan.OpDir, plan.OpSymlink, plan.OpFile, plan.OpSeal:
			// The tree stays the one that it was; a seal is for trees of wall's own.
		default:
			writable = false
		}
	}
	return writable
}
