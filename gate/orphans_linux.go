package gate

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of its orphaned descendants (prctl(2),
// PR_SET_CHILD_SUBREAPER).
func adopt() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// endOrphans kills the children of this process until there is none: the children
// of one that was killed become its own. It gives their number.
func endOrphans() (int, error) {
	n := 0
	for end := time.Now().Add(10 * time.Second); ; {
		pids, err := children()
		if err != nil {
			return n, err
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // a child that is not waited for keeps its number
		}
		for {
			var ws unix.WaitStatus
			pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
			switch {
			case err == unix.EINTR:
				continue
			case err == unix.ECHILD:
				return n, nil
			case err != nil:
				return n, os.NewSyscallError("wait4", err)
			case pid > 0:
				n++
				continue
			}
			break
		}
		if time.Now().After(end) {
			return n, errors.New("it makes new processes faster than they can be ended")
		}
		time.Sleep(time.Millisecond)
	}
}

// children lists the children of this process, by /proc/PID/stat.
func children() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	self := strconv.Itoa(os.Getpid())
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue // ended
		}
		// "PID (NAME) STATE PPID ...", where NAME may hold anything.
		if f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(f) > 1 && string(f[1]) == self {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// treeSize adds up what the files below the directory take on disk. What is not
// there or cannot be read takes nothing.
func treeSize(fd int) int64 {
	dir, err := open(fd, ".")
	if err != nil {
		return 0
	}
	left := MaxEntries
	return sizeOf(dir, &left, maxDepth)
}

func sizeOf(fd int, left *int, depth int) (sum int64) {
	defer unix.Close(fd)
	buf := make([]byte, 16<<10)
	var names []string
	for depth > 0 {
		n, err := unix.ReadDirent(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names[:0])
		for _, name := range names {
			var st unix.Stat_t
			if *left--; *left < 0 {
				return sum
			}
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			sum += st.Blocks * 512
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				if sub, err := open(fd, name); err == nil {
					sum += sizeOf(sub, left, depth-1)
				}
			}
		}
	}
	return sum
}
