package profile

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

// TestNoCommand: without a command the plan is the one of a run, except for the
// command, and no stage takes it.
func TestNoCommand(t *testing.T) {
	names, err := filepath.Glob("../testdata/profiles/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, file := range names {
		a, err := readArchive(file)
		if err != nil {
			t.Fatal(err)
		}
		h, o := readCase(t, a)
		want, wantErr := Resolve(h, o)
		o.Command, o.NoCommand = nil, true
		got, err := Resolve(h, o)
		name := filepath.Base(file)
		switch {
		case wantErr == nil && err == nil:
			same++
			want.Command.Path, want.Command.Argv = "", nil
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: differs in more than the command", name)
			}
			if got.Validate() == nil {
				t.Errorf("%s: a plan without a command is valid", name)
			}
		case wantErr == nil, err != nil && err.Error() != wantErr.Error():
			t.Errorf("%s: %v, with a command %v", name, err, wantErr)
		case err == nil && !strings.HasPrefix(name, "command-") && !strings.Contains(wantErr.Error(), "cannot run "):
			t.Errorf("%s: no error; with a command %v", name, wantErr)
		}
	}
	if same < 40 {
		t.Errorf("%d plans compared", same)
	}
}

func TestErrWorkspace(t *testing.T) {
	for _, c := range []struct {
		cwd  string
		want bool
	}{{"/home/u", true}, {"/", true}, {"/etc", true}, {"/proc/sys", true}, {"/nowhere", false}} {
		h := goldenHost{Cwd: &c.cwd}.host(parseTree(t, ""))
		_, err := Resolve(h, Options{Default: "agent", NoCommand: true})
		if err == nil || errors.Is(err, ErrWorkspace) != c.want {
			t.Errorf("%s: %v, want ErrWorkspace %v", c.cwd, err, c.want)
		}
		var e *plan.Error
		if c.want && (!errors.As(err, &e) || !strings.Contains(plan.Explain(err), "cannot use "+c.cwd+" as the workspace: it ")) {
			t.Errorf("%s: %s", c.cwd, plan.Explain(err))
		}
	}
}

func TestUserDir(t *testing.T) {
	for _, c := range []struct{ xdg, cwd, want string }{
		{"", "/home/u/proj", "/home/u/.config/wall"},
		{"/srv/cfg", "/home/u/proj", "/srv/cfg/wall"},
		{"relative", "/home/u/proj", "/home/u/.config/wall"},
		{"/home/u/proj/cfg", "/home/u/proj", "/home/u/.config/wall"},
	} {
		h := goldenHost{Environ: []string{"XDG_CONFIG_HOME=" + c.xdg}}.host(parseTree(t, ""))
		got, err := UserDir(h, c.cwd)
		if got != c.want || err != nil {
			t.Errorf("XDG_CONFIG_HOME=%s in %s: %q, %v, want %s", c.xdg, c.cwd, got, err, c.want)
		}
		if file, err := InjectedFile(h, c.cwd); file != c.want+"/injected.json" || err != nil {
			t.Errorf("the stored variables are in %q, %v", file, err)
		}
	}
}
