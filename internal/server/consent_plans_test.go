package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/client"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/server"
)

// TestConsentPlans_Choices: without a plan in the request the person chooses among those there are, and is told what to do where
// there is none.
// T122
func TestConsentPlans_Choices(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	q := m.query()
	q.Del("plan_id")
	dear := must.Get(m.builder.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Unordered"}, Price: toll.Price{
			TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(2_500_000)}, Receivers: []toll.Address{m.owner}, IsCrypto: true,
		}, Credits: toll.CreditsFixed(10, 1),
	}))(t)
	must.Get(m.builder.AttachPlan(t.Context(), m.agent, dear.PlanID))(t)
	if s := m.consent(v, q); !strings.Contains(s.body, string(m.plan)) || strings.Contains(s.body, "Unordered") {
		t.Errorf("plans with credits:\n%s", mainPart.FindString(s.body))
	}
	q.Set("agent_id", string(m.agent))
	s := m.consent(v, q)
	if !strings.Contains(s.body, string(m.plan)) || !strings.Contains(s.body, `name="order" value="`+string(dear.PlanID)+`"`) || !strings.Contains(s.body, "from this workspace") || !strings.Contains(s.body, "2.50 USDC") {
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
	purse := must.Get(m.subscriber.CreateDelegation(t.Context(), client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 1234, Lifetime: 48 * time.Hour, Currency: "usdc",
	}))(t)
	poor := must.Get(m.subscriber.CreateDelegation(t.Context(), client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 50, Lifetime: 48 * time.Hour, Currency: "usdc",
	}))(t)
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
		must.Do(t, err)
		given = given || p.DelegationID != nil && *p.DelegationID == purse.DelegationID && p.MaxOrders != nil && *p.MaxOrders == 2
	}
	if !given {
		t.Error("no permission with the delegation of the page")
	}
	// What cannot be had is said on the page, and the form can be sent again.
	detached := must.Get(m.builder.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Elsewhere"}, Price: toll.PriceFree(), Credits: toll.CreditsFixed(10, 1),
	}))(t)
	q.Set("plan_id", string(detached.PlanID))
	form = formOf(t, m.consent(v, q)).with("decision", "approve")
	res := v.submit(form)
	if res.status != http.StatusBadRequest || res.header.Get("Location") != "" || !strings.Contains(res.body, "The plan is not attached to the agent.") {
		t.Errorf("a plan that the agent does not have: %d to %q\n%s", res.status, res.header.Get("Location"), mainPart.FindString(res.body))
	}
	must.Get(m.builder.AttachPlan(t.Context(), m.agent, detached.PlanID))(t)
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

// TestPlanOfServer: the page suggests a plan of the server that asks, whatever else the person
// has; and none where it cannot know.
// T122
func TestPlanOfServer(t *testing.T) {
	m := newFair(t)
	v, ctx := m.visitor(), t.Context()
	plan := func(name string, attach ...toll.AgentID) toll.PlanID {
		t.Helper()
		p := must.Get(m.builder.RegisterPlan(
			ctx,
			client.PlanParams{
				Metadata: toll.Metadata{Name: name},
				Price:    toll.PriceFree(),
				Credits:  toll.CreditsFixed(10, 1),
			},
		))(t)
		for _, a := range attach {
			must.Get(m.builder.AttachPlan(ctx, a, p.PlanID))(t)
		}
		return p.PlanID
	}
	hold := func(p toll.PlanID) toll.PlanID {
		t.Helper()
		must.Get(m.subscriber.OrderPlan(ctx, p))(t)
		return p
	}
	suggested := func(q url.Values) (toll.PlanID, string) {
		t.Helper()
		s := m.consent(v, q)
		return toll.PlanID(formOf(t, s).values.Get("plan")), s.body
	}
	other := must.Get(m.builder.RegisterAgent(
		ctx,
		client.AgentParams{Metadata: toll.Metadata{Name: "Other"}, Plans: []toll.PlanID{m.plan}},
	))(t)
	must.Get(m.builder.DetachPlan(ctx, other.AgentID, m.plan))(t)
	newest := hold(
		plan("Newest", other.AgentID),
	) // of the accounts of the person, this one changed last

	q := m.query()
	q.Del("plan_id")
	if p, body := suggested(q); p != "" || strings.Contains(body, "requesting server") {
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
		must.Get(m.builder.UpdateAgent(ctx, m.agent, u))(t)
		q.Set("resource", e.resource)
		want := map[bool]toll.PlanID{true: m.plan}[e.matches]
		if p, body := suggested(
			q,
		); p != want || strings.Contains(body, "requesting server") != e.matches ||
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
	must.Get(m.builder.UpdateAgent(ctx, m.agent, set))(t)
	q.Set("resource", "https://agent.example.com/mcp")
	stranger := m.subscriber // sells a plan, too, and gave the person credits of it
	theirs := must.Get(stranger.RegisterAgentWithPlan(
		ctx,
		client.AgentParams{Metadata: toll.Metadata{Name: "Squat"}},
		client.PlanParams{
			Metadata: toll.Metadata{
				Name: "Squat",
			},
			Price:   toll.PriceFree(),
			Credits: toll.CreditsFixed(10, 1),
		},
	))(t)
	must.Get(stranger.UpdateAgent(ctx, theirs.AgentID, set))(t)
	if p, _ := suggested(q); p != m.plan {
		t.Errorf("a plan that the person does not have counts: %q", p)
	}
	must.Get(stranger.Mint(ctx, theirs.PlanID, m.buyer, 5, 0))(t)
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

// TestAgentInScope: a word of the scope that names an agent offers its plans to somebody who has none. What names no agent, and an
// agent that is named in another way, come before nothing and nobody.
// T122
func TestAgentInScope(t *testing.T) {
	m := newFair(t)
	other := must.Get(m.builder.RegisterAgent(t.Context(), client.AgentParams{Metadata: toll.Metadata{Name: "Other"}}))(t)
	nobody := m.visitor()
	for i, c := range []struct {
		scope, agent string
		offered      bool
	}{
		{"credits agent:" + string(m.agent), "", true},
		{"agent:7 agent:read agent: xagent:" + string(other.AgentID) + " agent:" + string(m.agent), "", true},
		{"credits agents:" + string(m.agent), "", false},
		{"agent:" + string(m.agent), string(other.AgentID), false},
		{"agent:" + string(other.AgentID) + " agent:" + string(m.agent), "", false},
	} {
		q := m.query()
		q.Del("plan_id")
		q.Set("scope", c.scope)
		if c.agent != "" {
			q.Set("agent_id", c.agent)
		}
		s := nobody.get("/oauth/authorize?" + q.Encode())
		if i == 0 {
			s = nobody.signIn(s, m.other.Key)
		}
		offered := strings.Contains(s.body, string(m.plan))
		if s.status != http.StatusOK || offered != c.offered || offered != strings.Contains(s.body, `value="approve"`) {
			t.Errorf("scope %s: %d, offered %v\n%s", c.scope, s.status, offered, mainPart.FindString(s.body))
		}
	}
}

// TestConsent_Orders: a plan is ordered on the page that asks for it: free, by card or from the wallet, once for each form, and is
// preselected then. T161: a plan that the page does not offer, and a form of another session, order nothing.
// T161
func TestOrderOnConsent(t *testing.T) {
	m := newFair(t)
	v := m.visitor()
	q := m.query()
	q.Del("plan_id")
	q.Set("agent_id", string(m.agent))
	sells := func(name string, price toll.Price, trial bool) toll.PlanID {
		t.Helper()
		made, err := m.builder.RegisterPlan(t.Context(), client.PlanParams{
			Metadata: toll.Metadata{Name: name}, Price: price, Credits: toll.CreditsFixed(10, 1), IsTrial: trial,
		})
		if err == nil {
			_, err = m.builder.AttachPlan(t.Context(), m.agent, made.PlanID)
		}
		must.Do(t, err)
		return made.PlanID
	}
	to := []toll.Address{m.owner}
	trial := sells("Trial", toll.Price{IsCrypto: true}, true)
	coins := sells("Coins", toll.Price{TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(2_500_000)}, Receivers: to, IsCrypto: true}, false)
	card := sells("Card", toll.Price{Amounts: []toll.Units{toll.UnitsOf(5_000_000)}, Receivers: to, Currency: toll.CurrencyUSD}, false)
	orders := func() (n int) {
		for _, err := range m.subscriber.Orders(t.Context()) {
			must.Do(t, err)
			n++
		}
		return n
	}
	before := orders()
	for _, plan := range []toll.PlanID{trial, coins} {
		form := formOf(t, m.consent(v, q)).with("order", string(plan))
		for range 2 { // a double click
			res := v.submit(form)
			if res.status != http.StatusOK || formOf(t, res).values.Get("plan") != string(plan) || strings.Contains(res.body, `name="order" value="`+string(plan)) {
				t.Fatalf("an order of %s: %d %s", plan, res.status, mainPart.FindString(res.body))
			}
		}
	}
	if n := orders() - before; n != 2 {
		t.Errorf("%d orders, want 2", n)
	}
	res := v.submit(formOf(t, m.consent(v, q)).with("order", string(card)))
	pay := res.header.Get("Location")
	if res.status != http.StatusSeeOther || !strings.Contains(pay, "/checkout/") {
		t.Fatalf("by card: %d to %q", res.status, pay)
	}
	if path, ok := strings.CutPrefix(pay, m.s.PublicURL()); !ok || !strings.Contains(v.get(path).body, "/oauth/authorize?") {
		t.Errorf("the page of the order %q does not lead back", pay)
	}
	before = orders()
	form := formOf(t, m.consent(v, q))
	other := newVisitor(t, m.url)
	for what, res := range map[string]shown{
		"not offered":          v.submit(form.with("order", string(m.plan))),
		"unknown":              v.submit(form.with("order", "1")),
		"without a ticket":     v.submit(form.with("order", string(card)).with("ticket")),
		"of a changed request": v.submit(form.with("order", string(card)).with("request", form.values.Get("request")+"&scope=x")),
		"by nobody":            other.submit(form.with("order", string(card))),
	} {
		if res.status == http.StatusSeeOther || orders() != before {
			t.Errorf("%s: %d, %d orders more", what, res.status, orders()-before)
		}
	}
	// Who reads alone is told why there is no button.
	reader := keyOf(t, m.s, server.KeyRequest{Account: "reader", Rights: toll.Rights{toll.RightRead}})
	r := newVisitor(t, m.url)
	at := "/oauth/authorize?" + q.Encode()
	s := r.signIn(r.get(at), reader.Key)
	if strings.Contains(s.body, `name="order"`) {
		t.Errorf("a key that only reads can order:\n%s", mainPart.FindString(s.body))
	}
}

// TestSpendLimit_Consent: a developer with a spending limit lets no program buy with a delegation of somebody else, neither on the page nor
// by a code from before the limit.
func TestSpendLimit_Consent(t *testing.T) {
	m := newFair(t)
	o := &town{t: t, s: m.s, address: m.url}
	alice := o.signUp("alice", "")
	w := alice.workspace()
	members := "/w/" + w + "/members"
	bob := o.signUp("bob", alice.invite(w, "developer"))
	dear := must.Get(m.builder.RegisterPlan(t.Context(), client.PlanParams{
		Metadata: toll.Metadata{Name: "Dear"}, Price: toll.Price{
			TokenAddress: toll.Sandbox.USDC(), Amounts: []toll.Units{toll.UnitsOf(2_500_000)}, Receivers: []toll.Address{m.owner}, IsCrypto: true,
		}, Credits: toll.CreditsFixed(10, 1),
	}))(t)
	purse := must.Get(client.New(alice.keyOf(w), client.WithURL(m.url)).CreateDelegation(t.Context(), client.DelegationParams{
		Provider: toll.ProviderCrypto, SpendingLimit: 1234, Lifetime: 48 * time.Hour, Currency: "usdc",
	}))(t)
	q := m.query()
	q.Set("plan_id", string(dear.PlanID))
	q.Set("workspace", w)
	s := m.consent(bob, q)
	if !strings.Contains(s.body, "12.34 USDC until") {
		t.Fatalf("without a limit the delegation is offered:\n%s", mainPart.FindString(s.body))
	}
	approve := func() page {
		return formOf(t, m.consent(bob, q)).with("workspace", w).with("limit", "10").with("orders", "1").with("delegation", purse.DelegationID).with("decision", "approve")
	}
	if got := m.exchange(m.codeIn(bob.submit(approve()))); got.Access == "" {
		t.Fatalf("%+v", got)
	}
	code := m.codeIn(bob.submit(approve()))
	alice.act(members+"/"+userOf(bob, members), "act", "limit", "limit", "0")
	if got := m.exchange(code); got.Access != "" || got.Error == "" {
		t.Errorf("a code from before the limit: %+v", got)
	}
	if body := m.consent(bob, q).body; strings.Contains(body, "12.34 USDC") {
		t.Errorf("the delegation is offered:\n%s", mainPart.FindString(body))
	}
	if res := bob.submit(approve()); res.status != http.StatusBadRequest || !strings.Contains(res.body, "Choose a delegation from the list") {
		t.Errorf("%d %s", res.status, mainPart.FindString(res.body))
	}
}
