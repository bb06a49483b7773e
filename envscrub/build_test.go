package envscrub

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

// sentinel is planted in values and must never appear in text for people.
const sentinel = "S3NTINEL"

func pattern(t testing.TB, s string) Pattern {
	t.Helper()
	p, err := ParsePattern(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rules(t testing.TB, patterns ...string) []Rule {
	t.Helper()
	var list []Rule
	for _, s := range patterns {
		list = append(list, Rule{Pattern: pattern(t, s), Origin: plan.Origin{Text: "rule " + s}})
	}
	return list
}

func names(list ...string) []Name {
	var out []Name
	for _, s := range list {
		out = append(out, Name{s, plan.Origin{Text: "--pass " + s}})
	}
	return out
}

func assigns(pairs ...string) []Assign {
	var out []Assign
	for _, s := range pairs {
		name, value, _ := strings.Cut(s, "=")
		out = append(out, Assign{name, value, plan.Origin{Text: "--env " + s}})
	}
	return out
}

// build runs Build and checks what must hold for every result.
func build(t testing.TB, in Input, p Policy) Result {
	t.Helper()
	r, err := Build(in, p)
	if err != nil {
		t.Fatalf("Build: %v", err)
	}
	checkResult(t, r)
	return r
}

func checkResult(t testing.TB, r Result) {
	t.Helper()
	if r.Env == nil || r.Dropped == nil || r.Notices == nil {
		t.Fatal("a slice of the result is nil")
	}
	have := map[string]bool{}
	for i, v := range r.Env {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") || strings.Contains(v.Value, "\x00") {
			t.Fatalf("%q cannot be a variable", v.Name)
		}
		if i > 0 && r.Env[i-1].Name >= v.Name {
			t.Fatalf("env is not sorted and unique at %q", v.Name)
		}
		if v.Reason == "" || v.Origin.IsZero() {
			t.Fatalf("%q has no reason or origin", v.Name)
		}
		have[v.Name] = true
	}
	for i, d := range r.Dropped {
		if i > 0 && r.Dropped[i-1].Name >= d.Name {
			t.Fatalf("dropped is not sorted and unique at %q", d.Name)
		}
		if d.Reason == "" {
			t.Fatalf("%q is dropped without a reason", d.Name)
		}
		if have[d.Name] {
			t.Fatalf("%q is both kept and dropped", d.Name)
		}
	}
}

// texts gives everything of a result that people may see.
func texts(r Result, err error) string {
	var b strings.Builder
	for _, v := range r.Env {
		fmt.Fprintln(&b, v.Name, v.Reason, v.Origin)
	}
	for _, d := range r.Dropped {
		fmt.Fprintln(&b, d.Name, d.Reason)
	}
	for _, n := range r.Notices {
		fmt.Fprintln(&b, n.Text, n.Hint, n.Origin)
	}
	if err != nil {
		fmt.Fprintln(&b, plan.Explain(err), err)
	}
	return b.String()
}

func pairs(r Result) string {
	var s []string
	for _, v := range r.Env {
		s = append(s, v.Name+"="+v.Value)
	}
	return strings.Join(s, " ")
}

func envNames(r Result) string {
	var s []string
	for _, v := range r.Env {
		s = append(s, v.Name)
	}
	return strings.Join(s, " ")
}

func dropReason(r Result, name string) string {
	for _, d := range r.Dropped {
		if d.Name == name {
			return d.Reason
		}
	}
	return ""
}

func get(r Result, name string) (plan.EnvVar, bool) {
	for _, v := range r.Env {
		if v.Name == name {
			return v, true
		}
	}
	return plan.EnvVar{}, false
}

func hasNotice(r Result, parts ...string) bool {
	return slices.ContainsFunc(r.Notices, func(n plan.Notice) bool {
		for _, p := range parts {
			if !strings.Contains(n.Text, p) {
				return false
			}
		}
		return true
	})
}

func TestBuildRefuses(t *testing.T) {
	ok := Policy{Base: BaseShell, Mode: ModeStrict}
	value := "v" + sentinel
	tests := []struct {
		name   string
		change func(*Input, *Policy)
		cause  error
		want   []string // parts of the explanation
	}{
		{"mode", func(_ *Input, p *Policy) { p.Mode = "STRICT" }, errMode, []string{"no such mode", "deny-secrets"}},
		{"no mode", func(_ *Input, p *Policy) { p.Mode = "" }, errMode, nil},
		{"base", func(_ *Input, p *Policy) { p.Base = "" }, errBase, []string{"no such base", "contract"}},
		{"prefix", func(_ *Input, p *Policy) { p.ControlPrefixes = []string{"X_", ""} }, errPrefix, nil},
		{"extra", func(_ *Input, p *Policy) { p.Extra = assigns("A-B=" + value) }, ErrName, []string{`"A-B"`}},
		{"set digit", func(_ *Input, p *Policy) { p.Set = assigns("1A=" + value) }, ErrName, []string{`"1A"`, "at --env 1A=...", "letters"}},
		{"set empty", func(_ *Input, p *Policy) { p.Set = assigns("=" + value) }, ErrName, []string{`""`}},
		{"set space", func(_ *Input, p *Policy) { p.Inject = assigns("A B=" + value) }, ErrName, []string{`"A B"`}},
		{"set equals", func(_ *Input, p *Policy) {
			p.Flags = []Assign{{"A=" + value, "x", plan.Origin{Text: "--env A=" + value}}}
		}, ErrName, []string{"variable A:", "at --env A=..."}},
		{"set NUL name", func(_ *Input, p *Policy) { p.Fixed = assigns("A\x00B=" + value) }, ErrName, nil},
		{"set NUL value", func(_ *Input, p *Policy) { p.Flags = assigns("A=" + value + "\x00") }, ErrValue, []string{"variable A", "NUL"}},
		{"pass pattern", func(_ *Input, p *Policy) { p.Pass = names("AWS_*") }, ErrName, []string{`"AWS_*"`, "allow"}},
		{"pass value", func(_ *Input, p *Policy) { p.Pass = names("A=" + value) }, ErrName, []string{"variable A:"}},
		{"auth", func(_ *Input, p *Policy) { p.Auth = names("A B")[0] }, ErrName, []string{`"A B"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, p := Input{Ambient: []string{"SECRET=" + value}}, ok
			tt.change(&in, &p)
			r, err := Build(in, p)
			if !errors.Is(err, tt.cause) {
				t.Fatalf("error %v, want %v", err, tt.cause)
			}
			var located *plan.Error
			if !errors.As(err, &located) {
				t.Errorf("%T is not a plan.Error", err)
			}
			checkResult(t, r)
			if len(r.Env) > 0 {
				t.Error("an environment comes with an error")
			}
			text := texts(r, err)
			if strings.Contains(text, sentinel) {
				t.Errorf("the error shows a value: %s", text)
			}
			for _, w := range tt.want {
				if !strings.Contains(text, w) {
					t.Errorf("no %q in %s", w, text)
				}
			}
		})
	}
	// All problems at once, in order.
	p := ok
	p.Set, p.Flags = assigns("1=a", "2=b"), assigns("3=c")
	_, err := Build(Input{}, p)
	if n := strings.Count(plan.Explain(err), "error:"); n != 3 {
		t.Errorf("%d problems reported, want 3: %v", n, err)
	}
}

func TestBuildZeroInput(t *testing.T) {
	for _, base := range fuzzBases {
		for _, mode := range []Mode{ModeOff, ModeDenySecrets, ModeStrict} {
			r := build(t, Input{}, Policy{Base: base, Mode: mode})
			want := "PATH=" + DefaultPath
			if mode == ModeOff {
				want = ""
			}
			if got := pairs(r); got != want {
				t.Errorf("%s %s: %q", base, mode, got)
			}
		}
	}
}

func TestOrderOfSteps(t *testing.T) {
	in := Input{Ambient: []string{"X=ambient", "P=ambient", "T_KEY=ambient"}, Home: "/h", TmpDir: "/t"}
	p := Policy{Base: BaseShell, Mode: ModeStrict, Allow: rules(t, "X")}
	step := func(name, value, reason string) {
		t.Helper()
		v, _ := get(build(t, in, p), name)
		if v.Value != value || v.Reason != reason {
			t.Errorf("%s = %q (%s), want %q (%s)", name, v.Value, v.Reason, value, reason)
		}
	}
	step("X", "ambient", "allow: X")
	p.Pass = names("P", "T_KEY")
	step("P", "ambient", "pass")
	p.Set = assigns("X=set1", "X=set2", "P=set", "T_KEY=set")
	step("X", "set2", "set") // the last one wins
	step("P", "set", "set")
	step("T_KEY", "set", "set")
	p.Auth = Name{Name: "T_KEY"}
	step("T_KEY", "ambient", "auth")
	p.Inject = assigns("X=inject", "T_KEY=inject")
	step("X", "inject", "injected")
	step("T_KEY", "inject", "injected")
	p.Fixed = assigns("X=fixed")
	step("X", "fixed", "fixed")
	step("HOME", "/h", "fixed: home")
	p.Flags = assigns("X=flag", "HOME=/flag", "TMPDIR=/flagtmp")
	step("X", "flag", "flag --env")
	step("HOME", "/flag", "flag --env")
	step("TMPDIR", "/flagtmp", "flag --env")
}

func TestFixedNamesCannotBeSet(t *testing.T) {
	in := Input{Home: "/h", TmpDir: "/t"}
	for _, name := range []string{"HOME", "TMPDIR", "TMP", "TEMP", "PWD"} {
		p := Policy{Base: BaseShell, Mode: ModeStrict, Fixed: assigns("PWD=/w")}
		p.Set = assigns(name + "=/" + sentinel)
		r := build(t, in, p)
		if v, _ := get(r, name); strings.Contains(v.Value, sentinel) {
			t.Errorf("set changed %s", name)
		}
		if !hasNotice(r, "ignoring the value of "+name+" in set") {
			t.Errorf("no word about %s in set: %v", name, r.Notices)
		}
		p.Set, p.Inject = nil, p.Set
		if r := build(t, in, p); !hasNotice(r, "ignoring the value of "+name+" in injected") {
			t.Errorf("no word about %s injected: %v", name, r.Notices)
		}
	}
}

func TestHomeInEveryMode(t *testing.T) {
	for _, base := range fuzzBases {
		for _, mode := range []Mode{ModeOff, ModeDenySecrets, ModeStrict} {
			in := Input{Ambient: []string{"HOME=/relocated", "TMPDIR=/var/x"}, Home: "/home/u", TmpDir: "/tmp"}
			r := build(t, in, Policy{Base: base, Mode: mode, Deny: rules(t, "HOME")})
			if v, _ := get(r, "HOME"); v.Value != "/home/u" || v.Reason != "fixed: home" {
				t.Errorf("%s %s: HOME=%q (%s)", base, mode, v.Value, v.Reason)
			}
			if v, _ := get(r, "TMPDIR"); v.Value != "/tmp" {
				t.Errorf("%s %s: TMPDIR=%q", base, mode, v.Value)
			}
			in.ScratchHome = true
			if v, _ := get(build(t, in, Policy{Base: base, Mode: mode}), "HOME"); v.Reason != "fixed: scratch home" {
				t.Errorf("%s %s: %s", base, mode, v.Reason)
			}
		}
	}
}

func TestTemporaryDirectories(t *testing.T) {
	in := Input{Ambient: []string{"TMP=/a", "TEMP=/b", "TMPDIR=/c"}, TmpDir: "/t"}
	for _, tt := range []struct {
		base Base
		mode Mode
		want string
	}{
		{BaseShell, ModeStrict, "TMPDIR=/t"},
		{BaseSession, ModeStrict, "TMPDIR=/t"},
		{BaseGate, ModeStrict, "TEMP=/t TMP=/t TMPDIR=/t"},
		{BaseProbe, ModeStrict, "TEMP=/t TMP=/t TMPDIR=/t"},
		{BaseShell, ModeDenySecrets, "TEMP=/t TMP=/t TMPDIR=/t"},
		{BaseShell, ModeOff, "TEMP=/t TMP=/t TMPDIR=/t"},
	} {
		r := build(t, in, Policy{Base: tt.base, Mode: tt.mode})
		if got := strings.ReplaceAll(pairs(r), "PATH="+DefaultPath+" ", ""); got != tt.want {
			t.Errorf("%s %s: %s", tt.base, tt.mode, got)
		}
	}
	if r := build(t, Input{TmpDir: "/t"}, Policy{Base: BaseGate, Mode: ModeStrict}); envNames(r) != "PATH TEMP TMP TMPDIR" {
		t.Errorf("a gate without ambient ones: %s", envNames(r))
	}
	r := build(t, in, Policy{Base: BaseShell, Mode: ModeStrict, Allow: rules(t, "TMP")})
	if v, _ := get(r, "TMP"); v.Value != "/t" || dropReason(r, "TEMP") == "" {
		t.Errorf("allowed TMP = %q, TEMP: %q", v.Value, dropReason(r, "TEMP"))
	}
}

func TestPath(t *testing.T) {
	tests := []struct {
		ambient, want string
		removed       bool
	}{
		{"PATH=/a:/b:/a", "/a:/b:/a", false},
		{"PATH=", DefaultPath, false},
		{"X=1", DefaultPath, false},
		{"PATH=/a::/b", "/a:/b", true},
		{"PATH=:/a", "/a", true},
		{"PATH=/a:", "/a", true},
		{"PATH=.:/a:bin:~/x", "/a", true},
		{"PATH=.", DefaultPath, true},
		{"PATH=:", DefaultPath, true},
		{"PATH=/\xff:/b", "/\xff:/b", false},
	}
	for _, tt := range tests {
		for _, mode := range []Mode{ModeStrict, ModeDenySecrets} {
			r := build(t, Input{Ambient: []string{tt.ambient}}, Policy{Base: BaseGate, Mode: mode})
			if v, _ := get(r, "PATH"); v.Value != tt.want {
				t.Errorf("%s %q: PATH=%q, want %q", mode, tt.ambient, v.Value, tt.want)
			}
			if hasNotice(r, "PATH") != tt.removed {
				t.Errorf("%s %q: notices %v", mode, tt.ambient, r.Notices)
			}
		}
	}
	r := build(t, Input{Ambient: []string{"PATH=.::/a"}}, Policy{Base: BaseGate, Mode: ModeOff})
	if pairs(r) != "PATH=.::/a" || len(r.Notices) > 0 {
		t.Errorf("off: %s %v", pairs(r), r.Notices)
	}
	r = build(t, Input{Ambient: []string{"PATH=/own"}}, Policy{Base: BaseGate, Mode: ModeStrict, Deny: rules(t, "path")})
	if v, _ := get(r, "PATH"); v.Value != DefaultPath || !strings.Contains(v.Reason, "denied") {
		t.Errorf("denied: %+v", v)
	}
	r = build(t, Input{}, Policy{Base: BaseGate, Mode: ModeStrict, Set: assigns("PATH=/a:.")})
	if v, _ := get(r, "PATH"); v.Value != "/a:." || !hasNotice(r, "PATH has 1 entry") {
		t.Errorf("set: %+v %v", v, r.Notices)
	}
}

func TestControlPlane(t *testing.T) {
	in := Input{Ambient: []string{"WALL_X=1", "wall_y=1", "WALLPAPER=1", "KRANZ_Z=1", "kranz_q=1"}}
	p := Policy{Base: BaseShell, ControlPrefixes: []string{"KRANZ_"}, Allow: rules(t, "WALL_X", "WALL_*", "KRANZ_Z", "*"), Pass: names("WALL_X")}
	for _, mode := range []Mode{ModeStrict, ModeDenySecrets} {
		p.Mode = mode
		r := build(t, in, p)
		if got := envNames(r); got != "PATH WALLPAPER" {
			t.Errorf("%s: %s", mode, got)
		}
		if got := dropReason(r, "wall_y"); got != "control plane: WALL_*" {
			t.Errorf("%s: %q", mode, got)
		}
		if !hasNotice(r, "WALL_X", "control plane") {
			t.Errorf("%s: %v", mode, r.Notices)
		}
	}
	// A value the operator sets is not the control plane's.
	p.Inject = assigns("WALL_X=mine")
	if v, _ := get(build(t, in, p), "WALL_X"); v.Value != "mine" {
		t.Errorf("injected: %+v", v)
	}
	p.Inject, p.Mode = nil, ModeOff
	if got := envNames(build(t, in, p)); got != "KRANZ_Z WALLPAPER WALL_X kranz_q wall_y" {
		t.Errorf("off: %s", got)
	}
}

func TestGuardedNames(t *testing.T) {
	in := Input{Ambient: []string{"CI_X=1", "CI_JOB_TOKEN=1", "CI_TOKENS=1", "LD_PRELOAD=/x.so", "DISPLAY=:0", "HTTP_PROXY=http://u:p@h", "K=-----BEGIN PRIVATE KEY-----"}}
	tests := []struct {
		mode  Mode
		glob  bool
		allow []string
		want  string
	}{
		{ModeStrict, false, nil, ""},
		{ModeStrict, false, []string{"*"}, "CI_X"},
		{ModeStrict, false, []string{"CI_*"}, "CI_X"},
		{ModeStrict, true, []string{"CI_*"}, "CI_JOB_TOKEN CI_TOKENS CI_X"},
		{ModeStrict, true, []string{"*"}, "CI_JOB_TOKEN CI_TOKENS CI_X DISPLAY HTTP_PROXY K LD_PRELOAD"},
		{ModeStrict, false, []string{"CI_*", "CI_JOB_TOKEN", "LD_PRELOAD", "DISPLAY", "HTTP_PROXY", "K"}, "CI_JOB_TOKEN CI_X DISPLAY HTTP_PROXY K LD_PRELOAD"},
		{ModeStrict, false, []string{"ci_job_token"}, ""},
		{ModeDenySecrets, false, nil, "CI_X"},
		{ModeDenySecrets, true, []string{"*"}, "CI_X"},
		{ModeDenySecrets, false, []string{"CI_JOB_TOKEN"}, "CI_X"}, // the reference's shapes always win
		{ModeDenySecrets, false, []string{"CI_TOKENS", "HTTP_PROXY", "K", "LD_PRELOAD", "DISPLAY"}, "CI_TOKENS CI_X DISPLAY HTTP_PROXY K LD_PRELOAD"},
	}
	for _, tt := range tests {
		allow := rules(t, tt.allow...)
		for i := range allow {
			allow[i].Guarded = tt.glob
		}
		r := build(t, in, Policy{Base: BaseSession, Mode: tt.mode, Allow: allow})
		want := strings.TrimSpace("PATH " + tt.want)
		got := strings.Fields(envNames(r))
		slices.Sort(got)
		w := strings.Fields(want)
		slices.Sort(w)
		if !slices.Equal(got, w) {
			t.Errorf("%s %v glob=%v: %v, want %v", tt.mode, tt.allow, tt.glob, got, w)
		}
	}
	r := build(t, in, Policy{Base: BaseSession, Mode: ModeStrict, Allow: rules(t, "CI_*")})
	if !hasNotice(r, `"CI_*"`, "CI_JOB_TOKEN, CI_TOKENS") {
		t.Errorf("notices: %v", r.Notices)
	}
	r = build(t, in, Policy{Base: BaseSession, Mode: ModeDenySecrets, Allow: rules(t, "CI_JOB_TOKEN", "LD_PRELOAD", "DISPLAY")})
	for _, want := range []string{"allow cannot admit CI_JOB_TOKEN", "LD_PRELOAD makes programs", "DISPLAY names a socket"} {
		if !hasNotice(r, want) {
			t.Errorf("no notice %q: %v", want, r.Notices)
		}
	}
	r = build(t, in, Policy{Base: BaseSession, Mode: ModeDenySecrets})
	for name, want := range map[string]string{
		"CI_JOB_TOKEN": "deny-secrets: *_TOKEN", "CI_TOKENS": "deny-secrets: *TOKENS",
		"LD_PRELOAD": "deny-secrets: makes programs load or run other code",
		"DISPLAY":    "deny-secrets: names a socket outside the box",
		"HTTP_PROXY": "deny-secrets: has a URL with credentials as its value",
		"K":          "deny-secrets: has a private key as its value",
	} {
		if got := dropReason(r, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	// Loader variables that are set by hand get a word.
	for _, p := range []Policy{
		{Set: assigns("LD_PRELOAD=x")}, {Inject: assigns("ld_preload=x")}, {Flags: assigns("BASH_ENV=x")},
		{Pass: names("LD_PRELOAD")}, {Auth: names("LD_PRELOAD")[0]},
	} {
		p.Base, p.Mode = BaseSession, ModeStrict
		if r := build(t, in, p); !hasNotice(r, "makes programs load or run other code") {
			t.Errorf("%+v: no notice", p)
		}
	}
}

func TestCallerState(t *testing.T) {
	in := Input{Ambient: []string{"PWD=/x", "OLDPWD=/y", "SHLVL=2", "_=/usr/bin/wall"}}
	for mode, want := range map[Mode]string{ModeStrict: "PATH", ModeDenySecrets: "OLDPWD PATH", ModeOff: "OLDPWD PWD SHLVL _"} {
		if got := envNames(build(t, in, Policy{Base: BaseShell, Mode: mode})); got != want {
			t.Errorf("%s: %s", mode, got)
		}
	}
	r := build(t, in, Policy{Base: BaseShell, Mode: ModeOff, Fixed: assigns("PWD=/w")})
	if v, _ := get(r, "PWD"); v.Value != "/w" {
		t.Errorf("PWD=%q", v.Value)
	}
}

func TestDescriptorNames(t *testing.T) {
	in := Input{Ambient: []string{"LISTEN_FDS=1", "LISTEN_PID=7", "LISTEN_FDNAMES=a", "LISTEN_PIDFDID=9", "NODE_CHANNEL_FD=3", "BASH_XTRACEFD=9",
		"MAKEFLAGS=w -j4 --jobserver-auth=3,4 -- A=b", "MFLAGS=-j4 --jobserver-fds=3,4", "CARGO_MAKEFLAGS=-j --jobserver-fds=3,4 --jobserver-auth=3,4", "GNUMAKEFLAGS=-j8"}}
	for _, mode := range []Mode{ModeOff, ModeDenySecrets, ModeStrict} {
		p := Policy{Base: BaseShell, Mode: mode, Allow: rules(t, "LISTEN_FDS", "*")}
		r := build(t, in, p)
		if got := strings.ReplaceAll(pairs(r), " PATH="+DefaultPath, ""); got != "GNUMAKEFLAGS=-j8 MAKEFLAGS=w -- A=b" {
			t.Errorf("%s: %s", mode, got)
		}
		if v, _ := get(r, "MAKEFLAGS"); !strings.HasSuffix(v.Reason, ", without the jobserver") {
			t.Errorf("%s: %s", mode, v.Reason)
		}
		if dropReason(r, "LISTEN_FDS") == "" || dropReason(r, "MFLAGS") == "" {
			t.Errorf("%s: dropped %v", mode, r.Dropped)
		}
		p.KeepFDs = true
		r = build(t, in, p)
		if v, _ := get(r, "MAKEFLAGS"); v.Value != "w -j4 --jobserver-auth=3,4 -- A=b" {
			t.Errorf("%s, descriptors kept: MAKEFLAGS=%q", mode, v.Value)
		}
		if _, ok := get(r, "LISTEN_FDS"); !ok {
			t.Errorf("%s, descriptors kept: no LISTEN_FDS", mode)
		}
	}
	r := build(t, in, Policy{Base: BaseShell, Mode: ModeStrict, Pass: names("LISTEN_FDS", "MAKEFLAGS")})
	if v, _ := get(r, "MAKEFLAGS"); v.Value != "w -- A=b" || !hasNotice(r, "LISTEN_FDS", "descriptor") || strings.Contains(envNames(r), "LISTEN") {
		t.Errorf("pass: %s %v", pairs(r), r.Notices)
	}
}

func TestOddAmbient(t *testing.T) {
	in := Input{Ambient: []string{"A=1", "B=", "A=2", "NOEQUALS" + sentinel, "", "=hidden" + sentinel, "N\x00=1", "V=\x00", "L=\xff\xfe", "\xff=1", "E==x=", "S P=1", "A=3"}}
	for _, mode := range []Mode{ModeOff, ModeDenySecrets} {
		r := build(t, in, Policy{Base: BaseShell, Mode: mode, Fixed: assigns("PATH=/p")})
		if got := pairs(r); got != "A=3 B= E==x= L=\xff\xfe PATH=/p S P=1 \xff=1" {
			t.Errorf("%s: %q", mode, got)
		}
		if !hasNotice(r, "ignoring 3 entries", "without a name") || !hasNotice(r, "ignoring 2 entries", "NUL") {
			t.Errorf("%s: %v", mode, r.Notices)
		}
		if strings.Contains(texts(r, nil), sentinel) {
			t.Errorf("%s: an entry without a name is shown", mode)
		}
	}
}

func TestOffIgnoresDenyAndSaysSo(t *testing.T) {
	r := build(t, Input{Ambient: []string{"X=1"}}, Policy{Base: BaseTerminal, Mode: ModeOff, Deny: rules(t, "X")})
	if envNames(r) != "X" || !hasNotice(r, "deny list has no effect") {
		t.Errorf("%s %v", envNames(r), r.Notices)
	}
}

func TestDenyStopsPassAuthAndDerived(t *testing.T) {
	in := Input{Ambient: []string{"X=1", "K_KEY=1"}, AccountHome: "/home/u", FS: fstest.MapFS{"home/u/.rustup/x": {}}}
	r := build(t, in, Policy{Base: BaseContract, Mode: ModeStrict, Deny: rules(t, "x", "k_*", "rustup_home"), Pass: names("X"), Auth: names("K_KEY")[0]})
	if envNames(r) != "PATH" || !hasNotice(r, "X", "denied by x") || !hasNotice(r, "K_KEY", `denied by "k_*"`) {
		t.Errorf("%s %v", envNames(r), r.Notices)
	}
}

func TestOriginsHideValues(t *testing.T) {
	file := func(text string) plan.Origin { return plan.Origin{File: "p.toml", Line: 3, Text: text} }
	line := `environment = { set = { A = "` + sentinel + `" }, pass = ["P"], allow = ["Q"], auth = "R" }`
	in := Input{Ambient: []string{"P=" + sentinel, "Q=" + sentinel, "R=" + sentinel, "TERM=" + sentinel}}
	p := Policy{
		Base: BaseSession, BaseOrigin: file(line), Mode: ModeStrict, ModeOrigin: file(line),
		Allow: []Rule{{Pattern: pattern(t, "Q"), Origin: file(line)}},
		Deny:  []Rule{{Pattern: pattern(t, "Z"), Origin: file(line)}},
		Pass:  []Name{{"P", file(line)}, {"PATH", file(line)}, {"UNSET", file(line)}},
		Auth:  Name{"R", file(line)},
		Set:   []Assign{{"A", sentinel, file(line)}, {"LD_PRELOAD", sentinel, file(line)}},
		Flags: []Assign{
			{"B", sentinel, plan.Origin{Text: "--env B=" + sentinel}},
			{"C", sentinel, plan.Origin{Text: "--env=C=" + sentinel}},
			{"D", sentinel, plan.Origin{Text: "-e" + sentinel}},
			{"env", sentinel, plan.Origin{Text: "--env env=" + sentinel}},
		},
	}
	r := build(t, in, p)
	if s := texts(r, nil); strings.Contains(s, sentinel) {
		t.Errorf("a value is shown:\n%s", s)
	}
	for name, want := range map[string]string{
		"A": "p.toml:3: A", "B": "--env B=...", "C": "--env=C=...", "D": "D", "P": "p.toml:3: P", "Q": "p.toml:3: Q", "R": "p.toml:3: R",
		"TERM": `p.toml:3: base = "session"`,
	} {
		if v, _ := get(r, name); v.Origin.String() != want {
			t.Errorf("%s: origin %q, want %q", name, v.Origin, want)
		}
	}
	p.Set = append(p.Set, Assign{"9", sentinel, file(line)})
	if _, err := Build(in, p); err == nil || strings.Contains(plan.Explain(err), sentinel) {
		t.Errorf("error: %v", err)
	}
}

func TestParseModeAndBase(t *testing.T) {
	for _, s := range []string{"off", "deny-secrets", "strict"} {
		if m, err := ParseMode(s); err != nil || string(m) != s {
			t.Errorf("%s: %v %v", s, m, err)
		}
	}
	for _, s := range []string{"", "OFF", " strict", "none"} {
		if m, err := ParseMode(s); !errors.Is(err, errMode) || m != "" {
			t.Errorf("%q: %v %v", s, m, err)
		}
	}
	for base, mode := range map[Base]Mode{BaseShell: ModeDenySecrets, BaseTerminal: ModeOff, BaseSession: ModeStrict, BaseContract: ModeStrict, BaseGate: ModeStrict, BaseProbe: ModeStrict, BaseWorkspace: ModeStrict} {
		if b, err := ParseBase(string(base)); err != nil || b != base || b.DefaultMode() != mode {
			t.Errorf("%s: %v %v %v", base, b, err, b.DefaultMode())
		}
	}
	if _, err := ParseBase("Shell"); !errors.Is(err, errBase) {
		t.Errorf("Shell: %v", err)
	}
}
