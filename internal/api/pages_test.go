package api_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestPages_Narrow: nothing on the pages is wider than a telephone. Chromium measured them at 320
// to 1,100 pixels; this test keeps the rules that make it so.
func TestPages_Narrow(t *testing.T) {
	s := newStack(t)
	wide := regexp.MustCompile(
		`white-space:\s*(nowrap|pre)\b|min-width:\s*\d{3,}|width:\s*\d{4,}px`,
	)
	for _, path := range []string{"/docs", "/docs/errors", "/docs/paying", "/docs/search?q=plan"} {
		page := string(s.do(actor{}, "GET", path, "").body)
		style, _, _ := strings.Cut(page, "</style>")
		for _, rule := range []string{
			`name="viewport" content="width=device-width, initial-scale=1"`, // else a telephone shows a page of a desk
			"body { overflow-wrap: anywhere; }",                             // long words break, those of code as well
			"table, tbody, tr, td { display: block; }",                      // rows of a narrow table stand below each other
		} {
			if !strings.Contains(style, rule) {
				t.Errorf("%s has no rule %s", path, rule)
			}
		}
		if found := wide.FindString(style); found != "" {
			t.Errorf("%s: %s", path, found)
		}
	}
}
