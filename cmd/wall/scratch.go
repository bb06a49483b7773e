package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/cgroup"
	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/scratch"
)

// scratchVersion is the version of the JSON that the commands below print.
const scratchVersion = 1

// A scratchList is what "wall scratch list --json" prints.
type scratchList struct {
	Version int           `json:"version"`
	Root    string        `json:"root"`
	Entries []scratchItem `json:"entries"`
}

// A scratchItem is one scratch directory.
type scratchItem struct {
	ID      string    `json:"id"`
	Path    string    `json:"path"`
	Created time.Time `json:"created"`
	Size    uint64    `json:"size_bytes"`
	Partly  bool      `json:"size_partly"` // a part of it cannot be looked at
	State   string    `json:"state"`
}

// The states of a scratch directory.
const (
	stateInUse    = "in-use"
	stateKept     = "kept"
	stateLeftover = "leftover" // of a run that was killed
)

// A scratchRemoved is what "wall scratch gc --json" and "remove --json" print.
type scratchRemoved struct {
	Version int      `json:"version"`
	Root    string   `json:"root"`
	Removed []string `json:"removed"` // ids
}

func newScratch(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scratch COMMAND",
		Short: "List and remove the scratch directories of runs",
		Long: `List and remove scratch directories: those that --keep left behind, and those of
runs that were killed, which the next run removes anyway. A directory that a run
is using is never removed.

Directories of runs with --scratch-root DIR are found with the same flag here.`,
		Example: `  wall scratch list
  wall scratch remove 0f3c9a2b7d5e8146
  wall scratch gc --kept --older 24h`,
		DisableFlagsInUseLine:      true,
		SuggestionsMinimumDistance: 2,
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		hint := `"wall help scratch" lists them`
		if len(args) == 0 {
			return &usageError{msg: "scratch needs a command", hint: hint}
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			hint = fmt.Sprintf("did you mean %q?", "wall scratch "+near[0])
		}
		return &usageError{msg: "unknown command scratch " + quoteOdd(args[0]), hint: hint}
	}
	for _, c := range []*cobra.Command{newScratchGC(s), newScratchList(s), newScratchRemove(s)} {
		cmd.AddCommand(c)
	}
	return cmd
}

// scratchRoot gives the root that the flag --scratch-root means.
func scratchRoot(flag string) (string, error) {
	h := profile.Host{UID: os.Getuid(), Cwd: host.WorkingDir(), TempDir: host.TempDir}
	var err error
	if flag != "" {
		err = setScratchRoot(&h, flag)
	}
	return scratch.DefaultRoot(h.TempDir, h.UID), err
}

const scratchRootUsage = "the directory that was given to the runs as --scratch-root"

func newScratchList(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [--json] [--scratch-root DIR]",
		Short: "List scratch directories with their age, size and state",
		Long: `List scratch directories with their age, size and state: "in-use" by a run,
"kept" by --keep, or "leftover" of a run that was killed. A size with "+" is that
of the part that can be looked at.`,
		Example: `  wall scratch list
  wall scratch list --json`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
	}
	var asJSON bool
	var root string
	addSwitch(cmd.Flags(), &asJSON, "json", "print JSON")
	addOnce(cmd.Flags(), &root, "scratch-root", "", "DIR", scratchRootUsage)
	cmd.RunE = func(*cobra.Command, []string) error {
		l, err := listScratch(root)
		switch {
		case l.Entries == nil: // there is nothing to show but why
		case asJSON:
			err = errors.Join(err, writeJSON(s.out, l))
		default:
			err = errors.Join(err, l.writeText(s.out, time.Now()))
		}
		return err
	}
	return cmd
}

func listScratch(flag string) (scratchList, error) {
	root, err := scratchRoot(flag)
	l := scratchList{Version: scratchVersion, Root: root}
	if err != nil {
		return l, err
	}
	infos, err := scratch.List(root)
	if err != nil {
		err = scratchError("cannot list scratch directories", err)
		if len(infos) == 0 {
			return l, err
		}
	}
	l.Entries = []scratchItem{}
	for _, i := range infos {
		size, sizeErr := scratch.Size(root, i.ID)
		if errors.Is(sizeErr, fs.ErrNotExist) {
			continue // its run ended just now
		}
		l.Entries = append(l.Entries, scratchItem{
			ID: i.ID, Path: i.Path, Created: i.Created.UTC(), Size: size, Partly: sizeErr != nil, State: stateOf(i),
		})
	}
	return l, err
}

// scratchError tells what was attempted, unless the error does so already.
func scratchError(op string, err error) error {
	var pe *plan.Error
	if errors.As(err, &pe) {
		return err
	}
	return &plan.Error{Op: op, Err: err}
}

func stateOf(i scratch.Info) string {
	switch {
	case i.InUse:
		return stateInUse
	case i.Kept:
		return stateKept
	}
	return stateLeftover
}

// writeText prints a table.
func (l scratchList) writeText(w io.Writer, now time.Time) error {
	var b strings.Builder
	if len(l.Entries) == 0 {
		fmt.Fprintf(&b, "no scratch directories below %s\n", oneLine(l.Root))
	} else {
		width := len("ID")
		for _, e := range l.Entries {
			width = max(width, len(e.ID))
		}
		fmt.Fprintf(&b, "%-*s  %8s  %10s  %-8s  %s\n", width, "ID", "AGE", "SIZE", "STATE", "PATH")
		for _, e := range l.Entries {
			size := roughSize(e.Size)
			if e.Partly {
				size += "+"
			}
			fmt.Fprintf(&b, "%-*s  %8s  %10s  %-8s  %s\n", width, e.ID, roughAge(now.Sub(e.Created)), size, e.State, oneLine(e.Path))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// roughSize gives bytes for a table: three digits and a unit.
func roughSize(n uint64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	x, unit := float64(n), ""
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1<<10 {
			break
		}
		x, unit = x/(1<<10), u
	}
	return fmt.Sprintf("%.1f %s", x, unit)
}

// roughAge gives a duration for a table, in its largest unit. What is made in the
// future, by a clock that was put back, is of no age.
func roughAge(d time.Duration) string {
	for _, u := range []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}} {
		if d >= u.d {
			return fmt.Sprintf("%d%s", d/u.d, u.name)
		}
	}
	return fmt.Sprintf("%ds", max(0, d/time.Second))
}

func newScratchRemove(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove [--json] [--scratch-root DIR] ID...",
		Short: "Remove scratch directories that no run is using",
		Long: `Remove scratch directories by their ids, also kept ones. One that a run is using
is refused, and so is an id that does not exist; the others are removed all the
same.`,
		Example:               `  wall scratch remove 0f3c9a2b7d5e8146`,
		DisableFlagsInUseLine: true,
	}
	var asJSON bool
	var flag string
	addSwitch(cmd.Flags(), &asJSON, "json", "print the ids of what was removed as JSON")
	addOnce(cmd.Flags(), &flag, "scratch-root", "", "DIR", scratchRootUsage)
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return completeScratch(flag, args), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &usageError{msg: "no scratch directory to remove", hint: `"wall scratch list" shows their ids`}
		}
		root, err := scratchRoot(flag)
		if err != nil {
			return err
		}
		r := scratchRemoved{Version: scratchVersion, Root: root, Removed: []string{}}
		var errs []error
		for _, id := range args {
			switch err := scratch.Discard(root, id); {
			case err == nil:
				r.Removed = append(r.Removed, id)
			case errors.Is(err, fs.ErrNotExist):
				errs = append(errs, &plan.Error{Op: "cannot remove scratch directory " + quoteOdd(id), Err: errors.New("there is none of this id below " + root), Hint: `"wall scratch list" shows them`})
			default:
				errs = append(errs, scratchError("cannot remove scratch directory "+quoteOdd(id), err))
			}
		}
		if asJSON {
			errs = append(errs, writeJSON(s.out, r))
		}
		return errors.Join(errs...)
	}
	return cmd
}

// completeScratch gives the ids that can still be removed, with what they are.
func completeScratch(flag string, args []string) []string {
	root, err := scratchRoot(flag)
	if err != nil {
		return nil
	}
	infos, _ := scratch.List(root) // then there is nothing to complete
	var out []string
	for _, i := range infos {
		if i.InUse || slices.Contains(args, i.ID) {
			continue
		}
		out = append(out, i.ID+"\t"+stateOf(i)+", made "+roughAge(time.Since(i.Created))+" ago")
	}
	return out
}

func newScratchGC(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc [--older DURATION] [--kept] [--json] [--scratch-root DIR]",
		Short: "Remove what killed runs left, and kept directories on request",
		Long: `Remove the scratch directories of runs that were killed, with the placeholders that
they left in workspaces, and empty cgroups of such runs. Every run does the same
before it starts. With --kept, directories that --keep left go, too. A directory
that a run is using stays.`,
		Example: `  wall scratch gc
  wall scratch gc --kept --older 24h`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
	}
	var asJSON, kept bool
	var older, flag string
	addOnce(cmd.Flags(), &older, "older", "", "DURATION", "only what is older, such as 90m or 24h")
	addSwitch(cmd.Flags(), &kept, "kept", "also what --keep left behind")
	addSwitch(cmd.Flags(), &asJSON, "json", "print the ids of what was removed as JSON")
	addOnce(cmd.Flags(), &flag, "scratch-root", "", "DIR", scratchRootUsage)
	cmd.RunE = func(*cobra.Command, []string) error {
		var age time.Duration
		if older != "" {
			n, err := profile.ParseDuration(older)
			if err != nil {
				return &usageError{msg: "flag --older " + quoteOdd(older) + ": " + err.Error()}
			}
			age = time.Duration(n)
		}
		root, err := scratchRoot(flag)
		if err != nil {
			return err
		}
		r := scratchRemoved{Version: scratchVersion, Root: root}
		r.Removed, err = collectScratch(root, age, kept)
		errs := []error{err, collectCgroups()}
		if asJSON {
			errs = append(errs, writeJSON(s.out, r))
		} else {
			var b strings.Builder
			for _, id := range r.Removed {
				b.WriteString("removed " + id + "\n")
			}
			_, err := io.WriteString(s.out, b.String())
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	return cmd
}

// collectScratch removes leftovers, and kept directories if asked to, that are
// older than age.
func collectScratch(root string, age time.Duration, kept bool) (removed []string, err error) {
	removed = []string{}
	infos, err := scratch.List(root)
	var errs []error
	if err != nil {
		errs = append(errs, scratchError("cannot list scratch directories", err))
	}
	now := time.Now()
	for _, i := range infos {
		if i.InUse || i.Kept && !kept || age > 0 && now.Sub(i.Created) < age {
			continue
		}
		switch err := scratch.Discard(root, i.ID); {
		case err == nil:
			removed = append(removed, i.ID)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, scratch.ErrInUse):
			// Another wall was faster, or a run began just now.
		default:
			errs = append(errs, err)
		}
	}
	return removed, errors.Join(errs...)
}

// collectCgroups removes the empty cgroups of runs that were killed, where this
// caller can make any.
func collectCgroups() error {
	var id [8]byte
	if err := randomBytes(id[:]); err != nil {
		return &plan.Error{Op: "cannot name a cgroup", Err: err}
	}
	for _, need := range []cgroup.Need{{Memory: true}, {Pids: true}} {
		c, err := cgroup.Find(need, hex.EncodeToString(id[:]), nil) // scopes go away by themselves
		if err != nil {
			continue // then no run of the caller's had one here
		}
		cgroup.Collect(c)
	}
	return nil
}
