package page

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tollhq/toll/internal/plain"
)

// TestNamesOfPrograms: what a program calls itself is one plain line, and cannot pass for this service.
// T120
func TestNamesOfPrograms(t *testing.T) {
	for in, want := range map[string]string{
		"Notes":                            "Notes",
		"  two \n\t words\r\n":             "two words",
		"<script>alert(1)</script>":        "<script>alert(1)</script>", // the page escapes it
		"safe\u202etxt.exe":                "safetxt.exe",
		"a\u2066b\u2069c\u200fd\u061ce":    "abcde",
		"zero\u200bwidth\ufeff\u00ad":      "zerowidth",
		"\x00nul\x1b[31mred\x7f":           "nul[31mred",
		"\u3164\u2800\u115f":               "",
		"private\ue000 \U000f0000use":      "private use",
		"line\u2028and\u2029paragraph":     "line and paragraph",
		"e\u0301\u0301\u0301\u0301\u0301x": "e\u0301\u0301x",
		"\u0301lead":                       "lead",
		"bad\xff\xfeutf8":                  "badutf8",
		"שלום عالم":                        "שלום عالم",
		strings.Repeat("x", 80):            strings.Repeat("x", 80),
		strings.Repeat("x", 10_000):        strings.Repeat("x", 80) + "…",
		strings.Repeat("x", 80) + "\u200b": strings.Repeat("x", 80),
	} {
		if got := plain.Name(in); got != want || !utf8.ValidString(got) {
			t.Errorf("%.40q: %q, want %q", in, got, want)
		}
	}
	long := strings.Repeat("a.", 200) + "example.com"
	for in, want := range map[string]string{long: long, "xn--e1afmkfd.example": "xn--e1afmkfd.example", "app\u202emoc.elpmaxe": `app\u202emoc.elpmaxe`, "": ""} {
		if got := AddressText(in); got != want {
			t.Errorf("%.40q: %q", in, got)
		}
	}
	for name, want := range map[string]bool{
		"Toll": true, "The TOLL service": true, "T O L L": true, "t0ll": true, "to11": true, "TOIL": true, "Тоll": true, "ｔｏｌｌ": true, "tőll": true,
		"t.o-l_l Support": true, "tollhq": true, "Notes": false, "Claude": false, "": false, "Tool": false,
	} {
		if got := NamesUs(plain.Name(name)); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

// TestPlaces: a sign-in leads to pages of ours only.
func TestPlaces(t *testing.T) {
	for next, want := range map[string]string{
		"/device":                        "/device",
		"/device?user_code=A%20B":        "/device?user_code=A%20B",
		"/oauth/authorize?client_id=x":   "/oauth/authorize?client_id=x",
		"":                               "",
		"/":                              "",
		"/api/v1/keys":                   "",
		"//evil.example.com/device":      "",
		`/\evil.example.com/device`:      "",
		"https://evil.example.com":       "",
		"https:evil.example.com":         "",
		"https:/device":                  "",
		"javascript:alert(1)":            "",
		"data:text/html,x":               "",
		"%2f%2fevil.example.com":         "",
		"/%2fevil.example.com":           "",
		"/device/../../evil":             "",
		"/device%2f..":                   "",
		"/devi%63e":                      "",
		"/device\r\nSet-Cookie: a=b":     "",
		"/device#x":                      "/device",
		"//user@evil.example.com/device": "",
	} {
		if got := LocalPath(next); got != want {
			t.Errorf("%q: %q, want %q", next, got, want)
		}
	}
}
