package seccomp

import (
	"fmt"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// Bounds of a rule file; generous beside real ones (the container default list
// has some 40 rules and 350 names).
const (
	maxFileSize = 1 << 20
	maxRules    = 4096
	maxNames    = 4096 // per rule
	maxErrno    = 4095 // MAX_ERRNO in linux/err.h
	maxArgs     = 6    // argument registers of a system call
)

// A problem is one thing wrong with a rule file. at says where, in the form
// "syscalls[2].args[0].op"; "" is the whole file.
type problem struct {
	at   string
	text string
	hint string
}

// check returns everything in s that has no meaning for wall, in file order.
// What cannot be honoured is refused, never skipped.
func check(s *specs.LinuxSeccomp) []problem {
	var ps []problem
	add := func(at, hint, format string, a ...any) {
		ps = append(ps, problem{at, fmt.Sprintf(format, a...), hint})
	}
	if s.DefaultAction == "" {
		add("", "", "defaultAction is missing")
	} else {
		checkAction(add, "default", "defaultErrnoRet", "defaultAction", s.DefaultAction, s.DefaultErrnoRet)
	}
	for i, a := range s.Architectures {
		at := fmt.Sprintf("architectures[%d]", i)
		switch a {
		case specs.ArchX86, specs.ArchX32, specs.ArchARM:
			add(at, "remove it", "%s cannot be allowed: wall kills calls through a foreign system call table", a)
		case specs.ArchX86_64, specs.ArchAARCH64:
		default:
			// Tables of other machines, in a file written for several. They
			// are never the second table of a machine that wall runs on.
			if !strings.HasPrefix(string(a), "SCMP_ARCH_") {
				add(at, "", "unknown architecture %q", a)
			}
		}
	}
	for i, f := range s.Flags {
		add(fmt.Sprintf("flags[%d]", i), "remove it", "flag %q is not supported", f)
	}
	if s.ListenerPath != "" {
		add("listenerPath", "remove it", "a listener is not supported")
	}
	if s.ListenerMetadata != "" {
		add("listenerMetadata", "remove it", "a listener is not supported")
	}
	if len(s.Syscalls) > maxRules {
		add("syscalls", "", "%d rules, at most %d", len(s.Syscalls), maxRules)
		return ps
	}
	decided := make(map[string]int) // name to the index of its unconditional rule
	for i, r := range s.Syscalls {
		at := fmt.Sprintf("syscalls[%d]", i)
		if len(r.Names) == 0 {
			add(at, "", "names is missing or empty")
		}
		if len(r.Names) > maxNames {
			add(at+".names", "", "%d names, at most %d", len(r.Names), maxNames)
			continue
		}
		if r.Action == "" {
			add(at, "", "action is missing")
		} else {
			checkAction(add, "", at+".errnoRet", at+".action", r.Action, r.ErrnoRet)
		}
		var seen [maxArgs]bool
		for j, a := range r.Args {
			at := fmt.Sprintf("%s.args[%d]", at, j)
			if a.Index >= maxArgs {
				add(at+".index", "", "argument %d: a system call has arguments 0 to %d", a.Index, maxArgs-1)
			} else if seen[a.Index] {
				add(at+".index", "write a rule for each", "argument %d is compared twice in one rule", a.Index)
			} else {
				seen[a.Index] = true
			}
			switch a.Op {
			case specs.OpMaskedEqual:
				if a.ValueTwo&^a.Value != 0 {
					add(at+".valueTwo", "value is the mask, valueTwo what must be left after it", "can never match: %#x has bits outside of the mask %#x", a.ValueTwo, a.Value)
				}
			case specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpEqualTo, specs.OpGreaterEqual, specs.OpGreaterThan:
				if a.ValueTwo != 0 {
					add(at+".valueTwo", "", "valueTwo has a meaning only with SCMP_CMP_MASKED_EQ")
				}
			case "":
				add(at, "", "op is missing")
			default:
				add(at+".op", "", "unknown comparison %q", a.Op)
			}
		}
		for j, n := range r.Names {
			at := fmt.Sprintf("%s.names[%d]", at, j)
			if !validName(n) {
				add(at, "", "%q is not the name of a system call", n)
				continue
			}
			if k, ok := decided[n]; ok {
				if k != i && !sameAction(&s.Syscalls[k], &r) {
					add(at, "put the rule with conditions first", "the rule for %s can never apply: syscalls[%d] already decides every such call", n, k)
				}
				continue
			}
			if len(r.Args) == 0 {
				decided[n] = i
			}
		}
	}
	return ps
}

// checkAction checks an action and its error number.
func checkAction(add func(at, hint, format string, a ...any), what, errnoAt, at string, act specs.LinuxSeccompAction, errno *uint) {
	if what != "" {
		what += " "
	}
	switch act {
	case specs.ActKill, specs.ActKillThread, specs.ActKillProcess, specs.ActTrap, specs.ActErrno, specs.ActLog, specs.ActAllow:
	case specs.ActTrace, specs.ActNotify:
		add(at, "", "%saction %s is not supported: it leaves the decision to another process", what, act)
	default:
		add(at, "", "unknown %saction %q", what, act)
	}
	if errno == nil {
		return
	}
	if act != specs.ActErrno {
		add(errnoAt, "", "an error number has a meaning only with SCMP_ACT_ERRNO")
	} else if *errno > maxErrno {
		add(errnoAt, "", "error number %d, at most %d", *errno, maxErrno)
	}
}

// sameAction reports whether two rules decide alike.
func sameAction(a, b *specs.LinuxSyscall) bool {
	return action(a.Action, a.ErrnoRet) == action(b.Action, b.ErrnoRet)
}

// validName reports whether n can be the name of a system call: lower-case
// letters, digits and underscores.
func validName(n string) bool {
	if n == "" || len(n) > 64 {
		return false
	}
	for i := range len(n) {
		c := n[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}
