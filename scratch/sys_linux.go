package scratch

import (
	"errors"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// retry repeats a system call that a signal interrupted.
func retry(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// openat2 opens path below dir; the descriptor is close-on-exec.
func openat2(dir int, path string, flags, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolve}
	if flags&unix.O_CREAT != 0 {
		how.Mode = 0o600
	}
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Openat2(dir, path, &how)
		return err
	})
	if err != nil {
		return -1, err
	}
	return fd, nil
}

// openDirAt opens the real directory name in dir for reading, neither through a
// link nor over a mount point, and makes it usable by its owner when it is
// not: hostile trees and strange umasks leave directories of mode 0000.
func openDirAt(dir int, name string) (int, error) {
	const resolve = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV
	fd, err := openat2(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, resolve)
	if err != unix.EACCES {
		return fd, err
	}
	handle, err := openat2(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, resolve)
	if err != nil {
		return -1, err
	}
	defer unix.Close(handle)
	if err := chmodHandle(handle, 0o700); err != nil {
		return -1, unix.EACCES
	}
	return openat2(handle, ".", unix.O_RDONLY|unix.O_DIRECTORY, resolve)
}

// chmodHandle changes the mode of what an O_PATH descriptor refers to, which
// fchmod(2) refuses: fchmodat2 with AT_EMPTY_PATH since Linux 6.6, before that
// through procfs.
func chmodHandle(fd int, mode uint32) error {
	var empty byte
	_, _, errno := unix.Syscall6(unix.SYS_FCHMODAT2, uintptr(fd), uintptr(unsafe.Pointer(&empty)), uintptr(mode), unix.AT_EMPTY_PATH, 0, 0)
	if errno == 0 {
		return nil
	}
	if errno != unix.ENOSYS && errno != unix.EPERM {
		return errno
	}
	return retry(func() error { return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode) })
}

// tryLock takes an flock without waiting; false when someone else has it.
func tryLock(fd, how int) (bool, error) {
	err := retry(func() error { return unix.Flock(fd, how|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		return false, nil
	}
	if err != nil {
		return false, os.NewSyscallError("flock", err)
	}
	return true, nil
}

var errBusy = errors.New("another wall process holds its lock")

// lock takes an exclusive flock that others hold for moments only. It does
// not wait for ever: whoever holds it may be stopped.
func lock(fd int) error {
	deadline := time.Now().Add(10 * time.Second)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		ok, err := tryLock(fd, unix.LOCK_EX)
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errBusy
		}
		time.Sleep(pause)
	}
}

// isLinked reports whether name in dir is what fd refers to.
func isLinked(dir int, name string, fd int) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Fstat(fd, &b); err != nil {
		return false, os.NewSyscallError("fstat", err)
	}
	err := unix.Fstatat(dir, name, &a, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, os.NewSyscallError("fstatat", err)
	}
	return a.Dev == b.Dev && a.Ino == b.Ino, nil
}

// A file is what statx(2) tells of one.
type file struct {
	mode, uid, nlink uint32
	dev, ino         uint64
	born             stamp // zero where the file system does not say
	changed          stamp // its last change of any kind, never before born
}

// look describes name in dir, no link followed, or dir itself for "".
func look(dir int, name string) (file, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var st unix.Statx_t
	if err := retry(func() error { return unix.Statx(dir, name, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st) }); err != nil {
		return file{}, os.NewSyscallError("statx", err)
	}
	f := file{
		mode: uint32(st.Mode), uid: st.Uid, nlink: st.Nlink,
		dev: unix.Mkdev(st.Dev_major, st.Dev_minor), ino: st.Ino,
		changed: stamp{st.Ctime.Sec, st.Ctime.Nsec},
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		f.born = stamp{st.Btime.Sec, st.Btime.Nsec}
	}
	return f, nil
}

// before reports whether f is older than t; where the file system does not say
// when it was made, its last change has to do.
func (f file) before(t stamp) bool {
	if f.born == (stamp{}) {
		return f.changed.before(t)
	}
	return f.born.before(t)
}

// writeAll writes data to fd.
func writeAll(fd int, data []byte) error {
	for len(data) > 0 {
		var n int
		err := retry(func() (err error) {
			n, err = unix.Write(fd, data)
			return err
		})
		if err != nil {
			return os.NewSyscallError("write", err)
		}
		data = data[n:]
	}
	return nil
}

// readAll reads fd to its end, at most limit bytes; more is EFBIG.
func readAll(fd, limit int) ([]byte, error) {
	data := make([]byte, 0, 512)
	for {
		if len(data) > limit {
			return nil, unix.EFBIG
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		var n int
		err := retry(func() (err error) {
			n, err = unix.Read(fd, data[len(data):cap(data)])
			return err
		})
		if err != nil {
			return nil, os.NewSyscallError("read", err)
		}
		if n == 0 {
			return data, nil
		}
		data = data[:len(data)+n]
	}
}

// A dirent is one directory entry.
type dirent struct {
	name string
	typ  byte // DT_*
}

// eachEntry calls f for every entry of the directory fd but "." and "..",
// reading buf at a time; removing the entry in f is fine.
func eachEntry(fd int, buf []byte, f func(dirent)) error {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return os.NewSyscallError("lseek", err)
	}
	for {
		var n int
		err := retry(func() (err error) {
			n, err = unix.Getdents(fd, buf)
			return err
		})
		if err == unix.ENOENT { // the directory itself was removed
			return nil
		}
		if err != nil {
			return os.NewSyscallError("getdents64", err)
		}
		if n == 0 {
			return nil
		}
		parseDirents(buf[:n], f)
	}
}

// parseDirents walks the records of getdents64(2):
// struct linux_dirent64 { u64 ino; s64 off; u16 reclen; u8 type; char name[]; }.
func parseDirents(buf []byte, f func(dirent)) {
	const header = 19
	for len(buf) >= header {
		reclen := int(*(*uint16)(unsafe.Pointer(&buf[16])))
		if reclen < header || reclen > len(buf) {
			return
		}
		name := buf[header:reclen]
		for i, c := range name {
			if c == 0 {
				name = name[:i]
				break
			}
		}
		if s := string(name); s != "." && s != ".." && s != "" {
			f(dirent{s, buf[18]})
		}
		buf = buf[reclen:]
	}
}
