package profile

import (
	"slices"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// settingsName is what the layer of the SANDBOX_* variables is called.
const settingsName = "SANDBOX_*"

// withSettings puts a layer of what the SANDBOX_* variables of the caller say
// above the profiles of the operator, when the base of the environment is that
// of a shell or a terminal. A project layer lies above it and may only tighten
// what comes of it; flags lie above both.
func (s *Stack) withSettings(layers []Layer, project, flags Layer) []Layer {
	all := slices.Clip(layers)
	for _, l := range []Layer{project, flags} {
		if l.File != nil {
			all = append(all, l)
		}
	}
	base := envscrub.Base(merge(all, commandLine{}).EnvBase.V)
	other := envscrub.TerminalScrubSetting
	switch base {
	case envscrub.BaseShell:
	case envscrub.BaseTerminal:
		other = envscrub.ShellScrubSetting
	default:
		return layers
	}
	set, notices := envscrub.ReadSettings(s.h.Environ)
	s.notices = slices.DeleteFunc(notices, func(n plan.Notice) bool { return n.Origin.Text == other })
	f := &File{Source: settingsName}
	if m, o := set.Mode(base); m != "" {
		f.EnvScrub = Value[string]{true, string(m), o}
	}
	f.EnvAllow, f.EnvDeny = settingList(set.Allow), settingList(set.Deny)
	if !f.EnvScrub.Set && !f.EnvAllow.Set && !f.EnvDeny.Set {
		return layers
	}
	return append(slices.Clip(layers), Layer{Kind: LayerSettings, Name: settingsName, File: f, id: settingsName})
}

func settingList(rules []envscrub.Rule) List[string] {
	var l List[string]
	for _, r := range rules {
		add(&l, r.Pattern.String(), r.Origin)
	}
	return l
}
