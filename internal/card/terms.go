package card

import (
	"strconv"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
)

// Members of the metadata of objects at Stripe.
const (
	metaInstallation = "installation"
	metaOrder        = "order_id"
	metaAttempt      = "attempt"
	metaRefund       = "refund_id"
	metaSetup        = "setup"
	metaPlan         = "plan_id"    // with metaSubscriber what a payment says of its order
	metaSubscriber   = "subscriber" // if the record of the order is lost
	metaDelegation   = "delegation_id"
)

// terms are what a payment must have been made with to pay an order.
type terms struct {
	cents        int64
	currency     string // in lower case
	customer     string // "" for a page: nobody's customer pays, and for an invoice the page makes one
	orderID      string
	installation string
	live         bool
}

func (p *payment) terms() terms {
	return terms{cents: p.Cents, currency: p.Currency, customer: p.Customer, orderID: p.OrderID, installation: p.installation, live: p.live}
}

// wrong compares a captured payment with the terms of its order, and returns the first member that
// differs, "" when all fit. s is nil when no page was paid.
func wrong(want terms, pi *stripe.PaymentIntent, s *stripe.CheckoutSession) (member string) {
	switch {
	case pi.Status != stripe.PaymentIntentStatusSucceeded:
		return "status"
	case pi.Livemode != want.live:
		return "livemode"
	case pi.Amount != want.cents:
		return "amount"
	case pi.AmountReceived != want.cents:
		return "amount_received"
	case string(pi.Currency) != want.currency:
		return "currency"
	case want.customer != "" && (pi.Customer == nil || pi.Customer.ID != want.customer):
		return "customer"
	case pi.Metadata[metaOrder] != want.orderID:
		return "metadata." + metaOrder
	case pi.Metadata[metaInstallation] != want.installation:
		return "metadata." + metaInstallation
	case s == nil:
		return ""
	case s.Mode != stripe.CheckoutSessionModePayment:
		return "session.mode"
	case s.PaymentStatus != stripe.CheckoutSessionPaymentStatusPaid:
		return "session.payment_status"
	case s.PaymentIntent == nil || s.PaymentIntent.ID != pi.ID:
		return "session.payment_intent"
	case s.Livemode != want.live:
		return "session.livemode"
	case s.AmountTotal != want.cents:
		return "session.amount_total"
	case string(s.Currency) != want.currency:
		return "session.currency"
	case s.TotalDetails != nil && s.TotalDetails.AmountDiscount != 0:
		return "session.total_details.amount_discount"
	case s.ClientReferenceID != want.orderID:
		return "session.client_reference_id"
	case s.Metadata[metaOrder] != want.orderID:
		return "session.metadata." + metaOrder
	case s.Metadata[metaInstallation] != want.installation:
		return "session.metadata." + metaInstallation
	}
	return ""
}

// metadata is what every session and payment intent of a payment carries.
func (p *payment) metadata() map[string]string {
	m := map[string]string{
		metaInstallation: p.installation, metaOrder: p.OrderID,
		metaAttempt: strconv.FormatInt(p.Attempt, 10), metaSubscriber: p.Payer.Lower(), metaPlan: string(p.d.Plan),
	}
	if p.Delegation != "" {
		m[metaDelegation] = p.Delegation
	}
	return m
}

// classOf returns why a bank declined, as far as callers are told, and the code for them.
func classOf(a *answer) (class, toll.Code) {
	if a.kind == owner {
		return "", toll.CodeCardAuthentication
	}
	code := a.declineCode
	if code == "" {
		code = a.code
	}
	switch code {
	case "insufficient_funds", "withdrawal_count_limit_exceeded", "card_velocity_exceeded":
		return insufficientFunds, toll.CodeCardDeclined
	case "lost_card", "stolen_card", "pickup_card", "restricted_card":
		return cardLost, toll.CodeCardDeclined
	case "expired_card":
		return cardExpired, toll.CodeCardDeclined
	}
	return declined, toll.CodeCardDeclined
}

// reasons are the texts that callers read about a decline.
var reasons = map[class]string{
	insufficientFunds: "The card has insufficient funds.",
	cardLost:          "The card was reported lost or stolen, or is blocked.",
	cardExpired:       "The card has expired.",
	declined:          "The bank declined the card.",
}

// failureOf returns the failure that a decline means.
func failureOf(a *answer) *failure {
	why, code := classOf(a)
	if code == toll.CodeCardAuthentication {
		return &failure{Code: code, Reason: "The bank requires the cardholder to confirm the payment."}
	}
	return &failure{Code: code, Reason: reasons[why], Class: why, Declined: true}
}

// cancelled returns the failure of an intent that was canceled at Stripe. It counts as a decline, which can freeze a delegation,
// only if the bank declined the payment before.
func cancelled(pi *stripe.PaymentIntent) *failure {
	if pi.LastPaymentError != nil {
		return failureOf(answerTo(pi.LastPaymentError))
	}
	return &failure{Code: toll.CodeCardDeclined, Reason: "The payment was canceled at the card processor.", Class: declined}
}

// answerOfError reads the last error of a payment intent, as if it had been the answer.
func answerOfError(e *stripe.Error) *answer {
	if e == nil {
		return &answer{kind: card}
	}
	return answerTo(e)
}
