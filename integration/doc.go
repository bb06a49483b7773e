// Package integration holds the black-box tests of the built wall binary on a
// real kernel: attacks on the promises of docs/security-model.md, the life of a
// box from start to SIGKILL, and the work of real tools inside.
//
// Every attack also runs without a box (the control), where it must succeed: a
// test that cannot fail is worth nothing. Where an ordinary user could not do it
// anyway, the control is for root.
//
// WALL_BIN and WALL_PROBE name binaries that exist; unset, the tests build them.
// WALL_TEST_REQUIRE is a comma list of words (userns, landlock, seccomp, home,
// internet, tools, and names of programs) whose absence is a failure instead of
// a skip.
//
// Tests of the network have an internet of their own, made of network
// namespaces; nothing of theirs leaves the machine.
package integration
