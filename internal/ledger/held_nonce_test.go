package ledger_test

import (
	"testing"

	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/store"
	"github.com/tollhq/toll/internal/store/storetest"
)

// TestNonceOfHeldSettleNamesItsRequest: a nonce that is first seen when a held request is settled names that request
// from then on: the same payload without the id is the same request, not a second burn.
// I06
func TestNonceOfHeldSettleNamesItsRequest(t *testing.T) {
	storetest.Each(t, func(t *testing.T, st *store.Store) {
		b, perm := funded(t, st)
		h := must.Get(b.Hold(b.ctx, b.holdOp(perm, 5)))(b)
		op := settleOp(perm, h.RequestID, 5)
		op.Keys = []string{"n:late"}
		must.Get(b.Settle(b.ctx, op))(b)
		op.RequestID = ""
		s := must.Get(b.Settle(b.ctx, op))(b)
		if !s.Replayed {
			t.Error("the same payload burned twice")
		}
		b.balance(95, 0)
	})
}
