package pay_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// A request of a pay-as-you-go plan whose order is not decided waits for that order when it is repeated: it makes no other one,
// not even one that costs nothing.
// F12
func TestPayAsYouGoPending(t *testing.T) {
	each(t, func(s *scene) {
		for _, i := range s.inst {
			i.Facilitator = i.patient(s, 300*time.Millisecond)
		}
		p := s.plan(payg)
		d := s.delegation(10_000, nil)
		c := s.call(p, nil, s.token(p, s1, with(d))).nonce("pending")
		s.rail.Behave(railtest.Behaviour{Hang: true})
		for i := range 3 {
			_, err := c.verify(s.at(i), heldFor(5))
			s.code(err, toll.CodeSettlementPending)
		}
		n := must.Get(store.OrdersOfPlan(s.ctx, s.one().store, p.ID))(s)
		a := must.Get(s.one().ledger.Account(s.ctx, ledger.NewAccountID(p.ID, s1)))(s)
		if n != 1 || a.Orders != 0 || a.Seq != 0 {
			t.Errorf("%d orders of the plan, %d of the account with %d entries, while the only one waits for its rail", n, a.Orders, a.Seq)
		}
		s.rail.Behave(railtest.Behaviour{})
		v, err := c.verify(s.again(1), heldFor(5))
		s.valid(v, err)
		s.spent(d, 10, 1)
	})
}
