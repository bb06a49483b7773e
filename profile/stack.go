package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// A Stack is a profile with everything that it is laid over and the command
// line, merged, before any look at what it means for this host.
type Stack struct {
	layers []Layer // lowest first; the command line, when there is one, is the last
	s      settings
	at     places
	pwd    string // working directory as the command should see it in PWD
	t      *tree
	h      Host
	cli    commandLine

	notices []plan.Notice // about the SANDBOX_* variables

	project Layer    // its File is nil when there is none
	widened []Change // by the project layer
	trusted bool
	trustAt string // where the trust store is; "" when there is none
	trust   error  // why it could not be read
}

// Load reads the profile that o names, the layers below and above it and the
// flags, as Resolve does. It does not ask for a command, and it neither refuses
// what cannot be kept nor a project layer that widens; see [Stack.Err] for both. The error joins *plan.Error values.
func Load(h Host, o Options) (*Stack, error) { return load(h, o, newTree(h.FS)) }

func load(h Host, o Options, t *tree) (*Stack, error) {
	s := &Stack{h: h, t: t}
	s.at.home = homeOf(h)
	flags, cli, err := parseFlags(o.Flags)
	if err != nil {
		return nil, err
	}
	s.cli = cli
	if err := s.directories(); err != nil {
		return nil, err
	}
	name, origin := o.Profile, plan.Origin{Text: "--profile " + o.Profile}
	if name == "" {
		name, origin = o.Default, def
	}
	var layers []Layer
	var project Layer
	ld := s.loader()
	if o.Recorded != nil {
		layers, project, err = s.recorded(o.Recorded)
	} else if layers, err = ld.load(name, h.Cwd, origin); err == nil && !isFile(name) {
		project, err = ld.project(s.at.workspace, name)
	}
	if err != nil {
		return nil, err
	}
	if o.Phase != nil {
		layers = append(layers, o.Phase.layer())
	}
	if !o.NoSettings {
		layers = s.withSettings(layers, project, flags)
	}
	err = s.finish(layers, project, flags)
	s.trusted = s.trusted || o.RecordedTrust
	return s, err
}

// LoadFile reads the text of a profile that need not be installed, under the
// name that origins show, and what it is laid over. h may lack any fact:
// without h.FS only built-in profiles can be extended, and the command line is
// not looked at. The error joins *plan.Error values.
func LoadFile(name string, data []byte, h Host) (*Stack, error) {
	s := newStack(h)
	top, err := s.text(name, data)
	if err != nil {
		return nil, err
	}
	layers, err := s.loader().below(top)
	if err != nil {
		return nil, err
	}
	return s, s.finish(layers, Layer{}, Layer{})
}

// LoadProject reads the text of a project layer, under the name that origins
// show, over the profile called base. [Stack.Widened] tells what it widens.
// As with LoadFile, h may lack any fact.
func LoadProject(name string, data []byte, base string, h Host) (*Stack, error) {
	s := newStack(h)
	project, err := s.text(name, data)
	if err != nil {
		return nil, err
	}
	project.Kind, project.Name = LayerProject, base
	layers, err := s.loader().load(base, h.Cwd, plan.Origin{File: name})
	if err != nil {
		return nil, err
	}
	return s, s.finish(layers, project, Layer{})
}

func newStack(h Host) *Stack {
	s := &Stack{h: h}
	s.at = places{home: homeOf(h), workspace: h.Cwd, cwd: h.Cwd}
	if h.FS != nil {
		s.t = newTree(h.FS)
		if h.Cwd != "" {
			if l := s.t.walk(h.Cwd); l.exists() {
				s.at.workspace, s.at.cwd = l.path, l.path
			}
		}
	}
	return s
}

// text makes a layer of a text that is not read from the host's tree.
func (s *Stack) text(name string, data []byte) (Layer, error) {
	f, err := Parse(name, data)
	if err != nil {
		return Layer{}, err
	}
	l := Layer{Kind: LayerFile, Name: name, File: f, id: name, data: data}
	if p, ok := strings.CutPrefix(name, "built-in:"); ok {
		l.Kind, l.Name = LayerBuiltin, p
		return l, nil
	}
	if badPathMessage(name) == "" {
		if p, err := s.at.expand(name, s.h.Cwd); err == nil {
			if s.t != nil {
				p = s.t.walk(p).path
			}
			l.id, l.dir = path.Clean(p), path.Dir(path.Clean(p))
			l.Path = l.id
		}
	}
	return l, nil
}

func (s *Stack) loader() loader {
	user, err := s.configDir()
	return loader{t: s.t, home: s.at, user: user, userErr: err, uid: s.h.UID}
}

// homeOf gives the home directory of the account, "" when it has none. $HOME
// counts only when the account record is missing: the caller may have moved it.
func homeOf(h Host) string {
	home := h.AccountHome
	if home == "" {
		home = lookup(h.Environ, "HOME")
	}
	if !strings.HasPrefix(home, "/") || strings.IndexByte(home, 0) >= 0 {
		return ""
	}
	return path.Clean(home)
}

// ownHome is the home directory that wall's own files are in; "" when there is
// none. A $HOME in the workspace is not the user's to trust.
func (s *Stack) ownHome() string {
	if s.h.AccountHome == "" && s.inWorkspace(s.at.home) {
		return ""
	}
	return s.at.home
}

// configDir is where the user's own profiles are; "" when there is no such place.
func (s *Stack) configDir() (string, error) {
	return s.ownDir("XDG_CONFIG_HOME", ".config")
}

// ownDir is $VARIABLE/wall, or ~/DIR/wall when the variable is not set, not an
// absolute path, or leads into the workspace, which is not the user's to trust.
// The result is free of links. A place that is the user's own and all the same
// leads into the workspace is an error: it may be policy that the command of an
// earlier run wrote, and without it the user's own would be missing.
func (s *Stack) ownDir(variable, dir string) (string, error) {
	home := s.ownHome()
	d := lookup(s.h.Environ, variable)
	if strings.HasPrefix(d, "/") && strings.IndexByte(d, 0) < 0 {
		if slices.Contains(strings.Split(d, "/"), "..") {
			// What ".." leaves may be a link tomorrow.
			return "", &plan.Error{Op: "cannot use " + variable + ": it contains \"..\"", Origin: plan.Origin{Text: variable}, Hint: "set it to the real path of the directory"}
		}
		if d = path.Clean(d); (home == "" || d != join(home, dir)) && !s.inWorkspace(d) {
			return s.settled(join(d, "wall"), plan.Origin{Text: variable}, false)
		}
	}
	if home == "" {
		return "", nil
	}
	p := join(home, dir+"/wall")
	// Whose home is the workspace, or in it, has wall's files there.
	return s.settled(p, plan.Origin{File: p}, s.inWorkspace(home))
}

// settled gives the path of one of wall's own directories free of links.
func (s *Stack) settled(p string, o plan.Origin, inside bool) (string, error) {
	if s.t == nil {
		return p, nil
	}
	if !inside && s.inWorkspace(p) {
		return "", &plan.Error{Op: "cannot use " + quote(p) + ": it leads into the workspace, where the command of an earlier run could have written it", Origin: o,
			Hint: "put the directory itself there, or choose another workspace"}
	}
	if l := s.t.walk(p); l.err == nil {
		return l.path, nil
	}
	return p, nil // whoever reads there tells why it cannot be read
}

// ignored gives a notice for each place of wall's own files that does not count
// because it is in the workspace, where there are some.
func (s *Stack) ignored() []plan.Notice {
	var out []plan.Notice
	for _, v := range [][2]string{{"XDG_CONFIG_HOME", ".config"}, {"XDG_STATE_HOME", ".local/state"}} {
		if s.t == nil {
			break
		}
		try := map[string]string{v[0]: lookup(s.h.Environ, v[0])}
		if s.ownHome() != s.at.home {
			try["HOME"] = join(s.at.home, v[1])
		}
		for _, name := range []string{v[0], "HOME"} {
			d := try[name]
			if !strings.HasPrefix(d, "/") || strings.IndexByte(d, 0) >= 0 || !s.inWorkspace(d) {
				continue
			}
			own := join(path.Clean(d), "wall")
			l := s.t.walk(own)
			if used, err := s.ownDir(v[0], v[1]); l.exists() && (err != nil || l.path != used) {
				out = append(out, plan.Notice{Origin: plan.Origin{Text: name}, Text: "ignoring " + quote(own) + ": it lies in the workspace",
					Hint: "the command of an earlier run could have written it"})
			}
		}
	}
	return out
}

// inWorkspace reports whether a path ends in the workspace, or is led on by a
// link in it.
func (s *Stack) inWorkspace(p string) bool {
	if s.at.workspace == "" || s.t == nil || p == "" {
		return false
	}
	l := s.t.walk(p)
	return within(l.path, s.at.workspace) || slices.ContainsFunc(l.links, func(k link) bool { return within(k.at, s.at.workspace) })
}

// finish merges the layers.
func (s *Stack) finish(layers []Layer, project, flags Layer) error {
	var top []Layer
	if flags.File != nil {
		top = []Layer{flags}
	}
	with := layers
	if project.File != nil {
		if err := checkProject(project); err != nil {
			return err
		}
		with = append(slices.Clip(layers), project)
	}
	s.layers = append(slices.Clip(with), top...)
	s.s = merge(s.layers, s.cli)
	if project.File == nil {
		return nil
	}
	s.project = project
	// Twice: what it says over the profile, and what comes of it under the flags.
	a, b := merge(layers, commandLine{}), merge(with, commandLine{})
	s.widened = s.widens(&a, &b, nil)
	if top != nil {
		a = merge(append(slices.Clip(layers), top...), s.cli)
		s.widened = s.widens(&a, &s.s, s.widened)
	}
	if len(s.widened) > 0 && s.t != nil {
		s.trusted, s.trustAt, s.trust = s.isTrusted(project)
	}
	return nil
}

// Err reports what keeps the stack from being run on any host: a project layer that
// widens and is not trusted, and what it says of the network and cannot be kept.
func (s *Stack) Err() error {
	if err := s.projectError(); err != nil {
		return err
	}
	return s.s.refused()
}

// PhaseErr reports the same of one phase of the profile: what it says of the network,
// over the profile, and cannot be kept.
func (s *Stack) PhaseErr(p Phase) error {
	layers := slices.DeleteFunc(slices.Clone(s.layers), func(l Layer) bool { return l.Kind == LayerFlags })
	x := merge(append(layers, p.layer()), commandLine{})
	return x.refused()
}

// Widened tells what the project layer would take back of the protection of the
// layers below it, trusted or not.
func (s *Stack) Widened() []Change { return slices.Clone(s.widened) }

// Trusted reports whether the operator accepted the content of the project
// layer. It says nothing about one that does not widen.
func (s *Stack) Trusted() bool { return s.trusted }

// Notices tells what there is to know about the SANDBOX_* variables that count.
func (s *Stack) Notices() []plan.Notice { return slices.Clone(s.notices) }

// Name is the name of the profile for people.
func (s *Stack) Name() string { return s.s.name }

// Workspace is the directory that relative paths start from, free of links; ""
// when it is not known.
func (s *Stack) Workspace() string { return s.at.workspace }

// Layers gives the layers, lowest first. The command line is the last one when
// the stack was made by Load.
func (s *Stack) Layers() []Layer {
	out := slices.Clone(s.layers)
	for i := range out {
		if out[i].data != nil {
			sum := sha256.Sum256(out[i].data)
			out[i].Digest = hex.EncodeToString(sum[:])
		}
	}
	return out
}

// A Setting is the value of one key with its history.
type Setting struct {
	Key      Key
	Value    any         // string, bool, uint64, Amount, []string, []HostPattern, []uint16, []Grant, []Seed; of environment.set only the names, []string, and of its elements a Var without the value
	Text     string      // the value as a profile writes it; values of variables are left out
	Origin   plan.Origin // the line that decided; of a list the highest layer that has it
	Layer    int         // index into Layers; -1 for a default
	Default  bool        // no layer says anything
	Items    []Setting   // the elements of a list, each with its origin; groups are not expanded
	Replaced []Setting   // what was said below and no longer counts, highest first
}

// Values gives the value of every key, in the order of Keys. Name, extends and
// version are left out: they are not settings.
func (s *Stack) Values() []Setting {
	base := defaults()
	var out []Setting
	for _, k := range keyTable {
		switch k.Name {
		case "version", "name", "description", "extends":
			continue
		}
		cur := Setting{Key: k, Layer: -1, Default: true, Origin: def}
		cur.Value, cur.Text, cur.Items = show(k, k.field(&base.File), -1)
		for n, l := range s.layers {
			f := k.field(l.File)
			set, empty := isSet(f)
			if !set {
				continue
			}
			next := Setting{Key: k, Layer: n, Origin: originOf(f)}
			next.Value, next.Text, next.Items = show(k, f, n)
			if !isList(f) || empty {
				if !isList(f) || len(cur.Items) > 0 {
					next.Replaced = append([]Setting{flat(cur)}, cur.Replaced...)
				}
			} else {
				next.Items = append(slices.Clip(cur.Items), next.Items...)
				next.Replaced = cur.Replaced
			}
			cur = next
		}
		if isList(k.field(&base.File)) {
			f := k.field(&s.s.File)
			cur.Value, cur.Text, _ = show(k, f, 0)
		} else if k.Name == "network.mode" && s.s.Enforce.V == "fs" && cur.Text != `"host"` {
			next := Setting{Key: k, Layer: s.layerOf(s.s.Enforce.Origin), Origin: s.s.Enforce.Origin}
			next.Value, next.Text = "host", `"host"`
			next.Replaced = append([]Setting{flat(cur)}, cur.Replaced...)
			cur = next
		}
		out = append(out, cur)
	}
	return out
}

// layerOf finds the layer that said enforce.
func (s *Stack) layerOf(o plan.Origin) int {
	for i := len(s.layers) - 1; i >= 0; i-- {
		if e := s.layers[i].File.Enforce; e.Set && e.Origin == o {
			return i
		}
	}
	return -1
}

// flat is a setting without its own history.
func flat(x Setting) Setting {
	x.Replaced = nil
	return x
}

// Value gives the setting of one key by its full name.
func (s *Stack) Value(name string) (Setting, bool) {
	for _, v := range s.Values() {
		if v.Key.Name == name {
			return v, true
		}
	}
	return Setting{}, false
}

func isSet(f any) (set, empty bool) {
	switch f := f.(type) {
	case *Value[string]:
		return f.Set, false
	case *Value[bool]:
		return f.Set, false
	case *Value[uint64]:
		return f.Set, false
	case *Value[Amount]:
		return f.Set, false
	case *List[string]:
		return f.Set, len(f.Items) == 0
	case *List[HostPattern]:
		return f.Set, len(f.Items) == 0
	case *List[uint16]:
		return f.Set, len(f.Items) == 0
	case *List[Grant]:
		return f.Set, len(f.Items) == 0
	case *List[Seed]:
		return f.Set, len(f.Items) == 0
	case *List[Var]:
		return f.Set, len(f.Items) == 0
	}
	return false, false
}

func isList(f any) bool {
	switch f.(type) {
	case *Value[string], *Value[bool], *Value[uint64], *Value[Amount]:
		return false
	}
	return true
}

func originOf(f any) plan.Origin {
	switch f := f.(type) {
	case *Value[string]:
		return f.Origin
	case *Value[bool]:
		return f.Origin
	case *Value[uint64]:
		return f.Origin
	case *Value[Amount]:
		return f.Origin
	case *List[string]:
		return f.Origin
	case *List[HostPattern]:
		return f.Origin
	case *List[uint16]:
		return f.Origin
	case *List[Grant]:
		return f.Origin
	case *List[Seed]:
		return f.Origin
	case *List[Var]:
		return f.Origin
	}
	return plan.Origin{}
}

// show gives a value, its text as a profile writes it, and its elements.
func show(k Key, f any, layer int) (v any, text string, items []Setting) {
	switch f := f.(type) {
	case *Value[string]:
		if !f.Set && f.V == "" {
			return "", "", nil
		}
		return f.V, tomlQuote(f.V), nil
	case *Value[bool]:
		return f.V, strconv.FormatBool(f.V), nil
	case *Value[uint64]:
		if !f.Set && f.V == 0 && k.Default == "" {
			return uint64(0), "", nil
		}
		return f.V, formatNumber(k, f.V), nil
	case *Value[Amount]:
		return f.V, tomlQuote(f.V.String()), nil
	case *List[string]:
		return showList(k, f, layer, func(s string) any { return s }, tomlQuote, func(x []string) any { return x })
	case *List[HostPattern]:
		return showList(k, f, layer, func(h HostPattern) any { return h }, func(h HostPattern) string { return tomlQuote(h.String()) }, func(x []HostPattern) any { return x })
	case *List[uint16]:
		return showList(k, f, layer, func(n uint16) any { return n }, func(n uint16) string { return strconv.Itoa(int(n)) }, func(x []uint16) any { return x })
	case *List[Grant]:
		return showList(k, f, layer, func(g Grant) any { return g }, Grant.toml, func(x []Grant) any { return x })
	case *List[Seed]:
		return showList(k, f, layer, func(s Seed) any { return s }, Seed.toml, func(x []Seed) any { return x })
	case *List[Var]:
		names := func(x []Var) any {
			out := make([]string, len(x))
			for i := range x {
				out[i] = x[i].Name
			}
			return out
		}
		v, text, items = showList(k, f, layer, func(v Var) any { return Var{Name: v.Name, Source: v.Source} }, Var.toml, names)
		if len(items) == 0 {
			return v, "{}", items
		}
		return v, "{ " + strings.Trim(text, "[]") + " }", items
	}
	return nil, "", nil
}

func showList[T any](k Key, f *List[T], layer int, one func(T) any, text func(T) string, all func([]T) any) (any, string, []Setting) {
	if !f.Set && k.Default == "" {
		return all(nil), "", nil // nothing, which is not an empty list
	}
	vs, texts, items := make([]T, 0, len(f.Items)), make([]string, 0, len(f.Items)), make([]Setting, 0, len(f.Items))
	for _, it := range f.Items {
		vs, texts = append(vs, it.V), append(texts, text(it.V))
		items = append(items, Setting{Key: k, Value: one(it.V), Text: text(it.V), Origin: it.Origin, Layer: layer, Default: layer < 0})
	}
	return all(vs), "[" + strings.Join(texts, ", ") + "]", items
}

func formatNumber(k Key, n uint64) string {
	switch k.Type {
	case TypeDuration:
		if n != 0 {
			return tomlQuote(formatDuration(n))
		}
	case TypeSize:
		if s := formatSize(n); strings.HasSuffix(s, "B") {
			return tomlQuote(s)
		}
	}
	return strconv.FormatUint(n, 10)
}

// toml gives the grant as a profile writes it.
func (g Grant) toml() string {
	s := "{ path = " + tomlQuote(g.Path) + ", access = " + tomlQuote(string(g.Access))
	if g.Why != "" {
		s += ", why = " + tomlQuote(g.Why)
	}
	if g.Optional {
		s += ", optional = true"
	}
	return s + " }"
}

// toml gives the seed as a profile writes it.
func (s Seed) toml() string {
	t := "{ path = " + tomlQuote(s.Path)
	if s.To != "" {
		t += ", to = " + tomlQuote(s.To)
	}
	if s.Why != "" {
		t += ", why = " + tomlQuote(s.Why)
	}
	return t + " }"
}

// tomlQuote writes a TOML basic string.
func tomlQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x20 || r >= 0x7f && r < 0xa0:
			b.WriteString(`\u00`)
			b.WriteString(hex.EncodeToString([]byte{byte(r)}))
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// directories finds the home, the working directory and the workspace.
func (s *Stack) directories() error {
	h := s.h
	if h.Cwd == "" {
		return &plan.Error{Op: "cannot find the working directory: it was deleted", Hint: "change to an existing directory first"}
	}
	cwd, pwd, o := h.Cwd, h.Pwd, def
	if pwd == "" {
		pwd = cwd
	}
	start := pwd
	s.at.cwd, s.at.workspace = h.Cwd, h.Cwd
	if c := s.cli.cwdDir; c.Set {
		p, err := s.at.expand(c.V, start)
		if err != nil {
			return &plan.Error{Op: "cannot use the working directory " + quote(c.V), Origin: c.Origin, Err: err}
		}
		cwd, pwd, o = p, p, c.Origin
	}
	l := s.t.walk(cwd)
	if err := wantDir(l); err != nil {
		return &plan.Error{Op: "cannot use the working directory " + quote(cwd), Origin: o, Err: err}
	}
	s.at.cwd = l.path
	s.pwd = path.Clean(pwd)
	if s.t.walk(s.pwd).path != l.path {
		s.pwd = l.path // a spelling with ".." behind a link
	}

	ws, o := h.Cwd, def
	if w := s.cli.workspaceDir; w.Set {
		p, err := s.at.expand(w.V, start)
		if err != nil {
			return &plan.Error{Op: "cannot use the workspace " + quote(w.V), Origin: w.Origin, Err: err}
		}
		ws, o = p, w.Origin
	}
	l = s.t.walk(ws)
	if err := wantDir(l); err != nil {
		return &plan.Error{Op: "cannot use the workspace " + quote(path.Clean(ws)), Origin: o, Err: err,
			Hint: "name an existing directory with --workspace"}
	}
	s.at.workspace = l.path
	if s.cli.workspaceDir.Set && !s.cli.cwdDir.Set && !within(s.at.cwd, s.at.workspace) {
		// The command works on the workspace: from elsewhere it starts there.
		s.at.cwd, s.pwd = s.at.workspace, path.Clean(ws)
		if s.t.walk(s.pwd).path != s.at.cwd {
			s.pwd = s.at.cwd
		}
	}
	s.cli.workspaceDir = Value[string]{true, ws, o}
	return nil
}
