package card_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/card"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// refusedByBank has a top-up fail because the bank wants the owner, and returns the order and the
// address that its caller gets.
func (s *scene) refusedByBank(p *toll.Plan, delegation string) (id, address string) {
	s.Helper()
	err := s.at().topUp(p, delegation, "")
	s.code(err, toll.CodeTopUpRefused)
	id = s.lastOrder()
	s.failed(id, toll.CodeCardAuthentication)
	s.now.Add(1)
	address, _ = toll.AsError(err).Params["checkoutUrl"].(string)
	return id, address
}

// replace opens a page in the place of a failed order.
func (s *scene) replace(owner toll.Address, failed string) (*toll.Checkout, error) {
	return s.at().Replace(s.ctx, owner, failed, rail.SessionInput{Hosted: true}, soon)
}

// A person finishes what the bank wanted confirmed by a new order, which takes nothing of the
// delegation, once, within an hour.
func TestReplace(t *testing.T) {
	each(t, func(s *scene) {
		p, d := s.plan(), s.delegation(s.card("pm_card_authenticationRequired"), 1000)
		failed, address := s.refusedByBank(p, d)
		if want := fmt.Sprintf("%s/checkout/%s/again?t=", public, failed); !strings.HasPrefix(address, want) {
			s.Fatalf("the address is %q, want %q", address, want)
		}
		_, err := s.replace(seller, failed)
		s.code(err, toll.CodeOrderNotFound)
		first := must.Get(s.replace(buyer, failed))(s)
		again, err := s.replace(buyer, failed)
		if must.Do(s, err); again.OrderID != first.OrderID || again.Result.SessionID != first.Result.SessionID {
			s.Fatalf("a repeat is another order: %+v, %+v", first, again)
		}
		o := s.state(first.OrderID)
		if o.Replaces != failed || o.DelegationID != "" || o.Credits != 100 || s.row(o.ID).Cents != 500 {
			s.Fatalf("got %+v", o)
		}
		s.pay(s.page(o.ID), goodCard)
		s.decided(o.ID, time.Minute)
		s.bill(p, o.ID)
		s.failed(failed, toll.CodeCardAuthentication)
		if s.remaining(d) != 1000 || s.intent(failed).Status != stripe.PaymentIntentStatusCanceled {
			s.Errorf("%d cents are left, the intent is %s", s.remaining(d), s.intent(failed).Status)
		}
		if again, err = s.replace(buyer, failed); err != nil || again.OrderID != o.ID || again.Result.PaymentStatus != "paid" {
			s.Errorf("after the payment: %+v, %v", again, err)
		}

		late, _ := s.refusedByBank(p, d)
		s.pass(time.Hour)
		_, err = s.replace(buyer, late)
		s.code(err, toll.CodeOrderNotFound)

		declined := s.delegation(s.card("pm_card_chargeCustomerFail"), 1000)
		s.code(s.at().topUp(p, declined, ""), toll.CodeTopUpRefused)
		_, err = s.replace(buyer, s.lastOrder())
		s.code(err, toll.CodeOrderNotFound)
	})
}

// T85: an order is replaced at its own terms or not at all.
// T85
func TestReplacedAfterChange(t *testing.T) {
	each(t, func(s *scene) {
		method := s.card("pm_card_authenticationRequired")
		for name, c := range map[string]struct {
			change func(p *toll.Plan)
			code   toll.Code
		}{
			"price":    {func(p *toll.Plan) { p.Price.Amounts = []toll.Units{toll.UnitsOf(4_000_000)} }, toll.CodeRecordChanged},
			"credits":  {func(p *toll.Plan) { p.Credits.Amount = 99 }, toll.CodeRecordChanged},
			"currency": {func(p *toll.Plan) { p.Price.Currency = toll.CurrencyEUR }, toll.CodeRecordChanged},
			"unlisted": {func(p *toll.Plan) { p.IsListed = false }, toll.CodePlanUnlisted},
		} {
			p := s.plan()
			failed, _ := s.refusedByBank(p, s.delegation(method, 1000))
			s.change(p, c.change)
			orders := s.count("SELECT COUNT(*) FROM orders")
			_, err := s.replace(buyer, failed)
			if s.code(err, c.code); c.code == toll.CodeRecordChanged && toll.AsError(err).HTTPStatus() != 409 {
				s.Errorf("%s: %v", name, err)
			}
			if s.count("SELECT COUNT(*) FROM orders") != orders {
				s.Errorf("%s: an order was made", name)
			}
		}
	})
}

// change changes a plan as no seller can: the terms of a plan are fixed.
func (s *scene) change(p *toll.Plan, f func(p *toll.Plan)) {
	s.Helper()
	changed := *p
	f(&changed)
	price := must.Get(json.Marshal(changed.Price))(s)
	credits := must.Get(json.Marshal(changed.Credits))(s)
	must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
		_, err := tx.Exec(s.ctx, "UPDATE plans SET price = $1, credits = $2, is_listed = $3 WHERE plan_id = $4", string(price), string(credits),
			changed.IsListed, string(p.ID))
		return err
	}))
}

// T79: only what Stripe says counts. A browser that opens pages, comes back without a payment, pays
// another order, goes back after a payment, or claims one, changes nothing.
// T79
func TestBrowserClaims(t *testing.T) {
	each(t, func(s *scene) {
		p := s.plan()
		unpaid, paid := s.order(p), s.order(s.plan())
		open := func(what string) {
			s.Helper()
			must.Do(s, s.at().rail.Sync(s.ctx, []byte(s.row(unpaid).Session)))
			s.later(time.Minute)
			if o := s.state(unpaid); !o.Open || s.row(unpaid).State != string(card.Page) || s.balance(p) != 0 {
				s.Fatalf("%s: %+v", what, o)
			}
			if shown, err := s.at().rail.Page(s.ctx, unpaid, true); err != nil || shown.URL == "" {
				s.Fatalf("%s: no page, %v", what, err)
			}
		}
		get := func(address string) {
			s.Helper()
			r := must.Get(http.NewRequestWithContext(s.ctx, http.MethodGet, address, nil))(s)
			a := must.Get(s.http.Do(r))(s)
			must.Do(s, a.Body.Close())
		}
		page := s.page(unpaid)
		get(page)
		open("opened")
		get(page + "?success=true&payment_status=paid")
		open("success=true")
		s.pay(page, declineCard)
		open("declined")

		other := s.page(paid)
		s.pay(other, goodCard)
		s.decided(paid, time.Minute)
		s.granted(paid)
		open("another order is paid")
		// The events of the other payment with the order's name on them: Stripe's object has its own.
		s.receive(eventOf("evt_1", "checkout.session.completed", s.row(paid).Session, `,"client_reference_id":"`+unpaid+`"`))
		s.receive(eventOf("evt_2", "checkout.session.completed", s.row(unpaid).Session, `,"payment_status":"paid"`))
		s.receive(eventOf("evt_3", "payment_intent.succeeded", s.row(paid).Intent, `,"metadata":{"order_id":"`+unpaid+`"}`))
		s.at().run()
		open("events of the other")

		status, _ := s.pay(other, goodCard) // the back button
		s.at().run()
		if n, cents := s.charges(); n != 1 || cents != 500 {
			s.Fatalf("paid twice: %d charges of %d cents, the page answered %d", n, cents, status)
		}
		if shown, err := s.at().rail.Page(s.ctx, paid, true); err != nil || shown != (rail.Shown{}) {
			s.Errorf("a paid order has a page: %v", err)
		}
		open("the other again")
	})
}

// T81: of top-ups that race in two processes, as many are charged as the limit of the delegation
// allows.
// T81
func TestTopUpsRaced(t *testing.T) {
	each(t, func(s *scene) {
		d := s.delegation(s.card("pm_card_visa"), 1500)
		s.start()
		const n = 20
		plans := make([]*toll.Plan, n)
		for i := range plans {
			plans[i] = s.plan() // the top-ups of one plan would share an order
		}
		var all sync.WaitGroup
		var mu sync.Mutex
		bought := 0
		for i := range n {
			all.Go(func() {
				err := s.processes[i%2].topUp(plans[i], d, fmt.Sprint("request ", i))
				if mu.Lock(); err == nil {
					bought++
				} else if c := toll.AsError(err).Code; c != toll.CodeDelegationExhausted && c != toll.CodeDelegationInsufficient {
					s.Error(err)
				}
				mu.Unlock()
			})
		}
		all.Wait()
		charges, cents := s.charges()
		if bought != 3 || charges != 3 || cents != 1500 || s.remaining(d) != 0 {
			s.Fatalf("%d were bought, %d charges of %d cents, %d left", bought, charges, cents, s.remaining(d))
		}
	})
}

// A page that was prepared and not made, because the service was away or its key was refused, is
// prepared anew once it would end too early for Stripe.
func TestPage_PreparedLongAgo(t *testing.T) {
	for name, c := range map[string]struct {
		before func(s *scene)
		after  func(s *scene)
	}{
		"away": {func(s *scene) { s.kill("card.calling") }, func(*scene) {}},
		"denied": {
			func(s *scene) { s.put(denies) }, func(s *scene) { s.put(nil) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *scene) {
				p := s.plan()
				c.before(s)
				ended := s.inBackground(func() error {
					_, err := s.at().Fiat(s.ctx, checkout.FiatRequest{
						Caller: buyer, Plan: p, Session: rail.SessionInput{Hosted: true}, Wait: soon,
					}, nil)
					return err
				})
				s.until(func() bool {
					return s.count("SELECT COUNT(*) FROM card_payments WHERE state = 'calling'") == 1 && len(s.log.with("killed"))+len(s.alarms()) > 0
				})
				s.at().close()
				<-ended
				c.after(s)
				s.pass(31 * time.Minute) // the page would end in 29
				s.start()
				id := s.lastOrder()
				for range 10 {
					if s.row(id).State == string(card.Page) {
						break
					}
					s.later(time.Minute)
				}
				if row := s.row(id); row.Attempt != 2 || row.State != string(card.Page) {
					s.Fatalf("got attempt %d, %s, %s", row.Attempt, row.State, row.Data)
				}
				s.pay(s.page(id), goodCard)
				s.decided(id, time.Minute)
				s.bill(p, id)
				if n := s.count("SELECT COUNT(*) FROM card_calls WHERE call_key = $1 AND status = 400", id+"-1"); n != 1 {
					s.Error("the first call was not refused")
				}
			})
		})
	}
}

// denies is a key without a permission.
func denies(r *http.Request, next http.RoundTripper) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer sk_test_nobody")
	return next.RoundTrip(r)
}
