package kernels_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/integration/kernels"
)

// TestScopes runs boxes in scopes of a user's systemd, the host's own program on
// another kernel. Like TestKernels, it is run for one of two users.
func TestScopes(t *testing.T) {
	if os.Getenv("WALL_TEST_KERNELS") == "skip" {
		t.Skip("WALL_TEST_KERNELS says that another user runs it")
	}
	s := newSupply(t)
	m := machines[1]
	kernel := s.fromPackage(t, m.pkg, "", `^\./boot/vmlinuz-`, first)
	modules := s.fromPackage(t, m.pkg, "modules_", moduleNames, every)
	root, tester := users[0], users[1]
	wanted := append([]step{{Step: kernels.Step{Name: "prepare", Dir: "/", Argv: []string{"/bin/sh", "-c", `
		mkdir -p /root/project /home/tester/project && chown tester /home/tester/project
		ln -s usr/lib64 /lib64
		echo +memory +pids >/sys/fs/cgroup/cgroup.subtree_control
		mkdir /sys/fs/cgroup/user`}}}}, scopes(root, tester)...)
	var steps []kernels.Step
	for _, w := range wanted {
		steps = append(steps, w.Step)
	}
	for i, r := range s.boot(t, kernel, modules, m.parameters, steps, hostSystemd(t)...) {
		if i >= len(wanted) || r.Name != wanted[i].Name {
			t.Fatalf("result %d is %q's", i, r.Name)
		}
		t.Logf("%-40s %4d ms", r.Name, r.Millis)
		wanted[i].judge(t, r)
	}
}

const systemdPath = "/usr/lib/systemd/systemd"

// hostSystemd gives the host's systemd and the libraries that it loads, in their
// places. It has no units: those that matter here need no file.
func hostSystemd(t *testing.T) []file {
	t.Helper()
	out, err := exec.Command("ldd", systemdPath).Output()
	need(t, "systemd", err)
	paths := []string{systemdPath}
	for _, f := range strings.Fields(string(out)) {
		if filepath.IsAbs(f) {
			paths = append(paths, f)
		}
	}
	var files []file
	made := map[string]bool{"/usr": true, "/usr/bin": true} // see boot
	var dir func(string)
	dir = func(name string) {
		if name != "/" && !made[name] {
			dir(filepath.Dir(name))
			made[name] = true
			files = append(files, file{"system" + name, typeDir | 0o755, nil})
		}
	}
	for _, p := range paths {
		if !strings.HasPrefix(p, "/usr/") {
			p = "/usr" + p // /lib and /lib64 are links there
		}
		dir(filepath.Dir(p))
		files = append(files, file{"system" + p, typeFile | 0o755, read(t, p)})
	}
	return files
}

// scopes are made by a systemd of the user, which runs in a delegated group, as
// systemd itself starts it; the user's other processes run in one that is not.
// Moving a process between the two is what the system's systemd does for the user's;
// here the file of the common group that allows it is the user's.
func scopes(root, tester user) []step {
	const (
		groups  = "/sys/fs/cgroup"
		manager = groups + "/user/manager"
		slice   = manager + "/app.slice"
		left    = "ls -d " + slice + "/wall-* 2>/dev/null"
		gone    = `n=0; while ` + left + ` | grep -q . && [ $n -lt 200 ]; do sleep 0.1; n=$((n+1)); done; ` + left
	)
	const (
		times    = "for i in 1 2 3 4 5 6 7 8 9 10; do "
		done     = "; done"
		degraded = "wall: degraded: limits: the limit of memory is kept by a watch and not by the kernel, so that the box can exceed it for a moment\n"
	)
	in := func(name, script string) kernels.Step {
		s := root.sh(name, "echo $$ >"+groups+"/user/session/cgroup.procs; cd "+tester.workspace()+"; exec su tester -c '"+strings.ReplaceAll(script, "'", `'\''`)+"'")
		s.Name = tester.name + ": " + name
		return s
	}
	over := func(name, flag, told, script string) step {
		return step{
			Step: in("scope, limit of "+name, "wall run --limit memory=64MiB --limit processes=30 -- sh -c \""+script+"\"; code=$?; "+gone+"; exit $code"), code: 123,
			err: "wall: error: the box was ended because " + told + "\n  at --limit " + flag + "\n  hint: raise it with --limit " + name + "=..., if the command is right to need more\n",
		}
	}
	return []step{
		{Step: root.sh("a systemd of the user", `cd `+groups+`
			mkdir -p user/session user/manager
			chown tester user/cgroup.procs user/manager user/manager/cgroup.procs user/manager/cgroup.subtree_control user/manager/cgroup.threads
			echo +memory +pids >user/cgroup.subtree_control
			mkdir -p /run/systemd/system # it looks for this
			mkdir -p /run/user/1000 && chown tester:tester /run/user/1000 && chmod 700 /run/user/1000
			mkdir -p /etc/systemd/user && printf "[Unit]\n" >/etc/systemd/user/default.target
			export XDG_RUNTIME_DIR=/run/user/1000
			sh -c 'echo $$ >user/manager/cgroup.procs; exec setsid su tester -c "exec /usr/lib/systemd/systemd --user --log-target=console"' </dev/null >/root/systemd.log 2>&1 &
			n=0; while ! [ -S /run/user/1000/systemd/private ] && [ $n -lt 200 ]; do sleep 0.1; n=$((n+1)); done
			[ -S /run/user/1000/systemd/private ] || { cat /root/systemd.log; exit 1; }`)},
		{Step: in("scope, doctor", "wall doctor | grep cgroup.*app.slice | sed -E 's/[0-9a-f]{16}/ID/; s/  +/ /g'"), out: "limit of memory (cgroup) ok version 2, below " + slice + "/wall-ID.scope\nlimit of processes (cgroup) ok version 2, below " + slice + "/wall-ID.scope\n"},
		over("memory", "memory=64MiB", "it needed more memory than 64MiB", "dd if=/dev/zero of=/dev/shm/x bs=1M count=100 2>/dev/null; echo ran on; sleep 20"),
		over("processes", "processes=30", "it was to have more than 30 processes and threads", "(i=0; while [ \\$i -lt 100 ]; do sleep 20 & i=\\$((i+1)); done) 2>/dev/null; sleep 20"),
		{Step: in("scope, again and again", `for i in 1 2 3 4 5 6; do
			wall run --limit memory=64MiB -- sh -c "dd if=/dev/zero of=/dev/shm/x bs=1M count=100 2>/dev/null; sleep 20" 2>/dev/null; echo $?
			wall run --limit processes=30 -- sh -c "(i=0; while [ \$i -lt 100 ]; do sleep 20 & i=\$((i+1)); done) 2>/dev/null; sleep 20" 2>/dev/null; echo $?
			done; `+gone), code: 1, out: strings.Repeat("123\n", 12)},
		// The one that keeps the scope has nothing of the caller's open, cannot be reached from the
		// box, and goes with wall.
		{Step: in("scope, after SIGKILL", `exec 9</etc/passwd; rm -f ready go said
			wall run --limit memory=64MiB --limit processes=30 -- sh -c "echo >ready; while ! [ -s go ]; do sleep 0.1; done; kill -9 \$(cat go) 2>/dev/null; echo \$? >said; sleep 300" 2>/dev/null & pid=$!
			n=0; while [ ! -s ready ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n+1)); done
			for h in $(cat `+slice+`/wall-*.scope/hold/cgroup.procs); do
				for f in /proc/$h/fd/*; do readlink $f | sed "s/[0-9]*//g"; done
				echo $h >go
				n=0; while [ ! -s said ] && [ $n -lt 300 ]; do sleep 0.1; n=$((n+1)); done
				cat said; kill -0 $h && echo lives
			done
			cat `+slice+`/wall-*.scope/wall-*/memory.max
			kill -9 $pid; wait $pid 2>/dev/null; rm -f ready go said
			`+gone), code: 1, out: "pipe:[]\n/dev/null\n/dev/null\n1\nlives\n67108864\n"},
		{Step: in("scope, phases", `printf 'version = 1\nextends = "gate"\n[limits]\nmemory = "64MiB"\n[[gate.phase]]\nname = "a"\ncommand = ["true"]\n[[gate.phase]]\nname = "b"\ncommand = ["true"]\n' >p.toml
			wall gate -p ./p.toml >o 2>&1 || cat o; rm -f o p.toml; `+gone), code: 1},
		{Step: in("scope, start", times+`wall run --limit memory=64MiB -- true`+done)},
		{Step: in("no scope, start", times+`wall run -- true`+done)},
		// What systemd refuses, or does not answer, is done without it.
		{Step: root.sh("no moving", "chown root "+groups+"/user/cgroup.procs")},
		{Step: in("refused scope, processes", "wall run --limit processes=30 -- true; code=$?; "+gone+"; exit $code")},
		{Step: in("refused scope, gate", "wall gate --if-unavailable degrade --limit memory=64MiB -- true 2>&1 | grep -o '^wall: gate: passed'"), out: "wall: gate: passed\n"},
		{Step: in("refused scope, memory", "wall run --if-unavailable degrade --limit memory=64MiB -- true 2>&1 | sed 's/ (.*//'"), out: degraded},
		{Step: in("refused scope, no degrading", "wall run --limit memory=64MiB -- true 2>&1 | grep -o 'kept by a watch\\|could not put the box into a scope\\|if-unavailable degrade'"), out: "kept by a watch\ncould not put the box into a scope\nif-unavailable degrade\n"},
		{Step: root.sh("a stopped systemd", "chown tester "+groups+"/user/cgroup.procs; kill -STOP $(cat "+manager+"/init.scope/cgroup.procs)")},
		{Step: in("silent systemd, processes", "wall run --limit processes=30 -- true")},
		{Step: in("silent systemd, memory", "wall run --if-unavailable degrade --limit memory=64MiB -- true 2>&1 | sed 's/ (.*//'"), out: degraded},
		{Step: root.sh("the user's systemd ends", `cd `+groups+`
			cat /root/systemd.log; rm /root/systemd.log
			echo 1 >user/manager/cgroup.kill
			n=0; while grep -q "populated 1" user/manager/cgroup.events && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
			find user -depth -type d -exec rmdir {} +
			rm -r /run/user /run/systemd /etc/systemd`)},
	}
}
