package main

import (
	"slices"
	"strings"
	"unsafe"
)

// hideValues gives copies of the arguments of wall and overwrites, in the memory
// that /proc/PID/cmdline shows to every user, the values of variables among the
// originals. It cannot undo that they were there until now: a value that matters
// belongs in a file or in wall's environment, not on a command line.
func hideValues(args []string) []string {
	copies := make([]string, len(args))
	for i, a := range args {
		copies[i] = strings.Clone(a)
	}
	end := slices.Index(copies, "--")  // what follows is the command's
	if end < 0 || copies[0] == "env" { // which has none
		end = len(args)
	}
	for i, a := range args[:end] {
		value, flag := strings.CutPrefix(a, "--env=")
		switch {
		case flag, i > 0 && copies[i-1] == "--env":
		case copies[0] == "env" && !strings.HasPrefix(a, "-") && strings.Contains(a, "="):
		default:
			continue
		}
		if _, after, ok := strings.Cut(value, "="); ok {
			value = after
		}
		// The runtime makes these strings from the argument vector of the process
		// without a copy; that memory is writable.
		b := unsafe.Slice(unsafe.StringData(value), len(value))
		for j := range b {
			b[j] = 'x'
		}
	}
	return copies
}
