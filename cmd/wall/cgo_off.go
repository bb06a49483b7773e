//go:build !cgo

package main

// canCompile tells whether custom seccomp filters can be compiled: this build
// has no libseccomp.
const canCompile = false
