package integration_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

// The rules of the repository, as tests: what may import what, what may be called where, and which documents must agree with
// the code. Each rule has its reason next to it. These tests need neither the binary nor a kernel feature.

const (
	root   = ".." // of the repository, seen from this directory
	module = "github.com/wallsandbox/wall"
)

// Third-party modules, each with the reason for having it. A line goes when its module goes.
var modules = map[string]string{
	"github.com/creack/pty":                         "tests put a terminal on wall's standard streams",
	"github.com/godbus/dbus/v5":                     "speaks with the Secret Service and the user's systemd; adds 0.02 ms to the start and 0.8 MB to the binary, measured",
	"github.com/inconshreveable/mousetrap":          "cobra's, for Windows only; no code of it is in the binary",
	"github.com/landlock-lsm/go-landlock":           "Landlock rulesets: the library of the Landlock project itself",
	"github.com/opencontainers/runtime-spec":        "the types of seccomp profiles, as every container tool writes them",
	"github.com/pelletier/go-toml/v2":               "reads profiles, and knows the position of every value, for errors",
	"github.com/rogpeppe/go-internal":               "tests only: testscript",
	"github.com/seccomp/libseccomp-golang":          "compiles seccomp profiles: the library of the libseccomp project itself",
	"github.com/spf13/cobra":                        "command line, help, completion; adds 0.3 ms to the start, measured",
	"github.com/spf13/pflag":                        "cobra's flags: the types of its errors, for messages of our own",
	"go.yaml.in/yaml/v3":                            "tests only: reads the files for CI systems in docs/integrations",
	"golang.org/x/net":                              "a virtual machine for BPF, in which tests run the filters",
	"golang.org/x/sys":                              "system calls and their constants",
	"golang.org/x/tools":                            "tests only: go-internal's reading of txtar archives",
	"kernel.org/pub/linux/libs/security/libcap/psx": "go-landlock's: a system call on all threads at once; here also the id calls of stage 2",
}

// What the packages import besides the standard library, and why. An import that is not here fails the test; so does a line
// that no import needs.
var imports = map[string]map[string]string{
	"plan": {},
	"profile": {
		"plan":     "Resolve makes a plan",
		"envscrub": "the environment is part of the plan",
		"github.com/pelletier/go-toml/v2/unstable": "the syntax tree with positions",
	},
	"profile/lint": {
		"plan":     "findings stand at origins",
		"profile":  "parses and resolves; knows the keys and groups",
		"envscrub": "which names are credentials, and what a pattern matches",
	},
	"profile/schema": {
		"profile": "the table of keys",
	},
	"profile/convert": {
		"plan":                            "its errors",
		"profile":                         "asks the language whether a piece of a profile is right",
		"github.com/pelletier/go-toml/v2": "reads the settings of codex",
		"github.com/pelletier/go-toml/v2/unstable": "the lines of their keys",
	},
	"envscrub": {
		"plan": "the result is plan.EnvVar and plan.EnvDrop",
	},
	"envscrub/inject": {
		"plan":                  "its errors",
		"envscrub":              "which names are valid, and which load code",
		"golang.org/x/sys/unix": "locks, and files opened without following links",
	},
	"envscrub/source": {
		"plan":                      "which values to fetch, and its errors",
		"internal/bus":              "connects to the session's bus",
		"github.com/godbus/dbus/v5": "speaks with the Secret Service",
		"golang.org/x/sys/unix":     "the kernel's keyrings, and who owns a file",
	},
	"internal/bus": {
		"github.com/godbus/dbus/v5": "the handshake",
		"golang.org/x/sys/unix":     "who is at the other end",
	},
	"landlock": {
		"plan": "rules come from plan entries",
		"github.com/landlock-lsm/go-landlock/landlock":         "applies a ruleset",
		"github.com/landlock-lsm/go-landlock/landlock/syscall": "the ABI number and the names of the rights",
		"golang.org/x/sys/unix":                                "system calls",
	},
	"seccomp": {
		"plan":                                 "names the filter",
		"github.com/seccomp/libseccomp-golang": "compiles a profile",
		"github.com/opencontainers/runtime-spec/specs-go": "the profile's types",
		"golang.org/x/sys/unix":                           "installs a filter",
	},
	"scratch": {
		"plan":                  "what to make",
		"golang.org/x/sys/unix": "openat2 and locks",
	},
	"cgroup": {
		"plan":                      "where the groups are, and the limits",
		"internal/bus":              "connects to the user's systemd",
		"github.com/godbus/dbus/v5": "asks the user's systemd for a scope",
		"golang.org/x/sys/unix":     "rmdir, and files opened without following links",
	},
	"egress": {
		"plan":                  "the rules, and its errors",
		"golang.org/x/sys/unix": "splice, and the original destination of a connection",
	},
	"nsexec": {
		"egress":                "the outer part of the network wall",
		"plan":                  "what to do",
		"cgroup":                "stage 1 puts stage 2 into its group",
		"landlock":              "stage 2 applies the ruleset",
		"seccomp":               "stage 2 installs the filter",
		"scratch":               "stage 1 prepares and removes the directory of the run",
		"golang.org/x/sys/unix": "system calls",
		"kernel.org/pub/linux/libs/security/libcap/psx": "capability sets of every thread of pid 1",
	},
	"host": {
		"plan":                  "what stands on the standard streams, and errors",
		"profile":               "the facts are profile.Host",
		"cgroup":                "where cgroups can be made",
		"envscrub/inject":       "the stored variables",
		"landlock":              "its ABI",
		"seccomp":               "whether there are filters",
		"nsexec":                "describes the standard streams",
		"golang.org/x/sys/unix": "system calls",
	},
	"docs/integrations/gate-go": {
		"gate":    "what it shows",
		"host":    "facts",
		"nsexec":  "pid 1 of the box is the program itself",
		"profile": "makes the plan",
	},
	"gate": {
		"egress":                "what a command did on its network",
		"plan":                  "what to run",
		"nsexec":                "runs it",
		"scratch":               "one directory for all phases",
		"golang.org/x/sys/unix": "pipes, and what changed in the workspace",
	},
	"cmd/wall": {
		"egress":                 "shows what a command does on its network",
		"host":                   "the facts about this machine",
		"plan":                   "prints it, and its errors",
		"profile":                "resolves flags and files",
		"profile/lint":           "wall profile check",
		"profile/convert":        "the importers",
		"profile/schema":         "prints it",
		"envscrub":               "what is the name of a variable",
		"envscrub/inject":        "wall env, and what runs read of it",
		"envscrub/source":        "fetches the values of variables right before the start",
		"cmd/wall/envpage":       "wall env ui",
		"nsexec":                 "runs the plan",
		"gate":                   "runs it to a verdict",
		"landlock":               "doctor probes it",
		"seccomp":                "doctor probes it; custom filters are compiled",
		"cgroup":                 "finds a place for the groups of a run",
		"scratch":                "where the directory of a run lies",
		"github.com/spf13/cobra": "command line",
		"github.com/spf13/pflag": "command line",
		"golang.org/x/sys/unix":  "facts about the host",
	},
	"cmd/wall/envpage": {
		"plan":            "errors for people",
		"envscrub/inject": "the stored variables",
	},
	"seccomp/gen": {
		"seccomp": "compiles the built-in profiles",
	},
	"integration/kernels":       {},
	"integration/kernels/guest": {"integration/kernels": "the steps and their results"},
	"integration/probe": {
		"golang.org/x/net/bpf":            "assembles a filter behind which a facility of the kernel looks missing",
		"golang.org/x/net/dns/dnsmessage": "asks a name server what it likes",
		"golang.org/x/sys/unix":           "system calls",
	},
	"integration": {},
}

// What test files import beyond their package's own line.
var testImports = map[string]string{
	"plan":     "every test speaks of plans",
	"host":     "examples make plans for this host",
	"profile":  "examples make plans for this host",
	"envscrub": "nsexec reads the environments that policies make back from boxes",
	"github.com/rogpeppe/go-internal/testscript": "command line scripts",
	"github.com/creack/pty":                      "terminals",
	"github.com/pelletier/go-toml/v2":            "a second opinion about TOML",
	"golang.org/x/net/bpf":                       "filters as programs",
	"golang.org/x/net/dns/dnsmessage":            "a second opinion about DNS",
	"go.yaml.in/yaml/v3":                         "what CI systems read",
	"golang.org/x/net/publicsuffix":              "the whole list, next to the short one",
	"golang.org/x/sys/unix":                      "what the kernel says",
}

// Imports of the standard library that a package may not have, with the reason.
var forbiddenImports = []struct {
	packages []string // empty: all
	imports  []string
	reason   string
}{
	{[]string{"plan", "profile", "envscrub"}, []string{"os", "os/exec", "os/user", "syscall", "net", "time", "math/rand", "math/rand/v2", "crypto/rand", "runtime"},
		"policy is a function of its arguments: the same flags, files and host facts give the same plan"},
	{[]string{"plan", "profile", "envscrub", "envscrub/inject", "envscrub/source", "landlock", "seccomp", "scratch", "cgroup", "nsexec", "gate"}, []string{"log", "log/slog"},
		"only cmd/wall prints, and stage 2 has nowhere to print to"},
	{[]string{"plan", "profile", "envscrub", "envscrub/inject", "landlock", "seccomp", "scratch", "cgroup", "nsexec", "cmd/wall"}, []string{"os/exec"},
		"wall runs no program but the command, and those that a profile names for a value: envscrub/source"},
	{nil, []string{"plugin", "text/template", "html/template"}, "nothing is generated from text at run time"},
}

// Calls that a package may not contain, with the reason. Test files are free.
var forbiddenCalls = []struct {
	packages []string // empty: all
	call     string
	reason   string
}{
	{[]string{"nsexec"}, "os.Create", "follows links and truncates; stage 2 opens by descriptor with openat2"},
	{[]string{"nsexec"}, "os.WriteFile", "follows links and truncates; stage 2 opens by descriptor with openat2"},
	{[]string{"nsexec"}, "os.MkdirAll", "follows links that the workspace may have planted"},
	{[]string{"nsexec"}, "os.RemoveAll", "crosses mounts and links; package scratch removes by descriptor"},
	{nil, "exec.LookPath", "nothing wall does may depend on the caller's PATH; the command is looked up in Resolve"},
	{nil, "os.Clearenv", "an environment is built from nothing, not emptied"},
	{nil, "os.Setenv", "the environment of the command travels in the plan, never through wall's own"},
	{[]string{"plan", "profile", "envscrub", "envscrub/inject", "envscrub/source", "landlock", "seccomp", "scratch", "cgroup", "nsexec", "gate"}, "os.Getenv", "the caller's environment is a host fact, gathered in cmd/wall"},
	{[]string{"plan", "profile", "envscrub", "envscrub/inject", "envscrub/source", "landlock", "seccomp", "scratch", "cgroup", "nsexec", "gate"}, "os.LookupEnv", "the caller's environment is a host fact, gathered in cmd/wall"},
	{[]string{"plan", "profile", "envscrub", "envscrub/inject", "envscrub/source", "landlock", "seccomp", "scratch", "cgroup", "nsexec", "gate"}, "os.Environ", "the caller's environment is a host fact, gathered in cmd/wall"},
	{[]string{"plan", "profile", "envscrub", "envscrub/inject", "envscrub/source", "landlock", "seccomp", "scratch", "cgroup", "nsexec", "gate"}, "fmt.Print", "only cmd/wall prints"},
	{[]string{"plan", "profile", "envscrub", "envscrub/inject", "envscrub/source", "landlock", "seccomp", "scratch", "cgroup", "nsexec", "gate"}, "fmt.Println", "only cmd/wall prints"},
	{[]string{"plan", "profile", "envscrub", "envscrub/inject", "envscrub/source", "landlock", "seccomp", "scratch", "cgroup", "nsexec", "gate"}, "fmt.Printf", "only cmd/wall prints"},
	{[]string{"plan", "profile", "envscrub", "envscrub/inject", "envscrub/source", "landlock", "seccomp", "scratch", "cgroup"}, "os.Exit", "a library returns errors"},
	{nil, "unix.Chroot", "a chroot can be left; the root is changed with pivot_root and the old one detached"},
	{nil, "net.Listen", "uses MPTCP, which Landlock's TCP rules do not see"},
}

// A goFile is one parsed source file of the repository.
type goFile struct {
	dir  string // of the package, relative to the root: "cmd/wall"
	name string // "main.go"
	test bool
	ast  *ast.File
}

func (f goFile) String() string { return path.Join(f.dir, f.name) }

// in reports whether the file's package is in the list; the empty list has all.
func (f goFile) in(packages []string) bool {
	return len(packages) == 0 || slices.Contains(packages, f.dir)
}

// walkRepo calls f with the slash-separated name, relative to the root, of every file of the repository that a person wrote.
func walkRepo(t *testing.T, f func(name string)) {
	t.Helper()
	made := []string{".git", "bin", "vendor"}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() && slices.Contains(made, rel) {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			f(rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// goFiles parses every Go file of the repository, whatever its build constraints.
func goFiles(t *testing.T, fset *token.FileSet) []goFile {
	t.Helper()
	var files []goFile
	walkRepo(t, func(name string) {
		if !strings.HasSuffix(name, ".go") || strings.Contains(name, "/testdata/") {
			return
		}
		tree, err := parser.ParseFile(fset, filepath.Join(root, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, goFile{dir: path.Dir(name), name: path.Base(name), test: strings.HasSuffix(name, "_test.go"), ast: tree})
	})
	if len(files) == 0 {
		t.Fatal("no Go files found")
	}
	return files
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// importPaths gives what a file imports: packages of this module relative to it, the others in full.
func importPaths(t *testing.T, f goFile) []string {
	t.Helper()
	var paths []string
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, strings.TrimPrefix(p, module+"/"))
	}
	return paths
}

// isStandard reports whether an import path is the standard library's: its first element has no dot, and it is not ours.
func isStandard(p string, local map[string]bool) bool {
	first, _, _ := strings.Cut(p, "/")
	return !strings.Contains(first, ".") && !local[p]
}

// TestRulesImports compares every import with the tables above.
func TestRulesImports(t *testing.T) {
	files := goFiles(t, token.NewFileSet())
	local := make(map[string]bool)
	for _, f := range files {
		local[f.dir] = true
	}
	for dir := range local {
		if _, ok := imports[dir]; !ok {
			t.Errorf("package %s is not in the table: a new package needs a line that says what it may import", dir)
		}
	}
	used := make(map[string]bool)
	for _, f := range files {
		for _, p := range importPaths(t, f) {
			if p == "C" || isStandard(p, local) {
				for _, rule := range forbiddenImports {
					if !f.test && f.in(rule.packages) && slices.Contains(rule.imports, p) {
						t.Errorf("%s imports %s: %s", f, p, rule.reason)
					}
				}
				continue
			}
			if _, ok := imports[f.dir][p]; ok {
				if !f.test {
					used[f.dir+" "+p] = true
				}
				continue
			}
			if f.test && (testImports[p] != "" || p == f.dir || p == module) {
				used["test "+p] = true
				continue
			}
			t.Errorf("%s imports %s, which is not in the table of package %s", f, p, f.dir)
		}
	}
	for dir, table := range imports {
		for p := range table {
			if !used[dir+" "+p] {
				t.Errorf("the table lets package %s import %s, which it does not", dir, p)
			}
		}
	}
	for p := range testImports {
		if !used["test "+p] {
			t.Errorf("the table lets tests import %s, which none does", p)
		}
	}
}

// TestRulesModules: every module in go.mod has a reason, and every reason its module.
func TestRulesModules(t *testing.T) {
	seen := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^(?:require)?\s+([a-z]\S*\.\S*/\S+) v`).FindAllStringSubmatch(readFile(t, "go.mod"), -1) {
		seen[m[1]] = true
		if modules[m[1]] == "" {
			t.Errorf("go.mod requires %s, which has no line saying why", m[1])
		}
	}
	for m := range modules {
		if !seen[m] {
			t.Errorf("%s has a reason but go.mod does not require it", m)
		}
	}
}

// TestRulesCalls: no call that the table forbids, and no func init: an import must not do anything, least of all in stage 2.
func TestRulesCalls(t *testing.T) {
	fset := token.NewFileSet()
	for _, f := range goFiles(t, fset) {
		if f.test || f.dir == "integration/probe" { // the probe plays the attacker
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s: func init: work at import time runs in stage 2, too", fset.Position(n.Pos()))
				}
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if !ok {
					break
				}
				for _, rule := range forbiddenCalls {
					if f.in(rule.packages) && x.Name+"."+n.Sel.Name == rule.call {
						t.Errorf("%s: %s: %s", fset.Position(n.Pos()), rule.call, rule.reason)
					}
				}
			}
			return true
		})
	}
}

// TestRulesLinuxFiles: what makes system calls says so in its name, so that the rest can be read, and tested, without them.
// Other files may speak of errors and signals, which are numbers.
func TestRulesLinuxFiles(t *testing.T) {
	numbers := regexp.MustCompile(`^(E[A-Z0-9]+|Errno|SIG[A-Z0-9]+|Signal|SignalName)$`)
	fset := token.NewFileSet()
	for _, f := range goFiles(t, fset) {
		if f.test || strings.HasSuffix(f.name, "_linux.go") || strings.Contains(f.name, "_linux_") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if ok && (x.Name == "unix" || x.Name == "syscall" || x.Name == "unsafe") && !numbers.MatchString(sel.Sel.Name) {
				t.Errorf("%s: %s.%s belongs into a *_linux.go file", fset.Position(sel.Pos()), x.Name, sel.Sel.Name)
			}
			return true
		})
	}
}

// TestRulesPackageComment: exactly one package comment for each package, and it opens with the package's name.
func TestRulesPackageComment(t *testing.T) {
	comments := make(map[string][]string)
	for _, f := range goFiles(t, token.NewFileSet()) {
		if f.test {
			continue
		}
		if _, ok := comments[f.dir]; !ok {
			comments[f.dir] = nil
		}
		if f.ast.Doc == nil || strings.HasPrefix(f.ast.Doc.Text(), "Code generated") {
			continue
		}
		comments[f.dir] = append(comments[f.dir], f.name)
		want := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			want = "Command " + path.Base(f.dir) + " "
		}
		if text := f.ast.Doc.Text(); !strings.HasPrefix(text, want) {
			t.Errorf("%s: the package comment does not start with %q", f, want)
		}
	}
	for dir, in := range comments {
		if len(in) != 1 {
			t.Errorf("package %s has %d package comments %v, want one", dir, len(in), in)
		}
	}
}

// TestRulesExported: every exported name of the Go API has a comment.
func TestRulesExported(t *testing.T) {
	fset := token.NewFileSet()
	for _, f := range goFiles(t, fset) {
		if f.test || f.ast.Name.Name == "main" {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !obvious[d.Name.Name] {
					t.Errorf("%s: %s has no comment", fset.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
							t.Errorf("%s: %s has no comment", fset.Position(s.Pos()), s.Name.Name)
						}
					case *ast.ValueSpec:
						for _, n := range s.Names {
							if n.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
								t.Errorf("%s: %s has no comment", fset.Position(n.Pos()), n.Name)
							}
						}
					}
				}
			}
		}
	}
}

// obvious methods say what they do by the interface they implement.
var obvious = map[string]bool{"Error": true, "String": true}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	id, ok := typ.(*ast.Ident)
	return !ok || id.IsExported()
}

// Words of need that CI does not require, with the reason.
var notRequired = map[string]string{
	"root":             "scripts/test.sh runs the tests as root and as an ordinary user",
	"unprivileged":     "scripts/test.sh runs the tests as root and as an ordinary user",
	"ia32":             "a kernel option that many hosts leave out",
	"delegated-cgroup": "what a host delegates to an ordinary user; root has one, and the machines of TestKernels have both",
	"immutable":        "a property of the file system below the temp directory, not of the host",
	"systemd":          "the machine of TestScopes borrows the host's, and few containers have one",
	"cargo":            "a big package; the test runs where it is installed",
}

// Tests that may skip on their own, because another run of the same tests does what is skipped.
var mayskip = map[string]string{
	"TestKernels":                   "the machines hold both users and are the same whoever starts them; the root half runs it",
	"TestScopes":                    "the same",
	"TestScope":                     "few test machines run a systemd of the user; WALL_TEST_REQUIRE=systemd-user says that one must be there",
	"TestUnprivileged":              "runs the others again as another user, but not itself",
	"TestKernelHostileRoots":        "a case that only an ordinary user sees; the unprivileged half has it",
	"TestCleanupKeepsTheStatus":     "immutable files are a property of the file system below the temp directory",
	"TestKernelPlaceholderFailures": "a case that only an ordinary user sees; the unprivileged half has it",
	"TestDoGo":                      "go test -short asks for it; nothing in the Makefile does",
	"TestKernelX32Kills":            "another architecture has no x32",
	"TestKernelProbe":               "a process that is filtered already, as in a container, cannot see the absence of filters",
	"TestKranzRealChild":            "env(1) is there wherever a shell is",
}

// TestRulesSkips: tests are skipped through need, which WALL_TEST_REQUIRE can forbid; any other skip would be silent in CI.
// Every word that a test needs is required there, or has a reason above.
func TestRulesSkips(t *testing.T) {
	fset := token.NewFileSet()
	var required []string
	for _, m := range regexp.MustCompile(`(?m)^(?:features|programs)=(\S+)$`).FindAllStringSubmatch(readFile(t, ".ci/run"), -1) {
		required = append(required, strings.Split(m[1], ",")...)
	}
	if len(required) == 0 {
		t.Fatal(".ci/run requires nothing")
	}
	skipping := make(map[string]bool)
	for _, f := range goFiles(t, fset) {
		if !f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name == "need" {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch fun := call.Fun.(type) {
				case *ast.SelectorExpr:
					if name := fun.Sel.Name; name != "Skip" && name != "Skipf" && name != "SkipNow" {
						return true
					}
					skipping[fn.Name.Name] = true
					if mayskip[fn.Name.Name] == "" {
						t.Errorf("%s: %s skips without need(t, ...)", fset.Position(call.Pos()), fn.Name.Name)
					}
				case *ast.Ident:
					if fun.Name != "need" {
						return true
					}
					for _, arg := range call.Args[1:] {
						lit, ok := arg.(*ast.BasicLit)
						if !ok || lit.Kind != token.STRING {
							continue
						}
						word, err := strconv.Unquote(lit.Value)
						if err != nil {
							t.Fatal(err)
						}
						word = strings.TrimPrefix(word, "tool:")
						word, _, _ = strings.Cut(word, ":") // "landlock:6"
						if !slices.Contains(required, word) && notRequired[word] == "" {
							t.Errorf("%s: need(t, %s): .ci/run does not require it", fset.Position(call.Pos()), lit.Value)
						}
					}
				}
				return true
			})
		}
	}
	for name := range mayskip {
		if !skipping[name] {
			t.Errorf("%s has a reason to skip and does not", name)
		}
	}
}

// TestRulesWords: nothing unfinished, and nothing about the place where the project was made.
func TestRulesWords(t *testing.T) {
	// Put together here, so that this file does not hold them.
	unfinished := regexp.MustCompile(`\b(` + strings.Join([]string{"TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"}, "|") + `)\b`)
	machine := []string{"/wo" + "rk/main", "/wo" + "rk/shared", "sub" + "agent", "/ro" + "ot/go/"}
	here, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(here, "/") > 1 {
		machine = append(machine, here+"/")
	}
	walkRepo(t, func(name string) {
		if path.Base(name) == "go.sum" || name == "LICENSE" || strings.Contains(name, "testdata/fuzz/") || strings.HasSuffix(name, ".bpf") {
			return
		}
		for i, line := range strings.Split(readFile(t, name), "\n") {
			if m := unfinished.FindString(line); m != "" {
				t.Errorf("%s:%d: %s: finish it, or say in the documents that it is not so", name, i+1, m)
			}
			for _, w := range machine {
				if strings.Contains(line, w) {
					t.Errorf("%s:%d: names the machine it was written on (%s)", name, i+1, w)
				}
			}
		}
	})
}

// TestRulesVersion: the change log names the version that the Makefile builds, newest first, security first.
func TestRulesVersion(t *testing.T) {
	log := readFile(t, "CHANGELOG.md")
	heads := regexp.MustCompile(`(?m)^## (\S+)`).FindAllStringSubmatchIndex(log, -1)
	if len(heads) == 0 {
		t.Fatal("CHANGELOG.md names no version")
	}
	version := regexp.MustCompile(`^\d+\.\d+\.\d+$`)
	for i, h := range heads {
		name := log[h[2]:h[3]]
		if !version.MatchString(name) {
			t.Errorf("CHANGELOG.md: %q is not a version", name)
		}
		end := len(log)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		first := regexp.MustCompile(`(?m)^### (.+)$`).FindStringSubmatch(log[h[0]:end])
		if strings.Contains(log[h[0]:end], "### Security") && first[1] != "Security" {
			t.Errorf("CHANGELOG.md: %s: Security does not come first", name)
		}
	}
	if bin := os.Getenv("WALL_BIN"); bin != "" {
		data, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		if newest := log[heads[0][2]:heads[0][3]]; !strings.Contains(string(data), newest) {
			t.Errorf("the binary does not hold the version %s of CHANGELOG.md", newest)
		}
	}
}

// TestRulesExitCodes: the README's table has exactly wall's own exit statuses.
func TestRulesExitCodes(t *testing.T) {
	want := []int{plan.ExitDenied, plan.ExitLimit, plan.ExitTimeout, plan.ExitFailed, plan.ExitNotExecutable, plan.ExitNotFound}
	var got []int
	for _, m := range regexp.MustCompile("(?m)^\\| *`?(\\d+)`? *\\|").FindAllStringSubmatch(readFile(t, "README.md"), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if n > 2 {
			got = append(got, n)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("README.md has the exit statuses %v, package plan %v", got, want)
	}
}

// documents gives the Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	var names []string
	walkRepo(t, func(name string) {
		if strings.HasSuffix(name, ".md") {
			names = append(names, name)
		}
	})
	return names
}

// TestRulesMakeTargets: a make target that a document, a script or the Makefile itself names exists, with its help.
func TestRulesMakeTargets(t *testing.T) {
	targets := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^([a-z-]+):.*## .`).FindAllStringSubmatch(readFile(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	for _, want := range []string{"help", "setup", "build", "demo", "test", "race", "vet", "staticcheck", "lint", "golden", "fuzz", "integration", "kernels", "bench", "check", "install", "cover", "clean"} {
		if !targets[want] {
			t.Errorf("the Makefile has no target %s", want)
		}
	}
	mentioned := regexp.MustCompile("`(?:[A-Z_]+=\\S+ )*make ([a-z][a-z -]*)[^`\n]*`|(?m)^(?:    |\\$ )?make ([a-z][a-z -]*)")
	for _, name := range append(documents(t), ".ci/run") {
		for _, m := range mentioned.FindAllStringSubmatch(readFile(t, name), -1) {
			for _, target := range strings.Fields(m[1] + m[2]) {
				if !strings.HasPrefix(target, "-") && !targets[target] {
					t.Errorf("%s mentions make %s, which the Makefile does not have", name, target)
				}
			}
		}
	}
	if !strings.Contains(readFile(t, ".ci/run"), "make test") {
		t.Error(".ci/run does not call make test")
	}
}

// TestRulesLinks: a relative link in a document leads to a file of the repository.
func TestRulesLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)
	for _, name := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(readFile(t, name), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path.Dir(name), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			}
		}
	}
}

// TestRulesPromises: each of the 23 promises has its row, a row names only tests that exist, and a promise without a test is
// one that this version does not make.
func TestRulesPromises(t *testing.T) {
	tests := make(map[string]bool)
	for _, f := range goFiles(t, token.NewFileSet()) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && strings.HasPrefix(fn.Name.Name, "Test") {
				tests[fn.Name.Name] = true
			}
		}
	}
	rows := make(map[int]string)
	for _, m := range regexp.MustCompile(`(?m)^\| (\d+) \|.*\|([^|]*)\|$`).FindAllStringSubmatch(readFile(t, "docs/security-model.md"), -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := rows[n]; twice {
			t.Errorf("promise %d has two rows", n)
		}
		rows[n] = m[2]
	}
	for n := 1; n <= 23; n++ {
		row, ok := rows[n]
		if !ok {
			t.Errorf("promise %d has no row", n)
			continue
		}
		names := regexp.MustCompile(`Test\w+`).FindAllString(row, -1)
		if len(names) == 0 && !strings.Contains(row, "not yet") {
			t.Errorf("promise %d names no test", n)
		}
		for _, name := range names {
			if !tests[name] {
				t.Errorf("promise %d names %s, which does not exist", n, name)
			}
		}
	}
	if len(rows) != 23 {
		t.Errorf("there are %d rows, want 23: %s", len(rows), fmt.Sprint(rows))
	}
}
