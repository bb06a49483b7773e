// Package bus connects to whoever is at the other end of a local D-Bus socket.
package bus
