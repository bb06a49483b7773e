package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// outputReport has findings of every severity, a suppressed one, a profile of
// wall itself, and names and texts that every format has to escape.
func outputReport(t *testing.T) Report {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "output/profile.toml"))
	if err != nil {
		t.Fatal(err)
	}
	c := New(options(t, "kernel=5.15"))
	r := Report{FailOn: Error, Version: "1.2.3"}
	for _, s := range []Source{
		{Name: "ci, 100%/größe:1.toml", Path: "/home/alice/profiles/1.toml", Data: data},
		{Name: "/etc/wall/locked.toml", Path: "/etc/wall/locked.toml", Err: &os.PathError{Op: "open", Path: "/etc/wall/locked.toml", Err: errors.New("permission denied")}},
		{Name: "built-in:nosuch", Data: []byte("version = 1\ndescription = \"built in\"\nenforce = \"off\"\n")},
	} {
		r.Files = append(r.Files, s.Name)
		r.Findings = append(r.Findings, c.Check(s)...)
	}
	return r
}

var outputs = []struct {
	name  string
	write func(Report, *bytes.Buffer) error
}{
	{"text", func(r Report, b *bytes.Buffer) error { return r.Text(b, false) }},
	{"colour", func(r Report, b *bytes.Buffer) error { return r.Text(b, true) }},
	{"json", func(r Report, b *bytes.Buffer) error { return r.JSON(b) }},
	{"sarif", func(r Report, b *bytes.Buffer) error { return r.SARIF(b) }},
	{"github", func(r Report, b *bytes.Buffer) error { return r.GitHub(b) }},
}

func TestOutputGolden(t *testing.T) {
	r := outputReport(t)
	for _, o := range outputs {
		var b bytes.Buffer
		if err := o.write(r, &b); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "output", o.name+".golden")
		if *update {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if b.String() != string(want) {
			t.Errorf("%s:\n%s", o.name, b.String())
		}
	}
}

// TestSecretsStaySecret: no format shows a value of environment.set, wherever it
// is written and whatever else is wrong with the file.
func TestSecretsStaySecret(t *testing.T) {
	const secret = "hunter2-ghp_0123456789abcdefghijklmnop"
	for i, text := range []string{
		"[environment]\nset = { API_TOKEN = \"SECRET\", LD_PRELOAD = \"SECRET\", HOME = \"SECRET\" }\npass = [\"API_TOKEN\"]",
		"[environment.set]\nAPI_TOKEN = \"SECRET\"\nBASH_ENV = 'SECRET'",
		"[environment.set]\nAPI_TOKEN = \"\"\"\nSECRET\n\"\"\"",
		"environment = { base = \"gate\", scrub = \"off\", set = { API_TOKEN = \"SECRET\" } }",
		"environment.set.API_TOKEN = \"SECRET\"",
		"[environment]\nset.API_TOKEN = \"SECRET\"\nset.API_TOKEN = \"SECRET\"",
		"[environment]\nset = { API_TOKEN = \"SECRET",
		"[environment]\nset = { API_TOKEN = \"SECRET\\q\" }",
		"[environment.set]\nAPI_TOKEN = \"\"\"\nSECRET\n\\q\nSECRET\n\"\"\"",
		"[environment.set]\nAPI_TOKEN = \"\"\"\nSECRET \x00\n\"\"\"",
		"[environment.set]\nAPI_TOKEN = \"\"\"\nSECRET \xff\n\"\"\"",
		"[environment.set]\nAPI_TOKEN = \"SECRET\" # wall:allow W999 SECRETS\n",
		"[environment.set]\nAPI_TOKEN = [\"SECRET\"]\nOTHER = 1",
		"[environment]\nset = \"API_TOKEN=SECRET\"",
		"[environment.set]\nAPI_TOKEN = \"\"\"\nSECRET \\q\n\"\"\"",
		"[environment.set]\nAPI_TOKEN = \"\"\"\nSECRET=SECRET \\q\n\"\"\"",
		"environment = { set = { API_TOKEN = \"\"\"\nSECRET\"\"\" }, base = \"bogus\" }",
		"environment = { base = \"gate\", base = \"gate\", set = { API_TOKEN = \"SECRET\" } }",
		"environment = { base = \"gate\", base = \"gate\", \"set\" = { API_TOKEN = \"SECRET\" } }",
		"environment = { base = \"gate\", base = \"gate\", set.API_TOKEN = \"SECRET\" }",
		"environment.base = \"gate\"\nenvironment = { set = { API_TOKEN = \"SECRET\" } }",
		"filesystem = 1\nfilesystem.set = { API_TOKEN = \"SECRET\" }",
		"name = \"x\"\nname.set.API_TOKEN = \"SECRET\"",
		"environment = { set = { API_TOKEN = \"\"\"\nx=SECRET\"\"\" }, base = \"gate\", scrub = \"off\" }",
		"environment = { set = { API_TOKEN = \"\"\"\nSECRET\"\"\" }, bsae = \"gate\" }",
		"[environment.set]\n\"API_TOKEN=SECRET\" = \"x\"",
	} {
		text = "version = 1\n" + strings.ReplaceAll(text, "SECRET", secret)
		// What a comment says is the author's to say.
		text = strings.ReplaceAll(text, secret+"S\n", "reason\n")
		for _, project := range []string{"/home/alice/p.toml", "/src/.wall/agent.toml"} {
			r := Report{FailOn: Error, Files: []string{"p.toml"}}
			r.Findings = New(options(t, "no-userns")).Check(Source{Name: "p.toml", Path: project, Data: []byte(text)})
			if len(r.Findings) == 0 {
				t.Errorf("%d: nothing was found, so that nothing is tested", i)
			}
			for _, o := range outputs {
				var b bytes.Buffer
				if err := o.write(r, &b); err != nil {
					t.Fatal(err)
				}
				for _, part := range []string{"hunter2", "0123456789abcdef"} {
					if strings.Contains(b.String(), part) {
						t.Errorf("%d: %s shows the value:\n%s", i, o.name, b.String())
					}
				}
			}
		}
	}
}

// TestFailOn: the whole matrix of severities, and what suppression does to it.
func TestFailOn(t *testing.T) {
	for _, have := range []Severity{0, Note, Warning, Error} {
		for _, on := range []Severity{Note, Warning, Error} {
			for _, suppressed := range []bool{false, true} {
				r := Report{FailOn: on}
				if have != 0 {
					r.Findings = []Finding{{Code: "W010", Severity: have, Suppressed: suppressed}}
				}
				if got, want := r.Failed(), have >= on && have != 0 && !suppressed; got != want {
					t.Errorf("a finding that is %v (suppressed %v) with --fail-on %v: failed %v", have, suppressed, on, got)
				}
			}
		}
	}
	for _, s := range []string{"note", "warning", "error"} {
		if v, ok := ParseSeverity(s); !ok || v.String() != s {
			t.Errorf("ParseSeverity(%q) = %v, %v", s, v, ok)
		}
	}
	for _, s := range []string{"", "Error", "errors", "invalid", "info"} {
		if _, ok := ParseSeverity(s); ok {
			t.Errorf("ParseSeverity takes %q", s)
		}
	}
}

// TestGitHubEscapes: what a profile says can neither end an annotation nor start
// another command.
func TestGitHubEscapes(t *testing.T) {
	r := Report{Findings: []Finding{{
		Code: "W010", Name: "dead-rule", Severity: Error, File: "a,line=9::set-env\n::error::x%.toml", Line: 1, Column: 2, EndColumn: 3,
		Message: "100%\r\n::stop-commands::x", Why: "a", Fix: "b",
	}}}
	var b bytes.Buffer
	if err := r.GitHub(&b); err != nil {
		t.Fatal(err)
	}
	const want = "::error file=a%2Cline=9%3A%3Aset-env?%3A%3Aerror%3A%3Ax%25.toml,line=1,endLine=1,col=2,endColumn=3,title=W010 dead-rule::100%25%0D%0A::stop-commands::x%0Awhy: a%0Afix: b\n"
	if b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
}

// TestForeignText: no format shows what a profile or the name of a file says in
// a way that CI systems obey or that hides something. What is replaced, and how,
// is tested with plan.Printable.
func TestForeignText(t *testing.T) {
	const evil = "\u202e##[error]x ##vso[y]\u200b\x1b\u009b"
	for _, text := range []string{
		"version = 1\ndescription = \"EVIL\"\n[filesystem]\nview = \"host\" # EVIL wall:allow\nhide = [\"a\", \"a\"] # wall:allow W010 EVIL",
		"version = 1\n[environment]\n\"EVIL\" = 1",
		"version = 1 EVIL",
		"version = 1\nextends = \"./EVIL.toml\"\nenforce = \"off\" # EVIL",
	} {
		name := "::error file=x::" + evil + ".toml"
		s := Source{Name: name, Path: "/src/.wall/agent.toml", Data: []byte(strings.ReplaceAll(text, "EVIL", evil[:len(evil)-3]))}
		r := Report{FailOn: Error, Files: []string{name}, Findings: New(options(t, "")).Check(s)}
		for _, o := range outputs {
			var b bytes.Buffer
			if err := o.write(r, &b); err != nil {
				t.Fatal(err)
			}
			got := b.String()
			if strings.Contains(got, "##[") || strings.Contains(got, "##vso[") || strings.ContainsAny(got, "\u202e\u200b\u009b") || o.name != "colour" && strings.Contains(got, "\x1b") {
				t.Errorf("%s shows foreign text as it is:\n%q", o.name, got)
			}
			if o.name != "github" && (strings.HasPrefix(got, "::") || strings.Contains(got, "\n::")) {
				t.Errorf("%s has a line with a workflow command:\n%q", o.name, got)
			}
		}
	}
}

// TestSARIFSchema validates reports against the JSON schema of SARIF 2.1.0 as
// Microsoft publishes it in the npm package @microsoft/jest-sarif (MIT licence;
// the schema itself is OASIS's). The validator is the part of JSON Schema draft
// 4 that the schema uses; it refuses keywords that it does not know.
func TestSARIFSchema(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(dir, "output/sarif-2.1.0-rtm.5.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	v := validator{root: schema}
	sarif := func(r Report) any {
		var b bytes.Buffer
		if err := r.SARIF(&b); err != nil {
			t.Fatal(err)
		}
		var doc any
		if err := json.Unmarshal(b.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	full := sarif(outputReport(t))
	for name, doc := range map[string]any{"full": full, "empty": sarif(Report{FailOn: Error})} {
		if errs := v.check("$", schema, doc); len(errs) > 0 {
			t.Errorf("%s: %s", name, strings.Join(errs, "\n"))
		}
	}
	// The validator finds something when there is something.
	run := func(doc any) map[string]any { return doc.(map[string]any)["runs"].([]any)[0].(map[string]any) }
	result := func(doc any) map[string]any { return run(doc)["results"].([]any)[0].(map[string]any) }
	for what, spoil := range map[string]func(doc any){
		"an unknown property":  func(d any) { run(d)["result"] = "x" },
		"a missing property":   func(d any) { delete(run(d), "tool") },
		"a missing message":    func(d any) { delete(result(d), "message") },
		"an unknown level":     func(d any) { result(d)["level"] = "fatal" },
		"another version":      func(d any) { d.(map[string]any)["version"] = "2.0.0" },
		"a wrong type":         func(d any) { result(d)["ruleId"] = 1.0 },
		"a line below 1":       func(d any) { region(result(d))["startLine"] = 0.0 },
		"a broken column kind": func(d any) { run(d)["columnKind"] = "bytes" },
		"twice the same":       func(d any) { r := run(d); r["artifacts"] = append(r["artifacts"].([]any), r["artifacts"].([]any)[0]) },
		"an odd suppression":   func(d any) { result(d)["suppressions"] = []any{map[string]any{"kind": "comment"}} },
	} {
		doc := sarif(outputReport(t))
		spoil(doc)
		if len(v.check("$", schema, doc)) == 0 {
			t.Errorf("the validator does not notice %s", what)
		}
	}
	// What the schema cannot say.
	rules := run(full)["tool"].(map[string]any)["driver"].(map[string]any)["rules"].([]any)
	artifacts := run(full)["artifacts"].([]any)
	for _, r := range run(full)["results"].([]any) {
		r := r.(map[string]any)
		if rules[int(r["ruleIndex"].(float64))].(map[string]any)["id"] != r["ruleId"] {
			t.Errorf("%v: the rule index leads to another rule", r["ruleId"])
		}
		place := r["locations"].([]any)[0].(map[string]any)["physicalLocation"].(map[string]any)["artifactLocation"].(map[string]any)
		if artifacts[int(place["index"].(float64))].(map[string]any)["location"].(map[string]any)["uri"] != place["uri"] {
			t.Errorf("%v: the artifact index leads to another file", place["uri"])
		}
	}
}

func region(result map[string]any) map[string]any {
	return result["locations"].([]any)[0].(map[string]any)["physicalLocation"].(map[string]any)["region"].(map[string]any)
}

// A validator checks a document against a JSON Schema of draft 4.
type validator struct{ root map[string]any }

func (v validator) check(at string, schema map[string]any, doc any) []string {
	var errs []string
	fail := func(format string, args ...any) { errs = append(errs, at+": "+fmt.Sprintf(format, args...)) }
	if ref, ok := schema["$ref"].(string); ok {
		var target any = v.root
		for _, p := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			target = target.(map[string]any)[p]
		}
		return v.check(at, target.(map[string]any), doc)
	}
	object, isObject := doc.(map[string]any)
	array, isArray := doc.([]any)
	text, isText := doc.(string)
	number, isNumber := doc.(float64)
	for key, arg := range schema {
		switch key {
		case "$schema", "id", "title", "description", "definitions", "default":
		case "type":
			types, ok := arg.([]any)
			if !ok {
				types = []any{arg}
			}
			_, isBool := doc.(bool)
			is := map[string]bool{"object": isObject, "array": isArray, "string": isText, "number": isNumber, "integer": isNumber && number == float64(int(number)), "boolean": isBool, "null": doc == nil}
			if !slices.ContainsFunc(types, func(t any) bool { return is[t.(string)] }) {
				fail("is %T, want %v", doc, arg)
			}
		case "properties":
			for name, sub := range arg.(map[string]any) {
				if val, ok := object[name]; ok && isObject {
					errs = append(errs, v.check(at+"."+name, sub.(map[string]any), val)...)
				}
			}
		case "additionalProperties":
			known, _ := schema["properties"].(map[string]any)
			for name, val := range object {
				if _, ok := known[name]; ok {
					continue
				}
				if sub, ok := arg.(map[string]any); ok {
					errs = append(errs, v.check(at+"."+name, sub, val)...)
				} else if arg == false {
					fail("has the unknown property %q", name)
				}
			}
		case "required":
			for _, name := range arg.([]any) {
				if _, ok := object[name.(string)]; !ok && isObject {
					fail("lacks %q", name)
				}
			}
		case "items":
			for i, val := range array {
				errs = append(errs, v.check(fmt.Sprintf("%s[%d]", at, i), arg.(map[string]any), val)...)
			}
		case "minItems":
			if isArray && float64(len(array)) < arg.(float64) {
				fail("has %d elements", len(array))
			}
		case "uniqueItems":
			for i := range array {
				for j := range i {
					if arg == true && reflect.DeepEqual(array[i], array[j]) {
						fail("elements %d and %d are the same", j, i)
					}
				}
			}
		case "enum":
			if !slices.ContainsFunc(arg.([]any), func(x any) bool { return reflect.DeepEqual(x, doc) }) {
				fail("is %v, want one of %v", doc, arg)
			}
		case "minimum":
			if isNumber && number < arg.(float64) {
				fail("is %v, want at least %v", number, arg)
			}
		case "maximum":
			if isNumber && number > arg.(float64) {
				fail("is %v, want at most %v", number, arg)
			}
		case "pattern":
			if isText && !regexp.MustCompile(strings.ReplaceAll(arg.(string), `\/`, "/")).MatchString(text) {
				fail("%q does not match %v", text, arg)
			}
		case "format":
			if arg == "uri" && isText && !strings.Contains(text, ":") || isText && strings.Contains(text, " ") && strings.HasPrefix(arg.(string), "uri") {
				fail("%q is not a URI", text)
			}
		case "anyOf", "oneOf":
			n := 0
			for _, sub := range arg.([]any) {
				if len(v.check(at, sub.(map[string]any), doc)) == 0 {
					n++
				}
			}
			if n == 0 || key == "oneOf" && n != 1 {
				fail("fits %d of %s", n, key)
			}
		default:
			fail("the validator does not know the keyword %q", key)
		}
	}
	return errs
}
