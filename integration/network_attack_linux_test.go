package integration_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A trap listens on the ports of the launcher's own network, on every address,
// where no box must get to.
type trap struct {
	mu     sync.Mutex
	caught []string
}

func newTrap(t *testing.T, ports ...int) *trap {
	t.Helper()
	tr := &trap{}
	for _, port := range ports {
		l, err := tcpListener(port)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				tr.mu.Lock()
				tr.caught = append(tr.caught, c.LocalAddr().String())
				tr.mu.Unlock()
				_, _ = c.Read(make([]byte, 1024)) // what is not read becomes a reset
				fmt.Fprintf(c, "HTTP/1.0 200 OK\r\n\r\nreached %s\n", c.LocalAddr())
				c.Close()
			}
		}()
	}
	return tr
}

// sprung fails the test for every connection that came.
func (tr *trap) sprung(t *testing.T) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, s := range tr.caught {
		t.Errorf("the launcher's own %s was reached", s)
	}
}

// short names for what the kernel says when a packet is refused at once.
const (
	refusedTCP = "ECONNREFUSED|ECONNRESET|EPIPE|ENETUNREACH|EHOSTUNREACH|EACCES|EPERM"
	refusedUDP = "ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|EACCES|EPERM"
)

// TestNetworkSockets: no kind of socket gets a packet to anywhere but the
// allowed names, and none waits for an answer that does not come.
func TestNetworkSockets(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	need(t, "ip", "nft")
	newTrap(t, 7777)
	tr := newTrap(t, 80, 443, 5432)
	v := newVictim(t)
	type attack struct{ op, bare, boxed string }
	rows := []attack{
		{"reach web.test 80", "ok reached", "ok reached"},
		{"reach web.test 80 tcp6", "ok reached", "ok reached"},
		{"reach web.test 8080", "ok reached", refusedTCP},
		{"reach other.test 80", "ok reached", "error"},
		{"talk " + webV4 + " 80", "ok reached", refusedTCP},
		{"talk " + webV6 + " 80", "ok reached", refusedTCP},
		{"talk ::ffff:" + webV4 + " 80", "ok reached", refusedTCP},
		{"talk " + webV4 + " 1", "ECONNREFUSED", refusedTCP},
		{"talk 169.254.169.254 80", "ok reached", refusedTCP},
		{"talk fd00:ec2::254 80", "ok reached", refusedTCP},
		{"talk ::ffff:169.254.169.254 80", "ok reached", refusedTCP},
		{"talk 64:ff9b::a9fe:a9fe 80", "ok reached", refusedTCP},
		{"talk 10.0.0.5 80", "ok reached", refusedTCP},
		{"talk 192.0.2.1 80", "ok reached", refusedTCP},
		{"talk 2001:db8::1 80", "ok reached", refusedTCP},
		{"talk 198.18.0.1 80", "ok reached", refusedTCP + "|ok reached"}, // may be web.test's
		{"talk 198.18.200.200 80", "ok reached", refusedTCP},
		{"talk 198.19.255.255 80", "ok reached", refusedTCP},
		{"talk fd77:616c:6c00::ffff 80", "ok reached", refusedTCP},
		{"talk " + ownV4 + " 7777", "ok", refusedTCP},
		{"talk " + ownV6 + " 7777", "ok", refusedTCP},
		{"talk 127.0.0.1 7777", "ok", "ECONNREFUSED"},
		{"talk ::1 7777", "ok", "ECONNREFUSED"},
		{"talk 127.9.9.9 7777", "ok", "ECONNREFUSED"},
		{"talk 0.0.0.0 7777", "ok", refusedTCP},
		{"talk :: 7777", "ok", refusedTCP},
		{"talk ::ffff:127.0.0.1 7777", "ok", "ECONNREFUSED"},
		{"talk ::ffff:0.0.0.0 7777", "-", refusedTCP},
		{"talk fe80::1%lo 80", "-", refusedTCP + "|EINVAL"},
		{"talk fe80::1 80", "-", refusedTCP + "|EINVAL"},
		{"talk 224.0.0.1 80", "-", refusedTCP},
		{"talk ff02::1 80", "-", refusedTCP + "|EINVAL"},
		{"talk 255.255.255.255 80", "-", refusedTCP},
		{"talk 240.0.0.1 80", "-", refusedTCP},
		{"talk " + webV4 + " 80 lo", "-", refusedTCP}, // bound to the device
		{"fastopen " + webV4 + " 80", "-", refusedTCP + "|ok|ENOTSUP"},
		{"connect-mptcp " + webV4 + " 80", "-", "EPROTONOSUPPORT|ENOPROTOOPT"},

		// UDP, also to the ports of DNS and QUIC. Only a question to port 53 is answered.
		{"ask-udp " + webV4 + " 9999", "ok", refusedUDP},
		{"ask-udp " + webV6 + " 9999", "ok", refusedUDP},
		{"ask-udp " + webV4 + " 443", "ok", refusedUDP},
		{"ask-udp 169.254.169.254 443", "ok", refusedUDP},
		{"ask-udp " + ownV4 + " 443", "-", refusedUDP},
		{"ask-udp ::ffff:" + webV4 + " 9999", "ok", refusedUDP},
		{fmt.Sprintf("ask-udp 127.0.0.1 %d", v.udp4), "ok", "ECONNREFUSED"},
		{"ask-udp 127.8.8.8 443", "-", "ECONNREFUSED"},
		{"send-udp 224.0.0.251 5353", "-", refusedUDP + "|ok"},
		{"send-udp ff02::fb 5353", "-", refusedUDP + "|ok|EINVAL|EADDRNOTAVAIL"},
		{"send-udp 255.255.255.255 67", "-", refusedUDP + "|ok"},
		{"send-udp " + webV4 + " 9999", "ok", refusedUDP + "|ok"},

		// Other protocols and families.
		{"socket 2 1 132", "-", "EPROTONOSUPPORT|ESOCKTNOSUPPORT|EPERM"}, // SCTP
		{"socket 2 5 132", "-", "EPROTONOSUPPORT|ESOCKTNOSUPPORT|EPERM"}, // SCTP, packets
		{"socket 2 6 33", "-", "EPROTONOSUPPORT|ESOCKTNOSUPPORT|EPERM"},  // DCCP
		{"socket 2 2 136", "-", "EPROTONOSUPPORT|EPERM"},                 // UDP-Lite
		{"socket 2 2 1", "-", "EACCES|EPERM|EPROTONOSUPPORT"},            // ping
		{"socket 10 2 58", "-", "EACCES|EPERM|EPROTONOSUPPORT"},          // ping, IPv6
		{"socket 2 3 255", "-", "EPERM"},                                 // raw IP
		{"socket 2 3 6", "-", "EPERM"},                                   // raw TCP
		{"socket 10 3 255", "-", "EPERM"},                                // raw IPv6
		{"socket 17 3 768", "-", "EPERM|EAFNOSUPPORT"},                   // packets
		{"socket 40 1 0", "-", "EPERM|EAFNOSUPPORT"},                     // vsock
		{"socket 30 1 0", "-", "EPERM|EAFNOSUPPORT"},                     // TIPC
		{"socket 16 3 12", "-", "EPROTONOSUPPORT|EPERM"},                 // netfilter
		{"socket 16 3 4", "-", "EPROTONOSUPPORT|EPERM"},                  // sock_diag
		{"connect-abstract " + v.abstract, "ok", "ECONNREFUSED|EPERM"},
		{"connect-unix /tmp/" + v.word + ".sock", "ok", "ENOENT"},
		{"unshare 0x50000000", "-", "EPERM"}, // a network of its own, of which nothing would be redirected
	}
	var ops []string
	for _, r := range rows {
		ops = append(ops, r.op)
	}
	match := func(got, want string) bool {
		return slices.ContainsFunc(strings.Split(want, "|"), func(s string) bool { return got == s || strings.HasPrefix(got, s+" ") })
	}
	b := allowBox(t, `allow = ["web.test"]`)
	var bare []string
	for _, r := range rows {
		if r.bare != "-" {
			bare = append(bare, r.op)
		}
	}
	for i, got := range b.control().batch(bare) {
		at := slices.Index(ops, bare[i])
		if !match(got, rows[at].bare) {
			t.Errorf("without a box: %s: %s, want %s", bare[i], got, rows[at].bare)
		}
	}
	if len(tr.caught) != 0 {
		t.Errorf("without a box the trap has caught %v", tr.caught)
	}
	w.seen()
	for i, got := range b.batch(ops) {
		if !match(got, rows[i].boxed) {
			t.Errorf("%s: %s, want %s", rows[i].op, got, rows[i].boxed)
		}
	}
	tr.sprung(t)
	w.only(w.seen(), "tcp "+webV4+":80", "tcp ["+webV6+"]:80")

	// The routes and rules are not the command's to change: after all of that the box is as before.
	script := "PATH=/usr/sbin:/sbin:/usr/bin:/bin\n"
	changes := []string{
		"ip link add x type dummy", "ip link add x type veth peer name y", "ip link set lo down", "ip addr add 10.9.9.9/24 dev lo", "ip addr flush dev lo",
		"ip route add 93.184.216.0/24 dev lo", "ip route add default dev lo", "ip route flush table all", "ip route flush table local", "ip -6 route flush table all", "ip route del local default dev lo",
		"ip -6 route del local default dev lo", "ip rule add from all table 7", "ip netns add x", "ip tuntap add dev x mode tun",
		"nft list ruleset", "nft flush ruleset", "nft add table inet x",
	}
	for _, line := range changes {
		script += line + " >/dev/null 2>&1; echo $?\n"
	}
	after := []attack{{"reach web.test 80", "", "ok reached"}, {"reach other.test 80", "", "error"}, {"talk " + webV4 + " 80", "", refusedTCP}, {"ask-udp " + webV4 + " 9999", "", refusedUDP}}
	for _, r := range after {
		script += probeBin + " try " + r.op + "\n"
	}
	lines := strings.Split(strings.TrimSpace(b.sh(script).ok(t)), "\n")
	if len(lines) != len(changes)+len(after) {
		t.Fatalf("%q", lines)
	}
	for i, got := range lines {
		if i < len(changes) && anyOf(got, "0|127") { // 127: no such program
			t.Errorf("%s ended with %s", changes[i], got)
		}
		if i := i - len(changes); i >= 0 && !match(got, after[i].boxed) {
			t.Errorf("after the changes: %s: %s", after[i].op, got)
		}
	}
	w.only(w.seen(), "tcp "+webV4+":80", "tcp ["+webV6+"]:80")
}

// TestNetworkNames: a connection is for the name that the profile has, in all
// the forms in which resolvers take it, and for no other.
func TestNetworkNames(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	tr := newTrap(t, 80)
	rows := []struct {
		name string
		got  bool
	}{
		{"web.test", true}, {"web.test.", true}, {"WEB.Test", true}, {"wEb.TeSt.", true}, {"alias.test", true}, {"v4.test", true}, {"v6.test", true},
		{"a.sub.test", true}, {"A.SUB.test", true}, {"a.b.sub.test", true}, {"xn--bcher-kva.test", true}, {"XN--BCHER-KVA.test", true},
		{"n7.many.test", true},
		{"sub.test", false}, {"www.web.test", false}, {"xweb.test", false}, {"web.test.test", false}, {"web", false}, {"test", false}, {"bad.sub.test", false}, {"BAD.sub.test.", false},
		{"x.bad.sub.test", true},
		{"other.test", false}, {"nothing.test", false}, {"web.test..", false}, {".web.test", false}, {"web..test", false}, {"a_b.sub.test", true},
		{"web.test%00.other.test", false}, {"web.test/", false}, {"web.test@other.test", false}, {"*.sub.test", false}, {"-a.sub.test", false},
		// An address in any form is not a name.
		{webV4, false}, {"1572395042", false}, {"0x5db8d822", false}, {"0135.0270.0330.042", false}, {"93.184.55330", false}, {"93.12114978", false},
		{"0x5d.0xb8.0xd8.0x22", false}, {webV6, false}, {"::ffff:" + webV4, false}, {"2130706433", false}, {"127.1", false}, {"0", false}, {"0x7f.1", false},
		{"34.216.184.93.in-addr.arpa", false},
		// Names of the profile that lead to where no name may lead.
		{"cname-private.test", false}, {"ten.test", false}, {"rfc1918.test", false}, {"seventeen.test", false}, {"cgnat.test", false}, {"loop.test", false}, {"loop2.test", false},
		{"meta.test", false}, {"meta6.test", false}, {"linklocal.test", false}, {"ula.test", false}, {"zero.test", false}, {"multicast.test", false}, {"broadcast.test", false},
		{"reserved.test", false}, {"bench.test", false}, {"doc.test", false}, {"mapped.test", false}, {"nat64.test", false}, {"sixtofour.test", false}, {"teredo.test", false}, {"own.test", false},
		{"fail.test", false}, {"cname-loop.test", false}, {"nothere.test", false}, {"localhost", false}, {"x.localhost", false},
		// Networks that are granted and denied, by address and through names.
		{"granted.test", true}, {"10.7.7.7", true}, {"2606:2800:220:1::77", true}, {"taken.test", false}, {"10.7.8.9", false}, {"denied.test", false},
		{"mixed.test", false}, // one address of two is public
		// Names that only /etc/hosts of the host has.
		{"hosts.test", true}, {"hosts-private.test", false},
		// Once public, then this machine.
		{"rebind.test", true}, {"rebind.test", false}, {"rebind.test", false},
	}
	allow := []string{"web.test", "alias.test", "v4.test", "v6.test", "*.sub.test", "xn--bcher-kva.test", "*.many.test", "nothere.test", "hosts.test", "hosts-private.test", "granted.test", "10.7.0.0/16:80", "[2606:2800:220:1::77]:80"}
	for name := range zone {
		if a := strings.TrimSuffix(name, "."); !strings.Contains(a, "*") && !slices.Contains([]string{"sub.test", "www.web.test", "other.test", "a.b.sub.test"}, a) && !slices.Contains(allow, a) {
			allow = append(allow, a)
		}
	}
	slices.Sort(allow)
	list, err := json.Marshal(allow)
	if err != nil {
		t.Fatal(err)
	}
	b := allowBox(t, fmt.Sprintf("allow = %s\ndeny = [\"bad.sub.test\", \"10.7.8.0/24\", \"93.184.217.0/24\"]\n", list))
	var ops []string
	for _, r := range rows {
		ops = append(ops, "reach "+strings.ReplaceAll(r.name, "%00", "\x00")+" 80")
	}
	w.seen()
	for i, got := range b.batch(ops) {
		if strings.HasPrefix(got, "ok reached") != rows[i].got || strings.Contains(got, "ETIMEDOUT") {
			t.Errorf("%s: %s", rows[i].name, got)
		}
	}
	tr.sprung(t)
	r := w.seen()
	w.only(r, "tcp "+webV4+":80", "tcp ["+webV6+"]:80", "tcp 10.7.7.7:80", "tcp [2606:2800:220:1::77]:80")
	for _, q := range r.Queries {
		kind, name, _ := strings.Cut(q, " ")
		name = strings.TrimSuffix(name, ".")
		if kind != "A" && kind != "AAAA" || name != strings.ToLower(name) ||
			!slices.Contains(allow, name) && !(strings.HasSuffix(name, ".sub.test") && name != "bad.sub.test") && name != "n7.many.test" {
			t.Errorf("the resolver was asked for %s", q)
		}
	}

	// libc and its own ideas of what an address is.
	need(t, "getent", "curl")
	var argvs [][]string
	want := map[string]bool{}
	curl := func(name string, got bool) {
		if strings.Contains(name, ":") {
			name = "[" + name + "]"
		}
		url := "http://" + name + "/"
		argvs, want[url] = append(argvs, []string{"curl", "-gsS", "--max-time", "30", url}), got
	}
	for _, r := range rows {
		if !strings.ContainsAny(r.name, "%/@") && !strings.HasPrefix(r.name, "rebind") { // not in a URL, and not a third time
			curl(r.name, r.got)
		}
	}
	curl("b\u00fccher.test", true)
	results := b.many(argvs)
	var base int64 // what curl takes when it gets there
	for _, e := range results {
		if e.Code == 0 {
			base = max(base, e.Millis)
		}
	}
	for i, e := range results {
		url := argvs[i][len(argvs[i])-1]
		if got := strings.HasPrefix(e.Out, "reached"); got != want[url] {
			t.Errorf("curl %s: %s", url, e.Out)
		}
		if e.Millis > hang+3*base {
			t.Errorf("curl %s took %d ms", url, e.Millis)
		}
	}
	tr.sprung(t)
	w.only(w.seen(), "tcp "+webV4+":80", "tcp ["+webV6+"]:80", "tcp 10.7.7.7:80", "tcp [2606:2800:220:1::77]:80")
}

// TestNetworkSearch: a name of the profile is that name for the resolver of the
// launcher, and not one with a search domain behind it, which could be somebody else's.
func TestNetworkSearch(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	write(t, srv+"/resolv.conf", "nameserver "+resolverV4+"\nsearch search.test\noptions timeout:5 attempts:2\n")
	b := allowBox(t, `allow = ["web.test", "gone.test"]`)
	w.seen()
	ops := []string{"reach web.test 80", "reach gone.test 80"}
	for i, got := range b.batch(ops) {
		if strings.HasPrefix(got, "ok reached") != (i == 0) {
			t.Errorf("%s: %s", ops[i], got)
		}
	}
	r := w.seen()
	w.only(r, "tcp "+webV4+":80", "tcp ["+webV6+"]:80")
	for _, q := range r.Queries {
		if !strings.HasSuffix(q, " web.test.") && !strings.HasSuffix(q, " gone.test.") {
			t.Errorf("the resolver was asked for %s", q)
		}
	}
	if !slices.ContainsFunc(r.Queries, func(q string) bool { return strings.HasSuffix(q, " gone.test.") }) {
		t.Errorf("the resolver was asked for %q alone", r.Queries)
	}
}

// TestNetworkDNS: the name server of the box answers for the names of the
// profile, at any address, and asks nobody.
func TestNetworkDNS(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	rows := []struct{ op, want string }{
		{"dns udp4 " + resolverV4 + " A web.test.", "NOERROR 198.18."},
		{"dns udp4 " + resolverV4 + " AAAA web.test.", "NOERROR fd77:616c:6c00:"},
		{"dns udp4 8.8.8.8 A web.test.", "NOERROR 198.18."},
		{"dns udp4 127.0.0.53 A WEB.test.", "NOERROR 198.18."},
		{"dns udp6 2001:4860:4860::8888 AAAA web.test.", "NOERROR fd77:616c:6c00:"},
		{"dns udp6 ::1 A web.test.", "NOERROR 198.18."},
		{"dns tcp4 9.9.9.9 A web.test.", "NOERROR 198.18."},
		{"dns tcp6 2620:fe::fe A web.test.", "NOERROR 198.18."},
		{"dns tcp4 127.0.0.1 A web.test.", "NOERROR 198.18."},
		{"dns udp4 8.8.8.8 A x.sub.test.", "NOERROR 198.18."},
		{"dns udp4 8.8.8.8 HTTPS web.test.", "NOERROR"},
		{"dns udp4 8.8.8.8 SVCB web.test.", "NOERROR"},
		{"dns udp4 8.8.8.8 TXT web.test.", "NOERROR"},
		{"dns udp4 8.8.8.8 MX web.test.", "NOERROR"},
		{"dns udp4 8.8.8.8 NULL web.test.", "NOERROR"},
		{"dns udp4 8.8.8.8 CNAME web.test.", "NOERROR"},
		{"dns udp4 8.8.8.8 A other.test.", "NXDOMAIN"},
		{"dns tcp4 8.8.8.8 A other.test.", "NXDOMAIN"},
		{"dns udp4 8.8.8.8 AAAA other.test.", "NXDOMAIN"},
		{"dns udp4 8.8.8.8 TXT secret-in-a-name.other.test.", "NXDOMAIN"},
		{"dns udp4 8.8.8.8 A sub.test.", "NXDOMAIN"},
		{"dns udp4 8.8.8.8 NS .", "NXDOMAIN"},
		{"dns udp4 8.8.8.8 PTR 34.216.184.93.in-addr.arpa.", "NXDOMAIN"},
		{"dns udp4 8.8.8.8 A web.test. 3", "REFUSED"}, // CHAOS
		{"dns udp4 8.8.8.8 A localhost.", "NOERROR 127.0.0.1/"},
		{"dns udp4 8.8.8.8 AAAA localhost.", "NOERROR ::1/"},
	}
	var ops []string
	for _, r := range rows {
		ops = append(ops, r.op)
	}
	ops = append(ops, "dns udp4 8.8.8.8 PTR 1.0.18.198.in-addr.arpa.", "dns udp4 8.8.8.8 A web.test.", "dns udp4 8.8.8.8 A web.test.")
	b := allowBox(t, `allow = ["web.test", "*.sub.test"]`)
	results := b.batch(ops)
	for i, r := range rows {
		got := strings.TrimPrefix(results[i], "ok ")
		if got != r.want && (!strings.Contains(r.want, " ") || !strings.HasPrefix(got, r.want)) {
			t.Errorf("%s: %s, want %s", r.op, results[i], r.want)
		}
		if _, ttl, ok := strings.Cut(got, "/"); ok && strings.Contains(got, "198.18.") && !anyOf(ttl, "1|2|3|4|5") {
			t.Errorf("%s: %s: a time to live of %s", r.op, got, ttl)
		}
	}
	if n := len(results); results[n-1] != results[n-2] || results[n-1] != results[0] {
		t.Errorf("a name changes its address: %q", results)
	}
	// Bytes that are no question at all: an answer or none, and the box works on.
	var odd []string
	for _, s := range []string{"", "00", "ffff", "0001010000010000000000000000010001", "000181800001000000000000037765620474657374000001" + "0001",
		"00010100ffff000000000000037765620474657374000001" + "0001", "000101000001000000000000c00c00010001", "0001010000010000000000003f00010001",
		"0001010000010000000000000377006204746573740000010001", strings.Repeat("ff", 600)} {
		data, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		odd = append(odd, fmt.Sprintf("say 8.8.8.8 53 %04x%s", len(data), s), fmt.Sprintf("say 8.8.8.8 53 ffff%s", s))
	}
	odd = append(odd, "reach web.test 80")
	results = b.batch(odd)
	for i, got := range results {
		if strings.Contains(got, "ETIMEDOUT") {
			t.Errorf("%s: %s", odd[i], got)
		}
	}
	if got := results[len(results)-1]; !strings.HasPrefix(got, "ok reached") {
		t.Errorf("after odd questions: %s", got)
	}
	r := w.seen()
	w.only(r, "tcp "+webV4+":80", "tcp ["+webV6+"]:80")
	for _, q := range r.Queries {
		if q != "A web.test." && q != "AAAA web.test." {
			t.Errorf("the resolver was asked for %s", q)
		}
	}
}

// proxyPorts gives the ports at which the proxies of the box listen.
func (b *box) proxyPorts() (web, socks int) {
	b.t.Helper()
	argv := b.argv("/bin/true")
	at := slices.Index(argv, "run")
	argv[at] = "plan"
	argv = slices.Insert(argv, len(argv)-2, "--json")
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = b.ws
	var p struct{ Network struct{ HTTP, SOCKS int } }
	if err := json.Unmarshal([]byte(finish(b.t, cmd).ok(b.t)), &p); err != nil {
		b.t.Fatal(err)
	}
	if p.Network.HTTP == 0 || p.Network.SOCKS == 0 {
		b.t.Fatalf("the plan has the proxy ports %+v", p)
	}
	return p.Network.HTTP, p.Network.SOCKS
}

// TestNetworkProxies: the proxies decide as the rest does, whatever is sent.
func TestNetworkProxies(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	tr := newTrap(t, 80, 443)
	b := allowBox(t, `allow = ["web.test", "ten.test", "loop.test"]`)
	web, socks := b.proxyPorts()
	type row struct {
		port int
		say  string
		got  bool
	}
	request := "GET / HTTP/1.0\r\nHost: x\r\n\r\n"
	connect := func(to string) row {
		return row{web, "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n\r\n" + request, false}
	}
	named := func(name string, port int) row {
		return row{socks, "\x05\x01\x00\x05\x01\x00\x03" + string([]byte{byte(len(name))}) + name + string([]byte{byte(port >> 8), byte(port)}) + request, false}
	}
	yes := func(r row) row { r.got = true; return r }
	rows := []row{
		yes(connect("web.test:80")), yes(connect("WEB.test.:80")), yes(row{web, "GET http://web.test/ HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n", true}),
		yes(named("web.test", 80)), yes(named("Web.Test", 80)),
		connect("other.test:80"), connect("web.test:8080"), connect(webV4 + ":80"), connect("[" + webV6 + "]:80"), connect("169.254.169.254:80"), connect("127.0.0.1:80"),
		connect("localhost:80"), connect("ten.test:80"), connect("loop.test:80"), connect("web.test\x00.other.test:80"), connect("other.test\x00web.test:80"), connect("web.test"), connect("web.test:"),
		connect("web.test:0"), connect("web.test:65616"), connect("web.test:80:80"), connect("user@web.test:80"), connect("0x5db8d822:80"), connect("1572395042:80"), connect("web.test:80/"),
		{web, "GET http://other.test/ HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n", false},
		{web, "GET http://other.test@web.test:8080/ HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n", false},
		{web, "GET / HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n", false},
		{web, "GET http://web.test%00.other.test/ HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n", false},
		{web, "GET http://" + webV4 + "/ HTTP/1.1\r\nHost: web.test\r\nConnection: close\r\n\r\n", false},
		{web, "CONNECT web.test:80\r\n\r\n", false}, {web, "\x00\x00\x00\x00", false}, {web, "CONNECT web.test:80 HTTP/1.1\r\n" + strings.Repeat("X: y\r\n", 20000) + "\r\n", false},
		named("other.test", 80), named("web.test", 8080), named(webV4, 80), named("web.test\x00", 80), named("web.test\x00.other.test", 80), named("other.test\x00.web.test", 80), named("", 80),
		named("ten.test", 80), named("loop.test", 80), named("localhost", 80), named("127.0.0.1", 80), named("169.254.169.254", 80), named("1572395042", 80), named("web.test", 0),
		{socks, "\x05\x01\x00\x05\x01\x00\x01" + string(net.ParseIP(webV4).To4()) + "\x00\x50" + request, false},
		{socks, "\x05\x01\x00\x05\x01\x00\x04" + string(net.ParseIP(webV6)) + "\x00\x50" + request, false},
		{socks, "\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50" + request, false},
		{socks, "\x05\x01\x00\x05\x02\x00\x03\x08web.test\x00\x50" + request, false}, // BIND
		{socks, "\x05\x01\x00\x05\x03\x00\x03\x08web.test\x00\x50" + request, false}, // UDP ASSOCIATE
		{socks, "\x04\x01\x00\x50" + string(net.ParseIP(webV4).To4()) + "\x00" + request, false},
		{socks, "\x04\x01\x00\x50\x00\x00\x00\x01\x00other.test\x00" + request, false}, // SOCKS 4a
		{socks, "\x05\x00", false}, {socks, "\x05", false}, {socks, strings.Repeat("\xff", 1000), false},
	}
	var ops []string
	for _, r := range rows {
		ops = append(ops, fmt.Sprintf("say 127.0.0.1 %d %x", r.port, r.say))
	}
	w.seen()
	for _, without := range []string{"", "nftables"} {
		b.without, b.flags = without, nil
		if without != "" {
			b.flags = []string{"--if-unavailable", "degrade"}
		}
		for i, got := range b.batch(ops) {
			if strings.Contains(got, "reached") != rows[i].got || strings.Contains(got, "ETIMEDOUT") {
				t.Errorf("without %q: %.120q: %s", without, rows[i].say, got)
			}
		}
	}
	b.without, b.flags = "", nil
	tr.sprung(t)
	w.only(w.seen(), "tcp "+webV4+":80", "tcp ["+webV6+"]:80")
	// Programs are led there when the profile says so.
	led := allowBox(t, "allow = [\"web.test\"]\nproxy-variables = true\n")
	for url, want := range map[string]string{"http://web.test/": "reached", "http://other.test/": "403"} {
		if out := led.sh(`curl -sS -v "$1" 2>&1`, url).out; !strings.Contains(out, want) || !strings.Contains(out, fmt.Sprintf("127.0.0.1:%d", web)) {
			t.Errorf("with proxy-variables, curl %s: %s", url, out)
		}
	}
	// The variables are not set where no proxy is needed.
	if out := b.sh("env").ok(t); strings.Contains(strings.ToLower(out), "_proxy=") {
		t.Errorf("the environment has proxies:\n%s", out)
	}
}

// TestNetworkEverywhere: a rule for all addresses is for those of the internet,
// and single addresses and sockets of the host are there where a line names them.
func TestNetworkEverywhere(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	tr := newTrap(t, 80)
	public := []string{webV4, webV6}
	special := []string{"169.254.169.254", "fd00:ec2::254", "10.0.0.5", "127.0.0.1", "127.0.0.5", "192.168.1.1", "172.31.0.1", "100.64.0.1", "100.100.100.200", ownV4, ownV6, "fe80::1",
		"198.18.0.1", "198.18.5.5", "fd77:616c:6c00::1", "0.0.0.0", "::", "::1", "::ffff:10.0.0.5", "::ffff:127.0.0.1", "64:ff9b::a00:5", "2002:a00:5::1", "::10.0.0.5", "fec0::1", "240.0.0.1", "224.0.0.1", "ff02::1"}
	visit := func(rule string, allowed, refused []string) {
		t.Helper()
		b := allowBox(t, rule)
		var ops, may []string
		for _, a := range slices.Concat(allowed, refused) {
			ops = append(ops, "talk "+a+" 80")
		}
		for _, a := range allowed {
			may = append(may, "tcp "+net.JoinHostPort(strings.TrimPrefix(a, "::ffff:"), "80"))
		}
		w.seen()
		for i, got := range b.batch(ops) {
			if strings.HasPrefix(got, "ok reached") != (i < len(allowed)) || strings.Contains(got, "ETIMEDOUT") {
				t.Errorf("%s: %s: %s", rule, ops[i], got)
			}
		}
		tr.sprung(t)
		w.only(w.seen(), may...)
	}
	visit(`allow = ["0.0.0.0/0:80", "[::/0]:80"]`, public, special)
	visit(`allow = ["10.0.0.0/24:80", "169.254.169.254:80", "[fd12::/64]:80"]`, []string{"10.0.0.5", "::ffff:10.0.0.5", "169.254.169.254", "fd12::9"}, []string{webV4, "10.0.1.5", "169.254.169.253", "fd12:0:0:1::9", "fd00:ec2::254"})

	// Sockets of the host.
	dir := tempDir(t)
	path, name := dir+"/sock", nonce()
	for _, at := range []string{path, "@" + name} {
		l, err := net.Listen("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
	}
	for _, r := range []struct {
		flags []string
		want  string
	}{{nil, "ENOENT|EACCES"}, {[]string{"--ro", path}, "ok"}, {[]string{"--rw", path}, "ok"}} {
		b := allowBox(t, `allow = ["web.test"]`)
		b.flags = r.flags
		if got := b.batch([]string{"connect-unix " + path, "connect-abstract " + name}); !anyOf(got[0], r.want) || !anyOf(got[1], "ECONNREFUSED|EPERM") {
			t.Errorf("%q: %q", r.flags, got)
		}
	}
}

// TestNetworkPortReuse: a connection is decided by where it goes itself, also
// from a port that one to an allowed host has just had.
func TestNetworkPortReuse(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	need(t, "/usr/bin/python3")
	const script = `import socket, struct
def start(to, port):
    s = socket.socket()
    s.settimeout(20)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.bind(("", port))
    s.connect((to, 80))
    return s
def ask(to, port):
    try:
        s = start(to, port)
        s.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
        d = s.recv(4096)
        s.close()
        return b"200" in d
    except TimeoutError:
        print("timeout")
    except OSError:
        pass
    return False
web = socket.gethostbyname("web.test")
allowed = refused = 0
for port in range(20000, 20200):
    start(web, port).close()
    refused += ask("` + otherV4 + `", port)
    allowed += ask(web, port)
print(allowed, refused)
`
	b := allowBox(t, `allow = ["web.test"]`)
	if got := b.control().run("/usr/bin/python3", "-c", script).ok(t); got != "200 200\n" {
		t.Errorf("without a box: %q", got)
	}
	w.seen()
	if got := b.run("/usr/bin/python3", "-c", script).ok(t); got != "200 0\n" {
		t.Errorf("allowed and refused connections that were made: %q", got)
	}
	w.only(w.seen(), "tcp "+webV4+":80", "tcp ["+webV6+"]:80")
}
