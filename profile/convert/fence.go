package convert

import "strconv"

// fence converts a fence.json. Like srt it shows everything but denyRead, unless
// defaultDenyRead; denyRead beats allowRead and denyWrite beats allowWrite.
func fence(d *draft, root *node) {
	if f, ok := d.str(root, "extends"); ok {
		d.note(Lost, f, "%s is not read, with what it denies and allows: import it too, and name the result in \"extends\"", quote(f.text))
	}
	if fs := d.table(root, "filesystem"); fs != nil {
		f, deny := d.boolean(fs, "defaultDenyRead")
		if deny {
			d.view, d.home = "system", "scratch"
			d.note(Different, f, "view = \"system\": the operating system, the workspace and what is granted; the home is empty and gone after the run")
		}
		if f, strict := d.boolean(fs, "strictDenyRead"); strict {
			d.view, d.home = "system", "scratch"
			d.note(NoEquivalent, f, "a box always shows the operating system (/usr, libraries, parts of /etc), read-only")
		}
		for _, n := range d.strings(fs, "allowWrite") {
			d.path(n, native(n.text), forWrite)
		}
		for _, n := range d.strings(fs, "denyWrite") {
			d.path(n, native(n.text), forProtect)
		}
		for _, n := range d.strings(fs, "denyRead") {
			d.path(n, native(n.text), forHide)
		}
		for _, n := range d.strings(fs, "allowRead") {
			d.path(n, native(n.text), forRead)
		}
		for _, n := range d.strings(fs, "allowExecute") {
			if d.view == "host" {
				continue // visible anyway, and what is visible can be executed
			}
			d.note(NoEquivalent, n, "%s: wall has no right to execute without reading; grant it with access = \"read\" when that is acceptable", quote(n.text))
		}
		if f, on := d.boolean(fs, "allowGitConfig"); on {
			if d.view == "system" {
				d.path(f, "~/.gitconfig", forRead)
				d.path(f, "~/.config/git", forRead)
			}
			d.note(Different, f, "the user's git configuration is readable; that of the repository stays protected")
		}
		d.denyWins()
		d.none(fs, "wslInterop", "a box has no way to start Windows programs")
	}
	if net := d.table(root, "network"); net != nil {
		for _, n := range d.strings(net, "allowedDomains") {
			d.host(n, &d.allow, "allow", n.text)
		}
		for _, n := range d.strings(net, "deniedDomains") {
			d.host(n, &d.deny, "deny", n.text)
		}
		d.fenceLocal(net)
		d.finishNetwork(net)
		d.sockets(net)
		if f, ok := d.oneOf(net, "defaultAction", "deny", "proxy"); ok && f.text == "proxy" {
			d.note(NoEquivalent, f, "what is not allowed is refused")
		}
		for _, name := range []string{"httpProxyPort", "socksProxyPort", "upstreamProxy"} {
			d.none(net, name, "wall uses no other proxy")
		}
	}
	if dev := d.table(root, "devices"); dev != nil {
		if f, ok := d.oneOf(dev, "mode", "auto", "minimal", "host"); ok && f.text == "host" {
			d.note(NoEquivalent, f, "a box has a minimal /dev of its own; list the devices that are needed")
		}
		for _, n := range d.strings(dev, "allow") {
			if err := accepts("filesystem", "devices = ["+quote(n.text)+"]"); err != nil {
				d.note(NotUnderstood, n, "%s: %s", quote(n.text), reason(err))
				continue
			}
			add(&d.devices, n.text)
		}
	}
	if f, on := d.boolean(root, "allowPty"); f != nil && !on {
		d.note(NoEquivalent, f, "a box always has pseudo-terminals of its own")
	}
	if f, on := d.boolean(root, "forceNewSession"); f != nil && !on {
		d.note(Different, f, "process.tty decides about the terminal; the safe default stays")
	}
	for _, name := range []string{"command", "ssh"} {
		d.none(root, name, "wall does not judge commands by their text, which any script gets around; what a command may touch is in the other tables")
	}
	d.unrelated(root, "$schema", "macos")
}

func (d *draft) fenceLocal(net *node) {
	if f, on := d.boolean(net, "allowLocalBinding"); on {
		d.note(Different, f, "a box can always listen on its own loopback interface; network.publish lets the host reach a port")
	}
	outbound, on := d.boolean(net, "allowLocalOutbound")
	f := net.get("allowLocalOutboundPorts")
	if f != nil {
		f.seeAll()
		if f.kind != array {
			d.fail(f, "%s must be an array of ports, not %s", f.key, f.kind)
			return
		}
		for _, x := range f.items {
			port, err := strconv.Atoi(x.text)
			if x.kind != number || err != nil || port < 1 || port > 65535 {
				d.fail(x, "%s must be a port from 1 to 65535", x.key)
				continue
			}
			if s := strconv.Itoa(port); accepts("network", "mode = \"allow\"\nloopback = ["+s+"]") == nil {
				add(&d.loopback, s)
			} else {
				d.note(NoEquivalent, x, "a box cannot reach the host's loopback port %s", s)
			}
		}
		if outbound != nil && !on {
			d.loopback = nil
			d.note(Different, f, "allowLocalOutbound is false, so that no port is reachable")
		}
	}
	if on && (f == nil || len(f.items) == 0) {
		d.note(NoEquivalent, outbound, "the host's loopback is reachable port by port only: list the ports in network.loopback")
	}
}
