package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/wallsandbox/wall/plan"
)

// ANSI sequences used on a terminal.
const (
	ansiRed   = "\x1b[31m"
	ansiCyan  = "\x1b[36m"
	ansiReset = "\x1b[0m"
)

// printError tells a person why wall failed.
func printError(w *os.File, err error) {
	text := explain(err)
	if colours(w) {
		text = colour(text)
	}
	say(w, text)
}

// stuckAfter is how long a terminal may take nothing before wall ends without having
// said all.
const stuckAfter = 2 * time.Second

// unread is standard error when it has turned out that nobody reads it.
var unread atomic.Pointer[os.File]

// noteUnread remembers that from the error of a log.
func noteUnread(w *os.File, err error) {
	if errors.Is(err, errUnread) {
		unread.Store(w)
	}
}

// say writes to a person. A terminal that takes nothing any more, such as one whose
// connection hangs, does not keep wall from ending: a limit of time would be none.
func say(w *os.File, text string) {
	// There is nowhere left to say that the error stream itself is broken.
	_ = tell(w, text)
}

// tell is say for those who have somebody else to tell that it failed.
func tell(w *os.File, text string) error {
	write := func() error {
		_, err := io.WriteString(w, text)
		return err
	}
	nobody := unread.Load() == w
	if nobody && !writable(w) {
		return nil // it is known
	}
	if !nobody && !isTerminal(w) {
		return write()
	}
	written := make(chan error, 1)
	go func() { written <- write() }()
	select {
	case err := <-written:
		return err
	case <-time.After(stuckAfter):
		return nil
	}
}

// printWarning tells of a failure that wall survives, or of a danger.
func printWarning(w *os.File, text string) {
	say(w, warning(w, text)+"\n")
}

// warning is the line of printWarning without its end.
func warning(w *os.File, text string) string {
	prefix := "wall: warning: "
	if colours(w) {
		prefix = "wall: " + ansiRed + "warning:" + ansiReset + " "
	}
	return prefix + oneLine(text)
}

// explain is plan.Explain with the program's name in front of every error.
func explain(err error) string {
	var b strings.Builder
	for line := range strings.Lines(plan.Explain(err)) {
		if !strings.HasPrefix(line, " ") {
			b.WriteString("wall: ")
		}
		b.WriteString(line)
	}
	return b.String()
}

// colour marks the word "error" and the hints in a text of [explain].
func colour(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, "wall: error: "):
			line = "wall: " + ansiRed + "error:" + ansiReset + strings.TrimPrefix(line, "wall: error:")
		case strings.HasPrefix(line, "  hint: "):
			line = "  " + ansiCyan + "hint:" + ansiReset + strings.TrimPrefix(line, "  hint:")
		}
		b.WriteString(line)
	}
	return b.String()
}

// colours reports whether f is a terminal that should get colours. NO_COLOR is
// the convention of https://no-color.org: any non-empty value means no.
func colours(f *os.File) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(f)
}

// printPlanNotes tells the operator what is lost, and what else there is to
// know, before the command starts.
func printPlanNotes(w io.Writer, p plan.Plan) error {
	var b strings.Builder
	for _, d := range p.Degraded {
		b.WriteString("wall: " + degradedLine(d) + "\n")
	}
	for _, n := range p.Notices {
		b.WriteString("wall: notice: " + oneLine(n.Text) + "\n")
		if !n.Origin.IsZero() {
			b.WriteString("  at " + oneLine(n.Origin.String()) + "\n")
		}
		if n.Hint != "" {
			b.WriteString("  hint: " + oneLine(n.Hint) + "\n")
		}
	}
	if b.Len() == 0 {
		return nil
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// degradedLine is one lost promise on one line.
func degradedLine(d plan.Degraded) string {
	s := "degraded: " + string(d.Wall) + ": " + oneLine(d.Lost)
	if d.Cause != "" {
		s += " (" + oneLine(d.Cause) + ")"
	}
	return s
}

// inOne gives errors as one text, each once.
func inOne(errs ...error) string {
	var texts []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSuffix(line, "\n"); !slices.Contains(texts, line) {
				texts = append(texts, line)
			}
		}
	}
	return strings.Join(texts, "; ")
}

// oneLine is what is shown of foreign text, see [plan.Printable].
func oneLine(s string) string { return plan.Printable(s) }
