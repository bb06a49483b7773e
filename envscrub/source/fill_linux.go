package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/wallsandbox/wall/plan"
)

// timeLimit is what all sources of a plan have together.
const timeLimit = 10 * time.Second

// A Filler fetches values. It remembers what it has fetched, so that a start that is tried
// again asks nobody twice; it is for one goroutine.
type Filler struct {
	Environ []string // the caller's environment

	// Untrusted are directories that count as written by a command besides those
	// that the plan lets the box write: the workspace, also where this run can only
	// read it. Absolute, free of links.
	Untrusted []string

	fetched map[string]string // by the text of the source
}

// Fill gives a copy of p in which every variable with a source has its value and no
// source. When a value cannot be had, the error joins one *plan.Error for each
// such variable, with the variable's origin, and the command must not start. p is not
// changed, and nothing is done when it has no sources.
func (f *Filler) Fill(ctx context.Context, p plan.Plan) (plan.Plan, error) {
	if len(p.Unfilled()) == 0 {
		return p, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	from := fetcher{environ: f.Environ, untrusted: append(p.WritableRoots(), f.Untrusted...)}
	if f.fetched == nil {
		f.fetched = make(map[string]string)
	}
	type answer struct {
		value string
		err   error
	}
	answers := make(map[string]chan answer) // one source may serve several variables
	for _, v := range p.Env {
		key := v.Source.String()
		if _, known := f.fetched[key]; known || v.Source.IsZero() || answers[key] != nil {
			continue
		}
		c := make(chan answer, 1)
		answers[key] = c
		go func() {
			value, err := from.fetch(ctx, v.Source)
			c <- answer{value, err}
		}()
	}
	failed := make(map[string]error)
	for key, c := range answers {
		var a answer
		select {
		case a = <-c:
		case <-after(ctx, afterLimit):
			a.err = ctx.Err() // a file system that hangs; the goroutine ends with the process
		}
		if a.err == nil {
			f.fetched[key] = a.value
		} else {
			failed[key] = a.err
		}
	}

	filled := p
	filled.Env = slices.Clone(p.Env)
	var errs []error
	for i, v := range p.Env {
		if v.Source.IsZero() {
			continue
		}
		key := v.Source.String()
		err := failed[key]
		if err == nil {
			err = check(v.Name, f.fetched[key])
		}
		if err != nil {
			errs = append(errs, fail(ctx, v, err))
			continue
		}
		filled.Env[i].Value, filled.Env[i].Source = f.fetched[key], plan.ValueSource{}
	}
	if err := errors.Join(errs...); err != nil {
		return p, err
	}
	return filled, nil
}

// afterLimit is how long the end of what was started is waited for when the time is over.
const afterLimit = 2 * time.Second

// after gives a channel that is closed d after ctx is done.
func after(ctx context.Context, d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(d, func() { close(c) }) })
	return c
}

var (
	errEmpty = errors.New("the value is empty")
	errNUL   = errors.New("the value holds a NUL byte")
	errLong  = fmt.Errorf("the value is longer than Linux allows one variable (%d bytes with its name)", plan.MaxVariable-2)
)

// check says why the value cannot be that of the variable.
func check(name, value string) error {
	switch {
	case value == "":
		return errEmpty
	case strings.IndexByte(value, 0) >= 0:
		return errNUL
	case len(name)+len(value)+2 > plan.MaxVariable:
		return errLong
	}
	return nil
}

// fail tells that the value of v could not be fetched.
func fail(ctx context.Context, v plan.EnvVar, err error) error {
	e := &plan.Error{Op: "cannot fetch the value of " + v.Name + " from " + describe(v.Source), Origin: v.Origin, Err: err}
	var h *hinted
	switch {
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		e.Err = fmt.Errorf("it took more than %v, the time for all values together", timeLimit)
	case errors.As(err, &h):
		e.Hint = h.hint
	case errors.Is(err, errEmpty):
		e.Hint = "put a value there; one that is to be empty stands in the profile: " + v.Name + ` = ""`
	}
	return e
}

// describe names the source in a sentence. A command's arguments are left to the line of the profile.
func describe(s plan.ValueSource) string {
	switch s.Kind {
	case plan.SourceFile:
		return "the file " + quoteOdd(s.Name)
	case plan.SourceEnv:
		return "the variable " + quoteOdd(s.Name)
	case plan.SourceCommand:
		return "the program " + quoteOdd(s.Argv[0])
	case plan.SourceKeyring:
		return "the key " + quoteOdd(s.Name)
	case plan.SourceSecretService:
		return "the Secret Service"
	}
	return "an unknown source"
}

// quoteOdd quotes s unless it is a plain word.
func quoteOdd(s string) string {
	if q := fmt.Sprintf("%q", s); s == "" || strings.Contains(s, " ") || q != `"`+s+`"` {
		return q
	}
	return s
}

// A hinted error knows what to do about it.
type hinted struct {
	err  error
	hint string
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// A fetcher is what all sources of one plan have in common.
type fetcher struct {
	environ   []string
	untrusted []string // directories and files that the box can write: absolute, free of links
}

// fetch gets one value as it is at its source, trimmed.
func (f fetcher) fetch(ctx context.Context, s plan.ValueSource) (string, error) {
	switch s.Kind {
	case plan.SourceFile:
		return f.file(s.Name)
	case plan.SourceEnv:
		return f.variable(s.Name)
	case plan.SourceCommand:
		return f.command(ctx, s.Argv)
	case plan.SourceKeyring:
		return keyring(s.Name)
	case plan.SourceSecretService:
		return f.secretService(ctx, s.Name)
	}
	return "", errors.New("wall bug: unknown kind of source")
}

// variable gives another variable of the caller's environment; of several with one
// name the last counts, as for the box.
func (f fetcher) variable(name string) (string, error) {
	value, ok := lookup(f.environ, name)
	switch {
	case !ok:
		return "", &hinted{errors.New("it is not set"), "set it where wall is started"}
	case value == "":
		return "", &hinted{errEmpty, "set it where wall is started"}
	}
	return value, nil
}

func lookup(environ []string, name string) (string, bool) {
	for i := len(environ) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(environ[i], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

// trim removes one line feed at the end.
func trim(data []byte) string { return strings.TrimSuffix(string(data), "\n") }
