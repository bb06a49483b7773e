// Package kernels runs the wall binary on other kernels than the host's: its
// tests boot kernels of the distribution in qemu, without hardware help, on a
// file tree of their own, and compare what wall did there with one table.
//
// A machine is started by a kernel and an initramfs that the tests write:
// busybox, wall, the probe of package integration, and [Step] after [Step] for
// the program in ./guest, which runs them as root and as an ordinary user and
// answers each with a [Result] on a serial port. Nothing of the host's file
// tree, network or privileges is in the machine, so that it makes no difference
// which user starts it. The tests say what they need and where it comes from;
// see TestKernels.
package kernels

// A Step is one command that the guest runs to its end.
type Step struct {
	Name  string   // unique in its list
	UID   int      // of the command, and its only group: 0 or 1000
	Dir   string   // absolute
	Argv  []string // Argv[0] is an absolute path
	Stdin string   // all that the command reads; "" = /dev/null
}

// A Result is how a Step ended.
type Result struct {
	Name     string
	Code     int    // as a shell gives it: 128+n after signal n; -1 when the command did not start or took too long
	Out, Err string // the whole streams
	Millis   int64  // what it took
}

// Where guest and tests meet.
const (
	StepsFile = "/steps.json"  // in the guest: a JSON list of steps
	Port      = "/dev/ttyS1"   // in the guest: results, one JSON object a line
	EndMark   = "end of steps" // the last line of Port
)
