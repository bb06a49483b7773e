package host

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStrictFS opens every kind of file, plainly and through links.
func TestStrictFS(t *testing.T) {
	d := realTemp(t)
	mkdir(t, d+"/dir/sub")
	if err := errors.Join(
		os.WriteFile(d+"/file", []byte("text"), 0o600), os.WriteFile(d+"/dir/b", nil, 0o600), os.WriteFile(d+"/dir/a", nil, 0o600),
		unix.Mkfifo(d+"/fifo", 0o600),
		os.Symlink("file", d+"/link"), os.Symlink("dir", d+"/dirlink"), os.Symlink("/dev/null", d+"/devlink"), os.Symlink("fifo", d+"/fifolink"),
	); err != nil {
		t.Fatal(err)
	}
	h, err := Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		want error
	}{
		{d + "/file", nil}, {d + "/dir", nil}, {"/", nil},
		{d + "/link", unix.ELOOP}, {d + "/dirlink", unix.ELOOP}, {d + "/dirlink/a", unix.ELOOP}, {d + "/devlink", unix.ELOOP}, {d + "/fifolink", unix.ELOOP},
		{"/proc/self/fd/0", unix.ELOOP}, {"/proc/self/root/etc", unix.ELOOP},
		{d + "/fifo", errNotFileOrDir}, {"/dev/null", errNotFileOrDir}, {"/dev/tty", errNotFileOrDir}, {"/dev/ptmx", errNotFileOrDir},
		{d + "/nosuch", fs.ErrNotExist}, {d + "/file/x", unix.ENOTDIR}, {d + "/dir/../file", fs.ErrInvalid},
	} {
		name := strings.TrimPrefix(tt.name, "/")
		if name == "" {
			name = "."
		}
		before, _ := os.ReadDir("/proc/self/fd")
		f, err := h.FS.Open(name)
		if err == nil {
			if flags, ferr := unix.FcntlInt(f.(*os.File).Fd(), unix.F_GETFD, 0); ferr != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("%s: descriptor flags %#x, %v", tt.name, flags, ferr)
			}
			f.Close()
		}
		if !errors.Is(err, tt.want) || err != nil && tt.want == nil {
			t.Errorf("open %s: %v, want %v", tt.name, err, tt.want)
		}
		entries, err := fs.ReadDir(h.FS, name)
		if tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("list %s: %v, %v, want %v", tt.name, entries, err, tt.want)
		}
		if after, _ := os.ReadDir("/proc/self/fd"); len(after) != len(before) {
			t.Errorf("%s: %d descriptors before, %d after", tt.name, len(before), len(after))
		}
	}
	f, err := h.FS.Open(strings.TrimPrefix(d, "/") + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	entries, err := fs.ReadDir(h.FS, strings.TrimPrefix(d, "/")+"/dir")
	if err != nil || len(entries) != 3 || entries[0].Name() != "a" || entries[2].Name() != "sub" || !entries[2].IsDir() {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestStrictFSUnderSwaps has somebody put other things in the place of a file all
// the time: what is opened is that file, or nothing.
func TestStrictFSUnderSwaps(t *testing.T) {
	d := realTemp(t)
	if err := errors.Join(
		os.WriteFile(d+"/file", []byte("mine"), 0o600), os.WriteFile(d+"/secret", []byte("secret"), 0o600),
		os.Symlink("secret", d+"/link"), unix.Mkfifo(d+"/fifo", 0o600),
	); err != nil {
		t.Fatal(err)
	}
	h, err := Gather()
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			with := []string{"/link", "/fifo"}[i%2]
			_ = unix.Renameat2(unix.AT_FDCWD, d+"/file", unix.AT_FDCWD, d+with, unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, d+"/file", unix.AT_FDCWD, d+with, unix.RENAME_EXCHANGE)
		}
	}()
	defer func() { close(stop); <-done }()
	opened := 0
	for range 5000 {
		f, err := h.FS.Open(strings.TrimPrefix(d, "/") + "/file")
		if err != nil {
			if !errors.Is(err, unix.ELOOP) && !errors.Is(err, errNotFileOrDir) && !errors.Is(err, unix.EAGAIN) {
				t.Fatal(err)
			}
			continue
		}
		opened++
		text, err := io.ReadAll(f)
		f.Close()
		if err != nil || string(text) != "mine" {
			t.Fatalf("%q, %v", text, err)
		}
	}
	if opened == 0 {
		t.Error("never opened")
	}
}
