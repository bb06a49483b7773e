package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/wallsandbox/wall/plan"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// baseTree is the host of every test that does not say otherwise: a usr-merged
// system with one account. One entry per line:
//
//	d PATH          directory          f PATH [TEXT]   file, \n in TEXT is a new line
//	x PATH          executable         l PATH TARGET   symbolic link
//	s PATH          socket             c PATH          character device
//	b PATH          block device       p PATH          FIFO
//	z PATH SIZE     file of SIZE bytes
//	m PATH MODE UID permission bits (octal) and owner of what is there already
//	- PATH          remove it and what lies below
const baseTree = `
l /bin usr/bin
l /lib usr/lib
l /sbin usr/sbin
d /usr/lib
d /usr/sbin
x /usr/bin/sh
x /usr/bin/true
x /usr/local/bin/make
f /etc/passwd
f /etc/shadow
f /etc/hosts
f /etc/resolv.conf
f /usr/share/zoneinfo/UTC
l /etc/localtime /usr/share/zoneinfo/UTC
d /etc/ssl/certs
d /proc/sys
f /proc/keys
d /sys/firmware
c /dev/null
c /dev/tty
d /dev/pts
d /dev/shm
d /run/user/1000
d /tmp
d /var/tmp
l /var/run /run
d /home/u/proj
d /home/u/.ssh
f /home/u/.ssh/id_ed25519
f /home/u/.gitconfig
d /srv
`

func parseTree(t testing.TB, text string) fstest.MapFS {
	t.Helper()
	m := fstest.MapFS{}
	for _, line := range strings.Split(baseTree+text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		kind, rest, _ := strings.Cut(line, " ")
		p, arg, _ := strings.Cut(rest, " ")
		p = strings.ReplaceAll(strings.TrimPrefix(p, "/"), `\s`, " ")
		arg = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(arg)
		f := ownedFile("/"+p, 0o644, nil)
		switch kind {
		case "d":
			f.Mode = fs.ModeDir | 0o755
		case "f":
			f.Data = []byte(arg)
		case "x":
			f.Mode = 0o755
		case "z":
			n, err := strconv.Atoi(arg)
			if err != nil {
				t.Fatalf("tree line %q", line)
			}
			f.Data = make([]byte, n)
		case "l":
			f.Mode, f.Data = fs.ModeSymlink|0o777, []byte(arg)
		case "s":
			f.Mode |= fs.ModeSocket
		case "c":
			f.Mode |= fs.ModeDevice | fs.ModeCharDevice
		case "b":
			f.Mode |= fs.ModeDevice
		case "p":
			f.Mode |= fs.ModeNamedPipe
		case "m":
			var mode fs.FileMode
			var uid uint32
			if _, err := fmt.Sscanf(arg, "%o %d", &mode, &uid); err != nil || m[p] == nil {
				t.Fatalf("tree line %q", line)
			}
			m[p].Mode = m[p].Mode&^fs.ModePerm | mode
			m[p].Sys = &fileOwner{uid}
			continue
		case "-":
			for k := range m {
				if within("/"+k, "/"+p) {
					delete(m, k)
				}
			}
			continue
		default:
			t.Fatalf("tree line %q", line)
		}
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			if m[d] == nil {
				m[d] = ownedFile("/"+d, fs.ModeDir|0o755, nil)
			}
		}
		m[p] = f
	}
	return m
}

// A fileOwner stands for the *syscall.Stat_t of a real file.
type fileOwner struct{ Uid uint32 }

// ownedFile is a file of the account below its home, of root elsewhere.
func ownedFile(p string, mode fs.FileMode, data []byte) *fstest.MapFile {
	o := &fileOwner{0}
	if within(p, "/home/u") {
		o.Uid = 1000
	}
	return &fstest.MapFile{Mode: mode, Data: data, Sys: o}
}

// A goldenHost is the host section of a golden file; fields left out have the
// values of goldenDefaults.
type goldenHost struct {
	UID         int
	Root        bool // uid 0
	AccountHome *string
	Cwd, Pwd    *string
	Environ     []string
	Executable  string
	TempDir     string
	Sockets     []string
	LandlockABI *int
	SeccompErr  string
	Namespaces  string
	NoOverlay   string
	NoRedirect  string
	CachesBusy  bool
	Injected    map[string][]string // "NAME=value" by the file of the store
	InjectedErr string              // what reading any store gives
	Cgroup      []string            // controllers that a cgroup can have: "memory", "pids"
}

func (g goldenHost) host(fsys fs.FS) Host {
	str := func(p *string, d string) string {
		if p != nil {
			return *p
		}
		return d
	}
	errOf := func(s string) error {
		if s == "" {
			return nil
		}
		return errors.New(s)
	}
	h := Host{
		OS: "linux", Arch: "amd64", UID: 1000, GID: 1000, User: "u", AccountSh: "/bin/sh",
		AccountHome: str(g.AccountHome, "/home/u"), Cwd: str(g.Cwd, "/home/u/proj"), Pwd: str(g.Pwd, ""),
		Environ: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/elsewhere", "TERM=xterm", "AWS_SECRET_ACCESS_KEY=s3cret"},
		FS:      fsys, Executable: g.Executable, TempDir: "/tmp", DefaultTemp: "/tmp", RunID: "c0ffee", Sockets: g.Sockets,
		LandlockABI: 7, SeccompErr: errOf(g.SeccompErr), Namespaces: errOf(g.Namespaces),
		NoOverlay: errOf(g.NoOverlay), NoRedirect: errOf(g.NoRedirect), CachesBusy: g.CachesBusy,
		Stdio: []plan.Stdio{{FD: 0, Kind: plan.StdioNull, Read: true}, {FD: 1, Kind: plan.StdioPipe, Write: true}, {FD: 2, Kind: plan.StdioPipe, Write: true}},
	}
	if g.UID != 0 || g.Root {
		h.UID, h.GID = g.UID, g.UID
	}
	if g.Environ != nil {
		h.Environ = g.Environ
	}
	if g.TempDir != "" {
		h.TempDir = g.TempDir
	}
	if g.LandlockABI != nil {
		h.LandlockABI = *g.LandlockABI
	}
	h.Cgroup = func(memory, processes bool) (plan.Cgroup, error) {
		if memory && !slices.Contains(g.Cgroup, "memory") || processes && !slices.Contains(g.Cgroup, "pids") {
			return plan.Cgroup{}, errors.New("/sys/fs/cgroup: permission denied")
		}
		c := plan.Cgroup{Version: 2, ID: "c0ffee"}
		if memory {
			c.Memory = "/sys/fs/cgroup/app.slice"
		}
		if processes {
			c.Pids = "/sys/fs/cgroup/app.slice"
		}
		return c, nil
	}
	h.Injected = func(file string) ([]InjectedVar, error) {
		var out []InjectedVar
		for _, v := range g.Injected[file] {
			name, value, _ := strings.Cut(v, "=")
			out = append(out, InjectedVar{name, value})
		}
		return out, errOf(g.InjectedErr)
	}
	return h
}

// parseArgs reads the args section: one flag per line ("--name value"),
// "profile NAME", "default NAME", and the command behind "-- ".
func parseArgs(text string) Options {
	o := Options{Default: "agent", Command: []string{"true"}}
	for _, line := range strings.Split(text, "\n") {
		head, rest, _ := strings.Cut(line, " ")
		switch {
		case line == "":
		case head == "profile":
			o.Profile = rest
		case head == "default":
			o.Default = rest
		case head == "--":
			o.Command = strings.Split(rest, " ")
			if rest == "" {
				o.Command = nil
			}
		default:
			o.Flags = append(o.Flags, Flag{Name: strings.TrimPrefix(head, "--"), Value: rest, Text: line})
		}
	}
	return o
}

// readCase reads a golden file into the input of Resolve. Sections: args, host
// (JSON), tree, files named by absolute path, and the result: plan or error.
func readCase(t testing.TB, a *archive) (Host, Options) {
	t.Helper()
	var g goldenHost
	var tree, args string
	files := map[string]string{}
	for _, f := range a.sections {
		switch {
		case f.name == "host":
			d := json.NewDecoder(bytes.NewReader(f.data))
			d.DisallowUnknownFields()
			if err := d.Decode(&g); err != nil {
				t.Fatal(err)
			}
		case f.name == "tree":
			tree = string(f.data)
		case f.name == "args":
			args = string(f.data)
		case strings.HasPrefix(f.name, "/"):
			files[f.name] = string(f.data)
		case f.name != "plan" && f.name != "error":
			t.Fatalf("unknown section %q", f.name)
		}
	}
	m := parseTree(t, tree)
	for n, data := range files {
		old := m[n[1:]] // the tree may say whose it is
		m[n[1:]] = ownedFile(n, 0o644, []byte(data))
		if old != nil {
			m[n[1:]].Mode, m[n[1:]].Sys = old.Mode, old.Sys
		}
		for d := path.Dir(n[1:]); d != "."; d = path.Dir(d) {
			if m[d] == nil {
				m[d] = ownedFile("/"+d, fs.ModeDir|0o755, nil)
			}
		}
	}
	o := parseArgs(args)
	o.CustomFilter = func(p string, data []byte) ([]byte, error) {
		if len(data) == 0 {
			return nil, errors.New("the file is empty")
		}
		return make([]byte, 16), nil
	}
	return g.host(m), o
}

func TestGolden(t *testing.T) {
	names, err := filepath.Glob("../testdata/profiles/*.txtar")
	if err != nil || len(names) < 40 {
		t.Fatalf("%d golden files, %v", len(names), err)
	}
	for _, file := range names {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := readArchive(file)
			if err != nil {
				t.Fatal(err)
			}
			h, o := readCase(t, a)
			var result, got string
			if p, err := Resolve(h, o); err != nil {
				result, got = "error", fmt.Sprintf("%sexit %d\n", plan.Explain(err), plan.ExitStatus(err))
			} else {
				var b bytes.Buffer
				if err := p.Print(&b); err != nil {
					t.Fatal(err)
				}
				result, got = "plan", b.String()
			}
			if strings.Contains(got, "s3cret") {
				t.Error("the output holds the value of a variable")
			}
			if strings.Contains(got, "wall bug") {
				t.Errorf("a user's mistake is called a bug:\n%s", got)
			}
			if *update {
				kept := a.sections[:0]
				for _, f := range a.sections {
					if f.name != "plan" && f.name != "error" {
						kept = append(kept, f)
					}
				}
				a.sections = append(kept, section{name: result, data: []byte(got)})
				if err := a.write(file); err != nil {
					t.Fatal(err)
				}
				return
			}
			for _, f := range a.sections {
				if f.name == "plan" || f.name == "error" {
					if f.name != result {
						t.Fatalf("got section %s, want %s:\n%s", result, f.name, got)
					}
					if string(f.data) != got {
						t.Errorf("differs (go test ./profile -update rewrites):\n%s", lineDiff(string(f.data), got))
					}
					return
				}
			}
			t.Error("no plan and no error section; run with -update")
		})
	}
}

// lineDiff shows the lines that only one of two texts has.
func lineDiff(want, got string) string {
	count := map[string]int{}
	for _, l := range strings.Split(want, "\n") {
		count[l]++
	}
	var b strings.Builder
	for _, l := range strings.Split(got, "\n") {
		if count[l]--; count[l] < 0 {
			fmt.Fprintf(&b, "+ %s\n", l)
		}
	}
	for _, l := range strings.Split(want, "\n") {
		if count[l] > 0 {
			count[l]--
			fmt.Fprintf(&b, "- %s\n", l)
		}
	}
	if b.Len() == 0 {
		return "the same lines in another order"
	}
	return b.String()
}
