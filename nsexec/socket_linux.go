package nsexec

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A passage is how an open descriptor gets into a box.
type passage int

const (
	passDirect  passage = iota // as it is
	passCopied                 // its bytes, through a pipe
	passRefused                // not at all
)

// passSocket tells how a descriptor can get into the box of a plan whose network is
// limited, should it be a socket. A socket stays in the network namespace in which it was
// made, and whoever has it can point it somewhere else: connect(2) with AF_UNSPEC
// dissolves the connection of a TCP socket, and a second call makes another one, from
// outside of the box. So sockets are passed as they are only where the kernel
// makes no new connection with them: those of Unix that have a connection, or listen.
func passSocket(p *plan.Plan, fd int) (passage, error) {
	own := slices.ContainsFunc(p.Spaces, func(s plan.Space) bool { return s.Kind == plan.SpaceNet })
	if p.Enforce == plan.EnforceOff || !own && !p.Landlock.Network {
		return passDirect, nil
	}
	st, err := fstat(fd)
	if err != nil {
		return passRefused, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return passDirect, nil
	}
	var number [4]int // domain, type, protocol, listening
	for i, option := range []int{unix.SO_DOMAIN, unix.SO_TYPE, unix.SO_PROTOCOL, unix.SO_ACCEPTCONN} {
		if number[i], err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, option); err != nil {
			return passRefused, os.NewSyscallError("getsockopt", err)
		}
	}
	domain, kind, proto, listening := number[0], number[1], number[2], number[3] != 0
	inet := domain == unix.AF_INET || domain == unix.AF_INET6
	switch {
	case !own: // Landlock speaks of these, whoever made them, and of no others
		if !inet || proto == tcp || proto == udp {
			return passDirect, nil
		}
	case domain == unix.AF_UNIX:
		_, err := unix.Getpeername(fd)
		if kind != unix.SOCK_DGRAM && (err == nil || listening) {
			return passDirect, nil
		}
		if p.Landlock.Abstract { // paths are looked up in the box
			return passDirect, nil
		}
		return passRefused, nil
	}
	if kind == unix.SOCK_STREAM && !listening {
		return passCopied, nil
	}
	return passRefused, nil
}

// errSocket says why a socket does not get into a box.
var errSocket = errors.New("it is a socket of a network outside of the box, from which the command could reach other hosts")

const hintSocket = "pass its bytes through a pipe, for example of socat or nc; to let the command listen, use --publish"

// checkSockets refuses to keep descriptors through which the command would get around
// the limits of its network.
func checkSockets(p *plan.Plan) error {
	for _, fd := range p.KeepFDs {
		how, err := passSocket(p, fd)
		if err == nil && how != passDirect {
			err = errSocket
		}
		if err != nil {
			return &plan.Error{Op: fmt.Sprintf("cannot keep descriptor %d", fd), Err: err, Hint: hintSocket}
		}
	}
	return nil
}
