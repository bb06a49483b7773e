package main

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// A gitState is what the files of a repository say about a workspace, read without
// running git: hooks and settings of a workspace would run programs.
type gitState struct {
	Head  string `json:"head"`  // the commit, in hex; "" = none yet, or not known
	Ref   string `json:"ref"`   // "refs/heads/main", "" when HEAD is detached
	Index string `json:"index"` // SHA-256 over mode, object and name of every entry of the index; "" = none
	Files string `json:"files"` // of the work tree against the index: "clean", "changed" or "unknown"
	// Changed is how many tracked files differ, or are gone.
	Changed int `json:"changed"`
	// Staged and Untracked are not looked for: the first needs the objects of the
	// repository, the second its ignore rules. Two workspaces with the same commit and
	// the same index have the same staged changes.
	Why string `json:"why"` // when Files is "unknown"
}

// Bounds of what is read of a repository.
const (
	maxGitFile  = 1 << 20   // HEAD, a ref, packed-refs up to 64 times as much
	maxGitIndex = 256 << 20 //
	maxGitNames = 256 << 20 // names of its entries, as they are without compression
	maxGitRead  = 64 << 20  // content of files whose times differ
)

// readGit looks at the repository that a directory is the top of; nil when it is none.
func readGit(ws string) *gitState {
	dir := path.Join(ws, ".git")
	var st unix.Stat_t
	if unix.Lstat(dir, &st) != nil {
		return nil
	}
	if st.Mode&unix.S_IFMT == unix.S_IFREG { // a worktree or a submodule
		text, err := readGitFile(dir, maxGitFile)
		to, ok := strings.CutPrefix(strings.TrimSpace(text), "gitdir: ")
		if err != nil || !ok {
			return nil
		}
		if dir = to; !path.IsAbs(dir) {
			dir = path.Join(ws, to)
		}
	}
	head, err := readGitFile(path.Join(dir, "HEAD"), maxGitFile)
	if err != nil {
		return nil
	}
	g := &gitState{Files: "unknown"}
	common := dir
	if text, err := readGitFile(path.Join(dir, "commondir"), maxGitFile); err == nil {
		if common = strings.TrimSpace(text); !path.IsAbs(common) {
			common = path.Join(dir, common)
		}
	}
	if ref, ok := strings.CutPrefix(strings.TrimSpace(head), "ref: "); ok {
		if !plainRef(ref) {
			g.Why = "HEAD names no ref"
			return g
		}
		g.Ref = ref
		g.Head = resolveRef([]string{dir, common}, ref)
	} else if id := strings.TrimSpace(head); isObjectID(id) {
		g.Head = id
	}
	g.Why = g.readIndex(path.Join(dir, "index"), ws)
	return g
}

// readGitFile reads a regular file of at most most bytes, following no link in the
// last place: what it holds is checked before any of it is shown.
func readGitFile(name string, most int64) (string, error) {
	data, _, err := readBounded(name, most)
	return string(data), err
}

func isObjectID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// plainRef reports whether a name can be that of a ref (git-check-ref-format(1)),
// and none that leads elsewhere.
func plainRef(s string) bool {
	if !strings.HasPrefix(s, "refs/") || len(s) > 1000 || strings.Contains(s, "..") || path.Clean(s) != s {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`~^:?*[\`, r) })
}

// resolveRef finds the commit of a ref: a file of its own, or a line of packed-refs.
func resolveRef(dirs []string, ref string) string {
	for range 5 { // refs to refs
		next := ""
		for _, dir := range dirs {
			text, err := readGitFile(path.Join(dir, ref), maxGitFile)
			if err != nil {
				continue
			}
			text = strings.TrimSpace(text)
			if isObjectID(text) {
				return text
			}
			if to, ok := strings.CutPrefix(text, "ref: "); ok && plainRef(to) {
				next = to
			}
		}
		if next == "" {
			break
		}
		ref = next
	}
	for _, dir := range dirs {
		text, err := readGitFile(path.Join(dir, "packed-refs"), 64*maxGitFile)
		if err != nil {
			continue
		}
		for line := range strings.Lines(text) {
			if id, name, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name == ref && isObjectID(id) {
				return id
			}
		}
	}
	return ""
}

var errIndex = errors.New("the index has a form that wall does not know")

// An indexEntry is one entry of gitformat-index(5).
type indexEntry struct {
	name       string
	mode, size uint32
	mtime      [2]uint32
	id         []byte
	skip       bool // not in the work tree on purpose, or in a conflict
}

// readIndex compares the work tree with the index, and gives why it could not.
func (g *gitState) readIndex(name, ws string) string {
	data, _, err := readBounded(name, maxGitIndex)
	if errors.Is(err, unix.ENOENT) {
		return "there is no index"
	}
	if err != nil {
		return "the index cannot be read"
	}
	idSize := 20
	if len(g.Head) == 64 {
		idSize = 32
	}
	h := sha256.New()
	left := int64(maxGitRead)
	changed, unknown := 0, 0
	err = parseIndex(data, idSize, func(e indexEntry) {
		fmt.Fprintf(h, "%o %x %q\n", e.mode, e.id, e.name)
		switch compareEntry(ws, e, &left) {
		case "changed":
			changed++
		case "unknown":
			unknown++
		}
	})
	if err != nil {
		return err.Error()
	}
	g.Index, g.Changed = hex.EncodeToString(h.Sum(nil)), changed
	switch {
	case g.Changed > 0:
		g.Files = "changed"
	case unknown > 0:
		return fmt.Sprintf("%d files could not be compared", unknown)
	default:
		g.Files = "clean"
	}
	return ""
}

// parseIndex reads versions 2 to 4, and gives one entry after the other: version 4
// takes two bytes for a name that repeats a long one, so that all of them together have
// a bound of their own.
func parseIndex(data []byte, idSize int, each func(indexEntry)) error {
	if len(data) < 12+idSize || string(data[:4]) != "DIRC" {
		return errIndex
	}
	version, n := binary.BigEndian.Uint32(data[4:]), binary.BigEndian.Uint32(data[8:])
	if version < 2 || version > 4 {
		return errIndex
	}
	at, last, names := 12, "", 0
	for range n {
		start := at
		fixed := 40 + idSize + 2
		if len(data)-at < fixed {
			return errIndex
		}
		u := func(off int) uint32 { return binary.BigEndian.Uint32(data[start+off:]) }
		e := indexEntry{mtime: [2]uint32{u(8), u(12)}, mode: u(24), size: u(36), id: data[start+40 : start+40+idSize]}
		flags := binary.BigEndian.Uint16(data[start+40+idSize:])
		at += fixed
		e.skip = flags&0x3000 != 0 // a stage of a conflict
		if flags&0x8000 != 0 {     // assume unchanged: the user said not to look
			e.skip = true
		}
		if flags&0x4000 != 0 {
			if version < 3 || len(data)-at < 2 {
				return errIndex
			}
			if binary.BigEndian.Uint16(data[at:])&0x6000 != 0 { // skip-worktree, intent-to-add
				e.skip = true
			}
			at += 2
		}
		if version == 4 {
			strip, used := 0, 0
			for { // the number of git's pack format for offsets
				if at >= len(data) || used > 4 {
					return errIndex
				}
				b := data[at]
				at++
				if used > 0 {
					strip++
				}
				strip = strip<<7 | int(b&0x7f)
				used++
				if b&0x80 == 0 {
					break
				}
			}
			end := indexNUL(data, at)
			if end < 0 || strip > len(last) || len(last)-strip+end-at >= unix.PathMax {
				return errIndex
			}
			e.name = last[:len(last)-strip] + string(data[at:end])
			at = end + 1
		} else {
			end := indexNUL(data, at)
			if end < 0 {
				return errIndex
			}
			e.name = string(data[at:end])
			at = start + (end-start+8)/8*8 // one to eight NUL bytes
			if at > len(data) {
				return errIndex
			}
		}
		names += len(e.name)
		if e.name == "" || names > maxGitNames {
			return errIndex
		}
		last = e.name
		each(e)
	}
	return nil
}

func indexNUL(data []byte, at int) int {
	for i := at; i < len(data) && i-at <= unix.PathMax; i++ {
		if data[i] == 0 {
			return i
		}
	}
	return -1
}

// compareEntry tells whether a file of the work tree is what the index says: by its
// times and size, and where the times differ by its content. What git would convert
// (line ends, filters) cannot be told from a change by that.
func compareEntry(ws string, e indexEntry, left *int64) string {
	if e.skip || !safeEntry(e.name) {
		return "unknown"
	}
	name := path.Join(ws, e.name)
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return "changed"
	}
	switch e.mode & 0o170000 {
	case 0o160000: // a submodule has a state of its own
		return "unknown"
	case 0o120000:
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			return "changed"
		}
		to, err := os.Readlink(name)
		if err != nil {
			return "unknown"
		}
		return sameBlob(e, strings.NewReader(to), int64(len(to)))
	case 0o100000:
		if st.Mode&unix.S_IFMT != unix.S_IFREG || (st.Mode&0o100 != 0) != (e.mode&0o100 != 0) {
			return "changed"
		}
	default:
		return "unknown"
	}
	if uint32(st.Size) == e.size && [2]uint32{uint32(st.Mtim.Sec), uint32(st.Mtim.Nsec)} == e.mtime {
		return "clean"
	}
	if *left -= st.Size; *left < 0 {
		return "unknown"
	}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	})
	if err != nil {
		return "unknown"
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	return sameBlob(e, f, st.Size)
}

// sameBlob compares content with the object of an entry.
func sameBlob(e indexEntry, r io.Reader, size int64) string {
	h := sha1.New()
	if len(e.id) == 32 {
		h = sha256.New()
	}
	fmt.Fprintf(h, "blob %d\x00", size)
	n, err := io.Copy(h, io.LimitReader(r, size+1))
	switch {
	case err != nil:
		return "unknown"
	case n == size && string(h.Sum(nil)) == string(e.id):
		return "clean"
	}
	return "changed"
}

// safeEntry reports whether the name of an entry stays in the work tree.
func safeEntry(name string) bool {
	return name != "" && !path.IsAbs(name) && path.Clean(name) == name && name != ".." && !strings.HasPrefix(name, "../") && name != ".git" && !strings.HasPrefix(name, ".git/")
}
