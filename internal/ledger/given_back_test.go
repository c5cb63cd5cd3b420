package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// Each way in which a hold ends gives its credits, its place and its share of the redemption limit back, once: a second release gives
// nothing, and neither does a release after the hold has lapsed.
func TestLimitsGivenBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(1000, time.Time{})
		account := ledger.NewAccountID(plan, subscriber)
		perm := b.permission(10)
		hold := func() string {
			t.Helper()
			h, err := b.Hold(b.ctx, b.holdOp(perm, 10))
			must.Do(b, err)
			_, err = b.Hold(b.ctx, b.holdOp(perm, 1))
			b.refused(err, ledger.RedemptionLimit)
			b.balance(1000, 10)
			return h.RequestID
		}
		release := func(id, status string) {
			t.Helper()
			r := must.Get(b.Release(b.ctx, account, id))(b)
			if r.Status.String() != status {
				t.Fatalf("the release of a request says %s, want %s", r.Status, status)
			}
			b.balance(1000, 0)
		}
		first := hold()
		release(first, "released")
		release(first, "released")
		second := hold()
		_, err := b.Release(b.ctx, account, first) // while another hold is open
		must.Do(b, err)
		b.balance(1000, 10)
		b.clock.add(2 * time.Minute)
		must.Get(b.Sweep(b.ctx))(b)
		b.balance(1000, 0)
		release(second, "lapsed")
		release(second, "lapsed")
		fourth := hold()
		_, err = b.Settle(b.ctx, settleOp(perm, fourth, 11))
		b.refused(err, ledger.RedemptionLimit)
		release(fourth, "released")
		// What was settled of a hold stays used; the rest is given back.
		third := hold()
		must.Get(b.Settle(b.ctx, settleOp(perm, third, 4)))(b)
		_, err = b.Hold(b.ctx, b.holdOp(perm, 7))
		b.refused(err, ledger.RedemptionLimit)
		h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 6)))(b)
		b.balance(996, 6)
		_, err = b.Release(b.ctx, account, third)
		b.refused(err, ledger.SettledAlready)
		b.balance(996, 6)
		must.Get(b.Release(b.ctx, account, h.RequestID))(b)
		b.balance(996, 0)
	})
}

// The places of holds are given back one by one, by release, settlement and lapse, and no place is given back twice.
func TestPlacesOfHoldsGivenBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(10_000, time.Time{})
		account := ledger.NewAccountID(plan, subscriber)
		perm := b.permission(0)
		var last string // hold that is open
		full := func(places int) {
			t.Helper()
			for range places {
				h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 1)))(b)
				last = h.RequestID
			}
			_, err := b.Hold(b.ctx, b.holdOp(perm, 1))
			b.refused(err, ledger.TooManyHolds)
		}
		full(ledger.MaxHoldsPerPermission)
		for _, end := range []func(id string) error{
			func(id string) error { _, err := b.Release(b.ctx, account, id); return err },
			func(id string) error { _, err := b.Settle(b.ctx, settleOp(perm, id, 1)); return err },
		} {
			must.Do(b, end(last))
			must.Do(b, end(last)) // again: it gives nothing back
			full(1)
		}
		b.clock.add(2 * time.Minute)
		full(ledger.MaxHoldsPerPermission)
		p := must.Get(b.PermissionByHash(b.ctx, perm))(b)
		if p.OpenHolds != ledger.MaxHoldsPerPermission {
			t.Errorf("%d open holds", p.OpenHolds)
		}
	})
}

// A limit of orders is given back by an order that fails, and a first order that was taken back leaves the place of a trial.
func TestOrderPlacesGivenBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		mint := func(ref string, first bool) error {
			_, err := b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 5, Ref: ref, Order: true, FirstOnly: first})
			return err
		}
		must.Do(b, mint("a", true))
		b.refused(mint("b", true), ledger.NotFirst)
		must.Do(b, mint("z", false))
		account := ledger.NewAccountID(plan, subscriber)
		for i := range 3 { // the second and third time nothing is taken back, and no place is given
			must.Do(b, b.Do(b.ctx, account, func(tx *ledger.Tx) error {
				moved, err := tx.TakeBack("a", toll.Hash{})
				if want := toll.Credits(5 * max(1-i, 0)); err == nil && moved.Amount != want {
					return fmt.Errorf("take back %d took %d, want %d", i, moved.Amount, want)
				}
				return err
			}))
		}
		a := must.Get(b.Account(b.ctx, account))(b)
		if a.Orders != 1 || a.Balance != 5 {
			t.Fatalf("%+v", a)
		}
		must.Do(b, b.Do(b.ctx, account, func(tx *ledger.Tx) error { _, err := tx.TakeBack("z", toll.Hash{}); return err }))
		must.Do(b, mint("c", true))
		b.refused(mint("d", true), ledger.NotFirst)
		a = must.Get(b.Account(b.ctx, account))(b)
		if a.Orders != 1 || a.Balance != 5 {
			t.Fatalf("%+v", a)
		}
	})
}

// A hold is settled for its own permission, agent and resource alone, and for no more than the hold once its permission is revoked.
func TestSettleOfAnotherHold(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		h, err := b.Hold(b.ctx, b.holdOp(perm, 10))
		must.Do(b, err)
		for i, change := range []func(op *ledger.SettleOp){
			func(op *ledger.SettleOp) { op.Permission = b.permission(0) },
			func(op *ledger.SettleOp) { op.Agent = toll.NewAgentID() },
			func(op *ledger.SettleOp) { op.Resource = "https://b.example/ask" },
		} {
			op := settleOp(perm, h.RequestID, 3)
			change(&op)
			if _, err := b.Settle(b.ctx, op); !ledger.IsRefused(err, ledger.Conflict) {
				t.Errorf("change %d: %v", i, err)
			}
			b.balance(100, 10)
		}
		must.Do(b, b.RevokePermission(b.ctx, plan, subscriber, perm, b.clock.now()))
		_, err = b.Settle(b.ctx, settleOp(perm, h.RequestID, 11))
		b.refused(err, ledger.PermissionRevoked)
		must.Get(b.Settle(b.ctx, settleOp(perm, h.RequestID, 10)))(b)
		b.balance(90, 0)
	})
}

// A hold that lapsed is settled late, but not under a permission that was revoked since, and for a day at most after the end of its
// permission.
func TestSettleOfOldHold(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(100, time.Time{})
		lapsed := func() (perm toll.Hash, id string) {
			t.Helper()
			perm = b.permission(0)
			h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 10)))(b)
			return perm, h.RequestID
		}
		revoked, a := lapsed()
		kept, c := lapsed()
		old, d := lapsed()
		b.clock.add(2 * time.Minute)
		_, err := b.Sweep(b.ctx)
		must.Do(b, err)
		must.Do(b, b.RevokePermission(b.ctx, plan, subscriber, revoked, b.clock.now()))
		_, err = b.Settle(b.ctx, settleOp(revoked, a, 1))
		b.refused(err, ledger.PermissionRevoked)
		b.refused(b.RevokePermission(b.ctx, plan, subscriber, revoked, b.clock.now().Add(time.Second)), ledger.PermissionRevoked)
		p := must.Get(b.PermissionByHash(b.ctx, kept))(b)
		b.clock.add(p.ExpiresAt.Sub(b.clock.now()) + 15*time.Minute)
		must.Get(b.Settle(b.ctx, settleOp(kept, c, 10)))(b)
		b.clock.add(40 * 24 * time.Hour)
		_, err = b.Settle(b.ctx, settleOp(old, d, 10))
		b.refused(err, ledger.HoldExpired)
		b.balance(90, 0)
	})
}

// A permission ends at its last moment. All credits that were ever minted are bounded, not only the balance.
func TestBoundsAtTheirEnds(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(toll.MaxCredits, time.Time{})
		perm := b.permission(0)
		p, err := b.PermissionByHash(b.ctx, perm)
		must.Do(b, err)
		must.Get(b.Settle(b.ctx, settleOp(perm, "all", toll.MaxCredits)))(b)
		b.balance(0, 0)
		_, err = b.Mint(b.ctx, ledger.MintOp{Plan: plan, Subscriber: subscriber, Amount: 1, Ref: "one more", Order: true})
		b.refused(err, ledger.Overflow)
		b.clock.add(p.ExpiresAt.Sub(b.clock.now()) - time.Microsecond)
		must.Do(b, p.Usable(b.clock.now()))
		b.clock.add(time.Microsecond)
		b.refused(p.Usable(b.clock.now()), ledger.PermissionExpired)
		_, err = b.Hold(b.ctx, b.holdOp(perm, 0))
		b.refused(err, ledger.PermissionExpired)
	})
}
