// Command probe is what the integration tests run inside a box (and, as the
// control that every attack needs, outside of one).
//
//	probe posture            print everything about this process as JSON
//	probe try OP ARG...      try one operation, print "ok", an errno name, or "signal NAME"
//	probe batch              the same for a JSON list of lists on standard input, each in
//	                         a process of its own; prints a JSON list of results
//	probe serve NONCE        make one of everything another box could reach, print
//	                         "ready" and wait for a signal
//	probe idle [-ignore] [-stop] [-daemon] MARK
//	                         wait; MARK makes the process findable by its argv
//	probe grep FILE DIR      search everything readable below DIR, in /proc, for the words of FILE
//	probe without FACILITY COMMAND...
//	                         run a command for which the kernel lacks userns, mountapi, landlock, seccomp or nftables
//	probe environ            print the environment as /proc has it and as the program was given it, execute
//	                         itself with it and print both again: four lines, JSON lists of base64
//	probe signals            print TERM, INT, HUP, QUIT, USR1, USR2 as they arrive; TERM ends it with 42
//
// It promises nothing to anybody: it holds attacks, not an interface. It is
// statically linked (CGO_ENABLED=0) so that it starts in any file tree.
package main
