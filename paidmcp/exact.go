package paidmcp

import (
	"context"
	"time"

	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// PerCall lets any x402 wallet pay for one call of an item with a fixed price, as an alternative to the plan: the demand lists these
// entries after the entries of the plans. The service executes the wallet's authorization before the result is sent; each authorization
// pays for one call, and a failed call uses it up without a charge. See [paid.PerCall] for the conditions and the panics.
func PerCall(prices ...paid.Exact) Option {
	out := make([]seller.Exact, len(prices))
	for i, p := range prices {
		out[i] = seller.Exact(p)
		out[i].Check("paidmcp")
	}
	return func(pr *price) { pr.perCall = out }
}

// setExact sets the entries for wallets, which need the terms of a plan.
func setExact(ctx context.Context, c *call) {
	if c.terms == nil {
		return
	}
	for _, p := range c.price.perCall {
		e, err := c.ExactEntry(c.terms, p)
		if err != nil {
			c.Log.Error("paidmcp: a PerCall price cannot be offered, so the demand omits it", "item", c.url, "plan", string(c.plan), "error", err)
			continue
		}
		c.exact = append(c.exact, e)
	}
	c.takesExact = func() bool {
		key, _ := x402.Encode(c.exact)
		taken, _ := c.taken.By(ctx, string(key), func(ctx context.Context, _ string) (bool, time.Duration, error) {
			return c.AskExact(ctx, c.plan, c.url, c.exact)
		})
		return taken
	}
}

// openExact verifies the payment of a wallet.
func openExact(ctx context.Context, c *call, o seller.Offer) (r *seller.Refusal) {
	p, err := x402.DecodeExact(c.cred.token)
	if err != nil {
		return seller.Undecodable(err)
	}
	o.PlanID = ""
	c.sale, c.entry, r = c.OpenExact(ctx, o, c.cred.token, p, c.url, "POST", c.exact)
	return r
}

// demandOf returns a demand as it is sent: with the entries for wallets, if the service settles their payments.
func demandOf(c *call, pr *x402.PaymentRequired) any {
	if len(c.exact) == 0 || !c.takesExact() {
		return pr
	}
	var accepts []any
	for _, e := range pr.Accepts {
		accepts = append(accepts, e)
	}
	for _, e := range c.exact {
		accepts = append(accepts, e)
	}
	return struct {
		*x402.PaymentRequired
		Accepts []any `json:"accepts"`
	}{pr, accepts}
}
