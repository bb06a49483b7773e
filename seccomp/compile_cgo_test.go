//go:build linux && cgo

package seccomp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	libseccomp "github.com/seccomp/libseccomp-golang"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// TestGeneratedCurrent: the embedded programs are what the rule files say. Their
// bytes are compared where the same libseccomp is at hand that made them; their
// meaning is compared everywhere, by TestBuiltinEveryCall.
func TestGeneratedCurrent(t *testing.T) {
	fresh, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	b, err := files.ReadFile("data/generated.json")
	if err != nil {
		t.Fatal(err)
	}
	var made stamp
	if err := json.Unmarshal(b, &made); err != nil {
		t.Fatal(err)
	}
	same := made == currentStamp()
	if !same {
		t.Logf("made with %+v, this is %+v: comparing what the programs decide, not their bytes", made, currentStamp())
	}
	for _, bi := range builtins {
		for _, goarch := range arches {
			name := bi.name + "." + goarch + ".bpf"
			have := mustBuiltin(t, bi.name, goarch)
			if same && !bytes.Equal(have.Bytes(), fresh[name]) {
				t.Errorf("data/%s is out of date: run go generate ./seccomp", name)
			}
			tab, err := builtinTable(bi, goarch)
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(have, tab, goarch); err != nil {
				t.Errorf("data/%s is out of date: %v", name, err)
			}
		}
	}
}

// TestNumbersAgreeWithLibseccomp compares the two sources of numbers where both
// know a call.
func TestNumbersAgreeWithLibseccomp(t *testing.T) {
	compared := 0
	for _, c := range syscallNumbers {
		for goarch, arch := range map[string]libseccomp.ScmpArch{"amd64": libseccomp.ArchAMD64, "arm64": libseccomp.ArchARM64} {
			n, err := libseccomp.GetSyscallFromNameByArch(c.name, arch)
			if err != nil || n < 0 {
				continue
			}
			compared++
			if int(n) != int(c.on(goarch)) {
				t.Errorf("%s on %s: libseccomp %d, x/sys %d", c.name, goarch, n, c.on(goarch))
			}
		}
	}
	if compared < 600 {
		t.Errorf("only %d numbers compared", compared)
	}
}

func ptr(n uint) *uint { return &n }

func ruleFor(name string, a specs.LinuxSeccompAction, errno *uint, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
	return specs.LinuxSyscall{Names: []string{name}, Action: a, ErrnoRet: errno, Args: args}
}

func arg(i uint, op specs.LinuxSeccompOperator, v, two uint64) specs.LinuxSeccompArg {
	return specs.LinuxSeccompArg{Index: i, Value: v, ValueTwo: two, Op: op}
}

// TestCompileAlwaysOnTop: a custom filter that allows everything still refuses
// every cell of the hand-written table that all built-in filters refuse by the
// always-refused list, and nothing a program needs.
func TestCompileAlwaysOnTop(t *testing.T) {
	for _, s := range []*specs.LinuxSeccomp{
		{DefaultAction: specs.ActAllow},
		{DefaultAction: specs.ActLog, Syscalls: []specs.LinuxSyscall{
			{Names: []string{"keyctl", "clone3", "clone", "unshare", "mount", "ioctl", "socket", "bpf", "io_uring_setup"}, Action: specs.ActAllow},
		}},
	} {
		for _, goarch := range arches {
			p, err := Compile(s, goarch)
			if err != nil {
				t.Fatal(err)
			}
			vm := newVM(t, p)
			arch := mustAudit(t, goarch)
			// Refused by the default list only, not always.
			defaultOnly := map[string]bool{"syslog": true, "fanotify_init": true, "lsm_set_self_attr": true, "listns": true,
				"chroot": true, "sethostname": true, "setdomainname": true, "personality": true}
			for _, c := range cells {
				nr, ok, _ := number(c.name, goarch)
				if !ok || defaultOnly[c.name] {
					continue
				}
				got := runVM(t, vm, nr, arch, c.args)
				if got == retLog {
					got = allow
				}
				if got != c.want[0] {
					t.Errorf("%s: %s %#x gives %s, want %s", goarch, c.name, c.args, actionName(got), actionName(c.want[0]))
				}
			}
			for _, f := range foreignCalls(goarch) {
				if got := runVM(t, vm, f.nr, f.arch, [6]uint64{}); got != kill {
					t.Fatalf("%s: call %#x of table %#x gives %s", goarch, f.nr, f.arch, actionName(got))
				}
			}
		}
	}
}

func TestCompileRules(t *testing.T) {
	eacces := uint32(retErrno | uint32(unix.EACCES))
	s := &specs.LinuxSeccomp{
		DefaultAction:   specs.ActErrno,
		DefaultErrnoRet: ptr(uint(unix.EACCES)),
		Architectures:   []specs.Arch{specs.ArchX86_64, specs.ArchAARCH64},
		Syscalls: []specs.LinuxSyscall{
			{Names: []string{"read", "open", "stat64", "ugetrlimit"}, Action: specs.ActAllow}, // some only elsewhere
			ruleFor("write", specs.ActErrno, nil, arg(0, specs.OpEqualTo, 2, 0)),
			ruleFor("write", specs.ActAllow, nil, arg(0, specs.OpLessThan, 10, 0)),
			ruleFor("write", specs.ActErrno, ptr(9), arg(2, specs.OpGreaterThan, 1<<33, 0)),
			ruleFor("write", specs.ActLog, nil),
			ruleFor("close", specs.ActKillProcess, nil, arg(0, specs.OpNotEqual, 3, 0)),
			ruleFor("getpid", specs.ActErrno, ptr(0)),
			ruleFor("mseal", specs.ActTrap, nil), // libseccomp 2.5.4 has no name for it
			ruleFor("getppid", specs.ActErrno, ptr(uint(unix.EACCES))),
			ruleFor("getuid", specs.ActKill, nil),
		},
	}
	for _, goarch := range arches {
		p, err := Compile(s, goarch)
		if err != nil {
			t.Fatal(err)
		}
		arch := mustAudit(t, goarch)
		for _, c := range []struct {
			name string
			args [6]uint64
			want uint32
		}{
			{"read", [6]uint64{}, allow},
			{"write", [6]uint64{2}, eperm},
			{"write", [6]uint64{1}, allow},
			{"write", [6]uint64{1<<32 | 2, 0, 0}, retLog},
			{"write", [6]uint64{1<<32 | 2, 0, 1<<33 + 1}, retErrno | 9},
			{"write", [6]uint64{11, 0, 1 << 33}, retLog},
			{"close", [6]uint64{3}, eacces},
			{"close", [6]uint64{4}, kill},
			{"getpid", [6]uint64{}, retErrno},
			{"mseal", [6]uint64{}, retTrap},
			{"getppid", [6]uint64{}, eacces},
			{"getuid", [6]uint64{}, retKillThread},
			{"getgid", [6]uint64{}, eacces},
			{"keyctl", [6]uint64{}, eperm},
			{"clone3", [6]uint64{}, enosys},
		} {
			nr, ok, _ := number(c.name, goarch)
			if !ok {
				t.Fatal(c.name)
			}
			got, err := Eval(p, nr, arch, c.args)
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("%s: %s %#x gives %s, want %s", goarch, c.name, c.args, actionName(got), actionName(c.want))
			}
		}
	}
}

func TestCompileErrors(t *testing.T) {
	ok := []specs.LinuxSyscall{ruleFor("read", specs.ActAllow, nil)}
	tests := []struct {
		name   string
		s      *specs.LinuxSeccomp
		goarch string
		want   string
	}{
		{"unknown call", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{ruleFor("keyctI", specs.ActErrno, nil)}}, "amd64", `"keyctI" is not the name`},
		{"misspelt call", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{ruleFor("keyctll", specs.ActErrno, nil)}}, "amd64", `no system call is called "keyctll"`},
		{"unchecked", &specs.LinuxSeccomp{DefaultAction: specs.ActNotify}, "amd64", "another process"},
		{"zero", &specs.LinuxSeccomp{}, "amd64", "defaultAction is missing"},
		{"not for this machine", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchAARCH64}, Syscalls: ok}, "amd64", "does not list SCMP_ARCH_X86_64"},
		{"machine without filters", &specs.LinuxSeccomp{DefaultAction: specs.ActAllow}, "riscv64", "needs amd64 or arm64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Compile(tt.s, tt.goarch)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if p != nil {
				t.Error("a program next to an error")
			}
			if tt.goarch == "riscv64" {
				if !errors.Is(err, errors.ErrUnsupported) {
					t.Error("not ErrUnsupported")
				}
				return
			}
			var pe *plan.Error
			if !errors.As(err, &pe) {
				t.Errorf("not a plan.Error: %v", err)
			}
		})
	}
}

// TestCompileTooLarge: what the kernel could not take is an error, not cut short.
func TestCompileTooLarge(t *testing.T) {
	s := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno}
	for i := range uint64(1500) {
		s.Syscalls = append(s.Syscalls, ruleFor("read", specs.ActAllow, nil,
			arg(0, specs.OpEqualTo, i<<32|i, 0), arg(1, specs.OpEqualTo, i*7919, 0)))
	}
	if p, err := Compile(s, "amd64"); err == nil || !strings.Contains(err.Error(), "more than the 4096") {
		t.Errorf("%d instructions, error %v", len(p), err)
	}
}

// TestCompileContainerRules takes the shape of the rules that container engines
// make for sockets, where libseccomp alone leaves the order open.
func TestCompileContainerRules(t *testing.T) {
	s := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{
		ruleFor("socket", specs.ActErrno, ptr(22), arg(0, specs.OpEqualTo, 16, 0), arg(2, specs.OpEqualTo, 9, 0)),
		ruleFor("socket", specs.ActAllow, nil, arg(2, specs.OpNotEqual, 9, 0)),
		ruleFor("socket", specs.ActAllow, nil, arg(0, specs.OpNotEqual, 16, 0)),
		ruleFor("socket", specs.ActAllow, nil, arg(2, specs.OpNotEqual, 9, 0)),
	}}
	p, err := Compile(s, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	for args, want := range map[[6]uint64]uint32{
		{unix.AF_UNIX, 1, 0}:    allow,
		{unix.AF_INET, 1, 6}:    allow,
		{unix.AF_INET, 1, 262}:  noProtocol, // always
		{unix.AF_NETLINK, 3, 0}: allow,
		{unix.AF_NETLINK, 3, 9}: noProtocol, // always, before the rule's EINVAL
	} {
		if got, _ := Eval(p, 41, unix.AUDIT_ARCH_X86_64, args); got != want {
			t.Errorf("%v gives %s, want %s", args, actionName(got), actionName(want))
		}
	}
}

// TestVerifyNotices: the proof after compiling is not decoration. A program that
// returns something else in one place of the dispatcher, or for one action behind
// it, is refused.
func TestVerifyNotices(t *testing.T) {
	tab, err := builtinTable(builtins[1], "amd64")
	if err != nil {
		t.Fatal(err)
	}
	good := mustBuiltin(t, builtins[1].name, "amd64")
	if err := verify(good, tab, "amd64"); err != nil {
		t.Fatal(err)
	}
	head := 1 // the dispatcher ends where libseccomp's first part loads the architecture again
	for good[head].Code != opLoad || good[head].K != offArch {
		head++
	}
	try := func(what string, change func(i int, in unix.SockFilter) bool) {
		bad := slices.Clone(good)
		changed := false
		for i, in := range good {
			if in.Code == opRet && change(i, in) {
				bad[i].K = retErrno | 4000
				changed = true
			}
		}
		if !changed {
			t.Errorf("%s: nothing to change", what)
		} else if err := verify(bad, tab, "amd64"); err == nil {
			t.Errorf("%s: returning something else went unnoticed", what)
		}
	}
	for i, in := range good[:head] {
		if in.Code == opRet {
			try(fmt.Sprintf("instruction %d", i), func(j int, _ unix.SockFilter) bool { return i == j })
		}
	}
	for _, a := range []uint32{allow, eperm, noProtocol, noFamily, noOperation} {
		try(actionName(a), func(i int, in unix.SockFilter) bool { return i >= head && in.K == a })
	}
	if err := verify(mustBuiltin(t, "default", "amd64"), tab, "amd64"); err == nil {
		t.Error("another filter went unnoticed")
	}
}

func FuzzCompile(f *testing.F) {
	f.Add([]byte{1, 0, 2, 9, 1, 3, 0, 0, 1, 0, 1}, uint64(1), uint64(2))
	f.Add([]byte{0, 5, 1, 7, 2, 6, 0, 1, 5, 1, 0, 4, 4, 4, 4, 1, 2, 3}, uint64(1)<<32, uint64(3))
	f.Fuzz(func(t *testing.T, b []byte, x, y uint64) {
		if len(b) > 200 {
			return
		}
		next := func() uint {
			if len(b) == 0 {
				return 0
			}
			n := b[0]
			b = b[1:]
			return uint(n)
		}
		actions := []specs.LinuxSeccompAction{specs.ActAllow, specs.ActErrno, specs.ActKillProcess, specs.ActLog, specs.ActTrap, specs.ActKill}
		ops := []specs.LinuxSeccompOperator{specs.OpEqualTo, specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpGreaterThan, specs.OpGreaterEqual, specs.OpMaskedEqual}
		names := []string{"read", "write", "mseal", "getpid"}
		values := []uint64{0, 1, 2, 3, 0xffffffff, 1 << 32, 1<<32 | 2, ^uint64(0), x, y}
		s := &specs.LinuxSeccomp{DefaultAction: actions[next()%6]}
		for range next() % 8 {
			r := specs.LinuxSyscall{Names: []string{names[next()%4]}, Action: actions[next()%6]}
			if r.Action == specs.ActErrno {
				r.ErrnoRet = ptr(next())
			}
			for i := range next() % 3 {
				a := specs.LinuxSeccompArg{Index: i, Op: ops[next()%7], Value: values[next()%10]}
				if a.Op == specs.OpMaskedEqual {
					a.ValueTwo = values[next()%10] & a.Value
				}
				r.Args = append(r.Args, a)
			}
			s.Syscalls = append(s.Syscalls, r)
		}
		p, err := Compile(s, "amd64")
		if err != nil {
			// Refused is always right; what counts is that no wrong
			// program comes out, and that nobody is told of a bug.
			if strings.Contains(err.Error(), "wall bug") {
				t.Fatal(err)
			}
			return
		}
		for _, name := range names {
			nr, _, _ := number(name, "amd64")
			for _, a := range append(values, x+1, y-1) {
				for _, c := range append(values, x-1, y+1) {
					args := [6]uint64{a, c, x, y}
					got, err := Eval(p, nr, unix.AUDIT_ARCH_X86_64, args)
					if err != nil {
						t.Fatal(err)
					}
					if want := naive([]*specs.LinuxSeccomp{s}, name, args); got != want {
						j, _ := json.Marshal(s)
						t.Fatalf("%s\n%s %#x gives %s, want %s", j, name, args, actionName(got), actionName(want))
					}
				}
			}
		}
	})
}

func BenchmarkCompile(b *testing.B) {
	s := mustRules(b, "default")
	for b.Loop() {
		if _, err := Compile(s, runtime.GOARCH); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleDisassemble() {
	p := Program{{Code: opLoad, K: offNr}, {Code: opRet, K: retAllow}}
	fmt.Print(Disassemble(p))
	// Output:
	// 0000  load nr
	// 0001  return allow
}
