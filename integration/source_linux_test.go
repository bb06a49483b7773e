package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Values that a profile names by their place. Promises 5 and 15.

// sourceBox is a box whose profile has these lines in the table of fixed variables;
// dir is where the profile lies and nothing inside can write.
func sourceBox(t *testing.T, enforce string, lines ...string) (b *box, dir string) {
	t.Helper()
	dir = tempDir(t)
	b = newBox(t, filepath.Join(dir, "own.toml"))
	text := "version = 1\nname = \"own\"\nextends = \"gate\"\nenforce = \"" + enforce + "\"\n[environment.set]\n" + strings.Join(lines, "\n") + "\n"
	write(t, b.profile, strings.ReplaceAll(text, "DIR", dir))
	b.env = []string{"PATH=/usr/bin:/bin"}
	return b, dir
}

// program writes a shell script, complete before it has its name, so that no other test's
// child has it open for writing when it is executed.
func program(t *testing.T, path, script string) {
	t.Helper()
	write(t, path+".new", "#!/bin/sh\n"+script+"\n")
	if err := os.Chmod(path+".new", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestSourceValues: the command has the values, and nothing else on the host shows them:
// no output, plan, record, argument list, environment of another process, or file.
func TestSourceValues(t *testing.T) {
	for _, enforce := range []string{"fs+net", "fs", "off"} {
		t.Run(enforce, func(t *testing.T) {
			b, dir := sourceBox(t, enforce,
				`FROM_FILE = { file = "secret" }`,
				`FROM_ENV = { env = "OTHER_NAME" }`,
				`FROM_COMMAND = { command = ["DIR/program", "a b", "$HOME"] }`,
				`PLAIN = "plain"`)
			fromFile, fromEnv, halves := nonce(), nonce(), []string{nonce(), nonce()}
			fromCommand := halves[0] + "|a b|$HOME|" + halves[1]
			write(t, dir+"/secret", fromFile+"\n")
			program(t, dir+"/program", `printf '%s|' `+halves[0]+` "$@"; echo `+halves[1]+`; echo `+halves[0]+` >&2`)
			b.env = append(b.env, "OTHER_NAME="+fromEnv)
			record := dir + "/record.json"
			b.flags = []string{"--json", record, "--explain"}

			cmd := b.cmd("/bin/sh", "-c", `printf '%s\n' "$FROM_FILE" "$FROM_ENV" "$FROM_COMMAND" "$PLAIN"; echo "${OTHER_NAME-unset}"; read x`)
			var errs strings.Builder
			cmd.Stderr = &errs
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
			var got strings.Builder
			want := strings.Join([]string{fromFile, fromEnv, fromCommand, "plain", "unset"}, "\n") + "\n"
			_, err = io.CopyN(&got, out, int64(len(want)))
			if err != nil || got.String() != want {
				t.Errorf("inside: %q %v, want %q", got.String(), err, want)
			}
			// While the command waits: who else shows a value?
			values := []string{fromFile, halves[0], halves[1]}
			own := map[string]bool{}
			for _, pid := range append(childrenOf(cmd.Process.Pid), grandchildrenOf(cmd.Process.Pid)...) {
				comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
				own[strconv.Itoa(pid)] = string(comm) == "sh\n"
			}
			searched := 0
			for _, name := range []string{"environ", "cmdline"} {
				files, err := filepath.Glob("/proc/[0-9]*/" + name)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range files {
					data, err := os.ReadFile(f)
					if err != nil || own[filepath.Base(filepath.Dir(f))] && name == "environ" {
						continue
					}
					searched++
					for _, v := range values {
						if strings.Contains(string(data), v) {
							t.Errorf("%s shows a value", f)
						}
					}
				}
			}
			if searched < 2 {
				t.Errorf("only %d files of processes could be read", searched)
			}
			for path := range snapshot(t, b.scratch) {
				data, err := os.ReadFile(path)
				for _, v := range append(values, fromEnv) {
					if err == nil && strings.Contains(string(data), v) {
						t.Errorf("%s holds a value", path)
					}
				}
			}
			if err := in.Close(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // read(1) ends with 1 at the end of input
			for what, text := range map[string]string{
				"standard error": errs.String(), "the record": read(t, record), "the plan": b.wall("plan"), "the plan as JSON": b.wall("plan", "--json"),
			} {
				for _, v := range append(values, fromEnv) {
					if strings.Contains(text, v) {
						t.Errorf("%s shows a value:\n%s", what, text)
					}
				}
				if what != "the record" && !strings.Contains(text, "FROM_COMMAND") {
					t.Errorf("%s does not name the variable:\n%s", what, text)
				}
			}
		})
	}
}

// wall runs another command of wall over the box's profile.
func (b *box) wall(command string, flags ...string) string {
	b.t.Helper()
	cmd := b.cmd("true")
	cmd.Args = append(append([]string{wallBin, command, "-p", b.profile, "--workspace", b.ws}, flags...), "--", "true")
	return finish(b.t, cmd).ok(b.t)
}

// grandchildrenOf gives the children of the children of a process.
func grandchildrenOf(pid int) []int {
	var all []int
	for _, c := range childrenOf(pid) {
		all = append(all, childrenOf(c)...)
	}
	return all
}

// TestSourceFails: when a value cannot be had the command does not run, and the message has the line
// of the profile and nothing that a source said.
func TestSourceFails(t *testing.T) {
	secret := nonce()
	for _, tt := range []struct{ name, line, want string }{
		{"exit", `V = { command = ["DIR/program", "exit"] }`, "exit status 3"},
		{"empty", `V = { command = ["true"] }`, "the value is empty"},
		{"variable", `V = { env = "NOT_SET_ANYWHERE" }`, "it is not set"},
		{"file", `V = { file = "DIR/empty" }`, "the value is empty"},
		{"key", `V = { keyring = "wall-test:no such key" }`, "the key "},
		{"secret service", `V = { secret-service = { service = "none" } }`, "cannot connect to the message bus"},
	} {
		for _, enforce := range []string{"fs+net", "off"} {
			t.Run(tt.name+"/"+enforce, func(t *testing.T) {
				b, dir := sourceBox(t, enforce, tt.line)
				b.env = append(b.env, "DBUS_SESSION_BUS_ADDRESS=unix:path="+dir+"/none")
				write(t, dir+"/empty", "")
				program(t, dir+"/program", "echo "+secret+"; echo "+secret+" >&2; exit 3")
				record := dir + "/record.json"
				b.flags = []string{"--json", record}
				r := b.sh("touch ran; echo ran")
				if r.code != 125 || r.out != "" {
					t.Errorf("exit status %d, output %q, want 125 and none", r.code, r.out)
				}
				for _, want := range []string{"wall: error: cannot fetch the value of V from ", tt.want, "own.toml:6:"} {
					if !strings.Contains(r.err, want) {
						t.Errorf("the message does not hold %q:\n%s", want, r.err)
					}
				}
				if strings.Contains(r.err+read(t, record), secret) {
					t.Errorf("what the source said is shown:\n%s", r.err)
				}
				var result struct {
					Started bool `json:"started"`
				}
				if err := json.Unmarshal([]byte(read(t, record)), &result); err != nil || result.Started {
					t.Errorf("the record says that the command started: %v", err)
				}
				if _, err := os.Lstat(b.ws + "/ran"); err == nil {
					t.Error("the command ran")
				}
				if left := entries(t, b.scratch); len(left) > 0 {
					t.Errorf("left in the scratch root: %v", left)
				}
			})
		}
	}
}

// TestSourceInterrupted: Ctrl-C ends wall and a program that is slow to give a value.
func TestSourceInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGKILL} {
		b, dir := sourceBox(t, "fs+net", `V = { command = ["DIR/program"] }`)
		mark := nonce()
		t.Cleanup(func() { killMarked(mark) })
		program(t, dir+"/program", "exec "+probeBin+" idle -ignore "+mark)
		cmd := b.cmd("/bin/sh", "-c", "touch ran")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !within(time.Minute, func() bool { return len(withArg(mark)) > 0 }) {
			t.Fatal("the program did not start")
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if sig == unix.SIGTERM && ws.ExitStatus() != 128+int(sig) || sig != unix.SIGTERM && ws.Signal() != sig {
			t.Errorf("signal %d: wall ended with %v", sig, cmd.ProcessState)
		}
		if !within(time.Minute, func() bool { return len(withArg(mark)) == 0 }) {
			t.Errorf("signal %d: the program outlives wall", sig)
		}
		if _, err := os.Lstat(b.ws + "/ran"); err == nil {
			t.Errorf("signal %d: the command ran", sig)
		}
	}
}

// TestSourceProgramsOfTheWorkspace: what a box could have written is not run outside of it, neither as
// the program nor by the program.
func TestSourceProgramsOfTheWorkspace(t *testing.T) {
	b, dir := sourceBox(t, "fs+net", `V = { command = ["DIR/program"] }`)
	program(t, dir+"/program", "tool || echo none")
	program(t, b.ws+"/tool", "echo planted")
	b.env = []string{"PATH=" + b.ws + ":.:/usr/bin:/bin"}
	write(t, b.ws+"/start", "echo planted")
	program(t, dir+"/tools", "exec bash -c 'tool || echo none'")
	// An earlier run could have written what this one only reads.
	for _, flags := range [][]string{nil, {"--workspace-access", "read"}, {"--enforce", "off"}} {
		for _, variable := range []string{"X=", "BASH_ENV=" + b.ws + "/start"} {
			c := *b
			c.flags, c.env = append(slices.Clone(b.flags), flags...), append(slices.Clone(b.env), variable)
			write(t, c.profile, strings.ReplaceAll(read(t, c.profile), dir+"/program", dir+"/tools"))
			if out := c.sh(`echo "$V"`).ok(t); out != "none\n" {
				t.Errorf("%s %s: the value is %q, want none", flags, variable, out)
			}
			write(t, c.profile, strings.ReplaceAll(read(t, c.profile), dir+"/tools", dir+"/program"))
		}
	}
	b.env[0] = "PATH=/usr/bin:/bin:" + dir // the control: elsewhere it is found
	program(t, dir+"/tool", "echo found")
	if out := b.sh(`echo "$V"`).ok(t); out != "found\n" {
		t.Errorf("the value is %q, want found", out)
	}
	for _, name := range []string{b.ws + "/tool", "tool"} {
		write(t, b.profile, strings.ReplaceAll(read(t, b.profile), dir+"/program", name))
		b.env = []string{"PATH=" + b.ws + ":/usr/bin:/bin"}
		if r := b.sh("touch ran"); r.code != 125 || strings.Contains(r.err, "planted") {
			t.Errorf("%s: exit status %d\n%s", name, r.code, r.err)
		}
		write(t, b.profile, strings.ReplaceAll(read(t, b.profile), name, dir+"/program"))
	}
}
