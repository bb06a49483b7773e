package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"sync"
)

// The wire form carries a Plan from stage 1 to stage 2 of the same binary. It is
// exact (Go strings as bytes, so paths, arguments and variables need not be
// UTF-8), compact and quick to read at process start. Layout:
//
//	magic "wall-plan" | version u32 | shape u64 | body
//
// shape is a fingerprint of every field name and type, so that a binary never
// reads the plan of another one: an unknown or missing field cannot exist. The
// body is the fields in order: strings and slices with a u32 length in front,
// integers as u64, booleans as one byte that is 0 or 1; all little endian.

const (
	wireMagic = "wall-plan"
	// MaxWire bounds an encoded plan, in bytes. A command line may have 2 MiB
	// (the kernel's own limit is 6 MiB for arguments and environment together).
	MaxWire = 32 << 20
)

// Encode gives the wire form of p. It is not for people: it holds the values
// of the environment.
func Encode(p Plan) ([]byte, error) {
	v := reflect.ValueOf(&p).Elem()
	b := make([]byte, 0, 64<<10)
	b = append(b, wireMagic...)
	b = binary.LittleEndian.AppendUint32(b, uint32(p.Version))
	b = binary.LittleEndian.AppendUint64(b, planShape())
	b = appendValue(b, v)
	if len(b) > MaxWire {
		return nil, fmt.Errorf("the plan takes %d bytes, more than %d", len(b), MaxWire)
	}
	return b, nil
}

var errShort = errors.New("plan is cut short")

// Decode reads what [Encode] wrote. It refuses another version or shape, a
// plan that is cut short (the launcher died while writing it), trailing bytes,
// and lengths that exceed the input.
func Decode(b []byte) (Plan, error) {
	var p Plan
	if len(b) > MaxWire {
		return p, fmt.Errorf("the plan takes %d bytes, more than %d", len(b), MaxWire)
	}
	if len(b) < len(wireMagic)+12 {
		return p, errShort
	}
	if string(b[:len(wireMagic)]) != wireMagic {
		return p, errors.New("not a plan")
	}
	b = b[len(wireMagic):]
	if v := binary.LittleEndian.Uint32(b); v != Version {
		return p, fmt.Errorf("plan version %d, this binary has %d", v, Version)
	}
	if binary.LittleEndian.Uint64(b[4:]) != planShape() {
		return p, errors.New("plan was written by another build of wall")
	}
	rest, err := readValue(b[12:], reflect.ValueOf(&p).Elem())
	if err != nil {
		return Plan{}, err
	}
	if len(rest) != 0 {
		return Plan{}, fmt.Errorf("plan has %d bytes too many", len(rest))
	}
	if p.Version != Version {
		return Plan{}, fmt.Errorf("plan version %d, this binary has %d", p.Version, Version)
	}
	return p, nil
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.String:
		s := v.String()
		b = binary.LittleEndian.AppendUint32(b, uint32(len(s)))
		return append(b, s...)
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Int:
		return binary.LittleEndian.AppendUint64(b, uint64(v.Int()))
	case reflect.Uint32, reflect.Uint64:
		return binary.LittleEndian.AppendUint64(b, v.Uint())
	case reflect.Slice:
		b = binary.LittleEndian.AppendUint32(b, uint32(v.Len()))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return append(b, v.Bytes()...)
		}
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
		return b
	}
	panic("plan: type without a wire form: " + v.Type().String())
}

func readValue(b []byte, v reflect.Value) ([]byte, error) {
	length := func() (int, error) {
		if len(b) < 4 {
			return 0, errShort
		}
		n := int(binary.LittleEndian.Uint32(b))
		b = b[4:]
		if n > len(b) { // every element takes at least one byte
			return 0, errShort
		}
		return n, nil
	}
	switch v.Kind() {
	case reflect.String:
		n, err := length()
		if err != nil {
			return nil, err
		}
		v.SetString(string(b[:n]))
		return b[n:], nil
	case reflect.Bool:
		if len(b) < 1 {
			return nil, errShort
		}
		if b[0] > 1 {
			return nil, errors.New("plan has a boolean that is neither 0 nor 1")
		}
		v.SetBool(b[0] == 1)
		return b[1:], nil
	case reflect.Int:
		if len(b) < 8 {
			return nil, errShort
		}
		v.SetInt(int64(binary.LittleEndian.Uint64(b)))
		return b[8:], nil
	case reflect.Uint32, reflect.Uint64:
		if len(b) < 8 {
			return nil, errShort
		}
		n := binary.LittleEndian.Uint64(b)
		if v.OverflowUint(n) {
			return nil, errors.New("plan has a number out of range")
		}
		v.SetUint(n)
		return b[8:], nil
	case reflect.Slice:
		n, err := length()
		if err != nil || n == 0 {
			return b, err
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(append([]byte(nil), b[:n]...))
			return b[n:], nil
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if b, err = readValue(b, v.Index(i)); err != nil {
				return nil, err
			}
		}
		return b, nil
	case reflect.Struct:
		var err error
		for i := range v.NumField() {
			if b, err = readValue(b, v.Field(i)); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	panic("plan: type without a wire form: " + v.Type().String())
}

// planShape is computed once: both stages need it once each.
var planShape = sync.OnceValue(func() uint64 {
	h := fnv.New64a()
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		h.Write([]byte(t.Kind().String()))
		switch t.Kind() {
		case reflect.Slice:
			walk(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				h.Write([]byte(t.Field(i).Name))
				walk(t.Field(i).Type)
			}
			h.Write([]byte{';'})
		}
	}
	walk(reflect.TypeFor[Plan]())
	return h.Sum64()
})
