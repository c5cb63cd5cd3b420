package paidmcp

import (
	"context"
	"errors"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// maxOffers bounds the plans in a demand.
const maxOffers = 20

// agentPlans is a facilitator that knows the plans of an agent.
type agentPlans interface {
	AgentPlanIDs(ctx context.Context, agent toll.AgentID) ([]toll.PlanID, error)
}

var errMissingPlan = &jsonrpc.Error{Code: CodeMisconfigured, Message: "Server misconfiguration: missing planId"}

// pay verifies the payment of a call and holds its credits. It returns nil, or the response to an unpaid call.
func (c *call) pay(ctx context.Context) *unpaid {
	var token *x402.Token
	var r *seller.Refusal
	exact := len(c.price.perCall) > 0 && seller.SchemeOf(c.cred.token) == x402.SchemeExact
	if c.cred.token != "" && !exact {
		token, r = seller.ReadToken(c.cred.token)
	}
	if refusal := c.offer(ctx, token); refusal != nil {
		return refusal
	}
	if c.cred.token == "" {
		return c.refuse(wordRequired, "", "")
	}
	if base := strings.TrimSuffix(c.cfg.EndpointURL, pathMCP); r == nil && base != "" && !exact {
		r = c.CheckResource(token, base, func() string { return c.cfg.EndpointURL })
	}
	if r == nil {
		if c.cred.bearer && bearerWarned.CompareAndSwap(false, true) {
			c.Log.Warn("paidmcp: an MCP call sends an access token as its bearer token, which is deprecated: "+
				"send the access token in params._meta", "key", metaPayment)
		}
		o := seller.Offer{Required: c.ask([]*x402.Terms{c.terms}), PlanID: c.plan, Item: c.url, Elsewhere: c.cfg.EndpointURL}
		if f := c.cfg.AfterSettle; f != nil {
			o.Settled = f
		}
		o.Max, _ = seller.Price(c.terms, c.asked())
		if exact {
			r = openExact(ctx, c, o)
		} else {
			c.sale, r = c.Open(ctx, o, c.cred.token)
		}
	}
	switch {
	case r == nil:
		return nil
	case r.Class == seller.CallerLeft:
		return &unpaid{call: c, wire: ctx.Err()}
	case r.Class == seller.Unavailable:
		return c.refuse(wordUnavailable, "", "")
	}
	u := c.refuse(wordRequired, r.Reason, r.Err.Text())
	u.err = r.Err
	return u
}

// payment describes the payment to the handler.
func (c *call) payment() Payment {
	p := c.sale
	out := Payment{
		Payer: p.Payer, PlanID: p.PlanID, AgentID: p.AgentID, AgentRequestID: p.AgentRequestID, Amount: p.Amount, LogicalURL: c.url,
		Verdict: p.Verdict, Exact: c.entry,
	}
	if c.entry != nil {
		out.Amount = 0
	}
	return out
}

// offer sets the plans that can pay, the plan that pays, its terms, and the demand. It returns nil, or the response on a failure.
func (c *call) offer(ctx context.Context, token *x402.Token) *unpaid {
	plans, err := c.choosePlans(ctx, token)
	if err != nil {
		if e, ok := wireError(err); ok {
			return &unpaid{call: c, wire: e}
		}
		return c.unreachable("reading the plans of the agent", err)
	}
	for _, id := range plans {
		t, err := c.Terms.Of(ctx, id)
		if err != nil {
			if id == c.plan {
				return c.unreachable("reading the terms of the plan", err)
			}
			continue
		}
		c.offers = append(c.offers, t)
	}
	c.demand = c.ask(c.offers)
	for _, t := range c.offers {
		if t.PlanID == c.plan {
			c.terms = t
		}
	}
	setExact(ctx, c)
	return nil
}

// choosePlans returns the offered plans and sets the plan that pays: the plan of the item, or else of the server, or else of the
// access token, or else the first plan of the agent.
func (c *call) choosePlans(ctx context.Context, token *x402.Token) ([]toll.PlanID, error) {
	if c.plan = c.price.plan; c.plan == "" {
		c.plan = c.cfg.PlanID
	}
	if c.plan != "" {
		return []toll.PlanID{c.plan}, nil
	}
	if c.AgentID == "" {
		return nil, errMissingPlan
	}
	var plans []toll.PlanID
	if c.plans != nil {
		var err error
		if plans, err = c.plans.Of(ctx, c.AgentID); err != nil && !errors.Is(err, errNoPlans) {
			return nil, err
		}
	}
	var claimed toll.PlanID // unverified: the service checks the token
	if token != nil {
		said, _ := seller.ClaimsOf(token)
		claimed = toll.PlanID(said.PlanID)
	}
	if len(plans) == 0 {
		if claimed == "" {
			return nil, errMissingPlan
		}
		plans = []toll.PlanID{claimed}
	}
	c.plan = plans[0]
	for _, id := range plans {
		if id == claimed {
			c.plan = id
		}
	}
	return plans, nil
}

// ask returns a demand for payment with one entry for each plan.
func (c *call) ask(offers []*x402.Terms) *x402.PaymentRequired {
	o := x402.Options{
		Namespace: c.Namespace, Endpoint: c.url, AgentID: c.AgentID, HTTPVerb: "POST", Error: wordRequired,
		Description: plain.Text(c.price.description, maxSentenceRunes), MimeType: plain.Text(c.price.mimeType, maxNameRunes),
		MaxTimeoutSecs: c.HoldSecs,
	}
	if len(offers) == 0 {
		offers = []*x402.Terms{{PlanID: c.plan}}
	}
	var pr *x402.PaymentRequired
	for _, t := range offers {
		_, o.Amount = seller.Price(t, c.asked())
		one := x402.NewPaymentRequired([]*x402.Terms{t}, o)
		if pr == nil {
			pr = one
			continue
		}
		pr.Accepts = append(pr.Accepts, one.Accepts...)
	}
	return pr
}

// asked returns the credits to verify, or nil for the maximum of the plan.
func (c *call) asked() *toll.Credits {
	if c.price.creditsFunc != nil {
		return c.most
	}
	return max(c.price.credits, c.price.maxAmount).Ptr()
}

// unreachable logs a failed call to the service, and returns the response with a demand for the plans known so far.
func (c *call) unreachable(what string, err error) *unpaid {
	c.Unavailable(what, &seller.Offer{PlanID: c.plan, Item: c.url}, err)
	c.demand = c.ask(c.offers)
	return c.refuse(wordUnavailable, "", "")
}

// errNoPlans keeps an agent without plans out of the cache.
var errNoPlans = errors.New("the agent has no plans")

// newPlans returns a cache of the plans of agents, at most 20 per agent, or nil if the facilitator does not list them.
func newPlans(s *seller.Seller) *seller.Cache[toll.AgentID, []toll.PlanID] {
	f, ok := s.Facilitator.(agentPlans)
	if !ok {
		return nil
	}
	ask := func(ctx context.Context, agent toll.AgentID) ([]toll.PlanID, error) {
		ids, err := f.AgentPlanIDs(ctx, agent)
		if err == nil && len(ids) == 0 {
			err = errNoPlans
		}
		return ids[:min(len(ids), maxOffers)], err
	}
	return seller.NewCache(ask, errNoPlans, s.Timeout, s.Clock)
}
