//go:build !cgo

package nsexec

// inheritedIgnored knows nothing without C code: the Go runtime keeps SIGHUP and
// SIGINT ignored by itself, and has replaced everything else before any Go code runs.
func inheritedIgnored() uint64 { return 0 }
