package lint

import (
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/profile"
)

// networkEntries takes the rest of a file apart: hosts, ports, caches, and limits of
// the run as a whole.
func networkEntries(f *profile.File, layer int) []entry {
	var es []entry
	hosts := func(key string, l profile.List[profile.HostPattern]) {
		if l.Set && len(l.Items) == 0 {
			es = append(es, entry{key: key, list: true, empty: true, layer: layer, origin: l.Origin})
		}
		for _, it := range l.Items {
			es = append(es, entry{key: key, val: it.V.String(), list: true, layer: layer, origin: it.Origin})
		}
	}
	ports := func(key string, l profile.List[uint16]) {
		if l.Set && len(l.Items) == 0 {
			es = append(es, entry{key: key, list: true, empty: true, layer: layer, origin: l.Origin})
		}
		for _, it := range l.Items {
			es = append(es, entry{key: key, val: strconv.Itoa(int(it.V)), list: true, layer: layer, origin: it.Origin})
		}
	}
	boolean := func(key string, v profile.Value[bool]) {
		if v.Set {
			es = append(es, entry{key: key, val: strconv.FormatBool(v.V), layer: layer, origin: v.Origin})
		}
	}
	num := func(key string, v profile.Value[uint64]) {
		if v.Set {
			es = append(es, entry{key: key, val: strconv.FormatUint(v.V, 10), layer: layer, origin: v.Origin})
		}
	}
	if f.Seed.Set && len(f.Seed.Items) == 0 {
		es = append(es, entry{key: "filesystem.seed", list: true, empty: true, layer: layer, origin: f.Seed.Origin})
	}
	for _, it := range f.Seed.Items {
		es = append(es, entry{key: "filesystem.seed", val: it.V.Path, list: true, why: it.V.Why, layer: layer, origin: it.Origin})
	}
	hosts("network.allow", f.NetAllow)
	hosts("network.deny", f.NetDeny)
	ports("network.loopback", f.Loopback)
	ports("network.publish", f.Publish)
	ports("network.ports", f.Ports)
	boolean("network.proxy-variables", f.ProxyVariables)
	boolean("network.check-sni", f.CheckSNI)
	if f.UpstreamProxy.Set {
		es = append(es, entry{key: "network.upstream-proxy", val: f.UpstreamProxy.V, layer: layer, origin: f.UpstreamProxy.Origin})
	}
	boolean("environment.inject", f.Inject)
	if f.Caches.Set && len(f.Caches.Items) == 0 {
		es = append(es, entry{key: "environment.caches.tools", list: true, empty: true, layer: layer, origin: f.Caches.Origin})
	}
	for _, it := range f.Caches.Items {
		es = append(es, entry{key: "environment.caches.tools", val: it.V, list: true, layer: layer, origin: it.Origin})
	}
	boolean("environment.caches.keep", f.CachesKeep)
	if f.CachesMethod.Set {
		es = append(es, entry{key: "environment.caches.method", val: f.CachesMethod.V, layer: layer, origin: f.CachesMethod.Origin})
	}
	num("limits.time", f.Time)
	num("limits.grace", f.Grace)
	num("limits.memory", f.Memory)
	num("limits.processes", f.Processes)
	num("limits.scratch", f.ScratchSize)
	num("limits.total-output", f.TotalOutput)
	if f.Output.Set {
		es = append(es, entry{key: "limits.output", val: f.Output.V.String(), layer: layer, origin: f.Output.Origin})
	}
	return es
}

// expandGroup gives the places that "@name" stands for, and any other path as
// it is. "@git" stands for itself: which files it means depends on the
// repository, and the usual ones are looked at.
func expandGroup(p string) []string {
	if !strings.HasPrefix(p, "@") {
		return []string{p}
	}
	paths, _ := profile.GroupPaths(p)
	if p == "@git" || p == "@persistence" {
		paths = append(paths, ".git/hooks", ".git/config", ".git/info", ".git/modules")
	}
	return paths
}

// refusedNetwork finds what wall refuses to run, whatever the host is.
func refusedNetwork(x *check) {
	before := ""
	for _, e := range x.refused {
		if msg := e.Error(); msg != before { // a list once
			f := x.at(e.Origin, "", msg)
			f.Fix = clean(e.Hint)
			before = msg
		}
	}
}
