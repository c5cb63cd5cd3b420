package card_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// money fails the test unless this number of cents of an order is refunded, these numbers of its
// credits are taken back, lost and held, the buyer has this balance, and both books agree.
func (s *scene) money(p *toll.Plan, id string, cents int64, taken, loss, held, balance toll.Credits) {
	s.Helper()
	s.credits(p, id, cents, taken, loss, held, balance)
	s.audit()
}

// credits is money while Stripe may know more than was read.
func (s *scene) credits(p *toll.Plan, id string, cents int64, taken, loss, held, balance toll.Credits) {
	s.Helper()
	o := s.state(id)
	got := fmt.Sprintf("%s: %d cents, %d taken, %d lost, %d held, balance %d", o.Status, o.RefundedCents, o.RefundedCredits, o.Loss,
		o.HeldBack, s.balance(p))
	want := fmt.Sprintf("confirmed: %d cents, %d taken, %d lost, %d held, balance %d", cents, taken, loss, held, balance)
	if got != want {
		s.Fatalf("got %s; want %s", got, want)
	}
}

// told fails the test unless the buyer got these events of an object, in this order.
func (s *scene) told(object string, want ...toll.EventType) {
	s.Helper()
	rows, err := s.store.Query(s.ctx, "SELECT type FROM events WHERE principal = $1 AND object_id = $2 ORDER BY seq", buyer.Lower(), object)
	must.Do(s, err)
	defer rows.Close()
	var got []toll.EventType
	for rows.Next() {
		var t string
		must.Do(s, rows.Scan(&t))
		got = append(got, toll.EventType(t))
	}
	if must.Do(s, rows.Err()); !slices.Equal(got, want) {
		s.Fatalf("the buyer was told %v, want %v", got, want)
	}
}

// bought has the buyer buy a plan through a delegation, and returns the order.
func (s *scene) bought(p *toll.Plan, delegation string) string {
	s.Helper()
	must.Do(s, s.at().topUp(p, delegation, ""))
	s.now.Add(1) // the next order is a later one
	id := s.lastOrder()
	s.granted(id)
	return id
}

// refund gives back cents of an order, all when cents is 0, and waits until Stripe has taken it.
func (s *scene) refund(id string, cents int64) {
	s.Helper()
	must.Get(s.beginRefund(id, cents))(s)
	s.at().run()
}

// spentBefore are the shares of 100 credits that were spent when money goes back.
var spentBefore = []toll.Credits{0, 50, 100}

// T83: refunds of a seller after 0, 50 and 100 % were spent. What is not spent goes, the rest is a
// loss, and a refund that fails later brings its credits back.
// T83
func TestMoneyBack_Refunds(t *testing.T) {
	each(t, func(s *scene) {
		s.refundFees = 10_000 // more refunds than a builder may make on a day
		s.start()
		s.read()
		const created, paid, refunded = toll.EventOrderCreated, toll.EventOrderPaid, toll.EventOrderRefunded
		for _, spent := range spentBefore {
			left := 100 - spent
			buy := func(number string) (*toll.Plan, string) {
				p := s.plan()
				id := s.paid(p, number)
				s.spend(p, spent)
				return p, id
			}
			after := func(p *toll.Plan, id string, cents int64, due toll.Credits) {
				s.Helper()
				taken := min(due, left)
				s.money(p, id, cents, taken, due-taken, 0, left-taken)
			}
			p, id := buy(goodCard)
			s.refund(id, 0)
			after(p, id, 500, 100)
			s.told(id, created, paid, refunded)

			p, id = buy(goodCard)
			s.refund(id, 250)
			after(p, id, 250, 50)

			p, id = buy(goodCard)
			for i, cents := range []int64{167, 167, 166} {
				s.refund(id, cents)
				after(p, id, []int64{167, 334, 500}[i], []toll.Credits{33, 66, 100}[i])
			}
			s.told(id, created, paid, refunded, refunded, refunded)

			p, id = buy(failingCard)
			s.refund(id, 0)
			after(p, id, 500, 100)
			s.read()
			after(p, id, 0, 0)
			s.has(id, 0, "", "seller failed 500")
			s.told(id, created, paid, refunded, refunded)

			// On Stripe's page, of which the second fails.
			p, id = buy(failingCard)
			s.fault(double.Fault{Kind: "refund", Object: s.row(id).Charge, Amount: 100})
			s.turn(s.at().rail.Loops()[0])
			s.at().run()
			after(p, id, 100, 20)
			s.read()
			after(p, id, 0, 0)
			s.read()
			after(p, id, 0, 0)
			s.told(id, created, paid, refunded, refunded)
		}
	})
}

// T83: a dispute takes all unspent credits and freezes the delegation. Winning it unfreezes the
// delegation; after a lost dispute its owner can unfreeze it.
// T83
func TestMoneyBack_Disputes(t *testing.T) {
	each(t, func(s *scene) {
		s.read()
		visa := s.card("pm_card_visa")
		for _, spent := range spentBefore {
			for _, end := range []string{store.DisputeWon, store.DisputeLost} {
				left, p, d := 100-spent, s.plan(), s.delegation(visa, 1500)
				id := s.bought(p, d)
				s.spend(p, spent)
				s.fault(double.Fault{Kind: "dispute", Object: s.row(id).Charge})
				s.read()
				s.money(p, id, 0, left, spent, 0, 0)
				s.code(s.at().topUp(p, d, ""), toll.CodeDelegationFrozen)
				_, err := s.at().Delegations.Unfreeze(s.ctx, buyer, d)
				s.code(err, toll.CodeDelegationFrozen)
				_, err = s.beginRefund(id, 100)
				s.code(err, toll.CodeRefundRefused)

				s.fault(double.Fault{Kind: end, Object: s.disputed(id)})
				s.read()
				s.has(id, 0, end)
				if end == store.DisputeWon {
					s.money(p, id, 0, 0, 0, 0, left)
					s.told(d, toll.EventDelegationFrozen, toll.EventDelegationUnfrozen)
				} else {
					s.money(p, id, 0, left, spent, 0, 0)
					s.code(s.at().topUp(p, d, ""), toll.CodeDelegationFrozen)
					must.Get(s.at().Delegations.Unfreeze(s.ctx, buyer, d))(s)
				}
				s.told(id, toll.EventOrderCreated, toll.EventOrderPaid, toll.EventOrderDisputed, toll.EventOrderDisputeClosed)
				s.bought(p, d)
				if got := s.remaining(d); got != 500 {
					s.Fatalf("%d cents are left: money that went back gives none back", got)
				}
			}
		}
		if n, _ := s.charges(); n != 12 {
			s.Errorf("%d charges", n)
		}
	})
}

// T83: credits that open holds need are taken back when the holds end, unless they were spent.
// T83
func TestUnderHolds(t *testing.T) {
	each(t, func(s *scene) {
		s.refundFees = 10_000 // more refunds than a builder may make on a day
		s.start()
		s.read()
		end := func(p *toll.Plan, held string, settles toll.Credits) {
			s.Helper()
			if settles >= 0 {
				s.settle(p, held, settles)
			} else {
				must.Get(s.ledger.Release(s.ctx, ledger.NewAccountID(p.ID, buyer), held))(s)
			}
			s.later(time.Minute)
		}
		for _, settles := range []toll.Credits{-1, 0, 10, 30} { // -1: the hold is released
			used := max(settles, 0)
			buy := func(number string) (*toll.Plan, string, string) {
				p := s.plan()
				id := s.paid(p, number)
				s.spend(p, 40)
				return p, id, s.hold(p, 30)
			}
			p, id, held := buy(goodCard) // half: 50 credits, of which the hold leaves 30
			s.refund(id, 250)
			s.money(p, id, 250, 30, 0, 20, 30)
			s.later(time.Minute)
			s.money(p, id, 250, 30, 0, 20, 30)
			end(p, held, settles)
			taken := min(50, 60-used)
			s.money(p, id, 250, taken, 50-taken, 0, 60-used-taken)

			p, id, held = buy(failingCard) // all, and it fails later
			s.refund(id, 0)
			s.money(p, id, 500, 30, 40, 30, 30)
			end(p, held, settles)
			s.credits(p, id, 500, 60-used, 40+used, 0, 0)
			s.read()
			s.money(p, id, 0, 0, 0, 0, 60-used)

			p, id, held = buy(failingCard) // and it fails while the hold is open
			s.refund(id, 0)
			s.read()
			s.money(p, id, 0, 0, 0, 0, 60)
			end(p, held, settles)
			s.money(p, id, 0, 0, 0, 0, 60-used)

			p, id, held = buy(goodCard) // a dispute
			s.fault(double.Fault{Kind: "dispute", Object: s.row(id).Charge})
			s.read()
			s.money(p, id, 0, 30, 40, 30, 30)
			end(p, held, settles)
			s.money(p, id, 0, 60-used, 40+used, 0, 0)
			s.fault(double.Fault{Kind: "won", Object: s.disputed(id)})
			s.read()
			s.money(p, id, 0, 0, 0, 0, 60-used)
		}
		if n := s.count("SELECT COUNT(*) FROM jobs WHERE kind = $1", store.JobTakeBack); n != 0 {
			s.Errorf("%d jobs are left", n)
		}
	})
}

// T83: a refund in part and a dispute of the rest, in either order. What each takes is not taken
// twice.
// T83
func TestRefundAndDispute(t *testing.T) {
	each(t, func(s *scene) {
		s.read()
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		id := s.bought(p, d)
		s.spend(p, 30)
		s.refund(id, 200)
		s.money(p, id, 200, 40, 0, 0, 30)
		s.fault(double.Fault{Kind: "dispute", Object: s.row(id).Charge})
		s.read()
		s.money(p, id, 200, 70, 30, 0, 0)
		s.fault(double.Fault{Kind: "won", Object: s.disputed(id)})
		s.read()
		s.money(p, id, 200, 40, 0, 0, 30)
		s.refund(id, 0)
		s.money(p, id, 500, 70, 30, 0, 0)
		s.has(id, 500, store.DisputeWon, "seller succeeded 200", "seller succeeded 300")
	})
}
