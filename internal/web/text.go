package web

import (
	"strconv"
	"strings"
	"unicode"
)

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
