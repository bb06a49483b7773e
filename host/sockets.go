package host

import (
	"slices"
	"strings"
)

// boundSockets gives the absolute paths that Unix sockets of this network
// namespace say they are bound to, sorted, each once. They are hints: a name is what
// was given to bind(2), perhaps in another root directory or mount namespace, so
// that anybody can put any name there; whoever uses one looks whether a socket is
// at that path. Nor are they all: a socket that was bound by a relative name, moved
// since, bound in another network namespace, or is bound later, is not among them.
// text is /proc/net/unix:
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
