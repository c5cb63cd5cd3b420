package checkout_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// Orders are paid, used, undone, redone and made final in random order, each told once, twice or by two processes: the books agree
// after each step, and an order stands as the chain says.
// T56
func TestRandomDecisions(t *testing.T) {
	eachRail(t, func(s *shop) {
		r := rand.New(rand.NewPCG(5, 6))
		p := s.plan(both(usdc(100), ten))
		d := s.delegation(500)
		perm := s.permission(p, d, nil)
		state := map[string]toll.OrderStatus{}
		var ids, holds []string
		any := func(list []string) string {
			if len(list) == 0 {
				return ""
			}
			return list[r.IntN(len(list))]
		}
		none := ""
		for range 150 {
			i := r.IntN(2)
			id := any(ids)
			switch n := r.IntN(10); {
			case n < 3:
				o, err := s.at(i).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: soon}, nil)
				if err == nil {
					ids = append(ids, o.OrderID)
					state[o.OrderID] = o.Status
				} else if !errors.Is(err, toll.NewError(toll.CodeDelegationExhausted)) && !errors.Is(err, toll.NewError(toll.CodeDelegationInsufficient)) {
					s.Fatal(err)
				}
			case n == 3 && state[id] == toll.OrderConfirmed, n == 4 && state[id] == toll.OrderConfirmed:
				state[id] = toll.OrderFailed
				for range 1 + r.IntN(2) {
					s.undo(r.IntN(2), id)
				}
			case n == 3 && state[id] == toll.OrderFailed, n == 4 && state[id] == toll.OrderFailed:
				state[id] = toll.OrderConfirmed
				for range 1 + r.IntN(2) {
					s.redo(r.IntN(2), id)
				}
			case n == 5 && id != "" && r.IntN(4) == 0:
				if state[id] == toll.OrderFailed {
					s.rail.Redo(id)
				}
				state[id] = toll.OrderFinal
				s.rail.Finalize(id)
				must.Do(s, s.decides(s.at(i), id, rail.Outcome{Status: toll.OrderFinal}))
			case n == 6:
				h, err := s.ledgers[0].Hold(s.ctx, ledger.HoldOp{
					Plan: p.ID, Subscriber: holder, Permission: perm.Hash, Amount: toll.Credits(1 + r.IntN(8)), Until: s.clock().Add(time.Hour), OrderTx: &none,
				})
				if err == nil {
					holds = append(holds, h.RequestID)
				}
			case n == 7 && len(holds) > 0:
				if _, err := s.ledgers[0].Release(s.ctx, perm.Account(), any(holds)); err != nil && !ledger.IsRefused(err, ledger.SettledAlready) {
					s.Fatal(err)
				}
			case n == 8:
				_, err := s.ledgers[0].Settle(s.ctx, ledger.SettleOp{
					Plan: p.ID, Subscriber: holder, Permission: perm.Hash, RequestID: any(holds), Amount: toll.Credits(1 + r.IntN(4)), OrderTx: &none,
					Render: func(ledger.Receipt) []byte { return nil },
				})
				if _, refused := errors.AsType[*ledger.Refusal](err); err != nil && !refused {
					s.Fatal(err)
				}
			case n == 9:
				s.now.Add((time.Duration(r.IntN(30)) * time.Minute).Microseconds())
				s.jobs(i)
			}
			s.audit()
			if a := s.account(p, holder); a.Balance < a.Held || a.Held < 0 {
				s.Fatalf("%+v", a)
			}
		}
		s.now.Add(2 * time.Hour.Microseconds())
		s.jobs(0)
		for id, want := range state {
			if o := s.state(id); o.Status != want || o.HeldBack != 0 {
				s.Errorf("%s is %s, want %s: %+v", id, o.Status, want, o)
			}
		}
	})
}
