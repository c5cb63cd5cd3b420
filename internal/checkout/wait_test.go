package checkout_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
)

// A waiting caller reads its order at most once a second.
func TestWait_Reads(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{Hang: true})
		last := len(s.rooms) - 1 // s.store is that of the last process
		o := must.Get(s.at(last).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, Wait: time.Millisecond}, nil))(s)
		waiting := s.start(s.store, s.ledgers[last]) // the order is worked on elsewhere
		var reads atomic.Int64
		s.store.Trace(func(tx uint64, statement string) {
			if tx == 0 && strings.Contains(statement, "FROM orders") {
				reads.Add(1)
			}
		})
		defer s.store.Trace(nil)
		begun := time.Now()
		o = must.Get(waiting.ReplayOrder(s.ctx, holder, o.OrderID, 2500*time.Millisecond))(s)
		// To find it, at the beginning, each second, at the end.
		if most := int64(time.Since(begun)/time.Second) + 3; o.HTTPStatus != 202 || reads.Load() > most {
			s.Fatalf("status %d, %d reads in %v", o.HTTPStatus, reads.Load(), time.Since(begun))
		}
		s.rail.Behave(railtest.Behaviour{})
		s.settleDown(0)
		s.charges(1)
	})
}

// A decision wakes the callers of its process without a read in between.
func TestWait_WokenByDecision(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(usdc(100))
		s.rail.Behave(railtest.Behaviour{Hang: true})
		o := must.Get(s.at(0).Order(s.ctx, checkout.OrderRequest{Caller: holder, Plan: p, Wait: time.Millisecond}, nil))(s)
		done := make(chan time.Time, 1)
		go func() {
			again, err := s.at(0).ReplayOrder(s.ctx, holder, o.OrderID, soon)
			if err != nil || again.Status != toll.OrderConfirmed {
				t.Errorf("%+v, %v", again, err)
			}
			done <- time.Now()
		}()
		time.Sleep(100 * time.Millisecond)
		must.Do(s, s.decides(s.at(0), o.OrderID, redone))
		decided := time.Now()
		if late := (<-done).Sub(decided); late > 500*time.Millisecond {
			t.Errorf("the caller was answered %v after the decision", late)
		}
		s.rail.Behave(railtest.Behaviour{})
		s.settleDown(0)
	})
}
