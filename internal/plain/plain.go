// Package plain turns text that others chose into plain text, for answers that a model or a person reads.
package plain

import (
	"strings"
	"unicode"
)

// Text returns s as one line of so many characters at most, without what is not seen.
func Text(s string, most int) string {
	// Bytes beyond any use are not even looked at.
	if bound := 16 * most; len(s) > bound {
		s = s[:bound]
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r), unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp):
			return ' '
		case r == unicode.ReplacementChar, unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs), r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef:
			return -1
		}
		return r
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	if runes := []rune(s); len(runes) > most {
		s = string(runes[:most-1]) + "…"
	}
	return s
}
