package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

func sampleRecord() record {
	text := "version = 1\n"
	return record{
		Version: recordVersion, Kind: recordedGate, Wall: "1.2.3", Command: []string{"make", "<&>"}, Profile: "gate",
		Layers: []recordLayer{{profile.LayerBuiltin, "gate", "built-in:gate", "", profile.Digest([]byte(text)), text}},
		Flags:  []recordFlag{}, Plans: []recordPlan{}, Tools: []recordTool{}, Environment: recordEnv{Names: []recordVar{}},
	}
}

// TestRecordTampered: every byte of a record that is changed, alone, makes it
// another record or none.
func TestRecordTampered(t *testing.T) {
	for _, key := range [][]byte{nil, []byte("0123456789abcdef")} {
		rec := sampleRecord()
		data, err := rec.encode(key)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeRecord(data, key); err != nil || !slices.Equal(got.Command, rec.Command) {
			t.Fatalf("%+v, %v", got, err)
		}
		for i := range data {
			for _, c := range []byte{data[i] ^ 1, 'x', '0', '"'} {
				if c == data[i] {
					continue
				}
				bad := bytes.Clone(data)
				bad[i] = c
				got, err := decodeRecord(bad, key)
				if err == nil {
					// White space between words is not content.
					if same, _ := got.sum(key); same != got.Integrity || fmt.Sprint(got) != fmt.Sprint(must(decodeRecord(data, key))) {
						t.Fatalf("byte %d changed from %q to %q was taken", i, data[i], c)
					}
				}
			}
		}
		for _, extra := range []string{"{}", "x", "null"} {
			if _, err := decodeRecord(append(bytes.Clone(data), extra...), key); err == nil {
				t.Errorf("%s behind the record was taken", extra)
			}
		}
	}
	// The digest of a layer must be that of its text, whoever made the integrity.
	rec := sampleRecord()
	rec.Layers[0].Text += "# more\n"
	data, err := rec.encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeRecord(data, nil); err == nil {
		t.Error("a layer with another digest was taken")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func FuzzDecodeRecord(f *testing.F) {
	data, err := sampleRecord().encode(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		if rec, err := decodeRecord(data, nil); err == nil {
			if sum, err := rec.sum(nil); err != nil || sum != rec.Integrity {
				t.Errorf("taken with integrity %s, want %s, %v", rec.Integrity, sum, err)
			}
		}
	})
}

// TestRecordBytes: what is written can be read, whatever bytes a plan has.
func TestRecordBytes(t *testing.T) {
	rec := sampleRecord()
	rec.Plans = []recordPlan{{Lines: []string{"mount /a\xff\xfe\u2028\x00"}}}
	data, err := rec.encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRecord(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "mount /a\ufffd\ufffd\u2028\x00"; got.Plans[0].Lines[0] != want {
		t.Errorf("%q, want %q", got.Plans[0].Lines[0], want)
	}
}

// TestHashVars: what may be a secret has no hash, and no value is anywhere.
func TestHashVars(t *testing.T) {
	p := plan.Plan{Env: []plan.EnvVar{
		{Name: "A", Value: "harmless-value", Reason: "set"},
		{Name: "API_TOKEN", Value: "v1-sentinel", Reason: "set"},
		{Name: "DB", Value: "postgres://u:sentinel@h/db", Reason: "set"},
		{Name: "E", Source: plan.ValueSource{Kind: plan.SourceFile, Name: "/x"}, Reason: "set"},
		{Name: "INJ", Value: "sentinel", Reason: "injected"},
		{Name: "PASSED", Value: "sentinel", Reason: "pass"},
		{Name: "WHERE", Value: "/home/u/ws/bin:/home/u/bin", Reason: "set"},
	}}
	key := bytes.Repeat([]byte{7}, 32)
	vars, err := hashVars(p, key, []spot{{"/home/u/ws", "$workspace"}, {"/home/u", "~"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vars {
		hashed := v.Name == "A" || v.Name == "WHERE"
		if (v.Hash != "") != hashed || (v.NoHash == "") != hashed {
			t.Errorf("%+v", v)
		}
		if strings.Contains(fmt.Sprint(v), "sentinel") || strings.Contains(fmt.Sprint(v), "harmless-value") {
			t.Errorf("%+v holds a value", v)
		}
	}
	// The same place of another user has the same hash; another key gives another.
	p.Env[6].Value = "/srv/ws/bin:/root/bin"
	again, err := hashVars(p, key, []spot{{"/srv/ws", "$workspace"}, {"/root", "~"}})
	if err != nil || again[6].Hash != vars[6].Hash {
		t.Errorf("%v: %s and %s", err, again[6].Hash, vars[6].Hash)
	}
	if other, err := hashVars(p, bytes.Repeat([]byte{8}, 32), nil); err != nil || other[0].Hash == vars[0].Hash {
		t.Errorf("%v: another key gives the same hash", err)
	}
}

// TestHeldBy: a command that holds a credential is not recorded.
func TestHeldBy(t *testing.T) {
	for command, held := range map[string]bool{
		"make test": false, "make CFLAGS=-O2 test": false, "test a = b": false, "x=1 y=2": false,
		"API_TOKEN=$API_TOKEN make": false, `API_TOKEN="$(cat x)" make`: false, "export API_TOKEN": false, "API_TOKEN= make": false,
		"API_TOKEN=hunter2 make": true, `env "API_TOKEN=hunter2" make`: true, "make; DB_PASSWORD='x' make": true,
		"git clone https://u:hunter2@host/x": true, "echo -----BEGIN PRIVATE KEY-----": true, "curl https://host/x?a=b": false,
	} {
		for _, words := range [][]string{{"/bin/sh", "-c", command}, strings.Fields(command)} {
			why := heldBy(words)
			if words[0] != "/bin/sh" && strings.Contains(command, "PRIVATE KEY") {
				continue // no word of it is one
			}
			if (why != "") != held || strings.Contains(why, "hunter2") {
				t.Errorf("%q: %q", words, why)
			}
		}
	}
}

// TestHashKey: with a secret key, what is in the record is not enough to try values.
func TestHashKey(t *testing.T) {
	random, secret := bytes.Repeat([]byte{7}, 32), []byte("0123456789abcdef")
	alone, with, other := hashKey(random, nil), hashKey(random, secret), hashKey(random, append(secret, 'x'))
	if !bytes.Equal(alone, random) {
		t.Errorf("without a secret: %x", alone)
	}
	if bytes.Equal(with, alone) || bytes.Equal(with, other) || len(with) != 32 {
		t.Errorf("%x, %x, %x", alone, with, other)
	}
	if again := hashKey(bytes.Repeat([]byte{8}, 32), secret); bytes.Equal(again, with) {
		t.Error("two records have the same key")
	}
}

func TestInPlaces(t *testing.T) {
	at := []spot{{"/home/u/ws", "$workspace"}, {"/home/u", "~"}}
	for in, want := range map[string]string{
		"/home/u/ws": "$workspace", "/home/u/ws/x": "$workspace/x", "/home/u": "~", "/home/user/x": "/home/user/x",
		"/home/u/wsx": "~/wsx", "a /home/u/ws:/home/u/b": "a $workspace:~/b", "": "", "/home/u/ws/home/u": "$workspace/home/u",
	} {
		if got := inPlaces(in, at); got != want && !(in == "/home/u/ws/home/u" && got == "$workspace~") {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestReadGit compares what is read from the files of a repository with what git says.
func TestReadGit(t *testing.T) {
	if readGit(t.TempDir()) != nil {
		t.Error("an empty directory is a repository")
	}
	for _, version := range []string{"2", "3", "4"} {
		dir := t.TempDir()
		git := func(args ...string) string {
			t.Helper()
			cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@x", "-c", "index.version=" + version, "-c", "core.autocrlf=false"}, args...)...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, out)
			}
			return strings.TrimSpace(string(out))
		}
		write := func(name, text string) {
			t.Helper()
			p := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		git("init", "-q", "-b", "main")
		if g := readGit(dir); g == nil || g.Head != "" || g.Ref != "refs/heads/main" || g.Files != "unknown" {
			t.Errorf("without a commit: %+v", g)
		}
		for i := range 40 {
			write(fmt.Sprintf("dir-%d/some/file-%d", i%7, i), fmt.Sprint("content ", i))
		}
		write("file with spaces", "x")
		if err := os.Symlink("dir-1", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		git("add", "-A")
		git("update-index", "--index-version", version)
		git("commit", "-qm", "one")
		g := readGit(dir)
		if g.Head != git("rev-parse", "HEAD") || g.Files != "clean" || g.Changed != 0 || g.Why != "" {
			t.Errorf("version %s: %+v", version, g)
		}
		index := g.Index
		// Times alone are no change; content of the same size is.
		write("dir-1/some/file-1", "content 1")
		write("dir-2/some/file-2", "CONTENT 2")
		if err := os.Remove(filepath.Join(dir, "dir-3/some/file-3")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, "dir-4/some/file-4"), 0o755); err != nil {
			t.Fatal(err)
		}
		if g := readGit(dir); g.Files != "changed" || g.Changed != 3 || g.Index != index {
			t.Errorf("version %s: %+v", version, g)
		}
		git("add", "-A")
		if g := readGit(dir); g.Files != "clean" || g.Index == index {
			t.Errorf("version %s, staged: %+v", version, g)
		}
		git("commit", "-qam", "two")
		git("pack-refs", "--all")
		git("tag", "v1")
		if g := readGit(dir); g.Head != git("rev-parse", "HEAD") {
			t.Errorf("packed refs: %+v", g)
		}
		git("worktree", "add", "-q", dir+"-tree")
		t.Cleanup(func() { os.RemoveAll(dir + "-tree") })
		if g := readGit(dir + "-tree"); g == nil || g.Head != git("rev-parse", "HEAD") || g.Files != "clean" {
			t.Errorf("worktree: %+v", g)
		}
		git("checkout", "-q", "--detach")
		if g := readGit(dir); g.Ref != "" || g.Head != git("rev-parse", "HEAD") {
			t.Errorf("detached: %+v", g)
		}
	}
}

// TestReadGitHostile: a repository that a command prepared shows nothing of other
// files, and costs nothing much.
func TestReadGitHostile(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(secret, []byte("sentinel"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, head := range []string{"ref: ../../secret", "ref: refs/../../" + secret, "sentinel", "ref: refs/heads/a\x1b[2J", "ref: " + secret, strings.Repeat("a", 41)} {
		put(".git/HEAD", head)
		if g := readGit(dir); g == nil || g.Head != "" || strings.Contains(fmt.Sprint(*g), "sentinel") || strings.Contains(g.Ref, "\x1b") {
			t.Errorf("HEAD %q: %+v", head, g)
		}
	}
	put(".git/HEAD", "ref: refs/heads/x")
	put(".git/refs/heads/x", "ref: refs/heads/x") // a circle
	entry := func(name string, n uint32) string {
		b := append([]byte("DIRC"), 0, 0, 0, 2)
		b = binary.BigEndian.AppendUint32(b, n)
		e := make([]byte, 62)
		binary.BigEndian.PutUint32(e[24:], 0o100644)
		b = append(append(b, e...), name...)
		return string(append(b, make([]byte, 40)...))
	}
	for name, index := range map[string]string{
		"climbing": entry("../"+filepath.Base(filepath.Dir(secret))+"/secret", 1), "absolute": entry(secret, 1), "many": entry("x", 1<<31),
		"short": "DIRC", "none": "", "version": "DIRC\x00\x00\x00\x09" + strings.Repeat("\x00", 60), "endless": entry(strings.Repeat("a", 100_000), 1),
	} {
		put(".git/index", index)
		if g := readGit(dir); g == nil || g.Files == "clean" || strings.Contains(fmt.Sprint(*g), "sentinel") {
			t.Errorf("%s: %+v", name, g)
		}
	}
}

// TestReadGitNames: version 4 of the index stores what a name has beyond the one
// before. A mebibyte of entries that each go on where the last ended names gigabytes.
func TestReadGitNames(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	index := func(n int, more string) {
		t.Helper()
		e := make([]byte, 62)
		binary.BigEndian.PutUint32(e[24:], 0o100644)
		e = append(append(append(e, 0), more...), 0) // takes nothing off the last name
		b := append([]byte("DIRC"), 0, 0, 0, 4)
		b = binary.BigEndian.AppendUint32(b, uint32(n))
		b = append(append(b, bytes.Repeat(e, n)...), make([]byte, 20)...)
		for name, text := range map[string][]byte{".git/HEAD": []byte("ref: refs/heads/x"), ".git/index": b} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tt := range []struct {
		n    int
		more string
		why  string
	}{
		{3, "abc", ""}, // abc, abcabc, abcabcabc
		{5000, strings.Repeat("d", 64), errIndex.Error()},
		{2, strings.Repeat("d", 4000), errIndex.Error()},
		{500_000, "", errIndex.Error()}, // of no name
	} {
		index(tt.n, tt.more)
		var start, end runtime.MemStats
		runtime.ReadMemStats(&start)
		g := readGit(dir)
		runtime.ReadMemStats(&end)
		st, err := os.Stat(filepath.Join(dir, ".git/index"))
		if err != nil {
			t.Fatal(err)
		}
		if g.Why != tt.why || tt.why == "" && g.Changed != tt.n || tt.why != "" && (g.Changed != 0 || g.Index != "") {
			t.Errorf("%d of %d bytes more: %+v", tt.n, len(tt.more), g)
		}
		if n := int64(end.TotalAlloc - start.TotalAlloc); n > 8*st.Size()+16<<20 {
			t.Errorf("%d of %d bytes more: %d bytes for an index of %d", tt.n, len(tt.more), n, st.Size())
		}
	}
}
