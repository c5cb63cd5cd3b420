// Package hold is what the middlewares for HTTP, MCP and A2A have in common: a payment that was verified, until it is settled or
// its hold is released, and the terms of the plans that pay.
package hold

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// Tries is how often a settlement is asked for, under one id, before an answer is given without its outcome.
const Tries = 3

const (
	firstDelay     = 100 * time.Millisecond
	maxDelay       = 2 * time.Second
	releaseTimeout = 10 * time.Second
)

// ErrNoHold says that a verdict is good and still nothing to work for.
var ErrNoHold = errors.New("the facilitator confirmed a payment without an id or without its hold")

// Payment is a payment that was verified, and may have a hold.
type Payment struct {
	Facilitator x402.Facilitator
	Timeout     time.Duration         // of each call
	Required    *x402.PaymentRequired // what was verified, and is settled
	Token       string
	// Stock is the payment of a wallet (scheme exact), in place of Token, and nil of others. Amount is in base units then.
	Stock *x402.StockPayment
	Log   *slog.Logger
	Room  string // begins each line of the log
	About []any  // attributes of each line, besides the id of the request

	Payer          string
	PlanID         toll.PlanID
	AgentID        toll.AgentID
	AgentRequestID string       // "" when there is nothing to settle and to release
	Amount         toll.Credits // credits set aside, the most that the request can cost; of a wallet what it pays
}

// Accept takes over what a good verdict says. With held a hold was asked for. The error is [ErrNoHold], and the payment then is
// to be released: the verdict names no request, or a hold was asked for and there is none.
func (p *Payment) Accept(v *x402.VerifyResponse, held bool) error {
	p.Payer, p.AgentRequestID = v.Payer, v.AgentRequestID
	if v.AgentID != "" {
		p.AgentID = v.AgentID
	}
	if v.Amount != nil {
		p.Amount = *v.Amount
	}
	there := v.Extra != nil && v.Extra.HeldAmount != nil
	if there {
		p.Amount = *v.Extra.HeldAmount
	}
	if v.AgentRequestID == "" || held && !there && p.Amount > 0 {
		return ErrNoHold
	}
	return nil
}

// Settle burns the amount under the id of the request, or has the payment of a wallet carried out, whatever becomes of ctx, in so
// many tries. known is false when nobody can say whether that was done; the answer then is settlement_pending.
func (p *Payment) Settle(ctx context.Context, amount toll.Credits, tries int) (s *x402.SettleResponse, known bool) {
	ctx = context.WithoutCancel(ctx) // a caller that leaves now has its answer settled
	under := false                   // an earlier try may have set the payment of a wallet going
	for try := 1; ; try++ {
		s, again, wait := p.SettleOnce(ctx, amount)
		if under && !s.Success && !decided(s.ErrorReason) {
			u := *s
			u.ErrorReason, u.Code, u.Raw = x402.ReasonPending, toll.CodeSettlementPending, nil
			s = &u
		}
		if !again || try >= tries {
			return s, s.Success || s.ErrorReason != x402.ReasonPending
		}
		under = p.Stock != nil
		time.Sleep(max(min(firstDelay<<(2*(try-1)), maxDelay), min(wait, maxDelay)))
	}
}

// decided reports whether a refusal is about what the chain made of the payment of a wallet. Others are about the call: a key that was
// revoked, a receiver that was taken out of its plan.
func decided(reason string) bool {
	return strings.HasPrefix(reason, "invalid_exact_") || reason == x402.ReasonTransactionState
}

// SettleOnce makes one attempt. again says that the outcome is unknown and that a repeat may tell, after wait at least.
func (p *Payment) SettleOnce(ctx context.Context, amount toll.Credits) (s *x402.SettleResponse, again bool, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	req := &x402.SettleRequest{PaymentRequired: *p.Required, AccessToken: p.Token, MaxAmount: amount.Ptr(), AgentRequestID: p.AgentRequestID}
	network := p.Required.Accepts[0].Network
	if p.Stock != nil {
		req, network = &x402.SettleRequest{Stock: p.Stock}, p.Stock.Requirements.Network
	}
	s, err := p.Facilitator.Settle(ctx, req)
	if err == nil && p.believe(s, amount) {
		return s, !s.Success && s.ErrorReason == x402.ReasonPending, 0
	}
	e := toll.Errorf(toll.CodeInternal, "The answer is none to this settlement.")
	if err != nil {
		e = toll.AsError(err)
	}
	p.Log.Error(p.Room+": a settlement has no outcome yet", p.about("error", e.Error(), "facilitatorCorrelationId", e.CorrelationID)...)
	return &x402.SettleResponse{
		ErrorReason: x402.ReasonPending, ErrorMessage: "The outcome of the settlement is not known yet.", Code: toll.CodeSettlementPending,
		Network: network, Payer: p.Payer, Extra: &x402.SettleExtra{AgentRequestID: p.AgentRequestID, PlanID: p.PlanID, AgentID: p.AgentID},
	}, passing(e), time.Duration(e.RetryAfterSecs) * time.Second
}

// believe reports whether an answer is one to this settlement. A success names its transaction; where nothing was to be burned, a
// facilitator of others may have none (x402 scheme upto: "empty string if $0 settlement"). What names a request names this one. That
// of a wallet names payer, network and amount as well, as no request does it for them.
func (p *Payment) believe(s *x402.SettleResponse, amount toll.Credits) bool {
	switch {
	case s == nil, s.Success && s.Transaction == "" && amount > 0:
		return false
	case s.Success && p.Stock != nil:
		return strings.EqualFold(s.Payer, p.Payer) && s.Network == p.Stock.Requirements.Network && s.Amount != nil && *s.Amount == amount
	}
	return s.Extra == nil || s.Extra.AgentRequestID == "" || s.Extra.AgentRequestID == p.AgentRequestID
}

// Release gives the hold back, whatever becomes of ctx. It lapses by itself when that fails.
func (p *Payment) Release(ctx context.Context) {
	if p.AgentRequestID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(p.Timeout, releaseTimeout))
	defer cancel()
	var err error
	for try := range 2 {
		if try > 0 {
			time.Sleep(firstDelay)
		}
		if _, err = p.Facilitator.Release(ctx, &x402.ReleaseRequest{AgentRequestID: p.AgentRequestID}); err == nil {
			return
		}
		if s := toll.AsError(err).HTTPStatus(); s < 500 && s != http.StatusTooManyRequests {
			break
		}
	}
	p.Log.Warn(p.Room+": a hold was not released and will lapse", p.about("error", toll.AsError(err).Error())...)
}

func (p *Payment) about(more ...any) []any {
	return slices.Concat(p.About, []any{"agentRequestId", p.AgentRequestID}, more)
}

// passing reports whether a call that failed may succeed later.
func passing(e *toll.Error) bool {
	status := e.HTTPStatus()
	return status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
}
