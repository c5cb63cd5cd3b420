package checkout_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
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
		for s.orders(p) == 0 {
			time.Sleep(time.Millisecond)
		}
		second := make(chan error)
		go func() {
			_, err := s.request(1, p, two, s.ledgers[0].NewRequestID(two.Account()), 1)
			second <- err
		}()
		time.Sleep(50 * time.Millisecond)
		s.rail.Behave(railtest.Behaviour{DeclineNext: 1})
		s.code(<-first, toll.CodeTopUpRefused)
		if err := <-second; err != nil {
			t.Errorf("the second request: %v", err)
		}
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
		done := make(chan error)
		go func() {
			_, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, Wait: 500 * time.Millisecond}, nil)
			done <- err
		}()
		for s.orders(p) == 0 {
			time.Sleep(time.Millisecond)
		}
		s.must(s.store.Tx(s.ctx, func(tx *store.Tx) error {
			if _, err := tx.Exec(s.ctx, "LOCK TABLE orders IN ACCESS EXCLUSIVE MODE"); err != nil {
				return err
			}
			select {
			case err := <-done:
				if toll.AsError(err).HTTPStatus() != 503 {
					t.Errorf("%v", err)
				}
			case <-time.After(8 * time.Second):
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

// Two first changes of a wallet at once both count: the keys that one of them sets are not lost to the other.
func TestPaymentMethods_FirstChangesAtOnce(t *testing.T) {
	eachRail(t, func(s *shop) {
		for i := range 20 {
			owner := toll.Address{0xaa, byte(i)}
			key := s.key(owner)
			changes := []toll.PaymentMethodChange{{Alias: []byte(`"mine"`)}, {AllowedAPIKeyIDs: []byte(`["` + key.String() + `"]`)}}
			atOnce(2, func(n int) {
				_, err := s.at(n).ChangePaymentMethod(s.ctx, checkout.Owner{Address: owner}, owner.String(), changes[n])
				if err != nil {
					t.Error(err)
				}
			})
			all, err := s.at(0).PaymentMethods(s.ctx, checkout.Owner{Address: owner}, false, "")
			s.must(err)
			if all[0].Alias == nil || all[0].AllowedAPIKeyIDs == nil {
				s.Fatalf("%d: %+v", i, all[0])
			}
		}
	})
}
