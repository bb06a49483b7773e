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
// A profile that is named, not given as a file, is looked for in [SystemDir]
// and in the user's configuration directory; each file found lies over the one
// of the same name below it, the built-in profile at the bottom, unless it says
// with "extends" what it lies over. Flags lie above all files. Between them and
// the files lies the project layer, WORKSPACE/.wall/NAME.toml, which comes from
// nobody in particular: it may only tighten. Every setting is compared with
// what it was without that layer, by the direction that the table of keys gives
// ([Key.Tighten]); a change without a known direction counts as wider. What
// widens is refused, unless the operator trusted exactly that content at that
// place ([TrustFile]).
//
// A single value of a higher layer replaces that of a lower one. A list of a
// higher layer adds to the inherited list, and an explicitly empty list drops
// what was inherited. An absent key changes nothing. In every list an empty
// result means nothing. [Load] gives the layers as a [Stack], which knows where
// each value comes from and what it replaced.
//
// # Groups
//
// "@NAME" in hide and protect stands for a list of places ([Groups]). Of what a
// group protects, only few names are kept from being made while they are absent
// (.git, .vscode and .claude): each costs an empty directory on the host for
// the time of the run. The others are protected where they exist. A name that
// is written out is protected in both cases.
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
