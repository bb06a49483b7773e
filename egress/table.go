package egress

import "net/netip"

// tableSize is how many names of a box get addresses.
const tableSize = 16384

// A Table holds the synthetic addresses of names: one of IPv4 and one of IPv6 for
// each, for as long as the box lives. It is bounded, gives no address to a second
// name, and may be used by several goroutines.
type Table struct{}

// Add gives the addresses of a name, which are new ones the first time. It fails
// when the table is full.
func (t *Table) Add(name string) (v4, v6 netip.Addr, ok bool) { return v4, v6, false }

// Name gives the name that an address was made for. The address may be IPv4-mapped.
func (t *Table) Name(addr netip.Addr) (name string, ok bool) { return "", false }

// Synthetic reports whether an address is in the networks of synthetic addresses,
// whether or not it stands for a name.
func Synthetic(addr netip.Addr) bool { return false }
