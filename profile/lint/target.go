package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Target is what is known about the host that a profile is checked for. The
// zero Target is a host on which everything can be enforced.
type Target struct {
	text string // as given; "" when nothing was
	abi  int    // the Landlock ABI; -1 when nothing was said
	kernel
	no []string // of targetFeatures, what is not there
}

// A kernel is a version of Linux; the zero kernel is one that nobody named.
type kernel struct{ major, minor int }

func (k kernel) set() bool { return k != kernel{} }

func (k kernel) before(o kernel) bool {
	return k.set() && (k.major < o.major || k.major == o.major && k.minor < o.minor)
}

// targetFeatures are the words that may stand behind "no-".
var targetFeatures = []string{"userns", "landlock", "seccomp", "nftables", "cgroups"}

// landlockSince are the kernels with which the Landlock ABIs came, see
// landlock(7) and the kernel's Documentation/userspace-api/landlock.rst.
var landlockSince = []kernel{{5, 13}, {5, 19}, {6, 2}, {6, 7}, {6, 10}, {6, 12}, {6, 15}}

// ParseTarget reads facts about a host, separated by commas: kernel=5.15,
// abi=N (the Landlock ABI, 0 for none), no-userns, no-landlock, no-seccomp,
// no-nftables, no-cgroups. A kernel without an abi has the newest ABI of that
// kernel.
func ParseTarget(s string) (Target, error) {
	t := Target{text: s, abi: -1}
	seen := map[string]bool{}
	for f := range strings.SplitSeq(s, ",") {
		f = strings.TrimSpace(f)
		name, value, isValue := strings.Cut(f, "=")
		if seen[name] {
			return Target{}, fmt.Errorf("%q is there twice", name)
		}
		seen[name] = true
		switch {
		case name == "kernel" && isValue:
			major, rest, ok := strings.Cut(value, ".")
			minor, _, _ := strings.Cut(rest, ".")
			a, err1 := strconv.ParseUint(major, 10, 16)
			b, err2 := strconv.ParseUint(minor, 10, 16)
			if !ok || err1 != nil || err2 != nil || a == 0 {
				return Target{}, fmt.Errorf("%q is not a kernel version such as 5.15", value)
			}
			t.kernel = kernel{int(a), int(b)}
		case name == "abi" && isValue:
			n, err := strconv.ParseUint(value, 10, 8)
			if err != nil {
				return Target{}, fmt.Errorf("%q is not a Landlock ABI such as 3", value)
			}
			t.abi = int(n)
		case !isValue && strings.HasPrefix(name, "no-") && slices.Contains(targetFeatures, name[3:]):
			t.no = append(t.no, name[3:])
		default:
			return Target{}, fmt.Errorf("%q is not a fact about a host", f)
		}
	}
	if slices.Contains(t.no, "landlock") {
		if t.abi > 0 {
			return Target{}, fmt.Errorf("no-landlock contradicts abi=%d", t.abi)
		}
		t.abi = 0
	}
	if t.abi < 0 && t.kernel.set() {
		t.abi = 0
		for i, k := range landlockSince {
			if !t.kernel.before(k) {
				t.abi = i + 1
			}
		}
	}
	return t, nil
}

func (t Target) lacks(feature string) bool { return slices.Contains(t.no, feature) }

// abiBelow reports whether the host is known to have an older Landlock ABI than n.
func (t Target) abiBelow(n int) bool { return t.text != "" && t.abi >= 0 && t.abi < n }

// unenforceable finds the rules that the target cannot enforce.
func unenforceable(x *check) {
	t := x.o.Target
	if t.text == "" || x.m.is("enforce", "off") {
		return
	}
	// The place to point at is the line that asks, in the checked file; what is
	// inherited is asked for by the extends line, and the rest by the file.
	say := func(e entry, what string) *Finding {
		switch {
		case e.layer == x.m.top:
		case e.layer >= 0 && len(x.m.mine("extends")) > 0:
			e = x.m.mine("extends")[0]
		default:
			e = x.anchor()
		}
		return x.at(e.origin, e.text(), what+" on the host described by --for "+t.text)
	}
	// lose is say for what a profile may do without.
	lose := func(e entry, what string) {
		f := say(e, what)
		if x.m.is("if-unavailable", "degrade") {
			f.Message += "; the profile degrades, so that the command runs without"
		}
	}
	if t.lacks("userns") || t.kernel.before(kernel{5, 12}) {
		what, fix := "the box cannot be made without user namespaces", "allow them there (\"wall doctor\" tells how)"
		if !t.lacks("userns") {
			what, fix = "the box cannot be made: read-only trees need mount_setattr (Linux 5.12)", "use a newer kernel there"
		}
		f := say(x.m.get("enforce"), what)
		f.Why = "there the profile refuses to run"
		f.Fix = fix + ": the box itself cannot be given up with if-unavailable"
	}
	requires := func(wall string) entry {
		for _, e := range x.m.all("require") {
			if e.val == wall {
				return e
			}
		}
		return x.m.get("if-unavailable")
	}
	if t.abiBelow(1) {
		lose(requires("landlock"), "there is no Landlock, so that file rules are enforced by mounts alone,")
	}
	if t.abiBelow(6) && (x.m.is("network.mode", "host") || x.m.is("enforce", "fs")) {
		lose(x.m.get("network.mode"), "abstract Unix sockets of the host cannot be closed off (Landlock ABI 6)")
	}
	if own := x.m.get("network.ports"); own.layer >= 0 && t.abiBelow(4) && x.m.is("network.mode", "host") {
		lose(own, "the ports of other hosts cannot be limited (Landlock ABI 4)")
	}
	if t.lacks("nftables") && x.m.is("network.mode", "allow") {
		lose(x.m.get("network.mode"), "connections cannot be redirected without nftables, and programs that ignore proxy variables have no network")
	}
	if t.lacks("seccomp") {
		e := requires("syscalls")
		if e.key != "require" {
			e = x.m.get("process.seccomp")
		}
		lose(e, "system calls cannot be filtered")
	}
	if t.lacks("cgroups") {
		for _, key := range []string{"limits.memory", "limits.processes"} {
			if e := x.m.get(key); e.layer >= 0 {
				lose(e, lastKey(key)+" does not bind root without cgroups, nor all processes together")
			}
		}
	}
}
