package checkout_test

import (
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// An account that never ordered lacks its first order also for a request that may burn nothing.
func TestCanTopUp_Nothing(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		d := s.delegation(50) // half an order
		perm := s.permission(p, d, nil)
		top := checkout.TopUp{Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: 0, RequestID: "r", Wait: soon}
		_, err := s.at(0).TopUp(s.ctx, &top)
		s.code(err, toll.CodeDelegationInsufficient)
		s.code(s.at(0).CanTopUp(s.ctx, top), toll.CodeDelegationInsufficient)
	})
}

// A request does not answer for the order of another one that was declined: it buys with its own delegation.
func TestTopUp_DeclinedOrderOfAnother(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), ten))
		one, two := s.permission(p, s.delegation(1000), nil), s.permission(p, s.delegation(1000), nil)
		s.rail.Behave(railtest.Behaviour{Hang: true})
		first := make(chan error)
		go func() {
			_, err := s.request(0, p, one, s.ledgers[0].NewRequestID(one.Account()), 1)
			first <- err
		}()
		s.until("there is an order", func() bool { return s.orders(p) > 0 })
		second := make(chan error)
		go func() {
			_, err := s.request(1, p, two, s.ledgers[0].NewRequestID(two.Account()), 1)
			second <- err
		}()
		time.Sleep(50 * time.Millisecond)
		s.rail.Behave(railtest.Behaviour{DeclineNext: 1})
		s.code(<-first, toll.CodeTopUpRefused)
		must.Check(t, <-second, "the second request")
	})
}

// A database that hangs does not keep who waits for an order beyond the wait.
func TestOrder_DatabaseHangs(t *testing.T) {
	eachRail(t, func(s *shop) {
		if s.store.Engine() != store.Postgres {
			return // SQLite has no lock that keeps readers out
		}
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{Hang: true})
		placed, locked, done := make(chan struct{}), make(chan struct{}), make(chan error)
		s.at(0).Failpoint(func(at string) {
			if at == "placed" {
				close(placed)
				<-locked
			}
		})
		go func() {
			_, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, Wait: 50 * time.Millisecond}, nil)
			done <- err
		}()
		<-placed
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
			if _, err := tx.Exec(s.ctx, "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"); err != nil {
				return err
			}
			close(locked)
			select {
			case err := <-done:
				if toll.AsError(err).HTTPStatus() != 503 {
					t.Errorf("%v", err)
				}
			case <-time.After(soon):
				t.Error("still waiting")
				go func() { <-done }()
			}
			return nil
		}))
		s.rail.Behave(railtest.Behaviour{})
		s.settleDown(0)
		s.charges(1)
	})
}

// A database that stands still for a while does not end the wait for an order.
func TestOrder_DatabaseStandsStill(t *testing.T) {
	eachRail(t, func(s *shop) {
		if s.store.Engine() != store.Postgres {
			return // SQLite has no lock that keeps readers out
		}
		p := s.plan(usdc(100))
		placed, locked, done := make(chan struct{}), make(chan struct{}), make(chan error)
		var once sync.Once
		s.at(0).Failpoint(func(at string) {
			if at == "placed" {
				close(placed)
				<-locked
			}
		})
		go func() {
			o, err := s.order(0, holder, p)
			if err == nil && o.Status != toll.OrderConfirmed {
				t.Errorf("%+v", o)
			}
			done <- err
		}()
		<-placed
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
			if _, err := tx.Exec(s.ctx, "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"); err != nil {
				return err
			}
			once.Do(func() { close(locked) }) // a transaction may run again
			time.Sleep(300 * time.Millisecond)
			return nil
		}))
		must.Do(s, <-done)
		s.charges(1)
	})
}

// Two first changes of a wallet at once both count: the keys that one of them sets are not lost to the other.
func TestPaymentMethods_FirstChangesAtOnce(t *testing.T) {
	eachRail(t, func(s *shop) {
		for i := range 20 {
			owner := toll.Address{0xaa, byte(i)}
			key := s.key(owner)
			changes := []toll.PaymentMethodChange{{Alias: []byte(`"mine"`)}, {AllowedAPIKeyIDs: []byte(`["` + key.String() + `"]`)}}
			atOnce(2, func(n int) {
				_, err := s.at(n).PaymentMethods.Change(s.ctx, checkout.Owner{Address: owner}, owner.String(), changes[n])
				must.Check(t, err)
			})
			all := must.Get(s.at(0).PaymentMethods.List(s.ctx, checkout.Owner{Address: owner}, false, ""))(s)
			if all[0].Alias == nil || all[0].AllowedAPIKeyIDs == nil {
				s.Fatalf("%d: %+v", i, all[0])
			}
		}
	})
}

// A rail that hangs holds up its own orders: who paid on a page of the other gets the credits.
func TestReconcile_HungRail(t *testing.T) {
	each(t, func(s *shop) {
		if s.store.Engine() != store.SQLite {
			return // it takes a turn of the reconciler, and is no matter of the database
		}
		crypto, card := railtest.New(), railtest.New()
		crypto.Behave(railtest.Behaviour{Hang: true})
		card.Behave(railtest.Behaviour{Person: true, Silent: true})
		deps := func() checkout.Deps {
			return checkout.Deps{Store: s.store, Ledger: s.ledgers[0], Clock: s.clock, Rails: rail.Rails{rail.Crypto: crypto, rail.Card: card}}
		}
		before, after := s.open(deps()), s.open(deps())
		p, f := s.plan(usdc(100)), s.plan(fiat)
		const many = 17 // more than are driven at once
		for i := range many {
			must.Get(before.Order(s.ctx, checkout.OrderRequest{Caller: toll.Address{9, byte(i)}, Plan: p, Wait: time.Millisecond}, nil))(s)
		}
		page := must.Get(before.Fiat(s.ctx, checkout.FiatRequest{Caller: holder, Plan: f, Wait: soon}, nil))(s)
		s.close(before)
		must.Do(s, card.Complete(page.OrderID))
		s.now.Add(time.Minute.Microseconds())
		run := make(chan error)
		go func() {
			_, err := s.queues[after].RunDue(s.ctx)
			run <- err
		}()
		s.until("the page is paid beside the other rail", func() bool { return !s.state(page.OrderID).Open })
		crypto.Behave(railtest.Behaviour{})
		must.Do(s, <-run)
		for range 5 {
			s.now.Add(time.Minute.Microseconds())
			must.Get(s.queues[after].RunDue(s.ctx))(s)
		}
		if n, _ := crypto.Charges(); n != many || len(crypto.Faults()) > 0 {
			t.Errorf("%d of %d orders are paid, %v", n, many, crypto.Faults())
		}
		s.close(after)
	})
}
