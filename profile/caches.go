package profile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// CacheCopyMax is the size in bytes up to which a cache is copied where no
// overlay can be made. It is the ceiling of one cache, all its directories
// together; a cache of exactly this size is still copied.
const CacheCopyMax = 64 << 20

// maxCacheEntries bounds the look at a cache that is to be copied: one with more
// files counts as over the ceiling.
const maxCacheEntries = 20_000

// A cacheStore is one cache of a tool: a directory of which only the named
// sub-directories are shown, because credentials and settings lie next to them.
type cacheStore struct {
	name   string                      // of its place inside, one or two path elements
	vars   []string                    // variables that tell the tool its place, the first one that is set wins
	xdg    string                      // place below XDG_CACHE_HOME, "" = not there
	home   string                      // place below the home directory without any of these
	layers []string                    // sub-directories to show; "" is the directory itself
	more   func(name string) bool      // further ones, by name; nil = none
	shared bool                        // programs lie there too, so that nothing may be mounted over the whole of it
	usable bool                        // tools work with it when it is read-only
	inside func(at string) [][2]string // variables inside, when they are not vars
}

// cacheStores gives the stores of a tool. What is not named here never comes
// along: cargo's credentials.toml and config.toml (also not from below registry
// and git), npm's _logs, gradle.properties and init.d, Maven's settings.xml.
func cacheStores(tool string) []cacheStore {
	switch tool {
	case "cargo":
		return []cacheStore{{name: "cargo", vars: []string{"CARGO_HOME"}, home: ".cargo", shared: true, usable: true,
			layers: []string{"git/checkouts", "git/db", "registry/cache", "registry/index", "registry/src"}}}
	case "go":
		return []cacheStore{
			{name: "go/mod", vars: []string{"GOMODCACHE"}, home: "go/pkg/mod", layers: []string{""}, usable: true},
			{name: "go/build", vars: []string{"GOCACHE"}, xdg: "go-build", home: ".cache/go-build", layers: []string{""}},
		}
	case "gradle":
		return []cacheStore{{name: "gradle", vars: []string{"GRADLE_USER_HOME"}, home: ".gradle", layers: []string{"caches", "wrapper"}}}
	case "maven":
		return []cacheStore{{name: "maven", home: ".m2/repository", layers: []string{""},
			inside: func(at string) [][2]string { return [][2]string{{"MAVEN_OPTS", "-Dmaven.repo.local=" + at}} }}}
	case "npm":
		return []cacheStore{{name: "npm", vars: []string{"npm_config_cache", "NPM_CONFIG_CACHE"}, home: ".npm", layers: []string{"_cacache"}}}
	case "pip":
		return []cacheStore{{name: "pip", vars: []string{"PIP_CACHE_DIR"}, xdg: "pip", home: ".cache/pip", layers: []string{"http", "http-v2", "wheels"}}}
	case "uv":
		return []cacheStore{{name: "uv", vars: []string{"UV_CACHE_DIR"}, xdg: "uv", home: ".cache/uv", more: uvBucket}}
	}
	return nil
}

// uvBucket reports whether uv calls one of its buckets so: a word, "-v", and the
// version of the bucket. Those that hold whole environments, tools and builds
// under way are not shown: they are made again.
func uvBucket(name string) bool {
	word, version, ok := strings.Cut(name, "-v")
	if !ok || strings.Trim(version, "0123456789") != "" || version == "" {
		return false
	}
	switch word {
	case "archive", "built-wheels", "flat-index", "git", "interpreter", "sdists", "simple", "wheels":
		return true
	}
	return false
}

// privateCaches is where caches stand that cannot stand where the tool has them.
const privateCaches = "/run/wall/cache"

// caches asks for the private caches of the tools that the profile names. It
// comes after everything else was asked for, because what is hidden, granted or
// writable decides where a cache can stand and what it may show.
func (r *resolver) caches() {
	var stores []cacheStore
	origins := map[string]plan.Origin{}
	for _, it := range r.s.Caches.Items {
		for _, c := range cacheStores(it.V) {
			if _, ok := origins[c.name]; !ok {
				stores = append(stores, c)
			}
			origins[c.name] = it.Origin
		}
	}
	if len(stores) == 0 {
		return
	}
	slices.SortFunc(stores, func(a, b cacheStore) int { return strings.Compare(a.name, b.name) })
	c := &cacher{resolver: r, trees: r.writableTrees()}
	if r.s.CachesKeep.V {
		c.keep()
	}
	for _, s := range stores {
		c.origin = origins[s.name]
		c.store(s)
	}
	if c.private {
		r.scratchDir("cache", 0o700)
		r.b.add(request{path: c.run() + "/wall/cache", kind: reqLayer, origin: c.origin,
			mount: plan.Mount{Op: plan.OpScratch, Source: "cache", Origin: c.origin}})
	}
}

// A cacher decides about the caches of one run.
type cacher struct {
	*resolver
	trees   []string // that a command can write
	origin  plan.Origin
	kept    string // directory of kept layers, "" = they are thrown away
	private bool   // something stands below privateCaches
}

func (c *cacher) notice(text, hint string) {
	c.b.notices = append(c.b.notices, plan.Notice{Origin: c.origin, Text: text, Hint: hint})
}

// run is where the box's own /run is.
func (c *cacher) run() string {
	if c.s.View.V == "host" {
		if l := c.t.walk("/run"); l.exists() {
			return l.path
		}
	}
	return "/run"
}

// A lowerDir is one directory of the operator's that a cache shows.
type lowerDir struct {
	rel string // below the store, "" = the store itself
	at  string // on the host, free of links
}

func (c *cacher) store(s cacheStore) {
	spelled, l, dirs, why := c.find(s)
	if why != nil {
		c.notice("the cache of "+s.tool()+" is empty inside: "+quote(spelled)+" is not used, because "+why.Error(), "")
		dirs = nil
	}
	at, inPlace := c.place(s, spelled, l, why)
	method := c.method(s, spelled, dirs)
	if c.kept != "" {
		dirs, method = c.withMissing(s, dirs), "layer"
	}
	around := c.b.foresee(l.path)
	if inPlace && method == "empty" && around != madeWritable {
		at, inPlace = c.privatePlace(s), false // or the operator's would show
	}
	real := c.run() + strings.TrimPrefix(at, "/run")
	if inPlace {
		real = l.path
		c.b.links(l, c.origin)
	}
	if method != "empty" && !(method == "read" && inPlace && around == showsHost) { // else it is visible there already
		if inPlace && around != madeWritable && !slices.Equal(s.layers, []string{""}) {
			// What is around the layers has to be writable, and the operator's own
			// settings must not show.
			name := c.dirName(s, "base")
			c.scratchDir(name, 0o700)
			c.b.add(request{path: real, kind: reqLayer, origin: c.origin, mount: plan.Mount{Op: plan.OpScratch, Source: name, Origin: c.origin}})
		}
		for _, d := range dirs {
			c.layer(s, method, d, path.Join(real, d.rel))
		}
	}
	c.set(s, at)
}

// withMissing adds the directories that the operator's cache lacks, so that what
// is written there is kept as well: layers over an empty directory.
func (c *cacher) withMissing(s cacheStore, dirs []lowerDir) []lowerDir {
	names := s.layers
	if len(names) == 0 && len(dirs) == 0 {
		names = []string{""}
	}
	for _, rel := range names {
		if slices.ContainsFunc(dirs, func(d lowerDir) bool { return d.rel == rel }) {
			continue
		}
		const none = "cache.none"
		if !slices.ContainsFunc(c.p.Scratch.Dirs, func(d plan.ScratchDir) bool { return d.Name == none }) {
			c.scratchDir(none, 0o700)
		}
		dirs = append(dirs, lowerDir{rel, c.p.Scratch.Path() + "/" + none})
	}
	return dirs
}

// tool is the name of the tool.
func (s cacheStore) tool() string {
	t, _, _ := strings.Cut(s.name, "/")
	return t
}

// dirName names a directory of the scratch directory or of the kept one.
func (c *cacher) dirName(s cacheStore, what string) string {
	return "cache." + strings.ReplaceAll(s.name, "/", ".") + "." + strings.ReplaceAll(what, "/", ".")
}

// find looks for the operator's own cache. place is what the tool would call it;
// why tells what keeps it from being shown.
func (c *cacher) find(s cacheStore) (place string, l located, dirs []lowerDir, why error) {
	place = c.spelled(s)
	if place == "" {
		return "", located{missing: "/"}, nil, nil // the account has no home directory
	}
	l = c.t.walk(place)
	switch {
	case l.missing != "" || errors.Is(l.err, errNotDir):
		return place, l, nil, c.refuse(l)
	case l.err != nil:
		return place, l, nil, l.err
	case !l.mode.IsDir():
		return place, l, nil, errNotDir
	}
	if err := c.refuse(l); err != nil {
		return place, l, nil, err
	}
	names := slices.Clone(s.layers)
	if s.more != nil {
		es, err := c.t.readDir(l.path)
		if err != nil {
			return place, l, nil, cause(err)
		}
		for _, e := range es {
			if s.more(e.Name()) {
				names = append(names, e.Name())
			}
		}
	}
	for _, rel := range names {
		sub := c.t.walk(path.Join(l.path, rel))
		if sub.missing != "" || errors.Is(sub.err, errNotDir) {
			continue
		}
		err := sub.err
		if err == nil && !sub.mode.IsDir() {
			continue
		}
		if err == nil {
			err = c.refuse(sub)
		}
		if err != nil {
			c.notice("a part of the cache of "+s.tool()+" is empty inside: "+quote(path.Join(place, rel))+" is not used, because "+err.Error(), "")
			continue
		}
		dirs = append(dirs, lowerDir{rel, sub.path})
	}
	return place, l, dirs, nil
}

// spelled gives the place of the operator's cache as the tool itself would find
// it: by a variable that is set, not empty and absolute, else in the home
// directory of the account. HOME is not asked: it may be another one's.
func (c *cacher) spelled(s cacheStore) string {
	absolute := func(name string) string {
		if v := lookup(c.h.Environ, name); strings.HasPrefix(v, "/") && strings.IndexByte(v, 0) < 0 {
			return path.Clean(v)
		}
		return ""
	}
	for _, v := range s.vars {
		if p := absolute(v); p != "" {
			return p
		}
	}
	if s.name == "go/mod" {
		if first, _, _ := strings.Cut(lookup(c.h.Environ, "GOPATH"), ":"); strings.HasPrefix(first, "/") && strings.IndexByte(first, 0) < 0 {
			return path.Join(first, "pkg/mod")
		}
	}
	if s.xdg != "" {
		if p := absolute("XDG_CACHE_HOME"); p != "" {
			return path.Join(p, s.xdg)
		}
	}
	if c.at.home == "" {
		return ""
	}
	return path.Join(c.at.home, s.home)
}

// refuse tells why a directory must not become a layer. A project must not
// choose what is shown, and what a command can write may be its work.
func (c *cacher) refuse(l located) error {
	p := l.path
	switch {
	case p == "/":
		return errors.New("it is the whole file system")
	case c.home.exists() && within(c.home.path, p):
		return errors.New("it is, or contains, the home directory")
	case slices.ContainsFunc(ours, func(d string) bool { return within(p, d) }):
		return errors.New("wall makes its own")
	}
	for _, t := range c.trees {
		if within(p, t) || within(t, p) {
			return fmt.Errorf("the command can write in %s", quote(t))
		}
		for _, k := range l.links {
			if within(k.at, t) {
				return fmt.Errorf("the symbolic link %s on the way may be a command's work", quote(k.at))
			}
		}
	}
	for _, q := range c.b.requests {
		if q.kind != reqHide || q.absent && !q.forced {
			continue
		}
		switch {
		case within(p, q.path) && q.layer == ownLayer:
			return errors.New("it is wall's own state")
		case within(p, q.path):
			return fmt.Errorf("it is hidden by %s", place(q.origin))
		case within(q.path, p) && q.layer == ownLayer:
			return errors.New("it contains wall's own state")
		}
	}
	return nil
}

// place decides where a cache stands inside: where the tool has it, if
// something can be mounted there, because tools note such paths (Go in build
// ids, cargo in fingerprints, uv in links). at is what the tool is told.
func (c *cacher) place(s cacheStore, spelled string, l located, why error) (at string, inPlace bool) {
	if why == nil && spelled != "" && l.err == nil {
		switch around := c.b.foresee(l.path); {
		case around == madeWritable,
			around == made && l.exists(),
			around == showsHost && l.exists() && !s.shared:
			return spelled, true
		}
	}
	return c.privatePlace(s), false
}

func (c *cacher) privatePlace(s cacheStore) string {
	if !c.private {
		c.private = true
		if c.b.foresee(c.run()+"/wall") != madeWritable {
			c.b.fail(&plan.Error{Op: "cannot make private caches in " + privateCaches + ": the box has no /run of its own", Origin: c.origin,
				Hint: "remove the tools from caches, or what grants /run"})
		}
	}
	return privateCaches + "/" + s.name
}

// method decides how the directories of a cache are shown: "layer", "copy",
// "read" (read-only) or "empty".
func (c *cacher) method(s cacheStore, spelled string, dirs []lowerDir) string {
	if len(dirs) == 0 {
		return "empty"
	}
	if c.s.CachesMethod.V == "layer" && c.h.NoOverlay == nil {
		return "layer"
	}
	why := ""
	if c.h.NoOverlay != nil && c.s.CachesMethod.V == "layer" {
		why = "this host cannot make a layer over " + quote(spelled) + " (" + c.h.NoOverlay.Error() + ")"
	}
	if !CacheOver(c.h.FS, dirsOf(dirs), CacheCopyMax) {
		if why != "" {
			c.notice("the cache of "+s.tool()+" is a copy inside: "+why, "")
		}
		return "copy"
	}
	if why != "" {
		why += ", and it is larger than " + formatSize(CacheCopyMax)
	} else {
		why = quote(spelled) + " is larger than " + formatSize(CacheCopyMax)
	}
	if s.usable {
		c.notice("the cache of "+s.tool()+" is read-only inside: "+why, "")
		return "read"
	}
	c.notice("the cache of "+s.tool()+" is empty inside: "+why, "")
	return "empty"
}

func dirsOf(dirs []lowerDir) []string {
	out := make([]string, len(dirs))
	for i, d := range dirs {
		out[i] = d.at
	}
	return out
}

// CacheOver reports whether the regular files below dirs, absolute paths free of
// links, take more than limit bytes together. Links are not followed and count
// nothing, as does what cannot be read. It stops as soon as it knows, and gives
// up on a tree of very many files, which counts as over.
func CacheOver(fsys fs.FS, dirs []string, limit uint64) bool {
	var size uint64
	entries := 0
	over := errors.New("over")
	for _, d := range dirs {
		err := fs.WalkDir(fsys, name(d), func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return nil // nothing that can be read is nothing that is copied
			}
			if entries++; entries > maxCacheEntries {
				return over
			}
			if !e.Type().IsRegular() {
				return nil
			}
			st, err := e.Info()
			if err != nil {
				return nil
			}
			if size += uint64(st.Size()); size > limit {
				return over
			}
			return nil
		})
		if err == over {
			return true
		}
	}
	return false
}

// layer asks for one directory of a cache at the path real.
func (c *cacher) layer(s cacheStore, method string, d lowerDir, real string) {
	name := c.dirName(s, d.rel)
	name = strings.TrimSuffix(name, ".")
	r := request{path: real, kind: reqLayer, origin: c.origin, lower: d.at}
	switch method {
	case "layer":
		r.mount = plan.Mount{Op: plan.OpOverlay, Source: d.at, Upper: name + ".upper", Work: name + ".work", Origin: c.origin}
		if c.kept == "" {
			c.scratchDir(r.mount.Upper, 0o700)
			c.scratchDir(r.mount.Work, 0o700)
			break
		}
		c.p.Scratch.Kept.Path = c.kept
		c.p.Scratch.Kept.Dirs = append(c.p.Scratch.Kept.Dirs, r.mount.Upper, r.mount.Work)
		slices.Sort(c.p.Scratch.Kept.Dirs)
		r.mount.Upper, r.mount.Work = c.kept+"/"+r.mount.Upper, c.kept+"/"+r.mount.Work
	case "copy":
		c.scratchDir(name, 0o700)
		c.p.Scratch.Copies = append(c.p.Scratch.Copies, plan.TreeCopy{Source: d.at, Target: name, Max: CacheCopyMax, Origin: c.origin})
		r.mount = plan.Mount{Op: plan.OpScratch, Source: name, Origin: c.origin}
	case "read":
		r.mount = plan.Mount{Op: plan.OpBind, Source: d.at, Access: plan.AccessRead, Type: plan.TypeDir, Origin: c.origin}
	}
	// What is hidden in the directory is hidden in the layer, too.
	for _, q := range c.b.requests {
		if q.kind == reqHide && below(q.path, d.at) && real != d.at && (!q.absent || q.forced) {
			x := *q
			x.path = real + strings.TrimPrefix(q.path, d.at)
			c.b.add(x)
		}
	}
	c.b.add(r)
}

// set remembers the variables that lead the tool to its cache.
func (c *cacher) set(s cacheStore, at string) {
	vars := [][2]string{}
	switch {
	case s.inside != nil && at == path.Join(c.at.home, s.home):
		// It finds it there by itself.
	case s.inside != nil:
		vars = s.inside(at)
	default:
		for _, v := range s.vars {
			vars = append(vars, [2]string{v, at})
		}
	}
	for _, v := range vars {
		c.cacheVars = append(c.cacheVars, cacheVar{v[0], v[1], c.origin})
	}
}

// A cacheVar is a variable that leads a tool to its private cache.
type cacheVar struct {
	name, value string
	origin      plan.Origin
}

// keep finds the directory of the layers that later runs in this workspace see.
func (c *cacher) keep() {
	o := c.s.CachesKeep.Origin
	not := func(why string) {
		c.b.notices = append(c.b.notices, plan.Notice{Origin: o, Text: "what is written to the caches is not kept this time: " + why})
	}
	switch {
	case c.h.CachesBusy:
		not("another run in this workspace uses what is kept")
		return
	case c.h.NoOverlay != nil:
		not("this host cannot make a layer over a cache")
		return
	case c.s.CachesMethod.V != "layer":
		not("copies are thrown away")
		return
	}
	dir, err := c.cacheState()
	if err != nil {
		not(err.Error())
		return
	}
	h := sha256.Sum256([]byte(strconv.Itoa(c.h.UID) + "\x00" + c.at.workspace))
	c.kept = dir + "/" + hex.EncodeToString(h[:16])
}

// cacheState is wall's own directory of kept caches, free of links:
// ~/.cache/wall/caches in the home directory of the account. XDG_CACHE_HOME is
// not asked: it may lie in a project, whose command could prepare layers there
// for other workspaces.
func (c *cacher) cacheState() (string, error) {
	if c.at.home == "" {
		return "", errNoHome
	}
	base := join(c.at.home, ".cache")
	l := c.t.walk(path.Join(base, "wall/caches"))
	if l.err != nil {
		return "", fmt.Errorf("%s: %w", quote(base), l.err)
	}
	for _, t := range c.trees {
		if within(l.path, t) || slices.ContainsFunc(l.links, func(k link) bool { return within(k.at, t) }) {
			return "", fmt.Errorf("%s lies in %s, which a command can write", quote(l.path), quote(t))
		}
	}
	return l.path, nil
}
