package card_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/card/double"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// bill fails the test unless an order is one charge of 5.00 and one grant of 100 credits, and
// nothing of it went back.
func (s *scene) bill(p *toll.Plan, id string) {
	s.Helper()
	s.granted(id)
	if n, cents := s.chargesOf(id); n != 1 || cents != 500 || s.balance(p) != 100 {
		s.Fatalf("%d charges of %d cents, %d credits", n, cents, s.balance(p))
	}
	s.has(id, 0, "")
}

// chargesOf returns how often the double took money for an order, and the sum in cents.
func (s *scene) chargesOf(id string) (n int, cents int64) {
	for _, b := range s.double.Books().Payments {
		if b.Metadata["order_id"] == id {
			n, cents = n+1, cents+b.Captured
		}
	}
	return n, cents
}

// atSteps runs a test on each store for each failpoint; "" is none. The log says which was the last.
func atSteps(t *testing.T, steps []string, f func(s *scene, step string)) {
	t.Helper()
	each(t, func(s *scene) {
		for _, step := range steps {
			s.Logf("killed at %q", step)
			f(s, step)
			s.fresh()
		}
	})
}

// fresh clears the faults and failpoints that one part of a test has set.
func (s *scene) fresh() {
	s.Helper()
	s.put(nil)
	s.fault(double.Fault{Kind: "clear"})
	s.steps.Clear()
	s.pass(time.Minute) // the next order is a later one
}

// placed waits for the order that a call beside the test places, and returns it.
func (s *scene) placed(place func() error) (id string, ended <-chan error) {
	s.Helper()
	before := s.count("SELECT COUNT(*) FROM orders")
	ended = s.inBackground(place)
	s.until(func() bool { return s.count("SELECT COUNT(*) FROM orders") > before })
	return s.lastOrder(), ended
}

// dies sets the failpoint at which the next run that reaches it ends; "" is none.
func (s *scene) dies(step string) {
	if step != "" {
		s.kill(step)
	}
}

// diesIn runs f in a process that ends at a failpoint, and starts the next one; "" is none.
func (s *scene) diesIn(step string, f func()) {
	s.Helper()
	s.dies(step)
	survives(f)
	s.at().run() // f may leave the rest to a job
	if step != "" {
		s.wasKilled(step)
		s.restarts()
	}
}

// restarts ends the running process, whose jobs were killed, and starts another.
func (s *scene) restarts() {
	s.Helper()
	s.at().close()
	s.start()
}

// A process that ends as soon as an order is placed leaves it to the next one.
// F11
func TestCrash_Placed(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		must.Do(s, s.at().queue.Close(s.ctx)) // runs nothing any more
		s.died.Store(true)
		_, err := s.at().TopUp(s.ctx, &checkout.TopUp{
			Plan: p, Subscriber: buyer, DelegationID: d, Needed: toll.MaxCredits, Wait: time.Millisecond,
		})
		s.code(err, toll.CodeSettlementPending)
		id := s.lastOrder()
		if row := s.row(id); row.State != string(card.Created) || s.count("SELECT COUNT(*) FROM card_calls") != 0 {
			s.Fatalf("got %+v", row)
		}
		s.start()
		s.decided(id, 2*time.Minute)
		s.bill(p, id)
	})
}

// A process ends while a page is open, or before Stripe has decided. The next process shows the
// same page, and decides the order from the row alone.
// F11
func TestCrash_Restart(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		id := s.order(p)
		page := s.page(id)
		s.restarts()
		if again := s.page(id); again != page {
			s.Fatal("another page")
		}
		s.fault(double.Fault{Kind: "processing"})
		s.pay(page, goodCard)
		s.pass(time.Second) // a job runs once a second; the double needs two
		must.Do(s, s.at().rail.Sync(s.ctx, []byte(s.row(id).Session)))
		s.at().run()
		if state := s.row(id).State; state != string(card.Pending) {
			s.Fatalf("the payment is %s", state)
		}
		s.restarts()
		s.decided(id, 2*time.Minute)
		s.bill(p, id)
		if shown, err := s.at().rail.Page(s.ctx, id, true); err != nil || shown != (rail.Shown{}) {
			s.Errorf("a paid order has a page: %v", err)
		}
	})
}

// A decline fails the order once, and counts once for the freeze of the delegation.
// F11
func TestCrash_Declined(t *testing.T) {
	atSteps(t, []string{"card.calling", "card.answered", "card.deciding", "card.decided"}, func(s *scene, step string) {
		p, d := s.plan(), s.delegation(s.card("pm_card_chargeCustomerFail"), 1000)
		id, err := s.topUpKilled(p, d, step)
		s.code(err, toll.CodeTopUpRefused)
		s.failed(id, toll.CodeCardDeclined)
		row, err := store.DelegationByID(s.ctx, s.store, d)
		if must.Do(s, err); row.Declines != 1 || row.Remaining() != 1000 {
			s.Fatalf("%d declines, %d cents left", row.Declines, row.Remaining())
		}
	})
}

// A payment that an event reports is granted once, at whatever step the process ends.
// F11
func TestCrash_Event(t *testing.T) {
	atSteps(t, []string{"card.event", "card.deciding", "card.decided"}, func(s *scene, step string) {
		p := s.plan()
		id := s.order(p)
		s.pay(s.page(id), goodCard)
		s.kill(step)
		for _, body := range s.webhooks() {
			survives(func() { s.receive(body) })
			s.at().run()
		}
		s.wasKilled(step)
		s.restarts()
		s.later(2 * time.Minute)
		s.bill(p, id)
	})
}

// A dispute is taken once, and a refund that fails later is undone once.
// F11
func TestMoneyBack(t *testing.T) {
	atSteps(t, []string{"card.adjusting"}, func(s *scene, step string) {
		s.read()
		p := s.plan()
		disputed, failing := s.paid(p, goodCard), s.paid(p, failingCard)
		dies := func() {
			s.Helper()
			s.kill(step)
			s.read()
			s.wasKilled(step)
			s.restarts()
			s.later(2 * time.Minute)
		}
		s.fault(double.Fault{Kind: "dispute", Object: s.row(disputed).Charge})
		dies()
		s.money(p, disputed, 0, 100, 0, 0, 100)
		s.refund(failing, 200)
		s.credits(p, failing, 200, 40, 0, 0, 60)
		dies()
		s.money(p, failing, 0, 0, 0, 0, 100)
		s.fault(double.Fault{Kind: "won", Object: s.disputed(disputed)})
		dies()
		s.money(p, disputed, 0, 0, 0, 0, 200)
	})
}

var intentID = regexp.MustCompile(`pi_[0-9A-Za-z]+`)

// asksOwner answers charges as if the bank wanted the owner to confirm, although the double
// captures them: the state of the intent at Stripe decides.
func (s *scene) asksOwner() {
	s.put(func(r *http.Request, next http.RoundTripper) (*http.Response, error) {
		a, err := next.RoundTrip(r)
		if err != nil || r.Method != http.MethodPost || r.URL.Path != intents || a.StatusCode != http.StatusOK {
			return a, err
		}
		defer func() { _ = a.Body.Close() }()
		text, err := io.ReadAll(a.Body)
		id := intentID.FindString(string(text))
		body := fmt.Sprintf(`{"error":{"type":"card_error","code":"authentication_required","payment_intent":{"id":%q}}}`, id)
		a.StatusCode, a.Body, a.ContentLength = http.StatusPaymentRequired, io.NopCloser(strings.NewReader(body)), int64(len(body))
		return a, err
	})
}

// The owner confirms a payment while its intent is being cancelled: it is paid.
// F11
func TestConfirmedMeanwhile(t *testing.T) {
	atSteps(t, []string{"", "card.ending", "card.deciding", "card.decided"}, func(s *scene, step string) {
		p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
		s.asksOwner()
		s.dies(step)
		id, ended := s.placed(func() error { return s.at().topUp(p, d, "") })
		if step != "" {
			s.waitKilled(step)
			s.start()
		}
		s.decided(id, 10*time.Minute)
		must.Do(s, <-ended)
		s.bill(p, id)
		if n := s.count("SELECT COUNT(*) FROM card_calls WHERE call_key = $1 AND status = 400", id+"-1-cancel"); n != 1 || s.remaining(d) != 500 {
			s.Errorf("%d calls that cancel, %d cents left", n, s.remaining(d))
		}
	})
}

// A person pays an embedded page while it is being ended for a hosted one: it is paid, and there is
// no second page.
// F11
func TestPaidMeanwhile(t *testing.T) {
	atSteps(t, []string{"", "card.answered", "card.deciding", "card.decided"}, func(s *scene, step string) {
		s.embedded = true
		s.start()
		p := s.plan()
		out := must.Get(s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: buyer, Plan: p, Wait: soon}, nil))(s)
		id := out.OrderID
		embedded := s.embeddedPage(id)
		s.steps.Store("card.ending", func() {
			s.dies(step)
			s.pay(embedded, goodCard)
		})
		survives(func() {
			if shown, err := s.at().rail.Page(s.ctx, id, true); err != nil || shown != (rail.Shown{}) {
				s.Errorf("a paid order has a page: %v", err)
			}
		})
		if step != "" {
			s.wasKilled(step)
			s.restarts()
		}
		s.decided(id, 10*time.Minute)
		s.bill(p, id)
		if shown, err := s.at().rail.Page(s.ctx, id, true); err != nil || shown != (rail.Shown{}) || s.row(id).Attempt != 1 {
			s.Errorf("a paid order has a page, attempt %d: %v", s.row(id).Attempt, err)
		}
	})
}

// embeddedPage returns the address of the frame in which the page of an order is shown.
func (s *scene) embeddedPage(id string) string {
	s.Helper()
	shown, err := s.at().rail.Page(s.ctx, id, false)
	if must.Do(s, err); shown.ClientSecret == "" {
		s.Fatal("the page is not embedded")
	}
	return s.url + "/c/pay/" + s.row(id).Session
}

// failsUnseen has an order fail because Stripe did not answer, and returns it. Its card is charged
// later.
func (s *scene) failsUnseen(p *toll.Plan, delegation string) string {
	s.Helper()
	s.fault(post("cut", intents, 1000, false))
	id, ended := s.placed(func() error { return s.at().topUp(p, delegation, "") })
	s.decided(id, 20*time.Minute)
	s.fault(double.Fault{Kind: "clear"})
	if <-ended == nil {
		s.Fatal("nothing failed")
	}
	s.failed(id, toll.CodeCardUnreachable)
	s.now.Add(1)
	return id
}

// A payment that comes late is granted once, or goes back once when the plan has no place.
// F11
func TestCrash_Late(t *testing.T) {
	for name, full := range map[string]bool{"place": false, "no place": true} {
		t.Run(name, func(t *testing.T) {
			atSteps(t, []string{"", "card.deciding", "card.decided"}, func(s *scene, step string) {
				p := s.plan(func(p *toll.Plan) { p.MaxOrders = 1 })
				d := s.delegation(s.card("pm_card_visa"), 2000)
				id := s.failsUnseen(p, d)
				if full {
					s.bought(p, d)
				}
				pi := s.capture(id, s.method(id))
				s.diesIn(step, func() { must.Do(s, s.at().rail.Sync(s.ctx, []byte(pi))) })
				must.Do(s, s.at().rail.Sync(s.ctx, []byte(pi)))
				s.later(2 * time.Minute)
				if full {
					s.failed(id, toll.CodeCardUnreachable)
					s.rejected(id, 1)
				} else {
					s.bill(p, id)
				}
			})
		})
	}
}

// A second payment of an order goes back once.
// F11
func TestCrash_Second(t *testing.T) {
	atSteps(t, []string{"", "card.deciding", "card.decided", "card.refunding", "card.calling", "card.answered", "card.refunded"},
		func(s *scene, step string) {
			p, d := s.plan(), s.delegation(s.card("pm_card_visa"), 1000)
			id := s.bought(p, d)
			pi := s.capture(id, s.method(id))
			s.diesIn(step, func() { must.Do(s, s.at().rail.Sync(s.ctx, []byte(pi))) })
			must.Do(s, s.at().rail.Sync(s.ctx, []byte(pi)))
			s.later(2 * time.Minute)
			s.granted(id)
			s.rejected(id, 1)
			if s.balance(p) != 100 || len(s.alarms()) == 0 {
				s.Fatalf("%d credits, alarms %q", s.balance(p), s.alarms())
			}
		})
}

// full sets the sums of the buyer's account so high that no more credits of a plan fit. It returns
// a function that restores the sums, and so makes room.
func (s *scene) full(p *toll.Plan) (room func()) {
	s.Helper()
	account := ledger.NewAccountID(p.ID, buyer)
	const left = 50
	n := s.count("SELECT minted + returned FROM accounts WHERE account_id = $1", account[:])
	add := func(n int64) {
		s.Helper()
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
			_, err := tx.Exec(s.ctx, "UPDATE accounts SET minted = minted + $2, burned = burned + $2 WHERE account_id = $1", account[:], n)
			return err
		}))
	}
	n = int64(toll.MaxCredits) - n - left
	add(n)
	return func() { add(-n) }
}

// isKept fails the test unless a payment is decided, its order could not take the outcome, and
// there is an alarm.
func (s *scene) isKept(id string) {
	s.Helper()
	if row := s.row(id); !row.Undecided || len(s.alarms()) == 0 {
		s.Fatalf("it is not kept: %+v, alarms %q", row, s.alarms())
	}
}

// A payment whose credits the ledger refuses is kept, and granted once the ledger has room.
// F11
func TestCrash_Undecided(t *testing.T) {
	atSteps(t, []string{"", "card.decided", "card.keeping"}, func(s *scene, step string) {
		p := s.plan()
		id := s.order(p)
		room := s.full(p)
		s.pay(s.page(id), goodCard)
		s.dies(step)
		s.later(time.Minute)
		if step != "" {
			s.wasKilled(step)
			s.restarts()
		}
		s.later(3 * time.Minute)
		s.isKept(id)
		if o := s.state(id); !o.Open || s.row(id).State != string(card.Paid) {
			s.Fatalf("got %+v, %+v", o, s.row(id))
		}
		s.later(5 * time.Minute) // nothing changes
		s.isKept(id)
		room()
		if step != "" {
			s.kill("card.deciding")
		}
		s.decided(id, 3*time.Minute)
		s.later(time.Minute)
		if s.granted(id); s.row(id).Undecided || s.balance(p) != 100 {
			s.Fatalf("%+v, %d credits", s.row(id), s.balance(p))
		}
		if n, _ := s.chargesOf(id); n != 1 {
			s.Errorf("%d charges", n)
		}
	})
}

// A payment that is kept is refunded meanwhile: the order takes both once there is room.
func TestUndecided_RefundedMeanwhile(t *testing.T) {
	each(t, func(s *scene) {
		s.read()
		for cents, taken := range map[int64]toll.Credits{200: 40, 500: 100} {
			p := s.plan()
			id := s.order(p)
			room := s.full(p)
			s.pay(s.page(id), goodCard)
			s.later(time.Minute)
			s.isKept(id)
			s.fault(double.Fault{Kind: "refund", Object: s.row(id).Charge, Amount: cents})
			s.read()
			s.has(id, 0, "", fmt.Sprintf("processor succeeded %d", cents))
			s.isKept(id)
			room()
			s.decided(id, 3*time.Minute)
			s.credits(p, id, cents, taken, 0, 0, 100-taken)
			s.told(id, toll.EventOrderCreated, toll.EventOrderPaid, toll.EventOrderRefunded)
		}
	})
}

// Credits that come back, because a refund failed or a dispute was won, are kept while the account
// is full.
func TestUndecided_ComesBack(t *testing.T) {
	atSteps(t, []string{"", "card.keeping", "card.deciding"}, func(s *scene, step string) {
		s.read()
		back := func(p *toll.Plan, id string) {
			s.Helper()
			room := s.full(p)
			if step == "card.keeping" {
				s.kill(step)
			}
			s.read()
			s.later(3 * time.Minute)
			s.isKept(id)
			room()
			if step == "card.deciding" {
				s.kill(step)
			}
			s.later(3 * time.Minute)
			s.later(3 * time.Minute)
			if s.wasKilled(step); s.row(id).Undecided {
				s.Fatal("it is still kept")
			}
			s.money(p, id, 0, 0, 0, 0, 100)
		}
		p := s.plan()
		id := s.paid(p, failingCard)
		s.refund(id, 0)
		back(p, id)
		s.has(id, 0, "", "seller failed 500")

		p = s.plan()
		id = s.paid(p, goodCard)
		s.fault(double.Fault{Kind: "dispute", Object: s.row(id).Charge})
		s.read()
		s.fault(double.Fault{Kind: "won", Object: s.disputed(id)})
		back(p, id)
		s.has(id, 0, store.DisputeWon)
	})
}

// A late payment is kept while the account is full, and another buyer takes the last place of the
// plan meanwhile: the money goes back, once.
func TestUndecided_NoPlace(t *testing.T) {
	atSteps(t, []string{"", "card.deciding", "card.decided"}, func(s *scene, step string) {
		p := s.plan(func(p *toll.Plan) { p.MaxOrders = 1 })
		d := s.delegation(s.card("pm_card_visa"), 2000)
		id := s.failsUnseen(p, d)
		room := s.full(p)
		must.Do(s, s.at().rail.Sync(s.ctx, []byte(s.capture(id, s.method(id)))))
		s.isKept(id)
		s.failed(id, toll.CodeCardUnreachable)
		out, err := s.at().Fiat(s.ctx, checkout.FiatRequest{Caller: seller, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon}, nil)
		must.Do(s, err)
		s.dies(step)
		s.later(3 * time.Minute)
		if step != "" {
			s.wasKilled(step)
		}
		s.later(3 * time.Minute)
		s.pay(s.page(out.OrderID), goodCard)
		s.decided(out.OrderID, 2*time.Minute)
		s.granted(out.OrderID)
		room()
		if row := s.row(id); row.Undecided || row.State != string(card.Rejected) {
			s.Fatalf("got %+v", row)
		}
		s.failed(id, toll.CodeCardUnreachable)
		s.rejected(id, 1)
	})
}

// A card that its owner removes is detached at Stripe, whenever the process ends.
// F11
func TestCrash_Detach(t *testing.T) {
	atSteps(t, []string{"", "card.calling", "card.answered"}, func(s *scene, step string) {
		method := s.enrolled(goodCard)
		_, m := s.cardRecords(method)
		must.Do(s, s.at().PaymentMethods.Remove(s.ctx, checkout.Owner{Address: buyer}, method))
		s.diesIn(step, func() {})
		s.later(2 * time.Minute)
		_, removed := s.cardRecords(method)
		if s.stripeMethod(m.StripeID).Customer != nil || removed.Fingerprint != "" {
			s.Fatalf("it is attached: %+v", removed)
		}
		if n := s.count("SELECT COUNT(*) FROM jobs WHERE kind = $1", store.JobCardDetach); n != 0 {
			s.Errorf("%d jobs are left", n)
		}
	})
}
