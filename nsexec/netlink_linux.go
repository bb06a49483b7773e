package nsexec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The few netlink messages that a box needs are written here, byte by byte: a
// library for all of nftables would be many times this and part of every start.
// See netlink(7), linux/netlink.h and linux/netfilter/nfnetlink.h.

// A netlinkMessage is one request.
type netlinkMessage struct {
	kind  uint16
	flags uint16 // besides NLM_F_REQUEST
	body  []byte
	what  string // what the kernel is asked for, for an error
}

// netlink sends the messages in one go and reads the answers to those that ask
// for one (NLM_F_ACK). It returns the first error, with the words of its message.
// The kernel works on the messages while they are sent, so that every answer is
// there already.
func netlink(protocol int, messages []netlinkMessage) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return os.NewSyscallError("socket AF_NETLINK", err)
	}
	defer unix.Close(fd)
	// Answers without a copy of the request.
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1); err != nil {
		return os.NewSyscallError("setsockopt NETLINK_CAP_ACK", err)
	}
	answers := 0
	for _, m := range messages {
		if m.flags&unix.NLM_F_ACK != 0 {
			answers++
		}
	}
	to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	if err := retry(func() error { return unix.Sendto(fd, netlinkBytes(messages), 0, to) }); err != nil {
		return os.NewSyscallError("send to netlink", err)
	}
	buf := make([]byte, 16<<10)
	for answers > 0 {
		var n int
		err := retry(func() (err error) { n, _, err = unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); return err })
		if err != nil {
			return os.NewSyscallError("receive from netlink", err)
		}
		got, err := netlinkAnswers(buf[:n], messages)
		if err != nil {
			return err
		}
		answers -= got
	}
	return nil
}

// netlinkBytes gives the messages as they are sent. Their sequence numbers are
// their places.
func netlinkBytes(messages []netlinkMessage) []byte {
	var b []byte
	for i, m := range messages {
		b = binary.NativeEndian.AppendUint32(b, uint32(unix.SizeofNlMsghdr+len(m.body)))
		b = binary.NativeEndian.AppendUint16(b, m.kind)
		b = binary.NativeEndian.AppendUint16(b, m.flags|unix.NLM_F_REQUEST)
		b = binary.NativeEndian.AppendUint32(b, uint32(i))
		b = binary.NativeEndian.AppendUint32(b, 0) // the kernel fills in the port
		b = pad(append(b, m.body...))
	}
	return b
}

// netlinkAnswers counts the acknowledgements in one datagram of the kernel's, and
// gives the first error.
func netlinkAnswers(b []byte, messages []netlinkMessage) (int, error) {
	count := 0
	for len(b) > 0 {
		if len(b) < unix.SizeofNlMsghdr {
			return count, errNetlink
		}
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return count, errNetlink
		}
		if kind := binary.NativeEndian.Uint16(b[4:]); kind != unix.NLMSG_ERROR || size < unix.SizeofNlMsghdr+4 {
			return count, errNetlink
		}
		number := binary.NativeEndian.Uint32(b[8:])
		if errno := -int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); errno != 0 {
			if int(number) < len(messages) {
				return count, fmt.Errorf("%s: %w", messages[number].what, unix.Errno(errno))
			}
			return count, unix.Errno(errno)
		}
		count++
		b = b[min(len(b), (size+3)&^3):]
	}
	return count, nil
}

var errNetlink = errors.New("the kernel's netlink answer makes no sense")

// pad fills up to a multiple of four bytes.
func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// attr appends one attribute, a type and data of any number of pieces.
func attr(b []byte, kind uint16, data ...[]byte) []byte {
	size := unix.SizeofNlAttr
	for _, d := range data {
		size += len(d)
	}
	b = binary.NativeEndian.AppendUint16(b, uint16(size))
	b = binary.NativeEndian.AppendUint16(b, kind)
	for _, d := range data {
		b = append(b, d...)
	}
	return pad(b)
}

// nest appends an attribute whose data are attributes.
func nest(b []byte, kind uint16, data ...[]byte) []byte {
	return attr(b, kind|unix.NLA_F_NESTED, data...)
}

// be32 and be16 are numbers as nftables and packets have them.
func be32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }
func be16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

// native32 is a number as most of the kernel has it.
func native32(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

func cstring(s string) []byte { return append([]byte(s), 0) }
