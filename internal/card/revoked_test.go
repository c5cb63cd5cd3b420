package card_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
)

// A charge that Stripe refused before it was executed ends at once when its delegation is revoked,
// and does not keep another delegation from buying.
// T80
func TestRevokedUnsent(t *testing.T) {
	each(t, func(s *scene) {
		p, method := s.plan(), s.card("pm_card_visa")
		a, b := s.delegation(method, 1000), s.delegation(method, 1000)
		s.fault(double.Fault{Kind: "429", Method: "POST", Path: "/v1/payment_intents"})
		ended := s.inBackground(func() error { return s.at().topUp(p, a, "a") })
		s.until(func() bool { // the attempt is marked so before it is sent, too
			return len(s.log.with("a call to the card processor failed")) > 0 && s.count("SELECT COUNT(*) FROM card_payments WHERE data LIKE '%\"unsent\":true%'") == 1
		})
		first := s.lastOrder()
		must.Get(s.at().Delegations.Revoke(s.ctx, buyer, a))(s)
		s.decided(first, 3*time.Minute)
		<-ended
		s.failed(first, toll.CodeDelegationRevoked)
		must.Do(s, s.at().topUp(p, b, "b"))
		s.granted(s.lastOrder())
		if n, _ := s.charges(); n != 1 || len(s.alarms()) != 0 {
			s.Errorf("%d charges, alarms %q", n, s.alarms())
		}
	})
}

// A charge that was sent before its process was killed is looked up, although its delegation is
// revoked meanwhile.
// T80
func TestRevokedSent(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		s.kill("card.answered")
		ended := s.inBackground(func() error { return s.at().topUp(p, d, "a") })
		s.waitKilled("card.answered")
		s.at().close()
		<-ended
		must.Get(s.at().Delegations.Revoke(s.ctx, buyer, d))(s)
		s.start()
		s.decided(s.lastOrder(), 5*time.Minute)
		s.granted(s.lastOrder())
		if n, _ := s.charges(); n != 1 {
			s.Errorf("%d charges", n)
		}
	})
}
