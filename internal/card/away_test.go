package card_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/jobs"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// away is a processor that cannot be reached.
func away(*http.Request, http.RoundTripper) (*http.Response, error) { return nil, errAway }

var errAway = errors.New("no route to host")

// F26: while Stripe is down, credits are used as before, and callers of orders get a time to retry
// after. When Stripe is up again, each pending order and refund is done once.
// F26
func TestProcessorAway(t *testing.T) {
	each(t, func(s *scene) {
		s.read()
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		id := s.paid(p, goodCard)
		open := s.order(p)
		refunded := s.paid(s.plan(), goodCard)
		s.put(away)
		_, err := s.beginRefund(refunded, 200)
		must.Do(s, err)

		// The caller of a page waits for an error with the reason.
		_, err = s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: seller, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon}, nil)
		s.code(err, toll.CodeCardUnreachable)
		if toll.AsError(err).RetryAfterSecs < 1 || toll.AsError(err).HTTPStatus() != 503 {
			s.Errorf("got %+v", err)
		}
		page := s.lastOrder()
		s.now.Add(1)
		s.code(s.at().topUp(p, d, "r"), toll.CodeCardUnreachable)
		charged := s.lastOrder()
		_, err = s.at().rail.Page(s.ctx, open, true)
		s.code(err, toll.CodeCardUnreachable)
		_, _, err = s.at().rail.Enroll(s.ctx, buyer, source, cardsPage)
		s.code(err, toll.CodeCardUnreachable)
		_, err = s.at().rail.AccountID(s.ctx)
		s.code(err, toll.CodeCardUnreachable)
		if _, err := s.at().rail.Loops()[0].Run(s.ctx); err == nil {
			s.Error("events are read of nobody")
		}
		s.later(5 * time.Minute)
		for _, id := range []string{open, page, charged} {
			if !s.state(id).Open {
				s.Fatalf("an order was decided by nobody: %+v", s.state(id))
			}
		}
		// Nothing that costs credits asks Stripe.
		request := s.hold(p, 60)
		s.settle(p, request, 50)
		s.spend(p, 30)
		if s.balance(p) != 20 {
			s.Fatalf("%d credits", s.balance(p))
		}
		s.granted(id)

		s.put(nil)
		s.decided(charged, 15*time.Minute)
		s.granted(charged)
		s.later(2 * time.Minute)
		for _, id := range []string{open, page} {
			s.pay(s.page(id), goodCard)
			s.decided(id, 2*time.Minute)
			s.granted(id)
		}
		s.read()
		s.has(refunded, 200, "", "seller succeeded 200")
		if n, _ := s.charges(); n != 5 || s.balance(p) != 220 || s.remaining(d) != 500 {
			s.Errorf("%d charges, %d credits, %d cents left", n, s.balance(p), s.remaining(d))
		}
	})
}

// F28: a restored database lacks the last hour, and reads from Stripe the payments of its orders,
// the refunds and the disputes of that hour. A call whose answer was lost with the hour is not made
// twice. Payments of orders that the database lacks are listed as orphans.
// F28
func TestOldDatabase(t *testing.T) {
	each(t, func(s *scene) {
		s.others = true // the orders of the lost hour are not in these books
		s.read()
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		open, half := s.order(p), s.paid(s.plan(), goodCard)
		disputed, same := s.paid(s.plan(), goodCard), s.paid(s.plan(), goodCard)
		page := s.page(open)
		s.kill("card.answered") // the charge was answered after the backup was made
		ended := s.inBackground(func() error { return s.at().topUp(p, d, "r") })
		s.waitKilled("card.answered")
		s.at().close()
		<-ended
		sent := s.lastOrder()

		// The hour, of which the database knows nothing.
		s.pass(10 * time.Minute)
		s.pay(page, goodCard)
		s.fault(double.Fault{Kind: "refund", Object: s.row(half).Charge, Amount: 250})
		s.fault(double.Fault{Kind: "dispute", Object: s.row(disputed).Charge})
		lost := toll.NewUUID()
		pi := must.Get(s.charge("pm_card_visa", map[string]string{"installation": installation, "order_id": lost, "attempt": "1"}))(s)
		must.Get(s.charge("pm_card_visa", nil))(s) // of another program
		s.pass(50 * time.Minute)

		s.start()
		for range 5 {
			s.turn(s.at().rail.Loops()[0])
			s.at().run()
			s.pass(20 * time.Second)
		}
		s.decided(open, 2*time.Minute)
		s.decided(sent, 2*time.Minute)
		for _, id := range []string{open, sent} {
			s.granted(id)
		}
		s.has(half, 250, "", "processor succeeded 250")
		s.has(disputed, 0, store.DisputeOpen)
		s.has(same, 0, "")
		if n, _ := s.charges(); n != 7 || s.balance(p) != 200 || s.remaining(d) != 500 {
			s.Errorf("%d charges, %d credits, %d cents left", n, s.balance(p), s.remaining(d))
		}
		orphans, err := store.CardOrphans(s.ctx, s.store, 10)
		if must.Do(s, err); len(orphans) != 1 || orphans[0].Object != pi.ID || orphans[0].OrderID != lost || orphans[0].Cents != 500 {
			s.Errorf("got %+v", orphans)
		}
		if got := s.log.with("a payment, refund, or dispute at the card processor does not belong"); len(got) != 1 {
			s.Errorf("alarms: %v", got)
		}
	})
}

// F28: after a gap of more than 28 days the rail does not rely on Stripe's events. It compares the
// objects instead, including older ones that changed in the gap.
// F28
func TestEvents_Gap(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		s := newScene(t, st, func(o *double.Options) { o.Later = 24 * time.Hour })
		s.others = true // one charge is an orphan
		s.read()
		before := map[string]string{}
		for _, name := range []string{"refunded", "disputed", "escalated", "won", "quiet"} {
			before[name] = s.paid(s.plan(), goodCard)
		}
		before["pending"], before["failing"] = s.paid(s.plan(), pendingCard), s.paid(s.plan(), failingCard)
		charge := func(name string) string { return s.row(before[name]).Charge }
		s.fault(double.Fault{Kind: "inquiry", Object: charge("escalated")})
		s.fault(double.Fault{Kind: "dispute", Object: charge("won")})
		for _, name := range []string{"pending", "failing"} {
			s.fault(double.Fault{Kind: "refund", Object: charge(name), Amount: 200})
		}
		s.turn(s.at().rail.Loops()[0])
		s.at().run()
		s.has(before["pending"], 200, "", "processor pending 200")
		s.has(before["failing"], 200, "", "processor succeeded 200")
		for range 7 { // what is listed below as new is not that old
			s.pass(30 * time.Minute)
			s.read()
		}
		s.has(before["won"], 0, store.DisputeOpen)
		s.has(before["escalated"], 0, "")
		s.at().close()

		s.pass(time.Hour)
		s.fault(double.Fault{Kind: "refund", Object: charge("refunded"), Amount: 250})
		s.fault(double.Fault{Kind: "dispute", Object: charge("disputed")})
		s.fault(double.Fault{Kind: "escalate", Object: s.disputed(before["escalated"])})
		s.fault(double.Fault{Kind: "won", Object: s.disputed(before["won"])})
		lost := toll.NewUUID()
		pi := must.Get(s.charge("pm_card_visa", map[string]string{"installation": installation, "order_id": lost, "attempt": "1"}))(s)
		s.happen(60) // more than a page
		s.pass(31 * 24 * time.Hour)
		s.happen(1) // and Stripe forgets what is older than 30 days
		if n := len(s.webhooks()); n > 10 {
			s.Fatalf("Stripe lists %d events", n)
		}

		s.start()
		if next := s.turn(s.at().rail.Loops()[0]); next != 0 {
			s.Errorf("the next turn comes after %v", next)
		}
		s.at().run()
		s.has(before["refunded"], 250, "", "processor succeeded 250")
		s.has(before["disputed"], 0, store.DisputeOpen)
		s.has(before["escalated"], 0, store.DisputeOpen)
		s.has(before["won"], 0, store.DisputeWon)
		s.has(before["pending"], 200, "", "processor succeeded 200")
		s.has(before["failing"], 0, "", "processor failed 200")
		s.has(before["quiet"], 0, "")
		orphans, err := store.CardOrphans(s.ctx, s.store, 10)
		if must.Do(s, err); len(orphans) != 1 || orphans[0].Object != pi.ID {
			s.Errorf("got %+v", orphans)
		}
		if got := s.log.with("more than 28 days"); len(got) != 1 {
			s.Errorf("alarms: %v", got)
		}
		// From here on events are read again.
		s.fault(double.Fault{Kind: "refund", Object: charge("quiet"), Amount: 100})
		s.read()
		s.has(before["quiet"], 100, "", "processor succeeded 100")
		if got := s.log.with("more than 28 days"); len(got) != 1 {
			s.Errorf("alarms: %v", got)
		}
	})
}

// hooked runs a test with webhooks that the double sends over HTTP, each signed by both secrets.
func hooked(t *testing.T, f func(s *scene)) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		var mu sync.Mutex
		var to *scene
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			mu.Lock()
			s := to
			mu.Unlock()
			if err == nil && s != nil {
				err = s.at().rail.Receive(r.Context(), r.Header.Get("Stripe-Signature"), body)
			}
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}))
		t.Cleanup(server.Close)
		s := newScene(t, st, func(o *double.Options) {
			o.Webhooks = []double.Webhook{{URL: server.URL, Secrets: []string{"whsec_next", hookSecret}}}
		})
		mu.Lock()
		to = s
		mu.Unlock()
		f(s)
	})
}

// Webhooks over HTTP bring payments, refunds and disputes while neither the job of the order nor the
// loop runs: no clock moves.
func TestWebhooks_OverHTTP(t *testing.T) {
	hooked(t, func(s *scene) {
		p := s.plan()
		id := s.order(p)
		s.pay(s.page(id), goodCard)
		comes := func(f func() bool) {
			s.Helper()
			s.until(func() bool { s.at().run(); return f() })
		}
		comes(func() bool { return !s.state(id).Open })
		s.bill(p, id)
		s.fault(double.Fault{Kind: "refund", Object: s.row(id).Charge, Amount: 200})
		comes(func() bool { return s.state(id).RefundedCents == 200 })
		s.fault(double.Fault{Kind: "dispute", Object: s.row(id).Charge})
		comes(func() bool { return s.state(id).Dispute == store.DisputeOpen })
		s.fault(double.Fault{Kind: "won", Object: s.disputed(id)})
		comes(func() bool { return s.state(id).Dispute == store.DisputeWon })
		s.money(p, id, 200, 40, 0, 0, 60)
		if s.count("SELECT COUNT(*) FROM card_events") == 0 || !s.clock().Equal(noon) {
			s.Error("no webhook came")
		}
	})
}

// Without webhooks a paid page is granted within a minute, however old the order is, and a refund on
// Stripe's page is seen within a minute.
func TestWithoutWebhooks(t *testing.T) {
	each(t, func(s *scene) {
		loop := s.at().rail.Loops()[0]
		sinceTurn := loop.Every
		comes := func(what string, f func() bool) {
			s.Helper()
			for range 60 {
				s.pass(time.Second)
				if sinceTurn += time.Second; sinceTurn >= loop.Every {
					if sinceTurn = 0; s.turn(loop) == jobs.AtOnce {
						sinceTurn = loop.Every
					}
				}
				if s.at().run(); f() {
					return
				}
			}
			s.Fatalf("%s was not seen within a minute", what)
		}
		for _, age := range []time.Duration{0, 7 * time.Second, 20 * time.Minute, 55 * time.Minute} {
			p := s.plan()
			id := s.order(p)
			for ; age > 0; age -= min(age, time.Minute) {
				s.pass(min(age, time.Minute))
				s.at().run()
			}
			s.pay(s.page(id), goodCard)
			comes("the payment", func() bool { return !s.state(id).Open })
			s.granted(id)
			s.fault(double.Fault{Kind: "refund", Object: s.row(id).Charge, Amount: 250})
			comes("the refund", func() bool { return s.state(id).RefundedCents == 250 })
			s.money(p, id, 250, 50, 0, 0, 50)
		}
	})
}

// The job of an order alone grants it within a minute, whenever it was paid, without the loop.
func TestWithoutWebhooks_JobAlone(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
	orders:
		for after := range 6 {
			id := s.order(p)
			s.later(5 * time.Minute)
			for range 17 * after {
				s.pass(time.Second)
				s.at().run()
			}
			s.pay(s.page(id), goodCard)
			for range 60 {
				s.pass(time.Second)
				if s.at().run(); !s.state(id).Open {
					s.granted(id)
					continue orders
				}
			}
			s.Fatalf("it was not granted within a minute: %+v", s.row(id))
		}
	})
}

// With a restricted key that lacks a permission, calls that need it wait, and callers get a time to
// retry after. There is at most one alarm a minute, and readiness reports it until a request
// succeeds.
func TestDenied(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		const some, all = "rk_test_some", "rk_test_all"
		reads := []string{
			"account_read", "customer_read", "payment_method_read", "checkout_session_read", "setup_intent_read", "payment_intent_read",
			"charge_read", "dispute_read", "balance_read", "event_read", "webhook_read",
		}
		s := newScene(t, st, func(o *double.Options) {
			o.RestrictedKeys = map[string][]string{some: reads, all: slices.Concat(reads, []string{
				"customer_write", "payment_method_write", "checkout_session_write", "payment_intent_write", "charge_write",
			})}
		})
		key := func(key string) {
			s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
				r = r.Clone(r.Context())
				r.Header.Set("Authorization", "Bearer "+key)
				return next.RoundTrip(r)
			})
		}
		failing := func(want bool) {
			s.Helper()
			if got := s.at().rail.Failing(); got != want {
				s.Fatalf("failing: %t", got)
			}
		}
		s.read()
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		key(all)
		paid := s.paid(s.plan(), goodCard)
		failing(false)

		key(some)
		waits := func(err error) {
			s.Helper()
			s.code(err, toll.CodeCardUnreachable)
			if n := toll.AsError(err).RetryAfterSecs; n < 50 || n > 60 {
				s.Errorf("wait %d s", n)
			}
			failing(true)
		}
		waits(s.at().topUp(p, d, "r"))
		charged := s.lastOrder()
		s.now.Add(1)
		_, err := s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: seller, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon}, nil)
		waits(err)
		page := s.lastOrder()
		_, _, err = s.at().rail.Enroll(s.ctx, buyer, source, cardsPage)
		waits(err)
		must.Get(s.beginRefund(paid, 200))(s)
		s.at().run()
		if n := len(s.alarms()); n != 1 || !s.state(charged).Open || !s.state(page).Open {
			s.Fatalf("%d alarms: %v", n, s.alarms())
		}
		s.has(paid, 0, "", "seller created 200")
		s.read() // what may be read is read, and says that the key is known
		failing(false)
		s.later(3 * time.Minute)
		failing(true)
		if n := len(s.alarms()); n < 2 || n > 5 {
			s.Errorf("%d alarms in 4 minutes", n)
		}

		key(all)
		s.decided(charged, 3*time.Minute)
		s.granted(charged)
		failing(false)
		s.later(2 * time.Minute)
		s.has(paid, 200, "", "seller succeeded 200")
		s.pay(s.page(page), goodCard)
		s.decided(page, time.Minute)
		s.granted(page)
		// A read alone shows that the key works again.
		key("rk_test_none")
		s.pass(20 * time.Second)
		if _, err := s.at().rail.Loops()[0].Run(s.ctx); err == nil {
			s.Error("a key without permissions reads events")
		}
		failing(true)
		key(all)
		s.read()
		failing(false)
	})
}

// A customer is made once for an owner, by requests at the same time in several processes, and when
// answers are lost; a 5xx, which Stripe repeats, is got over.
func TestCustomer(t *testing.T) {
	customers := func(s *scene) (n int) {
		s.Helper()
		for _, err := range s.stripe.V1Customers.List(s.ctx, nil).All(s.ctx) {
			must.Do(s, err)
			n++
		}
		return n
	}
	// enrolls is true when the owner has a page.
	enrolls := func(s *scene, p *process, owner toll.Address) (ok bool) {
		survives(func() {
			_, page, err := p.rail.Enroll(s.ctx, owner, owner.String(), cardsPage)
			if ok = err == nil && page != ""; err != nil && toll.AsError(err).Code != toll.CodeCardUnreachable {
				s.Error(err)
			}
		})
		return ok
	}
	t.Run("at once", func(t *testing.T) {
		each(t, func(s *scene) {
			s.start()
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() { enrolls(s, s.processes[i%2], buyer) })
			}
			all.Wait()
			if !enrolls(s, s.at(), buyer) || customers(s) != 1 || s.customer() == "" {
				s.Errorf("%d customers", customers(s))
			}
			if !enrolls(s, s.at(), seller) || customers(s) != 2 {
				s.Errorf("%d customers of two owners", customers(s))
			}
		})
	})
	for _, step := range []string{"card.calling", "card.answered"} {
		t.Run("killed at "+step, func(t *testing.T) {
			each(t, func(s *scene) {
				s.kill(step)
				if enrolls(s, s.at(), buyer) {
					s.Fatal("it was not killed")
				}
				s.wasKilled(step)
				s.restarts()
				if !enrolls(s, s.at(), buyer) || customers(s) != 1 {
					s.Errorf("%d customers", customers(s))
				}
			})
		})
	}
	t.Run("unclear", func(t *testing.T) {
		each(t, func(s *scene) {
			s.fault(post("cut", "/v1/customers", 3, true)) // made, and not heard of
			if enrolls(s, s.at(), buyer) || !enrolls(s, s.at(), buyer) || customers(s) != 1 {
				s.Errorf("%d customers", customers(s))
			}
			s.fault(post("500", "/v1/customers", 6, false)) // for both keys
			for range 2 {
				if enrolls(s, s.at(), seller) {
					s.Error("Stripe repeats a 5xx")
				}
			}
			s.pass(10 * time.Minute)
			if !enrolls(s, s.at(), seller) || customers(s) != 2 {
				s.Errorf("%d customers", customers(s))
			}
		})
	})
}
