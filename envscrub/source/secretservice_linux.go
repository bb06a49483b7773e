package source

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/internal/bus"
	"github.com/wallsandbox/wall/plan"
)

// Names of the Secret Service API, draft 0.2, as all implementations have them.
const (
	serviceName = "org.freedesktop.secrets"
	servicePath = "/org/freedesktop/secrets"
	serviceIs   = "org.freedesktop.Secret.Service."
	itemIs      = "org.freedesktop.Secret.Item."
	sessionIs   = "org.freedesktop.Secret.Session."
)

// secretService gives the one secret that has all attributes.
func (f fetcher) secretService(ctx context.Context, name string) (string, error) {
	attrs, err := plan.ParseAttributes(name)
	if err != nil {
		return "", err
	}
	wanted := make(map[string]string, len(attrs))
	for _, a := range attrs {
		if !utf8.ValidString(a.Name) || !utf8.ValidString(a.Value) {
			return "", errors.New("an attribute is not UTF-8")
		}
		wanted[a.Name] = a.Value
	}
	conn, err := f.sessionBus(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	value, err := getSecret(ctx, conn, wanted)
	if ctx.Err() != nil {
		err = ctx.Err() // the connection was closed because of it
	}
	return value, err
}

// sessionBus connects to the user's message bus. The address comes from the caller's environment
// or is the usual one; of its transports only local sockets are used, and whoever
// listens there must be the caller or root: another user could have taken the name of a
// bus that has ended.
func (f fetcher) sessionBus(ctx context.Context) (*dbus.Conn, error) {
	const hint = "wall asks the bus in DBUS_SESSION_BUS_ADDRESS, or /run/user/UID/bus; is this a session with a Secret Service?"
	fail := func(err error) (*dbus.Conn, error) {
		return nil, &hinted{fmt.Errorf("cannot connect to the message bus of the session: %w", err), hint}
	}
	address, ok := lookup(f.environ, "DBUS_SESSION_BUS_ADDRESS")
	if !ok || address == "" {
		address = "unix:path=/run/user/" + strconv.Itoa(os.Getuid()) + "/bus"
	}
	socket, err := busSocket(address)
	if err != nil {
		return fail(err)
	}
	conn, err := bus.Open(ctx, socket, trustedPeer)
	if err == nil {
		if err = conn.Hello(); err != nil {
			_ = conn.Close() // failed already
		}
	}
	if err != nil {
		var oe *net.OpError
		switch {
		case errors.As(err, &oe) && oe.Op == "dial":
			err = oe.Err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
		return fail(withoutText(err))
	}
	return conn, nil
}

// busSocket gives the first local socket of a D-Bus address, "@" in front for an abstract one.
func busSocket(address string) (string, error) {
	for _, one := range strings.Split(address, ";") {
		transport, keys, _ := strings.Cut(one, ":")
		if transport != "unix" {
			continue
		}
		for _, kv := range strings.Split(keys, ",") {
			key, escaped, _ := strings.Cut(kv, "=")
			value, err := url.PathUnescape(escaped)
			if err != nil || value == "" || strings.IndexByte(value, 0) >= 0 {
				continue
			}
			switch {
			case key == "path" && value[0] == '/':
				return value, nil
			case key == "abstract":
				return "@" + value, nil
			}
		}
	}
	return "", errors.New("its address names no local socket")
}

// trustedPeer refuses a bus that another user runs.
func trustedPeer(cred *unix.Ucred) error {
	if cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
		return errors.New("it is run by another user")
	}
	return nil
}

// withoutText gives an error of the bus by its name alone: the text behind it is the service's own
// and could hold anything.
func withoutText(err error) error {
	var de dbus.Error
	var pe *dbus.Error
	switch {
	case errors.As(err, &de):
	case errors.As(err, &pe):
		de = *pe
	default:
		return err
	}
	if de.Name == "org.freedesktop.DBus.Error.ServiceUnknown" {
		return &hinted{errors.New("no Secret Service runs in this session"), "start one, for example GNOME Keyring, KWallet or KeePassXC"}
	}
	return errors.New(quoteOdd(de.Name))
}

// getSecret finds the item and reads its secret.
func getSecret(ctx context.Context, conn *dbus.Conn, attrs map[string]string) (string, error) {
	service := conn.Object(serviceName, servicePath)
	var ignored dbus.Variant
	var session dbus.ObjectPath
	if err := service.CallWithContext(ctx, serviceIs+"OpenSession", 0, "plain", dbus.MakeVariant("")).Store(&ignored, &session); err != nil {
		return "", withoutText(err)
	}
	defer conn.Object(serviceName, session).CallWithContext(ctx, sessionIs+"Close", dbus.FlagNoReplyExpected)
	var unlocked, locked []dbus.ObjectPath
	if err := service.CallWithContext(ctx, serviceIs+"SearchItems", 0, attrs).Store(&unlocked, &locked); err != nil {
		return "", withoutText(err)
	}
	switch {
	case len(unlocked)+len(locked) == 0:
		return "", &hinted{errors.New("it has no secret with these attributes"), "store one, for example with: secret-tool store --label=LABEL ATTRIBUTE VALUE"}
	case len(unlocked)+len(locked) > 1:
		return "", &hinted{fmt.Errorf("it has %d secrets with these attributes", len(unlocked)+len(locked)), "name more attributes"}
	case len(locked) == 1:
		// Unlocking would ask the operator with a window, which may have no place to
		// appear, and which a person could take for another program's.
		return "", &hinted{errors.New("the secret is locked"), "unlock its keyring, for example with: secret-tool search --unlock ATTRIBUTE VALUE"}
	}
	var secret struct {
		Session     dbus.ObjectPath
		Parameters  []byte
		Value       []byte
		ContentType string
	}
	if err := conn.Object(serviceName, unlocked[0]).CallWithContext(ctx, itemIs+"GetSecret", 0, session).Store(&secret); err != nil {
		return "", withoutText(err)
	}
	return string(secret.Value), nil
}
