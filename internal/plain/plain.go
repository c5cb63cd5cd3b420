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
		if unicode.IsSpace(r) || unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return visible(r)
	}, s)
	s = strings.Join(strings.Fields(s), " ")
	return cut(s, most)
}

// Lines is Text that keeps line breaks, tabs and spaces.
func Lines(s string, most int) string {
	if bound := 16 * most; len(s) > bound {
		s = s[:bound]
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.In(r, unicode.Zl, unicode.Zp):
			return '\n'
		case unicode.Is(unicode.Cc, r):
			return -1
		}
		return visible(r)
	}, s)
	return cut(s, most)
}

// visible returns r, or -1 for a character that is not seen.
func visible(r rune) rune {
	if r == unicode.ReplacementChar || unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs) ||
		r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef {
		return -1
	}
	return r
}

// cut returns at most so many characters of s.
func cut(s string, most int) string {
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}
