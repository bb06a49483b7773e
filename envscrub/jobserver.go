package envscrub

import "strings"

// isMakeFlags reports whether GNU make or cargo hands its jobserver on in the
// variable.
func isMakeFlags(name string) bool {
	switch name {
	case "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "CARGO_MAKEFLAGS":
		return true
	}
	return false
}

// dropJobserver removes the jobserver from the value of MAKEFLAGS: the options
// that name it and, when there is one, the -j that belongs to it, so that make
// inside works serially, as it does itself when it cannot reach a jobserver
// ("Job Slots" in the GNU make manual). Without a jobserver the value is
// returned as it is: a -j of the user's own names no descriptor. What follows
// "--" are variable definitions and stays. Words are separated by blanks that no
// backslash precedes. It reports whether it removed anything.
func dropJobserver(value string) (string, bool) {
	var words []string
	defs, found := "", false
	for rest := value; rest != ""; {
		w, next := makeWord(rest)
		if w == "--" {
			defs = rest
			break
		}
		if w != "" {
			words = append(words, w)
			found = found || isJobserver(w)
		}
		rest = next
	}
	if !found {
		return value, false
	}
	kept := words[:0]
	for i := 0; i < len(words); i++ {
		switch w := words[i]; {
		case isJobserver(w):
		case w == "-j" || w == "--jobs":
			if i+1 < len(words) && isDigits(words[i+1]) {
				i++
			}
		case strings.HasPrefix(w, "--jobs="), strings.HasPrefix(w, "-j") && isDigits(w[2:]):
		default:
			kept = append(kept, w)
		}
	}
	if defs != "" {
		kept = append(kept, defs)
	}
	return strings.Join(kept, " "), true
}

func isJobserver(w string) bool {
	return strings.HasPrefix(w, "--jobserver-auth=") || strings.HasPrefix(w, "--jobserver-fds=") ||
		strings.HasPrefix(w, "--jobserver-style=")
}

// makeWord cuts the first word off s; it is empty when s begins with a blank.
func makeWord(s string) (w, rest string) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case ' ', '\t':
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

func isDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
