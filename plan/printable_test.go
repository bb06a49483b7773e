package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
)

// printableCases is the one table of what foreign text becomes when it is shown.
var printableCases = []struct{ in, want string }{
	{"", ""},
	{"plain, größe, 日本, 🙂", "plain, größe, 日本, 🙂"},
	{"a\tb", "a b"},
	{"a\nb\rc\x1b[31m\x7f\x00", "a?b?c?[31m??"},
	{"c1 \u009b csi \u0085", "c1 ? csi ?"},
	{"bad \xff\xfe byte", "bad ?? byte"},
	{"half \xe2\x80", "half ??"},
	{"real \ufffd", "real \ufffd"},
	{"lines \u2028\u2029", "lines ??"},
	{"bidi \u202a\u202b\u202c\u202d\u202e \u2066\u2067\u2068\u2069 \u200e\u200f\u061c", "bidi ????? ???? ???"},
	{"none \u200b\u200c\u200d\ufeff\u2060\u00ad\u180e\U000e0041", "none ????????"},
	// GitHub Actions finds "##[" anywhere in a line, Azure Pipelines "##vso[", TeamCity "##teamcity[".
	{"x ##[set-output name=a]b", "x # #[set-output name=a]b"},
	{"##[error]", "# #[error]"},
	{"###[x]", "## #[x]"},
	{"##vso[task.setvariable]x ##VSO[y]", "# #vso[task.setvariable]x # #VSO[y]"},
	{"##teamcity[message]", "# #teamcity[message]"},
	{"#\u200b#[x]", "#?#[x]"},
	{"##\x00[x]", "##?[x]"},
	{"## heading [x]", "## heading [x]"},
	{"# a #[x] ##", "# a #[x] ##"},
	// And "::" where a line begins.
	{"::error::x", ": :error::x"},
	{"  ::add-mask ::x", "  : :add-mask ::x"},
	{"\n::error::x", "?::error::x"},
	{"::error", ": :error"}, // the rest of the line may have the other "::"
	{"::", "::"},
	{"::1", "::1"},
	{"a::b::c", "a::b::c"},
}

func TestPrintable(t *testing.T) {
	for _, tt := range printableCases {
		if got := Printable(tt.in); got != tt.want {
			t.Errorf("Printable(%q) = %q, want %q", tt.in, got, tt.want)
		}
		if again := Printable(tt.want); again != tt.want {
			t.Errorf("Printable(%q) = %q, want the same", tt.want, again)
		}
	}
}

// TestPrintableJSON: what is escaped means the same, and nothing that steers is left.
func TestPrintableJSON(t *testing.T) {
	for _, tt := range printableCases {
		data, err := json.Marshal(map[string]string{tt.in: tt.in})
		if err != nil {
			t.Fatal(err)
		}
		got := PrintableJSON(data)
		var before, after map[string]string
		if err := errors.Join(json.Unmarshal(data, &before), json.Unmarshal(got, &after)); err != nil || !maps.Equal(before, after) {
			t.Errorf("%q became %s, which means %q, %v", tt.in, got, after, err)
		}
		if bytes.Contains(got, []byte("##")) || bytes.ContainsAny(got, "\u007f\u0080\u009b\u2028\u202e\u200b\ufeff\U000e0041") {
			t.Errorf("%q became %q", tt.in, got)
		}
	}
}

// TestForeignText: no output of this package shows foreign text in another way.
func TestForeignText(t *testing.T) {
	const evil = "\u202e##[error]x ##vso[y]\u200b"
	err := &Error{Op: "op " + evil, Origin: Origin{File: evil, Line: 1, Text: evil}, Hint: evil, Err: errors.New(evil)}
	p := Plan{
		Command:  Command{Path: "/" + evil, Dir: "/", Argv: []string{evil}},
		Mounts:   []Mount{{Op: OpCover, Target: "/" + evil, Origin: Origin{Text: evil}}},
		Degraded: []Degraded{{Wall: "x", Lost: evil, Cause: evil + "\n"}},
		Notices:  []Notice{{Text: evil + "\nforged", Hint: evil, Origin: Origin{Text: evil}}},
	}
	var b strings.Builder
	if err := p.Print(&b); err != nil {
		t.Fatal(err)
	}
	data, jsonErr := p.JSON()
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	for what, text := range map[string]string{"Explain": Explain(err), "Print": b.String(), "JSON": string(data)} {
		for _, bad := range []string{"##[", "##vso["} {
			if strings.Contains(text, bad) {
				t.Errorf("%s shows %q:\n%s", what, bad, text)
			}
		}
		if strings.ContainsAny(text, "\u202e\u200b") || strings.Contains(text, "\nforged") {
			t.Errorf("%s shows characters that hide something:\n%q", what, text)
		}
	}
}
