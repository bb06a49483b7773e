package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

// Every value of a stack knows who said it, and what that replaced.
func TestStackProvenance(t *testing.T) {
	m := parseTree(t, "")
	putFile(m, "/etc/wall/gate.toml", "version = 1\n[limits]\nopen-files = 900\n[filesystem]\nhide = [\"/srv/a\"]\n")
	putFile(m, "/home/u/.config/wall/gate.toml", "version = 1\n[limits]\nopen-files = 800\n[filesystem]\nhide = []\n[environment]\nset = { A = \"s3cret\" }\n")
	putFile(m, "/home/u/proj/.wall/gate.toml", "version = 1\n[limits]\nopen-files = 700\n[filesystem]\nhide = [\"x\"]\n")
	st, err := Load(goldenHost{}.host(m), Options{Profile: "gate", Flags: []Flag{
		{Name: "limit", Value: "open-files=600", Text: "--limit open-files=600"}, {Name: "hide", Value: "y", Text: "--hide y"}, {Name: "enforce", Value: "fs", Text: "--enforce fs"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []LayerKind
	for _, l := range st.Layers() {
		kinds = append(kinds, l.Kind)
		if (len(l.Digest) == 64) != (l.Kind != LayerFlags) || (l.Path != "") != (l.Kind == LayerSystem || l.Kind == LayerUser || l.Kind == LayerProject) {
			t.Errorf("layer %+v", l)
		}
	}
	if want := []LayerKind{LayerBuiltin, LayerBuiltin, LayerSystem, LayerUser, LayerProject, LayerFlags}; !slices.Equal(kinds, want) {
		t.Errorf("layers %v, want %v", kinds, want)
	}
	v, _ := st.Value("limits.open-files")
	if v.Text != "600" || v.Origin.Text != "--limit open-files=600" || v.Layer != 5 {
		t.Errorf("%+v", v)
	}
	var chain []string
	for _, r := range v.Replaced {
		chain = append(chain, fmt.Sprintf("%s %s %d", r.Origin.File, r.Text, r.Layer))
	}
	if want := []string{"/home/u/proj/.wall/gate.toml 700 4", "/home/u/.config/wall/gate.toml 800 3", "/etc/wall/gate.toml 900 2", "  -1"}; !slices.Equal(chain, want) {
		t.Errorf("replaced %q, want %q", chain, want)
	}
	v, _ = st.Value("filesystem.hide")
	if v.Text != `["x", "y"]` || len(v.Items) != 2 || v.Items[0].Layer != 4 || v.Items[1].Origin.Text != "--hide y" {
		t.Errorf("%+v", v)
	}
	if len(v.Replaced) != 1 || len(v.Replaced[0].Items) != 2 || v.Replaced[0].Items[0].Text != `"@credentials"` || v.Replaced[0].Items[1].Origin.File != "/etc/wall/gate.toml" {
		t.Errorf("replaced %+v", v.Replaced)
	}
	v, _ = st.Value("network.mode")
	if v.Text != `"host"` || v.Origin.Text != "--enforce fs" || v.Layer != 5 || len(v.Replaced) == 0 || v.Replaced[0].Text != `"none"` {
		t.Errorf("%+v", v)
	}
	for _, v := range st.Values() {
		if strings.Contains(fmt.Sprintf("%+v", v), "s3cret") {
			t.Errorf("%s shows the value of a variable", v.Key.Name)
		}
		if v.Origin.IsZero() {
			t.Errorf("%s has no origin", v.Key.Name)
		}
	}
	if e := fmt.Sprintf("%+v", st.Effective()); strings.Contains(e, "s3cret") || !strings.Contains(e, "Hidden:[$cwd/y $workspace/x]") {
		t.Error(e)
	}
}

// The values that Resolve uses are those that a stack shows.
func TestStackShowsWhatResolveUses(t *testing.T) {
	names, err := filepath.Glob("../testdata/profiles/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	for _, file := range names {
		a, err := readArchive(file)
		if err != nil {
			t.Fatal(err)
		}
		h, o := readCase(t, a)
		p, err := Resolve(h, o)
		if err != nil {
			continue
		}
		st, err := Load(h, o)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		e := st.Effective()
		if e.Enforce != string(p.Enforce) || st.Name() != p.Profile {
			t.Errorf("%s: enforce %s and name %s, the plan has %s and %s", file, e.Enforce, st.Name(), p.Enforce, p.Profile)
		}
		if p.Enforce == plan.EnforceOff {
			continue
		}
		own := slices.ContainsFunc(p.Spaces, func(s plan.Space) bool { return s.Kind == plan.SpaceNet })
		if own != (e.Network != "host") || own != slices.Contains(e.Walls, "network") {
			t.Errorf("%s: network %s, walls %v", file, e.Network, e.Walls)
		}
		if (p.Mounts[0].Op == plan.OpHostRoot) != (e.View == "host") {
			t.Errorf("%s: view %s", file, e.View)
		}
		for _, v := range st.Values() {
			if v.Default || v.Origin.File == "" {
				continue
			}
			// What origins a plan names, a layer has.
			if !slices.ContainsFunc(st.Layers(), func(l Layer) bool { return l.File.Source == v.Origin.File }) {
				t.Errorf("%s: %s comes from %s, which is no layer", file, v.Key.Name, v.Origin.File)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	load := func(text string) *Stack {
		t.Helper()
		st, err := LoadFile("p.toml", []byte("version = 1\n"+text), Host{})
		if err != nil {
			t.Fatal(plan.Explain(err))
		}
		return st
	}
	for _, test := range []struct{ a, b, want string }{
		{"", "", ""},
		{"name = \"a\"\ndescription = \"a\"", "name = \"b\"", ""},
		{"", "[filesystem]\nview = \"host\"", "wider filesystem.view"},
		{"[filesystem]\nview = \"host\"", "", "narrower filesystem.view"},
		{"", "[filesystem]\ntmp = \"memory\"", "other filesystem.tmp"},
		{"enforce = \"fs\"", "enforce = \"fs+net\"", "narrower enforce; narrower network.mode"},
		{"[filesystem]\nhide = [\"@keys\"]", "[filesystem]\nhide = [\"~/.ssh\"]", "wider filesystem.hide ~/.gnupg"},
		{"[filesystem]\nhide = [\"a\", \"./b\", \"$home/c\"]", "[filesystem]\nhide = [\"$workspace/a\", \"b\", \"~/c\"]", ""},
		{"[filesystem]\nprotect = [\"@editors\"]", "[filesystem]\nprotect = [\".vscode\", \".idea\"]", "wider filesystem.protect $workspace/.zed"},
		{"[filesystem]\nprotect = [\".idea\"]", "[filesystem]\nprotect = [\"@editors\"]", "wider filesystem.protect \"$workspace/.idea while absent\""},
		{"", "[filesystem]\nprotect = []", "wider filesystem.protect @git"},
		{"", "[filesystem]\ngrant = [{ path = \"~/x\", access = \"read\" }]", "wider filesystem.grant ~/x"},
		{"[filesystem]\ngrant = [{ path = \"~/x\", access = \"write\" }]", "[filesystem]\ngrant = [{ path = \"~/x\", access = \"read\" }]", "narrower filesystem.grant ~/x"},
		{"", "[filesystem]\ngrant = [{ path = \"vendor\", access = \"read\" }]", "narrower filesystem.grant $workspace/vendor"},
		{"[filesystem]\ngrant = [{ path = \"vendor\", access = \"read\" }]", "", "wider filesystem.grant $workspace/vendor"},
		// By what a grant does where it stands.
		{"[filesystem]\nhide = [\"secrets\"]", "[filesystem]\nhide = [\"secrets\"]\ngrant = [{ path = \"secrets/x\", access = \"read\" }]", "wider filesystem.grant $workspace/secrets/x"},
		{"[filesystem]\nhide = [\"se*\"]", "[filesystem]\nhide = [\"se*\"]\ngrant = [{ path = \"secrets/x\", access = \"read\" }]", "wider filesystem.grant $workspace/secrets/x"},
		{"[filesystem]\nhide = [\"**/keys\"]", "[filesystem]\nhide = [\"**/keys\"]\ngrant = [{ path = \"a/keys/x\", access = \"read\" }]", "wider filesystem.grant $workspace/a/keys/x"},
		{"[filesystem]\nhide = [\"**/keys\"]", "[filesystem]\nhide = [\"**/keys\"]\ngrant = [{ path = \"a/x\", access = \"read\" }]", "narrower filesystem.grant $workspace/a/x"},
		{"[filesystem]\nprotect = [\"ci\"]", "[filesystem]\nprotect = [\"ci\"]\ngrant = [{ path = \"ci/x\", access = \"write\" }]", "wider filesystem.grant $workspace/ci/x"},
		{"[filesystem]\nprotect = [\"ci\"]", "[filesystem]\nprotect = [\"ci\"]\ngrant = [{ path = \"ci/x\", access = \"read\" }]", "other filesystem.grant $workspace/ci/x"},
		{"[filesystem]\nhide = [\"secrets\"]\ngrant = [{ path = \"secrets/x\", access = \"read\" }]", "[filesystem]\nhide = [\"secrets\"]", "narrower filesystem.grant $workspace/secrets/x"},
		{"[filesystem]\nprotect = [\"ci\"]\ngrant = [{ path = \"ci/x\", access = \"write\" }]", "[filesystem]\nprotect = [\"ci\"]", "narrower filesystem.grant $workspace/ci/x"},
		{"[filesystem]\nworkspace = \"read-only\"", "[filesystem]\nworkspace = \"read-only\"\nprotect = [\"@git\", \"build/x\"]\ngrant = [{ path = \"build\", access = \"write\" }]",
			"wider filesystem.grant $workspace/build; narrower filesystem.protect $workspace/build/x; narrower filesystem.protect \"$workspace/build/x while absent\""},
		// What the other side's view shows anyway.
		{"[filesystem]\ngrant = [{ path = \"~/x\", access = \"read\" }]", "[filesystem]\nhome = \"read-only\"", "wider filesystem.home"},
		{"[filesystem]\nhome = \"read-only\"", "[filesystem]\ngrant = [{ path = \"~/x\", access = \"read\" }]", "narrower filesystem.home; other filesystem.grant ~/x"},
		{"[filesystem]\ngrant = [{ path = \"/srv/x\", access = \"write\" }]", "[filesystem]\nview = \"host\"", "wider filesystem.view; narrower filesystem.grant /srv/x"},
		{"[filesystem]\ngrant = [{ path = \"/srv/x\", access = \"read\" }]", "[filesystem]\nview = \"host\"", "wider filesystem.view"},
		{"[filesystem]\nview = \"host\"\ngrant = [{ path = \"/run/x\", access = \"read\" }]", "[filesystem]\nview = \"host\"", "narrower filesystem.grant /run/x"},
		{"[filesystem]\nview = \"host\"", "[filesystem]\nview = \"host\"\ngrant = [{ path = \"/run/x\", access = \"read\" }]", "wider filesystem.grant /run/x"},
		{"[filesystem]\nview = \"host\"", "[filesystem]\nview = \"host\"\ngrant = [{ path = \"/var/lib/s.sock\", access = \"read\" }]", "other filesystem.grant /var/lib/s.sock"},
		{"", "[network]\nallow = [\"a.org\"]", "wider network.allow a.org"},
		{"[network]\nallow = [\"*.a.org\"]", "[network]\nallow = [\"b.a.org:443\"]", "narrower network.allow *.a.org"},
		{"[network]\nmode = \"host\"", "[network]\nmode = \"allow\"\nallow = [\"a.org\"]", "narrower network.mode"},
		{"[network]\ndeny = [\"a.org\"]", "[network]\ndeny = [\"a.org:443\"]", "wider network.deny a.org"},
		{"[environment]\nset = { A = \"1\" }", "[environment]\nset = { A = \"2\" }", "wider environment.set A; other environment.set A"},
		{"[environment]\nscrub = \"deny-secrets\"", "[environment]\nscrub = \"strict\"", "narrower environment.scrub"},
		{"[environment]\nscrub = \"deny-secrets\"\nallow = [\"X\"]", "[environment]\nscrub = \"strict\"\nallow = [\"X\"]", "other environment.scrub"},
		{"", "[limits]\ntime = \"10m\"\nmemory = 0\nopen-files = 100", "narrower limits.time; narrower limits.open-files"},
		{"[limits]\ntime = \"10m\"", "[limits]\ntime = 0", "wider limits.time"},
		{"[limits]\noutput = \"10 chars\"", "[limits]\noutput = \"10KiB\"", "other limits.output"},
		{"[process]\nseccomp = \"strict\"", "[process]\nseccomp = \"./f.json\"", "other process.seccomp"},
	} {
		var got []string
		for _, c := range Compare(load(test.a), load(test.b)) {
			s := string(c.Kind) + " " + c.Key
			if c.Item != "" {
				s += " " + quote(c.Item)
			}
			got = append(got, s)
			if c.String() == "" {
				t.Error("no text")
			}
		}
		text := strings.Join(got, "; ")
		if strings.HasPrefix(test.want, "wider filesystem.hide ~/.gnupg") || strings.Contains(test.want, ".zed") || strings.Contains(test.want, "while absent") {
			if !strings.Contains(text, test.want) {
				t.Errorf("%q to %q: %s, want %s among them", test.a, test.b, text, test.want)
			}
		} else if text != test.want {
			t.Errorf("%q to %q: %s, want %s", test.a, test.b, text, test.want)
		}
	}
}

// A file that is only checked needs nothing of the host.
func TestLoadFileWithoutHost(t *testing.T) {
	for _, name := range Builtins() {
		data, err := Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		st, err := LoadFile("built-in:"+name, data, Host{})
		if err != nil {
			t.Fatalf("%s: %s", name, plan.Explain(err))
		}
		if st.Name() != name || len(st.Values()) == 0 || !reflect.DeepEqual(st.Effective(), st.Effective()) {
			t.Errorf("%s is called %s", name, st.Name())
		}
		if len(Compare(st, st)) != 0 {
			t.Errorf("%s differs from itself", name)
		}
	}
	if _, err := LoadFile("x/p.toml", []byte("version = 1\nextends = \"./q.toml\"\n"), Host{}); err == nil || !strings.Contains(plan.Explain(err), "x/p.toml:2:1") {
		t.Errorf("%v", err)
	}
	st, err := LoadProject("p.toml", []byte("version = 1\n[network]\nmode = \"host\"\n"), "gate", Host{})
	if err != nil || len(st.Widened()) != 1 || st.Trusted() || st.Err() == nil {
		t.Errorf("%v, %v", st, err)
	}
}

// A blockingFS fails the test when something other than a regular file is opened.
type blockingFS struct {
	fstest.MapFS
	t *testing.T
}

func (b blockingFS) Open(name string) (fs.File, error) {
	if f := b.MapFS[name]; f != nil && f.Mode&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeSocket) != 0 {
		b.t.Errorf("%s is opened: that may wait for ever", name)
	}
	return b.MapFS.Open(name)
}

// Whatever stands where a profile is expected: one located message, no hang and
// no partial result.
func TestBadProfileFiles(t *testing.T) {
	m := parseTree(t, `
d /srv/dir.toml
p /srv/fifo.toml
s /srv/socket.toml
c /srv/device.toml
l /srv/loop.toml loop.toml
l /srv/dangling.toml none.toml
l /srv/to-fifo.toml fifo.toml
d /srv/closed
f /srv/closed/p.toml
`)
	for n, text := range map[string]string{
		"crlf": "version = 1\r\nenforce = \"fs+net\"\r\n[filesystem]\r\nview = \"hots\"\r\n", "bom": "\xef\xbb\xbfversion = 1\n", "tabs": "version\t=\t1\n\tenforse\t=\t\"fs\"\n",
		"long": "version = 1\nname = \"" + strings.Repeat("x", 900<<10) + "\"\nview = 1\n", "huge": strings.Repeat("# comment\n", 200<<10), "nul": "version = 1\nname = \"a\x00b\"\n",
		"utf8": "version = 1\nname = \"\xc3(\"\n", "deep": "version = 1\nx = " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + "\n",
		"deeptable": "version = 1\n[" + strings.Repeat("a.", 5000) + "a]\n", "empty": "", "binary": "\x7fELF\x02\x01\x01\x00", "manykeys": "version = 1\n" + manyKeys(20000),
		"tilde": "version = 1\n[filesystem]\nhide = [\"~root/.ssh\"]\nprotect = [\"~other\"]\ngrant = [{ path = \"~x/y\", access = \"read\" }]\n",
	} {
		putFile(m, "/srv/"+n+".toml", text)
	}
	h := goldenHost{}.host(denyFS{m, []string{"/srv/closed"}})
	for name, want := range map[string]string{
		"dir": "is a directory", "fifo": "not a regular file", "socket": "not a regular file", "device": "not a regular file", "loop": "too many levels", "dangling": "no such file",
		"to-fifo": "not a regular file", "closed/p": "permission denied", "none": "no such file", "dir.toml/x": "no such file",
		"crlf": "/srv/crlf.toml:4:8: view = \"hots\"", "bom": "byte order mark", "tabs": "/srv/tabs.toml:2:2: enforse", "long": ":3:1: view", "huge": "too large", "nul": "NUL",
		"utf8": "not valid UTF-8", "deep": "nested more than", "deeptable": "unknown key", "empty": "does not say its version", "binary": ":1:", "manykeys": "unknown key",
		"tilde": "the home of another user",
	} {
		o := Options{Profile: "/srv/" + name + ".toml", Command: []string{"true"}}
		p, err := Resolve(h, o)
		if err == nil || !reflect.DeepEqual(p, plan.Plan{}) {
			t.Errorf("%s: %v, a plan %v", name, err, !reflect.DeepEqual(p, plan.Plan{}))
			continue
		}
		text := plan.Explain(err)
		if !strings.Contains(text, want) || !strings.Contains(text, "  at ") || strings.Contains(text, "wall bug") {
			t.Errorf("%s: %.400s, want %s", name, text, want)
		}
		if name == "tilde" && strings.Count(text, "error:") != 3 {
			t.Errorf("%s: not all problems in one go: %s", name, text)
		}
	}
	// The same as installed and as project layers, through a tree that notices a blocking open.
	for _, at := range []string{"/etc/wall/gate.toml", "/home/u/.config/wall/gate.toml", "/home/u/proj/.wall/gate.toml"} {
		for _, kind := range []string{"d", "p", "s", "c", "l"} {
			m := parseTree(t, kind+" "+at+" gate.toml")
			h := goldenHost{}.host(blockingFS{m, t})
			_, err := Resolve(h, Options{Default: "gate", Command: []string{"true"}})
			if err == nil || !strings.Contains(plan.Explain(err), at) {
				t.Errorf("%s as %s: %v", at, kind, err)
			}
		}
		m := parseTree(t, "")
		putFile(m, at, "version = 1\n")
		h := goldenHost{}.host(denyFS{m, []string{filepath.Dir(at)}})
		if _, err := Resolve(h, Options{Default: "gate", Command: []string{"true"}}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("unreadable %s: %v", at, err)
		}
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d = 1\n", i)
	}
	return b.String()
}

// A pattern in a project layer that matches nothing hides nothing; one that has
// to look at 100,000 files is refused in bounded time.
func TestProjectGlobs(t *testing.T) {
	m := parseTree(t, "")
	putFile(m, "/home/u/proj/.wall/gate.toml", "version = 1\n[filesystem]\nhide = [\"**/*.nothing\", \"none/*\"]\n")
	o := Options{Default: "gate", Command: []string{"true"}}
	if _, err := Resolve(goldenHost{}.host(m), o); err != nil {
		t.Error(err)
	}
	for i := range 100000 {
		m[fmt.Sprintf("home/u/proj/many/%d", i)] = &fstest.MapFile{}
	}
	if text := explainResolve(t, goldenHost{}.host(m), o); !strings.Contains(text, "gate.toml:3:9") || !strings.Contains(text, "more than") {
		t.Error(text)
	}
}

// The trust store reads back what was written; anything else names the line.
func TestTrustStore(t *testing.T) {
	d := Digest([]byte("x"))
	all := []TrustEntry{{d, "/a b/\n\"c"}, {d, "/z"}, {Digest(nil), "/a"}, {d, "/z"}}
	text := FormatTrust(all)
	got, err := ParseTrust(text)
	if err != nil || len(got) != 3 || got[2] != (TrustEntry{d, "/z"}) || string(FormatTrust(got)) != string(text) {
		t.Errorf("%v, %v\n%s", got, err, text)
	}
	for _, bad := range []string{"x", d, d + " /a", d + " \"a\"", d[1:] + " \"/a\"", strings.ToUpper(d) + " \"/a\"", d + "  \"/a\"", "\n", d + " \"/a\" x"} {
		if _, err := ParseTrust([]byte(string(text) + bad + "\n")); err == nil || !strings.Contains(err.Error(), "line 4") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, err := ParseTrust(nil); err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	h := Host{AccountHome: "/home/u", Environ: []string{"XDG_STATE_HOME=/s/"}, FS: parseTree(t, "d /home/u/proj/s")}
	if f := TrustFile(h, "/home/u/proj"); f != "/s/wall/trust" {
		t.Error(f)
	}
	for _, x := range []string{"", "s", "/home/u/proj/s", "/home/u/proj"} {
		h.Environ = []string{"XDG_STATE_HOME=" + x}
		if f := TrustFile(h, "/home/u/proj"); f != "/home/u/.local/state/wall/trust" {
			t.Errorf("%s: %s", x, f)
		}
	}
	if f := TrustFile(Host{}, ""); f != "" {
		t.Error(f)
	}
}

// BenchmarkCheck200 loads 200 files as a check in CI does: parse, extend, merge, describe.
func BenchmarkCheck200(b *testing.B) {
	var texts [][]byte
	for i := range 200 {
		name := Builtins()[i%len(Builtins())]
		data, err := Builtin(name)
		if err != nil {
			b.Fatal(err)
		}
		texts = append(texts, []byte(strings.Replace(string(data), "name = \""+name, "name = \"p", 1)))
	}
	fsys := parseTree(b, "")
	for b.Loop() {
		for i, text := range texts {
			st, err := LoadFile(fmt.Sprintf("/srv/%d.toml", i), text, Host{FS: fsys, Cwd: "/srv", AccountHome: "/home/u"})
			if err != nil {
				b.Fatal(err)
			}
			st.Values()
			st.Effective()
		}
	}
}
