package integration_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A mount is one line of a mount table, as the probe tells it.
type mount struct {
	Target  string
	Type    string
	Options []string // those of ro rw nosuid nodev noexec
	Super   string   // ro or rw
	Shared  bool     // any propagation
}

// TestPosture compares everything about a process in a box with one expected
// value, computed from the plan and from this process, which is what the
// command would be without a box. Promises 7, 8, 10, 12, 13, 14, 15, 16, 23 (in
// part: no core dumps).
func TestPosture(t *testing.T) {
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		write(t, b.ws+"/.git/HEAD", "ref: refs/heads/main\n")
		write(t, b.ws+"/.git/config", "[core]\n")
		write(t, b.ws+"/.env", "x\n")
		b.files = []*os.File{os.Stdout} // one that must not arrive
		b.env = append(os.Environ(), "SECRET_TOKEN=x", "SSH_AUTH_SOCK=/tmp/agent", "LD_LIBRARY_PATH=/tmp", "PWD="+b.ws)

		var p plan.Plan
		cmd := b.cmd(probeBin, "posture")
		cmd.Args = append([]string{wallBin, "plan", "--json"}, cmd.Args[2:]...)
		if err := json.Unmarshal([]byte(finish(t, cmd).ok(t)), &p); err != nil {
			t.Fatal(err)
		}
		before := hostMounts(t)
		var got map[string]any
		if err := json.Unmarshal([]byte(b.run(probeBin, "posture").ok(t)), &got); err != nil {
			t.Fatal(err)
		}
		if own, ok := got["Namespaces"].(map[string]any); ok {
			for kind, id := range own {
				if link, err := os.Readlink("/proc/self/ns/" + kind); err == nil && link == id {
					own[kind] = "the host's"
				} else {
					own[kind] = "its own"
				}
			}
		}
		sortMounts(got["Mounts"])

		var want map[string]any
		data, err := json.Marshal(expectedPosture(t, b, p, before))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		sortMounts(want["Mounts"])
		diff(t, lines(t, got), lines(t, want))
	})
}

func lines(t *testing.T, v any) []string {
	t.Helper()
	m := v.(map[string]any)
	var all []string
	for key, value := range m {
		if list, ok := value.([]any); ok && key == "Mounts" {
			for _, e := range list {
				data, _ := json.Marshal(e)
				all = append(all, key+": "+string(data))
			}
			continue
		}
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, key+": "+string(data))
	}
	sort.Strings(all)
	return all
}

// diff reports what only one of two sorted lists has.
func diff(t *testing.T, got, want []string) {
	t.Helper()
	count := map[string]int{}
	for _, l := range want {
		count[l]++
	}
	for _, l := range got {
		if count[l]--; count[l] < 0 {
			t.Errorf("got  %s", l)
		}
	}
	for _, l := range want {
		if count[l] > 0 {
			count[l]--
			t.Errorf("want %s", l)
		}
	}
}

func sortMounts(v any) {
	list, _ := v.([]any)
	slices.SortFunc(list, func(a, b any) int {
		return strings.Compare(fmt.Sprint(a.(map[string]any)["Target"], a), fmt.Sprint(b.(map[string]any)["Target"], b))
	})
}

func expectedPosture(t *testing.T, b *box, p plan.Plan, host []mount) map[string]any {
	t.Helper()
	uid, gid := os.Getuid(), os.Getgid()
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	inside := []int{}
	for _, g := range groups { // the others have no name in the user namespace
		if g != gid {
			g = 65534
		}
		inside = append(inside, g)
	}
	sort.Ints(inside)
	hostname, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	mask := unix.Umask(0)
	unix.Umask(mask)
	prio, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	status := procStatus(t)
	var env []string
	for _, v := range p.Env {
		env = append(env, v.Name)
	}
	sort.Strings(env)
	for _, name := range []string{"SECRET_TOKEN", "SSH_AUTH_SOCK", "LD_LIBRARY_PATH"} {
		if slices.Contains(env, name) {
			t.Errorf("the plan lets %s cross", name)
		}
	}
	addrs := []string{"127.0.0.1/8"}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		addrs = append(addrs, "::1/128")
	}
	syscallErr := "EACCES" // of /proc/1/syscall, mode 0400: its owner gets as far as the ptrace check
	if uid == 0 {
		syscallErr = "EPERM"
	}
	const none = "0000000000000000"
	spaces := map[string]string{"time": "the host's"}
	for _, kind := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		spaces[kind] = "its own"
	}
	one := func(n int) []int { return []int{n, n, n, n} }
	return map[string]any{
		"UID": one(uid), "GID": one(gid), "Groups": inside,
		"UIDMap": fmt.Sprintf("%d %d 1", uid, uid), "GIDMap": fmt.Sprintf("%d %d 1", gid, gid), "Setgroups": "deny",
		"Threads": []map[string]string{{"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2"}},
		// The bounding set, no_new_privs and the filter are the command's; pid 1
		// executes nothing any more.
		"Pid1":       []map[string]string{{"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none}},
		"Securebits": 0, "Dumpable": 1, "Deathsig": 0, "Personality": 0,
		"Namespaces": spaces,
		"Mounts":     expectedMounts(t, p, host),
		"FDs":        []map[string]any{{"N": 0, "Kind": "char /dev/null", "Flags": "r"}, {"N": 1, "Kind": "pipe", "Flags": "w"}, {"N": 2, "Kind": "pipe", "Flags": "w"}},
		"EnvNames":   env,
		"Limits":     ownLimits(t),
		"Umask":      fmt.Sprintf("%04o", mask), "Nice": 20 - prio, "Scheduler": 0, "Affinity": status["Cpus_allowed"],
		"OOMScoreAdj": strings.TrimSpace(read(t, "/proc/self/oom_score_adj")),
		"CoreFilter":  strings.TrimSpace(read(t, "/proc/self/coredump_filter")),
		"SigBlocked":  none,
		"Cwd":         b.ws, "PWD": b.ws, "Hostname": hostname,
		"IsPid1Child": true, "IsLeader": true, "HasTTY": false,
		"Processes":  []string{"1 wall-init", "probe"},
		"Interfaces": []map[string]any{{"Name": "lo", "Up": true, "Addrs": addrs}},
		"Routes":     0,
		"Proc1": map[string]string{
			"environ": "EACCES", "mem": "EACCES", "maps": "EACCES", "auxv": "EACCES", "stack": "EACCES", "syscall": syscallErr, "io": "EACCES",
			"root": "EACCES", "cwd": "EACCES", "exe": "EACCES", "cmdline": "wall-init",
		},
		"Dev":      []string{"fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"},
		"Keyrings": "",
	}
}

func procStatus(t *testing.T) map[string]string {
	t.Helper()
	m := map[string]string{}
	for line := range strings.Lines(read(t, "/proc/self/status")) {
		name, value, _ := strings.Cut(line, ":")
		m[name] = strings.TrimSpace(value)
	}
	return m
}

// ownLimits gives the limits of this process, with core dumps off and, as the
// probe tells it, the hard limit of open files for both.
func ownLimits(t *testing.T) map[string][2]uint64 {
	t.Helper()
	all := map[string][2]uint64{}
	for name, n := range map[string]int{
		"as": unix.RLIMIT_AS, "core": unix.RLIMIT_CORE, "cpu": unix.RLIMIT_CPU, "data": unix.RLIMIT_DATA, "fsize": unix.RLIMIT_FSIZE,
		"locks": unix.RLIMIT_LOCKS, "memlock": unix.RLIMIT_MEMLOCK, "msgqueue": unix.RLIMIT_MSGQUEUE, "nice": unix.RLIMIT_NICE,
		"nofile": unix.RLIMIT_NOFILE, "nproc": unix.RLIMIT_NPROC, "rss": unix.RLIMIT_RSS, "rtprio": unix.RLIMIT_RTPRIO,
		"rttime": unix.RLIMIT_RTTIME, "sigpending": unix.RLIMIT_SIGPENDING, "stack": unix.RLIMIT_STACK,
	} {
		var l unix.Rlimit
		if err := unix.Prlimit(0, n, nil, &l); err != nil {
			t.Fatal(err)
		}
		switch name {
		case "nofile":
			l.Cur = l.Max
		case "core":
			l.Cur, l.Max = 0, 0
		}
		all[name] = [2]uint64{l.Cur, l.Max}
	}
	return all
}

// hostMounts reads this process's mount table.
func hostMounts(t *testing.T) []mount {
	t.Helper()
	out, err := exec.Command(probeBin, "posture").Output()
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Mounts []mount }
	if err := json.Unmarshal(out, &p); err != nil {
		t.Fatal(err)
	}
	// The mounts must be told in the order they were made.
	s := bufio.NewScanner(strings.NewReader(read(t, "/proc/self/mountinfo")))
	n := 0
	for s.Scan() {
		n++
	}
	if n != len(p.Mounts) {
		t.Fatalf("%d mounts, the probe tells %d", n, len(p.Mounts))
	}
	return p.Mounts
}

// on gives the mount that holds path: of the longest targets the last.
func on(table []mount, path string) mount {
	best := -1
	for i, m := range table {
		if beneath(path, m.Target) && (best < 0 || len(m.Target) >= len(table[best].Target)) {
			best = i
		}
	}
	if best < 0 {
		return mount{}
	}
	return table[best]
}

func beneath(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// expectedMounts says what mount table a plan makes on a host.
func expectedMounts(t *testing.T, p plan.Plan, host []mount) []mount {
	t.Helper()
	var table []mount
	// clone adds a mount of what lies at source on another one.
	clone := func(m mount, target, access string, flags ...string) {
		opts := []string{access}
		for _, f := range []string{"nosuid", "nodev", "noexec"} {
			if slices.Contains(flags, f) || slices.Contains(m.Options, f) && f == "noexec" {
				opts = append(opts, f)
			}
		}
		table = append(table, mount{Target: target, Type: m.Type, Options: opts, Super: m.Super})
	}
	fresh := func(target, kind string, opts ...string) {
		table = append(table, mount{Target: target, Type: kind, Options: opts, Super: "rw"})
	}
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return !os.IsNotExist(err)
	}
	for _, m := range p.Mounts {
		switch m.Op {
		case plan.OpHostRoot:
			for _, h := range host {
				clone(h, h.Target, "ro", "nosuid", "nodev")
			}
		case plan.OpEmptyRoot:
			fresh("/", "tmpfs", "rw", "nosuid", "nodev")
		case plan.OpBind:
			if m.Optional && !exists(m.Source) {
				continue
			}
			access := "ro"
			if m.Access == plan.AccessWrite {
				access = "rw"
			}
			clone(on(host, m.Source), m.Target, access, "nosuid", "nodev")
			for _, h := range host {
				if h.Target != m.Source && beneath(h.Target, m.Source) && m.Source != "/" {
					clone(h, m.Target+strings.TrimPrefix(h.Target, m.Source), access, "nosuid", "nodev")
				}
			}
		case plan.OpScratch:
			clone(on(host, p.Scratch.Root), m.Target, "rw", "nosuid", "nodev")
		case plan.OpDevice:
			clone(on(host, filepath.Dir(m.Source)), m.Target, "rw", "nosuid", "noexec")
		case plan.OpTmpfs:
			fresh(m.Target, "tmpfs", "rw", "nosuid", "nodev")
		case plan.OpProc:
			fresh(m.Target, "proc", "rw", "nosuid", "nodev", "noexec")
		case plan.OpSysfs:
			fresh(m.Target, "sysfs", "ro", "nosuid", "nodev", "noexec")
		case plan.OpDevpts:
			fresh(m.Target, "devpts", "rw", "nosuid", "noexec")
		case plan.OpMqueue:
			fresh(m.Target, "mqueue", "rw", "nosuid", "nodev", "noexec")
		case plan.OpCover, plan.OpText:
			if !m.Optional || exists(m.Target) {
				fresh(m.Target, "tmpfs", "ro", "nosuid", "nodev", "noexec")
			}
		case plan.OpPin, plan.OpProtect:
			if m.Optional && !exists(m.Target) {
				continue
			}
			access := "ro"
			if m.Op == plan.OpPin {
				access = "rw"
			}
			clone(on(table, m.Target), m.Target, access, "nosuid", "nodev")
		case plan.OpSeal:
			for i := len(table) - 1; i >= 0; i-- {
				if table[i].Target == m.Target {
					table[i].Options[0] = "ro"
					break
				}
			}
		}
	}
	return table
}
