package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/wallsandbox/wall/plan"
)

// maxLinkScan bounds the directory entries that findHardLinks looks at.
const maxLinkScan = 200_000

// hardLinks are the files of the writable trees of a plan that have a further name
// somewhere: what the command writes to one of them is written there, too.
type hardLinks struct {
	count   int    // files whose names were not all found in the trees
	first   string // one of them
	scanned int    // entries looked at
	partial bool   // there were more than maxLinkScan
}

// findHardLinks walks the trees at roots, following no links. It takes about a
// microsecond for each entry, and is therefore part of printing a plan and not
// of every start.
func findHardLinks(roots []string) hardLinks {
	type inode struct{ dev, ino uint64 }
	type seen struct {
		left uint64 // names not met yet
		path string
	}
	var h hardLinks
	links := map[inode]*seen{}
	var order []*seen
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := os.ReadDir(dir) // what cannot be read now cannot be written through either
		if err != nil {
			return
		}
		for _, e := range entries {
			if h.scanned++; h.scanned > maxLinkScan {
				h.partial = true
				return
			}
			name := dir + "/" + e.Name()
			if e.IsDir() {
				walk(name)
				if h.partial {
					return
				}
				continue
			}
			var st unix.Stat_t
			if unix.Lstat(name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink < 2 {
				continue
			}
			id := inode{st.Dev, st.Ino}
			s := links[id]
			if s == nil {
				s = &seen{left: uint64(st.Nlink), path: name}
				links[id] = s
				order = append(order, s)
			}
			s.left--
		}
	}
	for _, r := range roots {
		walk(r)
	}
	for _, s := range order {
		if s.left > 0 {
			if h.count == 0 {
				h.first = s.path
			}
			h.count++
		}
	}
	return h
}

// noteHardLinks adds what findHardLinks says to the plan's notices.
func noteHardLinks(p *plan.Plan) {
	h := findHardLinks(p.WritableRoots())
	more := ""
	if h.partial {
		more = fmt.Sprintf(" (only the first %d entries were looked at)", maxLinkScan)
	}
	if h.count > 0 {
		p.Notices = append(p.Notices, plan.Notice{
			Text: fmt.Sprintf("%d files that the command can write have another name outside, which changes with them, such as %s%s", h.count, quoteOdd(h.first), more),
			Hint: "copy them; a local clone of a git repository has none with git clone --no-hardlinks",
		})
	} else if h.partial {
		p.Notices = append(p.Notices, plan.Notice{Text: "hard links out of the writable trees were not all looked for" + more})
	}
}
