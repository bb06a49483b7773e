package profile

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// files decides the file tree of the box: it collects what view, home,
// workspace, grants, hides and protections ask for, and builds the mounts.
func (r *resolver) files() error {
	b := r.b
	b.hostView = r.s.View.V == "host"
	r.scratch()
	if err := r.sources(); err != nil {
		b.errs = append(b.errs, err)
	}
	if err := r.homeDir(); err != nil {
		return err
	}
	r.private()
	if r.s.View.V == "system" {
		r.system()
	}
	r.resolverFiles()
	r.devices()
	r.workspaceDir()
	r.grants()
	r.seeds()
	r.hides()
	r.protects()
	r.sockets()
	r.caches()
	if len(b.errs) > 0 {
		return errors.Join(b.errs...)
	}
	root := plan.Mount{Op: plan.OpHostRoot, Target: "/", Origin: r.s.View.Origin}
	if r.s.View.V == "system" {
		root.Op = plan.OpEmptyRoot
	}
	b.build(root)
	r.ownState()
	r.policyPaths()
	r.fetchedPaths()
	if len(b.errs) > 0 {
		return errors.Join(b.errs...)
	}
	r.p.Mounts = append(b.ops, r.hostsFile()...)
	r.p.Scratch.Placeholders = b.placeholders
	r.p.Scratch.Guards = guards(b.ops)
	r.p.Notices = append(r.p.Notices, b.notices...)
	r.gitOutside()
	return r.cwdVisible()
}

// guards lists the protected paths. Another run may have made a placeholder at
// one of them, which must not go while this run has mounted on it.
func guards(ops []plan.Mount) []string {
	var out []string
	for _, m := range ops {
		if (m.Op == plan.OpProtect || m.Op == plan.OpPin) && !within(m.Target, "/proc") {
			out = append(out, m.Target)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// privateTree asks for one tree that wall makes.
func (r *resolver) privateTree(m plan.Mount, rule plan.Access, seal bool) {
	p := m.Target
	if r.s.View.V == "host" && !below(p, "/dev") {
		// The name may be a link on this host; wall never mounts over a link.
		l := r.t.walk(p)
		if !l.exists() {
			return
		}
		p = l.path
		m.Target = p
	}
	r.b.add(request{path: p, kind: reqPrivate, mount: m, access: rule, seal: seal, origin: m.Origin})
}

func (r *resolver) skeleton(m plan.Mount) {
	if m.Origin.IsZero() {
		m.Origin = def
	}
	r.b.add(request{path: m.Target, kind: reqSkeleton, mount: m, origin: m.Origin})
}

// scratch names the private directory of the run.
func (r *resolver) scratch() {
	temp := r.h.TempDir
	if temp == "" {
		temp = "/tmp"
	}
	if l := r.t.walk(temp); l.exists() {
		temp = l.path
	}
	root := join(path.Clean(temp), "wall-"+strconv.Itoa(r.h.UID))
	r.p.Scratch = plan.Scratch{Root: root, ID: r.h.RunID, Keep: r.o.Keep}
	// The state of this run and of others is never visible inside.
	r.b.add(request{path: root, kind: reqHide, typ: plan.TypeDir, forced: true, layer: ownLayer, origin: def})
}

func (r *resolver) scratchDir(name string, mode uint32) {
	r.p.Scratch.Dirs = append(r.p.Scratch.Dirs, plan.ScratchDir{Name: name, Mode: mode})
}

// private asks for the trees that are the box's own in every view.
func (r *resolver) private() {
	// The kernel's own controls in /proc. Root's uid opens many of them without
	// any capability, so that they are read-only or covered as well.
	r.privateTree(plan.Mount{Op: plan.OpProc, Target: "/proc", Origin: def}, plan.AccessInOut, false)
	for _, n := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "pressure"} {
		if e := r.t.lstat("/proc/" + n); e.err == nil {
			r.skeleton(plan.Mount{Op: plan.OpProtect, Target: "/proc/" + n, Type: fileType(e.mode), Optional: true})
		}
	}
	masked := []string{"acpi", "asound", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list", "timer_stats"}
	if r.h.UID == 0 { // nobody else may read these
		masked = append(masked, "kpagecgroup", "kpagecount", "kpageflags", "pagetypeinfo", "slabinfo", "vmallocinfo")
	}
	for _, n := range masked {
		if e := r.t.lstat("/proc/" + n); e.err == nil {
			r.skeleton(plan.Mount{Op: plan.OpCover, Target: "/proc/" + n, Type: fileType(e.mode), Optional: true})
		}
	}

	if r.ownNetwork() {
		r.privateTree(plan.Mount{Op: plan.OpSysfs, Target: "/sys", Origin: def}, plan.AccessRead, false)
	} else {
		// A new sysfs needs a new network namespace.
		r.privateTree(plan.Mount{Op: plan.OpBind, Source: "/sys", Target: "/sys", Access: plan.AccessRead, Type: plan.TypeDir, Origin: r.s.Network.Origin}, plan.AccessRead, false)
	}
	for _, n := range []string{"firmware", "fs/bpf", "fs/pstore", "kernel/debug", "kernel/security", "kernel/tracing"} {
		if r.t.exists("/sys/" + n) {
			r.skeleton(plan.Mount{Op: plan.OpCover, Target: "/sys/" + n, Type: plan.TypeDir, Optional: true})
		}
	}

	r.privateTree(plan.Mount{Op: plan.OpTmpfs, Target: "/dev", Mode: 0o755, Size: skeletonSize, Origin: def}, plan.AccessDevice, true)
	for _, n := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		r.device("/dev/"+n, def)
	}
	r.privateTree(plan.Mount{Op: plan.OpDevpts, Target: "/dev/pts", Origin: def}, plan.AccessDevice, false)
	r.privateTree(plan.Mount{Op: plan.OpTmpfs, Target: "/dev/shm", Mode: 0o1777, Size: shmSize, Origin: def}, plan.AccessWrite, false)
	r.privateTree(plan.Mount{Op: plan.OpMqueue, Target: "/dev/mqueue", Origin: def}, plan.AccessWrite, false)
	for _, l := range [][2]string{
		{"ptmx", "pts/ptmx"}, {"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
	} {
		r.skeleton(plan.Mount{Op: plan.OpSymlink, Target: "/dev/" + l[0], Source: l[1]})
	}

	r.privateTree(plan.Mount{Op: plan.OpTmpfs, Target: "/run", Mode: 0o755, Size: runSize, Origin: def}, plan.AccessWrite, false)
	r.skeleton(plan.Mount{Op: plan.OpDir, Target: "/run/lock", Mode: 0o1777})
	r.skeleton(plan.Mount{Op: plan.OpDir, Target: "/run/user/" + strconv.Itoa(r.h.UID), Mode: 0o700})
	for _, l := range [][2]string{{"/var/run", "/run"}, {"/var/lock", "/run/lock"}} {
		switch e := r.t.lstat(l[0]); {
		case r.s.View.V == "system":
			r.skeleton(plan.Mount{Op: plan.OpSymlink, Target: l[0], Source: l[1]})
		case e.err == nil && e.mode.IsDir(): // an old layout, not a link
			r.privateTree(plan.Mount{Op: plan.OpTmpfs, Target: l[0], Mode: 0o755, Size: runSize, Origin: def}, plan.AccessWrite, false)
		}
	}

	for _, d := range [][2]string{{"/tmp", "tmp"}, {"/var/tmp", "vartmp"}} {
		if r.s.Tmp.V == "memory" {
			r.privateTree(plan.Mount{Op: plan.OpTmpfs, Target: d[0], Mode: 0o1777, Size: tmpSize, Origin: r.s.Tmp.Origin}, plan.AccessWrite, false)
			continue
		}
		r.scratchDir(d[1], 0o1777)
		r.privateTree(plan.Mount{Op: plan.OpScratch, Target: d[0], Source: d[1], Origin: r.s.Tmp.Origin}, plan.AccessWrite, false)
	}
}

// device asks for one device node that the host has.
func (r *resolver) device(p string, o plan.Origin) {
	if r.t.exists(p) {
		r.skeleton(plan.Mount{Op: plan.OpDevice, Target: p, Source: p, Type: plan.TypeFile, MakeAs: plan.TypeFile, Origin: o})
	}
}

// deviceGroups are the names that devices = [...] knows besides paths.
var deviceGroups = map[string][]string{
	"dri":    {"/dev/dri/*"},
	"fuse":   {"/dev/fuse"},
	"kvm":    {"/dev/kvm"},
	"nvidia": {"/dev/nvidia*", "/dev/nvidia-caps/*"},
}

// refusedDevices give the whole machine away.
var refusedDevices = []string{"mem", "kmem", "port", "kmsg", "console", "ptmx", "uinput", "vhost-vsock", "vsock", "loop-control", "mapper", "input", "net"}

func (r *resolver) devices() {
	b := r.b
	for _, d := range r.s.Devices.Items {
		fail := func(err error, hint string) {
			b.fail(&plan.Error{Op: "cannot make the device " + quote(d.V) + " available inside", Origin: d.Origin, Err: err, Hint: hint})
		}
		patterns, ok := deviceGroups[d.V]
		if !ok {
			if !strings.HasPrefix(d.V, "/dev/") || path.Clean(d.V) != d.V || isGlob(d.V) {
				fail(errors.New("it is neither a path below /dev nor one of dri, fuse, kvm, nvidia"), "")
				continue
			}
			first, _, _ := strings.Cut(strings.TrimPrefix(d.V, "/dev/"), "/")
			if slices.Contains(refusedDevices, first) {
				fail(errors.New("it gives access to the whole machine"), "")
				continue
			}
			patterns = []string{d.V}
		}
		found := false
		for _, pat := range patterns {
			for _, p := range r.devicePaths(pat) {
				e := r.t.lstat(p)
				switch {
				case e.err != nil || e.mode.IsDir():
					continue
				case e.mode&fs.ModeCharDevice == 0:
					fail(errors.New("it is not a character device"), "")
				default:
					r.device(p, d.Origin)
				}
				found = true
			}
		}
		if !found {
			fail(errMissing, "remove the line on hosts without this device")
		}
	}
}

func (r *resolver) devicePaths(pattern string) []string {
	if !isGlob(pattern) {
		return []string{pattern}
	}
	dir, last := path.Split(pattern)
	dir = path.Clean(dir)
	if e := r.t.lstat(dir); e.err != nil || !e.mode.IsDir() {
		return nil
	}
	es, err := r.t.readDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range es {
		if match(last, e.Name()) {
			out = append(out, join(dir, e.Name()))
		}
	}
	return out
}

// runtimeTrees are what the view "system" shows of the operating system; the
// links among them (usr-merge) are made again.
var runtimeTrees = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store"}

// etcNames are what the view "system" shows of /etc: what the C library, name
// service, certificates, time zone, shells and language runtimes read. Files
// that may hold secrets (environment, fstab, shadow, ssh, sudoers) and settings
// of services are not in the list.
var etcNames = []string{
	"alternatives", "bash.bashrc", "bashrc", "bindresvport.blacklist", "ca-certificates", "ca-certificates.conf", "crypto-policies", "csh.cshrc",
	"debian_version", "default/locale", "ethertypes", "fedora-release", "fonts", "gai.conf", "gitattributes", "gitconfig", "gnutls", "group",
	"host.conf", "hosts", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "libaudit.conf", "locale.alias", "locale.conf",
	"localtime", "login.defs", "lsb-release", "magic", "magic.mime", "mailcap", "manpath.config", "maven", "mime.types", "mke2fs.conf",
	"netconfig", "networks", "npmrc", "nsswitch.conf", "openssl", "os-release", "paper.config", "papersize", "passwd", "perl", "pip.conf", "pki", "profile", "profile.d", "protocols",
	"redhat-release", "resolv.conf", "rpc", "services", "shells", "skel", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "static", "system-release", "terminfo",
	"timezone", "vimrc", "vim", "wgetrc", "xattr.conf", "zsh", "zshrc", "zshenv", "zprofile",
}

// etcPrefixes are names that carry a version: /etc/java-17-openjdk, /etc/python3.12.
var etcPrefixes = []string{"java", "python", "jvm", "ImageMagick"}

func (r *resolver) system() {
	o := r.s.View.Origin
	for _, p := range runtimeTrees {
		if r.t.exists(p) {
			r.show(p, o)
		}
	}
	r.skeleton(plan.Mount{Op: plan.OpDir, Target: "/etc", Mode: 0o755, Origin: o})
	r.t.list("/etc")
	for _, n := range etcNames {
		if r.t.exists("/etc/" + n) {
			r.show("/etc/"+n, o)
		}
	}
	if es, err := r.t.readDir("/etc"); err == nil {
		for _, e := range es {
			if slices.ContainsFunc(etcPrefixes, func(p string) bool { return strings.HasPrefix(e.Name(), p) }) {
				r.show("/etc/"+e.Name(), o)
			}
		}
	}
	// Programs that read the mount table look here.
	r.skeleton(plan.Mount{Op: plan.OpSymlink, Target: "/etc/mtab", Source: "/proc/self/mounts", Origin: o})
	r.skeleton(plan.Mount{Op: plan.OpDir, Target: "/var/cache", Mode: 0o755, Origin: o})
	r.skeleton(plan.Mount{Op: plan.OpDir, Target: "/var/lib", Mode: 0o755, Origin: o})
}

// show asks for a part of the operating system, with the links that lead to it.
func (r *resolver) show(p string, o plan.Origin) {
	l := r.t.walk(p)
	r.b.links(l, o)
	if !l.exists() || l.path == "/" || slices.ContainsFunc(ours, func(d string) bool { return within(l.path, d) }) {
		return
	}
	if !l.mode.IsDir() && !l.mode.IsRegular() {
		return
	}
	r.b.add(request{path: l.path, kind: reqGrant, access: plan.AccessRead, typ: fileType(l.mode), layer: -1, origin: o, what: "runtime"})
}

// resolverFiles shows the files in /etc that commonly are links into /run, where
// the box has its own.
func (r *resolver) resolverFiles() {
	for _, p := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/localtime", "/etc/nsswitch.conf"} {
		r.show(p, r.s.View.Origin)
	}
}

// homeDir decides what stands at the home directory of the account.
func (r *resolver) homeDir() error {
	mode, o := r.s.Home.V, r.s.Home.Origin
	if r.at.home == "" {
		return &plan.Error{Op: "cannot find the home directory: the account has none and HOME is not set", Origin: o,
			Hint: "set HOME to a directory"}
	}
	l := r.home
	switch {
	case l.err != nil:
		return &plan.Error{Op: "cannot use the home directory " + quote(r.at.home), Origin: o, Err: l.err}
	case l.exists() && !l.mode.IsDir():
		return &plan.Error{Op: "cannot use the home directory " + quote(r.at.home), Origin: o, Err: errNotDir}
	case mode != "read-only" && l.missing != "" && r.s.View.V == "host":
		return &plan.Error{Op: fmt.Sprintf("cannot make a %s home at %s", mode, quote(r.at.home)), Origin: o, Err: errMissing,
			Hint: "create the directory, or use --view system, where wall can make it"}
	case mode != "read-only" && (l.path == "/" || slices.ContainsFunc(ours, func(d string) bool { return within(l.path, d) })):
		return &plan.Error{Op: fmt.Sprintf("cannot make a %s home at %s", mode, quote(l.path)), Origin: o,
			Hint: "give the account a home directory, or use --home read-only"}
	case mode == "read-only" && l.path == "/" && r.s.View.V == "system":
		return &plan.Error{Op: "cannot show the home directory /: it is the whole file system", Origin: o, Hint: "use --view host"}
	}
	b := r.b
	b.links(l, o)
	switch mode {
	case "scratch":
		r.scratchDir("home", 0o700)
		b.add(request{path: l.path, kind: reqPrivate, origin: o, access: plan.AccessWrite,
			mount: plan.Mount{Op: plan.OpScratch, Target: l.path, Source: "home", Origin: o}})
	case "hidden":
		b.add(request{path: l.path, kind: reqPrivate, origin: o, access: plan.AccessList, seal: true,
			mount: plan.Mount{Op: plan.OpTmpfs, Target: l.path, Mode: 0o755, Size: skeletonSize, Origin: o}})
	default:
		if l.exists() && l.path != "/" {
			b.add(request{path: l.path, kind: reqGrant, access: plan.AccessRead, typ: plan.TypeDir, layer: -1, origin: o, what: "home"})
		}
	}
	if l.path != "/" {
		b.home = l.path
	}
	return nil
}

// workspaceDir shows the workspace at its real path, and keeps the spellings
// by which the caller reached it.
func (r *resolver) workspaceDir() {
	w := r.s.workspaceDir
	o := r.s.Workspace.Origin
	if w.Origin != def {
		o = w.Origin
	}
	r.b.links(r.t.walk(w.V), o)
	r.b.links(r.t.walk(r.pwd), o)
	access := plan.AccessRead
	if r.s.Workspace.V == "read-write" {
		access = plan.AccessWrite
	}
	r.b.add(request{path: r.at.workspace, kind: reqGrant, access: access, typ: plan.TypeDir, layer: flagLayer + 1, origin: o, what: "workspace"})
}

// base gives what a relative path starts from: the working directory for a
// flag, the workspace for a profile.
func (r *resolver) base(flag bool) string {
	if flag {
		if r.h.Pwd != "" {
			return r.h.Pwd
		}
		return r.h.Cwd
	}
	return r.at.workspace
}

// writableTrees are the workspace, whether it is writable this time or not, and
// everything that is granted for writing: where links may be a command's work.
func (r *resolver) writableTrees() []string {
	trees := []string{r.at.workspace}
	for _, g := range r.s.Grant.Items {
		if g.V.Access != plan.AccessWrite {
			continue
		}
		if p, err := r.at.expand(g.V.Path, r.base(g.flag)); err == nil {
			if l := r.t.walk(p); l.exists() && len(l.links) == 0 {
				trees = append(trees, l.path)
			}
		}
	}
	return trees
}

// planted gives a link of the walk that lies in one of the trees and leads out
// of it, "" when there is none.
func (r *resolver) planted(l located, trees []string) string {
	for _, k := range l.links {
		for _, t := range trees {
			if within(k.at, t) && !within(l.path, t) {
				return k.at
			}
		}
	}
	return ""
}

func (r *resolver) grants() {
	b := r.b
	planted := r.writableTrees()
	own := r.realOwnDirs()
	for _, g := range r.s.Grant.Items {
		verb := "readable"
		if g.V.Access == plan.AccessWrite {
			verb = "writable"
		}
		fail := func(err error, hint string) {
			b.fail(&plan.Error{Op: fmt.Sprintf("cannot make %s %s inside", quote(g.V.Path), verb), Origin: g.Origin, Err: err, Hint: hint})
		}
		p, err := r.at.expand(g.V.Path, r.base(g.flag))
		if err != nil {
			fail(err, "")
			continue
		}
		l := r.t.walk(p)
		if d := slices.IndexFunc(ours, func(d string) bool { return within(l.path, d) }); d >= 0 {
			hint := ""
			if ours[d] == "/dev" {
				hint = "use devices = [...] in the profile"
			}
			fail(errors.New("wall makes its own "+ours[d]), hint)
			continue
		}
		switch {
		case l.missing != "" || errors.Is(l.err, errNotDir):
			if g.V.Optional {
				continue
			}
			hint := "create it, or mark the line optional to skip it when missing"
			if g.flag {
				hint = "create it, or use --" + map[plan.Access]string{plan.AccessRead: "ro", plan.AccessWrite: "rw"}[g.V.Access] + "-try to skip it when missing"
			}
			err := errMissing
			if l.err != nil {
				err = l.err
			}
			fail(err, hint)
			continue
		case l.err != nil:
			if g.V.Optional && errors.Is(l.err, fs.ErrPermission) {
				continue
			}
			fail(l.err, "")
			continue
		case l.path == "/":
			if g.V.Access == plan.AccessRead {
				fail(errors.New("it is the whole file system"), "use --view host, which shows the host's tree read-only")
			} else {
				fail(errors.New("it is the whole file system"), "grant the directories that the command needs")
			}
			continue
		}
		if k := r.planted(l, planted); k != "" {
			fail(fmt.Errorf("the symbolic link %s, which a command could have made, leads out to %s", quote(k), quote(l.path)), "grant the real path, if that is what you want")
			continue
		}
		if r.within(l.path, r.p.Scratch.Root) {
			fail(errors.New("it is the state of wall's own runs"), "")
			continue
		}
		if slices.ContainsFunc(own, func(d string) bool { return below(l.path, d) }) {
			fail(errOwnState, hintOwnState)
			continue
		}
		b.links(l, g.Origin)
		b.granted[l.path] = true
		if l.path == r.at.workspace {
			if g.V.Access == plan.AccessRead && r.s.Workspace.V == "read-write" {
				b.notices = append(b.notices, plan.Notice{Origin: g.Origin,
					Text: "the workspace stays writable: this grant of read access changes nothing", Hint: "use --workspace-access read"})
			}
			if g.V.Access == plan.AccessWrite && r.s.Workspace.V == "read-only" {
				fail(errors.New("it is the workspace, which is read-only"), "use --workspace-access write")
			}
			continue
		}
		b.add(request{path: l.path, kind: reqGrant, access: g.V.Access, typ: fileType(l.mode), layer: g.layer, origin: g.Origin})
		if g.V.Access == plan.AccessWrite && l.mode.IsDir() && r.git.V != "" {
			b.gitProtect(l.path, g.Origin, false)
		}
	}
}

// seeds asks for files to be copied into the scratch home. What is not there
// leaves an empty directory, so that one profile serves a host that never logged in; what is
// not a regular file is skipped, with a notice. A link in the last place is not followed.
func (r *resolver) seeds() {
	b := r.b
	byTarget := map[string]int{}
	trees := r.writableTrees()
	own := r.realOwnDirs()
	for _, s := range r.s.Seed.Items {
		fail := func(err error, hint string) {
			b.fail(&plan.Error{Op: "cannot copy " + quote(s.V.Path) + " into the scratch home", Origin: s.Origin, Err: err, Hint: hint})
		}
		if r.s.Home.V != "scratch" {
			fail(fmt.Errorf("home is %q", r.s.Home.V), "use home = \"scratch\", or remove the seed")
			continue
		}
		p, err := r.at.expand(s.V.Path, r.base(s.flag))
		if err != nil {
			fail(err, "")
			continue
		}
		l := r.t.walkParent(p)
		if k := r.planted(l, trees); k != "" {
			fail(fmt.Errorf("the symbolic link %s, which a command could have made, leads out to %s", quote(k), quote(l.path)), "name the real path")
			continue
		}
		switch {
		case errors.Is(l.err, errNotDir):
			continue
		case l.err != nil:
			fail(l.err, "")
			continue
		case l.missing == "" && !l.mode.IsRegular():
			b.notices = append(b.notices, plan.Notice{Origin: s.Origin, Text: quote(l.path) + " is not copied into the scratch home: it is not a regular file",
				Hint: "only regular files are copied, and links are not followed"})
			continue
		}
		if v := b.secret[l.path]; v != "" {
			fail(fmt.Errorf("the value of %s comes from it", quote(v)), "use one of the two: a secret by name is not to be read inside as well")
			continue
		}
		if slices.ContainsFunc(own, func(d string) bool { return below(l.path, d) }) {
			fail(errOwnState, hintOwnState)
			continue
		}
		seed := plan.Seed{Source: l.path, Target: "home/" + strings.TrimPrefix(s.V.Target(), "~/"), Origin: s.Origin}
		if i, ok := byTarget[seed.Target]; ok {
			r.p.Scratch.Seeds[i] = seed // of a higher layer
			continue
		}
		byTarget[seed.Target] = len(r.p.Scratch.Seeds)
		r.p.Scratch.Seeds = append(r.p.Scratch.Seeds, seed)
	}
}

func (r *resolver) within(p, dir string) bool { return dir != "" && within(p, dir) }

func (r *resolver) hides() {
	if r.home.exists() {
		r.t.list(r.home.path)
		r.t.list(join(r.home.path, ".config"))
	}
	r.b.hides(expandGroups(r.s.Hide.Items), r.at, func(it Item[string]) string { return r.base(it.flag) })

	for _, p := range r.ownDirs() {
		if l := r.t.walk(p); l.exists() {
			r.b.links2protect(l, def) // or the next run would look elsewhere
			r.b.add(request{path: l.path, kind: reqHide, typ: fileType(l.mode), layer: ownLayer, origin: def})
		}
	}
}

// What a grant or a seed of wall's own state is told.
var errOwnState = errors.New("it is wall's own state")

const hintOwnState = "what decides about the next run is never visible in a box"

// realOwnDirs are those of ownDirs that exist, free of links.
func (r *resolver) realOwnDirs() []string {
	var out []string
	for _, p := range r.ownDirs() {
		if l := r.t.walk(p); l.exists() {
			out = append(out, l.path)
		}
	}
	return out
}

// ownDirs are wall's own settings, trust store, records and caches.
func (r *resolver) ownDirs() []string {
	own := append(r.policyDirs(), SystemDir)
	if r.at.home != "" {
		own = append(own, join(r.at.home, ".local/share/wall"))
	}
	return append(own, r.xdgDirs("XDG_DATA_HOME", "XDG_CACHE_HOME")...)
}

// policyDirs are those of ownDirs that decide about the next run, or what it
// builds with.
func (r *resolver) policyDirs() []string {
	var dirs []string
	if r.at.home != "" {
		dirs = append(dirs, join(r.at.home, ".config/wall"), join(r.at.home, ".local/state/wall"), join(r.at.home, ".cache/wall"))
	}
	return append(dirs, r.xdgDirs("XDG_CONFIG_HOME", "XDG_STATE_HOME")...)
}

func (r *resolver) xdgDirs(variables ...string) []string {
	var dirs []string
	for _, v := range variables {
		if d := lookup(r.h.Environ, v); strings.HasPrefix(d, "/") && strings.IndexByte(d, 0) < 0 {
			dirs = append(dirs, join(d, "wall"))
		}
	}
	return dirs
}

func (r *resolver) protects() {
	b := r.b
	if r.git.V != "" {
		b.gitProtect(r.at.workspace, r.git.Origin, true)
	}
	for _, x := range r.protected {
		if x.V == gitGroup {
			continue
		}
		if isGlob(x.V) {
			b.fail(&plan.Error{Op: "cannot protect " + quote(x.V) + ": patterns are not possible here", Origin: x.Origin, Hint: "name the paths"})
			continue
		}
		p, err := r.at.expand(x.V, r.base(x.flag))
		if err != nil {
			b.fail(&plan.Error{Op: "cannot protect " + quote(x.V), Origin: x.Origin, Err: err})
			continue
		}
		if x.existing && !b.t.walk(p).exists() {
			continue
		}
		b.protectPath(p, x.Origin, plan.TypeDir, "")
	}
	for _, p := range r.policyDirs() {
		// One that the command made would decide about the next run.
		if !b.t.walk(p).exists() {
			if l := r.t.walk(p); errors.Is(l.err, fs.ErrPermission) {
				continue // out of the caller's reach, and so of the command's
			}
			b.protectPath(p, def, plan.TypeDir, "")
		}
	}
	for _, p := range r.profiles {
		// Where the command could write it, the next run would be weaker.
		b.protectPath(p, def, plan.TypeFile, "")
	}
	if e := r.h.Executable; strings.HasPrefix(e, "/") {
		// What the command could write here would run outside next time.
		if l := r.t.walk(e); l.exists() {
			b.add(request{path: l.path, kind: reqProtect, typ: fileType(l.mode), origin: def})
		}
	}
}

// sockets covers every Unix socket of the host that would be visible: file
// permissions do not keep a command from connecting, and before Landlock ABI 9
// nothing else does.
func (r *resolver) sockets() {
	b := r.b
	for _, s := range r.h.Sockets {
		if !strings.HasPrefix(s, "/") || strings.IndexByte(s, 0) >= 0 {
			continue
		}
		dir := r.t.walk(path.Dir(path.Clean(s)))
		if !dir.exists() {
			continue
		}
		p := join(dir.path, path.Base(s))
		if slices.ContainsFunc(ours, func(d string) bool { return within(p, d) }) || path.Base(s) == "/" {
			continue
		}
		b.add(request{path: p, kind: reqSocket, origin: def})
	}
}

// gitOutside tells how to make git work in a linked worktree whose repository
// is elsewhere.
func (r *resolver) gitOutside() {
	g := r.b.outsideGit
	if g == "" {
		return
	}
	switch s := r.b.at(g); {
	case !r.b.visible(g):
		r.p.Notices = append(r.p.Notices, plan.Notice{Origin: def,
			Text: "the workspace is a git worktree whose repository " + quote(g) + " is not visible inside, so git does not work there",
			Hint: "--ro " + quote(g) + " lets git read, --rw " + quote(g) + " lets it commit"})
	case s.access != plan.AccessWrite:
		r.p.Notices = append(r.p.Notices, plan.Notice{Origin: def,
			Text: "the workspace is a git worktree whose repository " + quote(g) + " is read-only inside, so git cannot commit there",
			Hint: "--rw " + quote(g) + " lets it commit"})
	}
}

// cwdVisible refuses a working directory that the box does not show.
func (r *resolver) cwdVisible() error {
	s := r.b.at(r.at.cwd)
	if r.b.visible(r.at.cwd) || s.made && s.path == r.at.cwd {
		return nil
	}
	o, hint := def, "make it visible with --ro "+quote(r.at.cwd)+" or --rw "+quote(r.at.cwd)+", or choose another with --cwd"
	if r.s.cwdDir.Set {
		o = r.s.cwdDir.Origin
	}
	return &plan.Error{Op: "cannot start in " + quote(r.at.cwd) + ": the directory is not visible inside", Origin: o, Hint: hint}
}
