//go:build cgo

package seccomp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// Compile turns a custom filter into a program for goarch ("amd64", "arm64").
//
// Wall's always-refused list (data/always.json) is laid on top: it decides first,
// and only what it does not refuse reaches the rules of s. So a rule of s that
// allows one of those calls has no effect, and neither has one that kills on it.
// Foreign system call tables kill the process. Filters with nested namespaces are
// built in only ("default-nested", "strict-nested").
//
// s is checked as by [Parse]. An architectures list must name goarch's own. A name
// that exists only on other machines is skipped, since there is no such call here to
// decide on; a name that no machine has is an error. The finished program is run
// on every call number and on argument values around everything that the rules
// compare, and compared with the plain reading of the rules; a difference is an
// error. Problems are *plan.Error without a line; [Parse] gives lines.
//
// In a build without cgo every call fails with an error that matches
// errors.ErrUnsupported.
func Compile(s *specs.LinuxSeccomp, goarch string) (Program, error) {
	if _, ok := AuditArch(goarch); !ok {
		return nil, unsupportedArch(goarch)
	}
	var errs []error
	for _, p := range check(s) {
		errs = append(errs, compileError(p.at+": "+p.text, p.hint))
	}
	native := specs.ArchX86_64
	if goarch == "arm64" {
		native = specs.ArchAARCH64
	}
	if len(s.Architectures) > 0 && !slices.Contains(s.Architectures, native) {
		errs = append(errs, compileError(fmt.Sprintf("architectures does not list %s, this machine's", native), ""))
	}
	for i, r := range s.Syscalls {
		for _, n := range r.Names {
			if _, _, known := lookup(n, goarch); !known {
				errs = append(errs, compileError(fmt.Sprintf("syscalls[%d]: no system call is called %q", i, n), "check the spelling, or give up the rule"))
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	always, err := readRules("always")
	if err != nil {
		return nil, err
	}
	over, err := compileTable(newTable(numberOn(goarch), always), goarch, true)
	if err != nil {
		return nil, err
	}
	under, err := compileTable(newTable(numberOn(goarch), s), goarch, false)
	if err != nil {
		return nil, err
	}
	p := chain(over, under, retAllow)
	if len(p) > MaxProgram {
		return nil, compileError(fmt.Sprintf("more than the %d instructions that the kernel takes", MaxProgram), "write fewer rules")
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("wall bug: %w", err)
	}
	return p, nil
}

func compileError(text, hint string) error {
	return &plan.Error{Op: "cannot compile the system call filter: " + text, Hint: hint}
}

// readRules reads one embedded rule file.
func readRules(name string) (*specs.LinuxSeccomp, error) {
	b, err := files.ReadFile("data/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("wall bug: %w", err)
	}
	s, err := Parse(b)
	if err != nil {
		return nil, fmt.Errorf("wall bug: %s.json: %w", name, err)
	}
	return s, nil
}

// builtinTable reads the rules of b for goarch.
func builtinTable(b builtin, goarch string) (*table, error) {
	var all []*specs.LinuxSeccomp
	for _, f := range b.files {
		s, err := readRules(f)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return newTable(numberOn(goarch), all...), nil
}

// A stamp is data/generated.json: what the embedded programs were made with.
type stamp struct {
	Libseccomp string `json:"libseccomp"` // version
	Host       string `json:"host"`       // runtime.GOARCH of the machine that made them
}

// Generate compiles every built-in filter and returns the contents of the
// generated files in data, by name. It is for go generate and for the test that
// finds out whether the files are current.
func Generate() (map[string][]byte, error) {
	out := make(map[string][]byte)
	for _, b := range builtins {
		for _, goarch := range []string{"amd64", "arm64"} {
			t, err := builtinTable(b, goarch)
			if err != nil {
				return nil, err
			}
			p, err := compileTable(t, goarch, true)
			if err != nil {
				return nil, fmt.Errorf("%s for %s: %w", b.name, goarch, err)
			}
			out[b.name+"."+goarch+".bpf"] = p.Bytes()
		}
	}
	st, err := json.MarshalIndent(currentStamp(), "", "  ")
	if err != nil {
		return nil, err
	}
	out["generated.json"] = append(st, '\n')
	return out, nil
}

func currentStamp() stamp {
	major, minor, micro := libseccomp.GetLibraryVersion()
	host := "amd64"
	if nativeToken() == unix.AUDIT_ARCH_AARCH64 {
		host = "arm64"
	}
	return stamp{fmt.Sprintf("%d.%d.%d", major, minor, micro), host}
}

// lookup gives the number of a call on goarch. The table made from x/sys comes
// first, because libseccomp 2.5.4 (Debian 12) knows no call newer than Linux 5.17;
// names that only libseccomp knows belong to other machines or to newer kernels.
func lookup(name, goarch string) (nr uint32, ok, known bool) {
	if nr, ok, known := number(name, goarch); known {
		return nr, ok, known
	}
	arch := libseccomp.ArchAMD64
	if goarch == "arm64" {
		arch = libseccomp.ArchARM64
	}
	n, err := libseccomp.GetSyscallFromNameByArch(name, arch)
	if err != nil {
		return 0, false, false
	}
	return uint32(n), n >= 0, true // negative: a call of another machine
}

func numberOn(goarch string) func(string) (uint32, bool) {
	return func(name string) (uint32, bool) {
		nr, ok, _ := lookup(name, goarch)
		return nr, ok
	}
}

// pass is what the parts of a program return for "ask the next part": an action
// that check refuses in rules, so it cannot be meant.
const pass = unix.SECCOMP_RET_TRACE | 0x7a11

// compileTable compiles t and proves the result: a dispatcher by number (see
// dispatch), and behind it, for the calls whose arguments matter, what libseccomp
// makes of their rules.
//
// libseccomp does not define which of several matching rules wins. So each part it
// compiles has one action per call: where the action changes in a call's rules
// (see runs), the rules are spread over several parts, run one after the other.
// Only the embedded rule files, of which the outcome is known, are grouped so;
// for others each rule of a call is in a part of its own, because libseccomp 2.5.4
// never comes back from joining certain comparisons (FuzzCompile/87209a2f953beaa4).
func compileTable(t *table, goarch string, group bool) (Program, error) {
	arch, _ := AuditArch(goarch)
	always := make(map[uint32]uint32) // calls with one answer
	split := make(map[uint32][][]step)
	parts := 0
	for nr, steps := range t.calls {
		r := runs(steps, t.fallback)
		switch {
		case len(r) == 0:
			always[nr] = t.fallback
		case len(r) == 1 && len(r[0][0].args) == 0:
			always[nr] = r[0][0].action
		default:
			if !group {
				r = singles(r)
			}
			split[nr] = r
			parts = max(parts, len(r))
		}
	}
	p := dispatch(arch, always, split, t.fallback)
	for i := range parts {
		part := make(map[uint32][]step)
		for nr, r := range split {
			// The last run of every call is in the last part.
			if j := i - (parts - len(r)); j >= 0 {
				part[nr] = r[j]
			}
		}
		fallback := uint32(pass)
		if i == parts-1 {
			fallback = t.fallback
		}
		q, err := compilePart(part, fallback, goarch)
		if err != nil {
			return nil, err
		}
		p = chain(p, q, pass)
		if len(p) > MaxProgram {
			return nil, compileError(fmt.Sprintf("more than the %d instructions that the kernel takes", MaxProgram), "write fewer rules")
		}
	}
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("wall bug: %w", err)
	}
	if err := verify(p, t, goarch); err != nil {
		return nil, err
	}
	return p, nil
}

// dispatch makes the head of a program: it kills on a foreign table, answers by
// number alone where that is enough, and returns pass for the calls in split.
//
// libseccomp could do this too, with a comparison per call; but when a filter is
// installed the kernel compiles every instruction and tries every number (about
// 0.15 µs and 10 ns an instruction, measured on Linux 6.18), on the launch path
// of every box. Numbers with the same answer lie together, so a search over ranges
// is half as long in both respects.
func dispatch(arch uint32, always map[uint32]uint32, split map[uint32][][]step, fallback uint32) Program {
	edges := []span{{0, fallback}}
	var numbers []uint32
	for nr := range always {
		numbers = append(numbers, nr)
	}
	for nr := range split {
		numbers = append(numbers, nr)
	}
	slices.Sort(numbers)
	if arch == unix.AUDIT_ARCH_X86_64 {
		// x32 shares the table's number: kill. All ones is not x32, but what
		// a tracer writes to skip a call; libseccomp excepts it as well.
		numbers = append(numbers, x32Bit)
	}
	for _, nr := range numbers {
		action, ok := always[nr]
		after := fallback
		if !ok {
			action = pass
		}
		if nr == x32Bit && arch == unix.AUDIT_ARCH_X86_64 {
			action = retKillProcess
		}
		if last := len(edges) - 1; edges[last].from == nr {
			edges = edges[:last]
		}
		edges = append(edges, span{nr, action})
		if nr == x32Bit {
			nr = ^uint32(0) - 1
		}
		edges = append(edges, span{nr + 1, after})
	}
	merged := edges[:1]
	for _, e := range edges[1:] {
		if e.action != merged[len(merged)-1].action {
			merged = append(merged, e)
		}
	}
	return append(Program{
		{Code: opLoad, K: offArch},
		{Code: opJeq, K: arch, Jt: 1},
		{Code: opRet, K: retKillProcess},
		{Code: opLoad, K: offNr},
	}, search(merged)...)
}

// A span is a range of numbers with one answer, up to where the next begins.
type span struct{ from, action uint32 }

// search makes a binary search over spans; the number is loaded.
func search(spans []span) Program {
	if len(spans) == 1 {
		return Program{{Code: opRet, K: spans[0].action}}
	}
	mid := len(spans) / 2
	low, high := search(spans[:mid]), search(spans[mid:])
	p := Program{{Code: opJge, K: spans[mid].from, Jt: uint8(len(low))}}
	if len(low) > 255 { // further than a comparison can jump
		p = Program{{Code: opJge, K: spans[mid].from, Jf: 1}, {Code: opJump, K: uint32(len(low))}}
	}
	return append(append(p, low...), high...)
}

// chain joins two programs: where first would return action, second decides.
func chain(first, second Program, action uint32) Program {
	out := slices.Clone(first)
	for i, in := range out {
		if in.Code == opRet && in.K == action {
			out[i] = unix.SockFilter{Code: opJump, K: uint32(len(out) - i - 1)}
		}
	}
	return append(out, second...)
}

// compilePart compiles rules of one action per call with libseccomp.
func compilePart(calls map[uint32][]step, fallback uint32, goarch string) (Program, error) {
	f, err := libseccomp.NewFilter(libAction(fallback))
	if err != nil {
		return nil, libError("seccomp_init", err)
	}
	defer f.Release()
	// A foreign system call table has other numbers, so nothing below means
	// anything there: kill, as its own action.
	if err := f.SetBadArchAction(libseccomp.ActKillProcess); err != nil {
		return nil, libError("SCMP_FLTATR_ACT_BADARCH", err)
	}
	// A binary tree over the calls instead of a chain.
	if err := f.SetOptimize(2); err != nil {
		return nil, libError("SCMP_FLTATR_CTL_OPTIMIZE", err)
	}
	var numbers []uint32
	for nr := range calls {
		numbers = append(numbers, nr)
	}
	slices.Sort(numbers) // same input, same bytes
	for _, nr := range numbers {
		for _, st := range calls[nr] {
			var conds []libseccomp.ScmpCondition
			for _, a := range st.args {
				values := []uint64{a.Value}
				if a.Op == specs.OpMaskedEqual {
					values = append(values, a.ValueTwo)
				}
				c, err := libseccomp.MakeCondition(a.Index, libOps[a.Op], values...)
				if err != nil {
					return nil, libError("condition", err)
				}
				conds = append(conds, c)
			}
			if len(conds) == 0 {
				err = f.AddRuleExact(libseccomp.ScmpSyscall(nr), libAction(st.action))
			} else {
				err = f.AddRuleConditionalExact(libseccomp.ScmpSyscall(nr), libAction(st.action), conds)
			}
			// The same condition twice is one rule.
			if err != nil && !errors.Is(err, unix.EEXIST) {
				return nil, libError("rule for system call "+callName(nr, goarch), err)
			}
		}
	}
	p, err := export(f)
	if err != nil {
		return nil, err
	}
	return retarget(p, goarch)
}

// export reads the compiled program back. libseccomp before 2.6 only writes to
// descriptors.
func export(f *libseccomp.ScmpFilter) (Program, error) {
	fd, err := unix.MemfdCreate("wall-filter", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), "wall-filter")
	defer file.Close()
	if err := f.ExportBPF(file); err != nil {
		return nil, libError("seccomp_export_bpf", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	return decode(b)
}

// retarget makes the program, which libseccomp made for this machine, one for
// goarch. Compiling for goarch directly is not possible: libseccomp translates
// numbers by name, and refuses those it has no name for. Numbers are all that a
// program consists of, so only the test of the system call table changes. (x32 was
// dealt with by dispatch.)
func retarget(p Program, goarch string) (Program, error) {
	want, _ := AuditArch(goarch)
	native := nativeToken()
	if want == native {
		return p, nil
	}
	arch, x32 := 0, 0
	for i := range p {
		switch {
		case p[i].Code == opJeq && p[i].K == native && i > 0 && p[i-1].Code == opLoad && p[i-1].K == offArch:
			p[i].K = want
			arch++
		case p[i].Code == opJge && p[i].K == x32Bit:
			// "nr >= bit && nr != -1: bad" becomes "nr >= -1 && ...", never.
			p[i].K = ^uint32(0)
			x32++
		}
	}
	if arch != 1 || (native == unix.AUDIT_ARCH_X86_64) != (x32 == 1) {
		return nil, fmt.Errorf("wall bug: libseccomp's test of the architecture has an unknown form")
	}
	return p, nil
}

// nativeToken is the system call table of the machine libseccomp runs on.
func nativeToken() uint32 {
	arch, err := libseccomp.GetNativeArch()
	if err == nil && arch == libseccomp.ArchARM64 {
		return unix.AUDIT_ARCH_AARCH64
	}
	return unix.AUDIT_ARCH_X86_64
}

// verify compares p with the plain reading of t: on every number up to past the
// last known one, and some far away, and on argument values around everything that
// t compares; on every foreign table a few numbers.
func verify(p Program, t *table, goarch string) error {
	arch, _ := AuditArch(goarch)
	test := func(nr uint32) error {
		for _, args := range probes(t.calls[nr], 5000) {
			if got, want := eval(p, nr, arch, &args), t.decide(nr, &args); got != want {
				return compileError(fmt.Sprintf("libseccomp decides %s for %s%#x, the rules say %s",
					actionName(got), callName(nr, goarch), args, actionName(want)), "state the rules for this call without overlaps")
			}
		}
		return nil
	}
	for nr := range uint32(1024) {
		if err := test(nr); err != nil {
			return err
		}
	}
	for nr := range t.calls {
		if err := test(nr); err != nil {
			return err
		}
	}
	for _, nr := range []uint32{x32Bit - 1, ^uint32(0)} {
		if err := test(nr); err != nil {
			return err
		}
	}
	for _, foreign := range foreignCalls(goarch) {
		if got := eval(p, foreign.nr, foreign.arch, new([6]uint64)); got != retKillProcess {
			return fmt.Errorf("wall bug: system call %#x of table %#x gives %s", foreign.nr, foreign.arch, actionName(got))
		}
	}
	return nil
}

// A foreignCall is a call through another system call table than the machine's.
type foreignCall struct{ nr, arch uint32 }

// foreignCalls gives samples, all of which must kill.
func foreignCalls(goarch string) []foreignCall {
	own, _ := AuditArch(goarch)
	var out []foreignCall
	for _, arch := range []uint32{0, ^uint32(0), unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_ARM, unix.AUDIT_ARCH_AARCH64, own ^ 0x80000000} {
		if arch == own {
			continue
		}
		for nr := range uint32(512) {
			out = append(out, foreignCall{nr, arch})
		}
	}
	if goarch == "amd64" {
		for nr := range uint32(1024) {
			out = append(out, foreignCall{x32Bit | nr, own})
		}
		out = append(out, foreignCall{0x80000000, own}, foreignCall{0xfffffffe, own})
	}
	return out
}

func callName(nr uint32, goarch string) string {
	if n := SyscallName(nr, goarch); n != "" {
		return n
	}
	return fmt.Sprint(nr)
}

var libOps = map[specs.LinuxSeccompOperator]libseccomp.ScmpCompareOp{
	specs.OpEqualTo:      libseccomp.CompareEqual,
	specs.OpNotEqual:     libseccomp.CompareNotEqual,
	specs.OpLessThan:     libseccomp.CompareLess,
	specs.OpLessEqual:    libseccomp.CompareLessOrEqual,
	specs.OpGreaterThan:  libseccomp.CompareGreater,
	specs.OpGreaterEqual: libseccomp.CompareGreaterEqual,
	specs.OpMaskedEqual:  libseccomp.CompareMaskedEqual,
}

// libAction is libseccomp's form of a returned action.
func libAction(ret uint32) libseccomp.ScmpAction {
	switch ret & unix.SECCOMP_RET_ACTION_FULL {
	case unix.SECCOMP_RET_ALLOW:
		return libseccomp.ActAllow
	case unix.SECCOMP_RET_LOG:
		return libseccomp.ActLog
	case unix.SECCOMP_RET_TRAP:
		return libseccomp.ActTrap
	case unix.SECCOMP_RET_KILL_THREAD:
		return libseccomp.ActKillThread
	case unix.SECCOMP_RET_ERRNO:
		return libseccomp.ActErrno.SetReturnCode(int16(ret & unix.SECCOMP_RET_DATA))
	case unix.SECCOMP_RET_TRACE:
		return libseccomp.ActTrace.SetReturnCode(int16(ret & unix.SECCOMP_RET_DATA))
	}
	return libseccomp.ActKillProcess
}

func libError(what string, err error) error {
	return compileError(what+": "+strings.TrimPrefix(err.Error(), "libseccomp: "), "")
}
