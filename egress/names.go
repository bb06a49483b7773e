package egress

import (
	"errors"
	"net/netip"
	"strings"
)

// What is wrong with a name. The texts hold nothing of the name, which comes from
// the command.
var (
	errNameEmpty  = errors.New("an empty host name")
	errNameLong   = errors.New("a host name of more than 253 bytes")
	errNameLabel  = errors.New("a host name with a label that is empty or longer than 63 bytes")
	errNameByte   = errors.New("a host name with other characters than letters, digits, hyphens and underscores")
	errNameHyphen = errors.New("a host name with a label that begins or ends with a hyphen")
	errNameNumber = errors.New("a number, or an address written as a host name")
)

// ParseName gives a host name in the one form that rules, events and the resolver
// use: lower case, without the final dot. Names of other scripts come as A-labels
// ("xn--..."), as they do in the protocols; anything but letters, digits, hyphens
// and underscores is refused, and so is whatever inet_aton(3) could take for an
// address: a last label that is a decimal, octal or hexadecimal number.
func ParseName(s string) (string, error) {
	s = strings.TrimSuffix(s, ".")
	if s == "" {
		return "", errNameEmpty
	}
	if len(s) > 253 { // 255 on the wire, RFC 1035 2.3.4
		return "", errNameLong
	}
	s = lower(s)
	var last string
	for label := range strings.SplitSeq(s, ".") {
		if len(label) < 1 || len(label) > 63 {
			return "", errNameLabel
		}
		for i := range len(label) {
			if c := label[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return "", errNameByte
			}
		}
		if label[0] == '-' || label[len(label)-1] == '-' {
			return "", errNameHyphen
		}
		last = label
	}
	if isNumber(last) {
		return "", errNameNumber
	}
	return s, nil
}

// lower maps A to Z and no other byte; strings.ToLower turns U+212A, the Kelvin sign, into a k.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// isNumber reports whether the label of a name is all digits, or hexadecimal: no
// top-level domain is, and the URL standard and inet_aton(3) read such a name as an address.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// isLocalhost reports whether a parsed name is the box itself, without any rule
// (RFC 6761 6.3).
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// A Target is what a connection is for: a name or an address, and a port.
type Target struct {
	Name string     // as of ParseName; "" for an address
	Addr netip.Addr // without zone, and not IPv4-mapped; the zero Addr for a name
	Port int        // 1 to 65535
}
