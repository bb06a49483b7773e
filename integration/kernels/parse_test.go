package kernels_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/integration/kernels"
)

// TestParse: what does not end as it must is an error, whatever came before.
func TestParse(t *testing.T) {
	const one, two = `{"Name":"a","Code":7,"Out":"x\n","Err":"","Millis":3}` + "\n", `{"Name":"b"}` + "\n"
	want := []kernels.Result{{Name: "a", Code: 7, Out: "x\n", Millis: 3}, {Name: "b"}}
	got, err := parse(one + two + kernels.EndMark + "\n")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for text, bad := range map[string]string{
		"":                                       "end mark is missing",
		one + two:                                "end mark is missing",
		one + `{"Name":"b`:                       "unexpected end of JSON",
		one + "[  1.2] some driver\n":            "in \"[  1.2] some driver\"",
		one + kernels.EndMark + "\n" + two:       "after the end mark",
		kernels.EndMark + "\nKernel panic\n":     "after the end mark",
		one + "x" + kernels.EndMark + "\n" + two: "invalid character",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v, want %q", text, err, bad)
		}
	}
}

// TestArchive compares byte by byte: a wrong one shows only as a panic of the guest.
func TestArchive(t *testing.T) {
	const header = "070701" +
		"00000001" + "000081ed" + "00000000" + "00000000" + "00000001" + "00000000" + "00000005" +
		"00000000" + "00000000" + "00000000" + "00000000" + "00000005" + "00000000"
	const trailer = "070701" +
		"00000002" + "00000000" + "00000000" + "00000000" + "00000001" + "00000000" + "00000000" +
		"00000000" + "00000000" + "00000000" + "00000000" + "0000000b" + "00000000"
	want := header + "init\x00\x00" + "hello\x00\x00\x00" + trailer + "TRAILER!!!\x00" + "\x00\x00\x00"
	got := string(archive([]file{{"init", typeFile | 0o755, []byte("hello")}}))
	if got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if len(got)%4 != 0 {
		t.Errorf("%d bytes", len(got))
	}
}

// TestJudge: every way in which a step can go wrong fails the test.
func TestJudge(t *testing.T) {
	s := step{Step: kernels.Step{Name: "a"}, code: 125, out: "o\n", err: "at built-in:base:N: x\n"}
	good := kernels.Result{Name: "a", Code: 125, Out: "o\n", Err: "at built-in:base:17:3: x\n"}
	if bad := s.bad(good); bad != nil {
		t.Errorf("good: %q", bad)
	}
	for name, spoil := range map[string]func(*kernels.Result){
		"code":     func(r *kernels.Result) { r.Code = 0 },
		"out":      func(r *kernels.Result) { r.Out += "more" },
		"silence":  func(r *kernels.Result) { r.Out = "" },
		"err":      func(r *kernels.Result) { r.Err = "at built-in:base:17:3: y\n" },
		"err more": func(r *kernels.Result) { r.Err += "more" },
	} {
		r := good
		spoil(&r)
		if s.bad(r) == nil {
			t.Errorf("%s is not noticed", name)
		}
	}
	if bad := badOps(fileOps[:1], []string{"ok"}, "gate", users[0]); bad == "" {
		t.Error("an attack that works is not noticed")
	}
	if bad := badOps(fileOps[:2], []string{"EROFS"}, "gate", users[0]); bad == "" {
		t.Error("a missing outcome is not noticed")
	}
	if bad := badPosture(posture{}, users[1]); strings.Count(bad, "want") < 10 {
		t.Errorf("an empty posture: %q", bad)
	}
	for _, doctor := range []string{"", "{}", `{"ok":true,"findings":[]}`} {
		if machines[0].badDoctor(doctor) == "" {
			t.Errorf("doctor says %q and nobody minds", doctor)
		}
	}
}
