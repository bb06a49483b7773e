package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/profile/lint"
)

// TestProfileDocs checks that docs/profiles.md says what the tables of the code
// say. With -update it writes those sections.
func TestProfileDocs(t *testing.T) {
	const file = "../../docs/profiles.md"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, s := range []struct {
		name string
		made string
	}{
		{"built-in profiles", builtinTable(t)},
		{"reference", reference()},
		{"cookbook", cookbookTable(t)},
	} {
		start, end := fmt.Sprintf("<!-- %s: made from the code; go test ./cmd/wall -run TestProfileDocs -update -->\n", s.name), "<!-- end of "+s.name+" -->"
		before, rest, ok := strings.Cut(text, start)
		old, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no section %q", file, s.name)
		}
		if old != s.made && !*update {
			t.Errorf("the section %q of %s is not current; write it with: go test ./cmd/wall -run TestProfileDocs -update", s.name, file)
		}
		text = before + start + s.made + end + after
	}
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// cell makes text fit into a cell of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}

func builtinTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("| name | extends | for |\n| --- | --- | --- |\n")
	for _, n := range profile.Builtins() {
		data, err := profile.Builtin(n)
		if err != nil {
			t.Fatal(err)
		}
		f, err := profile.Parse(n, data)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", n, code(f.Extends.V), cell(f.Description.V))
	}
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + cell(s) + "`"
}

func cookbookTable(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("../../docs/cookbook/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| profile | extends | what it is |\n| --- | --- | --- |\n")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := profile.Parse(file, data)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(file)
		if f.Name.V+".toml" != base {
			t.Errorf("%s has the name %q", file, f.Name.V)
		}
		fmt.Fprintf(&b, "| [%s](cookbook/%s) | `%s` | %s |\n", f.Name.V, base, f.Extends.V, cell(f.Description.V))
	}
	return b.String()
}

// typeWords says how a value is written.
var typeWords = map[profile.KeyType]string{
	profile.TypeVersion: "`1`", profile.TypeText: "string", profile.TypeProfile: "name or `\"./file.toml\"`", profile.TypeBool: "boolean",
	profile.TypePath: "path", profile.TypePaths: "list of paths and groups", profile.TypeDevices: "list of devices", profile.TypeGrants: "list of tables",
	profile.TypeSeeds: "list of tables", profile.TypeHosts: "list of hosts", profile.TypePorts: "list of ports", profile.TypeProxy: "`\"http://HOST:PORT\"`", profile.TypePatterns: "list of names, with a star at one end",
	profile.TypeNames: "list of names", profile.TypeName: "name", profile.TypeVars: "table of strings and sources", profile.TypeFilter: "`\"default\"`, `\"strict\"` or `\"./filter.json\"`",
	profile.TypeCount: "number", profile.TypeSize: "bytes, or a size such as `\"4GiB\"`", profile.TypeDuration: "duration such as `\"10m\"`, or `0`",
	profile.TypeWords: "list of strings", profile.TypeAttributes: "table of strings",
	profile.TypeOutput: "amount such as `\"1500 chars\"` or `\"64KiB\"`",
}

func keyTypeWords(k profile.Key) string {
	values := make([]string, len(k.Values))
	for i, v := range k.Values {
		values[i] = "`\"" + v + "\"`"
	}
	switch k.Type {
	case profile.TypeEnum:
		return strings.Join(values, ", ")
	case profile.TypeEnums:
		return "list of " + strings.Join(values, ", ")
	}
	return typeWords[k.Type]
}

// directionWords says what a project layer may do with a key.
var directionWords = map[profile.Direction]string{
	profile.NoDirection: "nothing", profile.EarlierTighter: "an earlier value", profile.LowerTighter: "a lower value", profile.MoreTighter: "add",
	profile.FewerTighter: "take away", profile.TrueTighter: "set", profile.FalseTighter: "unset", profile.Harmless: "anything",
}

// reference is the section about keys, groups and findings.
func reference() string {
	var b strings.Builder
	rows := func(keys []profile.Key, fields bool) {
		if fields {
			b.WriteString("\n| field | value | default | meaning |\n| --- | --- | --- | --- |\n")
		} else {
			b.WriteString("\n| key | value | default | project layer | meaning |\n| --- | --- | --- | --- | --- |\n")
		}
		for _, k := range keys {
			def := code(k.Default)
			if def == "" && k.Required() {
				def = "needed"
			}
			doc := cell(k.Doc)
			if fields {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Last(), keyTypeWords(k), def, doc)
			} else {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Last(), keyTypeWords(k), def, directionWords[k.Tighten], doc)
			}
		}
	}
	for _, table := range append([]string{""}, profile.Tables()...) {
		keys := slices.DeleteFunc(profile.Keys(), func(k profile.Key) bool { return k.Table() != table })
		if table == "" {
			b.WriteString("### Above the first table\n")
		} else {
			fmt.Fprintf(&b, "\n### [%s]\n", table)
		}
		rows(keys, false)
		for _, k := range keys {
			if len(k.Fields) > 0 {
				fmt.Fprintf(&b, "\nEach element of `%s`:\n", k.Last())
				rows(k.Fields, true)
			}
			if k.Type == profile.TypeVars {
				fmt.Fprintf(&b, "\nIn place of a value `%s` takes a table with exactly one of these keys, in profiles of the operator only:\n", k.Last())
				rows(profile.SourceKeys(), true)
			}
		}
	}
	b.WriteString("\n### Groups\n\n| group | in | what it stands for |\n| --- | --- | --- |\n")
	for _, g := range profile.Groups() {
		paths := make([]string, len(g.Paths))
		for i, p := range g.Paths {
			paths[i] = "`" + p + "`"
		}
		if len(g.Members) > 0 {
			paths = g.Members
		}
		text := cell(g.Doc)
		if len(paths) > 0 {
			text += " " + strings.Join(paths, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", g.Name, g.Key[strings.IndexByte(g.Key, '.')+1:], text)
	}
	b.WriteString("\n### Findings of `wall profile check`\n\n| code | name | severity | what it finds | why it matters | what to do |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range lint.Rules() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.Code, r.Name, r.Severity, cell(r.Doc), cell(r.Why), cell(r.Fix))
	}
	return b.String()
}

// TestReferenceIsComplete finds a type or direction that the reference has no
// words for.
func TestReferenceIsComplete(t *testing.T) {
	check := func(k profile.Key) {
		if keyTypeWords(k) == "" {
			t.Errorf("no words for the type %q of %s", k.Type, k.Name)
		}
		if directionWords[k.Tighten] == "" {
			t.Errorf("no words for the direction %q of %s", k.Tighten, k.Name)
		}
	}
	for _, k := range profile.Keys() {
		check(k)
		for _, f := range k.Fields {
			check(f)
		}
	}
	for _, k := range profile.SourceKeys() {
		check(k)
	}
}

// exampleOf gives the first example profile of a document.
func exampleOf(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "```toml\n")
	example, _, ok2 := strings.Cut(rest, "```")
	if !ok || !ok2 {
		t.Fatalf("%s has no example", file)
	}
	return example
}

// TestExampleOfTheGateDocs: what the first phase of the example in docs/gate.md brings,
// as "go mod download" does, stands in a home directory that it can write.
func TestExampleOfTheGateDocs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "ci.toml")
	if err := os.WriteFile(file, []byte(exampleOf(t, "../../docs/gate.md")), 0o600); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := runCLI(t, "plan", "--summary", "--workspace", dir, "-p", file, "--", "/bin/true")
	if status != 0 || !strings.Contains(stdout, "\nhome       a private one, ") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
}

// TestExampleOfTheDocs checks the example profile in docs/profiles.md as a
// reader's own would be.
func TestExampleOfTheDocs(t *testing.T) {
	example := exampleOf(t, "../../docs/profiles.md")
	for _, f := range lint.New(lint.Options{}).Check(lint.Source{Name: "example.toml", Data: []byte(example)}) {
		if f.Severity > lint.Note {
			t.Errorf("%s: %s", f.Code, f.Message)
		}
	}
}

// TestCookbookIsClean checks every profile of the cookbook, which has no finding
// that its own text does not explain.
func TestCookbookIsClean(t *testing.T) {
	status, stdout, stderr := runCLI(t, "profile", "check", "--fail-on", "warning", "../../docs/cookbook")
	if status != 0 {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
}
