package lint

import (
	"net/netip"
	"slices"
	"strings"
)

// The whole public suffix list (golang.org/x/net/publicsuffix) brings net/http
// into the binary: 3 MB, and 1.9 ms more until main (of 1.5 ms, measured), for every
// "wall run", too. A pattern "*.X" covers a whole public suffix when X has one
// label (that is the list's default rule), when it is a country's second level
// of a usual name, or when it is a service that gives names to everybody; the
// list here has the big ones. A test compares it with the whole list.

// secondLevels are the labels under which countries register names: co.uk,
// com.au, or.jp.
var secondLevels = []string{
	"ac", "co", "com", "ed", "edu", "gen", "go", "gob", "gov", "gouv", "gr", "id", "info", "ltd", "me", "mil",
	"ne", "net", "nom", "or", "org", "plc", "sch", "school", "web",
}

// sharedSuffixes are names under which everybody can register or publish:
// private entries of the public suffix list.
var sharedSuffixes = []string{
	"github.io", "githubusercontent.com", "gitlab.io", "pages.dev", "workers.dev", "vercel.app", "now.sh", "netlify.app", "herokuapp.com",
	"web.app", "firebaseapp.com", "appspot.com", "run.app", "blogspot.com", "cloudfront.net", "azurewebsites.net", "azurestaticapps.net",
	"cloudapp.net", "cloudapp.azure.com", "blob.core.windows.net", "web.core.windows.net", "s3.amazonaws.com", "elb.amazonaws.com",
	"elasticbeanstalk.com", "awsapprunner.com", "amplifyapp.com", "on.aws", "fly.dev", "onrender.com", "railway.app", "up.railway.app", "deno.dev",
	"surge.sh", "glitch.me", "ngrok.io", "ngrok.app", "ngrok-free.app", "ngrok-free.dev", "trycloudflare.com", "loca.lt", "serveo.net",
	"digitaloceanspaces.com", "ondigitalocean.app", "r2.dev", "backblazeb2.com", "wixsite.com", "weebly.com", "readthedocs.io",
	"neocities.org", "bitbucket.io", "pythonanywhere.com", "replit.app", "repl.co", "stackblitz.io", "webcontainer.io", "supabase.co", "hf.space",
	"duckdns.org", "dyndns.org", "no-ip.org", "ddns.net", "ts.net", "myshopify.com", "wordpress.com", "translate.goog", "googleapis.com", "usercontent.goog",
}

// hostOf splits "HOST[:PORT]" of an allow list and brings the host into lower
// case without a final dot. An IPv6 address may stand in brackets.
func hostOf(s string) (host, port string) {
	if rest, ok := strings.CutPrefix(s, "["); ok {
		host, port, _ = strings.Cut(rest, "]")
		return strings.ToLower(host), strings.TrimPrefix(port, ":")
	}
	host = s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && strings.Count(s, ":") == 1 {
		host, port = s[:i], s[i+1:]
	}
	return strings.TrimSuffix(strings.ToLower(host), "."), port
}

// publicSuffix reports whether names below host belong to unrelated people.
func publicSuffix(host string) bool {
	if host == "" {
		return false
	}
	labels := strings.Split(host, ".")
	switch {
	case len(labels) == 1:
		return true
	case len(labels) == 2 && len(labels[1]) == 2 && slices.Contains(secondLevels, labels[0]):
		return true
	case slices.Contains(sharedSuffixes, host):
		return true
	}
	return regional(labels)
}

// regional recognises the per-region names of object stores and the like:
// s3.eu-west-1.amazonaws.com, eu-west-1.elb.amazonaws.com, fra1.digitaloceanspaces.com.
func regional(labels []string) bool {
	n := len(labels)
	switch host := strings.Join(labels, "."); {
	case strings.HasSuffix(host, ".amazonaws.com"):
		return n <= 5 && (strings.HasPrefix(host, "s3") || strings.Contains(host, "execute-api") || strings.Contains(host, "elb"))
	case host == "amazonaws.com", host == "windows.net", host == "core.windows.net", host == "azure.com", host == "googleusercontent.com":
		return true
	case strings.HasSuffix(host, ".digitaloceanspaces.com"), strings.HasSuffix(host, ".backblazeb2.com"), strings.HasSuffix(host, ".r2.cloudflarestorage.com"):
		return n == 3
	}
	return false
}

// uploads are hosts that take data from anybody, or from anybody with an
// account of their own: what is sent there leaves, whoever's box it is.
var uploads = []place{
	{"gist.github.com", "anyone can post a gist"}, {"pastebin.com", "anyone can post a paste"}, {"paste.ee", "anyone can post a paste"}, {"hastebin.com", "anyone can post a paste"},
	{"dpaste.org", "anyone can post a paste"}, {"dpaste.com", "anyone can post a paste"}, {"paste.rs", "anyone can post a paste"}, {"ix.io", "anyone can post a paste"}, {"sprunge.us", "anyone can post a paste"},
	{"termbin.com", "anyone can post a paste"}, {"rentry.co", "anyone can post a page"}, {"telegra.ph", "anyone can post a page"}, {"bpa.st", "anyone can post a paste"}, {"paste.debian.net", "anyone can post a paste"},
	{"transfer.sh", "anyone can upload a file"}, {"file.io", "anyone can upload a file"}, {"0x0.st", "anyone can upload a file"}, {"catbox.moe", "anyone can upload a file"}, {"gofile.io", "anyone can upload a file"},
	{"temp.sh", "anyone can upload a file"}, {"bashupload.com", "anyone can upload a file"}, {"oshi.at", "anyone can upload a file"}, {"wetransfer.com", "anyone can upload a file"}, {"mega.nz", "anyone can upload a file"}, {"anonfiles.com", "anyone can upload a file"}, {"tmpfiles.org", "anyone can upload a file"}, {"litterbox.catbox.moe", "anyone can upload a file"},
	{"content.dropboxapi.com", "any account can upload a file"}, {"api.dropboxapi.com", "any account can upload a file"}, {"upload.imgur.com", "anyone can upload a picture"}, {"api.imgur.com", "anyone can upload a picture"},
	{"s3.amazonaws.com", "any account's bucket is below it"}, {"storage.googleapis.com", "any account's bucket is below it"}, {"blob.core.windows.net", "any account's container is below it"},
	{"r2.cloudflarestorage.com", "any account's bucket is below it"}, {"digitaloceanspaces.com", "any account's bucket is below it"}, {"backblazeb2.com", "any account's bucket is below it"}, {"wasabisys.com", "any account's bucket is below it"}, {"upload.googleapis.com", "any account can upload a file"},
	{"webhook.site", "anyone can collect requests"}, {"requestbin.com", "anyone can collect requests"}, {"pipedream.net", "anyone can collect requests"}, {"requestcatcher.com", "anyone can collect requests"}, {"beeceptor.com", "anyone can collect requests"}, {"interact.sh", "anyone can collect requests"}, {"oast.fun", "anyone can collect requests"}, {"oast.pro", "anyone can collect requests"}, {"burpcollaborator.net", "anyone can collect requests"},
	{"hooks.slack.com", "any workspace's webhook is there"}, {"discord.com", "any server's webhook is there"}, {"discordapp.com", "any server's webhook is there"}, {"api.telegram.org", "any bot is there"}, {"webhook.office.com", "any team's webhook is there"},
	{"ngrok.io", "anyone can open a tunnel"}, {"ngrok.app", "anyone can open a tunnel"}, {"ngrok-free.app", "anyone can open a tunnel"}, {"trycloudflare.com", "anyone can open a tunnel"}, {"loca.lt", "anyone can open a tunnel"}, {"serveo.net", "anyone can open a tunnel"}, {"localhost.run", "anyone can open a tunnel"},
	{"docs.google.com", "anyone can post a form"}, {"forms.gle", "anyone can post a form"}, {"script.google.com", "anyone can run a script there"},
}

// uploadHost finds the upload service that a pattern reaches: the host itself,
// one below it (a bucket's own name is not distinguished from anybody's), or,
// for a pattern with a star, one that the pattern covers.
func uploadHost(host string) (place, bool) {
	tail, wild := strings.CutPrefix(host, "*.")
	if strings.HasPrefix(host, "s3.") || strings.HasPrefix(host, "s3-") || strings.Contains(host, ".s3.") || strings.Contains(host, ".s3-") {
		if strings.HasSuffix(host, ".amazonaws.com") {
			return place{host, "any account's bucket is below it"}, true
		}
	}
	for _, u := range uploads {
		if tail == u.path || strings.HasSuffix(tail, "."+u.path) || wild && strings.HasSuffix(u.path, "."+tail) {
			return u, true
		}
	}
	return place{}, false
}

// inner are the networks below which a rule for addresses allows others than those of
// the public internet; a larger network does not (see egress.Rules).
var inner = []struct{ network, what string }{
	{"0.0.0.0/8", "this machine"}, {"127.0.0.0/8", "this machine"}, {"::/127", "this machine"},
	{"10.0.0.0/8", "an address of an inner network"}, {"172.16.0.0/12", "an address of an inner network"}, {"192.168.0.0/16", "an address of an inner network"},
	{"100.64.0.0/10", "an address of an inner network"}, {"169.254.0.0/16", "an address of an inner network"},
	{"fc00::/7", "an address of an inner network"}, {"fe80::/10", "an address of an inner network"},
	{"224.0.0.0/4", "a multicast address"}, {"ff00::/8", "a multicast address"},
}

// inward tells what a host of this machine, its network or its cloud is, "" for
// a public one.
func inward(host string) string {
	name := strings.TrimPrefix(host, "*.")
	under := func(d string) bool { return strings.HasSuffix("."+name, "."+d) }
	switch {
	case under("localhost"):
		return "this machine"
	case name == "metadata.google.internal" || name == "metadata" || name == "instance-data":
		return "the metadata service of the cloud, which hands out credentials"
	case under("internal"), under("local"), under("lan"), under("corp"), under("home.arpa"), under("intranet"), under("svc"):
		return "a name of an inner network"
	}
	p, err := netip.ParsePrefix(host)
	if addr, aerr := netip.ParseAddr(host); aerr == nil {
		p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	switch {
	case err != nil:
		return ""
	case slices.Contains([]string{"169.254.169.254/32", "fd00:ec2::254/128", "100.100.100.200/32"}, p.String()):
		return "the metadata service of the cloud, which hands out credentials"
	}
	for _, in := range inner {
		if n := netip.MustParsePrefix(in.network); n.Bits() <= p.Bits() && n.Contains(p.Addr()) {
			return in.what
		}
	}
	return ""
}

// rootPorts are services on a host's own loopback that give more than the box
// has.
var rootPorts = []place{
	{"2375", "the Docker daemon, which is root"},
	{"2376", "the Docker daemon, which is root"},
	{"2377", "Docker Swarm"},
	{"10250", "the kubelet, which is root"},
	{"6443", "the Kubernetes API"},
	{"8001", "kubectl proxy, which has the account's credentials"},
	{"9222", "a browser's debugger, which has its sessions"},
	{"9229", "a Node debugger, which runs code outside the box"},
	{"5005", "a Java debugger, which runs code outside the box"},
	{"5678", "a Python debugger, which runs code outside the box"},
	{"22", "sshd"},
	{"111", "the port mapper"},
	{"631", "the print service"},
	{"8200", "Vault"},
	{"8500", "Consul, which can run programs"},
	{"4646", "Nomad, which runs programs"},
	{"5900", "the desktop"},
	{"5901", "the desktop"},
	{"6000", "the X server, which can type into other windows"},
	{"2379", "etcd, which has the cluster's secrets"},
	{"16509", "libvirt, which is root"},
	{"8443", "LXD, which is root"},
}
