//go:build cgo

package nsexec

/*
#include <signal.h>
#include <stddef.h>

static unsigned long long wall_ignored;

// Before the Go runtime installs its handlers, which is the last moment at
// which a process can tell what its caller made it ignore.
__attribute__((constructor)) static void wall_read_ignored(void) {
	struct sigaction act;
	for (int sig = 1; sig < 32; sig++)
		if (sigaction(sig, NULL, &act) == 0 && act.sa_handler == SIG_IGN)
			wall_ignored |= 1ULL << sig;
}

static unsigned long long wall_get_ignored(void) { return wall_ignored; }
*/
import "C"

// inheritedIgnored gives the signals that were ignored when the process
// started, as bits 1<<signal.
func inheritedIgnored() uint64 { return uint64(C.wall_get_ignored()) }
