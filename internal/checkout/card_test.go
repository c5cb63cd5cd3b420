package checkout_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// rows counts the jobs of open orders, and says whether the rail has a row of an order.
func (s *shop) rows(id string) (jobs int, begun bool) {
	s.Helper()
	must.Do(s, s.store.QueryRow(s.ctx, "SELECT COUNT(*) FROM jobs WHERE kind LIKE 'checkout.pay.%'").Scan(&jobs))
	_, err := s.rail.Payment(s.ctx, s.store, id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		s.Fatal(err)
	}
	return jobs, err == nil
}

// A page is opened and a person pays late: the processor says so by itself, and the decision removes the job. A refund takes back
// what is not used.
func TestCard_LateAndRefunded(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.rail.Behave(railtest.Behaviour{Person: true})
		p := s.plan(fiat)
		page := must.Get(s.at(0).Fiat(s.ctx, checkout.FiatRequest{Caller: holder, Plan: p, Wait: soon}, nil))(s)
		id := page.OrderID
		if jobs, begun := s.rows(id); jobs != 1 || !begun || page.Result.URL == "" {
			s.Fatalf("%d jobs, begun %t, page %+v", jobs, begun, page.Result)
		}
		must.Do(s, s.rail.Complete(id))
		if jobs, _ := s.rows(id); jobs != 0 || s.account(p, holder).Balance != 100 || s.state(id).Status != toll.OrderConfirmed {
			s.Fatalf("%d jobs, %+v", jobs, s.state(id))
		}
		perm := s.permission(p, "", nil)
		s.settle(p, perm, "", 30)
		must.Do(s, s.rail.Refund(id, 500))
		o := s.state(id)
		if a := s.account(p, holder); a.Balance != 0 || o.Status != toll.OrderConfirmed || o.RefundedCents != 500 || o.RefundedCredits != 70 || o.Loss != 30 {
			s.Fatalf("%+v, %+v", a, o)
		}
	})
}

// What a rail refuses before it begins is recorded as failed, with its code, and keeps no place of the plan and no cents.
func TestPrepare_Refuses(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(usdc(100), func(p *toll.Plan) { p.MaxOrders = 1 }))
		d := s.delegation(100)
		s.rail.Behave(railtest.Behaviour{Refuse: toll.CodeChainToken, Reason: "not on the list"})
		_, err := s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, DelegationID: d, Wait: soon}, nil)
		s.code(err, toll.CodeChainToken)
		id, _ := toll.AsError(err).Params["orderId"].(string)
		jobs, begun := s.rows(id)
		if o := s.state(id); o.Open || o.Status != toll.OrderFailed || o.FailureReason != "not on the list" || jobs != 0 || begun || s.remaining(d) != 100 {
			s.Fatalf("%+v, %d jobs, begun %t", o, jobs, begun)
		}
		s.rail.Behave(railtest.Behaviour{})
		must.Get(s.order(0, holder, p))(s)
		s.charges(1)
	})
}

// An order that was decided while this process prepared it, by one whose rail refuses it, is not begun and costs nothing.
// F24
func TestDecidedWhilePrepared(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{Hang: true})
		o := must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, Wait: time.Millisecond}, nil))(s)
		s.close(s.at(0))
		s.rail.Behave(railtest.Behaviour{})
		must.Do(s, s.store.Tx(s.ctx, func(tx *store.Tx) error {
			_, err := tx.Exec(s.ctx, "DELETE FROM settings WHERE name LIKE 'railtest/%'")
			return err
		}))
		s.now.Add(time.Minute.Microseconds())
		later := s.start(s.store, s.ledgers[len(s.ledgers)-1])
		s.prepared = func(p *rail.Purchase) {
			must.Do(s, later.Decisions.Change(s.ctx, p.Account, func(t *rail.Tx) error {
				return t.Decide(p.OrderID, rail.Outcome{Status: toll.OrderFailed, FailureCode: toll.CodeChainToken})
			}))
		}
		must.Get(s.queues[later].RunDue(s.ctx))(s)
		jobs, begun := s.rows(o.OrderID)
		if now := s.state(o.OrderID); now.Status != toll.OrderFailed || jobs != 0 || begun {
			s.Fatalf("%+v, %d jobs, begun %t", now, jobs, begun)
		}
		s.charges(0)
	})
}

// What a rail says of the next try is kept on its row: another process answers with it, and tries again at most once a second.
func TestWait_Delay(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{Unreachable: toll.CodeChainRelayerLow})
		_, err := s.order(0, holder, p)
		s.code(err, toll.CodeChainRelayerLow)
		id, _ := toll.AsError(err).Params["orderId"].(string)
		if o := s.state(id); o.FailureCode != "" || o.Status != toll.OrderCreated {
			s.Errorf("the row of the order moved: %+v", o)
		}
		calls := s.rail.Calls()
		for i := range 4 {
			_, err = s.at(i).ReplayOrder(s.ctx, holder, id, soon)
			s.code(err, toll.CodeChainRelayerLow)
			if toll.AsError(err).RetryAfterSecs < 1 {
				s.Error("no Retry-After")
			}
		}
		if n := s.rail.Calls() - calls; n != 0 {
			s.Errorf("%d tries within a second", n)
		}
		s.rail.Behave(railtest.Behaviour{})
		s.now.Add(time.Second.Microseconds())
		again := must.Get(s.at(1).ReplayOrder(s.ctx, holder, id, soon))(s)
		if again.Status != toll.OrderConfirmed {
			s.Errorf("%+v", again)
		}
		s.charges(1)
	})
}

// Between placing and decision only the row of the rail moves, and who reads the order sees it.
func TestOpenOrder_IsReadAtItsRail(t *testing.T) {
	eachRail(t, func(s *shop) {
		s.rail.Behave(railtest.Behaviour{Steps: 1 << 20})
		o := s.begin(s.plan(usdc(100)), "")
		row := s.state(o.OrderID)
		read := must.Get(s.at(1).OrderByID(s.ctx, holder, o.OrderID))(s)
		if row.Status != toll.OrderCreated || row.TxHash != "" || read.Status != toll.OrderSent || read.TxHash == "" || read.TxHash != o.TxHash {
			s.Errorf("row %+v, read %+v", row, read)
		}
		must.Do(s, s.decides(s.at(0), o.OrderID, rail.Outcome{Status: toll.OrderFailed}))
	})
}
