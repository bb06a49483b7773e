package profile

import (
	"path"
	"strconv"

	"github.com/wallsandbox/wall/plan"
)

// ownState keeps wall's own state out of what a command can write. A scratch
// root holds records that later runs act on, so that a root that some box could
// have made is none. The default root is the one exception: every run hides it,
// also when its parent is the workspace.
func (r *resolver) ownState() {
	b := r.b
	writable := func(p string) bool {
		s := b.around(p)
		return s.host && s.access == plan.AccessWrite
	}
	root := r.p.Scratch.Root
	standard := ""
	if d := r.h.DefaultTemp; d != "" {
		if l := r.t.walk(d); l.exists() {
			d = l.path
		}
		standard = join(path.Clean(d), "wall-"+strconv.Itoa(r.h.UID))
	}
	if root == standard {
		return
	}
	if writable(root) {
		b.fail(&plan.Error{Op: "cannot keep scratch directories in " + quote(path.Dir(root)) + ": the command can write there",
			Origin: plan.Origin{Text: "--scratch-root"},
			Hint:   "choose a directory that no box can write; what lies there decides what later runs remove"})
	}
	if standard != "" && writable(standard) {
		b.fail(&plan.Error{Op: "cannot make " + quote(path.Dir(standard)) + " writable inside: runs without --scratch-root keep their state there",
			Origin: b.around(standard).origin,
			Hint:   "leave out --scratch-root, or choose a smaller workspace or grant"})
	}
}
