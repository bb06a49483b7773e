package lint

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// elements gives n elements of a list.
func elements(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+",\n", i)
	}
	return b.String()
}

// TestBounds: whatever fills a profile, its check ends at once, fails where
// rules were left out, and tells so many findings that a person can read them.
func TestBounds(t *testing.T) {
	const full = 2000            // as many as a list of one file may have
	const most = 8 * time.Second // generous for the race detector and a busy machine; quadratic work takes minutes
	inLine := func(s string) string { return strings.ReplaceAll(s, "\n", "") }
	for _, tt := range []struct {
		name, text string
		fails      bool
	}{
		{"16000 hidden names", "[filesystem]\nhide = [\n" + elements(`"x%d"`, 16000) + "]", true},
		{"16000 hidden names in a line", "[filesystem]\nhide = [" + inLine(elements(`"x%d"`, 16000)) + "]", true},
		{"16000 patterns", "[filesystem]\nhide = [\n" + elements(`"**/x*%d*y*z"`, 16000) + "]", true},
		{"16000 protected names", "[filesystem]\nprotect = [\n" + elements(`"x%d"`, 16000) + "]", true},
		{"8000 grants", "[filesystem]\ngrant = [\n" + elements(`{ path = "x%d", access = "read" }`, 8000) + "]", true},
		{"16000 variables", "[environment]\ndeny = [\n" + elements(`"X%d"`, 16000) + "]", true},
		{"16000 hosts", "[network]\nmode = \"allow\"\nallow = [\n" + elements(`"x%d.example.org"`, 16000) + "]", true},
		{"10000 unknown keys", elements("a%d = 1 #", 10000), true},
		{"10000 keys in a row", "x = { " + inLine(elements("a%d = 1", 10000)) + "z = 1 }", true},
		{"full of names", "[filesystem]\nhide = [\n" + elements(`"x%d"`, full) + "]", false},
		{"full of dead grants", "[filesystem]\ngrant = [\n" + elements(`{ path = "x%d", access = "write" }`, full) + "]", false},
		{"full of hosts", "[network]\nmode = \"allow\"\nallow = [\n" + elements(`"x%d.example.org"`, full) + "]", false},
		{"full of variables", "[environment]\nallow = [\n" + elements(`"X%d"`, full) + "]\ndeny = [\n" + elements(`"Y%d*"`, full) + "]", false},
		{"half full of patterns, grants and protected names", "[filesystem]\nhide = [" + elements(`"**/x*%d*y*z*"`, full/2) + "]\ngrant = [" +
			elements(`{ path = "xyxyxyxyxy/xxxxxxxxxxxxxxxxxxxxx/a%d", access = "read" }`, full/2) + "]\nprotect = [" + elements(`"xxxxxxxyxyxyxyxyx/%d"`, full/2) + "]", false},
		{"full of names, with comments", "[filesystem]\nhide = [\n" + elements("\"x%d\", \"./x%[1]d\"", full/2) + "]\n" + elements("# wall:allow W010,W047 because %d", 10000), false},
		{"extends another that is full", "extends = \"./full.toml\"\n[filesystem]\nhide = [\n" + elements(`"y%d"`, full) + "]", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options(t, "")
			o.Host.FS.(fstest.MapFS)["home/alice/profiles/full.toml"] = &fstest.MapFile{Data: []byte("version = 1\n[filesystem]\nhide = [\n" + elements(`"x%d"`, full) + "]\n"), Mode: 0o644}
			start := time.Now()
			r := Report{FailOn: Error, Findings: New(o).Check(source(Rule{}, "p.toml", "version = 1\n"+tt.text+"\n"))}
			if took := time.Since(start); took > most {
				t.Errorf("took %v", took)
			} else {
				t.Log(took)
			}
			if len(r.Findings) > MaxFindings+1 {
				t.Errorf("%d findings", len(r.Findings))
			}
			if r.Failed() != tt.fails {
				t.Errorf("failed %v, want %v: %d findings, %.200q", r.Failed(), tt.fails, len(r.Findings), codes(r.Findings))
			}
			if long := slices.Contains(codes(r.Findings), "W054"); long && !tt.fails || !long && strings.HasPrefix(tt.name, "extends") {
				t.Errorf("too long: %v", long)
			}
		})
	}
}

// TestAtMost: notes that are there in any number push no error out, and what is
// not told counts as what it is.
func TestAtMost(t *testing.T) {
	report := func(n int, fs ...Finding) Report {
		x := &check{found: fs}
		x.atMost(n)
		return Report{FailOn: Error, Findings: x.found}
	}
	note, bad := Finding{Code: "W044", Severity: Note, Line: 1}, Finding{Code: "W010", Severity: Error, Line: 2}
	accepted := bad
	accepted.Suppressed = true
	if r := report(2, note, bad); len(r.Findings) != 2 {
		t.Errorf("%d findings, want the two that there are", len(r.Findings))
	}
	r := report(2, note, note, note, bad)
	if len(r.Findings) != 3 || r.Findings[1].Code != "W010" || !strings.Contains(r.Findings[2].Message, "and 2 more findings") || r.Findings[2].Severity != Note || !r.Failed() {
		t.Errorf("the error is not among %+v", r.Findings)
	}
	if r := report(1, bad, bad); r.Findings[1].Severity != Error {
		t.Errorf("an error that is not told is %v", r.Findings[1].Severity)
	}
	if r := report(1, accepted, accepted, note); r.Findings[0].Code != "W044" || r.Findings[1].Severity != Note || r.Failed() {
		t.Errorf("accepted findings come first or fail: %+v", r.Findings)
	}
}
