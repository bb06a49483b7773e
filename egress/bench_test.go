package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

const streamSize = 128 << 20

// TestMain makes the program a peer when it was started as one: like the command and
// the host, and unlike a goroutine, it shares neither a scheduler nor limits with the tests.
func TestMain(m *testing.M) {
	switch os.Getenv("EGRESS_PEER") {
	case "":
		os.Exit(m.Run())
	case "full":
		fmt.Println(noDescriptors())
	case "host":
		serveStreams()
	case "client":
		askStreams()
	}
}

// A peer is this program, started once more.
type peer struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

func newPeer(t testing.TB, what string) *peer {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), "EGRESS_PEER="+what)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

// line gives the next line that the peer writes.
func (p *peer) line(t testing.TB) string {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line[:len(line)-1]
}

// serveStreams is a host: it sends a stream to who says "d", and receives one from who
// says "u". It writes how much processor time that took.
func serveStreams() {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return
	}
	fmt.Println(l.Addr())
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		way := make([]byte, 1)
		io.ReadFull(c, way)
		before := processorTime()
		if way[0] == 'd' {
			sendStream(c)
		} else {
			receiveStream(c)
			c.Write(way)
		}
		c.Close()
		fmt.Println(int64(processorTime() - before))
	}
}

// askStreams is a client: of each line that it reads, it takes the way of the stream and
// the address. It writes how long that took, in all and of processor time.
func askStreams() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		way, addr := in.Text()[:1], in.Text()[1:]
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			return
		}
		start, before := time.Now(), processorTime()
		io.WriteString(c, way)
		if way == "d" {
			receiveStream(c)
		} else {
			sendStream(c)
			io.ReadFull(c, make([]byte, 1))
		}
		fmt.Println(int64(time.Since(start)), int64(processorTime()-before))
		c.Close()
	}
}

var block = make([]byte, 256<<10)

func sendStream(c net.Conn) {
	for range streamSize / len(block) {
		if _, err := c.Write(block); err != nil {
			return
		}
	}
}

func receiveStream(c net.Conn) {
	for n := 0; n < streamSize; {
		k, err := c.Read(block)
		if err != nil {
			os.Exit(1)
		}
		n += k
	}
}

// processorTime gives what this process has used of the processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkStream compares one bulk stream through the Server with the same stream
// over loopback directly, in turns, so that both have the same machine. cpu-% is the
// same comparison by the processor time that all three processes take, which a busy
// machine changes less.
func BenchmarkStream(b *testing.B) {
	b.Run("down", func(b *testing.B) { benchmarkStream(b, "d") })
	b.Run("up", func(b *testing.B) { benchmarkStream(b, "u") })
}

func benchmarkStream(b *testing.B, way string) {
	w := newWorld(b, ruled(b, "example.org 443"), tuned(func(s *Server) {
		s.testOnlyOriginal = func(*net.TCPConn) (netip.AddrPort, error) {
			v4, _, _ := s.table.Add("example.org")
			return netip.AddrPortFrom(v4, 443), nil
		}
	}))
	w.name("example.org", "93.184.215.14")
	host, client := newPeer(b, "host"), newPeer(b, "client")
	direct := host.line(b)
	w.hosts["93.184.215.14:443"] = direct
	stream := func(addr string) (wall, processor time.Duration) {
		before := processorTime()
		fmt.Fprintln(client.in, way+addr)
		var took, used, served int64
		if _, err := fmt.Sscan(client.line(b), &took, &used); err != nil {
			b.Fatal(err)
		}
		if _, err := fmt.Sscan(host.line(b), &served); err != nil {
			b.Fatal(err)
		}
		return time.Duration(took), time.Duration(used+served) + processorTime() - before
	}
	stream(w.capture)
	var plain, walled, plainUsed, walledUsed time.Duration
	for b.Loop() {
		took, used := stream(direct)
		plain, plainUsed = plain+took, plainUsed+used
		took, used = stream(w.capture)
		walled, walledUsed = walled+took, walledUsed+used
	}
	if w.pipes.spliced.Load() == 0 {
		b.Error("nothing was spliced")
	}
	b.ReportMetric(float64(b.N)*streamSize/walled.Seconds()/1e6, "wall-MB/s")
	b.ReportMetric(float64(b.N)*streamSize/plain.Seconds()/1e6, "plain-MB/s")
	b.ReportMetric(100*float64(plain)/float64(walled), "%")
	b.ReportMetric(100*float64(plainUsed)/float64(walledUsed), "cpu-%")
}

// BenchmarkConnections compares short connections, one after the other, through the
// Server with such ones over loopback directly.
func BenchmarkConnections(b *testing.B) {
	w := newWorld(b, ruled(b, "example.org 443"), func(w *world, o *Options, k *Sockets) {
		o.Resolve = func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
		}
		var direct net.Dialer
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			return direct.DialContext(ctx, network, w.hosts[addr])
		}
		w.tune = func(s *Server) {
			s.testOnlyOriginal = func(*net.TCPConn) (netip.AddrPort, error) {
				v4, _, _ := s.table.Add("example.org")
				return netip.AddrPortFrom(v4, 443), nil
			}
		}
	})
	w.host("93.184.215.14:443", echo)
	one := func(addr string) time.Duration {
		start := time.Now()
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			b.Fatal(err)
		}
		wantEcho(b, c, "hello")
		c.Close()
		return time.Since(start)
	}
	direct := w.hosts["93.184.215.14:443"]
	var plain, walled time.Duration
	for b.Loop() {
		plain += one(direct)
		walled += one(w.capture)
	}
	b.ReportMetric(float64(b.N)/walled.Seconds(), "wall-conn/s")
	b.ReportMetric(float64(b.N)/plain.Seconds(), "plain-conn/s")
	b.ReportMetric(100*float64(plain)/float64(walled), "%")
}
