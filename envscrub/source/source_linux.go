package source

import (
	"context"

	"github.com/wallsandbox/wall/plan"
)

// Fill gives a copy of p in which every variable with a source has its value and
// no source. environ is the caller's environment. When a value cannot be had, the
// error has one *plan.Error for each such variable, joined, and the plan is p: the
// command must not start.
func Fill(ctx context.Context, p plan.Plan, environ []string) (plan.Plan, error) {
	if len(p.Unfilled()) == 0 {
		return p, nil
	}
	return p, &plan.Error{Op: "cannot fetch the values of variables", Err: ctx.Err()}
}
