package scratch

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

func TestDefaultRoot(t *testing.T) {
	for _, tt := range []struct {
		temp string
		uid  int
		want string
	}{{"/tmp", 1000, "/tmp/wall-1000"}, {"/tmp/", 0, "/tmp/wall-0"}, {"/", 7, "/wall-7"}, {"/my temp", 7, "/my temp/wall-7"}} {
		if got := DefaultRoot(tt.temp, tt.uid); got != tt.want {
			t.Errorf("%q, %d: %q, want %q", tt.temp, tt.uid, got, tt.want)
		}
	}
}

func TestDirID(t *testing.T) {
	for name, want := range map[string]string{
		"wall-0": "0", "wall-00ff": "00ff", "wall-" + strings.Repeat("a", 64): strings.Repeat("a", 64),
		"wall-": "", "wall-0G": "", "wall-A": "", "wall-0/": "", "wall": "", "xwall-0": "", "wall-0 ": "", "wall-.": "",
		"wall-" + strings.Repeat("a", 65): "",
	} {
		id, ok := dirID(name)
		if ok != (want != "") || ok && id != want {
			t.Errorf("%q: %q, %v", name, id, ok)
		}
	}
}

func TestCheckScratch(t *testing.T) {
	valid := func() plan.Scratch {
		return plan.Scratch{
			Root: "/tmp/r", ID: "ab",
			Dirs:         []plan.ScratchDir{{Name: "home", Mode: 0o700}, {Name: "tmp", Mode: 0o1777}},
			Placeholders: []plan.Placeholder{{Path: "/w/.git", Type: plan.TypeDir}, {Path: "/w/f", Type: plan.TypeFile, Content: ".\n"}},
			Seeds:        []plan.Seed{{Source: "/h/.codex/auth.json", Target: "home/.codex/auth.json"}},
		}
	}
	if err := checkScratch(valid()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*plan.Scratch){
		"no root":           func(s *plan.Scratch) { s.Root = "" },
		"relative root":     func(s *plan.Scratch) { s.Root = "tmp" },
		"root is /":         func(s *plan.Scratch) { s.Root = "/" },
		"unclean root":      func(s *plan.Scratch) { s.Root = "/tmp/../r" },
		"no id":             func(s *plan.Scratch) { s.ID = "" },
		"id with a slash":   func(s *plan.Scratch) { s.ID = "../x" },
		"upper-case id":     func(s *plan.Scratch) { s.ID = "AB" },
		"dir with a slash":  func(s *plan.Scratch) { s.Dirs[0].Name = "a/b" },
		"dir ..":            func(s *plan.Scratch) { s.Dirs[0].Name = ".." },
		"dir twice":         func(s *plan.Scratch) { s.Dirs[0].Name = "tmp" },
		"dir is the record": func(s *plan.Scratch) { s.Dirs[0].Name = ".placeholders" },
		"dir is the marker": func(s *plan.Scratch) { s.Dirs[0].Name = ".keep" },
		"mode":              func(s *plan.Scratch) { s.Dirs[0].Mode = 0o10000 },
		"placeholder root":  func(s *plan.Scratch) { s.Placeholders[0].Path = "/" },
		"relative":          func(s *plan.Scratch) { s.Placeholders[0].Path = "w/.git" },
		"dots":              func(s *plan.Scratch) { s.Placeholders[0].Path = "/w/../etc" },
		"link":              func(s *plan.Scratch) { s.Placeholders[0].Type = plan.TypeSymlink },
		"dir with content":  func(s *plan.Scratch) { s.Placeholders[0].Content = "x" },
		"other content":     func(s *plan.Scratch) { s.Placeholders[1].Content = "x" },
		"seed outside":      func(s *plan.Scratch) { s.Seeds[0].Target = "../x" },
		"seed dots":         func(s *plan.Scratch) { s.Seeds[0].Target = "home/../../x" },
		"seed absolute":     func(s *plan.Scratch) { s.Seeds[0].Target = "/etc/x" },
		"seed top level":    func(s *plan.Scratch) { s.Seeds[0].Target = "home" },
		"seed elsewhere":    func(s *plan.Scratch) { s.Seeds[0].Target = "cache/x" },
		"seed source":       func(s *plan.Scratch) { s.Seeds[0].Source = "auth.json" },
	} {
		s := valid()
		change(&s)
		if err := checkScratch(s); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := Prepare(s); err == nil {
			t.Errorf("%s: prepared", name)
		}
	}
}

func TestRecordRoundTrip(t *testing.T) {
	a := entry{Path: []byte("/w/\xff\n.git"), Type: plan.TypeDir}
	b := entry{Path: []byte("/w/f"), Type: plan.TypeFile, Content: []byte("gitdir: \xfe\n")}
	made := a
	made.Dev, made.Ino = 7, 1<<63+9
	void := b
	void.Void = true
	for _, tt := range []struct {
		name string
		data []byte
		want []entry
	}{
		{"empty", nil, nil},
		{"announced", a.encode(), []entry{a}},
		{"made", append(a.encode(), made.encode()...), []entry{made}},
		{"order of the first", append(append(a.encode(), b.encode()...), made.encode()...), []entry{made, b}},
		{"taken back", append(append(a.encode(), b.encode()...), void.encode()...), []entry{a}},
		{"torn", append(a.encode(), made.encode()[:20]...), []entry{a}},
		{"torn at the newline", append(a.encode(), made.encode()[:len(made.encode())-1]...), []entry{a}},
	} {
		got, err := decodeRecord(tt.data)
		if err != nil || len(got) != len(tt.want) {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
			continue
		}
		for i := range got {
			if string(got[i].encode()) != string(tt.want[i].encode()) {
				t.Errorf("%s: %s, want %s", tt.name, got[i].encode(), tt.want[i].encode())
			}
		}
	}
	for _, bad := range []string{
		"x\n", "{}\n", `{"path":"Lw==","type":"dir"}` + "\n", `{"path":"YQ==","type":"dir"}` + "\n",
		`{"path":"L2E=","type":"symlink"}` + "\n", `{"path":"L2E=","type":"dir","more":1}` + "\n",
	} {
		if got, err := decodeRecord([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(entry{Path: []byte("/a"), Type: plan.TypeDir, Ino: 3}.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := decodeRecord(data)
		if err != nil {
			return
		}
		var again []byte
		for _, e := range entries {
			if !isAbsClean(string(e.Path)) || e.Void {
				t.Fatalf("%+v", e)
			}
			again = append(again, e.encode()...)
		}
		second, err := decodeRecord(again)
		if err != nil || len(second) != len(entries) {
			t.Fatalf("%v, %d entries, then %d", err, len(entries), len(second))
		}
	})
}

func TestScratchErrorKeepsWhatIsToldAlready(t *testing.T) {
	told := &plan.Error{Op: "told", Hint: "do"}
	if scratchError("/x", told) != error(told) {
		t.Error("an error was told twice")
	}
	var pe *plan.Error
	if err := scratchError("/x", fs.ErrPermission); !errors.As(err, &pe) || pe.Hint == "" || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
}

func TestStampBefore(t *testing.T) {
	for _, tt := range []struct {
		t, u stamp
		want bool
	}{
		{stamp{5, 123456789}, stamp{5, 123456789}, false},
		{stamp{5, 123456788}, stamp{5, 123456789}, true},
		{stamp{4, 999999999}, stamp{5, 1}, true},
		{stamp{6, 1}, stamp{5, 999999999}, false},
		{stamp{5, 0}, stamp{5, 999999999}, false}, // whole seconds
		{stamp{4, 0}, stamp{5, 999999999}, false}, // every other one
		{stamp{3, 0}, stamp{5, 0}, true},
		{stamp{5, 10e6}, stamp{5, 19e6}, false}, // hundredths
		{stamp{5, 10e6}, stamp{5, 20e6}, true},
		{stamp{5, 1}, stamp{}, false}, // not known
	} {
		if got := tt.t.before(tt.u); got != tt.want {
			t.Errorf("%v before %v: %v", tt.t, tt.u, got)
		}
	}
}

func TestIsRecord(t *testing.T) {
	for name, want := range map[string]bool{
		recordName: true, recordName + "-0a": true, recordName + "-": false, recordName + "-x": false, recordName + "x": false, keepName: false,
	} {
		if isRecord(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
