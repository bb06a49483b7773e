package egress

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// alwaysFast gives every stream a place, on every machine.
var alwaysFast = tuned(func(s *Server) { s.pipes.placeable, s.pipes.fastTime = true, 1<<62 })

// processors gives the processors that each thread of this process may use, without
// those threads that have just ended.
func processors(t *testing.T) (all []string) {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) == 0 {
		t.Fatal(threads, err)
	}
	for _, name := range threads {
		text, _ := os.ReadFile(name)
		if _, rest, ok := strings.Cut(string(text), "Cpus_allowed:"); ok {
			mask, _, _ := strings.Cut(rest, "\n")
			all = append(all, mask)
		}
	}
	return all
}

func wantProcessors(t *testing.T, want string) {
	t.Helper()
	for _, got := range processors(t) {
		if got != want {
			t.Errorf("a thread may use the processors %s, want %s", got, want)
		}
	}
}

// TestPlace: a stream is as whole with places as without, they are given up when it pauses,
// and it goes on afterwards.
func TestPlace(t *testing.T) {
	whole := processors(t)[0]
	w := newWorld(t, ruled(t, "example.org 443"), alwaysFast)
	a, b := w.pair()
	a.SetDeadline(time.Now().Add(patience))
	data := make([]byte, 8*fastSize)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	for round := range int64(3) {
		var wg sync.WaitGroup
		for _, ends := range [][2]io.ReadWriter{{a, b}, {b, a}} {
			wg.Go(func() {
				if _, err := ends[0].Write(data); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				got := make([]byte, len(data))
				if _, err := io.ReadFull(ends[1], got); err != nil || !bytes.Equal(got, data) {
					t.Errorf("round %d: not what was sent, %v", round, err)
				}
			})
		}
		wg.Wait()
		w.until("stream without a place", func() bool { return w.pipes.placed.Load() == 0 })
		if got := w.pipes.places.Load(); got < 2*(round+1) {
			t.Errorf("round %d: %d places were taken, want one in each direction", round, got)
		}
		wantProcessors(t, whole)
		wantPing(t, a, b)
	}
	a.CloseWrite()
	if got, err := io.ReadAll(b); len(got) > 0 || err != nil {
		t.Errorf("after the end: %q, %v", got, err)
	}
	b.Close()
	w.find(KindClose)
	wantProcessors(t, whole)
}

// TestPlaceClose: a stream with a place ends at once, with what waits for its reader.
func TestPlaceClose(t *testing.T) {
	for _, end := range []string{"Close", "reset"} {
		whole := processors(t)[0]
		w := newWorld(t, ruled(t, "example.org 443"), alwaysFast)
		a, b := w.pair()
		sent := make(chan error, 1)
		go func() {
			for block := make([]byte, fastSize); ; {
				if _, err := b.Write(block); err != nil {
					sent <- err
					return
				}
			}
		}()
		w.until("place", func() bool {
			io.CopyN(io.Discard, a, fastSize)
			return w.pipes.places.Load() > 0
		})
		if end == "Close" {
			w.Close()
		} else {
			reset(a)
			w.find(KindClose)
			w.until("stream without a place", func() bool { return w.pipes.placed.Load() == 0 })
		}
		if err := <-sent; err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: the host is told %v", end, err)
		}
		if got := w.pipes.placed.Load(); got != 0 {
			t.Errorf("%s: %d places are held", end, got)
		}
		wantProcessors(t, whole)
	}
}

// TestPlaceFollows: the thread goes to the processor that the reader is seen on, several
// times in a row, to none that it may not use, and back.
func TestPlaceFollows(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for the masks; the one of the place is a second one
		defer runtime.UnlockOSThread()
		var before, now unix.CPUSet
		if err := unix.SchedGetaffinity(0, &before); err != nil {
			t.Error(err)
			return
		}
		p := place{pipes: newPipes(1)}
		p.pipes.placeable, p.pipes.fastTime = true, 1<<62
		p.since = time.Now()
		p.passed(fastSize - 1)
		if p.passed(0); p.held {
			t.Error("a place before there was enough")
		}
		p.passed(1)
		if !p.held || p.pipes.placed.Load() != 1 {
			t.Error("no place")
		}
		third := place{pipes: p.pipes, since: time.Now()}
		p.pipes.placed.Add(mostPlaced - 1)
		if third.passed(fastSize); third.held {
			t.Error("a place too many")
		}
		cpu := 0
		for !before.IsSet(cpu) {
			cpu++
		}
		for range enoughSeen {
			if unix.SchedGetaffinity(0, &now); now != before {
				t.Error("moved too early")
			}
			p.saw(cpu)
		}
		unix.SchedGetaffinity(0, &now)
		if now.Count() != 1 || !now.IsSet(cpu) {
			t.Errorf("on %d processors", now.Count())
		}
		for range 2 * enoughSeen {
			p.saw(-1)
			p.saw(len(now)*64 - 1) // no machine has it
		}
		if p.at != cpu {
			t.Errorf("on the processor %d", p.at)
		}
		for other := range 1024 {
			if other != cpu && before.IsSet(other) { // as if the thread might not use it
				p.whole.Clear(other)
				for range enoughSeen {
					p.saw(other)
				}
				p.whole.Set(other)
			}
		}
		if p.at != cpu {
			t.Errorf("on the processor %d, which was not allowed", p.at)
		}
		p.leave()
		p.leave()
		unix.SchedGetaffinity(0, &now)
		if now != before || p.held || p.pipes.placed.Load() != mostPlaced-1 {
			t.Errorf("not given up: %d processors, held: %t", now.Count(), p.held)
		}
		if p.wait(-1, unix.POLLIN) {
			t.Error("waited without a place")
		}
	}()
	<-done
}

// TestPlaceOnNone: the kernel gives -1 for a processor that it does not know. A thread
// that may use the last one of a word of the mask does not take it for that.
func TestPlaceOnNone(t *testing.T) {
	p := place{pipes: newPipes(1), at: -1}
	p.whole.Set(63)
	for range 2 * enoughSeen {
		p.saw(-1)
	}
	if p.seen != 0 {
		t.Error("seen on no processor")
	}
}

// notOnFirst calls f locked to a thread that is not the first one of the process, which
// the runtime parks when others end.
func notOnFirst(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	done := make(chan struct{})
	go func() {
		defer close(done)
		notOnFirst(f)
	}()
	<-done
}

// TestPlaceEnds: a thread whose processors are not those that the place gave it, or
// cannot be given back, is nobody's afterwards: neither overruled nor passed on.
func TestPlaceEnds(t *testing.T) {
	var whole, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &whole); err != nil {
		t.Fatal(err)
	}
	first := 0
	for !whole.IsSet(first) {
		first++
	}
	only.Set(first)
	others := whole
	others.Clear(first)
	for _, refused := range []bool{true, false} {
		if !refused && whole.Count() == 1 {
			continue // nobody can give it others
		}
		tid := make(chan int)
		go notOnFirst(func() {
			p := place{pipes: newPipes(1), since: time.Now()}
			p.pipes.placeable, p.pipes.fastTime = true, 1<<62
			p.passed(fastSize)
			runtime.UnlockOSThread()
			for range enoughSeen {
				p.saw(first)
			}
			if !p.held || p.at != first {
				t.Errorf("held: %t, on the processor %d", p.held, p.at)
			}
			want := only
			if refused {
				p.whole.Zero() // the kernel refuses that
			} else {
				want = others
				if err := unix.SchedSetaffinity(0, &others); err != nil {
					t.Error(err)
				}
				p.at = -1 // so that it would move
				for range 2 * enoughSeen {
					p.saw(first)
				}
				p.at = first
			}
			p.leave()
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(0, &now); err != nil || now != want {
				t.Errorf("refused: %t, %d processors, %v", refused, now.Count(), err)
			}
			if p.held || p.pipes.placed.Load() != 0 {
				t.Error("not given up")
			}
			tid <- unix.Gettid()
		})
		thread := <-tid
		for start := time.Now(); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(thread)); os.IsNotExist(err) {
				break
			}
			if time.Since(start) > time.Minute {
				t.Fatalf("refused: %t: the thread goes on", refused)
			}
		}
	}
}
