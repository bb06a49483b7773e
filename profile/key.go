package profile

import (
	"slices"
	"strings"
)

// A KeyType says what the value of a key is written as.
type KeyType string

// The types of keys.
const (
	TypeVersion  KeyType = "version"  // the integer 1
	TypeText     KeyType = "text"     // any string
	TypeProfile  KeyType = "profile"  // a profile: a name, or a file as "./name.toml"
	TypeEnum     KeyType = "enum"     // one of Key.Values
	TypeEnums    KeyType = "enums"    // a list of some of Key.Values
	TypeBool     KeyType = "bool"     // true or false
	TypePaths    KeyType = "paths"    // a list of paths, patterns and "@group" names
	TypeDevices  KeyType = "devices"  // a list of device groups and paths below /dev
	TypeGrants   KeyType = "grants"   // a list of tables, see Key.Fields
	TypeSeeds    KeyType = "seeds"    // a list of tables, see Key.Fields
	TypeHosts    KeyType = "hosts"    // a list of host patterns, see ParseHost
	TypePorts    KeyType = "ports"    // a list of integers from 1 to 65535
	TypeProxy    KeyType = "proxy"    // "http://HOST:PORT"
	TypePatterns KeyType = "patterns" // a list of variable names; "*" may stand at the start or the end
	TypeNames    KeyType = "names"    // a list of variable names
	TypeName     KeyType = "name"     // one variable name
	TypeVars     KeyType = "vars"     // a table of variable names and values: strings, or tables with one of SourceKeys
	TypeFilter   KeyType = "filter"   // "default", "strict", or an OCI seccomp file as "./name.json"
	TypeCount    KeyType = "count"    // an integer, 0 or more
	TypeSize     KeyType = "size"     // bytes: an integer, or a string such as "4GiB"
	TypeDuration KeyType = "duration" // a string such as "10m", or 0
	TypeOutput   KeyType = "output"   // a string such as "1500 chars" or "64KiB"
	TypePath     KeyType = "path"     // one path; only in Key.Fields and SourceKeys

	TypeWords      KeyType = "words"      // a list of strings, the first not empty; only in SourceKeys
	TypeAttributes KeyType = "attributes" // a table of strings; only in SourceKeys
)

// A Direction says which change of a key takes privileges away. The project
// layer may only make such changes; what has no direction it may not change.
type Direction string

// The directions.
const (
	NoDirection    Direction = ""         // not ordered: every change counts as wider
	EarlierTighter Direction = "earlier"  // an earlier element of Key.Values is narrower
	LowerTighter   Direction = "lower"    // a smaller number is narrower, no value is the widest
	MoreTighter    Direction = "more"     // more elements are narrower
	FewerTighter   Direction = "fewer"    // fewer elements are narrower
	TrueTighter    Direction = "true"     // true is narrower
	FalseTighter   Direction = "false"    // false is narrower
	Harmless       Direction = "harmless" // says nothing about privileges
)

// A Key is one key of the profile language.
type Key struct {
	Name    string    // with its table: "filesystem.hide"
	Type    KeyType   //
	Values  []string  // TypeEnum, TypeEnums: all values, narrowest first where Tighten is EarlierTighter
	Default string    // as it would be written in a profile; "" = not set, which means nothing or no limit
	Doc     string    // one sentence
	Since   string    // the version of wall that knew it first
	Tighten Direction // what a project layer may do
	Fields  []Key     // TypeGrants, TypeSeeds: the keys of one element

	field func(*File) any // where the parsed value is kept; nil for the version
}

// Table is the table that the key stands in, "" for the top level.
func (k Key) Table() string {
	t, _, ok := strings.Cut(k.Name, ".")
	if !ok {
		return ""
	}
	return t
}

// Last is the name of the key in its table; it holds a dot where that table has
// a table of its own ("caches.keep").
func (k Key) Last() string {
	if _, last, ok := strings.Cut(k.Name, "."); ok {
		return last
	}
	return k.Name
}

// Required reports whether a profile, or an element of a list of tables, must have the key.
func (k Key) Required() bool { return k.Name == "version" || k.Name == "path" || k.Name == "access" }

// Keys gives every key of the language in the order in which a profile is
// written. The parser, the schema, the documents and the check of project
// layers use this one table.
func Keys() []Key { return slices.Clone(keyTable) }

// LookupKey finds a key by its full name.
func LookupKey(name string) (Key, bool) {
	if i := slices.IndexFunc(keyTable, func(k Key) bool { return k.Name == name }); i >= 0 {
		return keyTable[i], true
	}
	return Key{}, false
}

// Tables gives the names of the tables, in the order in which a profile is written.
func Tables() []string { return slices.Clone(tables) }

var tables = []string{"filesystem", "network", "environment", "process", "limits"}

// keyTable is read by every launch: it is data without closures, so that it
// costs nothing before main.
var keyTable = []Key{
	{Name: "version", Type: TypeVersion, Doc: "Version of the profile language; always 1.", Since: "0.1.0", Tighten: Harmless},
	{Name: "name", Type: TypeText, Doc: "What the profile is called in messages; by default the name of its file.", Since: "0.1.0",
		field: func(f *File) any { return &f.Name }},
	{Name: "description", Type: TypeText, Doc: "What the profile is for, in one sentence.", Since: "0.1.0", Tighten: Harmless,
		field: func(f *File) any { return &f.Description }},
	{Name: "extends", Type: TypeProfile, Doc: "The profile that this one is laid over; by default the profile of the same name one layer below.", Since: "0.1.0",
		field: func(f *File) any { return &f.Extends }},
	{Name: "enforce", Type: TypeEnum, Values: []string{"fs+net", "fs", "off"}, Default: `"fs+net"`, Tighten: EarlierTighter,
		Doc: "Which walls are up: all, all but the network, or none.", Since: "0.1.0", field: func(f *File) any { return &f.Enforce }},
	{Name: "if-unavailable", Type: TypeEnum, Values: []string{"fail", "degrade"}, Default: `"fail"`, Tighten: EarlierTighter,
		Doc: "What happens when this host cannot build a wall: refuse to run, or run without it and say so.", Since: "0.1.0", field: func(f *File) any { return &f.IfUnavailable }},
	{Name: "require", Type: TypeEnums, Values: []string{"filesystem", "network", "process", "syscalls", "landlock", "environment", "limits"}, Default: "[]", Tighten: MoreTighter,
		Doc: "Walls that must be up even when if-unavailable is \"degrade\".", Since: "0.1.0", field: func(f *File) any { return &f.Require }},

	{Name: "filesystem.view", Type: TypeEnum, Values: []string{"system", "host"}, Default: `"system"`, Tighten: EarlierTighter,
		Doc: "What is readable to begin with: only the operating system, or the whole host.", Since: "0.1.0", field: func(f *File) any { return &f.View }},
	{Name: "filesystem.home", Type: TypeEnum, Values: []string{"hidden", "scratch", "read-only"}, Default: `"scratch"`, Tighten: EarlierTighter,
		Doc: "What stands at the home directory: nothing, a private empty directory, or the real one, read-only.", Since: "0.1.0", field: func(f *File) any { return &f.Home }},
	{Name: "filesystem.workspace", Type: TypeEnum, Values: []string{"read-only", "read-write"}, Default: `"read-write"`, Tighten: EarlierTighter,
		Doc: "What the command may do in the workspace.", Since: "0.1.0", field: func(f *File) any { return &f.Workspace }},
	{Name: "filesystem.tmp", Type: TypeEnum, Values: []string{"scratch", "memory"}, Default: `"scratch"`,
		Doc: "Where the private /tmp and /var/tmp are: on disk in the scratch directory, or in memory.", Since: "0.1.0", field: func(f *File) any { return &f.Tmp }},
	{Name: "filesystem.grant", Type: TypeGrants, Default: "[]", Tighten: FewerTighter,
		Doc: "Paths that are visible although view and home would not show them.", Since: "0.1.0", field: func(f *File) any { return &f.Grant },
		Fields: []Key{
			{Name: "path", Type: TypePath, Doc: "The file or directory.", Since: "0.1.0"},
			{Name: "access", Type: TypeEnum, Values: []string{"read", "write"}, Doc: "What the command may do there; write includes read.", Since: "0.1.0"},
			{Name: "why", Type: TypeText, Doc: "The reason, for whoever reviews the profile.", Since: "0.1.0"},
			{Name: "optional", Type: TypeBool, Default: "false", Doc: "Skip the line when the path does not exist.", Since: "0.1.0"},
		}},
	{Name: "filesystem.seed", Type: TypeSeeds, Default: "[]", Tighten: FewerTighter,
		Doc: "Files that are copied into the scratch home before the start, mode 0600; of one that does not exist the directory is there, empty.", Since: "0.1.0", field: func(f *File) any { return &f.Seed },
		Fields: []Key{
			{Name: "path", Type: TypePath, Doc: "The file to copy.", Since: "0.1.0"},
			{Name: "to", Type: TypePath, Doc: "Where it stands in the scratch home, as \"~/...\"; by default at the same path.", Since: "0.1.0"},
			{Name: "why", Type: TypeText, Doc: "The reason, for whoever reviews the profile.", Since: "0.1.0"},
		}},
	{Name: "filesystem.hide", Type: TypePaths, Default: "[]", Tighten: MoreTighter,
		Doc: "Paths and patterns that look empty or absent.", Since: "0.1.0", field: func(f *File) any { return &f.Hide }},
	{Name: "filesystem.protect", Type: TypePaths, Default: `["@git"]`, Tighten: MoreTighter,
		Doc: "Paths that are read-only inside a writable tree, also while they do not exist.", Since: "0.1.0", field: func(f *File) any { return &f.Protect }},
	{Name: "filesystem.devices", Type: TypeDevices, Default: "[]", Tighten: FewerTighter,
		Doc: "Devices besides null, zero, full, random, urandom and tty: dri, fuse, kvm, nvidia, or paths below /dev.", Since: "0.1.0", field: func(f *File) any { return &f.Devices }},

	{Name: "network.mode", Type: TypeEnum, Values: []string{"none", "allow", "host"}, Default: `"none"`, Tighten: EarlierTighter,
		Doc: "Which network the command has: loopback only, exactly the allowed hosts, or that of the host.", Since: "0.1.0", field: func(f *File) any { return &f.Network }},
	{Name: "network.allow", Type: TypeHosts, Default: "[]", Tighten: FewerTighter,
		Doc: "Hosts that can be reached with mode \"allow\"; without a port, ports 443 and 80.", Since: "0.1.0", field: func(f *File) any { return &f.NetAllow }},
	{Name: "network.deny", Type: TypeHosts, Default: "[]", Tighten: MoreTighter,
		Doc: "Hosts that cannot be reached even when allow names them; without a port, every port.", Since: "0.1.0", field: func(f *File) any { return &f.NetDeny }},
	{Name: "network.loopback", Type: TypePorts, Default: "[]", Tighten: FewerTighter,
		Doc: "Ports of the host's loopback that can be reached inside.", Since: "0.1.0", field: func(f *File) any { return &f.Loopback }},
	{Name: "network.publish", Type: TypePorts, Default: "[]", Tighten: FewerTighter,
		Doc: "Ports of the command that the host can reach on its loopback.", Since: "0.1.0", field: func(f *File) any { return &f.Publish }},
	{Name: "network.ports", Type: TypePorts, Tighten: FewerTighter,
		Doc: "With mode \"host\", the only TCP ports that can be connected to, whichever the host is; without the key, all.", Since: "0.1.0", field: func(f *File) any { return &f.Ports }},
	{Name: "network.proxy-variables", Type: TypeBool, Default: "false", Tighten: FalseTighter,
		Doc: "Set HTTP_PROXY and the like for programs that insist on a proxy.", Since: "0.1.0", field: func(f *File) any { return &f.ProxyVariables }},
	{Name: "network.check-sni", Type: TypeBool, Default: "false", Tighten: TrueTighter,
		Doc: "Refuse a TLS connection whose server name is not the allowed one.", Since: "0.1.0", field: func(f *File) any { return &f.CheckSNI }},
	{Name: "network.upstream-proxy", Type: TypeProxy,
		Doc: "An HTTP proxy, \"http://HOST:PORT\", through which wall reaches the allowed hosts.", Since: "0.1.0", field: func(f *File) any { return &f.UpstreamProxy }},

	{Name: "environment.base", Type: TypeEnum, Values: envBases, Default: `"session"`,
		Doc: "The table of variables that scrub \"strict\" lets cross.", Since: "0.1.0", field: func(f *File) any { return &f.EnvBase }},
	{Name: "environment.scrub", Type: TypeEnum, Values: envScrubs, Tighten: EarlierTighter,
		Doc: "Which of the caller's variables cross: those of the base, all but secrets, or all; the default depends on the base.", Since: "0.1.0", field: func(f *File) any { return &f.EnvScrub }},
	{Name: "environment.allow", Type: TypePatterns, Default: "[]", Tighten: FewerTighter,
		Doc: "Further variables of the caller that scrub \"strict\" lets cross.", Since: "0.1.0", field: func(f *File) any { return &f.EnvAllow }},
	{Name: "environment.deny", Type: TypePatterns, Default: "[]", Tighten: MoreTighter,
		Doc: "Variables of the caller that never cross.", Since: "0.1.0", field: func(f *File) any { return &f.EnvDeny }},
	{Name: "environment.set", Type: TypeVars, Default: "{}", Tighten: FewerTighter,
		Doc: "Variables with fixed values, or with values that are fetched at every start.", Since: "0.1.0", field: func(f *File) any { return &f.EnvSet }},
	{Name: "environment.pass", Type: TypeNames, Default: "[]", Tighten: FewerTighter,
		Doc: "Variables of the caller that cross although they look like a secret.", Since: "0.1.0", field: func(f *File) any { return &f.EnvPass }},
	{Name: "environment.auth", Type: TypeName,
		Doc: "The one variable with a credential that the command needs.", Since: "0.1.0", field: func(f *File) any { return &f.EnvAuth }},
	{Name: "environment.inject", Type: TypeBool, Default: "false", Tighten: FalseTighter,
		Doc: "Lay the variables that \"wall env set\" stored over the environment.", Since: "0.1.0", field: func(f *File) any { return &f.Inject }},
	{Name: "environment.caches.tools", Type: TypeEnums, Values: []string{"cargo", "go", "gradle", "maven", "npm", "pip", "uv"}, Default: "[]", Tighten: FewerTighter,
		Doc: "Tools that get a private, warm, writable cache over their own; caches = [...] is short for it.", Since: "0.1.0", field: func(f *File) any { return &f.Caches }},
	{Name: "environment.caches.keep", Type: TypeBool, Default: "false", Tighten: FalseTighter,
		Doc: "Keep what is written to the caches for later runs in the same workspace.", Since: "0.1.0", field: func(f *File) any { return &f.CachesKeep }},
	{Name: "environment.caches.method", Type: TypeEnum, Values: []string{"layer", "copy"}, Default: `"layer"`,
		Doc: "How the caches are made: as a layer over the tool's own, or as a copy up to 64 MiB each.", Since: "0.1.0", field: func(f *File) any { return &f.CachesMethod }},

	{Name: "process.tty", Type: TypeEnum, Values: []string{"none", "pty", "auto", "inherit"}, Default: `"auto"`, Tighten: EarlierTighter,
		Doc: "What happens to a terminal on descriptors 0 to 2: none is given, the box has its own, its own where standard input is one, or it is passed.", Since: "0.1.0", field: func(f *File) any { return &f.TTY }},
	{Name: "process.seccomp", Type: TypeFilter, Values: []string{"strict", "default"}, Default: `"default"`, Tighten: EarlierTighter,
		Doc: "The system call filter: default, strict, or an OCI seccomp file.", Since: "0.1.0", field: func(f *File) any { return &f.Seccomp }},
	{Name: "process.nested-sandboxes", Type: TypeBool, Default: "false", Tighten: FalseTighter,
		Doc: "Let the command create user namespaces, as browsers and other sandboxes do.", Since: "0.1.0", field: func(f *File) any { return &f.Nested }},

	{Name: "limits.time", Type: TypeDuration, Tighten: LowerTighter,
		Doc: "How long the command may run; 0 is no limit.", Since: "0.1.0", field: func(f *File) any { return &f.Time }},
	{Name: "limits.grace", Type: TypeDuration, Default: `"5s"`, Tighten: LowerTighter,
		Doc: "How long the command has between SIGTERM, at the limit of time or sent to wall, and SIGKILL.", Since: "0.1.0", field: func(f *File) any { return &f.Grace }},
	{Name: "limits.memory", Type: TypeSize, Tighten: LowerTighter,
		Doc: "Memory of the whole box, swap included; 0 is no limit.", Since: "0.1.0", field: func(f *File) any { return &f.Memory }},
	{Name: "limits.processes", Type: TypeCount, Tighten: LowerTighter,
		Doc: "Processes and threads of the whole box; 0 is no limit.", Since: "0.1.0", field: func(f *File) any { return &f.Processes }},
	{Name: "limits.open-files", Type: TypeCount, Tighten: LowerTighter,
		Doc: "Open files of each process; at least 16.", Since: "0.1.0", field: func(f *File) any { return &f.OpenFiles }},
	{Name: "limits.file-size", Type: TypeSize, Tighten: LowerTighter,
		Doc: "The largest file that the command can write; 0 means that it cannot write to files at all.", Since: "0.1.0", field: func(f *File) any { return &f.FileSize }},
	{Name: "limits.scratch", Type: TypeSize, Tighten: LowerTighter,
		Doc: "Bytes of the scratch directory, looked at every two seconds or sooner; 0 is no limit.", Since: "0.1.0", field: func(f *File) any { return &f.ScratchSize }},
	{Name: "limits.total-output", Type: TypeSize, Tighten: LowerTighter,
		Doc: "Bytes that the command may write to standard output and error together; 0 is no limit.", Since: "0.1.0", field: func(f *File) any { return &f.TotalOutput }},
	{Name: "limits.output", Type: TypeOutput, Default: `"1500 chars"`, Tighten: LowerTighter,
		Doc: "How much of the end of the output a gate keeps.", Since: "0.1.0", field: func(f *File) any { return &f.Output }},
	{Name: "limits.core", Type: TypeCount, Default: "0", Tighten: LowerTighter,
		Doc: "Size of core dumps; always 0, because they would hold the environment.", Since: "0.1.0", field: func(f *File) any { return &f.Core }},
}

// zeroIsNoLimit reports whether 0 means that there is no limit.
func (k Key) zeroIsNoLimit() bool {
	switch k.Name {
	case "limits.time", "limits.memory", "limits.processes", "limits.scratch", "limits.total-output":
		return true
	}
	return false
}
