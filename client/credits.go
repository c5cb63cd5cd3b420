package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// payTokenLife is the life of an access token that is made for one request.
const payTokenLife = 5 * time.Minute

// Payer pays with the credits that the account of the key has on these plans, and on any plan of the service when none is
// named. Each request gets an access token of its own, which can burn what that request may cost and is good at the agent
// that asks: a server that keeps it has nothing.
func (c *Client) Payer(plans ...toll.PlanID) *CreditsPayer { return &CreditsPayer{c: c, plans: plans} }

// CreditsPayer is a [Payer] of credits.
type CreditsPayer struct {
	c          *Client
	plans      []toll.PlanID
	delegation string
}

// Topped returns a payer whose access tokens may buy one more order of the plan when credits are short, through a delegation. What
// that costs is no credits and counts in no purse, so it is only for plans that were named to [Client.Payer]: else a server could
// have a dear plan of its own bought.
func (p *CreditsPayer) Topped(delegationID string) *CreditsPayer {
	o := *p
	o.delegation = delegationID
	return &o
}

// Quote is part of [Payer]: the amount of the entry, else the most that the plan asks for a request.
func (p *CreditsPayer) Quote(ctx context.Context, e *x402.Entry) (x402.Quote, error) {
	n := p.c.names
	if e.Scheme != n.SchemeCrypto() && e.Scheme != n.SchemeCard() {
		return x402.Quote{}, fmt.Errorf("the scheme %q is not paid with credits", e.Scheme)
	}
	plan, err := toll.ParsePlanID(string(e.Plan()))
	if err != nil {
		return x402.Quote{}, fmt.Errorf("the entry names no plan")
	}
	if p.delegation != "" && len(p.plans) == 0 {
		return x402.Quote{}, fmt.Errorf("a delegation buys credits of plans that are named, and none is")
	}
	if len(p.plans) > 0 && !slices.Contains(p.plans, plan) {
		return x402.Quote{}, fmt.Errorf("it asks for credits of plan %s, which is not to be spent", plan)
	}
	terms, err := p.c.Terms(ctx, plan)
	if err != nil {
		return x402.Quote{}, fmt.Errorf("plan %s: %w", plan, err)
	}
	if e.Scheme != terms.Scheme || !x402.SameNetwork(e.Network, terms.Network, environmentOf(terms.Network)) {
		return x402.Quote{}, fmt.Errorf("plan %s is of scheme %s on %s", plan, terms.Scheme, terms.Network)
	}
	most := terms.MaxAmount
	if e.Amount != "" {
		if most, err = toll.ParseCredits(e.Amount); err != nil {
			return x402.Quote{}, fmt.Errorf("the amount %.40q is no number of credits", e.Amount)
		}
	}
	switch {
	case terms.IsTime:
		most = 0
	case most == 0:
		// An access token that may burn nothing cannot be had, and one without a limit may burn all there is.
		return x402.Quote{}, fmt.Errorf("it asks for 0 credits of plan %s", plan)
	}
	return x402.Quote{Unit: x402.UnitCredits, Amount: toll.UnitsOf(int64(most))}, nil
}

func environmentOf(network string) toll.Environment {
	if network == toll.Live.Network() || network == toll.Live.CardNetwork() {
		return toll.Live
	}
	return toll.Sandbox
}

// Pay is part of [Payer]: it makes an access token.
func (p *CreditsPayer) Pay(ctx context.Context, e *x402.Entry, q x402.Quote) (*x402.Payment, error) {
	opts := []TokenOption{WithExpiry(payTokenLife)}
	most, err := toll.ParseCredits(q.Amount.String())
	if err != nil {
		return nil, err
	}
	if most > 0 {
		opts = append(opts, WithRedemptionLimit(most))
	}
	if agent := e.Agent(); agent != "" {
		opts = append(opts, WithAgent(agent))
	}
	if p.delegation != "" {
		opts = append(opts, WithDelegation(p.delegation), WithOrderLimit(1))
	}
	t, err := p.c.AccessToken(ctx, e.Plan(), opts...)
	if err != nil {
		return nil, err
	}
	payload, err := x402.NewCreditsPayload(t.AccessToken)
	if err != nil {
		return nil, err
	}
	return &x402.Payment{Payload: payload, Spent: func(ctx context.Context, r *x402.Settlement) (toll.Units, bool) {
		if r.Success && cmp.Or(r.CreditsRedeemed, r.Amount) == q.Amount.String() {
			return q.Amount, true
		}
		return p.burned(ctx, e.Plan(), t.PermissionHash)
	}}, nil
}

// burned ends an access token and asks the service what it has burned: a server that says it took less may take it still. That
// is sure when nothing is held any more, as a hold outlives its token.
func (p *CreditsPayer) burned(ctx context.Context, plan toll.PlanID, hash toll.Hash) (toll.Units, bool) {
	if err := p.c.RevokePermission(ctx, hash); err != nil {
		return toll.Units{}, false
	}
	balance, err := p.c.Balance(ctx, plan)
	if err != nil || balance.Held > 0 {
		return toll.Units{}, false
	}
	record, err := p.c.Permission(ctx, hash)
	if err != nil {
		return toll.Units{}, false
	}
	return toll.UnitsOf(int64(record.UsedCredits)), true
}
