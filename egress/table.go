package egress

import (
	"encoding/binary"
	"net/netip"
	"sync"
)

// tableSize is how many names of a box get addresses.
const tableSize = 16384

// A Table holds the synthetic addresses of names: one of IPv4 and one of IPv6 for
// each, for as long as the box lives. It is bounded, gives no address to a second
// name, and may be used by several goroutines. The zero Table is empty.
type Table struct {
	mu     sync.RWMutex
	number map[string]int
	names  []string // by number
}

// Add gives the addresses of a name, which are new ones the first time. It fails
// when the table is full.
func (t *Table) Add(name string) (v4, v6 netip.Addr, ok bool) {
	t.mu.RLock()
	n, known := t.number[name]
	t.mu.RUnlock()
	if !known {
		if n, known = t.add(name); !known {
			return v4, v6, false
		}
	}
	v4, v6 = syntheticAddrs(n)
	return v4, v6, true
}

func (t *Table) add(name string) (int, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n, ok := t.number[name]; ok {
		return n, true
	}
	if len(t.names) >= tableSize {
		return 0, false
	}
	if t.number == nil {
		t.number = make(map[string]int)
	}
	t.number[name] = len(t.names)
	t.names = append(t.names, name)
	return len(t.names) - 1, true
}

// Name gives the name that an address was made for. The address may be IPv4-mapped.
func (t *Table) Name(addr netip.Addr) (name string, ok bool) {
	n, ok := syntheticNumber(addr.Unmap())
	if !ok {
		return "", false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n >= len(t.names) {
		return "", false
	}
	return t.names[n], true
}

// The last byte of a synthetic IPv4 address is 1 to 254: others look like a network
// or a broadcast address to some programs.
const perNetwork = 254

func syntheticAddrs(n int) (v4, v6 netip.Addr) {
	a, b := synthetic4.Addr().As4(), synthetic6.Addr().As16()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(n/perNetwork)<<8+uint32(n%perNetwork)+1)
	binary.BigEndian.PutUint32(b[12:], uint32(n)+1)
	return netip.AddrFrom4(a), netip.AddrFrom16(b)
}

// syntheticNumber is the inverse of syntheticAddrs.
func syntheticNumber(addr netip.Addr) (int, bool) {
	var n int
	switch {
	case synthetic4.Contains(addr):
		a, first := addr.As4(), synthetic4.Addr().As4()
		low := binary.BigEndian.Uint32(a[:]) - binary.BigEndian.Uint32(first[:])
		n = int(low>>8)*perNetwork + int(low&0xff) - 1
	case synthetic6.Contains(addr):
		b := addr.As16()
		n = int(binary.BigEndian.Uint32(b[12:])) - 1
	default:
		return 0, false
	}
	if n < 0 || n >= tableSize {
		return 0, false
	}
	v4, v6 := syntheticAddrs(n)
	return n, addr == v4 || addr == v6
}
