package ledger_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// renew lets a permission take the place of another, with what that left of its limit. also is the error of the other
// writes of the act.
func (b *bench) renew(old toll.Hash, also error) (ledger.Permission, error) {
	next := ledger.Permission{
		Hash: toll.NewHash(), Plan: plan, Subscriber: subscriber, Scheme: "svc:erc4337", Network: "eip155:84532",
		CreatedAt: b.clock.now(), ExpiresAt: b.clock.now().Add(24 * time.Hour),
	}
	err := b.DoNew(b.ctx, plan, subscriber, func(t *ledger.Tx) error {
		ended, err := t.RevokePermission(old, b.clock.now())
		if err != nil {
			return err
		}
		next.RedemptionLimit = (*ended.RedemptionLimit - ended.Redeemed - ended.Held).Ptr()
		if err := t.FreezePermission(old); err != nil {
			return err
		}
		if err := b.InsertPermission(b.ctx, t.Tx, next); err != nil {
			return err
		}
		return also
	})
	return next, err
}

// TestRenewedLimits: a permission that takes the place of another has what that did not use; nothing that the other
// still does adds to it.
// T117
func TestRenewedLimits(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(100, time.Time{})
		old := b.permission(20)

		_, err := b.Settle(b.ctx, settleOp(old, "used", 3))
		must.Do(b, err)
		held := must.Get(b.Hold(b.ctx, b.holdOp(old, 5)))(b)
		lapsing := must.Get(b.Hold(b.ctx, b.holdOp(old, 2)))(b)
		b.clock.add(30 * time.Second)
		kept := b.holdOp(old, 4)
		kept.Until = b.clock.now().Add(time.Hour)
		late := must.Get(b.Hold(b.ctx, kept))(b)
		b.clock.add(40 * time.Second) // the first two have lapsed
		must.Do(b, b.Touch(b.ctx, ledger.NewAccountID(plan, subscriber)))

		boom := errors.New("boom")
		if _, err := b.renew(old, boom); !errors.Is(err, boom) {
			t.Fatal(err)
		}
		must.Get(b.Settle(b.ctx, settleOp(old, "still", 1)))(b) // nothing of it happened

		next := must.Get(b.renew(old, nil))(b)
		if *next.RedemptionLimit != 20-3-1-4 {
			t.Fatalf("the next one has %d", *next.RedemptionLimit)
		}
		_, err = b.Settle(b.ctx, settleOp(old, "after", 1))
		b.refused(err, ledger.PermissionRevoked)
		for _, id := range []string{held.RequestID, lapsing.RequestID} {
			_, err = b.Settle(b.ctx, settleOp(old, id, 1)) // what has lapsed ended with the permission
			b.refused(err, ledger.PermissionRevoked)
		}
		_, err = b.Settle(b.ctx, settleOp(old, late.RequestID, 5)) // it pays what it holds and no more
		b.refused(err, ledger.PermissionRevoked)
		must.Get(b.Settle(b.ctx, settleOp(old, late.RequestID, 4)))(b)
		must.Get(b.Settle(b.ctx, settleOp(next.Hash, "rest", 12)))(b)
		_, err = b.Settle(b.ctx, settleOp(next.Hash, "more", 1))
		b.refused(err, ledger.RedemptionLimit)
		b.balance(80, 0)
		_, err = b.renew(old, nil)
		b.refused(err, ledger.PermissionRevoked)
		_, err = b.renew(toll.NewHash(), nil)
		b.refused(err, ledger.PermissionUnknown)
	})
}

// Renewals and settlements of one permission at the same time never burn more than its limit together.
// T117
func TestRenewalsRaced(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(100, time.Time{})
		old := b.permission(10)
		var mu sync.Mutex
		var won []ledger.Permission
		var burned toll.Credits
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := b.Settle(b.ctx, settleOp(old, toll.NewUUID(), 1)); err == nil {
					mu.Lock()
					burned++
					mu.Unlock()
				} else if !ledger.IsRefused(err, ledger.PermissionRevoked) {
					t.Error(err)
				}
			})
			wg.Go(func() {
				p, err := b.renew(old, nil)
				if err != nil {
					if !ledger.IsRefused(err, ledger.PermissionRevoked) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				won = append(won, p)
				mu.Unlock()
			})
		}
		wg.Wait()
		if len(won) != 1 || *won[0].RedemptionLimit != 10-burned {
			t.Fatalf("%d renewals after %d credits: %+v", len(won), burned, won)
		}
	})
}
