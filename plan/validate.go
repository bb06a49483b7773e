package plan

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Validate reports everything that makes p impossible or unsafe to carry out,
// joined. A plan made by profile.Resolve is valid; a failure there is a bug of
// wall. Stage 2 validates again what it received.
func (p Plan) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	abs := func(what, s string) {
		if !strings.HasPrefix(s, "/") || path.Clean(s) != s || strings.IndexByte(s, 0) >= 0 {
			bad("%s %q is not an absolute clean path", what, s)
		}
	}
	if p.Version != Version {
		bad("version %d, want %d", p.Version, Version)
	}
	switch p.Enforce {
	case EnforceOff, EnforceFS, EnforceFSNet:
	default:
		bad("enforce %q", p.Enforce)
	}
	abs("command", p.Command.Path)
	abs("working directory", p.Command.Dir)
	if len(p.Command.Argv) == 0 {
		bad("argv is empty")
	}
	for _, a := range p.Command.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			bad("an argument holds a NUL byte")
		}
	}
	if p.Identity.UID < 0 || p.Identity.GID < 0 {
		bad("identity %d:%d", p.Identity.UID, p.Identity.GID)
	}
	p.validateScratch(bad, abs)
	p.validateSpaces(bad)
	p.validateMounts(bad, abs)
	for _, l := range p.Limits {
		switch l.Name {
		case LimitCore, LimitNoFile, LimitFSize, LimitNProc:
		default:
			bad("limit %q", l.Name)
		}
	}
	p.Bounds.validate(bad, abs)
	p.Network.validate(bad, slices.ContainsFunc(p.Spaces, func(s Space) bool { return s.Kind == SpaceNet }))
	p.validateLandlock(bad, abs)
	if n := len(p.Seccomp.Program); n > 0 && (n%8 != 0 || n > 4096*8 || p.Seccomp.Profile == "") {
		bad("seccomp program of %d bytes named %q", n, p.Seccomp.Profile)
	}
	for i, s := range p.Stdio {
		if s.FD != i || s.FD > 2 {
			bad("standard stream %d describes descriptor %d", i, s.FD)
		}
		switch s.Kind {
		case StdioPipe, StdioSocket, StdioTTY, StdioFile, StdioNull, StdioClosed, StdioOther:
		default:
			bad("standard stream %d is %q", s.FD, s.Kind)
		}
	}
	if len(p.Stdio) != 3 {
		bad("%d standard streams described, want 3", len(p.Stdio))
	}
	switch p.TTY {
	case "", TTYNone, TTYInherit:
	case TTYPrivate:
		if len(p.Stdio) > 0 && p.Stdio[0].Kind != StdioTTY {
			bad("a private terminal without a terminal on descriptor 0")
		}
		if p.Enforce != EnforceOff && !slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Op == OpDevpts && m.Target == "/dev/pts" }) {
			bad("a private terminal without a devpts of the box's own")
		}
	default:
		bad("terminal %q", p.TTY)
	}
	if p.Enforce == EnforceOff && p.TTY != "" && p.TTY != TTYInherit {
		bad("enforce off with terminal %q", p.TTY)
	}
	for i, fd := range p.KeepFDs {
		if fd < 3 || (i > 0 && fd <= p.KeepFDs[i-1]) {
			bad("kept descriptors %v are not ascending from 3", p.KeepFDs)
			break
		}
	}
	for _, c := range p.Checks {
		switch c.Op {
		case CheckUnreadable, CheckUnwritable:
			abs("self-test path", c.Path)
		case CheckLayer:
			abs("self-test path", c.Path)
			if !slices.ContainsFunc(p.Mounts, func(m Mount) bool { return m.Op == OpOverlay && m.Target == c.Path }) {
				bad("self-test of the overlay %q, which is not mounted", c.Path)
			}
		case CheckNoCaps, CheckNoNewPrivs, CheckSeccomp, CheckSpace, CheckNoRoute, CheckNoSignal, CheckNoMount:
		default:
			bad("self-test %q", c.Op)
		}
	}
	for i, v := range p.Env {
		if v.Name == "" || strings.ContainsAny(v.Name, "=\x00") {
			bad("environment variable name %q", v.Name)
		}
		if strings.IndexByte(v.Value, 0) >= 0 {
			bad("the value of environment variable %q holds a NUL byte", v.Name)
		}
		if err := v.Source.validate(); err != nil {
			bad("the value source of environment variable %q: %w", v.Name, err)
		}
		if v.Value != "" && !v.Source.IsZero() {
			bad("environment variable %q has both a value and a source", v.Name)
		}
		if i > 0 && p.Env[i-1].Name >= v.Name {
			bad("environment is not sorted and unique at %q", v.Name)
		}
	}
	return errors.Join(errs...)
}

func (p Plan) validateScratch(bad func(string, ...any), abs func(string, string)) {
	s := p.Scratch
	if s.Root == "" {
		if len(s.Dirs)+len(s.Placeholders)+len(s.Guards)+len(s.Seeds)+len(s.Copies) > 0 || s.Kept.Path != "" || len(s.Kept.Dirs) > 0 {
			bad("scratch without a root has contents")
		}
		return
	}
	abs("scratch root", s.Root)
	if s.ID == "" || strings.Trim(s.ID, "0123456789abcdef") != "" {
		bad("scratch id %q is not lower-case hex", s.ID)
	}
	for _, d := range s.Dirs {
		if d.Name == "" || d.Name == "." || d.Name == ".." || strings.ContainsAny(d.Name, "/\x00") {
			bad("scratch directory %q is not one path element", d.Name)
		}
	}
	for _, h := range s.Placeholders {
		abs("placeholder", h.Path)
		if (h.Type != TypeDir && h.Type != TypeFile) || (h.Type == TypeDir && h.Content != "") {
			bad("placeholder %q of type %q", h.Path, h.Type)
		}
	}
	for i, g := range s.Guards {
		abs("guarded path", g)
		if i > 0 && s.Guards[i-1] >= g {
			bad("guarded paths are not sorted and unique at %q", g)
		}
	}
	for _, e := range s.Seeds {
		abs("seed source", e.Source)
		if e.Target == "" || strings.HasPrefix(e.Target, "/") || path.Clean(e.Target) != e.Target ||
			e.Target == ".." || strings.HasPrefix(e.Target, "../") || strings.IndexByte(e.Target, 0) >= 0 {
			bad("seed target %q is not below the scratch directory", e.Target)
		}
	}
	for _, c := range s.Copies {
		abs("copied directory", c.Source)
		if !s.hasDir(c.Target) {
			bad("copy of %q to %q, which is not in the scratch directory", c.Source, c.Target)
		}
	}
	if k := s.Kept; k.Path != "" || len(k.Dirs) > 0 {
		abs("kept directory", k.Path)
		for i, d := range k.Dirs {
			if d == "" || d == "." || d == ".." || strings.ContainsAny(d, "/\x00") {
				bad("kept directory %q is not one path element", d)
			}
			if i > 0 && k.Dirs[i-1] >= d {
				bad("kept directories are not sorted and unique at %q", d)
			}
		}
	}
}

// hasDir reports whether name is one of the sub-directories.
func (s Scratch) hasDir(name string) bool {
	return slices.ContainsFunc(s.Dirs, func(d ScratchDir) bool { return d.Name == name })
}

// LayerPath gives the host path of Upper or Work of an overlay: name as it
// stands in a Mount. It is "" when the plan has no such directory.
func (s Scratch) LayerPath(name string) string {
	if s.hasDir(name) {
		return s.Path() + "/" + name
	}
	if d, base := path.Split(name); s.Kept.Path != "" && d == s.Kept.Path+"/" && slices.Contains(s.Kept.Dirs, base) {
		return name
	}
	return ""
}

func (p Plan) validateSpaces(bad func(string, ...any)) {
	var seen []SpaceKind
	for i, s := range p.Spaces {
		switch s.Kind {
		case SpaceUser, SpaceMount, SpacePID, SpaceNet, SpaceIPC, SpaceUTS, SpaceCgroup:
		default:
			bad("namespace %q", s.Kind)
		}
		if slices.Contains(seen, s.Kind) {
			bad("namespace %q twice", s.Kind)
		}
		if i == 0 && s.Kind != SpaceUser {
			bad("the first namespace is %q, want %q, which owns the others", s.Kind, SpaceUser)
		}
		seen = append(seen, s.Kind)
	}
	boxed := p.Enforce != EnforceOff
	for _, k := range []SpaceKind{SpaceUser, SpaceMount, SpacePID, SpaceIPC} {
		if boxed && !slices.Contains(seen, k) {
			bad("enforce %s without a %s namespace", p.Enforce, k)
		}
	}
	if !boxed && len(p.Spaces)+len(p.Mounts) > 0 {
		bad("enforce off with namespaces or mounts")
	}
}

func (p Plan) validateMounts(bad func(string, ...any), abs func(string, string)) {
	oneOf := func(t FileType, ts ...FileType) bool { return slices.Contains(ts, t) }
	used := map[string]bool{} // layers of overlays, which the kernel does not allow to be shared
	for i, m := range p.Mounts {
		abs(string(m.Op)+" target", m.Target)
		root := m.Op == OpHostRoot || m.Op == OpEmptyRoot
		if (i == 0) != root {
			bad("mount %d is %s: the root comes first, and once", i, m.Op)
		}
		if m.MakeAs != "" && m.MakeAs != TypeDir && m.MakeAs != TypeFile {
			bad("%s %q makes a mount point of type %q", m.Op, m.Target, m.MakeAs)
		}
		if m.Op != OpOverlay && m.Upper+m.Work != "" {
			bad("%s %q has layers", m.Op, m.Target)
		}
		if m.Op != OpBind && m.Access != AccessNone {
			bad("%s %q has access %q", m.Op, m.Target, m.Access)
		}
		switch m.Op {
		case OpHostRoot, OpEmptyRoot:
			if m.Target != "/" {
				bad("%s at %q", m.Op, m.Target)
			}
		case OpBind:
			abs("bind source", m.Source)
			if m.Access != AccessRead && m.Access != AccessWrite {
				bad("bind %q has access %q", m.Target, m.Access)
			}
			if !oneOf(m.Type, TypeDir, TypeFile) {
				bad("bind %q has type %q", m.Target, m.Type)
			}
		case OpScratch:
			if !p.Scratch.hasDir(m.Source) {
				bad("scratch mount %q of %q, which is not in the scratch directory", m.Target, m.Source)
			}
		case OpOverlay:
			abs("overlay source", m.Source)
			for _, d := range []string{m.Upper, m.Work} {
				if at := p.Scratch.LayerPath(d); at == "" {
					bad("overlay %q with the layer %q, which is neither in the scratch directory nor kept", m.Target, d)
				} else if used[at] {
					bad("overlay %q uses the layer %q again", m.Target, d)
				} else {
					used[at] = true
				}
			}
			if path.IsAbs(m.Upper) != path.IsAbs(m.Work) {
				bad("overlay %q has its layers in two places", m.Target)
			}
		case OpDevice:
			abs("device source", m.Source)
			if !strings.HasPrefix(m.Source, "/dev/") || !strings.HasPrefix(m.Target, "/dev/") {
				bad("device %q from %q is not below /dev", m.Target, m.Source)
			}
		case OpTmpfs, OpProc, OpSysfs, OpDevpts, OpMqueue, OpDir, OpFile, OpSeal:
		case OpSymlink:
			if m.Source == "" || strings.IndexByte(m.Source, 0) >= 0 {
				bad("symbolic link %q to %q", m.Target, m.Source)
			}
		case OpCover:
			if !oneOf(m.Type, TypeDir, TypeFile) {
				bad("cover %q has type %q", m.Target, m.Type)
			}
			if m.Target == "/" || m.Target == p.Command.Dir || strings.HasPrefix(p.Command.Dir, m.Target+"/") {
				bad("cover %q hides the working directory", m.Target)
			}
		case OpText:
			if len(m.Source) > MaxText {
				bad("text of %d bytes at %q", len(m.Source), m.Target)
			}
		case OpPin, OpProtect:
			if !oneOf(m.Type, TypeDir, TypeFile, TypeSymlink) || (m.Op == OpPin && m.Type == TypeSymlink) {
				bad("%s %q has type %q", m.Op, m.Target, m.Type)
			}
		default:
			bad("mount operation %q", m.Op)
		}
	}
	if p.Enforce != EnforceOff && len(p.Mounts) == 0 {
		bad("enforce %s without mounts", p.Enforce)
	}
}

func (p Plan) validateLandlock(bad func(string, ...any), abs func(string, string)) {
	l := p.Landlock
	if l.ABI < 0 {
		bad("landlock abi %d", l.ABI)
	}
	for _, r := range l.Rules {
		abs("landlock rule", r.Path)
		switch r.Access {
		case AccessRead, AccessWrite, AccessDevice, AccessInOut, AccessList:
		default:
			bad("landlock rule %q has access %q", r.Path, r.Access)
		}
		for i, e := range r.Except {
			abs("landlock exception", e)
			if !strings.HasPrefix(e, strings.TrimSuffix(r.Path, "/")+"/") {
				bad("landlock exception %q is not below %q", e, r.Path)
			}
			if i > 0 && r.Except[i-1] >= e {
				bad("landlock exceptions of %q are not sorted and unique", r.Path)
			}
		}
	}
	for _, r := range l.Ports {
		switch r.Op {
		case PortBindTCP, PortConnectTCP, PortBindUDP, PortConnectUDP:
		default:
			bad("port rule %q", r.Op)
		}
		if r.Port < 0 || r.Port > 65535 {
			bad("port %d", r.Port)
		}
	}
}
