package cgroup

import (
	"testing"

	"github.com/wallsandbox/wall/plan"
)

func TestParseHierarchies(t *testing.T) {
	const (
		v1 = "30 24 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n" +
			"31 24 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n" +
			"32 24 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
		v2        = "30 24 0:26 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		container = "30 24 0:26 /machine/a\\040b /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	)
	tests := []struct {
		name, mounts, own string
		want              hierarchies
	}{
		{"version 1", v1, "4:memory:/a/b\n8:pids:/\n0::/\n", hierarchies{
			unified: hierarchy{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified"},
			memory:  hierarchy{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/a/b"},
			pids:    hierarchy{"/sys/fs/cgroup/pids", "/sys/fs/cgroup/pids"}}},
		{"version 2", v2, "0::/user.slice/x.scope\n", hierarchies{unified: hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup/user.slice/x.scope"}}},
		{"root of a namespace", v2, "0::/\n", hierarchies{unified: hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup"}}},
		{"part of the tree", container, "0::/machine/a b/c\n", hierarchies{unified: hierarchy{"/sys/fs/cgroup", "/sys/fs/cgroup/c"}}},
		{"another part", container, "0::/machine/a bc\n", hierarchies{}},
		{"outside of the namespace", v2, "0::/../x\n", hierarchies{}},
		{"both on one mount", "30 24 0:26 / /cg rw - cgroup cgroup rw,pids,memory\n", "2:pids,memory:/x\n",
			hierarchies{memory: hierarchy{"/cg", "/cg/x"}, pids: hierarchy{"/cg", "/cg/x"}}},
		{"none", "30 24 0:26 / / rw - ext4 /dev/memory rw,memory\n", "0::/\n", hierarchies{}},
		{"broken", "x\n - cgroup2\n", ":\n\n", hierarchies{}},
	}
	for _, tt := range tests {
		if got := parseHierarchies(tt.mounts, tt.own); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestCandidates(t *testing.T) {
	h := hierarchies{unified: hierarchy{"/cg", "/cg/a/b"}}
	var got []string
	for _, c := range h.candidates(Need{Memory: true}, "ab") {
		if c.Version != 2 || c.Pids != "" || c.ID != "ab" {
			t.Errorf("%+v", c)
		}
		got = append(got, c.Memory)
	}
	if len(got) != 3 || got[0] != "/cg/a/b" || got[1] != "/cg/a" || got[2] != "/cg" {
		t.Errorf("%q, want from the caller's own upwards", got)
	}
	h = hierarchies{unified: hierarchy{"/u", "/u"}, memory: hierarchy{"/m", "/m/a"}, pids: hierarchy{"/p", "/p/b"}}
	if c := h.candidates(Need{true, true}, "ab"); len(c) != 1 || c[0] != (plan.Cgroup{Version: 1, ID: "ab", Memory: "/m/a", Pids: "/p/b"}) {
		t.Errorf("%+v", c)
	}
	if c := (hierarchies{pids: hierarchy{"/p", "/p"}}).candidates(Need{true, true}, "ab"); len(c) != 0 {
		t.Errorf("%+v without a memory controller", c)
	}
}
