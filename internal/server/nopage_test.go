package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/server"
)

const navigation = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// TestNoPage: a person who opens an address that has no page reads so in the look of the application, with the headers of every page.
// Programs get the same JSON as ever.
func TestNoPage(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	alice, nobody := o.signUp("alice", ""), newVisitor(t, o.address)
	for _, tc := range []struct {
		path   string
		status int
		says   string
	}{
		{"/nothing-here", 404, "Page not found"}, {"/p", 404, "Page not found"}, {"/w/" + alice.workspace() + "/nothing", 404, "Page not found"},
		{"/%3Cscript%3Ealert(1)%3C/script%3E", 404, "Page not found"}, {"/oauth/nothing", 404, "Page not found"},
		{"/sign-out", 405, "only accepts form submissions"}, {"/theme?next=%22%3E%3Cscript%3E", 405, "only accepts form submissions"},
	} {
		for who, v := range map[string]*visitor{"nobody": nobody, "alice": alice} {
			if who == "nobody" && strings.HasPrefix(tc.path, "/w/") {
				continue // below
			}
			res := v.visit(http.MethodGet, tc.path, "", []string{"Accept", navigation, "X-Correlation-Id", "of-this-visit"})
			h := res.header
			if res.status != tc.status || h.Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(res.body, tc.says) ||
				!strings.Contains(res.body, "of-this-visit") || !strings.Contains(res.body, `rel="stylesheet"`) {
				t.Errorf("%s for %s: %d %v\n%s", tc.path, who, res.status, h, res.body)
			}
			policy := h.Get("Content-Security-Policy")
			if !strings.HasPrefix(policy, "default-src 'none'; style-src 'self'") || !strings.HasSuffix(policy, "frame-ancestors 'none'") || strings.Contains(policy, "script-src") ||
				h.Get("X-Frame-Options") != "DENY" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" ||
				h.Get("Access-Control-Allow-Origin") != "" || !strings.Contains(strings.Join(h.Values("Vary"), ","), "Accept") {
				t.Errorf("%s for %s has the headers %v", tc.path, who, h)
			}
			if strings.Contains(res.body, "alert(1)") || strings.Contains(res.body, "<script") {
				t.Errorf("%s for %s has a script:\n%s", tc.path, who, res.body)
			}
			if signedIn := strings.Contains(res.body, "Signed in as"); signedIn != (who == "alice") {
				t.Errorf("%s for %s: %s", tc.path, who, res.body)
			}
			if tc.status == http.StatusMethodNotAllowed && !strings.Contains(h.Get("Allow"), "POST") {
				t.Errorf("%s allows %q", tc.path, h.Get("Allow"))
			}
		}
	}
	// What is not there in a workspace is the same for everybody.
	bob := o.signUp("bob", "")
	for _, v := range []*visitor{bob, nobody} {
		if res := v.visit(http.MethodGet, "/w/"+alice.workspace()+"/nothing", "", []string{"Accept", navigation}); res.status != http.StatusNotFound {
			t.Errorf("a page of a workspace of others: %d", res.status)
		}
	}
	if res := alice.visit(http.MethodHead, "/nothing-here", "", []string{"Accept", navigation}); res.status != http.StatusNotFound || res.body != "" {
		t.Errorf("HEAD: %d %q", res.status, res.body)
	}

	for what, call := range map[string][]string{
		"a program":               {http.MethodGet, "/nothing-here"},
		"a program that asks":     {http.MethodGet, "/nothing-here", "Accept", "application/json, text/html"},
		"a call of the API":       {http.MethodGet, "/api/v1/nothing", "Accept", navigation},
		"a document for programs": {http.MethodGet, "/.well-known/nothing", "Accept", navigation},
		"a key":                   {http.MethodGet, "/nothing-here", "Accept", navigation, "Authorization", "Bearer x"},
		"a form":                  {http.MethodPost, "/nothing-here", "Accept", navigation},
	} {
		res := browser{t, o.address}.send(call[0], call[1], "", call[2:]...)
		if res.status != http.StatusNotFound || res.header.Get("Content-Type") != "application/json" || !strings.Contains(res.body, string(toll.CodePathNotFound)) {
			t.Errorf("%s: %d %s %s", what, res.status, res.header.Get("Content-Type"), res.body)
		}
	}
}

// TestNoPage_ClosedReads: where strangers see no public pages, none is offered.
func TestNoPage_ClosedReads(t *testing.T) {
	o := newTown(t, "sqlite", func(c *server.Config) { c.CloseReads = true })
	res := newVisitor(t, o.address).visit(http.MethodGet, "/nothing-here", "", []string{"Accept", navigation})
	if res.status != http.StatusNotFound || strings.Contains(res.body, `href="/explore"`) {
		t.Errorf("%d %s", res.status, res.body)
	}
}
