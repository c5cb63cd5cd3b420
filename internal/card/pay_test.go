package card_test

import (
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
)

// A person pays on the page of an order, and the job of the order sees it.
func TestPage_Paid(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		id := s.order(p)
		if status, location := s.pay(s.page(id), "4242424242424242"); status != 200 && status != 303 || location == "" {
			s.Fatalf("the page answered %d, %q", status, location)
		}
		s.decided(id, time.Minute)
		s.granted(id)
		if n, cents := s.charges(); n != 1 || cents != 500 || s.balance(p) != 100 {
			s.Fatalf("%d charges, %d cents, %d credits", n, cents, s.balance(p))
		}
	})
}

// A page that others changed at Stripe is paid: nothing is granted, and the money is refunded.
// T78
func TestOtherAmount(t *testing.T) {
	for name, change := range map[string]double.Fault{
		"less":     {Kind: "amount", Amount: 100},
		"more":     {Kind: "amount", Amount: 501},
		"currency": {Kind: "amount", Amount: 500, Currency: "eur"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				p := s.plan()
				id := s.order(p)
				change.Object = s.row(id).Session
				s.fault(change)
				s.pay(s.page(id), "4242424242424242")
				s.decided(id, 2*time.Minute)
				s.later(2 * time.Minute)
				s.failed(id, toll.CodeCheckoutFailed)
				s.rejected(id, 1)
				if s.balance(p) != 0 || len(s.alarms()) == 0 {
					s.Fatalf("%d credits, alarms %q", s.balance(p), s.alarms())
				}
			})
		})
	}
}

// Changes of the plan between page and payment do not change the order.
// T85
func TestPlanChanged(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		id := s.order(p)
		s.change(p, func(p *toll.Plan) {
			p.Price.Amounts, p.Credits.Amount, p.IsListed = []toll.Units{toll.UnitsOf(9_000_000)}, 1, false
		})
		s.pay(s.page(id), "4242424242424242")
		s.decided(id, time.Minute)
		s.granted(id)
		if n, cents := s.charges(); n != 1 || cents != 500 || s.balance(p) != 100 {
			s.Fatalf("%d charges, %d cents, %d credits", n, cents, s.balance(p))
		}
	})
}

// A page that nobody pays ends, and its order with it.
func TestPage_Expires(t *testing.T) {
	each(t, func(s *scene) {
		id := s.order(s.plan())
		s.decided(id, 65*time.Minute)
		s.failed(id, toll.CodeCheckoutFailed)
		if n, _ := s.charges(); n != 0 {
			s.Fatalf("%d charges", n)
		}
	})
}

// A browser without scripts gets another page, after the embedded one was ended. A process may die
// at any step: exactly one page can be paid.
func TestPage_EmbeddedToHosted(t *testing.T) {
	for _, step := range []string{"", "card.ending", "card.calling", "card.answered"} {
		t.Run("killed at "+step, func(t *testing.T) {
			each(t, func(s *scene) {
				s.embedded = true
				s.start()
				p := s.plan()
				out := must.Get(s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: p, Wait: soon}, nil))(s)
				id := out.OrderID
				shown := must.Get(s.at().rail.Page(s.ctx, id, false))(s)
				first := s.row(id).Session
				if shown.ClientSecret == "" || shown.PublishableKey == "" || shown.URL != "" {
					s.Fatal("the page is not embedded")
				}
				if step != "" {
					s.kill(step)
					func() {
						defer func() { _ = recover() }()
						_, _ = s.at().rail.Page(s.ctx, id, true)
					}()
					s.wasKilled(step)
				}
				page := s.page(id)
				if again := s.page(id); again != page || page == "" || s.row(id).Attempt != 2 {
					s.Fatalf("another page: %t, attempt %d", again != page, s.row(id).Attempt)
				}
				old := must.Get(s.stripe.V1CheckoutSessions.Retrieve(s.ctx, first, nil))(s)
				if old.Status != stripe.CheckoutSessionStatusExpired {
					s.Fatalf("the first page is %s", old.Status)
				}
				s.pay(page, "4242424242424242")
				s.decided(id, time.Minute)
				s.granted(id)
			})
		})
	}
}

// With an invoice the page makes a customer at Stripe, which belongs to no account here.
func TestPage_Invoice(t *testing.T) {
	each(t, func(s *scene) {
		s.invoices = true
		s.start()
		id := s.order(s.plan())
		s.pay(s.page(id), "4242424242424242")
		s.later(time.Minute)
		s.granted(id)
		if s.intent(id).Customer == nil {
			s.Fatal("the page has made no customer")
		}
	})
}
