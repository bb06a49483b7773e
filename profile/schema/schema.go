// Package schema gives the JSON Schema of the profile language, made from the
// table of keys in package profile, so that editors complete and check profiles
// (a TOML language server takes JSON Schemas).
//
// The schema is the draft 2020-12 of https://json-schema.org. It says of a
// profile what can be said by form: keys, types, words and shapes. Whatever
// profile.Parse accepts is valid by it; not everything that is valid is accepted,
// because paths, groups and limits have rules beyond their form.
package schema

import (
	"encoding/json"
	"strings"

	"github.com/wallsandbox/wall/profile"
)

// object is one schema. encoding/json sorts its names, so that the text is
// always the same.
type object = map[string]any

// JSON gives the schema, indented, with a final line break.
func JSON() ([]byte, error) {
	top := object{}
	tables := map[string]object{}
	for _, t := range profile.Tables() {
		tables[t] = object{}
		top[t] = object{"type": "object", "additionalProperties": false, "properties": tables[t], "description": "The keys of [" + t + "]."}
	}
	var required []string
	for _, k := range profile.Keys() {
		in := top
		if t := k.Table(); t != "" {
			in = tables[t]
		}
		if t, last, ok := strings.Cut(k.Last(), "."); ok {
			nested(in, k, t)[last] = key(k)
			continue
		}
		in[k.Last()] = key(k)
		if k.Table() == "" && k.Required() {
			required = append(required, k.Name)
		}
	}
	top["gate"] = object{"type": "object", "additionalProperties": false, "description": "What wall gate runs when it is given no command.",
		"properties": object{"phase": object{"type": "array", "items": phase(), "description": "Commands that run one after the other, until one does not pass."}}}
	data, err := json.MarshalIndent(object{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "Profile of wall, version 1",
		"description":          "What a box of wall allows. An absent key changes nothing, an empty list means nothing.",
		"type":                 "object",
		"additionalProperties": false,
		"required":             required,
		"properties":           top,
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// nested gives the keys of the table t in a table, which is also written as the
// list that is its key "tools".
func nested(in object, k profile.Key, t string) object {
	if in[t] == nil {
		tools, _ := profile.LookupKey(k.Table() + "." + t + ".tools")
		in[t] = object{
			"description": tools.Doc,
			"anyOf": []object{shape(tools), {
				"type": "object", "additionalProperties": false, "properties": object{}}},
		}
	}
	return in[t].(object)["anyOf"].([]object)[1]["properties"].(object)
}

// phase gives the schema of one element of [[gate.phase]].
func phase() object {
	props := object{
		"name":    object{"type": "string", "pattern": `^[A-Za-z0-9._-]{1,64}$`, "description": "What the phase is called in results."},
		"command": object{"anyOf": []object{{"type": "string", "minLength": 1}, {"type": "array", "items": object{"type": "string"}, "minItems": 1}}, "description": "The command, as a list of words, or a line for /bin/sh."},
	}
	for _, k := range profile.PhaseKeys() {
		t, ok := props[k.Table()].(object)
		if !ok {
			t = object{"type": "object", "additionalProperties": false, "properties": object{}, "description": "Keys of [" + k.Table() + "] for this phase."}
			props[k.Table()] = t
		}
		t["properties"].(object)[k.Last()] = key(k)
	}
	return object{"type": "object", "additionalProperties": false, "required": []string{"name", "command"}, "properties": props}
}

// key gives the schema of one key with its description and default.
func key(k profile.Key) object {
	s := shape(k)
	s["description"] = k.Doc
	if k.Default != "" {
		s["default"] = json.RawMessage(k.Default) // TOML and JSON write these alike
	}
	return s
}

// Shapes of strings, as regular expressions of ECMA-262.
const (
	wordShape     = `^[^= \t\r\n\u0000]+$`
	nameShape     = `^[^=*? \t\r\n\u0000]+$`
	hostShape     = `^(\[[0-9A-Fa-f:.]+(/[0-9]+)?\]|[0-9A-Fa-f:.]+(/[0-9]+)?|(\*\.)?[A-Za-z0-9.-]+)(:(\*|[0-9]+(-[0-9]+)?))?$`
	sizeShape     = `^[0-9]+ *(B|[KMGT]i?B)?$`
	durationShape = `^(0|([0-9]+(h|m|s|ms))+)$`
	outputShape   = `^[0-9]+( chars| *(B|[KMGT]i?B)?)$`
	pathShape     = `^[^\u0000]+$`
)

// sources gives the schemas of the tables that stand in place of a value.
func sources() []object {
	var out []object
	for _, k := range profile.SourceKeys() {
		s := key(k)
		if k.Type == profile.TypeText {
			s["minLength"] = 1
		}
		out = append(out, object{"type": "object", "additionalProperties": false, "properties": object{k.Name: s}, "required": []string{k.Name}})
	}
	return out
}

// shape gives the schema of the values of one key.
func shape(k profile.Key) object {
	text := func(pattern string) object { return object{"type": "string", "pattern": pattern} }
	list := func(items object) object {
		return object{"type": "array", "items": items, "uniqueItems": true}
	}
	switch k.Type {
	case profile.TypeVersion:
		return object{"const": 1}
	case profile.TypeText:
		return object{"type": "string"}
	case profile.TypeProfile:
		return object{"type": "string", "minLength": 1}
	case profile.TypeEnum:
		return object{"enum": k.Values}
	case profile.TypeEnums:
		return list(object{"enum": k.Values})
	case profile.TypeBool:
		return object{"type": "boolean"}
	case profile.TypePath:
		return text(pathShape)
	case profile.TypePaths:
		var names []string
		for _, g := range profile.Groups() {
			if g.Key == k.Name {
				names = append(names, g.Name)
			}
		}
		path := text(`^[^@\u0000][^\u0000]*$`)
		if len(names) == 0 {
			return list(path)
		}
		return list(object{"anyOf": []object{{"enum": names}, path}})
	case profile.TypeDevices:
		return list(text(pathShape))
	case profile.TypeGrants, profile.TypeSeeds:
		fields, required := object{}, []string{}
		for _, f := range k.Fields {
			fields[f.Name] = key(f)
			if f.Required() {
				required = append(required, f.Name)
			}
		}
		return object{"type": "array", "items": object{
			"type": "object", "additionalProperties": false, "properties": fields, "required": required}}
	case profile.TypeHosts:
		return list(text(hostShape))
	case profile.TypePorts:
		return list(object{"type": "integer", "minimum": 1, "maximum": 65535})
	case profile.TypeProxy:
		return text(`^http://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]+$`)
	case profile.TypePatterns:
		return list(text(wordShape))
	case profile.TypeNames:
		return list(text(nameShape))
	case profile.TypeName:
		return text(nameShape)
	case profile.TypeVars:
		return object{"type": "object", "propertyNames": object{"pattern": nameShape}, "additionalProperties": object{"anyOf": append([]object{{"type": "string"}}, sources()...)}}
	case profile.TypeWords:
		return object{"type": "array", "items": object{"type": "string", "pattern": `^[^\u0000]*$`}, "minItems": 1}
	case profile.TypeAttributes:
		return object{"type": "object", "minProperties": 1, "propertyNames": object{"minLength": 1}, "additionalProperties": text(`^[^\u0000]*$`)}
	case profile.TypeFilter:
		return object{"anyOf": []object{{"enum": k.Values}, text("/")}}
	case profile.TypeCount:
		return object{"type": "integer", "minimum": 0}
	case profile.TypeSize:
		return object{"anyOf": []object{{"type": "integer", "minimum": 0}, text(sizeShape)}}
	case profile.TypeDuration:
		return object{"anyOf": []object{{"const": 0}, text(durationShape)}}
	case profile.TypeOutput:
		return text(outputShape)
	}
	return object{"not": object{}, "$comment": "unknown type " + strings.TrimSpace(string(k.Type))}
}
