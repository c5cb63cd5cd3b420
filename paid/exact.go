package paid

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	minExactSecs   = 30
	maxExactSecs   = 1800
	exactChainSecs = 60 // after the life of a hold, for the settlement on the chain

	exactLife     = 5 * time.Minute  // life of a cached confirmation that the service settles the entries of a route
	exactRecovery = 5 * time.Second  // pause after a failed call
	exactPause    = 10 * time.Second // pause after a refusal
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
		amount, err := toll.ParseCredits(p.Amount.String()) // base units have the range of credits
		switch {
		case p.Currency != toll.CurrencyUSDC && p.Currency != toll.CurrencyEURC:
			panic("paid: PerCall accepts USDC and EURC, not " + p.Currency)
		case err != nil || amount == 0:
			panic("paid: PerCall needs an amount of 1 to 9223372036854775807 base units, not " + p.Amount.String())
		case p.TimeoutSecs != 0 && (p.TimeoutSecs < minExactSecs || p.TimeoutSecs > maxExactSecs):
			panic(fmt.Sprintf("paid: TimeoutSecs of PerCall must be %d to %d", minExactSecs, maxExactSecs))
		}
	}
	prices = slices.Clone(prices)
	return func(c *config) { c.perCall = prices }
}

// exactEntries returns the entries for wallets on the network of a plan, or an error for the builder if the settings are invalid.
func (c *config) exactEntries(t *x402.Terms) ([]x402.ExactRequirements, error) {
	entries := make([]x402.ExactRequirements, 0, len(c.perCall))
	for _, p := range c.perCall {
		e, err := c.exactEntry(t, p)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (c *config) exactEntry(t *x402.Terms, p Exact) (x402.ExactRequirements, error) {
	env := toll.Sandbox
	switch t.Network {
	case toll.Sandbox.Network(), toll.Sandbox.CardNetwork():
	case toll.Live.Network(), toll.Live.CardNetwork():
		env = toll.Live
	default:
		return x402.ExactRequirements{}, fmt.Errorf("the network %s of the plan has no known USDC and EURC tokens", t.Network)
	}
	payTo := p.PayTo
	if payTo.IsZero() {
		var err error
		if payTo, err = toll.ParseAddress(t.PayTo); err != nil || payTo.IsZero() {
			return x402.ExactRequirements{}, errors.New("the plan has no receiver: set PayTo")
		}
	}
	asset, domain := tokenOf(env, p.Currency)
	return x402.ExactRequirements{
		Scheme: x402.SchemeExact, Network: env.Network(), Amount: p.Amount.String(), Asset: asset.String(), PayTo: payTo.String(),
		MaxTimeoutSeconds: toll.Int(cmp.Or(p.TimeoutSecs, c.HoldSecs+exactChainSecs)),
		Extra:             x402.ExactExtra{Name: domain, Version: "2", AssetTransferMethod: x402.MethodEIP3009},
	}, nil
}

// tokenOf returns the contract of a token and the name of its EIP-712 domain, whose version is 2.
func tokenOf(env toll.Environment, currency string) (asset toll.Address, domain string) {
	switch {
	case currency == toll.CurrencyEURC:
		return env.EURC(), "EURC"
	case env == toll.Live:
		return env.USDC(), "USD Coin"
	}
	return env.USDC(), "USDC"
}

// asRequirements converts an entry for the facilitator. It adds agent and verb, which distinguish routes with equal entries.
func (x *exchange) asRequirements(e *x402.ExactRequirements) x402.Requirements {
	return x402.Requirements{
		Scheme: e.Scheme, Network: e.Network, Amount: e.Amount, Asset: e.Asset, PayTo: e.PayTo, MaxTimeoutSeconds: e.MaxTimeoutSeconds,
		Extra: x402.RequirementsExtra{
			Version: e.Extra.Version, AgentID: string(x.c.AgentID), HTTPVerb: x.required.Accepts[0].Extra.HTTPVerb,
		},
	}
}

// withExact returns a copy of the demand of the route, extended by entries for wallets.
func (x *exchange) withExact(entries []x402.ExactRequirements) *x402.PaymentRequired {
	p := *x.required
	p.Accepts = slices.Clone(p.Accepts)
	for i := range entries {
		p.Accepts = append(p.Accepts, x.asRequirements(&entries[i]))
	}
	return &p
}

// listed returns the wallet entries for a 402, or nil while the service refuses such payments. Concurrent requests share one call to
// the service, and use the cached result if there is one.
func (x *exchange) listed() []x402.ExactRequirements {
	if len(x.exact) == 0 {
		return nil
	}
	if taken, _ := x.gate.takesExact.By(x.r.Context(), struct{}{}, x.askExact); !taken {
		return nil
	}
	return x.exact
}

// askExact checks whether the service settles the entries of the route, by requesting offers, which it signs only for such entries.
// The call does not depend on the request, because other requests share its result.
func (x *exchange) askExact(ctx context.Context, _ struct{}) (taken bool, keep time.Duration, err error) {
	asked := x.withExact(x.exact)
	asked.Accepts = asked.Accepts[len(x.required.Accepts):]
	for i := range asked.Accepts {
		asked.Accepts[i].Extra.HTTPVerb = ""
	}
	asked.Resource.URL = x.c.publicURL + "/"
	_, err = x.c.Facilitator.(x402.Offerer).Offers(ctx, &x402.OffersRequest{PaymentRequired: *asked})
	if err == nil {
		return true, exactLife, nil
	}
	e := toll.AsError(err)
	if away := e.HTTPStatus() >= 500 || e.HTTPStatus() == http.StatusTooManyRequests; away {
		x.c.Log.Warn("paid: cannot check whether the service settles wallet payments", "plan", string(x.c.plan), "error", e.Error())
		return false, exactRecovery, err
	}
	x.c.Log.Error("paid: the service rejected the PerCall prices, so the 402 response omits them",
		"plan", string(x.c.plan), "error", e.Error())
	return false, exactPause, nil
}
