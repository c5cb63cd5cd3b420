package seller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	minExactSecs   = 30
	maxExactSecs   = 1800
	exactChainSecs = 60 // after the life of a hold, for the settlement on the chain

	exactLife     = 5 * time.Minute  // life of a cached confirmation that the service settles the entries for wallets
	exactRecovery = 5 * time.Second  // pause after a failed call
	exactPause    = 10 * time.Second // pause after a refusal
)

// Exact is the price of one call for a wallet. Package paid documents it.
type Exact struct {
	Currency    string
	Amount      toll.Units
	PayTo       toll.Address
	TimeoutSecs int
}

// Check panics for a malformed price. The panic message begins with room.
func (p Exact) Check(room string) {
	amount, err := toll.ParseCredits(p.Amount.String()) // base units have the range of credits
	switch {
	case p.Currency != toll.CurrencyUSDC && p.Currency != toll.CurrencyEURC:
		panic(room + ": PerCall accepts USDC and EURC, not " + p.Currency)
	case err != nil || amount == 0:
		panic(room + ": PerCall needs an amount of 1 to 9223372036854775807 base units, not " + p.Amount.String())
	case p.TimeoutSecs != 0 && (p.TimeoutSecs < minExactSecs || p.TimeoutSecs > maxExactSecs):
		panic(fmt.Sprintf("%s: TimeoutSecs of PerCall must be %d to %d", room, minExactSecs, maxExactSecs))
	}
}

// CheckOfferer panics unless the facilitator signs offers, which tell whether it settles the payments of wallets.
func CheckOfferer(f x402.Facilitator, room string) {
	if _, ok := f.(x402.Offerer); !ok {
		panic(room + ": PerCall needs a facilitator that signs offers, such as client.Client")
	}
}

// ExactEntry returns the entry for wallets on the network of a plan, or an error for the builder if the settings are invalid.
func (s *Seller) ExactEntry(t *x402.Terms, p Exact) (x402.ExactRequirements, error) {
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
		MaxTimeoutSeconds: toll.Int(cmp.Or(p.TimeoutSecs, s.HoldSecs+exactChainSecs)),
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

// ExactTerms converts an entry for the facilitator. It adds agent and verb, which distinguish routes with equal entries.
func (s *Seller) ExactTerms(e *x402.ExactRequirements, verb string) x402.Requirements {
	return x402.Requirements{
		Scheme: e.Scheme, Network: e.Network, Amount: e.Amount, Asset: e.Asset, PayTo: e.PayTo, MaxTimeoutSeconds: e.MaxTimeoutSeconds,
		Extra: x402.RequirementsExtra{Version: e.Extra.Version, AgentID: string(s.AgentID), HTTPVerb: verb},
	}
}

// AskExact checks whether the service settles the entries, by requesting offers for a URL, which it signs only for such entries. It
// returns how long to cache the result. Callers share it, so it must not depend on a request.
func (s *Seller) AskExact(ctx context.Context, plan toll.PlanID, url string, entries []x402.ExactRequirements) (taken bool, keep time.Duration, err error) {
	asked := x402.PaymentRequired{X402Version: x402.Version}
	asked.Resource.URL = url
	for i := range entries {
		asked.Accepts = append(asked.Accepts, s.ExactTerms(&entries[i], ""))
	}
	_, err = s.Facilitator.(x402.Offerer).Offers(ctx, &x402.OffersRequest{PaymentRequired: asked})
	if err == nil {
		return true, exactLife, nil
	}
	e := toll.AsError(err)
	if away := e.HTTPStatus() >= 500 || e.HTTPStatus() == http.StatusTooManyRequests; away {
		s.Log.Warn(s.Room+": cannot check whether the service settles wallet payments", "plan", string(plan), "error", e.Error())
		return false, exactRecovery, err
	}
	s.Log.Error(s.Room+": the service rejected the PerCall prices, so the 402 response omits them", "plan", string(plan), "error", e.Error())
	return false, exactPause, nil
}

// SchemeOf returns the scheme of the accepted entry of a payment, or "" for a bare access token or a malformed payment.
func SchemeOf(value string) string {
	var p struct {
		Accepted struct {
			Scheme string `json:"scheme"`
		} `json:"accepted"`
	}
	if x402.DecodeHeader(value, &p) != nil {
		return ""
	}
	return p.Accepted.Scheme
}

// OpenExact is [Seller.OpenStock] for a payment for a URL. The accepted entry in the payment only selects one of the entries, which
// set the terms. verb is the HTTP verb of the URL.
func (s *Seller) OpenExact(
	ctx context.Context, o Offer, value string, p *x402.ExactPayment, url, verb string, entries []x402.ExactRequirements,
) (*Sale, *x402.ExactRequirements, *Refusal) {
	bad := func(why string) (*Sale, *x402.ExactRequirements, *Refusal) {
		return nil, nil, &Refusal{Reason: x402.ReasonInvalidRequirements, Err: toll.Errorf(toll.CodeBadRequirements, "%s", why)}
	}
	// A shortened 402 names the resource without its query.
	short, _, _ := strings.Cut(url, "?")
	if p.ResourceURL != "" && p.ResourceURL != url && p.ResourceURL != short {
		return bad("The payment is for another resource.")
	}
	for i := range entries {
		entry := &entries[i]
		if !entry.Pays(&p.Accepted) {
			continue
		}
		amount, err := toll.ParseCredits(entry.Amount)
		if err != nil {
			return nil, nil, s.Unavailable("verify", &o, err)
		}
		from := p.Authorization.From.String()
		sale, refusal := s.OpenStock(ctx, o, Sale{
			Stock: &x402.StockPayment{Payload: value, Requirements: s.ExactTerms(entry, verb)}, Payer: from, Amount: amount,
			About: []any{"payer", from, "nonce", p.Authorization.Nonce.String()},
		})
		return sale, entry, refusal
	}
	return bad("This route does not offer the payment option in accepted.")
}
