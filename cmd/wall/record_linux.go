package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// readRecord reads the file of a record. A FIFO or a device is none.
func readRecord(name string, key []byte) (record, error) {
	data, _, err := readBounded(name, maxRecord)
	var rec record
	if err == nil {
		rec, err = decodeRecord(data, key)
	}
	if err != nil {
		return rec, &plan.Error{Op: "cannot use the record " + quoteOdd(name), Err: err, Hint: "take it again from where the gate wrote it"}
	}
	return rec, nil
}

// readRecordKey reads the key of --record-key, which nobody else may read.
func readRecordKey(name string) ([]byte, error) {
	if name == "" {
		return nil, nil
	}
	data, st, err := readBounded(name, 4096)
	key := bytes.TrimSpace(data)
	switch {
	case err != nil:
	case st.Mode&0o077 != 0:
		err = errors.New("others can read it")
	case len(key) < 16:
		err = errors.New("it has less than 16 bytes")
	}
	if err != nil {
		return nil, &plan.Error{Op: "cannot use the key " + quoteOdd(name), Origin: flagOrigin("--record-key " + quoteOdd(name)), Err: err,
			Hint: "for example: (umask 077; head -c 32 /dev/urandom | base64 >record.key)"}
	}
	return key, nil
}

// maxTools bounds the programs that are looked at for one command.
const maxTools = 20

// toolsOf gives the programs that the command of a plan is known to run: the
// program itself, the interpreter of a script, and, of a line for /bin/sh, what the
// words of the line name in the PATH of the box.
func toolsOf(p plan.Plan) []recordTool {
	var names []string
	add := func(name string) {
		if len(names) < maxTools && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	add(p.Command.Path)
	if argv := p.Command.Argv; len(argv) == 3 && path.Base(argv[0]) == "sh" && argv[1] == "-c" {
		for _, w := range strings.FieldsFunc(argv[2], func(r rune) bool { return strings.ContainsRune(" \t\n;|&()<>{}!", r) }) {
			if strings.ContainsAny(w, "/=\"'$`\\*?~") {
				continue
			}
			if t := inPath(p, w); t != "" {
				add(t)
			}
		}
	}
	var tools []recordTool
	for i := 0; i < len(names); i++ { // grows by interpreters
		t, interpreter, err := describeTool(names[i])
		if err != nil {
			continue // it is not there outside of the box, or not ours to read
		}
		tools = append(tools, t)
		if interpreter != "" {
			add(interpreter)
		}
	}
	return tools
}

// inPath looks a word up as the shell of the box would.
func inPath(p plan.Plan, word string) string {
	i := slices.IndexFunc(p.Env, func(v plan.EnvVar) bool { return v.Name == "PATH" })
	if i < 0 {
		return ""
	}
	for dir := range strings.SplitSeq(p.Env[i].Value, ":") {
		if !path.IsAbs(dir) {
			continue
		}
		name := path.Join(dir, word)
		var st unix.Stat_t
		if unix.Stat(name, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mode&0o111 != 0 {
			return name
		}
	}
	return ""
}

// maxToolSize bounds the programs whose content is compared.
const maxToolSize = 512 << 20

// describeTool reads a program, and gives the interpreter that its first line names.
func describeTool(name string) (recordTool, string, error) {
	t := recordTool{Path: name}
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return t, "", err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return t, "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxToolSize {
		return t, "", errNotRegularFile
	}
	t.Size = st.Size
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		return t, "", err
	}
	h := sha256.New()
	h.Write(head[:n])
	if _, err := io.Copy(h, io.LimitReader(f, maxToolSize)); err != nil {
		return t, "", err
	}
	t.SHA256 = hex.EncodeToString(h.Sum(nil))
	interpreter := ""
	if line, ok := strings.CutPrefix(string(head[:n]), "#!"); ok {
		line, _, _ = strings.Cut(line, "\n")
		if f := strings.Fields(line); len(f) > 0 && path.IsAbs(f[0]) {
			interpreter = f[0]
		}
	}
	return t, interpreter, nil
}

// realPath is a directory free of links.
func realPath(name string) (string, error) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(real, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "", unix.ENOTDIR
	}
	return real, nil
}
