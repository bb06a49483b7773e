package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"

	"github.com/wallsandbox/wall/plan"
)

// Digest is the SHA-256 of a plan, in lower-case hex: of everything that is done,
// without what differs from run to run of the same (the name of the scratch directory,
// where the cgroup is, and what stands on the standard streams), without values of
// variables, and without where each entry was asked for.
func Digest(p plan.Plan) (string, error) {
	p, err := Canonical(p)
	if err != nil {
		return "", err
	}
	data, err := p.JSON()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// Canonical gives a copy of p without what [Digest] leaves out. It is not valid.
func Canonical(p plan.Plan) (plan.Plan, error) {
	data, err := plan.Encode(p.Redact())
	if err != nil {
		return plan.Plan{}, err
	}
	c, err := plan.Decode(data) // a deep copy
	if err != nil {
		return plan.Plan{}, err
	}
	if c.Scratch.ID != "" {
		c.Scratch.ID = "0"
	}
	// Which of the user's cgroups it is below depends on the session.
	c.Bounds.Cgroup = plan.Cgroup{Version: c.Bounds.Cgroup.Version}
	c.Stdio = nil
	clearOrigins(reflect.ValueOf(&c).Elem())
	return c, nil
}

func clearOrigins(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[plan.Origin]() {
			v.SetZero()
			return
		}
		for i := range v.NumField() {
			clearOrigins(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			clearOrigins(v.Index(i))
		}
	}
}
