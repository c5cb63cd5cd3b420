package api_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tollhq/toll/internal/api"
	"github.com/tollhq/toll/internal/auth"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/x402"
)

const pathEndpoints = `[{"POST":"https://agent.example.com/ask"},{"GET":"https://agent.example.com/items/:id"},{"POST":"mcp://demo/tools/ask"}]`

// recordDiscovery are the catalogue, the keys of statements, and offers.
func recordDiscovery(t *testing.T, version string, files map[string][]exchange) {
	s := newStack(t)
	r := &recorder{s: s, names: map[string]*names{}, files: files}
	call := func(op string, who actor, method, path, body string) answer {
		t.Helper()
		return r.call(version, op, who, method, path, body)
	}
	plan := s.plan(s.b1, `{"name":"Starter","priceConfig":{"priceType":"FREE"},"creditsConfig":{"amount":"100","minAmount":"1","maxAmount":"5"}}`)
	agent := s.do(s.b1, "POST", base+"/protocol/agents", `{"name":"Ask","description":"Ask the agent","endpoints":`+pathEndpoints+`,"plans":["`+plan+`"]}`).text(t, "agentId")
	call("readDID", actor{}, "GET", "/.well-known/did.json", "")
	call("listResources", actor{}, "GET", base+"/x402/discovery/resources", "")
	call("listResources", actor{}, "GET", base+"/x402/discovery/resources?type=http&limit=1&offset=1&network=eip155:84532&scheme=svc:erc4337&extensions=bazaar&payTo="+s.b1.address.Lower(), "")
	call("listResources", actor{}, "GET", base+"/x402/discovery/resources?limit=101", "")
	call("listResources", actor{}, "GET", base+"/x402/discovery/resources?offset=-1", "")
	found := call("searchResources", actor{}, "GET", base+"/x402/discovery/search?query=ask&limit=2", "")
	call("searchResources", actor{}, "GET", base+"/x402/discovery/search?query=nothing", "")
	call("searchResources", actor{}, "GET", base+"/x402/discovery/search?cursor=x", "")
	call("searchResources", actor{}, "GET", base+"/x402/discovery/search?query=a+b+c+d+e+f+g+h+i+j+k+l+m+n+o+p+q", "")
	if a := s.do(actor{}, "GET", base+"/x402/discovery/search?query=ask&limit=2&cursor="+found.text(t, "pagination.cursor"), ""); !strings.Contains(string(a.body), `"pagination":{"limit":1,"cursor":null}`) {
		t.Errorf("%s", a.body)
	}
	offers := func(planID string) string {
		return `{"paymentRequired":{"x402Version":2,"resource":{"url":"https://agent.example.com/ask"},"accepts":[{"scheme":"svc:erc4337","network":"eip155:84532","amount":"5","asset":"svc:credits","payTo":"` +
			s.b1.address.String() + `","maxTimeoutSeconds":60,"planId":"` + planID + `","extra":{"version":"1","agentId":"` + agent + `"}}],"extensions":{}}}`
	}
	call("signOffers", s.b1, "POST", base+"/x402/offers", offers(plan))
	call("signOffers", s.b2, "POST", base+"/x402/offers", offers(plan))
	call("signOffers", s.b1, "POST", base+"/x402/offers", offers("11111"))
	call("signOffers", s.b1, "POST", base+"/x402/offers", `{}`)
}

// The document of keys names the service as callers know it, and its keys stand in the JWKS as well, beside others.
func TestKeysOfStatements(t *testing.T) {
	s := newStack(t)
	a := s.do(actor{}, "GET", "/.well-known/did.json", "")
	if a.status != 200 || a.header.Get("Cache-Control") != "public, max-age=3600" || a.header.Get("Content-Type") != "application/json" || a.text(t, "id") != "did:web:pay.example.com" {
		t.Fatalf("%d %v %s", a.status, a.header, a.body)
	}
	var doc auth.DIDDocument
	must.Do(t, json.Unmarshal(a.body, &doc))
	var keys api.JWKS
	must.Do(t, json.Unmarshal(s.do(actor{}, "GET", "/.well-known/jwks.json", "").body, &keys))
	published := map[string]string{}
	for _, k := range keys.Keys {
		published[k.KeyID] = k.X
	}
	if len(doc.VerificationMethods) != 2 || len(keys.Keys) != 4 {
		t.Errorf("%d and %d keys", len(doc.VerificationMethods), len(keys.Keys))
	}
	for _, m := range doc.VerificationMethods {
		if !strings.HasPrefix(m.ID, doc.ID+"#") || published[m.ID] != m.PublicKey.X || m.PublicKey.X == "" {
			t.Errorf("%+v is not in the JWKS", m)
		}
		if _, ok := published[strings.TrimPrefix(m.ID, doc.ID+"#")]; ok {
			t.Errorf("%s signs credentials, too", m.ID)
		}
	}
}

// Standard software is configured with one address. Whatever slashes it puts around it, it is answered, and never sent elsewhere.
func TestStockPaths(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	token, _ := s.token(s.s1, plan)
	body := stockBody(plan, quoted(token), "5")
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/x402/verify", body}, {"POST", "/x402/settle", body}, {"POST", "/x402/release", body}, {"GET", "/x402/supported", ""},
		{"GET", "/x402/discovery/resources", ""}, {"GET", "/x402/discovery/search", ""},
	} {
		for _, path := range []string{"/" + base + c.path, base + c.path + "/", "/" + base + c.path + "//", base + "/" + c.path} {
			req := must.Get(http.NewRequest(c.method, s.url+path, strings.NewReader(c.body)))(t)
			req.URL.Opaque = "//" + strings.TrimPrefix(s.url, "http://") + path // as it is, not as the client would clean it
			req.Header.Set("Authorization", "Bearer "+s.b1.key)
			req.Header.Set("Content-Type", "application/json")
			if a := s.send(req); a.status != 200 && !(c.path == "/x402/release" && a.status == 409) {
				t.Errorf("%s %s: %d %s", c.method, path, a.status, a.body)
			}
		}
	}
}

// What became of a description of a resource is told the server that verified, in a header, and not in the verdict.
func TestExtensionResponses(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, freePlan)
	agent := s.do(s.b1, "POST", base+"/protocol/agents", `{"name":"Ask","endpoints":`+pathEndpoints+`,"plans":["`+plan+`"]}`).text(t, "agentId")
	token, _ := s.token(s.s1, plan)
	body := func(nonce, url string) string {
		payload := `{"x402Version":2,"resource":{"url":"` + url + `","mimeType":"application/json"},"payload":{"signature":"` + token + `","nonce":"` + nonce + `"},"extensions":{"bazaar":{` +
			`"info":{"input":{"type":"http","method":"POST","bodyType":"json","body":{"prompt":"hi"}},"output":{"type":"json"}},"schema":{"type":"object","required":["input"]}}}}`
		return strings.Replace(stockBody(plan, payload, "5"), `"version":"1"`, `"version":"1","agentId":"`+agent+`","httpVerb":"POST"`, 1)
	}
	a := s.do(s.b1, "POST", base+"/x402/verify", body("a", "https://agent.example.com/ask"))
	const success = "eyJiYXphYXIiOnsic3RhdHVzIjoic3VjY2VzcyJ9fQ=="
	if a.status != 200 || a.header.Get("EXTENSION-RESPONSES") != success || strings.Contains(string(a.body), "bazaar") {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
	if items := s.do(actor{}, "GET", base+"/x402/discovery/resources", ""); !strings.Contains(string(items.body),
		`"mimeType":"application/json","metadata":{"agentId":"`+agent+`"},"extensions":{"bazaar":{"info":{"input":{"type":"http","method":"POST","bodyType":"json","body":{"prompt":"hi"}},"output":{"type":"json"}}}}`) {
		t.Errorf("%s", items.body)
	}
	a = s.do(s.b1, "POST", base+"/x402/verify", body("b", "https://agent.example.com/other"))
	if b, err := base64.StdEncoding.DecodeString(a.header.Get("EXTENSION-RESPONSES")); a.status != 200 || err != nil || !strings.HasPrefix(string(b), `{"bazaar":{"status":"rejected","rejectedReason":`) {
		t.Errorf("%d %s %s", a.status, b, a.body)
	}
	if items := s.do(actor{}, "GET", base+"/x402/discovery/resources", ""); strings.Contains(string(items.body), "other") {
		t.Errorf("%s", items.body)
	}
	if a := s.do(s.b1, "POST", base+"/x402/verify", stockBody(plan, quoted(token), "5")); a.header.Get("EXTENSION-RESPONSES") != "" {
		t.Errorf("%v", a.header)
	}
}

// TestPaymentIdentifier, as a standard server meets it: new, repeated, other content, required but absent.
// T36
func TestPaymentIdentifier(t *testing.T) {
	s := newStack(t)
	plan := s.plan(s.b1, `{"name":"Dynamic","priceConfig":{"priceType":"FREE"},"creditsConfig":{"amount":"100","minAmount":"1","maxAmount":"10"}}`)
	token, _ := s.token(s.s1, plan)
	body := func(nonce, amount, info string) string {
		return stockBody(plan, `{"x402Version":2,"payload":{"signature":"`+token+`","nonce":"`+nonce+`"},"extensions":{"payment-identifier":{"info":`+info+`}}}`, amount)
	}
	const id = `{"required":true,"id":"pay_0123456789abcdef"}`
	verdict := func(nonce, amount, info string) string {
		a := s.do(s.b1, "POST", base+"/x402/verify", body(nonce, amount, info))
		if a.status != 200 {
			t.Errorf("%d %s", a.status, a.body)
		}
		return a.text(t, "invalidReason")
	}
	if got := verdict("a", "5", id); got != "" {
		t.Fatal(got)
	}
	first := s.do(s.b1, "POST", base+"/x402/settle", body("a", "5", id))
	again := s.do(s.b1, "POST", base+"/x402/settle", body("b", "5", id))
	if first.status != 200 || string(first.body) != string(again.body) || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	if got := verdict("c", "5", id); got != x402.ReasonDuplicate {
		t.Errorf("repeated: %s", got)
	}
	if a := s.do(s.b1, "POST", base+"/x402/settle", body("d", "4", id)); a.status != 200 || a.text(t, "errorReason") != x402.ReasonIdentifierConflict {
		t.Errorf("other content: %d %s", a.status, a.body)
	}
	if got := verdict("e", "4", id); got != x402.ReasonIdentifierConflict {
		t.Errorf("other content: %s", got)
	}
	if got := verdict("f", "5", `{"required":true}`); got != x402.ReasonInvalidPayload {
		t.Errorf("required, but absent: %s", got)
	}
	if got := verdict("g", "5", `{"required":false}`); got != "" {
		t.Errorf("neither: %s", got)
	}
}

// offersBody asks for an offer of a plan that is bought on a chain.
func offersBody(planID string) string {
	return `{"paymentRequired":{"x402Version":2,"resource":{"url":"https://agent.example.com/ask"},"accepts":[{"scheme":"svc:erc4337","network":"eip155:84532","amount":"5","asset":"svc:credits","planId":"` +
		planID + `","extra":{"version":"1"}}],"extensions":{}}}`
}
