package main

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/nsexec"
	"github.com/wallsandbox/wall/plan"
	"github.com/wallsandbox/wall/profile"
	"github.com/wallsandbox/wall/scratch"
)

// runFlags are the flags of the commands that run something.
type runFlags struct {
	*shared
	json    string
	status  string
	explain bool
}

func addRunFlags(cmd *cobra.Command) *runFlags {
	f := &runFlags{shared: addShared(cmd)}
	fs := cmd.Flags()
	addOnce(fs, &f.json, "json", "", "FILE", "write the result to FILE when the box has ended")
	addOnce(fs, &f.status, "status-fd", "", "N", "report the start and the end on descriptor N, as lines of JSON")
	addSwitch(fs, &f.explain, "explain", "print the plan on standard error before the start")
	cmd.Annotations = map[string]string{annotationRuns: "yes"}
	return f
}

func newRun(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [-p PROFILE] [FLAG...] [--] COMMAND [ARG...]",
		Short: "Run one command in a box",
		Long: `Run one command in a box that a profile describes. The default profile is "agent".

Flags of wall end at "--" or at the first word that is not a flag; everything
after that is the command. It runs with exactly these arguments: no shell reads
them. The exit status is the command's own, 128+N when signal N ended it, and
125, 126 or 127 when it did not run ("wall help exit-codes").`,
		Example: `  wall run -- make test
  wall run -p gate --net host -- go mod download
  wall run --ro ~/.cargo --hide secrets -- cargo build
  wall run --json result.json -- sh -c 'exit 3'`,
		DisableFlagsInUseLine: true,
	}
	f := addRunFlags(cmd)
	cmd.Flags().SetInterspersed(false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &usageError{
				msg:  "no command to run",
				hint: `write it after "--", for example: wall run -- make test`,
			}
		}
		return runBox(s, f, func(h profile.Host, o profile.Options) (plan.Plan, error) {
			o.Default, o.Command = "agent", args
			return profile.Resolve(h, o)
		}, args)
	}
	return cmd
}

// A resolver decides what runs and makes the plan for it.
type resolver func(profile.Host, profile.Options) (plan.Plan, error)

// runBox does the whole of "wall run": gather, resolve, tell, run, report. The
// error is an exitStatus once the command has run.
func runBox(s streams, f *runFlags, resolve resolver, command []string) error {
	status, err := f.openStatus()
	if err != nil {
		return err
	}
	host, p, err := prepare(f.shared, int(status), resolve)
	file, fileErr := f.openResult(host, p)
	if fileErr != nil {
		return reportStatus(status, newResult(p, command, nsexec.Result{}, fileErr), errors.Join(err, fileErr))
	}
	if file != nil {
		defer file.close()
	}
	var r nsexec.Result
	var terminated bool
	if err == nil {
		command = p.Command.Argv
		if err = announce(s, f, p); err == nil {
			r, terminated, err = start(s, p, status)
		}
	}

	out := newResult(p, command, r, err)
	if terminated && out.Exit == 0 {
		// Whoever terminates wall must not read success: the work was cut short.
		out.Exit = 128 + int(unix.SIGTERM)
	}
	if file != nil {
		data, jsonErr := out.encode()
		if jsonErr == nil {
			jsonErr = file.write(data)
		}
		if jsonErr != nil {
			return reportStatus(status, out, errors.Join(err, jsonErr))
		}
	}
	if err == nil {
		err = exitStatus(out.Exit)
	}
	err = reportStatus(status, out, err)
	if r.Signal == unix.SIGINT {
		dieOf(r.Signal)
	}
	return err
}

// prepare gathers the facts and makes the plan. status is the descriptor of
// --status-fd or negative.
func prepare(f *shared, status int, resolve resolver) (profile.Host, plan.Plan, error) {
	host, err := gatherHost()
	if err != nil {
		return host, plan.Plan{}, err
	}
	o := f.options()
	if o.KeepFDs, err = keptFDs(f.fds, status); err != nil {
		return host, plan.Plan{}, err
	}
	p, err := resolve(host, o)
	return host, p, err
}

// announce tells the operator what there is to know before the start. With
// every wall down it is silent unless asked: then the streams are the command's.
func announce(s streams, f *runFlags, p plan.Plan) error {
	var err error
	if p.Enforce != plan.EnforceOff {
		err = printPlanNotes(s.err, p)
	}
	if f.explain && err == nil {
		err = p.Print(s.err)
	}
	if err != nil {
		return &plan.Error{Op: "cannot write to standard error", Err: err}
	}
	return nil
}

// start runs the plan to its end.
func start(s streams, p plan.Plan, status statusFD) (r nsexec.Result, terminated bool, err error) {
	if p.Scratch.Root != "" {
		// What killed runs left; runs that are going on hold a lock.
		if err := scratch.Collect(p.Scratch.Root); err != nil {
			return r, false, err
		}
	}
	signals := newRelay()
	cmd := nsexec.Command(p)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.in, s.out, s.err
	if err := cmd.Start(); err != nil {
		signals.drop()
		return r, false, err
	}
	signals.to(cmd)
	statusErr := status.send(event{Event: "started"})
	err = cmd.Wait()
	terminated = signals.stop()
	r = cmd.Result()
	if r.Started {
		err = nil // the command ran: whatever it returned is in the result
	}
	if statusErr != nil {
		err = errors.Join(err, &plan.Error{Op: "cannot report on the status descriptor", Err: statusErr})
	}
	return r, terminated, err
}

// reportStatus writes the last line of --status-fd and passes err on.
func reportStatus(status statusFD, out result, err error) error {
	if sendErr := status.send(out.ended()); sendErr != nil {
		var ran exitStatus
		sendErr = &plan.Error{Op: "cannot report on the status descriptor", Err: sendErr}
		if errors.As(err, &ran) {
			return sendErr
		}
		return errors.Join(err, sendErr)
	}
	return err
}

// openStatus opens the descriptor of --status-fd.
func (f *runFlags) openStatus() (statusFD, error) {
	if f.status == "" {
		return noStatus, nil
	}
	fd, ok := parseFD(f.status)
	if !ok || fd < 3 {
		return noStatus, &usageError{
			msg:  "flag --status-fd " + quoteOdd(f.status) + ": want a descriptor number from 3 on",
			hint: "0, 1 and 2 belong to the command, which could forge the report; use for example --status-fd 3 3>status.jsonl",
		}
	}
	return openStatus(fd)
}

// openResult opens the place of --json; nil when the flag was not given.
func (f *runFlags) openResult(host profile.Host, p plan.Plan) (*resultFile, error) {
	if f.json == "" {
		return nil, nil
	}
	untrusted := writableRoots(p)
	if len(untrusted) == 0 && host.Cwd != "" {
		untrusted = []string{host.Cwd} // no plan: the usual workspace
	}
	id := host.RunID
	if id == "" {
		id = strconv.Itoa(unix.Getpid())
	}
	return openResultFile(f.json, host.Cwd, id, untrusted)
}
