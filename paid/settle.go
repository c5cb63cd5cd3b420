package paid

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

type rawJSON = json.RawMessage

const (
	termsLife   = 5 * time.Minute
	settleTries = 3
	firstDelay  = 100 * time.Millisecond
	maxDelay    = 2 * time.Second
)

// termsCache keeps the terms of the plan of a route for five minutes. Price and credits of a plan never change, so that
// older terms serve while the service cannot be asked; verify has the last word.
type termsCache struct {
	turn  chan struct{} // one caller asks, the others wait for its answer
	mu    sync.Mutex
	terms *x402.Terms
	at    time.Time
}

func (t *termsCache) fresh(now time.Time) *x402.Terms {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.terms != nil && now.Sub(t.at) < termsLife {
		return t.terms
	}
	return nil
}

func (t *termsCache) of(ctx context.Context, f x402.Facilitator, c *config) (*x402.Terms, error) {
	if v := t.fresh(c.clock()); v != nil {
		return v, nil
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if v := t.fresh(c.clock()); v != nil {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer cancel()
	v, err := f.Terms(ctx, c.plan)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		if t.terms != nil && !errors.Is(err, toll.ErrPlanNotFound) {
			return t.terms, nil
		}
		return nil, err
	}
	t.terms, t.at = v, c.clock()
	return v, nil
}

// settle burns the amount under the id of the request. known is false when nobody can say whether it was burned; the
// answer then is settlement_pending.
func (x *exchange) settle(amount toll.Credits, tries int) (s *x402.SettleResponse, known bool) {
	ctx := context.WithoutCancel(x.r.Context()) // a client that leaves now has its answer settled
	for try := 1; ; try++ {
		s, again, wait := x.settleOnce(ctx, amount)
		if !again || try >= tries {
			x.settled(s)
			return s, s.Success || s.ErrorReason != x402.ReasonPending
		}
		time.Sleep(max(min(firstDelay<<(2*(try-1)), maxDelay), min(wait, maxDelay)))
	}
}

func (x *exchange) settled(s *x402.SettleResponse) {
	if x.c.afterSettle != nil {
		x.c.afterSettle(x.r, s)
	}
}

// settleOnce makes one attempt. again says that the outcome is unknown and that a repeat may tell.
func (x *exchange) settleOnce(ctx context.Context, amount toll.Credits) (s *x402.SettleResponse, again bool, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, x.c.timeout)
	defer cancel()
	s, err := x.f.Settle(ctx, &x402.SettleRequest{
		PaymentRequired: *x.required, AccessToken: x.token, MaxAmount: amount.Ptr(), AgentRequestID: x.payment.AgentRequestID,
	})
	if err == nil {
		return s, !s.Success && s.ErrorReason == x402.ReasonPending, 0
	}
	e := toll.AsError(err)
	x.c.log.Error("paid: a settlement has no outcome yet", "agentRequestId", x.payment.AgentRequestID, "correlationId", x.correlation,
		"error", e.Error(), "facilitatorCorrelationId", e.CorrelationID)
	status := e.HTTPStatus()
	again = status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
	return &x402.SettleResponse{
		ErrorReason: x402.ReasonPending, ErrorMessage: "The outcome of the settlement is not known yet.", Code: toll.CodeSettlementPending,
		Network: x.required.Accepts[0].Network, Payer: x.payment.Payer,
		Extra: &x402.SettleExtra{AgentRequestID: x.payment.AgentRequestID, PlanID: x.payment.PlanID, AgentID: x.payment.AgentID},
	}, again, time.Duration(e.RetryAfterSecs) * time.Second
}

// release gives the hold back. It lapses by itself when that fails.
func (x *exchange) release() {
	if !x.c.hold || x.payment.AgentRequestID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), min(x.c.timeout, 10*time.Second))
	defer cancel()
	var err error
	for try := range 2 {
		if try > 0 {
			time.Sleep(firstDelay)
		}
		if _, err = x.f.Release(ctx, &x402.ReleaseRequest{AgentRequestID: x.payment.AgentRequestID}); err == nil {
			return
		}
		if s := toll.AsError(err).HTTPStatus(); s < 500 && s != http.StatusTooManyRequests {
			break
		}
	}
	x.c.log.Warn("paid: a hold was not released and will lapse", "agentRequestId", x.payment.AgentRequestID,
		"correlationId", x.correlation, "error", toll.AsError(err).Error())
}
