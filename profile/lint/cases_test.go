package lint

import (
	"slices"
	"strings"
	"testing"
)

// TestCases: the edges of the rules. Notes are left out, but for those of rules
// that are notes themselves.
func TestCases(t *testing.T) {
	fs := func(s string) string { return "[filesystem]\n" + s }
	phase := func(s string) string { return "[[gate.phase]]\nname = \"p\"\ncommand = [\"true\"]\n" + s }
	net := func(s string) string { return "[network]\nmode = \"allow\"\n" + s }
	grant := func(path, access string) string {
		return fs("grant = [{ path = \"" + path + "\", access = \"" + access + "\", why = \"x\", optional = true }]")
	}
	for _, tt := range []struct {
		lines string
		want  string
	}{
		// Dead rules.
		{fs(`hide = ["~/a", "$home/a"]`), "W010"},
		{fs(`hide = ["~/a", "~/a/"]`), "W010"},
		{fs(`hide = ["a", "$workspace/a"]`), "W010"},
		{fs(`hide = ["~/a/b", "~/a"]`), "W010"},
		{fs(`hide = ["~/a", "~/ab"]`), ""},
		{fs(`hide = ["~/a*", "~/ab"]`), "W010"},
		{fs(`hide = ["**/.env", ".env"]`), "W010"},
		{fs(`hide = ["**/.env", "sub/dir/.env"]`), "W010"},
		{fs(`hide = ["**/.env", "sub/.envrc"]`), ""},
		{fs("hide = [\"~/a\", \"~/a/b/c\"]\ngrant = [{ path = \"~/a/b\", access = \"read\", why = \"x\" }]"), "W012"},
		{"extends = \"gate\"\n" + fs(`hide = ["~/.ssh/id_rsa"]`), "W010"},
		{"extends = \"gate\"\n" + fs(`hide = ["~/private"]`), ""},
		{fs(`protect = ["ci", "ci/build.sh"]`), "W010"},
		{fs("hide = [\"~/a\"]\ngrant = [{ path = \"~/a\", access = \"read\", why = \"x\" }]"), "W010"},
		{fs(`grant = [{ path = "/srv/a", access = "read", why = "x" }, { path = "/srv/a/b", access = "read", why = "x" }]`), "W010"},
		{fs(`grant = [{ path = "/srv/a", access = "read", why = "x" }, { path = "/srv/a/b", access = "write", why = "x" }]`), ""},
		{fs(`grant = [{ path = "/srv/a", access = "write", why = "x" }, { path = "/srv/a/b", access = "read", why = "x" }]`), ""},
		{fs(`grant = [{ path = "/srv/a", access = "read", why = "x" }, { path = "/srv/a/", access = "write", why = "x" }]`), "W010"},
		{"extends = \"gate\"\n" + grant("/srv/data", "read"), "W010"},
		{"extends = \"gate\"\n" + grant("/run/postgresql", "read"), ""},
		{"extends = \"gate\"\n" + grant("~/.cargo", "read"), "W010"},
		{"extends = \"agent\"\n" + grant("~/.cargo/registry", "read"), ""},
		{grant("sub", "write"), "W010"},
		{grant("sub", "read"), ""},
		{fs("workspace = \"read-only\"\n" + strings.TrimPrefix(grant("sub", "write"), "[filesystem]\n")), ""},
		{"[environment]\nallow = [\"FOO\"]\ndeny = [\"foo\"]", "W010"},
		{"[environment]\npass = [\"FOO\"]\ndeny = [\"F*\"]", "W010"},
		{"[environment]\nallow = [\"FOO\"]\ndeny = [\"BAR\"]", ""},
		{"[environment]\npass = [\"FOO\"]\nset = { FOO = \"x\" }", "W010"},
		// What never matches.
		{fs(`hide = ["/proc/kcore"]`), "W011"},
		{fs(`hide = ["/run/secret"]`), "W011"},
		{fs("hide = [\"/run/x/secret\"]\ngrant = [{ path = \"/run/x\", access = \"read\", why = \"x\" }]"), ""},
		{fs(`protect = ["/srv/x"]`), "W011"},
		{fs("protect = [\"/srv/x/y\"]\ngrant = [{ path = \"/srv/x\", access = \"write\", why = \"x\" }]"), ""},
		{fs(`protect = ["~/.bashrc"]`), ""},
		{grant("/dev/shm", "write"), "W011"},
		{"[environment]\nbase = \"terminal\"\nscrub = \"off\"\nallow = [\"FOO\"]", "W011"},
		{"[environment]\nallow = [\"FOO*BAR\"]", "W011"},
		{"[environment]\nallow = [\"*FOO*\"]", "W011"},
		{"[environment]\nallow = [\"*FOO\", \"FOO*\"]", ""},
		{"[network]\nmode = \"host\"\nallow = [\"x.org\"]", "W011"},
		{"[network]\nmode = \"host\"\nloopback = [5432]", "W011"},
		{"[network]\nloopback = [5432]", ""},
		{"enforce = \"off\"\nrequire = [\"landlock\"]", "W011 W035"},
		// Grants.
		{grant("~/.cargo", "write"), "W013 W014 W021"},
		{grant("~/.cargo/registry", "write"), ""},
		{grant("~/.local/share/app", "write"), ""},
		{grant("~/.local/bin/tool", "write"), "W013"},
		{fs("protect = [\"~/.local/bin\", \"~/.local/lib\", \"~/.local/share\"]\n" + strings.TrimPrefix(grant("~/.local", "write"), "[filesystem]\n")), "W021"},
		{fs("hide = [\"~/.local/bin\", \"~/.local/lib\", \"~/.local/share\"]\n" + strings.TrimPrefix(grant("~/.local", "write"), "[filesystem]\n")), ""},
		{fs(`grant = [{ path = "~/.local", access = "write", why = "x" }, { path = "~/.local/bin", access = "read", why = "x" }, { path = "~/.local/lib", access = "read", why = "x" }, { path = "~/.local/share", access = "read", why = "x" }]`), "W021"},
		{grant("~/.local", "write"), "W013 W014 W021"},
		{grant("/usr/local/bin", "write"), "W016"},
		{grant("/opt/tool", "write"), ""},
		{grant("/opt/bin", "write"), "W013"},
		{grant("~/.config", "write"), "W014 W021"},
		{"extends = \"agent\"\n" + fs("protect = [\"~/.config/fish\"]\n"+strings.TrimPrefix(grant("~/.config/fish/functions", "write"), "[filesystem]\n")), "W014"},
		{grant("~/.config/app", "write"), ""},
		{grant("~/.ssh/known_hosts", "read"), "W021"},
		{grant("/etc/cron.d", "write"), "W016"},
		{grant(".github/workflows/ci.yml", "write"), "W015 W040"},
		{grant(".venv/bin/activate", "write"), "W015"},
		{grant(".git/config", "write"), "W015"},
		{grant(".git", "write"), "W010"},
		{grant("/", "write"), "W016 W017 W021"},
		{grant("/", "read"), "W017 W021"},
		{grant("/home", "write"), "W016 W017 W021"},
		{grant("/home/alice", "write"), "W017 W018 W021 W029"},
		{grant("~", "read"), "W017 W021"},
		{"extends = \"agent\"\n" + grant("~", "read"), ""},
		{grant("/run/user/1000/bus", "read"), "W017 W029"},
		{grant("/run/user/1000", "read"), "W017 W029"},
		{grant("/run/podman/podman.sock", "write"), "W017"},
		{grant("/run", "read"), "W017"},
		{grant("/run/systemd/private", "read"), "W017"},
		{grant("~/.gnupg/S.gpg-agent.ssh", "read"), "W017 W021"},
		{grant("/tmp/ssh-XXXX/agent.1", "read"), "W017"},
		{grant("/tmp/.X11-unix/X0", "read"), "W017"},
		{grant("/srv/sockets/app.sock", "read"), ""},
		{grant("$workspace/../..", "write"), "W019"},
		{grant("../sibling", "write"), ""},
		{grant("~/.bashrc", "read"), ""},
		{grant("/var/lib/app", "write"), ""},
		// Credentials and the network.
		{"extends = \"gate\"\n[network]\nmode = \"host\"", ""},
		{"extends = \"gate\"\nenforce = \"fs\"\n" + fs("hide = []"), "W020 W034 W043"},
		{"extends = \"agent\"\n[network]\nmode = \"host\"\n" + grant("~/.ssh/id_ed25519", "read"), "W012 W021"},
		{fs("home = \"read-only\"\nhide = [\"@credentials\"]"), ""},
		{fs("home = \"read-only\"\nhide = [\"@keys\"]"), "W043"},
		{fs("home = \"hidden\""), ""},
		{"[environment]\npass = [\"DATABASE_URL\"]\n[network]\nmode = \"host\"", "W048"},
		{"[environment]\nauth = \"ANTHROPIC_API_KEY\"\n[network]\nmode = \"host\"", ""},
		// Hosts.
		{"[network]\nmode = \"allow\"\nallow = [\"*.com\"]", "W022 W023"},
		{"[network]\nmode = \"allow\"\nallow = [\"*.github.io:443\"]", "W022"},
		{"[network]\nmode = \"allow\"\nallow = [\"0.0.0.0/0\"]", "W022"},
		{"[network]\nmode = \"allow\"\nallow = [\"*.s3.amazonaws.com\"]", "W022 W023"},
		{"[network]\nmode = \"allow\"\nallow = [\"127.0.0.1:8080\"]", "W024"},
		{"[network]\nmode = \"allow\"\nallow = [\"[::1]:8080\"]", "W024"},
		{"[network]\nmode = \"allow\"\nallow = [\"Proxy.Golang.ORG\", \"*.crates.io\"]", ""},
		{"[network]\nloopback = [5432, 9229, 6443]", "W051"},
		// Variables.
		{"[environment]\nbase = \"shell\"\nscrub = \"off\"", ""},
		{"[environment]\nbase = \"session\"\nscrub = \"deny-secrets\"", ""},
		{"[environment]\nbase = \"contract\"\nscrub = \"off\"", "W025"},
		{"[environment]\nset = { LD_LIBRARY_PATH = \"/x\" }", "W026"},
		{"[environment]\nset = { LD_PRELOAD = \"\" }", ""},
		{"[environment]\nallow = [\"LD_*\"]", "W026"},
		{"[environment]\nauth = \"BASH_ENV\"", "W026"},
		{"[environment]\nset = { GIT_SSH_COMMAND = \"ssh -i x\", PYTHONSTARTUP = \"x.py\" }", "W027"},
		{"[environment]\nset = { GIT_CONFIG_GLOBAL = \"/dev/null\", GIT_CONFIG_NOSYSTEM = \"1\" }", ""},
		{"[environment]\nallow = [\"**\"]", "W011 W045"},
		{"[environment]\nallow = [\"A*\"]", "W045"},
		{"[environment]\nallow = [\"CI_*\"]", ""},
		{"[environment]\npass = [\"home\"]", "W046"},
		{"[environment]\npass = [\"WALL_X\"]", "W046"},
		{"[environment]\nset = { TMPDIR = \"/x\" }", "W046"},
		{"[environment]\nset = { LANG = \"C\", CI = \"true\" }", ""},
		{"[environment]\nset = { NPM_TOKEN = \"abcdefghijkl\" }", "W032"},
		{"[environment]\nset = { KRANZ_BASE_SHA = \"0123456789abcdef\" }", ""},
		{"[environment]\npass = [\"KRANZ_BASE_SHA\"]", "W046"},
		// Sources.
		{"[environment]\nset = { NPM_TOKEN = { file = \"~/.config/wall/npm\" } }", ""},
		{"[environment]\nset = { LD_PRELOAD = { env = \"X\" } }", "W026"},
		{"[environment]\nset = { NODE_OPTIONS = { keyring = \"x\" } }", "W027"},
		{"[environment]\nset = { A = { file = \"$cwd/x\" } }", "W056"},
		{"[environment]\nset = { A = { file = \"x\" } }", ""},
		// Hosts and ports.
		{net(`allow = ["a.x.org", "*.x.org"]`), "W010"},
		{net(`allow = ["x.org", "x.org:443"]`), "W010"},
		{net(`allow = ["x.org:443", "x.org"]`), "W010"},
		{net(`allow = ["x.org:22", "x.org"]`), ""},
		{net(`allow = ["10.1.2.3:5432", "10.0.0.0/8:5432"]`), "W010 W024"},
		{net(`allow = ["x.org"]` + "\n" + `deny = ["*.y.org", "a.y.org"]`), "W010"},
		{net(`allow = ["x.org"]` + "\n" + `deny = ["x.org"]`), "W061"},
		{net(`allow = ["x.org"]` + "\n" + `deny = ["x.org:80"]`), ""},
		{net(`allow = ["x.org:80-90"]` + "\n" + `deny = ["x.org:80-100"]`), "W061"},
		{net(`allow = ["*.x.org"]` + "\n" + `deny = ["a.x.org"]`), ""},
		{net(`allow = []`), "W011"},
		{"[network]\npublish = [80]", "W063"},
		{"[network]\nmode = \"allow\"\nallow = [\"a.example\"]\npublish = [1023]", "W063"},
		{"[network]\nmode = \"host\"\nports = []\npublish = [80]", ""},
		{"[network]\nports = [443]", "W011"},
		{net(`allow = ["x.org"]` + "\nports = [443]"), "W011"},
		{"[network]\nmode = \"host\"\nports = [443]", ""},
		{"[network]\nmode = \"host\"\npublish = [8080]", "W011"},
		{"[network]\nmode = \"host\"\nports = []\npublish = [8080]", ""},
		{"[network]\npublish = [1024]", ""},
		{"[network]\nloopback = [53]", ""},
		{net(`allow = ["x.org"]` + "\nloopback = [53]"), "W063"},
		{"[network]\nloopback = [8080]\npublish = [8080]", "W063"},
		{"[network]\nmode = \"host\"\ncheck-sni = true", "W063"},
		{"[network]\nmode = \"allow\"", "W011"},
		{net(`allow = ["198.0.0.0/8"]`), "W011"},
		{net(`allow = ["::/0"]`), "W022"},
		{net(`allow = ["64.0.0.0/3"]`), "W022"},
		{net(`allow = ["169.254.0.0/16"]`), "W024"},
		{net(`allow = ["100.100.100.200:80"]`), "W024"},
		{net(`allow = ["[fd00:ec2::254]:80"]`), "W024"},
		{net(`allow = ["93.184.0.0/16"]`), ""},
		{net("check-sni = true\n" + `allow = ["x.org:443"]`), ""},
		{net("check-sni = true\n" + `allow = ["x.org"]`), ""},
		{net("check-sni = true\n" + `allow = ["x.org:*"]`), "W062"},
		{net("check-sni = false\n" + `allow = ["x.org:*"]`), ""},
		{"extends = \"agent\"\n[network]\ncheck-sni = true", "W011"},
		{"extends = \"agent\"\n[network]\nupstream-proxy = \"http://proxy.corp.example:3128\"", "W011"},
		{"extends = \"agent\"\n[network]\nproxy-variables = true", "W011"},
		{"extends = \"agent-claude\"\n[network]\nproxy-variables = true", ""},
		{"extends = \"agent-claude\"\n[network]\ndeny = [\"claude.ai\"]", ""},
		{"extends = \"agent-claude\"\n[network]\nallow = [\"mcp-proxy.anthropic.com:443\"]", ""}, // a note
		// Of phases, each over the profile.
		{phase(`network = { mode = "allow", allow = ["x.org"] }`), ""},
		{phase(`network = { allow = ["x.org"] }`), "W011"},
		{phase(`network = { mode = "allow", allow = ["*.com"] }`), "W022 W023"},
		{phase(`network = { mode = "allow", allow = ["webhook.site", "169.254.169.254"] }`), "W023 W024"},
		{phase(`network = { loopback = [2375] }`), "W051"},
		{phase(`network = { mode = "allow", allow = ["x.org", "x.org:80"] }`), "W010"},
		{phase(`network = { mode = "allow", allow = ["x.org"], deny = ["x.org"] }`), "W061"},
		{phase(`network = { mode = "allow", allow = ["x.org:22"], check-sni = true }`), "W062"},
		{phase(`network = { mode = "host", deny = ["x.org"] }`), "W063"},
		{"[network]\nloopback = [8080]\n" + phase(`network = { publish = [8080] }`), "W063"},
		{"[filesystem]\nhome = \"read-only\"\n" + phase(`network = { mode = "host" }`), "W020 W043"},
		{"[environment]\nset = { A = { file = \"~/s/x\" } }\n" + grant("~/s", "write"), "W056"},
		{"[environment]\nset = { A = { file = \"~/s/x\" } }\n" + grant("~/s", "read"), ""},
		{"[environment]\nset = { A = { file = \"~/s/x\" } }\n" + grant("$home/s/x", "read"), "W056"},
		{"[environment]\nset = { A = { file = \"~/s/x\" } }\n" + fs(`seed = [{ path = "~/s/x", why = "x" }]`), "W056"},
		{"[environment]\nset = { A = { command = [\"./x\"] } }", "W057"},
		{"[environment]\nset = { A = { command = [\"~/bin/x\"] } }", ""},
		{"[environment]\nset = { A = { command = [\"~/bin/x\"] } }\n" + grant("~/bin/x", "write"), "W013 W057"},
		{"[environment]\nset = { A = { command = [\"/usr/bin/env\", \"x\"] } }", "W058"},
		{"[environment]\nset = { A = { command = [\"bashful\"] } }", ""},
		{"[environment]\nset = { A = { env = \"B\" } }\n[network]\nmode = \"host\"", "W048"},
		{"extends = \"gate\"\n[environment]\ninject = true", "W059"},
		{"extends = \"agent\"\n[environment]\nbase = \"contract\"", "W059"},
		{"extends = \"agent\"\n[environment]\ninject = true", ""},
		// The rest.
		{fs(`hide = ["/Users/bob/x"]`), "W029"},
		{fs(`hide = ["/home/linuxbrew/y", "/home/*/x"]`), ""},
		{fs(`hide = ["/mnt/usb"]`), "W029"},
		{fs(`grant = [{ path = "/srv/x", access = "read", why = "  " }]`), "W028"},
		{fs(`seed = [{ path = "~/.config/tool/auth.json" }]`), "W028"},
		{fs("protect = []"), "W033"},
		{fs("hide = []"), ""},
		{"enforce = \"fs\"", ""},
		{"extends = \"agent\"\nif-unavailable = \"degrade\"", "W036"},
		{fs("devices = [\"dri\", \"/dev/kvm\"]"), "W039"},
		{fs(`hide = ["**/.env", "**/id_rsa*"]`), ""},
		{fs(`hide = ["**/*"]`), "W042"},
		{fs(`hide = ["*/*/secret"]`), "W042"},
		{fs(`hide = ["~/*/secret"]`), "W042"},
		{fs(`hide = ["certs/*.pem"]`), ""},
		{"[process]\ntty = \"inherit\"\n[environment]\nbase = \"shell\"", ""},
		{"[process]\nseccomp = \"$cwd/x.json\"", "W037"},
		{"extends = \"./none.toml\"", "W005"},
		{"extends = \"example\"", "W005"},
		{"description = 1", "W004"},
	} {
		var got []string
		for _, f := range New(options(t, "")).Check(source(Rule{}, "p.toml", example(tt.lines))) {
			if f.Severity > Note {
				got = append(got, f.Code)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); strings.Join(got, " ") != tt.want {
			t.Errorf("%q: got %q, want %q", tt.lines, got, tt.want)
		}
	}
}

// TestNotes: the same for rules that only note something.
func TestNotes(t *testing.T) {
	for _, tt := range []struct{ lines, want string }{
		{"extends = \"agent\"\n[filesystem]\nhide = [\"@credentials\"]", "W047"},
		{"extends = \"agent\"\n[filesystem]\nhide = []\n", ""},
		{"extends = \"agent\"\n[filesystem]\nhide = [\"~/mine\"]\ndevices = []", ""},
		{"extends = \"agent\"\n[filesystem]\nview = \"system\"\nhome = \"hidden\"", "W047"},
		{"[filesystem]\nview = \"system\"", ""}, // the default, and nothing to inherit
		{"[network]\nmode = \"allow\"\nallow = [\"a.x.org\", \"*.x.org\"]", ""},
		{"[network]\nmode = \"allow\"\nallow = [\"x.org\", \"*.x.org\"]", ""},
		{"[network]\nmode = \"allow\"\nallow = [\"a.x.org:80\", \"*.x.org:443\"]", ""},
		{"extends = \"gate\"\n[limits]\ntime = \"10m\"\nmemory = \"1GiB\"\nprocesses = 100", ""},
		{"extends = \"gate\"\n[limits]\ntime = 0\nmemory = \"1GiB\"\nprocesses = 100", "W031"},
		{"[limits]\ntime = 0", ""},
		{"[environment]\ncaches = [\"go\", \"npm\"]\ninject = false", ""},
		{"[environment]\ncaches = { tools = [\"go\"], keep = true }", "W060"},
		{"[environment]\ncaches = { tools = [\"go\"], keep = false }", ""},
		{"[process]\ntty = \"pty\"", ""},
		{"[filesystem]\nworkspace = \"read-write\"\nprotect = [\"@persistence\"]", ""},
		{"[filesystem]\nworkspace = \"read-write\"\nprotect = [\".envrc\"]", "W053"},
		{"[filesystem]\ngrant = [{ path = \"~\", access = \"read\", why = \"x\" }]", ""},
	} {
		var got []string
		for _, f := range New(options(t, "")).Check(source(Rule{}, "p.toml", example(tt.lines))) {
			if f.Severity == Note {
				got = append(got, f.Code)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); strings.Join(got, " ") != tt.want {
			t.Errorf("%q: got %q, want %q", tt.lines, got, tt.want)
		}
	}
}
