package egress

import (
	"fmt"
	"math"
)

// maxChunkLine bounds the line before a chunk, and a line of the trailer.
const maxChunkLine = 4096

// A Body finds the end of the body of a request, RFC 9112 6.3 and 7.1: what comes
// after it would be another request, which could be for another host. The zero Body
// is none, and at its end.
type Body struct {
	left  uint64 // bytes of data that are to come
	state chunkState
	size  uint64 // of the next chunk, as far as it has been read
	line  int    // bytes of the line so far
}

// A chunkState is what comes next in a body of chunks, apart from its data.
type chunkState byte

const (
	chunkNone      chunkState = iota // not in chunks, or at the end
	chunkDigit                       // the first digit of a size
	chunkSize                        // another digit, or what follows
	chunkExtension                   // until the end of the line
	chunkSizeLF
	chunkDataCR // after the data
	chunkDataLF
	trailerStart // of a line
	trailerLine
	trailerLF
	trailerEnd // the LF after an empty line
)

var errChunk = fmt.Errorf("a wrong chunk in an HTTP request: %w", ErrProtocol)

// Done reports whether the body is at its end.
func (b *Body) Done() bool { return b.left == 0 && b.state == chunkNone }

// Take gives how many bytes of data belong to the body: all, unless it ends in there.
// A chunk that is none is an error that wraps [ErrProtocol].
func (b *Body) Take(data []byte) (n int, err error) {
	for n < len(data) && !b.Done() {
		if b.left > 0 {
			k := int(min(b.left, uint64(len(data)-n)))
			b.left -= uint64(k)
			n += k
			continue
		}
		if err := b.next(data[n]); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// next reads a byte that is not data.
func (b *Body) next(c byte) error {
	if b.line++; b.line > maxChunkLine {
		return errChunk
	}
	expect := func(want byte, then chunkState) error {
		if c != want {
			return errChunk
		}
		b.state = then
		return nil
	}
	switch b.state {
	case chunkDigit, chunkSize:
		d, ok := hexDigit(c)
		switch {
		case ok && b.size > math.MaxInt64>>4:
			return errChunk
		case ok:
			b.size, b.state = b.size<<4|d, chunkSize
		case b.state == chunkDigit:
			return errChunk
		case c == '\r':
			b.state = chunkSizeLF
		case c == ';' || c == ' ' || c == '\t':
			b.state = chunkExtension
		default:
			return errChunk
		}
	case chunkExtension:
		switch {
		case c == '\r':
			b.state = chunkSizeLF
		case !isText(c):
			return errChunk
		}
	case chunkSizeLF:
		then := chunkDataCR
		if b.size == 0 {
			then = trailerStart
		}
		b.left, b.size, b.line = b.size, 0, 0
		return expect('\n', then)
	case chunkDataCR:
		return expect('\r', chunkDataLF)
	case chunkDataLF:
		b.line = 0
		return expect('\n', chunkDigit)
	case trailerStart, trailerLine:
		switch {
		case c == '\r' && b.state == trailerStart:
			b.state = trailerEnd
		case c == '\r':
			b.state = trailerLF
		case !isText(c):
			return errChunk
		default:
			b.state = trailerLine
		}
	case trailerLF: // the length is that of the whole trailer
		return expect('\n', trailerStart)
	case trailerEnd:
		return expect('\n', chunkNone)
	}
	return nil
}

func hexDigit(c byte) (uint64, bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0'), true
	case 'a' <= c && c <= 'f':
		return uint64(c - 'a' + 10), true
	case 'A' <= c && c <= 'F':
		return uint64(c - 'A' + 10), true
	}
	return 0, false
}

// isText reports whether a byte may be in a line of a head.
func isText(c byte) bool { return c >= ' ' && c != 0x7f || c == '\t' }
