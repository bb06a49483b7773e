package envscrub

import (
	"io/fs"

	"github.com/wallsandbox/wall/plan"
)

// Mode says how ambient names are filtered; see the package comment.
type Mode string

// The modes, weakest first. There is no default: Build refuses any other.
const (
	ModeOff         Mode = "off"
	ModeDenySecrets Mode = "deny-secrets"
	ModeStrict      Mode = "strict"
)

// ParseMode reads a mode, exactly as written above.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case ModeOff, ModeDenySecrets, ModeStrict:
		return m, nil
	}
	return "", &plan.Error{
		Op:   "cannot read the scrub mode",
		Hint: "use off, deny-secrets or strict",
		Err:  errMode,
	}
}

// Base names a table of ambient names that strict lets cross, and what is
// derived with it.
type Base string

// The bases.
//
//	shell, terminal  PATH TERM COLORTERM TZ LANG LANGUAGE LC_* TMPDIR USER LOGNAME SHELL
//	session          PATH TERM LANG LC_ALL TZ USER; RUSTUP_HOME and NPM_CONFIG_CACHE,
//	                 derived from the account home when not set
//	contract         as session
//	workspace        as session, and what step "operations" of the package comment adds
//	gate             PATH USERPROFILE TMP TEMP RUSTUP_HOME NPM_CONFIG_CACHE CI TERM LANG LC_ALL TZ
//	probe            PATH USERPROFILE TMP TEMP TERM LANG LC_ALL TZ USER
//
// HOME and TMPDIR are in every base, with values from Input; gate and probe
// also get TMP and TEMP. On Windows every base also has SystemRoot ComSpec
// PATHEXT SystemDrive windir OS PROCESSOR_ARCHITECTURE PSModulePath, and the
// gate derives the toolchain locations as well.
const (
	BaseShell    Base = "shell"
	BaseTerminal Base = "terminal"
	BaseSession  Base = "session"
	BaseContract Base = "contract"
	BaseGate     Base = "gate"
	BaseProbe    Base = "probe"

	BaseWorkspace Base = "workspace"
)

// ParseBase reads a base, exactly as written above.
func ParseBase(s string) (Base, error) {
	switch b := Base(s); b {
	case BaseShell, BaseTerminal, BaseSession, BaseContract, BaseGate, BaseProbe, BaseWorkspace:
		return b, nil
	}
	return "", &plan.Error{
		Op:   "cannot read the environment base",
		Hint: "use shell, terminal, session, contract, gate, probe or workspace",
		Err:  errBase,
	}
}

// DefaultMode is the mode of a surface that says nothing: deny-secrets for
// shell, off for terminal (the operator's own), strict for all others.
func (b Base) DefaultMode() Mode {
	switch b {
	case BaseShell:
		return ModeDenySecrets
	case BaseTerminal:
		return ModeOff
	}
	return ModeStrict
}

// Input is what Build knows about the machine and the box.
type Input struct {
	// Ambient is the caller's environment, "NAME=value".
	Ambient []string
	// AccountHome is the home directory of the account record (not $HOME), an
	// absolute host path; "" when unknown, and then the ambient HOME
	// (USERPROFILE on Windows) stands for it.
	AccountHome string
	// OS is the host's runtime.GOOS; "" is the same as "linux". For "windows"
	// see the package comment.
	OS string
	// FS is a view of the host's file tree rooted at "/"; on Windows its root
	// holds the drives ("C:/Users"). Without one (nil) no file exists.
	FS fs.FS
	// Home and TmpDir are HOME and TMPDIR as seen inside the box. When one is
	// "", the ambient variable has no special meaning and crosses by the rules
	// of the mode; both are meant to be set.
	Home, TmpDir string
	// ScratchHome says that Home is a private directory of this run. It changes
	// the reason that HOME is shown with; on Windows also what else is set.
	ScratchHome bool
}

// A Rule is one pattern of an allow or deny list.
type Rule struct {
	Pattern Pattern
	Origin  plan.Origin
	// Guarded lets a pattern of Allow with a star admit guarded names under
	// strict, as the variable SANDBOX_ENV_ALLOW of the reference does.
	Guarded bool
}

// A Name asks for one ambient variable.
type Name struct {
	Name   string
	Origin plan.Origin
}

// An Assign sets one variable to a value, verbatim.
type Assign struct {
	Name   string
	Value  string
	Origin plan.Origin
}

// A Policy says what the environment shall be; see the package comment for the
// order and the rules.
type Policy struct {
	Base       Base
	BaseOrigin plan.Origin // what chose Base; zero means a default
	Mode       Mode
	ModeOrigin plan.Origin // what chose Mode; zero means a default

	Allow []Rule
	Deny  []Rule
	// ControlPrefixes are prefixes of the control plane's variables besides "WALL_".
	ControlPrefixes []string

	// Pass names ambient variables that cross. A name that wall manages itself
	// (in any casing) or that is not set is not an error: it gives a notice.
	// Blank names are skipped.
	Pass []Name
	// Auth is the one credential variable; "" for none.
	Auth Name

	Set    []Assign // of the profile, in order, the last one wins
	Inject []Assign // stored, overlaid in every mode
	Fixed  []Assign // decided by wall: PWD, a base commit, cache locations
	Flags  []Assign // --env
	Extra  []Assign // of the program that uses this package: last and verbatim, see Session

	// Managed are further names that Pass and Auth may not name, in any casing.
	Managed []string

	// KeepFDs says that inherited descriptors stay open, so that the variables
	// which name them keep their meaning.
	KeepFDs bool
}

// A Result is an environment and the account of it. No slice is nil.
type Result struct {
	Env     []plan.EnvVar  // sorted by name, each name once
	Dropped []plan.EnvDrop // ambient names not in Env, sorted, each name once
	Notices []plan.Notice  // in the order of the steps
}

// BaseSHAName is the reference's name for the variable that holds the pinned
// base commit of a contract; see ContractOptions.
const BaseSHAName = "KRANZ_BASE_SHA"

// DefaultPath is PATH when the caller has none: the directories of login(1) and
// of the reference, root's included because the box has no privilege to protect.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
