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

// lapsed takes n holds at once and lets them lapse. Their ids are prefix-1, prefix-2, and so on.
func (b *bench) lapsed(perm toll.Hash, prefix string, n int, each toll.Credits) (ids []string) {
	b.Helper()
	for i := range n {
		op := b.holdOp(perm, each)
		op.RequestID, op.Until = fmt.Sprintf("%s-%03d", prefix, i+1), b.clock.now().Add(time.Second)
		must.Get(b.Hold(b.ctx, op))(b)
		ids = append(ids, op.RequestID)
	}
	b.clock.add(2 * time.Second)
	must.Do(b, b.Touch(b.ctx, ledger.NewAccountID(plan, subscriber)))
	return ids
}

// claim settles a lapsed hold of n credits and reports whether it burned.
func (b *bench) claim(perm toll.Hash, id string, n toll.Credits) bool {
	b.Helper()
	_, err := b.Settle(b.ctx, settleOp(perm, id, n))
	if err != nil {
		b.refused(err, ledger.HoldExpired)
	}
	return err == nil
}

// TestStockpiledClaims: holds that lapse are claims on credits that are bought later. A
// permission keeps no more of them than it could hold at a time, the newest.
// T32
func TestStockpiledClaims(t *testing.T) {
	tests := map[string]struct {
		limit         toll.Credits
		rounds, holds int
		each          toll.Credits
		want          int // claims that still burn, the newest
	}{
		"balance":               {0, 9, 10, 10, 10},
		"balance, one by one":   {0, 31, 1, 10, 10},
		"redemption limit":      {35, 5, 3, 10, 3},
		"number of holds":       {0, 3, 40, 1, 64},
		"number of empty holds": {0, 3, 40, 0, 64},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, st *store.Store) {
				b := open(t, st)
				b.mint(100, time.Time{})
				perm := b.permission(c.limit)
				var ids []string
				for i := range c.rounds {
					ids = append(ids, b.lapsed(perm, fmt.Sprintf("r%02d", i), c.holds, c.each)...)
				}
				b.mint(10_000, time.Time{})
				for i, id := range ids {
					if got, want := b.claim(perm, id, c.each), i >= len(ids)-c.want; got != want {
						t.Fatalf("claim %d of %d: burned %v, want %v", i+1, len(ids), got, want)
					}
				}
			})
		})
	}
}

// TestClaimsKilled: a kill around a lapse leaves both the lapse and what it gave up, or neither.
// F06
func TestClaimsKilled(t *testing.T) {
	t.Parallel()
	eachCrash(t, func(t *testing.T, _ string, run func(string, toll.Hash, string), b func() *bench) {
		perm := b().permission(0)
		old := b().lapsed(perm, "old", 1, 60)[0]
		op := b().holdOp(perm, 60)
		op.RequestID = "new"
		must.Get(b().Hold(t.Context(), op))(b())
		run("sweep", perm, "")
		b().clock.add(time.Hour)
		must.Get(b().Sweep(t.Context()))(b())
		if b().claim(perm, old, 60) || !b().claim(perm, "new", 60) {
			t.Error("the older claim burns, or the newer does not")
		}
		b().balance(40, 0)
	})
}

// TestClaims_KeepNewest: what was held just before it lapsed is always within the cap, whatever
// ended, was spent or came since, and however late the lapse is written.
func TestClaims_KeepNewest(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(10, b.clock.now().Add(500*time.Millisecond)) // ends while it is held
		perm, other := b.permission(0), b.permission(0)
		kept := b.lapsed(perm, "kept", 1, 10)[0]
		b.balance(0, 0)
		b.mint(30, time.Time{})
		for i := range 3 {
			b.lapsed(other, fmt.Sprint("other", i), 1, 30)
		}
		if !b.claim(perm, kept, 10) {
			t.Error("claims of another permission made this one give its own up")
		}
		released, err := b.Release(b.ctx, ledger.NewAccountID(plan, subscriber), "other0-001")
		if err != nil || released.Status.String() != "lapsed" {
			t.Errorf("release of a claim that was given up: %v %v", released, err)
		}
		op := b.holdOp(other, 1)
		op.RequestID = "other0-001"
		_, err = b.Hold(b.ctx, op)
		b.refused(err, ledger.Duplicate)
		_, err = b.Settle(b.ctx, settleOp(perm, "other0-001", 1))
		b.refused(err, ledger.Conflict)
	})
}

// TestClaims_AfterEnd: under an access token that has ended a claim burns no more than it held.
func TestClaims_AfterEnd(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		ids := b.lapsed(perm, "r", 2, 1)
		_, err := b.Settle(b.ctx, settleOp(perm, ids[0], 10))
		must.Do(b, err) // a new request could burn as much
		b.clock.add(24 * time.Hour)
		_, err = b.Settle(b.ctx, settleOp(perm, ids[1], 10))
		b.refused(err, ledger.PermissionExpired)
		must.Get(b.Settle(b.ctx, settleOp(perm, ids[1], 1)))(b)
		b.balance(89, 0)
	})
}
