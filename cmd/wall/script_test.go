package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/wallsandbox/wall/landlock"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/seccomp"
)

// TestScripts runs testdata/script, which says what users type and see. On top
// of testscript's own commands there are
//
//	exits N COMMAND...   the command must end with exactly this status
//	json FILE KEY WANT   a field of a JSON object, as Go's %v prints it
//	without-nftables COMMAND...   as on a kernel that cannot redirect connections
//
// and the conditions userns, redirect, seccomp, landlock:N, cgo, root and tool:NAME.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:       "testdata/script",
		Condition: scriptCondition,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": cmdExits,
			"json":  cmdJSON,
		},
		Setup: func(env *testscript.Env) error {
			// wall must not depend on them, and the scripts must not see the
			// tester's.
			env.Vars = slices.DeleteFunc(env.Vars, func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") })
			env.Setenv("LC_ALL", "C")
			return nil
		},
		RequireUniqueNames: true,
	})
}

func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: json FILE KEY WANT")
	}
	got, err := jsonField(ts.ReadFile(args[0]), args[1])
	ts.Check(err)
	if got != args[2] {
		ts.Fatalf("%s is %q, want %q", args[1], got, args[2])
	}
}

// scriptCondition tells what this host can do, by trying. What WALL_TEST_REQUIRE
// names must be there.
func scriptCondition(cond string) (bool, error) {
	word, arg, _ := strings.Cut(cond, ":")
	ok, why := false, ""
	switch word {
	case "userns":
		for _, f := range probed() {
			if !f.OK && !f.Optional {
				why = f.Name + ": " + f.Detail
			}
		}
		ok = why == "" && len(probed()) > 0
	case "redirect":
		for _, f := range probed() {
			if strings.HasPrefix(f.Name, "redirection") {
				ok, why = f.OK, f.Detail
			}
		}
	case "seccomp":
		var err error
		ok, err = seccomp.Probe()
		why = fmt.Sprint(err)
	case "landlock":
		want, err := strconv.Atoi(arg)
		if err != nil {
			return false, fmt.Errorf("condition %q: want landlock:N", cond)
		}
		abi, err := landlock.ABI()
		ok, why = err == nil && abi >= want, fmt.Sprintf("ABI %d, %v", abi, err)
	case "cgo":
		ok, why = canCompile, "this wall was built without cgo"
	case "root":
		return os.Getuid() == 0, nil // each half of the tests is run
	case "tool":
		_, err := exec.LookPath(arg)
		ok, why = err == nil, fmt.Sprint(err)
		word = "tools"
	default:
		return false, fmt.Errorf("unknown condition %q", cond)
	}
	if !ok && slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), word) {
		return false, fmt.Errorf("%s is required and not there: %s", cond, why)
	}
	return ok, nil
}

// probed is what nsexec.Probe found, once.
var probed = sync.OnceValue(func() []nsexec.Feature {
	features, err := nsexec.Probe(context.Background())
	if err != nil {
		return []nsexec.Feature{{Name: "trying", Detail: err.Error()}}
	}
	return features
})
