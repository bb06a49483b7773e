package landlock

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

// A tree maps a directory to its entries: "name" a file, "name/" a directory,
// "name@" a link. Directories in closed cannot be listed.
type tree struct {
	dirs   map[string][]string
	closed map[string]bool
	asked  []string
}

func (tr *tree) readDir(dir string) ([]Entry, error) {
	tr.asked = append(tr.asked, dir)
	if tr.closed[dir] {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.EACCES}
	}
	names, ok := tr.dirs[dir]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOENT}
	}
	var out []Entry
	for _, n := range names {
		switch {
		case strings.HasSuffix(n, "/"):
			out = append(out, Entry{strings.TrimSuffix(n, "/"), plan.TypeDir})
		case strings.HasSuffix(n, "@"):
			out = append(out, Entry{strings.TrimSuffix(n, "@"), plan.TypeSymlink})
		default:
			out = append(out, Entry{n, plan.TypeFile})
		}
	}
	return out, nil
}

func paths(rules []plan.PathRule) []string {
	var out []string
	for _, r := range rules {
		s := r.Path
		if r.Access == plan.AccessList {
			s = "list " + s
		}
		out = append(out, s)
	}
	return out
}

func TestExpand(t *testing.T) {
	dirs := map[string][]string{
		"/":                 {"bin@", "etc/", "home/", "usr/", "vmlinuz"},
		"/home":             {"eve/", "u/"},
		"/home/u":           {".config/", ".ssh/", ".netrc", "link@", "src/", "sock"},
		"/home/u/.ssh":      {"id", "config"},
		"/home/u/.config":   {"gh/", "git/", "a"},
		"/home/u/.config/a": {"never"},
		"/home/u/src":       {},
	}
	for _, tt := range []struct {
		name   string
		path   string
		except []string
		list   bool
		closed []string
		want   []string
	}{
		{name: "no exception", path: "/home/u", want: []string{"/home/u"}},
		{name: "exceptions elsewhere", path: "/usr", except: []string{"/home/u/.ssh", "/us", "/usr2"}, want: []string{"/usr"}},
		{name: "itself excepted", path: "/home/u/.ssh", except: []string{"/home/u/.ssh"}},
		{name: "below an exception", path: "/home/u/.ssh", except: []string{"/home/u"}},
		{name: "root excepted", path: "/home", except: []string{"/"}},
		{
			name: "one level", path: "/home/u", except: []string{"/home/u/.ssh"},
			want: []string{"/home/u/.config", "/home/u/.netrc", "/home/u/src", "/home/u/sock"},
		},
		{
			name: "from the root, two branches", path: "/",
			except: []string{"/home/u/.ssh", "/home/u/.config/gh"},
			want: []string{
				"/etc", "/usr", "/vmlinuz", "/home/eve",
				"/home/u/.netrc", "/home/u/src", "/home/u/sock",
				"/home/u/.config/git", "/home/u/.config/a",
			},
		},
		{
			name: "absent exception", path: "/home/u", except: []string{"/home/u/.aws/credentials"},
			want: []string{"/home/u/.config", "/home/u/.ssh", "/home/u/.netrc", "/home/u/src", "/home/u/sock"},
		},
		{
			name: "absent exception in an existing directory", path: "/home/u/src", except: []string{"/home/u/src/.env"},
			want: nil,
		},
		{
			name: "way through a file", path: "/home/u/.config", except: []string{"/home/u/.config/a/never"},
			want: []string{"/home/u/.config/gh", "/home/u/.config/git"},
		},
		{
			name: "way through a link", path: "/home/u", except: []string{"/home/u/link/x"},
			want: []string{"/home/u/.config", "/home/u/.ssh", "/home/u/.netrc", "/home/u/src", "/home/u/sock"},
		},
		{
			name: "exception within an exception", path: "/home/u", except: []string{"/home/u/.config/gh", "/home/u/.config"},
			want: []string{"/home/u/.ssh", "/home/u/.netrc", "/home/u/src", "/home/u/sock"},
		},
		{
			name: "unlistable on the way", path: "/home", except: []string{"/home/u/.ssh"}, closed: []string{"/home"},
			want: []string{"/home/u/.config", "/home/u/.netrc", "/home/u/src", "/home/u/sock"},
		},
		{
			name: "ancestors listed", path: "/home/u", except: []string{"/home/u/.config/gh"}, list: true,
			want: []string{"list /home/u", "/home/u/.ssh", "/home/u/.netrc", "/home/u/src", "/home/u/sock", "/home/u/.config/git", "/home/u/.config/a"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := &tree{dirs: dirs, closed: map[string]bool{}}
			for _, c := range tt.closed {
				tr.closed[c] = true
			}
			origin := plan.Origin{File: "p.toml", Line: 3}
			in := plan.PathRule{Path: tt.path, Access: plan.AccessRead, Except: tt.except, Origin: origin}
			before := slices.Clone(tt.except)
			got, err := Expand(in, tt.list, tr.readDir)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(paths(got), tt.want) {
				t.Errorf("got  %q\nwant %q", paths(got), tt.want)
			}
			for _, r := range got {
				if r.Origin != origin || r.Except != nil {
					t.Errorf("rule %+v lost its origin or kept exceptions", r)
				}
				if r.Path != tt.path && !r.Optional {
					t.Errorf("rule for the entry %s is not optional", r.Path)
				}
			}
			if !slices.Equal(tt.except, before) {
				t.Error("the argument was changed")
			}
		})
	}
}

func TestExpandDoesNotReadWithoutNeed(t *testing.T) {
	tr := &tree{}
	if _, err := Expand(plan.PathRule{Path: "/usr", Access: plan.AccessRead, Except: []string{"/home"}}, true, tr.readDir); err != nil || tr.asked != nil {
		t.Errorf("read %q, %v", tr.asked, err)
	}
}

func TestExpandListingOnlyWhatMayBeListed(t *testing.T) {
	tr := &tree{dirs: map[string][]string{"/d": {"a", "b"}}}
	got, err := Expand(plan.PathRule{Path: "/d", Access: plan.AccessStdin, Except: []string{"/d/a"}}, true, tr.readDir)
	if err != nil || !slices.Equal(paths(got), []string{"/d/b"}) {
		t.Errorf("%q, %v", paths(got), err)
	}
}

func TestExpandErrors(t *testing.T) {
	origin := plan.Origin{Text: "--ro /x"}
	r := plan.PathRule{Path: "/x", Access: plan.AccessRead, Except: []string{"/x/y/z"}, Origin: origin}
	fail := func(dir string, e error) func(string) ([]Entry, error) {
		return func(d string) ([]Entry, error) {
			if d == dir {
				return nil, e
			}
			return []Entry{{"y", plan.TypeDir}, {"o", plan.TypeFile}}, nil
		}
	}
	for _, tt := range []struct {
		name     string
		dir      string
		err      error
		optional bool
		fails    bool
	}{
		{"missing path", "/x", syscall.ENOENT, false, true},
		{"missing optional path", "/x", syscall.ENOENT, true, false},
		{"path is a file", "/x", syscall.ENOTDIR, false, true},
		{"path is a link", "/x", syscall.ELOOP, true, false},
		{"no permission", "/x", syscall.EACCES, false, false},
		{"broken disk", "/x", syscall.EIO, true, true},
		{"vanished below", "/x/y", syscall.ENOENT, false, false},
		{"link below", "/x/y", syscall.ELOOP, false, false},
		{"no permission below", "/x/y", syscall.EACCES, false, false},
		{"broken disk below", "/x/y", syscall.EIO, false, true},
	} {
		r.Optional = tt.optional
		_, err := Expand(r, false, fail(tt.dir, tt.err))
		if (err != nil) != tt.fails {
			t.Errorf("%s: error %v", tt.name, err)
		}
		var pe *plan.Error
		if err != nil && (!errors.As(err, &pe) || pe.Origin != origin || !errors.Is(err, tt.err) || !strings.Contains(err.Error(), tt.dir)) {
			t.Errorf("%s: error %#v", tt.name, err)
		}
	}
	if _, err := Expand(r, false, func(string) ([]Entry, error) { return []Entry{{"..", plan.TypeDir}}, nil }); err == nil {
		t.Error("an entry .. was accepted")
	}
}

func TestExpandIsBounded(t *testing.T) {
	tr := &tree{dirs: map[string][]string{"/big": {"hidden"}}}
	for i := range MaxRules {
		tr.dirs["/big"] = append(tr.dirs["/big"], fmt.Sprint(i))
	}
	r := plan.PathRule{Path: "/big", Access: plan.AccessRead, Except: []string{"/big/hidden"}, Origin: plan.Origin{Text: "x"}}
	got, err := Expand(r, false, tr.readDir)
	if err != nil || len(got) != MaxRules {
		t.Fatalf("%d rules, %v", len(got), err)
	}
	tr.dirs["/big"] = append(tr.dirs["/big"], "one too many")
	_, err = Expand(r, false, tr.readDir)
	var pe *plan.Error
	if !errors.As(err, &pe) || pe.Origin != r.Origin || pe.Hint == "" || !strings.Contains(err.Error(), "at /big") {
		t.Errorf("error %v", err)
	}
}

// FuzzExpand builds a tree and exceptions from bytes and checks the two promises:
// no exception lies beneath a rule, and everything else that exists is
// beneath one.
func FuzzExpand(f *testing.F) {
	f.Add([]byte("a/b/c\na/b/\nd@\n"), []byte("/r/a/b\n/r/x/y"), false)
	f.Add([]byte("a\n"), []byte("/r/a/b\n/r"), true)
	f.Add([]byte("a/\nab\nabc/d\n"), []byte("/r/ab\n/r/abc/d/e"), true)
	f.Fuzz(func(t *testing.T, files, except []byte, list bool) {
		if len(files) > 4096 || len(except) > 1024 {
			return
		}
		nodes := map[string]plan.FileType{"/r": plan.TypeDir} // every path that exists
		children := map[string][]Entry{}
		add := func(p string, ty plan.FileType) bool {
			if old, ok := nodes[p]; ok {
				return old == ty
			}
			if nodes[parent(p)] != plan.TypeDir {
				return false
			}
			nodes[p] = ty
			children[parent(p)] = append(children[parent(p)], Entry{p[strings.LastIndexByte(p, '/')+1:], ty})
			return true
		}
	line:
		for line := range strings.SplitSeq(string(files), "\n") {
			p := "/r"
			elements := strings.Split(line, "/")
			for i, e := range elements {
				if e == "" || e == "." || e == ".." || strings.Contains(e, "\x00") {
					continue line
				}
				ty := plan.TypeDir
				if i == len(elements)-1 {
					ty = plan.TypeFile
					if strings.HasSuffix(e, "@") {
						ty = plan.TypeSymlink
					}
				}
				p += "/" + e
				if !add(p, ty) {
					continue line
				}
			}
		}
		var exceptions []string
		for line := range strings.SplitSeq(string(except), "\n") {
			if strings.HasPrefix(line, "/") && checkPath(plan.PathRule{}, line) == nil {
				exceptions = append(exceptions, line)
			}
		}
		readDir := func(d string) ([]Entry, error) {
			switch ty, ok := nodes[d]; {
			case !ok:
				return nil, syscall.ENOENT
			case ty != plan.TypeDir:
				return nil, syscall.ENOTDIR
			}
			return children[d], nil
		}
		in := plan.PathRule{Path: "/r", Access: plan.AccessRead, Except: exceptions}
		got, err := Expand(in, list, readDir)
		if err != nil {
			if strings.Contains(err.Error(), "more than") {
				return
			}
			t.Fatal(err)
		}
		again, _ := Expand(in, list, readDir)
		if !reflect.DeepEqual(got, again) {
			t.Fatal("not deterministic")
		}
		for _, r := range got {
			if r.Access == plan.AccessList && list {
				continue
			}
			for _, e := range exceptions {
				if isWithin(e, r.Path) {
					t.Errorf("exception %q lies beneath rule %q", e, r.Path)
				}
			}
			if nodes[r.Path] == plan.TypeSymlink {
				t.Errorf("rule for the link %q", r.Path)
			}
		}
		for p, ty := range nodes {
			if ty == plan.TypeSymlink {
				continue
			}
			needed := true // p is neither excepted, nor on the way to an exception
			for _, e := range exceptions {
				if isWithin(p, e) || isWithin(e, p) {
					needed = false
				}
			}
			if !needed {
				continue
			}
			covered := slices.ContainsFunc(got, func(r plan.PathRule) bool {
				return r.Access == plan.AccessRead && isWithin(p, r.Path)
			})
			if !covered {
				t.Errorf("%q is beneath no rule of %q", p, paths(got))
			}
		}
	})
}
