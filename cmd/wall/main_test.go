package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wallsandbox/wall/nsexec"
)

// TestMain makes the test binary do for itself what the wall binary does: it is
// stage 2 when it is called wall-init, and "wall" in the scripts.
func TestMain(m *testing.M) {
	nsexec.Main()
	testscript.Main(m, map[string]func(){
		"wall":             func() { os.Exit(launch(os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr})) },
		"without-nftables": withoutNftables,
	})
}
