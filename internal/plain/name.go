package plain

import (
	"strings"
	"unicode"
)

const (
	// nameRunes is how much of a name that others chose is shown.
	nameRunes = 80
	// marksInRow is how many marks may stand on one letter: more of them reach over the lines around.
	marksInRow = 2
)

// unseen are letters and signs that show nothing.
const unseen = "\u115f\u1160\u2800\u3164\uffa0"

// Name returns a name that others chose, as one line without anything that hides, turns around or
// covers other text, and of 80 characters at most. A page escapes it as well.
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
