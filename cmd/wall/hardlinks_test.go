package main

import (
	"errors"
	"os"
	"testing"
)

func TestFindHardLinks(t *testing.T) {
	dir := t.TempDir()
	in, out := dir+"/in", dir+"/out"
	if err := errors.Join(
		os.MkdirAll(in+"/sub", 0o700), os.Mkdir(out, 0o700),
		os.WriteFile(out+"/a", nil, 0o600), os.WriteFile(in+"/plain", nil, 0o600), os.WriteFile(in+"/twice", nil, 0o600),
		os.Link(in+"/twice", in+"/sub/twice"), // both names inside
		os.Link(out+"/a", in+"/sub/a"),        // one outside
		os.Symlink(out, in+"/link"),           // not followed
	); err != nil {
		t.Fatal(err)
	}
	h := findHardLinks([]string{in})
	if h.count != 1 || h.first != in+"/sub/a" || h.partial {
		t.Errorf("got %+v", h)
	}
	if h := findHardLinks([]string{in, out}); h.count != 0 {
		t.Errorf("with both trees writable: %+v", h)
	}
	if h := findHardLinks([]string{dir + "/none"}); h.count != 0 || h.scanned != 0 {
		t.Errorf("a missing tree: %+v", h)
	}
}
