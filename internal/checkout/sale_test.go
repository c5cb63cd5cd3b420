package checkout_test

import (
	"errors"
	"math/big"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/evm"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// sold is a plan for a dollar.
func (s *shop) sold() *toll.Plan {
	s.Helper()
	return s.plan(func(p *toll.Plan) {
		p.Price = toll.Price{IsCrypto: true, TokenAddress: toll.USDCSandbox, Amounts: []toll.Units{toll.UnitsOf(1_000_000)}, Receivers: []toll.Address{owner}}
	})
}

// sale pays a plan with an authorization of the holder that has this nonce.
func (s *shop) sale(plan *toll.Plan, nonce byte) checkout.SaleRequest {
	return checkout.SaleRequest{
		Plan: plan, ChainID: 84532, Wait: soon, Content: toll.Hash{1}, Check: func() error { return nil },
		Sale: rail.Sale{Token: toll.USDCSandbox, Signature: make([]byte, 65), Authorization: evm.Authorization{
			From: holder, To: owner, Value: big.NewInt(1_000_000), ValidBefore: uint64(s.clock().Add(time.Hour).Unix()), Nonce: [32]byte{nonce},
		}},
	}
}

func (s *shop) credits(plan *toll.Plan) toll.Credits {
	s.Helper()
	b := must.Get(s.at(0).Balance(s.ctx, plan, holder, false))(s)
	return b.Balance
}

// One authorization is sent for two plans, by many callers of two processes: one order, one transfer, one first.
// T60
func TestAuthorizationRaced(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.rail.Fund(holder, toll.USDCSandbox, 10_000_000)
		plans := []*toll.Plan{s.sold(), s.sold()}
		for round := range byte(3) {
			before := s.rail.Transfers()
			var mu sync.Mutex
			var group sync.WaitGroup
			firsts, recorded, orders, refused := 0, 0, map[string]bool{}, 0
			for i := range 12 {
				group.Go(func() {
					out, err := s.at(i/2).Sell(s.ctx, s.sale(plans[i%2], round))
					mu.Lock()
					defer mu.Unlock()
					switch {
					case errors.Is(err, toll.NewError(toll.CodeRequestUsed)):
						refused++
					case err != nil:
						s.Error(err)
					default:
						orders[out.Order.OrderID] = true
						if out.First {
							firsts++
						}
						if out.Recorded {
							recorded++
						}
					}
				})
			}
			group.Wait()
			if firsts != 1 || recorded != 1 || len(orders) != 1 || refused != 6 || s.rail.Transfers() != before+1 {
				s.Errorf("%d firsts, %d recorded, %d orders, %d refused, %d transfers", firsts, recorded, len(orders), refused, s.rail.Transfers()-before)
			}
		}
		if sum := s.credits(plans[0]) + s.credits(plans[1]); sum != 300 {
			s.Errorf("%d credits", sum)
		}
	})
}

// A name of a purchase is used at the same time for two of them: one is bought.
func TestSaleIdentifierRaced(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.rail.Fund(holder, toll.USDCSandbox, 10_000_000)
		one, two := s.sold(), s.sold()
		var mu sync.Mutex
		var group sync.WaitGroup
		bought, conflicts := map[string]bool{}, 0
		for i := range 8 {
			r := s.sale(one, byte(i))
			if i%2 == 1 {
				r = s.sale(two, byte(i))
				r.Content = toll.Hash{2}
			}
			r.Identifier = "pay_0123456789abcdef"
			group.Go(func() {
				out, err := s.at(i/2).Sell(s.ctx, r)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, toll.NewError(toll.CodeSettleConflict)):
					conflicts++
				case err != nil:
					s.Error(err)
				default:
					bought[out.Order.OrderID] = true
				}
			})
		}
		group.Wait()
		if len(bought) != 1 || conflicts != 4 || s.rail.Transfers() != 1 {
			s.Errorf("%d orders, %d conflicts, %d transfers", len(bought), conflicts, s.rail.Transfers())
		}
	})
}

// A process dies at a step of a sale; another one goes on with the same authorization.
// F13
func TestSaleGoesOn(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.rail.Fund(holder, toll.USDCSandbox, 10_000_000)
		for i, step := range []string{"placed", "pay", "paid", "finish", "confirming", "finished"} {
			plan := s.sold()
			dead := s.start(s.store, s.ledgers[0])
			var once sync.Once
			stopped := make(chan struct{})
			dead.Failpoint(func(at string) {
				if at == step {
					once.Do(func() { close(stopped) })
					panic("stopped at " + at)
				}
			})
			r := s.sale(plan, byte(i))
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				defer func() { _ = recover() }()
				quick := r
				quick.Wait = 10 * time.Millisecond
				_, _ = dead.Sell(s.ctx, quick)
			}()
			<-stopped
			<-gone
			s.close(dead)                                    // it writes nothing more
			s.now.Add(int64(time.Minute / time.Microsecond)) // past the lease of the dead one
			alive := s.start(s.store, s.ledgers[0])
			must.Get(s.queues[alive].RunDue(s.ctx))(s)
			out, err := alive.Sell(s.ctx, r)
			if err != nil || out.Recorded || out.First || out.Order.CreditsGranted != 100 || s.rail.Transfers() != i+1 || s.credits(plan) != 100 {
				s.Fatalf("%s: %+v, %v, %d transfers, %d credits", step, out, err, s.rail.Transfers(), s.credits(plan))
			}
		}
	})
}

// A check that fails writes nothing, and the same authorization may pay later.
func TestSaleChecksBeforeItWrites(t *testing.T) {
	eachRail(t, func(s *shop) {
		plan := s.sold()
		r := s.sale(plan, 1)
		_, err := s.at(0).Sell(s.ctx, r)
		s.code(err, toll.CodeChainBalance)
		s.rail.Fund(holder, toll.USDCSandbox, 1_000_000)
		r.Check = func() error { return toll.NewError(toll.CodePaymentRequired) }
		_, err = s.at(0).Sell(s.ctx, r)
		s.code(err, toll.CodePaymentRequired)
		var rows int64
		must.Do(s, s.store.QueryRow(s.ctx, "SELECT COUNT(*) FROM orders").Scan(&rows))
		if _, err := store.AuthorizationByNonce(s.ctx, s.store, 84532, toll.USDCSandbox, holder, [32]byte{1}); !errors.Is(err, store.ErrNotFound) || rows != 0 {
			s.Errorf("%d orders, authorization %v", rows, err)
		}
		r.Check = func() error { return nil }
		if out, err := s.at(0).Sell(s.ctx, r); err != nil || !out.First {
			s.Errorf("%+v, %v", out, err)
		}
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeChainFailed, Reason: "blocked"})
		s.rail.Fund(holder, toll.USDCSandbox, 1_000_000)
		for range 2 {
			_, err = s.at(0).Sell(s.ctx, s.sale(plan, 2))
			s.code(err, toll.CodeChainFailed)
		}
		if s.credits(plan) != 100 {
			s.Errorf("%d credits", s.credits(plan))
		}
	})
}

// A sale fails before anything was sent, and others have its authorization carried out afterwards: who asks again finds it paid.
// T58
func TestAfterAFailure(t *testing.T) {
	eachRail(t, func(s *shop) {
		plan := s.sold()
		r := s.sale(plan, 1)
		s.rail.Fund(holder, toll.USDCSandbox, 1_000_000)
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeChainBalance, Reason: "too low"})
		for range 2 {
			_, err := s.at(0).Sell(s.ctx, r)
			s.code(err, toll.CodeChainBalance)
		}
		s.rail.Submit(r.Sale.Token, &r.Sale.Authorization)
		for range 2 {
			out, err := s.at(1).Sell(s.ctx, r)
			if err != nil || out.Recorded || out.First || out.Order.CreditsGranted != 100 || s.credits(plan) != 100 || s.rail.Transfers() != 1 {
				s.Fatalf("%+v, %v, %d credits", out, err, s.credits(plan))
			}
		}
	})
}

// A purchase that nobody can pay any more gives its name back: under it the wallet buys with another authorization. While the first
// may still be paid, as one that failed before anything was sent, the name stands for that.
// T36
func TestIdentifierAfterAFailure(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.rail.Fund(holder, toll.USDCSandbox, 10_000_000)
		nonce := byte(0)
		ended := func(reason string) rail.Outcome {
			return rail.Outcome{Status: toll.OrderFailed, FailureCode: toll.CodePaymentRequired, FailureReason: reason, Ended: true}
		}
		named := func(plan *toll.Plan, name string) checkout.SaleRequest {
			nonce++
			r := s.sale(plan, nonce)
			r.Identifier = name
			return r
		}
		for name, end := range map[string]func(id string){
			"pay_told_by_the_rail": func(id string) { must.Do(s, s.decides(s.at(1), id, ended("ended"))) },
			"pay_asked_again": func(string) {
				s.now.Add(int64(time.Minute / time.Microsecond)) // past the lease
				s.jobs(1)
			},
		} {
			plan, moved := s.sold(), s.rail.Transfers()
			s.rail.Behave(railtest.Behaviour{Steps: 1_000_000})
			first := named(plan, name)
			quick := func(r checkout.SaleRequest) checkout.SaleRequest {
				r.Wait = 10 * time.Millisecond
				return r
			}
			open := must.Get(s.at(0).Sell(s.ctx, quick(first)))(s)
			same, err := s.at(0).Sell(s.ctx, quick(named(plan, name)))
			if err != nil || open.Order.HTTPStatus != 202 || same.Recorded || same.Order.OrderID != open.Order.OrderID {
				s.Fatalf("%s: %+v, %+v, %v", name, open.Order, same, err)
			}
			s.jobs(0)
			s.jobs(1)
			s.rail.Undo(open.Order.OrderID, toll.CodePaymentRequired, "ended")
			s.rail.Behave(railtest.Behaviour{})
			end(open.Order.OrderID)
			_, err = s.at(0).Sell(s.ctx, first)
			s.code(err, toll.CodePaymentRequired)
			second, err := s.at(0).Sell(s.ctx, named(plan, name))
			if err != nil || !second.First || second.Order.OrderID == open.Order.OrderID || s.credits(plan) != 100 || s.rail.Transfers() != moved+1 {
				s.Fatalf("%s, with another authorization: %+v, %v, %d credits", name, second, err, s.credits(plan))
			}
			third, err := s.at(1).Sell(s.ctx, named(plan, name))
			if err != nil || third.Recorded || third.Order.OrderID != second.Order.OrderID || s.rail.Transfers() != moved+1 {
				s.Fatalf("%s, once more: %+v, %v", name, third, err)
			}
			s.rail.Undo(second.Order.OrderID, toll.CodePaymentRequired, "cancelled after all")
			must.Do(s, s.decides(s.at(1), second.Order.OrderID, ended("cancelled after all")))
			fourth, err := s.at(0).Sell(s.ctx, named(plan, name))
			if err != nil || !fourth.First || fourth.Order.OrderID == second.Order.OrderID || s.credits(plan) != 100 || s.rail.Transfers() != moved+2 {
				s.Fatalf("%s, after the chain went back: %+v, %v, %d credits", name, fourth, err, s.credits(plan))
			}
		}

		plan, moved := s.sold(), s.rail.Transfers()
		s.rail.Behave(railtest.Behaviour{Decline: true, Code: toll.CodeChainFailed, Reason: "paused"})
		first := named(plan, "pay_0123456789abcdef")
		_, err := s.at(0).Sell(s.ctx, first)
		s.code(err, toll.CodeChainFailed)
		s.rail.Behave(railtest.Behaviour{})
		_, err = s.at(1).Sell(s.ctx, named(plan, first.Identifier))
		s.code(err, toll.CodeChainFailed)
		s.rail.Submit(first.Sale.Token, &first.Sale.Authorization)
		if out, err := s.at(1).Sell(s.ctx, named(plan, first.Identifier)); err != nil || out.Recorded || s.credits(plan) != 100 || s.rail.Transfers() != moved+1 {
			s.Errorf("what others had carried out: %+v, %v, %d credits", out, err, s.credits(plan))
		}
	})
}
