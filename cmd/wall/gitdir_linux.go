package main

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A gitView is what git would find at the top of one directory, going by
// is_git_directory in git's setup.c: a HEAD, and objects and refs or a commondir.
type gitView struct {
	dir  string
	dot  bool // .git is a repository, or a file that leads to one
	bare bool // the directory itself is one: git takes its file "config" for the repository's
}

// viewGit looks at the directories that the command of p can write to. A command
// that breaks the .git which wall protects, and makes a repository of the directory
// around it, has a configuration that nothing protects, and with it the right to
// run programs (core.fsmonitor and others) when somebody runs git there later.
func viewGit(p plan.Plan) []gitView {
	var views []gitView
	for _, dir := range p.WritableRoots() {
		fd, err := openPathAt(unix.AT_FDCWD, dir, unix.O_NOFOLLOW)
		if err != nil {
			continue // optional and missing, or a file: no place to run git in
		}
		v := gitView{dir: dir, bare: isGitDir(fd)}
		if dot, err := openPathAt(fd, ".git", 0); err == nil {
			v.dot = isGitDir(dot)
			unix.Close(dot)
		} else {
			v.dot = strings.HasPrefix(readHead(fd, ".git"), "gitdir: ")
		}
		unix.Close(fd)
		views = append(views, v)
	}
	return views
}

// gitWarnings compares what git would find before and after a run.
func gitWarnings(before, after []gitView) []string {
	var warnings []string
	now := make(map[string]gitView, len(after))
	for _, v := range after {
		now[v.dir] = v
	}
	for _, was := range before {
		is, what := now[was.dir], ""
		switch {
		case is.bare && !was.bare:
			what = "the command made a repository of " + oneLine(was.dir) + " itself (HEAD, objects, refs): git would take it for one and run what its file \"config\" says"
		case was.dot && !is.dot:
			what = "the command broke the repository " + oneLine(path.Join(was.dir, ".git")) + ": git would look for another one, such as one that was made around it, and run what its configuration says"
		default:
			continue
		}
		warnings = append(warnings, what+"; look before you run git there")
	}
	return warnings
}

// openPathAt opens a directory for looking. git follows a link at .git.
func openPathAt(dir int, name string, flags int) (int, error) {
	return ignoringEINTR(func() (int, error) {
		return unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC|flags, 0)
	})
}

// isGitDir reports whether git would take the directory dir for a repository.
func isGitDir(dir int) bool {
	if !validHead(dir) {
		return false
	}
	return isThere(dir, "commondir") || isSearchable(dir, "objects") && isSearchable(dir, "refs")
}

func isThere(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil
}

// isSearchable is git's test for objects and refs: access(2) with X_OK, links
// followed.
func isSearchable(dir int, name string) bool { return unix.Faccessat(dir, name, unix.X_OK, 0) == nil }

// validHead is validate_headref in git's refs.c: a link to refs/..., a file with
// "ref: refs/...", or an object name of 40 or 64 digits.
func validHead(dir int) bool {
	buf := make([]byte, unix.PathMax)
	if n, err := unix.Readlinkat(dir, "HEAD", buf); err == nil {
		return strings.HasPrefix(string(buf[:n]), "refs/")
	}
	text := readHead(dir, "HEAD")
	if ref, ok := strings.CutPrefix(text, "ref:"); ok {
		return strings.HasPrefix(strings.TrimLeft(ref, " \t\n\v\f\r"), "refs/")
	}
	digits := 0
	for digits < len(text) && strings.IndexByte("0123456789abcdefABCDEF", text[digits]) >= 0 {
		digits++
	}
	return digits >= 40
}

// readHead gives the first 255 bytes of the regular file name, else "".
func readHead(dir int, name string) string {
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return ""
	}
	buf := make([]byte, 255)
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, buf) })
	if err != nil {
		return ""
	}
	return string(buf[:n])
}
