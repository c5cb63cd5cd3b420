package interop

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server/servertest"
)

// T150 in a browser: texts of strangers run nothing on the pages that show them. A script, a dialog, a request that leaves the
// machine, and a report of the content policy fail the test.
// T150
func TestStoredScriptInABrowser(t *testing.T) {
	inBrowser(t, func(b *browser) {
		s := run(b.T, servertest.Options{})
		seller := s.client(s.builder)
		b.begin(true)
		b.visit(s.url+"/sign-in", http.StatusOK)
		b.signIn(s.builder.Key)
		at := s.url + "/w/" + s.builder.Address.String()
		for i, text := range []string{
			`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`, `" autofocus onfocus=alert(1) x="`,
			`</title></textarea></style><script>alert(1)</script>`, `<iframe src="javascript:alert(1)">`, `<style>@import "https://evil.example/x"</style>`,
			`<base href="https://evil.example/"><script src=x></script>`, `<link rel=stylesheet href="https://evil.example/x.css">`,
			`<meta http-equiv=refresh content="0;url=https://evil.example">`, `<details open ontoggle=alert(1)>`, `javascript:alert(1)`,
		} {
			r, err := seller.RegisterAgentWithPlan(b.Context(), client.AgentParams{Metadata: toll.Metadata{Name: text, Description: text}}, client.PlanParams{
				Metadata: toll.Metadata{Name: text, Description: text}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(10, 1),
			})
			must.Do(b, err)
			must.Get(seller.OrderPlan(b.Context(), r.PlanID))(b)
			for _, path := range []string{"/agents/" + string(r.AgentID), "/plans/" + string(r.PlanID)} {
				b.visit(at+path, http.StatusOK)
				b.read("Id")
			}
			if i > 0 {
				continue
			}
			b.look("stored script")
		}
		for _, path := range []string{"", "/agents", "/plans", "/orders", "/holdings"} {
			b.visit(at+path, http.StatusOK)
		}
		b.read("My plans")
	})
}

// refusedFrame reports whether a browser says that it shows no page in a frame, as the page forbids it.
func refusedFrame(fault string) bool { return strings.Contains(fault, "frame-ancestors") }

// T155 in a browser: a page of another site shows no page of the service in a frame.
// T155
func TestFramingInABrowser(t *testing.T) {
	inBrowser(t, func(b *browser) {
		s := run(b.T, servertest.Options{})
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Evil</title><h1>Evil</h1><iframe title="x" src="%s/sign-in" onload="document.querySelector('h1').textContent = 'The frame has loaded'"></iframe>`, s.url)
		}))
		b.Cleanup(site.Close)
		b.must("open", map[string]any{"program": b.program, "scripts": true, "person": ""}, nil) // the refusal is a fault
		b.visit(site.URL, http.StatusOK)
		b.read("The frame has loaded") // with the page of an error
		var frames, faults []string
		b.must("frames", nil, &frames)
		b.must("faults", nil, &faults)
		if len(frames) != 2 || strings.Contains(frames[1], "Sign in") || !slices.ContainsFunc(faults, refusedFrame) {
			b.Errorf("the page and its frame show %q, and the browser says %q", frames, faults)
		}
	})
}
