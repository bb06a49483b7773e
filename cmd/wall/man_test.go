package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "rewrite the manual pages in docs/man")

// manDir is where the generated pages are kept, for packagers and for review.
const manDir = "../../docs/man"

// TestManPages checks that the manual pages say what the help says. With -update
// it writes them.
func TestManPages(t *testing.T) {
	want := manPages(newRoot(streams{}))
	if *update {
		if err := os.MkdirAll(manDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range want {
			if err := os.WriteFile(filepath.Join(manDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(manDir)
	if err != nil {
		t.Fatalf("%v; write the pages with: go test ./cmd/wall -run TestManPages -update", err)
	}
	for _, e := range entries {
		if _, ok := want[e.Name()]; !ok {
			t.Errorf("docs/man/%s belongs to no command or topic", e.Name())
		}
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(manDir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		if string(got) != text {
			t.Errorf("docs/man/%s is not current; write it with: go test ./cmd/wall -run TestManPages -update", name)
		}
	}
}

// manPages gives the text of every page by file name: section 1 for commands,
// section 7 for topics.
func manPages(root *cobra.Command) map[string]string {
	root.InitDefaultHelpCmd()
	pages := make(map[string]string)
	walk(root, func(c *cobra.Command) {
		pages[strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"] = manCommand(c)
	})
	for _, topic := range topics {
		var m roff
		m.head("wall-"+topic.name, "7")
		m.section("NAME")
		m.text("wall-" + topic.name + " - " + topic.short)
		m.section("DESCRIPTION")
		m.verbatim(topic.text)
		m.seeAlso("wall(1)")
		pages["wall-"+topic.name+".7"] = m.String()
	}
	return pages
}

func manCommand(cmd *cobra.Command) string {
	var m roff
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	m.head(name, "1")
	m.section("NAME")
	m.text(name + " - " + lowerFirst(cmd.Short))
	m.section("SYNOPSIS")
	m.text(useLine(cmd))
	m.section("DESCRIPTION")
	m.paragraphs(cmd.Long)
	if cmd.HasSubCommands() {
		m.section("COMMANDS")
		for _, c := range cmd.Commands() {
			m.item(strings.ReplaceAll(c.CommandPath(), " ", "-")+"(1)", c.Short)
		}
	}
	if !cmd.HasParent() {
		m.section("TOPICS")
		for _, t := range topics {
			m.item("wall-"+t.name+"(7)", t.short)
		}
	}
	m.section("OPTIONS")
	for _, row := range flagTable(cmd) {
		m.item(strings.TrimSpace(row.spelling), row.usage)
	}
	if cmd.Annotations[annotationRuns] != "" {
		m.section("EXIT STATUS")
		m.text("See wall-exit-codes(7).")
	}
	m.section("EXAMPLES")
	m.verbatim(cmd.Example)
	if cmd.HasParent() {
		m.seeAlso(strings.ReplaceAll(cmd.Parent().CommandPath(), " ", "-") + "(1)")
	}
	return m.String()
}

// A roff writes the man(7) macros.
type roff struct{ strings.Builder }

func (m *roff) head(name, section string) {
	m.WriteString(`.\" Generated from the help of wall; do not edit.` + "\n")
	m.WriteString(".TH " + roffEscape(strings.ToUpper(name)) + " " + section + ` "" "wall" "wall manual"` + "\n")
}

func (m *roff) section(name string) { m.WriteString(".SH " + name + "\n") }

func (m *roff) text(s string) { m.WriteString(roffEscape(s) + "\n") }

func (m *roff) item(term, text string) {
	m.WriteString(".TP\n.B " + roffEscape(term) + "\n")
	m.text(text)
}

func (m *roff) paragraphs(s string) {
	for i, p := range strings.Split(strings.TrimSpace(s), "\n\n") {
		if i > 0 {
			m.WriteString(".PP\n")
		}
		m.text(p)
	}
}

func (m *roff) verbatim(s string) {
	m.WriteString(".nf\n")
	m.text(strings.Trim(s, "\n"))
	m.WriteString(".fi\n")
}

func (m *roff) seeAlso(s string) {
	m.section("SEE ALSO")
	m.text(s)
}

// roffEscape keeps text from being read as requests: a backslash, a hyphen (which
// would be set as a typographic one) and a control character at a line's start.
func roffEscape(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

func TestRoffEscape(t *testing.T) {
	for in, want := range map[string]string{
		"--rw PATH":      `\-\-rw PATH`,
		`a\b`:            `a\eb`,
		".hidden\n'x\ny": "\\&.hidden\n\\&'x\ny",
	} {
		if got := roffEscape(in); got != want {
			t.Errorf("roffEscape(%q) = %q, want %q", in, got, want)
		}
	}
}
