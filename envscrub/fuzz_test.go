package envscrub

import (
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

// naiveShape and naiveGap say in one expression each what the tables say.
var (
	naiveShape = regexp.MustCompile(`(?i)^(CONTENOX_.*|.*_(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS|API_KEY_ID|PWD|DATABASE_URL|DSN|AUTH|PAT)|` +
		`AWS_ACCESS_KEY_ID|AWS_SESSION_TOKEN|PGPASSWORD|PGPASSFILE|MYSQL_PWD|DATABASE_URL|REDIS_URL|MONGODB_URI|SSH_AUTH_SOCK|KUBECONFIG|NETRC)$`)
	naiveGap    = regexp.MustCompile(`(?is)^(.*(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|APIKEY)S?)$`)
	naiveLoader = regexp.MustCompile(`(?is)^(LD_.*|DYLD_.*|GIT_CONFIG_.*|BASH_ENV|ENV|NODE_OPTIONS|PYTHONSTARTUP|GIT_SSH_COMMAND|GIT_EXTERNAL_DIFF|PERL5OPT|RUBYOPT|JAVA_TOOL_OPTIONS)$`)
	naiveURL    = regexp.MustCompile(`://[A-Za-z0-9]*:[A-Za-z0-9]+@`)
)

// checkPolicy builds and checks the properties that hold for all input. Every
// value that has no meaning for the decision ends in the sentinel.
func checkPolicy(t *testing.T, in Input, p Policy) {
	t.Helper()
	before := reflect.ValueOf(p)
	ambient := slices.Clone(in.Ambient)
	r, err := Build(in, p)
	checkResult(t, r)
	if !slices.Equal(ambient, in.Ambient) {
		t.Fatal("the ambient environment was changed")
	}
	again, err2 := Build(in, p)
	if !reflect.DeepEqual(r, again) || (err == nil) != (err2 == nil) || !reflect.DeepEqual(before.Interface(), p) {
		t.Fatal("not deterministic, or the policy was changed")
	}
	if s := texts(r, err); strings.Contains(s, sentinel) {
		t.Fatalf("a value is shown:\n%s", s)
	}
	if err != nil {
		return
	}

	last := map[string]string{}
	for _, e := range in.Ambient {
		if name, value, ok := strings.Cut(e, "="); ok && name != "" && !strings.Contains(e, "\x00") {
			last[name] = value
		}
	}
	asked := map[string]bool{"HOME": true, "TMPDIR": true, "TMP": true, "TEMP": true, "PATH": true, "RUSTUP_HOME": true, "NPM_CONFIG_CACHE": true}
	for _, l := range [...][]Assign{p.Set, p.Inject, p.Fixed, p.Flags, p.Extra} {
		for _, a := range l {
			asked[a.Name] = true
		}
	}
	if p.Base == BaseWorkspace {
		for _, name := range append(operational[:], "GIT_CONFIG_GLOBAL") {
			asked[name] = true
		}
	}
	for _, n := range append(slices.Clone(p.Pass), p.Auth) {
		asked[strings.TrimSpace(n.Name)] = true
	}
	exact, guarded := map[string]bool{}, false
	for _, a := range p.Allow {
		guarded = guarded || a.Guarded
		if a.Pattern.Exact() {
			exact[a.Pattern.String()] = true
		}
	}
	kept := map[string]bool{}
	for _, v := range r.Env {
		kept[v.Name] = true
		value, ambient := last[v.Name]
		switch {
		case asked[v.Name]:
			continue
		case !ambient:
			t.Fatalf("%q comes from nowhere", v.Name)
		case v.Value != value && !isMakeFlags(v.Name):
			t.Fatalf("the value of %q was changed", v.Name)
		case p.Mode == ModeOff:
			continue
		}
		if strings.HasPrefix(strings.ToUpper(v.Name), "WALL_") {
			t.Fatalf("%q of the control plane crosses", v.Name)
		}
		for _, d := range p.Deny {
			if naiveMatch(asciiUpper(d.Pattern.String()), asciiUpper(v.Name)) {
				t.Fatalf("%q is denied by %s and crosses", v.Name, d.Pattern)
			}
		}
		if p.Mode == ModeDenySecrets && naiveShape.MatchString(v.Name) {
			t.Fatalf("%q is a secret and crosses under deny-secrets", v.Name)
		}
		if exact[v.Name] || p.Mode == ModeStrict && (guarded || p.Base.inTable(v.Name) && !strings.HasPrefix(v.Name, "LC_")) {
			continue
		}
		if naiveShape.MatchString(v.Name) || naiveGap.MatchString(v.Name) || naiveLoader.MatchString(v.Name) || naiveURL.MatchString(v.Value) {
			t.Fatalf("%q is guarded and crosses under %s with the reason %q", v.Name, p.Mode, v.Reason)
		}
	}
	for _, d := range r.Dropped {
		kept[d.Name] = true
		if _, ok := last[d.Name]; !ok {
			t.Fatalf("%q was dropped and is not there", d.Name)
		}
	}
	for name := range last {
		if !kept[name] {
			t.Fatalf("%q is neither kept nor dropped", name)
		}
		if p.Mode == ModeOff && dropReasonOff(name, r) {
			t.Fatalf("%q is dropped by off: %s", name, dropReason(r, name))
		}
	}
}

func dropReasonOff(name string, r Result) bool {
	return dropReason(r, name) != "" && !isDescriptor(name) && !isMakeFlags(name)
}

var (
	fuzzBases = []Base{BaseShell, BaseTerminal, BaseSession, BaseContract, BaseGate, BaseProbe, BaseWorkspace}
	fuzzModes = []Mode{ModeOff, ModeDenySecrets, ModeStrict}
	fuzzTree  = fstest.MapFS{"home/u/.rustup/x": {}, "home/u/.npm/x": {}}
)

func FuzzBuild(f *testing.F) {
	f.Add("PATH=/bin\nGH_TOKEN=x\nTERM=y\nLC_ALL=C\nWALL_A=1", "GO*,FOO", "term;x", "GH_TOKEN UNSET path", "A=1\nHOME=/x", uint8(2), uint8(0), false)
	f.Add("a\n=b\nA=1\nA=2\nMAKEFLAGS=w -j4 --jobserver-auth=3,4\nLISTEN_FDS=1", "*", "", "", "", uint8(1), uint8(4), false)
	f.Add("HTTP_PROXY=http://u:p@h\nLD_PRELOAD=x\nTOKENS=\nRUSTUP_HOME=\nPATH=.::/a", "LD_PRELOAD *_TOKEN", "*", "LD_PRELOAD", "LD_PRELOAD=q\n1=2", uint8(1), uint8(2), true)
	f.Add("\xff=\xfe\nPWD=/x\n_=y\nSHLVL=1\nOLDPWD=/z\nTMP=/q", "PWD \xff", "wall_*", "TMP \xff", "PWD=/w", uint8(0), uint8(5), false)
	f.Fuzz(func(t *testing.T, environ, allow, deny, pass, set string, mode, base uint8, glob bool) {
		if strings.Contains(environ+allow+deny+pass+set, sentinel) {
			return
		}
		in, p := fuzzArguments(environ, allow, deny, pass, set, mode, base, glob)
		checkPolicy(t, in, p)
	})
}

// fuzzArguments makes the arguments of Build from what a fuzzer can vary: lines
// of environ and set, lists, and numbers for the mode and the base.
func fuzzArguments(environ, allow, deny, pass, set string, mode, base uint8, guarded bool) (Input, Policy) {
	in := Input{AccountHome: "/home/u", Home: "/home/u", TmpDir: "/tmp", FS: fuzzTree}
	for e := range strings.SplitSeq(environ, "\n") {
		in.Ambient = append(in.Ambient, e+sentinelIfValue(e))
	}
	p := Policy{Mode: fuzzModes[int(mode)%len(fuzzModes)], Base: fuzzBases[int(base)%len(fuzzBases)]}
	list, _ := ParseList(allow)
	for _, q := range list {
		p.Allow = append(p.Allow, Rule{Pattern: q, Guarded: guarded})
	}
	list, _ = ParseList(deny)
	for _, q := range list {
		p.Deny = append(p.Deny, Rule{Pattern: q})
	}
	for n := range strings.FieldsSeq(pass) {
		p.Pass = append(p.Pass, Name{Name: n, Origin: plan.Origin{Text: "--pass " + n}})
	}
	for i, e := range strings.Split(set, "\n") {
		name, value, _ := strings.Cut(e, "=")
		a := Assign{name, value + sentinel, plan.Origin{Text: "--env " + e + sentinel}}
		if e == "" {
			continue
		}
		switch i % 5 {
		case 0:
			p.Set = append(p.Set, a)
		case 1:
			p.Inject = append(p.Inject, a)
		case 2:
			a.Origin = plan.Origin{File: "f.toml", Line: 1, Text: e + sentinel}
			p.Fixed = append(p.Fixed, a)
		case 3:
			p.Flags = append(p.Flags, a)
		case 4:
			p.Extra = append(p.Extra, a)
		}
	}
	return in, p
}

// sentinelIfValue plants the sentinel at the end of a value, or of an entry that
// is not a variable and must not be shown either.
func sentinelIfValue(e string) string {
	if name, _, ok := strings.Cut(e, "="); ok && isMakeFlags(name) {
		return " " + sentinel
	}
	return sentinel
}

// A thousand random environments and policies over names that matter.
func TestRandomPolicies(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 2))
	vocabulary := strings.Fields("PATH HOME TMPDIR TMP TEMP TERM LANG LC_ALL TZ USER SHELL LOGNAME COLORTERM CI GOFLAGS EDITOR HTTP_PROXY " +
		"GH_TOKEN TOKEN FOO_TOKENS API_KEY DB_PASSWORD SECRET DATABASE_URL LD_PRELOAD BASH_ENV GIT_CONFIG_COUNT SSH_AUTH_SOCK DISPLAY " +
		"WALL_X wall_y CONTENOX_X KRANZ_BASE_SHA CARGO_HOME RUSTUP_HOME NPM_CONFIG_CACHE MAKEFLAGS LISTEN_FDS PWD OLDPWD SHLVL _ gh_token Path LC_TOKEN LC_LD")
	values := []string{"", "x", "/a:/b", ".:/a", "http://u:p@h/", "w -j4 --jobserver-auth=3,4", "\xff\xfe", "unix:/run/x"}
	globs := []string{"*", "*_TOKEN", "LC_*", "G*", "*_URL", "w*"}
	word := func() string { return vocabulary[rnd.IntN(len(vocabulary))] }
	some := func(most int, f func()) {
		for range rnd.IntN(most + 1) {
			f()
		}
	}
	for range 1000 {
		in := Input{Home: "/home/u", TmpDir: "/tmp", AccountHome: "/home/u", FS: fuzzTree}
		some(60, func() { in.Ambient = append(in.Ambient, word()+"="+values[rnd.IntN(len(values))]+" "+sentinel) })
		p := Policy{Mode: fuzzModes[rnd.IntN(3)], Base: fuzzBases[rnd.IntN(len(fuzzBases))], KeepFDs: rnd.IntN(4) == 0}
		rule := func() Rule {
			s := word()
			if rnd.IntN(2) == 0 {
				s = globs[rnd.IntN(len(globs))]
			}
			return Rule{Pattern: pattern(t, s), Guarded: rnd.IntN(8) == 0}
		}
		some(4, func() { p.Allow = append(p.Allow, rule()) })
		some(3, func() { p.Deny = append(p.Deny, rule()) })
		some(3, func() { p.Pass = append(p.Pass, Name{Name: word()}) })
		if rnd.IntN(2) == 0 {
			p.Auth = Name{Name: word()}
		}
		for _, l := range []*[]Assign{&p.Set, &p.Inject, &p.Fixed, &p.Flags, &p.Extra} {
			some(3, func() {
				n := word()
				*l = append(*l, Assign{n, sentinel, plan.Origin{Text: "--env " + n + "=" + sentinel}})
			})
		}
		checkPolicy(t, in, p)
		checkWindows(t, in, p)
	}
}

// benchInput is an environment of 80 variables as a desktop session in a
// development container has it.
func benchInput() Input {
	in := Input{AccountHome: "/home/u", Home: "/home/u", TmpDir: "/tmp", FS: fuzzTree}
	for n := range strings.FieldsSeq("PATH HOME TERM COLORTERM LANG LC_ALL LC_TIME TZ USER LOGNAME SHELL PWD OLDPWD SHLVL _ EDITOR PAGER LESS LS_COLORS " +
		"GOFLAGS GOPATH GOCACHE CARGO_HOME RUSTUP_HOME HTTP_PROXY HTTPS_PROXY NO_PROXY GH_TOKEN OPENAI_API_KEY AWS_PROFILE AWS_REGION DATABASE_URL " +
		"DISPLAY XDG_RUNTIME_DIR DBUS_SESSION_BUS_ADDRESS SSH_AUTH_SOCK XDG_SESSION_ID XDG_DATA_DIRS XDG_CONFIG_DIRS DESKTOP_SESSION MAKEFLAGS") {
		in.Ambient = append(in.Ambient, n+"=/usr/local/share/some/value:/of/usual@length")
	}
	for i := len(in.Ambient); i < 80; i++ {
		in.Ambient = append(in.Ambient, "SOME_ORDINARY_VARIABLE_"+string(rune('A'+i%26))+string(rune('A'+i/26))+"=value of it")
	}
	return in
}

func BenchmarkBuild(b *testing.B) {
	in := benchInput()
	if len(in.Ambient) != 80 {
		b.Fatal(len(in.Ambient))
	}
	allow, deny := rules(b, "LC_*", "GOFLAGS", "GO*"), rules(b, "*_INTERNAL", "FOO")
	for _, mode := range fuzzModes {
		p := Policy{Base: BaseSession, Mode: mode, Allow: allow, Deny: deny, Pass: names("AWS_PROFILE"), Set: assigns("CI=true"), Fixed: assigns("PWD=/w")}
		b.Run(string(mode), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Build(in, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
