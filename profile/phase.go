package profile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// LayerPhase is what a phase of a gate says over the profile that it stands in.
const LayerPhase LayerKind = "phase"

// maxPhases bounds the phases of one profile.
const maxPhases = 100

// A Phase is one element of [[gate.phase]]: a command of a gate, with settings of
// its own that lie over those of the profile. As any layer they may allow more or
// less; the project layer and the command line lie above them.
type Phase struct {
	Name    string
	Command []string // exact; a line became /bin/sh -c LINE
	File    *File    // what it says besides
	Origin  plan.Origin
}

// phaseKeys are the keys that a phase may have, besides name and command: whole
// tables, and single keys. What is mounted, and who the command is, is the same
// for all phases, because they share one scratch directory.
var phaseKeys = []string{"network", "limits", "environment.set", "environment.pass"}

// PhaseKeys lists the keys that a phase may set, in the order of Keys.
func PhaseKeys() []Key {
	return slices.DeleteFunc(Keys(), func(k Key) bool { return !phaseMay(k.Name) })
}

// quotablePhase is quotable for the keys below [gate].
func quotablePhase(names []string, header bool) (known, quote bool) {
	switch {
	case len(names) == 0 || names[0] != "phase":
		return header && len(names) == 0, header
	case len(names) == 1:
		return header, header
	case len(names) == 2 && !header && (names[1] == "name" || names[1] == "command"):
		return true, true
	case names[1] == "gate":
		return false, false
	}
	return quotable(names[1:], header)
}

// phaseMay reports whether a phase may have the key, a full name.
func phaseMay(full string) bool {
	table, _, _ := strings.Cut(full, ".")
	return full != "limits.core" && (slices.Contains(phaseKeys, table) || slices.Contains(phaseKeys, full))
}

// decodeGate decodes the table [gate], which holds the phases.
func decodeGate(d *document, k keyed, f *File) {
	if k.val.kind != tomlTable {
		d.fail(k.val.off, "write [[gate.phase]]", "%q must be a table, not %s", k.name, k.val.kind)
		return
	}
	for _, x := range k.val.keys {
		switch {
		case x.name != "phase":
			d.failAs(keyText(x.name), x.off, "phases are written as [[gate.phase]]", "unknown key %q", shownKey("gate."+x.name))
		case x.val.kind != tomlArray:
			d.fail(x.val.off, "write [[gate.phase]] above each phase", "\"gate.phase\" must be an array of tables, not %s", x.val.kind)
		default:
			decodePhases(d, x, f)
		}
	}
}

func decodePhases(d *document, k keyed, f *File) {
	f.Phases = List[Phase]{Set: true, Origin: d.origin(k.off)}
	if len(k.val.items) > maxPhases {
		d.fail(k.val.items[maxPhases].off, "", "more than %d phases", maxPhases)
		return
	}
	names := map[string]bool{}
	for _, v := range k.val.items {
		if v.kind != tomlTable {
			d.fail(v.off, "write [[gate.phase]] above each phase", "a phase must be a table, not %s", v.kind)
			continue
		}
		before := len(d.probs)
		ph := Phase{File: &File{Source: f.Source}, Origin: d.origin(v.off)}
		for _, x := range v.keys {
			decodePhaseKey(d, x, &ph)
		}
		if len(d.probs) > before {
			continue
		}
		switch {
		case ph.Name == "":
			d.fail(v.off, `write name = "..."`, "a phase has no name")
		case len(ph.Command) == 0:
			d.fail(v.off, `write command = ["program", "argument"], or a line for /bin/sh`, "phase %q has no command", ph.Name)
		case names[ph.Name]:
			d.fail(v.off, "rename one of them", "there are two phases called %q", ph.Name)
		}
		names[ph.Name] = true
		f.Phases.Items = append(f.Phases.Items, Item[Phase]{V: ph, Origin: ph.Origin})
	}
}

func decodePhaseKey(d *document, k keyed, ph *Phase) {
	switch k.name {
	case "name":
		s, ok := str(d, k.val, "name")
		if ok && (s == "" || len(s) > 64 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "") {
			d.fail(k.val.off, "", "the name of a phase has 1 to 64 letters, digits, dots, hyphens and underscores")
			return
		}
		ph.Name = s
	case "command":
		ph.Command = decodeCommand(d, k)
	case "network", "limits", "environment":
		if k.val.kind != tomlTable {
			d.fail(k.val.off, "", "%q must be a table, not %s", k.name, k.val.kind)
			return
		}
		for _, x := range k.val.keys {
			full := k.name + "." + x.name
			if _, known := LookupKey(full); known && !phaseMay(full) {
				d.failAs(keyText(x.name), x.off, phaseHint(), "a phase cannot set %q", full)
				continue
			}
			decodeKey(d, k.name, x, ph.File)
		}
	default:
		d.failAs(keyText(k.name), k.off, phaseHint(), "a phase cannot have the key %q", shownKey(k.name))
	}
}

func phaseHint() string {
	return "a phase has name, command, network.*, limits.*, environment.set and environment.pass"
}

// decodeCommand reads a list of words, or a line for the shell.
func decodeCommand(d *document, k keyed) []string {
	switch k.val.kind {
	case tomlString:
		s, ok := str(d, k.val, "command")
		if ok && strings.TrimSpace(s) == "" {
			d.fail(k.val.off, "", "the command is empty")
		} else if ok {
			return []string{"/bin/sh", "-c", s}
		}
	case tomlArray:
		var out []string
		for i, v := range k.val.items {
			if d.tooLong(i, v.off, "command") {
				return nil
			}
			s, ok := str(d, v, "a word of the command")
			if !ok {
				return nil
			}
			out = append(out, s)
		}
		if len(out) == 0 || out[0] == "" {
			d.fail(k.val.off, "", "the command is empty")
			return nil
		}
		return out
	default:
		d.fail(k.val.off, "", "\"command\" must be an array of words or a line for /bin/sh, not %s", k.val.kind)
	}
	return nil
}

// checkPhases refuses phases of a project layer: they are commands, and what they
// say over the profile may allow more.
func checkPhases(l Layer) error {
	if !l.File.Phases.Set {
		return nil
	}
	return &plan.Error{Op: "a project layer cannot change the phases of a gate", Origin: l.File.Phases.Origin,
		Hint: "write them in a profile of your own, for example in ~/.config/wall, or name the file with -p"}
}

// Phases gives the phases of the highest layer that has any.
func (s *Stack) Phases() []Phase {
	for _, l := range slices.Backward(s.layers) {
		if l.Kind != LayerProject && l.File.Phases.Set {
			out := make([]Phase, len(l.File.Phases.Items))
			for i, it := range l.File.Phases.Items {
				out[i] = it.V
			}
			return out
		}
	}
	return nil
}

// layer makes the phase a layer over those of its profile.
func (p *Phase) layer() Layer {
	return Layer{Kind: LayerPhase, Name: p.Name, File: p.File, id: "phase:" + p.Name, told: p.Origin}
}

// String tells the phase in one line: its name and command.
func (p Phase) String() string {
	words := make([]string, len(p.Command))
	for i, w := range p.Command {
		words[i] = tomlQuote(w)
	}
	return tomlQuote(p.Name) + " [" + strings.Join(words, ", ") + "]"
}

// comparePhases tells what changes in phases, each by its name: any change counts
// as of no known direction.
func comparePhases(a, b *Stack) []Change {
	index := func(s *Stack) (map[string]string, map[string]plan.Origin, []string) {
		text, at := map[string]string{}, map[string]plan.Origin{}
		var names []string
		for i, p := range s.Phases() {
			text[p.Name] = fmt.Sprintf("%d %s", i+1, p)
			for _, k := range PhaseKeys() {
				if set, _ := isSet(k.field(p.File)); set {
					_, t, _ := show(k, k.field(p.File), 0)
					text[p.Name] += ", " + k.Name + " = " + t
				}
			}
			at[p.Name] = p.Origin
			names = append(names, p.Name)
		}
		return text, at, names
	}
	was, wasAt, old := index(a)
	is, isAt, names := index(b)
	for _, n := range old {
		if _, ok := is[n]; !ok {
			names = append(names, n)
		}
	}
	var out []Change
	for _, n := range names {
		if was[n] == is[n] {
			continue
		}
		o := isAt[n]
		if is[n] == "" {
			o = wasAt[n]
		}
		out = append(out, Change{Key: "gate.phase", Kind: Other, Item: n, From: was[n], To: is[n], Origin: o})
	}
	return out
}

// ResolveStack is Resolve, and gives what the plan was made from. The Stack is
// there also when its plan is refused, unless it could not be read.
func ResolveStack(h Host, o Options) (plan.Plan, *Stack, error) {
	r := &resolver{h: h, o: o, t: newTree(h.FS)}
	p, err := r.resolve()
	if err != nil {
		return plan.Plan{}, r.st, err
	}
	if o.NoCommand {
		return p, r.st, nil
	}
	if err := p.Validate(); err != nil {
		return plan.Plan{}, r.st, bug(err)
	}
	return p, r.st, nil
}

// Digest is the SHA-256, in lower-case hex, of the layers that were read, lowest
// first: of each its kind, its name and its text, every one with its length in
// front (eight bytes, big endian). Flags are not in it, and neither is what the
// caller's environment says.
func (s *Stack) Digest() string {
	h := sha256.New()
	for _, l := range s.layers {
		if l.data == nil {
			continue
		}
		for _, part := range [][]byte{[]byte(l.Kind), []byte(l.Name), l.data} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ParseSize reads a size as profiles write it: "64MiB".
func ParseSize(s string) (uint64, error) {
	n, msg := parseSize(s)
	if msg != "" {
		return 0, &plan.Error{Op: fmt.Sprintf("%q %s", s, msg)}
	}
	return n, nil
}
