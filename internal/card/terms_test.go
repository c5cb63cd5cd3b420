package card

import (
	"testing"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
)

// Each member that differs from the terms of an order is found by name.
// T78
func TestTerms(t *testing.T) {
	want := terms{cents: 500, currency: "usd", customer: "cus_1", orderID: "o1", installation: "i1"}
	meta := func() map[string]string { return map[string]string{metaOrder: "o1", metaInstallation: "i1"} }
	for name, change := range map[string]func(pi *stripe.PaymentIntent, s *stripe.CheckoutSession){
		"":                      func(*stripe.PaymentIntent, *stripe.CheckoutSession) {},
		"status":                func(pi *stripe.PaymentIntent, _ *stripe.CheckoutSession) { pi.Status = "processing" },
		"livemode":              func(pi *stripe.PaymentIntent, _ *stripe.CheckoutSession) { pi.Livemode = true },
		"amount":                func(pi *stripe.PaymentIntent, _ *stripe.CheckoutSession) { pi.Amount++ },
		"amount_received":       func(pi *stripe.PaymentIntent, _ *stripe.CheckoutSession) { pi.AmountReceived-- },
		"currency":              func(pi *stripe.PaymentIntent, _ *stripe.CheckoutSession) { pi.Currency = "eur" },
		"customer":              func(pi *stripe.PaymentIntent, _ *stripe.CheckoutSession) { pi.Customer = nil },
		"metadata.order_id":     func(pi *stripe.PaymentIntent, _ *stripe.CheckoutSession) { pi.Metadata[metaOrder] = "o2" },
		"metadata.installation": func(pi *stripe.PaymentIntent, _ *stripe.CheckoutSession) { delete(pi.Metadata, metaInstallation) },
		"session.mode":          func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) { s.Mode = "setup" },
		"session.payment_status": func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) {
			s.PaymentStatus = "no_payment_required"
		},
		"session.payment_intent": func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) { s.PaymentIntent = nil },
		"session.livemode":       func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) { s.Livemode = true },
		"session.amount_total":   func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) { s.AmountTotal = 1000 },
		"session.currency":       func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) { s.Currency = "eur" },
		"session.total_details.amount_discount": func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) {
			s.TotalDetails = &stripe.CheckoutSessionTotalDetails{AmountDiscount: 1}
		},
		"session.client_reference_id":   func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) { s.ClientReferenceID = "o2" },
		"session.metadata.order_id":     func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) { s.Metadata[metaOrder] = "" },
		"session.metadata.installation": func(_ *stripe.PaymentIntent, s *stripe.CheckoutSession) { s.Metadata[metaInstallation] = "i2" },
	} {
		pi := &stripe.PaymentIntent{
			ID: "pi_1", Status: "succeeded", Amount: 500, AmountReceived: 500, Currency: "usd", Metadata: meta(),
			Customer: &stripe.Customer{ID: "cus_1"},
		}
		s := &stripe.CheckoutSession{
			Mode: "payment", PaymentStatus: "paid", PaymentIntent: pi, AmountTotal: 500, Currency: "usd", ClientReferenceID: "o1",
			Metadata: meta(),
		}
		change(pi, s)
		if got := wrong(want, pi, s); got != name {
			t.Errorf("got %q, want %q", got, name)
		}
	}
}

// A payment that was cancelled at Stripe counts as a decline only when its bank declined it.
func TestCancelled(t *testing.T) {
	if f := cancelled(&stripe.PaymentIntent{}); f.Declined || f.Code != toll.CodeCardDeclined || f.Reason == reasons[declined] {
		t.Errorf("%+v", f)
	}
	if f := cancelled(&stripe.PaymentIntent{LastPaymentError: &stripe.Error{Type: stripe.ErrorTypeCard, Code: "card_declined"}}); !f.Declined {
		t.Errorf("%+v", f)
	}
}

// Callers get one of a few classes of declines, and never the words of the bank.
func TestClassOf(t *testing.T) {
	for declineCode, want := range map[string]class{
		"insufficient_funds": insufficientFunds, "lost_card": cardLost, "stolen_card": cardLost, "expired_card": cardExpired,
		"generic_decline": declined, "": declined, "fraudulent": declined,
	} {
		a := &answer{kind: card, code: "card_declined", declineCode: declineCode}
		if got, code := classOf(a); got != want || code != toll.CodeCardDeclined {
			t.Errorf("%q: %s, %s", declineCode, got, code)
		}
	}
	if got, code := classOf(&answer{kind: owner}); got != "" || code != toll.CodeCardAuthentication {
		t.Errorf("%s, %s", got, code)
	}
}
