package main

import (
	"os/exec"
	"testing"

	"github.com/wallsandbox/wall/profile"
)

func TestNearWord(t *testing.T) {
	flags := []string{"net", "env", "enforce", "hide", "home", "protect", "profile", "workspace", "workspace-access", "rw", "ro", "ro-try"}
	for in, want := range map[string]string{
		"nett": "net", "Net": "net", "ent": "net", "network": "net", "environment": "env", "enforec": "enforce",
		"protct": "protect", "work": "workspace", "workspace-acess": "workspace-access", "frobnicate": "", "": "", "x": "", "rx": "rw",
	} {
		if got := nearWord(in, flags); got != want {
			t.Errorf("nearWord(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"net", "nett", 1}, {"ent", "net", 1}, {"kitten", "sitting", 3}, {"abc", "xyz", 3}} {
		if got := profile.EditDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("profile.EditDistance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestShellWords has a shell read back what was written for it.
func TestShellWords(t *testing.T) {
	words := []string{"echo", "a b", "", "it's", "$HOME", "*", `\`, "a=b", "~", "größe", "&&", "#x", "`id`", "a\nb"}
	out, err := exec.Command("/bin/sh", "-c", `printf '%s\0' "$@"`, "sh").Output()
	if err != nil || string(out) != "\x00" {
		t.Fatalf("no usable shell: %v, %q", err, out)
	}
	out, err = exec.Command("/bin/sh", "-c", `printf '%s\0' `+shellWords(words)).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want string
	for _, w := range words {
		want += w + "\x00"
	}
	if string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if got := shellWords([]string{"make", "-j2", "a b"}); got != "make -j2 'a b'" {
		t.Errorf("got %s", got)
	}
}

func TestListed(t *testing.T) {
	for want, words := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := listed(words); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
