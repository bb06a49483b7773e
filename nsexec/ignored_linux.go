package nsexec

import (
	"os/signal"
	"syscall"
)

// keepIgnored are the signals that stay ignored when the caller ignores them,
// as execve(2) has it. Not among them are SIGPIPE and SIGCHLD, which callers
// ignore for their own sake, and those that the Go runtime needs or that report
// faults.
var keepIgnored = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGWINCH, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM,
	syscall.SIGIO, syscall.SIGPWR,
}

// inheritIgnored makes this process, and so what it starts, ignore what its
// caller had it ignore. The Go runtime undoes that at its start, except for SIGHUP and SIGINT.
func inheritIgnored() {
	set := inheritedIgnored()
	if set == 0 {
		return
	}
	for _, s := range keepIgnored {
		if set&(1<<s) != 0 {
			signal.Ignore(s)
		}
	}
}
