package profile

import (
	"bytes"
	"os"
	"strings"
)

// An archive is a file in the txtar format (golang.org/x/tools/txtar): a
// comment, then sections headed by "-- NAME --".
type archive struct {
	comment  []byte
	sections []section
}

type section struct {
	name string
	data []byte
}

func readArchive(file string) (*archive, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseArchive(data), nil
}

func parseArchive(data []byte) *archive {
	a := &archive{}
	for _, line := range bytes.SplitAfter(data, []byte("\n")) {
		s := strings.TrimSuffix(string(line), "\n")
		if name, ok := strings.CutPrefix(s, "-- "); ok && strings.HasSuffix(name, " --") {
			a.sections = append(a.sections, section{name: strings.TrimSpace(strings.TrimSuffix(name, " --"))})
		} else if n := len(a.sections); n > 0 {
			a.sections[n-1].data = append(a.sections[n-1].data, line...)
		} else {
			a.comment = append(a.comment, line...)
		}
	}
	return a
}

func (a *archive) write(file string) error {
	var b bytes.Buffer
	b.Write(a.comment)
	for _, s := range a.sections {
		b.WriteString("-- " + s.name + " --\n")
		b.Write(s.data)
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
