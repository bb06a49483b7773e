package lint

import (
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Paths are compared as they are written, in one of four forms: "~/x",
// "$workspace/x", "$cwd/x" and "/x". So the answer does not depend on where
// the account's home or the workspace lies.

// spot brings a written path of a profile into its form. A path that leads out
// of the directory it starts from keeps its "..": "$workspace/../x".
func (x *check) spot(s string) string {
	head, rest, _ := strings.Cut(s, "/")
	switch head {
	case "":
		return x.foldHome(path.Clean(s))
	case "~", "$home":
		return under("~", rest)
	case "$workspace", "$cwd":
		return under(head, rest)
	}
	return under("$workspace", s)
}

// foldHome writes an absolute path below the known home with "~".
func (x *check) foldHome(abs string) string {
	if h := x.home; h != "" && h != "/" {
		if abs == h {
			return "~"
		}
		if rest, ok := strings.CutPrefix(abs, h+"/"); ok {
			return "~/" + rest
		}
	}
	// Where homes usually lie; the lint must not depend on whose it is.
	for _, dir := range []string{"/home/", "/Users/"} {
		rest, ok := strings.CutPrefix(abs, dir)
		if name, rest, _ := strings.Cut(rest, "/"); ok && account(name) {
			return under("~", rest)
		}
	}
	if abs == "/root" || strings.HasPrefix(abs, "/root/") {
		return under("~", strings.TrimPrefix(strings.TrimPrefix(abs, "/root"), "/"))
	}
	return abs
}

// account reports whether a directory below /home is somebody's home.
func account(name string) bool { return name != "" && name != "linuxbrew" && !isGlob(name) }

func under(head, rest string) string {
	if rest = path.Clean(rest); rest == "." || rest == "" || rest == "/" {
		return head
	}
	return head + "/" + strings.TrimPrefix(rest, "/")
}

// within reports whether p is dir or lies below it, both in the form of spot.
func within(p, dir string) bool { return p == dir || below(p, dir) }

// below reports whether p lies below dir and is not dir. The home lies below
// "/" and "/home"; where a workspace lies is not known.
func below(p, dir string) bool {
	switch dir {
	case "/":
		return p != "/" && (p[0] == '/' || p[0] == '~')
	case "/home":
		return p[0] == '~' || strings.HasPrefix(p, "/home/")
	}
	n := len(dir)
	return len(p) > n && p[n] == '/' && p[:n] == dir && !strings.HasPrefix(p[n+1:], "..")
}

// climbs reports whether a path leads out of the directory that it starts from.
func climbs(p string) bool { return strings.Contains(p+"/", "/../") }

// abs gives the place of a spot on the host, "" when that is not known.
func (x *check) abs(p string) string {
	head, rest, _ := strings.Cut(p, "/")
	base := ""
	switch head {
	case "":
		return p
	case "~":
		base = x.home
	case "$workspace":
		base = x.workspace
	}
	if base == "" {
		return ""
	}
	return path.Join(base, rest)
}

// stat looks at a spot on the host, when there is one to look at.
func (x *check) stat(p string) (fs.FileInfo, bool) {
	abs := x.abs(p)
	if abs == "" || x.o.Host.FS == nil {
		return nil, false
	}
	st, err := fs.Stat(x.o.Host.FS, fsName(abs))
	return st, err == nil
}

func isGlob(s string) bool { return strings.IndexByte(s, '*') >= 0 || strings.IndexByte(s, '?') >= 0 }

// globCovers reports whether a hide pattern, in the form of spot, covers p or a
// parent of p.
func globCovers(pattern, p string) bool {
	if !isGlob(pattern) {
		return within(p, pattern)
	}
	ps, es := strings.Split(pattern, "/"), strings.Split(p, "/")
	if i := slices.Index(ps, "**"); i >= 0 { // "$workspace/**/NAME..."
		if len(es) <= i || !slices.Equal(ps[:i], es[:i]) {
			return false
		}
		tail := ps[i+1:]
		for at := i; at+len(tail) <= len(es); at++ {
			if slices.EqualFunc(tail, es[at:at+len(tail)], matchElement) {
				return true
			}
		}
		return false
	}
	return len(es) >= len(ps) && slices.EqualFunc(ps, es[:len(ps)], matchElement)
}

// matchElement compares one path element with a pattern of "*" and "?".
func matchElement(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// hiddenBy gives the most specific hide rule that covers p.
func (x *check) hiddenBy(p string) (entry, bool) {
	hides := x.hides()
	best, known := x.hiders[p]
	if !known {
		best = -1
		for i := range hides {
			if val := hides[i].val; globCovers(val, p) && (best < 0 || depth(val) > depth(hides[best].val)) {
				best = i
			}
		}
		if x.hiders == nil {
			x.hiders = make(map[string]int)
		}
		x.hiders[p] = best
	}
	if best < 0 {
		return entry{}, false
	}
	return hides[best], true
}

func depth(p string) int { return strings.Count(p, "/") }

// hides gives the hide list in force with every path in its form, groups
// expanded.
func (x *check) hides() []entry { return x.spots("filesystem.hide") }

// spots gives a list of paths in force with every path in its form. The result
// is remembered and must not be changed.
func (x *check) spots(key string) []entry {
	if out, ok := x.spotted[key]; ok {
		return out
	}
	out := []entry{}
	for _, e := range x.m.all(key) {
		paths := expandGroup(e.val)
		out = slices.Grow(out, len(paths))
		for _, p := range paths {
			e.val = x.spot(p)
			out = append(out, e)
		}
	}
	if x.spotted == nil {
		x.spotted = make(map[string][]entry)
	}
	x.spotted[key] = out
	return out
}

// grants gives the grants in force with every path in its form.
func (x *check) grants() []entry { return x.spots("filesystem.grant") }

// ownGrants gives the grants of the checked file; each keeps its path as
// written in grant.Path.
func (x *check) ownGrants() []entry {
	var out []entry
	for _, e := range x.m.mine("filesystem.grant") {
		if !e.empty {
			e.val = x.spot(e.val)
			out = append(out, e)
		}
	}
	return out
}

// readable reports whether the command could read p: by the view, the home mode
// or a grant, and no more specific hide.
func (x *check) readable(p string) bool {
	level, ok := -1, false
	switch {
	case within(p, "~"):
		level, ok = 0, x.m.is("filesystem.home", "read-only")
	case p[0] == '/':
		level, ok = 0, x.m.is("filesystem.view", "host")
	}
	grants := x.grants()
	for i := range grants {
		if g := grants[i].val; within(p, g) && depth(g)+1 > level {
			level, ok = depth(g)+1, true
		}
	}
	if h, hidden := x.hiddenBy(p); hidden && depth(h.val)+1 >= level {
		return false
	}
	return ok
}

// A place is a well-known path and what it is.
type place struct{ path, what string }

// credentials are where keys, tokens and sessions of the account lie.
var credentials = []place{
	{"~/.ssh", "SSH keys"}, {"~/.gnupg", "GnuPG keys"}, {"~/.aws", "AWS credentials"}, {"~/.azure", "Azure credentials"},
	{"~/.config/gcloud", "Google Cloud credentials"}, {"~/.kube", "Kubernetes credentials"}, {"~/.docker", "registry logins"},
	{"~/.config/gh", "GitHub tokens"}, {"~/.git-credentials", "git passwords"}, {"~/.netrc", "passwords for hosts"},
	{"~/.npmrc", "npm tokens"}, {"~/.pypirc", "PyPI tokens"}, {"~/.cargo/credentials.toml", "crates.io tokens"},
	{"~/.vault-token", "Vault tokens"}, {"~/.password-store", "passwords"}, {"~/.local/share/keyrings", "keyrings"},
	{"~/.mozilla", "browser sessions"}, {"~/.config/google-chrome", "browser sessions"}, {"~/.config/chromium", "browser sessions"},
	{"~/.pgpass", "database passwords"}, {"~/.bash_history", "shell history"}, {"~/.zsh_history", "shell history"},
	{"/etc/shadow", "password hashes"}, {"/etc/ssl/private", "TLS keys"}, {"/etc/kubernetes", "Kubernetes credentials"},
}

// sockets are pathname sockets through which more can be done than in the box.
// Reaching one needs no write access to its directory.
var sockets = []place{
	{"/run/docker.sock", "the Docker daemon, which is root"}, {"/var/run/docker.sock", "the Docker daemon, which is root"},
	{"~/.docker/run/docker.sock", "the Docker daemon"}, {"~/.docker/desktop/docker.sock", "Docker Desktop"}, {"/run/user/*/docker.sock", "the rootless Docker daemon"},
	{"/run/podman", "the Podman service, which is root"}, {"/var/run/podman", "the Podman service, which is root"}, {"/run/user/*/podman", "the Podman service of the account"},
	{"/run/containerd", "containerd, which is root"}, {"/var/run/containerd", "containerd, which is root"},
	{"/run/crio", "CRI-O, which is root"}, {"/var/run/crio", "CRI-O, which is root"}, {"/run/buildkit", "BuildKit, which is root"},
	{"/run/dbus", "the system bus"}, {"/var/run/dbus", "the system bus"}, {"/run/user/*/bus", "the session bus, which starts programs outside the box"},
	{"/run/systemd", "systemd, which starts programs outside the box"}, {"/run/user/*/systemd", "the systemd of the account, which starts programs outside the box"},
	{"/run/user/*/gnupg", "the GnuPG agent"}, {"~/.gnupg/S.gpg-agent*", "the GnuPG agent"}, {"/run/user/*/keyring", "the keyring and its SSH agent"},
	{"/run/user/*/ssh-agent*", "the SSH agent"}, {"/run/user/*/openssh_agent", "the SSH agent"}, {"/tmp/ssh-*", "the SSH agent"}, {"~/.ssh/agent*", "the SSH agent"},
	{"/run/libvirt", "libvirt, which is root"}, {"/var/run/libvirt", "libvirt, which is root"}, {"/run/snapd.socket", "snapd, which is root"},
	{"/var/lib/lxd/unix.socket", "LXD, which is root"}, {"/var/snap/lxd", "LXD, which is root"}, {"/run/incus", "Incus, which is root"}, {"/var/lib/incus/unix.socket", "Incus, which is root"},
	{"/tmp/.X11-unix", "the X server, which can type into other windows"}, {"/run/user/*/wayland-*", "the Wayland display"},
	{"/run/user/*/pipewire-*", "the microphone and the screen"}, {"/run/user/*/pulse", "the microphone"}, {"/tmp/tmux-*", "tmux, which types into other terminals"},
	{"/run/nix", "the Nix daemon"}, {"/nix/var/nix/daemon-socket", "the Nix daemon"}, {"/run/user", "the sockets of login sessions"}, {"/run/screen", "screen, which types into other terminals"},
}

// pathDirs are directories that are usually on somebody's PATH.
var pathDirs = []string{
	"~/bin", "~/.local/bin", "~/.cargo/bin", "~/go/bin", "~/.bun/bin", "~/.deno/bin", "~/.npm-global/bin", "~/.yarn/bin",
	"~/.pyenv/shims", "~/.pyenv/bin", "~/.rbenv/shims", "~/.asdf/shims", "~/.local/share/mise/shims", "~/.volta/bin", "~/.nix-profile/bin",
	"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/bin", "/snap/bin", "/opt/homebrew/bin", "/usr/games",
}

// startup are files of the account and the system that other programs run or
// obey later, outside of the box.
var startup = []place{
	{"~/.bashrc", "bash reads it"}, {"~/.bash_profile", "bash reads it"}, {"~/.bash_login", "bash reads it"}, {"~/.bash_logout", "bash reads it"}, {"~/.bash_aliases", "bash reads it"},
	{"~/.profile", "the login shell reads it"}, {"~/.zshrc", "zsh reads it"}, {"~/.zshenv", "zsh reads it"}, {"~/.zprofile", "zsh reads it"}, {"~/.zlogin", "zsh reads it"},
	{"~/.config/fish", "fish reads it"}, {"~/.config/nushell", "nushell reads it"}, {"~/.inputrc", "every shell prompt reads it"}, {"~/.pam_environment", "the login reads it"},
	{"~/.gitconfig", "git runs programs it names"}, {"~/.config/git", "git runs programs it names"}, {"~/.ssh", "sshd and ssh obey it"},
	{"~/.config/systemd", "systemd starts it"}, {"~/.config/autostart", "the desktop starts it"}, {"~/.local/share/applications", "the desktop starts it"}, {"~/.local/share/systemd", "systemd starts it"},
	{"~/.config/environment.d", "every session gets it"}, {"~/.xprofile", "the desktop reads it"}, {"~/.xinitrc", "the desktop reads it"},
	{"~/.vimrc", "vim runs it"}, {"~/.vim", "vim runs it"}, {"~/.config/nvim", "neovim runs it"}, {"~/.emacs", "emacs runs it"}, {"~/.emacs.d", "emacs runs it"}, {"~/.config/emacs", "emacs runs it"},
	{"~/.vscode", "VS Code runs its extensions"}, {"~/.vscode-server", "VS Code runs its extensions"}, {"~/.config/Code", "VS Code obeys it"}, {"~/.config/zed", "Zed obeys it"},
	{"~/.tmux.conf", "tmux runs it"}, {"~/.screenrc", "screen runs it"}, {"~/.config/direnv", "direnv runs it"}, {"~/.local/share/direnv", "it says which .envrc files direnv runs"},
	{"~/.npmrc", "npm obeys it"}, {"~/.cargo/config.toml", "cargo runs programs it names"}, {"~/.config/pip", "pip obeys it"}, {"~/.local/lib", "Python imports it"}, {"~/.gdbinit", "gdb runs it"},
	{"~/.claude", "the agent obeys it"}, {"~/.claude.json", "the agent obeys it"}, {"~/.codex", "the agent obeys it"}, {"~/.cursor", "the agent obeys it"}, {"~/.gemini", "the agent obeys it"}, {"~/.factory", "the agent obeys it"}, {"~/.kimi-code", "the agent obeys it"},
	{"~/.config/wall", "wall's own profiles"}, {"/etc/wall", "wall's own profiles"},
	{"/etc/profile", "every login reads it"}, {"/etc/profile.d", "every login reads it"}, {"/etc/bash.bashrc", "bash reads it"}, {"/etc/cron.d", "cron runs it"}, {"/etc/crontab", "cron runs it"}, {"/var/spool/cron", "cron runs it"},
	{"/etc/systemd", "systemd starts it"}, {"/etc/ld.so.preload", "every program loads it"}, {"/etc/ld.so.conf.d", "every program obeys it"}, {"/etc/gitconfig", "git runs programs it names"},
}

// projectStartup are files of a project that tools, editors, agents and CI run
// or obey later, outside of the box.
var projectStartup = []place{
	{"$workspace/.git/hooks", "git runs it"}, {"$workspace/.git/config", "git runs programs it names"}, {"$workspace/.git/info", "git obeys it"}, {"$workspace/.git/modules", "git runs programs it names"},
	{"$workspace/.husky", "git runs it"}, {"$workspace/.githooks", "git runs it"}, {"$workspace/.pre-commit-config.yaml", "git runs programs it names"}, {"$workspace/lefthook.yml", "git runs programs it names"},
	{"$workspace/.envrc", "direnv runs it"}, {"$workspace/.vscode", "VS Code runs its tasks"}, {"$workspace/.idea", "the IDE runs its configurations"}, {"$workspace/.zed", "Zed runs its tasks"}, {"$workspace/.devcontainer", "the editor runs it"},
	{"$workspace/.github/workflows", "CI runs it"}, {"$workspace/.github/actions", "CI runs it"}, {"$workspace/.gitlab-ci.yml", "CI runs it"}, {"$workspace/.circleci", "CI runs it"}, {"$workspace/Jenkinsfile", "CI runs it"}, {"$workspace/.buildkite", "CI runs it"}, {"$workspace/.ci", "CI runs it"},
	{"$workspace/.venv/bin", "whoever activates the environment runs it"}, {"$workspace/venv/bin", "whoever activates the environment runs it"},
	{"$workspace/.claude", "the agent obeys it"}, {"$workspace/CLAUDE.md", "the agent obeys it"}, {"$workspace/AGENTS.md", "the agent obeys it"}, {"$workspace/.mcp.json", "the agent runs programs it names"},
	{"$workspace/.cursor", "the agent obeys it"}, {"$workspace/.codex", "the agent obeys it"}, {"$workspace/.gemini", "the agent obeys it"}, {"$workspace/.wall", "wall's own profiles"},
	{"$workspace/.cargo/config.toml", "cargo runs programs it names"}, {"$workspace/.npmrc", "npm obeys it"}, {"$workspace/.yarnrc.yml", "yarn runs programs it names"},
}
