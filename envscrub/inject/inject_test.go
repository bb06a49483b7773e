package inject

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

const sentinel = "sentinel-value-that-must-not-show"

func TestParseAssignment(t *testing.T) {
	good := map[string]Var{
		"A=b":                   {"A", "b"},
		"A=":                    {"A", ""},
		"_a1=b=c=":              {"_a1", "b=c="},
		"A= b\n\x01":            {"A", " b\n\x01"},
		"A=\xff\xfe":            {"A", "\xff\xfe"},
		"PATH=/bin":             {"PATH", "/bin"},
		"LD_PRELOAD=/x.so":      {"LD_PRELOAD", "/x.so"},
		"WALL_X=1":              {"WALL_X", "1"},
		"home=lower is no HOME": {"home", "lower is no HOME"},
		"A" + "=" + strings.Repeat("v", MaxString-3): {"A", strings.Repeat("v", MaxString-3)},
	}
	for in, want := range good {
		got, err := ParseAssignment(in)
		if err != nil || got != want {
			t.Errorf("ParseAssignment(%.40q) = %q %v", in, got.Name, err)
		}
	}
	bad := []struct{ in, want string }{
		{sentinel, "cannot store an argument: it is not of the form NAME=VALUE"},
		{"", "not of the form NAME=VALUE"},
		{"=" + sentinel, "the name is empty"},
		{"A B=" + sentinel, `cannot store "A B": a name has ASCII letters`},
		{"1A=" + sentinel, `cannot store "1A": a name has`},
		{"Ä=" + sentinel, `cannot store "Ä": a name has`},
		{"A\x00=" + sentinel, `cannot store "A\x00": a name has`},
		{"A=" + sentinel + "\x00", "cannot store A: the value holds a NUL byte"},
		{"A=" + strings.Repeat(sentinel, 1<<20/len(sentinel)), "more than the 131070 bytes that Linux allows"},
		{"A=" + strings.Repeat("v", MaxString-2), "more than the 131070 bytes"},
		{strings.Repeat("N", 1<<20) + "=" + sentinel, "more than the 131070 bytes"},
		{"HOME=" + sentinel, "cannot store HOME: wall decides this variable in every box"},
		{"TMPDIR=" + sentinel, "wall decides this variable"},
		{"PWD=" + sentinel, "wall decides this variable"},
	}
	for _, tt := range bad {
		_, err := ParseAssignment(tt.in)
		if err == nil {
			t.Errorf("ParseAssignment(%.40q) was accepted", tt.in)
			continue
		}
		text := plan.Explain(err)
		if !strings.Contains(text, tt.want) {
			t.Errorf("ParseAssignment(%.40q): %q does not hold %q", tt.in, text, tt.want)
		}
		if strings.Contains(text, sentinel) || len(text) > 500 {
			t.Errorf("ParseAssignment(%.40q): the error shows the value: %.600s", tt.in, text)
		}
		if plan.ExitStatus(err) != plan.ExitFailed {
			t.Errorf("exit status %d", plan.ExitStatus(err))
		}
	}
}

func TestCaution(t *testing.T) {
	for _, name := range []string{"LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV", "NODE_OPTIONS", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "GIT_CONFIG_GLOBAL", "ld_preload"} {
		if s := Caution(name); !strings.HasPrefix(s, name+" makes programs load") {
			t.Errorf("Caution(%q) = %q", name, s)
		}
	}
	if s := Caution("PATH"); !strings.HasPrefix(s, "PATH says where commands are looked for") {
		t.Errorf("Caution(PATH) = %q", s)
	}
	for _, name := range []string{"EDITOR", "MANPATH", "DATABASE_URL"} {
		if s := Caution(name); s != "" {
			t.Errorf("Caution(%q) = %q", name, s)
		}
	}
}

func TestVarHidesItsValue(t *testing.T) {
	v := Var{"DB", sentinel}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, arg := range []any{v, &v, []Var{v}, struct{ V Var }{v}} {
			s := fmt.Sprintf(format, arg)
			if strings.Contains(s, sentinel) || strings.Contains(s, fmt.Sprintf("%x", sentinel)) {
				t.Errorf("%s of %T shows the value: %s", format, arg, s)
			}
		}
	}
	if s := fmt.Sprint(v); s != "DB=<redacted>" {
		t.Errorf("Sprint = %q", s)
	}
}

func TestCodec(t *testing.T) {
	all := make([]byte, 0, 255)
	for c := 1; c < 256; c++ {
		all = append(all, byte(c))
	}
	vars := []Var{{"A", ""}, {"B", string(all)}, {"C", "é\u2028<&>\"\\\n"}, {"D", "\xff"}, {"E", "\ufffd"}, {"F", "\\ud800"}, {"G", "\U0001f600"}}
	got, err := decode(encode(vars))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, vars) {
		t.Error("decode does not invert encode")
		for i := range vars {
			t.Errorf("%q became %q", vars[i].Value, got[i].Value)
		}
	}
	if got, err := decode(encode(nil)); err != nil || got == nil || len(got) > 0 {
		t.Errorf("an empty store: %v %v", got, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	one := func(variable string) string { return `{"version": 1, "variables": [` + variable + `]}` }
	tests := []struct{ in, want string }{
		{"", "it is empty"},
		{"\x00", "not JSON, or cut short"},
		{"null", "something else than"},
		{"[]", "something else than"},
		{one("")[:20], "not JSON, or cut short"},
		{one("") + "x", "something follows"},
		{one("") + "{}", "something follows"},
		{`{"variables": []}`, `lacks "version"`},
		{`{"version": 1}`, `lacks "version" or "variables"`},
		{`{"version": 2, "variables": []}`, "version is not 1"},
		{`{"version": 1.0, "variables": []}`, "version is not 1"},
		{`{"version": "1", "variables": []}`, "version is not 1"},
		{`{"version": 1, "version": 1, "variables": []}`, "member besides"},
		{`{"version": 1, "variables": [], "variables": []}`, "member besides"},
		{`{"version": 1, "variables": [], "more": 1}`, "member besides"},
		{`{"version": 1, "Variables": []}`, "member besides"},
		{`{"version": 1, "variables": {}}`, "something else than"},
		{`{"version": 1, "variables": null}`, "something else than"},
		{one(`"A"`), "something else than"},
		{one(`{}`), "lacks its name or its value"},
		{one(`{"name": "A"}`), "lacks its name or its value"},
		{one(`{"value": "` + sentinel + `"}`), "lacks its name or its value"},
		{one(`{"name": "A", "value": 1}`), "something else than a string"},
		{one(`{"name": "A", "value": null}`), "something else than a string"},
		{one(`{"name": "A", "value": "` + sentinel + `", "value": "b"}`), "member besides"},
		{one(`{"name": "A", "value": "` + sentinel + `", "base64": ""}`), "member besides"},
		{one(`{"name": "A", "` + sentinel + `": ""}`), "member besides"},
		{one(`{"name": "A", "base64": "` + sentinel + `"}`), "something else than base64"},
		{one(`{"name": "A", "base64": "/x=="}`), "something else than base64"},
		{one(`{"name": "", "value": "` + sentinel + `"}`), "the name is empty"},
		{one(`{"name": "A B", "value": "` + sentinel + `"}`), `"A B"`},
		{one(`{"name": "A", "value": "` + sentinel + `\u0000"}`), "NUL"},
		{one(`{"name": "A", "base64": "AA=="}`), "NUL"},
		{one(`{"name": "A", "value": "` + sentinel + `\ud83d\ude00"}`), "UTF-8"},
		{one(`{"name": "A", "value": "` + sentinel + `\uD800"}`), "UTF-8"},
		{one(`{"name": "A", "value": "` + sentinel + "\xff" + `"}`), "not UTF-8"},
		{one(`{"name": "A", "value": "` + sentinel + `"}, {"name": "A", "value": ""}`), "twice"},
		{one(`{"name": "A", "value": "` + strings.Repeat("v", MaxString) + `"}`), "131070"},
		{strings.Repeat(" ", MaxFile) + one(""), "more than 1048576 bytes"},
	}
	for _, tt := range tests {
		vars, err := decode([]byte(tt.in))
		if err == nil {
			t.Errorf("decode(%.80q) = %q, want an error", tt.in, vars)
			continue
		}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("decode(%.80q): %q does not hold %q", tt.in, err, tt.want)
		}
		if strings.Contains(err.Error(), sentinel) {
			t.Errorf("the error shows a value: %v", err)
		}
	}
}

// The order in a file that was written by hand does not matter.
func TestDecodeSorts(t *testing.T) {
	vars, err := decode([]byte(`{"variables":[{"value":"2","name":"B"},{"name":"A","value":"\u0041"}],"version":1}`))
	if err != nil || !slices.Equal(vars, []Var{{"A", "A"}, {"B", "2"}}) {
		t.Errorf("%v %v", vars, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encode(nil))
	f.Add(encode([]Var{{"A", "b"}, {"B", "\xff"}, {"C", "\"\\\u2028"}}))
	f.Add([]byte(`{"version":1,"variables":[{"name":"A","value":"\\ud800"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		vars, err := decode(data)
		if err != nil {
			return
		}
		again, err := decode(encode(vars))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(again, vars) {
			t.Fatalf("%d variables changed", len(vars))
		}
		for i, v := range vars {
			if v.valid() != nil || i > 0 && vars[i-1].Name >= v.Name {
				t.Fatalf("variable %d is not valid or not in order", i)
			}
		}
	})
}

func TestLockHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 11 00:2b:5678 0 EOF
2: FLOCK  ADVISORY  WRITE 12 00:2b:5679 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 00:2b:5678 0 EOF
3: FLOCK  ADVISORY  WRITE 14 fe:01:5678 0 EOF
4: FLOCK  ADVISORY  WRITE 0 fe:01:99 0 EOF
short
`
	for inode, want := range map[uint64]int{5678: 14, 5679: 12, 99: 0, 678: 0, 1: 0} {
		if got := lockHolder(locks, inode); got != want {
			t.Errorf("lockHolder(%d) = %d, want %d", inode, got, want)
		}
	}
}
