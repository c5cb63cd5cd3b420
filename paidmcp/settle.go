package paidmcp

import (
	"context"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/hold"
	"github.com/tollhq/toll/paid"
	"github.com/tollhq/toll/x402"
)

// settle burns the amount under the id of the call. known is false when nobody can say whether it was burned; the answer then
// is settlement_pending.
func (c *call) settle(ctx context.Context, amount toll.Credits) (s *x402.SettleResponse, known bool) {
	s, known = c.hold.Settle(ctx, amount, hold.Tries)
	c.tell(context.WithoutCancel(ctx), s)
	return s, known
}

func (c *call) tell(ctx context.Context, s *x402.SettleResponse) {
	if !s.Success {
		c.cfg.Log.Warn("paidmcp: a settlement failed", "item", c.url, "agentRequestId", c.payment.AgentRequestID, "reason", s.ErrorReason)
	}
	if c.cfg.AfterSettle != nil {
		c.cfg.AfterSettle(ctx, s)
	}
}

// unsettled hands a stream of which something was delivered to the queue.
func (c *call) unsettled(amount toll.Credits, sent int64, s *x402.SettleResponse, known bool) {
	u := paid.Unsettled{
		AgentRequestID: c.payment.AgentRequestID, PlanID: c.payment.PlanID, Payer: c.payment.Payer, Credits: amount,
		Bytes: sent, Attempts: hold.Tries, Since: c.cfg.Clock(), Reason: s.ErrorReason, Final: known,
	}
	if known {
		u.Attempts = 1
	}
	try := func(ctx context.Context) (*x402.SettleResponse, bool, time.Duration) {
		return c.hold.SettleOnce(ctx, amount)
	}
	c.cfg.Queue.Add(u, try, func(u paid.Unsettled) {
		c.cfg.Log.Error("paidmcp: a delivered stream is not settled", "item", c.url, "agentRequestId", u.AgentRequestID,
			"plan", string(u.PlanID), "payer", u.Payer, "credits", u.Credits.String(), "attempts", u.Attempts, "reason", u.Reason, "final", u.Final)
		if c.cfg.OnUnsettled != nil {
			c.cfg.OnUnsettled(u)
		}
	}, func(s *x402.SettleResponse) { c.tell(context.Background(), s) })
}
