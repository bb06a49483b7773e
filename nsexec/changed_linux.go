package nsexec

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/wallsandbox/wall/plan"
)

// StartTries bounds for how many tries [Again] says yes.
const StartTries = 20

// Again reports whether a start that failed with err is worth another try with a
// new plan, even one that is the same: something that the plan counts on was
// gone, or was there already. Other runs in the same workspace put placeholders
// on absent names and take them away, so that a plan can be out of date when it
// is carried out, and right again a moment later. It waits for that moment,
// longer with every try; after the last one it is false. Nothing has run by then.
func Again(err error, try int) bool {
	if try >= StartTries || plan.ExitStatus(err) != plan.ExitFailed || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
		return false
	}
	time.Sleep(time.Duration(rand.Int64N(int64(try) * int64(time.Millisecond))))
	return true
}
