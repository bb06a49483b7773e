package envscrub

import (
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// The functions of this file make the policies of the reference's kinds of
// child. Each returns a plain Policy, to be given to Build as it is or extended:
// Fixed takes the cache-only CARGO_HOME and other places that the caller made,
// ControlPrefixes the names of the caller's own control plane. All are strict.

// Session is the policy of an agent's session. spec is what its specification
// sets (git identity, proxy, a pinned base commit, a HOME of its own): it is
// applied last and verbatim, the last of one name counts, and it may replace
// anything. auth is the one credential variable of the agent ("" for none): it
// crosses when it is not empty and then wins over an entry of spec.
func Session(spec []Assign, auth Name) Policy {
	return Policy{Base: BaseSession, Mode: ModeStrict, Auth: auth, Extra: spec}
}

// SessionDirs gives Input.Home and Input.TmpDir of a session: the HOME of its
// specification when that has one, else the scratch home, and tmp below it.
// scratch tells which; it is Input.ScratchHome.
func SessionDirs(spec []Assign, scratchHome string) (home, tmp string, scratch bool) {
	home, scratch = scratchHome, true
	for _, a := range spec {
		if a.Name == "HOME" && a.Value != "" {
			home, scratch = a.Value, false
		}
	}
	return home, strings.TrimSuffix(home, "/") + "/tmp", scratch
}

// ContractOptions are the choices of a contract command.
type ContractOptions struct {
	// BaseSHA is the pinned base commit; without one no variable is set.
	BaseSHA string
	// BaseSHAName is the variable that holds it; "" is the constant BaseSHAName.
	BaseSHAName string
	// Pass names ambient variables that the operator lets through, see Policy.Pass.
	Pass []Name
}

// Contract is the policy of the commands that check a result: validation,
// final gate, preflight.
func Contract(o ContractOptions) Policy {
	name := o.BaseSHAName
	if name == "" {
		name = BaseSHAName
	}
	p := Policy{Base: BaseContract, Mode: ModeStrict, Pass: o.Pass, Managed: []string{name}}
	if o.BaseSHA != "" {
		p.Fixed = []Assign{{Name: name, Value: o.BaseSHA}}
	}
	return p
}

// Gate is the policy of a merge gate: the operator's home, no credential, no
// pass-through.
func Gate() Policy { return Policy{Base: BaseGate, Mode: ModeStrict} }

// Probe is the policy of asking an agent for its version or whether it is logged
// in: the operator's home, the one credential variable when it is not empty, and
// extra, last and verbatim as in Session.
func Probe(auth Name, extra []Assign) Policy {
	return Policy{Base: BaseProbe, Mode: ModeStrict, Auth: auth, Extra: extra}
}

// WorkspaceOptions are the choices of a workspace gate.
type WorkspaceOptions struct {
	// BaseSHA, BaseSHAName as in a contract; Pass names the secrets that the
	// operator allows, none of which crosses for that alone.
	ContractOptions
	// Declared names the secrets that the repository asks for.
	Declared []Name
	// Setting is the operator's setting that Pass comes from, for the notices;
	// "" is "environment.pass".
	Setting string
	// Handle is the environment of the workspace provider, last and verbatim.
	Handle []Assign
}

// Workspace is the policy of the commands that prepare and check a workspace.
// A secret crosses when two parties agree: the repository declares it, with a
// name of the form ^[A-Z][A-Z0-9_]*$, and the operator allows it, in any casing.
// Each declared name that is not let through gives a notice. Names of programs
// (GIT_SSH_COMMAND, LD_PRELOAD and the like) are never let through. The base
// adds proxy, certificates, ssh agent and git configuration of the host.
func Workspace(o WorkspaceOptions) (Policy, []plan.Notice) {
	setting := o.Setting
	if setting == "" {
		setting = "environment.pass"
	}
	notices := []plan.Notice{}
	refuse := func(n Name, why, hint string) {
		notices = append(notices, plan.Notice{Text: "ignoring the secret " + quoteName(n.Name) + " that the repository declares: " + why, Hint: hint, Origin: nameOrigin(n)})
	}
	var pass []Name
	seen := map[string]bool{}
	for _, n := range o.Declared {
		n.Name = strings.TrimSpace(n.Name)
		if n.Name == "" || seen[n.Name] {
			continue
		}
		seen[n.Name] = true
		switch {
		case !secretName(n.Name):
			refuse(n, "not a name of capital letters, digits and underscores", "")
		case isLoader(n.Name):
			refuse(n, "it makes programs load or run other code", "")
		case !allows(o.Pass, n.Name):
			refuse(n, "the operator does not allow it", "add it to "+setting)
		default:
			pass = append(pass, n)
		}
	}
	p := Contract(ContractOptions{BaseSHA: o.BaseSHA, BaseSHAName: o.BaseSHAName, Pass: pass})
	p.Base, p.Extra = BaseWorkspace, o.Handle
	return p, notices
}

func allows(list []Name, name string) bool {
	for _, n := range list {
		if equal(strings.TrimSpace(n.Name), name, true) {
			return true
		}
	}
	return false
}

// secretName reports whether name has the form ^[A-Z][A-Z0-9_]*$.
func secretName(name string) bool {
	return ValidName(name) && name[0] != '_' && name == toUpper(name)
}
