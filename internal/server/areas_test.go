package server_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
)

// areas are the pages of a workspace without a record in their path, by path below it, each with its heading.
var areas = map[string]string{
	"": "Overview", "/agents": "Agents", "/plans": "Plans", "/subscribers": "Subscribers", "/usage": "Usage", "/revenue": "Revenue",
	"/requests": "Requests", "/webhooks": "Webhooks", "/events": "Events", "/orders": "Orders", "/holdings": "My plans", "/members": "Members",
	"/keys": "API keys", "/tokens": "Access tokens", "/delegations": "Delegations", "/cards": "Cards", "/wallet": "Wallet",
	"/programs": "Programs", "/settings": "Workspace", "/search": "Search",
	"/components": "Components",
}

const policyOfWorkspaces = "default-src 'none'; style-src 'self'; font-src 'self'; img-src 'self' data:; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'self'; script-src 'self'; connect-src 'self'; frame-ancestors 'none'"

// TestT154_PagesOfWorkspaces: each page opens for each role of its workspace, and does not exist for people outside. The
// right is checked on every request: who is removed sees nothing from then on.
func TestT154_PagesOfWorkspaces(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		owner := o.signUp("owner", "")
		w := owner.workspace()
		members := map[string]*visitor{"owner": owner}
		for _, role := range []string{"admin", "developer", "billing", "viewer"} {
			members[role] = o.signUp(role, owner.invite(w, role))
		}
		outside, nobody := o.signUp("outside", ""), newVisitor(t, o.address)
		for path, heading := range areas {
			path = "/w/" + w + path
			for role, v := range members {
				res := v.get(path)
				if res.status != http.StatusOK || !strings.Contains(res.body, "<h1>"+heading+"</h1>") {
					t.Errorf("%s as %s: %d\n%s", path, role, res.status, mainPart.FindString(res.body))
				}
				if p := res.header.Get("Content-Security-Policy"); p != policyOfWorkspaces {
					t.Errorf("%s as %s: policy %s", path, role, p)
				}
				if m := regexp.MustCompile(`(?i)<style| style=| on[a-z]+=|hx-on|javascript:|<script[^>]*>[^<]`).FindString(res.body); m != "" {
					t.Errorf("%s has %q in it", path, m)
				}
			}
			if res := members["viewer"].get(path[:len("/w/0x1234")] + path[len("/w/")+42:]); res.status != http.StatusOK {
				t.Errorf("%s by the beginning of its address: %d", path, res.status)
			}
			if res := outside.get(path); res.status != http.StatusNotFound || strings.Contains(res.body, heading+"</h1>") {
				t.Errorf("%s for a person outside: %d", path, res.status)
			}
			if res := nobody.get(path); !strings.Contains(res.body, `action="/sign-in"`) || strings.Contains(res.body, "<nav") {
				t.Errorf("%s for nobody: %d", path, res.status)
			}
			if res := outside.post(path, url.Values{"ticket": {"x"}}); res.status != http.StatusNotFound && res.status != http.StatusMethodNotAllowed {
				t.Errorf("a form to %s of a person outside: %d", path, res.status)
			}
		}
		viewer := userOf(members["viewer"], "/w/"+w+"/members")
		owner.act("/w/"+w+"/members", "act", "remove", "user", viewer)
		for path := range areas {
			if res := members["viewer"].get("/w/" + w + path); res.status != http.StatusNotFound {
				t.Errorf("%s after the person was removed: %d", path, res.status)
			}
		}
	})
}

// TestPagesOfRecords: pages show the records of their workspace, with names that strangers chose as text, and no others.
func TestPagesOfRecords(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		alice, bob := o.signUp("alice", ""), o.signUp("bob", "")
		w, other := "/w/"+alice.workspace(), "/w/"+bob.workspace()
		const evil = `<script>alert(1)</script>"><img src=x>`
		api := client.New(alice.keyOf(strings.TrimPrefix(w, "/w/")), client.WithURL(o.address), client.WithRetries(0))
		r, err := api.RegisterAgentWithPlan(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: evil}}, client.PlanParams{
			Metadata: toll.Metadata{Name: evil}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(1234, 1),
		})
		if err != nil {
			t.Fatal(err)
		}
		buyer := client.New(bob.keyOf(strings.TrimPrefix(other, "/w/")), client.WithURL(o.address), client.WithRetries(0))
		order, err := buyer.OrderPlan(t.Context(), r.PlanID)
		if err != nil {
			t.Fatal(err)
		}
		agent, plan := string(r.AgentID), string(r.PlanID)
		if body := bob.get(other + "/holdings").body; !strings.Contains(body, plan) || !strings.Contains(body, "1,234") {
			t.Errorf("the buyer sees:\n%s", mainPart.FindString(body))
		}
		for path, want := range map[string]string{
			"": order.OrderID, "/agents": agent, "/agents/" + agent: agent, "/plans": plan, "/plans/" + plan: strings.TrimPrefix(other, "/w/"),
			"/orders": order.OrderID, "/orders/" + order.OrderID: plan,
		} {
			res := alice.get(w + path)
			if res.status != http.StatusOK || !strings.Contains(res.body, want) {
				t.Errorf("%s: %d\n%s", path, res.status, mainPart.FindString(res.body))
			}
			if strings.Contains(res.body, "<script>") || strings.Contains(res.body, "<img") {
				t.Errorf("%s has markup of a stranger", path)
			}
		}
		for _, path := range []string{
			other + "/agents/" + agent, other + "/plans/" + plan, other + "/orders/x", other + "/agents/x", other + "/plans/1",
			other + "/orders/00000000-0000-4000-8000-000000000000", other + "/agents/" + url.PathEscape(evil), other + "/plans?cursor=x",
		} {
			if res := bob.get(path); res.status != http.StatusNotFound || strings.Contains(res.body, "alert(1)") {
				t.Errorf("%s: %d\n%s", path, res.status, mainPart.FindString(res.body))
			}
		}
	})
}

// TestAssets: files have names with their hash, stay in browsers, and come compressed. A first page takes at most 120 KB.
func TestAssets(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	v := o.signUp("alice", "")
	res := v.get("/w/" + v.workspace())
	seen := map[string]bool{}
	sum := len(res.body) // without compression: more than what goes over the wire
	for _, m := range regexp.MustCompile(`/assets/([a-z0-9-]+\.[0-9a-f]{12}\.[a-z0-9]+)`).FindAllStringSubmatch(res.body, -1) {
		if seen[m[0]] {
			continue
		}
		seen[m[0]] = true
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.address+m[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", "gzip")
		got, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != http.StatusOK || got.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" || got.ContentLength <= 0 {
			t.Errorf("%s: %d %v", m[0], got.StatusCode, got.Header)
		}
		sum += int(got.ContentLength)
	}
	if len(seen) < 4 || sum > 120<<10 {
		t.Errorf("a first page takes %d bytes, in %v", sum, seen)
	}
	for _, path := range []string{"/assets/style.css", "/assets/style.000000000000.css", "/assets/..%2fweb.go"} {
		if res := v.get(path); res.status != http.StatusNotFound {
			t.Errorf("%s: %d", path, res.status)
		}
	}
	t.Logf("a first page takes %d bytes", sum)
}
