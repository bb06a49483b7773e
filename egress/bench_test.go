package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

const streamSize = 64 << 20

// TestMain makes the program a peer when it was started as one: like the command and
// the host, and unlike a goroutine, it shares neither a scheduler nor limits with the tests.
func TestMain(m *testing.M) {
	switch os.Getenv("EGRESS_PEER") {
	case "":
		os.Exit(m.Run())
	case "full":
		fmt.Println(noDescriptors())
	case "send":
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(l.Addr())
		block := make([]byte, 128<<10)
		for {
			c, err := l.Accept()
			if err != nil {
				os.Exit(1)
			}
			go func() {
				defer c.Close()
				io.ReadFull(c, make([]byte, 1))
				for range streamSize / len(block) {
					if _, err := c.Write(block); err != nil {
						return
					}
				}
			}()
		}
	}
}

// peer starts this program as a peer, and gives the line that it writes.
func peer(t testing.TB, what string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "EGRESS_PEER="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line[:len(line)-1]
}

// BenchmarkStream compares one bulk stream through the Server with the same stream
// over loopback directly, in turns, so that both have the same machine.
func BenchmarkStream(b *testing.B) {
	w := newWorld(b, ruled(b, "example.org 443"))
	w.name("example.org", "93.184.215.14")
	direct := peer(b, "send")
	w.hosts["93.184.215.14:443"] = direct
	buf := make([]byte, 256<<10)
	receive := func(c net.Conn) time.Duration {
		start := time.Now()
		c.Write([]byte{1})
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, buf)
		if n != streamSize || err != nil {
			b.Fatal(n, err)
		}
		c.Close()
		return time.Since(start)
	}
	var plain, walled time.Duration
	for b.Loop() {
		c, err := net.Dial("tcp4", direct)
		if err != nil {
			b.Fatal(err)
		}
		plain += receive(c)
		walled += receive(w.to("example.org", 443))
	}
	b.SetBytes(2 * streamSize)
	if w.pipes.spliced.Load() == 0 {
		b.Log("nothing was spliced")
	}
	b.ReportMetric(float64(b.N)*streamSize/walled.Seconds()/1e6, "wall-MB/s")
	b.ReportMetric(float64(b.N)*streamSize/plain.Seconds()/1e6, "plain-MB/s")
	b.ReportMetric(100*float64(plain)/float64(walled), "%")
}
