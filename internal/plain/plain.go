// Package plain cleans untrusted text for models and people: [Text], [Lines], [Name] for names, and [Cell] for spreadsheets.
package plain

import (
	"strings"
	"unicode"
)

// Text returns s as one line of at most most visible characters.
func Text(s string, most int) string {
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

// visible returns r, or -1 for an invisible character.
func visible(r rune) rune {
	if r == unicode.ReplacementChar || unicode.In(r, unicode.Cf, unicode.Co, unicode.Cs) ||
		r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef {
		return -1
	}
	return r
}

// cut returns at most the first most characters of s.
func cut(s string, most int) string {
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}

// formulaStarts are the characters that begin a formula in spreadsheets, with their full-width and small forms.
const formulaStarts = "=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b"

// Cell returns a text for a spreadsheet cell. It adds an apostrophe before a text that begins with a tab, a carriage return or,
// after blanks and invisible characters such as a byte order mark, with the start of a formula.
func Cell(text string) string {
	start := strings.TrimLeftFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsGraphic(r) || strings.ContainsRune(unseen, r)
	})
	if strings.HasPrefix(text, "\t") || strings.HasPrefix(text, "\r") || strings.IndexAny(start, formulaStarts) == 0 {
		return "'" + text
	}
	return text
}
