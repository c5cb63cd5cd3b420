package paida2a

import (
	"context"
	"fmt"
	"net/http"

	"github.com/a2aproject/a2a-go/a2a"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// maxSentenceRunes bounds untrusted text that reaches a model, in characters.
const maxSentenceRunes = 300

// demand returns the demand for payment of a task.
func (d *handler) demand(ctx context.Context) (*x402.PaymentRequired, error) {
	t, err := d.Terms.Of(ctx, d.cfg.PlanID)
	if err != nil {
		return nil, err
	}
	_, amount := seller.Price(t, &d.cfg.Credits)
	o := x402.Options{
		Namespace: d.Namespace, Endpoint: d.cfg.EndpointURL, AgentID: d.AgentID, HTTPVerb: http.MethodPost, Error: "Payment required",
		Description: plain.Text(d.cfg.Card.Description, maxSentenceRunes), Amount: amount, MaxTimeoutSecs: d.HoldSecs,
	}
	if modes := d.cfg.Card.DefaultOutputModes; len(modes) > 0 {
		o.MimeType = modes[0]
	}
	return x402.NewPaymentRequired([]*x402.Terms{t}, o), nil
}

// unreachable returns the error for a failed call to the service, which is not the client's fault. It tells the client to retry.
func unreachable(r *seller.Refusal) error {
	if r.Class == seller.Pending || r.Err.Code == toll.CodeSettlementPending {
		return fmt.Errorf("the outcome of the payment is not known yet, send the same message again: %w", a2a.ErrServerError)
	}
	return fmt.Errorf("the payment service cannot be reached, try again: %w", a2a.ErrServerError)
}

// verify verifies the payment with a hold and sets w.sale. It returns the refusal of an invalid payment.
func (w *work) verify(ctx context.Context) (refusal *seller.Refusal) {
	o := seller.Offer{Required: &w.required, PlanID: w.cfg.PlanID, Max: &w.cfg.Credits, Item: string(w.id), Settled: w.settled}
	if t, err := w.Terms.Of(ctx, w.cfg.PlanID); err == nil {
		o.Max, _ = seller.Price(t, o.Max)
	}
	w.sale, refusal = w.Open(ctx, o, w.token)
	return refusal
}

// settled calls AfterSettle, and logs a panic in it.
func (w *work) settled(ctx context.Context, s *x402.SettleResponse) {
	if w.cfg.AfterSettle == nil {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			w.Log.Error("paida2a: AfterSettle panicked", "task", string(w.id), "panic", v)
		}
	}()
	w.cfg.AfterSettle(ctx, s)
}
