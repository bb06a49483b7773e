package source

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// keyrings are searched in this order, with those linked to them.
var keyrings = []int{unix.KEY_SPEC_SESSION_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEY_SPEC_USER_SESSION_KEYRING}

// keyring reads the payload of a key of type "user".
func keyring(description string) (string, error) {
	type answer struct {
		value string
		err   error
	}
	c := make(chan answer)
	go func() {
		// The key is linked to the thread's own keyring, see below. That ends with the
		// thread, which ends with this goroutine because it is not unlocked.
		runtime.LockOSThread()
		value, err := readKey(description)
		c <- answer{value, err}
	}()
	a := <-c
	return a.value, a.err
}

func readKey(description string) (string, error) {
	for _, ring := range keyrings {
		// A key can be searched for through a keyring and read through its number only by who
		// possesses it, which a key of the user keyring is not in every session
		// (keyctl_read(3)). The link makes it so.
		id, err := unix.KeyctlSearch(ring, "user", description, unix.KEY_SPEC_THREAD_KEYRING)
		switch err {
		case nil:
			return readPayload(id)
		case unix.ENOKEY:
			continue
		case unix.EKEYEXPIRED, unix.EKEYREVOKED:
			return "", &hinted{err, "add it again"}
		case unix.ENOSYS, unix.EPERM:
			return "", &hinted{fmt.Errorf("the keyrings cannot be used: %w", err), "a container's system call filter may refuse keyctl(2)"}
		default:
			return "", err
		}
	}
	return "", &hinted{unix.ENOKEY, "neither the session's nor the user's keyring has a key of type user with this description; add it with: keyctl padd user DESCRIPTION @u"}
}

// readPayload reads a key of at most plan.MaxVariable bytes; keys of type "user" have 32767 at most.
func readPayload(id int) (string, error) {
	buf := make([]byte, plan.MaxVariable)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0)
	if err != nil {
		return "", err
	}
	if n > len(buf) {
		return "", errors.New("the key is too long")
	}
	return string(buf[:n]), nil
}
