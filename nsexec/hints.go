package nsexec

import (
	"errors"
	"syscall"
)

// Hints for the ways in which a host refuses user namespaces. The cause is what
// the kernel answered when it was tried; nothing is read from a sysctl.
const (
	hintAppArmor = "the host may restrict unprivileged user namespaces: on Ubuntu 24.04 load an AppArmor profile with \"userns,\" for wall or set kernel.apparmor_restrict_unprivileged_userns=0; in a container allow unshare, mount and pivot_root (docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined); see `wall doctor`"
	hintSysctl   = "on older Debian set kernel.unprivileged_userns_clone=1; in a container the seccomp profile may refuse it; see `wall doctor`"
	hintMax      = "user.max_user_namespaces (sysctl) is 0 or used up; raise it"
)

// hintPrivileged tells what to do when an act that needs a capability over the
// new namespaces is refused.
func hintPrivileged(err error) string {
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return hintAppArmor
	case errors.Is(err, syscall.ENOSYS):
		return "wall needs Linux 5.13 or newer"
	}
	return ""
}

// hintClone tells what to do when the namespaces cannot be made.
func hintClone(err error) string {
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return hintSysctl
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EUSERS):
		return hintMax
	case errors.Is(err, syscall.EINVAL):
		return "the kernel lacks a namespace type (CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS, CONFIG_UTS_NS, CONFIG_CGROUPS); see `wall doctor`"
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return "the process or memory limit of the caller is reached (ulimit -u)"
	}
	return ""
}
