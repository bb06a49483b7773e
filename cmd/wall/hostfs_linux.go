package main

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// hostFS is the host's tree, read-only, for files that the user names. It differs from os.DirFS("/") in that
// opening never blocks: a workspace may hold a FIFO where a file is expected.
type hostFS struct{ fs.ReadLinkFS }

// Open implements fs.FS.
func (h hostFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := os.OpenFile("/"+name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ReadDir implements fs.ReadDirFS.
func (h hostFS) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(h.ReadLinkFS, name) }

// Stat implements fs.StatFS.
func (h hostFS) Stat(name string) (fs.FileInfo, error) { return fs.Stat(h.ReadLinkFS, name) }
