package checkout_test

import (
	"crypto/sha1"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
)

// The orders of a request have ids that follow from it: whoever comes with it again, even to a database that lost the order,
// names the same one to the rail. Others sort by time.
func TestOrderIDs(t *testing.T) {
	eachRail(t, func(s *shop) {
		idOf := func(perm ledger.Permission, request string, n int) string {
			account := perm.Account()
			h := sha1.Sum([]byte(string(account[:]) + request + "/" + strconv.Itoa(n)))
			h[6], h[8] = h[6]&0x0f|0x50, h[8]&0x3f|0x80
			return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
		}
		ordersOf := func(perm ledger.Permission, request string) (ids []string) {
			all := must.Get(store.OrdersOfRequest(s.ctx, s.store, perm.Account(), request))(s)
			for _, o := range all {
				ids = append(ids, o.ID)
			}
			return ids
		}
		for _, p := range []*toll.Plan{s.plan(both(usdc(100), ten)), s.plan(payg)} {
			perm := s.permission(p, s.delegation(10_000), nil)
			again := s.permission(p, perm.DelegationID, nil)
			// Two orders fail before two are paid, as the credits of the first go to somebody else.
			s.rail.Behave(railtest.Behaviour{DeclineNext: 2, Code: toll.CodeChainBalance})
			for range 2 {
				_, err := s.request(0, p, perm, "r/1", 15)
				s.code(err, toll.CodeTopUpRefused)
			}
			must.Get(s.request(1, p, perm, "r/1", 15))(s)
			// The same words of another account are another request.
			foreign := s.permission(p, perm.DelegationID, func(p *ledger.Permission) { p.Subscriber = other })
			if foreign.Account() == again.Account() || idOf(foreign, "r/1", 0) == idOf(again, "r/1", 0) {
				s.Fatal("the account does not count")
			}
			want := []string{idOf(perm, "r/1", 0), idOf(perm, "r/1", 1), idOf(perm, "r/1", 2)}
			if p.Kind().Prepaid() {
				want = append(want, idOf(perm, "r/1", 3))
			}
			if got := ordersOf(perm, "r/1"); !slices.Equal(got, want) {
				s.Fatalf("%v, want %v", got, want)
			}
		}
		before := ""
		for range 3 {
			s.now.Add(time.Millisecond.Microseconds())
			o := must.Get(s.order(0, holder, s.plan(nil)))(s)
			if id, err := toll.ParseUUID(o.OrderID); err != nil || id[14] != '7' || id <= before {
				s.Fatalf("%s after %s", o.OrderID, before)
			}
			before = o.OrderID
		}
	})
}

// A process dies at each step of a top-up; the request comes again, elsewhere, and finds its order.
// F12
func TestTopUpKilledAtEachStep(t *testing.T) {
	eachRail(t, func(s *shop) {
		for i, step := range []string{"place", "placing", "placed", "pay", "paid", "finish", "confirming", "finished"} {
			p := s.plan(both(usdc(100), ten))
			d := s.delegation(100)
			perm := s.permission(p, d, nil)
			request := s.ledgers[0].NewRequestID(perm.Account())
			dying := s.start(s.store, s.ledgers[len(s.ledgers)-1])
			var reached atomic.Bool
			dying.Failpoint(func(at string) {
				if at == step {
					reached.Store(true)
					panic("killed")
				}
			})
			func() {
				defer func() { _ = recover() }()
				_, _ = dying.TopUp(s.ctx, &checkout.TopUp{
					Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: 4, RequestID: request, Wait: 50 * time.Millisecond,
				})
			}()
			s.until(step+" is reached", reached.Load)
			s.close(dying) // it writes nothing more
			s.now.Add(time.Minute.Microseconds())
			tx := must.Get(s.request(0, p, perm, request, 4))(s)
			all := must.Get(store.OrdersOfRequest(s.ctx, s.store, perm.Account(), request))(s)
			if a := s.account(p, holder); len(all) != 1 || all[0].Status != toll.OrderConfirmed || a.Balance != 10 || a.Held != 4 || s.remaining(d) != 0 {
				s.Fatalf("%s: %d orders, %+v", step, len(all), a)
			}
			// Credits that were there already, as another process went on, say nothing of the order; who looks it up finds it.
			if o, err := s.at(1).OrderOfRequest(s.ctx, perm.Account(), request); err != nil || tx != "" && o.TxHash != tx {
				s.Fatalf("%s: %q %v", step, tx, err)
			}
			s.settle(p, perm, request, 4)
			if a := s.account(p, holder); a.Burned != 4 || a.Held != 0 {
				s.Fatalf("%s: %+v", step, a)
			}
			s.charges(i + 1)
			s.audit()
		}
	})
}
