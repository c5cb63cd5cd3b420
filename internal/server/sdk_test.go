package server_test

import (
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/sdk"
)

// TestSDK: the service lists the SDKs for people and for programs, serves their packages, and shows on the page of an agent how to install
// the SDKs for languages. Nothing else is below their address.
func TestSDK(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	s := o.openShop("Ask", "https://agent.example.com/ask")
	b := browser{t, o.address}
	source := sdk.Source{URL: o.s.PublicURL()}
	var listing sdk.Listing
	must.Do(t, json.Unmarshal([]byte(b.send(http.MethodGet, "/sdk", "", "Accept", "application/json").body), &listing))
	page, agent := b.send(http.MethodGet, "/sdk", "", "Accept", navigation), b.send(http.MethodGet, s.agentPage(), "")
	if page.header.Get("Content-Security-Policy") != policyOfPublicPages || page.header.Get("Vary") != "Accept" {
		t.Errorf("headers of the page: %v", page.header)
	}
	labelled(t, page.body)
	for _, l := range sdk.SDKs {
		commands := source.Install(l.Key)
		if listing.Current[l.Key].Install != commands || !strings.Contains(html.UnescapeString(page.body), commands) {
			t.Errorf("%s is not installed by %q: %+v\n%s", l.Name, commands, listing, mainPart.FindString(page.body))
		}
		for line := range strings.SplitSeq(commands, "\n") {
			if l.Key != "x402" && !strings.Contains(html.UnescapeString(agent.body), " "+line+"\n") {
				t.Errorf("the page of the agent lacks %q", line)
			}
		}
	}
	if len(listing.Packages) < 3 {
		t.Errorf("packages: %+v", listing.Packages)
	}
	for _, p := range listing.Packages {
		at := must.Get(url.Parse(p.URL))(t).Path
		res := b.send(http.MethodGet, at, "")
		if res.status != http.StatusOK || len(res.body) != p.Size || res.header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
			res.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s: %d, %d bytes, %v", at, res.status, len(res.body), res.header)
		}
		if res := b.send(http.MethodHead, at, ""); res.status != http.StatusOK || res.body != "" {
			t.Errorf("HEAD %s: %d", at, res.status)
		}
		if res := b.send(http.MethodPost, at, ""); res.status != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", at, res.status)
		}
	}
	for _, at := range []string{
		"/sdk/toll-1.1.0-00000000.tgz", "/sdk/00000000/toll-1.1.0-py3-none-any.whl", "/sdk/index.json", "/sdk/packages", "/sdk/packages/index.json",
		"/sdk/..%2Fsdk.go", "/sdk/../sdk/build.py",
	} {
		res := b.send(http.MethodGet, at, "")
		var e toll.Error
		must.Do(t, json.Unmarshal([]byte(res.body), &e))
		if res.status != http.StatusNotFound || e.Code != toll.CodePathNotFound || !strings.Contains(e.Hint, "GET /sdk ") {
			t.Errorf("GET %s: %d %s", at, res.status, res.body)
		}
		if res := b.send(http.MethodGet, at, "", "Accept", navigation); res.status != http.StatusNotFound || !strings.Contains(res.body, "<h1>") {
			t.Errorf("%s in a browser: %d %s", at, res.status, res.body)
		}
	}
}

// TestSDK_Published: pages name a registry only if the operator has published the SDKs there.
func TestSDK_Published(t *testing.T) {
	o := newTown(t, "sqlite", func(c *server.Config) {
		c.Published, c.GoRepository = "npm,pypi", "git.example.com/acme/toll"
	})
	text := browser{t, o.address}.send(http.MethodGet, "/sdk", "").body
	for _, want := range []string{"    npm install @tollhq/toll@", "    pip install toll==", "=git.example.com/acme/toll@latest\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for want, cfg := range map[string]server.Config{
		`got "cargo"`:           {Data: t.TempDir(), Published: "cargo"},
		"must be a module path": {Data: t.TempDir(), GoRepository: "https://git.example.com/acme/toll"},
	} {
		if _, err := server.New(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
