package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

func pattern(s string) envscrub.Pattern {
	p, err := envscrub.ParsePattern(s)
	if err != nil {
		return envscrub.Pattern{} // matches nothing; Parse has refused it
	}
	return p
}

func scrubOff(x *check) {
	if !x.m.is("environment.scrub", "off") || x.m.is("environment.base", "shell", "terminal") {
		return
	}
	if own := x.m.ownOf("environment.scrub", "environment.base"); len(own) > 0 {
		x.on(own[len(own)-1], fmt.Sprintf("every variable of the caller crosses, with base %q", x.m.get("environment.base").val))
	}
}

// loaders are variables that the dynamic loader and every shell obey.
func loader(name string) bool {
	switch name {
	case "BASH_ENV", "ENV", "ZDOTDIR", "PROMPT_COMMAND", "SHELLOPTS", "BASHOPTS", "PS4", "GCONV_PATH", "LOCPATH", "GLIBC_TUNABLES":
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") || strings.HasPrefix(name, "BASH_FUNC_")
}

// interpreters are variables that one interpreter or tool obeys, and loads or
// runs code for.
func interpreter(name string) bool {
	switch name {
	case "NODE_OPTIONS", "ELECTRON_RUN_AS_NODE", "PYTHONSTARTUP", "PYTHONHOME", "PYTHONBREAKPOINT", "PYTHONINSPECT", "PYTHONPATH",
		"PERL5OPT", "PERL5DB", "PERL5LIB", "RUBYOPT", "RUBYLIB", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH",
		"DOTNET_STARTUP_HOOKS", "CORECLR_PROFILER", "CORECLR_PROFILER_PATH", "PHPRC", "PHP_INI_SCAN_DIR", "R_PROFILE", "R_PROFILE_USER",
		"GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_CONFIG",
		"GIT_SEQUENCE_EDITOR", "GIT_EDITOR", "GIT_PAGER", "SSH_ASKPASS", "SUDO_ASKPASS", "LESSOPEN", "LESSCLOSE", "VIMINIT", "EXINIT",
		"RUSTC_WRAPPER", "RUSTC", "CARGO_BUILD_RUSTC_WRAPPER", "MAKEFILES", "OPENSSL_MODULES", "OPENSSL_ENGINES", "GTK_MODULES", "QT_PLUGIN_PATH":
		return true
	case "GIT_CONFIG_NOSYSTEM":
		return false
	}
	return strings.HasPrefix(name, "GIT_CONFIG_") || strings.HasPrefix(name, "LUA_INIT")
}

// crossing gives what the checked file lets cross or sets, and how. A variable
// that is set to nothing, or git's configuration to /dev/null, switches
// something off.
func (x *check) crossing(f func(e entry, name, how string)) {
	for _, e := range x.m.ownOf("environment.allow", "environment.pass", "environment.set", "environment.auth") {
		how := map[string]string{"environment.set": "is set", "environment.auth": "is the credential", "environment.pass": "is passed", "environment.allow": "is allowed"}[e.key]
		if e.empty || e.key == "environment.set" && e.source == nil && (e.secret == "" || e.secret == "/dev/null") {
			continue
		}
		f(e, strings.TrimRight(e.val, "*"), how)
	}
}

func loaderVariables(x *check) {
	x.crossing(func(e entry, name, how string) {
		if loader(name) {
			x.on(e, fmt.Sprintf("%q %s", e.val, how))
		}
	})
}

func interpreterVariables(x *check) {
	x.crossing(func(e entry, name, how string) {
		if interpreter(name) {
			x.on(e, fmt.Sprintf("%q %s", e.val, how))
		}
	})
}

func allowEverything(x *check) {
	for _, e := range x.m.mine("environment.allow") {
		if n := len(strings.Trim(e.val, "*")); !e.empty && strings.Contains(e.val, "*") && n < 2 {
			what := "every variable"
			if n == 1 {
				what = "every variable that begins or ends with one letter"
			}
			x.on(e, fmt.Sprintf("%q admits %s", e.val, what))
		}
	}
}

// managedNames are what wall decides itself and a pass-through may not name; a
// test compares them with package envscrub.
var managedNames = []string{
	"PATH", "HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA", "SystemRoot", "ComSpec", "PATHEXT", "SystemDrive",
	"windir", "OS", "PROCESSOR_ARCHITECTURE", "PSModulePath", "TERM", "LANG", "LC_ALL", "TZ", "USER", envscrub.BaseSHAName,
	"CARGO_HOME", "RUSTUP_HOME", "NPM_CONFIG_CACHE", "PWD",
}

// fixedNames are those of them that a value in set does not change.
var fixedNames = []string{"HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "PWD"}

func managedVariables(x *check) {
	for _, e := range x.m.ownOf("environment.pass", "environment.auth") {
		fold := func(n string) bool { return strings.EqualFold(n, e.val) }
		if slices.ContainsFunc(managedNames, fold) || strings.HasPrefix(strings.ToUpper(e.val), "WALL_") {
			x.on(e, fmt.Sprintf("%q is passed, but wall decides it", e.val))
		}
	}
	for _, e := range x.m.mine("environment.set") {
		if slices.ContainsFunc(fixedNames, func(n string) bool { return strings.EqualFold(n, e.val) }) {
			x.on(e, fmt.Sprintf("%q is set, but wall decides it", e.val))
		}
	}
}

// secretName reports whether a name is one of a credential.
func secretName(name string) bool {
	fits := func(p envscrub.Pattern) bool { return p.Match(name, true) }
	return slices.ContainsFunc(envscrub.SecretShapes(), fits) || slices.ContainsFunc(envscrub.SecretGaps(), fits)
}

func credentialVariables(x *check) {
	if !x.m.is("network.mode", "host") && !x.m.is("enforce", "fs", "off") {
		return
	}
	for _, e := range x.m.ownOf("environment.pass", "environment.allow") {
		if !e.empty && !strings.Contains(e.val, "*") && secretName(e.val) {
			x.on(e, fmt.Sprintf("%q crosses, and the network of the host is open", e.val))
		}
	}
	for _, e := range x.m.mine("environment.set") {
		if e.source != nil {
			x.on(e, fmt.Sprintf("the value of %q is fetched, and the network of the host is open", e.val))
		}
	}
}

// exposedSources finds files of sources that wall refuses, because the command
// could write them or is shown them.
func exposedSources(x *check) {
	for _, e := range x.m.mine("environment.set") {
		if e.source == nil || e.source.Kind != plan.SourceFile {
			continue
		}
		file := e.source.Name
		p := x.sourceSpot(file)
		if why := x.changeable(p); why != "" {
			x.on(e, fmt.Sprintf("the value of %q comes from %q, which %s", e.val, file, why))
			continue
		}
		for _, key := range []string{"filesystem.grant", "filesystem.seed"} {
			if slices.ContainsFunc(x.spots(key), func(g entry) bool { return g.val == p }) {
				x.on(e, fmt.Sprintf("the value of %q comes from %q, which a %s shows to the command", e.val, file, lastKey(key)))
				break
			}
		}
	}
}

// sourceSpot is spot for a path of a source, which starts from the profile's
// directory; "" when that is not known.
func (x *check) sourceSpot(s string) string {
	if s != "" && !strings.ContainsRune("/~$", rune(s[0])) {
		if x.src.Path == "" {
			return ""
		}
		return x.foldHome(path.Join(path.Dir(x.src.Path), s))
	}
	return x.spot(s)
}

// changeable tells why the command could change what is at a spot, "" when it
// could not. A workspace around the profile itself may be that of the check.
func (x *check) changeable(p string) string {
	if p == "" {
		return ""
	}
	abs, ws := x.abs(p), x.workspace
	if within(p, "$workspace") || within(p, "$cwd") || ws != "" && abs != "" && within(abs, ws) && !within(x.src.Path, ws) {
		return "lies in the workspace"
	}
	for _, g := range x.grants() {
		if g.grant.Access == plan.AccessWrite && within(p, g.val) {
			return "lies in a writable grant"
		}
	}
	return ""
}

// sourcePrograms finds programs that give a value and that a command could have
// made, or that depend on where the profile lies.
func sourcePrograms(x *check) {
	for _, e := range x.m.mine("environment.set") {
		if e.source == nil || e.source.Kind != plan.SourceCommand || !strings.Contains(e.source.Argv[0], "/") {
			continue
		}
		program := e.source.Argv[0]
		if why := x.changeable(x.sourceSpot(program)); why != "" {
			x.on(e, fmt.Sprintf("the value of %q is given by %q, which %s", e.val, program, why))
		} else if !strings.ContainsRune("/~$", rune(program[0])) {
			x.on(e, fmt.Sprintf("the value of %q is given by %q, which lies beside the profile", e.val, program))
		}
	}
}

// shells take a program as text.
var shells = []string{"sh", "bash", "dash", "zsh", "fish", "ksh", "busybox", "python", "python3", "perl", "ruby", "node", "awk", "env", "eval", "xargs"}

func sourceShells(x *check) {
	for _, e := range x.m.mine("environment.set") {
		if e.source == nil || e.source.Kind != plan.SourceCommand {
			continue
		}
		if name := path.Base(e.source.Argv[0]); slices.Contains(shells, name) {
			x.on(e, fmt.Sprintf("the value of %q is given by %q", e.val, name))
		}
	}
}

// storedForUntrusted finds stored variables that go to commands of a base for
// code that nobody has looked at.
func storedForUntrusted(x *check) {
	if !x.m.is("environment.inject", "true") || !x.m.is("environment.base", "gate", "contract") {
		return
	}
	if own := x.m.ownOf("environment.inject", "environment.base"); len(own) > 0 {
		x.on(own[len(own)-1], fmt.Sprintf("every stored variable crosses, with base %q", x.m.get("environment.base").val))
	}
}

func secretInSet(x *check) {
	for _, e := range x.m.mine("environment.set") {
		if e.empty {
			continue
		}
		if why := looksSecret(e.val, e.secret); why != "" {
			x.on(e, fmt.Sprintf("the value of %q %s", e.val, why)) // never the value
		}
	}
}

// tokenPrefixes are how issuers mark their tokens, so that scanners find them.
var tokenPrefixes = []string{
	"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "gldt-", "sk-ant-", "sk-proj-", "sk_live_", "rk_live_", "sk-",
	"AKIA", "ASIA", "xoxb-", "xoxp-", "xoxa-", "xapp-", "AIza", "ya29.", "npm_", "pypi-", "dckr_pat_", "hf_", "shpat_", "SG.", "dop_v1_",
	"hvs.", "EAAC", "lin_api_", "ntn_", "figd_", "gsk_", "xai-", "tfp_", "rubygems_", "cio", "age-secret-key-", "AGE-SECRET-KEY-",
}

// looksSecret tells why a value looks like a credential, without any of it; ""
// when it does not.
func looksSecret(name, value string) string {
	v := strings.TrimSpace(value)
	if strings.Contains(v, "PRIVATE KEY-----") {
		return "is a private key"
	}
	for _, p := range tokenPrefixes {
		if strings.HasPrefix(v, p) && len(v) >= len(p)+16 && !strings.ContainsAny(v, " /\\") {
			return "has the form of a token"
		}
	}
	if strings.HasPrefix(v, "eyJ") && strings.Count(v, ".") == 2 {
		return "is a signed web token"
	}
	if _, rest, ok := strings.Cut(v, "://"); ok {
		auth, _, _ := strings.Cut(rest, "/")
		if user, _, ok := cutLast(auth, "@"); ok && strings.Contains(user, ":") && !strings.HasSuffix(user, ":") {
			return "is a URL with a password"
		}
	}
	if secretName(name) && len(v) >= 6 && !harmless(v) {
		return "looks like a credential by the name of the variable"
	}
	if len(v) >= 32 && random(v) {
		return "looks like a random key"
	}
	return ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// harmless reports whether a value is a path, a number, a switch or a stand-in,
// which variables with the name of a credential often have.
func harmless(v string) bool {
	l := strings.ToLower(v)
	switch {
	case strings.HasPrefix(v, "/"), strings.HasPrefix(v, "./"), strings.HasPrefix(v, "~"), strings.HasPrefix(v, "$"):
		return true
	case strings.Trim(v, "0123456789.") == "":
		return true
	case strings.HasPrefix(l, "dummy"), strings.HasPrefix(l, "fake"), strings.HasPrefix(l, "test-"), strings.HasPrefix(l, "example"), strings.HasPrefix(l, "placeholder"), strings.HasPrefix(l, "unused"):
		return true
	}
	return slices.Contains([]string{"disabled", "enabled", "default", "none", "false", "changeme", "ignored"}, l)
}

// random reports whether a value is one word of letters of both cases and
// digits, or of hexadecimal digits, without any run of the same character.
func random(v string) bool {
	var lower, upper, digit, other, hex int
	seen := map[rune]bool{}
	for _, r := range v {
		seen[r] = true
		switch {
		case r >= 'a' && r <= 'z':
			lower++
		case r >= 'A' && r <= 'Z':
			upper++
		case r >= '0' && r <= '9':
			digit++
		case strings.ContainsRune("+/=_-", r):
		default:
			other++
		}
		if strings.ContainsRune("0123456789abcdefABCDEF", r) {
			hex++
		}
	}
	if other > 0 || strings.Count(v, "/") > 2 || strings.Count(v, "-") > 5 {
		return false
	}
	return hex == len(v) && digit > 4 && lower+upper > 4 && len(seen) > 8 || lower > 4 && upper > 4 && digit > 4 && len(seen) > 16
}

// keptCaches tells that runs share what they write to the caches.
func keptCaches(x *check) {
	if !x.m.is("environment.caches.keep", "true") {
		return
	}
	if own := x.m.ownOf("environment.caches.keep"); len(own) > 0 {
		x.on(own[len(own)-1], "later runs in the same workspace read what one writes to the caches")
	}
}
