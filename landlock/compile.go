package landlock

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	golandlock "github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"github.com/wallsandbox/wall/plan"
)

// A Ruleset is a compiled [plan.Landlock]: what is handled (refused unless a
// rule allows it) and the rules, in kernel terms. The zero Ruleset handles
// nothing and cannot be opened.
type Ruleset struct {
	ABI        int                     // the level it was compiled for, at most NewestABI
	HandledFS  golandlock.AccessFSSet  // file rights that are refused unless allowed
	HandledNet golandlock.AccessNetSet // network rights that are refused unless allowed
	Scoped     golandlock.ScopedSet    // what may not leave the domain
	Rules      []Rule                  // in plan order, one per path
	Stdio      []StdioRule             // ascending by FD
	Ports      []Port                  // in plan order
}

// A Rule allows Access on Path and everything beneath it. Rights that make
// sense for directories only are dropped in [Ruleset.Open] when Path is none.
type Rule struct {
	Path     string
	Access   golandlock.AccessFSSet
	Optional bool // skip when missing or unreachable
	Origin   plan.Origin
}

// A StdioRule allows Access on the regular file that descriptor FD refers to.
type StdioRule struct {
	FD     int
	Access golandlock.AccessFSSet
}

// A Port allows Access on one port number.
type Port struct {
	Port   uint16
	Access golandlock.AccessNetSet
	Origin plan.Origin
}

// Options is what Compile needs to know besides the rules.
type Options struct {
	// Stdio is Plan.Stdio; it matters when the plan asks for rules on it.
	Stdio []plan.Stdio
	// ListAncestors: see [Expand]. Set it when a mount namespace covers what
	// the plan hides.
	ListAncestors bool
	// ReadDir lists one directory of the tree that will be restricted: the
	// function [ReadDir] inside the box. It is called for rules with
	// exceptions only.
	ReadDir func(dir string) ([]Entry, error)
}

// The rights behind each [plan.Access]; Compile keeps those that the ABI has.
//
//   - Reading a tree does not include connecting to its sockets (ABI 9): a
//     readable HOME must not mean a usable agent or bus socket.
//   - No tree ever allows device nodes to be made, and no tree that is written
//     to allows ioctls on devices that are reachable in it.
//   - Renaming and linking across directories needs REFER at both ends, so every
//     writable tree has it; without, tools fall over EXDEV.
const (
	rightsRead = ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSReadDir

	rightsWrite = rightsRead | ll.AccessFSWriteFile | ll.AccessFSTruncate |
		ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeReg | ll.AccessFSMakeDir | ll.AccessFSMakeSym | ll.AccessFSMakeFifo | ll.AccessFSMakeSock |
		ll.AccessFSRefer | ll.AccessFSResolveUnix

	rightsInOut  = ll.AccessFSReadFile | ll.AccessFSReadDir | ll.AccessFSWriteFile | ll.AccessFSTruncate
	rightsDevice = rightsInOut | ll.AccessFSIoctlDev
	rightsList   = ll.AccessFSReadDir
	rightsStdin  = ll.AccessFSReadFile
	rightsStdout = ll.AccessFSWriteFile | ll.AccessFSTruncate
)

// rights gives the rights of an access at the newest ABI.
func rights(a plan.Access) (golandlock.AccessFSSet, bool) {
	switch a {
	case plan.AccessNone:
		return 0, true
	case plan.AccessRead:
		return rightsRead, true
	case plan.AccessWrite:
		return rightsWrite, true
	case plan.AccessDevice:
		return rightsDevice, true
	case plan.AccessInOut:
		return rightsInOut, true
	case plan.AccessList:
		return rightsList, true
	case plan.AccessStdin:
		return rightsStdin, true
	case plan.AccessStdout:
		return rightsStdout, true
	}
	return 0, false
}

// portRight gives the network right of an operation.
func portRight(op plan.PortOp) (golandlock.AccessNetSet, bool) {
	switch op {
	case plan.PortBindTCP:
		return ll.AccessNetBindTCP, true
	case plan.PortConnectTCP:
		return ll.AccessNetConnectTCP, true
	case plan.PortBindUDP:
		return ll.AccessNetBindUDP, true
	case plan.PortConnectUDP:
		return ll.AccessNetConnectSendUDP, true
	}
	return 0, false
}

// Compile turns the rules of a plan into a Ruleset. It asks the machine
// nothing except through o.ReadDir. With l.ABI 0 it gives the zero Ruleset.
//
// It fails closed: scopes or network rules that l.ABI does not have are a
// [plan.UnsupportedError] (matching errors.ErrUnsupported), for whoever made
// the plan decides what to do without. UDP is the exception that plan.Landlock
// states: below ABI 10, UDP is not handled and rules for it have no effect.
// Several rules for one path become one with the rights of all. More than
// [MaxRules] rules are an error. Errors about a rule are [plan.Error] with its
// origin.
func Compile(l plan.Landlock, o Options) (Ruleset, error) {
	if l.ABI < 0 {
		return Ruleset{}, fmt.Errorf("wall bug: Landlock ABI %d", l.ABI)
	}
	if l.ABI == 0 {
		return Ruleset{}, nil
	}
	row := abiRow(l.ABI)
	r := Ruleset{ABI: min(l.ABI, NewestABI), HandledFS: row.fs}
	var err error
	if r.Scoped, err = compileScopes(l); err != nil {
		return Ruleset{}, err
	}
	if r.HandledNet, r.Ports, err = compilePorts(l); err != nil {
		return Ruleset{}, err
	}
	if r.Rules, err = compileRules(l.Rules, row.fs, o); err != nil {
		return Ruleset{}, err
	}
	if l.Stdio {
		if r.Stdio, err = compileStdio(o.Stdio, row.fs); err != nil {
			return Ruleset{}, err
		}
	}
	return r, nil
}

func compileScopes(l plan.Landlock) (golandlock.ScopedSet, error) {
	var s golandlock.ScopedSet
	if l.Signals {
		s |= ll.ScopeSignal
	}
	if l.Abstract {
		s |= ll.ScopeAbstractUnixSocket
	}
	if s != 0 && l.ABI < abiScoped {
		return 0, needABI("keeping signals and abstract sockets inside by Landlock", abiScoped, l.ABI)
	}
	return s, nil
}

func compilePorts(l plan.Landlock) (golandlock.AccessNetSet, []Port, error) {
	if !l.Network {
		if len(l.Ports) > 0 {
			return 0, nil, errors.New("wall bug: Landlock port rules without Network")
		}
		return 0, nil, nil
	}
	if l.ABI < abiNetTCP {
		return 0, nil, needABI("restricting TCP by Landlock", abiNetTCP, l.ABI)
	}
	handled := abiRow(l.ABI).net
	var ports []Port
	for _, p := range l.Ports {
		right, ok := portRight(p.Op)
		if !ok || p.Port < 0 || p.Port > 65535 {
			return 0, nil, ruleError(fmt.Sprintf("cannot allow port %d", p.Port), p.Origin, "", fmt.Errorf("wall bug: no operation %q on port %d", p.Op, p.Port))
		}
		if right &= handled; right != 0 {
			ports = append(ports, Port{uint16(p.Port), right, p.Origin})
		}
	}
	return handled, ports, nil
}

func compileRules(in []plan.PathRule, handled golandlock.AccessFSSet, o Options) ([]Rule, error) {
	var out []Rule
	index := make(map[string]int, len(in))
	for _, pr := range in {
		all, ok := rights(pr.Access)
		if !ok {
			return nil, ruleError("cannot allow "+pr.Path, pr.Origin, "", fmt.Errorf("wall bug: no access %q", pr.Access))
		}
		if all&handled == 0 {
			continue
		}
		expanded, err := Expand(pr, o.ListAncestors, o.ReadDir)
		if err != nil {
			return nil, err
		}
		out = slices.Grow(out, len(expanded))
		for _, e := range expanded {
			a, _ := rights(e.Access)
			if a &= handled; a == 0 {
				continue
			}
			if i, ok := index[e.Path]; ok {
				out[i].Access |= a
				out[i].Optional = out[i].Optional && e.Optional
				continue
			}
			if len(out) == MaxRules {
				return nil, tooMany(pr, parent(e.Path))
			}
			index[e.Path] = len(out)
			out = append(out, Rule{e.Path, a, e.Optional, e.Origin})
		}
	}
	return out, nil
}

func compileStdio(stdio []plan.Stdio, handled golandlock.AccessFSSet) ([]StdioRule, error) {
	var out []StdioRule
	for _, s := range stdio {
		if s.FD < 0 || s.FD > 2 {
			return nil, fmt.Errorf("wall bug: descriptor %d is not a standard stream", s.FD)
		}
		if s.Kind != plan.StdioFile {
			continue
		}
		var a golandlock.AccessFSSet
		if s.Read {
			a |= rightsStdin
		}
		if s.Write {
			a |= rightsStdout
		}
		if a &= handled; a != 0 {
			out = append(out, StdioRule{s.FD, a})
		}
	}
	return out, nil
}

// needABI says that a level is too low for a feature.
func needABI(feature string, need, have int) error {
	return &plan.UnsupportedError{
		Feature: feature,
		Need:    fmt.Sprintf("Landlock ABI %d (Linux %s)", need, abis[need].linux),
		Have:    fmt.Sprintf("ABI %d", have),
	}
}

func ruleError(op string, origin plan.Origin, hint string, err error) error {
	return &plan.Error{Op: op, Origin: origin, Hint: hint, Err: err}
}

// parent is the directory of an absolute clean path.
func parent(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/"
	}
	return path[:i]
}
