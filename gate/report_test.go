package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/egress"
	"github.com/wallsandbox/wall/plan"
)

// valid checks a value against the part of JSON Schema that [Schema] uses, and
// refuses a schema that uses more.
func valid(schema map[string]any, v any, at string) error {
	for k := range schema {
		switch k {
		case "$schema", "title", "description", "type", "enum", "const", "pattern", "minimum", "maximum", "items", "properties", "required", "additionalProperties":
		default:
			return fmt.Errorf("%s: this test does not know %q", at, k)
		}
	}
	if c, ok := schema["const"]; ok && c != v {
		return fmt.Errorf("%s: %v, want %v", at, v, c)
	}
	if e, ok := schema["enum"].([]any); ok && !slices.Contains(e, v) {
		return fmt.Errorf("%s: %v is none of %v", at, v, e)
	}
	if typ, ok := schema["type"]; ok {
		types, many := typ.([]any)
		if !many {
			types = []any{typ}
		}
		is := map[bool]string{}
		switch x := v.(type) {
		case nil:
			is[true] = "null"
		case bool:
			is[true] = "boolean"
		case string:
			is[true] = "string"
		case float64:
			is[true] = "number"
			if x == float64(int64(x)) && slices.Contains(types, "integer") {
				is[true] = "integer"
			}
		case []any:
			is[true] = "array"
		case map[string]any:
			is[true] = "object"
		}
		if !slices.Contains(types, any(is[true])) {
			return fmt.Errorf("%s: a %s, want %v", at, is[true], types)
		}
	}
	switch x := v.(type) {
	case string:
		if p, ok := schema["pattern"].(string); ok && !regexp.MustCompile(p).MatchString(x) {
			return fmt.Errorf("%s: %q does not match %s", at, x, p)
		}
	case float64:
		if m, ok := schema["minimum"].(float64); ok && x < m {
			return fmt.Errorf("%s: %v is less than %v", at, x, m)
		}
		if m, ok := schema["maximum"].(float64); ok && x > m {
			return fmt.Errorf("%s: %v is more than %v", at, x, m)
		}
	case []any:
		for i, y := range x {
			if err := valid(schema["items"].(map[string]any), y, fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
	case map[string]any:
		props, _ := schema["properties"].(map[string]any)
		for k, y := range x {
			sub, ok := props[k].(map[string]any)
			if !ok {
				return fmt.Errorf("%s has %q, which the schema does not", at, k)
			}
			if err := valid(sub, y, at+"."+k); err != nil {
				return err
			}
		}
		required, _ := schema["required"].([]any)
		for _, k := range required {
			if _, ok := x[k.(string)]; !ok {
				return fmt.Errorf("%s lacks %q", at, k)
			}
		}
	}
	return nil
}

func checkJSON(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var schema, doc map[string]any
	if err := json.Unmarshal([]byte(Schema()), &schema); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if err := valid(schema, doc, "result"); err != nil {
		t.Error(err)
	}
	return doc
}

// samples are results of every kind.
func samples(t *testing.T) map[string]Result {
	full := Outcome{
		Status: Failed, Exit: 137, Code: -1, Signal: unix.SIGKILL,
		Err: &plan.Error{Op: "op", Err: errors.New("cause"), Origin: plan.Origin{File: "f", Line: 3, Text: "x"}, Hint: "hint"},
		Plan: plan.Plan{Version: 1, Profile: "gate", Enforce: plan.EnforceFSNet, Command: plan.Command{Path: "/bin/x", Argv: []string{"x", "\xff"}, Dir: "/"},
			Scratch: plan.Scratch{Root: "/tmp/wall-0", ID: "abc"}, Landlock: plan.Landlock{ABI: 7}, Seccomp: plan.Seccomp{Profile: "mine", Program: make([]byte, 16)},
			Env:      []plan.EnvVar{{Name: "TOKEN", Value: "s3cret"}},
			Degraded: []plan.Degraded{{Wall: plan.WallLandlock, Lost: "a promise", Cause: "old"}}, Notices: []plan.Notice{{Text: "hm"}}},
		Output: Output{Text: "##[error]x\n::set-output name=x::y\nwall: gate: passed\n\x1b[2J", StdoutBytes: 7, StderrBytes: 2, Cut: 3},
		Wall:   1500 * time.Microsecond, UserTime: time.Millisecond, SysTime: time.Second, MaxRSS: 4096, Scratch: 1 << 20,
		Warnings: []string{"look"},
	}
	return map[string]Result{
		"full": {Outcome: full, Changes: &Changes{1, 2, 3, true}, Kept: "/tmp/wall-0/wall-abc", Cleanup: errors.New("left"), Started: time.Unix(1e9, 5),
			Phases: []PhaseOutcome{{Name: "fetch", Outcome: full}, {Name: "test", Skipped: true, Outcome: notRun(nil)}}},
		"refused": Refused(&plan.Error{Op: "no such profile"}),
		"passed":  Run(context.Background(), sh(t, "echo hi"), Options{Workspace: t.TempDir()}),
		"limit":   {Outcome: Outcome{Status: Limit, Exit: 123, Code: -1, Limit: "memory", Scratch: -1}, Started: time.Now()},
		"denied": {Outcome: Outcome{Status: Denied, Exit: 122, Plan: plan.Plan{Version: 1, Network: plan.Network{Method: plan.NetRedirect}},
			Network: egress.Summary{Denied: 2, Denials: []egress.Denial{{Count: 2, Event: egress.Event{Name: "a.example", Port: 443, Via: "redirect", Reason: "no rule allows it"}}}}}, Started: time.Now()},
		"late": {Outcome: Outcome{Status: TimedOut, Exit: 124, Code: -1, Limit: "time", Scratch: -1}, Started: time.Now()},
	}
}

func TestJSONFitsTheSchema(t *testing.T) {
	for name, r := range samples(t) {
		data, err := r.JSON(Facts{Wall: "1.2.3", Profile: "gate", ProfileDigest: strings.Repeat("0", 64), Kernel: "6.1", Command: []string{"x"}, Log: &LogFacts{File: "l", Files: 2, Bytes: 5}})
		if err != nil {
			t.Fatal(name, err)
		}
		doc := checkJSON(t, data)
		if doc["status"] != string(r.Status) {
			t.Errorf("%s: status %v", name, doc["status"])
		}
		if s := string(data); strings.Contains(s, "s3cret") || strings.Contains(s, "##[") || !strings.HasSuffix(s, "}\n") {
			t.Errorf("%s:\n%s", name, s)
		}
	}
	// The check itself sees what is wrong.
	var schema map[string]any
	if err := json.Unmarshal([]byte(Schema()), &schema); err != nil {
		t.Fatal(err)
	}
	r := samples(t)["full"]
	data, err := r.JSON(Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{`"version": 1->"version": 2`, `"status": "failed"->"status": "fine"`, `"exit": 137->"exit": -1`, `"partial": true->"more": true`} {
		from, to, _ := strings.Cut(change, "->")
		var doc map[string]any
		if err := json.Unmarshal(bytes.Replace(data, []byte(from), []byte(to), 1), &doc); err != nil {
			t.Fatal(err)
		}
		if valid(schema, doc, "result") == nil {
			t.Errorf("the schema takes %s", to)
		}
	}
}

// TestJSONSteersNothing: the JSON may be read in a terminal; what it says is the same.
func TestJSONSteersNothing(t *testing.T) {
	const text = "\x00\x1b[2J\x7f\u009b2J \u0085\u202e\u2028\u200b\ufeff \U000e0041 ##[error] <é日本> \U0001f600"
	r := Result{Outcome: Outcome{Status: Failed, Exit: 1, Code: 1, Output: Output{Text: text}}}
	data, err := r.JSON(Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range string(data) {
		if c != '\n' && unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			t.Errorf("%U is in it", c)
		}
	}
	var doc struct{ Output struct{ Text string } }
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Output.Text != text {
		t.Errorf("%q, want %q", doc.Output.Text, text)
	}
	if !bytes.Contains(data, []byte("é日本")) {
		t.Error("text is escaped that steers nothing")
	}
}

// TestTextOfLogs: the text does not promise more of a log than there is.
func TestTextOfLogs(t *testing.T) {
	for want, l := range map[string]LogFacts{
		"the whole output is in x":                      {},
		"the output is in x, without its first 2 bytes": {Bytes: 5, Lost: 2},
		"some of the output is in x":                    {Bytes: 5, Error: "no space left on device"},
	} {
		l.File = "x"
		if text := samples(t)["full"].Text(Facts{Log: &l}); !strings.Contains(text, "wall: gate: "+want+"\n") {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
}

// TestText: nothing in the output of a command passes for a line of wall's or
// steers a terminal.
func TestText(t *testing.T) {
	text := samples(t)["full"].Text(Facts{Profile: "gate"})
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "wall: gate: ") && !strings.HasPrefix(line, "  | ") {
			t.Errorf("line %q", line)
		}
		if strings.Contains(line, "\x1b") || strings.Contains(line, "##[") {
			t.Errorf("line %q", line)
		}
	}
	for _, want := range []string{"wall: gate: phase fetch failed", "wall: gate: phase test skipped\n", "wall: gate: failed in 2ms: ended by SIGKILL\n", "3 bytes before it\n", "  | wall: gate: passed\n", "scratch 1.0 MiB", "1 created, 2 modified, 3 deleted"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	if text := samples(t)["refused"].Text(Facts{}); !strings.Contains(text, "the command did not run") {
		t.Errorf("a refusal does not say that the command did not run: %q", text)
	}
}

func TestJUnit(t *testing.T) {
	type suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name    string `xml:"name,attr"`
			Output  string `xml:"system-out"`
			Failure *struct {
				Message string `xml:"message,attr"`
			} `xml:"failure"`
			Error *struct {
				Text string `xml:",chardata"`
			} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	read := func(r Result, profile string) suite {
		t.Helper()
		var b bytes.Buffer
		if err := r.JUnit(&b, Facts{Profile: profile}); err != nil {
			t.Fatal(err)
		}
		var s suite
		if err := xml.Unmarshal(b.Bytes(), &s); err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		// All of it, and nothing behind it.
		for d := xml.NewDecoder(&b); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	s := read(samples(t)["full"], `a"<&>'`)
	if s.Tests != 2 || s.Failures != 1 || s.Errors != 0 || s.Skipped != 1 || len(s.Cases) != 2 || s.Cases[0].Failure == nil || s.Cases[1].Skipped == nil {
		t.Errorf("%+v", s)
	}
	if got, want := s.Cases[0].Output, "##[error]x\n::set-output name=x::y\nwall: gate: passed\n\uFFFD[2J"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if s := read(samples(t)["refused"], "gate"); s.Errors != 1 || s.Failures != 0 || !strings.Contains(s.Cases[0].Error.Text, "no such profile") {
		t.Errorf("%+v", s)
	}
	odd := samples(t)["full"]
	odd.Phases[0].Output.Text = "]]></system-out></testcase>\x00\ufffe\U0010ffff&amp;\r\n"
	if got, want := read(odd, "gate").Cases[0].Output, "]]></system-out></testcase>\uFFFD\uFFFD\U0010ffff&amp;\r\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
}

// TestDigest: what differs from run to run is not in it, and the rest is.
func TestDigest(t *testing.T) {
	base := samples(t)["full"].Plan
	digest := func(change func(*plan.Plan)) string {
		p := base
		p.Env = slices.Clone(p.Env)
		change(&p)
		d, err := Digest(p)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	same := digest(func(*plan.Plan) {})
	for name, change := range map[string]func(*plan.Plan){
		"scratch": func(p *plan.Plan) { p.Scratch.ID = "def" },
		"value":   func(p *plan.Plan) { p.Env[0].Value = "other" },
		"stdio":   func(p *plan.Plan) { p.Stdio = []plan.Stdio{{FD: 0, Kind: plan.StdioNull}} },
		"origin":  func(p *plan.Plan) { p.Env[0].Origin.Line = 9 },
	} {
		if digest(change) != same {
			t.Errorf("%s changes the digest", name)
		}
	}
	for name, change := range map[string]func(*plan.Plan){
		"argv":     func(p *plan.Plan) { p.Command.Argv = []string{"x", "\xfe"} },
		"variable": func(p *plan.Plan) { p.Env[0].Name = "OTHER" },
		"root":     func(p *plan.Plan) { p.Scratch.Root = "/tmp/wall-1" },
		"network":  func(p *plan.Plan) { p.Spaces = []plan.Space{{Kind: plan.SpaceNet}} },
	} {
		if digest(change) == same {
			t.Errorf("%s does not change the digest", name)
		}
	}
	if base.Env[0].Value != "s3cret" {
		t.Error("the plan itself was changed")
	}
}
