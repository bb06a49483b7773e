package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// summarize tells the most important of a plan in a few lines. workspace and home
// are host paths free of links, home "" when the account has none. Of variables
// there are names only.
func summarize(p plan.Plan, workspace, home string) string {
	var b strings.Builder
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", what, oneLine(fmt.Sprintf(format, args...)))
	}
	line("command", "%s in %s (profile %s, enforce %s)", quoteOdd(p.Command.Path), quoteOdd(p.Command.Dir), quoteOdd(p.Profile), p.Enforce)
	if p.Enforce == plan.EnforceOff {
		line("files", "everything that you can read and write")
		line("network", "the host's")
		line("syscalls", "not filtered")
	} else {
		access := "read-only"
		if writableAt(p.Mounts, workspace) {
			access = "writable"
		}
		line("workspace", "%s, %s", quoteOdd(workspace), access)
		readable := "only the system and what is granted"
		if len(p.Mounts) > 0 && p.Mounts[0].Op == plan.OpHostRoot {
			readable = "the whole host"
		}
		hidden := targets(p.Mounts, func(m plan.Mount) bool {
			return m.Op == plan.OpCover && !beneathAny(m.Target, []string{"/proc", "/sys"})
		})
		if len(hidden) > 0 {
			readable += ", but for " + counted(hidden, "hidden place")
		}
		line("readable", "%s", readable)
		line("writable", "%s", writablePlaces(p))
		if layers := targets(p.Mounts, func(m plan.Mount) bool { return m.Op == plan.OpOverlay }); len(layers) > 0 {
			text := counted(layers, "private layer")
			if p.Scratch.Kept.Path != "" {
				text += ", kept for this workspace"
			}
			line("caches", "%s", text)
		}
		line("protected", "%s", counted(targets(p.Mounts, func(m plan.Mount) bool {
			return m.Op == plan.OpProtect && !beneathAny(m.Target, []string{"/proc", "/sys"})
		}), "place"))
		line("home", "%s", homeInside(p, home))
		line("network", "%s", networkInside(p))
		filter := "filter " + quoteOdd(p.Seccomp.Profile)
		if p.Seccomp.Profile == "" {
			filter = "not filtered"
		}
		line("syscalls", "%s", filter)
	}
	var cross []string
	made := 0
	for _, v := range p.Env {
		if crosses(v) {
			cross = append(cross, quoteOdd(v.Name))
		} else {
			made++
		}
	}
	names := "none"
	if len(cross) > 0 {
		names = strings.Join(cross, " ")
	}
	line("variables", "%s from the caller; %d made for the box; %d stay outside", names, made, len(p.Dropped))
	for _, d := range p.Degraded {
		line("degraded", "%s", strings.TrimPrefix(degradedLine(d), "degraded: "))
	}
	for _, n := range p.Notices {
		line("notice", "%s", n.Text)
	}
	return b.String()
}

// crosses reports whether a variable has the caller's value.
func crosses(v plan.EnvVar) bool { return fromWhere(v) == fromCaller }

// targets are the targets of the mounts that f picks, each once.
func targets(mounts []plan.Mount, f func(plan.Mount) bool) []string {
	var out []string
	for _, m := range mounts {
		if f(m) && !slices.Contains(out, m.Target) {
			out = append(out, m.Target)
		}
	}
	return out
}

// counted gives the number of paths and the first of them.
func counted(paths []string, what string) string {
	const most = 4
	switch len(paths) {
	case 0:
		return "none"
	case 1:
		return "1 " + what + ": " + quoteOdd(paths[0])
	}
	shown := make([]string, 0, most)
	for _, p := range paths[:min(most, len(paths))] {
		shown = append(shown, quoteOdd(p))
	}
	text := fmt.Sprintf("%d %ss: %s", len(paths), what, strings.Join(shown, " "))
	if len(paths) > most {
		text += " ..."
	}
	return text
}

// writablePlaces tells what the command can write to, on the host and for itself.
func writablePlaces(p plan.Plan) string {
	sealed := targets(p.Mounts, func(m plan.Mount) bool { return m.Op == plan.OpSeal })
	host := targets(p.Mounts, func(m plan.Mount) bool { return m.Op == plan.OpBind && m.Access == plan.AccessWrite })
	own := targets(p.Mounts, func(m plan.Mount) bool {
		return (m.Op == plan.OpScratch || m.Op == plan.OpTmpfs) && !slices.Contains(sealed, m.Target)
	})
	for i := range host {
		host[i] = quoteOdd(host[i])
	}
	for i := range own {
		own[i] = quoteOdd(own[i])
	}
	text := "nothing of the host"
	if len(host) > 0 {
		text = strings.Join(host, " ")
	}
	if len(own) > 0 {
		text += "; private to the run: " + strings.Join(own, " ")
	}
	return text
}

// networkInside tells what the command reaches.
func networkInside(p plan.Plan) string {
	if !slices.ContainsFunc(p.Spaces, func(s plan.Space) bool { return s.Kind == plan.SpaceNet }) {
		if !p.Landlock.Network {
			return "the host's"
		}
		var ports []string
		for _, r := range p.Landlock.Ports {
			if r.Op == plan.PortConnectTCP {
				ports = append(ports, strconv.Itoa(r.Port))
			}
		}
		if ports == nil {
			return "the host's, without any TCP port of other hosts"
		}
		return "the host's, TCP ports " + strings.Join(ports, " ") + " alone"
	}
	names := func(list []plan.HostRule) []string {
		var out []string
		for _, r := range list {
			name := r.Name + r.Prefix
			if r.Suffix {
				name = "*." + name
			}
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
		return out
	}
	ports := func(list []plan.PortGrant) string {
		var out []string
		for _, p := range list[:min(8, len(list))] {
			out = append(out, strconv.Itoa(p.Port))
		}
		if len(list) > 8 {
			out = append(out, "...")
		}
		return strings.Join(out, " ")
	}
	n := p.Network
	var parts []string
	switch n.Method {
	case plan.NetRedirect:
		parts = append(parts, counted(names(n.Allow), "host"))
	case plan.NetProxy:
		parts = append(parts, counted(names(n.Allow), "host")+", for programs that use a proxy")
	default:
		parts = append(parts, "none, but a loopback interface of its own")
	}
	if len(n.Deny) > 0 {
		parts = append(parts, "denied: "+counted(names(n.Deny), "host"))
	}
	if n.Upstream.URL != "" {
		parts = append(parts, "by way of "+n.Upstream.URL)
	}
	if len(n.Loopback) > 0 {
		parts = append(parts, "loopback of the host: "+ports(n.Loopback))
	}
	if len(n.Publish) > 0 {
		parts = append(parts, "published: "+ports(n.Publish))
	}
	return strings.Join(parts, "; ")
}

// homeInside tells what stands at the home directory.
func homeInside(p plan.Plan, home string) string {
	if home == "" {
		return "the account has none"
	}
	op := plan.OpEmptyRoot
	at := "/"
	for _, m := range p.Mounts {
		if !beneathAny(home, []string{m.Target}) {
			continue
		}
		switch m.Op {
		case plan.OpPin, plan.OpSeal, plan.OpDir, plan.OpSymlink, plan.OpFile:
		default:
			op, at = m.Op, m.Target
		}
	}
	switch op {
	case plan.OpHostRoot, plan.OpBind, plan.OpProtect:
		if writableAt(p.Mounts, home) {
			return "the real one, writable"
		}
		return "the real one, read-only"
	case plan.OpScratch:
		if at != home {
			return "not there"
		}
		if n := len(p.Scratch.Seeds); n > 0 {
			return fmt.Sprintf("a private one, removed at the end, with a copy of up to %d files", n)
		}
		return "a private one, removed at the end"
	}
	if at == home {
		return "hidden, but for what is granted"
	}
	return "not there"
}
