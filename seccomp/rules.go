package seccomp

import (
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// What a filter returns to the kernel (linux/seccomp.h); retErrno has the error
// number in its low 16 bits. A test compares them with x/sys/unix.
const (
	retKillProcess = 0x80000000
	retKillThread  = 0x00000000
	retTrap        = 0x00030000
	retErrno       = 0x00050000
	retLog         = 0x7ffc0000
	retAllow       = 0x7fff0000
)

// action gives the number a filter returns for an OCI action. An absent error
// number is EPERM, as the runtime-spec says. Actions that check refuses kill.
func action(a specs.LinuxSeccompAction, errno *uint) uint32 {
	switch a {
	case specs.ActAllow:
		return retAllow
	case specs.ActLog:
		return retLog
	case specs.ActTrap:
		return retTrap
	case specs.ActErrno:
		if errno == nil {
			return retErrno | 1 // EPERM
		}
		return retErrno | uint32(*errno)
	case specs.ActKill, specs.ActKillThread:
		return retKillThread
	}
	return retKillProcess
}

// A step is one rule as far as it concerns one system call.
type step struct {
	args   []specs.LinuxSeccompArg // all must hold; empty: always
	action uint32
}

// A table is a checked rule file (or several, one after the other) for one
// machine: for each system call number its rules in file order, ending with the
// first unconditional one.
type table struct {
	fallback uint32 // decides when no rule does
	calls    map[uint32][]step
}

// newTable reads the rules of files one after the other; the default action is
// the last file's. number gives a name's number, ok false when the machine has
// no such call.
func newTable(number func(name string) (nr uint32, ok bool), files ...*specs.LinuxSeccomp) *table {
	last := files[len(files)-1]
	t := &table{
		fallback: action(last.DefaultAction, last.DefaultErrnoRet),
		calls:    make(map[uint32][]step),
	}
	for _, f := range files {
		for _, r := range f.Syscalls {
			st := step{args: r.Args, action: action(r.Action, r.ErrnoRet)}
			for _, n := range r.Names {
				nr, ok := number(n)
				if !ok {
					continue
				}
				steps := t.calls[nr]
				if len(steps) > 0 && len(steps[len(steps)-1].args) == 0 {
					continue
				}
				t.calls[nr] = append(steps, st)
			}
		}
	}
	return t
}

// decide is the meaning of t, in the plainest form: what the compiled program
// is compared with.
func (t *table) decide(nr uint32, args *[6]uint64) uint32 {
	for _, st := range t.calls[nr] {
		if st.matches(args) {
			return st.action
		}
	}
	return t.fallback
}

func (st *step) matches(args *[6]uint64) bool {
	for _, a := range st.args {
		if !holds(a, args[a.Index]) {
			return false
		}
	}
	return true
}

// holds compares one argument, all 64 bits of it unless masked.
func holds(a specs.LinuxSeccompArg, v uint64) bool {
	switch a.Op {
	case specs.OpEqualTo:
		return v == a.Value
	case specs.OpNotEqual:
		return v != a.Value
	case specs.OpLessThan:
		return v < a.Value
	case specs.OpLessEqual:
		return v <= a.Value
	case specs.OpGreaterThan:
		return v > a.Value
	case specs.OpGreaterEqual:
		return v >= a.Value
	case specs.OpMaskedEqual:
		return v&a.Value == a.ValueTwo
	}
	panic("wall bug: comparison " + string(a.Op) + " in a checked filter")
}

// runs splits the steps of one call where the action changes, so that within
// each part the order does not matter (libseccomp does not keep one). A last part
// that says what fallback says is left out.
func runs(steps []step, fallback uint32) [][]step {
	var out [][]step
	for i, st := range steps {
		if i == 0 || st.action != steps[i-1].action {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], st)
	}
	if n := len(out); n > 0 && out[n-1][0].action == fallback {
		out = out[:n-1]
	}
	return out
}

// singles splits runs into runs of one step.
func singles(rs [][]step) [][]step {
	var out [][]step
	for _, r := range rs {
		for i := range r {
			out = append(out, r[i:i+1])
		}
	}
	return out
}

// probes returns argument values around everything that steps compare: for each
// argument the values at, next to and away from each boundary, combined with
// each other, at most limit combinations (then an even selection of them).
func probes(steps []step, limit int) [][6]uint64 {
	var values [maxArgs][]uint64
	for i := range values {
		values[i] = []uint64{0, ^uint64(0)}
	}
	for _, st := range steps {
		for _, a := range st.args {
			vs := &values[a.Index]
			if a.Op != specs.OpMaskedEqual {
				*vs = append(*vs, a.Value-1, a.Value, a.Value+1, a.Value^1<<32, a.Value^1<<63)
				continue
			}
			*vs = append(*vs, a.ValueTwo, a.ValueTwo|^a.Value, a.ValueTwo^a.Value)
			low, high := a.Value&-a.Value, uint64(0)
			for m := a.Value; m != 0; m &= m - 1 {
				high = m & -m
			}
			*vs = append(*vs, a.ValueTwo^low, a.ValueTwo^high, (a.ValueTwo^high)|^a.Value)
		}
	}
	total := 1
	for i := range values {
		values[i] = uniq(values[i])
		if len(values[i]) == 2 { // not compared: one value is enough
			values[i] = values[i][:1]
		}
		if total <= 1<<40 {
			total *= len(values[i])
		}
	}
	stride := 1
	if total > limit {
		// A stride that is coprime to small factors walks through every
		// value of every argument.
		stride = total/limit | 1
		for stride%3 == 0 || stride%5 == 0 || stride%7 == 0 || stride%11 == 0 || stride%13 == 0 {
			stride += 2
		}
	}
	var out [][6]uint64
	for n := 0; n < total; n += stride {
		var args [6]uint64
		k := n
		for i := range values {
			args[i] = values[i][k%len(values[i])]
			k /= len(values[i])
		}
		out = append(out, args)
	}
	return out
}

// uniq removes repeated values, keeping the order.
func uniq(vs []uint64) []uint64 {
	seen := make(map[uint64]bool, len(vs))
	out := vs[:0]
	for _, v := range vs {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
