package convert

import "strings"

// srt converts the settings of sandbox-runtime. Everything is readable there but
// denyRead, nothing writable but allowWrite, no host reachable but
// allowedDomains; denyWrite beats allowWrite, and allowRead beats denyRead.
func srt(d *draft, root *node) {
	d.runtime(root)
	d.denyWins()
	d.none(root, "enableWeakerNestedSandbox", "wall builds the whole box or, with if-unavailable = \"degrade\", says what is missing")
	d.none(root, "mandatoryDenySearchDepth", "wall protects names, wherever they are listed; nothing is searched")
	d.none(root, "seccomp", "wall has its filters built in; process.seccomp chooses one")
	d.none(root, "bwrapPath", "wall starts no other program")
	d.none(root, "socatPath", "wall starts no other program")
	d.none(root, "javaAgentJarPath", "wall needs no agent in a JVM")
	d.none(root, "git", "set safe.directory in the git configuration that the box shows")
	if f, on := d.boolean(root, "allowPty"); f != nil && !on {
		d.note(NoEquivalent, f, "a box always has pseudo-terminals of its own")
	} else if f != nil {
		d.note(Different, f, "a box always has pseudo-terminals of its own")
	}
	d.unrelated(root, "$schema", "ignoreViolations", "ripgrep", "windows", "enableWeakerNetworkIsolation", "allowAppleEvents")
}

// runtime converts what srt has at its top level and claude in "sandbox".
func (d *draft) runtime(root *node) {
	if fs := d.table(root, "filesystem"); fs != nil {
		d.runtimeFiles(fs)
	}
	if net := d.table(root, "network"); net != nil {
		d.runtimeNetwork(net)
	}
	if cred := d.table(root, "credentials"); cred != nil {
		d.credentials(cred)
	}
}

func (d *draft) runtimeFiles(fs *node) {
	if f, off := d.boolean(fs, "disabled"); off {
		d.note(Different, f, "the file wall stays up; enforce = \"off\" takes down all walls")
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
		p := clean(native(n.text))
		d.path(n, p, forRead)
		if i := len(d.grants) - 1; i >= 0 && d.grants[i].from == n {
			d.grants[i].back = true
		}
		for _, h := range d.hide {
			if h == p || strings.HasPrefix(h, p+"/") {
				d.note(Different, n, "%s: what is hidden at or below it stays hidden: in a profile the most specific path wins, and hide at the same one", quote(p))
				break
			}
		}
	}
	if f, on := d.boolean(fs, "allowGitConfig"); on {
		d.note(NoEquivalent, f, "git's configuration and hooks stay protected: what is written there runs outside")
	}
}

func (d *draft) runtimeNetwork(net *node) {
	for _, n := range d.strings(net, "allowedDomains") {
		d.host(n, &d.allow, "allow", n.text)
	}
	for _, n := range d.strings(net, "deniedDomains") {
		d.host(n, &d.deny, "deny", n.text)
	}
	d.finishNetwork(net)
	d.sockets(net)
	if f, on := d.boolean(net, "allowLocalBinding"); on {
		d.note(Different, f, "a box can always listen on its own loopback interface; network.publish lets the host reach a port")
	}
	for _, name := range []string{"httpProxyPort", "socksProxyPort", "mitmProxy", "tlsTerminate", "parentProxy", "filterRequest"} {
		d.none(net, name, "wall takes no part in TLS and uses no other proxy")
	}
	d.none(net, "allowMachLookup", "macOS only")
	d.unrelated(net, "deniedDomainReasons", "strictAllowlist")
}

// sockets notes Unix sockets, which are not taken over: many of them are as good
// as root.
func (d *draft) sockets(net *node) {
	for _, n := range d.strings(net, "allowUnixSockets") {
		d.note(NoEquivalent, n, "%s: not taken over, because a socket can be as good as root; after a look, grant the path with access = \"write\" and the reason", quote(n.text))
	}
	if f, on := d.boolean(net, "allowAllUnixSockets"); on {
		d.note(NoEquivalent, f, "the sockets of the host stay covered; grant those that are needed by path")
	}
}

func (d *draft) credentials(cred *node) {
	for _, part := range []string{"files", "envVars"} {
		f := cred.get(part)
		if f == nil {
			continue
		}
		if f.kind != array {
			f.seeAll()
			d.fail(f, "%s must be an array of objects, not %s", f.key, f.kind)
			continue
		}
		for _, x := range f.items {
			x.seen = true
			if x.kind != object {
				d.fail(x, "%s must be %s, not %s", x.key, object, x.kind)
				continue
			}
			name := "path"
			if part == "envVars" {
				name = "name"
			}
			n, ok := d.str(x, name)
			mode, hasMode := d.oneOf(x, "mode", "deny", "mask")
			if !ok || !hasMode {
				if x.get(name) == nil || x.get("mode") == nil {
					d.fail(x, "%s needs %q and \"mode\"", x.key, name)
				}
				continue
			}
			if part == "files" {
				d.path(n, native(n.text), forHide)
			} else {
				if !d.envPattern(n, &d.envDeny, "deny", n.text) {
					d.scrub = "strict" // so that it does not cross
				}
			}
			if mode.text == "mask" {
				x.seeAll()
				d.note(Different, x, "%s is kept out of the box altogether: wall does not put it into requests", quote(n.text))
			}
		}
	}
	d.none(cred, "awsPairs", "wall does not sign requests")
	d.none(cred, "allowPlaintextInject", "wall does not put credentials into requests")
}

// native gives a path of srt in the spelling of wall: relative paths mean the
// workspace in both.
func native(p string) string {
	if strings.HasPrefix(p, "//") {
		p = p[1:] // claude's older spelling of an absolute path
	}
	return p
}
