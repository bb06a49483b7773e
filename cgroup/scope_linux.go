package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/internal/bus"
	"github.com/wallsandbox/wall/plan"
)

// The user's systemd makes a transient scope for a process that it is told of
// (https://systemd.io/CGROUP_DELEGATION/). It is asked through its own socket,
// without a message bus and without a program, as systemctl does. What is below the
// scope is wall's, and the scope goes away with the last process in it.

// scopeSlice is where scopes of applications belong.
const scopeSlice = "app.slice"

// managerTimeout bounds the first question to the manager, whose answer shows that it is
// there and works, and startTimeout the making of a scope by one that has just answered. Most
// take a few milliseconds. Without an answer the run goes on with what there is without a scope.
const (
	managerTimeout = 3 * time.Second
	startTimeout   = 5 * time.Second
)

// scopes counts those asked for.
var scopes atomic.Uint64

// another gives c with a scope of a name of its own: the phases of a gate, and starts that
// are tried again, have one id, and a scope takes a moment to go away. The plan does not say it, so
// that two plans for one start are the same.
func another(c plan.Cgroup) plan.Cgroup {
	c.Scope = fmt.Sprintf("%s%s-%d.scope", prefix, c.ID, scopes.Add(1))
	for _, dir := range []*string{&c.Memory, &c.Pids} {
		if *dir != "" {
			*dir = path.Join(path.Dir(*dir), c.Scope)
		}
	}
	return c
}

// A ScopeError says that the user's systemd did not make the scope that a plan has, or that
// no group can be made in it. A plan without a scope may work.
type ScopeError struct{ Err error }

func (e *ScopeError) Error() string { return "no scope can be had here: " + e.Err.Error() }

// Unwrap gives the cause.
func (e *ScopeError) Unwrap() error { return e.Err }

// managerSocket is a variable for tests.
var managerSocket = func() string {
	return "/run/user/" + strconv.Itoa(os.Getuid()) + "/systemd/private"
}

// withManager connects to the user's systemd and calls f.
func withManager(ctx context.Context, f func(dbus.BusObject) error) error {
	fail := func(err error) error {
		if ctx.Err() != nil {
			err = errors.New("it does not answer in time")
		}
		return fmt.Errorf("the user's systemd: %w", err)
	}
	name := managerSocket()
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return fail(&os.PathError{Op: "lstat", Path: name, Err: err})
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid() {
		return fail(errors.New(name + " is no socket of yours"))
	}
	conn, err := bus.Open(ctx, name, ours)
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	m := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1")
	if err := wake(ctx, m); err != nil {
		return fail(err)
	}
	if err := f(m); err != nil {
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
	for pause := time.Millisecond; ; pause *= 2 { // few, for one that is stopped
		select {
		case <-call.Done:
			return call.Err
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			m.GoWithContext(ctx, ping, dbus.FlagNoReplyExpected, nil)
		}
	}
}

// ours refuses a manager that another user runs, and one to which the numbers of processes
// mean others: a socket that was mounted into a container leads to a manager outside, which
// would put somebody else into the scope.
func ours(cred *unix.Ucred) error {
	if int(cred.Uid) != os.Geteuid() {
		return errors.New("it is run by another user")
	}
	if cred.Pid == 0 { // it is not in this PID namespace or one below
		return errForeign
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(int(cred.Pid)) + "/status")
	if err == nil && !here(string(status), int(cred.Pid)) {
		err = errForeign
	}
	return err
}

var errForeign = errors.New("it is in another PID namespace")

// here tells from its status whether a process is in the PID namespace of the caller: it has
// one number for each namespace from there on down (NSpid in proc_pid_status(5)).
func here(status string, pid int) bool {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return slices.Equal(strings.Fields(rest), []string{strconv.Itoa(pid)})
		}
	}
	return false
}

// Manager asks the user's systemd for its cgroup, as a path in the hierarchy.
func Manager() (group string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), managerTimeout)
	defer cancel()
	err = withManager(ctx, func(m dbus.BusObject) error {
		return m.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, "org.freedesktop.systemd1.Manager", "ControlGroup").Store(&group)
	})
	return group, err
}

// findScope tells where the scope of a run would be.
func (h hierarchies) findScope(need Need, id string, manager func() (string, error)) (plan.Cgroup, error) {
	c := plan.Cgroup{Version: 2, ID: id, Scope: prefix + id + ".scope"}
	group, err := manager()
	if err != nil {
		return plan.Cgroup{}, err
	}
	if !path.IsAbs(group) || path.Clean(group) != group {
		return plan.Cgroup{}, errors.New("the user's systemd has no cgroup")
	}
	dir := path.Join(h.unified.root, group)
	if err := lacks(dir, "cgroup.controllers", need.controllers()); err != nil {
		return plan.Cgroup{}, err
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
func startScope(c plan.Cgroup, controllers []string, pid, holder int) error {
	type property struct {
		Name  string
		Value dbus.Variant
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	pids := []uint32{uint32(pid)}
	if holder != 0 {
		pids = append(pids, uint32(holder))
	}
	properties := []property{
		{"Description", dbus.MakeVariant("a box of wall")},
		{"PIDs", dbus.MakeVariant(pids)},
		{"Slice", dbus.MakeVariant(scopeSlice)},
		{"Delegate", dbus.MakeVariant(true)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")}, // nothing of it stays in the manager's memory
	}
	type unit struct {
		Name       string
		Properties []property
	}
	// By default systemd from 253 on ends a scope in which the kernel killed for want of
	// memory, the holder among it. Before that it does not know the property.
	stays := append(slices.Clone(properties), property{"OOMPolicy", dbus.MakeVariant("continue")})
	scope := path.Dir(c.Dirs()[0])
	err := withManager(ctx, func(m dbus.BusObject) error {
		call := func(method string, args ...any) error {
			return m.CallWithContext(ctx, "org.freedesktop.systemd1.Manager."+method, 0, args...).Err
		}
		start := func(p []property) error { return call("StartTransientUnit", c.Scope, "fail", p, []unit{}) }
		err := start(stays)
		if isCalled(err, "org.freedesktop.DBus.Error.PropertyReadOnly") {
			// The name is in the manager's memory now, until it clears up.
			for err = start(properties); isCalled(err, "org.freedesktop.systemd1.UnitExists") && ctx.Err() == nil; err = start(properties) {
				time.Sleep(time.Millisecond)
			}
		}
		// It has not moved the processes yet. When it cannot, it forgets the scope.
		for err == nil {
			there, err := inScope(pids, scope)
			if there || err != nil {
				return err
			}
			err = call("GetUnit", c.Scope)
			if there, _ := inScope(pids, scope); there {
				return nil
			}
			if isCalled(err, "org.freedesktop.systemd1.NoSuchUnit") {
				return errors.New("it could not put the box into a scope")
			}
			if err != nil {
				return err
			}
			time.Sleep(time.Millisecond)
		}
		return err
	})
	if err != nil {
		return err
	}
	// A group with processes of its own gives its children no controllers.
	hold := scope + "/hold"
	if err := os.Mkdir(hold, 0o700); err != nil {
		return err
	}
	for _, p := range pids {
		if err := write(hold+"/cgroup.procs", uint64(p)); err != nil {
			return err
		}
	}
	return enable(scope, controllers)
}

// inScope reports whether the manager has moved all the processes.
func inScope(pids []uint32, scope string) (bool, error) {
	for _, pid := range pids {
		text, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(pid), 10) + "/cgroup")
		if err != nil {
			return false, err
		}
		there := false
		for line := range strings.Lines(string(text)) {
			place, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
			there = there || ok && path.Base(place) == path.Base(scope) && strings.HasSuffix(scope, place)
		}
		if !there {
			return false, nil
		}
	}
	return true, nil
}

// isCalled reports whether the manager answered with the error of that name.
func isCalled(err error, name string) bool {
	e, ok := errors.AsType[dbus.Error](err)
	return ok && e.Name == name
}
