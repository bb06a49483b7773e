package main

import (
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
)

func TestSummarize(t *testing.T) {
	p := plan.Plan{
		Profile: "gate", Enforce: plan.EnforceFSNet,
		Command: plan.Command{Path: "/bin/sh", Dir: "/w/sub"},
		Spaces:  []plan.Space{{Kind: plan.SpaceUser}, {Kind: plan.SpaceNet}},
		Mounts: []plan.Mount{
			{Op: plan.OpHostRoot, Target: "/"},
			{Op: plan.OpTmpfs, Target: "/dev"},
			{Op: plan.OpTmpfs, Target: "/dev/shm"},
			{Op: plan.OpCover, Target: "/etc/shadow"},
			{Op: plan.OpProc, Target: "/proc"},
			{Op: plan.OpCover, Target: "/proc/keys"},
			{Op: plan.OpProtect, Target: "/proc/sys"},
			{Op: plan.OpCover, Target: "/home/u/.ssh"},
			{Op: plan.OpScratch, Target: "/tmp", Source: "tmp"},
			{Op: plan.OpBind, Target: "/w", Source: "/w", Access: plan.AccessWrite},
			{Op: plan.OpPin, Target: "/w/.git"},
			{Op: plan.OpProtect, Target: "/w/.git/a b"},
			{Op: plan.OpSeal, Target: "/dev"},
		},
		Seccomp: plan.Seccomp{Profile: "default"},
		Env: []plan.EnvVar{
			{Name: "HOME", Value: "/home/u", Reason: "fixed: home"}, {Name: "LANG", Value: "hunter2", Reason: "base: gate table"},
			{Name: "MODE", Value: "hunter2", Reason: "flag --env"}, {Name: "TOKEN", Value: "hunter2", Reason: "pass"},
		},
		Dropped: []plan.EnvDrop{{Name: "A", Reason: "strict"}},
	}
	want := `command    /bin/sh in /w/sub (profile gate, enforce fs+net)
workspace  /w, writable
readable   the whole host, but for 2 hidden places: /etc/shadow /home/u/.ssh
writable   /w; private to the run: /dev/shm /tmp
protected  1 place: "/w/.git/a b"
home       the real one, read-only
network    none, but a loopback interface of its own
syscalls   filter default
variables  LANG TOKEN from the caller; 2 made for the box; 1 stay outside
`
	if got := summarize(p, "/w", "/home/u"); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}

	for _, tt := range []struct {
		name string
		edit func(*plan.Plan)
		home string
		want string // a line
	}{
		{"read-only workspace", func(p *plan.Plan) { p.Mounts[9].Access = plan.AccessRead }, "", "workspace  /w, read-only"},
		{"nothing writable", func(p *plan.Plan) { p.Mounts = p.Mounts[:1] }, "", "writable   nothing of the host"},
		{"empty root", func(p *plan.Plan) { p.Mounts[0].Op = plan.OpEmptyRoot }, "/home/u", "home       not there"},
		{"only the system", func(p *plan.Plan) { p.Mounts[0].Op, p.Mounts = plan.OpEmptyRoot, p.Mounts[:3] }, "", "readable   only the system and what is granted"},
		{"no account", func(*plan.Plan) {}, "", "home       the account has none"},
		{"private home", func(p *plan.Plan) {
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpScratch, Target: "/home/u", Source: "home"})
		}, "/home/u", "home       a private one, removed at the end"},
		{"seeded home", func(p *plan.Plan) {
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpScratch, Target: "/home/u", Source: "home"})
			p.Scratch.Seeds = make([]plan.Seed, 2)
		}, "/home/u", "home       a private one, removed at the end, with a copy of up to 2 files"},
		{"hidden home", func(p *plan.Plan) {
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpTmpfs, Target: "/home/u"}, plan.Mount{Op: plan.OpSeal, Target: "/home/u"})
		}, "/home/u", "home       hidden, but for what is granted"},
		{"writable home", func(p *plan.Plan) {
			p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpBind, Target: "/home", Source: "/home", Access: plan.AccessWrite})
		}, "/home/u", "home       the real one, writable"},
		{"host network", func(p *plan.Plan) { p.Spaces = p.Spaces[:1] }, "", "network    the host's"},
		{"no filter", func(p *plan.Plan) { p.Seccomp = plan.Seccomp{} }, "", "syscalls   not filtered"},
		{"off", func(p *plan.Plan) { *p = plan.Plan{Enforce: plan.EnforceOff} }, "", "files      everything that you can read and write"},
		{"no variable", func(p *plan.Plan) { p.Env = nil }, "", "variables  none from the caller; 0 made for the box; 1 stay outside"},
		{"many", func(p *plan.Plan) {
			for _, s := range []string{"a", "b", "c", "d", "e"} {
				p.Mounts = append(p.Mounts, plan.Mount{Op: plan.OpProtect, Target: "/w/" + s})
			}
		}, "", `protected  6 places: "/w/.git/a b" /w/a /w/b /w/c ...`},
		{"lost", func(p *plan.Plan) {
			p.Degraded = []plan.Degraded{{Wall: plan.WallLandlock, Lost: "one promise", Cause: "no\nLandlock"}}
		}, "", "degraded   landlock: one promise (no?Landlock)"},
		{"noticed", func(p *plan.Plan) { p.Notices = []plan.Notice{{Text: "some thing"}} }, "", "notice     some thing"},
	} {
		q := p
		q.Mounts = append([]plan.Mount(nil), p.Mounts...)
		tt.edit(&q)
		got := summarize(q, "/w", tt.home)
		if !strings.Contains("\n"+got, "\n"+tt.want+"\n") {
			t.Errorf("%s: lacks %q:\n%s", tt.name, tt.want, got)
		}
		if strings.Contains(got, "hunter2") {
			t.Errorf("%s: the value of a variable shows", tt.name)
		}
	}
}
