package profile

import (
	"io/fs"

	"github.com/wallsandbox/wall/plan"
)

// A Host is every fact about the machine and the caller that Resolve may use.
// Package profile never asks the machine itself.
type Host struct {
	OS   string // runtime.GOOS of the host
	Arch string // runtime.GOARCH of the host

	UID, GID    int
	User        string // account name; "" when the account record is missing
	AccountHome string // home directory in the account record; "" when missing
	AccountSh   string // login shell in the account record; "" when missing

	Cwd     string   // physical working directory, as getcwd(2) says; "" when it was deleted
	Pwd     string   // $PWD when it names the same directory as Cwd, else ""
	Environ []string // the caller's environment, "NAME=value"

	// FS is a read-only view of the whole file tree, rooted at "/": os.DirFS("/")
	// in production, fstest.MapFS in tests. It must implement fs.ReadLinkFS.
	FS fs.FS

	Executable  string   // resolved path of the running wall binary; "" unknown
	TempDir     string   // where the scratch root is made: "/tmp", or what --scratch-root says
	DefaultTemp string   // where it is made without --scratch-root: "/tmp"
	RunID       string   // lower-case hex, unpredictable; names the scratch directory
	Sockets     []string // absolute paths of bound Unix sockets, from /proc/net/unix

	LandlockABI int          // 0 when the kernel has none
	LandlockErr error        // why, when 0
	SeccompErr  error        // nil when a filter can be installed
	Namespaces  error        // nil when user namespaces can be made, or when nobody tried
	Stdio       []plan.Stdio // descriptors 0-2, in order
	NoOverlay   error        // why no overlay can be made, found by a start that failed; nil otherwise
	NoRedirect  error        // why connections cannot be redirected inside, found likewise
	NoScope     error        // why the user's systemd makes no scope, found likewise
	CachesBusy  bool         // another run holds the kept caches of the workspace, found likewise

	// Cgroup finds, by trying, where a cgroup with the controllers for memory or
	// processes can be made for the run. It is called only where the profile has
	// such a limit. nil: nobody tried, there is none.
	Cgroup func(memory, processes bool) (plan.Cgroup, error)

	// Injected reads the stored variables from the file that Resolve names, an
	// absolute path: see [InjectedFile]. A file that does not exist holds none.
	// It is called only where environment.inject is true, so that a store that
	// cannot be read stops no other run. nil: nothing is stored.
	Injected func(file string) ([]InjectedVar, error)
}

// An InjectedVar is one stored variable, which environment.inject lays over the
// environment of the command.
type InjectedVar struct {
	Name  string
	Value string
}

// A Flag is one command line flag that corresponds to a profile key, in
// command line order. Flags lie above every profile layer.
type Flag struct {
	Name  string // without dashes: "rw", "ro", "rw-try", "ro-try", "hide", "protect", "env", "net", ...
	Value string
	Text  string // as typed, for Origin.Text: "--rw ../cache"
}

// Options is what one invocation of wall asks for.
type Options struct {
	Profile string   // built-in name, or a file when it contains a slash or ends in ".toml"; "" = Default
	Default string   // the subcommand's default profile: "agent" or "gate"
	Flags   []Flag   // in order
	Command []string // the command and its arguments; Command[0] is looked up in the PATH of the box
	// NoCommand asks for the plan of every command, for a look at the rest of it:
	// Command is not used, the plan has none, and so it is not valid and no stage
	// carries it out.
	NoCommand bool
	Phase     *Phase // what it says lies over the profile; Command is not taken from it
	Keep      bool   // --keep
	// Recorded are the layers of an earlier run, the project layer among them, in place
	// of those that are installed; Profile then only names them. RecordedTrust says
	// that the operator had accepted its project layer.
	Recorded      []LayerText
	RecordedTrust bool
	KeepFDs       []int // --fd N
	// NoSettings leaves out what the SANDBOX_* variables of Host.Environ say: a
	// check of a profile must not depend on who makes it.
	NoSettings bool
	// CustomFilter is the compiled program when Flags or the profile name an
	// OCI seccomp file; profile calls it with the path as resolved.
	CustomFilter func(path string, data []byte) ([]byte, error)
}
