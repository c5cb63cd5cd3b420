package checkout_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/checkout"
	"github.com/tollhq/toll/internal/checkout/railtest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
	"github.com/tollhq/toll/internal/store"
)

// An order gives its shares of the limits of plan, delegation, access token and account back once, however often it fails: while it is open, when a late payment is undone, and when that is undone a second time.
func TestLimitsGivenBackOnce(t *testing.T) {
	eachRail(t, func(s *shop) {
		p := s.plan(both(both(usdc(100), ten), func(p *toll.Plan) { p.MaxOrders = 2 }))
		d := s.delegation(250)
		perm := s.permission(p, d, nil)
		check := func(when string, places, orders int64, reserved, spent toll.Cents, transactions int64, balance toll.Credits) {
			s.Helper()
			r := must.Get(s.at(0).Delegations.Read(s.ctx, holder, d))(s)
			got := must.Get(s.ledgers[0].PermissionByHash(s.ctx, perm.Hash))(s)
			free := 250 - r.AmountSpentCents - r.RemainingBudgetCents
			if a := s.account(p, holder); int64(s.orders(p)) != places || got.Orders != orders || free != reserved || r.AmountSpentCents != spent ||
				int64(r.TransactionCount) != transactions || a.Balance != balance || a.Orders != int64(balance/10) {
				s.Fatalf("%s: %d places, %d orders of the token, %d of the account, %d cents reserved, %d spent, %d transactions, balance %d", when,
					s.orders(p), got.Orders, a.Orders, free, r.AmountSpentCents, r.TransactionCount, a.Balance)
			}
		}
		s.rail.Behave(railtest.Behaviour{Hang: true})
		_, err := s.at(0).TopUp(s.ctx, &checkout.TopUp{
			Plan: p, Subscriber: holder, Permission: perm.Hash, DelegationID: d, Needed: 1, RequestID: "r", Wait: 20 * time.Millisecond,
		})
		s.code(err, toll.CodeSettlementPending)
		open := must.Get(store.OpenOrder(s.ctx, s.store, perm.Account(), ""))(s)
		id := open.ID
		check("open", 1, 1, 100, 0, 1, 0)
		for range 2 {
			must.Do(s, s.decides(s.at(0), id, undone))
			check("failed", 0, 0, 0, 0, 0, 0)
		}
		for range 2 {
			s.redo(1, id)
			check("paid late", 1, 1, 0, 100, 1, 10)
		}
		for range 2 { // the second row of failures
			s.undo(0, id)
			check("undone", 0, 0, 0, 0, 0, 0)
		}
		s.redo(0, id)
		s.undo(1, id)
		check("undone a second time", 0, 0, 0, 0, 0, 0)
		s.audit()
	})
}

// The second dispute of an order is taken as the first was: each takes its share, a dispute that is won returns its own share alone, and
// the delegation stays frozen until the last one is won.
func TestAdjust_SecondDispute(t *testing.T) {
	eachRail(t, func(s *shop) {
		d := s.cardDelegation(10_000)
		p, id, _ := s.bought(d, 0, nil)
		o := must.Get(store.OrderByID(s.ctx, s.store, id))(s)
		whole, cents := o.Credits, o.Cents
		for i, c := range []struct {
			a      rail.Adjustment
			taken  toll.Credits
			status toll.PermissionStatus
		}{
			{rail.Adjustment{DisputedCents: cents / 4, Dispute: store.DisputeOpen}, whole / 4, toll.StatusFrozen},
			{rail.Adjustment{DisputedCents: cents / 2, Dispute: store.DisputeOpen}, whole / 2, toll.StatusFrozen},
			{rail.Adjustment{DisputedCents: cents / 4, Dispute: store.DisputeOpen}, whole / 4, toll.StatusFrozen},
			{rail.Adjustment{Dispute: store.DisputeWon}, 0, toll.StatusActive},
			{rail.Adjustment{DisputedCents: cents / 4, Dispute: store.DisputeOpen}, whole / 4, toll.StatusFrozen},
			{rail.Adjustment{DisputedCents: cents / 4, Dispute: store.DisputeLost}, whole / 4, toll.StatusFrozen},
			{rail.Adjustment{RefundedCents: cents / 4, DisputedCents: cents / 4, Dispute: store.DisputeLost}, whole / 2, toll.StatusFrozen},
			{rail.Adjustment{RefundedCents: cents / 2, DisputedCents: cents / 4, Dispute: store.DisputeLost}, whole / 4 * 3, toll.StatusFrozen},
		} {
			for range 2 { // each answer is also read a second time
				s.adjust(id, c.a)
			}
			if a := s.account(p, holder); a.Balance != whole-c.taken || s.status(d) != c.status {
				s.Fatalf("step %d: balance %d, want %d; %s, want %s", i, a.Balance, whole-c.taken, s.status(d), c.status)
			}
		}
		s.audit()
	})
}
