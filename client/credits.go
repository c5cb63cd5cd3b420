package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/cache"
	"github.com/tollhq/toll/x402"
)

// payTokenLife is the life of an access token for one request.
const payTokenLife = 5 * time.Minute

// Payer returns a payer that spends the caller's credits for these plans, or for any plan if there are none. It creates an access
// token for each request, which can burn only the price of that request, and only at that agent if one is named.
//
// The agent must be registered at the server that demands payment: an endpoint of its public record must have the scheme, host,
// and port of the request. If the entry has no agent, one of the first 100 agents of the plan must be registered there. Records
// are cached for a minute. For agents without an endpoint that has a host, see [CreditsPayer.At].
func (c *Client) Payer(plans ...toll.PlanID) *CreditsPayer {
	return &CreditsPayer{c: c, plans: plans, agents: cache.New[directoryKey, registration](directorySize)}
}

// CreditsPayer is a [Payer] of credits. It is safe for concurrent use.
type CreditsPayer struct {
	c          *Client
	plans      []toll.PlanID
	at         []string
	delegation string
	agent      toll.AgentID
	token      TokenMaker
	// agents caches where agents are registered.
	agents *cache.Cache[directoryKey, registration]
}

// At returns a payer that trusts these hosts, in the form of [HostOf], to sell the plans of [Client.Payer] if the records of
// their agents do not contain a host. It still refuses an agent that is registered elsewhere.
func (p *CreditsPayer) At(hosts ...string) *CreditsPayer {
	o := *p
	o.at = hosts
	return &o
}

// Topped returns a payer whose access tokens may each buy one order of the plan through a delegation if credits are missing. The
// purse does not count this money, so Topped only works for plans that were passed to [Client.Payer]: otherwise a server could
// make you buy its own expensive plan.
func (p *CreditsPayer) Topped(delegationID string) *CreditsPayer {
	o := *p
	o.delegation = delegationID
	return &o
}

// TokenMaker returns the access token for one request that costs at most most credits; 0 means that the plan does not charge
// credits. The token is for this agent; "" means every agent of the plan.
type TokenMaker func(
	ctx context.Context, plan toll.PlanID, agent toll.AgentID, most toll.Credits,
) (*toll.AccessToken, error)

// Using returns a payer that gets access tokens from make. It revokes a token if the receipt does not confirm the full price.
func (p *CreditsPayer) Using(make TokenMaker) *CreditsPayer {
	o := *p
	o.token = make
	return &o
}

// For returns a payer for one agent: it refuses an entry for another agent, and pays an entry without an agent with an access
// token for this one.
func (p *CreditsPayer) For(agent toll.AgentID) *CreditsPayer {
	o := *p
	o.agent = agent
	return &o
}

// Quote implements [Payer]. It returns the amount of the entry, or else the maximum of the plan.
func (p *CreditsPayer) Quote(ctx context.Context, called *url.URL, e *x402.Entry) (x402.Quote, error) {
	n := p.c.names
	if other := n.OtherBrand(e.Scheme); other != "" {
		return x402.Quote{}, errors.New(other)
	}
	if e.Scheme != n.SchemeCrypto() && e.Scheme != n.SchemeCard() {
		return x402.Quote{}, fmt.Errorf("the scheme %q cannot be paid with credits", e.Scheme)
	}
	plan, err := toll.ParsePlanID(string(e.Plan()))
	if err != nil {
		return x402.Quote{}, fmt.Errorf("the payment option has no plan id")
	}
	if p.delegation != "" && len(p.plans) == 0 {
		return x402.Quote{}, fmt.Errorf("a delegation requires plans: list the plans that the delegation can buy")
	}
	if len(p.plans) > 0 && !slices.Contains(p.plans, plan) {
		return x402.Quote{}, fmt.Errorf("the server requires credits of plan %s, which is not in the list of allowed plans", plan)
	}
	terms, err := p.c.Terms(ctx, plan)
	if err != nil {
		return x402.Quote{}, fmt.Errorf("plan %s: %w", plan, err)
	}
	if e.Scheme != terms.Scheme || !x402.SameNetwork(e.Network, terms.Network, environmentOf(terms.Network)) {
		return x402.Quote{}, fmt.Errorf("the payment option does not match plan %s, which uses scheme %s on %s",
			plan, terms.Scheme, terms.Network)
	}
	if err := p.checkAgent(ctx, called, plan, e); err != nil {
		return x402.Quote{}, err
	}
	most := terms.MaxAmount
	if e.Amount != "" {
		if most, err = toll.ParseCredits(e.Amount); err != nil {
			return x402.Quote{}, fmt.Errorf("the amount %.40q is not a whole number of credits", e.Amount)
		}
	}
	switch {
	case !terms.Kind.Charges():
		most = 0
	case most == 0:
		// An access token cannot be limited to 0 credits, and one without a limit may burn all of them.
		return x402.Quote{}, fmt.Errorf("the payment option costs 0 credits of plan %s", plan)
	}
	return x402.Quote{Unit: x402.UnitCredits, Amount: toll.UnitsOf(int64(most))}, nil
}

func environmentOf(network string) toll.Environment {
	if network == toll.Live.Network() || network == toll.Live.CardNetwork() {
		return toll.Live
	}
	return toll.Sandbox
}

// Pay implements [Payer] with an access token.
func (p *CreditsPayer) Pay(ctx context.Context, e *x402.Entry, q x402.Quote) (*x402.Payment, error) {
	most, err := toll.ParseCredits(q.Amount.String())
	if err != nil {
		return nil, err
	}
	make := p.token
	if make == nil {
		make = p.makeToken
	}
	t, err := make(ctx, e.Plan(), cmp.Or(e.Agent(), p.agent), most)
	if err != nil {
		return nil, err
	}
	payload, err := x402.NewCreditsPayload(t.AccessToken)
	if err != nil {
		return nil, err
	}
	hash := t.PermissionHash
	spent := func(ctx context.Context, r *x402.Settlement) (toll.Units, bool) {
		if r.Success && cmp.Or(r.CreditsRedeemed, r.Amount) == q.Amount.String() {
			return q.Amount, true
		}
		n, final, _ := p.burned(ctx, hash)
		return n, final
	}
	return &x402.Payment{Payload: payload, Permission: &hash, Spent: spent}, nil
}

// makeToken is the default [TokenMaker].
func (p *CreditsPayer) makeToken(ctx context.Context, plan toll.PlanID, agent toll.AgentID, most toll.Credits) (*toll.AccessToken, error) {
	opts := []TokenOption{WithExpiry(payTokenLife)}
	if most > 0 {
		opts = append(opts, WithRedemptionLimit(most))
	}
	if agent != "" {
		opts = append(opts, WithAgent(agent))
	}
	if p.delegation != "" {
		opts = append(opts, WithDelegation(p.delegation), WithOrderLimit(1))
	}
	return p.c.AccessToken(ctx, plan, opts...)
}

// burned revokes an access token and reads how many credits it burned: a server that reports less than the price could burn the
// remainder later. final is false while a hold is open, which can still burn credits.
func (p *CreditsPayer) burned(ctx context.Context, hash toll.Hash) (spent toll.Units, final bool, err error) {
	// The record below contains the state, so the error does not matter.
	_ = p.c.RevokePermission(ctx, hash)
	record, err := p.c.Permission(ctx, hash)
	if err != nil {
		return toll.Units{}, false, err
	}
	return toll.UnitsOf(int64(record.UsedCredits)), record.Closed, nil
}

// Check reads the outcome of a credits payment in state [PaymentSent] or [PaymentUnknown] from the service and returns the
// updated payment: paid or refused once no more of it can be burned, else unchanged, so that it still counts in full. The
// caller records the result with Close of its [Purse]. Other payments are returned unchanged.
//
// Check does not disturb a request that may still be in progress. Once the access token has expired, after five minutes, Check
// revokes it, so that lapsed holds can no longer be settled.
//
// Errors: [toll.CodePermissionNotFound] for a payment of another workspace or service, and the errors of any call.
func (p *CreditsPayer) Check(ctx context.Context, paid Payment) (Payment, error) {
	open := paid.State == PaymentSent || paid.State == PaymentUnknown
	if !open || paid.Permission == nil {
		return paid, nil
	}
	record, err := p.c.Permission(ctx, *paid.Permission)
	if err != nil {
		return paid, err
	}
	spent, final := toll.UnitsOf(int64(record.UsedCredits)), record.Closed
	if !final && record.Status == toll.StatusExpired {
		spent, final, err = p.burned(ctx, *paid.Permission)
	}
	switch {
	case err != nil || !final:
	case spent.IsZero():
		paid.State = PaymentRefused
	default:
		paid.State, paid.Spent = PaymentPaid, spent
	}
	return paid, err
}
