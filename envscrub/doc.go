// Package envscrub decides the environment of a boxed command: for every
// variable whether it is kept, dropped or set, with the rule that decided and
// the input that asked for it.
//
// [Build] is a pure function over plain values. It never reads the environment
// of the process or the disk (whether a directory exists is asked of the fs.FS
// in [Input]), it changes none of its arguments, and it never returns a nil
// slice, because a nil exec.Cmd.Env inherits everything. Previews and real runs
// call the same function.
//
// # Order
//
// The environment is built from nothing. Later steps replace earlier ones:
//
//  1. ambient names that the mode admits (below), and the locations a base
//     derives (RUSTUP_HOME, NPM_CONFIG_CACHE)
//  2. Policy.Pass, exact ambient names
//  3. Policy.Set
//  4. operations, of the base workspace only: SSH_AUTH_SOCK, the proxy variables
//     in both casings, SSL_CERT_FILE, SSL_CERT_DIR and GIT_SSL_CAINFO where they
//     are not empty, and GIT_CONFIG_GLOBAL with the first that exists of the
//     ambient one, $XDG_CONFIG_HOME/git/config, ~/.config/git/config, ~/.gitconfig
//  5. Policy.Auth, one ambient name, only when it is not empty
//  6. Policy.Inject
//  7. HOME, TMPDIR and (where a base has them or they crossed) TMP and TEMP
//     from [Input]; then Policy.Fixed
//  8. Policy.Flags
//  9. Policy.Extra; Auth, when it has a value, is not taken from it
//
// [Session], [Contract], [Gate], [Probe] and [Workspace] make the policies of
// the reference's kinds of child.
//
// # Modes
//
//	off           every ambient name; neither allow nor deny apply
//	deny-secrets  every ambient name but the denied
//	strict        the table of the base, and what Allow matches
//
// While a scrub is active (deny-secrets, strict) these rules apply to ambient
// names, in this order:
//
//   - The control plane (WALL_* and Policy.ControlPrefixes, in any casing) never
//     crosses, whatever Allow or Pass say.
//   - Policy.Deny wins over the table, Allow, Pass and Auth. Deny compares
//     without regard to case, Allow with.
//   - PWD, SHLVL and _ describe the caller's shell and do not cross.
//   - Names that are guarded: credentials ([SecretShapes], [SecretGaps], values
//     that hold a URL with credentials or a private key), variables that make
//     programs load or run other code (LD_PRELOAD, BASH_ENV, GIT_SSH_COMMAND and
//     the like), and variables that name a socket of the host. deny-secrets
//     drops them. An exact name in Allow admits them, except that under
//     deny-secrets nothing in Allow admits a name of SecretShapes. A pattern
//     with a star (the LC_* of the shell table is one) does not admit a guarded
//     name, unless the rule is Guarded. An exact name in Pass or Auth admits any of them.
//
// # Names that wall decides
//
// HOME is Input.Home in every mode, whatever the ambient one says: the box has
// the home (the operator's, or a scratch one) mounted there, so deny-secrets and
// strict both have a HOME. TMPDIR is Input.TmpDir in every mode, and TMP and
// TEMP never have another value. PATH comes from the ambient one; while a scrub
// is active its empty and relative entries are removed (they mean the working
// directory, which is not to be trusted) and a missing, empty or denied PATH
// becomes [DefaultPath].
//
// Variables that name descriptors which are closed in the box are dropped in
// every mode, off included, unless Policy.KeepFDs is set: LISTEN_FDS and its
// companions, NODE_CHANNEL_FD, BASH_XTRACEFD, WAYLAND_SOCKET. From MAKEFLAGS,
// MFLAGS, GNUMAKEFLAGS and CARGO_MAKEFLAGS only the jobserver is removed, with
// the -j that belongs to it; a -j without a jobserver stays.
//
// # Windows
//
// For Input.OS "windows" the same rules hold with these differences. It is a
// computation like any other and can be had on every system.
//
//   - Names of variables are compared without regard to case, those in Allow
//     included. There is never a second casing of a name: those that wall knows
//     have one spelling (PATH, SystemRoot, ComSpec, windir), others that of the
//     step which decided.
//   - Every base also admits what processes need: SystemRoot ComSpec PATHEXT
//     SystemDrive windir OS PROCESSOR_ARCHITECTURE PSModulePath. A pass-through
//     may name none of them, here or elsewhere.
//   - USERPROFILE is Input.Home too, and TMP and TEMP are always Input.TmpDir.
//     With a scratch home, and for the bases that have one (session, contract,
//     workspace), APPDATA and LOCALAPPDATA are below Input.Home; the caller makes
//     the directories.
//   - PATH is separated by semicolons, and an absolute entry begins with a drive
//     and a slash or with a share. Its default is made from SystemRoot.
//   - The gate derives RUSTUP_HOME and NPM_CONFIG_CACHE, as session does.
//   - The entries that hold the working directories of the drives ("=C:=C:\dir")
//     do not cross.
//
// # Odd input
//
// The last of several ambient entries with one name counts (of os.Environ there
// is only one: it keeps the first, as getenv(3) does). Entries without "="
// or with an empty name, and names or values with a NUL byte, do not cross; all
// other names and all values are kept byte for byte, UTF-8 or not. A variable
// that is set but empty crosses as empty, except in two places: Auth needs a
// value, and where a base derives RUSTUP_HOME and NPM_CONFIG_CACHE an empty one
// counts as not set while a scrub is active.
//
// # What it does not promise
//
// A value is judged by its name and two shapes only; a credential under a
// harmless name crosses in the modes off and deny-secrets. Nothing here hides
// the environment of other processes; the process and file walls do that.
//
// Only names appear in reasons, notices and errors, never values. Origins that
// come with a value ("--env NAME=value") are cut before they are handed on.
package envscrub
