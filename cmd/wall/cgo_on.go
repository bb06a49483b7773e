//go:build cgo

package main

// canCompile tells whether custom seccomp filters can be compiled: libseccomp
// is linked in by cgo.
const canCompile = true
