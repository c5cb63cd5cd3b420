package web

import (
	"strconv"
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

// plainText is a text that others chose, as one line without anything that hides, turns around or covers other text. The
// page escapes it as well.
func plainText(s string) string {
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

// addressText is an address that others chose, whole: the end of a host is what counts. What is not plain ASCII is spelled out.
func addressText(s string) string {
	quoted := strconv.QuoteToASCII(s)
	return quoted[1 : len(quoted)-1]
}

// ourName is what a program that is not ours must not be mistaken for.
const ourName = "toll"

// lookalikes are letters and digits that pass for those of our name.
var lookalikes = map[rune]rune{
	'0': 'o', '1': 'l', '|': 'l', '!': 'l', 'i': 'l', '7': 't', '+': 't', 'о': 'o', 'ο': 'o', 'т': 't', 'τ': 't', 'ӏ': 'l', 'ı': 'l', 'ι': 'l', 'і': 'l',
	'ø': 'o', 'ö': 'o', 'ó': 'o', 'ò': 'o', 'ô': 'o', 'õ': 'o', 'ō': 'o', 'ő': 'o', 'ł': 'l', 'ĺ': 'l', 'ľ': 'l', 'ť': 't', 'ţ': 't',
}

// namesUs reports whether a name has ours in it, or what looks like it.
func namesUs(name string) bool {
	var b strings.Builder
	for _, r := range name {
		r = unicode.ToLower(r)
		if r >= 'ａ' && r <= 'ｚ' {
			r -= 'ａ' - 'a'
		}
		if to, ok := lookalikes[r]; ok {
			r = to
		}
		if unicode.IsLetter(r) {
			b.WriteRune(r)
		}
	}
	return strings.Contains(b.String(), ourName)
}
