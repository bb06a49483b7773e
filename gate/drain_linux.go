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

// start copies to w until nobody can write any more.
func (d *drain) start(w io.Writer) {
	d.write.Close()
	d.write = nil
	go func() {
		defer close(d.done)
		buf := make([]byte, 64<<10)
		for {
			n, err := d.read.Read(buf)
			if n > 0 {
				if _, werr := w.Write(buf[:n]); werr != nil && d.err == nil {
					d.err = werr
				}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) && d.err == nil {
					d.err = err
				}
				return
			}
		}
	}()
}

// finish waits for the end of the stream; without a box something may hold it
// open for ever, and then it ends after patience. It reports whether it had to.
func (d *drain) finish(boxed bool, patience time.Duration) (held bool, err error) {
	if !boxed {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-d.done:
		case <-timer.C:
			held = true
			_ = d.read.SetReadDeadline(time.Now()) // else the read ends with the program
		}
	}
	<-d.done
	d.read.Close()
	if errors.Is(d.err, os.ErrDeadlineExceeded) {
		return held, nil
	}
	return held, d.err
}

// close gives up a drain that was not started.
func (d *drain) close() {
	d.read.Close()
	if d.write != nil {
		d.write.Close()
	}
}
