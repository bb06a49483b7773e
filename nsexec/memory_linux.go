package nsexec

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// The memory of a box as a watch counts it, where no cgroup does.

const (
	heldPause  = 2 * lookPause // between two looks at what is held without being mapped
	sureLooks  = 3             // looks in a row that have to find too much
	surePause  = 10 * time.Millisecond
	maxOwnFDs  = 1024 // descriptors of pid 1 are below
	vforkTicks = 100  // how long a child is taken to be one of vfork(2): a second
)

// memoryBeyond reports whether the box has more memory than the limit. Reading takes
// a while in which processes come and go, so that once is not enough.
func (w *watch) memoryBeyond(now time.Time, all []process, limit uint64) bool {
	if now.After(w.nextHeld) {
		w.held = w.openFiles(w.memfds) + w.inIPC()
		w.nextHeld = time.Now().Add(max(heldPause, pauseFactor*time.Since(now)))
	}
	for n := 1; ; n++ {
		shared, _ := w.inMemory()
		shared += w.held
		own := notBorrowed(all, uptime())
		var rss uint64
		for _, p := range own {
			rss += p.pages * uint64(os.Getpagesize())
		}
		if rss+shared <= limit || w.memory(own, shared) <= limit {
			return false
		}
		if n == sureLooks {
			return true
		}
		time.Sleep(surePause)
		_, all = w.processes()
	}
}

// notBorrowed leaves out children of vfork(2), which runs them on the memory of
// their parent until they execute something: to count it twice would end boxes that
// start many programs. Such a child is one that has executed nothing yet and has the
// same addresses as its parent. A fork of a process has them, too, so that only one child counts as one, for
// a second, and neither its parent nor a child of its own.
func notBorrowed(all []process, now uint64) []process {
	const forkNoExec = 0x40 // PF_FORKNOEXEC of include/linux/sched.h
	byPID := make(map[string]process, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	borrowed, lent := map[string]bool{}, map[string]bool{}
	var own []process
	for _, p := range all {
		q, ok := byPID[p.parent]
		same := ok && p.address == q.address && p.stack == q.stack && p.size == q.size
		young := p.start+vforkTicks > now
		if same && young && p.flags&forkNoExec != 0 && !borrowed[q.pid] && !lent[q.pid] && !lent[p.pid] {
			borrowed[p.pid], lent[q.pid] = true, true
			continue
		}
		own = append(own, p)
	}
	return own
}

// uptime is the time since the host's start in the ticks of /proc, of which every
// architecture has 100 in a second.
func uptime() uint64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return uint64(t.Nano() / 1e7)
}

// memory counts exactly: every page once, however many share it. Memory of a file
// that is mapped is in both numbers, and counts with the larger one.
func (w *watch) memory(all []process, inFiles uint64) uint64 {
	var anon, shmem uint64
	for _, p := range all {
		text, ok := w.readAt(p.at + "/smaps_rollup")
		if !ok {
			continue
		}
		for line := range bytes.Lines(text) {
			f := strings.Fields(string(line))
			if len(f) != 3 {
				continue
			}
			n, _ := strconv.ParseUint(f[1], 10, 64)
			switch f[0] {
			case "Pss_Anon:", "SwapPss:":
				anon += n << 10
			case "Pss_Shmem:":
				shmem += n << 10
			}
		}
	}
	return anon + max(shmem, inFiles)
}

// An ipcFile tells of the System V objects of the box, which take memory whether a
// process has them mapped or not.
type ipcFile struct {
	fd   int
	size func(fields []string) uint64 // bytes of one object
}

// ipcFiles are the files of /proc/sysvipc with the columns that count
// (proc_sysvipc(5) and ipc/{shm,msg,sem}.c). A semaphore takes a cache line.
var ipcFiles = map[string]func([]string) uint64{
	"shm": func(f []string) uint64 { return column(f, 14) + column(f, 15) },
	"msg": func(f []string) uint64 { return column(f, 3) },
	"sem": func(f []string) uint64 { return 64 * column(f, 3) },
}

func column(fields []string, n int) uint64 {
	if n >= len(fields) {
		return 0
	}
	x, _ := strconv.ParseUint(fields[n], 10, 64)
	return x
}

// openIPC opens the files of /proc/sysvipc in pid 1, for a watch in stage 1: they show the
// namespace of the process that opened them.
func openIPC(p *plan.Plan) error {
	if p.Bounds.Memory.By != plan.ByWatch {
		return nil
	}
	for name := range ipcFiles {
		if _, err := unix.Open("/proc/sysvipc/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil && err != unix.ENOENT {
			return pathError("open", "/proc/sysvipc/"+name, err)
		}
	}
	return nil
}

// openHeld finds out how memory is told that belongs to no mapping. What cannot be
// opened is that of a box that has ended, or of a host where nobody may trace anybody.
func (w *watch) openHeld() {
	if fd, err := unix.MemfdCreate("wall", unix.MFD_CLOEXEC); err == nil {
		if st, err := fstat(fd); err == nil {
			w.memfds = uint64(st.Dev)
		}
		unix.Close(fd)
	}
	// Nobody but root may list the descriptors of pid 1, which is not dumpable.
	for n := firstFD; n < maxOwnFDs && len(w.ipc) < len(ipcFiles); n++ {
		fd, err := unix.PidfdGetfd(w.c.pidfd, n, 0)
		if err != nil {
			continue
		}
		link, _ := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if _, name, ok := strings.Cut(link, "sysvipc/"); ok && ipcFiles[name] != nil {
			w.ipc = append(w.ipc, ipcFile{fd, ipcFiles[name]})
			continue
		}
		unix.Close(fd)
	}
}

// inIPC gives the bytes of all System V objects of the box.
func (w *watch) inIPC() uint64 {
	var sum uint64
	for _, f := range w.ipc {
		if _, err := unix.Seek(f.fd, 0, unix.SEEK_SET); err != nil {
			continue
		}
		text, err := readAll(f.fd, 16<<20)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(text) {
			sum += f.size(strings.Fields(string(line))) // the headline has no numbers
		}
	}
	return sum
}
