package envscrub

import (
	"strings"
	"testing"
)

func TestDropJobserver(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"-j8", "-j8"}, // the user's own, no descriptor
		{"w", "w"},
		{" -j4 --jobserver-auth=3,4", ""},
		{"w -j4 --jobserver-auth=3,4", "w"},
		{"kw -j --jobserver-fds=3,4", "kw"},
		{" --jobserver-fds=3,4 -j", ""},
		{"-j4 --jobserver-auth=fifo:/tmp/GMfifo12", ""},
		{"--jobserver-style=fifo --jobserver-auth=fifo:/tmp/x -k", "-k"},
		{"--jobs=4 --jobserver-auth=3,4 -s", "-s"},
		{"--jobs 4 --jobserver-auth=3,4 -s", "-s"},
		{"-j 4 --jobserver-auth=3,4 -s", "-s"},
		{"-j --jobserver-auth=3,4 -s", "-s"},
		{"w -j2 --jobserver-auth=3,4 -- CFLAGS=-O2\\ -g", "w -- CFLAGS=-O2\\ -g"},
		{" -j2 --jobserver-auth=3,4 -- A=--jobserver-auth=9,9", "-- A=--jobserver-auth=9,9"},
		{"w -- A=x --jobserver-auth=3,4", "w -- A=x --jobserver-auth=3,4"}, // a definition, not an option
		{"A=x\\ --jobserver-auth=3,4", "A=x\\ --jobserver-auth=3,4"},       // inside a word
		{"-I inc -j4 --jobserver-auth=3,4 --no-print-directory", "-I inc --no-print-directory"},
		{"--jobserver", "--jobserver"},
		{"-junk --jobserver-auth=3,4", "-junk"},
		{"x\\", "x\\"},
	}
	for _, tt := range tests {
		got, removed := dropJobserver(tt.in)
		if got != tt.want || removed != (tt.in != tt.want) {
			t.Errorf("dropJobserver(%q) = %q, %v; want %q", tt.in, got, removed, tt.want)
		}
	}
}

func FuzzDropJobserver(f *testing.F) {
	f.Add("w -j4 --jobserver-auth=3,4 -- A=b")
	f.Add(" --jobserver-fds=3,4 -j")
	f.Add("a\\ b\\")
	f.Fuzz(func(t *testing.T, s string) {
		got, removed := dropJobserver(s)
		if !removed && got != s {
			t.Fatalf("%q became %q without a word", s, got)
		}
		if again, removed := dropJobserver(got); removed {
			t.Fatalf("%q became %q and that %q", s, got, again)
		}
		options := got
		if i := strings.Index(" "+got, " -- "); i >= 0 {
			options = got[:i]
		}
		if !strings.ContainsAny(options, "\\\t") {
			for w := range strings.SplitSeq(options, " ") { // make knows no other blanks than the space and the tab
				if isJobserver(w) {
					t.Fatalf("%q still names a jobserver in %q", s, got)
				}
			}
		}
	})
}
