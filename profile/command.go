package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// command finds the file that is executed, as execvp(3) would from inside:
// with the PATH of the box, and only where the box shows the host's file.
// Relative and empty elements of PATH are passed over, because they name
// whatever the working directory holds.
func (r *resolver) command() error {
	argv := r.o.Command
	r.p.Command.Argv = append([]string(nil), argv...)
	if strings.Contains(argv[0], "/") {
		p := argv[0]
		if !strings.HasPrefix(p, "/") {
			p = join(r.pwd, p)
		}
		// path.Clean would take "link/.." for nothing, so ".." needs the real path.
		if spelled := path.Clean(p); r.t.walk(spelled).path == r.t.walk(p).path {
			p = spelled
		} else {
			p = r.t.walk(p).path
		}
		return r.useCommand(argv[0], p)
	}
	var search, stored string
	for _, v := range r.p.Env {
		if v.Name == "PATH" {
			search = v.Value
			if v.Reason == reasonInjected {
				stored = v.Origin.File
			}
		}
	}
	var notExec, hidden string
	for _, d := range strings.Split(search, ":") {
		if !strings.HasPrefix(d, "/") || strings.IndexByte(d, 0) >= 0 {
			continue
		}
		p := path.Clean(d + "/" + argv[0])
		l := r.t.walk(p)
		switch {
		case !l.exists():
			continue
		case !r.shown(l):
			if hidden == "" && r.executable(l) {
				hidden = p
			}
			continue
		case !r.executable(l):
			if notExec == "" {
				notExec = p
			}
			continue
		}
		r.p.Command.Path = p
		return nil
	}
	fail := &plan.Error{Op: "cannot run " + quote(argv[0]), Exit: plan.ExitNotFound}
	switch {
	case notExec != "":
		fail.Exit = plan.ExitNotExecutable
		fail.Err = fmt.Errorf("%s is not executable: %w", quote(notExec), fs.ErrPermission)
		fail.Hint = "set its execute permission"
	case hidden != "":
		fail.Err = errInvisible
		fail.Hint = "it exists on the host as " + quote(hidden) + "; add --ro " + quote(path.Dir(hidden))
	default:
		fail.Err = errNotInPath
		fail.Hint = "check the spelling, or name the file with its directory"
		if search == "" {
			fail.Hint = "the environment of the box has no PATH; set one with --env"
		}
		if stored != "" {
			fail.Hint = "PATH is the one stored in " + quote(stored) + "; \"wall env unset PATH\" removes it"
		}
	}
	return fail
}

var (
	errNotInPath = notFound("it is in no directory of PATH")
	errInvisible = notFound("it is not visible inside")
)

// notFound is a reason that matches fs.ErrNotExist.
type notFound string

func (n notFound) Error() string        { return string(n) }
func (n notFound) Is(target error) bool { return target == fs.ErrNotExist }

// useCommand checks one file that was named with its directory.
func (r *resolver) useCommand(asked, p string) error {
	fail := &plan.Error{Op: "cannot run " + quote(asked), Exit: plan.ExitNotFound}
	l := r.t.walk(p)
	switch {
	case l.err != nil && errors.Is(l.err, fs.ErrPermission):
		fail.Exit, fail.Err = plan.ExitNotExecutable, l.err
	case l.err != nil:
		fail.Err = l.err
	case l.missing != "":
		fail.Err = errMissing
	case !r.shown(l):
		fail.Err = errInvisible
		fail.Hint = "make it visible with --ro " + quote(path.Dir(l.path))
	case l.mode.IsDir():
		fail.Exit, fail.Err = plan.ExitNotExecutable, errIsDir
	case !r.executable(l):
		fail.Exit, fail.Err = plan.ExitNotExecutable, fs.ErrPermission
		fail.Hint = "set its execute permission"
	default:
		r.p.Command.Path = p
		return nil
	}
	return fail
}

func (r *resolver) executable(l located) bool {
	return l.mode.IsRegular() && r.t.perm(l.path)&0o111 != 0
}

// shown reports whether the walk comes to the same file inside: the file is
// visible there, and so is every link on the way or wall makes it again.
func (r *resolver) shown(l located) bool {
	if r.p.Enforce == plan.EnforceOff {
		return true
	}
	if !r.b.visible(l.path) {
		return false
	}
	for _, k := range l.links {
		if !r.b.visible(k.at) && !r.b.linked(k.at) {
			return false
		}
	}
	return true
}

// linked reports whether wall makes a link of the host again at p.
func (b *builder) linked(p string) bool {
	for _, m := range b.ops {
		if m.Op == plan.OpSymlink && m.Target == p {
			return true
		}
	}
	return false
}
