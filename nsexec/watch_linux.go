package nsexec

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A mountWatch is pid 1's eye on its own mount table. Nothing inside can change
// it, but the host can: when a file or directory that is a mount point here is
// removed or replaced out there (git does so with .git/config at every change), the
// kernel silently detaches what is mounted on it (detach_mounts in
// fs/namespace.c), and with it a protection. The box then ends, because it no
// longer is what was promised.
//
// The cover of a hidden path is the exception where Landlock says the same
// again: its rules do not reach what took the path's place, so nothing is lost.
type mountWatch struct {
	fd     int               // /proc/self/mountinfo of the box
	base   map[string]string // mount id -> mount point
	spared map[string]bool   // mount points that may go
}

// openMountWatch remembers the finished mount table. Precondition: inside the
// new root, with all mounts made.
func openMountWatch(p *plan.Plan) (*mountWatch, error) {
	const name = "/proc/self/mountinfo"
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	w := &mountWatch{fd: fd, spared: sparedMounts(p)}
	if w.base, err = w.read(); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return w, nil
}

func (w *mountWatch) read() (map[string]string, error) {
	if _, err := unix.Seek(w.fd, 0, unix.SEEK_SET); err != nil {
		return nil, os.NewSyscallError("lseek", err)
	}
	text, err := readAll(w.fd, 64<<20)
	if err != nil {
		return nil, err
	}
	return mountPoints(text), nil
}

// lost blocks until a mount of the box is gone, and gives the mount points. An
// error means that nobody can tell any more.
func (w *mountWatch) lost() ([]string, error) {
	for {
		// The kernel reports a change of the table as POLLERR|POLLPRI
		// (proc_pid_mounts(5)).
		fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLPRI}}
		if err := retry(func() error { _, err := unix.Poll(fds, -1); return err }); err != nil {
			return nil, os.NewSyscallError("poll", err)
		}
		now, err := w.read()
		if err != nil {
			return nil, err
		}
		gone := goneMounts(w.base, now)
		gone = slices.DeleteFunc(gone, func(point string) bool { return w.spared[point] })
		if len(gone) > 0 {
			return gone, nil
		}
	}
}

// sparedMounts gives the covers that Landlock backs, those that the rule for the tree
// around them excepts, and the files of wall's own, which protect nothing.
func sparedMounts(p *plan.Plan) map[string]bool {
	spared := map[string]bool{}
	for _, m := range p.Mounts {
		if m.Op == plan.OpText {
			spared[m.Target] = true
		}
		if m.Op != plan.OpCover || p.Landlock.ABI == 0 {
			continue
		}
		var around plan.PathRule // the innermost rule that would reach the path
		for _, r := range p.Landlock.Rules {
			if strings.HasPrefix(m.Target, strings.TrimSuffix(r.Path, "/")+"/") && len(r.Path) > len(around.Path) {
				around = r
			}
		}
		if slices.Contains(around.Except, m.Target) {
			spared[m.Target] = true
		}
	}
	return spared
}

// mountPoints reads the text of /proc/PID/mountinfo (proc_pid_mountinfo(5)):
// mount id and, as it is written there, mount point.
func mountPoints(text []byte) map[string]string {
	out := make(map[string]string, 64)
	for line := range bytes.Lines(text) {
		f := bytes.SplitN(line, []byte(" "), 6)
		if len(f) == 6 {
			out[string(f[0])] = string(f[4])
		}
	}
	return out
}

// goneMounts gives the mount points of base that are missing in now, sorted.
func goneMounts(base, now map[string]string) []string {
	var gone []string
	for id, point := range base {
		if _, ok := now[id]; !ok {
			gone = append(gone, unescapeMount(point))
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone)
}

// unescapeMount undoes the \ooo escapes of mountinfo: space, tab, newline, backslash.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

var errReplaced = errors.New("a file or directory on the host was replaced or removed while the command ran")

// lostError tells what the loss of mounts means.
func lostError(points []string) error {
	return &plan.Error{
		Op:   "the box was ended: what was mounted on " + strings.Join(points, ", ") + " is gone",
		Err:  errReplaced,
		Hint: "wall cannot mount it again and ends the box rather than leave it unprotected; look at the file before it is used, and run again without changing it from outside meanwhile",
		Exit: 128 + int(unix.SIGKILL),
	}
}
