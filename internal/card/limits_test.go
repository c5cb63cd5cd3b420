package card_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/must"
)

// T84: an owner who unfreezes delegations and makes new ones has twenty charges fail in ten minutes.
// Then no charge reaches Stripe, also with a good card, until the ten minutes are over.
// T84
func TestFailedCharges(t *testing.T) {
	each(t, func(s *scene) {
		const most = 20
		p := s.plan()
		var d string
		for n := range most {
			if n%4 == 0 {
				d = s.delegation(s.card("pm_card_chargeCustomerFail"), 1000)
			}
			if n%4 == 3 {
				must.Get(s.at().Delegations.Unfreeze(s.ctx, buyer, d))(s)
			}
			s.code(s.at().topUp(p, d, ""), toll.CodeTopUpRefused)
			s.failed(s.lastOrder(), toll.CodeCardDeclined)
			s.now.Add(time.Second.Microseconds())
		}
		calls := func() int64 { return s.count("SELECT COUNT(*) FROM card_calls WHERE path = 'payment_intents'") }
		if calls() != most {
			s.Fatalf("%d charges were sent", calls())
		}
		good := s.delegation(s.card("pm_card_visa"), 1000)
		refused := func() {
			s.Helper()
			s.code(s.at().topUp(p, good, ""), toll.CodeTopUpRefused)
			s.failed(s.lastOrder(), toll.CodeCardDeclined)
			if calls() != most || s.remaining(good) != 1000 {
				s.Fatalf("%d charges were sent, %d left", calls(), s.remaining(good))
			}
		}
		refused()
		s.now.Add((triesTime - (most+1)*time.Second).Microseconds()) // the oldest still counts
		refused()
		s.now.Add((2 * time.Second).Microseconds())
		must.Do(s, s.at().topUp(p, good, ""))
		s.bill(p, s.lastOrder())
	})
}
