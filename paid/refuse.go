package paid

import (
	"encoding/json"
	"net/http"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/plain"
	"github.com/tollhq/toll/internal/seller"
	"github.com/tollhq/toll/x402"
)

// advertised returns the extensions that every 402 of the route contains.
func (x *exchange) advertised() map[string]json.RawMessage {
	return map[string]json.RawMessage{x402.ExtensionPaymentIdentifier: x402.PaymentIdentifier(x.c.identifierRequired)}
}

// extensionsFit checks that a payment has a required payment identifier and repeats the advertised extensions. On a mismatch it
// writes the response and returns false.
func (x *exchange) extensionsFit(identifier string, sent map[string]json.RawMessage) bool {
	if x.c.identifierRequired && identifier == "" {
		x.fail(toll.Errorf(toll.CodeBadRequest, "This route requires a payment identifier.").
			WithHint("Add the extension payment-identifier to the payment, as described in the 402 response of this route."))
		return false
	}
	if name := x402.EchoMismatch(x.advertised(), sent); name != "" {
		x.refuse(x402.ReasonEchoMismatch, toll.Errorf(toll.CodeBadRequirements,
			"The payment must repeat the extension %s exactly as the server sent it.", name), nil)
		return false
	}
	return true
}

// isPaid reports whether r is nil. For a refusal, it writes the response.
func (x *exchange) isPaid(r *seller.Refusal) bool {
	if r == nil {
		return true
	}
	e := *r.Err
	e.Message = plain.Text(e.Message, maxErrorText)
	switch r.Class {
	case seller.Conflict:
		e.Status = http.StatusConflict
		x.fail(&e)
	case seller.Limited:
		e.Status = http.StatusTooManyRequests
		x.fail(&e)
	case seller.Pending:
		e.Status = http.StatusServiceUnavailable
		x.fail(&e)
	case seller.Unavailable:
		x.unavailable(r)
	case seller.Unpaid:
		x.refuse(r.Reason, &e, nil)
	}
	return false
}

// refuse responds with 402 (or [ExpiredStatus]): the demand, the reason for a refused payment, and the receipt of a failed settlement.
func (x *exchange) refuse(reason string, e *toll.Error, receipt *x402.SettleResponse) {
	if x.c.publicURL == "" {
		x.gate.unnamed.Do(func() {
			x.c.Log.Warn("paid: PublicURL is not set: 402 responses contain only a path, which clients cannot call, and access tokens "+
				"for a single resource are rejected", "plan", string(x.c.plan), "path", x.r.URL.Path)
		})
	}
	exact := x.listed()
	p := challenge{X402Version: x.required.X402Version, Error: "Payment required", Resource: x.required.Resource, Extensions: x.advertised()}
	for _, entry := range x.required.Accepts {
		p.Accepts = append(p.Accepts, entry)
	}
	for _, entry := range exact {
		p.Accepts = append(p.Accepts, entry)
	}
	usual := reason == "" && len(exact) == 0 && !x.c.offers
	if reason != "" {
		p.Error = reason + ": " + plain.Text(e.Text(), maxErrorText)
	}
	hint := x.terms.Hint(e)
	p.Error = seller.ChallengeError(p.Error, hint)
	if x.c.offers {
		if offers := x.gate.offers.of(x.r.Context(), x.c, x.withExact(exact)); len(offers) > 0 {
			p.Extensions[x402.ExtensionOfferReceipt] = x402.OffersExtension(offers)
		}
	}
	if order := seller.OrderExtension(x.terms, reason, e); order != nil {
		p.Extensions[x.c.Namespace.PlanExtension()], usual = order, false
	}
	if advice := x.required.Accepts[0].Advice(); advice != "" && seller.IsShortfall(reason) {
		hint += " " + advice
	}
	e = e.WithHint(hint)
	e.Status = http.StatusPaymentRequired
	h := x.w.Header()
	if n := x.c.Namespace; x.c.expiredStatus == http.StatusUnauthorized && receipt == nil &&
		(reason == n.ReasonExpired() || reason == n.ReasonRevoked() || reason == n.ReasonSignature()) {
		e.Status = http.StatusUnauthorized
		h.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	}
	ready := x.asks.plain.Load()
	if !usual || ready == nil {
		var err error
		if ready, err = encodeChallenge(&p); err != nil {
			x.fail(toll.AsError(err))
			return
		}
		if usual {
			x.asks.plain.Store(ready)
		}
	}
	h.Set(x402.HeaderRequired, ready.header)
	if receipt != nil {
		h.Set(x402.HeaderResponse, receiptHeader(receipt))
	}
	expose(h)
	h.Set("Cache-Control", "no-store")
	if x.c.onPaymentError != nil && x.c.onPaymentError(x.w, x.r, e) {
		return
	}
	if reason == "" && asksPerson(x.r) { // a request with a payment comes from a program
		x.writePage(exact)
		return
	}
	b, err := ready.with(e.Body(x.correlation, ""))
	if err != nil {
		x.fail(toll.AsError(err))
		return
	}
	writeJSON(x.w, e.Status, b, x.correlation)
}

// unavailable responds to a failed call to the facilitator: with [OnClosed] if the service rejects the builder, with 429 for 429, and
// otherwise with 503, since the failure is not the subscriber's fault.
func (x *exchange) unavailable(r *seller.Refusal) {
	e := toll.NewError(toll.CodeUnavailable)
	e.Message = "The payment service cannot be reached. No credits were burned."
	switch status := r.Err.HTTPStatus(); {
	case x.c.onClosed != nil && refusesBuilder(status):
		x.c.onClosed(x.w, x.r, r.Err)
		return
	case status == http.StatusTooManyRequests:
		e = toll.NewError(toll.CodeRateLimited)
	case r.Err.Code == toll.CodeSettlementPending:
		e = toll.NewError(r.Err.Code)
	}
	e.RetryAfterSecs = r.Err.RetryAfterSecs
	x.fail(e)
}

// refusesBuilder reports whether the service rejects the key, the plan or the agent of the builder.
func refusesBuilder(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return true
	}
	return false
}
