package bus

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// Open connects to a socket ("@" in front of an abstract one), and greets whoever trusted
// takes by its credentials (SO_PEERCRED in unix(7)) as the caller's user. The connection ends
// with ctx at the latest. The error of connect(2) is a [*net.OpError].
func Open(ctx context.Context, socket string, trusted func(*unix.Ucred) error) (*dbus.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	cred, err := credentials(c.(*net.UnixConn))
	if err == nil {
		err = trusted(cred)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	conn, err := dbus.NewConn(c, dbus.WithContext(ctx))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	// The handshake knows no context.
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		_ = conn.Close() // failed already
		return nil, err
	}
	return conn, nil
}

func credentials(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, os.NewSyscallError("getsockopt", credErr)
}
