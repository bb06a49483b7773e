package nsexec

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// A Feature is one facility of the kernel that a box is built from.
type Feature struct {
	Name   string // "user namespaces"
	OK     bool
	Detail string // what the kernel answered
	Remedy string // what to do when it is missing; "" when OK

	Optional bool // no wall depends on it
}

// probes are tried in this order, each in a process of its own with new
// namespaces of the kinds it needs.
var probes = []struct {
	name, what string
	spaces     []plan.SpaceKind
}{
	{"user namespaces", "none", nil},
	{"mount namespaces", "none", []plan.SpaceKind{plan.SpaceMount}},
	{"pid namespaces", "none", []plan.SpaceKind{plan.SpacePID}},
	{"network namespaces", "none", []plan.SpaceKind{plan.SpaceNet}},
	{"ipc namespaces", "none", []plan.SpaceKind{plan.SpaceIPC}},
	{"uts namespaces", "none", []plan.SpaceKind{plan.SpaceUTS}},
	{"cgroup namespaces", "none", []plan.SpaceKind{plan.SpaceCgroup}},
	{"mount API (open_tree, mount_setattr, move_mount)", "mounts", []plan.SpaceKind{plan.SpaceMount}},
	{"tmpfs", "tmpfs", []plan.SpaceKind{plan.SpaceMount}},
	{"procfs of the box", "proc", []plan.SpaceKind{plan.SpaceMount, plan.SpacePID}},
	{"sysfs of the box", "sysfs", []plan.SpaceKind{plan.SpaceMount, plan.SpaceNet}},
	{"private devpts", "devpts", []plan.SpaceKind{plan.SpaceMount}},
	{"private message queues", "mqueue", []plan.SpaceKind{plan.SpaceMount, plan.SpaceIPC}},
	{"overlays, for caches", "overlay", []plan.SpaceKind{plan.SpaceMount}},
	{"loopback interface", "loopback", []plan.SpaceKind{plan.SpaceMount, plan.SpaceNet}},
	{"redirection to wall (nftables), for allowed hosts", "redirect", []plan.SpaceKind{plan.SpaceMount, plan.SpaceNet}},
}

// Probe tries every facility that a box needs from namespaces and mounts, in
// throw-away processes, and changes nothing. An error means that trying itself
// was impossible.
func Probe(ctx context.Context) ([]Feature, error) {
	var out []Feature
	for _, p := range probes {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		f := Feature{Name: p.name, Optional: p.what == "overlay" || p.what == "redirect"}
		cloned, err := tryIn(p.what, p.spaces)
		switch {
		case err == nil:
			f.OK, f.Detail = true, "works"
		case !cloned:
			f.Detail, f.Remedy = err.Error(), hintClone(err)
		case p.what == "redirect":
			f.Detail, f.Remedy = err.Error(), strings.TrimSuffix(hintNftables, "; see `wall doctor`")
		case f.Optional:
			f.Detail, f.Remedy = err.Error(), "Linux 5.11 or newer with overlayfs; without it small caches are copied, larger ones are read-only or empty"
		default:
			f.Detail, f.Remedy = err.Error(), mountHint(plan.Mount{Op: plan.MountOp(p.what)}, err)
		}
		if !f.OK && f.Remedy == "" {
			f.Remedy = "this kernel was built without it"
		}
		out = append(out, f)
	}
	return out, nil
}

// tryIn runs one probe; cloned tells whether the namespaces could be made.
func tryIn(what string, spaces []plan.SpaceKind) (cloned bool, err error) {
	flags := uintptr(unix.CLONE_NEWUSER)
	for _, s := range spaces {
		flags |= cloneFlags[s]
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, pathError("open", "/dev/null", err)
	}
	defer unix.Close(null)
	pidfd := -1
	pid, err := forkBox([]string{initName, "probe", what}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{},
		Files: []uintptr{uintptr(null), uintptr(null), uintptr(null)},
		Sys:   boxAttr(flags, plan.Identity{UID: os.Getuid(), GID: os.Getgid()}, slices.Concat(buildCaps, overlayCaps, networkCaps), &pidfd),
	})
	if err != nil {
		return false, err
	}
	defer unix.Close(pidfd)
	var ws unix.WaitStatus
	if err := retry(func() error { _, err := unix.Wait4(pid, &ws, 0, nil); return err }); err != nil {
		return true, os.NewSyscallError("wait4", err)
	}
	switch {
	case ws.Signaled():
		return true, syscall.EINTR
	case ws.ExitStatus() == 0:
		return true, nil
	}
	return true, syscall.Errno(ws.ExitStatus())
}
