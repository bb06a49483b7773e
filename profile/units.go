package profile

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/wallsandbox/wall/plan"
)

// parseCount reads a whole number as TOML writes it.
func parseCount(s string) (uint64, string) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "+"), 0, 64)
	if err != nil || n > math.MaxInt64 {
		return 0, "must be a whole number from 0 to 9223372036854775807"
	}
	return n, ""
}

var sizeUnits = map[string]uint64{
	"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
}

// parseSize reads a number of bytes with an optional unit: B, KiB, MiB, GiB,
// TiB (powers of 1024) or KB, MB, GB, TB (powers of 1000).
func parseSize(s string) (uint64, string) {
	digits := strings.TrimRight(s, "BKMGTi")
	unit, ok := sizeUnits[s[len(digits):]]
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 64)
	if !ok || err != nil || n > math.MaxInt64/unit {
		return 0, "must be a size such as \"512MiB\" or \"2GiB\": a whole number, and B, KiB, MiB, GiB, TiB, KB, MB, GB or TB"
	}
	return n * unit, ""
}

// Units of time in nanoseconds, as in time.Duration.
const (
	millisecond = 1e6
	second      = 1e3 * millisecond
	minute      = 60 * second
	hour        = 60 * minute
)

// durationUnits are the units of a duration, longest first.
var durationUnits = []struct {
	name string
	ns   uint64
}{{"h", hour}, {"m", minute}, {"s", second}, {"ms", millisecond}}

// parseDuration reads "1h30m", "10m", "5s", "250ms" or "0": whole numbers with
// units, each unit at most once, longest first. The result is in nanoseconds.
func parseDuration(s string) (uint64, string) {
	const msg = "must be a duration such as \"10m\", \"90s\" or \"1h30m\""
	if s == "0" {
		return 0, ""
	}
	var sum uint64
	rest, at := s, 0
	for rest != "" {
		i := 0
		for i < len(rest) && rest[i] >= '0' && rest[i] <= '9' {
			i++
		}
		n, err := strconv.ParseUint(rest[:i], 10, 64)
		if err != nil {
			return 0, msg
		}
		rest = rest[i:]
		j := 0
		for j < len(rest) && (rest[j] < '0' || rest[j] > '9') {
			j++
		}
		for at < len(durationUnits) && durationUnits[at].name != rest[:j] {
			at++
		}
		if at == len(durationUnits) {
			return 0, msg
		}
		u := durationUnits[at].ns
		if n > (math.MaxInt64-sum)/u {
			return 0, "is longer than 292 years"
		}
		sum += n * u
		rest = rest[j:]
		at++
	}
	if s == "" {
		return 0, msg
	}
	return sum, ""
}

// ParseDuration reads a duration as profiles have it, in nanoseconds.
func ParseDuration(s string) (uint64, error) {
	n, msg := parseDuration(s)
	if msg != "" {
		return 0, errors.New(msg)
	}
	return n, nil
}

// An Amount is a quantity with its unit.
type Amount struct {
	N    uint64
	Unit string // "chars" or "bytes"
}

// String gives the amount as a profile writes it.
func (a Amount) String() string {
	if a.Unit == "chars" {
		return strconv.FormatUint(a.N, 10) + " chars"
	}
	return formatSize(a.N)
}

// parseOutput reads "1500 chars" or a size.
func parseOutput(s string) (Amount, string) {
	const msg = "must be an amount such as \"1500 chars\" or \"64KiB\""
	if digits, ok := strings.CutSuffix(s, " chars"); ok {
		n, err := strconv.ParseUint(digits, 10, 63)
		if err != nil {
			return Amount{}, msg
		}
		return Amount{n, "chars"}, ""
	}
	n, bad := parseSize(s)
	if bad != "" {
		return Amount{}, msg
	}
	return Amount{n, "bytes"}, ""
}

// formatSize and formatDuration write what parseSize and parseDuration read.
var (
	formatSize     = plan.FormatSize
	formatDuration = plan.FormatDuration
)
