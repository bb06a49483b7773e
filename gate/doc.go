// Package gate runs commands to a verdict: the bounded runner of merge gates.
//
// A gate reads nothing (standard input is /dev/null), drains both output streams
// for as long as the command runs, keeps the end of each in bounded memory, holds
// the command to the bounds of its plan, and ends everything that the command
// started on every path. The result says for certain how it went: passed, failed,
// timed out, at a limit, or not run. Only a command that ran and ended with status
// 0 has passed.
//
// [Run] takes one plan, [RunPhases] several commands that share one scratch
// directory and HOME. [Result.JSON] gives the form that [Schema] describes,
// [Result.Text] that for a person, [Result.JUnit] that for a CI system.
//
// The package decides nothing about what a box allows: that is the plan's, made by
// package profile. As with package nsexec, a program that uses it must call
// nsexec.Main as the first statement of its main function.
//
// What it does not promise: with enforce "off" there is no box, so that a command
// which leaves its process group can outlive the gate (see [Options.Adopt]), and
// survives a gate that is killed. And the output is the command's: whatever it
// says of success or failure is no verdict.
package gate
