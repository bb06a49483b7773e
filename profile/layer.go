package profile

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

//go:embed builtin/*.toml
var builtinFS embed.FS

// builtins are the names of the built-in profiles, sorted.
var builtins = []string{
	"agent", "agent-claude", "agent-codex", "agent-cursor", "agent-droid", "agent-kimi",
	"base", "contract", "gate", "offline-build", "shell", "terminal",
}

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

// A LayerKind says where a layer comes from.
type LayerKind string

// The kinds of layers, lowest first. Only the project layer is not trusted.
const (
	LayerBuiltin  LayerKind = "built-in" // compiled into wall
	LayerSystem   LayerKind = "system"   // SystemDir/NAME.toml
	LayerUser     LayerKind = "user"     // UserDir/NAME.toml
	LayerFile     LayerKind = "file"     // a file that the operator or another profile names
	LayerSettings LayerKind = "settings" // the SANDBOX_* variables of the caller's environment
	LayerProject  LayerKind = "project"  // <workspace>/.wall/NAME.toml: may only tighten
	LayerFlags    LayerKind = "flags"    // the command line
)

// SystemDir holds the profiles of the machine.
const SystemDir = "/etc/wall"

// ProjectDir holds the project layers of a workspace.
const ProjectDir = ".wall"

// A Layer is one parsed profile of a stack.
type Layer struct {
	Kind   LayerKind
	Name   string // the name it is found by; of a file, as it was written; "" for flags
	Path   string // on the host, free of links; "" when it is not a file there
	Digest string // SHA-256 of the content in lower-case hex; "" for flags and settings
	File   *File  // what it says, without what lies below it

	id   string // Path, or "built-in:NAME"
	dir  string // of a file on disk; "" otherwise
	data []byte
	via  located     // the walk to a file on disk
	told plan.Origin // what named the file
}

// loader reads profiles through the host's tree.
type loader struct {
	t    *tree // nil: only built-in profiles can be read
	home places
	user string // UserDir; "" when there is none
	uid  int

	userErr error // why UserDir cannot be used
}

// isFile reports whether a profile is named by file, not by name.
func isFile(s string) bool { return strings.Contains(s, "/") || strings.HasSuffix(s, ".toml") }

// badProfileName says what is wrong with the name of a profile or file.
func badProfileName(s string) string {
	switch {
	case s == "":
		return "is empty"
	case isFile(s):
		return ""
	case len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" || s[0] == '.' || s[0] == '-':
		return "is not a name: a name has at most 64 letters, digits, dots, hyphens and underscores, and starts with a letter or digit"
	}
	return ""
}

// load reads the profile called s and all that it is laid over, lowest first.
// dir is what a relative file name starts from.
//
// A file is laid over what it extends; without "extends", or when it extends
// its own name, over the profile of that name one layer below.
func (ld loader) load(s, dir string, o plan.Origin) ([]Layer, error) {
	first, err := ld.one(s, dir, LayerUser, o)
	if err != nil {
		return nil, err
	}
	return ld.below(first)
}

// below completes a stack whose top is known.
func (ld loader) below(top Layer) ([]Layer, error) {
	chain := []Layer{top}
	for extends := 0; ; {
		l := chain[len(chain)-1]
		var next Layer
		var err error
		ext := l.File.Extends
		o := ext.Origin
		switch named := l.Kind == LayerUser || l.Kind == LayerSystem; {
		case named && (!ext.Set || ext.V == l.Name):
			next, err = ld.one(l.Name, "", lower(l.Kind), o)
			if !ext.Set && isNoProfile(err) {
				slices.Reverse(chain)
				return chain, nil
			}
		case !ext.Set:
			slices.Reverse(chain)
			return chain, nil
		default:
			if extends++; extends > maxExtends {
				return nil, &plan.Error{Op: fmt.Sprintf("more than %d profiles extend one another", maxExtends), Origin: o}
			}
			if strings.Contains(ext.V, "/") {
				if l.dir == "" || !strings.HasPrefix(ext.V, "./") && !strings.HasPrefix(ext.V, "../") {
					return nil, &plan.Error{Op: "cannot extend " + quote(ext.V), Origin: o, Hint: "name a profile, or a file as \"./name.toml\""}
				}
			} else if strings.HasSuffix(ext.V, ".toml") {
				return nil, &plan.Error{Op: "cannot extend " + quote(ext.V), Origin: o, Hint: fmt.Sprintf("write %q", "./"+ext.V)}
			}
			next, err = ld.one(ext.V, l.dir, LayerUser, o)
		}
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(chain, func(x Layer) bool { return x.id == next.id }) {
			return nil, &plan.Error{Op: fmt.Sprintf("profile %s extends itself", quote(next.Name)), Origin: o, Hint: "remove one \"extends\" of the cycle"}
		}
		chain = append(chain, next)
	}
}

// lower gives the next lower kind of layer that a name is looked for in.
func lower(k LayerKind) LayerKind {
	if k == LayerUser {
		return LayerSystem
	}
	return LayerBuiltin
}

// one reads one profile: a file, or the highest layer from kind downwards that
// has the name.
func (ld loader) one(s, dir string, kind LayerKind, o plan.Origin) (Layer, error) {
	if msg := badProfileName(s); msg != "" {
		return Layer{}, &plan.Error{Op: "cannot use the profile " + quote(s) + ": it " + msg, Origin: o}
	}
	if isFile(s) {
		return ld.file(s, dir, o)
	}
	if kind == LayerUser {
		if ld.userErr != nil {
			return Layer{}, ld.userErr
		}
		if l, err := ld.installed(LayerUser, ld.user, s); err != nil || l.File != nil {
			return l, err
		}
		kind = LayerSystem
	}
	if kind == LayerSystem {
		if l, err := ld.installed(LayerSystem, SystemDir, s); err != nil || l.File != nil {
			return l, err
		}
	}
	data, err := Builtin(s)
	if err != nil {
		hint := "built-in profiles: " + strings.Join(builtins, ", ") + "; name a file as \"./name.toml\""
		if n := Nearest(s, builtins); n != "" {
			hint = fmt.Sprintf("did you mean %q?", n)
		}
		return Layer{}, &noProfile{&plan.Error{Op: "there is no profile called " + quote(s), Origin: o, Hint: hint}}
	}
	f, err := Parse("built-in:"+s, data)
	if err != nil {
		return Layer{}, bug(err)
	}
	return Layer{Kind: LayerBuiltin, Name: s, File: f, id: "built-in:" + s, data: data}, nil
}

// file reads a profile that is named by file.
func (ld loader) file(s, dir string, o plan.Origin) (Layer, error) {
	if msg, hint := badPath(s); msg != "" {
		return Layer{}, &plan.Error{Op: "cannot read the profile: " + msg, Origin: o, Hint: hint}
	}
	p, err := ld.home.expand(s, dir)
	if err == nil && ld.t == nil {
		err = errNoFiles
	}
	if err != nil {
		return Layer{}, &plan.Error{Op: "cannot read the profile " + quote(s), Origin: o, Err: err}
	}
	data, l, err := ld.t.readFile(p, MaxFileSize)
	if err != nil {
		return Layer{}, &plan.Error{Op: "cannot read the profile " + quote(s), Origin: o, Err: err}
	}
	f, err := Parse(s, data)
	if err != nil {
		return Layer{}, err
	}
	return Layer{Kind: LayerFile, Name: s, Path: l.path, File: f, id: l.path, dir: path.Dir(l.path), data: data, via: l, told: o}, nil
}

// installed reads DIR/NAME.toml; the File of the result is nil when there is
// none. Whoever can change such a file decides what every run may do, so that
// it must belong to root or the user, and be writable for nobody else.
func (ld loader) installed(kind LayerKind, dir, name string) (Layer, error) {
	if dir == "" || ld.t == nil {
		return Layer{}, nil
	}
	p := join(dir, name+".toml")
	l := ld.t.walkParent(p)
	if l.missing != "" || errors.Is(l.err, errNotDir) {
		return Layer{}, nil
	}
	fail := func(err error, hint string) error {
		return &plan.Error{Op: "cannot read the profile " + quote(name), Origin: plan.Origin{File: p}, Err: err, Hint: hint}
	}
	if l.err != nil {
		return Layer{}, fail(l.err, "wall does not run without a profile that is installed; make it readable or remove it")
	}
	if l.mode&fs.ModeSymlink != 0 {
		return Layer{}, fail(errSymlink, "put the file itself there")
	}
	for _, x := range []string{path.Dir(l.path), l.path} {
		if err := ld.safe(x); err != nil {
			hint := "chmod go-w " + quote(x)
			if errors.Is(err, errOwner) {
				hint = "it must belong to you or to root"
			}
			if x != l.path {
				err = fmt.Errorf("its directory %s %w", quote(x), err)
			} else {
				err = fmt.Errorf("it %w", err)
			}
			return Layer{}, fail(err, hint)
		}
	}
	data, _, err := ld.t.readFile(l.path, MaxFileSize)
	if err != nil {
		return Layer{}, fail(err, "")
	}
	f, err := Parse(p, data)
	if err != nil {
		return Layer{}, err
	}
	return Layer{Kind: kind, Name: name, Path: l.path, File: f, id: l.path, dir: path.Dir(l.path), data: data, via: l, told: plan.Origin{File: p}}, nil
}

// safe reports how somebody else could change what is at p, which is free of links.
func (ld loader) safe(p string) error {
	st, err := fs.Lstat(ld.t.fsys, name(p))
	if err != nil {
		return cause(err)
	}
	if uid, ok := owner(st); !ok || uid != 0 && uid != uint64(ld.uid) {
		return errOwner
	}
	if st.Mode().Perm()&0o022 != 0 {
		return errWritable
	}
	return nil
}

// owner gives the user id of a file. The operating system's part of a FileInfo
// is a *syscall.Stat_t, which this package does not import; reflection finds
// its field Uid.
func owner(st fs.FileInfo) (uint64, bool) {
	v := reflect.Indirect(reflect.ValueOf(st.Sys()))
	if v.Kind() != reflect.Struct {
		return 0, false
	}
	f := v.FieldByName("Uid")
	if !f.IsValid() || !f.CanUint() {
		return 0, false
	}
	return f.Uint(), true
}

// project reads the project layer of a workspace; the File of the result is nil
// when there is none. Links are refused: they would let a workspace show parts
// of other files in messages.
func (ld loader) project(workspace, name string) (Layer, error) {
	if ld.t == nil || workspace == "" {
		return Layer{}, nil
	}
	p := join(workspace, ProjectDir+"/"+name+".toml")
	fail := func(err error, hint string) (Layer, error) {
		return Layer{}, &plan.Error{Op: "cannot read the project layer", Origin: plan.Origin{File: p}, Err: err, Hint: hint}
	}
	for _, x := range []string{path.Dir(p), p} {
		e := ld.t.lstat(x)
		switch {
		case errors.Is(e.err, fs.ErrNotExist):
			return Layer{}, nil
		case e.err != nil:
			return fail(cause(e.err), "make it readable or remove it")
		case e.mode&fs.ModeSymlink != 0:
			return fail(errSymlink, "put the file itself there")
		case x != p && !e.mode.IsDir():
			return Layer{}, nil
		}
	}
	data, l, err := ld.t.readFile(p, MaxFileSize)
	if err != nil {
		return fail(err, "")
	}
	f, err := Parse(p, data)
	if err != nil {
		return Layer{}, err
	}
	return Layer{Kind: LayerProject, Name: name, Path: l.path, File: f, id: l.path, dir: path.Dir(l.path), data: data, via: l, told: plan.Origin{File: p}}, nil
}

var (
	errNotRegular = errors.New("not a regular file")
	errIsDir      = errors.New("is a directory")
	errTooLarge   = errors.New("the file is too large")
	errSymlink    = errors.New("it is a symbolic link")
	errOwner      = errors.New("belongs to another user")
	errWritable   = errors.New("can be written by others")
	errNoFiles    = errors.New("no files can be read here")
)

// readFile reads a regular file of at most most bytes and tells how it is
// reached. The type is looked at first, because opening a FIFO would wait for a
// writer, and again on the open file, because the name may mean another one by then.
func (t *tree) readFile(p string, most int64) ([]byte, located, error) {
	l := t.walk(p)
	switch {
	case l.err != nil:
		return nil, l, l.err
	case l.missing != "":
		return nil, l, errMissing
	case l.mode.IsDir():
		return nil, l, errIsDir
	case !l.mode.IsRegular():
		return nil, l, errNotRegular
	}
	f, err := t.fsys.Open(name(l.path))
	if err != nil {
		return nil, l, cause(err)
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, l, cause(err)
	case !st.Mode().IsRegular():
		return nil, l, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, l, cause(err)
	case int64(len(data)) > most:
		return nil, l, errTooLarge
	}
	return data, l, nil
}

// A source says which layer an element comes from.
type source struct {
	layer    int
	dir      string // of the file that it stands in; "" for a built-in
	flag     bool   // from the command line: relative paths start from the working directory
	existing bool   // of a group in protect: only where the name exists
	setting  bool   // from a SANDBOX_* variable
}

// settings are all layers merged: a File in which every value is set or the default.
type settings struct {
	File
	name       string
	seccompDir string // what a relative filter file starts from; "" for a flag
	commandLine
}

// commandLine is what flags say that no key does.
type commandLine struct {
	workspaceDir, cwdDir Value[string]
	envFlags             []Item[Var]
	allowHome            bool
}

// def is the origin of what nothing asked for.
var def = plan.Origin{Text: "default"}

// defaults gives the value of every key that no layer sets.
func defaults() settings {
	v := func(s string) Value[string] { return Value[string]{V: s, Origin: def} }
	return settings{File: File{
		Enforce: v("fs+net"), IfUnavailable: v("fail"),
		View: v("system"), Home: v("scratch"), Workspace: v("read-write"), Tmp: v("scratch"),
		Protect: List[string]{Items: []Item[string]{{V: "@git", Origin: def}}},
		Network: v("none"), EnvBase: v("session"), TTY: v("auto"), Seccomp: v("default"),
		ProxyVariables: Value[bool]{Origin: def}, CheckSNI: Value[bool]{Origin: def}, UpstreamProxy: v(""), Inject: Value[bool]{Origin: def}, CachesKeep: Value[bool]{Origin: def}, CachesMethod: v("layer"),
		Nested: Value[bool]{Origin: def}, Core: Value[uint64]{Origin: def},
		Grace: Value[uint64]{V: 5 * second, Origin: def}, Output: Value[Amount]{V: Amount{1500, "chars"}, Origin: def},
	}}
}

// over puts one layer over what is there: a value that is set replaces, a list
// adds, an empty list drops what was inherited.
func (s *settings) over(l Layer, n int) {
	src := source{layer: n, dir: l.dir, flag: l.Kind == LayerFlags, setting: l.Kind == LayerSettings}
	if src.flag {
		src.layer = flagLayer
	}
	for i := range keyTable {
		if keyTable[i].field == nil {
			continue
		}
		switch to, from := keyTable[i].field(&s.File), keyTable[i].field(l.File); to := to.(type) {
		case *Value[string]:
			replace(to, from)
		case *Value[bool]:
			replace(to, from)
		case *Value[uint64]:
			replace(to, from)
		case *Value[Amount]:
			replace(to, from)
		case *List[string]:
			extend(to, from, src)
		case *List[HostPattern]:
			extend(to, from, src)
		case *List[uint16]:
			extend(to, from, src)
		case *List[Grant]:
			extend(to, from, src)
		case *List[Seed]:
			extend(to, from, src)
		case *List[Var]:
			extend(to, from, src)
		}
	}
	if l.File.Seccomp.Set {
		s.seccompDir = l.dir
	}
	switch {
	case l.Kind == LayerFlags || l.Kind == LayerProject || l.Kind == LayerSettings || l.Kind == LayerPhase:
	case l.File.Name.Set:
		s.name = l.File.Name.V
	default:
		s.name = strings.TrimPrefix(l.File.Source, "built-in:")
		if l.Kind != LayerFile {
			s.name = l.Name
		}
	}
}

// merge puts layers over the defaults, lowest first.
func merge(layers []Layer, cli commandLine) settings {
	s := defaults()
	for i, l := range layers {
		s.over(l, i)
	}
	s.commandLine = cli
	if s.Enforce.V == "fs" {
		s.Network = Value[string]{true, "host", s.Enforce.Origin}
	}
	return s
}

func replace[T any](to *Value[T], from any) {
	if f := from.(*Value[T]); f.Set {
		*to = *f
	}
}

func extend[T any](to *List[T], from any, src source) {
	f := from.(*List[T])
	if !f.Set {
		return
	}
	to.Set, to.Origin = true, f.Origin
	if len(f.Items) == 0 {
		to.Items = nil
	}
	for _, it := range f.Items {
		it.source = src
		to.Items = append(to.Items, it)
	}
}

// flagLayer lies above every file.
const flagLayer = 1 << 20

// parseFlags reads the command line as the highest layer. Every problem is reported.
func parseFlags(flags []Flag) (Layer, commandLine, error) {
	s := &flagReader{File: new(File)}
	errs := s.flags(flags)
	return Layer{Kind: LayerFlags, File: s.File, id: "flags"}, s.commandLine, errors.Join(errs...)
}

type flagReader struct {
	*File
	commandLine
}

// add appends to a list; a list of the command line never drops what is inherited.
func add[T any](to *List[T], v T, o plan.Origin) {
	to.Set, to.Origin = true, o
	to.Items = append(to.Items, Item[T]{V: v, Origin: o})
}

func (s *flagReader) flags(flags []Flag) []error {
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
				if n := Nearest(f.Value, allowed); n != "" {
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
		groupOK := func(key string) bool {
			if !strings.HasPrefix(f.Value, "@") {
				return true
			}
			msg, hint := badGroup(f.Value, key)
			if msg != "" {
				bad(hint, "--%s: %s", f.Name, msg)
			}
			return msg == ""
		}
		switch f.Name {
		case "ro", "rw", "ro-try", "rw-try", "hide", "protect", "pass", "limit", "env", "allow-host", "loopback", "publish":
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
				s.Workspace = Value[string]{true, "read-only", o}
			case "write", "read-write":
				s.Workspace = Value[string]{true, "read-write", o}
			default:
				bad("", "--workspace-access must be \"read\" or \"write\", not %q", f.Value)
			}
		case "ro", "ro-try", "rw", "rw-try":
			if pathOK() {
				g := Grant{Path: f.Value, Access: plan.AccessRead, Optional: strings.HasSuffix(f.Name, "-try")}
				if strings.HasPrefix(f.Name, "rw") {
					g.Access = plan.AccessWrite
				}
				add(&s.Grant, g, o)
			}
		case "hide":
			if pathOK() && groupOK(inHide) {
				add(&s.Hide, f.Value, o)
			}
		case "protect":
			if pathOK() && groupOK(inProtect) {
				add(&s.Protect, f.Value, o)
			}
		case "view":
			enum(&s.View, "host", "system")
		case "home":
			enum(&s.Home, "read-only", "scratch", "hidden")
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
				s.envFlags = append(s.envFlags, Item[Var]{V: Var{Name: n, Value: v}, Origin: o})
			}
		case "pass":
			if msg := badName(f.Value); msg != "" {
				hint := ""
				if name, _, ok := strings.Cut(f.Value, "="); ok {
					o.Text, hint = "--pass "+name+"=...", "write --env NAME=VALUE to set a variable"
				}
				bad(hint, "--pass: %s", msg)
			} else {
				add(&s.EnvPass, f.Value, o)
			}
		case "scrub":
			enum(&s.EnvScrub, envScrubs...)
		case "net":
			enum(&s.Network, "none", "allow", "host")
		case "allow-host":
			if h, msg := parseHost(f.Value); msg != "" {
				bad("for example --allow-host example.org, or --allow-host '*.example.org:443'", "--allow-host: %s is not a host: %s", strconv.Quote(shorten(f.Value)), msg)
			} else {
				add(&s.NetAllow, h, o)
			}
		case "loopback", "publish":
			n, msg := parseCount(f.Value)
			to := &s.Loopback
			if f.Name == "publish" {
				to = &s.Publish
			}
			if msg != "" || n < 1 || n > 65535 {
				bad("", "--%s: %s is not a port: ports are from 1 to 65535", f.Name, strconv.Quote(shorten(f.Value)))
			} else {
				add(to, uint16(n), o)
			}
		case "enforce":
			enum(&s.Enforce, "off", "fs", "fs+net")
		case "if-unavailable":
			enum(&s.IfUnavailable, "fail", "degrade")
		case "seccomp":
			if f.Value != "default" && f.Value != "strict" && !isFilterFile(f.Value) {
				bad("write a file as ./name.json", "--seccomp must be \"default\", \"strict\" or a file, not %q", f.Value)
			} else {
				s.Seccomp = Value[string]{true, f.Value, o}
			}
		case "tty":
			enum(&s.TTY, "none", "pty", "auto", "inherit")
		case "limit":
			s.limitFlag(f.Value, o, bad)
		case "timeout":
			if n, msg := parseDuration(f.Value); msg != "" {
				bad("0 is no limit", "--timeout %s", msg)
			} else {
				s.Time = Value[uint64]{true, n, o}
			}
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

// limitFlag reads NAME=VALUE by the type of the key limits.NAME.
func (s *flagReader) limitFlag(v string, o plan.Origin, bad func(hint, format string, args ...any)) {
	n, text, ok := strings.Cut(v, "=")
	if !ok {
		bad("known limits: "+strings.Join(limitNames(), ", "), "--limit %s has no value", quote(n))
		return
	}
	key, known := LookupKey("limits." + n)
	if !known {
		hint := "known limits: " + strings.Join(limitNames(), ", ")
		if c := Nearest(n, limitNames()); c != "" {
			hint = fmt.Sprintf("did you mean %q?", c)
		}
		bad(hint, "there is no limit called %s", quote(n))
		return
	}
	var x uint64
	var a Amount
	var msg, hint string
	switch key.Type {
	case TypeCount:
		x, msg = parseCount(text)
	case TypeSize:
		x, msg = parseSize(text)
	case TypeDuration:
		x, msg = parseDuration(text)
	case TypeOutput:
		a, msg = parseOutput(text)
	}
	if msg != "" {
		bad("", "limit %q %s", n, msg)
		return
	}
	if msg, hint = badLimit(n, x); msg != "" {
		bad(hint, "%s", msg)
		return
	}
	switch to := key.field(s.File).(type) {
	case *Value[uint64]:
		*to = Value[uint64]{true, x, o}
	case *Value[Amount]:
		*to = Value[Amount]{true, a, o}
	}
}

func limitNames() []string {
	var names []string
	for _, k := range keyTable {
		if k.Table() == "limits" {
			names = append(names, k.Last())
		}
	}
	return names
}

// noProfile says that no layer has a profile of that name.
type noProfile struct{ err *plan.Error }

func (e *noProfile) Error() string { return e.err.Error() }
func (e *noProfile) Unwrap() error { return e.err }

func isNoProfile(err error) bool {
	var e *noProfile
	return errors.As(err, &e)
}
