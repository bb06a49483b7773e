//go:build linux

package seccomp

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestConstants(t *testing.T) {
	for _, c := range []struct {
		name      string
		got, want uint32
	}{
		{"kill process", retKillProcess, unix.SECCOMP_RET_KILL_PROCESS},
		{"kill thread", retKillThread, unix.SECCOMP_RET_KILL_THREAD},
		{"trap", retTrap, unix.SECCOMP_RET_TRAP},
		{"errno", retErrno, unix.SECCOMP_RET_ERRNO},
		{"log", retLog, unix.SECCOMP_RET_LOG},
		{"allow", retAllow, unix.SECCOMP_RET_ALLOW},
		{"instruction size", insnSize, unix.SizeofSockFilter},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

func TestFromBytes(t *testing.T) {
	ret := unix.SockFilter{Code: opRet, K: retAllow}
	jump := func(code uint16, jt, jf uint8, k uint32) unix.SockFilter {
		return unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k}
	}
	many := func(n int) Program {
		p := make(Program, n)
		for i := range p {
			p[i] = ret
		}
		return p
	}
	tests := []struct {
		name string
		prog Program
		want string // "" = valid
	}{
		{"one return", Program{ret}, ""},
		{"largest", many(MaxProgram), ""},
		{"too large", many(MaxProgram + 1), "at most 4096"},
		{"empty", Program{}, "must have 1 to 4096"},
		{"no return", Program{{Code: opLoad}}, "last instruction is not a return"},
		{"jump last", Program{ret, jump(opJeq, 0, 0, 0)}, "instruction 1: jump past the end"},
		{"jt inside", Program{jump(opJeq, 1, 0, 0), ret, ret}, ""},
		{"jt past", Program{jump(opJeq, 2, 0, 0), ret, ret}, "instruction 0: jump past the end"},
		{"jf past", Program{jump(opJset, 0, 255, 0), ret, ret}, "instruction 0: jump past the end"},
		{"ja inside", Program{jump(opJump, 0, 0, 1), ret, ret}, ""},
		{"ja past", Program{jump(opJump, 0, 0, 2), ret, ret}, "instruction 0: jump past the end"},
		{"ja wraps", Program{jump(opJump, 0, 0, 0xffffffff), ret}, "instruction 0: jump past the end"},
		{"last word", Program{{Code: opLoad, K: 60}, ret}, ""},
		{"load past", Program{{Code: opLoad, K: 64}, ret}, "instruction 0: load outside"},
		{"load odd", Program{{Code: opLoad, K: 2}, ret}, "instruction 0: load outside"},
		{"load byte", Program{{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS}, ret}, "instruction 0: operation"},
		{"divide", Program{{Code: unix.BPF_ALU | unix.BPF_DIV | unix.BPF_K}, ret}, "instruction 0: operation"},
		{"memory", Program{{Code: unix.BPF_ST}, ret}, "instruction 0: operation"},
		{"jump by X", Program{{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X}, ret}, "instruction 0: operation"},
		{"return A", Program{{Code: unix.BPF_RET | unix.BPF_A}, ret}, "instruction 0: operation"},
		{"trace", Program{{Code: opRet, K: unix.SECCOMP_RET_TRACE}}, "unknown action"},
		{"notify", Program{{Code: opRet, K: unix.SECCOMP_RET_USER_NOTIF}}, "unknown action"},
		{"errno 4095", Program{{Code: opRet, K: retErrno | 4095}}, ""},
		{"errno 4096", Program{{Code: opRet, K: retErrno | 4096}}, "unknown action"},
		{"allow with data", Program{{Code: opRet, K: retAllow | 1}}, "unknown action"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := tt.prog.Bytes()
			got, err := FromBytes(b)
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("error %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), b) {
				t.Error("does not round-trip")
			}
		})
	}
	if _, err := FromBytes(make([]byte, 12)); err == nil || !strings.Contains(err.Error(), "whole number") {
		t.Errorf("12 bytes: error %v", err)
	}
}

func TestEvalRefusesInvalid(t *testing.T) {
	if _, err := Eval(Program{{Code: opLoad}}, 0, 0, [6]uint64{}); err == nil {
		t.Error("a program without return was run")
	}
}

func TestDisassemble(t *testing.T) {
	p := Program{
		{Code: opLoad, K: 4},
		{Code: opJeq, Jf: 5, K: unix.AUDIT_ARCH_X86_64},
		{Code: opLoad, K: 0},
		{Code: opJeq, Jf: 2, K: 16},
		{Code: opLoad, K: 28},
		{Code: opAnd, K: 15},
		{Code: opRet, K: retErrno | 38},
		{Code: opRet, K: retKillProcess},
		{Code: 0xffff, K: 1},
	}
	want := `0000  load arch
0001  if == 0xc000003e 0002 else 0007
0002  load nr
0003  if == 0x10 0004 else 0006  ; ioctl
0004  load arg1.high
0005  and  0xf
0006  return ENOSYS
0007  return kill process
0008  code 0xffff jt 0 jf 0 k 0x1
`
	if got := Disassemble(p); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func FuzzFromBytes(f *testing.F) {
	for _, b := range builtins {
		p, err := Builtin(b.name, "amd64")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p.Bytes()[:80], uint32(16), uint64(0x5412))
	}
	f.Add(Program{{Code: opRet, K: retAllow}}.Bytes(), uint32(1), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, nr uint32, arg uint64) {
		p, err := FromBytes(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.Bytes(), b) {
			t.Fatal("does not round-trip")
		}
		args := [6]uint64{arg, arg, arg, arg, arg, arg}
		got, err := Eval(p, nr, unix.AUDIT_ARCH_X86_64, args)
		if err != nil {
			t.Fatal(err)
		}
		if vm := runVM(t, newVM(t, p), nr, unix.AUDIT_ARCH_X86_64, args); vm != got {
			t.Fatalf("Eval %#x, x/net/bpf %#x", got, vm)
		}
	})
}
