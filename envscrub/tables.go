package envscrub

import "strings"

// inTable reports whether strict lets the ambient name cross on account of the
// base alone. HOME and TMPDIR are listed for callers that fix neither.
func (b Base) inTable(name string) bool {
	switch b {
	case BaseShell, BaseTerminal:
		switch name {
		case "PATH", "TERM", "COLORTERM", "TZ", "LANG", "LANGUAGE", "TMPDIR", "USER", "LOGNAME", "SHELL":
			return true
		}
		return strings.HasPrefix(name, "LC_")
	case BaseSession, BaseContract, BaseWorkspace:
		switch name {
		case "PATH", "TERM", "LANG", "LC_ALL", "TZ", "USER":
			return true
		}
		return location(name)
	case BaseGate:
		switch name {
		case "PATH", "HOME", "USERPROFILE", "TMPDIR", "TMP", "TEMP", "CI", "TERM", "LANG", "LC_ALL", "TZ":
			return true
		}
		return location(name)
	case BaseProbe:
		switch name {
		case "PATH", "HOME", "USERPROFILE", "TMPDIR", "TMP", "TEMP", "TERM", "LANG", "LC_ALL", "TZ", "USER":
			return true
		}
	}
	return false
}

// derives reports whether the base looks for toolchains in the account home.
// The gate does not: it has the operator's HOME, where they are found anyway.
func (b Base) derives() bool {
	return b == BaseSession || b == BaseContract || b == BaseWorkspace
}

// setsTemp reports whether TMP and TEMP are set even when the caller has none.
func (b Base) setsTemp() bool { return b == BaseGate || b == BaseProbe }

// locations are the toolchain homes that hold no credentials, with their place
// below the account home.
var locations = [...]struct{ name, sub string }{
	{"NPM_CONFIG_CACHE", ".npm"},
	{"RUSTUP_HOME", ".rustup"},
}

func location(name string) bool { return name == "NPM_CONFIG_CACHE" || name == "RUSTUP_HOME" }

// managed holds the names that a pass-through may not name, whatever the
// casing: wall decides them. The Windows names are there so that one profile
// means the same everywhere.
var managed = [...]string{
	"PATH", "HOME", "USERPROFILE", "TMPDIR", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA",
	"SystemRoot", "ComSpec", "PATHEXT", "SystemDrive", "windir", "OS", "PROCESSOR_ARCHITECTURE", "PSModulePath",
	"TERM", "LANG", "LC_ALL", "TZ", "USER",
	BaseSHAName, "CARGO_HOME", "RUSTUP_HOME", "NPM_CONFIG_CACHE",
	"PWD",
}

// operational holds what commands that fetch and check sources need of the host:
// its proxy, certificates and a forwarded ssh agent. None names a program.
var operational = [...]string{
	"SSH_AUTH_SOCK", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO",
}

// spelled holds the names besides managed and operational that this package
// compares exactly; on Windows other spellings are the same variable.
var spelled = [...]string{
	"CI", "COLORTERM", "LANGUAGE", "LOGNAME", "SHELL", "SHLVL", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL",
	"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "LISTEN_PIDFDID",
	"NODE_CHANNEL_FD", "NODE_CHANNEL_SERIALIZATION_MODE", "BASH_XTRACEFD", "WAYLAND_SOCKET",
	"MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "CARGO_MAKEFLAGS",
}
