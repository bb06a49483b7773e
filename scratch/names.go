package scratch

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// Names inside of wall-<id> that no sub-directory of a plan may have.
const (
	recordName = ".placeholders" // also with "-<id>": handed over by that run
	guardsName = ".guards"       // plan.Scratch.Guards, each ended by NUL
	keepName   = ".keep"
)

// dirPrefix begins the name of every scratch directory.
const dirPrefix = "wall-"

// DefaultRoot is where scratch directories go unless someone says otherwise:
// <tempDir>/wall-<uid>. It asks the machine nothing; tempDir should be absolute
// and free of links, as all paths of a plan. A root of this name is removed
// when the last directory in it is; others are left.
func DefaultRoot(tempDir string, uid int) string {
	return path.Join(tempDir, dirPrefix+strconv.Itoa(uid))
}

// isID reports whether s can be the ID of a scratch directory: 1 to 64
// lower-case hexadecimal digits.
func isID(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// dirID gives the ID in the name of a scratch directory.
func dirID(name string) (id string, ok bool) {
	id, ok = strings.CutPrefix(name, dirPrefix)
	return id, ok && isID(id)
}

// isRecord reports whether name is that of a record in a scratch directory.
func isRecord(name string) bool {
	rest, ok := strings.CutPrefix(name, recordName)
	return ok && (rest == "" || rest[0] == '-' && isID(rest[1:]))
}

// checkScratch refuses what a valid plan cannot hold, before anything is made.
func checkScratch(s plan.Scratch) error {
	if err := checkRoot(s.Root); err != nil {
		return err
	}
	if !isID(s.ID) {
		return fmt.Errorf("wall bug: scratch id %q is not lower-case hex", s.ID)
	}
	dirs := make(map[string]bool, len(s.Dirs))
	for _, d := range s.Dirs {
		if !isElement(d.Name) || strings.HasPrefix(d.Name, recordName) || d.Name == guardsName || d.Name == keepName || dirs[d.Name] {
			return fmt.Errorf("wall bug: scratch sub-directory %q", d.Name)
		}
		if d.Mode&^0o7777 != 0 {
			return fmt.Errorf("wall bug: mode %#o of scratch sub-directory %q", d.Mode, d.Name)
		}
		dirs[d.Name] = true
	}
	for _, p := range s.Placeholders {
		if !isAbsClean(p.Path) || p.Path == "/" || p.Type != plan.TypeDir && p.Type != plan.TypeFile ||
			p.Type == plan.TypeDir && p.Content != "" || !isContent(p.Content) {
			return fmt.Errorf("wall bug: placeholder %q of type %q", p.Path, p.Type)
		}
	}
	for _, seed := range s.Seeds {
		elements := strings.Split(seed.Target, "/")
		for _, e := range elements {
			if !isElement(e) {
				return fmt.Errorf("wall bug: seed target %q", seed.Target)
			}
		}
		if len(elements) < 2 || !dirs[elements[0]] || !isAbsClean(seed.Source) {
			return fmt.Errorf("wall bug: seed %q to %q", seed.Source, seed.Target)
		}
	}
	return nil
}

func checkRoot(root string) error {
	if root == "" {
		return errors.New("wall bug: no scratch root")
	}
	if !isAbsClean(root) || root == "/" {
		return &plan.Error{
			Op:   "cannot use the scratch root " + strconv.Quote(root),
			Err:  errors.New("it is not an absolute, clean path of a directory"),
			Hint: "give --scratch-root an absolute path below /",
		}
	}
	return nil
}

func isElement(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsAny(s, "/\x00")
}

func isAbsClean(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == p && !strings.Contains(p, "\x00")
}
