package server_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var (
	docsTags    = regexp.MustCompile(`<[a-z][^>]*\s(?:style|on[a-z]+)\s*=`)
	docsScripts = regexp.MustCompile(`<script([^>]*)>([^<]*)`)
	docsIDs     = regexp.MustCompile(`<[a-z][^>]*\sid="([^"]*)"`)
	docsLinks   = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	mdFences    = regexp.MustCompile("(?ms)^````.*?^````$|^```.*?^```$")
	mdLinks     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// TestDocumentation: every page of the documentation that links lead to has the policy and the look of the application, nothing in the
// page itself runs or styles it, and every link of a page, or of its Markdown, leads to a page of the service and to an anchor there.
func TestDocumentation(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	v := newVisitor(t, o.address)
	pages := map[string]shown{}
	type link struct{ from, to string }
	var links []link
	for next := []string{"/docs", "/llms.txt", "/docs/search?q=plan"}; len(next) > 0; next = next[1:] {
		path := next[0]
		if _, seen := pages[path]; seen {
			continue
		}
		res := v.get(path)
		pages[path] = res
		if res.status != http.StatusOK {
			t.Errorf("%s: %d", path, res.status)
			continue
		}
		var found [][]string
		switch media := res.header.Get("Content-Type"); {
		case !strings.HasPrefix(path, "/docs") && path != "/llms.txt":
			continue // not a document
		case strings.HasPrefix(media, "text/html"):
			checkDocument(t, path, res)
			found = docsLinks.FindAllStringSubmatch(res.body, -1)
		default:
			found = mdLinks.FindAllStringSubmatch(mdFences.ReplaceAllString(res.body, ""), -1)
		}
		for _, m := range found {
			to := strings.ReplaceAll(m[1], "&amp;", "&")
			switch {
			case strings.Contains(to, "://"), strings.HasPrefix(to, "mailto:"):
				continue
			case strings.HasPrefix(to, "#"):
				to = path + to
			}
			links = append(links, link{path, to})
			page, _, _ := strings.Cut(to, "#")
			next = append(next, page)
		}
	}
	for _, l := range links {
		page, anchor, has := strings.Cut(l.to, "#")
		if !strings.HasPrefix(page, "/") {
			t.Errorf("%s: the link %s is relative", l.from, l.to)
		}
		at := strings.TrimSuffix(page, ".md")
		if has && !strings.Contains(pages[page].body, `id="`+anchor+`"`) && !(at != page && strings.Contains(pages[at].body, `id="`+anchor+`"`)) {
			t.Errorf("%s: the link %s leads to no anchor", l.from, l.to)
		}
	}
	for _, path := range []string{"/docs/api/registerPlan", "/docs/api/registerPlan.md", "/docs/changelog", "/docs/prompt.md", "/docs/records", "/docs/errors.md"} {
		if _, seen := pages[path]; !seen {
			t.Errorf("no link leads to %s", path)
		}
	}
	if len(pages) < 300 {
		t.Errorf("only %d pages", len(pages))
	}
	dark := v.visit(http.MethodGet, "/docs/paying", "", []string{"Cookie", "theme=dark"})
	if !strings.Contains(dark.body, `<html lang="en" data-theme="dark">`) || !strings.Contains(strings.Join(dark.header.Values("Vary"), ","), "Cookie") {
		t.Errorf("a dark page: %v\n%.300s", dark.header, dark.body)
	}
	if res := v.get("/docs/api/none"); res.status != http.StatusNotFound {
		t.Errorf("an unknown operation: %d", res.status)
	} else {
		checkDocument(t, "/docs/api/none", res)
	}
}

// checkDocument checks the policy of a page, and that nothing in it violates the policy.
func checkDocument(t *testing.T, path string, res shown) {
	t.Helper()
	policy := res.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'self';") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "script-src 'self';") {
		t.Errorf("%s: policy %s", path, policy)
	}
	for _, m := range docsScripts.FindAllStringSubmatch(res.body, -1) {
		if !strings.Contains(m[1], `src="/assets/`) || m[2] != "" {
			t.Errorf("%s has a script: %s", path, m[0])
		}
	}
	if found := docsTags.FindString(res.body); found != "" || strings.Contains(res.body, "<style") {
		t.Errorf("%s has a style or a script in a tag: %s", path, found)
	}
	if !strings.Contains(res.body, `<link rel="stylesheet" href="/assets/style.`) || !strings.Contains(res.body, `class="logo"`) || !strings.Contains(res.body, `id="jump"`) {
		t.Errorf("%s does not have the look of the application", path)
	}
	seen := map[string]bool{}
	for _, m := range docsIDs.FindAllStringSubmatch(res.body, -1) {
		if seen[m[1]] {
			t.Errorf("%s has the id %s twice", path, m[1])
		}
		seen[m[1]] = true
	}
}
