package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const sentinel = "sentinel-value-that-must-not-show"

// sample is a valid plan in which every field is set.
func sample() Plan {
	o := Origin{File: "gate.toml", Line: 3, Column: 5, Text: `hide = ["~/.ssh"]`}
	return Plan{
		Version:  Version,
		Profile:  "gate",
		Enforce:  EnforceFSNet,
		Command:  Command{Path: "/bin/sh", Argv: []string{"sh", "-c", "echo \xff", ""}, Dir: "/srv/a b"},
		Identity: Identity{UID: 1000, GID: 1001},
		Scratch: Scratch{
			Root: "/tmp/wall-1000", ID: "0123abcd", Keep: true,
			Dirs:         []ScratchDir{{"home", 0o700}, {"tmp", 0o1777}},
			Placeholders: []Placeholder{{Path: "/srv/a b/.git/commondir", Type: TypeFile, Content: ".\n", Origin: o}},
			Guards:       []string{"/srv/a b/.git/commondir"},
			Seeds:        []Seed{{Source: "/home/u/.codex/auth.json", Target: "home/.codex/auth.json", Origin: o}},
			Copies:       []TreeCopy{{Source: "/home/u/.npm/_cacache", Target: "tmp", Max: 64 << 20, Origin: o}},
			Kept:         KeptDir{Path: "/home/u/.cache/wall/caches/0a1b", Dirs: []string{"go.upper", "go.work"}},
		},
		Spaces: []Space{{SpaceUser, o}, {SpaceMount, o}, {SpacePID, o}, {SpaceIPC, o}, {SpaceNet, o}},
		Mounts: []Mount{
			{Op: OpHostRoot, Target: "/", Origin: o},
			{Op: OpBind, Target: "/srv/a b", Source: "/srv/a b", Access: AccessWrite, Type: TypeDir, MakeAs: TypeDir, Optional: true, Origin: o},
			{Op: OpTmpfs, Target: "/run", Mode: 0o755, Size: 1 << 20, Origin: o},
			{Op: OpScratch, Target: "/tmp", Source: "tmp", Origin: o},
			{Op: OpCover, Target: "/home/u/.ssh", Type: TypeDir, Origin: o},
			{Op: OpProtect, Target: "/srv/a b/.git/config", Type: TypeFile, Origin: o},
			{Op: OpSymlink, Target: "/dev/fd", Source: "/proc/self/fd", Origin: o},
			{Op: OpOverlay, Target: "/home/u/go/pkg/mod", Source: "/home/u/go/pkg/mod", Upper: "/home/u/.cache/wall/caches/0a1b/go.upper",
				Work: "/home/u/.cache/wall/caches/0a1b/go.work", MakeAs: TypeDir, Origin: o},
		},
		Limits: []Limit{{LimitCore, 0, o}},
		Bounds: Bounds{
			Time: Bound{600e9, ByTimer, o}, Grace: Bound{5e9, ByTimer, o},
			Memory: Bound{1 << 30, ByCgroup, o}, Processes: Bound{512, ByCgroup, o},
			Scratch: Bound{2 << 30, ByWatch, o}, Total: Bound{64 << 20, ByRelay, o}, Output: Bound{1500, ByTail, o}, OutputUnit: UnitChars,
			Cgroup: Cgroup{2, "0123abcd", "/sys/fs/cgroup/a b/wall-0123abcd.scope", "/sys/fs/cgroup/a b/wall-0123abcd.scope", "wall-0123abcd.scope"},
		},
		Network: Network{
			Method:   NetRedirect,
			Allow:    []HostRule{{Name: "example.org", Suffix: true, Ports: []PortRange{{80, 80}, {443, 444}}, Origin: o}},
			Deny:     []HostRule{{Prefix: "192.0.2.0/24", Ports: []PortRange{{1, 65535}}, Origin: o}},
			Loopback: []PortGrant{{5432, o}}, Publish: []PortGrant{{8080, o}},
			HTTP: 3128, SOCKS: 1080, CheckSNI: true,
			Upstream:    Upstream{"http://proxy.example.org:3128", o},
			Connections: 512, Idle: 300e9, Origin: o,
		},
		Landlock: Landlock{
			ABI: 7, Stdio: true, Network: true, Signals: true, Abstract: true,
			Rules: []PathRule{{Path: "/", Access: AccessRead, Except: []string{"/home/u/.ssh"}, Optional: true, Origin: o}},
			Ports: []PortRule{{PortConnectTCP, 443, o}},
		},
		Seccomp: Seccomp{Profile: "custom.json", Program: make([]byte, 16), Origin: o},
		Stdio:   []Stdio{{0, StdioNull, true, true}, {1, StdioPipe, false, true}, {2, StdioFile, false, true}},
		TTY:     TTYInherit,
		KeepFDs: []int{3, 7},
		Checks:  []Check{{CheckUnreadable, "/home/u/.ssh", o}, {CheckNoCaps, "", o}, {CheckLayer, "/home/u/go/pkg/mod", o}},
		Env: []EnvVar{
			{"A", sentinel + "\xfe", "set", o, ValueSource{}},
			{"DB", "", "set", o, ValueSource{Kind: SourceCommand, Argv: []string{"pass", "show", "a b"}}},
			{"KEY", "", "set", o, ValueSource{Kind: SourceFile, Name: "/srv/key\xff"}},
			{"PATH", sentinel, "base: always", o, ValueSource{}},
		},
		Dropped:  []EnvDrop{{"GH_TOKEN", "deny *_TOKEN"}},
		Degraded: []Degraded{{WallLandlock, "a mount mistake is not caught", "Landlock is missing", o}},
		Notices:  []Notice{{"the workspace is a worktree", "use --rw", o}},
	}
}

func TestSampleSetsEveryField(t *testing.T) {
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
		case reflect.Slice:
			if v.Len() == 0 {
				t.Errorf("%s is empty in the sample", path)
			}
		}
	}
	walk(reflect.ValueOf(sample()), "Plan")
}

func TestEncodeDecode(t *testing.T) {
	p := sample()
	b, err := Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, p) {
		t.Errorf("Decode(Encode(p)) = %+v, want %+v", got, p)
	}
	for n := range len(b) {
		if _, err := Decode(b[:n]); err == nil {
			t.Fatalf("a plan cut to %d of %d bytes was accepted", n, len(b))
		}
	}
	if _, err := Decode(append(b, 0)); err == nil {
		t.Error("a trailing byte was accepted")
	}
	other := bytes.Clone(b)
	other[len(wireMagic)]++
	if _, err := Decode(other); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("another version: %v", err)
	}
	other = bytes.Clone(b)
	other[len(wireMagic)+4]++
	if _, err := Decode(other); err == nil || !strings.Contains(err.Error(), "another build") {
		t.Errorf("another shape: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	b, _ := Encode(sample())
	f.Add(b)
	small, _ := Encode(Plan{Version: Version})
	f.Add(small)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Encode(p)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again, b) {
			t.Fatal("Encode does not invert Decode")
		}
	})
}

func TestSampleIsValid(t *testing.T) {
	if err := sample().Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateRefuses(t *testing.T) {
	tests := []struct {
		name string
		edit func(*Plan)
		want string
	}{
		{"version", func(p *Plan) { p.Version = 2 }, "version 2"},
		{"enforce", func(p *Plan) { p.Enforce = "most" }, `enforce "most"`},
		{"relative command", func(p *Plan) { p.Command.Path = "sh" }, "not an absolute clean path"},
		{"unclean dir", func(p *Plan) { p.Command.Dir = "/srv/../etc" }, "not an absolute clean path"},
		{"empty argv", func(p *Plan) { p.Command.Argv = nil }, "argv is empty"},
		{"NUL in argv", func(p *Plan) { p.Command.Argv = []string{"a\x00b"} }, "NUL"},
		{"negative uid", func(p *Plan) { p.Identity.UID = -1 }, "identity"},
		{"no user namespace", func(p *Plan) { p.Spaces = p.Spaces[1:] }, "first namespace"},
		{"no pid namespace", func(p *Plan) { p.Spaces = []Space{p.Spaces[0], p.Spaces[1], p.Spaces[3]} }, "without a pid namespace"},
		{"namespace twice", func(p *Plan) { p.Spaces = append(p.Spaces, p.Spaces[0]) }, "twice"},
		{"odd namespace", func(p *Plan) { p.Spaces = append(p.Spaces, Space{Kind: "time"}) }, `namespace "time"`},
		{"odd terminal", func(p *Plan) { p.TTY = "some" }, `terminal "some"`},
		{"private terminal without one", func(p *Plan) { p.TTY = TTYPrivate }, "without a terminal on descriptor 0"},
		{"private terminal without devpts", func(p *Plan) { p.TTY, p.Stdio[0].Kind = TTYPrivate, StdioTTY }, "without a devpts"},
		{"private terminal without a box", func(p *Plan) { p.Enforce, p.TTY = EnforceOff, TTYPrivate }, "enforce off with terminal"},
		{"off with mounts", func(p *Plan) { p.Enforce = EnforceOff }, "enforce off with"},
		{"no mounts", func(p *Plan) { p.Mounts = nil }, "without mounts"},
		{"two roots", func(p *Plan) { p.Mounts[1] = p.Mounts[0] }, "the root comes first"},
		{"root elsewhere", func(p *Plan) { p.Mounts[0].Target = "/mnt" }, "host-root at"},
		{"bind without access", func(p *Plan) { p.Mounts[1].Access = AccessNone }, "has access"},
		{"bind without type", func(p *Plan) { p.Mounts[1].Type = "" }, "has type"},
		{"bind with relative source", func(p *Plan) { p.Mounts[1].Source = "srv" }, "bind source"},
		{"access on a tmpfs", func(p *Plan) { p.Mounts[2].Access = AccessWrite }, "has access"},
		{"unknown scratch directory", func(p *Plan) { p.Mounts[3].Source = "cache" }, "not in the scratch directory"},
		{"device elsewhere", func(p *Plan) {
			p.Mounts[1] = Mount{Op: OpDevice, Target: "/dev/null", Source: "/srv/null", Type: TypeFile}
		}, "not below /dev"},
		{"cover of the working directory", func(p *Plan) { p.Mounts[4].Target = "/srv" }, "hides the working directory"},
		{"cover of a link", func(p *Plan) { p.Mounts[4].Type = TypeSymlink }, "has type"},
		{"pin of a link", func(p *Plan) { p.Mounts[5].Op, p.Mounts[5].Type = OpPin, TypeSymlink }, "has type"},
		{"long text", func(p *Plan) { p.Mounts[5].Op, p.Mounts[5].Source = OpText, strings.Repeat("x", MaxText+1) }, "text of 4097 bytes"},
		{"empty link", func(p *Plan) { p.Mounts[6].Source = "" }, "symbolic link"},
		{"unknown operation", func(p *Plan) { p.Mounts[5].Op = "magic" }, `mount operation "magic"`},
		{"mount point of odd type", func(p *Plan) { p.Mounts[1].MakeAs = TypeSymlink }, "makes a mount point"},
		{"scratch id", func(p *Plan) { p.Scratch.ID = "../x" }, "lower-case hex"},
		{"scratch directory", func(p *Plan) { p.Scratch.Dirs[0].Name = ".." }, "one path element"},
		{"scratch without root", func(p *Plan) { p.Scratch.Root = "" }, "without a root"},
		{"placeholder type", func(p *Plan) { p.Scratch.Placeholders[0].Type = TypeSymlink }, "placeholder"},
		{"placeholder directory with content", func(p *Plan) { p.Scratch.Placeholders[0].Type = TypeDir }, "placeholder"},
		{"guards unsorted", func(p *Plan) { p.Scratch.Guards = []string{"/b", "/a"} }, "guarded paths"},
		{"seed target", func(p *Plan) { p.Scratch.Seeds[0].Target = "../x" }, "seed target"},
		{"copy of a relative directory", func(p *Plan) { p.Scratch.Copies[0].Source = "x" }, "copied directory"},
		{"copy to nowhere", func(p *Plan) { p.Scratch.Copies[0].Target = "../x" }, "not in the scratch directory"},
		{"relative kept directory", func(p *Plan) { p.Scratch.Kept.Path = "x" }, "kept directory"},
		{"kept directory outside", func(p *Plan) { p.Scratch.Kept.Dirs[0] = ".." }, "one path element"},
		{"kept directories unsorted", func(p *Plan) { p.Scratch.Kept.Dirs = []string{"go.work", "go.upper"} }, "not sorted"},
		{"overlay of a relative directory", func(p *Plan) { p.Mounts[7].Source = "go" }, "overlay source"},
		{"overlay without an upper layer", func(p *Plan) { p.Mounts[7].Upper = "" }, "neither in the scratch directory nor kept"},
		{"overlay over an unknown directory", func(p *Plan) { p.Mounts[7].Work = "/home/u/.cache/wall/caches/0a1b/other" }, "neither in the scratch directory nor kept"},
		{"overlay that climbs", func(p *Plan) { p.Mounts[7].Upper = "/home/u/.cache/wall/caches/0a1b/../x" }, "neither in the scratch directory nor kept"},
		{"layer used twice", func(p *Plan) { p.Mounts[7].Work = p.Mounts[7].Upper }, "uses the layer"},
		{"layers in two places", func(p *Plan) { p.Mounts[7].Upper = "tmp" }, "in two places"},
		{"layers of another mount", func(p *Plan) { p.Mounts[2].Upper = "tmp" }, "has layers"},
		{"self-test of no overlay", func(p *Plan) { p.Checks[2].Path = "/srv" }, "not mounted"},
		{"limit", func(p *Plan) { p.Limits[0].Name = "luck" }, `limit "luck"`},
		{"bound by another", func(p *Plan) { p.Bounds.Time.By = ByWatch }, `bound time is kept by "watch"`},
		{"bound by nobody", func(p *Plan) { p.Bounds.Scratch.By = "" }, `bound scratch is kept by ""`},
		{"bound too large", func(p *Plan) { p.Bounds.Time.Value = 1 << 63 }, "bound time of"},
		{"output unit", func(p *Plan) { p.Bounds.OutputUnit = "lines" }, `bound output in "lines"`},
		{"output without a unit", func(p *Plan) { p.Bounds.OutputUnit = "" }, "without a unit"},
		{"cgroup id", func(p *Plan) { p.Bounds.Cgroup.ID = "../x" }, "cgroup id"},
		{"cgroup version", func(p *Plan) { p.Bounds.Cgroup.Version = 3 }, "cgroup version 3"},
		{"cgroup without a version", func(p *Plan) { p.Bounds.Cgroup.Version = 0 }, "without a version"},
		{"cgroup path", func(p *Plan) { p.Bounds.Cgroup.Memory = "a" }, "not an absolute clean path"},
		{"scope of another run", func(p *Plan) { p.Bounds.Cgroup.Scope = "wall-0123.scope" }, "cgroup in scope"},
		{"scope elsewhere", func(p *Plan) { p.Bounds.Cgroup.Memory, p.Bounds.Cgroup.Pids = "/cg", "/cg" }, "cgroup in scope"},
		{"two cgroups", func(p *Plan) { p.Bounds.Cgroup.Pids = "/sys/fs/cgroup/b" }, "two directories"},
		{"bound without its cgroup", func(p *Plan) { p.Bounds.Cgroup.Pids = "" }, "do not fit together"},
		{"network without a namespace", func(p *Plan) { p.Spaces = p.Spaces[:len(p.Spaces)-1] }, "a network without"},
		{"network method", func(p *Plan) { p.Network.Method = "tun" }, "network method"},
		{"hosts without a method", func(p *Plan) { p.Network.Method = NetNone }, "without a way to them"},
		{"no connections", func(p *Plan) { p.Network.Connections = 0 }, "for no connections"},
		{"proxy ports", func(p *Plan) { p.Network.SOCKS = p.Network.HTTP }, "proxy ports 3128 and 3128"},
		{"loopback port of the proxy", func(p *Plan) { p.Network.Loopback[0].Port = 3128 }, "is a proxy port"},
		{"loopback port 0", func(p *Plan) { p.Network.Loopback[0].Port = 0 }, "not ascending"},
		{"published loopback port", func(p *Plan) { p.Network.Publish[0].Port = 5432 }, "one of wall's own"},
		{"rule for nothing", func(p *Plan) { p.Network.Allow[0].Name = "" }, "a host rule with"},
		{"rule with a bad name", func(p *Plan) { p.Network.Allow[0].Name = "Example.org" }, "the host name"},
		{"rule with an unclean network", func(p *Plan) { p.Network.Deny[0].Prefix = "192.0.2.1/24" }, "the network"},
		{"rule without ports", func(p *Plan) { p.Network.Deny[0].Ports = nil }, "has no ports"},
		{"rule with odd ports", func(p *Plan) { p.Network.Deny[0].Ports[0].Last = 65536 }, "the ports 1 to 65536"},
		{"upstream with a path", func(p *Plan) { p.Network.Upstream.URL = "http://proxy:1/x" }, "upstream proxy"},
		{"upstream with a password", func(p *Plan) { p.Network.Upstream.URL = "http://u:p@proxy:1" }, "upstream proxy"},
		{"landlock abi", func(p *Plan) { p.Landlock.ABI = -1 }, "landlock abi"},
		{"landlock access", func(p *Plan) { p.Landlock.Rules[0].Access = "all" }, "has access"},
		{"landlock exception elsewhere", func(p *Plan) { p.Landlock.Rules[0].Path = "/usr" }, "not below"},
		{"landlock exceptions unsorted", func(p *Plan) { p.Landlock.Rules[0].Except = []string{"/b", "/a"} }, "not sorted"},
		{"port", func(p *Plan) { p.Landlock.Ports[0].Port = 65536 }, "port 65536"},
		{"port operation", func(p *Plan) { p.Landlock.Ports[0].Op = "sctp" }, "port rule"},
		{"filter of odd size", func(p *Plan) { p.Seccomp.Program = make([]byte, 9) }, "seccomp program"},
		{"filter without a name", func(p *Plan) { p.Seccomp.Profile = "" }, "seccomp program"},
		{"two streams", func(p *Plan) { p.Stdio = p.Stdio[:2] }, "2 standard streams"},
		{"stream order", func(p *Plan) { p.Stdio[0].FD = 1 }, "describes descriptor"},
		{"stream kind", func(p *Plan) { p.Stdio[0].Kind = "directory" }, `is "directory"`},
		{"kept standard stream", func(p *Plan) { p.KeepFDs = []int{2} }, "kept descriptors"},
		{"kept descriptors unsorted", func(p *Plan) { p.KeepFDs = []int{7, 3} }, "kept descriptors"},
		{"self-test", func(p *Plan) { p.Checks[0].Op = "luck" }, "self-test"},
		{"self-test path", func(p *Plan) { p.Checks[0].Path = "" }, "self-test path"},
		{"variable name", func(p *Plan) { p.Env[0].Name = "A=B" }, "variable name"},
		{"variable value", func(p *Plan) { p.Env[0].Value = sentinel + "\x00" }, `"A" holds a NUL`},
		{"value and source", func(p *Plan) { p.Env[1].Value = sentinel }, `"DB" has both a value and a source`},
		{"source kind", func(p *Plan) { p.Env[1].Source = ValueSource{Kind: "vault", Name: "x"} }, `kind "vault"`},
		{"source without kind", func(p *Plan) { p.Env[1].Source = ValueSource{Name: "x"} }, "no kind"},
		{"relative source file", func(p *Plan) { p.Env[2].Source.Name = "key" }, "not an absolute clean path"},
		{"unclean source file", func(p *Plan) { p.Env[2].Source.Name = "/srv/../key" }, "not an absolute clean path"},
		{"NUL in source file", func(p *Plan) { p.Env[2].Source.Name = "/srv\x00" }, "NUL"},
		{"file with arguments", func(p *Plan) { p.Env[2].Source.Argv = []string{"x"} }, "argument vector"},
		{"source variable", func(p *Plan) { p.Env[1].Source = ValueSource{Kind: SourceEnv, Name: "A=B"} }, "variable name"},
		{"no source variable", func(p *Plan) { p.Env[1].Source = ValueSource{Kind: SourceEnv} }, "variable name"},
		{"no source command", func(p *Plan) { p.Env[1].Source.Argv = nil }, "command is empty"},
		{"source command with a name", func(p *Plan) { p.Env[1].Source.Name = "x" }, "has a name"},
		{"relative source command", func(p *Plan) { p.Env[1].Source.Argv = []string{"./pass"} }, "neither an absolute clean path"},
		{"NUL in source command", func(p *Plan) { p.Env[1].Source.Argv = []string{"pass", "\x00"} }, "NUL"},
		{"no key", func(p *Plan) { p.Env[1].Source = ValueSource{Kind: SourceKeyring} }, "description of the key"},
		{"no attributes", func(p *Plan) { p.Env[1].Source = ValueSource{Kind: SourceSecretService} }, "no attributes"},
		{"attributes unsorted", func(p *Plan) { p.Env[1].Source = ValueSource{Kind: SourceSecretService, Name: "b=1&a=2"} }, "canonical"},
		{"attribute without a name", func(p *Plan) { p.Env[1].Source = ValueSource{Kind: SourceSecretService, Name: "=1"} }, "no name"},
		{"variables unsorted", func(p *Plan) { p.Env[0].Name = "Z" }, "not sorted"},
		{"variables twice", func(p *Plan) { p.Env[0].Name = "PATH" }, "not sorted and unique"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := sample()
			tt.edit(&p)
			err := p.Validate()
			if err == nil {
				t.Fatal("was accepted")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not contain %q", err, tt.want)
			}
			if strings.Contains(err.Error(), sentinel) {
				t.Errorf("error %q holds the value of a variable", err)
			}
		})
	}
}

// A field that is not printed could change without a reviewer seeing it.
func TestPrintShowsEveryField(t *testing.T) {
	hidden := map[string]string{
		"Plan.Env.Value":       "redacted",
		"Plan.Seccomp.Program": "its size is printed",
	}
	base := text(t, sample())
	var walk func(get func(*Plan) reflect.Value, path string)
	walk = func(get func(*Plan) reflect.Value, path string) {
		p := sample()
		v := get(&p)
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(func(p *Plan) reflect.Value { return get(p).Field(i) }, path+"."+v.Type().Field(i).Name)
			}
			return
		case reflect.Slice:
			if v.Type().Elem().Kind() != reflect.Uint8 {
				for i := range v.Len() {
					walk(func(p *Plan) reflect.Value { return get(p).Index(i) }, path)
				}
				return
			}
			v.SetBytes(make([]byte, v.Len()+8))
		case reflect.String:
			v.SetString(v.String() + "x")
		case reflect.Int:
			v.SetInt(v.Int() + 1)
		case reflect.Uint32, reflect.Uint64:
			v.SetUint(v.Uint() + 1)
		case reflect.Bool:
			v.SetBool(!v.Bool())
		}
		if _, ok := hidden[path]; ok && path != "Plan.Seccomp.Program" {
			return
		}
		if text(t, p) == base {
			t.Errorf("a change of %s does not show", path)
		}
	}
	walk(func(p *Plan) reflect.Value { return reflect.ValueOf(p).Elem() }, "Plan")
}

func text(t *testing.T, p Plan) string {
	t.Helper()
	var b strings.Builder
	if err := p.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFormsForPeopleRedact(t *testing.T) {
	p := sample()
	j, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]string{"text": text(t, p), "JSON": string(j), "%+v of Redact": fmt.Sprintf("%+v", p.Redact())} {
		if strings.Contains(s, sentinel) {
			t.Errorf("the %s form holds the value of a variable", name)
		}
		if !strings.Contains(s, "PATH") {
			t.Errorf("the %s form does not hold the name of a variable", name)
		}
	}
	if p.Env[0].Value != sentinel+"\xfe" {
		t.Error("Redact changed its receiver")
	}
	if !bytes.Contains(j, []byte(`"keepFDs"`)) || bytes.Contains(j, []byte(": null")) {
		t.Errorf("JSON names or nulls: %s", j)
	}
}

func TestPrintShowsSources(t *testing.T) {
	p := sample()
	p.Env[1].Source.Argv = append(p.Env[1].Source.Argv, "a\nb")
	s := text(t, p)
	for _, want := range []string{
		`  A=<redacted> (set)`,
		`  DB=<redacted> from command pass show "a b" "a\nb" (set)`,
		`  KEY=<redacted> from file "/srv/key\xff" (set)`,
	} {
		if !strings.Contains(s, want) {
			t.Errorf("the text does not hold %q:\n%s", want, s)
		}
	}
	j, err := p.JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind": "command"`, `"pass",`, `"kind": "file"`, `"name": "/srv/key\\xff"`} {
		if !bytes.Contains(j, []byte(want)) {
			t.Errorf("the JSON does not hold %s:\n%s", want, j)
		}
	}
}

func TestUnfilled(t *testing.T) {
	p := sample()
	if got, want := p.Unfilled(), []string{"DB", "KEY"}; !slices.Equal(got, want) {
		t.Errorf("Unfilled() = %q, want %q", got, want)
	}
	p.Env = p.Env[:1]
	if got := p.Unfilled(); len(got) > 0 {
		t.Errorf("Unfilled() = %q without sources", got)
	}
}

func TestAttributes(t *testing.T) {
	attrs := []Attribute{{"user", "a&b=c d\xff"}, {"service", "é"}, {"empty", ""}}
	s := EncodeAttributes(attrs)
	got, err := ParseAttributes(s)
	if err != nil {
		t.Fatal(err)
	}
	if want := []Attribute{{"empty", ""}, {"service", "é"}, {"user", "a&b=c d\xff"}}; !slices.Equal(got, want) {
		t.Errorf("ParseAttributes(%q) = %q, want %q", s, got, want)
	}
	for _, bad := range []string{"", "b=1&a=1", "a=1&a=2", "a", "a=%zz", "a=%62", "=1", "a=1;b=2"} {
		if attrs, err := ParseAttributes(bad); err == nil {
			t.Errorf("ParseAttributes(%q) = %q, want an error", bad, attrs)
		}
	}
}

func TestPrintKeepsLinesWhole(t *testing.T) {
	p := sample()
	p.Command.Dir = "/srv/a\nmounts 0\x1b[2J"
	p.Command.Argv = []string{"a\nzz"}
	p.Mounts[1].Origin.Text = "evil\ntext\x1b"
	s := text(t, p)
	if strings.Contains(s, "\x1b") || strings.Contains(s, "\nmounts 0") || strings.Contains(s, "\nzz") || strings.Contains(s, "\ntext") {
		t.Errorf("a string broke its line:\n%s", s)
	}
}

func TestExplain(t *testing.T) {
	err := errors.Join(
		&Error{
			Op:     "cannot make /srv/data writable inside",
			Origin: Origin{File: ".wall/build.toml", Line: 14, Text: `{ path = "/srv/data", access = "write" }`},
			Hint:   "create the directory",
			Err:    fs.ErrNotExist,
		},
		fmt.Errorf("outer: %w", &Error{Op: "inner", Origin: Origin{Text: "--rw \x1b[31mx"}}),
	)
	want := `error: cannot make /srv/data writable inside: file does not exist
  at .wall/build.toml:14: { path = "/srv/data", access = "write" }
  hint: create the directory
error: outer: inner
  at --rw ?[31mx
`
	if got := Explain(err); got != want {
		t.Errorf("Explain:\n%s\nwant:\n%s", got, want)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
}

func TestExitStatus(t *testing.T) {
	tests := []struct {
		err  error
		want int
	}{
		{errors.New("x"), 125},
		{&Error{Op: "x"}, 125},
		{&Error{Op: "x", Exit: ExitNotFound}, 127},
		{&Error{Op: "x", Err: &Error{Op: "y", Exit: ExitNotExecutable}}, 126},
		{fmt.Errorf("z: %w", &Error{Op: "x", Exit: ExitNotFound}), 127},
	}
	for _, tt := range tests {
		if got := ExitStatus(tt.err); got != tt.want {
			t.Errorf("ExitStatus(%v) = %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestUnsupportedError(t *testing.T) {
	err := fmt.Errorf("x: %w", &UnsupportedError{Feature: "Landlock", Need: "ABI 2", Have: "ABI 1"})
	if !errors.Is(err, errors.ErrUnsupported) {
		t.Error("does not match errors.ErrUnsupported")
	}
	if want := "x: Landlock is not available: needs ABI 2, this host has ABI 1"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}

func TestScratchPath(t *testing.T) {
	for _, tt := range []struct{ root, want string }{{"", ""}, {"/", "/wall-a"}, {"/tmp/w", "/tmp/w/wall-a"}} {
		if got := (Scratch{Root: tt.root, ID: "a"}).Path(); got != tt.want {
			t.Errorf("root %q: %q, want %q", tt.root, got, tt.want)
		}
	}
}

func BenchmarkWire(b *testing.B) {
	p := sample()
	for range 150 {
		p.Mounts = append(p.Mounts, p.Mounts[1])
	}
	for b.Loop() {
		w, err := Encode(p)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := Decode(w); err != nil {
			b.Fatal(err)
		}
	}
}
