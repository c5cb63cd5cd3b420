package card_test

import (
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// A top-up charges the card of the delegation within the wait of its caller.
func TestCharge_TopUp(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		for n := range int64(2) {
			must.Do(s, s.at().topUp(p, d, ""))
			s.granted(s.lastOrder())
			s.now.Add(1)
			if charges, cents := s.charges(); int64(charges) != n+1 || cents != 500*(n+1) || s.remaining(d) != 500-500*n {
				s.Fatalf("%d charges, %d cents, %d left", charges, cents, s.remaining(d))
			}
		}
		s.code(s.at().topUp(p, d, ""), toll.CodeDelegationExhausted)
		if n := s.count("SELECT COUNT(*) FROM card_calls WHERE status = 0 OR params <> ''"); n != 0 {
			s.Errorf("%d calls are kept with their parameters", n)
		}
		if n := s.count("SELECT COUNT(*) FROM jobs"); n != 0 {
			s.Errorf("%d jobs are left", n)
		}
	})
}

// A bank that declines fails the order, with a class and without its own words. The budget is given
// back, and nothing is asked again.
func TestCharge_Declined(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_chargeCustomerFail"), 1000)
		err := s.at().topUp(p, d, "")
		s.code(err, toll.CodeTopUpRefused)
		if class := toll.AsError(err).Params["class"]; class != "declined" {
			s.Errorf("class %v", class)
		}
		s.failed(s.lastOrder(), toll.CodeCardDeclined)
		if n, _ := s.charges(); n != 0 || s.remaining(d) != 1000 || s.row(s.lastOrder()).Intent == "" {
			s.Fatalf("%d charges, %d left", n, s.remaining(d))
		}
	})
}

// A bank that wants the owner fails the order, and its intent is cancelled at the processor.
func TestCharge_Authentication(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_authenticationRequired"), 1000)
		s.code(s.at().topUp(p, d, ""), toll.CodeTopUpRefused)
		id := s.lastOrder()
		s.failed(id, toll.CodeCardAuthentication)
		if status := s.intent(id).Status; status != stripe.PaymentIntentStatusCanceled {
			s.Errorf("the intent is %s", status)
		}
		if n, _ := s.charges(); n != 0 || s.remaining(d) != 1000 {
			s.Fatalf("%d charges, %d left", n, s.remaining(d))
		}
	})
}

// A card that the processor does not know any more, and one that was removed, pay nothing.
func TestCharge_RemovedCard(t *testing.T) {
	each(t, func(s *scene) {
		p, method := s.plan(), s.card("pm_card_visa")
		d := s.delegation(method, 1000)
		m := must.Get(store.CardMethodByID(s.ctx, s.store, buyer, method))(s)
		must.Get(s.stripe.V1PaymentMethods.Detach(s.ctx, m.StripeID, &stripe.PaymentMethodDetachParams{}))(s)
		s.code(s.at().topUp(p, d, ""), toll.CodeTopUpRefused)
		s.failed(s.lastOrder(), toll.CodePaymentMethodUnusable)
		m.Fingerprint = ""
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error { return store.PutCardMethod(s.ctx, tx, m) }))
		s.now.Add(1)
		s.code(s.at().topUp(p, d, ""), toll.CodeTopUpRefused)
		s.failed(s.lastOrder(), toll.CodePaymentMethodUnusable)
	})
}

// A payment that the processor decides later keeps the order open, and then decides it.
func TestCharge_Processing(t *testing.T) {
	for name, reason := range map[string]string{"succeeds": "", "fails": "fails"} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
				s.fault(double.Fault{Kind: "processing", Reason: reason})
				ended := s.inBackground(func() error { return s.at().topUp(p, d, "") })
				s.until(func() bool {
					return s.count("SELECT COUNT(*) FROM card_payments WHERE state = $1", string(card.Pending)) == 1
				})
				id := s.lastOrder()
				s.decided(id, 2*time.Minute)
				err := <-ended
				if reason == "" {
					must.Do(s, err)
					s.granted(id)
				} else {
					s.code(err, toll.CodeTopUpRefused)
					s.failed(id, toll.CodeCardDeclined)
				}
			})
		})
	}
}
