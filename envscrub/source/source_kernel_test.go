package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

const sentinel = "sentinel-value-that-must-not-show"

// helperVariable makes a process of the tests out of the test binary: its first word says which.
const helperVariable = "WALL_TEST_SOURCE_HELPER"

func TestMain(m *testing.M) {
	job := strings.Fields(os.Getenv(helperVariable))
	if len(job) == 0 {
		os.Exit(m.Run())
	}
	switch job[0] {
	case "session": // runs the tests again, with a session keyring of their own
		// A keyring belongs to a thread, and to all of them after the exec.
		runtime.LockOSThread()
		_, err := unix.KeyctlJoinSessionKeyring("wall-test")
		if err == nil {
			err = os.Setenv(helperVariable, "")
		}
		if err == nil {
			err = syscall.Exec("/proc/self/exe", append([]string{os.Args[0]}, job[1:]...), append(os.Environ(), "WALL_TEST_SOURCE_SESSION=yes"))
		}
		fmt.Fprintln(os.Stderr, err)
	case "listen": // a socket at which nobody answers
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: job[1], Net: "unix"})
		if err == nil {
			fmt.Println("listening")
			_, err = l.Accept()
			time.Sleep(time.Hour)
		}
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

// need skips the test when the host lacks what it needs, or fails it when
// WALL_TEST_REQUIRE names that.
func need(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		var err error
		switch word {
		case "root":
			if os.Getuid() != 0 {
				err = unix.EPERM
			}
		case "keyring":
			_, err = unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", "wall-test:none", 0)
			if err == unix.ENOKEY {
				err = nil
			}
		default:
			name, ok := strings.CutPrefix(word, "tool:")
			if !ok {
				t.Fatalf("unknown need %q", word)
			}
			_, err = exec.LookPath(name)
			word = name
		}
		switch {
		case err == nil:
		case slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), word):
			t.Fatalf("this host lacks %s: %v", word, err)
		default:
			t.Skipf("this host lacks %s: %v", word, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, data string, mode fs.FileMode) string {
	t.Helper()
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	must(t, os.WriteFile(path, []byte(data), 0o600))
	must(t, os.Chmod(path, mode))
	return path
}

// script writes a program, closed and renamed so that it can be executed at once.
func script(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "program")
	writeFile(t, path+".new", "#!/bin/sh\n"+text+"\n", 0o755)
	must(t, os.Rename(path+".new", path))
	return path
}

func fileSource(path string) plan.ValueSource {
	return plan.ValueSource{Kind: plan.SourceFile, Name: path}
}

func commandSource(argv ...string) plan.ValueSource {
	return plan.ValueSource{Kind: plan.SourceCommand, Argv: argv}
}

// planWith is a plan with variables V0, V1, ... from these sources.
func planWith(sources ...plan.ValueSource) plan.Plan {
	var p plan.Plan
	for i, s := range sources {
		p.Env = append(p.Env, plan.EnvVar{Name: "V" + strconv.Itoa(i), Reason: "set", Origin: plan.Origin{File: "p.toml", Line: i + 1}, Source: s})
	}
	return p
}

// fetch fills a plan with one source.
func fetch(t *testing.T, f *Filler, s plan.ValueSource, writable ...string) (string, error) {
	t.Helper()
	return fetchContext(t, t.Context(), f, s, writable...)
}

func fetchContext(t *testing.T, ctx context.Context, f *Filler, s plan.ValueSource, writable ...string) (string, error) {
	t.Helper()
	p := planWith(s)
	for _, w := range writable {
		p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpBind, Access: plan.AccessWrite, Source: w, Target: w})
	}
	filled, err := f.Fill(ctx, p)
	if !p.Env[0].Source.IsZero() != !s.IsZero() || p.Env[0].Value != "" {
		t.Error("Fill changed its argument")
	}
	if err != nil {
		if len(filled.Unfilled()) != 1 || filled.Env[0].Value != "" {
			t.Error("a plan that could not be filled is filled")
		}
		return "", err
	}
	if len(filled.Unfilled()) > 0 {
		t.Error("a plan that was filled is not")
	}
	return filled.Env[0].Value, nil
}

// wantError fails unless err is a *plan.Error of the variable V0 that holds all of
// parts, with its line and exit status 125, and without the sentinel.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	var pe *plan.Error
	if !errors.As(err, &pe) || plan.ExitStatus(err) != plan.ExitFailed {
		t.Errorf("%T %v is not a *plan.Error with exit status 125", err, err)
	}
	text := plan.Explain(err)
	for _, p := range append(parts, "cannot fetch the value of V0 from ", "  at p.toml:1\n") {
		if !strings.Contains(text, p) {
			t.Errorf("the error does not hold %q:\n%s", p, text)
		}
	}
	if strings.Contains(text, sentinel) {
		t.Errorf("the error shows a value:\n%s", text)
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "value")
	for content, want := range map[string]string{
		"v": "v", "v\n": "v", "v\n\n": "v\n", " v \r\n": " v \r", "a\nb": "a\nb", "\xff\x01": "\xff\x01",
		strings.Repeat("v", plan.MaxVariable-len("V0=")-1) + "\n": strings.Repeat("v", plan.MaxVariable-len("V0=")-1),
	} {
		writeFile(t, path, content, 0o444)
		if got, err := fetch(t, &Filler{}, fileSource(path)); err != nil || got != want {
			t.Errorf("%.20q gave %.20q %v", content, got, err)
		}
	}
	must(t, os.Symlink("value", dir+"/link"))
	must(t, os.Symlink(dir+"/.././"+filepath.Base(dir)+"/link", dir+"/link2"))
	writeFile(t, path, "v", 0o400)
	if got, err := fetch(t, &Filler{}, fileSource(dir+"/link2")); err != nil || got != "v" {
		t.Errorf("through links: %q %v", got, err)
	}

	for content, want := range map[string]string{
		"":                "the value is empty",
		"\n":              "the value is empty",
		sentinel + "\x00": "holds a NUL byte",
		"\x00\n":          "holds a NUL byte",
		strings.Repeat(sentinel, plan.MaxVariable/len(sentinel)+1): "longer than Linux allows",
		strings.Repeat("v", plan.MaxVariable-len("V0=")):           "longer than Linux allows",
	} {
		writeFile(t, path, content, 0o600)
		_, err := fetch(t, &Filler{}, fileSource(path))
		wantError(t, err, "the file "+path, want)
	}
}

func TestFileRefused(t *testing.T) {
	tests := []struct {
		name  string
		place func(t *testing.T, dir string) string // gives the path to ask for
		want  string
	}{
		{"missing", func(t *testing.T, dir string) string { return dir + "/none" }, "no such file or directory"},
		{"below a file", func(t *testing.T, dir string) string {
			return writeFile(t, dir+"/f", sentinel, 0o600) + "/x"
		}, "not a directory"},
		{"directory", func(t *testing.T, dir string) string { return dir }, "it is a directory"},
		{"FIFO", func(t *testing.T, dir string) string {
			must(t, unix.Mkfifo(dir+"/fifo", 0o600))
			return dir + "/fifo"
		}, "not a regular file"},
		{"device", func(t *testing.T, dir string) string { return "/dev/zero" }, "not a regular file"},
		{"loop", func(t *testing.T, dir string) string {
			must(t, os.Symlink("loop", dir+"/loop"))
			return dir + "/loop"
		}, "too many levels of symbolic links"},
		{"writable for the group", func(t *testing.T, dir string) string {
			return writeFile(t, dir+"/f", sentinel, 0o620)
		}, "others can write"},
		{"writable for others", func(t *testing.T, dir string) string {
			return writeFile(t, dir+"/f", sentinel, 0o602)
		}, "chmod go-w"},
		{"directory writable for others", func(t *testing.T, dir string) string {
			must(t, os.Mkdir(dir+"/d", 0o700))
			writeFile(t, dir+"/d/f", sentinel, 0o600)
			must(t, os.Chmod(dir+"/d", 0o703))
			return dir + "/d/f"
		}, "others can write the directory"},
		{"directory of a link writable for others", func(t *testing.T, dir string) string {
			writeFile(t, dir+"/f", sentinel, 0o600)
			must(t, os.Mkdir(dir+"/d", 0o700))
			must(t, os.Symlink(dir+"/f", dir+"/d/link"))
			must(t, os.Chmod(dir+"/d", 0o703))
			return dir + "/d/link"
		}, "others can write the directory"},
		{"workspace", func(t *testing.T, dir string) string {
			return writeFile(t, dir+"/workspace/f", sentinel, 0o600)
		}, "is where the box can write"},
		{"the workspace's own name", func(t *testing.T, dir string) string { return dir + "/workspace" }, "is where the box can write"},
		{"link into the workspace", func(t *testing.T, dir string) string {
			writeFile(t, dir+"/workspace/f", sentinel, 0o600)
			must(t, os.Symlink("workspace/f", dir+"/link"))
			return dir + "/link"
		}, "is where the box can write"},
		{"link out of the workspace", func(t *testing.T, dir string) string {
			writeFile(t, dir+"/f", sentinel, 0o600)
			must(t, os.Symlink("../f", dir+"/workspace/link"))
			must(t, os.Symlink("workspace/link", dir+"/link"))
			return dir + "/link"
		}, "is where the box can write"},
		{"way through the workspace", func(t *testing.T, dir string) string {
			writeFile(t, dir+"/f", sentinel, 0o600)
			return dir + "/workspace/../f"
		}, "is where the box can write"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, os.Mkdir(dir+"/workspace", 0o700))
			_, err := fetch(t, &Filler{}, fileSource(tt.place(t, dir)), dir+"/workspace")
			wantError(t, err, tt.want)
		})
	}
	// A neighbour whose name begins like the workspace's is not in it.
	dir := t.TempDir()
	writeFile(t, dir+"/workspace-f", "v", 0o600)
	if got, err := fetch(t, &Filler{}, fileSource(dir+"/workspace-f"), dir+"/workspace"); err != nil || got != "v" {
		t.Errorf("a neighbour of the workspace: %q %v", got, err)
	}
	if os.Geteuid() != 0 {
		path := writeFile(t, dir+"/unreadable", sentinel, 0)
		_, err := fetch(t, &Filler{}, fileSource(path))
		wantError(t, err, "permission denied")
	}
}

func TestFileOfAnotherUser(t *testing.T) {
	need(t, "root")
	for _, owned := range []string{"f", ".", "link"} {
		dir := t.TempDir()
		writeFile(t, dir+"/f", sentinel, 0o600)
		must(t, os.Symlink("f", dir+"/link"))
		must(t, os.Lchown(dir+"/"+owned, 12345, 12345))
		_, err := fetch(t, &Filler{}, fileSource(dir+"/link"))
		wantError(t, err, "belongs to another user")
	}
}

func TestVariable(t *testing.T) {
	f := &Filler{Environ: []string{"A=1", "B=", "C=x", "A=2=3", "C=", "D=\xff", "odd"}}
	variable := func(name string) plan.ValueSource { return plan.ValueSource{Kind: plan.SourceEnv, Name: name} }
	for name, want := range map[string]string{"A": "2=3", "D": "\xff"} {
		if got, err := fetch(t, f, variable(name)); err != nil || got != want {
			t.Errorf("%s gave %q %v", name, got, err)
		}
	}
	for name, want := range map[string]string{"B": "the value is empty", "C": "the value is empty", "E": "it is not set", "a": "it is not set", "odd": "it is not set"} {
		_, err := fetch(t, f, variable(name))
		wantError(t, err, "the variable "+name, want, "hint: set it where wall is started")
	}
}

func TestCommand(t *testing.T) {
	bin, err := filepath.EvalSymlinks("/bin")
	must(t, err)
	f := &Filler{Environ: []string{"HOME=/h", "X=a b", "PATH=/usr/bin:/bin", "HOME=/h2"}}
	for name, tt := range map[string]struct {
		argv []string
		want string
	}{
		"one line feed is cut":             {[]string{script(t, `printf 'v\n\n'`)}, "v\n"},
		"bytes":                            {[]string{script(t, `printf '\377\001'`)}, "\xff\x01"},
		"exact arguments":                  {[]string{script(t, `printf '%s|' "$@"`), "a b", "", "$HOME;id", "*"}, "a b||$HOME;id|*|"},
		"the caller's environment":         {[]string{script(t, `echo "$HOME $X $PATH"`)}, "/h2 a b /usr/bin:" + bin},
		"directory":                        {[]string{script(t, "pwd")}, "/"},
		"no input":                         {[]string{script(t, "wc -c; readlink /proc/self/fd/0")}, "0\n/dev/null"},
		"no terminal, as in a new session": {[]string{script(t, `read -r pid comm state parent group session rest </proc/$$/stat; [ $session = $$ ] && (: </dev/tty) 2>/dev/null || echo none; echo $((session - $$))`)}, "none\n0"},
		"errors are not the value":         {[]string{script(t, "echo no >&2; echo v")}, "v"},
		"fixed directories":                {[]string{"printf", "%s", "v"}, "v"},
		"children are waited for":          {[]string{script(t, "(sleep 0.1; echo v) & wait")}, "v"},
		"what is left is killed":           {[]string{script(t, "sleep 1000 & echo v")}, "v"},
		"name as in the profile":           {[]string{link(t, script(t, `basename "$0"`))}, "link"},
	} {
		if got, err := fetch(t, f, commandSource(tt.argv...)); err != nil || got != tt.want {
			t.Errorf("%s: got %q %v, want %q", name, got, err, tt.want)
		}
	}
}

func link(t *testing.T, path string) string {
	t.Helper()
	l := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(path, l))
	return l
}

func TestCommandFails(t *testing.T) {
	big := strconv.Itoa(plan.MaxVariable + 1)
	for name, tt := range map[string]struct {
		argv []string
		want string
	}{
		"exit status":   {[]string{script(t, "echo "+sentinel+"; echo "+sentinel+" >&2; exit 3")}, "exit status 3\n"},
		"signal":        {[]string{script(t, "echo "+sentinel+"; kill -TERM $$")}, "it was ended by signal 15 (terminated)"},
		"nothing":       {[]string{script(t, "echo "+sentinel+" >&2")}, "the value is empty"},
		"NUL":           {[]string{script(t, "printf '"+sentinel+`\000'`)}, "holds a NUL byte"},
		"too much":      {[]string{script(t, "head -c "+big+" /dev/zero | tr '\\0' v")}, "longer than Linux allows"},
		"without end":   {[]string{"yes", sentinel}, "longer than Linux allows"},
		"not a program": {[]string{writeFile(t, t.TempDir()+"/f", "#!/bin/sh\necho v", 0o600)}, "permission denied"},
		"bad format":    {[]string{writeFile(t, t.TempDir()+"/f", "\x7fELF", 0o700)}, "exec format error"},
		"missing":       {[]string{t.TempDir() + "/none"}, "no such file or directory"},
		"bare name":     {[]string{"wall-test-no-such-program"}, "there is no such program in /usr/local/bin"},
		"open output":   {[]string{script(t, "setsid sleep 3 & sleep 0.2; echo "+sentinel)}, "keeps its output open"},
	} {
		_, err := fetch(t, &Filler{Environ: []string{"PATH=/usr/bin:/bin"}}, commandSource(tt.argv...))
		wantError(t, err, "the program "+tt.argv[0]+": ", tt.want)
		if t.Failed() {
			t.Fatal(name)
		}
	}
}

func TestCommandIsNotFoundWhereTheBoxWrites(t *testing.T) {
	ws := t.TempDir()
	writeFile(t, ws+"/tool", "#!/bin/sh\necho "+sentinel, 0o755)
	outside := t.TempDir()
	must(t, os.Symlink(ws, outside+"/bin"))
	f := &Filler{Environ: []string{"PATH=" + strings.Join([]string{ws, outside + "/bin", ws + "/sub", ".", "", "bin", "/nonexistent", "/usr/bin", "/bin"}, ":")}}
	for _, argv := range [][]string{{ws + "/tool"}, {outside + "/bin/tool"}} {
		_, err := fetch(t, f, commandSource(argv...), ws)
		wantError(t, err, "is where the box can write")
	}
	_, err := fetch(t, f, commandSource("tool"), ws)
	wantError(t, err, "PATH is not searched")
	// Nor by the program itself.
	usr := "/usr/bin"
	bin, err := filepath.EvalSymlinks("/bin")
	must(t, err)
	got, err := fetch(t, f, commandSource(script(t, `echo "$PATH"; tool || echo none`)), ws)
	if want := usr + ":" + bin + "\nnone"; err != nil || got != want {
		t.Errorf("got %q %v, want %q", got, err, want)
	}
}

// What a command could have written is not loaded by a source program either, whatever
// variable of the caller leads there.
func TestCommandIsNotLedWhereTheBoxWrites(t *testing.T) {
	ws := t.TempDir()
	spaced := t.TempDir() + "/my work"
	must(t, os.Mkdir(spaced, 0o700))
	outside := t.TempDir()
	must(t, os.Symlink(ws, outside+"/link"))
	must(t, os.Symlink(ws+"/not/yet", outside+"/dangling"))
	must(t, os.Symlink("dangling", outside+"/twice"))
	writeFile(t, ws+"/start", "echo "+sentinel, 0o644)
	led := []string{
		ws, ws + "/", ws + "/lib", outside + ":" + ws + "/lib", outside + ";" + ws, "-I" + ws + "/lib", "--require=" + ws + "/a.js",
		"-javaagent:" + ws + "/a.jar=x", "file://" + ws + "/a", strings.TrimPrefix(ws, "/") + "/lib", ".." + ws, "/" + ws + "/lib",
		outside + "/../" + filepath.Base(ws) + "/..//" + filepath.Base(ws), outside + "/link/../../usr", outside + "/link/sub/../../../usr",
		outside + "/link", outside + "/link/lib", "-x" + outside + "/link/not/there", outside + "/dangling", outside + "/twice/lib",
		"() { " + ws + "/tool; }", "\"" + ws + "/a\"", "x|" + ws + "/a", "$(<" + ws + "/a)", spaced + "/lib", "-I" + spaced,
	}
	kept := []string{"", "x", outside, outside + "/lib", ws + "2", ws + "-other/lib", "/usr/lib:/usr/local/lib", "https://example.org/a?b=c"}
	var environ []string
	for i, v := range append(slices.Clone(led), kept...) {
		environ = append(environ, fmt.Sprintf("V%d=%s", i, v))
	}
	f := &Filler{Environ: append(environ, "PATH=/usr/bin:/bin", "BASH_ENV="+ws+"/start")}
	for name, untrusted := range map[string]bool{"written by this run": false, "only read by this run": true} {
		t.Run(name, func(t *testing.T) {
			writable := []string{ws, spaced}
			f := *f
			if untrusted {
				f.Untrusted, writable = writable, nil
			}
			got, err := fetch(t, &f, commandSource("env"), writable...)
			must(t, err)
			for i, v := range led {
				if strings.Contains("\n"+got, fmt.Sprintf("\nV%d=", i)) {
					t.Errorf("a program got a variable that leads where the box writes: %s", v)
				}
			}
			for i, v := range kept {
				if !strings.Contains("\n"+got+"\n", fmt.Sprintf("\nV%d=%s\n", len(led)+i, v)) {
					t.Errorf("a program did not get %q", v)
				}
			}
			bash, err := exec.LookPath("bash")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := fetch(t, &f, commandSource(bash, "-c", "echo none"), writable...); err != nil || got != "none" {
				t.Errorf("got %q, %v; want none", got, err)
			}
		})
	}
}

// ended waits until no process has pid as its number any more, or only a zombie has.
func ended(t *testing.T, pidFile string) {
	t.Helper()
	data, err := os.ReadFile(pidFile)
	must(t, err)
	pid := strings.TrimSpace(string(data))
	for range 6000 {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %s is left", pid)
}

func TestCommandTimeLimit(t *testing.T) {
	dir := t.TempDir()
	slow := script(t, "echo "+sentinel+"; sleep 1000 & echo $! >"+dir+"/child; echo $$ >"+dir+"/pid.new; mv "+dir+"/pid.new "+dir+"/pid; trap '' TERM; wait")
	for _, reason := range []string{"deadline", "cancel"} {
		ctx, cancel := context.WithCancel(t.Context())
		if reason == "deadline" {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 4*time.Second) // to write its files
		}
		go func() {
			for reason == "cancel" && ctx.Err() == nil {
				if _, err := os.Stat(dir + "/pid"); err == nil {
					cancel()
				}
				time.Sleep(time.Millisecond)
			}
		}()
		_, err := fetchContext(t, ctx, &Filler{Environ: []string{"PATH=/usr/bin:/bin"}}, commandSource(slow))
		cancel()
		if reason == "deadline" {
			wantError(t, err, "it took more than 10s")
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("%v is not context.Canceled", err)
		}
		ended(t, dir+"/pid")
		ended(t, dir+"/child")
		must(t, os.Remove(dir+"/pid"))
	}
}

func TestFillFetchesAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mkfifo(dir+"/a", 0o600))
	must(t, unix.Mkfifo(dir+"/b", 0o600))
	// Each waits for the other.
	one := commandSource(script(t, "echo one >"+dir+"/a; cat "+dir+"/b"))
	two := commandSource(script(t, "cat "+dir+"/a; echo two >"+dir+"/b"))
	p, err := (&Filler{Environ: []string{"PATH=/usr/bin:/bin"}}).Fill(t.Context(), planWith(one, two))
	if err != nil || p.Env[0].Value != "two" || p.Env[1].Value != "one" {
		t.Errorf("%v", plan.Explain(err))
	}
}

func TestFillAsksOnce(t *testing.T) {
	dir := t.TempDir()
	s := commandSource(script(t, "echo x >>"+dir+"/count; echo v"))
	f := &Filler{Environ: []string{"PATH=/usr/bin:/bin"}}
	for range 2 {
		p, err := f.Fill(t.Context(), planWith(s, s))
		if err != nil || p.Env[0].Value != "v" || p.Env[1].Value != "v" {
			t.Errorf("%v", err)
		}
	}
	if data, err := os.ReadFile(dir + "/count"); err != nil || string(data) != "x\n" {
		t.Errorf("the program ran %d times: %v", strings.Count(string(data), "x"), err)
	}
}

func TestFillTellsEveryFailure(t *testing.T) {
	dir := t.TempDir()
	good := writeFile(t, dir+"/good", sentinel, 0o600)
	p, err := (&Filler{}).Fill(t.Context(), planWith(fileSource(dir+"/none"), fileSource(good), plan.ValueSource{Kind: plan.SourceEnv, Name: "NONE"}, plan.ValueSource{Kind: "vault", Name: "x"}))
	want := `error: cannot fetch the value of V0 from the file ` + dir + `/none: no such file or directory
  at p.toml:1
error: cannot fetch the value of V2 from the variable NONE: it is not set
  at p.toml:3
  hint: set it where wall is started
error: cannot fetch the value of V3 from an unknown source: wall bug: unknown kind of source
  at p.toml:4
`
	if got := plan.Explain(err); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if got := p.Unfilled(); !slices.Equal(got, []string{"V0", "V1", "V2", "V3"}) || p.Env[1].Value != "" {
		t.Errorf("after a failure %q are unfilled", got)
	}
}

func TestFillWithoutSources(t *testing.T) {
	p := plan.Plan{Env: []plan.EnvVar{{Name: "A", Value: ""}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := (&Filler{}).Fill(ctx, p); err != nil || len(got.Env) != 1 {
		t.Errorf("%v", err)
	}
}

// TestKeyring runs TestKeyringSession with a session keyring of its own.
func TestKeyring(t *testing.T) {
	need(t, "keyring")
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), helperVariable+"=session -test.run=^TestKeyringSession$ -test.v")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestKeyringSession") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestKeyringSession(t *testing.T) {
	if os.Getenv("WALL_TEST_SOURCE_SESSION") == "" {
		return // TestKeyring runs it
	}
	key := func(name string) plan.ValueSource { return plan.ValueSource{Kind: plan.SourceKeyring, Name: name} }
	unique := "wall-test:" + strconv.Itoa(os.Getpid()) + ":"
	add := func(name, value string, ring int) int {
		t.Helper()
		id, err := unix.AddKey("user", unique+name, []byte(value), ring)
		must(t, err)
		t.Cleanup(func() { _, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, ring, 0, 0) }) // revoked ones are gone already
		return id
	}
	const session, user = unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING
	add("session", "a b\n\xff", session)
	add("user", "u", user)
	add("both", "of the user", user)
	add("both", "of the session", session)
	add("empty-like", "\x00"+sentinel, session)
	long := strings.Repeat("v", 8<<10) // all keys of an ordinary user may have 20,000 bytes
	add("long", long, session)
	for name, want := range map[string]string{"session": "a b\n\xff", "user": "u", "both": "of the session", "long": long} {
		if got, err := fetch(t, &Filler{}, key(unique+name)); err != nil || got != want {
			t.Errorf("%s: got %.30q %v", name, got, err)
		}
	}
	// The way to the key is closed again: the thread's keyring ended with it.
	id, err := unix.KeyctlSearch(user, "user", unique+"user", 0)
	must(t, err)
	if n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, make([]byte, 10), 0); err != unix.EACCES {
		t.Errorf("the user's key can be read by its number: %d %v", n, err)
	}

	revoked := add("revoked", sentinel, session)
	_, err = unix.KeyctlInt(unix.KEYCTL_REVOKE, revoked, 0, 0, 0)
	must(t, err)
	expired := add("expired", sentinel, session)
	_, err = unix.KeyctlInt(unix.KEYCTL_SET_TIMEOUT, expired, 1, 0, 0)
	must(t, err)
	time.Sleep(1500 * time.Millisecond)
	for name, want := range map[string]string{
		"none": "required key not available", "revoked": "key has been revoked", "expired": "key has expired",
		"empty-like": "holds a NUL byte",
	} {
		_, err := fetch(t, &Filler{}, key(unique+name))
		wantError(t, err, "the key "+unique+name+": ", want)
	}
}

// A bus with a Secret Service of its own.
type desktop struct {
	address string
	conn    *dbus.Conn
	session dbus.ObjectPath
}

// startBus starts a message bus and gives its address.
func startBus(t *testing.T) string {
	t.Helper()
	need(t, "tool:dbus-daemon")
	dir, err := os.MkdirTemp("/tmp", "wall-bus-") // the path of a socket is short
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	socket := dir + "/a bus"
	writeFile(t, dir+"/config", `<busconfig><type>session</type><listen>unix:path=`+dir+`/a%20bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>`, 0o600)
	var log strings.Builder
	run(t, &log, exec.Command("dbus-daemon", "--config-file="+dir+"/config", "--nofork", "--nopidfile", "--nosyslog"))
	for range 6000 {
		if c, err := net.Dial("unix", socket); err == nil {
			must(t, c.Close())
			return "unix:path=" + strings.ReplaceAll(socket, " ", "%20")
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("the bus does not listen: %s", &log)
	return ""
}

// run starts a program that is ended with the test.
func run(t *testing.T, log *strings.Builder, cmd *exec.Cmd) {
	t.Helper()
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // may have ended
		_ = cmd.Wait()
	})
}

// startDesktop starts a bus with GNOME Keyring, whose one keyring is unlocked.
func startDesktop(t *testing.T) desktop {
	t.Helper()
	need(t, "tool:gnome-keyring-daemon")
	d := desktop{address: startBus(t)}
	home := t.TempDir()
	cmd := exec.Command("gnome-keyring-daemon", "--unlock", "--foreground", "--components=secrets")
	cmd.Env = []string{"DBUS_SESSION_BUS_ADDRESS=" + d.address, "HOME=" + home, "XDG_RUNTIME_DIR=" + home, "XDG_DATA_HOME=" + home, "PATH=/usr/bin:/bin"}
	cmd.Stdin = strings.NewReader("password")
	var log strings.Builder
	run(t, &log, cmd)
	var err error
	d.conn, err = dbus.Connect(d.address)
	must(t, err)
	t.Cleanup(func() { must(t, d.conn.Close()) })
	service := d.conn.Object(serviceName, servicePath)
	var ignored, collections dbus.Variant
	for range 6000 {
		err = service.Call("org.freedesktop.DBus.Properties.Get", 0, "org.freedesktop.Secret.Service", "Collections").Store(&collections)
		if err == nil && strings.Contains(collections.String(), "/login") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Fatalf("GNOME Keyring does not answer: %v: %s", err, &log)
	}
	must(t, service.Call(serviceIs+"OpenSession", 0, "plain", dbus.MakeVariant("")).Store(&ignored, &d.session))
	return d
}

const loginCollection = servicePath + "/collection/login"

// store puts a secret into the keyring.
func (d desktop) store(t *testing.T, attrs map[string]string, value string) {
	t.Helper()
	type secret struct {
		Session           dbus.ObjectPath
		Parameters, Value []byte
		ContentType       string
	}
	properties := map[string]dbus.Variant{
		"org.freedesktop.Secret.Item.Label":      dbus.MakeVariant("label " + sentinel),
		"org.freedesktop.Secret.Item.Attributes": dbus.MakeVariant(attrs),
	}
	var item, prompt dbus.ObjectPath
	must(t, d.conn.Object(serviceName, loginCollection).Call("org.freedesktop.Secret.Collection.CreateItem", 0,
		properties, secret{d.session, []byte{}, []byte(value), "text/plain"}, false).Store(&item, &prompt))
	if item == "/" {
		t.Fatal("storing asks a person")
	}
}

func secretSource(kv ...string) plan.ValueSource {
	var attrs []plan.Attribute
	for i := 0; i < len(kv); i += 2 {
		attrs = append(attrs, plan.Attribute{Name: kv[i], Value: kv[i+1]})
	}
	return plan.ValueSource{Kind: plan.SourceSecretService, Name: plan.EncodeAttributes(attrs)}
}

func TestSecretService(t *testing.T) {
	d := startDesktop(t)
	d.store(t, map[string]string{"service": "db", "user": "me"}, "the value\n")
	d.store(t, map[string]string{"service": "db", "user": "é & ü"}, "the other")
	d.store(t, map[string]string{"service": "odd"}, sentinel+"\x00")
	f := func() *Filler { return &Filler{Environ: []string{"DBUS_SESSION_BUS_ADDRESS=" + d.address}} }
	for want, s := range map[string]plan.ValueSource{
		"the value\n": secretSource("user", "me", "service", "db"),
		"the other":   secretSource("user", "é & ü"),
	} {
		if got, err := fetch(t, f(), s); err != nil || got != want {
			t.Errorf("%s: got %q %v", s, got, plan.Explain(err))
		}
	}
	for want, s := range map[string]plan.ValueSource{
		"it has 2 secrets with these attributes": secretSource("service", "db"),
		"it has no secret with these attributes": secretSource("service", "none"),
		"holds a NUL byte":                       secretSource("service", "odd"),
		"an attribute is not UTF-8":              secretSource("service", "\xff"),
	} {
		_, err := fetch(t, f(), s)
		wantError(t, err, "the Secret Service: ", want)
	}
	var locked []dbus.ObjectPath
	var prompt dbus.ObjectPath
	must(t, d.conn.Object(serviceName, servicePath).Call(serviceIs+"Lock", 0, []dbus.ObjectPath{loginCollection}).Store(&locked, &prompt))
	_, err := fetch(t, f(), secretSource("user", "me"))
	wantError(t, err, "the secret is locked", "hint: unlock its keyring")
}

func TestSecretServiceMissing(t *testing.T) {
	bus := func(address string) *Filler { return &Filler{Environ: []string{"DBUS_SESSION_BUS_ADDRESS=" + address}} }
	s := secretSource("service", "db")
	_, err := fetch(t, bus("unix:path="+t.TempDir()+"/none"), s)
	wantError(t, err, "cannot connect to the message bus", "no such file or directory", "DBUS_SESSION_BUS_ADDRESS")
	for _, address := range []string{"tcp:host=127.0.0.1,port=1", "unixexec:path=/bin/sh", "autolaunch:", "unix:path=relative", "nonsense"} {
		_, err := fetch(t, bus(address), s)
		wantError(t, err, "its address names no local socket")
	}
	_, err = fetch(t, bus(startBus(t)), s)
	wantError(t, err, "no Secret Service runs in this session")
}

// listen starts a process that listens on an abstract socket and never answers.
func listen(t *testing.T, credential *syscall.Credential) string {
	t.Helper()
	exe, err := os.Open("/proc/self/exe")
	must(t, err)
	t.Cleanup(func() { exe.Close() })
	name := "wall-test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{exe}
	cmd.Env = append(os.Environ(), helperVariable+"=listen @"+name)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		must(t, cmd.Process.Kill())
		_ = cmd.Wait() // was killed
	})
	_, err = out.Read(make([]byte, 16))
	must(t, err)
	return "unix:abstract=" + name
}

func TestSecretServiceHangs(t *testing.T) {
	f := &Filler{Environ: []string{"DBUS_SESSION_BUS_ADDRESS=" + listen(t, nil)}}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := fetchContext(t, ctx, f, secretSource("service", "db"))
	wantError(t, err, "it took more than 10s")
}

func TestSecretServiceOfAnotherUser(t *testing.T) {
	need(t, "root")
	f := &Filler{Environ: []string{"DBUS_SESSION_BUS_ADDRESS=" + listen(t, &syscall.Credential{Uid: 12345, Gid: 12345})}}
	_, err := fetch(t, f, secretSource("service", "db"))
	wantError(t, err, "it is run by another user")
}

func TestBusSocket(t *testing.T) {
	for address, want := range map[string]string{
		"unix:path=/run/user/1000/bus":                         "/run/user/1000/bus",
		"unix:abstract=/tmp/dbus-x,guid=12":                    "@/tmp/dbus-x",
		"unix:guid=12,path=/a%20b":                             "/a b",
		"tcp:host=x;unix:path=/b":                              "/b",
		"unix:tmpdir=/tmp;unix:path=/b":                        "/b",
		"unix:path=%zz;unix:path=%00;unix:path=;unix:path=/ok": "/ok",
	} {
		if got, err := busSocket(address); err != nil || got != want {
			t.Errorf("busSocket(%q) = %q %v, want %q", address, got, err, want)
		}
	}
}
