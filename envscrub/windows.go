package envscrub

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// windowsNeed reports whether the name is one of those that processes on Windows
// do not work without. name has the canonical spelling.
func windowsNeed(name string) bool {
	switch name {
	case "SystemRoot", "ComSpec", "PATHEXT", "SystemDrive", "windir", "OS", "PROCESSOR_ARCHITECTURE", "PSModulePath":
		return true
	}
	return false
}

// compare orders names, so that names of one variable are equal.
func (b *builder) compare(x, y string) int {
	if b.windows {
		x, y = foldName(x), foldName(y)
	}
	return strings.Compare(x, y)
}

// same reports whether two names are names of one variable.
func (b *builder) same(x, y string) bool {
	return x == y || b.windows && foldName(x) == foldName(y)
}

// matches is Pattern.Match; on Windows without regard to case, because there
// the casing of a name says nothing.
func (b *builder) matches(p Pattern, name string, fold bool) bool {
	if b.windows {
		return Pattern{foldName(p.text)}.Match(foldName(name), false)
	}
	return p.Match(name, fold)
}

// spell gives the canonical spelling of a name on Windows; names that this
// package does not know, and all names elsewhere, are returned as they are.
func (b *builder) spell(name string) string {
	if !b.windows {
		return name
	}
	for _, list := range [...][]string{managed[:], operational[:], spelled[:]} {
		for _, s := range list {
			if equal(s, name, true) {
				return s
			}
		}
	}
	if hasPrefixFold(name, "LC_") {
		return toUpper(name)
	}
	return name
}

// foldName gives the name in upper case, letter by letter, as Windows compares
// names. A letter that is not ASCII never becomes one that is, and what is not
// UTF-8 stays as it is: neither may turn one variable into another.
func foldName(s string) string {
	ascii := true
	for i := 0; i < len(s); i++ {
		ascii = ascii && s[i] < utf8.RuneSelf
	}
	if ascii {
		return toUpper(s)
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		u := unicode.ToUpper(r)
		switch {
		case r < utf8.RuneSelf:
			out.WriteByte(upper(s[i]))
		case r == utf8.RuneError && n == 1, u < utf8.RuneSelf:
			out.WriteString(s[i : i+n])
		default:
			out.WriteRune(u)
		}
		i += n
	}
	return out.String()
}

// splitWindowsPath splits a search path at the semicolons that no quotes enclose.
func splitWindowsPath(s string) []string {
	var list []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == ';' && !quoted:
			list = append(list, s[start:i])
			start = i + 1
		}
	}
	return append(list, s[start:])
}

// windowsAbs reports whether the path, quoted or not, begins at a drive's root or
// at a network share. "C:dir" and "\dir" depend on the working directory.
func windowsAbs(path string) bool {
	path = strings.ReplaceAll(path, `"`, "")
	slash := func(i int) bool { return path[i] == '\\' || path[i] == '/' }
	if len(path) < 3 {
		return false
	}
	if c := upper(path[0]); 'A' <= c && c <= 'Z' && path[1] == ':' {
		return slash(2)
	}
	return slash(0) && slash(1) && !slash(2)
}

// windowsPath gives PATH for a caller that has none, from its SystemRoot.
func windowsPath(root string) string {
	if !windowsAbs(root) || strings.ContainsAny(root, `;"`) {
		root = `C:\Windows`
	}
	root = strings.TrimRight(root, `\/`)
	return root + `\System32;` + root + `;` + root + `\System32\Wbem`
}
