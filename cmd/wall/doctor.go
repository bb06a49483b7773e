package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/envscrub/inject"
	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/landlock"
	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/seccomp"
)

// doctorTimeout bounds all the trying; each attempt takes milliseconds.
const doctorTimeout = 30 * time.Second

// A finding is one thing that was tried on this host.
type finding struct {
	Name     string `json:"name"`
	OK       bool   `json:"ok"`
	Required bool   `json:"required"` // the built-in profiles do not run without it
	Detail   string `json:"detail"`
	Remedy   string `json:"remedy"` // "" when OK
	skipped  bool   // what it needs is missing
	broken   bool   // it is there and cannot be used
}

// A diagnosis is what "wall doctor --json" prints.
type diagnosis struct {
	Version  int       `json:"version"`
	Wall     string    `json:"wall"`
	OK       bool      `json:"ok"` // every required finding is
	Findings []finding `json:"findings"`
}

func newDoctor(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor [--json]",
		Short: "Try what this host can do for wall",
		Long: `Try every facility of the kernel that wall uses, in a box that is thrown away,
and say what to do about each that is missing. Nothing is concluded from a version
or a setting. The file of the stored variables is read, too. The exit status is 0 when
every wall of the built-in profiles can be built and that file can be used, else 1.`,
		Example: `  wall doctor
  wall doctor --json`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
	}
	var asJSON bool
	addSwitch(cmd.Flags(), &asJSON, "json", "print the findings as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(context.Background(), doctorTimeout)
		defer cancel()
		d, err := diagnose(ctx)
		if err != nil {
			return err
		}
		if asJSON {
			err = writeJSON(s.out, d)
		} else {
			err = d.writeText(s.out)
		}
		if err == nil && !d.OK {
			err = exitStatus(1)
		}
		return err
	}
	return cmd
}

// diagnose tries everything.
func diagnose(ctx context.Context) (diagnosis, error) {
	d := diagnosis{Version: resultVersion, Wall: wallVersion(), OK: true}
	features, err := nsexec.Probe(ctx)
	if err != nil {
		return d, &plan.Error{Op: "cannot try what this host offers", Err: err}
	}
	for _, f := range kernelFindings(features, insideBox()) {
		d.add(f)
	}
	abi, err := landlock.ABI()
	d.add(landlockFinding(abi, err))
	ok, err := seccomp.Probe()
	d.add(seccompFinding(ok, err))
	d.add(customFilterFinding(canCompile))
	var id [8]byte
	if err := randomBytes(id[:]); err != nil {
		return d, &plan.Error{Op: "cannot name a cgroup", Err: err}
	}
	d.add(storedFinding())
	for _, f := range nsexec.ProbeLimits(hex.EncodeToString(id[:])) {
		x := finding{Name: f.Name, OK: f.OK, Detail: f.Detail, Remedy: f.Remedy}
		if !f.OK && insideBox() {
			x.Detail, x.Remedy, x.skipped = "needs to run outside of a box", "", true
		}
		d.add(x)
	}
	return d, nil
}

// kernelFindings tells what nsexec.Probe found. Everything needs user namespaces:
// when those are missing, the rest says nothing about itself, and one cause is
// told instead of many.
func kernelFindings(features []nsexec.Feature, inBox bool) []finding {
	var out []finding
	var cause *finding
	for _, f := range features {
		x := finding{Name: f.Name, OK: f.OK, Required: !f.Optional, Detail: f.Detail}
		// The hints are for whoever has not tried it yet.
		x.Remedy = strings.TrimSuffix(f.Remedy, "; see `wall doctor`")
		switch {
		case cause != nil && !f.OK:
			x.Detail, x.Remedy, x.skipped = "needs "+cause.Name, cause.Remedy, true
		case !f.OK && len(out) == 0:
			if inBox {
				x.Remedy = "this already runs in a wall box, which refuses new namespaces; run wall doctor outside of it"
			}
			cause = &x
		}
		out = append(out, x)
	}
	return out
}

func (d *diagnosis) add(f finding) {
	if f.OK {
		f.Remedy = ""
	} else if f.Required {
		d.OK = false
	}
	d.Findings = append(d.Findings, f)
}

// storedFinding reads the stored variables as a run of a profile with inject = true does, and
// counts them. One that cannot be read keeps such runs from starting.
func storedFinding() finding {
	f := finding{Name: "stored variables", Required: true}
	h, err := host.Gather()
	var file string
	if err == nil {
		file, err = profile.InjectedFile(h, "")
	}
	var vars []inject.Var
	if err == nil && file != "" {
		vars, err = inject.Store{Path: file}.Load()
	}
	if err != nil {
		f.broken, f.Detail, f.Remedy = true, err.Error(), "see \"wall help environment\""
		if e, ok := errors.AsType[*plan.Error](err); ok && e.Hint != "" {
			f.Remedy = e.Hint
		}
		return f
	}
	f.OK, f.Detail = true, "none"
	if len(vars) > 0 {
		f.Detail = fmt.Sprintf("%d in %s", len(vars), file)
	}
	return f
}

// landlockFinding judges what landlock.ABI said.
func landlockFinding(abi int, err error) finding {
	f := finding{
		Name: "landlock", Required: true, OK: err == nil && abi >= 1,
		Remedy: "boot with lsm=landlock in front of the other modules, on Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK; or accept the loss with --if-unavailable degrade",
	}
	switch {
	case err != nil:
		f.Detail = err.Error()
	case abi < 1:
		f.Detail = "the kernel has no Landlock"
	case abi < 6:
		f.Detail = fmt.Sprintf("ABI %d; signals and abstract sockets are scoped from ABI 6 (Linux 6.12) on, until then by namespaces alone", abi)
	default:
		f.Detail = fmt.Sprintf("ABI %d", abi)
	}
	return f
}

// seccompFinding judges what seccomp.Probe said.
func seccompFinding(ok bool, err error) finding {
	f := finding{
		Name: "seccomp", Required: true, OK: ok && err == nil, Detail: "filters can be installed",
		Remedy: "use a kernel with CONFIG_SECCOMP_FILTER; in a container, allow seccomp(2) in its own filter",
	}
	switch {
	case err != nil:
		f.Detail = err.Error()
	case !ok:
		f.Detail = "the kernel refuses filters"
	}
	return f
}

// customFilterFinding tells whether --seccomp FILE works in this build.
func customFilterFinding(can bool) finding {
	f := finding{
		Name: "custom seccomp filters", OK: can, Detail: "libseccomp is linked in",
		Remedy: "build wall with cgo and libseccomp; the built-in filters work without",
	}
	if !can {
		f.Detail = "this wall was built without cgo"
	}
	return f
}

// writeText prints a table and, below each line that is not well, the remedy.
func (d diagnosis) writeText(w io.Writer) error {
	var b strings.Builder
	width := 0
	for _, f := range d.Findings {
		width = max(width, len(f.Name))
	}
	before := ""
	for _, f := range d.Findings {
		mark := "ok"
		switch {
		case f.skipped:
			mark = "not tried"
		case f.broken:
			mark = "broken"
		case !f.OK && f.Required:
			mark = "missing"
		case !f.OK:
			mark = "absent"
		}
		fmt.Fprintf(&b, "%-*s  %-9s  %s\n", width, f.Name, mark, oneLine(f.Detail))
		if f.Remedy != "" && f.Remedy != before { // one cause often takes several things away
			fmt.Fprintf(&b, "%-*s  remedy: %s\n", width, "", oneLine(f.Remedy))
		}
		before = f.Remedy
	}
	if d.OK {
		b.WriteString("\nEvery wall of the built-in profiles can be built here.\n")
	} else if slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Required && !f.OK && !f.broken }) {
		b.WriteString("\nSome walls cannot be built here: profiles that ask for them refuse to run.\n")
	} else {
		b.WriteString("\nEvery wall can be built here, but profiles with inject = true refuse to run.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
