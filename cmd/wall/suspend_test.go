package main

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSuspendRace: a shell sees the first process of a job stop, which need not be wall,
// and may continue the job before wall has stopped. However close that is, wall goes on.
func TestSuspendRace(t *testing.T) {
	const helper, rounds = "WALL_TEST_SUSPEND", 1000
	again := func(role string, attr *syscall.SysProcAttr) *exec.Cmd {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestSuspendRace$")
		cmd.Env = append(os.Environ(), helper+"="+role)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = attr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	switch os.Getenv(helper) {
	case "shell":
		job := again("script", &syscall.SysProcAttr{Setpgid: true}).Process.Pid
		for {
			var ws unix.WaitStatus
			if _, err := unix.Wait4(job, &ws, unix.WUNTRACED, nil); err != nil {
				t.Fatal(err)
			}
			if !ws.Stopped() {
				os.Exit(ws.ExitStatus())
			}
			if err := unix.Kill(-job, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}
	case "script":
		err := again("wall", nil).Wait()
		if err != nil {
			t.Fatal(err)
		}
		os.Exit(0)
	case "wall":
		r := newRelay(usePrivate, func() {}, endsRun)
		<-r.listening
		r.start(noTarget{}, time.Minute)
		for n := range rounds {
			if !r.suspend(unix.SIGTSTP) {
				t.Fatal("not stopped in round " + strconv.Itoa(n))
			}
			// The shell's signal goes to one process after the other. A stop before the
			// script has it would be undone for the script alone, of which the shell waits
			// to hear.
			for stopped(t, os.Getppid()) {
				runtime.Gosched()
			}
		}
		os.Exit(0)
	}
	cmd := again("shell", &syscall.SysProcAttr{Setsid: true})
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("wall has stopped for good")
		// Its session ends with it, and the kernel hangs up what has stopped.
		_ = cmd.Process.Kill()
		<-done
	}
}

func stopped(t *testing.T, pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	return ok && strings.HasPrefix(rest, "T")
}

// A noTarget takes any signal.
type noTarget struct{}

func (noTarget) Signal(os.Signal) error { return nil }
func (noTarget) Kill() error            { return nil }
func (noTarget) RestoreTerminal()       {}
