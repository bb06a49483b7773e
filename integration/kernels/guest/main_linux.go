// Command guest is the first process of a machine that package kernels boots,
// once ./init has made its file tree: it runs the steps, writes a result for
// each and powers the machine off. It promises nothing to anybody else.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/wallsandbox/wall/integration/kernels"
)

// stepTimeout bounds one step; the slowest takes a few seconds of processor time, of which
// there may be little.
const stepTimeout = 2 * time.Minute

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err) // the console
	}
	if err := syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "guest: power off:", err) // and a panic, since pid 1 ends
	}
}

func run() error {
	data, err := os.ReadFile(kernels.StepsFile)
	if err != nil {
		return err
	}
	var steps []kernels.Step
	if err := json.Unmarshal(data, &steps); err != nil {
		return err
	}
	port, err := os.OpenFile(kernels.Port, os.O_WRONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	for _, s := range steps {
		line, err := json.Marshal(do(s))
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(port, "%s\n", line); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(port, kernels.EndMark); err != nil {
		return err
	}
	return port.Close() // waits until the line is sent
}

// do runs one step.
func do(s kernels.Step) kernels.Result {
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	home, user := "/root", "root"
	if s.UID != 0 {
		home, user = "/home/tester", "tester"
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, s.Argv[0], s.Argv[1:]...)
	cmd.Dir = s.Dir
	cmd.Env = []string{"PATH=/usr/bin", "HOME=" + home, "USER=" + user, "LOGNAME=" + user, "SHELL=/bin/sh"}
	cmd.Stdout, cmd.Stderr = &out, &errs
	if s.Stdin != "" {
		cmd.Stdin = strings.NewReader(s.Stdin)
	}
	cmd.WaitDelay = time.Second // a survivor that holds the pipes
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Credential: &syscall.Credential{Uid: uint32(s.UID), Gid: uint32(s.UID)},
	}
	start := time.Now()
	err := cmd.Run()
	r := kernels.Result{Name: s.Name, Out: out.String(), Err: errs.String(), Millis: time.Since(start).Milliseconds()}
	var exit *exec.ExitError
	switch {
	case err != nil && (!errors.As(err, &exit) || ctx.Err() != nil):
		r.Code = -1
		r.Err += fmt.Sprintf("guest: %v\n", err)
	case cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled():
		r.Code = 128 + int(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	default:
		r.Code = cmd.ProcessState.ExitCode()
	}
	return r
}
