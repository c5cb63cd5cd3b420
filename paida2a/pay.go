package paida2a

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/a2a"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

const (
	termsLife   = 5 * time.Minute
	settleTries = 3
	firstDelay  = 100 * time.Millisecond
	maxDelay    = 2 * time.Second
)

var errNoHold = errors.New("the facilitator confirmed a payment without an id or without its hold")

// termsCache keeps the terms of the plan for five minutes. Price and credits of a plan never change, so that older terms serve
// while the service cannot be asked; verify has the last word.
type termsCache struct {
	mu    sync.Mutex
	terms *x402.Terms
	at    time.Time
}

func (d *desk) planTerms(ctx context.Context) (*x402.Terms, error) {
	now := d.cfg.Clock()
	d.terms.mu.Lock()
	known, at := d.terms.terms, d.terms.at
	d.terms.mu.Unlock()
	if known != nil && now.Sub(at) < termsLife {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.cfg.Timeout)
	defer cancel()
	terms, err := d.f.Terms(ctx, d.cfg.PlanID)
	if err != nil {
		if known != nil && !errors.Is(err, toll.ErrPlanNotFound) {
			return known, nil
		}
		return nil, err
	}
	d.terms.mu.Lock()
	defer d.terms.mu.Unlock()
	d.terms.terms, d.terms.at = terms, now
	return terms, nil
}

// demand returns what a client is asked to pay.
func (d *desk) demand(ctx context.Context) (*x402.PaymentRequired, error) {
	t, err := d.planTerms(ctx)
	if err != nil {
		return nil, err
	}
	amount := d.cfg.Credits
	switch {
	case t.MaxAmount == 0:
	case t.IsTime:
		amount = 0
	default: // as the service is going to take it
		amount = min(max(amount, t.MinAmount), t.MaxAmount)
	}
	o := x402.Options{
		Namespace: d.cfg.Namespace, Endpoint: d.cfg.EndpointURL, AgentID: d.cfg.AgentID, HTTPVerb: http.MethodPost, Error: "Payment required",
		Description: plainText(d.cfg.Card.Description, maxSentenceRunes), Amount: &amount, MaxTimeoutSecs: d.cfg.HoldSecs,
	}
	if modes := d.cfg.Card.DefaultOutputModes; len(modes) > 0 {
		o.MimeType = modes[0]
	}
	return x402.NewPaymentRequired([]*x402.Terms{t}, o), nil
}

// unreachable is the answer when a call to the service failed, which is not the client's fault. The builder finds the reason in
// the log.
func (d *desk) unreachable(what string, id a2a.TaskID, err error) error {
	cause := toll.AsError(err)
	d.cfg.Log.Error("paida2a: a call to the facilitator failed", "call", what, "task", string(id), "plan", string(d.cfg.PlanID),
		"error", cause.Error(), "facilitatorCorrelationId", cause.CorrelationID)
	if cause.Code == toll.CodeSettlementPending {
		return fmt.Errorf("the payment is not decided yet, send it again: %w", a2a.ErrServerError)
	}
	return fmt.Errorf("the payment service cannot be reached, try again: %w", a2a.ErrServerError)
}

// verify asks for a hold. It returns the refusal of a payment that is not good, or an error when nobody can say.
func (w *work) verify(ctx context.Context) (*x402.SettleResponse, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Timeout)
	defer cancel()
	v, err := w.f.Verify(ctx, &x402.VerifyRequest{
		PaymentRequired: w.required, AccessToken: w.token, MaxAmount: w.cfg.Credits.Ptr(), Hold: true, HoldSecs: w.cfg.HoldSecs,
	})
	if err != nil {
		return nil, err
	}
	if !v.IsValid {
		return w.refused(v)
	}
	w.payment = Payment{Payer: v.Payer, PlanID: w.cfg.PlanID, AgentID: w.cfg.AgentID, AgentRequestID: v.AgentRequestID, Verdict: v}
	if v.AgentID != "" {
		w.payment.AgentID = v.AgentID
	}
	if v.Amount != nil {
		w.payment.Amount = *v.Amount
	}
	held := v.Extra != nil && v.Extra.HeldAmount != nil
	if held {
		w.payment.Amount = *v.Extra.HeldAmount
	}
	if v.AgentRequestID == "" || !held && w.payment.Amount > 0 {
		w.release(ctx)
		return nil, errNoHold
	}
	return nil, nil
}

// refused answers a verdict that is not good.
func (w *work) refused(v *x402.VerifyResponse) (*x402.SettleResponse, error) {
	switch {
	case v.InvalidReason == x402.ReasonUnauthorizedServer, v.InvalidReason == x402.ReasonVerifyFault,
		v.Code == toll.CodePaymentPlanNotFound, v.Code == toll.CodePaymentAgentNotFound:
		return nil, &toll.Error{Code: v.Code, Message: v.InvalidMessage, Reason: v.InvalidReason}
	case v.InvalidReason == x402.ReasonPending:
		return nil, toll.NewError(toll.CodeSettlementPending)
	}
	text := v.InvalidMessage
	if text == "" && v.Code != "" {
		text = toll.NewError(v.Code).Text()
	}
	s := w.refusal(w.task, v.InvalidReason, text)
	s.Payer = v.Payer
	return s, nil
}

// settle burns the price under the id of the run. known is false when nobody can say whether it was burned; the answer then
// is settlement_pending.
func (w *work) settle(ctx context.Context) (s *x402.SettleResponse, known bool) {
	ctx = context.WithoutCancel(ctx)
	for try := 1; ; try++ {
		s, again, wait := w.settleOnce(ctx)
		if !again || try == settleTries {
			w.report(ctx, s)
			return s, s.Success || s.ErrorReason != x402.ReasonPending
		}
		time.Sleep(max(min(firstDelay<<(2*(try-1)), maxDelay), min(wait, maxDelay)))
	}
}

func (w *work) report(ctx context.Context, s *x402.SettleResponse) {
	if !s.Success {
		w.cfg.Log.Warn("paida2a: a settlement failed", "task", string(w.id), "agentRequestId", w.payment.AgentRequestID, "reason", s.ErrorReason)
	}
	if w.cfg.AfterSettle == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			w.cfg.Log.Error("paida2a: AfterSettle panicked", "task", string(w.id), "panic", v)
		}
	}()
	w.cfg.AfterSettle(ctx, s)
}

// settleOnce makes one attempt. again says that the outcome is unknown and that a repeat may tell.
func (w *work) settleOnce(ctx context.Context) (s *x402.SettleResponse, again bool, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timeout)
	defer cancel()
	s, err := w.f.Settle(ctx, &x402.SettleRequest{
		PaymentRequired: w.required, AccessToken: w.token, MaxAmount: w.cfg.Credits.Ptr(), AgentRequestID: w.payment.AgentRequestID,
	})
	if err == nil && w.believe(s) {
		return s, !s.Success && s.ErrorReason == x402.ReasonPending, 0
	}
	e := toll.NewError(toll.CodeInternal)
	if err != nil {
		e = toll.AsError(err)
	}
	w.cfg.Log.Error("paida2a: a settlement has no outcome yet", "task", string(w.id), "agentRequestId", w.payment.AgentRequestID,
		"error", e.Error(), "facilitatorCorrelationId", e.CorrelationID)
	status := e.HTTPStatus()
	again = status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout
	return &x402.SettleResponse{
		ErrorReason: x402.ReasonPending, ErrorMessage: "The outcome of the settlement is not known yet.", Code: toll.CodeSettlementPending,
		Network: w.required.Accepts[0].Network, Payer: w.payment.Payer,
		Extra: &x402.SettleExtra{AgentRequestID: w.payment.AgentRequestID, PlanID: w.payment.PlanID, AgentID: w.payment.AgentID},
	}, again, time.Duration(e.RetryAfterSecs) * time.Second
}

// believe reports whether an answer is one to this settlement. A success names its transaction, and the request where it
// names any.
func (w *work) believe(s *x402.SettleResponse) bool {
	if s == nil || s.Success && s.Transaction == "" {
		return false
	}
	return s.Extra == nil || s.Extra.AgentRequestID == "" || s.Extra.AgentRequestID == w.payment.AgentRequestID
}

// release gives the hold back. It lapses by itself when that fails.
func (w *work) release(ctx context.Context) {
	if w.payment.AgentRequestID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(w.cfg.Timeout, 10*time.Second))
	defer cancel()
	var err error
	for try := range 2 {
		if try > 0 {
			time.Sleep(firstDelay)
		}
		if _, err = w.f.Release(ctx, &x402.ReleaseRequest{AgentRequestID: w.payment.AgentRequestID}); err == nil {
			return
		}
		if s := toll.AsError(err).HTTPStatus(); s < 500 && s != http.StatusTooManyRequests {
			break
		}
	}
	w.cfg.Log.Warn("paida2a: a hold was not released and will lapse", "task", string(w.id), "agentRequestId", w.payment.AgentRequestID,
		"error", toll.AsError(err).Error())
}
