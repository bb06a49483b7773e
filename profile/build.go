package profile

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// A request asks for something at one path of the box. All requests are
// collected first and carried out sorted by path, parents first, so that no
// mount hides an earlier one and each can ask what it lies in.
type request struct {
	seq    int    // in which order it was asked for
	path   string // free of links; the same path on the host where the host is involved
	kind   requestKind
	origin plan.Origin
	layer  int // of a grant or hide; a higher one replaces a lower one at the same path

	mount  plan.Mount    // reqPrivate, reqSkeleton: the mount to make
	access plan.Access   // reqPrivate: what Landlock allows; reqGrant: read or write
	typ    plan.FileType // of the existing file; of the placeholder for an absent one
	absent bool          // reqProtect, reqHide: nothing is there
	text   string        // reqLink: the text of the link; reqProtect: content of the placeholder file
	forced bool          // reqHide: cover it even when absent, wall makes it before the box starts
	seal   bool          // reqPrivate: make it read-only at the end
	what   string        // reqGrant: "workspace", "home", "" = a grant; decides messages
	lower  string        // reqLayer: the directory of the host that it shows, "" when there is none
}

type requestKind int

// The kinds in the order in which they are carried out at one path.
const (
	reqPrivate  requestKind = iota // a tree that wall makes: tmpfs, scratch, proc...
	reqSkeleton                    // a directory, link or node in such a tree
	reqLink                        // a symbolic link of the host, made again where wall made the tree
	reqGrant                       // a tree of the host, read or write
	reqLayer                       // a private cache, over whatever is there
	reqSocket                      // a Unix socket of the host, covered where visible
	reqProtect                     // read-only inside a writable tree
	reqHide                        // not there
)

// A spot is the root of one tree inside: what is mounted there.
type spot struct {
	path   string
	host   bool        // shows the host's files of the same path
	made   bool        // wall made it, so mount points can be made in it
	layer  bool        // shows files of the host, from elsewhere, in a cache
	access plan.Access // what the mounts allow
	rule   plan.Access // what Landlock allows; none = no rule of its own
	origin plan.Origin
}

// ownLayer is above all others: nothing shows what wall itself hides.
const ownLayer = flagLayer + 2

// A builder collects requests and turns them into mounts.
type builder struct {
	t        *tree
	requests []*request
	granted  map[string]bool   // paths that a grant names exactly
	secret   map[string]string // files that values are fetched from, with the name of the variable

	spots        map[string]*spot
	pinned       map[string]bool
	ops          []plan.Mount
	seals        []plan.Mount
	absentHides  []string // absent names below readable host trees, for Landlock
	placeholders []plan.Placeholder
	errs         []error
	notices      []plan.Notice

	unreadable []plan.Check
	unwritable []plan.Check
	layered    []plan.Check

	workspace, cwd, home string
	hostView             bool   // the host's tree is the root
	hideLayer            int    // of the hides that are being asked for
	emptyGit             bool   // the workspace's .git is a directory that is no repository
	outsideGit           string // the repository that the workspace's .git file points to
}

func newBuilder(t *tree) *builder {
	return &builder{
		hideLayer: ownLayer,
		t:         t, granted: map[string]bool{}, secret: map[string]string{}, spots: make(map[string]*spot, 64), pinned: map[string]bool{},
		requests: make([]*request, 0, 256), ops: make([]plan.Mount, 0, 96),
	}
}

func (b *builder) fail(e *plan.Error) { b.errs = append(b.errs, e) }

func (b *builder) add(r request) {
	r.seq = len(b.requests)
	b.requests = append(b.requests, &r)
}

// links asks for the links of a walk to be made again where they would be missing.
func (b *builder) links(l located, o plan.Origin) {
	for _, k := range l.links {
		b.add(request{path: k.at, kind: reqLink, text: k.text, origin: o})
	}
}

// at gives the tree that a path inside lies in.
func (b *builder) at(p string) *spot {
	for {
		if s, ok := b.spots[p]; ok {
			return s
		}
		if p == "/" {
			return &spot{path: "/"}
		}
		p = path.Dir(p)
	}
}

// around is at for what a mount at p would be put on.
func (b *builder) around(p string) *spot {
	if p == "/" {
		return &spot{path: "/"}
	}
	return b.at(path.Dir(p))
}

// visible reports whether the box shows the host's file at p.
func (b *builder) visible(p string) bool {
	s := b.at(p)
	return s.host && s.access != plan.AccessNone
}

func comparePaths(a, b string) int {
	// "/" sorts before every other byte, so that a directory is followed by
	// what lies below it.
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			if a[i] == '/' {
				return -1
			}
			if b[i] == '/' {
				return 1
			}
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}

// build carries the requests out.
func (b *builder) build(root plan.Mount) {
	host := root.Op == plan.OpHostRoot
	s := &spot{path: "/", host: host, made: !host, access: plan.AccessRead, rule: plan.AccessList, origin: root.Origin}
	if host {
		s.rule = plan.AccessRead
	} else {
		b.seals = append(b.seals, plan.Mount{Op: plan.OpSeal, Target: "/", Origin: root.Origin})
	}
	b.spots["/"] = s

	slices.SortFunc(b.requests, func(x, y *request) int {
		if c := comparePaths(x.path, y.path); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.seq, y.seq))
	})
	for i := 0; i < len(b.requests); {
		j := i + 1
		for j < len(b.requests) && b.requests[j].path == b.requests[i].path {
			j++
		}
		b.onePath(b.requests[i:j], b.requests[j:])
		i = j
	}
	order := make([]int, len(b.ops)) // a Mount is large, so that moving it costs more than comparing
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		x, y := &b.ops[i], &b.ops[j]
		if c := comparePaths(x.Target, y.Target); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(opRank(x.Op), opRank(y.Op)), cmp.Compare(i, j))
	})
	ops := make([]plan.Mount, 0, 1+len(b.ops)+len(b.seals))
	ops = append(ops, root)
	for _, i := range order {
		ops = append(ops, b.ops[i])
	}
	// Deepest first, so that a sealed tree never lacks a mount point.
	slices.SortStableFunc(b.seals, func(x, y plan.Mount) int { return comparePaths(y.Target, x.Target) })
	b.ops = append(ops, b.seals...)
}

func opRank(op plan.MountOp) int {
	switch op {
	case plan.OpPin:
		return 1
	case plan.OpProtect:
		return 2
	case plan.OpCover:
		return 3
	}
	return 0
}

// onePath carries out all requests for one path. later are the requests for
// paths that sort behind it.
func (b *builder) onePath(rs, later []*request) {
	var grant, hide *request
	var protects []*request
	for _, r := range rs {
		switch r.kind {
		case reqGrant:
			grant = stronger(grant, r)
		case reqHide:
			if hide == nil || r.forced {
				hide = r
			}
		case reqProtect:
			protects = append(protects, r)
		}
	}
	if hide != nil && grant != nil {
		if grant.what == "" && grant.layer > hide.layer && !hide.forced {
			// Whoever wrote the higher layer knew of the lower one.
			b.notices = append(b.notices, plan.Notice{Origin: grant.origin, Text: quote(grant.path) + " is visible inside, although " + place(hide.origin) + " hides it"})
			hide = nil
		} else if b.conflict(grant, hide) {
			return
		}
	}
	var done [reqHide + 1]bool
	for _, r := range rs {
		switch r.kind {
		case reqPrivate:
			// The workspace may be /tmp or, with the explicit flag, HOME; then
			// there is nothing private at this path.
			if grant == nil && !done[r.kind] {
				b.private(r)
			}
		case reqSkeleton:
			if !done[r.kind] && b.around(r.path).made {
				b.ops = append(b.ops, r.mount)
			}
		case reqLink:
			if !done[r.kind] && b.around(r.path).made {
				b.ops = append(b.ops, plan.Mount{Op: plan.OpSymlink, Target: r.path, Source: r.text, Origin: r.origin})
			}
		case reqSocket:
			// Anybody can have a name in the kernel's table of sockets that says
			// something else here; only a real socket is covered.
			if !done[r.kind] && hide == nil && len(protects) == 0 && !b.granted[r.path] && b.visible(r.path) && b.isSocket(r.path) {
				b.cover(r, plan.TypeFile)
			}
		default:
			continue
		}
		done[r.kind] = true
	}
	if grant != nil {
		b.grant(grant)
	}
	for _, r := range rs {
		if r.kind == reqLayer && !done[r.kind] {
			b.layer(r)
			done[r.kind] = true
		}
	}
	if grant != nil && grant.what == "" && grant.access == plan.AccessWrite && hide == nil {
		if i := slices.IndexFunc(protects, func(r *request) bool { return r.typ != plan.TypeSymlink }); i >= 0 {
			b.notices = append(b.notices, plan.Notice{Origin: grant.origin,
				Text: quote(grant.path) + " stays read-only inside, although it is granted: it is protected by " + place(protects[i].origin),
				Hint: "set protect = [] in a profile file, list there what shall stay protected, and extend that"})
		}
	}
	if hide == nil || hide.absent && !hide.forced {
		// Nothing is there to be covered, so that the protection is needed:
		// the name could be made.
		for i, r := range protects {
			if i == 0 || r.typ == plan.TypeSymlink != (protects[0].typ == plan.TypeSymlink) {
				b.protect(r)
			}
		}
	}
	if hide != nil {
		b.hide(hide, later)
	}
}

// stronger picks the grant that counts of two for one path.
func stronger(a, b *request) *request {
	switch {
	case a == nil:
		return b
	case a.layer != b.layer:
		if a.layer > b.layer {
			return a
		}
		return b
	case a.access == plan.AccessWrite:
		return a
	}
	return b
}

// conflict reports a grant of a hidden path; hide wins at the same depth, and a
// grant without effect is not passed over in silence.
func (b *builder) conflict(grant, hide *request) bool {
	switch grant.what {
	case "workspace":
		b.fail(&plan.Error{Op: "cannot hide " + quote(hide.path) + ": it is the workspace", Origin: hide.origin,
			Hint: "remove the line, or choose another workspace"})
	case "home":
		b.fail(&plan.Error{Op: "cannot hide " + quote(hide.path) + ": it is the home directory", Origin: hide.origin,
			Hint: "use home = \"hidden\" or --home hidden"})
	case "runtime":
		return false
	default:
		if v := b.secret[hide.path]; v != "" {
			b.fail(&plan.Error{Op: "cannot make " + quote(grant.path) + " visible inside: the value of " + quote(v) + " comes from it", Origin: grant.origin,
				Hint: "use one of the two: a secret by name is not to be read inside as well"})
			return true
		}
		if hide.layer == ownLayer {
			b.fail(&plan.Error{Op: "cannot make " + quote(grant.path) + " visible inside", Err: errOwnState, Origin: grant.origin,
				Hint: hintOwnState})
			return true
		}
		b.fail(&plan.Error{Op: "cannot make " + quote(grant.path) + " visible inside: it is hidden by " + place(hide.origin),
			Origin: grant.origin, Hint: "grant it in a higher layer, such as a profile of your own or --ro, which beats an inherited hide"})
	}
	return true
}

func (b *builder) private(r *request) {
	m := r.mount
	around := b.around(r.path)
	switch {
	case around.made:
		m.MakeAs = plan.TypeDir
	case !b.t.exists(r.path):
		return // the host has no such directory, so nothing of the host shows there
	}
	b.ops = append(b.ops, m)
	b.spots[r.path] = &spot{path: r.path, made: true, access: r.access, rule: r.access, origin: r.origin}
	if r.seal {
		b.seals = append(b.seals, plan.Mount{Op: plan.OpSeal, Target: r.path, Origin: r.origin})
	}
}

func (b *builder) grant(r *request) {
	around := b.at(r.path)
	if around.host && around.access == r.access {
		return
	}
	m := plan.Mount{Op: plan.OpBind, Source: r.path, Target: r.path, Access: r.access, Type: r.typ, Origin: r.origin}
	if around.made && around.path != r.path {
		m.MakeAs = r.typ
	}
	if around.host && around.access == plan.AccessWrite {
		b.pins(r.path, r.origin)
	}
	b.ops = append(b.ops, m)
	b.spots[r.path] = &spot{path: r.path, host: true, access: r.access, rule: r.access, origin: r.origin}
}

// layer mounts a private cache, over what is there already if need be.
func (b *builder) layer(r *request) {
	around := b.at(r.path)
	m := r.mount
	m.Target = r.path
	switch {
	case around.path == r.path:
	case around.made:
		m.MakeAs = plan.TypeDir
	case !around.host || around.access == plan.AccessNone:
		b.fail(&plan.Error{Op: "cannot make a private cache at " + quote(r.path) + ": the directory is not visible inside", Origin: r.origin})
		return
	}
	b.ops = append(b.ops, m)
	access := plan.AccessWrite
	switch m.Op {
	case plan.OpBind:
		access = m.Access
	case plan.OpOverlay:
		b.layered = append(b.layered, plan.Check{Op: plan.CheckLayer, Path: r.path, Origin: r.origin})
	}
	b.spots[r.path] = &spot{path: r.path, made: access == plan.AccessWrite, layer: r.lower != "", access: access, rule: access, origin: r.origin}
}

// What will stand at a path.
type foreseenKind int

const (
	unseen       foreseenKind = iota // nothing, or nothing that can be told
	made                             // a tree of wall's own
	madeWritable                     // one in which the command can write
	showsHost                        // the host's files, read-only
)

// foresee tells what the requests so far will put around p, without what they
// put below it. It is asked before build, which decides.
func (b *builder) foresee(p string) foreseenKind {
	var best *request
	for _, q := range b.requests {
		if !within(p, q.path) || q.kind == reqHide && q.absent && !q.forced || q.kind == reqPrivate && q.path == p {
			continue
		}
		switch q.kind {
		case reqPrivate, reqGrant, reqHide:
		default:
			continue
		}
		if best == nil || len(q.path) > len(best.path) || len(q.path) == len(best.path) && q.kind > best.kind {
			best = q
		}
	}
	switch {
	case best == nil:
		if b.hostView {
			return showsHost
		}
		return made
	case best.kind == reqPrivate && best.access == plan.AccessWrite:
		return madeWritable
	case best.kind == reqPrivate:
		return made
	case best.kind == reqGrant && best.access == plan.AccessRead:
		return showsHost
	}
	return unseen
}

// pins keeps the directories between the enclosing mount and p from being
// renamed, which would take a protected path away and leave its name free.
func (b *builder) pins(p string, o plan.Origin) {
	top := b.around(p).path
	for d := path.Dir(p); d != top && below(d, top); d = path.Dir(d) {
		if b.pinned[d] {
			continue
		}
		b.pinned[d] = true
		b.ops = append(b.ops, plan.Mount{Op: plan.OpPin, Target: d, Type: plan.TypeDir, Origin: o})
	}
}

func (b *builder) protect(r *request) {
	around := b.around(r.path)
	self := b.at(r.path)
	if r.typ == plan.TypeSymlink {
		self = around // a link cannot be the root of a tree
	}
	if !self.host || self.access != plan.AccessWrite {
		return // not there, or read-only already
	}
	if r.absent {
		b.placeholders = append(b.placeholders, plan.Placeholder{Path: r.path, Type: r.typ, Content: r.text, Origin: r.origin})
	}
	if around.host && around.access == plan.AccessWrite {
		b.pins(r.path, r.origin)
	}
	b.ops = append(b.ops, plan.Mount{Op: plan.OpProtect, Target: r.path, Type: r.typ, Origin: r.origin})
	switch r.typ {
	case plan.TypeSymlink:
		return
	case plan.TypeDir:
		b.unwritable = append(b.unwritable, plan.Check{Op: plan.CheckUnwritable, Path: join(r.path, checkFile), Origin: r.origin})
	default:
		b.unwritable = append(b.unwritable, plan.Check{Op: plan.CheckUnwritable, Path: r.path, Origin: r.origin})
	}
	s := &spot{path: r.path, host: true, access: plan.AccessRead, origin: r.origin}
	if self.path == r.path {
		s.rule = plan.AccessRead // in place of the write rule of the grant
	}
	b.spots[r.path] = s
}

// checkFile is the file that the self-test tries to make in a directory.
const checkFile = ".wall-check"

func (b *builder) hide(r *request, later []*request) {
	around := b.at(r.path)
	for _, w := range []struct{ path, what string }{
		{b.workspace, "the workspace"}, {b.cwd, "the working directory"}, {b.home, "the home directory"},
	} {
		if w.path != "" && within(w.path, r.path) {
			b.fail(&plan.Error{Op: "cannot hide " + quote(r.path) + ": it would hide " + w.what, Origin: r.origin,
				Hint: "hide paths below it instead"})
			return
		}
	}
	if !around.host && !around.layer || around.access == plan.AccessNone {
		return // not there anyway
	}
	if r.absent && !r.forced {
		if around.access == plan.AccessRead {
			b.absentHides = append(b.absentHides, r.path)
		}
		return
	}
	carved := false
	for _, l := range later {
		if !below(l.path, r.path) {
			break
		}
		carved = carved || l.kind == reqGrant
	}
	if carved && r.typ == plan.TypeDir {
		// A grant below needs a mount point, which a cover does not offer.
		b.ops = append(b.ops, plan.Mount{Op: plan.OpTmpfs, Target: r.path, Mode: 0o755, Size: skeletonSize, Origin: r.origin})
		b.seals = append(b.seals, plan.Mount{Op: plan.OpSeal, Target: r.path, Origin: r.origin})
		b.spots[r.path] = &spot{path: r.path, made: true, access: plan.AccessRead, rule: plan.AccessList, origin: r.origin}
		return
	}
	b.cover(r, r.typ)
	b.unreadable = append(b.unreadable, plan.Check{Op: plan.CheckUnreadable, Path: r.path, Origin: r.origin})
}

func (b *builder) isSocket(p string) bool {
	e := b.t.lstat(p)
	return e.err == nil && e.mode&fs.ModeSocket != 0
}

// cover is optional: what vanished since needs no cover, and Landlock has no
// rule for what appears.
func (b *builder) cover(r *request, typ plan.FileType) {
	if s := b.around(r.path); s.host && s.access == plan.AccessWrite {
		b.pins(r.path, r.origin) // so that nothing else takes the name
	}
	b.ops = append(b.ops, plan.Mount{Op: plan.OpCover, Target: r.path, Type: typ, Optional: !r.forced, Origin: r.origin})
	b.spots[r.path] = &spot{path: r.path, origin: r.origin}
}

// rules says the same again for Landlock. Landlock cannot take anything out of
// a granted tree, so a readable tree lists its exceptions, which go to the
// siblings along the way; a writable tree cannot have exceptions (nothing new
// could be made in it), so below one, the scratch home included, only the
// mounts hide, protect and keep read-only.
func (b *builder) rules() []plan.PathRule {
	all := make([]*spot, 0, len(b.spots))
	for _, s := range b.spots {
		all = append(all, s)
	}
	slices.SortFunc(all, func(x, y *spot) int { return comparePaths(x.path, y.path) })
	var out []plan.PathRule
	for i, s := range all {
		if s.rule == plan.AccessNone {
			continue
		}
		r := plan.PathRule{Path: s.path, Access: s.rule, Origin: s.origin}
		if s.host && s.rule == plan.AccessRead {
			r.Except = b.exceptions(s.path, all[i+1:])
		}
		out = append(out, r)
	}
	return out
}

// exceptions lists what is not the host's below a readable tree, without what
// lies below another exception or in a writable tree of the host.
func (b *builder) exceptions(top string, behind []*spot) []string {
	var out []string
	for _, s := range behind {
		if !below(s.path, top) {
			break
		}
		if !s.host {
			out = append(out, s.path)
		}
	}
	for _, p := range b.absentHides {
		if below(p, top) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, comparePaths)
	kept := out[:0]
	last := ""
	for _, p := range out {
		if last != "" && within(p, last) || b.writableBetween(p, top) {
			continue
		}
		last = p
		kept = append(kept, p)
	}
	slices.Sort(kept)
	return slices.Clip(kept)
}

// writableBetween reports whether a writable tree of the host lies on the way
// from top to p.
func (b *builder) writableBetween(p, top string) bool {
	for d := path.Dir(p); below(d, top); d = path.Dir(d) {
		if s, ok := b.spots[d]; ok && s.host && s.access == plan.AccessWrite {
			return true
		}
	}
	return false
}

// place names an origin in the middle of a sentence.
func place(o plan.Origin) string {
	if o.File == "" {
		return o.Text
	}
	o.Text = ""
	return o.String()
}

// quote shows a path in a message: as it is when it is plain.
func quote(s string) string {
	plainText := func(r rune) bool {
		return r > ' ' && r != 0x7f && r != '"' && r != '\'' && r != '\\' && r != '�' && !(r >= 0x80 && r < 0xa0)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plainText(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}
