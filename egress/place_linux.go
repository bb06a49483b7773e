package egress

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A stream keeps three threads busy: the sender's, ours and the reader's. Where there are
// two processors, two of the three share one, and it makes a great difference which: with
// the reader, a stream is nearly as fast as without us; with the sender, where the kernel
// puts the thread that it wakes, half as fast. With one processor there is no choice, and
// with more than two the kernel has better ones.
func placeable() bool { return runtime.NumCPU() == 2 }

// A stream of fastSize in fastTime is fast enough to need a place. It has none any more
// when it pauses for pauseTime.
const (
	fastSize  = 1 << 20
	fastTime  = 5 * time.Millisecond
	pauseTime = 5 * time.Millisecond
)

const (
	mostPlaced = 2 // streams at one time: a thread each, and more keep both processors busy anyway
	enoughSeen = 4 // times in a row that the reader is on the same processor
)

// A place keeps one direction of a fast stream on a thread of its own, on the processor
// of the reader. Without one, which is how a stream begins, it is as all goroutines are.
// Processors that the thread may not use are none for it here either. A socket waits for
// at most pauseTime until it can be closed.
type place struct {
	pipes *pipes
	since time.Time // of the count
	count int       // bytes
	held  bool
	whole unix.CPUSet // the processors of the thread before
	at    int         // the only one it has now; -1: whole
	next  int         // where the reader was last
	seen  int         // how often, in a row
	poll  [1]unix.PollFd
	limit unix.Timespec
}

// passed counts what has been passed on, and takes a place when that is fast enough.
func (p *place) passed(n int) {
	if p.held || !p.pipes.placeable {
		return
	}
	if p.count += n; p.count < fastSize {
		return
	}
	now := time.Now()
	if now.Sub(p.since) < p.pipes.fastTime {
		p.take()
	}
	p.since, p.count = now, 0
}

func (p *place) take() {
	if p.pipes.placed.Add(1) > mostPlaced {
		p.pipes.placed.Add(-1)
		return
	}
	runtime.LockOSThread()
	if unix.SchedGetaffinity(0, &p.whole) != nil {
		runtime.UnlockOSThread()
		p.pipes.placed.Add(-1)
		return
	}
	p.held, p.at, p.seen = true, -1, 0
	p.pipes.places.Add(1)
}

// leave gives up the place, if there is one.
func (p *place) leave() {
	if !p.held {
		return
	}
	p.held = false
	defer p.pipes.placed.Add(-1)
	if p.at >= 0 && (!p.kept() || unix.SchedSetaffinity(0, &p.whole) != nil) {
		return // the thread stays locked, and ends with the goroutine
	}
	runtime.UnlockOSThread()
}

// kept reports whether the thread's processors are those that it has from here. Somebody
// else may have changed them, for all threads of the process: taskset(1), or the kernel
// when a processor is gone.
func (p *place) kept() bool {
	want := p.whole
	if p.at >= 0 {
		want.Zero()
		want.Set(p.at)
	}
	var now unix.CPUSet
	return unix.SchedGetaffinity(0, &now) == nil && now == want
}

// wait waits for a socket on the thread of the place. With ok = false there is no place,
// or the socket has not become ready.
func (p *place) wait(fd int, events int16) (ok bool) {
	if !p.held {
		return false
	}
	p.poll[0] = unix.PollFd{Fd: int32(fd), Events: events}
	p.limit = unix.NsecToTimespec(int64(pauseTime))
	if n, err := unix.Ppoll(p.poll[:], &p.limit, nil); n <= 0 || err != nil {
		return false
	}
	if events == unix.POLLOUT {
		p.follow(fd)
	}
	return true
}

// follow goes where the reader is: it has just made room for more, and on one machine the
// processor that has told the kernel so is that of the reader.
func (p *place) follow(fd int) {
	cpu, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_INCOMING_CPU)
	if err == nil {
		p.saw(cpu)
	}
}

// saw notes where the reader was, and goes there when it stays.
func (p *place) saw(cpu int) {
	if cpu < 0 || !p.whole.IsSet(cpu) { // -1: the kernel does not know. IsSet would take it for 63
		return
	}
	if cpu != p.next {
		p.next, p.seen = cpu, 0
	}
	if p.seen++; p.seen < enoughSeen || cpu == p.at {
		return
	}
	p.seen = 0 // where that fails, not each time
	if !p.kept() {
		return
	}
	var only unix.CPUSet
	only.Set(cpu)
	if unix.SchedSetaffinity(0, &only) == nil {
		p.at = cpu
	}
}
