package integration_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// A ci is a place where the files of docs/integrations are tried: a repository "origin"
// with a branch main that has ci.toml and a Makefile whose tests pass, a branch
// "good", a branch "closed" whose tests leave closed directories, a branch "bad" whose tests do not pass, and programs by the names that the files use.
type ci struct {
	t           *testing.T
	dir, origin string
	env         []string
}

const integrations = "docs/integrations/"

// closing is a Makefile whose tests pass and leave what only its owner can remove, and
// only after having opened it.
const closing = "test:\n\t@mkdir -p closed/sub && echo x >closed/sub/file && chmod 0 closed/sub closed\n"

func newCI(t *testing.T) *ci {
	t.Helper()
	need(t, "userns", "landlock", "seccomp", "git", "make", "flock")
	c := &ci{t: t, dir: tempDir(t)}
	c.origin = filepath.Join(c.dir, "origin.git")
	bin := filepath.Join(c.dir, "bin")
	write(t, filepath.Join(bin, "wallbox"), "#!/bin/sh\nexec '"+wallBin+"' \"$@\"\n")
	if err := os.Chmod(filepath.Join(bin, "wallbox"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.env = []string{"PATH=" + bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + accountHome(), "TMPDIR=" + c.dir, "LANG=C.UTF-8",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
	tree := filepath.Join(c.dir, "tree")
	write(t, filepath.Join(tree, "Makefile"), "test:\n\t@echo tested $$CI; cat result\n\t@test \"$$(cat result)\" = good\n")
	write(t, filepath.Join(tree, "result"), "good")
	write(t, filepath.Join(tree, "ci.toml"), readFile(t, integrations+"ci.toml"))
	git := func(args ...string) {
		c.must(tree, "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@x"}, args...)...)
	}
	git("init", "-q", "-b", "main")
	git("add", "-A")
	git("commit", "-qm", "one")
	git("checkout", "-qb", "good")
	write(t, filepath.Join(tree, "more"), "x")
	git("add", "-A")
	git("commit", "-qm", "good")
	git("checkout", "-q", "main")
	git("checkout", "-qb", "closed")
	write(t, filepath.Join(tree, "Makefile"), closing)
	git("commit", "-qam", "closed")
	git("checkout", "-q", "main")
	git("checkout", "-qb", "bad")
	write(t, filepath.Join(tree, "result"), "bad")
	// What a stranger would try: another profile, another verdict, another program.
	write(t, filepath.Join(tree, "ci.toml"), "version = 1\nenforce = \"off\"\n[[gate.phase]]\nname = \"x\"\ncommand = \"true\"\n")
	write(t, filepath.Join(tree, "wallbox"), "#!/bin/sh\nexit 0\n")
	git("add", "-A")
	git("commit", "-qm", "bad")
	c.must(c.dir, "git", "clone", "-q", "--bare", tree, c.origin)
	return c
}

func (c *ci) cmd(dir, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, c.env
	return cmd
}

func (c *ci) must(dir, name string, args ...string) string {
	c.t.Helper()
	return finish(c.t, c.cmd(dir, name, args...)).ok(c.t)
}

// clone gives a fresh clone of origin at a branch.
func (c *ci) clone(branch, name string) string {
	c.t.Helper()
	dir := filepath.Join(c.dir, name)
	c.must(c.dir, "git", "clone", "-q", "-b", branch, c.origin, dir)
	return dir
}

// steps reads the lines that a YAML file has a shell run.
func readYAML(t *testing.T, name string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(readFile(t, integrations+name)), &doc); err != nil {
		t.Fatal(name, err)
	}
	return doc
}

func status(t *testing.T, file string) string {
	t.Helper()
	var v verdict
	if err := json.Unmarshal([]byte(read(t, file)), &v); err != nil {
		t.Fatal(err)
	}
	return v.Status
}

// TestIntegrations runs what the files of docs/integrations have a shell run.
func TestIntegrations(t *testing.T) {
	t.Run("github", func(t *testing.T) {
		c := newCI(t)
		doc := readYAML(t, "github-actions.yml")
		steps := doc["jobs"].(map[string]any)["gate"].(map[string]any)["steps"].([]any)
		run := map[string]string{}
		uses := 0
		for _, s := range steps {
			step := s.(map[string]any)
			if script, ok := step["run"].(string); ok {
				run[step["name"].(string)] = script
			} else if step["uses"] == nil {
				t.Errorf("step %v does nothing", step)
			} else {
				uses++
			}
		}
		if len(run) != 2 || uses != 3 {
			t.Fatalf("%d shell steps, %d actions: %v", len(run), uses, run)
		}
		// The installation, with programs that only say what they were asked.
		stubs, log := filepath.Join(c.dir, "stubs"), filepath.Join(c.dir, "calls")
		for _, name := range []string{"git", "make", "sudo"} {
			write(t, filepath.Join(stubs, name), "#!/bin/sh\necho "+name+" \"$@\" >>'"+log+"'\n[ \"$1\" != clone ] || mkdir wall-src\n")
			if err := os.Chmod(filepath.Join(stubs, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		install := c.cmd(c.dir, "bash", "-eo", "pipefail", "-c", run["Install wall"])
		install.Env = append(install.Env, "PATH="+stubs+":/usr/bin:/bin")
		finish(t, install).ok(t)
		want := "git clone --depth 1 https://github.com/wallsandbox/wall wall-src\nmake build\nsudo make install\nsudo sh scripts/setup.sh apparmor /usr/local/bin/wall\n"
		if got := read(t, log); got != want {
			t.Errorf("the installation called\n%swant\n%s", got, want)
		}
		for _, script := range []string{"scripts/setup.sh", "scripts/install.sh"} {
			if _, err := os.Stat(filepath.Join(root, script)); err != nil {
				t.Error(err)
			}
		}
		c.clone("main", "trusted")
		for branch, code := range map[string]int{"good": 0, "bad": 2} {
			work := c.clone(branch, "work")
			r := finish(t, c.cmd(work, "bash", "-eo", "pipefail", "-c", run["Gate"]))
			if r.code != code || (status(t, filepath.Join(c.dir, "result.json")) == "passed") != (code == 0) {
				t.Errorf("%s: exit status %d, want %d\n%s%s", branch, r.code, code, r.out, r.err)
			}
			for _, name := range []string{"junit.xml", "gate.log", "gate.record"} {
				if read(t, filepath.Join(c.dir, name)) == "" {
					t.Errorf("%s: no %s", branch, name)
				}
			}
			if err := os.RemoveAll(work); err != nil {
				t.Fatal(err)
			}
		}
	})

	t.Run("gitlab", func(t *testing.T) {
		c := newCI(t)
		doc := readYAML(t, "gitlab-ci.yml")
		job := doc["gate"].(map[string]any)
		var lines []string
		for _, l := range job["script"].([]any) {
			lines = append(lines, l.(string))
		}
		for branch, code := range map[string]int{"good": 0, "bad": 2} {
			work := c.clone(branch, branch)
			cmd := c.cmd(work, "bash", "-eo", "pipefail", "-c", strings.Join(lines, "\n"))
			cmd.Env = append(cmd.Env, "CI_MERGE_REQUEST_TARGET_BRANCH_NAME=main")
			r := finish(t, cmd)
			if r.code != code || (status(t, filepath.Join(work, "gate-result/result.json")) == "passed") != (code == 0) {
				t.Errorf("%s: exit status %d, want %d\n%s%s", branch, r.code, code, r.out, r.err)
			}
		}
		artifacts := job["artifacts"].(map[string]any)
		if report := artifacts["reports"].(map[string]any)["junit"].(string); !strings.Contains(read(t, filepath.Join(c.dir, "good", report)), "<testsuite ") {
			t.Errorf("the report %s is no JUnit XML", report)
		}
	})

	t.Run("merge-queue", func(t *testing.T) {
		c := newCI(t)
		script, err := filepath.Abs(filepath.Join(root, integrations, "merge-queue.sh"))
		if err != nil {
			t.Fatal(err)
		}
		head := func() string { return c.must(c.origin, "git", "rev-parse", "main") }
		before := head()
		if r := finish(t, c.cmd(c.dir, "sh", script, c.origin, "main", "bad")); r.code != 2 || head() != before {
			t.Errorf("bad: exit status %d, merged %v\n%s%s", r.code, head() != before, r.out, r.err)
		}
		if r := finish(t, c.cmd(c.dir, "sh", script, c.origin, "main", "good")); r.code != 0 || head() == before {
			t.Errorf("good: exit status %d, merged %v\n%s%s", r.code, head() != before, r.out, r.err)
		}
		if files := c.must(c.origin, "git", "ls-tree", "--name-only", "main"); !strings.Contains(files, "more\n") {
			t.Errorf("merged: %s", files)
		}
		before = head()
		if r := finish(t, c.cmd(c.dir, "sh", script, c.origin, "main", "closed")); r.code != 0 || head() == before {
			t.Errorf("closed: exit status %d, merged %v\n%s%s", r.code, head() != before, r.out, r.err)
		}
		if r := finish(t, c.cmd(c.dir, "sh", script, c.origin, "main", "nosuch")); r.code != 1 {
			t.Errorf("no such branch: exit status %d", r.code)
		}
		if r := finish(t, c.cmd(c.dir, "sh", script, c.origin, "nosuch", "good")); r.code == 0 {
			t.Error("no such target: exit status 0")
		}
		if left, _ := filepath.Glob(filepath.Join(c.dir, "merge-queue.*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})

	t.Run("pre-commit", func(t *testing.T) {
		c := newCI(t)
		work := c.clone("main", "work")
		hook := filepath.Join(work, ".git/hooks/pre-commit")
		write(t, hook, readFile(t, integrations+"pre-commit"))
		if err := os.Chmod(hook, 0o755); err != nil {
			t.Fatal(err)
		}
		commit := func(result string) result {
			t.Helper()
			write(t, filepath.Join(work, "result"), result)
			c.must(work, "git", "add", "result")
			return finish(t, c.cmd(work, "git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "--allow-empty", "-qm", "x"))
		}
		if r := commit("bad"); r.code == 0 {
			t.Errorf("a commit that does not pass was made\n%s%s", r.out, r.err)
		}
		// The index counts, not the work tree.
		write(t, filepath.Join(work, "result"), "good")
		if r := finish(t, c.cmd(work, "git", "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "x")); r.code == 0 {
			t.Errorf("the work tree was tried, not the index\n%s%s", r.out, r.err)
		}
		if r := commit("good"); r.code != 0 {
			t.Errorf("a commit that passes was not made: %d\n%s%s", r.code, r.out, r.err)
		}
		write(t, filepath.Join(work, "Makefile"), closing)
		c.must(work, "git", "add", "Makefile")
		if r := commit("closed"); r.code != 0 {
			t.Errorf("a commit that passes and leaves closed directories was not made: %d\n%s%s", r.code, r.out, r.err)
		}
		if left, _ := filepath.Glob(filepath.Join(c.dir, "pre-commit.*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	})

	t.Run("make", func(t *testing.T) {
		c := newCI(t)
		for branch, code := range map[string]int{"good": 0, "bad": 2} {
			work := c.clone(branch, "dir-"+branch+"/tree")
			text := read(t, filepath.Join(work, "Makefile"))
			write(t, filepath.Join(work, "Makefile"), "include gate.mk\n"+text)
			write(t, filepath.Join(work, "gate.mk"), readFile(t, integrations+"gate.mk"))
			for _, target := range []string{"gate", "reproduce"} {
				if r := finish(t, c.cmd(work, "make", target)); r.code != code {
					t.Errorf("make %s, %s: exit status %d, want %d\n%s%s", target, branch, r.code, code, r.out, r.err)
				}
			}
			if s := status(t, filepath.Join(work, "../gate-result/result.json")); (s == "passed") != (code == 0) {
				t.Errorf("%s: %s", branch, s)
			}
		}
	})

	t.Run("go", func(t *testing.T) {
		need(t, "userns", "landlock", "seccomp", "go")
		dir := tempDir(t)
		bin := filepath.Join(dir, "gate-go")
		build := exec.Command("go", "build", "-buildvcs=false", "-o", bin, "github.com/wallsandbox/wall/"+integrations+"gate-go")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		ws := filepath.Join(dir, "ws")
		if err := os.Mkdir(ws, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			args   []string
			code   int
			status string
			out    string
		}{
			{[]string{"gate", "sh", "-c", "echo hi; echo x >made; ls /sys/class/net"}, 0, "passed", "hi\nlo"},
			{[]string{"gate", "sh", "-c", "kill -KILL $$"}, 137, "failed", ""},
			{[]string{"gate", "sh", "-c", "touch /usr/bin/made-by-a-test || exit 9"}, 9, "failed", ""},
			{[]string{"gate", "nosuch"}, 127, "not-run", ""},
			{[]string{"nosuch", "true"}, 125, "not-run", ""},
		} {
			cmd := exec.Command(bin, tt.args...)
			cmd.Dir = ws
			r := finish(t, cmd)
			var v verdict
			if err := json.Unmarshal([]byte(r.out), &v); err != nil {
				t.Fatalf("%v: %v\n%s%s", tt.args, err, r.out, r.err)
			}
			if r.code != tt.code || v.Status != tt.status || v.Exit != tt.code || tt.out != "" && v.Output.Text != tt.out {
				t.Errorf("%v: exit status %d, %+v, want %+v\n%s", tt.args, r.code, v, tt, r.err)
			}
		}
	})
}
