package egress

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
)

func TestTable(t *testing.T) {
	var table Table
	seen := make(map[netip.Addr]string)
	for i := range tableSize {
		name := fmt.Sprintf("n%d.example", i)
		v4, v6, ok := table.Add(name)
		if !ok || !v4.Is4() || !v6.Is6() || !Synthetic(v4) || !Synthetic(v6) {
			t.Fatalf("%s has the addresses %s and %s (%t)", name, v4, v6, ok)
		}
		if last := v4.As4()[3]; last == 0 || last == 255 {
			t.Fatalf("%s looks like a network or a broadcast address", v4)
		}
		for _, a := range []netip.Addr{v4, v6, netip.AddrFrom16(v4.As16())} {
			if other, ok := seen[a]; ok {
				t.Fatalf("%s is of %s and of %s", a, other, name)
			}
			seen[a] = name
		}
	}
	if v4, _, ok := table.Add("one.too.many"); ok {
		t.Errorf("name number %d has the address %s", tableSize+1, v4)
	}
	again, _, ok := table.Add("n0.example")
	if !ok || seen[again] != "n0.example" {
		t.Errorf("n0.example has the address %s of %s when the table is full", again, seen[again])
	}
	for a, want := range seen {
		if got, ok := table.Name(a); !ok || got != want {
			t.Fatalf("%s is %q (%t), want %q", a, got, ok, want)
		}
	}
}

func TestTableOthers(t *testing.T) {
	var table Table
	v4, v6, _ := table.Add("a.example")
	for _, a := range []netip.Addr{{}, v4.Next(), v4.Prev(), v6.Next(), v6.Prev(), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("198.17.255.255"), netip.MustParseAddr("198.18.0.255"),
		netip.MustParseAddr("198.19.255.255"), netip.MustParseAddr("fd77:616c:6c00::"), netip.MustParseAddr("fd77:616c:6c00:1::1"), netip.MustParseAddr("fd77:616c:6c00::1:0:1"), netip.MustParseAddr("fd77:616c:6c00::ffff:ffff"), v6.WithZone("lo")} {
		if name, ok := table.Name(a); ok {
			t.Errorf("%s is %q", a, name)
		}
	}
}

// TestTableConcurrent: names that many ask for at once get one address each.
func TestTableConcurrent(t *testing.T) {
	var table Table
	const workers, names = 8, 500
	got := make([][names]netip.Addr, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range names {
				n := (i*7 + w*31) % names
				v4, v6, _ := table.Add(fmt.Sprint("n", n))
				got[w][n] = v4
				if name, ok := table.Name(v6); !ok || name != fmt.Sprint("n", n) {
					t.Errorf("%s is %q (%t), want n%d", v6, name, ok, n)
				}
			}
		})
	}
	wg.Wait()
	distinct := make(map[netip.Addr]bool)
	for n := range names {
		distinct[got[0][n]] = true
		for w := range workers {
			if got[w][n] != got[0][n] {
				t.Errorf("n%d has the addresses %s and %s", n, got[0][n], got[w][n])
			}
		}
	}
	if len(distinct) != names {
		t.Errorf("%d names have %d addresses", names, len(distinct))
	}
}
