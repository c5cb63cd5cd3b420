package card_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// loses makes a captured payment of 5.00 for an order that the database lacks, and returns its intent. An empty delegation is left out.
func (s *scene) loses(p *toll.Plan, name, delegation string) (intent string) {
	s.Helper()
	metadata := map[string]string{
		"installation": installation, "order_id": toll.NewUUID(), "attempt": "1", "plan_id": string(p.ID), "subscriber": buyer.Lower(),
	}
	if delegation != "" {
		metadata["delegation_id"] = delegation
	}
	pi := must.Get(s.charge(name, metadata))(s)
	return pi.ID
}

// lost has the rail see a payment of loses.
func (s *scene) lost(p *toll.Plan) (orphan *store.CardOrphan) {
	s.Helper()
	intent := s.loses(p, "pm_card_visa", "")
	must.Do(s, s.at().rail.Sync(s.ctx, []byte(intent)))
	o := s.unmatched(intent)
	if o.Plan != p.ID || o.Subscriber != buyer || !o.ResolvedAt.IsZero() {
		s.Fatalf("%+v", o)
	}
	return o
}

// unmatched returns a payment without an order.
func (s *scene) unmatched(intent string) *store.CardOrphan {
	s.Helper()
	return must.Get(store.CardOrphanByID(s.ctx, s.store, intent))(s)
}

// resolve stores what was done about a payment without an order.
func (s *scene) resolve(tx *store.Tx, o store.CardOrphan, resolution string, at time.Time) error {
	return s.at().Decisions.Unmatched(s.ctx, tx, o.Delegation, func() (*store.CardOrphan, error) {
		now, err := store.CardOrphanForUpdate(s.ctx, tx, o.Object)
		if err == nil {
			now.Resolution, now.ResolvedAt = resolution, at
		}
		return now, err
	})
}

// givesBack has the processor refund the rest of a payment without an order.
func (s *scene) givesBack(o *store.CardOrphan) {
	s.Helper()
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
		if err := s.resolve(tx, *o, store.OrphanRefunding, time.Time{}); err != nil {
			return err
		}
		return card.RefundOrphan(s.ctx, tx, o, s.clock())
	}))
}

// grants records the lost order of a payment. broken ends the transaction after its last write.
func (s *scene) grants(o *store.CardOrphan, broken error) error {
	s.Helper()
	in := checkout.LostOrder{
		ID: o.OrderID, Plan: o.Plan, Subscriber: o.Subscriber, Currency: o.Currency, Delegation: o.Delegation,
		Received: []checkout.Received{{Amount: toll.UnitsOf(o.Cents * 10_000)}},
	}
	_, err := s.at().RestoreOrder(s.ctx, in, func(tx *store.Tx, order *store.Order) (store.Act, error) {
		act := store.Act{Act: "payment.resolved", Object: o.Object}
		if err := s.resolve(tx, *o, store.OrphanGranted, s.clock()); err != nil {
			return act, err
		}
		if err := card.RestorePayment(s.ctx, tx, order, o); err != nil {
			return act, err
		}
		return act, broken
	})
	return err
}

// A lost order of a captured payment is recorded once, gets its credits once, and can be refunded.
// F28
func TestLostOrderIsGranted(t *testing.T) {
	atSteps(t, []string{"card.deciding", "card.decided"}, func(s *scene, step string) {
		p := s.plan()
		o := s.lost(p)
		if err := s.grants(o, errKilled); !errors.Is(err, errKilled) {
			s.Fatalf("%v", err)
		}
		if n := s.count("SELECT COUNT(*) FROM orders WHERE order_id = $1", o.OrderID); n != 0 {
			s.Fatal("a transaction that ended early left an order")
		}
		must.Do(s, s.grants(o, nil))
		if err := s.grants(o, nil); !errors.Is(err, checkout.ErrOrderExists) {
			s.Fatalf("the order is here, and a payment with its id is granted: %v", err)
		}
		s.kill(step)
		s.decided(o.OrderID, 10*time.Minute)
		s.wasKilled(step)
		if got := s.balance(p); got != 100 {
			s.Fatalf("%d credits", got)
		}
		s.granted(o.OrderID)
	})
}

// Money of a lost order goes back once, whenever the process ends.
// F28
func TestLostPaymentIsRefunded(t *testing.T) {
	atSteps(t, []string{"card.refunding", "card.calling", "card.answered", "card.refunded"}, func(s *scene, step string) {
		s.others = true // the books of the service have no order of it
		o := s.lost(s.plan())
		s.givesBack(o)
		s.kill(step)
		s.later(10 * time.Minute)
		s.wasKilled(step)
		if n := s.count("SELECT COUNT(*) FROM card_orphans WHERE object_id = $1 AND resolution = 'refunded' AND resolved_at > 0", o.Object); n != 1 {
			s.Fatal("the refund is not noted")
		}
		pi := must.Get(s.stripe.V1PaymentIntents.Retrieve(s.ctx, o.Object, &stripe.PaymentIntentRetrieveParams{
			Expand: []*string{stripe.String("latest_charge")},
		}))(s)
		if got := pi.LatestCharge.AmountRefunded; got != o.Cents {
			s.Fatalf("%d cents were refunded", got)
		}
	})
}

// Refunds and disputes of a lost payment count for its order and in the payouts, whether or not the rail read them before the order
// was granted.
// F28
func TestLostMoneyIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		card    string
		happens func(s *scene, charge string)
		left    int64 // cents, when the payment has no order
		cents   int64 // refunded, when it has one
		dispute string
		balance toll.Credits
	}{
		"refunded in part": {"pm_card_visa", func(s *scene, charge string) {
			s.fault(double.Fault{Kind: "refund", Object: charge, Amount: 100})
			s.fault(double.Fault{Kind: "refund", Object: charge, Amount: 150})
		}, 250, 250, "", 50},
		"disputed": {"pm_card_visa", func(s *scene, charge string) {
			s.fault(double.Fault{Kind: "dispute", Object: charge})
		}, 0, 0, store.DisputeOpen, 0},
		"dispute lost": {"pm_card_visa", func(s *scene, charge string) {
			s.fault(double.Fault{Kind: "dispute", Object: charge})
			s.fault(double.Fault{Kind: "lost", Object: s.lastDispute()})
		}, 0, 0, store.DisputeLost, 0},
		"dispute won": {"pm_card_visa", func(s *scene, charge string) {
			s.fault(double.Fault{Kind: "dispute", Object: charge})
			s.fault(double.Fault{Kind: "won", Object: s.lastDispute()})
		}, 500, 0, store.DisputeWon, 100},
		"refunded and disputed": {"pm_card_visa", func(s *scene, charge string) {
			s.fault(double.Fault{Kind: "refund", Object: charge, Amount: 100})
			s.fault(double.Fault{Kind: "dispute", Object: charge})
		}, 0, 100, store.DisputeOpen, 0},
	} {
		for when, seen := range map[string]bool{"seen": true, "not seen": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				each(t, func(s *scene) {
					s.read()
					p := s.plan()
					intent := s.loses(p, c.card, "")
					s.read()
					o := s.unmatched(intent)
					if o.Left() != 500 {
						s.Fatalf("%+v", o)
					}
					c.happens(s, s.lastCharge())
					if seen {
						s.read()
						if o = s.unmatched(intent); o.Left() != c.left || !o.ResolvedAt.IsZero() {
							s.Fatalf("%d cents are left: %+v", o.Left(), o)
						}
					}
					must.Do(s, s.grants(o, nil))
					s.decided(o.OrderID, 10*time.Minute)
					s.granted(o.OrderID)
					s.read()
					if so := s.state(o.OrderID); so.RefundedCents != c.cents || so.Dispute != c.dispute || s.balance(p) != c.balance {
						s.Fatalf("%d cents, %q, %d credits", so.RefundedCents, so.Dispute, s.balance(p))
					}
					owed := must.Get(card.OwedOf(s.ctx, s.store, noon.Format("2006-01")))(s)
					if left := owed[0].Charged - owed[0].Refunded - owed[0].Disputed; len(owed) != 1 || int64(left) != c.left {
						s.Fatalf("%d cents are owed: %+v", left, owed)
					}
				})
			})
		}
	}
}

// The rest of a lost payment is refunded after its order was granted, and before the rail settles it. The order gets no credits, and
// the records have both refunds.
// F28
func TestRefundedBeforeItIsSettled(t *testing.T) {
	each(t, func(s *scene) {
		s.read()
		p := s.plan()
		intent := s.loses(p, "pm_card_visa", "")
		s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 100})
		s.read()
		o := s.unmatched(intent)
		if o.Left() != 400 {
			s.Fatalf("%+v", o)
		}
		must.Do(s, s.grants(o, nil))
		s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 400})
		s.decided(o.OrderID, 10*time.Minute)
		for range 2 { // the event of the second refund changes nothing
			s.failed(o.OrderID, toll.CodeCheckoutFailed)
			if got := s.refunds(o.OrderID); !slices.Equal(got, []string{"processor succeeded 100", "processor succeeded 400"}) || s.balance(p) != 0 {
				s.Fatalf("%q, %d credits", got, s.balance(p))
			}
			s.audit()
			s.read()
		}
		owed, err := card.OwedOf(s.ctx, s.store, noon.Format("2006-01"))
		if must.Do(s, err); len(owed) != 0 {
			s.Fatalf("owed: %+v", owed)
		}
	})
}

// Money that bought nothing stays when its refund fails later: the payment is listed once, whatever was resolved before.
// I13
func TestRefundFails(t *testing.T) {
	for name, c := range map[string]struct {
		pay    func(s *scene) (orderID string)
		alarms int
	}{
		"of other terms": {func(s *scene) string {
			id := s.order(s.plan())
			s.fault(double.Fault{Kind: "amount", Object: s.row(id).Session, Amount: 501})
			s.pay(s.page(id), failingCard)
			return id
		}, 1},
		"a second payment": {func(s *scene) string {
			id := s.paid(s.plan(), goodCard)
			must.Get(s.charge("pm_card_refundFail", map[string]string{"installation": installation, "order_id": id, "attempt": "1"}))(s)
			return id
		}, 1},
		"refunded before it was seen": {func(s *scene) string {
			id := s.order(s.plan())
			s.pay(s.page(id), failingCard)
			s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 500})
			must.Do(s, s.at().rail.Sync(s.ctx, []byte(s.double.Books().Payments[0].PaymentIntent)))
			s.failed(id, toll.CodeCheckoutFailed)
			return id
		}, 1},
		"refunded after its order was granted": {func(s *scene) string {
			intent := s.loses(s.plan(), "pm_card_refundFail", "")
			must.Do(s, s.at().rail.Sync(s.ctx, []byte(intent)))
			o := s.unmatched(intent)
			must.Do(s, s.grants(o, nil))
			s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 500})
			return o.OrderID
		}, 2}, // the first before the grant
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				s.read()
				id := c.pay(s)
				s.decided(id, 2*time.Minute)
				payments := s.double.Books().Payments
				last := payments[len(payments)-1]
				for range 4 {
					s.read()
					must.Do(s, s.at().rail.Sync(s.ctx, []byte(last.PaymentIntent)))
				}
				o, err := store.CardOrphanByID(s.ctx, s.store, last.PaymentIntent)
				if err != nil || o.Resolution != "" || !o.ResolvedAt.IsZero() || o.Left() != last.Captured {
					s.Fatalf("%v: %+v, refunds %q", err, o, s.refunds(id))
				}
				if n := len(s.log.with("a payment, refund, or dispute at the card processor does not belong")); n != c.alarms {
					s.Errorf("%d alarms", n)
				}
			})
		})
	}
}

// A refund that failed before the order was granted is in its records.
// F28
func TestFailedRefundIsRecorded(t *testing.T) {
	each(t, func(s *scene) {
		s.read()
		p := s.plan()
		intent := s.loses(p, "pm_card_refundFail", "")
		s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 100})
		s.read()
		s.read()
		o := s.unmatched(intent)
		if o.Left() != 500 {
			s.Fatalf("%+v", o)
		}
		must.Do(s, s.grants(o, nil))
		s.decided(o.OrderID, 10*time.Minute)
		s.granted(o.OrderID)
		s.has(o.OrderID, 0, "", "processor failed 100")
	})
}

// A payment is read while it is refunded and read once more: the older state does not replace the newer one.
// F28
func TestOlderStateOfLostPayment(t *testing.T) {
	each(t, func(s *scene) {
		s.others = true
		intent := s.loses(s.plan(), "pm_card_visa", "")
		s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
			older, err := next.RoundTrip(r)
			s.put(nil)
			s.now.Add(1)
			s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 200})
			must.Do(s, s.at().rail.Sync(s.ctx, []byte(intent)))
			return older, err
		})
		must.Do(s, s.at().rail.Sync(s.ctx, []byte(intent)))
		if o := s.unmatched(intent); o.Left() != 300 {
			s.Fatalf("%+v", o)
		}
	})
}

// A payment that was refunded in part and disputed before its page is settled grants no credits that the dispute takes, before any event
// is read.
func TestPage_DisputedBeforeItIsSettled(t *testing.T) {
	each(t, func(s *scene) {
		for _, refunded := range []int64{0, 200} {
			p := s.plan()
			id := s.order(p)
			s.pay(s.page(id), goodCard)
			var refunds []string
			if refunded > 0 {
				s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: refunded})
				refunds = []string{"processor succeeded 200"}
			}
			s.fault(double.Fault{Kind: "dispute", Object: s.lastCharge()})
			s.decided(id, time.Minute)
			s.granted(id)
			s.has(id, refunded, store.DisputeOpen, refunds...)
			s.money(p, id, refunded, 100, 0, 0, 0)
		}
	})
}

// A lost payment that was refunded needs nothing more, until its refund fails.
// F28
func TestLostPaymentWasRefunded(t *testing.T) {
	each(t, func(s *scene) {
		s.others = true // the books of the service have no order of it
		s.read()
		d := s.delegation(s.card("pm_card_visa"), 1000)
		intent := s.loses(s.plan(), "pm_card_refundFail", d)
		s.read()
		s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 500})
		must.Do(s, s.at().rail.Sync(s.ctx, []byte(intent)))
		if o := s.unmatched(intent); o.Resolution != store.OrphanRefunded || o.ResolvedAt.IsZero() || s.remaining(d) != 1000 {
			s.Fatalf("%+v, %d left", o, s.remaining(d))
		}
		s.audit()
		before := len(s.alarms())
		s.read()
		s.read()
		if o := s.unmatched(intent); o.Resolution != "" || !o.ResolvedAt.IsZero() || o.Left() != 500 || s.remaining(d) != 500 {
			s.Fatalf("%+v, %d left", o, s.remaining(d))
		}
		if n := len(s.alarms()) - before; n != 1 {
			s.Errorf("%d alarms", n)
		}
	})
}

// The refund of a lost payment returns the rest of it, even if a part was refunded after the rail read it.
// F28
func TestRestOfLostPaymentIsRefunded(t *testing.T) {
	each(t, func(s *scene) {
		s.others = true
		s.read()
		intent := s.loses(s.plan(), "pm_card_visa", "")
		s.read()
		s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 200})
		s.read()
		o := s.unmatched(intent)
		if o.Left() != 300 {
			s.Fatalf("%+v", o)
		}
		s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 50})
		s.givesBack(o)
		s.later(time.Minute)
		if o = s.unmatched(intent); o.Resolution != store.OrphanRefunded || o.Left() != 0 {
			s.Fatalf("%+v", o)
		}
		if _, cents := s.charges(); cents != s.double.Books().Currencies["usd"].Refunded {
			s.Fatalf("not all of %d cents went back", cents)
		}
	})
}

// A delegation counts lost payments that name it, from the time when they are read: what was charged never exceeds its limit.
// F28
func TestDelegationCountsLostPayments(t *testing.T) {
	each(t, func(s *scene) {
		s.others = true // the books of the service have no order of the lost payments
		s.read()
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1700)
		s.bought(p, d)
		if pi := s.intent(s.lastOrder()); pi.Metadata["delegation_id"] != d {
			s.Fatalf("the payment does not name its delegation: %v", pi.Metadata)
		}
		s.pass(time.Second)
		first, second := s.loses(p, "pm_card_visa", d), s.loses(p, "pm_card_visa", d)

		// The database is a restored one: no card is charged before the lost payments were read, and then within the limit.
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
			return store.PutRestoration(s.ctx, tx, &store.Restoration{BackupAt: s.machineClock(), RestoredAt: s.machineClock()})
		}))
		id, ended := s.placed(func() error { return s.at().topUp(p, d, "one") })
		other := s.inBackground(func() error { return s.at().topUp(s.plan(), d, "other") })
		s.until(func() bool { return s.count("SELECT COUNT(*) FROM card_payments WHERE state = 'created'") == 2 })
		s.later(time.Minute)
		if n, _ := s.charges(); n != 3 {
			s.Fatalf("%d charges before the payments were read", n)
		}
		s.turn(s.at().rail.Loops()[0])
		s.decided(id, 2*time.Minute)
		s.code(<-ended, toll.CodeDelegationInsufficient)
		s.later(time.Minute)
		s.code(<-other, toll.CodeDelegationInsufficient)
		if n, _ := s.charges(); n != 3 || s.remaining(d) != 200 {
			s.Fatalf("%d charges, %d cents left", n, s.remaining(d))
		}
		s.audit()

		// Its order has what the payment took; a refund gives it back; settled by other means it stays.
		o := s.unmatched(first)
		must.Do(s, s.grants(o, nil))
		s.audit()
		s.decided(o.OrderID, 10*time.Minute)
		if so := s.state(o.OrderID); so.DelegationID != d || so.Cents != 500 || s.remaining(d) != 200 {
			s.Fatalf("%+v, %d cents left", so, s.remaining(d))
		}
		s.audit()
		s.givesBack(s.unmatched(second))
		s.later(time.Minute)
		if s.remaining(d) != 700 {
			s.Fatalf("%d cents left", s.remaining(d))
		}
		third := s.loses(p, "pm_card_visa", d)
		s.read()
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
			return s.resolve(tx, *s.unmatched(third), store.OrphanSettled, s.clock())
		}))
		if s.remaining(d) != 200 {
			s.Fatalf("%d cents left", s.remaining(d))
		}
	})
}
