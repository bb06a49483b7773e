package integration_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A row is one attack and what must come of it. $H is the home directory,
// $W the workspace. Alternatives are separated by "|"; "-" is not looked at.
type row struct {
	op    string
	bare  string // without a box, as root (the control)
	user  string // without a box, as an ordinary user; "" = the same as bare
	gate  string // boxed by profile gate
	agent string // boxed by profile agent; "" = the same as gate
}

func (r row) want(column string) string {
	switch column {
	case "bare":
		if os.Getuid() != 0 && r.user != "" {
			return r.user
		}
		return r.bare
	case "agent":
		if r.agent != "" {
			return r.agent
		}
	}
	return r.gate
}

// secrets are the credentials of the fixture home, all to be unreadable.
var secrets = []string{
	".ssh/id_ed25519", ".aws/credentials", ".azure/token", ".config/gcloud/creds.db", ".kube/config", ".docker/config.json",
	".gnupg/private-keys", ".config/gh/hosts.yml", ".git-credentials", ".config/git/credentials", ".netrc", ".npmrc",
	".pypirc", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties",
	".pgpass", ".my.cnf", ".claude/.credentials.json", ".claude.json", ".codex/auth.json", ".gemini/oauth.json",
	".local/share/keyrings/login.keyring", ".mozilla/firefox/logins.json", ".bash_history", ".Xauthority",
	".password-store/a.gpg", ".vault-token", ".terraform.d/credentials.tfrc.json",
}

// makeHome fills the private home: HOME/project is the workspace, a git
// repository with something of everything that git executes.
func makeHome(t *testing.T) (home, ws string) {
	t.Helper()
	home = accountHome()
	entries, err := os.ReadDir(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "nested" {
			if err := os.RemoveAll(filepath.Join(home, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.RemoveAll(home + "/nested/new"); err != nil {
		t.Fatal(err)
	}
	write(t, home+"/nested/file", "nested\n")
	for _, name := range secrets {
		write(t, home+"/"+name, "secret\n")
	}
	write(t, home+"/notes.txt", "notes\n")
	write(t, home+"/.bashrc", "# rc\n")
	write(t, home+"/.gitconfig", "[user]\n\tname = T\n\temail = t@example.org\n")
	ws = home + "/project"
	makeProject(t, ws)
	return home, ws
}

func makeProject(t *testing.T, ws string) {
	t.Helper()
	write(t, ws+"/main.txt", "main\n")
	write(t, ws+"/evil", "[core]\n\tfsmonitor = touch /tmp/pwned\n")
	write(t, ws+"/evildir/pre-commit", "#!/bin/sh\n")
	write(t, ws+"/deep/er/file", "deep\n")
	write(t, ws+"/deep/er/hidden", "secret\n")
	write(t, ws+"/.env", "secret\n")
	write(t, ws+"/.git/HEAD", "ref: refs/heads/main\n")
	write(t, ws+"/.git/config", "[core]\n\trepositoryformatversion = 0\n[extensions]\n\tworktreeConfig = true\n")
	write(t, ws+"/.git/hooks/pre-commit.sample", "#!/bin/sh\n")
	write(t, ws+"/.git/info/exclude", "\n")
	write(t, ws+"/.git/evil", "[core]\n\tfsmonitor = touch /tmp/pwned\n")
	write(t, ws+"/.git/evildir/pre-commit", "#!/bin/sh\n")
	write(t, ws+"/.git/modules/sub/config", "[core]\n")
	write(t, ws+"/.git/modules/sub/HEAD", "ref: refs/heads/main\n")
	write(t, ws+"/.git/modules/sub/hooks/x.sample", "\n")
	write(t, ws+"/.git/modules/sub/refs/x", "\n")
	write(t, ws+"/.git/modules/sub/objects/x", "\n")
	write(t, ws+"/.git/worktrees/wt/HEAD", "ref: refs/heads/wt\n")
	write(t, ws+"/.git/worktrees/wt/commondir", "../..\n")
	write(t, ws+"/.git/worktrees/wt/gitdir", "/elsewhere/.git\n")
	for _, dir := range []string{"/.git/objects", "/.git/refs/heads"} {
		if err := os.MkdirAll(ws+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"/outfile": accountHome() + "/notes.txt", "/outdir": accountHome()} {
		if err := os.Symlink(target, ws+link); err != nil {
			t.Fatal(err)
		}
	}
}

// fileRows attack promises 7, 8 and 9.
func fileRows() []row {
	rows := []row{
		// Outside the workspace: no change by any call. Promise 7.
		{"open-write $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"open-write $W/outfile", "ok", "", "EROFS", "ENOENT"},
		{"open-write $W/outdir/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"open-write /proc/self/cwd/../notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"append $H/.bashrc evil", "ok", "", "EROFS", "ENOENT"},
		{"truncate $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"create $H/new", "ok", "", "EROFS", "ok"},
		{"tmpfile $H", "ok", "", "EROFS", "ok"},
		{"mkdir $H/newdir", "ok", "", "EROFS", "ok"},
		{"mkfifo $H/fifo", "ok", "", "EROFS", "ok"},
		{"mknod-null $H/null", "ok", "-", "EROFS|EPERM", "EACCES|EPERM"},
		{"mknod-disk $W/disk", "ok", "-", "EACCES|EPERM", ""},
		{"mknod-null $W/null", "ok", "-", "EACCES|EPERM", ""},
		{"bind-unix $H/bound", "ok", "", "EROFS", "ok"},
		{"unlink $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"rename $H/notes.txt $H/notes2", "ok", "", "EROFS", "ENOENT"},
		{"rename $H/notes.txt $W/stolen", "ok", "", "EXDEV", ""},
		{"rename $W/main.txt $H/planted", "ok", "", "EXDEV", ""},
		{"exchange $W/main.txt $H/notes.txt", "ok", "", "EXDEV", "EXDEV|ENOENT"},
		{"rename $W $H/project2", "ok", "", "EROFS|EBUSY", "EBUSY"},
		{"link $H/notes.txt $W/alias", "ok", "", "EXDEV", "ENOENT"},
		{"link-fd $H/notes.txt $W/alias", "ok", "", "EXDEV", "ENOENT"},
		{"link $W/main.txt $H/alias", "ok", "", "EROFS", "EXDEV"},
		{"symlink x $H/link", "ok", "", "EROFS", "ok"},
		{"chmod $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"fchmod $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"chmod-fd $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"chown $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"utime $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"setxattr $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"setflags $H/notes.txt", "ok", "", "EROFS", "ENOENT"},
		{"open-write $H/nested/file", "ok", "", "EROFS", "ENOENT"},
		{"create $H/nested/new", "ok", "", "EROFS", "ENOENT"},
		{"unlink $H/nested/file", "ok", "", "EROFS", "ENOENT"},
		{"open-write /proc/self/root/etc/passwd", "ok", "-", "EROFS|EACCES", ""},
		{"open-write /etc/passwd", "ok", "-", "EROFS|EACCES", ""},
		{"create /usr/bin/wall-test-new", "-", "-", "EROFS|EACCES", ""},
		{"mkdir /wall-test-new", "-", "-", "EROFS|EACCES", ""},
		{"handle $H/notes.txt $H", "ok", "-", "EPERM", "EPERM|ENOENT"},
		{"handle $W/main.txt $W", "ok", "-", "EPERM", ""},

		// The workspace and the scratch are there to be written.
		{"create $W/new", "ok", "", "ok", ""},
		{"rename $W/main.txt $W/evildir/moved", "ok", "", "ok", ""},
		{"bind-unix $W/bound", "ok", "", "ok", ""},
		{"mkfifo $W/fifo", "ok", "", "ok", ""},
		{"link $W/evil $W/evil-alias", "ok", "", "ok", ""},
		{"link $W/deep/er/file $W/deep-alias", "ok", "", "EXDEV", ""},
		{"setxattr $W/evil", "ok", "", "ok", ""},
		{"create /tmp/new", "-", "-", "ok", ""},
		{"create /var/tmp/new", "-", "-", "ok", ""},
		{"create /dev/shm/new", "-", "-", "ok", ""},
		{"open-read $W/main.txt", "ok", "", "ENOENT", ""}, // renamed above
		{"open-read $H/notes.txt", "ok", "", "ok", "ENOENT"},
		{"open-read $H/nested/file", "ok", "", "ok", "ENOENT"},

		// Credentials. Promise 8.
		{"list $H/.ssh", "ok id_ed25519", "", "EACCES", "ENOENT"},
		{"open-path $H/.ssh/id_ed25519", "ok", "", "EACCES", "ENOENT"},
		{"stat $H/.aws/credentials", "ok", "", "EACCES", "ENOENT"},
		{"chdir $H/.ssh", "ok", "", "EACCES", "ENOENT"},
		{"chmod $H/.ssh", "ok", "", "EROFS", "ENOENT"},
		{"chmod $H/.netrc", "ok", "", "EROFS", "ENOENT"},
		{"rename $H/.ssh $W/ssh", "ok", "", "EXDEV", ""},
		{"link $H/.netrc $W/netrc", "ok", "", "EXDEV", "ENOENT"},
		{"unlink $H/.netrc", "ok", "", "EBUSY|EROFS", "ENOENT"},
		{"cat /proc/self/root$H/.netrc", "ok secret", "", "EACCES", "ENOENT"},
		{"cat $W/outdir/.netrc", "ok secret", "", "EACCES", "ENOENT"},
		{"cat $W/.env", "ok secret", "", "EACCES", ""},
		{"rename $W/.env $W/env", "ok", "", "EBUSY", ""},
		{"unlink $W/.env", "ok", "", "EBUSY", ""},
		{"link $W/.env $W/env", "ok", "", "EXDEV", ""},
		{"exchange $W/.env $W/evil", "ok", "", "EBUSY", ""},
		{"open-read /etc/shadow", "ok", "-", "EACCES|ENOENT", ""},
		{"cat $W/deep/er/hidden", "ok secret", "", "EACCES", ""}, // --hide, below

		// .git. Promise 9.
		{"rename $W/.git $W/git2", "ok", "", "EBUSY", ""},
		{"exchange $W/.git $W/evildir", "ok", "", "EBUSY", ""},
		{"write $W/.git/config evil", "ok", "", "EROFS", ""},
		{"unlink $W/.git/config", "ok", "", "EBUSY", ""},
		{"rename $W/evil $W/.git/config", "ok", "", "EXDEV", ""},
		{"rename $W/.git/evil $W/.git/config", "ok", "", "EBUSY", ""},
		{"rename $W/.git/config $W/.git/config2", "ok", "", "EBUSY", ""},
		{"exchange $W/.git/evil $W/.git/config", "ok", "", "EBUSY", ""},
		{"link $W/.git/config $W/config-alias", "ok", "", "EXDEV", ""},
		{"link $W/.git/config $W/.git/config-alias", "ok", "", "EXDEV", ""},
		{"chmod $W/.git/config", "ok", "", "EROFS", ""},
		{"truncate $W/.git/config", "ok", "", "EROFS", ""},
		{"create $W/.git/hooks/pre-commit", "ok", "", "EROFS", ""},
		{"symlink /tmp/x $W/.git/hooks/post-checkout", "ok", "", "EROFS", ""},
		{"rename $W/.git/hooks $W/.git/hooks2", "ok", "", "EBUSY", ""},
		{"exchange $W/.git/hooks $W/.git/evildir", "ok", "", "EBUSY", ""},
		{"rename $W/.git/evildir $W/.git/hooks", "ENOTEMPTY", "", "EBUSY", ""},
		{"rename $W/.git/evildir/pre-commit $W/.git/hooks/pre-commit", "ok", "", "EXDEV", ""},
		{"create $W/.git/info/attributes", "ok", "", "EEXIST|EROFS", ""},
		{"write $W/.git/info/attributes evil", "ENOENT", "", "EROFS", ""},
		{"rename $W/.git/evil $W/.git/info/attributes", "ok", "", "EBUSY|EXDEV", ""},
		{"symlink ../evil $W/.git/info/attributes", "ok", "", "EEXIST|EROFS", ""},
		{"rename $W/.git/info $W/.git/info2", "ok", "", "EBUSY", ""},
		{"create-with $W/.git/commondir ../evil", "ok", "", "EEXIST|EROFS", ""},
		{"symlink ../evil $W/.git/commondir", "ok", "", "EEXIST|EROFS", ""},
		{"rename $W/.git/evil $W/.git/commondir", "ok", "", "EBUSY", ""},
		{"create-with $W/.git/config.worktree evil", "ok", "", "EEXIST|EROFS", ""},
		{"write $W/.git/modules/sub/config evil", "ok", "", "EROFS", ""},
		{"rename $W/.git/evil $W/.git/modules/sub/config", "ok", "", "EXDEV|EBUSY", ""},
		{"rename $W/.git/modules/sub $W/.git/modules/sub2", "ok", "", "EBUSY", ""},
		{"rename $W/.git/modules $W/.git/modules2", "ok", "", "EBUSY", ""},
		{"create $W/.git/modules/sub/hooks/post-checkout", "ok", "", "EROFS", ""},
		{"write $W/.git/worktrees/wt/commondir evil", "ok", "", "EROFS", ""},
		{"write $W/.git/worktrees/wt/gitdir evil", "ok", "", "EROFS", ""},
		{"rename $W/.git/evil $W/.git/worktrees/wt/commondir", "ok", "", "EXDEV|EBUSY", ""},
		{"rename $W/.git/worktrees $W/.git/worktrees2", "ok", "", "EBUSY", ""},
		{"mkdir $W/.wall", "ok", "", "EEXIST", ""},
		{"create $W/.wall/gate.toml", "ENOENT", "", "EROFS", ""},
		{"rename $W/evildir $W/.wall", "ok", "", "EBUSY", ""},
		// What git itself writes.
		{"create $W/.git/index.lock", "ok", "", "ok", ""},
		{"rename $W/.git/index.lock $W/.git/index", "ENOENT", "", "ok", ""},
		{"create $W/.git/refs/heads/new", "ok", "", "ok", ""},
		{"mkdir $W/.git/objects/aa", "ok", "", "ok", ""},

		// --protect deep/er/file and --protect absent: the name holds, also when
		// a parent is swapped.
		{"write $W/deep/er/file evil", "ok", "", "EROFS", ""},
		{"rename $W/deep/er $W/deep/er2", "ok", "", "EBUSY", ""},
		{"rename $W/deep $W/deep2", "ok", "", "EBUSY", ""},
		{"exchange $W/deep $W/evildir", "ok", "", "EBUSY", ""},
		{"create $W/absent", "ok", "", "EEXIST|EROFS", ""},
		{"mkdir $W/absent", "ok", "", "EEXIST", ""},
		{"rename $W/evil $W/absent", "ok", "", "EBUSY|EISDIR", ""},
		{"create $W/absent/below", "ENOENT", "", "EROFS", ""},
	}
	for _, name := range secrets {
		rows = append(rows, row{"cat $H/" + name, "ok secret", "", "EACCES", "ENOENT"})
	}
	return rows
}

// TestTableFiles is the table operation x profile for files, on a private home
// with the workspace inside it. Promises 7, 8, 9.
func TestTableFiles(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	home, ws := makeHome(t)
	expand := strings.NewReplacer("$H", home, "$W", ws)
	rows := fileRows()
	var ops []string
	for _, r := range rows {
		ops = append(ops, expand.Replace(r.op))
	}
	newTableBox := func(profile string) *box {
		b := newBox(t, profile)
		b.ws = ws
		b.flags = []string{"--protect", "deep/er/file", "--protect", "absent", "--hide", "deep/er/hidden"}
		return b
	}
	t.Run("control", func(t *testing.T) {
		for i, r := range rows {
			if r.want("bare") == "-" {
				continue
			}
			makeHome(t) // an attack that works spoils the next one's target
			if got := newTableBox("").control().try(ops[i]); !anyOf(got, r.want("bare")) {
				t.Errorf("%s: %s without a box, want %s: the attack proves nothing", r.op, got, r.want("bare"))
			}
		}
	})
	for _, column := range []string{"gate", "agent", "gate without landlock", "agent without seccomp"} {
		t.Run(column, func(t *testing.T) {
			// The two mechanisms say the same: mounts alone must hold, too.
			profile, without, _ := strings.Cut(column, " without ")
			makeHome(t)
			var outside []string // everything but what the command may change
			entries, err := os.ReadDir(home)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.Name() != "project" {
					outside = append(outside, filepath.Join(home, e.Name()))
				}
			}
			for _, name := range []string{"/.git/config", "/.git/hooks", "/.git/info", "/.git/modules/sub/config", "/.git/modules/sub/hooks", "/.env", "/deep/er/hidden"} {
				outside = append(outside, ws+name)
			}
			before := snapshot(t, outside...)
			b := newTableBox(profile)
			if b.without = without; without != "" {
				b.flags = append(b.flags, "--if-unavailable", "degrade")
			}
			for i, got := range b.batch(ops) {
				if want := rows[i].want(profile); want != "-" && !anyOf(got, want) {
					t.Errorf("%s: %s, want %s", rows[i].op, got, want)
				}
			}
			sameTree(t, before, snapshot(t, outside...))
			after, err := os.ReadDir(home)
			if err != nil || len(after) != len(entries) {
				t.Errorf("the home has %d entries, had %d (%v)", len(after), len(entries), err)
			}
			for _, name := range []string{"/absent", "/.wall", "/.git/commondir", "/.git/config.worktree", "/.git/info/attributes"} {
				if _, err := os.Lstat(ws + name); err == nil {
					t.Errorf("%s was left behind", name)
				}
			}
		})
	}
}

// TestTableGitForms attacks the other forms that .git can have: absent, without
// hooks, a file, a link, and a link as parent. Promise 9.
func TestTableGitForms(t *testing.T) {
	forms := []struct {
		name string
		make func(t *testing.T, ws string)
		rows []row
	}{
		{"absent", func(t *testing.T, ws string) {}, []row{
			{"mkdir $W/.git", "ok", "", "EEXIST", ""},
			{"create $W/.git", "ok", "", "EEXIST|EROFS", ""},
			{"symlink /tmp $W/.git", "ok", "", "EEXIST|EROFS", ""},
			{"create $W/.git/config", "ENOENT", "", "EROFS", ""},
			{"rename $W/evildir $W/.git", "ok", "", "EBUSY", ""},
			{"rmdir $W/.git", "ENOENT", "", "EBUSY", ""},
		}},
		{"bare-bones", func(t *testing.T, ws string) {
			write(t, ws+"/.git/HEAD", "ref: refs/heads/main\n")
			write(t, ws+"/.git/evildir/x", "")
			write(t, ws+"/.git/refs/x", "")
			if err := os.MkdirAll(ws+"/.git/objects", 0o755); err != nil {
				t.Fatal(err)
			}
		}, []row{
			{"mkdir $W/.git/hooks", "ok", "", "EEXIST", ""},
			{"create $W/.git/hooks/pre-commit", "ENOENT", "", "EROFS", ""},
			{"rename $W/.git/evildir $W/.git/hooks", "ok", "", "EBUSY", ""},
			{"symlink /tmp $W/.git/hooks", "ok", "", "EEXIST|EROFS", ""},
			{"create $W/.git/config", "ok", "", "EEXIST|EROFS", ""},
			{"mkdir $W/.git/info", "ok", "", "EEXIST", ""},
			{"create $W/.git/info/attributes", "ENOENT", "", "EROFS", ""},
			{"rename $W/.git $W/git2", "ok", "", "EBUSY", ""},
		}},
		{"no repository", func(t *testing.T, ws string) {
			// HEAD and objects, but no refs: git does not take it yet, and the
			// command must not complete it.
			write(t, ws+"/.git/HEAD", "ref: refs/heads/main\n")
			write(t, ws+"/.git/evildir/x", "")
			write(t, ws+"/.git/objects/x", "")
		}, []row{
			{"mkdir $W/.git/refs", "ok", "", "EROFS", ""},
			{"mkdir $W/.git/hooks", "ok", "", "EROFS", ""},
			{"create $W/.git/config", "ok", "", "EROFS", ""},
			{"rename $W/.git/evildir $W/.git/refs", "ok", "", "EROFS", ""},
			{"rename $W/evildir $W/.git/refs", "ok", "", "EXDEV", ""},
			{"rename $W/.git $W/git2", "ok", "", "EBUSY", ""},
		}},
		{"file", func(t *testing.T, ws string) {
			write(t, ws+"/.git", "gitdir: "+filepath.Dir(ws)+"/main/.git/worktrees/wt\n")
			main := filepath.Dir(ws) + "/main/.git"
			write(t, main+"/HEAD", "ref: refs/heads/main\n")
			write(t, main+"/config", "[core]\n")
			write(t, main+"/worktrees/wt/HEAD", "ref: refs/heads/wt\n")
			write(t, main+"/worktrees/wt/commondir", "../..\n")
			write(t, main+"/worktrees/wt/gitdir", ws+"/.git\n")
		}, []row{
			{"write $W/.git gitdir:evil", "ok", "", "EROFS", ""},
			{"unlink $W/.git", "ok", "", "EBUSY", ""},
			{"rename $W/evil $W/.git", "ok", "", "EBUSY", ""},
			{"rename $W/.git $W/git2", "ok", "", "EBUSY", ""},
			{"exchange $W/.git $W/evil", "ok", "", "EBUSY", ""},
			{"link $W/.git $W/git2", "ok", "", "EXDEV", ""},
			{"write $W/../main/.git/config evil", "ok", "", "EROFS|ENOENT", ""},
			{"write $W/../main/.git/worktrees/wt/commondir evil", "ok", "", "EROFS|ENOENT", ""},
		}},
		{"link", func(t *testing.T, ws string) {
			write(t, ws+"/real.git/HEAD", "ref: refs/heads/main\n")
			write(t, ws+"/real.git/config", "[core]\n")
			write(t, ws+"/real.git/hooks/x.sample", "\n")
			if err := os.Symlink("real.git", ws+"/.git"); err != nil {
				t.Fatal(err)
			}
		}, []row{
			{"unlink $W/.git", "ok", "", "EBUSY", ""},
			{"rename $W/evildir/x $W/.git", "ok", "", "EBUSY", ""},
			{"rename $W/.git $W/git2", "ok", "", "EBUSY", ""},
			{"write $W/.git/config evil", "ok", "", "EROFS", ""},
			{"write $W/real.git/config evil", "ok", "", "EROFS", ""},
			{"create $W/real.git/hooks/pre-commit", "ok", "", "EROFS", ""},
			{"rename $W/real.git $W/real2.git", "ok", "", "EBUSY", ""},
		}},
	}
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			fresh := func(t *testing.T, profile string) *box {
				b := newBox(t, profile)
				write(t, b.ws+"/evil", "evil\n")
				write(t, b.ws+"/evildir/x", "evil\n")
				form.make(t, b.ws)
				return b
			}
			for _, r := range form.rows {
				b := fresh(t, "gate")
				got := b.control().try(strings.ReplaceAll(r.op, "$W", b.ws))
				if !anyOf(got, r.want("bare")) {
					t.Errorf("control: %s: %s, want %s", r.op, got, r.want("bare"))
				}
			}
			for _, profile := range []string{"gate", "agent"} {
				b := fresh(t, profile)
				before := snapshot(t, filepath.Dir(b.ws))
				var ops []string
				for _, r := range form.rows {
					ops = append(ops, strings.ReplaceAll(r.op, "$W", b.ws))
				}
				for i, got := range b.batch(ops) {
					if want := form.rows[i].want(profile); !anyOf(got, want) {
						t.Errorf("%s: %s: %s, want %s", profile, form.rows[i].op, got, want)
					}
				}
				sameTree(t, before, snapshot(t, filepath.Dir(b.ws)))
			}
		})
	}
}

// TestTableKernel is the table for what is not a file: mounts, capabilities,
// namespaces, kernel surface, pid 1. Promises 7, 10, 12, 16, 18.
func TestTableKernel(t *testing.T) {
	denied := "EPERM"
	rows := []row{
		// Mounts. Promise 7.
		{"mount-tmpfs $W", "ok", "", denied, ""},
		{"mount-bind / $W", "ok", "-", denied, ""},
		{"remount-rw /", "ok", "-", denied, ""},
		{"remount-rw /proc/sys", "EINVAL", "-", denied, ""},
		{"umount /tmp", "-", "-", denied, ""},
		{"umount $W/.git", "EINVAL|ENOENT", "-", denied, ""},
		{"open-tree /", "ok", "", denied, ""},
		{"mount-setattr /", "ok", "-", denied, ""},
		{"move-mount / $W", "EINVAL|ELOOP", "-", denied, ""},
		{"fsopen", "ok", "", denied, ""},
		{"pivot-root $W", "EINVAL|EBUSY", "-", denied, ""},
		{"chroot $W", "ok", "-", denied, ""},

		// Capabilities and ids. Promises 12, 13.
		{"capset", "ok", "", "EPERM", ""},
		{"cap-amb", "EPERM", "ok", "EPERM", ""}, // as root bare, inheritable is empty
		{"setuid 0", "ok", "EPERM|EINVAL", "ok|EPERM|EINVAL", ""},
		{"setuid 12345", "ok", "EPERM|EINVAL", "EINVAL|EPERM", ""},
		{"setgid 12345", "ok", "EPERM|EINVAL", "EINVAL|EPERM", ""},
		{"setgroups", "ok", "EPERM", "EPERM", ""},
		{"oom-score -1000", "ok|EACCES", "EACCES", "EACCES|EPERM", ""},
		{"sethostname", "ok", "", "EPERM", ""},
		{"settimeofday", "ok", "EPERM", "EPERM", ""},
		{"reboot", "EINVAL", "EPERM", "EPERM", ""},
		{"swapon", "EFAULT", "EPERM", "EPERM", ""},
		{"acct", "ENOENT", "EPERM", "EPERM", ""},
		{"init-module", "ENOSYS|EFAULT|ENOEXEC|EPERM", "ENOSYS|EPERM", "EPERM", ""},
		{"finit-module", "ENOSYS|EBADF|EPERM", "ENOSYS|EPERM", "EPERM", ""},
		{"kexec", "ENOSYS|EINVAL", "ENOSYS|EPERM", "EPERM", ""},
		{"quotactl", "EINVAL|ENOSYS|ENODEV|ENOTBLK|EFAULT", "EINVAL|ENOSYS|ENODEV|ENOTBLK|EPERM|EFAULT", "EPERM", ""},
		{"fanotify", "ok", "EPERM", "EPERM", ""},
		{"syslog", "EINVAL", "EPERM", "EPERM", ""},
		{"vhangup", "-", "EPERM", "EPERM", ""},

		// Namespaces: no nested ones, none of pid 1's. Promise 12.
		{"unshare 0x10000000", "ok", "ok|EPERM", "EPERM", ""},
		{"unshare 0x00020000", "ok", "", "EPERM", ""},
		{"unshare 0x40000000", "ok", "", "EPERM", ""},
		{"clone 0x10000000", "ok", "ok|EPERM", "EPERM", ""},
		{"clone 0x50020000", "ok", "ok|EPERM", "EPERM", ""},
		{"clone3 0x10000000", "ok", "ok|EPERM", "ENOSYS", ""},
		{"clone3 0", "ok", "", "ENOSYS", ""}, // libc falls back on ENOSYS only
		{"setns /proc/self/ns/net", "ok", "EPERM", "EPERM", ""},
		{"setns /proc/1/ns/mnt", "-", "-", "EACCES", ""},
		{"setns pidfd child 0x20000", "ok", "EPERM", "EPERM", ""},

		// Kernel surface. Promises 12, 16 and the classes of escape.
		{"keyctl", "ok", "", "EPERM|ENOSYS", ""},
		{"add-key", "ok", "", "EPERM|ENOSYS", ""},
		{"request-key", "ENOENT|ENOKEY", "", "EPERM|ENOSYS", ""},
		{"io-uring", "ok", "ok|EPERM", "EPERM|ENOSYS", ""},
		{"bpf", "ok", "ok|EPERM", "EPERM|ENOSYS", ""},
		{"userfaultfd", "ok", "ok|EPERM", "EPERM|ENOSYS", ""},
		{"perf", "ok", "ok|EACCES|EPERM", "EPERM|ENOSYS", ""},
		{"tiocsti", "ok", "ok|EIO", "EPERM", ""},
		{"tiocsti-high", "ok", "ok|EIO", "EPERM", ""},
		{"tioclinux", "ENOTTY|EINVAL", "", "EPERM", ""},
		{"tioclinux-hi", "ENOTTY|EINVAL", "", "EPERM", ""},
		{"int80", "ok|ENOSYS|signal SIGSEGV", "", "signal SIGSYS|ENOSYS|signal SIGSEGV", ""},
		{"x32", "ok|ENOSYS", "", "signal SIGSYS|ENOSYS", ""},
		{"seccomp-undo", "EINVAL", "", "EINVAL|EPERM", ""},
		{"iopl", "ok|ENOSYS", "EPERM|ENOSYS", "EPERM|ENOSYS", ""},

		// Socket families. Promise 16.
		{"socket 40 1 0", "ok|EAFNOSUPPORT", "", "EPERM|EAFNOSUPPORT", ""},                  // AF_VSOCK
		{"socket 38 5 0", "ok|EAFNOSUPPORT", "", "EPERM|EAFNOSUPPORT", ""},                  // AF_ALG
		{"socket 17 3 0", "ok", "EPERM", "EPERM|EAFNOSUPPORT", ""},                          // AF_PACKET
		{"socket 17 2 768", "ok", "EPERM", "EPERM|EAFNOSUPPORT", ""},                        // AF_PACKET, datagrams
		{"socket 2 3 1", "ok", "EPERM", "EPERM", ""},                                        // raw ICMP
		{"socket 10 3 58", "ok", "EPERM", "EPERM", ""},                                      // raw ICMPv6
		{"socket 16 3 9", "ok", "ok|EPROTONOSUPPORT", "EPROTONOSUPPORT", ""},                // NETLINK_AUDIT
		{"socket 16 3 12", "ok", "", "EPROTONOSUPPORT", ""},                                 // NETLINK_NETFILTER
		{"socket 16 3 15", "ok", "", "EPROTONOSUPPORT", ""},                                 // NETLINK_KOBJECT_UEVENT
		{"socket 16 3 16", "ok", "", "EPROTONOSUPPORT", ""},                                 // NETLINK_GENERIC
		{"socket 2 1 262", "ok|EPROTONOSUPPORT|ENOPROTOOPT", "", "EPROTONOSUPPORT", ""},     // MPTCP
		{"socket 44 3 0", "ok|EAFNOSUPPORT", "-", "EPERM|EAFNOSUPPORT", ""},                 // AF_XDP
		{"socket 31 3 1", "ok|EAFNOSUPPORT|EPROTONOSUPPORT", "-", "EPERM|EAFNOSUPPORT", ""}, // AF_BLUETOOTH
		{"socket 29 3 1", "ok|EAFNOSUPPORT|EPROTONOSUPPORT", "-", "EPERM|EAFNOSUPPORT", ""}, // AF_CAN

		// pid 1 of the box, which holds the verdict; bare, a child stands for it
		// further down. Promise 18.
		{"ptrace 1", "-", "-", "EPERM", ""},
		{"vm-readv 1", "-", "-", "EPERM", ""},
		{"pidfd-getfd 1", "-", "-", "EPERM", ""},
		{"kill 1 9", "-", "-", "EPERM", ""},
		{"kill 1 0", "-", "-", "EPERM", ""},
		{"tgkill 1", "-", "-", "EPERM", ""},
		{"pidfd-signal 1", "-", "-", "EPERM", ""},
		{"proc-open 1 environ", "-", "-", "EACCES|EPERM", ""},
		{"proc-open 1 mem", "-", "-", "EACCES|EPERM", ""},
		{"proc-write 1 mem", "-", "-", "EACCES|EPERM", ""},
		{"proc-open 1 maps", "-", "-", "EACCES|EPERM", ""},
		{"proc-open 1 auxv", "-", "-", "EACCES|EPERM", ""},
		// Of the directory /proc/1/fd root may read the numbers, which say nothing.
		{"proc-link 1 fd/0", "-", "-", "EACCES|EPERM", ""},
		{"proc-link 1 fd/4", "-", "-", "EACCES|EPERM", ""},
		{"proc-open 1 fd/4", "-", "-", "EACCES|EPERM", ""},
		{"proc-write 1 fd/4", "-", "-", "EACCES|EPERM", ""},
		{"proc-open 1 fd/0", "-", "-", "EACCES|EPERM", ""},
		{"proc-open 1 fdinfo", "-", "-", "EACCES|EPERM", ""},
		{"proc-open 1 exe", "-", "-", "EACCES|EPERM", ""},
		{"proc-write 1 exe", "-", "-", "EACCES|EPERM", ""},
		{"proc-link 1 root", "-", "-", "EACCES|EPERM", ""},
		{"proc-link 1 exe", "-", "-", "EACCES|EPERM", ""},
		{"proc-enter 1 root", "-", "-", "EACCES|EPERM", ""},
		{"proc-enter 1 cwd", "-", "-", "EACCES|EPERM", ""},
		{"proc-open 1 task/1/mem", "-", "-", "EACCES|EPERM", ""},
		{"proc-open 1 task/1/fd/4", "-", "-", "EACCES|EPERM", ""},

		// The same on a process of one's own: the control, and what debuggers need.
		{"ptrace child", "ok", "", "ok", ""},
		{"vm-readv child", "ok", "", "ok", ""},
		{"pidfd-getfd child", "ok", "", "ok", ""},
		{"prlimit child", "ok", "", "ok", ""},
		{"kill child 9", "ok", "", "ok", ""},
		{"tgkill child", "ok", "", "ok", ""},
		{"pidfd-signal child", "ok", "", "ok", ""},
		{"proc-open child environ", "ok", "", "ok", ""},
		{"proc-open child mem", "ok", "", "ok", ""},
		{"proc-write child mem", "ok", "", "ok", ""},
		{"proc-open child fd", "ok", "", "ok", ""},
		{"proc-link child exe", "ok", "", "ok", ""},
		{"proc-enter child root", "ok", "", "ok", ""},

		// Kernel controls. Promise 10.
		{"open-write /proc/sys/kernel/core_pattern", "ok", "-", "EROFS|EACCES", ""},
		{"open-write /proc/sys/kernel/hostname", "ok", "-", "EROFS|EACCES", ""},
		{"open-write /proc/sys/vm/overcommit_memory", "ok", "-", "EROFS|EACCES", ""},
		{"open-write /proc/sysrq-trigger", "ok|ENOENT", "-", "EROFS|EACCES|ENOENT", ""},
		{"open-write /proc/irq/default_smp_affinity", "ok|ENOENT", "-", "EROFS|EACCES|ENOENT", ""},
		{"open-read /proc/kcore", "ok|ENOENT|EPERM", "-", "EACCES|ENOENT|EPERM|ok", ""},
		{"open-read /proc/kmsg", "ok|ENOENT|EPERM", "-", "EACCES|ENOENT|EPERM", ""},
		{"open-write /sys/kernel/mm/transparent_hugepage/enabled", "ok|ENOENT", "-", "EROFS|EACCES|ENOENT", ""},
		{"open-write /sys/power/state", "ok|ENOENT|EACCES", "-", "EROFS|EACCES|ENOENT", ""},
		{"create /sys/fs/cgroup/wall-test", "-", "-", "EROFS|EACCES|ENOENT|EPERM", ""},
		{"mkdir /sys/fs/cgroup/wall-test", "-", "-", "EROFS|EACCES|ENOENT|EPERM", ""},
		{"open-write /sys/fs/cgroup/cgroup.procs", "-", "-", "EROFS|EACCES|ENOENT|EPERM", ""},
		{"open-read /dev/mem", "-", "-", "ENOENT", ""},
		{"open-read /dev/kmsg", "-", "-", "ENOENT", ""},
		{"open-read /dev/kvm", "-", "-", "ENOENT", ""},
		{"open-read /dev/fuse", "-", "-", "ENOENT", ""},
		{"open-read /dev/net/tun", "-", "-", "ENOENT", ""},
		{"open-read /dev/vsock", "-", "-", "ENOENT", ""},
		{"create /dev/new", "-", "-", "EROFS|EACCES", ""},
		{"unlink /dev/null", "-", "-", "EROFS|EBUSY|EACCES", ""},
		{"open-rdwr /dev/tty", "-", "-", "ENXIO", ""},

		// What programs need, or people switch the box off.
		{"open-rdwr /dev/null", "ok", "", "ok", ""},
		{"open-read /dev/urandom", "ok", "", "ok", ""},
		{"open-rdwr /dev/zero", "ok", "", "ok", ""},
		{"open-write /dev/full", "ok", "", "ok", ""},
		{"tiocgwinsz", "ok", "", "ok", ""},
		{"socketpair", "ok", "", "ok", ""},
		{"memfd", "ok", "", "ok", ""},
		{"membarrier", "ok", "", "ok", ""},
		{"inotify", "ok", "", "ok", ""},
		{"personality 0x0040000", "ok", "", "ok", ""}, // ADDR_NO_RANDOMIZE: debuggers
		{"shm-make 99", "ok", "", "ok", ""},
		{"socket 16 3 0", "ok", "", "ok", ""}, // NETLINK_ROUTE: getaddrinfo
		{"bind-tcp 127.0.0.1 0", "ok", "", "ok", ""},
		{"bind-tcp ::1 0", "ok", "", "ok", ""},
		{"set-dumpable1", "ok", "", "ok", ""},
	}
	for _, column := range []string{"bare", "gate", "agent"} {
		t.Run(column, func(t *testing.T) {
			b := newBox(t, column)
			if column == "bare" {
				b.bare = true
			}
			var some []row
			var ops []string
			for _, r := range rows {
				if r.want(column) != "-" {
					some = append(some, r)
					ops = append(ops, strings.ReplaceAll(r.op, "$W", b.ws))
				}
			}
			var results []string
			if b.bare {
				// Even an attack that works must not touch the machine or the next one:
				// each has its own mounts, and an ordinary user CAP_SYS_ADMIN over them.
				for _, op := range ops {
					cmd := b.cmd(probeBin, "batch")
					cmd.SysProcAttr = newUser(unix.CLONE_NEWUTS)
					results = append(results, batchOf(t, cmd, []string{op})...)
				}
			} else {
				results = b.batch(ops)
			}
			for i, got := range results {
				if want := some[i].want(column); !anyOf(got, want) {
					t.Errorf("%s: %s, want %s", some[i].op, got, want)
				}
			}
		})
	}
}

// A victim is a process of the host with everything that a box must not reach.
type victim struct {
	word       string // in its argv, its environment and its abstract socket's name
	pid        int
	tcp4, tcp6 int // ports; tcp6 is 0 without IPv6
	udp4       int
	sockets    []string // pathname sockets
	abstract   string
	key        int // System V
}

// newVictim starts a probe that serves, and listens for itself on every kind of
// socket. dirs get a Unix socket each.
func newVictim(t *testing.T, dirs ...string) *victim {
	t.Helper()
	v := &victim{word: nonce()}
	cmd := exec.Command(probeBin, "serve", v.word)
	cmd.Env = append(os.Environ(), "VICTIM_SECRET="+v.word)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if _, err := fmt.Fscanln(out, new(string), &v.key, &v.tcp4); err != nil {
		t.Fatal(err)
	}
	v.pid, v.abstract = cmd.Process.Pid, v.word
	for _, dir := range dirs {
		path := filepath.Join(dir, v.word+".sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		v.sockets = append(v.sockets, path)
	}
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		t.Cleanup(func() { l.Close() })
		v.tcp6 = l.Addr().(*net.TCPAddr).Port
	}
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close() })
	v.udp4 = udp.LocalAddr().(*net.UDPAddr).Port
	go func() {
		buf := make([]byte, 64)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(buf[:n], from)
		}
	}()
	return v
}

// rows attack the victim. Promises 8, 10, 16, 17.
func (v *victim) rows() []row {
	rows := []row{
		{"find " + v.word, "ok", "", "ESRCH", ""},
		{fmt.Sprintf("kill %d 0", v.pid), "ok", "", "ESRCH", ""},
		{fmt.Sprintf("tgkill %d", v.pid), "ok", "", "ESRCH", ""},
		{fmt.Sprintf("pidfd-signal %d", v.pid), "ok", "", "ESRCH", ""},
		{fmt.Sprintf("setpriority %d", v.pid), "ok", "", "ESRCH", ""},
		{fmt.Sprintf("sched %d", v.pid), "ok", "", "ESRCH", ""},
		{fmt.Sprintf("prlimit %d", v.pid), "ok", "", "ESRCH", ""},
		{fmt.Sprintf("proc-open %d environ", v.pid), "ok", "", "ENOENT", ""},
		{fmt.Sprintf("proc-open %d cmdline", v.pid), "ok", "", "ENOENT", ""},
		{fmt.Sprintf("proc-enter %d root", v.pid), "ok", "", "ENOENT", ""},
		{fmt.Sprintf("connect-tcp 127.0.0.1 %d", v.tcp4), "ok", "", "ECONNREFUSED", ""},
		{fmt.Sprintf("connect-tcp 0.0.0.0 %d", v.tcp4), "ok", "", "ECONNREFUSED", ""},
		{fmt.Sprintf("connect-mptcp 127.0.0.1 %d", v.tcp4), "ok|EPROTONOSUPPORT|ENOPROTOOPT", "", "EPROTONOSUPPORT", ""},
		{fmt.Sprintf("fastopen 127.0.0.1 %d", v.tcp4), "ok|ENOTSUP", "", "ECONNREFUSED|ENOTSUP", ""},
		{fmt.Sprintf("ask-udp 127.0.0.1 %d", v.udp4), "ok", "", "ECONNREFUSED", ""},
		{"connect-tcp 192.0.2.1 80", "ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ECONNREFUSED|ok", "", "ENETUNREACH", ""},
		{"connect-tcp 169.254.169.254 80", "-", "-", "ENETUNREACH", ""},
		{"connect-abstract " + v.abstract, "ok", "", "ECONNREFUSED|EPERM", ""},
		{"connect-unix /tmp/" + v.word + ".sock", "ok", "", "ENOENT", ""},
		{"cat /tmp/" + v.word, "ok " + v.word, "", "ENOENT", ""},
		{"cat /var/tmp/" + v.word, "ok " + v.word, "", "ENOENT", ""},
		{"cat /dev/shm/" + v.word, "ok " + v.word, "", "ENOENT", ""},
		{fmt.Sprintf("shm-get %d", v.key), "ok", "", "ENOENT", ""},
		{fmt.Sprintf("msg-get %d", v.key), "ok", "", "ENOENT", ""},
		{fmt.Sprintf("sem-get %d", v.key), "ok", "", "ENOENT", ""},
		{"mq-open " + v.word, "ok", "", "ENOENT", ""},
	}
	if v.tcp6 != 0 {
		rows = append(rows, row{fmt.Sprintf("connect-tcp ::1 %d", v.tcp6), "ok", "", "ECONNREFUSED", ""})
	}
	for _, path := range v.sockets {
		rows = append(rows, row{"connect-unix " + path, "ok", "", "ENOENT|EACCES|ECONNREFUSED|ENOTSOCK", ""})
	}
	return rows
}

// checkRows tries the rows bare and boxed.
func checkRows(t *testing.T, b *box, rows []row) {
	t.Helper()
	var ops []string
	for _, r := range rows {
		ops = append(ops, r.op)
	}
	for i, got := range b.control().batch(ops) {
		if want := rows[i].want("bare"); want != "-" && !anyOf(got, want) {
			t.Errorf("control: %s: %s, want %s", rows[i].op, got, want)
		}
	}
	for i, got := range b.batch(ops) {
		if want := rows[i].want(b.profile); !anyOf(got, want) {
			t.Errorf("%s: %s: %s, want %s", b.profile, rows[i].op, got, want)
		}
	}
}

// TestTableHost attacks processes, sockets, IPC objects and ports of the host.
// Promises 8, 10, 16.
func TestTableHost(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	home, _ := makeHome(t)
	write(t, "/run/user/"+fmt.Sprint(os.Getuid())+"/x", "")
	v := newVictim(t, home, home+"/nested", "/run", "/run/user/"+fmt.Sprint(os.Getuid()), "/srv")
	for _, profile := range []string{"gate", "agent"} {
		t.Run(profile, func(t *testing.T) {
			b := newBox(t, profile)
			checkRows(t, b, v.rows())
			// A link in the workspace that leads to a socket changes nothing.
			for i, path := range v.sockets {
				link := fmt.Sprintf("%s/link%d", b.ws, i)
				if err := os.Symlink(path, link); err != nil {
					t.Fatal(err)
				}
				if got := b.try("connect-unix " + link); got == "ok" {
					t.Errorf("reached %s through a link", path)
				}
			}
		})
	}
}

// TestTableLater looks for files that the host makes after the start, in places
// that are hidden or private. Sockets made after the start are not tried. Promises 8, 10.
func TestTableLater(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	for _, profile := range []string{"gate", "agent"} {
		t.Run(profile, func(t *testing.T) {
			home, ws := makeHome(t)
			if err := os.RemoveAll(home + "/.aws"); err != nil { // a hidden name that is absent at the start
				t.Fatal(err)
			}
			word := nonce()
			paths := []string{home + "/.ssh/" + word, "/tmp/" + word, "/var/tmp/" + word, "/dev/shm/" + word, "/run/" + word}
			b := newBox(t, profile)
			b.ws = ws
			cmd := b.cmd("/bin/sh", "-c", `echo up; read go; for f in "$@"; do cat "$f" && echo "READ $f"; done; exit 0`, "sh")
			cmd.Args = append(cmd.Args, append(paths, home+"/.aws/credentials")...)
			in, _ := cmd.StdinPipe()
			out, _ := cmd.StdoutPipe()
			var errs strings.Builder
			cmd.Stderr = &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, 3)
			if _, err := out.Read(buf); err != nil {
				t.Fatalf("%v\n%s", err, errs.String())
			}
			for _, path := range append(paths, home+"/.aws/credentials") {
				write(t, path, word+"\n")
			}
			time.Sleep(10 * time.Millisecond)
			fmt.Fprintln(in, "go")
			in.Close()
			var text strings.Builder
			rest := make([]byte, 4096)
			for {
				n, err := out.Read(rest)
				text.Write(rest[:n])
				if err != nil {
					break
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, errs.String())
			}
			for _, path := range paths {
				if read(t, path) != word+"\n" { // the control: it is there outside
					t.Errorf("%s is not there on the host", path)
				}
				_ = os.Remove(path)
			}
			if strings.Contains(text.String(), word) {
				t.Errorf("read what the host made after the start:\n%s", text.String())
			}
		})
	}
}
