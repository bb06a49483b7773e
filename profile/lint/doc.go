// Package lint reviews profiles without running anything: it finds what does
// not parse, what does not resolve, and what is legal but dangerous, useless or
// not portable.
//
// A [Checker] is given one file at a time and answers with [Finding] values,
// each with a stable code, a severity, a place, the reason and the fix. The
// rules are one table, [Rules], which the documents are made from, too.
//
// The package is pure like package profile: it reads files only through
// [Options].FS, asks the machine nothing, and gives the same findings for the
// same input. It does not promise that a profile without findings is safe: it
// knows names of credentials, sockets, start-up files and upload services, and
// there are others. What a profile may do on one host is said by "wall plan".
//
// Nothing here ever prints a value of the table environment.set: a line that
// holds one is shown up to its first "=".
package lint
