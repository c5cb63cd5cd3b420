package plain

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "",
		"Notes":                             "Notes",
		"  two \n\t words\r\n":              "two words",
		"line\u2028and\u2029paragraph":      "line and paragraph",
		"a\x00b\x1bc\x7fd":                  "a b c d",
		"safe\u202etxt.exe":                 "safetxt.exe",
		"zero\u200bwidth\ufeff\u00ad":       "zerowidth",
		"variant\ufe0f\U000e0100":           "variant",
		"tag\U000e0041private\ue000":        "tagprivate",
		"bad\xff\xfeutf8\ufffd":             "badutf8",
		"ö 字 🙂":                             "ö 字 🙂",
		strings.Repeat("x", 20):             strings.Repeat("x", 20),
		strings.Repeat("ö", 21):             strings.Repeat("ö", 19) + "…",
		strings.Repeat("\u200b", 200) + "x": "", // beyond what is looked at
	} {
		if got := Text(in, 20); got != want || !utf8.ValidString(got) {
			t.Errorf("%.40q: %q, want %q", in, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"two\n\twords  here":        "two\n\twords  here",
		"a\x00b\x1b[31mc\x7fd\r\n":  "ab[31mcd\n",
		"line\u2028para\u2029graph": "line\npara\ngraph",
		"safe\u202etxt\u200b":       "safetxt",
		"bad\xff\xfe":               "bad",
		strings.Repeat("ö", 21):     strings.Repeat("ö", 19) + "…",
	} {
		if got := Lines(in, 20); got != want || !utf8.ValidString(got) {
			t.Errorf("%.40q: %q, want %q", in, got, want)
		}
	}
}
