package main

import (
	"slices"
	"strings"
	"testing"
)

func TestHideValues(t *testing.T) {
	for _, tt := range []struct{ args, shown string }{
		{"run --env A=b=c --env=B=secret -p gate -- env --env C=d", "run --env A=xxx --env=B=xxxxxx -p gate -- env --env C=d"},
		{"run --env A= --env=B= true", "run --env A= --env=B= true"},
		{"run --env secret", "run --env xxxxxx"},
		{"run --env=secret --envx=A=b --env", "run --env=xxxxxx --envx=A=b --env"},
		{"env set A=b=c B= C", "env set A=xxx B= C"},
		{"env set -- A=b", "env set -- A=x"},
		{"env preview --surface=gate", "env preview --surface=gate"},
		{"plan -p a=b true A=b", "plan -p a=b true A=b"},
		{"", ""},
	} {
		var args []string
		for _, a := range strings.Fields(tt.args) {
			args = append(args, string([]byte(a))) // of its own, because it is overwritten
		}
		got := hideValues(args)
		if want := strings.Fields(tt.args); !slices.Equal(got, want) {
			t.Errorf("%q became %q", want, got)
		}
		if shown := strings.Join(args, " "); shown != tt.shown {
			t.Errorf("%q is shown as %q, want %q", tt.args, shown, tt.shown)
		}
	}
}
