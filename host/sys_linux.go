package host

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxFactFile bounds the files that facts are read from: /etc/passwd with half a
// million accounts fits.
const maxFactFile = 64 << 20

// readFact reads a whole file. It is os.ReadFile without the Go runtime's poller,
// whose start alone costs more than reading the file.
func readFact(name string) ([]byte, error) {
	fail := func(op string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }
	fd, err := ignoringEINTR(func() (int, error) { return unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, fail("open", err)
	}
	defer unix.Close(fd)
	data := make([]byte, 0, 8<<10)
	for {
		if len(data) == cap(data) {
			if len(data) >= maxFactFile {
				return nil, fail("read", fmt.Errorf("larger than %d bytes", maxFactFile))
			}
			data = append(make([]byte, 0, 4*cap(data)), data...)
		}
		n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		if err != nil {
			return nil, fail("read", err)
		}
		if n == 0 {
			return data, nil
		}
		data = data[:len(data)+n]
	}
}

// randomBytes fills b from the kernel. crypto/rand asks the same source, but the
// packages it brings along are initialised at every start of both stages.
func randomBytes(b []byte) error {
	for len(b) > 0 {
		n, err := ignoringEINTR(func() (int, error) { return unix.Getrandom(b, 0) })
		if err != nil {
			return os.NewSyscallError("getrandom", err)
		}
		b = b[n:]
	}
	return nil
}

// ignoringEINTR repeats a system call that a signal interrupted.
func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
