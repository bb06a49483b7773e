package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/landlock"
)

// Set by the linker: -ldflags "-X main.version=1.2.3 -X main.commit=abc".
var (
	version string
	commit  string
)

// wallVersion is the version of this binary.
func wallVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// wallCommit is the commit of this binary, with "-dirty" when the tree had
// changes; "unknown" when the build did not record it.
func wallCommit() string {
	if commit != "" {
		return commit
	}
	rev, dirty := "unknown", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				rev = s.Value
			case "vcs.modified":
				if s.Value == "true" {
					dirty = "-dirty"
				}
			}
		}
	}
	return rev + dirty
}

func newVersion(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of wall",
		Long: `Print the version of wall, the commit and the Go release it was built from,
whether it can compile custom seccomp filters, and the newest Landlock ABI it
makes use of.`,
		Example: `  wall version`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := io.WriteString(s.out, versionText())
			return err
		},
	}
}

func versionText() string {
	custom := "no (built without cgo)"
	if canCompile {
		custom = "yes"
	}
	return fmt.Sprintf("wall %s\ncommit: %s\ngo: %s %s/%s\ncustom seccomp filters: %s\nnewest Landlock ABI known: %d\n",
		wallVersion(), wallCommit(), runtime.Version(), runtime.GOOS, runtime.GOARCH, custom, landlock.NewestABI)
}
