package profile

import (
	"errors"

	"github.com/wallsandbox/wall/plan"
)

// bounds plans the limits of the run as a whole.
func (r *resolver) bounds() error {
	b := &r.p.Bounds
	set := func(to *plan.Bound, v Value[uint64], by plan.BoundBy) bool {
		if v.V == 0 {
			return false
		}
		*to = plan.Bound{Value: v.V, By: by, Origin: v.Origin}
		return true
	}
	// Without a limit of time it is for a command that is told to end by a signal.
	if set(&b.Time, r.s.Time, plan.ByTimer) || r.s.Grace.Set {
		b.Grace = plan.Bound{Value: r.s.Grace.V, By: plan.ByTimer, Origin: r.s.Grace.Origin}
	}
	if v := r.s.Output; v.Set {
		b.Output, b.OutputUnit = plan.Bound{Value: v.V.N, By: plan.ByTail, Origin: v.Origin}, v.V.Unit
	}
	boxed := r.p.Enforce != plan.EnforceOff
	if boxed {
		set(&b.Scratch, r.s.ScratchSize, plan.ByWatch)
	}
	memory := set(&b.Memory, r.s.Memory, plan.ByCgroup)
	processes := set(&b.Processes, r.s.Processes, plan.ByCgroup)
	total := set(&b.Total, r.s.TotalOutput, plan.ByRelay)
	if !boxed {
		// There is nothing around the command that could be counted or ended.
		var errs []error
		for _, x := range []struct {
			name string
			set  bool
			*plan.Bound
		}{{"memory", memory, &b.Memory}, {"processes", processes, &b.Processes}, {"output", total, &b.Total}} {
			if x.set {
				errs = append(errs, &plan.Error{Op: "cannot limit the " + x.name + " of a command without a box", Origin: x.Origin,
					Err: errors.New(`with enforce = "off" there is no box`), Hint: "remove the limit (0 is none), or raise enforce"})
				*x.Bound = plan.Bound{}
			}
		}
		return errors.Join(errs...)
	}
	if total && r.p.TTY == plan.TTYInherit {
		origin := b.Total.Origin
		b.Total = plan.Bound{}
		return &plan.Error{Op: "cannot limit the output of a command that has the caller's own terminal", Origin: origin,
			Err: errors.New("with the terminal mode \"inherit\" the output does not go through wall"), Hint: "remove the limit (0 is none), or use --tty pty"}
	}
	if !memory && !processes {
		return nil
	}
	return r.counted(memory, processes)
}

// counted plans who counts memory and processes: a cgroup, or what is left where
// there is none.
func (r *resolver) counted(memory, processes bool) error {
	b := &r.p.Bounds
	find := func(memory, processes bool) error {
		if r.h.Cgroup == nil {
			return errNoCgroup
		}
		c, err := r.h.Cgroup(memory, processes)
		if c.Scope != "" && r.h.NoScope != nil {
			c, err = plan.Cgroup{}, r.h.NoScope
		}
		b.Cgroup = c
		return err
	}
	err := find(memory, processes)
	if err == nil {
		return nil
	}
	// Perhaps for one of the two.
	memoryErr, processesErr := err, err
	if memory && processes {
		if memoryErr = find(true, false); memoryErr != nil {
			processesErr = find(false, true)
		}
	}
	const hint = "run \"wall doctor\" to see why there is no cgroup, or remove the limit"
	var errs []error
	if memory && memoryErr != nil {
		b.Memory.By = plan.ByWatch
		errs = append(errs, r.lost(plan.WallLimits, "the limit of memory is kept by a watch and not by the kernel, so that the box can exceed it for a moment", b.Memory.Origin, memoryErr, hint))
	}
	if processes && processesErr != nil {
		b.Processes.By = plan.ByRlimit
		if r.h.UID == 0 {
			// RLIMIT_NPROC does not bind root (INIT_USER in kernel/fork.c).
			b.Processes.By = plan.ByWatch
			errs = append(errs, r.lost(plan.WallLimits, "the limit of processes is kept by a watch and not by the kernel, so that the box can exceed it for a moment", b.Processes.Origin, processesErr, hint))
		}
	}
	return errors.Join(errs...)
}

var errNoCgroup = &plan.UnsupportedError{Feature: "a cgroup for the box"}
