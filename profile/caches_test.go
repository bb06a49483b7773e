package profile

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// The ceiling is exact: a cache of that size is copied, one byte more is not.
func TestCacheOver(t *testing.T) {
	m := fstest.MapFS{}
	add := func(name string, n int) { m[name] = &fstest.MapFile{Data: make([]byte, n), Mode: 0o644} }
	add("c/registry/a", 60)
	add("c/registry/deep/b", 30)
	add("c/git/c", 10)
	m["c/registry/link"] = &fstest.MapFile{Data: []byte("/big"), Mode: 0o777 | fs.ModeSymlink}
	add("big", 1000)
	dirs := []string{"/c/git", "/c/registry", "/c/missing"}
	if CacheOver(m, dirs, 100) {
		t.Error("exactly the limit is over")
	}
	if !CacheOver(m, dirs, 99) {
		t.Error("one byte over is not")
	}
	if CacheOver(m, dirs[:1], 10) {
		t.Error("only the named directories count")
	}
	for i := range maxCacheEntries {
		add(fmt.Sprintf("many/%d", i), 0)
	}
	if !CacheOver(m, []string{"/many"}, 100) {
		t.Error("very many files are not over")
	}
}

func TestUVBuckets(t *testing.T) {
	for name, want := range map[string]bool{
		"archive-v0": true, "wheels-v5": true, "built-wheels-v3": true, "simple-v15": true, "flat-index-v2": true, "git-v0": true,
		"environments-v2": false, "builds-v0": false, "keys": false, "credentials-v1": false, "archive": false, "archive-v": false, "archive-v0x": false, "archive-v-1": false, ".lock": false, "": false,
	} {
		if got := uvBucket(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// What never comes along, whatever is layered: names with which credentials
// and settings stand next to caches.
func TestNoLayerIsAWholeHome(t *testing.T) {
	never := []string{"", ".", "registry", "git", "credentials", "credentials.toml", "config", "config.toml", "init.d", "gradle.properties", "_logs", "settings.xml"}
	k, ok := LookupKey("environment.caches.tools")
	if !ok {
		t.Fatal("no such key")
	}
	for _, tool := range k.Values {
		stores := cacheStores(tool)
		if len(stores) == 0 {
			t.Errorf("nothing is known about %s", tool)
		}
		for _, s := range stores {
			// Where the whole is a layer, the directory holds nothing but the cache.
			whole := slices.Contains([]string{"go/mod", "go/build", "maven"}, s.name)
			for _, l := range s.layers {
				if slices.Contains(never, l) != whole {
					t.Errorf("%s layers %q", s.name, l)
				}
			}
			if s.home == "" || s.tool() != tool {
				t.Errorf("%+v", s)
			}
		}
	}
}

// Where the tools are told to look, in a scratch home, over a read-only one, and
// where the operator has no cache.
func TestCacheVariables(t *testing.T) {
	const all = `["cargo", "go", "gradle", "maven", "npm", "pip", "uv"]`
	full := "d /home/u/.cargo/registry/index\nd /home/u/go/pkg/mod\nd /home/u/.cache/go-build\nd /home/u/.npm/_cacache\n" +
		"d /home/u/.cache/pip/http\nd /home/u/.cache/uv/archive-v0\nd /home/u/.m2/repository\nd /home/u/.gradle/caches\n"
	tests := map[string]struct {
		base, tree, env, more string
		want                  string
	}{
		"scratch home": {"base", full, "", "", "CARGO_HOME=/home/u/.cargo GOCACHE=/home/u/.cache/go-build GOMODCACHE=/home/u/go/pkg/mod GRADLE_USER_HOME=/home/u/.gradle " +
			"NPM_CONFIG_CACHE=/home/u/.npm PIP_CACHE_DIR=/home/u/.cache/pip UV_CACHE_DIR=/home/u/.cache/uv npm_config_cache=/home/u/.npm"},
		"read-only home": {"gate", full, "", "", "CARGO_HOME=/run/wall/cache/cargo GOCACHE=/home/u/.cache/go-build GOMODCACHE=/home/u/go/pkg/mod GRADLE_USER_HOME=/home/u/.gradle " +
			"NPM_CONFIG_CACHE=/home/u/.npm PIP_CACHE_DIR=/home/u/.cache/pip UV_CACHE_DIR=/home/u/.cache/uv XDG_CACHE_HOME=/tmp/.cache npm_config_cache=/home/u/.npm"},
		"read-only home without caches": {"gate", "", "", "", "CARGO_HOME=/run/wall/cache/cargo GOCACHE=/run/wall/cache/go/build GOMODCACHE=/run/wall/cache/go/mod GRADLE_USER_HOME=/run/wall/cache/gradle " +
			"MAVEN_OPTS=-Dmaven.repo.local=/run/wall/cache/maven NPM_CONFIG_CACHE=/run/wall/cache/npm PIP_CACHE_DIR=/run/wall/cache/pip UV_CACHE_DIR=/run/wall/cache/uv XDG_CACHE_HOME=/tmp/.cache npm_config_cache=/run/wall/cache/npm"},
		"the operator's variables": {"base", full + "d /srv/c/registry/src\nd /srv/npm/_cacache\n", "CARGO_HOME=/srv/c npm_config_cache=/srv/npm NPM_CONFIG_CACHE=/other GOMODCACHE= PIP_CACHE_DIR=x", "",
			"CARGO_HOME=/srv/c GOCACHE=/home/u/.cache/go-build GOMODCACHE=/home/u/go/pkg/mod GRADLE_USER_HOME=/home/u/.gradle " +
				"NPM_CONFIG_CACHE=/srv/npm PIP_CACHE_DIR=/home/u/.cache/pip UV_CACHE_DIR=/home/u/.cache/uv npm_config_cache=/srv/npm"},
		"what the profile sets": {"base", full, "", "set = { GOCACHE = \"/home/u/proj/gc\" }\npass = [\"UV_CACHE_DIR\"]\n",
			"CARGO_HOME=/home/u/.cargo GOCACHE=/home/u/proj/gc GOMODCACHE=/home/u/go/pkg/mod GRADLE_USER_HOME=/home/u/.gradle " +
				"NPM_CONFIG_CACHE=/home/u/.npm PIP_CACHE_DIR=/home/u/.cache/pip npm_config_cache=/home/u/.npm"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := goldenHost{Environ: append([]string{"PATH=/usr/bin"}, strings.Fields(tt.env)...)}.host(parseTree(t, tt.tree+
				"f /srv/p.toml version\\s=\\s1\n"))
			text := fmt.Sprintf("version = 1\nextends = %q\n[environment]\ncaches = %s\n%s", tt.base, all, tt.more)
			h.FS.(fstest.MapFS)["srv/p.toml"] = ownedFile("/srv/p.toml", 0o644, []byte(text))
			p, err := Resolve(h, Options{Default: "agent", Profile: "/srv/p.toml", Command: []string{"true"}})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range p.Env {
				switch {
				case strings.Contains(v.Name, "CACHE"), strings.Contains(v.Name, "cache"), slices.Contains([]string{"CARGO_HOME", "GRADLE_USER_HOME", "MAVEN_OPTS"}, v.Name):
					got = append(got, v.Name+"="+v.Value)
				}
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("got  %s\nwant %s", g, tt.want)
			}
		})
	}
}
