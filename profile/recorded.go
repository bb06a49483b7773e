package profile

import (
	"path"

	"github.com/wallsandbox/wall/plan"
)

// A LayerText is one layer of a profile as it was read for an earlier run.
type LayerText struct {
	Kind LayerKind
	Name string // as in Layer
	File string // what its origins name; "built-in:NAME" for a built-in
	Path string // as in Layer
	Text string
}

// Texts gives the layers that were read, lowest first; flags are not among them.
func (s *Stack) Texts() []LayerText {
	var out []LayerText
	for _, l := range s.layers {
		if l.data != nil {
			out = append(out, LayerText{l.Kind, l.Name, l.File.Source, l.Path, string(l.data)})
		}
	}
	return out
}

// Literal is a variable that a profile or a phase gives a value in plain text.
type Literal struct {
	Name   string
	Value  string
	Origin plan.Origin
}

// Literals gives the variables whose values stand in the texts of the layers.
func (s *Stack) Literals() []Literal {
	var out []Literal
	add := func(f *File) {
		for _, it := range f.EnvSet.Items {
			if it.V.Source == nil {
				out = append(out, Literal{it.V.Name, it.V.Value, it.Origin})
			}
		}
	}
	for _, l := range s.layers {
		if l.data == nil {
			continue
		}
		add(l.File)
		for _, ph := range l.File.Phases.Items {
			add(ph.V.File)
		}
	}
	return out
}

// recorded makes the layers of Options.Recorded in place of those that are
// installed: nothing of a profile is read from the host.
func (s *Stack) recorded(texts []LayerText) (layers []Layer, project Layer, err error) {
	for _, t := range texts {
		f, err := Parse(t.File, []byte(t.Text))
		if err != nil {
			return nil, Layer{}, err
		}
		l := Layer{Kind: t.Kind, Name: t.Name, Path: t.Path, File: f, id: string(t.Kind) + ":" + t.File, data: []byte(t.Text), told: plan.Origin{File: t.File}}
		if t.Path != "" {
			l.dir = path.Dir(t.Path)
		}
		switch t.Kind {
		case LayerProject:
			project = l
		case LayerBuiltin, LayerSystem, LayerUser, LayerFile:
			layers = append(layers, l)
		default:
			return nil, Layer{}, &plan.Error{Op: "the record has a layer of kind " + quote(string(t.Kind))}
		}
	}
	if len(layers) == 0 {
		return nil, Layer{}, &plan.Error{Op: "the record has no profile"}
	}
	return layers, project, nil
}
