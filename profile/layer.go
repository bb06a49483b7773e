package profile

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

//go:embed builtin/*.toml
var builtinFS embed.FS

// builtins are the names of the built-in profiles, sorted.
var builtins = []string{"agent", "base", "gate"}

// Builtins lists the names of the built-in profiles, sorted.
func Builtins() []string { return slices.Clone(builtins) }

// Builtin gives the text of a built-in profile, as Parse reads it under the
// name "built-in:NAME". The error matches fs.ErrNotExist when there is no such
// profile.
func Builtin(name string) ([]byte, error) {
	if !slices.Contains(builtins, name) {
		return nil, errMissing
	}
	return builtinFS.ReadFile("builtin/" + name + ".toml")
}

// maxExtends is the number of profiles that one may extend, one after the other.
const maxExtends = 8

// A layer is a parsed file and where relative names in it start from.
type layer struct {
	*File
	id  string // path free of links, or "built-in:NAME"
	dir string // of a file on disk; "" for a built-in
}

// loader reads profiles through the host's tree.
type loader struct {
	t    *tree
	home places
}

// isFile reports whether a profile is named by file, not by name.
func isFile(s string) bool { return strings.Contains(s, "/") || strings.HasSuffix(s, ".toml") }

// load reads the profile called s and all that it extends, lowest first. dir
// is what a relative file name starts from.
func (ld loader) load(s, dir string, o plan.Origin) ([]layer, error) {
	var chain []layer
	for {
		l, err := ld.one(s, dir, o)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(chain, func(x layer) bool { return x.id == l.id }); i >= 0 {
			return nil, &plan.Error{Op: fmt.Sprintf("profile %s extends itself", quote(s)), Origin: o, Hint: "remove one \"extends\" of the cycle"}
		}
		chain = append(chain, l)
		if !l.Extends.Set {
			slices.Reverse(chain)
			return chain, nil
		}
		if len(chain) > maxExtends {
			return nil, &plan.Error{Op: fmt.Sprintf("more than %d profiles extend one another", maxExtends), Origin: l.Extends.Origin}
		}
		s, dir, o = l.Extends.V, l.dir, l.Extends.Origin
		if strings.Contains(s, "/") {
			if l.dir == "" || !strings.HasPrefix(s, "./") && !strings.HasPrefix(s, "../") {
				return nil, &plan.Error{Op: "cannot extend " + quote(s), Origin: o, Hint: "name a built-in profile, or a file as \"./name.toml\""}
			}
		} else if strings.HasSuffix(s, ".toml") {
			return nil, &plan.Error{Op: "cannot extend " + quote(s), Origin: o, Hint: fmt.Sprintf("write %q", "./"+s)}
		}
	}
}

func (ld loader) one(s, dir string, o plan.Origin) (layer, error) {
	if !isFile(s) {
		data, err := Builtin(s)
		if err != nil {
			hint := "built-in profiles: " + strings.Join(builtins, ", ") + "; name a file as \"./name.toml\""
			if n := nearest(s, builtins); n != "" {
				hint = fmt.Sprintf("did you mean %q?", n)
			}
			return layer{}, &plan.Error{Op: "there is no profile called " + quote(s), Origin: o, Hint: hint}
		}
		f, err := Parse("built-in:"+s, data)
		if err != nil {
			return layer{}, bug(err)
		}
		return layer{f, "built-in:" + s, ""}, nil
	}
	if msg, hint := badPath(s); msg != "" {
		return layer{}, &plan.Error{Op: "cannot read the profile: " + msg, Origin: o, Hint: hint}
	}
	p, err := ld.home.expand(s, dir)
	if err != nil {
		return layer{}, &plan.Error{Op: "cannot read the profile " + quote(s), Origin: o, Err: err}
	}
	data, at, err := ld.t.readFile(p, MaxFileSize)
	if err != nil {
		return layer{}, &plan.Error{Op: "cannot read the profile " + quote(s), Origin: o, Err: err}
	}
	f, err := Parse(s, data)
	if err != nil {
		return layer{}, err
	}
	return layer{f, at, path.Dir(at)}, nil
}

var (
	errNotRegular = errors.New("not a regular file")
	errIsDir      = errors.New("is a directory")
	errTooLarge   = errors.New("the file is too large")
)

// readFile reads a regular file of at most most bytes and gives its path free
// of links. The type is looked at first, because opening a FIFO would wait for
// a writer.
func (t *tree) readFile(p string, most int64) (data []byte, at string, err error) {
	l := t.walk(p)
	switch {
	case l.err != nil:
		return nil, "", l.err
	case l.missing != "":
		return nil, "", errMissing
	case l.mode.IsDir():
		return nil, "", errIsDir
	case !l.mode.IsRegular():
		return nil, "", errNotRegular
	}
	f, err := t.fsys.Open(name(l.path))
	if err != nil {
		return nil, "", cause(err)
	}
	defer f.Close()
	data, err = io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, "", cause(err)
	case int64(len(data)) > most:
		return nil, "", errTooLarge
	}
	return data, l.path, nil
}

// A layered item is an element of a merged list.
type layered[T any] struct {
	Item[T]
	layer int
	dir   string // of the file that it stands in; "" for a built-in
	flag  bool   // from the command line: relative paths start from the working directory
}

// settings are all layers merged.
type settings struct {
	name string

	enforce, ifUnavailable     Value[string]
	require                    []Item[string]
	view, home, workspace, tmp Value[string]
	grants                     []layered[Grant]
	hide, protect              []layered[string]
	devices                    []Item[string]
	noGit                      bool // protect = [] was said: git's files are not protected either
	network                    Value[string]
	envBase, envScrub, envAuth Value[string]
	envAllow, envDeny, envPass []Item[string]
	envSet, envFlags           []Item[Var]
	tty, seccomp               Value[string]
	seccompDir                 string
	nested                     Value[bool]
	core, openFiles, fileSize  Value[uint64]
	workspaceDir, cwdDir       Value[string]
	allowHome                  bool
}

// def is the origin of what nothing asked for.
var def = plan.Origin{Text: "default"}

func defaults() settings {
	v := func(s string) Value[string] { return Value[string]{V: s, Origin: def} }
	return settings{
		enforce: v("fs+net"), ifUnavailable: v("fail"),
		view: v("system"), home: v("scratch"), workspace: v("read-write"), tmp: v("scratch"),
		network: v("none"), envBase: v("session"), tty: v("auto"), seccomp: v("default"),
		nested: Value[bool]{Origin: def}, core: Value[uint64]{Origin: def},
	}
}

// over puts one layer over what is there: a value that is set replaces, a list
// adds, an empty list drops what was inherited.
func (s *settings) over(l layer, n int) {
	replace(&s.enforce, l.Enforce)
	replace(&s.ifUnavailable, l.IfUnavailable)
	extend(&s.require, l.Require)
	replace(&s.view, l.View)
	replace(&s.home, l.Home)
	replace(&s.workspace, l.Workspace)
	replace(&s.tmp, l.Tmp)
	extendLayered(&s.grants, l.Grant, n, l.dir)
	extendLayered(&s.hide, l.Hide, n, l.dir)
	extendLayered(&s.protect, l.Protect, n, l.dir)
	if l.Protect.Set && len(l.Protect.Items) == 0 {
		s.noGit = true
	}
	extend(&s.devices, l.Devices)
	replace(&s.network, l.Network)
	replace(&s.envBase, l.EnvBase)
	replace(&s.envScrub, l.EnvScrub)
	extend(&s.envAllow, l.EnvAllow)
	extend(&s.envDeny, l.EnvDeny)
	extend(&s.envPass, l.EnvPass)
	extend(&s.envSet, l.EnvSet)
	replace(&s.envAuth, l.EnvAuth)
	replace(&s.tty, l.TTY)
	if replace(&s.seccomp, l.Seccomp) {
		s.seccompDir = l.dir
	}
	replace(&s.nested, l.Nested)
	replace(&s.core, l.Core)
	replace(&s.openFiles, l.OpenFiles)
	replace(&s.fileSize, l.FileSize)
	s.name = strings.TrimPrefix(l.Source, "built-in:")
	if l.Name.Set {
		s.name = l.Name.V
	}
}

func replace[T any](to *Value[T], from Value[T]) bool {
	if from.Set {
		*to = from
	}
	return from.Set
}

func extend[T any](to *[]Item[T], from List[T]) {
	if from.Set && len(from.Items) == 0 {
		*to = nil
	}
	*to = append(*to, from.Items...)
}

func extendLayered[T any](to *[]layered[T], from List[T], n int, dir string) {
	if from.Set && len(from.Items) == 0 {
		*to = nil
	}
	for _, it := range from.Items {
		*to = append(*to, layered[T]{Item: it, layer: n, dir: dir})
	}
}

// flagLayer lies above every file.
const flagLayer = 1 << 20

// flags puts the command line over the files. Every problem is reported.
func (s *settings) flags(flags []Flag) []error {
	var errs []error
	once := map[string]string{}
	for _, f := range flags {
		o := plan.Origin{Text: f.Text}
		if f.Text == "" {
			o.Text = "--" + f.Name + " " + f.Value
		}
		if f.Name == "env" {
			n, _, _ := strings.Cut(f.Value, "=") // the value stays out of every message
			o.Text = "--env " + n
		}
		bad := func(hint, format string, args ...any) {
			errs = append(errs, &plan.Error{Op: fmt.Sprintf(format, args...), Origin: o, Hint: hint})
		}
		enum := func(to *Value[string], allowed ...string) {
			if !slices.Contains(allowed, f.Value) {
				hint := ""
				if n := nearest(f.Value, allowed); n != "" {
					hint = fmt.Sprintf("did you mean %q?", n)
				}
				bad(hint, "--%s must be %s, not %q", f.Name, orList(allowed), f.Value)
				return
			}
			*to = Value[string]{true, f.Value, o}
		}
		pathOK := func() bool {
			if msg, hint := badPath(f.Value); msg != "" {
				bad(hint, "--%s: %s", f.Name, msg)
				return false
			}
			return true
		}
		switch f.Name {
		case "ro", "rw", "ro-try", "rw-try", "hide", "protect", "pass", "limit", "env":
		default:
			if prev, twice := once[f.Name]; twice {
				hint := ""
				if prev != f.Value {
					hint = "it was " + strconv.Quote(prev) + " before"
				}
				bad(hint, "--%s is given twice", f.Name)
				continue
			}
			once[f.Name] = f.Value
		}
		switch f.Name {
		case "workspace":
			if pathOK() {
				s.workspaceDir = Value[string]{true, f.Value, o}
			}
		case "cwd":
			if pathOK() {
				s.cwdDir = Value[string]{true, f.Value, o}
			}
		case "workspace-access":
			switch f.Value {
			case "read", "read-only":
				s.workspace = Value[string]{true, "read-only", o}
			case "write", "read-write":
				s.workspace = Value[string]{true, "read-write", o}
			default:
				bad("", "--workspace-access must be \"read\" or \"write\", not %q", f.Value)
			}
		case "ro", "ro-try", "rw", "rw-try":
			if pathOK() {
				g := Grant{Path: f.Value, Access: plan.AccessRead, Optional: strings.HasSuffix(f.Name, "-try")}
				if strings.HasPrefix(f.Name, "rw") {
					g.Access = plan.AccessWrite
				}
				s.grants = append(s.grants, layered[Grant]{Item: Item[Grant]{g, o}, layer: flagLayer, flag: true})
			}
		case "hide":
			if pathOK() {
				s.hide = append(s.hide, layered[string]{Item: Item[string]{f.Value, o}, layer: flagLayer, flag: true})
			}
		case "protect":
			if pathOK() {
				s.protect = append(s.protect, layered[string]{Item: Item[string]{f.Value, o}, layer: flagLayer, flag: true})
			}
		case "view":
			enum(&s.view, "host", "system")
		case "home":
			enum(&s.home, "read-only", "scratch", "hidden")
		case "env":
			n, v, ok := strings.Cut(f.Value, "=")
			switch {
			case !ok:
				bad("write --env NAME=VALUE, or --pass NAME to take the caller's value", "--env %s has no value", quote(n))
			case badName(n) != "":
				bad("", "--env: %s", badName(n))
			case strings.IndexByte(v, 0) >= 0:
				bad("", "--env: the value of %s contains a NUL byte", quote(n))
			default:
				s.envFlags = append(s.envFlags, Item[Var]{Var{n, v}, o})
			}
		case "pass":
			if msg := badName(f.Value); msg != "" {
				bad("", "--pass: %s", msg)
			} else {
				s.envPass = append(s.envPass, Item[string]{f.Value, o})
			}
		case "scrub":
			enum(&s.envScrub, envScrubs...)
		case "net":
			if f.Value == "allow" {
				bad("use --net none or --net host", "network mode allow is not available in this version")
			} else {
				enum(&s.network, "none", "host")
			}
		case "enforce":
			enum(&s.enforce, "off", "fs", "fs+net")
		case "if-unavailable":
			enum(&s.ifUnavailable, "fail", "degrade")
		case "seccomp":
			if f.Value != "default" && f.Value != "strict" && !isFilterFile(f.Value) {
				bad("write a file as ./name.json", "--seccomp must be \"default\", \"strict\" or a file, not %q", f.Value)
			} else {
				s.seccomp, s.seccompDir = Value[string]{true, f.Value, o}, ""
			}
		case "tty":
			if f.Value == "pty" {
				bad("use --tty auto, inherit or none", "tty pty is not available in this version")
			} else {
				enum(&s.tty, "auto", "inherit", "none")
			}
		case "limit":
			s.limitFlag(f.Value, o, bad)
		case "allow-home-workspace":
			switch f.Value {
			case "true", "":
				s.allowHome = true
			case "false":
			default:
				bad("", "--allow-home-workspace must be true or false, not %q", f.Value)
			}
		default:
			errs = append(errs, bug(fmt.Errorf("flag --%s is not known to Resolve", f.Name)))
		}
	}
	return errs
}

func (s *settings) limitFlag(v string, o plan.Origin, bad func(hint, format string, args ...any)) {
	known := []string{"core", "open-files", "file-size"}
	n, text, ok := strings.Cut(v, "=")
	if !ok {
		bad("known limits: "+strings.Join(known, ", "), "--limit %s has no value", quote(n))
		return
	}
	var x uint64
	var msg string
	switch n {
	case "core", "open-files":
		x, msg = parseCount(text)
	case "file-size":
		x, msg = parseSize(text)
	case "time", "grace", "memory", "processes", "scratch", "output":
		bad("", "limit %q is not available in this version", n)
		return
	default:
		hint := "known limits: " + strings.Join(known, ", ")
		if c := nearest(n, known); c != "" {
			hint = fmt.Sprintf("did you mean %q?", c)
		}
		bad(hint, "there is no limit called %s", quote(n))
		return
	}
	val := Value[uint64]{true, x, o}
	switch {
	case msg != "":
		bad("", "limit %q %s", n, msg)
	case n == "core" && x != 0:
		bad("", "core dumps cannot be turned on: they would hold the environment")
	case n == "open-files" && x < minOpenFiles:
		bad("", "limit \"open-files\" must be at least %d", minOpenFiles)
	case n == "core":
		s.core = val
	case n == "open-files":
		s.openFiles = val
	default:
		s.fileSize = val
	}
}
