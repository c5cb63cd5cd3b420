package plain

import (
	"strings"
	"unicode"
)

const (
	// nameRunes bounds the shown part of an untrusted name.
	nameRunes = 80
	// marksInRow bounds the marks on one letter: more would cover the lines around it.
	marksInRow = 2
)

// unseen lists invisible letters and symbols.
const unseen = "\u115f\u1160\u2800\u3164\uffa0"

// Name returns an untrusted name as one line of at most 80 characters, without anything that hides, reorders or covers other
// text. Pages must escape it as well.
func Name(s string) string {
	var b strings.Builder
	n, marks, blank := 0, 0, false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			blank = true
			continue
		case r == unicode.ReplacementChar || !unicode.IsGraphic(r) || strings.ContainsRune(unseen, r): // control, format, direction
			continue
		case unicode.Is(unicode.M, r):
			if marks++; marks > marksInRow || b.Len() == 0 {
				continue
			}
		default:
			marks = 0
		}
		if n == nameRunes {
			return b.String() + "…"
		}
		if blank && b.Len() > 0 {
			b.WriteByte(' ')
		}
		blank = false
		b.WriteRune(r)
		n++
	}
	return b.String()
}
