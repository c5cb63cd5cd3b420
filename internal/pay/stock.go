package pay

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/refusal"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/x402"
)

// stockGrace is how much longer than its server says a hold of a stock request lives: the settle travels too.
const stockGrace = 15 * time.Second

// stockAmount returns the amount of stock requirements, nil when they name none.
func stockAmount(p *payment) (*toll.Credits, *toll.Error) {
	if p.entry.Amount == "" {
		return nil, nil
	}
	n, err := toll.ParseCredits(p.entry.Amount)
	if err != nil {
		return nil, outOfRange(p)
	}
	return &n, nil
}

func outOfRange(p *payment) *toll.Error {
	burns := p.plan.Credits.MaxAmount.Text()
	if least := p.plan.Credits.MinAmount; least != p.plan.Credits.MaxAmount {
		burns = least.String() + " to " + burns
	}
	return refusal.New(toll.CodeAmountOutOfRange, x402.ReasonAmountOutOfRange, "A request of this plan costs "+burns+".")
}

// inBounds refuses an amount below the minimum of the plan: more than was asked for would be burned. On the stock body it
// refuses one above the maximum as well, as a stock server has no way to learn that less is burned. nil is no amount.
func inBounds(p *payment, n *toll.Credits) *toll.Error {
	if n == nil || *n == 0 || !p.plan.Kind().Charges() {
		return nil
	}
	if *n < p.plan.Credits.MinAmount || p.stock && *n > p.plan.Credits.MaxAmount {
		return outOfRange(p)
	}
	return nil
}

// settleBounds is inBounds for a settle. On the stock body an amount above what is held is told as that; what was settled is
// for the ledger to judge.
func (f *Facilitator) settleBounds(ctx context.Context, p *payment, id string, n *toll.Credits) *toll.Error {
	e := inBounds(p, n)
	if e == nil {
		return nil
	}
	if p.stock {
		id = ""
	}
	r, known, err := f.known(ctx, p, id)
	switch {
	case err != nil:
		return toll.AsError(err)
	case !known:
		return f.afterToken(ctx, p, e)
	case r.State != ledger.StateHeld && r.State != ledger.StateLapsed || r.Permission != p.claims.Hash:
		return nil
	case p.stock && *n > r.Held:
		return refusal.By(f.brand.Names, &ledger.Refusal{Kind: ledger.ExceedsHold, Needed: *n, Available: r.Held})
	}
	return e
}

// Supported says which payments are served, for the start of stock servers.
func (f *Facilitator) Supported() *x402.Supported {
	extra := x402.SupportedExtra{Version: "1", CreditsAsset: f.brand.Names.Asset()}
	s := &x402.Supported{
		Kinds:      []x402.SupportedKind{{X402Version: x402.Version, Scheme: f.brand.Names.SchemeCrypto(), Network: f.brand.Environment.Network(), Extra: extra}},
		Extensions: []string{x402.ExtensionBazaar, x402.ExtensionPaymentIdentifier}, Signers: map[string][]string{},
	}
	if !f.Service.IsZero() {
		s.Signers["eip155:*"] = []string{f.Service.String()}
	}
	if f.Checkout.TakesCards() {
		s.Kinds = append(s.Kinds, x402.SupportedKind{
			X402Version: x402.Version, Scheme: f.brand.Names.SchemeCard(), Network: f.brand.Environment.CardNetwork(), Extra: extra,
		})
	}
	if f.Purchases.Exact.Open() {
		s.Kinds = append(s.Kinds, x402.SupportedKind{X402Version: x402.Version, Scheme: x402.SchemeExact, Network: f.brand.Environment.Network()})
	}
	return s
}

// withMargin returns what the recorded parts of a request cost with a margin on it. Errors: [toll.CodeMarginOnFixedPlan],
// [toll.CodeMarginWithoutSubTasks].
func (f *Facilitator) withMargin(ctx context.Context, p *payment, id string, m x402.Margin) (*toll.Credits, *toll.Error) {
	if p.plan.Credits.IsRedemptionAmountFixed {
		return nil, refusal.New(toll.CodeMarginOnFixedPlan, x402.ReasonInvalidPayload, "")
	}
	none := refusal.New(toll.CodeMarginWithoutSubTasks, x402.ReasonInvalidPayload, "").
		WithHint("Record sub-tasks with this agentRequestId and their credits, or send maxAmount.")
	if id == "" {
		r, known, err := f.known(ctx, p, "")
		if err != nil {
			return nil, toll.AsError(err)
		}
		if !known {
			return nil, none
		}
		id = r.ID
	}
	sum, err := store.SubTaskCredits(ctx, f.Store, p.account, id)
	if err != nil {
		return nil, toll.AsError(err)
	}
	if sum == 0 {
		return nil, none
	}
	n := m.On(sum)
	return &n, nil
}
