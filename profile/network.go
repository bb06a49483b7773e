package profile

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// Bounds of the network of one box, which no key changes. A test suite or an agent
// has a few dozen connections at one time; an hour is longer than any server keeps
// a silent one.
const (
	maxConnections = 512
	idleTime       = 3600 * second
)

// The usual ports of proxies, for HTTP (Squid's) and for SOCKS (RFC 1928).
const (
	httpProxyPort  = 3128
	socksProxyPort = 1080
)

// dnsPort leads to wall with mode "allow", whatever the address is.
const dnsPort = 53

// lowestPort is the first one that needs no capability to listen on, in a network
// namespace that nobody set up otherwise (net.ipv4.ip_unprivileged_port_start).
const lowestPort = 1024

// ownNetwork reports whether the box has a network namespace.
func (r *resolver) ownNetwork() bool { return r.s.Network.V != "host" }

// network plans what the command reaches beyond its own loopback interface.
func (r *resolver) network() error {
	if !r.ownNetwork() {
		return nil
	}
	r.allowsInVain()
	n := plan.Network{Loopback: portGrants(r.s.Loopback.Items), Publish: portGrants(r.s.Publish.Items), Origin: r.s.Network.Origin}
	var err error
	if r.s.Network.V == "allow" {
		n.Method = plan.NetRedirect
		n.Allow, n.Deny = hostRules(r.s.NetAllow.Items, false), hostRules(r.s.NetDeny.Items, true)
		n.HTTP = freePort(httpProxyPort, n, 0)
		n.SOCKS = freePort(socksProxyPort, n, n.HTTP)
		n.CheckSNI = r.s.CheckSNI.V
		if v := r.s.UpstreamProxy; v.V != "" {
			n.Upstream = plan.Upstream{URL: v.V, Origin: v.Origin}
		}
		if cause := r.h.NoRedirect; cause != nil {
			n.Method = plan.NetProxy
			err = r.lost(plan.WallNetwork, "programs that ignore proxy variables reach no host", r.s.Network.Origin, cause,
				"the kernel needs nftables: as root, modprobe -a nf_tables nft_chain_nat nft_redir nft_reject_ipv4 nft_reject_ipv6; \"wall doctor\" tells what is missing")
		}
	}
	if n.Method == plan.NetNone && len(n.Loopback)+len(n.Publish) == 0 {
		return nil
	}
	n.Connections, n.Idle = maxConnections, idleTime
	r.p.Network = n
	return err
}

// allowsInVain tells of a profile that lists hosts and forgets the mode: a built-in
// profile below it has said "none". Where a mode is the operator's own, or a phase
// sets one, the list may wait for that.
func (r *resolver) allowsInVain() {
	builtIn := func(o plan.Origin) bool { return o == def || strings.HasPrefix(o.File, "built-in:") }
	mine := slices.IndexFunc(r.s.NetAllow.Items, func(it Item[HostPattern]) bool { return !builtIn(it.Origin) })
	if r.s.Network.V != "none" || r.p.Enforce != plan.EnforceFSNet || mine < 0 || !builtIn(r.s.Network.Origin) ||
		slices.ContainsFunc(r.st.Phases(), func(p Phase) bool { return p.File.Network.Set }) {
		return
	}
	r.p.Notices = append(r.p.Notices, plan.Notice{Origin: r.s.NetAllow.Items[mine].Origin,
		Text: "no host is reached: network.allow lists some, and the network mode is \"none\", by " + place(r.s.Network.Origin),
		Hint: "add mode = \"allow\" to the table [network]"})
}

// hostsFile puts another file in the place of /etc/hosts where wall answers lookups:
// programs look there first, would find the addresses of allowed hosts themselves,
// and no rule for a name allows an address. wall looks in the host's file when it
// connects. What is left are the names of the box itself.
func (r *resolver) hostsFile() []plan.Mount {
	l := r.t.walk("/etc/hosts")
	if r.p.Network.Method != plan.NetRedirect || !l.exists() || !l.mode.IsRegular() {
		return nil
	}
	const loopback = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
	text := loopback
	if b, _, err := r.t.readFile("/proc/sys/kernel/hostname", 256); err == nil {
		name, _ := strings.CutSuffix(string(b), "\n")
		if badHostName(strings.ToLower(name)) == "" {
			text += "127.0.1.1 " + name + "\n"
		}
	}
	return []plan.Mount{{Op: plan.OpText, Target: l.path, Source: text, Optional: true, Origin: r.s.Network.Origin}}
}

// refused reports what the profile says of the network and cannot be kept, whatever
// the host is. With enforce = "fs" the operator took that wall down.
func (s *settings) refused() error {
	if s.Enforce.V != string(plan.EnforceFSNet) {
		return nil
	}
	var errs []error
	refuse := func(op string, o plan.Origin, cause, hint string) {
		errs = append(errs, &plan.Error{Op: op, Origin: o, Err: errors.New(cause), Hint: hint})
	}
	if s.Network.V != "allow" {
		for _, it := range s.NetAllow.Items {
			if it.flag { // in a file it may wait for the mode
				refuse("cannot let a host be reached", it.Origin, "the network mode is "+strconv.Quote(s.Network.V), "add --net allow")
				break
			}
		}
	}
	if s.Network.V == "host" && s.Ports.Set {
		for _, it := range s.Loopback.Items {
			if it.flag && !slices.ContainsFunc(s.Ports.Items, func(p Item[uint16]) bool { return p.V == it.V }) {
				refuse("cannot let port "+strconv.Itoa(int(it.V))+" of the host's loopback interface in", it.Origin, "the ports that the network of the host is limited to do not have it, by "+place(s.Ports.Origin), "add it to network.ports, which is for every address")
			}
		}
	}
	if s.Network.V == "host" {
		shared := "the network is the host's, by " + place(s.Network.Origin)
		const hint = `remove the line, or use mode = "allow" or "none"`
		for _, h := range s.NetDeny.Items {
			refuse("cannot enforce network.deny", h.Origin, shared, hint)
		}
		if s.CheckSNI.V {
			refuse("cannot enforce network.check-sni", s.CheckSNI.Origin, shared, hint)
		}
		return errors.Join(errs...)
	}
	if s.Network.V == "allow" {
		for _, q := range s.Loopback.Items {
			if q.V == dnsPort {
				refuse("cannot let port 53 of the host's loopback interface in", q.Origin, "with network mode \"allow\" wall answers DNS queries there", "remove the line: every query is answered, whichever server it is for")
			}
		}
	}
	for _, p := range portGrants(s.Publish.Items) {
		if p.Port < lowestPort {
			refuse("cannot publish port "+strconv.Itoa(p.Port), p.Origin, "nothing in a box can listen on a port below "+strconv.Itoa(lowestPort)+", which needs a right that it does not have", "have the command listen on a higher port, and publish that")
		}
		for _, q := range s.Loopback.Items {
			if int(q.V) == p.Port {
				refuse("cannot publish port "+strconv.Itoa(p.Port), p.Origin, "inside, that port leads to the loopback interface of the host, by "+place(q.Origin), "remove one of the two")
				break
			}
		}
	}
	return errors.Join(errs...)
}

// hostPorts limits a network that is the host's to the ports of the profile, by
// Landlock: TCP from ABI 4 on, UDP as well from ABI 10 on, where names can be looked
// up besides. The command can listen where the kernel chooses the port, and on
// published ones.
func (r *resolver) hostPorts() error {
	if r.s.Network.V != "host" || !r.s.Ports.Set || r.p.Enforce != plan.EnforceFSNet {
		return nil
	}
	if abi := r.h.LandlockABI; abi < landlockTCP {
		cause := r.h.LandlockErr
		if cause == nil || abi > 0 {
			cause = &plan.UnsupportedError{Feature: "limiting TCP by Landlock", Need: "ABI 4 (Linux 6.7)", Have: "ABI " + strconv.Itoa(abi)}
		}
		return r.lost(plan.WallLandlock, "the ports of other hosts are not limited", r.s.Ports.Origin, cause, "use a newer kernel, or mode \"allow\", which needs none of it")
	}
	r.p.Landlock.Network = true
	add := func(port int, o plan.Origin, ops ...plan.PortOp) {
		for _, op := range ops {
			r.p.Landlock.Ports = append(r.p.Landlock.Ports, plan.PortRule{Op: op, Port: port, Origin: o})
		}
	}
	add(0, r.s.Ports.Origin, plan.PortBindTCP, plan.PortBindUDP)
	add(dnsPort, r.s.Ports.Origin, plan.PortConnectUDP)
	for _, p := range portGrants(r.s.Ports.Items) {
		add(p.Port, p.Origin, plan.PortConnectTCP, plan.PortConnectUDP)
	}
	for _, p := range portGrants(r.s.Publish.Items) {
		add(p.Port, p.Origin, plan.PortBindTCP, plan.PortBindUDP)
	}
	return nil
}

// landlockTCP is the Landlock ABI from which on it limits TCP.
const landlockTCP = 4

// portGrants gives each port once, in ascending order, by the lowest line that has it.
func portGrants(items []Item[uint16]) []plan.PortGrant {
	var out []plan.PortGrant
	for _, it := range items {
		out = append(out, plan.PortGrant{Port: int(it.V), Origin: it.Origin})
	}
	slices.SortStableFunc(out, func(a, b plan.PortGrant) int { return a.Port - b.Port })
	return slices.CompactFunc(out, func(a, b plan.PortGrant) bool { return a.Port == b.Port })
}

// hostRules gives each rule once, in the order of the layers.
func hostRules(items []Item[HostPattern], deny bool) []plan.HostRule {
	var out []plan.HostRule
	seen := map[string]bool{}
	for _, it := range items {
		r := plan.HostRule{Name: it.V.Name, Suffix: it.V.Suffix, Ports: it.V.HostPorts(deny), Origin: it.Origin}
		if r.Name == "" {
			r.Prefix = it.V.Prefix.String()
		}
		if s := r.String(); !seen[s] {
			seen[s] = true
			out = append(out, r)
		}
	}
	return out
}

// freePort gives the first port from p on that the profile does not use.
func freePort(p int, n plan.Network, other int) int {
	uses := func(q plan.PortGrant) bool { return q.Port == p }
	for p == other || slices.ContainsFunc(n.Loopback, uses) || slices.ContainsFunc(n.Publish, uses) {
		if p++; p > 65535 {
			p = 1024
		}
	}
	return p
}

// proxyVars are what programs read that can speak to a proxy. curl reads http_proxy
// in lower case alone; Node looks at none of them without its own variable. ALL_PROXY
// names the HTTP proxy as well: it carries any TCP connection by CONNECT, and clients
// without support for SOCKS fail at a "socks5h://", also where they would not use it.
func proxyVars(http int) [][2]string {
	url := "http://127.0.0.1:" + strconv.Itoa(http)
	var out [][2]string
	for _, v := range [][2]string{{"ALL_PROXY", url}, {"HTTPS_PROXY", url}, {"HTTP_PROXY", url}, {"NO_PROXY", "localhost,127.0.0.1,::1"}} {
		out = append(out, v, [2]string{strings.ToLower(v[0]), v[1]})
	}
	return append(out, [2]string{"NODE_USE_ENV_PROXY", "1"})
}

// callersProxy tells that proxy variables of the caller cross, which lead programs to
// a host that the box may not reach.
func (r *resolver) callersProxy() {
	if r.p.Network.Method != plan.NetRedirect {
		return
	}
	var names []string
	for _, v := range r.p.Env {
		upper := strings.ToUpper(v.Name)
		if slices.Contains([]string{"ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"}, upper) && v.Source.IsZero() && v.Value != "" && lookup(r.h.Environ, v.Name) == v.Value &&
			!slices.Contains([]string{reasonSet, reasonFixed, reasonInjected}, v.Reason) {
			names = append(names, v.Name)
		}
	}
	if len(names) > 0 {
		r.p.Notices = append(r.p.Notices, plan.Notice{Origin: r.p.Network.Origin,
			Text: strings.Join(names, ", ") + " of the caller cross, and programs that obey them reach nothing but that proxy, where a rule allows it",
			Hint: "deny them (environment.deny), and name the proxy as network.upstream-proxy where wall itself needs it"})
	}
}

// badProxy says what is wrong with the address of an upstream proxy. The message
// does not repeat it: someone may have written a password into it.
func badProxy(s string) string {
	rest, ok := strings.CutPrefix(s, "http://")
	switch {
	case !ok && strings.Contains(s, "://"):
		return "must begin with http://: wall speaks to a proxy over HTTP alone"
	case !ok:
		return "must begin with http://"
	case strings.Contains(rest, "@"):
		return "cannot have a user and password: they would be seen wherever the plan is"
	case strings.ContainsAny(rest, "/?#"):
		return "has nothing behind the port"
	}
	h, msg := parseHost(rest)
	switch {
	case msg != "":
		return "is no address of a proxy: " + msg
	case h.Suffix || h.Prefix != (netip.Prefix{}) && !h.Prefix.IsSingleIP() || strings.Contains(rest, "/"):
		return "must name one host"
	case h.Lo == 0 || h.Lo != h.Hi:
		return "must name one port"
	case "http://"+h.String() != s:
		return "is not in its usual spelling: write http://" + h.String()
	}
	return ""
}
