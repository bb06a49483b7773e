package nsexec

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/wallsandbox/wall/plan"
)

// The status protocol runs over one pipe from stage 2 to stage 1. Each message
// is a type byte, a little-endian u32 length and a body:
//
//	'R'  the command is executed next, with a limit of processes: pid 1 waits for orderExecute  body: empty
//	'S'  the command was executed          body: empty
//	'F'  a step failed, nothing was executed  body: failure as JSON
//	'T'  the command stopped, on a private terminal  body: the signal, and the number of orders to go on so far, one byte each
//	'E'  the command ended                 body: ended, fixed size
//	'L'  mounts of the box are gone, it is ended  body: their mount points, NUL between them
//
// End of file without 'E' means that stage 2 was killed. The pipe is never
// inherited by the command, and pid 1 cannot be traced from inside, so nothing
// in the box can write to it.

const (
	msgReady   byte = 'R'
	msgStarted byte = 'S'
	msgFailed  byte = 'F'
	msgStopped byte = 'T'
	msgEnded   byte = 'E'
	msgLost    byte = 'L'

	maxMessage = 64 << 10 // bytes in one body
)

// A failure is what stage 2 tells stage 1 about the step that failed. The errno
// travels as a number so that errors.Is works on the other side.
type failure struct {
	Step   string      `json:"step"`           // name of the step: "mounts"
	Op     string      `json:"op"`             // what was attempted, for a person
	Errno  int         `json:"errno"`          // 0 when there is none
	Text   string      `json:"text,omitempty"` // cause when there is no errno
	Origin plan.Origin `json:"origin"`
	Hint   string      `json:"hint,omitempty"`
	Exit   int         `json:"exit,omitempty"` // 0 = 125

	Overlay  bool `json:"overlay,omitempty"`  // the cause is an OverlayError
	Nftables bool `json:"nftables,omitempty"` // the cause is an NftablesError
}

// A StepError is the step of stage 2 that failed, below the plan.Error that
// tells it to a person.
type StepError struct {
	Step string // "mounts", "landlock", ...
	Err  error
}

func (e *StepError) Error() string { return e.Err.Error() }

// Unwrap gives the cause, a syscall.Errno where the kernel refused.
func (e *StepError) Unwrap() error { return e.Err }

// err rebuilds the error in stage 1.
func (f failure) err() error {
	var cause error
	switch {
	case f.Errno != 0:
		cause = syscall.Errno(f.Errno)
		if f.Text != "" {
			cause = fmt.Errorf("%s: %w", f.Text, cause)
		}
	case f.Text != "":
		cause = errors.New(f.Text)
	default:
		cause = errors.New("no cause was reported")
	}
	switch {
	case f.Overlay:
		cause = &OverlayError{cause}
	case f.Nftables:
		cause = &NftablesError{cause}
	}
	return &plan.Error{Op: f.Op, Origin: f.Origin, Hint: f.Hint, Exit: f.Exit, Err: &StepError{Step: f.Step, Err: cause}}
}

// newFailure turns an error of stage 2 into its record.
func newFailure(step string, err error) failure {
	f := failure{Step: step, Op: "cannot build the box"}
	var pe *plan.Error
	if errors.As(err, &pe) {
		f.Op, f.Origin, f.Hint, f.Exit = pe.Op, pe.Origin, pe.Hint, pe.Exit
		if pe.Err == nil {
			f.Text = "refused"
			return f
		}
		err = pe.Err
	}
	if o, ok := errors.AsType[*OverlayError](err); ok {
		f.Overlay, err = true, o.Err
	}
	if n, ok := errors.AsType[*NftablesError](err); ok {
		f.Nftables, err = true, n.Err
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		f.Errno = int(errno)
		if text := err.Error(); text != errno.Error() {
			// Keep the words in front of the errno text.
			if n := len(text) - len(errno.Error()) - 2; n > 0 && text[n+2:] == errno.Error() {
				f.Text = text[:n]
			}
		}
		return f
	}
	f.Text = err.Error()
	return f
}

// ended is the end of the command as pid 1 saw it.
type ended struct {
	Status int64 // wait status as in wait(2)
	UserUS int64 // user CPU time of the whole box, microseconds
	SysUS  int64 // system CPU time of the whole box, microseconds
	MaxRSS int64 // bytes, of the largest process
	Tasks  int64 // processes and threads of the box at that moment, where pid 1 has to count them; the command is one
}

const endedSize = 5 * 8

func (e ended) append(b []byte) []byte {
	for _, v := range []int64{e.Status, e.UserUS, e.SysUS, e.MaxRSS, e.Tasks} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func parseEnded(b []byte) (ended, error) {
	if len(b) != endedSize {
		return ended{}, fmt.Errorf("end record of %d bytes, want %d", len(b), endedSize)
	}
	at := func(i int) int64 { return int64(binary.LittleEndian.Uint64(b[8*i:])) }
	return ended{at(0), at(1), at(2), at(3), at(4)}, nil
}

func message(kind byte, body []byte) []byte {
	b := append(make([]byte, 0, 5+len(body)), kind)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// readMessage reads one message. io.EOF means that stage 2 is gone; a message
// that is cut short is io.ErrUnexpectedEOF.
func readMessage(r io.Reader) (kind byte, body []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxMessage {
		return 0, nil, fmt.Errorf("status message of %d bytes", n)
	}
	body = make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	switch head[0] {
	case msgReady, msgStarted, msgFailed, msgStopped, msgEnded, msgLost:
		return head[0], body, nil
	}
	return 0, nil, fmt.Errorf("status message of type %q", head[0])
}

func parseFailure(body []byte) error {
	var f failure
	if err := json.Unmarshal(body, &f); err != nil {
		return fmt.Errorf("stage 2 failed and its record is unreadable: %w", err)
	}
	return f.err()
}

func (f failure) message() []byte {
	b, err := json.Marshal(f)
	if err != nil || len(b) > maxMessage {
		b, _ = json.Marshal(failure{Step: f.Step, Op: "cannot build the box", Errno: f.Errno, Text: "the record of the failure is too large", Exit: f.Exit})
	}
	return message(msgFailed, b)
}

// The order sent to stage 2 is a header in front of the plan:
//
//	magic "wall-go1" | n u32 | n namespace inode numbers u64 | plan
//
// The inode numbers are those of the launcher's own namespaces, in the order of
// spaceKinds: the self-test compares them.

const orderMagic = "wall-go1"

var spaceKinds = []plan.SpaceKind{
	plan.SpaceUser, plan.SpaceMount, plan.SpacePID, plan.SpaceNet, plan.SpaceIPC, plan.SpaceUTS, plan.SpaceCgroup,
}

func encodeOrder(inodes []uint64, p []byte) []byte {
	b := make([]byte, 0, len(orderMagic)+4+8*len(inodes)+len(p))
	b = append(b, orderMagic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(inodes)))
	for _, n := range inodes {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return append(b, p...)
}

var errOrder = errors.New("the order from the launcher is cut short: it died, or wall-init was started by hand")

func decodeOrder(b []byte) (inodes []uint64, p plan.Plan, err error) {
	if len(b) < len(orderMagic)+4 || string(b[:len(orderMagic)]) != orderMagic {
		return nil, p, errOrder
	}
	b = b[len(orderMagic):]
	n := int(binary.LittleEndian.Uint32(b))
	b = b[4:]
	if n != len(spaceKinds) || len(b) < 8*n {
		return nil, p, errOrder
	}
	inodes = make([]uint64, n)
	for i := range inodes {
		inodes[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	p, err = plan.Decode(b[8*n:])
	return inodes, p, err
}
