package seller

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/backoff"
	"github.com/tollhq/toll/x402"
)

// Tries is how often a settlement is attempted, under one id, before the response leaves without its outcome.
const Tries = 3

const (
	firstDelay     = 100 * time.Millisecond
	maxDelay       = 2 * time.Second
	releaseTimeout = 10 * time.Second
)

// Settle burns the amount under the id of the request, or executes the payment of a wallet, in up to tries attempts. It
// continues when ctx ends. known is false if the outcome is unknown; the response then is settlement_pending.
func (p *Sale) Settle(ctx context.Context, amount toll.Credits, tries int) (s *x402.SettleResponse, known bool) {
	ctx = context.WithoutCancel(ctx) // a caller that leaves now has its answer settled
	defer func() { p.outcome(ctx, s) }()
	under := false // an earlier try may have set the payment of a wallet going
	for try := 1; ; try++ {
		s, again, wait := p.settleOnce(ctx, amount)
		if under && !s.Success && !decided(s.ErrorReason) {
			u := *s
			u.ErrorReason, u.Code, u.Raw = x402.ReasonPending, toll.CodeSettlementPending, nil
			s = &u
		}
		if !again || try >= tries {
			return s, s.Success || s.ErrorReason != x402.ReasonPending
		}
		under = p.Stock != nil
		time.Sleep(max(backoff.Double(firstDelay, maxDelay, 2*try-1), min(wait, maxDelay)))
	}
}

// outcome logs a failed settlement and calls Settled.
func (p *Sale) outcome(ctx context.Context, s *x402.SettleResponse) {
	if !s.Success {
		p.Log.Warn(p.Room+": a settlement failed", p.about("reason", s.ErrorReason, "code", string(s.Code))...)
	}
	if p.Settled != nil {
		p.Settled(ctx, s)
	}
}

// Later passes delivered work to the queue after a settlement without an outcome, and raises the alarm if it was refused
// (known).
func (p *Sale) Later(amount toll.Credits, delivered int64, s *x402.SettleResponse, known bool) {
	p.Queue.add(p, Unsettled{
		AgentRequestID: p.AgentRequestID, PlanID: p.PlanID, Payer: p.Payer, Credits: amount, Bytes: delivered, Attempts: p.tries,
		Since: p.Clock(), Reason: s.ErrorReason, Final: known,
	})
}

// unsettled raises the alarm for delivered work that is not settled.
func (p *Sale) unsettled(u Unsettled) {
	p.Log.Error(p.Room+": a delivered stream is not settled", p.about("plan", string(u.PlanID), "payer", u.Payer, "credits", u.Credits.String(),
		"bytes", u.Bytes, "attempts", u.Attempts, "reason", u.Reason, "final", u.Final)...)
	if p.OnUnsettled != nil {
		p.OnUnsettled(u)
	}
}

// decided reports whether a refusal states what the chain did with the payment of a wallet. Other refusals are about the call,
// such as a revoked key or a receiver that was removed from its plan.
func decided(reason string) bool {
	return strings.HasPrefix(reason, "invalid_exact_") || reason == x402.ReasonTransactionState
}

// settleOnce makes one attempt. again means that the outcome is unknown and a repeat, after wait at least, may tell it.
func (p *Sale) settleOnce(ctx context.Context, amount toll.Credits) (s *x402.SettleResponse, again bool, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	p.tries++
	req := &x402.SettleRequest{PaymentRequired: *p.Required, AccessToken: p.Token, MaxAmount: amount.Ptr(), AgentRequestID: p.AgentRequestID}
	network := p.Required.Accepts[0].Network
	if p.Stock != nil {
		req, network = &x402.SettleRequest{Stock: p.Stock}, p.Stock.Requirements.Network
	}
	s, err := p.Facilitator.Settle(ctx, req)
	if err == nil && p.confirms(s, amount) {
		return s, !s.Success && s.ErrorReason == x402.ReasonPending, 0
	}
	e := toll.Errorf(toll.CodeInternal, "The answer is not to this settlement.")
	if err != nil {
		e = toll.AsError(err)
	}
	status := e.HTTPStatus()
	passes := status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout // it may succeed later
	p.Log.Error(p.Room+": a settlement has no outcome yet", p.about("error", e.Error(), "facilitatorCorrelationId", e.CorrelationID)...)
	return &x402.SettleResponse{
		ErrorReason: x402.ReasonPending, ErrorMessage: "The outcome of the settlement is not known yet.", Code: toll.CodeSettlementPending,
		Network: network, Payer: p.Payer, Extra: &x402.SettleExtra{AgentRequestID: p.AgentRequestID, PlanID: p.PlanID, AgentID: p.AgentID},
	}, passes, time.Duration(e.RetryAfterSecs) * time.Second
}

// confirms reports whether an answer belongs to this settlement. A success names its transaction, except for an amount of 0
// (x402 scheme upto: "empty string if $0 settlement"). An answer that names a request names this one. For a wallet the answer
// also names payer, network and amount, since no request does.
func (p *Sale) confirms(s *x402.SettleResponse, amount toll.Credits) bool {
	switch {
	case s == nil, s.Success && s.Transaction == "" && amount > 0:
		return false
	case s.Success && p.Stock != nil:
		return strings.EqualFold(s.Payer, p.Payer) && s.Network == p.Stock.Requirements.Network && s.Amount != nil && *s.Amount == amount
	}
	return s.Extra == nil || s.Extra.AgentRequestID == "" || s.Extra.AgentRequestID == p.AgentRequestID
}

// Release releases the hold, if there is one, also after ctx ended. If that fails the hold lapses by itself.
func (p *Sale) Release(ctx context.Context) {
	if p.AgentRequestID == "" || p.Unheld {
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

func (p *Sale) about(more ...any) []any {
	return slices.Concat([]any{p.Seller.Item, p.Offer.Item, "agentRequestId", p.AgentRequestID}, p.About, more)
}
