package kernels_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wallsandbox/wall/integration/kernels"
)

const (
	bootTimeout     = 8 * time.Minute // a boot with all steps takes about 25 s of processor time, of which there may be little
	downloadTimeout = 3 * time.Minute
)

// need skips the test when the machine lacks something, or fails it when
// WALL_TEST_REQUIRE names that.
func need(t *testing.T, word string, why error) {
	t.Helper()
	if why == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("WALL_TEST_REQUIRE"), ","), word) {
		t.Fatalf("%s is required and not there: %v", word, why)
	}
	t.Skipf("needs %s: %v", word, why)
}

// A file is something in the initramfs; directories come before what they hold.
type file struct {
	name string // without leading slash
	mode uint32 // type and permissions as in stat(2)
	data []byte
}

const (
	typeDir  = 0o040000
	typeFile = 0o100000
)

// archive writes the cpio format "newc", which is what the kernel unpacks (its
// Documentation/driver-api/early-userspace/buffer-format.rst). Everything
// belongs to root, and time begins.
func archive(files []file) []byte {
	var b bytes.Buffer
	pad := func() {
		for b.Len()%4 != 0 {
			b.WriteByte(0)
		}
	}
	for i, f := range append(files, file{name: "TRAILER!!!"}) {
		// magic; ino, mode, uid, gid, nlink, mtime, filesize, device of the file, device it is, namesize, check
		fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			i+1, f.mode, 0, 0, 1, 0, len(f.data), 0, 0, 0, 0, len(f.name)+1, 0)
		b.WriteString(f.name)
		b.WriteByte(0)
		pad()
		b.Write(f.data)
		pad()
	}
	return b.Bytes()
}

// A supply is what every machine is made of.
type supply struct {
	cache                       string // directory that stays
	busybox, wall, probe, guest []byte
}

// newSupply builds and fetches it.
func newSupply(t *testing.T) supply {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		need(t, "qemu", fmt.Errorf("the kernels tested are amd64's, this is %s", runtime.GOARCH))
	}
	for _, program := range []string{"qemu-system-x86_64", "apt-get", "apt-cache", "dpkg-deb"} {
		_, err := exec.LookPath(program)
		need(t, "qemu", err)
	}
	s := supply{cache: os.Getenv("WALL_KERNEL_CACHE")}
	if s.cache == "" {
		dir, err := os.UserCacheDir()
		need(t, "qemu", err)
		s.cache = filepath.Join(dir, "wall-test")
	}
	need(t, "qemu", os.MkdirAll(s.cache, 0o755))
	s.busybox = s.fromPackage(t, "busybox-static", "", `^\./(usr/)?bin/busybox$`, first)
	tmp := t.TempDir()
	build := func(env, pkg, cgo string, args ...string) []byte {
		t.Helper()
		path := os.Getenv(env)
		if path == "" {
			path = filepath.Join(tmp, filepath.Base(pkg))
			args = append(append([]string{"build", "-trimpath", "-buildvcs=false", "-o", path}, args...), "github.com/wallsandbox/wall/"+pkg)
			cmd := exec.Command("go", args...)
			cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("go build %s: %v\n%s", pkg, err, out)
			}
		}
		return read(t, path)
	}
	s.wall = build("WALL_BIN", "cmd/wall", "1", "-tags", "netgo,osusergo", "-ldflags", `-s -w -linkmode external -extldflags "-static"`)
	s.probe = build("WALL_PROBE", "integration/probe", "0")
	s.guest = build("", "integration/kernels/guest", "0", "-ldflags", "-s -w")
	return s
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The modules of a kernel that wall has a use for, with those that they need.
const moduleNames = `/kernel/(fs/overlayfs/overlay|lib/libcrc32c|net/netfilter/(nfnetlink|nf_tables|nf_conntrack|nf_nat|nft_chain_nat|nft_redir|nft_reject)|net/ipv[46]/netfilter/(nf_defrag|nf_reject|nft_reject)_ipv[46])\.ko(\.xz)?$`

// fromPackage gives what pick takes of the files whose names match, in the
// candidate version of a package or, for one that only depends on a kernel, in
// that kernel's. What was fetched once stays in the cache, under a name that
// begins with label; a machine without network or package lists uses the newest
// there.
func (s supply) fromPackage(t *testing.T, pkg, label, name string, pick picker) []byte {
	t.Helper()
	data, err := s.fetch(pkg, label, regexp.MustCompile(name), pick)
	if err != nil {
		old, _ := filepath.Glob(filepath.Join(s.cache, label+pkg+"_*"))
		slices.SortFunc(old, func(a, b string) int { return modTime(a).Compare(modTime(b)) })
		if len(old) == 0 {
			need(t, "qemu", fmt.Errorf("package %s: %w", pkg, err))
		}
		newest := old[len(old)-1]
		t.Logf("using %s, since: %v", newest, err)
		return read(t, newest)
	}
	return data
}

func modTime(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

var (
	versionField = regexp.MustCompile(`(?m)^Version: (.*)$`)
	kernelField  = regexp.MustCompile(`(?m)^Depends:.*\b(linux-image-[0-9][^ ,]*-amd64)\b`)
)

// A picker takes what is wanted of a package's files.
type picker func(r *tar.Reader, name *regexp.Regexp) ([]byte, error)

// next goes to the next regular file of that name.
func next(r *tar.Reader, name *regexp.Regexp) (*tar.Header, error) {
	for {
		h, err := r.Next()
		if err != nil || h.Typeflag == tar.TypeReg && name.MatchString(h.Name) {
			return h, err
		}
	}
}

// first takes the content of the first file.
func first(r *tar.Reader, name *regexp.Regexp) ([]byte, error) {
	if _, err := next(r, name); err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// every takes all of them, as an archive.
func every(r *tar.Reader, name *regexp.Regexp) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for {
		h, err := next(r, name)
		if err == io.EOF && b.Len() > 0 {
			err = w.Close()
			return b.Bytes(), err
		}
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: filepath.Base(h.Name), Mode: 0o644, Size: h.Size})
		}
		if err == nil {
			_, err = io.Copy(w, r)
		}
		if err != nil {
			return nil, err
		}
	}
}

// unpack gives the files of such an archive, in the directory dir.
func unpack(t *testing.T, dir string, data []byte) []file {
	t.Helper()
	list := []file{{dir, typeDir | 0o755, nil}}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, file{dir + "/" + h.Name, typeFile | 0o644, content})
	}
}

func (s supply) fetch(pkg, label string, name *regexp.Regexp, pick picker) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), downloadTimeout)
	defer cancel()
	run := func(dir string, argv ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir = dir
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			err = fmt.Errorf("%q: %w: %s", argv, err, strings.TrimSpace(errs.String()))
		}
		return out, err
	}
	about, err := run("", "apt-cache", "show", "--no-all-versions", pkg)
	if err != nil {
		return nil, fmt.Errorf("%w (apt-get update fetches the lists)", err)
	}
	version := versionField.FindSubmatch(about)
	if version == nil {
		return nil, errors.New("apt-cache knows no version")
	}
	cached := filepath.Join(s.cache, label+pkg+"_"+string(version[1]))
	if data, err := os.ReadFile(cached); err == nil {
		return data, nil
	}
	get := pkg
	if m := kernelField.FindSubmatch(about); m != nil {
		get = string(m[1])
	}
	dir, err := os.MkdirTemp(s.cache, "download-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if _, err := run(dir, "apt-get", "-q", "download", get); err != nil { // verifies it against the signed lists
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return nil, fmt.Errorf("apt-get download %s left %q, %w", get, debs, err)
	}
	// Unpacked in memory: a file of the package cannot land anywhere.
	tree, err := run(dir, "dpkg-deb", "--fsys-tarfile", debs[0])
	if err != nil {
		return nil, err
	}
	data, err := pick(tar.NewReader(bytes.NewReader(tree)), name)
	if err != nil {
		return nil, fmt.Errorf("no %v in package %s: %w", name, get, err)
	}
	part := filepath.Join(dir, "file")
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return nil, err
	}
	return data, os.Rename(part, cached)
}

// boot runs the steps in a machine and gives their results, in order. It fails
// the test when the machine does not come to the end of them, does not switch
// itself off, or when its kernel complains.
func (s supply) boot(t *testing.T, kernel, modules []byte, parameters string, steps []kernels.Step, more ...file) []kernels.Result {
	t.Helper()
	list, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, data := range map[string][]byte{
		"kernel": kernel,
		"initrd": archive(append([]file{
			{"init", typeFile | 0o755, read(t, "guest/init")},
			{"system", typeDir | 0o755, nil},
			{"system" + kernels.StepsFile, typeFile | 0o644, list},
			{"system/usr", typeDir | 0o755, nil},
			{"system/usr/bin", typeDir | 0o755, nil},
			{"system/usr/bin/busybox", typeFile | 0o755, s.busybox},
			{"system/usr/bin/guest", typeFile | 0o755, s.guest},
			{"system/usr/bin/probe", typeFile | 0o755, s.probe},
			{"system/usr/bin/wall", typeFile | 0o755, s.wall},
		}, append(unpack(t, "system/modules", modules), more...)...)),
	} {
		if err := os.WriteFile(path(name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), bootTimeout)
	defer cancel()
	// No disk, no network, no display; -no-reboot and panic=-1 end qemu when the
	// kernel panics. "max" has RDRAND: without it the guest waits for entropy.
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-no-user-config", "-nodefaults", "-display", "none", "-no-reboot",
		"-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "512",
		"-serial", "file:"+path("console"), "-serial", "file:"+path("results"),
		"-kernel", path("kernel"), "-initrd", path("initrd"),
		"-append", strings.TrimSpace("console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off "+parameters))
	out, err := cmd.CombinedOutput()
	console, _ := os.ReadFile(path("console"))
	if ctx.Err() != nil {
		err = fmt.Errorf("not at the end after %v", bootTimeout)
	}
	if err != nil {
		t.Errorf("qemu: %v\n%s", err, out)
	}
	for _, bad := range []string{"Kernel panic", "BUG:", "Oops", "WARNING:", "Call Trace", "guest:"} {
		if bytes.Contains(console, []byte(bad)) {
			t.Errorf("the console says %q", bad)
		}
	}
	if !bytes.Contains(console, []byte("Power down")) {
		t.Error("the machine did not switch itself off")
	}
	results, err := parse(string(read(t, path("results"))))
	if err != nil {
		t.Error(err)
	}
	if len(results) != len(steps) {
		t.Errorf("%d results for %d steps", len(results), len(steps))
	}
	if t.Failed() {
		t.Logf("console:\n%s", console)
	}
	return results
}

// parse reads what the guest sent.
func parse(text string) ([]kernels.Result, error) {
	var all []kernels.Result
	in := bufio.NewScanner(strings.NewReader(text))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if in.Text() == kernels.EndMark {
			if in.Scan() {
				return all, fmt.Errorf("after the end mark comes %q", in.Text())
			}
			return all, in.Err()
		}
		var r kernels.Result
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return all, fmt.Errorf("%w in %q", err, in.Text())
		}
		all = append(all, r)
	}
	return all, errors.Join(errors.New("the end mark is missing"), in.Err())
}
