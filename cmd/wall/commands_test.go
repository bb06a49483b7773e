package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// walk calls f for root and every command below it.
func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		walk(c, f)
	}
}

// verbs are the first words that a short text may begin with.
var verbs = regexp.MustCompile(`^(Run|Start|Print|Show|Try|Check|List|Explain|Write|Compare|Turn|Store|Remove|Restore|Serve)[ ,]`)

func TestCommandsAreDocumented(t *testing.T) {
	root := newRoot(streams{})
	root.InitDefaultHelpCmd()
	n := 0
	walk(root, func(c *cobra.Command) {
		n++
		path := c.CommandPath()
		if !verbs.MatchString(c.Short) {
			t.Errorf("%s: short text %q does not begin with a verb this test knows", path, c.Short)
		}
		if strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short text %q ends with a full stop", path, c.Short)
		}
		if !strings.HasSuffix(c.Long, ".") {
			t.Errorf("%s: long text does not end with a full stop", path)
		}
		if c.Example == "" {
			t.Errorf("%s has no example", path)
		}
		for line := range strings.Lines(c.Example) {
			if !strings.HasPrefix(line, "  ") || !strings.Contains(line, path) {
				t.Errorf("%s: example line %q is not indented or does not call it", path, line)
			}
		}
		if !strings.HasPrefix(useLine(c), path+" ") && useLine(c) != path {
			t.Errorf("%s: usage %q lacks the full path", path, useLine(c))
		}
		for _, line := range strings.Split(helpText(c), "\n") {
			if len(line) > 120 {
				t.Errorf("%s: help line of %d bytes: %q", path, len(line), line)
			}
		}
		for _, f := range flagTable(c) {
			if strings.HasSuffix(f.usage, ".") || f.usage == "" || strings.ToLower(f.usage[:1]) != f.usage[:1] {
				t.Errorf("%s: usage of %s is %q, want lower case and no full stop", path, f.spelling, f.usage)
			}
		}
	})
	if n < 8 {
		t.Errorf("%d commands, want all of run, plan, shell, version, help, completion, doctor and wall", n)
	}
}

// TestTopicsKnowTheirFlags keeps the pages of help honest: a flag they name exists.
func TestTopicsKnowTheirFlags(t *testing.T) {
	root := newRoot(streams{})
	known := map[string]bool{"help": true}
	walk(root, func(c *cobra.Command) {
		for _, f := range flagTable(c) {
			_, name, _ := strings.Cut(f.spelling, "--")
			name, _, _ = strings.Cut(name, " ")
			known[name] = true
		}
	})
	flagName := regexp.MustCompile(`(?:^|[\s"(])--([a-z][a-z-]*)`)
	for _, topic := range topics {
		for _, m := range flagName.FindAllStringSubmatch(topic.text, -1) {
			if !known[m[1]] {
				t.Errorf("topic %s names --%s, which no command has", topic.name, m[1])
			}
		}
		if !strings.HasSuffix(topic.text, "\n") {
			t.Errorf("topic %s does not end with a line break", topic.name)
		}
	}
}

// runCLI runs one command line in this process, as far as that goes without a box.
func runCLI(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	in, out, errs := open("in"), open("out"), open("err")
	status = launch(args, streams{in, out, errs})
	read := func(f *os.File) string {
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	return status, read(out), read(errs)
}

func TestUsageErrors(t *testing.T) {
	t.Setenv("WALL_TEST_IS_SET", "1")
	runHint := "  hint: \"wall run --help\" lists the flags; flags of the command itself go after \"--\" or after its name\n"
	for _, tt := range []struct {
		args   []string
		status int
		stderr string
	}{
		{nil, 2, "wall: error: no command given\n  hint: \"wall help\" lists the commands\n"},
		{[]string{"rum"}, 2, "wall: error: unknown command rum\n  hint: did you mean \"wall run\"?\n"},
		{[]string{"make", "-j2", "a b"}, 2, "wall: error: unknown command make\n  hint: \"wall help\" lists the commands; to run a program: wall run -- make -j2 'a b'\n"},
		{[]string{"-j2"}, 2, "wall: error: unknown flag -j\n  hint: \"wall --help\" lists the flags\n"},
		{[]string{"--", "run", "a b"}, 2, "wall: error: \"--\" stands behind a command of wall\n  hint: to run a program: wall run -- run 'a b'\n"},
		{[]string{"-V", "x"}, 2, "wall: error: --version stands alone, got x as well\n  hint: for example: wall --version\n"},
		{[]string{"make"}, 2, "wall: error: unknown command make\n  hint: \"wall help\" lists the commands; to run a program: wall run -- make\n"},
		{[]string{"run"}, 125, "wall: error: no command to run\n  hint: write it after \"--\", for example: wall run -- make test\n"},
		{[]string{"run", "--"}, 125, "wall: error: no command to run\n  hint: write it after \"--\", for example: wall run -- make test\n"},
		{[]string{"run", "--frob", "--", "true"}, 125, "wall: error: unknown flag --frob\n" + runHint},
		{[]string{"run", "-x", "true"}, 125, "wall: error: unknown flag -x\n" + runHint},
		{[]string{"run", "--allow-host", "x", "true"}, 125, "wall: error: cannot let a host be reached: the network mode is \"none\"\n  at --allow-host x\n  hint: add --net allow\n"},
		{[]string{"run", "--allow-hosts", "x", "true"}, 125, "wall: error: unknown flag --allow-hosts\n  hint: did you mean --allow-host?\n"},
		{[]string{"run", "--allow-host", "http://x", "true"}, 125, "wall: error: --allow-host: \"http://x\" is not a host: a host has no scheme: write the name alone\n" +
			"  at --allow-host http://x\n  hint: for example --allow-host example.org, or --allow-host '*.example.org:443'\n"},
		{[]string{"run", "--publish", "65536", "true"}, 125, "wall: error: --publish: \"65536\" is not a port: ports are from 1 to 65535\n  at --publish 65536\n"},
		{[]string{"run", "--junit", "x", "true"}, 125, "wall: error: unknown flag --junit\n" + runHint},
		{[]string{"run", "--timeout", "soon", "true"}, 125, "wall: error: --timeout must be a duration such as \"10m\", \"90s\" or \"1h30m\"\n  at --timeout soon\n  hint: 0 is no limit\n"},
		{[]string{"run", "--net"}, 125, "wall: error: flag --net needs a value\n" + runHint},
		{[]string{"run", "--net", "none", "--net=host", "true"}, 125, "wall: error: flag --net is given twice\n  hint: give it once\n"},
		{[]string{"run", "-p", "a", "--profile", "a", "true"}, 125, "wall: error: flag --profile is given twice\n  hint: give it once\n"},
		{[]string{"run", "--keep", "--keep", "true"}, 125, "wall: error: flag --keep is given twice\n  hint: give it once\n"},
		{[]string{"run", "--keep=false", "true"}, 125, "wall: error: flag --keep: the flag takes no value\n" + runHint},
		{[]string{"run", "--rw", "", "true"}, 125, "wall: error: flag --rw \"\": the value is empty\n" + runHint},
		{[]string{"run", "--env", "SECRETVALUE", "true"}, 125, "wall: error: flag --env: want NAME=VALUE\n  hint: to let the variable of the caller cross: --pass NAME\n"},
		{[]string{"run", "--env", "=SECRETVALUE", "true"}, 125, "wall: error: flag --env: want NAME=VALUE\n  hint: to let the variable of the caller cross: --pass NAME\n"},
		{[]string{"run", "--env", "WALL_TEST_IS_SET", "true"}, 125, "wall: error: flag --env: want NAME=VALUE\n  hint: to let the variable of the caller cross: --pass WALL_TEST_IS_SET\n"},
		{[]string{"run", "--nett", "host", "true"}, 125, "wall: error: unknown flag --nett\n  hint: did you mean --net?\n"},
		{[]string{"plan", "--jsn", "true"}, 2, "wall: error: unknown flag --jsn\n  hint: did you mean --json?\n"},
		{[]string{"run", "--net", "hosts", "true"}, 125, "wall: error: flag --net hosts: want none, allow or host\n  hint: did you mean --net host?\n"},
		{[]string{"run", "--tty", "x", "true"}, 125, "wall: error: flag --tty x: want auto, pty, inherit or none\n" + runHint},
		{[]string{"run", "--home", "x", "true"}, 125, "wall: error: flag --home x: want scratch, read-only or hidden\n" + runHint},
		{[]string{"run", "--view", "x", "true"}, 125, "wall: error: flag --view x: want host or system\n" + runHint},
		{[]string{"run", "--scrub", "x", "true"}, 125, "wall: error: flag --scrub x: want off, deny-secrets or strict\n" + runHint},
		{[]string{"run", "--enforce", "x", "true"}, 125, "wall: error: flag --enforce x: want off, fs or fs+net\n" + runHint},
		{[]string{"run", "--workspace-access", "x", "true"}, 125, "wall: error: flag --workspace-access x: want read or write\n" + runHint},
		{[]string{"run", "--limit", "nofile=10", "true"}, 125, "wall: error: flag --limit nofile=10: there is no limit called nofile\n  hint: did you mean --limit open-files=...? the limits are time, grace, memory, processes, open-files, file-size, scratch, total-output, output, core\n"},
		{[]string{"run", "--limit", "x=10", "true"}, 125, "wall: error: flag --limit x=10: there is no limit called x\n  hint: the limits are time, grace, memory, processes, open-files, file-size, scratch, total-output, output, core\n"},
		{[]string{"run", "--limit", "core", "true"}, 125, "wall: error: flag --limit core: want NAME=VALUE\n  hint: the limits are time, grace, memory, processes, open-files, file-size, scratch, total-output, output, core\n"},
		{[]string{"run", "--json", "-", "true"}, 125, "wall: error: flag --json -: want the name of a file\n" +
			"  hint: standard output belongs to the command; --status-fd N reports on a descriptor, and a file of that name is ./-\n"},
		{[]string{"run", "--fd", "2", "true"}, 125, "wall: error: flag --fd 2: descriptors 0, 1 and 2 pass anyway\n" + runHint},
		{[]string{"run", "--fd", "-3", "true"}, 125, "wall: error: flag --fd -3: descriptors 0, 1 and 2 pass anyway\n" + runHint},
		{[]string{"run", "--fd", "03", "true"}, 125, "wall: error: flag --fd 03: want a descriptor number or all\n" + runHint},
		{[]string{"run", "--status-fd", "1", "true"}, 125, "wall: error: flag --status-fd 1: want a descriptor number from 3 on\n" +
			"  hint: 0, 1 and 2 belong to the command, which could forge the report; use for example --status-fd 3 3>../status.jsonl\n"},
		{[]string{"run", "--\x1b[31m", "true"}, 125, "wall: error: unknown flag \"--\\x1b[31m\"\n" + runHint},
		{[]string{"shell", "ls"}, 125, "wall: error: wall shell takes no argument, got ls\n  hint: \"wall shell --help\" shows the usage\n"},
		{[]string{"plan"}, 2, "wall: error: no command to plan for\n  hint: write it after \"--\", for example: wall plan -- make test\n"},
		{[]string{"plan", "--frob", "true"}, 2, "wall: error: unknown flag --frob\n  hint: \"wall plan --help\" lists the flags\n"},
		{[]string{"doctor", "x"}, 2, "wall: error: wall doctor takes no argument, got x\n  hint: \"wall doctor --help\" shows the usage\n"},
		{[]string{"doctor", "TOKEN=sentinel"}, 2, "wall: error: wall doctor takes no argument, got TOKEN=...\n  hint: \"wall doctor --help\" shows the usage\n"},
		{[]string{"env", "--json", "out.json"}, 2, "wall: error: unknown command \"env out.json\"\n  hint: --json takes no file here: the JSON goes to standard output\n"},
		{[]string{"env", "--json=out.json"}, 2, "wall: error: flag --json: the flag takes no value: the JSON goes to standard output\n  hint: \"wall env --help\" lists the flags\n"},
		{[]string{"env", "list", "TOKEN=sentinel=x"}, 2, "wall: error: wall env list takes no argument, got TOKEN=...\n  hint: \"wall env list --help\" shows the usage\n"},
		{[]string{"env", "preview", "--surface", "TOKEN=sentinel"}, 2, "wall: error: there is no surface called TOKEN=...\n  hint: the surfaces are session, contract, gate, shell, terminal\n"},
		{[]string{"help", "env", "TOKEN=sentinel"}, 2, "wall: error: no help on \"env TOKEN=...\"\n  hint: topics: profiles, filesystem, network, environment, caches, limits, seccomp, gates, records, exit-codes, json; \"wall help\" lists the commands\n"},
		{[]string{"version", "x"}, 2, "wall: error: wall version takes no argument, got x\n  hint: \"wall version --help\" shows the usage\n"},
		{[]string{"completion"}, 2, "wall: error: completion needs the name of one shell\n  hint: bash, zsh or fish\n"},
		{[]string{"completion", "tcsh"}, 2, "wall: error: no completion for shell tcsh\n  hint: bash, zsh or fish\n"},
		{[]string{"help", "nosuch"}, 2, "wall: error: no help on nosuch\n  hint: topics: profiles, filesystem, network, environment, caches, limits, seccomp, gates, records, exit-codes, json; \"wall help\" lists the commands\n"},
	} {
		status, stdout, stderr := runCLI(t, tt.args...)
		if status != tt.status || stderr != tt.stderr || stdout != "" {
			t.Errorf("wall %q:\nstatus %d, want %d\nstderr %q\n  want %q\nstdout %q, want nothing", tt.args, status, tt.status, stderr, tt.stderr, stdout)
		}
	}
}

// TestNoValueInErrors checks that no message repeats the value of a variable.
func TestNoValueInErrors(t *testing.T) {
	for _, args := range [][]string{
		{"run", "--env", "hunter2", "true"},
		{"run", "--env", "A=hunter2", "--nosuch", "true"},
		{"run", "--env", "A=hunter2", "--", "/no/such/command"},
		{"plan", "--env", "A=hunter2", "--", "/no/such/command"},
	} {
		_, stdout, stderr := runCLI(t, args...)
		if strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("wall %q prints the value:\n%s%s", args, stdout, stderr)
		}
	}
}

func TestVersionFlag(t *testing.T) {
	for _, args := range [][]string{{"--version"}, {"-V"}, {"version"}} {
		status, stdout, stderr := runCLI(t, args...)
		if status != 0 || stdout != versionText() || stderr != "" {
			t.Errorf("wall %q: status %d, stdout %q, stderr %q", args, status, stdout, stderr)
		}
	}
}

// TestKnownValuesReachResolve checks that every value that the command line offers is
// one of the language.
func TestKnownValuesReachResolve(t *testing.T) {
	for _, f := range policyFlags {
		for _, v := range append(slices.Clone(f.choice), f.known...) {
			status, _, stderr := runCLI(t, "plan", "--"+f.name, v, "--", "true")
			refused := ""
			switch {
			case f.name == "tty" && v == "pty" && !isTerminal(os.Stdin):
				refused = "standard input is no terminal"
			}
			if refused != "" {
				if !strings.Contains(stderr, refused) {
					t.Errorf("--%s %s: %s", f.name, v, stderr)
				}
			} else if status != 0 {
				t.Errorf("--%s %s: status %d, %s", f.name, v, status, stderr)
			}
		}
	}
}

func TestHelpGoesToStandardOutput(t *testing.T) {
	for _, args := range [][]string{
		{"help"}, {"--help"}, {"-h"}, {"help", "run"}, {"run", "--help"}, {"run", "-h"},
		{"help", "json"}, {"help", "help"}, {"plan", "-p", "nosuch", "--help"}, {"doctor", "--help"},
	} {
		status, stdout, stderr := runCLI(t, args...)
		if status != 0 || stdout == "" || stderr != "" {
			t.Errorf("wall %q: status %d, %d bytes of stdout, stderr %q", args, status, len(stdout), stderr)
		}
	}
	_, run, _ := runCLI(t, "help", "run")
	_, runFlag, _ := runCLI(t, "run", "--help")
	if run != runFlag {
		t.Error(`"wall help run" and "wall run --help" differ`)
	}
	if !strings.Contains(run, "  wall run [-p PROFILE] [FLAG...] [--] COMMAND [ARG...]\n") {
		t.Errorf("help of run lacks the usage:\n%s", run)
	}
}

func TestCompletionScripts(t *testing.T) {
	for shell, want := range map[string]string{"bash": "__start_wall", "zsh": "#compdef wall", "fish": "complete -c wall"} {
		status, stdout, _ := runCLI(t, "completion", shell)
		if status != 0 || !strings.Contains(stdout, want) {
			t.Errorf("completion %s: status %d, lacks %q", shell, status, want)
		}
	}
	_, stdout, _ := runCLI(t, "__complete", "run", "--net", "")
	if !strings.HasPrefix(stdout, "none\nallow\nhost\n") {
		t.Errorf("completion of --net gives %q", stdout)
	}
}

// TestPolicyFlagsKeepTheirOrder checks the order across different flags, and that
// the text of --env has no value.
func TestPolicyFlagsKeepTheirOrder(t *testing.T) {
	cmd := &cobra.Command{Use: "x"}
	s := addShared(cmd)
	cmd.Flags().SetInterspersed(false)
	err := cmd.ParseFlags([]string{"--rw", "a", "--ro=a b", "--rw", "c", "--env", "TOKEN=hunter2", "--hide", "a", "cmd", "--rw", "z"})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, f := range s.options().Flags {
		got.WriteString(f.Name + "|" + f.Value + "|" + f.Text + "\n")
	}
	want := "rw|a|--rw a\nro|a b|--ro \"a b\"\nrw|c|--rw c\nenv|TOKEN=hunter2|--env TOKEN\nhide|a|--hide a\n"
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	if rest := cmd.Flags().Args(); strings.Join(rest, " ") != "cmd --rw z" {
		t.Errorf("command is %q", rest)
	}
}
