package integration_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// The programs of others that the tests start in boxes: what npm calls them, and
// the digest of what was looked at. They are unpacked and never installed, so that none of their
// scripts runs outside of a box.
var agentPackages = map[string]struct{ spec, sha256 string }{
	"codex":  {"@openai/codex@0.99.0-linux-x64", "4b2094dc056628d9c48d0d6fe4db1ccc96964843e7a804d4b4e2affec1199259"},
	"gemini": {"@google/gemini-cli@0.61.0", "bc4efa5c925c4430105b552820ed3164bbeffa9dc227990fc922f954733bcd7d"},
}

// fetchAgents downloads and unpacks them once for all tests: DIR/codex, DIR/gemini.
// A private home hides no temporary directory.
var fetchAgents = sync.OnceValues(func() (string, error) {
	if runtime.GOARCH != "amd64" {
		return "", errors.New("the programs that were looked at are for amd64")
	}
	dir, err := os.MkdirTemp("", "wall-agents-")
	if err != nil {
		return "", err
	}
	for name, p := range agentPackages {
		pack := exec.Command("npm", "pack", "--silent", "--pack-destination", dir, p.spec)
		pack.Dir = dir
		pack.Env = append(os.Environ(), "npm_config_cache="+filepath.Join(dir, "cache"), "npm_config_update_notifier=false")
		out, err := pack.Output()
		if err != nil {
			return dir, fmt.Errorf("npm pack %s: %w", p.spec, err)
		}
		file := filepath.Join(dir, filepath.Base(strings.TrimSpace(string(out))))
		data, err := os.ReadFile(file)
		if err != nil {
			return dir, err
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != p.sha256 {
			return dir, fmt.Errorf("%s has the digest %s, not %s", p.spec, got, p.sha256)
		}
		to := filepath.Join(dir, name)
		if err := os.Mkdir(to, 0o755); err != nil {
			return dir, err
		}
		if out, err := exec.Command("tar", "-xzf", file, "-C", to).CombinedOutput(); err != nil {
			return dir, fmt.Errorf("tar: %w\n%s", err, out)
		}
		if err := os.Remove(file); err != nil {
			return dir, err
		}
	}
	return dir, os.RemoveAll(filepath.Join(dir, "cache"))
})

// agents gives the directory of the programs.
func agents(t *testing.T) string {
	t.Helper()
	need(t, "npm-registry", "tar")
	dir, err := fetchAgents()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// codexIn is the program itself in what was unpacked.
func codexIn(dir string) string {
	return filepath.Join(dir, "codex/package/vendor/x86_64-unknown-linux-musl/codex/codex")
}

// TestAgentPrograms starts programs of other people in the boxes that are made for
// them. No account is needed, and there is no network.
func TestAgentPrograms(t *testing.T) {
	if !inOwnHome(t) {
		return
	}
	dir := agents(t)
	defer os.RemoveAll(dir)
	codex := codexIn(dir)
	box := func(t *testing.T, profile string) *box {
		b := newBox(t, profile)
		b.flags = []string{"--net", "none", "--ro", dir}
		return b
	}

	t.Run("codex", func(t *testing.T) {
		b := box(t, "agent-codex")
		if out := b.run(codex, "--version").ok(t); out != "codex-cli 0.99.0\n" {
			t.Errorf("%q", out)
		}
		if out := b.run(codex, "--help").ok(t); !strings.Contains(out, "Usage: codex [OPTIONS]") {
			t.Errorf("%q", out)
		}
	})

	// The log-in is copied, and what is not on the list is not.
	t.Run("seeds", func(t *testing.T) {
		home := accountHome()
		b := box(t, "agent-codex")
		logged := func() string { r := b.run(codex, "login", "status"); return r.out + r.err }
		if out := logged(); !strings.Contains(out, "Not logged in") {
			t.Errorf("%q", out)
		}
		if out := b.sh(`ls -A ~/.codex; stat -c %a ~/.codex`).ok(t); out != "700\n" {
			t.Errorf("without a log-in the directory holds %q", out)
		}
		write(t, home+"/.codex/auth.json", `{"OPENAI_API_KEY": "sk-test-0123456789abcdefghij"}`)
		write(t, home+"/.codex/history.jsonl", "not for the box\n")
		defer os.RemoveAll(home + "/.codex")
		if out := logged(); !strings.Contains(out, "Logged in using an API key") {
			t.Errorf("%q", out)
		}
		if out := b.sh(`cd ~/.codex && ls -A && stat -c %a auth.json && echo changed >auth.json`).ok(t); out != "auth.json\n600\n" {
			t.Errorf("the directory holds %q", out)
		}
		if got := read(t, home+"/.codex/auth.json"); !strings.Contains(got, "sk-test-") {
			t.Errorf("the log-in was changed: %q", got)
		}
		// The one variable of the agent crosses where it has a value, no other secret does.
		b.env = append(os.Environ(), "OPENAI_API_KEY=sk-one", "ANTHROPIC_API_KEY=sk-two", "GH_TOKEN=three")
		if out := b.sh(`echo "$OPENAI_API_KEY,$ANTHROPIC_API_KEY,$GH_TOKEN"`).ok(t); out != "sk-one,,\n" {
			t.Errorf("%q", out)
		}
		b.env = append(os.Environ(), "OPENAI_API_KEY=")
		if out := b.sh(`echo "${OPENAI_API_KEY-unset}"`).ok(t); out != "unset\n" {
			t.Errorf("%q", out)
		}
	})

	// Its full-screen interface comes up on the private terminal, follows a resize, and goes.
	t.Run("codex on a terminal", func(t *testing.T) {
		b := box(t, "agent-codex")
		m := newTmux(t, b, "sh", "-c", shellQuote(b.argv(codex))+`; echo "status $?"; exec cat`)
		m.shows(`Sign in with ChatGPT`)
		m.do("resize-window", "-x", "120", "-y", "50")
		m.shows(`Sign in with ChatGPT`)
		m.keys("C-c")
		m.shows(`status [0-9]+`)
	})

	t.Run("gemini", func(t *testing.T) {
		need(t, "node")
		b := box(t, "agent")
		program := filepath.Join(dir, "gemini/package/bundle/gemini.js")
		if out := b.run("node", program, "--version").ok(t); !regexp.MustCompile(`(?m)^0\.61\.0$`).MatchString(out) {
			t.Errorf("%q", out)
		}
		if out := b.run("node", program, "--help").ok(t); !strings.Contains(out, "Usage: gemini") {
			t.Errorf("%q", out)
		}
	})
}

// shellQuote makes one line of shell of words.
func shellQuote(words []string) string {
	var quoted []string
	for _, w := range words {
		quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
	}
	return strings.Join(quoted, " ")
}
