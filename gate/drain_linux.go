package gate

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A drain reads one output stream of the command to its end.
type drain struct {
	read  *os.File // nonblocking, ours
	write *os.File // the command's, blocking
	done  chan struct{}
	held  bool  // somebody could still write at the end; valid when done is closed
	err   error // of reading; valid when done is closed
}

// openDrain makes the pipe. The two ends are open files of their own, so that
// ours can be waited for while the command gets one as it expects it.
func openDrain() (*drain, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	if err := unix.SetNonblock(p[0], true); err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return nil, os.NewSyscallError("fcntl", err)
	}
	return &drain{read: os.NewFile(uintptr(p[0]), "pipe"), write: os.NewFile(uintptr(p[1]), "pipe"), done: make(chan struct{})}, nil
}

// start copies to w until nobody can write any more, or finish gives that up.
func (d *drain) start(w io.Writer) {
	d.write.Close()
	d.write = nil
	go func() {
		defer close(d.done)
		buf := make([]byte, 64<<10)
		copied := func(n int) {
			if n <= 0 {
				return
			}
			if _, err := w.Write(buf[:n]); err != nil && d.err == nil {
				d.err = err
			}
		}
		for {
			n, err := d.read.Read(buf)
			copied(n)
			switch {
			case err == nil:
				continue
			case errors.Is(err, os.ErrDeadlineExceeded):
				d.rest(buf, copied)
			case !errors.Is(err, io.EOF) && d.err == nil:
				d.err = err
			}
			return
		}
	}()
}

// rest copies what is in the pipe now: all of the command's, when finish gave up
// waiting for the end. It may be much, when the copy was slow and not the command. A
// stranger who writes on gets no further than one pipe full.
func (d *drain) rest(buf []byte, copied func(int)) {
	conn, err := d.read.SyscallConn()
	if err != nil {
		d.err = err
		return
	}
	d.held = true
	left := 0
	read := func(fd uintptr) (n int, err error) {
		for {
			if n, err = unix.Read(int(fd), buf[:min(left, len(buf))]); err != unix.EINTR {
				return n, err
			}
		}
	}
	if cerr := conn.Control(func(fd uintptr) { left, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) }); cerr != nil || err != nil {
		d.err = errors.Join(cerr, os.NewSyscallError("fcntl", err))
		return
	}
	for left > 0 {
		n := 0
		cerr := conn.Control(func(fd uintptr) { n, err = read(fd) })
		switch {
		case cerr != nil:
			d.err = cerr
			return
		case err == unix.EAGAIN: // empty, and not ended
			return
		case err != nil:
			d.err = os.NewSyscallError("read", err)
			return
		case n == 0:
			d.held = false
			return
		}
		copied(n)
		left -= n
	}
}

// finish waits for the end of the stream, when the command and all that wall could
// end with it have ended. Something may hold it open for ever all the same: what left
// the process group of a command without a box, or whoever outside was given the
// descriptor by the command. Then the stream ends after patience. It reports whether
// there was somebody.
func (d *drain) finish(patience time.Duration) (held bool, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-d.done:
	case <-timer.C:
		_ = d.read.SetReadDeadline(time.Now()) // else the read ends with the program
		<-d.done
	}
	d.read.Close()
	return d.held, d.err
}

// close gives up a drain that was not started.
func (d *drain) close() {
	d.read.Close()
	if d.write != nil {
		d.write.Close()
	}
}
