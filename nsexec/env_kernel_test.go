package nsexec

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// An engine that uses the packages without the command line: the environment of
// each kind of child, read back from a really spawned box and from a plain one.
func TestEnvironmentsOfTheAPI(t *testing.T) {
	secrets := []string{"GH_TOKEN", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", "GIT_SSH_COMMAND", "WALL_X", "OTHER_API_KEY"}
	in := envscrub.Input{Home: "/home/engine", TmpDir: "/tmp", ScratchHome: true}
	for name := range strings.FieldsSeq("PATH TERM LANG USER CI RUSTUP_HOME DB_URL HTTP_PROXY SSL_CERT_FILE MY_API_KEY " + strings.Join(secrets, " ")) {
		in.Ambient = append(in.Ambient, name+"=/ambient "+name+"\xff\n")
	}
	spec := []envscrub.Assign{{Name: "GIT_AUTHOR_NAME", Value: "a b=c"}, {Name: "HOME", Value: "/spec/home"}, {Name: "MY_API_KEY", Value: "spec"}}
	auth := envscrub.Name{Name: "MY_API_KEY"}
	contract := envscrub.ContractOptions{BaseSHA: "94d2836", Pass: []envscrub.Name{{Name: "DB_URL"}, {Name: "path"}}}
	workspace, notices := envscrub.Workspace(envscrub.WorkspaceOptions{
		ContractOptions: contract, Declared: []envscrub.Name{{Name: "DB_URL"}, {Name: "GH_TOKEN"}},
		Handle: []envscrub.Assign{{Name: "LANG", Value: "handle"}},
	})
	if len(notices) != 1 {
		t.Errorf("notices %v", notices)
	}
	for name, tt := range map[string]struct {
		policy envscrub.Policy
		names  string
		values map[string]string // those that are not the caller's
	}{
		"session": {envscrub.Session(spec, auth), "GIT_AUTHOR_NAME HOME LANG MY_API_KEY PATH RUSTUP_HOME TERM TMPDIR USER",
			map[string]string{"GIT_AUTHOR_NAME": "a b=c", "HOME": "/spec/home", "TMPDIR": "/tmp"}},
		"contract": {envscrub.Contract(contract), "DB_URL HOME KRANZ_BASE_SHA LANG PATH RUSTUP_HOME TERM TMPDIR USER",
			map[string]string{"KRANZ_BASE_SHA": "94d2836", "HOME": "/home/engine", "TMPDIR": "/tmp"}},
		"gate": {envscrub.Gate(), "CI HOME LANG PATH RUSTUP_HOME TEMP TERM TMP TMPDIR",
			map[string]string{"HOME": "/home/engine", "TMPDIR": "/tmp", "TMP": "/tmp", "TEMP": "/tmp"}},
		"probe": {envscrub.Probe(auth, spec[:1]), "GIT_AUTHOR_NAME HOME LANG MY_API_KEY PATH TEMP TERM TMP TMPDIR USER",
			map[string]string{"GIT_AUTHOR_NAME": "a b=c", "HOME": "/home/engine", "TMPDIR": "/tmp", "TMP": "/tmp", "TEMP": "/tmp"}},
		"workspace": {workspace, "DB_URL HOME HTTP_PROXY KRANZ_BASE_SHA LANG PATH RUSTUP_HOME SSL_CERT_FILE TERM TMPDIR USER",
			map[string]string{"KRANZ_BASE_SHA": "94d2836", "HOME": "/home/engine", "TMPDIR": "/tmp", "LANG": "handle"}},
	} {
		built, err := envscrub.Build(in, tt.policy)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var want []string
		for n := range strings.FieldsSeq(tt.names) {
			value, own := tt.values[n]
			if !own {
				value = "/ambient " + n + "\xff\n"
			}
			want = append(want, n+"="+value)
		}
		for _, enforce := range []plan.Enforce{plan.EnforceFSNet, plan.EnforceOff} {
			p := testPlan(t, "cat", "/proc/self/environ")
			p.Command.Path = "/bin/cat"
			p.Env = built.Env
			if enforce == plan.EnforceOff {
				p = plan.Plan{Version: plan.Version, Profile: "test", Enforce: enforce, Command: p.Command, Identity: p.Identity, Env: p.Env}
			}
			var out, errs bytes.Buffer
			c := Command(p)
			c.Stdout, c.Stderr = &out, &errs
			if err := c.Run(); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, errs.String())
			}
			got := strings.Split(strings.TrimSuffix(out.String(), "\x00"), "\x00")
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: inside %q\nwant %q", name, enforce, got, want)
			}
			for _, s := range secrets {
				if strings.Contains(out.String(), "ambient "+s) {
					t.Errorf("%s, %s: %s is inside", name, enforce, s)
				}
			}
		}
	}
}
