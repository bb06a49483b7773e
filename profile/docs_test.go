package profile

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/envscrub"
)

// TestBasesOfTheDocs compares the table of bases in docs/profiles.md with what
// crosses under scrub "strict".
func TestBasesOfTheDocs(t *testing.T) {
	data, err := os.ReadFile("../docs/profiles.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "| `base` | names")
	if !ok {
		t.Fatal("docs/profiles.md has no table of bases")
	}
	listed := map[string][]string{}
	modes := map[string]string{}
	var ambient []string
	for _, row := range strings.Split(rest, "\n")[2:7] {
		cells := strings.Split(row, "|")
		base, names := strings.Trim(cells[1], " `"), strings.TrimSpace(cells[2])
		if as, ok := strings.CutPrefix(names, "as "); ok {
			listed[base] = listed[strings.Trim(as, "`")]
		} else {
			listed[base] = strings.Fields(strings.ReplaceAll(names, "LC_*", "LC_ALL LC_TIME"))
		}
		modes[base] = strings.Trim(cells[3], " `")
		for _, n := range listed[base] {
			ambient = append(ambient, n+"=x")
		}
	}
	for _, base := range []envscrub.Base{envscrub.BaseSession, envscrub.BaseContract, envscrub.BaseGate, envscrub.BaseShell, envscrub.BaseTerminal} {
		r, err := envscrub.Build(envscrub.Input{Ambient: append(ambient, "OTHER=x"), Home: "/h", TmpDir: "/t"}, envscrub.Policy{Base: base, Mode: envscrub.ModeStrict})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, v := range r.Env {
			if !slices.Contains([]string{"HOME", "TMPDIR", "TMP", "TEMP"}, v.Name) {
				got = append(got, v.Name)
			}
		}
		want := slices.Sorted(slices.Values(listed[string(base)]))
		if len(want) == 0 || !slices.Equal(slices.Compact(want), got) {
			t.Errorf("base %s: the documents say %v, the code %v", base, want, got)
		}
		if m := modes[string(base)]; m != string(base.DefaultMode()) {
			t.Errorf("base %s: the documents say scrub %s, the code %s", base, m, base.DefaultMode())
		}
	}
}
