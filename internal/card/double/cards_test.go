package double_test

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stripe/stripe-go/v85"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
)

func TestCards_OffSession(t *testing.T) {
	for _, c := range []struct {
		name, code, declineCode string
	}{
		{"pm_card_visa", "", ""},
		{"pm_card_mastercard", "", ""},
		{"pm_card_chargeCustomerFail", "card_declined", "generic_decline"},
		{"pm_card_authenticationRequired", "authentication_required", "authentication_required"},
		{"pm_card_authenticationRequiredOnSetup", "authentication_required", "authentication_required"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := start(t)
			u := s.customer()
			m := s.card(u.ID, c.name)
			pi, err := s.sc.V1PaymentIntents.Create(s.ctx, offSession(u.ID, m.ID, 500))
			if c.code == "" {
				if err != nil || pi.Status != "succeeded" {
					t.Errorf("got %+v, %v", pi, err)
				}
				return
			}
			e := refused(t, err, 402, stripe.ErrorCode(c.code))
			if e.Type != "card_error" || string(e.DeclineCode) != c.declineCode || e.PaymentMethod == nil || e.ChargeID == "" ||
				e.PaymentIntent == nil || e.PaymentIntent.Status != "requires_payment_method" ||
				e.PaymentIntent.LastPaymentError == nil || e.PaymentIntent.Metadata["order_id"] != "o1" {
				t.Errorf("got %+v", e)
			}
			if ch := must.Get(s.sc.V1Charges.Retrieve(s.ctx, e.ChargeID, nil))(t); ch.Paid || string(ch.Status) != "failed" {
				t.Errorf("got %+v", ch)
			}
			if pi := must.Get(s.sc.V1PaymentIntents.Cancel(s.ctx, e.PaymentIntent.ID, nil))(t); pi.Status != "canceled" {
				t.Errorf("got %+v", pi)
			}
			if b := s.d.Books(); len(b.Payments) != 0 {
				t.Errorf("the books are %+v", b)
			}
		})
	}
}

// declines are the cards that are declined at once.
var declines = []struct{ number, name, code, declineCode string }{
	{"4000 0000 0000 0002", "pm_card_visa_chargeDeclined", "card_declined", "generic_decline"},
	{"4000 0000 0000 9995", "pm_card_visa_chargeDeclinedInsufficientFunds", "card_declined", "insufficient_funds"},
	{"4000 0000 0000 9987", "pm_card_visa_chargeDeclinedLostCard", "card_declined", "lost_card"},
	{"4000 0000 0000 0069", "pm_card_chargeDeclinedExpiredCard", "expired_card", ""},
	{"4000 0000 0000 0119", "pm_card_chargeDeclinedProcessingError", "processing_error", ""},
}

func TestCards_Declined(t *testing.T) {
	for _, c := range declines {
		t.Run(c.name, func(t *testing.T) {
			s := start(t)
			u := s.customer()
			_, err := s.sc.V1PaymentMethods.Attach(s.ctx, c.name, &stripe.PaymentMethodAttachParams{Customer: &u.ID})
			refused(t, err, 402, stripe.ErrorCode(c.code))

			enrol := s.session(setup(u.ID))
			if p := s.submit(enrol.URL, typed(c.number)); p.status != 402 || !strings.Contains(p.body, `role="alert"`) {
				t.Errorf("enrolment: got %d %s", p.status, p.body)
			}
			for a, err := range s.sc.V1SetupAttempts.List(s.ctx, &stripe.SetupAttemptListParams{SetupIntent: &enrol.SetupIntent.ID}).All(s.ctx) {
				if err != nil || a.Status != "failed" || string(a.SetupError.Code) != c.code || string(a.SetupError.DeclineCode) != c.declineCode {
					t.Errorf("got %+v, %v", a, err)
				}
			}
			pay := s.session(payment(500))
			if p := s.submit(pay.URL, typed(c.number)); p.status != 402 {
				t.Errorf("payment: got %d %s", p.status, p.body)
			}
			got := s.reload(pay.ID, "payment_intent")
			if got.Status != "open" || got.PaymentStatus != "unpaid" || string(got.PaymentIntent.LastPaymentError.Code) != c.code {
				t.Errorf("got %+v", got)
			}
			// The same page takes another card.
			if p := s.submit(pay.URL, typed("4242424242424242")); p.status != 303 || p.location != "https://shop.example/done?s="+pay.ID {
				t.Errorf("got %d %s", p.status, p.location)
			}
			if b := s.d.Books(); len(b.Payments) != 1 || b.Payments[0].Captured != 500 {
				t.Errorf("the books are %+v", b)
			}
		})
	}
}

func TestCards_RefundsAndDisputes(t *testing.T) {
	s := start(t)
	refund := func(ch *stripe.Charge) *stripe.Refund {
		t.Helper()
		return must.Get(s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: &ch.ID, Amount: stripe.Int64(300)}))(t)
	}
	pending, fails := refund(s.charge("pm_card_pendingRefund", 900)), refund(s.charge("pm_card_refundFail", 900))
	if pending.Status != "pending" || fails.Status != "succeeded" || s.d.Books().Currencies["usd"].Refunded != 600 {
		t.Errorf("got %s and %s", pending.Status, fails.Status)
	}
	disputed, inquired := s.charge("pm_card_createDispute", 900), s.charge("pm_card_createDisputeInquiry", 900)
	s.later()
	pending = must.Get(s.sc.V1Refunds.Retrieve(s.ctx, pending.ID, nil))(t)
	fails = must.Get(s.sc.V1Refunds.Retrieve(s.ctx, fails.ID, nil))(t)
	if pending.Status != "succeeded" || fails.Status != "failed" || fails.FailureReason != "expired_or_canceled_card" {
		t.Errorf("got %+v and %+v", pending, fails)
	}
	if ch := must.Get(s.sc.V1Charges.Retrieve(s.ctx, fails.Charge.ID, nil))(t); ch.AmountRefunded != 0 {
		t.Errorf("got %+v", ch)
	}
	dispute := func(ch *stripe.Charge) *stripe.Dispute {
		t.Helper()
		for d, err := range s.sc.V1Disputes.List(s.ctx, &stripe.DisputeListParams{Charge: &ch.ID}).All(s.ctx) {
			if err == nil {
				return d
			}
		}
		t.Fatal("no dispute")
		return nil
	}
	if d := dispute(disputed); d.Status != "needs_response" || d.IsChargeRefundable {
		t.Errorf("got %+v", d)
	}
	d := dispute(inquired)
	if d.Status != "warning_needs_response" || !d.IsChargeRefundable || len(d.BalanceTransactions) != 0 {
		t.Errorf("got %+v", d)
	}
	if b := s.d.Books().Currencies["usd"]; b.Disputed != 900 || b.Refunded != 300 {
		t.Errorf("the books are %+v", b)
	}
	refunded := s.charge("pm_card_createDisputeInquiry", 100)
	s.later()
	must.Get(s.sc.V1Refunds.Create(s.ctx, &stripe.RefundCreateParams{Charge: &refunded.ID}))(t)
	if d := dispute(refunded); d.Status != "warning_closed" {
		t.Errorf("got %+v", d)
	}
	s.fault(double.Fault{Kind: "escalate", Object: d.ID})
	s.fault(double.Fault{Kind: "lost", Object: d.ID})
	if d = must.Get(s.sc.V1Disputes.Retrieve(s.ctx, d.ID, nil))(t); d.Status != "lost" {
		t.Errorf("got %+v", d)
	}
	if b := s.d.Books().Currencies["usd"]; b.Disputed != 1800 || b.Net != b.Captured-b.Refunded-b.Disputed-b.Fees {
		t.Errorf("the books are %+v", b)
	}
	for _, want := range []string{"refund.created", "refund.updated", "refund.failed", "charge.dispute.funds_withdrawn"} {
		if !slices.Contains(s.eventTypes(), want) {
			t.Errorf("no event %s", want)
		}
	}
}

// TestCards_Enrolment enrols cards on the page and charges them off session.
func TestCards_Enrolment(t *testing.T) {
	for _, c := range []struct{ number, result, off string }{
		{"4242424242424242", "", "succeeded"},
		{"4000002500003155", "approve", "succeeded"},
		{"4000002500003155", "fail", ""},
		{"4000002760003184", "approve", "authentication_required"},
		{"4000000000000341", "", "card_declined"},
	} {
		t.Run(c.number+c.result, func(t *testing.T) {
			s := start(t)
			u := s.customer()
			enrol := s.session(setup(u.ID))
			p := s.open(enrol.URL)
			if p.status != 200 || !strings.Contains(p.body, "NO MONEY MOVES") || strings.Contains(p.body, "<script") {
				t.Fatalf("got %d %s", p.status, p.body)
			}
			p = s.submit(enrol.URL, typed(c.number))
			if c.result != "" {
				if !strings.Contains(p.location, "/c/authenticate/seti_") {
					t.Fatalf("got %d %s", p.status, p.location)
				}
				if got := s.reload(enrol.ID, "setup_intent"); got.Status != "open" || got.SetupIntent.Status != "requires_action" {
					t.Errorf("got %+v", got.SetupIntent)
				}
				if step := s.open(p.location); !strings.Contains(step.body, "Approve") || !strings.Contains(step.body, "NO MONEY MOVES") {
					t.Errorf("got %s", step.body)
				}
				p = s.submit(p.location, url.Values{"result": {c.result}})
			}
			got := s.reload(enrol.ID, "setup_intent.payment_method")
			if c.off == "" {
				if got.Status != "open" || got.SetupIntent.LastSetupError.Code != "setup_intent_authentication_failure" ||
					!strings.Contains(s.open(p.location).body, "unable to authenticate") {
					t.Errorf("got %+v", got)
				}
				return
			}
			if p.location != "https://shop.example/cards" || got.Status != "complete" || got.SetupIntent.Status != "succeeded" ||
				got.SetupIntent.Metadata["installation"] != "i1" || got.URL != "" {
				t.Fatalf("got %+v, %+v", p, got)
			}
			m := got.SetupIntent.PaymentMethod
			if m.Customer.ID != u.ID || m.AllowRedisplay != "limited" || m.Card.ExpMonth != 12 || m.Card.ExpYear != 2030 {
				t.Errorf("got %+v", m)
			}
			pi, err := s.sc.V1PaymentIntents.Create(s.ctx, offSession(u.ID, m.ID, 500))
			if c.off == "succeeded" {
				if err != nil || pi.Status != "succeeded" {
					t.Errorf("got %+v, %v", pi, err)
				}
			} else {
				refused(t, err, 402, stripe.ErrorCode(c.off))
			}
		})
	}
}

func TestCards_NumbersAreNotKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "double.json")
	s := start(t, func(o *double.Options) { o.File = file })
	u := s.customer()
	enrol, pay := s.session(setup(u.ID)), s.session(payment(500))
	for _, number := range []string{
		"4242424242424242", "4000 0000 0000 0002", "4111111111111111", "5105-1051-0510-5100", "4242424242424241", "12",
	} {
		s.submit(enrol.URL, typed(number))
		s.submit(pay.URL, typed(number))
	}
	p := s.submit(s.session(payment(500)).URL, typed("4111 1111 1111 1111")) // a card of the world
	if p.status != 402 || !strings.Contains(p.body, "non test card") {
		t.Errorf("got %d %s", p.status, p.body)
	}
	kept := string(must.Get(os.ReadFile(file))(t)) + p.body
	for _, part := range []string{"4242424242424", "42424242 ", "40000000000000", "411111", "4111 1", "5105105", "5105-1", "\"12/30", "cvc\":\"123"} {
		if strings.Contains(kept, part) {
			t.Errorf("the state or a page holds %s", part)
		}
	}
	if i, err := os.Stat(file); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", i.Mode(), err)
	}
}
