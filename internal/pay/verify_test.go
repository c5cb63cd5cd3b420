package pay_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/tokens"
	"github.com/tollhq/toll/x402"
)

func TestPaidCall(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(dynamic(1, 10))
		a := s.agent(nil, p)
		s.mint(p, s1, 100)
		c := s.call(p, a, s.token(p, s1, nil))

		v, err := c.verify(s.one(), nil)
		s.valid(v, err)
		if v.Payer != s1.String() || v.Network != "eip155:84532" || v.PlanID != p.ID || v.AgentID != a.ID || *v.Amount != 10 ||
			v.URLMatching != askURL || v.VerbMatching != "POST" || v.AgentRequest.AgentName != "Ask" ||
			v.AgentRequest.Balance.Balance != 100 || v.Extra.HeldAmount != nil || v.AgentRequestID != v.Extra.AgentRequestID {
			t.Fatalf("%+v", v)
		}
		s.balance(p, s1, 100, 0)

		h := c.hold(heldFor(7))
		if *h.Amount != 7 || *h.Extra.HeldAmount != 7 || !h.Extra.HoldExpiresAt.Equal(start.Add(time.Minute)) ||
			h.AgentRequest.Balance.Available != 93 {
			t.Fatalf("%+v %+v", h, h.Extra)
		}
		s.balance(p, s1, 100, 7)

		r := c.burn(h.AgentRequestID, amount(3))
		if *r.CreditsRedeemed != 3 || *r.RemainingBalance != 97 || *r.Amount != 3 || r.Payer != s1.String() ||
			r.Network != "eip155:84532" || r.Extra.AgentRequestID != h.AgentRequestID || r.Extra.RequestedAmount != nil ||
			string(r.Extensions["svc-credits"]) != `{"info":{"creditsRedeemed":"3","remainingBalance":"97","agentRequestId":"`+h.AgentRequestID+`"}}` {
			t.Fatalf("%s", r.Raw)
		}
		must.Get(toll.ParseHash(r.Transaction))(t)
		if encoded, err := x402.Encode(r); err != nil || string(encoded) != string(r.Raw) {
			t.Fatalf("the answer %s is not the stored one %s", encoded, r.Raw)
		}
		s.balance(p, s1, 97, 0)

		// The id of a verify without a hold settles once as well.
		r = c.burn(v.AgentRequestID, nil)
		if *r.CreditsRedeemed != 10 {
			t.Fatalf("%s", r.Raw)
		}
		s.balance(p, s1, 87, 0)
	})
}

// First failure wins: each step is broken together with all later ones.
func TestVerifyOrder(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(nil), s.plan(func(p *toll.Plan) { p.Owner = b2 })
		a := s.agent(func(a *toll.Agent) { a.IsListed = false }, q)
		tok := s.token(p, s1, limit(1))
		good := s.call(p, a, tok)
		i := s.one()

		c := *good
		c.required.X402Version = 1
		v, err := c.verify(i, nil)
		s.invalid(v, err, x402.ReasonInvalidVersion)

		c = *good
		c.token = "?"
		_, err = c.verify(i, nil)
		s.code(err, toll.CodeTokenUndecodable)

		c = *good
		c.required.Accepts = s.required(q, nil).Accepts
		v, err = c.verify(i, nil)
		s.invalid(v, err, "invalid_svc_plan_mismatch")
		c.required.Accepts = s.required(p, nil).Accepts
		c.required.Accepts[0].Network = "eip155:1"
		v, err = c.verify(i, nil)
		s.invalid(v, err, x402.ReasonInvalidNetwork)
		c.required.Accepts[0].Scheme = "exact"
		v, err = c.verify(i, nil)
		s.invalid(v, err, x402.ReasonUnsupportedScheme)

		c = *good
		c.caller = b2
		_, err = c.verify(i, nil)
		s.code(err, toll.CodeNotPlanOwner)
		if toll.AsError(err).Reason != x402.ReasonUnauthorizedServer {
			t.Fatal(toll.AsError(err).Reason)
		}

		c = *good
		c.token = tok.AccessToken[:len(tok.AccessToken)-4] + "AAAA"
		v, err = c.verify(i, nil)
		s.invalid(v, err, "invalid_svc_payload_signature")
		if v.Payer != s1.String() {
			t.Fatal("no payer")
		}

		s.clock.add(25 * time.Hour)
		v, err = good.verify(i, nil)
		s.invalid(v, err, "invalid_svc_payload_expired")
		s.clock.set(start)

		v, err = good.verify(i, nil)
		s.invalid(v, err, "invalid_svc_agent_mismatch")
		must.Do(s, i.store.Tx(s.ctx, func(tx *store.Tx) error { _, err := store.AttachPlan(s.ctx, tx, a.ID, p.ID); return err }))
		i.Catalogue.ForgetAgent(a.ID)
		v, err = good.verify(i, nil)
		s.invalid(v, err, x402.ReasonAgentInactive)
		a.IsListed = true
		must.Do(s, i.store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdateAgent(s.ctx, tx, a) }))
		i.Catalogue.ForgetAgent(a.ID)

		c = *good
		c.required.Resource.URL = "https://a.example/other"
		v, err = c.verify(i, nil)
		s.invalid(v, err, "invalid_svc_resource_mismatch")

		v, err = good.verify(i, nil)
		s.invalid(v, err, x402.ReasonRedemptionLimit)
		good.token = s.token(p, s1, nil).AccessToken
		v, err = good.verify(i, nil)
		s.invalid(v, err, x402.ReasonInsufficientFunds)
		if v.InvalidMessage != "5 credits needed, 0 available. The subscriber has never ordered this plan." {
			t.Fatal(v.InvalidMessage)
		}
		v, err = good.verify(i, held)
		s.invalid(v, err, x402.ReasonInsufficientFunds)

		// A revoked access token is told before what is wrong with the agent.
		must.Do(s, i.Tokens.Revoke(s.ctx, s1, tok.PermissionHash))
		c = *good
		c.token = tok.AccessToken
		c.required.Accepts[0].Extra.AgentID = string(s.agent(nil, q).ID)
		v, err = c.verify(i, nil)
		s.invalid(v, err, "invalid_svc_payload_revoked")

		c.required.Accepts[0].Extra.AgentID = string(toll.NewAgentID())
		c.token = good.token
		_, err = c.verify(i, nil)
		s.code(err, toll.CodePaymentAgentNotFound)
	})
}

func TestVerifyUnknownPlan(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		c := s.call(p, nil, s.token(p, s1, nil))
		must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error {
			_, err := tx.Exec(s.ctx, `DELETE FROM plans WHERE plan_id = $1`, string(p.ID))
			return err
		}))
		s.one().Catalogue.ForgetPlan(p.ID)
		_, err := c.verify(s.one(), nil)
		s.code(err, toll.CodePaymentPlanNotFound)
		if toll.AsError(err).Reason == "" {
			t.Fatal("no reason word")
		}
		r, err := c.settle(s.one(), "", nil)
		s.refused(r, err, toll.CodePaymentPlanNotFound)
	})
}

func TestTimePlan(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(func(p *toll.Plan) {
			p.AccessLimit = toll.LimitTime
			p.Credits = toll.CreditsConfig{DurationSecs: toll.UnitsOf(3600), Amount: 1, MinAmount: 1, MaxAmount: 1}
		})
		c := s.call(p, nil, s.token(p, s1, nil))
		v, err := c.verify(s.one(), nil)
		s.invalid(v, err, x402.ReasonPlanExpired)
		v, err = c.verify(s.one(), held)
		s.invalid(v, err, x402.ReasonPlanExpired)

		must.Get(s.one().checkout.Mint(s.ctx, b1, p.ID, s1, 1, toll.UnitsOf(3600), nil))(s)
		h := c.hold(nil)
		if *h.Amount != 0 {
			t.Fatalf("a time plan holds %d", *h.Amount)
		}
		r := c.burn(h.AgentRequestID, amount(9))
		if *r.CreditsRedeemed != 0 || r.Transaction == "" || r.Extra.RequestedAmount != nil {
			t.Fatalf("%s", r.Raw)
		}
		h = c.hold(func(r *x402.VerifyRequest) { r.HoldSecs = 900 })
		s.clock.add(time.Hour - time.Minute)
		c.burn("", nil)
		s.clock.add(time.Minute)
		v, err = c.verify(s.one(), nil)
		s.invalid(v, err, x402.ReasonPlanExpired)
		rr, err := c.settle(s.one(), "", nil)
		s.refused(rr, err, toll.CodePlanPeriodOver)
		// The hold was taken while the period ran; lapsed or not, it burns nothing and settles.
		c.burn(h.AgentRequestID, nil)
	})
}

// A free plan is ordered on demand, once, whatever comes first and from how many processes.
func TestFreePlanOnDemand(t *testing.T) {
	each(t, func(s *scene) {
		for name, first := range map[string]func(c *call, i *instance) bool{
			"verify": func(c *call, i *instance) bool { v, err := c.verify(i, nil); return err == nil && v.IsValid },
			"hold":   func(c *call, i *instance) bool { v, err := c.verify(i, held); return err == nil && v.IsValid },
			"settle": func(c *call, i *instance) bool { r, err := c.settle(i, "", nil); return err == nil && r.Success },
		} {
			p := s.plan(free)
			c := s.call(p, nil, s.token(p, s1, nil))
			atOnce(10, func(i int) {
				if !first(c, s.at(i)) {
					s.Errorf("%s: refused", name)
				}
			})
			a := must.Get(s.one().ledger.Account(s.ctx, ledger.NewAccountID(p.ID, s1)))(s)
			if a.Orders != 1 || a.Minted != 100 {
				s.Errorf("%s: %d orders, %d minted", name, a.Orders, a.Minted)
			}
		}
		// Later orders only by asking.
		p := s.plan(free)
		c := s.call(p, nil, s.token(p, s1, nil))
		for range 20 {
			c.burn("", nil)
		}
		v, err := c.verify(s.one(), nil)
		s.invalid(v, err, x402.ReasonInsufficientFunds)
		must.Get(s.one().checkout.Order(s.ctx, checkout.OrderRequest{Caller: s1, Plan: p}, nil))(s)
		v, err = c.verify(s.at(1), nil)
		s.valid(v, err)

		// Credits minted by the owner are no order: the first one is still made.
		p = s.plan(free)
		s.mint(p, s1, 4)
		v, err = s.call(p, nil, s.token(p, s1, nil)).verify(s.one(), held)
		s.valid(v, err)
		s.balance(p, s1, 104, 5)

		p = s.plan(func(p *toll.Plan) { free(p); p.IsListed = false })
		v, err = s.call(p, nil, s.token(p, s1, nil)).verify(s.one(), nil)
		s.invalid(v, err, x402.ReasonPlanUnlisted)
		r, err := s.call(p, nil, s.token(p, s1, nil)).settle(s.one(), "", nil)
		s.refused(r, err, toll.CodePlanUnlisted)
	})
}

// Who asks for no credits and holds none starts nothing: a free plan is ordered by the first request that uses it.
func TestVerifyOfNothing(t *testing.T) {
	each(t, func(s *scene) {
		nothing := func(r *x402.VerifyRequest) { r.MaxAmount = new(toll.Credits) }
		for name, kind := range map[string]func(p *toll.Plan){
			"credits": free,
			"time": func(p *toll.Plan) {
				free(p)
				p.AccessLimit, p.Credits = toll.LimitTime, toll.CreditsConfig{Amount: 1, MinAmount: 1, MaxAmount: 1, DurationSecs: toll.UnitsOf(3600)}
			},
			"trial": func(p *toll.Plan) { free(p); p.IsTrial = true },
		} {
			p := s.plan(kind)
			c := s.call(p, nil, s.token(p, s1, nil))
			orders := func() int64 {
				a := must.Get(s.one().ledger.Account(s.ctx, ledger.NewAccountID(p.ID, s1)))(s)
				return a.Orders
			}
			for i := range 2 {
				v, err := c.verify(s.at(i), nothing)
				s.valid(v, err)
				if *v.Amount != 0 || orders() != 0 {
					s.Errorf("%s: %d orders by a verify of %d credits", name, orders(), *v.Amount)
				}
			}
			r := must.Get(c.settle(s.one(), "", amount(0)))(s)
			if !r.Success || orders() != 1 {
				s.Errorf("%s: %+v, %d orders", name, r, orders())
			}
		}
		p := s.plan(func(p *toll.Plan) { free(p); p.IsListed = false })
		v, err := s.call(p, nil, s.token(p, s1, nil)).verify(s.one(), nothing)
		s.invalid(v, err, x402.ReasonPlanUnlisted)
		// A period that is over does not begin again.
		p = s.plan(func(p *toll.Plan) {
			free(p)
			p.AccessLimit, p.Credits = toll.LimitTime, toll.CreditsConfig{Amount: 1, MinAmount: 1, MaxAmount: 1, DurationSecs: toll.UnitsOf(3600)}
		})
		c := s.call(p, nil, s.token(p, s1, func(r *tokens.PermissionRequest) { secs := int64(7200); r.ExpiresInSecs = &secs }))
		v, err = c.verify(s.one(), nil)
		s.valid(v, err)
		s.clock.add(time.Hour)
		v, err = c.verify(s.one(), nothing)
		s.invalid(v, err, x402.ReasonPlanExpired)
	})
}

// A cached "no" is confirmed by a fresh read: a purchase made by another process shows at once.
func TestPurchaseElsewhereShowsAtOnce(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		c := s.call(p, nil, s.token(p, s1, nil))
		v, err := c.verify(s.at(1), nil)
		s.invalid(v, err, x402.ReasonInsufficientFunds)
		s.mint(p, s1, 5)
		v, err = c.verify(s.at(1), nil)
		s.valid(v, err)
		c.burn("", nil)
		// A stale "yes" lasts a second at most.
		s.clock.add(time.Second)
		v, err = c.verify(s.at(1), nil)
		s.invalid(v, err, x402.ReasonInsufficientFunds)
	})
}

// What another process did to an agent a moment ago does not refuse a request.
func TestAgentListedElsewhereShowsAtOnce(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		a := s.agent(func(a *toll.Agent) { a.IsListed = false })
		s.mint(p, s1, 100)
		c := s.call(p, a, s.token(p, s1, nil))
		v, err := c.verify(s.at(1), held)
		s.invalid(v, err, "invalid_svc_agent_mismatch")
		must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { _, err := store.AttachPlan(s.ctx, tx, a.ID, p.ID); return err }))
		v, err = c.verify(s.at(1), held)
		s.invalid(v, err, x402.ReasonAgentInactive)
		a.IsListed = true
		must.Do(s, s.one().store.Tx(s.ctx, func(tx *store.Tx) error { return store.UpdateAgent(s.ctx, tx, a) }))
		v, err = c.verify(s.at(1), held)
		s.valid(v, err)
	})
}

// Ended credits do not count, and those of lapsed holds do, without anybody having swept.
func TestVerifySeesTime(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		must.Get(s.one().checkout.Mint(s.ctx, b1, p.ID, s1, 5, toll.UnitsOf(100), nil))(s)
		c := s.call(p, nil, s.token(p, s1, nil))
		c.hold(nil)
		v, err := c.verify(s.one(), nil)
		s.invalid(v, err, x402.ReasonInsufficientFunds)
		s.clock.add(61 * time.Second)
		v, err = c.verify(s.one(), nil)
		s.valid(v, err)
		s.clock.add(40 * time.Second)
		v, err = c.verify(s.one(), nil)
		s.invalid(v, err, x402.ReasonInsufficientFunds)
		s.balance(p, s1, 0, 0)
	})
}

func TestBodies(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		s.mint(p, s1, 100)
		c := s.call(p, nil, s.token(p, s1, nil))
		for _, secs := range []int{-1, 901} {
			_, err := c.verify(s.one(), func(r *x402.VerifyRequest) { r.HoldSecs = secs })
			s.code(err, toll.CodeBadRequest)
		}
		for _, id := range []string{" ", "a b", "é", string(make([]byte, 129))} {
			_, err := c.verify(s.one(), func(r *x402.VerifyRequest) { r.AgentRequestID = id })
			s.code(err, toll.CodeBadRequest)
			r, err := c.settle(s.one(), id, nil)
			s.refused(r, err, toll.CodeBadRequest)
		}
		c.token = ""
		_, err := c.verify(s.one(), nil)
		s.code(err, toll.CodeBadRequest)
		s.balance(p, s1, 100, 0)
	})
}

// T10
func TestOuterObjectChanged(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(nil), s.plan(nil)
		a, other := s.agent(nil, p), s.agent(nil, p, q)
		s.mint(p, s1, 1000)
		s.mint(p, s2, 1000)
		tok := s.token(p, s1, func(r *tokens.PermissionRequest) { r.AgentID, r.TokenFormat = a.ID, "x402" })
		burned := toll.Credits(0)
		for name, change := range map[string]struct {
			replace func(o *outer)
			reason  string // "": passes at the server's terms
		}{
			"authorization.from":      {func(o *outer) { o.Payload.Authorization.From = s2.String() }, "invalid_svc_payload_signature"},
			"authorization.planId":    {func(o *outer) { o.Payload.Authorization.PlanID = string(q.ID) }, "invalid_svc_payload_signature"},
			"authorization.agentId":   {func(o *outer) { o.Payload.Authorization.AgentID = string(other.ID) }, "invalid_svc_payload_signature"},
			"accepted.scheme":         {func(o *outer) { o.Accepted.Scheme = "exact" }, x402.ReasonUnsupportedScheme},
			"accepted.network":        {func(o *outer) { o.Accepted.Network = "eip155:8453" }, x402.ReasonInvalidNetwork},
			"accepted.planId":         {func(o *outer) { o.Accepted.PlanID = string(q.ID) }, "invalid_svc_plan_mismatch"},
			"accepted.extra.planId":   {func(o *outer) { o.Accepted.Extra.PlanID = string(q.ID) }, "invalid_svc_plan_mismatch"},
			"accepted.extra.agentId":  {func(o *outer) { o.Accepted.Extra.AgentID = string(other.ID) }, "invalid_svc_agent_mismatch"},
			"accepted.amount":         {func(o *outer) { o.Accepted.Amount = "0" }, x402.ReasonInvalidRequirements},
			"accepted.asset":          {func(o *outer) { o.Accepted.Asset = "svc:other" }, x402.ReasonInvalidRequirements},
			"accepted.payTo":          {func(o *outer) { o.Accepted.PayTo = s2.String() }, x402.ReasonInvalidRequirements},
			"accepted.maxTimeout":     {func(o *outer) { o.Accepted.MaxTimeoutSeconds = 900 }, ""},
			"accepted.extra.httpVerb": {func(o *outer) { o.Accepted.Extra.HTTPVerb = "GET" }, ""},
			"resource.url":            {func(o *outer) { o.Resource.URL = "https://evil.example/" }, ""},
			"x402Version":             {func(o *outer) { o.X402Version = 1 }, x402.ReasonInvalidVersion},
			"nothing (the rendering)": {func(*outer) {}, ""},
			"authorization left out":  {func(o *outer) { o.Payload.Authorization = nil }, ""},
		} {
			c := s.call(p, a, tok)
			c.token = rewrite(s, tok.AccessToken, change.replace)
			v, err := c.verify(s.one(), nil)
			r := must.Get(c.settle(s.one(), "", nil))(s)
			if change.reason == "" {
				s.valid(v, err)
				if v.Payer != s1.String() || *v.Amount != 5 || !r.Success || r.Payer != s1.String() || *r.CreditsRedeemed != 5 {
					t.Errorf("%s: %+v %+v", name, v, r)
				}
				burned += 5
				continue
			}
			s.invalid(v, err, change.reason)
			if r.Success || r.ErrorReason != change.reason {
				t.Errorf("%s: settled: %+v", name, r)
			}
		}
		s.balance(p, s1, 1000-burned, 0)
		s.balance(p, s2, 1000, 0)
	})
}

// T11
func TestStolenAtAnotherAgent(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		a := s.agent(nil, p)
		s.mint(p, s1, 100)
		bound := s.token(p, s1, func(r *tokens.PermissionRequest) { r.AgentID = a.ID })

		// With one agent an entry without agentId can mean no other.
		v, err := s.call(p, nil, bound).verify(s.one(), nil)
		s.valid(v, err)
		if v.AgentID != a.ID {
			t.Fatal("the agent of the access token is not named")
		}

		b := s.agent(func(a *toll.Agent) { a.API.Endpoints[0].URL = "https://b.example/ask" }, p)
		s.clock.add(time.Second) // that an agent was added elsewhere is seen within a second
		c := s.call(p, b, bound)
		c.required.Resource.URL = "https://b.example/ask"
		v, err = c.verify(s.one(), held)
		s.invalid(v, err, "invalid_svc_agent_mismatch")
		c.required.Accepts[0].Extra.AgentID = string(a.ID)
		v, err = c.verify(s.one(), held)
		s.invalid(v, err, "invalid_svc_resource_mismatch")
		c.required.Accepts[0].Extra.AgentID = ""
		v, err = c.verify(s.one(), held)
		s.invalid(v, err, "invalid_svc_agent_mismatch")
		r, err := c.settle(s.one(), "", nil)
		s.refused(r, err, toll.CodeAgentMismatch)

		// allowedAgents binds in the same way.
		third := s.agent(nil, p)
		two := s.token(p, s1, func(r *tokens.PermissionRequest) { r.AllowedAgents = []toll.AgentID{a.ID, third.ID} })
		v, err = s.call(p, a, two).verify(s.one(), nil)
		s.valid(v, err)
		c.token = two.AccessToken
		c.required.Accepts[0].Extra.AgentID = string(b.ID)
		v, err = c.verify(s.one(), held)
		s.invalid(v, err, "invalid_svc_agent_mismatch")

		c.token = s.token(p, s1, nil).AccessToken
		v, err = c.verify(s.one(), held)
		s.valid(v, err)
	})
}

// T34
func TestResourceAndVerbSwap(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan(nil)
		strict := s.agent(func(a *toll.Agent) { a.API.StrictEndpoints = true }, p)
		lax := s.agent(nil, p)
		s.mint(p, s1, 100)
		c := s.call(p, strict, s.token(p, s1, nil))
		ask := func(a *toll.Agent, url, verb string) (*x402.VerifyResponse, error) {
			d := *c
			d.required.Accepts = append([]x402.Requirements(nil), c.required.Accepts...)
			d.required.Accepts[0].Extra.AgentID, d.required.Accepts[0].Extra.HTTPVerb = string(a.ID), verb
			d.required.Resource.URL = url
			return d.verify(s.one(), nil)
		}
		for _, url := range []string{
			askURL, askURL + "/", askURL + "?b=1&a=2", askURL + "#x", "https://A.EXAMPLE/ask", "HTTPS://a.example:443/ask", "https://a.example/%61sk",
		} {
			v, err := ask(strict, url, "POST")
			s.valid(v, err)
			if v.URLMatching != askURL {
				t.Errorf("%s: matched %s", url, v.URLMatching)
			}
		}
		for _, url := range []string{
			"https://a.example/other", "https://a.example/ask/more", "https://a.example//ask", "https://a.example/x/%2e%2e/ask",
			"https://user@a.example/ask", "https://a.example:444/ask", "http://a.example/ask", "https://b.example/ask", "/other",
		} {
			v, err := ask(strict, url, "POST")
			s.invalid(v, err, "invalid_svc_resource_mismatch")
		}
		v, err := ask(strict, askURL, "GET")
		s.invalid(v, err, "invalid_svc_resource_mismatch")
		v, err = ask(strict, "", "POST")
		s.invalid(v, err, x402.ReasonInvalidRequirements)
		v, err = ask(lax, "", "POST")
		s.valid(v, err)
		v, err = ask(lax, "/anything", "POST")
		s.valid(v, err)
		if v.URLMatching != "/anything" || v.VerbMatching != "POST" {
			t.Fatalf("%+v", v)
		}
		v, err = ask(lax, "https://b.example/ask", "POST")
		s.invalid(v, err, "invalid_svc_resource_mismatch")
	})
}

// T35
func TestPlanSwap(t *testing.T) {
	each(t, func(s *scene) {
		p, q := s.plan(nil), s.plan(nil)
		plans := []*toll.Plan{p, q}
		for _, plan := range plans {
			s.mint(plan, s1, 100)
		}
		for i, token := range plans {
			tok := s.token(token, s1, func(r *tokens.PermissionRequest) { r.TokenFormat = "x402" })
			for j, require := range plans {
				for k, accepted := range plans {
					c := s.call(require, nil, tok)
					c.token = rewrite(s, tok.AccessToken, func(o *outer) { o.Accepted.PlanID = string(accepted.ID) })
					v, err := c.verify(s.one(), nil)
					r, serr := c.settle(s.one(), "", nil)
					must.Do(s, serr)
					if i == j && j == k {
						s.valid(v, err)
						if !r.Success {
							t.Fatalf("%+v", r)
						}
						continue
					}
					s.invalid(v, err, "invalid_svc_plan_mismatch")
					s.refused(r, serr, toll.CodePlanMismatch)
				}
			}
		}
		s.balance(p, s1, 95, 0)
		s.balance(q, s1, 95, 0)
	})
}
