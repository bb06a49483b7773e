package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// sourceKeys are the tables that may stand in place of a value in the table of
// fixed variables, each with one key. They are not Fields of the key: a variable
// may be called as one of them, and its value may not be quoted.
var sourceKeys = []Key{
	{Name: string(plan.SourceFile), Type: TypePath, Doc: "A file that holds the value; a relative path starts from the profile's own directory.", Since: "0.1.0"},
	{Name: string(plan.SourceEnv), Type: TypeName, Doc: "A variable of the caller, by another name.", Since: "0.1.0"},
	{Name: string(plan.SourceCommand), Type: TypeWords, Doc: "A program and its arguments; it runs outside of the box and prints the value.", Since: "0.1.0"},
	{Name: string(plan.SourceKeyring), Type: TypeText, Doc: "The description of a key of type \"user\" in the kernel's keyrings of the caller.", Since: "0.1.0"},
	{Name: string(plan.SourceSecretService), Type: TypeAttributes, Doc: "The attributes of one secret in the desktop's Secret Service.", Since: "0.1.0"},
}

// SourceKeys gives the keys of the tables that environment.set takes in place of
// a value: exactly one of them says where the value is fetched at every start.
func SourceKeys() []Key { return slices.Clone(sourceKeys) }

func sourceNames() []string {
	var out []string
	for _, k := range sourceKeys {
		out = append(out, k.Name)
	}
	return out
}

// decodeSource reads the table in place of a value. What it says of a mistake
// holds no text of the table but names of keys and paths.
func decodeSource(name string, v *value) (src *plan.ValueSource, msg, hint string) {
	const example = `write for example { file = "~/.secrets/db" } or { env = "OTHER_NAME" }`
	if len(v.keys) != 1 {
		msg = fmt.Sprintf("the source of %q has %d keys instead of one", name, len(v.keys))
		return nil, msg, example
	}
	k := v.keys[0]
	i := slices.IndexFunc(sourceKeys, func(x Key) bool { return x.Name == k.name })
	if i < 0 {
		return nil, fmt.Sprintf("the source of %q is of no kind that wall knows", name), suggestion(k.name, "", sourceNames())
	}
	want := func(what string) string {
		return fmt.Sprintf("%q in the source of %q must be %s, not %s", k.name, name, what, k.val.kind)
	}
	nul := func(s string) string {
		if strings.IndexByte(s, 0) >= 0 {
			return fmt.Sprintf("%q in the source of %q contains a NUL byte", k.name, name)
		}
		return ""
	}
	empty := fmt.Sprintf("%q in the source of %q is empty", k.name, name)
	src = &plan.ValueSource{Kind: plan.SourceKind(k.name)}
	switch sourceKeys[i].Type {
	case TypeWords:
		if k.val.kind != tomlArray {
			return nil, want("an array of strings"), `write command = ["pass", "show", "db"]; no shell reads it`
		}
		if len(k.val.items) > maxElements {
			return nil, fmt.Sprintf("%q has more than %d elements", k.name, maxElements), ""
		}
		for _, x := range k.val.items {
			if x.kind != tomlString {
				return nil, fmt.Sprintf("an argument of %q in the source of %q must be a string, not %s", k.name, name, x.kind), ""
			}
			if msg := nul(x.text); msg != "" {
				return nil, msg, ""
			}
			src.Argv = append(src.Argv, x.text)
		}
		if len(src.Argv) == 0 || src.Argv[0] == "" {
			return nil, empty, `write command = ["pass", "show", "db"]`
		}
		if strings.Contains(src.Argv[0], "/") {
			msg, hint = badPath(src.Argv[0])
		}
	case TypeAttributes:
		if k.val.kind != tomlTable {
			return nil, want("a table of strings"), `write secret-service = { service = "db", username = "me" }`
		}
		if len(k.val.keys) > maxElements {
			return nil, fmt.Sprintf("%q has more than %d elements", k.name, maxElements), ""
		}
		var attrs []plan.Attribute
		for _, x := range k.val.keys {
			switch {
			case x.val.kind != tomlString:
				return nil, fmt.Sprintf("an attribute of %q in the source of %q must be a string, not %s", k.name, name, x.val.kind), ""
			case x.name == "":
				return nil, fmt.Sprintf("an attribute of %q in the source of %q has no name", k.name, name), ""
			}
			for _, s := range []string{x.name, x.val.text} {
				if msg := nul(s); msg != "" {
					return nil, msg, ""
				}
			}
			attrs = append(attrs, plan.Attribute{Name: x.name, Value: x.val.text})
		}
		if len(attrs) == 0 {
			return nil, empty, `write secret-service = { service = "db", username = "me" }`
		}
		src.Name = plan.EncodeAttributes(attrs)
	default:
		if k.val.kind != tomlString {
			return nil, want("a string"), ""
		}
		src.Name = k.val.text
		switch {
		case nul(src.Name) != "":
			msg = nul(src.Name)
		case src.Name == "":
			msg = empty
		case src.Kind == plan.SourceFile:
			msg, hint = badPath(src.Name)
		case src.Kind == plan.SourceEnv:
			if msg = badName(src.Name); msg != "" {
				before, _, _ := strings.Cut(src.Name, "=") // someone may have written NAME=value
				msg = badName(before + "=")
			}
		}
	}
	if msg != "" {
		return nil, msg, hint
	}
	if name == "PATH" {
		return nil, `the value of "PATH" cannot come from a source: wall looks the command up in it before anything is fetched`, "write the value"
	}
	return src, "", ""
}

// toml gives the variable as a profile writes it, without its value.
func (v Var) toml() string {
	key := v.Name
	if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
		key = tomlQuote(key)
	}
	if v.Source == nil {
		return key + " = ..."
	}
	return key + " = " + sourceText(*v.Source)
}

// effective is the variable as [Effective] has it: a fixed value is told by the
// name alone.
func (v Var) effective() string {
	if v.Source == nil {
		return v.Name
	}
	return v.toml()
}

// sourceText gives a source as a profile writes it.
func sourceText(s plan.ValueSource) string {
	val := tomlQuote(s.Name)
	switch s.Kind {
	case plan.SourceCommand:
		words := make([]string, len(s.Argv))
		for i, a := range s.Argv {
			words[i] = tomlQuote(a)
		}
		val = "[" + strings.Join(words, ", ") + "]"
	case plan.SourceSecretService:
		attrs, err := plan.ParseAttributes(s.Name)
		if err != nil {
			break
		}
		pairs := make([]string, len(attrs))
		for i, a := range attrs {
			pairs[i] = tomlQuote(a.Name) + " = " + tomlQuote(a.Value)
		}
		val = "{ " + strings.Join(pairs, ", ") + " }"
	}
	return "{ " + string(s.Kind) + " = " + val + " }"
}

// A fetched is a file of the host that a source names.
type fetched struct {
	located
	variable string // whose value comes from it
	program  bool   // it is run, not read
	origin   plan.Origin
}

func (f fetched) fail(err error, hint string) error {
	what := "cannot take the value of " + quote(f.variable) + " from the file "
	if f.program {
		what = "cannot get the value of " + quote(f.variable) + " by running "
	}
	return &plan.Error{Op: what + quote(f.path), Origin: f.origin, Err: err, Hint: hint}
}

// sources decides where the values of variables come from: paths are written
// out, and the files are hidden from the command. What is not used, because
// something above gives the variable another value, is not looked at.
func (r *resolver) sources() error {
	var errs []error
	r.from = map[string]plan.ValueSource{}
	for _, it := range lastVars(r.s.EnvSet.Items) {
		same := func(n string) bool { return n == it.V.Name }
		if it.V.Source == nil ||
			slices.ContainsFunc(r.stored, func(a envscrub.Assign) bool { return same(a.Name) }) ||
			slices.ContainsFunc(r.s.envFlags, func(x Item[Var]) bool { return same(x.V.Name) }) {
			continue
		}
		src, err := r.source(it)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		r.from[it.V.Name] = src
	}
	return errors.Join(errs...)
}

// reasonSet is how package envscrub marks a variable of the table.
const reasonSet = "set"

// How it marks a stored variable, and one that this package gives it in Policy.Fixed.
const (
	reasonInjected = "injected"
	reasonFixed    = "fixed"
)

func (r *resolver) source(it Item[Var]) (plan.ValueSource, error) {
	src := *it.V.Source
	src.Argv = slices.Clone(src.Argv)
	switch src.Kind {
	case plan.SourceFile:
		f, err := r.fetched(it, src.Name, false)
		if err != nil {
			return src, err
		}
		src.Name = f.path
		if r.p.Enforce != plan.EnforceOff {
			// A secret by name shall not be in the room as well.
			r.b.secret[f.path] = it.V.Name
			r.b.add(request{path: f.path, kind: reqHide, typ: plan.TypeFile, layer: ownLayer, origin: it.Origin})
		}
	case plan.SourceCommand:
		r.programs = append(r.programs, it)
		if l := r.layers[it.layer]; l.Kind == LayerFile && within(l.Path, r.at.workspace) {
			return src, &plan.Error{Op: "cannot get the value of " + quote(it.V.Name) + " by running a program: the profile lies in the workspace", Origin: it.Origin,
				Hint: "the program would run outside of the box; move the profile out of the workspace, for example to ~/.config/wall"}
		}
		if !strings.Contains(src.Argv[0], "/") {
			break // looked up in fixed directories, none of which a box can write
		}
		if _, err := r.fetched(it, src.Argv[0], true); err != nil {
			return src, err
		}
		// Not free of links: some programs look at the name that they are called by.
		p, _ := r.at.expand(src.Argv[0], it.dir)
		src.Argv[0] = path.Clean(p)
	case plan.SourceEnv:
		if why := r.neverCrosses(src.Name); why != "" {
			return src, &plan.Error{Op: "cannot set " + quote(it.V.Name) + " to the caller's " + quote(src.Name), Origin: it.Origin, Err: errors.New(why)}
		}
	}
	return src, nil
}

// isRelative reports whether a path of a source starts from the directory of the profile.
func isRelative(written string) bool {
	return !strings.HasPrefix(written, "/") && !strings.HasPrefix(written, "~") && !strings.HasPrefix(written, "$")
}

// startsAtProfile reports whether what a source names depends on where its profile is.
func startsAtProfile(s plan.ValueSource) bool {
	switch s.Kind {
	case plan.SourceFile:
		return isRelative(s.Name)
	case plan.SourceCommand:
		return strings.Contains(s.Argv[0], "/") && isRelative(s.Argv[0])
	}
	return false
}

// fetched finds a file that a source names. Whether the command could change it
// is known only when the box is built: see fetchedPaths.
func (r *resolver) fetched(it Item[Var], written string, program bool) (fetched, error) {
	f := fetched{located: located{path: written}, variable: it.V.Name, program: program, origin: it.Origin}
	if isRelative(written) && it.dir == "" {
		return f, f.fail(errors.New("a relative path starts from the profile's directory, and this one is not in a file"), "write an absolute path")
	}
	p, err := r.at.expand(written, it.dir)
	if err != nil {
		return f, f.fail(err, "")
	}
	l := r.t.walk(p)
	f.located = l
	const out = "move it to where no command can write, for example below ~/.config/wall"
	switch {
	case l.err != nil:
		return f, f.fail(l.err, "")
	case l.missing != "":
		return f, f.fail(errMissing, "create it, or give the variable a value with --env")
	case slices.ContainsFunc(ours, func(d string) bool { return within(l.path, d) }):
		return f, f.fail(errors.New("it is not a file of the host's own disks"), "")
	case l.mode.IsDir():
		return f, f.fail(errIsDir, "")
	case !l.mode.IsRegular():
		return f, f.fail(errNotRegular, "")
	case within(l.path, r.at.workspace):
		return f, f.fail(errors.New("it lies in the workspace"), out)
	case r.within(l.path, r.p.Scratch.Root):
		return f, f.fail(errors.New("it is the state of wall's own runs"), "")
	}
	if program {
		if r.t.perm(l.path)&0o111 == 0 {
			return f, f.fail(fs.ErrPermission, "set its execute permission")
		}
	}
	if k := r.planted(l, r.writableTrees()); k != "" {
		return f, f.fail(fmt.Errorf("the symbolic link %s, which a command could have made, leads out to it", quote(k)), "name the real path")
	}
	r.fetch = append(r.fetch, f)
	return f, nil
}

// fetchedPaths refuses files of sources that the command could change or
// replace: the next run would get a value, or run a program, of its making.
func (r *resolver) fetchedPaths() {
	for _, f := range r.fetch {
		if r.changeable(f.path) {
			r.b.errs = append(r.b.errs, f.fail(errors.New("the command can write there"), "move it to where no command can write"))
		} else if err := r.fixed(f.located, nil); err != nil {
			r.b.errs = append(r.b.errs, f.fail(err, "name the file by a path that no command can change"))
		}
	}
	// A profile is protected from the run that uses it, and not from others with the same grants.
	for _, it := range r.programs {
		if l := r.layers[it.layer]; l.Path != "" && r.writable(l.Path) {
			r.b.fail(&plan.Error{Op: "cannot get the value of " + quote(it.V.Name) + " by running a program: the profile lies where the command can write", Origin: it.Origin,
				Hint: "the program would run outside of the box; move the profile to where no command can write, for example to ~/.config/wall"})
		}
	}
}

// neverCrosses tells why a variable of the caller crosses under no name, "" when
// it may.
func (r *resolver) neverCrosses(name string) string {
	mode := envscrub.Mode(r.s.EnvScrub.V)
	if !r.s.EnvScrub.Set {
		mode = envscrub.Base(r.s.EnvBase.V).DefaultMode()
	}
	if mode == envscrub.ModeOff {
		return ""
	}
	if strings.HasPrefix(strings.ToUpper(name), "WALL_") {
		return "it belongs to the control plane"
	}
	for _, it := range r.s.EnvDeny.Items {
		if p, err := envscrub.ParsePattern(it.V); err == nil && p.Match(name, true) {
			return "denied by " + quote(it.V)
		}
	}
	return ""
}
