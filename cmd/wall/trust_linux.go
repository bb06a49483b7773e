package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

var (
	errNotRegularFile = errors.New("not a regular file")
	errFileTooLarge   = errors.New("the file is too large")
	errForeign        = errors.New("it belongs to another user")
	errOthersWrite    = errors.New("others can write it")
	errNoStore        = errors.New("the account has no home directory")
)

// readBounded reads a regular file of at most most bytes. It neither follows a
// link in the last place nor waits for a writer of a FIFO.
func readBounded(p string, most int64) ([]byte, unix.Stat_t, error) {
	var st unix.Stat_t
	f, err := os.OpenFile(p, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		if errors.Is(err, unix.ELOOP) {
			err = errNotRegularFile // O_NOFOLLOW met a link, open(2)
		}
		return nil, st, bareError(err)
	}
	defer f.Close()
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, st, os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, st, errNotRegularFile
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = errFileTooLarge
	}
	return data, st, bareError(err)
}

// bareError takes the path off an error whose message names it already.
func bareError(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// readProject reads a project layer as Resolve does.
func readProject(p string) ([]byte, error) {
	data, _, err := readBounded(p, profile.MaxFileSize)
	return data, err
}

// maxTrustStore bounds the trust store, in bytes; Resolve reads no more either.
const maxTrustStore = 1 << 20

// readTrust reads the trust store; one that does not exist is empty.
func readTrust(store string) ([]profile.TrustEntry, error) {
	fail := func(err error, hint string) ([]profile.TrustEntry, error) {
		return nil, &plan.Error{Op: "cannot use the trust store " + quoteOdd(store), Err: err, Hint: hint}
	}
	if store == "" {
		return fail(errNoStore, "set XDG_STATE_HOME to a directory")
	}
	data, st, err := readBounded(store, maxTrustStore)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return fail(err, "")
	}
	if err := ownedAlone(st); err != nil {
		return fail(err, "it must be yours alone; look at what it says before you change that")
	}
	all, err := profile.ParseTrust(data)
	if err != nil {
		return fail(err, "remove the line")
	}
	return all, nil
}

// ownedAlone reports how somebody but the caller and root could change a file.
func ownedAlone(st unix.Stat_t) error {
	if st.Uid != 0 && int(st.Uid) != os.Getuid() {
		return errForeign
	}
	if st.Mode&0o022 != 0 {
		return errOthersWrite
	}
	return nil
}

// editTrust changes the trust store: under a lock, so that no change of another
// wall is lost, and by renaming a complete file over it, so that no run ever
// reads half of it.
func editTrust(store string, edit func([]profile.TrustEntry) ([]profile.TrustEntry, error)) (err error) {
	fail := func(err error) error {
		return &plan.Error{Op: "cannot write the trust store " + quoteOdd(store), Err: bareError(err)}
	}
	if store == "" {
		return fail(errNoStore)
	}
	dir := filepath.Dir(store)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return fail(err)
	}
	defer d.Close() // ends the lock
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return fail(os.NewSyscallError("fstat", err))
	}
	if err := ownedAlone(st); err != nil {
		return &plan.Error{Op: "cannot use the directory " + quoteOdd(dir) + " for the trust store", Err: err, Hint: "it must be writable for you alone"}
	}
	for {
		err = unix.Flock(int(d.Fd()), unix.LOCK_EX)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return fail(os.NewSyscallError("flock", err))
	}
	all, err := readTrust(store)
	if err != nil {
		return err
	}
	if all, err = edit(all); err != nil {
		return err
	}
	data := profile.FormatTrust(all)
	if len(data) > maxTrustStore {
		return fail(errFileTooLarge)
	}
	tmp, err := os.CreateTemp(dir, ".trust-*") // mode 0600
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(tmp.Name()))
		}
	}()
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync() // the rename must not become durable before the content
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fail(err)
	}
	if err = os.Rename(tmp.Name(), store); err != nil {
		return fail(err)
	}
	return nil
}

func removeIfThere(p string) error {
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
