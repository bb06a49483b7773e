// Package source fetches the values of variables whose profile names where they
// are instead of holding them. Stage 1 does that outside of the box, right before the
// start ([Filler.Fill]); everything before, the plan included, knows only the place.
//
//	file            a file's content
//	env             another variable of the caller's environment
//	command         what a program writes on standard output
//	keyring         a key of type "user" in the kernel's keyrings (keyrings(7))
//	secret-service  a secret that GNOME Keyring, KWallet, KeePassXC or another
//	                Secret Service holds (https://specifications.freedesktop.org/secret-service/)
//
// All are fetched at once and have ten seconds together. Any failure is an error with the
// line of the profile, and the command does not start. So is a value that is empty,
// holds a NUL byte, or is longer than Linux allows one variable. One line feed
// at the end of a file or of a program's output is not part of the value; the other
// sources are taken as they are.
//
// # Who could have chosen the value
//
// A file and a program must not be changeable by anybody but the caller and root: each
// is a regular file that one of them owns and that group and others cannot write, and
// so is every directory and symbolic link on the way (a directory that others can write
// needs the sticky bit; one of root's may be writable by its group, as root chose).
// None of them may lie where the box can write, because the command of an earlier run
// could have put it there.
//
// A program that is named without a slash is looked up in /usr/local/bin, /usr/bin,
// /bin, /run/wrappers/bin and /run/current-system/sw/bin, and not in PATH. It runs in
// "/", in a session of its own and so without a terminal, with /dev/null as standard input,
// and with the caller's environment, without what leads into the workspace or to where the
// box can write: entries of PATH, relative ones too, and all of any other variable. When it ends, or the time is over, everything that is left in its
// process group is killed.
//
// # Who sees the value
//
// Values are only in the memory of this process and in the environment of the command:
// not in files, arguments, or the environment of other programs, and not in errors, in
// which nothing that a program wrote is repeated, on standard error either. Memory is
// not cleared: Go moves and copies strings, so that this could not be promised. The box
// cannot see this process. Whether other processes of the user outside can read its
// memory is for the program to say (wall forbids it but while it clones the box:
// PR_SET_DUMPABLE in prctl(2)). The
// Secret Service sends the secret through the user's message bus without encryption of
// its own.
package source
