package nsexec

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

func init() {
	// Points standard input to another host, as far as it is a socket, and sends.
	netOps["reconnect"] = func(to string) (string, error) {
		a, err := net.ResolveTCPAddr("tcp4", to)
		if err != nil {
			return "", err
		}
		unspecified := unix.RawSockaddrInet4{Family: unix.AF_UNSPEC}
		_, _, dissolved := unix.Syscall(unix.SYS_CONNECT, 0, uintptr(unsafe.Pointer(&unspecified)), unix.SizeofSockaddrInet4)
		connected := unix.Connect(0, &unix.SockaddrInet4{Addr: [4]byte(a.IP.To4()), Port: a.Port})
		_, sent := unix.Write(0, []byte("LEAK"))
		return fmt.Sprintf("%v, %v, %v", dissolved, connected, sent), nil
	}
	netOps["echo"] = func(string) (string, error) {
		b, err := io.ReadAll(os.Stdin)
		return string(b), err
	}
}

// TestSocketStream: a standard stream that is a TCP connection carries bytes both ways, and
// is no way to another host; nor is a UDP socket.
func TestSocketStream(t *testing.T) {
	other, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	reached := make(chan struct{}, 8)
	go func() {
		for {
			c, err := other.Accept()
			if err != nil {
				return
			}
			reached <- struct{}{}
			c.Close()
		}
	}()
	box := func(t *testing.T, in, out *os.File, do ...string) (string, error) {
		p := networkPlan(t, plan.Network{}, do...)
		var text bytes.Buffer
		c := Command(p)
		c.Stdin, c.Stdout, c.Stderr = in, &text, &text
		if out != nil {
			c.Stdout = out
		}
		err := c.Run()
		return text.String(), err
	}

	// The box's end, and the caller's.
	pair := func(t *testing.T) (*os.File, *net.TCPConn) {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp4", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		a, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		f, err := a.(*net.TCPConn).File()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f, c.(*net.TCPConn)
	}
	t.Run("carries", func(t *testing.T) {
		f, c := pair(t)
		io.WriteString(c, "to and fro")
		c.CloseWrite()
		if text, err := box(t, f, f, "echo"); err != nil {
			t.Fatal(err, text)
		}
		f.Close()
		if b, err := io.ReadAll(c); err != nil || string(b) != "echo: to and fro\n" {
			t.Errorf("the caller got %q, %v", b, err)
		}
	})
	t.Run("TCP", func(t *testing.T) {
		f, _ := pair(t)
		text, err := box(t, f, nil, "reconnect "+other.Addr().String())
		if err != nil || !strings.Contains(text, unix.ENOTSOCK.Error()) {
			t.Errorf("%q, %v", text, err)
		}
	})
	t.Run("UDP", func(t *testing.T) {
		u, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		f, err := u.File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if text, err := box(t, f, nil, "reconnect "+other.Addr().String()); err == nil || !strings.Contains(err.Error(), errSocket.Error()) {
			t.Errorf("%q, %v", text, err)
		}
	})
	if len(reached) > 0 {
		t.Error("the command has reached another host")
	}
}

// TestSocketPassage: which sockets get into a box, for its kinds of network.
func TestSocketPassage(t *testing.T) {
	space := []plan.Space{{Kind: plan.SpaceNet}}
	plans := []*plan.Plan{
		{Enforce: plan.EnforceFSNet, Spaces: space}, // before Landlock scoped abstract sockets
		{Enforce: plan.EnforceFSNet, Spaces: space, Landlock: plan.Landlock{Abstract: true}},
		{Enforce: plan.EnforceFSNet, Landlock: plan.Landlock{Network: true}}, // the network of the host, with ports
		{Enforce: plan.EnforceFSNet},                                         // all of it
		{Enforce: plan.EnforceOff, Spaces: space},
	}
	const d, c, r = passDirect, passCopied, passRefused
	for _, tt := range []struct {
		name                string
		domain, kind, proto int
		listen, pair        bool
		want                [5]passage
	}{
		{"TCP", unix.AF_INET, unix.SOCK_STREAM, 0, false, false, [5]passage{c, c, d, d, d}},
		{"TCP over IPv6", unix.AF_INET6, unix.SOCK_STREAM, 0, false, false, [5]passage{c, c, d, d, d}},
		{"listening TCP", unix.AF_INET, unix.SOCK_STREAM, 0, true, false, [5]passage{r, r, d, d, d}},
		{"UDP", unix.AF_INET, unix.SOCK_DGRAM, 0, false, false, [5]passage{r, r, d, d, d}},
		{"UDP over IPv6", unix.AF_INET6, unix.SOCK_DGRAM, 0, false, false, [5]passage{r, r, d, d, d}},
		{"MPTCP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, false, false, [5]passage{c, c, c, d, d}},
		{"listening MPTCP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP, true, false, [5]passage{r, r, r, d, d}},
		{"netlink", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE, false, false, [5]passage{r, r, d, d, d}},
		{"Unix", unix.AF_UNIX, unix.SOCK_STREAM, 0, false, false, [5]passage{r, d, d, d, d}},
		{"listening Unix", unix.AF_UNIX, unix.SOCK_STREAM, 0, true, false, [5]passage{d, d, d, d, d}},
		{"connected Unix", unix.AF_UNIX, unix.SOCK_STREAM, 0, false, true, [5]passage{d, d, d, d, d}},
		{"connected Unix packets", unix.AF_UNIX, unix.SOCK_SEQPACKET, 0, false, true, [5]passage{d, d, d, d, d}},
		{"connected Unix datagrams", unix.AF_UNIX, unix.SOCK_DGRAM, 0, false, true, [5]passage{r, d, d, d, d}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var fd int
			var err error
			if tt.pair {
				var fds [2]int
				fds, err = unix.Socketpair(tt.domain, tt.kind|unix.SOCK_CLOEXEC, tt.proto)
				defer unix.Close(fds[1])
				fd = fds[0]
			} else {
				fd, err = unix.Socket(tt.domain, tt.kind|unix.SOCK_CLOEXEC, tt.proto)
			}
			if tt.proto == unix.IPPROTO_MPTCP && (err == unix.EPROTONOSUPPORT || err == unix.ENOPROTOOPT) {
				return // then there are none
			}
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if tt.listen {
				var addr unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
				if tt.domain == unix.AF_UNIX {
					addr = &unix.SockaddrUnix{} // any abstract name
				}
				if err := unix.Bind(fd, addr); err != nil {
					t.Fatal(err)
				}
				if err := unix.Listen(fd, 1); err != nil {
					t.Fatal(err)
				}
			}
			for i, p := range plans {
				p.KeepFDs = []int{fd}
				if got, err := passSocket(p, fd); err != nil || got != tt.want[i] {
					t.Errorf("plan %d: %d (%v), want %d", i, got, err, tt.want[i])
				}
				if err := checkSockets(p); (err == nil) != (tt.want[i] == passDirect) {
					t.Errorf("plan %d: to keep it: %v", i, err)
				}
			}
		})
	}
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got, err := passSocket(plans[0], int(file.Fd())); err != nil || got != passDirect {
		t.Errorf("no socket: %d, %v", got, err)
	}
}
