package envscrub

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// counterparts has one line for each test of the environments of the two
// reference systems: their words, and where the same is tested here, as
// "package.Test" or as a file of test data. A line that begins with "gate:" is
// about running commands and not about their environment: bounded output, time
// limits, enforcement, containers; packages gate, nsexec and profile test that.
var counterparts = []struct{ theirs, ours string }{
	// kranz, agent_env
	{"starts empty", "envscrub.TestBuildZeroInput envscrub.TestKranzExactAllowlist integration.TestEnvSurfaces"},
	{"no secret", "envscrub.TestKranzExactAllowlist envscrub.TestKranzRealChild integration.TestEnvSurfaces"},
	{"exact allowlist", "envscrub.TestKranzExactAllowlist integration.TestEnvSurfaces nsexec.TestEnvironmentsOfTheAPI"},
	{"Windows redirect and no duplicate casing", "envscrub.TestKranzWindowsTable envscrub.TestKranzWindowsRealHome envscrub.TestWindowsOneCasing envscrub.FuzzBuildWindows"},
	{"only own auth key", "envscrub.TestKranzOnlyOwnAuthKey nsexec.TestEnvironmentsOfTheAPI"},
	{"spec HOME honoured", "envscrub.TestKranzSessionDirs envscrub.TestKranzSessionExtra nsexec.TestEnvironmentsOfTheAPI"},
	{"operator home from account record with HOME unset", "envscrub.TestKranzToolchainHomes"},
	{"explicit variable wins", "envscrub.TestKranzToolchainHomes"},
	{"extension never carries CARGO_HOME", "envscrub.TestKranzToolchainHomes"},
	{"derived toolchain homes and a real cargo under the built environment", "envscrub.TestKranzToolchainHomes integration.TestCachesOfRealTools"},
	{"contract shape", "envscrub.TestKranzContractPassthrough integration.TestEnvSurfaces nsexec.TestEnvironmentsOfTheAPI"},
	{"passthrough admitted", "envscrub.TestKranzContractPassthrough nsexec.TestEnvironmentsOfTheAPI"},
	{"managed name refused in other casing", "envscrub.TestKranzContractPassthrough envscrub.TestWindowsOneCasing"},
	{"unset name ignored", "envscrub.TestKranzContractPassthrough"},
	{"no base commit, no key", "envscrub.TestKranzContractBaseSHA"},
	{"cache-only home has caches and no credential or config", "integration.TestCachesArePrivate testdata/profiles/caches-refused.txtar"},
	{"seeded copies are real and isolate new files and overwrites", "scratch.TestKernelCopyTree integration.TestCachesArePrivate"},
	{"planted credential inside a cache skipped", "profile.TestNoLayerIsAWholeHome integration.TestCachesArePrivate"},
	{"ceiling at the exact limit and one byte over", "profile.TestCacheOver scratch.TestKernelCopyTree"},

	// kranz, command_exec
	{"gate: tail is character-safe", ""},
	{"gate: timeout kills a backgrounded child", ""},
	{"gate: large output drained and capped", ""},
	{"gate environment allowlist and negative list", "envscrub.TestKranzExactAllowlist integration.TestEnvSurfaces"},
	{"gate Cargo home replaced", "envscrub.TestKranzGateAndProbe testdata/profiles/caches-hidden-home.txtar"},
	{"real child cannot see poisoned secrets", "envscrub.TestKranzRealChild integration.TestEnvSurfaces integration.TestEnvSentinel nsexec.TestEnvironmentsOfTheAPI"},
	{"passthrough admits only the named variable", "envscrub.TestKranzContractPassthrough integration.TestEnvPreviewEqualsReality1"},
	{"gate: exit codes", ""},
	{"argv runner: real child cannot see poisoned secrets", "integration.TestEnvSurfaces"},
	{"argv runner: passthrough admits only the named variable", "integration.TestEnvPreviewEqualsReality2"},
	{"gate: resolve matrix", ""},
	{"gate: off is byte-identical to the plain runner", ""},
	{"gate: real enforcement", ""},
	{"gate: timeout through the wrapper", ""},
	{"gate: in-tree signalling allowed and host denied", ""},
	{"gate: read-only HOME with git identity", ""},
	{"cache readable not writable", "integration.TestCachesWithoutOverlay"},
	{"gate: disabled policy shape", ""},
	{"offline flag only for fs+net", "testdata/profiles/net-host.txtar testdata/profiles/gate.txtar testdata/profiles/enforce-fs.txtar"},
	{"gate: container naming and teardown", ""},
	{"gate: full suite run inside the wrap", ""},

	// kranz, workspace gate and probe (later)
	{"two-party secrets", "envscrub.TestKranzWorkspaceSecrets nsexec.TestEnvironmentsOfTheAPI"},
	{"operational list after the secrets", "envscrub.TestKranzWorkspaceOperations"},
	{"git configuration that exists", "envscrub.TestKranzWorkspaceGitConfig"},
	{"probe has the real home and one credential", "envscrub.TestKranzGateAndProbe nsexec.TestEnvironmentsOfTheAPI"},
	{"project layer refusals", "testdata/profiles/project-widens.txtar testdata/profiles/sources-project.txtar testdata/profiles/inject-project-widens.txtar"},

	// Contenox, unit
	{"default policy keeps base and drops secrets", "envscrub.TestContenoxModes"},
	{"only present names", "envscrub.TestContenoxModes envscrub.TestBuildZeroInput"},
	{"deny wins", "envscrub.TestContenoxDenyWinsAndCase envscrub.TestDenyStopsPassAuthAndDerived"},
	{"prefix/suffix", "envscrub.TestPatternTable"},
	{"sorted/deduped", "envscrub.TestContenoxFilterShape"},
	{"malformed skipped", "envscrub.TestContenoxFilterShape envscrub.TestOddAmbient"},
	{"bare star", "envscrub.TestContenoxFilterShape envscrub.TestPatternTable"},
	{"copies not mutated", "envscrub.TestContenoxFilterShape envscrub.TestShapes envscrub.TestBuilders"},
	{"HOME not in base", "envscrub.TestContenoxModes envscrub.TestContenoxStrictBase"},
	{"control-plane veto", "envscrub.TestControlPlane envscrub.TestContenoxStrictRepermits"},
	{"pattern table", "envscrub.TestPatternTable"},
	{"list parsing", "envscrub.TestParseList envscrub.TestContenoxListSettings"},
	{"apply returns pairs and does not force HOME", "envscrub.TestContenoxModes"},
	{"strict can re-permit", "envscrub.TestContenoxStrictRepermits envscrub.TestSettingsInBuild"},
	{"modes and unknown", "envscrub.TestParseModeAndBase envscrub.TestContenoxModeSetting testdata/profiles/settings-shell.txtar"},
	{"extra lists do not alter defaults", "envscrub.TestContenoxDefaultsUnaltered"},
	{"overlay add/override/empty/noop/after scrub", "envscrub.TestContenoxInjection integration.TestEnvInjected"},
	{"scrub forces HOME and PATH", "envscrub.TestHomeInEveryMode envscrub.TestPath integration.TestEnvSurfaces"},
	{"name validity table", "envscrub.TestContenoxValidName envscrub/inject.TestParseAssignment"},
	{"preview equals applied composition", "integration.TestEnvPreviewEqualsReality1 integration.TestEnvPreviewEqualsReality2 integration.TestEnvSurfaces"},
	{"PATH validation", "envscrub.TestPath envscrub.TestWindowsPath"},

	// Contenox, end to end
	{"names never values", "integration.TestEnvValuesNowhere integration.TestEnvValuesInErrors integration.TestEnvValuesInProc"},
	{"default/terminal/strict/allow/deny/glob preview", "cmd/wall/testdata/script/env-preview.txtar integration.TestEnvPreviewEqualsReality1"},
	{"CRUD", "cmd/wall/testdata/script/env-store.txtar envscrub/inject.TestStoreEdits"},
	{"bad arguments", "cmd/wall/testdata/script/env-store.txtar envscrub/inject.TestParseAssignment envscrub/inject.TestStoreRefusesBeforeItWrites"},
	{"injection over strict", "integration.TestEnvInjected envscrub.TestContenoxInjection"},
	{"real shell gets injected value, loses secret and control-plane variable", "integration.TestEnvSurfaces integration.TestEnvInjected"},
	{"editor shell takes no injection", "integration.TestEnvInjected testdata/profiles/inject-off.txtar"},
}

// TestCounterparts: every test of the reference has a counterpart that exists.
func TestCounterparts(t *testing.T) {
	functions := map[string]map[string]bool{} // of the test files of each package
	seen := map[string]bool{}
	for _, c := range counterparts {
		if seen[c.theirs] {
			t.Errorf("%q is there twice", c.theirs)
		}
		seen[c.theirs] = true
		if (c.ours == "") != strings.HasPrefix(c.theirs, "gate:") {
			t.Errorf("%q has the counterpart %q", c.theirs, c.ours)
		}
		for ours := range strings.FieldsSeq(c.ours) {
			if strings.HasSuffix(ours, ".txtar") {
				if _, err := os.Stat(filepath.Join("..", ours)); err != nil {
					t.Errorf("%q: %v", c.theirs, err)
				}
				continue
			}
			dir := strings.TrimSuffix(ours, path.Ext(ours))
			if functions[dir] == nil {
				functions[dir] = testFunctions(t, filepath.Join("..", dir))
			}
			if !functions[dir][path.Ext(ours)[1:]] {
				t.Errorf("%q: there is no %s", c.theirs, ours)
			}
		}
	}
}

func testFunctions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in %s: %v", dir, err)
	}
	names := map[string]bool{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}
