package profile

import (
	"fmt"
	"slices"

	"github.com/wallsandbox/wall/plan"
)

// writable reports whether the command can replace what is at p, the host's
// own, or make something there.
func (r *resolver) writable(p string) bool {
	s := r.b.around(p)
	return s.host && s.access == plan.AccessWrite
}

// changeable reports whether the command can replace the host's file at p, or
// what is in it.
func (r *resolver) changeable(p string) bool {
	s := r.b.at(p)
	return r.writable(p) || s.host && s.access == plan.AccessWrite
}

// fixed reports how the command could make a path lead elsewhere the next time
// that it is walked. kept are files whose own path, free of links, is protected.
func (r *resolver) fixed(l located, kept []string) error {
	for _, k := range l.links {
		if r.writable(k.at) {
			return fmt.Errorf("it is reached through the symbolic link %s, which the command could replace", quote(k.at))
		}
	}
	for _, d := range l.left {
		// A directory above a protected file cannot be renamed.
		if d != "/" && r.writable(d) && !slices.ContainsFunc(kept, func(p string) bool { return below(p, d) }) {
			return fmt.Errorf("it is reached through %s, for which the command could put a symbolic link", quote(join(d, "..")))
		}
	}
	return nil
}

// policyPaths refuses a profile that is reached by a path which the command
// could make to lead to another one: the file itself is protected, and that
// keeps nobody from putting another in place of a link on the way.
func (r *resolver) policyPaths() {
	for _, l := range r.layers {
		if l.Path == "" {
			continue
		}
		if err := r.fixed(l.via, r.profiles); err != nil {
			r.b.fail(&plan.Error{Op: "cannot use the profile " + quote(l.Name), Origin: l.told, Err: err, Hint: "name the file itself: " + quote(l.Path)})
		}
	}
}
