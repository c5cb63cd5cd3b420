package card_test

import (
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// A process that ends between any two writes of a charge leaves one charge and one grant.
// F11
func TestCrash_Charge(t *testing.T) {
	atSteps(t, []string{"card.calling", "card.answered", "card.deciding", "card.decided"}, func(s *scene, step string) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		id := must.Get(s.topUpKilled(p, d, step))(s)
		if s.bill(p, id); s.remaining(d) != 500 {
			s.Fatalf("%d left", s.remaining(d))
		}
	})
}

// topUpKilled buys a plan through a delegation in a process that ends at a failpoint, and has another
// process decide the order. It returns the order, and the error of the purchase.
func (s *scene) topUpKilled(p *toll.Plan, delegation, step string) (orderID string, err error) {
	s.Helper()
	s.kill(step)
	ended := s.inBackground(func() error { return s.at().topUp(p, delegation, "") })
	s.waitKilled(step)
	s.start()
	orderID = s.lastOrder()
	s.decided(orderID, 10*time.Minute)
	return orderID, <-ended
}

// isKilled reports whether a run has reached a failpoint.
func (s *scene) isKilled(step string) bool {
	_, waits := s.steps.Load(step)
	return !waits
}

// waitKilled waits until a run has reached a failpoint.
func (s *scene) waitKilled(step string) {
	s.Helper()
	s.until(func() bool { return s.isKilled(step) })
}

// wasKilled fails the test when no run has reached a failpoint.
func (s *scene) wasKilled(step string) {
	s.Helper()
	if !s.isKilled(step) {
		s.Fatalf("nothing reached %s", step)
	}
}

// The same for a card that needs its owner: one cancelled intent, and no charge.
// F11
func TestCrash_Authentication(t *testing.T) {
	atSteps(t, []string{"card.answered", "card.ending", "card.deciding", "card.decided"}, func(s *scene, step string) {
		p, d := s.plan(), s.delegation(s.card("pm_card_authenticationRequired"), 1000)
		id, err := s.topUpKilled(p, d, step)
		s.code(err, toll.CodeTopUpRefused)
		s.failed(id, toll.CodeCardAuthentication)
		n, _ := s.charges()
		if status := s.intent(id).Status; status != stripe.PaymentIntentStatusCanceled || n != 0 || s.remaining(d) != 1000 {
			s.Fatalf("the intent is %s, %d charges, %d left", status, n, s.remaining(d))
		}
	})
}

// The same for a page: one session, one charge, one grant.
// F11
func TestCrash_Page(t *testing.T) {
	atSteps(t, []string{"card.calling", "card.answered", "card.deciding", "card.decided"}, func(s *scene, step string) {
		p := s.plan()
		s.kill(step)
		id, ended := s.placed(func() error {
			_, err := s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon}, nil)
			return err
		})
		for range 10 {
			if s.row(id).Session != "" {
				break
			}
			s.until(func() bool { return s.isKilled(step) || s.row(id).Session != "" })
			s.later(time.Minute)
		}
		must.Do(s, <-ended)
		s.pay(s.page(id), goodCard)
		s.decided(id, 10*time.Minute)
		s.wasKilled(step)
		s.bill(p, id)
	})
}

// The same for money that goes back: one refund.
// F11
func TestCrash_Rejected(t *testing.T) {
	steps := []string{"card.deciding", "card.decided", "card.refunding", "card.calling", "card.answered", "card.refunded"}
	atSteps(t, steps, func(s *scene, step string) {
		p := s.plan()
		id := s.order(p)
		s.fault(double.Fault{Kind: "amount", Object: s.row(id).Session, Amount: 100})
		s.pay(s.page(id), goodCard)
		s.kill(step)
		s.decided(id, 5*time.Minute)
		s.later(5 * time.Minute)
		s.wasKilled(step)
		s.failed(id, toll.CodeCheckoutFailed)
		s.rejected(id, 1)
	})
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
	pi := must.Get(s.stripe.V1PaymentIntents.Create(s.ctx, in))(s)
	return pi.ID
}

// method returns the processor's id of the card that an order is charged to.
func (s *scene) method(orderID string) (id string) {
	s.Helper()
	must.Do(s, s.store.QueryRow(s.ctx, "SELECT stripe_id FROM card_methods WHERE method_id = $1", s.row(orderID).Method).Scan(&id))
	return id
}
