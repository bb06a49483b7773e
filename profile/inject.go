package profile

import (
	"errors"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// injectedName is the name of the store of injected variables in wall's own
// configuration directory.
const injectedName = "injected.json"

// InjectedFile is where the stored variables of the caller are when workspace is
// the workspace: $XDG_CONFIG_HOME/wall/injected.json when that is absolute and
// not inside the workspace, else ~/.config/wall/injected.json in the home
// directory of the account record; "" when there is no such place. The directory
// is free of links. The error says why the place cannot be used.
func InjectedFile(h Host, workspace string) (string, error) {
	s := newStack(h)
	s.at.workspace = workspace
	return s.injectedFile()
}

// UserDir is where the user's own profiles are when workspace is the workspace,
// the directory of [InjectedFile].
func UserDir(h Host, workspace string) (string, error) {
	s := newStack(h)
	s.at.workspace = workspace
	return s.configDir()
}

func (s *Stack) injectedFile() (string, error) {
	d, err := s.configDir()
	if d == "" || err != nil {
		return "", err
	}
	return join(d, injectedName), nil
}

// injected reads the stored variables when the profile wants them. One that
// cannot be read stops the run: a command that starts without a variable that
// the operator stored has a wrong environment.
func (r *resolver) injected() ([]envscrub.Assign, error) {
	if !r.s.Inject.V || r.h.Injected == nil {
		return nil, nil
	}
	fail := func(err error) error {
		e := plan.Error{Op: "cannot read the stored variables", Err: err}
		var told *plan.Error
		if errors.As(err, &told) { // it knows better what went wrong
			e = *told
		}
		if e.Origin.IsZero() {
			e.Origin = r.s.Inject.Origin
		}
		if e.Hint == "" {
			e.Hint = "\"wall env restore\" takes back the last good state; a profile with inject = false runs without them"
		}
		return &e
	}
	file, err := r.st.injectedFile()
	if err != nil {
		return nil, fail(err)
	}
	if file == "" {
		return nil, nil
	}
	vars, err := r.h.Injected(file)
	if err != nil {
		return nil, fail(err)
	}
	out := make([]envscrub.Assign, 0, len(vars))
	for _, v := range vars {
		out = append(out, envscrub.Assign{Name: v.Name, Value: v.Value, Origin: plan.Origin{File: file, Text: v.Name}})
	}
	return out, nil
}
