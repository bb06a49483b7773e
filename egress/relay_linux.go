package egress

import (
	"cmp"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// How much one call moves: of a pipe, and of memory where there is no pipe left. What
// the pipes of a user hold together is limited (pipe-user-pages-soft, pipe(7)), to 128
// pipes of this size.
const (
	pipeSize   = 512 << 10
	bufferSize = 32 << 10
)

// nearBuffer is how much waits to be sent to a peer that is less than nearTime away.
// The kernel lets it grow to megabytes, which no such peer needs, and which are not in
// the caches of the processors any more when the peer reads them: BenchmarkStream is up
// to twice as fast with this size.
const (
	nearBuffer = 96 << 10
	nearTime   = 250 * time.Microsecond // more than loopback takes; too little for this size to slow a network down
)

// pipes keeps the pipes that splice(2) moves bytes through. A pipe is used only
// while bytes are in it, so that idle connections have none; when all are in use,
// bytes go through memory instead, which is slower and needs no descriptor.
type pipes struct {
	mu     sync.Mutex
	free   []pipe
	left   int // how many more may be made
	closed bool
	buffer sync.Pool

	spliced atomic.Int64 // bytes that went through pipes

	placeable bool          // changed by tests, as is fastTime
	fastTime  time.Duration // how long fastSize may take
	placed    atomic.Int32  // places that are held
	places    atomic.Int64  // all that have been taken
}

type pipe struct{ r, w int }

func newPipes(most int) *pipes {
	return &pipes{
		left:      most,
		buffer:    sync.Pool{New: func() any { b := make([]byte, bufferSize); return &b }},
		placeable: placeable(),
		fastTime:  fastTime,
	}
}

func (p *pipes) get() (pipe, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		got := p.free[n-1]
		p.free = p.free[:n-1]
		return got, true
	}
	if p.left == 0 {
		return pipe{}, false
	}
	var fds [2]int
	if unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK) != nil {
		return pipe{}, false
	}
	p.left--
	// Where the user's pipes hold too much already this fails, and the pipe stays as it is.
	unix.FcntlInt(uintptr(fds[0]), unix.F_SETPIPE_SZ, pipeSize)
	return pipe{fds[0], fds[1]}, true
}

// put takes back a pipe that is empty.
func (p *pipes) put(got pipe) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		got.close()
		return
	}
	p.free = append(p.free, got)
}

// drop takes back a pipe that may hold bytes of a connection.
func (p *pipes) drop(got pipe) {
	got.close()
	p.mu.Lock()
	p.left++
	p.mu.Unlock()
}

func (p *pipes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, got := range p.free {
		got.close()
	}
	p.free = nil
}

func (p pipe) close() {
	unix.Close(p.r)
	unix.Close(p.w)
}

// carry moves bytes from src to dst until src is at its end, which is no error, or
// one of them fails. It tells of every piece that has been passed on.
func (p *pipes) carry(dst, src syscall.RawConn, passed func(int)) (srcErr, dstErr error) {
	var (
		through pipe
		piped   bool
		buf     *[]byte
		n       int
		err     error
	)
	at := place{pipes: p}
	defer at.leave()
	// Where the place has waited in vain, its thread is given up, and the netpoller waits.
	ready := func(fd uintptr, events int16, waited bool) bool {
		if !waited && at.wait(int(fd), events) {
			return true
		}
		at.leave()
		return false
	}
	take := func(fd uintptr) bool { // once for all pieces: it is called very often
		for waited := false; ; waited = true {
			if through, piped = p.get(); piped {
				n, err = splice(int(fd), through.w, pipeSize)
			} else {
				buf = p.buffer.Get().(*[]byte)
				n, err = read(int(fd), *buf)
			}
			if n > 0 {
				return true
			}
			if piped {
				p.put(through)
			} else {
				p.buffer.Put(buf)
			}
			if err != unix.EAGAIN {
				return true
			}
			if !ready(fd, unix.POLLIN, waited) {
				return false
			}
		}
	}
	var out int
	give := func(fd uintptr) bool {
		for waited := false; ; waited = true {
			if out, err = splice(through.r, int(fd), n); err != unix.EAGAIN {
				return true
			}
			if !ready(fd, unix.POLLOUT, waited) {
				return false
			}
		}
	}
	for {
		if waited := src.Read(take); waited != nil {
			return waited, nil
		}
		if n <= 0 {
			return err, nil // nil at the end
		}
		if !piped {
			at.leave() // writeAll waits otherwise
			err = writeAll(dst, (*buf)[:n], passed)
			p.buffer.Put(buf)
			if err != nil {
				return nil, err
			}
			continue
		}
		p.spliced.Add(int64(n))
		for n > 0 {
			waited := dst.Write(give)
			if waited == nil && err == nil && out <= 0 {
				err = io.ErrShortWrite
			}
			if err = cmp.Or(waited, err); err != nil {
				p.drop(through)
				return nil, err
			}
			n -= out
			passed(out)
			at.passed(out)
		}
		p.put(through)
	}
}

func writeAll(dst syscall.RawConn, b []byte, passed func(int)) error {
	for len(b) > 0 {
		var n int
		var err error
		waited := dst.Write(func(fd uintptr) bool {
			for {
				if n, err = unix.Write(int(fd), b); err != unix.EINTR {
					return err != unix.EAGAIN
				}
			}
		})
		if err = cmp.Or(waited, err); err != nil {
			return err
		}
		b = b[n:]
		passed(n)
	}
	return nil
}

// splice moves up to n bytes between a pipe and a socket, neither of which it waits for.
// So the scheduler of Go need not know of the call: it would wake its monitor and other
// threads for each that takes a while, two context switches of three.
func splice(from, to, n int) (int, error) {
	for {
		moved, _, errno := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(n), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		switch errno {
		case 0:
			return int(moved), nil
		case unix.EINTR:
		default:
			return -1, errno
		}
	}
}

func read(fd int, b []byte) (int, error) {
	for {
		n, err := unix.Read(fd, b)
		if err != unix.EINTR {
			return n, err
		}
	}
}
