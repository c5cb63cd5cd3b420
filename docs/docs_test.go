package docs

import (
	"regexp"
	"strings"
	"testing"
)

// TestGuides: every guide has a title, and its links lead to pages of the service or out of it.
func TestGuides(t *testing.T) {
	all := Guides("https://toll.example.com")
	slugs := map[string]bool{"": true, "errors": true, "changelog": true}
	for _, g := range all {
		if g.Title == "" || g.Group == "" || slugs[g.Slug] {
			t.Errorf("guide %q: title %q, group %q", g.Slug, g.Title, g.Group)
		}
		slugs[g.Slug] = true
	}
	if len(all) < 20 || all[0].Slug != "prompt" {
		t.Errorf("%d guides, the first is %s", len(all), all[0].Slug)
	}
	for _, g := range all {
		if strings.Contains(string(g.HTML), "<script") || strings.Contains(string(g.HTML), "<h1") {
			t.Errorf("%s has a script or a second heading", g.Slug)
		}
		for _, m := range regexp.MustCompile(`<a href="([^"]*)"`).FindAllStringSubmatch(string(g.HTML), -1) {
			page, _, _ := strings.Cut(strings.TrimPrefix(m[1], "/docs/"), "#")
			if !strings.HasPrefix(m[1], "https://") && !strings.HasPrefix(m[1], "http://") && !strings.HasPrefix(m[1], "#") && !slugs[page] {
				t.Errorf("%s leads to %s", g.Slug, m[1])
			}
		}
	}
}

func TestRender(t *testing.T) {
	g := render("guides/x.md", []byte("# A *title*\n\nSee [paying](../PAYING.md#the-plan), [PAYING.md](../PAYING.md), [a file](../../go.mod) and <b>raw</b>.\n\n![a picture](../pictures/x.png)\n\n## Part one\n\n| a |\n|---|\n| cell |\n\n```sh\ntoll call\n```\n"))
	if g.Slug != "guide-x" || g.Title != "A title" || len(g.Sections) != 2 || g.Sections[1].Anchor != "part-one" {
		t.Fatalf("%+v", g)
	}
	html := string(g.HTML)
	for _, want := range []string{`<a href="/docs/paying#the-plan">paying</a>`, `<a href="/docs/paying">Call a paid agent</a>`, "a file and", `<td data-label="a">cell</td>`, "toll call"} {
		if !strings.Contains(html, want) {
			t.Errorf("no %q in\n%s", want, html)
		}
	}
	for _, not := range []string{"go.mod", "<b>", "<img", "<p></p>"} {
		if strings.Contains(html, not) {
			t.Errorf("%q in\n%s", not, html)
		}
	}
	found := NewIndex([]Guide{g}).Search("CALL cell")
	if len(found) != 1 || found[0].To != "/docs/guide-x#part-one" || !strings.Contains(found[0].Excerpt, "cell") {
		t.Errorf("%+v", found)
	}
	for _, query := range []string{"", "zebra", strings.Repeat("a ", MaxWords+1), strings.Repeat("a", MaxQuery+1)} {
		if found := NewIndex([]Guide{g}).Search(query); len(found) != 0 {
			t.Errorf("%.20q: %+v", query, found)
		}
	}
}
