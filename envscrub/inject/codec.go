package inject

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// version is the format that is written; no other is read.
const version = 1

// encode gives the file of vars, which are valid and sorted. Written by hand
// because encoding/json would change bytes that are not UTF-8 in silence.
func encode(vars []Var) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"version\": %d,\n  \"variables\": [", version)
	for i, v := range vars {
		if i > 0 {
			b.WriteByte(',')
		}
		if utf8.ValidString(v.Value) {
			fmt.Fprintf(&b, "\n    {\"name\": \"%s\", \"value\": %s}", v.Name, quoteJSON(v.Value))
		} else {
			fmt.Fprintf(&b, "\n    {\"name\": \"%s\", \"base64\": \"%s\"}", v.Name, base64.StdEncoding.EncodeToString([]byte(v.Value)))
		}
	}
	if len(vars) > 0 {
		b.WriteString("\n  ")
	}
	b.WriteString("]\n}\n")
	return b.Bytes()
}

// quoteJSON quotes a string that is UTF-8.
func quoteJSON(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // "&" and "<" stay legible
	_ = e.Encode(s)        // a string into a buffer cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// decode reads a store strictly: every member exactly once and by its exact name,
// nothing unknown, nothing behind the end. The result is sorted and not nil. Errors
// hold no part of the data, which could be of a value.
func decode(data []byte) ([]Var, error) {
	switch {
	case len(data) == 0:
		return nil, errors.New("it is empty")
	case len(data) > MaxFile:
		return nil, fmt.Errorf("it takes more than %d bytes", MaxFile)
	case !utf8.Valid(data):
		return nil, errors.New("it is not UTF-8")
	case HasSurrogate(data):
		return nil, errors.New(`it has a character written as two \u escapes: write it as UTF-8`)
	}
	d := reader{json.NewDecoder(bytes.NewReader(data))}
	d.UseNumber()
	vars := []Var{}
	var haveVersion, haveVariables bool
	err := d.object(func(member string) error {
		switch {
		case member == "version" && !haveVersion:
			haveVersion = true
			t, err := d.token()
			if err == nil && t != json.Number(fmt.Sprint(version)) {
				err = fmt.Errorf("its version is not %d", version)
			}
			return err
		case member == "variables" && !haveVariables:
			haveVariables = true
			return d.array(func() error {
				v, err := d.variable()
				vars = append(vars, v)
				return err
			})
		}
		return errors.New(`it has a member besides one "version" and one "variables"`)
	})
	if err != nil {
		return nil, err
	}
	if !haveVersion || !haveVariables {
		return nil, errors.New(`it lacks "version" or "variables"`)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("something follows its end")
	}
	for _, v := range vars {
		if err := v.valid(); err != nil {
			return nil, err
		}
	}
	return ordered(vars)
}

// A reader reads JSON token by token.
type reader struct{ *json.Decoder }

// token is Token with an error that shows nothing of the data.
func (d reader) token() (json.Token, error) {
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("it is not JSON, or cut short, at byte %d", d.InputOffset())
	}
	return t, nil
}

func (d reader) delim(want json.Delim) error {
	t, err := d.token()
	if err == nil && t != want {
		err = fmt.Errorf("it has something else than %q at byte %d", want.String(), d.InputOffset())
	}
	return err
}

// object reads an object, calling member with the name of each to read its value.
func (d reader) object(member func(name string) error) error {
	if err := d.delim('{'); err != nil {
		return err
	}
	for d.More() {
		t, err := d.token()
		if err != nil {
			return err
		}
		name, ok := t.(string)
		if !ok {
			return fmt.Errorf("it has something else than a name at byte %d", d.InputOffset())
		}
		if err := member(name); err != nil {
			return err
		}
	}
	return d.delim('}')
}

// array reads an array, calling element to read each.
func (d reader) array(element func() error) error {
	if err := d.delim('['); err != nil {
		return err
	}
	for d.More() {
		if err := element(); err != nil {
			return err
		}
	}
	return d.delim(']')
}

// variable reads one element of "variables".
func (d reader) variable() (Var, error) {
	var v Var
	var haveName, haveValue bool
	start := d.InputOffset()
	err := d.object(func(member string) error {
		t, err := d.token()
		if err != nil {
			return err
		}
		s, ok := t.(string)
		switch {
		case !ok:
			return fmt.Errorf("it has something else than a string at byte %d", d.InputOffset())
		case member == "name" && !haveName:
			haveName, v.Name = true, s
		case member == "value" && !haveValue:
			haveValue, v.Value = true, s
		case member == "base64" && !haveValue:
			haveValue = true
			raw, err := base64.StdEncoding.Strict().DecodeString(s)
			if err != nil {
				return fmt.Errorf("it has something else than base64 at byte %d", d.InputOffset())
			}
			v.Value = string(raw)
		default:
			return fmt.Errorf(`the variable at byte %d has a member besides one "name" and one of "value" and "base64"`, start)
		}
		return nil
	})
	if err == nil && (!haveName || !haveValue) {
		err = fmt.Errorf("the variable at byte %d lacks its name or its value", start)
	}
	return v, err
}

// HasSurrogate reports whether a string of JSON text has a \u escape of half a character.
// encoding/json turns one without its other half into U+FFFD, which would change
// a value in silence.
func HasSurrogate(data []byte) bool {
	for i := 0; i+3 < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		if data[i+1] == 'u' && data[i+2]|0x20 == 'd' && data[i+3] >= '8' {
			return true
		}
		i++ // the escaped character, which may be a backslash
	}
	return false
}
