package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) < 2 {
		fatal("usage: probe posture|try|batch|many|serve|idle|grep|signals|environ|without")
	}
	args := os.Args[2:]
	switch os.Args[1] {
	case "posture":
		out, err := json.MarshalIndent(readPosture(), "", "  ")
		if err != nil {
			fatal("%v", err)
		}
		fmt.Printf("%s\n", out)
	case "try":
		fmt.Println(try(args))
	case "batch":
		batch()
	case "many":
		many()
	case "serve":
		serve(args[0])
	case "idle":
		idle(args)
	case "grep":
		grepProc(args[0], args[1])
	case "without":
		without(args)
	case "signals":
		printSignals()
	case "environ":
		printEnviron(args)
	default:
		fatal("unknown verb %q", os.Args[1])
	}
}

func fatal(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "probe: "+format+"\n", args...)
	os.Exit(99)
}

// try runs one operation and tells the result in one line.
func try(args []string) string {
	op, ok := operations[args[0]]
	if !ok {
		fatal("unknown operation %q", args[0])
	}
	detail, err := op(args[1:])
	return outcome(detail, err)
}

// outcome gives "ok", "ok DETAIL", or the name of the errno in err.
func outcome(detail string, err error) string {
	if err == nil {
		if detail != "" {
			return "ok " + detail
		}
		return "ok"
	}
	for e := err; e != nil; {
		if no, isErrno := e.(syscall.Errno); isErrno {
			return unix.ErrnoName(no)
		}
		u, isWrapper := e.(interface{ Unwrap() error })
		if !isWrapper {
			break
		}
		e = u.Unwrap()
	}
	return "error " + strings.ReplaceAll(err.Error(), "\n", " ")
}

// batch reads [][]string from standard input and runs each as "probe try" in a
// process of its own: some attacks end the process that tries them.
func batch() {
	data, err := io.ReadAll(os.Stdin)
	if err != nil {
		fatal("%v", err)
	}
	var ops [][]string
	if err := json.Unmarshal(data, &ops); err != nil {
		fatal("%v", err)
	}
	results := make([]string, len(ops))
	for i, op := range ops {
		results[i] = isolated(op)
	}
	out, err := json.Marshal(results)
	if err != nil {
		fatal("%v", err)
	}
	fmt.Printf("%s\n", out)
}

func isolated(op []string) string {
	cmd := exec.Command("/proc/self/exe", append([]string{"try"}, op...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if s := strings.TrimSpace(string(out)); s != "" {
		return s
	}
	if cmd.ProcessState != nil {
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
			return "signal " + unix.SignalName(ws.Signal())
		}
	}
	return fmt.Sprintf("error no result: %v", err)
}

// idle waits for five minutes at most. With -daemon it first leaves its parent
// the way daemons do: a new session, a double fork, every signal ignored.
func idle(args []string) {
	ignore, stop, daemon := false, false, false
	for len(args) > 1 {
		switch args[0] {
		case "-ignore":
			ignore = true
		case "-stop":
			stop = true
		case "-daemon":
			daemon = true
		default:
			fatal("idle: unknown flag %q", args[0])
		}
		args = args[1:]
	}
	if daemon {
		// Two generations: the middle one ends at once, so that the last one is
		// an orphan in a session of its own.
		for _, argv := range [][]string{{"sh", "-c", `setsid "$0" idle -ignore "$1" & exit 0`, os.Args[0], args[0]}} {
			cmd := exec.Command("/bin/sh", argv[1:]...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Run(); err != nil {
				fatal("%v", err)
			}
		}
		return
	}
	if ignore {
		signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP)
	}
	if stop {
		_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
	}
	time.Sleep(5 * time.Minute)
}

// printSignals prints "ready", then one line per signal.
func printSignals() {
	c := make(chan os.Signal, 16)
	signal.Notify(c, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2)
	fmt.Println("ready")
	for s := range c {
		fmt.Println(unix.SignalName(s.(syscall.Signal)))
		if s == unix.SIGTERM {
			os.Exit(42)
		}
	}
}
