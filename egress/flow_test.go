package egress

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair gives the two ends of a connection of the box to an allowed host.
func (w *world) pair() (box, host *net.TCPConn) {
	w.Helper()
	accepted := make(chan *net.TCPConn, 1)
	w.name("example.org", "93.184.215.14")
	w.host("93.184.215.14:443", func(c *net.TCPConn) { accepted <- c })
	box = w.to("example.org", 443)
	select {
	case host = <-accepted:
	case <-time.After(patience):
		w.Fatalf("no connection arrived; the events are %+v", w.events())
	}
	w.Cleanup(func() { host.Close() })
	host.SetDeadline(time.Now().Add(patience))
	return box, host
}

// TestHalfClose: the end of one direction is passed on, and the other one goes on.
func TestHalfClose(t *testing.T) {
	for _, first := range []string{"box", "host"} {
		w := newWorld(t, ruled(t, "example.org 443"))
		a, b := w.pair()
		if first == "host" {
			a, b = b, a
		}
		io.WriteString(a, "the question")
		a.CloseWrite()
		if got, err := io.ReadAll(b); string(got) != "the question" || err != nil {
			t.Errorf("%s first: got %q, %v", first, got, err)
		}
		answer := bytes.Repeat([]byte("answer "), 100000)
		go func() {
			b.Write(answer)
			b.Close()
		}()
		if got, err := io.ReadAll(a); !bytes.Equal(got, answer) || err != nil {
			t.Errorf("%s first: got %d bytes, %v, want %d", first, len(got), err, len(answer))
		}
		e := w.find(KindClose)
		in, out := int64(len(answer)), int64(len("the question"))
		if first == "host" {
			in, out = out, in
		}
		if e.In != in || e.Out != out || e.Reason != "" || e.Name != "example.org" || e.Addr != "93.184.215.14" || e.Port != 443 || e.Rule.Line != 1 || e.Duration <= 0 {
			t.Errorf("%s first: %+v", first, e)
		}
	}
}

// TestResetPassedOn: a reset of one end reaches the other one as a reset, whatever the
// connection is doing.
func TestResetPassedOn(t *testing.T) {
	for _, from := range []string{"box", "host"} {
		for _, when := range []string{"idle", "after its own end", "after the other's end", "while it sends", "while it receives"} {
			t.Run(from+" "+when, func(t *testing.T) {
				w := newWorld(t, ruled(t, "example.org 443"))
				a, b := w.pair()
				if from == "host" {
					a, b = b, a
				}
				wantPing(t, a, b)
				sent := make(chan error, 1) // an error is told once: to who sends or to who reads
				switch when {
				case "after its own end":
					a.CloseWrite()
					if _, err := b.Read(make([]byte, 1)); err != io.EOF {
						t.Fatal(err)
					}
				case "after the other's end":
					b.CloseWrite()
					if _, err := a.Read(make([]byte, 1)); err != io.EOF {
						t.Fatal(err)
					}
				case "while it sends":
					a.Write(make([]byte, 1000))
				case "while it receives":
					// More than fits, so that the relay waits for this end.
					go func() {
						_, err := b.Write(make([]byte, 64<<20))
						sent <- err
					}()
					a.Read(make([]byte, 1))
				}
				reset(a)
				var err error
				if when == "while it receives" {
					err = <-sent
				} else {
					w.until("reset", func() bool {
						// Who has closed its direction sees it as the error of the socket.
						if _, err = b.Read(make([]byte, 4096)); err == io.EOF {
							err = socketError(b)
						}
						return err != nil
					})
				}
				if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					t.Errorf("got %v, want a reset", err)
				}
				if e := w.find(KindClose); e.Reason != "reset by the "+from {
					t.Errorf("%+v", e)
				}
			})
		}
	}
}

func wantPing(t *testing.T, a, b net.Conn) {
	t.Helper()
	for range 2 {
		io.WriteString(a, "ping")
		got := make([]byte, 4)
		if _, err := io.ReadFull(b, got); err != nil || string(got) != "ping" {
			t.Fatalf("got %q, %v", got, err)
		}
		a, b = b, a
	}
}

// socketError gives the error that waits at a socket.
func socketError(c *net.TCPConn) (err error) {
	rc, e := c.SyscallConn()
	if e != nil {
		return e
	}
	rc.Control(func(fd uintptr) {
		if n, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); n != 0 {
			err = unix.Errno(n)
		}
	})
	return err
}

// TestIdle: a connection without a byte in either direction is ended, one with a byte
// now and then is not.
func TestIdle(t *testing.T) {
	n := ruled(t, "example.org 443")
	n.Idle = uint64(4 * time.Second)
	w := newWorld(t, n)
	box, host := w.pair()
	start := time.Now()
	for time.Since(start) < 5*time.Second {
		wantPing(t, host, box)
		time.Sleep(20 * time.Millisecond)
	}
	wantReset(t, box)
	wantReset(t, host)
	if e := w.find(KindClose); e.Reason != "idle for 4s" || e.Duration < 5*time.Second {
		t.Errorf("%+v", e)
	}
}

// TestIdleHalfClosed: also when one end has said all and the other one never answers,
// and when one does not take what the other sends.
func TestIdleHalfClosed(t *testing.T) {
	n := ruled(t, "example.org 443")
	n.Idle = uint64(2 * time.Second)
	w := newWorld(t, n)
	box, _ := w.pair()
	box.CloseWrite()
	if e := w.find(KindClose); !strings.HasPrefix(e.Reason, "idle") {
		t.Errorf("%+v", e)
	}
	w = newWorld(t, n)
	box, _ = w.pair()
	go box.Write(make([]byte, 64<<20))
	if e := w.find(KindClose); !strings.HasPrefix(e.Reason, "idle") || e.Out == 0 {
		t.Errorf("%+v", e)
	}
}

// TestBytesArrive: what goes in at one end comes out at the other, in both directions
// at once, through pipes and through memory.
func TestBytesArrive(t *testing.T) {
	for _, pipes := range []int{0, 1, 8} {
		w := newWorld(t, ruled(t, "example.org 443"), tuned(func(s *Server) { s.pipes = newPipes(pipes) }))
		a, b := w.pair()
		data := make([]byte, 8<<20)
		for i := range data {
			data[i] = byte(i * i >> 7)
		}
		var wg sync.WaitGroup
		for _, ends := range [][2]*net.TCPConn{{a, b}, {b, a}} {
			wg.Go(func() {
				for sent, step := 0, 1; sent < len(data); step = step*7%100003 + 1 {
					n := min(step, len(data)-sent)
					if _, err := ends[0].Write(data[sent : sent+n]); err != nil {
						t.Error(err)
						return
					}
					sent += n
				}
				ends[0].CloseWrite()
			})
			wg.Go(func() {
				if got, err := io.ReadAll(ends[1]); !bytes.Equal(got, data) || err != nil {
					t.Errorf("%d pipes: %d bytes, %v", pipes, len(got), err)
				}
			})
		}
		wg.Wait()
		w.find(KindClose)
		if n := w.pipes.spliced.Load(); (n > 0) != (pipes > 0) {
			t.Errorf("%d pipes: %d bytes were spliced", pipes, n)
		}
	}
}

// TestPipesOfIdle: a connection that is idle holds no pipe.
func TestPipesOfIdle(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443"))
	a, b := w.pair()
	wantPing(t, a, b)
	before := openFiles(t)
	for range 20 {
		a, b := w.pair()
		wantPing(t, a, b)
	}
	w.until("all pipes free", func() bool {
		w.pipes.mu.Lock()
		defer w.pipes.mu.Unlock()
		return len(w.pipes.free) <= 4
	})
	// Each: a listener, four ends. What the last one had is given back on its own.
	w.until("end of the use of pipes", func() bool { return openFiles(t)-before <= 20*5+8 })
}

// TestClose: Close ends what is under way, at once, and leaves nothing.
func TestClose(t *testing.T) {
	w := newWorld(t, ruled(t, "example.org 443", "slow.example 443"))
	box, host := w.pair()
	wantPing(t, box, host)
	w.name("slow.example", "93.184.215.15")
	w.hang("93.184.215.15:443")
	waiting := w.to("slow.example", 443)
	half, err := net.Dial("tcp4", w.http)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	io.WriteString(half, "CONNECT ")
	w.until("dial", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.dialed) == 2
	})
	sum := w.Close()
	wantReset(t, box)
	wantReset(t, host)
	wantReset(t, waiting)
	wantReset(t, half)
	if e := w.find(KindClose); e.Reason != "the box has ended" {
		t.Errorf("%+v", e)
	}
	if sum.Opened != 1 || sum.BytesIn != 4 || sum.BytesOut != 4 || sum.Denied != 0 || sum.Failed != 1 {
		t.Errorf("%+v", sum)
	}
	if _, err := net.Dial("tcp4", w.capture); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := w.Start(Sockets{}); err == nil {
		t.Error("a closed Server starts")
	}
}
