package profile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// The values of base and scrub in the table [environment], as envscrub knows them.
var (
	envBases  = []string{string(envscrub.BaseSession), string(envscrub.BaseContract), string(envscrub.BaseGate), string(envscrub.BaseShell), string(envscrub.BaseTerminal)}
	envScrubs = []string{string(envscrub.ModeStrict), string(envscrub.ModeDenySecrets), string(envscrub.ModeOff)}
)

// Sizes of the memory file systems that wall makes, in bytes. The kernel's
// default is half of the memory for each, which one run should not be able to
// take several times over.
const (
	skeletonSize = 1 << 20 // directories and links only
	runSize      = 64 << 20
	shmSize      = 1 << 30
	tmpSize      = 2 << 30 // tmp = "memory", each of /tmp and /var/tmp
)

// bug marks an error that no user input should be able to cause.
func bug(err error) error {
	return &plan.Error{Op: "wall bug", Err: err, Hint: "please report this with the command line and the profile"}
}

// Resolve makes the plan for one run. It is pure: everything it knows comes
// from h and o, and the same input gives the same plan.
//
// The error joins *plan.Error values; plan.ExitStatus gives the exit status:
// 127 when the command was not found, 126 when it cannot be executed, else 125.
// A protection that the host cannot give is an error that matches
// errors.ErrUnsupported, or an entry of Plan.Degraded when the profile says
// if-unavailable = "degrade" and does not require that wall. A missing user
// namespace is always an error: no wall of this version stands without one.
func Resolve(h Host, o Options) (plan.Plan, error) {
	p, _, err := ResolveStack(h, o)
	return p, err
}

type resolver struct {
	h  Host
	o  Options
	t  *tree
	st *Stack
	s  settings
	b  *builder
	at places
	p  plan.Plan

	layers    []Layer                     // lowest first; the command line is the last
	profiles  []string                    // paths of the profile files that were read, free of links
	stored    []envscrub.Assign           // the injected variables
	from      map[string]plan.ValueSource // where values of variables are fetched
	fetch     []fetched                   // the files of from
	programs  []Item[Var]                 // those of from that are programs
	protected []Item[string]              // of the key protect, groups expanded
	git       Item[string]                // the element that asks for git's files to be protected; V is "" when none does
	pwd       string                      // working directory as the command should see it in PWD
	home      located                     // of the account
	cacheVars []cacheVar                  // lead tools to their private caches
	required  map[plan.Wall]plan.Origin   // walls that must not be degraded, and which line says so
}

func (r *resolver) resolve() (plan.Plan, error) {
	if !r.o.NoCommand && (len(r.o.Command) == 0 || r.o.Command[0] == "") {
		return plan.Plan{}, &plan.Error{Op: "there is no command to run", Hint: "write it behind --, for example: wall run -- make test"}
	}
	for i, a := range r.o.Command {
		if strings.IndexByte(a, 0) >= 0 {
			return plan.Plan{}, &plan.Error{Op: fmt.Sprintf("argument %d of the command contains a NUL byte", i)}
		}
	}
	st, err := load(r.h, r.o, r.t)
	if err != nil {
		return plan.Plan{}, err
	}
	if err := st.Err(); err != nil {
		return plan.Plan{}, err
	}
	r.st, r.s, r.at, r.pwd, r.layers = st, st.s, st.at, st.pwd, st.layers
	for _, l := range st.layers {
		if l.Path != "" {
			r.profiles = append(r.profiles, l.Path)
		}
	}
	r.protected = expandGroups(r.s.Protect.Items)
	if i := slices.IndexFunc(r.protected, func(it Item[string]) bool { return it.V == gitGroup }); i >= 0 {
		r.git = r.protected[i]
	}
	if r.at.home != "" {
		r.home = r.t.walk(r.at.home)
	}
	// A profile that turns the walls off may itself come from such a workspace.
	if f := st.layers[len(st.layers)-1]; r.s.Enforce.V != string(plan.EnforceOff) || f.Kind != LayerFlags || !f.File.Enforce.Set {
		if err := r.saneWorkspace(r.at.workspace, r.s.workspaceDir.Origin); err != nil {
			return plan.Plan{}, err
		}
	}

	r.p = plan.Plan{
		Version:  plan.Version,
		Profile:  r.s.name,
		Enforce:  plan.Enforce(r.s.Enforce.V),
		Command:  plan.Command{Dir: r.at.cwd},
		Identity: plan.Identity{UID: r.h.UID, GID: r.h.GID},
		Stdio:    slices.Clone(r.h.Stdio),
		KeepFDs:  slices.Compact(slices.Sorted(slices.Values(r.o.KeepFDs))),
	}
	r.p.Notices = append(st.ignored(), st.notices...)
	r.b = newBuilder(r.t)
	r.b.workspace, r.b.cwd = r.at.workspace, r.at.cwd
	if r.stored, err = r.injected(); err != nil {
		return plan.Plan{}, err
	}
	errs := []error{r.terminal()}
	if r.p.Enforce == plan.EnforceOff {
		errs = append(errs, r.sources())
	} else {
		errs = append(errs, r.available(), r.network())
		r.spaces()
		if err := r.files(); err != nil {
			return plan.Plan{}, errors.Join(append(errs, err)...)
		}
		errs = append(errs, r.filter())
		r.landlock()
		errs = append(errs, r.hostPorts())
		r.limits()
		r.checks()
	}
	errs = append(errs, r.bounds())
	errs = append(errs, r.environment())
	if err := errors.Join(errs...); err != nil {
		return plan.Plan{}, err
	}
	if r.o.NoCommand {
		return r.p, nil
	}
	if err := r.command(); err != nil {
		return plan.Plan{}, err
	}
	return r.p, nil
}

// terminal decides about the terminals among descriptors 0 to 2. A private one is
// possible where the command would read from the caller's: wall then reads from
// it. Otherwise nobody may, and the command gets what there is.
func (r *resolver) terminal() error {
	is := func(s plan.Stdio) bool { return s.Kind == plan.StdioTTY }
	onStdin := slices.ContainsFunc(r.h.Stdio, func(s plan.Stdio) bool { return s.FD == 0 && is(s) })
	mode := r.s.TTY
	switch {
	case r.p.Enforce == plan.EnforceOff:
		r.p.TTY = plan.TTYInherit
	case mode.V == "pty" && !onStdin && !r.o.NoCommand:
		return &plan.Error{Op: "cannot give the command a private terminal", Origin: mode.Origin, Err: errors.New("standard input is no terminal"),
			Hint: `with process.tty = "auto" it has one where standard input is a terminal`}
	case mode.V == "auto" && onStdin, mode.V == "pty":
		r.p.TTY = plan.TTYPrivate
	case mode.V == "none", mode.V == "auto" && !slices.ContainsFunc(r.h.Stdio, is):
		r.p.TTY = plan.TTYNone
	default:
		r.p.TTY = plan.TTYInherit
	}
	return nil
}

// lookup gives the last value of a variable, as a program would see it.
func lookup(environ []string, name string) string {
	for i := len(environ) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(environ[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// ours are the trees that wall makes anew, in which nothing of the host can be
// granted or be the workspace.
var ours = []string{"/proc", "/sys", "/dev"}

// systemDirs are never a workspace: the whole system would be writable to root.
var systemDirs = []string{"/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/run", "/sbin", "/usr", "/var"}

// ErrWorkspace matches the error of Resolve for a directory that is no workspace,
// such as the home directory or /.
var ErrWorkspace = errors.New("not a workspace")

// unfit says why a directory is no workspace; it matches ErrWorkspace.
type unfit string

func (u unfit) Error() string        { return string(u) }
func (u unfit) Is(target error) bool { return target == ErrWorkspace }

func (r *resolver) saneWorkspace(ws string, o plan.Origin) error {
	const choose = "change to the project, or name it with --workspace"
	fail := func(why, hint string) error {
		return &plan.Error{Op: "cannot use " + quote(ws) + " as the workspace", Origin: o, Hint: hint, Err: unfit("it " + why)}
	}
	if ws == "/" {
		return fail("is the whole file system", choose)
	}
	for _, d := range ours {
		if within(ws, d) {
			return fail("lies in "+d+", which wall makes anew", choose)
		}
	}
	if r.home.exists() && !r.s.allowHome {
		switch {
		case ws == r.home.path:
			return fail("is the home directory", choose+"; --allow-home-workspace permits it")
		case below(r.home.path, ws):
			return fail("contains the home directory", choose+"; --allow-home-workspace permits it")
		}
	}
	if slices.Contains(systemDirs, ws) {
		return fail("is a system directory", choose)
	}
	return nil
}

func wantDir(l located) error {
	switch {
	case l.err != nil:
		return l.err
	case l.missing != "":
		return errMissing
	case !l.mode.IsDir():
		return errNotDir
	}
	return nil
}

// available answers for every wall whether the host can build it.
func (r *resolver) available() error {
	r.required = map[plan.Wall]plan.Origin{}
	for _, w := range r.s.Require.Items {
		r.required[plan.Wall(w.V)] = w.Origin
	}
	var errs []error
	if err := r.h.Namespaces; err != nil {
		errs = append(errs, &plan.Error{Op: "cannot make the box: wall needs user namespaces", Err: unsupported(err),
			Hint: "run \"wall doctor\"; usual causes are an AppArmor or sysctl restriction of unprivileged user namespaces, or a container's seccomp filter"})
	}
	lost := func(wall plan.Wall, what string, o plan.Origin, cause error, hint string) {
		if err := r.lost(wall, what, o, cause, hint); err != nil {
			errs = append(errs, err)
		}
	}
	const newer = "use a newer kernel, or turn Landlock on with the boot parameter lsm=landlock,..."
	switch abi := r.h.LandlockABI; {
	case abi == 0:
		cause := r.h.LandlockErr
		if cause == nil {
			cause = &plan.UnsupportedError{Feature: "Landlock", Need: "ABI 1 (Linux 5.13)"}
		}
		lost(plan.WallLandlock, "file rules are enforced by mounts alone, and files made on the host after the start are not hidden", r.s.IfUnavailable.Origin, cause, newer)
		if r.s.Network.V == "host" {
			lost(plan.WallLandlock, "abstract Unix sockets of the host can be reached", r.s.Network.Origin, cause, newer)
		}
	default:
		have := "ABI " + strconv.Itoa(abi)
		if abi < 6 && r.s.Network.V == "host" {
			lost(plan.WallLandlock, "abstract Unix sockets of the host can be reached", r.s.Network.Origin,
				&plan.UnsupportedError{Feature: "Landlock scope for abstract sockets", Need: "ABI 6 (Linux 6.12)", Have: have}, newer+"; or use --net none")
		}
		if abi < 2 {
			r.p.Notices = append(r.p.Notices, plan.Notice{Origin: def,
				Text: "with Landlock ABI 1 no file can be renamed or linked from one directory into another, not even in the workspace",
				Hint: "cargo, npm and git need Linux 5.19 or newer"})
		}
		if abi < 3 {
			r.p.Notices = append(r.p.Notices, plan.Notice{Origin: def,
				Text: "with Landlock " + have + " truncating a file is refused by read-only mounts alone, not by Landlock as well"})
		}
	}
	if err := r.h.SeccompErr; err != nil {
		lost(plan.WallSyscalls, "system calls are not filtered", r.s.Seccomp.Origin, err, "run \"wall doctor\" to see what is missing")
	}
	return errors.Join(errs...)
}

// lost says that the host cannot give what was asked for: an error, or a line of
// Degraded where that is allowed.
func (r *resolver) lost(wall plan.Wall, what string, o plan.Origin, cause error, hint string) error {
	by, required := r.required[wall]
	if r.s.IfUnavailable.V == "degrade" && !required {
		r.p.Degraded = append(r.p.Degraded, plan.Degraded{Wall: wall, Lost: what, Cause: cause.Error(), Origin: o})
		return nil
	}
	if required {
		o = by
		hint += "; the profile requires this wall"
	} else {
		hint += "; or allow it with --if-unavailable degrade"
	}
	return &plan.Error{Op: "cannot keep a promise of the profile: " + what, Origin: o, Hint: hint, Err: unsupported(cause)}
}

// unsupported makes an error match errors.ErrUnsupported.
func unsupported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return unavailable{err}
}

type unavailable struct{ err error }

func (u unavailable) Error() string        { return u.err.Error() }
func (u unavailable) Unwrap() error        { return u.err }
func (u unavailable) Is(target error) bool { return target == errors.ErrUnsupported }

func (r *resolver) spaces() {
	kinds := []plan.SpaceKind{plan.SpaceUser, plan.SpaceMount, plan.SpacePID, plan.SpaceNet, plan.SpaceIPC, plan.SpaceUTS, plan.SpaceCgroup}
	for _, k := range kinds {
		o := r.s.Enforce.Origin
		if k == plan.SpaceNet {
			if !r.ownNetwork() {
				continue
			}
			o = r.s.Network.Origin
		}
		r.p.Spaces = append(r.p.Spaces, plan.Space{Kind: k, Origin: o})
	}
}

// filter chooses the system call filter.
func (r *resolver) filter() error {
	if r.h.SeccompErr != nil {
		return nil // told by available
	}
	s := r.s.Seccomp
	if s.V == "default" || s.V == "strict" {
		r.p.Seccomp = plan.Seccomp{Profile: s.V, Origin: s.Origin}
		if r.s.Nested.V {
			r.p.Seccomp.Profile += "-nested"
			r.p.Seccomp.Origin = r.s.Nested.Origin
		}
		return nil
	}
	fail := func(hint string, err error) error {
		return &plan.Error{Op: "cannot use the system call filter " + quote(s.V), Origin: s.Origin, Hint: hint, Err: err}
	}
	dir := r.s.seccompDir
	if dir == "" {
		dir = r.h.Cwd
	}
	p, err := r.at.expand(s.V, dir)
	if err != nil {
		return fail("", err)
	}
	data, l, err := r.t.readFile(p, maxFilterFile)
	if err != nil {
		return fail("", err)
	}
	at := l.path
	if within(at, r.at.workspace) {
		return fail("move the file out of the workspace", errors.New("it lies in the workspace, and what the command can write cannot be policy"))
	}
	if err := r.fixed(l, nil); err != nil {
		return fail("name the file by a path that no command can change", err)
	}
	if r.changeable(at) {
		return fail("move the file to where the command cannot write", errors.New("the command can write it, and what it can write cannot be policy"))
	}
	if r.o.CustomFilter == nil {
		return fail("use \"default\" or \"strict\"", &plan.UnsupportedError{Feature: "compiling a filter file", Need: "a build with libseccomp"})
	}
	prog, err := r.o.CustomFilter(at, data)
	if err != nil {
		return fail("", err)
	}
	r.p.Seccomp = plan.Seccomp{Profile: at, Program: prog, Origin: s.Origin}
	if r.s.Nested.V {
		r.p.Notices = append(r.p.Notices, plan.Notice{Origin: r.s.Nested.Origin,
			Text: "nested-sandboxes changes nothing with a filter file", Hint: "allow clone and unshare in the file"})
	}
	return nil
}

func (r *resolver) landlock() {
	abi := r.h.LandlockABI
	if abi == 0 {
		return
	}
	r.p.Landlock = plan.Landlock{
		ABI:   abi,
		Rules: r.b.rules(),
		Stdio: true,
		// Linux 6.12. With an older kernel signals stay inside by the pid
		// namespace and abstract sockets by the network namespace.
		Signals:  abi >= 6,
		Abstract: abi >= 6,
	}
}

func (r *resolver) limits() {
	r.p.Limits = append(r.p.Limits, plan.Limit{Name: plan.LimitCore, Value: 0, Origin: r.s.Core.Origin})
	if v := r.s.OpenFiles; v.Set {
		r.p.Limits = append(r.p.Limits, plan.Limit{Name: plan.LimitNoFile, Value: v.V, Origin: v.Origin})
	}
	if v := r.s.FileSize; v.Set {
		r.p.Limits = append(r.p.Limits, plan.Limit{Name: plan.LimitFSize, Value: v.V, Origin: v.Origin})
	}
}

// maxChecks bounds each kind of file self-test; they cost a few microseconds each.
const maxChecks = 8

func (r *resolver) checks() {
	add := func(op plan.CheckOp, p string, o plan.Origin) {
		r.p.Checks = append(r.p.Checks, plan.Check{Op: op, Path: p, Origin: o})
	}
	for _, s := range r.p.Spaces {
		add(plan.CheckSpace, string(s.Kind), s.Origin)
	}
	add(plan.CheckNoCaps, "", def)
	add(plan.CheckNoNewPrivs, "", def)
	if r.p.Seccomp.Profile != "" {
		add(plan.CheckSeccomp, "", r.p.Seccomp.Origin)
	}
	add(plan.CheckNoSignal, "", def)
	add(plan.CheckNoMount, "", def)
	if r.ownNetwork() {
		add(plan.CheckNoRoute, "", r.s.Network.Origin)
	}
	add(plan.CheckUnwritable, "/"+checkFile, r.s.View.Origin)
	if r.home.exists() && r.s.Home.V == "read-only" && r.b.at(r.home.path).access == plan.AccessRead {
		add(plan.CheckUnwritable, join(r.home.path, checkFile), r.s.Home.Origin)
	}
	if r.b.at(r.at.workspace).access == plan.AccessRead {
		add(plan.CheckUnwritable, join(r.at.workspace, checkFile), r.s.Workspace.Origin)
	}
	r.p.Checks = append(r.p.Checks, r.b.unreadable[:min(maxChecks, len(r.b.unreadable))]...)
	r.p.Checks = append(r.p.Checks, r.b.unwritable[:min(maxChecks, len(r.b.unwritable))]...)
	r.p.Checks = append(r.p.Checks, r.b.layered...)
}

// environment builds the environment of the command.
func (r *resolver) environment() error {
	in := envscrub.Input{
		Ambient: r.h.Environ, AccountHome: r.h.AccountHome, OS: r.h.OS, FS: r.h.FS,
		Home: r.at.home, TmpDir: "/tmp",
	}
	pol := envscrub.Policy{
		Base: envscrub.Base(r.s.EnvBase.V), BaseOrigin: r.s.EnvBase.Origin,
		Mode: envscrub.Mode(r.s.EnvScrub.V), ModeOrigin: r.s.EnvScrub.Origin,
		KeepFDs: len(r.o.KeepFDs) > 0,
	}
	if !r.s.EnvScrub.Set {
		pol.Mode, pol.ModeOrigin = pol.Base.DefaultMode(), def
	}
	if r.p.Enforce == plan.EnforceOff {
		in.TmpDir = r.h.TempDir
	} else {
		in.ScratchHome = r.s.Home.V == "scratch"
	}
	var errs []error
	rules := func(items []Item[string], allow bool) []envscrub.Rule {
		var out []envscrub.Rule
		for _, it := range items {
			pat, err := envscrub.ParsePattern(it.V)
			if err != nil {
				errs = append(errs, &plan.Error{Op: "cannot use the pattern " + quote(it.V), Origin: it.Origin, Err: err})
				continue
			}
			out = append(out, envscrub.Rule{Pattern: pat, Origin: it.Origin, Guarded: it.setting && allow})
		}
		return out
	}
	assigns := func(items []Item[Var]) []envscrub.Assign {
		var out []envscrub.Assign
		for _, it := range items {
			out = append(out, envscrub.Assign{Name: it.V.Name, Value: it.V.Value, Origin: it.Origin})
		}
		return out
	}
	pol.Allow, pol.Deny = rules(r.s.EnvAllow.Items, true), rules(r.s.EnvDeny.Items, false)
	for _, it := range r.s.EnvPass.Items {
		pol.Pass = append(pol.Pass, envscrub.Name{Name: it.V, Origin: it.Origin})
	}
	if r.s.EnvAuth.Set {
		pol.Auth = envscrub.Name{Name: r.s.EnvAuth.V, Origin: r.s.EnvAuth.Origin}
	}
	pol.Set, pol.Flags = assigns(r.s.EnvSet.Items), assigns(r.s.envFlags)
	pol.Inject = r.stored
	o := def
	if r.s.cwdDir.Set {
		o = r.s.cwdDir.Origin
	}
	derived, why := r.derivedVars()
	pol.Fixed = append([]envscrub.Assign{{Name: "PWD", Value: r.pwd, Origin: o}}, derived...)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	res, err := envscrub.Build(in, pol)
	if err != nil {
		return err
	}
	r.p.Env, r.p.Dropped = res.Env, res.Dropped
	for i := range r.p.Env {
		// What something above the table decided has its value.
		switch v := &r.p.Env[i]; {
		case v.Reason == reasonSet:
			v.Source = r.from[v.Name]
		case v.Reason == reasonFixed && why[v.Name] != "":
			v.Reason += ": " + why[v.Name]
		}
	}
	r.p.Notices = append(r.p.Notices, res.Notices...)
	r.callersProxy()
	return nil
}

// cacheVars move the caches of tools, which would go below HOME, into the
// private /tmp. XDG_CACHE_HOME covers Go, pip and most others; a GOCACHE in
// Go's own settings file would win over it, and npm does not look at it.
var cacheVars = [][2]string{
	{"GOCACHE", "/tmp/.cache/go-build"}, {"XDG_CACHE_HOME", "/tmp/.cache"}, {"npm_config_cache", "/tmp/.cache/npm"},
}

// offlineVars keep package managers from trying the network first.
var offlineVars = [][2]string{
	{"CARGO_NET_OFFLINE", "true"}, {"GOPROXY", "off"}, {"PIP_DISABLE_PIP_VERSION_CHECK", "1"}, {"PIP_NO_INDEX", "1"}, {"npm_config_offline", "true"},
}

// allowed reports whether the profile lets the caller's own value of a variable in.
func (r *resolver) allowed(name string) bool {
	return lookup(r.h.Environ, name) != "" && slices.ContainsFunc(r.s.EnvAllow.Items, func(it Item[string]) bool {
		p, err := envscrub.ParsePattern(it.V)
		return err == nil && p.Match(name, false)
	})
}

// goVars keep the go command from asking git about a directory .git that is
// there and no repository; it fails the build otherwise ("obtaining VCS status").
var goVars = [][2]string{{"GOFLAGS", "-buildvcs=false"}}

// derivedVars gives the variables that follow from the walls. Without a box
// /tmp is shared with others, who could fill such a cache, and the network is
// there; so there are none. A name that the profile sets or passes is left alone.
// why says of each what made wall decide, and of PWD.
func (r *resolver) derivedVars() (out []envscrub.Assign, why map[string]string) {
	why = map[string]string{"PWD": "working directory"}
	if r.p.Enforce == plan.EnforceOff {
		return nil, why
	}
	cached := func(name string) bool {
		return slices.ContainsFunc(r.cacheVars, func(v cacheVar) bool { return v.name == name })
	}
	add := func(vars [][2]string, o plan.Origin, reason string) {
		for _, v := range vars {
			if !slices.ContainsFunc(r.s.EnvSet.Items, func(it Item[Var]) bool { return it.V.Name == v[0] }) &&
				!slices.ContainsFunc(r.s.EnvPass.Items, func(it Item[string]) bool { return it.V == v[0] }) && !r.allowed(v[0]) {
				out = append(out, envscrub.Assign{Name: v[0], Value: v[1], Origin: o})
				why[v[0]] = reason
			}
		}
	}
	for _, v := range r.cacheVars {
		add([][2]string{{v.name, v.value}}, v.origin, "private cache")
	}
	tmp := "/tmp"
	if r.s.View.V == "host" {
		tmp = r.t.walk(tmp).path
	}
	if r.s.Home.V != "scratch" && r.b.at(tmp).made { // not the host's own /tmp, granted
		add(slices.DeleteFunc(slices.Clone(cacheVars), func(v [2]string) bool { return cached(v[0]) }), r.s.Home.Origin, "cache in the private /tmp")
	}
	if r.b.emptyGit {
		add(goVars, def, "no git repository")
	}
	if r.s.Network.V == "none" && slices.Contains([]envscrub.Base{envscrub.BaseGate, envscrub.BaseSession, envscrub.BaseContract}, envscrub.Base(r.s.EnvBase.V)) {
		add(offlineVars, r.s.Network.Origin, "no network")
	}
	if n := r.p.Network; n.Method == plan.NetProxy || n.Method == plan.NetRedirect && r.s.ProxyVariables.V {
		o, reason := r.s.ProxyVariables.Origin, "proxy variables"
		if !r.s.ProxyVariables.V {
			o, reason = n.Origin, "connections cannot be redirected"
		}
		// The caller's own proxies cannot be reached from inside, also where they cross.
		for _, v := range proxyVars(n.HTTP) {
			if !slices.ContainsFunc(r.s.EnvSet.Items, func(it Item[Var]) bool { return it.V.Name == v[0] }) {
				out = append(out, envscrub.Assign{Name: v[0], Value: v[1], Origin: o})
				why[v[0]] = reason
			}
		}
	}
	return out, why
}
