package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// programDirs are where a program without a slash is looked up. PATH is the caller's
// and may name directories of a workspace.
var programDirs = []string{"/usr/local/bin", "/usr/bin", "/bin", "/run/wrappers/bin", "/run/current-system/sw/bin"}

// command gives what a program writes on standard output.
func (f fetcher) command(ctx context.Context, argv []string) (string, error) {
	program, err := f.program(argv[0])
	if err != nil {
		return "", err
	}
	// The parent-death signal is about the thread that started the program.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	tooMuch, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(tooMuch, program)
	cmd.Args = argv
	cmd.Dir = "/"
	cmd.Env = f.programEnviron()
	cmd.Stdout = w // standard input and error are /dev/null
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	kill := func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) } // of the whole group
	cmd.Cancel = kill
	err = cmd.Start()
	_ = w.Close() // the program has its own
	if err != nil {
		var pe *fs.PathError
		if errors.As(err, &pe) {
			err = pe.Err // the message names the program already
		}
		return "", err
	}
	type output struct {
		data []byte
		err  error
	}
	read := make(chan output, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(r, plan.MaxVariable+1))
		if len(data) > plan.MaxVariable {
			err = errLong
			stop() // what follows is not wanted
		}
		read <- output{data, err}
	}()
	// The group is killed before the number of its leader is given back.
	_, err = retry(func() (int, error) {
		return 0, unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	})
	if err == nil {
		err = ignoreDone(kill())
	}
	err = errors.Join(cmd.Wait(), err)
	_ = r.SetReadDeadline(time.Now().Add(heldLimit)) // a pipe has deadlines
	out := <-read
	var exit *exec.ExitError
	switch {
	case out.err == errLong:
		return "", errLong
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(out.err, os.ErrDeadlineExceeded):
		return "", errors.New("it ended, but something that it started keeps its output open")
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return "", fmt.Errorf("it was ended by signal %d (%s)", int(ws.Signal()), ws.Signal())
		}
		return "", &hinted{fmt.Errorf("exit status %d", exit.ExitCode()), "what it wrote is not shown, because it could be a secret; run it by hand"}
	case err != nil || out.err != nil:
		return "", errors.Join(err, out.err)
	}
	return trim(out.data), nil
}

// heldLimit is how long something that left the group of a program may keep its output open.
const heldLimit = time.Second

// ignoreDone leaves out that a process has ended.
func ignoreDone(err error) error {
	if err == unix.ESRCH {
		return nil
	}
	return err
}

// program finds the file of argv[0], which is an absolute path or a bare name.
func (f fetcher) program(name string) (string, error) {
	if strings.Contains(name, "/") {
		return f.executable(name)
	}
	for _, d := range programDirs {
		p, err := f.executable(filepath.Join(d, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return p, err
		}
	}
	return "", &hinted{errors.New("there is no such program in " + strings.Join(programDirs, ", ")), "PATH is not searched; write the path of the program, beginning with / or ~/"}
}

func (f fetcher) executable(name string) (string, error) {
	real, err := f.trusted(name)
	if err != nil {
		return "", err
	}
	if err := unix.Faccessat(unix.AT_FDCWD, real, unix.X_OK, unix.AT_EACCESS); err != nil {
		return "", &hinted{err, "chmod +x " + quoteOdd(real)}
	}
	return name, nil // a program may look at the name it was called by; the way there was checked
}

// programEnviron is the caller's environment without what would lead a program to
// files that a command could have written: PATH loses such directories, and any other
// variable is left out, because a program may load code (PYTHONPATH, LD_LIBRARY_PATH,
// BASH_ENV) or settings (GIT_DIR, XDG_CONFIG_HOME) from where it leads. No table of
// names would have all of them.
func (f fetcher) programEnviron() []string {
	var env []string
	seen := make(map[string]bool)
	for _, e := range f.environ {
		_, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(e, "PATH=") && !f.leadsInside(value, seen) {
			env = append(env, e)
		}
	}
	value, ok := lookup(f.environ, "PATH")
	if !ok {
		return env
	}
	var dirs []string
	for _, d := range filepath.SplitList(value) {
		if !filepath.IsAbs(d) || f.outside(filepath.Clean(d)) != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(d)
		if err != nil || f.outside(real) != nil {
			continue
		}
		dirs = append(dirs, real)
	}
	return append(env, "PATH="+strings.Join(dirs, string(os.PathListSeparator)))
}

// separators end a path in the value of a variable: of lists, options, shells and quotes.
const separators = ":;,= \t\r\n\"'`|&<>()"

// leadsInside reports whether a value of a variable names a place where the box can
// write, also by a symbolic link, in a list, or behind an option as in "-I/path". seen
// remembers what was looked at: paths that do not lead there.
func (f fetcher) leadsInside(value string, seen map[string]bool) bool {
	for _, d := range f.untrusted {
		if strings.ContainsAny(d, separators) && strings.Contains(value, d) {
			return true
		}
	}
	for piece := range strings.FieldsFuncSeq(value, func(c rune) bool { return strings.ContainsRune(separators, c) }) {
		paths := []string{"/" + piece} // programs run in "/"
		if i := strings.IndexByte(piece, '/'); i > 0 {
			paths = append(paths, piece[i:]) // behind an option
		}
		for _, p := range paths {
			if seen[p] {
				continue
			}
			if f.passes(p) {
				return true
			}
			seen[p] = true
		}
	}
	return false
}

// passes reports whether an absolute path, or a symbolic link on the way, goes through
// a place where the box can write. What does not exist counts by its name: it may by
// the time somebody looks.
func (f fetcher) passes(p string) bool {
	at := "/"
	todo := strings.Split(p, "/")
	for links := 0; len(todo) > 0; {
		elem := todo[0]
		todo = todo[1:]
		switch elem {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, elem)
		if f.outside(next) != nil {
			return true
		}
		text, err := os.Readlink(next)
		if err != nil || links == maxLinks {
			at = next
			continue
		}
		links++
		if path.IsAbs(text) {
			at = "/"
		}
		todo = append(strings.Split(text, "/"), todo...)
	}
	return false
}
