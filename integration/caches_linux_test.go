package integration_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// cacheHomes are the profiles under which tools must find their caches: what
// stands at the home directory decides where the caches can stand.
var cacheHomes = map[string]string{
	"hidden":    "extends = \"contract\"\n[filesystem]\nview = \"system\"\nhome = \"hidden\"\n",
	"scratch":   "extends = \"base\"\n",
	"read-only": "extends = \"gate\"\n",
}

// cacheBox gives a box whose profile has these caches ("caches = ...") in a home
// of that kind.
func cacheBox(t *testing.T, home, caches string) *box {
	t.Helper()
	text := "version = 1\n" + cacheHomes[home] + "[environment]\n" + caches + "\n"
	file := filepath.Join(tempDir(t), "caches.toml")
	write(t, file, text)
	b := newBox(t, file)
	b.env = toolEnv(t)
	return b
}

// toolEnv is the environment of the operator whose caches are shown: the account's
// home, the PATH of the system, and nothing that names a cache.
func toolEnv(t *testing.T) []string {
	t.Helper()
	path := "/usr/local/bin:/usr/bin:/bin"
	if p, err := exec.LookPath("go"); err == nil {
		path = filepath.Dir(p) + ":" + path
	}
	return []string{"HOME=" + accountHome(), "PATH=" + path, "LANG=C.UTF-8", "USER=u"}
}

// operator runs a command as the operator, outside of any box.
func operator(t *testing.T, dir string, env []string, argv ...string) string {
	t.Helper()
	path := argv[0]
	for _, e := range env {
		if list, ok := strings.CutPrefix(e, "PATH="); ok && !strings.Contains(path, "/") {
			for _, d := range strings.Split(list, ":") {
				if st, err := os.Stat(filepath.Join(d, argv[0])); err == nil && !st.IsDir() {
					path = filepath.Join(d, argv[0])
					break
				}
			}
		}
	}
	cmd := exec.Command(path, argv[1:]...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

// A toolCase is one tool with a test registry of one package, "dep".
type toolCase struct {
	needs  []string
	caches []string // below the home: what must not change
	secret []string // below the home: files that must not be seen inside
	fetch  func(t *testing.T, ws string, env []string)
	build  string // inside, without network
	want   string // in its output
}

var toolCases = map[string]toolCase{
	"cargo": {
		needs:  []string{"cargo", "git", "gcc"},
		caches: []string{".cargo"},
		secret: []string{".cargo/credentials.toml", ".cargo/credentials", ".cargo/config.toml", ".cargo/registry/credentials.toml", ".cargo/registry/config", ".cargo/git/credentials"},
		fetch:  fetchCargo,
		build:  `cargo build --offline 2>&1 && ./target/debug/m && echo "[x]" >"$CARGO_HOME/written" && touch "$CARGO_HOME/registry/index/written"`,
		want:   "dep 42",
	},
	"go": {
		needs:  []string{"go"},
		caches: []string{"go", ".cache/go-build"},
		secret: []string{".config/go/env", "go/secret", ".netrc"},
		fetch:  fetchGo,
		// -v names what is compiled: with the operator's build cache nothing is.
		build: `go build -v -o m . 2>&1 && ./m 2>&1 && touch "$GOMODCACHE/written" "$GOCACHE/written" && go clean -cache`,
		want:  "dep 42",
	},
	"npm": {
		needs:  []string{"node", "npm"},
		caches: []string{".npm"},
		secret: []string{".npmrc", ".npm/_logs/secret", ".npm/_npx/secret"},
		fetch:  fetchNpm,
		build:  `npm ci --offline --no-audit --no-fund 2>&1 && node m.js && touch "$npm_config_cache/_cacache/written"`,
		want:   "dep 42",
	},
}

// The operator fetches once; then the real tools build in the box from caches
// that are private, warm and writable, without network and with nothing else of
// the home. The operator's own stay as they are, to the byte; credentials next
// to them are not there.
func TestCachesOfRealTools(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	for name, c := range toolCases {
		t.Run(name, func(t *testing.T) {
			need(t, c.needs...)
			homeDir := accountHome()
			secret := nonce()
			var roots []string
			for _, home := range []string{"hidden", "scratch", "read-only"} {
				b := cacheBox(t, home, "caches = [\""+name+"\"]\nset = { GOFLAGS = \"-mod=mod -buildvcs=false\", GOPROXY = \"off\" }")
				c.fetch(t, b.ws, b.env)
				for _, d := range c.caches {
					roots = append(roots, filepath.Join(homeDir, d))
				}
				for _, f := range c.secret {
					write(t, filepath.Join(homeDir, f), "# "+secret+"\n")
				}
				before := snapshot(t, roots...)
				out := b.sh(c.build).ok(t)
				if !strings.Contains(out, c.want) {
					t.Errorf("home %s: the build says %q", home, out)
				}
				if name == "go" && strings.Contains(out, "runtime") {
					t.Errorf("home %s: the build cache is cold: %q", home, out)
				}
				sameTree(t, before, snapshot(t, roots...))
				if home != "read-only" { // there the profile shows the home, and hides what it knows of
					if out := b.sh(`grep -rlsF "$1" / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=dev; true`, secret).ok(t); out != "" {
						t.Errorf("home %s: credentials are visible:\n%s", home, out)
					}
				}
				for _, f := range c.secret { // for the next fetch
					if err := os.Remove(filepath.Join(homeDir, f)); err != nil {
						t.Fatal(err)
					}
				}
				// The proof that it is the cache that makes it work: without, it fails.
				cold := cacheBox(t, home, "set = { GOFLAGS = \"-mod=mod -buildvcs=false\", GOPROXY = \"off\" }")
				if home == "read-only" {
					continue // what is readable there, tools can use
				}
				c.fetch(t, cold.ws, cold.env)
				if r := cold.sh(c.build); r.code == 0 {
					t.Errorf("home %s: it builds without caches: %q", home, r.out)
				}
			}
		})
	}
}

// fetchCargo makes a registry of one crate in files, and a project in ws that
// uses it, and lets cargo fetch. The index is a git repository, which cargo has
// understood since its beginnings.
func fetchCargo(t *testing.T, ws string, env []string) {
	t.Helper()
	registry := filepath.Join(accountHome(), "registry")
	index := filepath.Join(registry, "index")
	if _, err := os.Stat(index); err != nil {
		crate := tarGz(t, map[string]string{
			"dep-1.0.0/Cargo.toml": "[package]\nname = \"dep\"\nversion = \"1.0.0\"\nedition = \"2018\"\n",
			"dep-1.0.0/src/lib.rs": "pub fn answer() -> u32 { 42 }\n",
		})
		write(t, filepath.Join(registry, "dep-1.0.0.crate"), string(crate))
		sum := sha256.Sum256(crate)
		write(t, filepath.Join(index, "config.json"), fmt.Sprintf("{\"dl\": \"file://%s/{crate}-{version}.crate\"}\n", registry))
		write(t, filepath.Join(index, "3", "d", "dep"), fmt.Sprintf("{\"name\":\"dep\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"%s\",\"features\":{},\"yanked\":false}\n", hex.EncodeToString(sum[:])))
		operator(t, index, env, "git", "init", "-q")
		operator(t, index, env, "git", "add", ".")
		operator(t, index, env, "git", "-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "-qm", "index")
	}
	write(t, filepath.Join(ws, "Cargo.toml"), "[package]\nname = \"m\"\nversion = \"0.1.0\"\nedition = \"2018\"\n\n[dependencies]\ndep = \"1\"\n")
	write(t, filepath.Join(ws, "src", "main.rs"), "fn main() { println!(\"dep {}\", dep::answer()); }\n")
	write(t, filepath.Join(ws, ".cargo", "config.toml"), fmt.Sprintf("[source.crates-io]\nreplace-with = \"test\"\n[source.test]\nregistry = \"file://%s\"\n", index))
	operator(t, ws, env, "cargo", "fetch")
}

// fetchGo makes a module proxy in files and a project in ws, and builds it once.
func fetchGo(t *testing.T, ws string, env []string) {
	t.Helper()
	proxy := filepath.Join(accountHome(), "proxy")
	dir := filepath.Join(proxy, "example.org", "dep", "@v")
	mod := "module example.org/dep\n\ngo 1.21\n"
	if _, err := os.Stat(dir); err != nil {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		for name, text := range map[string]string{"go.mod": mod, "dep.go": "package dep\n\nconst Answer = 42\n"} {
			w, err := z.Create("example.org/dep@v1.0.0/" + name)
			if err == nil {
				_, err = io.WriteString(w, text)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "list"), "v1.0.0\n")
		write(t, filepath.Join(dir, "v1.0.0.info"), `{"Version":"v1.0.0"}`)
		write(t, filepath.Join(dir, "v1.0.0.mod"), mod)
		write(t, filepath.Join(dir, "v1.0.0.zip"), b.String())
	}
	write(t, filepath.Join(ws, "go.mod"), "module example.org/m\n\ngo 1.21\n\nrequire example.org/dep v1.0.0\n")
	write(t, filepath.Join(ws, "main.go"), "package main\n\nimport \"example.org/dep\"\n\nfunc main() { println(\"dep\", dep.Answer) }\n")
	operator(t, ws, append(slices.Clone(env), "GOPROXY=file://"+proxy, "GOSUMDB=off", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local"), "go", "build", "-o", "m", ".")
	if err := os.Remove(filepath.Join(ws, "m")); err != nil {
		t.Fatal(err)
	}
	// Module caches are read-only, which the end of the test has to cope with.
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+w", filepath.Join(accountHome(), "go")).Run() })
}

// fetchNpm serves a registry of one package on loopback and lets npm install it.
func fetchNpm(t *testing.T, ws string, env []string) {
	t.Helper()
	pkg := tarGz(t, map[string]string{
		"package/package.json": `{"name":"dep","version":"1.0.0","main":"index.js"}`,
		"package/index.js":     "module.exports = 42;\n",
	})
	sum := sha512.Sum512(pkg)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	meta, err := json.Marshal(map[string]any{
		"name": "dep", "dist-tags": map[string]string{"latest": "1.0.0"},
		"versions": map[string]any{"1.0.0": map[string]any{"name": "dep", "version": "1.0.0", "main": "index.js",
			"dist": map[string]string{"tarball": url + "/dep/-/dep-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/dep":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(meta)
		case "/dep/-/dep-1.0.0.tgz":
			_, _ = w.Write(pkg)
		default:
			http.NotFound(w, r)
		}
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	write(t, filepath.Join(ws, "package.json"), `{"name":"m","version":"1.0.0","dependencies":{"dep":"1.0.0"}}`)
	write(t, filepath.Join(ws, "m.js"), "console.log('dep', require('dep'));\n")
	operator(t, ws, env, "npm", "install", "--registry", url, "--no-audit", "--no-fund", "--no-update-notifier")
	if err := os.RemoveAll(filepath.Join(ws, "node_modules")); err != nil {
		t.Fatal(err)
	}
}

// tarGz packs files.
func tarGz(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(1e9, 0)})
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// cachePlaces are a file in the cache of every tool, below the home, and where
// it is seen inside: a word of the shell.
var cachePlaces = []struct{ tool, file, inside string }{
	{"cargo", ".cargo/registry/index/i/file", "$CARGO_HOME/registry/index/i/file"},
	{"cargo", ".cargo/registry/cache/i/file", "$CARGO_HOME/registry/cache/i/file"},
	{"cargo", ".cargo/registry/src/i/file", "$CARGO_HOME/registry/src/i/file"},
	{"cargo", ".cargo/git/db/i/file", "$CARGO_HOME/git/db/i/file"},
	{"cargo", ".cargo/git/checkouts/i/file", "$CARGO_HOME/git/checkouts/i/file"},
	{"go", "go/pkg/mod/i/file", "$GOMODCACHE/i/file"},
	{"go", ".cache/go-build/i/file", "$GOCACHE/i/file"},
	{"gradle", ".gradle/caches/i/file", "$GRADLE_USER_HOME/caches/i/file"},
	{"gradle", ".gradle/wrapper/i/file", "$GRADLE_USER_HOME/wrapper/i/file"},
	{"maven", ".m2/repository/i/file", "$HOME/.m2/repository/i/file"},
	{"npm", ".npm/_cacache/i/file", "$npm_config_cache/_cacache/i/file"},
	{"pip", ".cache/pip/http/i/file", "$PIP_CACHE_DIR/http/i/file"},
	{"pip", ".cache/pip/http-v2/i/file", "$PIP_CACHE_DIR/http-v2/i/file"},
	{"pip", ".cache/pip/wheels/i/file", "$PIP_CACHE_DIR/wheels/i/file"},
	{"uv", ".cache/uv/archive-v0/i/file", "$UV_CACHE_DIR/archive-v0/i/file"},
	{"uv", ".cache/uv/wheels-v5/i/file", "$UV_CACHE_DIR/wheels-v5/i/file"},
}

const allCaches = `["cargo", "go", "gradle", "maven", "npm", "pip", "uv"]`

// plantCaches makes a file in every cache and one with a secret next to each.
func plantCaches(t *testing.T, secret string) (roots []string) {
	t.Helper()
	h := accountHome()
	for _, p := range cachePlaces {
		write(t, filepath.Join(h, p.file), "old\n")
		roots = append(roots, filepath.Join(h, strings.Split(p.file, "/")[0]))
	}
	for _, f := range []string{".cargo/credentials.toml", ".cargo/registry/credentials.toml", ".gradle/gradle.properties", ".gradle/init.d/x.gradle", ".m2/settings.xml", ".npm/_logs/x", ".cache/pip/x", ".cache/uv/credentials-v0/x"} {
		write(t, filepath.Join(h, f), secret+"\n")
	}
	slices.Sort(roots)
	return slices.Compact(roots)
}

// touchAll is a script that reads, changes, adds to and removes from every cache.
func touchAll() string {
	s := "set -e\n"
	for _, p := range cachePlaces {
		s += fmt.Sprintf("f=%q; test \"$(cat \"$f\")\" = old; echo new >\"$f\"; test \"$(cat \"$f\")\" = new; d=$(dirname \"$f\"); touch \"$d/made\"; mv \"$d/made\" \"$d/../made\"; rm \"$f\"; chmod 700 \"$d\"\n", p.inside)
	}
	return s + "echo done\n"
}

// Every cache is warm and writable inside, and never written outside, whatever
// stands at the home and whether it is layered or copied. Secrets next to the
// caches are not there.
func TestCachesArePrivate(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	secret := nonce()
	roots := plantCaches(t, secret)
	before := snapshot(t, roots...)
	for _, method := range []string{"layer", "copy"} {
		for _, home := range []string{"hidden", "scratch", "read-only"} {
			b := cacheBox(t, home, fmt.Sprintf("caches = { tools = %s, method = %q }", allCaches, method))
			if out := b.sh(touchAll()).ok(t); out != "done\n" {
				t.Errorf("%s, home %s: %q", method, home, out)
			}
			sameTree(t, before, snapshot(t, roots...))
			if home != "read-only" {
				if out := b.sh(`grep -rlsF "$1" / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=dev; true`, secret).ok(t); out != "" {
					t.Errorf("%s, home %s: secrets are visible:\n%s", method, home, out)
				}
			}
			if left, err := os.ReadDir(b.scratch); err != nil || len(left) > 1 {
				t.Errorf("the scratch root holds %v, %v", left, err)
			}
		}
	}
	// The control: the search finds them where they are.
	b := cacheBox(t, "read-only", "caches = []")
	if out := b.sh(`grep -rlsF "$1" ~; true`, secret).ok(t); !strings.Contains(out, ".npm/_logs/x") {
		t.Errorf("the search finds %q", out)
	}
}

// Without caches of the operator's, tools get empty ones that can be written.
func TestCachesOfNobody(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	for _, home := range []string{"hidden", "scratch", "read-only"} {
		b := cacheBox(t, home, "caches = "+allCaches)
		b.sh(`set -e; for d in "$CARGO_HOME" "$GOMODCACHE" "$GOCACHE" "$GRADLE_USER_HOME" "$npm_config_cache" "$NPM_CONFIG_CACHE" "$PIP_CACHE_DIR" "$UV_CACHE_DIR"; do mkdir -p "$d/x"; done
case $MAVEN_OPTS in -Dmaven.repo.local=*) mkdir -p "${MAVEN_OPTS#*=}/x" ;; *) mkdir -p ~/.m2/repository/x ;; esac`).ok(t)
		if left, err := os.ReadDir(accountHome()); err != nil || len(left) > 1 { // "nested", of the test itself
			t.Errorf("home %s: the home holds %v, %v", home, left, err)
		}
	}
}

// Kept layers: the next run in the same workspace sees what the last one wrote;
// another workspace does not. While one run uses them, another one gets layers
// of its own, and says so. They can be removed.
func TestKeptCaches(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	write(t, filepath.Join(accountHome(), "go/pkg/mod/file"), "old\n")
	before := snapshot(t, filepath.Join(accountHome(), "go"))
	b := cacheBox(t, "scratch", `caches = { tools = ["go", "pip"], keep = true }`)
	const script = `set -e; test ! -e ~/.cache/wall; mkdir -p "$PIP_CACHE_DIR/wheels"; cat "$GOMODCACHE/file"; cat "$PIP_CACHE_DIR/wheels/w" 2>/dev/null || :; echo "$1" >"$GOMODCACHE/file"; echo "$1" >"$PIP_CACHE_DIR/wheels/w"; mkdir -p "$GOMODCACHE/ro/ro"; chmod 555 "$GOMODCACHE/ro/ro" "$GOMODCACHE/ro"`
	if out := b.sh(script, "first").ok(t); out != "old\n" {
		t.Errorf("the first run says %q", out)
	}
	if out := b.sh(script, "second").ok(t); out != "first\nfirst\n" {
		t.Errorf("the second run says %q", out)
	}
	other := *b
	other.ws = tempDir(t)
	if out := other.sh(script, "other").ok(t); out != "old\n" {
		t.Errorf("another workspace says %q", out)
	}

	// A run that holds the layers, until its input ends.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	holder := b.cmd("/bin/sh", "-c", "echo up; cat")
	holder.Stdin = r
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	res := b.sh(script, "third")
	if res.ok(t) != "old\n" || !strings.Contains(res.err, "not kept this time: another run in this workspace") {
		t.Errorf("next to another run: %+v", res)
	}
	w.Close()
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
	if out := b.sh(script, "fourth").ok(t); out != "second\nsecond\n" {
		t.Errorf("after it: %q", out)
	}

	// Killed: the lock goes with the box, and what it wrote is there.
	killed := b.cmd("/bin/sh", "-c", `echo killed >"$GOMODCACHE/file"; echo up; sleep 1000`)
	if out, err = killed.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	// The box dies a moment after its launcher; until then the layers are in use.
	if !within(time.Minute, func() bool { return b.sh(script, "fifth").ok(t) == "killed\nfourth\n" }) {
		t.Error("what a killed run wrote is not there, or the layers stay locked")
	}

	sameTree(t, before, snapshot(t, filepath.Join(accountHome(), "go")))
	state := filepath.Join(accountHome(), ".cache/wall/caches")
	if dirs, err := os.ReadDir(state); err != nil || len(dirs) != 2 {
		t.Errorf("%d kept directories, %v", len(dirs), err)
	}
	host(t, "/", "sh", "-c", "chmod -R u+rwX \"$1\" && rm -rf \"$1\"", "sh", state)
	if out := b.sh(script, "sixth").ok(t); out != "old\n" {
		t.Errorf("after the removal: %q", out)
	}
}

// Where no overlay can be made, a small cache is copied, a large one is read-only
// or empty, and wall says so before the start. Here it is the kept layers
// with which none can be made: overlayfs refuses a work directory that a mount
// without syncing left.
func TestCachesWithoutOverlay(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	h := accountHome()
	write(t, filepath.Join(h, "go/pkg/mod/file"), "old\n")
	write(t, filepath.Join(h, ".npm/_cacache/file"), "old\n")
	write(t, filepath.Join(h, ".cargo/registry/src/file"), "old\n")
	b := cacheBox(t, "scratch", `caches = { tools = ["cargo", "go", "npm"], keep = true }`)
	b.run("/bin/true").ok(t)
	state, err := filepath.Glob(filepath.Join(h, ".cache/wall/caches/*"))
	if err != nil || len(state) != 1 {
		t.Fatal(state, err)
	}
	overlay := filepath.Join(state[0], "cache.go.mod.work", "work")
	if err := os.Chmod(overlay, 0o700); err != nil { // overlayfs made it with mode 000
		t.Fatal(err)
	}
	write(t, filepath.Join(overlay, "incompat", "volatile", ".keep"), "")
	before := snapshot(t, filepath.Join(h, "go"), filepath.Join(h, ".npm"), filepath.Join(h, ".cargo"))

	const script = `for f in "$GOMODCACHE/file" "$npm_config_cache/_cacache/file" "$CARGO_HOME/registry/src/file"; do cat "$f"; echo new >"$f" && cat "$f"; done 2>/dev/null; touch "$CARGO_HOME/x"; grep -c ' overlay ' /proc/self/mounts`
	r := b.sh(script)
	if want := "old\nnew\nold\nnew\nold\nnew\n0\n"; r.out != want {
		t.Errorf("small caches: %q, want %q", r.out, want)
	}
	for _, want := range []string{"not kept this time: this host cannot make a layer", "the cache of go is a copy inside: this host cannot make a layer"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("it does not say %q: %q", want, r.err)
		}
	}
	sameTree(t, before, snapshot(t, filepath.Join(h, "go"), filepath.Join(h, ".npm"), filepath.Join(h, ".cargo")))

	for _, f := range []string{"go/pkg/mod/big", ".npm/_cacache/big", ".cargo/registry/src/big"} {
		write(t, filepath.Join(h, f), "")
		if err := os.Truncate(filepath.Join(h, f), 64<<20); err != nil {
			t.Fatal(err)
		}
	}
	r = b.sh(script)
	if want := "old\nold\n0\n"; r.out != want { // Go and cargo; npm has none
		t.Errorf("large caches: %q, want %q", r.out, want)
	}
	for _, want := range []string{"the cache of npm is empty inside", "the cache of go is read-only inside", "the cache of cargo is read-only inside"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("it does not say %q: %q", want, r.err)
		}
	}
	if got := read(t, filepath.Join(h, "go/pkg/mod/file")); got != "old\n" {
		t.Errorf("the operator's file reads %q", got)
	}
}
