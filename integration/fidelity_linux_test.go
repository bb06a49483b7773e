package integration_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The tests of this file do what people do with a box. None is an attack: if
// one fails, people switch the box off.

// both runs f for the built-in profiles.
func both(t *testing.T, f func(t *testing.T, profile string)) {
	for _, profile := range []string{"gate", "agent"} {
		t.Run(profile, func(t *testing.T) { f(t, profile) })
	}
}

// TestDoFirstLook is the first thing everybody tries.
func TestDoFirstLook(t *testing.T) {
	both(t, func(t *testing.T, profile string) {
		need(t, "ps")
		b := newBox(t, profile)
		mark := "wall-test-" + nonce()
		r := b.sh(`id -u; id -g; echo "--"; ps ax -o comm=; echo "--"; env; echo "--"; ls -la ~ >/dev/null && echo listed
			touch ~/` + mark + ` 2>/dev/null && echo HOME; touch ./y && echo workspace; echo ok >"${TMPDIR:-/tmp}/z" && cat "${TMPDIR:-/tmp}/z"; pwd`)
		parts := strings.Split(r.ok(t), "--\n")
		if want := fmt.Sprintf("%d\n%d\n", os.Getuid(), os.Getgid()); parts[0] != want {
			t.Errorf("ids %q, want %q", parts[0], want)
		}
		for _, comm := range strings.Fields(parts[1]) {
			if !anyOf(comm, "wall-init|wall|sh|ps") {
				t.Errorf("a process %q is visible", comm)
			}
		}
		for _, line := range strings.Split(strings.TrimSpace(parts[2]), "\n") {
			name, value, _ := strings.Cut(line, "=")
			if name == "HOME" && value != accountHome() {
				t.Errorf("HOME is %q, the account's is %q", value, accountHome())
			}
		}
		want := "listed\nworkspace\nok\n" + b.ws + "\n"
		if profile == "agent" { // its home is a scratch one
			want = "listed\nHOME\nworkspace\nok\n" + b.ws + "\n"
		}
		if parts[3] != want {
			t.Errorf("got %q, want %q\n%s", parts[3], want, r.err)
		}
		if _, err := os.Lstat(accountHome() + "/" + mark); err == nil {
			t.Error("the home was written")
		}
		if _, err := os.Lstat(b.ws + "/y"); err != nil {
			t.Error(err)
		}
	})
}

// TestDoGit works in a repository the way a developer does.
func TestDoGit(t *testing.T) {
	need(t, "git")
	if !inOwnHome(t) {
		return
	}
	both(t, func(t *testing.T, profile string) {
		home, _ := makeHome(t)
		// A .gitconfig that is a link into a dot-files folder, as many have.
		if err := os.Mkdir(home+"/dotfiles", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(home+"/.gitconfig", home+"/dotfiles/gitconfig"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("dotfiles/gitconfig", home+"/.gitconfig"); err != nil {
			t.Fatal(err)
		}
		origin := filepath.Join(tempDir(t), "origin")
		if err := os.Mkdir(origin, 0o755); err != nil {
			t.Fatal(err)
		}
		git := func(dir string, args ...string) string {
			t.Helper()
			return host(t, dir, append([]string{"git", "-c", "user.name=H", "-c", "user.email=h@example.org"}, args...)...)
		}
		git(origin, "init", "-q", "-b", "main")
		write(t, origin+"/a", "a\n")
		git(origin, "add", ".")
		git(origin, "commit", "-qm", "first")
		b := newBox(t, profile)
		b.ws += "-clone"
		git(filepath.Dir(b.ws), "clone", "-q", origin, b.ws)

		author := b.sh(`set -e; echo b >b; git add b; git commit -qm second; git log -1 --format=%an`).ok(t)
		if author != "T\n" { // from ~/.gitconfig
			t.Errorf("the author is %q", author)
		}
		b.sh(`set -e
			git checkout -q -b topic HEAD~1; echo c >c; git add c; git commit -qm third
			git rebase -q main
			git log --oneline | wc -l | grep -qx 3
			echo d >>c; git stash -q; git stash pop -q; git checkout -q -- c
			git tag v1; git branch -d -q main 2>/dev/null || git branch -f main HEAD
			git gc -q; git status --porcelain | grep . && exit 9; git fsck --no-dangling >/dev/null 2>&1`).ok(t)
		b.sh(`set -e
			git worktree add -q wt -b wtree; cd wt; echo e >e; git add e; git commit -qm fourth; cd ..; git worktree list | grep -q wtree`).ok(t)
		if out := git(b.ws, "log", "--all", "--format=%s"); !strings.Contains(out, "fourth") || !strings.Contains(out, "third") {
			t.Errorf("the host sees %q", out)
		}

		// While .git/config is protected, git's own change of it fails cleanly.
		r := b.sh(`git config core.fsmonitor "touch /tmp/x"; echo $?; ls .git/config.lock 2>/dev/null; exit 0`)
		if out := r.ok(t); out == "0\n" || strings.Contains(out, "lock") {
			t.Errorf("git config: %q %q", out, r.err)
		}
		if strings.Contains(read(t, b.ws+"/.git/config"), "fsmonitor") {
			t.Error(".git/config was changed")
		}

		// A linked worktree as workspace: it starts, and with the main checkout granted it commits.
		wt := filepath.Join(filepath.Dir(b.ws), "linked")
		git(b.ws, "worktree", "add", "-q", wt, "-b", "linked")
		l := newBox(t, profile)
		l.ws = wt
		l.sh("test -f a && cat .git >/dev/null").ok(t)
		l.flags = []string{"--rw", b.ws}
		l.sh("set -e; echo f >f; git add f; git commit -qm fifth").ok(t)
		if out := git(wt, "log", "-1", "--format=%s"); out != "fifth\n" {
			t.Errorf("the worktree's last commit is %q", out)
		}

		// A submodule made by the host, worked in by the box.
		git(b.ws, "-c", "protocol.file.allow=always", "submodule", "add", "-q", origin, "sub")
		b.sh(`set -e; cd sub; echo s >s; git add s; git commit -qm "in the submodule"; cd ..; git add sub; git commit -qm sixth`).ok(t)
		if out := git(b.ws+"/sub", "log", "-1", "--format=%s"); out != "in the submodule\n" {
			t.Errorf("the submodule's last commit is %q", out)
		}
		if out := git(b.ws, "status", "--porcelain"); strings.TrimSpace(out) != "" && strings.TrimSpace(out) != "?? wt/" {
			t.Errorf("git status: %q", out)
		}
	})
}

// TestDoPython uses semaphores, queues and processes.
func TestDoPython(t *testing.T) {
	need(t, "/usr/bin/python3")
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		write(t, b.ws+"/test_mp.py", `
import multiprocessing as mp, unittest, socket, threading, tempfile, os, subprocess, asyncio
def square(x): return x * x
class T(unittest.TestCase):
    def test_pool(self):
        for method in ("fork", "spawn", "forkserver"):
            with mp.get_context(method).Pool(2) as p:
                self.assertEqual(p.map(square, range(10)), [x * x for x in range(10)])
    def test_shared(self):
        v = mp.Value("i", 0); l = mp.Lock(); q = mp.Queue()
        q.put(1); self.assertEqual(q.get(), 1)
        from multiprocessing import shared_memory
        s = shared_memory.SharedMemory(create=True, size=100); s.buf[0] = 7; s.close(); s.unlink()
    def test_sockets(self):
        d = tempfile.mkdtemp(); path = os.path.join(d, "x" * 20)
        self.assertLess(len(path), 100)
        s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen()
        c = socket.socket(socket.AF_UNIX); c.connect(path)
    def test_asyncio(self):
        async def main():
            p = await asyncio.create_subprocess_exec("echo", "x", stdout=subprocess.PIPE)
            self.assertEqual((await p.communicate())[0], b"x\n")
        asyncio.run(main())
    def test_names(self):
        self.assertTrue(socket.gethostbyname("localhost").startswith("127."))
        self.assertTrue(socket.getaddrinfo(socket.gethostname(), None))
        with self.assertRaises(OSError): socket.getaddrinfo("example.com", 80)
if __name__ == "__main__": unittest.main()
`)
		start := time.Now()
		b.run("/usr/bin/python3", "-m", "unittest", "-q").ok(t)
		if d := time.Since(start); d > 2*time.Minute {
			t.Errorf("took %v", d)
		}
	})
}

// TestDoMake uses a jobserver, by pipe and by fifo, made inside; and one of the
// caller's that passes on request only.
func TestDoMake(t *testing.T) {
	need(t, "make")
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		write(t, b.ws+"/Makefile", "all: sub a b c\nsub:\n\t+$(MAKE) -f Makefile a2 b2\na b c a2 b2:\n\tsleep 0.05; touch $@.out\n.PHONY: all sub a b c a2 b2\n")
		if r := b.run("make", "-s", "-j2"); r.code != 0 || strings.Contains(r.err, "jobserver") {
			t.Errorf("make -j2: %d %q", r.code, r.err)
		}
	})

	// wall below a make -j2: its descriptors do not pass, and MAKEFLAGS must
	// not name them, or the inner make complains.
	b := newBox(t, "gate")
	write(t, b.ws+"/Makefile", "all:\n\t+@"+strings.Join(b.argv("make", "-s", "-f", "inner"), " ")+"\n")
	write(t, b.ws+"/inner", "all: x y\nx y:\n\t@touch $@\n")
	cmd := exec.Command("make", "-s", "-j2")
	cmd.Dir = b.ws
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "warning") {
		t.Errorf("wall below make -j2: %v\n%s", err, out)
	}
}

// TestDoServer serves and asks on both loopback addresses.
func TestDoServer(t *testing.T) {
	need(t, "/usr/bin/python3", "curl")
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		write(t, b.ws+"/page", "hello\n")
		for _, addr := range []string{"127.0.0.1", "::1"} {
			url := "http://" + addr + ":8765/page"
			if addr == "::1" {
				url = "http://[::1]:8765/page"
			}
			out := b.sh(`/usr/bin/python3 -m http.server --bind "$1" 8765 >/dev/null 2>&1 & curl -sg --retry 50 --retry-connrefused --retry-delay 0 --retry-max-time 60 "$2"`, addr, url).ok(t)
			if out != "hello\n" {
				t.Errorf("%s: %q", addr, out)
			}
		}
		out := b.sh(`/usr/bin/python3 -m http.server --bind 127.0.0.1 8765 >/dev/null 2>&1 & curl -s --retry 50 --retry-connrefused --retry-delay 0 --retry-max-time 60 http://localhost:8765/page`).ok(t)
		if out != "hello\n" {
			t.Errorf("localhost: %q", out)
		}
	})
}

// TestDoOffline: a look-up without a network fails at once.
func TestDoOffline(t *testing.T) {
	need(t, "getent", "curl")
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		for try := 1; ; try++ {
			start := time.Now()
			if r := b.run("getent", "ahosts", "example.com"); r.code == 0 {
				t.Errorf("example.com resolves: %q", r.out)
			}
			if r := b.run("curl", "-sS", "http://example.com/"); r.code != 6 { // could not resolve host
				t.Errorf("curl: %d %q", r.code, r.err)
			}
			d := time.Since(start)
			if d <= 5*time.Second { // the resolver's own time limit
				break
			}
			if try == 5 { // the machine may be busy
				t.Fatalf("took %v", d)
			}
		}
		b.sh(`getent hosts localhost && getent ahosts "$(hostname)"`).ok(t)
	})
}

// TestDoGo builds this repository, offline, in a copy.
func TestDoGo(t *testing.T) {
	need(t, "go", "git")
	if testing.Short() {
		t.Skip("builds the whole repository")
	}
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		root := strings.TrimSpace(host(t, ".", "go", "env", "GOMOD"))
		if root == "" || root == os.DevNull {
			need(t, "sources")
		}
		if out, err := exec.Command("cp", "-RT", filepath.Dir(root), b.ws).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		// The caller's caches are shown for reading, wherever they are.
		for _, name := range []string{"GOMODCACHE", "GOROOT"} {
			b.flags = append(b.flags, "--ro", strings.TrimSpace(host(t, ".", "go", "env", name)))
			b.flags = append(b.flags, "--env", name+"="+strings.TrimSpace(host(t, ".", "go", "env", name)))
		}
		b.flags = append(b.flags, "--env", "GOFLAGS=-buildvcs=false -mod=mod", "--env", "GOPROXY=off", "--env", "CGO_ENABLED=0")
		goTool, err := exec.LookPath("go")
		if err != nil {
			t.Fatal(err)
		}
		if profile == "gate" {
			// In one box: its cache starts cold and goes with it.
			b.sh(`"$1" build ./... && "$1" test ./plan/...`, goTool).ok(t)
			return
		}
		write(t, b.ws+"/hello/main.go", "package main\n\nfunc main() { println(\"hello\") }\n")
		if r := b.run(goTool, "run", "./hello"); r.code != 0 || r.err != "hello\n" {
			t.Errorf("go run: %d %q", r.code, r.err)
		}
	})
}

// TestDoTools starts what uses threads, its own caches, and odd system calls.
func TestDoTools(t *testing.T) {
	for _, c := range []struct {
		name, tool, script, want string
	}{
		{"java", "java", "java -version 2>&1 | grep -ci version", "1\n"},
		{"javac", "javac", `printf 'public class A { public static void main(String[] a) throws Exception {
			Thread t = new Thread(() -> System.out.println("thread")); t.start(); t.join();
			System.out.println(System.getProperty("user.home")); } }' >A.java && javac A.java && java -cp . A`, "thread\n" + accountHome() + "\n"},
		{"node", "node", `node -e 'const {Worker} = require("worker_threads"); new Worker("console.log(1)", {eval: true}).on("exit", () => require("child_process").exec("echo 2", (e, o) => console.log(o.trim())))'`, "1\n2\n"},
		{"npm", "npm", "npm --version >/dev/null && npm init -y >/dev/null && echo ok", "ok\n"},
		{"gcc", "gcc", `printf '#include <stdio.h>\nint main(void){puts("built");return 0;}' >a.c && gcc -fsanitize=address a.c -o a 2>/dev/null || gcc a.c -o a; ./a`, "built\n"},
		{"gdb", "gdb", `gdb -q -batch -nx -ex run -ex quit --args /bin/true 2>&1 | grep -c 'exited normally'`, "1\n"},
		{"strace", "strace", `strace -o /tmp/trace true && grep -c execve /tmp/trace`, "1\n"},
		{"perl", "perl", `perl -e 'use POSIX; print POSIX::getpid() > 0 ? "ok\n" : ""'`, "ok\n"},
		{"tar", "tar", `mkdir d && echo x >d/f && tar -czf a.tgz d && rm -r d && tar -xzf a.tgz && cat d/f`, "x\n"},
		{"mktemp", "mktemp", `d=$(mktemp -d) && cp /bin/true $d/t && $d/t && echo executable`, "executable\n"},
		{"flock", "flock", `flock lock echo locked`, "locked\n"},
		{"openssl", "openssl", `openssl rand -hex 4 | wc -c`, "9\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			need(t, c.tool)
			both(t, func(t *testing.T, profile string) {
				b := newBox(t, profile)
				if r := b.sh(c.script); r.code != 0 || r.out != c.want {
					t.Errorf("status %d, got %q, want %q\n%s", r.code, r.out, c.want, r.err)
				}
			})
		})
	}
	t.Run("cargo", func(t *testing.T) {
		need(t, "cargo")
		both(t, func(t *testing.T, profile string) {
			b := newBox(t, profile)
			out := b.sh(`cargo init -q --vcs none --name x . && cargo build -q && ./target/debug/x`)
			if out.code != 0 || out.out != "Hello, world!\n" {
				t.Errorf("status %d, got %q\n%s", out.code, out.out, out.err)
			}
		})
	})
}

// TestDoStdio: the streams are the caller's own.
func TestDoStdio(t *testing.T) {
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)

		b.stdin = strings.NewReader("one\ntwo\n")
		if out := b.sh("cat").ok(t); out != "one\ntwo\n" {
			t.Errorf("a pipe gave %q", out)
		}
		b.stdin = strings.NewReader("one\ntwo\n")
		if out := b.sh("cat /dev/stdin").ok(t); out != "one\ntwo\n" {
			t.Errorf("/dev/stdin of a pipe gave %q", out)
		}
		b.stdin = nil // /dev/null
		if out := b.sh("cat; echo end").ok(t); out != "end\n" {
			t.Errorf("no input gave %q", out)
		}

		// The offset of a file is shared: each box takes one line.
		list := filepath.Join(tempDir(t), "list")
		write(t, list, "a\nb\nc\n")
		loop := exec.Command("/bin/sh", append([]string{"-c", `while read -r line; do echo "host $line"; "$@" || exit; done <"$LIST"`, "sh"},
			b.argv("/bin/sh", "-c", `read -r line && echo "box $line"; exit 0`)...)...)
		loop.Dir = b.ws
		loop.Env = append(os.Environ(), "LIST="+list)
		loop.Stderr = os.Stderr
		if out, err := loop.Output(); err != nil || string(out) != "host a\nbox b\nhost c\n" {
			t.Errorf("a shared offset: %v %q", err, out)
		}

		// Output to a file the box cannot see, by descriptor and by name.
		logFile := filepath.Join(tempDir(t), "log")
		f, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		cmd := b.cmd("/bin/sh", "-c", `echo 1; echo 2 >>/dev/stdout; echo 3 >>/dev/fd/1; echo 4 | tee -a /dev/stderr`)
		var errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = f, &errs
		if err := cmd.Run(); err != nil || errs.String() != "4\n" {
			t.Errorf("a log file: %v %q", err, errs.String())
		}
		f.Close()
		if got := read(t, logFile); got != "1\n2\n3\n4\n" {
			t.Errorf("the log holds %q", got)
		}

		// Sockets as standard streams.
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		mine, theirs := os.NewFile(uintptr(pair[0]), "a"), os.NewFile(uintptr(pair[1]), "b")
		cmd = b.cmd("/bin/sh", "-c", "read -r x; echo got $x")
		cmd.Stdin, cmd.Stdout = theirs, theirs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		fmt.Fprintln(mine, "ping")
		buf := make([]byte, 32)
		n, _ := mine.Read(buf)
		mine.Close()
		if err := cmd.Wait(); err != nil || string(buf[:n]) != "got ping\n" {
			t.Errorf("a socket: %v %q", err, buf[:n])
		}

		// SIGPIPE ends the command, as bare.
		cmd = b.cmd("/bin/sh", "-c", "yes; echo $? >&2")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		errs.Reset()
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = io.ReadFull(out, make([]byte, 100))
		out.Close()
		_ = cmd.Wait()
		if errs.String() != "141\n" {
			t.Errorf("yes into a closed pipe ended with %q, want 141 (SIGPIPE)", errs.String())
		}

		// A reader that leaves O_NONBLOCK behind would break the caller's stream.
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		flags := func() int { n, _ := unix.FcntlInt(w.Fd(), unix.F_GETFL, 0); return n }
		before := flags()
		cmd = b.cmd("true")
		cmd.Stdout = w
		if err := cmd.Run(); err != nil || flags() != before {
			t.Errorf("flags of the pipe: %#x, were %#x (%v)", flags(), before, err)
		}
		r.Close()
		w.Close()
	})
}

// TestDoInherit: what a process inherits from its parent arrives as bare:
// umask, nice value, limits, affinity, signal dispositions and mask, scheduler.
func TestDoInherit(t *testing.T) {
	need(t, "nice", "taskset", "env")
	// grep, not a shell, shows the mask and the ignore set: it changes neither.
	show := `umask; nice; ulimit -a; taskset -p $$ | sed 's/.*: //'; cat /proc/self/oom_score_adj /proc/self/coredump_filter /proc/self/timerslack_ns 2>/dev/null; exec grep -E '^Sig(Blk|Ign)|^Cpus_allowed:' /proc/self/status`
	for _, setup := range []string{
		``,
		`umask 027;`,
		`umask 000; ulimit -n 999;`,
		`ulimit -Sn 333;`,
		`ulimit -Ss 4096; ulimit -Sv 8388608; ulimit -Su 3000;`,
		`trap "" HUP QUIT USR1;`,
	} {
		b := newBox(t, "gate")
		run := func(bare bool) string {
			c := *b
			c.bare = bare
			cmd := c.cmd("/bin/sh", "-c", show)
			cmd.Args = append([]string{"/bin/sh", "-c", setup + ` exec nice -n 3 taskset 1 "$@"`, "sh"}, cmd.Args...)
			cmd.Path = "/bin/sh"
			out := finish(t, cmd).ok(t)
			// Core dumps are off inside, whatever the caller had.
			lines := strings.Split(out, "\n")
			var kept []string
			for _, l := range lines {
				if !strings.HasPrefix(l, "coredump(blocks)") && !strings.HasPrefix(l, "core file size") {
					kept = append(kept, l)
				}
			}
			return strings.Join(kept, "\n")
		}
		bare, boxed := run(true), run(false)
		if bare != boxed {
			t.Errorf("after %q\nbare:\n%s\nboxed:\n%s", setup, bare, boxed)
		}
	}
}

// TestDoArguments: argv and environment have no cap of wall's own.
func TestDoArguments(t *testing.T) {
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		var args []string
		total := 0
		for i := 0; total < 1_200_000; i++ {
			a := strconv.Itoa(i) + strings.Repeat("x", 1000)
			args = append(args, a)
			total += len(a) + 1
		}
		out := b.run(append([]string{"/bin/sh", "-c", `echo $#; printf %s "$@" | wc -c`, "sh"}, args...)...).ok(t)
		if want := fmt.Sprintf("%d\n%d\n", len(args), total-len(args)); out != want {
			t.Errorf("got %q, want %q", out, want)
		}
		b.flags = []string{"--env", "ODD=a\n\xff=b ", "--env", "EMPTY="}
		if out := b.run("/bin/sh", "-c", `printf '%s|%s|' "$ODD" "${EMPTY-unset}"`).ok(t); out != "a\n\xff=b ||" {
			t.Errorf("--env gave %q", out)
		}
	})
}

// TestDoPaths: workspaces in odd places with odd names, and the caller's
// spelling of the working directory.
func TestDoPaths(t *testing.T) {
	for _, name := range []string{"plain", "with space", "ünïcødé-名前", "new\nline", "-dash", "quote'\"`$(x)", "back\\slash", "#hash", strings.Repeat("long", 50)} {
		both(t, func(t *testing.T, profile string) {
			b := newBox(t, profile)
			b.ws = filepath.Join(b.ws, name)
			write(t, b.ws+"/sub/file", "x\n")
			if out := b.sh(`pwd; cat sub/file; echo y >sub/new; cd sub && pwd -P`).ok(t); out != b.ws+"\nx\n"+b.ws+"/sub\n" {
				t.Errorf("%q: %q", name, out)
			}
			if read(t, b.ws+"/sub/new") != "y\n" {
				t.Errorf("%q: not written", name)
			}
		})
	}

	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		write(t, b.ws+"/sub/file", "x\n")
		link := filepath.Join(filepath.Dir(b.ws), "link")
		if err := os.Symlink(b.ws, link); err != nil {
			t.Fatal(err)
		}
		// The workspace by its link, the working directory below it: PWD keeps the spelling.
		physical := b.ws
		b.ws, b.cwd = link, link+"/sub"
		b.env = append(os.Environ(), "PWD="+link+"/sub")
		if out := b.sh(`echo "$PWD"; pwd -P; cat file`).ok(t); out != link+"/sub\n"+physical+"/sub\nx\n" {
			t.Errorf("below a link: %q", out)
		}
		// A PWD that lies is not believed.
		b.env = append(os.Environ(), "PWD=/etc")
		if out := b.sh(`pwd; cat file`).ok(t); out != physical+"/sub\nx\n" {
			t.Errorf("with a lying PWD: %q", out)
		}

		// A name that is not UTF-8 is refused, and the message says why.
		u := newBox(t, profile)
		u.ws += "/\xff\xfe"
		write(t, u.ws+"/file", "")
		if r := u.sh("true"); r.code != 125 || !strings.Contains(r.err, "UTF-8") {
			t.Errorf("a name that is not UTF-8: %d %q", r.code, r.err)
		}

		// A working directory that is not visible inside is an error that says so.
		c := newBox(t, "agent")
		c.flags = []string{"--cwd", filepath.Dir(c.ws)}
		if r := c.sh("true"); r.code != 125 || !strings.Contains(r.err, "directory") {
			t.Errorf("a hidden working directory: %d %q", r.code, r.err)
		}

		// A deleted one, too.
		d := newBox(t, profile)
		gone := filepath.Join(tempDir(t), "gone")
		if err := os.Mkdir(gone, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := d.cmd("true")
		cmd.Args = append([]string{"/bin/sh", "-c", `cd "$0" && rmdir "$0" && exec "$@"`, gone}, cmd.Args...)
		cmd.Path = "/bin/sh"
		if r := finish(t, cmd); r.code != 125 || r.err == "" {
			t.Errorf("a deleted working directory: %d %q", r.code, r.err)
		}
	})
}

// TestDoHomeWorkspace: a workspace below the home is not hidden by it, and the
// home's other content looks as the profile says.
func TestDoHomeWorkspace(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	both(t, func(t *testing.T, profile string) {
		home, ws := makeHome(t)
		b := newBox(t, profile)
		b.ws = ws
		if out := b.sh(`cat main.txt; echo new >new; cd ~/project && pwd`).ok(t); out != "main\n"+ws+"\n" {
			t.Errorf("%q", out)
		}
		if read(t, ws+"/new") != "new\n" {
			t.Error("not written")
		}
		b.flags = []string{"--ro", home + "/notes.txt", "--rw", home + "/nested"}
		if out := b.sh(`cat ~/notes.txt; echo z >~/nested/file && cat ~/nested/file`).ok(t); out != "notes\nz\n" {
			t.Errorf("grants below the home: %q", out)
		}
		// A flag shows what the profile hides, and says so; another run does not.
		b.flags = []string{"--ro", home + "/.npmrc"}
		if r := b.sh(`cat ~/.npmrc`); r.code != 0 || !strings.Contains(r.err, "is visible inside, although") {
			t.Errorf("--ro of a hidden file: %d %q", r.code, r.err)
		}
		b.flags = nil
		if r := b.sh(`cat ~/.npmrc`); r.code == 0 {
			t.Errorf("a hidden file: %q", r.out)
		}
	})
}

// TestDoReadOnlyWorkspace: --workspace-access read-only means it.
func TestDoReadOnlyWorkspace(t *testing.T) {
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		write(t, b.ws+"/file", "x\n")
		b.flags = []string{"--workspace-access", "read-only"}
		if out := b.sh(`cat file; echo y >>file; touch new; rm -f file; exit 0`).ok(t); out != "x\n" {
			t.Errorf("%q", out)
		}
		if read(t, b.ws+"/file") != "x\n" {
			t.Error("written")
		}
	})
}

// TestDoTTY: without a terminal there is none inside either.
func TestDoTTY(t *testing.T) {
	both(t, func(t *testing.T, profile string) {
		b := newBox(t, profile)
		cmd := b.cmd("/bin/sh", "-c", `tty; : </dev/tty`)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		r := finish(t, cmd)
		if r.code == 0 || r.out != "not a tty\n" {
			t.Errorf("%d %q %q", r.code, r.out, r.err)
		}
	})
}

// TestDoGroups: supplementary groups and other owners are as the kernel allows:
// the set stays in force, names of others are nobody's.
func TestDoGroups(t *testing.T) {
	b := newBox(t, "gate")
	if u, err := user.LookupId(strconv.Itoa(os.Getuid())); err == nil {
		if out := b.run("id", "-un").ok(t); out != u.Username+"\n" {
			t.Errorf("id -un: %q", out)
		}
	}
	if os.Getuid() != 0 {
		if out := b.run("stat", "-c", "%u", "/etc/passwd").ok(t); out != "65534\n" {
			t.Errorf("the owner of /etc/passwd is %q", out)
		}
	}
}

// TestDoReaped: orphans are reaped while the command runs.
func TestDoReaped(t *testing.T) {
	b := newBox(t, "gate")
	out := b.sh(`for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'sleep 0.01 & exit'; done; sleep 0.3; grep -l '^State:.*Z' /proc/[0-9]*/status | wc -l`).ok(t)
	if strings.TrimSpace(out) != "0" {
		t.Errorf("%s zombies", strings.TrimSpace(out))
	}
}
