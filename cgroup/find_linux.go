package cgroup

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// Need says which limits a run has.
type Need struct{ Memory, Pids bool }

func (n Need) controllers() []string {
	var c []string
	if n.Memory {
		c = append(c, "memory")
	}
	if n.Pids {
		c = append(c, "pids")
	}
	return c
}

// Find looks for the parents of a group with id, and tries one there: makes it,
// limits it, and removes it. Where that fails, manager tells the cgroup of the user's
// systemd, for a scope: it is [Manager], or nil to ask nobody. The error says for
// every place why not.
func Find(need Need, id string, manager func() (string, error)) (plan.Cgroup, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return plan.Cgroup{}, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return plan.Cgroup{}, err
	}
	h := parseHierarchies(string(mounts), string(own))
	var errs []error
	for _, c := range h.candidates(need, id) {
		err := again(func() error { return try(c, need) })
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	if os.Geteuid() != 0 && h.unified.root != "" && manager != nil {
		c, err := h.findScope(need, id, manager)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return plan.Cgroup{}, errNone
	}
	return plan.Cgroup{}, places(errs)
}

// places are the errors of all places, in one line.
type places []error

func (p places) Error() string {
	var texts []string
	for _, err := range p {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

func (p places) Unwrap() []error { return p }

// try makes a group and removes it. It is not entered: whether that is allowed
// is known from opening the files for it.
func try(c plan.Cgroup, need Need) error {
	if c.Version == 2 {
		if err := enable(path.Dir(c.Dirs()[0]), need.controllers()); err != nil {
			return err
		}
	}
	g := &Group{version: c.Version}
	err := g.make(c, Limits{Memory: 1 << 30, Pids: 64})
	for _, dir := range g.dirs() {
		files := []string{dir + "/" + inner + "/cgroup.procs"}
		if c.Version == 2 {
			// Moving needs the nearest common parent of both places, too.
			files = append(files, path.Dir(dir)+"/cgroup.procs")
		}
		for _, name := range files {
			if err == nil {
				var fd int
				if fd, err = open(name, unix.O_WRONLY); err == nil {
					unix.Close(fd)
				}
			}
		}
	}
	return errors.Join(err, g.Remove())
}

// enable makes sure that the children of a version 2 cgroup have controllers.
func enable(dir string, controllers []string) error {
	missing, err := missing(dir, "cgroup.subtree_control", controllers)
	if err != nil || len(missing) == 0 {
		return err
	}
	if err := lacks(dir, "cgroup.controllers", controllers); err != nil {
		return err
	}
	// Only what was delegated to the caller: root's groups are the system's.
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	if uid := os.Geteuid(); uid == 0 || int(st.Uid) != uid {
		return unusable(dir, errors.New("the "+strings.Join(missing, " and ")+" controller is not switched on for its children"))
	}
	return writeText(dir+"/cgroup.subtree_control", "+"+strings.Join(missing, " +"))
}

// missing gives the controllers that a control file does not list.
func missing(dir, file string, controllers []string) ([]string, error) {
	b, err := os.ReadFile(dir + "/" + file)
	if err != nil {
		return nil, err
	}
	on := strings.Fields(string(b))
	return slices.DeleteFunc(slices.Clone(controllers), func(c string) bool { return slices.Contains(on, c) }), nil
}

// lacks says which controllers a group does not have.
func lacks(dir, file string, controllers []string) error {
	missing, err := missing(dir, file, controllers)
	if err == nil && len(missing) > 0 {
		err = unusable(dir, errors.New("the "+strings.Join(missing, " and ")+" controller is not delegated to it"))
	}
	return err
}

// A hierarchy is one mounted cgroup file system and the caller's place in it.
type hierarchy struct {
	root string // mount point
	own  string // directory of the caller's cgroup, root or below
}

// hierarchies are those with a use here; a zero one is not mounted, or does not
// show the caller's cgroup.
type hierarchies struct {
	unified, memory, pids hierarchy
}

// parseHierarchies reads /proc/self/mountinfo and /proc/self/cgroup.
func parseHierarchies(mounts, own string) hierarchies {
	places := map[string]string{} // controller, or "" for version 2 -> path
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			places[c] = f[2]
		}
	}
	var h hierarchies
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		root, point := unescape(f[3]), unescape(f[4])
		set := func(to *hierarchy, controller string) {
			place, known := places[controller]
			rel, below := strings.CutPrefix(place, strings.TrimSuffix(root, "/"))
			// A place above the root of a cgroup namespace is shown as "/..".
			if !known || !below || rel != "" && rel[0] != '/' || path.Clean(place) != place || strings.HasPrefix(place, "/..") || to.root != "" {
				return
			}
			*to = hierarchy{root: point, own: path.Join(point, rel)}
		}
		options := strings.Split(g[2], ",")
		switch {
		case g[0] == "cgroup2":
			set(&h.unified, "")
		case g[0] == "cgroup" && slices.Contains(options, "memory"):
			set(&h.memory, "memory")
			if slices.Contains(options, "pids") {
				set(&h.pids, "pids")
			}
		case g[0] == "cgroup" && slices.Contains(options, "pids"):
			set(&h.pids, "pids")
		}
	}
	return h
}

// unescape undoes the \ooo escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// candidates gives the parents to try, best first.
func (h hierarchies) candidates(need Need, id string) []plan.Cgroup {
	var all []plan.Cgroup
	add := func(version int, memory, pids string) {
		c := plan.Cgroup{Version: version, ID: id}
		if need.Memory {
			c.Memory = memory
		}
		if need.Pids {
			c.Pids = pids
		}
		all = append(all, c)
	}
	if h.unified.root != "" && (h.memory.root == "" || h.pids.root == "") {
		for at := h.unified.own; ; at = path.Dir(at) {
			add(2, at, at)
			if at == h.unified.root || at == "/" {
				break
			}
		}
	}
	if (!need.Memory || h.memory.root != "") && (!need.Pids || h.pids.root != "") {
		add(1, h.memory.own, h.pids.own)
	}
	return all
}
