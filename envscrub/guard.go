package envscrub

import "strings"

// A guard is the class of a name that deny-secrets drops and that a pattern
// with a star does not admit under strict.
type guard uint8

const (
	guardNone   guard = iota
	guardShape        // the reference's credential shapes: nothing in Allow admits them under deny-secrets
	guardGap          // credential names that the reference misses
	guardURL          // the value has a URL with credentials
	guardKey          // the value has a private key
	guardLoader       // makes programs load or run other code
	guardSocket       // names a socket of the host
)

// text says what a guarded name is, to follow the name of a mode.
func (g guard) text() string {
	switch g {
	case guardShape, guardGap:
		return "has the name of a credential"
	case guardURL:
		return "has a URL with credentials as its value"
	case guardKey:
		return "has a private key as its value"
	case guardLoader:
		return "makes programs load or run other code"
	case guardSocket:
		return "names a socket outside the box"
	}
	return ""
}

// secretShapes is the reference's list of version 1.0.0: the seven of its first
// version, then what was added.
var secretShapes = [...]Pattern{
	{"CONTENOX_*"}, {"*_TOKEN"}, {"*_KEY"}, {"*_SECRET"}, {"*_PASSWORD"}, {"*_PASSWD"}, {"*_CREDENTIALS"},
	{"*_API_KEY_ID"}, {"AWS_ACCESS_KEY_ID"}, {"AWS_SESSION_TOKEN"}, {"PGPASSWORD"}, {"PGPASSFILE"},
	{"MYSQL_PWD"}, {"*_PWD"}, {"DATABASE_URL"}, {"*_DATABASE_URL"}, {"REDIS_URL"}, {"MONGODB_URI"},
	{"*_DSN"}, {"SSH_AUTH_SOCK"}, {"KUBECONFIG"}, {"*_AUTH"}, {"*_PAT"}, {"NETRC"},
}

// secretGaps are further shapes: bare and run-together names, plurals, and names
// in wide use that carry a credential and fit no shape. Some harmless names fit
// (MAX_TOKENS), therefore an exact Allow admits these under deny-secrets.
var secretGaps = [...]Pattern{
	{"*TOKEN"}, {"*TOKENS"}, {"*SECRET"}, {"*SECRETS"}, {"*PASSWORD"}, {"*PASSWORDS"}, {"*PASSWD"}, {"*PASSWDS"},
	{"*PASSPHRASE"}, {"*PASSPHRASES"}, {"*CREDENTIAL"}, {"*CREDENTIALS"}, {"*APIKEY"}, {"*APIKEYS"},
	{"*ACCESSKEY"}, {"*SECRETKEY"}, {"*PRIVATEKEY"}, {"*_KEYS"}, {"*_PATS"}, {"*_PASS"}, {"*_DSNS"},
	{"KEY"}, {"KEYS"}, {"AUTH"}, {"PAT"}, {"DSN"}, {"PASS"}, {"SSHPASS"},
	{"*_AUTHORIZATION"}, {"*_COOKIE"}, {"*_CONNECTION_STRING"}, {"*_WEBHOOK_URL"}, {"*_DATABASE_URLS"},
	{"*_REDIS_URL"}, {"MONGO_URL"}, {"MONGODB_URL"}, {"*_MONGODB_URI"}, {"SECRET_KEY_BASE"}, {"*_SECRET_KEY_BASE"},
	{"*_API_KEY_IDS"}, {"AWS_ACCESS_KEY_IDS"}, {"PGPASSFILES"}, {"*_PWDS"}, {"DATABASE_URLS"}, {"REDIS_URLS"}, {"*_REDIS_URLS"},
	{"MONGODB_URIS"}, {"*_MONGODB_URIS"}, {"SSH_AUTH_SOCKS"}, {"KUBECONFIGS"}, {"*_AUTHS"}, {"NETRCS"},
	{"DOCKER_AUTH_CONFIG"}, {"BW_SESSION"}, {"OP_SESSION_*"}, {"CREDENTIALS_DIRECTORY"},
}

// SecretShapes are the 24 name patterns of the reference that deny-secrets drops
// (compared without regard to case), in its order. The result is a new slice.
func SecretShapes() []Pattern { return append([]Pattern{}, secretShapes[:]...) }

// SeedShapes are the seven that the first version of the reference had: a
// compatibility set for reading its configuration, not a mode. The result is a
// new slice.
func SeedShapes() []Pattern { return append([]Pattern{}, secretShapes[:7]...) }

// SecretGaps are the patterns that deny-secrets drops besides SecretShapes
// (compared without regard to case). The result is a new slice.
func SecretGaps() []Pattern { return append([]Pattern{}, secretGaps[:]...) }

// guardOf classifies one variable. The pattern is the one that matched for
// guardShape and guardGap. Sockets come before shapes, because SSH_AUTH_SOCK is
// both and the better reason is that its socket is not there.
func guardOf(name, value string) (guard, Pattern) {
	name = toUpper(name)
	if isSocket(name) || strings.HasPrefix(value, "unix:") {
		return guardSocket, Pattern{}
	}
	if p := firstMatch(secretShapes[:], name); p.text != "" {
		return guardShape, p
	}
	if p := firstMatch(secretGaps[:], name); p.text != "" {
		return guardGap, p
	}
	if isLoader(name) {
		return guardLoader, Pattern{}
	}
	if hasCredentialURL(value) {
		return guardURL, Pattern{}
	}
	if strings.Contains(value, "PRIVATE KEY-----") {
		return guardKey, Pattern{}
	}
	return guardNone, Pattern{}
}

// firstMatch gives the first pattern that matches name, the zero Pattern for
// none. Most patterns differ from most names in their last byte, and this runs
// for every variable of a launch, so that is compared first.
func firstMatch(list []Pattern, name string) Pattern {
	if name == "" {
		return Pattern{}
	}
	last := name[len(name)-1]
	for _, p := range list {
		if c := p.text[len(p.text)-1]; (c == last || c == '*') && p.Match(name, false) {
			return p
		}
	}
	return Pattern{}
}

// toUpper is strings.ToUpper for ASCII letters only, so that it agrees with
// Pattern.Match. It does not allocate when there is nothing to change.
func toUpper(s string) string {
	for i := 0; i < len(s); i++ {
		if upper(s[i]) != s[i] {
			b := []byte(s)
			for ; i < len(b); i++ {
				b[i] = upper(b[i])
			}
			return string(b)
		}
	}
	return s
}

// LoadsCode reports whether a variable of this name, in any casing, makes ordinary
// programs load or run other code: LD_PRELOAD, BASH_ENV, GIT_SSH_COMMAND and the
// like. deny-secrets drops these.
func LoadsCode(name string) bool { return isLoader(toUpper(name)) }

// isLoader reports whether the variable makes ordinary programs load or run
// code. Search paths (PYTHONPATH, NODE_PATH, CLASSPATH) and editors are not in
// it: a toolchain needs them, as it needs PATH. name is in upper case.
func isLoader(name string) bool {
	switch name {
	case
		// ld.so(8), glibc's list of variables that set-id programs ignore
		"GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "LOCPATH", "NIS_PATH", "RESOLV_HOST_CONF",
		// shells
		"BASH_ENV", "ENV", "ZDOTDIR", "PROMPT_COMMAND", "PS4", "SHELLOPTS", "BASHOPTS",
		// git(1) and ssh(1)
		"GIT_SSH", "GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_ASKPASS", "GIT_CONFIG",
		"GIT_EXEC_PATH", "GIT_TEMPLATE_DIR", "GIT_SEQUENCE_EDITOR", "SSH_ASKPASS", "SUDO_ASKPASS",
		// interpreters and runtimes
		"NODE_OPTIONS", "ELECTRON_RUN_AS_NODE",
		"PYTHONSTARTUP", "PYTHONHOME", "PYTHONBREAKPOINT", "PYTHONINSPECT",
		"PERL5OPT", "PERL5DB", "PERL5SHELL", "RUBYOPT", "RUBYSHELL",
		"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS",
		"DOTNET_STARTUP_HOOKS", "CORECLR_PROFILER", "CORECLR_PROFILER_PATH", "COR_PROFILER", "COR_PROFILER_PATH",
		"PHPRC", "PHP_INI_SCAN_DIR", "R_PROFILE", "R_PROFILE_USER", "R_ENVIRON", "R_ENVIRON_USER",
		// libraries and tools with plug-ins or start-up files
		"OPENSSL_MODULES", "OPENSSL_ENGINES", "GTK_MODULES", "GTK3_MODULES", "GIO_EXTRA_MODULES", "QT_PLUGIN_PATH",
		"LESSOPEN", "LESSCLOSE", "VIMINIT", "GVIMINIT", "EXINIT":
		return true
	}
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") ||
		strings.HasPrefix(name, "GIT_CONFIG_") || strings.HasPrefix(name, "BASH_FUNC_") ||
		strings.HasPrefix(name, "LUA_INIT")
}

// isSocket reports whether the variable leads to a socket, descriptor or session
// of the host, none of which is in the box. name is in upper case.
func isSocket(name string) bool {
	switch name {
	case "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "AT_SPI_BUS_ADDRESS",
		"SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "GNOME_KEYRING_CONTROL",
		"DISPLAY", "XAUTHORITY", "ICEAUTHORITY", "SESSION_MANAGER", "WAYLAND_DISPLAY",
		"I3SOCK", "SWAYSOCK", "HYPRLAND_INSTANCE_SIGNATURE", "NIRI_SOCKET",
		"PULSE_SERVER", "PULSE_COOKIE", "PIPEWIRE_REMOTE", "NOTIFY_SOCKET", "JOURNAL_STREAM",
		"TMUX", "TMUX_PANE", "STY", "ZELLIJ", "KITTY_LISTEN_ON", "ALACRITTY_SOCKET", "WEZTERM_UNIX_SOCKET",
		"NVIM", "NVIM_LISTEN_ADDRESS", "VSCODE_GIT_IPC_HANDLE":
		return true
	}
	return strings.HasPrefix(name, "VSCODE_IPC_HOOK")
}

// isDescriptor reports whether the variable names an inherited descriptor, see
// sd_listen_fds(3), child_process in node, bash(1), and wl_display_connect.
func isDescriptor(name string) bool {
	switch name {
	case "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID",
		"NODE_CHANNEL_FD", "NODE_CHANNEL_SERIALIZATION_MODE", "BASH_XTRACEFD", "WAYLAND_SOCKET":
		return true
	}
	return false
}

// isCallerState reports whether the variable describes the calling shell.
func isCallerState(name string) bool { return name == "PWD" || name == "SHLVL" || name == "_" }

// hasCredentialURL reports whether the value holds "user:password@" of a URL, or
// of the address forms without a scheme that proxies and database drivers take,
// or a token alone before the host of an http URL.
func hasCredentialURL(v string) bool {
	if strings.IndexByte(v, '@') < 0 {
		return false
	}
	for rest := v; ; {
		i := strings.Index(rest, "://")
		if i < 0 {
			break
		}
		scheme := rest[:i]
		rest = rest[i+3:]
		if authorityHasCredential(scheme, word(rest)) {
			return true
		}
	}
	for rest := v; rest != ""; {
		w := word(rest)
		if w == "" {
			rest = rest[1:]
			continue
		}
		if bareCredential(w) {
			return true
		}
		rest = rest[len(w):]
	}
	return false
}

// word gives s up to white space, a quote or an angle bracket.
func word(s string) string {
	if i := strings.IndexAny(s, " \t\r\n\v\f\"'`<>"); i >= 0 {
		return s[:i]
	}
	return s
}

// authorityHasCredential looks at s, which follows "://". Passwords with a raw
// "/", "?" or "#" are not allowed by RFC 3986, but drivers accept them, so the
// password runs to the "@" unless what follows the colon is a port.
func authorityHasCredential(scheme, s string) bool {
	i := strings.IndexAny(s, ":/?#@[")
	if i < 0 {
		return false
	}
	switch s[i] {
	case '@':
		// A user alone is no secret, but before the host of a web address it
		// is a token more often than not.
		return i > 0 && (hasSuffixFold(scheme, "http") || hasSuffixFold(scheme, "https"))
	case ':':
		pass, _, ok := strings.Cut(s[i+1:], "@")
		if !ok || pass == "" {
			return false
		}
		digits := 0
		for digits < len(pass) && '0' <= pass[digits] && pass[digits] <= '9' {
			digits++
		}
		port := digits > 0 && digits < len(pass) && strings.IndexByte("/?#", pass[digits]) >= 0
		return !port
	}
	return false
}

// bareCredential reports whether the word is "user:password@host...", without a
// scheme. A path, a mail address, an image reference with a digest and a package
// name with a version look similar and are not.
func bareCredential(w string) bool {
	c := strings.IndexByte(w, ':')
	if c <= 0 || strings.IndexByte(w[:c], '/') >= 0 || strings.HasPrefix(w[c:], "://") {
		return false
	}
	switch w[:c] {
	case "mailto", "npm":
		return false
	}
	pass, host, ok := strings.Cut(w[c+1:], "@")
	if !ok || pass == "" || host == "" || strings.IndexByte(pass, '/') >= 0 {
		return false
	}
	if strings.HasPrefix(host, "sha256:") || strings.HasPrefix(host, "sha512:") {
		return false
	}
	h := upper(host[0])
	return 'A' <= h && h <= 'Z' || '0' <= h && h <= '9' || h == '[' || h == '(' || h == '/' || h >= 0x80
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && equal(s[len(s)-len(suffix):], suffix, true)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && equal(s[:len(prefix)], prefix, true)
}
