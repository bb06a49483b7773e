package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKeptFDs(t *testing.T) {
	dir := t.TempDir()
	// The tests' own descriptors are close-on-exec, a duplicate is not.
	dup := func(name string, flags int) int {
		t.Helper()
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		d, err := unix.Dup(fd)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(d) })
		return d
	}
	file := dup(filepath.Join(dir, "file"), unix.O_CREAT|unix.O_RDWR)
	null := dup("/dev/null", unix.O_RDWR)

	got, err := keptFDs(fdList{fds: []int{null, file, null}}, -1)
	want := []int{file, null}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	got, err = keptFDs(fdList{all: true}, null)
	if err != nil || !slices.Contains(got, file) || slices.Contains(got, null) {
		t.Errorf("all but %d: got %v, %v", null, got, err)
	}
	for _, fd := range got {
		if !inherited(fd) {
			t.Errorf("all: %d is close-on-exec", fd)
		}
	}

	directory := dup(dir, unix.O_RDONLY)
	pathOnly := dup(filepath.Join(dir, "file"), unix.O_PATH)
	for _, tt := range []struct {
		l        fdList
		reserved int
		want     string
	}{
		{fdList{fds: []int{1_000_000_000}}, -1, "cannot pass descriptor 1000000000 to the command: it is not open"},
		{fdList{fds: []int{file}}, file, "it carries the report of --status-fd"},
		{fdList{fds: []int{directory}}, -1, "it is a directory"},
		{fdList{fds: []int{pathOnly}}, -1, "O_PATH"},
		{fdList{all: true}, -1, "it is a directory"},
	} {
		if _, err := keptFDs(tt.l, tt.reserved); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %q", tt.l, err, tt.want)
		}
	}
}
