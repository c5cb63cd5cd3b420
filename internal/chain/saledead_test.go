package chain_test

import (
	"testing"
	"time"

	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// An authorization is dead when its end is in a finalized block and nobody has used its nonce: not before, and not when somebody has.
// T62
func TestExactPayment_DeadAuthorization(t *testing.T) {
	w := newWorld(t, chaintest.Embedded(t)) // on anvil each block finalizes the one before the last
	r := w.rail(remote)
	keys, buyer := w.stranger(usdc, 3)
	left, used, canceled := w.sale(keys, buyer, receiver(1), 1), w.sale(keys, buyer, receiver(1), 1), w.sale(keys, buyer, receiver(1), 1)
	w.submit(used)
	w.cancels(keys, canceled)
	dead := func(when string, want bool) {
		t.Helper()
		for _, row := range []struct {
			what string
			sale rail.Sale
			want bool
		}{{"nobody's", left, want}, {"one that was carried out", used, false}, {"one that was cancelled", canceled, false}} {
			bare := row.sale
			bare.OrderID, bare.Signature = "", nil
			if got, err := r.Dead(t.Context(), bare); err != nil || got != row.want {
				t.Errorf("%s, %s: %v, %v", when, row.what, got, err)
			}
		}
	}
	dead("in time", false)
	for { // the finalized block moves every 32, and not with the next one
		head := must.Get(w.Eth().BlockNumber(t.Context()))(t)
		if head > 32 && head%32 == 1 {
			break
		}
		w.blocks(1)
	}
	must.Do(t, w.Advance(10*time.Minute))
	dead("after the end, which is not final", false)
	w.blocks(40)
	dead("after the end", true)
}
