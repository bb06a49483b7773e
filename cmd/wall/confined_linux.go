package main

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// boxInit is the name of pid 1 in a box, as /proc/1/comm shows it.
const boxInit = "wall-init"

// insideBox reports whether this process runs in a box of wall.
func insideBox() bool {
	comm, err := os.ReadFile("/proc/1/comm")
	return err == nil && strings.TrimSpace(string(comm)) == boxInit
}

// confined tells, before anything is made, that no box can be made from here:
// without openat2(2) neither plan nor box has paths that can be trusted. Every
// filter of a box refuses it, custom ones too, because its mode is in memory; so
// does that of old container runtimes. Without this check the first file that is
// looked at would get the blame.
func confined() error {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	})
	if err == nil {
		unix.Close(fd)
		return nil
	}
	if !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
		return nil // whatever it is, it has its own message where it matters
	}
	if insideBox() {
		return &plan.Error{
			Op:   "cannot make a box: this already runs in a wall box, which refuses new namespaces",
			Hint: "run the command as it is: what a command in the box starts is in the box too",
		}
	}
	return &plan.Error{
		Op:   "cannot make a box: openat2 is refused",
		Hint: "wall needs Linux 5.13 or newer; in a container, a newer runtime or another seccomp profile (docker: --security-opt seccomp=unconfined)",
		Err:  err,
	}
}
