package seccomp

// A syscallNumber is one system call with its numbers; -1 where the machine has
// none. From 424 on they are the same everywhere.
type syscallNumber struct {
	name         string
	amd64, arm64 int16
}

// number gives the number of the named call, ok false when goarch has no such
// call. known is false when no machine in the table has it.
func number(name, goarch string) (nr uint32, ok, known bool) {
	for i := range syscallNumbers {
		c := &syscallNumbers[i]
		if c.name != name {
			continue
		}
		n := c.on(goarch)
		return uint32(n), n >= 0, true
	}
	return 0, false, false
}

// SyscallName gives the name of system call nr on goarch ("amd64", "arm64"), or
// "" when it is not known.
func SyscallName(nr uint32, goarch string) string {
	for i := range syscallNumbers {
		c := &syscallNumbers[i]
		if n := c.on(goarch); n >= 0 && uint32(n) == nr {
			return c.name
		}
	}
	return ""
}

func (c *syscallNumber) on(goarch string) int16 {
	switch goarch {
	case "amd64":
		return c.amd64
	case "arm64":
		return c.arm64
	}
	return -1
}
