package seccomp

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AuditArch returns the number by which the kernel tells a filter the system
// call table in use (linux/audit.h) for a runtime.GOARCH of "amd64" or "arm64";
// ok is false for every other.
func AuditArch(goarch string) (arch uint32, ok bool) {
	switch goarch {
	case "amd64":
		return unix.AUDIT_ARCH_X86_64, true
	case "arm64":
		return unix.AUDIT_ARCH_AARCH64, true
	}
	return 0, false
}

// x32Bit is set in the number of every call of the x32 table, which shares
// AUDIT_ARCH_X86_64 with the ordinary one (__X32_SYSCALL_BIT in asm/unistd.h).
const x32Bit = 0x40000000

// Eval runs p on one system call, as the kernel would, and returns what the
// filter decides: one of unix.SECCOMP_RET_*, for SECCOMP_RET_ERRNO with the error
// number in the low 16 bits. nr is the call's number, arch the system call
// table (see [AuditArch]), args the six argument registers. The error is that of
// [Program.Validate]; nothing is called and nothing changes.
func Eval(p Program, nr uint32, arch uint32, args [6]uint64) (action uint32, err error) {
	if err := p.Validate(); err != nil {
		return 0, err
	}
	return eval(p, nr, arch, &args), nil
}

// eval is Eval for a valid p.
func eval(p Program, nr uint32, arch uint32, args *[6]uint64) uint32 {
	var a uint32
	for pc := 0; ; pc++ {
		in := &p[pc]
		jump := false
		switch in.Code {
		case opLoad:
			a = load(in.K, nr, arch, args)
			continue
		case opAnd:
			a &= in.K
			continue
		case opRet:
			return in.K
		case opJump:
			pc += int(in.K)
			continue
		case opJeq:
			jump = a == in.K
		case opJgt:
			jump = a > in.K
		case opJge:
			jump = a >= in.K
		case opJset:
			jump = a&in.K != 0
		default:
			panic(fmt.Sprintf("wall bug: operation %#x in a valid filter", in.Code))
		}
		if jump {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
}

// load reads one aligned 32-bit word of struct seccomp_data on a little-endian
// machine, as amd64 and arm64 are: the low half of an argument comes first.
// The instruction pointer reads as zero.
func load(off, nr, arch uint32, args *[6]uint64) uint32 {
	switch {
	case off == offNr:
		return nr
	case off == offArch:
		return arch
	case off < offArgs:
		return 0
	}
	arg := args[(off-offArgs)/8]
	if off%8 == 4 {
		return uint32(arg >> 32)
	}
	return uint32(arg)
}
