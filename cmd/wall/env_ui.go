package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/wallsandbox/wall/cmd/wall/envpage"
	"github.com/wallsandbox/wall/host"
	"github.com/wallsandbox/wall/plan"
)

// idleTime is how long the page stays without being used.
const idleTime = 30 * time.Minute

func newEnvUI(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ui [--port N]",
		Short: "Serve a page on this machine that shows the preview and edits stored variables",
		Long: `Serve a web page on 127.0.0.1 (and ::1) that shows the preview for every surface and
edits the stored variables. The address is printed on standard output; it works
once, for one browser. wall starts no browser.

The page ends with Ctrl-C, with its button, and when nobody used it for 30 minutes.
It shows no value of the caller's environment, and a stored one only when asked.
Other users of the machine can reach the port but not what is behind it.`,
		Example: `  wall env ui
  wall env ui --port 8090`,
		Args:                  noArgs,
		DisableFlagsInUseLine: true,
	}
	var port string
	addOnce(cmd.Flags(), &port, "port", "", "N", "listen on this port (default: a free one)")
	cmd.RunE = func(*cobra.Command, []string) error {
		n := 0
		if port != "" {
			var err error
			if n, err = strconv.Atoi(port); err != nil || n < 1 || n > 65535 || strconv.Itoa(n) != port {
				return &usageError{msg: "flag --port " + quoteOdd(port) + ": want a port from 1 to 65535", hint: "leave it out to have a free one"}
			}
		}
		return servePage(s, n)
	}
	return cmd
}

// servePage serves the page until it ends. A signal that asks for the end is a
// normal end.
func servePage(s streams, port int) error {
	store, err := injectStore()
	if err != nil {
		return err
	}
	config := envpage.Config{
		Directory: host.WorkingDir(), Store: store, Idle: idleTime,
		Preview: func(surface string) (any, error) { return previewEnv(new(shared), surface) },
	}
	for _, x := range surfaces {
		config.Surfaces = append(config.Surfaces, envpage.Surface{Name: x.name, Profile: x.profile})
	}
	ends := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	page, err := envpage.Listen(ctx, config, port)
	if err != nil {
		e := &plan.Error{Op: "cannot serve the page on this machine", Err: err}
		if port != 0 {
			e.Op = fmt.Sprintf("cannot serve the page on port %d", port)
			if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
				e.Hint = "leave --port out to have a free one"
			}
		}
		return e
	}
	if _, err := io.WriteString(s.err, "wall: open this address in a browser on this machine; it works once. Ctrl-C ends the page\n"); err != nil {
		return err
	}
	if _, err := io.WriteString(s.out, page.URL()+"\n"); err != nil {
		return &plan.Error{Op: "cannot print the address of the page", Err: err}
	}
	why, err := page.Serve(ctx)
	if err != nil {
		return &plan.Error{Op: "cannot serve the page any longer", Err: err}
	}
	if why != "" {
		_, err = io.WriteString(s.err, "wall: the page has ended: "+why+"\n")
	}
	return err
}
