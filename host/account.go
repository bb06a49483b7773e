package host

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// An Account is one record of the password database.
type Account struct {
	Name  string
	Home  string // absolute, or "" when the record has none
	Shell string // absolute, or "" for /bin/sh
}

// AccountOf gives the record of a user in /etc/passwd; the zero Account when there
// is none, or no such file. Directory services are not asked.
func AccountOf(uid int) (Account, error) {
	text, err := readFact("/etc/passwd")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Account{}, &plan.Error{Op: "cannot read the account record", Err: err}
	}
	a, _ := findAccount(string(text), uid)
	return a, nil
}

// findAccount gives the first record of text, which is in the form of passwd(5),
// with the given user id. Records that are not well-formed are passed over, as
// the C library does. It is not found when the user is known only to a directory
// service: a static binary cannot ask one.
func findAccount(text string, uid int) (Account, bool) {
	want := strconv.Itoa(uid)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' || line[0] == '+' || line[0] == '-' {
			continue
		}
		f := strings.Split(line, ":")
		if len(f) != 7 || f[0] == "" || f[2] != want {
			continue
		}
		a := Account{Name: f[0], Home: f[5], Shell: f[6]}
		if !strings.HasPrefix(a.Home, "/") {
			a.Home = "" // a relative home is no home
		}
		if !strings.HasPrefix(a.Shell, "/") {
			a.Shell = "" // an empty shell means /bin/sh, which is the default anyway
		}
		return a, true
	}
	return Account{}, false
}
