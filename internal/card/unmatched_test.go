package card_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/store"
)

// lost makes a captured payment of an order that the database lacks, and has the rail see it.
func (s *scene) lost(p *toll.Plan) (orphan *store.CardOrphan) {
	s.Helper()
	id := toll.NewUUID()
	pi, err := s.charge("pm_card_visa", map[string]string{
		"installation": installation, "order_id": id, "attempt": "1", "plan_id": string(p.ID), "subscriber": buyer.Lower(),
	})
	s.must(err)
	s.must(s.at().rail.Sync(s.ctx, []byte(pi.ID)))
	all, err := store.CardOrphans(s.ctx, s.store, 10)
	s.must(err)
	if len(all) != 1 || all[0].OrderID != id || all[0].Plan != p.ID || all[0].Subscriber != buyer {
		s.Fatalf("%+v", all)
	}
	return all[0]
}

// resolve stores what was done about a payment without an order.
func (s *scene) resolve(tx *store.Tx, o store.CardOrphan, resolution string, at time.Time) error {
	o.Resolution, o.ResolvedAt = resolution, at
	return store.UpdateCardOrphan(s.ctx, tx, &o)
}

// grants records the lost order of a payment. broken ends the transaction after its last write.
func (s *scene) grants(o *store.CardOrphan, broken error) error {
	s.Helper()
	in := checkout.LostOrder{
		ID: o.OrderID, Plan: o.Plan, Subscriber: o.Subscriber, Currency: o.Currency,
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
func TestF28_LostOrderIsGranted(t *testing.T) {
	atSteps(t, []string{"card.deciding", "card.decided"}, func(s *scene, step string) {
		p := s.plan()
		o := s.lost(p)
		if err := s.grants(o, errKilled); !errors.Is(err, errKilled) {
			s.Fatalf("%v", err)
		}
		if n := s.count("SELECT COUNT(*) FROM orders WHERE order_id = $1", o.OrderID); n != 0 {
			s.Fatal("a transaction that ended early left an order")
		}
		s.must(s.grants(o, nil))
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
func TestF28_LostPaymentIsRefunded(t *testing.T) {
	atSteps(t, []string{"card.refunding", "card.calling", "card.answered", "card.refunded"}, func(s *scene, step string) {
		s.others = true // the books of the service have no order of it
		o := s.lost(s.plan())
		s.must(s.store.Tx(s.ctx, func(tx *store.Tx) error {
			if err := s.resolve(tx, *o, store.OrphanRefunding, time.Time{}); err != nil {
				return err
			}
			return card.RefundOrphan(s.ctx, tx, o, s.clock())
		}))
		s.kill(step)
		s.later(10 * time.Minute)
		s.wasKilled(step)
		if n := s.count("SELECT COUNT(*) FROM card_orphans WHERE object_id = $1 AND resolution = 'refunded' AND resolved_at > 0", o.Object); n != 1 {
			s.Fatal("the refund is not noted")
		}
		pi, err := s.stripe.V1PaymentIntents.Retrieve(s.ctx, o.Object, &stripe.PaymentIntentRetrieveParams{
			Expand: []*string{stripe.String("latest_charge")},
		})
		s.must(err)
		if got := pi.LatestCharge.AmountRefunded; got != o.Cents {
			s.Fatalf("%d cents were refunded", got)
		}
	})
}
