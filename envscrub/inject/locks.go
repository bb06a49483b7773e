package inject

import (
	"strconv"
	"strings"
)

// lockHolder finds the process that holds the flock on the file with this inode
// number in the text of /proc/locks, 0 when it is not told. Device numbers are
// not compared: on some file systems the two sides differ.
//
//	1: FLOCK  ADVISORY  WRITE 1234 00:2b:5678 0 EOF
func lockHolder(locks string, inode uint64) int {
	suffix := ":" + strconv.FormatUint(inode, 10)
	for _, line := range strings.Split(locks, "\n") {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], suffix) {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return pid
		}
	}
	return 0
}
