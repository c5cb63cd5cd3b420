package card_test

import (
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/rail"
)

// A process that ends between any two writes of a charge leaves one charge and one grant.
func TestF11_Charge(t *testing.T) {
	for _, step := range []string{"card.calling", "card.answered", "card.deciding", "card.decided"} {
		t.Run(step, func(t *testing.T) {
			each(t, func(s *scene) {
				p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
				s.kill(step)
				ended := s.inBackground(func() error { return s.at().topUp(p, d, "") })
				s.until(func() bool { _, waits := s.steps.Load(step); return !waits })
				s.start()
				id := s.lastOrder()
				s.decided(id, 10*time.Minute)
				s.must(<-ended)
				s.granted(id)
				if n, cents := s.charges(); n != 1 || cents != 500 || s.remaining(d) != 500 || s.balance(p) != 100 {
					s.Fatalf("%d charges of %d cents, %d left, %d credits", n, cents, s.remaining(d), s.balance(p))
				}
			})
		})
	}
}

// wasKilled fails the test when no run has reached a failpoint.
func (s *scene) wasKilled(step string) {
	s.Helper()
	if _, waits := s.steps.Load(step); waits {
		s.Fatalf("nothing reached %s", step)
	}
}

// The same for a card that needs its owner: one cancelled intent, and no charge.
func TestF11_Authentication(t *testing.T) {
	for _, step := range []string{"card.answered", "card.ending", "card.deciding", "card.decided"} {
		t.Run(step, func(t *testing.T) {
			each(t, func(s *scene) {
				p, d := s.plan(), s.delegation(s.card("pm_card_authenticationRequired"), 1000)
				s.kill(step)
				ended := s.inBackground(func() error { return s.at().topUp(p, d, "") })
				s.until(func() bool { _, waits := s.steps.Load(step); return !waits })
				s.start()
				id := s.lastOrder()
				s.decided(id, 10*time.Minute)
				s.code(<-ended, toll.CodeTopUpRefused)
				s.failed(id, toll.CodeCardAuthentication)
				n, _ := s.charges()
				if status := s.intent(id).Status; status != stripe.PaymentIntentStatusCanceled || n != 0 || s.remaining(d) != 1000 {
					s.Fatalf("the intent is %s, %d charges, %d left", status, n, s.remaining(d))
				}
			})
		})
	}
}

// The same for a page: one session, one charge, one grant.
func TestF11_Page(t *testing.T) {
	for _, step := range []string{"card.calling", "card.answered", "card.deciding", "card.decided"} {
		t.Run(step, func(t *testing.T) {
			each(t, func(s *scene) {
				p := s.plan()
				s.kill(step)
				ended := s.inBackground(func() error {
					_, err := s.at().Fiat(s.ctx, checkout.FiatRequest{
						Caller: buyer, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon,
					}, nil)
					return err
				})
				s.until(func() bool { return s.count("SELECT COUNT(*) FROM orders") == 1 })
				id := s.lastOrder()
				for range 10 {
					if s.row(id).Session != "" {
						break
					}
					s.until(func() bool { _, waits := s.steps.Load(step); return !waits || s.row(id).Session != "" })
					s.later(time.Minute)
				}
				s.must(<-ended)
				s.pay(s.page(id), "4242424242424242")
				s.decided(id, 10*time.Minute)
				s.wasKilled(step)
				s.granted(id)
				if n, cents := s.charges(); n != 1 || cents != 500 || s.balance(p) != 100 {
					s.Fatalf("%d charges of %d cents, %d credits", n, cents, s.balance(p))
				}
			})
		})
	}
}

// The same for money that goes back: one refund.
func TestF11_Rejected(t *testing.T) {
	for _, step := range []string{"card.deciding", "card.decided", "card.refunding", "card.calling", "card.answered", "card.refunded"} {
		t.Run(step, func(t *testing.T) {
			each(t, func(s *scene) {
				p := s.plan()
				id := s.order(p)
				s.fault(double.Fault{Kind: "amount", Object: s.row(id).Session, Amount: 100})
				s.pay(s.page(id), "4242424242424242")
				s.kill(step)
				s.decided(id, 5*time.Minute)
				s.later(5 * time.Minute)
				s.wasKilled(step)
				s.failed(id, toll.CodeCheckoutFailed)
				s.rejected(id, 1)
			})
		})
	}
}

// capture makes a captured payment at the processor that claims to be of an order.
func (s *scene) capture(orderID, method string) string {
	s.Helper()
	row := s.row(orderID)
	in := &stripe.PaymentIntentCreateParams{
		Amount: &row.Cents, Currency: &row.Currency, Customer: &row.Customer, PaymentMethod: &method, Confirm: stripe.Bool(true),
		OffSession: stripe.Bool(true), PaymentMethodTypes: []*string{stripe.String("card")}, CaptureMethod: stripe.String("automatic"),
		Metadata: map[string]string{"installation": installation, "order_id": orderID, "attempt": "1"},
	}
	pi, err := s.stripe.V1PaymentIntents.Create(s.ctx, in)
	s.must(err)
	return pi.ID
}

// A payment that comes after its order failed is granted within the limits of the plan, and else
// goes back.
func TestLate(t *testing.T) {
	for name, full := range map[string]bool{"place": false, "no place": true} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				p := s.plan(func(p *toll.Plan) { p.MaxOrders = 1 })
				d := s.delegation(s.card("pm_card_visa"), 2000)
				s.fault(post("500", intents, 1, false))
				ended := s.inBackground(func() error { return s.at().topUp(p, d, "") })
				s.until(func() bool { return len(s.log.with("did not do what it was asked")) > 0 })
				id := s.lastOrder()
				s.decided(id, 20*time.Minute)
				if <-ended == nil {
					s.Fatal("nothing failed")
				}
				s.failed(id, toll.CodeCardUnreachable)
				if full {
					s.must(s.at().topUp(p, d, ""))
				}
				pi := s.capture(id, s.method(id))
				for range 2 {
					s.must(s.at().rail.Sync(s.ctx, []byte(pi)))
				}
				s.later(2 * time.Minute)
				if full {
					s.failed(id, toll.CodeCardUnreachable)
					s.rejected(id, 1)
				} else {
					s.granted(id)
				}
				if s.balance(p) != 100 {
					s.Fatalf("%d credits", s.balance(p))
				}
			})
		})
	}
}

// method returns the processor's id of the card that an order is charged to.
func (s *scene) method(orderID string) (id string) {
	s.Helper()
	s.must(s.store.QueryRow(s.ctx, "SELECT stripe_id FROM card_methods WHERE method_id = $1", s.row(orderID).Method).Scan(&id))
	return id
}

// A second payment of an order goes back, and the order stays paid.
func TestI13_SecondPayment(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		s.must(s.at().topUp(p, d, ""))
		id := s.lastOrder()
		pi := s.capture(id, s.method(id))
		for range 2 {
			s.must(s.at().rail.Sync(s.ctx, []byte(pi)))
		}
		s.later(2 * time.Minute)
		s.granted(id)
		s.rejected(id, 1)
		if s.balance(p) != 100 || len(s.alarms()) == 0 {
			s.Fatalf("%d credits, alarms %q", s.balance(p), s.alarms())
		}
	})
}
