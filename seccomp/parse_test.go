package seccomp

import (
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

func TestParse(t *testing.T) {
	s, err := Parse([]byte(`{
  "defaultAction": "SCMP_ACT_ERRNO",
  "defaultErrnoRet": 38,
  "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64", "SCMP_ARCH_S390X"],
  "syscalls": [
    {"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "errnoRet": 25,
     "args": [{"index": 1, "value": 4294967295, "valueTwo": 21522, "op": "SCMP_CMP_MASKED_EQ"}]},
    {"names": ["ioctl", "read"], "action": "SCMP_ACT_ALLOW"}
  ]
}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Syscalls) != 2 || *s.DefaultErrnoRet != 38 || s.Syscalls[0].Args[0].ValueTwo != 21522 || s.Syscalls[1].Names[1] != "read" {
		t.Errorf("got %+v", s)
	}
}

func TestParseErrors(t *testing.T) {
	const head = `{"defaultAction":"SCMP_ACT_ERRNO","syscalls":[`
	rule := func(r string) string { return head + "\n" + r + "\n]}" }
	tests := []struct {
		name, text string
		line, col  int
		want       string
	}{
		{"empty", "", 1, 1, "ends too early"},
		{"truncated", "{\n\"defaultAction\": \"SCMP_ACT", 2, 27, "ends too early"},
		{"list", "[]", 1, 1, "must be an object"},
		{"null", "null", 1, 1, "must be an object"},
		{"string", `"x"`, 1, 1, "must be an object"},
		{"syntax", "{\n  \"defaultAction\": nope}", 2, 21, "invalid character"},
		{"after the end", `{"defaultAction":"SCMP_ACT_ALLOW"}` + "\n {}", 2, 2, "after top-level value"},
		{"no default", "{}", 1, 1, "defaultAction is missing"},
		{"unknown field", "{\n \"defaultAction\":\"SCMP_ACT_ALLOW\",\n \"sysCalls\":[]}", 3, 2, `unknown field "sysCalls"`},
		{"field case", `{"DefaultAction":"SCMP_ACT_ALLOW"}`, 1, 2, `unknown field "DefaultAction"`},
		{"repeated field", `{"defaultAction":"SCMP_ACT_ERRNO","defaultAction":"SCMP_ACT_ALLOW"}`, 1, 35, `"defaultAction" is repeated`},
		{"engine template", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","includes":{}}`), 2, 45, `unknown field "includes"`},
		{"null list", `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":null}`, 1, 46, "syscalls is null"},
		{"null action", `{"defaultAction":null}`, 1, 18, "defaultAction is null"},
		{"number for string", `{"defaultAction":1}`, 1, 18, "is not a string"},
		{"string for list", rule(`{"names":"read","action":"SCMP_ACT_ALLOW"}`), 2, 0, "is not a list"},
		{"object for string", `{"defaultAction":{}}`, 1, 18, "cannot be an object"},
		{"negative value", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":-1,"op":"SCMP_CMP_EQ"}]}`), 2, 0, "is not a whole number"},
		{"huge value", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","args":[{"index":0,"value":18446744073709551616,"op":"SCMP_CMP_EQ"}]}`), 2, 0, "is not a whole number"},
		{"deep", `{"syscalls":[[[[[[[[[[]]]]]]]]]]}`, 1, 21, "nested too deeply"},
		{"unknown action", rule(`{"names":["read"],"action":"SCMP_ACT_PERMIT"}`), 2, 28, `unknown action "SCMP_ACT_PERMIT"`},
		{"unknown default", `{"defaultAction":"ALLOW"}`, 1, 18, `unknown default action "ALLOW"`},
		{"trace", rule(`{"names":["read"],"action":"SCMP_ACT_TRACE"}`), 2, 28, "another process"},
		{"notify", rule(`{"names":["read"],"action":"SCMP_ACT_NOTIFY"}`), 2, 28, "another process"},
		{"listener", `{"defaultAction":"SCMP_ACT_ALLOW","listenerPath":"/x"}`, 1, 50, "listener is not supported"},
		{"flags", `{"defaultAction":"SCMP_ACT_ALLOW","flags":["SECCOMP_FILTER_FLAG_SPEC_ALLOW"]}`, 1, 44, "is not supported"},
		{"x32", `{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86_64","SCMP_ARCH_X32"]}`, 1, 71, "foreign system call table"},
		{"i386", `{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86"]}`, 1, 52, "foreign system call table"},
		{"bad architecture", `{"defaultAction":"SCMP_ACT_ALLOW","architectures":["amd64"]}`, 1, 52, `unknown architecture "amd64"`},
		{"no names", rule(`{"action":"SCMP_ACT_ALLOW"}`), 2, 1, "names is missing"},
		{"no action", rule(`{"names":["read"]}`), 2, 1, "action is missing"},
		{"name with NUL", rule(`{"names":["read\u0000"],"action":"SCMP_ACT_ALLOW"}`), 2, 11, "not the name"},
		{"errno too large", rule(`{"names":["read"],"action":"SCMP_ACT_ERRNO","errnoRet":4096}`), 2, 56, "at most 4095"},
		{"errno on allow", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","errnoRet":1}`), 2, 56, "only with SCMP_ACT_ERRNO"},
		{"default errno on kill", `{"defaultAction":"SCMP_ACT_KILL","defaultErrnoRet":1}`, 1, 52, "only with SCMP_ACT_ERRNO"},
		{"argument 6", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","args":[{"index":6,"value":0,"op":"SCMP_CMP_EQ"}]}`), 2, 62, "arguments 0 to 5"},
		{"argument twice", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":0,"op":"SCMP_CMP_GE"},{"index":1,"value":9,"op":"SCMP_CMP_LE"}]}`), 2, 103, "compared twice"},
		{"no comparison", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":0}]}`), 2, 53, "op is missing"},
		{"unknown comparison", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":0,"op":"=="}]}`), 2, 79, `unknown comparison "=="`},
		{"valueTwo without mask", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":0,"valueTwo":1,"op":"SCMP_CMP_EQ"}]}`), 2, 85, "only with SCMP_CMP_MASKED_EQ"},
		{"mask never matches", rule(`{"names":["read"],"action":"SCMP_ACT_ALLOW","args":[{"index":1,"value":15,"valueTwo":16,"op":"SCMP_CMP_MASKED_EQ"}]}`), 2, 86, "can never match"},
		{"dead rule", rule(`{"names":["read","write"],"action":"SCMP_ACT_ALLOW"},` + "\n" + `{"names":["write"],"action":"SCMP_ACT_ERRNO"}`), 3, 11, "can never apply: syscalls[0]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Parse([]byte(tt.text))
			if err == nil {
				t.Fatalf("accepted: %+v", s)
			}
			if s != nil {
				t.Error("a filter next to an error")
			}
			var pe *plan.Error
			if !errors.As(err, &pe) {
				t.Fatalf("not a plan.Error: %v", err)
			}
			if !strings.Contains(pe.Error(), tt.want) {
				t.Errorf("error %q, want %q", pe, tt.want)
			}
			if pe.Origin.Line != tt.line || tt.col != 0 && pe.Origin.Column != tt.col {
				t.Errorf("at %d:%d, want %d:%d", pe.Origin.Line, pe.Origin.Column, tt.line, tt.col)
			}
			if strings.Contains(err.Error(), "wall bug") {
				t.Errorf("a user's mistake called a bug: %v", err)
			}
		})
	}
}

// TestParseAllProblems: all problems with the content come at once, in order.
func TestParseAllProblems(t *testing.T) {
	_, err := Parse([]byte(`{"defaultAction":"X","flags":["Y"],"syscalls":[{"names":["Z"],"action":"W"}]}`))
	j, ok := err.(interface{ Unwrap() []error })
	if !ok || len(j.Unwrap()) != 4 {
		t.Fatalf("want four errors, got %v", err)
	}
	last := 0
	for _, e := range j.Unwrap() {
		var pe *plan.Error
		if !errors.As(e, &pe) || pe.Origin.Column < last {
			// The action is told before the name; both belong to one rule.
			if !strings.Contains(e.Error(), "not the name") {
				t.Errorf("out of order: %v", e)
			}
		}
		last = pe.Origin.Column
	}
}

func TestParseTooLarge(t *testing.T) {
	_, err := Parse([]byte(`{"defaultAction":"SCMP_ACT_ALLOW"}` + strings.Repeat(" ", maxFileSize)))
	if err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("error %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"always", "strict", "nested"} {
		b, err := os.ReadFile("data/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["a"],"action":"SCMP_ACT_KILL","args":[{"index":0,"value":1,"op":"SCMP_CMP_NE"}]}]}`))
	f.Add([]byte(`{"syscalls":[{"names":[1]}]}`))
	f.Add([]byte("{\"\xff\":"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			return
		}
		out, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out)
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		norm := func(v any) string { b, _ := json.Marshal(v); return string(b) }
		if !reflect.DeepEqual(norm(s), norm(again)) {
			t.Errorf("does not round-trip: %s", out)
		}
	})
}
