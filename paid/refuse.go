package paid

import (
	"encoding/json"
	"net/http"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/x402"
)

// advertised are the extensions of every 402 of the route.
func (x *exchange) advertised() map[string]json.RawMessage {
	return map[string]json.RawMessage{x402.ExtensionPaymentIdentifier: x402.PaymentIdentifier(x.c.identifierRequired)}
}

func (x *exchange) undecodable(err error) {
	e := toll.AsError(err)
	reason := x402.ReasonInvalidPayload
	if e.Code == toll.CodeBadX402Version {
		reason = x402.ReasonInvalidVersion
	}
	x.refuse(reason, e, nil)
}

// extensionsFit reports whether a payment names its request where that is required, and repeats what the 402 advertised. It answers
// when not.
func (x *exchange) extensionsFit(identifier string, sent map[string]json.RawMessage) bool {
	if x.c.identifierRequired && identifier == "" {
		x.fail(toll.Errorf(toll.CodeBadRequest, "This route takes requests with a payment identifier only.").
			WithHint("Put the id of the request into extensions of the payment, as the 402 of this route says."))
		return false
	}
	if name := x402.EchoMismatch(x.advertised(), sent); name != "" {
		x.refuse(x402.ReasonEchoMismatch, toll.Errorf(toll.CodeBadRequirements, "The payment changes what the server said of the extension %s.", name), nil)
		return false
	}
	return true
}

// unpaid answers a refusal of verify.
func (x *exchange) unpaid(v *x402.VerifyResponse) {
	e := toll.NewError(v.Code)
	if v.Code == "" {
		e.Code = toll.CodePaymentRequired
	}
	e.Message = sentence(v.InvalidMessage)
	switch v.InvalidReason {
	case x402.ReasonConflict, x402.ReasonIdentifierConflict:
		e.Status = http.StatusConflict
		x.fail(e)
	case x402.ReasonTooManyHolds, x402.ReasonRateLimited:
		e.Status = http.StatusTooManyRequests
		x.fail(e)
	case x402.ReasonPending:
		e.Status = http.StatusServiceUnavailable
		x.fail(e)
	case x402.ReasonUnauthorizedServer, x402.ReasonVerifyFault:
		x.faulty("verify", e)
	default:
		if v.Code == toll.CodePaymentPlanNotFound || v.Code == toll.CodePaymentAgentNotFound {
			x.faulty("verify", e)
			return
		}
		x.refuse(v.InvalidReason, e, nil)
	}
}

// refuse answers 402: what is asked for, why the payment was not taken, and the failed receipt when there is one.
func (x *exchange) refuse(reason string, e *toll.Error, receipt *x402.SettleResponse) {
	if x.c.publicURL == "" {
		x.gate.unnamed.Do(func() {
			x.c.log.Warn("paid: without PublicURL a 402 names a path, which clients cannot call, and access tokens that are made for one "+
				"resource are refused", "plan", string(x.c.plan), "path", x.r.URL.Path)
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
	if reason != "" {
		p.Error = reason + ": " + sentence(e.Text())
	}
	if x.c.offers {
		if offers := x.gate.offers.of(x.r.Context(), x.f, x.c, x.withExact(exact)); len(offers) > 0 {
			p.Extensions[x402.ExtensionOfferReceipt] = x402.OffersExtension(offers)
		}
	}
	if shortOfCredits(reason) && x.terms.OrderURL != "" {
		if raw, err := x402.Encode(map[string]any{"info": map[string]string{"planId": string(x.c.plan), "orderUrl": x.terms.OrderURL}}); err == nil {
			p.Extensions[x.c.namespace.PlanExtension()] = raw
		}
	}
	hint := x.terms.Hint(e)
	if advice := x.required.Accepts[0].Advice(); advice != "" && (reason == "" || shortOfCredits(reason)) {
		hint += " " + advice
	}
	e = e.WithHint(hint)
	e.Status = http.StatusPaymentRequired
	h := x.w.Header()
	if n := x.c.namespace; x.c.expiredStatus == http.StatusUnauthorized && receipt == nil &&
		(reason == n.ReasonExpired() || reason == n.ReasonRevoked() || reason == n.ReasonSignature()) {
		e.Status = http.StatusUnauthorized
		h.Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	}
	if v, err := requiredHeader(&p); err == nil {
		h.Set(x402.HeaderRequired, v)
	}
	if receipt != nil {
		h.Set(x402.HeaderResponse, receiptHeader(receipt))
	}
	expose(h)
	h.Set("Cache-Control", "no-store")
	if x.c.onPaymentError != nil && x.c.onPaymentError(x.w, x.r, e) {
		return
	}
	b, err := paymentRequiredBody(&p, e.Body(x.correlation, ""))
	if err != nil {
		x.fail(toll.AsError(err))
		return
	}
	writeJSON(x.w, e.Status, b, x.correlation)
}

func shortOfCredits(reason string) bool {
	switch reason {
	case x402.ReasonInsufficientFunds, x402.ReasonRedemptionLimit, x402.ReasonOrderLimit, x402.ReasonPlanExpired,
		x402.ReasonDelegationExhausted, x402.ReasonDelegationShort, x402.ReasonDelegationExpired, x402.ReasonDelegationRevoked,
		x402.ReasonDelegationNotFound:
		return true
	}
	return false
}

// faulty answers a call to the facilitator that failed: 429 is passed on, everything else is 503, since the subscriber is
// not to blame. The builder finds the reason in the log.
func (x *exchange) faulty(what string, err error) {
	cause := toll.AsError(err)
	if cause.HTTPStatus() == http.StatusTooManyRequests {
		e := toll.NewError(toll.CodeRateLimited)
		e.RetryAfterSecs = cause.RetryAfterSecs
		x.fail(e)
		return
	}
	x.c.log.Error("paid: a call to the facilitator failed", "call", what, "plan", string(x.c.plan), "correlationId", x.correlation,
		"error", cause.Error(), "facilitatorCorrelationId", cause.CorrelationID)
	e := toll.NewError(toll.CodeUnavailable)
	e.Message = "The payment service cannot be reached. No credits were burned."
	if cause.Code == toll.CodeSettlementPending {
		e = toll.NewError(cause.Code)
	}
	e.RetryAfterSecs = cause.RetryAfterSecs
	x.fail(e)
}
