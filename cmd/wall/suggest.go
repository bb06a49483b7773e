package main

import (
	"strings"

	"github.com/wallsandbox/wall/profile"
)

// nearWord gives the candidate that word was probably meant to be, or "": the
// closest one, else one that begins the word or that the word begins, as "network"
// is begun by "net".
func nearWord(word string, candidates []string) string {
	best := profile.Nearest(word, candidates)
	if best != "" {
		return best
	}
	const least = 3 // shorter ones begin too many words
	for _, c := range candidates {
		if len(c) > len(best) && len(c) >= least && strings.HasPrefix(word, c) || best == "" && len(word) >= least && strings.HasPrefix(c, word) {
			best = c
		}
	}
	return best
}

// shellWords writes words so that a POSIX shell reads them back as they are.
func shellWords(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = shellWord(w)
	}
	return strings.Join(out, " ")
}

func shellWord(w string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("%+,-./:=@_^", r)
	}
	if w != "" && !strings.ContainsFunc(w, func(r rune) bool { return !plain(r) }) {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// listed writes the words that may be chosen from: "none or host".
func listed(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}
