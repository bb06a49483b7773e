package integration_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// The environment of a box, read back from inside it. Promise 15.

// ambientEnv is a caller's environment with something of every class. The value
// of each variable is found nowhere else.
func ambientEnv(more ...string) []string {
	env := []string{"PATH=/usr/bin:/bin:" + nonce() + ":/opt/" + nonce(), "HOME=/relocated/" + nonce()}
	for name := range strings.FieldsSeq("TERM LANG LC_ALL LC_CTYPE LANGUAGE TZ USER LOGNAME SHELL COLORTERM CI USERPROFILE TMP TEMP TMPDIR " +
		"RUSTUP_HOME NPM_CONFIG_CACHE EDITOR APP_ENV " +
		"GH_TOKEN AWS_SECRET_ACCESS_KEY ANTHROPIC_API_KEY OPENAI_API_KEY TOKEN PASSWORDS DATABASE_URL SSH_AUTH_SOCK LD_PRELOAD BASH_ENV XDG_RUNTIME_DIR " +
		"WALL_CONTROL wall_lower LISTEN_FDS SHLVL OLDPWD") {
		env = append(env, name+"="+nonce())
	}
	env = append(env, "HTTP_PROXY=http://user:"+nonce()+"@proxy", "DEPLOY=-----BEGIN PRIVATE KEY-----\n"+nonce(), "RAW=\xff\n"+nonce(), "EMPTY=")
	return append(env, more...)
}

// environ gives the environment that the box's command has, after the check that
// the kernel, the program and a program executed by it all have the same.
func (b *box) environ() map[string]string {
	b.t.Helper()
	return environOf(b.t, rawRun(b.t, b, "run"))
}

func environOf(t *testing.T, r result) map[string]string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.ok(t)), "\n")
	if len(lines) != 4 {
		t.Fatalf("the probe printed %d lines\n%s", len(lines), r.err)
	}
	var first []string
	for i, line := range lines {
		var list [][]byte
		if err := json.Unmarshal([]byte(line), &list); err != nil {
			t.Fatal(err)
		}
		var entries []string
		for _, e := range list {
			entries = append(entries, string(e))
		}
		slices.Sort(entries)
		if i == 0 {
			first = entries
		} else if !slices.Equal(entries, first) {
			t.Errorf("view %d of the environment differs from the first", i)
		}
	}
	env := map[string]string{}
	for _, e := range first {
		name, value, ok := strings.Cut(e, "=")
		if _, twice := env[name]; twice || !ok || name == "" {
			t.Errorf("the name %q is there twice or is none", name)
		}
		env[name] = value
	}
	return env
}

// A forecast is what a preview says of an environment.
type forecast struct {
	reasons map[string]string // of the variables that are there
	dropped map[string]string
}

// plan asks wall plan for the environment that the same run would have.
func (b *box) plan() forecast {
	b.t.Helper()
	return planOf(b.t, rawRun(b.t, b, "plan", "--json"))
}

func planOf(t *testing.T, r result) forecast {
	t.Helper()
	var p struct {
		Env     []struct{ Name, Value, Reason string }
		Dropped []struct{ Name, Reason string }
	}
	if err := json.Unmarshal([]byte(r.ok(t)), &p); err != nil {
		t.Fatal(err)
	}
	f := forecast{map[string]string{}, map[string]string{}}
	for _, v := range p.Env {
		f.reasons[v.Name] = v.Reason
		if v.Value != "<redacted>" {
			t.Errorf("the plan shows a value of %s", v.Name)
		}
	}
	for _, v := range p.Dropped {
		f.dropped[v.Name] = v.Reason
	}
	return f
}

// preview asks wall env preview for the environment that the same run would have.
func (b *box) preview() result {
	b.t.Helper()
	argv := b.argv()
	return raw(b.t, b, slices.Concat([]string{argv[0], "env", "preview", "--json"}, argv[2:len(argv)-1]))
}

func previewOf(t *testing.T, r result) forecast {
	t.Helper()
	var p struct {
		Variables []struct{ Name, Reason string }
		Dropped   []struct{ Name, Reason string }
	}
	if err := json.Unmarshal([]byte(r.ok(t)), &p); err != nil {
		t.Fatal(err)
	}
	f := forecast{map[string]string{}, map[string]string{}}
	for _, v := range p.Variables {
		f.reasons[v.Name] = v.Reason
	}
	for _, v := range p.Dropped {
		f.dropped[v.Name] = v.Reason
	}
	return f
}

// rawRun has the probe print the environment of "wall VERB FLAGS".
func rawRun(t *testing.T, b *box, verb string, flags ...string) result {
	t.Helper()
	argv := b.argv(probeBin, "environ")
	return raw(t, b, slices.Concat([]string{argv[0], verb}, flags, argv[2:]))
}

// raw runs a command with the environment of b exactly, which os/exec would
// clean of duplicates.
func raw(t *testing.T, b *box, argv []string) result {
	t.Helper()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var files [2]*os.File
	for i := range files {
		if files[i], err = os.CreateTemp(tempDir(t), "out"); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
	}
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Dir: b.ws, Env: b.env, Files: []*os.File{null, files[0], files[1]}})
	if err != nil {
		t.Fatal(err)
	}
	state, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return result{read(t, files[0].Name()), read(t, files[1].Name()), shellStatus(state)}
}

// store writes the variables that wall injects, and gives the variable that
// tells wall where they are.
func store(t *testing.T, vars map[string]string) string {
	t.Helper()
	type variable struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	content := struct {
		Version   int        `json:"version"`
		Variables []variable `json:"variables"`
	}{1, []variable{}}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		content.Variables = append(content.Variables, variable{name, vars[name]})
	}
	data, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	dir := tempDir(t)
	if err := os.Mkdir(dir+"/wall", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/wall/injected.json", data, 0o600); err != nil {
		t.Fatal(err)
	}
	return "XDG_CONFIG_HOME=" + dir
}

func splitEnv(env []string) map[string]string {
	m := map[string]string{}
	for _, e := range env {
		if name, value, ok := strings.Cut(e, "="); ok && name != "" {
			if _, twice := m[name]; !twice { // the first is what a program gets to see
				m[name] = value
			}
		}
	}
	return m
}

// TestEnvSurfaces: each surface gives a really spawned command exactly the names
// of its table, with the caller's values, under each level of enforcement; what
// wall plan says is what is there.
func TestEnvSurfaces(t *testing.T) {
	const (
		session = "LANG LC_ALL NPM_CONFIG_CACHE PATH RUSTUP_HOME TERM TZ USER"
		gate    = "CI LANG LC_ALL NPM_CONFIG_CACHE PATH RUSTUP_HOME TERM TZ USERPROFILE"
		shell   = "APP_ENV CI COLORTERM EDITOR EMPTY LANG LANGUAGE LC_ALL LC_CTYPE LOGNAME NPM_CONFIG_CACHE OLDPWD PATH RAW RUSTUP_HOME SHELL TERM TZ USER USERPROFILE XDG_CONFIG_HOME"
		all     = shell + " ANTHROPIC_API_KEY AWS_SECRET_ACCESS_KEY BASH_ENV DATABASE_URL DEPLOY GH_TOKEN HTTP_PROXY LD_PRELOAD OPENAI_API_KEY PASSWORDS SHLVL SSH_AUTH_SOCK TOKEN WALL_CONTROL XDG_RUNTIME_DIR wall_lower"
	)
	for _, tt := range []struct {
		profile, names string
		inject         bool
	}{
		{"agent", session, true},
		{"contract", session, false},
		{"gate", gate, false},
		{"shell", shell, true},
		{"terminal", all, true},
	} {
		for _, enforce := range []string{"fs+net", "fs", "off"} {
			t.Run(tt.profile+"/"+enforce, func(t *testing.T) {
				b := newBox(t, tt.profile)
				injected := map[string]string{"INJECTED": nonce(), "TERM": nonce(), "TOKEN": nonce(), "HOME": nonce()}
				b.env = ambientEnv(store(t, injected))
				ambient := splitEnv(b.env)
				b.flags = []string{"--enforce", enforce, "--env", "FLAG=a=b \n" + nonce()}
				inside, said := b.environ(), b.plan()
				if previewed := previewOf(t, b.preview()); !reflect.DeepEqual(previewed, said) {
					t.Errorf("wall env preview says %v\nwall plan says %v", previewed, said)
				}

				if got, want := sortedKeys(inside), sortedKeys(said.reasons); !slices.Equal(got, want) {
					t.Errorf("inside: %v\nthe plan says: %v", got, want)
				}
				// Of what the command has, wall itself decides the values of some.
				var names []string
				for name, reason := range said.reasons {
					if !strings.HasPrefix(reason, "fixed") && name != "FLAG" && (reason != "injected" || name != "INJECTED" && name != "TOKEN") {
						names = append(names, name)
					}
				}
				slices.Sort(names)
				want := strings.Fields(tt.names)
				if tt.inject {
					want = slices.DeleteFunc(want, func(s string) bool { return s == "TOKEN" })
				}
				slices.Sort(want)
				if !slices.Equal(names, want) {
					t.Errorf("from the caller: %v\nwant %v", names, want)
				}
				for _, name := range names {
					value := ambient[name]
					switch {
					case name == "PATH" && tt.profile != "terminal":
						entries := strings.Split(value, ":")
						value = strings.Join(slices.Delete(entries, 2, 3), ":")
					case tt.inject && name == "TERM":
						value = injected[name]
					}
					if inside[name] != value {
						t.Errorf("%s has another value than the caller gave it", name)
					}
				}
				for name, value := range injected {
					if name != "HOME" && (inside[name] == value) != tt.inject {
						t.Errorf("the injected %s is there: %v", name, !tt.inject)
					}
				}
				if inside["HOME"] != accountHome() || inside["PWD"] != b.ws || inside["FLAG"] != strings.TrimPrefix(b.flags[3], "FLAG=") {
					t.Errorf("HOME=%s PWD=%s FLAG=%q", inside["HOME"], inside["PWD"], inside["FLAG"])
				}
				if enforce != "off" && inside["TMPDIR"] != "/tmp" || inside["TMPDIR"] == ambient["TMPDIR"] {
					t.Errorf("TMPDIR=%s", inside["TMPDIR"])
				}
				// Every other name of the caller is accounted for, and its value is nowhere.
				text := strings.Join(slices.Collect(maps.Values(inside)), "\x00")
				for name, value := range ambient {
					if _, there := inside[name]; !there && said.dropped[name] == "" {
						t.Errorf("%s is neither there nor said to be dropped", name)
					}
					if said.dropped[name] != "" && value != "" && strings.Contains(text, value) {
						t.Errorf("%s was dropped and its value is inside", name)
					}
				}
			})
		}
	}
}

// asJSON gives a name as wall writes it in JSON: a byte that is not UTF-8 as \xNN.
func asJSON(name string) string { return strings.ReplaceAll(name, "\xff", `\xff`) }

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// TestEnvInjected: a stored variable wins over the caller's in every mode and
// past every rule; without inject there is none of it. It is read at the start
// of each run.
func TestEnvInjected(t *testing.T) {
	for _, base := range []string{"session", "contract", "gate", "shell", "terminal"} {
		for _, mode := range []string{"off", "deny-secrets", "strict"} {
			t.Run(base+"/"+mode, func(t *testing.T) {
				b := newBox(t, filepath.Join(tempDir(t), "own.toml"))
				injected := map[string]string{"LANG": nonce(), "GH_TOKEN": nonce(), "DENIED": nonce(), "WALL_X": nonce(), "NEW": "", "SET": nonce(), "FLAG": nonce()}
				b.env = ambientEnv(store(t, injected), "DENIED="+nonce())
				b.flags = []string{"--env", "FLAG=flag"}
				for _, inject := range []bool{true, false} {
					write(t, b.profile, fmt.Sprintf("version = 1\nname = \"own\"\nextends = \"agent\"\n[environment]\nbase = %q\nscrub = %q\ninject = %v\ndeny = [\"DENIED\"]\nset = { SET = \"set\" }\n", base, mode, inject))
					env := b.environ()
					for name, value := range injected {
						want := inject && name != "FLAG" // a flag wins over everything
						if got, there := env[name]; want != (there && got == value) {
							t.Errorf("inject %v: %s has the stored value: %v", inject, name, !want)
						}
					}
					if env["FLAG"] != "flag" || !inject && env["SET"] != "set" {
						t.Errorf("inject %v: FLAG=%s", inject, env["FLAG"])
					}
				}
			})
		}
	}
}

// TestEnvPreviewEqualsReality1 and 2: for a thousand random environments and
// policies the names inside a box are those that wall said before, and the values
// are those that the rule it named gives.
func TestEnvPreviewEqualsReality1(t *testing.T) { previewEqualsReality(t, 0, 500) }
func TestEnvPreviewEqualsReality2(t *testing.T) { previewEqualsReality(t, 500, 1000) }

func previewEqualsReality(t *testing.T, from, to int) {
	profiles := tempDir(t)
	var ran, variables, refused atomic.Int32
	next := make(chan int)
	var all sync.WaitGroup
	for range 2 {
		shared := newBox(t, "agent") // making a workspace for each would cost as much as the run
		all.Go(func() {
			for seed := range next {
				t.Run(strconv.Itoa(seed), func(t *testing.T) {
					b := *shared
					b.t = t
					c := randomCase(t, uint64(seed), filepath.Join(profiles, fmt.Sprintf("%d.toml", seed)))
					b.profile, b.flags, b.env = c.profile, c.flags, c.env
					previewed, done := b.preview(), rawRun(t, &b, "run")
					if previewed.code != 0 || done.code != 0 {
						if previewed.code != 2 || done.code != 125 {
							t.Errorf("the preview ends with %d, run with %d\n%s\n%s", previewed.code, done.code, previewed.err, done.err)
						}
						refused.Add(1)
						return
					}
					said, inside := previewOf(t, previewed), map[string]string{}
					if seed%10 == 0 {
						if planned := b.plan(); !reflect.DeepEqual(planned, said) {
							t.Errorf("wall env preview says %v\nwall plan says %v", said, planned)
						}
					}
					for name, value := range environOf(t, done) {
						inside[asJSON(name)] = value
						c.check(t, name, value, said.reasons[asJSON(name)])
					}
					if got, want := sortedKeys(inside), sortedKeys(said.reasons); !slices.Equal(got, want) {
						t.Errorf("inside: %q\nthe preview says: %q", got, want)
					}
					for name := range splitEnv(c.env) {
						if _, there := inside[asJSON(name)]; there == (said.dropped[asJSON(name)] != "") {
							t.Errorf("%q is there: %v, and said to be dropped: %q", name, there, said.dropped[name])
						}
					}
					ran.Add(1)
					variables.Add(int32(len(inside)))
					if t.Failed() {
						t.Logf("seed %d, flags %.2000q\nprofile:\n%s\nenvironment: %.100q", seed, c.flags, read(t, c.profile), c.env)
					}
				})
			}
		})
	}
	for seed := from; seed < to; seed++ {
		next <- seed
	}
	close(next)
	all.Wait()
	t.Logf("%d boxes with %d variables; %d refused", ran.Load(), variables.Load(), refused.Load())
	if n := int32(to - from); ran.Load() < n*9/10 || variables.Load() < n*8 {
		t.Errorf("only %d of %d boxes ran, with %d variables", ran.Load(), n, variables.Load())
	}
}

// A randomEnv is one random environment with the policy that it meets.
type randomEnv struct {
	env, flags []string
	profile    string
	given      map[string]map[string][]string // reason, name, the values that it may have
}

func (c *randomEnv) give(reason, name, value string) {
	if c.given[reason] == nil {
		c.given[reason] = map[string][]string{}
	}
	c.given[reason][name] = append(c.given[reason][name], value)
}

// check compares the value inside with the last one that the rule could give.
func (c *randomEnv) check(t *testing.T, name, value, reason string) {
	t.Helper()
	kind := "ambient"
	switch {
	case strings.HasPrefix(reason, "fixed"), strings.HasPrefix(reason, "base: default"), strings.HasPrefix(reason, "base: ~/"),
		strings.HasSuffix(reason, "without the jobserver"), name == "MAKEFLAGS":
		return
	case reason == "set", reason == "injected", reason == "flag --env":
		kind = reason
	}
	values := c.given[kind][name]
	switch {
	case len(values) == 0:
		t.Errorf("%q is there for the reason %q, which gives it no value", name, reason)
	case name == "PATH" && reason == "base: always":
		if strings.Contains(":"+value+":", ":rel:") || !strings.Contains(values[0], value[strings.LastIndexByte(value, ':')+1:]) {
			t.Errorf("PATH is %q", value)
		}
	case kind == "ambient" && value != values[0] || kind != "ambient" && value != values[len(values)-1]:
		t.Errorf("%q, which is there for the reason %q, has another value than that gives", name, reason)
	}
}

func randomCase(t *testing.T, seed uint64, file string) *randomEnv {
	t.Helper()
	rnd := rand.New(rand.NewPCG(seed, 15))
	c := &randomEnv{profile: file, given: map[string]map[string][]string{}}
	valid := strings.Fields("PATH HOME TMPDIR TMP TEMP TERM LANG LC_ALL LC_X TZ USER SHELL LOGNAME COLORTERM CI GOFLAGS EDITOR HTTP_PROXY " +
		"GH_TOKEN TOKEN FOO_TOKENS API_KEY DB_PASSWORD SECRET DATABASE_URL LD_PRELOAD BASH_ENV GIT_CONFIG_COUNT SSH_AUTH_SOCK DISPLAY USERPROFILE " +
		"WALL_X wall_y CONTENOX_X KRANZ_BASE_SHA CARGO_HOME RUSTUP_HOME NPM_CONFIG_CACHE MAKEFLAGS LISTEN_FDS PWD OLDPWD SHLVL _ gh_token Path LC_TOKEN X Y Z z")
	odd := []string{"a.b", "1X", "S P", "\xff", "ü", "BASH_FUNC_x%%", "npm_config_//h/:_auth", "*", "A\nB"}
	patterns := []string{"*", "*_TOKEN", "LC_*", "G*", "*_URL", "w*", "*KEN", "x"}
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	some := func(most int, f func()) {
		for range rnd.IntN(most + 1) {
			f()
		}
	}
	serial := 0
	value := func() string {
		serial++
		v := fmt.Sprintf("v%d.%d", seed, serial)
		switch rnd.IntN(8) {
		case 0:
			return ""
		case 1:
			return v + "\xff\xfe\n\t\"'$(x)\\"
		case 2:
			return "http://u:" + v + "@h/"
		case 3:
			return "unix:" + v
		case 4:
			return "=" + v + "=" + strings.Repeat("long", 1000)
		}
		return v
	}
	ambient := func(name, v string) {
		c.env = append(c.env, name+"="+v)
		c.give("ambient", name, v)
	}
	some(40, func() {
		name := pick(valid)
		if rnd.IntN(5) == 0 {
			name = pick(odd)
		}
		v := value()
		switch name {
		case "PATH":
			v = pick([]string{"/usr/bin:/bin", "/a:rel:/b" + fmt.Sprint(serial), "rel", ""})
		case "MAKEFLAGS":
			v = pick([]string{"w -j4 --jobserver-auth=3,4", "k", "-j2"})
		case "PWD":
			v = "/nowhere"
		}
		ambient(name, v)
	})
	some(2, func() { c.env = append(c.env, pick([]string{"noequals", "=empty", "", "=", "=C:=x"})) })
	rnd.Shuffle(len(c.env), func(i, j int) { c.env[i], c.env[j] = c.env[j], c.env[i] })
	// The first of several is the one a program gets to see.
	c.given["ambient"] = map[string][]string{}
	for _, e := range c.env {
		if name, v, ok := strings.Cut(e, "="); ok {
			c.give("ambient", name, v)
		}
	}

	stored := map[string]string{}
	some(3, func() { stored[pick(valid)] = strings.ToValidUTF8(value(), "") })
	for name, v := range stored {
		c.give("injected", name, v)
	}
	config := store(t, stored)
	_, dir, _ := strings.Cut(config, "=")
	ambient("XDG_CONFIG_HOME", dir)

	for _, s := range [][]string{
		{"SANDBOX_SHELL_SCRUB", "off", " strict\n", "Strict", ""}, {"SANDBOX_TERMINAL_SCRUB", "deny-secrets", "strict", "x"},
		{"SANDBOX_ENV_ALLOW", "G*,X;LC_*", "*", "A=b X"}, {"SANDBOX_ENV_DENY", "term x", "*_TOKEN\tz", "*"},
	} {
		if rnd.IntN(5) == 0 {
			ambient(pick([]string{s[0], strings.ToLower(s[0])}), pick(s[1:]))
		}
	}

	var p strings.Builder
	fmt.Fprintf(&p, "version = 1\nname = \"random\"\nextends = %q\n[environment]\n", pick([]string{"agent", "gate", "contract", "shell", "terminal"}))
	list := func(key string, most int, from ...[]string) {
		var items []string
		some(most, func() { items = append(items, strconv.Quote(pick(from[rnd.IntN(len(from))]))) })
		if len(items) > 0 {
			slices.Sort(items)
			fmt.Fprintf(&p, "%s = [%s]\n", key, strings.Join(slices.Compact(items), ", "))
		}
	}
	if rnd.IntN(2) == 0 {
		fmt.Fprintf(&p, "base = %q\n", pick([]string{"session", "contract", "gate", "shell", "terminal"}))
	}
	if rnd.IntN(2) == 0 {
		fmt.Fprintf(&p, "scrub = %q\n", pick([]string{"off", "deny-secrets", "strict"}))
	}
	fmt.Fprintf(&p, "inject = %v\n", rnd.IntN(2) == 0)
	list("allow", 4, valid, patterns)
	list("deny", 3, valid, patterns)
	list("pass", 3, valid)
	if rnd.IntN(3) == 0 {
		fmt.Fprintf(&p, "auth = %q\n", pick(valid))
	}
	set := map[string]string{}
	some(3, func() { set[pick(valid)] = fmt.Sprintf("set %d \u00fc %d", seed, rnd.IntN(1000)) })
	if len(set) > 0 {
		var items []string
		for _, name := range sortedKeys(set) {
			items = append(items, name+" = "+strconv.Quote(set[name]))
			c.give("set", name, set[name])
		}
		fmt.Fprintf(&p, "set = { %s }\n", strings.Join(items, ", "))
	}
	write(t, file, p.String())

	some(2, func() {
		name, v := pick(valid), value()
		c.flags = append(c.flags, "--env", name+"="+v)
		c.give("flag --env", name, v)
	})
	some(2, func() { c.flags = append(c.flags, "--pass", pick(valid)) })
	if rnd.IntN(4) == 0 {
		c.flags = append(c.flags, "--scrub", pick([]string{"off", "deny-secrets", "strict"}))
	}
	if rnd.IntN(4) == 0 {
		c.flags = append(c.flags, "--enforce", pick([]string{"off", "fs"}))
	}
	return c
}
