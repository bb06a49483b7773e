package profile

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

func TestWalk(t *testing.T) {
	fsys := parseTree(t, `
f /a/file
d /a/b/c
l /a/rel b/c
l /a/abs /a/b
l /a/up ../a/b/../file
l /a/dangling nowhere/x
l /a/loop1 loop2
l /a/loop2 loop1
l /l1 /a/rel
l /proc/self/exe /usr/bin/sh\s(deleted)
`)
	for _, test := range []struct {
		path, want, missing string
		links               []string
		err                 error
	}{
		{path: "/", want: "/"},
		{path: "/a/file", want: "/a/file"},
		{path: "//a/./b//c/", want: "/a/b/c"},
		{path: "/a/b/../file", want: "/a/file"},
		{path: "/../../a", want: "/a"},
		{path: "/a/rel", want: "/a/b/c", links: []string{"/a/rel"}},
		{path: "/a/abs/c", want: "/a/b/c", links: []string{"/a/abs"}},
		{path: "/a/up", want: "/a/file", links: []string{"/a/up"}},
		{path: "/l1", want: "/a/b/c", links: []string{"/l1", "/a/rel"}},
		{path: "/a/rel/..", want: "/a/b", links: []string{"/a/rel"}}, // the real parent, as in the kernel
		{path: "/a/none/x", want: "/a/none/x", missing: "/a/none"},
		{path: "/a/none/../file", want: "/a/none", missing: "/a/none"},
		{path: "/a/dangling", want: "/a/nowhere/x", missing: "/a/nowhere", links: []string{"/a/dangling"}},
		{path: "/a/file/x", err: errNotDir},
		{path: "/a/loop1", err: errLoop},
		{path: "/bin/sh", want: "/usr/bin/sh", links: []string{"/bin"}},
	} {
		l := newTree(fsys).walk(test.path)
		if !errors.Is(l.err, test.err) {
			t.Errorf("%s: error %v, want %v", test.path, l.err, test.err)
			continue
		}
		if test.err != nil {
			continue
		}
		var at []string
		for _, k := range l.links {
			at = append(at, k.at)
		}
		if l.path != test.want || l.missing != test.missing || !slices.Equal(at, test.links) {
			t.Errorf("%s: got %q missing %q links %q", test.path, l.path, l.missing, at)
		}
	}
	l := newTree(fsys).walkParent("/a/rel")
	if l.path != "/a/rel" || l.mode&fs.ModeSymlink == 0 || len(l.links) != 0 {
		t.Errorf("walkParent followed the last link: %+v", l)
	}
}

func TestTreeList(t *testing.T) {
	fsys := parseTree(t, "")
	tr := newTree(fsys)
	tr.list("/home/u")
	if !tr.exists("/home/u/.ssh") || tr.exists("/home/u/none") || !tr.walk("/home/u/.ssh/id_ed25519").exists() {
		t.Error("a listed directory gives other answers")
	}
	if m := tr.perm("/home/u/.gitconfig"); m != 0o644 {
		t.Errorf("the mode of a file is %v", m)
	}
	tr.list("/etc/passwd")
	tr.list("/nowhere")
	if len(tr.listed) != 1 {
		t.Errorf("listed %d", len(tr.listed))
	}
}

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		p, dir        string
		within, below bool
	}{
		{"/a", "/a", true, false}, {"/a/b", "/a", true, true}, {"/ab", "/a", false, false},
		{"/", "/", true, false}, {"/a", "/", true, true}, {"/a", "/a/b", false, false},
	} {
		if within(test.p, test.dir) != test.within || below(test.p, test.dir) != test.below {
			t.Errorf("%s in %s: %v %v", test.p, test.dir, within(test.p, test.dir), below(test.p, test.dir))
		}
	}
}

func TestComparePaths(t *testing.T) {
	want := []string{"/", "/a", "/a/b", "/a/b/c", "/a/bc", "/a!", "/a-b", "/ab", "/b"}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, comparePaths)
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestExpand(t *testing.T) {
	at := places{home: "/home/u", workspace: "/w", cwd: "/w/sub"}
	for _, test := range []struct{ in, want string }{
		{"/x", "/x"}, {"~", "/home/u"}, {"~/a", "/home/u/a"}, {"$home/a", "/home/u/a"}, {"$workspace", "/w"},
		{"$workspace/../x", "/w/../x"}, {"$cwd/a", "/w/sub/a"}, {"a/b", "/base/a/b"}, {"./~x", "/base/./~x"}, {"a$home", "/base/a$home"},
	} {
		if got, err := at.expand(test.in, "/base"); err != nil || got != test.want {
			t.Errorf("%q: %q, %v", test.in, got, err)
		}
	}
	if _, err := (places{}).expand("~/a", "/"); !errors.Is(err, errNoHome) {
		t.Errorf("no home: %v", err)
	}
	for _, bad := range []string{"", "~root", "~root/x", "$HOME", "$scratch/x", "${home}", "$", "a\x00b"} {
		if msg, _ := badPath(bad); msg == "" {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"*", ".env", true}, {"*.pem", "a.pem", true}, {"*.pem", "a.pem.x", false}, {"a?c", "abc", true},
		{"a?c", "aäc", true}, {"a?c", "ac", false}, {"[ab]", "a", false}, {"[ab]", "[ab]", true}, {"**", "x", true},
		{"*a*b*c", "xxaxxbxxc", true}, {"*a*b*c", "xxaxxcxxb", false}, {"", "", true}, {"", "a", false},
	} {
		if got := match(test.pattern, test.s); got != test.want {
			t.Errorf("%q %q: %v", test.pattern, test.s, got)
		}
	}
}

func TestGitConfig(t *testing.T) {
	got := gitConfig("[core]\n\thooksPath = \"a b\" ; c\n# x\n[includeIf \"gitdir:/x/\"] path=../y\n[Core]bare\n[remote \"O\"]\n url = a\\\n b\n")
	want := []gitVar{{"core.hookspath", "a b"}, {"includeIf.gitdir:/x/.path", "../y"}, {"core.bare", ""}, {"remote.O.url", "a b"}}
	want[1].key = "includeif.gitdir:/x/.path"
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// The mounts of a plan are in an order in which none hides another.
func TestMountOrder(t *testing.T) {
	h, o := readCase(t, parseArchive([]byte("-- args --\ndefault gate\n--rw /var\n--ro /tmp/in\n--home scratch\n-- tree --\nd /tmp/in\nd /home/u/proj/.git\n")))
	p, err := Resolve(h, o)
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int{}
	for i, m := range p.Mounts {
		if m.Op != plan.OpSeal {
			at[m.Target] = i
		}
	}
	for _, pair := range [][2]string{
		{"/", "/dev"}, {"/dev", "/dev/null"}, {"/var", "/var/tmp"}, {"/tmp", "/tmp/in"}, {"/home/u", "/home/u/proj"}, {"/home/u/proj", "/home/u/proj/.git"},
	} {
		a, ok1 := at[pair[0]]
		b, ok2 := at[pair[1]]
		if !ok1 || !ok2 || a >= b {
			t.Errorf("%s is mount %d (%v), %s is mount %d (%v)", pair[0], a, ok1, pair[1], b, ok2)
		}
	}
}
