package main

import (
	"strings"
	"testing"
)

func TestShellHint(t *testing.T) {
	for _, tt := range []struct {
		argv []string
		want string // in the hint; "" = no hint
	}{
		{[]string{"echo hi && ls"}, `wall run -- sh -c 'echo hi && ls'`},
		{[]string{"it's here"}, `wall run -- sh -c 'it'\''s here'`},
		{[]string{"make;", "ls"}, `wall run -- sh -c 'make; ls'`},
		{[]string{"cd", "/tmp"}, `wall run -- sh -c 'cd /tmp'`},
		{[]string{"ulimit", "-n", "a b"}, `wall run -- sh -c 'ulimit -n '\''a b'\'''`},
		{[]string{"export", "A=b"}, `wall run -- sh -c 'export A=b'`},
		{[]string{"source", "x"}, `wall run -- bash -c 'source x'`},
		{[]string{"ll"}, "aliases of your shell"},
		{[]string{"FOO=hunter2", "make"}, "--env FOO=..."},
		{[]string{"nosuch"}, ""},
		{[]string{"./nosuch"}, ""},
		{[]string{"no-such=thing"}, ""},
		{[]string{"nosuch", "a && b"}, ""},
	} {
		got := shellHint(tt.argv)
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) || strings.Contains(got, "hunter2") {
			t.Errorf("shellHint(%q) = %q, want %q", tt.argv, got, tt.want)
		}
	}
}
