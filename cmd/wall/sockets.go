package main

import (
	"slices"
	"strings"
)

// boundSockets gives the absolute paths that Unix sockets of this network
// namespace are bound to, sorted, each once. text is /proc/net/unix:
//
//	Num       RefCount Protocol Flags    Type St Inode Path
//	ffff8881: 00000002 00000000 00010000 0001 01 20412 /run/dbus/system_bus_socket
//
// Unnamed, abstract ("@...") and relative names are left out. The kernel prints
// a name as it was given to bind(2), spaces included; a name with a line break
// ends at the break, so that such a socket is not found. The socket may be gone
// from the file tree by now.
func boundSockets(text string) []string {
	var paths []string
	for line := range strings.Lines(text) {
		rest := strings.TrimSuffix(line, "\n")
		ok := true
		for range 7 {
			rest = strings.TrimLeft(rest, " ")
			if _, rest, ok = strings.Cut(rest, " "); !ok {
				break
			}
		}
		// One space separates the inode from the name, and the inode is padded
		// on the left; everything after it belongs to the name.
		if ok && strings.HasPrefix(rest, "/") {
			paths = append(paths, rest)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
