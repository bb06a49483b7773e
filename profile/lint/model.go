package lint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// An entry is one thing that a profile says: a value, or one element of a list.
type entry struct {
	key    string // "filesystem.hide"
	val    string // the value as text; the path of a grant, the name of a variable that is set
	list   bool   // an element of a list
	empty  bool   // the list was written without elements, which drops the inherited ones
	grant  profile.Grant
	why    string            // of a seed
	secret string            // the value of a variable; looked at, never shown
	source *plan.ValueSource // where the value of a variable comes from; nil when it is written there
	layer  int               // index into model.layers; the checked file has the highest, -1 is a default
	origin plan.Origin
}

// text is the offending text of a finding about the entry.
func (e entry) text() string {
	switch {
	case e.empty:
		return lastKey(e.key) + " = []"
	case e.list:
		return strconv.Quote(e.val)
	}
	return lastKey(e.key) + " = " + e.val
}

func lastKey(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// A model is a profile with all that it extends.
type model struct {
	entries []entry            // of all layers, lowest first
	own     []entry            // of the checked file
	top     int                // the layer of the checked file
	byKey   map[string][]entry // of own; made when first needed
}

// all gives the elements of a list that are in force: a list adds to what was
// inherited, an empty one drops it.
func (m *model) all(key string) []entry {
	var out []entry
	for i := range m.entries {
		switch e := &m.entries[i]; {
		case e.key != key:
		case e.empty:
			out = out[:0]
		default:
			out = append(out, *e)
		}
	}
	return out
}

// mine gives what the checked file itself says for a key, empty lists included. It must
// not be changed.
func (m *model) mine(key string) []entry {
	if m.byKey == nil {
		m.byKey = make(map[string][]entry)
		for _, e := range m.own {
			m.byKey[e.key] = append(m.byKey[e.key], e)
		}
	}
	return m.byKey[key]
}

// get gives the value in force.
func (m *model) get(key string) entry {
	for i := len(m.entries) - 1; i >= 0; i-- {
		if m.entries[i].key == key {
			return m.entries[i]
		}
	}
	return entry{key: key, val: defaultOf(key), layer: -1}
}

// inherited gives the value that the checked file found, the default when no
// profile below it says anything.
func (m *model) inherited(key string) entry {
	for i := len(m.entries) - 1; i >= 0; i-- {
		if e := m.entries[i]; e.key == key && e.layer < m.top {
			return e
		}
	}
	return entry{key: key, val: defaultOf(key), layer: -1}
}

// maxElements is how many elements of one list, with those that are inherited,
// the rules compare with one another. Rules that were left out would be rules
// that a change gets around. A file that is read has fewer of its own.
const maxElements = 2500

// longest gives the key with the most elements, and their number.
func (x *check) longest() (key string, n int) {
	count := make(map[string]int)
	for _, e := range x.m.entries {
		if e.list {
			if count[e.key]++; count[e.key] > n {
				key, n = e.key, count[e.key]
			}
		}
	}
	return key, n
}

// below gives the elements of a list that the checked file inherits.
func (m *model) below(key string) []entry {
	var out []entry
	for _, e := range m.entries {
		switch {
		case e.key != key || e.layer == m.top:
		case e.empty:
			out = out[:0]
		default:
			out = append(out, e)
		}
	}
	return out
}

// is reports whether the value in force is one of vals.
func (m *model) is(key string, vals ...string) bool { return slices.Contains(vals, m.get(key).val) }

// ownOf gives the entries of the checked file for any of keys, in file order.
func (m *model) ownOf(keys ...string) []entry {
	var out []entry
	for _, e := range m.own {
		if slices.Contains(keys, e.key) {
			out = append(out, e)
		}
	}
	return out
}

// defaultOf gives the value in force when no profile says anything.
func defaultOf(key string) string {
	k, _ := profile.LookupKey(key)
	return strings.Trim(k.Default, `"`)
}

// model resolves f and puts the layers together. What cannot be resolved becomes
// a finding, and f is looked at alone.
func (x *check) model(f *profile.File) model {
	name := x.src.Path // so that relative names in it are found
	if name == "" {
		name = x.src.Name
	}
	if !x.project && !x.confined(f) {
		return alone(f)
	}
	var stack *profile.Stack
	var err error
	installed := x.installedName()
	switch {
	case x.project:
		if stack, err = profile.LoadProject(name, x.src.Data, x.base, x.o.Host); err == nil {
			x.widened, x.trusted = stack.Widened(), stack.Trusted()
		}
	case installed != "":
		h := x.o.Host
		h.Cwd, h.Pwd = "/", "" // without a project layer
		stack, err = profile.Load(h, profile.Options{Profile: installed, NoSettings: true})
	default:
		stack, err = profile.LoadFile(name, x.src.Data, x.o.Host)
	}
	var layers []profile.Layer
	if err == nil {
		layers = stack.Layers()
		x.stack = stack
		if len(x.widened) == 0 || x.trusted {
			x.refusals(stack.Err())
		}
	}
	if err == nil && installed != "" { // the user's profile lies over the machine's
		i := slices.IndexFunc(layers, func(l profile.Layer) bool { return l.Path == name })
		layers = layers[:i+1]
		if i < 0 {
			err = &plan.Error{Op: "the profile " + strconv.Quote(installed) + " is another file now"}
		}
	}
	if err != nil {
		x.loadProblems(f, name, err)
		return alone(f)
	}
	return x.layers(f, layers)
}

// refusals keeps what wall refuses to run, where the checked file says it.
func (x *check) refusals(err error) {
	for _, e := range located(err) {
		if e.Origin.File == x.src.Name || e.Origin.File == x.src.Path {
			x.refused = append(x.refused, e)
		}
	}
}

// alone is the model of a file without what it extends.
func alone(f *profile.File) model {
	es := entriesOf(f, 0)
	return model{entries: es, own: append(slices.Clip(es), phaseEntries(f, 0)...)}
}

// layers puts the layers of a profile together, of which f is the highest.
func (x *check) layers(f *profile.File, layers []profile.Layer) model {
	m := model{top: len(layers) - 1}
	for i, l := range layers {
		es := entriesOf(l.File, i)
		if i == m.top {
			es = entriesOf(f, i) // with the name that the user wrote
			m.own = append(slices.Clip(es), phaseEntries(f, i)...)
		}
		m.entries = append(m.entries, es...)
	}
	return m
}

// installedName gives the name of a profile of the machine or the user, which is
// laid over the profile of the same name one layer below; "" for any other.
func (x *check) installedName() string {
	dir, file := path.Split(x.src.Path)
	name, ok := strings.CutSuffix(file, ".toml")
	if dir = path.Clean(dir); !ok || x.src.Path == "" || dir != profile.SystemDir && dir != x.o.Config {
		return ""
	}
	return name
}

// loadProblems turns what kept a profile from being resolved into findings. A
// fault of another profile is told at the line that brings it in.
func (x *check) loadProblems(f *profile.File, name string, err error) {
	for _, e := range located(err) {
		o, msg := e.Origin, e.Error()
		code := "W005"
		if x.project && !strings.Contains(msg, "profile ") {
			code = "W007"
		}
		if o.File != name && o.File != x.src.Name || o.Line == 0 {
			if o.Line != 0 {
				msg = fmt.Sprintf("%s (%s:%d)", msg, o.File, o.Line)
			}
			if o = f.Extends.Origin; o.Line == 0 {
				o = plan.Origin{Line: 1, Column: 1}
			}
		}
		x.problem(code, o, msg, e.Hint)
	}
}

// entriesOf takes a file apart.
func entriesOf(f *profile.File, layer int) []entry {
	var es []entry
	str := func(key string, v profile.Value[string]) {
		if v.Set {
			es = append(es, entry{key: key, val: v.V, layer: layer, origin: v.Origin})
		}
	}
	num := func(key string, v profile.Value[uint64]) {
		if v.Set {
			es = append(es, entry{key: key, val: strconv.FormatUint(v.V, 10), layer: layer, origin: v.Origin})
		}
	}
	strs := func(key string, l profile.List[string]) {
		if l.Set && len(l.Items) == 0 {
			es = append(es, entry{key: key, list: true, empty: true, layer: layer, origin: l.Origin})
		}
		for _, it := range l.Items {
			es = append(es, entry{key: key, val: it.V, list: true, layer: layer, origin: it.Origin})
		}
	}
	str("name", f.Name)
	str("description", f.Description)
	str("extends", f.Extends)
	str("enforce", f.Enforce)
	str("if-unavailable", f.IfUnavailable)
	strs("require", f.Require)
	str("filesystem.view", f.View)
	str("filesystem.home", f.Home)
	str("filesystem.workspace", f.Workspace)
	str("filesystem.tmp", f.Tmp)
	if f.Grant.Set && len(f.Grant.Items) == 0 {
		es = append(es, entry{key: "filesystem.grant", list: true, empty: true, layer: layer, origin: f.Grant.Origin})
	}
	for _, it := range f.Grant.Items {
		es = append(es, entry{key: "filesystem.grant", val: it.V.Path, list: true, grant: it.V, layer: layer, origin: it.Origin})
	}
	strs("filesystem.hide", f.Hide)
	strs("filesystem.protect", f.Protect)
	strs("filesystem.devices", f.Devices)
	str("network.mode", f.Network)
	str("environment.base", f.EnvBase)
	str("environment.scrub", f.EnvScrub)
	strs("environment.allow", f.EnvAllow)
	strs("environment.deny", f.EnvDeny)
	if f.EnvSet.Set && len(f.EnvSet.Items) == 0 {
		es = append(es, entry{key: "environment.set", list: true, empty: true, layer: layer, origin: f.EnvSet.Origin})
	}
	for _, it := range f.EnvSet.Items {
		es = append(es, entry{key: "environment.set", val: it.V.Name, list: true, secret: it.V.Value, source: it.V.Source, layer: layer, origin: it.Origin})
	}
	strs("environment.pass", f.EnvPass)
	str("environment.auth", f.EnvAuth)
	str("process.tty", f.TTY)
	str("process.seccomp", f.Seccomp)
	if f.Nested.Set {
		es = append(es, entry{key: "process.nested-sandboxes", val: strconv.FormatBool(f.Nested.V), layer: layer, origin: f.Nested.Origin})
	}
	num("limits.core", f.Core)
	num("limits.open-files", f.OpenFiles)
	num("limits.file-size", f.FileSize)
	return append(es, networkEntries(f, layer)...)
}

// phaseEntries gives the variables that phases let cross or set: the file says them,
// and they are in force in one phase only.
func phaseEntries(f *profile.File, layer int) []entry {
	var es []entry
	for _, it := range f.Phases.Items {
		for _, e := range entriesOf(it.V.File, layer) {
			if (e.key == "environment.set" || e.key == "environment.pass") && !e.empty {
				es = append(es, e)
			}
		}
	}
	return es
}

// projectLayer tells whether a file is one, and of which profile and workspace:
// it lies in a directory .wall and has the name of a profile. Any other file is
// a profile of its own, wherever it lies.
func (c *Checker) projectLayer(abs string) (base, workspace string, ok bool) {
	dir, file := path.Split(abs)
	base, isTOML := strings.CutSuffix(file, ".toml")
	if dir = path.Clean(dir); !isTOML || path.Base(dir) != profile.ProjectDir || abs == "" {
		return "", "", false
	}
	if !slices.Contains(profile.Builtins(), base) && !c.installed(base) {
		return "", "", false
	}
	return base, path.Dir(dir), true
}

// installed reports whether the machine or the user has a profile of that name.
func (c *Checker) installed(name string) bool {
	for _, dir := range []string{profile.SystemDir, c.o.Config} {
		if dir != "" && c.o.Host.FS != nil {
			if st, err := fs.Stat(c.o.Host.FS, fsName(path.Join(dir, name+".toml"))); err == nil && st.Mode().IsRegular() {
				return true
			}
		}
	}
	return false
}

var (
	errNotRegular = errors.New("not a regular file")
	errIsDir      = errors.New("is a directory")
	errTooLarge   = errors.New("the file is too large")
)

// ReadFile reads the profile at an absolute path of a tree that is rooted at
// "/": a regular file of at most profile.MaxFileSize bytes. The type is looked
// at first, because opening a FIFO could wait for a writer.
func ReadFile(fsys fs.FS, abs string) ([]byte, error) {
	st, err := fs.Stat(fsys, fsName(abs))
	switch {
	case err != nil:
		return nil, err
	case st.IsDir():
		return nil, errIsDir
	case !st.Mode().IsRegular():
		return nil, errNotRegular
	}
	f, err := fsys.Open(fsName(abs))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// The file may be another one by now.
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, profile.MaxFileSize+1))
	if err == nil && len(data) > profile.MaxFileSize {
		err = errTooLarge
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// fsName turns an absolute path into a name for fs.FS.
func fsName(abs string) string {
	if abs = path.Clean(abs); abs != "/" {
		return abs[1:]
	}
	return "."
}
