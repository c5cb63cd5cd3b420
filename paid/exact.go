package paid

import (
	"context"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// Exact is the price of one call for a wallet, which needs neither a plan nor an account: an entry of scheme exact (x402, EIP-3009).
type Exact struct {
	// Currency is [toll.CurrencyUSDC] or [toll.CurrencyEURC], on the network of the service.
	Currency string
	// Amount is the price in base units of the token, which has 6 decimals: 10000 is a cent. It is 1 to [toll.MaxCredits].
	Amount toll.Units
	// PayTo receives the money. It must be a receiver of one of the builder's plans; zero means the first receiver of the route's plan.
	PayTo toll.Address
	// TimeoutSecs is the required validity of the signature in seconds, 30 to 1800. It bounds handler and settlement. 0 means 60 s
	// more than [HoldSecs].
	TimeoutSecs int
}

// PerCall lets any x402 wallet pay for one response, as an alternative to the plan: the 402 lists these entries after the plan's
// entry. The service executes the wallet's authorization before the first byte of a response or stream is sent, and only for a 2xx.
// Each authorization pays for one response.
//
// The service must accept such payments (x402.exact = open) to the receivers. The route checks this before the first 402 with these
// entries; while the service refuses, the 402 omits them and the log contains the reason. PerCall panics for malformed prices, and
// its route unless the facilitator is an [x402.Offerer], as the Go client and the service are. It replaces PerCall in [With].
func PerCall(prices ...Exact) Option {
	for _, p := range prices {
		seller.Exact(p).Check("paid")
	}
	prices = slices.Clone(prices)
	return func(c *config) { c.perCall = prices }
}

// exactEntries returns the entries for wallets on the network of a plan, or an error for the builder if the settings are invalid.
func (c *config) exactEntries(t *x402.Terms) ([]x402.ExactRequirements, error) {
	entries := make([]x402.ExactRequirements, 0, len(c.perCall))
	for _, p := range c.perCall {
		e, err := c.ExactEntry(t, seller.Exact(p))
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// withExact returns a copy of the demand of the route, extended by entries for wallets.
func (x *exchange) withExact(entries []x402.ExactRequirements) *x402.PaymentRequired {
	p := *x.required
	p.Accepts = slices.Clone(p.Accepts)
	for i := range entries {
		p.Accepts = append(p.Accepts, x.c.ExactTerms(&entries[i], p.Accepts[0].Extra.HTTPVerb))
	}
	return &p
}

// listed returns the wallet entries for a 402, or nil while the service refuses such payments. Concurrent requests share one call to
// the service, and use the cached result if there is one.
func (x *exchange) listed() []x402.ExactRequirements {
	if len(x.exact) == 0 {
		return nil
	}
	ask := func(ctx context.Context, _ struct{}) (bool, time.Duration, error) {
		return x.c.AskExact(ctx, x.c.plan, x.c.publicURL+"/", x.exact)
	}
	if taken, _ := x.gate.takesExact.By(x.r.Context(), struct{}{}, ask); !taken {
		return nil
	}
	return x.exact
}
