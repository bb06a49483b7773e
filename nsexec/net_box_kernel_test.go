package nsexec

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/plan"
)

// netClient is this test binary as the command in a box. It does what each
// argument says, and prints a line for each. Nothing in it waits for long.
func netClient(args []string) {
	for _, a := range args {
		op, rest, _ := strings.Cut(a, " ")
		out, err := netOps[op](rest)
		if err != nil {
			out = "error: " + err.Error()
		}
		fmt.Println(a + ": " + out)
	}
	os.Exit(0)
}

const clientPatience = 2 * time.Minute // where an answer is a matter of milliseconds

var netOps = map[string]func(string) (string, error){
	// Connects and reads to the end: the first line, or how it ended.
	"tcp": func(to string) (string, error) {
		c, err := net.DialTimeout("tcp", to, clientPatience)
		if err != nil {
			return short(err), nil
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(clientPatience))
		line, err := bufio.NewReader(c).ReadString('\n')
		if line == "" {
			return short(err), nil
		}
		return strings.TrimSpace(line), nil
	},
	// Listens with everything that lets sockets share a port.
	"listen": func(addr string) (string, error) {
		c := net.ListenConfig{Control: func(_, _ string, rc syscall.RawConn) (err error) {
			rc.Control(func(fd uintptr) {
				err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
			})
			return err
		}}
		l, err := c.Listen(context.Background(), "tcp", addr)
		if err == nil {
			l.Close()
		}
		return short(err), nil
	},
	// Connects, sends, and is gone.
	"send": func(s string) (string, error) {
		to, text, _ := strings.Cut(s, " ")
		c, err := net.Dial("tcp", to)
		if err != nil {
			return short(err), nil
		}
		_, err = io.WriteString(c, text)
		return short(err), err
	},
	"udp": func(to string) (string, error) {
		c, err := net.Dial("udp", to)
		if err != nil {
			return short(err), nil
		}
		defer c.Close()
		_, err = c.Write([]byte("x"))
		return short(err), nil
	},
	// Looks a name up at a resolver: "udp 192.0.2.5:53 name".
	"dns": func(s string) (string, error) {
		var network, server, name string
		if _, err := fmt.Sscan(s, &network, &server, &name); err != nil {
			return "", err
		}
		r := net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server)
		}}
		ctx, cancel := context.WithTimeout(context.Background(), clientPatience)
		defer cancel()
		addrs, err := r.LookupHost(ctx, name+".")
		if err != nil {
			var de *net.DNSError
			if errors.As(err, &de) && de.IsNotFound {
				return "not found", nil
			}
			return short(err), nil
		}
		for i, a := range addrs {
			addrs[i] = map[bool]string{true: "IPv6", false: "IPv4"}[strings.Contains(a, ":")]
		}
		slices.Sort(addrs)
		return strings.Join(addrs, " "), nil
	},
	// Serves one connection on a port, or on a port of all addresses.
	"serve": func(port string) (string, error) {
		l, err := net.Listen("tcp", port) //nolint:all // it is the command
		if err != nil {
			return short(err), nil
		}
		os.WriteFile("ready", nil, 0o600)
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		fmt.Fprintln(c, "from inside")
		return "served", c.Close()
	},
	// The descriptors of this process, without the one that lists them.
	"fds": func(string) (string, error) {
		var out []string
		names, err := os.ReadDir("/proc/self/fd")
		for _, n := range names {
			to, err := os.Readlink("/proc/self/fd/" + n.Name())
			if err == nil && !strings.HasSuffix(to, "/fd") {
				kind, _, _ := strings.Cut(to, ":")
				out = append(out, n.Name()+" "+kind)
			}
		}
		return strings.Join(out, ", "), err
	},
	// What only the administrator of the namespace may do.
	"change": func(string) (string, error) {
		var out []string
		for _, err := range []error{
			netlink(unix.NETLINK_ROUTE, localRoutes(ipv4, 1)),
			netlink(unix.NETLINK_NETFILTER, removeRuleset(families(true))),
			loopbackUp(),
		} {
			out = append(out, short(err))
		}
		for _, s := range [][3]int{{unix.AF_PACKET, unix.SOCK_RAW, 0}, {unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, {unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_RAW}, {unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}} {
			_, err := unix.Socket(s[0], s[1], s[2])
			out = append(out, short(err))
		}
		return strings.Join(out, ", "), nil
	},
	"wait": func(string) (string, error) {
		os.WriteFile("ready", nil, 0o600)
		time.Sleep(time.Hour)
		return "", nil
	},
}

// short names an error by its errno, where it has one.
func short(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, io.EOF):
		return "end"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// networkPlan is a box with a network, whose command is netClient.
func networkPlan(t testing.TB, n plan.Network, do ...string) plan.Plan {
	t.Helper()
	p := testPlan(t, append([]string{"client", "netclient"}, do...)...)
	p.Command.Path = "/tmp/client"
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpBind, Target: p.Command.Path, Source: self, Access: plan.AccessRead, Type: plan.TypeFile, MakeAs: plan.TypeFile})
	if n.Method != plan.NetNone {
		n.HTTP, n.SOCKS = 3128, 1080
	}
	n.Connections, n.Origin = 1000, plan.Origin{Text: "the network"}
	p.Network = n
	return p
}

// serve answers each connection by a goroutine of its own, until l is closed.
func serve(l net.Listener, answer func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			answer(c)
		}()
	}
}

// proxy is an upstream proxy that answers every CONNECT itself, with a line that
// repeats it.
func proxy(t testing.TB) plan.Upstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serve(l, func(c net.Conn) {
		r, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n\r\n%s %s\n", r.Method, r.RequestURI)
	})
	return plan.Upstream{URL: "http://" + l.Addr().String()}
}

func allowed(t testing.TB) plan.Network {
	return plan.Network{
		Method: plan.NetRedirect, Upstream: proxy(t),
		Allow: []plan.HostRule{
			{Name: "allowed.example", Ports: []plan.PortRange{{First: 80, Last: 80}, {First: 443, Last: 443}}},
			{Prefix: "192.0.2.128/25", Ports: []plan.PortRange{{First: 1, Last: 65535}}},
			{Prefix: "2001:db8:1::/48", Ports: []plan.PortRange{{First: 22, Last: 22}}},
		},
	}
}

// lines compares what the client printed with what it must print.
func lines(t *testing.T, out string, want ...string) {
	t.Helper()
	if got := strings.TrimSpace(out); got != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

// Programs that know nothing of wall reach what is allowed; everything else is
// refused at once, and told.
func TestNetwork(t *testing.T) {
	p := networkPlan(t, allowed(t),
		"fds",
		"tcp allowed.example:443", "tcp ALLOWED.example.:80", "tcp allowed.example:22",
		"tcp 192.0.2.200:7", "tcp 192.0.2.1:443", "tcp [2001:db8:1::5]:22", "tcp [2001:db8:1::5]:23", "tcp [2001:db8:2::5]:22",
		"tcp 127.0.0.1:1023", "tcp [::1]:1023", "tcp 127.0.0.1:9",
		"udp 192.0.2.200:443", "udp [2001:db8:1::5]:22", "udp 224.0.0.251:5353",
		"dns udp 192.0.2.5:53 allowed.example", "dns udp 127.0.0.53:53 allowed.example", "dns udp [2001:db8::53]:53 allowed.example",
		"dns tcp 192.0.2.5:53 allowed.example", "dns tcp [2001:db8::53]:53 allowed.example", "dns tcp 127.0.0.1:53 allowed.example",
		"dns udp 192.0.2.5:53 other.example", "dns tcp 192.0.2.5:53 other.example",
		"change",
	)
	var out bytes.Buffer
	var events []string
	c := Command(p)
	c.Stdout, c.Stderr = &out, &out
	c.NetEvents = func(e egress.Event) {
		if e.Kind == egress.KindOpen {
			events = append(events, e.Name+e.Addr)
		}
	}
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	lines(t, out.String(),
		"fds: 0 /dev/null, 1 pipe, 2 pipe",
		"tcp allowed.example:443: CONNECT allowed.example:443", "tcp ALLOWED.example.:80: CONNECT allowed.example:80",
		"tcp allowed.example:22: ECONNRESET",
		"tcp 192.0.2.200:7: CONNECT 192.0.2.200:7", "tcp 192.0.2.1:443: ECONNRESET",
		"tcp [2001:db8:1::5]:22: CONNECT [2001:db8:1::5]:22", "tcp [2001:db8:1::5]:23: ECONNRESET", "tcp [2001:db8:2::5]:22: ECONNRESET",
		"tcp 127.0.0.1:1023: ECONNRESET", "tcp [::1]:1023: ECONNRESET", "tcp 127.0.0.1:9: ECONNREFUSED",
		"udp 192.0.2.200:443: EPERM", "udp [2001:db8:1::5]:22: EPERM", "udp 224.0.0.251:5353: EPERM",
		"dns udp 192.0.2.5:53 allowed.example: IPv4 IPv6", "dns udp 127.0.0.53:53 allowed.example: IPv4 IPv6", "dns udp [2001:db8::53]:53 allowed.example: IPv4 IPv6",
		"dns tcp 192.0.2.5:53 allowed.example: IPv4 IPv6", "dns tcp [2001:db8::53]:53 allowed.example: IPv4 IPv6", "dns tcp 127.0.0.1:53 allowed.example: IPv4 IPv6",
		"dns udp 192.0.2.5:53 other.example: not found", "dns tcp 192.0.2.5:53 other.example: not found",
		"change: EPERM, EPROTONOSUPPORT, EPERM, EAFNOSUPPORT, EPERM, EPERM, EACCES",
	)
	r := c.Result().Network
	if r.Opened != 4 || r.Denied < 8 || r.Dropped != 0 {
		t.Errorf("summary %+v", r)
	}
	if want := []string{"allowed.example", "allowed.example", "192.0.2.200", "2001:db8:1::5"}; !slices.Equal(events, want) {
		t.Errorf("connections %q, want %q", events, want)
	}
}

// freePort gives a port that nothing listens on, on either address of the loopback
// interface, and that no connection of another test is given meanwhile.
func freePort(t *testing.T) int {
	t.Helper()
	for range 1000 {
		port := 20000 + rand.IntN(12000) // below net.ipv4.ip_local_port_range
		free := true
		for _, addr := range []string{"127.0.0.1", "::1"} {
			l, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
			if err != nil {
				free = false
				break
			}
			l.Close()
		}
		if free {
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// TCP ports of the host and of the box are joined, with every way to other hosts and
// with none, and nothing but those.
func TestNetworkPorts(t *testing.T) {
	for _, method := range []plan.NetMethod{plan.NetNone, plan.NetProxy, plan.NetRedirect} {
		t.Run("method "+string(method), func(t *testing.T) {
			host, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			go serve(host, func(c net.Conn) { fmt.Fprintln(c, "from the host") })
			other, err := net.Listen("tcp", "127.0.0.1:0") // not granted
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			free := freePort(t)
			published := fmt.Sprintf("127.0.0.1:%d", free)
			port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

			n := plan.Network{Method: method, Loopback: []plan.PortGrant{{Port: port(host)}}, Publish: []plan.PortGrant{{Port: free}}}
			granted, refused := fmt.Sprintf(":%d", port(host)), fmt.Sprintf("tcp 127.0.0.1:%d", port(other))
			served := "serve " + published
			p := networkPlan(t, n, "fds", "tcp 127.0.0.1"+granted, "tcp [::1]"+granted, refused, "tcp 192.0.2.1:443", "udp 192.0.2.1:443", served)
			var out bytes.Buffer
			c := Command(p)
			c.Stdout, c.Stderr = &out, &out
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, func() bool { _, err := os.Stat(p.Command.Dir + "/ready"); return err == nil })
			conn, err := net.Dial("tcp", published)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(clientPatience))
			got, err := io.ReadAll(conn)
			if string(got) != "from inside\n" || err != nil {
				t.Errorf("the published port says %q, %v", got, err)
			}
			if err := c.Wait(); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			tcp, udp := "ENETUNREACH", "ENETUNREACH"
			if method == plan.NetRedirect {
				tcp, udp = "ECONNRESET", "EPERM"
			}
			lines(t, out.String(), "fds: 0 /dev/null, 1 pipe, 2 pipe",
				"tcp 127.0.0.1"+granted+": from the host", "tcp [::1]"+granted+": from the host", refused+": ECONNREFUSED",
				"tcp 192.0.2.1:443: "+tcp, "udp 192.0.2.1:443: "+udp, served+": served")
			if c, err := net.Dial("tcp", published); err == nil {
				c.Close()
				t.Error("the published port outlives the box")
			}
		})
	}
}

func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(clientPatience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
}

// The command cannot put itself in the place of wall's sockets, nor beside them; all
// others are its own.
func TestNetworkPortsAreTaken(t *testing.T) {
	n := plan.Network{Method: plan.NetRedirect, Loopback: []plan.PortGrant{{Port: 5432}}}
	var do, want []string
	for addr, answer := range map[string]string{
		"127.0.0.1:3128": "EADDRINUSE", "0.0.0.0:3128": "EADDRINUSE", "[::]:3128": "EADDRINUSE", "127.0.0.1:1080": "EADDRINUSE",
		"127.0.0.1:5432": "EADDRINUSE", "0.0.0.0:5432": "EADDRINUSE", "[::1]:5432": "EADDRINUSE", "[::]:5432": "EADDRINUSE",
		"127.0.0.1:53": "EACCES", "198.18.0.1:443": "EACCES", "127.0.0.1:1023": "EACCES",
		"127.0.0.1:50051": "ok", "0.0.0.0:8080": "ok", "[::]:8081": "ok", "198.18.0.1:8443": "ok",
	} {
		do, want = append(do, "listen "+addr), append(want, "listen "+addr+": "+answer)
	}
	out, err := run(t, networkPlan(t, n, do...))
	if err != nil {
		t.Fatal(err)
	}
	lines(t, out, want...)
}

// The command does not run unless stage 1 says that it serves the sockets.
func TestNetworkNotServed(t *testing.T) {
	for _, answer := range []string{"", "\x00"} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := &stage2{base: pair[1] - 3}
		s.p.Network = plan.Network{Method: plan.NetProxy, Origin: plan.Origin{Text: "the network"}}
		if answer != "" {
			unix.Write(pair[0], []byte(answer))
		}
		unix.Close(pair[0])
		if err := s.served(); (err == nil) != (answer != "") || err != nil && !strings.Contains(plan.Explain(err), "at the network") {
			t.Errorf("after %q: %v", answer, err)
		}
		if answer == "" {
			unix.Close(pair[1])
		} else if _, err := fstat(pair[1]); !errors.Is(err, unix.EBADF) {
			t.Errorf("the socket stays open: %v", err)
		}
	}
}

// A published port that is taken keeps the command from running, and the line that
// asks for it is named.
func TestNetworkPublishTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := plan.Origin{File: "a.toml", Line: 7, Text: "publish = [1]"}
	p := networkPlan(t, plan.Network{Publish: []plan.PortGrant{{Port: l.Addr().(*net.TCPAddr).Port, Origin: o}}}, "fds")
	out, err := run(t, p)
	if out != "" || !errors.Is(err, unix.EADDRINUSE) || plan.ExitStatus(err) != plan.ExitFailed || !strings.Contains(plan.Explain(err), "a.toml:7") {
		t.Errorf("%q, %v", out, err)
	}
}

// Port 53 of the host cannot be granted next to wall's own DNS.
func TestNetworkPortTwice(t *testing.T) {
	o := plan.Origin{File: "a.toml", Line: 7, Text: "loopback = [53]"}
	p := networkPlan(t, plan.Network{Method: plan.NetRedirect, Loopback: []plan.PortGrant{{Port: 53, Origin: o}}}, "fds")
	out, err := run(t, p)
	if text := plan.Explain(err); out != "" || !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(text, "a.toml:7") || !strings.Contains(text, "hint: with network mode") {
		t.Errorf("%q, %v", out, text)
	}
}

// Ports below 1024 of the host can be had, although the command itself could not
// take them.
func TestNetworkLowPort(t *testing.T) {
	p := networkPlan(t, plan.Network{Loopback: []plan.PortGrant{{Port: 23}, {Port: 1023}}}, "tcp 127.0.0.1:1023", "serve 127.0.0.1:22")
	out, err := run(t, p)
	if err != nil {
		t.Fatal(err)
	}
	// Nobody listens there on the host: the connection ends.
	lines(t, out, "tcp 127.0.0.1:1023: ECONNRESET", "serve 127.0.0.1:22: EACCES")
}

const anyProtocol = -1

// onThread calls f on a thread for which socket(2) with the given family and
// protocol fails as in a kernel without it; processes that
// it starts have the same. The thread is used for nothing else.
func onThread(t *testing.T, domain uint32, protocol int, f func()) {
	t.Helper()
	const number, arg0, arg2 = 0, 16, 32 // offsets in struct seccomp_data
	code := []bpf.Instruction{
		bpf.LoadAbsolute{Off: number, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_SOCKET, SkipTrue: 5},
		bpf.LoadAbsolute{Off: arg0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: domain, SkipTrue: 3},
		bpf.LoadAbsolute{Off: arg2, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(protocol), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	}
	if protocol == anyProtocol {
		code[5] = bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT)}
	}
	raw, err := bpf.Assemble(code)
	if err != nil {
		t.Fatal(err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	done := make(chan error)
	go func() {
		var err error
		defer func() { done <- err }() // also when f ends the test
		runtime.LockOSThread()         // never unlocked
		prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		err = prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0)
		if err == nil {
			err = prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)))
		}
		if err == nil {
			f()
		}
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Where the kernel cannot redirect, the command does not run, and the error says
// what is missing, so that another plan can be made.
func TestNetworkWithoutNftables(t *testing.T) {
	for _, c := range []struct {
		protocol int
		want     string
	}{
		{unix.NETLINK_NETFILTER, "cannot redirect the connections of the command: connections cannot be redirected here: socket AF_NETLINK: protocol not supported"},
		{unix.NETLINK_ROUTE, "cannot redirect the connections of the command: connections cannot be redirected here: socket AF_NETLINK: protocol not supported"},
	} {
		p := networkPlan(t, allowed(t), "fds")
		other := networkPlan(t, plan.Network{Method: plan.NetProxy}, "fds")
		onThread(t, unix.AF_NETLINK, c.protocol, func() {
			out, err := run(t, p)
			var ne *NftablesError
			var se *StepError
			if out != "" || !errors.As(err, &ne) || !errors.As(err, &se) || se.Step != "network" || !errors.Is(err, unix.EPROTONOSUPPORT) || plan.ExitStatus(err) != plan.ExitFailed {
				t.Fatalf("%q, %v", out, err)
			}
			if err.Error() != c.want {
				t.Errorf("got  %s\nwant %s", err, c.want)
			}
			if text := plan.Explain(err); !strings.Contains(text, "at the network\n  hint: the kernel needs nftables with NAT") || !strings.Contains(text, "modprobe -a nf_tables nft_chain_nat nft_redir") {
				t.Errorf("it says\n%s", text)
			}
			// What a caller does then.
			if out, err := run(t, other); err != nil || !strings.HasPrefix(out, "fds: ") {
				t.Errorf("with proxies: %q, %v", out, err)
			}
			features, err := Probe(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range features {
				if redirect := strings.HasPrefix(f.Name, "redirection"); redirect == f.OK || redirect && (!f.Optional || !strings.Contains(f.Remedy, "modprobe")) {
					t.Errorf("probe says %+v", f)
				}
			}
		})
	}
}

// A kernel without IPv6 has a network wall, too.
func TestNetworkWithoutIPv6(t *testing.T) {
	n := allowed(t)
	n.Loopback = []plan.PortGrant{{Port: 1022}}
	p := networkPlan(t, n, "tcp allowed.example:443", "tcp 192.0.2.1:443", "tcp [2001:db8:1::5]:22", "udp 192.0.2.1:443",
		"dns udp 192.0.2.5:53 other.example", "tcp 127.0.0.1:1022")
	onThread(t, unix.AF_INET6, anyProtocol, func() {
		out, err := run(t, p)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		lines(t, out, "tcp allowed.example:443: CONNECT allowed.example:443", "tcp 192.0.2.1:443: ECONNRESET", "tcp [2001:db8:1::5]:22: EAFNOSUPPORT",
			"udp 192.0.2.1:443: EPERM", "dns udp 192.0.2.5:53 other.example: not found", "tcp 127.0.0.1:1022: ECONNRESET")
	})
}

// A request that the kernel refuses is named, with what it needs.
func TestNftablesErrorNamesTheRequest(t *testing.T) {
	m := ruleset(families(true), 1023)
	for i, want := range map[int]string{
		1:  "an nftables table for ip (module nf_tables): no such file or directory",
		2:  "an nftables chain of type nat for ip (module nft_chain_nat): no such file or directory",
		3:  "an nftables rule for ip with redirect (module nft_redir): no such file or directory",
		9:  "an nftables rule for ip with reject (module nft_reject_ipv4): no such file or directory",
		14: "an nftables chain of type nat for ip6 (module nft_chain_nat): no such file or directory",
	} {
		answer := netlinkBytes([]netlinkMessage{{kind: unix.NLMSG_ERROR, body: append(native32(^uint32(unix.ENOENT)+1), make([]byte, unix.SizeofNlMsghdr)...)}})
		binary.NativeEndian.PutUint32(answer[8:], uint32(i))
		n, err := netlinkAnswers(append(netlinkBytes([]netlinkMessage{{kind: unix.NLMSG_ERROR, body: make([]byte, 20)}}), answer...), m)
		if n != 1 || err == nil || err.Error() != want || !errors.Is(err, unix.ENOENT) {
			t.Errorf("message %d: %d, %v, want %s", i, n, err, want)
		}
	}
	for _, bad := range [][]byte{{1}, make([]byte, 16), netlinkBytes([]netlinkMessage{{kind: unix.NLMSG_DONE}}), netlinkBytes([]netlinkMessage{{kind: unix.NLMSG_ERROR, body: []byte{0}}})} {
		if _, err := netlinkAnswers(bad, m); err != errNetlink {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// When stage 1 is killed, the box ends with it, and the published port is free.
func TestNetworkLauncherKilled(t *testing.T) {
	const mark = "WALL_TEST_NETWORK_LAUNCHER"
	if port, err := strconv.Atoi(os.Getenv(mark)); err == nil {
		n := allowed(t)
		n.Publish = []plan.PortGrant{{Port: port}}
		p := networkPlan(t, n, "wait")
		p.Command.Dir = "/tmp"
		c := Command(p)
		c.Stdout = os.Stdout // held by the box
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("started")
		c.Wait()
		t.Fatal("the box ended by itself")
	}
	need(t, "userns", "landlock")
	port := freePort(t)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	dir := t.TempDir() // for what the killed process cannot remove
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestNetworkLauncherKilled$")
	cmd.Env = append(os.Environ(), mark+"="+strconv.Itoa(port), "TMPDIR="+dir)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out := bufio.NewReader(r)
	if line, err := out.ReadString('\n'); line != "started\n" {
		t.Fatalf("%q, %v", line, err)
	}
	// Nothing in the box listens: wall takes the connection and resets it, maybe before
	// it is seen to be one.
	switch c, err := net.Dial("tcp", addr); {
	case err == nil:
		c.Close()
	case !errors.Is(err, unix.ECONNRESET):
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	// The end of the pipe: nobody in the box has it any more.
	r.SetReadDeadline(time.Now().Add(clientPatience))
	if rest, err := io.ReadAll(out); err != nil || len(rest) != 0 {
		t.Errorf("after the launcher: %q, %v", rest, err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("the published port is still taken: %v", err)
	}
	l.Close()
}

// What a command sends last arrives, although it does not wait for that and its box is
// gone before wall has even seen the connection: so it is without a wall.
func TestNetworkLastWords(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	words := make(chan string, 1000)
	go serve(l, func(c net.Conn) {
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err != nil {
			words <- err.Error()
			return
		}
		fmt.Fprint(c, "HTTP/1.1 200 OK\r\n\r\n")
		text, err := io.ReadAll(r)
		words <- fmt.Sprint(string(text), err)
	})
	n := allowed(t)
	n.Upstream.URL = "http://" + l.Addr().String()
	const boxes = 60
	var wg sync.WaitGroup
	turn := make(chan struct{}, 10) // more than there are processors
	for range boxes {
		turn <- struct{}{}
		p := networkPlan(t, n, "send 192.0.2.200:80 words")
		wg.Go(func() {
			defer func() { <-turn }()
			if out, err := run(t, p); err != nil || out != "send 192.0.2.200:80 words: ok\n" {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	wg.Wait()
	for i := range boxes {
		select {
		case got := <-words:
			if got != "words<nil>" {
				t.Errorf("%q arrives", got)
			}
		case <-time.After(clientPatience):
			t.Fatalf("only the words of %d arrive", i)
		}
	}
}

// Many boxes at once, each with its own names and addresses, and nothing left.
func TestNetworkManyBoxes(t *testing.T) {
	const boxes = 50
	before := openFDs(t)
	n := allowed(t)
	var wg sync.WaitGroup
	for range boxes {
		p := networkPlan(t, n, "tcp allowed.example:443", "tcp [2001:db8:1::5]:22", "tcp 192.0.2.1:443", "udp 192.0.2.1:443")
		wg.Go(func() {
			out, err := run(t, p)
			if err != nil {
				t.Errorf("%v\n%s", err, out)
				return
			}
			lines(t, out, "tcp allowed.example:443: CONNECT allowed.example:443", "tcp [2001:db8:1::5]:22: CONNECT [2001:db8:1::5]:22",
				"tcp 192.0.2.1:443: ECONNRESET", "udp 192.0.2.1:443: EPERM")
		})
	}
	wg.Wait()
	waitFor(t, func() bool { return openFDs(t) <= before+2 }) // the proxy's own connections end on their own
}

func openFDs(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// pid 1 of the box keeps no socket but that by which stage 1 asks for more.
func TestNetworkDescriptorsOfInit(t *testing.T) {
	need(t, "root") // to look at them
	for publish, want := range map[bool]int{false: 0, true: 1} {
		n := allowed(t)
		if publish {
			n.Publish = []plan.PortGrant{{Port: freePort(t)}}
		}
		n.Loopback = []plan.PortGrant{{Port: 5432}}
		c := Command(networkPlan(t, n, "wait"))
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		count := func() (sockets int) {
			names, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", c.Pid()))
			if err != nil || len(names) < 5 {
				t.Errorf("%q, %v", names, err)
			}
			for _, name := range names {
				if to, _ := os.Readlink(name); strings.HasPrefix(to, "socket:") {
					sockets++
				}
			}
			return sockets
		}
		sockets := count()
		for end := time.Now().Add(clientPatience / 4); sockets != want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			sockets = count() // the command may run before pid 1 has closed what it does not need
		}
		c.Kill()
		c.Wait()
		if sockets != want {
			t.Errorf("publish %t: pid 1 holds %d sockets, want %d", publish, sockets, want)
		}
	}
}

// A request for a socket that is given up does not confuse the next one.
func TestNetworkDialGivenUp(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(pair[0], true); err != nil {
		t.Fatal(err)
	}
	n := &network{file: os.NewFile(uintptr(pair[0]), "test"), turn: make(chan struct{}, 1)}
	defer n.file.Close()
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if _, err := n.dial(ctx, "tcp4"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody answers: %v", err)
		}
		cancel()
	}
	s := &stage2{}
	s.p.TTY = plan.TTYNone
	s.base = pair[1] - 3 // where it looks for the socket
	go s.giveSockets()
	for _, name := range []string{"tcp6", "tcp4", "tcp6"} {
		f, err := n.dial(context.Background(), name)
		if err != nil {
			t.Fatal(err)
		}
		domain, err := unix.GetsockoptInt(int(f.Fd()), unix.SOL_SOCKET, unix.SO_DOMAIN)
		f.Close()
		if want := map[string]int{"tcp4": unix.AF_INET, "tcp6": unix.AF_INET6}[name]; err != nil || domain != want {
			t.Errorf("%s: a socket of family %d, %v", name, domain, err)
		}
	}
	if n.owed != 0 {
		t.Errorf("%d answers are owed", n.owed)
	}
	unix.Shutdown(pair[1], unix.SHUT_RDWR)
	if _, err := n.dial(context.Background(), "tcp4"); err == nil {
		t.Error("a box that has ended gives a socket")
	}
}

// BenchmarkNetwork measures what redirection costs at the start, next to no network,
// in turn; "ratio" is their quotient.
func BenchmarkNetwork(b *testing.B) {
	var times [2]time.Duration
	plans := [2]plan.Plan{networkPlan(b, plan.Network{}), networkPlan(b, plan.Network{Method: plan.NetRedirect})}
	plans[0].Network = plan.Network{}
	for b.Loop() {
		for i, p := range plans {
			p.Scratch.ID = fmt.Sprintf("%x", time.Now().UnixNano())
			begin := time.Now()
			if err := Command(p).Run(); err != nil {
				b.Fatal(err)
			}
			times[i] += time.Since(begin)
		}
	}
	n := float64(b.N)
	b.ReportMetric(float64(times[0].Microseconds())/n, "none-us/op")
	b.ReportMetric(float64((times[1]-times[0]).Microseconds())/n, "added-us/op")
	b.ReportMetric(float64(times[1])/float64(times[0]), "ratio")
}
