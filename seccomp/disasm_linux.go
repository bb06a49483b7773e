package seccomp

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Disassemble gives p as text for people, one instruction per line: its index,
// what it does, and the absolute index that a jump goes to. Comparisons with a
// call's number have the call's name. It does not need p to be valid, and the
// form may change.
func Disassemble(p Program) string {
	goarch := ""
	for _, in := range p {
		if in.Code == opJeq {
			switch in.K {
			case unix.AUDIT_ARCH_X86_64:
				goarch = "amd64"
			case unix.AUDIT_ARCH_AARCH64:
				goarch = "arm64"
			}
		}
		if goarch != "" {
			break
		}
	}
	var b strings.Builder
	loaded := uint32(offArgs)
	for i, in := range p {
		fmt.Fprintf(&b, "%04d  ", i)
		switch in.Code {
		case opLoad:
			loaded = in.K
			fmt.Fprintf(&b, "load %s", fieldName(in.K))
		case opAnd:
			fmt.Fprintf(&b, "and  %#x", in.K)
		case opJump:
			fmt.Fprintf(&b, "jump %04d", i+1+int(in.K))
		case opJeq, opJgt, opJge, opJset:
			op := map[uint16]string{opJeq: "==", opJgt: ">", opJge: ">=", opJset: "&"}[in.Code]
			fmt.Fprintf(&b, "if %s %#x %04d else %04d", op, in.K, i+1+int(in.Jt), i+1+int(in.Jf))
			if n := SyscallName(in.K, goarch); n != "" && loaded == offNr {
				fmt.Fprintf(&b, "  ; %s", n)
			}
		case opRet:
			fmt.Fprintf(&b, "return %s", actionName(in.K))
		default:
			fmt.Fprintf(&b, "code %#04x jt %d jf %d k %#x", in.Code, in.Jt, in.Jf, in.K)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// fieldName names a word of struct seccomp_data.
func fieldName(off uint32) string {
	switch {
	case off == offNr:
		return "nr"
	case off == offArch:
		return "arch"
	case off < offArgs:
		return fmt.Sprintf("ip[%d]", off-8)
	}
	half := "low"
	if off%8 == 4 {
		half = "high"
	}
	return fmt.Sprintf("arg%d.%s", (off-offArgs)/8, half)
}

// actionName gives a returned action in words.
func actionName(ret uint32) string {
	switch ret {
	case unix.SECCOMP_RET_ALLOW:
		return "allow"
	case unix.SECCOMP_RET_LOG:
		return "log"
	case unix.SECCOMP_RET_TRAP:
		return "trap"
	case unix.SECCOMP_RET_KILL_THREAD:
		return "kill thread"
	case unix.SECCOMP_RET_KILL_PROCESS:
		return "kill process"
	}
	if ret&unix.SECCOMP_RET_ACTION_FULL == unix.SECCOMP_RET_ERRNO {
		if n := unix.ErrnoName(unix.Errno(ret & unix.SECCOMP_RET_DATA)); n != "" {
			return n
		}
		return fmt.Sprintf("errno %d", ret&unix.SECCOMP_RET_DATA)
	}
	return fmt.Sprintf("action %#x", ret)
}
