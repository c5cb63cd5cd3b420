package ledger_test

import (
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestRenew_MovesEnd: a renewed hold keeps its credits past its first end and after its access token was revoked, at most for 24
// hours. Other holds keep their credits until their own end.
func TestRenew_MovesEnd(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		account := ledger.NewAccountID(plan, subscriber)
		b.mint(10, b.clock.now().Add(30*time.Second)) // ends while it is held
		perm := b.permission(0)
		op := b.holdOp(perm, 10)
		op.Until = b.clock.now().Add(time.Minute)
		held, err := b.Hold(b.ctx, op)
		must.Do(b, err)
		b.mint(20, time.Time{})
		other := b.holdOp(perm, 20)
		other.Until = b.clock.now().Add(time.Minute)
		must.Get(b.Hold(b.ctx, other))(b)

		begun := b.clock.now()
		renew := func(life time.Duration, want time.Time) {
			t.Helper()
			for range 2 { // a repeat changes nothing
				got := must.Get(b.Renew(b.ctx, account, held.RequestID, life))(b)
				if !got.Until.Equal(want) || got.Amount != 10 {
					t.Fatalf("%d credits until %v, want %v", got.Amount, got.Until, want)
				}
			}
		}
		renew(time.Second, begun.Add(time.Minute)) // never back
		b.clock.add(40 * time.Second)
		renew(time.Minute, b.clock.now().Add(time.Minute))
		b.balance(30, 30)
		for range 3 {
			b.clock.add(40 * time.Second)
			renew(time.Minute, b.clock.now().Add(time.Minute))
		}
		b.balance(20, 10) // the other hold has lapsed: its credits are free, and take the place of those that ended
		must.Do(b, b.RevokePermission(b.ctx, plan, subscriber, perm, b.clock.now()))
		renew(15*time.Minute, b.clock.now().Add(15*time.Minute))
		for b.clock.now().Before(begun.Add(23*time.Hour + 50*time.Minute)) {
			b.clock.add(10 * time.Minute)
			must.Get(b.Renew(b.ctx, account, held.RequestID, 15*time.Minute))(b)
		}
		renew(15*time.Minute, begun.Add(24*time.Hour))
		b.clock.add(5 * time.Minute)
		renew(time.Minute, begun.Add(24*time.Hour))
		must.Get(b.Settle(b.ctx, settleOp(perm, held.RequestID, 10)))(b)
		b.balance(10, 0)
		_, err = b.Renew(b.ctx, account, held.RequestID, time.Minute)
		b.refused(err, ledger.HoldOver)
		_, err = b.Renew(b.ctx, account, "unknown", time.Minute)
		b.refused(err, ledger.UnknownRequest)
	})
}

// TestRenew_Ended: a hold that has lapsed or was released is not renewed, even if nobody has written its lapse, and the end that a
// renewal moved is the end.
func TestRenew_Ended(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		account := ledger.NewAccountID(plan, subscriber)
		b.mint(100, time.Time{})
		perm := b.permission(0)
		op := b.holdOp(perm, 10)
		op.Until = b.clock.now().Add(time.Minute)
		lapsing, err := b.Hold(b.ctx, op)
		must.Do(b, err)
		released := must.Get(b.Hold(b.ctx, op))(b)
		must.Get(b.Release(b.ctx, account, released.RequestID))(b)
		_, err = b.Renew(b.ctx, account, released.RequestID, time.Minute)
		b.refused(err, ledger.HoldOver)
		must.Get(b.Renew(b.ctx, account, lapsing.RequestID, 2*time.Minute))(b)
		b.clock.add(2*time.Minute - time.Microsecond)
		b.balance(100, 10)
		b.clock.add(time.Microsecond)
		_, err = b.Renew(b.ctx, account, lapsing.RequestID, time.Minute)
		b.refused(err, ledger.HoldOver)
		b.balance(100, 0)
	})
}

// TestRenew_BesideOthers: two instances renew and settle holds of one account at the same time, and each hold ends once.
func TestRenew_BesideOthers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, o := open(t, st), open(t, st)
		account := ledger.NewAccountID(plan, subscriber)
		b.mint(100, time.Time{})
		perm := b.permission(0)
		var ids []string
		for range 10 {
			held := must.Get(b.Hold(b.ctx, b.holdOp(perm, 10)))(b)
			ids = append(ids, held.RequestID)
		}
		var all sync.WaitGroup
		for i, id := range ids {
			for _, l := range []*bench{b, o} {
				all.Go(func() {
					for range 5 {
						if _, err := l.Renew(l.ctx, account, id, 10*time.Minute); err != nil && !ledger.IsRefused(err, ledger.HoldOver) {
							t.Error(err)
						}
					}
				})
			}
			if i < 5 {
				all.Go(func() {
					if _, err := o.Settle(o.ctx, settleOp(perm, id, 10)); err != nil {
						t.Error(err)
					}
				})
			}
		}
		all.Wait()
		b.balance(50, 50)
		b.clock.add(5 * time.Minute)
		must.Do(b, b.Touch(b.ctx, account))
		b.balance(50, 50)
		for _, id := range ids[5:] {
			must.Get(b.Release(b.ctx, account, id))(b)
		}
		b.balance(50, 0)
	})
}
