package card_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// Numbers of cards.
const (
	goodCard    = "4242424242424242"
	declineCard = "4000000000000002"
	pendingCard = "4000000000007726" // its refunds are pending for a while
	failingCard = "4000000000005126" // its refunds fail later
)

// paid places an order and pays it on its page with a card.
func (s *scene) paid(p *toll.Plan, number string) (orderID string) {
	s.Helper()
	id := s.order(p)
	s.pay(s.page(id), number)
	s.decided(id, time.Minute)
	s.granted(id)
	return id
}

// beginRefund has the seller refund an order.
func (s *scene) beginRefund(orderID string, cents int64) (refundID string, err error) {
	s.Helper()
	refundID = toll.NewUUID()
	err = s.at().Decisions.Change(s.ctx, s.row(orderID).Account, func(t *rail.Tx) error {
		return s.at().rail.BeginRefund(s.ctx, t, rail.Refund{ID: refundID, OrderID: orderID, Cents: cents, By: seller})
	})
	return refundID, err
}

// refunds returns the rows of the refunds of an order, as origin, state and cents.
func (s *scene) refunds(orderID string) (out []string) {
	s.Helper()
	all := must.Get(store.CardRefundsOf(s.ctx, s.store, orderID))(s)
	for _, re := range all {
		out = append(out, fmt.Sprintf("%s %s %d", re.Origin, re.State, re.Cents))
	}
	slices.Sort(out)
	return out
}

// has fails the test unless an order has these refunds, this number of refunded cents, and this
// dispute.
func (s *scene) has(orderID string, cents int64, dispute string, refunds ...string) {
	s.Helper()
	if got := s.refunds(orderID); !slices.Equal(got, refunds) {
		s.Fatalf("the refunds are %q, want %q", got, refunds)
	}
	if o := s.state(orderID); o.RefundedCents != cents || o.Dispute != dispute {
		s.Fatalf("the order says %d cents and %q, want %d and %q", o.RefundedCents, o.Dispute, cents, dispute)
	}
}

// read has the loop read the events, and runs what follows.
func (s *scene) read() {
	s.Helper()
	s.pass(20 * time.Second)
	s.turn(s.at().rail.Loops()[0])
	s.at().run()
}

// disputed returns the id of the last dispute of an order.
func (s *scene) disputed(orderID string) string {
	s.Helper()
	intent := s.row(orderID).Intent
	for d, err := range s.stripe.V1Disputes.List(s.ctx, &stripe.DisputeListParams{PaymentIntent: &intent}).All(s.ctx) {
		must.Do(s, err)
		return d.ID
	}
	s.Fatal("no dispute")
	return ""
}

// permission returns a permission of the buyer on a plan.
func (s *scene) permission(p *toll.Plan) toll.Hash {
	s.Helper()
	if hash, there := s.permissions[p.ID]; there {
		return hash
	}
	perm := ledger.Permission{
		Hash: toll.NewHash(), Plan: p.ID, Subscriber: buyer, Scheme: "x", Network: "y", CreatedAt: s.clock(),
		ExpiresAt: s.clock().Add(90 * 24 * time.Hour),
	}
	must.Do(s, s.ledger.CreatePermission(s.ctx, perm))
	s.permissions[p.ID] = perm.Hash
	return perm.Hash
}

// hold holds credits of the buyer, and returns the id of the request.
func (s *scene) hold(p *toll.Plan, n toll.Credits) string {
	s.Helper()
	none := ""
	h := must.Get(s.ledger.Hold(s.ctx, ledger.HoldOp{
		Plan: p.ID, Subscriber: buyer, Permission: s.permission(p), Amount: n, Until: s.clock().Add(24 * time.Hour), OrderTx: &none,
	}))(s)
	return h.RequestID
}

// spend uses credits of the buyer up.
func (s *scene) spend(p *toll.Plan, n toll.Credits) {
	s.Helper()
	if n > 0 {
		s.settle(p, s.hold(p, n), n)
	}
}

// settle uses credits up that are on hold.
func (s *scene) settle(p *toll.Plan, request string, n toll.Credits) {
	s.Helper()
	none := ""
	must.Get(s.ledger.Settle(s.ctx, ledger.SettleOp{
		Plan: p.ID, Subscriber: buyer, Permission: s.permission(p), RequestID: request, Amount: n, OrderTx: &none,
		Render: func(ledger.Receipt) []byte { return nil },
	}))(s)
}

// webhooks returns the events of the double as webhooks, the oldest first.
func (s *scene) webhooks() (bodies [][]byte) {
	s.Helper()
	p := &stripe.EventListParams{}
	p.Limit = stripe.Int64(100)
	for e, err := range s.stripe.V1Events.List(s.ctx, p).All(s.ctx) {
		must.Do(s, err)
		id, _ := e.Data.Object["id"].(string)
		bodies = append(bodies, eventOf(e.ID, string(e.Type), id, ""))
	}
	slices.Reverse(bodies)
	return bodies
}

// receive delivers a webhook.
func (s *scene) receive(body []byte) {
	s.Helper()
	must.Do(s, s.at().rail.Receive(s.ctx, double.Sign(s.machineClock(), body, hookSecret), body))
}

// T75: an event that comes again, and other events of the same object, grant once.
// T75
func TestRepeatedEvents(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		id := s.order(p)
		s.pay(s.page(id), goodCard)
		var body []byte
		for _, b := range s.webhooks() {
			if strings.Contains(string(b), "payment_intent.succeeded") {
				body = b
			}
		}
		for range 50 {
			s.receive(body)
		}
		s.took(1, 1) // one job: one fetch
		s.at().run()
		s.granted(id)
		intent := s.row(id).Intent
		for i := range 50 {
			s.receive(eventOf(fmt.Sprint("evt_again", i), "payment_intent.succeeded", intent, ""))
		}
		s.took(51, 1)
		s.start() // another process, or the same one after a crash
		s.receive(body)
		s.at().run()
		s.took(51, 0)
		if s.granted(id); s.balance(p) != 100 {
			s.Errorf("%d credits", s.balance(p))
		}
	})
}

// T76: the state of the object decides, in any order of its events, and when some of them are lost.
// T76
func TestOrderOfEvents(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		for name, c := range map[string]struct {
			happens func(id, page string)
			check   func(id string)
		}{
			"failed after succeeded": {
				func(id, page string) { s.pay(page, declineCard); s.pay(page, goodCard) },
				func(id string) { s.granted(id) },
			},
			"succeeded after refunded": {
				func(id, page string) {
					s.pay(page, goodCard)
					s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 500})
				},
				func(id string) { s.failed(id, toll.CodeCheckoutFailed) }, // no mint after a full refund
			},
			"refunded in part": {
				func(id, page string) {
					s.pay(page, goodCard)
					s.fault(double.Fault{Kind: "refund", Object: s.lastCharge(), Amount: 200})
				},
				func(id string) { s.granted(id); s.has(id, 200, "", "processor succeeded 200") },
			},
			"a dispute before its charge": {
				func(id, page string) {
					s.pay(page, goodCard)
					s.fault(double.Fault{Kind: "dispute", Object: s.lastCharge()})
				},
				func(id string) { s.granted(id); s.has(id, 0, store.DisputeOpen) },
			},
			"a dispute that was lost": {
				func(id, page string) {
					s.pay(page, goodCard)
					s.fault(double.Fault{Kind: "dispute", Object: s.lastCharge()})
					s.fault(double.Fault{Kind: "lost", Object: s.lastDispute()})
				},
				func(id string) { s.granted(id); s.has(id, 0, store.DisputeLost) },
			},
		} {
			random := rand.New(rand.NewPCG(76, 1))
			for round := range 4 {
				seen := len(s.webhooks())
				id := s.order(p)
				c.happens(id, s.page(id))
				bodies := slices.DeleteFunc(s.webhooks()[seen:], func(b []byte) bool { return bytes.Contains(b, []byte("charge.refunded")) })
				switch round {
				case 0:
					slices.Reverse(bodies)
				case 1: // all but the last are lost
					bodies = bodies[len(bodies)-1:]
				default:
					random.Shuffle(len(bodies), func(i, j int) { bodies[i], bodies[j] = bodies[j], bodies[i] })
				}
				for _, b := range bodies {
					s.receive(b)
					s.at().run()
				}
				s.receive(eventOf(fmt.Sprintf("evt_%s%d", id, round), "checkout.session.expired", s.row(id).Session, ""))
				s.at().run()
				if c.check(id); s.Failed() {
					s.Fatalf("%s, round %d", name, round)
				}
			}
		}
	})
}

// lastCharge returns the charge that took money last.
func (s *scene) lastCharge() string {
	s.Helper()
	all := s.double.Books().Payments
	return all[len(all)-1].Charge
}

func (s *scene) lastDispute() string {
	s.Helper()
	for d, err := range s.stripe.V1Disputes.List(s.ctx, nil).All(s.ctx) {
		must.Do(s, err)
		return d.ID
	}
	return ""
}

// An inquiry only sends an event. A dispute takes the credits away until it is won. Of several
// disputes the worst one counts.
func TestDisputes(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		s.read()
		inquiry, won, lost, two, prevented := s.paid(p, goodCard), s.paid(p, goodCard), s.paid(p, goodCard), s.paid(p, goodCard), s.paid(p, goodCard)
		contest := func(id, kind string, cents int64) {
			s.Helper()
			s.fault(double.Fault{Kind: kind, Object: s.row(id).Charge, Amount: cents})
		}
		contest(inquiry, "inquiry", 0)
		contest(won, "dispute", 0)
		contest(lost, "dispute", 0)
		contest(two, "dispute", 200)
		contest(prevented, "prevented", 0)
		s.read()
		s.has(inquiry, 0, "")
		s.has(won, 0, store.DisputeOpen)
		s.has(lost, 0, store.DisputeOpen)
		s.has(two, 0, store.DisputeOpen)
		s.has(prevented, 0, store.DisputeLost)
		s.fault(double.Fault{Kind: "escalate", Object: s.disputed(inquiry)})
		s.fault(double.Fault{Kind: "won", Object: s.disputed(won)})
		s.fault(double.Fault{Kind: "lost", Object: s.disputed(lost)})
		s.fault(double.Fault{Kind: "won", Object: s.disputed(two)})
		contest(two, "dispute", 300)
		s.read()
		s.has(inquiry, 0, store.DisputeOpen)
		s.has(won, 0, store.DisputeWon)
		s.has(lost, 0, store.DisputeLost)
		s.has(two, 0, store.DisputeOpen)
		s.fault(double.Fault{Kind: "won", Object: s.disputed(inquiry)})
		s.fault(double.Fault{Kind: "lost", Object: s.disputed(two)})
		s.read()
		s.has(inquiry, 0, store.DisputeWon)
		s.has(two, 0, store.DisputeLost)

		// A dispute of a fifth takes a fifth of the credits, and keeps them when it is lost.
		part := s.paid(p, goodCard)
		contest(part, "dispute", 100)
		for _, word := range []string{store.DisputeOpen, store.DisputeLost} {
			s.read()
			s.has(part, 0, word)
			if o := s.state(part); o.RefundedCredits*5 != o.Credits || o.DisputedCents != 100 || o.Loss != 0 {
				s.Errorf("%s: %+v", word, o)
			}
			s.fault(double.Fault{Kind: "lost", Object: s.disputed(part)})
		}

		quiet := s.paid(p, goodCard)
		contest(quiet, "inquiry", 0)
		s.read()
		s.fault(double.Fault{Kind: "lost", Object: s.disputed(quiet)}) // closed without a dispute
		s.read()
		s.has(quiet, 0, "")
		d, err := store.CardDisputesOf(s.ctx, s.store, quiet)
		if must.Do(s, err); len(d) != 1 || d[0].State != "warning_closed" || d[0].Withdrawn || d[0].DueAt.IsZero() {
			s.Errorf("got %+v", d[0])
		}
	})
}

// While an order refuses a refund, the payment keeps the refund and retries.
func TestAdjust_Undecided(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		id := s.paid(p, goodCard)
		s.orderAway(id, true)
		s.fault(double.Fault{Kind: "refund", Object: s.row(id).Charge, Amount: 200})
		s.read()
		if got := s.refunds(id); !slices.Equal(got, []string{"processor succeeded 200"}) || !s.row(id).Undecided || len(s.alarms()) == 0 {
			s.Fatalf("got %q, %+v, %v", got, s.row(id), s.alarms())
		}
		s.orderAway(id, false)
		s.later(2 * time.Minute)
		if s.row(id).Undecided {
			s.Error("it is still undecided")
		}
		s.has(id, 200, "", "processor succeeded 200")
	})
}

// orderAway hides an order from its payment.
func (s *scene) orderAway(id string, away bool) {
	s.Helper()
	from, to := id, toll.NewUUID()
	if !away {
		must.Do(s, s.store.QueryRow(s.ctx, "SELECT order_id FROM orders LIMIT 1").Scan(&from))
		to = id
	}
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(s.ctx, "UPDATE orders SET order_id = $2 WHERE order_id = $1", from, to)
		return err
	}))
}

// A second captured payment of an order is refunded, and its refund does not change the order.
func TestSecondPayment(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		id := s.paid(p, goodCard)
		second := must.Get(s.charge("pm_card_visa", map[string]string{"installation": installation, "order_id": id, "attempt": "1"}))(s)
		s.read()
		s.rejected(id, 1)
		s.has(id, 0, "", "rejected succeeded 500")
		if s.granted(id); s.row(id).Intent == second.ID || s.balance(p) != 100 {
			s.Errorf("%+v, %d credits", s.row(id), s.balance(p))
		}
		s.read()
		s.rejected(id, 1)
		owed, err := card.OwedOf(s.ctx, s.store, "2026-11")
		if must.Do(s, err); len(owed) != 1 || owed[0].Orders != 1 || owed[0].Charged != 500 || owed[0].Refunded != 0 || owed[0].Fees != 44 {
			s.Errorf("owed: %+v", owed)
		}
	})
}

// Money with our name on it that no order explains is an orphan, once (I13).
// I13
func TestMoney_Orphans(t *testing.T) {
	each(t, func(s *scene) {
		s.others = true // no order: nothing of it is in our books
		s.read()
		gone := toll.NewUUID()
		pi, err := s.charge("pm_card_visa", map[string]string{"installation": installation, "order_id": gone})
		must.Do(s, err)
		s.fault(double.Fault{Kind: "refund", Object: pi.LatestCharge.ID, Amount: 100})
		_, err = s.charge("pm_card_chargeCustomerFail", map[string]string{"installation": installation, "order_id": gone})
		if err == nil {
			s.Fatal("the card was not declined")
		}
		s.read()
		s.read()
		orphans, err := store.CardOrphans(s.ctx, s.store, 10)
		if must.Do(s, err); len(orphans) != 1 || orphans[0].Object != pi.ID || orphans[0].OrderID != gone || orphans[0].Cents != 500 {
			s.Errorf("got %+v", orphans)
		}
		if n := len(s.alarms()); n != 1 {
			s.Errorf("%d alarms: %v", n, s.alarms())
		}
	})
}

// What a seller is owed of a month, and the story of an order for the answer to a dispute.
func TestOwedAndStory(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		s.read()
		refunded, disputed, failing := s.paid(p, goodCard), s.paid(p, goodCard), s.paid(p, failingCard)
		must.Get(s.beginRefund(refunded, 200))(s)
		must.Get(s.beginRefund(failing, 0))(s)
		s.fault(double.Fault{Kind: "dispute", Object: s.row(disputed).Charge})
		s.at().run()
		s.read()
		s.read()
		owed := func(month string, want card.Owed) {
			s.Helper()
			got, err := card.OwedOf(s.ctx, s.store, month)
			if must.Do(s, err); len(got) != 1 || got[0] != want {
				s.Fatalf("got %+v, want %+v", got, want)
			}
		}
		november := card.Owed{
			Builder: seller, Month: "2026-11", Currency: "usd", Orders: 3, Charged: 1500, Refunded: 200, Disputed: 500, Fees: 3*44 + 1500,
			Due: 1500 - 200 - 500 - 3*44 - 1500,
		}
		owed("2026-11", november)
		s.pass(14 * 24 * time.Hour) // to December
		s.fault(double.Fault{Kind: "won", Object: s.disputed(disputed)})
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
			return store.InsertCardPayout(s.ctx, tx, &store.CardPayout{
				ID: toll.NewUUID(), Seller: seller, Month: "2026-11", Currency: "usd", Cents: 70, PaidAt: s.clock(),
			})
		}))
		for range 400 {
			s.pass(20 * time.Second)
			if s.turn(s.at().rail.Loops()[0]) == 0 {
				break
			}
		}
		s.at().run()
		november.PaidOut, november.Due = 70, november.Due-70
		owed("2026-11", november)
		owed("2026-12", card.Owed{Builder: seller, Month: "2026-12", Currency: "usd", Disputed: -500, Fees: -1500, Due: 2000})
		for _, month := range []string{"", "2026", "2026-13", "2026-1", "2026-11-01"} {
			_, err := card.OwedOf(s.ctx, s.store, month)
			s.code(err, toll.CodeBadRequest)
		}
		story := must.Get(card.StoryOf(s.ctx, s.store, disputed))(s)
		var kinds []string
		for _, m := range story.Moves {
			kinds = append(kinds, m.Kind)
		}
		if story.Payment.OrderID != disputed || len(story.Disputes) != 1 || len(story.Refunds) != 0 ||
			!slices.Equal(kinds, []string{"charge", "dispute", "reinstated"}) {
			s.Errorf("got %+v, %v", story, kinds)
		}
		if _, err := card.StoryOf(s.ctx, s.store, toll.NewUUID()); err == nil {
			s.Error("an order without a payment has a story")
		}
	})
}
