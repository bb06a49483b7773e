package lint

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// A watchedFS notes every name outside of src/repo and of its parents that
// something asks for.
type watchedFS struct {
	fstest.MapFS
	asked *[]string
}

func (w watchedFS) note(name string) {
	if name != "." && name != "src" && name != "src/repo" && !strings.HasPrefix(name, "src/repo/") {
		*w.asked = append(*w.asked, name)
	}
}

func (w watchedFS) Open(name string) (fs.File, error)      { w.note(name); return w.MapFS.Open(name) }
func (w watchedFS) Stat(name string) (fs.FileInfo, error)  { w.note(name); return w.MapFS.Stat(name) }
func (w watchedFS) Lstat(name string) (fs.FileInfo, error) { w.note(name); return w.MapFS.Lstat(name) }
func (w watchedFS) ReadLink(name string) (string, error)   { w.note(name); return w.MapFS.ReadLink(name) }
func (w watchedFS) ReadFile(name string) ([]byte, error)   { w.note(name); return w.MapFS.ReadFile(name) }
func (w watchedFS) ReadDir(name string) ([]fs.DirEntry, error) {
	w.note(name)
	return w.MapFS.ReadDir(name)
}

// TestConfined: what a file of a repository extends is not even looked at when it
// lies outside, directly or by way of other files of the repository.
func TestConfined(t *testing.T) {
	profile := func(extends string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("version = 1\ndescription = \"x\"\nextends = \"" + extends + "\"\n"), Mode: 0o644}
	}
	link := func(to string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink | 0o777}
	}
	for _, tt := range []struct{ extends, want string }{
		{"./ok.toml", ""},
		{"../conf/ok.toml", ""},
		{"gate", ""},
		{"../../secret.env", `cannot extend "../../secret.env": it is outside of the repository`},
		{"../../missing", `cannot extend "../../missing": it is outside of the repository`},
		{"../../repo2/ok.toml", `cannot extend "../../repo2/ok.toml": it is outside of the repository`},
		{"../../../proc/self/environ", `cannot extend "../../../proc/self/environ": it is outside of the repository`},
		{"./link.toml", `cannot extend "./link.toml": .wall/link.toml is a symbolic link`},
		{"./inner.toml", `cannot extend "./inner.toml": .wall/inner.toml is a symbolic link`},
		{"../out/secret.env", `cannot extend "../out/secret.env": out is a symbolic link`},
		{"../out/../secret.env", "no such file or directory"}, // in the repository
		{"./two.toml", `cannot extend "../../secret.env": it is outside of the repository (.wall/two.toml:3)`},
		{"./three.toml", `cannot extend "../../secret.env": it is outside of the repository (.wall/two.toml:3)`},
		{"./cycle.toml", "extends itself"},
		{"/src/secret.env", "cannot extend /src/secret.env"},
		{"~/secret.env", "cannot extend ~/secret.env"},
	} {
		var asked []string
		o := options(t, "")
		o.Host.Cwd = "/src/repo"
		o.Host.FS = watchedFS{fstest.MapFS{
			"src/secret.env":            {Data: []byte("DB_PASSWORD = \"hunter2\"\n"), Mode: 0o644},
			"src/repo2/ok.toml":         profile("gate"),
			"src/repo/.wall/ok.toml":    profile("gate"),
			"src/repo/conf/ok.toml":     profile("gate"),
			"src/repo/.wall/link.toml":  link("../../secret.env"),
			"src/repo/.wall/inner.toml": link("ok.toml"),
			"src/repo/out":              link(".."),
			"src/repo/.wall/two.toml":   profile("../../secret.env"),
			"src/repo/.wall/three.toml": profile("./two.toml"),
			"src/repo/.wall/cycle.toml": profile("./cycle.toml"),
		}, &asked}
		src := Source{Name: ".wall/x.toml", Path: "/src/repo/.wall/x.toml", Data: profile(tt.extends).Data, Root: "/src/repo"}
		var got []string
		for _, f := range New(o).Check(src) {
			if f.Code == "W005" {
				got = append(got, f.Message)
			}
			if f.Code == "W005" && f.Line != 3 {
				t.Errorf("%s: told at line %d", tt.extends, f.Line)
			}
		}
		if all := strings.Join(got, "; "); tt.want == "" && all != "" || !strings.Contains(all, tt.want) || strings.Contains(all, "hunter") {
			t.Errorf("%s: got %q, want %q", tt.extends, all, tt.want)
		}
		for _, name := range asked {
			if strings.HasPrefix(name, "src/") {
				t.Errorf("%s: %s was looked at", tt.extends, name)
			}
		}
	}
}

// TestLinked: of a file that is reached through a link only a profile is told of.
func TestLinked(t *testing.T) {
	c := New(options(t, ""))
	for _, text := range []string{
		"DB_PASSWORD=hunter2", "hunter = \"hunter2\"", "version = 1\nenforce = \"hunter2\"", "version = 1\nversion = 1\nhunter.x = 1\n[x", "\x00hunter", "hunter\xff", strings.Repeat("hunter = 1\n", 2000),
	} {
		r := Report{FailOn: Error, Findings: c.Check(Source{Name: "x.toml", Path: "/src/.wall/x.toml", Target: "/src/secret", Data: []byte(text)})}
		if len(r.Findings) != 1 || r.Findings[0].Code != "W006" || !r.Failed() {
			t.Errorf("%.40q: %+v", text, r.Findings)
		}
		for _, o := range outputs {
			var b bytes.Buffer
			if err := o.write(r, &b); err != nil || strings.Contains(b.String(), "hunter") {
				t.Errorf("%.40q: %s: %v: %s", text, o.name, err, b.String())
			}
		}
	}
	if got := codes(c.Check(Source{Name: "x.toml", Path: "/src/.wall/x.toml", Target: "/src/ok.toml", Data: []byte("version = 1\nenforce = \"off\"\n")})); !strings.Contains(strings.Join(got, " "), "W035") {
		t.Errorf("a profile behind a link has only %q", got)
	}
	if f := c.Check(Source{Name: "x.toml", Path: "/src/x.toml", Err: ErrLink})[0]; f.Code != "W006" || !strings.Contains(f.Message, "symbolic link") {
		t.Errorf("a link: %+v", f)
	}
}

// TestBrokenShowsNothing: of a file whose syntax is broken no text is shown.
func TestBrokenShowsNothing(t *testing.T) {
	for _, text := range []string{
		"version = 1\nhunter2 = \"x\"\nbroken", "version = 1\n[filesystem]\nview = \"x\" # hunter2\n[broken", "version = 1\nenforce = \"fs\" # hunter2 \x00\n", "version = 1 # hunter2 \xff\n",
	} {
		for _, f := range New(options(t, "")).Check(Source{Name: "x.toml", Path: "/src/x.toml", Data: []byte(text)}) {
			if f.Source != "" || f.Text != "" {
				t.Errorf("%q: %d: %s: shows %q, %q", text, f.Line, f.Message, f.Source, f.Text)
			}
		}
	}
}

// TestNoSuppressions: a comment accepts nothing, and does not count as unused.
func TestNoSuppressions(t *testing.T) {
	text := "version = 1\ndescription = \"x\"\nenforce = \"off\" # wall:allow W035 a test\n"
	for _, off := range []bool{false, true} {
		o := options(t, "")
		o.NoSuppressions = off
		found := New(o).Check(source(Rule{}, "p.toml", text))
		if len(found) != 1 || found[0].Code != "W035" || found[0].Suppressed == off {
			t.Errorf("NoSuppressions %v: %+v", off, found)
		}
	}
}
