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
	case BaseSession, BaseContract:
		switch name {
		case "PATH", "TERM", "LANG", "LC_ALL", "TZ", "USER":
			return true
		}
		return b.derives() && location(name)
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
func (b Base) derives() bool { return b == BaseSession || b == BaseContract }

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
