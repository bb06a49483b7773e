package integration_test

import (
	"debug/elf"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFDInherited: descriptors that the launcher got by accident do not reach
// the command, not at any number. Promise 14.
func TestFDInherited(t *testing.T) {
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	pathFD, err := unix.Open("/etc", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	pathDir := os.NewFile(uintptr(pathFD), "path")
	defer pathDir.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	sock, peer := os.NewFile(uintptr(pair[0]), "sock"), os.NewFile(uintptr(pair[1]), "peer")
	defer sock.Close()
	defer peer.Close()
	secret := filepath.Join(tempDir(t), "secret")
	write(t, secret, "secret\n")
	file, err := os.OpenFile(secret, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	// ExtraFiles[i] becomes descriptor 3+i; nil is a closed one.
	files := make([]*os.File, 300)
	files[0], files[1], files[200-3], files[201-3], files[302-3] = sock, dir, dir, pathDir, file
	rows := []row{
		{"fd-send 3", "ok", "", "EBADF", ""},
		{"fd-openat 4 etc/passwd", "ok", "", "EBADF", ""},
		{"fd-openat 200 etc/passwd", "ok", "", "EBADF", ""},
		{"fd-openat 201 passwd", "ok", "", "EBADF", ""},
		{"reopen 302 rw", "ok", "", "ENOENT", ""},
		{"fd-chmod 302", "ok", "", "EBADF", ""},
	}
	for _, column := range []string{"bare", "gate", "agent"} {
		for _, r := range rows {
			b := newBox(t, column)
			b.bare, b.files = column == "bare", files
			// Not in a batch: its processes get no descriptors.
			got := strings.TrimSpace(b.run(append([]string{probeBin, "try"}, strings.Fields(r.op)...)...).ok(t))
			if !anyOf(got, r.want(column)) {
				t.Errorf("%s: %s: %s, want %s", column, r.op, got, r.want(column))
			}
		}
	}

	// On request one passes, and only that.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := newBox(t, "gate")
	b.files, b.flags = []*os.File{sock, w, dir}, []string{"--fd", "4"}
	out := b.sh("echo passed >&4; ls /proc/self/fd | tr '\\n' ' '").ok(t)
	w.Close()
	buf := make([]byte, 16)
	n, _ := r.Read(buf)
	if string(buf[:n]) != "passed\n" {
		t.Errorf("through --fd 4 came %q", buf[:n])
	}
	if out != "0 1 2 3 4 " { // 3 is ls's own
		t.Errorf("the command has the descriptors %q", out)
	}
}

// TestFDStdio: a file on descriptors 0-2 gives no more than the descriptor
// itself does, and one that leads further is refused. Promise 14.
func TestFDStdio(t *testing.T) {
	try := func(b *box, op string) string {
		t.Helper()
		return strings.TrimSpace(b.run(append([]string{probeBin, "try"}, strings.Fields(op)...)...).ok(t))
	}
	for _, r := range []row{
		{"reopen 0 r", "ok", "", "ok", ""},
		{"reopen 0 w", "ok", "", "EACCES", ""},
		{"reopen 0 rw", "ok", "", "EACCES", ""},
		{"reopen 0 t", "ok", "", "EACCES", ""},
		{"fd-link 0 $W/alias", "-", "-", "EXDEV|ENOENT|EPERM", ""},
	} {
		for _, column := range []string{"bare", "gate", "agent"} {
			file := filepath.Join(tempDir(t), "input")
			write(t, file, "input\n")
			b := newBox(t, column)
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			b.bare, b.stdin = column == "bare", f
			if got, want := try(b, strings.ReplaceAll(r.op, "$W", b.ws)), r.want(column); want != "-" && !anyOf(got, want) {
				t.Errorf("stdin is a file: %s: %s: %s, want %s", column, r.op, got, want)
			}
			if column != "bare" && read(t, file) != "input\n" {
				t.Errorf("%s changed the input", r.op)
			}
			f.Close()
		}
	}

	// Standard output is a log file that the box cannot see: it reopens for
	// writing, as /dev/stdout must, and for nothing else.
	for _, column := range []string{"bare", "gate", "agent"} {
		logFile := filepath.Join(tempDir(t), "log")
		f, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		b := newBox(t, column)
		b.bare = column == "bare"
		cmd := b.cmd("/bin/sh", "-c", `exec 9>&1; echo one; echo two >>/dev/stdout; "$1" try reopen 9 r >&2; "$1" try reopen 9 rw >&2`, "sh", probeBin)
		cmd.Stdout = f
		r := finish(t, cmd)
		r.ok(t)
		want := "EACCES\nEACCES\n"
		if b.bare {
			want = "ok\nok\n"
		}
		if r.err != want || read(t, logFile) != "one\ntwo\n" {
			t.Errorf("%s: log %q, reopening for reading: %q, want %q", column, read(t, logFile), r.err, want)
		}
		f.Close()
	}

	// What leads further is refused before anything runs.
	dir, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	fd, err := unix.Open("/etc/passwd", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	path := os.NewFile(uintptr(fd), "path")
	defer path.Close()
	for name, f := range map[string]*os.File{"a directory": dir, "a path descriptor": path} {
		b := newBox(t, "gate")
		b.stdin = f
		r := b.sh("touch ran")
		if _, err := os.Stat(b.ws + "/ran"); r.code != 125 || err == nil || !strings.Contains(r.err, "descriptor 0") {
			t.Errorf("%s on stdin: exit status %d, %q", name, r.code, r.err)
		}
	}

	// Closed ones become /dev/null, so that nothing else lands there.
	for _, redirect := range []string{"0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"} {
		b := newBox(t, "gate")
		cmd := b.cmd("/bin/sh", "-c", `for n in 0 1 2; do readlink /proc/self/fd/$n; done >links`)
		cmd.Args = append([]string{"/bin/sh", "-c", `exec "$@" ` + redirect, "sh"}, cmd.Args...)
		cmd.Path = "/bin/sh"
		finish(t, cmd).ok(t)
		links := strings.Fields(read(t, b.ws+"/links"))
		for _, n := range []string{"0", "1", "2"} {
			i := int(n[0] - '0')
			if i == 1 { // links itself
				continue
			}
			if strings.Contains(redirect, n+"<") || strings.Contains(redirect, n+">") {
				if links[i] != "/dev/null" {
					t.Errorf("%s: descriptor %s is %s", redirect, n, links[i])
				}
			}
		}
	}
}

// TestEnvSentinel: no value of the caller's environment is anywhere under
// /proc inside, nor in what the host shows of the box's pid 1. Promise 15.
func TestEnvSentinel(t *testing.T) {
	for _, column := range []string{"bare", "gate", "agent"} {
		t.Run(column, func(t *testing.T) {
			b := newBox(t, column)
			b.bare = column == "bare"
			words := []string{nonce(), nonce(), nonce()}
			b.env = append(os.Environ(), "WALL_SENTINEL="+words[0], "AWS_SECRET_ACCESS_KEY="+words[1], "GITHUB_TOKEN=x"+words[2])
			write(t, b.ws+"/words", strings.Join(words, "\n"))
			out := b.run(probeBin, "grep", b.ws+"/words", map[bool]string{true: "/proc/self/", false: "/proc"}[b.bare]).ok(t)
			lines := strings.Split(strings.TrimSpace(out), "\n")
			var n int
			if _, err := fmt.Sscanf(lines[len(lines)-1], "searched %d files", &n); err != nil || n < 20 {
				t.Errorf("the search ended with %q", lines[len(lines)-1])
			}
			if b.bare != (len(lines) > 1) {
				t.Errorf("found:\n%s", out)
			}
			if b.bare {
				return
			}
			cmd := b.cmd("/bin/sh", "-c", "echo up; read x", "sh")
			cmd.Env = b.env
			in, _ := cmd.StdinPipe()
			stdout, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_, _ = stdout.Read(make([]byte, 8))
			for _, pid := range childrenOf(cmd.Process.Pid) {
				for _, name := range []string{"environ", "cmdline"} {
					data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
					if name == "environ" && err == nil && len(data) > 0 {
						t.Errorf("pid 1 of the box has an environment of %d bytes", len(data))
					}
					if name == "cmdline" && string(data) != "wall-init\x00" {
						t.Errorf("pid 1 of the box has the argv %q", data)
					}
				}
			}
			in.Close()
			_ = cmd.Wait()
		})
	}
}

// TestSignalGroup: kill(0) reaches the members of the launcher's process group
// unless the command has its own; so does a change of priority. Promise 16.
func TestSignalGroup(t *testing.T) {
	for _, column := range []string{"bare", "gate", "agent"} {
		b := newBox(t, column)
		b.bare = column == "bare"
		// The sleeping shell is a bystander in the launcher's process group.
		cmd := b.cmd(probeBin, "try", "kill-group", fmt.Sprint(int(unix.SIGUSR1)))
		cmd.Args = append([]string{"/bin/sh", "-c", `sleep 600 & bystander=$!; trap "" USR1; "$@" >/dev/null || exit 9
			kill -0 $bystander && sleep 0.05 && [ "$(cut -d" " -f3 /proc/$bystander/stat)" = S ] && kill $bystander && exit 0; exit 8`, "sh"}, cmd.Args...)
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		want := 0
		if b.bare {
			want = 8
		}
		if r := finish(t, cmd); r.code != want {
			t.Errorf("%s: status %d, want %d (8: a signal of the command reached the bystander)\n%s", column, r.code, want, r.err)
		}
		cmd = b.cmd(probeBin, "try", "renice-group")
		cmd.Args = append([]string{"/bin/sh", "-c", `sleep 600 & bystander=$!; "$@" >/dev/null; cut -d" " -f19 /proc/$bystander/stat; kill $bystander`, "sh"}, cmd.Args...)
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if got := strings.TrimSpace(finish(t, cmd).ok(t)); (got == "19") != b.bare {
			t.Errorf("%s: the bystander's nice value is %s", column, got)
		}
	}
}

// TestSetUID: a set-user-id program gains nothing, neither the system's nor one
// in the workspace. Promise 12.
func TestSetUID(t *testing.T) {
	op := "suid-run /usr/bin/su -c true root"
	for _, column := range []string{"bare", "gate", "agent"} {
		b := newBox(t, column)
		b.bare = column == "bare"
		if os.Getuid() == 0 {
			// Root gains nothing by becoming root: the control is another user's program.
			suid := b.ws + "/suid"
			data, err := os.ReadFile(probeBin)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(suid, data, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(suid, 12345, 12345); err != nil {
				t.Fatal(err)
			}
			if err := unix.Chmod(suid, 0o4755); err != nil {
				t.Fatal(err)
			}
			op = "suid-run " + suid + " idle x"
		} else {
			need(t, "/usr/bin/su")
		}
		want := "EPERM"
		if b.bare {
			want = "ok"
		}
		if got := b.try(op); got != want {
			t.Errorf("%s: %s, want %s", column, got, want)
		}
	}
}

// TestTwoBoxes: two boxes of one user cannot reach each other. Promise 17.
func TestTwoBoxes(t *testing.T) {
	for _, profile := range []string{"gate", "agent"} {
		t.Run(profile, func(t *testing.T) {
			v := &victim{word: nonce()}
			v.abstract = v.word
			first := newBox(t, profile)
			first.env = append(os.Environ(), "X="+v.word)
			cmd := first.cmd(probeBin, "serve", v.word)
			in, _ := cmd.StdinPipe()
			out, _ := cmd.StdoutPipe()
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { in.Close(); _ = cmd.Wait() }()
			if _, err := fmt.Fscanln(out, new(string), &v.key, &v.tcp4); err != nil {
				t.Fatal(err)
			}
			pids := withArg(v.word)
			v.pid = pids[len(pids)-1]
			var ops []string
			var rows []row
			for _, r := range v.rows() {
				if strings.HasPrefix(r.op, "ask-udp") {
					continue // the probe serves none
				}
				rows = append(rows, r)
				ops = append(ops, r.op)
			}
			second := newBox(t, profile)
			for i, got := range second.batch(ops) {
				if want := rows[i].want(profile); !anyOf(got, want) {
					t.Errorf("%s: %s, want %s", ops[i], got, want)
				}
			}
		})
	}
}

// TestScratchHidden: the scratch directories, of this run and of others, are
// not reachable by their host names, wherever they lie. Promises 8, 17.
func TestScratchHidden(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	for _, profile := range []string{"gate", "agent"} {
		home, ws := makeHome(t)
		scratch := home + "/cache/scratch"
		root := fmt.Sprintf("%s/wall-%d", scratch, os.Getuid())
		other := root + "/wall-0123456789abcdef/home"
		plant := func() {
			write(t, other+"/secret", "secret\n")
			if err := os.Chmod(root, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		write(t, home+"/cache/x", "")
		plant()
		b := newBox(t, profile)
		b.ws, b.scratch = ws, scratch
		for _, op := range []string{"list " + root, "list " + other} {
			if got := b.control().try(op); !strings.HasPrefix(got, "ok ") {
				t.Errorf("control: %s: %s", op, got)
			}
			// The directory of another run may be collected by now: it had no owner.
			if got := b.try(op); !anyOf(got, "EACCES|ENOENT") {
				t.Errorf("%s: %s: %s", profile, op, got)
			}
			plant()
		}
	}
}

// TestPolicySources: neither files of the project nor variables that point into
// it weaken the box, and the launcher starts nothing from PATH. Promises 3, 5.
func TestPolicySources(t *testing.T) {
	v := newVictim(t)
	for _, profile := range []string{"gate", "agent"} {
		t.Run(profile, func(t *testing.T) {
			b := newBox(t, profile)
			evil := "version = 1\nextends = \"base\"\nenforce = \"off\"\n[filesystem]\nhome = \"read-only\"\n[network]\nmode = \"host\"\n"
			// A project layer that would widen is refused, and named.
			write(t, b.ws+"/.wall/"+profile+".toml", evil)
			if r := b.sh("touch ran"); r.code != 125 || !strings.Contains(r.err, ".wall/"+profile+".toml") {
				t.Errorf("with a project layer that widens: exit status %d, %q", r.code, r.err)
			}
			if _, err := os.Stat(b.ws + "/ran"); err == nil {
				t.Error("the command ran")
			}
			if err := os.RemoveAll(b.ws + "/.wall"); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{".config/wall/gate.toml", ".config/wall/agent.toml", "wall/gate.toml", "gate.toml", "gate", "agent.toml", "agent"} {
				write(t, b.ws+"/"+name, evil)
			}
			for _, dir := range []string{"tmp", "run", "cache", "bin"} {
				if err := os.Mkdir(b.ws+"/"+dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"bwrap", "newuidmap", "newgidmap", "git", "sh", "mount", "ip", "nft", "id", "getent", "wall", "socat", "true"} {
				write(t, b.ws+"/bin/"+name, "#!/bin/sh\ntouch "+b.ws+"/started\n")
				if err := os.Chmod(b.ws+"/bin/"+name, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			b.env = append(os.Environ(), "HOME="+b.ws, "XDG_CONFIG_HOME="+b.ws+"/.config", "XDG_RUNTIME_DIR="+b.ws+"/run",
				"XDG_CACHE_HOME="+b.ws+"/cache", "XDG_STATE_HOME="+b.ws+"/cache", "XDG_DATA_HOME="+b.ws+"/cache", "TMPDIR="+b.ws+"/tmp",
				"LD_PRELOAD="+b.ws+"/evil.so", "LD_LIBRARY_PATH="+b.ws+"/lib", "PATH="+b.ws+"/bin:"+os.Getenv("PATH"), "GOTRACEBACK=crash")
			write(t, b.ws+"/evil.so", "not a library")
			before := snapshot(t, b.ws)
			ops := []string{
				fmt.Sprintf("connect-tcp 127.0.0.1 %d", v.tcp4),
				"find " + v.word,
				"create " + accountHome() + "/wall-test-planted",
				"unshare 0x10000000",
			}
			want := []string{"ECONNREFUSED", "ESRCH", "EROFS|EACCES", "EPERM"}
			if profile == "agent" {
				want[2] = "ok" // in the scratch home
			}
			for i, got := range b.batch(ops) {
				if !anyOf(got, want[i]) {
					t.Errorf("%s: %s, want %s", ops[i], got, want[i])
				}
			}
			if _, err := os.Lstat(accountHome() + "/wall-test-planted"); err == nil {
				t.Error("the home was written")
				os.Remove(accountHome() + "/wall-test-planted")
			}
			sameTree(t, before, snapshot(t, b.ws)) // nothing started, no state of the launcher
		})
	}
}

// TestWorkspaceRefused: a workspace that would give everything away is refused.
// Promise 4.
func TestWorkspaceRefused(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	home, _ := makeHome(t)
	if err := os.Symlink(home, "/srv/link"); err != nil {
		t.Fatal(err)
	}
	for _, ws := range []string{"/", home, filepath.Dir(home), home + "/project/..", "/srv/link"} {
		b := newBox(t, "gate")
		b.ws, b.cwd = ws, "/srv"
		r := b.sh("exit 0")
		if r.code != 125 || !strings.Contains(r.err, "workspace") {
			t.Errorf("workspace %s: exit status %d, %q", ws, r.code, r.err)
		}
		b.cwd = ws // the default workspace is the working directory
		cmd := b.cmd("true")
		cmd.Args = []string{wallBin, "run", "-p", "gate", "--", "true"}
		if r := finish(t, cmd); r.code != 125 {
			t.Errorf("in %s: exit status %d", ws, r.code)
		}
	}
	b := newBox(t, "gate")
	b.ws = home
	b.flags = []string{"--allow-home-workspace"}
	b.sh("true").ok(t)
}

// TestArguments: after "--" everything is the command, and its arguments arrive
// byte for byte. Promise 6.
func TestArguments(t *testing.T) {
	b := newBox(t, "gate")
	args := []string{"--rw", "/", "-p", "agent", "", " ", "a b", "\n", "*", "$HOME", "`id`", "--", "-", "\xff\xfe", "ünï"}
	out := b.run(append([]string{"printf", `%s\0`}, args...)...).ok(t)
	if want := strings.Join(args, "\x00") + "\x00"; out != want {
		t.Errorf("got  %q\nwant %q", out, want)
	}
	r := b.run("--rw")
	if r.code != 127 || !strings.Contains(r.err, "--rw") {
		t.Errorf("a command named --rw: %d %q", r.code, r.err)
	}
}

// TestStatic: the launcher is a static binary, so that no variable of the
// caller reaches a loader. Promise 5.
func TestStatic(t *testing.T) {
	f, err := elf.Open(wallBin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s has a %v segment", wallBin, p.Type)
		}
	}
}

// facilities are what a kernel can lack, see "probe without".
var facilities = []struct {
	name     string
	text     string // what the message names
	degrades bool   // whether a box without it is still worth something
}{
	{"userns", "namespace", false},
	{"mountapi", "mount", false},
	{"landlock", "Landlock", true},
	{"seccomp", "seccomp", true},
}

// TestFailClosed: where the host lacks a facility that the profile asks for, the
// command does not run, and the message names the facility. Promises 1, 2.
func TestFailClosed(t *testing.T) {
	for _, f := range facilities {
		both(t, func(t *testing.T, profile string) {
			b := newBox(t, profile)
			b.without = f.name
			r := b.sh("touch ran")
			_, err := os.Stat(b.ws + "/ran")
			if r.code != 125 || err == nil || !strings.Contains(r.err, f.text) || !strings.Contains(r.err, "hint:") {
				t.Errorf("without %s: exit status %d, command ran: %v, stderr:\n%s", f.name, r.code, err == nil, r.err)
			}
		})
	}
}

// TestDegraded: asked to run with what is left, wall says on every run what is
// lost; what would leave no box at all still fails, and so does what the profile
// requires. That files stay safe then is in TestTableFiles. Promise 2.
func TestDegraded(t *testing.T) {
	for _, f := range facilities {
		both(t, func(t *testing.T, profile string) {
			b := newBox(t, profile)
			b.without, b.flags = f.name, []string{"--if-unavailable", "degrade"}
			r := b.sh("touch ran")
			_, err := os.Stat(b.ws + "/ran")
			if ran := err == nil; ran != f.degrades || ran != (r.code == 0) || ran != strings.Contains(r.err, "degraded") || !ran && r.code != 125 {
				t.Errorf("without %s: exit status %d, command ran: %v, stderr:\n%s", f.name, r.code, ran, r.err)
			}
		})
	}
	b := newBox(t, "gate")
	write(t, b.ws+"/../p.toml", "version = 1\nextends = \"gate\"\nif-unavailable = \"degrade\"\nrequire = [\"landlock\"]\n")
	b.profile, b.without = filepath.Dir(b.ws)+"/p.toml", "landlock"
	if r := b.sh("touch ran"); r.code != 125 || !strings.Contains(r.err, "Landlock") {
		t.Errorf("without a required wall: exit status %d, stderr:\n%s", r.code, r.err)
	}
	b.without = ""
	b.sh("true").ok(t)
}

// TestForgery: the command does its worst to pid 1, which reports its status,
// and then fails: whatever comes of pid 1, the run must not look like a success.
// Promise 18.
func TestForgery(t *testing.T) {
	both(t, func(t *testing.T, profile string) {
		for _, attack := range []string{
			"kill -KILL 1", "kill -TERM 1", "kill -INT 1", "kill -STOP 1", "kill -ABRT 1", "kill -SEGV 1", "kill -QUIT 1",
			"prlimit --pid 1 --nofile=0:0", "prlimit --pid 1 --as=0:0", "prlimit --pid 1 --cpu=0:0", "prlimit --pid 1 --fsize=0:0",
			"prlimit --pid 1 --nproc=0:0", "prlimit --pid 1 --stack=0:0",
			"for f in /proc/1/fd/*; do printf 'xxxx\\0\\0\\0\\0' >$f; done", "echo x >/proc/1/mem", "echo 1000 >/proc/1/oom_score_adj",
			"exec 1>&- 2>&- 0<&-; for n in 3 4 5 6 7 8 9; do eval \"echo x >&$n\"; done",
		} {
			b := newBox(t, profile)
			cmd := b.cmd("/bin/sh", "-c", "{ "+attack+"; } 2>/dev/null; exit 41")
			start := time.Now()
			if r := finish(t, cmd); r.code == 0 {
				t.Errorf("after %q the run looks like a success", attack)
			} else if r.code != 41 {
				t.Logf("after %q: exit status %d instead of 41", attack, r.code)
			}
			if d := time.Since(start); d > 2*time.Minute {
				t.Errorf("after %q the run took %v", attack, d)
			}
		}
	})
}

// TestSymlinkRace: a directory that the command keeps swapping for a link leads
// nowhere, neither for itself nor for a box that starts meanwhile. Promises 4, 7.
func TestSymlinkRace(t *testing.T) {
	for _, column := range []string{"bare", "gate"} {
		b := newBox(t, column)
		b.bare = column == "bare"
		target := filepath.Join(tempDir(t), "target")
		write(t, target+"/keep", "")
		b.flags = []string{"--ro", target} // visible, or nothing could land there anyway
		write(t, b.ws+"/dir/x", "")
		b.run(probeBin, "try", "race-write", b.ws+"/dir", target, "raced").ok(t)
		_, err := os.Stat(target + "/raced")
		if (err == nil) != b.bare {
			t.Errorf("%s: written behind the link: %v", column, err == nil)
		}
	}

	// The workspace's protected names are swapped from outside while boxes
	// start: whichever form they find, no box may write behind the link, and
	// nothing of wall's may appear there.
	b := newBox(t, "gate")
	target := filepath.Join(tempDir(t), "target")
	write(t, target+"/config", "[core]\n")
	write(t, target+"/HEAD", "x\n")
	b.flags = []string{"--ro", target}
	write(t, b.ws+"/.git/config", "[core]\n")
	write(t, b.ws+"/.git/HEAD", "ref: refs/heads/main\n")
	stop, done := make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(b.ws+"/.git", b.ws+"/.git.real")
			_ = os.Symlink(target, b.ws+"/.git")
			time.Sleep(50 * time.Microsecond)
			_ = os.Remove(b.ws + "/.git")
			_ = os.Rename(b.ws+"/.git.real", b.ws+"/.git")
			time.Sleep(50 * time.Microsecond)
		}
	}()
	before := snapshot(t, target)
	codes := map[int]int{}
	for range 40 {
		r := b.sh(`echo evil >>.git/config; echo x >.git/hooks/x; echo x >.git/planted; exit 0`)
		codes[r.code]++
		// 0 found one form, 125 a change while it was looking, and a box whose
		// protections the swapping detached is ended with a message.
		if r.code != 0 && !strings.Contains(r.err, "wall: error: ") {
			t.Errorf("exit status %d without a message: %q", r.code, r.err)
		}
	}
	close(stop)
	<-done
	t.Logf("exit statuses: %v", codes)
	if codes[0] == 0 {
		t.Error("no box started")
	}
	sameTree(t, before, snapshot(t, target))
}

// TestLoopbackPrivate: a port of the box is not reachable from the host.
// Promise 16 seen from outside.
func TestLoopbackPrivate(t *testing.T) {
	for try := 1; ; try++ {
		b := newBox(t, "gate")
		cmd := b.cmd(probeBin, "serve", nonce())
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var key, port int
		if _, err := fmt.Fscanln(out, new(string), &key, &port); err != nil {
			t.Fatal(err)
		}
		c, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		in.Close()
		_ = cmd.Wait()
		if err != nil {
			break
		}
		c.Close()
		if try == 3 { // somebody on the host may have the same number
			t.Fatalf("port %d of the box answers on the host", port)
		}
	}
}

// TestPlaceholderShared: what one run made to stand for an absent .git keeps
// protecting another run in the same workspace after the first has ended, and
// is gone when both have. Promises 9, 11, 17.
func TestPlaceholderShared(t *testing.T) {
	for _, roots := range []string{"one scratch root", "two scratch roots"} {
		t.Run(roots, func(t *testing.T) {
			first := newBox(t, "gate")
			second := *first
			if roots == "two scratch roots" {
				second.scratch = newBox(t, "gate").scratch
			}
			before := snapshot(t, first.ws)
			endFirst := hold(t, first, "exit 0")
			endSecond := hold(t, &second, `mkdir -p .git .git/hooks .git/objects .git/refs .wall; echo evil | tee .git/config .git/HEAD .git/hooks/pre-commit .wall/gate.toml >/dev/null
				for f in .git/config .git/HEAD .git/hooks/pre-commit .wall/gate.toml; do [ -s $f ] && echo $f; done; [ -d .git/objects ] && echo .git/objects; exit 0`)
			endFirst()
			if out := endSecond(); out != "" {
				t.Errorf("made after the run that made the placeholders had ended: %q", out)
			}
			sameTree(t, before, snapshot(t, first.ws))
		})
	}
	t.Run("another workspace", func(t *testing.T) {
		// A box elsewhere keeps nothing from being tidied up here.
		long, short := newBox(t, "gate"), newBox(t, "gate")
		short.scratch = long.scratch
		end := hold(t, long, "exit 0")
		before := snapshot(t, short.ws)
		short.sh("true").ok(t)
		sameTree(t, before, snapshot(t, short.ws))
		end()
	})
}

// hold starts a box that waits; release lets it run script and gives its output.
func hold(t *testing.T, b *box, script string) (release func() string) {
	t.Helper()
	cmd := b.cmd("/bin/sh", "-c", "echo up; read x; "+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	return func() string {
		in.Close()
		text, _ := io.ReadAll(out)
		_ = cmd.Wait()
		return string(text)
	}
}
