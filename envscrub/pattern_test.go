package envscrub

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestPatternTable(t *testing.T) {
	tests := []struct {
		pattern, name string
		plain, fold   bool
	}{
		{"FOO", "FOO", true, true},
		{"FOO", "foo", false, true},
		{"FOO", "FOO_", false, false},
		{"FOO", "XFOO", false, false},
		{"LC_*", "LC_ALL", true, true},
		{"LC_*", "LC_", true, true},
		{"LC_*", "lc_all", false, true},
		{"LC_*", "LC", false, false},
		{"LC_*", "XLC_ALL", false, false},
		{"*_TOKEN", "GH_TOKEN", true, true},
		{"*_TOKEN", "_TOKEN", true, true},
		{"*_TOKEN", "gh_token", false, true},
		{"*_TOKEN", "TOKEN", false, false},
		{"*_TOKEN", "GH_TOKENS", false, false},
		{"*", "", true, true},
		{"*", "ANY", true, true},
		// Odd ones: a star in the middle and the second of two are literal.
		{"A*B", "AXB", false, false},
		{"A*B", "A*B", true, true},
		{"*MID*", "XMIDX", false, false},
		{"*MID*", "XMID", false, false},
		{"*MID*", "XMID*", true, true},
		{"**", "ANY", false, false},
		{"**", "ANY*", true, true},
		{"?", "A", false, false},
		{"[A]", "A", false, false},
		{" FOO", "FOO", false, false},
		// Only ASCII letters fold.
		{"*_SECRET", "X_\u017fECRET", false, false},
	}
	for _, tt := range tests {
		p, err := ParsePattern(tt.pattern)
		if err != nil {
			t.Fatalf("ParsePattern(%q): %v", tt.pattern, err)
		}
		if got := p.Match(tt.name, false); got != tt.plain {
			t.Errorf("%q matches %q = %v", tt.pattern, tt.name, got)
		}
		if got := p.Match(tt.name, true); got != tt.fold {
			t.Errorf("%q matches %q in any case = %v", tt.pattern, tt.name, got)
		}
		if p.String() != tt.pattern {
			t.Errorf("String() = %q, want %q", p, tt.pattern)
		}
	}
	if (Pattern{}).Match("", false) || (Pattern{}).Match("X", true) || (Pattern{}).Exact() {
		t.Error("the zero Pattern matches something")
	}
}

func TestPatternExact(t *testing.T) {
	for s, want := range map[string]bool{"FOO": true, "A*B": true, "*": false, "*FOO": false, "FOO*": false} {
		p, err := ParsePattern(s)
		if err != nil || p.Exact() != want {
			t.Errorf("%q: exact = %v, %v", s, p.Exact(), err)
		}
	}
}

func TestParsePatternRefuses(t *testing.T) {
	for _, s := range []string{"", "FOO=" + sentinel, "=" + sentinel, "A\x00B"} {
		p, err := ParsePattern(s)
		if !errors.Is(err, ErrPattern) || p != (Pattern{}) {
			t.Errorf("ParsePattern(%q) = %v, %v", s, p, err)
		}
		if err != nil && strings.Contains(err.Error(), sentinel) {
			t.Errorf("the error shows what follows the equals sign: %v", err)
		}
	}
}

func TestParseList(t *testing.T) {
	tests := []struct {
		in, want string
		bad      int
	}{
		{"", "", 0},
		{" , ;\t\n", "", 0},
		{"A,B;C D\tE\nF", "A B C D E F", 0},
		{"A\u00a0B\u2003C\u3000D", "A B C D", 0}, // Unicode white space
		{"LC_*,*_X,*", "LC_* *_X *", 0},
		{"A,B=1,C", "A C", 1},
		{"A=1,=", "", 2},
	}
	for _, tt := range tests {
		got, err := ParseList(tt.in)
		if got == nil {
			t.Errorf("ParseList(%q) is nil", tt.in)
		}
		if s := strings.Trim(fmt.Sprint(got), "[]"); s != tt.want {
			t.Errorf("ParseList(%q) = %q, want %q", tt.in, s, tt.want)
		}
		n := 0
		if err != nil {
			n = len(err.(interface{ Unwrap() []error }).Unwrap())
		}
		if n != tt.bad {
			t.Errorf("ParseList(%q): %d errors, want %d: %v", tt.in, n, tt.bad, err)
		}
	}
}

// Counterpart of the reference's name validity table.
func TestContenoxValidName(t *testing.T) {
	for _, s := range []string{"A", "_", "a1", "FOO_BAR", "_9"} {
		if !ValidName(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range []string{"", "1A", "A B", "A=B", "A-B", "A.B", "Ä", "A\x00", "A\n", " A", "A\xff"} {
		if ValidName(s) {
			t.Errorf("%q is accepted", s)
		}
	}
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"LC_*", "*_TOKEN", "*", "**", "*MID*", "A*B", "plain", "é*"} {
		f.Add(s, "LC_ALL")
		f.Add(s, "X_TOKEN")
	}
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p, err := ParsePattern(pattern)
		if err != nil {
			return
		}
		want := naiveMatch(pattern, name)
		if got := p.Match(name, false); got != want {
			t.Fatalf("%q matches %q = %v, want %v", pattern, name, got, want)
		}
		if want && !p.Match(name, true) {
			t.Fatalf("%q matches %q only when case counts", pattern, name)
		}
		if got, want := p.Match(name, true), naiveMatch(asciiUpper(pattern), asciiUpper(name)); got != want {
			t.Fatalf("%q matches %q in any case = %v, want %v", pattern, name, got, want)
		}
	})
}

// naiveMatch says the same as Pattern.Match in the words of the reference.
func naiveMatch(pattern, name string) bool {
	if rest, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, rest)
	}
	if rest, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, rest)
	}
	return pattern != "" && pattern == name
}

func asciiUpper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'a' <= c && c <= 'z' {
			b[i] = c - 32
		}
	}
	return string(b)
}

func FuzzParseList(f *testing.F) {
	f.Add("A,B;C D")
	f.Add("*_TOKEN LC_*\t=\x00")
	f.Fuzz(func(t *testing.T, s string) {
		got, _ := ParseList(s)
		if got == nil {
			t.Fatal("nil")
		}
		var words []string
		for _, p := range got {
			words = append(words, p.String())
		}
		again, err := ParseList(strings.Join(words, ","))
		if err != nil || !slices.Equal(again, got) {
			t.Fatalf("%q: %v is read again as %v, %v", s, got, again, err)
		}
	})
}
