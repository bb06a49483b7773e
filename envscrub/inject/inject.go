// Package inject keeps the variables that the operator stored for boxed commands
// ("wall env set"): one JSON file, which every edit replaces as a whole.
//
// A run reads the store live ([Store.Load], [Reader]). An edit ([Store.Edit] and
// what is built on it) holds a lock, so that no other edit is lost, checks
// everything before it writes anything, and renames a complete, synced file over
// the old one, so that a full disk, a crash or a kill at any moment leaves the
// old state or the new one. The last good state is kept beside the store under the
// name with ".last" behind, and [Store.Restore] puts it back when the store was
// damaged.
//
// The file is the operator's alone: a regular file, owned by the user who reads it
// and with no permission for anybody else, in a directory that nobody else can
// write. Anything else, root's files for another user and other users' for root
// included, is refused, and so is a file that is not exactly in the format. A store
// that does not exist holds nothing; one that cannot be read is an error and never
// an empty store.
//
// # Format
//
//	{
//	  "version": 1,
//	  "variables": [
//	    {"name": "EDITOR", "value": "vi"},
//	    {"name": "RAW", "base64": "/w=="}
//	  ]
//	}
//
// A value that is not UTF-8 is written as base64 and comes back byte for byte.
// Unknown and repeated members, and another version, are refused.
//
// # What it does not promise
//
// Values are stored in plain text; a secret is better named by its place (package
// envscrub/source). The lock holds among programs that use this package on one
// host; whoever edits the file by hand takes part in the same way only with flock(1)
// on the lock file (the name with ".lock" behind).
//
// Errors name files and variables, never values, and a [Var] that is formatted
// hides its value.
package inject

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/wallsandbox/wall/envscrub"
	"github.com/wallsandbox/wall/plan"
)

// A Var is one stored variable. Formatted with package fmt it shows its name only.
type Var struct {
	Name  string // valid by envscrub.ValidName
	Value string // any bytes but NUL; may be empty
}

// Format implements fmt.Formatter, so that no verb shows the value.
func (v Var) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, v.Name+"="+plan.Redacted) // package fmt reports what cannot be written
}

const (
	// MaxString bounds a name, its value, the "=" between and the NUL behind
	// them, in bytes. A command cannot be started with a longer one.
	MaxString = plan.MaxVariable
	// MaxFile bounds the store, in bytes as it is written. Linux gives arguments
	// and environment together 2 MiB with the usual stack limit.
	MaxFile = 1 << 20
)

var (
	errNoAssignment = errors.New("it is not of the form NAME=VALUE")
	errNoName       = errors.New("the name is empty")
	errName         = errors.New("a name has ASCII letters, digits and underscores only, and does not begin with a digit")
	errNUL          = errors.New("the value holds a NUL byte, which no environment can hold")
	errLong         = fmt.Errorf("name and value take more than the %d bytes that Linux allows one variable: no command could start with it", MaxString-2)
	errManaged      = errors.New("wall decides this variable in every box: a stored one would have no effect")
)

// managed are the names that wall sets last, whatever is stored. The rest may be
// stored as the operator likes, PATH and variables of the loader included; see [Caution].
var managed = []string{"HOME", "PWD", "TEMP", "TMP", "TMPDIR"}

// ParseAssignment reads "NAME=VALUE". The value begins behind the first "=", may be
// empty, and is taken as it is. The error does not hold the value, or anything that
// could be one.
func ParseAssignment(s string) (Var, error) {
	name, value, ok := strings.Cut(s, "=")
	if !ok {
		// What was typed may be a value whose name was forgotten.
		return Var{}, refuse("an argument", errNoAssignment)
	}
	v := Var{name, value}
	return v, Check(v)
}

// Check says why v cannot be stored, nil when it can: a bad name, a value that no
// command could be started with, or a name that wall decides itself (HOME, PWD,
// TMPDIR, TMP, TEMP).
func Check(v Var) error {
	if err := v.valid(); err != nil {
		return err
	}
	if slices.Contains(managed, v.Name) {
		e := refuse(v.Name, errManaged)
		e.Hint = "give the place of files a name of your own, or set the variable inside, for example with: sh -c '" + v.Name + "=... exec COMMAND'"
		return e
	}
	return nil
}

// valid says what makes v impossible.
func (v Var) valid() error {
	switch {
	case v.Name == "":
		return refuse("a variable", errNoName)
	case !envscrub.ValidName(v.Name):
		return refuse(quoteName(v.Name), errName)
	case strings.IndexByte(v.Value, 0) >= 0:
		return refuse(v.Name, errNUL)
	case len(v.Name)+len(v.Value)+2 > MaxString:
		return refuse(quoteName(v.Name), errLong)
	}
	return nil
}

// Caution says what the operator should know about storing a variable of this
// name, "" for nothing: a variable that makes programs load or run other code, or says
// where they are found, does so in every box with stored variables.
func Caution(name string) string {
	if envscrub.LoadsCode(name) {
		return name + " makes programs load or run other code, in every box whose profile has inject = true"
	}
	if name == "PATH" {
		return "PATH says where commands are looked for: the stored one replaces the caller's in every box whose profile has inject = true"
	}
	return ""
}

func refuse(what string, err error) *plan.Error {
	return &plan.Error{Op: "cannot store " + what, Err: err}
}

// quoteName shows a name that may hold anything, and of a long one the beginning.
func quoteName(name string) string {
	const most = 64
	if len(name) <= most && envscrub.ValidName(name) {
		return name
	}
	if len(name) > most {
		return fmt.Sprintf("%q...", name[:most])
	}
	return fmt.Sprintf("%q", name)
}

// ordered gives vars sorted by name; a name twice is an error.
func ordered(vars []Var) ([]Var, error) {
	out := append([]Var{}, vars...)
	slices.SortFunc(out, func(a, b Var) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(out); i++ {
		if out[i].Name == out[i-1].Name {
			return nil, refuse(out[i].Name, errors.New("it is there twice"))
		}
	}
	return out, nil
}
