package double_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stripe/stripe-go/v85"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
)

func TestIdempotency(t *testing.T) {
	s := start(t)
	u := s.customer()
	m, broke := s.card(u.ID, "pm_card_visa"), s.card(u.ID, "pm_card_chargeCustomerFail")
	p := offSession(u.ID, m.ID, 500)
	p.SetIdempotencyKey("order-1/1")
	first := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t)
	again := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t)
	if h := again.LastResponse.Header; again.ID != first.ID || h.Get("Idempotent-Replayed") != "true" || h.Get("Idempotency-Key") != "order-1/1" ||
		h.Get("Original-Request") != first.LastResponse.RequestID || string(again.LastResponse.RawJSON) != string(first.LastResponse.RawJSON) {
		t.Errorf("got %v", h)
	}
	if h := first.LastResponse.Header; h.Get("Idempotent-Replayed") != "" || h.Get("Stripe-Version") != stripe.APIVersion {
		t.Errorf("got %v", h)
	}
	p.Amount = stripe.Int64(501)
	_, err := s.sc.V1PaymentIntents.Create(s.ctx, p)
	if e := refused(t, err, 400, ""); e.Type != "idempotency_error" {
		t.Errorf("other parameters: got %+v", e)
	}
	other := &stripe.CustomerCreateParams{}
	other.SetIdempotencyKey("order-1/1")
	_, err = s.sc.V1Customers.Create(s.ctx, other)
	if e := refused(t, err, 400, ""); e.Type != "idempotency_error" {
		t.Errorf("another path: got %+v", e)
	}

	// A decline is an outcome, too.
	p = offSession(u.ID, broke.ID, 500)
	p.SetIdempotencyKey("order-2/1")
	_, err = s.sc.V1PaymentIntents.Create(s.ctx, p)
	declined := refused(t, err, 402, "card_declined")
	_, err = s.sc.V1PaymentIntents.Create(s.ctx, p)
	if e := refused(t, err, 402, "card_declined"); e.PaymentIntent.ID != declined.PaymentIntent.ID || e.ChargeID != declined.ChargeID {
		t.Errorf("got %+v", e)
	}

	// What was refused before execution is not kept.
	p = offSession(u.ID, m.ID, 1)
	p.SetIdempotencyKey("order-3/1")
	_, err = s.sc.V1PaymentIntents.Create(s.ctx, p)
	refused(t, err, 400, "amount_too_small")
	p.Amount = stripe.Int64(600)
	must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t)

	if b := s.d.Books(); b.Currencies["usd"].Captured != 1100 {
		t.Errorf("the books are %+v", b)
	}
	s.fault(double.Fault{Kind: "clock", Seconds: 24*3600 - 1})
	if got := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t); got.LastResponse.Header.Get("Idempotent-Replayed") == "" {
		t.Error("the outcome was forgotten too early")
	}
	s.fault(double.Fault{Kind: "clock", Seconds: 1})
	if got := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t); got.LastResponse.Header.Get("Idempotent-Replayed") != "" {
		t.Error("the outcome is kept for more than a day")
	}
}

// TestIdempotency_InProgress sends a request twice. One hangs, the other one learns of it.
func TestIdempotency_InProgress(t *testing.T) {
	s := start(t)
	u := s.customer()
	m := s.card(u.ID, "pm_card_visa")
	s.fault(double.Fault{Kind: "hang", Seconds: 600, Path: "/v1/payment_intents"})
	answers := make(chan error, 2)
	for range 2 {
		go func() {
			p := offSession(u.ID, m.ID, 500)
			p.SetIdempotencyKey("k")
			_, err := s.sc.V1PaymentIntents.Create(s.ctx, p)
			answers <- err
		}()
	}
	refused(t, <-answers, http.StatusConflict, "idempotency_key_in_use")
	s.d.Close() // ends the hang before execution
	if err := <-answers; err == nil {
		t.Error("the other one was answered")
	}
	if b := s.d.Books(); len(b.Payments) != 0 {
		t.Errorf("the books are %+v", b)
	}
}

func TestIdempotency_Concurrent(t *testing.T) {
	s := start(t)
	u := s.customer()
	m := s.card(u.ID, "pm_card_visa")
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			p := offSession(u.ID, m.ID, 500)
			p.SetIdempotencyKey("k" + string(rune('a'+i%4)))
			if _, err := s.sc.V1PaymentIntents.Create(s.ctx, p); err != nil {
				refusedAsync(t, err)
			}
		})
	}
	wg.Wait()
	if b := s.d.Books(); len(b.Payments) != 4 || b.Currencies["usd"].Captured != 2000 {
		t.Errorf("the books are %+v", b)
	}
}

func refusedAsync(t *testing.T, err error) {
	if e, ok := err.(*stripe.Error); !ok || e.HTTPStatusCode != http.StatusConflict {
		t.Errorf("got %v", err)
	}
}

func TestRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "double.json")
	withFile := func(o *double.Options) { o.File = file }
	s := start(t, withFile)
	u := s.customer()
	m := s.card(u.ID, "pm_card_authenticationRequiredOnSetup")
	p := offSession(u.ID, s.card(u.ID, "pm_card_visa").ID, 500)
	p.SetIdempotencyKey("k")
	pi := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t)
	pay := s.session(payment(700))
	s.fault(double.Fault{Kind: "clock", Seconds: 60})
	s.fault(double.Fault{Kind: "dispute", Object: pi.LatestCharge.ID})
	events, books := s.eventTypes(), s.d.Books()
	s.d.Close()

	s = start(t, withFile)
	if got := must.Get(s.sc.V1PaymentIntents.Create(s.ctx, p))(t); got.ID != pi.ID || got.LastResponse.Header.Get("Idempotent-Replayed") == "" {
		t.Error("the outcome is forgotten")
	}
	if got := s.eventTypes(); len(got) != len(events) {
		t.Errorf("events are %v, were %v", got, events)
	}
	if got := s.d.Books(); *got.Currencies["usd"] != *books.Currencies["usd"] {
		t.Errorf("the books are %+v, were %+v", got.Currencies["usd"], books.Currencies["usd"])
	}
	_, err := s.sc.V1PaymentIntents.Create(s.ctx, offSession(u.ID, m.ID, 500))
	refused(t, err, 402, "authentication_required")
	if p := s.open(s.url + "/c/pay/" + pay.ID); !strings.Contains(p.body, "1 × Plan") {
		t.Errorf("the page has forgotten what it sells: %s", p.body)
	}
	s.submit(s.url+"/c/pay/"+pay.ID, typed("4242424242424242"))
	got := s.reload(pay.ID)
	if got.PaymentStatus != "paid" || got.Created != s.clock.now().Unix() {
		t.Errorf("got %+v", got)
	}
	if late := s.customer(); late.Created != s.clock.now().Unix()+60 {
		t.Error("the clock moved back")
	}
}
