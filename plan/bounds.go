package plan

import (
	"path"
	"strconv"
	"strings"
)

// Bounds are the limits of the run as a whole, which stage 1 keeps from outside
// of the box. The zero Bounds limit nothing.
type Bounds struct {
	Time       Bound // nanoseconds from the start; then the command gets SIGTERM
	Grace      Bound // nanoseconds from there; then the box is killed
	Memory     Bound // bytes of the whole box
	Processes  Bound // processes and threads of the whole box, without wall's own
	Scratch    Bound // bytes of the scratch directory, and of the memory file systems that stand for it
	Total      Bound // bytes to standard output and error together
	Output     Bound // how much of the end of the output package gate keeps, in OutputUnit
	OutputUnit string
	Cgroup     Cgroup // for the bounds that are kept by a cgroup
}

// A Bound is one of them. The zero Bound is no limit.
type Bound struct {
	Value  uint64
	By     BoundBy
	Origin Origin
}

// BoundBy says what keeps a bound.
type BoundBy string

// What keeps a bound. A watch looks every now and then and ends the box when it
// finds too much; the others are the kernel, which lets nothing past them.
const (
	ByTimer  BoundBy = "timer"  // Time, Grace
	ByTail   BoundBy = "tail"   // Output
	ByCgroup BoundBy = "cgroup" // Memory, Processes
	ByRlimit BoundBy = "rlimit" // Processes: RLIMIT_NPROC counts for each user namespace
	ByRelay  BoundBy = "relay"  // Total: the output goes through stage 1
	ByWatch  BoundBy = "watch"  // Memory, Processes, Scratch
)

// Units of Bounds.Output.
const (
	UnitChars = "chars"
	UnitBytes = "bytes"
)

const unitTime = "ns"

// The names of bounds, as profiles have them below [limits] and results tell
// which was reached.
const (
	BoundTime      = "time"
	boundGrace     = "grace"
	BoundMemory    = "memory"
	BoundProcesses = "processes"
	BoundScratch   = "scratch"
	BoundTotal     = "total-output"
	BoundOutput    = "output"
)

// A Cgroup says where the cgroups of the run are made: directories named after ID
// in Memory and Pids. With version 2 that is one directory, named twice.
type Cgroup struct {
	Version int    // 1, 2, or 0 for none
	ID      string // lower-case hex, as in Scratch
	Memory  string // absolute path on the host; "" = no bound of memory
	Pids    string // absolute path on the host; "" = no bound of processes
	Scope   string // the scope that the user's systemd is asked for, whose directory they are; "" = they exist
}

// named gives the bounds with their names and units, in the order of printing.
func (b *Bounds) named() []namedBound {
	return []namedBound{
		{BoundTime, unitTime, &b.Time, []BoundBy{ByTimer}},
		{boundGrace, unitTime, &b.Grace, []BoundBy{ByTimer}},
		{BoundMemory, UnitBytes, &b.Memory, []BoundBy{ByCgroup, ByWatch}},
		{BoundProcesses, "", &b.Processes, []BoundBy{ByCgroup, ByRlimit, ByWatch}},
		{BoundScratch, UnitBytes, &b.Scratch, []BoundBy{ByWatch}},
		{BoundTotal, UnitBytes, &b.Total, []BoundBy{ByRelay}},
		{BoundOutput, b.OutputUnit, &b.Output, []BoundBy{ByTail}},
	}
}

type namedBound struct {
	name, unit string
	*Bound
	by []BoundBy
}

// ByName gives the bound that a result names (BoundMemory and so on), or the
// zero Bound.
func (b Bounds) ByName(name string) Bound {
	for _, n := range b.named() {
		if n.name == name {
			return *n.Bound
		}
	}
	return Bound{}
}

func (b Bounds) print(line func(Origin, string, ...any)) {
	for _, n := range b.named() {
		if *n.Bound != (Bound{}) {
			line(n.Origin, "bound %s %s by %s", n.name, n.text(), n.By)
		}
	}
	if c := b.Cgroup; c != (Cgroup{}) {
		line(Origin{}, "cgroup version %d id %s memory %s pids %s scope %s", c.Version, c.ID, word(c.Memory), word(c.Pids), word(c.Scope))
	}
}

func (b Bounds) validate(bad func(string, ...any), abs func(string, string)) {
	const most = 1<<63 - 1
	usesCgroup := map[string]bool{}
	for _, n := range b.named() {
		if n.Value > most {
			bad("bound %s of %d", n.name, n.Value)
		}
		if n.Bound.By == "" && n.Value == 0 {
			continue
		}
		known := false
		for _, by := range n.by {
			known = known || by == n.By
		}
		if !known {
			bad("bound %s is kept by %q", n.name, n.By)
		}
		usesCgroup[n.name] = n.By == ByCgroup
	}
	switch b.OutputUnit {
	case UnitChars, UnitBytes:
	case "":
		if b.Output != (Bound{}) {
			bad("bound output without a unit")
		}
	default:
		bad("bound output in %q", b.OutputUnit)
	}
	c := b.Cgroup
	switch c.Version {
	case 0:
		if c != (Cgroup{}) {
			bad("cgroup without a version")
		}
	case 1, 2:
		if c.ID == "" || strings.Trim(c.ID, "0123456789abcdef") != "" {
			bad("cgroup id %q is not lower-case hex", c.ID)
		}
		for _, dir := range []string{c.Memory, c.Pids} {
			if dir != "" {
				abs("cgroup", dir)
			}
		}
		if c.Scope != "" && (c.Version != 2 || c.Scope != "wall-"+c.ID+".scope" || path.Base(c.Memory+c.Pids) != c.Scope) {
			bad("cgroup in scope %q", c.Scope)
		}
		if c.Version == 2 && c.Memory != "" && c.Pids != "" && c.Memory != c.Pids {
			bad("cgroup version 2 in two directories")
		}
	default:
		bad("cgroup version %d", c.Version)
	}
	if usesCgroup[BoundMemory] != (c.Memory != "") || usesCgroup[BoundProcesses] != (c.Pids != "") {
		bad("bounds and cgroups do not fit together")
	}
}

// dir is the path of the cgroup of this run below parent.
func (c Cgroup) dir(parent string) string { return path.Join(parent, "wall-"+c.ID) }

// Dirs gives the directories that are made for the run, each once.
func (c Cgroup) Dirs() []string {
	var dirs []string
	for _, parent := range []string{c.Memory, c.Pids} {
		if parent != "" && (len(dirs) == 0 || dirs[0] != c.dir(parent)) {
			dirs = append(dirs, c.dir(parent))
		}
	}
	return dirs
}

// Exceeded tells a person that the run went beyond a bound, and which line asked
// for it. It gives nil for a name that no bound has.
func (b Bounds) Exceeded(name string) *Error {
	e := &Error{Origin: b.ByName(name).Origin, Exit: ExitLimit, Hint: "raise it with --limit " + name + "=..., if the command is right to need more"}
	for _, n := range b.named() {
		if n.name != name {
			continue
		}
		switch name {
		case BoundTime:
			e.Op = "the command ran longer than " + n.text() + " and was ended"
			e.Exit, e.Hint = ExitTimeout, "raise it with --timeout, if the command is right to take longer"
		case BoundMemory:
			e.Op = "the box was ended because it needed more memory than " + n.text()
		case BoundProcesses:
			e.Op = "the box was ended because it was to have more than " + n.text() + " processes and threads"
		case BoundScratch:
			e.Op = "the box was ended because its scratch directory became larger than " + n.text()
		case BoundTotal:
			e.Op = "the box was ended because it wrote more than " + n.text() + " to standard output and error"
		default:
			return nil
		}
		return e
	}
	return nil
}

// text gives the value with its unit.
func (n namedBound) text() string {
	switch n.unit {
	case unitTime:
		return FormatDuration(n.Value)
	case UnitBytes:
		return FormatSize(n.Value)
	case UnitChars:
		return strconv.FormatUint(n.Value, 10) + " " + UnitChars
	}
	return strconv.FormatUint(n.Value, 10)
}

// FormatSize gives bytes in the largest power of 1024 that loses nothing, as
// profiles have them: "2GiB".
func FormatSize(n uint64) string {
	for _, u := range []struct {
		name  string
		bytes uint64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatUint(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatUint(n, 10)
}

// FormatDuration gives nanoseconds as profiles have them: "1h30m". Profiles have
// nothing below a millisecond.
func FormatDuration(n uint64) string {
	if n == 0 {
		return "0"
	}
	var b strings.Builder
	for _, u := range []struct {
		name string
		ns   uint64
	}{{"h", 3600e9}, {"m", 60e9}, {"s", 1e9}, {"ms", 1e6}, {"ns", 1}} {
		if q := n / u.ns; q > 0 {
			b.WriteString(strconv.FormatUint(q, 10) + u.name)
			n -= q * u.ns
		}
	}
	return b.String()
}
