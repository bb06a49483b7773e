package profile

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

// keyCases has a row for every key: how an explicit value is written and what
// it reads as, what an empty value does, and a value of the right TOML type
// that is wrong.
var keyCases = map[string]struct {
	explicit string
	want     any    // Setting.Value
	empty    string // "" when an empty value is an error
	wrong    string // "" when every value of the type is right
}{
	"version":                   {"1", nil, "", "2"},
	"name":                      {`"n"`, nil, `""`, ""},
	"description":               {`"x"`, nil, `""`, ""},
	"extends":                   {`"gate"`, nil, "", `"-x"`},
	"enforce":                   {`"off"`, "off", "", `"on"`},
	"if-unavailable":            {`"degrade"`, "degrade", "", `"skip"`},
	"require":                   {`["landlock"]`, []string{"landlock"}, "[]", `["landlok"]`},
	"filesystem.view":           {`"host"`, "host", "", `"all"`},
	"filesystem.home":           {`"hidden"`, "hidden", "", `"none"`},
	"filesystem.workspace":      {`"read-only"`, "read-only", "", `"ro"`},
	"filesystem.tmp":            {`"memory"`, "memory", "", `"disk"`},
	"filesystem.grant":          {`[{ path = "/x", access = "write", why = "w" }]`, []Grant{{Path: "/x", Access: plan.AccessWrite, Why: "w"}}, "[]", `[{ path = "/x" }]`},
	"filesystem.seed":           {`[{ path = "~/x", why = "w" }]`, []Seed{{Path: "~/x", Why: "w"}}, "[]", `[{ path = "/x" }]`},
	"filesystem.hide":           {`["~/x", "@keys"]`, []string{"~/x", "@keys"}, "[]", `["~user"]`},
	"filesystem.protect":        {`["x"]`, []string{"@git", "x"}, "[]", `["@keys"]`},
	"filesystem.devices":        {`["kvm"]`, []string{"kvm"}, "[]", `[""]`},
	"network.mode":              {`"host"`, "host", "", `"open"`},
	"network.allow":             {`["a.example:80"]`, []HostPattern{{Name: "a.example", Lo: 80, Hi: 80}}, "[]", `["*"]`},
	"network.deny":              {`["*.example"]`, []HostPattern{{Name: "example", Suffix: true}}, "[]", `["a/b"]`},
	"network.loopback":          {`[5432]`, []uint16{5432}, "[]", `[0]`},
	"network.publish":           {`[8080]`, []uint16{8080}, "[]", `[65536]`},
	"network.ports":             {`[443]`, []uint16{443}, "[]", `[0]`},
	"network.proxy-variables":   {"true", true, "", ""},
	"network.check-sni":         {"true", true, "", ""},
	"network.upstream-proxy":    {`"http://proxy.example:3128"`, "http://proxy.example:3128", "", `"https://proxy.example:3128"`},
	"environment.base":          {`"gate"`, "gate", "", `"all"`},
	"environment.scrub":         {`"off"`, "off", "", `"none"`},
	"environment.allow":         {`["A*"]`, []string{"A*"}, "[]", `["A=1"]`},
	"environment.deny":          {`["A"]`, []string{"A"}, "[]", `["A B"]`},
	"environment.set":           {`{ A = "" }`, []string{"A"}, "{}", `{ A = 1 }`},
	"environment.pass":          {`["A"]`, []string{"A"}, "[]", `["A*"]`},
	"environment.auth":          {`"A"`, "A", "", `"A B"`},
	"environment.inject":        {"true", true, "", ""},
	"environment.caches.tools":  {`["go"]`, []string{"go"}, "[]", `["bazel"]`},
	"environment.caches.keep":   {"true", true, "", ""},
	"environment.caches.method": {`"copy"`, "copy", "", `"link"`},
	"process.tty":               {`"none"`, "none", "", `"raw"`},
	"process.seccomp":           {`"strict"`, "strict", "", `"off"`},
	"process.nested-sandboxes":  {"true", true, "", ""},
	"limits.time":               {`"1h30m"`, uint64(90 * minute), "0", `"10"`},
	"limits.grace":              {`"250ms"`, uint64(250 * millisecond), "0", `"5 s"`},
	"limits.memory":             {`"4GiB"`, uint64(4 << 30), "0", `"4 gigs"`},
	"limits.processes":          {"512", uint64(512), "0", `"many"`},
	"limits.open-files":         {"64", uint64(64), "", "3"},
	"limits.file-size":          {`"1GiB"`, uint64(1 << 30), "0", `"1 gig"`},
	"limits.scratch":            {`"2GiB"`, uint64(2 << 30), "0", `"x"`},
	"limits.total-output":       {`"2GiB"`, uint64(2 << 30), "0", `"x"`},
	"limits.output":             {`"1500 chars"`, Amount{1500, "chars"}, `"0 chars"`, `"1500"x`},
	"limits.core":               {"0", uint64(0), "0", "1"},
}

func keyProfile(k Key, value string) string {
	if k.Name == "version" {
		return "version = " + value + "\n"
	}
	s := "version = 1\n"
	if k.Table() != "" {
		s += "[" + k.Table() + "]\n"
	}
	return s + k.Last() + " = " + value + "\n"
}

// Absent, empty and explicit are three cases of each key of the language, and
// no key can be left out: the table is walked.
func TestEveryKey(t *testing.T) {
	for _, k := range Keys() {
		c, ok := keyCases[k.Name]
		if !ok {
			t.Errorf("%s has no case", k.Name)
			continue
		}
		load := func(text string) (*Stack, error) { return LoadFile("p.toml", []byte(text), Host{}) }
		setting := func(st *Stack) Setting {
			v, _ := st.Value(k.Name)
			return v
		}
		isSetting := c.want != nil

		absent, err := load("version = 1\n")
		if err != nil {
			t.Fatal(err)
		}
		if v := setting(absent); isSetting && (!v.Default || v.Origin != def || v.Text != k.Default && k.Name != "limits.core") {
			t.Errorf("%s absent: %+v, want the default %s", k.Name, v, k.Default)
		}
		explicit, err := load(keyProfile(k, c.explicit))
		if err != nil {
			t.Errorf("%s = %s: %v", k.Name, c.explicit, err)
			continue
		}
		if v := setting(explicit); isSetting && (v.Default || !reflect.DeepEqual(v.Value, c.want) || v.Origin.Line == 0) {
			t.Errorf("%s = %s: %+v, want %v", k.Name, c.explicit, v, c.want)
		}

		// An empty list drops what the profile below says; an absent one does not.
		below := keyProfile(k, c.explicit)
		fsys := parseTree(t, "")
		fsys["srv/below.toml"] = ownedFile("/srv/below.toml", 0o644, []byte(below))
		h := goldenHost{}.host(fsys)
		over := func(value string) (*Stack, error) {
			text := "version = 1\nextends = \"/srv/below.toml\"\n"
			if value != "" {
				text += strings.TrimPrefix(keyProfile(k, value), "version = 1\n")
			}
			text = strings.Replace(text, "/srv/below.toml", "./below.toml", 1)
			return LoadFile("/srv/top.toml", []byte(text), h)
		}
		if k.Name == "version" || k.Name == "extends" {
			if _, err := load(keyProfile(k, `""`)); err == nil {
				t.Errorf("%s accepts an empty string", k.Name)
			}
			continue
		}
		st, err := over("")
		if err != nil {
			t.Fatal(err)
		}
		if v := setting(st); isSetting && (v.Default || v.Layer != 0 || !reflect.DeepEqual(v.Value, c.want)) {
			t.Errorf("%s absent above: %+v", k.Name, v)
		}
		switch c.empty {
		case "":
			for _, e := range []string{`""`, "[]"} {
				if _, err := over(e); err == nil {
					t.Errorf("%s = %s is accepted", k.Name, e)
				}
			}
		default:
			st, err := over(c.empty)
			if err != nil {
				t.Errorf("%s = %s: %v", k.Name, c.empty, err)
				continue
			}
			v := setting(st)
			if isSetting && (v.Default || v.Layer != 1 || len(v.Replaced) == 0 || v.Replaced[0].Layer != 0) {
				t.Errorf("%s = %s above: %+v", k.Name, c.empty, v)
			}
			if n := reflect.ValueOf(v.Value); isSetting && n.Kind() == reflect.Slice && (n.Len() != 0 || len(v.Items) != 0) {
				t.Errorf("%s = %s leaves %v", k.Name, c.empty, v.Value)
			}
		}

		wrong := []string{"1.5", "1979-05-27", `{ x = 1 }`, "[[1]]"}
		if c.wrong != "" {
			wrong = append(wrong, c.wrong)
		}
		for _, w := range wrong {
			_, err := load(keyProfile(k, w))
			if err == nil {
				t.Errorf("%s = %s is accepted", k.Name, w)
				continue
			}
			for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
				if o := e.(*plan.Error).Origin; o.File != "p.toml" || o.Line == 0 || o.Column == 0 || o.Text == "" && !strings.HasPrefix(e.Error(), "not valid TOML") {
					t.Errorf("%s = %s: error at %+v", k.Name, w, o)
				}
			}
		}
	}
	for n := range keyCases {
		if _, ok := LookupKey(n); !ok {
			t.Errorf("there is a case for %s, which is no key", n)
		}
	}
}

// The table says what the documents and the schema are made from.
func TestKeyTable(t *testing.T) {
	fields := reflect.TypeFor[File]().NumField() - 1 // Source
	withField := 0
	seen := map[string]bool{}
	check := func(k Key) {
		if k.Doc == "" || !strings.HasSuffix(k.Doc, ".") || k.Since == "" || k.Type == "" {
			t.Errorf("%s: incomplete: %+v", k.Name, k)
		}
		if (k.Type == TypeEnum || k.Type == TypeEnums) != (len(k.Values) > 0) && k.Type != TypeFilter {
			t.Errorf("%s: values %v", k.Name, k.Values)
		}
	}
	for _, k := range Keys() {
		if seen[k.Name] {
			t.Errorf("%s twice", k.Name)
		}
		seen[k.Name] = true
		check(k)
		for _, f := range k.Fields {
			check(f)
		}
		if k.field != nil {
			withField++
		}
		if k.Table() != "" && !slices.Contains(Tables(), k.Table()) {
			t.Errorf("%s: no such table", k.Name)
		}
		if k.Default != "" {
			if _, err := LoadFile("p.toml", []byte(keyProfile(k, k.Default)), Host{}); err != nil {
				t.Errorf("%s: the default %s: %v", k.Name, k.Default, err)
			}
		}
	}
	withField++ // Phases: a list of tables whose keys are those of others
	if withField != fields {
		t.Errorf("the table names %d of %d fields of File", withField, fields)
	}
	// Every field is another one.
	var f File
	at := map[any]string{}
	for _, k := range Keys() {
		if k.field == nil {
			continue
		}
		p := k.field(&f)
		if at[p] != "" {
			t.Errorf("%s and %s are kept in one place", at[p], k.Name)
		}
		at[p] = k.Name
	}
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "5s": 5e9, "10m": 6e11, "1h": 36e11, "1h30m": 54e11, "250ms": 25e7, "1h1m1s1ms": 3661001000000, "0s": 0,
	} {
		got, msg := parseDuration(text)
		if msg != "" || got != want {
			t.Errorf("%s is %d %s, want %d", text, got, msg, want)
		}
		if back, msg := parseDuration(formatDuration(got)); msg != "" || back != got {
			t.Errorf("%s becomes %s", text, formatDuration(got))
		}
	}
	for _, text := range []string{"", "5", "s", "5 s", " 5s", "5S", "1.5h", "-5s", "+5s", "1m1h", "1s1s", "5sec", "9999999999h", "99999999999999999999s", "5s\n", "5µs", "5us"} {
		if n, msg := parseDuration(text); msg == "" {
			t.Errorf("%q is read as %d", text, n)
		}
	}
	for text, want := range map[string]uint64{"0": 0, "1": 1, "5B": 5, "1KiB": 1024, "2 GiB": 2 << 30, "3KB": 3000, "1TB": 1e12} {
		if got, msg := parseSize(text); msg != "" || got != want {
			t.Errorf("%s is %d %s", text, got, msg)
		}
	}
	for _, text := range []string{"", "B", "GiB", "1 gig", "1.5GiB", "-1", "1kb", "99999999999TiB", "1 GiB ", "1GiBB"} {
		if n, msg := parseSize(text); msg == "" {
			t.Errorf("%q is read as %d", text, n)
		}
	}
	for text, want := range map[string]Amount{"1500 chars": {1500, "chars"}, "64KiB": {65536, "bytes"}, "0 chars": {0, "chars"}} {
		got, msg := parseOutput(text)
		if msg != "" || got != want {
			t.Errorf("%s is %v %s", text, got, msg)
		}
		if back, _ := parseOutput(got.String()); back != got {
			t.Errorf("%s becomes %s", text, got)
		}
	}
	for _, text := range []string{"", "chars", "1500chars", "1500  chars", "-1 chars", "1500 lines", "99999999999999999999 chars"} {
		if a, msg := parseOutput(text); msg == "" {
			t.Errorf("%q is read as %v", text, a)
		}
	}
}

func TestParseHost(t *testing.T) {
	for _, s := range []string{
		"example.org", "*.example.org", "a-b.example.org:443", "example.org:*", "example.org:8000-8080", "localhost:80", "xn--mnchen-3ya.de",
		"192.0.2.1", "192.0.2.1:80", "10.0.0.0/8", "10.0.0.0/8:80-90", "2001:db8::1", "[2001:db8::1]:443", "2001:db8::/32", "[2001:db8::/32]:*", "1password.com", "a.1b",
	} {
		p, err := ParseHost(s)
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		if p.String() != s {
			t.Errorf("%s becomes %s", s, p)
		}
		if !p.Covers(false, p, false) || !p.Covers(true, p, true) {
			t.Errorf("%s does not cover itself", s)
		}
	}
	if p, err := ParseHost("[2001:db8::1]"); err != nil || p.String() != "2001:db8::1" {
		t.Errorf("%v, %v", p, err)
	}
	for _, s := range []string{
		"", "*", "*.", "*.*.org", "a*.org", "http://a", "a/b", "a:", "a:0", "a:70000", "a:1-0", "a:1-", "a:-1", "a:+1", "a:01", "a:*-2", "1.2.3", "1.2.3.4.", "256.1.1.1",
		"0x7f000001", "0x7f.0.0.1", "017700000001", "a.0x1", "a\x00b", "a b", "a\tb", "ä.de", "\u212aube.example", "-a", "a-", "a_b", strings.Repeat("a", 64) + ".org", strings.Repeat("a.", 127) + "org",
		"198.18.0.1", "198.19.0.0/16:443", "fd77:616c:6c00::5", "[a]:1", "[::1", "[::1]1", "::1/129", "10.1.0.0/8", "::ffff:1.2.3.4", "fe80::1%0", "u@h", "h?q", "h#f", "1.2.3.4/", "1.2.3.4/08", "*:443", "*.1.2.3.4",
	} {
		if p, err := ParseHost(s); err == nil {
			t.Errorf("%q is read as %s", s, p)
		}
	}
	for _, test := range []struct {
		p, q string
		want bool
	}{
		{"a.org", "a.org:443", true}, {"a.org", "a.org:80", true}, {"a.org", "a.org:22", false}, {"a.org:443", "a.org", false}, {"a.org:1-500", "a.org", true}, {"a.org:*", "a.org:80", true}, {"a.org:1-100", "a.org:50-60", true}, {"a.org:50-60", "a.org:1-100", false},
		{"*.org", "a.org", true}, {"*.a.org", "a.org", false}, {"*.a.org", "b.a.org", true}, {"*.a.org", "*.b.a.org", true}, {"*.b.a.org", "*.a.org", false}, {"*.a.org", "ba.org", false},
		{"a.org", "*.a.org", false}, {"10.0.0.0/8", "10.1.2.3", true}, {"10.0.0.0/8", "10.1.0.0/16", true}, {"10.1.0.0/16", "10.0.0.0/8", false}, {"::/0", "10.0.0.0/8", false}, {"a.org", "10.0.0.1", false},
	} {
		p, err1 := ParseHost(test.p)
		q, err2 := ParseHost(test.q)
		if err1 != nil || err2 != nil || p.Covers(false, q, false) != test.want {
			t.Errorf("%s covers %s: want %v (%v, %v)", test.p, test.q, test.want, err1, err2)
		}
	}
}

// FuzzParseHost: what is accepted reads back the same and holds no byte that a
// resolver could take for something else.
func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"example.org:443", "*.a.b:1-2", "[::1]:*", "10.0.0.0/8", "127.1", "a\x00.org", "0x7f.1:80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseHost(s)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Error("a message of two lines")
			}
			return
		}
		if strings.Trim(p.Name, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || (p.Name == "") != p.Prefix.IsValid() {
			t.Fatalf("%q is %+v", s, p)
		}
		q, err := ParseHost(p.String())
		if err != nil || q != p {
			t.Fatalf("%q is %s, which is %+v, %v", s, p, q, err)
		}
		if !p.Covers(false, q, false) {
			t.Fatalf("%s does not cover itself", p)
		}
	})
}

func TestGroups(t *testing.T) {
	seen := map[string]bool{}
	for _, g := range Groups() {
		if seen[g.Name] || !strings.HasPrefix(g.Name, "@") || !strings.HasSuffix(g.Doc, ".") {
			t.Errorf("%+v", g)
		}
		seen[g.Name] = true
		if g.Name != gitGroup && (len(g.Members) == 0) == (len(g.Paths) == 0) {
			t.Errorf("%s has members and paths, or neither", g.Name)
		}
		for _, m := range g.Members {
			if !seen[m] {
				t.Errorf("%s: %s is not a group before it", g.Name, m)
			}
		}
		for _, a := range g.Absent {
			if !slices.Contains(g.Paths, a) {
				t.Errorf("%s: %s is not one of its paths", g.Name, a)
			}
		}
		for _, p := range g.Paths {
			if msg, _ := badPath(p); msg != "" {
				t.Errorf("%s: %s", g.Name, msg)
			}
			if key := p; seen["path "+key] {
				t.Errorf("%s is in two groups", p)
			}
			seen["path "+p] = true
		}
		if msg, _ := badGroup(g.Name, g.Key); msg != "" {
			t.Error(msg)
		}
	}
	if _, ok := GroupPaths("@none"); ok {
		t.Error("a group that is none")
	}
	all, _ := GroupPaths("@credentials")
	for _, want := range []string{"~/.ssh", "~/.aws", "~/.netrc", "~/.bash_history", "$workspace/.env", "/etc/shadow"} {
		if !slices.Contains(all, want) {
			t.Errorf("@credentials lacks %s", want)
		}
	}
	few := 0
	for _, g := range Groups() {
		few += len(g.Absent)
	}
	if few > 3 {
		t.Errorf("%d absent names cost every launch a mount", few)
	}
}
