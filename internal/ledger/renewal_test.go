package ledger_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/ledger"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// renew lets a permission take the place of another, with what that left of its limit.
func (b *bench) renew(old toll.Hash, also func(*store.Tx, ledger.Permission) error) (ledger.Permission, error) {
	next := ledger.Permission{
		Hash: toll.NewHash(), Plan: plan, Subscriber: subscriber, Scheme: "svc:erc4337", Network: "eip155:84532",
		CreatedAt: b.clock.now(), ExpiresAt: b.clock.now().Add(24 * time.Hour),
	}
	from := ledger.Permission{Hash: old, Plan: plan, Subscriber: subscriber}
	err := b.RenewPermissionWith(b.ctx, from, b.clock.now(), func(now ledger.Permission) (ledger.Permission, error) {
		next.RedemptionLimit = (*now.RedemptionLimit - now.Redeemed - now.Held).Ptr()
		return next, nil
	}, also)
	return next, err
}

// TestT117_RenewedLimits: a permission that takes the place of another has what that did not use; nothing that the other
// still does adds to it.
func TestT117_RenewedLimits(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(100, time.Time{})
		old := b.permission(20)
		none := func(*store.Tx, ledger.Permission) error { return nil }

		_, err := b.Settle(b.ctx, settleOp(old, "used", 3))
		b.must(err)
		held, err := b.Hold(b.ctx, b.holdOp(old, 5))
		b.must(err)
		lapsing, err := b.Hold(b.ctx, b.holdOp(old, 2))
		b.must(err)
		b.clock.add(30 * time.Second)
		kept := b.holdOp(old, 4)
		kept.Until = b.clock.now().Add(time.Hour)
		late, err := b.Hold(b.ctx, kept)
		b.must(err)
		b.clock.add(40 * time.Second) // the first two have lapsed
		b.must(b.Touch(b.ctx, ledger.NewAccountID(plan, subscriber)))

		boom := errors.New("boom")
		if _, err := b.renew(old, func(*store.Tx, ledger.Permission) error { return boom }); !errors.Is(err, boom) {
			t.Fatal(err)
		}
		_, err = b.Settle(b.ctx, settleOp(old, "still", 1)) // nothing of it happened
		b.must(err)

		next, err := b.renew(old, none)
		b.must(err)
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
		_, err = b.Settle(b.ctx, settleOp(old, late.RequestID, 4))
		b.must(err)
		_, err = b.Settle(b.ctx, settleOp(next.Hash, "rest", 12))
		b.must(err)
		_, err = b.Settle(b.ctx, settleOp(next.Hash, "more", 1))
		b.refused(err, ledger.RedemptionLimit)
		b.balance(80, 0)
		_, err = b.renew(old, none)
		b.refused(err, ledger.PermissionRevoked)
		_, err = b.renew(toll.NewHash(), none)
		b.refused(err, ledger.PermissionUnknown)
	})
}

// Renewals and settlements of one permission at the same time never burn more than its limit together.
func TestT117_RenewalsRaced(t *testing.T) {
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
				p, err := b.renew(old, func(*store.Tx, ledger.Permission) error { return nil })
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
