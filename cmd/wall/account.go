package main

import (
	"strconv"
	"strings"
)

// An account is one record of the password database.
type account struct {
	name  string
	home  string
	shell string
}

// findAccount gives the first record of text, which is in the form of passwd(5),
// with the given user id. Records that are not well-formed are passed over, as
// the C library does. It is not found when the user is known only to a directory
// service: a static binary cannot ask one.
func findAccount(text string, uid int) (account, bool) {
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
		a := account{name: f[0], home: f[5], shell: f[6]}
		if !strings.HasPrefix(a.home, "/") {
			a.home = "" // a relative home is no home
		}
		if !strings.HasPrefix(a.shell, "/") {
			a.shell = "" // an empty shell means /bin/sh, which is the default anyway
		}
		return a, true
	}
	return account{}, false
}
