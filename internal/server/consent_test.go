package server_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/server"
	"github.com/tollhq/toll/internal/store/storetest"
	"github.com/tollhq/toll/x402"
)

// fair is a service with a stand, and a program that registered itself.
type fair struct {
	*stand
	t        *testing.T
	s        *server.Server
	url      string
	issuer   string
	person   toll.APIKey
	other    toll.APIKey // of the builder
	clientID string
	ahead    *atomic.Int64
	log      *syncBuffer
}

const (
	appCallback = "https://app.example.com/cb"
	verifier    = "verifier-verifier-verifier-verifier-verifier"
)

func newFair(t *testing.T) *fair {
	t.Helper()
	m := &fair{t: t, ahead: &atomic.Int64{}, log: &syncBuffer{}}
	m.s, m.url = start(t, server.Config{
		Data: storetest.Dir(t), Rails: checkout.Rails{Crypto: railtest.New()}, Log: slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Clock: func() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) },
	})
	m.issuer = m.s.PublicURL()
	m.other, m.person = keys(t, m.s)
	m.stand = newStand(t, m.url, m.other, m.person, 50)
	m.clientID = m.register(`{"client_name":"Notes","redirect_uris":["` + appCallback + `"],"grant_types":["authorization_code","refresh_token"]}`)
	return m
}

func (m *fair) register(body string) string {
	m.t.Helper()
	res := browser{m.t, m.url}.send(http.MethodPost, "/oauth/register", body, "Content-Type", "application/json")
	var c struct {
		ID string `json:"client_id"`
	}
	if err := json.Unmarshal([]byte(res.body), &c); err != nil || res.status != http.StatusCreated || c.ID == "" {
		m.t.Fatalf("register: %d %s", res.status, mainPart.FindString(res.body))
	}
	return c.ID
}

// query is a request to be let in.
func (m *fair) query() url.Values {
	sum := sha256.Sum256([]byte(verifier))
	return url.Values{
		"response_type": {"code"}, "client_id": {m.clientID}, "redirect_uri": {appCallback}, "state": {"state-of-the-app"}, "scope": {"credits mcp:tools"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"}, "plan_id": {string(m.plan)},
		"resource": {"https://agent.example.com/mcp"},
	}
}

func (m *fair) visitor() *visitor { return newVisitor(m.t, m.url) }

// consent opens the page of a request as a person who signs in when asked.
func (m *fair) consent(v *visitor, q url.Values) shown {
	m.t.Helper()
	res := v.get("/oauth/authorize?" + q.Encode())
	if strings.Contains(res.body, `name="api_key"`) {
		res = v.signIn(res, m.person.Key)
	}
	if res.status != http.StatusOK || !strings.Contains(res.body, "app.example.com") {
		m.t.Fatalf("consent: %d %s", res.status, mainPart.FindString(res.body))
	}
	return res
}

// codeIn returns the code that a redirect brings to the program.
func (m *fair) codeIn(s shown) string {
	m.t.Helper()
	u, err := url.Parse(s.header.Get("Location"))
	if err != nil || s.status != http.StatusFound || u.Scheme+"://"+u.Host+u.Path != appCallback || u.Query().Get("state") != "state-of-the-app" ||
		u.Query().Get("iss") != m.issuer || u.Query().Get("code") == "" {
		m.t.Fatalf("%d, Location %q\n%s", s.status, s.header.Get("Location"), mainPart.FindString(s.body))
	}
	return u.Query().Get("code")
}

type tokens struct {
	Access    string `json:"access_token"`
	Refresh   string `json:"refresh_token"`
	Error     string `json:"error"`
	ExpiresIn int64  `json:"expires_in"`
	Scope     string `json:"scope"`
}

// madeBy returns the newest API key of the person that was made like this.
func (m *fair) madeBy(by toll.KeyMaker) toll.APIKey {
	m.t.Helper()
	var made []toll.KeyMaker
	for k, err := range m.patient.subscriber.Keys(m.t.Context()) {
		if err != nil {
			m.t.Fatal(err)
		}
		made = append(made, k.MadeBy)
		if k.MadeBy == by {
			return *k
		}
	}
	m.t.Fatalf("no key was made by a %s: %v", by, made)
	return toll.APIKey{}
}

func (m *fair) exchange(code string) tokens {
	m.t.Helper()
	return m.exchangeFor("https://agent.example.com/mcp", code)
}

func (m *fair) exchangeFor(resource, code string) tokens {
	m.t.Helper()
	res := browser{m.t, m.url}.send(http.MethodPost, "/oauth/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {appCallback}, "code_verifier": {verifier}, "client_id": {m.clientID},
		"resource": {resource},
	}.Encode())
	var out tokens
	if err := json.Unmarshal([]byte(res.body), &out); err != nil {
		m.t.Fatalf("token: %d %s", res.status, mainPart.FindString(res.body))
	}
	return out
}

// TestT122_CodeFlow: what a person allows is what the program gets: one plan, so many credits, so long; and it pays.
func TestT122_CodeFlow(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	first := v.get("/oauth/authorize?" + m.query().Encode())
	if first.status != http.StatusOK || strings.Contains(first.body, "Notes") || !strings.Contains(first.body, "toll keys create") {
		t.Fatalf("before the sign-in: %d %s", first.status, mainPart.FindString(first.body))
	}
	if res := v.submit(formOf(t, first).with("api_key", "sandbox:not.a.key")); res.status != http.StatusUnauthorized || strings.Contains(res.body, "not.a.key") ||
		len(v.jar.Cookies(v.base)) != 0 {
		t.Errorf("a wrong key: %d %v", res.status, v.jar.Cookies(v.base))
	}
	shown := v.signIn(first, m.person.Key)
	for _, text := range []string{
		"Notes", "<strong><code>app.example.com</code></strong>", m.clientID, "https://agent.example.com/mcp", "credits mcp:tools", ">Plan<",
		"<strong>50</strong> credits", m.buyer.String(), m.owner.String(), "1.00 USDC",
	} {
		if !strings.Contains(shown.body, text) {
			t.Errorf("the page does not say %q:\n%s", text, mainPart.FindString(shown.body))
		}
	}
	p := formOf(t, shown)
	if p.values.Get("limit") != "50" || p.values.Get("plan") != string(m.plan) || p.values.Get("lifetime") != "2592000" {
		t.Errorf("suggested: %v", p.values)
	}
	got := m.exchange(m.codeIn(v.submit(p.with("limit", "3").with("lifetime", "3600").with("decision", "approve"))))
	if got.Access == "" || got.ExpiresIn > 3600 {
		t.Fatalf("%+v", got)
	}
	settle := func(id string, n toll.Credits) (*x402.SettleResponse, error) {
		return m.builder.Settle(t.Context(), &x402.SettleRequest{
			PaymentRequired: m.required(), AccessToken: got.Access, AgentRequestID: id, MaxAmount: n.Ptr(),
		})
	}
	if r, err := settle("one", 3); err != nil || !r.Success || r.Payer != m.buyer.String() {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := settle("two", 1); err == nil && r.Success {
		t.Error("more than the person allowed")
	}
	if b := m.balance(t); b.Available != 47 {
		t.Errorf("%d credits", b.Available)
	}
	for p, err := range m.subscriber.Permissions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if p.MaxCredits != nil && *p.MaxCredits == 3 && p.ExpiresAt.Sub(p.CreatedAt.Time) > time.Hour {
			t.Errorf("%+v", p)
		}
	}
	// Refused, the program learns that and nothing else.
	res := v.submit(formOf(t, m.consent(v, m.query())).with("decision", "deny"))
	u, err := url.Parse(res.header.Get("Location"))
	if err != nil || res.status != http.StatusFound || u.Query().Get("error") != "access_denied" || u.Query().Has("code") || u.Host != "app.example.com" {
		t.Errorf("%d %q", res.status, res.header.Get("Location"))
	}
	for _, secret := range []string{m.person.Key, got.Access, got.Refresh, v.jar.Cookies(v.base)[0].Value} {
		if strings.Contains(m.log.String(), secret) {
			t.Errorf("%.12s… is in the log", secret)
		}
	}
}

// TestT122_Consent: what was not shown in this session, as it is sent, is not agreed to.
func TestT122_Consent(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	page := m.consent(v, m.query())
	policy := page.header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || !strings.Contains(policy, "form-action 'self' https:;") ||
		strings.Contains(policy, "unsafe") || page.header.Get("X-Frame-Options") != "DENY" || page.header.Get("Cache-Control") != "no-store" ||
		page.header.Get("Access-Control-Allow-Origin") != "" || page.header.Get("Referrer-Policy") != "same-origin" || strings.Contains(page.body, "<script") {
		t.Errorf("%v", page.header)
	}
	good := formOf(t, page).with("decision", "approve")
	blocked := func(what string, want int, s shown) {
		t.Helper()
		if s.status != want || s.header.Get("Location") != "" {
			t.Errorf("%s: %d to %q\n%s", what, s.status, s.header.Get("Location"), mainPart.FindString(s.body))
		}
	}
	for what, header := range map[string][]string{
		"foreign origin": {"Origin", "https://evil.example.com", "Sec-Fetch-Site", ""},
		"null origin":    {"Origin", "null", "Sec-Fetch-Site", ""},
		"cross-site":     {"Sec-Fetch-Site", "cross-site"},
		"same-site":      {"Sec-Fetch-Site", "same-site"},
	} {
		blocked(what, http.StatusForbidden, v.submit(good, header...))
	}
	blocked("json", http.StatusBadRequest, v.submit(good, "Content-Type", "application/json"))
	blocked("no ticket", http.StatusForbidden, v.submit(good.with("ticket")))
	blocked("a made-up ticket", http.StatusForbidden, v.submit(good.with("ticket", "AAAA."+strings.Repeat("A", 43))))

	// Another person's form, and another form of this person.
	mallory := m.visitor()
	theirs := formOf(t, mallory.signIn(mallory.get("/oauth/authorize?"+m.query().Encode()), m.other.Key))
	blocked("a ticket of another session", http.StatusForbidden, v.submit(good.with("ticket", theirs.values.Get("ticket"))))
	second, err := m.builder.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Dearer"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(1000, 100),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"plan_id": string(second.PlanID), "resource": "https://evil.example.com/mcp", "scope": "everything", "state": "x", "client_id": m.register(
			`{"client_name":"Other","redirect_uris":["` + appCallback + `"]}`),
	} {
		q := m.query()
		q.Set(name, value)
		blocked("the ticket of another "+name, http.StatusForbidden, v.submit(good.with("request", q.Encode())))
	}

	// Values that the page did not give.
	for _, c := range [][2]string{
		{"plan", string(second.PlanID)}, {"plan", ""}, {"limit", ""}, {"limit", "0"}, {"limit", "-1"}, {"limit", "1e3"}, {"limit", "9223372036854775808"}, {"limit", "1.5"},
		{"lifetime", "31536000"}, {"lifetime", ""}, {"lifetime", "3601"}, {"lifetime", "-3600"}, {"delegation", "5e0f1b0e-8f7e-4b39-9d0a-52b7c1e0a111"},
		{"decision", ""}, {"decision", "yes"},
	} {
		blocked(c[0]+"="+c[1], http.StatusBadRequest, v.submit(good.with(c[0], c[1])))
	}

	// Terms that changed while the person read.
	if _, err := m.builder.UpdatePlan(t.Context(), m.plan, toll.PlanUpdate{Metadata: toll.MetadataUpdate{Name: toll.SetTo("Renamed")}}); err != nil {
		t.Fatal(err)
	}
	res := v.submit(good)
	blocked("other terms", http.StatusForbidden, res)
	if !strings.Contains(res.body, "Renamed") {
		t.Error("the new terms are not shown")
	}
	good = formOf(t, res).with("decision", "approve")

	// A double click: one answer, and later too, as long as it is kept.
	answers := make([]shown, 4)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = v.browser.send(http.MethodPost, good.action, good.values.Encode(), "Cookie", cookieOf(v), "Origin", v.url)
		})
	}
	wg.Wait()
	code := m.codeIn(answers[0])
	for _, a := range append(answers, v.submit(good), v.submit(good.with("decision", "deny"))) {
		if m.codeIn(a) != code {
			t.Errorf("two answers to one form")
		}
	}
	if got := m.exchange(code); got.Access == "" {
		t.Errorf("%+v", got)
	}

	// An hour after the sign-in the form is worth nothing, and a new sign-in is not enough: the page comes again.
	good = formOf(t, m.consent(v, m.query())).with("decision", "approve")
	m.ahead.Add(int64(time.Hour))
	res = v.submit(good)
	blocked("an old sign-in", http.StatusOK, res)
	if again := v.signIn(res, m.person.Key); again.status != http.StatusOK || again.header.Get("Location") != "" || !strings.Contains(again.body, "app.example.com") {
		t.Errorf("after a new sign-in: %d %s", again.status, mainPart.FindString(again.body))
	}
	blocked("the form from before the new sign-in", http.StatusForbidden, v.submit(good))
}

func cookieOf(v *visitor) string {
	c := v.jar.Cookies(v.base)[0]
	return c.Name + "=" + c.Value
}

// TestT122_Choices: without a plan in the request the person chooses among those there are, and is told what to do where
// there is none.
func TestT122_Choices(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	q := m.query()
	q.Del("plan_id")
	dear, err := m.builder.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Unordered"}, Price: toll.Price{
			TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(2_500_000)}, Receivers: []toll.Address{m.owner}, IsCrypto: true,
		}, Credits: toll.CreditsFixed(10, 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.builder.AttachPlan(t.Context(), m.agent, dear.PlanID); err != nil {
		t.Fatal(err)
	}
	if s := m.consent(v, q); !strings.Contains(s.body, string(m.plan)) || strings.Contains(s.body, "Unordered") {
		t.Errorf("plans with credits:\n%s", mainPart.FindString(s.body))
	}
	q.Set("agent_id", string(m.agent))
	s := m.consent(v, q)
	if !strings.Contains(s.body, string(m.plan)) || !strings.Contains(s.body, "toll plans order "+string(dear.PlanID)) || !strings.Contains(s.body, "2.50 USDC") {
		t.Errorf("plans of the agent:\n%s", mainPart.FindString(s.body))
	}
	form := formOf(t, s)
	if form.values.Get("plan") != string(m.plan) {
		t.Error("what can be paid with does not come first")
	}
	if got := m.exchange(m.codeIn(v.submit(form.with("plan", string(dear.PlanID)).with("limit", "10").with("decision", "approve")))); got.Access == "" {
		t.Errorf("%+v", got)
	}
	// A delegation with which it may buy more, as often as the person says.
	purse, err := m.subscriber.CreateDelegation(t.Context(), client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 1234, Lifetime: 48 * time.Hour, Currency: "usdc",
	})
	if err != nil {
		t.Fatal(err)
	}
	poor, err := m.subscriber.CreateDelegation(t.Context(), client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 50, Lifetime: 48 * time.Hour, Currency: "usdc",
	})
	if err != nil {
		t.Fatal(err)
	}
	s = m.consent(v, q)
	form = formOf(t, s).with("decision", "approve")
	if !strings.Contains(s.body, "12.34 USDC until") || form.values.Get("delegation") != "" {
		t.Errorf("delegations: %v\n%s", form.values, mainPart.FindString(s.body))
	}
	form = form.with("delegation", purse.DelegationID).with("orders", "2")
	for what, p := range map[string]page{
		"too small": form.with("delegation", poor.DelegationID), "no orders": form.with("orders", "0"), "too many": form.with("orders", "1001"),
		"no number": form.with("orders", "all"), "unknown": form.with("delegation", toll.NewHash().String()),
	} {
		if res := v.submit(p); res.status != http.StatusBadRequest || !strings.Contains(res.body, `role="alert"`) {
			t.Errorf("%s: %d %s", what, res.status, mainPart.FindString(res.body))
		}
	}
	if got := m.exchange(m.codeIn(v.submit(form))); got.Access == "" {
		t.Errorf("%+v", got)
	}
	given := false
	for p, err := range m.subscriber.Permissions(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		given = given || p.DelegationID != nil && *p.DelegationID == purse.DelegationID && p.MaxOrders != nil && *p.MaxOrders == 2
	}
	if !given {
		t.Error("no permission with the delegation of the page")
	}
	// What cannot be had is said on the page, and the form can be sent again.
	detached, err := m.builder.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Elsewhere"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(10, 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	q.Set("plan_id", string(detached.PlanID))
	form = formOf(t, m.consent(v, q)).with("decision", "approve")
	res := v.submit(form)
	if res.status != http.StatusBadRequest || res.header.Get("Location") != "" || !strings.Contains(res.body, "The agent does not have this plan.") {
		t.Errorf("a plan that the agent does not have: %d to %q\n%s", res.status, res.header.Get("Location"), mainPart.FindString(res.body))
	}
	if _, err := m.builder.AttachPlan(t.Context(), m.agent, detached.PlanID); err != nil {
		t.Fatal(err)
	}
	m.codeIn(v.submit(formOf(t, res).with("decision", "approve")))
	q.Del("plan_id")
	// Somebody without any plan.
	q.Del("agent_id")
	nobody := m.visitor()
	s = nobody.signIn(nobody.get("/oauth/authorize?"+q.Encode()), m.other.Key)
	if s.status != 200 || !strings.Contains(s.body, "toll plans order PLAN") || strings.Contains(s.body, `value="approve"`) || !strings.Contains(s.body, `value="deny"`) {
		t.Errorf("without a plan: %d %s", s.status, mainPart.FindString(s.body))
	}
}

// TestT122_PlanOfServer: the page suggests a plan of the server that asks, whatever else the person
// has; and none where it cannot know.
func TestT122_PlanOfServer(t *testing.T) {
	m := newFair(t)
	v, ctx := m.visitor(), t.Context()
	plan := func(name string, attach ...toll.AgentID) toll.PlanID {
		t.Helper()
		p, err := m.builder.RegisterPlan(
			ctx,
			client.PlanParams{
				Metadata: toll.Metadata{Name: name},
				Price:    toll.PriceFree(),
				Credits:  toll.CreditsFixed(10, 1),
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attach {
			if _, err := m.builder.AttachPlan(ctx, a, p.PlanID); err != nil {
				t.Fatal(err)
			}
		}
		return p.PlanID
	}
	hold := func(p toll.PlanID) toll.PlanID {
		t.Helper()
		if _, err := m.subscriber.OrderPlan(ctx, p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	suggested := func(q url.Values) (toll.PlanID, string) {
		t.Helper()
		s := m.consent(v, q)
		return toll.PlanID(formOf(t, s).values.Get("plan")), s.body
	}
	other, err := m.builder.RegisterAgent(
		ctx,
		client.AgentParams{Metadata: toll.Metadata{Name: "Other"}, Plans: []toll.PlanID{m.plan}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.builder.DetachPlan(ctx, other.AgentID, m.plan); err != nil {
		t.Fatal(err)
	}
	newest := hold(
		plan("Newest", other.AgentID),
	) // of the accounts of the person, this one changed last

	q := m.query()
	q.Del("plan_id")
	if p, body := suggested(q); p != "" || strings.Contains(body, "server that asks") {
		t.Errorf("nobody knows the server, and %s is suggested", p)
	}
	for _, e := range []struct {
		open, endpoint, resource string
		matches                  bool
	}{
		{open: "https://agent.example.com/mcp", resource: "https://agent.example.com/mcp", matches: true},
		{open: "https://agent.example.com/mcp", resource: "https://AGENT.example.com:443/mcp/", matches: true},
		{open: "https://agent.example.com/mcp", resource: "https://agent.example.com/", matches: true},
		{endpoint: "https://agent.example.com/v1/ask/:id", resource: "https://agent.example.com/v1", matches: true},
		{endpoint: "https://agent.example.com/v1/*", resource: "https://agent.example.com/v1/mcp", matches: true},
		{open: "http://127.0.0.1:8404/mcp", resource: "http://localhost:8404/mcp", matches: true},
		{open: "https://agent.example.com/mcp", resource: "https://agent.example.com/mcp2"},
		{open: "https://agent.example.com/mcp2", resource: "https://agent.example.com/mcp"},
		{open: "https://agent.example.com/mcp", resource: "https://agent.example.com:8443/mcp"},
		{open: "https://agent.example.com/mcp", resource: "https://evil.example.com/mcp"},
		{open: "http://127.0.0.1:8404/mcp", resource: "http://localhost:8405/mcp"},
		{endpoint: "/mcp", resource: "https://agent.example.com/mcp"},
		{endpoint: "mcp://agent.example.com/tools/*", resource: "https://agent.example.com/mcp"},
	} {
		u := toll.AgentUpdate{
			API: toll.AgentAPIUpdate{
				Endpoints:     toll.SetTo(toll.EndpointList{}),
				OpenEndpoints: toll.SetTo([]string{}),
			},
		}
		if e.open != "" {
			u.API.OpenEndpoints = toll.SetTo([]string{e.open})
		}
		if e.endpoint != "" {
			u.API.Endpoints = toll.SetTo(toll.EndpointList{{Verb: "POST", URL: e.endpoint}})
		}
		if _, err := m.builder.UpdateAgent(ctx, m.agent, u); err != nil {
			t.Fatal(err)
		}
		q.Set("resource", e.resource)
		want := map[bool]toll.PlanID{true: m.plan}[e.matches]
		if p, body := suggested(
			q,
		); p != want || strings.Contains(body, "server that asks") != e.matches ||
			!strings.Contains(body, string(newest)) {
			t.Errorf("%+v: %q is suggested, want %q", e, p, want)
		}
	}

	// What a stranger says of his agent does not decide against what another says of his.
	set := toll.AgentUpdate{
		API: toll.AgentAPIUpdate{
			OpenEndpoints: toll.SetTo([]string{"https://agent.example.com/mcp"}),
		},
	}
	if _, err := m.builder.UpdateAgent(ctx, m.agent, set); err != nil {
		t.Fatal(err)
	}
	q.Set("resource", "https://agent.example.com/mcp")
	stranger := m.subscriber // sells a plan, too, and gave the person credits of it
	theirs, err := stranger.RegisterAgentWithPlan(
		ctx,
		client.AgentParams{Metadata: toll.Metadata{Name: "Squat"}},
		client.PlanParams{
			Metadata: toll.Metadata{
				Name: "Squat",
			},
			Price:   toll.PriceFree(),
			Credits: toll.CreditsFixed(10, 1),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.UpdateAgent(ctx, theirs.AgentID, set); err != nil {
		t.Fatal(err)
	}
	if p, _ := suggested(q); p != m.plan {
		t.Errorf("a plan that the person does not have counts: %q", p)
	}
	if _, err := stranger.Mint(ctx, theirs.PlanID, m.buyer, 5, 0); err != nil {
		t.Fatal(err)
	}
	if p, body := suggested(q); p != "" || !strings.Contains(body, "Squat") {
		t.Errorf("two sellers claim the server, and %q is suggested", p)
	}

	// Of an agent that is named the plan that was attached first, as its server takes it.
	second := hold(plan("Second", m.agent))
	q.Set("agent_id", string(m.agent))
	if p, body := suggested(q); p != m.plan || !strings.Contains(body, string(second)) {
		t.Errorf("of the agent %q is suggested, want %q", p, m.plan)
	}
	// And with one plan there is nothing to choose.
	q.Del("agent_id")
	q.Set("plan_id", string(newest))
	if p, _ := suggested(q); p != newest {
		t.Errorf("the named plan %q, want %q", p, newest)
	}
}

// TestT122_APIKey: a program that asks for the API is shown to get rights one by one, of which a person can keep some back, and gets
// a key of its own with what is left. It can never make keys, and never has the wallet.
func TestT122_APIKey(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	ask := func(scope string) (url.Values, shown) {
		q := m.query()
		q.Del("plan_id")
		q.Set("scope", scope)
		q.Set("resource", m.issuer+"/api/v1")
		return q, m.consent(v, q)
	}
	exchange := func(s shown) (tokens, toll.APIKey) {
		t.Helper()
		got := m.exchangeFor(m.issuer+"/api/v1", m.codeIn(s))
		return got, m.madeBy(toll.MadeByGrant)
	}
	for scope, offered := range map[string]string{
		"": "read sell spend manage", "openid profile": "read sell spend manage", "spend openid read": "read spend", "manage": "manage",
	} {
		_, s := ask(scope)
		form := formOf(t, s)
		if got := strings.Join(form.values["right"], " "); got != offered || strings.Contains(s.body, `name="limit"`) || strings.Contains(s.body, "every right") {
			t.Errorf("scope %q: %q\n%s", scope, got, mainPart.FindString(s.body))
		}
	}
	for _, word := range []string{"money", "keys", "members", "export"} {
		q := m.query()
		q.Del("plan_id")
		q.Set("scope", "read "+word)
		q.Set("resource", m.issuer+"/api/v1")
		if s := v.get("/oauth/authorize?" + q.Encode()); s.status != http.StatusBadRequest || !strings.Contains(s.body, "No program can have the right "+word) {
			t.Errorf("scope %s: %d %s", word, s.status, mainPart.FindString(s.body))
		}
	}

	_, s := ask("openid read spend")
	for _, right := range [][]string{nil, {"read", "manage"}, {"export"}, {"read", "read"}} {
		if res := v.submit(formOf(t, s).with("right", right...).with("decision", "approve")); res.status != http.StatusBadRequest {
			t.Errorf("right %q: %d %s", right, res.status, res.header.Get("Location"))
		}
	}
	got, key := exchange(v.submit(formOf(t, s).with("right", "read").with("decision", "approve")))
	if got.Scope != "openid read" || key.Rights.String() != "read" || key.Parent == nil || key.ExpiresAt == nil {
		t.Errorf("%q %+v", got.Scope, key)
	}
	c := client.New(got.Access, client.WithURL(m.url), client.WithRetries(0))
	if _, err := c.Versions(t.Context()); err != nil {
		t.Error(err)
	}
	lacks := func(what string, err error, right string) {
		t.Helper()
		if e := toll.AsError(err); err == nil || e.Code != toll.CodeRightMissing || e.Params["right"] != right {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := c.ExportWallet(t.Context())
	lacks("the wallet", err, "export")
	_, err = c.CreateKey(t.Context(), client.KeyParams{})
	lacks("a key", err, "keys")
	_, err = c.AccessToken(t.Context(), m.plan)
	lacks("what was kept back", err, "spend")
}

// TestT122_EndsWithKey: what a person lets in has at most the rights of the API key of the session, and ends with it.
func TestT122_EndsWithKey(t *testing.T) {
	m := newFair(t)
	session := func(rights ...toll.Right) toll.APIKey {
		t.Helper()
		return keyOf(t, m.s, server.KeyRequest{Account: "subscriber", Rights: rights, ExpiresIn: 240 * time.Hour})
	}
	api := func() url.Values {
		q := m.query()
		q.Del("plan_id")
		q.Del("scope")
		q.Set("resource", m.issuer+"/api/v1")
		return q
	}
	ask := func(key toll.APIKey, q url.Values) (*visitor, shown) {
		v := m.visitor()
		return v, v.signIn(v.get("/oauth/authorize?"+q.Encode()), key.Key)
	}
	works := func(key string) bool {
		_, err := client.New(key, client.WithURL(m.url), client.WithRetries(0)).Versions(t.Context())
		return err == nil
	}

	// Without the right keys no program gets an API key; without read nobody signs in.
	if _, s := ask(session(toll.RightRead, toll.RightSpend), api()); strings.Contains(s.body, `value="approve"`) {
		t.Errorf("%s", mainPart.FindString(s.body))
	}
	v := m.visitor()
	if res := v.submit(formOf(t, v.get("/sign-in")).with("api_key", session(toll.RightSell, toll.RightKeys).Key)); res.status != http.StatusForbidden {
		t.Errorf("signed in without read: %d", res.status)
	}

	key := session(toll.RightRead, toll.RightSell, toll.RightSpend, toll.RightKeys, toll.RightExport)
	v, s := ask(key, api())
	if got := strings.Join(formOf(t, s).values["right"], " "); got != "read sell spend" {
		t.Errorf("offered %q", got)
	}
	program := m.exchangeFor(m.issuer+"/api/v1", m.codeIn(v.submit(formOf(t, s).with("decision", "approve"))))
	made := m.madeBy(toll.MadeByGrant)
	if made.Rights.String() != "read sell spend" || made.ExpiresAt == nil || made.ExpiresAt.After(key.ExpiresAt.Time) {
		t.Errorf("%+v", made)
	}
	// The program spends credits by an access token of its own key, and another one by a consent.
	own, err := client.New(program.Access, client.WithURL(m.url)).AccessToken(t.Context(), m.plan)
	if err != nil {
		t.Fatal(err)
	}
	spend := m.query()
	spend.Set("plan_id", string(m.plan))
	s = v.get("/oauth/authorize?" + spend.Encode())
	granted := m.exchange(m.codeIn(v.submit(formOf(t, s).with("decision", "approve"))))

	// toll login
	in := client.NewSignIn(callback, "toll-cli")
	anonymous := client.New("", client.WithURL(m.url))
	login, _, err := anonymous.ExchangeCode(t.Context(), in, browser{t, m.url}.code(in, key.Key))
	if err != nil {
		t.Fatal(err)
	}
	if k := m.madeBy(toll.MadeByUser); k.Rights.String() != "read sell spend keys" || k.ExpiresAt == nil || k.ExpiresAt.After(key.ExpiresAt.Time) {
		t.Errorf("%+v", k)
	}
	pays := func(token string) bool {
		m.token.AccessToken = token
		r, err := m.settle(t.Context(), toll.NewHash().String())
		return err == nil && r.Success
	}
	if !works(program.Access) || !works(login) || !pays(own.AccessToken) || !pays(granted.Access) {
		t.Error("something does not work yet")
	}
	ended, err := m.patient.subscriber.RevokeKey(t.Context(), key.ID)
	if err != nil || ended.Ended != (toll.Ended{APIKeys: 2, AccessTokens: 2, Grants: 3}) {
		t.Errorf("%+v, %v", ended, err)
	}
	if works(program.Access) || works(login) || pays(own.AccessToken) || pays(granted.Access) {
		t.Error("something works without the key that made it")
	}
	if s := v.get("/account/access"); !strings.Contains(s.body, `name="api_key"`) {
		t.Errorf("the session is still there: %s", mainPart.FindString(s.body))
	}

	// The page counts what ends with the access of a program.
	v, s = ask(m.person, api())
	program = m.exchangeFor(m.issuer+"/api/v1", m.codeIn(v.submit(formOf(t, s).with("decision", "approve"))))
	if own, err = client.New(program.Access, client.WithURL(m.url)).AccessToken(t.Context(), m.plan); err != nil {
		t.Fatal(err)
	}
	res := v.submit(formOf(t, v.get("/account/access")))
	if !strings.Contains(res.body, "With it ended: 1 API key, 1 access token.") || works(program.Access) || pays(own.AccessToken) {
		t.Errorf("%s", mainPart.FindString(res.body))
	}
}

// TestT120_NamesOnPages: whatever a program calls itself is text, and the host of its answer stands beside it.
func TestT120_NamesOnPages(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	for name, ours := range map[string]bool{
		`<script>alert(1)</script>`: false, `"><img src=x onerror=alert(1)>`: false, `{{.Person}} javascript:alert(1)`: false, `</title><b>`: false,
		"Toll": true, "T0ll Support": true,
	} {
		body, err := json.Marshal(map[string]any{"client_name": name, "redirect_uris": []string{appCallback}, "client_uri": "https://" + "x.example.com/<b>"})
		if err != nil {
			t.Fatal(err)
		}
		m.clientID = m.register(string(body))
		s := m.consent(v, m.query())
		if strings.Contains(s.body, "<script") || strings.Contains(s.body, "<img") || strings.Contains(s.body, "<b>") ||
			!strings.Contains(s.body, "<strong><code>app.example.com</code></strong>") || strings.Contains(s.body, "not part of this service") != ours {
			t.Errorf("%q:\n%s", name, mainPart.FindString(s.body))
		}
	}
}
