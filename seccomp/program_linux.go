package seccomp

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// MaxProgram is the largest number of instructions the kernel takes in one
// filter (BPF_MAXINSNS in linux/bpf_common.h).
const MaxProgram = 4096

// A Program is a seccomp filter: classic BPF over struct seccomp_data
// (linux/seccomp.h). Only programs for which [Program.Validate] returns nil
// should be installed.
type Program []unix.SockFilter

// insnSize is sizeof(struct sock_filter): u16 code, u8 jt, u8 jf, u32 k.
const insnSize = 8

// The instructions that wall's filters consist of (linux/bpf_common.h). The
// kernel knows more; none of them is needed to decide by number, architecture
// and arguments, and with only these the kernel can prove that a call is always
// allowed and skip the filter for it (seccomp_is_const_allow, Linux 5.11).
const (
	opLoad = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	opAnd  = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	opJump = unix.BPF_JMP | unix.BPF_JA
	opJeq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	opJgt  = unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K
	opJge  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	opJset = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	opRet  = unix.BPF_RET | unix.BPF_K
)

// Offsets in struct seccomp_data: int nr, u32 arch, u64 instruction_pointer,
// u64 args[6]; 64 bytes in all.
const (
	offNr    = 0
	offArch  = 4
	offArgs  = 16
	dataSize = 64
)

// Bytes returns p as an array of struct sock_filter in host byte order.
func (p Program) Bytes() []byte {
	b := make([]byte, len(p)*insnSize)
	for i, in := range p {
		o := b[i*insnSize:]
		binary.NativeEndian.PutUint16(o, in.Code)
		o[2], o[3] = in.Jt, in.Jf
		binary.NativeEndian.PutUint32(o[4:], in.K)
	}
	return b
}

// FromBytes is the inverse of [Program.Bytes]. It returns an error unless b is
// a whole number of instructions and the program passes [Program.Validate].
func FromBytes(b []byte) (Program, error) {
	p, err := decode(b)
	if err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// decode is FromBytes without Validate.
func decode(b []byte) (Program, error) {
	if len(b)%insnSize != 0 {
		return nil, fmt.Errorf("system call filter: %d bytes is not a whole number of %d-byte instructions", len(b), insnSize)
	}
	if len(b) > MaxProgram*insnSize {
		return nil, fmt.Errorf("system call filter: %d instructions, the kernel takes at most %d", len(b)/insnSize, MaxProgram)
	}
	p := make(Program, len(b)/insnSize)
	for i := range p {
		o := b[i*insnSize:]
		p[i] = unix.SockFilter{
			Code: binary.NativeEndian.Uint16(o),
			Jt:   o[2],
			Jf:   o[3],
			K:    binary.NativeEndian.Uint32(o[4:]),
		}
	}
	return p, nil
}

// Validate reports the first reason why p is not a program wall could have
// made: 1 to [MaxProgram] instructions, only the few operations wall uses, loads
// aligned and inside struct seccomp_data, every jump forward and inside the
// program, the last instruction a return, and only returned actions that need
// nobody else to decide (no TRACE, no USER_NOTIF). It is stricter than the
// kernel's own check (seccomp_check_filter and bpf_check_classic), so a valid
// program always terminates and [Eval] always has an answer.
func (p Program) Validate() error {
	if len(p) == 0 || len(p) > MaxProgram {
		return fmt.Errorf("system call filter: %d instructions, must have 1 to %d", len(p), MaxProgram)
	}
	for i, in := range p {
		left := uint32(len(p) - i - 1) // instructions after this one
		var bad string
		switch in.Code {
		case opLoad:
			if in.K%4 != 0 || in.K >= dataSize {
				bad = "load outside of the call's data"
			}
		case opAnd:
		case opJump:
			if in.K >= left {
				bad = "jump past the end"
			}
		case opJeq, opJgt, opJge, opJset:
			if uint32(in.Jt) >= left || uint32(in.Jf) >= left {
				bad = "jump past the end"
			}
		case opRet:
			if !knownAction(in.K) {
				bad = fmt.Sprintf("return of the unknown action %#x", in.K)
			}
		default:
			bad = fmt.Sprintf("operation %#x", in.Code)
		}
		if bad != "" {
			return fmt.Errorf("system call filter: instruction %d: %s", i, bad)
		}
	}
	if p[len(p)-1].Code != opRet {
		return fmt.Errorf("system call filter: the last instruction is not a return")
	}
	return nil
}

// knownAction reports whether k is an action wall's filters may return.
func knownAction(k uint32) bool {
	switch k {
	case unix.SECCOMP_RET_KILL_PROCESS, unix.SECCOMP_RET_KILL_THREAD,
		unix.SECCOMP_RET_TRAP, unix.SECCOMP_RET_LOG, unix.SECCOMP_RET_ALLOW:
		return true
	}
	// MAX_ERRNO in linux/err.h; the kernel caps larger values to it.
	return k&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO && k&unix.SECCOMP_RET_DATA <= 4095
}
