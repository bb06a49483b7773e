package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// anchor is the entry that stands for the file as a whole: the line that says
// what it extends or what it is called, or the first.
func (x *check) anchor() entry {
	for _, key := range []string{"extends", "name", "description"} {
		if own := x.m.mine(key); len(own) > 0 {
			return own[0]
		}
	}
	return entry{key: "version", val: "1", layer: x.m.top, origin: plan.Origin{File: x.src.Name, Line: 1, Column: 1, Text: strings.TrimSpace(x.lineText(1))}}
}

func noDescription(x *check) {
	if len(x.m.mine("description")) == 0 || strings.TrimSpace(x.m.get("description").val) == "" {
		e := x.anchor()
		x.at(e.origin, e.text(), "the profile has no description")
	}
}

func enforceOff(x *check) {
	for _, e := range x.m.mine("enforce") {
		if e.val == "off" {
			x.on(e, "no wall is up")
		}
	}
}

func degradeWithoutRequire(x *check) {
	if own := x.m.mine("if-unavailable"); len(own) > 0 && own[0].val == "degrade" && len(x.m.all("require")) == 0 {
		x.on(own[0], "every wall may be missing on some host")
	}
}

func nestedSandboxes(x *check) {
	for _, e := range x.m.mine("process.nested-sandboxes") {
		if e.val == "true" {
			x.on(e, "the command may create user namespaces")
		}
	}
}

func terminalInherited(x *check) {
	if own := x.m.mine("process.tty"); len(own) > 0 && own[0].val == "inherit" && !x.m.is("environment.base", "shell", "terminal") {
		x.on(own[0], "the command gets the caller's terminal")
	}
}

func gateLimits(x *check) {
	if !x.m.is("environment.base", "gate") || x.m.is("enforce", "off") {
		return
	}
	var missing []string
	for _, name := range []string{"time", "memory", "processes"} {
		if e := x.m.get("limits." + name); e.layer < 0 || e.val == "0" {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return
	}
	e := x.anchor()
	if own := x.m.ownOf("environment.base"); len(own) > 0 {
		e = own[0]
	}
	x.at(e.origin, e.text(), "the gate has no limit of "+strings.Join(missing, ", "))
}

// Hosts.

func (x *check) hosts(f func(e entry, host, port string)) {
	for _, e := range x.m.mine("network.allow") {
		if !e.empty {
			host, port := hostOf(e.val)
			f(e, host, port)
		}
	}
}

func publicSuffixes(x *check) {
	x.hosts(func(e entry, host, _ string) {
		switch name, wild := strings.CutPrefix(host, "*."); {
		case wide(e.val):
			x.on(e, fmt.Sprintf("%q covers addresses of unrelated owners", e.val))
		case wild && publicSuffix(name):
			x.on(e, fmt.Sprintf("%q covers names of unrelated owners", e.val))
		}
	})
}

// wide reports whether a network is larger than what one owner has: the registries
// give out nothing above a /8 of IPv4 and a /16 of IPv6.
func wide(pattern string) bool {
	p, err := profile.ParseHost(pattern)
	return err == nil && p.Prefix.IsValid() && (p.Prefix.Addr().Is4() && p.Prefix.Bits() < 8 || p.Prefix.Addr().Is6() && p.Prefix.Bits() < 16)
}

// contradictions finds hosts of the file that are allowed in vain: some line denies
// all of what is allowed.
func contradictions(x *check) {
	denies := patterns(x.m.all("network.deny"))
	for _, e := range patterns(x.m.mine("network.allow")) {
		for _, d := range denies {
			if d.host.Covers(true, e.host, false) {
				x.on(e.entry, fmt.Sprintf("%q is allowed, and denied by %q%s, which wins", e.val, d.val, x.where(d.entry)))
				break
			}
		}
	}
}

// uncheckedPorts finds rules for other ports than that of TLS where check-sni
// makes believe that every connection is looked at.
func uncheckedPorts(x *check) {
	if !x.m.is("network.check-sni", "true") {
		return
	}
	other := func(o hostEntry) bool { return o.host.Hi != 0 && (o.host.Lo != 443 || o.host.Hi != 443) }
	for _, e := range patterns(x.m.mine("network.allow")) {
		if other(e) {
			x.on(e.entry, fmt.Sprintf("%q has other ports than 443", e.val))
		}
	}
	if own := x.m.mine("network.check-sni"); len(own) > 0 {
		for _, o := range patterns(x.m.below("network.allow")) {
			if other(o) {
				x.on(own[0], fmt.Sprintf("%q has other ports than 443%s", o.val, x.where(o.entry)))
				break
			}
		}
	}
}

func uploadHosts(x *check) {
	x.hosts(func(e entry, host, _ string) {
		if u, ok := uploadHost(host); ok {
			x.on(e, fmt.Sprintf("%q takes uploads: %s", e.val, u.what))
		}
	})
}

func innerNetwork(x *check) {
	x.hosts(func(e entry, host, _ string) {
		if what := inward(host); what != "" {
			x.on(e, fmt.Sprintf("%q is %s", e.val, what))
		}
	})
}

func loopbackServices(x *check) {
	for _, e := range x.m.mine("network.loopback") {
		if i := slices.IndexFunc(rootPorts, func(p place) bool { return p.path == e.val }); !e.empty && i >= 0 {
			x.on(e, fmt.Sprintf("port %s of the host is usually %s", e.val, rootPorts[i].what))
		}
	}
}

// projectWidens finds what a project layer may not say.
func projectWidens(x *check) {
	if x.trusted {
		return
	}
	for i, c := range x.widened {
		// One line can take back a hundred: it is told once.
		same := func(o profile.Change) bool { return o.Key == c.Key && o.Origin == c.Origin }
		if i > 0 && same(x.widened[i-1]) {
			continue
		}
		n := 1
		for i+n < len(x.widened) && same(x.widened[i+n]) {
			n++
		}
		msg := c.String()
		if n > 1 {
			msg += fmt.Sprintf(", and %d more", n-1)
		}
		x.at(c.Origin, "", msg)
	}
}
