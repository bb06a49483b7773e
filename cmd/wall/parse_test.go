package main

import (
	"testing"
)

func TestParseFD(t *testing.T) {
	for in, want := range map[string]int{"0": 0, "3": 3, "1023": 1023, "": -1, "-1": -1, "+3": -1, "03": -1, "3 ": -1, "0x3": -1, "99999999999999999999": -1} {
		got, ok := parseFD(in)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("parseFD(%q) = %d, want %d", in, got, want)
		}
	}
}

func TestQuoteOdd(t *testing.T) {
	for in, want := range map[string]string{
		"": `""`, "a/b-c.d": "a/b-c.d", "größe": "größe", "a b": `"a b"`, "a\nb": `"a\nb"`, "\xff": `"\xff"`, `a"b`: `"a\"b"`, "\x1b": `"\x1b"`,
	} {
		if got := quoteOdd(in); got != want {
			t.Errorf("quoteOdd(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestShellOf(t *testing.T) {
	for in, want := range map[string]string{"": "/bin/sh", "/usr/sbin/nologin": "/bin/sh", "/bin/false": "/bin/sh", "/usr/bin/fish": "/usr/bin/fish"} {
		if got := shellOf(in); got != want {
			t.Errorf("shellOf(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestBeneathAny(t *testing.T) {
	for _, tt := range []struct {
		p    string
		dirs []string
		want bool
	}{
		{"/a/b", []string{"/a"}, true},
		{"/a", []string{"/a"}, true},
		{"/ab", []string{"/a"}, false},
		{"/", []string{"/a"}, false},
		{"/x", []string{"/"}, true},
		{"/x", nil, false},
	} {
		if got := beneathAny(tt.p, tt.dirs); got != tt.want {
			t.Errorf("beneathAny(%q, %q) = %v", tt.p, tt.dirs, got)
		}
	}
}
