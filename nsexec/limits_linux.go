package nsexec

import (
	"errors"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/cgroup"
	"github.com/wallsandbox/wall/plan"
)

// remedyCgroup tells how to get a cgroup that the kernel counts in.
const remedyCgroup = "run wall as root, in a session with a systemd of the user (loginctl enable-linger starts one), or below a cgroup of version 2 that belongs to you and has the controllers for its children; or accept a watch with --if-unavailable degrade"

// ProbeLimits tries what keeps the limits of memory and processes of a whole box: it
// puts a process into a cgroup as a run would, and removes both. id names the
// cgroup.
func ProbeLimits(id string) []Feature {
	var out []Feature
	manager := sync.OnceValues(cgroup.Manager)
	for _, f := range []struct {
		name string
		need cgroup.Need
	}{
		{"limit of memory (cgroup)", cgroup.Need{Memory: true}},
		{"limit of processes (cgroup)", cgroup.Need{Pids: true}},
	} {
		x := Feature{Name: f.name, Remedy: remedyCgroup}
		c, err := cgroup.Find(f.need, id, manager)
		if err == nil {
			err = enterForATry(c)
		}
		switch {
		case err != nil:
			x.Detail = err.Error()
			if f.need.Pids && os.Getuid() != 0 {
				x.OK, x.Detail, x.Remedy = true, "RLIMIT_NPROC, which counts for each user namespace; no cgroup: "+x.Detail, ""
			}
		default:
			x.OK, x.Remedy = true, ""
			x.Detail = "version " + strconv.Itoa(c.Version) + ", below " + path.Dir(c.Dirs()[0])
		}
		out = append(out, x)
	}
	return out
}

// enterForATry puts a process that does nothing into a group of its own.
func enterForATry(c plan.Cgroup) error {
	r, w, err := pipe()
	if err != nil {
		return err
	}
	defer unix.Close(w)
	pid, err := syscall.ForkExec("/proc/self/exe", []string{initName, "probe", "wait"}, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: []uintptr{uintptr(r)},
	})
	unix.Close(r)
	if err != nil {
		return err
	}
	g, err := cgroup.Enter(c, cgroup.Limits{Memory: 1 << 30, Pids: 100}, pid, 0)
	if err == nil {
		err = entered(c, pid)
	}
	_ = unix.Kill(pid, unix.SIGKILL) // a child that has not been waited for
	var ws unix.WaitStatus
	_ = retry(func() error { _, err := unix.Wait4(pid, &ws, 0, nil); return err })
	return errors.Join(err, g.Remove())
}

// holdScope starts a process that stays in a scope until end is closed or this process
// ends. It does not end when systemd asks the scope to: see cgroup.Enter.
func holdScope() (pid, end int, err error) {
	r, w, err := pipe()
	if err != nil {
		return 0, -1, err
	}
	defer unix.Close(r)
	pid, err = syscall.ForkExec("/proc/self/exe", []string{initName, "probe", "hold"}, &syscall.ProcAttr{
		Dir: "/", Env: []string{}, Files: []uintptr{uintptr(r)}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		unix.Close(w)
		return 0, -1, err
	}
	return pid, w, nil
}

// entered makes sure that a process is where it was put.
func entered(c plan.Cgroup, pid int) error {
	name := "/proc/" + strconv.Itoa(pid) + "/cgroup"
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), "/wall-"+c.ID+"/") {
		return errors.New("the kernel did not put a process where it was told to")
	}
	return nil
}
