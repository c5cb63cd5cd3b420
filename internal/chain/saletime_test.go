package chain_test

import (
	"context"
	"testing"
	"time"

	"github.com/tollhq/toll"
	"github.com/tollhq/toll/internal/chain"
	"github.com/tollhq/toll/internal/chain/chaintest"
	"github.com/tollhq/toll/internal/must"
	"github.com/tollhq/toll/internal/rail"
)

// TestChainTime hands in authorizations with other windows, at processes whose clocks are off: the last block has the time.
// T62
func TestChainTime(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	keys, buyer := w.stranger(usdc, 1_000_000)
	head := must.Get(w.Eth().HeaderByNumber(t.Context(), nil))(t)
	for what, off := range map[string]time.Duration{"ahead": 30 * time.Second, "behind": -30 * time.Second} {
		r := w.rail(remote, func(c *chain.Config) { c.Clock = func() time.Time { return w.Now().Add(off) } })
		for _, row := range []struct {
			after, before int64 // after the head
			word          string
		}{
			{-600, 5, wordBefore},
			{-600, 6, ""},
			{-600, 3600, ""},
			{-600, 3601, wordBefore},
			{1, 300, wordAfter},
			{0, 300, ""},
			{-600, -24, wordBefore}, // six seconds, by a clock that is half a minute behind
			{-600, 0, wordBefore},
		} {
			t.Logf("clock %s, %+d to %+d seconds", what, row.after, row.before)
			checks(t, r, w.sale(keys, buyer, receiver(1), 1_000_000, func(s *rail.Sale) {
				s.Authorization.ValidAfter = uint64(int64(head.Time) + row.after)
				s.Authorization.ValidBefore = uint64(int64(head.Time) + row.before)
			}), row.word)
		}
	}
}

// An authorization whose start is the time of the last block waits for the next one.
// T62
func TestStartsNow(t *testing.T) {
	w := newWorld(t, chaintest.New(t))
	r := w.running()
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000, func(s *rail.Sale) { s.Authorization.ValidAfter = uint64(w.Now().Unix()) })
	done := make(chan rail.Payment, 1)
	go func() {
		o, _ := r.Sell(t.Context(), s)
		done <- o
	}()
	time.Sleep(300 * time.Millisecond)
	must.Do(t, w.Advance(2*time.Second))
	if o := <-done; o.Status != toll.OrderConfirmed && o.Status != toll.OrderFinal {
		t.Errorf("the sale is %s (%+v)", o.Status, o)
	}
	w.unsold(r, w.sale(keys, buyer, receiver(1), 1, func(s *rail.Sale) { s.Authorization.ValidAfter = uint64(w.Now().Unix()) + 60 }), wordAfter)
}

// TestLateInclusion lets the operation of a sale land after its authorization has ended: the order fails when a finalized block
// is past the end, and no credits are granted.
// T62
func TestLateInclusion(t *testing.T) {
	w := newWorld(t, chaintest.Embedded(t)) // on anvil each block finalizes the one before the last
	sink := w.ledger()
	change := []func(*chain.Config){remote, func(c *chain.Config) { c.Orders = sink }}
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	double := chaintest.NewDouble(t, w.Client())
	double.Swallow()
	w.crashes(func(ctx context.Context, r *chain.Rail) { _, _ = r.Sell(ctx, s) }, "transaction sent", 1, append(change, w.through(double))...)
	must.Do(t, w.Advance(10*time.Minute))
	r := w.running(change...)
	w.eventually("our transaction lands", func() bool { return w.nonce(w.relayer) == 1 })
	w.stays(s.OrderID, chain.Sent)
	sink.has(s.OrderID, false, 0)
	w.blocks(40) // the finalized block moves every 32
	op := w.decided(s.OrderID, chain.Failed)
	if op.Failure.Params["reason"] != wordBefore || op.Failure.Position.Block == 0 {
		t.Errorf("failure: %+v", op.Failure)
	}
	w.idle()
	w.unsold(r, s, wordBefore)
	sink.has(s.OrderID, false, 0)
	w.has(buyer, usdc, 1_000_000, receiver(1), usdc, 0)
	if _, err := w.records.Op(t.Context(), "void:"+s.OrderID); err == nil {
		t.Error("it was voided")
	}
}

// Others may carry an authorization out as long as it is valid: a sale that is sent and does not land is not given up before.
// T62
func TestOthersInTime(t *testing.T) {
	w := newWorld(t, chaintest.Embedded(t)) // on anvil each block finalizes the one before the last
	sink := w.ledger()
	double := chaintest.NewDouble(t, w.Client())
	double.Swallow()
	r := w.running(remote, w.through(double), func(c *chain.Config) { c.Orders, c.VoidAfter = sink, time.Minute })
	keys, buyer := w.stranger(usdc, 1_000_000)
	s := w.sale(keys, buyer, receiver(1), 1_000_000)
	go func() { _, _ = r.Sell(t.Context(), s) }()
	w.decided(s.OrderID, chain.Sent)
	must.Do(t, w.Advance(2*time.Minute))
	w.stays(s.OrderID, chain.Sent)
	w.submit(s)
	w.decided(s.OrderID, chain.Included)
	if err := w.Advance(10 * time.Minute); err != nil { // its end passes while it gets deeper
		t.Fatal(err)
	}
	w.blocks(40)
	w.decided(s.OrderID, chain.Final)
	w.eventually("the sink has heard", func() bool { return w.op(s.OrderID).Decided == chain.Final })
	sink.has(s.OrderID, true, 1)
}
