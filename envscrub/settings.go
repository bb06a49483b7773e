package envscrub

import (
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// The settings of the reference in the caller's environment, read by
// ReadSettings in any casing.
const (
	ShellScrubSetting    = "SANDBOX_SHELL_SCRUB"
	TerminalScrubSetting = "SANDBOX_TERMINAL_SCRUB"
	EnvAllowSetting      = "SANDBOX_ENV_ALLOW"
	EnvDenySetting       = "SANDBOX_ENV_DENY"
)

// Settings are what the SANDBOX_* variables of an environment say.
type Settings struct {
	// Shell and Terminal are the modes of the two surfaces; "" when the setting
	// is missing, empty or no mode, and then what holds without it holds.
	Shell, Terminal Mode
	// Allow and Deny are the rules for both surfaces, never nil. A pattern with
	// a star in Allow admits guarded names (Rule.Guarded), as in the reference.
	Allow, Deny []Rule
}

// Mode gives the mode that the settings ask for on the surface of a base, with
// the setting as its origin. It is "" for bases that have no setting.
func (s Settings) Mode(b Base) (Mode, plan.Origin) {
	switch {
	case b == BaseShell && s.Shell != "":
		return s.Shell, plan.Origin{Text: ShellScrubSetting}
	case b == BaseTerminal && s.Terminal != "":
		return s.Terminal, plan.Origin{Text: TerminalScrubSetting}
	}
	return "", plan.Origin{}
}

// ReadSettings reads SANDBOX_SHELL_SCRUB, SANDBOX_TERMINAL_SCRUB,
// SANDBOX_ENV_ALLOW and SANDBOX_ENV_DENY from an environment ("NAME=value"). It
// never fails.
//
// The names match in any casing; the last entry counts. A mode is taken without
// the white space round it. An empty one says nothing; one that is no mode says
// nothing either and gives one notice, which names the setting and the default
// but not the value. The lists are separated by commas, semicolons or white
// space; entries that can match no name are left out, with one notice for each
// list. The origin of a rule and of a notice is the name of the setting, so that
// a caller can drop the notices of the other surface. The notices are never nil.
func ReadSettings(environ []string) (Settings, []plan.Notice) {
	notices := []plan.Notice{}
	mode := func(setting string, b Base) Mode {
		value := strings.TrimSpace(lastFold(environ, setting))
		if value == "" {
			return ""
		}
		m, err := ParseMode(value)
		if err != nil {
			notices = append(notices, plan.Notice{
				Text:   "ignoring " + setting + ", which is not a scrub mode; using the profile's, or the default " + string(b.DefaultMode()),
				Hint:   "use off, deny-secrets or strict",
				Origin: plan.Origin{Text: setting},
			})
			return ""
		}
		return m
	}
	rules := func(setting string, guarded bool) []Rule {
		out := []Rule{}
		bad := 0
		for _, s := range strings.FieldsFunc(lastFold(environ, setting), isSeparator) {
			p, err := ParsePattern(s)
			if err != nil {
				bad++
				continue
			}
			out = append(out, Rule{Pattern: p, Origin: plan.Origin{Text: setting}, Guarded: guarded})
		}
		if bad > 0 {
			notices = append(notices, plan.Notice{
				Text:   "ignoring " + count(bad, "entry", "entries") + " of " + setting + " that can match no name",
				Hint:   "write names, or names with one leading or trailing \"*\", without values",
				Origin: plan.Origin{Text: setting},
			})
		}
		return out
	}
	s := Settings{
		Shell:    mode(ShellScrubSetting, BaseShell),
		Terminal: mode(TerminalScrubSetting, BaseTerminal),
		Allow:    rules(EnvAllowSetting, true),
		Deny:     rules(EnvDenySetting, false),
	}
	return s, notices
}

// lastFold gives the value of the last entry with the name in any casing, ""
// when there is none.
func lastFold(environ []string, name string) string {
	for _, e := range slices.Backward(environ) {
		if n, value, ok := strings.Cut(e, "="); ok && equal(n, name, true) {
			return value
		}
	}
	return ""
}
