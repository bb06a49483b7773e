// Package plan holds the types that policy and mechanism meet in: a [Plan] is
// everything wall will do to one process, in order of effect.
//
// A Plan is data. It holds no functions, no file descriptors and no maps, so it
// can be validated ([Plan.Validate]), printed ([Plan.Print], [Plan.JSON]),
// compared, and sent to stage 2 ([Encode], [Decode]). The package decides
// nothing and does nothing: it imports neither os nor syscall.
//
// Paths are absolute, cleaned and free of symbolic links; they are byte strings
// (Linux paths need not be UTF-8). Sizes are bytes, modes are Unix permission
// bits including set-id and sticky, durations nanoseconds.
//
// The package does not promise that a valid Plan can be carried out on the
// running kernel; package nsexec finds that out and says which step failed.
package plan

// Version is the wire format; Decode refuses any other.
const Version = 1

// A Plan is everything wall will do to one process.
// The zero value of every permission in it means "none".
type Plan struct {
	Version  int        // Version
	Profile  string     // the name of the profile, for people
	Enforce  Enforce    // which walls are up
	Command  Command    // what is executed
	Identity Identity   // who it runs as
	Scratch  Scratch    // the private directory made for this run
	Spaces   []Space    // namespaces, outermost first
	Mounts   []Mount    // applied in slice order
	Limits   []Limit    // rlimits set before the command
	Bounds   Bounds     // limits of the run as a whole, kept from outside
	Network  Network    // what can be reached beyond the box's own loopback
	Landlock Landlock   // the file rules said a second time, and scopes
	Seccomp  Seccomp    // system call filter
	Stdio    []Stdio    // descriptors 0, 1 and 2 as the caller gave them
	TTY      TTY        // what happens to the terminals among them
	KeepFDs  []int      // further descriptors that pass, ascending
	Checks   []Check    // the self-test, tried after the box is built
	Env      []EnvVar   // the complete environment, sorted by name
	Dropped  []EnvDrop  // ambient names that do not cross, sorted by name
	Degraded []Degraded // protections asked for that this host cannot give
	Notices  []Notice   // things the operator should know; nothing is lost
}

// Enforce says which walls are up.
type Enforce string

// The levels of Enforce, weakest first.
const (
	EnforceOff   Enforce = "off"    // no wall; only the environment is built
	EnforceFS    Enforce = "fs"     // every wall but the network
	EnforceFSNet Enforce = "fs+net" // all walls
)

// An Origin says which input asked for something. Every rule in a Plan has one.
type Origin struct {
	File   string // as the user wrote it; "" for a flag or a default; "built-in:NAME" for a built-in profile
	Line   int    // 1-based; 0 when not from a file
	Column int    // 1-based; 0 when unknown
	Text   string // the line, the flag as typed, or "default"
}

// Command is what stage 2 executes.
type Command struct {
	Path string   // absolute path as seen inside
	Argv []string // exact; Argv[0] need not equal Path
	Dir  string   // working directory as seen inside, free of links
}

// Identity is the user and group of the command: the same inside and outside.
type Identity struct {
	UID int
	GID int
}

// SpaceKind names a namespace type as in namespaces(7).
type SpaceKind string

// The namespaces wall uses.
const (
	SpaceUser   SpaceKind = "user"
	SpaceMount  SpaceKind = "mount"
	SpacePID    SpaceKind = "pid"
	SpaceNet    SpaceKind = "net"
	SpaceIPC    SpaceKind = "ipc"
	SpaceUTS    SpaceKind = "uts"
	SpaceCgroup SpaceKind = "cgroup"
)

// A Space is one new namespace. The user namespace maps exactly Identity to
// itself. The network namespace has the loopback interface up and no other; see
// Network for what goes through it.
type Space struct {
	Kind   SpaceKind
	Origin Origin
}

// MountOp says how one entry of Plan.Mounts is made.
type MountOp string

// The mount operations. Every mount gets nosuid and, except for OpDevice, nodev.
const (
	// OpHostRoot clones the host's whole tree, recursively read-only, as the
	// new root. Exactly one of OpHostRoot and OpEmptyRoot comes first.
	OpHostRoot MountOp = "host-root"
	// OpEmptyRoot makes an empty tmpfs the new root, writable until OpSeal.
	OpEmptyRoot MountOp = "empty-root"
	// OpBind mounts Source (a host path) at Target, recursively, with Access
	// AccessRead (recursively read-only) or AccessWrite.
	OpBind MountOp = "bind"
	// OpScratch mounts the scratch sub-directory named by Source (one path
	// element, listed in Plan.Scratch.Dirs) at Target, writable.
	OpScratch MountOp = "scratch"
	// OpOverlay mounts a writable overlay at Target: Source (a host directory)
	// is the lower layer, which is never written; Upper and Work take what is
	// written. Each is a scratch sub-directory (one path element, listed in
	// Plan.Scratch.Dirs) or a directory of Plan.Scratch.Kept (absolute).
	OpOverlay MountOp = "overlay"
	// OpDevice binds one host device node (Source) at Target, usable.
	OpDevice MountOp = "device"
	// OpTmpfs mounts a new tmpfs with Mode and at most Size bytes.
	OpTmpfs MountOp = "tmpfs"
	// OpProc mounts a new procfs, OpSysfs a new read-only sysfs (it needs a
	// new network namespace), OpDevpts a private devpts, OpMqueue a private
	// POSIX message queue file system.
	OpProc   MountOp = "proc"
	OpSysfs  MountOp = "sysfs"
	OpDevpts MountOp = "devpts"
	OpMqueue MountOp = "mqueue"
	// OpDir makes the directory Target (and missing parents, mode 0755) with
	// Mode in a tree that wall itself made; OpSymlink makes a symbolic link at
	// Target with the text Source; OpFile makes an empty regular file.
	// An existing directory is left alone.
	OpDir     MountOp = "dir"
	OpSymlink MountOp = "symlink"
	OpFile    MountOp = "file"
	// OpCover hides Target: an empty, read-only directory or file of mode 000
	// is mounted over it (Type says which).
	OpCover MountOp = "cover"
	// OpText puts a read-only file with the content Source, at most MaxText bytes,
	// in the place of the file Target.
	OpText MountOp = "text"
	// OpPin mounts Target on itself, still writable, so that it cannot be
	// renamed or replaced; OpProtect does the same recursively read-only.
	// Both act on Target as it is inside, and on a symbolic link itself when
	// Type is TypeSymlink.
	OpPin     MountOp = "pin"
	OpProtect MountOp = "protect"
	// OpSeal makes the single mount at Target read-only (not recursively):
	// the synthetic root and directories once their skeleton is complete.
	OpSeal MountOp = "seal"
)

// FileType is what a path was when Resolve looked at it.
type FileType string

// The file types a mount can have. A change between Resolve and stage 2 is an error.
const (
	TypeDir     FileType = "dir"
	TypeFile    FileType = "file" // anything that is not a directory or a link: mounts treat them alike
	TypeSymlink FileType = "symlink"
)

// Access is what may be done with a file or tree. The zero value is none.
type Access string

// The accesses, each a fixed set of rights.
const (
	AccessNone   Access = ""
	AccessRead   Access = "read"   // read, list, execute
	AccessWrite  Access = "write"  // AccessRead and every change
	AccessDevice Access = "device" // read, write and ioctl of existing nodes; no creation
	AccessInOut  Access = "inout"  // read and write of existing files, list; no creation (procfs)
	AccessList   Access = "list"   // list directories only
	AccessStdin  Access = "stdin"  // read one file that is a standard stream
	AccessStdout Access = "stdout" // write and truncate one file that is a standard stream
)

// A Mount is one step of building the file tree of the box.
type Mount struct {
	Op       MountOp
	Target   string   // absolute path as seen inside, free of links
	Source   string   // see the operation
	Access   Access   // OpBind only
	Type     FileType // OpBind, OpDevice, OpCover, OpPin, OpProtect
	Mode     uint32   // OpTmpfs, OpDir
	Size     uint64   // OpTmpfs: bytes, 0 = the kernel's default
	MakeAs   FileType // "" or: create the mount point in a tree wall made (parents 0755)
	Upper    string   // OpOverlay
	Work     string   // OpOverlay
	Optional bool     // skip silently when Source or Target does not exist in stage 2
	Origin   Origin
}

// Scratch is the private directory of one run, <Root>/wall-<ID>, mode 0700.
type Scratch struct {
	Root         string        // parent; made 0700 when missing; "" = no scratch
	ID           string        // lower-case hex, unpredictable
	Dirs         []ScratchDir  // sub-directories
	Placeholders []Placeholder // mount points for protected names that are absent today
	Guards       []string      // protected host paths, sorted: placeholders of other runs among them must stay as long as this run
	Seeds        []Seed        // files copied in before the start
	Copies       []TreeCopy    // directories copied in before the start
	Kept         KeptDir       // what outlives the run
	Keep         bool          // leave it behind at the end
}

// Path is the absolute path of the scratch directory on the host, "" when there is none.
func (s Scratch) Path() string {
	if s.Root == "" {
		return ""
	}
	if s.Root == "/" {
		return "/wall-" + s.ID
	}
	return s.Root + "/wall-" + s.ID
}

// WritableRoots are the host directories and files that the command can write to:
// what is mounted writable, or, in a box without mounts, what Landlock lets it
// write. With every wall down it is empty, and the command can write what its user
// can.
func (p Plan) WritableRoots() []string {
	var dirs []string
	for _, m := range p.Mounts {
		if m.Op == OpBind && m.Access == AccessWrite {
			dirs = append(dirs, m.Source)
		}
	}
	if len(p.Mounts) == 0 {
		for _, r := range p.Landlock.Rules {
			if r.Access == AccessWrite {
				dirs = append(dirs, r.Path)
			}
		}
	}
	return dirs
}

// Unfilled gives the names of the variables whose value has not been fetched, in
// order. A plan that has any cannot be carried out.
func (p Plan) Unfilled() []string {
	var names []string
	for _, v := range p.Env {
		if !v.Source.IsZero() {
			names = append(names, v.Name)
		}
	}
	return names
}

// A ScratchDir is one sub-directory of the scratch directory.
type ScratchDir struct {
	Name string // one path element
	Mode uint32 // permission bits, for example 01777
}

// A Placeholder is made on the host only so that something can be mounted on a
// protected name that does not exist, and removed at the end while it is
// untouched (an empty directory, or a file with exactly Content).
type Placeholder struct {
	Path    string // absolute host path; the parent exists
	Type    FileType
	Content string // TypeFile only
	Origin  Origin
}

// A Seed is one regular file copied into the scratch directory, mode 0600,
// without following links; of a missing one the directory is made.
type Seed struct {
	Source string // absolute host path
	Target string // path below the scratch directory, for example "home/.codex/auth.json"
	Origin Origin
}

// A TreeCopy is a directory of the host whose content is copied into a
// sub-directory of the scratch directory before the start. Links are copied as
// links and not followed; special files are left out. One that cannot be copied
// whole leaves the sub-directory empty.
type TreeCopy struct {
	Source string // absolute host path
	Target string // one path element, listed in Scratch.Dirs
	Max    uint64 // bytes of all files together; more is a failure
	Origin Origin
}

// A KeptDir is a directory of wall's own state, made with mode 0700 when it is
// missing, that is locked while the run lasts and stays behind. The zero value
// is none.
type KeptDir struct {
	Path string   // absolute host path, free of links
	Dirs []string // sub-directories that must exist, each one path element
}

// LimitName is an rlimit by its name in getrlimit(2) without RLIMIT_, lower case.
type LimitName string

// The limits wall sets.
const (
	LimitCore   LimitName = "core"
	LimitNoFile LimitName = "nofile"
	LimitFSize  LimitName = "fsize"
	LimitNProc  LimitName = "nproc"
)

// A Limit sets the soft and hard value of one rlimit.
type Limit struct {
	Name   LimitName
	Value  uint64
	Origin Origin
}

// Landlock is the Landlock ruleset in plain words.
type Landlock struct {
	ABI      int        // the level it was resolved for; 0 = not enforced
	Rules    []PathRule // what is allowed; everything else is refused
	Stdio    bool       // add a rule per regular file in Plan.Stdio
	Network  bool       // handle TCP (and UDP where the ABI can): only Ports are allowed
	Ports    []PortRule
	Signals  bool // scope signals to the box (ABI 6)
	Abstract bool // scope abstract Unix sockets to the box (ABI 6)
}

// A PathRule allows Access beneath Path, except beneath the paths of Except.
// Landlock cannot subtract, so a rule with exceptions is applied to the
// siblings along the way to each of them (see landlock.Expand); Except may name
// paths that do not exist.
type PathRule struct {
	Path     string
	Access   Access
	Except   []string // absolute, below Path, sorted
	Optional bool     // skip when Path is missing inside
	Origin   Origin
}

// PortOp is what a PortRule allows.
type PortOp string

// The port operations of Landlock.
const (
	PortBindTCP    PortOp = "bind-tcp"
	PortConnectTCP PortOp = "connect-tcp"
	PortBindUDP    PortOp = "bind-udp"
	PortConnectUDP PortOp = "connect-udp"
)

// A PortRule allows one operation on one port (0-65535).
type PortRule struct {
	Op     PortOp
	Port   int
	Origin Origin
}

// Seccomp names the system call filter.
type Seccomp struct {
	Profile string // "default", "strict", "default-nested", "strict-nested", or "" = none
	Program []byte // a compiled custom filter (struct sock_filter array, host byte order); then Profile is its name
	Origin  Origin
}

// TTY says what happens to a terminal on descriptors 0 to 2.
type TTY string

// The values of TTY; the empty one means TTYNone.
const (
	// TTYNone: the command gets no terminal. On descriptor 0 it becomes
	// /dev/null, on 1 and 2 a pipe whose bytes are copied to the terminal.
	TTYNone TTY = "none"
	// TTYPrivate: the command has a terminal of the box's own, and the caller's
	// is connected to it. Descriptor 0 must be a terminal.
	TTYPrivate TTY = "pty"
	// TTYInherit: the command gets the caller's terminal itself.
	TTYInherit TTY = "inherit"
)

// StdioKind is what one of the descriptors 0-2 refers to.
type StdioKind string

// The kinds of standard stream that wall passes on.
const (
	StdioPipe   StdioKind = "pipe"
	StdioSocket StdioKind = "socket"
	StdioTTY    StdioKind = "tty"
	StdioFile   StdioKind = "file"   // a regular file: passes together with a Landlock rule for exactly its access
	StdioNull   StdioKind = "null"   // /dev/null, zero, full, random, urandom
	StdioClosed StdioKind = "closed" // becomes /dev/null
	StdioOther  StdioKind = "other"  // an anonymous inode such as an eventfd or memfd
)

// Stdio describes one of the descriptors 0, 1, 2.
type Stdio struct {
	FD    int
	Kind  StdioKind
	Read  bool // the descriptor can read
	Write bool // the descriptor can write
}

// CheckOp is one kind of self-test.
type CheckOp string

// The self-tests. Each tries something that must fail (or reads something
// back); a success refuses to run the command.
const (
	CheckUnreadable CheckOp = "unreadable" // opening Path for reading, or listing it, must fail or find nothing
	CheckUnwritable CheckOp = "unwritable" // opening or creating Path for writing must fail
	CheckLayer      CheckOp = "layer"      // what is made in the overlay at Path must not be made in its lower layer
	CheckNoCaps     CheckOp = "no-caps"    // all five capability sets are empty and cannot be regained
	CheckNoNewPrivs CheckOp = "no-new-privs"
	CheckSeccomp    CheckOp = "seccomp"   // mode 2, and unshare(CLONE_NEWUSER), mount(2), keyctl(2) are refused
	CheckSpace      CheckOp = "namespace" // namespace Path (a SpaceKind) is not the launcher's
	CheckNoRoute    CheckOp = "no-route"  // only the loopback interface exists
	CheckNoSignal   CheckOp = "no-signal" // no process but the box's own is visible
	CheckNoMount    CheckOp = "no-mount"  // the mount table cannot be changed
)

// A Check is one self-test.
type Check struct {
	Op     CheckOp
	Path   string
	Origin Origin
}

// MaxText bounds the content of an OpText, in bytes.
const MaxText = 4096

// MaxVariable bounds one variable in bytes: its name, its value, the "=" between and
// the NUL behind them. It is MAX_ARG_STRLEN of Linux (execve(2)) with pages of 4 KiB.
const MaxVariable = 128 << 10

// An EnvVar is one variable of the command's environment. Every form for
// people redacts Value.
type EnvVar struct {
	Name   string
	Value  string // empty while Source says where it is to be fetched
	Reason string // the rule that admits it, for example "base: always", "set", "flag --env"
	Origin Origin
	Source ValueSource // cleared when the value has been fetched
}

// An EnvDrop is an ambient variable that does not cross. It has no value.
type EnvDrop struct {
	Name   string
	Reason string
}

// Wall names one layer of confinement.
type Wall string

// The walls.
const (
	WallFilesystem  Wall = "filesystem"
	WallNetwork     Wall = "network"
	WallProcess     Wall = "process"
	WallSyscalls    Wall = "syscalls"
	WallLandlock    Wall = "landlock"
	WallEnvironment Wall = "environment"
	WallLimits      Wall = "limits"
)

// Degraded is a protection that was asked for and that this host cannot give.
// It is shown to the operator before the command starts.
type Degraded struct {
	Wall   Wall
	Lost   string // the promise that is lost, one sentence without a full stop
	Cause  string // why
	Origin Origin
}

// A Notice tells the operator something about the plan; nothing is lost.
type Notice struct {
	Text   string
	Hint   string
	Origin Origin
}
