package paida2a

import (
	"context"
	"fmt"
	"net/http"

	"github.com/a2aproject/a2a-go/a2a"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/hold"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/x402"
)

// maxSentenceRunes bounds text that others chose and that goes to a model.
const maxSentenceRunes = 300

// demand returns what a client is asked to pay.
func (d *desk) demand(ctx context.Context) (*x402.PaymentRequired, error) {
	t, err := d.terms.Of(ctx, d.cfg.PlanID)
	if err != nil {
		return nil, err
	}
	amount := t.InBounds(d.cfg.Credits)
	if t.IsTime {
		amount = 0
	}
	o := x402.Options{
		Namespace: d.cfg.Namespace, Endpoint: d.cfg.EndpointURL, AgentID: d.cfg.AgentID, HTTPVerb: http.MethodPost, Error: "Payment required",
		Description: plain.Text(d.cfg.Card.Description, maxSentenceRunes), Amount: &amount, MaxTimeoutSecs: d.cfg.HoldSecs,
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
	w.amount = w.cfg.Credits
	if t, err := w.terms.Of(ctx, w.cfg.PlanID); err == nil {
		w.amount = t.InBounds(w.amount)
	}
	v, err := w.f.Verify(ctx, &x402.VerifyRequest{
		PaymentRequired: w.required, AccessToken: w.token, MaxAmount: w.amount.Ptr(), Hold: true, HoldSecs: w.cfg.HoldSecs,
	})
	if err != nil {
		return nil, err
	}
	if !v.IsValid {
		return w.refused(v)
	}
	w.hold = hold.Payment{
		Facilitator: w.f, Timeout: w.cfg.Timeout, Required: &w.required, Token: w.token, PlanID: w.cfg.PlanID, AgentID: w.cfg.AgentID,
		Log: w.cfg.Log, Room: "paida2a", About: []any{"task", string(w.id)},
	}
	if err := w.hold.Accept(v, true); err != nil {
		w.hold.Release(ctx)
		return nil, err
	}
	w.payment = Payment{
		Payer: w.hold.Payer, PlanID: w.hold.PlanID, AgentID: w.hold.AgentID, AgentRequestID: w.hold.AgentRequestID, Amount: w.hold.Amount,
		Verdict: v,
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
	s, known = w.hold.Settle(ctx, w.amount, hold.Tries)
	w.report(context.WithoutCancel(ctx), s)
	return s, known
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
