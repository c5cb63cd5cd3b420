package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

const policyOfPublicPages = "default-src 'none'; style-src 'self'; font-src 'self'; img-src 'self' data:; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'self'; script-src 'self'; frame-ancestors 'none'"

// shop is a town with a person who sells, and what they sell.
type shop struct {
	*town
	seller *visitor
	api    *client.Client // of the seller
	agent  toll.AgentID
	plan   toll.PlanID
}

// openShop sells a free plan of 100 credits, 2 for a request, for an agent at an address.
func (o *town) openShop(name, at string) *shop {
	o.t.Helper()
	s := &shop{town: o, seller: o.signUp("seller", "")}
	s.api = o.client(s.seller)
	r := must.Get(s.api.RegisterAgentWithPlan(o.t.Context(),
		client.AgentParams{
			Metadata: toll.Metadata{Name: name, Description: "What " + name + " does.", Tags: []string{"text", "<b>"}},
			API:      toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "POST", URL: at}, {Verb: "GET", URL: at}}},
		},
		client.PlanParams{Metadata: toll.Metadata{Name: "Plan of " + name}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(100, 2)}))(o.t)
	s.agent, s.plan = r.AgentID, r.PlanID
	return s
}

// client calls the API for the workspace of a person.
func (o *town) client(v *visitor) *client.Client {
	return client.New(v.keyOf(v.workspace()), client.WithURL(o.address), client.WithRetries(0))
}

func (s *shop) planPage() string  { return "/p/" + string(s.plan) }
func (s *shop) agentPage() string { return "/a/" + string(s.agent) }

// TestPublicPages: everybody may read the catalogue, an agent and a plan. What strangers chose is
// text there.
// T150
func TestPublicPages(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		const evil = `<script>alert(1)</script>"><img src=x>`
		s := o.openShop(evil, "https://agent.example.com/ask")
		nobody := newVisitor(t, o.address)
		for path, want := range map[string]string{
			"/explore": string(s.agent), "/explore?q=AGENT.example": string(s.agent), "/explore?q=zebra": "No results", "/receipts": "Paste a receipt",
			s.agentPage(): string(s.plan), s.planPage(): "Sign up to buy", s.planPage() + "?agent=" + string(s.agent): "50 requests",
		} {
			res := nobody.get(path)
			if res.status != http.StatusOK || !strings.Contains(res.body, want) {
				t.Errorf("%s: %d, not %q\n%s", path, res.status, want, mainPart.FindString(res.body))
			}
			if p := res.header.Get("Content-Security-Policy"); p != policyOfPublicPages {
				t.Errorf("%s: policy %s", path, p)
			}
			if m := regexp.MustCompile(`(?i)<style| style=| on[a-z]+=|<img|<script[^>]*>[^<]`).FindString(res.body); m != "" {
				t.Errorf("%s has %q in it", path, m)
			}
			labelled(t, res.body)
		}
		for path, want := range map[string]int{
			"/a/1": 404, "/p/1": 404, "/a/x": 404, "/p/" + url.PathEscape(evil): 404, "/explore?cursor=x": 400,
			"/explore?q=" + strings.Repeat("x", 257): 400, "/explore?q=" + strings.Repeat("x+", 17): 400,
		} {
			if res := nobody.get(path); res.status != want || strings.Contains(res.body, "<img") {
				t.Errorf("%s: %d, want %d", path, res.status, want)
			}
		}
	})
}

// TestExplore_Parts: the parts of the catalogue hold each agent once, last updated first.
func TestExplore_Parts(t *testing.T) {
	o := newTown(t, "sqlite", nil)
	s := o.openShop("agent 00", "https://agent.example.com/ask")
	for n := range 13 {
		must.Get(s.api.RegisterAgent(t.Context(), client.AgentParams{
			Metadata: toll.Metadata{Name: fmt.Sprintf("agent %02d", n+1)}, Plans: []toll.PlanID{s.plan},
			API: toll.AgentAPI{Endpoints: toll.EndpointList{{Verb: "GET", URL: fmt.Sprintf("https://agent.example.com/%d", n)}}},
		}))(t)
	}
	nobody := newVisitor(t, o.address)
	var names []string
	next := regexp.MustCompile(`href="([^"]+)" rel="next"`)
	for path := "/explore?q=agent"; path != ""; {
		res := nobody.get(path)
		for _, m := range regexp.MustCompile(`<bdi>(agent \d\d)</bdi>`).FindAllStringSubmatch(res.body, -1) {
			names = append(names, m[1])
		}
		path = ""
		if m := next.FindStringSubmatch(res.body); m != nil {
			path = strings.ReplaceAll(m[1], "&amp;", "&")
		}
	}
	if len(names) != 14 || names[0] != "agent 13" || names[13] != "agent 00" {
		t.Errorf("the parts have %d agents: %v", len(names), names)
	}
}

// TestPublicPages_Closed: where reads are closed, strangers find no public page.
func TestPublicPages_Closed(t *testing.T) {
	o := newTown(t, "sqlite", func(c *server.Config) { c.CloseReads = true })
	s := o.openShop("Ask", "https://agent.example.com/ask")
	nobody := newVisitor(t, o.address)
	for _, path := range []string{"/explore", s.agentPage(), s.planPage(), "/receipts"} {
		if res := nobody.get(path); res.status != http.StatusNotFound || strings.Contains(res.body, "Ask") {
			t.Errorf("%s for a stranger: %d", path, res.status)
		}
		if res := s.seller.get(path); res.status != http.StatusOK {
			t.Errorf("%s for a person: %d", path, res.status)
		}
	}
	if res := nobody.post("/receipts", url.Values{"receipt": {"x"}}); res.status != http.StatusNotFound {
		t.Errorf("a receipt of a stranger: %d", res.status)
	}
}

// TestBuyOnThePage: a stranger signs in and comes back; a form orders once, with the terms that it
// showed; the right to spend is needed.
// T161
func TestBuyOnThePage(t *testing.T) {
	eachTown(t, func(o *town) {
		t := o.t
		s := o.openShop("Ask", "https://agent.example.com/ask")
		nobody := newVisitor(t, o.address)
		if res := nobody.post(s.planPage(), url.Values{"ticket": {"x"}}); res.status != http.StatusForbidden || !strings.Contains(res.body, `value="`+s.planPage()+`"`) {
			t.Errorf("an order of a stranger: %d\n%s", res.status, mainPart.FindString(res.body))
		}
		buyer := o.signUp("buyer", "")
		page := formOf(t, buyer.get(s.planPage()))
		for range 2 {
			if res := buyer.submit(page); res.status != http.StatusSeeOther || res.header.Get("Location") != s.planPage() {
				t.Fatalf("an order: %d to %s\n%s", res.status, res.header.Get("Location"), mainPart.FindString(res.body))
			}
		}
		balance, err := o.client(buyer).Balance(t.Context(), s.plan)
		if err != nil || balance.Balance != 100 {
			t.Errorf("the form twice: %+v, %v", balance, err)
		}
		if res := buyer.get(s.planPage()); !strings.Contains(res.body, "100 credits left") {
			t.Errorf("after the order:\n%s", mainPart.FindString(res.body))
		}
		if res := buyer.submit(page.with("ticket", "x.y")); res.status != http.StatusForbidden {
			t.Errorf("a form that was not shown: %d", res.status)
		}
		page = formOf(t, buyer.get(s.planPage()))
		must.Get(s.api.UpdatePlan(t.Context(), s.plan, toll.PlanUpdate{Name: toll.SetTo("Another")}))(t)
		if res := buyer.submit(page); res.status != http.StatusForbidden || !strings.Contains(res.body, "Nothing was ordered") {
			t.Errorf("after the plan changed: %d", res.status)
		}
		viewer := o.signUp("viewer", buyer.invite(buyer.workspace(), "viewer"))
		res := viewer.get(s.planPage() + "?workspace=" + buyer.workspace())
		if !strings.Contains(res.body, "right spend") || strings.Contains(mainPart.FindString(res.body), "<form") {
			t.Errorf("a viewer sees:\n%s", mainPart.FindString(res.body))
		}
	})
}

// TestReceipts: the page says what a receipt proves, and of a bare transaction nothing about who paid.
func TestReceipts(t *testing.T) {
	for _, signed := range []bool{false, true} {
		o := newTown(t, "sqlite", func(c *server.Config) { c.SignedReceipts = signed })
		s := o.openShop("Ask", "https://agent.example.com/ask")
		buyer := o.signUp("buyer", "")
		mine := o.client(buyer)
		must.Get(mine.OrderPlan(t.Context(), s.plan))(t)
		token := must.Get(mine.AccessToken(t.Context(), s.plan))(t)
		terms := must.Get(s.api.Terms(t.Context(), s.plan))(t)
		two := toll.Credits(2)
		receipt, err := s.api.Settle(t.Context(), &x402.SettleRequest{
			PaymentRequired: *x402.NewPaymentRequired([]*x402.Terms{terms}, x402.Options{Endpoint: "https://agent.example.com/ask", HTTPVerb: "POST", AgentID: s.agent}),
			AccessToken:     token.AccessToken, MaxAmount: &two, AgentRequestID: toll.NewUUID(),
		})
		if err != nil || !receipt.Success {
			t.Fatalf("%+v, %v", receipt, err)
		}
		nobody := newVisitor(t, o.address)
		check := func(text string) shown { return nobody.post("/receipts", url.Values{"receipt": {text}}) }
		payer := buyer.workspace()
		whole := string(receipt.Raw)
		res := check(whole)
		if res.status != http.StatusOK || !strings.Contains(res.body, "Settled.") || !strings.Contains(res.body, payer) ||
			strings.Contains(res.body, "Signed by this service") != signed {
			t.Errorf("the receipt: %d\n%s", res.status, mainPart.FindString(res.body))
		}
		if res := check(receipt.Transaction); !strings.Contains(res.body, "Settled.") || !strings.Contains(res.body, string(s.plan)) || strings.Contains(res.body, payer) {
			t.Errorf("the transaction alone:\n%s", mainPart.FindString(res.body))
		}
		for what, text := range map[string]string{
			"other credits": strings.ReplaceAll(whole, `"creditsRedeemed":"2"`, `"creditsRedeemed":"1"`),
			"other payer":   strings.ReplaceAll(whole, payer, "0x00000000000000000000000000000000000000aa"),
			"other plan":    strings.ReplaceAll(whole, string(s.plan), "77"),
			"no burn":       "0x" + strings.Repeat("ab", 32),
		} {
			if text == whole {
				t.Fatalf("%s: the receipt is the same: %s", what, whole)
			}
			if res := check(text); res.status != http.StatusOK || !strings.Contains(res.body, "is not valid") {
				t.Errorf("%s: %d\n%s", what, res.status, mainPart.FindString(res.body))
			}
		}
		for _, text := range []string{"", "x", "{}", `{"transaction":"y"}`, "a.b.c", strings.Repeat("x", 13<<10)} {
			if res := check(text); res.status != http.StatusBadRequest {
				t.Errorf("%.20q: %d", text, res.status)
			}
		}
		if !signed {
			continue
		}
		jws, _ := x402.ReceiptOf(receipt.Extensions)
		if res := check(jws.Signature); !strings.Contains(res.body, "Signed by this service") || !strings.Contains(res.body, "Settled.") {
			t.Errorf("the signed receipt alone:\n%s", mainPart.FindString(res.body))
		}
		if res := check(jws.Signature[:len(jws.Signature)-4] + "AAAA"); res.status != http.StatusBadRequest {
			t.Errorf("a changed signature: %d", res.status)
		}
	}
}

// tryShop is a shop whose agent runs, and a buyer with credits.
func tryShop(t *testing.T, listen string) (s *shop, buyer *visitor, calls *atomic.Int32) {
	t.Helper()
	calls = new(atomic.Int32)
	var h http.Handler
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(w, r) }))
	t.Cleanup(agent.Close)
	o := newTown(t, "sqlite", func(c *server.Config) { c.Listen, c.LoopbackWebhooks = listen, true })
	s = o.openShop("Ask", agent.URL+"/ask")
	h = paid.Handler(s.api, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		if r.URL.Query().Has("elsewhere") {
			http.Redirect(w, r, "https://evil.example.com", http.StatusFound)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<script>alert(1)</script> heard")
	}), paid.Plan(s.plan), paid.Agent(s.agent), paid.Credits(2), paid.PublicURL(agent.URL))
	buyer = o.signUp("buyer", "")
	must.Get(o.client(buyer).OrderPlan(t.Context(), s.plan))(t)
	return s, buyer, calls
}

// TestTryIt: a page calls an agent with the credits of the workspace, once for each form, and shows the
// answer as text. Its access token ends with the call.
func TestTryIt(t *testing.T) {
	s, buyer, calls := tryShop(t, server.DefaultListen)
	mine := s.client(buyer)
	at := "/w/" + buyer.workspace() + "/try?agent=" + string(s.agent)
	form := formOf(t, buyer.get(at)).with("body", "{}")
	for range 2 {
		sent := buyer.submit(form)
		buyer.follow(sent)
		res := buyer.follow(sent) // after the Back button
		if !strings.Contains(res.body, ">{}</textarea>") {
			t.Errorf("the form lost its body:\n%s", mainPart.FindString(res.body))
		}
		if res.status != http.StatusOK || !strings.Contains(res.body, "&lt;script&gt;alert(1)&lt;/script&gt; heard") || !strings.Contains(res.body, "Burned 2 credits") {
			t.Fatalf("%d\n%s", res.status, mainPart.FindString(res.body))
		}
	}
	b, err := mine.Balance(t.Context(), s.plan)
	if err != nil || calls.Load() != 1 || b.Balance != 98 {
		t.Errorf("%d calls, balance %d, %v", calls.Load(), b.Balance, err)
	}
	for p, err := range mine.Permissions(t.Context()) {
		if err != nil || p.Status == toll.StatusActive || p.MaxCredits == nil || *p.MaxCredits != 2 {
			text, _ := json.Marshal(p)
			t.Errorf("an access token is left: %s, %v", text, err)
		}
	}
	for what, f := range map[string]page{
		"another address": form.with("address", "http://127.0.0.1:1/ask"), "another path": form.with("address", form.values.Get("address")+"/x"),
		"another method": form.with("verb", "DELETE"), "another plan": form.with("plan", "77"), "no credits": form.with("most", "0"),
		"too long": form.with("body", strings.Repeat("x", 9<<10)),
	} {
		if res := buyer.submit(f); res.status != http.StatusBadRequest || calls.Load() != 1 {
			t.Errorf("%s: %d, %d calls", what, res.status, calls.Load())
		}
	}
	if res := buyer.submit(form.with("ticket", "x.y")); res.status != http.StatusForbidden {
		t.Errorf("a form that was not shown: %d", res.status)
	}
	sent := buyer.submit(formOf(t, buyer.get(at)).with("address", form.values.Get("address")+"?elsewhere"))
	res := buyer.follow(sent)
	if res.status != http.StatusOK || !strings.Contains(res.body, `bad">302<`) {
		t.Errorf("a redirect: %d\n%s", res.status, mainPart.FindString(res.body))
	}
	viewer := s.signUp("viewer", buyer.invite(buyer.workspace(), "viewer"))
	reads(t, viewer.get(at), http.StatusOK)
	if other := viewer.get(sent.header.Get("Location")); strings.Contains(other.body, `>302<`) {
		t.Errorf("another session reads the response:\n%s", mainPart.FindString(other.body))
	}
	if res := viewer.post(at, form.values); res.status != http.StatusForbidden {
		t.Errorf("a call of a viewer: %d", res.status)
	}
	if res := newVisitor(t, s.address).post(at, form.values); res.status != http.StatusForbidden {
		t.Errorf("a call of nobody: %d", res.status)
	}
	if res := s.seller.post(at, form.values); res.status != http.StatusNotFound {
		t.Errorf("a call of a person outside: %d", res.status)
	}

	// The seller pays as well, with credits that it gives itself.
	own := "/w/" + s.seller.workspace() + "/try?agent=" + string(s.agent)
	mint := formOf(t, s.seller.get(own)).with("act", "mint")
	for range 2 {
		if res := s.seller.submit(mint); res.status != http.StatusSeeOther {
			t.Fatalf("a mint: %d\n%s", res.status, mainPart.FindString(res.body))
		}
	}
	if b, err := s.api.Balance(t.Context(), s.plan); err != nil || b.Balance != 2 {
		t.Errorf("minted %d, %v", b.Balance, err)
	}
	reads(t, s.seller.follow(s.seller.submit(formOf(t, s.seller.get(own)))), http.StatusOK, "Burned 2 credits", "It works. Give this link to buyers",
		"/a/"+string(s.agent)+"</code>")

	// The seller is not a paying subscriber.
	eventually(t, "both subscribers are counted", func() bool {
		var sums json.RawMessage
		err := s.api.Call(t.Context(), http.MethodGet, "/api/v1/protocol/usage?by=subscriber&planId="+string(s.plan), nil, nil, &sums)
		return err == nil && strings.Count(string(sums), `"subscriberAddress":"0x`) == 2
	})
	reads(t, s.seller.get("/w/"+s.seller.workspace()), http.StatusOK, `Paying subscribers</a></h2><p class="value num">1</p>`)
}

// TestTryIt_Faults: the page explains the failures of a stopped server and, to its seller, of a server without a valid API key.
func TestTryIt_Faults(t *testing.T) {
	o := newTown(t, storetest.SQLite, func(c *server.Config) { c.LoopbackWebhooks = true })
	fails := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(fails.Close)
	s := o.openShop("Ask", fails.URL+"/ask")
	buyer := o.signUp("buyer", "")
	must.Get(o.client(buyer).OrderPlan(t.Context(), s.plan))(t)
	must.Get(s.api.Mint(t.Context(), s.plan, must.Get(toll.ParseAddress(s.seller.workspace()))(t), 10, 0))(t)
	call := func(v *visitor) shown {
		at := "/w/" + v.workspace() + "/try?agent=" + string(s.agent)
		return v.follow(v.submit(formOf(t, v.get(at))))
	}
	const key = "could not use its API key"
	reads(t, call(s.seller), http.StatusOK, `bad">503<`, key)
	if body := call(buyer).body; !strings.Contains(body, `bad">503<`) || strings.Contains(body, key) {
		t.Errorf("a buyer reads:\n%s", mainPart.FindString(body))
	}
	address := strings.TrimPrefix(fails.URL, "http://")
	fails.Close()
	reads(t, call(s.seller), http.StatusOK, "Could not connect to "+address+". Start your server, then send the request again. No credits were burned.")
	reads(t, call(buyer), http.StatusOK, "Could not connect to "+address+". Try again later. No credits were burned.")
}

// TestPublic_TryIt: pages of a sandbox that listens on more than this machine call nothing on this machine.
// T104
func TestPublic_TryIt(t *testing.T) {
	s, buyer, calls := tryShop(t, "0.0.0.0:8402")
	form := formOf(t, buyer.get("/w/"+buyer.workspace()+"/try?agent="+string(s.agent)))
	if res := buyer.submit(form); res.status != http.StatusBadRequest || calls.Load() != 0 {
		t.Errorf("%d, %d calls", res.status, calls.Load())
	}
}

// TestIconAndTitles: browsers find an icon by its usual path, and the title of each page ends with the name of the service.
func TestIconAndTitles(t *testing.T) {
	o := newTown(t, storetest.SQLite, func(c *server.Config) { c.Brand.Name = "Acme <Gate>" })
	alice := o.seller("alice")
	icon := newVisitor(t, o.address).get("/favicon.ico")
	if icon.status != http.StatusOK || icon.header.Get("Content-Type") != "image/x-icon" || !strings.HasPrefix(icon.body, "\x00\x00\x01\x00\x01\x00\x20\x20") || !strings.Contains(icon.body, "\x89PNG") {
		t.Errorf("the icon: %d %s, %d bytes", icon.status, icon.header, len(icon.body))
	}
	for path, title := range map[string]string{alice.w + "/orders": "Orders", alice.w + "/orders/x": "Page not found", "/explore": "Explore"} {
		if body := alice.get(path).body; !strings.Contains(body, "<title>"+title+" · Acme &lt;Gate&gt;</title>") {
			t.Errorf("%s has another title:\n%.600s", path, body)
		}
	}
}
