package api_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/must"
)

// TestPages_Narrow: nothing on the pages is wider than a telephone. Chromium measured them at 390
// to 1,280 pixels; this test keeps the rules that make it so.
func TestPages_Narrow(t *testing.T) {
	s := newStack(t)
	for _, path := range []string{"/docs", "/docs/errors", "/docs/api/readPlan", "/docs/paying", "/docs/search?q=plan"} {
		if page := string(s.do(actor{}, "GET", path, "").body); !strings.Contains(page, `name="viewport" content="width=device-width, initial-scale=1"`) {
			t.Errorf("%s: a telephone shows a page for a desk", path)
		}
	}
	sheet := func(name string) string {
		return string(must.Get(os.ReadFile(filepath.Join("..", "web", "static", name)))(t))
	}
	wide := regexp.MustCompile(
		`white-space:\s*(nowrap|pre)\b|min-width:\s*\d{3,}|width:\s*\d{4,}px`,
	)
	docs := sheet("docs.css")
	if found := wide.FindString(docs); found != "" {
		t.Errorf("docs.css: %s", found)
	}
	for _, rule := range []string{
		"overflow-wrap: anywhere; container-type: inline-size; }", // of the article: long words break
		"@container (max-width: 640px)",                           // of the article, too
		".document :is(table, tbody, tr) { display: block; }",     // rows of a narrow table stand below each other
		".document :is(td, td code) { overflow-wrap: anywhere; }",
	} {
		if !strings.Contains(docs, rule) {
			t.Errorf("no rule %s", rule)
		}
	}
}
