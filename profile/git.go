package profile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// maxModules bounds the search for submodules, in directories looked at.
const maxModules = 1000

// maxGitFile bounds what is read of a config or pointer file.
const maxGitFile = 1 << 20

// protectPath asks for p, an absolute path, to be read-only inside a writable
// tree. A link on the way is protected itself, so that it keeps pointing where
// it does, and so is what it points to. An absent name gets a placeholder of
// type absent with the given content; when a directory on the way is absent
// too, that directory is the placeholder, because nothing can then be made
// below it.
func (b *builder) protectPath(p string, o plan.Origin, absent plan.FileType, content string) {
	l := b.t.walk(p)
	for _, k := range l.links {
		b.add(request{path: k.at, kind: reqProtect, typ: plan.TypeSymlink, origin: o})
	}
	switch {
	case errors.Is(l.err, errNotDir):
		// A file stands where a directory is meant; it must not be replaced by one.
		for d := path.Dir(l.path); d != "/"; d = path.Dir(d) {
			if e := b.t.lstat(d); e.err == nil {
				b.add(request{path: d, kind: reqProtect, typ: fileType(e.mode), origin: o})
				return
			}
		}
	case l.err != nil:
		b.fail(&plan.Error{Op: "cannot protect " + quote(p), Origin: o, Err: l.err})
	case l.missing != "" && l.missing != l.path:
		b.add(request{path: l.missing, kind: reqProtect, typ: plan.TypeDir, absent: true, origin: o})
	case l.missing != "" && b.emptyDir(path.Dir(l.path)):
		// Perhaps the placeholder of another run, in which nothing may be made.
		b.add(request{path: path.Dir(l.path), kind: reqProtect, typ: plan.TypeDir, origin: o})
	case l.missing != "":
		b.add(request{path: l.missing, kind: reqProtect, typ: absent, absent: true, text: content, origin: o})
	default:
		b.add(request{path: l.path, kind: reqProtect, typ: fileType(l.mode), origin: o})
	}
}

// emptyDir reports whether d is an empty directory inside the workspace.
func (b *builder) emptyDir(d string) bool {
	if !below(d, b.workspace) || strings.Contains(d+"/", "/.git/") { // git fills its own
		return false
	}
	es, err := b.t.readDir(d)
	return err == nil && len(es) == 0
}

// gitProtect protects what lets git on the host run code or look elsewhere, in
// the repository at top: configuration, hooks, info, and the pointers between
// worktrees, submodules and repositories. An absent .git is protected as well
// when top is the workspace, because git would take one that the command made.
//
// Nothing here is taken from a file inside top but further paths to protect:
// a pointer that leads out of top grants nothing.
func (b *builder) gitProtect(top string, o plan.Origin, workspace bool) {
	g := gitScan{b: b, top: top, o: o}
	dot := join(top, ".git")
	e := b.t.lstat(dot)
	bare := g.isGitDir(top)
	if bare {
		g.gitDir(top)
	}
	if g.isWorktree(top) { // granted by itself, out of a repository that is not
		for _, f := range []string{"gitdir", "commondir", "config.worktree"} {
			b.protectPath(join(top, f), o, plan.TypeFile, "")
		}
	}
	switch {
	case errors.Is(e.err, fs.ErrNotExist):
		if workspace {
			b.emptyGit = true
			b.protectPath(dot, o, plan.TypeDir, "")
		}
	case e.err != nil:
		b.fail(&plan.Error{Op: "cannot look at " + quote(dot), Origin: o, Err: cause(e.err)})
	default:
		l := b.t.walk(dot)
		if !l.exists() {
			b.protectPath(dot, o, plan.TypeDir, "")
			return
		}
		if l.mode.IsDir() {
			if !g.isGitDir(l.path) {
				// No repository, perhaps the placeholder of another run or of
				// one that was killed: nothing may make it one.
				b.emptyGit = b.emptyGit || workspace
				b.protectPath(dot, o, plan.TypeDir, "")
				return
			}
			if e.mode&fs.ModeSymlink != 0 {
				b.links2protect(l, o)
			}
			g.gitDir(l.path)
			return
		}
		b.protectPath(dot, o, plan.TypeFile, "")
		g.gitFile(l.path, workspace)
	}
}

func (b *builder) links2protect(l located, o plan.Origin) {
	for _, k := range l.links {
		b.add(request{path: k.at, kind: reqProtect, typ: plan.TypeSymlink, origin: o})
	}
}

// isWorktree reports whether d is the directory of a linked worktree in its
// repository: pointers out of it, and a HEAD.
func (g *gitScan) isWorktree(d string) bool {
	return g.b.t.exists(join(d, "HEAD")) && g.b.t.exists(join(d, "commondir"))
}

type gitScan struct {
	b      *builder
	top    string
	o      plan.Origin
	looked int
}

// isGitDir is git's own test, is_git_directory in setup.c: HEAD, objects, refs.
func (g *gitScan) isGitDir(d string) bool {
	return g.b.t.exists(join(d, "HEAD")) && g.b.t.exists(join(d, "objects")) && g.b.t.exists(join(d, "refs"))
}

// gitDir protects one repository directory, free of links.
func (g *gitScan) gitDir(d string) {
	b := g.b
	b.protectPath(join(d, "config"), g.o, plan.TypeFile, "")
	b.protectPath(join(d, "hooks"), g.o, plan.TypeDir, "")
	// Not the whole of info: git itself keeps info/refs and others up to date.
	for _, f := range []string{"attributes", "exclude"} {
		b.protectPath(join(d, "info/"+f), g.o, plan.TypeFile, "")
	}
	for _, f := range []string{"grafts", "sparse-checkout"} { // git complains of an empty grafts
		if b.t.exists(join(d, "info/"+f)) {
			b.protectPath(join(d, "info/"+f), g.o, plan.TypeFile, "")
		}
	}
	// With a commondir git takes config and hooks from another place; "." means here.
	b.protectPath(join(d, "commondir"), g.o, plan.TypeFile, ".\n")
	perTree := g.config(d, join(d, "config"), 0)
	if perTree || b.t.exists(join(d, "config.worktree")) {
		b.protectPath(join(d, "config.worktree"), g.o, plan.TypeFile, "")
		g.config(d, join(d, "config.worktree"), 0)
	}
	g.worktrees(join(d, "worktrees"), perTree)
	g.modules(join(d, "modules"))
}

// maxIncludes is how deep git follows include.path (MAX_INCLUDE_DEPTH in config.c).
const maxIncludes = 10

// config protects what a config file of the repository d names inside top:
// further config files, which it reads too, a directory of hooks, the
// worktree of a submodule. It reports whether worktrees have a config each.
func (g *gitScan) config(d, file string, depth int) (perTree bool) {
	if depth > maxIncludes {
		return false
	}
	b := g.b
	for _, v := range gitConfig(g.read(file)) {
		switch {
		case v.key == "extensions.worktreeconfig":
			perTree = true
		case v.key == "core.hookspath": // starts from the worktree
			if p, ok := g.inside(v.value, g.top); ok {
				b.protectPath(p, g.o, plan.TypeDir, "")
			}
		case v.key == "include.path", strings.HasPrefix(v.key, "includeif.") && strings.HasSuffix(v.key, ".path"):
			if p, ok := g.inside(v.value, path.Dir(file)); ok {
				b.protectPath(p, g.o, plan.TypeFile, "")
				perTree = g.config(d, p, depth+1) || perTree
			}
		case v.key == "core.worktree" && d != g.top:
			if p, ok := g.inside(v.value, d); ok && b.t.exists(join(p, ".git")) {
				b.protectPath(join(p, ".git"), g.o, plan.TypeFile, "")
			}
		}
	}
	return perTree
}

// worktrees protects the pointers of linked worktrees.
func (g *gitScan) worktrees(dir string, perTree bool) {
	for _, e := range g.list(dir) {
		if !e.IsDir() {
			continue
		}
		w := join(dir, e.Name())
		for _, f := range []string{"gitdir", "commondir", "config.worktree"} {
			if g.b.t.exists(join(w, f)) || perTree && f == "config.worktree" {
				g.b.protectPath(join(w, f), g.o, plan.TypeFile, "")
			}
		}
	}
}

// modules finds the repositories of submodules. Their names may hold slashes,
// so a directory that is no repository may hold further ones.
func (g *gitScan) modules(dir string) {
	for _, e := range g.list(dir) {
		if !e.IsDir() {
			continue
		}
		m := join(dir, e.Name())
		if g.isGitDir(m) {
			g.gitDir(m)
		} else {
			g.modules(m)
		}
	}
}

func (g *gitScan) list(dir string) []fs.DirEntry {
	if !g.b.t.exists(dir) {
		return nil
	}
	es, err := g.b.t.readDir(dir)
	if err != nil {
		g.b.fail(&plan.Error{Op: "cannot protect git's files below " + quote(dir), Origin: g.o, Err: cause(err)})
		return nil
	}
	before := g.looked
	g.looked += len(es)
	if g.looked > maxModules {
		if before <= maxModules {
			g.b.fail(&plan.Error{Op: fmt.Sprintf("cannot protect git's files below %s: more than %d entries", quote(dir), maxModules), Origin: g.o,
				Hint: "set protect = [] in a profile file to run without git protection, or make the workspace read-only"})
		}
		return nil
	}
	return es
}

// gitFile follows the pointer in a .git that is a file. What it says is not
// trusted: a repository inside is protected, one outside is only spoken of.
func (g *gitScan) gitFile(file string, workspace bool) {
	text, ok := strings.CutPrefix(g.read(file), "gitdir:")
	if !ok {
		return
	}
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if text == "" || strings.IndexByte(text, 0) >= 0 {
		return
	}
	if !strings.HasPrefix(text, "/") {
		text = join(path.Dir(file), text)
	}
	l := g.b.t.walk(text)
	if !l.exists() || !l.mode.IsDir() || !g.isWorktree(l.path) && !g.isGitDir(l.path) {
		// Nothing that git would take. Inside, the command could make it one.
		if l.err == nil && below(l.path, g.top) {
			g.b.protectPath(text, g.o, plan.TypeDir, "")
		}
		return
	}
	common := l.path
	if c := strings.TrimSpace(g.read(join(l.path, "commondir"))); c != "" && strings.IndexByte(c, 0) < 0 {
		if !strings.HasPrefix(c, "/") {
			c = join(l.path, c)
		}
		cl := g.b.t.walk(c)
		switch {
		case cl.exists() && cl.mode.IsDir() && g.isGitDir(cl.path):
			common = cl.path
		case cl.err == nil && below(cl.path, g.top):
			g.b.protectPath(c, g.o, plan.TypeDir, "")
		}
	}
	if within(l.path, g.top) {
		for _, f := range []string{"gitdir", "commondir", "config.worktree"} {
			if g.b.t.exists(join(l.path, f)) {
				g.b.protectPath(join(l.path, f), g.o, plan.TypeFile, "")
			}
		}
		if within(common, g.top) {
			g.gitDir(common)
		}
		return
	}
	if workspace {
		g.b.outsideGit = common
	}
}

// inside makes a path of a config value absolute and reports whether it lies
// inside the tree that is looked at.
func (g *gitScan) inside(value, base string) (string, bool) {
	if tail, ok := strings.CutPrefix(value, "~/"); ok && g.b.home != "" {
		value = join(g.b.home, tail)
	}
	if value == "" || strings.HasPrefix(value, "~") || strings.HasPrefix(value, "%") || strings.IndexByte(value, 0) >= 0 {
		return "", false
	}
	if !strings.HasPrefix(value, "/") {
		value = join(base, value)
	}
	l := g.b.t.walk(value)
	if l.err != nil || !below(l.path, g.top) {
		return "", false
	}
	return l.path, true
}

// read gives the text of a regular file, "" when there is none. Only a bounded
// part is read; a longer file is no pointer and no sensible config.
func (g *gitScan) read(p string) string {
	l := g.b.t.walk(p)
	if !l.exists() || !l.mode.IsRegular() {
		return ""
	}
	f, err := g.b.t.fsys.Open(name(l.path))
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxGitFile))
	if err != nil {
		return ""
	}
	return string(data)
}

type gitVar struct{ key, value string }

// gitConfig reads the variables of a git config file, keys in lower case,
// sub-sections as "section.sub.key". It is lenient: what git would refuse, git
// does not act on. See git-config(1), "CONFIGURATION FILE".
func gitConfig(text string) []gitVar {
	var out []gitVar
	section := ""
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", "")) {
		line = strings.TrimSpace(line)
		for strings.HasPrefix(line, "[") {
			head, rest, ok := strings.Cut(line[1:], "]")
			if !ok {
				line = ""
				break
			}
			name, sub, _ := strings.Cut(head, " ")
			section = strings.ToLower(name)
			if sub = strings.Trim(strings.TrimSpace(sub), `"`); sub != "" {
				section += "." + sub
			}
			line = strings.TrimSpace(rest)
		}
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		out = append(out, gitVar{section + "." + strings.ToLower(strings.TrimSpace(key)), gitValue(value)})
	}
	return out
}

// gitValue takes quotes, escapes and a comment off a value.
func gitValue(s string) string {
	s = strings.TrimSpace(s)
	var b strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case !quoted && (c == '#' || c == ';'):
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return strings.TrimSpace(b.String())
}
