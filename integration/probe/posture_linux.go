package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A posture is everything about this process that a box decides. The test
// compares it whole with one expected value.
type posture struct {
	UID, GID    []int // real, effective, saved, file system
	Groups      []int
	UIDMap      string
	GIDMap      string
	Setgroups   string
	Threads     []thread // the distinct states of all threads of this process
	Pid1        []caps   // the distinct capabilities of all threads of pid 1
	Securebits  int
	Dumpable    int
	Deathsig    int
	Namespaces  map[string]string
	Mounts      []mount
	FDs         []fd
	EnvNames    []string
	Limits      map[string][2]uint64
	Umask       string
	Nice        int
	Scheduler   int
	Affinity    string
	OOMScoreAdj string
	CoreFilter  string
	Personality uint
	SigBlocked  string
	Cwd         string
	PWD         string
	Hostname    string
	IsPid1Child bool
	IsLeader    bool // of its session and its process group
	HasTTY      bool // a controlling terminal
	Processes   []string
	Interfaces  []iface
	Routes      int // lines of /proc/net/route and ipv6_route that leave the loopback
	Proc1       map[string]string
	Dev         []string
	Keyrings    string
}

type thread struct {
	CapInh, CapPrm, CapEff, CapBnd, CapAmb string
	NoNewPrivs, Seccomp                    string
}

type caps struct{ CapInh, CapPrm, CapEff, CapAmb string }

type mount struct {
	Target  string
	Type    string
	Options []string // those of ro rw nosuid nodev noexec
	Super   string   // ro or rw
	Shared  bool     // any propagation at all
}

type fd struct {
	N     int
	Kind  string
	Flags string
}

type iface struct {
	Name  string
	Up    bool
	Addrs []string
}

var limitNumbers = map[string]int{
	"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA,
	"fsize": unix.RLIMIT_FSIZE, "locks": unix.RLIMIT_LOCKS, "memlock": unix.RLIMIT_MEMLOCK,
	"msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE, "nofile": unix.RLIMIT_NOFILE,
	"nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "rtprio": unix.RLIMIT_RTPRIO,
	"rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
}

func readPosture() *posture {
	open := fds() // first: reading anything may give the Go runtime descriptors of its own
	status := statusOf("self")
	p := &posture{
		UID:         ints(status["Uid"]),
		GID:         ints(status["Gid"]),
		Groups:      ints(status["Groups"]),
		UIDMap:      squeeze(slurp("/proc/self/uid_map")),
		GIDMap:      squeeze(slurp("/proc/self/gid_map")),
		Setgroups:   squeeze(slurp("/proc/self/setgroups")),
		Threads:     threadsOf("self"),
		Pid1:        capsOf("1"),
		Namespaces:  map[string]string{},
		Mounts:      mounts(),
		FDs:         open,
		EnvNames:    envNames(),
		Limits:      map[string][2]uint64{},
		OOMScoreAdj: squeeze(slurp("/proc/self/oom_score_adj")),
		CoreFilter:  squeeze(slurp("/proc/self/coredump_filter")),
		SigBlocked:  status["SigBlk"],
		PWD:         os.Getenv("PWD"),
		IsPid1Child: os.Getppid() == 1,
		Proc1:       map[string]string{},
		Affinity:    status["Cpus_allowed"],
	}
	sort.Ints(p.Groups)
	p.Securebits, _ = unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	p.Dumpable, _ = unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	p.Scheduler, _ = schedGetscheduler()
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
		p.Namespaces[ns], _ = os.Readlink("/proc/self/ns/" + ns)
	}
	for name := range limitNumbers {
		p.Limits[name] = limitOf(name)
	}
	mask := unix.Umask(0)
	unix.Umask(mask)
	p.Umask = fmt.Sprintf("%04o", mask)
	prio, _ := unix.Getpriority(unix.PRIO_PROCESS, 0)
	p.Nice = 20 - prio
	pers, _, _ := unix.RawSyscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0)
	p.Personality = uint(pers)
	p.Cwd, _ = unix.Getwd()
	p.Hostname, _ = os.Hostname()
	sid, _ := unix.Getsid(0)
	p.IsLeader = sid == os.Getpid() && unix.Getpgrp() == os.Getpid()
	if f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		p.HasTTY = true
		f.Close()
	}
	for _, dir := range list("/proc") {
		if _, err := strconv.Atoi(dir); err == nil {
			name := strings.TrimSpace(slurp("/proc/" + dir + "/comm"))
			if dir == "1" {
				name = "1 " + name
			}
			p.Processes = append(p.Processes, name)
		}
	}
	sort.Strings(p.Processes)
	ifs, err := net.Interfaces()
	if err != nil {
		p.Interfaces = append(p.Interfaces, iface{Name: "error " + err.Error()})
	}
	for _, i := range ifs {
		one := iface{Name: i.Name, Up: i.Flags&net.FlagUp != 0}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			one.Addrs = append(one.Addrs, a.String())
		}
		sort.Strings(one.Addrs)
		p.Interfaces = append(p.Interfaces, one)
	}
	for _, line := range strings.Split(slurp("/proc/net/route"), "\n")[1:] {
		if f := strings.Fields(line); len(f) > 0 && f[0] != "lo" {
			p.Routes++
		}
	}
	for _, line := range strings.Split(slurp("/proc/net/ipv6_route"), "\n") {
		if f := strings.Fields(line); len(f) > 0 && f[len(f)-1] != "lo" {
			p.Routes++
		}
	}
	for _, name := range []string{"environ", "mem", "maps", "auxv", "stack", "syscall", "io"} {
		p.Proc1[name] = outcome("", openRead("/proc/1/"+name))
	}
	for _, name := range []string{"root", "cwd", "exe"} {
		_, err := os.Readlink("/proc/1/" + name)
		p.Proc1[name] = outcome("", err)
	}
	p.Proc1["cmdline"] = strings.TrimRight(slurp("/proc/1/cmdline"), "\x00")
	p.Dev = list("/dev")
	p.Keyrings = squeeze(slurp("/proc/keys"))
	return p
}

// limitOf gives the soft and hard value of a limit. The Go runtime of this probe
// has raised its soft limit of open files before main, so that one is reported
// as the hard value; a test with sh's ulimit looks at the real one.
func limitOf(name string) [2]uint64 {
	var l unix.Rlimit
	if err := unix.Prlimit(0, limitNumbers[name], nil, &l); err != nil {
		return [2]uint64{}
	}
	if name == "nofile" {
		l.Cur = l.Max
	}
	return [2]uint64{l.Cur, l.Max}
}

func schedGetscheduler() (int, error) {
	r, _, e := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	if e != 0 {
		return -1, e
	}
	return int(r), nil
}

func statusOf(pid string) map[string]string { return parseStatus(slurp("/proc/" + pid + "/status")) }

func parseStatus(text string) map[string]string {
	m := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			m[name] = strings.TrimSpace(value)
		}
	}
	return m
}

// threadsOf gives the distinct security states among the threads of a process.
func threadsOf(pid string) []thread {
	seen := map[thread]bool{}
	var out []thread
	for _, tid := range list("/proc/" + pid + "/task") {
		s := parseStatus(slurp("/proc/" + pid + "/task/" + tid + "/status"))
		t := thread{s["CapInh"], s["CapPrm"], s["CapEff"], s["CapBnd"], s["CapAmb"], s["NoNewPrivs"], s["Seccomp"]}
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	return out
}

func capsOf(pid string) []caps {
	seen := map[caps]bool{}
	var out []caps
	for _, t := range threadsOf(pid) {
		c := caps{t.CapInh, t.CapPrm, t.CapEff, t.CapAmb}
		if !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	return out
}

func mounts() []mount {
	var out []mount
	s := bufio.NewScanner(strings.NewReader(slurp("/proc/self/mountinfo")))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		out = append(out, parseMount(s.Text()))
	}
	return out
}

// parseMount reads one line of mountinfo, see proc_pid_mountinfo(5).
func parseMount(line string) mount {
	before, after, _ := strings.Cut(line, " - ")
	f, g := strings.Fields(before), strings.Fields(after)
	m := mount{Target: unescape(f[4]), Type: g[0], Shared: len(f) > 6}
	for _, o := range strings.Split(f[5], ",") {
		switch o {
		case "ro", "rw", "nosuid", "nodev", "noexec":
			m.Options = append(m.Options, o)
		}
	}
	m.Super, _, _ = strings.Cut(g[2], ",")
	return m
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// fds lists the descriptors open at start, with nothing left out: it uses bare
// system calls, so that the Go runtime has no epoll descriptor yet.
func fds() []fd {
	var out []fd
	dir, err := unix.Open("/proc/self/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return []fd{{-1, "unreadable", err.Error()}}
	}
	defer unix.Close(dir)
	var names []string
	for buf := make([]byte, 1<<16); ; {
		n, err := unix.ReadDirent(dir, buf)
		if err != nil || n <= 0 {
			break
		}
		_, _, names = unix.ParseDirent(buf[:n], -1, names)
	}
	for _, name := range names {
		n, err := strconv.Atoi(name)
		if err != nil || n == dir {
			continue
		}
		var link [4096]byte
		k, _ := unix.Readlink("/proc/self/fd/"+name, link[:])
		target := string(link[:max(k, 0)])
		kind := "other"
		var st unix.Stat_t
		if unix.Fstat(n, &st) == nil {
			switch st.Mode & unix.S_IFMT {
			case unix.S_IFREG:
				kind = "file"
			case unix.S_IFDIR:
				kind = "dir"
			case unix.S_IFCHR:
				kind = "char " + target
			case unix.S_IFIFO:
				kind = "pipe"
			case unix.S_IFSOCK:
				kind = "socket"
			case unix.S_IFBLK:
				kind = "block"
			}
		}
		flags, _ := unix.FcntlInt(uintptr(n), unix.F_GETFL, 0)
		mode := map[int]string{unix.O_RDONLY: "r", unix.O_WRONLY: "w", unix.O_RDWR: "rw"}[flags&unix.O_ACCMODE]
		if flags&unix.O_PATH != 0 {
			mode = "path"
		}
		if flags&unix.O_NONBLOCK != 0 {
			mode += " nonblock"
		}
		out = append(out, fd{n, kind, mode})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].N < out[j].N })
	return out
}

func envNames() []string {
	var names []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func slurp(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

func ints(s string) []int {
	out := []int{}
	for _, f := range strings.Fields(s) {
		n, err := strconv.Atoi(f)
		if err == nil {
			out = append(out, n)
		}
	}
	return out
}

func list(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
