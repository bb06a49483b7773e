package profile

import (
	"fmt"
	"slices"
	"strings"
)

// A Group is a named list of places. "@NAME" in hide or protect stands for all
// of them; a file whose name starts with "@" is written "./@name".
type Group struct {
	Name    string   // with "@": "@credentials"
	Key     string   // the key that it can stand in: "filesystem.hide" or "filesystem.protect"
	Doc     string   // one sentence
	Members []string // the groups that it consists of; then Paths is empty
	Paths   []string // as a profile would write them; none for "@git", which wall works out from the repository
	// Absent are those of Paths, in "protect", that are kept from being made as
	// well while they do not exist. Each costs an empty directory on the host
	// for the time of the run, so that only few names have it.
	Absent []string
}

// Groups gives all groups, each behind those that it consists of.
func Groups() []Group { return slices.Clone(groups) }

// GroupPaths gives every place that the group called name ("@credentials") and
// the groups in it stand for; ok is false when there is no such group.
func GroupPaths(name string) (paths []string, ok bool) {
	all, ok := leaves(name)
	for _, g := range all {
		paths = append(paths, g.Paths...)
	}
	return paths, ok
}

// leaves gives the groups that a group consists of, itself when it has no members.
func leaves(name string) ([]*Group, bool) {
	g := findGroup(name)
	switch {
	case g == nil:
		return nil, false
	case len(g.Members) == 0:
		return []*Group{g}, true
	}
	var out []*Group
	for _, m := range g.Members {
		l, _ := leaves(m)
		out = append(out, l...)
	}
	return out, true
}

func findGroup(name string) *Group {
	for i := range groups {
		if groups[i].Name == name {
			return &groups[i]
		}
	}
	return nil
}

// badGroup says what is wrong with "@name" as an element of a key.
func badGroup(s, key string) (msg, hint string) {
	if g := findGroup(s); g != nil {
		if g.Key == key {
			return "", ""
		}
		return fmt.Sprintf("%q is a group for %s", s, g.Key[strings.IndexByte(g.Key, '.')+1:]), ""
	}
	var names []string
	for _, g := range groups {
		if g.Key == key {
			names = append(names, g.Name)
		}
	}
	hint = "groups: " + strings.Join(names, ", ") + "; a file whose name starts with @ is written \"./@name\""
	if n := Nearest(s, names); n != "" {
		hint = fmt.Sprintf("did you mean %q?", n)
	}
	return fmt.Sprintf("there is no group called %q", shorten(s)), hint
}

// expandGroups puts the places of groups in place of their names. Each element
// keeps the origin of the line, with the place behind it.
func expandGroups(items []Item[string]) []Item[string] {
	if !slices.ContainsFunc(items, func(i Item[string]) bool { return strings.HasPrefix(i.V, "@") }) {
		return items
	}
	out := make([]Item[string], 0, len(items)+128)
	for _, it := range items {
		all, ok := leaves(it.V)
		if !ok {
			out = append(out, it)
		}
		for _, g := range all {
			if g.Name == gitGroup {
				x := it
				x.V = gitGroup
				out = append(out, x)
			}
			for _, p := range g.Paths {
				x := it
				x.V, x.flag = p, false // from the workspace, in a flag too
				x.existing = !slices.Contains(g.Absent, p)
				x.Origin.Text = it.V + ": " + p
				out = append(out, x)
			}
		}
	}
	return out
}

// gitGroup stands for itself: which files it means depends on the repository.
const gitGroup = "@git"

const (
	inHide    = "filesystem.hide"
	inProtect = "filesystem.protect"
)

var groups = []Group{
	{Name: "@keys", Key: inHide, Doc: "Private keys and password stores.", Paths: []string{
		"~/.ssh", "~/.gnupg", "~/.age", "~/.config/sops", "~/.password-store", "~/.config/op", "~/.vault-token", "~/.pki",
		"~/.local/share/keyrings", "~/.local/share/kwalletd", "~/.Xauthority", "~/.ICEauthority"}},
	{Name: "@cloud", Key: inHide, Doc: "Keys and tokens of cloud, cluster and container tools.", Paths: []string{
		"~/.aws", "~/.azure", "~/.config/gcloud", "~/.config/doctl", "~/.config/hcloud", "~/.oci", "~/.fly", "~/.config/heroku",
		"~/.kube", "~/.docker", "~/.config/containers", "~/.config/helm", "~/.terraform.d", "~/.terraformrc",
		"~/.config/rclone", "~/.s3cfg"}},
	{Name: "@registries", Key: inHide, Doc: "Keys and tokens of version control and package registries.", Paths: []string{
		"~/.config/gh", "~/.config/glab-cli", "~/.config/hub", "~/.git-credentials", "~/.config/git/credentials", "~/.netrc",
		"~/.npmrc", "~/.yarnrc.yml", "~/.pypirc", "~/.config/pip", "~/.pip", "~/.cargo/credentials.toml", "~/.cargo/credentials",
		"~/.gem/credentials", "~/.config/composer/auth.json", "~/.composer/auth.json", "~/.m2/settings.xml",
		"~/.m2/settings-security.xml", "~/.gradle/gradle.properties", "~/.nuget/NuGet"}},
	{Name: "@databases", Key: inHide, Doc: "Passwords of databases.", Paths: []string{
		"~/.pgpass", "~/.my.cnf", "~/.mylogin.cnf", "~/.config/psql"}},
	{Name: "@agents", Key: inHide, Doc: "Log-ins and sessions of coding agents.", Paths: []string{
		"~/.claude", "~/.claude.json", "~/.codex", "~/.kimi-code", "~/.cursor", "~/.factory", "~/.gemini", "~/.config/github-copilot"}},
	{Name: "@browsers", Key: inHide, Doc: "Browsers and mail.", Paths: []string{
		"~/.mozilla", "~/.config/google-chrome", "~/.config/chromium", "~/.config/BraveSoftware", "~/.config/microsoft-edge",
		"~/.thunderbird", "~/snap"}},
	{Name: "@histories", Key: inHide, Doc: "What was typed before.", Paths: []string{
		"~/.bash_history", "~/.zsh_history", "~/.histfile", "~/.local/share/fish/fish_history", "~/.python_history",
		"~/.node_repl_history", "~/.psql_history", "~/.mysql_history", "~/.sqlite_history", "~/.lesshst", "~/.viminfo"}},
	{Name: "@system-secrets", Key: inHide, Doc: "The machine's own secrets, readable when wall is run by root.", Paths: []string{
		"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private", "/etc/ssh/ssh_host_*_key",
		"/etc/krb5.keytab", "/etc/kubernetes", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/spool/cron"}},
	{Name: "@dotenv", Key: inHide, Doc: "Secrets of the project, in files at the top of the workspace.", Paths: []string{
		"$workspace/.env", "$workspace/.env.local", "$workspace/.env.*.local", "$workspace/.env.prod*", "$workspace/.env.stag*"}},
	{Name: "@credentials", Key: inHide, Doc: "Every usual place of a credential.",
		Members: []string{"@keys", "@cloud", "@registries", "@databases", "@agents", "@browsers", "@histories", "@system-secrets", "@dotenv"}},

	{Name: "@git", Key: inProtect, Doc: "What lets git run code or look elsewhere: config, hooks, info, pointers between worktrees, submodules and repositories, and an absent .git."},
	{Name: "@shells", Key: inProtect, Doc: "Start-up files of shells, where the home directory is writable.", Paths: []string{
		"~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.bash_logout", "~/.bash_aliases", "~/.profile", "~/.zshrc", "~/.zshenv", "~/.zprofile", "~/.zlogin",
		"~/.config/fish", "~/.inputrc", "~/.pam_environment", "~/.xprofile", "~/.xsessionrc", "~/.config/autostart",
		"~/.config/systemd", "~/.config/environment.d", "~/.gitconfig", "~/.config/git", "~/.local/bin"}},
	{Name: "@editors", Key: inProtect, Doc: "Settings and tasks that an editor acts on when it opens the workspace.", Paths: []string{
		".vscode", ".idea", ".zed", ".fleet", ".nvim.lua", ".nvimrc", ".exrc", ".vimrc", ".dir-locals.el", ".devcontainer", ".devcontainer.json"}, Absent: []string{".vscode"}},
	{Name: "@agent-config", Key: inProtect, Doc: "Hooks, permissions and servers that a coding agent on the host takes from the workspace.", Paths: []string{
		".claude", ".cursor", ".codex", ".kimi-code", ".factory", ".gemini", ".mcp.json", ".windsurf", ".continue", ".aider.conf.yml"}, Absent: []string{".claude"}},
	{Name: "@hooks", Key: inProtect, Doc: "What direnv, hook managers and task runners execute on the host.", Paths: []string{
		".envrc", ".direnv", ".husky", ".lefthook", "lefthook.yml", ".pre-commit-config.yaml", ".mise.toml", "mise.toml"}},
	{Name: "@ci", Key: inProtect, Doc: "What a CI service executes.", Paths: []string{
		".github/workflows", ".github/actions", ".gitlab-ci.yml", ".circleci", ".buildkite", ".drone.yml", ".woodpecker", ".woodpecker.yml",
		".travis.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml", "Jenkinsfile", ".forgejo/workflows", ".gitea/workflows"}},
	{Name: "@venv", Key: inProtect, Doc: "Activation scripts of Python environments, which a shell on the host reads.", Paths: []string{
		".venv/bin/activate", ".venv/bin/activate.csh", ".venv/bin/activate.fish", ".venv/bin/Activate.ps1", ".venv/pyvenv.cfg",
		"venv/bin/activate", "venv/bin/activate.csh", "venv/bin/activate.fish", "venv/bin/Activate.ps1", "venv/pyvenv.cfg",
		"env/bin/activate", "env/pyvenv.cfg"}},
	{Name: "@persistence", Key: inProtect, Doc: "Places in which a command can leave something that runs on the host later.",
		Members: []string{"@git", "@shells", "@editors", "@agent-config", "@hooks", "@ci", "@venv"}},
}
