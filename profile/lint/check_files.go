package lint

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// The rules about files. All of them look at what the checked file itself says,
// so that a finding stands where the line can be changed, and at what is in
// force, so that it is true.

func (x *check) ownWriteGrants() []entry {
	return slices.DeleteFunc(x.ownGrants(), func(e entry) bool { return e.grant.Access != plan.AccessWrite })
}

// grantText is the path of a grant as it was written.
func grantText(e entry) string { return fmt.Sprintf("%q", e.grant.Path) }

func (x *check) onGrant(e entry, message string) { x.at(e.origin, e.grant.Path, message) }

// shielded reports whether p, which lies below the grant g, is kept from it by
// something more specific: hidden, protected, or granted for reading only.
func (x *check) shielded(p, g string) bool {
	if h, ok := x.hiddenBy(p); ok && depth(h.val) >= depth(g) {
		return true
	}
	for _, e := range x.spots("filesystem.protect") {
		if globCovers(e.val, p) && depth(e.val) >= depth(g) {
			return true
		}
	}
	for _, e := range x.grants() {
		if e.grant.Access == plan.AccessRead && within(p, e.val) && depth(e.val) > depth(g) {
			return true
		}
	}
	return false
}

// reaches gives the first place of a list that the grant reaches and nothing
// keeps from it.
func (x *check) reaches(list []place, g string) (place, bool) {
	for _, l := range list {
		if globCovers(l.path, g) || below(l.path, g) && !x.shielded(l.path, g) {
			return l, true
		}
	}
	return place{}, false
}

func inSystem(p string) bool {
	for _, d := range []string{"/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr", "/nix/store"} {
		if within(p, d) {
			return true
		}
	}
	return slices.Contains([]string{"/", "/home", "/nix", "/opt", "/run", "/var", "/var/lib", "/root", "/mnt", "/srv"}, p)
}

func systemWritable(x *check) {
	for _, g := range x.ownWriteGrants() {
		if inSystem(g.val) {
			x.onGrant(g, grantText(g)+" is writable, which belongs to the system")
		}
	}
}

func homeWritable(x *check) {
	for _, g := range x.ownWriteGrants() {
		if g.val == "~" {
			x.onGrant(g, "the whole home directory is writable")
		}
	}
}

// special reports whether a grant is so wide that a rule of its own says so.
func special(p string) bool { return p == "~" || inSystem(p) }

func writablePath(x *check) {
	dirs := slices.Clone(pathDirs)
	for _, d := range x.o.Path {
		if strings.HasPrefix(d, "/") {
			dirs = append(dirs, x.foldHome(path.Clean(d)))
		}
	}
	for _, g := range x.ownWriteGrants() {
		if special(g.val) {
			continue
		}
		for _, d := range dirs {
			if within(g.val, d) || below(d, g.val) && !x.shielded(d, g.val) {
				x.onGrant(g, fmt.Sprintf("%s is writable, and %s is usually on PATH", grantText(g), d))
				break
			}
		}
	}
}

func writableStartup(x *check) {
	for _, g := range x.ownWriteGrants() {
		if special(g.val) {
			continue
		}
		if p, ok := x.reaches(startup, g.val); ok {
			x.onGrant(g, fmt.Sprintf("%s is writable: %s, %s", grantText(g), p.path, p.what))
		}
	}
}

func writableHooks(x *check) {
	for _, g := range x.ownWriteGrants() {
		for _, p := range projectStartup {
			if within(g.val, p.path) {
				x.onGrant(g, fmt.Sprintf("%s is writable: %s", grantText(g), p.what))
				break
			}
		}
	}
}

func socketGranted(x *check) {
	for _, g := range x.ownGrants() {
		if p, ok := x.reaches(sockets, g.val); ok {
			x.onGrant(g, fmt.Sprintf("%s reaches %s", grantText(g), p.what))
		}
	}
}

func workspaceTooWide(x *check) {
	if ws, h := x.workspace, x.home; x.project && ws != "" {
		what := ""
		switch {
		case ws == "/":
			what = "the root directory"
		case ws == h:
			what = "the home directory"
		case h != "" && strings.HasPrefix(h, ws+"/"):
			what = "a parent of the home directory"
		}
		if what != "" {
			e := x.anchor()
			x.at(e.origin, e.text(), "the workspace of this project layer is "+what)
		}
	}
	for _, g := range x.ownWriteGrants() {
		if strings.HasSuffix(g.val, "/..") {
			x.onGrant(g, grantText(g)+" is writable, which is a parent of the directory that it starts from")
		}
	}
}

func credentialsGranted(x *check) {
	for _, g := range x.ownGrants() {
		for _, p := range credentials {
			if within(g.val, p.path) || below(p.path, g.val) && x.readable(p.path) {
				x.onGrant(g, fmt.Sprintf("%s holds %s", grantText(g), p.what))
				break
			}
		}
	}
}

// readableCredentials names up to three places of credentials that can be read.
func (x *check) readableCredentials() []string {
	var out []string
	for _, p := range credentials {
		if x.readable(p.path) {
			out = append(out, p.path)
		}
	}
	return out
}

func some(names []string) string {
	const most = 3
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// contributors gives what the checked file itself adds to the readability of
// credentials.
func (x *check) contributors() []entry {
	var out []entry
	for _, e := range x.m.ownOf("filesystem.view", "filesystem.home", "filesystem.hide", "filesystem.grant", "extends") {
		switch e.key {
		case "filesystem.hide":
			if !e.empty {
				continue
			}
		case "filesystem.grant":
			if e.empty || !slices.ContainsFunc(credentials, func(p place) bool {
				s := x.spot(e.val)
				return within(s, p.path) || below(p.path, s)
			}) {
				continue
			}
		}
		out = append(out, e)
	}
	return out
}

func networkWithCredentials(x *check) {
	if !x.m.is("network.mode", "host") && !x.m.is("enforce", "fs") || x.m.is("enforce", "off") {
		return
	}
	names := x.readableCredentials()
	if len(names) == 0 {
		return
	}
	own := append(x.m.ownOf("network.mode"), x.contributors()...)
	if e := x.m.ownOf("enforce"); len(e) > 0 && e[0].val == "fs" {
		own = append(e, own...)
	}
	if len(own) > 0 {
		x.on(own[0], "the network of the host is open and credentials are readable: "+some(names))
	}
}

func homeUnhidden(x *check) {
	if !x.m.is("filesystem.home", "read-only") || x.m.is("enforce", "off") {
		return
	}
	var names []string
	for _, n := range x.readableCredentials() {
		if within(n, "~") {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		return
	}
	for _, e := range x.m.ownOf("filesystem.home", "filesystem.hide") {
		if e.key == "filesystem.home" || e.empty {
			x.on(e, "the home directory is readable with "+some(names))
			return
		}
	}
}

func grantWithoutWhy(x *check) {
	for _, g := range x.ownGrants() {
		if strings.TrimSpace(g.grant.Why) == "" {
			x.onGrant(g, "the grant of "+grantText(g)+" has no reason")
		}
	}
	for _, e := range x.m.mine("filesystem.seed") {
		if !e.empty && strings.TrimSpace(e.why) == "" {
			x.at(e.origin, e.val, fmt.Sprintf("the copy of %q has no reason", e.val))
		}
	}
}

func grantNotOptional(x *check) {
	for _, g := range x.ownGrants() {
		if below(g.val, "~") && !g.grant.Optional {
			x.onGrant(g, grantText(g)+" must exist in everybody's home directory")
		}
	}
}

func grantCancelsHide(x *check) {
	for _, g := range x.ownGrants() {
		if g.grant.Access == plan.AccessRead && path.Base(g.val) == "bin" {
			continue // programs: the hide is there for what lies beside them
		}
		if h, ok := x.hiddenBy(g.val); ok && depth(h.val) < depth(g.val) {
			x.onGrant(g, fmt.Sprintf("%s is visible although %s is hidden%s", grantText(g), h.val, x.where(h)))
		}
	}
}

// where says in which line an entry stands.
func (x *check) where(e entry) string {
	switch {
	case e.origin.Line == 0:
		return ""
	case e.layer == x.m.top:
		return fmt.Sprintf(" (line %d)", e.origin.Line)
	}
	if strings.HasPrefix(e.origin.File, "built-in:") {
		return " (" + e.origin.File + ")"
	}
	return fmt.Sprintf(" (%s:%d)", e.origin.File, e.origin.Line)
}

func nonPortable(x *check) {
	for _, e := range x.m.ownOf("filesystem.grant", "filesystem.hide", "filesystem.protect", "process.seccomp") {
		if e.empty {
			continue
		}
		if why := machinePath(e.val); why != "" {
			x.at(e.origin, e.val, fmt.Sprintf("%q %s", e.val, why))
		}
	}
}

// machinePath tells why a path is of one machine or account, "" when it is not.
func machinePath(p string) string {
	for _, d := range []string{"/home/", "/Users/"} {
		rest, ok := strings.CutPrefix(p, d)
		if name, _, _ := strings.Cut(rest, "/"); ok && account(name) {
			return "is the home directory of one account"
		}
	}
	for _, d := range []string{"/mnt/", "/media/", "/Volumes/", "/run/media/"} {
		if strings.HasPrefix(p, d) {
			return "is where one machine mounts something"
		}
	}
	if rest, ok := strings.CutPrefix(p, "/run/user/"); ok && rest != "" && strings.Trim(strings.SplitN(rest, "/", 2)[0], "0123456789") == "" {
		return "names one user's number"
	}
	if len(p) > 2 && p[1] == ':' && (p[2] == '\\' || p[2] == '/') {
		return "is a path of another operating system"
	}
	return ""
}

func protectDropped(x *check) {
	for _, e := range x.m.mine("filesystem.protect") {
		if e.empty {
			msg := "git's hooks and configuration are not protected"
			if below := x.m.below("filesystem.protect"); len(below) > 0 {
				msg += ", and what the profiles below protect is dropped" + x.where(below[0])
			}
			x.on(e, msg)
		}
	}
}

func hideDropped(x *check) {
	for _, e := range x.m.mine("filesystem.hide") {
		if below := x.m.below("filesystem.hide"); e.empty && len(below) > 0 {
			x.on(e, "what the profiles below hide is shown"+x.where(below[0]))
		}
	}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func deviceGranted(x *check) {
	for _, e := range x.m.mine("filesystem.devices") {
		if !e.empty {
			x.on(e, "the command gets the device "+e.val)
		}
	}
}

// fileNames are endings of names that are files and not directories.
var fileNames = []string{
	".json", ".jsonc", ".toml", ".yaml", ".yml", ".ini", ".cfg", ".conf", ".lock", ".db", ".sqlite", ".sqlite3", ".log", ".txt",
	".xml", ".properties", ".env", ".md", ".sh", ".py", ".js", ".ts", ".go", ".rs", ".pem", ".key", ".crt", ".csv", ".sum", ".mod", "rc", "_history", ".gitconfig",
}

func singleFileWrite(x *check) {
	for _, g := range x.ownWriteGrants() {
		st, known := x.stat(g.val)
		base := path.Base(g.val)
		// A leading dot is no ending, but .bashrc is a file.
		file := slices.ContainsFunc(fileNames, func(end string) bool { return strings.HasSuffix(base, end) && (base != end || end == ".gitconfig") })
		if known && st.Mode().IsRegular() || !known && file {
			x.onGrant(g, grantText(g)+" is a single file that is writable")
		}
	}
}

func writableRepository(x *check) {
	for _, g := range x.ownWriteGrants() {
		if within(g.val, "$workspace") && !climbs(g.val) || special(g.val) {
			continue
		}
		switch {
		case slices.Contains(strings.Split(g.val, "/"), ".git") || strings.HasSuffix(g.val, ".git"):
			x.onGrant(g, grantText(g)+" is inside of a git repository's own directory")
			continue
		case x.has(g.val + "/.git"):
			x.onGrant(g, grantText(g)+" is a git repository")
			continue
		}
		if name := x.childRepository(g.val); name != "" {
			x.onGrant(g, fmt.Sprintf("%s holds the git repository %s", grantText(g), name))
		}
	}
}

func (x *check) has(p string) bool { _, ok := x.stat(p); return ok }

// childRepository finds a repository directly in a directory. It looks at few
// entries: this is a lint and not a search.
func (x *check) childRepository(p string) string {
	abs := x.abs(p)
	if abs == "" || x.o.Host.FS == nil {
		return ""
	}
	d, err := x.o.Host.FS.Open(fsName(abs))
	if err != nil {
		return ""
	}
	defer d.Close()
	dir, ok := d.(fs.ReadDirFile)
	if !ok {
		return ""
	}
	es, _ := dir.ReadDir(200) // the rest is not looked at, and what cannot be listed has no findings
	slices.SortFunc(es, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range es {
		if e.IsDir() && x.has(p+"/"+e.Name()+"/.git") {
			return e.Name()
		}
	}
	return ""
}

func deepGlob(x *check) {
	for _, e := range x.m.mine("filesystem.hide") {
		if e.empty || !isGlob(e.val) {
			continue
		}
		es := strings.Split(e.val, "/")
		if strings.HasPrefix(e.val, "$workspace/") {
			es = es[1:]
		}
		switch tail := es[1:]; {
		case slices.Contains(es, ".."):
			x.problem("W003", e.origin, fmt.Sprintf("cannot hide %q: a pattern cannot contain \"..\"", e.val), "")
		case slices.ContainsFunc(tail, func(s string) bool { return strings.Contains(s, "**") }) || es[0] != "**" && strings.Contains(es[0], "**"):
			x.problem("W003", e.origin, fmt.Sprintf("cannot hide %q: \"**\" is only possible as the first element below the workspace", e.val), "write **/NAME, or name the directories")
		case es[0] == "**" && len(tail) > 0 && strings.HasPrefix(tail[len(tail)-1], "*"):
			x.on(e, fmt.Sprintf("%q looks at every file of the workspace and covers any number of them", e.val))
		case es[0] != "**" && wildDirs(es) > 1:
			x.on(e, fmt.Sprintf("%q lists every directory of several levels", e.val))
		case (es[0] == "~" || es[0] == "$home" || es[0] == "") && len(tail) > 1 && isGlob(tail[0]):
			x.on(e, fmt.Sprintf("%q lists every directory of %q", e.val, es[0]+"/"))
		}
	}
}

// wildDirs counts the elements in front of the last that are patterns.
func wildDirs(es []string) int {
	n := 0
	for _, s := range es[:len(es)-1] {
		if isGlob(s) {
			n++
		}
	}
	return n
}

func seccompFile(x *check) {
	for _, e := range x.m.mine("process.seccomp") {
		if !strings.Contains(e.val, "/") {
			continue
		}
		abs := ""
		head, rest, _ := strings.Cut(e.val, "/")
		inside := head == "$workspace" || head == "$cwd"
		switch head {
		case "":
			abs = path.Clean(e.val)
		case "~", "$home", "$workspace":
			abs = x.abs(under(strings.Replace(head, "$home", "~", 1), rest))
		case "$cwd":
		default:
			if x.src.Path != "" {
				abs = path.Join(path.Dir(x.src.Path), e.val)
			}
		}
		if ws := x.workspace; ws != "" && abs != "" && within(abs, ws) && (x.project || !within(x.src.Path, ws)) {
			inside = true
		}
		if inside {
			x.on(e, fmt.Sprintf("the filter %q lies in the workspace", e.val))
			continue
		}
		if abs == "" || x.o.Host.FS == nil {
			continue
		}
		switch st, err := fs.Stat(x.o.Host.FS, fsName(abs)); {
		case errors.Is(err, fs.ErrNotExist):
			x.on(e, fmt.Sprintf("the filter %q does not exist", e.val))
		case err != nil:
			x.on(e, fmt.Sprintf("the filter %q cannot be read: %s", e.val, reasonOf(err)))
		case !st.Mode().IsRegular():
			x.on(e, fmt.Sprintf("the filter %q is not a regular file", e.val))
		}
	}
}

func unprotected(x *check) {
	if !x.m.is("filesystem.workspace", "read-write") || x.m.is("enforce", "off") {
		return
	}
	var names []string
	for _, p := range []string{"$workspace/.envrc", "$workspace/.vscode", "$workspace/.github/workflows", "$workspace/.husky"} {
		if !slices.ContainsFunc(x.spots("filesystem.protect"), func(e entry) bool { return globCovers(e.val, p) }) {
			names = append(names, strings.TrimPrefix(p, "$workspace/"))
		}
	}
	if own := x.m.ownOf("filesystem.workspace"); len(names) > 0 && len(own) > 0 {
		x.on(own[0], "the workspace is writable with "+some(names))
	}
}
