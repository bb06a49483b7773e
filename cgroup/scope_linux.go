package cgroup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// The user's systemd makes a transient scope for a process that it is told of
// (https://systemd.io/CGROUP_DELEGATION/). It is asked through its own socket,
// without a message bus and without a program, as systemctl does. What is below the
// scope is wall's, and the scope goes away with the last process in it.

// scopeSlice is where scopes of applications belong.
const scopeSlice = "app.slice"

// managerTimeout bounds what is asked of the manager.
const managerTimeout = 10 * time.Second

// managerSocket is a variable for tests.
var managerSocket = func() string {
	return "/run/user/" + strconv.Itoa(os.Getuid()) + "/systemd/private"
}

// withManager connects to the user's systemd and calls f.
func withManager(f func(context.Context, dbus.BusObject) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), managerTimeout)
	defer cancel()
	fail := func(err error) error { return fmt.Errorf("the user's systemd: %w", err) }
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", managerSocket())
	if err != nil {
		return fail(err)
	}
	if err := ours(c.(*net.UnixConn)); err != nil {
		return fail(errors.Join(err, c.Close()))
	}
	conn, err := dbus.NewConn(c, dbus.WithContext(ctx))
	if err != nil {
		return fail(errors.Join(err, c.Close()))
	}
	defer conn.Close()
	// The handshake knows no context.
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Geteuid()))}); err != nil {
		return fail(err)
	}
	m := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	if err := wake(ctx, m); err != nil {
		return fail(err)
	}
	if err := f(ctx, m); err != nil {
		return fail(err)
	}
	return nil
}

// wake makes sure that the manager listens. When the first message arrives together with
// the end of the handshake, systemd 252 reads both and looks at the message only
// when more comes (bus_socket_auth_verify_server leaves it in the buffer, and nothing
// wakes the event loop up). So more is sent until there is an answer.
func wake(ctx context.Context, m dbus.BusObject) error {
	const ping = "org.freedesktop.DBus.Peer.Ping"
	call := m.GoWithContext(ctx, ping, 0, make(chan *dbus.Call, 1))
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-call.Done:
			return call.Err
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
			m.GoWithContext(ctx, ping, dbus.FlagNoReplyExpected, nil)
		}
	}
}

// ours refuses a manager that another user runs.
func ours(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return os.NewSyscallError("getsockopt", credErr)
	}
	if int(cred.Uid) != os.Geteuid() {
		return errors.New("it is run by another user")
	}
	return nil
}

// findScope tells where the scope of a run would be.
func (h hierarchies) findScope(need Need, id string) (plan.Cgroup, error) {
	c := plan.Cgroup{Version: 2, ID: id, Scope: prefix + id + ".scope"}
	if h.unified.root == "" {
		return c, errNone
	}
	var group string
	err := withManager(func(ctx context.Context, m dbus.BusObject) error {
		return m.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, "org.freedesktop.systemd1.Manager", "ControlGroup").Store(&group)
	})
	if err != nil {
		return c, err
	}
	if !path.IsAbs(group) || path.Clean(group) != group {
		return c, errors.New("the user's systemd has no cgroup")
	}
	dir := path.Join(h.unified.root, group)
	if err := lacks(dir, "cgroup.controllers", need.controllers()); err != nil {
		return c, err
	}
	dir = path.Join(dir, scopeSlice, c.Scope)
	if need.Memory {
		c.Memory = dir
	}
	if need.Pids {
		c.Pids = dir
	}
	return c, nil
}

// startScope has the manager put the process into a scope that is delegated to
// the caller, and makes its children have the controllers.
func startScope(c plan.Cgroup, controllers []string, pid int) error {
	type property struct {
		Name  string
		Value dbus.Variant
	}
	properties := []property{
		{"Description", dbus.MakeVariant("a box of wall")},
		{"PIDs", dbus.MakeVariant([]uint32{uint32(pid)})},
		{"Slice", dbus.MakeVariant(scopeSlice)},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")}, // nothing of it stays in the manager's memory
	}
	type unit struct {
		Name       string
		Properties []property
	}
	err := withManager(func(ctx context.Context, m dbus.BusObject) error {
		return m.CallWithContext(ctx, "org.freedesktop.systemd1.Manager.StartTransientUnit", 0, c.Scope, "fail", properties, []unit{}).Err
	})
	if err != nil {
		return err
	}
	scope := path.Dir(c.Dirs()[0])
	if err := awaitScope(pid, scope); err != nil {
		return err
	}
	// A group with processes of its own gives its children no controllers.
	hold := scope + "/start"
	if err := os.Mkdir(hold, 0o755); err != nil {
		return err
	}
	if err := write(hold+"/cgroup.procs", uint64(pid)); err != nil {
		return err
	}
	return enable(scope, controllers)
}

// awaitScope waits until the manager has moved the process.
func awaitScope(pid int, scope string) error {
	name := "/proc/" + strconv.Itoa(pid) + "/cgroup"
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			place, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
			if ok && path.Base(place) == path.Base(scope) && strings.HasSuffix(scope, place) {
				return nil
			}
		}
		if time.Since(begin) > managerTimeout {
			return errors.New("the user's systemd did not put the box into its scope")
		}
	}
}
