package integration_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// planted matches every word that nonce makes.
var planted = regexp.MustCompile(`walltest[0-9a-f]{16}`)

// A plantation is a caller with a sentinel in every input that can carry a
// value of a variable, and the box for it.
type plantation struct {
	*box
	dir    string          // outside of the workspace: profiles, sources, results
	config string          // where the store is, and all that wall keeps with it
	words  map[string]bool // those that the command shall have
	holds  map[string]bool // files that hold sentinels because the test put them there
}

// profileText is a profile with a sentinel in every kind of value.
const profileText = `version = 1
name = "planted"
extends = "agent"
[environment]
base = "session"
scrub = %q
allow = ["ALLOWED", "APP_*"]
deny = ["CI"]
pass = ["PASSED", "UNSET", "PATH"]
auth = "ANTHROPIC_API_KEY"
inject = true
[environment.set]
SET = %q
LD_LIBRARY_PATH = %q
HOME = %q
FROM_FILE = { file = %q }
FROM_ENV = { env = "OTHER_NAME" }
FROM_COMMAND = { command = ["/bin/sh", "-c", "cat %s; cat %s >&2"] }
`

// plant makes a plantation.
func plant(t *testing.T, mode string) *plantation {
	t.Helper()
	p := &plantation{box: newBox(t, ""), dir: tempDir(t), words: map[string]bool{}, holds: map[string]bool{}}
	word := func() string {
		w := nonce()
		p.words[w] = true
		return w
	}
	file := func(name, content string) string {
		path := filepath.Join(p.dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p.holds[path] = true
		return path
	}
	p.profile = file("planted.toml", fmt.Sprintf(profileText, mode, word(), word(), nonce(),
		file("secret", word()+"\n"), file("printed", word()), file("complained", nonce())))
	p.env = ambientEnv(
		store(t, map[string]string{"INJECTED": word(), "TMPDIR": nonce()}),
		"ALLOWED="+word(), "PASSED="+word(), "OTHER_NAME="+word(), "APP_TOKEN="+nonce(), "MAKEFLAGS=w --jobserver-auth="+nonce(),
		"SANDBOX_SHELL_SCRUB="+nonce(), "SANDBOX_TERMINAL_SCRUB="+nonce(), "SANDBOX_ENV_ALLOW=A="+nonce(), "SANDBOX_ENV_DENY=="+nonce(),
		"PWD=/"+nonce(), "NO_COLOR="+nonce(), nonce(), "="+nonce(), "GOTRACEBACK=crash",
	)
	_, config, _ := strings.Cut(p.env[slices.IndexFunc(p.env, func(e string) bool { return strings.HasPrefix(e, "XDG_CONFIG_HOME=") })], "=")
	p.config = config
	p.flags = []string{"--env", "FLAG=" + word(), "--env=PYTHONPATH=" + word(), "--pass", "GH_TOKEN"}
	return p
}

// wall runs one command line of wall and refuses sentinels in what it prints.
func (p *plantation) wall(args ...string) result {
	p.t.Helper()
	cmd := exec.Command(wallBin, args...)
	cmd.Dir, cmd.Env = p.ws, p.env
	r := finish(p.t, cmd)
	p.clean("wall "+strings.Join(args, " ")+": standard output", r.out)
	p.clean("wall "+strings.Join(args, " ")+": standard error", r.err)
	return r
}

func (p *plantation) clean(what, text string) {
	p.t.Helper()
	for _, line := range strings.Split(text, "\n") {
		if w := planted.FindString(line); w != "" {
			p.t.Errorf("%s shows a value:\n%.400s", planted.ReplaceAllString(what, "VALUE"), line)
		}
	}
}

// runArgs gives the arguments of a verb with the flags of the plantation.
func (p *plantation) runArgs(verb string, more ...string) []string {
	args := []string{verb, "-p", p.profile, "--workspace", p.ws, "--scratch-root", p.scratch, "--ro", filepath.Dir(probeBin)}
	return append(append(args, p.flags...), more...)
}

// TestEnvValuesNowhere: a value of a variable, wherever it comes from, is in the
// environment of the command and nowhere else: in no output of any command of
// wall, whether it works or fails, in no file that is left, in no argument list.
// Promise 15.
func TestEnvValuesNowhere(t *testing.T) {
	for _, mode := range []string{"strict", "deny-secrets", "off"} {
		t.Run(mode, func(t *testing.T) {
			p := plant(t, mode)
			result, status := filepath.Join(p.dir, "result.json"), filepath.Join(p.dir, "status")
			const usage = 99 // of the probe, which is linked statically and prints nothing of its environment

			// The control: all that shall get inside does.
			cmd := exec.Command(wallBin, p.runArgs("run", "--", probeBin, "environ")...)
			cmd.Dir, cmd.Env = p.ws, p.env
			r := finish(t, cmd)
			p.clean("wall run: standard error", r.err)
			inside := strings.Join(slices.Collect(maps.Values(environOf(t, r))), " ")
			for w := range p.words {
				if !strings.Contains(inside, w) {
					t.Errorf("%s did not reach the command", w)
				}
			}

			statusFile, err := os.Create(status)
			if err != nil {
				t.Fatal(err)
			}
			defer statusFile.Close()
			cmd = exec.Command(wallBin, p.runArgs("run", "--explain", "--json", result, "--status-fd", "3", "--", probeBin)...)
			cmd.Dir, cmd.Env, cmd.ExtraFiles = p.ws, p.env, []*os.File{statusFile}
			if r := finish(t, cmd); r.code != usage {
				t.Errorf("exit status %d: %s", r.code, r.err)
			} else {
				p.clean("wall run --explain", r.out+r.err)
			}
			for _, tt := range []struct {
				args []string
				code int
			}{
				{p.runArgs("plan", "--", probeBin), 0},
				{p.runArgs("plan", "--json", "--", probeBin), 0},
				{p.runArgs("run", "--enforce", "off", "--explain", "--", probeBin), usage},
				{p.runArgs("run", "--keep", "--", probeBin), usage},
				{p.runArgs("run", "--", "/nonexistent"), 127},
				{p.runArgs("run", "--", "not-in-path"), 127},
				{p.runArgs("run", "--", "/etc/passwd"), 126},
				{p.runArgs("run", "--ro", "/nonexistent", "--", probeBin), 125},
				{[]string{"run", "-p", "shell", "--ro", filepath.Dir(probeBin), "--", probeBin}, usage},
				{[]string{"run", "-p", "terminal", "--ro", filepath.Dir(probeBin), "--explain", "--", probeBin}, usage},
				{[]string{"plan", "-p", "gate", "--env", nonce(), "--", probeBin}, 2},
				{[]string{"run", "-p", "gate", "--env", nonce(), "--", probeBin}, 125},
				{[]string{"run", "-p", "gate", "--env", "=" + nonce(), "--", probeBin}, 125},
				{[]string{"run", "-p", "gate", "--env", "1X=" + nonce(), "--", probeBin}, 125},
				{[]string{"run", "-p", "gate", "--env=A B=" + nonce(), "--", probeBin}, 125},
				{[]string{"run", "-p", "gate", "--pass", "A=" + nonce(), "--", probeBin}, 125},
				{[]string{"run", "-p", "gate", "--env", "A=" + nonce(), "--nonsense", "--", probeBin}, 125},
				{[]string{"profile", "show", "--resolved", p.profile}, 0},
				{[]string{"profile", "show", "--resolved", "--json", p.profile}, 0},
				{[]string{"profile", "explain", "--json", "-p", p.profile}, 0},
				{[]string{"profile", "explain", "-p", p.profile}, 0},
				{[]string{"profile", "explain", "-p", p.profile, "environment.set"}, 0},
				{[]string{"profile", "check", p.profile}, -1},
				{[]string{"profile", "check", "--json", p.profile}, -1},
				{[]string{"profile", "diff", "gate", p.profile}, -1},
				{[]string{"profile", "list"}, 0},
				{p.runArgs("gate", "--", probeBin), usage},
				{p.runArgs("gate", "--json", "-", "--", probeBin), usage},
				{p.runArgs("gate", "--json", filepath.Join(p.dir, "gate.json"), "--junit", filepath.Join(p.dir, "gate.xml"), "--log", filepath.Join(p.dir, "gate.log"), "--", probeBin), usage},
				{p.runArgs("gate", "--", "/nonexistent"), 127},
				{p.runArgs("env"), 0},
				{[]string{"env", "preview", "-p", p.profile, "--json", "--env", "A=" + nonce()}, 0},
				{[]string{"env", "preview", "--surface", "terminal"}, 0},
				{[]string{"env", "preview", "--env", nonce()}, 2},
				{[]string{"env", "list"}, 0},
				{[]string{"env", "list", "--json"}, 0},
				{[]string{"env", "set", "STORED=" + nonce()}, 0},
				{[]string{"env", "set", "STORED=" + nonce(), nonce()}, 2},
				{[]string{"env", "set", "STORED=" + nonce(), "=" + nonce()}, 2},
				{[]string{"env", "set", "1X=" + nonce()}, 2},
				{[]string{"env", "set", "A B=" + nonce(), "LD_PRELOAD=" + nonce()}, 2},
				{[]string{"env", "set", "LD_AUDIT=" + nonce()}, 0},
				{[]string{"env", "unset", "LD_AUDIT"}, 0},
				{[]string{"env", "restore"}, 2},
				{[]string{"doctor"}, -1},
				{[]string{"doctor", "--json"}, -1},
			} {
				if r := p.wall(tt.args...); r.code != tt.code && (tt.code >= 0 || r.code == 2) { // -1: whatever is found
					t.Errorf("wall %s ends with %d, not %d\n%s", planted.ReplaceAllString(strings.Join(tt.args, " "), "VALUE"), r.code, tt.code, r.err)
				}
			}
			// A shell complains of a locale and a library that are none, the latter by ld.so.
			p.env = append(slices.DeleteFunc(slices.Clone(p.env), func(e string) bool {
				return strings.HasPrefix(e, "LC_") || strings.HasPrefix(e, "LANG") || strings.HasPrefix(e, "LD_")
			}), "LC_ALL=C")
			p.profile = "shell"
			if r := p.wall(p.runArgs("shell")...); r.code != 0 {
				t.Errorf("wall shell ends with %d\n%s", r.code, r.err)
			}
			p.searchFiles()
		})
	}
}

// searchFiles looks for sentinels in every file below the directories of the
// test and in wall's own of this user.
func (p *plantation) searchFiles() {
	p.t.Helper()
	found := 0 // where the test put them: so the search works
	for _, root := range []string{filepath.Dir(filepath.Dir(p.ws)), fmt.Sprintf("/tmp/wall-%d", os.Getuid()), "/dev/shm"} {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			if planted.MatchString(path) {
				p.t.Errorf("the name %s holds a value", path)
			}
			if info, err := d.Info(); err != nil || !d.Type().IsRegular() || info.Size() > 64<<20 && !strings.HasPrefix(d.Name(), "core") {
				return nil
			}
			data, err := os.ReadFile(path)
			switch {
			case err != nil || !planted.Match(data):
			case p.holds[path], strings.HasPrefix(path, p.config+"/"):
				found++
			default:
				p.t.Errorf("%s holds a value", path)
			}
			return nil
		})
	}
	if found < 4 {
		p.t.Errorf("the search found only %d of the files that the test made", found)
	}
}

// TestEnvValuesInErrors: what is wrong with a profile, a store or a source is
// said without the values that stand there.
func TestEnvValuesInErrors(t *testing.T) {
	p := plant(t, "strict")
	head := "version = 1\nname = \"broken\"\nextends = \"agent\"\n"
	for name, text := range map[string]string{
		"no end":        head + "[environment]\nset = { A = \"" + nonce() + " }\n",
		"no quotes":     head + "[environment]\nset = { A = " + nonce() + " }\n",
		"list":          head + "[environment]\nset = { A = [\"" + nonce() + "\"] }\n",
		"list of pairs": head + "[environment]\nset = [\"A=" + nonce() + "\"]\n",
		"text":          head + "[environment]\nset = \"" + nonce() + "\"\n",
		"bad name":      head + "[environment]\nset = { \"1 A\" = \"" + nonce() + "\" }\n",
		"twice":         head + "[environment]\nset = { A = \"" + nonce() + "\", A = \"" + nonce() + "\" }\n",
		"unknown key":   head + "[environment]\nsett = { A = \"" + nonce() + "\" }\n",
		"after":         head + "[environment]\nset = { A = \"" + nonce() + "\" } x\n",
		"pass":          head + "[environment]\npass = [\"A=" + nonce() + "\"]\n",
		"auth":          head + "[environment]\nauth = \"A=" + nonce() + "\"\n",
		"allow":         head + "[environment]\nallow = [\"A=" + nonce() + "\"]\n",
		"NUL":           head + "[environment]\nset = { A = \"\\u0000" + nonce() + "\" }\n",
		"dotted":        head + "environment.set.A.b = \"" + nonce() + "\"\n",
		"many lines":    head + "[environment]\nset = { A = \"\"\"" + nonce() + "\n" + nonce() + "\"\"\", B = 1 }\n",
		"bad source":    head + "[environment]\nset = { A = { fil = \"" + nonce() + "\" } }\n",
		"two sources":   head + "[environment]\nset = { A = { env = \"B\", file = \"/" + nonce() + "\" } }\n",
	} {
		t.Run("profile, "+name, func(t *testing.T) {
			q := *p
			b := *p.box
			b.t = t
			q.box = &b
			file := filepath.Join(p.dir, "broken.toml")
			write(t, file, text)
			p.holds[file] = true
			for _, args := range [][]string{
				{"run", "-p", file, "--", probeBin}, {"plan", "-p", file, "--", probeBin}, {"profile", "check", file}, {"profile", "check", "--json", file},
				{"profile", "show", "--resolved", file}, {"profile", "explain", "-p", file, "environment.set"}, {"profile", "diff", "gate", file},
			} {
				if r := q.wall(args...); r.code == 0 {
					t.Errorf("wall %v accepts it", args)
				}
			}
		})
	}
	// The same in the workspace, where nobody trusts it.
	project := filepath.Join(p.ws, ".wall", "own.toml")
	write(t, project, head+"[environment]\nset = { A = \""+nonce()+"\", LD_PRELOAD = \""+nonce()+"\" }\n")
	p.holds[project] = true
	for _, args := range [][]string{{"run", "-p", "own", "--", probeBin}, {"plan", "-p", "own", "--", probeBin}, {"profile", "check", "."}, {"trust", project}} {
		p.wall(args...)
	}
	if err := os.RemoveAll(filepath.Dir(project)); err != nil {
		t.Fatal(err)
	}

	for name, content := range map[string]string{
		"cut short":  `{"version": 1, "variables": [{"name": "A", "value": "` + nonce(),
		"bad name":   `{"version": 1, "variables": [{"name": "1 A", "value": "` + nonce() + `"}]}`,
		"member":     `{"version": 1, "variables": [{"name": "A", "value": "` + nonce() + `", "` + nonce() + `": 1}]}`,
		"twice":      `{"version": 1, "variables": [{"name": "A", "value": "` + nonce() + `"}, {"name": "A", "value": "x"}]}`,
		"other JSON": `["` + nonce() + `"]`,
		"no JSON":    "A=" + nonce() + "\n",
		"version":    `{"version": "` + nonce() + `", "variables": []}`,
	} {
		t.Run("store, "+name, func(t *testing.T) {
			q := *p
			b := *p.box
			b.t = t
			q.box = &b
			config := tempDir(t)
			write(t, config+"/wall/injected.json", content)
			q.config = config
			q.env = append(slices.Clone(p.env), "XDG_CONFIG_HOME="+config)
			for _, args := range [][]string{{"env", "list"}, {"env", "set", "B=" + nonce()}, {"env", "unset", "A"}, {"env", "restore"}, {"env", "preview", "-p", p.profile}} {
				if r := q.wall(args...); r.code != 2 || !strings.Contains(r.err, "injected.json") {
					t.Errorf("wall %v ends with %d\n%s", args[:2], r.code, r.err)
				}
			}
			if data := read(t, config+"/wall/injected.json"); data != content {
				t.Error("the damaged store was changed")
			}
			for _, verb := range []string{"run", "plan"} {
				if r := q.wall(p.runArgs(verb, "--", probeBin)...); r.code != 125 || !strings.Contains(r.err, "injected.json") {
					t.Errorf("wall %s ends with %d\n%s", verb, r.code, r.err)
				}
			}
		})
	}

	huge := filepath.Join(p.dir, "huge")
	write(t, huge, strings.Repeat(nonce(), 100000))
	nul := filepath.Join(p.dir, "nul")
	write(t, nul, nonce()+"\x00"+nonce())
	p.holds[huge], p.holds[nul] = true, true
	for name, source := range map[string]string{
		"file with NUL":        fmt.Sprintf("{ file = %q }", nul),
		"file of 2 MB":         fmt.Sprintf("{ file = %q }", huge),
		"command that fails":   fmt.Sprintf(`{ command = ["/bin/sh", "-c", "cat %s; cat %s >&2; exit 1"] }`, nul, nul),
		"command with NUL":     fmt.Sprintf(`{ command = ["/bin/cat", %q] }`, nul),
		"command with 2 MB":    fmt.Sprintf(`{ command = ["/bin/cat", %q] }`, huge),
		"command that is none": fmt.Sprintf(`{ command = [%q] }`, nul),
		"variable not set":     `{ env = "NOT_SET" }`,
		"empty variable":       `{ env = "EMPTY" }`,
	} {
		t.Run("source, "+name, func(t *testing.T) {
			q := *p
			b := *p.box
			b.t = t
			q.box = &b
			file := filepath.Join(p.dir, "source.toml")
			write(t, file, head+"[environment]\nset = { A = "+source+" }\n")
			if r := q.wall("run", "-p", file, "--workspace", p.ws, "--", "/bin/sh", "-c", "echo ran"); r.code != 125 || r.out != "" {
				t.Errorf("exit status %d\n%s%s", r.code, r.out, r.err)
			}
		})
	}
	p.searchFiles()
}

// TestEnvValuesInProc: while a box runs, no argument list of its processes shows
// a value, and no other user sees an environment. When its launcher or its first
// process crashes, no dump of the memory is left, and the text of the crash
// shows no value.
func TestEnvValuesInProc(t *testing.T) {
	for _, tt := range []struct {
		victim    string
		sig       syscall.Signal
		traceback string // "crash": the Go runtime has the kernel dump the memory, after ten seconds
	}{
		{"launcher", unix.SIGABRT, "crash"},
		{"launcher", unix.SIGSEGV, "all"},
		{"first process", unix.SIGABRT, "crash"},
		{"first process", unix.SIGSEGV, "all"},
	} {
		t.Run(tt.victim+"/"+unix.SignalName(tt.sig), func(t *testing.T) {
			t.Parallel() // they wait
			p := plant(t, "off")
			p.env = slices.DeleteFunc(p.env, func(e string) bool {
				return strings.HasPrefix(e, "LD_PRELOAD=") || strings.HasPrefix(e, "GOTRACEBACK=") // the former makes ld.so complain
			})
			p.env = append(p.env, "GOTRACEBACK="+tt.traceback)
			// With as much of a dump as this machine allows.
			args := append([]string{"-c", `ulimit -c "$(ulimit -Hc)"; exec "$@"`, "sh", wallBin}, p.runArgs("run", "--", "/bin/sh", "-c", "echo up; read x")...)
			cmd := exec.Command("/bin/sh", args...)
			cmd.Dir, cmd.Env = p.ws, p.env
			var text bytes.Buffer
			cmd.Stderr = &text
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
			defer in.Close()
			if n, err := out.Read(make([]byte, 8)); n != 3 {
				t.Fatalf("the command did not start: %v", err)
			}
			first := childrenOf(cmd.Process.Pid)
			if len(first) != 1 {
				t.Fatalf("children %v", first)
			}
			for _, pid := range append(first, cmd.Process.Pid) {
				p.watchProc(pid)
			}
			for _, pid := range childrenOf(first[0]) {
				// The command's environment is its own; others do not see it either.
				data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if err != nil || planted.Match(data) {
					t.Errorf("the argument list of the command: %q, %v", data, err)
				}
				if os.Getuid() == 0 {
					p.watchProc(pid)
				}
			}

			pid := cmd.Process.Pid
			if tt.victim != "launcher" {
				pid = first[0]
			}
			if err := unix.Kill(pid, tt.sig); err != nil {
				t.Fatal(err)
			}
			if tt.victim != "launcher" {
				in.Close() // it ignores the signals of programming errors; then the command ends
			}
			err = cmd.Wait()
			state := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if tt.victim == "launcher" && err == nil {
				t.Error("the launcher survives")
			}
			if state.CoreDump() {
				t.Error("the launcher dumped its memory")
			}
			p.clean("the text of the crash", text.String())
			_ = filepath.WalkDir(filepath.Dir(filepath.Dir(p.ws)), func(path string, d fs.DirEntry, err error) error {
				if err == nil && strings.HasPrefix(d.Name(), "core") {
					t.Errorf("a memory dump is left: %s", path)
				}
				return nil
			})
			p.searchFiles()
		})
	}
}

// watchProc looks at what another user sees of a process; as an ordinary user,
// who cannot be another, at what this one sees.
func (p *plantation) watchProc(pid int) {
	p.t.Helper()
	for _, name := range []string{"cmdline", "environ", "comm", "status", "stat"} {
		path := "/proc/" + strconv.Itoa(pid) + "/" + name
		data, err := readAs(65534, path)
		switch {
		case name == "environ" && err == nil && len(data) > 0:
			p.t.Errorf("%s can be read", path)
		case name == "cmdline" && err != nil:
			p.t.Errorf("%s: %v", path, err)
		}
		if planted.Match(data) {
			p.t.Errorf("%s shows a value:\n%.400q", path, data)
		}
	}
}

// readAs reads a file on a thread with another user id, when this process is
// root's.
func readAs(uid int, path string) (data []byte, err error) {
	if os.Getuid() != 0 {
		return os.ReadFile(path)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked, so that the thread ends with this
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			err = e
			return
		}
		data, err = os.ReadFile(path)
	}()
	<-done
	return data, err
}

// TestEnvValuesControl: the search of the test above finds what is there to find.
func TestEnvValuesControl(t *testing.T) {
	need(t, "userns")
	word := nonce()
	cmd := exec.Command(probeBin, "idle", word)
	cmd.Env = []string{"SECRET=" + nonce()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	path := fmt.Sprintf("/proc/%d/", cmd.Process.Pid)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		data, err := readAs(65534, path+"cmdline")
		if err == nil && strings.Contains(string(data), word) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the argument list of another process: %q, %v", data, err)
		}
	}
	data, err := os.ReadFile(path + "environ")
	if err != nil || !planted.Match(data) {
		t.Errorf("its environment: %q, %v", data, err)
	}
	if os.Getuid() == 0 {
		if _, err := readAs(65534, path+"environ"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("another user reads the environment: %v", err)
		}
	}
}
