package convert

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

var update = flag.Bool("update", false, "rewrite the expected profiles and notes in testdata")

// toolOf is the tool whose settings a file of testdata holds: "srt-none.json".
func toolOf(name string) string {
	tool, _, _ := strings.Cut(strings.TrimSuffix(name, filepath.Ext(name)), "-")
	return tool
}

func settings(t testing.TB) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"*.json", "*.toml"} {
		m, err := filepath.Glob("testdata/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, m...)
	}
	if len(names) < 6 {
		t.Fatalf("only %q in testdata", names)
	}
	return names
}

func TestGolden(t *testing.T) {
	for _, file := range settings(t) {
		base := filepath.Base(file)
		t.Run(base, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Convert(toolOf(base), base, "imported", data)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			b.Write(r.Profile)
			b.WriteString("-- notes --\n")
			for _, n := range r.Notes {
				fmt.Fprintf(&b, "%d: %s: %s: %s\n", n.Line, n.Kind, n.Key, n.Text)
			}
			golden := file + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("not as in %s; got:\n%s", golden, b.String())
			}
			for _, n := range r.Notes {
				if strings.Contains(n.Text+n.Key, "hunter2") {
					t.Errorf("the note %v has a value of a variable", n)
				}
			}
			if _, err := profile.Parse(base, r.Profile); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		tool, data string
		want       string // as plan.Explain
	}{
		{"vim", "", "error: there is no importer for \"vim\"\n  hint: known: claude, codex, fence, srt\n"},
		{"srt", "", "error: not valid JSON: the text ends too early\n  at f:1\n"},
		{"srt", "{\n\"a\": 1,\n}", "error: not valid JSON: invalid character '}' looking for beginning of object key string\n  at f:3\n"},
		{"srt", "[]", "error: the settings must be an object, not an array\n  at f:1\n"},
		{"srt", "{} {}", "error: not valid JSON: something follows the first value\n  at f:1\n"},
		{"srt", "{\"a\":1,\n\"a\":2}", "error: not valid JSON: a is there twice\n  at f:2\n"},
		{"srt", "\xff", "error: not valid JSON: the text is not UTF-8\n  at f\n"},
		{"srt", `{"filesystem": {"denyRead": "~/.ssh"},` + "\n" + `"network": {"allowedDomains": [1], "allowLocalBinding": "yes"}}`,
			"error: filesystem.denyRead must be an array of strings, not a string\n  at f:1: filesystem.denyRead\n" +
				"error: network.allowedDomains[0] must be a string, not a number\n  at f:2: network.allowedDomains[0]\n" +
				"error: network.allowLocalBinding must be a boolean, not a string\n  at f:2: network.allowLocalBinding\n"},
		{"srt", `{"credentials": {"files": [{"path": "x"}, 1], "envVars": {}}}`,
			"error: credentials.files[0] needs \"path\" and \"mode\"\n  at f:1: credentials.files[0]\n" +
				"error: credentials.files[1] must be an object, not a number\n  at f:1: credentials.files[1]\n" +
				"error: credentials.envVars must be an array of objects, not an object\n  at f:1: credentials.envVars\n"},
		{"fence", `{"network": {"allowLocalOutboundPorts": [0, 70000, "x"], "defaultAction": "allow"}} // end`,
			"error: network.allowLocalOutboundPorts[0] must be a port from 1 to 65535\n  at f:1: network.allowLocalOutboundPorts[0]\n" +
				"error: network.allowLocalOutboundPorts[1] must be a port from 1 to 65535\n  at f:1: network.allowLocalOutboundPorts[1]\n" +
				"error: network.allowLocalOutboundPorts[2] must be a port from 1 to 65535\n  at f:1: network.allowLocalOutboundPorts[2]\n" +
				"error: network.defaultAction must be one of deny, proxy\n  at f:1: network.defaultAction\n"},
		{"fence", `{ /* open `, "error: not valid JSON: invalid character '/'\n  at f:1\n"},
		{"codex", "sandbox_mode = \"rw\"\n", "error: sandbox_mode must be one of read-only, workspace-write, danger-full-access\n  at f:1: sandbox_mode\n"},
		{"codex", "a = 1\na = 2\n", "error: not valid TOML: key a is already defined\n  at f:2\n"},
		{"claude", `{"sandbox": true, "env": {"A": [1]}}`,
			"error: sandbox must be an object, not a boolean\n  at f:1: sandbox\nerror: env.A must be a string, not an array\n  at f:1: env.A\n"},
	} {
		_, err := Convert(tt.tool, "f", "x", []byte(tt.data))
		if err == nil {
			t.Errorf("%s %q: no error", tt.tool, tt.data)
			continue
		}
		if got := plan.Explain(err); got != tt.want {
			t.Errorf("%s %q:\ngot  %q\nwant %q", tt.tool, tt.data, got, tt.want)
		}
	}
	for _, tool := range Tools() {
		for _, data := range []string{
			strings.Repeat("[", 1<<20), strings.Repeat("{\"a\":", 1<<16), "a = " + strings.Repeat("[", 1<<19), strings.Repeat("x", MaxSize+1),
			"{\"filesystem\":{\"denyRead\":[" + strings.Repeat("\"a\",", 2000) + "\"a\"]}}",
		} {
			_, err := Convert(tool, "f", "x", []byte(data))
			var located *plan.Error
			if err == nil || !asError(err, &located) {
				if tool == "claude" && strings.Contains(data, "denyRead") {
					continue // the key is not at the top there
				}
				t.Errorf("%s: %.20q...: %v", tool, data, err)
			}
		}
	}
}

func asError(err error, to **plan.Error) bool {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		err = j.Unwrap()[0]
	}
	e, ok := err.(*plan.Error)
	*to = e
	return ok
}

// TestNeverWider checks that a deny of the settings beats what they allow, in
// whatever order they say so.
func TestNeverWider(t *testing.T) {
	for _, tt := range []struct{ name, tool, data, absent, present string }{
		{"write below a denied read", "srt", `{"filesystem":{"allowWrite":["~/.ssh/x"],"denyRead":["~/.ssh"]}}`, `path = "~/.ssh/x"`, `hide = ["~/.ssh"]`},
		{"write below a denied write", "srt", `{"filesystem":{"allowWrite":["/a/b"],"denyWrite":["/a"]}}`, `path = "/a/b"`, `protect = ["/a"]`},
		{"read back", "srt", `{"filesystem":{"allowRead":["~/m/d"],"denyRead":["~/m"]}}`, "not granted", `path = "~/m/d", access = "read"`},
		{"fence has no reading back", "fence", `{"filesystem":{"allowRead":["~/m/d"],"denyRead":["~/m"]}}`, `path = "~/m/d"`, `hide = ["~/m"]`},
		{"below a pattern", "fence", `{"filesystem":{"allowWrite":["a/secrets/x"],"denyRead":["**/secrets"]}}`, `path = "a/secrets/x"`, `hide = ["**/secrets"]`},
		{"the workspace itself", "srt", `{"filesystem":{"allowWrite":["."],"denyWrite":["."]}}`, `"read-write"`, `workspace = "read-only"`},
		{"a rule against all edits", "claude", `{"permissions":{"allow":["Edit(src/**)","Edit(.)"],"deny":["Edit"]}}`, `path = "src"`, `workspace = "read-only"`},
		{"a rule against a read", "claude", `{"permissions":{"deny":["Read(~/m)"]},"sandbox":{"filesystem":{"allowRead":["~/m/d"]}}}`, `path = "~/m/d"`, `hide = ["~/m"]`},
		{"no sandbox", "codex", `sandbox_mode = "danger-full-access"`, `enforce`, `mode = "none"`},
		{"nothing said", "codex", ``, `"read-write"`, `mode = "none"`},
		{"home", "srt", `{"filesystem":{"allowWrite":["~","/"]}}`, `grant`, `home = "read-only"`},
		{"classes", "srt", `{"filesystem":{"allowWrite":["srv/ab/x"],"denyRead":["srv/[ab]?","k{ey,/b}/c"]}}`, `path = "srv/ab/x"`, `"srv/??"`},
		{"no host at all", "srt", `{"network":{"allowedDomains":["a.example"],"deniedDomains":["*"]}}`, `"allow"`, `mode = "none"`},
		{"every host", "claude", `{"permissions":{"allow":["WebFetch"]}}`, `"host"
`, `mode = "none"`},
	} {
		r, err := Convert(tt.tool, "f", "x", []byte(tt.data))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var body strings.Builder // without comments
		for line := range strings.Lines(string(r.Profile)) {
			if !strings.HasPrefix(line, "#") {
				body.WriteString(line)
			}
		}
		got := strings.ReplaceAll(body.String(), `view = "host"`, "")
		if strings.Contains(got, tt.absent) || !strings.Contains(got, tt.present) {
			t.Errorf("%s: want %q and not %q in\n%s", tt.name, tt.present, tt.absent, got)
		}
	}
}

// fuzzTool checks what must hold for every settings file: no panic, the same
// result twice, a profile that is one, errors with a place, and for every key a
// sign that somebody saw it.
func fuzzTool(f *testing.F, name string) {
	for _, file := range settings(f) {
		if toolOf(filepath.Base(file)) == name {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Convert(name, "f", "x", data)
		again, err2 := Convert(name, "f", "x", data)
		if !reflect.DeepEqual(r, again) || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatal("two results for one input")
		}
		if err != nil {
			if strings.Contains(err.Error(), "wall bug") {
				t.Fatal(err)
			}
			return
		}
		if _, err := profile.Parse("f", r.Profile); err != nil {
			t.Fatalf("%v\n%s", err, r.Profile)
		}
		if bytes.ContainsFunc(r.Profile, func(c rune) bool { return c < 0x20 && c != '\n' || c == 0x7f }) {
			t.Fatalf("control characters in the profile: %q", r.Profile)
		}
		i := slices.IndexFunc(tools, func(x tool) bool { return x.name == name })
		root, err := tools[i].read("f", data)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range root.fields {
			if k.fields == nil && k.kind != null && !slices.ContainsFunc(r.Notes, func(n Note) bool { return n.Key == plan.Printable(k.key) }) &&
				!slices.Contains([]string{"sandbox_mode", "default_permissions", "allowPty", "forceNewSession", "network", "filesystem", "credentials", "devices", "sandbox", "permissions", "env",
					"sandbox_workspace_write", "shell_environment_policy", "allow_login_shell"}, k.name) {
				t.Fatalf("nothing is said about %s", k.key)
			}
		}
	})
}

func FuzzClaude(f *testing.F) { fuzzTool(f, "claude") }
func FuzzCodex(f *testing.F)  { fuzzTool(f, "codex") }
func FuzzFence(f *testing.F)  { fuzzTool(f, "fence") }
func FuzzSrt(f *testing.F)    { fuzzTool(f, "srt") }
