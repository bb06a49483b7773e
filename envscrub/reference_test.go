package envscrub

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

// The tests of this file are the counterparts of the tests that the two
// reference systems have for their environments; the names say which.

// kranzNever is the set that the reference's tests pin as never present.
const kranzNever = "GH_TOKEN GITHUB_TOKEN SLACK_BOT_TOKEN AWS_SECRET_ACCESS_KEY ANTHROPIC_API_KEY OPENAI_API_KEY SSH_AUTH_SOCK GOOGLE_APPLICATION_CREDENTIALS"

// poisoned is an environment with everything that any table knows, and with
// what none may let cross.
func poisoned() []string {
	var env []string
	for name := range strings.FieldsSeq("TERM LANG LC_ALL LC_CTYPE LANGUAGE TZ USER LOGNAME SHELL COLORTERM CI USERPROFILE TMP TEMP TMPDIR HOME " +
		"RUSTUP_HOME NPM_CONFIG_CACHE CARGO_HOME EDITOR HTTP_PROXY APPDATA GOFLAGS " + kranzNever) {
		env = append(env, name+"=ambient-"+name)
	}
	return append(env, "PATH=/usr/bin:/bin")
}

var kranzInput = Input{Ambient: poisoned(), AccountHome: "/home/u", OS: "linux", Home: "/scratch/home", TmpDir: "/scratch/home/tmp", ScratchHome: true}

// agent_env: starts empty, no secret, exact allowlist; later gate env allowlist
// and negative list.
func TestKranzExactAllowlist(t *testing.T) {
	for base, want := range map[Base]string{
		BaseSession:  "HOME LANG LC_ALL NPM_CONFIG_CACHE PATH RUSTUP_HOME TERM TMPDIR TZ USER",
		BaseContract: "HOME LANG LC_ALL NPM_CONFIG_CACHE PATH RUSTUP_HOME TERM TMPDIR TZ USER",
		BaseGate:     "CI HOME LANG LC_ALL NPM_CONFIG_CACHE PATH RUSTUP_HOME TEMP TERM TMP TMPDIR TZ USERPROFILE",
		BaseProbe:    "HOME LANG LC_ALL PATH TEMP TERM TMP TMPDIR TZ USER USERPROFILE",
	} {
		r := build(t, kranzInput, Policy{Base: base, Mode: ModeStrict})
		if got := envNames(r); got != want {
			t.Errorf("%s: %s\nwant %s", base, got, want)
		}
		for name := range strings.FieldsSeq(kranzNever) {
			if dropReason(r, name) == "" {
				t.Errorf("%s: %s is not reported as dropped", base, name)
			}
		}
		if len(r.Env)+len(r.Dropped) != len(kranzInput.Ambient) {
			t.Errorf("%s: %d kept and %d dropped of %d", base, len(r.Env), len(r.Dropped), len(kranzInput.Ambient))
		}
		if v, _ := get(r, "HOME"); v.Value != "/scratch/home" {
			t.Errorf("%s: HOME=%s", base, v.Value)
		}
		if v, _ := get(r, "TMPDIR"); v.Value != "/scratch/home/tmp" {
			t.Errorf("%s: TMPDIR=%s", base, v.Value)
		}
	}
}

// agent_env: only the backend's own auth key, only when it has a value.
func TestKranzOnlyOwnAuthKey(t *testing.T) {
	p := Policy{Base: BaseSession, Mode: ModeStrict, Auth: Name{Name: "ANTHROPIC_API_KEY"}}
	r := build(t, kranzInput, p)
	if v, _ := get(r, "ANTHROPIC_API_KEY"); v.Value != "ambient-ANTHROPIC_API_KEY" || v.Reason != "auth" {
		t.Errorf("%+v", v)
	}
	if _, ok := get(r, "OPENAI_API_KEY"); ok {
		t.Error("another key crosses")
	}
	in := kranzInput
	in.Ambient = []string{"ANTHROPIC_API_KEY="}
	if r := build(t, in, p); strings.Contains(envNames(r), "ANTHROPIC") || dropReason(r, "ANTHROPIC_API_KEY") == "" {
		t.Errorf("an empty key crosses: %s", envNames(r))
	}
	in.Ambient = nil
	if r := build(t, in, p); strings.Contains(envNames(r), "ANTHROPIC") {
		t.Errorf("a missing key crosses: %s", envNames(r))
	}
	// Ambient auth beats what the specification sets under the same name.
	p.Set = assigns("ANTHROPIC_API_KEY=spec")
	if v, _ := get(build(t, kranzInput, p), "ANTHROPIC_API_KEY"); v.Value != "ambient-ANTHROPIC_API_KEY" {
		t.Errorf("%+v", v)
	}
	if v, _ := get(build(t, in, p), "ANTHROPIC_API_KEY"); v.Value != "spec" {
		t.Errorf("%+v", v)
	}
}

// agent_env: operator home from the account record with HOME unset; derived
// toolchain homes; an explicit variable wins; the extension never carries
// CARGO_HOME.
func TestKranzToolchainHomes(t *testing.T) {
	tree := fstest.MapFS{"home/u/.rustup/settings.toml": {}, "home/u/.npm": {}, "home/u/.cargo/bin/cargo": {}, "home/v/.npm/x": {}}
	tests := []struct {
		name    string
		ambient []string
		home    string
		base    Base
		want    string
	}{
		{"derived; .npm is a file", nil, "/home/u", BaseSession, "RUSTUP_HOME=/home/u/.rustup"},
		{"contract", nil, "/home/u", BaseContract, "RUSTUP_HOME=/home/u/.rustup"},
		{"not of the relocated HOME", []string{"HOME=/home/v"}, "/home/u", BaseSession, "RUSTUP_HOME=/home/u/.rustup"},
		{"other home", nil, "/home/v/", BaseSession, "NPM_CONFIG_CACHE=/home/v/.npm"},
		{"explicit wins", []string{"RUSTUP_HOME=/opt/rustup", "NPM_CONFIG_CACHE=/c"}, "/home/u", BaseSession, "NPM_CONFIG_CACHE=/c RUSTUP_HOME=/opt/rustup"},
		{"empty is not set", []string{"RUSTUP_HOME="}, "/home/u", BaseSession, "RUSTUP_HOME=/home/u/.rustup"},
		{"empty without a directory", []string{"RUSTUP_HOME="}, "/home/w", BaseSession, ""},
		{"empty without a record", []string{"RUSTUP_HOME="}, "", BaseSession, ""},
		{"no record", nil, "", BaseSession, ""},
		{"no record, so HOME", []string{"HOME=/home/u"}, "", BaseSession, "RUSTUP_HOME=/home/u/.rustup"},
		{"no record, HOME is relative", []string{"HOME=home/u"}, "", BaseSession, ""},
		{"root as home", nil, "/", BaseSession, ""},
		{"gate does not derive", nil, "/home/u", BaseGate, ""},
		{"shell does not derive", nil, "/home/u", BaseShell, ""},
		{"CARGO_HOME never", []string{"CARGO_HOME=/home/u/.cargo"}, "/home/u", BaseSession, "RUSTUP_HOME=/home/u/.rustup"},
	}
	for _, tt := range tests {
		in := Input{Ambient: tt.ambient, AccountHome: tt.home, FS: tree}
		r := build(t, in, Policy{Base: tt.base, Mode: ModeStrict, Fixed: assigns("PATH=/p")})
		if got := strings.TrimSuffix(strings.ReplaceAll(pairs(r)+" ", "PATH=/p ", ""), " "); got != tt.want && !(tt.base == BaseGate && got == "") {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	r := build(t, Input{Ambient: []string{"RUSTUP_HOME="}, AccountHome: "/home/w", FS: tree}, Policy{Base: BaseSession, Mode: ModeStrict})
	if dropReason(r, "RUSTUP_HOME") != "base: empty counts as not set" {
		t.Errorf("dropped: %v", r.Dropped)
	}
	// Off changes nothing, an empty one included.
	r = build(t, Input{Ambient: []string{"RUSTUP_HOME="}, AccountHome: "/home/u", FS: tree}, Policy{Base: BaseSession, Mode: ModeOff})
	if pairs(r) != "RUSTUP_HOME=" {
		t.Errorf("off: %s", pairs(r))
	}
}

// agent_env: contract shape, passthrough admitted, managed name refused in
// other casing, unset name ignored, no base commit gives no key.
func TestKranzContractPassthrough(t *testing.T) {
	in := kranzInput
	in.Ambient = append(slices.Clone(in.Ambient), "DB=1", "EMPTY=", "path=/evil", "cargo_home=/evil", "SystemDrive=C:", "pwd=/evil")
	p := Policy{Base: BaseContract, Mode: ModeStrict, Pass: names("DB", " GH_TOKEN ", "", "  ", "EMPTY", "UNSET", "path", "cargo_home", "Home", "SYSTEMDRIVE", "pwd", "kranz_base_sha")}
	r := build(t, in, p)
	if got := envNames(r); got != "DB EMPTY GH_TOKEN HOME LANG LC_ALL NPM_CONFIG_CACHE PATH RUSTUP_HOME TERM TMPDIR TZ USER" {
		t.Errorf("names: %s", got)
	}
	for _, name := range []string{"path", "cargo_home", "Home", "SYSTEMDRIVE", "pwd", "kranz_base_sha"} {
		if !hasNotice(r, "ignoring the pass-through of "+name, "wall decides") {
			t.Errorf("no warning for %s", name)
		}
	}
	if !hasNotice(r, "UNSET is not set") || len(r.Notices) != 7 {
		t.Errorf("%d notices: %v", len(r.Notices), r.Notices)
	}
	if strings.Contains(envNames(r), BaseSHAName) {
		t.Error("a base commit from nowhere")
	}
	// What wall fixes is managed too, in any casing.
	p.Fixed = assigns(BaseSHAName+"=abc", "MY_BASE=abc")
	p.Pass = names("my_base")
	r = build(t, in, p)
	if v, _ := get(r, BaseSHAName); v.Value != "abc" || !hasNotice(r, "my_base", "wall decides") {
		t.Errorf("%+v %v", v, r.Notices)
	}
}

// command_exec and the end-to-end tests: a real child sees exactly the
// environment that was built and no poisoned secret.
func TestKranzRealChild(t *testing.T) {
	env, err := exec.LookPath("env")
	if err != nil {
		t.Skip("no env(1)")
	}
	for _, base := range fuzzBases {
		for _, mode := range []Mode{ModeDenySecrets, ModeStrict} {
			in := kranzInput
			in.Ambient = append(slices.Clone(in.Ambient), "RAW=a\xffb\nc", "EMPTY=")
			r := build(t, in, Policy{Base: base, Mode: mode, Pass: names("RAW", "EMPTY")})
			cmd := exec.Command(env, "-0")
			cmd.Env = []string{}
			for _, v := range r.Env {
				cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
			}
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
			slices.Sort(got)
			want := slices.Clone(cmd.Env)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%s %s: the child has %q\nwant %q", base, mode, got, want)
			}
			for name := range strings.FieldsSeq(kranzNever) {
				if base == BaseWorkspace && name == "SSH_AUTH_SOCK" {
					continue // its one operational name
				}
				if bytes.Contains(out, []byte("ambient-"+name)) {
					t.Errorf("%s %s: the child sees %s", base, mode, name)
				}
			}
		}
	}
}

var shellAmbient = []string{"PATH=/bin", "HOME=/home/u", "TERM=xterm", "LC_TIME=C", "LOGNAME=u", "SHELL=/bin/sh", "GOFLAGS=-v", "APP_ENV=dev",
	"GH_TOKEN=1", "STRIPE_SECRET_KEY=1", "CONTENOX_URL=1", "WALL_SOCKET=1"}

// Default policy keeps the base and drops secrets; only names that are present;
// HOME is not in the strict base and nothing forces it (here: when the box has
// none of its own).
func TestContenoxModes(t *testing.T) {
	for mode, want := range map[Mode]string{
		ModeOff:         "APP_ENV CONTENOX_URL GH_TOKEN GOFLAGS HOME LC_TIME LOGNAME PATH SHELL STRIPE_SECRET_KEY TERM WALL_SOCKET",
		ModeDenySecrets: "APP_ENV GOFLAGS HOME LC_TIME LOGNAME PATH SHELL TERM",
		ModeStrict:      "LC_TIME LOGNAME PATH SHELL TERM",
	} {
		for _, base := range []Base{BaseShell, BaseTerminal} {
			if got := envNames(build(t, Input{Ambient: shellAmbient}, Policy{Base: base, Mode: mode})); got != want {
				t.Errorf("%s %s: %s", base, mode, got)
			}
		}
	}
}

// Strict base table, each name alone.
func TestContenoxStrictBase(t *testing.T) {
	for name := range strings.FieldsSeq("PATH TERM COLORTERM TZ LANG LANGUAGE LC_ALL LC_X LC_ TMPDIR USER LOGNAME SHELL") {
		if _, ok := get(build(t, Input{Ambient: []string{name + "=/x"}}, Policy{Base: BaseShell, Mode: ModeStrict}), name); !ok {
			t.Errorf("%s does not cross", name)
		}
	}
	for name := range strings.FieldsSeq("LC_TOKEN LC_API_KEY LC_SECRET") {
		r := build(t, Input{Ambient: []string{name + "=/x"}}, Policy{Base: BaseShell, Mode: ModeStrict})
		if _, ok := get(r, name); ok || dropReason(r, name) == "" {
			t.Errorf("%s crosses as a locale", name)
		}
		if r := build(t, Input{Ambient: []string{name + "=/x"}}, Policy{Base: BaseShell, Mode: ModeStrict, Allow: rules(t, name)}); !strings.Contains(envNames(r), name) {
			t.Errorf("%s does not cross when named", name)
		}
	}
	for name := range strings.FieldsSeq("term Term HOME LC XLC_ALL LANGUAGES TMP CI") {
		r := build(t, Input{Ambient: []string{name + "=/x"}}, Policy{Base: BaseShell, Mode: ModeStrict})
		if _, ok := get(r, name); ok || dropReason(r, name) != "strict: not in the shell table and not allowed" {
			t.Errorf("%s: %q", name, dropReason(r, name))
		}
	}
}

// Every one of the 24 shapes is dropped by deny-secrets in any casing, also
// when it is allowed by name, and the old seven among them.
func TestContenoxSecretShapes(t *testing.T) {
	for _, p := range SecretShapes() {
		name := strings.ReplaceAll(p.String(), "*", "x")
		for _, n := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			r := build(t, Input{Ambient: []string{n + "=1"}}, Policy{Base: BaseShell, Mode: ModeDenySecrets, Allow: rules(t, n, "*")})
			if _, ok := get(r, n); ok {
				t.Errorf("%s: %s crosses", p, n)
			}
		}
	}
}

// Deny wins over allow and over the base, without regard to case; allow regards
// case.
func TestContenoxDenyWinsAndCase(t *testing.T) {
	in := Input{Ambient: []string{"FOO=1", "foo=1", "TERM=x", "GOFLAGS=1"}}
	p := Policy{Base: BaseShell, Mode: ModeStrict, Allow: rules(t, "FOO", "GO*"), Deny: rules(t, "term", "goflags")}
	r := build(t, in, p)
	if got := envNames(r); got != "FOO PATH" {
		t.Errorf("strict: %s", got)
	}
	if got := dropReason(r, "TERM"); got != "deny: term" {
		t.Errorf("TERM: %q", got)
	}
	p.Mode = ModeDenySecrets
	p.Deny = rules(t, "Fo*")
	if got := envNames(build(t, in, p)); got != "GOFLAGS PATH TERM" {
		t.Errorf("deny-secrets: %s", got)
	}
}

// Strict can re-permit one inherited credential by naming it; deny-secrets
// cannot; nothing re-permits the control plane.
func TestContenoxStrictRepermits(t *testing.T) {
	p := Policy{Base: BaseShell, Mode: ModeStrict, Allow: rules(t, "GH_TOKEN", "WALL_SOCKET", "CONTENOX_URL"), ControlPrefixes: []string{"CONTENOX_"}}
	r := build(t, Input{Ambient: shellAmbient}, p)
	if v, _ := get(r, "GH_TOKEN"); v.Reason != "allow: GH_TOKEN" || v.Origin.Text != "rule GH_TOKEN" {
		t.Errorf("%+v", v)
	}
	if got := envNames(r); got != "GH_TOKEN LC_TIME LOGNAME PATH SHELL TERM" {
		t.Errorf("strict: %s", got)
	}
	p.Mode = ModeDenySecrets
	if got := envNames(build(t, Input{Ambient: shellAmbient}, p)); got != "APP_ENV GOFLAGS HOME LC_TIME LOGNAME PATH SHELL TERM" {
		t.Errorf("deny-secrets: %s", got)
	}
}

// Overlay: add, override, empty value, nothing to do, after the scrub, also
// when the scrub is off and for the control plane.
func TestContenoxInjection(t *testing.T) {
	for _, mode := range []Mode{ModeOff, ModeDenySecrets, ModeStrict} {
		in := Input{Ambient: shellAmbient}
		without := build(t, in, Policy{Base: BaseShell, Mode: mode})
		if r := build(t, in, Policy{Base: BaseShell, Mode: mode, Inject: []Assign{}}); pairs(r) != pairs(without) {
			t.Errorf("%s: an empty overlay changes %s", mode, pairs(r))
		}
		r := build(t, in, Policy{Base: BaseShell, Mode: mode, Deny: rules(t, "DATABASE_URL"),
			Inject: assigns("DATABASE_URL=postgres://u:p@h/x?a=b", "TERM=dumb", "GH_TOKEN=mine", "EMPTY=", "CONTENOX_X=1", "PATH=/own")})
		for name, want := range map[string]string{"DATABASE_URL": "postgres://u:p@h/x?a=b", "TERM": "dumb", "GH_TOKEN": "mine", "EMPTY": "", "CONTENOX_X": "1", "PATH": "/own"} {
			if v, ok := get(r, name); !ok || v.Value != want || v.Reason != "injected" {
				t.Errorf("%s: %s = %+v", mode, name, v)
			}
		}
		if dropReason(r, "GH_TOKEN") != "" {
			t.Errorf("%s: an injected name is reported as dropped", mode)
		}
	}
}

// Sorted, de-duplicated, malformed entries skipped, bare star, and the caller's
// slices are not changed.
func TestContenoxFilterShape(t *testing.T) {
	in := Input{Ambient: []string{"Z=1", "A=1", "junk", "M=1", "A=2", "=x"}}
	p := Policy{Base: BaseShell, Mode: ModeStrict, Allow: rules(t, "*"), Fixed: assigns("PATH=/p"), Pass: names(" M "), Flags: assigns("B=1")}
	ambient, allow, pass := slices.Clone(in.Ambient), slices.Clone(p.Allow), slices.Clone(p.Pass)
	r := build(t, in, p)
	if got := pairs(r); got != "A=2 B=1 M=1 PATH=/p Z=1" {
		t.Errorf("%s", got)
	}
	if !slices.Equal(ambient, in.Ambient) || !slices.Equal(allow, p.Allow) || !slices.Equal(pass, p.Pass) {
		t.Error("an argument was changed")
	}
}

// Extra lists do not alter the defaults of a later call.
func TestContenoxDefaultsUnaltered(t *testing.T) {
	p := Policy{Base: BaseShell, Mode: ModeStrict}
	before := pairs(build(t, Input{Ambient: shellAmbient}, p))
	q := p
	q.Allow, q.Deny, q.ControlPrefixes = rules(t, "*"), rules(t, "TERM"), []string{"LC_"}
	build(t, Input{Ambient: shellAmbient}, q)
	if after := pairs(build(t, Input{Ambient: shellAmbient}, p)); after != before {
		t.Errorf("%s, before %s", after, before)
	}
}

// Every admitted variable knows its rule and where it came from.
func TestReasonsAndOrigins(t *testing.T) {
	in := Input{Ambient: []string{"PATH=/bin", "TERM=x", "LC_TIME=C", "GOFLAGS=1", "P=1", "K_KEY=1"}, Home: "/h", TmpDir: "/t",
		AccountHome: "/home/u", FS: fstest.MapFS{"home/u/.rustup/x": {}}}
	flag := func(s string) plan.Origin { return plan.Origin{Text: s} }
	r := build(t, in, Policy{Base: BaseSession, Mode: ModeStrict, BaseOrigin: flag("built-in"),
		Allow: []Rule{{Pattern: pattern(t, "LC_*"), Origin: flag("--allow-env LC_*")}, {Pattern: pattern(t, "GOFLAGS"), Origin: plan.Origin{File: "a.toml", Line: 2, Text: "allow = [...]"}}},
		Pass:  names("P"), Auth: Name{"K_KEY", flag("auth")}, Set: assigns("S=1"), Inject: assigns("I=1"), Fixed: assigns("PWD=/w"), Flags: assigns("F=1")})
	var got []string
	for _, v := range r.Env {
		got = append(got, v.Name+" | "+v.Reason+" | "+v.Origin.String())
	}
	want := []string{
		"F | flag --env | --env F=...",
		"GOFLAGS | allow: GOFLAGS | a.toml:2: GOFLAGS",
		"HOME | fixed: home | default",
		"I | injected | --env I=...",
		"K_KEY | auth | auth",
		"LC_TIME | allow: LC_* | --allow-env LC_*",
		"P | pass | --pass P",
		"PATH | base: always | built-in",
		"PWD | fixed | --env PWD=...",
		"RUSTUP_HOME | base: ~/.rustup exists | built-in",
		"S | set | --env S=...",
		"TERM | base: session table | built-in",
		"TMPDIR | fixed: temporary directory | default",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
