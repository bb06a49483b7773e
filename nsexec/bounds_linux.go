package nsexec

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/cgroup"
	"github.com/wallsandbox/wall/plan"
)

// The bounds of a run are kept by stage 1, which nothing inside can reach: it
// has the clock, the cgroup, and the eye on what no cgroup counts.

// moreTasks is how many processes above the limit RLIMIT_NPROC allows. The kernel counts
// no refusals there: too many have to be there to be seen, also when those that were
// refused one have ended.
const moreTasks = 4

// buildTasks is what a cgroup allows pid 1 of the box on top of the limit until
// its threads are counted.
const buildTasks = 64

// Pauses between two looks. A look that takes long is followed by a pause in
// proportion, so that looking never takes more than a twentieth of a processor.
const (
	lookPause    = 100 * time.Millisecond
	longestPause = 2 * time.Second
	pauseFactor  = 20
)

// enterCgroup moves stage 2 into the cgroup of the run. It waits for its order
// meanwhile, so that nothing of it or in it can have left any process behind.
func (c *Cmd) enterCgroup() error {
	b := c.Plan.Bounds
	if b.Cgroup.Version == 0 {
		return nil
	}
	cgroup.Collect(b.Cgroup)
	l := cgroup.Limits{Memory: b.Memory.Value}
	if b.Processes.By == plan.ByCgroup {
		l.Pids = b.Processes.Value + buildTasks
	}
	var err error
	if b.Cgroup.Scope != "" {
		if c.holder, c.hold, err = holdScope(); err != nil {
			return &plan.Error{Op: "cannot start the box", Err: err}
		}
	}
	c.group, err = cgroup.Enter(b.Cgroup, l, c.pid, c.holder) // also after an error it is removed with the box
	if err != nil {
		o := b.Memory.Origin
		if b.Memory.By != plan.ByCgroup {
			o = b.Processes.Origin
		}
		return &plan.Error{Op: "cannot put the box into a cgroup, which keeps its limits", Origin: o, Err: err, Hint: "see `wall doctor`"}
	}
	return nil
}

// leaveCgroup removes the cgroup, and has systemd remove the scope, if there is one.
func (c *Cmd) leaveCgroup() error {
	var err error
	if c.group != nil {
		err = c.group.Remove()
		c.group = nil
	}
	if c.holder != 0 {
		unix.Close(c.hold)
		_ = unix.Kill(c.holder, unix.SIGKILL) // a child that has not been waited for
		_ = retry(func() error { _, err := unix.Wait4(c.holder, nil, 0, nil); return err })
		c.holder = 0
	}
	return err
}

// boundProcesses sets the limit of processes right before pid 1 forks the command. The
// threads of pid 1 are in the cgroup, and count for RLIMIT_NPROC, but are none of the
// command's: they are counted now, when it has all that it will ever have (see spareThreads). One
// of them ends with the fork of the command, whose number comes in its place.
func (c *Cmd) boundProcesses() error {
	b := c.Plan.Bounds.Processes
	fail := func(err error) error {
		return &plan.Error{Op: "cannot limit the processes of the box", Origin: b.Origin, Err: err, Hint: "see `wall doctor`"}
	}
	own, err := threads(c.pid)
	if err != nil {
		return fail(err)
	}
	switch b.By {
	case plan.ByCgroup:
		c.pids = b.Value + own - 1
		err = c.group.LimitPids(c.pids + 1) // for the thread that forks; see boundExactly
	case plan.ByRlimit:
		c.forks, c.forksKnown = lastPID()
		err = limitProcesses(c.pid, b.Value+own-1+moreTasks)
	}
	if err != nil {
		return fail(err)
	}
	return writeAll(c.control, []byte{orderExecute})
}

// boundExactly takes back the place of the thread that has forked the command, which is
// gone. Had it no place of its own, it would be in the way of a command that
// makes all of its processes at once.
func (c *Cmd) boundExactly() error {
	b := c.Plan.Bounds.Processes
	if b.By != plan.ByCgroup {
		return nil
	}
	err := c.group.LimitPids(c.pids)
	var now uint64
	if err == nil {
		now, err = c.group.Pids()
	}
	if err != nil {
		return &plan.Error{Op: "cannot limit the processes of the box", Origin: b.Origin, Err: err, Hint: "see `wall doctor`"}
	}
	c.early = now > c.pids
	return nil
}

// threads gives the number of threads of a process: every one is a directory
// (proc_task_getattr in fs/proc/base.c).
func threads(pid int) (uint64, error) {
	name := "/proc/" + strconv.Itoa(pid) + "/task"
	var st unix.Stat_t
	if err := retry(func() error { return unix.Stat(name, &st) }); err != nil {
		return 0, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Nlink <= 2 {
		return 0, errors.New(name + " does not tell the number of threads")
	}
	return uint64(st.Nlink) - 2, nil
}

// limitProcesses sets RLIMIT_NPROC of pid 1, which its children inherit. It is only
// lowered: raising a hard limit needs a capability over the host.
func limitProcesses(pid int, n uint64) error {
	var old unix.Rlimit
	err := unix.Prlimit(pid, unix.RLIMIT_NPROC, nil, &old)
	if err == nil {
		n = min(n, old.Max)
		err = unix.Prlimit(pid, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: n, Max: n}, nil)
	}
	return os.NewSyscallError("prlimit", err)
}

// lastPID is the number given to the newest process or thread that this one can see;
// those of the box are among them. False when nobody tells.
func lastPID() (uint64, bool) {
	fd, err := unix.Open("/proc/loadavg", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	text, err := readAll(fd, 4096)
	if err != nil || unix.Fstatfs(fd, &st) != nil || int64(st.Type) != unix.PROC_SUPER_MAGIC {
		return 0, false // some containers show a made-up file
	}
	f := strings.Fields(string(text))
	if len(f) != 5 {
		return 0, false
	}
	n, err := strconv.ParseUint(f[4], 10, 64)
	return n, err == nil
}

// startedWithin says why the box did not start when that was for its own limits.
func (c *Cmd) startedWithin(err error) error {
	if c.group == nil {
		return err
	}
	r := c.group.Look()
	for _, x := range []struct {
		n    uint64
		name string
	}{{r.Memory, plan.BoundMemory}, {r.Pids, plan.BoundProcesses}} {
		if x.n > 0 {
			return &plan.Error{
				Op: "cannot start the box within its limit of " + x.name, Origin: c.Plan.Bounds.ByName(x.name).Origin,
				Err: errors.New("building it takes more"), Hint: "raise it with --limit " + x.name + "=...",
			}
		}
	}
	return err
}

// keep starts what keeps the bounds of a command that runs.
func (c *Cmd) keep() {
	if c.Plan.Bounds.Time.Value > 0 {
		c.keepers.Go(c.keepTime)
	}
	w := &watch{c: c, procfs: -1, forks: c.forks}
	if w.wanted() {
		w.open()
		c.keepers.Go(w.run)
	}
}

// keepTime ends a command that takes too long: SIGTERM to its process group,
// and after the grace the box is killed. The clock is the monotonic one; when this
// process was stopped for longer, the end comes when it is continued.
func (c *Cmd) keepTime() {
	t := time.NewTimer(time.Duration(c.Plan.Bounds.Time.Value))
	defer t.Stop()
	select {
	case <-c.done:
		return
	case <-t.C:
	}
	if !c.exceeded(plan.BoundTime) {
		return
	}
	if grace := time.Duration(c.Plan.Bounds.Grace.Value); grace > 0 {
		_ = c.signalGroup(syscall.SIGTERM) // it may have ended by now
		t.Reset(grace)
		select {
		case <-c.done:
			return
		case <-t.C:
		}
	}
	_ = c.Kill()
}

// exceeded notes which bound ends the run; false when it has ended already.
func (c *Cmd) exceeded(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.waited {
		return false
	}
	switch {
	case name == plan.BoundTime:
		c.result.TimedOut = true
	case c.result.Limit == "":
		c.result.Limit = name
	}
	return true
}

// Wrote counts n bytes of output of the command, and ends the box when they are more
// than the limit of the whole output allows. It returns how many of them are within
// the limit: the rest is not to be passed on.
func (c *Cmd) Wrote(n int) int {
	limit := c.Plan.Bounds.Total.Value
	if limit == 0 || n <= 0 {
		return n
	}
	now := c.written.Add(uint64(n))
	if now <= limit {
		return n
	}
	before := now - uint64(n)
	if before <= limit && c.exceeded(plan.BoundTotal) {
		_ = c.Kill() // it may have ended by now
	}
	return int(limit - min(limit, before))
}

// current is the result as it is known now: output may be read, and be too much, after
// the command has ended. mu is held.
func (c *Cmd) current() Result {
	r := c.result
	if limit := c.Plan.Bounds.Total.Value; limit > 0 && c.written.Load() > limit && r.Limit == "" {
		r.Limit = plan.BoundTotal
	}
	return r
}

// signalGroup sends sig to the process group of the command, and wakes it up in
// case it is stopped: a stopped process handles no signal.
func (c *Cmd) signalGroup(sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waited {
		return os.ErrProcessDone
	}
	if c.control >= 0 {
		return doneError(writeAll(c.control, []byte{groupFlag | byte(sig), groupFlag | byte(syscall.SIGCONT)}))
	}
	if !c.grouped {
		return errors.Join(unix.PidfdSendSignal(c.pidfd, sig, nil, 0), unix.PidfdSendSignal(c.pidfd, unix.SIGCONT, nil, 0))
	}
	// The leader has not been waited for, so that the number is still the group's.
	return errors.Join(unix.Kill(-c.pid, sig), unix.Kill(-c.pid, unix.SIGCONT))
}

// lastLook asks the cgroup what happened, when everything inside has ended.
func (c *Cmd) lastLook() {
	if c.group == nil {
		return
	}
	r, u := c.group.Look(), c.group.Usage()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.result.Limit != "":
	case r.Memory > 0:
		c.result.Limit = plan.BoundMemory
	case r.Pids > 0:
		c.result.Limit = plan.BoundProcesses
	}
	c.result.PeakMemory = int64(u.PeakMemory)
	if u.User+u.Sys > 0 {
		c.result.UserTime, c.result.SysTime = u.User, u.Sys
	}
}

// suspected notes that the limit of processes may have been in the way of a
// command that has failed.
func (c *Cmd) suspected(doubt bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.result.Doubt = doubt && c.result.Status() != 0 && !c.result.Killed && c.result.Limit == "" && !c.result.TimedOut
}

// A watch looks at a running box every now and then, from outside, and ends it when it
// is beyond a bound.
type watch struct {
	c       *Cmd
	procfs  int    // of the box; -1 when it is not needed or cannot be opened
	dev     uint64 // of the scratch directory
	free    uint64 // bytes of its file system when the command started
	walked  uint64 // free bytes at the last walk
	next    time.Time
	tmpfses []tmpfs
	buf     []byte

	memfds   uint64    // device of what memfd_create(2) makes
	ipc      []ipcFile // of the box
	held     uint64    // bytes in those at the last look
	nextHeld time.Time

	// What bounds the number of processes that there can have been between two looks.
	tasks uint64 // at the last look
	forks uint64 // lastPID before it
	doubt bool   // there may have been more than the limit
}

// A tmpfs is memory that the box can fill with files.
type tmpfs struct {
	fd      int
	scratch bool // it stands for the scratch directory
}

func (w *watch) wanted() bool {
	b := w.c.Plan.Bounds
	return w.c.group != nil || b.Memory.By == plan.ByWatch || w.counts() || b.Scratch.Value > 0
}

// counts reports whether the processes are to be counted. Where RLIMIT_NPROC
// holds the number, somebody has to see that it was reached.
func (w *watch) counts() bool {
	by := w.c.Plan.Bounds.Processes.By
	return by == plan.ByWatch || by == plan.ByRlimit
}

// countTasks counts the processes and threads in the box of this process, without its own.
func countTasks() uint64 {
	w := &watch{procfs: openOn("/proc", unix.PROC_SUPER_MAGIC), buf: make([]byte, 32<<10)}
	if w.procfs < 0 {
		return 0
	}
	defer unix.Close(w.procfs)
	tasks, _ := w.processes()
	return tasks
}

// open opens what is looked at. It is in the box, whose owner this process is, so
// that no protection of pid 1 or of the command is in the way. What cannot be
// opened is a box that has ended.
func (w *watch) open() {
	b := w.c.Plan.Bounds
	base := "/proc/" + strconv.Itoa(w.c.pid) + "/root"
	if b.Memory.By == plan.ByWatch || w.counts() || b.Scratch.Value > 0 {
		w.procfs = openOn(base+"/proc", unix.PROC_SUPER_MAGIC)
	}
	if b.Memory.By != plan.ByWatch && b.Scratch.Value == 0 {
		return
	}
	if b.Memory.By == plan.ByWatch {
		w.openHeld()
	}
	for _, m := range w.c.Plan.Mounts {
		if m.Op != plan.OpTmpfs {
			continue
		}
		if fd := openOn(base+m.Target, unix.TMPFS_MAGIC); fd >= 0 {
			w.tmpfses = append(w.tmpfses, tmpfs{fd, standsForScratch(m.Target)})
		}
	}
	if w.c.scratch != nil {
		var st unix.Stat_t
		if unix.Fstat(w.c.scratch.FD(), &st) == nil {
			w.dev = uint64(st.Dev)
		}
		w.free = w.freeBytes()
		w.walked = w.free
	}
}

// openOn opens the directory name if it is on a file system of that kind; -1 if not.
func openOn(name string, magic int64) int {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1
	}
	var st unix.Statfs_t
	if unix.Fstatfs(fd, &st) != nil || int64(st.Type) != magic {
		unix.Close(fd)
		return -1
	}
	return fd
}

// standsForScratch reports whether a tmpfs at target holds what would be in the
// scratch directory with another setting of the profile.
func standsForScratch(target string) bool {
	switch target {
	case "/dev/shm", "/run", "/dev", "/":
		return false
	}
	return true
}

func (w *watch) close() {
	for _, t := range w.tmpfses {
		unix.Close(t.fd)
	}
	for _, f := range w.ipc {
		unix.Close(f.fd)
	}
	if w.procfs >= 0 {
		unix.Close(w.procfs)
	}
}

func (w *watch) run() {
	defer w.close()
	w.buf = make([]byte, 32<<10)
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-w.c.done:
			if w.c.Plan.Bounds.Processes.By == plan.ByRlimit {
				forks, known := lastPID()
				w.suspect(forks, known)
				w.c.suspected(w.doubt)
			}
			return
		case <-t.C:
		}
		begin := time.Now()
		if name := w.look(begin); name != "" {
			if w.c.exceeded(name) {
				_ = w.c.Kill()
			}
			return
		}
		t.Reset(min(max(lookPause, pauseFactor*time.Since(begin)), longestPause))
	}
}

// look gives the bound that the box is beyond, "" for none.
func (w *watch) look(now time.Time) string {
	b := w.c.Plan.Bounds
	if w.c.group != nil {
		r := w.c.group.Look()
		switch {
		case r.Memory > 0:
			return plan.BoundMemory
		case r.Pids > 0 || w.c.early:
			return plan.BoundProcesses
		}
	}
	if w.procfs >= 0 && (b.Memory.By == plan.ByWatch || w.counts()) {
		before, known := uint64(0), false
		if b.Processes.By == plan.ByRlimit {
			before, known = lastPID()
		}
		tasks, all := w.processes()
		if b.Processes.By == plan.ByRlimit {
			after, still := lastPID()
			w.suspect(after, known && still)
			w.tasks, w.forks = tasks, before
		}
		if w.counts() && tasks > b.Processes.Value {
			return plan.BoundProcesses
		}
		if b.Memory.By == plan.ByWatch && w.memoryBeyond(now, all, b.Memory.Value) {
			return plan.BoundMemory
		}
	}
	if b.Scratch.Value > 0 && w.scratchBeyond(now, b.Scratch.Value) {
		return plan.BoundScratch
	}
	return ""
}

// suspect notes when there may have been more processes than the limit at a time since
// the last look: no more than there were, and as many as have been made. now is
// lastPID, which counts those of others on the host, too.
func (w *watch) suspect(now uint64, known bool) {
	// The numbers begin anew at some point.
	if known && w.c.forksKnown && (now < w.forks || w.tasks+now-w.forks > w.c.Plan.Bounds.Processes.Value) {
		w.doubt = true
	}
}

// processes gives the processes of the box and counts its tasks, without pid 1's.
func (w *watch) processes() (tasks uint64, all []process) {
	for _, pid := range w.pids() {
		text, ok := w.readAt(pid + "/stat")
		if !ok || pid == "1" {
			continue
		}
		p := parseStat(text)
		tasks += p.threads
		p.at = pid
		if p.state == 'Z' && p.threads > 1 {
			// The first thread has ended, and for it /proc shows nothing of what
			// the others have.
			if p, ok = w.liveTask(pid); !ok {
				continue
			}
		}
		p.pid = pid
		all = append(all, p)
	}
	return tasks, all
}

// pids gives the names of all processes of the box.
func (w *watch) pids() []string {
	return slices.DeleteFunc(w.entries(w.procfs), func(s string) bool { return s[0] < '0' || s[0] > '9' })
}

// taskNames gives the paths of all threads of a process.
func (w *watch) taskNames(pid string) []string {
	dir, err := unix.Openat(w.procfs, pid+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(dir)
	names := w.entries(dir)
	for i, name := range names {
		names[i] = pid + "/task/" + name
	}
	return names
}

// liveTask gives what one thread that has not ended tells of its process.
func (w *watch) liveTask(pid string) (process, bool) {
	for _, name := range w.taskNames(pid) {
		text, ok := w.readAt(name + "/stat")
		if p := parseStat(text); ok && p.state != 'Z' && p.state != 'X' {
			p.at = name
			return p, true
		}
	}
	return process{}, false
}

// A process is what /proc tells of one (proc_pid_stat(5)).
type process struct {
	pid string
	at  string // where a thread of it that lives is shown

	state                byte
	parent               string
	flags, threads       uint64
	start                uint64 // in ticks since the host's start
	address, stack, size uint64 // where code and stack begin, and the bytes of all addresses
	pages                uint64 // resident
}

// parseStat reads the text of /proc/PID/stat: fields from the third on, of which
// the one before is a name with anything in it between parentheses.
func parseStat(text []byte) (p process) {
	i := bytes.LastIndexByte(text, ')')
	if i < 0 {
		return p
	}
	f := strings.Fields(string(text[i+1:]))
	if len(f) < 26 {
		return p
	}
	p.state, p.parent = f[0][0], f[1]
	for _, x := range []struct {
		to    *uint64
		field int
	}{{&p.flags, 9}, {&p.threads, 20}, {&p.start, 22}, {&p.size, 23}, {&p.pages, 24}, {&p.address, 26}, {&p.stack, 28}} {
		*x.to, _ = strconv.ParseUint(f[x.field-3], 10, 64)
	}
	return p
}

// inMemory gives the bytes in all memory file systems of the box, and in those
// that stand for the scratch directory.
func (w *watch) inMemory() (all, scratch uint64) {
	for _, t := range w.tmpfses {
		var st unix.Statfs_t
		if unix.Fstatfs(t.fd, &st) != nil {
			continue
		}
		n := (st.Blocks - st.Bfree) * uint64(st.Bsize)
		all += n
		if t.scratch {
			scratch += n
		}
	}
	return all, scratch
}

func (w *watch) freeBytes() uint64 {
	var st unix.Statfs_t
	if unix.Fstatfs(w.c.scratch.FD(), &st) != nil {
		return 0
	}
	return st.Bfree * uint64(st.Bsize)
}

// scratchBeyond walks the scratch directory when it is time, or when so much of
// the file system's space has gone since the last walk that it may have become
// too large. Somebody else may have used the space: the walk tells.
func (w *watch) scratchBeyond(now time.Time, limit uint64) bool {
	_, sum := w.inMemory()
	if sum > limit {
		return true
	}
	if w.c.scratch == nil {
		return false
	}
	free := w.freeBytes()
	gone := w.walked > free && w.walked-free > limit/8
	if now.Before(w.next) && !gone {
		return false
	}
	w.walked = free
	disk, err := w.c.scratch.Usage(limit)
	sum += disk
	if sum <= limit && w.free > free && w.free-free > limit-sum {
		sum += w.unlinked()
	}
	// Twenty times what it took, like every look, but a walk can take seconds.
	w.next = time.Now().Add(max(longestPause, pauseFactor*time.Since(now)))
	return sum > limit || errors.Is(err, unix.ENAMETOOLONG) // nested so deeply that nobody can look
}

// unlinked counts the files of the scratch directory's file system that
// processes of the box have open and that have no name any more.
func (w *watch) unlinked() uint64 { return w.openFiles(w.dev) }

// openFiles counts the bytes of files on a file system that processes of the box have
// open and that have no name. Every thread may have descriptors of its own.
func (w *watch) openFiles(dev uint64) uint64 {
	if w.procfs < 0 {
		return 0
	}
	seen := map[uint64]bool{}
	var sum uint64
	for _, pid := range w.pids() {
		for _, task := range w.taskNames(pid) {
			dir, err := unix.Openat(w.procfs, task+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
			if err != nil {
				continue
			}
			for _, name := range w.entries(dir) {
				var st unix.Stat_t
				if unix.Fstatat(dir, name, &st, 0) != nil || st.Nlink != 0 || uint64(st.Dev) != dev || seen[st.Ino] {
					continue
				}
				seen[st.Ino] = true
				sum += uint64(st.Blocks) * 512
			}
			unix.Close(dir)
		}
	}
	return sum
}

// entries lists a directory without "." and "..".
func (w *watch) entries(fd int) []string {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return nil
	}
	var names []string
	for {
		n, err := unix.ReadDirent(fd, w.buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return names
		}
		_, _, names = unix.ParseDirent(w.buf[:n], -1, names)
	}
}

func (w *watch) readAt(name string) ([]byte, bool) {
	fd, err := unix.Openat(w.procfs, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	defer unix.Close(fd)
	text, err := readAll(fd, 64<<10)
	return text, err == nil
}
