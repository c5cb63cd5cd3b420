package card_test

import (
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// twoRuns are faults that lose all answers of two runs in a row.
func twoRuns(path string, after bool) double.Fault { return post("cut", path, 2*3, after) }

// eachLoss runs a test on each store, with answers that are lost before and after the processor has executed the request.
func eachLoss(t *testing.T, f func(s *scene, after bool)) {
	t.Helper()
	for name, after := range map[string]bool{"executed": true, "not executed": false} {
		t.Run(name, func(t *testing.T) { each(t, func(s *scene) { f(s, after) }) })
	}
}

// After a won dispute a seller refunds the rest in parts. Refunds at the processor count, and a part cannot exceed the rest.
func TestRefund_PartsAfterDispute(t *testing.T) {
	each(t, func(s *scene) {
		s.read()
		p := s.plan()
		id := s.paid(p, goodCard)
		s.refund(id, 50)
		s.fault(double.Fault{Kind: "dispute", Object: s.row(id).Charge})
		s.read()
		s.fault(double.Fault{Kind: "won", Object: s.disputed(id)})
		s.read()
		s.refund(id, 100)
		s.fault(double.Fault{Kind: "refund", Object: s.row(id).Charge, Amount: 100})
		s.read()
		s.money(p, id, 250, 50, 0, 0, 50)
		_, err := s.beginRefund(id, 251)
		s.code(err, toll.CodeRefundRefused)
		s.refund(id, 100)
		s.refund(id, 0)
		s.money(p, id, 500, 100, 0, 0, 0)
		s.has(id, 500, store.DisputeWon, "processor succeeded 100", "seller succeeded 100", "seller succeeded 100", "seller succeeded 150", "seller succeeded 50")
		_, err = s.beginRefund(id, 1)
		s.code(err, toll.CodeRefundRefused)
	})
}

// A second dispute takes back the credits that returned after the first. A partial refund before each of them counts once.
func TestDispute_SecondAfterRefunds(t *testing.T) {
	each(t, func(s *scene) {
		s.read()
		p := s.plan()
		id := s.paid(p, goodCard)
		for i, cents := range []int64{100, 150} {
			s.refund(id, 50)
			s.fault(double.Fault{Kind: "dispute", Object: s.row(id).Charge, Amount: cents})
			s.read()
			refunded := 50 * int64(i+1)
			taken := toll.Credits(refunded+cents) / 5
			s.money(p, id, refunded, taken, 0, 0, 100-taken)
			s.fault(double.Fault{Kind: "won", Object: s.disputed(id)})
			s.read()
			s.money(p, id, refunded, toll.Credits(refunded)/5, 0, 0, 100-toll.Credits(refunded)/5)
		}
	})
}

// The answer to the second of two refunds of the same amount is lost. The rail does not take the first refund for it.
func TestRefund_SameAmountUnclear(t *testing.T) {
	eachLoss(t, func(s *scene, after bool) {
		id := s.paid(s.plan(), goodCard)
		s.refund(id, 200)
		must.Get(s.beginRefund(id, 200))(s)
		s.fault(post("500", "/v1/refunds", 3, after))
		s.at().run()
		s.fault(double.Fault{Kind: "clear"})
		s.later(2 * time.Minute)
		s.pass(23*time.Hour + time.Minute)
		s.later(3 * time.Minute)
		s.has(id, 400, "", "seller succeeded 200", "seller succeeded 200")
		if b := s.double.Books().Currencies["usd"]; b.Refunded != 400 {
			s.Errorf("the double refunded %d", b.Refunded)
		}
	})
}

// The processor fails a refund on two days, under another key each day. It is made once.
func TestRefund_FailsOnTwoDays(t *testing.T) {
	eachLoss(t, func(s *scene, after bool) {
		id := s.paid(s.plan(), goodCard)
		must.Get(s.beginRefund(id, 200))(s)
		for day := range 2 {
			s.fault(post("500", "/v1/refunds", 3, after && day == 1))
			s.at().run()
			if !after || day == 0 { // the list shows an executed refund
				s.has(id, 0, "", "seller created 200")
			}
			s.fault(double.Fault{Kind: "clear"})
			s.pass(23*time.Hour + time.Minute)
		}
		s.later(2 * time.Minute)
		s.has(id, 200, "", "seller succeeded 200")
		if b := s.double.Books().Currencies["usd"]; b.Refunded != 200 {
			s.Errorf("the double refunded %d", b.Refunded)
		}
	})
}

// All answers of two runs are lost while an intent is cancelled, or the processor fails to cancel it and two look-ups are lost.
// T80
func TestTwoLostAnswersOfCancel(t *testing.T) {
	eachLoss(t, func(s *scene, after bool) {
		for _, faults := range [][]double.Fault{
			{twoRuns(intents+"/", after)},
			{post("500", intents+"/", 1, after), {Kind: "cut", Method: "GET", Path: intents + "/", Count: 2}},
		} {
			p, d := s.plan(), s.delegation(s.card("pm_card_authenticationRequired"), 1000)
			for _, f := range faults {
				s.fault(f)
			}
			id, ended := s.placed(func() error { return s.at().topUp(p, d, "") })
			s.decided(id, 20*time.Minute)
			if err := <-ended; err == nil {
				s.Error("the top-up succeeded")
			}
			s.failed(id, toll.CodeCardAuthentication)
			n, _ := s.charges()
			if canceled := s.intent(id).Status == stripe.PaymentIntentStatusCanceled; canceled != (after || len(faults) == 1) || n != 0 || s.remaining(d) != 1000 {
				s.Fatalf("canceled: %t, %d charges, %d left", canceled, n, s.remaining(d))
			}
		}
	})
}

// All answers of two runs are lost while the rail expires a page to replace it.
// T80
func TestTwoLostAnswersOfExpiry(t *testing.T) {
	eachLoss(t, func(s *scene, after bool) {
		s.embedded = true
		s.start()
		p := s.plan()
		out := must.Get(s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: p, Wait: soon}, nil))(s)
		id := out.OrderID
		first := s.row(id).Session
		s.fault(twoRuns(sessions+"/", after))
		for range 2 {
			_, err := s.at().rail.Page(s.ctx, id, true)
			s.code(err, toll.CodeCardUnreachable)
		}
		page := s.page(id)
		old, err := s.stripe.V1CheckoutSessions.Retrieve(s.ctx, first, nil)
		if must.Do(s, err); old.Status != stripe.CheckoutSessionStatusExpired || s.row(id).Attempt != 2 {
			s.Fatalf("the first page is %s, attempt %d", old.Status, s.row(id).Attempt)
		}
		s.pay(page, goodCard)
		s.decided(id, time.Minute)
		s.bill(p, id)
	})
}

// All answers of two runs are lost while the rail creates a customer. There is one customer in the end.
func TestEnroll_TwoLostAnswersOfCustomer(t *testing.T) {
	eachLoss(t, func(s *scene, after bool) {
		s.fault(twoRuns("/v1/customers", after))
		for range 2 {
			_, _, err := s.at().rail.Enroll(s.ctx, buyer, source, cardsPage)
			s.code(err, toll.CodeCardUnreachable)
		}
		s.enrolled(goodCard)
		n := 0
		for _, err := range s.stripe.V1Customers.List(s.ctx, nil).All(s.ctx) {
			must.Do(s, err)
			n++
		}
		if n != 1 {
			s.Errorf("%d customers", n)
		}
	})
}

// All answers of two runs are lost while the page of an enrolment ends, in which too many cards were declined.
func TestEnroll_TwoLostAnswersOfExpiry(t *testing.T) {
	eachLoss(t, func(s *scene, after bool) {
		id, page := s.enroll()
		for range 5 {
			s.pay(page, declineCard)
		}
		s.fault(twoRuns(sessions+"/", after))
		for range 2 {
			if _, _, err := s.at().rail.Enrolled(s.ctx, buyer, id); after {
				continue // a read may show that it has ended
			} else {
				s.code(err, toll.CodeCardUnreachable)
			}
		}
		s.fault(double.Fault{Kind: "clear"})
		method, failure, err := s.at().rail.Enrolled(s.ctx, buyer, id)
		if must.Do(s, err); method != "" || failure == "" {
			s.Fatalf("%q, %q", method, failure)
		}
		if _, location := s.pay(page, goodCard); location != "" {
			s.Errorf("the page leads to %q", location)
		}
	})
}

// All answers of two runs are lost while a card is detached.
func TestDetach_TwoLostAnswers(t *testing.T) {
	eachLoss(t, func(s *scene, after bool) {
		method := s.enrolled(goodCard)
		_, m := s.cardRecords(method)
		must.Do(s, s.at().PaymentMethods.Remove(s.ctx, checkout.Owner{Address: buyer}, method))
		s.fault(twoRuns("/v1/payment_methods/", after))
		s.later(4 * time.Minute)
		if _, removed := s.cardRecords(method); s.stripeMethod(m.StripeID).Customer != nil || removed.Fingerprint != "" {
			s.Fatalf("it is attached: %+v", removed)
		}
		if n := s.count("SELECT COUNT(*) FROM jobs WHERE kind = $1", store.JobCardDetach); n != 0 {
			s.Errorf("%d jobs are left", n)
		}
	})
}
