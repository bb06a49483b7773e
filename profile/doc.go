// Package profile turns profiles, flags and host facts into a plan.
//
// [Parse] reads one profile file (TOML, version 1) into a [File] in which every
// value keeps its [plan.Origin]; [Resolve] merges the layers, looks at the host
// through [Host] and gives a complete [plan.Plan] or located errors.
//
// Resolve is pure: it never asks the machine, runs no program, reads no
// variable but those in Host.Environ, and gives the same bytes for the same
// input. All file access goes through Host.FS. A host that changes between
// Resolve and stage 2 is noticed there by file type, not here.
//
// The package does not promise that the kernel can do what the plan says; it
// uses the probes in Host and leaves the rest to package nsexec.
//
// # Layers
//
// A profile may extend one other; flags lie above all files. A single value of
// a higher layer replaces that of a lower one. A list of a higher layer adds to
// the inherited list, and an explicitly empty list drops what was inherited. An
// absent key changes nothing. In every list an empty result means nothing.
//
// # Paths
//
// "~" and "$home" are the home directory of the account record (not $HOME),
// "$workspace" and "$cwd" are the two directories of the run; they expand only
// at the start of a path. A relative path is relative to the workspace in a
// file and to the working directory in a flag. The most specific path wins; at
// the same path hide beats protect beats write beats read, except that a grant
// of a higher layer replaces a grant of a lower one.
package profile
