package lint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/net/publicsuffix"

	"github.com/wallsandbox/wall/profile"
)

// TestPublicSuffixes compares the short list with the whole one.
func TestPublicSuffixes(t *testing.T) {
	whole := func(host string) bool {
		suffix, icann := publicsuffix.PublicSuffix(host)
		return suffix == host && (icann || strings.Contains(host, "."))
	}
	// What gives names to everybody without being in the whole list.
	extra := []string{
		"run.app", "cloudapp.azure.com", "elb.amazonaws.com", "awsapprunner.com", "on.aws", "railway.app", "surge.sh", "glitch.me", "loca.lt", "serveo.net",
		"digitaloceanspaces.com", "backblazeb2.com", "weebly.com", "neocities.org", "stackblitz.io", "webcontainer.io", "wordpress.com", "usercontent.goog",
	}
	for _, s := range sharedSuffixes {
		if whole(s) == slices.Contains(extra, s) {
			t.Errorf("%s: the whole list says %v, and the test the same", s, whole(s))
		}
	}
	for host, want := range map[string]bool{
		"com": true, "de": true, "dev": true, "co.uk": true, "com.au": true, "or.jp": true, "gov.uk": true, "org.nz": true, "com.br": true, "co.in": true, "ac.jp": true,
		"github.io": true, "pages.dev": true, "workers.dev": true, "vercel.app": true, "s3.eu-west-1.amazonaws.com": true, "fra1.digitaloceanspaces.com": true,
		"example.com": false, "example.co.uk": false, "golang.org": false, "crates.io": false, "alice.github.io": false, "x.pages.dev": false, "anthropic.com": false,
		"npmjs.org": false, "pypi.org": false, "bucket.s3.eu-west-1.amazonaws.com": false, "": false,
	} {
		if got := publicSuffix(host); got != want {
			t.Errorf("publicSuffix(%q) = %v", host, got)
		}
	}
	// Ordinary registered names, in which a short list must not see a suffix.
	for _, tld := range []string{"com", "org", "net", "io", "dev", "de", "fr", "jp", "uk", "co.uk", "com.au"} {
		if host := "some-owner." + tld; publicSuffix(host) != whole(host) {
			t.Errorf("publicSuffix(%q) = %v, the whole list says %v", host, publicSuffix(host), whole(host))
		}
	}
}

func TestHosts(t *testing.T) {
	for in, want := range map[string][2]string{
		"Example.COM": {"example.com", ""}, "example.com.:443": {"example.com", "443"}, "[2001:db8::1]:443": {"2001:db8::1", "443"}, "2001:db8::1": {"2001:db8::1", ""},
		"*.x.org:*": {"*.x.org", "*"}, "": {"", ""}, "[::1]": {"::1", ""}, "10.0.0.0/8": {"10.0.0.0/8", ""},
	} {
		if h, p := hostOf(in); h != want[0] || p != want[1] {
			t.Errorf("hostOf(%q) = %q, %q", in, h, p)
		}
	}
	for host, want := range map[string]bool{
		"gist.github.com": true, "*.github.com": true, "github.com": false, "api.github.com": false, "pastebin.com": true, "notpastebin.com": false, "*.s3.amazonaws.com": true,
		"mybucket.s3.amazonaws.com": true, "s3.eu-west-1.amazonaws.com": true, "b.s3-us-west-2.amazonaws.com": true, "sts.amazonaws.com": false, "storage.googleapis.com": true,
		"*.googleapis.com": true, "x.ngrok.io": true, "proxy.golang.org": false, "api.anthropic.com": false, "*.discord.com": true, "static.crates.io": false,
	} {
		if _, got := uploadHost(host); got != want {
			t.Errorf("uploadHost(%q) = %v", host, got)
		}
	}
	for host, want := range map[string]bool{
		"localhost": true, "x.localhost": true, "127.0.0.1": true, "127.8.8.8": true, "0.0.0.0": true, "::1": true, "10.1.2.3": true, "192.168.0.0/16": true, "100.64.0.1": true,
		"169.254.169.254": true, "169.254.1.1": true, "fe80::1": true, "fd00::1": true, "224.0.0.1": true, "metadata.google.internal": true, "*.internal": true, "printer.local": true,
		"8.8.8.8": false, "2001:4860:4860::8888": false, "example.com": false, "internal.example.com": false,
	} {
		if got := inward(host) != ""; got != want {
			t.Errorf("inward(%q) = %q", host, inward(host))
		}
	}
}

func TestParseTarget(t *testing.T) {
	for in, abi := range map[string]int{
		"kernel=5.10": 0, "kernel=5.13": 1, "kernel=5.15": 1, "kernel=5.19": 2, "kernel=6.1.55": 2, "kernel=6.2": 3, "kernel=6.8": 4, "kernel=6.10": 5, "kernel=6.12": 6, "kernel=7.1": 7,
		"abi=3": 3, "kernel=6.12,abi=0": 0, "no-landlock": 0, " no-userns , no-seccomp": -1, "no-cgroups,no-nftables": -1, "abi=0,no-landlock": 0,
	} {
		got, err := ParseTarget(in)
		if err != nil || got.abi != abi {
			t.Errorf("ParseTarget(%q): ABI %d, %v; want %d", in, got.abi, err, abi)
		}
	}
	for _, in := range []string{"", ",", "kernel", "kernel=", "kernel=5", "kernel=x.1", "kernel=0.1", "kernel=-5.1", "abi", "abi=", "abi=x", "abi=-1", "abi=999", "no-", "no-net", "userns", "no-userns=1", "abi=1,abi=2", "no-seccomp,no-seccomp", "abi=2,no-landlock"} {
		if got, err := ParseTarget(in); err == nil {
			t.Errorf("ParseTarget(%q) = %+v", in, got)
		}
	}
}

// TestTarget: which promise is lost on which host, for which profile.
func TestTarget(t *testing.T) {
	const host, allow = "[network]\nmode = \"host\"", "[network]\nmode = \"allow\"\nallow = [\"proxy.golang.org\"]"
	for _, tt := range []struct {
		target, lines string
		want          int
	}{
		{"kernel=6.18", host, 0},
		{"no-userns", "", 1},
		{"kernel=5.10", "", 2},
		{"kernel=5.10,no-userns", "", 2},
		{"abi=0", "", 1},
		{"abi=0", "if-unavailable = \"degrade\"\nrequire = [\"landlock\"]", 1},
		{"abi=5", host, 1},
		{"abi=6", host, 0},
		{"abi=5", "", 0},
		{"abi=5", "enforce = \"fs\"", 1},
		{"abi=3", allow, 0},
		{"abi=4", allow, 0},
		{"abi=3", host + "\nports = [443]", 2},
		{"abi=4,no-nftables", host + "\nports = [443]", 1},
		{"no-nftables", allow, 1},
		{"no-nftables", host, 0},
		{"no-seccomp", "", 1},
		{"no-seccomp", "require = [\"syscalls\"]", 1},
		{"no-cgroups", "[limits]\nmemory = \"1GiB\"\nprocesses = 9", 2},
		{"no-cgroups", "[limits]\nopen-files = 99", 0},
		{"no-userns,abi=0,no-seccomp", "enforce = \"off\"", 0},
		{"no-seccomp", "extends = \"gate\"", 1},
	} {
		fs := New(options(t, tt.target)).Check(source(Rule{}, "p.toml", example(tt.lines)))
		n := 0
		for _, f := range fs {
			if f.Code == "W030" {
				n++
				if !strings.Contains(f.Message, "--for "+tt.target) {
					t.Errorf("%s: the message does not name the host: %s", tt.target, f.Message)
				}
			}
		}
		if n != tt.want {
			t.Errorf("%s with %q: %d findings, want %d: %q", tt.target, tt.lines, n, tt.want, codes(fs))
		}
	}
}

// TestNamespacesCannotBeGivenUp: no fix may offer to degrade what the box is made of.
func TestNamespacesCannotBeGivenUp(t *testing.T) {
	for target, fix := range map[string]string{"no-userns": "allow them there", "kernel=5.10": "use a newer kernel there"} {
		for _, lines := range []string{"", "if-unavailable = \"degrade\""} {
			n := 0
			for _, f := range New(options(t, target)).Check(source(Rule{}, "p.toml", example(lines))) {
				if f.Code != "W030" || !strings.Contains(f.Message, "the box cannot be made") {
					continue
				}
				n++
				if strings.Contains(f.Message, "degrades") || strings.Contains(f.Fix, "what may be lost") || !strings.HasPrefix(f.Fix, fix) || f.Why != "there the profile refuses to run" {
					t.Errorf("%s with %q: %s; why: %s; fix: %s", target, lines, f.Message, f.Why, f.Fix)
				}
			}
			if n != 1 {
				t.Errorf("%s with %q: %d findings", target, lines, n)
			}
		}
	}
}

func TestLooksSecret(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		want        bool
	}{
		{"API_TOKEN", "abcdefgh", true},
		{"API_TOKEN", "", false},
		{"API_TOKEN", "short", false},
		{"API_TOKEN", "dummy-value", false},
		{"SSL_KEY", "/etc/ssl/key.pem", false},
		{"MAX_TOKENS", "100000", false},
		{"CI", "true", false},
		{"GOFLAGS", "-mod=vendor -trimpath", false},
		{"X", "ghp_" + strings.Repeat("a1", 18), true},
		{"X", "sk-" + strings.Repeat("a1", 10), true},
		{"X", "sk-short", false},
		{"X", "AKIA" + strings.Repeat("A1", 8), true},
		{"X", "-----BEGIN OPENSSH PRIVATE KEY-----", true},
		{"X", "eyJhbGciOi.eyJzdWIi.sig", true},
		{"X", "postgres://user:pw@db/x", true},
		{"X", "postgres://user@db/x", false},
		{"X", "https://example.com/a:b@c", false},
		{"X", "0123456789abcdef0123456789abcdef", true},
		{"X", "Abc1Def2Ghi3Jkl4Mno5Pqr6Stu7Vwx8Yz90", true},
		{"X", "this-is-a-long-value-with-words-in-it-and-hyphens", false},
		{"X", strings.Repeat("a", 64), false},
		{"RUSTFLAGS", "-C target-cpu=native -C link-arg=-fuse-ld=lld", false},
	} {
		why := looksSecret(tt.name, tt.value)
		if (why != "") != tt.want {
			t.Errorf("looksSecret(%s, %q) = %q", tt.name, tt.value, why)
		}
		if tt.value != "" && strings.Contains(why, tt.value) {
			t.Errorf("%s: the answer holds the value", tt.name)
		}
	}
}

func TestComments(t *testing.T) {
	const text = "a = 1 # one\r\n# two\nb = \"# no\" # three\nc = '# \\' # four\nd = \"\"\"\n# no \\\"\"\"\n# no\"\"\"\" # five\ne = '''\n# no\n''' # six\nf = \"\\\"# no\" #seven\n  # eight"
	want := []comment{
		{1, 7, "# one", false}, {2, 1, "# two", true}, {3, 12, "# three", false}, {4, 11, "# four", false},
		{7, 10, "# five", false}, {10, 5, "# six", false}, {11, 14, "#seven", false}, {12, 3, "# eight", true},
	}
	if got := comments(text); !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestSuppressions(t *testing.T) {
	for _, tt := range []struct {
		line string
		want string // codes that are left
	}{
		{"nested-sandboxes = true # wall:allow W038 a browser", ""},
		{"nested-sandboxes = true #wall:allow W038 a browser", ""},
		{"# wall:allow W038 a browser\nnested-sandboxes = true", ""},
		{"# wall:allow W038 a browser\n\nnested-sandboxes = true", "W009 W038"},
		{"nested-sandboxes = true\n# wall:allow W038 a browser", "W038 W009"},
		{"nested-sandboxes = true # wall:allow W038", "W038 W008"},
		{"nested-sandboxes = true # wall:allow", "W038 W008"},
		{"nested-sandboxes = true # wall:allow  ", "W038 W008"},
		{"nested-sandboxes = true # wall:allowed W038 x", "W038 W008"},
		{"nested-sandboxes = true # see wall:allow W038 x", "W038"},
		{"nested-sandboxes = true # wall:allow W0038 x", "W038 W008"},
		{"nested-sandboxes = true # wall:allow nested-sandboxes x", "W038 W008"},
		{"nested-sandboxes = true # wall:allow W038,W049 both", ""},
		{"nested-sandboxes = true # wall:allow W038, W049 both", "W038 W008"},
		{"nested-sandboxes = true # wall:allow W049 another", "W038 W009"},
		{"nested-sandboxes = true # wall:allow W008 x", "W038 W008"},
		{"nested-sandboxes = \"# wall:allow W003 x\"", "W003"},
		{"nested-sandboxes = 1 # wall:allow W003 x", "W003 W008"},
	} {
		got := codes(New(options(t, "")).Check(source(Rule{}, "p.toml", example("[process]\n"+tt.line))))
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%q leaves %q, want %q", tt.line, got, tt.want)
		}
	}
	// A comment that stands alone accepts nothing on its own line's neighbours above.
	got := New(options(t, "")).Check(source(Rule{}, "p.toml", example("[process]\nnested-sandboxes = true # wall:allow W038 a\x1b[31m browser\u202e")))
	if len(got) != 1 || got[0].Code != "W001" { // TOML has no such characters in comments
		t.Errorf("control characters in a reason: %+v", got)
	}
}

// TestBadInput: whatever a file holds, it gives findings with a place in it, and
// no panic.
func TestBadInput(t *testing.T) {
	long := strings.Repeat("x", 1<<20-100)
	for name, tt := range map[string]struct {
		text, want string
	}{
		"empty":       {"", "1:1 W003"},
		"CRLF":        {"version = 1\r\ndescription = \"x\"\r\n[process]\r\nnested-sandboxes = true\r\n", "4:1 W038"},
		"BOM":         {"\xef\xbb\xbfversion = 1\n", "1:1 W001"},
		"NUL":         {"version = 1\nname = \"a\x00b\"\n", "2:10 W001"},
		"not UTF-8":   {"version = 1\nname = \"a\xffb\"\n", "2:10 W001"},
		"tabs":        {"version = 1\ndescription = \"x\"\n[process]\n\tnested-sandboxes\t=\ttrue\n", "4:2 W038"},
		"long line":   {"version = 1\ndescription = \"" + long + "\"\nenforce = \"off\"\n", "3:1 W035"},
		"long value":  {"version = 1\ndescription = \"x\"\n[filesystem]\nhide = [\"" + strings.Repeat("x", 5000) + "\"]\n", "4:9 W003"},
		"too large":   {"version = 1\n# " + long + long, "1:1 W001"},
		"deep":        {"version = 1\nname = " + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "\n", "2:1 W001 2:1 W003"},
		"no newline":  {"version = 1\ndescription = \"x\"\nenforce = \"off\"", "3:1 W035"},
		"many faults": {"version = 2\nnmae = \"x\"\n[filesystem]\nview = \"all\"\nhide = 1\n", "1:11 W003 2:1 W002 4:8 W003 5:8 W003"},
		"climbing":    {"version = 1\ndescription = \"x\"\n[filesystem]\nhide = [\"~bob/x\", \"$nowhere/x\"]\n", "4:9 W003 4:19 W003"},
		"two globs":   {"version = 1\ndescription = \"x\"\n[filesystem]\nhide = [\"a/**/b\", \"../*/x\"]\n", "4:9 W003 4:19 W003"},
	} {
		var got []string
		for _, f := range New(options(t, "")).Check(Source{Name: "p.toml", Path: "/p.toml", Data: []byte(tt.text)}) {
			got = append(got, fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Code))
			if len(f.Source) > 500 || len(f.Message) > 500 || len(f.Text) > 500 || f.EndColumn <= f.Column {
				t.Errorf("%s: a finding is too long or has no width: %.200v", name, f)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

func TestReadFile(t *testing.T) {
	tree := fstest.MapFS{
		"ok.toml": {Data: []byte("x")}, "dir.toml/x": {}, "fifo.toml": {Mode: fs.ModeNamedPipe},
		"big.toml": {Data: make([]byte, profile.MaxFileSize+1)}, "max.toml": {Data: make([]byte, profile.MaxFileSize)},
	}
	for name, want := range map[string]error{
		"/ok.toml": nil, "/max.toml": nil, "/dir.toml": errIsDir, "/": errIsDir, "/fifo.toml": errNotRegular, "/big.toml": errTooLarge, "/none.toml": fs.ErrNotExist,
	} {
		data, err := ReadFile(tree, name)
		if !errors.Is(err, want) || (err == nil) != (data != nil) {
			t.Errorf("ReadFile(%s) = %d bytes, %v; want %v", name, len(data), err, want)
		}
	}
}

// TestLayers: rules look through everything that a profile is laid over.
func TestLayers(t *testing.T) {
	tree := fstest.MapFS{
		"etc/wall/site.toml":                    {Data: []byte("version = 1\n[network]\nmode = \"host\"\n")},
		"home/alice/.config/wall/site.toml":     {Data: []byte("version = 1\n[filesystem]\nview = \"host\"\nhome = \"read-only\"\n")},
		"home/alice/.config/wall/loop.toml":     {Data: []byte("version = 1\nextends = \"./loop.toml\"\n")},
		"home/alice/.config/wall/broken.toml":   {Data: []byte("version = 1\nnmae = \"x\"\n")},
		"home/alice/.config/wall/onbroken.toml": {Data: []byte("version = 1\ndescription = \"x\"\nextends = \"./broken.toml\"\n")},
		"home/alice/.config/wall/gone.toml":     {Data: []byte("version = 1\ndescription = \"x\"\nextends = \"./none.toml\"\n")},
		"src/.wall/site.toml":                   {Data: []byte("version = 1\n[filesystem]\nworkspace = \"read-write\"\n[environment]\npass = [\"X\"]\n")},
		"p/host.toml":                           {Data: []byte("version = 1\ndescription = \"x\"\n[network]\nmode = \"host\"\n")},
		"p/grants.toml":                         {Data: []byte("version = 1\ndescription = \"x\"\nextends = \"./host.toml\"\n[filesystem]\ngrant = [{ path = \"/srv/x\", access = \"read\", why = \"x\" }, { path = \"~/.aws\", access = \"read\", why = \"x\", optional = true }]\n")},
		"p/fs.toml":                             {Data: []byte("version = 1\ndescription = \"x\"\nenforce = \"fs\"\n[filesystem]\nview = \"host\"\n")},
		"src/.wall/agent.toml":                  {Data: []byte("version = 1\ndescription = \"x\"\n[filesystem]\nhide = []\n")},
		"src/.wall/gate.toml":                   {Data: []byte("version = 1\nextends = \"agent\"\n")},
		"src/.wall/other.toml":                  {Data: []byte("version = 1\n[network]\nmode = \"host\"\n")},
		"home/alice/.wall/gate.toml":            {Data: []byte("version = 1\n[filesystem]\nhide = [\"x\"]\n")},
	}
	for name := range tree { // profiles of the machine and the user belong to them
		for p := name; p != "."; p = path.Dir(p) {
			if tree[p] == nil {
				tree[p] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
			}
			tree[p].Sys = &struct{ Uid uint32 }{1000}
		}
	}
	tree["etc/wall"].Sys, tree["etc/wall/site.toml"].Sys = &struct{ Uid uint32 }{}, &struct{ Uid uint32 }{}
	tree["home/alice/.config/wall/theirs.toml"] = &fstest.MapFile{Data: []byte("version = 1\ndescription = \"x\"\n"), Sys: &struct{ Uid uint32 }{1001}}
	tree["src/.wall/shell.toml"] = &fstest.MapFile{Data: []byte("../../etc/wall/site.toml"), Mode: fs.ModeSymlink}
	o := options(t, "")
	o.Host.FS, o.Host.UID = tree, 1000
	o.Config = "/home/alice/.config/wall"
	c := New(o)
	for file, want := range map[string]string{
		"/home/alice/.config/wall/site.toml":     "W044 W043 W020", // the network is the machine's, what is readable the user's
		"/etc/wall/site.toml":                    "W044",
		"/home/alice/.config/wall/loop.toml":     "W005 W044",
		"/home/alice/.config/wall/onbroken.toml": "W005",
		"/home/alice/.config/wall/gone.toml":     "W005",
		"/src/.wall/site.toml":                   "W044 W053 W007",
		"/src/.wall/gate.toml":                   "W007 W044",
		"/src/.wall/other.toml":                  "W044", // no profile of that name: not a project layer
		"/home/alice/.wall/gate.toml":            "W019 W031 W044",
		"/home/alice/.config/wall/theirs.toml":   "W005",
		"/src/.wall/shell.toml":                  "W006",
		"/src/.wall/agent.toml":                  "W007 W034",
		"/p/host.toml":                           "",
		"/p/grants.toml":                         "W020 W021",
		"/p/fs.toml":                             "W020", // /etc/shadow
	} {
		data, err := ReadFile(tree, file)
		if err != nil {
			t.Fatal(err)
		}
		fs := c.Check(Source{Name: file, Path: file, Data: data})
		got := codes(fs)
		if w := strings.Fields(want); !sameSet(got, w) {
			t.Errorf("%s: got %q, want %q", file, got, w)
			for _, f := range fs {
				t.Logf("  %d:%d %s %s", f.Line, f.Column, f.Code, f.Message)
			}
		}
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// TestHostFacts: rules that look at the host's files.
func TestHostFacts(t *testing.T) {
	o := options(t, "")
	o.Host.FS = fstest.MapFS{
		"src":                      {Mode: fs.ModeDir},
		"srv/repo/.git/config":     {},
		"srv/many/one/.git":        {},
		"srv/plain/x":              {},
		"srv/state":                {},
		"home/alice/tools/x":       {},
		"home/alice/profiles/f.js": {},
	}
	o.Path = []string{"/home/alice/tools", "relative", ""}
	for lines, want := range map[string]string{
		`grant = [{ path = "/srv/repo", access = "write", why = "x" }]`:                "W041",
		`grant = [{ path = "/srv/repo", access = "read", why = "x" }]`:                 "",
		`grant = [{ path = "/srv/many", access = "write", why = "x" }]`:                "W041",
		`grant = [{ path = "/srv/plain", access = "write", why = "x" }]`:               "",
		`grant = [{ path = "/srv/state", access = "write", why = "x" }]`:               "W040",
		`grant = [{ path = "~/tools", access = "write", why = "x", optional = true }]`: "W013",
		`grant = [{ path = "/home/alice/tools", access = "read", why = "x" }]`:         "W029 W050",
		"devices = []\n[process]\nseccomp = \"./f.js\"":                                "",
		"devices = []\n[process]\nseccomp = \"./none.json\"":                           "W037",
		"devices = []\n[process]\nseccomp = \"/srv/plain/\"":                           "W037",
		"devices = []\n[process]\nseccomp = \"/src/filter.json\"":                      "W037",
	} {
		got := codes(New(o).Check(source(Rule{}, "p.toml", example("[filesystem]\n"+lines))))
		if !sameSet(got, strings.Fields(want)) {
			t.Errorf("%s: got %q, want %q", lines, got, want)
		}
	}
}

func FuzzCheck(f *testing.F) {
	for _, r := range table {
		f.Add(example(r.Bad), true)
		f.Add(example(r.Good), false)
	}
	f.Add("version = 1\nname = \"\"\"\n# wall:allow W010 x\n\"\"\" # wall:allow W044 x\n", false)
	f.Fuzz(func(t *testing.T, text string, project bool) {
		s := Source{Name: "p.toml", Path: "/home/alice/p.toml", Data: []byte(text)}
		if project {
			s.Path = "/src/.wall/agent.toml"
		}
		o := options(t, "no-seccomp,abi=2")
		a, b := New(o).Check(s), New(o).Check(s)
		if !slices.Equal(a, b) {
			t.Fatalf("two answers: %v %v", a, b)
		}
		lines := strings.Count(text, "\n") + 1
		for _, x := range a {
			if ruleOf(x.Code) == nil || x.Line < 1 || x.Line > lines || x.Column < 1 || x.EndColumn <= x.Column || x.Message == "" {
				t.Errorf("not a finding: %+v", x)
			}
			if x.Suppressed && (x.Reason == "" || ruleOf(x.Code).Final) {
				t.Errorf("suppressed without a right: %+v", x)
			}
			for _, s := range []string{x.Text, x.Source, x.Message, x.Reason, x.Fix} {
				if strings.ContainsAny(s, "\x1b\n\r\x00\u202e\u2066") {
					t.Errorf("control characters in %q", s)
				}
			}
		}
	})
}

// BenchmarkCheck200 checks 200 profiles that extend the longest built-in one.
func BenchmarkCheck200(b *testing.B) {
	var text strings.Builder
	text.WriteString("version = 1\ndescription = \"x\"\nextends = \"gate\"\n[filesystem]\nhide = [\n")
	for i := range 40 {
		fmt.Fprintf(&text, "  \"~/hidden-%d\",\n", i)
	}
	text.WriteString("]\ngrant = [\n")
	for i := range 20 {
		fmt.Fprintf(&text, "  { path = \"/srv/data-%d\", access = \"write\", why = \"data\", optional = true },\n", i)
	}
	text.WriteString("]\n[environment]\nallow = [\"LC_*\"]\nset = { CI = \"true\" }\n")
	data := []byte(text.String())
	o := options(b, "kernel=6.12")
	b.ReportAllocs()
	for b.Loop() {
		c := New(o)
		for i := range 200 {
			c.Check(Source{Name: "p.toml", Path: fmt.Sprintf("/home/alice/p%d.toml", i), Data: data})
		}
	}
}
