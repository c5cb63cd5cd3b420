package card_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// A refund of a seller is sent once, whenever the process ends, and its credits are taken back.
func TestRefund_Killed(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		for _, step := range []string{
			"card.refunding", "card.calling", "card.answered", "card.refunded", "card.adjusting",
		} {
			id := s.paid(p, goodCard)
			must.Get(s.beginRefund(id, 200))(s)
			s.kill(step)
			s.at().run()
			if _, there := s.steps.Load(step); there {
				s.Fatalf("nothing reached %s", step)
			}
			s.start()
			s.later(3 * time.Minute)
			s.has(id, 200, "", "seller succeeded 200")
		}
		if b := s.double.Books().Currencies["usd"]; b.Refunded != 1000 {
			s.Errorf("the double refunded %d", b.Refunded)
		}
		// The event of each refund changes nothing.
		s.read()
		if n := s.count("SELECT COUNT(*) FROM card_refunds"); n != 5 {
			s.Errorf("%d refunds", n)
		}
	})
}

// A refund whose answer is lost is asked for again with the same key; after a day it is looked up,
// and sent again only when Stripe does not have it.
func TestRefund_Unclear(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		for _, f := range []double.Fault{
			{Kind: "cut"}, {Kind: "cut", After: true}, {Kind: "429"}, {Kind: "500", After: true}, {Kind: "cut", Count: 4}, {Kind: "cut", After: true, Count: 4},
		} {
			id := s.paid(p, goodCard)
			must.Get(s.beginRefund(id, 0))(s)
			f.Method, f.Path = "POST", "/v1/refunds"
			s.fault(f)
			s.later(5 * time.Minute)
			s.fault(double.Fault{Kind: "clear"})
			s.has(id, 500, "", "seller succeeded 500")
		}
		// Stripe repeats this answer for a day.
		for _, after := range []bool{false, true} {
			id := s.paid(p, goodCard)
			must.Get(s.beginRefund(id, 100))(s)
			s.fault(double.Fault{Kind: "500", Count: 3, After: after, Method: "POST", Path: "/v1/refunds"})
			s.at().run()
			s.fault(double.Fault{Kind: "clear"})
			s.pass(23*time.Hour + time.Minute)
			s.at().run()
			s.later(2 * time.Minute)
			s.has(id, 100, "", "seller succeeded 100")
		}
		if b := s.double.Books().Currencies["usd"]; b.Refunded != 6*500+2*100 {
			s.Errorf("the double refunded %d", b.Refunded)
		}
	})
}

// The refunds that the rail refuses before it sends them, and those that Stripe refuses.
func TestRefund_Refused(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		id := s.paid(p, goodCard)
		refused := func(id string, cents int64) {
			s.Helper()
			_, err := s.beginRefund(id, cents)
			s.code(err, toll.CodeRefundRefused)
		}
		for _, cents := range []int64{-1, 501} {
			refused(id, cents)
		}
		must.Get(s.beginRefund(id, 300))(s)
		refused(id, 201) // the first is not sent yet, and counts
		first := must.Get(s.beginRefund(id, 0))(s)
		must.Do(s, s.at().Decisions.Change(s.ctx, s.row(id).Account, func(t *rail.Tx) error { // a repeat
			return s.at().rail.BeginRefund(s.ctx, t, rail.Refund{ID: first, OrderID: id, By: seller})
		}))
		refused(id, 0)
		if decided, failure, err := s.at().rail.Refunded(s.ctx, first); decided || failure != "" || err != nil {
			s.Errorf("not sent: %t %q %v", decided, failure, err)
		}
		s.at().run()
		s.has(id, 500, "", "seller succeeded 200", "seller succeeded 300")
		if decided, failure, err := s.at().rail.Refunded(s.ctx, first); !decided || failure != "" || err != nil {
			s.Errorf("sent: %t %q %v", decided, failure, err)
		}

		disputed := s.paid(p, goodCard)
		late := must.Get(s.beginRefund(disputed, 100))(s)
		s.fault(double.Fault{Kind: "dispute", Object: s.row(disputed).Charge})
		s.at().run() // Stripe refuses it
		s.has(disputed, 0, "", "seller failed 100")
		if len(s.alarms()) != 0 { // a race, not a fault
			s.Errorf("alarms %q", s.alarms())
		}
		if decided, failure, err := s.at().rail.Refunded(s.ctx, late); !decided || failure == "" || err != nil {
			s.Errorf("refused: %t %q %v", decided, failure, err)
		}
		s.read()
		s.has(disputed, 0, store.DisputeOpen, "seller failed 100")
		refused(disputed, 100)
		s.fault(double.Fault{Kind: "won", Object: s.disputed(disputed)})
		s.read()
		s.has(disputed, 0, store.DisputeWon, "seller failed 100")
		must.Get(s.beginRefund(disputed, 500))(s)
		s.at().run()
		s.has(disputed, 500, store.DisputeWon, "seller failed 100", "seller succeeded 500")

		open := s.order(p)
		refused(open, 0)
	})
}

// Without webhooks, a refund from Stripe's page is seen by the loop, also one that is pending, and
// one that fails later or is canceled gives the credits back.
func TestRefund_AtStripe(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		s.read()
		good, pending, failing := s.paid(p, goodCard), s.paid(p, pendingCard), s.paid(p, failingCard)
		canceled := s.paid(p, pendingCard)
		for _, id := range []string{good, pending, failing, canceled} {
			s.fault(double.Fault{Kind: "refund", Object: s.row(id).Charge, Amount: 200})
		}
		s.turn(s.at().rail.Loops()[0])
		s.at().run()
		s.has(good, 200, "", "processor succeeded 200")
		s.has(pending, 200, "", "processor pending 200")
		s.has(failing, 200, "", "processor succeeded 200")
		s.has(canceled, 200, "", "processor pending 200")
		intent := s.row(canceled).Intent
		for re, err := range s.stripe.V1Refunds.List(s.ctx, &stripe.RefundListParams{PaymentIntent: &intent}).All(s.ctx) {
			must.Do(s, err)
			s.fault(double.Fault{Kind: "refund_ends", Object: re.ID})
		}
		s.read() // 20 s later: the double needs two
		s.read()
		s.has(good, 200, "", "processor succeeded 200")
		s.has(pending, 200, "", "processor succeeded 200")
		s.has(failing, 0, "", "processor failed 200")
		s.has(canceled, 0, "", "processor failed 200")
		for _, id := range []string{good, failing} {
			s.fault(double.Fault{Kind: "refund", Object: s.row(id).Charge, Amount: 300})
		}
		s.read()
		s.has(good, 500, "", "processor succeeded 200", "processor succeeded 300")
	})
}

// A seller who pays and refunds in a loop costs the operator fees. Beyond a bound per seller and day, the refund needs the operator,
// who makes it on the page of the processor. The next day has a bound of its own.
func TestRefund_Fees(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		s.read()
		payouts := s.at().rail.Loops()[1]
		s.turn(payouts)
		if got := s.alarms(); len(got) != 0 {
			s.Fatalf("alarms before the loop: %q", got)
		}
		loop := func(n int) (refunded int, last string) {
			s.Helper()
			for range n {
				last = s.paid(p, goodCard)
				if _, err := s.beginRefund(last, 0); err != nil {
					s.code(err, toll.CodeRefundRefused)
					continue
				}
				refunded++
				s.at().run()
			}
			return refunded, last
		}
		const fee = 44 // of 5.00 at the double
		refunded, last := loop(22)
		if refunded != 500/fee {
			s.Errorf("%d payments are refunded, want %d", refunded, 500/fee)
		}
		s.has(last, 0, "")
		if n := s.count("SELECT COUNT(*) FROM card_refunds"); n != int64(refunded) {
			s.Errorf("%d rows of refunds, want %d", n, refunded)
		}
		// The operator refunds on the page of the processor.
		s.fault(double.Fault{Kind: "refund", Object: s.row(last).Charge, Amount: 500})
		s.read()
		s.has(last, 500, "", "processor succeeded 500")

		s.pass(24 * time.Hour)
		if refunded, _ = loop(1); refunded != 1 {
			s.Error("the bound of a day holds on the next day")
		}
		if n := s.count("SELECT COUNT(*) FROM card_refund_fees"); n != 1 {
			s.Errorf("%d rows of one seller", n)
		}
	})
}

// The parts of one payment count its fee once, and the first payment of a day is refunded whatever its fee.
func TestRefund_FeesOfParts(t *testing.T) {
	each(t, func(s *scene) {
		s.refundFees = 43
		s.start()
		p := s.plan()
		id, second := s.paid(p, goodCard), s.paid(p, goodCard)
		for range 5 {
			must.Get(s.beginRefund(id, 100))(s)
		}
		_, err := s.beginRefund(second, 100)
		s.code(err, toll.CodeRefundRefused)
		s.at().run()
		s.has(id, 500, "", "seller succeeded 100", "seller succeeded 100", "seller succeeded 100", "seller succeeded 100", "seller succeeded 100")
	})
}

// A line of payouts that is negative raises one alarm a month.
func TestPayoutNegative(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		s.read()
		payouts := s.at().rail.Loops()[1]
		id := s.paid(p, goodCard)
		s.later(time.Minute)
		s.turn(payouts)
		paidOut := func(cents int64) {
			s.Helper()
			must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
				return store.InsertCardPayout(s.ctx, tx, &store.CardPayout{
					ID: toll.NewUUID(), Seller: seller, Month: "2026-11", Currency: "usd", Cents: cents, PaidAt: s.clock(),
				})
			}))
		}
		paidOut(500 - 44) // without the fee
		s.turn(payouts)
		if got := s.alarms(); len(got) != 0 {
			s.Errorf("lines that are positive and zero: %q", got)
		}
		must.Get(s.beginRefund(id, 0))(s)
		s.at().run()
		s.read()
		for range 2 {
			s.turn(payouts)
		}
		got := s.alarms()
		if len(got) != 1 || !strings.Contains(got[0], "alarm=payout-negative") {
			s.Errorf("%q", got)
		}
		s.pass(10 * 24 * time.Hour)
		id = s.paid(p, goodCard)
		must.Get(s.beginRefund(id, 0))(s)
		s.at().run()
		for range 2 {
			s.turn(payouts)
		}
		if got := s.alarms(); len(got) != 2 || !strings.Contains(got[1], "month=2026-12") {
			s.Errorf("in the next month: %q", got)
		}
	})
}
