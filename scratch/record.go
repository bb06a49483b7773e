package scratch

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/wallsandbox/wall/plan"
)

// Bounds of a record: no run makes nearly as many placeholders.
const (
	maxRecord = 4 << 20
)

// An entry is one line of the record of placeholders. Before a placeholder is
// made, an entry without Ino says that it will be; afterwards one with Dev and
// Ino replaces it. If the maker is killed in between, the first is enough to
// remove an untouched placeholder. Void takes the announcement back.
//
// Path and Content are bytes, not strings: JSON would change what is not UTF-8.
type entry struct {
	Path    []byte        `json:"path"`
	Type    plan.FileType `json:"type"`
	Content []byte        `json:"content,omitempty"`
	Dev     uint64        `json:"dev,omitempty"`
	Ino     uint64        `json:"ino,omitempty"`
	Born    stamp         `json:"born,omitzero"` // when it was made, zero where the file system does not say
	Void    bool          `json:"void,omitempty"`
}

// A stamp is a time of a file: seconds since 1970, and nanoseconds.
type stamp struct {
	Sec  int64  `json:"sec"`
	Nsec uint32 `json:"nsec,omitempty"`
}

// before reports whether a file system that rounds its times down, and gave t,
// says that t was before u. Some keep whole seconds (FAT: even ones), some
// hundredths (FAT's time of creation).
func (t stamp) before(u stamp) bool {
	switch {
	case t.Nsec == 0:
		return t.Sec+2 <= u.Sec
	case t.Nsec%10e6 == 0:
		u.Nsec -= u.Nsec % 10e6
	}
	return t.Sec < u.Sec || t.Sec == u.Sec && t.Nsec < u.Nsec
}

// isContent reports whether wall gives placeholders this content: nothing, or
// what means "here" in .git/commondir.
func isContent(s string) bool { return s == "" || s == ".\n" }

// encode gives the line of an entry.
func (e entry) encode() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic("wall bug: " + err.Error()) // bytes, numbers and strings always encode
	}
	return append(b, '\n')
}

// decodeRecord gives the entries in force, in the order in which their paths
// first occur. A last line without its end was being written when the writer
// was killed, so nothing was done on its account.
func decodeRecord(data []byte) ([]entry, error) {
	var entries []entry
	index := make(map[string]int)
	for n := 1; len(data) > 0; n++ {
		line, rest, whole := bytes.Cut(data, []byte{'\n'})
		if !whole {
			break
		}
		data = rest
		var e entry
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&e); err != nil {
			return nil, fmt.Errorf("record of placeholders, line %d: %w", n, err)
		}
		if !isAbsClean(string(e.Path)) || string(e.Path) == "/" || e.Type != plan.TypeDir && e.Type != plan.TypeFile {
			return nil, fmt.Errorf("record of placeholders, line %d: path %q of type %q", n, e.Path, e.Type)
		}
		if i, ok := index[string(e.Path)]; ok {
			entries[i] = e
			continue
		}
		index[string(e.Path)] = len(entries)
		entries = append(entries, e)
	}
	inForce := entries[:0]
	for _, e := range entries {
		if !e.Void {
			inForce = append(inForce, e)
		}
	}
	return inForce, nil
}
