package integration_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goClient is this program as a Go program like most: linked with libc, whose
// resolver GODEBUG=netdns=cgo selects.
func goClient(args []string) int {
	pem, err := os.ReadFile(args[1])
	if err != nil {
		fmt.Println(err)
		return 2
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	res, err := (&http.Client{Transport: transport}).Get(args[0])
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer res.Body.Close()
	_, err = io.Copy(os.Stdout, res.Body)
	if err != nil {
		return 1
	}
	return 0
}

// A client is a real program that reaches a host.
type client struct {
	name  string
	needs string // a program
	ports []int  // of the server that it speaks with
	// argv makes it go to the host, a name or an address (in brackets when it
	// is an IPv6 one); HOST, BARE (without the brackets), PORT, ME and DIR are
	// replaced.
	argv []string
	want string // in its output when it got there
	slow bool   // to start
}

const (
	nodeScript = `fetch(process.argv[1]).then(r => r.text()).then(console.log, e => { console.log(e.cause || e); process.exit(1) })`
	pyScript   = `import ssl, sys, urllib.request as u
print(u.urlopen(sys.argv[1], context=ssl.create_default_context(cafile=sys.argv[2])).read().decode())`
	pySocket = `import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
print(s.makefile().read())`
	ncScript   = `printf 'GET / HTTP/1.0\r\nHost: x\r\n\r\n' | nc "$0" "$1"`
	bashScript = `exec 3<>"/dev/tcp/$0/$1" && printf 'GET / HTTP/1.0\r\nHost: x\r\n\r\n' >&3 && cat <&3`
	ssh        = "ssh -F /dev/null -i DIR/id -o UserKnownHostsFile=DIR/known_hosts -o StrictHostKeyChecking=yes -o BatchMode=yes"
	musl       = `#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv) {
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *list, *a;
	int e = getaddrinfo(argv[1], argv[2], &hint, &list);
	if (e) { puts(gai_strerror(e)); return 1; }
	for (a = list; a; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM, 0);
		if (connect(fd, a->ai_addr, a->ai_addrlen)) { perror("connect"); close(fd); continue; }
		const char *q = "GET / HTTP/1.0\r\nHost: x\r\n\r\n";
		char buf[4096];
		ssize_t n;
		write(fd, q, strlen(q));
		while ((n = read(fd, buf, sizeof buf)) > 0) fwrite(buf, 1, n, stdout);
		return n < 0;
	}
	return 1;
}
`
)

var clients = []client{
	{"curl", "curl", []int{443, 8443}, []string{"curl", "-sS", "--cacert", "DIR/ca.pem", "https://HOST:PORT/"}, "reached", false},
	{"wget", "wget", []int{443, 8443}, []string{"wget", "-qO-", "--tries=1", "--ca-certificate=DIR/ca.pem", "https://HOST:PORT/"}, "reached", false},
	{"git-https", "git", []int{443, 8443}, []string{"git", "-c", "http.sslCAInfo=DIR/ca.pem", "ls-remote", "https://HOST:PORT/git/repo"}, "refs/heads/main", false},
	{"git-ssh", "dropbear", []int{22}, []string{"git", "-c", "core.sshCommand=" + ssh, "ls-remote", "ssh://ME@HOST:PORT" + srv + "/git/repo"}, "refs/heads/main", false},
	{"git", "git", []int{9418}, []string{"git", "ls-remote", "git://HOST:PORT/git/repo"}, "refs/heads/main", false},
	{"ssh", "dropbear", []int{22}, append(strings.Fields(ssh), "-p", "PORT", "-l", "ME", "BARE", "echo reached"), "reached", false},
	{"go", "go", []int{443, 8443}, []string{"env", envStage + "=client", "GODEBUG=netdns=cgo", "DIR/test", "https://HOST:PORT/", "DIR/ca.pem"}, "reached", false},
	{"go-static", "go", []int{443, 8443}, []string{"PROBE", "try", "get", "https://HOST:PORT/", "DIR/ca.pem"}, "ok reached", false},
	{"node", "node", []int{443, 8443}, []string{"env", "NODE_EXTRA_CA_CERTS=DIR/ca.pem", "node", "-e", nodeScript, "https://HOST:PORT/"}, "reached", true},
	{"python", "/usr/bin/python3", []int{443, 8443}, []string{"/usr/bin/python3", "-c", pyScript, "https://HOST:PORT/", "DIR/ca.pem"}, "reached", false},
	{"python-socket", "/usr/bin/python3", []int{80, 8080}, []string{"/usr/bin/python3", "-c", pySocket, "BARE", "PORT"}, "reached", false},
	{"jvm", "keytool", []int{443, 8443}, []string{"keytool", "-printcert", "-sslserver", "HOST:PORT"}, "Issuer: CN=Test CA", true},
	{"netcat", "nc", []int{80, 8080}, []string{"/bin/sh", "-c", ncScript, "BARE", "PORT"}, "reached", false},
	{"bash", "bash", []int{80, 8080}, []string{"bash", "-c", bashScript, "BARE", "PORT"}, "reached", false},
	{"busybox", "busybox", []int{80, 8080}, []string{"busybox", "wget", "-qO-", "http://HOST:PORT/"}, "reached", false},
	{"musl", "musl-gcc", []int{80, 8080}, []string{"DIR/musl", "BARE", "PORT"}, "reached", false},
}

// A visit is one client on its way to one host.
type visit struct {
	client
	host string
	port int
}

func (v visit) String() string { return fmt.Sprintf("%s to %s:%d", v.name, v.host, v.port) }

// words gives the command line of a visit.
func (v visit) words(dir string) []string {
	me, _ := user.Current()
	name := "nobody"
	if me != nil {
		name = me.Username
	}
	r := strings.NewReplacer("HOST", v.host, "BARE", strings.Trim(v.host, "[]"), "PORT", fmt.Sprint(v.port), "ME", name, "DIR", dir, "PROBE", probeBin)
	var words []string
	for _, a := range v.argv {
		if a != envStage+"=client" && a != nodeScript && a != pyScript && a != pySocket {
			a = r.Replace(a)
		}
		words = append(words, a)
	}
	return words
}

// here are the clients that this host has.
func here(t *testing.T) []client {
	t.Helper()
	need(t, "curl", "wget", "git", "ssh", "dropbear", "node", "/usr/bin/python3", "keytool", "nc", "bash", "busybox", "musl-gcc")
	return clients
}

// kit makes a directory with what the clients need.
func (w *internet) kit() string {
	w.t.Helper()
	dir := filepath.Join(tempDir(w.t), "kit")
	if err := os.Mkdir(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	for _, name := range []string{"ca.pem", "id", "known_hosts"} {
		if err := os.WriteFile(dir+"/"+name, []byte(read(w.t, srv+"/"+name)), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	data, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(dir+"/test", data, 0o755)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	write(w.t, dir+"/musl.c", musl)
	host(w.t, dir, "musl-gcc", "-static", "-o", dir+"/musl", dir+"/musl.c")
	return dir
}

// ended is what "probe many" tells of a command.
type ended struct {
	Code   int
	Out    string
	Millis int64
}

// visits makes visits in one box.
func (b *box) visits(kit string, visits []visit) []ended {
	b.t.Helper()
	var argvs [][]string
	for _, v := range visits {
		argvs = append(argvs, v.words(kit))
	}
	return b.many(argvs)
}

// many runs commands in one box.
func (b *box) many(argvs [][]string) []ended {
	b.t.Helper()
	in, err := json.Marshal(argvs)
	if err != nil {
		b.t.Fatal(err)
	}
	cmd := b.cmd(probeBin, "many")
	cmd.Stdin = bytes.NewReader(in)
	r := finish(b.t, cmd)
	var results []ended
	if err := json.Unmarshal([]byte(r.ok(b.t)), &results); err != nil || len(results) != len(argvs) {
		b.t.Fatalf("%v in %q", err, r.out)
	}
	return results
}

// got reports whether the visitor got there.
func (v visit) got(e ended) bool { return e.Code == 0 && strings.Contains(e.Out, v.want) }

// hang is what no refusal takes, on a busy machine either, that a client did
// not wait for: libc waits 5 s for a name server, TCP minutes for an answer.
const hang = 4500 // ms

// TestNetworkModes: without a network every client fails at once, whatever it
// asks for; with the one of the host it reaches all of it.
func TestNetworkModes(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	kit := w.kit()
	var visits []visit
	for _, c := range here(t) {
		visits = append(visits, visit{c, "web.test", c.ports[0]}, visit{c, webV4, c.ports[0]})
		if !c.slow {
			visits = append(visits, visit{c, "[" + webV6 + "]", c.ports[0]})
		}
	}
	base := map[string]int64{} // what the client takes when it gets there
	for _, mode := range []string{"host", "none"} {
		t.Run(mode, func(t *testing.T) {
			b := newBox(t, "agent")
			b.flags = []string{"--net", mode, "--ro", kit}
			for i, e := range b.visits(kit, visits) {
				if visits[i].got(e) != (mode == "host") {
					t.Errorf("%s: ended with %d after %d ms:\n%s", visits[i], e.Code, e.Millis, e.Out)
				}
				if mode == "host" {
					base[visits[i].name] = max(base[visits[i].name], e.Millis)
				} else if e.Millis > hang+3*base[visits[i].name] && visits[i].name != "musl" { // which does not hear of a network that cannot be reached
					t.Errorf("%s took %d ms to fail", visits[i], e.Millis)
				}
			}
			r := w.seen()
			if mode == "none" && len(r.Packets) != 0 {
				t.Errorf("%v left the box", r)
			}
			if mode == "host" && (!slices.Contains(r.Packets, fmt.Sprintf("tcp [%s]:443", webV6)) || !slices.Contains(r.Queries, "AAAA web.test.")) {
				t.Errorf("the internet saw only %v", r)
			}
		})
	}
}

// allowBox gives a box with a network of its own and what the profile says in
// the table [network] besides.
func allowBox(t *testing.T, lines string) *box {
	t.Helper()
	b := newBox(t, filepath.Join(tempDir(t), "net.toml"))
	write(t, b.profile, "version = 1\nextends = \"agent\"\n[network]\nmode = \"allow\"\n"+lines)
	return b
}

// TestNetworkClients: real clients, which know nothing of a proxy, reach the
// hosts and ports of the profile and no others, and are not left waiting.
func TestNetworkClients(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	kit := w.kit()
	type try struct {
		visit
		got bool
	}
	var tries []try
	proxies := []string{"env", "http_proxy=http://127.0.0.1:9", "HTTPS_PROXY=http://127.0.0.1:9", "ALL_PROXY=socks5h://127.0.0.1:9", "NO_PROXY=*"}
	for _, c := range here(t) {
		faked := c
		faked.name, faked.argv = c.name+" with a made-up proxy", append(slices.Clone(proxies), c.argv...)
		if len(c.ports) > 1 {
			tries = append(tries, try{visit{c, "web.test", c.ports[1]}, false})
		}
		tries = append(tries,
			try{visit{c, "web.test", c.ports[0]}, true},
			try{visit{c, "other.test", c.ports[0]}, false},
			try{visit{c, webV4, c.ports[0]}, false})
		if !c.slow {
			tries = append(tries,
				try{visit{c, "v6.test", c.ports[0]}, true},
				try{visit{faked, "other.test", c.ports[0]}, false},
				try{visit{c, "[" + webV6 + "]", c.ports[0]}, false})
		}
	}
	var visits []visit
	for _, x := range tries {
		visits = append(visits, x.visit)
	}
	b := allowBox(t, `allow = ["web.test", "web.test:22", "web.test:9418", "v6.test:*"]`)
	b.flags = []string{"--ro", kit}
	w.seen()
	base := map[string]int64{} // what the client takes when it gets there
	results := b.visits(kit, visits)
	for i, e := range results {
		t.Logf("%-50s %5d ms", visits[i], e.Millis)
		if name := visits[i].name; tries[i].got {
			base[name] = max(base[name], e.Millis)
		}
	}
	for i, e := range results {
		if visits[i].got(e) != tries[i].got {
			t.Errorf("%s: ended with %d after %d ms:\n%s", visits[i], e.Code, e.Millis, e.Out)
		}
		name, _, _ := strings.Cut(visits[i].name, " ")
		if !tries[i].got && e.Millis > hang+3*base[name] {
			t.Errorf("%s took %d ms to fail", visits[i], e.Millis)
		}
	}
	r := w.seen()
	var may []string
	for _, port := range []int{22, 80, 443, 9418} {
		may = append(may, fmt.Sprintf("tcp %s:%d", webV4, port), fmt.Sprintf("tcp [%s]:%d", webV6, port))
	}
	w.only(r, may...)
	for _, q := range r.Queries {
		if !anyOf(q, "A web.test.|AAAA web.test.|A v6.test.|AAAA v6.test.") {
			t.Errorf("the resolver was asked for %s", q)
		}
	}
}

// TestNetworkOneFamily: programs that ask glibc for the addresses of one family, as
// far as this host has it (AI_ADDRCONFIG), get them, although a box has a loopback
// interface alone.
func TestNetworkOneFamily(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	need(t, "/usr/bin/python3")
	b := allowBox(t, `allow = ["web.test"]`)
	const script = `import socket as s
for family in s.AF_INET, s.AF_INET6, s.AF_UNSPEC:
	print(*sorted(a[4][0] for a in s.getaddrinfo("web.test", 443, family, s.SOCK_STREAM, 0, s.AI_ADDRCONFIG)))`
	r := finish(t, b.cmd("/usr/bin/python3", "-c", script))
	if got, want := r.ok(t), "198.18.0.1\nfd77:616c:6c00::1\n198.18.0.1 fd77:616c:6c00::1\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNetworkBrowser: a browser, which brings a resolver and protocols of its
// own, gets to an allowed host and to no other, not to its maker's either.
func TestNetworkBrowser(t *testing.T) {
	w := inInternet(t)
	if w == nil {
		return
	}
	need(t, "chromium")
	b := allowBox(t, `allow = ["web.test"]`)
	b.flags = []string{"--ro-try", "/etc/chromium.d"}
	urls := []string{"https://web.test/", "http://web.test/", "https://other.test/", "http://" + webV4 + "/"}
	var argvs [][]string
	for i, url := range urls {
		argvs = append(argvs, []string{"chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", fmt.Sprintf("--user-data-dir=%s/%d", b.ws, i), "--ignore-certificate-errors", "--dump-dom", url})
	}
	for i, e := range b.many(argvs) {
		if got := strings.Contains(e.Out, "reached ["+webV6) || strings.Contains(e.Out, "reached "+webV4); got != (i < 2) {
			t.Errorf("%s: ended with %d: %s", urls[i], e.Code, e.Out)
		}
	}
	w.only(w.seen(), "tcp "+webV4+":80", "tcp "+webV4+":443", "tcp ["+webV6+"]:80", "tcp ["+webV6+"]:443")
}
