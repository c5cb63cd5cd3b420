package paidmcp

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/hold"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

const (
	plansLife = 5 * time.Minute
	maxOffers = 20 // plans of an agent that a demand names
)

// agentPlans is a facilitator that knows the plans of an agent.
type agentPlans interface {
	AgentPlanIDs(ctx context.Context, agent toll.AgentID) ([]toll.PlanID, error)
}

var errMissingPlan = &jsonrpc.Error{Code: CodeMisconfigured, Message: "Server misconfiguration: missing planId"}

// pay verifies the payment of a call with a hold. It returns the answer when the call is not paid.
func (c *call) pay(ctx context.Context) *unpaid {
	var token *x402.Token
	var broken error
	if c.cred.token != "" {
		token, broken = x402.DecodeToken(c.cred.token)
	}
	if refusal := c.offer(ctx, token); refusal != nil {
		return refusal
	}
	switch {
	case c.cred.token == "":
		return c.refuse(wordRequired, "", "")
	case broken != nil:
		e := toll.AsError(broken)
		reason := x402.ReasonInvalidPayload
		if e.Code == toll.CodeBadX402Version {
			reason = x402.ReasonInvalidVersion
		}
		return c.refuse(wordRequired, reason, e.Text())
	}
	// Whether the claims are true the facilitator says; who made them up has no money.
	said, ok := hold.ClaimsOf(token)
	if base := strings.TrimSuffix(c.cfg.EndpointURL, pathMCP); ok && base != "" && len(said.Audience) > 0 && !said.IsFor(base, c.cfg.EndpointURL) {
		return c.refuse(wordRequired, c.cfg.Namespace.ReasonResourceMismatch(), problemAudience+".")
	}
	if c.cred.bearer && bearerWarned.CompareAndSwap(false, true) {
		c.cfg.Log.Warn("paidmcp: a call was paid by its bearer token, which is deprecated: payments belong into params._meta", "key", metaPayment)
	}
	return c.verify(ctx)
}

// offer finds the plans that may pay, the one that is to pay, and what the call costs.
func (c *call) offer(ctx context.Context, token *x402.Token) *unpaid {
	plans, err := c.choosePlans(ctx, token)
	if err != nil {
		if e, ok := wireError(err); ok {
			return &unpaid{call: c, wire: e}
		}
		return c.unreachable(ctx, "reading the plans of the agent", err)
	}
	for _, id := range plans {
		t, err := c.Payments.terms.Of(ctx, id)
		if err != nil {
			if id == c.plan {
				return c.unreachable(ctx, "reading the terms of the plan", err)
			}
			continue
		}
		c.offers = append(c.offers, t)
	}
	c.demand = c.ask(c.url, c.offers)
	for _, t := range c.offers {
		if t.PlanID == c.plan {
			c.terms = t
			c.required = c.ask(c.url, []*x402.Terms{t})
		}
	}
	return nil
}

// choosePlans returns the plans that are offered and sets the one that is to pay: that of the item, else of the server, else
// of the access token, else the first of the agent.
func (c *call) choosePlans(ctx context.Context, token *x402.Token) ([]toll.PlanID, error) {
	if c.plan = c.price.plan; c.plan == "" {
		c.plan = c.cfg.PlanID
	}
	if c.plan != "" {
		return []toll.PlanID{c.plan}, nil
	}
	if c.cfg.AgentID == "" {
		return nil, errMissingPlan
	}
	plans, err := c.plans.of(ctx, c.Payments)
	if err != nil {
		return nil, err
	}
	var claimed toll.PlanID
	if token != nil {
		claimed = claimedPlan(token)
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
func (c *call) ask(resource string, offers []*x402.Terms) *x402.PaymentRequired {
	o := x402.Options{
		Namespace: c.cfg.Namespace, Endpoint: resource, AgentID: c.cfg.AgentID, HTTPVerb: "POST", Error: wordRequired,
		Description: plain.Text(c.price.description, maxSentenceRunes), MimeType: plain.Text(c.price.mimeType, maxNameRunes),
		MaxTimeoutSecs: c.cfg.HoldSecs,
	}
	if len(offers) == 0 {
		offers = []*x402.Terms{{PlanID: c.plan}}
	}
	var pr *x402.PaymentRequired
	for _, t := range offers {
		o.Amount = c.offered(t)
		one := x402.NewPaymentRequired([]*x402.Terms{t}, o)
		if pr == nil {
			pr = one
			continue
		}
		pr.Accepts = append(pr.Accepts, one.Accepts...)
	}
	return pr
}

// asked returns the credits to verify; nil is the maximum of the plan.
func (c *call) asked() *toll.Credits {
	if c.price.creditsFunc != nil {
		return nil
	}
	return max(c.price.credits, c.price.maxAmount).Ptr()
}

// offered is what a demand names: the credits to verify as the service is going to take them, within the bounds of the plan.
func (c *call) offered(t *x402.Terms) *toll.Credits {
	asked := c.asked()
	switch {
	case t.MaxAmount == 0 || asked != nil && *asked == 0:
		return asked
	case t.IsTime:
		return new(toll.Credits)
	case asked == nil:
		return t.MaxAmount.Ptr()
	}
	return t.InBounds(*asked).Ptr()
}

// verify asks for a hold, for the logical url and then, when the agent knows the other one only, for the address of the
// endpoint.
func (c *call) verify(ctx context.Context) *unpaid {
	// The hold's own end is on the clock of the service. Counted from before the call, ours is never later.
	c.holdEnd = c.cfg.Clock().Add(time.Duration(c.cfg.HoldSecs) * time.Second)
	v, err := c.verifyOnce(ctx)
	if err == nil && !v.IsValid && v.InvalidReason == c.cfg.Namespace.ReasonResourceMismatch() && c.cfg.EndpointURL != "" {
		logical := c.required.Resource.URL
		c.required.Resource.URL = c.cfg.EndpointURL
		if v, err = c.verifyOnce(ctx); err == nil && !v.IsValid {
			c.required.Resource.URL = logical
		}
	}
	if err != nil {
		return c.unreachable(ctx, "verify", err)
	}
	if !v.IsValid {
		return c.refused(ctx, v)
	}
	c.hold = hold.Payment{
		Facilitator: c.f, Timeout: c.cfg.Timeout, Required: c.required, Token: c.cred.token, PlanID: c.plan, AgentID: c.cfg.AgentID,
		Log: c.cfg.Log, Room: "paidmcp", About: []any{"item", c.url},
	}
	if err := c.hold.Accept(v, true); err != nil {
		c.hold.Release(ctx)
		return c.unreachable(ctx, "verify", err)
	}
	c.payment = Payment{
		Payer: c.hold.Payer, PlanID: c.hold.PlanID, AgentID: c.hold.AgentID, AgentRequestID: c.hold.AgentRequestID, LogicalURL: c.url,
		Amount: c.hold.Amount, Verdict: v,
	}
	return nil
}

func (c *call) verifyOnce(ctx context.Context) (*x402.VerifyResponse, error) {
	// A caller that leaves must not leave a hold behind that nobody knows of.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Timeout)
	defer cancel()
	asked := c.asked()
	if asked != nil {
		asked = c.terms.InBounds(*asked).Ptr()
	}
	return c.f.Verify(ctx, &x402.VerifyRequest{
		PaymentRequired: *c.required, AccessToken: c.cred.token, MaxAmount: asked, Hold: true, HoldSecs: c.cfg.HoldSecs,
	})
}

// refused answers a verdict that is not good.
func (c *call) refused(ctx context.Context, v *x402.VerifyResponse) *unpaid {
	switch {
	case v.InvalidReason == x402.ReasonUnauthorizedServer, v.InvalidReason == x402.ReasonVerifyFault,
		v.Code == toll.CodePaymentPlanNotFound, v.Code == toll.CodePaymentAgentNotFound:
		return c.unreachable(ctx, "verify", &toll.Error{Code: v.Code, Message: v.InvalidMessage, Reason: v.InvalidReason})
	}
	text := v.InvalidMessage
	if text == "" && v.Code != "" {
		text = toll.NewError(v.Code).Text()
	}
	return c.refuse(wordRequired, v.InvalidReason, text)
}

// unreachable answers a call to the service that failed, which is not the subscriber's fault. The builder finds the reason
// in the log.
func (c *call) unreachable(_ context.Context, what string, err error) *unpaid {
	cause := toll.AsError(err)
	c.cfg.Log.Error("paidmcp: a call to the facilitator failed", "call", what, "item", c.url, "plan", string(c.plan),
		"error", cause.Error(), "facilitatorCorrelationId", cause.CorrelationID)
	if c.demand == nil {
		c.demand = c.ask(c.url, c.offers)
	}
	return c.refuse(wordUnavailable, "", "")
}

func shortOfCredits(reason string) bool {
	switch reason {
	case x402.ReasonInsufficientFunds, x402.ReasonRedemptionLimit, x402.ReasonOrderLimit, x402.ReasonPlanExpired,
		x402.ReasonDelegationExhausted, x402.ReasonDelegationShort, x402.ReasonDelegationExpired, x402.ReasonDelegationRevoked,
		x402.ReasonDelegationNotFound:
		return true
	}
	return false
}

// plansCache keeps the plans of the agent for five minutes.
type plansCache struct {
	mu    sync.Mutex
	plans []toll.PlanID
	at    time.Time
}

// of returns the plans of the agent, at most 20; none when the facilitator does not tell.
func (k *plansCache) of(ctx context.Context, p *Payments) ([]toll.PlanID, error) {
	f, ok := p.f.(agentPlans)
	if !ok {
		return nil, nil
	}
	now := p.cfg.Clock()
	k.mu.Lock()
	plans, at := k.plans, k.at
	k.mu.Unlock()
	if len(plans) > 0 && now.Sub(at) < plansLife {
		return plans, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.cfg.Timeout)
	defer cancel()
	fresh, err := f.AgentPlanIDs(ctx, p.cfg.AgentID)
	if err != nil {
		if len(plans) > 0 {
			return plans, nil
		}
		return nil, err
	}
	fresh = fresh[:min(len(fresh), maxOffers)]
	k.mu.Lock()
	defer k.mu.Unlock()
	k.plans, k.at = fresh, now
	return fresh, nil
}
