package profile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wallsandbox/wall/plan"
)

// What a profile says that is no profile, or only nearly one, is not shown: it
// may be any file of the host that "extends" or a mistake led to.
func TestErrorsShowNoForeignText(t *testing.T) {
	for _, text := range []string{
		// Not TOML at all, wherever it breaks.
		"DB_PASSWORD=SECRET\n", "version = 1\nenforce = SECRET\n", "root:SECRET:1\n", "# SECRET\n[x\n", "aws_secret = \"SECRET\"\nx\n", "enforce = \"SECRET\n",
		"version = 1\nenforce = \"bad\" SECRET\n", "view = \"host\" ; [environment.set] \n x = \"SECRET\"\n", "name = \"SECRET\"\nnmae = \"SECRET\"\n[\n",
		"enforce = \"SECRET\"\x00", "enforce = \"SECRET\xff\"", "\xef\xbb\xbfenforce = \"SECRET\"", "\x00SECRET",
		// Keys that no profile has.
		"aws_secret = \"SECRET\"\n", "[default]\naws_secret_access_key = \"SECRET\"\n", "a.b.c = \"SECRET\"\n", "a = { b = \"SECRET\" }\n", "a = [\"SECRET\"]\na = \"SECRET\"\n",
		"[[a]]\nb = \"SECRET\"\n[[a.c]]\nd = \"SECRET\"\n[a]\n", "a = \"\"\"\nSECRET\"\"\"\n", "\"a=SECRET\" = 1\n", "[filesystem]\n\"view = SECRET\" = 1\n",
		"[filesystem]\ntoken = \"SECRET\"\ntoken = \"SECRET\"\n", "\"filesystem.view\" = \"SECRET\"\n", "filesystem.view.token = \"SECRET\"\n",
		// Misspelt tables of variables.
		"[environment]\nsets = { X = \"SECRET\" }\n", "[environment.sett]\nX = \"SECRET\"\n", "[env.set]\nX = \"SECRET\"\n", "environment.sets.X = \"SECRET\"\n",
		"environment = { sets = { X = \"SECRET\" }, base = \"bogus\" }\n", "environment = { base = \"bogus\", sets = { X = \"SECRET\" } }\n", "set = { X = \"SECRET\" }\n",
		"[environment]\nsets = { X = \"\"\"\nSECRET\"\"\", X = 2 }\n", "[environment.sets]\nX = 1\nX = \"SECRET\"\n",
		"[environment]\nallow = { X = \"SECRET\" }\n", "[environment]\nallow = [{ X = \"SECRET\" }]\n", "[environment]\nbase = { X = \"SECRET\" }\n",
		// The table itself.
		"[environment]\nset = \"SECRET\"\n", "[environment]\nset = [\"SECRET\"]\n", "[[environment.set]]\nX = \"SECRET\"\n", "[environment]\nset = { X = \"SECRET\", X = \"SECRET\" }\n",
		"[environment]\n\"s\\u0065t\" = { A = \"SECRET\", A = 1 }\n", "[environment]\nset = { A = \"\"\"\nSECRET\"\"\", B = 5 }\n", "[environment]\nset = { A = \"\"\"\nSECRET\"\"\", A = 5 }\n",
		"environment.set.A = \"SECRET\"\n[environment]\nset.B = \"SECRET\"\nfoo = 1\n", "[environment.set]\nBAD = 5 # SECRET\n", "[environment.set]\nA = \"\"\"\nline1-SECRET\nline2-SECRET\"\"\"\nA = 1\n",
		"[environment.set]\n\"X=SECRET\" = \"SECRET\"\n",
		// Tables in place of values that are none.
		"[environment.set]\nA = { SECRET = \"SECRET\" }\n", "[environment.set]\nA = { file = [\"SECRET\"] }\n", "[environment.set]\nfile = 5 # SECRET\n",
		"[environment.set]\nA = { env = \"X=SECRET\" }\n", "[environment.set.A]\ncommand = \"SECRET\"\n", "[environment.set]\nA = { keyring = \"SECRET\\u0000\" }\n",
		"[environment]\nset.A.flie = \"SECRET\"\n", "[environment.set.A]\nfile = \"SECRET\"\nenv = \"SECRET\"\n", "[environment.set]\nA = { command = [\"SECRET\", 5] }\n",
		"[environment.set.A.secret-service]\nx = { y = \"SECRET\" }\n", "[[environment.set.A]]\nfile = \"SECRET\"\n", "[environment.set]\nA = \"SECRET\"\nA.file = \"SECRET\"\n",
		// Fields that grants do not have.
		"[filesystem]\ngrant = [{ path = \"x\", token = \"SECRET\" }]\n", "[filesystem]\ngrant = [{ token = \"SECRET\", path = 1 }]\n", "[filesystem]\ngrant = [{ token = \"\"\"\nSECRET\"\"\", path = 1 }, 5]\n",
		"[[filesystem.grant]]\npath = \"x\"\ntoken = \"SECRET\"\ntoken = 1\n", "[filesystem]\nseed = [{ token = { x = \"SECRET\" }, path = 1 }]\n",
	} {
		for _, from := range []string{"-p", "extends", "user"} {
			m := parseTree(t, "")
			o := Options{Profile: "/srv/p.toml", Command: []string{"true"}}
			switch from {
			case "-p":
				putFile(m, "/srv/p.toml", text)
			case "extends":
				putFile(m, "/srv/p.toml", "version = 1\nextends = \"./q.toml\"\n")
				putFile(m, "/srv/q.toml", text)
			default:
				putFile(m, "/home/u/.config/wall/gate.toml", text)
				o.Profile = "gate"
			}
			_, err := Resolve(goldenHost{}.host(m), o)
			if err == nil {
				t.Errorf("%s %q: accepted", from, text)
				continue
			}
			if shown := plan.Explain(err); strings.Contains(shown, "SECRET") || !strings.Contains(shown, "  at ") {
				t.Errorf("%s %q: %s", from, text, shown)
			}
		}
	}
	// A line of a key that profiles have is shown: that is what helps.
	for text, want := range map[string]string{
		"version = 1\nenforce = \"sf\" # why\n":                      "2:11: enforce = \"sf\" # why",
		"version = 1\n[filesystem]\nhide = [\n \"~other\",\n]\n":     "4:2: \"~other\",",
		"version = 1\nfilesystem.view = \"hots\"\n":                  "2:19: filesystem.view = \"hots\"",
		"version = 1\n[filesystem]\n[filesystem]\n":                  "3:2: [filesystem]",
		"version = 1\n[[filesystem.grant]]\npath = \"\"\n":           "3:8: path = \"\"",
		"version = 1\n[environment]\nset = 5\n":                      "3:7: set = ...",
		"version = 1\n[filesystem]\ngrant = [{ x = 1, path = 1 }]\n": "3:26: grant = ...",
		"version = 1\nenforse = \"fs\"\n":                            "2:1: enforse = ...",
	} {
		_, err := Parse("p.toml", []byte(text))
		if err == nil || !strings.Contains(plan.Explain(err), "p.toml:"+want) {
			t.Errorf("%q: %v, want %s", text, plan.Explain(err), want)
		}
	}
}

// The number of problems that are told is bounded, and how many there were is said.
func TestManyProblems(t *testing.T) {
	for n, more := range map[int]int{maxProblems: 0, maxProblems + 1: 1, 5000: 5000 - maxProblems} {
		_, err := Parse("p.toml", []byte(manyKeys(n)))
		text := plan.Explain(err)
		if want := fmt.Sprintf("and %d more problems", more); strings.Contains(text, "more problems") != (more > 0) || more > 0 && !strings.Contains(text, want) {
			t.Errorf("%d: %.300s", n, text)
		}
		if got := strings.Count(text, "error:"); got > maxProblems+1 {
			t.Errorf("%d: %d errors", n, got)
		}
	}
}

// Every list is bounded, and the element that is too many is located.
func TestListBound(t *testing.T) {
	for key, element := range map[string]string{
		"filesystem.hide": `"x%d"`, "filesystem.protect": `"x%d"`, "filesystem.grant": `{ path = "x%d", access = "read" }`, "filesystem.seed": `{ path = "~/x%d" }`,
		"environment.deny": `"X%d"`, "environment.pass": `"X%d"`, "network.allow": `"x%d.org"`, "network.loopback": `%d`, "environment.set": "X%d = \"\"",
	} {
		for _, n := range []int{maxElements, maxElements + 1} {
			var e []string
			for i := range n {
				e = append(e, fmt.Sprintf(element, i+1))
			}
			text := "version = 1\n" + key + " = [" + strings.Join(e, ",\n") + "]\n"
			if key == "environment.set" {
				text = "version = 1\n[environment.set]\n" + strings.Join(e, "\n") + "\n"
			}
			_, err := Parse("p.toml", []byte(text))
			if n == maxElements {
				if err != nil {
					t.Errorf("%s: %s", key, plan.Explain(err))
				}
			} else if err == nil || !strings.Contains(plan.Explain(err), "more than 2000 elements\n  at p.toml:20") {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

// The time to read a file grows with its size, whatever it holds.
func TestParseTime(t *testing.T) {
	big := func(unit func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < MaxFileSize-200; i++ {
			b.WriteString(unit(i))
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"one line":      "version = 1\n[filesystem]\nhide = [" + big(func(i int) string { return fmt.Sprintf("\"x%d\",", i) }) + "]\n",
		"bad elements":  "version = 1\n[filesystem]\nhide = [" + big(func(i int) string { return "1," }) + "]\n",
		"spaces":        "version = 1\n[filesystem]\nhide = [" + strings.Repeat(" ", MaxFileSize/2) + strings.Repeat("1,", MaxFileSize/5) + "]\n",
		"grants":        "version = 1\n[filesystem]\ngrant = [" + big(func(i int) string { return "{a=1}," }) + "]\n",
		"fields":        "version = 1\n[filesystem]\ngrant = [{" + big(func(i int) string { return fmt.Sprintf("a%d=1,", i) }) + "path=1}]\n",
		"keys":          big(func(i int) string { return fmt.Sprintf("k%d=1\n", i) }),
		"headers":       big(func(i int) string { return fmt.Sprintf("[t%d.set]\n", i) }),
		"set":           "[environment.set]\n" + big(func(i int) string { return fmt.Sprintf("k%d=1\n", i) }),
		"twice":         big(func(i int) string { return "[a]\n" }),
		"dotted":        "version = 1\n" + big(func(i int) string { return "set." }) + "set = 1\n",
		"array tables":  big(func(i int) string { return "[[filesystem.grant]]\nx=1\n" }),
		"lines":         "version = 1\nname = [\n" + big(func(i int) string { return "1,\n" }) + "]\n",
		"not UTF-8":     big(func(i int) string { return "\u00e9" }) + "\xff",
		"carriage only": big(func(i int) string { return "\r" }),
	} {
		start := time.Now()
		_, err := Parse("p.toml", []byte(text))
		took := time.Since(start)
		if took > 10*time.Second { // a tenth of that at most; quadratic ones take more
			t.Errorf("%s: %v", name, took)
		}
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		t.Log(name, took, len(plan.Explain(err)))
	}
}
