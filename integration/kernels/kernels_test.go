package kernels_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/integration/kernels"
)

// A machine is a kernel and how it was started.
type machine struct {
	name       string
	pkg        string // Debian's, of the smallest kernel of its kind
	parameters string
	release    string // how its uname -r begins
	abi        int    // of Landlock; 0 = turned off
	modules    bool   // those for overlays and nftables are loaded
	copies     string // why caches are copied all the same; the file systems of the guest are tmpfs
}

// Debian 12 has both kernels: its own, and the one of the next release. The
// kernel that the tests of the other packages run on is a third.
var machines = []machine{
	{"old", "linux-image-cloud-amd64", "", "6.1.", 2, true, "getxattr of the upper layer: operation not supported"}, // tmpfs has none before 6.6
	{"new", "linux-image-6.12-cloud-amd64", "", "6.12.", 6, true, ""},
	{"old without Landlock", "linux-image-cloud-amd64", "lsm=lockdown,yama", "6.1.", 0, false, "fsopen overlay: no such device"},
}

// TestKernels boots every machine once and compares what wall did there, as
// root and as an ordinary user.
//
// It needs qemu-system-x86_64, and apt-get on a Debian 12 (or the cache filled
// by one): the kernels and busybox-static are fetched as packages and never
// installed. Without them it is skipped, or fails when WALL_TEST_REQUIRE has the
// word "qemu". What was fetched stays in WALL_KERNEL_CACHE, default "wall-test"
// in the user's cache directory; with that no network is needed. WALL_BIN and
// WALL_PROBE name binaries that are built already. A caller that tests as one
// user after another sets WALL_TEST_KERNELS=skip for all but the first, since
// the machines are the same whoever starts them.
func TestKernels(t *testing.T) {
	if os.Getenv("WALL_TEST_KERNELS") == "skip" {
		t.Skip("WALL_TEST_KERNELS says that another user runs it")
	}
	s := newSupply(t)
	for _, m := range machines {
		kernel := s.fromPackage(t, m.pkg, "", `^\./boot/vmlinuz-`, first)
		var modules []byte
		if m.modules {
			modules = s.fromPackage(t, m.pkg, "modules_", moduleNames, every)
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			wanted := m.steps()
			var steps []kernels.Step
			for _, w := range wanted {
				steps = append(steps, w.Step)
			}
			for i, r := range s.boot(t, kernel, modules, m.parameters, steps) {
				if i >= len(wanted) || r.Name != wanted[i].Name {
					t.Fatalf("result %d is %q's", i, r.Name)
				}
				t.Logf("%-40s %4d ms", r.Name, r.Millis)
				wanted[i].judge(t, r)
			}
		})
	}
}

// A step is one command and what must come of it.
type step struct {
	kernels.Step
	code     int
	out, err string                        // exactly, but for the line numbers of built-in profiles
	check    func(out string) (bad string) // in place of out; "" = as it must be
}

func (s step) judge(t *testing.T, r kernels.Result) {
	t.Helper()
	if bad := s.bad(r); bad != nil {
		t.Errorf("%s: %q\n%s\nstdout:\n%s\nstderr:\n%s", s.Name, s.Argv, strings.Join(bad, "\n"), r.Out, r.Err)
	}
}

// bad gives the differences.
func (s step) bad(r kernels.Result) []string {
	var bad []string
	if r.Code != s.code {
		bad = append(bad, fmt.Sprintf("exit status %d, want %d", r.Code, s.code))
	}
	if s.check != nil {
		if b := s.check(r.Out); b != "" {
			bad = append(bad, b)
		}
	} else if r.Out != s.out {
		bad = append(bad, fmt.Sprintf("stdout %q\nwant   %q", r.Out, s.out))
	}
	if got := lineNumber.ReplaceAllString(r.Err, "$1:N"); got != s.err {
		bad = append(bad, fmt.Sprintf("stderr %q\nwant   %q", got, s.err))
	}
	return bad
}

// What wall says on these kernels.
const (
	noTruncate = "wall: notice: with Landlock ABI 2 truncating a file is refused by read-only mounts alone, not by Landlock as well\n  at default\n"

	noABI6     = "Landlock scope for abstract sockets is not available: needs ABI 6 (Linux 6.12), this host has ABI 2"
	notStarted = "Landlock is not available: needs the kernel started with landlock in lsm=, this host has it built in but not started"
	lostScope  = "abstract Unix sockets of the host can be reached"
	lostFiles  = "file rules are enforced by mounts alone, and files made on the host after the start are not hidden"
	newer      = "use a newer kernel, or turn Landlock on with the boot parameter lsm=landlock,..."
	orDegrade  = "; or allow it with --if-unavailable degrade"
	baseFail   = "built-in:base:N: if-unavailable = \"fail\""

	noSpaces = "wall: error: cannot make new namespaces: clone: no space left on device\n  at built-in:base:N: enforce = \"fs+net\"\n" +
		"  hint: user.max_user_namespaces (sysctl) is 0 or used up; raise it\n"
	noPermission = "wall: error: cannot make new namespaces: clone: operation not permitted\n  at built-in:base:N: enforce = \"fs+net\"\n" +
		"  hint: on older Debian set kernel.unprivileged_userns_clone=1; in a container the seccomp profile may refuse it; see `wall doctor`\n"
)

// lineNumber is what a change of a built-in profile may change.
var lineNumber = regexp.MustCompile(`\b(built-in:[a-z]+):[0-9]+:[0-9]+`)

// notices is what wall says before each command on this kernel.
func (m machine) notices() string {
	if m.abi == 2 {
		return noTruncate
	}
	return ""
}

// notes is what it says before each command that runs with degrade.
func (m machine) notes() string {
	if m.abi == 0 {
		return "wall: degraded: landlock: " + lostFiles + " (" + notStarted + ")\n"
	}
	return m.notices()
}

// refusal is how wall says that it does not run a command.
func (m machine) refusal(lost, cause, origin, hint string) string {
	return "wall: error: cannot keep a promise of the profile: " + lost + ": " + cause + "\n  at " + origin + "\n  hint: " + hint + "\n"
}

// An op is something that the probe tries, and the outcomes allowed ("A|B").
// "-" is not looked at.
type op struct {
	op   string
	bare string // without a box, as root; the control
	user string // without a box, as an ordinary user; "" = the same
	gate string
	// agent is boxed by the default profile; "" = the same as gate.
	agent string
}

// fileOps are ordered: what one does, a later one may undo. $H is the home, $W
// the workspace.
var fileOps = []op{
	{"open-write $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
	{"create $H/new", "ok", "", "EROFS", "ok"},
	{"cat $H/.netrc", "ok secret", "", "EACCES", "ENOENT"},
	{"write $W/.git/config evil", "ok", "", "EROFS", ""},
	{"rename $W/a/file $W/b/file", "ok", "", "ok", ""}, // Landlock refuses it before ABI 2
	{"rename $W/b/file $W/a/file", "ok", "", "ok", ""},

	{"truncate $H/notes.txt", "ok", "", "EROFS", "ENOENT"}, // not Landlock's before ABI 3
	{"chmod $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
	{"cat $H/.ssh/id_ed25519", "ok secret", "", "EACCES", "ENOENT"},
	{"cat $W/.env", "ok secret", "", "EACCES", ""},
	{"open-write /etc/passwd", "ok", "EACCES", "EROFS|EACCES", ""},
	{"open-write /proc/sys/kernel/core_pattern", "ok", "EACCES", "EROFS|EACCES", ""},
	{"link $W/a/file $W/b/link", "ok", "", "ok", ""},
	{"truncate $W/a/file", "ok", "", "ok", ""},
	{"create /tmp/new-$U", "ok", "", "ok", ""},
	{"create /dev/shm/new-$U", "ok", "", "ok", ""},
	{"rename $W/.git/evil $W/.git/config", "ok", "", "EBUSY", ""},
	{"rename $W/.git $W/git2", "ok", "", "EBUSY", ""},
	{"mkdir $W/.wall", "ok", "", "EEXIST", ""},
	{"unlink $W/b/link", "ok", "", "ok", ""},
}

var fewFileOps = fileOps[:6]

var kernelOps = []op{
	{"mount-tmpfs $W/b", "ok", "EPERM", "EPERM", ""},
	{"open-tree /", "ok", "EPERM", "EPERM", ""},
	{"capset", "ok", "EPERM", "EPERM", ""},
	{"unshare 0x10000000", "ok", "", "EPERM", ""}, // CLONE_NEWUSER
	{"clone3 0", "ok", "", "ENOSYS", ""},
	{"io-uring", "ok", "", "EPERM|ENOSYS", ""},
	{"keyctl", "ok", "", "EPERM|ENOSYS", ""},
	{"int80", "ok", "", "signal SIGSYS", ""},
	{"ptrace 1", "-", "-", "EPERM", ""},
	{"proc-open 1 environ", "-", "-", "EACCES", ""},
	{"proc-open 1 mem", "-", "-", "EACCES", ""},
}

type user struct {
	id         int
	name, home string
}

var users = []user{{0, "root", "/root"}, {1000, "tester", "/home/tester"}}

func (u user) workspace() string { return u.home + "/project" }

// sh is a step of a shell, in the workspace.
func (u user) sh(name, script string) kernels.Step {
	return kernels.Step{Name: u.name + ": " + name, UID: u.id, Dir: u.workspace(), Argv: []string{"/bin/sh", "-c", script}}
}

// batch gives what "probe batch" reads.
func (u user) batch(ops []op) string {
	expand := strings.NewReplacer("$H", u.home, "$W", u.workspace(), "$U", u.name)
	var all [][]string
	for _, o := range ops {
		all = append(all, strings.Fields(expand.Replace(o.op)))
	}
	in, err := json.Marshal(all)
	if err != nil {
		panic(err)
	}
	return string(in)
}

// steps are the same for every machine, as far as it has the means.
func (m machine) steps() []step {
	root, tester := users[0], users[1]
	all := []step{{
		Step: kernels.Step{Name: "kernel", Dir: "/", Argv: []string{"/bin/sh", "-c", "cat /proc/mounts >/root/mounts; uname -r"}},
		check: func(out string) string {
			if !strings.HasPrefix(out, m.release) {
				return "want a kernel " + m.release
			}
			return ""
		},
	}}
	for _, u := range users {
		all = append(all, step{Step: kernels.Step{Name: u.name + ": make a home", UID: u.id, Dir: u.home, Argv: []string{"/bin/sh", "-c", `set -e
			mkdir -p .ssh project/a project/b project/.git/hooks project/.git/objects project/.git/refs
			for f in .ssh/id_ed25519 .netrc project/.env; do echo secret >$f; done
			echo notes >notes.txt
			echo file >project/a/file
			echo 'ref: refs/heads/main' >project/.git/HEAD
			echo '[core]' >project/.git/config
			echo evil >project/.git/evil`}}})
	}
	if m.modules {
		// In whatever order they need each other, until none is left.
		all = append(all, step{Step: root.sh("load modules", `cd /modules; ls | grep -q redir
			for m in *.xz; do [ ! -e "$m" ] || unxz "$m"; done
			for round in 1 2 3 4 5 6 7 8; do for m in *.ko; do [ ! -e "$m" ] || ! insmod "$m" 2>/dev/null || rm "$m"; done; done
			cd /; rmdir modules`)})
	}
	all = append(all, step{Step: tester.sh("doctor", "wall doctor --json"), code: m.doctorCode(), check: m.badDoctor})
	all = append(all, step{Step: root.sh("be a host", `ip addr add 10.5.5.5/32 dev lo; ip addr add fd00:5::5/128 dev lo
		mkdir /www; echo page >/www/index.html; httpd -p '[::]:8080' -h /www </dev/null >/dev/null 2>&1
		until wget -qO- http://10.5.5.5:8080/ >/dev/null; do sleep 0.1; done`)})
	for _, u := range users {
		if m.abi == 0 {
			all = append(all, m.withoutLandlock(u)...)
		}
		all = append(all, m.boxes(u)...)
		all = append(all, m.caches(u), m.network(u), m.late(u), m.signals(u))
		all = append(all, m.reach(u)...)
	}
	if m.abi > 0 {
		all = append(all, m.withoutUserNamespaces(root, tester)...)
	}
	all = append(all, m.limits(root, tester)...)
	if m.modules {
		all = append(all, step{Step: root.sh("one module is missing", "rmmod nft_redir; exec wall run --net allow --allow-host web.test -- echo ran"), code: 125, err: m.notices() +
			m.refusal("programs that ignore proxy variables reach no host", "an nftables rule for ip with redirect (module nft_redir): no such file or directory", "--net allow",
				"the kernel needs nftables: as root, modprobe -a nf_tables nft_chain_nat nft_redir nft_reject_ipv4 nft_reject_ipv6; \"wall doctor\" tells what is missing"+orDegrade)})
	}
	all = append(all, step{Step: root.sh("be no host", "killall httpd; rm -r /www")})
	const tree = ".\n./.env\n./.git\n./.git/HEAD\n./.git/config\n./.git/evil\n./.git/hooks\n./.git/objects\n./.git/refs\n./a\n./a/file\n./b\n[core]\n"
	all = append(all, step{
		Step: root.sh("nothing is left", `cd /
			diff /root/mounts /proc/mounts
			ps -o stat,args | grep -v ^Z | grep -E '[w]all|[p]robe' # the guest's pid 1 reaps no orphans
			find /tmp /var/tmp /dev/shm /run -mindepth 1
			for w in /root/project /home/tester/project; do cd $w; find . | sort; cat .git/config; done`),
		out: tree + tree,
	})
	if m.name == machines[0].name {
		for _, u := range users {
			all = append(all, m.control(u)) // it leaves a lot
		}
	}
	return all
}

// degrade is what boxes need where Landlock is missing.
func (m machine) degrade() string {
	if m.abi == 0 {
		return "--if-unavailable degrade "
	}
	return ""
}

// boxes are one run for each profile and view.
func (m machine) boxes(u user) []step {
	var all []step
	for _, b := range []struct {
		profile, view string
		ops           []op
	}{
		{"gate", "host", slices.Concat(fileOps, kernelOps)},
		{"gate", "system", fewFileOps},
		{"agent", "host", fewFileOps},
		{"agent", "system", fileOps},
	} {
		s := u.sh(b.profile+", view "+b.view, "exec wall run -p "+b.profile+" --view "+b.view+" "+m.degrade()+"-- sh -c 'probe posture && exec probe batch'")
		s.Stdin = u.batch(b.ops)
		all = append(all, step{Step: s, err: m.notes(), check: func(out string) string {
			d := json.NewDecoder(strings.NewReader(out))
			var p posture
			if err := d.Decode(&p); err != nil {
				return "posture: " + err.Error()
			}
			var results []string
			if err := d.Decode(&results); err != nil {
				return "batch: " + err.Error()
			}
			return badPosture(p, u) + badOps(b.ops, results, b.profile, u)
		}})
	}
	return all
}

// caches reads, changes and removes what is in a private cache, which leaves the
// user's own as it is.
func (m machine) caches(u user) step {
	s := u.sh("private caches", `
		mkdir -p ~/go/pkg/mod/d ~/.npm/_cacache
		echo old >~/go/pkg/mod/d/f; chmod 555 ~/go/pkg/mod/d; echo secret >~/.npm/token
		printf 'version = 1\nextends = "agent"\n[environment]\ncaches = ["go", "npm"]\n' >~/caches.toml
		wall run -p ~/caches.toml `+m.degrade()+`-- sh -c '
			cd $GOMODCACHE && cat d/f && chmod 755 d && echo new >d/f && cat d/f && touch d/g && rm -r d && ls -A && echo made >h && cat h
			ls -A $npm_config_cache; touch $npm_config_cache/x && { grep -c " overlay " /proc/self/mounts || :; }'
		echo $?
		cat ~/go/pkg/mod/d/f; ls ~/go/pkg/mod; ls -A ~/.npm
		chmod 755 ~/go/pkg/mod/d; rm -r ~/go ~/.npm ~/caches.toml`)
	overlays, notes := 2, m.notes()
	if m.copies != "" {
		overlays = 0
		for _, c := range [][2]string{{"go", "/go/pkg/mod"}, {"npm", "/.npm"}} {
			notes += fmt.Sprintf("wall: notice: the cache of %s is a copy inside: this host cannot make a layer over %s (%s)\n  at %s/caches.toml:4:%d\n",
				c[0], u.home+c[1], m.copies, u.home, strings.Index(`caches = ["go", "npm"]`, `"`+c[0])+1)
		}
	}
	return step{Step: s, out: fmt.Sprintf("old\nnew\nmade\n_cacache\n%d\n0\nold\nd\n_cacache\ntoken\n", overlays), err: notes}
}

// control tries the same without a box: what a box refuses works otherwise.
func (m machine) control(u user) step {
	ops := slices.Concat(fileOps, kernelOps)
	s := u.sh("control", "exec probe batch")
	s.Stdin = u.batch(ops)
	return step{Step: s, check: func(out string) string {
		var results []string
		if err := json.Unmarshal([]byte(out), &results); err != nil {
			return err.Error()
		}
		return badOps(ops, results, "bare", u)
	}}
}

// waitFor is shell text that waits for a file.
func waitFor(name string) string {
	return `n=0; while [ ! -s ` + name + ` ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; `
}

// network reaches what is allowed and nothing else: by IPv4, by IPv6 and by the
// DNS of any address, or by a proxy where connections cannot be redirected.
func (m machine) network(u user) step {
	s := u.sh("allowed hosts", `wall run `+m.degrade()+`--net allow --allow-host web.test:8080 --allow-host 10.5.5.5:8080 --allow-host '[fd00:5::5]:8080' -- sh -c '
		for to in 10.5.5.5:8080 "[fd00:5::5]:8080" 10.5.5.5:8081 10.5.5.6:8080 "[fd00:5::6]:8080"; do wget -qO- "http://$to/" 2>/dev/null || echo refused; done
		if nc -w 5 10.5.5.5 8080 </dev/null 2>/dev/null; then echo connected; else echo no way; fi
		nslookup web.test 10.9.9.9 2>/dev/null | grep -A 1 ^Name | grep -c ^Address
		nslookup other.test 10.9.9.9 2>/dev/null | grep -c NXDOMAIN
		env | grep -ci ^http_proxy; true' 2>err
		grep -v "^wall: network:" err >&2; rm err`)
	out, notes := "connected\n2\n2\n0\n", m.notes()
	if !m.modules {
		out = "no way\n0\n0\n2\n"
		notes += "wall: degraded: network: programs that ignore proxy variables reach no host (socket AF_NETLINK: protocol not supported)\n"
	}
	return step{Step: s, out: "page\npage\nrefused\nrefused\nrefused\n" + out, err: notes}
}

// late makes a file with a name that is to be hidden once the box runs: there
// was nothing to mount over, but Landlock gives rights to what was there only.
func (m machine) late(u user) step {
	want := "EACCES\n"
	if m.abi == 0 {
		want = "ok secret\n" // as the notice says
	}
	return step{Step: u.sh("a credential made after the start", `
		wall run -p gate `+m.degrade()+`-- sh -c 'echo >ready; `+waitFor("go")+`exec probe try cat ~/.pgpass' &
		`+waitFor("ready")+`
		echo secret >~/.pgpass; echo >go
		wait $!; code=$?
		rm ready go ~/.pgpass
		exit $code`), out: want, err: m.notes()}
}

// signals sends everything to pid 1 of the box, which must neither end nor
// report anything but the command's own status. Before ABI 6 nothing keeps the
// signals away, and the moment counts: from the command's first instruction on.
// Where they come too early for pid 1, one run in six or so shows it here.
func (m machine) signals(u user) step {
	return step{Step: u.sh("signals to pid 1", `
		for first in 3 6 11 15; do
			wall run -p gate `+m.degrade()+`-- sh -c "kill -$first 1 2>/dev/null; trap : 1 2 3 10 12 15; n=0; while [ \$n -lt 64 ]; do n=\$((n+1)); kill -\$n 1 2>/dev/null; done; exit 7"
			echo $?
		done`), out: "7\n7\n7\n7\n", err: strings.Repeat(m.notes(), 4)}
}

// hostNetwork is what every run with the host's network says.
const hostNetwork = "wall: notice: the network is the host's: the command reaches all that this host reaches, and the services on its loopback (network = \"host\")\n"

// reach tries an abstract socket and a port of the host.
func (m machine) reach(u user) []step {
	serve := func(wall string) string {
		return `mkfifo ~/hold; probe serve walltest <~/hold >~/ready & exec 9>~/hold; ` + waitFor("~/ready") + `
		read _ _ port <~/ready
		probe try connect-abstract walltest
		wall run ` + wall + ` -- sh -c "probe try connect-abstract walltest; probe try connect-tcp 127.0.0.1 $port" 9>&-
		code=$?
		exec 9>&-; wait; rm ~/hold ~/ready
		exit $code`
	}
	all := []step{{Step: u.sh("sockets of the host", serve(m.degrade())), out: "ok\nECONNREFUSED\nECONNREFUSED\n", err: m.notes()}}
	switch m.abi {
	case 0, 2:
		refused := m.refusal(lostScope, noABI6, "--net host", newer+"; or use --net none"+orDegrade)
		lost := "wall: degraded: landlock: " + lostScope + " (" + noABI6 + ")\n"
		if m.abi == 0 {
			refused = m.refusal(lostFiles, notStarted, baseFail, newer+orDegrade) + m.refusal(lostScope, notStarted, "--net host", newer+orDegrade)
			lost = "wall: degraded: landlock: " + lostFiles + " (" + notStarted + ")\nwall: degraded: landlock: " + lostScope + " (" + notStarted + ")\n"
		}
		all = append(all, step{Step: u.sh("net host is refused", "wall run --net host -- touch ran"+thenTell), code: 125, out: "did not run\n", err: refused})
		if u.id != 0 {
			// What is said to be lost is lost, and nothing else.
			all = append(all, step{Step: u.sh("net host, degraded", serve("--net host --if-unavailable degrade")), out: "ok\nok\nok\n", err: lost + m.notices() + hostNetwork})
		}
	default:
		all = append(all, step{Step: u.sh("net host", serve("--net host")), out: "ok\nEPERM\nok\n", err: hostNetwork})
	}
	return all
}

// thenTell ends a script with the status of wall, and tells whether "touch ran" ran.
const thenTell = `; code=$?; if [ -e ran ]; then echo ran; rm ran; else echo did not run; fi; exit $code`

// withoutLandlock is refused, unless degrading is allowed and it is not required.
func (m machine) withoutLandlock(u user) []step {
	refused := m.refusal(lostFiles, notStarted, baseFail, newer+orDegrade)
	all := []step{
		{Step: u.sh("refused", "wall run -- touch ran"+thenTell), code: 125, out: "did not run\n", err: refused},
		{Step: u.sh("refused, gate", "wall run -p gate --json ~/out.json -- touch ran"+thenTell), code: 125, out: "did not run\n", err: refused},
		{Step: u.sh("refused, result", "cat ~/out.json; rm ~/out.json"), check: func(out string) string {
			return badResult(out, result{Status: "not-run", Exit: 125, Degraded: []string{}, Error: &resultError{
				Op: "cannot keep a promise of the profile: " + lostFiles, Cause: notStarted, Origin: baseFail, Hint: newer + orDegrade}})
		}},
		{Step: u.sh("degraded", "wall run --if-unavailable degrade --json ~/out.json -- touch ran"+thenTell), out: "ran\n", err: m.notes()},
		{Step: u.sh("degraded, result", "cat ~/out.json; rm ~/out.json"), check: func(out string) string {
			return badResult(out, result{Status: "exited", Degraded: []string{"landlock: " + lostFiles + " (" + notStarted + ")"}})
		}},
		{Step: u.sh("required", `printf 'version = 1\nextends = "gate"\nif-unavailable = "degrade"\nrequire = ["landlock"]\n' >~/p.toml
			wall run -p ~/p.toml -- touch ran`+thenTell), code: 125, out: "did not run\n", err: m.refusal(lostFiles, notStarted, u.home+"/p.toml:4:12: require = [\"landlock\"]", newer+"; the profile requires this wall")},
	}
	return all
}

// withoutUserNamespaces turns them off in the two ways that Debian's kernels have.
func (m machine) withoutUserNamespaces(root, tester user) []step {
	set := func(name, value string) step {
		return step{Step: root.sh(name+" = "+value, "echo "+value+" >/proc/sys/"+name)}
	}
	refused := func(u user, name, flags, err string) step {
		return step{Step: u.sh(name, "wall run -p gate "+flags+"-- touch ran"+thenTell), code: 125, out: "did not run\n", err: err}
	}
	const all, ordinary = "user/max_user_namespaces", "kernel/unprivileged_userns_clone"
	return []step{
		set(all, "0"),
		refused(root, "no user namespaces", "", m.notices()+noSpaces),
		refused(tester, "no user namespaces", "", m.notices()+noSpaces),
		refused(tester, "no user namespaces, degrading", "--if-unavailable degrade ", m.notices()+noSpaces),
		set(all, "1000"),
		set(ordinary, "0"),
		refused(tester, "no unprivileged user namespaces", "", m.notices()+noPermission),
		refused(tester, "no unprivileged user namespaces, degrading", "--if-unavailable degrade ", m.notices()+noPermission),
		{Step: root.sh("no unprivileged user namespaces", "wall run -p gate -- touch ran"+thenTell), out: "ran\n", err: m.notices()},
		set(ordinary, "1"),
	}
}

// limits are kept by cgroups of version 2: for root in the first group of all, for
// the ordinary user below one that was delegated, as systemd delegates to its users' services.
func (m machine) limits(root, tester user) []step {
	const groups = "/sys/fs/cgroup"
	all := []step{
		{Step: root.sh("controllers on, and a group delegated", `cd `+groups+`
			echo +memory +pids >cgroup.subtree_control
			mkdir -p user/session
			chown tester user user/cgroup.procs user/cgroup.subtree_control user/session user/session/cgroup.procs`)},
		// Not in it, the user has none.
		{Step: tester.sh("limit without a cgroup", "wall run "+m.degrade()+"--limit processes=50 -- echo ran"), out: "ran\n", err: m.notes()},
	}
	for _, u := range []user{root, tester} {
		// in runs a script as u, in the group that is u's.
		in := func(name, script string) step {
			if u.id == 0 {
				return step{Step: root.sh(name, script)}
			}
			s := root.sh(name, "echo $$ >"+groups+"/user/session/cgroup.procs; cd "+u.workspace()+"; exec su tester -c '"+strings.ReplaceAll(script, "'", `'\''`)+"'")
			s.Name = u.name + ": " + name
			return step{Step: s}
		}
		over := func(name, flag, told string, script string) step {
			s := in("limit of "+name, "wall run "+m.degrade()+"--json ~/out.json --limit "+flag+" -- sh -c \""+script+"\"; code=$?; grep -E \"limit|peak|status\" ~/out.json | grep -v error; rm ~/out.json; exit $code")
			s.code = 123
			s.err = m.notes() + "wall: error: the box was ended because " + told + "\n  at --limit " + flag + "\n  hint: raise it with --limit " + name + "=..., if the command is right to need more\n"
			s.check = func(out string) string {
				if !strings.Contains(out, `"status": "limit"`) || !strings.Contains(out, `"limit": "`+name+`"`) || name == "memory" && strings.Contains(out, "ran on") {
					return "want a result that names the limit"
				}
				// memory.peak is there since Linux 5.19.
				if name == "memory" && !regexp.MustCompile(`"peak_memory_bytes": [345][0-9]{7},`).MatchString(out) {
					return "want a peak of about 48 MiB"
				}
				return ""
			}
			return s
		}
		all = append(all,
			over("memory", "memory=48MiB", "it needed more memory than 48MiB", "dd if=/dev/zero of=/dev/shm/x bs=1M count=100 2>/dev/null; echo ran on; sleep 20"),
			over("processes", "processes=30", "it was to have more than 30 processes and threads", "(i=0; while [ \\$i -lt 100 ]; do sleep 20 & i=\\$((i+1)); done) 2>/dev/null; echo ran on; sleep 20"),
		)
		inside := in("limits not reached", "wall run "+m.degrade()+"--limit memory=200MiB --limit processes=30 -- cat /proc/self/cgroup")
		inside.err = m.notes()
		inside.check = func(out string) string {
			// Relative to the caller's group, in which the box's namespace has its root.
			if !regexp.MustCompile(`^0::/(\.\./)?wall-[0-9a-f]{16}/box\n$`).MatchString(out) {
				return "want the group of the run"
			}
			return ""
		}
		all = append(all, inside)
		killed := in("a cgroup left by SIGKILL", "wall run "+m.degrade()+"--limit memory=200MiB -- sh -c \"echo >ready; sleep 20\" 2>/dev/null & pid=$!; "+waitFor("ready")+`
			kill -9 $pid; wait $pid 2>/dev/null; rm ready
			n=0; while ls -d `+groups+`/wall-*/box `+groups+`/user/wall-*/box 2>/dev/null | while read d; do cat $d/cgroup.procs; done | grep -q . && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done
			ls -d `+groups+`/wall-* `+groups+`/user/wall-* 2>/dev/null | wc -l
			wall scratch gc >/dev/null
			ls -d `+groups+`/wall-* `+groups+`/user/wall-* 2>/dev/null | wc -l`)
		killed.out = "1\n0\n"
		killed.check = func(out string) string {
			if out != "1\n0\n" {
				return "want one group, and none after gc"
			}
			return ""
		}
		all = append(all, killed)
	}
	return append(all, step{Step: root.sh("no cgroup is left", "ls -d "+groups+"/wall-* "+groups+"/user/wall-* 2>/dev/null; rmdir "+groups+"/user/session "+groups+"/user")})
}

// A result is what --json wrote, as far as it matters here.
type result struct {
	Status   string
	Exit     int
	Degraded []string
	Error    *resultError
}

type resultError struct{ Op, Cause, Origin, Hint string }

func badResult(out string, want result) string {
	var got result
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return err.Error()
	}
	if got.Error != nil {
		got.Error.Origin = lineNumber.ReplaceAllString(got.Error.Origin, "$1:N")
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("result %+v %+v\nwant   %+v %+v", got, got.Error, want, want.Error)
	}
	return ""
}

// doctorCode is doctor's exit status.
func (m machine) doctorCode() int {
	if m.abi == 0 {
		return 1
	}
	return 0
}

// badDoctor reads doctor --json: everything is there, except Landlock where it is off.
func (m machine) badDoctor(out string) string {
	var d struct {
		OK       bool
		Findings []struct {
			Name, Detail, Remedy string
			OK                   bool
		}
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		return err.Error()
	}
	var bad strings.Builder
	if d.OK != (m.abi > 0) {
		fmt.Fprintf(&bad, "ok is %v\n", d.OK)
	}
	if len(d.Findings) < 15 {
		fmt.Fprintf(&bad, "only %d findings\n", len(d.Findings))
	}
	for _, f := range d.Findings {
		switch {
		case f.Name == "landlock":
			detail, remedy := fmt.Sprintf("ABI %d", m.abi), ""
			switch m.abi {
			case 0:
				detail, remedy = notStarted, "boot with lsm=landlock in front of the other modules, on Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK; or accept the loss with --if-unavailable degrade"
			case 2:
				detail += "; signals and abstract sockets are scoped from ABI 6 (Linux 6.12) on, until then by namespaces alone"
			}
			if f.OK != (m.abi > 0) || f.Detail != detail || f.Remedy != remedy {
				fmt.Fprintf(&bad, "landlock: %+v, want %q, remedy %q\n", f, detail, remedy)
			}
		case f.Name == "overlays, for caches" || strings.HasPrefix(f.Name, "redirection"):
			if f.OK != m.modules || f.OK != (f.Remedy == "") {
				fmt.Fprintf(&bad, "%+v, want ok %v\n", f, m.modules)
			}
		case f.Name == "limit of memory (cgroup)": // nothing is delegated yet
			if f.OK || !strings.Contains(f.Remedy, "enable-linger") {
				fmt.Fprintf(&bad, "%+v\n", f)
			}
		case f.Name == "custom seccomp filters": // the build's matter
		case !f.OK || f.Remedy != "":
			fmt.Fprintf(&bad, "%+v\n", f)
		}
	}
	return bad.String()
}

// badOps compares the outcomes of ops.
func badOps(ops []op, results []string, column string, u user) string {
	if len(results) != len(ops) {
		return fmt.Sprintf("%d results for %d operations\n", len(results), len(ops))
	}
	var bad strings.Builder
	for i, o := range ops {
		want := o.gate
		switch {
		case column == "bare" && u.id != 0 && o.user != "":
			want = o.user
		case column == "bare":
			want = o.bare
		case column == "agent" && o.agent != "":
			want = o.agent
		}
		if want != "-" && !slices.Contains(strings.Split(want, "|"), results[i]) {
			fmt.Fprintf(&bad, "%s: %s, want %s\n", o.op, results[i], want)
		}
	}
	return bad.String()
}

// A posture is what the probe says of itself, as far as the kernel's version
// could matter; package integration compares all of it on the host's kernel.
type posture struct {
	UID, GID       []int
	UIDMap, GIDMap string
	Threads        []map[string]string
	Pid1           []map[string]string
	Processes      []string
	Interfaces     []map[string]any
	Routes         int
	Hostname       string
	Cwd            string
	HasTTY         bool
	Proc1          map[string]string
	Dev            []string
}

func badPosture(got posture, u user) string {
	const none = "0000000000000000"
	id := []int{u.id, u.id, u.id, u.id}
	want := posture{
		UID: id, GID: id, UIDMap: fmt.Sprintf("%d %d 1", u.id, u.id), GIDMap: fmt.Sprintf("%d %d 1", u.id, u.id),
		Threads:    []map[string]string{{"CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2"}},
		Pid1:       []map[string]string{{"CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none}},
		Processes:  []string{"1 wall-init", "probe", "sh"},
		Interfaces: []map[string]any{{"Name": "lo", "Up": true, "Addrs": []any{"127.0.0.1/8", "::1/128"}}},
		Hostname:   "guest",
		Cwd:        u.workspace(),
		Proc1: map[string]string{
			"environ": "EACCES", "mem": "EACCES", "maps": "EACCES", "auxv": "EACCES", "stack": "EACCES", "syscall": "EACCES", "io": "EACCES",
			"root": "EACCES", "cwd": "EACCES", "exe": "EACCES", "cmdline": "wall-init",
		},
		Dev: []string{"fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"},
	}
	if u.id == 0 {
		want.Proc1["syscall"] = "EPERM" // mode 0400: root may open it, but not read pid 1
	}
	var bad strings.Builder
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if !reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			fmt.Fprintf(&bad, "%s: %v, want %v\n", g.Type().Field(i).Name, g.Field(i), w.Field(i))
		}
	}
	return bad.String()
}
