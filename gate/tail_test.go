package gate

import (
	"strings"
	"testing"
	"testing/quick"
	"unicode/utf8"

	"github.com/wallsandbox/wall/plan"
)

func TestTail(t *testing.T) {
	chars, bytes := func(n int) amount { return amount{n, plan.UnitChars} }, func(n int) amount { return amount{n, plan.UnitBytes} }
	for _, tt := range []struct {
		name string
		a    amount
		in   []string
		want string
	}{
		{"all", chars(10), []string{"abc", "def"}, "abcdef"},
		{"last characters", chars(3), []string{"abcdef"}, "def"},
		{"characters of four bytes", chars(2), []string{"🙂🙃😉"}, "🙃😉"},
		{"a character in two writes", chars(2), []string{"a\xf0\x9f", "\x99\x82"}, "a🙂"},
		{"bytes that are no character count as one", chars(3), []string{"a\xff\xfe\xfd"}, "\xff\xfe\xfd"},
		{"last bytes", bytes(4), []string{"abcdef"}, "cdef"},
		{"bytes never start inside of a character", bytes(4), []string{"a🙂b"}, "b"},
		{"bytes start at a character", bytes(5), []string{"a🙂b"}, "🙂b"},
		{"no text at all", bytes(4), []string{"\x80\x80\x80\x80\x80\x80"}, "\x80\x80\x80\x80"},
		{"nothing is kept", chars(0), []string{"abc"}, ""},
		{"many writes", chars(4), strings.Split(strings.Repeat("x,", 1000)+"abcd", ","), "abcd"},
	} {
		tail := newTail(tt.a)
		for _, s := range tt.in {
			if n, err := tail.Write([]byte(s)); n != len(s) || err != nil {
				t.Fatalf("%s: Write gave %d, %v", tt.name, n, err)
			}
		}
		if got := string(tail.end()); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestTailProperty: whatever is written in whatever parts, the end that is kept is
// the end of all of it, is as long as it may be, and starts where a character does.
func TestTailProperty(t *testing.T) {
	check := func(parts [][]byte, runes []rune, n uint8, inBytes bool) bool {
		a := amount{int(n), plan.UnitChars}
		if inBytes {
			a.unit = plan.UnitBytes
		}
		parts = append(parts, []byte(string(runes)))
		tail, all := newTail(a), ""
		for _, p := range parts {
			_, _ = tail.Write(p)
			all += string(p)
		}
		got := string(tail.end())
		if !strings.HasSuffix(all, got) || a.count([]byte(got)) > a.n || cap(tail.buf) > 4*(a.bytes()+len(all)) {
			return false
		}
		if !utf8.ValidString(all) || inBytes {
			return true
		}
		return utf8.ValidString(got) && utf8.RuneCountInString(got) == min(utf8.RuneCountInString(all), a.n)
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 2000}); err != nil {
		t.Error(err)
	}
}

func TestCombine(t *testing.T) {
	long := strings.Repeat("o", 100)
	for _, tt := range []struct {
		name, out, errs string
		n               int
		want            string
	}{
		{"stdout alone", "out\n", "", 100, "out"},
		{"blank stderr is none", "out\n", " \n\t\n", 100, "out"},
		{"stderr alone", "", "bad\n", 100, "--- stderr ---\nbad"},
		{"both", "out\n", "bad\n\n", 100, "out\n--- stderr ---\nbad"},
		{"a line break is made", "out", "bad", 100, "out\n--- stderr ---\nbad"},
		{"stdout is cut", long + "end", "", 10, "oooooooend"},
		// 56 = 40 for both, 15 for the separator, 1 for a line break before it.
		{"a flood of stderr leaves half to stdout", long, strings.Repeat("e", 1000), 56, strings.Repeat("o", 20) + "\n--- stderr ---\n" + strings.Repeat("e", 20)},
		{"what stderr does not need stdout has", long, "eeeee", 56, strings.Repeat("o", 35) + "\n--- stderr ---\neeeee"},
		{"what stdout does not need stderr has", "ooooo", strings.Repeat("e", 1000), 56, "ooooo\n--- stderr ---\n" + strings.Repeat("e", 35)},
		{"no room for both", long, "0123456789", 5, "56789"},
		{"bytes that are not UTF-8", "a\xff\n", "", 10, "a\uFFFD"},
	} {
		stdout, stderr := newTail(amount{tt.n, plan.UnitChars}), newTail(amount{tt.n, plan.UnitChars})
		_, _ = stdout.Write([]byte(tt.out))
		_, _ = stderr.Write([]byte(tt.errs))
		o := combine(stdout, stderr)
		if o.Text != tt.want {
			t.Errorf("%s:\n%q, want\n%q", tt.name, o.Text, tt.want)
		}
		if n := utf8.RuneCountInString(o.Text); n > tt.n {
			t.Errorf("%s: %d characters, more than %d", tt.name, n, tt.n)
		}
		if len(tt.out)+len(tt.errs) < 30 && o.Cut != 0 && tt.n > 20 {
			t.Errorf("%s: %d bytes are said to be cut", tt.name, o.Cut)
		}
		if o.StdoutBytes != int64(len(tt.out)) || o.StderrBytes != int64(len(tt.errs)) {
			t.Errorf("%s: %d and %d bytes", tt.name, o.StdoutBytes, o.StderrBytes)
		}
	}
}

func FuzzCombine(f *testing.F) {
	f.Add([]byte("out"), []byte("err"), uint16(20), true)
	f.Fuzz(func(t *testing.T, out, errs []byte, n uint16, chars bool) {
		a := amount{int(n), plan.UnitBytes}
		if chars {
			a.unit = plan.UnitChars
		}
		stdout, stderr := newTail(a), newTail(a)
		_, _ = stdout.Write(out)
		_, _ = stderr.Write(errs)
		o := combine(stdout, stderr)
		if !utf8.ValidString(o.Text) || o.Cut < 0 || o.Cut > int64(len(out)+len(errs)) {
			t.Fatalf("%q, %d bytes cut", o.Text, o.Cut)
		}
		if chars && utf8.RuneCountInString(o.Text) > a.n {
			t.Fatalf("%d characters, more than %d", utf8.RuneCountInString(o.Text), a.n)
		}
	})
}
