package integration_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cookbookDir holds the profiles that the documents show.
const cookbookDir = root + "/docs/cookbook"

// A recipe is what is done under one profile of the cookbook: work that people
// do with it, and at its end what it is there to prevent.
type recipe struct {
	needs []string
	files map[string]string // of the workspace
	do    func(t *testing.T, b *box)
}

var recipes = map[string]recipe{
	"go": {needs: []string{"go", "git"}, files: map[string]string{
		"go.mod":  "module example.org/m\n\ngo 1.21\n",
		"main.go": "package main\n\nfunc main() { println(1 + 2) }\n", // no import: the private build cache is empty at first
	}, do: func(t *testing.T, b *box) {
		host(t, b.ws, "git", "init", "-q") // go build notes the revision
		b.env = os.Environ()
		b.flags = append(b.flags, "--ro", strings.TrimSpace(host(t, b.ws, "go", "env", "GOROOT"))) // where it is not part of the system
		if r := b.sh("go build -o m . && ./m"); r.code != 0 || r.err != "3\n" {
			t.Errorf("go build: %+v", r)
		}
		if r := b.sh("go mod download example.com/absent@v1.0.0"); r.code == 0 || !strings.Contains(r.out+r.err, "GOPROXY=off") {
			t.Errorf("a missing module: %+v", r)
		}
	}},
	"rust": {needs: []string{"cargo"}, files: map[string]string{
		"Cargo.toml": "[package]\nname = \"m\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
		"src/lib.rs": "#[test]\nfn adds() { assert_eq!(1 + 2, 3); }\n",
	}, do: func(t *testing.T, b *box) {
		if out := b.sh("cargo test 2>&1").ok(t); !strings.Contains(out, "1 passed") {
			t.Errorf("cargo test says %q", out)
		}
		if r := b.sh("cat ~/.cargo/credentials.toml"); r.code == 0 {
			t.Error("the credentials of cargo are readable")
		}
	}},
	"node": {needs: []string{"node", "npm"}, files: map[string]string{
		"package.json": `{ "name": "m", "version": "1.0.0", "scripts": { "test": "node test.js" } }`,
		"test.js":      "require('assert').strictEqual(1 + 2, 3); console.log('passed', process.env.npm_config_offline);\n",
	}, do: func(t *testing.T, b *box) {
		if out := b.sh("npm test").ok(t); !strings.Contains(out, "passed true") {
			t.Errorf("npm test says %q", out)
		}
		if r := b.sh("npm view left-pad"); r.code == 0 {
			t.Error("the registry can be reached")
		}
	}},
	"python": {needs: []string{"/usr/bin/python3"}, files: map[string]string{
		"test_m.py": "import unittest\n\nclass T(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(1 + 2, 3)\n",
		// As "python -m venv" makes it, as far as it matters here.
		".venv/bin/activate": "VIRTUAL_ENV=x\n",
		".venv/pyvenv.cfg":   "home = /usr/bin\n",
	}, do: func(t *testing.T, b *box) {
		if r := b.sh("/usr/bin/python3 -m unittest -v"); !strings.Contains(r.err, "OK") {
			t.Errorf("unittest: %+v", r)
		}
		b.sh("mkdir -p .venv/lib && echo x >.venv/lib/x.py").ok(t)
		if r := b.sh("echo 'touch /tmp/pwned' >>.venv/bin/activate"); r.code == 0 {
			t.Error("the activation script was changed")
		}
	}},
	"jvm": {needs: []string{"javac", "java"}, files: map[string]string{
		"M.java": "public class M { public static void main(String[] a) { System.out.println(System.getProperty(\"user.home\")); } }\n",
	}, do: func(t *testing.T, b *box) {
		if out := b.sh("javac -d out M.java && java -cp out M").ok(t); out != accountHome()+"\n" {
			t.Errorf("java says its home is %q", out)
		}
	}},
	"make-c": {needs: []string{"make", "gcc"}, files: map[string]string{
		"Makefile": "m: m.c\n\tgcc $(CFLAGS) -o m m.c\n",
		"m.c":      "#include <stdio.h>\nint main(void) { puts(\"" + "built\"); return 0; }\n",
	}, do: func(t *testing.T, b *box) {
		b.env = append(os.Environ(), "CFLAGS=-O2 -Wall", "SECRET_TOKEN=x")
		out := b.sh(`make && ./m && echo "token <$SECRET_TOKEN>"`).ok(t)
		if !strings.Contains(out, "-O2 -Wall") || !strings.Contains(out, "built\ntoken <>\n") {
			t.Errorf("make says %q", out)
		}
	}},
	"monorepo-gate": {needs: []string{"make"}, files: map[string]string{
		"Makefile":           "check:\n\tgrep -q good src/a\n\techo report >reports/r\n",
		"src/a":              "good\n",
		"out/.keep":          "",
		"reports/.keep":      "",
		"deploy/secrets/key": "secret\n",
	}, do: func(t *testing.T, b *box) {
		b.sh("make check").ok(t)
		if got := read(t, b.ws+"/reports/r"); got != "report\n" {
			t.Errorf("the report is %q", got)
		}
		if r := b.sh("echo bad >src/a"); r.code == 0 {
			t.Error("a source was changed")
		}
		if r := b.sh("cat deploy/secrets/key"); r.code == 0 {
			t.Error("the secrets are readable")
		}
	}},
	"agent-network": {needs: []string{"/usr/bin/python3"}, do: func(t *testing.T, b *box) {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Write([]byte("hello"))
				_ = c.Close()
			}
		}()
		fetch := fmt.Sprintf("import socket; print(socket.create_connection(('127.0.0.1', %d)).recv(9).decode())", l.Addr().(*net.TCPAddr).Port)
		if r := b.run("/usr/bin/python3", "-c", fetch); r.code == 0 || !strings.Contains(r.err, "ConnectionRefusedError") {
			t.Errorf("the host's loopback can be reached: %+v", r)
		}
		const resolve = "import socket, sys; print(socket.getaddrinfo(sys.argv[1], 443, socket.AF_INET)[0][4][0])"
		if out := b.run("/usr/bin/python3", "-c", resolve, "registry.npmjs.org").ok(t); !strings.HasPrefix(out, "198.1") {
			t.Errorf("an allowed host has the address %q", out)
		}
		if r := b.run("/usr/bin/python3", "-c", resolve, "registry.example.org"); r.code == 0 || !strings.Contains(r.err, "wall: network: refused the name registry.example.org") {
			t.Errorf("a host that nobody allowed: %+v", r)
		}
		if out := b.sh("ls -A ~ | grep -vx -e go -e sdk -e '[.].*'; cd ~ && touch x && echo writable").ok(t); out != "writable\n" {
			t.Errorf("in the home: %q", out)
		}
	}},
	"review": {needs: []string{"git"}, files: map[string]string{"a": "one\n"}, do: func(t *testing.T, b *box) {
		host(t, b.ws, "git", "init", "-q")
		host(t, b.ws, "git", "add", ".")
		host(t, b.ws, "git", "-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "-qm", "first")
		write(t, b.ws+"/a", "two\n")
		if out := b.sh("git log --format=%s && git diff --stat && git status --short").ok(t); !strings.Contains(out, "first") || !strings.Contains(out, " M a") {
			t.Errorf("git says %q", out)
		}
		for _, script := range []string{"echo x >a", "touch b", "git commit -qam x", "touch ~/x"} {
			if r := b.sh(script); r.code == 0 {
				t.Errorf("%s works", script)
			}
		}
		b.sh("touch /tmp/x").ok(t)
	}},
	"ci": {needs: []string{"make"}, files: map[string]string{
		"Makefile": "test:\n\t@echo \"ci=$$CI sha=$$GITHUB_SHA token=$$GITHUB_TOKEN\" >result\n",
	}, do: func(t *testing.T, b *box) {
		b.env = append(os.Environ(), "GITHUB_SHA=abc", "GITHUB_TOKEN=secret")
		b.sh("make test").ok(t)
		if got := read(t, b.ws+"/result"); got != "ci=true sha=abc token=\n" {
			t.Errorf("the job saw %q", got)
		}
	}},
}

// TestCookbook runs real commands under every profile of docs/cookbook, and
// finds a profile without a recipe.
func TestCookbook(t *testing.T) {
	files, err := filepath.Glob(cookbookDir + "/*.toml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".toml")
		seen[name] = true
		r, ok := recipes[name]
		if !ok {
			t.Errorf("nothing is done under %s", file)
			continue
		}
		t.Run(name, func(t *testing.T) {
			need(t, r.needs...)
			abs, err := filepath.Abs(file)
			if err != nil {
				t.Fatal(err)
			}
			b := newBox(t, abs)
			for name, content := range r.files {
				write(t, filepath.Join(b.ws, name), content)
			}
			r.do(t, b)
		})
	}
	for name := range recipes {
		if !seen[name] {
			t.Errorf("there is no profile %s/%s.toml", cookbookDir, name)
		}
	}
	if len(files) < 10 {
		t.Errorf("the cookbook has %d profiles", len(files))
	}
}
