package main

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ipcKey is the System V key that serve uses for a nonce.
func ipcKey(nonce string) int { return int(crc32.ChecksumIEEE([]byte(nonce)) & 0x7fffffff) }

// serve makes one of everything that another process of the same user could
// reach, prints "ready KEY PORT", and waits.
func serve(nonce string) {
	for _, path := range []string{"/tmp/" + nonce, "/var/tmp/" + nonce, "/dev/shm/" + nonce} {
		if err := os.WriteFile(path, []byte(nonce), 0o600); err != nil {
			fatal("%v", err)
		}
		defer os.Remove(path)
	}
	for _, addr := range []string{"@" + nonce, "/tmp/" + nonce + ".sock"} {
		l, err := net.Listen("unix", addr)
		if err != nil {
			fatal("%v", err)
		}
		defer l.Close()
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fatal("%v", err)
	}
	key := ipcKey(nonce)
	shm, _, e := unix.Syscall(unix.SYS_SHMGET, uintptr(key), 4096, 0o1000|0o600)
	if e != 0 {
		fatal("shmget: %v", e)
	}
	msg, _, e := unix.Syscall(unix.SYS_MSGGET, uintptr(key), 0o1000|0o600, 0)
	if e != 0 {
		fatal("msgget: %v", e)
	}
	sem, _, e := unix.Syscall(unix.SYS_SEMGET, uintptr(key), 1, 0o1000|0o600)
	if e != 0 {
		fatal("semget: %v", e)
	}
	if err := mqOpen(nonce, unix.O_RDWR|unix.O_CREAT); err != nil {
		fatal("mq_open: %v", err)
	}
	fmt.Println("ready", key, l.Addr().(*net.TCPAddr).Port)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
	for _, rm := range [][2]uintptr{{unix.SYS_SHMCTL, shm}, {unix.SYS_MSGCTL, msg}} {
		_ = sys(rm[0], rm[1], 0 /* IPC_RMID */, 0)
	}
	_ = sys(unix.SYS_SEMCTL, sem, 0, 0 /* IPC_RMID */)
	_ = sysPath(unix.SYS_MQ_UNLINK, nonce)
}

// grepProc searches every readable regular file below dir, which is /proc or a
// directory in it, for the words of a file. It prints "FILE: WORD" for
// each find and "searched N files" at the end. The memory of this process is
// left out, since it holds the words by itself.
func grepProc(file, dir string) {
	data, err := os.ReadFile(file)
	if err != nil {
		fatal("%v", err)
	}
	words := strings.Fields(string(data))
	searched := 0
	self := fmt.Sprintf("/proc/%d/", os.Getpid())
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() {
			return nil
		}
		if !d.Type().IsRegular() || path == "/proc/kmsg" || path == "/proc/kcore" || path == "/proc/kpagecount" ||
			strings.HasPrefix(path, "/proc/kpage") || strings.HasSuffix(path, "/pagemap") || strings.HasSuffix(path, "/clear_refs") {
			return nil
		}
		own := strings.HasPrefix(path, self) || strings.HasPrefix(path, "/proc/self/") || strings.HasPrefix(path, "/proc/thread-self/")
		if strings.HasSuffix(path, "/mem") {
			if !own {
				grepMem(path, words, &searched)
			}
			return nil
		}
		content := readSome(path)
		if content == nil {
			return nil
		}
		searched++
		for _, w := range words {
			if bytes.Contains(content, []byte(w)) {
				fmt.Printf("%s: %s\n", path, w)
			}
		}
		return nil
	})
	fmt.Printf("searched %d files\n", searched)
}

// readSome reads up to 4 MiB without ever waiting longer than a moment.
func readSome(path string) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	out := []byte{}
	buf := make([]byte, 1<<16)
	for end := time.Now().Add(time.Second); len(out) < 4<<20 && time.Now().Before(end); {
		n, err := unix.Read(fd, buf)
		if n <= 0 || err != nil {
			break
		}
		out = append(out, buf[:n]...)
	}
	return out
}

// grepMem searches the writable memory of another process.
func grepMem(path string, words []string, searched *int) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	*searched++
	for _, line := range strings.Split(slurp(filepath.Dir(path)+"/maps"), "\n") {
		var lo, hi uint64
		if n, _ := fmt.Sscanf(line, "%x-%x", &lo, &hi); n != 2 || hi-lo > 64<<20 {
			continue
		}
		buf := make([]byte, hi-lo)
		n, _ := unix.Pread(fd, buf, int64(lo))
		for _, w := range words {
			if n > 0 && bytes.Contains(buf[:n], []byte(w)) {
				fmt.Printf("%s: %s\n", path, w)
			}
		}
	}
}
