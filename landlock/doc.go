// Package landlock says the file rules of a plan a second time, to the Landlock
// security module of the kernel (landlock(7),
// https://docs.kernel.org/userspace-api/landlock.html), and adds what mount
// namespaces cannot say: rights to reach abstract sockets, to signal, to bind
// and connect, and to use ioctls on devices.
//
// [Expand] and [Compile] are pure: a [plan.Landlock] in, a [Ruleset] out that
// can be inspected before anything uses it. [Ruleset.Open] makes the kernel
// object and changes nothing about the caller; [RestrictThread] enforces it on
// the calling thread for good.
//
// Landlock needs Linux 5.13 and has to be in the kernel's list of security
// modules; every later ABI restricts more (see abi.go). It does not promise
// anything about stat, chmod, chown, utime, extended attributes, flock, files
// that are already open, and files by handle: those are the mount namespace's
// job. Before ABI 9 it does not restrict pathname sockets either.
//
// The rights and their names come from go-landlock; the ruleset itself is made
// by its low-level calls, because Config.NewRulesetFD ties a handle to the
// library's own view of the kernel (it lowers ABI 6 kernels with an erratum
// to 5, asks for the ABI again, follows links in every path) while a plan has
// decided all that beforehand.
package landlock
