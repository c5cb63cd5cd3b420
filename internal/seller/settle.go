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

// Tries bounds the attempts of a settlement, under one id, before the seller responds with an unknown outcome.
const Tries = 3

const (
	firstDelay     = 100 * time.Millisecond
	maxDelay       = 2 * time.Second
	releaseTimeout = 10 * time.Second
)

// Settle burns the amount under the id of the request, or executes the payment of a wallet, in at most tries attempts. It
// continues after ctx ends. known is false if the outcome is unknown; s then has the errorReason settlement_pending.
func (p *Sale) Settle(ctx context.Context, amount toll.Credits, tries int) (s *x402.SettleResponse, known bool) {
	ctx = context.WithoutCancel(ctx) // a disconnect from here on does not stop the settlement
	defer func() { p.outcome(ctx, s) }()
	under := false // an earlier attempt may have started the payment of a wallet
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

// Later queues delivered work after a settlement without an outcome. If the settlement was refused (known), it only raises the alarm.
func (p *Sale) Later(amount toll.Credits, delivered int64, s *x402.SettleResponse, known bool) {
	p.Queue.add(p, Unsettled{
		AgentRequestID: p.AgentRequestID, PlanID: p.PlanID, Payer: p.Payer, Credits: amount, Bytes: delivered, Attempts: p.tries,
		Since: p.Clock(), Reason: s.ErrorReason, Final: known,
	})
}

// unsettled raises the alarm for unsettled work: it logs an error and calls OnUnsettled.
func (p *Sale) unsettled(u Unsettled) {
	p.Log.Error(p.Room+": a delivered stream is not settled", p.about("plan", string(u.PlanID), "payer", u.Payer, "credits", u.Credits.String(),
		"bytes", u.Bytes, "attempts", u.Attempts, "reason", u.Reason, "final", u.Final)...)
	if p.OnUnsettled != nil {
		p.OnUnsettled(u)
	}
}

// decided reports whether a refusal is the result of the wallet's payment on the chain. Other refusals concern the call, such as
// a revoked key or a receiver that was removed from its plan.
func decided(reason string) bool {
	return strings.HasPrefix(reason, "invalid_exact_") || reason == x402.ReasonTransactionState
}

// settleOnce makes one attempt. again means that the outcome is unknown and may become known by a retry after at least wait.
func (p *Sale) settleOnce(ctx context.Context, amount toll.Credits) (s *x402.SettleResponse, again bool, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	p.tries++
	req := &x402.SettleRequest{PaymentRequired: *p.Required, AccessToken: p.Token, MaxAmount: amount.Ptr(), AgentRequestID: p.AgentRequestID, Labels: p.Labels}
	network := p.Required.Accepts[0].Network
	if p.Stock != nil {
		req, network = &x402.SettleRequest{Stock: p.Stock}, p.Stock.Requirements.Network
	}
	s, err := p.Facilitator.Settle(ctx, req)
	if err == nil && p.confirms(s, amount) {
		return s, !s.Success && s.ErrorReason == x402.ReasonPending, 0
	}
	e := toll.Errorf(toll.CodeInternal, "The response is for another settlement.")
	if err != nil {
		e = toll.AsError(err)
	}
	status := e.HTTPStatus()
	passes := status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout // it may succeed later
	p.Log.Error(p.Room+": the outcome of a settlement is not known yet", p.about("error", e.Error(), "facilitatorCorrelationId", e.CorrelationID)...)
	return &x402.SettleResponse{
		ErrorReason: x402.ReasonPending, ErrorMessage: "The outcome of the settlement is not known yet.", Code: toll.CodeSettlementPending,
		Network: network, Payer: p.Payer, Extra: &x402.SettleExtra{AgentRequestID: p.AgentRequestID, PlanID: p.PlanID, AgentID: p.AgentID},
	}, passes, time.Duration(e.RetryAfterSecs) * time.Second
}

// confirms reports whether a response belongs to this settlement. A success must contain a transaction, unless the amount is 0
// (x402 scheme upto: "empty string if $0 settlement"). A request id in the response must match. A success for a wallet, which has
// no request id, must match in payer, network, and amount.
func (p *Sale) confirms(s *x402.SettleResponse, amount toll.Credits) bool {
	switch {
	case s == nil, s.Success && s.Transaction == "" && amount > 0:
		return false
	case s.Success && p.Stock != nil:
		return strings.EqualFold(s.Payer, p.Payer) && s.Network == p.Stock.Requirements.Network && s.Amount != nil && *s.Amount == amount
	}
	return s.Extra == nil || s.Extra.AgentRequestID == "" || s.Extra.AgentRequestID == p.AgentRequestID
}

// Release releases the hold, if any, even after ctx ended. It logs a failure; the hold then expires.
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
	p.Log.Warn(p.Room+": a hold was not released and will expire", p.about("error", toll.AsError(err).Error())...)
}

func (p *Sale) about(more ...any) []any {
	return slices.Concat([]any{p.Seller.Item, p.Offer.Item, "agentRequestId", p.AgentRequestID}, p.About, more)
}
