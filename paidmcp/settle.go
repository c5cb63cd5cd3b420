package paidmcp

import (
	"context"
	"net/http"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

const (
	settleTries = 3
	firstDelay  = 100 * time.Millisecond
	maxDelay    = 2 * time.Second
)

// settle burns the amount under the id of the call. known is false when nobody can say whether it was burned; the answer then
// is settlement_pending.
func (c *call) settle(ctx context.Context, amount toll.Credits) (s *x402.SettleResponse, known bool) {
	ctx = context.WithoutCancel(ctx) // a caller that leaves now has its answer settled
	for try := 1; ; try++ {
		s, again, wait := c.settleOnce(ctx, amount)
		if !again || try == settleTries {
			c.tell(ctx, s)
			return s, s.Success || s.ErrorReason != x402.ReasonPending
		}
		time.Sleep(max(min(firstDelay<<(2*(try-1)), maxDelay), min(wait, maxDelay)))
	}
}

func (c *call) tell(ctx context.Context, s *x402.SettleResponse) {
	if !s.Success {
		c.cfg.Log.Warn("paidmcp: a settlement failed", "item", c.url, "agentRequestId", c.payment.AgentRequestID, "reason", s.ErrorReason)
	}
	if c.cfg.AfterSettle != nil {
		c.cfg.AfterSettle(ctx, s)
	}
}

// settleOnce makes one attempt. again says that the outcome is unknown and that a repeat may tell.
func (c *call) settleOnce(ctx context.Context, amount toll.Credits) (s *x402.SettleResponse, again bool, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	s, err := c.f.Settle(ctx, &x402.SettleRequest{
		PaymentRequired: *c.required, AccessToken: c.cred.token, MaxAmount: amount.Ptr(), AgentRequestID: c.payment.AgentRequestID,
	})
	if err == nil && c.believe(s) {
		return s, !s.Success && s.ErrorReason == x402.ReasonPending, 0
	}
	e := toll.NewError(toll.CodeInternal)
	if err != nil {
		e = toll.AsError(err)
	}
	c.cfg.Log.Error("paidmcp: a settlement has no outcome yet", "item", c.url, "agentRequestId", c.payment.AgentRequestID,
		"error", e.Error(), "facilitatorCorrelationId", e.CorrelationID)
	status := e.HTTPStatus()
	again = status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
	return &x402.SettleResponse{
		ErrorReason: x402.ReasonPending, ErrorMessage: "The outcome of the settlement is not known yet.", Code: toll.CodeSettlementPending,
		Network: c.required.Accepts[0].Network, Payer: c.payment.Payer,
		Extra: &x402.SettleExtra{AgentRequestID: c.payment.AgentRequestID, PlanID: c.payment.PlanID, AgentID: c.payment.AgentID},
	}, again, time.Duration(e.RetryAfterSecs) * time.Second
}

// believe reports whether an answer is one to this settlement. A success names its transaction, and the request where it
// names any.
func (c *call) believe(s *x402.SettleResponse) bool {
	if s == nil || s.Success && s.Transaction == "" {
		return false
	}
	return s.Extra == nil || s.Extra.AgentRequestID == "" || s.Extra.AgentRequestID == c.payment.AgentRequestID
}

// release gives the hold back. It lapses by itself when that fails.
func (c *call) release(ctx context.Context) {
	if c.payment.AgentRequestID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(c.cfg.Timeout, 10*time.Second))
	defer cancel()
	var err error
	for try := range 2 {
		if try > 0 {
			time.Sleep(firstDelay)
		}
		if _, err = c.f.Release(ctx, &x402.ReleaseRequest{AgentRequestID: c.payment.AgentRequestID}); err == nil {
			return
		}
		if s := toll.AsError(err).HTTPStatus(); s < 500 && s != http.StatusTooManyRequests {
			break
		}
	}
	c.cfg.Log.Warn("paidmcp: a hold was not released and will lapse", "item", c.url, "agentRequestId", c.payment.AgentRequestID,
		"error", toll.AsError(err).Error())
}

// unsettled hands a stream of which something was delivered to the queue.
func (c *call) unsettled(amount toll.Credits, sent int64, s *x402.SettleResponse, known bool) {
	u := paid.Unsettled{
		AgentRequestID: c.payment.AgentRequestID, PlanID: c.payment.PlanID, Payer: c.payment.Payer, Credits: amount,
		Bytes: sent, Attempts: settleTries, Since: c.cfg.Clock(), Reason: s.ErrorReason, Final: known,
	}
	if known {
		u.Attempts = 1
	}
	try := func(ctx context.Context) (*x402.SettleResponse, bool, time.Duration) {
		return c.settleOnce(ctx, amount)
	}
	c.cfg.Queue.Add(u, try, func(u paid.Unsettled) {
		c.cfg.Log.Error("paidmcp: a delivered stream is not settled", "item", c.url, "agentRequestId", u.AgentRequestID,
			"plan", string(u.PlanID), "payer", u.Payer, "credits", u.Credits.String(), "attempts", u.Attempts, "reason", u.Reason, "final", u.Final)
		if c.cfg.OnUnsettled != nil {
			c.cfg.OnUnsettled(u)
		}
	}, func(s *x402.SettleResponse) { c.tell(context.Background(), s) })
}
