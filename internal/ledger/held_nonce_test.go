package ledger_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestNonceOfHeldSettleNamesItsRequest: a nonce that is first seen when a held request is settled names that request
// from then on: the same payload without the id is the same request, not a second burn.
// I06
func TestNonceOfHeldSettleNamesItsRequest(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b := open(t, st)
		b.mint(100, time.Time{})
		perm := b.permission(0)
		h, err := b.Hold(b.ctx, b.holdOp(perm, 5))
		b.must(err)
		op := settleOp(perm, h.RequestID, 5)
		op.Keys = []string{"n:late"}
		_, err = b.Settle(b.ctx, op)
		b.must(err)
		op.RequestID = ""
		s, err := b.Settle(b.ctx, op)
		b.must(err)
		if !s.Replayed {
			t.Error("the same payload burned twice")
		}
		b.balance(95, 0)
	})
}
