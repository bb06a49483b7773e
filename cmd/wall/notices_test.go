package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

func TestCautions(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := dir + "/u"
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("u", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	net := []plan.Space{{Kind: plan.SpaceUser}, {Kind: plan.SpaceNet}}
	bind := func(p string, a plan.Access) plan.Mount {
		return plan.Mount{Op: plan.OpBind, Target: p, Source: p, Access: a}
	}
	for _, tt := range []struct {
		name string
		p    plan.Plan
		want []string // the beginning of each
	}{
		{"all walls", plan.Plan{Enforce: plan.EnforceFSNet, Spaces: net}, nil},
		{"off", plan.Plan{Enforce: plan.EnforceOff}, []string{"no wall is up"}},
		{"fs", plan.Plan{Enforce: plan.EnforceFS, Spaces: net[:1]}, []string{"the wall of the network is down"}},
		{"host network", plan.Plan{Enforce: plan.EnforceFSNet, Spaces: net[:1]}, []string{"the network is the host's"}},
		{"home", plan.Plan{Enforce: plan.EnforceFSNet, Spaces: net, Mounts: []plan.Mount{{Op: plan.OpHostRoot, Target: "/"}, bind(home, plan.AccessWrite), {Op: plan.OpPin, Target: home}}},
			[]string{"the whole home directory is writable"}},
		{"a parent of it", plan.Plan{Enforce: plan.EnforceFSNet, Spaces: net, Mounts: []plan.Mount{{Op: plan.OpEmptyRoot, Target: "/"}, bind(dir, plan.AccessWrite), bind(home+"/x", plan.AccessRead)}},
			[]string{"the whole home directory is writable"}},
		{"a directory in it", plan.Plan{Enforce: plan.EnforceFSNet, Spaces: net, Mounts: []plan.Mount{{Op: plan.OpHostRoot, Target: "/"}, bind(home+"/x", plan.AccessWrite)}}, nil},
		{"a namesake", plan.Plan{Enforce: plan.EnforceFSNet, Spaces: net, Mounts: []plan.Mount{bind(home+"2", plan.AccessWrite)}}, nil},
		{"read-only in a writable parent", plan.Plan{Enforce: plan.EnforceFSNet, Spaces: net, Mounts: []plan.Mount{bind(dir, plan.AccessWrite), bind(home, plan.AccessRead)}}, nil},
		{"protected in a writable parent", plan.Plan{Enforce: plan.EnforceFSNet, Spaces: net, Mounts: []plan.Mount{bind(dir, plan.AccessWrite), {Op: plan.OpProtect, Target: home}}}, nil},
		{"a private one in a writable parent", plan.Plan{Enforce: plan.EnforceFSNet, Spaces: net, Mounts: []plan.Mount{bind(dir, plan.AccessWrite), {Op: plan.OpScratch, Target: home, Source: "home"}}}, nil},
		{"both", plan.Plan{Enforce: plan.EnforceFS, Mounts: []plan.Mount{bind(home, plan.AccessWrite)}}, []string{"the wall of the network is down", "the whole home directory is writable"}},
	} {
		for _, h := range []profile.Host{{AccountHome: home}, {AccountHome: dir + "/link"}, {Environ: []string{"HOME=/nowhere", "HOME=" + home}}} {
			got := cautions(tt.p, h)
			if len(got) != len(tt.want) {
				t.Errorf("%s: %v", tt.name, got)
				continue
			}
			for i := range got {
				if !strings.HasPrefix(got[i].Text, tt.want[i]) || !got[i].Origin.IsZero() || got[i].Hint != "" {
					t.Errorf("%s: %+v, want one line with %q", tt.name, got[i], tt.want[i])
				}
			}
		}
	}
	for _, h := range []profile.Host{{}, {AccountHome: dir + "/gone"}, {Environ: []string{"HOME=relative"}}} {
		if got := realHome(h); got != "" {
			t.Errorf("realHome(%+v) = %q", h, got)
		}
	}
}
