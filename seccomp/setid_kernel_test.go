//go:build linux

package seccomp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A made is one file made or changed with a mode, by one system call.
type made struct {
	Call  string
	Mode  uint64
	Errno unix.Errno
	Got   uint32 // the file's permission bits afterwards; 0 when there is none
}

// modeCalls are the calls that give a mode, with the arguments before it: the
// file, if it is not to exist before, or a descriptor of it.
var modeCalls = []struct {
	label, name string
	exists      bool // on a file that is there
	args        func(path, dir *byte, fd int) []uintptr
}{
	{"chmod", "chmod", true, func(p, _ *byte, _ int) []uintptr { return []uintptr{ptrArg(p)} }},
	{"fchmod", "fchmod", true, func(_, _ *byte, fd int) []uintptr { return []uintptr{uintptr(fd)} }},
	{"fchmodat", "fchmodat", true, func(p, _ *byte, _ int) []uintptr { return []uintptr{cwdArg, ptrArg(p)} }},
	{"fchmodat2", "fchmodat2", true, func(p, _ *byte, _ int) []uintptr { return []uintptr{cwdArg, ptrArg(p)} }},
	{"creat", "creat", false, func(p, _ *byte, _ int) []uintptr { return []uintptr{ptrArg(p)} }},
	{"mknod", "mknod", false, func(p, _ *byte, _ int) []uintptr { return []uintptr{ptrArg(p)} }},
	{"mknodat", "mknodat", false, func(p, _ *byte, _ int) []uintptr { return []uintptr{cwdArg, ptrArg(p)} }},
	{"open", "open", false, func(p, _ *byte, _ int) []uintptr { return []uintptr{ptrArg(p), unix.O_CREAT | unix.O_WRONLY} }},
	{"openat", "openat", false, func(p, _ *byte, _ int) []uintptr {
		return []uintptr{cwdArg, ptrArg(p), unix.O_CREAT | unix.O_EXCL | unix.O_RDWR}
	}},
	{"open O_TMPFILE", "open", false, func(_, d *byte, _ int) []uintptr { return []uintptr{ptrArg(d), unix.O_TMPFILE | unix.O_WRONLY} }},
	{"openat O_TMPFILE", "openat", false, func(_, d *byte, _ int) []uintptr {
		return []uintptr{cwdArg, ptrArg(d), unix.O_TMPFILE | unix.O_RDWR}
	}},
	// No mode in these: the bits are left over in a register.
	{"open O_RDONLY", "open", true, func(p, _ *byte, _ int) []uintptr { return []uintptr{ptrArg(p), unix.O_RDONLY} }},
	{"openat O_RDONLY", "openat", true, func(p, _ *byte, _ int) []uintptr { return []uintptr{cwdArg, ptrArg(p), unix.O_RDONLY} }},
	{"openat O_TRUNC", "openat", true, func(p, _ *byte, _ int) []uintptr {
		return []uintptr{cwdArg, ptrArg(p), unix.O_WRONLY | unix.O_TRUNC}
	}},
	// The kernel itself drops the bits.
	{"mkdirat", "mkdirat", false, func(p, _ *byte, _ int) []uintptr { return []uintptr{cwdArg, ptrArg(p)} }},
}

// cwdArg is AT_FDCWD as an int in a register.
const cwdArg = 0xffffff9c

func ptrArg(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }

// modes to give; the kernel reads the low 16 bits.
var modes = []uint64{0o755, 0o1755, 0xbeef<<48 | 0o640, 0o4755, 0o2755, 0o6755, 0o4000, 0xbeef<<48 | 0o4755, 0xbeef<<16 | 0o2755}

// giveModes makes every call with every mode in the directory Argv[0], and
// prints what came of it.
func giveModes(c child) error {
	unix.Umask(0)
	dir, err := unix.BytePtrFromString(c.Argv[0])
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for i, mc := range modeCalls {
		nr, ok, _ := number(mc.name, runtime.GOARCH)
		if !ok {
			continue
		}
		for j, mode := range modes {
			name := filepath.Join(c.Argv[0], fmt.Sprintf("%d.%d", i, j))
			path, err := unix.BytePtrFromString(name)
			if err != nil {
				return err
			}
			fd := -1
			if mc.exists {
				if fd, err = unix.Open(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY, 0o644); err != nil {
					return err
				}
			}
			var args [6]uintptr
			args[copy(args[:], mc.args(path, dir, fd))] = uintptr(mode)
			r, _, errno := unix.Syscall6(uintptr(nr), args[0], args[1], args[2], args[3], args[4], args[5])
			runtime.KeepAlive(path)
			m := made{Call: mc.label, Mode: mode, Errno: errno}
			var st unix.Stat_t
			if unix.Stat(name, &st) == nil || errno == 0 && unix.Fstat(int(r), &st) == nil {
				m.Got = st.Mode & 0o7777
			}
			if err := out.Encode(m); err != nil {
				return err
			}
			if errno == 0 && r > 2 {
				unix.Close(int(r))
			}
			if fd >= 0 {
				unix.Close(fd)
			}
		}
	}
	runtime.KeepAlive(dir)
	// openat2 has its mode in memory, so it has to be absent altogether.
	how := unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o4755}
	name := filepath.Join(c.Argv[0], "openat2")
	m := made{Call: "openat2", Mode: how.Mode}
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &how)
	if err != nil {
		m.Errno = err.(unix.Errno)
	} else {
		unix.Close(fd)
	}
	var st unix.Stat_t
	if unix.Stat(name, &st) == nil {
		m.Got = st.Mode & 0o7777
	}
	return out.Encode(m)
}

// ownDir makes a directory that user uid owns (0: this user), removed at the end.
func ownDir(t *testing.T, uid int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wall-setid-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if uid != 0 {
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func parseMade(t *testing.T, out string) []made {
	t.Helper()
	var ms []made
	dec := json.NewDecoder(bytes.NewReader([]byte(out)))
	for dec.More() {
		var m made
		if err := dec.Decode(&m); err != nil {
			t.Fatal(err)
		}
		ms = append(ms, m)
	}
	if len(ms) < 80 {
		t.Fatalf("only %d results: %s", len(ms), out)
	}
	return ms
}

// TestKernelSetID: the calls that make set-id files without a filter are refused
// with every built-in one, and all other modes are given as asked.
func TestKernelSetID(t *testing.T) {
	need(t, "seccomp")
	for _, uid := range users(t) {
		free := parseMade(t, mustRun(t, child{UID: uid, Task: "modeset", Argv: []string{ownDir(t, uid)}}))
		for _, b := range builtins {
			got := parseMade(t, mustRun(t, child{Filter: b.name, UID: uid, Task: "modeset", Argv: []string{ownDir(t, uid)}}))
			if len(got) != len(free) {
				t.Fatalf("%d results, %d without a filter", len(got), len(free))
			}
			for i, m := range got {
				f := free[i]
				setID := m.Mode&0o6000 != 0
				fail := func(format string, a ...any) {
					t.Helper()
					t.Errorf("uid %d, %s: %s %#o: %s (without a filter: %v, %#o)", uid, b.name, m.Call, m.Mode, fmt.Sprintf(format, a...), f.Errno, f.Got)
				}
				if m.Got&0o6000 != 0 {
					fail("made a file of mode %#o", m.Got)
				}
				switch m.Call {
				case "open O_RDONLY", "openat O_RDONLY", "openat O_TRUNC":
					if m.Errno != 0 || m.Got != 0o644 {
						fail("%v, mode %#o", m.Errno, m.Got)
					}
					continue
				case "mkdirat":
					if m.Errno != 0 || m.Got != uint32(m.Mode&0o1777) || f.Got != m.Got {
						fail("%v, mode %#o", m.Errno, m.Got)
					}
					continue
				case "openat2":
					if m.Errno != unix.ENOSYS || m.Got != 0 {
						fail("%v, mode %#o, want ENOSYS", m.Errno, m.Got)
					}
					continue
				}
				if f.Errno == unix.ENOSYS || f.Errno == unix.EOPNOTSUPP { // fchmodat2 is of Linux 6.6, O_TMPFILE not on every file system
					continue
				}
				if f.Errno != 0 || f.Got != uint32(m.Mode&0o7777) {
					fail("shows nothing")
				}
				switch {
				case setID && m.Errno != unix.EPERM:
					fail("%v, want EPERM", m.Errno)
				case !setID && (m.Errno != 0 || m.Got != f.Got):
					fail("%v, mode %#o", m.Errno, m.Got)
				}
			}
		}
	}
}

// TestKernelFileTools: what people use to place files works; what it cannot do
// it says.
func TestKernelFileTools(t *testing.T) {
	need(t, "seccomp")
	need(t, "tar")
	const script = `set -e
export LC_ALL=C
umask 022
cd "$1"
mode() { [ "$(stat -c %a "$1")" = "$2" ] || { echo "$1 has mode $(stat -c %a "$1"), not $2" >&2; exit 1; }; }
echo text >a; chmod 755 a; chmod u-x,g+w a; mode a 675; chmod 750 a
cp -p a b; mode b 750
mkdir -p -m 700 d/e; mode d/e 700; chmod +t d; mode d 1755
cp -a d d2; mode d2 1755
install -m 755 a c; mode c 755
install -d -m 775 f; mode f 775
mkfifo -m 620 pipe; mode pipe 620
tar cf t.tar a b d pipe; mkdir out; tar xpf t.tar -C out; mode out/a 750; mode out/d/e 700; mode out/pipe 620
ln a link; mv link moved; mktemp -p . >/dev/null; mktemp -d -p . >/dev/null
refused() { if "$@" 2>err; then echo "$* worked" >&2; exit 1; fi; grep -q 'Operation not permitted' err || { cat err >&2; exit 1; }; }
refused chmod 4755 a
refused chmod g+s d
refused install -m 4755 a g
refused install -d -m 2755 h
[ -z "$(find . -perm /6000)" ]
echo ok
`
	for _, uid := range users(t) {
		for _, b := range builtins {
			got, stderr, err := run(t, child{Filter: b.name, UID: uid, Task: "exec", Argv: []string{"/bin/sh", "-c", script, "sh", ownDir(t, uid)}})
			if err != nil || got != "ok\n" {
				t.Errorf("uid %d, %s: %v, %q\n%s", uid, b.name, err, got, stderr)
			}
		}
	}
}
