// Package convert turns the sandbox settings of other tools into profiles of
// wall: srt (sandbox-runtime), codex, fence and claude.
//
// The profile does not allow more than the settings did, but for restrictions
// that wall cannot express: each of those is a [Note] of the kind [Lost]. What
// wall does in a stricter way, what it has no equivalent for, and what this
// package does not know is told as a Note as well, with the key and the line, and
// stands as a comment in the profile: no key of the settings is passed over in
// silence.
//
// The conversion is a pure function of the text. It reads no other file, so that
// settings which extend or merge others are converted as far as they go, with a
// note. Values of environment variables are copied into the profile and appear
// in no note and no error.
//
// The formats are those of mid-2026: the schema of sandbox-runtime's
// SandboxRuntimeConfig, codex's config.toml, fence.schema.json, and the "sandbox"
// and "permissions" parts of Claude Code's settings.json.
package convert

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
)

// A Kind says why a setting is not simply in the profile.
type Kind string

// The kinds of a Note.
const (
	Lost          Kind = "lost"           // a restriction that the profile does not have: write one by hand
	NoEquivalent  Kind = "no-equivalent"  // wall has nothing like it, or nothing that would not allow more
	Different     Kind = "different"      // the profile says it in another, never a wider, way
	NotUnderstood Kind = "not-understood" // this package does not know the key
	Unrelated     Kind = "unrelated"      // says nothing about the box: a colour, a model, a hook
)

// A Note tells what became of one setting that is not in the profile as it was.
type Note struct {
	Kind Kind   `json:"kind"`
	Key  string `json:"key"`  // "filesystem.denyRead[2]"
	Line int    `json:"line"` // 1-based
	Text string `json:"text"` // what, and what to do; one line
}

// A Result is what a settings file comes to.
type Result struct {
	Profile []byte // TOML; profile.Parse accepts it
	Notes   []Note // in the order of the settings
}

// A tool is one format.
type tool struct {
	name string
	read func(name string, data []byte) (*node, error)
	conv func(*draft, *node)
}

var tools = []tool{
	{"claude", readJSON, claude},
	{"codex", readTOML, codex},
	{"fence", readJSONC, fence},
	{"srt", readJSON, srt},
}

// Tools lists the formats that [Convert] knows, sorted.
func Tools() []string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.name
	}
	return names
}

// MaxSize is the largest settings file that Convert reads, in bytes.
const MaxSize = 1 << 20

// Convert turns settings of the tool into a profile. The source is the name of
// the file, as the user wrote it, and profileName the name that the profile gets.
// The error joins one *plan.Error for every problem of the settings, in file
// order: they are not in the format, or a known key has a value of the wrong
// type, so that the tool itself would not take them either.
func Convert(toolName, source, profileName string, data []byte) (Result, error) {
	i := slices.IndexFunc(tools, func(t tool) bool { return t.name == toolName })
	if i < 0 {
		return Result{}, &plan.Error{Op: fmt.Sprintf("there is no importer for %q", toolName), Hint: "known: " + strings.Join(Tools(), ", ")}
	}
	if len(data) > MaxSize {
		return Result{}, &plan.Error{Op: fmt.Sprintf("the settings are larger than %d bytes", MaxSize), Origin: plan.Origin{File: source}}
	}
	root, err := tools[i].read(source, data)
	if err != nil {
		return Result{}, err
	}
	d := &draft{tool: toolName, source: source, name: profileName,
		view: "host", home: "read-only", workspace: "read-only", network: "none"}
	if root.kind != object {
		d.fail(root, "the settings must be %s, not %s", object, root.kind)
	} else {
		root.seen = true
		tools[i].conv(d, root)
		d.leftovers(root)
	}
	if d.denyAll {
		d.network = "none"
	}
	if len(d.errs) > 0 {
		slices.SortStableFunc(d.errs, func(a, b located) int { return a.line - b.line })
		errs := make([]error, len(d.errs))
		for i, e := range d.errs {
			errs[i] = e.err
		}
		return Result{}, errors.Join(errs...)
	}
	slices.SortStableFunc(d.notes, func(a, b Note) int { return a.Line - b.Line })
	r := Result{Profile: d.write(), Notes: d.notes}
	if _, err := profile.Parse("imported profile", r.Profile); err != nil {
		return Result{}, &plan.Error{Op: "wall bug: the imported profile is not one", Hint: "please report this", Err: err}
	}
	return r, nil
}
