package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// A WallState says whether a wall was in force, and by what.
type WallState struct {
	Wall   plan.Wall `json:"wall"`
	Up     bool      `json:"up"`
	Detail string    `json:"detail"`
}

// shared says what is reached of a network that is the host's.
func shared(l plan.Landlock) string {
	if l.Network {
		return "the host's network, TCP ports limited by Landlock"
	}
	return "the host's network"
}

// reach says what a command reaches beyond the namespace of its network.
func reach(n plan.Network) string {
	var parts []string
	switch n.Method {
	case plan.NetRedirect:
		parts = append(parts, fmt.Sprintf("%d rules for hosts by redirect", len(n.Allow)+len(n.Deny)))
	case plan.NetProxy:
		parts = append(parts, fmt.Sprintf("%d rules for hosts by proxy alone", len(n.Allow)+len(n.Deny)))
	}
	if k := len(n.Loopback); k > 0 {
		parts = append(parts, fmt.Sprintf("%d ports of the host's loopback", k))
	}
	if k := len(n.Publish); k > 0 {
		parts = append(parts, fmt.Sprintf("%d published ports", k))
	}
	if parts == nil {
		return "loopback only"
	}
	return strings.Join(parts, ", ")
}

// Walls tells which walls stood around the command of p. That is known only for a
// command that ran: then every step of the plan was done and its self-test passed.
func Walls(p plan.Plan) []WallState {
	has := func(kinds ...plan.SpaceKind) []string {
		var names []string
		for _, s := range p.Spaces {
			if slices.Contains(kinds, s.Kind) {
				names = append(names, string(s.Kind))
			}
		}
		return names
	}
	state := func(w plan.Wall, up bool, detail, none string) WallState {
		if !up {
			detail = none
		}
		return WallState{w, up, detail}
	}
	filter := "filter " + p.Seccomp.Profile
	if len(p.Seccomp.Program) > 0 {
		sum := sha256.Sum256(p.Seccomp.Program)
		filter += ", compiled SHA-256 " + hex.EncodeToString(sum[:])
	}
	var limits []string
	for _, l := range p.Limits {
		limits = append(limits, string(l.Name))
	}
	for _, b := range []struct {
		name string
		plan.Bound
	}{
		{"time", p.Bounds.Time}, {plan.BoundMemory, p.Bounds.Memory}, {plan.BoundProcesses, p.Bounds.Processes}, {plan.BoundScratch, p.Bounds.Scratch}, {plan.BoundTotal, p.Bounds.Total},
	} {
		if b.Value > 0 {
			limits = append(limits, b.name+" by "+string(b.By))
		}
	}
	boxed := p.Enforce != plan.EnforceOff
	return []WallState{
		state(plan.WallFilesystem, len(p.Mounts) > 0, fmt.Sprintf("mount namespace, %d mounts", len(p.Mounts)), "none"),
		state(plan.WallNetwork, len(has(plan.SpaceNet)) > 0, "network namespace, "+reach(p.Network), shared(p.Landlock)),
		state(plan.WallProcess, boxed, "namespaces "+strings.Join(has(plan.SpaceUser, plan.SpacePID, plan.SpaceIPC, plan.SpaceUTS, plan.SpaceCgroup), " ")+", no capability, no_new_privs", "none"),
		state(plan.WallSyscalls, p.Seccomp.Profile != "", filter, "none"),
		state(plan.WallLandlock, p.Landlock.ABI > 0, fmt.Sprintf("ABI %d, %d rules", p.Landlock.ABI, len(p.Landlock.Rules)), "none"),
		state(plan.WallEnvironment, true, fmt.Sprintf("%d variables, %d dropped", len(p.Env), len(p.Dropped)), ""),
		state(plan.WallLimits, len(limits) > 0, strings.Join(limits, ", "), "none"),
	}
}
