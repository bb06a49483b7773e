package main

import (
	"bytes"
	"encoding/json"
	"os"

	"golang.org/x/sys/unix"
)

// printEnviron prints this process's environment twice, byte for byte: what the
// kernel shows of the block that execve was given, and what the Go runtime found
// on the stack. The second round is behind an execve with the same block.
func printEnviron(args []string) {
	data, err := os.ReadFile("/proc/self/environ")
	if err != nil {
		fatal("%v", err)
	}
	block := [][]byte{}
	if len(data) > 0 {
		block = bytes.Split(bytes.TrimSuffix(data, []byte{0}), []byte{0})
	}
	given := [][]byte{}
	entries := os.Environ()
	for _, e := range entries {
		given = append(given, []byte(e))
	}
	var out []byte
	for _, list := range [][][]byte{block, given} {
		line, err := json.Marshal(list)
		if err != nil {
			fatal("%v", err)
		}
		out = append(append(out, line...), '\n')
	}
	if _, err := os.Stdout.Write(out); err != nil {
		fatal("%v", err)
	}
	if len(args) > 0 {
		return
	}
	err = unix.Exec("/proc/self/exe", []string{"probe", "environ", "again"}, entries)
	fatal("execve: %v", err)
}
