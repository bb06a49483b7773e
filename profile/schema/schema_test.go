package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/wallsandbox/wall/profile"
)

func load(t *testing.T) map[string]any {
	t.Helper()
	data, err := JSON()
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// fromTOML gives a profile as JSON would have it.
func fromTOML(t *testing.T, text string) any {
	t.Helper()
	var m map[string]any
	if err := toml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// validate judges v by s, for the words of JSON Schema that this package uses;
// any other word is a problem of its own.
func validate(s map[string]any, v any, at string) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, at+": "+fmt.Sprintf(format, args...)) }
	sub := func(x any) map[string]any { return x.(map[string]any) }
	for _, word := range slices.Sorted(maps.Keys(s)) {
		want := s[word]
		switch word {
		case "$schema", "$comment", "title", "description", "default":
		case "type":
			ok := false
			switch v := v.(type) {
			case string:
				ok = want == "string"
			case bool:
				ok = want == "boolean"
			case float64:
				ok = want == "integer" && v == float64(int64(v))
			case []any:
				ok = want == "array"
			case map[string]any:
				ok = want == "object"
			}
			if !ok {
				bad("%v is no %v", v, want)
			}
		case "const":
			if !reflect.DeepEqual(v, want) {
				bad("%v is not %v", v, want)
			}
		case "enum":
			if !slices.ContainsFunc(want.([]any), func(x any) bool { return reflect.DeepEqual(x, v) }) {
				bad("%v is none of %v", v, want)
			}
		case "anyOf":
			if !slices.ContainsFunc(want.([]any), func(x any) bool { return len(validate(sub(x), v, at)) == 0 }) {
				bad("%v fits none of %v", v, want)
			}
		case "not":
			if len(validate(sub(want), v, at)) == 0 {
				bad("%v must not be here", v)
			}
		case "pattern":
			if x, ok := v.(string); ok && !regexp.MustCompile(strings.ReplaceAll(want.(string), `\u0000`, `\x00`)).MatchString(x) {
				bad("%q does not match %v", x, want)
			}
		case "minLength":
			if x, ok := v.(string); ok && float64(len(x)) < want.(float64) {
				bad("%q is too short", x)
			}
		case "minItems":
			if x, ok := v.([]any); ok && float64(len(x)) < want.(float64) {
				bad("%v has too few elements", x)
			}
		case "minProperties":
			if x, ok := v.(map[string]any); ok && float64(len(x)) < want.(float64) {
				bad("%v has too few keys", x)
			}
		case "minimum":
			if x, ok := v.(float64); ok && x < want.(float64) {
				bad("%v is less than %v", x, want)
			}
		case "maximum":
			if x, ok := v.(float64); ok && x > want.(float64) {
				bad("%v is more than %v", x, want)
			}
		case "items":
			if x, ok := v.([]any); ok {
				for i, e := range x {
					problems = append(problems, validate(sub(want), e, fmt.Sprintf("%s[%d]", at, i))...)
				}
			}
		case "uniqueItems":
			if x, ok := v.([]any); ok {
				for i := range x {
					for j := range i {
						if reflect.DeepEqual(x[i], x[j]) {
							bad("%v is there twice", x[i])
						}
					}
				}
			}
		case "required":
			if x, ok := v.(map[string]any); ok {
				for _, name := range want.([]any) {
					if _, ok := x[name.(string)]; !ok {
						bad("%v is missing", name)
					}
				}
			}
		case "properties":
			if x, ok := v.(map[string]any); ok {
				for name, p := range sub(want) {
					if e, ok := x[name]; ok {
						problems = append(problems, validate(sub(p), e, at+"."+name)...)
					}
				}
			}
		case "propertyNames":
			if x, ok := v.(map[string]any); ok {
				for name := range x {
					problems = append(problems, validate(sub(want), name, at+"."+name)...)
				}
			}
		case "additionalProperties":
			x, ok := v.(map[string]any)
			if !ok {
				continue
			}
			known, _ := s["properties"].(map[string]any)
			for name, e := range x {
				if _, ok := known[name]; ok {
					continue
				}
				if want == false {
					bad("%s is unknown", name)
				} else {
					problems = append(problems, validate(sub(want), e, at+"."+name)...)
				}
			}
		default:
			bad("the schema has the word %s, which this test does not know", word)
		}
	}
	return problems
}

// TestEveryKeyHasItsType finds a type of the language that the schema forgot,
// and keys that are not in it.
func TestEveryKeyHasItsType(t *testing.T) {
	data, err := JSON()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(data), "unknown type") {
		t.Errorf("a type is missing:\n%s", data)
	}
	top := load(t)["properties"].(map[string]any)
	for _, k := range profile.Keys() {
		in := top
		if k.Table() != "" {
			in = in[k.Table()].(map[string]any)["properties"].(map[string]any)
		}
		last := k.Last()
		if t, name, ok := strings.Cut(last, "."); ok { // a list or a table
			in = in[t].(map[string]any)["anyOf"].([]any)[1].(map[string]any)["properties"].(map[string]any)
			last = name
		}
		s, ok := in[last].(map[string]any)
		if !ok || s["description"] == "" {
			t.Errorf("%s is not in the schema", k.Name)
			continue
		}
		if d, ok := s["default"]; ok {
			if p := validate(s, d, k.Name); len(p) > 0 {
				t.Errorf("the default is not valid: %s", p)
			}
		}
	}
}

func TestBuiltinsAreValid(t *testing.T) {
	s := load(t)
	for _, name := range profile.Builtins() {
		text, err := profile.Builtin(name)
		if err != nil {
			t.Fatal(err)
		}
		if p := validate(s, fromTOML(t, string(text)), name); len(p) > 0 {
			t.Errorf("%s", p)
		}
	}
}

func TestCookbookIsValid(t *testing.T) {
	s := load(t)
	files, err := filepath.Glob("../../docs/cookbook/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Errorf("%d profiles in the cookbook, want ten", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if p := validate(s, fromTOML(t, string(text)), file); len(p) > 0 {
			t.Errorf("%s", p)
		}
	}
}

// TestSchemaAndParser lets both judge the same lines: what the parser takes the
// schema takes, and what is wrong by its form both refuse.
func TestSchemaAndParser(t *testing.T) {
	s := load(t)
	for _, tt := range []struct {
		text string
		ok   bool
	}{
		{"", true},
		{"enforce = \"fs\"", true},
		{"enforce = \"FS\"", false},
		{"enforce = true", false},
		{"frobnicate = 1", false},
		{"require = []", true},
		{"require = [\"network\", \"network\"]", false},
		{"require = [\"net\"]", false},
		{"[filesystem]\nhide = [\"~/.ssh\", \"@credentials\", \"**/.env\", \"./@x\"]", true},
		{"[filesystem]\nhide = [\"@persistence\"]", false},
		{"[filesystem]\nhide = [\"\"]", false},
		{"[filesystem]\nhide = \"a\"", false},
		{"[filesystem]\ngrant = [{ path = \"a\", access = \"read\" }]", true},
		{"[filesystem]\ngrant = [{ path = \"a\" }]", false},
		{"[filesystem]\ngrant = [{ path = \"a\", access = \"exec\" }]", false},
		{"[filesystem]\ngrant = [{ path = \"a\", access = \"read\", because = \"x\" }]", false},
		{"[filesystem]\nveiw = \"host\"", false},
		{"[network]\nallow = [\"example.org\", \"*.example.org:443\", \"[2001:db8::1]:80-90\", \"10.0.0.0/8\", \"2001:db8::/32\", \"a.example:*\"]", true},
		{"[network]\nallow = [\"http://example.org\"]", false},
		{"[network]\nallow = [\"a b\"]", false},
		{"[network]\nloopback = [1, 65535]", true},
		{"[network]\nloopback = [0]", false},
		{"[network]\nloopback = [65536]", false},
		{"[network]\nloopback = [\"80\"]", false},
		{"[environment]\nallow = [\"LC_*\", \"*_X\", \"*\"]\npass = [\"A\"]\nauth = \"B\"\nset = { A = \"1\", B = \"\" }", true},
		{"[environment]\nallow = [\"A=B\"]", false},
		{"[environment]\npass = [\"A*\"]", false},
		{"[environment]\nset = { A = 1 }", false},
		{"[environment.set]\nA = { file = \"~/x\" }\nB = { env = \"X\" }\nC = { command = [\"a\", \"\"] }\nD = { keyring = \"x\" }\nE = { secret-service = { a = \"b\" } }\nfile = \"x\"", true},
		{"[environment.set]\nA = {}", false},
		{"[environment.set]\nA = { file = \"x\", env = \"X\" }", false},
		{"[environment.set]\nA = { vault = \"x\" }", false},
		{"[environment.set]\nA = { file = \"\" }", false},
		{"[environment.set]\nA = { env = \"X*\" }", false},
		{"[environment.set]\nA = { command = \"a b\" }", false},
		{"[environment.set]\nA = { command = [] }", false},
		{"[environment.set]\nA = { command = [1] }", false},
		{"[environment.set]\nA = { keyring = \"\" }", false},
		{"[environment.set]\nA = { secret-service = {} }", false},
		{"[environment.set]\nA = { secret-service = { \"\" = \"b\" } }", false},
		{"[environment.set]\nA = { secret-service = { a = 1 } }", false},
		{"[environment.set]\nA = [\"x\"]", false},
		{"[process]\nseccomp = \"./f.json\"", true},
		{"[process]\nseccomp = \"f.json\"", false},
		{"[process]\nnested-sandboxes = 1", false},
		{"[limits]\ntime = \"1h30m\"\ngrace = 0\nmemory = \"4GiB\"\nprocesses = 10\nfile-size = 1\noutput = \"64KiB\"", true},
		{"[limits]\ntime = 10", false},
		{"[limits]\ntime = \"10 minutes\"", false},
		{"[limits]\nmemory = \"4 gigs\"", false},
		{"[limits]\nmemory = -1", false},
		{"[limits]\noutput = \"many\"", false},
	} {
		text := "version = 1\n" + tt.text + "\n"
		_, err := profile.Parse("x", []byte(text))
		problems := validate(s, fromTOML(t, text), "x")
		if (err == nil) != tt.ok || (len(problems) == 0) != tt.ok {
			t.Errorf("%q: want %v; the parser says %v, the schema %v", tt.text, tt.ok, err, problems)
		}
	}
	for _, text := range []string{"", "version = 2\n", "version = \"1\"\n"} {
		_, err := profile.Parse("x", []byte(text))
		if problems := validate(s, fromTOML(t, text), "x"); err == nil || len(problems) == 0 {
			t.Errorf("%q: the parser says %v, the schema %v", text, err, problems)
		}
	}
}
