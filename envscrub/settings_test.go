package envscrub

import (
	"strings"
	"testing"
)

func patterns(rules []Rule) string {
	var s []string
	for _, r := range rules {
		s = append(s, r.Pattern.String())
	}
	return strings.Join(s, " ")
}

// A bad mode value is the default with one warning that does not show it, an
// empty one without.
func TestContenoxModeSetting(t *testing.T) {
	for _, tt := range []struct {
		environ         []string
		shell, terminal Mode
		warn            []string
	}{
		{nil, "", "", nil},
		{[]string{"SANDBOX_SHELL_SCRUB=strict"}, ModeStrict, "", nil},
		{[]string{"SANDBOX_TERMINAL_SCRUB= off\n"}, "", ModeOff, nil},
		{[]string{"sandbox_shell_scrub=off", "Sandbox_Terminal_Scrub=deny-secrets"}, ModeOff, ModeDenySecrets, nil},
		{[]string{"SANDBOX_SHELL_SCRUB=off", "sandbox_shell_scrub=strict"}, ModeStrict, "", nil},
		{[]string{"SANDBOX_SHELL_SCRUB=strict", "SANDBOX_SHELL_SCRUB="}, "", "", nil},
		{[]string{"SANDBOX_SHELL_SCRUB= \t\u00a0 "}, "", "", nil},
		{[]string{"SANDBOX_SHELL_SCRUB=Strict"}, "", "", []string{"SANDBOX_SHELL_SCRUB", "default deny-secrets"}},
		{[]string{"SANDBOX_TERMINAL_SCRUB=none" + sentinel}, "", "", []string{"SANDBOX_TERMINAL_SCRUB", "default off"}},
		{[]string{"XSANDBOX_SHELL_SCRUB=strict", "SANDBOX_SHELL_SCRUBX=strict", "SANDBOX_SHELL_SCRUB", "=strict"}, "", "", nil},
	} {
		s, notices := ReadSettings(tt.environ)
		if s.Shell != tt.shell || s.Terminal != tt.terminal || s.Allow == nil || s.Deny == nil || notices == nil {
			t.Errorf("%q: %+v", tt.environ, s)
		}
		if (len(tt.warn) > 0) != (len(notices) == 1) {
			t.Errorf("%q: %d notices", tt.environ, len(notices))
		}
		text := texts(Result{Notices: notices}, nil)
		for _, w := range tt.warn {
			if !strings.Contains(text, w) {
				t.Errorf("%q: no %q in %s", tt.environ, w, text)
			}
		}
		if strings.Contains(text, sentinel) {
			t.Errorf("a value is shown: %s", text)
		}
	}
}

// The mode belongs to one surface only, and names its setting.
func TestSettingsMode(t *testing.T) {
	s, _ := ReadSettings([]string{"sandbox_shell_scrub=strict", "SANDBOX_TERMINAL_SCRUB=deny-secrets"})
	for b, want := range map[Base]string{BaseShell: "strict SANDBOX_SHELL_SCRUB", BaseTerminal: "deny-secrets SANDBOX_TERMINAL_SCRUB",
		BaseSession: " ", BaseContract: " ", BaseGate: " ", BaseProbe: " "} {
		if m, o := s.Mode(b); string(m)+" "+o.Text != want {
			t.Errorf("%s: %q %+v, want %q", b, m, o, want)
		}
	}
	if m, o := (Settings{}).Mode(BaseShell); m != "" || !o.IsZero() {
		t.Errorf("without settings: %q %+v", m, o)
	}
}

// Lists are separated by commas, semicolons and any white space; what can match
// no name is left out with one notice.
func TestContenoxListSettings(t *testing.T) {
	s, notices := ReadSettings([]string{"SANDBOX_ENV_ALLOW=A,B*;;*C\tD\nE\u2003F\u0085G , ;", "sandbox_env_deny=x"})
	if got := patterns(s.Allow); got != "A B* *C D E F G" || len(notices) != 0 {
		t.Errorf("allow: %s %v", got, notices)
	}
	if got := patterns(s.Deny); got != "x" {
		t.Errorf("deny: %s", got)
	}
	if !s.Allow[1].Guarded || s.Allow[1].Origin.Text != EnvAllowSetting || s.Deny[0].Origin.Text != EnvDenySetting {
		t.Errorf("%+v %+v", s.Allow[1], s.Deny[0])
	}
	s, notices = ReadSettings([]string{"SANDBOX_ENV_DENY=A=" + sentinel + ",B,=" + sentinel})
	if text := texts(Result{Notices: notices}, nil); patterns(s.Deny) != "B" || len(notices) != 1 ||
		!strings.Contains(text, "2 entries of SANDBOX_ENV_DENY") || strings.Contains(text, sentinel) {
		t.Errorf("%s %s", patterns(s.Deny), text)
	}
}

// The settings do in Build what they do in the reference: under strict a
// pattern re-permits what it matches, secrets included, deny wins, and the
// control plane stays out.
func TestSettingsInBuild(t *testing.T) {
	in := Input{Ambient: []string{"PATH=/bin", "CI_JOB_TOKEN=1", "CI_X=1", "CI_Y=1", "WALL_CI=1", "LC_TOKEN=1", "SANDBOX_ENV_ALLOW=CI_* WALL_* LC_*", "SANDBOX_ENV_DENY=ci_y"}}
	s, _ := ReadSettings(in.Ambient)
	if got := envNames(build(t, in, Policy{Base: BaseShell, Mode: ModeStrict, Allow: s.Allow, Deny: s.Deny})); got != "CI_JOB_TOKEN CI_X LC_TOKEN PATH" {
		t.Errorf("strict: %s", got)
	}
	// The settings themselves are not in any deny set.
	if got := envNames(build(t, in, Policy{Base: BaseShell, Mode: ModeDenySecrets, Allow: s.Allow, Deny: s.Deny})); got != "CI_X PATH SANDBOX_ENV_ALLOW SANDBOX_ENV_DENY" {
		t.Errorf("deny-secrets: %s", got)
	}
	// A rule of a profile beside them gains nothing from them.
	p := Policy{Base: BaseShell, Mode: ModeStrict, Allow: append(rules(t, "CI_*"), Rule{Pattern: pattern(t, "ZZ*"), Guarded: true})}
	if got := envNames(build(t, in, p)); got != "CI_X CI_Y PATH" {
		t.Errorf("profile: %s", got)
	}
}
