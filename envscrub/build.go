package envscrub

import (
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// Causes of the errors of Build, to be found with errors.Is.
var (
	ErrName  = errors.New("not a valid variable name")
	ErrValue = errors.New("the value holds a NUL byte")

	errMode   = errors.New("there is no such mode")
	errBase   = errors.New("there is no such base")
	errPrefix = errors.New("an empty prefix matches every name")
)

// Build gives the environment that the policy makes of the input.
//
// It fails only for requests that cannot be meant: an unknown mode or base, an
// empty control prefix, a name to set that is not valid (ErrName), a value to
// set with a NUL byte (ErrValue), and a pass-through or auth name that is a
// pattern or holds "=" or NUL (ErrName). Every such problem is reported, joined,
// each as a *plan.Error. The Result is then empty but not nil.
func Build(in Input, p Policy) (Result, error) {
	if err := check(p); err != nil {
		return Result{Env: []plan.EnvVar{}, Dropped: []plan.EnvDrop{}, Notices: []plan.Notice{}}, err
	}
	b := &builder{
		in:      in,
		p:       p,
		active:  p.Mode != ModeOff,
		windows: in.OS == "windows",
		base:    orDefault(atLine(p.BaseOrigin, "base = "+strconv.Quote(string(p.Base)))),
		mode:    orDefault(atLine(p.ModeOrigin, "scrub = "+strconv.Quote(string(p.Mode)))),
		notices: []plan.Notice{},
	}
	b.absent = "strict: not in the " + string(p.Base) + " table and not allowed"
	b.table = "base: " + string(p.Base) + " table"
	b.ambient = b.parse(in.Ambient)
	b.env = make([]plan.EnvVar, 0, len(b.ambient)+len(p.Pass)+len(p.Set)+len(p.Inject)+len(p.Fixed)+len(p.Flags)+len(p.Extra)+8)
	b.dropped = make([]plan.EnvDrop, 0, len(b.ambient))

	b.scrub()
	b.derive()
	b.pass()
	b.assign(p.Set, "set")
	b.operations()
	b.auth()
	b.assign(p.Inject, "injected")
	b.fixed()
	b.assign(p.Flags, "flag --env")
	b.extra()

	// A name that a later step supplied is not lost.
	b.dropped = slices.DeleteFunc(b.dropped, func(d plan.EnvDrop) bool {
		_, ok := b.find(d.Name)
		return ok
	})
	if b.windows {
		slices.SortFunc(b.env, func(x, y plan.EnvVar) int { return strings.Compare(x.Name, y.Name) })
		slices.SortFunc(b.dropped, func(x, y plan.EnvDrop) int { return strings.Compare(x.Name, y.Name) })
	}
	return Result{Env: b.env, Dropped: b.dropped, Notices: b.notices}, nil
}

type builder struct {
	in      Input
	p       Policy
	active  bool           // a scrub is active
	windows bool           // names differ by more than their casing
	base    plan.Origin    // of what the base admits
	mode    plan.Origin    // of what the mode admits
	absent  string         // why strict drops most names
	table   string         // why strict admits the names of the base
	ambient []variable     // sorted and unique by key
	temps   []string       // TMP and TEMP, where the ambient one was admitted
	env     []plan.EnvVar  // sorted and unique by key
	dropped []plan.EnvDrop // sorted and unique by key
	notices []plan.Notice
}

// A variable is one ambient entry.
type variable struct {
	name, value string
	place       int // in the order given
}

func orDefault(o plan.Origin) plan.Origin {
	if o.IsZero() {
		o.Text = "default"
	}
	return o
}

// check reports every request that cannot be meant.
func check(p Policy) error {
	var errs []error
	bad := func(op string, o plan.Origin, hint string, cause error) {
		errs = append(errs, &plan.Error{Op: op, Origin: o, Hint: hint, Err: cause})
	}
	if _, err := ParseMode(string(p.Mode)); err != nil {
		bad("cannot build the environment", atLine(p.ModeOrigin, "scrub"), "set scrub to off, deny-secrets or strict", errMode)
	}
	if _, err := ParseBase(string(p.Base)); err != nil {
		bad("cannot build the environment", atLine(p.BaseOrigin, "base"), "set base to shell, terminal, session, contract, gate, probe or workspace", errBase)
	}
	for _, prefix := range p.ControlPrefixes {
		if prefix == "" {
			bad("cannot read the control plane prefixes", plan.Origin{}, "", errPrefix)
		}
	}
	for _, n := range p.Pass {
		if name := strings.TrimSpace(n.Name); name != "" && !askable(name) {
			bad("cannot pass the variable "+quoteName(name), nameOrigin(n), "name one variable; patterns belong in allow, values in set", ErrName)
		}
	}
	if n := p.Auth; n.Name != "" && !askable(n.Name) {
		bad("cannot pass the credential variable "+quoteName(n.Name), nameOrigin(n), "name one variable", ErrName)
	}
	for _, list := range [...][]Assign{p.Set, p.Inject, p.Fixed, p.Flags, p.Extra} {
		for _, a := range list {
			switch {
			case !ValidName(a.Name):
				bad("cannot set the variable "+quoteName(a.Name), assignOrigin(a),
					"use letters, digits and underscores, not beginning with a digit", ErrName)
			case strings.IndexByte(a.Value, 0) >= 0:
				bad("cannot set the variable "+quoteName(a.Name), assignOrigin(a), "no program can be given such a value", ErrValue)
			}
		}
	}
	return errors.Join(errs...)
}

// askable reports whether an ambient variable of this name can be asked for.
func askable(name string) bool { return !strings.ContainsAny(name, "=*\x00 \t\r\n") }

// parse splits the ambient entries, keeps the last of each name, and sorts them.
func (b *builder) parse(ambient []string) []variable {
	vars := make([]variable, 0, len(ambient))
	malformed, nul := 0, 0
	for _, e := range ambient {
		i := strings.IndexByte(e, '=')
		switch {
		case i == 0 && b.windows:
			// "=C:=C:\dir", the working directory of a drive
		case i <= 0:
			malformed++
		case strings.IndexByte(e, 0) >= 0:
			nul++
		default:
			vars = append(vars, variable{b.spell(e[:i]), e[i+1:], len(vars)})
		}
	}
	// Neither has a name that could be shown without the risk of showing more.
	if malformed > 0 {
		b.note("ignoring "+count(malformed, "entry", "entries")+" of the environment without a name and \"=\"", "", plan.Origin{Text: "environment"})
	}
	if nul > 0 {
		b.note("ignoring "+count(nul, "entry", "entries")+" of the environment with a NUL byte", "", plan.Origin{Text: "environment"})
	}
	slices.SortFunc(vars, func(x, y variable) int {
		if c := b.compare(x.name, y.name); c != 0 {
			return c
		}
		return x.place - y.place
	})
	out := vars[:0]
	for i, v := range vars {
		if i+1 < len(vars) && b.same(vars[i+1].name, v.name) {
			continue
		}
		out = append(out, v)
	}
	return out
}

// lookup finds an ambient variable; its value is "" when there is none.
func (b *builder) lookup(name string) (string, bool) {
	i, ok := slices.BinarySearchFunc(b.ambient, name, func(v variable, n string) int { return b.compare(v.name, n) })
	if !ok {
		return "", false
	}
	return b.ambient[i].value, true
}

func (b *builder) find(name string) (int, bool) {
	return slices.BinarySearchFunc(b.env, name, func(v plan.EnvVar, n string) int { return b.compare(v.Name, n) })
}

// put sets a variable, replacing what an earlier step decided.
func (b *builder) put(v plan.EnvVar) {
	v.Name = b.spell(v.Name)
	i, ok := b.find(v.Name)
	if ok {
		b.env[i] = v
		return
	}
	b.env = slices.Insert(b.env, i, v)
}

func (b *builder) note(text, hint string, o plan.Origin) {
	b.notices = append(b.notices, plan.Notice{Text: text, Hint: hint, Origin: o})
}

// scrub decides about every ambient name. As they are sorted, env and dropped
// are too.
func (b *builder) scrub() {
	if !b.active && len(b.p.Deny) > 0 {
		b.note("the deny list has no effect while scrub is off", "use deny-secrets or strict", ruleOrigin(b.p.Deny[0]))
	}
	path := false
	starred := make([][]string, len(b.p.Allow)) // guarded names that a pattern did not admit
	for _, v := range b.ambient {
		switch {
		case b.decides(v.name):
			continue // set by fixed
		case v.name == "PATH" && b.active:
			b.path(v.value)
			path = true
			continue
		}
		d := b.decide(v)
		if d.star >= 0 {
			starred[d.star] = append(starred[d.star], v.name)
		}
		if d.drop {
			b.dropped = append(b.dropped, plan.EnvDrop{Name: v.name, Reason: d.reason})
			continue
		}
		if b.in.TmpDir != "" && (v.name == "TEMP" || v.name == "TMP") {
			b.temps = append(b.temps, v.name) // set by fixed
			continue
		}
		b.env = append(b.env, plan.EnvVar{Name: v.name, Value: d.value, Reason: d.reason, Origin: d.origin})
	}
	for i, names := range starred {
		if len(names) > 0 {
			r := b.p.Allow[i]
			b.note("the pattern "+quote(r.Pattern.text)+" does not admit "+list(names)+": credentials, loader variables and sockets cross only when named",
				"name each one that the command needs", ruleOrigin(r))
		}
	}
	if b.active && !path {
		b.path("")
	}
}

// A decision is the fate of one ambient variable.
type decision struct {
	drop   bool
	value  string
	reason string
	origin plan.Origin
	star   int // index of the Allow rule that would have admitted it were it not guarded, or -1
}

func drop(reason string) decision { return decision{drop: true, reason: reason, star: -1} }

func (b *builder) decide(v variable) decision {
	value, removed := v.value, false
	if !b.p.KeepFDs {
		if isDescriptor(v.name) {
			return drop("names a descriptor that is closed in the box")
		}
		if isMakeFlags(v.name) {
			if value, removed = dropJobserver(value); removed && value == "" {
				return drop("names a jobserver whose descriptors are closed in the box")
			}
		}
	}
	d := b.admit(v.name, value)
	if removed && !d.drop {
		d.reason += ", without the jobserver"
	}
	d.value = value
	return d
}

// admit applies the mode.
func (b *builder) admit(name, value string) decision {
	if !b.active {
		return decision{reason: "off: everything crosses", origin: b.mode, star: -1}
	}
	if prefix := b.controlPrefix(name); prefix != "" {
		return drop("control plane: " + prefix + "*")
	}
	if r := b.denied(name); r != nil {
		return drop("deny: " + r.Pattern.text)
	}
	if isCallerState(name) {
		return drop("describes the caller's shell")
	}
	exact, star, open := b.allowed(name)
	if b.p.Mode == ModeDenySecrets {
		return b.admitUnlessSecret(name, value, exact)
	}
	inTable := b.p.Base.inTable(name) || b.windows && windowsNeed(name)
	if inTable && strings.HasPrefix(name, "LC_") && exact < 0 && open < 0 {
		// LC_* is a pattern too, and ssh's AcceptEnv makes it a popular place
		// to carry other things in.
		if g, _ := guardOf(name, value); g != guardNone {
			return drop("strict: " + g.text() + " and is not allowed by name")
		}
	}
	if inTable {
		return decision{reason: b.table, origin: b.base, star: -1}
	}
	if exact >= 0 {
		return b.admitExact(name, value, exact)
	}
	if star < 0 {
		return drop(b.absent)
	}
	if g, _ := guardOf(name, value); g != guardNone {
		if open < 0 {
			d := drop("strict: " + g.text() + " and is not allowed by name")
			d.star = star
			return d
		}
		star = open
	}
	r := b.p.Allow[star]
	return decision{reason: "allow: " + r.Pattern.text, origin: orDefault(ruleOrigin(r)), star: -1}
}

func (b *builder) admitUnlessSecret(name, value string, exact int) decision {
	g, p := guardOf(name, value)
	switch {
	case g == guardNone:
		return decision{reason: "deny-secrets: not denied", origin: b.mode, star: -1}
	case exact < 0:
		if p.text != "" {
			return drop("deny-secrets: " + p.text)
		}
		return drop("deny-secrets: " + g.text())
	}
	if shape := firstMatch(secretShapes[:], toUpper(name)); shape.text != "" {
		b.note("allow cannot admit "+quoteName(name)+" under deny-secrets: it has the name of a credential",
			"use pass, or scrub = \"strict\"", ruleOrigin(b.p.Allow[exact]))
		return drop("deny-secrets: " + shape.text)
	}
	return b.admitExact(name, value, exact)
}

// admitExact admits a name that Allow has in full and warns when it does more
// than carry data.
func (b *builder) admitExact(name, value string, rule int) decision {
	r := b.p.Allow[rule]
	b.warn(name, value, ruleOrigin(r))
	return decision{reason: "allow: " + r.Pattern.text, origin: orDefault(ruleOrigin(r)), star: -1}
}

// warn tells of a variable that was asked for by name and that is not only data.
func (b *builder) warn(name, value string, o plan.Origin) {
	switch g, _ := guardOf(name, value); {
	case g == guardSocket:
		b.note(quoteName(name)+" "+g.text(), "grant the socket's path as well", o)
	case isLoader(toUpper(name)):
		b.note(quoteName(name)+" "+guardLoader.text(), "", o)
	case name == "PATH":
		if _, n := b.cleanPath(value); n > 0 {
			b.note("PATH has "+count(n, "entry", "entries")+" that mean the working directory", "use absolute directories", o)
		}
	}
}

// allowed gives the first rules of Allow that match, -1 for none: an exact one,
// one with a star, and one with a star that admits guarded names.
func (b *builder) allowed(name string) (exact, star, open int) {
	exact, star, open = -1, -1, -1
	for i, r := range b.p.Allow {
		if !b.matches(r.Pattern, name, false) {
			continue
		}
		switch {
		case r.Pattern.Exact():
			if exact < 0 {
				exact = i
			}
			continue
		case open < 0 && r.Guarded:
			open = i
		}
		if star < 0 {
			star = i
		}
	}
	return exact, star, open
}

// denied gives the first rule of Deny that matches, nil for none.
func (b *builder) denied(name string) *Rule {
	for i := range b.p.Deny {
		if b.matches(b.p.Deny[i].Pattern, name, true) {
			return &b.p.Deny[i]
		}
	}
	return nil
}

// controlPrefix gives the control plane prefix that name has, "" for none.
func (b *builder) controlPrefix(name string) string {
	if hasPrefixFold(name, "WALL_") {
		return "WALL_"
	}
	for _, p := range b.p.ControlPrefixes {
		if hasPrefixFold(name, p) || b.windows && strings.HasPrefix(foldName(name), foldName(p)) {
			return p
		}
	}
	return ""
}

// path puts PATH while a scrub is active.
func (b *builder) path(ambient string) {
	if r := b.denied("PATH"); r != nil {
		b.put(plan.EnvVar{Name: "PATH", Value: b.defaultPath(), Reason: "base: default search path, the ambient one is denied", Origin: orDefault(ruleOrigin(*r))})
		return
	}
	value, removed := b.cleanPath(ambient)
	if removed > 0 {
		b.note("removed "+count(removed, "entry", "entries")+" from PATH that are empty or relative, because they mean the working directory",
			"use absolute directories", plan.Origin{Text: "environment"})
	}
	v := plan.EnvVar{Name: "PATH", Value: value, Reason: "base: always", Origin: b.base}
	if value == "" {
		v.Value, v.Reason = b.defaultPath(), "base: default search path"
	}
	b.put(v)
}

func (b *builder) defaultPath() string {
	if b.windows {
		root, _ := b.lookup("SystemRoot")
		return windowsPath(root)
	}
	return DefaultPath
}

// cleanPath removes the entries of a search path that are not absolute, and
// counts them. An empty path has none.
func (b *builder) cleanPath(value string) (string, int) {
	if b.windows {
		return cleanPath(splitWindowsPath(value), ";", windowsAbs)
	}
	return cleanPath(strings.Split(value, ":"), ":", func(e string) bool { return strings.HasPrefix(e, "/") })
}

func cleanPath(entries []string, separator string, abs func(string) bool) (string, int) {
	if len(entries) == 1 && entries[0] == "" {
		return "", 0
	}
	kept := entries[:0]
	for _, e := range entries {
		if abs(e) {
			kept = append(kept, e)
		}
	}
	return strings.Join(kept, separator), len(entries) - len(kept)
}

// derive adds the toolchain locations of the base that the caller has not set.
// While a scrub is active an empty one is not set: it would be a path relative
// to the working directory.
func (b *builder) derive() {
	if !b.p.Base.derives() && !(b.windows && b.p.Base == BaseGate) {
		return
	}
	home := b.accountHome()
	for _, l := range locations {
		value, ok := b.lookup(l.name)
		if ok && (value != "" || !b.active) {
			continue // it crossed or was dropped by rule
		}
		if i, ok := b.find(l.name); ok {
			b.env = slices.Delete(b.env, i, i+1)
			b.drop(l.name, "base: empty counts as not set")
		}
		dir := b.join(home, l.sub)
		if b.active && b.denied(l.name) != nil || home == "" || !b.isDir(dir) {
			continue
		}
		b.put(plan.EnvVar{Name: l.name, Value: dir, Reason: "base: ~/" + l.sub + " exists", Origin: b.base})
	}
}

// drop records a name that scrub had admitted.
func (b *builder) drop(name, reason string) {
	i, _ := slices.BinarySearchFunc(b.dropped, name, func(d plan.EnvDrop, n string) int { return b.compare(d.Name, n) })
	b.dropped = slices.Insert(b.dropped, i, plan.EnvDrop{Name: name, Reason: reason})
}

// accountHome gives the operator's home: of the account record, and only
// without one what the environment says.
func (b *builder) accountHome() string {
	home, variable := b.in.AccountHome, "HOME"
	if b.windows {
		variable = "USERPROFILE"
	}
	if home == "" {
		home, _ = b.lookup(variable)
	}
	if !b.abs(home) {
		return ""
	}
	return home
}

func (b *builder) abs(path string) bool {
	if b.windows {
		return windowsAbs(path)
	}
	return strings.HasPrefix(path, "/")
}

// join gives a path below dir; the parts of sub are separated by "/".
func (b *builder) join(dir, sub string) string {
	if b.windows {
		return strings.TrimRight(dir, `\/`) + `\` + strings.ReplaceAll(sub, "/", `\`)
	}
	return strings.TrimSuffix(dir, "/") + "/" + sub
}

func (b *builder) isDir(path string) bool {
	info, ok := b.stat(path)
	return ok && info.IsDir()
}

func (b *builder) stat(path string) (fs.FileInfo, bool) {
	name := strings.TrimPrefix(path, "/")
	if b.windows {
		name = strings.ReplaceAll(path, `\`, "/")
	}
	if b.in.FS == nil || !fs.ValidPath(name) {
		return nil, false
	}
	info, err := fs.Stat(b.in.FS, name)
	return info, err == nil
}

// refused reports whether wall keeps a name from being asked for, and says so.
func (b *builder) refused(n Name, what string) bool {
	switch {
	case b.managed(n.Name):
		b.note("ignoring "+what+" "+quoteName(n.Name)+": wall decides that variable", "use --env to give it a value", nameOrigin(n))
		return true
	case !b.active:
		return false
	case b.controlPrefix(n.Name) != "":
		b.note("ignoring "+what+" "+quoteName(n.Name)+": it belongs to the control plane", "", nameOrigin(n))
		return true
	}
	if r := b.denied(n.Name); r != nil {
		b.note("ignoring "+what+" "+quoteName(n.Name)+": denied by "+quote(r.Pattern.text), "", nameOrigin(n))
		return true
	}
	return false
}

func (b *builder) managed(name string) bool {
	for _, m := range managed {
		if equal(m, name, true) {
			return true
		}
	}
	for _, m := range b.p.Managed {
		if equal(m, name, true) {
			return true
		}
	}
	for _, a := range b.p.Fixed {
		if equal(a.Name, name, true) {
			return true
		}
	}
	return false
}

// pass adds the ambient variables that were asked for by name.
func (b *builder) pass() {
	for _, n := range b.p.Pass {
		n.Name = strings.TrimSpace(n.Name)
		if n.Name == "" || b.refused(n, "the pass-through of") {
			continue
		}
		value, ok := b.lookup(n.Name)
		name := b.spell(n.Name)
		if !ok {
			b.note("the pass-through variable "+quoteName(n.Name)+" is not set", "", nameOrigin(n))
			continue
		}
		if !b.p.KeepFDs {
			if isDescriptor(name) {
				b.note("ignoring the pass-through of "+quoteName(n.Name)+": it names a descriptor that is closed in the box", "keep the descriptor with --fd", nameOrigin(n))
				continue
			}
			if isMakeFlags(name) {
				value, _ = dropJobserver(value)
			}
		}
		b.warn(name, value, nameOrigin(n))
		b.put(plan.EnvVar{Name: name, Value: value, Reason: "pass", Origin: orDefault(nameOrigin(n))})
	}
}

// operations adds what a workspace gate needs to reach its sources: after Pass
// and Set, so that what a repository asks for cannot redirect it.
func (b *builder) operations() {
	if b.p.Base != BaseWorkspace {
		return
	}
	add := func(name, value, reason string) {
		if value != "" && (!b.active || b.denied(name) == nil) {
			b.put(plan.EnvVar{Name: name, Value: value, Reason: reason, Origin: b.base})
		}
	}
	for _, name := range operational {
		value, _ := b.lookup(name)
		add(name, value, "base: workspace operations")
	}
	home := b.accountHome()
	config, _ := b.lookup("GIT_CONFIG_GLOBAL")
	candidates := []string{config}
	if dir, _ := b.lookup("XDG_CONFIG_HOME"); dir != "" {
		candidates = append(candidates, b.join(dir, "git/config"))
	}
	if home != "" {
		candidates = append(candidates, b.join(home, ".config/git/config"), b.join(home, ".gitconfig"))
	}
	for _, c := range candidates {
		if info, ok := b.stat(c); b.abs(c) && ok && !info.IsDir() {
			add("GIT_CONFIG_GLOBAL", c, "base: first git configuration that exists")
			return
		}
	}
}

// auth adds the one credential variable, when it has a value.
func (b *builder) auth() {
	n := b.p.Auth
	value, _ := b.lookup(n.Name)
	if n.Name == "" || value == "" || b.refused(n, "the credential variable") {
		return
	}
	b.warn(b.spell(n.Name), value, nameOrigin(n))
	b.put(plan.EnvVar{Name: n.Name, Value: value, Reason: "auth", Origin: orDefault(nameOrigin(n))})
}

// assign overlays values, in order.
func (b *builder) assign(list []Assign, reason string) {
	flags := reason == "flag --env"
	for _, a := range list {
		o := orDefault(assignOrigin(a))
		if !flags && b.overridden(a.Name) {
			b.note("ignoring the value of "+a.Name+" in "+reason+": wall decides that variable", "use --env", o)
			continue
		}
		b.warn(a.Name, a.Value, o)
		b.put(plan.EnvVar{Name: a.Name, Value: a.Value, Reason: reason, Origin: o})
	}
}

// extra overlays what an engine built itself: after everything, verbatim. Only
// the credential variable, when it has a value, is not taken from it.
func (b *builder) extra() {
	auth := ""
	if i, ok := b.find(b.p.Auth.Name); ok && b.env[i].Reason == "auth" {
		auth = b.p.Auth.Name
	}
	for _, a := range b.p.Extra {
		if auth != "" && b.same(a.Name, auth) {
			continue
		}
		o := orDefault(assignOrigin(a))
		b.warn(b.spell(a.Name), a.Value, o)
		b.put(plan.EnvVar{Name: a.Name, Value: a.Value, Reason: "extra", Origin: o})
	}
}

// decides reports whether the step fixed sets the name whatever the ambient one
// is. name is spelled as this package spells it.
func (b *builder) decides(name string) bool {
	switch name {
	case "HOME":
		return b.in.Home != ""
	case "USERPROFILE":
		return b.in.Home != "" && b.windows
	case "APPDATA", "LOCALAPPDATA":
		return b.in.Home != "" && b.redirects()
	case "TMPDIR":
		return b.in.TmpDir != ""
	}
	return false
}

// overridden reports whether the step fixed gives the name its own value.
func (b *builder) overridden(name string) bool {
	name = b.spell(name)
	if b.decides(name) || b.in.TmpDir != "" && (name == "TMP" || name == "TEMP") {
		return true
	}
	return slices.ContainsFunc(b.p.Fixed, func(a Assign) bool { return b.same(a.Name, name) })
}

// redirects reports whether the places of a Windows profile below the home are
// set: for a home that is not the operator's.
func (b *builder) redirects() bool {
	return b.windows && (b.in.ScratchHome || b.p.Base.derives())
}

// fixed sets what the box decides.
func (b *builder) fixed() {
	if b.in.Home != "" {
		reason := "fixed: home"
		if b.in.ScratchHome {
			reason = "fixed: scratch home"
		}
		set := func(name, value string) {
			b.put(plan.EnvVar{Name: name, Value: value, Reason: reason, Origin: plan.Origin{Text: "default"}})
		}
		set("HOME", b.in.Home)
		if b.windows {
			set("USERPROFILE", b.in.Home)
		}
		if b.redirects() {
			set("APPDATA", b.join(b.in.Home, "AppData/Roaming"))
			set("LOCALAPPDATA", b.join(b.in.Home, "AppData/Local"))
		}
	}
	if b.in.TmpDir != "" {
		names := append(b.temps, "TMPDIR")
		if b.windows || b.p.Base.setsTemp() {
			names = append(names, "TEMP", "TMP")
		}
		for _, name := range names {
			b.put(plan.EnvVar{Name: name, Value: b.in.TmpDir, Reason: "fixed: temporary directory", Origin: plan.Origin{Text: "default"}})
		}
	}
	for _, a := range b.p.Fixed {
		b.put(plan.EnvVar{Name: a.Name, Value: a.Value, Reason: "fixed", Origin: orDefault(assignOrigin(a))})
	}
}

// atLine gives an origin that is safe to show. A line of a file may also hold
// values that are set, so what is shown of it is only the part in question.
func atLine(o plan.Origin, part string) plan.Origin {
	if o.File != "" {
		o.Text = part
	}
	return o
}

func ruleOrigin(r Rule) plan.Origin { return atLine(r.Origin, r.Pattern.text) }

func nameOrigin(n Name) plan.Origin {
	name, _, mistaken := strings.Cut(n.Name, "=")
	o := atLine(n.Origin, name)
	if mistaken {
		o.Text, _, _ = strings.Cut(o.Text, "=")
	}
	return o
}

// assignOrigin gives the origin of a value without the value: of a flag, the text
// up to the value.
func assignOrigin(a Assign) plan.Origin {
	o := a.Origin
	name, _, _ := strings.Cut(a.Name, "=")
	switch i := strings.Index(o.Text, name); {
	case o.File != "":
		o.Text = name
	case o.Text == "" || o.Text == "default":
	case i < 0:
		o.Text = name
	default:
		cut := o.Text[:i+len(name)]
		if len(cut) < len(o.Text) {
			cut += "=..."
		}
		o.Text = cut
	}
	return o
}

// quoteName gives a name for a message: what may follow a "=" by mistake is cut
// off, odd names are quoted, long ones shortened.
func quoteName(s string) string {
	s, _, _ = strings.Cut(s, "=")
	return quote(s)
}

func quote(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	if ValidName(s) {
		return s
	}
	return strconv.Quote(s)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// list names at most a few.
func list(names []string) string {
	const most = 5
	var b strings.Builder
	for i, n := range names {
		if i == most {
			b.WriteString(" and " + strconv.Itoa(len(names)-most) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoteName(n))
	}
	return b.String()
}
