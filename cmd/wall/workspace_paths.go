package main

import (
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/wallsandbox/wall/host"
)

// workspacePaths tells paths of a workspace, where a link may have been put to
// lead the user out, from paths elsewhere, where links are the user's own.
type workspacePaths struct {
	cwd  string // physical
	home string // of the account; a repository that is the whole home directory is no workspace
}

// callerPaths gives the paths of the caller. Without an account record every
// repository counts, which is the stricter way.
func callerPaths() workspacePaths {
	w := workspacePaths{cwd: host.WorkingDir()}
	if a, err := host.AccountOf(os.Getuid()); err == nil {
		w.home = a.Home
	}
	return w
}

// repository reports whether dir, free of links, is the top of a git repository.
func (w workspacePaths) repository(dir string) bool {
	if dir == "/" || dir == w.home {
		return false
	}
	_, err := os.Lstat(path.Join(dir, ".git"))
	return err == nil
}

// link gives the first symbolic link on the way to abs, a clean absolute path,
// that is in a workspace: below the working directory, in a git repository, or
// called .wall. With last, the last element counts wherever it is. "" when there
// is none.
func (w workspacePaths) link(abs string, last bool) string {
	at, spelt := "/", "/"
	in := false
	elems := strings.Split(strings.Trim(abs, "/"), "/")
	for i, elem := range elems {
		in = in || at == w.cwd && w.cwd != "/" || w.repository(at)
		at, spelt = path.Join(at, elem), path.Join(spelt, elem)
		st, err := os.Lstat(at)
		if err != nil {
			return ""
		}
		if st.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if in || elem == ".wall" || last && i == len(elems)-1 {
			return spelt
		}
		if at, err = filepath.EvalSymlinks(at); err != nil {
			return ""
		}
	}
	return ""
}

// root gives the directory that the profile at abs may be laid over files of:
// the repository that it is in, else the working directory, else top, a
// directory that is checked, or the one that it lies in. abs is free of links
// but for its last element.
func (w workspacePaths) root(abs, top string) string {
	for dir := path.Dir(abs); dir != "/"; dir = path.Dir(dir) {
		if w.repository(dir) {
			return dir
		}
	}
	if w.cwd != "" && w.cwd != "/" && w.cwd != w.home && strings.HasPrefix(abs, w.cwd+"/") {
		return w.cwd
	}
	if top == "" {
		top = path.Dir(abs)
	}
	if path.Base(top) == ".wall" {
		top = path.Dir(top)
	}
	return top
}

// shown writes a path below the working directory without it.
func (w workspacePaths) shown(abs string) string {
	if rest, ok := strings.CutPrefix(abs, w.cwd+"/"); ok && w.cwd != "" {
		return rest
	}
	return abs
}
