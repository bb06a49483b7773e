package profile

import (
	"bytes"
	"os"
	"os/user"
	"runtime"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

// realHost is this machine, with Landlock as new as the tests want it.
func realHost(t testing.TB) Host {
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return Host{
		OS: runtime.GOOS, Arch: runtime.GOARCH, UID: os.Getuid(), GID: os.Getgid(), User: u.Username, AccountHome: u.HomeDir,
		Cwd: cwd, Environ: os.Environ(), FS: os.DirFS("/"), TempDir: "/tmp", RunID: "0123456789abcdef", LandlockABI: 7,
		Stdio: []plan.Stdio{{FD: 0, Kind: plan.StdioNull, Read: true}, {FD: 1, Kind: plan.StdioPipe, Write: true}, {FD: 2, Kind: plan.StdioPipe, Write: true}},
	}
}

func TestResolveOnThisMachine(t *testing.T) {
	for _, name := range []string{"gate", "agent"} {
		p, err := Resolve(realHost(t), Options{Default: name, Command: []string{"sh", "-c", "true"}})
		if err != nil {
			t.Fatalf("%s: %s", name, plan.Explain(err))
		}
		var b bytes.Buffer
		if err := p.Print(&b); err != nil {
			t.Fatal(err)
		}
		if os.Getenv("WALL_TEST_PRINT") != "" {
			t.Log("\n" + b.String())
		}
		if !strings.HasSuffix(p.Command.Path, "/sh") {
			t.Errorf("%s: command %s", name, p.Command.Path)
		}
	}
}

func BenchmarkResolve(b *testing.B) {
	for _, name := range []string{"gate", "agent"} {
		b.Run(name, func(b *testing.B) {
			h := realHost(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Resolve(h, Options{Default: name, Command: []string{"sh"}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
