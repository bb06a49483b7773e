package landlock

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/wallsandbox/wall/plan"
)

// MaxRules bounds the rules of one ruleset. Each costs a few microseconds at the
// start and some kernel memory; a directory of a hundred thousand entries on
// the way to a hidden file is a plan to be changed, not one to be carried out.
const MaxRules = 8192

// An Entry is one name in a directory.
type Entry struct {
	Name string        // one path element, never "." or ".."
	Type plan.FileType // links are not followed; sockets and devices are TypeFile
}

// Expand gives the rules that together allow what r says. Landlock cannot
// subtract from a tree, so a rule with exceptions becomes one rule for every
// entry that is neither an exception nor on the way to one, in each directory
// from r.Path down to the exceptions' parents. A rule without exceptions is
// returned as it is; one whose Path is itself excepted gives no rules.
//
// No resulting rule other than a listing one (below) has an exception beneath
// it, whether the exception exists or not: what does not exist today is not
// enumerated, so nothing that appears there later is allowed. The same holds for
// entries that appear later beside an exception. Symbolic links get no rule: Landlock rules belong to
// inodes, and the target has its own. A directory on the way that cannot be
// listed for lack of permission contributes only what is known to lie
// below it. Rules for entries are Optional, for they may vanish.
//
// listAncestors adds one rule with plan.AccessList for r.Path, when r lets
// directories be listed. That right is hierarchical like any other, so
// Landlock alone then shows the names (not the contents) below an exception;
// ask for it only when a mount namespace covers the exceptions.
//
// readDir is called for directories on the way only, outermost first, and must
// not follow a link in the last element; fs.ErrNotExist, fs.ErrPermission and
// ENOTDIR or ELOOP are understood, other errors end the expansion. It is not
// called for a rule without exceptions. More than [MaxRules] results are an
// error that names the directory. Errors are [plan.Error] with r.Origin.
func Expand(r plan.PathRule, listAncestors bool, readDir func(dir string) ([]Entry, error)) ([]plan.PathRule, error) {
	if err := checkPath(r, r.Path); err != nil {
		return nil, err
	}
	var below []string
	for _, e := range r.Except {
		if err := checkPath(r, e); err != nil {
			return nil, err
		}
		if isWithin(r.Path, e) {
			return nil, nil
		}
		if isWithin(e, r.Path) {
			below = append(below, e)
		}
	}
	if len(below) == 0 {
		r.Except = nil
		return []plan.PathRule{r}, nil
	}
	slices.Sort(below)

	x := expander{rule: r, readDir: readDir}
	x.rule.Except = nil
	x.rule.Optional = true
	if all, _ := rights(r.Access); listAncestors && all&rightsList != 0 {
		list := r
		list.Access, list.Except = plan.AccessList, nil
		x.out = append(x.out, list)
	}
	if err := x.dir(r.Path, below, !r.Optional); err != nil {
		return nil, err
	}
	return x.out, nil
}

type expander struct {
	rule    plan.PathRule // the template of every result
	readDir func(string) ([]Entry, error)
	out     []plan.PathRule
}

// dir adds the rules for the directory at path p with the exceptions below it.
// Its depth is bounded by the number of elements in an exception.
func (x *expander) dir(p string, below []string, must bool) error {
	entries, err := x.readDir(p)
	listed := err == nil
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrPermission):
		// Perhaps it can still be searched: go on with the names that the
		// exceptions give away.
	case !must && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP)):
		return nil
	default:
		hint := ""
		if errors.Is(err, fs.ErrNotExist) {
			hint = "create it, or mark the line optional to skip it when missing"
		}
		return ruleError("cannot allow "+x.rule.Path+" except what is hidden in it", x.rule.Origin, hint, fmt.Errorf("list %s: %w", p, err))
	}

	onTheWay := group(p, below)
	isDir := make(map[string]bool, len(onTheWay))
	x.out = slices.Grow(x.out, min(len(entries), MaxRules))
	for _, e := range entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsAny(e.Name, "/\x00") {
			return fmt.Errorf("wall bug: %s has an entry %q", p, e.Name)
		}
		if _, ok := onTheWay[e.Name]; ok {
			isDir[e.Name] = e.Type == plan.TypeDir
			continue
		}
		if e.Type == plan.TypeSymlink {
			continue
		}
		if len(x.out) >= MaxRules {
			return tooMany(x.rule, p)
		}
		rule := x.rule
		rule.Path = join(p, e.Name)
		x.out = append(x.out, rule)
	}

	// The next level, in sorted order: equal trees give equal rulesets.
	for _, name := range slices.Sorted(maps.Keys(onTheWay)) {
		deeper := onTheWay[name]
		if len(deeper) == 0 || listed && !isDir[name] {
			continue // an exception; or absent, or something that nothing can lie beneath
		}
		if err := x.dir(join(p, name), deeper, false); err != nil {
			return err
		}
	}
	return nil
}

// group maps the first path element below p of each exception to those
// exceptions that lie deeper; none when the element itself is an exception.
func group(p string, below []string) map[string][]string {
	m := make(map[string][]string, len(below))
	excepted := make(map[string]bool, len(below))
	for _, e := range below {
		rest := strings.TrimPrefix(e[len(p):], "/")
		name, deeper, _ := strings.Cut(rest, "/")
		switch {
		case deeper == "":
			excepted[name] = true
			m[name] = nil
		case !excepted[name]:
			m[name] = append(m[name], e)
		}
	}
	return m
}

// isWithin reports whether p is dir or lies beneath it.
func isWithin(p, dir string) bool {
	if dir == "/" {
		return true
	}
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

func join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

func checkPath(r plan.PathRule, p string) error {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p || strings.Contains(p, "\x00") {
		return ruleError("cannot allow "+r.Path, r.Origin, "", fmt.Errorf("wall bug: path %q is not absolute and clean", p))
	}
	return nil
}

func tooMany(r plan.PathRule, dir string) error {
	return ruleError("cannot allow "+r.Path+" except what is hidden in it", r.Origin,
		"hide the whole directory, or move what is hidden to a smaller one",
		fmt.Errorf("more than %d Landlock rules are needed at %s", MaxRules, dir))
}
