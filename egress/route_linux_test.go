package egress

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// TestOwnByRoute: an address that the host has by a route alone is its own, for names
// and for rules that are not for this one address.
func TestOwnByRoute(t *testing.T) {
	all := []plan.PortRange{{First: 1, Last: 65535}}
	n := plan.Network{Method: plan.NetProxy, Connections: 1, Allow: []plan.HostRule{
		{Prefix: "34.0.0.0/8", Ports: all}, {Prefix: "35.1.1.1/32", Ports: all},
	}}
	s, err := New(n, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.rules.local == nil {
		t.Fatal("a server asks for no routes")
	}
	var fail error
	s.rules.local = func(a netip.Addr) (bool, error) {
		return a.String() == "34.1.1.1" || a.String() == "35.1.1.1" || a.String() == "2600::1", fail
	}
	want := func(addr string, allowed bool) {
		t.Helper()
		d := s.rules.DecideResolved(netip.MustParseAddr(addr), 443)
		if d.Allowed != allowed || !allowed && !strings.Contains(d.Reason, "the host's own") {
			t.Errorf("%s: %+v", addr, d)
		}
	}
	want("34.1.1.1", false)
	want("::ffff:34.1.1.1", false)
	want("64:ff9b::2201:101", false)
	want("2600::1", false)
	want("35.1.1.1", true)
	want("34.1.1.2", true)
	fail = errors.New("no netlink")
	want("34.1.1.2", false)
}

// TestRouteIsLocal asks the kernel of a network namespace with such routes.
func TestRouteIsLocal(t *testing.T) {
	if is, err := routeIsLocal(netip.MustParseAddr("127.0.0.1")); err != nil || !is {
		t.Errorf("127.0.0.1: %t, %v", is, err)
	}
	if os.Getuid() != 0 {
		return // the rest needs a network namespace to change
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		return
	}
	runtime.LockOSThread() // and never back: the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	routes := []string{"link set lo up", "route add local 34.1.0.0/16 dev lo", "route add 36.0.0.0/8 dev lo", "route add unreachable 37.0.0.0/8"}
	wants := map[string]bool{"34.1.2.3": true, "127.8.8.8": true, "34.2.2.3": false, "36.1.1.1": false, "37.1.1.1": false}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		routes = append(routes, "-6 route add local 2600::/64 dev lo")
		wants["2600::77"], wants["::1"], wants["2601::1"] = true, true, false
	}
	for _, a := range routes {
		if out, err := exec.Command(ip, strings.Fields(a)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", a, err, out)
		}
	}
	for addr, want := range wants {
		if is, err := routeIsLocal(netip.MustParseAddr(addr)); err != nil || is != want {
			t.Errorf("%s: %t, %v", addr, is, err)
		}
	}
}

func TestReadRoute(t *testing.T) {
	answer := func(kind uint16, rest ...byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(16+len(rest)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		return append(append(b, make([]byte, 10)...), rest...)
	}
	refused := int32(-int32(unix.EPERM))
	for _, b := range [][]byte{nil, answer(unix.RTM_NEWROUTE), answer(unix.RTM_NEWROUTE, 2, 32, 0, 0), answer(unix.NLMSG_DONE, 0, 0, 0, 0), answer(unix.NLMSG_ERROR, 0, 0, 0, 0),
		answer(unix.NLMSG_ERROR, binary.NativeEndian.AppendUint32(nil, uint32(refused))...)} {
		if _, err := readRoute(b); err == nil {
			t.Errorf("%x: no error", b)
		}
	}
}
