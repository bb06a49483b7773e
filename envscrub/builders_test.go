package envscrub

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// agent_env: what the specification of a session sets is last, verbatim and in
// order, and may replace anything; but the ambient credential beats it.
func TestKranzSessionExtra(t *testing.T) {
	spec := assigns("GIT_AUTHOR_NAME=a", "HOME=/spec/home", "PATH=relative:", "CARGO_HOME=/c", "GIT_AUTHOR_NAME=b", "TMPDIR=", "LD_PRELOAD=x", "ANTHROPIC_API_KEY=spec")
	p := Session(spec, Name{Name: "ANTHROPIC_API_KEY"})
	p.Set, p.Flags, p.Deny = assigns("GIT_AUTHOR_NAME=set"), assigns("GIT_AUTHOR_NAME=flag"), rules(t, "GIT_*", "CARGO_HOME")
	r := build(t, kranzInput, p)
	for name, want := range map[string]string{"GIT_AUTHOR_NAME": "b", "HOME": "/spec/home", "PATH": "relative:", "CARGO_HOME": "/c", "TMPDIR": "", "LD_PRELOAD": "x"} {
		if v, ok := get(r, name); !ok || v.Value != want || v.Reason != "extra" {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v, _ := get(r, "ANTHROPIC_API_KEY"); v.Value != "ambient-ANTHROPIC_API_KEY" || v.Reason != "auth" {
		t.Errorf("%+v", v)
	}
	for _, ambient := range [][]string{nil, {"ANTHROPIC_API_KEY="}} {
		in := kranzInput
		in.Ambient = ambient
		p := Session(spec, Name{Name: "ANTHROPIC_API_KEY"})
		p.Set = assigns("ANTHROPIC_API_KEY=set")
		if v, _ := get(build(t, in, p), "ANTHROPIC_API_KEY"); v.Value != "spec" {
			t.Errorf("without an ambient value: %+v", v)
		}
	}
	if !hasNotice(r, "LD_PRELOAD makes programs") || !hasNotice(r, "PATH has 2 entries") {
		t.Errorf("%v", r.Notices)
	}
	if got := envNames(build(t, kranzInput, Session(nil, Name{}))); got != "HOME LANG LC_ALL NPM_CONFIG_CACHE PATH RUSTUP_HOME TERM TMPDIR TZ USER" {
		t.Errorf("without a specification: %s", got)
	}
}

// agent_env: the HOME of the specification is honoured, else the scratch home.
func TestKranzSessionDirs(t *testing.T) {
	for _, tt := range []struct {
		spec      []Assign
		home, tmp string
		scratch   bool
	}{
		{nil, "/s/home", "/s/home/tmp", true},
		{assigns("A=1", "home=/x"), "/s/home", "/s/home/tmp", true},
		{assigns("HOME="), "/s/home", "/s/home/tmp", true},
		{assigns("HOME=/a", "HOME=/b/"), "/b/", "/b/tmp", false},
	} {
		if home, tmp, scratch := SessionDirs(tt.spec, "/s/home"); home != tt.home || tmp != tt.tmp || scratch != tt.scratch {
			t.Errorf("%v: %s %s %v", tt.spec, home, tmp, scratch)
		}
	}
}

// agent_env: the base commit is there only when one is pinned, under the name
// that the caller chose, and cannot be passed or set from outside.
func TestKranzContractBaseSHA(t *testing.T) {
	in := kranzInput
	in.Ambient = append(slices.Clone(in.Ambient), "KRANZ_BASE_SHA=ambient", "OWN_SHA=ambient", "DB=1")
	const others = "HOME LANG LC_ALL NPM_CONFIG_CACHE PATH RUSTUP_HOME TERM TMPDIR TZ USER"
	for _, tt := range []struct {
		sha, name, want, value string
	}{
		{"", "", "", ""},
		{"abc", "", "KRANZ_BASE_SHA", "abc"},
		{"abc", "OWN_SHA", "OWN_SHA", "abc"},
		{"", "OWN_SHA", "", ""},
	} {
		pass := []string{"KRANZ_BASE_SHA", "kranz_base_sha", "DB"}
		if tt.name != "" {
			pass = append(pass, tt.name, "own_sha")
		}
		r := build(t, in, Contract(ContractOptions{BaseSHA: tt.sha, BaseSHAName: tt.name, Pass: names(pass...)}))
		want := strings.Fields(others + " DB " + tt.want)
		slices.Sort(want)
		if got := strings.Fields(envNames(r)); !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", tt, got, want)
		}
		if v, _ := get(r, tt.want); v.Value != tt.value {
			t.Errorf("%+v: %+v", tt, v)
		}
		if len(r.Notices) != len(pass)-1 || !hasNotice(r, "kranz_base_sha", "wall decides") {
			t.Errorf("%+v: %v", tt, r.Notices)
		}
	}
	if _, err := Build(in, Contract(ContractOptions{BaseSHA: "abc", BaseSHAName: "OWN-SHA"})); !errors.Is(err, ErrName) {
		t.Errorf("a name that is none: %v", err)
	}
	if _, err := Build(in, Contract(ContractOptions{BaseSHA: "a\x00"})); !errors.Is(err, ErrValue) {
		t.Errorf("a commit with NUL: %v", err)
	}
}

// The gate replaces the Cargo home; the probe has the real home and one
// credential.
func TestKranzGateAndProbe(t *testing.T) {
	in := kranzInput
	in.Home, in.ScratchHome = "/home/u", false
	p := Gate()
	p.Fixed = append(p.Fixed, Assign{Name: "CARGO_HOME", Value: "/scratch/cargo"})
	r := build(t, in, p)
	if v, _ := get(r, "CARGO_HOME"); v.Value != "/scratch/cargo" {
		t.Errorf("%+v", v)
	}
	if v, _ := get(r, "HOME"); v.Value != "/home/u" || v.Reason != "fixed: home" {
		t.Errorf("%+v", v)
	}
	if got := envNames(r); got != "CARGO_HOME CI HOME LANG LC_ALL NPM_CONFIG_CACHE PATH RUSTUP_HOME TEMP TERM TMP TMPDIR TZ USERPROFILE" {
		t.Errorf("gate: %s", got)
	}
	r = build(t, in, Probe(Name{Name: "OPENAI_API_KEY"}, assigns("X=1", "TERM=dumb")))
	if got := envNames(r); got != "HOME LANG LC_ALL OPENAI_API_KEY PATH TEMP TERM TMP TMPDIR TZ USER USERPROFILE X" {
		t.Errorf("probe: %s", got)
	}
	if v, _ := get(r, "TERM"); v.Value != "dumb" {
		t.Errorf("%+v", v)
	}
}

// Workspace gate: a secret needs the repository and the operator, and one that
// is refused is named with the setting that would admit it.
func TestKranzWorkspaceSecrets(t *testing.T) {
	in := Input{Ambient: []string{"DB_URL=1", "NPM_AUTH=1", "ONLY_REPO=1", "ONLY_OPERATOR=1", "lower=1", "LD_PRELOAD=1", "GIT_SSH_COMMAND=1", "EMPTY=", "HTTP_PROXY=http://u:p@h", "PATH=/p"}}
	o := WorkspaceOptions{
		ContractOptions: ContractOptions{Pass: names("db_url", " NPM_AUTH ", "ONLY_OPERATOR", "lower", "LD_PRELOAD", "GIT_SSH_COMMAND", "UNSET", "EMPTY", "_X", "PATH"), BaseSHA: "abc"},
		Declared:        names("DB_URL", "NPM_AUTH", "DB_URL", "ONLY_REPO", "lower", "LD_PRELOAD", "GIT_SSH_COMMAND", "UNSET", "EMPTY", "", " ", "_X", "9X", "A-B", "A="+sentinel, "PATH"),
		Setting:         "contractEnvPassthrough",
		Handle:          assigns("HTTP_PROXY=handle"),
	}
	p, notices := Workspace(o)
	r := build(t, in, p)
	if got := envNames(r); got != "DB_URL EMPTY HTTP_PROXY KRANZ_BASE_SHA NPM_AUTH PATH" {
		t.Errorf("%s", got)
	}
	if v, _ := get(r, "HTTP_PROXY"); v.Value != "handle" {
		t.Errorf("%+v", v)
	}
	all := Result{Notices: append(notices, r.Notices...)}
	for _, want := range [][]string{
		{"ONLY_REPO", "the operator does not allow it"}, {"lower", "capital letters"}, {"_X", "capital letters"}, {`"9X"`, "capital"}, {`"A-B"`, "capital"},
		{"LD_PRELOAD", "run other code"}, {"GIT_SSH_COMMAND", "run other code"}, {"secret A ", "capital"}, {"UNSET", "is not set"}, {"PATH", "wall decides"},
	} {
		if !hasNotice(all, want...) {
			t.Errorf("no notice %q: %v", want, all.Notices)
		}
	}
	if len(all.Notices) != 10 {
		t.Errorf("%d notices: %v", len(all.Notices), all.Notices)
	}
	for _, n := range notices {
		if strings.Contains(n.Text, "ONLY_REPO") && n.Hint != "add it to contractEnvPassthrough" {
			t.Errorf("hint %q", n.Hint)
		}
	}
	if s := texts(all, nil); strings.Contains(s, sentinel) {
		t.Errorf("a value is shown: %s", s)
	}
	_, notices = Workspace(WorkspaceOptions{Declared: names("X")})
	if len(notices) != 1 || notices[0].Hint != "add it to environment.pass" {
		t.Errorf("%v", notices)
	}
	if _, notices = Workspace(WorkspaceOptions{}); notices == nil {
		t.Error("the notices are nil")
	}
}

// Workspace gate: the operational names cross when they are not empty, after
// what the repository asks for; no other name that git, ssh or the loader read.
func TestKranzWorkspaceOperations(t *testing.T) {
	in := Input{Ambient: []string{"SSH_AUTH_SOCK=/run/agent", "HTTP_PROXY=http://u:p@h", "https_proxy=p", "NO_PROXY=", "SSL_CERT_FILE=/c", "SSL_CERT_DIR=/d", "GIT_SSL_CAINFO=/e",
		"GIT_SSH_COMMAND=x", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_SYSTEM=x", "GIT_EXTERNAL_DIFF=x", "LD_PRELOAD=x", "ALL_PROXY=x", "GH_TOKEN=x"}}
	p, _ := Workspace(WorkspaceOptions{})
	r := build(t, in, p)
	if got := envNames(r); got != "GIT_SSL_CAINFO HTTP_PROXY PATH SSH_AUTH_SOCK SSL_CERT_DIR SSL_CERT_FILE https_proxy" {
		t.Errorf("%s", got)
	}
	p.Set = assigns("HTTP_PROXY=evil", "NO_PROXY=repo")
	r = build(t, in, p)
	if v, _ := get(r, "HTTP_PROXY"); v.Value != "http://u:p@h" || v.Reason != "base: workspace operations" {
		t.Errorf("%+v", v)
	}
	if v, _ := get(r, "NO_PROXY"); v.Value != "repo" {
		t.Errorf("%+v", v) // the ambient one is empty
	}
	p.Deny = rules(t, "*_PROXY")
	if v, _ := get(build(t, in, p), "HTTP_PROXY"); v.Value != "evil" {
		t.Errorf("denied: %+v", v)
	}
	// No other base has them.
	for _, b := range fuzzBases {
		if r := build(t, in, Policy{Base: b, Mode: ModeStrict}); b != BaseWorkspace && strings.Contains(envNames(r), "PROXY") {
			t.Errorf("%s: %s", b, envNames(r))
		}
	}
}

// Workspace gate: GIT_CONFIG_GLOBAL is the first file that exists.
func TestKranzWorkspaceGitConfig(t *testing.T) {
	all := fstest.MapFS{"own": {}, "x/git/config": {}, "home/u/.config/git/config": {}, "home/u/.gitconfig": {}, "dir/x": {}}
	ambient := []string{"GIT_CONFIG_GLOBAL=/own", "XDG_CONFIG_HOME=/x", "HOME=/relocated"}
	less := func(names ...string) fstest.MapFS {
		m := fstest.MapFS{}
		for k, v := range all {
			if !slices.Contains(names, k) {
				m[k] = v
			}
		}
		return m
	}
	for _, tt := range []struct {
		ambient []string
		fs      fstest.MapFS
		home    string
		want    string
	}{
		{ambient, all, "/home/u", "/own"},
		{ambient, less("own"), "/home/u", "/x/git/config"},
		{ambient, less("own", "x/git/config"), "/home/u", "/home/u/.config/git/config"},
		{ambient, less("own", "x/git/config", "home/u/.config/git/config"), "/home/u", "/home/u/.gitconfig"},
		{ambient, fstest.MapFS{}, "/home/u", ""},
		{ambient, less("own", "x/git/config"), "", ""},
		{[]string{"HOME=/home/u"}, all, "", "/home/u/.config/git/config"},
		{[]string{"GIT_CONFIG_GLOBAL=own", "XDG_CONFIG_HOME=x"}, all, "", ""},
		{[]string{"GIT_CONFIG_GLOBAL=/dir"}, all, "", ""},
		{[]string{"GIT_CONFIG_GLOBAL=", "XDG_CONFIG_HOME="}, all, "/home/u", "/home/u/.config/git/config"},
		{nil, nil, "/home/u", ""},
	} {
		p, _ := Workspace(WorkspaceOptions{})
		in := Input{Ambient: tt.ambient, AccountHome: tt.home}
		if tt.fs != nil {
			in.FS = tt.fs
		}
		if v, _ := get(build(t, in, p), "GIT_CONFIG_GLOBAL"); v.Value != tt.want {
			t.Errorf("%v %s: %q, want %q", tt.ambient, tt.home, v.Value, tt.want)
		}
	}
	p, _ := Workspace(WorkspaceOptions{})
	p.Deny = rules(t, "GIT_CONFIG_*")
	if r := build(t, Input{Ambient: ambient, FS: all}, p); strings.Contains(envNames(r), "GIT_CONFIG") {
		t.Errorf("denied: %s", envNames(r))
	}
}

// Every builder is strict and its result can be extended without a change of
// what the next call gives.
func TestBuilders(t *testing.T) {
	for name, f := range map[string]func() Policy{
		"session": func() Policy { return Session(nil, Name{}) }, "contract": func() Policy { return Contract(ContractOptions{}) }, "gate": Gate,
		"probe":     func() Policy { return Probe(Name{}, nil) },
		"workspace": func() Policy { p, _ := Workspace(WorkspaceOptions{}); return p },
	} {
		p := f()
		if string(p.Base) != name || p.Mode != ModeStrict || p.Base.DefaultMode() != ModeStrict {
			t.Errorf("%s: %+v", name, p)
		}
		before := pairs(build(t, kranzInput, f()))
		p.Allow, p.Fixed, p.Managed = rules(t, "*"), append(p.Fixed, assigns("X=1")...), append(p.Managed, "USER")
		p.ControlPrefixes = []string{"LANG"}
		if during := pairs(build(t, kranzInput, p)); during == before {
			t.Errorf("%s: nothing was extended", name)
		}
		if after := pairs(build(t, kranzInput, f())); after != before {
			t.Errorf("%s: %s, before %s", name, after, before)
		}
	}
}
